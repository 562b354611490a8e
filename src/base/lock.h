/* SPDX-License-Identifier: BSD-2-Clause
 * Named adaptive mutexes that count contention. They spin a little, then sleep through lock_port.
 */
#ifndef WEIR_BASE_LOCK_H
#define WEIR_BASE_LOCK_H

#include "base.h"
#include "port.h"

#if defined(__clang__) && !defined(WEIR_NO_THREAD_SAFETY)
#define TS_CAPABILITY __attribute__((capability("mutex")))
#define TS_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define TS_TRY_ACQUIRE(...) __attribute__((try_acquire_capability(__VA_ARGS__)))
#define TS_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define TS_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define TS_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define TS_NO_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define TS_CAPABILITY
#define TS_ACQUIRE(...)
#define TS_TRY_ACQUIRE(...)
#define TS_RELEASE(...)
#define TS_REQUIRES(...)
#define TS_GUARDED_BY(x)
#define TS_NO_ANALYSIS
#endif

/* All locks of one name share a class; the class carries the statistics. Order of locks (outer
 * first): owner of a stack > watch topology > epoll set > watch list > ready list > serial locks >
 * so_rcv or so_snd > descriptor table > pools. */
struct lock_class {
    const char *name;           /* "so_rcv" */
    _Atomic uint64_t contended; /* acquisitions that did not succeed at once */
    _Atomic uint64_t spins;     /* of these, settled by spinning */
    _Atomic uint64_t blocks;    /* of these, slept */
    struct lock_class *next;    /* all classes, for lockstat */
    bool brief;                 /* (c) see struct lock */
    _Atomic uint32_t listed;    /* on that list */
};

struct TS_CAPABILITY lock {
    _Atomic uint32_t word; /* LOCK_FREE, ... */
    bool brief;            /* (c) held for nanoseconds: nobody is woken at its release */
    struct lock_class *class;
};
enum { LOCK_FREE, LOCK_HELD, LOCK_SLEEPERS /* held, and somebody sleeps */ };

#define LOCK_CLASS(var, lockname) static struct lock_class var = {.name = (lockname)}
/* For critical sections of tens of nanoseconds on the path of every packet: a release is a plain
 * store. Who has to wait for a holder that lost its core looks again at intervals. */
#define LOCK_CLASS_BRIEF(var, lockname)                                                            \
    static struct lock_class var = {.name = (lockname), .brief = true}

void lock_init(struct lock *l, struct lock_class *class);
void lock_acquire_slow(struct lock *l);
void lock_release_slow(struct lock *l);

static inline bool lock_take(struct lock *l)
{
    uint32_t expected = LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&l->word, &expected, LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void lock_acquire(struct lock *l) TS_ACQUIRE(l) TS_NO_ANALYSIS
{
    if (unlikely(!lock_take(l)))
        lock_acquire_slow(l);
}

bool lock_try(struct lock *l) NODISCARD TS_TRY_ACQUIRE(true, l);

static inline void lock_release(struct lock *l) TS_RELEASE(l) TS_NO_ANALYSIS
{
    if (l->brief)
        atomic_store_explicit(&l->word, LOCK_FREE, memory_order_release);
    else
        lock_release_slow(l);
}

bool lock_is_held(const struct lock *l); /* by anybody: for assertions */

/* First of the list of all classes that have been used by lock_init. */
struct lock_class *lock_class_first(void);

/* How a lock sleeps and wakes; process-wide, set once by the runtime before any contention. Without
 * it locks only spin. */
void lock_set_port(const struct port *p);

#endif
