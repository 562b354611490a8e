/* SPDX-License-Identifier: BSD-2-Clause
 * ARP for IPv4 over Ethernet (RFC 826): parse and build. */
#ifndef WEIR_WIRE_ARP_H
#define WEIR_WIRE_ARP_H

#include "addr.h"
#include "base/base.h"
#include "eth.h"

#define ARP_LEN 28
#define ARP_REQUEST 1
#define ARP_REPLY 2

struct arp_packet {
    uint16_t op; /* ARP_REQUEST, ARP_REPLY; others are refused by the parser */
    uint8_t sha[ETH_ADDR_LEN], tha[ETH_ADDR_LEN];
    struct ipaddr spa, tpa;
};

/* 0; -EMSGSIZE too short; -EINVAL not IPv4 over Ethernet, or another operation. */
int arp_parse(const uint8_t *p, size_t len, struct arp_packet *a) NODISCARD;
void arp_build(uint8_t p[ARP_LEN], const struct arp_packet *a);

#endif
