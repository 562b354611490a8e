/* SPDX-License-Identifier: BSD-2-Clause
 * IPv4 input (RFC 791, RFC 1122 3.2), and the table of transports of both families. */
#include "ip_var.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/wire.h"

/* ---- life of the layer ---- */

int ip_init(struct weir_stack *s)
{
    struct ip_state *ip = alloc_zero(&s->alloc, sizeof(*ip));

    if (ip == NULL)
        return -ENOMEM;
    s->ip = ip;
    ip->route_gen = 1;
    TAILQ_INIT(&ip->pmtu_age);
    neigh_init(s);
    frag_init(s);
    ip->local4 = alloc_zero(&s->alloc, LOCAL_MAX * sizeof(*ip->local4));
    ip->local6 = alloc_zero(&s->alloc, LOCAL_MAX * sizeof(*ip->local6));
    ip_register(s, IPPROTO_ICMP, &icmp4_proto);
    ip_register(s, IPPROTO_ICMPV6, &icmp6_proto);
    if (ip->local4 == NULL || ip->local6 == NULL || netif_add_loopback(s) != 0) {
        ip_fini(s);
        return -ENOMEM;
    }
    return 0;
}

void ip_fini(struct weir_stack *s)
{
    struct ip_state *ip = s->ip;

    if (ip == NULL)
        return;
    netif_destroy_all(s);
    frag_fini(s);
    route_fini(s);
    alloc_free(&s->alloc, ip->local4, LOCAL_MAX * sizeof(*ip->local4));
    alloc_free(&s->alloc, ip->local6, LOCAL_MAX * sizeof(*ip->local6));
    alloc_free(&s->alloc, ip, sizeof(*ip));
    s->ip = NULL;
}

void ip_register(struct weir_stack *s, uint8_t proto, const struct ip_proto *p)
{
    s->ip->proto[proto] = p;
}

/* ---- IPv4 ---- */

enum dst_class { DST_OURS, DST_GROUP, DST_ELSEWHERE, SRC_BAD };

bool ip4_is_broadcast(const struct weir_stack *s, uint32_t addr_be)
{
    uint32_t i;

    if (addr_be == UINT32_MAX)
        return true;
    for (i = 0; i < s->ip->local4_count; i++) {
        if (addr_be != 0 && s->ip->local4[i].broadcast == addr_be)
            return true;
    }
    return false;
}

bool ip_is_broadcast(const struct weir_stack *s, const struct ipaddr *a)
{
    return a->family == AF_INET && ip4_is_broadcast(s, a->w[0]);
}

/* Sources that no host may send from, for a packet that came over a wire (RFC 1122 3.2.1.3): "this
 * host", loopback, multicast, class E and the limited broadcast. */
static bool src_is_martian(const struct ipaddr *src)
{
    return src->b[0] == 0 || src->b[0] == 127 || src->b[0] >= 224;
}

/* One pass over our addresses tells whether the packet is for us and whether it claims to be from
 * us (LAND). */
static enum dst_class classify(const struct netif *nif, const struct ipv4_header *h)
{
    const struct ip_state *ip = nif->stack->ip;
    uint32_t src = h->src.w[0], dst = h->dst.w[0], i;
    enum dst_class class = DST_ELSEWHERE;

    if (nif->caps & NETIF_CAP_LOOPBACK)
        return ip_is_local(nif->stack, &h->dst) ? DST_OURS : DST_ELSEWHERE;
    if (unlikely(src_is_martian(&h->src)))
        return SRC_BAD;
    for (i = 0; i < ip->local4_count; i++) {
        const struct local4 *l = &ip->local4[i];

        if (unlikely(src == l->addr || src == l->broadcast))
            return SRC_BAD;
        /* Any of our addresses will do (weak host model), but loopback's never comes over a wire.
         */
        if (dst == l->addr && l->netif != ip->loopback)
            class = DST_OURS;
        else if (dst == l->broadcast && dst != 0 && l->netif == nif)
            class = DST_GROUP;
    }
    if (class == DST_ELSEWHERE &&
        (dst == UINT32_MAX || dst == __builtin_bswap32(INADDR_ALLHOSTS_GROUP)))
        return DST_GROUP;
    return class;
}

/* Checks all lengths and the checksum, cuts padding off. NULL: dropped and counted. */
static struct mbuf *header_check(struct weir_stack *s, struct mbuf *m, struct ipv4_header *h)
{
    int error;

