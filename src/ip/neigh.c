/* SPDX-License-Identifier: BSD-2-Clause
 * Neighbours: ARP (RFC 826, RFC 1122 2.3.2) and neighbour discovery (RFC 4861 7) in one machine.
 *
 * INCOMPLETE --answer--> REACHABLE --time--> STALE --use--> DELAY --5 s--> PROBE --no answer-->
 * forgotten
 *      |               ^---- progress of a transport (M_CONFIRM) from DELAY and PROBE too
 *      \--no answer--> FAILED --net.link.ether.inet.wait--> INCOMPLETE at the next use
 *
 * Packets for an INCOMPLETE neighbour are held, the oldest dropped first; when it fails, each of
 * them becomes a local error for the transport that sent it. REACHABLE ends by looking at the clock
 * at the next use, so that only questions that wait for an answer hold a timer. Answers and
 * requests of others update what is known; only requests for one of our own addresses make an
 * entry, and never in a full table. */
#include "ip_var.h"
#include "wire/arp.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

#define REQUEST_INTERVAL_NS NS_PER_S
#define DELAY_FIRST_PROBE_NS (5 * NS_PER_S) /* RFC 4861 10 */
#define UNICAST_PROBES 3                    /* RFC 4861 10 */
#define ND_REACHABLE_MIN_MS 15000           /* 30 s, times 0.5 to 1.5 (RFC 4861 6.3.2) */
#define ND_REACHABLE_SPREAD_MS 30000
#define DEFEND_INTERVAL_NS (10 * NS_PER_S) /* RFC 5227 2.4 */
#define ND_MAX_MESSAGE 512 /* solicitations and advertisements are 24 to some 60 bytes */
#define REPORT_BYTES 64    /* of a held packet's transport header that its transport is shown */

enum neigh_state { INCOMPLETE, REACHABLE, STALE, DELAY, PROBE, FAILED };

struct neigh {
    LIST_ENTRY(neigh) hash;
    TAILQ_ENTRY(neigh) age;
    struct netif *nif;
    struct ipaddr addr;
    uint8_t mac[ETH_ADDR_LEN];
    uint8_t state;
    uint32_t tries;
    uint64_t until_ns; /* REACHABLE, FAILED: when that ends */
    struct timer timer;
    struct mbuf *hold, **hold_tail; /* INCOMPLETE */
    uint32_t hold_len;
};

static void neigh_timeout(struct timer *t, uint64_t now_ns);

/* ---- the table ---- */

void neigh_init(struct weir_stack *s)
{
    TAILQ_INIT(&s->ip->neigh_age);
}

static struct neigh_bucket *bucket_of(const struct netif *nif, const struct ipaddr *a)
{
    struct {
        struct ipaddr addr;
        uint64_t netif;
    } key = {.addr = *a, .netif = nif->index};

    return &nif->stack->ip
                ->neigh_hash[siphash(nif->stack->secret, &key, sizeof(key)) % NEIGH_BUCKETS];
}

static struct neigh *neigh_find(const struct netif *nif, const struct ipaddr *a)
{
    struct neigh *n = nif->neigh_last;

    if (likely(n != NULL && ipaddr_equal(&n->addr, a)))
        return n;
    LIST_FOREACH (n, bucket_of(nif, a), hash) {
        if (n->nif == nif && ipaddr_equal(&n->addr, a))
            return n;
    }
    return NULL;
}

static struct mbuf *hold_take(struct neigh *n)
{
    struct mbuf *m = n->hold;

    n->hold = NULL;
    n->hold_tail = &n->hold;
    n->hold_len = 0;
    return m;
}

static void neigh_free(struct neigh *n)
{
    struct weir_stack *s = n->nif->stack;
    struct mbuf *m = hold_take(n), *next;

    for (; m != NULL; m = next) {
        next = m->m_nextpkt;
        m->m_nextpkt = NULL;
        COUNT(s, arp_hold_drops);
        mbuf_free_chain(&m);
    }
    if (n->nif->neigh_last == n)
        n->nif->neigh_last = NULL;
    wheel_cancel(&s->wheel, &n->timer);
    LIST_REMOVE(n, hash);
    TAILQ_REMOVE(&s->ip->neigh_age, n, age);
    s->ip->neigh_count--;
    alloc_free(&s->alloc, n, sizeof(*n));
}

