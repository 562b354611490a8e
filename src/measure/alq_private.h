/* SPDX-License-Identifier: BSD-2-Clause
 * What the queue (alq.c), the writer thread (alq_writer.c) and the end of the process (alq_end.c)
 * share. Private to this facility. */
#ifndef WEIR_MEASURE_ALQ_PRIVATE_H
#define WEIR_MEASURE_ALQ_PRIVATE_H

#include "alq.h"
#include "base/lock.h"
#include <pthread.h>

#define ALQ_OUT_BYTES (256 * 1024) /* written at once, at most */
#define ALQ_OUT_UNITS (ALQ_OUT_BYTES / 64)

struct alq_unit {
    uint32_t len;
    uint16_t n[2];
};

struct alq_out {
    char *buf;
    size_t len, done; /* bytes in it, bytes of them written */
    struct alq_unit *unit;
    uint32_t units, units_done;
    size_t unit_done; /* bytes written of the first unit that is not done */
};

enum { ALQ_OPEN, ALQ_CLOSING };

/* (c) constant; (l) under lock; (w) the writer thread; (m) under alq_all.mutex; (a) atomic. */
struct alq {
    struct alq *next;   /* (m) changed by the writer, and at the list's head */
    struct alq_ops ops; /* (c) */
    void *ctx;          /* (c) */
    const void *tag;    /* (c) */
    char *path;         /* (c) for messages */
    size_t record_max, keep_max;
    int fd;       /* (c) */
    bool regular; /* (c) a file that can be cut */
    dev_t dev;    /* (c) which file it is */
    ino_t ino;
    struct alq *after;         /* (m) this one's end comes first; the writer looks without */
    _Atomic uint32_t state;    /* (a) ALQ_OPEN, ALQ_CLOSING */
    _Atomic uint32_t want;     /* (a) somebody wants room */
    pthread_mutex_t room_lock; /* held for ops.room, and to close */

    struct lock lock; /* of the queue */
    char *queue;
    size_t queue_bytes;       /* (c) */
    _Atomic uint64_t in, out; /* (l) positions: next reservation, oldest entry */
    _Atomic uint64_t locks, lock_waits, lock_wait_ns; /* (l), read by anybody */
    uint32_t sleepers;                                /* (l) in alq_get */
    pthread_mutex_t sleep_lock;
    pthread_cond_t sleep_cond;

    struct alq_ring ring; /* slots NULL: none */

    struct alq_out o;            /* (w) */
    bool finished;               /* (w) ops.finish has said all */
    bool complained;             /* (w) */
    uint64_t retry_ns;           /* (w) what cannot be written is dropped until then */
    _Atomic uint64_t written[2]; /* (w), read by anybody, as these: */
    _Atomic uint64_t lost[2];
    _Atomic uint64_t bytes, writes, errors;
};

/* All logs of the process. */
struct alq_all {
    pthread_mutex_t mutex;
    pthread_cond_t gone; /* a log has gone */
    pid_t pid;           /* whose logs these are: a forked child starts over */
    struct alq *first;
    bool running;              /* the writer thread */
    _Atomic uint64_t progress; /* changes when anything moves */
};
extern struct alq_all alq_all;

uint64_t alq_now_ns(void);
/* alq.c. Take up to n bytes of posted entries to the output. True: none is left. */
bool alq_queue_collect(struct alq *q);
void alq_free(struct alq *q);
/* alq_writer.c. Another log of the same file is to end first. */
bool alq_writer_has(const struct alq *q);
/* The last n bytes of the file are a torn unit: cut them off, unless somebody else has appended. */
void alq_cut(const struct alq *q, size_t n);
/* Put q on the list, and see that there is a thread. 0 or a negative errno. */
int alq_writer_add(struct alq *q) NODISCARD;
/* Room has come: whoever asked for it is told. */
void alq_writer_room(struct alq *q);
/* alq_end.c. Once a process, before the first log is open; and when the last has gone. */
void alq_end_watch(void);
void alq_end_unwatch(void);
/* The writer thread looks: a signal has asked for the end. True: logs are being closed for it. */
bool alq_end_wanted(void);
void alq_end_now(void); /* all logs are in their files: end by that signal */

#endif
