/* SPDX-License-Identifier: BSD-2-Clause
 * Local ports: who holds which, bind's conflicts (Linux's rules), ephemeral ports (RFC 6056).
 *
 * How it works. Each local port in use has a struct tcp_port with three lists: owners (bind,
 * listen), users (connections on a port that another owns, or on an ephemeral one), and the
 * listeners among the owners. An ephemeral port must have no owner, and may be shared by users as
 * long as their four-tuples differ. */
#include "tcp_in.h"

#define PORT_BUCKETS_MIN 256u
#define PORT_BUCKETS_MAX 65536u
#define TIMEWAIT_REUSE_NS NS_PER_S

int tcp_ports_init(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;

    t->port_hash = alloc_zero(&s->alloc, PORT_BUCKETS_MIN * sizeof(*t->port_hash));
    if (!t->port_hash)
        return -ENOMEM;
    t->port_mask = PORT_BUCKETS_MIN - 1;
    rng_bytes(&s->rng, t->port_table, sizeof(t->port_table));
    return 0;
}

void tcp_ports_fini(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;

    CHECK(t->port_count == 0);
    if (t->port_hash)
        alloc_free(&s->alloc, t->port_hash, (t->port_mask + 1) * sizeof(*t->port_hash));
    t->port_hash = NULL;
}

struct tcp_port *tcp_port_find(struct weir_stack *s, uint16_t port)
{
    struct tcp_port *p;

    LIST_FOREACH (p, &s->tcp->port_hash[port & s->tcp->port_mask], link) {
        if (p->port == port)
            return p;
    }
    return NULL;
}

/* Double the table; without memory the chains just grow longer. */
static void ports_grow(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;
    uint32_t size = (t->port_mask + 1) * 2;
    struct tcp_port_list *hash;

    if (size > PORT_BUCKETS_MAX)
        return;
    hash = alloc_zero(&s->alloc, size * sizeof(*hash));
    if (!hash)
        return;
    for (uint32_t i = 0; i <= t->port_mask; i++) {
        struct tcp_port *p;
        while ((p = LIST_FIRST(&t->port_hash[i])) != NULL) {
            LIST_REMOVE(p, link);
            LIST_INSERT_HEAD(&hash[p->port & (size - 1)], p, link);
        }
    }
    alloc_free(&s->alloc, t->port_hash, (t->port_mask + 1) * sizeof(*t->port_hash));
    t->port_hash = hash;
    t->port_mask = size - 1;
}

int tcp_port_hold(struct tcpcb *tp, uint16_t port, bool owner)
{
    struct weir_stack *s = tp->t_stack;
    struct tcp_port *p = tcp_port_find(s, port);

    CHECK(tp->t_port == NULL);
    if (!p) {
        p = alloc_zero(&s->alloc, sizeof(*p));
        if (!p)
            return -ENOMEM;
        p->port = port;
        LIST_INIT(&p->owners);
        LIST_INIT(&p->users);
        LIST_INIT(&p->listeners);
        LIST_INIT(&p->timewaits);
        if (s->tcp->port_count++ > s->tcp->port_mask)
            ports_grow(s);
        LIST_INSERT_HEAD(&s->tcp->port_hash[port & s->tcp->port_mask], p, link);
    }
    if (owner)
        LIST_INSERT_HEAD(&p->owners, tp, t_porthash);
    else
        LIST_INSERT_HEAD(&p->users, tp, t_porthash);
    tp->t_port = p;
    tp->t_port_owner = owner;
    tp->t_flow.lport = port;
    return 0;
}

static void free_if_unused(struct weir_stack *s, struct tcp_port *p)
{
    if (!LIST_EMPTY(&p->owners) || !LIST_EMPTY(&p->users) || !LIST_EMPTY(&p->timewaits))
        return;
    CHECK(LIST_EMPTY(&p->listeners));
    LIST_REMOVE(p, link);
    s->tcp->port_count--;
    alloc_free(&s->alloc, p, sizeof(*p));
}