/* NULL: no memory, or the table is full and `evict` says that the newcomer is not worth an old
 * entry. */
static struct neigh *neigh_create(struct netif *nif, const struct ipaddr *a, bool evict)
{
    struct weir_stack *s = nif->stack;
    struct neigh *n;

    if (s->ip->neigh_count >= (uint32_t)KNOB(s, arp_maxentries)) {
        COUNT(s, arp_table_full);
        if (!evict)
            return NULL;
        neigh_free(TAILQ_FIRST(&s->ip->neigh_age));
    }
    n = alloc_zero(&s->alloc, sizeof(*n));
    if (n == NULL)
        return NULL;
    n->nif = nif;
    n->addr = *a;
    n->state = STALE;
    n->hold_tail = &n->hold;
    timer_init(&n->timer, neigh_timeout);
    LIST_INSERT_HEAD(bucket_of(nif, a), n, hash);
    TAILQ_INSERT_TAIL(&s->ip->neigh_age, n, age);
    s->ip->neigh_count++;
    return n;
}

void neigh_netif_gone(struct netif *nif)
{
    struct neigh *n, *next;

    TAILQ_FOREACH_SAFE (n, &nif->stack->ip->neigh_age, age, next) {
        if (n->nif == nif)
            neigh_free(n);
    }
}

bool neigh_has_failed(struct netif *nif, const struct ipaddr *nexthop)
{
    const struct neigh *n;

    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return false;
    n = neigh_find(nif, nexthop);
    return n != NULL && n->state == FAILED && n->until_ns > nif->stack->now;
}

void neigh_doubt(struct netif *nif, const struct ipaddr *nexthop)
{
    struct neigh *n;

    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return;
    n = neigh_find(nif, nexthop);
    if (n != NULL && n->state == REACHABLE)
        n->until_ns = 0;
}

/* ---- asking ---- */

static void arp_send(struct netif *nif, const struct arp_packet *a, const uint8_t *dst)
{
    struct mbuf *m = mbuf_get_packet(nif->stack->account);

    if (m == NULL) {
        COUNT(nif->stack, ip_tx_nobufs);
        return;
    }
    arp_build(m->m_data, a);
    m->m_len = m->m_pkt.len = ARP_LEN;
    if (a->op == ARP_REQUEST)
        COUNT(nif->stack, arp_tx_requests);
    else
        COUNT(nif->stack, arp_tx_replies);
    (void)netif_frame(nif, &m, dst, ETH_TYPE_ARP);
}

static void nd_send(struct netif *nif, struct nd_neighbor *nd, const struct ipaddr *src,
                    const struct ipaddr *dst)
{
    struct mbuf *m = mbuf_get_packet(nif->stack->account);

    if (m == NULL) {
        COUNT(nif->stack, ip6_tx_nobufs);
        return;
    }
    nd->has_lladdr = true;
    memcpy(nd->lladdr, nif->mac, ETH_ADDR_LEN);
    m->m_len = m->m_pkt.len = (uint32_t)nd_neighbor_build(m->m_data, nd);
    if (nd->type == ICMP6_NEIGHBOR_SOLICIT)
        COUNT(nif->stack, arp_tx_requests);
    else
        COUNT(nif->stack, arp_tx_replies);
    icmp6_output_on(nif, &m, src, dst);
}

/* Ask everybody, or the neighbour itself while it is probed. */
static void solicit(struct neigh *n)
{
    struct netif *nif = n->nif;
    struct ipaddr src, dst;

    n->tries++;
    if (!netif_source_for(nif, &n->addr, &src))
        return;
    if (n->addr.family == AF_INET) {
        struct arp_packet a = {.op = ARP_REQUEST, .spa = src, .tpa = n->addr};

        memcpy(a.sha, nif->mac, ETH_ADDR_LEN);
        arp_send(nif, &a, n->state == PROBE ? n->mac : eth_broadcast);
    } else {
        struct nd_neighbor nd = {.type = ICMP6_NEIGHBOR_SOLICIT, .target = n->addr};

        dst = n->state == PROBE ? n->addr : nd_solicited_node(&n->addr);
        nd_send(nif, &nd, &src, &dst);
    }
}

