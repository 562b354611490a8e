/* SPDX-License-Identifier: BSD-2-Clause
 * Interfaces: attaching links, Ethernet framing, the transmit queue, addresses. */
#include "ip_var.h"
#include "base/cputime.h"
#include "lro.h"
#include "wire/icmp.h"
#include "wire/wire.h"

#define NETIF_BURST 64 /* frames offered to or asked of a link in one call */

/* ---- life ---- */

struct netif *netif_create(struct weir_stack *s, const struct netif_config *cfg)
{
    struct ip_state *ip = s->ip;
    struct netif *nif, **p;

    if (ip->netif_count == NETIF_MAX)
        return NULL;
    nif = alloc_zero(&s->alloc, sizeof(*nif));
    if (nif == NULL)
        return NULL;
    nif->stack = s;
    nif->ops = cfg->ops;
    nif->link = cfg->link;
    nif->index = ++ip->next_index;
    nif->caps = cfg->caps;
    nif->mtu = cfg->mtu;
    nif->up = true;
    nif->txq_tail = &nif->txq;
    mld_start(nif);
    memcpy(nif->mac, cfg->mac, sizeof(nif->mac));
    if (cfg->name != NULL)
        memcpy(nif->name, cfg->name, MIN(strlen(cfg->name), sizeof(nif->name) - 1));
    for (p = &s->netifs; *p != NULL; p = &(*p)->next)
        ;
    *p = nif;
    ip->netif_count++;
    return nif;
}

static void local_remove(struct ip_state *ip, const struct netif *nif)
{
    uint32_t i, kept;

    for (i = kept = 0; i < ip->local4_count; i++) {
        if (ip->local4[i].netif != nif)
            ip->local4[kept++] = ip->local4[i];
    }
    ip->local4_count = kept;
    for (i = kept = 0; i < ip->local6_count; i++) {
        if (ip->local6[i].netif != nif)
            ip->local6[kept++] = ip->local6[i];
    }
    ip->local6_count = kept;
}

void netif_destroy(struct netif *nif)
{
    struct weir_stack *s = nif->stack;
    struct netif **p;
    struct mbuf *m;

    for (p = &s->netifs; *p != nif; p = &(*p)->next)
        CHECK(*p != NULL);
    *p = nif->next;
    s->ip->netif_count--;
    mld_stop(nif);
    neigh_netif_gone(nif);
    route_netif_gone(s, nif);
    local_remove(s->ip, nif);
    while ((m = nif->txq) != NULL) {
        nif->txq = m->m_nextpkt;
        m->m_nextpkt = NULL;
        mbuf_free_chain(&m);
    }
    if (nif->ops->close != NULL)
        nif->ops->close(nif->link);
    if (s->ip->loopback == nif)
        s->ip->loopback = NULL;
    alloc_free(&s->alloc, nif, sizeof(*nif));
}

void netif_destroy_all(struct weir_stack *s)
{
    while (s->netifs != NULL)
        netif_destroy(s->netifs);
}

struct netif *netif_find(struct weir_stack *s, uint32_t index)
{
    struct netif *nif = s->netifs;

    while (nif != NULL && nif->index != index)
        nif = nif->next;
    return nif;
}

/* ---- addresses ---- */

bool netif_has_addr(const struct netif *nif, const struct ipaddr *a)
{
    unsigned i;

    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        const struct ipaddr *o = &nif->addrs[i].addr;

        if (o->family == a->family && o->q[0] == a->q[0] && o->q[1] == a->q[1] &&
            (a->scope == 0 || a->scope == o->scope))
            return o->family != 0;
    }
    return false;
}

struct netif *netif_of_addr(struct weir_stack *s, const struct ipaddr *a)
{
    struct netif *nif;

    if (a->family == AF_INET && a->b[0] == 127)
        return s->ip->loopback;
    for (nif = s->netifs; nif != NULL; nif = nif->next) {
        if (netif_has_addr(nif, a))
            return nif;
    }
    return NULL;
}

static void local_add(struct netif *nif, const struct ipaddr *a, unsigned prefixlen)
{
    struct ip_state *ip = nif->stack->ip;

    if (a->family == AF_INET) {
        struct local4 *l = &ip->local4[ip->local4_count++];

        *l = (struct local4){.addr = a->w[0], .netif = nif};
        if (prefixlen > 0 && prefixlen < 31 && !(nif->caps & NETIF_CAP_LOOPBACK))
            l->broadcast = a->w[0] | __builtin_bswap32(UINT32_MAX >> prefixlen);
    } else {
        ip->local6[ip->local6_count++] = (struct local6){.addr = *a, .netif = nif};
    }
}