void tcp_port_release(struct tcpcb *tp)
{
    struct tcp_port *p = tp->t_port;

    if (!p)
        return;
    LIST_REMOVE(tp, t_porthash);
    tp->t_port = NULL;
    free_if_unused(tp->t_stack, p);
}

void tcp_port_hold_timewait(struct tcptw *tw, const struct tcpcb *tp)
{
    struct tcp_port *p = tp->t_port;

    CHECK(p != NULL);
    LIST_INSERT_HEAD(&p->timewaits, tw, port_link);
    tw->port = p;
    if (tp->t_port_owner) {
        tw->flags |= TW_PORT_OWNER;
        p->timewait_owners++;
    }
}

void tcp_port_release_timewait(struct weir_stack *s, struct tcptw *tw)
{
    LIST_REMOVE(tw, port_link);
    if (tw->flags & TW_PORT_OWNER)
        tw->port->timewait_owners--;
    free_if_unused(s, tw->port);
}

bool tcp_port_is_owner(const struct tcpcb *tp)
{
    return tp->t_port != NULL && tp->t_port_owner;
}

/* --- conflicts --- */

static bool serves_family(const struct tcpcb *tp, const struct ipaddr *a, uint8_t family)
{
    if (a->family == AF_INET6 && ipaddr_is_any(a) && !tp->t_v6only)
        return true;
    return a->family == family;
}

/* Could one segment be meant for both local addresses? */
static bool addresses_overlap(const struct tcpcb *tp, const struct ipaddr *a,
                              const struct tcpcb *other)
{
    const struct ipaddr *b = &other->t_flow.laddr;

    if (!ipaddr_is_any(a) && !ipaddr_is_any(b))
        return ipaddr_equal(a, b);
    if (!ipaddr_is_any(a))
        return serves_family(other, b, a->family);
    if (!ipaddr_is_any(b))
        return serves_family(tp, a, b->family);
    return (serves_family(tp, a, AF_INET) && serves_family(other, b, AF_INET)) ||
           (serves_family(tp, a, AF_INET6) && serves_family(other, b, AF_INET6));
}

static bool both_have(const struct tcpcb *a, const struct tcpcb *b, int option)
{
    return so_has_option(a->t_so, option) && so_has_option(b->t_so, option);
}

/* Linux: SO_REUSEPORT on both always shares; SO_REUSEADDR on both shares unless one listens. */
static bool conflicts(const struct tcpcb *tp, const struct ipaddr *a, const struct tcpcb *other)
{
    if (other == tp || !addresses_overlap(tp, a, other))
        return false;
    if (both_have(tp, other, SO_REUSEPORT))
        return false;
    return !both_have(tp, other, SO_REUSEADDR) || other->t_state == TCPS_LISTEN;
}

static bool conflicts_timewait(const struct tcpcb *tp, const struct ipaddr *a,
                               const struct tcptw *tw)
{
    const struct ipaddr *b = &tw->flow.laddr; /* never the wildcard */

    if (ipaddr_is_any(a) ? !serves_family(tp, a, b->family) : !ipaddr_equal(a, b))
        return false;
    return !((tw->flags & TW_REUSEPORT) && so_has_option(tp->t_so, SO_REUSEPORT)) &&
           !((tw->flags & TW_REUSEADDR) && so_has_option(tp->t_so, SO_REUSEADDR));
}

static bool port_conflicts(struct tcpcb *tp, const struct ipaddr *a, uint16_t port)
{
    struct tcp_port *p = tcp_port_find(tp->t_stack, port);
    struct tcpcb *other;
    struct tcptw *tw;

    if (!p)
        return false;
    LIST_FOREACH (other, &p->owners, t_porthash) {
        if (conflicts(tp, a, other))
            return true;
    }
    LIST_FOREACH (other, &p->users, t_porthash) {
        if (conflicts(tp, a, other))
            return true;
    }
    LIST_FOREACH (tw, &p->timewaits, port_link) {
        if (conflicts_timewait(tp, a, tw))
            return true;
    }
    return false;
}

