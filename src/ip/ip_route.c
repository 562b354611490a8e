/* SPDX-License-Identifier: BSD-2-Clause
 * Routes: longest prefix match, source addresses, and the path MTUs that were learned.
 *
 * A lookup first meets a direct-mapped cache by destination. An entry is valid while its generation
 * is the current one: any change of routes, addresses, path MTUs or of a neighbour that fails or
 * recovers starts a new generation. */
#include "ip_var.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

/* ---- path MTU ---- */

static uint32_t pmtu_bucket_of(const struct weir_stack *s, const struct ipaddr *dst)
{
    return (uint32_t)siphash(s->secret, dst, sizeof(*dst)) % PMTU_BUCKETS;
}

static void pmtu_free(struct weir_stack *s, struct pmtu_entry *e)
{
    LIST_REMOVE(e, hash);
    TAILQ_REMOVE(&s->ip->pmtu_age, e, age);
    s->ip->pmtu_count--;
    alloc_free(&s->alloc, e, sizeof(*e));
}

/* The live entry of dst; an expired one is freed on the way. */
static struct pmtu_entry *pmtu_find(struct weir_stack *s, const struct ipaddr *dst)
{
    struct pmtu_entry *e;

    if (s->ip->pmtu_count == 0)
        return NULL;
    LIST_FOREACH (e, &s->ip->pmtu_hash[pmtu_bucket_of(s, dst)], hash) {
        if (!ipaddr_equal(&e->dst, dst))
            continue;
        if (e->expires_ns > s->now)
            return e;
        pmtu_free(s, e);
        return NULL;
    }
    return NULL;
}

void ip_pmtu_update(struct weir_stack *s, const struct ipaddr *dst, uint32_t mtu)
{
    struct ip_state *ip = s->ip;
    int error;
    const struct route *r = route_lookup(s, dst, &error);
    struct pmtu_entry *e;

    if (r == NULL || (dst->family == AF_INET6 && mtu < IPV6_MIN_MTU))
        return;
    if (dst->family == AF_INET)
        mtu = MAX(mtu, (uint32_t)KNOB(s, icmp_pmtu_floor));
    if (mtu >= r->mtu)
        return;
    e = pmtu_find(s, dst);
    if (e == NULL) {
        if (ip->pmtu_count >= PMTU_MAX)
            pmtu_free(s, TAILQ_FIRST(&ip->pmtu_age));
        e = alloc_zero(&s->alloc, sizeof(*e));
        if (e == NULL)
            return;
        e->dst = *dst;
        LIST_INSERT_HEAD(&ip->pmtu_hash[pmtu_bucket_of(s, dst)], e, hash);
        ip->pmtu_count++;
    } else {
        TAILQ_REMOVE(&ip->pmtu_age, e, age);
    }
    TAILQ_INSERT_TAIL(&ip->pmtu_age, e, age);
    e->mtu = mtu;
    e->expires_ns = s->now + (uint64_t)KNOB(s, icmp_pmtu_expire) * NS_PER_S;
    COUNT(s, icmp_pmtu_updates);
    route_changed(s);
}

void ip_pmtu_forget_all(struct weir_stack *s)
{
    while (!TAILQ_EMPTY(&s->ip->pmtu_age))
        pmtu_free(s, TAILQ_FIRST(&s->ip->pmtu_age));
    route_changed(s);
}

/* ---- routes ---- */

/* The bits of a behind prefixlen cleared, so that equal prefixes compare equal. */
static struct ipaddr prefix_of(const struct ipaddr *a, unsigned prefixlen)
{
    struct ipaddr p = *a;
    unsigned i, bytes = a->family == AF_INET ? 4 : 16;

    for (i = 0; i < bytes; i++) {
        unsigned keep = prefixlen > i * 8 ? MIN(prefixlen - i * 8, 8u) : 0;

        p.b[i] &= (uint8_t)(0xff00u >> keep);
    }
    return p;
}

