/* SPDX-License-Identifier: BSD-2-Clause
 * TIME_WAIT (RFC 9293 3.10.7.4, RFC 1337), of connections and of the records that replace them.
 *
 * How it works. While an application holds the socket, or the last ACK is still owed, a connection
 * in TIME_WAIT keeps its tcpcb. Then a struct tcptw of a tenth of the size takes over, so that the
 * memory of tcpcb and socket serves the next connection while it is in the cache. A record answers
 * segments with the same words, keeps the tuple and the local port, and ends with the same clock.
 *
 * Records hang in a table of their own, asked when no connection matches, and stand in a queue in
 * the order in which they are due, with one timer for the first. 2MSL is the same for all, thus a
 * new one goes to the end. A connection that comes late, because its application held it, or is due
 * early, since net.inet.tcp.msl was lowered, finds its place a few steps before the end, or stays a
 * tcpcb. */
#include "tcp_in.h"

#define CHAINS_MIN 256u
#define CHAINS_MAX (1u << 24)
#define PLACE_STEPS 32

static uint64_t twomsl_ns(struct weir_stack *s)
{
    return 2 * (uint64_t)KNOB(s, tcp_msl) * NS_PER_MS;
}

/* --- what a segment gets for an answer --- */

/* What that rests on. */
struct view {
    uint32_t snd_nxt, rcv_nxt, ts_recent;
    bool timestamps;
};

#define DO_RESTART 0x1   /* 2MSL anew */
#define DO_ACK 0x2       /* acknowledge */
#define DO_CHALLENGE 0x4 /* acknowledge, if the limit allows */

static bool yields(const struct view *v, const struct tcp_segment *seg)
{
    if ((seg->flags & (TH_SYN | TH_ACK | TH_RST)) != TH_SYN)
        return false;
    if ((seg->to.flags & TOF_TS) && v->timestamps && TSTMP_GT(seg->to.tsval, v->ts_recent))
        return true;
    return SEQ_GT(seg->seq, v->rcv_nxt);
}

/* Resets are ignored; the peer's FIN again is acknowledged again and starts 2MSL anew. */
static unsigned judge(struct weir_stack *s, const struct view *v, const struct tcp_segment *seg)
{
    unsigned todo = 0;

    if (seg->flags & TH_RST) {
        COUNT(s, tcp_rx_badrst);
        return 0;
    }
    if ((seg->flags & (TH_SYN | TH_ACK)) == TH_SYN) { /* not new enough to take over */
        COUNT(s, tcp_rx_syn_challenged);
        return KNOB(s, tcp_freebsd_wire) ? 0 : DO_CHALLENGE;
    }
    if (!(seg->flags & TH_ACK))
        return 0;
    if (v->timestamps && !(seg->to.flags & TOF_TS) && !KNOB(s, tcp_tolerate_missing_ts)) {
        COUNT(s, tcp_rx_notimestamp);
        return 0;
    }
    if ((seg->flags & TH_FIN) &&
        seg->seq + seg->len + ((seg->flags & TH_SYN) != 0) + 1 == v->rcv_nxt)
        todo |= DO_RESTART;
    if (seg->flags != TH_ACK || seg->len || seg->seq != v->rcv_nxt || seg->ack != v->snd_nxt)
        todo |= DO_ACK;
    return todo;
}

/* --- a connection --- */

static struct view view_of(const struct tcpcb *tp)
{
    return (struct view){.snd_nxt = tp->snd_nxt,
                         .rcv_nxt = tp->rcv_nxt,
                         .ts_recent = tp->ts_recent,
                         .timestamps = (tp->t_flags & TF_RCVD_TSTMP) != 0};
}

bool tcp_timewait_yields(const struct tcpcb *tp, const struct tcp_segment *seg)
{
    if (likely(tp->t_state != TCPS_TIME_WAIT))
        return false;
    struct view v = view_of(tp);
    return yields(&v, seg);
}

void tcp_timewait_input(struct tcpcb *tp, const struct tcp_segment *seg)
{
    struct view v = view_of(tp);
    unsigned todo = judge(tp->t_stack, &v, seg);

    if (todo & DO_RESTART)
        tcp_timer_arm(tp, TT_2MSL, twomsl_ns(tp->t_stack));
    if (todo & DO_CHALLENGE)
        tcp_send_challenge_ack(tp, seg);
    if (todo & DO_ACK)
        tcp_send_bare(tp, tp->snd_nxt, tp->rcv_nxt, TH_ACK);
}

/* The last ACK at once, then nothing is kept. */
static void skip_timewait(struct tcpcb *tp)
{
    tcp_state_set(tp, TCPS_TIME_WAIT);
    if (tp->t_flags & TF_ACKNOW)
        tcp_send_bare(tp, tp->snd_nxt, tp->rcv_nxt, TH_ACK);
    tcp_close(tp);
}