/* The range of ephemeral ports, in order whatever the knobs say. */
static uint32_t ephemeral_range(struct weir_stack *s, uint16_t *first)
{
    uint16_t a = (uint16_t)KNOB(s, ip_portrange_first), b = (uint16_t)KNOB(s, ip_portrange_last);

    *first = MIN(a, b);
    return (uint32_t)(MAX(a, b) - MIN(a, b)) + 1;
}

/* bind() to port 0: any port on which this address has no conflict, from a random place on. */
static int bind_ephemeral(struct tcpcb *tp, const struct ipaddr *a)
{
    struct weir_stack *s = tp->t_stack;
    uint16_t first;
    uint32_t n = ephemeral_range(s, &first), start = rng_below(&s->rng, n);

    /* Ports that nobody uses first; then, with SO_REUSEADDR or other addresses, those that may be
     * shared. */
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < n; i++) {
            uint16_t port = (uint16_t)(first + (start + i) % n);
            bool taken = round == 0 ? tcp_port_find(s, port) != NULL : port_conflicts(tp, a, port);
            if (!taken)
                return tcp_port_hold(tp, port, true);
        }
    }
    COUNT(s, tcp_ports_exhausted);
    return -EADDRINUSE;
}

int tcp_pcb_bind(struct tcpcb *tp, const struct ipaddr *a, uint16_t port)
{
    struct weir_stack *s = tp->t_stack;
    struct ipaddr any = {.family = tp->t_family};
    int error;

    if (tp->t_port)
        return -EINVAL;
    if (a->family == 0)
        a = &any;
    if (a->family == AF_INET6 && tp->t_family != AF_INET6)
        return -EAFNOSUPPORT;
    if (!ipaddr_is_any(a) && !ip_is_local(s, a))
        return -EADDRNOTAVAIL;
    tp->t_v6only = LOAD_RELAXED(&tp->t_so->so_v6only);
    if (a->family == AF_INET && tp->t_family == AF_INET6 && tp->t_v6only)
        return -EINVAL;
    if (port != 0) {
        if (port <= KNOB(s, ip_portrange_reservedhigh))
            return -EACCES;
        if (port_conflicts(tp, a, port))
            return -EADDRINUSE;
        error = tcp_port_hold(tp, port, true);
    } else {
        error = bind_ephemeral(tp, a);
    }
    if (!error)
        tp->t_flow.laddr = *a;
    return error;
}

int tcp_pcb_hash_listener(struct tcpcb *tp)
{
    struct ipaddr any = {.family = tp->t_family};
    struct tcpcb *other;

    if (tp->t_hashed)
        return 0;
    if (!tp->t_port) {
        int error = tcp_pcb_bind(tp, &any, 0);
        if (error)
            return error;
    }
    tp->t_v6only = LOAD_RELAXED(&tp->t_so->so_v6only);
    LIST_FOREACH (other, &tp->t_port->listeners, t_hash) {
        if (addresses_overlap(tp, &tp->t_flow.laddr, other) && !both_have(tp, other, SO_REUSEPORT))
            return -EADDRINUSE;
    }
    LIST_INSERT_HEAD(&tp->t_port->listeners, tp, t_hash);
    tp->t_hashed = true;
    return 0;
}

/* How well a listener fits a local address: 0 not at all; the address itself beats the family's
 * wildcard beats a dual-stack wildcard. */
static int listener_score(const struct tcpcb *tp, const struct ipaddr *laddr)
{
    const struct ipaddr *b = &tp->t_flow.laddr;

    if (!ipaddr_is_any(b))
        return ipaddr_equal(b, laddr) ? 3 : 0;
    if (b->family == laddr->family)
        return 2;
    return serves_family(tp, b, laddr->family) ? 1 : 0;
}

static struct tcpcb *best_listener(const struct tcp_port *p, const struct ipaddr *laddr,
                                   uint32_t *ties)
{
    struct tcpcb *tp, *best = NULL;
    int best_score = 0;

    LIST_FOREACH (tp, &p->listeners, t_hash) {
        int score = listener_score(tp, laddr);
        if (score > best_score) {
            best = tp;
            best_score = score;
            *ties = 1;
        } else if (score == best_score && score > 0) {
            ++*ties;
        }
    }
    return best;
}

