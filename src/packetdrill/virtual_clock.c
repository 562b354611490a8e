/* SPDX-License-Identifier: BSD-2-Clause
 * Virtual time for a script: see virtual_clock.h.
 *
 * How it works. The script's thread makes plain calls and moves the clock (usleep,
 * netdev_receive, gettimeofday). A call that is meant to block runs in a second thread and
 * sleeps in the port's wait on a condition variable. When the stack wakes it, the clock stands
 * still until that thread has read it once: only so does the script see the call end at the
 * moment of its cause. A thread that never reads it (it may have gone to sleep again, or died)
 * costs GRACE_S of real time, no more. */
#include "virtual_clock.h"

#include <time.h>
#include <unistd.h>

#define GRACE_S 1
#define MAX_SETTLE_ROUNDS 10000
/* A plain call that blocks though nothing can end it gives up after this much virtual time. */
#define MAIN_BLOCK_LIMIT_NS (60 * NS_PER_S)

/* How often this thread holds the lock: once in the mutex, so that a wait on the condition gives
 * it up whole. */
static _Thread_local int depth;

void pd_lock(struct pd_clock *c)
{
    if (depth++ == 0)
        pthread_mutex_lock(&c->lock);
}

void pd_unlock(struct pd_clock *c)
{
    if (--depth == 0)
        pthread_mutex_unlock(&c->lock);
}

static uint64_t port_now(void *ctx)
{
    return ((struct pd_clock *)ctx)->now_ns;
}

static struct pd_waiter *find_waiter(struct pd_clock *c, pid_t tid)
{
    for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
        if (c->waiters[i].tid == tid)
            return &c->waiters[i];
    }
    return NULL;
}

static void end_grace(struct pd_clock *c)
{
    struct pd_waiter *w = find_waiter(c, gettid());
    if (!w || w->wait)
        return;
    w->tid = 0;
    pthread_cond_broadcast(&c->cond);
}

static bool changed(const struct port_wait *w)
{
    return atomic_load(w->addr) != w->expected;
}

static int wait_moving_clock(struct pd_clock *c, const struct port_wait *w)
{
    uint64_t limit = MIN(w->deadline_ns, c->now_ns + MAIN_BLOCK_LIMIT_NS);
    while (!changed(w)) {
        if (c->now_ns >= w->deadline_ns)
            return -ETIMEDOUT;
        if (pd_clock_step(c, limit))
            continue;
        c->now_ns = limit;
        if (limit < w->deadline_ns)
            return -EINTR;
    }
    return 0;
}

static int port_wait(void *ctx, const struct port_wait *w)
{
    struct pd_clock *c = ctx;
    pd_lock(c);
    end_grace(c);
    int result = 0;
    struct pd_waiter *slot;
    if (gettid() == c->main_tid || !(slot = find_waiter(c, 0))) {
        result = wait_moving_clock(c, w);
        pd_unlock(c);
        return result;
    }
    *slot = (struct pd_waiter){w, gettid()};
    while (slot->wait && !changed(w) && c->now_ns < w->deadline_ns)
        pthread_cond_wait(&c->cond, &c->lock);
    if (!changed(w) && c->now_ns >= w->deadline_ns)
        result = -ETIMEDOUT;
    slot->wait = NULL; /* the slot stays: time stands still until this thread reads the clock */
    pd_unlock(c);
    return result;
}

static void port_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    struct pd_clock *c = ctx;
    pd_lock(c);
    for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
        struct pd_waiter *w = &c->waiters[i];
        if (w->tid && w->wait && w->wait->addr == addr)
            w->wait = NULL;
    }
    pthread_cond_broadcast(&c->cond);
    pd_unlock(c);
}

static void port_kick(void *ctx, struct weir_stack *s)
{
}

void pd_clock_init(struct pd_clock *c, uint64_t start_ns)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->cond, NULL);
    c->port = (struct port){
        .ctx = c, .now_ns = port_now, .wait = port_wait, .wake = port_wake, .kick = port_kick};
    c->now_ns = start_ns;
    c->main_tid = gettid();
}

void pd_clock_fini(struct pd_clock *c)
{
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
}

static bool someone_in_grace(const struct pd_clock *c)
{
    for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
        if (c->waiters[i].tid && !c->waiters[i].wait)
            return true;
    }
    return false;
}

/* Let threads that were woken read the clock before it moves. */
static void await_grace(struct pd_clock *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GRACE_S;
    while (someone_in_grace(c)) {
        if (pthread_cond_timedwait(&c->cond, &c->lock, &until) == 0)
            continue;
        for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
            if (!c->waiters[i].wait)
                c->waiters[i].tid = 0;
        }
    }
}

void pd_clock_settle(struct pd_clock *c)
{
    struct weir_stack *s = c->stack;
    for (int round = 0; round < MAX_SETTLE_ROUNDS; round++) {
        if (!owner_try(s))
            return; /* another thread is inside: it leaves nothing undone */
        bool more = stack_step(s, c->now_ns);
        stack_leave(s);
        if (!more && LOAD_RELAXED(&s->next_deadline) > c->now_ns)
            return;
    }
}

/* The earliest timeout of a blocked call. */
static uint64_t waiter_deadline(const struct pd_clock *c)
{
    uint64_t deadline = TIME_NEVER;
    for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
        const struct pd_waiter *w = &c->waiters[i];
        if (w->tid && w->wait)
            deadline = MIN(deadline, w->wait->deadline_ns);
    }
    return deadline;
}

bool pd_clock_step(struct pd_clock *c, uint64_t until_ns)
{
    await_grace(c);
    uint64_t waiter = waiter_deadline(c);
    uint64_t next = MIN(LOAD_RELAXED(&c->stack->next_deadline), waiter);
    if (next == TIME_NEVER || next > until_ns)
        return false;
    c->now_ns = MAX(c->now_ns, next);
    pd_clock_settle(c);
    if (waiter > c->now_ns)
        return true;
    for (size_t i = 0; i < PD_MAX_WAITERS; i++) {
        struct pd_waiter *w = &c->waiters[i];
        if (w->tid && w->wait && w->wait->deadline_ns <= c->now_ns)
            w->wait = NULL;
    }
    pthread_cond_broadcast(&c->cond);
    return true;
}

void pd_clock_run(struct pd_clock *c, uint64_t until_ns)
{
    while (pd_clock_step(c, until_ns))
        ;
    c->now_ns = MAX(c->now_ns, until_ns);
}

uint64_t pd_clock_read(struct pd_clock *c, uint64_t tick_ns)
{
    struct pd_waiter *w = find_waiter(c, gettid());
    if (w && !w->wait) {
        uint64_t at = c->now_ns;
        end_grace(c);
        return at;
    }
    await_grace(c);
    c->now_ns += tick_ns;
    return c->now_ns;
}
