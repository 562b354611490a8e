/* SPDX-License-Identifier: BSD-2-Clause
 * The IPv6 header and the walk over its extension headers. */
#include "ipv6.h"

#include "wire.h"

#define NEXT_OFF 6 /* of the next-header byte in the IPv6 header */
#define OPT_PAD1 0
#define OPT_PADN 1
#define MAX_PAD                                                                                    \
    7 /* more padding than alignment can need is a covert channel or an attack on the walker */

int ipv6_header_parse(const uint8_t *p, size_t len, struct ipv6_header *h)
{
    if (len < IPV6_HEADER_LEN)
        return -EMSGSIZE;
    uint32_t first = get_be32(p);
    if (first >> 28 != 6)
        return -EPROTO;
    h->tclass = (uint8_t)(first >> 20);
    h->flow = first & 0xfffff;
    h->plen = get_be16(p + 4);
    if (h->plen > len - IPV6_HEADER_LEN)
        return -EBADMSG;
    h->next = p[NEXT_OFF];
    h->hlim = p[7];
    h->src = (struct ipaddr){.family = AF_INET6};
    memcpy(h->src.b, p + 8, 16);
    h->dst = (struct ipaddr){.family = AF_INET6};
    memcpy(h->dst.b, p + 24, 16);
    return 0;
}

void ipv6_header_build(uint8_t *p, const struct ipv6_header *h)
{
    put_be32(p, UINT32_C(6) << 28 | (uint32_t)h->tclass << 20 | (h->flow & 0xfffff));
    put_be16(p + 4, h->plen);
    p[NEXT_OFF] = h->next;
    p[7] = h->hlim;
    memcpy(p + 8, h->src.b, 16);
    memcpy(p + 24, h->dst.b, 16);
}

void ipv6_walk_init(struct ipv6_walk *w, const struct ipv6_header *h)
{
    *w = (struct ipv6_walk){.next = h->next,
                            .off = IPV6_HEADER_LEN,
                            .next_off = NEXT_OFF,
                            .dst_multicast = ipaddr_is_multicast(&h->dst)};
}

static enum ipv6_walk_result param_problem(struct ipv6_walk *w, uint8_t code, uint32_t pointer)
{
    w->code = code;
    w->pointer = pointer;
    return IPV6_WALK_PARAM;
}

/* The options of a hop-by-hop or destination options header that ends at `end` (RFC 8200 4.2).
 * UPPER: all are to be skipped. */
static enum ipv6_walk_result walk_options(const uint8_t *p, uint32_t end, struct ipv6_walk *w)
{
    unsigned options = 0, pad = 0;
    for (uint32_t i = w->off + 2; i < end;) {
        if (p[i] == OPT_PAD1) {
            i++;
            if (++pad > MAX_PAD)
                return IPV6_WALK_DROP;
            continue;
        }
        if (end - i < 2 || p[i + 1] > end - i - 2)
            return param_problem(w, 0, i); /* no length byte, or one that leads out of the header */
        uint32_t len = 2 + (uint32_t)p[i + 1];
        if (p[i] == OPT_PADN) {
            pad += len;
            if (pad > MAX_PAD)
                return IPV6_WALK_DROP;
            i += len;
            continue;
        }
        pad = 0;
        if (++options > IPV6_MAX_EXT_OPTIONS)
            return IPV6_WALK_DROP;
        /* No option is known here: the two highest bits of its type say what to do. */
        switch (p[i] >> 6) {
        case 0:
            break;
        case 1:
            return IPV6_WALK_DROP;
        case 2:
            return param_problem(w, 2, i);
        default:
            return w->dst_multicast ? IPV6_WALK_DROP : param_problem(w, 2, i);
        }
        i += len;
    }
    return IPV6_WALK_UPPER;
}

enum ipv6_walk_result ipv6_walk(const uint8_t *p, size_t len, struct ipv6_walk *w)
{
    for (;;) {
        uint8_t type = w->next;
        if (type == IPV6_NH_NONE)
            return IPV6_WALK_NONE;
        if (type == IPV6_NH_FRAGMENT)
            return w->off + IPV6_FRAG_HEADER_LEN <= len ? IPV6_WALK_FRAGMENT : IPV6_WALK_DROP;
        if (type != IPV6_NH_HOPOPTS && type != IPV6_NH_ROUTING && type != IPV6_NH_DSTOPTS)
            return IPV6_WALK_UPPER;
        if (type == IPV6_NH_HOPOPTS && w->next_off != NEXT_OFF)
            return param_problem(
                w, 1, w->next_off); /* it stands right behind the IPv6 header or nowhere */
        if (++w->headers > IPV6_MAX_EXT_HEADERS || len < 8 || w->off > len - 8)
            return IPV6_WALK_DROP;
        uint32_t size = ((uint32_t)p[w->off + 1] + 1) * 8;
        uint32_t end = w->off + size;
        if (end > len || end > IPV6_HEADER_LEN + IPV6_MAX_EXT_BYTES)
            return IPV6_WALK_DROP;
        if (type == IPV6_NH_ROUTING) {
            /* No type is served; one with no segments left is passed over (RFC 8200 4.4). */
            if (p[w->off + 3] != 0)
                return param_problem(w, 0, w->off + 2);
        } else {
            enum ipv6_walk_result r = walk_options(p, end, w);
            if (r != IPV6_WALK_UPPER)
                return r;
        }
        w->next_off = w->off;
        w->next = p[w->off];
        w->off = end;
    }
}

int ipv6_fragment_parse(const uint8_t *p, size_t len, struct ipv6_fragment *f)
{
    if (len < IPV6_FRAG_HEADER_LEN)
        return -EMSGSIZE;
    uint16_t off = get_be16(p + 2);
    f->next = p[0];
    f->off = off & 0xfff8;
    f->more = off & 1;
    f->id = get_be32(p + 4);
    return 0;
}

void ipv6_fragment_build(uint8_t p[IPV6_FRAG_HEADER_LEN], const struct ipv6_fragment *f)
{
    CHECK(f->off % 8 == 0);
    p[0] = f->next;
    p[1] = 0;
    put_be16(p + 2, (uint16_t)(f->off | (f->more ? 1 : 0)));
    put_be32(p + 4, f->id);
}

void ipv6_walk_skip_fragment(struct ipv6_walk *w, const struct ipv6_fragment *f)
{
    CHECK(w->next == IPV6_NH_FRAGMENT);
    w->headers++;
    w->next = f->next;
    w->next_off = w->off;
    w->off += IPV6_FRAG_HEADER_LEN;
}
