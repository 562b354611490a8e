/* SPDX-License-Identifier: BSD-2-Clause
 * Timers of a connection. Input, output and the user's calls report events; only this file decides
 * what runs.
 *
 * How it works. A timer is active while due_ns is not 0. Moving an active timer to a later moment,
 * or stopping it, only writes due_ns: the wheel's entry stays where it is, and when it fires too
 * early it is armed for what remains. So the retransmission timer, restarted by each ACK, costs the
 * wheel one operation a timeout, not one a segment.
 *
 * - REXMT: something unacknowledged is out (RFC 6298); excludes PERSIST.
 * - PERSIST: data wait and the peer's window is shut (RFC 9293 3.8.6.1).
 * - KEEP: before ESTABLISHED the limit of the handshake, after it keepalive (RFC 9293 3.8.4).
 * - 2MSL: TIME_WAIT; FIN_WAIT_2 without a handle; any other state without a handle: the look at its
 *   progress.
 * - DELACK: a delayed ACK (RFC 9293 3.8.6.3).
 * - CORK: a partial segment held back by TCP_CORK or MSG_MORE. */
#include "tcp_timer.h"
#include "tcp_cc.h"

/* Without a handle, a connection that still has data or a FIN to deliver must get one full segment
 * acknowledged in this time, or it is reset: its buffers are held for nobody. */
#define ORPHAN_PROGRESS_NS (240 * NS_PER_S)

/* From this many timeouts in a row on the next hop may be to blame. */
#define DOUBT_SHIFT 3
/* Beyond this many the measured round-trip time is given up. */
#define INVALIDATE_SHIFT (TCP_MAXRXTSHIFT / 4)

static const uint16_t backoff[TCP_MAXRXTSHIFT + 1] = {1,   2,   4,   8,   16,  32, 64,
                                                      128, 256, 512, 512, 512, 512};
#define BACKOFF_SUM 2559

uint32_t tcp_timer_backoff(uint32_t shift)
{
    return backoff[MIN(shift, TCP_MAXRXTSHIFT)];
}

void tcp_timers_stop(struct tcpcb *tp)
{
    for (int i = 0; i < TT_COUNT; i++) {
        tp->t_timers[i].due_ns = 0;
        wheel_cancel(&tp->t_stack->wheel, &tp->t_timers[i].t);
    }
}

void tcp_timer_arm(struct tcpcb *tp, enum tcp_timer_id id, uint64_t delay_ns)
{
    struct tcp_timer *t = &tp->t_timers[id];
    uint64_t now = tp->t_stack->now;
    uint64_t due = delay_ns < TIME_NEVER - now ? now + delay_ns : TIME_NEVER - 1;
    t->due_ns = MAX(due, 1);
    if (!timer_is_armed(&t->t) || t->t.deadline_ns > t->due_ns)
        wheel_arm(&tp->t_stack->wheel, &t->t, t->due_ns);
}

void tcp_timer_cancel(struct tcpcb *tp, enum tcp_timer_id id)
{
    tp->t_timers[id].due_ns = 0;
}

bool tcp_timer_active(const struct tcpcb *tp, enum tcp_timer_id id)
{
    return tp->t_timers[id].due_ns != 0;
}

/* --- values --- */
static uint64_t knob_ms(uint32_t own_ms, int64_t knob)
{
    return (own_ms ? (uint64_t)own_ms : (uint64_t)knob) * NS_PER_MS;
}

static uint64_t keepidle_ns(const struct tcpcb *tp)
{
    return knob_ms(tp->t_keepidle_ms, KNOB(tp->t_stack, tcp_keepidle));
}

static uint64_t keepintvl_ns(const struct tcpcb *tp)
{
    return knob_ms(tp->t_keepintvl_ms, KNOB(tp->t_stack, tcp_keepintvl));
}

static uint64_t keepcnt(const struct tcpcb *tp)
{
    return tp->t_keepcnt ? tp->t_keepcnt : (uint64_t)KNOB(tp->t_stack, tcp_keepcnt);
}

/* How long data may stay unacknowledged; 0: no limit but the retry budget. */
static uint64_t user_timeout_ns(const struct tcpcb *tp)
{
    return knob_ms(tp->t_user_timeout_ms, KNOB(tp->t_stack, tcp_maxunacktime));
}

