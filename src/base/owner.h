/* SPDX-License-Identifier: BSD-2-Clause
 * The ownership word of a stack: who may touch protocol state, and what waits for the owner. */
#ifndef WEIR_BASE_OWNER_H
#define WEIR_BASE_OWNER_H

#include "base.h"
#include "lock.h"

/* Everything that decides who must act next is in one word, so that "release" and "is there work?"
 * are one atomic step. From the low end: flags, drivers, thread id of the owner, head of the
 * deferred list (index + 1, 0 = empty). Indices, not pointers, so that the word may live in memory
 * shared between processes. */
#define OWNER_HELD UINT64_C(1)       /* somebody owns the stack */
#define OWNER_SLEEPER UINT64_C(2)    /* the stack thread sleeps: whoever leaves work must kick it */
#define OWNER_LINK_READY UINT64_C(4) /* frames wait at a link (set by a peer stack, by anybody) */
#define OWNER_WAITERS UINT64_C(8)    /* threads sleep in owner_acquire */
#define OWNER_FOREIGN                                                                              \
    UINT64_C(16)              /* copy of another process's stack (after fork): never to be owned */
#define OWNER_DRIVERS_SHIFT 8 /* application threads that promise to drive the stack */
#define OWNER_DRIVERS_MAX UINT64_C(0x3ff)
#define OWNER_DRIVERS_ONE (UINT64_C(1) << OWNER_DRIVERS_SHIFT)
#define OWNER_DRIVERS_MASK (OWNER_DRIVERS_MAX << OWNER_DRIVERS_SHIFT)
#define OWNER_TID_SHIFT 18 /* 22 bits, as the kernel's */
#define OWNER_TID_MASK (UINT64_C(0x3fffff) << OWNER_TID_SHIFT)
#define OWNER_HEAD_SHIFT 40 /* 24 bits */
#define OWNER_HEAD_MASK (UINT64_C(0xffffff) << OWNER_HEAD_SHIFT)
#define OWNER_INDEX_MAX UINT32_C(0xfffffe)
#define OWNER_WORK (OWNER_LINK_READY | OWNER_HEAD_MASK)

/* Node of the deferred list, embedded in each socket; `queued` guards against a second push. */
struct deferred_node {
    _Atomic uint32_t next;   /* index + 1 of the next node */
    _Atomic uint32_t queued; /* 1 while on the list */
};
/* The node of an index; called by any thread that keeps the socket alive, and by the owner. */
typedef struct deferred_node *owner_node_fn(struct weir_stack *s, uint32_t index);

/* Zeroed memory is a free word without a node function. */
struct owner {
    CACHE_ALIGNED _Atomic uint64_t word;
    CACHE_ALIGNED owner_node_fn *node; /* (c) set by the socket table with owner_set_node */
    _Atomic uint64_t sleep_until;      /* when the sleeping stack thread wakes by itself */
    _Atomic uint64_t contended;        /* owner_try that found it held */
    _Atomic uint32_t handoff;          /* futex word of sleepers in owner_acquire */
    _Atomic uint16_t waiters;          /* of the lock profile, as in struct lock */
};

/* A free word. By stack_create, before anybody else sees s. */
void owner_init(struct weir_stack *s);
/* Say how nodes are found: once, before the first owner_defer. */
void owner_set_node(struct weir_stack *s, owner_node_fn *node);

/* Become the owner if nobody is. False: held by another thread, or by this one (a signal handler).
 */
#define owner_try(s) owner_try_at((s), LOCK_HERE)
/* Become the owner; spins, then sleeps through the port. -EDEADLK when this thread owns it already
 * (a signal handler), -EIO when the stack belongs to another process (fork). */
#define owner_acquire(s) owner_acquire_at((s), LOCK_HERE)

bool owner_try_plain(struct weir_stack *s) NODISCARD;
int owner_acquire_plain(struct weir_stack *s) NODISCARD;
bool owner_try_profiled(struct weir_stack *s, const char *where) NODISCARD;
int owner_acquire_profiled(struct weir_stack *s, const char *where) NODISCARD;

