/* SPDX-License-Identifier: BSD-2-Clause
 * What the files of the IP layer share: its state, and the calls between them.
 *
 * How it works. netif.c takes frames from links and hands packets to ip_input.c or ip6_input.c,
 * which check them, collect fragments (ip_frag.c) and call the transport by protocol number; ICMP
 * (icmp.c, icmp6.c) is one of these. Downwards, ip_output.c finds the route (ip_route.c), writes
 * the header, completes the checksum, fragments, and gives the packet to netif_output, which asks
 * neigh.c for the link-layer address. Nothing here allocates memory for a packet that is neither a
 * fragment nor the first to a new neighbour. */
#ifndef WEIR_IP_IP_VAR_H
#define WEIR_IP_IP_VAR_H

#include "ip.h"
#include "netif.h"
#include "wire/eth.h"
#include <bsd/sys/queue.h>

#define ROUTE_MAX 256      /* routes of a stack */
#define ROUTE_CACHE_BITS 6 /* destinations whose route is remembered, power of two */
#define PMTU_MAX 1024      /* path MTUs remembered */
#define PMTU_BUCKETS 256
#define NEIGH_BUCKETS 512
#define FRAG_BUCKETS 256
#define IP_ID_RECENT 1024 /* IPv4 ids that are not used again yet */

/* --- addresses of this host, flat for speed --- */
#define LOCAL_MAX (NETIF_MAX * NETIF_MAX_ADDRS)
struct local4 {
    uint32_t addr;      /* network order */
    uint32_t broadcast; /* of its subnet, network order; 0 none (/31, /32, loopback) */
    struct netif *netif;
};
struct local6 {
    struct ipaddr addr; /* scope set for link-local */
    struct netif *netif;
};

/* --- routes --- */
struct route_entry {
    struct ipaddr prefix, gateway; /* gateway.family 0: on-link */
    struct netif *netif;
    uint8_t prefixlen;
};
struct route_cached {
    uint32_t gen;         /* valid while equal to ip_state.route_gen */
    uint64_t valid_until; /* when a learned path MTU ends */
    struct ipaddr dst;
    struct route route;
};
struct pmtu_entry {
    LIST_ENTRY(pmtu_entry) hash;
    TAILQ_ENTRY(pmtu_entry) age;
    struct ipaddr dst;
    uint32_t mtu;
    uint64_t expires_ns;
};

/* --- fragments: one of these a family --- */
struct frag_queue;
TAILQ_HEAD(frag_list, frag_queue);
struct frag_table {
    struct frag_queue *bucket[FRAG_BUCKETS];
    struct frag_list age; /* oldest first */
    uint32_t queues, frags;
    struct timer timer; /* for the oldest */
    struct weir_stack *stack;
};

struct neigh;
TAILQ_HEAD(neigh_list, neigh);
LIST_HEAD(neigh_bucket, neigh);
LIST_HEAD(pmtu_bucket, pmtu_entry);
TAILQ_HEAD(pmtu_list, pmtu_entry);

struct ip_state {
    const struct ip_proto *proto[256];
    struct netif *loopback;
    uint32_t netif_count, next_index;

    struct local4 *local4; /* LOCAL_MAX of each, in use: */
    struct local6 *local6;
    uint32_t local4_count, local6_count;

    struct route_entry routes[ROUTE_MAX]; /* longest prefix first */
    uint32_t route_count, route_gen;
    struct route_cached route_cache[1 << ROUTE_CACHE_BITS];

    struct pmtu_bucket pmtu_hash[PMTU_BUCKETS];
    struct pmtu_list pmtu_age; /* least recently lowered first */
    uint32_t pmtu_count;

    struct neigh_bucket neigh_hash[NEIGH_BUCKETS];
    struct neigh_list neigh_age; /* least recently made or confirmed first */
    uint32_t neigh_count;
    uint64_t arp_defended_ns; /* when an address was last defended (RFC 5227 2.4) */

    struct frag_table frag4, frag6;

    uint64_t icmp_window_ns; /* start of the second that icmp_rate_ok counts in */
    uint32_t icmp_count, icmp_jitter;

    uint64_t ip_id_used[65536 / 64];
    uint16_t ip_id_recent[IP_ID_RECENT];
    uint32_t ip_id_next;
};

/* --- netif.c --- */
int netif_add_loopback(struct weir_stack *s) NODISCARD;
void netif_destroy_all(struct weir_stack *s);
/* An address of nif to talk to dst from (RFC 6724 rules 1, 2, 8 of it); false: none of that family.
 */
bool netif_source_for(const struct netif *nif, const struct ipaddr *dst, struct ipaddr *src);
bool netif_has_addr(const struct netif *nif, const struct ipaddr *a);
/* An Ethernet frame around m (headroom in the first mbuf), queued. Consumes *m. 0 or -ENOBUFS. */
int netif_frame(struct netif *nif, struct mbuf **m, const uint8_t dst[ETH_ADDR_LEN], uint16_t type);

