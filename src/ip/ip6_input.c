/* SPDX-License-Identifier: BSD-2-Clause
 * IPv6 input (RFC 8200): header checks, the bounded walk over extension headers, delivery. */
#include "ip_var.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

/* What the walk may look at: the header, as many bytes of extension headers as it allows, and one
 * header more. */
#define WALK_BYTES (IPV6_HEADER_LEN + IPV6_MAX_EXT_BYTES + IPV6_FRAG_HEADER_LEN)
#define UPPER_MIN 8 /* bytes of upper-layer header that a first fragment must hold */

enum dst_class { DST_OURS, DST_GROUP, DST_ELSEWHERE, SRC_BAD };

static bool same_bytes(const struct ipaddr *a, const struct ipaddr *b)
{
    return a->q[0] == b->q[0] && a->q[1] == b->q[1];
}

static bool is_v4_mapped(const struct ipaddr *a)
{
    return a->q[0] == 0 && a->w[2] == __builtin_bswap32(0xffff);
}

/* All-nodes of interface and link, and the solicited-node group of each of our addresses. */
static bool is_our_group(const struct netif *nif, const struct ipaddr *dst)
{
    unsigned i;

    if (get_be32(dst->b) == 0xff020000 || get_be32(dst->b) == 0xff010000) {
        if (dst->w[1] == 0 && dst->w[2] == 0 && dst->w[3] == __builtin_bswap32(1))
            return true;
    }
    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        struct ipaddr group;

        if (nif->addrs[i].addr.family != AF_INET6)
            continue;
        group = nd_solicited_node(&nif->addrs[i].addr);
        if (same_bytes(&group, dst))
            return true;
    }
    return false;
}

/* Link-local addresses are told apart by the interface, so the scope is set before. */
static enum dst_class classify(const struct netif *nif, const struct ipv6_header *h)
{
    const struct ip_state *ip = nif->stack->ip;
    enum dst_class class = DST_ELSEWHERE;
    bool wire = !(nif->caps & NETIF_CAP_LOOPBACK);
    uint32_t i;

    if (unlikely(h->src.b[0] == 0xff || is_v4_mapped(&h->src) ||
                 (wire && ipaddr_is_loopback(&h->src))))
        return SRC_BAD;
    /* Only duplicate address detection speaks without an address. */
    if (unlikely(h->src.q[0] == 0 && h->src.q[1] == 0) && h->next != IPPROTO_ICMPV6)
        return SRC_BAD;
    for (i = 0; i < ip->local6_count; i++) {
        const struct local6 *l = &ip->local6[i];

        if (wire && unlikely(ipaddr_equal(&l->addr, &h->src)))
            return SRC_BAD;
        if (same_bytes(&l->addr, &h->dst) &&
            (l->addr.scope == 0 || l->addr.scope == h->dst.scope || !wire) &&
            !(wire && l->netif == ip->loopback))
            class = DST_OURS;
    }
    if (class == DST_ELSEWHERE && h->dst.b[0] == 0xff && is_our_group(nif, &h->dst))
        return DST_GROUP;
    return class;
}

static struct mbuf *header_check(struct weir_stack *s, struct mbuf *m, struct ipv6_header *h)
{
    int error;

    if (unlikely(m->m_len < IPV6_HEADER_LEN) && m->m_pkt.len >= IPV6_HEADER_LEN) {
        m = mbuf_pullup(m, IPV6_HEADER_LEN);
        if (m == NULL) {
            COUNT(s, ip6_tx_nobufs);
            return NULL;
        }
    }
    error = ipv6_header_parse(m->m_data, m->m_pkt.len, h);
    if (unlikely(error != 0)) {
        if (error == -EMSGSIZE)
            COUNT(s, ip6_rx_short);
        else if (error == -EPROTO)
            COUNT(s, ip6_rx_badver);
        else
            COUNT(s, ip6_rx_badlen);
        mbuf_free_chain(&m);
        return NULL;
    }
    /* A payload of nothing that claims to be something: a jumbogram, or a lie. */
    if (unlikely(h->plen == 0 && h->next != IPV6_NH_NONE)) {
        COUNT(s, ip6_rx_badlen);
        mbuf_free_chain(&m);
        return NULL;
    }
    if (m->m_pkt.len > (uint32_t)IPV6_HEADER_LEN + h->plen)
        mbuf_trim_tail(m, m->m_pkt.len - IPV6_HEADER_LEN - h->plen);
    return m;
}

/* Drop the first n bytes. They stay readable in front of m_data (*hlen += n) when they are or can
 * be brought into one piece, else *hlen becomes 0. False: no memory, *m is gone. */
