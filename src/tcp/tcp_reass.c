/* SPDX-License-Identifier: BSD-2-Clause
 * Reassembly of text that arrived out of order, and the SACK blocks that tell of it.
 *
 * How it works. What waits is kept as blocks: maximal runs of contiguous text, disjoint, none
 * touching another, sorted in a balanced tree. A block points to the first and the last mbuf of its
 * chain, so that an append costs O(1). The cases that make up nearly all traffic (append to the
 * last block; a new block behind it; the hole at rcv_nxt filled) are met without a search. A new
 * segment takes only bytes that no block holds: what came first stays, in whatever order pieces
 * come.
 *
 * Limits: blocks a connection (tcp_reass_maxqueuelen; the cost of a segment is logarithmic in
 * them), memory a connection (the memory budget of so_rcv; text is bounded by the window already),
 * segments of all connections (tcp_reass_maxsegments). A segment that starts at rcv_nxt is never
 * refused: it needs no block, since all that becomes in order goes to so_rcv at once. */
#include "tcp_in.h"

struct reass_block {
    struct range r; /* must be first */
    struct mbuf *head, *tail;
    uint32_t segs; /* wire segments that brought it */
    uint32_t mem;  /* mbuf_chain_mem of the chain */
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

/* Take a block out of the tree and the sums; its chain is the caller's. */
static struct mbuf *block_take(struct tcpcb *tp, struct reass_block *b)
{
    struct mbuf *m = b->head;

    tp->t_reass_segs -= b->segs;
    tp->t_stack->tcp->reass_segs -= b->segs;
    tp->t_reass_bytes -= block_len(b);
    tp->t_reass_mem -= b->mem;
    ranges_remove(&tp->t_reass, &b->r);
    alloc_free(&tp->t_stack->alloc, b, sizeof(*b));
    return m;
}

void tcp_reass_flush(struct tcpcb *tp)
{
    struct range *r;

    while ((r = ranges_first(&tp->t_reass)) != NULL) {
        struct mbuf *m = block_take(tp, block_of(r));
        mbuf_free_chain(&m);
    }
    CHECK(tp->t_reass_segs == 0 && tp->t_reass_bytes == 0 && tp->t_reass_mem == 0);
    tp->t_reass_fin = false;
    tp->t_nrcv_sack = 0;
    tp->t_dsack_pending = false;
}

/* A FIN at seq end: nothing may lie beyond it. The first FIN seen counts. */
static void note_fin(struct tcpcb *tp, uint32_t finseq)
{
    struct range *r;

    if (tp->t_reass_fin)
        return;
    tp->t_reass_fin = true;
    tp->t_reass_finseq = finseq;
    while ((r = ranges_last(&tp->t_reass)) != NULL && SEQ_GEQ(r->start, finseq)) {
        struct mbuf *m = block_take(tp, block_of(r));
        mbuf_free_chain(&m);
        COUNT(tp->t_stack, tcp_rx_afterclose);
    }
    if (r && SEQ_GT(r->end, finseq)) {
        struct reass_block *b = block_of(r);
        uint32_t cut = r->end - finseq;
        mbuf_trim_tail(b->head, cut);
        b->tail = mbuf_last(b->head);
        tp->t_reass_bytes -= cut;
        r->end = finseq;
        COUNT(tp->t_stack, tcp_rx_afterclose);
    }
}

/* A lone small segment in a big buffer would pin all of it: move it. Without memory it stays where
 * it is. */
static void segment_compact(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct mbuf *m = seg->m, *copy;

    if (!(m->m_flags & M_EXT) || m->m_next || mbuf_storage(m) <= 4 * seg->len)
        return;
    copy = mbuf_get_size(tp->t_stack->account, seg->len);
    if (!copy)
        return;
    memcpy(copy->m_data, m->m_data, seg->len);
    copy->m_len = seg->len;
    mbuf_free_chain(&seg->m);
    seg->m = copy;
}

/* Add a chain at the end of a block; small ones are copied into the room that its last mbuf has. */
static void block_append(struct tcpcb *tp, struct reass_block *b, struct mbuf *m, uint32_t len)
{
    uint32_t mem;

    b->r.end += len;
    tp->t_reass_bytes += len;
    if (!m->m_next && len <= MBUF_SIZE && mbuf_trailing(b->tail) >= len) {
        memcpy(b->tail->m_data + b->tail->m_len, m->m_data, len);
        b->tail->m_len += len;
        mbuf_free_chain(&m);
        return;
    }
    mem = mbuf_chain_mem(m);
    b->tail->m_next = m;
    b->tail = mbuf_last(m);
    b->mem += mem;
    tp->t_reass_mem += mem;
}

static void block_prepend(struct tcpcb *tp, struct reass_block *b, struct mbuf *m, uint32_t len)
{
    uint32_t mem = mbuf_chain_mem(m);

    mbuf_last(m)->m_next = b->head;
    b->head = m;
    b->r.start -= len;
    tp->t_reass_bytes += len;
    b->mem += mem;
    tp->t_reass_mem += mem;
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
    alloc_free(&tp->t_stack->alloc, next, sizeof(*next));
}

static struct reass_block *block_new(struct tcpcb *tp, uint32_t start, struct mbuf *m, uint32_t len)
{
    struct reass_block *b = alloc_zero(&tp->t_stack->alloc, sizeof(*b));

