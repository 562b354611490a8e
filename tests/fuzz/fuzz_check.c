/* SPDX-License-Identifier: BSD-2-Clause
 * What must hold of a stack at rest, whatever came before. */
#include "fuzz_world.h"

#include "socket/socket.h"
#include "tcp/tcp_in.h"
#include "tcp/tcp_reass.h"
#include "tcp/tcp_sent.h"
#include "tcp/tcp_var.h"

/* --- one connection from check to check --- */
static struct fuzz_track *track_of(struct fuzz_world *w, const struct tcpcb *tp)
{
    struct fuzz_track *free_one = NULL;
    for (size_t i = 0; i < FUZZ_TRACKED; i++) {
        struct fuzz_track *t = &w->track[i];
        if (t->tp == tp && t->iss == tp->iss && t->irs == tp->irs && t->start == tp->t_starttime)
            return t;
        if (!t->tp || t->tp == tp)
            free_one = t;
    }
    if (free_one)
        *free_one = (struct fuzz_track){.tp = tp,
                                        .iss = tp->iss,
                                        .irs = tp->irs,
                                        .start = tp->t_starttime,
                                        .edge = tp->snd_una + tp->snd_wnd,
                                        .rcv_adv = tp->rcv_adv};
    return free_one;
}

static bool within_host(const struct tcpcb *tp)
{
    return ipaddr_equal(&tp->t_flow.laddr, &tp->t_flow.faddr) ||
           ipaddr_is_loopback(&tp->t_flow.faddr);
}

/* Nothing beyond the furthest edge that the peer ever offered but a probe's byte or a FIN; what was
 * offered to the peer is never taken back. */
static void check_edges(struct fuzz_world *w, const struct tcpcb *tp)
{
    struct fuzz_track *t = track_of(w, tp);
    if (!t)
        return;
    t->seen = true;
    /* Both ends move in one step where both are here: the edge between is not seen. */
    if (within_host(tp))
        return;
    t->edge = SEQ_MAX(t->edge, tp->snd_una + tp->snd_wnd);
    FUZZ_CHECK(SEQ_LEQ(tp->snd_nxt, t->edge + 1) && SEQ_LEQ(tp->snd_max, t->edge + 1));
    FUZZ_CHECK(SEQ_GEQ(tp->rcv_adv, t->rcv_adv));
    t->rcv_adv = tp->rcv_adv;
}

static void check_sent(const struct tcpcb *tp)
{
    uint32_t at = tp->snd_una, sacked = 0, lost = 0, rexmit = 0, runs = 0, n = 0;
    for (const struct range *r = ranges_first(&tp->t_sent); r; r = ranges_next(r), n++) {
        const struct tcp_sent *e = (const void *)r;
        uint32_t len = r->end - r->start;
        FUZZ_CHECK(r->start == at && SEQ_LT(r->start, r->end) && e->segsz > 0 &&
                   e->transmissions > 0);
        at = r->end;
        if (e->flags & SENT_SACKED) {
            sacked += len;
            runs++;
            continue;
        }
        lost += e->flags & SENT_LOST ? len : 0;
        rexmit += e->flags & SENT_REXMIT ? len : 0;
    }
    FUZZ_CHECK(n == tp->t_sent.count && (n == 0 || at == tp->snd_nxt));
    FUZZ_CHECK(sacked == tp->t_sacked_bytes && runs == tp->t_sack_runs);
    FUZZ_CHECK(lost == tp->t_lost_bytes && rexmit == tp->t_rexmit_bytes && rexmit <= lost);
}

/* The list's form of the queue. */
static void check_reass_list(const struct tcpcb *tp)
{
    uint32_t bytes = 0, n = 0, segs = 0, end = tp->rcv_nxt;
    const struct reass_segment *e;
    TAILQ_FOREACH (e, &tp->t_reass_list, link) {
        FUZZ_CHECK(SEQ_LT(e->start, e->end) && SEQ_GEQ(e->start, end));
        end = e->end;
        bytes += e->end - e->start;
        segs += e->segs;
        n++;
    }
    FUZZ_CHECK(!tp->t_reass.count && n <= tp->t_reass_entries);
    FUZZ_CHECK(bytes == tp->t_reass_bytes && segs == tp->t_reass_segs);
}