void tcp_enter_timewait(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;

    if (KNOB(s, tcp_nolocaltimewait) && ip_is_local(s, &tp->t_flow.faddr)) {
        skip_timewait(tp);
        return;
    }
    if (s->tcp->timewait_count >= KNOB(s, tcp_maxtcptw)) {
        COUNT(s, tcp_timewait_limit);
        skip_timewait(tp);
        return;
    }
    tcp_state_set(tp, TCPS_TIME_WAIT);
    tcp_reass_flush(tp);
    tcp_sent_flush(tp);
    so_disconnected(tp->t_so);
    if (tp->t_flags & TF_ACKNOW)
        tcp_output_later(tp);
    else
        tcp_timewait_shrink(tp);
}

/* --- records: where they are --- */

struct tcptw *tcp_timewait_find(struct weir_stack *s, const struct flow *f)
{
    const struct tcp_timewaits *t = &s->tcp->timewaits;
    uint32_t h = (uint32_t)tcp_flow_hash(s, f);
    struct tcptw *tw = t->hash[h & t->mask];

    while (tw && !(tw->hashval == h && flow_equal(&tw->flow, f)))
        tw = tw->hash_next;
    return tw;
}

/* Make the table, or double it. Without memory the chains just grow longer; false: there is none.
 */
static bool table_has_room(struct weir_stack *s)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;
    uint32_t old = t->hash ? t->mask + 1 : 0, size = old ? old * 2 : CHAINS_MIN;

    if (likely(t->records < old) || size > CHAINS_MAX)
        return true;
    struct tcptw **hash = alloc_zero(&s->alloc, size * sizeof(struct tcptw *));
    if (!hash)
        return old > 0;
    for (uint32_t i = 0; i < old; i++) {
        struct tcptw *tw;
        while ((tw = t->hash[i]) != NULL) {
            t->hash[i] = tw->hash_next;
            tw->hash_next = hash[tw->hashval & (size - 1)];
            hash[tw->hashval & (size - 1)] = tw;
        }
    }
    alloc_free(&s->alloc, t->hash, old * sizeof(struct tcptw *));
    t->hash = hash;
    t->mask = size - 1;
    return true;
}

/* Find the record behind which one that is due then belongs; NULL: it is the first. False: that
 * would take too long. */
static bool queue_place(const struct tcp_timewaits *t, uint64_t due_ns, struct tcptw **after)
{
    struct tcptw *tw = TAILQ_LAST(&t->queue, tcptw_queue);

    for (int i = 0; tw && tw->due_ns > due_ns; i++) {
        if (i == PLACE_STEPS)
            return false;
        tw = TAILQ_PREV(tw, tcptw_queue, queue);
    }
    *after = tw;
    return true;
}

static void insert(struct weir_stack *s, struct tcptw *tw, struct tcptw *after)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;
    struct tcptw **chain = &t->hash[tw->hashval & t->mask];

    tw->hash_next = *chain;
    *chain = tw;
    if (after) {
        TAILQ_INSERT_AFTER(&t->queue, after, tw, queue);
    } else {
        TAILQ_INSERT_HEAD(&t->queue, tw, queue);
        wheel_arm(&s->wheel, &t->timer, tw->due_ns);
    }
    t->records++;
    s->tcp->timewait_count++;
}

static void record_free(struct weir_stack *s, struct tcptw *tw)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;
    struct tcptw **link = &t->hash[tw->hashval & t->mask];

    while (*link != tw)
        link = &(*link)->hash_next;
    *link = tw->hash_next;
    TAILQ_REMOVE(&t->queue, tw, queue);
    tcp_port_release_timewait(s, tw);
    alloc_free(&s->alloc, tw, sizeof(*tw));
    s->tcp->timewait_count--;
    if (--t->records == 0)
        wheel_cancel(&s->wheel, &t->timer);
}

void tcp_timewait_close(struct weir_stack *s, struct tcptw *tw)
{
    COUNT(s, tcp_closed);
    record_free(s, tw);
}

void tcp_timewait_drop(struct weir_stack *s, struct tcptw *tw)
{
    COUNT(s, tcp_conndrops);
    tcp_timewait_close(s, tw);
}

void tcp_timewait_foreach(struct weir_stack *s, void (*fn)(const struct tcptw *tw, void *ctx),
                          void *ctx)
{
    const struct tcptw *tw;

    TAILQ_FOREACH (tw, &s->tcp->timewaits.queue, queue)
        fn(tw, ctx);
}

/* The first is due, or was when the timer was set. */
static void timer_fired(struct timer *timer, uint64_t now_ns)
{
    struct tcp_timewaits *t = CONTAINER_OF(timer, struct tcp_timewaits, timer);
    struct weir_stack *s = t->stack;
    struct tcptw *tw;

    while ((tw = TAILQ_FIRST(&t->queue)) != NULL && tw->due_ns <= now_ns)
        tcp_timewait_close(s, tw);
    if (tw)
        wheel_arm(&s->wheel, timer, tw->due_ns);
}

void tcp_timewait_init(struct weir_stack *s)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;

    t->stack = s;
    TAILQ_INIT(&t->queue);
    timer_init(&t->timer, timer_fired);
}

void tcp_timewait_fini(struct weir_stack *s)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;
    struct tcptw *tw;

    while ((tw = TAILQ_FIRST(&t->queue)) != NULL)
        record_free(s, tw);
    CHECK(t->records == 0 && !timer_is_armed(&t->timer));
    if (t->hash)
        alloc_free(&s->alloc, t->hash, (t->mask + 1) * sizeof(struct tcptw *));
    t->hash = NULL;
}

