/* SPDX-License-Identifier: BSD-2-Clause
 * Out-of-order text as chains: segments that touch are one block from the moment they arrive.
 *
 * How it works. A block is a maximal run of contiguous text; blocks are disjoint, none touches
 * another; they lie sorted in a balanced tree, whose ends are known. A block points to the first
 * and the last mbuf of its chain, so that an append costs O(1). The cases that make up nearly all
 * traffic (append to the last block; a new block behind it; one in front of the first) are met
 * without a search; otherwise one descent finds both neighbours, and the insertion starts from
 * them. So a segment costs at most O(log blocks), whatever an adversary sends, and a block that is
 * complete goes to the socket buffer in one append. */
#include "tcp_reass.h"

struct reass_block {
    struct range r; /* must be first */
    struct mbuf *head, *tail;
    uint32_t segs; /* wire segments that brought it, at least 1 */
    uint32_t mem;  /* mbuf_chain_mem of the chain */
};
_Static_assert(sizeof(struct reass_block) <= CACHE_LINE, "a step of a search is one cache line");

/* Blocks lie side by side in slabs: with many of them, what a search costs is cache and TLB misses,
 * and a heap would strew them over twice the memory. The slabs go back when no block is in use, all
 * but one. */
#define SLAB_BLOCKS 63
struct block_slab {
    struct block_slab *next;
    CACHE_ALIGNED struct reass_block block[SLAB_BLOCKS];
};
struct reass_pool {
    struct block_slab *slabs; /* the newest first */
    struct range *free;       /* blocks that were used, by the left link of their tree entry */
    uint32_t fresh;           /* blocks of the newest slab that were never used */
    uint32_t used;
};

static struct reass_block *block_of(struct range *r)
{
    return (struct reass_block *)(void *)r;
}

static struct reass_block *next_block(struct reass_block *b)
{
    return block_of(ranges_next(&b->r));
}

static uint32_t block_len(const struct reass_block *b)
{
    return b->r.end - b->r.start;
}

/* --- memory --- */
static void pool_trim(struct weir_stack *s, struct reass_pool *pool, bool all)
{
    struct block_slab *slab;

    CHECK(pool->used == 0);
    while ((slab = pool->slabs) != NULL && (all || slab->next)) {
        pool->slabs = slab->next;
        alloc_free(&s->alloc, slab, sizeof(*slab));
    }
    pool->free = NULL;
    pool->fresh = pool->slabs ? SLAB_BLOCKS : 0;
}

static struct reass_block *block_alloc(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct reass_pool *pool = s->tcp->reass_pool;
    struct range *r;

    if (unlikely(!pool)) {
        pool = s->tcp->reass_pool = alloc_zero(&s->alloc, sizeof(*pool));
        if (!pool)
            return NULL;
    }
    r = pool->free;
    if (r) {
        pool->free = RB_LEFT(r, rb);
    } else {
        if (!pool->fresh) {
            struct block_slab *slab = alloc_zero(&s->alloc, sizeof(*slab));
            if (!slab)
                return NULL;
            slab->next = pool->slabs;
            pool->slabs = slab;
            pool->fresh = SLAB_BLOCKS;
        }
        r = &pool->slabs->block[SLAB_BLOCKS - pool->fresh--].r;
    }
    pool->used++;
    return block_of(r);
}

static void block_free(struct tcpcb *tp, struct reass_block *b)
{
    struct reass_pool *pool = tp->t_stack->tcp->reass_pool;

    RB_LEFT(&b->r, rb) = pool->free;
    pool->free = &b->r;
    if (--pool->used == 0 && pool->slabs->next)
        pool_trim(tp->t_stack, pool, false);
}

void tcp_reass_drain(struct weir_stack *s)
{
    struct reass_pool *pool = s->tcp->reass_pool;

    if (!pool)
        return;
    pool_trim(s, pool, true);
    alloc_free(&s->alloc, pool, sizeof(*pool));
    s->tcp->reass_pool = NULL;
}