static bool unacked_too_long(const struct tcpcb *tp)
{
    uint64_t limit = user_timeout_ns(tp);
    return limit && tp->t_unacked_since && tp->t_stack->now - tp->t_unacked_since >= limit;
}

/* Shorten a delay so that the user timeout is met when it ends. */
static uint64_t within_user_timeout(const struct tcpcb *tp, uint64_t delay_ns)
{
    uint64_t limit = user_timeout_ns(tp);
    if (likely(!limit) || !tp->t_unacked_since)
        return delay_ns;
    uint64_t end = tp->t_unacked_since + limit, now = tp->t_stack->now;
    return MIN(delay_ns, end > now ? end - now : 0);
}

static uint64_t clamp_rto(const struct tcpcb *tp, uint64_t rto_ns)
{
    rto_ns += (uint64_t)KNOB(tp->t_stack, tcp_rexmit_slop) * NS_PER_MS;
    rto_ns = MAX(rto_ns, (uint64_t)KNOB(tp->t_stack, tcp_rexmit_min) * NS_PER_MS);
    return MIN(rto_ns, TCP_REXMT_MAX_NS);
}

/* SRTT + 4 RTTVAR, what backoff multiplies and slop is added to; before the first sample the
 * initial timeout. */
static uint64_t rexmt_value(const struct tcpcb *tp)
{
    if (!tp->t_srtt && !tp->t_rttvar)
        return (uint64_t)KNOB(tp->t_stack, tcp_rexmit_initial) * NS_PER_MS;
    return MAX(tp->t_srtt + 4 * tp->t_rttvar,
               (uint64_t)KNOB(tp->t_stack, tcp_rexmit_min) * NS_PER_MS);
}

uint64_t tcp_rto(const struct tcpcb *tp)
{
    return clamp_rto(tp, rexmt_value(tp));
}

void tcp_rtt_sample_ticks(struct tcpcb *tp, uint64_t rtt_ns)
{
    uint64_t tick = NS_PER_MS;
    tcp_rtt_sample(tp, tp->t_srtt && rtt_ns > tick ? rtt_ns - tick : rtt_ns);
    tp->t_rxtcur = MIN(MAX(tp->t_rxtcur, rtt_ns + 2 * tick), TCP_REXMT_MAX_NS);
}

static void arm_rexmt(struct tcpcb *tp)
{
    tcp_timer_arm(tp, TT_REXMT, within_user_timeout(tp, tp->t_rxtcur));
}

static void arm_persist(struct tcpcb *tp)
{
    uint64_t lo = (uint64_t)KNOB(tp->t_stack, tcp_persmin) * NS_PER_MS;
    uint64_t hi = (uint64_t)KNOB(tp->t_stack, tcp_persmax) * NS_PER_MS;
    /* BSD's base: twice SRTT + 4 RTTVAR, doubled again with each probe. Short paths keep to the
     * minimum for long. */
    uint64_t base = tp->t_srtt ? 4 * tp->t_srtt + 8 * tp->t_rttvar : 2 * rexmt_value(tp);
    uint64_t delay = base * tcp_timer_backoff(tp->t_rxtshift) +
                     (uint64_t)KNOB(tp->t_stack, tcp_rexmit_slop) * NS_PER_MS;
    tcp_timer_arm(tp, TT_PERSIST, within_user_timeout(tp, MIN(MAX(delay, lo), hi)));
    if (tp->t_rxtshift < TCP_MAXRXTSHIFT)
        tp->t_rxtshift++;
}

/* --- events --- */
void tcp_timer_event_sent(struct tcpcb *tp)
{
    tp->t_lastsend = tp->t_stack->now;
    if (!tp->t_unacked_since)
        tp->t_unacked_since = tp->t_stack->now;
    if (tcp_timer_active(tp, TT_REXMT))
        return;
    if (tcp_timer_active(tp, TT_PERSIST)) {
        tcp_timer_cancel(tp, TT_PERSIST);
        tp->t_rxtshift = 0;
        tp->t_flags2 &= ~TF2_PROBED;
    }
    arm_rexmt(tp);
}

