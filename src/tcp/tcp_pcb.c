/* SPDX-License-Identifier: BSD-2-Clause
 * Connections: making and freeing them, finding them by their flow.
 *
 * How it works. Connections hang in a table by the keyed hash of their flow, which doubles when it
 * holds one a bucket. In front of it stands a small direct-mapped cache with an unkeyed hash: a
 * peer that picks colliding flows loses the cache, and pays the keyed hash. */
#include "tcp_in.h"
#include <stdio.h>

#define CONN_BUCKETS_MIN 256u
#define CONN_BUCKETS_MAX (1u << 24)

static const struct ip_proto tcp_ip_proto = {.input = tcp_input, .error = tcp_ctlinput};

static int show_count(const char *write, char *out, size_t out_size, uint64_t value)
{
    if (write)
        return -EPERM;
    snprintf(out, out_size, "%llu", (unsigned long long)value);
    return 0;
}

static int sysctl_pcbcount(struct weir_stack *s, const char *write, char *out, size_t out_size)
{
    return show_count(write, out, out_size, s->tcp->pcb_count + s->tcp->timewaits.records);
}

static int sysctl_reass_segments(struct weir_stack *s, const char *write, char *out,
                                 size_t out_size)
{
    return show_count(write, out, out_size, s->tcp->reass_segs);
}

static int sysctl_reass_overflows(struct weir_stack *s, const char *write, char *out,
                                  size_t out_size)
{
    return show_count(write, out, out_size,
                      COUNTER_READ(s, tcp_reass_limit) + COUNTER_READ(s, tcp_reass_global_limit));
}

int tcp_init(struct weir_stack *s)
{
    struct tcp_state *t = alloc_zero(&s->alloc, sizeof(*t));
    int error;

    if (!t)
        return -ENOMEM;
    s->tcp = t;
    tcp_cputime_init(t);
    TAILQ_INIT(&t->outlist);
    tcp_timewait_init(s);
    t->conn_hash = alloc_zero(&s->alloc, CONN_BUCKETS_MIN * sizeof(*t->conn_hash));
    if (!t->conn_hash)
        return -ENOMEM;
    t->conn_mask = CONN_BUCKETS_MIN - 1;
    error = tcp_ports_init(s);
    if (!error)
        error = tcp_syncache_init(s);
    if (!error)
        error = tcp_hostcache_init(s);
    if (error)
        return error;
    sysctl_set_handler(s, KNOB_tcp_pcbcount, sysctl_pcbcount);
    sysctl_set_handler(s, KNOB_tcp_reass_cursegments, sysctl_reass_segments);
    sysctl_set_handler(s, KNOB_tcp_reass_overflows, sysctl_reass_overflows);
    ip_register(s, IPPROTO_TCP, &tcp_ip_proto);
    return 0;
}

void tcp_fini(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;

    if (!t)
        return;
    tcp_timewait_fini(s);
    CHECK(t->pcb_count == 0 && t->conn_count == 0);
    CHECK(t->reass_segs == 0 && t->timewait_count == 0);
    if (t->hostcache)
        tcp_hostcache_fini(s);
    if (t->syncache)
        tcp_syncache_fini(s);
    tcp_ports_fini(s);
    tcp_reass_drain(s);
    tcp_sent_drain(s);
    if (t->conn_hash)
        alloc_free(&s->alloc, t->conn_hash, (t->conn_mask + 1) * sizeof(*t->conn_hash));
    alloc_free(&s->alloc, t, sizeof(*t));
    s->tcp = NULL;
}

/* --- life --- */

static uint32_t initial_flags(struct weir_stack *s)
{
    int64_t rfc1323 = KNOB(s, tcp_rfc1323);
    uint32_t flags = 0;

    if (rfc1323 == 1 || rfc1323 == 2)
        flags |= TF_REQ_SCALE;
    if (rfc1323 == 1 || rfc1323 == 3)
        flags |= TF_REQ_TSTMP;
    if (KNOB(s, tcp_sack_enable))
        flags |= TF_SACK_PERMIT;
    return flags;
}

struct tcpcb *tcp_pcb_create(struct socket *so)
{
    struct weir_stack *s = so->so_stack;
    struct tcpcb *tp = alloc_zero(&s->alloc, sizeof(*tp));