    if (!b)
        return NULL;
    b->r.start = start;
    b->r.end = start + len;
    b->head = m;
    b->tail = mbuf_last(m);
    b->mem = mbuf_chain_mem(m);
    tp->t_reass_bytes += len;
    tp->t_reass_mem += b->mem;
    ranges_insert(&tp->t_reass, &b->r);
    return b;
}

/* Cut the first n bytes of a segment off as a chain of their own; the rest stays. When memory for
 * the cut is short the rest is given up. NULL: the one byte that it had was urgent and is out of
 * the stream. */
static struct mbuf *segment_take(struct tcp_segment *seg, uint32_t n)
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

/* The block that touches or holds seq, else NULL; *next is the first block behind it (or behind
 * seq). */
static struct reass_block *locate(struct tcpcb *tp, uint32_t seq, struct reass_block **next)
{
    struct range *last = ranges_last(&tp->t_reass), *r;

    *next = NULL;
    if (!last)
        return NULL;
    if (SEQ_GEQ(seq, last->start)) /* at or behind the last block: no search */
        return SEQ_LEQ(seq, last->end) ? block_of(last) : NULL;
    r = ranges_find(&tp->t_reass, seq); /* the first with end > seq: there is one */
    if (SEQ_LEQ(r->start, seq)) {
        *next = block_of(ranges_next(r));
        return block_of(r);
    }
    *next = block_of(r);
    r = ranges_prev(r);
    return r && r->end == seq ? block_of(r) : NULL;
}

static bool queue_admits(struct tcpcb *tp, const struct tcp_segment *seg, bool new_block)
{
    struct weir_stack *s = tp->t_stack;
    uint64_t mem = (uint64_t)tp->t_reass_mem + mbuf_chain_mem(seg->m);

    if (s->tcp->reass_segs + seg->segs > KNOB(s, tcp_reass_maxsegments)) {
        COUNT(s, tcp_reass_global_limit);
        return false;
    }
    if ((new_block && tp->t_reass.count >= KNOB(s, tcp_reass_maxqueuelen)) ||
        mem > LOAD_RELAXED(&tp->t_so->so_rcv.sb_memmax)) {
        COUNT(s, tcp_reass_limit);
        return false;
    }
    return true;
}

/* Fill the gaps that seg covers, from left to right. at: the block that ends at seg->seq, or NULL;
 * next: the block behind. Returns the block that holds the segment's text now, or NULL when none
 * could be made. */
static struct reass_block *fill_gaps(struct tcpcb *tp, struct tcp_segment *seg,
                                     struct reass_block *at, struct reass_block *next)
{
    while (seg->len) {
        uint32_t start = seg->seq, gap = seg->len, overlap;
        bool reaches = next && SEQ_GEQ(seg->seq + seg->len, next->r.start);
        struct mbuf *m;

        if (reaches)
            gap = next->r.start - seg->seq;
        m = segment_take(seg, gap);
        if (at) {
            block_append(tp, at, m, gap);
        } else if (reaches) {
            block_prepend(tp, next, m, gap);
            at = next;
            next = next_block(at);
        } else {
            at = block_new(tp, start, m, gap);
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

/* Queue text that is not next in order. */
static void queue_insert(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    struct reass_block *next, *at = locate(tp, seg->seq, &next);
    uint32_t start = seg->seq, end = seg->seq + seg->len, held;

    held = at ? MIN(at->r.end - seg->seq, seg->len) : 0;
    if (held == seg->len) {
        COUNT(s, tcp_reass_dup);
        COUNT_ADD(s, tcp_rx_dup_bytes, seg->len);
        tcp_dsack_note(tp, start, end);
        tcp_sack_note(tp, start, end);
        return;
    }
    segment_compact(tp, seg);
    if (!queue_admits(tp, seg, !at && !(next && SEQ_GEQ(end, next->r.start))))
        return;
    if (held) {
        tcp_dsack_note(tp, start, start + held);
        tcp_segment_trim_head(seg, held);
    }
    tp->t_rcvoopack += seg->segs;
    COUNT(s, tcp_rx_ooo);
    COUNT_ADD(s, tcp_rx_ooo_bytes, seg->len);
    at = fill_gaps(tp, seg, at, next);
    if (!at)
        return;
    at->segs += seg->segs;
    tp->t_reass_segs += seg->segs;
    s->tcp->reass_segs += seg->segs;
    tcp_sack_note(tp, start, end);
}

/* Chain everything that is in order once seg, which starts at rcv_nxt, is in: returns it, rcv_nxt
 * moves. */
static struct mbuf *collect(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct mbuf *first = NULL, *tail = NULL;
    struct range *r = ranges_first(&tp->t_reass);

    while (seg->len || (r && r->start == tp->rcv_nxt)) {
        uint32_t gap = seg->len;
        struct mbuf *m, *last;

        if (r && r->start == tp->rcv_nxt) { /* a block, and what of the segment it covers */
            uint32_t covered = MIN(r->end - tp->rcv_nxt, seg->len);
            tp->rcv_nxt = r->end;
            last = block_of(r)->tail;
            m = block_take(tp, block_of(r));
            r = ranges_first(&tp->t_reass);
            if (covered) {
                tcp_dsack_note(tp, seg->seq, seg->seq + covered);
                tcp_segment_trim_head(seg, covered);
            }
        } else { /* the segment, up to the next block */
            if (r && SEQ_LT(r->start, seg->seq + gap))
                gap = r->start - seg->seq;
            m = segment_take(seg, gap);
            last = m ? mbuf_last(m) : NULL;
            tp->rcv_nxt += gap;
        }
        if (!m)
            continue;
        if (tail)
            tail->m_next = m;
        else
            first = m;
        tail = last;
    }
    return first;
}

static void deliver(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct socket *so = tp->t_so;
    uint32_t before = tp->rcv_nxt, len;
    struct mbuf *m = collect(tp, seg);

    len = tp->rcv_nxt - before;
    tp->t_rcvbytes += len;
    COUNT_ADD(tp->t_stack, tcp_rx_bytes, len);
    if (so_state(so) & SS_CANTRCVMORE) {
        mbuf_free_chain(&m);
        return;
    }
    if (!m)
        return;
    sockbuf_append_stream(&so->so_rcv, &m);
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
        queue_insert(tp, seg);
    mbuf_free_chain(&seg->m);
    seg->len = 0;
    return tp->t_reass_fin && tp->rcv_nxt == tp->t_reass_finseq ? TH_FIN : 0;
}