static void resolve_start(struct neigh *n)
{
    n->state = INCOMPLETE;
    n->tries = 0;
    solicit(n);
    wheel_arm(&n->nif->stack->wheel, &n->timer, n->nif->stack->now + REQUEST_INTERVAL_NS);
}

/* Find the transport header of a packet of ours, which may be a first fragment. False: there is
 * none in it. */
static bool held_parse(const struct netif *nif, const struct mbuf *m, struct icmp_error *e,
                       uint8_t *proto, uint32_t *off)
{
    const uint8_t *p = m->m_data;
    bool v4 = m->m_len > 0 && p[0] >> 4 == 4;

    if (m->m_len < (v4 ? IPV4_HEADER_LEN : IPV6_HEADER_LEN))
        return false;
    e->flow.laddr.family = e->flow.faddr.family = v4 ? AF_INET : AF_INET6;
    if (v4) {
        *proto = p[9];
        *off = (p[0] & 0x0fu) * 4;
        memcpy(e->flow.laddr.b, p + 12, 4);
        memcpy(e->flow.faddr.b, p + 16, 4);
        return (get_be16(p + 6) & 0x1fff) == 0;
    }
    *proto = p[6];
    *off = IPV6_HEADER_LEN;
    memcpy(e->flow.laddr.b, p + 8, 16);
    memcpy(e->flow.faddr.b, p + 24, 16);
    if (ipaddr_is_linklocal(&e->flow.laddr))
        e->flow.laddr.scope = nif->index;
    if (ipaddr_is_linklocal(&e->flow.faddr))
        e->flow.faddr.scope = nif->index;
    return *proto != IPV6_NH_FRAGMENT;
}

/* Tell the transport of a held packet that it will not arrive. m borrowed. */
static void held_report(struct netif *nif, const struct mbuf *m)
{
    struct icmp_error e = {.kind = ICMP_KIND_UNREACH_HOST, .error = EHOSTUNREACH, .local = true};
    uint8_t l4[REPORT_BYTES], proto;
    uint32_t off;

    if (!held_parse(nif, m, &e, &proto, &off) || off >= m->m_pkt.len)
        return;
    e.l4len = MIN(m->m_pkt.len - off, (uint32_t)sizeof(l4));
    mbuf_copy_out(m, off, (uint32_t)e.l4len, l4);
    e.l4 = l4;
    icmp_report(nif->stack, proto, &e);
}

/* No answer. The transports may call back into output: n is not touched after the first of them is
 * told. */
static void resolve_failed(struct neigh *n)
{
    struct netif *nif = n->nif;
    struct weir_stack *s = nif->stack;
    struct mbuf *m = hold_take(n), *next;

    n->state = FAILED;
    n->until_ns = s->now + (uint64_t)KNOB(s, arp_wait) * NS_PER_S;
    route_changed(s);
    for (; m != NULL; m = next) {
        next = m->m_nextpkt;
        m->m_nextpkt = NULL;
        COUNT(s, arp_unreachable);
        held_report(nif, m);
        mbuf_free_chain(&m);
    }
}

static void neigh_timeout(struct timer *t, uint64_t now_ns)
{
    struct neigh *n = CONTAINER_OF(t, struct neigh, timer);
    struct weir_stack *s = n->nif->stack;

    switch (n->state) {
    case DELAY:
        n->state = PROBE;
        n->tries = 0;
        break;
    case PROBE:
        if (n->tries < UNICAST_PROBES)
            break;
        neigh_free(n); /* the next packet asks everybody */
        return;
    case INCOMPLETE:
        if (n->tries < (uint32_t)KNOB(s, arp_maxtries))
            break;
        resolve_failed(n);
        return;
    default:
        return;
    }
    solicit(n);
    wheel_arm(&s->wheel, &n->timer, now_ns + REQUEST_INTERVAL_NS);
}

/* ---- output ---- */

