/* SPDX-License-Identifier: BSD-2-Clause
 * Reassembly of text that arrived out of order.
 *
 * How it works. What waits is kept by one of two forms (net.inet.tcp.reass.algorithm): as a list of
 * segments (tcp_reass_list.c) or as chains of text that touches (tcp_reass_chain.c, the default).
 * A queue keeps its form until it is empty, so the knob may change at any time. Both deliver the
 * same bytes and report the same SACK blocks: a segment takes only bytes that are not held yet, so
 * what came first stays, in whatever order pieces come (docs/reassembly.md).
 *
 * Limits: entries a connection (tcp_reass_maxqueuelen), memory a connection (the memory budget of
 * so_rcv; text is bounded by the window already), segments of all connections
 * (tcp_reass_maxsegments). A segment that starts at rcv_nxt is never refused: it needs no entry,
 * since all that becomes in order goes to so_rcv at once. */
#include "tcp_reass.h"

#define COPY_OUT_MAX 1024u /* a larger segment may stay in a big buffer, as in a socket buffer */
#define SMALL_SEGMENT 256u /* as FreeBSD's new_limit counts (an mbuf) */

void tcp_segment_trim_head(struct tcp_segment *seg, uint32_t n)
{
    CHECK(n <= seg->len);
    if (n == 0)
        return;
    if (n == seg->len)
        mbuf_free_chain(&seg->m);
    else
        mbuf_trim_head(&seg->m, n);
    seg->seq += n;
    seg->len -= n;
    if (seg->th.urp > n) {
        seg->th.urp = (uint16_t)(seg->th.urp - n);
    } else {
        seg->th.urp = 0;
        seg->flags &= (uint8_t)~TH_URG;
    }
}

void tcp_segment_trim_tail(struct tcp_segment *seg, uint32_t n)
{
    CHECK(n <= seg->len);
    if (n == 0)
        return;
    seg->len -= n;
    if (seg->len == 0)
        mbuf_free_chain(&seg->m);
    else
        mbuf_trim_tail(seg->m, n);
    seg->flags &= (uint8_t) ~(TH_PUSH | TH_FIN);
}

/* --- what the forms share --- */
const struct reass_form *tcp_reass_form(struct tcpcb *tp)
{
    if (!tp->t_reass_bytes)
        tp->t_reass_is_list = KNOB(tp->t_stack, tcp_reass_algorithm) == 0;
    return tp->t_reass_is_list ? &tcp_reass_list : &tcp_reass_chain;
}

bool tcp_reass_first(struct tcpcb *tp, uint32_t *start)
{
    return tp->t_reass_bytes && tcp_reass_form(tp)->first(tp, start);
}

void tcp_reass_charge(struct tcpcb *tp, uint32_t segs, uint32_t bytes, uint32_t mem)
{
    tp->t_reass_segs += segs;
    tp->t_stack->tcp->reass_segs += segs;
    tp->t_reass_bytes += bytes;
    tp->t_reass_mem += mem;
}

void tcp_reass_discharge(struct tcpcb *tp, uint32_t segs, uint32_t bytes, uint32_t mem)
{
    CHECK(tp->t_reass_segs >= segs && tp->t_reass_bytes >= bytes && tp->t_reass_mem >= mem);
    tp->t_reass_segs -= segs;
    tp->t_stack->tcp->reass_segs -= segs;
    tp->t_reass_bytes -= bytes;
    tp->t_reass_mem -= mem;
}

bool tcp_reass_admits(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t entries, bool grows)
{
    struct weir_stack *s = tp->t_stack;
    uint64_t mem = (uint64_t)tp->t_reass_mem + mbuf_chain_mem(seg->m);

    if ((uint64_t)s->tcp->reass_segs + seg->segs > (uint64_t)KNOB(s, tcp_reass_maxsegments)) {
        COUNT(s, tcp_reass_global_limit);
        return false;
    }
    bool full = grows && entries >= KNOB(s, tcp_reass_maxqueuelen);
    if (KNOB(s, tcp_reass_new_limit) && grows && seg->len < SMALL_SEGMENT)
        full |= entries > KNOB(s, tcp_reass_queueguard);
    if (full || mem > LOAD_RELAXED(&tp->t_so->so_rcv.sb_memmax)) {
        COUNT(s, tcp_reass_limit);
        return false;
    }
    return true;
}

void tcp_reass_duplicate(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t start,
                         uint32_t end)
{
    COUNT(tp->t_stack, tcp_reass_dup);
    COUNT_ADD(tp->t_stack, tcp_rx_dup_bytes, seg->len);
    tcp_dsack_note(tp, seg->seq, seg->seq + seg->len);
    tcp_sack_note(tp, start, end);
}

void tcp_reass_compact(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct mbuf *m = seg->m, *copy;

    /* A copy of volatile text would be believed whatever became of it. */
    if (!(m->m_flags & M_EXT) || m->m_next || (m->m_flags & M_VOLATILE))
        return;
    if (seg->len > (mbuf_storage(m) > CLUSTER_SIZE ? COPY_OUT_MAX : MBUF_INLINE))
        return;
    copy = mbuf_get_size(tp->t_stack->account, seg->len);
    if (!copy)
        return;
    memcpy(copy->m_data, m->m_data, seg->len);
    copy->m_len = seg->len;
    mbuf_free_chain(&seg->m);
    seg->m = copy;
}

struct mbuf *tcp_reass_split(struct tcp_segment *seg, uint32_t n)
{
    struct mbuf *m = seg->m, *rest = NULL;

