/* SPDX-License-Identifier: BSD-2-Clause
 * ARP. */
#include "arp.h"

#include "wire.h"

#define ARP_HW_ETHERNET 1

int arp_parse(const uint8_t *p, size_t len, struct arp_packet *a)
{
    if (len < ARP_LEN)
        return -EMSGSIZE;
    if (get_be16(p) != ARP_HW_ETHERNET || get_be16(p + 2) != ETH_TYPE_IPV4 ||
        p[4] != ETH_ADDR_LEN || p[5] != 4)
        return -EINVAL;
    a->op = get_be16(p + 6);
    memcpy(a->sha, p + 8, ETH_ADDR_LEN);
    a->spa = ipaddr_v4(get_be32(p + 14));
    memcpy(a->tha, p + 18, ETH_ADDR_LEN);
    a->tpa = ipaddr_v4(get_be32(p + 24));
    return a->op == ARP_REQUEST || a->op == ARP_REPLY ? 0 : -EINVAL;
}

void arp_build(uint8_t p[ARP_LEN], const struct arp_packet *a)
{
    put_be16(p, ARP_HW_ETHERNET);
    put_be16(p + 2, ETH_TYPE_IPV4);
    p[4] = ETH_ADDR_LEN;
    p[5] = 4;
    put_be16(p + 6, a->op);
    memcpy(p + 8, a->sha, ETH_ADDR_LEN);
    memcpy(p + 14, a->spa.b, 4);
    memcpy(p + 18, a->tha, ETH_ADDR_LEN);
    memcpy(p + 24, a->tpa.b, 4);
}
