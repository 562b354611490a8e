/* SPDX-License-Identifier: BSD-2-Clause
 * The port: the only way in which the core sees time, sleeps or wakes. Supplied by the runtime
 * (futex, monotonic clock), by the packetdrill adapter (condition variable, virtual time) or by a
 * test. */
#ifndef WEIR_BASE_PORT_H
#define WEIR_BASE_PORT_H

#include "base.h"

/* One wait: sleep while *addr == expected, at most until deadline_ns of the port's clock. */
struct port_wait {
    _Atomic uint32_t *addr;
    uint32_t expected;
    uint64_t deadline_ns; /* TIME_NEVER: no limit */
    /* Stacks that the waiter depends on: the port may drive them (poll the link, run timers) before
     * it sleeps. No ownership is held on entry. */
    struct weir_stack *const *stacks;
    size_t stack_count;
    /* What is waited for will take longer than a thread takes to wake, and will wake it: spinning
     * would only cost CPU time. */
    bool idle;
};

enum linger_when { LINGER_SEND, LINGER_LEFT, LINGER_CLOSE };

struct port {
    void *ctx;
    /* Monotonic time, ns. */
    uint64_t (*now_ns)(void *ctx);
    /* 0: the word changed or a spurious wake-up (the caller looks again); -ETIMEDOUT; -EINTR (a
     * signal). */
    int (*wait)(void *ctx, const struct port_wait *w);
    /* Wake up to `count` (INT_MAX: all) waiters on addr. Never blocks; callable from any thread. */
    void (*wake)(void *ctx, _Atomic uint32_t *addr, int count);
    /* The stack has work or an earlier deadline than its thread knows: wake whoever runs it when
     * nobody drives it. Never blocks. */
    void (*kick)(void *ctx, struct weir_stack *stack);
    /* LINGER_SEND: may the calling thread leave a little output for when it waits or closes, in a
     * moment? True: whoever runs the stack sees what it leaves on the deferred list within some
     * milliseconds even if it does not come; asked once more after the push (LINGER_LEFT), as that
     * may have changed meanwhile. LINGER_CLOSE tells of a close. NULL: never. */
    bool (*linger)(void *ctx, struct weir_stack *stack, enum linger_when when);
    /* Time of day, ns since 1970, for what is shown to people. NULL: now_ns will do. */
    uint64_t (*wall_ns)(void *ctx);
};

#endif
