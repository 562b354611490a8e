/* SPDX-License-Identifier: BSD-2-Clause
 * What a segment costs over the whole input path while text waits out of order.
 *
 * How it works. One stack in this thread, with a link of ours and a clock of ours; we are the peer
 * too. The link copies a frame of ours into a buffer (as a driver would) and the stack takes one
 * step: IP, TCP, reassembly, and the acknowledgment with its SACK blocks out through the link. So
 * each segment is answered, which costs more than a burst would. Only steps are timed, in groups of
 * ten. When few blocks are asked for the queue is filled and emptied again and again. */
#include "reass_cost.h"

#include "base/sysctl.h"
#include "buf/mbuf.h"
#include "ip/ip.h"
#include "ip/netif.h"
#include "runtime/runtime.h"
#include "stack.h"
#include "tcp/tcp_var.h"
#include "weir/socket.h"
#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/wire.h"

#include <stdio.h>
#include <stdlib.h>

#define GROUP 10u
#define SAMPLES 5000u     /* segments wanted in a sample of few blocks */
#define MAX_GROUPS 40000u /* measured */
#define MAX_BLOCKS 200000u
#define MAX_PAYLOAD 1448u
#define HEADERS (IPV4_HEADER_LEN + TCP_HEADER_LEN + OPTIONS)
#define OPTIONS 12u /* timestamps */
#define PEER_PORT 40000
#define OWN_PORT 80
#define PEER_ISS 1000u
#define STEP_NS NS_PER_US /* of the stack's clock, a step */

struct frame {
    uint32_t len;
    uint8_t bytes[HEADERS + MAX_PAYLOAD];
};

struct rig {
    const struct reass_cost_case *c;
    struct reass_cost_result *r;
    struct weir_stack *s;
    struct port port;
    uint64_t now;
    struct ipaddr own, peer;
    const struct frame *in;     /* what the link brings next */
    uint64_t acks, sack_blocks; /* that came out */
    struct tcp_header last;     /* header of the last packet that came out */
    uint32_t tsval;             /* its timestamp */
    int listener, fd;
    uint32_t acked;   /* what the stack sent is acknowledged up to here */
    uint32_t base;    /* first byte of the round, as an offset of the stream */
    uint32_t payload; /* bytes of a segment */
    uint32_t *order;  /* segments of a round, in the order in which they arrive */
    float *groups;    /* ns of a group that was measured */
    float *closing;   /* and of one that closes holes */
    uint32_t group_count, closing_count;
    double measured_ns;
    uint64_t consumed;
    uint64_t end_ns; /* give up */
};

/* --- the link --- */
static size_t rig_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct rig *g = link;
    for (size_t i = 0; i < n; i++) {
        struct mbuf *m = frames[i];
        const uint8_t *tcp = m->m_data + IPV4_HEADER_LEN;
        if (m->m_len >= IPV4_HEADER_LEN + TCP_HEADER_LEN && m->m_data[9] == IPPROTO_TCP &&
            tcp_header_parse(tcp, m->m_len - IPV4_HEADER_LEN, &g->last) == 0) {
            g->acks++;
            if (g->last.off > TCP_HEADER_LEN + OPTIONS + 4u)
                g->sack_blocks += (g->last.off - TCP_HEADER_LEN - OPTIONS - 4u) / 8;
            if (g->last.flags & TH_SYN) {
                struct tcp_options o;
                tcp_options_parse(tcp + TCP_HEADER_LEN, g->last.off - TCP_HEADER_LEN, true, &o);
                g->tsval = o.flags & TOF_TS ? o.tsval : 0;
            }
        }
        mbuf_free_chain(&frames[i]);
    }
    return n;
}

static size_t rig_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct rig *g = link;
    const struct frame *f = g->in;
    if (!f || !n)
        return 0;
    g->in = NULL;
    struct mbuf *m = mbuf_get_size(g->s->account, f->len);
    if (!m)
        return 0;
    memcpy(m->m_data, f->bytes, f->len);
    m->m_len = f->len;
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = f->len, .segs = 1};
    frames[0] = m;
    return 1;
}

static uint64_t rig_deadline(void *link)
{
    return TIME_NEVER;
}

static bool rig_pending(void *link)
{
    return ((struct rig *)link)->in != NULL;
}

static void rig_close(void *link)
{
}

static const struct netif_ops rig_ops = {.tx = rig_tx,
                                         .rx = rig_rx,
                                         .next_deadline = rig_deadline,
                                         .pending = rig_pending,
                                         .close = rig_close};

/* --- the port: no call of ours blocks --- */
static uint64_t rig_now(void *ctx)
{
    return ((struct rig *)ctx)->now;
}

static int rig_wait(void *ctx, const struct port_wait *w)
{
    return -ETIMEDOUT;
}

