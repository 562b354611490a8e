/* SPDX-License-Identifier: BSD-2-Clause
 * Asynchronous log queues: what is logged reaches its file through bounded memory and one writer
 * thread a process.
 *
 * A log takes records in two ways, and may use both:
 * - a queue of bytes for any number of threads: alq_get reserves, alq_post commits; its lock (class
 *   "alq") is held for neither what is written in between nor for the file;
 * - a ring of raw records for one producer at a time (a thread, or the owner of a stack): no lock,
 *   and the writer thread makes the bytes of them (ops->format).
 *
 * Bytes come in units that are written whole or not at all: what a failed write left of one is cut
 * off again. Units that could not be written are counted by their tallies. */
#ifndef WEIR_MEASURE_ALQ_H
#define WEIR_MEASURE_ALQ_H

#include "base/base.h"
#include <sys/types.h>

struct alq;
struct alq_out;

/* All are called by the writer thread, with no lock held but for room. Any may be NULL. */
struct alq_ops {
    /* Make bytes of n records that lie one behind another. */
    void (*format)(void *ctx, const void *records, uint32_t n, struct alq_out *out);
    /* All records have been formatted for now: put out what format held back. */
    void (*settle)(void *ctx, struct alq_out *out);
    /* The log is closed and all of it is in the file: add what ends it. False: there was no room
     * for all; called again. */
    bool (*finish)(void *ctx, struct alq_out *out);
    /* What alq_want_room asked for has come. Not called any more once alq_close has begun. */
    void (*room)(void *ctx);
    /* The file is closed, the alq is about to be freed: the last call. */
    void (*gone)(void *ctx);
};

struct alq_config {
    const char *path;
    mode_t mode; /* of a file that is made */
    /* Called with the open file, before anything is written: 0, or a negative error that refuses
     * it. *size: its length, which may be lowered to cut off a torn end (regular files). */
    int (*look)(void *ctx, int fd, off_t *size);
    const void *head; /* written at once, so that a full disk is noticed */
    size_t head_len;
    size_t queue_bytes;   /* of the queue; 0: none */
    uint32_t ring_count;  /* slots of the ring, a power of two from 16 on; 0: none */
    uint32_t ring_stride; /* bytes of a slot, a multiple of 64 */
    size_t record_max;    /* bytes that a record becomes */
    size_t keep_max;      /* bytes that format may hold back */
    const struct alq_ops *ops;
    void *ctx;
    /* Whose log this is, for alq_wait_closed. Logs of one owner to one file follow one another: the
     * older must be closed once the next is open. */
    const void *tag;
};

/* Open for appending; a FIFO must have a reader. 0, or a negative errno. Blocks as open and a
 * short write do. */
int alq_open(struct alq **q, const struct alq_config *cfg) NODISCARD;
/* No more is to be logged: by the last producer. Returns at once; the writer thread writes what is
 * left, ends the log and frees it. */
void alq_close(struct alq *q);
/* Wait until all closed logs of tag (NULL: all logs at all) are in their files; gives up when
 * nothing has moved for limit_ns. True: they are. */
bool alq_wait_closed(const void *tag, uint64_t limit_ns);

/* ---- the queue ---- */
struct alq_entry {
    uint32_t size, used; /* private */
    uint16_t n[2];
    uint8_t state;
    uint8_t pad[3];
    char data[];
};
#define ALQ_NOWAIT 0
#define ALQ_WAIT 1
/* Reserve len bytes. ALQ_WAIT sleeps until there is room: never by the owner of a stack. NULL:
 * there is none now, or never will be. */
struct alq_entry *alq_get(struct alq *q, size_t len, int how) NODISCARD;
/* Commit the first `used` bytes: one unit, which counts as n0 and n1 of what the log counts. */
void alq_post(struct alq *q, struct alq_entry *e, size_t used, uint16_t n0, uint16_t n1);
/* Bytes reserved or not yet written; any thread, not exact. */
size_t alq_queued(const struct alq *q);

/* ---- the ring ---- */
/* (p) producer, (w) writer thread; (P), (W): read by the other. */
struct alq_ring {
    CACHE_ALIGNED _Atomic uint32_t tail; /* (P) */
    uint32_t head_seen;                  /* (p) */
    uint32_t mask, stride;               /* (c) */
    uint8_t *slots;                      /* (c) */
    CACHE_ALIGNED _Atomic uint32_t head; /* (W) */
};
struct alq_ring *alq_ring_of(struct alq *q);

/* How the writer sleeps. */
enum { ALQ_AWAKE, ALQ_NAPS /* not to be woken for a few records */, ALQ_SLEEPS };
extern _Atomic uint32_t alq_writer_sleep;
void alq_wake(void);

/* The next slot, to be filled and pushed; NULL: the ring is full. */
static inline void *alq_ring_slot(struct alq_ring *r)
{
    uint32_t tail = LOAD_RELAXED(&r->tail);

    if (unlikely(tail - r->head_seen > r->mask)) {
        r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
        if (tail - r->head_seen > r->mask)
            return NULL;
    }
    return r->slots + (size_t)(tail & r->mask) * r->stride;
}

/* Returns how many slots are in use: no fewer than there are. */
static inline uint32_t alq_ring_push(struct alq_ring *r)
{
    uint32_t tail = LOAD_RELAXED(&r->tail) + 1, sleep = LOAD_RELAXED(&alq_writer_sleep);

    atomic_store_explicit(&r->tail, tail, memory_order_release);
    /* The other core has read this slot: have its lines back before they are needed. */
    const uint8_t *next = r->slots + (size_t)(tail & r->mask) * r->stride;
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + CACHE_LINE, 1);
    if (unlikely(sleep != ALQ_AWAKE) && (sleep == ALQ_SLEEPS || (tail & (r->mask >> 2)) == 0))
        alq_wake();
    return tail - r->head_seen;
}

/* Slots in use now, by the producer. */
static inline uint32_t alq_ring_used(struct alq_ring *r)
{
    r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
    return LOAD_RELAXED(&r->tail) - r->head_seen;
}

/* Call ops->room when ring and queue are at most half full. True: they are now, and it will not be
 * called. By the producer. */
bool alq_want_room(struct alq *q) NODISCARD;

/* ---- what the writer thread writes ---- */
/* Room for one unit of up to n bytes; NULL: there is none now (only finish need expect that). */
char *alq_out_room(struct alq_out *out, size_t n);
/* Add the first len bytes of that room: a unit. */
void alq_out_add(struct alq_out *out, size_t len, uint16_t n0, uint16_t n1);

/* ---- figures and ends ---- */
struct alq_stats {
    uint64_t locks, lock_waits, lock_wait_ns; /* of the queue's lock */
    uint64_t written[2], lost[2];             /* tallies of units in the file, and not */
    uint64_t bytes, writes, errors;
};
/* Not exact while threads are at work. */
void alq_stats(const struct alq *q, struct alq_stats *st);

/* Called before the process ends, by exit() or by SIGTERM, SIGINT or SIGHUP where these are at
 * their default: closes logs that are still open. What is closed is written then. Set before the
 * first alq_open. */
void alq_set_end(void (*fn)(void));

#endif
