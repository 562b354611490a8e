/* SPDX-License-Identifier: BSD-2-Clause
 * Half-open connections of listeners: the SYN cache (RFC 4987 3.3), with cookies for what does not
 * fit.
 *
 * How it works. A SYN makes a small entry in a table keyed by a secret hash, which sends the
 * SYN-ACK and repeats it by a timer. The ACK turns it into a connection. The initial sequence
 * number is a cookie whenever net.inet.tcp.syncookies is on, so that an entry thrown out to make
 * room (the oldest of a full bucket) can still be completed; such ACKs are believed only for a
 * while after something was thrown out or not stored. An ACK that finds the accept queue full
 * leaves its entry: the SYN-ACK is repeated, and the peer's next ACK tries again. */
#include "tcp_in.h"
#include "tcp_timer.h"
#include <stdio.h>

#define BUCKETS 512u
#define REXMT_MAX_NS (UINT64_C(64) * NS_PER_S)

#define SC_WSCALE 0x01
#define SC_TIMESTAMP 0x02
#define SC_SACK 0x04
#define SC_ECN 0x08
#define SC_UNREACH 0x10

struct syncache_entry {
    TAILQ_ENTRY(syncache_entry) link;
    struct timer timer;
    struct weir_stack *stack;
    struct tcpcb *listener; /* NULL: gone, and the knob says that its entries outlive it */
    struct flow flow;
    uint64_t sent_ns;  /* the first SYN-ACK */
    uint64_t acked_ns; /* by a bare ACK, which TCP_DEFER_ACCEPT did not take; 0: none yet */
    uint64_t challenge_end;
    uint32_t challenge_count;
    uint32_t iss, irs;
    uint32_t ts_recent, ts_offset;
    uint32_t wnd;      /* offered, unscaled: at most 65535 */
    uint16_t peer_mss; /* 0: not offered */
    uint8_t snd_scale, rcv_scale;
    uint8_t flags;  /* SC_* */
    uint8_t rxmits; /* SYN-ACKs sent by the timer's count: 1 after the first */
};

TAILQ_HEAD(bucket, syncache_entry);
struct tcp_syncache {
    struct bucket bucket[BUCKETS]; /* newest first */
    uint32_t bucket_count[BUCKETS];
    uint32_t count;
    uint64_t overflow_ns; /* when an entry was last thrown out or not made; 0: never */
    struct tcp_cookie_keys keys;
};

static int sysctl_count(struct weir_stack *s, const char *write, char *out, size_t out_size)
{
    if (write)
        return -EPERM;
    snprintf(out, out_size, "%u", s->tcp->syncache->count);
    return 0;
}

int tcp_syncache_init(struct weir_stack *s)
{
    struct tcp_syncache *c = alloc_zero(&s->alloc, sizeof(*c));

    if (!c)
        return -ENOMEM;
    for (uint32_t i = 0; i < BUCKETS; i++)
        TAILQ_INIT(&c->bucket[i]);
    s->tcp->syncache = c;
    sysctl_set_handler(s, KNOB_tcp_syncache_count, sysctl_count);
    return 0;
}

static uint32_t bucket_of(struct weir_stack *s, const struct flow *f)
{
    return (uint32_t)tcp_flow_hash(s, f) & (BUCKETS - 1);
}

static void entry_drop(struct weir_stack *s, struct syncache_entry *e)
{
    struct tcp_syncache *c = s->tcp->syncache;
    uint32_t i = bucket_of(s, &e->flow);

    wheel_cancel(&s->wheel, &e->timer);
    TAILQ_REMOVE(&c->bucket[i], e, link);
    c->bucket_count[i]--;
    c->count--;
    alloc_free(&s->alloc, e, sizeof(*e));
}

void tcp_syncache_fini(struct weir_stack *s)
{
    struct tcp_syncache *c = s->tcp->syncache;
    struct syncache_entry *e;

    for (uint32_t i = 0; i < BUCKETS; i++) {
        while ((e = TAILQ_FIRST(&c->bucket[i])) != NULL)
            entry_drop(s, e);
    }
    explicit_bzero(&c->keys, sizeof(c->keys));
    alloc_free(&s->alloc, c, sizeof(*c));
    s->tcp->syncache = NULL;
}

static struct syncache_entry *entry_find(struct weir_stack *s, const struct flow *f)
{
    struct syncache_entry *e;

