/* SPDX-License-Identifier: BSD-2-Clause
 * The thread of a stack: runs it when applications are busy or asleep, and holds its timers.
 *
 * How it works. It sleeps in ppoll until the stack's next deadline, a kick, or a frame at a
 * descriptor. It never takes work from drivers: while there are any it sleeps a lease
 * (RUNTIME_LEASE_NS) at a time without looking at the links' descriptors, and watches these again
 * when no driver came during a whole lease, or when the last driver goes to sleep and wakes it for
 * that. So a busy application pays neither for arming a descriptor nor for a thread that wakes for
 * packets which a driver is taking.
 *
 * With net.isr.dispatch=deferred there are no drivers: this thread does all input, and spins like
 * one before it sleeps. */
#include "runtime.h"
#include "file_window.h"
#include "base/cputime.h"
#include "buf/mbuf.h"
#include "stack.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STEP_ROUNDS 4 /* bursts an ownership; then others are let in */
#define STACK_SIZE (256 * 1024)

void runtime_thread_wake(struct runtime *rt)
{
    uint64_t one = 1;
    ssize_t n;

    do {
        n = write(rt->event_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR); /* EAGAIN: it has been woken often enough */
}

void runtime_kick(void *ctx, struct weir_stack *s)
{
    uint64_t w = atomic_load_explicit(&s->owner.word, memory_order_acquire);

    (void)ctx;
    /* Whoever drives or owns it looks again when it lets go. */
    if (!(w & OWNER_SLEEPER) || (w & (OWNER_HELD | OWNER_DRIVERS_MASK)))
        return;
    if (!(w & OWNER_WORK) && LOAD_RELAXED(&s->next_deadline) >= LOAD_RELAXED(&s->owner.sleep_until))
        return;
    if (owner_claim_sleeper(s))
        runtime_thread_wake(runtime_of(s));
}

/* Run what there is. True when something may be left. *held: somebody else owns the stack. */
static bool thread_run(struct runtime *rt, bool *held)
{
    struct weir_stack *s = rt->stack;
    bool more = true;

    *held = !owner_try(s);
    if (*held) {
        /* The holder need not poll links or run timers by itself: this makes its release do so. */
        owner_link_ready(s);
        if (LOAD_RELAXED(&rt->polled) == 0)
            sched_yield(); /* the holder may be waiting for this core */
        return false;
    }
    for (int i = 0; i < STEP_ROUNDS && more; i++)
        more = stack_step(s, runtime_now_ns());
    stack_leave(s);
    STORE_RELAXED(&rt->steps, LOAD_RELAXED(&rt->steps) + 1);
    return more;
}

/* The interface is gone (deleted, its device unplugged): watching it on would be a loop. */
static void forget_descriptor(struct runtime *rt, int fd)
{
    uint32_t n = atomic_load_explicit(&rt->link_count, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++)
        if (rt->link[i].fd == fd)
            rt->broken |= UINT64_C(1) << i;
}

/* Sleep until `until_ns` or something happens. True when a descriptor is readable. */
static bool thread_sleep(struct runtime *rt, uint64_t now_ns, uint64_t until_ns, bool armed)
{
    struct pollfd fds[1 + RUNTIME_MAX_LINKS] = {{.fd = rt->event_fd, .events = POLLIN}};
    uint32_t links = armed ? atomic_load_explicit(&rt->link_count, memory_order_acquire) : 0;
    uint64_t left = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec ts = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    nfds_t n = 1;

    for (uint32_t i = 0; i < links; i++)
        if (rt->link[i].fd >= 0 && !(rt->broken & UINT64_C(1) << i))
            fds[n++] = (struct pollfd){.fd = rt->link[i].fd, .events = POLLIN};
    cputime_switch(CPU_SLEEP);
    int ready = ppoll(fds, n, until_ns == TIME_NEVER ? NULL : &ts, NULL);
    cputime_switch(CPU_SPIN);
    STORE_RELAXED(&rt->wakeups, LOAD_RELAXED(&rt->wakeups) + 1);
    if (ready <= 0)
        return false;
    if (fds[0].revents) {
        uint64_t count;
        (void)!read(rt->event_fd, &count, sizeof(count));
    }
    bool readable = false;
    for (nfds_t i = 1; i < n; i++) {
        if (fds[i].revents & POLLIN)
            readable = true;
        else if (fds[i].revents)
            forget_descriptor(rt, fds[i].fd);
    }
    return readable;
}

/* How the thread is to sleep. */
struct plan {
    uint64_t until;
    bool armed;     /* it watches descriptors */
    bool by_itself; /* it need not be woken for deadlines that come up */
};

static struct plan thread_plan(struct runtime *rt, uint64_t now_ns)
{
    struct weir_stack *s = rt->stack;
    uint64_t until = LOAD_RELAXED(&s->next_deadline);
    uint32_t drives = LOAD_RELAXED(&rt->drives), asleep = atomic_load(&rt->asleep);
    uint64_t polls = COUNTER_READ(s, stack_flush_polls);
    uint64_t entries = COUNTER_READ(s, stack_entries);
    bool lately = drives != rt->drives_seen && asleep == rt->asleep_seen;
    /* Socket calls of threads that need not wait take frames too. */
    bool helped = polls - rt->polls_seen >= RUNTIME_HELPED_POLLS;
    bool busy = entries != rt->entries_seen;

    rt->drives_seen = drives;
    rt->asleep_seen = asleep;
    rt->polls_seen = polls;
    rt->entries_seen = entries;
    bool held = LOAD_RELAXED(&s->hold); /* descriptors would be readable, and stay so */
    struct plan p = {.armed = !LOAD_RELAXED(&rt->polled) ||
                              !(owner_is_driven(s) || lately || helped || held)};
    /* Whoever is busy with the stack runs its timers too, or they are late by the rest of a lease.
     * To be woken for each would take the core from the busy one. */
    p.by_itself = (!p.armed || busy) && !LOAD_RELAXED(&rt->exact);
    /* What is due now is held by somebody who has been told. */
    if (!p.armed || p.by_itself || until <= now_ns)
        until = now_ns + (rt->napped ? RUNTIME_NAP_NS : RUNTIME_LEASE_NS);
    rt->napped = p.by_itself && !LOAD_RELAXED(&rt->polled);
    p.until = until;
    return p;
}

static bool something_due(struct runtime *rt, uint64_t now_ns)
{
    struct weir_stack *s = rt->stack;

    return LOAD_RELAXED(&s->next_deadline) <= now_ns || owner_has_work(s) ||
           runtime_links_pending(rt);
}

/* net.isr.dispatch=deferred: look for work a while before sleeping. */
static bool thread_spin(struct runtime *rt, uint64_t idle_since_ns, uint64_t now_ns)
{
    if (KNOB(rt->stack, isr_dispatch) == 0)
        return false;
    return KNOB_P(machdep_cpu_idle_hlt) == 0 ||
           now_ns - idle_since_ns < (uint64_t)KNOB_P(kern_idle_spin_us) * NS_PER_US;
}

static void *thread_main(void *arg)
{
    struct runtime *rt = arg;
    struct weir_stack *s = rt->stack;
    uint64_t now = runtime_now_ns(), idle_since = now;
    uint32_t turn = 0;
    bool ready = true, held = false;

    prctl(PR_SET_TIMERSLACK, 1UL); /* deadlines of emulated links are exact */
    while (!atomic_load_explicit(&rt->stop, memory_order_acquire)) {
        bool driven = owner_is_driven(s) && KNOB(s, isr_dispatch) == 0;
        runtime_bind(rt, now);
        if (!driven && (ready || something_due(rt, now))) {
            runtime_progress();
            ready = thread_run(rt, &held);
            cputime_switch(CPU_SPIN);
            idle_since = now = runtime_now_ns();
            turn = 0;
            if (ready)
                continue;
        }
        ready = false;
        if (thread_spin(rt, idle_since, now)) {
            (void)runtime_relax(turn++, LOAD_RELAXED(&rt->blind) > 0);
            ready = LOAD_RELAXED(&rt->blind) > 0;
            now = runtime_now_ns();
            continue;
        }
        struct plan p = thread_plan(rt, now);
        p.until = MIN(p.until, file_windows_expire(now));
        if (held && LOAD_RELAXED(&rt->polled)) {
            /* The holder takes what made the descriptor readable, and it may wait for this core. */
            p.armed = held = false;
            p.by_itself = !LOAD_RELAXED(&rt->exact);
            p.until = MIN(p.until, now + RUNTIME_HELD_NS);
        }
        atomic_store(&rt->leased, !p.armed || (p.by_itself && !LOAD_RELAXED(&rt->polled)));
        if (owner_sleep(s, p.by_itself ? now : p.until)) {
            /* The last driver that goes to sleep counts itself, then looks whether we are leased.
             */
            if (p.armed || atomic_load(&rt->asleep) == rt->asleep_seen)
                ready = thread_sleep(rt, now, p.until, p.armed);
            owner_awake(s);
        }
        atomic_store(&rt->leased, false);
        now = runtime_now_ns();
    }
    mbuf_thread_exit();
    return NULL;
}

/* By whoever sets the knob, most likely an application. */
static void bindthreads_changed(struct weir_stack *s)
{
    runtime_bind_note(runtime_of(s));
    runtime_thread_wake(runtime_of(s));
}

int runtime_thread_start(struct runtime *rt)
{
    pthread_attr_t attr;
    sigset_t all, old;
    char name[16];

    rt->bound_core = -1;
    sysctl_set_changed(rt->stack, KNOB_isr_bindthreads, bindthreads_changed);
    rt->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rt->event_fd < 0)
        return -errno;
    /* The application's signals are for the application's threads. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* raised by what a thread itself does: see file_window.c */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    int error = pthread_create(&rt->thread, &attr, thread_main, rt);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        close(rt->event_fd);
        return -error;
    }
    snprintf(name, sizeof(name), "weir/%.9s", rt->stack->name);
    pthread_setname_np(rt->thread, name);
    return 0;
}

void runtime_thread_stop(struct runtime *rt)
{
    atomic_store(&rt->stop, true);
    runtime_thread_wake(rt);
    pthread_join(rt->thread, NULL);
}
