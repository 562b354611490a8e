/* SPDX-License-Identifier: BSD-2-Clause
 * TCP as sockets see it: struct protosw. */
#include "tcp_in.h"
#include "tcp_output.h"
#include "tcp_sockopt.h"
#include "tcp_timer.h"

static int usr_attach(struct socket *so)
{
    struct weir_stack *s = so->so_stack;
    struct tcpcb *tp = tcp_pcb_create(so);
    if (!tp)
        return -ENOMEM;
    so->so_pcb = tp;
    if (!LOAD_RELAXED(&so->so_snd.sb_hiwat))
        sockbuf_reserve(&so->so_snd, (uint32_t)KNOB(s, tcp_sendspace));
    if (!LOAD_RELAXED(&so->so_rcv.sb_hiwat))
        sockbuf_reserve(&so->so_rcv, (uint32_t)KNOB(s, tcp_recvspace));
    return 0;
}

/* A tcpcb that was a connection or a listener once, and lost its port, is replaced by a new one
 * with the same options and, where the application chose it, the same local address. -ENOMEM, or an
 * error of binding. */
static int renew(struct socket *so)
{
    struct tcpcb *old = so_tcpcb(so);
    CHECK(old->t_state == TCPS_CLOSED);
    if (!old->t_flow.fport && (old->t_port || !old->t_flow.lport))
        return 0;
    struct tcpcb *tp = tcp_pcb_create(so);
    if (!tp)
        return -ENOMEM;
    tcp_sockopt_copy(old, tp);
    tcp_pcb_free(old);
    so->so_pcb = tp;
    return so->so_bound ? tcp_pcb_bind(tp, &so->so_laddr, so->so_lport) : 0;
}

static int usr_bind(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state != TCPS_CLOSED)
        return -EINVAL;
    int error = renew(so);
    if (error)
        return error;
    tp = so_tcpcb(so);
    if (tp->t_port && tcp_port_is_owner(tp))
        return -EINVAL;
    return tcp_pcb_bind(tp, a, port);
}

static int usr_listen(struct socket *so, int backlog)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state == TCPS_LISTEN) /* again: only the backlog changes, which the socket keeps */
        return 0;
    if (tp->t_state != TCPS_CLOSED)
        return -EINVAL;
    int error = renew(so);
    if (error)
        return error;
    tp = so_tcpcb(so);
    if (!tp->t_port) {
        struct ipaddr any = {.family = (uint8_t)so->so_domain};
        error = tcp_pcb_bind(tp, &any, 0);
        if (error)
            return error;
    }
    tp->t_v6only = LOAD_RELAXED(&so->so_v6only);
    error = tcp_pcb_hash_listener(tp);
    if (!error)
        tcp_state_set(tp, TCPS_LISTEN);
    return error;
}

/* The scale that makes the largest socket buffer expressible. */
static uint8_t scale_to_request(struct weir_stack *s)
{
    uint64_t max = (uint64_t)KNOB(s, kern_maxsockbuf);
    uint8_t scale = 0;
    while (scale < TCP_MAX_WSCALE && ((uint64_t)65535 << scale) < max)
        scale++;
    return scale;
}

static int usr_connect(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    struct weir_stack *s = so->so_stack;
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state != TCPS_CLOSED)
        return tp->t_state == TCPS_SYN_SENT ? -EALREADY : -EISCONN;
    int error = renew(so);
    if (error)
        return error;
    tp = so_tcpcb(so);
    error = tcp_pcb_connect(tp, a, port);
    if (error)
        return error;
    tp->request_r_scale = scale_to_request(s);
    tp->iss = tcp_iss(s, &tp->t_flow);
    tp->ts_offset = tcp_ts_offset(s, &tp->t_flow);
    tp->snd_una = tp->snd_nxt = tp->snd_max = tp->snd_up = tp->snd_recover = tp->iss;
    tp->t_lost_mark = tp->t_rexmit_next = tp->iss;
    tp->t_starttime = tp->t_rcvtime = s->now;
    so_connecting(so);
    COUNT(s, tcp_connattempt);
    tcp_state_set(tp, TCPS_SYN_SENT);
    (void)tcp_output(
        tp); /* what keeps the first SYN from leaving is a soft error: the timer repeats it */
    return -EINPROGRESS;
}

static int usr_disconnect(struct socket *so)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state != TCPS_CLOSED)
        tcp_abort(tp);
    return 0;
}

static void usr_send(struct socket *so)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (unlikely(LOAD_RELAXED(&so->so_sndflags) & SO_SND_OOB) &&
        (atomic_fetch_and_explicit(&so->so_sndflags, ~SO_SND_OOB, memory_order_relaxed) &
         SO_SND_OOB))
        tp->snd_up = tp->snd_una +
                     sockbuf_used(&so->so_snd); /* one past the urgent byte, as all BSDs have it */
    if (TCPS_HAVEESTABLISHED(tp->t_state))
        tcp_output_later(tp);
}

