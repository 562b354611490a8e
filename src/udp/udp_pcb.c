/* SPDX-License-Identifier: BSD-2-Clause
 * UDP sockets' addresses: the table by local port, bind, connect, ephemeral ports, lookup. */
#include "udp_var.h"

static bool has_option(const struct udpcb *p, int opt)
{
    return so_has_option(p->so, opt);
}

static bool is_v6only(const struct udpcb *p)
{
    return LOAD_RELAXED(&p->so->so_v6only);
}

static struct weir_stack *stack_of(const struct udpcb *p)
{
    return p->so->so_stack;
}

int udp_pcb_attach(struct socket *so)
{
    struct weir_stack *s = so->so_stack;
    struct udpcb *p = alloc_zero(&s->alloc, sizeof(*p));

    if (p == NULL)
        return -ENOMEM;
    p->so = so;
    p->laddr.family = p->any_family = (uint8_t)so->so_domain;
    so->so_pcb = p;
    return 0;
}

static void unhash(struct udpcb *p)
{
    if (p->lport != 0)
        LIST_REMOVE(p, hash);
    p->lport = 0;
}

static void hash_at(struct udpcb *p, uint16_t port)
{
    unhash(p);
    p->lport = port;
    /* The newest first: of sockets that fit equally well it gets the datagram, as on Linux. */
    LIST_INSERT_HEAD(udp_bucket(stack_of(p), port), p, hash);
}

void udp_pcb_free(struct udpcb *p)
{
    struct weir_stack *s = stack_of(p);
    struct socket *so = p->so;

    unhash(p);
    so->so_pcb = NULL;
    alloc_free(&s->alloc, p, sizeof(*p));
}

/* ---- bind ---- */

static unsigned families_of(const struct ipaddr *a, bool v6only)
{
    if (a->family == AF_INET)
        return 1;
    return ipaddr_is_any(a) && !v6only ? 3 : 2;
}

static bool overlap(const struct udpcb *p, const struct ipaddr *a, const struct udpcb *q)
{
    if (!ipaddr_is_any(a) && !ipaddr_is_any(&q->laddr))
        return ipaddr_equal(a, &q->laddr);
    return families_of(a, is_v6only(p)) & families_of(&q->laddr, is_v6only(q));
}

/* Linux's rule: sharing takes SO_REUSEADDR on both, or SO_REUSEPORT on both. strict: no sharing at
 * all. */
static bool port_conflicts(const struct udpcb *p, const struct ipaddr *a, uint16_t port,
                           bool strict)
{
    const struct udpcb *q;

    LIST_FOREACH (q, udp_bucket(stack_of(p), port), hash) {
        if (q == p || q->lport != port || !overlap(p, a, q))
            continue;
        if (!strict && ((has_option(p, SO_REUSEADDR) && has_option(q, SO_REUSEADDR)) ||
                        (has_option(p, SO_REUSEPORT) && has_option(q, SO_REUSEPORT))))
            continue;
        return true;
    }
    return false;
}

/* RFC 6056 algorithm 1: a random start, then the next free one. */
static int ephemeral(const struct udpcb *p, const struct ipaddr *a, uint16_t *port)
{
    struct weir_stack *s = stack_of(p);
    uint32_t first = (uint32_t)KNOB(s, ip_portrange_first);
    uint32_t last = (uint32_t)KNOB(s, ip_portrange_last), count, i, start;

    if (first > last) {
        uint32_t t = first;

        first = last;
        last = t;
    }
    count = last - first + 1;
    start = rng_below(&s->rng, count);
    for (i = 0; i < count; i++) {
        *port = (uint16_t)(first + (start + i) % count);
        if (!port_conflicts(p, a, *port, true))
            return 0;
    }
    return -EADDRINUSE;
}

static bool may_bind(const struct udpcb *p, const struct ipaddr *a)
{
    struct weir_stack *s = stack_of(p);

    return ipaddr_is_any(a) || ip_is_local(s, a) || ipaddr_is_multicast(a) || ip_is_broadcast(s, a);
}

int udp_pcb_bind(struct udpcb *p, const struct ipaddr *a, uint16_t port)
{
    struct weir_stack *s = stack_of(p);
    struct ipaddr addr = *a;
    bool chosen;
    int error = 0;

    if (p->lport != 0)
        return -EINVAL;
    if (addr.family == 0)
        addr.family = (uint8_t)p->so->so_domain;
    if (addr.family == AF_INET6 && p->so->so_domain == AF_INET)
        return -EAFNOSUPPORT;
    if (addr.family == AF_INET && is_v6only(p))
        return -EINVAL;
    if (!may_bind(p, &addr))
        return -EADDRNOTAVAIL;
    if (port != 0 && port <= KNOB(s, ip_portrange_reservedhigh))
        return -EACCES;
    chosen = port != 0;
    if (port == 0)
        error = ephemeral(p, &addr, &port);
    else if (port_conflicts(p, &addr, port, false))
        error = -EADDRINUSE;
    if (error != 0)
        return error;
    p->laddr = addr;
    p->addr_chosen = !ipaddr_is_any(&addr);
    p->port_chosen = chosen;
    p->any_family = addr.family;
    hash_at(p, port);
    return 0;
}

