/* SPDX-License-Identifier: BSD-2-Clause
 * Adaptive mutex: one word, three states (free, held, held with sleepers), as small as it can be.
 *
 * A thread that finds the lock held spins for a short while, for the critical sections here are
 * tens of nanoseconds; then it marks the word "held with sleepers" and sleeps on it through the
 * port. Whoever gets the lock after having slept leaves that mark, for it cannot know whether
 * others sleep: at worst one wake-up finds nobody.
 *
 * That mark makes a release a read-modify-write. A brief lock has none: its release is a store, and
 * whoever cannot get it by spinning looks again every BRIEF_LOOK_NS. */
#include "lock.h"
#include "cputime.h"
#include "lock_prof.h"

#define SPIN_LIMIT 100 /* looks, a pause each: about the cost of one futex round trip */
#define BRIEF_LOOK_NS (50 * NS_PER_US)

static _Atomic(const struct port *) the_port;
static _Atomic(struct lock_class *) lock_classes;

void lock_class_register(struct lock_class *class)
{
    if (LOAD_RELAXED(&class->listed) || atomic_exchange(&class->listed, 1))
        return;
    struct lock_class *head = LOAD_RELAXED(&lock_classes);
    do {
        class->next = head;
    } while (!atomic_compare_exchange_weak(&lock_classes, &head, class));
}

void lock_init(struct lock *l, struct lock_class *class)
{
    CHECK(class != NULL);
    lock_class_register(class);
    l->class = class;
    l->brief = class->brief;
    atomic_init(&l->waiters, 0);
    atomic_init(&l->word, LOCK_FREE);
}

static bool lock_spin(struct lock *l)
{
    for (unsigned i = 0; i < SPIN_LIMIT; i++) {
        if (LOAD_RELAXED(&l->word) == LOCK_FREE && lock_take(l))
            return true;
        CPU_PAUSE();
    }
    return false;
}

/* The holder of a brief lock has lost its core, and will not wake anybody. */
static void wait_for_brief(struct lock *l, const struct port *port)
{
    static _Atomic uint32_t never; /* a word that does not change */

    while (!lock_spin(l)) {
        struct port_wait w = {.addr = &never,
                              .deadline_ns = port->now_ns(port->ctx) + BRIEF_LOOK_NS};
        (void)port->wait(port->ctx, &w);
    }
}

/* Get a lock that is held by another. True when that took a sleep. */
static bool lock_get(struct lock *l)
{
    struct lock_class *class = l->class;
    atomic_fetch_add_explicit(&class->contended, 1, memory_order_relaxed);
    if (lock_spin(l)) {
        atomic_fetch_add_explicit(&class->spins, 1, memory_order_relaxed);
        return false;
    }
    const struct port *port = lock_port();
    if (port == NULL) { /* nothing to sleep with */
        while (!lock_spin(l))
            ;
        atomic_fetch_add_explicit(&class->spins, 1, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&class->blocks, 1, memory_order_relaxed);
    if (l->brief) {
        wait_for_brief(l, port);
        return true;
    }
    while (atomic_exchange_explicit(&l->word, LOCK_SLEEPERS, memory_order_acquire) != LOCK_FREE) {
        struct port_wait w = {
            .addr = &l->word, .expected = LOCK_SLEEPERS, .deadline_ns = TIME_NEVER};
        (void)port->wait(port->ctx, &w); /* a signal or a spurious wake-up: look again */
    }
    return true;
}

static bool lock_wait(struct lock *l)
{
    enum cpu_activity was = cputime_activity();
    cputime_switch(CPU_LOCK);
    bool slept = lock_get(l);
    cputime_switch(was);
    return slept;
}

void lock_acquire_slow(struct lock *l)
{
    (void)lock_wait(l);
}

__attribute__((noinline)) void lock_acquire_profiled(struct lock *l, const char *where)
{
    struct lock_prof_event e = lock_prof_begin(l->class, where, __builtin_return_address(0));
    if (!lock_take(l)) {
        lock_prof_waits(&e, &l->waiters);
        e.slept = lock_wait(l);
    }
    lock_prof_acquired(&e, l);
}

bool lock_try_plain(struct lock *l)
{
    if (lock_take(l))
        return true;
    atomic_fetch_add_explicit(&l->class->contended, 1, memory_order_relaxed);
    return false;
}

__attribute__((noinline)) bool lock_try_profiled(struct lock *l, const char *where)
{
    struct lock_prof_event e = lock_prof_begin(l->class, where, __builtin_return_address(0));
    bool got = lock_try_plain(l);
    if (got)
        lock_prof_acquired(&e, l);
    else
        lock_prof_failed(&e);
    return got;
}

void lock_release_slow(struct lock *l)
{
    uint32_t old = atomic_exchange_explicit(&l->word, LOCK_FREE, memory_order_release);
    CHECK(old != LOCK_FREE);
    if (unlikely(old == LOCK_SLEEPERS)) {
        const struct port *port = lock_port();
        if (port != NULL)
            port->wake(port->ctx, &l->word, 1);
    }
}

void lock_release_profiled(struct lock *l)
{
    unsigned held_up = lock_prof_take_waiters(&l->waiters);
    if (l->brief)
        atomic_store_explicit(&l->word, LOCK_FREE, memory_order_release);
    else
        lock_release_slow(l);
    lock_prof_released(l, held_up);
}

bool lock_is_held(const struct lock *l)
{
    return LOAD_RELAXED(&l->word) != LOCK_FREE;
}

struct lock_class *lock_class_first(void)
{
    return atomic_load_explicit(&lock_classes, memory_order_acquire);
}

void lock_set_port(const struct port *p)
{
    atomic_store_explicit(&the_port, p, memory_order_release);
}

const struct port *lock_port(void)
{
    return atomic_load_explicit(&the_port, memory_order_acquire);
}
