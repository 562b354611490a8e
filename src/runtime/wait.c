/* SPDX-License-Identifier: BSD-2-Clause
 * Waiting: an application thread drives the stacks it depends on, then sleeps in a futex; and
 * waking.
 *
 * How it works. Between owner_drive_enter and owner_drive_leave a thread has promised to look at
 * the stack, so nobody is woken for its packets. It owns the stack only while there is something to
 * do. When nothing has happened for kern.idle_spin_us it takes the promise back, looks at the links
 * a last time, lets the stack thread watch their descriptors, and sleeps. A stack has no more
 * drivers than there are cores.
 *
 * Spinning must not keep the thread that is waited for off the core. After some turns a thread
 * yields; how many adapts: when yields take long and bring what was waited for, the two share a
 * core, and the next yields come at once. Yields that return at once, or give the core to
 * strangers, become rarer.
 *
 * A thread that has always waited right after it sent something small may leave it to that wait
 * (linger), so that what it does meanwhile, a close above all, leaves in the same packet; on memory
 * links, where a packet is cheap, only what was always followed by a close; only
 * while the stack thread's lease ends by itself soon, should the thread do something else for once.
 *
 * Waking costs a system call only if somebody sleeps: sleepers are counted in a table by address.
 * The sleeper counts itself, then the kernel compares the word; the waker changes the word, then
 * reads the count. */
#include "runtime.h"
#include "base/cputime.h"
#include "stack.h"
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLEEPER_BUCKETS 256
#define CLOCK_EVERY 8   /* turns of the loop between looks at the clock */
#define YIELD_FIRST 512 /* turns before the first yield, to begin with */
#define YIELD_MIN 2
#define POLL_TURNS 32 /* a turn that polls a descriptor takes as long as so many others */
#define YIELD_MAX 512 /* some 50 us: who never yields before it sleeps does not learn to */
#define LINGER_NS (50 * NS_PER_US) /* from sending to waiting: that is right after it */
#define LINGER_TRUST 32            /* times in succession; it grows to twice as much */
#define STEP_ROUNDS 8 /* bursts that a driver takes before it looks at its own word again */

_Thread_local uint32_t runtime_signals __attribute__((tls_model("initial-exec")));
static _Thread_local struct {
    uint32_t after; /* turns */
    bool was_long;  /* the last one */
} yields __attribute__((tls_model("initial-exec"))) = {.after = YIELD_FIRST};

static _Thread_local struct {
    struct weir_stack *s; /* where it sent last */
    uint64_t sent_ns;     /* 0: it has waited since */
    uint32_t trust;
    bool unclosed;   /* memory links: it has sent, and neither closed nor waited since */
    uint32_t closes; /* sends in succession that a close followed */
} linger __attribute__((tls_model("initial-exec")));

/* A yield that took longer than this let somebody run: twice a system call that does nothing, and a
 * bit. */
static uint64_t yield_long_ns = 1000; /* (c) after runtime_wait_init */

static struct {
    CACHE_ALIGNED _Atomic uint32_t count;
} sleepers[SLEEPER_BUCKETS];

static _Atomic uint32_t *sleepers_on(const void *addr)
{
    uintptr_t a = (uintptr_t)addr >> 2;

    return &sleepers[(a ^ (a >> 8) ^ (a >> 16)) % SLEEPER_BUCKETS].count;
}

static int futex_sleep(_Atomic uint32_t *addr, uint32_t expected, uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    _Atomic uint32_t *count = sleepers_on(addr);

    enum cpu_activity was = cputime_activity();

    atomic_fetch_add(count, 1);
    cputime_switch(CPU_SLEEP);
    /* Absolute CLOCK_MONOTONIC. Without a deadline the kernel restarts the wait after a handler
     * with SA_RESTART. */
    long r = syscall(SYS_futex, addr, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                     deadline_ns == TIME_NEVER ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY);
    int error = r < 0 ? errno : 0;
    cputime_switch(was);
    atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
    if (atomic_load_explicit(addr, memory_order_acquire) != expected)
        return 0;
    return error == EINTR || error == ETIMEDOUT ? -error : 0;
}

