/* SPDX-License-Identifier: BSD-2-Clause
 * The steps of RFC 9293 3.10.7.4 up to the ACK; RFC 5961 and RFC 7323 where they change them. */
#include "tcp_in.h"

/* Is seq in the window that the peer was last told of (RFC 5961 3.2)? */
static bool in_told_window(const struct tcpcb *tp, uint32_t seq)
{
    if (tp->rcv_wnd == 0)
        return seq == tp->last_ack_sent || seq == tp->rcv_nxt;
    return SEQ_GEQ(seq, tp->last_ack_sent) && SEQ_LT(seq, tp->last_ack_sent + tp->rcv_wnd);
}

/* RFC 5961 3.2. ACKs leave after the batch, or are delayed, so what the peer knows (last_ack_sent)
 * may lag behind rcv_nxt: both count as exact, but FreeBSD knows only the former. */
static bool rst_is_exact(const struct tcpcb *tp, uint32_t seq)
{
    return seq == tp->last_ack_sent || (seq == tp->rcv_nxt && !KNOB(tp->t_stack, tcp_freebsd_wire));
}

/* Second: RST. */
enum tcp_verdict tcp_step_rst(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (!(seg->flags & TH_RST))
        return TCP_GO_ON;
    if (!in_told_window(tp, seg->seq)) {
        COUNT(s, tcp_rx_badrst);
        return TCP_DONE;
    }
    if (!rst_is_exact(tp, seg->seq) && !KNOB(s, tcp_insecure_rst)) {
        COUNT(s, tcp_rx_rst_challenged);
        tcp_send_challenge_ack(tp, seg);
        return TCP_DONE;
    }
    COUNT(s, tcp_drops);
    so_error_set(tp->t_so, tp->t_state == TCPS_SYN_RECEIVED ? ECONNREFUSED : ECONNRESET);
    tcp_close(tp);
    return TCP_GONE;
}

/* Fourth: SYN in a synchronized state (RFC 5961 4.2). */
enum tcp_verdict tcp_step_syn(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (!(seg->flags & TH_SYN) || tp->t_state == TCPS_SYN_RECEIVED)
        return TCP_GO_ON;
    if (KNOB(s, tcp_insecure_syn) && SEQ_GEQ(seg->seq, tp->last_ack_sent) &&
        SEQ_LT(seg->seq, tp->last_ack_sent + tp->rcv_wnd)) {
        COUNT(s, tcp_rx_badsyn);
        tcp_drop(tp, ECONNRESET);
        return TCP_GONE;
    }
    COUNT(s, tcp_rx_syn_challenged);
    tcp_send_challenge_ack(tp, seg);
    return TCP_DONE;
}

/* First, RFC 7323 5.3: an old duplicate shows by its timestamp. */
enum tcp_verdict tcp_step_paws(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (!(seg->to.flags & TOF_TS) || tp->ts_recent == 0 || !TSTMP_LT(seg->to.tsval, tp->ts_recent))
        return TCP_GO_ON;
    if (s->now - tp->ts_recent_ns > TCP_PAWS_IDLE_NS) {
        tp->ts_recent = 0; /* too old to compare with */
        return TCP_GO_ON;
    }
    COUNT(s, tcp_rx_paws);
    if (seg->len == 0)
        return TCP_DONE;
    COUNT(s, tcp_rx_dup);
    COUNT_ADD(s, tcp_rx_dup_bytes, seg->len);
    return TCP_DROP_ACK;
}

/* Text that was received before. */
static void trim_left(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    int32_t dup = (int32_t)(tp->rcv_nxt - seg->seq);
    uint32_t n;

    if (dup <= 0)
        return;
    if (seg->flags & TH_SYN) {
        seg->flags &= (uint8_t)~TH_SYN;
        seg->seq++;
        if (seg->th.urp > 1)
            seg->th.urp--;
        else
            seg->flags &= (uint8_t)~TH_URG;
        dup--;
    }
    n = (uint32_t)dup;
    if (n > seg->len || (n == seg->len && !(seg->flags & TH_FIN))) {
        /* Nothing new; a FIN in it is an old one. It is acknowledged, and its ACK still counts. */
        seg->flags &= (uint8_t)~TH_FIN;
        tp->t_flags |= TF_ACKNOW;
        n = seg->len;
        COUNT(s, tcp_rx_dup);
        COUNT_ADD(s, tcp_rx_dup_bytes, n);
    } else if (n) {
        COUNT(s, tcp_rx_partdup);
        COUNT_ADD(s, tcp_rx_dup_bytes, n);
    }
    if (n && (tp->t_flags & TF_SACK_PERMIT)) {
        tcp_dsack_note(tp, seg->seq, seg->seq + n);
        tp->t_flags |= TF_ACKNOW;
    }
    tcp_segment_trim_head(seg, n);
}

/* Text beyond the window. */
static enum tcp_verdict trim_right(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    int32_t beyond = (int32_t)(seg->seq + seg->len - (tp->rcv_nxt + tp->rcv_wnd));

    if (beyond <= 0)
        return TCP_GO_ON;
    COUNT(s, tcp_rx_afterwin);
    if ((uint32_t)beyond >= seg->len) {
        /* A probe of a shut window is answered, and its ACK counts. */
        if (tp->rcv_wnd != 0 || seg->seq != tp->rcv_nxt)
            return TCP_DROP_ACK;
        COUNT(s, tcp_rx_winprobe);
        tp->t_flags |= TF_ACKNOW;
        beyond = (int32_t)seg->len;
    }
    tcp_segment_trim_tail(seg, (uint32_t)beyond);
    return TCP_GO_ON;
}

