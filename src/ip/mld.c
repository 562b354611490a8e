/* SPDX-License-Identifier: BSD-2-Clause
 * Multicast listener discovery, the host's half (RFC 3810; RFC 2710 for queriers of version 1).
 *
 * A switch that snoops passes on the packets of a group only to where it heard of a listener. Ours
 * are the solicited-node groups of our addresses, without which no neighbour finds us (RFC 4861
 * 7.2.1). They are reported when an address is added, again within a second, and when a querier
 * asks, after a random part of the time that it allows. All-nodes needs no report, and IPv4 has no
 * group here but all-hosts, which needs none either (RFC 3376 6). */
#include "ip_var.h"
#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

#define QUERY_LEN 24 /* of version 1; longer ones are of version 2 */
#define REPORT_V1_LEN 24
#define REPORT_V2_LEN 28 /* with one record */
#define MODE_IS_EXCLUDE 2
#define CHANGE_TO_EXCLUDE 4
#define REPEAT_MS 1000 /* unsolicited report interval, RFC 3810 9.11 */

/* In an IPv6 packet of hop limit 1 behind a router alert. */
static const uint8_t router_alert[8] = {IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0};

/* Link-local, or none at all (RFC 3590). */
static struct ipaddr source(const struct netif *nif, const struct ipaddr *dst)
{
    struct ipaddr src, none = {.family = AF_INET6};

    return netif_source_for(nif, dst, &src) && ipaddr_is_linklocal(&src) ? src : none;
}

/* m: the message, its checksum 0. Consumes it. */
static void message_send(struct netif *nif, struct mbuf *m, const struct ipaddr *dst)
{
    struct ipaddr src = source(nif, dst);
    uint32_t len = m->m_pkt.len;
    uint64_t sum = checksum_pseudo(&src, dst, IPPROTO_ICMPV6, len);
    uint16_t folded = (uint16_t)~checksum_fold(checksum_mbuf(m, 0, len, sum));
    struct ipv6_header h = {.plen = (uint16_t)(sizeof(router_alert) + len),
                            .next = IPV6_NH_HOPOPTS,
                            .hlim = 1,
                            .src = src,
                            .dst = *dst};

    memcpy(m->m_data + 2, &folded, sizeof(folded));
    m = mbuf_prepend(m, IPV6_HEADER_LEN + sizeof(router_alert));
    if (m == NULL) {
        COUNT(nif->stack, ip6_tx_nobufs);
        return;
    }
    ipv6_header_build(m->m_data, &h);
    memcpy(m->m_data + IPV6_HEADER_LEN, router_alert, sizeof(router_alert));
    COUNT(nif->stack, ip6_tx);
    COUNT(nif->stack, icmp_mld_reports);
    (void)netif_output(nif, dst, &m);
}

static void report_group(struct netif *nif, const struct ipaddr *group, uint8_t mode)
{
    struct icmp_header v1 = {.type = ICMP6_MLD_REPORT_V1};
    struct icmp_header v2 = {.type = ICMP6_MLD_REPORT_V2, .rest = 1 /* record */};
    struct ipaddr routers = {.family = AF_INET6, .b = {0xff, 0x02, [15] = 0x16}};
    struct mbuf *m = mbuf_get_packet(nif->stack->account);
    uint8_t *p;

    if (m == NULL) {
        COUNT(nif->stack, ip6_tx_nobufs);
        return;
    }
    p = m->m_data;
    m->m_len = m->m_pkt.len = nif->mld_v1 ? REPORT_V1_LEN : REPORT_V2_LEN;
    icmp_header_build(p, nif->mld_v1 ? &v1 : &v2);
    if (!nif->mld_v1)
        put_be32(p + ICMP_HEADER_LEN, (uint32_t)mode << 24);
    memcpy(p + m->m_len - 16, group->b, 16);
    message_send(nif, m, nif->mld_v1 ? group : &routers);
}

/* Does an address before the i-th have the same group? */
static bool is_repeated(const struct netif *nif, unsigned i)
{
    for (unsigned j = 0; j < i; j++) {
        const struct ipaddr *a = &nif->addrs[j].addr;

        if (a->family == AF_INET6 && memcmp(a->b + 13, nif->addrs[i].addr.b + 13, 3) == 0)
            return true;
    }
    return false;
}

static void report_all(struct netif *nif, uint8_t mode)
{
    for (unsigned i = 0; i < NETIF_MAX_ADDRS; i++) {
        const struct ipaddr *a = &nif->addrs[i].addr;
        struct ipaddr group;

        if (a->family != AF_INET6 || is_repeated(nif, i))
            continue;
        group = nd_solicited_node(a);
        report_group(nif, &group, mode);
    }
}

static void mld_timeout(struct timer *t, uint64_t now_ns)
{
    struct netif *nif = CONTAINER_OF(t, struct netif, mld_timer);

    report_all(nif, nif->mld_repeat ? CHANGE_TO_EXCLUDE : MODE_IS_EXCLUDE);
    nif->mld_repeat = false;
}

static void arm_within(struct netif *nif, uint32_t ms)
{
    struct weir_stack *s = nif->stack;
    uint64_t when = s->now + rng_below(&s->rng, MAX(ms, 1u)) * NS_PER_MS;

    if (!timer_is_armed(&nif->mld_timer) || nif->mld_timer.deadline_ns > when)
        wheel_arm(&s->wheel, &nif->mld_timer, when);
}

void mld_start(struct netif *nif)
{
    timer_init(&nif->mld_timer, mld_timeout);
}

void mld_stop(struct netif *nif)
{
    wheel_cancel(&nif->stack->wheel, &nif->mld_timer);
}

void mld_changed(struct netif *nif)
{
    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return;
    report_all(nif, CHANGE_TO_EXCLUDE);
    nif->mld_repeat = true;
    arm_within(nif, REPEAT_MS);
}

/* Milliseconds of a maximum response code (RFC 3810 5.1.3). */
static uint32_t response_ms(uint16_t code, bool v1)
{
    if (v1 || code < 0x8000)
        return code;
    return ((code & 0x0fffu) | 0x1000u) << (((code >> 12) & 7) + 3);
}

void mld_query(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info)
{
    struct netif *nif = info->netif;
    uint8_t code[2];

    if (m->m_pkt.len < QUERY_LEN || info->ttl != 1 || !ipaddr_is_linklocal(&info->src) ||
        (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))) {
        COUNT(s, icmp_rx_ignored);
        return;
    }
    mbuf_copy_out(m, 4, sizeof(code), code);
    nif->mld_v1 = m->m_pkt.len == QUERY_LEN;
    arm_within(nif, response_ms(get_be16(code), nif->mld_v1));
}
