/* SPDX-License-Identifier: BSD-2-Clause
 * One round of output of a connection: what deciding and building share. */
#ifndef WEIR_TCP_TCP_OUTPUT_H
#define WEIR_TCP_TCP_OUTPUT_H

#include "tcp_var.h"

struct tcp_tx {
    struct tcpcb *tp;
    struct weir_stack *s;
    struct socket *so;
    struct route rt; /* valid when routed */
    bool routed;
    bool tso;  /* the link takes superframes, and we may build them */
    bool idle; /* nothing was out when the round began */
    bool more; /* the application will append (MSG_MORE) */
    bool held; /* a partial segment must wait: MSG_MORE or TCP_CORK */
    uint8_t opt[TCP_MAX_OPTIONS];
    unsigned optlen;
    uint32_t seg;  /* payload bytes of a full segment */
    uint64_t sent; /* payload bytes sent in this round */
};

enum tcp_tx_kind {
    TCP_TX_NEW,    /* at snd_nxt, or nothing but an acknowledgment */
    TCP_TX_REXMIT, /* lost, from tcp_sent_next_lost */
    TCP_TX_PROBE,  /* of a shut window */
};

struct tcp_piece {
    uint32_t seq, len; /* payload */
    uint8_t flags;     /* TH_*, with TH_ACK */
    enum tcp_tx_kind kind;
    bool winupdate; /* sent for the sake of the window only */
};

/* Payload bytes of a full segment sent now: SACK blocks that are due take their room. */
uint32_t tcp_tx_segment(const struct tcpcb *tp);
/* Look up the route, and follow its MTU. 0, or an error of ip_route. */
int tcp_tx_route(struct tcp_tx *tx) NODISCARD;
/* Build and send one piece (len over tx->seg: a superframe), and account for it: sent list,
 * snd_nxt, timers, what the peer has been told. 0, -ENOBUFS, -ENOMEM, or an error of ip_output;
 * then nothing has changed. */
int tcp_tx_send(struct tcp_tx *tx, const struct tcp_piece *p) NODISCARD;
/* A SYN, or SYN-ACK in SYN_RECEIVED; counts as sent even if it did not leave. */
int tcp_tx_syn(struct tcp_tx *tx) NODISCARD;
/* The application made so much room that the peer must be told. */
bool tcp_window_update_due(const struct tcpcb *tp);
/* Have the socket tell us of room in so_rcv only when it may matter for the window. */
void tcp_set_rcv_notice(struct tcpcb *tp);
/* Receive window by the buffer alone, unscaled, at most what the field can say. */
uint32_t tcp_receive_space(const struct tcpcb *tp);

#endif