static void hold(struct neigh *n, struct mbuf *m)
{
    struct weir_stack *s = n->nif->stack;
    struct mbuf *oldest;

    m->m_nextpkt = NULL;
    *n->hold_tail = m;
    n->hold_tail = &m->m_nextpkt;
    if (++n->hold_len <= (uint32_t)KNOB(s, arp_maxhold))
        return;
    oldest = n->hold;
    n->hold = oldest->m_nextpkt;
    n->hold_len--;
    oldest->m_nextpkt = NULL;
    COUNT(s, arp_hold_drops);
    mbuf_free_chain(&oldest);
}

static uint16_t ethertype_of(const struct ipaddr *a)
{
    return a->family == AF_INET ? ETH_TYPE_IPV4 : ETH_TYPE_IPV6;
}

static void become_reachable(struct neigh *n)
{
    struct weir_stack *s = n->nif->stack;
    uint64_t ns = (uint64_t)KNOB(s, arp_max_age) * NS_PER_S;

    if (n->addr.family == AF_INET6)
        ns = (ND_REACHABLE_MIN_MS + rng_below(&s->rng, ND_REACHABLE_SPREAD_MS)) * NS_PER_MS;
    n->state = REACHABLE;
    n->until_ns = s->now + ns;
}

/* Everything but a neighbour that is known to be reachable. Consumes *m. */
static int output_slow(struct neigh *n, struct mbuf **m)
{
    struct weir_stack *s = n->nif->stack;
    bool confirmed = (*m)->m_flags & M_CONFIRM;

    /* A STALE address may be one that nobody has answered from yet: what is confirmed is an old
     * one. */
    if (confirmed && (n->state == REACHABLE || n->state == DELAY || n->state == PROBE)) {
        wheel_cancel(&s->wheel, &n->timer);
        become_reachable(n);
        return netif_frame(n->nif, m, n->mac, ethertype_of(&n->addr));
    }
    switch (n->state) {
    case REACHABLE:
    case STALE:
        n->state = DELAY;
        wheel_arm(&s->wheel, &n->timer, s->now + DELAY_FIRST_PROBE_NS);
        break;
    case FAILED:
        if (n->until_ns > s->now) {
            COUNT(s, arp_unreachable);
            mbuf_free_chain(m);
            return -EHOSTUNREACH;
        }
        resolve_start(n);
        hold(n, *m);
        *m = NULL;
        return 0;
    case INCOMPLETE:
        hold(n, *m);
        *m = NULL;
        return 0;
    default:
        break;
    }
    return netif_frame(n->nif, m, n->mac, ethertype_of(&n->addr));
}

int neigh_output(struct netif *nif, const struct ipaddr *nexthop, struct mbuf **m)
{
    struct weir_stack *s = nif->stack;
    struct neigh *n = neigh_find(nif, nexthop);

    if (likely(n != NULL)) {
        nif->neigh_last = n;
        if (likely(n->state == REACHABLE && n->until_ns > s->now))
            return netif_frame(nif, m, n->mac, ethertype_of(nexthop));
    }
    if (n == NULL && nexthop->family == AF_INET && ip4_is_broadcast(s, nexthop->w[0]))
        return netif_frame(nif, m, eth_broadcast, ETH_TYPE_IPV4);
    if (n == NULL) {
        n = neigh_create(nif, nexthop, true);
        if (n == NULL) {
            COUNT(s, arp_hold_drops);
            mbuf_free_chain(m);
            return -ENOBUFS;
        }
        resolve_start(n);
    }
    return output_slow(n, m);
}

/* ---- learning ---- */

static void hold_send(struct neigh *n)
{
    struct mbuf *m = hold_take(n), *next;

    for (; m != NULL; m = next) {
        next = m->m_nextpkt;
        m->m_nextpkt = NULL;
        (void)netif_frame(n->nif, &m, n->mac, ethertype_of(&n->addr));
    }
}

/* The neighbour is at mac, and `reachable` says that it has just answered us. What was held leaves.
 */