/* --- the queue --- */
static bool chain_first(const struct tcpcb *tp, uint32_t *start)
{
    const struct range *r = ranges_first(&tp->t_reass);

    if (r)
        *start = r->start;
    return r != NULL;
}

/* Take a block out of the tree and the sums; its chain is the caller's. */
static void block_take(struct tcpcb *tp, struct reass_block *b, struct reass_piece *out)
{
    *out = (struct reass_piece){b->head, b->tail, b->r.start, b->r.end};
    tcp_reass_discharge(tp, b->segs, block_len(b), b->mem);
    ranges_remove(&tp->t_reass, &b->r);
    block_free(tp, b);
}

static void chain_take(struct tcpcb *tp, struct reass_piece *out)
{
    block_take(tp, block_of(ranges_first(&tp->t_reass)), out);
}

static bool chain_cut(struct tcpcb *tp, uint32_t seq)
{
    struct range *r;
    bool any = false;

    while ((r = ranges_last(&tp->t_reass)) != NULL && SEQ_GEQ(r->start, seq)) {
        struct reass_piece p;
        block_take(tp, block_of(r), &p);
        mbuf_free_chain(&p.m);
        any = true;
    }
    if (!r || SEQ_LEQ(r->end, seq))
        return any;
    struct reass_block *b = block_of(r);
    uint32_t cut = r->end - seq;
    mbuf_trim_tail(b->head, cut);
    b->tail = mbuf_last(b->head);
    tcp_reass_discharge(tp, 0, cut, 0);
    r->end = seq;
    return true;
}

/* Add a chain at the end of a block; small ones are copied into the room that its last mbuf has. */
static void block_append(struct tcpcb *tp, struct reass_block *b, struct mbuf *m, uint32_t len)
{
    uint32_t mem = 0;

    b->r.end += len;
    if (!m->m_next && len <= MBUF_SIZE && !(m->m_flags & M_VOLATILE) &&
        mbuf_trailing(b->tail) >= len) {
        memcpy(b->tail->m_data + b->tail->m_len, m->m_data, len);
        b->tail->m_len += len;
        mbuf_free_chain(&m);
    } else {
        mem = mbuf_chain_mem(m);
        b->tail->m_next = m;
        b->tail = mbuf_last(m);
        b->mem += mem;
    }
    tcp_reass_charge(tp, 0, len, mem);
}

static void block_prepend(struct tcpcb *tp, struct reass_block *b, struct mbuf *m, uint32_t len)
{
    uint32_t mem = mbuf_chain_mem(m);

    mbuf_last(m)->m_next = b->head;
    b->head = m;
    b->r.start -= len;
    b->mem += mem;
    tcp_reass_charge(tp, 0, len, mem);
}

/* b and next touch now: next's text moves to b. */
static void block_join(struct tcpcb *tp, struct reass_block *b, struct reass_block *next)
{
    CHECK(b->r.end == next->r.start);
    ranges_remove(&tp->t_reass, &next->r);
    b->tail->m_next = next->head;
    b->tail = next->tail;
    b->r.end = next->r.end;
    b->segs += next->segs;
    b->mem += next->mem;
    block_free(tp, next);
}

/* Where a segment goes. */
struct place {
    struct reass_block *at;   /* holds or touches its first byte, NULL: none */
    struct reass_block *prev; /* at is NULL: the block in front */
    struct reass_block *next; /* the block behind */
};

static struct reass_block *block_new(struct tcpcb *tp, const struct place *w, uint32_t start,
                                     struct mbuf *m, uint32_t len)
{
    struct reass_block *b = block_alloc(tp);

