/* SPDX-License-Identifier: BSD-2-Clause
 * Hook points: where instruments plug in. A hook that is not set costs one predicted branch. */
#ifndef WEIR_BASE_HOOK_H
#define WEIR_BASE_HOOK_H

#include "base.h"

struct mbuf;
struct netif;
struct tcpcb;

enum hook_direction { HOOK_IN, HOOK_OUT };

/* All are called by the owner of the stack; the callee must not change what it is shown. */
struct hooks {
    /* A TCP packet: inbound before TCP processes it, outbound as it leaves, before snd_nxt moves
     * past it. tp NULL: no connection. */
    void (*tcp_segment)(void *ctx, struct weir_stack *s, enum hook_direction dir,
                        const struct tcpcb *tp, const struct mbuf *m);
    void *tcp_segment_ctx;
    /* After each change of a connection's state. One whose memory is given back in TIME_WAIT ends
     * for the hooks then: what its record does (tcp_timewait.c) is shown with tp NULL. */
    void (*tcp_state)(void *ctx, struct weir_stack *s, const struct tcpcb *tp, int from, int to);
    void *tcp_state_ctx;
    /* Frames of an interface: as they came, and as they are offered to the link for the first time
     * (on the loopback interface as they come). */
    void (*frames)(void *ctx, struct netif *nif, enum hook_direction dir,
                   struct mbuf *const *frames, size_t n);
    void *frames_ctx;
    /* The stack is being destroyed: first of all, and (over) behind its last packet, when nothing
     * but its memory is left. */
    void (*stack_ends)(void *ctx, struct weir_stack *s, bool over);
    void *stack_ends_ctx;
};

#endif