static void neigh_learned(struct neigh *n, const uint8_t *mac, bool reachable)
{
    struct weir_stack *s = n->nif->stack;

    if (n->state == FAILED)
        route_changed(s);
    memcpy(n->mac, mac, ETH_ADDR_LEN);
    wheel_cancel(&s->wheel, &n->timer);
    TAILQ_REMOVE(&s->ip->neigh_age, n, age);
    TAILQ_INSERT_TAIL(&s->ip->neigh_age, n, age);
    n->state = STALE;
    if (reachable)
        become_reachable(n);
    hold_send(n);
}

static bool is_on_link(const struct netif *nif, const struct ipaddr *a)
{
    unsigned i;

    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        const struct netif_addr *o = &nif->addrs[i];

        if (o->addr.family == a->family && o->addr.scope == a->scope &&
            ipaddr_in_prefix(a, &o->addr, o->prefixlen))
            return true;
    }
    return false;
}

/* Somebody else claims an address of ours: say whose it is, but not in a war (RFC 5227 2.4 (c)). */
static void conflict(struct netif *nif, const struct ipaddr *a)
{
    struct weir_stack *s = nif->stack;

    COUNT(s, arp_conflicts);
    if (s->ip->arp_defended_ns != 0 && s->now - s->ip->arp_defended_ns < DEFEND_INTERVAL_NS)
        return;
    s->ip->arp_defended_ns = MAX(s->now, UINT64_C(1));
    neigh_announce(nif, a);
}

void neigh_announce(struct netif *nif, const struct ipaddr *a)
{
    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return;
    if (a->family == AF_INET) {
        struct arp_packet p = {.op = ARP_REQUEST, .spa = *a, .tpa = *a};

        memcpy(p.sha, nif->mac, ETH_ADDR_LEN);
        arp_send(nif, &p, eth_broadcast);
    } else {
        struct nd_neighbor nd = {
            .type = ICMP6_NEIGHBOR_ADVERT, .flags = ND_FLAG_OVERRIDE, .target = *a};
        struct ipaddr all_nodes = {.family = AF_INET6};

        all_nodes.b[0] = 0xff;
        all_nodes.b[1] = 0x02;
        all_nodes.b[15] = 1;
        nd_send(nif, &nd, a, &all_nodes);
    }
}

/* ---- ARP ---- */

static bool arp_is_sane(const struct arp_packet *a)
{
    return !eth_is_multicast(a->sha) && !ipaddr_is_multicast(&a->spa) &&
           !ipaddr_is_loopback(&a->spa) && a->spa.w[0] != UINT32_MAX;
}

static void arp_process(struct netif *nif, const struct arp_packet *a)
{
    bool for_us = netif_has_addr(nif, &a->tpa), probe = ipaddr_is_any(&a->spa);
    struct neigh *n;

    if (!probe && ip4_is_broadcast(nif->stack, a->spa.w[0])) {
        COUNT(nif->stack, arp_bad);
        return;
    }
    if (netif_has_addr(nif, &a->spa)) {
        if (memcmp(a->sha, nif->mac, ETH_ADDR_LEN) != 0)
            conflict(nif, &a->spa);
        return;
    }
    n = probe ? NULL : neigh_find(nif, &a->spa);
    if (n == NULL && for_us && !probe && a->op == ARP_REQUEST && is_on_link(nif, &a->spa))
        n = neigh_create(nif, &a->spa, false);
    if (n != NULL)
        neigh_learned(n, a->sha, true);
    if (for_us && a->op == ARP_REQUEST) {
        struct arp_packet reply = {.op = ARP_REPLY, .spa = a->tpa, .tpa = a->spa};

        memcpy(reply.sha, nif->mac, ETH_ADDR_LEN);
        memcpy(reply.tha, a->sha, ETH_ADDR_LEN);
        arp_send(nif, &reply, a->sha);
    }
}

void arp_input(struct netif *nif, struct mbuf **m)
{
    uint8_t raw[ARP_LEN];
    struct arp_packet a;

    COUNT(nif->stack, arp_rx);
    if ((*m)->m_pkt.len < sizeof(raw)) {
        COUNT(nif->stack, arp_bad);
    } else {
        mbuf_copy_out(*m, 0, sizeof(raw), raw);
        if (arp_parse(raw, sizeof(raw), &a) != 0 || !arp_is_sane(&a))
            COUNT(nif->stack, arp_bad);
        else
            arp_process(nif, &a);
    }
    mbuf_free_chain(m);
}

