/* SPDX-License-Identifier: BSD-2-Clause
 * What was sent and is not yet acknowledged: ranges with their time, count and fate.
 *
 * How it works. The list covers [snd_una, snd_nxt). A burst that left at one moment is one range,
 * whatever its number of segments; acknowledgments trim the first range in place, so that a
 * transfer without loss touches one or two ranges and allocates once a burst. SACK splits a range
 * at segment boundaries (base + k * segsz) and joins SACKed neighbours, so the number of ranges is
 * at most bursts + 2 * SACKed runs, and the runs are limited. Three sums are kept over all ranges:
 * SACKed; lost (not SACKed); retransmitted (lost, and on its way again). From these RFC 6675's pipe
 * is outstanding - SACKed - lost + retransmitted. Every change of a range goes through uncount()
 * and count(). */
#include "tcp_sent.h"

#define SENT_CACHE_MAX 1024    /* ranges kept for reuse, a stack */
#define SENT_LOOK_BACK 64      /* ranges looked at for the loss threshold, */
#define SENT_LOOK_BACK_MAX 640 /* and with a threshold that grew */
#define SENT_COUNT_MAX UINT16_MAX

static struct tcp_sent *sent_of(struct range *r)
{
    return (struct tcp_sent *)(void *)r;
}
_Static_assert(offsetof(struct tcp_sent, r) == 0, "a range is the head of a sent range");

static uint32_t sent_len(const struct tcp_sent *e)
{
    return e->r.end - e->r.start;
}

/* A free range chains to the next by the left link of its tree entry. */
static void free_push(struct weir_stack *s, struct tcp_sent *e)
{
    RB_LEFT(&e->r, rb) = s->tcp->sent_free ? &s->tcp->sent_free->r : NULL;
    s->tcp->sent_free = e;
    s->tcp->sent_free_count++;
}

static struct tcp_sent *free_pop(struct weir_stack *s)
{
    struct tcp_sent *e = s->tcp->sent_free;
    if (e) {
        s->tcp->sent_free = RB_LEFT(&e->r, rb) ? sent_of(RB_LEFT(&e->r, rb)) : NULL;
        s->tcp->sent_free_count--;
    }
    return e;
}

static struct tcp_sent *sent_alloc(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct tcp_sent *e = free_pop(s);
    if (!e)
        return alloc_zero(&s->alloc, sizeof(*e));
    memset(e, 0, sizeof(*e));
    return e;
}

static void sent_free(struct tcpcb *tp, struct tcp_sent *e)
{
    struct weir_stack *s = tp->t_stack;
    if (s->tcp->sent_free_count >= SENT_CACHE_MAX) {
        alloc_free(&s->alloc, e, sizeof(*e));
        return;
    }
    free_push(s, e);
}

void tcp_sent_drain(struct weir_stack *s)
{
    struct tcp_sent *e;
    while ((e = free_pop(s)))
        alloc_free(&s->alloc, e, sizeof(*e));
}

static void count(struct tcpcb *tp, const struct tcp_sent *e)
{
    if (likely(!e->flags))
        return;
    uint32_t len = sent_len(e);
    if (e->flags & SENT_SACKED) {
        tp->t_sacked_bytes += len;
        tp->t_sack_runs++;
        return;
    }
    if (e->flags & SENT_LOST)
        tp->t_lost_bytes += len;
    if (e->flags & SENT_REXMIT)
        tp->t_rexmit_bytes += len;
}

static void uncount(struct tcpcb *tp, const struct tcp_sent *e)
{
    if (likely(!e->flags))
        return;
    uint32_t len = sent_len(e);
    if (e->flags & SENT_SACKED) {
        tp->t_sacked_bytes -= len;
        tp->t_sack_runs--;
        return;
    }
    if (e->flags & SENT_LOST)
        tp->t_lost_bytes -= len;
    if (e->flags & SENT_REXMIT)
        tp->t_rexmit_bytes -= len;
}

static void set_flags(struct tcpcb *tp, struct tcp_sent *e, uint8_t flags)
{
    uncount(tp, e);
    e->flags = flags;
    count(tp, e);
}

static void sent_remove(struct tcpcb *tp, struct tcp_sent *e)
{
    uncount(tp, e);
    ranges_remove(&tp->t_sent, &e->r);
    sent_free(tp, e);
}

/* Split e at a sequence number inside it; returns the right part, or NULL without memory (e
 * unchanged). */