int udp_pcb_bind_any(struct udpcb *p)
{
    uint16_t port;

    if (p->lport != 0)
        return 0;
    if (ephemeral(p, &p->laddr, &port) != 0)
        return -EAGAIN;
    hash_at(p, port);
    return 0;
}

/* ---- connect ---- */

int udp_pcb_destination(const struct udpcb *p, const struct ipaddr *a, struct ipaddr *out)
{
    *out = *a;
    if (a->family == AF_INET6 && p->so->so_domain == AF_INET)
        return -EAFNOSUPPORT;
    if (a->family == AF_INET && is_v6only(p))
        return -ENETUNREACH;
    /* A socket with an address of one family has no way to speak the other. */
    if (p->laddr.family != a->family && (!ipaddr_is_any(&p->laddr) || a->family == AF_INET6))
        return a->family == AF_INET ? -ENETUNREACH : -EAFNOSUPPORT;
    if (ipaddr_is_any(a)) {
        if (a->family == AF_INET)
            *out = ipaddr_v4(INADDR_LOOPBACK);
        else
            out->b[15] = 1;
    }
    if (ip_is_broadcast(stack_of(p), a) && !has_option(p, SO_BROADCAST))
        return -EACCES;
    return 0;
}

static void forget_source(struct udpcb *p)
{
    if (!p->addr_chosen)
        p->laddr = (struct ipaddr){.family = p->any_family};
}

int udp_pcb_connect(struct udpcb *p, const struct ipaddr *a, uint16_t port)
{
    struct ipaddr dst, wish = p->addr_chosen ? p->laddr : (struct ipaddr){0};
    struct udpcb probe = *p;
    struct route r;
    int error;

    /* What an earlier connect chose is no constraint for this one. */
    forget_source(&probe);
    error = udp_pcb_destination(&probe, a, &dst);
    if (error == 0)
        error = ip_route(stack_of(p), &dst, &wish, &r);
    if (error == 0)
        error = udp_pcb_bind_any(p);
    if (error != 0)
        return error;
    if (!p->addr_chosen)
        p->laddr = r.src;
    p->faddr = dst;
    p->fport = port;
    return 0;
}

void udp_pcb_disconnect(struct udpcb *p)
{
    p->faddr = (struct ipaddr){0};
    p->fport = 0;
    forget_source(p);
    if (!p->port_chosen)
        unhash(p);
}

/* ---- lookup ---- */

/* As Linux scores: a connected socket beats a bound one, an address beats none, IPv4's own beat
 * dual ones. */
int udp_pcb_score(const struct udpcb *p, const struct flow *f)
{
    int score = p->so->so_domain == AF_INET ? 2 : 1;

    if (p->lport != f->lport)
        return 0;
    if (!ipaddr_is_any(&p->laddr)) {
        if (!ipaddr_equal(&p->laddr, &f->laddr))
            return 0;
        score += 4;
    } else if (p->laddr.family != f->laddr.family && (p->laddr.family == AF_INET || is_v6only(p))) {
        return 0;
    }
    if (p->faddr.family != 0) {
        if (p->fport != f->fport || !ipaddr_equal(&p->faddr, &f->faddr))
            return 0;
        score += 8;
    }
    return score;
}

struct udpcb *udp_pcb_lookup(struct weir_stack *s, const struct flow *f)
{
    struct udpcb *p, *best = NULL;
    int best_score = 0, score;
    uint32_t equals = 0, pick;

    LIST_FOREACH (p, udp_bucket(s, f->lport), hash) {
        score = udp_pcb_score(p, f);
        if (score > best_score) {
            best_score = score;
            best = p;
            equals = 1;
        } else if (score != 0 && score == best_score) {
            equals++;
        }
    }
    if (equals < 2 || best->faddr.family != 0 || !has_option(best, SO_REUSEPORT))
        return best;
    pick = (uint32_t)(siphash(s->secret, f, sizeof(*f)) % equals);
    LIST_FOREACH (p, udp_bucket(s, f->lport), hash) {
        if (udp_pcb_score(p, f) == best_score && pick-- == 0)
            return p;
    }
    return best;
}
