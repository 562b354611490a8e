/* SPDX-License-Identifier: BSD-2-Clause
 * ICMP (RFC 792, RFC 1122 3.2.2): echo, errors in and out; and what both families share of it. */
#include "ip_var.h"
#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/wire.h"

#define ICMP4_MAX_MESSAGE 576 /* an error with its IP header (RFC 1812 4.3.2.3) */
#define QUOTE_MIN 8           /* bytes of transport header that a quote must hold */

/* ---- shared by both families ---- */

/* A fixed window of a second, as in FreeBSD. The limit of each is a little random: an exact one
 * could be probed to learn who else drew answers from us (CVE-2020-25705). */
bool icmp_rate_ok(struct weir_stack *s)
{
    struct ip_state *ip = s->ip;
    uint32_t limit = (uint32_t)KNOB(s, icmp_icmplim);

    if (limit == 0)
        return true;
    if (s->now - ip->icmp_window_ns >= NS_PER_S) {
        ip->icmp_window_ns = s->now;
        ip->icmp_count = 0;
        ip->icmp_jitter = rng_below(&s->rng, limit / 16 + 1);
    }
    if (ip->icmp_count + ip->icmp_jitter >= limit) {
        COUNT(s, icmp_tx_limited);
        return false;
    }
    ip->icmp_count++;
    return true;
}

/* Where the IP header of m still stands in front of its data, in one piece: checked, since whoever
 * pulled bytes up may have moved the data away from it. */
static const uint8_t *header_of(const struct mbuf *m, const struct ip_info *info)
{
    bool v4 = info->src.family == AF_INET;
    size_t fixed = v4 ? IPV4_HEADER_LEN : 40;
    const uint8_t *p;

    if ((size_t)(m->m_data - mbuf_start(m)) < info->hlen || info->hlen + m->m_len < fixed)
        return NULL;
    p = m->m_data - info->hlen;
    if (v4)
        return p[0] >> 4 == 4 && memcmp(p + 12, info->src.b, 4) == 0 ? p : NULL;
    return p[0] >> 4 == 6 && memcmp(p + 8, info->src.b, 16) == 0 ? p : NULL;
}

/* A packet that came with its transport checksum left to be completed is quoted as it would have
 * been on a wire. */
static void complete_quoted_checksum(struct mbuf *q, const struct mbuf *m,
                                     const struct ip_info *info)
{
    uint32_t at = info->hlen + m->m_pkt.csum_offset;
    uint16_t sum;

    if (!(m->m_pkt.csum_flags & CSUM_L4_PARTIAL) || at + sizeof(sum) > q->m_len)
        return;
    sum = (uint16_t)~checksum_fold(checksum_mbuf(m, 0, m->m_pkt.len, 0));
    if (sum == 0 && info->proto == IPPROTO_UDP)
        sum = 0xffff;
    memcpy(q->m_data + at, &sum, sizeof(sum));
}

struct mbuf *icmp_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                        uint32_t limit)
{
    const uint8_t *header = header_of(m, info);
    uint32_t len = MIN(info->hlen + m->m_pkt.len, limit);
    struct mbuf *q;

    if (header == NULL || len <= info->hlen)
        return NULL;
    q = mbuf_get_size(s->account, len);
    if (q == NULL) {
        COUNT(s, ip_tx_nobufs);
        return NULL;
    }
    memcpy(q->m_data, header, info->hlen);
    mbuf_copy_out(m, 0, len - info->hlen, q->m_data + info->hlen);
    q->m_len = len;
    complete_quoted_checksum(q, m, info);
    return q;
}

void icmp_send_message(struct weir_stack *s, const struct icmp_header *h, struct mbuf *body,
                       struct ip_output_args *a)
{
    struct mbuf *m = mbuf_get_packet(s->account);
    uint64_t sum = 0;
    uint16_t folded;
    struct route r;