static int addr_add(struct netif *nif, const struct ipaddr *a, unsigned prefixlen)
{
    struct netif_addr *slot = NULL;
    unsigned i;
    int error;

    for (i = 0; i < NETIF_MAX_ADDRS && slot == NULL; i++) {
        if (nif->addrs[i].addr.family == 0)
            slot = &nif->addrs[i];
    }
    if (slot == NULL)
        return -ENOSPC;
    error = ip_route_add(nif->stack, a, prefixlen, NULL, nif);
    if (error != 0 && error != -EEXIST)
        return error;
    slot->addr = *a;
    slot->prefixlen = (uint8_t)prefixlen;
    local_add(nif, a, prefixlen);
    route_changed(nif->stack);
    neigh_announce(nif, a);
    return 0;
}

/* fe80::/64 with the modified EUI-64 of the MAC (RFC 4291 2.5.6, RFC 2464 4). Neighbours expect
 * every IPv6 interface to have one. Without room for it the interface works all the same. */
static void add_linklocal(struct netif *nif)
{
    struct ipaddr a = {.family = AF_INET6, .scope = nif->index};
    unsigned i;

    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        return;
    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        if (ipaddr_is_linklocal(&nif->addrs[i].addr) && nif->addrs[i].addr.family == AF_INET6)
            return;
    }
    a.b[0] = 0xfe;
    a.b[1] = 0x80;
    memcpy(&a.b[8], nif->mac, 3);
    a.b[8] ^= 0x02;
    a.b[11] = 0xff;
    a.b[12] = 0xfe;
    memcpy(&a.b[13], nif->mac + 3, 3);
    (void)addr_add(nif, &a, 64);
}

int netif_add_addr(struct netif *nif, const struct ipaddr *a, unsigned prefixlen)
{
    struct ipaddr addr = *a;
    bool loopback = nif->caps & NETIF_CAP_LOOPBACK;
    int error;

    if ((a->family != AF_INET && a->family != AF_INET6) ||
        prefixlen > (a->family == AF_INET ? 32u : 128u) || ipaddr_is_any(a) ||
        ipaddr_is_multicast(a) || (a->family == AF_INET && a->w[0] == UINT32_MAX) ||
        (ipaddr_is_loopback(a) && !loopback))
        return -EINVAL;
    addr.scope = a->family == AF_INET6 && ipaddr_is_linklocal(a) ? nif->index : 0;
    if (!(loopback && ipaddr_is_loopback(a)) && netif_of_addr(nif->stack, &addr) != NULL)
        return -EEXIST;
    if (netif_has_addr(nif, &addr))
        return -EEXIST;
    error = addr_add(nif, &addr, prefixlen);
    if (error == 0 && addr.family == AF_INET6) {
        add_linklocal(nif);
        mld_changed(nif);
    }
    return error;
}

/* Bits that two addresses have in common from the left. */
static unsigned common_bits(const struct ipaddr *a, const struct ipaddr *b)
{
    unsigned i;

    for (i = 0; i < 4; i++) {
        uint32_t x = get_be32(&a->b[i * 4]) ^ get_be32(&b->b[i * 4]);

        if (x != 0)
            return i * 32 + (unsigned)__builtin_clz(x);
    }
    return 128;
}

static bool is_linklocal_scope(const struct ipaddr *a)
{
    if (a->family != AF_INET6)
        return false;
    return ipaddr_is_linklocal(a) || (ipaddr_is_multicast(a) && (a->b[1] & 0x0f) <= 2);
}

bool netif_source_for(const struct netif *nif, const struct ipaddr *dst, struct ipaddr *src)
{
    const struct netif_addr *best = NULL;
    unsigned i, best_score = 0;

    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        const struct netif_addr *c = &nif->addrs[i];
        unsigned score;

        if (c->addr.family != dst->family)
            continue;
        /* IPv4: the address whose subnet holds dst, else the first. IPv6: RFC 6724 5, rules 1, 2
         * and 8. */
        if (dst->family == AF_INET)
            score = ipaddr_in_prefix(dst, &c->addr, c->prefixlen) ? 2 : 1;
        else
            score = 1 + common_bits(dst, &c->addr) +
                    (is_linklocal_scope(dst) == is_linklocal_scope(&c->addr) ? 256 : 0);
        if (score > best_score) {
            best_score = score;
            best = c;
        }
    }
    if (best == NULL)
        return false;
    *src = best->addr;
    return true;
}

