/* SPDX-License-Identifier: BSD-2-Clause
 * Switches between activities, in both forms. */
#include "cputime.h"

#define MEAN_UNIT 8      /* a new sample has this part of a mean's weight */
#define SHORT_NS 4000ull /* parts of calls that take this long are all timed */

struct cputime cputime = {.long_ticks = UINT64_MAX};
_Thread_local struct cputime_thread *cputime_self __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t shared_ns[CPU_ACTIVITIES]; /* bintime */

const char *const cpu_activity_name[CPU_ACTIVITIES] = {
#define X(id, name) [CPU_##id] = (name),
    CPU_ACTIVITY_LIST(X)
#undef X
};

_Atomic uint64_t *cputime_shared(void)
{
    return shared_ns;
}

uint64_t cputime_counter(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#else
    return 0; /* never asked: CPUTIME_NO_COUNTER */
#endif
}

static inline uint64_t read_now(uint32_t config)
{
    if (likely((config & (CPUTIME_MODE_MASK | CPUTIME_NO_COUNTER)) == CPUTIME_TICKS))
        return cputime_counter();
    if ((config & CPUTIME_MODE_MASK) == CPUTIME_BINTIME)
        return cputime.ops->thread_ns();
    return cputime.ops->clock_ns();
}

uint64_t cputime_read(uint32_t config)
{
    return read_now(config);
}

static uint64_t sum(const struct cputime_thread *t)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        n += LOAD_RELAXED(&t->account[i]);
    return n;
}

/* The thread's first switch since the knob was set: what was before is nobody's. */
static void begin(uint32_t config, enum cpu_activity to)
{
    if (!cputime_self)
        cputime_self = cputime.ops->begin();
    struct cputime_thread *t = cputime_self;
    if (!t)
        return;
    STORE_RELAXED(&t->config, config);
    t->flow = NULL;
    t->calls = t->tail = t->segments = 0;
    t->learn = false;
    STORE_RELAXED(&t->checked_ns, cputime.ops->thread_ns());
    STORE_RELAXED(&t->checked_ticks, sum(t));
    STORE_RELAXED(&t->activity, (uint32_t)to);
    STORE_RELAXED(&t->since, read_now(config));
}

/* How much of a span of n ticks the thread ran, by the kernel's figure. */
static __attribute__((noinline)) uint64_t ran(struct cputime_thread *t, uint64_t n)
{
    uint64_t cpu_ns = cputime.ops->thread_ns(), charged = sum(t);
    uint64_t cpu = cputime_ns_to_ticks(cpu_ns - LOAD_RELAXED(&t->checked_ns));
    uint64_t since = charged - LOAD_RELAXED(&t->checked_ticks);
    uint64_t part = MIN(cpu > since ? cpu - since : 0, n);

    STORE_RELAXED(&t->checked_ns, cpu_ns);
    STORE_RELAXED(&t->checked_ticks, charged + part);
    return part;
}

static inline void add(_Atomic uint64_t *to, uint64_t n)
{
    STORE_RELAXED(to, LOAD_RELAXED(to) + n);
}

/* A socket may be copied from by several threads, `spent` is this one's. */
static inline void flow_add(struct cputime_thread *t, enum cpu_activity of, uint64_t n)
{
    if (of == CPU_COPY)
        atomic_fetch_add_explicit(t->flow, n, memory_order_relaxed);
    else
        add(t->flow, n);
}

/* Charge `due` of n ticks to an activity; what n does not hold is due the next time, so that a part
 * that took longer than the mean makes up for one that took less. */
static uint64_t pay(struct cputime_thread *t, enum cpu_activity of, uint64_t due, uint64_t n)
{
    uint64_t all = due + t->owed[of], part = MIN(all, n);

    t->owed[of] = MIN(all - part, LOAD_RELAXED(&cputime.long_ticks));
    add(&t->account[of], part);
    return part;
}

/* A span of the application in which parts were not timed: they are charged, the rest is returned.
 */
