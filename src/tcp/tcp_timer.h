/* SPDX-License-Identifier: BSD-2-Clause
 * What output and recovery ask of the timers beyond tcp_var.h. */
#ifndef WEIR_TCP_TCP_TIMER_H
#define WEIR_TCP_TCP_TIMER_H

#include "tcp_var.h"

#define TCP_MAXRXTSHIFT 12 /* retransmissions before a connection is given up */
#define TCP_REXMT_MAX_NS (64 * NS_PER_S)
#define TCP_LINGER2_MAX_MS 120000 /* Linux's bound of TCP_LINGER2 */

/* Factor of the n-th backoff. */
uint32_t tcp_timer_backoff(uint32_t shift);
/* Data wait because a cork, MSG_MORE or Nagle's partial segment holds them: flush after
 * net.inet.tcp.msgmore_flush. */
void tcp_timer_event_corked(struct tcpcb *tp);
/* A round-trip time taken in as FreeBSD does, which counts ticks of a millisecond and takes one off
 * from the second sample on. tcp_rtt_sample is the better one. */
void tcp_rtt_sample_ticks(struct tcpcb *tp, uint64_t rtt_ns);
/* The application has shut a direction down. */
void tcp_timer_event_shutdown(struct tcpcb *tp);
/* An ACK is delayed. */
void tcp_timer_event_delack(struct tcpcb *tp);
/* An ACK left: no delayed one is due any more. */
void tcp_timer_event_ack_sent(struct tcpcb *tp);
/* A packet could not be sent for want of memory: try again after a retransmission timeout. */
void tcp_timer_event_nobufs(struct tcpcb *tp);

#endif