static struct tcp_sent *sent_split(struct tcpcb *tp, struct tcp_sent *e, uint32_t at)
{
    CHECK(SEQ_GT(at, e->r.start) && SEQ_LT(at, e->r.end));
    struct tcp_sent *right = sent_alloc(tp);
    if (!right)
        return NULL;
    uncount(tp, e);
    right->r.start = at;
    right->r.end = e->r.end;
    right->sent_ns = e->sent_ns;
    right->base = e->base;
    right->segsz = e->segsz;
    right->transmissions = e->transmissions;
    right->flags = e->flags;
    e->r.end = at;
    count(tp, e);
    count(tp, right);
    ranges_insert_between(&tp->t_sent, &right->r, &e->r, ranges_next(&e->r));
    return right;
}

/* Join `right` into its left neighbour e. */
static void sent_join(struct tcpcb *tp, struct tcp_sent *e, struct tcp_sent *right)
{
    uint32_t end = right->r.end;
    e->sent_ns = MAX(e->sent_ns, right->sent_ns);
    e->transmissions = MAX(e->transmissions, right->transmissions);
    sent_remove(tp, right);
    uncount(tp, e);
    e->r.end = end;
    count(tp, e);
}

int tcp_sent_add(struct tcpcb *tp, uint32_t start, uint32_t end, uint32_t segsz)
{
    struct tcp_sent *last = tp->t_sent.count ? sent_of(ranges_last(&tp->t_sent)) : NULL;
    CHECK(SEQ_LT(start, end));
    CHECK(!last || last->r.end == start);
    segsz = MAX(MIN(segsz, UINT16_MAX), 1);
    if (last && !last->flags && last->transmissions == 1 && last->sent_ns == tp->t_stack->now &&
        last->segsz == segsz && (start - last->base) % segsz == 0) {
        last->r.end = end;
        return 0;
    }
    struct tcp_sent *e = sent_alloc(tp);
    if (!e)
        return -ENOMEM;
    e->r.start = e->base = start;
    e->r.end = end;
    e->sent_ns = tp->t_stack->now;
    e->segsz = (uint16_t)segsz;
    e->transmissions = 1;
    ranges_insert_between(&tp->t_sent, &e->r, last ? &last->r : NULL, NULL);
    return 0;
}

void tcp_sent_undo(struct tcpcb *tp, uint32_t start)
{
    while (tp->t_sent.count) {
        struct tcp_sent *last = sent_of(ranges_last(&tp->t_sent));
        if (SEQ_LEQ(last->r.end, start))
            return;
        if (SEQ_GEQ(last->r.start, start)) {
            sent_remove(tp, last);
            continue;
        }
        uncount(tp, last);
        last->r.end = start;
        count(tp, last);
    }
}

void tcp_sent_acked(struct tcpcb *tp, uint32_t una, struct tcp_sent_ack *out)
{
    *out = (struct tcp_sent_ack){0};
    while (tp->t_sent.count) {
        struct tcp_sent *e = sent_of(ranges_first(&tp->t_sent));
        if (SEQ_GEQ(e->r.start, una))
            break;
        if (e->transmissions > 1) {
            out->rexmitted = true;
        } else if (!(e->flags & SENT_SACKED) && !out->fresh) {
            out->fresh = true;
            out->low = e->r.start;
        }
        out->sent_ns = e->flags & SENT_SACKED ? 0 : e->sent_ns;
        if (SEQ_LEQ(e->r.end, una)) {
            sent_remove(tp, e);
            continue;
        }
        uncount(tp, e);
        e->r.start = una;
        count(tp, e);
        break;
    }
    if (out->rexmitted)
        out->sent_ns = 0;
}

void tcp_sent_flush(struct tcpcb *tp)
{
    while (tp->t_sent.count)
        sent_remove(tp, sent_of(ranges_first(&tp->t_sent)));
    tp->t_sacked_bytes = tp->t_lost_bytes = tp->t_rexmit_bytes = tp->t_sack_runs = 0;
}

uint32_t tcp_sent_pipe(const struct tcpcb *tp)
{
    return tp->snd_nxt - tp->snd_una - tp->t_sacked_bytes - tp->t_lost_bytes + tp->t_rexmit_bytes;
}

/* --- SACK --- */
static uint32_t boundary_up(const struct tcp_sent *e, uint32_t seq)
{
    uint32_t rest = (seq - e->base) % e->segsz;
    return rest ? seq + (e->segsz - rest) : seq;
}

static uint32_t boundary_down(const struct tcp_sent *e, uint32_t seq)
{
    return seq - (seq - e->base) % e->segsz;
}

