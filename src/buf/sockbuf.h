/* SPDX-License-Identifier: BSD-2-Clause
 * Socket buffers: what owner and application share of a socket's data. */
#ifndef WEIR_BUF_SOCKBUF_H
#define WEIR_BUF_SOCKBUF_H

#include "base/lock.h"
#include "mbuf.h"

/* How a stream's two sides meet (net.inet.tcp.soreceive_stream). The structure is the same in all:
 * the first two merely take sb_lock around it, so it may be switched while both are at work. */
enum { SOCKBUF_GENERIC, SOCKBUF_STREAM, SOCKBUF_LOCKFREE };

/* What was lent out of a buffer (zero-copy receive) and not given back: it outlives the buffer. */
struct sockbuf_lent {
    _Atomic uint32_t refs; /* the buffer's, and one for each piece */
    _Atomic uint32_t mem;  /* memory of the pieces: still charged to the buffer */
};

/* A stream has one producer and one consumer at a time: on so_rcv the owner appends and
 * applications (serialised by the socket's receive lock) take; on so_snd applications append
 * (serialised by its send lock) and the owner references and drops. No lock is needed between the
 * two: see sockbuf.c. Records (datagrams) are under sb_lock throughout.
 * (p) producer, (c) consumer; (P), (C) written by that one, read by anybody; (x) set rarely, by the
 * owner, read by anybody; (l) under sb_lock. The groups of the two sides lie a cache line apart. */
struct sockbuf {
    _Atomic(struct mbuf *) sb_tail; /* last mbuf of the stream or of the last record; NULL: none */
    struct mbuf *sb_first;  /* (p) a stream that began while sb_tail was NULL; the consumer takes it
                             */
    _Atomic uint32_t sb_in; /* (P) bytes ever appended, modulo 2^32 */
    _Atomic uint32_t sb_mem_in; /* (P) their memory, with overhead */

    struct lock sb_lock;
    const _Atomic int64_t *sb_mode; /* (c) SOCKBUF_*; NULL: always lock-free */
    _Atomic uint32_t sb_hiwat;      /* (x) limit of bytes */
    _Atomic uint32_t sb_memmax;     /* (x) limit of memory, at most 8 times hiwat */
    _Atomic uint32_t sb_lowat;
    bool sb_split; /* (c) sb_mb is the last of its chain, and the stream goes on at sb_first */
    _Atomic(struct sockbuf_lent *) sb_lent; /* (C) NULL: nothing was ever lent */
    uint8_t sb_pad[16];

    struct mbuf *sb_mb;          /* (c) first; (l) records are chained by m_nextpkt */
    struct mbuf *sb_lastrec;     /* (l) first mbuf of the last record */
    struct mbuf *sb_cursor;      /* (c) an mbuf in the stream (send position cache) */
    uint32_t sb_cursor_at;       /* (c) its first byte, as sb_out counts */
    uint32_t sb_off;             /* (c) bytes of sb_mb that have left */
    _Atomic uint32_t sb_out;     /* (C) bytes that ever left at the front, modulo 2^32 */
    _Atomic uint32_t sb_mem_out; /* (C) memory */
};
_Static_assert(offsetof(struct sockbuf, sb_mb) - offsetof(struct sockbuf, sb_mem_in) >= CACHE_LINE,
               "the two sides write different cache lines");

void sockbuf_init(struct sockbuf *sb, struct lock_class *lc, uint32_t hiwat);
/* From now on *mode is looked at; before the buffer is shared. */
void sockbuf_set_mode(struct sockbuf *sb, const _Atomic int64_t *mode);
void sockbuf_fini(struct sockbuf *sb); /* frees all data; nobody else may use it */
void sockbuf_reserve(struct sockbuf *sb, uint32_t hiwat);

/* Bytes in the buffer. Exact for whom nobody else's change matters: the consumer sees no fewer than
 * it may take, the producer no fewer than there are, others what was there at some moment. */
