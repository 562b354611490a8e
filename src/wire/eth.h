/* SPDX-License-Identifier: BSD-2-Clause
 * Ethernet II framing: parse and build; station addresses. */
#ifndef WEIR_WIRE_ETH_H
#define WEIR_WIRE_ETH_H

#include "addr.h"
#include "base/base.h"

#define ETH_ADDR_LEN 6
#define ETH_HEADER_LEN 14
#define ETH_TYPE_IPV4 0x0800
#define ETH_TYPE_ARP 0x0806
#define ETH_TYPE_IPV6 0x86dd

struct eth_header {
    uint8_t dst[ETH_ADDR_LEN], src[ETH_ADDR_LEN];
    uint16_t type; /* host order; ETH_TYPE_* or, below 1536, an IEEE 802.3 length */
};

extern const uint8_t eth_broadcast[ETH_ADDR_LEN];

/* 0; -EMSGSIZE shorter than the header. */
int eth_header_parse(const uint8_t *p, size_t len, struct eth_header *h) NODISCARD;
void eth_header_build(uint8_t *p, const struct eth_header *h);
bool eth_is_broadcast(const uint8_t mac[ETH_ADDR_LEN]);
bool eth_is_multicast(const uint8_t mac[ETH_ADDR_LEN]); /* the group bit: true for broadcast too */
/* The station address that a multicast address maps to (RFC 1112 6.4, RFC 2464 7). */
void eth_of_multicast(const struct ipaddr *group, uint8_t mac[ETH_ADDR_LEN]);

#endif
