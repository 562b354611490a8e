/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile.
 *
 * How it works. A site is a pair of class and caller, with a place in one table that only grows.
 * Its figures are in stripes: a thread claims a stripe for itself, and adds with plain loads and
 * stores; when there are more threads than stripes, the rest share the first one and add
 * atomically. So nobody waits for anybody, and memory is bounded; a thread's stripe goes to another
 * when it ends, with what is in it, for only the sum of all matters.
 *
 * All is added after the release, and the clock is read before the lock is tried and after it was
 * let go (once more if it had to be waited for), so that the profile does not lengthen what others
 * wait for; what a hold costs besides is in its time. Until then an acquisition lies in the
 * thread's list of what it holds, and struct lock stays as small as it is.
 *
 * A reset changes `period`: a stripe that is of an older period counts as empty, and is emptied by
 * its thread when that adds to it next. An acquisition that is released after the profile was
 * switched off stays in the list; the next switching on makes a new epoch, in which the list begins
 * empty. */
#include "lock_prof.h"
#include "owner.h"

#define STRIPES 32 /* the first is shared */
#define PROBES 32  /* places looked at for a site */
#define HELD_MAX 16
#define NO_SITE UINT32_MAX

struct site {
    _Atomic uint64_t tag; /* hash of class and caller; 0: free */
    _Atomic(struct lock_class *) class;
    _Atomic(const char *) where;
    _Atomic(const void *) caller; /* stored last */
};

struct stripe {
    CACHE_ALIGNED _Atomic uint32_t claimed;
    _Atomic uint32_t period;
    _Atomic uint64_t v[LOCK_PROF_SITES][LOCK_STATS];
};

struct held {
    const void *lock;
    uint64_t since, waited;
    uint32_t site;
    bool spun, slept;
};

struct lock_prof_state lock_prof;
static struct site sites[LOCK_PROF_SITES];
static struct stripe stripes[STRIPES];
static _Atomic uint64_t overflow;
static _Atomic uint32_t period, epochs;
static _Atomic uint64_t counted_ns, on_since; /* before that moment, and of the present time */
static _Atomic uint64_t first_tick, first_ns; /* when the profile was first switched on */

static _Thread_local struct {
    uint32_t stripe; /* index + 1; 0: none yet */
    uint32_t epoch;
    _Atomic uint32_t depth; /* a signal handler may come at any time */
    struct held held[HELD_MAX];
} self;

/* ---- time ---- */

static uint64_t port_clock(void)
{
    const struct port *port = lock_port();
    return port != NULL && port->now_ns != NULL ? port->now_ns(port->ctx) : 0;
}

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return port_clock();
#endif
}

static uint64_t passed(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0; /* two cores may differ a little */
}

double lock_prof_tick_ns(void)
{
    uint64_t t = passed(LOAD_RELAXED(&first_tick), ticks());
    uint64_t ns = passed(LOAD_RELAXED(&first_ns), port_clock());
    return t > 0 && ns > 0 ? (double)ns / (double)t : 1;
}

/* ---- figures ---- */

static void stripe_clear(struct stripe *t)
{
    for (size_t i = 0; i < LOCK_PROF_SITES; i++)
        for (size_t k = 0; k < LOCK_STATS; k++)
            STORE_RELAXED(&t->v[i][k], 0);
}

static void stripe_claim(void)
{
    (void)owner_self(); /* so that the runtime tells when the thread ends */
    self.stripe = 1;
    for (uint32_t i = 1; i < STRIPES; i++) {
        if (LOAD_RELAXED(&stripes[i].claimed) == 0 &&
            atomic_exchange_explicit(&stripes[i].claimed, 1, memory_order_acquire) == 0) {
            self.stripe = i + 1;
            break;
        }
    }
}

static inline struct stripe *stripe_mine(bool *shared)
{
    if (unlikely(self.stripe == 0))
        stripe_claim();
    struct stripe *t = &stripes[self.stripe - 1];
    uint32_t now = atomic_load_explicit(&period, memory_order_acquire);
    *shared = t == &stripes[0];
    if (!*shared && unlikely(LOAD_RELAXED(&t->period) != now)) {
        stripe_clear(t);
        atomic_store_explicit(&t->period, now, memory_order_release);
    }
    return t;
}