NODISCARD static inline bool owner_try_at(struct weir_stack *s, const char *where)
{
    if (lock_prof_is_on()) {
        bool got = owner_try_profiled(s, where);
        LOCK_NO_TAIL_CALL();
        return got;
    }
    return owner_try_plain(s);
}

NODISCARD static inline int owner_acquire_at(struct weir_stack *s, const char *where)
{
    if (lock_prof_is_on()) {
        int error = owner_acquire_profiled(s, where);
        LOCK_NO_TAIL_CALL();
        return error;
    }
    return owner_acquire_plain(s);
}

/* True when the calling thread owns s. */
bool owner_is_me(const struct weir_stack *s);
/* True after a fork in the child: nobody can own this copy; calls on it fail with EIO. */
bool owner_is_foreign(const struct weir_stack *s);
/* Mark a stack as foreign: in the child of a fork, before any other thread exists there. */
void owner_disown(struct weir_stack *s);
/* Release. False: work has been left meanwhile (deferred nodes or link ready): still owned, the
 * caller takes it (owner_take) and tries again. s->next_deadline must be stored before the call:
 * the stack thread is kicked if it would wake too late for it. */
bool owner_release(struct weir_stack *s) NODISCARD;
/* Release although work may be left, after a bounded number of rounds: waiters, drivers or the
 * stack thread take over what is left. */
void owner_yield(struct weir_stack *s);
/* Take all deferred work: returns a list (index + 1, 0 none), oldest first, to be walked with
 * owner_pop, and clears LINK_READY (telling whether it was set). By the owner. */
uint32_t owner_take(struct weir_stack *s, bool *link_ready) NODISCARD;
/* First of a taken list: its index, and *list moves on. The node may be pushed again from here on,
 * so its work bits are to be read after this call. *list must not be 0. */
uint32_t owner_pop(struct weir_stack *s, uint32_t *list) NODISCARD;
/* Push the node of a socket (socket index) unless it is queued already; set its work bits before.
 * Returns true when nobody owns the stack now, so that the caller must try to own it, and defer
 * again if that fails. */
bool owner_defer(struct weir_stack *s, uint32_t index) NODISCARD;
/* Say that frames wait at a link of s; kicks the stack thread if it sleeps and nobody drives or
 * owns. Allowed while owning another stack. */
void owner_link_ready(struct weir_stack *s);
/* An application thread promises to drive s until the matching leave (bounded spin). False: `limit`
 * threads do so already (no promise was made). */
bool owner_drive_enter(struct weir_stack *s, uint32_t limit) NODISCARD;
/* Ends the promise. Work that waits is passed on to the stack thread. Returns true when this was
 * the last driver: the caller then looks at the links once more (frames may have come while it
 * counted as driver). */
bool owner_drive_leave(struct weir_stack *s) NODISCARD;
/* True when somebody promised to drive s. */
bool owner_is_driven(const struct weir_stack *s);
/* True when deferred work or frames are known to wait. */
bool owner_has_work(const struct weir_stack *s);

/* The stack thread is about to sleep until until_ns. False: it must not (work or an earlier
 * deadline came, and nobody else will see to it). Only by the stack thread. */
bool owner_sleep(struct weir_stack *s, uint64_t until_ns) NODISCARD;
/* The stack thread is up again by itself. */
void owner_awake(struct weir_stack *s);
/* For the port's kick: true when the stack thread sleeps and this call is the one that must wake
 * it. */
bool owner_claim_sleeper(struct weir_stack *s) NODISCARD;

/* The calling thread's id as owner uses it: 1 .. 2^22 - 1, 0 while it is not known. owner_self
 * learns it at the thread's first call: from owner_tid_hook, which the runtime sets (and learns so
 * that there is a thread), else it is a number of the thread's own. */
uint32_t owner_self(void);
extern _Thread_local uint32_t owner_self_tid __attribute__((tls_model("initial-exec")));
extern uint32_t (*owner_tid_hook)(void);

#endif