    if (m == NULL || (ipaddr_is_any(&a->src) && ip_route(s, &a->dst, NULL, &r) != 0)) {
        COUNT(s, ip_tx_nobufs);
        mbuf_free_chain(&body);
        mbuf_free_chain(&m);
        return;
    }
    if (ipaddr_is_any(&a->src))
        a->src = r.src;
    icmp_header_build(m->m_data, h);
    m->m_len = ICMP_HEADER_LEN;
    m->m_pkt.len = ICMP_HEADER_LEN + mbuf_chain_len(body);
    m->m_next = body;
    if (a->dst.family == AF_INET6)
        sum = checksum_pseudo(&a->src, &a->dst, IPPROTO_ICMPV6, m->m_pkt.len);
    folded = (uint16_t)~checksum_fold(checksum_mbuf(m, 0, m->m_pkt.len, sum));
    memcpy(m->m_data + 2, &folded, sizeof(folded));
    (void)ip_output(s, &m, a);
}

void icmp_echo_reply(struct weir_stack *s, struct mbuf **mp, const struct ip_info *info,
                     uint8_t type)
{
    struct ip_output_args a = {.dst = info->src, .proto = info->proto, .tos = info->tos & 0xfc};
    struct icmp_header h;
    struct mbuf *m = *mp;
    uint8_t raw[ICMP_HEADER_LEN];

    *mp = NULL;
    m->m_pkt.csum_flags = 0; /* of the request */
    mbuf_copy_out(m, 0, sizeof(raw), raw);
    if (icmp_header_parse(raw, sizeof(raw), &h) != 0) {
        mbuf_free_chain(&m);
        return;
    }
    h.type = type;
    h.code = 0;
    h.sum = 0;
    mbuf_trim_head(&m, ICMP_HEADER_LEN);
    m->m_flags &= (uint16_t)~M_PKTHDR;
    if (!info->multicast)
        a.src = info->dst;
    COUNT(s, icmp_echo_replies);
    icmp_send_message(s, &h, m, &a);
}

void icmp_report(struct weir_stack *s, uint8_t proto, struct icmp_error *e)
{
    const struct ip_proto *p = s->ip->proto[proto];

    if (e->l4len < QUOTE_MIN) {
        COUNT(s, icmp_rx_bad_quote);
        return;
    }
    if (proto == IPPROTO_TCP || proto == IPPROTO_UDP) {
        e->flow.lport = get_be16(e->l4);
        e->flow.fport = get_be16(e->l4 + 2);
    }
    if (p == NULL || p->error == NULL)
        return;
    if (!e->local)
        COUNT(s, icmp_rx_errors);
    p->error(s, e);
}

/* ---- IPv4: errors out ---- */

/* RFC 1122 3.2.2: no errors about errors, groups, broadcasts, or sources that name no single host
 * (the latter were dropped on input). */
static bool may_answer4(const struct mbuf *m, const struct ip_info *info)
{
    uint8_t type;

    if (info->multicast || (m->m_flags & (M_BCAST | M_MCAST)))
        return false;
    if (info->proto != IPPROTO_ICMP || m->m_pkt.len == 0)
        return info->proto != IPPROTO_ICMP;
    mbuf_copy_out(m, 0, 1, &type);
    return type == ICMP4_ECHO || type == ICMP4_ECHO_REPLY;
}

void icmp4_send_quote(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                      uint8_t type, uint8_t code)
{
    struct icmp_header h = {.type = type, .code = code};
    struct ip_output_args a = {.src = info->dst, .dst = info->src, .proto = IPPROTO_ICMP};
    struct mbuf *quote;

    if (!may_answer4(m, info) || !icmp_rate_ok(s))
        return;
    quote = icmp_quote(s, m, info, ICMP4_MAX_MESSAGE - IPV4_HEADER_LEN - ICMP_HEADER_LEN);
    if (quote == NULL)
        return;
    COUNT(s, icmp_tx_errors);
    icmp_send_message(s, &h, quote, &a);
}