    TAILQ_FOREACH (e, &s->tcp->syncache->bucket[bucket_of(s, f)], link) {
        if (e->flow.lport == f->lport && e->flow.fport == f->fport &&
            ipaddr_equal(&e->flow.faddr, &f->faddr) && ipaddr_equal(&e->flow.laddr, &f->laddr))
            return e;
    }
    return NULL;
}

/* --- answers --- */

static void entry_respond(struct weir_stack *s, const struct syncache_entry *e, uint8_t flags)
{
    struct tcp_options to = {0};
    struct tcp_control c = {.flow = &e->flow,
                            .so = e->listener ? e->listener->t_so : NULL,
                            .to = &to,
                            .seq = e->iss,
                            .ack = e->irs + 1,
                            .win = (uint16_t)e->wnd,
                            .flags = flags};

    if (flags & TH_SYN) {
        to.flags = TOF_MSS;
        to.mss = (uint16_t)tcp_mss_to_offer(s, &e->flow, e->listener ? e->listener->t_user_mss : 0);
        if (e->flags & SC_WSCALE) {
            to.flags |= TOF_SCALE;
            to.wscale = e->rcv_scale;
        }
        if (e->flags & SC_SACK)
            to.flags |= TOF_SACKPERM;
        if (e->flags & SC_ECN)
            c.flags |= TH_ECE;
    } else {
        c.seq++;
        if (e->flags & SC_WSCALE) /* only a SYN's window is not scaled (RFC 7323 2.2) */
            c.win = (uint16_t)(e->wnd >> e->rcv_scale);
    }
    if (e->flags & SC_TIMESTAMP) {
        to.flags |= TOF_TS;
        to.tsval = tcp_ts_now(s) + e->ts_offset;
        to.tsecr = e->ts_recent;
    }
    if (e->listener && (e->listener->t_flags & TF_NOOPT))
        c.to = NULL;
    (void)tcp_control_send(s, &c); /* when it fails, the timer or the peer tries again */
}

/* The time to the next SYN-ACK: the initial timeout, then doubled each time, plus the slop. */
static void entry_arm(struct weir_stack *s, struct syncache_entry *e)
{
    uint64_t ns = (uint64_t)KNOB(s, tcp_rexmit_initial) * NS_PER_MS;

    if (e->rxmits > 0) {
        ns = (ns << MIN(e->rxmits, 16)) + (uint64_t)KNOB(s, tcp_rexmit_slop) * NS_PER_MS;
        ns = MAX(ns, (uint64_t)KNOB(s, tcp_rexmit_min) * NS_PER_MS);
        ns = MIN(ns, REXMT_MAX_NS);
    }
    if (e->rxmits < UINT8_MAX)
        e->rxmits++;
    wheel_arm(&s->wheel, &e->timer, s->now + ns);
}

/* TCP_DEFER_ACCEPT, as Linux has it: while fewer SYN-ACK timeouts have passed than it says, a
 * connection that was acknowledged waits for data, in silence; after the last of them the SYN-ACK
 * is sent again, and any ACK will do. */
static uint8_t timeouts_to_wait(const struct syncache_entry *e)
{
    return e->listener ? MIN(e->listener->t_defer_accept, UINT8_MAX - 1) : 0;
}

static bool entry_is_deferred(const struct syncache_entry *e)
{
    return e->acked_ns && e->rxmits <= timeouts_to_wait(e);
}

static void entry_timeout(struct timer *t, uint64_t now_ns)
{
    struct syncache_entry *e = CONTAINER_OF(t, struct syncache_entry, timer);
    struct weir_stack *s = e->stack;

    if (e->rxmits > KNOB(s, tcp_syncache_rexmtlimit) && !entry_is_deferred(e)) {
        COUNT(s, tcp_syncache_timeouts);
        entry_drop(s, e);
        return;
    }
    if (!entry_is_deferred(e) || e->rxmits == timeouts_to_wait(e)) {
        COUNT(s, tcp_syncache_retransmitted);
        /* ECN may be what the path does not let through. */
        if (e->rxmits > KNOB(s, tcp_ecn_maxretries))
            e->flags &= (uint8_t)~SC_ECN;
        entry_respond(s, e, TH_SYN | TH_ACK);
    }
    entry_arm(s, e);
}

/* --- a SYN --- */

