/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile: for each pair of lock class and call site, how often and how long it was held
 * and waited for. Off until lock_prof_enable; then every acquisition is counted. */
#ifndef WEIR_BASE_LOCK_PROF_H
#define WEIR_BASE_LOCK_PROF_H

#include "lock.h"

/* What is kept of a site. Times are in ticks (lock_prof_tick_ns). */
enum lock_stat {
    LOCK_STAT_COUNT,      /* acquisitions that were released again */
    LOCK_STAT_FAILED,     /* lock_try and owner_try that went on without it */
    LOCK_STAT_HELD_UP,    /* others that began to wait while this site held it */
    LOCK_STAT_SPINS,      /* acquisitions that waited by spinning only */
    LOCK_STAT_BLOCKS,     /* and those that slept */
    LOCK_STAT_HOLD,       /* time held */
    LOCK_STAT_SPIN_TIME,  /* time waited by `spins` */
    LOCK_STAT_BLOCK_TIME, /* by `blocks`, the spinning before the sleep included */
    LOCK_STAT_HOLD_MAX,
    LOCK_STAT_WAIT_MAX,
    LOCK_STATS
};

/* Sites that can be told apart. What comes after is counted as overflow, and nowhere else. */
#define LOCK_PROF_SITES 512

struct lock_prof_row {
    const struct lock_class *class;
    const char *where;  /* "../src/tcp/tcp_input.c:1456", as the compiler was given the file */
    const void *caller; /* return address within the function that took the lock */
    uint64_t v[LOCK_STATS];
};

/* Process-wide; any thread, at any time. Switching on does not forget what was counted before. */
void lock_prof_enable(bool on);
/* Forget all figures. What other threads count at this very moment may remain. */
void lock_prof_reset(void);
/* The sites that have counted anything, in no order; returns how many. */
size_t lock_prof_read(struct lock_prof_row *rows, size_t max);
/* Events that no site had room for. */
uint64_t lock_prof_overflow(void);
/* For how long the profile has been on since the last reset, by the port's clock. */
uint64_t lock_prof_counted_ns(void);
/* How long a tick is: learned from the port's clock since the profile was first switched on. */
double lock_prof_tick_ns(void);
/* The calling thread ends, or may: another may have its counters. It may still take locks. */
void lock_prof_thread_exit(void);

/* --- for lock.c and owner.c, while the profile is on --- */

/* An acquisition under way. */
struct lock_prof_event {
    uint32_t site;
    bool waited, slept;
    uint64_t began; /* when the lock was asked for */
};

/* Before the lock is tried. */
struct lock_prof_event lock_prof_begin(struct lock_class *class, const char *where,
                                       const void *caller);
/* It is not to be had at once; `waiters` (NULL allowed) belongs to the lock. */
void lock_prof_waits(struct lock_prof_event *e, _Atomic uint16_t *waiters);
/* We have it. */
void lock_prof_acquired(const struct lock_prof_event *e, const void *lock);
void lock_prof_failed(const struct lock_prof_event *e);
/* It was let go; the memory of the lock is not touched. */
void lock_prof_released(const void *lock, unsigned held_up);
/* Those who have begun to wait since the last call. */
static inline unsigned lock_prof_take_waiters(_Atomic uint16_t *waiters)
{
    return LOAD_RELAXED(waiters) == 0 ? 0
                                      : atomic_exchange_explicit(waiters, 0, memory_order_relaxed);
}

#endif
