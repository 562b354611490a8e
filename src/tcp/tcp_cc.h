/* SPDX-License-Identifier: BSD-2-Clause
 * Congestion control: what an algorithm is told, in bytes and segments, and what it may change. */
#ifndef WEIR_TCP_TCP_CC_H
#define WEIR_TCP_TCP_CC_H

#include "tcp_var.h"

#define TCP_CC_NAME_MAX 16               /* with the terminating zero, as Linux's TCP_CONGESTION */
#define TCP_SSTHRESH_INITIAL 1073725440u /* 65535 << 14: no threshold yet */

/* New data were acknowledged outside recovery. */
struct tcp_cc_ack {
    uint32_t bytes;    /* acknowledged by this ACK */
    uint32_t segs;     /* wire segments (ACKs) this stands for */
    bool cwnd_limited; /* the window had been in use: growth is justified (RFC 9293 3.8.2, RFC 7661)
                        */
    bool after_rto;    /* retransmitting after a timeout: slow start by L = 1 (RFC 3465 2.3) */
};

enum tcp_cc_event {
    TCP_CC_LOSS,    /* fast retransmit: set ssthresh */
    TCP_CC_ECN,     /* echo of congestion: set ssthresh and cwnd */
    TCP_CC_TIMEOUT, /* the first of a series of timeouts: set ssthresh (cwnd is set by the caller)
                     */
    TCP_CC_UNDO,    /* the timeout was spurious; cwnd and ssthresh are restored already */
    TCP_CC_IDLE,    /* about to send after an idle time: cwnd may come down to the initial window */
};

/* An algorithm. It keeps its state in t_cc_data and writes snd_cwnd and snd_ssthresh only. */
struct tcp_cc {
    const char *name;
    void (*init)(struct tcpcb *tp); /* t_cc_data is zero */
    void (*acked)(struct tcpcb *tp, const struct tcp_cc_ack *a);
    void (*event)(struct tcpcb *tp, enum tcp_cc_event e);
};

extern const struct tcp_cc tcp_cc_newreno, tcp_cc_cubic;

/* Payload bytes of a full segment with the options that every segment of the connection bears; at
 * least 1. */
uint32_t tcp_segment_size(const struct tcpcb *tp);
/* RFC 6928 (net.inet.tcp.initcwnd_segments), RFC 3390 when that is 0. */
uint32_t tcp_cc_initial_window(const struct tcpcb *tp);
/* The slow start increment of RFC 3465. */
uint32_t tcp_cc_slow_start(const struct tcpcb *tp, const struct tcp_cc_ack *a);
/* Is growth justified? (net.inet.tcp.newcwv) */
bool tcp_cc_is_limited(const struct tcpcb *tp, const struct tcp_cc_ack *a);
/* Largest congestion window: what the peer's scaled window field can name. */
uint32_t tcp_cc_max_window(const struct tcpcb *tp);
/* What all algorithms do before sending after idle (RFC 5681 4.1). */
void tcp_cc_restart(struct tcpcb *tp);

#endif
