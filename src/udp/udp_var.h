/* SPDX-License-Identifier: BSD-2-Clause
 * The UDP protocol block and what the files of this folder owe each other. */
#ifndef WEIR_UDP_UDP_VAR_H
#define WEIR_UDP_UDP_VAR_H

#include "ip/ip.h"
#include "socket/socket.h"
#include "udp.h"
#include <bsd/sys/queue.h>

#define UDP_BUCKETS 1024
#define UDP_MAX_DATA4 65507 /* 65535 less the headers */
#define UDP_MAX_DATA6 65527

/* Owner only, all of it. */
struct udpcb {
    LIST_ENTRY(udpcb) hash; /* by local port, while it has one */
    struct socket *so;
    struct ipaddr laddr;   /* any: of its family, or of both when AF_INET6 and not so_v6only */
    struct ipaddr faddr;   /* family 0: not connected */
    uint16_t lport, fport; /* lport 0: not bound */
    uint8_t any_family;    /* of laddr while nothing chose an address */
    bool addr_chosen, port_chosen; /* by bind(): they outlive a disconnect */
};

LIST_HEAD(udpcb_list, udpcb);
struct udp_state {
    struct udpcb_list hash[UDP_BUCKETS];
};

static inline struct udpcb *so_udpcb(const struct socket *so)
{
    return so->so_pcb;
}
static inline struct udpcb_list *udp_bucket(struct weir_stack *s, uint16_t port)
{
    return &s->udp->hash[port % UDP_BUCKETS];
}

/* --- udp_pcb.c --- */
int udp_pcb_attach(struct socket *so) NODISCARD;
void udp_pcb_free(struct udpcb *p);
int udp_pcb_bind(struct udpcb *p, const struct ipaddr *a, uint16_t port) NODISCARD;
int udp_pcb_connect(struct udpcb *p, const struct ipaddr *a, uint16_t port) NODISCARD;
void udp_pcb_disconnect(struct udpcb *p);
/* An ephemeral port for a socket that has none. 0 or -EAGAIN as on Linux: all are taken. */
int udp_pcb_bind_any(struct udpcb *p) NODISCARD;
/* The destination as it is meant: any becomes loopback. 0; -EAFNOSUPPORT, -ENETUNREACH (family),
 * -EACCES (broadcast). */
int udp_pcb_destination(const struct udpcb *p, const struct ipaddr *a,
                        struct ipaddr *out) NODISCARD;
/* How well p fits a datagram; 0 not at all. */
int udp_pcb_score(const struct udpcb *p, const struct flow *f);
/* The best; among equals that share the port by SO_REUSEPORT the flow's hash decides. NULL: none.
 */
struct udpcb *udp_pcb_lookup(struct weir_stack *s, const struct flow *f);

#endif