static void rig_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
}

static void rig_kick(void *ctx, struct weir_stack *s)
{
}

static void *rig_alloc(void *ctx, size_t size)
{
    return malloc(size);
}

static void rig_free(void *ctx, void *p, size_t size)
{
    free(p);
}

static const struct weir_alloc rig_allocator = {rig_alloc, rig_free, NULL};

/* --- frames --- */
static uint8_t pattern(uint32_t offset)
{
    return (uint8_t)(offset * 31u + (offset >> 8) * 7u + (offset >> 16));
}

static void frame_make(const struct rig *g, struct frame *f, uint8_t flags, uint32_t offset,
                       uint32_t len)
{
    uint8_t *ip = f->bytes, *tcp = ip + IPV4_HEADER_LEN, opt[TCP_MAX_OPTIONS];
    bool syn = flags & TH_SYN;
    struct tcp_options o = {.flags = syn ? TOF_MSS | TOF_SCALE | TOF_SACKPERM | TOF_TS : TOF_TS,
                            .mss = MAX_PAYLOAD + OPTIONS,
                            .wscale = 14,
                            .tsval = 1,
                            .tsecr = syn ? 0 : g->tsval};
    unsigned optlen = tcp_options_build(opt, &o, syn, TCP_ORDER_FREEBSD);
    uint32_t l4 = TCP_HEADER_LEN + optlen + len;
    struct tcp_header th = {.sport = PEER_PORT,
                            .dport = OWN_PORT,
                            .seq = syn ? PEER_ISS : PEER_ISS + 1 + offset,
                            .ack = g->acked,
                            .off = (uint8_t)(TCP_HEADER_LEN + optlen),
                            .flags = flags,
                            .win = 65535};
    memset(ip, 0, IPV4_HEADER_LEN);
    ip[0] = 0x45;
    put_be16(ip + 2, (uint16_t)(IPV4_HEADER_LEN + l4));
    ip[8] = 64;
    ip[9] = IPPROTO_TCP;
    memcpy(ip + 12, g->peer.b, 4);
    memcpy(ip + 16, g->own.b, 4);
    uint16_t sum = (uint16_t)~checksum_fold(checksum_add(ip, IPV4_HEADER_LEN, 0));
    memcpy(ip + 10, &sum, 2);
    tcp_header_build(tcp, &th);
    memcpy(tcp + TCP_HEADER_LEN, opt, optlen);
    for (uint32_t i = 0; i < len; i++)
        tcp[TCP_HEADER_LEN + optlen + i] = pattern(offset + i);
    sum = (uint16_t)~checksum_fold(
        checksum_add(tcp, l4, checksum_pseudo(&g->peer, &g->own, IPPROTO_TCP, l4)));
    memcpy(tcp + 16, &sum, 2);
    f->len = IPV4_HEADER_LEN + l4;
}

/* --- steps --- */
static bool failed(struct rig *g, const char *what, int error)
{
    if (!g->r->error[0])
        snprintf(g->r->error, sizeof(g->r->error), "%s%s%s", what, error ? ": " : "",
                 error ? strerror(error < 0 ? -error : error) : "");
    return false;
}

static void step(struct rig *g, const struct frame *f)
{
    g->in = f;
    g->now += STEP_NS;
    bool mine = owner_try(g->s);
    CHECK(mine);
    stack_step(g->s, g->now);
    stack_leave(g->s);
}

/* Send segments of the round (indices), at most GROUP. Returns ns. */
static double send_group(struct rig *g, const uint32_t *index, uint32_t n)
{
    static _Thread_local struct frame frames[GROUP];
    for (uint32_t i = 0; i < n; i++)
        frame_make(g, &frames[i], TH_ACK, g->base + index[i] * g->payload, g->payload);
    uint64_t before = runtime_now_ns();
    for (uint32_t i = 0; i < n; i++)
        step(g, &frames[i]);
    return (double)(runtime_now_ns() - before);
}

/* --- the connection --- */
static bool set_knob(struct rig *g, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    if (!owner_try(g->s))
        return failed(g, "the stack is owned", 0);
    int error = sysctl_set(g->s, name, text);
    stack_leave(g->s);
    return error ? failed(g, name, error) : true;
}

