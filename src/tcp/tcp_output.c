/* SPDX-License-Identifier: BSD-2-Clause
 * What a connection sends, and when.
 *
 * How it works. Whoever gives a connection something to send calls tcp_output_later(); after the
 * batch tcp_output_run() serves the list round-robin, a quantum of bytes a turn. A round of one
 * connection first resends what is lost, then sends new data, FIN or an acknowledgment, one piece
 * (segment or superframe) at a time, until one of these says stop:
 * - the peer's window, snd_una + snd_wnd;
 * - the congestion window: snd_cwnd against the pipe (RFC 6675), plus limited transmit (RFC 3042);
 * - Nagle, corks, silly windows: RFC 9293 3.7.4, 3.8.6.2.1, worth_sending().
 * Retransmissions and new data never differ but in where the bytes come from. */
#include "tcp_output.h"
#include "base/cputime.h"
#include "tcp_cc.h"
#include "tcp_in.h"
#include "tcp_sent.h"
#include "tcp_timer.h"

#define TURN_BYTES (128 * 1024u)     /* of a connection before the next one has its turn */
#define RUN_BYTES (4 * 1024 * 1024u) /* of one tcp_output_run */
#define RUN_TURNS 4096u
#define TSO_MAX_PACKET 65535u
#define MTU_RETRIES 3
#define ACK_WAIT_NS (NS_PER_MS / 2) /* for the application's next call to carry it */
#define ACKS_WAITING 8u             /* at most: a step looks at each of them */

/* --- the list --- */
void tcp_output_later(struct tcpcb *tp)
{
    tp->t_stack->tcp->acks_alone = false;
    if (tp->t_flags2 & TF2_ON_OUTPUT_LIST)
        return;
    tp->t_flags2 |= TF2_ON_OUTPUT_LIST;
    TAILQ_INSERT_TAIL(&tp->t_stack->tcp->outlist, tp, t_outlink);
}

void tcp_output_forget(struct tcpcb *tp)
{
    if (!(tp->t_flags2 & TF2_ON_OUTPUT_LIST))
        return;
    tp->t_flags2 &= ~TF2_ON_OUTPUT_LIST;
    TAILQ_REMOVE(&tp->t_stack->tcp->outlist, tp, t_outlink);
}

/* --- how much --- */
static bool sends_fin(const struct tcpcb *tp)
{
    return tp->t_state == TCPS_FIN_WAIT_1 || tp->t_state == TCPS_CLOSING ||
           tp->t_state == TCPS_LAST_ACK || (tp->t_flags & TF_NEEDFIN);
}

static uint32_t unsent_bytes(const struct tcpcb *tp)
{
    if (tp->t_flags & TF_SENTFIN)
        return 0;
    uint32_t used = sockbuf_used(&tp->t_so->so_snd), out = tp->snd_nxt - tp->snd_una;
    return used > out ? used - out : 0;
}

/* Bytes the peer's window still takes from seq on. */
static uint32_t window_room(const struct tcpcb *tp, uint32_t seq)
{
    int32_t room = (int32_t)(tp->snd_una + tp->snd_wnd - seq);
    return room > 0 ? (uint32_t)room : 0;
}

static uint32_t cwnd_room(const struct tcpcb *tp)
{
    uint64_t cwnd = tp->snd_cwnd, pipe = tcp_sent_pipe(tp);
    /* Limited transmit: with SACK the pipe shrinks by itself. */
    if (unlikely(tp->t_dupacks) && !(tp->t_flags & (TF_SACK_PERMIT | TF_FASTRECOVERY)) &&
        !tp->t_lost_bytes && KNOB(tp->t_stack, tcp_rfc3042))
        cwnd += (uint64_t)MIN(tp->t_dupacks, MAX(tp->t_reorder, 3) - 1) * tcp_segment_size(tp);
    return cwnd > pipe ? (uint32_t)MIN(cwnd - pipe, UINT32_MAX) : 0;
}

/* Grow the send buffer while it, and neither window, is the bottleneck. */
static void grow_send_buffer(struct tcpcb *tp, uint32_t unsent)
{
    struct weir_stack *s = tp->t_stack;
    struct sockbuf *sb = &tp->t_so->so_snd;
    uint32_t used = sockbuf_used(sb), hiwat = LOAD_RELAXED(&sb->sb_hiwat);
    if (used < hiwat / 8 * 7 || tp->t_sndbuf_fixed || !KNOB(s, tcp_sendbuf_auto))
        return;
    uint32_t max = (uint32_t)MIN(KNOB(s, tcp_sendbuf_max), KNOB(s, kern_maxsockbuf));
    if (hiwat >= max || tp->snd_wnd / 4 * 5 < hiwat || MIN(tp->snd_wnd, tp->snd_cwnd) < unsent)
        return;
    /* A quarter a time: a step of 8 KB alone would take a second of round trips to fill a fast
     * link. */
    uint32_t step = MAX((uint32_t)KNOB(s, tcp_sendbuf_inc), hiwat / 4);
    sockbuf_reserve(sb, (uint32_t)MIN((uint64_t)hiwat + step, max));
    so_writable(tp->t_so);
}

