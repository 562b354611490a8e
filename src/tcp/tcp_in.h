/* SPDX-License-Identifier: BSD-2-Clause
 * What the files of the input half owe each other and nobody else. */
#ifndef WEIR_TCP_TCP_IN_H
#define WEIR_TCP_TCP_IN_H

#include "tcp_var.h"

/* Timestamps compare like sequence numbers (RFC 7323 5.2). */
#define TSTMP_LT(a, b) SEQ_LT(a, b)
#define TSTMP_GT(a, b) SEQ_GT(a, b)
#define TCP_MAXWIN 65535u
#define TCP_PAWS_IDLE_NS (UINT64_C(24) * 24 * 3600 * NS_PER_S) /* RFC 7323 5.5 */

/* What a step says about the segment. */
enum tcp_verdict {
    TCP_GO_ON,    /* next step */
    TCP_DONE,     /* processed or dropped; the connection lives */
    TCP_DROP_ACK, /* drop it, but acknowledge: it may have been a retransmission */
    TCP_DROP_RST, /* drop it and answer with a reset */
    TCP_GONE,     /* the connection has ended */
    TCP_GONE_RST, /* and the segment is answered with a reset */
};

/* ---- tcp_input_steps.c: RFC 9293 3.10.7.4, one function a step ---- */
enum tcp_verdict tcp_step_rst(struct tcpcb *tp, struct tcp_segment *seg);
enum tcp_verdict tcp_step_syn(struct tcpcb *tp, struct tcp_segment *seg);
enum tcp_verdict tcp_step_paws(struct tcpcb *tp, struct tcp_segment *seg);
enum tcp_verdict tcp_step_trim(struct tcpcb *tp, struct tcp_segment *seg);
void tcp_step_ts_recent(struct tcpcb *tp, const struct tcp_segment *seg);
enum tcp_verdict tcp_step_ack(struct tcpcb *tp, struct tcp_segment *seg);
/* ---- tcp_input_text.c: urgent data, text and FIN ---- */
void tcp_step_urg(struct tcpcb *tp, struct tcp_segment *seg);
enum tcp_verdict tcp_step_text(struct tcpcb *tp, struct tcp_segment *seg);
/* In-order text of an established connection whose reassembly queue is empty. Consumes seg->m. */
void tcp_text_in_order(struct tcpcb *tp, struct tcp_segment *seg);
/* Forget text that came before the handshake was over. */
void tcp_early_text_flush(struct tcpcb *tp);
/* ---- tcp_input_syn.c: SYN_SENT (3.10.7.3) ---- */
enum tcp_verdict tcp_syn_sent_input(struct tcpcb *tp, struct tcp_segment *seg);
/* ---- tcp_timewait.c ---- */
void tcp_timewait_init(struct weir_stack *s); /* by tcp_init */
void tcp_timewait_fini(struct weir_stack *s);
/* True: tp is in TIME_WAIT, and the segment a SYN that may take over from it (RFC 6191, RFC 9293
 * 3.10.7.4). */
bool tcp_timewait_yields(const struct tcpcb *tp, const struct tcp_segment *seg);
void tcp_timewait_input(struct tcpcb *tp, const struct tcp_segment *seg);
/* A segment that no connection took: true when a record did. A SYN that may take over ends the
 * record, and goes on to the listener. */
bool tcp_timewait_segment(struct weir_stack *s, const struct flow *f,
                          const struct tcp_segment *seg) NODISCARD;
/* If tp is in TIME_WAIT, nobody holds its socket and it owes no ACK: a record takes over, tp and
 * the socket are freed. To be called when the last of these has come true. False, tp lives on: not
 * yet, or no memory, or a record that is due then would not come in order (tcp_timewait.c). */
bool tcp_timewait_shrink(struct tcpcb *tp);
/* Its end by 2MSL or a new connection. */
void tcp_timewait_close(struct weir_stack *s, struct tcptw *tw);

/* Acknowledge now, after the batch. */
static inline void tcp_ack_now(struct tcpcb *tp)
{
    tp->t_flags |= TF_ACKNOW;
    tcp_output_later(tp);
}