static void check_reass(const struct tcpcb *tp)
{
    if (!TAILQ_EMPTY(&tp->t_reass_list)) {
        check_reass_list(tp);
        return;
    }
    uint32_t bytes = 0, n = 0, end = tp->rcv_nxt;
    for (const struct range *r = ranges_first(&tp->t_reass); r; r = ranges_next(r), n++) {
        FUZZ_CHECK(SEQ_LT(r->start, r->end) && SEQ_GT(r->start, end));
        end = r->end;
        bytes += r->end - r->start;
    }
    FUZZ_CHECK(n == tp->t_reass.count && bytes == tp->t_reass_bytes && tp->t_reass_segs >= n);
}

/* Somebody must wake up: a connection with something outstanding or to be sent has a timer. */
static void check_alive(const struct tcpcb *tp)
{
    bool sending = tcp_timer_active(tp, TT_REXMT) || tcp_timer_active(tp, TT_PERSIST);
    uint32_t used = sockbuf_used(&tp->t_so->so_snd), out = tp->snd_nxt - tp->snd_una;
    if (tp->t_state < TCPS_SYN_SENT || tp->t_state == TCPS_TIME_WAIT ||
        (tp->t_flags2 & TF2_ON_OUTPUT_LIST))
        return;
    if (tp->snd_max != tp->snd_una)
        FUZZ_CHECK(sending);
    if (tp->t_state >= TCPS_ESTABLISHED && !(tp->t_flags & TF_SENTFIN) && used > out)
        FUZZ_CHECK(sending || tcp_timer_active(tp, TT_CORK));
    if (tp->t_flags & TF_SENTFIN)
        FUZZ_CHECK(SEQ_LT(tp->t_finseq, tp->snd_nxt));
}

static void check_buffer(struct sockbuf *sb)
{
    uint32_t cc = 0, mem = 0, off;
    const struct mbuf *last = NULL;
    for (const struct mbuf *rec = sockbuf_head(sb, &off); rec; rec = rec->m_nextpkt) {
        mem += mbuf_chain_mem(rec);
        cc += mbuf_chain_len(rec->m_flags & M_ADDR ? rec->m_next : rec);
        for (last = rec; last->m_next;)
            last = last->m_next;
    }
    FUZZ_CHECK(sockbuf_used(sb) == cc - off && sockbuf_mem(sb) == mem && sb->sb_tail == last);
}

struct walk {
    struct fuzz_world *w;
    uint32_t pcbs, reass, timewait;
    uint64_t due_ns; /* of the last record */
};

static void check_connection(struct tcpcb *tp, void *ctx)
{
    struct walk *k = ctx;
    k->pcbs++;
    k->reass += tp->t_reass_segs;
    k->timewait += tp->t_state == TCPS_TIME_WAIT;
    FUZZ_CHECK(tp->t_state < TCPS_COUNT && tp->t_so && tp->t_so->so_pcb == tp);
    if (tp->t_state == TCPS_LISTEN || tp->t_state == TCPS_CLOSED)
        return;
    FUZZ_CHECK(SEQ_LEQ(tp->snd_una, tp->snd_nxt) && SEQ_LEQ(tp->snd_nxt, tp->snd_max));
    FUZZ_CHECK(tp->snd_cwnd > 0 && tp->t_maxseg > 0);
    check_edges(k->w, tp);
    check_reass(tp);
    if (tp->t_state >= TCPS_ESTABLISHED)
        check_sent(tp);
    check_alive(tp);
}

static void check_socket(struct socket *so, void *ctx)
{
    uint32_t *n = ctx;
    ++*n;
    check_buffer(&so->so_rcv);
    check_buffer(&so->so_snd);
    (void)so_poll_bits(so);
    FUZZ_CHECK(atomic_load(&so->so_error) >= 0);
}