static void add(_Atomic uint64_t *v, uint64_t n, bool shared)
{
    if (shared)
        atomic_fetch_add_explicit(v, n, memory_order_relaxed);
    else
        STORE_RELAXED(v, LOAD_RELAXED(v) + n);
}

static void raise(_Atomic uint64_t *v, uint64_t n)
{
    uint64_t old = LOAD_RELAXED(v);
    while (unlikely(old < n) && !atomic_compare_exchange_weak_explicit(
                                    v, &old, n, memory_order_relaxed, memory_order_relaxed))
        ;
}

void lock_prof_thread_exit(void)
{
    if (self.stripe > 1)
        atomic_store_explicit(&stripes[self.stripe - 1].claimed, 0, memory_order_release);
    self.stripe = 0;
}

/* ---- sites ---- */

static uint64_t site_hash(const struct lock_class *class, const void *caller)
{
    uint64_t h = (uint64_t)(uintptr_t) class * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (uint64_t)(uintptr_t)caller) * UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 32;
    return h != 0 ? h : 1;
}

static uint32_t site_find(struct lock_class *class, const char *where, const void *caller)
{
    uint64_t tag = site_hash(class, caller);
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t at = (uint32_t)(tag + i) % LOCK_PROF_SITES;
        struct site *s = &sites[at];
        uint64_t found = LOAD_RELAXED(&s->tag);
        if (found == 0 && atomic_compare_exchange_strong_explicit(
                              &s->tag, &found, tag, memory_order_relaxed, memory_order_relaxed)) {
            STORE_RELAXED(&s->class, class);
            STORE_RELAXED(&s->where, where);
            atomic_store_explicit(&s->caller, caller, memory_order_release);
            return at;
        }
        if (found == tag)
            return at;
    }
    return NO_SITE;
}

/* ---- events ---- */

struct lock_prof_event lock_prof_begin(struct lock_class *class, const char *where,
                                       const void *caller)
{
    struct lock_prof_event e = {.site = site_find(class, where, caller)};
    e.began = ticks();
    return e;
}

void lock_prof_waits(struct lock_prof_event *e, _Atomic uint16_t *waiters)
{
    e->waited = true;
    atomic_fetch_add_explicit(waiters, 1, memory_order_relaxed);
}

void lock_prof_acquired(const struct lock_prof_event *e, const void *lock)
{
    uint64_t now = e->waited ? ticks() : e->began;
    uint32_t epoch = LOAD_RELAXED(&lock_prof.epoch);
    if (unlikely(self.epoch != epoch) && epoch != 0) {
        self.epoch = epoch;
        STORE_RELAXED(&self.depth, 0);
    }
    uint32_t at = LOAD_RELAXED(&self.depth);
    if (unlikely(at == HELD_MAX || e->site == NO_SITE)) {
        atomic_fetch_add_explicit(&overflow, 1, memory_order_relaxed);
        return;
    }
    STORE_RELAXED(&self.depth, at + 1); /* a handler's entries are above ours */
    atomic_signal_fence(memory_order_seq_cst);
    self.held[at] = (struct held){.lock = lock,
                                  .since = now,
                                  .waited = passed(e->began, now),
                                  .site = e->site,
                                  .spun = e->waited && !e->slept,
                                  .slept = e->slept};
}

void lock_prof_failed(const struct lock_prof_event *e)
{
    bool shared;
    struct stripe *t = stripe_mine(&shared);
    if (e->site != NO_SITE)
        add(&t->v[e->site][LOCK_STAT_FAILED], 1, shared);
}