/* Drop n payload bytes at an end; the sequence number moves along. */
void tcp_segment_trim_head(struct tcp_segment *seg, uint32_t n);
void tcp_segment_trim_tail(struct tcp_segment *seg, uint32_t n);

/* ---- tcp_respond.c: segments built at once ---- */
struct tcp_control {
    const struct flow *flow;
    struct tcpcb *tp;       /* for the instruments and the IP options of its socket; NULL: none */
    struct socket *so;      /* whose IP options count when tp is NULL; may be NULL */
    const struct tcptw *tw; /* whose count when both are NULL; may be NULL */
    const struct tcp_options *to; /* NULL: none */
    uint32_t seq, ack;
    uint16_t win, urp;
    uint8_t flags;
};
/* Build and send a segment without payload. 0, or a negative error of ip_output, or -ENOBUFS
 * (counted). */
int tcp_control_send(struct weir_stack *s, const struct tcp_control *c);
/* Window field of such a segment, by the buffer and what was offered before. */
uint16_t tcp_control_window(const struct tcpcb *tp);
/* One challenge ACK from the budget of an epoch (RFC 5961 7, net.inet.tcp.ack_war_*). False:
 * counted as limited. */
bool tcp_challenge_ok(struct weir_stack *s, uint64_t *epoch_end, uint32_t *count) NODISCARD;
/* The flow that answers seg: laddr is its destination. */
void tcp_segment_flow(const struct tcp_segment *seg, struct flow *f);

/* ---- tcp_isn.c ---- */
/* Keyed hash of a flow: of the whole tuple, or of what a port is chosen for. */
enum tcp_hash_label { TCP_LABEL_TUPLE = 1, TCP_LABEL_PORT };
void tcp_keyed_hash(struct weir_stack *s, enum tcp_hash_label label, const struct flow *f,
                    uint64_t out[2]);

/* ---- tcp_port.c: local ports ---- */
struct tcp_port {
    LIST_ENTRY(tcp_port) link;
    struct tcpcb_list owners;    /* by t_porthash: bound or listening */
    struct tcpcb_list users;     /* by t_porthash: connections that only use it */
    struct tcpcb_list listeners; /* by t_hash */
    LIST_HEAD(, tcptw)
    timewaits;
    uint32_t timewait_owners; /* of these, those whose connection was an owner */
    uint16_t port;
};
int tcp_ports_init(struct weir_stack *s) NODISCARD;
void tcp_ports_fini(struct weir_stack *s);
struct tcp_port *tcp_port_find(struct weir_stack *s, uint16_t port);
/* Let tp hold a port, as owner or as user. -ENOMEM. */
int tcp_port_hold(struct tcpcb *tp, uint16_t port, bool owner) NODISCARD;
void tcp_port_release(struct tcpcb *tp);
bool tcp_port_is_owner(const struct tcpcb *tp);
/* The same for a record: the port that tp still holds. */
void tcp_port_hold_timewait(struct tcptw *tw, const struct tcpcb *tp);
void tcp_port_release_timewait(struct weir_stack *s, struct tcptw *tw);
/* A free port for t_flow (addresses and fport set), RFC 6056 algorithm 4; held as user.
 * -EADDRNOTAVAIL. */
int tcp_port_choose(struct tcpcb *tp) NODISCARD;

/* ---- tcp_syncookie.c ---- */
/* What a cookie carries: rounded down to what its few bits can say. */
struct tcp_cookie {
    uint16_t mss;
    uint8_t wscale; /* 0xff: none offered */
    bool sack;
};
struct tcp_cookie_keys {
    uint8_t key[2][SIPHASH_KEY_BYTES];
    uint64_t born_ns[2]; /* 0: never made */
    uint8_t current;
};
uint32_t tcp_cookie_make(struct weir_stack *s, struct tcp_cookie_keys *k, const struct flow *f,
                         uint32_t irs, const struct tcp_cookie *c);
bool tcp_cookie_check(struct weir_stack *s, struct tcp_cookie_keys *k, const struct flow *f,
                      uint32_t irs, uint32_t iss, struct tcp_cookie *c) NODISCARD;
#define TCP_COOKIE_LIFE_NS                                                                         \
    (UINT64_C(15) * NS_PER_S) /* a key makes cookies this long, and is honoured twice as long */

#endif
