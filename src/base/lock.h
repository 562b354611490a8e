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
    _Atomic uint32_t listed;    /* on that list */
};

struct TS_CAPABILITY lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody sleeps */
    struct lock_class *class;
};

#define LOCK_CLASS(var, lockname) static struct lock_class var = {.name = (lockname)}

void lock_init(struct lock *l, struct lock_class *class);
void lock_acquire(struct lock *l) TS_ACQUIRE(l);
bool lock_try(struct lock *l) NODISCARD TS_TRY_ACQUIRE(true, l);
void lock_release(struct lock *l) TS_RELEASE(l);
bool lock_is_held(const struct lock *l); /* by anybody: for assertions */

/* First of the list of all classes that have been used by lock_init. */
struct lock_class *lock_class_first(void);

/* How a lock sleeps and wakes; process-wide, set once by the runtime before any contention. Without
 * it locks only spin. */
void lock_set_port(const struct port *p);

#endif
