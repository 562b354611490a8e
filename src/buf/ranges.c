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
    r->count = 0;
}

struct range *ranges_first(const struct ranges *r)
{
    return RB_MIN(range_tree, tree_of(r));
}

struct range *ranges_last(const struct ranges *r)
{
    return RB_MAX(range_tree, tree_of(r));
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

struct range *ranges_find(const struct ranges *r, uint32_t seq)
{
    struct range *e = RB_ROOT(tree_of(r)), *found = NULL;
    while (e != NULL) {
        RANGES_STEP();
        if (SEQ_GT(e->end, seq)) {
            found = e;
            e = RB_LEFT(e, rb);
        } else {
            e = RB_RIGHT(e, rb);
        }
    }
    return found;
}

void ranges_insert(struct ranges *r, struct range *e)
{
    CHECK(SEQ_LT(e->start, e->end));
    struct range *other = RB_INSERT(range_tree, &r->tree, e);
    CHECK(other == NULL);
    r->count++;
}

void ranges_remove(struct ranges *r, struct range *e)
{
    CHECK(r->count > 0);
    RB_REMOVE(range_tree, &r->tree, e);
    r->count--;
}
