/* SPDX-License-Identifier: BSD-2-Clause
 * Builds frames of every kind, whole and right at first, then as the input will have them. */
#include "fuzz_frame.h"

#include "wire/arp.h"
#include "wire/checksum.h"
#include "wire/eth.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"
#include "wire/wire.h"

#define FRONT 1024 /* room for all headers in front of a transport header */
#define FRAGMENTS_MAX 70

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};
static uint8_t area[FRONT + 66000];

/* A packet while it is built. */
struct build {
    struct fuzz_world *w;
    struct fuzz_in *in;
    unsigned how;
    struct ipaddr src, dst;
    uint8_t proto;
    uint8_t *p; /* its start now */
    uint32_t len;
};

/* --- checksums, wherever the headers are now --- */
static void store_sum(uint8_t *at, uint64_t sum)
{
    uint16_t folded = (uint16_t)~checksum_fold(sum);
    memcpy(at, &folded, 2);
}

static void fix_transport(const struct ipaddr *src, const struct ipaddr *dst, uint8_t proto,
                          uint8_t *l4, uint32_t len)
{
    uint32_t at = proto == IPPROTO_TCP ? 16 : proto == IPPROTO_UDP ? 6 : 2;
    bool icmp = proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6;
    if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP && !icmp) || len < at + 2)
        return;
    memset(l4 + at, 0, 2);
    uint64_t sum = proto == IPPROTO_ICMP ? 0 : checksum_pseudo(src, dst, proto, len);
    store_sum(l4 + at, checksum_add(l4, len, sum));
}

/* Over the packet as its own headers describe it. */
static void fix_sums(uint8_t *p, uint32_t len)
{
    struct ipaddr src = {0}, dst = {0};
    if (len >= 20 && p[0] >> 4 == 4) {
        uint32_t hlen = (p[0] & 15u) * 4, total = MIN(get_be16(p + 2), len);
        if (hlen < 20 || hlen > len)
            return;
        src.family = dst.family = AF_INET;
        memcpy(src.b, p + 12, 4);
        memcpy(dst.b, p + 16, 4);
        if (total > hlen && !(get_be16(p + 6) & 0x3fff))
            fix_transport(&src, &dst, p[9], p + hlen, total - hlen);
        memset(p + 10, 0, 2);
        store_sum(p + 10, checksum_add(p, hlen, 0));
        return;
    }
    struct ipv6_header h;
    if (len < 40 || ipv6_header_parse(p, len, &h))
        return;
    struct ipv6_walk walk;
    ipv6_walk_init(&walk, &h);
    uint32_t end = 40u + h.plen;
    if (ipv6_walk(p, end, &walk) == IPV6_WALK_UPPER && walk.off < end)
        fix_transport(&h.src, &h.dst, walk.next, p + walk.off, end - walk.off);
}

/* --- headers in front --- */
static void prepend(struct build *b, const void *bytes, uint32_t n)
{
    b->p -= n;
    b->len += n;
    memcpy(b->p, bytes, n);
}

static void extension_headers(struct build *b)
{
    static const uint8_t kinds[] = {
        IPV6_NH_HOPOPTS, IPV6_NH_DSTOPTS, IPV6_NH_ROUTING, IPV6_NH_FRAGMENT, 51, 135};
    unsigned n = 1 + fuzz_u8(b->in) % 9;
    for (unsigned i = 0; i < n && b->p - area > 300; i++) {
        uint8_t pick = fuzz_u8(b->in), h[64] = {0};
        uint8_t kind = i + 1 == n && pick < 128 ? IPV6_NH_HOPOPTS : kinds[pick % NELEM(kinds)];
        uint32_t units = pick >= 0xf0 ? fuzz_u8(b->in) % 8u : 0;
        h[0] = b->proto;
        h[1] = (uint8_t)units;
        if (kind == IPV6_NH_FRAGMENT) {
            h[1] = 0;
            units = 0;
            put_be32(h + 4, fuzz_u8(b->in));
        } else if (pick & 0x40) {
            fuzz_bytes(b->in, h + 2, 6);
        } else if (kind != IPV6_NH_ROUTING) {
            h[2] = 1; /* PadN */
            h[3] = 4;
        }
        prepend(b, h, 8 + 8 * units);
        b->proto = kind;
    }
}

