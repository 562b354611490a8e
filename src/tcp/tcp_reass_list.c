/* SPDX-License-Identifier: BSD-2-Clause
 * Out-of-order text as a list of segments: BSD's reassembly as it was until 2004.
 *
 * How it works. A tail queue has an entry for each segment (for each piece of one, where it spans
 * text that is held), sorted. The place of a new one is found by a walk from the head; what
 * neighbours hold is trimmed off it. When the hole at rcv_nxt is filled, a loop hands the entries
 * to the socket buffer one after another. A segment costs O(entries), so with many of them the
 * queue's limits alone bound the work. */
#include "tcp_reass.h"

static bool list_first(const struct tcpcb *tp, uint32_t *start)
{
    const struct reass_segment *e = TAILQ_FIRST(&tp->t_reass_list);

    if (e)
        *start = e->start;
    return e != NULL;
}

static void entry_take(struct tcpcb *tp, struct reass_segment *e, struct reass_piece *out)
{
    *out = (struct reass_piece){e->m, e->m, e->start, e->end};
    tcp_reass_discharge(tp, e->segs, e->end - e->start, e->mem);
    TAILQ_REMOVE(&tp->t_reass_list, e, link);
    tp->t_reass_entries--;
    alloc_free(&tp->t_stack->alloc, e, sizeof(*e));
}

static void list_take(struct tcpcb *tp, struct reass_piece *out)
{
    entry_take(tp, TAILQ_FIRST(&tp->t_reass_list), out);
}

static bool list_cut(struct tcpcb *tp, uint32_t seq)
{
    struct reass_segment *e;
    bool any = false;

    while ((e = TAILQ_LAST(&tp->t_reass_list, reass_list)) != NULL && SEQ_GEQ(e->start, seq)) {
        struct reass_piece p;
        entry_take(tp, e, &p);
        mbuf_free_chain(&p.m);
        any = true;
    }
    if (!e || SEQ_LEQ(e->end, seq))
        return any;
    mbuf_trim_tail(e->m, e->end - seq);
    tcp_reass_discharge(tp, 0, e->end - seq, 0);
    e->end = seq;
    return true;
}

/* The last of the entries that follow e without a gap. */
static struct reass_segment *run_end(struct reass_segment *e)
{
    struct reass_segment *n;

    while ((n = TAILQ_NEXT(e, link)) != NULL && n->start == e->end)
        e = n;
    return e;
}

/* Put a piece behind prev, or first when that is NULL. Consumes m. NULL: no memory (counted). */
static struct reass_segment *entry_add(struct tcpcb *tp, struct reass_segment *prev, uint32_t start,
                                       struct mbuf *m, uint32_t len)
{
    struct reass_segment *e = alloc_zero(&tp->t_stack->alloc, sizeof(*e));

    if (!e) {
        mbuf_free_chain(&m);
        COUNT(tp->t_stack, tcp_rx_nobufs);
        return NULL;
    }
    e->m = m;
    e->start = start;
    e->end = start + len;
    e->mem = mbuf_chain_mem(m);
    if (prev)
        TAILQ_INSERT_AFTER(&tp->t_reass_list, prev, e, link);
    else
        TAILQ_INSERT_HEAD(&tp->t_reass_list, e, link);
    tp->t_reass_entries++;
    tcp_reass_charge(tp, 0, len, e->mem);
    return e;
}

/* Queue what seg has between prev, which ends in front of it, and beyond, an entry for each gap.
 * Returns the first entry made; NULL: none. */
static struct reass_segment *fill_gaps(struct tcpcb *tp, struct tcp_segment *seg,
                                       struct reass_segment *prev)
{
    struct reass_segment *next = prev ? TAILQ_NEXT(prev, link) : TAILQ_FIRST(&tp->t_reass_list);
    struct reass_segment *made = NULL;
    int64_t most = KNOB(tp->t_stack, tcp_reass_maxqueuelen);

    while (seg->len && tp->t_reass_entries < most) {
        uint32_t start = seg->seq, gap = seg->len;
        if (next && SEQ_GT(seg->seq + seg->len, next->start))
            gap = next->start - seg->seq;
        struct mbuf *m = tcp_reass_split(seg, gap);
        prev = entry_add(tp, prev, start, m, gap);
        if (!prev)
            break;
        if (!made)
            made = prev;
        while (seg->len && next && next->start == seg->seq) {
            tcp_segment_trim_head(seg, MIN(next->end - next->start, seg->len));
            prev = next;
            next = TAILQ_NEXT(prev, link);
        }
    }
    return made;
}

static void list_insert(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    struct reass_segment *e, *prev = NULL, *run = NULL; /* run: the first of those prev ends */
    uint32_t start = seg->seq, held = 0;

    TAILQ_FOREACH (e, &tp->t_reass_list, link) {
        if (SEQ_GT(e->start, start))
            break;
        if (!prev || prev->end != e->start)
            run = e;
        prev = e;
    }
    if (prev && SEQ_GEQ(prev->end, start)) {
        prev = run_end(prev);
        held = MIN(prev->end - start, seg->len);
    } else {
        run = NULL;
    }
    if (held == seg->len) {
        tcp_reass_duplicate(tp, seg, run->start, prev->end);
        return;
    }
    tcp_reass_compact(tp, seg);
    if (!tcp_reass_admits(tp, seg, tp->t_reass_entries, true))
        return;
    if (held) {
        tcp_dsack_note(tp, start, start + held);
        tcp_segment_trim_head(seg, held);
    }
    tp->t_rcvoopack += seg->segs;
    COUNT(s, tcp_rx_ooo);
    COUNT_ADD(s, tcp_rx_ooo_bytes, seg->len);
    e = fill_gaps(tp, seg, prev);
    if (!e)
        return;
    e->segs = seg->segs;
    tcp_reass_charge(tp, seg->segs, 0, 0);
    tcp_sack_note(tp, run ? run->start : e->start, run_end(e)->end);
}

const struct reass_form tcp_reass_list = {
    .one_by_one = true,
    .insert = list_insert,
    .first = list_first,
    .take = list_take,
    .cut = list_cut,
};