/* ---- loopback: its transmit queue is its receive queue ---- */

static size_t loopback_none(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    return 0;
}

static bool loopback_pending(void *link)
{
    const struct netif *nif = link;

    return nif->txq != NULL;
}

static uint64_t loopback_deadline(void *link)
{
    const struct netif *nif = link;

    return nif->txq != NULL ? nif->stack->now : TIME_NEVER;
}

static const struct netif_ops loopback_ops = {
    .tx = loopback_none,
    .rx = loopback_none,
    .next_deadline = loopback_deadline,
    .pending = loopback_pending,
};

int netif_add_loopback(struct weir_stack *s)
{
    struct netif_config cfg = {
        .name = "lo0",
        .ops = &loopback_ops,
        .caps = NETIF_CAP_L3 | NETIF_CAP_LOOPBACK | NETIF_CAP_CSUM_TX | NETIF_CAP_CSUM_RX |
                NETIF_CAP_TSO4 | NETIF_CAP_TSO6,
        .mtu = 65535,
    };
    struct ipaddr v4 = ipaddr_v4(INADDR_LOOPBACK), v6 = {.family = AF_INET6};
    struct netif *nif = netif_create(s, &cfg);
    int error;

    if (nif == NULL)
        return -ENOMEM;
    nif->link = nif;
    s->ip->loopback = nif;
    v6.b[15] = 1;
    error = netif_add_addr(nif, &v4, 8);
    if (error == 0)
        error = netif_add_addr(nif, &v6, 128);
    return error;
}

/* ---- output ---- */

void netif_enqueue(struct netif *nif, struct mbuf **mp)
{
    struct mbuf *m = *mp;

    *mp = NULL;
    if (unlikely(nif->txq_len >= NETIF_TXQ_MAX)) {
        COUNT(nif->stack, link_tx_queue_drops);
        mbuf_free_chain(&m);
        return;
    }
    m->m_nextpkt = NULL;
    *nif->txq_tail = m;
    nif->txq_tail = &m->m_nextpkt;
    nif->txq_len++;
}

int netif_frame(struct netif *nif, struct mbuf **mp, const uint8_t dst[ETH_ADDR_LEN], uint16_t type)
{
    struct mbuf *m = mbuf_prepend(*mp, ETH_HEADER_LEN);
    uint8_t *p;

    *mp = NULL;
    if (unlikely(m == NULL)) {
        COUNT(nif->stack, ip_tx_nobufs);
        return -ENOBUFS;
    }
    p = m->m_data;
    memcpy(p, dst, ETH_ADDR_LEN);
    memcpy(p + ETH_ADDR_LEN, nif->mac, ETH_ADDR_LEN);
    put_be16(p + 2 * ETH_ADDR_LEN, type);
    m->m_pkt.csum_start = (uint16_t)(m->m_pkt.csum_start + ETH_HEADER_LEN);
    netif_enqueue(nif, &m);
    return 0;
}

int netif_output(struct netif *nif, const struct ipaddr *nexthop, struct mbuf **m)
{
    uint8_t group[ETH_ADDR_LEN];

    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK)) {
        netif_enqueue(nif, m);
        return 0;
    }
    if (unlikely(ipaddr_is_multicast(nexthop))) {
        eth_of_multicast(nexthop, group);
        return netif_frame(nif, m, group,
                           nexthop->family == AF_INET ? ETH_TYPE_IPV4 : ETH_TYPE_IPV6);
    }
    return neigh_output(nif, nexthop, m);
}

/* A link with a descriptor makes system calls, whose time is told apart. */
static bool link_is_slow(const struct netif *nif)
{
    return nif->ops->fd != NULL && nif->ops->fd(nif->link) >= 0;
}

/* To whoever looks on, before they go: afterwards they are gone. What the link did not take has
 * been shown. */
