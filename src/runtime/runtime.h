/* SPDX-License-Identifier: BSD-2-Clause
 * The runtime: real clock, sleeping and waking, a thread for each stack. Internal to this layer and
 * the programs above it. */
#ifndef WEIR_RUNTIME_RUNTIME_H
#define WEIR_RUNTIME_RUNTIME_H

#include "base/stack.h"
#include "ip/netif.h"
#include <pthread.h>
#include <sched.h>

#define RUNTIME_MAX_LINKS NETIF_MAX
/* While application threads drive a stack its thread does not watch the descriptors of its links;
 * it looks this often whether they still do. */
#define RUNTIME_LEASE_NS NS_PER_MS
/* The same for a stack without descriptors that others keep being busy with: each look takes the
 * core from one of them. */
#define RUNTIME_NAP_NS (4 * NS_PER_MS)
#define RUNTIME_HELPED_POLLS 8 /* polls by socket calls between its looks that count as driving */
#define RUNTIME_HELD_NS                                                                            \
    (100 * NS_PER_US) /* that long it leaves the links to whoever owns the stack */

/* Cores that net.isr.bindthreads tells apart. */
#define RUNTIME_CORES 1024
_Static_assert(RUNTIME_CORES <= CPU_SETSIZE, "a cpu_set_t has room for them");

struct runtime_link {
    const struct netif_ops *ops;
    void *link;
    int fd;     /* -1: none */
    bool cheap; /* has one, and ops->pending is a look at memory all the same */
};

/* Field letters: (c) constant; (a) atomic; (t) the stack thread only; (r) under the registry's
 * mutex. */
struct runtime {
    struct weir_stack *stack; /* (c) */
    struct arena *arena;      /* (c) of its memory; NULL: it was given an allocator */
    pthread_t thread;         /* (c) */
    int event_fd;             /* (c) wakes the thread */
    _Atomic bool stop;        /* (a) */
    _Atomic bool leased;      /* (a) the thread sleeps without watching descriptors, a lease long */
    _Atomic uint32_t drives;  /* (a) counts drivers that came; not exact */
    _Atomic uint32_t asleep;  /* (a) counts last drivers that went to sleep */
    _Atomic uint32_t polled;  /* (a) links that have a descriptor: nobody tells when frames come */
    _Atomic uint32_t blind;   /* (a) those of them that only a poll of the stack looks into */
    _Atomic uint32_t exact;   /* (a) links whose deadlines are exact */
    struct runtime_link link[RUNTIME_MAX_LINKS]; /* (c) once counted */
    _Atomic uint32_t link_count;                 /* (a) published last */
    uint32_t drives_seen, asleep_seen;           /* (t) */
    uint64_t polls_seen;                         /* (t) stack.flush_polls */
    uint64_t entries_seen;                       /* (t) of the stack, at the last plan */
    bool napped;                                 /* (t) its last sleep was by itself */
    uint64_t broken; /* (t) bit i: link[i]'s descriptor reports nothing but an error any more */
    _Atomic uint64_t wakeups; /* (x) how often the thread's sleep ended, for tests and `weir top` */
    _Atomic uint64_t steps;   /* (x) how often the thread ran the stack */
    _Atomic uint64_t app_cores[RUNTIME_CORES / 64]; /* (a) where applications waited lately */
    cpu_set_t born_cores;  /* (t) what the thread was allowed before it was bound */
    int bound_core;        /* (t) -1: not bound */
    uint64_t bind_next_ns; /* (t) */
    struct runtime *next;  /* (r) all stacks of this process */
};

/* CLOCK_MONOTONIC, ns. */
uint64_t runtime_now_ns(void);
/* n bytes of the kernel's entropy. 0 or a negative errno. */
int runtime_entropy(void *out, size_t n) NODISCARD;
/* Once a process; each entry of the public API that may be the first calls it. */
void runtime_init(void);

/* The port of every stack of this process, and of its locks. */
extern const struct port runtime_port;

/* Bump in a wrapper around signal handlers: a wait that spins cannot notice by itself that one ran.
 * A thread that drives returns -EINTR when this has changed since its wait began. */
extern _Thread_local uint32_t runtime_signals __attribute__((tls_model("initial-exec")));

/* Call fn for each stack of this process until it returns false. fn runs under the registry's
 * mutex: it may become an owner, but must not create or destroy stacks. */
void runtime_foreach_stack(bool (*fn)(struct weir_stack *s, void *ctx), void *ctx);
/* The stack of that name (the first, if several have it); NULL: none. It may go away at any time
 * unless the caller knows better. */
struct weir_stack *runtime_find_stack(const char *name);

/* Tell the thread and the drivers about the interfaces that s has now. By the owner of s, after
 * links were attached. */
void runtime_links_changed(struct weir_stack *s);

/* --- thread.c --- */
int runtime_thread_start(struct runtime *rt) NODISCARD; /* 0 or a negative errno */
void runtime_thread_stop(struct runtime *rt);           /* joins it; the caller closes event_fd */
/* Wake the thread whatever the owner word says. */
void runtime_thread_wake(struct runtime *rt);
/* The port's kick. */
void runtime_kick(void *ctx, struct weir_stack *s);

/* --- bind.c: net.isr.bindthreads --- */
/* The calling thread, an application's, works on the core that it is on now. */
void runtime_bind_note(struct runtime *rt);
/* Move the stack's thread away from such cores if the knob says so. By that thread; cheap. */
void runtime_bind(struct runtime *rt, uint64_t now_ns);

/* --- wait.c --- */
void runtime_wait_init(void); /* by runtime_init: measures what a system call costs here */
int runtime_wait(void *ctx, const struct port_wait *w);
/* Turn number `turn` of a loop that waits: pauses, and lets others have the core now and then.
 * polls: a turn makes a system call. True: others had it, as far as they wanted. */
bool runtime_relax(uint32_t turn, bool polls);
/* What the loop waits for has come: teaches runtime_relax whether yielding helps. */
void runtime_progress(void);
void runtime_wake(void *ctx, _Atomic uint32_t *addr, int count);
/* The port's linger. */
bool runtime_linger(void *ctx, struct weir_stack *s, enum linger_when when);

/* True when a frame is known to wait at a link (those that need a system call for it are not
 * asked). Any thread. */
static inline bool runtime_links_pending(struct runtime *rt)
{
    uint32_t n = atomic_load_explicit(&rt->link_count, memory_order_acquire);

    if (unlikely(LOAD_RELAXED(&rt->stack->hold)))
        return false; /* the stack would not take it */
    for (uint32_t i = 0; i < n; i++) {
        struct runtime_link *l = &rt->link[i];
        if ((l->fd < 0 || l->cheap) && l->ops->pending && l->ops->pending(l->link))
            return true;
    }
    return false;
}

static inline struct runtime *runtime_of(const struct weir_stack *s)
{
    return s->runtime;
}

#endif