void icmp_send_error(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                     enum icmp_kind kind)
{
    bool v4 = info->src.family == AF_INET;

    switch (kind) {
    case ICMP_KIND_UNREACH_PORT:
        if (v4)
            icmp4_send_quote(s, m, info, ICMP4_UNREACH, ICMP4_UNREACH_PORT);
        else
            icmp6_send_quote(s, m, info, ICMP6_UNREACH, ICMP6_UNREACH_PORT, 0);
        return;
    case ICMP_KIND_UNREACH_PROTO:
        if (v4)
            icmp4_send_quote(s, m, info, ICMP4_UNREACH, ICMP4_UNREACH_PROTO);
        else
            icmp6_send_quote(s, m, info, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_NEXT_HEADER, 6);
        return;
    case ICMP_KIND_UNREACH_ADMIN:
        if (v4)
            icmp4_send_quote(s, m, info, ICMP4_UNREACH, ICMP4_UNREACH_FILTER_PROHIB);
        else
            icmp6_send_quote(s, m, info, ICMP6_UNREACH, ICMP6_UNREACH_ADMIN, 0);
        return;
    default: /* a host has no occasion for the others */
        return;
    }
}

/* ---- IPv4: input ---- */

/* Kind and errno of each code of "destination unreachable", as Linux reports them. */
static const struct {
    enum icmp_kind kind;
    int error;
    bool hard;
} unreach[] = {
    [ICMP4_UNREACH_NET] = {ICMP_KIND_UNREACH_NET, ENETUNREACH, false},
    [ICMP4_UNREACH_HOST] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
    [ICMP4_UNREACH_PROTO] = {ICMP_KIND_UNREACH_PROTO, ENOPROTOOPT, true},
    [ICMP4_UNREACH_PORT] = {ICMP_KIND_UNREACH_PORT, ECONNREFUSED, true},
    [ICMP4_UNREACH_FRAG_NEEDED] = {ICMP_KIND_TOOBIG, EMSGSIZE, false},
    [ICMP4_UNREACH_SRC_ROUTE] = {ICMP_KIND_UNREACH_HOST, EOPNOTSUPP, false},
    [ICMP4_UNREACH_NET_UNKNOWN] = {ICMP_KIND_UNREACH_NET, ENETUNREACH, false},
    [ICMP4_UNREACH_HOST_UNKNOWN] = {ICMP_KIND_UNREACH_HOST, EHOSTDOWN, false},
    [ICMP4_UNREACH_ISOLATED] = {ICMP_KIND_UNREACH_HOST, ENONET, false},
    [ICMP4_UNREACH_NET_PROHIB] = {ICMP_KIND_UNREACH_ADMIN, ENETUNREACH, false},
    [ICMP4_UNREACH_HOST_PROHIB] = {ICMP_KIND_UNREACH_ADMIN, EHOSTUNREACH, false},
    [ICMP4_UNREACH_NET_TOS] = {ICMP_KIND_UNREACH_NET, ENETUNREACH, false},
    [ICMP4_UNREACH_HOST_TOS] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
    [ICMP4_UNREACH_FILTER_PROHIB] = {ICMP_KIND_UNREACH_ADMIN, EHOSTUNREACH, false},
    [ICMP4_UNREACH_HOST_PRECEDENCE] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
    [ICMP4_UNREACH_PRECEDENCE_CUTOFF] = {ICMP_KIND_UNREACH_HOST, EHOSTUNREACH, false},
};

/* The next-hop MTU to try when a router of before RFC 1191 does not say it: the next plateau below
 * the packet's length (RFC 1191 7.1). */
static uint32_t plateau_below(uint32_t len)
{
    static const uint16_t plateaus[] = {65535, 32000, 17914, 8166, 4352, 2002,
                                        1492,  1280,  1006,  508,  296,  68};
    unsigned i;

    for (i = 0; i < NELEM(plateaus); i++) {
        if (plateaus[i] < len)
            return plateaus[i];
    }
    return 68;
}

/* Fill e's kind. quoted_len: total length of the quoted packet. False: nothing that is passed on.
 */
