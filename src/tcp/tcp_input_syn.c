/* SPDX-License-Identifier: BSD-2-Clause
 * SYN_SENT (RFC 9293 3.10.7.3). */
#include "tcp_in.h"

/* RFC 3168 6.1.1: the answer to an ECN-setup SYN, or one that crosses ours. */
static void ecn_negotiate(struct tcpcb *tp, const struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    int64_t knob = KNOB(s, tcp_ecn_enable);
    uint8_t setup = seg->flags & (TH_ECE | TH_CWR);
    bool agreed = seg->flags & TH_ACK ? knob == 1 && setup == TH_ECE
                                      : knob != 0 && setup == (TH_ECE | TH_CWR);

    if (!agreed)
        return;
    tp->t_flags2 |= TF2_ECN_PERMIT;
    COUNT(s, tcp_ecn_shs);
}

/* What both ends have asked for holds (RFC 7323, RFC 2018). */
static void options_negotiate(struct tcpcb *tp, const struct tcp_segment *seg)
{
    const struct tcp_options *to = &seg->to;
    bool wanted = !(tp->t_flags & TF_NOOPT);

    if ((to->flags & TOF_SCALE) && (tp->t_flags & TF_REQ_SCALE) && wanted) {
        tp->t_flags |= TF_RCVD_SCALE;
        tp->snd_scale = MIN(to->wscale, TCP_MAX_WSCALE);
    } else {
        tp->t_flags &= ~TF_REQ_SCALE;
    }
    if ((to->flags & TOF_TS) && (tp->t_flags & TF_REQ_TSTMP) && wanted) {
        tp->t_flags |= TF_RCVD_TSTMP;
        tp->ts_recent = to->tsval;
        tp->ts_recent_ns = tp->t_stack->now;
    } else {
        tp->t_flags &= ~TF_REQ_TSTMP;
    }
    if (!(to->flags & TOF_SACKPERM) || !wanted)
        tp->t_flags &= ~TF_SACK_PERMIT;
    tp->snd_wnd = seg->wnd; /* never scaled in a SYN */
    tp->max_sndwnd = MAX(tp->max_sndwnd, seg->wnd);
    if (to->flags & TOF_MSS)
        tcp_mss_apply(tp, to->mss);
    else
        tcp_cc_conn_init(tp); /* t_maxseg stays at the default */
}

/* The peer's initial sequence number fixes the receive variables. */
static void receive_init(struct tcpcb *tp, uint32_t irs)
{
    tp->irs = irs;
    tp->rcv_nxt = tp->rcv_adv = tp->rcv_edge = tp->rcv_up = irs + 1;
    tp->last_ack_sent = irs + 1;
}

/* Text that came with the SYN, trimmed to the window. */
static void syn_strip(struct tcpcb *tp, struct tcp_segment *seg)
{
    seg->flags &= (uint8_t) ~(TH_SYN | TH_URG);
    seg->seq++;
    if (seg->len > tp->rcv_wnd)
        tcp_segment_trim_tail(seg, seg->len - tp->rcv_wnd);
    tp->snd_wl1 = seg->seq - 1;
}

/* <SYN,ACK>: established. */
static enum tcp_verdict syn_acked(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    COUNT(s, tcp_connects);
    if ((tp->t_flags & (TF_RCVD_SCALE | TF_REQ_SCALE)) == (TF_RCVD_SCALE | TF_REQ_SCALE))
        tp->rcv_scale = tp->request_r_scale;
    tp->rcv_adv += MIN(tp->rcv_wnd, TCP_MAXWIN); /* as offered in our SYN, never scaled */
    tp->rcv_edge = tp->rcv_adv;
    tp->t_starttime = s->now;
    syn_strip(tp, seg);
    if (tp->t_flags & TF_NEEDFIN) {
        tp->t_flags &= ~TF_NEEDFIN;
        tcp_state_set(tp, TCPS_FIN_WAIT_1);
    } else {
        tcp_state_set(tp, TCPS_ESTABLISHED);
    }
    so_connected(tp->t_so);
    (void)tcp_ack(tp, seg); /* of the SYN: no FIN is out */
    if (!seg->len) {
        tp->t_flags |= TF_ACKNOW;
        tp->t_flags2 |= TF2_ACK_MAY_WAIT;
    }
    tcp_output_later(tp);
    return tcp_step_text(tp, seg);
}

/* <SYN> alone: simultaneous open. Text and FIN in it wait for the end of the handshake. */
static enum tcp_verdict syn_crossed(struct tcpcb *tp, struct tcp_segment *seg)
{
    tcp_timer_cancel(tp, TT_REXMT);
    tp->t_flags |= TF_ACKNOW | TF_NEEDSYN;
    tcp_state_set(tp, TCPS_SYN_RECEIVED);
    syn_strip(tp, seg);
    return tcp_step_text(tp, seg);
}

enum tcp_verdict tcp_syn_sent_input(struct tcpcb *tp, struct tcp_segment *seg)
{
    if ((seg->flags & TH_ACK) && (SEQ_LEQ(seg->ack, tp->iss) || SEQ_GT(seg->ack, tp->snd_max)))
        return TCP_DROP_RST;
    if (seg->flags & TH_RST) {
        if (!(seg->flags & TH_ACK)) {
            COUNT(tp->t_stack, tcp_rx_badrst);
            return TCP_DONE;
        }
        tcp_drop(tp, ECONNREFUSED);
        return TCP_GONE;
    }
    if (!(seg->flags & TH_SYN))
        return TCP_DONE;
    options_negotiate(tp, seg);
    ecn_negotiate(tp, seg);
    receive_init(tp, seg->seq);
    return seg->flags & TH_ACK ? syn_acked(tp, seg) : syn_crossed(tp, seg);
}
