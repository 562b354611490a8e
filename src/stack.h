/* SPDX-License-Identifier: BSD-2-Clause
 * The sans-I/O stack: creation, and the one step that moves everything. */
#ifndef WEIR_STACK_H
#define WEIR_STACK_H

#include "base/stack.h"

struct stack_config {
    const struct weir_alloc *alloc; /* required */
    const struct port *port;        /* required */
    uint8_t seed[RNG_SEED_BYTES];   /* of all randomness of this stack */
    const char *name;               /* at most 15 bytes are kept */
    uint64_t now_ns;
    int64_t buffer_limit; /* bytes of packet memory; 0: 1 GiB */
};

/* A stack with its loopback interface (127.0.0.1/8, ::1) and nothing else. NULL: no memory. */
struct weir_stack *stack_create(const struct stack_config *cfg) NODISCARD;
/* All sockets must be closed by their users or are aborted now; returns every mbuf. By the
 * owner, the last to use it. */
void stack_destroy(struct weir_stack *s);

#define STACK_BURST 64 /* frames an ownership takes from a link before it lets others in */

/* The owner's step: set now, run deferred socket work, take up to STACK_BURST frames a link, run
 * timers, send what is owed, flush the links. Returns true when it may have left work (a link
 * was not drained). Cost: what there is to do. */
bool stack_step(struct weir_stack *s, uint64_t now_ns);

/* The step of a thread that waits for *addr to be something else than expected. When that has come,
 * the acknowledgment of a SYN or FIN that came with it is left for half a millisecond, to go with
 * what the thread is about to send or close: a connection's packets are two fewer that way. */
bool stack_step_for(struct weir_stack *s, uint64_t now_ns, const _Atomic uint32_t *addr,
                    uint32_t expected);

/* Run only output (what a send() needs); of the links, poll those whose hint says that the answer
 * is there. */
void stack_flush(struct weir_stack *s, uint64_t now_ns);

/* Release ownership the right way: retries while work was left, publishes next_deadline, then
 * (not owning any more) tells the peers of memory links. Every owner_try/owner_acquire ends with
 * this. */
void stack_leave(struct weir_stack *s);

/* The next moment at which stack_step must run though nothing arrives; TIME_NEVER. By the owner. */
uint64_t stack_next_deadline(const struct weir_stack *s);

#endif
