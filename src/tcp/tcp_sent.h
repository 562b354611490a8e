/* SPDX-License-Identifier: BSD-2-Clause
 * The list of sent ranges, as output and recovery use it. */
#ifndef WEIR_TCP_TCP_SENT_H
#define WEIR_TCP_TCP_SENT_H

#include "tcp_var.h"

/* What an acknowledgment took off the list. */
struct tcp_sent_ack {
    uint64_t sent_ns; /* transmission of the last byte, if it gives an RTT sample (Karn); else 0 */
    bool rexmitted;   /* some of it had been retransmitted */
    bool fresh;       /* some of it, from `low` on, was neither SACKed before nor sent twice */
    uint32_t low;
};

/* [start, end) leaves now for the first time, start == the end of the list; segsz: payload bytes of
 * its segments. Joins the range that left at the same moment. -ENOMEM: nothing changed. */
int tcp_sent_add(struct tcpcb *tp, uint32_t start, uint32_t end, uint32_t segsz) NODISCARD;
/* The last bytes from `start` on did not leave after all. */
void tcp_sent_undo(struct tcpcb *tp, uint32_t start);
/* Everything before una is acknowledged. O(ranges that go), amortised constant. */
void tcp_sent_acked(struct tcpcb *tp, uint32_t una, struct tcp_sent_ack *out);

/* The receiver holds [start, end): whole segments inside become SENT_SACKED. Returns the bytes that
 * are new. Splits at segment boundaries only and within net.inet.tcp.sack.maxholes; what does not
 * fit is ignored (counted). *low comes down to the lowest of them that was sent but once; NULL: not
 * asked. Cost: O(log n) and what is newly SACKed. */
uint32_t tcp_sent_sack(struct tcpcb *tp, uint32_t start, uint32_t end, uint32_t *low);
/* The receiver went back on its SACKs (RFC 2018 8). */
void tcp_sent_renege(struct tcpcb *tp);
bool tcp_sent_first_sacked(const struct tcpcb *tp);
/* Mark as lost all that RFC 6675's IsLost() says is, for SMSS and DupThresh. Returns bytes newly
 * lost. */
uint32_t tcp_sent_mark_lost(struct tcpcb *tp, uint32_t mss, uint32_t dupthresh);
/* Below the highest SACKed byte, mark the first piece, up to mss, that is neither SACKed nor lost
 * as lost (RFC 6675 NextSeg(), rule 3). False: there is none. */
bool tcp_sent_lose_hole(struct tcpcb *tp, uint32_t mss);
/* Mark the highest piece before `end` that is not SACKed, up to mss, as lost if it is not (rule 4,
 * the rescue retransmission). */
bool tcp_sent_lose_tail(struct tcpcb *tp, uint32_t end, uint32_t mss);
/* Mark the first bytes of the list, up to len and not beyond a SACKed range, as lost and not
 * retransmitted. */
void tcp_sent_lose_head(struct tcpcb *tp, uint32_t len);
/* A timeout: all that is not SACKed is lost. */
void tcp_sent_lose_all(struct tcpcb *tp);
/* Segments of more than segsz bytes are lost (they were too big for the path). */
void tcp_sent_lose_bigger(struct tcpcb *tp, uint32_t segsz);
/* The timeout was spurious: what is lost and was not retransmitted is in flight. */
void tcp_sent_unlose(struct tcpcb *tp);

/* The next bytes to retransmit: from *start, at most max, contiguous, lost and not retransmitted.
 * 0: none. */
uint32_t tcp_sent_next_lost(struct tcpcb *tp, uint32_t max, uint32_t *start);
/* [start, start + len), as tcp_sent_next_lost gave it, is retransmitted now. */
void tcp_sent_rexmitted(struct tcpcb *tp, uint32_t start, uint32_t len, uint32_t segsz);
/* ... and that failed. */
void tcp_sent_rexmit_failed(struct tcpcb *tp, uint32_t start);
/* The receiver had [start, end) before (D-SACK): fast recovery's retransmissions in it have been
 * told of. Each counts once. True: no other is left, so all were needless. */
bool tcp_sent_settle(struct tcpcb *tp, uint32_t start, uint32_t end);

/* Lost bytes that wait for their retransmission. */
static inline uint32_t tcp_sent_to_rexmit(const struct tcpcb *tp)
{
    return tp->t_lost_bytes - tp->t_rexmit_bytes;
}

#endif