static bool classify4(struct weir_stack *s, const struct icmp_header *h, uint32_t quoted_len,
                      struct icmp_error *e)
{
    switch (h->type) {
    case ICMP4_UNREACH:
        if (h->code >= NELEM(unreach))
            return false;
        e->kind = unreach[h->code].kind;
        e->error = unreach[h->code].error;
        e->hard = unreach[h->code].hard;
        if (e->kind == ICMP_KIND_TOOBIG) {
            e->mtu = h->rest & 0xffff;
            if (e->mtu == 0)
                e->mtu = plateau_below(quoted_len);
            e->mtu = MAX(e->mtu, (uint32_t)KNOB(s, icmp_pmtu_floor));
        }
        return true;
    case ICMP4_TIME_EXCEEDED:
        e->kind = ICMP_KIND_TIME_EXCEEDED;
        e->error = EHOSTUNREACH;
        return h->code <= 1;
    case ICMP4_PARAM_PROBLEM:
        e->kind = ICMP_KIND_PARAM_PROBLEM;
        e->error = EPROTO;
        return true;
    case ICMP4_SOURCE_QUENCH:
        e->kind = ICMP_KIND_SOURCE_QUENCH;
        return true;
    default:
        return false;
    }
}

/* An error: what it quotes must be the start of a packet that we sent, down to 8 bytes of its
 * transport header. */
static void error_input(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info,
                        const struct icmp_header *h)
{
    uint8_t q[ICMP4_MAX_MESSAGE];
    uint32_t n = MIN(m->m_pkt.len - ICMP_HEADER_LEN, (uint32_t)sizeof(q)), hlen;
    struct icmp_error e = {.type = h->type, .code = h->code};

    if (n < IPV4_HEADER_LEN)
        goto bad;
    mbuf_copy_out(m, ICMP_HEADER_LEN, n, q);
    hlen = (q[0] & 0x0fu) * 4;
    if (q[0] >> 4 != 4 || hlen < IPV4_HEADER_LEN || n < hlen + QUOTE_MIN ||
        (get_be16(q + 6) & 0x1fff) != 0)
        goto bad;
    e.flow.laddr.family = e.flow.faddr.family = AF_INET;
    memcpy(e.flow.laddr.b, q + 12, 4);
    memcpy(e.flow.faddr.b, q + 16, 4);
    if (!ipaddr_equal(&e.flow.laddr, &info->dst) || !ip_is_local(s, &e.flow.laddr))
        goto bad;
    if (!classify4(s, h, get_be16(q + 2), &e)) {
        COUNT(s, icmp_rx_ignored);
        return;
    }
    e.l4 = q + hlen;
    e.l4len = n - hlen;
    icmp_report(s, q[9], &e);
    return;
bad:
    COUNT(s, icmp_rx_bad_quote);
}

static void icmp4_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    uint8_t raw[ICMP_HEADER_LEN];
    struct icmp_header h;

    COUNT(s, icmp_rx);
    if ((*m)->m_pkt.len < sizeof(raw)) {
        COUNT(s, icmp_rx_short);
        goto out;
    }
    if (checksum_fold(checksum_mbuf(*m, 0, (*m)->m_pkt.len, 0)) != 0xffff) {
        COUNT(s, icmp_rx_badsum);
        goto out;
    }
    mbuf_copy_out(*m, 0, sizeof(raw), raw);
    if (icmp_header_parse(raw, sizeof(raw), &h) != 0)
        goto out;
    switch (h.type) {
    case ICMP4_ECHO:
        if (info->multicast && !KNOB(s, icmp_bmcastecho))
            COUNT(s, icmp_rx_ignored);
        else
            icmp_echo_reply(s, m, info, ICMP4_ECHO_REPLY);
        break;
    case ICMP4_UNREACH:
    case ICMP4_TIME_EXCEEDED:
    case ICMP4_PARAM_PROBLEM:
    case ICMP4_SOURCE_QUENCH:
        error_input(s, *m, info, &h);
        break;
    default: /* redirects among them: a host on a hostile link must not follow them */
        COUNT(s, icmp_rx_ignored);
        break;
    }
out:
    mbuf_free_chain(m);
}

const struct ip_proto icmp4_proto = {.input = icmp4_input};
