/* SPDX-License-Identifier: BSD-2-Clause
 * Socket buffers: what owner and application share of a socket's data. */
#ifndef WEIR_BUF_SOCKBUF_H
#define WEIR_BUF_SOCKBUF_H

#include "base/lock.h"
#include "mbuf.h"

/* One producer and one consumer at a time: on so_rcv the owner appends and applications (serialised
 * by the socket's receive lock) take; on so_snd applications append (serialised by its send lock)
 * and the owner references and drops. (l) under sb_lock; (x) written under sb_lock, read anywhere.
 */
struct sockbuf {
    struct lock sb_lock;
    struct mbuf *sb_mb;      /* (l) first; records (datagrams) are chained by m_nextpkt */
    struct mbuf *sb_tail;    /* (l) last mbuf of the stream, or of the last record */
    struct mbuf *sb_lastrec; /* (l) first mbuf of the last record */
    struct mbuf *sb_cursor;  /* (l) stream: mbuf holding byte sb_cursor_off (send position cache) */
    uint32_t sb_cursor_off;  /* (l) offset of that mbuf's first byte from the start of the buffer */
    uint32_t sb_dropped;     /* (l) stream: bytes that ever left at the front, modulo 2^32 */
    _Atomic uint32_t sb_cc;  /* (x) bytes */
    _Atomic uint32_t sb_mem; /* (x) memory including overhead */
    _Atomic uint32_t sb_hiwat;  /* (x) limit of bytes */
    _Atomic uint32_t sb_memmax; /* (x) limit of memory, at most 8 times hiwat */
    _Atomic uint32_t sb_lowat;
};

void sockbuf_init(struct sockbuf *sb, struct lock_class *lc, uint32_t hiwat);
void sockbuf_fini(struct sockbuf *sb); /* frees all data */
void sockbuf_reserve(struct sockbuf *sb, uint32_t hiwat);

static inline uint32_t sockbuf_used(const struct sockbuf *sb)
{
    return atomic_load_explicit(&sb->sb_cc, memory_order_acquire);
}
/* Free bytes by both budgets (never negative). */
uint32_t sockbuf_space(const struct sockbuf *sb);

/* Append to the stream; small segments are copied into trailing space or out of big clusters.
 * Consumes *m. */
void sockbuf_append_stream(struct sockbuf *sb, struct mbuf **m);
/* Append one datagram record: from (may be NULL) stored in front, then the data. Consumes *m
 * always; false (and the data freed) when there is no space or memory. */
bool sockbuf_append_record(struct sockbuf *sb, struct mbuf_account *acct, const void *from,
                           uint32_t fromlen, struct mbuf **m) NODISCARD;
/* Drop n bytes (<= used) of the stream from the front. */
void sockbuf_drop(struct sockbuf *sb, uint32_t n);
/* Unlink the first record (owned by the caller), NULL when empty. */
struct mbuf *sockbuf_take_record(struct sockbuf *sb) NODISCARD;
/* Reference bytes [off, off+len) of the stream for transmission; O(1) for sequential offsets. NULL:
 * no memory. */
struct mbuf *sockbuf_ref(struct sockbuf *sb, struct mbuf_account *acct, uint32_t off,
                         uint32_t len) NODISCARD;
/* Copy bytes [off, off+len) of the stream to dst: for segments so small that a reference costs
 * more. */
void sockbuf_copy_out(struct sockbuf *sb, uint32_t off, uint32_t len, void *dst);
/* Everything in the stream, dropped. */
void sockbuf_flush(struct sockbuf *sb);

#endif
