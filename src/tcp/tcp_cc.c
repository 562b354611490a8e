/* SPDX-License-Identifier: BSD-2-Clause
 * Congestion control: choice of the algorithm, and what all of them share. */
#include "tcp_cc.h"
#include "tcp_output.h"

#define TS_OPTION_LEN 12
#define RFC3390_BYTES 4380
#define RFC6928_SEGMENT 1460

/* In the order of the words of net.inet.tcp.cc.algorithm. */
static const struct tcp_cc *const algorithms[] = {&tcp_cc_newreno, &tcp_cc_cubic};

const struct tcp_cc *tcp_cc_find(const char *name)
{
    if (strcmp(name, "reno") == 0) /* Linux's name */
        return &tcp_cc_newreno;
    for (size_t i = 0; i < NELEM(algorithms); i++) {
        if (strcmp(algorithms[i]->name, name) == 0)
            return algorithms[i];
    }
    return NULL;
}

const char *tcp_cc_name(const struct tcp_cc *cc)
{
    return cc->name;
}

void tcp_cc_attach(struct tcpcb *tp, const struct tcp_cc *cc)
{
    if (!cc) {
        uint64_t i = (uint64_t)KNOB(tp->t_stack, tcp_cc_algorithm);
        cc = algorithms[i < NELEM(algorithms) ? i : 0];
    }
    tp->t_cc = cc;
    memset(tp->t_cc_data, 0, sizeof(tp->t_cc_data));
    if (!tp->snd_ssthresh)
        tp->snd_ssthresh = TCP_SSTHRESH_INITIAL;
    cc->init(tp);
}

uint32_t tcp_segment_size(const struct tcpcb *tp)
{
    uint32_t opt = tp->t_flags & TF_RCVD_TSTMP ? TS_OPTION_LEN : 0;
    return tp->t_maxseg > opt ? tp->t_maxseg - opt : 1;
}

uint32_t tcp_cc_initial_window(const struct tcpcb *tp)
{
    uint32_t mss = tcp_segment_size(tp);
    uint32_t segs = (uint32_t)KNOB(tp->t_stack, tcp_initcwnd_segments);
    if (segs)
        return MIN(segs * mss, MAX(2 * mss, segs * RFC6928_SEGMENT));
    if (KNOB(tp->t_stack, tcp_rfc3390))
        return MIN(4 * mss, MAX(2 * mss, RFC3390_BYTES));
    return mss > 2190 ? 2 * mss : mss > 1095 ? 3 * mss : 4 * mss; /* RFC 5681 3.1 */
}

void tcp_cc_conn_init(struct tcpcb *tp)
{
    tp->snd_recover = tp->iss;
    tp->t_lost_mark = tp->t_rexmit_next = tp->snd_una;
    if (tp->t_state < TCPS_ESTABLISHED && tp->t_srtt == 0)
        tcp_hostcache_apply(tp);
    /* RFC 5681 3.1: a lost SYN or SYN-ACK means one segment. */
    tp->snd_cwnd = tp->snd_cwnd == 1 ? tcp_segment_size(tp) : tcp_cc_initial_window(tp);
    tcp_set_rcv_notice(tp);
}

uint32_t tcp_cc_max_window(const struct tcpcb *tp)
{
    return 65535u << tp->snd_scale;
}

bool tcp_cc_is_limited(const struct tcpcb *tp, const struct tcp_cc_ack *a)
{
    return a->cwnd_limited || (!KNOB(tp->t_stack, tcp_newcwv) && tp->snd_cwnd <= tp->snd_wnd);
}

uint32_t tcp_cc_slow_start(const struct tcpcb *tp, const struct tcp_cc_ack *a)
{
    uint64_t limit = tcp_segment_size(tp);
    if (!a->after_rto) {
        limit *= a->segs;
        /* A superframe is answered by one ACK: what arrives together counts as one segment would.
         */
        if (tp->t_flags & TF_TSO)
            limit = MAX(limit, (uint64_t)KNOB(tp->t_stack, tcp_tso_max_bytes));
        limit *= (uint64_t)KNOB(tp->t_stack, tcp_abc_l_var);
    }
    return (uint32_t)MIN(a->bytes, limit);
}

void tcp_cc_restart(struct tcpcb *tp)
{
    /* Three quarters of what had been reached stay as the threshold, so that growth is quick up to
     * there. */
    if (tp->snd_cwnd > tp->snd_ssthresh)
        tp->snd_ssthresh = MAX(tp->snd_ssthresh, tp->snd_cwnd - (tp->snd_cwnd >> 2));
    tp->snd_cwnd = MIN(tp->snd_cwnd, tcp_cc_initial_window(tp));
}
