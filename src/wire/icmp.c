/* SPDX-License-Identifier: BSD-2-Clause
 * ICMP headers and neighbour discovery messages. */
#include "icmp.h"

#include "wire.h"

#define ND_OPT_SOURCE_LLADDR 1
#define ND_OPT_TARGET_LLADDR 2
#define ND_OPT_UNIT 8 /* option lengths count in these */
#define ND_TARGET_OFF 8
#define ND_FLAGS (ND_FLAG_ROUTER | ND_FLAG_SOLICITED | ND_FLAG_OVERRIDE)

int icmp_header_parse(const uint8_t *p, size_t len, struct icmp_header *h)
{
    if (len < ICMP_HEADER_LEN)
        return -EMSGSIZE;
    h->type = p[0];
    h->code = p[1];
    memcpy(&h->sum, p + 2, 2);
    h->rest = get_be32(p + 4);
    return 0;
}

void icmp_header_build(uint8_t *p, const struct icmp_header *h)
{
    p[0] = h->type;
    p[1] = h->code;
    memcpy(p + 2, &h->sum, 2);
    put_be32(p + 4, h->rest);
}

static uint8_t lladdr_option(uint8_t type)
{
    return type == ICMP6_NEIGHBOR_SOLICIT ? ND_OPT_SOURCE_LLADDR : ND_OPT_TARGET_LLADDR;
}

int nd_neighbor_parse(const uint8_t *p, size_t len, struct nd_neighbor *n)
{
    if (len < ND_NEIGHBOR_LEN)
        return -EMSGSIZE;
    n->type = p[0];
    n->flags = n->type == ICMP6_NEIGHBOR_ADVERT ? get_be32(p + 4) & ND_FLAGS : 0;
    n->target = (struct ipaddr){.family = AF_INET6};
    memcpy(n->target.b, p + ND_TARGET_OFF, 16);
    n->has_lladdr = false;
    if (ipaddr_is_multicast(&n->target))
        return -EINVAL;
    for (size_t i = ND_NEIGHBOR_LEN; i < len;) {
        size_t size = len - i < 2 ? 0 : (size_t)p[i + 1] * ND_OPT_UNIT;
        if (size == 0 || size > len - i)
            return -EINVAL;
        if (p[i] == lladdr_option(n->type) && size == ND_OPT_UNIT && !n->has_lladdr) {
            memcpy(n->lladdr, p + i + 2, ETH_ADDR_LEN);
            n->has_lladdr = true;
        }
        i += size;
    }
    return 0;
}

size_t nd_neighbor_build(uint8_t p[ND_NEIGHBOR_LEN + 8], const struct nd_neighbor *n)
{
    struct icmp_header h = {.type = n->type, .rest = n->flags};
    icmp_header_build(p, &h);
    memcpy(p + ND_TARGET_OFF, n->target.b, 16);
    if (!n->has_lladdr)
        return ND_NEIGHBOR_LEN;
    p[ND_NEIGHBOR_LEN] = lladdr_option(n->type);
    p[ND_NEIGHBOR_LEN + 1] = 1;
    memcpy(p + ND_NEIGHBOR_LEN + 2, n->lladdr, ETH_ADDR_LEN);
    return ND_NEIGHBOR_LEN + ND_OPT_UNIT;
}

struct ipaddr nd_solicited_node(const struct ipaddr *a)
{
    struct ipaddr g = {.family = AF_INET6, .scope = a->scope};
    g.b[0] = 0xff;
    g.b[1] = 0x02;
    g.b[11] = 0x01;
    g.b[12] = 0xff;
    memcpy(g.b + 13, a->b + 13, 3);
    return g;
}
