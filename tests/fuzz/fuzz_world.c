/* SPDX-License-Identifier: BSD-2-Clause
 * The world of the stack's fuzz targets: opening, time, failures, the end. */
#include "fuzz_world.h"

#include "buf/mbuf.h"
#include "ip/ip_var.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"

struct fuzz_world fuzz_world;

static void packet_out(const struct fuzz_packet *k, void *ctx)
{
    struct fuzz_world *w = ctx;
    w->last_len = MIN(k->len, (uint32_t)sizeof(w->last));
    memcpy(w->last, k->ip, w->last_len);
    if (k->proto != IPPROTO_TCP)
        return;
    fuzz_check_segment(w, k);
    fuzz_flow_note(w, k);
}

static struct ipaddr address(const char *text)
{
    struct ipaddr a;
    FUZZ_CHECK(ipaddr_parse(text, &a) == 0);
    return a;
}

struct fuzz_world *fuzz_world_open(bool ether, uint32_t caps, uint32_t mtu)
{
    struct fuzz_world *w = &fuzz_world;
    struct ipaddr any4 = {.family = AF_INET}, any6 = {.family = AF_INET6};
    memset(w, 0, sizeof(*w));
    w->ether = ether;
    w->genuine = true;
    w->window = 65535;
    w->local4 = address("10.0.0.1");
    w->local6 = address("fd00::1");
    w->peer4 = address("10.0.0.2");
    w->peer6 = address("fd00::2");
    w->sim = sim_create(7, 0);
    w->s = sim_stack(w->sim, "fuzz");
    FUZZ_CHECK(owner_try(w->s));
    fuzz_link_open(&w->link, w->s, ether, caps, mtu);
    FUZZ_CHECK(netif_add_addr(w->link.nif, &w->local4, 24) == 0);
    FUZZ_CHECK(netif_add_addr(w->link.nif, &w->local6, 64) == 0);
    FUZZ_CHECK(ip_route_add(w->s, &any4, 0, ether ? &w->peer4 : NULL, w->link.nif) == 0);
    FUZZ_CHECK(ip_route_add(w->s, &any6, 0, ether ? &w->peer6 : NULL, w->link.nif) == 0);
    stack_flush(w->s, sim_now(w->sim));
    stack_leave(w->s);
    w->link.packet = packet_out;
    w->link.ctx = w;
    fuzz_app_open(w);
    return w;
}

void fuzz_world_peers(struct fuzz_world *w, unsigned kind)
{
    static const uint16_t windows[] = {65535, 100, 20, 400};
    w->window = windows[kind % NELEM(windows)];
}

void fuzz_world_settle(struct fuzz_world *w)
{
    sim_settle(w->sim);
    fuzz_check_stack(w);
}

void fuzz_world_run(struct fuzz_world *w, struct fuzz_in *in)
{
    static const uint64_t ns[] = {NS_PER_MS,     10 * NS_PER_MS,  50 * NS_PER_MS, 250 * NS_PER_MS,
                                  1000,          NS_PER_S,        3 * NS_PER_S,   20 * NS_PER_S,
                                  70 * NS_PER_S, 1300 * NS_PER_S, 8000 * NS_PER_S};
    uint8_t which = fuzz_u8(in); /* mostly what leaves a connection alive */
    sim_run(w->sim, ns[which < 192 ? which % 6 : which % NELEM(ns)]);
    fuzz_check_stack(w);
}

void fuzz_world_fail(struct fuzz_world *w, struct fuzz_in *in)
{
    uint8_t how = fuzz_u8(in);
    if (how & 0x80) { /* almost at the limit of buffers */
        mbuf_account_settle(w->s->account);
        int64_t used = LOAD_RELAXED(&w->s->account->bytes);
        STORE_RELAXED(&w->s->account->limit, used + (how & 0x7f) * 512);
        return;
    }
    if (how & 0x40)
        sim_fail_alloc_after(w->sim, how & 7);
    if (how & 0x20)
        atomic_store(&w->s->account->fail_after, 1 + (how >> 3 & 3) * 2);
}

void fuzz_world_mend(struct fuzz_world *w)
{
    sim_fail_alloc_after(w->sim, -1);
    atomic_store(&w->s->account->fail_after, -1);
    STORE_RELAXED(&w->s->account->limit, INT64_C(1) << 30);
}

