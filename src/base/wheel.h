/* SPDX-License-Identifier: BSD-2-Clause
 * Hierarchical timer wheel: arm, cancel and advance in O(1) for each timer. */
#ifndef WEIR_BASE_WHEEL_H
#define WEIR_BASE_WHEEL_H

#include "base.h"

#define WHEEL_TICK_SHIFT 17 /* 2^17 ns = 131 us: the resolution */
#define WHEEL_LEVELS 4
#define WHEEL_SLOTS 256 /* a level: 131 us * 256^4 = 6.5 days; later ones wait in a list */

struct timer;
/* Called by wheel_advance with the timer already unlinked (it may be armed again). */
typedef void timer_fn(struct timer *t, uint64_t now_ns);

/* Embedded in what it serves. Zeroed memory plus timer_init is a disarmed timer. */
struct timer {
    struct timer *next;
    struct timer **prevp; /* NULL: not armed */
    uint64_t deadline_ns; /* exact; fires at the first advance with now >= deadline */
    timer_fn *fn;
    uint16_t slot; /* level * WHEEL_SLOTS + slot: for the bitmap */
    uint8_t runs;  /* in the advance numbered by epoch */
    uint32_t epoch;
};

struct wheel {
    uint64_t tick;          /* the tick up to which timers have run */
    uint64_t earliest_hint; /* no deadline is earlier */
    bool hint_settled;      /* wheel_next may answer with it */
    bool running;           /* in a callback */
    uint32_t armed;
    uint32_t epoch;    /* of wheel_advance calls */
    struct timer *far; /* beyond the last level */
    uint64_t occupied[WHEEL_LEVELS][WHEEL_SLOTS / 64];
    struct timer *slot[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, uint64_t now_ns);
void timer_init(struct timer *t, timer_fn *fn);
/* Arm, or move an armed timer. A deadline in the past fires at the next advance. */
void wheel_arm(struct wheel *w, struct timer *t, uint64_t deadline_ns);
void wheel_cancel(struct wheel *w, struct timer *t); /* harmless when not armed */
bool timer_is_armed(const struct timer *t);
/* Run every timer whose deadline is <= now_ns, in order of their deadlines (equal ones in order of
 * arming within a slot is not promised). A timer armed from a callback with a deadline <= now_ns
 * runs in the same call, at most once more a callback (so that a loop always ends). now never goes
 * back. */
void wheel_advance(struct wheel *w, uint64_t now_ns);
/* The earliest deadline (ns); TIME_NEVER when none is armed. Exact, unless more than 32 timers lie
 * in the first slot and that is beyond level 0 (33 ms): then it may be early, never at or before
 * the last advance. Cost: 32 looks. */
uint64_t wheel_next(const struct wheel *w);

#endif
