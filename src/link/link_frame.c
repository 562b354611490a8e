/* SPDX-License-Identifier: BSD-2-Clause
 * Frames as links see them: where their headers lie, cutting superframes, completing checksums. */
#include "link_frame.h"

#include "wire/checksum.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#include <net/ethernet.h>
#include <netinet/in.h>

#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define IPV6_EXT_MAX 8 /* extension headers looked through */
#define UDP_HEADER 8
#define TCP_FLAGS_AT 13

static void parse_transport(const uint8_t *p, size_t have, uint8_t proto, uint32_t l4,
                            struct link_frame *f)
{
    uint32_t hlen;

    if (proto == IPPROTO_TCP) {
        if (l4 + TCP_HEADER_LEN > have)
            return;
        hlen = (p[l4 + 12] >> 4) * 4u;
        if (hlen < TCP_HEADER_LEN)
            return;
    } else if (proto == IPPROTO_UDP) {
        hlen = UDP_HEADER;
    } else {
        return;
    }
    if (l4 + hlen > f->end || l4 + hlen > have)
        return;
    f->proto = proto;
    f->l4 = (uint16_t)l4;
    f->payload = (uint16_t)(l4 + hlen);
}

static void parse_ipv4(const uint8_t *p, size_t have, uint32_t frame_len, uint32_t l3,
                       struct link_frame *f)
{
    if (l3 + IPV4_HEADER > have || p[l3] >> 4 != 4)
        return;
    uint32_t hlen = (p[l3] & 0x0f) * 4u;
    uint32_t total = get_be16(p + l3 + 2);
    if (hlen < IPV4_HEADER || total < hlen || l3 + total > frame_len)
        return;
    f->family = AF_INET;
    f->l3 = (uint16_t)l3;
    f->end = l3 + total;
    if (get_be16(p + l3 + 6) &
        0x3fff) /* a fragment: its bytes are no transport header of their own */
        return;
    parse_transport(p, have, p[l3 + 9], l3 + hlen, f);
}

static void parse_ipv6(const uint8_t *p, size_t have, uint32_t frame_len, uint32_t l3,
                       struct link_frame *f)
{
    if (l3 + IPV6_HEADER > have || p[l3] >> 4 != 6)
        return;
    uint32_t end = l3 + IPV6_HEADER + get_be16(p + l3 + 4);
    if (end > frame_len)
        return;
    f->family = AF_INET6;
    f->l3 = (uint16_t)l3;
    f->end = end;
    uint8_t next = p[l3 + 6];
    uint32_t at = l3 + IPV6_HEADER;
    for (int i = 0; i < IPV6_EXT_MAX; i++) {
        if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
            break;
        if (at + 8 > have)
            return;
        next = p[at];
        at += (p[at + 1] + 1u) * 8;
    }
    parse_transport(p, have, next, at, f);
}

void link_frame_parse(const uint8_t *p, size_t have, uint32_t frame_len, bool bare,
                      struct link_frame *f)
{
    *f = (struct link_frame){0};
    if (bare) {
        if (have > 0 && p[0] >> 4 == 6)
            parse_ipv6(p, have, frame_len, 0, f);
        else
            parse_ipv4(p, have, frame_len, 0, f);
        return;
    }
    if (have < LINK_ETHER_HEADER)
        return;
    uint16_t type = get_be16(p + 12);
    if (type == ETHERTYPE_IP)
        parse_ipv4(p, have, frame_len, LINK_ETHER_HEADER, f);
    else if (type == ETHERTYPE_IPV6)
        parse_ipv6(p, have, frame_len, LINK_ETHER_HEADER, f);
}

/* The pseudo-header sum for the transport of frame headers h, len bytes of transport. */
static uint16_t pseudo_sum(const uint8_t *h, const struct link_frame *f, uint32_t len)
{
    struct ipaddr src = {.family = f->family}, dst = {.family = f->family};

    if (f->family == AF_INET) {
        memcpy(src.b, h + f->l3 + 12, 4);
        memcpy(dst.b, h + f->l3 + 16, 4);
    } else {
        memcpy(src.b, h + f->l3 + 8, 16);
        memcpy(dst.b, h + f->l3 + 24, 16);
    }
    return checksum_fold(checksum_pseudo(&src, &dst, f->proto, len));
}

