/* SPDX-License-Identifier: BSD-2-Clause
 * Large receive offload in software.
 *
 * How it works. Each frame of a burst is looked at once. A data segment without anything special
 * opens a flow's entry; one that continues an open entry is appended to it: its headers are cut
 * off, its payload is linked behind. Two segments are merged only if TCP learns the same from the
 * whole as from the parts: next in sequence, with the same acknowledgment, window, options byte for
 * byte (so the same timestamps), ECN and DSCP, TTL. PSH ends an entry, since the sender says that
 * somebody waits for the data. Any other segment of the flow (a pure ACK, FIN, URG, CWR, SACK, a
 * hole) closes it, so that the order stays. Checksums are verified before they lose their meaning:
 * a segment with a wrong one is left alone for TCP to count. */
#include "lro.h"

#include "wire/checksum.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#include <netinet/in.h>

#define TIMESTAMP_OPTIONS 12 /* nop nop timestamp */
#define IP_LEN_MAX 65535u

/* A TCP segment, as far as it can be merged. Offsets count from m_data. */
struct piece {
    uint8_t *ip, *th; /* in the mbuf */
    uint32_t headers; /* bytes in front of the payload */
    uint32_t len;     /* payload */
    uint32_t seq;
    bool v6, plain; /* plain: data, and nothing that must be seen by itself */
};

struct entry {
    struct mbuf *head, *tail;
    struct piece first;
    uint32_t next_seq, bytes; /* payload so far */
    bool verified, merged;    /* the head's checksum was looked at; something was appended */
};

/* --- looking at a frame --- */

/* The IP header at p, `have` contiguous bytes of it, in a frame with `room` bytes from there on.
 * Returns the length of the packet; 0: not TCP, or not in the simplest form. */
static uint32_t packet_length(const struct mbuf *m, const uint8_t *p, uint32_t have, uint32_t room,
                              bool v6)
{
    uint32_t total;

    if (v6) {
        if (have < IPV6_HEADER_LEN + TCP_HEADER_LEN || p[0] >> 4 != 6 || p[6] != IPPROTO_TCP)
            return 0;
        total = IPV6_HEADER_LEN + get_be16(p + 4);
        return total <= room ? total : 0;
    }
    if (have < IPV4_HEADER_LEN + TCP_HEADER_LEN || p[0] != 0x45 || p[9] != IPPROTO_TCP ||
        (get_be16(p + 6) & 0x3fff)) /* a fragment */
        return 0;
    total = get_be16(p + 2);
    if (total > room)
        return 0;
    if (!(m->m_pkt.csum_flags & CSUM_IP_VALID) && !ipv4_sum_is_ok(p, IPV4_HEADER_LEN))
        return 0;
    return total;
}

/* Does the segment carry data and nothing else that means something? */
static bool is_plain(const struct mbuf *m, const struct piece *p, uint32_t header)
{
    static const uint8_t timestamp[4] = {1, 1, 8, 10};
    const uint8_t *th = p->th;

    if ((th[13] & ~TH_PUSH) != TH_ACK || (th[12] & 0x0f) || p->len == 0)
        return false;
    if (header != TCP_HEADER_LEN && (header != TCP_HEADER_LEN + TIMESTAMP_OPTIONS ||
                                     memcmp(th + TCP_HEADER_LEN, timestamp, 4) != 0))
        return false;
    return m->m_pkt.segs <= 1 && mbuf_is_writable(m);
}

/* Take a frame apart. False: nothing to do with it. */
static bool look(const struct netif *nif, struct mbuf *m, struct piece *p)
{
    uint32_t l2 = nif->caps & NETIF_CAP_L3 ? 0 : ETH_HEADER_LEN, ip_header, total, header;

    if (m->m_len < l2 + IPV4_HEADER_LEN + TCP_HEADER_LEN)
        return false;
    p->ip = m->m_data + l2;
    if (l2) {
        uint16_t type = get_be16(m->m_data + 2 * ETH_ADDR_LEN);
        if (memcmp(m->m_data, nif->mac, ETH_ADDR_LEN) != 0 ||
            (type != ETH_TYPE_IPV4 && type != ETH_TYPE_IPV6))
            return false;
        p->v6 = type == ETH_TYPE_IPV6;
    } else {
        p->v6 = p->ip[0] >> 4 == 6;
    }
    total = packet_length(m, p->ip, m->m_len - l2, m->m_pkt.len - l2, p->v6);
    ip_header = p->v6 ? IPV6_HEADER_LEN : IPV4_HEADER_LEN;
    if (total < ip_header + TCP_HEADER_LEN)
        return false;
    p->th = p->ip + ip_header;
    header = (uint32_t)(p->th[12] >> 4) * 4;
    if (header < TCP_HEADER_LEN || total < ip_header + header || m->m_len < l2 + ip_header + header)
        return false;
    p->headers = l2 + ip_header + header;
    p->len = total - ip_header - header;
    p->seq = get_be32(p->th + 4);
    p->plain = is_plain(m, p, header);
    return true;
}

static bool checksum_holds(const struct mbuf *m, const struct piece *p)
{
    struct ipaddr src = {0}, dst = {0};
    uint32_t off = (uint32_t)(p->th - m->m_data), len = p->headers - off + p->len;

    if (m->m_pkt.csum_flags & (CSUM_L4_VALID | CSUM_L4_PARTIAL))
        return true;
    src.family = dst.family = p->v6 ? AF_INET6 : AF_INET;
    memcpy(src.b, p->ip + (p->v6 ? 8 : 12), p->v6 ? 16 : 4);
    memcpy(dst.b, p->ip + (p->v6 ? 24 : 16), p->v6 ? 16 : 4);
    return checksum_fold(
               checksum_mbuf(m, off, len, checksum_pseudo(&src, &dst, IPPROTO_TCP, len))) == 0xffff;
}

