/* SPDX-License-Identifier: BSD-2-Clause
 * Named adaptive mutexes that count contention. They spin a little, then sleep through a port. */
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
    _Atomic uint32_t word;    /* LOCK_FREE, ... */
    bool brief;               /* (c) held for nanoseconds: nobody is woken at its release */
    _Atomic uint16_t waiters; /* began to wait since the last release, while profiled */
    struct lock_class *class;
};
enum { LOCK_FREE, LOCK_HELD, LOCK_SLEEPERS /* held, and somebody sleeps */ };

#define LOCK_CLASS(var, lockname) static struct lock_class var = {.name = (lockname)}
/* For critical sections of tens of nanoseconds on the path of every packet: a release is a plain
 * store. Who has to wait for a holder that lost its core looks again at intervals. */
#define LOCK_CLASS_BRIEF(var, lockname)                                                            \
    static struct lock_class var = {.name = (lockname), .brief = true}

/* For a lock that is there before anything runs; the class is listed with lock_class_register. */
#define LOCK_STATIC(c)                                                                             \
    {                                                                                              \
        .brief = false, .class = &(c)                                                              \
    }

/* Whether every acquisition is profiled (lock_prof.h): looked at by each, written seldom, so alone
 * on its line. */
struct lock_prof_state {
    CACHE_ALIGNED _Atomic uint32_t epoch; /* 0: off; changes each time it is switched on */
};
extern struct lock_prof_state lock_prof;

static inline bool lock_prof_is_on(void)
{
    return unlikely(LOAD_RELAXED(&lock_prof.epoch) != 0);
}

/* The place in the source that takes a lock, for the profile. */
#define LOCK_HERE __FILE__ ":" LOCK_TEXT(__LINE__)
#define LOCK_TEXT(line) LOCK_TEXT_OF(line)
#define LOCK_TEXT_OF(line) #line
/* Behind a call that asks for its return address: keeps it from becoming a jump, which would show
 * the caller's caller. */
#define LOCK_NO_TAIL_CALL() __asm__ volatile("")
#define lock_acquire(l) lock_acquire_at((l), LOCK_HERE)
#define lock_try(l) lock_try_at((l), LOCK_HERE)

void lock_init(struct lock *l, struct lock_class *class);
/* Put a class on the list; lock_init does so. Any number of times. */
void lock_class_register(struct lock_class *class);
void lock_acquire_slow(struct lock *l);
void lock_release_slow(struct lock *l);
void lock_acquire_profiled(struct lock *l, const char *where);
bool lock_try_profiled(struct lock *l, const char *where) NODISCARD;
void lock_release_profiled(struct lock *l);
bool lock_try_plain(struct lock *l) NODISCARD;

static inline bool lock_take(struct lock *l)
{
    uint32_t expected = LOCK_FREE;
    return atomic_compare_exchange_strong_explicit(&l->word, &expected, LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void lock_acquire_at(struct lock *l, const char *where) TS_ACQUIRE(l) TS_NO_ANALYSIS
{
    if (lock_prof_is_on()) {
        lock_acquire_profiled(l, where);
        LOCK_NO_TAIL_CALL();
    } else if (unlikely(!lock_take(l))) {
        lock_acquire_slow(l);
    }
}

NODISCARD static inline bool lock_try_at(struct lock *l, const char *where)
    TS_TRY_ACQUIRE(true, l) TS_NO_ANALYSIS
{
    if (lock_prof_is_on()) {
        bool got = lock_try_profiled(l, where);
        LOCK_NO_TAIL_CALL();
        return got;
    }
    return lock_try_plain(l);
}

static inline void lock_release(struct lock *l) TS_RELEASE(l) TS_NO_ANALYSIS
{
    if (lock_prof_is_on())
        lock_release_profiled(l);
    else if (l->brief)
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
const struct port *lock_port(void); /* NULL: none */

#endif