/* The smallest scale by which the window can grow to the largest buffer. */
static uint8_t wscale_to_offer(struct weir_stack *s)
{
    uint8_t scale = 0;

    while (scale < TCP_MAX_WSCALE && ((int64_t)TCP_MAXWIN << scale) < KNOB(s, kern_maxsockbuf))
        scale++;
    return scale;
}

static bool wants_ecn(struct weir_stack *s, const struct tcp_segment *seg)
{
    return KNOB(s, tcp_ecn_enable) != 0 && (seg->flags & (TH_ECE | TH_CWR)) == (TH_ECE | TH_CWR);
}

static void entry_fill(struct tcpcb *listener, const struct tcp_segment *seg,
                       struct syncache_entry *e)
{
    struct weir_stack *s = listener->t_stack;
    bool options = !(listener->t_flags & TF_NOOPT);
    int64_t rfc1323 = options ? KNOB(s, tcp_rfc1323) : 0;

    memset(e, 0, sizeof(*e));
    e->stack = s;
    e->listener = listener;
    tcp_segment_flow(seg, &e->flow);
    e->irs = seg->seq;
    e->sent_ns = s->now;
    e->wnd = MIN(LOAD_RELAXED(&listener->t_so->so_rcv.sb_hiwat), TCP_MAXWIN);
    if ((seg->to.flags & TOF_TS) && (rfc1323 == 1 || rfc1323 == 3)) {
        e->flags |= SC_TIMESTAMP;
        e->ts_recent = seg->to.tsval;
        e->ts_offset = tcp_ts_offset(s, &e->flow);
    }
    if ((seg->to.flags & TOF_SCALE) && (rfc1323 == 1 || rfc1323 == 2)) {
        e->flags |= SC_WSCALE;
        e->snd_scale = MIN(seg->to.wscale, TCP_MAX_WSCALE);
        e->rcv_scale = wscale_to_offer(s);
    }
    if ((seg->to.flags & TOF_SACKPERM) && options && KNOB(s, tcp_sack_enable))
        e->flags |= SC_SACK;
    if (seg->to.flags & TOF_MSS)
        e->peer_mss = seg->to.mss;
    if (options && wants_ecn(s, seg))
        e->flags |= SC_ECN;
}

static uint32_t entry_iss(struct weir_stack *s, const struct syncache_entry *e)
{
    struct tcp_cookie c;

    if (!KNOB(s, tcp_syncookies) && !KNOB(s, tcp_syncookies_only))
        return tcp_iss(s, &e->flow);
    c.mss = (uint16_t)MIN(tcp_mss_to_offer(s, &e->flow, e->listener->t_user_mss),
                          MAX(e->peer_mss, (uint32_t)KNOB(s, tcp_minmss)));
    c.wscale = e->flags & SC_WSCALE ? e->snd_scale : 0xff;
    c.sack = (e->flags & SC_SACK) != 0;
    return tcp_cookie_make(s, &s->tcp->syncache->keys, &e->flow, e->irs, &c);
}

static void syn_again(struct weir_stack *s, struct syncache_entry *e, const struct tcp_segment *seg)
{
    COUNT(s, tcp_syncache_dupsyn);
    if (e->flags & SC_TIMESTAMP) {
        if (seg->to.flags & TOF_TS)
            e->ts_recent = seg->to.tsval;
        else
            e->flags &= (uint8_t)~SC_TIMESTAMP;
    }
    if ((e->flags & SC_ECN) && !wants_ecn(s, seg))
        e->flags &= (uint8_t)~SC_ECN;
    entry_respond(s, e, TH_SYN | TH_ACK);
    e->rxmits = 0;
    entry_arm(s, e);
}

static void note_overflow(struct weir_stack *s)
{
    s->tcp->syncache->overflow_ns = MAX(s->now, 1);
}

/* Store the entry; makes room in a full bucket by throwing out its oldest. NULL: the cache is full,
 * or no memory. */
static struct syncache_entry *entry_insert(struct weir_stack *s, const struct syncache_entry *from)
{
    struct tcp_syncache *c = s->tcp->syncache;
    uint32_t i = bucket_of(s, &from->flow);
    struct syncache_entry *e;

