/* SPDX-License-Identifier: BSD-2-Clause
 * What is remembered of peers between connections: round-trip times (path MTUs are kept by IP).
 *
 * ssthresh is not remembered: a threshold learned in one moment of congestion would slow later
 * connections for an hour. */
#include "tcp_var.h"

#define SETS 256 /* of WAYS entries each; the oldest of a set goes */
#define WAYS 4
#define SAMPLES_MIN 16 /* fewer say little of the path */

struct entry {
    struct ipaddr addr; /* family 0: free */
    uint64_t srtt, rttvar;
    uint64_t updated_ns;
};

struct tcp_hostcache {
    struct entry e[SETS][WAYS];
};

static struct entry *set_of(struct weir_stack *s, const struct ipaddr *a)
{
    uint64_t h = siphash(s->secret, a, sizeof(*a));
    return s->tcp->hostcache->e[h % SETS];
}

static struct entry *find(struct weir_stack *s, const struct ipaddr *a)
{
    struct entry *set = set_of(s, a);
    uint64_t life = (uint64_t)KNOB(s, tcp_hostcache_expire) * NS_PER_S;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].addr.family && ipaddr_equal(&set[i].addr, a)) {
            if (s->now - set[i].updated_ns < life)
                return &set[i];
            set[i].addr.family = 0;
        }
    }
    return NULL;
}

void tcp_hostcache_apply(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    if (!s->tcp->hostcache || !KNOB(s, tcp_hostcache_enable) || tp->t_srtt)
        return;
    const struct entry *e = find(s, &tp->t_flow.faddr);
    if (!e)
        return;
    tp->t_srtt = e->srtt;
    tp->t_rttvar = e->rttvar;
    tp->t_rxtcur = tcp_rto(tp);
}

void tcp_hostcache_update(struct tcpcb *tp)
{
    struct weir_stack *s = tp->t_stack;
    if (!KNOB(s, tcp_hostcache_enable) || tp->t_rtt_samples < SAMPLES_MIN || !tp->t_srtt)
        return;
    if (!s->tcp->hostcache)
        s->tcp->hostcache = alloc_zero(&s->alloc, sizeof(struct tcp_hostcache));
    if (!s->tcp->hostcache)
        return;
    struct entry *e = find(s, &tp->t_flow.faddr);
    if (e) {
        e->srtt = (e->srtt + tp->t_srtt) / 2;
        e->rttvar = (e->rttvar + tp->t_rttvar) / 2;
    } else {
        struct entry *set = set_of(s, &tp->t_flow.faddr);
        e = &set[0];
        for (int i = 1; i < WAYS && e->addr.family; i++) {
            if (!set[i].addr.family || set[i].updated_ns < e->updated_ns)
                e = &set[i];
        }
        *e = (struct entry){.addr = tp->t_flow.faddr, .srtt = tp->t_srtt, .rttvar = tp->t_rttvar};
    }
    e->updated_ns = s->now;
}

void tcp_hostcache_purge(struct weir_stack *s)
{
    if (s->tcp->hostcache)
        memset(s->tcp->hostcache, 0, sizeof(*s->tcp->hostcache));
}

static int purge_handler(struct weir_stack *s, const char *write, char *out, size_t out_size)
{
    if (!write) {
        if (out_size < 2)
            return -EINVAL;
        memcpy(out, "0", 2);
        return 0;
    }
    if (strcmp(write, "0") != 0 && strcmp(write, "1") != 0)
        return -EINVAL;
    if (write[0] == '1') {
        tcp_hostcache_purge(s);
        ip_pmtu_forget_all(s);
    }
    return 0;
}

int tcp_hostcache_init(struct weir_stack *s)
{
    sysctl_set_handler(s, KNOB_tcp_hostcache_purgenow, purge_handler);
    return 0; /* the table is made when there is something to remember */
}

void tcp_hostcache_fini(struct weir_stack *s)
{
    alloc_free(&s->alloc, s->tcp->hostcache, sizeof(struct tcp_hostcache));
    s->tcp->hostcache = NULL;
}