    if (!tp)
        return NULL;
    tp->t_stack = s;
    tp->t_so = so;
    tp->t_family = (uint8_t)so->so_domain;
    tp->t_flow.laddr.family = tp->t_family;
    tp->t_flags = initial_flags(s);
    tp->t_maxseg =
        (uint32_t)(so->so_domain == AF_INET6 ? KNOB(s, tcp_v6mssdflt) : KNOB(s, tcp_mssdflt));
    tp->snd_cwnd = tp->snd_ssthresh = TCP_MAXWIN << TCP_MAX_WSCALE;
    ranges_init(&tp->t_sent);
    ranges_init(&tp->t_reass);
    TAILQ_INIT(&tp->t_reass_list);
    tcp_timers_init(tp);
    tcp_cc_attach(tp, NULL);
    s->tcp->pcb_count++;
    so->so_pcb = tp;
    return tp;
}

void tcp_pcb_free(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;

    if (tp->t_state == TCPS_LISTEN)
        tcp_syncache_listener_gone(tp);
    tcp_state_set(tp, TCPS_CLOSED);
    tcp_timers_stop(tp);
    tcp_output_forget(tp);
    tcp_reass_flush(tp);
    tcp_early_text_flush(tp);
    tcp_sent_flush(tp);
    tcp_pcb_unhash(tp, false);
    tp->t_so->so_pcb = NULL;
    s->tcp->pcb_count--;
    tcp_cputime_forget(tp);
    alloc_free(&s->alloc, tp, sizeof(*tp));
}

/* --- the table of connections --- */

static uint32_t cache_slot(const struct flow *f)
{
    uint32_t h = f->faddr.w[0] ^ f->faddr.w[3] ^ f->laddr.w[0];

    h ^= (uint32_t)f->lport << 16 ^ f->fport;
    h *= UINT32_C(0x9e3779b1);
    return h >> 24;
}
_Static_assert(NELEM(((struct tcp_state *)0)->flow_cache) == 256, "cache_slot gives 8 bits");

struct tcpcb *tcp_lookup(struct weir_stack *s, const struct flow *f)
{
    struct tcp_state *t = s->tcp;
    struct tcpcb **slot = &t->flow_cache[cache_slot(f)], *tp = *slot;
    uint32_t h;

    if (likely(tp != NULL && flow_equal(f, &tp->t_flow)))
        return tp;
    h = (uint32_t)tcp_flow_hash(s, f);
    LIST_FOREACH (tp, &t->conn_hash[h & t->conn_mask], t_hash) {
        if (tp->t_hashval == h && flow_equal(f, &tp->t_flow)) {
            *slot = tp;
            return tp;
        }
    }
    return NULL;
}

/* Double the table; without memory the chains just grow longer. */
static void conn_grow(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;
    uint32_t size = (t->conn_mask + 1) * 2;
    struct tcpcb_list *hash;

    if (size > CONN_BUCKETS_MAX)
        return;
    hash = alloc_zero(&s->alloc, size * sizeof(*hash));
    if (!hash)
        return;
    for (uint32_t i = 0; i <= t->conn_mask; i++) {
        struct tcpcb *tp;
        while ((tp = LIST_FIRST(&t->conn_hash[i])) != NULL) {
            LIST_REMOVE(tp, t_hash);
            LIST_INSERT_HEAD(&hash[tp->t_hashval & (size - 1)], tp, t_hash);
        }
    }
    alloc_free(&s->alloc, t->conn_hash, (t->conn_mask + 1) * sizeof(*t->conn_hash));
    t->conn_hash = hash;
    t->conn_mask = size - 1;
}

static void conn_insert(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    struct tcp_state *t = s->tcp;

    CHECK(!tp->t_hashed);
    if (t->conn_count++ > t->conn_mask)
        conn_grow(s);
    tp->t_hashval = (uint32_t)tcp_flow_hash(s, &tp->t_flow);
    LIST_INSERT_HEAD(&t->conn_hash[tp->t_hashval & t->conn_mask], tp, t_hash);
    tp->t_hashed = true;
    t->flow_cache[cache_slot(&tp->t_flow)] = tp;
}

static bool tuple_is_taken(struct weir_stack *s, const struct flow *f)
{
    return tcp_lookup(s, f) || tcp_timewait_lookup(s, f);
}