void tcp_timer_event_acked(struct tcpcb *tp, bool all)
{
    tp->t_unacked_since = all && !tcp_timer_active(tp, TT_PERSIST) ? 0 : tp->t_stack->now;
    if (all)
        tcp_timer_cancel(tp, TT_REXMT);
    else if (!tcp_timer_active(tp, TT_PERSIST))
        arm_rexmt(tp);
}

void tcp_timer_event_window_closed(struct tcpcb *tp)
{
    if (tcp_timer_active(tp, TT_PERSIST))
        return;
    tcp_timer_cancel(tp, TT_REXMT);
    tp->t_rxtshift = 0;
    tp->t_flags2 &= ~TF2_PROBED;
    if (!tp->t_unacked_since)
        tp->t_unacked_since = tp->t_stack->now;
    arm_persist(tp);
}

void tcp_timer_event_window_opened(struct tcpcb *tp)
{
    if (!tcp_timer_active(tp, TT_PERSIST))
        return;
    tcp_timer_cancel(tp, TT_PERSIST);
    tp->t_rxtshift = 0;
    tp->t_flags2 &= ~TF2_PROBED;
    if (tp->snd_max != tp->snd_una)
        arm_rexmt(tp);
    else
        tp->t_unacked_since = 0;
}

void tcp_timer_event_nobufs(struct tcpcb *tp)
{
    if (!tcp_timer_active(tp, TT_REXMT) && !tcp_timer_active(tp, TT_PERSIST))
        arm_rexmt(tp);
}

void tcp_timer_event_corked(struct tcpcb *tp)
{
    if (!tcp_timer_active(tp, TT_CORK))
        tcp_timer_arm(tp, TT_CORK, (uint64_t)KNOB(tp->t_stack, tcp_msgmore_flush) * NS_PER_MS);
}

void tcp_timer_event_delack(struct tcpcb *tp)
{
    if (!tcp_timer_active(tp, TT_DELACK))
        tcp_timer_arm(tp, TT_DELACK, (uint64_t)KNOB(tp->t_stack, tcp_delacktime) * NS_PER_MS);
}

void tcp_timer_event_ack_sent(struct tcpcb *tp)
{
    tcp_timer_cancel(tp, TT_DELACK);
}

void tcp_timer_event_heard(struct tcpcb *tp)
{
    /* The keepalive timer looks at t_rcvtime when it fires: nothing to move here. */
    tp->t_rcvtime = tp->t_stack->now;
    tp->t_keepprobes = 0;
}

static bool keepalive_wanted(const struct tcpcb *tp)
{
    return KNOB(tp->t_stack, tcp_always_keepalive) || so_has_option(tp->t_so, SO_KEEPALIVE);
}

void tcp_timer_event_keep_changed(struct tcpcb *tp)
{
    if (tp->t_state < TCPS_ESTABLISHED) {
        if (tp->t_state == TCPS_SYN_SENT || tp->t_state == TCPS_SYN_RECEIVED) {
            uint64_t end =
                tp->t_starttime + knob_ms(tp->t_keepinit_ms, KNOB(tp->t_stack, tcp_keepinit));
            tcp_timer_arm(tp, TT_KEEP, end > tp->t_stack->now ? end - tp->t_stack->now : 0);
        }
        return;
    }
    if (tp->t_state > TCPS_CLOSING && tp->t_state != TCPS_FIN_WAIT_2)
        return;
    uint64_t idle = tp->t_stack->now - MAX(tp->t_rcvtime, tp->t_starttime), want = keepidle_ns(tp);
    tcp_timer_arm(tp, TT_KEEP, want > idle ? want - idle : 0);
}

/* How long a connection may be idle in FIN_WAIT_2: as long as keepalive would probe it. */
static uint64_t maxidle_ns(const struct tcpcb *tp)
{
    return keepcnt(tp) * keepintvl_ns(tp);
}

static bool finwait2_is_fast(const struct tcpcb *tp)
{
    return KNOB(tp->t_stack, tcp_fast_finwait2_recycle) || tp->t_linger2_ms;
}