void tcp_rcvbuf_grow(struct tcpcb *tp, uint32_t len)
{
    struct weir_stack *s = tp->t_stack;
    tp->rfbuf_cnt += len;
    if (!tp->rfbuf_since) {
        tp->rfbuf_since = s->now;
        return;
    }
    /* A handshake between busy-polling ends says microseconds, of which bulk data need many: the
     * millisecond of FreeBSD's clock is the least. */
    if (s->now - tp->rfbuf_since <= MAX(tp->t_srtt / 2, NS_PER_MS))
        return;
    struct sockbuf *sb = &tp->t_so->so_rcv;
    uint32_t hiwat = LOAD_RELAXED(&sb->sb_hiwat);
    uint32_t max = (uint32_t)MIN(KNOB(s, tcp_recvbuf_max), KNOB(s, kern_maxsockbuf));
    /* More than three eighths of the buffer within half a round trip: the window may soon be the
     * limit. */
    if (tp->rfbuf_cnt > hiwat / 8 * 3 && hiwat < max && tp->t_srtt && !tp->t_rcvbuf_fixed &&
        KNOB(s, tcp_recvbuf_auto))
        sockbuf_reserve(sb, (uint32_t)MIN((uint64_t)hiwat + hiwat / 2, max));
    tp->rfbuf_since = s->now;
    tp->rfbuf_cnt = 0;
}

/* --- window updates --- */

/* Is the window so much larger than what the peer knows that it must be told? (RFC 9293 3.8.6.2.2)
 */
bool tcp_window_update_due(const struct tcpcb *tp)
{
    uint32_t win = tcp_receive_space(tp), known = 0;
    if (!win || TCPS_HAVERCVDFIN(tp->t_state) || tp->t_state < TCPS_ESTABLISHED ||
        (tp->t_flags & TF_DELACK))
        return false;
    if (SEQ_GT(tp->rcv_adv, tp->rcv_nxt))
        known = tp->rcv_adv - tp->rcv_nxt;
    if (win <= known || known >> tp->rcv_scale >= win >> tp->rcv_scale)
        return false;
    uint32_t more = win - known, hiwat = LOAD_RELAXED(&tp->t_so->so_rcv.sb_hiwat);
    if (more >= 2 * tp->t_maxseg && (more >= hiwat / 4 || win <= hiwat / 8 ||
                                     hiwat <= 8 * tp->t_maxseg || more >= 65535u << tp->rcv_scale))
        return true;
    return (uint64_t)more * 2 >= hiwat;
}

void tcp_set_rcv_notice(struct tcpcb *tp)
{
    /* Well below what makes an update due: what is taken but not told must not keep the window
     * shut. */
    uint32_t hiwat = LOAD_RELAXED(&tp->t_so->so_rcv.sb_hiwat);
    STORE_RELAXED(&tp->t_so->so_rcv_notice, MIN(tp->t_maxseg, hiwat / 8));
}

/* --- new data, FIN, acknowledgments --- */

/* May len of the unsent bytes go now? (RFC 9293 3.8.6.2.1, RFC 1122 4.2.3.4) */
static bool worth_sending(const struct tcp_tx *tx, uint32_t len, uint32_t unsent, bool fin)
{
    const struct tcpcb *tp = tx->tp;
    if (len >= tx->seg || fin || (tp->t_flags & TF_FORCEDATA))
        return true;
    if (len == unsent) {
        if (!tx->held && (tx->idle || (tp->t_flags & TF_NODELAY)))
            return true;
        if (tp->t_flags2 & TF2_CORK_FLUSH)
            return true;
    }
    if (tp->max_sndwnd && len >= tp->max_sndwnd / 2)
        return true;
    return SEQ_GT(tp->snd_up, tp->snd_nxt);
}

/* Length of the piece: one segment, or a superframe of whole segments (the last may be short if it
 * is the last of all). */