void runtime_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    /* A read-modify-write: ordered behind the caller's change of *addr. */
    if (atomic_fetch_add(sleepers_on(addr), 0) == 0)
        return;
    syscall(SYS_futex, addr, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}

static uint32_t driver_limit(void)
{
    static _Atomic uint32_t cores;
    uint32_t n = LOAD_RELAXED(&cores);

    if (unlikely(n == 0)) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online < 1 ? 1 : (uint32_t)MIN(online, (long)OWNER_DRIVERS_MAX);
        STORE_RELAXED(&cores, n);
    }
    return n;
}

enum run_result { RUN_HELD, RUN_NOTHING, RUN_FRAMES };

/* Own s for a moment and run it for the thread that waits for w. Says whether frames were there, or
 * somebody else owns it. */
static enum run_result run(struct weir_stack *s, uint64_t now_ns, const struct port_wait *w)
{
    if (!owner_try(s))
        return RUN_HELD;
    uint64_t before = COUNTER_READ(s, link_rx_frames);
    for (int i = 0; i < STEP_ROUNDS && stack_step_for(s, now_ns, w->addr, w->expected); i++)
        ;
    bool frames = COUNTER_READ(s, link_rx_frames) != before;
    stack_leave(s);
    return frames ? RUN_FRAMES : RUN_NOTHING;
}

/* One wait while it spins. */
struct spin {
    const struct port_wait *w;
    uint64_t driving; /* bit i: promised to drive w->stacks[i] */
    uint64_t now_ns;  /* of the last look at the clock */
    bool fresh;       /* that was within CLOCK_EVERY turns, and nothing was done since */
    uint64_t idle_since_ns;
    uint64_t limit_ns;    /* of idleness */
    struct runtime *seat; /* of the first stack driven, and its count of drivers then */
    uint32_t ticket;
    uint32_t signals;
    bool polls; /* a link can only be polled through the stack */
};

#define MAX_DRIVEN 64

static void drive_begin(struct spin *sp)
{
    uint32_t limit = driver_limit();

    for (size_t i = 0; i < sp->w->stack_count && i < MAX_DRIVEN; i++) {
        struct weir_stack *s = sp->w->stacks[i];
        struct runtime *rt = runtime_of(s);
        if (!rt || KNOB(s, isr_dispatch) != 0)
            continue;
        bool entered = owner_drive_enter(s, limit);
        uint32_t ticket = LOAD_RELAXED(&rt->drives) + 1;
        STORE_RELAXED(&rt->drives, ticket);
        if (!entered)
            continue;
        if (!sp->driving) {
            sp->seat = rt;
            sp->ticket = ticket;
        }
        sp->driving |= UINT64_C(1) << i;
        sp->polls |= LOAD_RELAXED(&rt->blind) > 0;
    }
}

/* Take the promises back. Frames may have been left to us meanwhile: their senders saw a driver. */
static void drive_end(struct spin *sp, bool sleeping)
{
    for (size_t i = 0; sp->driving; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (!(sp->driving & bit))
            continue;
        sp->driving &= ~bit;
        struct weir_stack *s = sp->w->stacks[i];
        struct runtime *rt = runtime_of(s);
        if (!owner_drive_leave(s))
            continue;
        if (runtime_links_pending(rt))
            (void)run(s, runtime_now_ns(), sp->w);
        if (runtime_links_pending(rt)) /* held by somebody, or too many for us */
            owner_link_ready(s);
        if (sleeping && LOAD_RELAXED(&rt->polled)) {
            atomic_fetch_add(&rt->asleep, 1);
            if (atomic_load(&rt->leased))
                runtime_thread_wake(rt);
        }
    }
}

/* A reading of the clock takes as long as some turns; what is a few turns old is good enough. */
static uint64_t about_now(struct spin *sp)
{
    if (!sp->fresh)
        sp->now_ns = runtime_now_ns();
    sp->fresh = false;
    return sp->now_ns;
}