static inline uint32_t sockbuf_used(const struct sockbuf *sb)
{
    /* What left is read first, so that it was in. */
    uint32_t out = atomic_load_explicit(&sb->sb_out, memory_order_acquire);
    return atomic_load_explicit(&sb->sb_in, memory_order_acquire) - out;
}
/* Memory of what is in the buffer or lent out of it. */
uint32_t sockbuf_mem(const struct sockbuf *sb);
/* Free bytes by both budgets (never negative). */
uint32_t sockbuf_space(const struct sockbuf *sb);
/* True when the two sides take sb_lock now. */
static inline bool sockbuf_is_locked(const struct sockbuf *sb)
{
    return sb->sb_mode != NULL && LOAD_RELAXED(sb->sb_mode) != SOCKBUF_LOCKFREE;
}

/* --- streams: the producer --- */
/* Append to the stream; small segments are copied into trailing space or out of big clusters.
 * Consumes *m. */
void sockbuf_append_stream(struct sockbuf *sb, struct mbuf **m);

/* --- streams: the consumer --- */
/* The first mbuf and the offset in it of the first byte; NULL when the buffer is empty. Of the
 * chain as many bytes may be looked at as sockbuf_used told; lengths and links by sockbuf_len and
 * sockbuf_next, as the producer goes on filling the last mbuf. No lock: cost O(1). */
const struct mbuf *sockbuf_head(struct sockbuf *sb, uint32_t *off);
static inline uint32_t sockbuf_len(const struct mbuf *m)
{
    return __atomic_load_n(&m->m_len, __ATOMIC_RELAXED);
}
static inline struct mbuf *sockbuf_next(const struct mbuf *m)
{
    return __atomic_load_n(&m->m_next, __ATOMIC_ACQUIRE);
}
/* Where a cut behind n bytes goes through. */
struct sockbuf_cut {
    struct mbuf *last; /* last one in front of it, NULL: none */
    struct mbuf *next; /* what begins, or goes on, behind it */
    uint32_t off;      /* in next */
    uint32_t n, mem;
};
/* Find the cut behind n bytes (<= used): looks only. */
void sockbuf_find(struct sockbuf *sb, uint32_t n, struct sockbuf_cut *c);
/* Take off the front what is before the cut just found: O(1). Returns the mbufs that are done with,
 * to be freed by the caller (after it released its locks). */
struct mbuf *sockbuf_cut(struct sockbuf *sb, struct sockbuf_cut *c) NODISCARD;
/* Both. None of these takes a lock. */
struct mbuf *sockbuf_unlink(struct sockbuf *sb, uint32_t n) NODISCARD;
/* Drop n bytes (<= used) of the stream from the front, as the mode says. */
void sockbuf_drop(struct sockbuf *sb, uint32_t n);
/* Reference bytes [off, off+len) of the stream for transmission; O(1) for sequential offsets. NULL:
 * no memory. */
struct mbuf *sockbuf_ref(struct sockbuf *sb, struct mbuf_account *acct, uint32_t off,
                         uint32_t len) NODISCARD;
/* Copy bytes [off, off+len) of the stream to dst: for segments so small that a reference costs
 * more. False: some of them have vanished (mbuf_intact). */
bool sockbuf_copy_out(struct sockbuf *sb, uint32_t off, uint32_t len, void *dst);
/* Everything in the stream, dropped. By the consumer, or by the producer in its stead. */
void sockbuf_flush(struct sockbuf *sb);
/* Take up to n bytes (> 0, <= used) off the front as a chain of at most `pieces` (> 0) mbufs, which
 * is the caller's. Their memory stays charged to the buffer until sockbuf_give_back. What a file's
 * owner could cut is copied. acct: for headers where an mbuf must be shared. 0; -ENOBUFS: no
 * memory; -EIO: the first byte is lost. The lock of the mode is the caller's to hold. */
int sockbuf_lend(struct sockbuf *sb, struct mbuf_account *acct, uint32_t n, int pieces,
                 struct mbuf **chain, struct sockbuf_lent **from) NODISCARD;
/* One mbuf that was lent. Any thread, also when the buffer is no more. */
void sockbuf_give_back(struct sockbuf_lent *from, struct mbuf *m);

/* --- records --- */
/* Append one datagram record: from (may be NULL) stored in front, then the data. Consumes *m
 * always; false (and the data freed) when there is no space or memory. */
bool sockbuf_append_record(struct sockbuf *sb, struct mbuf_account *acct, const void *from,
                           uint32_t fromlen, struct mbuf **m) NODISCARD;
/* Unlink the first record (owned by the caller), NULL when empty. */
struct mbuf *sockbuf_take_record(struct sockbuf *sb) NODISCARD;

#endif