static void arm_finwait2(struct tcpcb *tp)
{
    uint64_t ms = (uint64_t)KNOB(tp->t_stack, tcp_finwait2_timeout);
    if (tp->t_linger2_ms < 0)
        ms = 0;
    else if (tp->t_linger2_ms > 0)
        ms = MIN((uint64_t)tp->t_linger2_ms, TCP_LINGER2_MAX_MS);
    tcp_timer_arm(tp, TT_2MSL, finwait2_is_fast(tp) ? ms * NS_PER_MS : maxidle_ns(tp));
}

/* Nobody will read what the peer may still send: FreeBSD does not wait for ever either. */
static bool finwait2_is_bounded(const struct tcpcb *tp)
{
    return (tp->t_flags2 & TF2_ORPHAN) ||
           (!finwait2_is_fast(tp) && (so_state(tp->t_so) & SS_CANTRCVMORE));
}

void tcp_timer_event_shutdown(struct tcpcb *tp)
{
    if (tp->t_state == TCPS_FIN_WAIT_2 && finwait2_is_bounded(tp))
        arm_finwait2(tp);
}

void tcp_timer_event_orphan(struct tcpcb *tp)
{
    if (tp->t_state == TCPS_FIN_WAIT_2) {
        arm_finwait2(tp);
    } else if (tp->t_state < TCPS_TIME_WAIT && tp->t_state > TCPS_LISTEN) {
        tp->t_orphan_una = tp->snd_una;
        tcp_timer_arm(tp, TT_2MSL, ORPHAN_PROGRESS_NS);
    }
}

void tcp_timer_event_state(struct tcpcb *tp, int from, int to)
{
    switch (to) {
    case TCPS_CLOSED:
        tcp_timers_stop(tp);
        break;
    case TCPS_SYN_SENT:
    case TCPS_SYN_RECEIVED:
        if (from != TCPS_SYN_SENT)
            tcp_timer_arm(tp, TT_KEEP, knob_ms(tp->t_keepinit_ms, KNOB(tp->t_stack, tcp_keepinit)));
        break;
    case TCPS_ESTABLISHED:
        tcp_timer_arm(tp, TT_KEEP, keepidle_ns(tp));
        break;
    case TCPS_FIN_WAIT_1:
        if (from < TCPS_ESTABLISHED)
            tcp_timer_arm(tp, TT_KEEP, keepidle_ns(tp));
        break;
    case TCPS_FIN_WAIT_2:
        if (finwait2_is_bounded(tp))
            arm_finwait2(tp);
        break;
    case TCPS_TIME_WAIT:
        tcp_timers_stop(tp); /* all of them, that none wakes the stack for nothing */
        tcp_timer_arm(tp, TT_2MSL, 2 * (uint64_t)KNOB(tp->t_stack, tcp_msl) * NS_PER_MS);
        break;
    default:
        break;
    }
}

/* --- what happens when they fire --- */

/* The path may swallow full segments without a word (RFC 2923): every second timeout tries a
 * smaller size, and from the sixth on the old one again. */
static void blackhole_probe(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    int64_t mode = KNOB(s, tcp_pmtud_blackhole_detection);
    bool v6 = tp->t_flow.faddr.family == AF_INET6;
    if (!(mode == 1 || mode == (v6 ? 3 : 2)))
        return;
    if (tp->t_state != TCPS_ESTABLISHED && tp->t_state != TCPS_FIN_WAIT_1)
        return;
    const uint32_t both = TF2_PLPMTU_PMTUD | TF2_PLPMTU_MAXSEGSNT;
    if ((tp->t_flags2 & both) == both && tp->t_rxtshift >= 2 && tp->t_rxtshift < 6 &&
        tp->t_rxtshift % 2 == 0) {
        uint32_t small =
            (uint32_t)(v6 ? KNOB(s, tcp_v6pmtud_blackhole_mss) : KNOB(s, tcp_pmtud_blackhole_mss));
        if (!(tp->t_flags2 & TF2_PLPMTU_BLACKHOLE)) {
            tp->t_flags2 |= TF2_PLPMTU_BLACKHOLE;
            tp->t_saved_maxseg = tp->t_maxseg;
        }
        COUNT(s, tcp_pmtud_blackhole);
        if (tp->t_maxseg > small) {
            tp->t_maxseg = small;
        } else {
            tp->t_maxseg = (uint32_t)(v6 ? KNOB(s, tcp_v6mssdflt) : KNOB(s, tcp_mssdflt));
            tp->t_flags2 &= ~TF2_PLPMTU_PMTUD;
        }
    } else if ((tp->t_flags2 & TF2_PLPMTU_BLACKHOLE) && tp->t_rxtshift >= 6) {
        tp->t_flags2 |= TF2_PLPMTU_PMTUD;
        tp->t_flags2 &= ~TF2_PLPMTU_BLACKHOLE;
        tp->t_maxseg = tp->t_saved_maxseg;
    }
}

