/* SPDX-License-Identifier: BSD-2-Clause
 * Output of both families: header, checksum, fragments. */
#include "ip_var.h"
#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

#define IP_MAX_PACKET 65535

/* Random, but none of the last IP_ID_RECENT. Random alone would repeat after some 300 ids
 * (birthdays), and two datagrams of one flow with the same id would be mixed by the receiver; a
 * counter would tell outsiders how much we send (RFC 7739). */
uint16_t ip_id_new(struct weir_stack *s)
{
    struct ip_state *ip = s->ip;
    uint16_t *oldest = &ip->ip_id_recent[ip->ip_id_next++ % IP_ID_RECENT];
    uint16_t id;
    unsigned tries = 0;

    ip->ip_id_used[*oldest / 64] &= ~(UINT64_C(1) << (*oldest % 64));
    do {
        id = (uint16_t)rng_u32(&s->rng);
    } while (++tries < 64 && (id == 0 || ip->ip_id_used[id / 64] >> (id % 64) & 1));
    ip->ip_id_used[id / 64] |= UINT64_C(1) << (id % 64);
    *oldest = id;
    return id;
}

/* Complete the transport checksum in software. m_data at the IP header or the transport's,
 * csum_start accordingly. Data that may change meanwhile are copied first. 0, or a negative errno
 * with the packet freed. */
static int csum_complete(struct mbuf **mp, uint8_t proto)
{
    int error = unlikely(mbuf_chain_is_volatile(*mp)) ? mbuf_settle(mp) : 0;
    if (error)
        return error == -ENOMEM ? -ENOBUFS : error;
    struct mbuf *m = *mp;
    struct mbuf_pkt *pkt = &m->m_pkt;
    uint64_t sum = checksum_mbuf(m, pkt->csum_start, pkt->len - pkt->csum_start, 0);
    uint16_t folded = (uint16_t)~checksum_fold(sum);

    if (folded == 0 && proto == IPPROTO_UDP)
        folded = 0xffff;
    mbuf_copy_in(m, (uint32_t)pkt->csum_start + pkt->csum_offset, sizeof(folded), &folded);
    pkt->csum_flags &= (uint16_t)~CSUM_L4_PARTIAL;
    return 0;
}

/* Where a packet stands in its datagram. */
struct position {
    uint32_t id, off;
    bool more;
};

/* Prepends and fills the header. NULL: no memory, m freed. */
static struct mbuf *prepend4(struct weir_stack *s, struct mbuf *m, const struct ip_output_args *a,
                             const struct position *pos)
{
    struct ipv4_header h;

    m = mbuf_prepend(m, IPV4_HEADER_LEN);
    if (unlikely(m == NULL))
        return NULL;
    h.hlen = IPV4_HEADER_LEN;
    h.tos = a->tos;
    h.len = (uint16_t)m->m_pkt.len;
    h.id = (uint16_t)pos->id;
    h.frag_off = (uint16_t)pos->off;
    h.df = a->df;
    h.mf = pos->more;
    h.ttl = a->ttl != 0 ? a->ttl : (uint8_t)KNOB(s, ip_ttl);
    h.proto = a->proto;
    h.src = a->src;
    h.dst = a->dst;
    ipv4_header_build(m->m_data, &h);
    m->m_pkt.csum_start = (uint16_t)(m->m_pkt.csum_start + IPV4_HEADER_LEN);
    return m;
}

static struct mbuf *prepend6(struct weir_stack *s, struct mbuf *m, const struct ip_output_args *a,
                             uint8_t next)
{
    struct ipv6_header h = {
        .tclass = a->tos,
        .plen = (uint16_t)m->m_pkt.len,
        .next = next,
        .hlim = a->ttl != 0 ? a->ttl : (uint8_t)KNOB(s, ip6_hlim),
        .src = a->src,
        .dst = a->dst,
    };

    m = mbuf_prepend(m, IPV6_HEADER_LEN);
    if (unlikely(m == NULL))
        return NULL;
    ipv6_header_build(m->m_data, &h);
    m->m_pkt.csum_start = (uint16_t)(m->m_pkt.csum_start + IPV6_HEADER_LEN);
    return m;
}

static void count_nobufs(struct weir_stack *s, uint8_t family)
{
    if (family == AF_INET)
        COUNT(s, ip_tx_nobufs);
    else
        COUNT(s, ip6_tx_nobufs);
}

/* The fragment at pos, which says the length of all but the last in `piece`. */
static struct mbuf *fragment_build(struct weir_stack *s, const struct mbuf *m,
                                   const struct ip_output_args *a, uint32_t piece,
                                   struct position *pos)
{
    uint32_t left = m->m_pkt.len - pos->off, n = MIN(left, piece);
    struct mbuf *head = mbuf_get_packet(s->account), *data;