    if (c->bucket_count[i] >= KNOB(s, tcp_syncache_bucketlimit)) {
        COUNT(s, tcp_syncache_dropped);
        note_overflow(s);
        entry_drop(s, TAILQ_LAST(&c->bucket[i], bucket));
    }
    e = c->count < KNOB(s, tcp_syncache_cachelimit) ? alloc_zero(&s->alloc, sizeof(*e)) : NULL;
    if (!e)
        return NULL;
    *e = *from;
    timer_init(&e->timer, entry_timeout);
    TAILQ_INSERT_HEAD(&c->bucket[i], e, link);
    c->bucket_count[i]++;
    c->count++;
    COUNT(s, tcp_syncache_added);
    return e;
}

void tcp_syncache_add(struct tcpcb *listener, const struct tcp_segment *seg)
{
    struct weir_stack *s = listener->t_stack;
    struct syncache_entry tmp, *e;
    struct flow f;

    tcp_segment_flow(seg, &f);
    e = entry_find(s, &f);
    if (e) {
        e->listener = listener;
        syn_again(s, e, seg);
        return;
    }
    entry_fill(listener, seg, &tmp);
    tmp.iss = entry_iss(s, &tmp);
    e = KNOB(s, tcp_syncookies_only) ? NULL : entry_insert(s, &tmp);
    if (e) {
        entry_respond(s, e, TH_SYN | TH_ACK);
        entry_arm(s, e);
        return;
    }
    note_overflow(s);
    if (!KNOB(s, tcp_syncookies) && !KNOB(s, tcp_syncookies_only)) {
        COUNT(s, tcp_listen_overflow);
        return;
    }
    COUNT(s, tcp_cookie_sent);
    tmp.flags &= (uint8_t)~SC_ECN; /* a cookie cannot remember it */
    entry_respond(s, &tmp, TH_SYN | TH_ACK);
}

/* --- the ACK --- */

/* The connection of an entry, in SYN_RECEIVED, hashed. NULL: no socket, no memory. */
static struct tcpcb *connection_make(struct weir_stack *s, const struct syncache_entry *e)
{
    struct socket *so = so_newconn(e->listener->t_so);
    struct tcpcb *tp;

    if (!so)
        return NULL;
    tp = so_tcpcb(so);
    tp->t_flow = e->flow;
    tp->t_v6only = e->listener->t_v6only;
    if (tcp_pcb_hash_connection(tp)) {
        tcp_close(tp); /* nobody holds it yet: it is freed, its socket too */
        return NULL;
    }
    return tp;
}

static void connection_fill(struct weir_stack *s, struct tcpcb *tp, const struct syncache_entry *e)
{
    tp->iss = e->iss;
    tp->snd_una = tp->snd_nxt = tp->snd_max = tp->snd_up = tp->snd_recover = e->iss + 1;
    tp->irs = e->irs;
    tp->snd_wl1 = e->irs;
    tp->rcv_nxt = tp->rcv_up = tp->last_ack_sent = e->irs + 1;
    tp->rcv_wnd = e->wnd;
    tp->rcv_adv = tp->rcv_edge = tp->rcv_nxt + e->wnd;
    tp->t_flags &= ~(TF_REQ_SCALE | TF_REQ_TSTMP | TF_SACK_PERMIT);
    if (e->flags & SC_WSCALE) {
        tp->t_flags |= TF_REQ_SCALE | TF_RCVD_SCALE;
        tp->snd_scale = e->snd_scale;
        tp->request_r_scale = e->rcv_scale;
    }
    if (e->flags & SC_TIMESTAMP) {
        tp->t_flags |= TF_REQ_TSTMP | TF_RCVD_TSTMP;
        tp->ts_recent = e->ts_recent;
        tp->ts_recent_ns = s->now;
        tp->ts_offset = e->ts_offset;
    }
    if (e->flags & SC_SACK)
        tp->t_flags |= TF_SACK_PERMIT;
    if (e->flags & SC_ECN) {
        tp->t_flags2 |= TF2_ECN_PERMIT;
        COUNT(s, tcp_ecn_shs);
    }
    if (e->rxmits > 1 && !e->acked_ns)
        tp->snd_cwnd = 1; /* a SYN-ACK was lost: tcp_cc_conn_init starts with one segment */
    tcp_mss_apply(tp, e->peer_mss);
    tp->t_starttime = s->now;
    tcp_state_set(tp, TCPS_SYN_RECEIVED);
}

