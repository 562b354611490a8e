/* SPDX-License-Identifier: BSD-2-Clause
 * The IPv4 header. */
#include "ipv4.h"

#include "checksum.h"
#include "wire.h"

#define FLAG_DF 0x4000
#define FLAG_MF 0x2000
#define OFFSET_MASK 0x1fff

enum {
    OPT_EOL = 0,
    OPT_NOP = 1,
    OPT_RR = 7,
    OPT_TS = 68,
    OPT_LSRR = 131,
    OPT_SSRR = 137,
    OPT_RA = 148
};

int ipv4_header_parse(const uint8_t *p, size_t len, struct ipv4_header *h)
{
    if (len < IPV4_HEADER_LEN)
        return -EMSGSIZE;
    if (p[0] >> 4 != 4)
        return -EPROTO;
    h->hlen = (uint8_t)((p[0] & 0x0f) * 4);
    if (h->hlen < IPV4_HEADER_LEN || h->hlen > len)
        return -EINVAL;
    h->tos = p[1];
    h->len = get_be16(p + 2);
    if (h->len < h->hlen || h->len > len)
        return -EBADMSG;
    h->id = get_be16(p + 4);
    uint16_t frag = get_be16(p + 6);
    h->df = frag & FLAG_DF;
    h->mf = frag & FLAG_MF;
    h->frag_off = (uint16_t)((frag & OFFSET_MASK) * 8);
    h->ttl = p[8];
    h->proto = p[9];
    memcpy(&h->sum, p + 10, 2);
    h->src = ipaddr_v4(get_be32(p + 12));
    h->dst = ipaddr_v4(get_be32(p + 16));
    return 0;
}

bool ipv4_sum_is_ok(const uint8_t *p, size_t hlen)
{
    return checksum_fold(checksum_add(p, hlen, 0)) == 0xffff;
}

void ipv4_sum_update(uint8_t *p, size_t hlen)
{
    memset(p + 10, 0, 2);
    uint16_t sum = (uint16_t)~checksum_fold(checksum_add(p, hlen, 0));
    memcpy(p + 10, &sum, 2);
}

void ipv4_header_build(uint8_t *p, const struct ipv4_header *h)
{
    CHECK(h->hlen == IPV4_HEADER_LEN && h->frag_off % 8 == 0);
    p[0] = 0x45;
    p[1] = h->tos;
    put_be16(p + 2, h->len);
    put_be16(p + 4, h->id);
    put_be16(p + 6, (uint16_t)((h->df ? FLAG_DF : 0) | (h->mf ? FLAG_MF : 0) | h->frag_off / 8));
    p[8] = h->ttl;
    p[9] = h->proto;
    memcpy(p + 12, h->src.b, 4);
    memcpy(p + 16, h->dst.b, 4);
    ipv4_sum_update(p, IPV4_HEADER_LEN);
}

int ipv4_options_scan(const uint8_t *p, size_t hlen, unsigned *seen, unsigned *bad)
{
    *seen = 0;
    for (size_t i = IPV4_HEADER_LEN; i < hlen && p[i] != OPT_EOL;) {
        if (p[i] == OPT_NOP) {
            i++;
            continue;
        }
        *bad = (unsigned)i;
        if (hlen - i < 2)
            return -EINVAL;
        uint8_t len = p[i + 1];
        *bad = (unsigned)i + 1;
        if (len < 2 || len > hlen - i)
            return -EINVAL;
        switch (p[i]) {
        case OPT_LSRR:
        case OPT_SSRR:
            *seen |= IPV4_OPT_SOURCE_ROUTE;
            break;
        case OPT_RR:
        case OPT_TS:
            *seen |= IPV4_OPT_RECORD;
            break;
        case OPT_RA:
            *seen |= IPV4_OPT_ALERT;
            break;
        default:
            *seen |= IPV4_OPT_OTHER;
            break;
        }
        i += len;
    }
    return 0;
}
