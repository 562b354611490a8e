/* SPDX-License-Identifier: BSD-2-Clause
 * The adapter's link: see pd_link.h. Lives until the stack closes its interface. */
#include "pd_link.h"

#include "ip/ip.h"
#include <stdlib.h>

struct pd_packet {
    struct pd_packet *next;
    uint64_t when_ns;
    size_t len;
    uint8_t bytes[];
};

struct pd_link {
    struct pd_clock *clock;
    struct pd_packet *out, **out_tail; /* (l of the clock) sent by the stack, oldest first */
    struct mbuf *in, **in_tail;        /* (l) injected, not yet taken */
};

static size_t pd_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct pd_link *l = link;
    pd_lock(l->clock);
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t len = frames[i]->m_pkt.len;
        struct pd_packet *k = malloc(sizeof(*k) + len);
        if (!k)
            break;
        k->next = NULL;
        k->when_ns = now_ns;
        k->len = len;
        mbuf_copy_out(frames[i], 0, len, k->bytes);
        *l->out_tail = k;
        l->out_tail = &k->next;
        mbuf_free_chain(&frames[i]);
    }
    pd_unlock(l->clock);
    return i;
}

static size_t pd_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct pd_link *l = link;
    pd_lock(l->clock);
    size_t i = 0;
    while (i < n && l->in) {
        frames[i] = l->in;
        l->in = l->in->m_nextpkt;
        frames[i++]->m_nextpkt = NULL;
    }
    if (!l->in)
        l->in_tail = &l->in;
    pd_unlock(l->clock);
    return i;
}

static uint64_t pd_deadline(void *link)
{
    return TIME_NEVER;
}

static bool pd_pending(void *link)
{
    return ((struct pd_link *)link)->in != NULL;
}

static void pd_close(void *link)
{
    struct pd_link *l = link;
    while (l->out) {
        struct pd_packet *k = l->out;
        l->out = k->next;
        free(k);
    }
    while (l->in) {
        struct mbuf *m = l->in;
        l->in = m->m_nextpkt;
        mbuf_free_chain(&m);
    }
    free(l);
}

static const struct netif_ops pd_ops = {
    .tx = pd_tx,
    .rx = pd_rx,
    .next_deadline = pd_deadline,
    .pending = pd_pending,
    .close = pd_close,
};

struct pd_link *pd_link_create(struct pd_clock *c, const struct ipaddr *local, unsigned prefixlen,
                               uint32_t mtu)
{
    struct pd_link *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->clock = c;
    l->out_tail = &l->out;
    l->in_tail = &l->in;
    struct netif_config cfg = {
        .name = "pd0", .ops = &pd_ops, .link = l, .caps = NETIF_CAP_L3, .mtu = mtu};
    struct netif *nif = netif_create(c->stack, &cfg);
    if (!nif) {
        free(l);
        return NULL;
    }
    struct ipaddr any = {.family = local->family};
    if (netif_add_addr(nif, local, prefixlen) || ip_route_add(c->stack, &any, 0, NULL, nif))
        return NULL;
    return l;
}

int pd_link_inject(struct pd_link *l, const void *packet, size_t len)
{
    struct mbuf *m = mbuf_from_bytes(l->clock->stack->account, packet, len);
    if (!m)
        return -ENOBUFS;
    m->m_flags |= M_PKTHDR;
    memset(&m->m_pkt, 0, sizeof(m->m_pkt));
    m->m_pkt.segs = 1;
    m->m_pkt.len = (uint32_t)len;
    *l->in_tail = m;
    l->in_tail = &m->m_nextpkt;
    return 0;
}

bool pd_link_take(struct pd_link *l, void *buf, size_t *len, uint64_t *when_ns)
{
    struct pd_packet *k = l->out;
    if (!k)
        return false;
    l->out = k->next;
    if (!l->out)
        l->out_tail = &l->out;
    *len = MIN(*len, k->len);
    *when_ns = k->when_ns;
    memcpy(buf, k->bytes, *len);
    free(k);
    return true;
}