/* --- ip_input.c, ip6_input.c --- */
void ip4_input(struct netif *nif, struct mbuf **m);
void ip6_input(struct netif *nif, struct mbuf **m);
/* True when somebody takes packets of info's protocol (each ICMP in its own family only). */
static inline bool ip_is_served(const struct weir_stack *s, const struct ip_info *info)
{
    return s->ip->proto[info->proto] != NULL &&
           info->proto != (info->src.family == AF_INET ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}
/* Hand to the transport, which serves the protocol. Consumes *m. */
static inline void ip_deliver(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    s->ip->proto[info->proto]->input(s, m, info);
}
bool ip4_is_broadcast(const struct weir_stack *s, uint32_t addr_be);

/* --- ip_route.c --- */
/* Netif, next hop, path MTU and default source of dst; borrowed until the next call. NULL: *error.
 */
const struct route *route_lookup(struct weir_stack *s, const struct ipaddr *dst, int *error);
void route_netif_gone(struct weir_stack *s, const struct netif *nif);
void route_fini(struct weir_stack *s);
static inline void route_changed(struct weir_stack *s)
{
    s->ip->route_gen++;
}

/* --- ip_frag.c --- */
struct frag_piece {
    struct ip_info info;
    uint32_t id;
    uint32_t off; /* bytes */
    bool more;
    uint8_t next; /* IPv6: next header as the fragment header says */
};
void frag_init(struct weir_stack *s);
void frag_fini(struct weir_stack *s);
/* Add one fragment (m_data at its payload, which is all of m). Consumes *m. The whole datagram
 * (owned) when this was the last piece, p then describes it (info and next of its first fragment);
 * else NULL. */
struct mbuf *frag_input(struct weir_stack *s, struct mbuf **m, struct frag_piece *p);

/* --- ip_output.c --- */
/* An IPv4 id that was not given out lately and does not show how many were. */
uint16_t ip_id_new(struct weir_stack *s);

/* --- neigh.c --- */
void neigh_init(struct weir_stack *s);
void neigh_netif_gone(struct netif *nif);
/* Frame and queue m for a unicast next hop, or hold it while the neighbour is asked for. Consumes
 * *m. */
int neigh_output(struct netif *nif, const struct ipaddr *nexthop, struct mbuf **m);
/* True while the neighbour counts as unreachable. */
bool neigh_has_failed(struct netif *nif, const struct ipaddr *nexthop);
/* It no longer counts as reachable. */
void neigh_doubt(struct netif *nif, const struct ipaddr *nexthop);
void neigh_announce(struct netif *nif, const struct ipaddr *a);
void arp_input(struct netif *nif, struct mbuf **m);
/* A neighbour solicitation or advertisement, checksum verified. m borrowed. */
void nd_input(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info, uint8_t code);

/* --- mld.c: the groups of our addresses, for switches that snoop --- */
void mld_start(struct netif *nif);
void mld_stop(struct netif *nif);
void mld_changed(struct netif *nif); /* an IPv6 address was added */
/* A listener query, checksum verified. m borrowed. */
void mld_query(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info);

/* --- icmp.c, icmp6.c --- */
extern const struct ip_proto icmp4_proto, icmp6_proto;
/* Message of type, code and `rest` that quotes the packet of m and info, sent back to its source;
 * rate limited. */
void icmp4_send_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                      uint8_t type, uint8_t code);
void icmp6_send_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                      uint8_t type, uint8_t code, uint32_t rest);
/* The IP header and up to `limit` bytes in all of the packet; NULL when the header is not there any
 * more. */
struct mbuf *icmp_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                        uint32_t limit);
/* Send 8 bytes of header (its sum is computed) and `body` (consumed, may be NULL) as a says; a->src
 * any: chosen. */
struct icmp_header;
void icmp_send_message(struct weir_stack *s, const struct icmp_header *h, struct mbuf *body,
                       struct ip_output_args *a);
/* Answer an echo request: the same bytes with another type. Consumes *m (at the ICMP header). */
void icmp_echo_reply(struct weir_stack *s, struct mbuf **m, const struct ip_info *info,
                     uint8_t type);
/* Fill flow's ports and hand e to the protocol that sent the quoted packet. */
void icmp_report(struct weir_stack *s, uint8_t proto, struct icmp_error *e);
/* Send an ICMPv6 message (m_data at it, checksum field 0) on one interface, hop limit 255. Consumes
 * *m. */
void icmp6_output_on(struct netif *nif, struct mbuf **m, const struct ipaddr *src,
                     const struct ipaddr *dst);

#endif