int tcp_pcb_hash_connection(struct tcpcb *tp)
{
    if (tuple_is_taken(tp->t_stack, &tp->t_flow))
        return -EADDRINUSE;
    if (!tp->t_port) {
        int error = tcp_port_hold(tp, tp->t_flow.lport, false);
        if (error)
            return error;
    }
    conn_insert(tp);
    return 0;
}

void tcp_pcb_unhash(struct tcpcb *tp, bool keep_owned)
{
    struct tcp_state *t = tp->t_stack->tcp;
    struct tcpcb **slot = &t->flow_cache[cache_slot(&tp->t_flow)];

    if (tp->t_hashed) {
        bool is_listener = ipaddr_is_any(&tp->t_flow.faddr) && tp->t_flow.fport == 0;
        LIST_REMOVE(tp, t_hash);
        tp->t_hashed = false;
        if (!is_listener)
            t->conn_count--;
        if (*slot == tp)
            *slot = NULL;
    }
    if (!keep_owned || !tcp_port_is_owner(tp))
        tcp_port_release(tp);
}

/* Fill in t_flow for a connection to be: 0, -EADDRNOTAVAIL, -ENETUNREACH, ... */
static int choose_addresses(struct tcpcb *tp, const struct ipaddr *a, uint16_t port)
{
    struct weir_stack *s = tp->t_stack;
    struct flow f;
    struct route rt;
    bool bound = !ipaddr_is_any(&tp->t_flow.laddr);
    int error;

    if (bound && tp->t_flow.laddr.family != a->family)
        return a->family == AF_INET ? -ENETUNREACH : -EINVAL;
    if (ipaddr_is_multicast(a))
        return -ENETUNREACH;
    error = ip_route(s, a, bound ? &tp->t_flow.laddr : NULL, &rt);
    if (error)
        return error;
    memset(&f, 0, sizeof(f));
    f.laddr = bound ? tp->t_flow.laddr : rt.src;
    f.faddr = *a;
    f.lport = tp->t_port ? tp->t_flow.lport : 0;
    f.fport = port;
    tp->t_flow = f;
    return 0;
}

int tcp_pcb_connect(struct tcpcb *tp, const struct ipaddr *a, uint16_t port)
{
    struct weir_stack *s = tp->t_stack;
    struct flow before = tp->t_flow;
    struct ipaddr loopback;
    int error;

    CHECK(!tp->t_hashed);
    if (a->family == 0 || (a->family == AF_INET6 && tp->t_family != AF_INET6))
        return -EAFNOSUPPORT;
    if (port == 0)
        return -EADDRNOTAVAIL;
    tp->t_v6only = LOAD_RELAXED(&tp->t_so->so_v6only);
    if (a->family == AF_INET && tp->t_family == AF_INET6 && tp->t_v6only)
        return -ENETUNREACH;
    if (ipaddr_is_any(a)) { /* as on Linux and BSD: this host */
        loopback = ipaddr_v4(INADDR_LOOPBACK);
        if (a->family == AF_INET6) {
            memset(&loopback, 0, sizeof(loopback));
            loopback.family = AF_INET6;
            loopback.b[15] = 1;
        }
        a = &loopback;
    }
    error = choose_addresses(tp, a, port);
    if (!error) {
        if (!tp->t_port)
            error = tcp_port_choose(tp);
        else if (tuple_is_taken(s, &tp->t_flow))
            error = -EADDRNOTAVAIL;
    }
    if (error) {
        tp->t_flow = before;
        return error;
    }
    conn_insert(tp);
    return 0;
}

/* --- every connection and listener, CLOSED ones that an application holds too --- */

struct foreach {
    void (*fn)(struct tcpcb *tp, void *ctx);
    void *ctx;
};

static void foreach_socket(struct socket *so, void *ctx)
{
    struct foreach *f = ctx;

    if (so->so_type == SOCK_STREAM && so->so_pcb)
        f->fn(so_tcpcb(so), f->ctx);
}

void tcp_foreach(struct weir_stack *s, void (*fn)(struct tcpcb *tp, void *ctx), void *ctx)
{
    struct foreach f = {fn, ctx};

    so_foreach(s, foreach_socket, &f);
}