void lock_prof_released(const void *lock, unsigned held_up)
{
    uint64_t now = ticks();
    uint32_t depth = LOAD_RELAXED(&self.depth), i = depth;
    while (i > 0 && self.held[i - 1].lock != lock)
        i--;
    if (i == 0 || self.epoch != LOAD_RELAXED(&lock_prof.epoch))
        return; /* taken before the profile was switched on */
    struct held h = self.held[i - 1];
    for (; unlikely(i < depth); i++)
        self.held[i - 1] = self.held[i];
    atomic_signal_fence(memory_order_seq_cst);
    STORE_RELAXED(&self.depth, depth - 1);

    bool shared;
    struct stripe *t = stripe_mine(&shared);
    _Atomic uint64_t *v = t->v[h.site];
    uint64_t hold = passed(h.since, now);
    add(&v[LOCK_STAT_COUNT], 1, shared);
    add(&v[LOCK_STAT_HOLD], hold, shared);
    raise(&v[LOCK_STAT_HOLD_MAX], hold);
    if (held_up > 0)
        add(&v[LOCK_STAT_HELD_UP], held_up, shared);
    if (!h.spun && !h.slept)
        return;
    add(&v[h.slept ? LOCK_STAT_BLOCKS : LOCK_STAT_SPINS], 1, shared);
    add(&v[h.slept ? LOCK_STAT_BLOCK_TIME : LOCK_STAT_SPIN_TIME], h.waited, shared);
    raise(&v[LOCK_STAT_WAIT_MAX], h.waited);
}

/* ---- control ---- */

void lock_prof_enable(bool on)
{
    uint64_t never = 0;
    if (on && atomic_compare_exchange_strong(&first_tick, &never, ticks()))
        STORE_RELAXED(&first_ns, port_clock());
    if (!on) {
        uint64_t since = atomic_exchange(&lock_prof.epoch, 0) != 0 ? LOAD_RELAXED(&on_since) : 0;
        if (since != 0)
            atomic_fetch_add(&counted_ns, passed(since, port_clock()));
        return;
    }
    uint32_t off = 0, epoch = 1 + atomic_fetch_add(&epochs, 1);
    if (atomic_compare_exchange_strong(&lock_prof.epoch, &off, epoch != 0 ? epoch : 1))
        STORE_RELAXED(&on_since, port_clock());
}

void lock_prof_reset(void)
{
    atomic_fetch_add_explicit(&period, 1, memory_order_acq_rel);
    STORE_RELAXED(&overflow, 0);
    STORE_RELAXED(&counted_ns, 0);
    STORE_RELAXED(&on_since, port_clock());
    stripe_clear(&stripes[0]);
}

static bool sum_site(uint32_t site, uint64_t out[LOCK_STATS])
{
    uint64_t any = 0;
    memset(out, 0, LOCK_STATS * sizeof(*out));
    for (uint32_t i = 0; i < STRIPES; i++) {
        struct stripe *t = &stripes[i];
        if (i > 0 && atomic_load_explicit(&t->period, memory_order_acquire) !=
                         atomic_load_explicit(&period, memory_order_relaxed))
            continue;
        for (int k = 0; k < LOCK_STATS; k++) {
            uint64_t v = LOAD_RELAXED(&t->v[site][k]);
            out[k] = k < LOCK_STAT_HOLD_MAX ? out[k] + v : MAX(out[k], v);
            any |= v;
        }
    }
    return any != 0;
}

size_t lock_prof_read(struct lock_prof_row *rows, size_t max)
{
    size_t n = 0;
    for (uint32_t i = 0; i < LOCK_PROF_SITES && n < max; i++) {
        const void *caller = atomic_load_explicit(&sites[i].caller, memory_order_acquire);
        if (caller == NULL || !sum_site(i, rows[n].v))
            continue;
        rows[n].class = LOAD_RELAXED(&sites[i].class);
        rows[n].where = LOAD_RELAXED(&sites[i].where);
        rows[n].caller = caller;
        n++;
    }
    return n;
}

uint64_t lock_prof_counted_ns(void)
{
    uint64_t now = lock_prof_is_on() ? passed(LOAD_RELAXED(&on_since), port_clock()) : 0;
    return LOAD_RELAXED(&counted_ns) + now;
}

uint64_t lock_prof_overflow(void)
{
    return LOAD_RELAXED(&overflow);
}