static bool route_matches(const struct route_entry *e, const struct ipaddr *dst)
{
    struct ipaddr bare = *dst;

    if (e->prefix.family != dst->family)
        return false;
    bare.scope = 0;
    if (!ipaddr_in_prefix(&bare, &e->prefix, e->prefixlen))
        return false;
    return dst->scope == 0 || dst->scope == e->netif->index;
}

int ip_route_add(struct weir_stack *s, const struct ipaddr *prefix, unsigned prefixlen,
                 const struct ipaddr *gateway, struct netif *nif)
{
    struct ip_state *ip = s->ip;
    struct route_entry e = {.netif = nif, .prefixlen = (uint8_t)prefixlen};
    uint32_t i;

    if (prefixlen > (prefix->family == AF_INET ? 32u : 128u))
        return -EINVAL;
    if (gateway != NULL && gateway->family != 0) {
        if (gateway->family != prefix->family)
            return -EINVAL;
        e.gateway = *gateway;
        if (prefix->family == AF_INET6 && ipaddr_is_linklocal(gateway))
            e.gateway.scope = nif->index;
    }
    e.prefix = prefix_of(prefix, prefixlen);
    e.prefix.scope = 0;
    for (i = 0; i < ip->route_count; i++) {
        const struct route_entry *o = &ip->routes[i];

        if (o->prefixlen == prefixlen && ipaddr_equal(&o->prefix, &e.prefix) && o->netif == nif &&
            ipaddr_equal(&o->gateway, &e.gateway))
            return -EEXIST;
    }
    if (ip->route_count == ROUTE_MAX)
        return -ENOSPC;
    for (i = 0; i < ip->route_count && ip->routes[i].prefixlen >= prefixlen; i++)
        ;
    memmove(&ip->routes[i + 1], &ip->routes[i], (ip->route_count - i) * sizeof(e));
    ip->routes[i] = e;
    ip->route_count++;
    route_changed(s);
    return 0;
}

void route_netif_gone(struct weir_stack *s, const struct netif *nif)
{
    struct ip_state *ip = s->ip;
    uint32_t i, kept = 0;

    for (i = 0; i < ip->route_count; i++) {
        if (ip->routes[i].netif != nif)
            ip->routes[kept++] = ip->routes[i];
    }
    ip->route_count = kept;
    route_changed(s);
}

void route_fini(struct weir_stack *s)
{
    ip_pmtu_forget_all(s);
    s->ip->route_count = 0;
}

/* Groups, the limited broadcast and link-local destinations go out by an interface without any
 * route: the one their scope names, else the first that has an address of the family. */
static bool is_scoped(const struct ipaddr *dst)
{
    return ipaddr_is_multicast(dst) || (dst->family == AF_INET && dst->w[0] == UINT32_MAX) ||
           (dst->family == AF_INET6 && ipaddr_is_linklocal(dst));
}

static bool resolve_scoped(struct weir_stack *s, const struct ipaddr *dst, struct route *r)
{
    struct netif *nif;

    for (nif = s->netifs; nif != NULL; nif = nif->next) {
        if (nif->caps & NETIF_CAP_LOOPBACK || (dst->scope != 0 && dst->scope != nif->index))
            continue;
        if (!netif_source_for(nif, dst, &r->src))
            continue;
        r->netif = nif;
        r->nexthop = *dst;
        if (dst->family == AF_INET6)
            r->nexthop.scope = nif->index;
        return true;
    }
    return false;
}

static void resolve_local(struct weir_stack *s, const struct ipaddr *dst, struct route *r)
{
    r->netif = s->ip->loopback;
    r->nexthop = r->src = *dst;
    if (dst->family == AF_INET && ipaddr_is_loopback(dst))
        r->src = ipaddr_v4(INADDR_LOOPBACK);
}

