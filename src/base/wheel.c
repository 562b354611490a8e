/* SPDX-License-Identifier: BSD-2-Clause
 * Hierarchical timer wheel.
 *
 * A timer whose deadline falls into tick T lies on the level of the highest byte in which T and the
 * wheel's tick differ, in the slot of that byte's value; where they differ above the last level, in
 * the list `far`. Hence, on every level, only slots behind the wheel's own are occupied (on level 0
 * its own too), every timer of a level is earlier than all of the next, and the earliest timer is
 * in the first occupied slot of the first level that has one: no wrap-around, and a jump of any
 * length costs by what is armed, not by the ticks between. When the tick enters a slot of level 1
 * or above, its timers are placed again, at most once a level each.
 *
 * Within a slot the list is unordered until its tick has come: then it is sorted, for timers run in
 * order of their exact deadlines. The earliest deadline is cached; where the timer that had it was
 * moved, a crowd of others is not searched for the next (with thousands of connections that would
 * be done for every segment): the old value, or the start of the slot, is a bound that costs one
 * early wake-up at most for each. */
#include "wheel.h"

#define LEVEL_BITS 8
#define SLOT_MASK (WHEEL_SLOTS - 1)
#define FAR_SLOT (WHEEL_LEVELS * WHEEL_SLOTS)
#define TICK_OF(ns) ((ns) >> WHEEL_TICK_SHIFT)
#define MAX_RUNS 2 /* of one timer in one advance */
#define CROWD 32   /* timers that wheel_next looks at */

_Static_assert(1 << LEVEL_BITS == WHEEL_SLOTS, "a level is one byte of the tick");
_Static_assert(FAR_SLOT <= UINT16_MAX, "a slot number fits");

void wheel_init(struct wheel *w, uint64_t now_ns)
{
    memset(w, 0, sizeof(*w));
    w->tick = TICK_OF(now_ns);
    w->earliest_hint = TIME_NEVER;
    w->hint_settled = true;
}

void timer_init(struct timer *t, timer_fn *fn)
{
    memset(t, 0, sizeof(*t));
    t->fn = fn;
}

bool timer_is_armed(const struct timer *t)
{
    return t->prevp != NULL;
}

static unsigned slot_for(const struct wheel *w, uint64_t deadline_ns)
{
    uint64_t tick = TICK_OF(deadline_ns);
    if (tick <= w->tick)
        return w->tick & SLOT_MASK;
    unsigned level = (63 - (unsigned)__builtin_clzll(tick ^ w->tick)) / LEVEL_BITS;
    if (level >= WHEEL_LEVELS)
        return FAR_SLOT;
    return level * WHEEL_SLOTS + ((tick >> (level * LEVEL_BITS)) & SLOT_MASK);
}

static struct timer **slot_head(struct wheel *w, unsigned slot)
{
    return slot == FAR_SLOT ? &w->far : &w->slot[slot / WHEEL_SLOTS][slot & SLOT_MASK];
}

static void link_at(struct timer **where, struct timer *t)
{
    t->next = *where;
    if (t->next != NULL)
        t->next->prevp = &t->next;
    t->prevp = where;
    *where = t;
}

static void place(struct wheel *w, struct timer *t)
{
    unsigned slot = slot_for(w, t->deadline_ns);
    struct timer **where = slot_head(w, slot);
    t->slot = (uint16_t)slot;
    if (slot != FAR_SLOT)
        w->occupied[slot / WHEEL_SLOTS][(slot & SLOT_MASK) / 64] |= UINT64_C(1) << (slot & 63);
    /* The slot that is being run is kept sorted. */
    if (w->running && slot == (w->tick & SLOT_MASK)) {
        while (*where != NULL && (*where)->deadline_ns <= t->deadline_ns)
            where = &(*where)->next;
    }
    link_at(where, t);
}

static void unlink_timer(struct wheel *w, struct timer *t)
{
    *t->prevp = t->next;
    if (t->next != NULL)
        t->next->prevp = t->prevp;
    t->prevp = NULL;
    unsigned slot = t->slot;
    if (slot != FAR_SLOT && w->slot[slot / WHEEL_SLOTS][slot & SLOT_MASK] == NULL)
        w->occupied[slot / WHEEL_SLOTS][(slot & SLOT_MASK) / 64] &= ~(UINT64_C(1) << (slot & 63));
}

/* The timer with this deadline is no longer armed for it. */
static void hint_lost(struct wheel *w, uint64_t deadline_ns)
{
    if (w->armed == 0) {
        w->earliest_hint = TIME_NEVER;
        w->hint_settled = true;
    } else if (deadline_ns <= w->earliest_hint) {
        w->hint_settled = false;
    }
}

void wheel_cancel(struct wheel *w, struct timer *t)
{
    if (!timer_is_armed(t))
        return;
    unlink_timer(w, t);
    w->armed--;
    hint_lost(w, t->deadline_ns);
}

void wheel_arm(struct wheel *w, struct timer *t, uint64_t deadline_ns)
{
    if (timer_is_armed(t)) {
        uint64_t old = t->deadline_ns;
        if (!w->running && slot_for(w, deadline_ns) == t->slot) {
            t->deadline_ns = deadline_ns; /* the common case of a timer pushed a little */
        } else {
            unlink_timer(w, t);
            t->deadline_ns = deadline_ns;
            place(w, t);
        }
        if (deadline_ns > old)
            hint_lost(w, old);
    } else {
        t->deadline_ns = deadline_ns;
        place(w, t);
        w->armed++;
    }
    if (deadline_ns <= w->earliest_hint) {
        w->earliest_hint = deadline_ns;
        w->hint_settled = true;
    }
}

