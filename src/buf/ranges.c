/* SPDX-License-Identifier: BSD-2-Clause
 * Ranges in a red-black tree, compared modulo 2^32. */
#include "ranges.h"

/* A test that counts steps in the tree defines this and includes this file. */
#ifndef RANGES_STEP
#define RANGES_STEP() ((void)0)
#endif

static int range_compare(const struct range *a, const struct range *b)
{
    RANGES_STEP();
    if (a->start == b->start)
        return 0;
    return SEQ_LT(a->start, b->start) ? -1 : 1;
}

RB_GENERATE_INTERNAL(range_tree, range, rb, range_compare, UNUSED static)

/* libbsd's macros take a head that they could change. */
static struct range_tree *tree_of(const struct ranges *r)
{
    return (struct range_tree *)(uintptr_t)&r->tree;
}

void ranges_init(struct ranges *r)
{
    RB_INIT(&r->tree);
    r->first = r->last = NULL;
    r->count = 0;
}

struct range *ranges_next(const struct range *e)
{
    RANGES_STEP();
    return range_tree_RB_NEXT((struct range *)(uintptr_t)e);
}

struct range *ranges_prev(const struct range *e)
{
    RANGES_STEP();
    return range_tree_RB_PREV((struct range *)(uintptr_t)e);
}

struct range *ranges_find_with_prev(const struct ranges *r, uint32_t seq, struct range **prev)
{
    struct range *e = RB_ROOT(tree_of(r)), *found = NULL;
    *prev = NULL;
    while (e != NULL) {
        RANGES_STEP();
        if (SEQ_GT(e->end, seq)) {
            found = e;
            e = RB_LEFT(e, rb);
        } else {
            *prev = e;
            e = RB_RIGHT(e, rb);
        }
    }
    return found;
}

struct range *ranges_find(const struct ranges *r, uint32_t seq)
{
    struct range *prev;
    return ranges_find_with_prev(r, seq, &prev);
}

void ranges_insert_between(struct ranges *r, struct range *e, struct range *prev,
                           struct range *next)
{
    CHECK(SEQ_LT(e->start, e->end));
    CHECK(!prev || SEQ_LEQ(prev->end, e->start));
    CHECK(!next || SEQ_LEQ(e->end, next->start));
    RANGES_STEP();
    /* Of two neighbours one is an ancestor of the other, so one has no child on this side. */
    struct range *parent = prev && !RB_RIGHT(prev, rb) ? prev : next;
    RB_SET(e, parent, rb);
    if (!parent) {
        RB_ROOT(&r->tree) = e;
    } else if (parent == prev) {
        RB_RIGHT(parent, rb) = e;
    } else {
        CHECK(!RB_LEFT(parent, rb));
        RB_LEFT(parent, rb) = e;
    }
    range_tree_RB_INSERT_COLOR(&r->tree, e);
    if (!prev)
        r->first = e;
    if (!next)
        r->last = e;
    r->count++;
}

void ranges_insert(struct ranges *r, struct range *e)
{
    struct range *prev, *next = ranges_find_with_prev(r, e->start, &prev);
    ranges_insert_between(r, e, prev, next);
}

void ranges_remove(struct ranges *r, struct range *e)
{
    CHECK(r->count > 0);
    if (r->first == e)
        r->first = ranges_next(e);
    if (r->last == e)
        r->last = ranges_prev(e);
    RB_REMOVE(range_tree, &r->tree, e);
    r->count--;
}
