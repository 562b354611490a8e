/* SPDX-License-Identifier: BSD-2-Clause
 * How connections end, and the segment size they use. */
#include "tcp_in.h"

/* A child that its listener never showed to an application has nobody to hold it. */
static bool nobody_holds(const struct socket *so)
{
    uint32_t state = so_state(so);

    return (state & SS_NOHANDLE) || ((state & SS_INCOMPLETE) && !so->so_queued);
}

void tcp_close(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct socket *so = tp->t_so;
    int from = tp->t_state;

    if (from != TCPS_CLOSED) {
        if (TCPS_HAVEESTABLISHED(from))
            tcp_hostcache_update(tp);
        if (from == TCPS_LISTEN)
            tcp_syncache_listener_gone(tp);
        else
            COUNT(s, tcp_closed);
        tcp_state_set(tp, TCPS_CLOSED);
        tcp_timers_stop(tp);
        tcp_output_forget(tp);
        tcp_reass_flush(tp);
        tcp_early_text_flush(tp);
        tcp_sent_flush(tp);
        /* As on Linux a port that the stack chose goes with the connection. */
        tcp_pcb_unhash(tp, so->so_bound_port);
        tp->t_flags &= ~(TF_ACKNOW | TF_DELACK);
        if (from != TCPS_LISTEN)
            so_disconnected(so);
    }
    if (nobody_holds(so)) {
        tcp_pcb_free(tp);
        so_protocol_done(so);
    }
}

/* States in which the peer knows of the connection, and has not agreed to its end. */
static bool peer_expects_rst(const struct tcpcb *tp)
{
    return tp->t_state >= TCPS_SYN_RECEIVED && tp->t_state != TCPS_TIME_WAIT;
}

static void send_rst(struct tcpcb *tp)
{
    tcp_send_bare(tp, tp->snd_nxt, tp->rcv_nxt, TH_RST | TH_ACK);
}

void tcp_drop(struct tcpcb *tp, int error)
{
    struct weir_stack *s = tp->t_stack;

    if (peer_expects_rst(tp)) {
        send_rst(tp);
        COUNT(s, tcp_drops);
    } else {
        COUNT(s, tcp_conndrops);
    }
    if (error == ETIMEDOUT && tp->t_softerror)
        error = tp->t_softerror;
    so_error_set(tp->t_so, error);
    tcp_close(tp);
}

void tcp_abort(struct tcpcb *tp)
{
    if (peer_expects_rst(tp)) {
        send_rst(tp);
        COUNT(tp->t_stack, tcp_drops);
    }
    tcp_close(tp);
}

/* --- segment size --- */

static uint32_t headers_len(const struct flow *f)
{
    return f->faddr.family == AF_INET6 ? 60 : 40;
}

uint32_t tcp_mss_to_offer(struct weir_stack *s, const struct flow *f, uint32_t user_mss)
{
    struct route rt;
    uint32_t mss;

    if (ip_route(s, &f->faddr, &f->laddr, &rt) || rt.mtu <= headers_len(f))
        mss =
            (uint32_t)(f->faddr.family == AF_INET6 ? KNOB(s, tcp_v6mssdflt) : KNOB(s, tcp_mssdflt));
    else
        mss = rt.mtu - headers_len(f);
    if (user_mss && user_mss < mss)
        mss = user_mss;
    return MIN(mss, TCP_MAXWIN);
}

/* A whole number of segments, within the largest buffer. */
static uint32_t round_buffer(struct weir_stack *s, uint32_t hiwat, uint32_t mss)
{
    uint64_t rounded = (uint64_t)(hiwat + mss - 1) / mss * mss,
             max = (uint64_t)KNOB(s, kern_maxsockbuf);

    return (uint32_t)MIN(rounded, max);
}

void tcp_mss_apply(struct tcpcb *tp, uint32_t offered)
{
    enum { MSS_FLOOR = 64 }; /* above the longest options */
    struct weir_stack *s = tp->t_stack;
    struct socket *so = tp->t_so;
    uint32_t mss = tcp_mss_to_offer(s, &tp->t_flow, tp->t_user_mss), snd, rcv;

    if (offered == 0)
        offered = (uint32_t)(tp->t_flow.faddr.family == AF_INET6 ? KNOB(s, tcp_v6mssdflt)
                                                                 : KNOB(s, tcp_mssdflt));
    else
        offered = MAX(offered, (uint32_t)KNOB(s, tcp_minmss));
    tp->t_peermss = offered;
    mss = MAX(MIN(mss, offered), MSS_FLOOR);
    snd = LOAD_RELAXED(&so->so_snd.sb_hiwat);
    if (snd < mss) {
        mss = MAX(snd, MSS_FLOOR);
    } else {
        uint32_t rounded = round_buffer(s, snd, mss);
        if (rounded > snd)
            sockbuf_reserve(&so->so_snd, rounded);
    }
    tp->t_maxseg = mss;
    rcv = LOAD_RELAXED(&so->so_rcv.sb_hiwat);
    if (rcv > mss) {
        uint32_t rounded = round_buffer(s, rcv, mss);
        if (rounded > rcv)
            sockbuf_reserve(&so->so_rcv, rounded);
    }
    tcp_cc_conn_init(tp);
}