static void usr_rcvd(struct socket *so)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tcp_window_update_due(tp))
        tcp_output_later(tp);
}

/* We are done sending: a FIN follows the data. */
static void close_sending(struct tcpcb *tp)
{
    switch (tp->t_state) {
    case TCPS_SYN_SENT:
        /* BSD's FIN leaves at once, too. */
        if (KNOB(tp->t_stack, tcp_freebsd_wire) && !(tp->t_flags & TF_NEEDFIN))
            tcp_send_bare(tp, tp->iss + 1, 0, TH_FIN);
        tp->t_flags |= TF_NEEDFIN;
        return;
    case TCPS_SYN_RECEIVED:
        tp->t_flags |= TF_NEEDFIN; /* sent when the handshake is over */
        return;
    case TCPS_ESTABLISHED:
        tcp_state_set(tp, TCPS_FIN_WAIT_1);
        break;
    case TCPS_CLOSE_WAIT:
        tcp_state_set(tp, TCPS_LAST_ACK);
        break;
    default:
        return;
    }
    tcp_output_later(tp);
}

static int usr_shutdown(struct socket *so, int how)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state == TCPS_CLOSED)
        return -ENOTCONN;
    if (tp->t_state == TCPS_LISTEN) {
        if (how != SHUT_WR)
            tcp_close(tp);
        return 0;
    }
    if (how != SHUT_RD)
        close_sending(tp);
    if (how != SHUT_WR && KNOB(tp->t_stack, tcp_freebsd_wire)) {
        /* There the reader's end is closed for good: what waits and what comes is thrown away. */
        so_cantrcvmore(so);
        lock_acquire(&so->so_rcv_serial);
        sockbuf_flush(&so->so_rcv);
        lock_release(&so->so_rcv_serial);
        sockbuf_reserve(&so->so_rcv, 0); /* no window beyond what was offered */
    }
    tcp_timer_event_shutdown(tp);
    return 0;
}

/* The application has not read all that came, or asked for it by SO_LINGER: the peer must learn
 * that its data got lost (RFC 9293 3.6.1, RFC 2525 2.17). */
static bool closes_with_rst(const struct socket *so, const struct tcpcb *tp)
{
    if (tp->t_state == TCPS_TIME_WAIT)
        return false;
    if (LOAD_RELAXED(&so->so_linger_s) == 0)
        return true;
    return sockbuf_used(&so->so_rcv) > 0 && KNOB(tp->t_stack, tcp_close_unread_rst);
}

static void usr_detach(struct socket *so)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state < TCPS_SYN_RECEIVED) {
        tcp_close(tp);
        return;
    }
    if (closes_with_rst(so, tp)) {
        tcp_abort(tp);
        return;
    }
    if (tp->t_state == TCPS_SYN_RECEIVED) {
        /* Nothing was agreed upon: what the peer still sends is answered with a reset. */
        tcp_close(tp);
        return;
    }
    tp->t_flags2 |= TF2_ORPHAN;
    close_sending(tp);
    tcp_timer_event_orphan(tp);
    tcp_timewait_shrink(tp);
}

static void usr_abort(struct socket *so)
{
    tcp_abort(so_tcpcb(so));
}

static int usr_sockname(struct socket *so, struct ipaddr *a, uint16_t *port)
{
    const struct tcpcb *tp = so_tcpcb(so);
    *a = tp->t_flow.laddr;
    *port = tp->t_flow.lport;
    return 0;
}

static int usr_peername(struct socket *so, struct ipaddr *a, uint16_t *port)
{
    const struct tcpcb *tp = so_tcpcb(so);
    if (tp->t_state <= TCPS_SYN_SENT)
        return -ENOTCONN;
    *a = tp->t_flow.faddr;
    *port = tp->t_flow.fport;
    return 0;
}

const struct protosw tcp_protosw = {
    .type = SOCK_STREAM,
    .protocol = IPPROTO_TCP,
    .attach = usr_attach,
    .detach = usr_detach,
    .bind = usr_bind,
    .listen = usr_listen,
    .connect = usr_connect,
    .disconnect = usr_disconnect,
    .send = usr_send,
    .rcvd = usr_rcvd,
    .shutdown = usr_shutdown,
    .abort = usr_abort,
    .sockname = usr_sockname,
    .peername = usr_peername,
    .getopt = tcp_getopt,
    .setopt = tcp_setopt,
    .inherit = tcp_sockopt_inherit,
};