    if (head == NULL)
        return NULL;
    data = mbuf_ref(s->account, m, pos->off, n);
    if (data == NULL) {
        mbuf_free_chain(&head);
        return NULL;
    }
    pos->more = n < left;
    data->m_flags &= (uint16_t)~M_PKTHDR;
    head->m_next = data;
    head->m_pkt.len = n;
    if (a->dst.family == AF_INET)
        return prepend4(s, head, a, pos);
    ipv6_fragment_build(head->m_data, &(struct ipv6_fragment){.next = a->proto,
                                                              .off = (uint16_t)pos->off,
                                                              .more = pos->more,
                                                              .id = pos->id});
    head->m_len = IPV6_FRAG_HEADER_LEN;
    head->m_pkt.len += IPV6_FRAG_HEADER_LEN;
    return prepend6(s, head, a, IPV6_NH_FRAGMENT);
}

/* m: the whole transport packet, checksum completed. Consumes it. */
static int fragment_output(struct weir_stack *s, struct mbuf *m, const struct ip_output_args *a,
                           const struct route *r)
{
    bool v4 = a->dst.family == AF_INET;
    uint32_t header = v4 ? IPV4_HEADER_LEN : IPV6_HEADER_LEN + IPV6_FRAG_HEADER_LEN;
    uint32_t piece_len = (r->mtu - header) & ~7u;
    struct position pos = {.id = v4 ? ip_id_new(s) : rng_u32(&s->rng)};
    struct route route = *r; /* a copy: the cache may change while fragments leave */
    int error = 0;

    for (; pos.off < m->m_pkt.len && error == 0; pos.off += piece_len) {
        struct mbuf *piece = fragment_build(s, m, a, piece_len, &pos);

        if (piece == NULL) {
            count_nobufs(s, a->dst.family);
            error = -ENOBUFS;
            break;
        }
        if (v4)
            COUNT(s, ip_frag_tx);
        else
            COUNT(s, ip6_frag_tx);
        error = netif_output(route.netif, &route.nexthop, &piece);
    }
    mbuf_free_chain(&m);
    return error;
}

/* Larger than the path's MTU: fragments, or refused. Consumes m. */
static int output_toobig(struct weir_stack *s, struct mbuf *m, const struct ip_output_args *a,
                         const struct route *r)
{
    bool v4 = a->dst.family == AF_INET;

    /* IPv6's length field does not count the header (and fragments of it carry up to 65,535 bytes).
     */
    if (a->df || m->m_pkt.tso_segsz != 0 ||
        m->m_pkt.len + (v4 ? IPV4_HEADER_LEN : 0) > IP_MAX_PACKET ||
        r->mtu < IPV4_MAX_HEADER_LEN + 8) {
        if (v4)
            COUNT(s, ip_tx_toobig);
        else
            COUNT(s, ip6_tx_toobig);
        mbuf_free_chain(&m);
        return -EMSGSIZE;
    }
    int error = m->m_pkt.csum_flags & CSUM_L4_PARTIAL ? csum_complete(&m, a->proto) : 0;
    return error ? error : fragment_output(s, m, a, r);
}

static bool link_takes_superframe(const struct route *r, const struct mbuf *m)
{
    return ((m->m_pkt.csum_flags & CSUM_TSO4) && (r->netif->caps & NETIF_CAP_TSO4)) ||
           ((m->m_pkt.csum_flags & CSUM_TSO6) && (r->netif->caps & NETIF_CAP_TSO6));
}

int ip_output(struct weir_stack *s, struct mbuf **mp, const struct ip_output_args *a)
{
    struct mbuf *m = *mp;
    const struct route *r = a->route;
    bool v4 = a->dst.family == AF_INET;
    uint32_t header = v4 ? IPV4_HEADER_LEN : IPV6_HEADER_LEN;
    int error;

    *mp = NULL;
    if (r == NULL) {
        r = route_lookup(s, &a->dst, &error);
        if (unlikely(r == NULL)) {
            if (v4)
                COUNT(s, ip_tx_noroute);
            else
                COUNT(s, ip6_tx_noroute);
            mbuf_free_chain(&m);
            return error;
        }
    }
    if (v4)
        COUNT(s, ip_tx);
    else
        COUNT(s, ip6_tx);
    if (m->m_pkt.tso_segsz != 0 ? unlikely(!link_takes_superframe(r, m))
                                : unlikely(m->m_pkt.len + header > r->mtu))
        return output_toobig(s, m, a, r);
    if ((m->m_pkt.csum_flags & CSUM_L4_PARTIAL) && !(r->netif->caps & NETIF_CAP_CSUM_TX)) {
        error = csum_complete(&m, a->proto);
        if (unlikely(error))
            return error;
    }
    /* A packet that cannot be fragmented needs no id (RFC 6864 4.1): a constant tells nothing. */
    if (v4)
        m = prepend4(s, m, a, &(struct position){.id = a->df ? 0 : ip_id_new(s)});
    else
        m = prepend6(s, m, a, a->proto);
    if (unlikely(m == NULL)) {
        count_nobufs(s, a->dst.family);
        return -ENOBUFS;
    }
    return netif_output(r->netif, &r->nexthop, &m);
}