static void add_ip(struct build *b)
{
    if (b->src.family == AF_INET6 && (b->how & FUZZ_HOW_EXTENSIONS))
        extension_headers(b);
    uint8_t tos = b->how & FUZZ_HOW_ODD_ENDS ? fuzz_u8(b->in) : 0;
    uint8_t options[40];
    uint32_t n = 0;
    if (b->src.family == AF_INET && (b->how & FUZZ_HOW_EXTENSIONS)) {
        n = 4 * (1 + fuzz_below(b->in, 10));
        fuzz_bytes(b->in, options, n);
        prepend(b, options, n);
    }
    b->p = fuzz_ip_header(&b->src, &b->dst, b->proto, tos, b->p, &b->len);
    if (n)
        b->p[0] = (uint8_t)(0x45 + n / 4);
    if (b->src.family == AF_INET6 && b->proto == IPPROTO_ICMPV6)
        b->p[7] = 255;
    fix_sums(b->p, b->len);
}

/* --- to the link --- */
static void put_one(struct build *b, uint8_t *p, uint32_t len, uint16_t type)
{
    struct fuzz_shape shape = {.exact = b->how & FUZZ_HOW_EXACT};
    struct eth_header eh = {.type = type};
    memcpy(eh.dst, our_mac, 6);
    memcpy(eh.src, peer_mac, 6);
    if (b->how & FUZZ_HOW_ODD_ENDS) {
        switch (fuzz_u8(b->in)) {
        case 1:
            memset(eh.dst, 0xff, 6);
            break;
        case 2:
            eth_of_multicast(&b->dst, eh.dst);
            break;
        case 3:
            fuzz_bytes(b->in, eh.dst, 6);
            break;
        case 4:
            fuzz_bytes(b->in, eh.src, 6);
            break;
        default:
            break;
        }
    }
    if (b->how & FUZZ_HOW_CHAIN)
        shape.piece = (uint16_t)(1 + fuzz_u8(b->in));
    if (b->how & FUZZ_HOW_CUT) {
        uint32_t cut = fuzz_u8(b->in);
        len -= MIN(len, cut);
    }
    eth_header_build(p - ETH_HEADER_LEN, &eh);
    fuzz_link_put(&b->w->link, p - ETH_HEADER_LEN, len + ETH_HEADER_LEN, shape);
}

/* A piece [at, at + n) of the payload behind `head` bytes of header, as a fragment. */
static void put_fragment(struct build *b, uint32_t head, uint32_t at, uint32_t n, bool more,
                         uint8_t id)
{
    static uint8_t piece[FRONT + 66000];
    uint8_t *p = piece + 64;
    bool v4 = b->p[0] >> 4 == 4;
    uint32_t extra = v4 ? 0 : IPV6_FRAG_HEADER_LEN;
    memcpy(p, b->p, head);
    memcpy(p + head + extra, b->p + head + (at + n <= b->len - head ? at : 0), n);
    if (v4) {
        put_be16(p + 2, (uint16_t)(head + n));
        put_be16(p + 4, id);
        put_be16(p + 6, (uint16_t)(at / 8 | (more ? 0x2000 : 0)));
        memset(p + 10, 0, 2);
        store_sum(p + 10, checksum_add(p, head, 0));
    } else {
        struct ipv6_fragment f = {
            .next = p[6], .off = (uint16_t)(at & 0xfff8), .more = more, .id = id};
        ipv6_fragment_build(p + head, &f);
        put_be16(p + 4, (uint16_t)(n + extra));
        p[6] = IPV6_NH_FRAGMENT;
    }
    put_one(b, p, head + extra + n, v4 ? ETH_TYPE_IPV4 : ETH_TYPE_IPV6);
}

