/* SPDX-License-Identifier: BSD-2-Clause
 * The adapter's own time: a stack under a virtual clock, used by a script's thread and by one
 * that blocks. */
#ifndef WEIR_PACKETDRILL_VIRTUAL_CLOCK_H
#define WEIR_PACKETDRILL_VIRTUAL_CLOCK_H

#include "stack.h"
#include <pthread.h>

#define PD_MAX_WAITERS 8

/* A thread inside a call that blocks, or one that was woken and has not looked at the clock yet. */
struct pd_waiter {
    const struct port_wait *wait; /* NULL: woken, must read the clock before time moves on */
    pid_t tid;                    /* 0: free */
};

/* (l) under lock, which every call of the interface holds while it runs. */
struct pd_clock {
    struct port port;
    pthread_mutex_t lock; /* taken with pd_lock */
    pthread_cond_t cond;
    struct weir_stack *stack;
    uint64_t now_ns; /* (l) */
    pid_t main_tid;  /* the script's thread: if it blocks, it moves the clock itself */
    struct pd_waiter waiters[PD_MAX_WAITERS]; /* (l) */
};

/* The lock may be taken again by the thread that holds it: a call of the interface, then the
 * port, then the link. */
void pd_lock(struct pd_clock *c);
void pd_unlock(struct pd_clock *c);

void pd_clock_init(struct pd_clock *c, uint64_t start_ns);
void pd_clock_fini(struct pd_clock *c);
/* Run what is due now, without moving the clock. */
void pd_clock_settle(struct pd_clock *c);
/* Move the clock to the next event (timer of the stack, timeout of a blocked call), at most to
 * until_ns, and run it. False: there is none up to until_ns, and the clock has not moved. */
bool pd_clock_step(struct pd_clock *c, uint64_t until_ns);
/* Run everything up to until_ns and set the clock there. */
void pd_clock_run(struct pd_clock *c, uint64_t until_ns);
/* Read the clock, which moves on by `tick_ns` (a script spins on it); ends the grace of a woken
 * thread. */
uint64_t pd_clock_read(struct pd_clock *c, uint64_t tick_ns);

#endif
