/* SPDX-License-Identifier: BSD-2-Clause
 * ICMPv6 (RFC 4443): echo, errors in and out; neighbour discovery goes to neigh.c, listener
 * queries to mld.c. */
#include "ip_var.h"
#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

#define ERROR_TYPES_END 128 /* types below are errors */

void icmp6_output_on(struct netif *nif, struct mbuf **mp, const struct ipaddr *src,
                     const struct ipaddr *dst)
{
    struct mbuf *m = *mp;
    struct ipv6_header h = {.plen = (uint16_t)m->m_pkt.len,
                            .next = IPPROTO_ICMPV6,
                            .hlim = 255,
                            .src = *src,
                            .dst = *dst};
    uint64_t sum = checksum_pseudo(src, dst, IPPROTO_ICMPV6, m->m_pkt.len);
    uint16_t folded = (uint16_t)~checksum_fold(checksum_mbuf(m, 0, m->m_pkt.len, sum));

    *mp = NULL;
    memcpy(m->m_data + 2, &folded, sizeof(folded));
    m = mbuf_prepend(m, IPV6_HEADER_LEN);
    if (m == NULL) {
        COUNT(nif->stack, ip6_tx_nobufs);
        return;
    }
    ipv6_header_build(m->m_data, &h);
    COUNT(nif->stack, ip6_tx);
    (void)netif_output(nif, dst, &m);
}

/* ---- errors out ---- */

/* RFC 4443 2.4 (e): no errors about errors, about groups (two kinds apart), or to nobody. */
static bool may_answer6(const struct mbuf *m, const struct ip_info *info, uint8_t type,
                        uint8_t code)
{
    uint8_t theirs;

    if (ipaddr_is_any(&info->src))
        return false;
    if ((info->multicast || (m->m_flags & (M_BCAST | M_MCAST))) &&
        !(type == ICMP6_PARAM_PROBLEM && code == ICMP6_PARAM_OPTION))
        return false;
    if (info->proto != IPPROTO_ICMPV6)
        return true;
    if (m->m_pkt.len == 0)
        return false;
    mbuf_copy_out(m, 0, 1, &theirs);
    return theirs >= ERROR_TYPES_END && theirs != ICMP6_REDIRECT;
}

void icmp6_send_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                      uint8_t type, uint8_t code, uint32_t rest)
{
    struct icmp_header h = {.type = type, .code = code, .rest = rest};
    struct ip_output_args a = {.dst = info->src, .proto = IPPROTO_ICMPV6};
    struct mbuf *quote;

    if (!may_answer6(m, info, type, code) || !icmp_rate_ok(s))
        return;
    quote = icmp_quote(s, m, info, IPV6_MIN_MTU - IPV6_HEADER_LEN - ICMP_HEADER_LEN);
    if (quote == NULL)
        return;
    if (!info->multicast)
        a.src = info->dst;
    COUNT(s, icmp_tx_errors);
    icmp_send_message(s, &h, quote, &a);
}

/* ---- input ---- */

static const struct {
    enum icmp_kind kind;
    int error;
    bool hard;
} unreach[] = {
    [ICMP6_UNREACH_NOROUTE] = {ICMP_KIND_UNREACH_NET, ENETUNREACH, false},
    [ICMP6_UNREACH_ADMIN] = {ICMP_KIND_UNREACH_ADMIN, EACCES, false},
    [ICMP6_UNREACH_SCOPE] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
    [ICMP6_UNREACH_ADDR] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
    [ICMP6_UNREACH_PORT] = {ICMP_KIND_UNREACH_PORT, ECONNREFUSED, true},
    [ICMP6_UNREACH_POLICY] = {ICMP_KIND_UNREACH_ADMIN, EACCES, false},
    [ICMP6_UNREACH_REJECT] = {ICMP_KIND_UNREACH_ADMIN, EACCES, false},
};

static bool classify6(struct weir_stack *s, const struct icmp_header *h, struct icmp_error *e)
{
    switch (h->type) {
    case ICMP6_UNREACH:
        if (h->code >= NELEM(unreach))
            return false;
        e->kind = unreach[h->code].kind;
        e->error = unreach[h->code].error;
        e->hard = unreach[h->code].hard;
        return true;
    case ICMP6_TOOBIG:
        e->kind = ICMP_KIND_TOOBIG;
        e->error = EMSGSIZE;
        e->mtu = h->rest;
        /* RFC 8201 4: a smaller one is no reason to do anything. */
        return h->rest >= IPV6_MIN_MTU || KNOB(s, tcp_freebsd_wire);
    case ICMP6_TIME_EXCEEDED:
        e->kind = ICMP_KIND_TIME_EXCEEDED;
        e->error = EHOSTUNREACH;
        return h->code <= 1;
    case ICMP6_PARAM_PROBLEM:
        e->hard = h->code == ICMP6_PARAM_NEXT_HEADER;
        e->kind = e->hard ? ICMP_KIND_UNREACH_PROTO : ICMP_KIND_PARAM_PROBLEM;
        e->error = EPROTO;
        return true;
    default:
        return false;
    }
}