/* The first occupied slot of a level, -1 if none. */
static int first_slot(const struct wheel *w, unsigned level)
{
    for (unsigned i = 0; i < WHEEL_SLOTS / 64; i++) {
        if (w->occupied[level][i] != 0)
            return (int)(i * 64) + __builtin_ctzll(w->occupied[level][i]);
    }
    return -1;
}

/* The list that holds the earliest timer; *tick is the first tick it covers. NULL: nothing is
 * armed. */
static struct timer *first_list(const struct wheel *w, unsigned *level, uint64_t *tick)
{
    for (*level = 0; *level < WHEEL_LEVELS; ++*level) {
        int slot = first_slot(w, *level);
        if (slot < 0)
            continue;
        unsigned shift = *level * LEVEL_BITS;
        uint64_t above = w->tick >> (shift + LEVEL_BITS) << (shift + LEVEL_BITS);
        *tick = above | (uint64_t)slot << shift;
        return w->slot[*level][slot];
    }
    return w->far;
}

static uint64_t list_min(const struct timer *t)
{
    uint64_t min = TIME_NEVER;
    for (; t != NULL; t = t->next)
        min = MIN(min, t->deadline_ns);
    return min;
}

static bool is_crowd(const struct timer *t)
{
    unsigned n = 0;
    for (; t != NULL && n <= CROWD; t = t->next)
        n++;
    return n > CROWD;
}

uint64_t wheel_next(const struct wheel *w)
{
    if (w->hint_settled)
        return w->earliest_hint;
    unsigned level;
    uint64_t tick = 0;
    const struct timer *list = first_list(w, &level, &tick);
    /* The hint is a cache, no part of what the wheel is to its users. */
    struct wheel *cache = (struct wheel *)(uintptr_t)w;
    if (level > 0 && level < WHEEL_LEVELS && is_crowd(list))
        cache->earliest_hint = MAX(w->earliest_hint, tick << WHEEL_TICK_SHIFT);
    else
        cache->earliest_hint = list_min(list);
    cache->hint_settled = true;
    return w->earliest_hint;
}

/* Merge two sorted lists, linked by next alone. */
static struct timer *merge(struct timer *a, struct timer *b)
{
    struct timer *head = NULL, **tail = &head;
    while (a != NULL && b != NULL) {
        struct timer **least = b->deadline_ns < a->deadline_ns ? &b : &a;
        *tail = *least;
        tail = &(*least)->next;
        *least = *tail;
    }
    *tail = a != NULL ? a : b;
    return head;
}

/* Bottom-up merge sort: runs[i] holds 2^i timers or none, the last any number. */
static void sort_slot(struct timer **head)
{
    struct timer *t = *head, *runs[32] = {NULL};
    bool sorted = true;
    for (; t != NULL && t->next != NULL && sorted; t = t->next)
        sorted = t->deadline_ns <= t->next->deadline_ns;
    if (sorted)
        return;
    for (t = *head; t != NULL;) {
        struct timer *one = t;
        t = t->next;
        one->next = NULL;
        size_t i = 0;
        for (; i < NELEM(runs) - 1 && runs[i] != NULL; i++) {
            one = merge(runs[i], one);
            runs[i] = NULL;
        }
        runs[i] = merge(runs[i], one);
    }
    struct timer *all = NULL;
    for (size_t i = 0; i < NELEM(runs); i++)
        all = merge(runs[i], all);
    *head = all;
    for (struct timer **p = head; *p != NULL; p = &(*p)->next)
        (*p)->prevp = p;
}

/* Run what is due in the current slot of level 0. A timer that has had its runs is moved to *held.
 */
static void run_slot(struct wheel *w, uint64_t now_ns, struct timer **held)
{
    struct timer **head = &w->slot[0][w->tick & SLOT_MASK];
    struct timer *t;
    sort_slot(head);
    w->running = true;
    while ((t = *head) != NULL && t->deadline_ns <= now_ns) {
        unlink_timer(w, t);
        if (t->epoch != w->epoch) {
            t->epoch = w->epoch;
            t->runs = 0;
        }
        if (t->runs == MAX_RUNS) {
            t->slot = FAR_SLOT; /* in no slot of the bitmap */
            link_at(held, t);
            continue;
        }
        t->runs++;
        w->armed--;
        t->fn(t, now_ns); /* may change the list in any way */
    }
    w->running = false;
}

/* Place all timers of a list again, for the tick has come nearer to them. */
static void replace_list(struct wheel *w, struct timer *t)
{
    while (t != NULL) {
        struct timer *next = t->next;
        unlink_timer(w, t);
        place(w, t);
        t = next;
    }
}

void wheel_advance(struct wheel *w, uint64_t now_ns)
{
    uint64_t target = TICK_OF(now_ns);
    if (target <= w->tick && now_ns < w->earliest_hint)
        return;
    CHECK(!w->running);
    w->epoch++;
    struct timer *held = NULL;
    for (;;) {
        unsigned level;
        uint64_t tick = 0;
        struct timer *list = first_list(w, &level, &tick);
        if (list == NULL)
            break;
        if (level == WHEEL_LEVELS) /* all is far: jump to the reach of the earliest */
            tick = TICK_OF(list_min(list)) >> (WHEEL_LEVELS * LEVEL_BITS)
                                                  << (WHEEL_LEVELS * LEVEL_BITS);
        if (tick > target)
            break;
        w->tick = MAX(w->tick, tick);
        if (level > 0) {
            replace_list(w, list);
            continue;
        }
        run_slot(w, now_ns, &held);
        if (w->tick == target)
            break;
    }
    w->tick = MAX(w->tick, target);
    replace_list(w, held);
    if (w->earliest_hint <= now_ns) {
        w->earliest_hint = w->armed > 0 ? 0 : TIME_NEVER;
        w->hint_settled = w->armed == 0;
    }
}