static uint32_t piece_len(const struct tcp_tx *tx, uint32_t len, uint32_t unsent)
{
    const struct tcpcb *tp = tx->tp;
    if (len <= tx->seg)
        return len;
    bool tso = tx->tso && !tp->t_nrcv_sack && !tp->t_dsack_pending && !tp->t_lost_bytes &&
               !(tp->t_flags & TF_FASTRECOVERY) && !SEQ_GT(tp->snd_up, tp->snd_nxt);
    if (!tso)
        return tx->seg;
    uint32_t headers =
        (tp->t_flow.faddr.family == AF_INET6 ? 40 : 20) + 60; /* room for any options */
    uint32_t max = MIN((uint32_t)KNOB(tx->s, tcp_tso_max_bytes), TSO_MAX_PACKET) - headers;
    len = MIN(len, MAX(max - max % tx->seg, tx->seg));
    return len == unsent ? len : len - len % tx->seg;
}

/* One byte into a shut window; the first that is out, if any is. */
static bool plan_probe(const struct tcp_tx *tx, struct tcp_piece *p)
{
    const struct tcpcb *tp = tx->tp;
    uint32_t used = sockbuf_used(&tx->so->so_snd);
    if (!used)
        return false;
    *p = (struct tcp_piece){.seq = tp->snd_una, .len = 1, .flags = TH_ACK, .kind = TCP_TX_PROBE};
    if (used == 1)
        p->flags |= TH_PUSH;
    return true;
}

static bool plan_new(struct tcp_tx *tx, struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    uint32_t unsent = unsent_bytes(tp);
    uint32_t len = MIN(unsent, MIN(window_room(tp, tp->snd_nxt), cwnd_room(tp)));
    bool may_fin = sends_fin(tp) && !(tp->t_flags & TF_SENTFIN);
    bool update = false;

    if (!(len && worth_sending(tx, len, unsent, may_fin && len == unsent)) &&
        !(may_fin && !unsent)) {
        if (!(tp->t_flags & TF_ACKNOW)) {
            update = tcp_window_update_due(tp);
            if (!update)
                return false;
        }
        if (tx->held && !may_fin)
            len = 0; /* a corked piece does not ride on an acknowledgment */
    }
    len = piece_len(tx, len, unsent);
    *p = (struct tcp_piece){.seq = tp->snd_nxt, .len = len, .flags = TH_ACK, .winupdate = update};
    if (may_fin && len == unsent)
        p->flags |= TH_FIN;
    if (len && len == unsent && !tx->more)
        p->flags |= TH_PUSH;
    if (!len && !(p->flags & TH_FIN) && !tcp_timer_active(tp, TT_PERSIST))
        p->seq = tp->snd_max;
    return true;
}

/* --- retransmission --- */

/* A short piece at the end of what was sent takes new data along, up to a full segment. */
static uint32_t extend(struct tcp_tx *tx, uint32_t start, uint32_t len)
{
    struct tcpcb *tp = tx->tp;
    if (!tx->routed || start + len != tp->snd_nxt || len >= tx->seg)
        return len;
    uint32_t extra = MIN(MIN(tx->seg - len, unsent_bytes(tp)), window_room(tp, tp->snd_nxt));
    if (!extra || tx->held || tcp_sent_add(tp, tp->snd_nxt, tp->snd_nxt + extra, tx->seg))
        return len;
    tp->snd_nxt += extra;
    tp->t_sndbytes += extra;
    tp->snd_max = SEQ_MAX(tp->snd_max, tp->snd_nxt);
    return len + extra;
}

static bool plan_rexmit(struct tcp_tx *tx, struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    uint32_t start, len = tcp_sent_next_lost(tp, tx->seg, &start);
    if (!len)
        return false;
    if (cwnd_room(tp) < len && !(tp->t_flags2 & TF2_REXMT_ONCE))
        return false;
    bool fin = (tp->t_flags & TF_SENTFIN) && start + len == tp->t_finseq + 1;
    uint32_t data = len - fin, room = window_room(tp, start);
    if (data > room) {
        data = room;
        fin = false;
        if (!data)
            return false;
    }
    if (!fin)
        data = extend(tx, start, data);
    *p = (struct tcp_piece){.seq = start, .len = data, .flags = TH_ACK, .kind = TCP_TX_REXMIT};
    if (fin)
        p->flags |= TH_FIN;
    if (data && start + data - tp->snd_una == sockbuf_used(&tx->so->so_snd))
        p->flags |= TH_PUSH;
    return true;
}