static bool is_sacked(struct range *r)
{
    return r && (sent_of(r)->flags & SENT_SACKED);
}

/* Mark [lo, hi) of e SACKed. Returns the range that holds it, NULL when a limit or memory forbids.
 */
static struct tcp_sent *sack_piece(struct tcpcb *tp, struct tcp_sent *e, uint32_t lo, uint32_t hi)
{
    bool left = lo == e->r.start && is_sacked(ranges_prev(&e->r));
    bool right = hi == e->r.end && is_sacked(ranges_next(&e->r));
    if (!left && !right && (int64_t)tp->t_sack_runs >= KNOB(tp->t_stack, tcp_sack_maxholes)) {
        COUNT(tp->t_stack, tcp_sack_limit);
        return NULL;
    }
    if (hi != e->r.end && !sent_split(tp, e, hi))
        return NULL;
    if (lo != e->r.start) {
        e = sent_split(tp, e, lo);
        if (!e)
            return NULL;
    }
    set_flags(tp, e, SENT_SACKED);
    struct range *n = ranges_prev(&e->r);
    if (is_sacked(n)) {
        struct tcp_sent *p = sent_of(n);
        sent_join(tp, p, e);
        e = p;
    }
    n = ranges_next(&e->r);
    if (is_sacked(n))
        sent_join(tp, e, sent_of(n));
    return e;
}

uint32_t tcp_sent_sack(struct tcpcb *tp, uint32_t start, uint32_t end, uint32_t *low)
{
    uint32_t newly = 0;
    struct range *r = ranges_find(&tp->t_sent, start);
    while (r && SEQ_LT(r->start, end)) {
        struct tcp_sent *e = sent_of(r);
        if (!(e->flags & SENT_SACKED)) {
            uint32_t lo = SEQ_GEQ(r->start, start) ? r->start : boundary_up(e, start);
            uint32_t hi = SEQ_LEQ(r->end, end) ? r->end : boundary_down(e, end);
            if (SEQ_LT(lo, hi) && SEQ_LEQ(hi, r->end)) {
                bool once = e->transmissions == 1;
                struct tcp_sent *done = sack_piece(tp, e, lo, hi);
                if (!done)
                    return newly;
                if (tp->t_sacked_bytes == hi - lo || SEQ_GT(hi, tp->t_sack_high))
                    tp->t_sack_high = hi;
                newly += hi - lo;
                if (low && once && SEQ_LT(lo, *low))
                    *low = lo;
                r = &done->r;
            }
        }
        r = ranges_next(r);
    }
    return newly;
}

void tcp_sent_renege(struct tcpcb *tp)
{
    for (struct range *r = ranges_first(&tp->t_sent); r; r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if (e->flags & SENT_SACKED)
            set_flags(tp, e, 0);
    }
}

bool tcp_sent_first_sacked(const struct tcpcb *tp)
{
    return is_sacked(ranges_first(&tp->t_sent));
}

/* The sequence number below which everything unSACKed is lost: dupthresh SACKed runs, or more than
 * dupthresh - 1 segments' bytes, lie above (RFC 6675 4, IsLost). The walk is bounded: where SACKed
 * runs lie far apart a later SACK will tell. */
static bool loss_threshold(const struct tcpcb *tp, uint32_t mss, uint32_t dupthresh,
                           uint32_t *below)
{
    uint64_t most = (uint64_t)(dupthresh - 1) * mss;
    if (tp->t_sacked_bytes <= most && tp->t_sack_runs < dupthresh)
        return false;
    uint32_t bytes = 0, runs = 0, look = MIN(SENT_LOOK_BACK + 2 * dupthresh, SENT_LOOK_BACK_MAX);
    struct range *r = ranges_find(&tp->t_sent, tp->t_sack_high - 1);
    for (uint32_t i = 0; r && i < look; i++, r = ranges_prev(r)) {
        if (!is_sacked(r))
            continue;
        bytes += r->end - r->start;
        if (++runs >= dupthresh || bytes > most) {
            *below = r->start;
            return true;
        }
    }
    return false;
}

uint32_t tcp_sent_mark_lost(struct tcpcb *tp, uint32_t mss, uint32_t dupthresh)
{
    uint32_t below, before = tp->t_lost_bytes;
    if (!tp->t_sacked_bytes || !loss_threshold(tp, mss, dupthresh, &below))
        return 0;
    uint32_t from = SEQ_MAX(tp->t_lost_mark, tp->snd_una);
    if (SEQ_GEQ(from, below))
        return 0;
    for (struct range *r = ranges_find(&tp->t_sent, from); r && SEQ_LT(r->start, below);
         r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if (!(e->flags & (SENT_SACKED | SENT_LOST)))
            set_flags(tp, e, SENT_LOST);
    }
    tp->t_lost_mark = below;
    return tp->t_lost_bytes - before;
}