static bool set_knobs(struct rig *g)
{
    uint64_t window = 2 * (uint64_t)g->c->blocks * g->payload;
    /* An mbuf for each block must find room too: the buffer's budget of memory is eight times
     * this. */
    window = MAX(window, (uint64_t)g->c->blocks * 2 * MBUF_SIZE / 8) + 65536;
    if (!owner_try(g->s))
        return failed(g, "the stack is owned", 0);
    int error = sysctl_set(g->s, "net.inet.tcp.reass.algorithm", g->c->list ? "list" : "chain");
    stack_leave(g->s);
    return error ? failed(g, "net.inet.tcp.reass.algorithm", error)
                 : set_knob(g, "kern.ipc.maxsockbuf", MIN(window, 1u << 30)) &&
                       set_knob(g, "net.inet.tcp.recvspace", MIN(window, 1u << 30)) &&
                       set_knob(g, "net.inet.tcp.recvbuf_auto", 0) &&
                       set_knob(g, "net.inet.tcp.reass.maxqueuelen", 1u << 24) &&
                       set_knob(g, "net.inet.tcp.reass.maxsegments", 1u << 28);
}

static bool open_stack(struct rig *g)
{
    runtime_init();
    g->now = 1000 * NS_PER_S;
    g->port = (struct port){g, rig_now, rig_wait, rig_wake, rig_kick};
    struct stack_config cfg = {.alloc = &rig_allocator,
                               .port = &g->port,
                               .name = "reass_cost",
                               .now_ns = g->now,
                               .buffer_limit = INT64_C(4) << 30};
    memcpy(cfg.seed, &g->c->seed, sizeof(g->c->seed));
    g->s = stack_create(&cfg);
    if (!g->s)
        return failed(g, "no memory for a stack", 0);
    struct netif_config n = {
        .name = "rig0", .ops = &rig_ops, .link = g, .caps = NETIF_CAP_L3, .mtu = 1500};
    int error = ipaddr_parse("10.9.0.1", &g->own);
    if (!error)
        error = ipaddr_parse("10.9.0.2", &g->peer);
    if (error || !owner_try(g->s))
        return failed(g, "the stack", error);
    struct netif *nif = netif_create(g->s, &n);
    error = nif ? netif_add_addr(nif, &g->own, 24) : -ENOMEM;
    stack_leave(g->s);
    return error ? failed(g, "the interface", error) : set_knobs(g);
}

static bool connect_peer(struct rig *g)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(OWN_PORT)};
    struct frame f;
    g->listener = weir_socket(g->s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (g->listener < 0 || weir_bind(g->listener, (struct sockaddr *)&sin, sizeof(sin)) ||
        weir_listen(g->listener, 1))
        return failed(g, "listen", errno);
    frame_make(g, &f, TH_SYN, 0, 0);
    step(g, &f);
    if ((g->last.flags & (TH_SYN | TH_ACK)) != (TH_SYN | TH_ACK))
        return failed(g, "the SYN was not answered", 0);
    g->acked = g->last.seq + 1;
    frame_make(g, &f, TH_ACK, 0, 0);
    step(g, &f);
    g->fd = weir_accept4(g->listener, NULL, NULL, SOCK_NONBLOCK);
    return g->fd < 0 ? failed(g, "accept", errno) : true;
}

/* --- a round --- */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The odd segments, in the order asked for. */
static void make_order(struct rig *g)
{
    uint32_t n = g->c->blocks;
    uint64_t state = g->c->seed;
    for (uint32_t i = 0; i < n; i++)
        g->order[i] = 2 * (g->c->order == REASS_DESCENDING ? n - 1 - i : i) + 1;
    for (uint32_t i = n - 1; g->c->order == REASS_RANDOM && i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(&state) % (i + 1)), t = g->order[i];
        g->order[i] = g->order[j];
        g->order[j] = t;
    }
}

/* Let the odd segments arrive; those of the last tenth are measured. Returns how many did. */
static uint32_t fill(struct rig *g)
{
    uint32_t n = g->c->blocks, from = n - MAX(n / 10, MIN(n, GROUP)), i = 0;
    while (i < n && (i == 0 || runtime_now_ns() < g->end_ns)) {
        uint32_t k = MIN(GROUP, i < from ? from - i : n - i);
        double ns = send_group(g, &g->order[i], k);
        /* Out of time before the last tenth: what was reached counts. */
        bool sample = i >= from || runtime_now_ns() >= g->end_ns;
        if (sample && k == MIN(GROUP, n) && g->group_count < MAX_GROUPS) {
            g->groups[g->group_count++] = (float)ns;
            g->measured_ns += ns;
            g->r->measured += k;
        }
        i += k;
    }
    return i;
}

static int64_t queued_segments(struct rig *g)
{
    char text[32] = "";
    if (!owner_try(g->s))
        return -1;
    int error = sysctl_get(g->s, "net.inet.tcp.reass.cursegments", text, sizeof(text));
    stack_leave(g->s);
    return error ? -1 : strtoll(text, NULL, 10);
}