static void rexmt_fired(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    if (unacked_too_long(tp)) {
        COUNT(s, tcp_user_timeout_drops);
        tcp_drop(tp, ETIMEDOUT);
        return;
    }
    COUNT(s, tcp_rexmt_timeouts);
    WEIR_PROBE4(tcp_rto, s->name, (int)tp->t_so->so_index, tp->t_rxtshift, tp->t_rxtcur);
    if (TCPS_HAVEESTABLISHED(tp->t_state) && tp->snd_wnd == 0 && sockbuf_used(&tp->t_so->so_snd)) {
        /* The peer took its window back: what is out is not lost but unwanted. Probe. */
        tcp_timer_event_window_closed(tp);
        return;
    }
    if (++tp->t_rxtshift > TCP_MAXRXTSHIFT) {
        tp->t_rxtshift = TCP_MAXRXTSHIFT;
        COUNT(s, tcp_rexmt_drops);
        tcp_drop(tp, ETIMEDOUT);
        return;
    }
    bool syn = tp->t_state == TCPS_SYN_SENT || tp->t_state == TCPS_SYN_RECEIVED;
    uint64_t base = syn ? (uint64_t)KNOB(s, tcp_rexmit_initial) * NS_PER_MS : rexmt_value(tp);
    tp->t_rxtcur = clamp_rto(tp, base * tcp_timer_backoff(tp->t_rxtshift));
    blackhole_probe(tp);
    if (tp->t_rxtshift >= DOUBT_SHIFT)
        ip_nexthop_doubt(s, &tp->t_flow.faddr);
    if (tp->t_rxtshift > INVALIDATE_SHIFT && tp->t_srtt) {
        /* The round-trip time is hardly what it was: the next sample counts whole. Until then the
         * timeout rests on what BSD keeps of it. */
        tp->t_rttvar += MAX(tp->t_srtt / 16, 1);
        tp->t_srtt = 0;
    }
    if (tp->t_state == TCPS_SYN_SENT && tp->t_rxtshift == 3 && KNOB(s, tcp_rexmit_drop_options))
        tp->t_flags &= ~(TF_REQ_SCALE | TF_REQ_TSTMP | TF_SACK_PERMIT);
    if (syn) {
        tp->snd_cwnd = 1; /* tcp_cc_conn_init makes it one segment */
        tp->t_flags |= TF_ACKNOW;
    } else {
        tcp_recovery_timeout(tp);
    }
    arm_rexmt(tp);
    tcp_output_later(tp);
}

static void persist_fired(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    COUNT(s, tcp_persist_timeouts);
    /* A peer that answers probes is alive, however long its window stays shut; one that answers
     * none for as long as retransmissions would have gone on is not. */
    uint64_t silent = s->now - MAX(tp->t_rcvtime, tp->t_starttime);
    bool dead = tp->t_rxtshift >= TCP_MAXRXTSHIFT && silent >= rexmt_value(tp) * BACKOFF_SUM;
    uint64_t hi = (uint64_t)KNOB(s, tcp_persmax) * NS_PER_MS;
    if (tp->t_state > TCPS_CLOSE_WAIT && silent >= hi)
        dead = true;
    if (unacked_too_long(tp)) {
        COUNT(s, tcp_user_timeout_drops);
        dead = true;
    }
    if (dead) {
        COUNT(s, tcp_persist_drops);
        tcp_drop(tp, ETIMEDOUT);
        return;
    }
    arm_persist(tp);
    tp->t_flags2 |= TF2_PROBED;
    tp->t_flags |= TF_FORCEDATA;
    if (likely(tcp_output(tp) != -EIO)) /* else it is gone */
        tp->t_flags &= ~TF_FORCEDATA;
}