    if (n < seg->len) {
        rest = mbuf_split(m, n);
        if (!rest) {
            mbuf_trim_tail(m, seg->len - n);
            seg->len = n;
        }
    }
    seg->m = rest;
    seg->seq += n;
    seg->len -= n;
    if (m)
        m->m_flags &= (uint16_t)~M_PKTHDR; /* part of a stream from here on */
    return m;
}

/* --- the queue --- */
void tcp_reass_flush(struct tcpcb *tp)
{
    const struct reass_form *form = tcp_reass_form(tp);
    struct reass_piece p;
    uint32_t start;

    while (form->first(tp, &start)) {
        form->take(tp, &p);
        mbuf_free_chain(&p.m);
    }
    CHECK(tp->t_reass_segs == 0 && tp->t_reass_bytes == 0 && tp->t_reass_mem == 0);
    tp->t_reass_fin = false;
    tp->t_nrcv_sack = 0;
    tp->t_dsack_pending = false;
}

/* A FIN at seq end: nothing may lie beyond it. The first FIN seen counts. */
static void note_fin(struct tcpcb *tp, uint32_t finseq)
{
    if (tp->t_reass_fin)
        return;
    tp->t_reass_fin = true;
    tp->t_reass_finseq = finseq;
    if (tp->t_reass_bytes && tcp_reass_form(tp)->cut(tp, finseq)) {
        COUNT(tp->t_stack, tcp_rx_afterclose);
        tcp_sack_cut(tp, finseq);
    }
}

/* --- delivery --- */

/* Text that is in order now, on its way to so_rcv. */
struct delivery {
    bool each; /* entry by entry, else in one piece */
    struct mbuf *first, *last;
    uint32_t dup_start, dup_end; /* of the segment that fills the hole: what was held already */
};

static void hand_on(struct tcpcb *tp, struct mbuf *m)
{
    struct socket *so = tp->t_so;

    if (so_state(so) & SS_CANTRCVMORE)
        mbuf_free_chain(&m);
    else
        sockbuf_append_stream(&so->so_rcv, &m);
}

static void deliver_piece(struct tcpcb *tp, struct delivery *d, struct mbuf *m, struct mbuf *last)
{
    if (!m)
        return;
    if (d->each)
        hand_on(tp, m);
    else if (d->last)
        d->last->m_next = m;
    else
        d->first = m;
    d->last = last;
}

/* The first entry is in order; what of the segment it covers is a duplicate. */
static void deliver_queued(struct tcpcb *tp, struct delivery *d, const struct reass_form *form,
                           struct tcp_segment *seg)
{
    struct reass_piece p;
    uint32_t covered;

    form->take(tp, &p);
    covered = MIN(p.end - p.start, seg->len);
    tp->rcv_nxt = p.end;
    if (covered) {
        if (d->dup_end != seg->seq)
            d->dup_start = seg->seq;
        d->dup_end = seg->seq + covered;
        tcp_segment_trim_head(seg, covered);
    }
    deliver_piece(tp, d, p.m, p.last);
}

static void deliver(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct socket *so = tp->t_so;
    const struct reass_form *form = tcp_reass_form(tp);
    struct delivery d = {.each = form->one_by_one, .dup_start = seg->seq, .dup_end = seg->seq};
    uint32_t before = tp->rcv_nxt, start;
    bool queued = form->first(tp, &start);

    while (seg->len || (queued && start == tp->rcv_nxt)) {
        if (queued && start == tp->rcv_nxt) {
            deliver_queued(tp, &d, form, seg);
            queued = form->first(tp, &start);
        } else { /* the segment, up to the next entry */
            uint32_t gap = seg->len;
            if (queued && SEQ_LT(start, seg->seq + gap))
                gap = start - seg->seq;
            struct mbuf *m = tcp_reass_split(seg, gap);
            tp->rcv_nxt += gap;
            deliver_piece(tp, &d, m, m ? mbuf_last(m) : NULL);
        }
    }
    tcp_dsack_note(tp, d.dup_start, d.dup_end);
    uint32_t len = tp->rcv_nxt - before;
    tp->t_rcvbytes += len;
    COUNT_ADD(tp->t_stack, tcp_rx_bytes, len);
    if (!d.last)
        return;
    if (!d.each)
        hand_on(tp, d.first);
    if (so_state(so) & SS_CANTRCVMORE)
        return;
    so_readable(so);
    tcp_rcvbuf_grow(tp, len);
}

int tcp_reass(struct tcpcb *tp, struct tcp_segment *seg)
{
    CHECK(TCPS_HAVEESTABLISHED(tp->t_state));
    CHECK(SEQ_GEQ(seg->seq, tp->rcv_nxt));
    if (tp->t_reass_fin && SEQ_GT(seg->seq + seg->len, tp->t_reass_finseq)) {
        uint32_t beyond = seg->seq + seg->len - tp->t_reass_finseq;
        COUNT(tp->t_stack, tcp_rx_afterclose);
        tcp_segment_trim_tail(seg, MIN(beyond, seg->len));
    }
    if (seg->flags & TH_FIN)
        note_fin(tp, seg->seq + seg->len);
    if (seg->len && seg->seq == tp->rcv_nxt)
        deliver(tp, seg);
    else if (seg->len)
        tcp_reass_form(tp)->insert(tp, seg);
    mbuf_free_chain(&seg->m);
    seg->len = 0;
    return tp->t_reass_fin && tp->rcv_nxt == tp->t_reass_finseq ? TH_FIN : 0;
}