static void show_out(struct netif *nif, struct mbuf *const *burst, size_t n)
{
    size_t shown = MIN((size_t)nif->txq_shown, n);

    nif->stack->hooks.frames(nif->stack->hooks.frames_ctx, nif, HOOK_OUT, burst + shown, n - shown);
    nif->txq_shown = (uint32_t)MAX((size_t)nif->txq_shown, n);
}

void netif_flush(struct netif *nif)
{
    struct mbuf *burst[NETIF_BURST], *m;

    if (nif->caps & NETIF_CAP_LOOPBACK)
        return;
    while (nif->txq != NULL) {
        size_t n = 0, i, taken;
        uint64_t bytes = 0;

        for (m = nif->txq; m != NULL && n < NETIF_BURST; m = m->m_nextpkt)
            burst[n++] = m;
        for (i = 0; i < n; i++) {
            burst[i]->m_nextpkt = NULL;
            bytes += burst[i]->m_pkt.len;
        }
        if (cputime_on() && link_is_slow(nif))
            cputime_switch(CPU_LINK_TX);
        if (unlikely(nif->stack->hooks.frames != NULL))
            show_out(nif, burst, n);
        taken = nif->ops->tx(nif->link, burst, n, nif->stack->now);
        CHECK(taken <= n);
        /* What the link left goes back to the front, in order. */
        for (i = n; i > taken; i--) {
            bytes -= burst[i - 1]->m_pkt.len;
            burst[i - 1]->m_nextpkt = m;
            m = burst[i - 1];
        }
        nif->txq = m;
        if (m == NULL)
            nif->txq_tail = &nif->txq;
        nif->txq_len -= (uint32_t)taken;
        nif->txq_shown -= MIN(nif->txq_shown, (uint32_t)taken);
        if (taken > 0) {
            nif->kick_needed = true;
            COUNT_ADD(nif->stack, link_tx_frames, taken);
            COUNT_ADD(nif->stack, link_tx_bytes, bytes);
        }
        if (taken < n) {
            COUNT(nif->stack, link_tx_full);
            return;
        }
    }
}

/* ---- input ---- */

static bool is_our_group(const struct netif *nif, const uint8_t *dst)
{
    static const uint8_t all_hosts[] = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
    static const uint8_t all_nodes[] = {0x33, 0x33, 0x00, 0x00, 0x00, 0x01};
    unsigned i;

    if (memcmp(dst, all_hosts, 6) == 0 || memcmp(dst, all_nodes, 6) == 0)
        return true;
    if (dst[0] != 0x33 || dst[1] != 0x33 || dst[2] != 0xff)
        return false;
    for (i = 0; i < NETIF_MAX_ADDRS; i++) {
        const struct ipaddr *a = &nif->addrs[i].addr;

        if (a->family == AF_INET6 && memcmp(dst + 3, &a->b[13], 3) == 0)
            return true;
    }
    return false;
}

/* Sets M_BCAST or M_MCAST. */
static bool station_accepts(const struct netif *nif, const uint8_t *dst, struct mbuf *m)
{
    if (likely(memcmp(dst, nif->mac, ETH_ADDR_LEN) == 0))
        return true;
    if (eth_is_broadcast(dst)) {
        m->m_flags |= M_BCAST;
        return true;
    }
    if (eth_is_multicast(dst) && is_our_group(nif, dst)) {
        m->m_flags |= M_MCAST;
        return true;
    }
    return false;
}

static void ip_by_version(struct netif *nif, struct mbuf **m)
{
    uint8_t first;

    if ((*m)->m_pkt.len == 0) {
        COUNT(nif->stack, link_rx_short);
        mbuf_free_chain(m);
        return;
    }
    if (likely((*m)->m_len > 0))
        first = (*m)->m_data[0];
    else
        mbuf_copy_out(*m, 0, 1, &first);
    if (first >> 4 == 6)
        ip6_input(nif, m);
    else
        ip4_input(nif, m);
}