    if (unlikely(m->m_len < IPV4_HEADER_LEN) && m->m_pkt.len >= IPV4_HEADER_LEN) {
        m = mbuf_pullup(m, IPV4_HEADER_LEN);
        if (m == NULL) {
            COUNT(s, ip_tx_nobufs);
            return NULL;
        }
    }
    error = ipv4_header_parse(m->m_data, m->m_pkt.len, h);
    if (unlikely(error != 0)) {
        if (error == -EMSGSIZE)
            COUNT(s, ip_rx_short);
        else if (error == -EPROTO)
            COUNT(s, ip_rx_badver);
        else if (error == -EINVAL)
            COUNT(s, ip_rx_badhlen);
        else
            COUNT(s, ip_rx_badlen);
        goto drop;
    }
    if (unlikely(h->hlen > m->m_len)) {
        m = mbuf_pullup(m, h->hlen);
        if (m == NULL) {
            COUNT(s, ip_tx_nobufs);
            return NULL;
        }
    }
    if (!(m->m_pkt.csum_flags & CSUM_IP_VALID) && unlikely(!ipv4_sum_is_ok(m->m_data, h->hlen))) {
        COUNT(s, ip_rx_badsum);
        goto drop;
    }
    if (m->m_pkt.len > h->len)
        mbuf_trim_tail(m, m->m_pkt.len - h->len);
    return m;

drop:
    mbuf_free_chain(&m);
    return NULL;
}

/* Options change nothing for a host, but source routes are refused (RFC 6274 3.13.2.3). */
static bool options_ok(struct weir_stack *s, const struct mbuf *m, const struct ipv4_header *h)
{
    unsigned seen = 0, bad = 0;

    if (ipv4_options_scan(m->m_data, h->hlen, &seen, &bad) == 0 && !(seen & IPV4_OPT_SOURCE_ROUTE))
        return true;
    COUNT(s, ip_rx_options);
    return false;
}

static struct mbuf *fragment(struct weir_stack *s, struct mbuf **m, const struct ipv4_header *h,
                             struct ip_info *info)
{
    struct frag_piece piece = {.info = *info, .id = h->id, .off = h->frag_off, .more = h->mf};
    struct mbuf *whole = frag_input(s, m, &piece);

    if (whole != NULL)
        *info = piece.info;
    return whole;
}

void ip4_input(struct netif *nif, struct mbuf **mp)
{
    struct weir_stack *s = nif->stack;
    struct ipv4_header h;
    struct ip_info info;
    enum dst_class class;
    struct mbuf *m;

    COUNT(s, ip_rx);
    m = header_check(s, *mp, &h);
    *mp = NULL;
    if (m == NULL)
        return;
    class = classify(nif, &h);
    if (unlikely(class == SRC_BAD)) {
        COUNT(s, ip_rx_badsrc);
        goto drop;
    }
    /* A unicast packet in a broadcast frame is not for us either (RFC 1122 3.3.6). */
    if (unlikely(class == DST_ELSEWHERE ||
                 (class == DST_OURS && (m->m_flags & (M_BCAST | M_MCAST))))) {
        COUNT(s, ip_rx_not_ours);
        goto drop;
    }
    if (unlikely(h.hlen > IPV4_HEADER_LEN) && !options_ok(s, m, &h))
        goto drop;
    info.src = h.src;
    info.dst = h.dst;
    info.netif = nif;
    info.proto = h.proto;
    info.ttl = h.ttl;
    info.tos = h.tos;
    info.multicast = class == DST_GROUP;
    info.hlen = h.hlen;
    m->m_pkt.l3_off = 0;
    m->m_pkt.l4_off = h.hlen;
    m->m_data += h.hlen;
    m->m_len -= h.hlen;
    m->m_pkt.len -= h.hlen;
    if (unlikely(h.mf || h.frag_off != 0)) {
        m = fragment(s, &m, &h, &info);
        if (m == NULL)
            return;
    }
    if (likely(ip_is_served(s, &info))) {
        ip_deliver(s, &m, &info);
        return;
    }
    COUNT(s, ip_rx_noproto);
    icmp_send_error(s, m, &info, ICMP_KIND_UNREACH_PROTO);
drop:
    mbuf_free_chain(&m);
}
