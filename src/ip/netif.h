/* SPDX-License-Identifier: BSD-2-Clause
 * Interfaces: where a stack meets a link; Ethernet framing, addresses, the transmit queue. */
#ifndef WEIR_IP_NETIF_H
#define WEIR_IP_NETIF_H

#include "base/stack.h"
#include "buf/mbuf.h"
#include "wire/addr.h"

/* What the link takes and vouches for. */
#define NETIF_CAP_L3 0x01 /* frames are bare IP packets: no Ethernet, no ARP or ND */
#define NETIF_CAP_LOOPBACK 0x02
#define NETIF_CAP_CSUM_TX 0x04 /* takes CSUM_L4_PARTIAL packets */
#define NETIF_CAP_CSUM_RX 0x08 /* marks received packets CSUM_L4_VALID itself */
#define NETIF_CAP_TSO4 0x10    /* takes superframes */
#define NETIF_CAP_TSO6 0x20

/* A link, seen from the stack. All calls are made by the owner of the stack the link is attached
 * to, but for kick, which is called after the owner has let go. */
struct netif_ops {
    /* Take up to n frames, in order; returns how many were taken (those are consumed, their
     * pointers nulled). */
    size_t (*tx)(void *link, struct mbuf **frames, size_t n, uint64_t now_ns);
    /* Fill up to n received frames (owned by the caller then, m_pkt complete); returns how many. */
    size_t (*rx)(void *link, struct mbuf **frames, size_t n, uint64_t now_ns);
    /* The next moment at which rx or tx must be called though nothing arrives (emulated delay);
     * TIME_NEVER. */
    uint64_t (*next_deadline)(void *link);
    /* Called without ownership after frames were sent: run or wake the peer (memory links). May be
     * NULL. */
    void (*kick)(void *link);
    /* Readable descriptor for sleeping on; -1: none (memory links set OWNER_LINK_READY). May be
     * NULL. */
    int (*fd)(void *link);
    /* True when frames are waiting: asked by a driver that is about to sleep. */
    bool (*pending)(void *link);
    /* True when the answer to what was sent is likely to wait; a look at memory. Asked after a
     * socket call has sent, so that its thread takes it without another being woken. May be NULL.
     */
    bool (*hint)(void *link);
    bool pending_is_cheap; /* a look at memory: asked by spinning drivers, of links with fd too */
    bool deadlines_are_exact;  /* next_deadline must not be missed by a millisecond (emulation) */
    void (*close)(void *link); /* frees the link */
};

#define NETIF_MAX 64 /* interfaces of a stack */
#define NETIF_MAX_ADDRS 8
#define NETIF_TXQ_MAX                                                                              \
    4096 /* frames waiting for a link that does not take them; beyond: dropped and counted */

struct netif_addr {
    struct ipaddr addr; /* family 0: free */
    uint8_t prefixlen;
};

struct netif {
    struct netif *next;
    struct weir_stack *stack;
    const struct netif_ops *ops;
    void *link;
    uint32_t index; /* 1 = loopback */
    uint32_t caps;
    char name[16];
    uint8_t mac[6];
    uint32_t mtu; /* IP packet, bytes */
    struct netif_addr addrs[NETIF_MAX_ADDRS];
    struct mbuf *txq, **txq_tail; /* frames not yet taken, by m_nextpkt */
    uint32_t txq_len;
    uint32_t txq_shown; /* of them, how many the hook for frames has seen */
    bool kick_needed;   /* frames went out since the last kick */
    bool up;
    struct neigh *neigh_last; /* the neighbour of the last packet: private to neigh.c */
    struct timer mld_timer;   /* private to mld.c, with these: */
    bool mld_repeat, mld_v1;
};

struct netif_config {
    const char *name;
    const struct netif_ops *ops;
    void *link; /* taken over: ops->close frees it */
    uint32_t caps, mtu;
    uint8_t mac[6];
};

/* Attach a link. By the owner. The loopback interface is made by ip_init, not with this. NULL: no
 * memory or too many interfaces (the link is not taken over). */
struct netif *netif_create(struct weir_stack *s, const struct netif_config *cfg) NODISCARD;
void netif_destroy(struct netif *nif); /* drops queued frames, closes the link */
/* Add an address and its prefix route, and announce it (gratuitous ARP, unsolicited advertisement).
 * The first IPv6 address on an Ethernet interface brings a link-local one (EUI-64) with it. 0,
 * -EEXIST, -ENOSPC, -EINVAL, -ENOMEM. */
int netif_add_addr(struct netif *nif, const struct ipaddr *a, unsigned prefixlen) NODISCARD;
struct netif *netif_find(struct weir_stack *s, uint32_t index);
/* The interface that holds address a (multicast groups joined count not); NULL: not ours. */
struct netif *netif_of_addr(struct weir_stack *s, const struct ipaddr *a);

/* Send one IP packet (m_data at the IP header) to the next hop: resolves the neighbour (may hold
 * the packet), frames it, queues it. Consumes *m. 0, -ENOBUFS, -EHOSTUNREACH. */
int netif_output(struct netif *nif, const struct ipaddr *nexthop, struct mbuf **m);
/* Queue a complete frame. Consumes *m. */
void netif_enqueue(struct netif *nif, struct mbuf **m);
/* Offer the queue to the link, in bursts. */
void netif_flush(struct netif *nif);
/* One frame from the link: Ethernet or bare IP. Consumes *m. */
void netif_input(struct netif *nif, struct mbuf **m);
/* Take up to `max` frames from the link and process them; returns how many. For the loopback
 * interface: takes from its queue (netif_flush leaves that alone). */
size_t netif_poll(struct netif *nif, size_t max);

#endif