void fuzz_world_sysctl(struct fuzz_world *w, struct fuzz_in *in)
{
    int id = (int)fuzz_below(in, KNOB_COUNT);
    const struct knob_info *k = &knob_table[id];
    uint8_t pick = fuzz_u8(in);
    char text[32];
    int64_t v = k->min, more = pick & 2 ? fuzz_u16(in) : 0;
    if (k->scope == KNOB_SCOPE_PROCESS || k->type == KNOB_TYPE_PROC)
        return;
    if (pick & 1)
        v = k->dflt;
    else if (pick & 2)
        v = MIN(k->min + more, k->max);
    else if (pick & 4)
        v = k->max;
    else if (pick & 8)
        v = MAX(k->min, k->dflt / 2);
    if (k->type == KNOB_TYPE_ENUM) {
        unsigned words = 1, n = (unsigned)fuzz_u8(in);
        for (const char *p = k->words; *p; p++)
            words += *p == '|';
        const char *word = k->words;
        for (n %= words; n > 0; n--)
            word = strchr(word, '|') + 1;
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(word, "|"), word);
    } else {
        snprintf(text, sizeof(text), "%lld", (long long)v);
    }
    w->knobs_changed = true;
    FUZZ_CHECK(owner_try(w->s));
    (void)!sysctl_set(w->s, k->name, text);
    stack_leave(w->s);
}

/* Knobs back to their defaults: else an end may be a year away by the operator's wish. */
static void default_knobs(struct fuzz_world *w)
{
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob_info *k = &knob_table[i];
        char text[32];
        if (k->scope == KNOB_SCOPE_PROCESS ||
            (k->type != KNOB_TYPE_INT && k->type != KNOB_TYPE_BOOL))
            continue;
        snprintf(text, sizeof(text), "%lld", (long long)k->dflt);
        sim_sysctl(w->s, k->name, text);
    }
}

static uint32_t syncache_entries(struct weir_stack *s)
{
    char text[32];
    FUZZ_CHECK(sysctl_get(s, "net.inet.tcp.syncache.count", text, sizeof(text)) == 0);
    return (uint32_t)strtoul(text, NULL, 10);
}

/* With WEIR_FUZZ_COUNTERS in the environment: what all inputs together made happen, at the end.
 * What stays at zero is not fuzzed. */
static uint64_t totals[COUNTER_COUNT];

static void print_totals(void)
{
    for (int i = 0; i < COUNTER_COUNT; i++)
        printf("%s %llu\n", counter_table[i].name, (unsigned long long)totals[i]);
}

static void add_totals(const struct weir_stack *s)
{
    static int wanted = -1;
    if (wanted < 0) {
        wanted = getenv("WEIR_FUZZ_COUNTERS") != NULL;
        if (wanted)
            atexit(print_totals);
    }
    for (int i = 0; wanted && i < COUNTER_COUNT; i++)
        totals[i] += LOAD_RELAXED(&s->counters.v[i]);
}

static void count_socket(struct socket *so, void *ctx)
{
    ++*(unsigned *)ctx;
}

void fuzz_world_close(struct fuzz_world *w)
{
    unsigned sockets = 0;
    fuzz_world_mend(w);
    if (w->knobs_changed)
        default_knobs(w);
    w->link.stuck = false;
    fuzz_app_close(w);
    fuzz_world_settle(w);
    /* With a peer that is gone, whatever was closed ends, and nothing is left of it. */
    sim_run(w->sim, 7200 * NS_PER_S);
    if (w->s->tcp->pcb_count)
        sim_run(w->sim, 100ull * 86400 * NS_PER_S);
    fuzz_check_stack(w);
    so_foreach(w->s, count_socket, &sockets);
    FUZZ_CHECK(sockets == 0 && w->s->tcp->pcb_count == 0 && w->s->tcp->conn_count == 0);
    FUZZ_CHECK(w->s->ip->frag4.queues == 0 && w->s->ip->frag6.queues == 0);
    FUZZ_CHECK(w->s->tcp->port_count == 0 && syncache_entries(w->s) == 0);
    add_totals(w->s);
    sim_destroy(w->sim);
}