static bool strip(struct mbuf **m, uint32_t n, uint32_t *hlen)
{
    if (unlikely((*m)->m_len < n) && n <= MBUF_INLINE - MBUF_HEADROOM) {
        *m = mbuf_pullup(*m, n);
        if (*m == NULL)
            return false;
    }
    if (likely((*m)->m_len >= n)) {
        (*m)->m_data += n;
        (*m)->m_len -= n;
        (*m)->m_pkt.len -= n;
        *hlen += n;
        return true;
    }
    mbuf_trim_head(m, n);
    *hlen = 0;
    return true;
}

/* One packet on its way through the extension headers. */
struct walk_state {
    struct ipv6_header h;
    struct ipv6_walk w;
    uint32_t base; /* offset, as the walk counts, of m's first byte */
    struct ip_info info;
};

/* The walk wants the bytes from the IPv6 header on in one piece. m (whose first byte is at offset
 * st->base) mostly is one; else they are copied into buf. */
static enum ipv6_walk_result walk(const struct mbuf *m, struct walk_state *st, uint8_t *buf)
{
    uint32_t n = MIN(m->m_pkt.len, WALK_BYTES - st->base);

    if (st->base == 0 && m->m_len >= n)
        return ipv6_walk(m->m_data, m->m_len, &st->w);
    if (st->base != 0)
        ipv6_header_build(buf, &st->h);
    mbuf_copy_out(m, 0, n, buf + st->base);
    return ipv6_walk(buf, st->base + n, &st->w);
}

/* The first fragment must hold the whole header chain, to the upper layer's (RFC 7112). */
static bool chain_is_whole(const struct mbuf *m, const struct walk_state *st,
                           const struct ipv6_fragment *f, uint8_t *buf)
{
    struct walk_state ahead = *st;
    enum ipv6_walk_result result;

    ipv6_walk_skip_fragment(&ahead.w, f);
    result = walk(m, &ahead, buf);
    return result == IPV6_WALK_NONE ||
           (result == IPV6_WALK_UPPER && ahead.w.off + UPPER_MIN <= m->m_pkt.len);
}

/* The fragment header at st->w.off. True: go on with *m (an atomic fragment, or the whole
 * datagram); false: *m is gone. */
static bool fragment(struct weir_stack *s, struct mbuf **m, struct walk_state *st, uint8_t *buf)
{
    uint8_t raw[IPV6_FRAG_HEADER_LEN];
    struct ipv6_fragment f;
    struct frag_piece piece;
    uint32_t off = st->w.off - st->base;

    COUNT(s, ip6_frag_rx);
    if ((*m)->m_pkt.len < off + sizeof(raw))
        goto bad;
    mbuf_copy_out(*m, off, sizeof(raw), raw);
    if (ipv6_fragment_parse(raw, sizeof(raw), &f) != 0)
        goto bad;
    if (f.off == 0 && !f.more) {
        /* RFC 6946: handled apart from all others. */
        COUNT(s, ip6_frag_atomic);
        ipv6_walk_skip_fragment(&st->w, &f);
        return true;
    }
    piece = (struct frag_piece){
        .info = st->info, .id = f.id, .off = f.off, .more = f.more, .next = f.next};
    piece.info.proto = 0; /* not part of the key: RFC 8200 4.5 */
    if (f.more && ((*m)->m_pkt.len - off - sizeof(raw)) % 8 != 0) {
        icmp6_send_quote(s, *m, &st->info, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_HEADER, 4);
        goto bad;
    }
    if (f.off == 0 && !chain_is_whole(*m, st, &f, buf))
        goto bad;
    if (!strip(m, off + (uint32_t)sizeof(raw), &piece.info.hlen)) {
        COUNT(s, ip6_tx_nobufs);
        return false;
    }
    *m = frag_input(s, m, &piece);
    if (*m == NULL)
        return false;
    st->info = piece.info;
    /* The walk goes on in the reassembled payload, as if it followed the IPv6 header at once. */
    st->w.next = piece.next;
    st->w.next_off = st->w.off;
    st->w.off = st->base = IPV6_HEADER_LEN;
    if (st->w.headers < UINT8_MAX)
        st->w.headers++;
    return true;

bad:
    COUNT(s, ip6_frag_bad);
    mbuf_free_chain(m);
    return false;
}