bool tcp_sent_lose_hole(struct tcpcb *tp, uint32_t mss)
{
    if (!tp->t_sacked_bytes)
        return false;
    /* All below the mark is lost or SACKed already. */
    struct range *r = ranges_find(&tp->t_sent, SEQ_MAX(tp->t_lost_mark, tp->snd_una));
    while (r && SEQ_LT(r->start, tp->t_sack_high) &&
           (sent_of(r)->flags & (SENT_SACKED | SENT_LOST)))
        r = ranges_next(r);
    if (!r || SEQ_GEQ(r->start, tp->t_sack_high))
        return false;
    struct tcp_sent *e = sent_of(r);
    uint32_t at = boundary_down(e, r->start + mss);
    if (sent_len(e) > mss && SEQ_GT(at, r->start))
        (void)!sent_split(tp, e, at);
    set_flags(tp, e, SENT_LOST);
    tp->t_lost_mark = r->end;
    return true;
}

bool tcp_sent_lose_tail(struct tcpcb *tp, uint32_t end, uint32_t mss)
{
    struct range *r = ranges_find(&tp->t_sent, end - 1);
    while (r && is_sacked(r))
        r = ranges_prev(r);
    if (!r || (sent_of(r)->flags & SENT_LOST))
        return false;
    struct tcp_sent *e = sent_of(r);
    if (SEQ_GT(r->end, end) && !sent_split(tp, e, end))
        return false;
    uint32_t at = boundary_up(e, r->end - mss);
    if (sent_len(e) > mss && SEQ_LT(at, r->end)) {
        e = sent_split(tp, e, at);
        if (!e)
            return false;
    }
    set_flags(tp, e, SENT_LOST);
    return true;
}

void tcp_sent_lose_head(struct tcpcb *tp, uint32_t len)
{
    uint32_t end = tp->snd_una + len;
    for (struct range *r = ranges_first(&tp->t_sent); r && SEQ_LT(r->start, end);
         r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if (e->flags & SENT_SACKED)
            break;
        /* Without memory for a split the whole range counts as lost: more is resent than need be.
         */
        if (SEQ_GT(r->end, end))
            (void)!sent_split(tp, e, end);
        set_flags(tp, e, SENT_LOST);
    }
    tp->t_rexmit_next = tp->snd_una;
}

void tcp_sent_lose_all(struct tcpcb *tp)
{
    for (struct range *r = ranges_first(&tp->t_sent); r; r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if (!(e->flags & SENT_SACKED))
            set_flags(tp, e, SENT_LOST);
    }
    tp->t_lost_mark = tp->snd_nxt;
    tp->t_rexmit_next = tp->snd_una;
}

void tcp_sent_lose_bigger(struct tcpcb *tp, uint32_t segsz)
{
    for (struct range *r = ranges_first(&tp->t_sent); r; r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if (!(e->flags & SENT_SACKED) && e->segsz > segsz && sent_len(e) > segsz)
            set_flags(tp, e, SENT_LOST);
    }
    tp->t_rexmit_next = tp->snd_una;
}

void tcp_sent_unlose(struct tcpcb *tp)
{
    for (struct range *r = ranges_first(&tp->t_sent); r; r = ranges_next(r)) {
        struct tcp_sent *e = sent_of(r);
        if ((e->flags & (SENT_SACKED | SENT_REXMIT)) == 0)
            set_flags(tp, e, 0);
    }
    tp->t_lost_mark = tp->snd_una;
}

/* --- retransmission --- */
static bool waits(const struct tcp_sent *e)
{
    return (e->flags & (SENT_SACKED | SENT_LOST | SENT_REXMIT)) == SENT_LOST;
}

uint32_t tcp_sent_next_lost(struct tcpcb *tp, uint32_t max, uint32_t *start)
{
    if (!tcp_sent_to_rexmit(tp))
        return 0;
    struct range *r = ranges_find(&tp->t_sent, SEQ_MAX(tp->t_rexmit_next, tp->snd_una));
    while (r && !waits(sent_of(r)))
        r = ranges_next(r);
    if (!r) {
        /* The cursor is only a hint: something before it was lost again. */
        r = ranges_first(&tp->t_sent);
        while (r && !waits(sent_of(r)))
            r = ranges_next(r);
        CHECK(r);
    }
    *start = r->start;
    tp->t_rexmit_next = r->start;
    uint32_t len = 0;
    while (r && r->start == *start + len && waits(sent_of(r)) && len < max) {
        len = r->end - *start;
        r = ranges_next(r);
    }
    return MIN(len, max);
}

