/* SPDX-License-Identifier: BSD-2-Clause
 * The ownership word: taking, releasing, deferring, and handing work to whoever acts next.
 *
 * How it works. Work for a stack is a set of nodes (sockets with something to do) and the bit
 * LINK_READY. The rule is that whoever adds work can name, from the very atomic operation that
 * added it, who will take it:
 *   - the word was HELD: its release is a compare-and-swap that fails while work is there, so the
 * owner does;
 *   - else, owner_defer: the caller itself, which is told to try to own;
 *   - else, owner_link_ready: a driver (it looks at the word until its owner_drive_leave, which
 * looks once more), or the stack thread: asleep it is kicked, awake its owner_sleep fails. With the
 * list beside a lock there would be a moment between "list is empty" and "lock is free" in which
 * work is added to a stack that nobody looks at again.
 *
 * The owner's thread id is in the word too, not beside it: a signal handler that interrupts its
 * thread anywhere sees either that the thread owns the stack or that it does not.
 *
 * Deadlines: the releaser stores next_deadline, then does its compare-and-swap; the stack thread
 * stores sleep_until, then sets SLEEPER by one, then reads next_deadline. As both operate on one
 * word, either the releaser sees SLEEPER and sleep_until, or the thread sees next_deadline.
 *
 * A node's `queued` and its work bits are ordered the same way: set the bits, then exchange queued
 * to 1; the owner exchanges it to 0, then takes the bits. */
#include "owner.h"
#include "cputime.h"
#include "lock_prof.h"
#include "stack.h"

/* Tries before sleeping: an ownership lasts a few microseconds. */
#define ACQUIRE_SPINS 200

LOCK_CLASS(class_owner, "owner"); /* counts waits only: owner_try goes on without it */

_Thread_local uint32_t owner_self_tid __attribute__((tls_model("initial-exec")));
uint32_t (*owner_tid_hook)(void);

static uint32_t learn_tid(void)
{
    static _Atomic uint32_t last;
    const uint32_t max = OWNER_TID_MASK >> OWNER_TID_SHIFT;
    uint32_t tid = owner_tid_hook
                       ? owner_tid_hook()
                       : 1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) % max;

    CHECK(tid != 0 && tid <= max);
    owner_self_tid = tid;
    return tid;
}

uint32_t owner_self(void)
{
    uint32_t tid = owner_self_tid;

    return likely(tid != 0) ? tid : learn_tid();
}

static inline uint64_t self_bits(void)
{
    return (uint64_t)owner_self() << OWNER_TID_SHIFT;
}

static inline uint64_t load(const struct weir_stack *s)
{
    return atomic_load_explicit(&s->owner.word, memory_order_acquire);
}

static inline bool swap(struct weir_stack *s, uint64_t *w, uint64_t new)
{
    return atomic_compare_exchange_weak_explicit(&s->owner.word, w, new, memory_order_acq_rel,
                                                 memory_order_acquire);
}

static void kick(struct weir_stack *s)
{
    if (s->port && s->port->kick)
        s->port->kick(s->port->ctx, s);
}

void owner_init(struct weir_stack *s)
{
    struct owner *o = &s->owner;

    atomic_init(&o->word, 0);
    atomic_init(&o->sleep_until, TIME_NEVER);
    atomic_init(&o->contended, 0);
    atomic_init(&o->handoff, 0);
    atomic_init(&o->waiters, 0);
    lock_class_register(&class_owner);
    o->node = NULL;
}

void owner_set_node(struct weir_stack *s, owner_node_fn *node)
{
    s->owner.node = node;
}

bool owner_try_plain(struct weir_stack *s)
{
    uint64_t me = self_bits(), w = load(s);

    do {
        if (w & OWNER_HELD) {
            atomic_fetch_add_explicit(&s->owner.contended, 1, memory_order_relaxed);
            WEIR_PROBE1(owner_contended, s->name);
            return false;
        }
    } while (!swap(s, &w, w | OWNER_HELD | me));
    return true;
}

/* Like owner_try, but says why not and does not count. */
static int try_quietly(struct weir_stack *s)
{
    uint64_t me = self_bits(), w = load(s);

    do {
        if (w & OWNER_FOREIGN)
            return -EIO;
        if (w & OWNER_HELD)
            return (w & OWNER_TID_MASK) == me ? -EDEADLK : -EAGAIN;
    } while (!swap(s, &w, w | OWNER_HELD | me));
    return 0;
}