/* In pieces that may overlap, be missing, or come in any order. */
static void put_fragments(struct build *b)
{
    uint32_t head = b->p[0] >> 4 == 4 ? (b->p[0] & 15u) * 4 : 40;
    uint8_t style = fuzz_u8(b->in), id = fuzz_u8(b->in) & 3;
    uint32_t size = 8 + (fuzz_u8(b->in) & 0x7f) * 8u;
    if (head > b->len || head < 20)
        return;
    uint32_t payload = b->len - head, n = 0, last = payload / size;
    size = MAX(size, (payload / FRAGMENTS_MAX + 8) & ~7u);
    last = payload / size;
    for (uint32_t i = 0; i <= last && n < FRAGMENTS_MAX; i++, n++) {
        uint32_t k = style & 1 ? last - i : i, at = k * size, len = MIN(size, payload - at);
        bool more = k != last;
        if ((style & 2) && fuzz_u8(b->in) == 7)
            continue;
        if (style & 4) { /* disturbed */
            uint8_t what = fuzz_u8(b->in);
            if (what & 0x80)
                at = MIN(at, (what & 15) * 8u);
            if (what & 0x40)
                len = MIN(len + 8, payload - at);
            if ((what & 0x30) == 0x30)
                more = !more;
            if ((what & 0x30) == 0x20)
                len -= MIN(len, what & 7);
        }
        if ((style & 8) && k == last) /* far out */
            at += (65000 - at) & ~7u;
        if (at < payload + 65536)
            put_fragment(b, head, at, len, more, id);
    }
}

static void put_packet(struct build *b)
{
    uint16_t type = b->p[0] >> 4 == 6 ? ETH_TYPE_IPV6 : ETH_TYPE_IPV4;
    if (b->how & (FUZZ_HOW_CHANGED | FUZZ_HOW_BAD_SUM)) {
        unsigned n = 1 + (fuzz_u8(b->in) & 3);
        for (unsigned i = 0; i < n; i++) {
            uint32_t at = fuzz_u8(b->in); /* the headers, mostly */
            if (at >= 0xf0)
                at = fuzz_u16(b->in);
            uint8_t change = fuzz_u8(b->in);
            if (at < b->len)
                b->p[at] ^= change;
        }
        if (!(b->how & FUZZ_HOW_BAD_SUM))
            fix_sums(b->p, b->len);
    }
    if (b->how & FUZZ_HOW_FRAGMENTS)
        put_fragments(b);
    else
        put_one(b, b->p, b->len, type);
}

/* --- kinds --- */
static void choose_ends(struct build *b, bool v6)
{
    static const char *const odd[] = {
        "255.255.255.255", "10.0.0.255",     "224.0.0.1", "10.0.0.9", "0.0.0.0", "127.0.0.1",
        "ff02::1",         "ff02::1:ff00:1", "::",        "::1",      "fd00::9", "fe80::2",
        "fe80::ff:fe00:1", "::ffff:10.0.0.2"};
    b->src = v6 ? b->w->peer6 : b->w->peer4;
    b->dst = v6 ? b->w->local6 : b->w->local4;
    if (!(b->how & FUZZ_HOW_ODD_ENDS))
        return;
    uint8_t which = fuzz_u8(b->in);
    struct ipaddr a;
    FUZZ_CHECK(ipaddr_parse(odd[which % NELEM(odd)], &a) == 0);
    if (a.family != b->src.family)
        return;
    if (which & 0x40)
        b->src = a;
    else
        b->dst = a;
}

static void frame_tcp(struct build *b)
{
    struct fuzz_flow *f = fuzz_flow_pick(b->w, b->in);
    b->src = f->peer;
    b->dst = f->local;
    b->proto = IPPROTO_TCP;
    b->len = fuzz_flow_segment(b->w, b->in, f, b->p);
    add_ip(b);
    put_packet(b);
}

static void frame_udp(struct build *b)
{
    static const uint16_t ports[] = {53, 7, 80, 0};
    struct udp_header h = {.sport = 7};
    uint8_t family = fuzz_u8(b->in), port = fuzz_u8(b->in);
    choose_ends(b, family & 2);
    uint32_t len = UDP_HEADER_LEN + fuzz_u16(b->in) % 9000;
    h.dport = port < 200 ? ports[port % NELEM(ports)] : fuzz_u16(b->in);
    h.len = (uint16_t)len;
    memset(b->p, 'd', len);
    udp_header_build(b->p, &h);
    b->proto = IPPROTO_UDP;
    b->len = len;
    add_ip(b);
    put_packet(b);
}

