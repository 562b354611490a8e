/* SPDX-License-Identifier: BSD-2-Clause
 * AF_PACKET: a station of its own on an existing Ethernet interface (veth, bridge port, NIC). */
#ifndef WEIR_LINK_LINK_PACKET_H
#define WEIR_LINK_LINK_PACKET_H

#include "link.h"

struct link_packet_config {
    const char *ifname;
    uint32_t mtu;                  /* 0: the interface's; never more than that */
    const uint8_t *mac;            /* of Weir's end; NULL: random and locally administered */
    const struct netif_addr *addr; /* addresses that the stack will use, borrowed */
    unsigned addr_count;
    uint32_t ring_bytes; /* of the receive ring; 0: LINK_PACKET_RING */
};

#define LINK_PACKET_RING (4u << 20)

/* Open a packet socket on an interface that is up.
 * end      filled on success; owned by the caller
 * err      a message in English on failure
 * returns  0; -EPERM no CAP_NET_RAW, -ENODEV no such interface, -ENETDOWN it is down, -EADDRINUSE
 *          the kernel holds one of the addresses on it (and would answer with resets), -EINVAL not
 *          Ethernet or mtu too large, -ENOMEM or what the kernel said */
int link_packet_open(struct weir_stack *s, const struct link_packet_config *cfg,
                     struct link_end *end, char *err, size_t err_size) NODISCARD;

#endif