/* Find the transport header in n bytes of a packet that may be cut off anywhere. False: there is
 * none. */
static bool quoted_transport(const uint8_t *q, uint32_t n, struct ipv6_walk *w)
{
    struct ipv6_header h = {.next = q[6]};
    enum ipv6_walk_result result;
    struct ipv6_fragment f;

    h.src.family = h.dst.family = AF_INET6;
    memcpy(h.src.b, q + 8, 16);
    memcpy(h.dst.b, q + 24, 16);
    ipv6_walk_init(w, &h);
    result = ipv6_walk(q, n, w);
    if (result == IPV6_WALK_FRAGMENT) {
        if (w->off + IPV6_FRAG_HEADER_LEN > n ||
            ipv6_fragment_parse(q + w->off, n - w->off, &f) != 0 || f.off != 0)
            return false;
        ipv6_walk_skip_fragment(w, &f);
        result = ipv6_walk(q, n, w);
    }
    return result == IPV6_WALK_UPPER && w->off <= n;
}

static void error_input(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                        const struct icmp_header *h)
{
    uint8_t q[IPV6_MIN_MTU];
    uint32_t n = MIN(m->m_pkt.len - ICMP_HEADER_LEN, (uint32_t)sizeof(q));
    struct icmp_error e = {.type = h->type, .code = h->code};
    struct ipv6_walk w;

    if (n < IPV6_HEADER_LEN)
        goto bad;
    mbuf_copy_out(m, ICMP_HEADER_LEN, n, q);
    if (q[0] >> 4 != 6 || !quoted_transport(q, n, &w))
        goto bad;
    e.flow.laddr.family = e.flow.faddr.family = AF_INET6;
    memcpy(e.flow.laddr.b, q + 8, 16);
    memcpy(e.flow.faddr.b, q + 24, 16);
    if (ipaddr_is_linklocal(&e.flow.laddr))
        e.flow.laddr.scope = info->netif->index;
    if (ipaddr_is_linklocal(&e.flow.faddr))
        e.flow.faddr.scope = info->netif->index;
    if (!ipaddr_equal(&e.flow.laddr, &info->dst) || !ip_is_local(s, &e.flow.laddr))
        goto bad;
    if (!classify6(s, h, &e)) {
        COUNT(s, icmp_rx_ignored);
        return;
    }
    e.l4 = q + w.off;
    e.l4len = n - w.off;
    icmp_report(s, w.next, &e);
    return;
bad:
    COUNT(s, icmp_rx_bad_quote);
}

static bool checksum_ok(const struct mbuf *m, const struct ip_info *info)
{
    uint64_t sum = checksum_pseudo(&info->src, &info->dst, IPPROTO_ICMPV6, m->m_pkt.len);

    return checksum_fold(checksum_mbuf(m, 0, m->m_pkt.len, sum)) == 0xffff;
}

static void icmp6_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    uint8_t raw[ICMP_HEADER_LEN];
    struct icmp_header h;

    COUNT(s, icmp_rx);
    if ((*m)->m_pkt.len < sizeof(raw)) {
        COUNT(s, icmp_rx_short);
        goto out;
    }
    if (!checksum_ok(*m, info)) {
        COUNT(s, icmp_rx_badsum);
        goto out;
    }
    mbuf_copy_out(*m, 0, sizeof(raw), raw);
    if (icmp_header_parse(raw, sizeof(raw), &h) != 0)
        goto out;
    switch (h.type) {
    case ICMP6_ECHO:
        if (ipaddr_is_any(&info->src) || (info->multicast && !KNOB(s, icmp_bmcastecho)))
            COUNT(s, icmp_rx_ignored);
        else
            icmp_echo_reply(s, m, info, ICMP6_ECHO_REPLY);
        break;
    case ICMP6_UNREACH:
    case ICMP6_TOOBIG:
    case ICMP6_TIME_EXCEEDED:
    case ICMP6_PARAM_PROBLEM:
        error_input(s, *m, info, &h);
        break;
    case ICMP6_NEIGHBOR_SOLICIT:
    case ICMP6_NEIGHBOR_ADVERT:
        nd_input(s, *m, info, h.code);
        break;
    case ICMP6_MLD_QUERY:
        mld_query(s, *m, info);
        break;
    default: /* router advertisements and redirects among them: addresses and routes are configured
              */
        COUNT(s, icmp_rx_ignored);
        break;
    }
out:
    mbuf_free_chain(m);
}

const struct ip_proto icmp6_proto = {.input = icmp6_input};