/* Somebody owns it: wait until we do. *slept: that took a sleep. */
static int owner_get(struct weir_stack *s, bool *slept)
{
    atomic_fetch_add_explicit(&s->owner.contended, 1, memory_order_relaxed);
    WEIR_PROBE1(owner_contended, s->name);
    for (unsigned spins = 1;; spins++) {
        CPU_PAUSE();
        int error = try_quietly(s);
        if (error != -EAGAIN)
            return error;
        if (spins < ACQUIRE_SPINS || !s->port || !s->port->wait)
            continue;

        uint32_t seq = atomic_load_explicit(&s->owner.handoff, memory_order_acquire);
        uint64_t w = load(s);
        while ((w & (OWNER_HELD | OWNER_WAITERS)) == OWNER_HELD && !swap(s, &w, w | OWNER_WAITERS))
            ;
        if (!(w & OWNER_HELD))
            continue;
        struct port_wait pw = {&s->owner.handoff, seq, TIME_NEVER, NULL, 0};
        (void)s->port->wait(s->port->ctx, &pw); /* all returns mean: look again */
        *slept = true;
    }
}

static int owner_wait(struct weir_stack *s, bool *slept)
{
    enum cpu_activity was = cputime_activity();
    cputime_switch(CPU_LOCK);
    int error = owner_get(s, slept);
    cputime_switch(was);
    atomic_fetch_add_explicit(&class_owner.contended, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(*slept ? &class_owner.blocks : &class_owner.spins, 1,
                              memory_order_relaxed);
    return error;
}

int owner_acquire_plain(struct weir_stack *s)
{
    bool slept = false;
    int error = try_quietly(s);

    return error != -EAGAIN ? error : owner_wait(s, &slept);
}

__attribute__((noinline)) bool owner_try_profiled(struct weir_stack *s, const char *where)
{
    struct lock_prof_event e = lock_prof_begin(&class_owner, where, __builtin_return_address(0));
    bool got = owner_try_plain(s);

    if (got)
        lock_prof_acquired(&e, s);
    else
        lock_prof_failed(&e);
    return got;
}

__attribute__((noinline)) int owner_acquire_profiled(struct weir_stack *s, const char *where)
{
    struct lock_prof_event e = lock_prof_begin(&class_owner, where, __builtin_return_address(0));
    int error = try_quietly(s);

    if (error == -EAGAIN) {
        lock_prof_waits(&e, &s->owner.waiters);
        error = owner_wait(s, &e.slept);
    }
    if (error == 0)
        lock_prof_acquired(&e, s);
    return error;
}

bool owner_is_me(const struct weir_stack *s)
{
    uint64_t w = LOAD_RELAXED(&s->owner.word);

    return (w & OWNER_HELD) && (w & OWNER_TID_MASK) == self_bits();
}

bool owner_is_foreign(const struct weir_stack *s)
{
    return LOAD_RELAXED(&s->owner.word) & OWNER_FOREIGN;
}

void owner_disown(struct weir_stack *s)
{
    atomic_store(&s->owner.word, OWNER_HELD | OWNER_FOREIGN);
}

/* The word was w when it was released. */
static void after_release(struct weir_stack *s, uint64_t w, bool work)
{
    if (w & OWNER_WAITERS) {
        atomic_fetch_add_explicit(&s->owner.handoff, 1, memory_order_release);
        s->port->wake(s->port->ctx, &s->owner.handoff, INT32_MAX);
    }
    if ((w & OWNER_SLEEPER) && !(w & OWNER_DRIVERS_MASK) &&
        (work || LOAD_RELAXED(&s->next_deadline) < LOAD_RELAXED(&s->owner.sleep_until)))
        kick(s);
}

/* Let go, unless that would leave work (`strict`). The word before in *was. */
static inline bool let_go(struct weir_stack *s, bool strict, uint64_t *was)
{
    uint64_t w = LOAD_RELAXED(&s->owner.word);

    CHECK(w & OWNER_HELD);
    do {
        if (strict && (w & OWNER_WORK))
            return false;
    } while (!swap(s, &w, w & ~(OWNER_HELD | OWNER_WAITERS | OWNER_TID_MASK)));
    *was = w;
    return true;
}

static bool let_go_profiled(struct weir_stack *s, bool strict, uint64_t *was)
{
    unsigned held_up = lock_prof_take_waiters(&s->owner.waiters);

    if (let_go(s, strict, was)) {
        lock_prof_released(s, held_up);
        return true;
    }
    if (held_up > 0)
        atomic_fetch_add_explicit(&s->owner.waiters, held_up, memory_order_relaxed);
    return false;
}

bool owner_release(struct weir_stack *s)
{
    uint64_t w;

    if (!(lock_prof_is_on() ? let_go_profiled(s, true, &w) : let_go(s, true, &w)))
        return false;
    if (w & (OWNER_WAITERS | OWNER_SLEEPER))
        after_release(s, w, false);
    return true;
}

void owner_yield(struct weir_stack *s)
{
    uint64_t w = 0;

    (void)(lock_prof_is_on() ? let_go_profiled(s, false, &w) : let_go(s, false, &w));
    after_release(s, w, w & OWNER_WORK);
}

uint32_t owner_take(struct weir_stack *s, bool *link_ready)
{
    uint64_t w = LOAD_RELAXED(&s->owner.word);

    *link_ready = false;
    if (!(w & OWNER_WORK))
        return 0;
    w = atomic_fetch_and_explicit(&s->owner.word, ~OWNER_WORK, memory_order_acq_rel);
    *link_ready = w & OWNER_LINK_READY;

    /* Newest first on the list: turn it round. */
    uint32_t in = (uint32_t)(w >> OWNER_HEAD_SHIFT), out = 0;
    while (in) {
        struct deferred_node *n = s->owner.node(s, in - 1);
        uint32_t next = LOAD_RELAXED(&n->next);
        STORE_RELAXED(&n->next, out);
        out = in;
        in = next;
    }
    return out;
}

uint32_t owner_pop(struct weir_stack *s, uint32_t *list)
{
    uint32_t index = *list - 1;
    struct deferred_node *n = s->owner.node(s, index);

    *list = LOAD_RELAXED(&n->next);
    atomic_exchange_explicit(&n->queued, 0, memory_order_acq_rel);
    return index;
}

bool owner_defer(struct weir_stack *s, uint32_t index)
{
    struct deferred_node *n = s->owner.node(s, index);
    uint64_t w = load(s), new;

    CHECK(index <= OWNER_INDEX_MAX);
    if (atomic_exchange_explicit(&n->queued, 1, memory_order_acq_rel))
        return !(load(s) & OWNER_HELD);
    do {
        STORE_RELAXED(&n->next, (uint32_t)(w >> OWNER_HEAD_SHIFT));
        new = (w & ~OWNER_HEAD_MASK) | (uint64_t)(index + 1) << OWNER_HEAD_SHIFT;
    } while (!swap(s, &w, new));
    return !(w & OWNER_HELD);
}

void owner_link_ready(struct weir_stack *s)
{
    uint64_t w = atomic_fetch_or_explicit(&s->owner.word, OWNER_LINK_READY, memory_order_acq_rel);

    if ((w & OWNER_SLEEPER) && !(w & (OWNER_HELD | OWNER_DRIVERS_MASK)))
        kick(s);
}

bool owner_drive_enter(struct weir_stack *s, uint32_t limit)
{
    uint64_t w = load(s);

    if (limit > OWNER_DRIVERS_MAX)
        limit = OWNER_DRIVERS_MAX;
    do {
        if ((w & OWNER_FOREIGN) || (w & OWNER_DRIVERS_MASK) >> OWNER_DRIVERS_SHIFT >= limit)
            return false;
    } while (!swap(s, &w, w + OWNER_DRIVERS_ONE));
    return true;
}

bool owner_drive_leave(struct weir_stack *s)
{
    uint64_t w = atomic_fetch_sub_explicit(&s->owner.word, OWNER_DRIVERS_ONE, memory_order_acq_rel);

    CHECK(w & OWNER_DRIVERS_MASK);
    if ((w & OWNER_DRIVERS_MASK) != OWNER_DRIVERS_ONE)
        return false;
    if ((w & OWNER_SLEEPER) && !(w & OWNER_HELD) &&
        ((w & OWNER_WORK) || LOAD_RELAXED(&s->next_deadline) < LOAD_RELAXED(&s->owner.sleep_until)))
        kick(s);
    return true;
}

bool owner_is_driven(const struct weir_stack *s)
{
    return load(s) & OWNER_DRIVERS_MASK;
}

bool owner_has_work(const struct weir_stack *s)
{
    return load(s) & OWNER_WORK;
}

bool owner_sleep(struct weir_stack *s, uint64_t until_ns)
{
    uint64_t w = load(s);

    STORE_RELAXED(&s->owner.sleep_until, until_ns);
    do {
        if ((w & OWNER_WORK) && !(w & (OWNER_HELD | OWNER_DRIVERS_MASK)))
            return false;
    } while (!swap(s, &w, w | OWNER_SLEEPER));
    /* A holder or driver checks the deadline when it lets go, and finds SLEEPER. */
    if (LOAD_RELAXED(&s->next_deadline) < until_ns && !(w & (OWNER_HELD | OWNER_DRIVERS_MASK))) {
        owner_awake(s);
        return false;
    }
    return true;
}

void owner_awake(struct weir_stack *s)
{
    atomic_fetch_and_explicit(&s->owner.word, ~OWNER_SLEEPER, memory_order_acq_rel);
}

bool owner_claim_sleeper(struct weir_stack *s)
{
    return atomic_fetch_and_explicit(&s->owner.word, ~OWNER_SLEEPER, memory_order_acq_rel) &
           OWNER_SLEEPER;
}