static uint64_t split(struct cputime_thread *t, uint64_t n)
{
    if (t->tail) {
        uint64_t tail = pay(t, t->tail, t->mean[t->tail] / MEAN_UNIT, n);
        if (t->flow)
            flow_add(t, t->tail, tail);
        t->flow = NULL;
        n -= tail;
    }
    n -= pay(t, CPU_CALL, t->calls * t->mean[CPU_CALL] / MEAN_UNIT, n);
    t->tail = t->calls = 0;
    return n;
}

/* A part was timed. */
static void learn(struct cputime_thread *t, enum cpu_activity of, uint64_t n)
{
    t->learn = false;
    t->mean[of] = t->mean[of] ? t->mean[of] - t->mean[of] / MEAN_UNIT + n : n * MEAN_UNIT + 1;
}

/* Is this part to be timed? Long ones always are. */
static inline bool is_timed(struct cputime_thread *t, enum cpu_activity of)
{
    uint64_t most =
        LOAD_RELAXED(&cputime.anchor_ticks) / (CPUTIME_ANCHOR_NS / SHORT_NS) * MEAN_UNIT;

    if (t->next_timed-- != 0 && t->mean[of] != 0 && t->mean[of] < most &&
        (LOAD_RELAXED(&t->config) & CPUTIME_MODE_MASK) == CPUTIME_TICKS)
        return false;
    t->dice = t->dice * 1664525u + 1013904223u;
    t->next_timed = (uint8_t)(t->dice >> 27); /* 0 to 31 */
    return true;
}

/* Charge what was done until `when`. */
static inline void charge(struct cputime_thread *t, uint64_t when)
{
    enum cpu_activity from = LOAD_RELAXED(&t->activity);
    uint64_t began = LOAD_RELAXED(&t->since);
    uint64_t n = (int64_t)(when - began) > 0 ? when - began : 0;

    if ((LOAD_RELAXED(&t->config) & CPUTIME_MODE_MASK) == CPUTIME_BINTIME) {
        atomic_fetch_add_explicit(&shared_ns[from], n, memory_order_relaxed);
        return;
    }
    if (unlikely(from == CPU_SLEEP || n >= LOAD_RELAXED(&cputime.long_ticks))) {
        uint64_t all = n;
        n = ran(t, n);
        if (from != CPU_SLEEP)
            add(&t->away, all - n);
    }
    if (t->calls | t->tail)
        n = split(t, n);
    else if (t->learn)
        learn(t, from, n);
    add(&t->account[from], n);
    if (t->flow) {
        flow_add(t, from, MIN(when - t->flow_since, n));
        t->flow = NULL;
    }
    t->segments = 0;
}

static inline void do_switch(struct cputime_thread *t, enum cpu_activity to, uint64_t when)
{
    uint64_t turn = LOAD_RELAXED(&t->turn);

    STORE_RELAXED(&t->turn, turn + 1);
    atomic_thread_fence(memory_order_release); /* readers: not before `turn` is odd */
    charge(t, when);
    STORE_RELAXED(&t->activity, (uint32_t)to);
    STORE_RELAXED(&t->since, when);
    atomic_store_explicit(&t->turn, turn + 2, memory_order_release);
}

void cputime_do_switch(enum cpu_activity to)
{
    struct cputime_thread *t = cputime_self;
    uint32_t config = LOAD_RELAXED(&cputime.config);

    if (unlikely(!t || LOAD_RELAXED(&t->config) != config)) {
        if (config)
            begin(config, to);
        return;
    }
    if (LOAD_RELAXED(&t->activity) != (uint32_t)to)
        do_switch(t, to, read_now(config));
}

/* A switch that is not timed. */
static inline void count_switch(struct cputime_thread *t)
{
    STORE_RELAXED(&t->turn, LOAD_RELAXED(&t->turn) + 2);
}

void cputime_do_call_begins(void)
{
    struct cputime_thread *t = cputime_self;

    if (likely(t && LOAD_RELAXED(&t->config) == LOAD_RELAXED(&cputime.config) &&
               LOAD_RELAXED(&t->activity) == CPU_APP && !is_timed(t, CPU_CALL))) {
        t->calls++;
        count_switch(t);
        return;
    }
    cputime_do_switch(CPU_CALL);
    if (cputime_self)
        cputime_self->learn = true;
}