/* Run each stack that has something to do. True when one had. */
static bool drive(struct spin *sp, bool due)
{
    bool did = false;

    for (size_t i = 0; i < sp->w->stack_count && i < MAX_DRIVEN; i++) {
        if (!(sp->driving & (UINT64_C(1) << i)))
            continue;
        struct weir_stack *s = sp->w->stacks[i];
        struct runtime *rt = runtime_of(s);
        if (owner_has_work(s) || runtime_links_pending(rt)) {
            did |= run(s, about_now(sp), sp->w) != RUN_HELD;
        } else if (LOAD_RELAXED(&rt->blind)) {
            sp->now_ns = runtime_now_ns();
            did |= run(s, sp->now_ns, sp->w) == RUN_FRAMES;
        } else if (due && LOAD_RELAXED(&s->next_deadline) <= sp->now_ns) {
            (void)run(s, sp->now_ns, sp->w);
        }
    }
    return did;
}

void runtime_wait_init(void)
{
    uint64_t least = TIME_NEVER;

    for (int i = 0; i < 8; i++) {
        uint64_t before = runtime_now_ns();
        syscall(SYS_getppid);
        least = MIN(least, runtime_now_ns() - before);
    }
    yield_long_ns = 2 * least + 600;
}

bool runtime_relax(uint32_t turn, bool polls)
{
    uint32_t every = polls ? MAX(yields.after / POLL_TURNS, 1) : yields.after;

    CPU_PAUSE();
    if (turn % every != every - 1)
        return false;
    if (yields.was_long) /* and brought nothing */
        yields.after = MIN(yields.after * 2, YIELD_MAX);
    uint64_t before = runtime_now_ns();
    sched_yield();
    yields.was_long = runtime_now_ns() - before > yield_long_ns;
    if (!yields.was_long) /* nobody wants this core */
        yields.after = MIN(yields.after * 2, YIELD_MAX);
    return true;
}

void runtime_progress(void)
{
    if (yields.was_long) {
        yields.was_long = false;
        /* By chance it may once be so. */
        yields.after = MAX(yields.after / 8, YIELD_MIN);
    }
}

/* Has it spun long enough? For ever (machdep.cpu_idle_hlt=0) spins only who came last: one pair of
 * eyes is enough, and the cores are needed. */
static bool spun_enough(const struct spin *sp)
{
    uint64_t idle_ns = sp->now_ns - sp->idle_since_ns;

    if (sp->limit_ns != TIME_NEVER)
        return idle_ns >= sp->limit_ns;
    if (idle_ns < (uint64_t)KNOB_P(kern_idle_spin_us) * NS_PER_US)
        return false;
    /* The knob may have been set back meanwhile: this wait might never end. */
    return KNOB_P(machdep_cpu_idle_hlt) ||
           (sp->seat && LOAD_RELAXED(&sp->seat->drives) != sp->ticket);
}

/* 1: nothing came, sleep. Else what runtime_wait returns. */
static int spin(struct spin *sp)
{
    const struct port_wait *w = sp->w;

    /* The clock is first read after some turns: most waits are over by then. */
    for (uint32_t turn = 1;; turn++) {
        if (atomic_load_explicit(w->addr, memory_order_acquire) != w->expected) {
            runtime_progress();
            return 0;
        }
        cputime_switch(CPU_SPIN); /* and from input that brought nothing for this thread */
        bool due = turn % CLOCK_EVERY == 0;
        if (due) {
            sp->now_ns = runtime_now_ns();
            sp->fresh = true;
            if (sp->idle_since_ns == 0)
                sp->idle_since_ns = sp->now_ns;
            if (sp->now_ns >= w->deadline_ns)
                return -ETIMEDOUT;
            if (runtime_signals != sp->signals)
                return -EINTR;
            if (spun_enough(sp))
                return 1;
        }
        if (sp->driving && drive(sp, due)) {
            runtime_progress();
            sp->idle_since_ns = sp->now_ns;
            continue;
        }
        if (runtime_relax(turn, sp->polls))
            sp->fresh = false;
    }
}