/* Fast recovery may turn out to have been needless: what it retransmitted shows it. */
static void undo_note(struct tcpcb *tp, uint32_t start, uint32_t len)
{
    struct tcp_undo *u = &tp->t_undo;
    if (!u->cc || !(tp->t_flags & TF_FASTRECOVERY))
        return;
    if (!u->rexmits)
        u->first_ts = tcp_ts_now(tp->t_stack);
    u->rexmits += len;
    for (unsigned i = 0; i < u->owed_count; i++) {
        struct sack_block *b = &u->owed[i];
        if (SEQ_LT(start, b->end) && SEQ_LT(b->start, start + len))
            u->uncounted = true; /* it was lost again */
        if (b->end == start) {
            b->end += len;
            return;
        }
    }
    if (u->owed_count < TCP_UNDO_OWED)
        u->owed[u->owed_count++] = (struct sack_block){start, start + len};
    else
        u->uncounted = true;
}

bool tcp_sent_settle(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    struct tcp_undo *u = &tp->t_undo;
    for (unsigned i = 0; i < u->owed_count; i++) {
        struct sack_block *b = &u->owed[i];
        if (SEQ_GEQ(start, b->end) || SEQ_GEQ(b->start, end))
            continue;
        if (SEQ_LT(b->start, start) && SEQ_LT(end, b->end)) { /* cut out of its middle */
            u->uncounted |= u->owed_count == TCP_UNDO_OWED;
            if (!u->uncounted)
                u->owed[u->owed_count++] = (struct sack_block){end, b->end};
            b->end = start;
        } else if (SEQ_LT(b->start, start)) {
            b->end = start;
        } else if (SEQ_LT(end, b->end)) {
            b->start = end;
        } else {
            *b = u->owed[--u->owed_count];
            i--;
        }
    }
    return u->owed_count == 0 && !u->uncounted;
}

/* Make [start, end) one range of its own, out of the ranges that cover it; they all wait for
 * retransmission. */
static struct tcp_sent *carve(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    struct tcp_sent *e = sent_of(ranges_find(&tp->t_sent, start));
    CHECK(e && e->r.start == start);
    struct range *n;
    while (SEQ_LT(e->r.end, end) && (n = ranges_next(&e->r))) {
        struct tcp_sent *right = sent_of(n);
        if (SEQ_GT(n->end, end) && !sent_split(tp, right, end))
            break;
        sent_join(tp, e, right);
    }
    if (SEQ_GT(e->r.end, end) && !sent_split(tp, e, end))
        return NULL;
    return e;
}

void tcp_sent_rexmitted(struct tcpcb *tp, uint32_t start, uint32_t len, uint32_t segsz)
{
    struct tcp_sent *e = carve(tp, start, start + len);
    undo_note(tp, start, len);
    tp->t_rexmit_next = start + len;
    if (!e) /* no memory to split: the range as a whole counts as sent again; a timeout mends it */
        e = sent_of(ranges_find(&tp->t_sent, start));
    e->sent_ns = tp->t_stack->now;
    e->base = start;
    e->segsz = (uint16_t)MAX(MIN(segsz, UINT16_MAX), 1);
    if (e->transmissions < SENT_COUNT_MAX)
        e->transmissions++;
    set_flags(tp, e, SENT_LOST | SENT_REXMIT);
    struct range *n = ranges_prev(&e->r);
    if (!n)
        return;
    struct tcp_sent *p = sent_of(n);
    if (p->flags == e->flags && p->sent_ns == e->sent_ns && p->segsz == e->segsz &&
        (e->base - p->base) % e->segsz == 0)
        sent_join(tp, p, e);
}

void tcp_sent_rexmit_failed(struct tcpcb *tp, uint32_t start)
{
    struct range *r = ranges_find(&tp->t_sent, start);
    CHECK(r);
    struct tcp_sent *e = sent_of(r);
    if (e->flags & SENT_REXMIT)
        set_flags(tp, e, SENT_LOST);
    tp->t_undo.rexmits -= MIN(tp->t_undo.rexmits, sent_len(e));
    (void)tcp_sent_settle(tp, r->start, r->end);
    tp->t_rexmit_next = r->start;
}
