/* SPDX-License-Identifier: BSD-2-Clause
 * Ranges of sequence space: sorted, disjoint, bounded; for reassembly, SACK and sent data. */
#ifndef WEIR_BUF_RANGES_H
#define WEIR_BUF_RANGES_H

#include "base/base.h"
#include <bsd/sys/tree.h>

/* Sequence numbers compare modulo 2^32 (RFC 9293 3.4): valid while all lie within 2^31 of each
 * other. */
#define SEQ_LT(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)) < 0)
#define SEQ_LEQ(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)) <= 0)
#define SEQ_GT(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)) > 0)
#define SEQ_GEQ(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)) >= 0)
#define SEQ_MIN(a, b) (SEQ_LT(a, b) ? (a) : (b))
#define SEQ_MAX(a, b) (SEQ_GT(a, b) ? (a) : (b))

/* Embedded first in what the user keeps for a range; [start, end), never empty. */
struct range {
    RB_ENTRY(range) rb;
    uint32_t start, end;
};

struct ranges {
    RB_HEAD(range_tree, range)
    tree;
    struct range *first, *last; /* NULL: none */
    uint32_t count;
};

void ranges_init(struct ranges *r);
/* O(1) */
static inline struct range *ranges_first(const struct ranges *r)
{
    return r->first;
}
static inline struct range *ranges_last(const struct ranges *r)
{
    return r->last;
}
struct range *ranges_next(const struct range *e);
struct range *ranges_prev(const struct range *e);
/* The first range with end > seq (it holds seq, or is the next behind it); NULL: none. O(log n). */
struct range *ranges_find(const struct ranges *r, uint32_t seq);
/* The same, and the one in front of it in *prev, in one descent. */
struct range *ranges_find_with_prev(const struct ranges *r, uint32_t seq, struct range **prev);
/* e must be disjoint from all that is held. O(log n). */
void ranges_insert(struct ranges *r, struct range *e);
/* e lies between the neighbours prev and next (NULL: none on that side). No search: amortised O(1).
 */
void ranges_insert_between(struct ranges *r, struct range *e, struct range *prev,
                           struct range *next);
void ranges_remove(struct ranges *r, struct range *e);

#endif