void link_frame_checksum(uint8_t *p, const struct link_frame *f)
{
    uint32_t at = f->l4 + (f->proto == IPPROTO_TCP ? 16u : 6u), len = f->end - f->l4;
    uint16_t sum;

    memcpy(&sum, p + at, 2);
    if (f->proto == IPPROTO_UDP && f->family == AF_INET && sum == 0)
        return; /* sent without a checksum */
    sum = pseudo_sum(p, f, len);
    memset(p + at, 0, 2);
    sum = (uint16_t)~checksum_fold(checksum_add(p + f->l4, len, sum));
    if (sum == 0 && f->proto == IPPROTO_UDP)
        sum = 0xffff;
    memcpy(p + at, &sum, 2);
}

static void segment_ipv4(uint8_t *ip, uint32_t i, uint32_t total)
{
    uint32_t hlen = (ip[0] & 0x0f) * 4u;
    bool df = ip[6] & 0x40;

    put_be16(ip + 2, (uint16_t)total);
    /* An atomic packet's identification means nothing (RFC 6864 4.1): pieces equal what would have
     * been sent one by one. Others must differ. */
    if (!df)
        put_be16(ip + 4, (uint16_t)(get_be16(ip + 4) + i));
    memset(ip + 10, 0, 2);
    uint16_t sum = (uint16_t)~checksum_fold(checksum_add(ip, hlen, 0));
    memcpy(ip + 10, &sum, 2);
}

void link_frame_segment(uint8_t *h, const struct link_frame *f, uint32_t i, uint32_t n,
                        uint32_t segsz, uint32_t len)
{
    uint32_t headers = (uint32_t)f->payload - f->l3;
    uint8_t *ip = h + f->l3, *th = h + f->l4;

    if (f->family == AF_INET)
        segment_ipv4(ip, i, headers + len);
    else
        put_be16(ip + 4, (uint16_t)(headers - IPV6_HEADER + len));
    put_be32(th + 4, get_be32(th + 4) + i * segsz);
    if (i > 0)
        th[TCP_FLAGS_AT] &= (uint8_t)~TH_CWR;
    if (i + 1 < n)
        th[TCP_FLAGS_AT] &= (uint8_t) ~(TH_FIN | TH_PUSH);
    uint16_t sum = pseudo_sum(h, f, (uint32_t)f->payload - f->l4 + len);
    memcpy(th + 16, &sum, 2);
}

/* Segment i of n: headers from `headers`, payload referenced in m. NULL: no memory. */
static struct mbuf *cut_one(struct mbuf_account *acct, const struct mbuf *m, const uint8_t *headers,
                            const struct link_frame *f, uint32_t i, uint32_t n)
{
    uint32_t segsz = m->m_pkt.tso_segsz;
    uint32_t off = f->payload + i * segsz;
    uint32_t len = MIN(segsz, f->end - off);
    struct mbuf *data = mbuf_ref(acct, m, off, len);
    struct mbuf *h = mbuf_get(acct);

    if (!data || !h) {
        mbuf_free_chain(&data);
        mbuf_free_chain(&h);
        return NULL;
    }
    _Static_assert(LINK_FRAME_HEADERS <= MBUF_INLINE, "headers fit an mbuf");
    h->m_flags |= M_PKTHDR | (m->m_flags & (M_BCAST | M_MCAST));
    h->m_data += MBUF_INLINE - LINK_FRAME_HEADERS;
    memcpy(h->m_data, headers, f->payload);
    h->m_len = f->payload;
    link_frame_segment(h->m_data, f, i, n, segsz, len);
    data->m_flags &= (uint16_t)~M_PKTHDR;
    h->m_next = data;
    h->m_pkt = (struct mbuf_pkt){
        .len = f->payload + len,
        .csum_flags = (m->m_pkt.csum_flags & (CSUM_L4_VALID | CSUM_IP_VALID)) | CSUM_L4_PARTIAL,
        .csum_start = f->l4,
        .csum_offset = 16,
        .segs = 1,
        .hash = m->m_pkt.hash,
        .time_ns = m->m_pkt.time_ns,
        .netif = m->m_pkt.netif,
    };
    return h;
}