/* ---- neighbour discovery ---- */

static void nd_bad(struct weir_stack *s)
{
    COUNT(s, arp_bad);
}

static void nd_answer(struct netif *nif, const struct nd_neighbor *q, const struct ipaddr *to)
{
    struct nd_neighbor nd = {
        .type = ICMP6_NEIGHBOR_ADVERT, .flags = ND_FLAG_OVERRIDE, .target = q->target};
    struct ipaddr dst = *to;

    if (ipaddr_is_any(to)) { /* RFC 4861 7.2.4: to all nodes, and not solicited */
        dst.b[0] = 0xff;
        dst.b[1] = 0x02;
        dst.b[15] = 1;
    } else {
        nd.flags |= ND_FLAG_SOLICITED;
    }
    nd_send(nif, &nd, &q->target, &dst);
}

/* RFC 4861 7.1.1 and 7.2.3. */
static void solicitation(struct netif *nif, const struct nd_neighbor *nd,
                         const struct ip_info *info)
{
    bool dad = ipaddr_is_any(&info->src);
    struct ipaddr group = nd_solicited_node(&nd->target);
    struct neigh *n;

    if (dad && (nd->has_lladdr || info->dst.q[0] != group.q[0] || info->dst.q[1] != group.q[1])) {
        nd_bad(nif->stack);
        return;
    }
    if (!netif_has_addr(nif, &nd->target))
        return;
    if (dad) {
        COUNT(nif->stack, arp_conflicts);
    } else if (nd->has_lladdr) {
        n = neigh_find(nif, &info->src);
        if (n == NULL && is_on_link(nif, &info->src))
            n = neigh_create(nif, &info->src, false);
        if (n != NULL && (n->state == INCOMPLETE || n->state == FAILED ||
                          memcmp(n->mac, nd->lladdr, ETH_ADDR_LEN) != 0))
            neigh_learned(n, nd->lladdr, false);
    }
    nd_answer(nif, nd, &info->src);
}

/* RFC 4861 7.2.5. */
static void advertisement(struct netif *nif, const struct nd_neighbor *nd,
                          const struct ip_info *info)
{
    bool solicited = nd->flags & ND_FLAG_SOLICITED, override = nd->flags & ND_FLAG_OVERRIDE;
    struct neigh *n;
    bool differs;

    if (info->multicast && solicited) {
        nd_bad(nif->stack);
        return;
    }
    if (netif_has_addr(nif, &nd->target)) {
        conflict(nif, &nd->target);
        return;
    }
    n = neigh_find(nif, &nd->target);
    if (n == NULL)
        return;
    if (n->state == INCOMPLETE || n->state == FAILED) {
        if (nd->has_lladdr)
            neigh_learned(n, nd->lladdr, solicited);
        return;
    }
    differs = nd->has_lladdr && memcmp(n->mac, nd->lladdr, ETH_ADDR_LEN) != 0;
    if (differs && !override) {
        if (n->state == REACHABLE)
            n->state = STALE;
        return;
    }
    if (solicited || differs)
        neigh_learned(n, differs ? nd->lladdr : n->mac, solicited);
}

void nd_input(struct weir_stack *s, const struct mbuf *m, const struct ip_info *info, uint8_t code)
{
    struct netif *nif = info->netif;
    uint8_t raw[ND_MAX_MESSAGE];
    uint32_t len = m->m_pkt.len;
    struct nd_neighbor nd;

    COUNT(s, arp_rx);
    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return;
    if (info->ttl != 255 || code != 0 || len > sizeof(raw)) {
        nd_bad(s);
        return;
    }
    mbuf_copy_out(m, 0, len, raw);
    if (nd_neighbor_parse(raw, len, &nd) != 0 || (nd.has_lladdr && eth_is_multicast(nd.lladdr))) {
        nd_bad(s);
        return;
    }
    nd.target.scope = ipaddr_is_linklocal(&nd.target) ? nif->index : 0;
    if (nd.type == ICMP6_NEIGHBOR_SOLICIT)
        solicitation(nif, &nd, info);
    else
        advertisement(nif, &nd, info);
}