/* --- records: what they do --- */

/* All but its place. */
static void record_fill(struct tcptw *tw, const struct tcpcb *tp)
{
    const struct socket *so = tp->t_so;
    bool v4 = tp->t_flow.faddr.family == AF_INET;
    int ttl = v4 ? LOAD_RELAXED(&so->so_ttl) : LOAD_RELAXED(&so->so_hoplimit);

    tw->flow = tp->t_flow;
    tw->hashval = tp->t_hashval;
    tw->due_ns = tp->t_timers[TT_2MSL].due_ns;
    tw->rcvtime_ns = tp->t_rcvtime;
    tw->challenge_end = tp->t_challenge_start;
    tw->challenge_count = tp->t_challenge_count;
    tw->snd_nxt = tp->snd_nxt;
    tw->rcv_nxt = tp->rcv_nxt;
    tw->ts_recent = tp->ts_recent;
    tw->ts_offset = tp->ts_offset;
    tw->win = tcp_control_window(tp);
    tw->ttl = ttl > 0 ? (uint8_t)ttl : 0;
    tw->tos = v4 ? LOAD_RELAXED(&so->so_tos) : LOAD_RELAXED(&so->so_tclass);
    if (tp->t_flags & TF_RCVD_TSTMP)
        tw->flags |= tp->t_flags & TF_NOOPT ? TW_TIMESTAMPS : TW_TIMESTAMPS | TW_SENDS_TIMESTAMPS;
    if (so_has_option(so, SO_REUSEADDR))
        tw->flags |= TW_REUSEADDR;
    if (so_has_option(so, SO_REUSEPORT))
        tw->flags |= TW_REUSEPORT;
}

bool tcp_timewait_shrink(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct socket *so = tp->t_so;
    struct tcptw *tw, *after;

    if (tp->t_state != TCPS_TIME_WAIT || !(tp->t_flags2 & TF2_ORPHAN) || (tp->t_flags & TF_ACKNOW))
        return false;
    CHECK(tp->t_hashed && tcp_timer_active(tp, TT_2MSL));
    if (!queue_place(&s->tcp->timewaits, tp->t_timers[TT_2MSL].due_ns, &after) ||
        !table_has_room(s) || !(tw = alloc_zero(&s->alloc, sizeof(*tw))))
        return false;
    record_fill(tw, tp);
    tcp_port_hold_timewait(tw, tp); /* before tp lets go of it */
    tcp_hostcache_update(tp);
    tcp_pcb_free(tp);
    so_protocol_done(so);
    insert(s, tw, after);
    return true;
}

static void send_ack(struct weir_stack *s, const struct tcptw *tw)
{
    struct tcp_options to = {0};
    struct tcp_control c = {.flow = &tw->flow,
                            .tw = tw,
                            .seq = tw->snd_nxt,
                            .ack = tw->rcv_nxt,
                            .win = tw->win,
                            .flags = TH_ACK};

    if (tw->flags & TW_SENDS_TIMESTAMPS) {
        to.flags = TOF_TS;
        to.tsval = tcp_ts_now(s) + tw->ts_offset;
        to.tsecr = tw->ts_recent;
        c.to = &to;
    }
    (void)tcp_control_send(s, &c); /* what is lost the peer asks for again */
}

/* 2MSL anew. Where it has become shorter meanwhile, not before those that are due already. */
static void restart(struct weir_stack *s, struct tcptw *tw)
{
    struct tcp_timewaits *t = &s->tcp->timewaits;
    const struct tcptw *last;

    TAILQ_REMOVE(&t->queue, tw, queue);
    last = TAILQ_LAST(&t->queue, tcptw_queue);
    tw->due_ns = s->now + twomsl_ns(s);
    if (last)
        tw->due_ns = MAX(tw->due_ns, last->due_ns);
    TAILQ_INSERT_TAIL(&t->queue, tw, queue); /* the timer may be early now: it sees to that */
    if (!last)
        wheel_arm(&s->wheel, &t->timer, tw->due_ns);
}

bool tcp_timewait_segment(struct weir_stack *s, const struct flow *f, const struct tcp_segment *seg)
{
    struct tcptw *tw = tcp_timewait_find(s, f);

    if (!tw)
        return false;
    struct view v = {.snd_nxt = tw->snd_nxt,
                     .rcv_nxt = tw->rcv_nxt,
                     .ts_recent = tw->ts_recent,
                     .timestamps = (tw->flags & TW_TIMESTAMPS) != 0};
    if (yields(&v, seg)) {
        COUNT(s, tcp_timewait_reused);
        tcp_timewait_close(s, tw);
        return false;
    }
    unsigned todo = judge(s, &v, seg);
    if (todo & DO_RESTART)
        restart(s, tw);
    if ((todo & DO_ACK) ||
        ((todo & DO_CHALLENGE) && tcp_challenge_ok(s, &tw->challenge_end, &tw->challenge_count)))
        send_ack(s, tw);
    return true;
}