/* An entry out of a cookie. False: it is none of ours, or cookies are not expected now. */
static bool entry_from_cookie(struct tcpcb *listener, const struct tcp_segment *seg,
                              struct syncache_entry *e)
{
    struct weir_stack *s = listener->t_stack;
    struct tcp_syncache *c = s->tcp->syncache;
    struct tcp_cookie k;
    bool only = KNOB(s, tcp_syncookies_only);
    struct flow f;

    if (!only && (!KNOB(s, tcp_syncookies) || c->overflow_ns == 0 ||
                  s->now - c->overflow_ns > 2 * TCP_COOKIE_LIFE_NS))
        return false;
    tcp_segment_flow(seg, &f);
    if (!tcp_cookie_check(s, &c->keys, &f, seg->seq - 1, seg->ack - 1, &k)) {
        COUNT(s, tcp_cookie_bad);
        return false;
    }
    entry_fill(listener, seg, e);
    e->flow = f;
    e->irs = seg->seq - 1;
    e->iss = seg->ack - 1;
    e->peer_mss = k.mss;
    e->flags &= SC_TIMESTAMP;
    if (k.wscale != 0xff) {
        e->flags |= SC_WSCALE;
        e->snd_scale = k.wscale;
        e->rcv_scale = wscale_to_offer(s);
    }
    if (k.sack)
        e->flags |= SC_SACK;
    e->rxmits = 1;
    COUNT(s, tcp_cookie_recv);
    return true;
}

/* Does the ACK fit the entry? False with *answer_rst saying what is due. */
static bool ack_fits(struct weir_stack *s, struct syncache_entry *e, const struct tcp_segment *seg,
                     bool *answer_rst)
{
    *answer_rst = false;
    if (e->flags & SC_TIMESTAMP) {
        if (!(seg->to.flags & TOF_TS)) {
            if (!KNOB(s, tcp_tolerate_missing_ts)) {
                COUNT(s, tcp_rx_notimestamp);
                return false;
            }
        } else if (TSTMP_LT(seg->to.tsval, e->ts_recent)) {
            COUNT(s, tcp_rx_paws);
            return false;
        }
    }
    if (seg->ack != e->iss + 1) {
        COUNT(s, tcp_syncache_badack);
        *answer_rst = true;
        return false;
    }
    if (SEQ_GT(seg->seq, e->irs) && SEQ_LEQ(seg->seq, e->irs + e->wnd))
        return true;
    COUNT(s, tcp_syncache_badack);
    if (tcp_challenge_ok(s, &e->challenge_end, &e->challenge_count))
        entry_respond(s, e, TH_ACK); /* RFC 9293 3.10.7.4: outside the window */
    return false;
}

/* With timestamps the handshake gives a first round-trip time, if its SYN-ACK was sent but once. */
static void first_rtt(struct tcpcb *tp, const struct syncache_entry *e,
                      const struct tcp_segment *seg, bool cookie)
{
    struct weir_stack *s = tp->t_stack;
    uint64_t acked_ns = e->acked_ns ? e->acked_ns : s->now;

    if (KNOB(s, tcp_freebsd_wire)) {
        uint32_t age = tcp_ts_now(s) - (seg->to.tsecr - e->ts_offset);
        if ((e->flags & SC_TIMESTAMP) && (seg->to.flags & TOF_TS) && seg->to.tsecr &&
            age < INT32_MAX)
            tcp_rtt_sample_ticks(tp, (age + 1) * NS_PER_MS);
        return;
    }
    if (!cookie && e->rxmits == 1 && (e->flags & SC_TIMESTAMP) && acked_ns > e->sent_ns)
        tcp_rtt_sample(tp, acked_ns - e->sent_ns);
}

