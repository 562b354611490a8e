/* SPDX-License-Identifier: BSD-2-Clause
 * The forms that a reassembly queue may have, and what they share. */
#ifndef WEIR_TCP_TCP_REASS_H
#define WEIR_TCP_TCP_REASS_H

#include "tcp_in.h"

/* Contiguous text that came off the queue. */
struct reass_piece {
    struct mbuf *m, *last; /* chain, owned by who takes it; last: exact in the chain form only */
    uint32_t start, end;
};

/* An entry of the list. */
struct reass_segment {
    TAILQ_ENTRY(reass_segment) link;
    struct mbuf *m;
    uint32_t start, end;
    uint32_t mem;  /* mbuf_chain_mem of m */
    uint16_t segs; /* wire segments; 0: not the first piece of its segment */
};

/* net.inet.tcp.reass.algorithm. All by the owner. */
struct reass_form {
    bool one_by_one; /* what becomes in order is handed on entry by entry */
    /* Queue text that does not start at rcv_nxt, what it has of new bytes; tell SACK and D-SACK.
     * seg    its text is taken, or left when nothing is; the caller frees what is left */
    void (*insert)(struct tcpcb *tp, struct tcp_segment *seg);
    /* Where the first entry starts; false: the queue is empty. O(1) */
    bool (*first)(const struct tcpcb *tp, uint32_t *start);
    /* Take the first entry out. */
    void (*take)(struct tcpcb *tp, struct reass_piece *out);
    /* Drop the text from seq on. False: there was none. */
    bool (*cut)(struct tcpcb *tp, uint32_t seq);
};
extern const struct reass_form tcp_reass_list, tcp_reass_chain;

/* The form of what is queued; of an empty queue, what the knob says. */
const struct reass_form *tcp_reass_form(struct tcpcb *tp);
/* May this segment be queued? entries: there are now; grows: it needs one more. False: counted. */
bool tcp_reass_admits(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t entries,
                      bool grows);
/* All of the segment is held already, in [start, end). */
void tcp_reass_duplicate(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t start,
                         uint32_t end);
/* A lone small segment in a big buffer would pin all of it: move it. Without memory it stays where
 * it is. */
void tcp_reass_compact(struct tcpcb *tp, struct tcp_segment *seg);
/* Cut the first n bytes of a segment off as a chain of their own; the rest stays. When memory for
 * the cut is short the rest is given up. NULL: the one byte that it had was urgent and is out of
 * the stream. */
struct mbuf *tcp_reass_split(struct tcp_segment *seg, uint32_t n);
/* Sums of the queue: wire segments, payload and memory come (or go). */
void tcp_reass_charge(struct tcpcb *tp, uint32_t segs, uint32_t bytes, uint32_t mem);
void tcp_reass_discharge(struct tcpcb *tp, uint32_t segs, uint32_t bytes, uint32_t mem);

#endif
