/* SPDX-License-Identifier: BSD-2-Clause
 * The UDP header. */
#include "udp.h"

#include "wire.h"

int udp_header_parse(const uint8_t *p, size_t avail, struct udp_header *h)
{
    if (avail < UDP_HEADER_LEN)
        return -EMSGSIZE;
    h->sport = get_be16(p);
    h->dport = get_be16(p + 2);
    h->len = get_be16(p + 4);
    memcpy(&h->sum, p + 6, 2);
    return h->len < UDP_HEADER_LEN || h->len > avail ? -EBADMSG : 0;
}

void udp_header_build(uint8_t *p, const struct udp_header *h)
{
    put_be16(p, h->sport);
    put_be16(p + 2, h->dport);
    put_be16(p + 4, h->len);
    memcpy(p + 6, &h->sum, 2);
}