/* First: the part of the segment that is new and in the window. */
enum tcp_verdict tcp_step_trim(struct tcpcb *tp, struct tcp_segment *seg)
{
    if (tp->t_state == TCPS_SYN_RECEIVED && SEQ_LT(seg->seq, tp->irs))
        return TCP_DROP_RST;
    trim_left(tp, seg);
    /* Nobody will read it: say so (RFC 9293 3.6.1, RFC 1122 4.2.2.13). */
    if ((tp->t_flags2 & TF2_ORPHAN) && seg->len && !TCPS_HAVERCVDFIN(tp->t_state)) {
        COUNT(tp->t_stack, tcp_rx_afterclose);
        tcp_close(tp);
        return TCP_GONE_RST;
    }
    return trim_right(tp, seg);
}

/* RFC 7323 4.3: only a segment that spans the last ACK we sent gives the timestamp to echo. */
void tcp_step_ts_recent(struct tcpcb *tp, const struct tcp_segment *seg)
{
    uint32_t end = seg->seq + seg->len + ((seg->flags & (TH_SYN | TH_FIN)) != 0);

    if (!(seg->to.flags & TOF_TS) || SEQ_GT(seg->seq, tp->last_ack_sent) ||
        SEQ_GT(tp->last_ack_sent, end))
        return;
    tp->ts_recent = seg->to.tsval;
    tp->ts_recent_ns = tp->t_stack->now;
}

/* RFC 5961 5.2: how old an ACK may be. Within the first window nothing before the SYN can have been
 * acknowledged. */
static bool ack_is_too_old(struct tcpcb *tp, const struct tcp_segment *seg)
{
    uint32_t oldest = tp->snd_una - tp->max_sndwnd;

    if (KNOB(tp->t_stack, tcp_insecure_ack))
        return false;
    if (!(tp->t_flags2 & TF2_NO_ISS_CHECK)) {
        if (SEQ_GEQ(tp->snd_una, tp->iss + (TCP_MAXWIN << tp->snd_scale)))
            tp->t_flags2 |= TF2_NO_ISS_CHECK;
        else
            oldest = SEQ_MAX(oldest, tp->iss + 1);
    }
    return SEQ_LT(seg->ack, oldest);
}

/* Our SYN is acknowledged. */
static void handshake_complete(struct tcpcb *tp, const struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    COUNT(s, tcp_connects);
    if ((tp->t_flags & (TF_RCVD_SCALE | TF_REQ_SCALE)) == (TF_RCVD_SCALE | TF_REQ_SCALE))
        tp->rcv_scale = tp->request_r_scale;
    tp->snd_wnd = seg->wnd;
    tp->max_sndwnd = MAX(tp->max_sndwnd, seg->wnd);
    tp->snd_wl1 = seg->seq - 1;
    tp->t_starttime = s->now;
    tp->t_flags &= ~TF_NEEDSYN;
    if (tp->snd_cwnd == 1)
        tcp_cc_conn_init(tp); /* our SYN-ACK was lost after the window had been set */
    if (tp->t_flags & TF_NEEDFIN) {
        tp->t_flags &= ~TF_NEEDFIN;
        tcp_state_set(tp, TCPS_FIN_WAIT_1);
    } else {
        tcp_state_set(tp, TCPS_ESTABLISHED);
    }
    so_connected(tp->t_so);
    tcp_output_later(tp); /* data or a FIN may have waited for it */
}

/* What follows from the ACK of our FIN. */
static enum tcp_verdict fin_acked(struct tcpcb *tp)
{
    switch (tp->t_state) {
    case TCPS_FIN_WAIT_1:
        tcp_state_set(tp, TCPS_FIN_WAIT_2);
        return TCP_GO_ON;
    case TCPS_CLOSING:
        tcp_enter_timewait(tp);
        return TCP_GONE;
    case TCPS_LAST_ACK:
        tcp_close(tp);
        return TCP_GONE;
    default:
        return TCP_GO_ON;
    }
}

/* Fifth: ACK. */
enum tcp_verdict tcp_step_ack(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (!(seg->flags & TH_ACK)) {
        if (tp->t_state == TCPS_SYN_RECEIVED)
            return TCP_GO_ON; /* its text waits for the end of the handshake */
        return tp->t_flags & TF_ACKNOW ? TCP_DROP_ACK : TCP_DONE;
    }
    if (ack_is_too_old(tp, seg)) {
        COUNT(s, tcp_rx_ack_challenged);
        tcp_send_challenge_ack(tp, seg);
        return TCP_DONE;
    }
    if (SEQ_GT(seg->ack, tp->snd_max)) {
        COUNT(s, tcp_rx_acktoomuch);
        COUNT(s, tcp_rx_ack_challenged);
        return tcp_challenge_ok(s, &tp->t_challenge_start, &tp->t_challenge_count) ? TCP_DROP_ACK
                                                                                   : TCP_DONE;
    }
    if (tp->t_state == TCPS_SYN_RECEIVED)
        handshake_complete(tp, seg);
    if (SEQ_LT(seg->ack, tp->snd_una)) {
        COUNT(s, tcp_rx_oldack);
        return TCP_GO_ON; /* its text is good */
    }
    return tcp_ack(tp, seg) ? fin_acked(tp) : TCP_GO_ON;
}