static void frame_arp(struct build *b)
{
    uint8_t which = fuzz_u8(b->in);
    struct arp_packet a = {
        .op = which & 1 ? ARP_REPLY : ARP_REQUEST, .spa = b->w->peer4, .tpa = b->w->local4};
    memcpy(a.sha, peer_mac, 6);
    memcpy(a.tha, our_mac, 6);
    if (which & 2)
        a.spa.b[3] = fuzz_u8(b->in);
    if (which & 4)
        a.tpa.b[3] = fuzz_u8(b->in);
    if (which & 8)
        fuzz_bytes(b->in, a.sha, 6);
    arp_build(b->p, &a);
    b->len = ARP_LEN + (which & 16 ? 18 : 0);
    if (which & 32)
        b->p[fuzz_u8(b->in) % ARP_LEN] ^= fuzz_u8(b->in);
    put_one(b, b->p, b->len, ETH_TYPE_ARP);
}

static void frame_nd(struct build *b)
{
    uint8_t which = fuzz_u8(b->in);
    struct nd_neighbor n = {.type = which & 1 ? ICMP6_NEIGHBOR_ADVERT : ICMP6_NEIGHBOR_SOLICIT,
                            .target = which & 1 ? b->w->peer6 : b->w->local6,
                            .has_lladdr = !(which & 2)};
    choose_ends(b, true);
    n.flags = which & 1 ? ((uint32_t)which << 24) & 0xe0000000u : 0;
    memcpy(n.lladdr, peer_mac, 6);
    if (which & 4)
        fuzz_bytes(b->in, n.lladdr, 6);
    if (which & 8)
        n.target.b[15] = fuzz_u8(b->in);
    b->len = (uint32_t)nd_neighbor_build(b->p, &n);
    if (which & 16) { /* more options */
        uint32_t more = 8 * (fuzz_u8(b->in) & 15u);
        fuzz_bytes(b->in, b->p + b->len, more);
        b->len += more;
    }
    b->proto = IPPROTO_ICMPV6;
    add_ip(b);
    put_packet(b);
}

static void frame_echo(struct build *b)
{
    static const uint8_t types6[] = {ICMP6_ECHO, ICMP6_ECHO_REPLY,    130,
                                     131,        ICMP6_ROUTER_ADVERT, ICMP6_REDIRECT};
    static const uint8_t types4[] = {ICMP4_ECHO, ICMP4_ECHO_REPLY, ICMP4_REDIRECT, 13, 17, 9};
    uint8_t which = fuzz_u8(b->in);
    bool v6 = which & 1;
    struct icmp_header h = {.type = v6 ? types6[(which >> 1) % NELEM(types6)]
                                       : types4[(which >> 1) % NELEM(types4)]};
    choose_ends(b, v6);
    icmp_header_build(b->p, &h);
    b->len = ICMP_HEADER_LEN + fuzz_u16(b->in) % 3000;
    memset(b->p + ICMP_HEADER_LEN, 'e', b->len - ICMP_HEADER_LEN);
    b->proto = v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    add_ip(b);
    put_packet(b);
}

static void frame_quote(struct build *b)
{
    struct fuzz_world *w = b->w;
    uint8_t type = fuzz_u8(b->in), code = fuzz_u8(b->in);
    uint8_t size = fuzz_u8(b->in);
    uint16_t mtu = size < 128 ? (uint16_t)(500 + size * 16) : fuzz_u16(b->in);
    bool v6 = w->last_len && w->last[0] >> 4 == 6;
    static const uint8_t types4[] = {3, 11, 12, 4};
    struct icmp_header h = {
        .type = v6 ? 1 + type % 4 : types4[type % 4], .code = code & 15, .rest = mtu};
    if (type < 100) { /* most of all, too big */
        h.type = v6 ? ICMP6_TOOBIG : ICMP4_UNREACH;
        h.code = v6 ? 0 : ICMP4_UNREACH_FRAG_NEEDED;
    }
    choose_ends(b, v6);
    icmp_header_build(b->p, &h);
    uint32_t n = w->last_len;
    if (code & 0x80) {
        uint32_t cut = fuzz_u8(b->in);
        n = MIN(n, cut);
    }
    memcpy(b->p + ICMP_HEADER_LEN, w->last, n);
    if ((code & 0x40) && n)
        b->p[ICMP_HEADER_LEN + fuzz_u16(b->in) % n] ^= fuzz_u8(b->in);
    /* Extension headers inside the quote. */
    if ((code & 0x20) && v6 && n >= 48) {
        uint8_t *q = b->p + ICMP_HEADER_LEN;
        memmove(q + 48, q + 40, n - 40);
        memset(q + 40, 0, 8);
        q[40] = q[6];
        q[6] = (code & 0x10) ? IPV6_NH_FRAGMENT : IPV6_NH_DSTOPTS;
        q[41] = fuzz_u8(b->in);
        n += 8;
    }
    b->len = ICMP_HEADER_LEN + n;
    b->proto = v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    add_ip(b);
    put_packet(b);
}

