/* SPDX-License-Identifier: BSD-2-Clause
 * NewReno's window: slow start and congestion avoidance with byte counting (RFC 5681, RFC 3465). */
#include "tcp_cc.h"

static void newreno_init(struct tcpcb *tp)
{
    tp->t_bytes_acked = 0;
}

static void newreno_acked(struct tcpcb *tp, const struct tcp_cc_ack *a)
{
    uint32_t incr;
    if (tp->snd_cwnd <= tp->snd_ssthresh) {
        tp->t_bytes_acked = 0;
        if (!tcp_cc_is_limited(tp, a))
            return;
        incr = tcp_cc_slow_start(tp, a);
    } else {
        tp->t_bytes_acked += a->bytes;
        if (tp->t_bytes_acked < tp->snd_cwnd)
            return;
        tp->t_bytes_acked -= tp->snd_cwnd;
        if (!tcp_cc_is_limited(tp, a))
            return;
        incr = tcp_segment_size(tp);
    }
    tp->snd_cwnd = (uint32_t)MIN((uint64_t)tp->snd_cwnd + incr, tcp_cc_max_window(tp));
}

static void newreno_event(struct tcpcb *tp, enum tcp_cc_event e)
{
    uint32_t mss = tcp_segment_size(tp);
    uint32_t half = MAX(tp->snd_cwnd / 2 / mss, 2) * mss;
    switch (e) {
    case TCP_CC_LOSS:
        tp->snd_ssthresh = half;
        break;
    case TCP_CC_TIMEOUT: /* RFC 5681 3.1: of what was in flight */
        tp->snd_ssthresh = MAX(MIN(tp->snd_wnd, tcp_sent_pipe(tp)) / 2 / mss, 2) * mss;
        break;
    case TCP_CC_ECN:
        tp->snd_ssthresh = tp->snd_cwnd = half;
        break;
    case TCP_CC_IDLE:
        tcp_cc_restart(tp);
        break;
    case TCP_CC_UNDO:
        break;
    }
    tp->t_bytes_acked = 0;
}

const struct tcp_cc tcp_cc_newreno = {
    .name = "newreno",
    .init = newreno_init,
    .acked = newreno_acked,
    .event = newreno_event,
};
