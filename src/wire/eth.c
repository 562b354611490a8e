/* SPDX-License-Identifier: BSD-2-Clause
 * Ethernet framing. */
#include "eth.h"

#include "wire.h"

const uint8_t eth_broadcast[ETH_ADDR_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

int eth_header_parse(const uint8_t *p, size_t len, struct eth_header *h)
{
    if (len < ETH_HEADER_LEN)
        return -EMSGSIZE;
    memcpy(h->dst, p, ETH_ADDR_LEN);
    memcpy(h->src, p + 6, ETH_ADDR_LEN);
    h->type = get_be16(p + 12);
    return 0;
}

void eth_header_build(uint8_t *p, const struct eth_header *h)
{
    memcpy(p, h->dst, ETH_ADDR_LEN);
    memcpy(p + 6, h->src, ETH_ADDR_LEN);
    put_be16(p + 12, h->type);
}

bool eth_is_broadcast(const uint8_t mac[ETH_ADDR_LEN])
{
    return memcmp(mac, eth_broadcast, ETH_ADDR_LEN) == 0;
}

bool eth_is_multicast(const uint8_t mac[ETH_ADDR_LEN])
{
    return mac[0] & 1;
}

void eth_of_multicast(const struct ipaddr *group, uint8_t mac[ETH_ADDR_LEN])
{
    if (group->family == AF_INET) {
        static const uint8_t prefix[3] = {0x01, 0x00, 0x5e};
        memcpy(mac, prefix, sizeof(prefix));
        mac[3] = group->b[1] & 0x7f;
        mac[4] = group->b[2];
        mac[5] = group->b[3];
    } else {
        mac[0] = 0x33;
        mac[1] = 0x33;
        memcpy(mac + 2, group->b + 12, 4);
    }
}