/* --- flows --- */

static bool same_flow(const struct piece *a, const struct piece *b)
{
    if (a->v6 != b->v6 || memcmp(a->th, b->th, 4) != 0)
        return false;
    return a->v6 ? memcmp(a->ip + 8, b->ip + 8, 32) == 0 : memcmp(a->ip + 12, b->ip + 12, 8) == 0;
}

/* Does b say, but for its place and PSH, what a says? */
static bool same_headers(const struct piece *a, const struct piece *b)
{
    const uint8_t *x = a->ip, *y = b->ip;
    uint32_t options = (uint32_t)(a->th[12] >> 4) * 4 - TCP_HEADER_LEN;

    if (a->v6 ? memcmp(x, y, 4) != 0 || x[7] != y[7]          /* class, label; hop limit */
              : x[1] != y[1] || x[6] != y[6] || x[8] != y[8]) /* TOS, DF, TTL */
        return false;
    return a->th[12] == b->th[12] && memcmp(a->th + 8, b->th + 8, 4) == 0 && /* acknowledgment */
           memcmp(a->th + 14, b->th + 14, 2) == 0 &&                         /* window */
           memcmp(a->th + TCP_HEADER_LEN, b->th + TCP_HEADER_LEN, options) == 0;
}

static bool continues(struct entry *e, const struct mbuf *m, const struct piece *p)
{
    uint32_t ip_bytes = (uint32_t)(e->first.th - e->first.ip) + (e->first.th[12] >> 4) * 4u;

    if (!p->plain || p->seq != e->next_seq || !same_headers(&e->first, p) ||
        ip_bytes + e->bytes + p->len > IP_LEN_MAX || !checksum_holds(m, p))
        return false;
    if (!e->verified && !checksum_holds(e->head, &e->first))
        return false;
    e->verified = true;
    return true;
}

/* Link m's payload behind the entry's. Consumes m. */
static void append(struct entry *e, struct mbuf *m, const struct piece *p)
{
    struct mbuf *head = e->head;
    uint32_t cut = p->headers;

    if (!e->merged && head->m_pkt.len > e->first.headers + e->bytes) { /* padding */
        mbuf_trim_tail(head, head->m_pkt.len - e->first.headers - e->bytes);
        e->tail = mbuf_last(head);
    }
    if (m->m_pkt.len > p->headers + p->len)
        mbuf_trim_tail(m, m->m_pkt.len - p->headers - p->len);
    e->first.th[13] |= p->th[13] & TH_PUSH;
    m->m_flags &= (uint16_t)~M_PKTHDR;
    m->m_data += cut;
    m->m_len -= cut;
    if (m->m_len == 0)
        m = mbuf_free(m);
    e->tail->m_next = m;
    e->tail = mbuf_last(m);
    e->merged = true;
    e->bytes += p->len;
    e->next_seq += p->len;
    head->m_pkt.len += p->len;
    head->m_pkt.segs++;
}

static void open_entry(struct entry *e, struct mbuf *m, const struct piece *p)
{
    *e = (struct entry){.head = m, .first = *p, .bytes = p->len, .next_seq = p->seq + p->len};
    e->tail = mbuf_last(m);
}

/* The headers of what was merged tell of the whole. */
static void finish(struct entry *e)
{
    struct mbuf *m = e->head;
    uint8_t *ip = e->first.ip;

    if (!e->merged)
        return;
    uint32_t transport = (e->first.th[12] >> 4) * 4u + e->bytes;
    if (e->first.v6) {
        put_be16(ip + 4, (uint16_t)transport);
    } else {
        put_be16(ip + 2, (uint16_t)(IPV4_HEADER_LEN + transport));
        ipv4_sum_update(ip, IPV4_HEADER_LEN);
    }
    m->m_pkt.csum_flags &= (uint16_t)~CSUM_L4_PARTIAL;
    m->m_pkt.csum_flags |= CSUM_L4_VALID | CSUM_IP_VALID;
}

size_t lro_merge(struct netif *nif, struct mbuf **burst, size_t n)
{
    struct weir_stack *s = nif->stack;
    struct entry flows[LRO_FLOWS];
    size_t count = 0, out = 0, k;

    for (size_t i = 0; i < n; i++) {
        struct mbuf *m = burst[i];
        struct piece p;

        burst[out++] = m;
        if (!look(nif, m, &p))
            continue;
        for (k = 0; k < count && !same_flow(&flows[k].first, &p); k++)
            ;
        bool known = k < count;
        if (known && continues(&flows[k], m, &p)) {
            COUNT(s, link_rx_frames);
            COUNT_ADD(s, link_rx_bytes, m->m_pkt.len);
            COUNT(s, link_rx_merged);
            out--;
            bool push = p.th[13] & TH_PUSH;
            append(&flows[k], m, &p);
            if (likely(!push))
                continue;
            p.plain = false; /* it is complete */
        }
        if (known) {
            finish(&flows[k]);
            flows[k] = flows[--count];
        }
        if (p.plain && !(p.th[13] & TH_PUSH) && count < LRO_FLOWS)
            open_entry(&flows[count++], m, &p);
    }
    for (k = 0; k < count; k++)
        finish(&flows[k]);
    return out;
}
