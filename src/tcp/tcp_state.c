/* SPDX-License-Identifier: BSD-2-Clause
 * The state of a connection: names, legal transitions, and their one writer. */
#include "tcp_var.h"

/* From, and what may follow (RFC 9293 3.3.2, figure 5, and BSD's short cuts: a FIN asked for before
 * the handshake ended leads from it to FIN_WAIT_1 directly). Everything may end in CLOSED. */
#define B(n) (1u << TCPS_##n)
#define TCP_TRANSITIONS(X)                                                                         \
    X(CLOSED, B(LISTEN) | B(SYN_SENT) | B(SYN_RECEIVED))                                           \
    X(LISTEN, 0)                                                                                   \
    X(SYN_SENT, B(SYN_RECEIVED) | B(ESTABLISHED) | B(FIN_WAIT_1))                                  \
    X(SYN_RECEIVED, B(ESTABLISHED) | B(FIN_WAIT_1))                                                \
    X(ESTABLISHED, B(CLOSE_WAIT) | B(FIN_WAIT_1))                                                  \
    X(CLOSE_WAIT, B(LAST_ACK))                                                                     \
    X(FIN_WAIT_1, B(CLOSING) | B(FIN_WAIT_2) | B(TIME_WAIT))                                       \
    X(CLOSING, B(TIME_WAIT))                                                                       \
    X(LAST_ACK, 0)                                                                                 \
    X(FIN_WAIT_2, B(TIME_WAIT))                                                                    \
    X(TIME_WAIT, 0)

static const uint16_t may_follow[TCPS_COUNT] = {
#define X(n, set) [TCPS_##n] = (set) | B(CLOSED),
    TCP_TRANSITIONS(X)
#undef X
};
#define X(n, v) _Static_assert((v) == TCPS_##n && (v) < 16, "a state is a bit of a uint16_t");
TCP_STATES(X)
#undef X

static const char *const names[TCPS_COUNT] = {
    [TCPS_CLOSED] = "CLOSED",           [TCPS_LISTEN] = "LISTEN",
    [TCPS_SYN_SENT] = "SYN_SENT",       [TCPS_SYN_RECEIVED] = "SYN_RCVD",
    [TCPS_ESTABLISHED] = "ESTABLISHED", [TCPS_CLOSE_WAIT] = "CLOSE_WAIT",
    [TCPS_FIN_WAIT_1] = "FIN_WAIT_1",   [TCPS_CLOSING] = "CLOSING",
    [TCPS_LAST_ACK] = "LAST_ACK",       [TCPS_FIN_WAIT_2] = "FIN_WAIT_2",
    [TCPS_TIME_WAIT] = "TIME_WAIT",
};
_Static_assert(NELEM(names) == TCPS_COUNT, "each state has a name");

const char *tcp_state_name(int state)
{
    return state >= 0 && state < TCPS_COUNT ? names[state] : "?";
}

void tcp_state_set(struct tcpcb *tp, int state)
{
    struct weir_stack *s = tp->t_stack;
    int from = tp->t_state;

    CHECK(state >= 0 && state < TCPS_COUNT);
    if (from == state)
        return;
    CHECK(may_follow[from] & (1u << state));
    tp->t_state = (uint8_t)state;
    if (state == TCPS_TIME_WAIT)
        s->tcp->timewait_count++;
    else if (from == TCPS_TIME_WAIT)
        s->tcp->timewait_count--;
    WEIR_PROBE4(tcp_state, s->name, (int)tp->t_so->so_index, from, state);
    tcp_timer_event_state(tp, from, state);
    if ((B(FIN_WAIT_1) | B(CLOSING)) & (1u << from) &&
        (B(FIN_WAIT_2) | B(TIME_WAIT)) & (1u << state))
        so_fin_acked(tp->t_so);
    if (unlikely(s->hooks.tcp_state != NULL))
        s->hooks.tcp_state(s->hooks.tcp_state_ctx, s, tp, from, state);
}