/* Neighbour discovery must not come in fragments (RFC 6980). */
static bool is_discovery(const struct mbuf *m, const struct walk_state *st)
{
    uint32_t off = st->w.off - st->base;
    uint8_t type;

    if (st->info.proto != IPPROTO_ICMPV6 || off >= m->m_pkt.len)
        return false;
    mbuf_copy_out(m, off, 1, &type);
    return type >= ICMP6_ROUTER_SOLICIT && type <= ICMP6_REDIRECT;
}

/* Walk to the transport and deliver. Consumes m. */
static void input_ext(struct weir_stack *s, struct mbuf *m, struct walk_state *st)
{
    uint8_t buf[WALK_BYTES];
    enum ipv6_walk_result result;
    unsigned fragments = 0;

    for (;;) {
        result = walk(m, st, buf);
        if (result != IPV6_WALK_FRAGMENT)
            break;
        if (++fragments > 1) { /* a fragment inside a fragment is never honest */
            COUNT(s, ip6_frag_bad);
            goto drop;
        }
        if (!fragment(s, &m, st, buf))
            return;
    }
    if (result == IPV6_WALK_PARAM) {
        COUNT(s, ip6_rx_badext);
        icmp6_send_quote(s, m, &st->info, ICMP6_PARAM_PROBLEM, st->w.code, st->w.pointer);
        goto drop;
    }
    if (result != IPV6_WALK_UPPER || st->w.off < st->base || st->w.off - st->base > m->m_pkt.len) {
        if (result != IPV6_WALK_NONE)
            COUNT(s, ip6_rx_badext);
        goto drop;
    }
    st->info.proto = st->w.next;
    if (fragments > 0 && is_discovery(m, st)) {
        COUNT(s, ip6_frag_bad);
        goto drop;
    }
    if (!ip_is_served(s,
                      &st->info)) { /* said before stripping, which may lose what is to be quoted */
        COUNT(s, ip6_rx_noproto);
        icmp6_send_quote(s, m, &st->info, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_NEXT_HEADER,
                         st->w.next_off);
        goto drop;
    }
    if (st->info.hlen == 0 && st->base != 0) {
        mbuf_trim_head(&m, st->w.off - st->base);
    } else if (!strip(&m, st->w.off - st->base, &st->info.hlen)) {
        COUNT(s, ip6_tx_nobufs);
        return;
    }
    m->m_pkt.l4_off = (uint8_t)MIN(st->info.hlen, 255u);
    ip_deliver(s, &m, &st->info);
    return;
drop:
    mbuf_free_chain(&m);
}

static void info_fill(struct ip_info *info, const struct ipv6_header *h, struct netif *nif,
                      bool multicast)
{
    info->src = h->src;
    info->dst = h->dst;
    info->netif = nif;
    info->proto = h->next;
    info->ttl = h->hlim;
    info->tos = h->tclass;
    info->multicast = multicast;
    info->hlen = 0;
}

void ip6_input(struct netif *nif, struct mbuf **mp)
{
    struct weir_stack *s = nif->stack;
    struct walk_state st;
    enum dst_class class;
    struct mbuf *m;

    COUNT(s, ip6_rx);
    m = header_check(s, *mp, &st.h);
    *mp = NULL;
    if (m == NULL)
        return;
    if (ipaddr_is_linklocal(&st.h.src))
        st.h.src.scope = nif->index;
    if (ipaddr_is_linklocal(&st.h.dst))
        st.h.dst.scope = nif->index;
    class = classify(nif, &st.h);
    if (unlikely(class == SRC_BAD)) {
        COUNT(s, ip6_rx_badsrc);
        goto drop;
    }
    if (unlikely(class == DST_ELSEWHERE ||
                 (class == DST_OURS && (m->m_flags & (M_BCAST | M_MCAST))))) {
        COUNT(s, ip6_rx_not_ours);
        goto drop;
    }
    info_fill(&st.info, &st.h, nif, class == DST_GROUP);
    m->m_pkt.l3_off = 0;
    if (likely(st.h.next == IPPROTO_TCP || st.h.next == IPPROTO_UDP)) {
        m->m_pkt.l4_off = IPV6_HEADER_LEN;
        (void)strip(&m, IPV6_HEADER_LEN, &st.info.hlen); /* in one piece already */
        if (likely(ip_is_served(s, &st.info))) {
            ip_deliver(s, &m, &st.info);
            return;
        }
        COUNT(s, ip6_rx_noproto);
        icmp6_send_quote(s, m, &st.info, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_NEXT_HEADER, 6);
        goto drop;
    }
    ipv6_walk_init(&st.w, &st.h);
    st.base = 0;
    input_ext(s, m, &st);
    return;
drop:
    mbuf_free_chain(&m);
}