static void keep_fired(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    COUNT(s, tcp_keep_timeouts);
    if (tp->t_state < TCPS_ESTABLISHED) {
        COUNT(s, tcp_keep_drops);
        tcp_drop(tp, ETIMEDOUT);
        return;
    }
    uint64_t idle = s->now - MAX(tp->t_rcvtime, tp->t_starttime), want = keepidle_ns(tp);
    if (idle < want || tp->t_state > TCPS_CLOSING || !keepalive_wanted(tp)) {
        tcp_timer_arm(tp, TT_KEEP, idle < want ? want - idle : want);
        return;
    }
    uint64_t intvl = keepintvl_ns(tp), limit = want + keepcnt(tp) * intvl;
    if (tp->t_user_timeout_ms) /* it overrides the number of probes, as on Linux */
        limit = MAX((uint64_t)tp->t_user_timeout_ms * NS_PER_MS, want + 1);
    if (idle >= limit) {
        COUNT(s, tcp_keep_drops);
        tcp_drop(tp, ETIMEDOUT);
        return;
    }
    COUNT(s, tcp_keep_probes);
    tp->t_keepprobes++;
    /* Outside the peer's window, so that it must answer. */
    tcp_send_bare(tp, tp->snd_una - 1, tp->rcv_nxt, TH_ACK);
    tcp_timer_arm(tp, TT_KEEP, MIN(intvl, limit - idle));
}

static void twomsl_fired(struct tcpcb *tp)
{
    if (tp->t_state == TCPS_TIME_WAIT) {
        tcp_close(tp);
        return;
    }
    if (tp->t_state == TCPS_FIN_WAIT_2) {
        if (!finwait2_is_fast(tp) && tp->t_stack->now - tp->t_rcvtime <= maxidle_ns(tp)) {
            tcp_timer_arm(tp, TT_2MSL, keepintvl_ns(tp));
            return;
        }
        COUNT(tp->t_stack, tcp_finwait2_drops);
        if (tp->t_linger2_ms < 0)
            tcp_abort(tp);
        else
            tcp_close(tp);
        return;
    }
    if (tp->snd_una - tp->t_orphan_una < tp->t_maxseg) {
        COUNT(tp->t_stack, tcp_persist_drops);
        tcp_abort(tp);
        return;
    }
    tp->t_orphan_una = tp->snd_una;
    tcp_timer_arm(tp, TT_2MSL, ORPHAN_PROGRESS_NS);
}

static void delack_fired(struct tcpcb *tp)
{
    COUNT(tp->t_stack, tcp_delack_timeouts);
    tp->t_flags |= TF_ACKNOW;
    tcp_output_later(tp);
}

static void cork_fired(struct tcpcb *tp)
{
    tp->t_flags2 |= TF2_CORK_FLUSH;
    tcp_output_later(tp);
}

/* One entry point a timer, so that a timer need not hold who it is. */
static void timer_fired(struct tcpcb *tp, enum tcp_timer_id id, void (*fired)(struct tcpcb *tp))
{
    struct tcp_timer *t = &tp->t_timers[id];
    if (!t->due_ns)
        return;
    if (t->due_ns > tp->t_stack->now) {
        wheel_arm(&tp->t_stack->wheel, &t->t, t->due_ns);
        return;
    }
    t->due_ns = 0;
    fired(tp);
}

#define TIMERS(X)                                                                                  \
    X(REXMT, rexmt)                                                                                \
    X(PERSIST, persist) X(KEEP, keep) X(2MSL, twomsl) X(DELACK, delack) X(CORK, cork)
#define X(id, name)                                                                                \
    static void on_##name(struct timer *t, uint64_t now_ns)                                        \
    {                                                                                              \
        timer_fired(CONTAINER_OF(t, struct tcpcb, t_timers[TT_##id].t), TT_##id, name##_fired);    \
    }
TIMERS(X)
#undef X

void tcp_timers_init(struct tcpcb *tp)
{
#define X(id, name) timer_init(&tp->t_timers[TT_##id].t, on_##name);
    TIMERS(X)
#undef X
    for (int i = 0; i < TT_COUNT; i++)
        tp->t_timers[i].due_ns = 0;
    tp->t_rxtcur = (uint64_t)KNOB(tp->t_stack, tcp_rexmit_initial) * NS_PER_MS;
}