/* Close the holes from left to right. */
static void close_holes(struct rig *g, uint32_t arrived)
{
    uint32_t index[GROUP], n = 0, high = 0;
    bool all = arrived == g->c->blocks;
    for (uint32_t i = 0; i < arrived; i++)
        high = MAX(high, g->order[i]);
    /* If some are missing everything is sent again. */
    for (uint32_t i = 0; i <= high; i += all ? 2 : 1) {
        index[n++] = i;
        if (n < GROUP && i + (all ? 2 : 1) <= high)
            continue;
        double ns = send_group(g, index, n);
        if (n == GROUP && g->closing_count < MAX_GROUPS)
            g->closing[g->closing_count++] = (float)ns;
        n = 0;
    }
    g->base += (high + 1) * g->payload;
}

static bool consume(struct rig *g)
{
    static uint8_t buf[65536];
    ssize_t n;
    while ((n = weir_recv(g->fd, buf, sizeof(buf), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            g->r->bytes_right &= buf[i] == pattern((uint32_t)(g->consumed + (uint64_t)i));
        g->consumed += (uint64_t)n;
    }
    step(g, NULL);
    return (n < 0 && errno == EAGAIN && g->consumed == g->base) ||
           failed(g, "the stream is not whole", 0);
}

static bool round_of(struct rig *g)
{
    uint64_t acks = g->acks, blocks = g->sack_blocks;
    uint32_t arrived = fill(g);
    g->r->acks += g->acks - acks;
    g->r->sack_blocks += g->sack_blocks - blocks;
    int64_t queued = queued_segments(g);
    if (queued != arrived)
        return failed(g, "segments were refused", 0);
    g->r->reached = MAX(g->r->reached, arrived);
    close_holes(g, arrived);
    return consume(g);
}

/* --- results --- */
static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sum_queued(struct tcpcb *tp, void *ctx)
{
    *(uint64_t *)ctx += tp->t_reass_bytes;
}

static void look_at_leftovers(struct rig *g)
{
    int64_t queued = queued_segments(g);
    g->r->left_segments = (uint64_t)queued;
    if (owner_try(g->s)) {
        tcp_foreach(g->s, sum_queued, &g->r->left_bytes);
        mbuf_account_settle(g->s->account);
        g->r->left_mbufs = atomic_load(&g->s->account->mbufs);
        stack_leave(g->s);
    }
    g->r->delivered = g->consumed;
}

static void summarise(struct rig *g)
{
    struct reass_cost_result *r = g->r;
    uint32_t k = g->group_count, of = MIN(GROUP, g->c->blocks);
    if (k) {
        qsort(g->groups, k, sizeof(*g->groups), compare_floats);
        r->ns_mean = g->measured_ns / r->measured;
        r->ns_median = (double)g->groups[k / 2] / of;
        r->ns_p99 = (double)g->groups[(uint64_t)k * 99 / 100] / of;
    }
    k = g->closing_count;
    if (k) {
        qsort(g->closing, k, sizeof(*g->closing), compare_floats);
        r->fill_ns = (double)g->closing[k / 2] / GROUP;
    }
}

static void close_stack(struct rig *g)
{
    if (g->fd >= 0)
        weir_close(g->fd);
    if (g->listener >= 0)
        weir_close(g->listener);
    if (!g->s)
        return;
    if (owner_try(g->s))
        stack_destroy(g->s);
}

static bool run(struct rig *g)
{
    if (!open_stack(g) || !connect_peer(g))
        return false;
    make_order(g);
    uint64_t wanted = MAX(MIN(SAMPLES, g->c->blocks * 100u), 1u);
    do {
        if (!round_of(g))
            return false;
    } while (g->r->measured < wanted && g->c->blocks <= SAMPLES && g->base < 1u << 30 &&
             runtime_now_ns() < g->end_ns);
    look_at_leftovers(g);
    summarise(g);
    return true;
}

bool reass_cost(const struct reass_cost_case *c, struct reass_cost_result *r)
{
    struct rig g = {.c = c, .r = r, .listener = -1, .fd = -1};
    memset(r, 0, sizeof(*r));
    r->bytes_right = true;
    g.payload = c->payload ? c->payload : 100;
    if (c->blocks < 1 || c->blocks > MAX_BLOCKS || g.payload > MAX_PAYLOAD)
        return failed(&g, "no such case", EINVAL);
    double limit_s = c->limit_s > 0 ? c->limit_s : 20;
    g.end_ns = runtime_now_ns() + (uint64_t)(limit_s * 1e9);
    g.order = calloc(c->blocks, sizeof(*g.order));
    g.groups = calloc(MAX_GROUPS, sizeof(*g.groups));
    g.closing = calloc(MAX_GROUPS, sizeof(*g.closing));
    bool good = g.order && g.groups && g.closing ? run(&g) : failed(&g, "no memory", 0);
    close_stack(&g);
    free(g.order);
    free(g.groups);
    free(g.closing);
    return good;
}
