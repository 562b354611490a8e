/* SPDX-License-Identifier: BSD-2-Clause
 * The IPv4 header and its options: parse and build (RFC 791). */
#ifndef WEIR_WIRE_IPV4_H
#define WEIR_WIRE_IPV4_H

#include "addr.h"
#include "base/base.h"

#define IPV4_HEADER_LEN 20
#define IPV4_MAX_HEADER_LEN 60

struct ipv4_header {
    uint8_t hlen; /* header with options, bytes (ihl * 4) */
    uint8_t tos;
    uint16_t len; /* total length, bytes, host order as all of them */
    uint16_t id;
    uint16_t frag_off; /* bytes */
    bool df, mf;
    uint8_t ttl, proto;
    uint16_t sum; /* as stored in the packet (memory order); ignored by build */
    struct ipaddr src, dst;
};

/* Validates all lengths against the `len` bytes at hand (more than the total length is padding).
 * The checksum is not looked at: ipv4_sum_is_ok. 0; -EMSGSIZE fewer bytes than a header; -EPROTO
 * version is not 4; -EINVAL header length below 20 or beyond the packet; -EBADMSG total length
 * below the header length or beyond `len`. */
int ipv4_header_parse(const uint8_t *p, size_t len, struct ipv4_header *h) NODISCARD;
/* True when the checksum of the hlen bytes of header is right. */
bool ipv4_sum_is_ok(const uint8_t *p, size_t hlen);
/* Write 20 bytes (h->hlen must be 20) with their checksum. */
void ipv4_header_build(uint8_t *p, const struct ipv4_header *h);
/* Recompute the checksum of a header that was changed in place. */
void ipv4_sum_update(uint8_t *p, size_t hlen);

/* What ipv4_options_scan saw. */
#define IPV4_OPT_SOURCE_ROUTE 0x1 /* loose or strict */
#define IPV4_OPT_RECORD 0x2       /* record route or timestamp */
#define IPV4_OPT_ALERT 0x4        /* router alert */
#define IPV4_OPT_OTHER 0x8
/* Walk the options of a header (p, hlen as parsed). 0 with *seen; -EINVAL malformed, *bad is then
 * the offset of the bad byte from the start of the header (the pointer of a parameter problem). */
int ipv4_options_scan(const uint8_t *p, size_t hlen, unsigned *seen, unsigned *bad) NODISCARD;

#endif