struct tcpcb *tcp_syncache_expand(struct tcpcb *listener, const struct tcp_segment *seg,
                                  bool *answer_rst)
{
    struct weir_stack *s = listener->t_stack;
    struct syncache_entry tmp, *e;
    struct tcpcb *tp;
    struct flow f;
    bool cookie;

    tcp_segment_flow(seg, &f);
    e = entry_find(s, &f);
    cookie = e == NULL;
    if (cookie) {
        e = &tmp;
        if (!entry_from_cookie(listener, seg, e)) {
            *answer_rst = true;
            return NULL;
        }
    }
    e->listener = listener;
    if (!ack_fits(s, e, seg, answer_rst))
        return NULL;
    if (!cookie && seg->len == 0 && !(seg->flags & TH_FIN) && e->rxmits <= timeouts_to_wait(e)) {
        e->acked_ns = e->acked_ns ? e->acked_ns : MAX(s->now, 1);
        COUNT(s, tcp_defer_accept_acks);
        return NULL;
    }
    if (so_accept_full(e->listener->t_so)) {
        COUNT(s, tcp_listen_drops);
        *answer_rst = KNOB(s, tcp_syncache_rst_on_queue_full);
        if (!cookie && *answer_rst)
            entry_drop(s, e);
        return NULL; /* else the entry stays, its SYN-ACK is repeated */
    }
    tp = connection_make(s, e);
    if (!tp) {
        COUNT(s, tcp_syncache_nosock);
        *answer_rst = KNOB(s, tcp_syncache_rst_on_sock_fail);
        if (!cookie && *answer_rst)
            entry_drop(s, e);
        return NULL;
    }
    connection_fill(s, tp, e);
    first_rtt(tp, e, seg, cookie);
    COUNT(s, tcp_accepts);
    if (!cookie) {
        COUNT(s, tcp_syncache_completed);
        entry_drop(s, e);
    }
    return tp;
}

/* --- resets, errors, the end of a listener --- */

void tcp_syncache_rst(struct weir_stack *s, struct tcpcb *listener, const struct tcp_segment *seg)
{
    struct syncache_entry *e;
    struct flow f;

    tcp_segment_flow(seg, &f);
    /* What answers our SYN-ACK has no other flags. */
    e = seg->flags & (TH_ACK | TH_SYN | TH_FIN) ? NULL : entry_find(s, &f);
    if (!e || SEQ_LEQ(seg->seq, e->irs) || SEQ_GT(seg->seq, e->irs + MAX(e->wnd, 1))) {
        COUNT(s, tcp_rx_badrst);
        return;
    }
    if (seg->seq == e->irs + 1 || KNOB(s, tcp_insecure_rst)) {
        COUNT(s, tcp_syncache_reset);
        entry_drop(s, e);
        return;
    }
    COUNT(s, tcp_rx_rst_challenged);
    if (tcp_challenge_ok(s, &e->challenge_end, &e->challenge_count))
        entry_respond(s, e, TH_ACK);
}

void tcp_syncache_forget(struct weir_stack *s, const struct tcp_segment *seg)
{
    struct syncache_entry *e;
    struct flow f;

    tcp_segment_flow(seg, &f);
    e = entry_find(s, &f);
    if (e) {
        COUNT(s, tcp_syncache_badack);
        entry_drop(s, e);
    }
}

/* One error may be an outage; a second one, after three SYN-ACKs were repeated, ends the attempt.
 */
void tcp_syncache_icmp(struct weir_stack *s, const struct flow *f, uint32_t seq, int error)
{
    struct syncache_entry *e = entry_find(s, f);

    if (!e)
        return;
    if (seq != e->iss) {
        COUNT(s, tcp_icmp_ignored);
        return;
    }
    if (!(e->flags & SC_UNREACH) || e->rxmits < 3 + 1) {
        e->flags |= SC_UNREACH;
        return;
    }
    COUNT(s, tcp_syncache_unreach);
    entry_drop(s, e);
}

void tcp_syncache_listener_gone(struct tcpcb *listener)
{
    struct weir_stack *s = listener->t_stack;
    struct tcp_syncache *c = s->tcp->syncache;

    for (uint32_t i = 0; i < BUCKETS && c->count; i++) {
        struct syncache_entry *e = TAILQ_FIRST(&c->bucket[i]), *next;
        for (; e; e = next) {
            next = TAILQ_NEXT(e, link);
            if (e->listener != listener)
                continue;
            if (KNOB(s, tcp_freebsd_wire)) /* its SYN-ACK is repeated; the ACK finds nobody */
                e->listener = NULL;
            else
                entry_drop(s, e);
        }
    }
}

void tcp_syncache_foreach(struct weir_stack *s,
                          void (*fn)(const struct flow *f, struct tcpcb *listener, void *ctx),
                          void *ctx)
{
    struct syncache_entry *e;

    for (uint32_t i = 0; i < BUCKETS; i++) {
        TAILQ_FOREACH (e, &s->tcp->syncache->bucket[i], link)
            fn(&e->flow, e->listener, ctx);
    }
}