struct tcpcb *tcp_lookup_listener(struct weir_stack *s, const struct ipaddr *laddr, uint16_t lport)
{
    struct tcp_port *p = tcp_port_find(s, lport);
    uint32_t ties = 0;

    return p ? best_listener(p, laddr, &ties) : NULL;
}

struct tcpcb *tcp_lookup_listener_flow(struct weir_stack *s, const struct flow *f)
{
    struct tcp_port *p = tcp_port_find(s, f->lport);
    struct tcpcb *best, *tp;
    uint32_t ties = 0, pick;
    int score;

    best = p ? best_listener(p, &f->laddr, &ties) : NULL;
    if (ties < 2)
        return best;
    score = listener_score(best, &f->laddr);
    pick = (uint32_t)(((tcp_flow_hash(s, f) >> 32) * ties) >> 32);
    LIST_FOREACH (tp, &p->listeners, t_hash) {
        if (listener_score(tp, &f->laddr) == score && pick-- == 0)
            return tp;
    }
    return best;
}

/* --- ephemeral ports of connections --- */

/* An old connection between the same two ends gives its ports away: in TIME_WAIT, nobody holds it,
 * and timestamps tell the peer the old from the new, since more than a second has passed (RFC
 * 6191). */
static bool may_reuse(const struct tcpcb *old)
{
    return old->t_state == TCPS_TIME_WAIT && (so_state(old->t_so) & SS_NOHANDLE) &&
           (old->t_flags & TF_RCVD_TSTMP) && old->t_stack->now - old->t_rcvtime > TIMEWAIT_REUSE_NS;
}

static bool may_reuse_record(const struct weir_stack *s, const struct tcptw *old)
{
    return (old->flags & TW_TIMESTAMPS) && s->now - old->rcvtime_ns > TIMEWAIT_REUSE_NS;
}

/* May a new connection have this tuple? What it takes over from is ended. */
static bool tuple_is_free(struct weir_stack *s, const struct flow *f)
{
    struct tcpcb *old = tcp_lookup(s, f);
    struct tcptw *tw = old ? NULL : tcp_timewait_lookup(s, f);

    if (!old && !tw)
        return true;
    if (old ? !may_reuse(old) : !may_reuse_record(s, tw))
        return false;
    COUNT(s, tcp_timewait_recycled);
    if (old)
        tcp_close(old);
    else
        tcp_timewait_close(s, tw);
    return true;
}

/* RFC 6056 3.3.4 (double-hash): the offset is fixed for a destination, the counter belongs to a
 * group of destinations, and moves by a random step, so that one destination learns nothing about
 * another. */
int tcp_port_choose(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct flow key = tp->t_flow;
    uint16_t first;
    uint32_t n = ephemeral_range(s, &first), *counter, start;
    uint64_t hash[2];

    key.lport = 0;
    tcp_keyed_hash(s, TCP_LABEL_PORT, &key, hash);
    counter = &s->tcp->port_table[hash[0] % NELEM(s->tcp->port_table)];
    start = (uint32_t)((hash[1] + *counter) % n);
    for (uint32_t i = 0; i < n; i++) {
        uint16_t port = (uint16_t)(first + (start + i) % n);
        struct tcp_port *p = tcp_port_find(s, port);

        if (port == 0 || (p && (!LIST_EMPTY(&p->owners) || p->timewait_owners)))
            continue;
        tp->t_flow.lport = port;
        if (p && !tuple_is_free(s, &tp->t_flow))
            continue;
        *counter += i + 1 + rng_below(&s->rng, 4);
        COUNT_ADD(s, tcp_port_tries, i + 1);
        return tcp_port_hold(tp, port, false);
    }
    tp->t_flow.lport = 0;
    COUNT(s, tcp_ports_exhausted);
    return -EADDRNOTAVAIL;
}