/* Found by its flow, and by none of a connection's. In order: the foreach walks the queue. */
static void check_timewait(const struct tcptw *tw, void *ctx)
{
    struct walk *k = ctx;
    struct weir_stack *s = k->w->s;
    k->timewait++;
    FUZZ_CHECK(tcp_timewait_lookup(s, &tw->flow) == tw && !tcp_lookup(s, &tw->flow));
    FUZZ_CHECK(tw->due_ns >= k->due_ns && tw->port->port == tw->flow.lport);
    FUZZ_CHECK(timer_is_armed(&s->tcp->timewaits.timer));
    k->due_ns = tw->due_ns;
}

static void check_counters(struct fuzz_world *w)
{
    for (int i = 0; i < COUNTER_COUNT; i++)
        FUZZ_CHECK(LOAD_RELAXED(&w->s->counters.v[i]) < UINT64_C(1) << 62);
    FUZZ_CHECK(COUNTER_READ(w->s, link_tx_frames) >= w->link.sent);
    FUZZ_CHECK(COUNTER_READ(w->s, tcp_rx_bytes) <= COUNTER_READ(w->s, link_rx_bytes));
    FUZZ_CHECK(COUNTER_READ(w->s, tcp_tx_segs) >= COUNTER_READ(w->s, tcp_tx));
}

void fuzz_check_stack(struct fuzz_world *w)
{
    struct walk k = {.w = w};
    uint32_t sockets = 0;
    for (size_t i = 0; i < FUZZ_TRACKED; i++)
        w->track[i].seen = false;
    tcp_foreach(w->s, check_connection, &k);
    so_foreach(w->s, check_socket, &sockets);
    for (size_t i = 0; i < FUZZ_TRACKED; i++)
        if (!w->track[i].seen)
            w->track[i] = (struct fuzz_track){0};
    FUZZ_CHECK(k.reass == w->s->tcp->reass_segs);
    tcp_timewait_foreach(w->s, check_timewait, &k);
    FUZZ_CHECK(k.timewait == w->s->tcp->timewait_count);
    FUZZ_CHECK(k.pcbs <= w->s->tcp->pcb_count && w->s->tcp->pcb_count <= sockets);
    check_counters(w);
}

/* --- what goes out --- */
void fuzz_check_segment(struct fuzz_world *w, const struct fuzz_packet *k)
{
    struct flow f = {.laddr = k->src, .faddr = k->dst, .lport = k->th.sport, .fport = k->th.dport};
    if (ipaddr_is_linklocal(&f.laddr))
        f.laddr.scope = w->link.nif->index;
    if (ipaddr_is_linklocal(&f.faddr))
        f.faddr.scope = w->link.nif->index;
    const struct tcpcb *tp = tcp_lookup(w->s, &f);
    if (!tp || tp->t_state < TCPS_ESTABLISHED || (k->th.flags & (TH_SYN | TH_RST)))
        return;
    uint32_t off = k->th.seq - tp->iss - 1;
    if (off > tp->snd_max - tp->iss && k->th.seq != tp->snd_una - 1)
        return; /* it lay at a stuck link since an earlier connection of this flow */
    const uint8_t *data = k->l4 + k->th.off;
    FUZZ_CHECK(SEQ_LEQ(k->th.seq + k->payload, tp->snd_max));
    for (uint32_t i = 0; i < k->payload; i++)
        FUZZ_CHECK(data[i] == fuzz_app_byte(off + i));
    struct fuzz_track *t = track_of(w, tp);
    uint32_t edge = k->th.ack + ((uint32_t)k->th.win << tp->rcv_scale);
    if (t && tp->t_state != TCPS_TIME_WAIT &&
        SEQ_LEQ(edge, tp->rcv_adv)) { /* beyond: of the SYN cache */
        /* But for rounding to the window scale (RFC 7323 2.4): segments are rounded up, answers
         * that are built at once down. */
        FUZZ_CHECK(!t->wire || SEQ_GT(edge + (2u << tp->rcv_scale), t->wire_edge));
        t->wire_edge = t->wire ? SEQ_MAX(edge, t->wire_edge) : edge;
        t->wire = true;
    }
}