static void ether_input(struct netif *nif, struct mbuf **mp)
{
    struct weir_stack *s = nif->stack;
    struct mbuf *m = *mp;
    uint16_t type;

    *mp = NULL;
    if (unlikely(m->m_pkt.len < ETH_HEADER_LEN)) {
        COUNT(s, link_rx_short);
        mbuf_free_chain(&m);
        return;
    }
    if (unlikely(m->m_len < ETH_HEADER_LEN)) {
        m = mbuf_pullup(m, ETH_HEADER_LEN);
        if (m == NULL) {
            COUNT(s, ip_tx_nobufs);
            return;
        }
    }
    if (unlikely(!station_accepts(nif, m->m_data, m))) {
        COUNT(s, link_rx_not_ours);
        mbuf_free_chain(&m);
        return;
    }
    type = get_be16(m->m_data + 2 * ETH_ADDR_LEN);
    m->m_data += ETH_HEADER_LEN;
    m->m_len -= ETH_HEADER_LEN;
    m->m_pkt.len -= ETH_HEADER_LEN;
    if (likely(type == ETH_TYPE_IPV4)) {
        ip4_input(nif, &m);
    } else if (type == ETH_TYPE_IPV6) {
        ip6_input(nif, &m);
    } else if (type == ETH_TYPE_ARP) {
        arp_input(nif, &m);
    } else {
        COUNT(s, link_rx_ethertype);
        mbuf_free_chain(&m);
    }
}

void netif_input(struct netif *nif, struct mbuf **mp)
{
    struct mbuf *m = *mp;

    COUNT(nif->stack, link_rx_frames);
    COUNT_ADD(nif->stack, link_rx_bytes, m->m_pkt.len);
    m->m_nextpkt = NULL;
    m->m_flags &= (uint16_t) ~(M_BCAST | M_MCAST | M_LOOP | M_CONFIRM);
    m->m_pkt.netif = nif;
    m->m_pkt.time_ns = nif->stack->now;
    /* A checksum that the sender left to its link never met a wire: the link vouches for the data.
     */
    if (m->m_pkt.csum_flags & CSUM_L4_PARTIAL)
        m->m_pkt.csum_flags |= CSUM_L4_VALID;
    m->m_pkt.csum_flags &= CSUM_L4_PARTIAL | CSUM_L4_VALID | CSUM_IP_VALID;
    if (nif->caps & NETIF_CAP_LOOPBACK)
        m->m_flags |= M_LOOP;
    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        ip_by_version(nif, mp);
    else
        ether_input(nif, mp);
}

static inline void show_in(struct netif *nif, struct mbuf *const *burst, size_t n)
{
    struct hooks *h = &nif->stack->hooks;

    if (unlikely(h->frames != NULL) && n > 0)
        h->frames(h->frames_ctx, nif, HOOK_IN, burst, n);
}

static size_t loopback_poll(struct netif *nif, size_t max)
{
    struct mbuf *m;
    size_t n;

    for (n = 0; n < max && nif->txq != NULL; n++) {
        m = nif->txq;
        nif->txq = m->m_nextpkt;
        if (nif->txq == NULL)
            nif->txq_tail = &nif->txq;
        nif->txq_len--;
        COUNT(nif->stack, link_tx_frames);
        COUNT_ADD(nif->stack, link_tx_bytes, m->m_pkt.len);
        show_in(nif, &m, 1);
        netif_input(nif, &m);
    }
    return n;
}

/* A poll that brings nothing is part of what the thread did, of spinning above all. */
static size_t receive(struct netif *nif, struct mbuf **burst, size_t max)
{
    bool slow = cputime_on() && link_is_slow(nif);
    uint64_t began = slow ? cputime_mark() : 0;
    size_t n = nif->ops->rx(nif->link, burst, max, nif->stack->now);

    CHECK(n <= max);
    show_in(nif, burst, n);
    if (cputime_on() && n > 0) {
        if (slow)
            cputime_switch_at(CPU_LINK_RX, began);
        cputime_switch_now(CPU_INPUT, nif->stack->now);
    }
    return n;
}

size_t netif_poll(struct netif *nif, size_t max)
{
    struct mbuf *burst[NETIF_BURST];
    size_t done = 0, n, left, i, ask;

    if (nif->caps & NETIF_CAP_LOOPBACK)
        return loopback_poll(nif, max);
    if (nif->ops->rx == NULL)
        return 0;
    do {
        ask = MIN(max - done, (size_t)NETIF_BURST);
        n = receive(nif, burst, ask);
        left = n > 1 && KNOB(nif->stack, tcp_lro) ? lro_merge(nif, burst, n) : n;
        for (i = 0; i < left; i++) {
            if (i + 1 < left)
                __builtin_prefetch(burst[i + 1]->m_data);
            netif_input(nif, &burst[i]);
        }
        done += n;
    } while (n == ask && done < max);
    return done;
}