int link_tso_cut(struct mbuf_account *acct, struct mbuf **mp, bool bare, struct mbuf **list)
{
    struct mbuf *m = *mp, **tail = list;
    uint8_t headers[LINK_FRAME_HEADERS];
    struct link_frame f;
    int error = -EPROTO;

    *mp = NULL;
    *list = NULL;
    m->m_nextpkt = NULL;
    if (m->m_pkt.tso_segsz == 0) {
        *list = m;
        return 1;
    }
    uint32_t have = MIN(m->m_pkt.len, (uint32_t)sizeof(headers));
    mbuf_copy_out(m, 0, have, headers);
    link_frame_parse(headers, have, m->m_pkt.len, bare, &f);
    if (f.proto != IPPROTO_TCP)
        goto fail;
    uint32_t n = (f.end - f.payload + m->m_pkt.tso_segsz - 1) / m->m_pkt.tso_segsz;
    n = MAX(n, 1);
    if (n > LINK_TSO_MAX_SEGS)
        goto fail;
    if (n == 1) { /* nothing to cut: the frame is a wire segment already */
        m->m_pkt.tso_segsz = 0;
        m->m_pkt.csum_flags &= (uint16_t) ~(CSUM_TSO4 | CSUM_TSO6);
        m->m_pkt.segs = 1;
        *list = m;
        return 1;
    }
    error = -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        *tail = cut_one(acct, m, headers, &f, i, n);
        if (!*tail)
            goto fail;
        tail = &(*tail)->m_nextpkt;
    }
    mbuf_free_chain(&m);
    return (int)n;

fail:
    while (*list) {
        struct mbuf *next = (*list)->m_nextpkt;
        mbuf_free_chain(list);
        *list = next;
    }
    mbuf_free_chain(&m);
    return error;
}

int link_csum_complete(struct mbuf **mp)
{
    struct mbuf *m = *mp;

    if (!(m->m_pkt.csum_flags & CSUM_L4_PARTIAL))
        return 0;
    uint32_t start = m->m_pkt.csum_start, at = start + m->m_pkt.csum_offset;
    if (at + 2 > m->m_pkt.len) {
        mbuf_free_chain(mp);
        return -EPROTO;
    }
    if (m->m_len < at + 2 || !mbuf_is_writable(m)) {
        m = mbuf_pullup(m, at + 2);
        *mp = m;
        if (!m)
            return -ENOMEM;
    }
    if (unlikely(mbuf_chain_is_volatile(m))) { /* they must not change behind their sum */
        int error = mbuf_settle(mp);
        if (error)
            return error;
        m = *mp;
    }
    uint16_t sum = (uint16_t)~checksum_fold(checksum_mbuf(m, start, m->m_pkt.len - start, 0));
    if (sum == 0 && m->m_pkt.csum_offset == 6) /* UDP: 0 would say "no checksum" (RFC 768) */
        sum = 0xffff;
    memcpy(m->m_data + at, &sum, 2);
    m->m_pkt.csum_flags &= (uint16_t)~CSUM_L4_PARTIAL;
    return 0;
}

size_t link_frame_iov(const struct mbuf *m, struct iovec *iov, size_t max)
{
    size_t n = 0;

    for (; m; m = m->m_next) {
        if (m->m_len == 0)
            continue;
        if (n == max)
            return 0;
        iov[n++] = (struct iovec){.iov_base = m->m_data, .iov_len = m->m_len};
    }
    return n;
}