static int resolve(struct weir_stack *s, const struct ipaddr *dst, struct route *r)
{
    struct ip_state *ip = s->ip;
    const struct route_entry *e = NULL;
    struct netif *nif;
    uint32_t i;

    if (ipaddr_is_any(dst))
        return -ENETUNREACH;
    if (ip_is_local(s, dst)) {
        resolve_local(s, dst, r);
        return 0;
    }
    /* A link-local address means nothing without its link. */
    if (dst->family == AF_INET6 && ipaddr_is_linklocal(dst) && dst->scope == 0)
        return -EINVAL;
    if (is_scoped(dst))
        return resolve_scoped(s, dst, r) ? 0 : -ENETUNREACH;
    for (i = 0; i < ip->route_count && e == NULL; i++) {
        if (route_matches(&ip->routes[i], dst))
            e = &ip->routes[i];
    }
    if (e == NULL)
        return -ENETUNREACH;
    r->netif = e->netif;
    r->nexthop = e->gateway.family != 0 ? e->gateway : *dst;
    if (!e->netif->up)
        return -EHOSTUNREACH;
    if (netif_source_for(e->netif, e->gateway.family != 0 ? &e->gateway : dst, &r->src))
        return 0;
    /* An interface without an address of its own borrows one. */
    for (nif = s->netifs; nif != NULL; nif = nif->next) {
        if (!(nif->caps & NETIF_CAP_LOOPBACK) && netif_source_for(nif, dst, &r->src))
            return 0;
    }
    return -EADDRNOTAVAIL;
}

const struct route *route_lookup(struct weir_stack *s, const struct ipaddr *dst, int *error)
{
    struct ip_state *ip = s->ip;
    uint64_t h = (dst->q[0] ^ dst->q[1]) * UINT64_C(0x9e3779b97f4a7c15);
    struct route_cached *c = &ip->route_cache[h >> (64 - ROUTE_CACHE_BITS)];
    const struct pmtu_entry *e;

    if (likely(c->gen == ip->route_gen && ipaddr_equal(&c->dst, dst) && c->valid_until > s->now))
        return &c->route;
    c->gen = ip->route_gen - 1;
    memset(&c->route, 0, sizeof(c->route));
    *error = resolve(s, dst, &c->route);
    if (*error != 0)
        return NULL;
    if (neigh_has_failed(c->route.netif, &c->route.nexthop)) {
        *error = -EHOSTUNREACH;
        return NULL;
    }
    c->route.mtu = c->route.netif->mtu;
    c->valid_until = TIME_NEVER;
    e = pmtu_find(s, dst);
    if (e != NULL && e->mtu < c->route.mtu) {
        c->route.mtu = e->mtu;
        c->valid_until = e->expires_ns;
    }
    c->dst = *dst;
    c->gen = ip->route_gen;
    return &c->route;
}

int ip_route(struct weir_stack *s, const struct ipaddr *dst, const struct ipaddr *src,
             struct route *out)
{
    int error;
    const struct route *r = route_lookup(s, dst, &error);

    if (r == NULL)
        return error;
    *out = *r;
    if (src == NULL || ipaddr_is_any(src))
        return 0;
    if (src->family != dst->family || !ip_is_local(s, src))
        return -EADDRNOTAVAIL;
    if (ipaddr_is_loopback(src) && !(out->netif->caps & NETIF_CAP_LOOPBACK))
        return -EINVAL;
    out->src = *src;
    return 0;
}

void ip_nexthop_doubt(struct weir_stack *s, const struct ipaddr *dst)
{
    int error;
    const struct route *r = route_lookup(s, dst, &error);

    if (r != NULL)
        neigh_doubt(r->netif, &r->nexthop);
}

bool ip_is_local(struct weir_stack *s, const struct ipaddr *a)
{
    const struct ip_state *ip = s->ip;
    uint32_t i;

    if (a->family == AF_INET) {
        if (a->b[0] == 127)
            return true;
        for (i = 0; i < ip->local4_count; i++) {
            if (ip->local4[i].addr == a->w[0])
                return true;
        }
        return false;
    }
    if (a->family != AF_INET6)
        return false;
    for (i = 0; i < ip->local6_count; i++) {
        const struct ipaddr *l = &ip->local6[i].addr;

        if (l->q[0] == a->q[0] && l->q[1] == a->q[1] && (a->scope == 0 || a->scope == l->scope))
            return true;
    }
    return false;
}
