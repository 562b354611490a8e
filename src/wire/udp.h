/* SPDX-License-Identifier: BSD-2-Clause
 * The UDP header: parse and build (RFC 768). */
#ifndef WEIR_WIRE_UDP_H
#define WEIR_WIRE_UDP_H

#include "base/base.h"

#define UDP_HEADER_LEN 8

struct udp_header {
    uint16_t sport, dport; /* host order */
    uint16_t len;          /* header and data, bytes */
    uint16_t sum;          /* as stored (memory order); 0: none (IPv4 only) */
};

/* avail: bytes of the header's IP payload (p must hold at least MIN(avail, 8)). 0; -EMSGSIZE no
 * whole header; -EBADMSG length below 8 or beyond `avail` (bytes behind it are padding). */
int udp_header_parse(const uint8_t *p, size_t avail, struct udp_header *h) NODISCARD;
void udp_header_build(uint8_t *p, const struct udp_header *h); /* sum as given */

#endif
