/* SPDX-License-Identifier: BSD-2-Clause
 * Event counts: a word that changes at each event and says whether anybody sleeps on it. */
#ifndef WEIR_BASE_EVENT_H
#define WEIR_BASE_EVENT_H

#include "base.h"

/* Bit 0: somebody may sleep. The rest counts events. Both are in one word, so that whoever changes
 * it learns from that very operation whether there is anybody to wake, and a burst of events costs
 * one wake-up. */
#define EVENT_SLEEPER 1u

/* The count now: to be read before looking at what the event is about. */
static inline uint32_t event_seq(_Atomic uint32_t *e)
{
    return atomic_load_explicit(e, memory_order_seq_cst) & ~EVENT_SLEEPER;
}

/* Announce a sleeper. False: an event came since seq. Else *expected is the value of the word for
 * as long as none comes. */
static inline bool event_arm(_Atomic uint32_t *e, uint32_t seq, uint32_t *expected)
{
    uint32_t now = seq;

    *expected = seq | EVENT_SLEEPER;
    return atomic_compare_exchange_strong(e, &now, *expected) || now == *expected;
}

/* An event. True: sleepers were announced since the last one, all of them must be woken. */
static inline bool event_change(_Atomic uint32_t *e)
{
    uint32_t old = LOAD_RELAXED(e);

    while (!atomic_compare_exchange_weak(e, &old, (old | EVENT_SLEEPER) + 1))
        ;
    return old & EVENT_SLEEPER;
}

#endif