/* Links of theirs have descriptors, which sleep and wake by other rules (the lease). */
static bool any_polled(const struct port_wait *w)
{
    for (size_t i = 0; i < w->stack_count; i++) {
        struct runtime *rt = runtime_of(w->stacks[i]);
        if (rt && LOAD_RELAXED(&rt->polled))
            return true;
    }
    return false;
}

/* Where a packet costs no system call, only what a close follows is worth waiting for. */
static bool close_follows(struct weir_stack *s)
{
    if (linger.unclosed)
        linger.closes /= 2;
    linger.s = s;
    linger.unclosed = true;
    return linger.closes >= LINGER_TRUST;
}

static void learn_close(struct weir_stack *s)
{
    if (linger.unclosed && linger.s == s) {
        linger.unclosed = false;
        linger.closes = MIN(linger.closes + 1, 2 * LINGER_TRUST);
    }
}

bool runtime_linger(void *ctx, struct weir_stack *s, enum linger_when when)
{
    struct runtime *rt = runtime_of(s);

    (void)ctx;
    if (when == LINGER_CLOSE) {
        learn_close(s);
        return false;
    }
    /* The stack thread takes `leased` back before it says to the owner word that it sleeps. */
    if (!rt || !atomic_load_explicit(&rt->leased, memory_order_acquire) ||
        KNOB(s, isr_dispatch) != 0 ||
        (KNOB_P(kern_idle_spin_us) == 0 && KNOB_P(machdep_cpu_idle_hlt)))
        return false;
    if (when == LINGER_LEFT)
        return true;
    if (LOAD_RELAXED(&rt->polled) == 0)
        return close_follows(s);
    if (linger.sent_ns != 0) /* and no wait since */
        linger.trust /= 2;
    linger.s = s;
    linger.sent_ns = runtime_now_ns();
    return linger.trust >= LINGER_TRUST;
}

/* The thread waits: was that soon after it sent? */
static void learn_linger(const struct port_wait *w)
{
    bool same = false;

    for (size_t i = 0; i < w->stack_count && i < MAX_DRIVEN; i++)
        same |= w->stacks[i] == linger.s;
    if (!same || runtime_now_ns() - linger.sent_ns > LINGER_NS)
        linger.trust /= 2;
    else if (linger.trust < 2 * LINGER_TRUST)
        linger.trust++;
    linger.sent_ns = 0;
}

int runtime_wait(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    if (atomic_load_explicit(w->addr, memory_order_acquire) != w->expected)
        return 0;
    if (linger.sent_ns != 0 && w->stack_count > 0)
        learn_linger(w);
    if (linger.unclosed) {
        linger.unclosed = false;
        linger.closes = 0;
    }

    struct spin sp = {.w = w, .signals = runtime_signals, .limit_ns = TIME_NEVER};
    if (KNOB_P(machdep_cpu_idle_hlt))
        sp.limit_ns = (uint64_t)KNOB_P(kern_idle_spin_us) * NS_PER_US;
    for (size_t i = 0; i < w->stack_count; i++) {
        if (owner_is_foreign(w->stacks[i]))
            return -EIO;
        if (unlikely(KNOB(w->stacks[i], isr_bindthreads)) && runtime_of(w->stacks[i]))
            runtime_bind_note(runtime_of(w->stacks[i]));
    }

    if (w->idle && sp.limit_ns != TIME_NEVER && !any_polled(w))
        sp.limit_ns = 0;

    int r = 1;
    if (w->stack_count > 0 && sp.limit_ns > 0) {
        drive_begin(&sp);
        enum cpu_activity was = cputime_activity();
        cputime_rename(CPU_CALL, CPU_SPIN);
        /* Those that are not needed as drivers sleep at once. */
        if (sp.driving || KNOB(w->stacks[0], isr_dispatch) != 0)
            r = spin(&sp);
        drive_end(&sp, r == 1);
        if (cputime_activity() == CPU_SPIN)
            cputime_switch(was); /* else the call ends as what brought it to an end */
    }
    if (r != 1)
        return r;
    yields.after = MIN(yields.after, YIELD_FIRST);
    return futex_sleep(w->addr, w->expected, w->deadline_ns);
}