static void frame_bounce(struct build *b)
{
    struct fuzz_world *w = b->w;
    uint8_t which = fuzz_u8(b->in);
    if (w->last_len < 40)
        return;
    memcpy(b->p, w->last, w->last_len);
    b->len = w->last_len;
    uint32_t at = b->p[0] >> 4 == 4 ? 12 : 8, n = b->p[0] >> 4 == 4 ? 4 : 16;
    if (which & 1) {
        uint8_t t[16];
        memcpy(t, b->p + at, n);
        memcpy(b->p + at, b->p + at + n, n);
        memcpy(b->p + at + n, t, n);
    }
    if (which & 2)
        memcpy(b->p + at, b->p + at + n, n); /* from itself */
    fix_sums(b->p, b->len);
    put_packet(b);
}

static void frame_ip(struct build *b)
{
    uint8_t which = fuzz_u8(b->in);
    choose_ends(b, which & 1);
    b->proto = fuzz_u8(b->in);
    b->len = fuzz_u8(b->in);
    fuzz_bytes(b->in, b->p, b->len);
    add_ip(b);
    put_packet(b);
}

static void frame_raw(struct build *b)
{
    static const uint16_t types[] = {ETH_TYPE_IPV4, ETH_TYPE_IPV6, ETH_TYPE_ARP, 0x8100, 60};
    uint16_t type = types[fuzz_below(b->in, NELEM(types))];
    b->len = fuzz_u8(b->in);
    fuzz_bytes(b->in, b->p, b->len);
    if (!(b->how & FUZZ_HOW_BAD_SUM))
        fix_sums(b->p, b->len);
    put_one(b, b->p, b->len, type);
}

void fuzz_frame_put(struct fuzz_world *w, struct fuzz_in *in)
{
    static void (*const kinds[FUZZ_FRAMES])(struct build *) = {
        [FUZZ_FRAME_TCP] = frame_tcp,       [FUZZ_FRAME_UDP] = frame_udp,
        [FUZZ_FRAME_ARP] = frame_arp,       [FUZZ_FRAME_ND] = frame_nd,
        [FUZZ_FRAME_ECHO] = frame_echo,     [FUZZ_FRAME_QUOTE] = frame_quote,
        [FUZZ_FRAME_BOUNCE] = frame_bounce, [FUZZ_FRAME_IP] = frame_ip,
        [FUZZ_FRAME_RAW] = frame_raw};
    struct build b = {.w = w, .in = in, .p = area + FRONT};
    unsigned kind = fuzz_u8(in);
    kind = kind >= 0x80 ? FUZZ_FRAME_TCP : kind % FUZZ_FRAMES;
    uint8_t how = fuzz_u8(in); /* nothing special, one thing, or any mixture */
    b.how = how < 128 ? 0 : how < 248 ? 1u << (how & 7) : fuzz_u8(in);
    kinds[kind](&b);
}

void fuzz_frame_neighbours(struct fuzz_world *w)
{
    struct fuzz_in none = {0};
    struct build arp = {.w = w, .in = &none, .p = area + FRONT};
    none.p = area;
    frame_arp(&arp);
    struct build nd = {.w = w, .in = &none, .p = area + FRONT};
    frame_nd(&nd);
}