void cputime_do_call_ends(void)
{
    struct cputime_thread *t = cputime_self;

    if (likely(t && LOAD_RELAXED(&t->config) == LOAD_RELAXED(&cputime.config))) {
        enum cpu_activity from = LOAD_RELAXED(&t->activity);
        if (from == CPU_APP) { /* nothing but the call */
            count_switch(t);
            return;
        }
        if ((from == CPU_INPUT || from == CPU_OUTPUT) && t->segments == 1) {
            if (!is_timed(t, from)) {
                t->tail = from;
                STORE_RELAXED(&t->activity, CPU_APP);
                count_switch(t);
                return;
            }
            t->learn = true;
        }
    }
    cputime_do_switch(CPU_APP);
}

/* Both clocks at one moment. */
static __attribute__((noinline)) void anchor(struct cputime_thread *t)
{
    uint64_t before = cputime_counter(), ns = cputime.ops->clock_ns(), after = cputime_counter();

    if (after - before > LOAD_RELAXED(&cputime.anchor_ticks) / 1024)
        return; /* interrupted */
    t->anchor_ticks = before + (after - before) / 2;
    t->anchor_ns = ns;
}

void cputime_do_switch_now(enum cpu_activity to, uint64_t now_ns)
{
    struct cputime_thread *t = cputime_self;
    uint32_t config = LOAD_RELAXED(&cputime.config);
    if (unlikely(!t || LOAD_RELAXED(&t->config) != config ||
                 (config & CPUTIME_MODE_MASK) != CPUTIME_TICKS)) {
        cputime_do_switch(to);
        return;
    }
    if (LOAD_RELAXED(&t->activity) == (uint32_t)to)
        return;
    if (unlikely(config & CPUTIME_NO_COUNTER)) {
        do_switch(t, to, MAX(now_ns, LOAD_RELAXED(&t->since)));
        return;
    }
    uint64_t age = now_ns - t->anchor_ns, since = LOAD_RELAXED(&t->since);
    if (likely(age < 2 * CPUTIME_ANCHOR_NS)) {
        uint64_t at = t->anchor_ticks + cputime_ns_to_ticks(age);
        if (likely((int64_t)(at - since) >
                   (int64_t)(LOAD_RELAXED(&cputime.anchor_ticks) / 16384))) {
            do_switch(t, to, at);
            return;
        }
    }
    uint64_t when = cputime_counter();
    do_switch(t, to, when);
    if (when - t->anchor_ticks > LOAD_RELAXED(&cputime.anchor_ticks))
        anchor(t);
}

void cputime_do_switch_at(enum cpu_activity to, uint64_t when)
{
    struct cputime_thread *t = cputime_self;

    if (t && LOAD_RELAXED(&t->config) == LOAD_RELAXED(&cputime.config) &&
        LOAD_RELAXED(&t->activity) != (uint32_t)to && when >= LOAD_RELAXED(&t->since))
        do_switch(t, to, when);
}

void cputime_do_flow(_Atomic uint64_t *ticks)
{
    struct cputime_thread *t = cputime_self;
    uint32_t config = LOAD_RELAXED(&cputime.config);

    if (!t || LOAD_RELAXED(&t->config) != config || (config & CPUTIME_MODE_MASK) != CPUTIME_TICKS ||
        t->flow == ticks)
        return;
    cputime_flow_cut();
    t->flow_since = t->flow ? t->flow_since : LOAD_RELAXED(&t->since);
    t->flow = ticks;
}

void cputime_flow_cut(void)
{
    struct cputime_thread *t = cputime_self;

    if (!t || !t->flow)
        return;
    uint64_t now = read_now(LOAD_RELAXED(&t->config));
    flow_add(t, LOAD_RELAXED(&t->activity), now - t->flow_since);
    t->flow_since = now;
}