/* --- a round --- */
static void restart_after_idle(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    uint64_t now = tx->s->now;
    tx->idle = (tp->t_flags & TF_LASTIDLE) || tp->snd_max == tp->snd_una;
    tp->t_flags &= ~TF_LASTIDLE;
    if (!tx->idle)
        return;
    bool long_ago = now - tp->t_rcvtime >= tp->t_rxtcur ||
                    (tp->t_lastsend && now - tp->t_lastsend >= tp->t_rxtcur);
    if (long_ago && TCPS_HAVEESTABLISHED(tp->t_state) && tp->t_sndbytes &&
        KNOB(tx->s, tcp_slowstart_after_idle) && unsent_bytes(tp))
        tp->t_cc->event(tp, TCP_CC_IDLE);
}

static void look_at_corks(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    tx->more = (LOAD_RELAXED(&tx->so->so_sndflags) & SO_SND_MORE) && !sends_fin(tp);
    tx->held = (tx->more || ((tp->t_flags & TF_NOPUSH) && !sends_fin(tp))) &&
               !(tp->t_flags2 & TF2_CORK_FLUSH);
    /* A buffer that cannot hold two segments might never fill one. */
    if (tx->held && LOAD_RELAXED(&tx->so->so_snd.sb_hiwat) < 2 * tx->seg)
        tx->held = false;
    if (tx->more)
        tp->t_flags |= TF_MORETOCOME; /* for those who look at the flags */
    else
        tp->t_flags &= ~TF_MORETOCOME;
}

/* Something could not be sent. */
static int output_failed(struct tcp_tx *tx, int error)
{
    struct tcpcb *tp = tx->tp;
    switch (error) {
    case -ENOBUFS:
    case -ENOMEM:
        tcp_timer_event_nobufs(tp);
        return 0;
    case -ENETUNREACH:
    case -EHOSTUNREACH:
    case -ENETDOWN:
        tp->t_softerror = -error;
        tcp_timer_event_nobufs(tp);
        return 0;
    default:
        tcp_timer_event_nobufs(tp);
        return error;
    }
}

/* Data are left: somebody must remember them. */
static void leave_timers(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    uint32_t unsent = unsent_bytes(tp);
    if (tp->t_flags & TF_DELACK) {
        tp->t_flags &= ~TF_DELACK;
        tcp_timer_event_delack(tp);
    }
    tp->t_flags2 &= ~TF2_CORK_FLUSH;
    if (likely(!unsent) || !TCPS_HAVEESTABLISHED(tp->t_state))
        return;
    if (tx->held) {
        tcp_timer_event_corked(tp);
        if (tp->snd_wnd)
            return;
    }
    if (tcp_timer_active(tp, TT_PERSIST))
        return;
    if (tp->snd_wnd == 0 || !tcp_timer_active(tp, TT_REXMT))
        tcp_timer_event_window_closed(tp);
}

/* All is sent, and told with it: another plan would find nothing. */
static bool nothing_left(const struct tcpcb *tp)
{
    return !unsent_bytes(tp) && !sends_fin(tp) && !tcp_sent_to_rexmit(tp) &&
           !(tp->t_flags & TF_ACKNOW);
}

static int send_pieces(struct tcp_tx *tx, uint32_t budget)
{
    struct tcpcb *tp = tx->tp;
    struct tcp_piece p;
    int retries = 0;
    if ((tp->t_flags & TF_FORCEDATA) && tp->snd_wnd == 0 && plan_probe(tx, &p))
        return tcp_tx_send(tx, &p);
    if ((tp->t_flags & TF_FORCEDATA) && tp->snd_wnd)
        tp->max_sndwnd =
            tp->snd_wnd; /* the peer's windows have become this small: no waiting for larger ones */
    while (tx->sent < budget) {
        tx->seg = tcp_tx_segment(tp);
        if (!(tcp_sent_to_rexmit(tp) && plan_rexmit(tx, &p)) && !plan_new(tx, &p))
            break;
        if (!tx->routed) {
            uint32_t maxseg = tp->t_maxseg;
            int error = tcp_tx_route(tx);
            if (unlikely(error))
                return error;
            if (maxseg != tp->t_maxseg || (tx->tso && p.len >= tx->seg) || p.kind == TCP_TX_REXMIT)
                continue; /* plan again with what is known now */
        }
        int error = tcp_tx_send(tx, &p);
        if (error == -EMSGSIZE && retries++ < MTU_RETRIES) {
            tx->routed = false;
            continue;
        }
        if (unlikely(error))
            return error;
        /* After a bare acknowledgment, or the last of all that there is. */
        if ((!p.len && !(p.flags & TH_FIN)) || (p.len < tx->seg && nothing_left(tp)))
            break;
    }
    return 0;
}