    if (!b)
        return NULL;
    b->r.start = start;
    b->r.end = start + len;
    b->head = m;
    b->tail = mbuf_last(m);
    b->segs = 0;
    b->mem = mbuf_chain_mem(m);
    tcp_reass_charge(tp, 0, len, b->mem);
    ranges_insert_between(&tp->t_reass, &b->r, w->prev ? &w->prev->r : NULL,
                          w->next ? &w->next->r : NULL);
    return b;
}

static void locate(struct tcpcb *tp, uint32_t seq, struct place *w)
{
    struct range *first = ranges_first(&tp->t_reass), *last = ranges_last(&tp->t_reass);
    struct range *prev, *r;

    *w = (struct place){0};
    if (!last)
        return;
    if (SEQ_GEQ(seq, last->start)) { /* at or behind the last block: no search */
        prev = last;
        r = NULL;
    } else if (SEQ_LT(seq, first->start)) { /* nor in front of the first */
        prev = NULL;
        r = first;
    } else {
        r = ranges_find_with_prev(&tp->t_reass, seq, &prev); /* the first with end > seq */
        if (SEQ_LEQ(r->start, seq)) {
            prev = r;
            r = ranges_next(r);
        }
    }
    w->next = block_of(r);
    if (prev && SEQ_GEQ(prev->end, seq))
        w->at = block_of(prev);
    else
        w->prev = block_of(prev);
}

/* Fill the gaps that seg covers, from left to right. Returns the block that holds the segment's
 * text now, or NULL when none could be made. */
static struct reass_block *fill_gaps(struct tcpcb *tp, struct tcp_segment *seg,
                                     const struct place *w)
{
    struct reass_block *at = w->at, *next = w->next;

    while (seg->len) {
        uint32_t start = seg->seq, gap = seg->len, overlap;
        bool reaches = next && SEQ_GEQ(seg->seq + seg->len, next->r.start);
        struct mbuf *m;

        if (reaches)
            gap = next->r.start - seg->seq;
        m = tcp_reass_split(seg, gap);
        if (at) {
            block_append(tp, at, m, gap);
        } else if (reaches) {
            block_prepend(tp, next, m, gap);
            at = next;
            next = next_block(at);
        } else {
            at = block_new(tp, w, start, m, gap);
            if (!at) {
                mbuf_free_chain(&m);
                COUNT(tp->t_stack, tcp_rx_nobufs);
                return NULL;
            }
        }
        if (next && at->r.end == next->r.start) {
            struct reass_block *joined = next;
            next = next_block(joined);
            block_join(tp, at, joined);
        }
        overlap = MIN(at->r.end - seg->seq, seg->len);
        if (seg->len && overlap)
            tcp_segment_trim_head(seg, overlap);
    }
    return at;
}

static void chain_insert(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    struct place w;
    uint32_t start = seg->seq, end = seg->seq + seg->len, held;

    locate(tp, start, &w);
    held = w.at ? MIN(w.at->r.end - start, seg->len) : 0;
    if (held == seg->len) {
        tcp_reass_duplicate(tp, seg, w.at->r.start, w.at->r.end);
        return;
    }
    tcp_reass_compact(tp, seg);
    if (!tcp_reass_admits(tp, seg, tp->t_reass.count,
                          !w.at && !(w.next && SEQ_GEQ(end, w.next->r.start))))
        return;
    if (held) {
        tcp_dsack_note(tp, start, start + held);
        tcp_segment_trim_head(seg, held);
    }
    tp->t_rcvoopack += seg->segs;
    COUNT(s, tcp_rx_ooo);
    COUNT_ADD(s, tcp_rx_ooo_bytes, seg->len);
    struct reass_block *b = fill_gaps(tp, seg, &w);
    if (!b)
        return;
    b->segs += seg->segs;
    tcp_reass_charge(tp, seg->segs, 0, 0);
    tcp_sack_note(tp, b->r.start, b->r.end);
}

const struct reass_form tcp_reass_chain = {
    .one_by_one = false,
    .insert = chain_insert,
    .first = chain_first,
    .take = chain_take,
    .cut = chain_cut,
};
