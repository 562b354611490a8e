/* SPDX-License-Identifier: BSD-2-Clause
 * IPv4 and IPv6: input, output, routes, ICMP; one interface for both families. */
#ifndef WEIR_IP_IP_H
#define WEIR_IP_IP_H

#include "base/stack.h"
#include "buf/mbuf.h"
#include "netif.h"
#include "wire/addr.h"

/* Makes s->ip and the loopback interface (index 1, 127.0.0.1/8 and ::1, first of s->netifs). Needs
 * s->alloc, s->wheel, s->rng, s->secret, s->knobs and s->account. 0 or -ENOMEM. */
int ip_init(struct weir_stack *s) NODISCARD;
/* Destroys all interfaces that are left, and all of this layer's state. */
void ip_fini(struct weir_stack *s);

/* --- what IP tells a transport about a packet --- */
struct ip_info {
    struct ipaddr src, dst;  /* scope set for link-local */
    struct netif *netif;     /* received on */
    uint8_t proto, ttl, tos; /* tos: DSCP and ECN */
    bool multicast;          /* destination is multicast or broadcast */
    uint32_t hlen; /* bytes of IP header in front of m_data (the quoted packet for errors starts at
                      m_data - hlen); 0: the header is gone (reassembled IPv6) */
};

/* --- an ICMP error for a transport, quoted packet parsed --- */
enum icmp_kind {
    ICMP_KIND_UNREACH_NET,
    ICMP_KIND_UNREACH_HOST,
    ICMP_KIND_UNREACH_PROTO,
    ICMP_KIND_UNREACH_PORT,
    ICMP_KIND_UNREACH_ADMIN,
    ICMP_KIND_TOOBIG,
    ICMP_KIND_TIME_EXCEEDED,
    ICMP_KIND_PARAM_PROBLEM,
    ICMP_KIND_SOURCE_QUENCH,
};
struct icmp_error {
    enum icmp_kind kind;
    int error;    /* errno that Linux gives for it */
    bool hard;    /* a hard error by RFC 1122 (protocol or port unreachable) */
    uint32_t mtu; /* TOOBIG: next-hop MTU to try, never 0: IPv4's 0 is replaced by the next plateau
                     below the quoted packet (RFC 1191 7.1) and raised to net.inet.icmp.pmtu_floor;
                     IPv6 below 1280 is not passed on at all (RFC 8201 4). Call ip_pmtu_update once
                     the quote is validated. */
    bool local;   /* made by this host: the neighbour did not answer (flow and l4 are of the held
                     packet) */
    uint8_t type, code; /* as on the wire; 0 when local */
    struct flow flow;   /* of the packet we sent: laddr is ours; ports 0 if its protocol has none */
    const uint8_t *l4;  /* quoted transport header, at least 8 bytes */
    size_t l4len;
};

/* A transport. input consumes *m (m_data at the transport header, trimmed to the IP length,
 * m_pkt.len right; the first bytes need not be contiguous: use mbuf_pullup). */
struct ip_proto {
    void (*input)(struct weir_stack *s, struct mbuf **m, const struct ip_info *info);
    void (*error)(struct weir_stack *s, const struct icmp_error *e);
};
/* p is borrowed for the life of the stack. Both families. */
void ip_register(struct weir_stack *s, uint8_t proto, const struct ip_proto *p);

/* --- routes --- */
struct route {
    struct netif *netif;
    struct ipaddr nexthop; /* the destination itself when on-link */
    struct ipaddr src;     /* preferred source address */
    uint32_t mtu;          /* of the path: the interface's, or lower if learned */
};
/* 0; -ENETUNREACH no route; -EHOSTUNREACH the interface is down or the neighbour is known not to
 * answer; -EADDRNOTAVAIL no source address of that family, or the wish is not ours; -EINVAL a
 * loopback source for a destination outside, or a link-local destination without a scope. src (may
 * be NULL or any): a wish, kept if it is ours. */
int ip_route(struct weir_stack *s, const struct ipaddr *dst, const struct ipaddr *src,
             struct route *out) NODISCARD;
/* gateway NULL: on-link. 0, -EEXIST, -ENOMEM, -ENOSPC. */
int ip_route_add(struct weir_stack *s, const struct ipaddr *prefix, unsigned prefixlen,
                 const struct ipaddr *gateway, struct netif *nif) NODISCARD;
/* A transport hears nothing from dst: the neighbour on the way there is asked, at its next use,
 * whether it is still where we believe it to be (RFC 1122 2.3.2.1 (4), 3.3.1.4). */
void ip_nexthop_doubt(struct weir_stack *s, const struct ipaddr *dst);
/* Learned path MTU to dst; lowers only, expires (net.inet.icmp.pmtu_expire). */
void ip_pmtu_update(struct weir_stack *s, const struct ipaddr *dst, uint32_t mtu);
void ip_pmtu_forget_all(struct weir_stack *s);
/* True when the address may be a source on the wire / is one of ours to bind. */
bool ip_is_local(struct weir_stack *s, const struct ipaddr *a);
/* True for the limited broadcast address and the directed ones of our subnets. */
bool ip_is_broadcast(const struct weir_stack *s, const struct ipaddr *a);

/* --- output --- */
struct ip_output_args {
    struct ipaddr src, dst;
    uint8_t proto, ttl /* 0: default */, tos;
    bool df;                   /* IPv4: do not fragment; IPv6 sources fragment only when false */
    const struct route *route; /* borrowed; NULL: looked up */
};
/* Send a transport packet (M_PKTHDR, headroom in the first mbuf; m_pkt.csum_* with csum_start
 * relative to m_data = the transport header). Prepends the IP header, completes the checksum unless
 * the link does, fragments if allowed. Packets to ourselves go through the loopback interface.
 * Consumes *m. 0, -ENETUNREACH, -EHOSTUNREACH, -EMSGSIZE (larger than the MTU and not to be
 * fragmented), -ENOBUFS. */
int ip_output(struct weir_stack *s, struct mbuf **m, const struct ip_output_args *a);

/* Answer a packet with an ICMP error (rate limited; never for errors, fragments but the first,
 * multicast). port unreachable etc. by kind. m borrowed; its m_data - info->hlen must still be the
 * IP header. */
void icmp_send_error(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                     enum icmp_kind kind);
/* One token of the ICMP and RST rate limit (net.inet.icmp.icmplim). False: do not answer (counted).
 */
bool icmp_rate_ok(struct weir_stack *s) NODISCARD;

/* Timers and deadlines of this layer run on the stack's wheel. */

#endif