/* TCP_NOTSENT_LOWAT: the socket counts what is unsent by this. */
static void tell_sent(struct tcpcb *tp)
{
    STORE_RELAXED(&tp->t_so->so_sent, tp->snd_nxt - tp->snd_una);
    so_writable(tp->t_so);
}

/* Send up to about `budget` bytes; *left: there may be more that could go now. -EIO: what was to be
 * sent has vanished (a file that was cut), and so has the connection, perhaps with tp. */
static int output_round(struct tcpcb *tp, uint32_t budget, bool *left)
{
    struct tcp_tx tx;
    tx.tp = tp;
    tx.s = tp->t_stack;
    tx.so = tp->t_so;
    tx.routed = tx.tso = false;
    tx.optlen = 0;
    tx.sent = 0;
    *left = false;
    if (tp->t_state <= TCPS_LISTEN)
        return 0;
    if (tp->t_state <= TCPS_SYN_RECEIVED) {
        if (tp->snd_nxt != tp->iss && !(tp->t_flags & TF_ACKNOW))
            return 0;
        int error = tcp_tx_syn(&tx);
        return error ? output_failed(&tx, error) : 0;
    }
    tx.seg = tcp_tx_segment(tp);
    look_at_corks(&tx);
    restart_after_idle(&tx);
    grow_send_buffer(tp, unsent_bytes(tp));
    int error = send_pieces(&tx, budget);
    if (unlikely(error == -EIO)) {
        COUNT(tp->t_stack, tcp_data_vanished);
        tcp_drop(tp, EIO);
        return error;
    }
    if (unlikely(LOAD_RELAXED(&tx.so->so_notsent_lowat)))
        tell_sent(tp);
    if (unlikely(error)) {
        error = output_failed(&tx, error);
        leave_timers(&tx);
        return error;
    }
    if (tx.sent >= budget) {
        *left = true;
        if (tx.idle)
            tp->t_flags |= TF_LASTIDLE;
        return 0;
    }
    if (tx.idle && tx.more)
        tp->t_flags |= TF_LASTIDLE; /* what follows belongs to the same burst */
    leave_timers(&tx);
    return 0;
}

int tcp_output(struct tcpcb *tp)
{
    bool left;
    return output_round(tp, UINT32_MAX, &left);
}

/* Nothing is owed but an acknowledgment which the application, about to act on what it
 * acknowledges, will most likely send along with an answer. */
static bool ack_may_wait(const struct tcpcb *tp)
{
    return (tp->t_flags2 & TF2_ACK_MAY_WAIT) && !unsent_bytes(tp) && !sends_fin(tp) &&
           !tcp_sent_to_rexmit(tp) && KNOB(tp->t_stack, tcp_delayed_ack);
}

/* The first on the list behind those that wait. */
static struct tcpcb *next_turn(struct tcp_state *t, struct tcpcb *waiting)
{
    return waiting ? TAILQ_NEXT(waiting, t_outlink) : TAILQ_FIRST(&t->outlist);
}

bool tcp_output_run(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;
    struct tcpcb *tp, *waiting = NULL; /* the last of those that wait, all at the head */
    uint64_t bytes = 0;
    uint32_t may = t->acks_wait && (!t->acks_until || s->now < t->acks_until) ? ACKS_WAITING : 0;

    for (uint32_t turns = 0; (tp = next_turn(t, waiting)) && bytes < RUN_BYTES && turns < RUN_TURNS;
         turns++) {
        if (unlikely(LOAD_RELAXED(&s->hold)))
            break;
        bool left;
        uint64_t before = tp->t_sndbytes + tp->t_bytes_retrans;
        if (unlikely(may) && ack_may_wait(tp)) {
            waiting = tp;
            may--;
            continue;
        }
        tcp_output_forget(tp);
        if (cputime_on())
            tcp_cputime_begin(tp, true);
        if (unlikely(output_round(tp, TURN_BYTES, &left) == -EIO))
            continue;
        bytes += tp->t_sndbytes + tp->t_bytes_retrans - before;
        if (left)
            tcp_output_later(tp);
        else if (unlikely(tp->t_state == TCPS_TIME_WAIT))
            tcp_timewait_shrink(tp); /* that was the last ACK */
    }
    if (!waiting)
        t->acks_until = 0;
    else if (!t->acks_until)
        t->acks_until = s->now + ACK_WAIT_NS;
    t->acks_alone = waiting && !tp;
    return tp != NULL;
}

uint64_t tcp_output_due(const struct weir_stack *s)
{
    const struct tcp_state *t = s->tcp;

    if (TAILQ_EMPTY(&t->outlist))
        return TIME_NEVER;
    return t->acks_alone ? t->acks_until : s->now;
}
