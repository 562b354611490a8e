/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the record that replaces a connection in TIME_WAIT cannot be told from it, by the peer, by
 * bind and connect, or by the administrator, and costs a tenth of its memory. Bound: under 20 s
 * (two minutes with sanitizers). */
#include "base/counter.h"
#include "wire/checksum.h"
#include "world.h"
#include <netinet/tcp.h>

enum how {
    HELD,         /* the descriptor stays open: a tcpcb */
    CLOSED_LATE,  /* closed in TIME_WAIT */
    CLOSED_FIRST, /* closed, then TIME_WAIT */
    HOWS
};

/* The stack closes first: our side is in TIME_WAIT, and its last ACK has been seen. */
static void finish(struct conn *c, enum how how)
{
    if (how == CLOSED_FIRST)
        assert_int_equal(weir_close(c->fd), 0);
    else
        assert_int_equal(weir_shutdown(c->fd, SHUT_RDWR), 0);
    expect_flags(c, TH_FIN | TH_ACK, 50 * MS);
    conn_flags(c, TH_FIN | TH_ACK);
    expect_ack(c, c->snd_nxt);
    if (how == CLOSED_LATE)
        assert_int_equal(weir_close(c->fd), 0);
    sim_settle(w.sim);
    assert_int_equal(world_state(c), TCPS_TIME_WAIT);
    assert_int_equal(world_record(c) != NULL, how != HELD);
}

static void to_timewait(struct conn *c, enum how how)
{
    world_accept(c);
    finish(c, how);
}

static uint64_t pcbcount(void)
{
    char text[32];

    assert_true(owner_try(w.s));
    assert_int_equal(sysctl_get(w.s, "net.inet.tcp.pcbcount", text, sizeof(text)), 0);
    stack_leave(w.s);
    return strtoull(text, NULL, 10);
}

static void count_one(struct socket *so, void *ctx)
{
    ++*(unsigned *)ctx;
}

static unsigned sockets(void)
{
    unsigned n = 0;

    so_foreach(w.s, count_one, &n);
    return n;
}

/* --- when --- */

static void test_life(void **state)
{
    for (enum how how = HELD; how < HOWS; how++) {
        struct conn c;
        to_timewait(&c, how);
        assert_int_equal(sockets(), how == HELD ? 2 : 1);
        assert_int_equal(pcbcount(), 2); /* the listener too */
        assert_int_equal(w.s->tcp->timewait_count, 1);
        uint64_t closed = sim_counter(w.s, "tcp.closed");
        sim_run(w.sim, 59 * NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
        sim_run(w.sim, 2 * NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
        assert_int_equal(sim_counter(w.s, "tcp.closed"), closed + 1);
        assert_int_equal(w.s->tcp->timewait_count, 0);
        assert_false(timer_is_armed(&w.s->tcp->timewaits.timer));
        if (how == HELD)
            weir_close(c.fd);
    }
}

/* 2MSL counts from when it began, however late the descriptor is closed and whoever is in the queue
 * by then. Too many of these: the connection stays what it is. */
static void test_closed_late(void **state)
{
    static const int between[] = {0, 1, 20, 40};

    for (size_t i = 0; i < NELEM(between); i++) {
        struct conn c, other;
        to_timewait(&c, HELD);
        sim_run(w.sim, 20 * NS_PER_S);
        for (int k = 0; k < between[i]; k++)
            to_timewait(&other, CLOSED_FIRST);
        weir_close(c.fd);
        sim_settle(w.sim);
        assert_int_equal(world_record(&c) != NULL, between[i] <= 32);
        sim_run(w.sim, 39 * NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
        sim_run(w.sim, NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
        assert_int_equal(w.s->tcp->timewait_count, between[i]);
        sim_run(w.sim, 21 * NS_PER_S);
        assert_int_equal(w.s->tcp->timewait_count, 0);
    }
}

/* Closing at the same time: TIME_WAIT comes with the ACK of our FIN, and nothing is owed. */
static void test_from_closing(void **state)
{
    struct conn c;

    world_accept(&c);
    weir_close(c.fd);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    struct segment g = seg_at(&c, c.snd_nxt, TH_FIN | TH_ACK, 0);
    g.ack = w.k.th.seq;
    conn_send(&c, &g);
    c.snd_nxt++;
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    assert_int_equal(world_state(&c), TCPS_CLOSING);
    conn_ack(&c);
    assert_non_null(world_record(&c));
    expect_quiet();
}

/* The peer's FIN again and again. case: FUN-037 */
static void test_restart(void **state)
{
    struct conn c, d;

    to_timewait(&c, CLOSED_FIRST);
    sim_run(w.sim, NS_PER_S);
    to_timewait(&d, CLOSED_FIRST);
    for (int i = 0; i < 4; i++) { /* alone in the queue, the first, the last */
        sim_run(w.sim, 40 * NS_PER_S);
        send_at(&c, -1, TH_FIN | TH_ACK, 0);
        expect_ack(&c, c.snd_nxt);
        assert_int_equal(world_state(&d), i == 0 ? TCPS_TIME_WAIT : TCPS_CLOSED);
    }
    sim_run(w.sim, 59 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    sim_run(w.sim, NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

static void in_order(const struct tcptw *tw, void *ctx)
{
    uint64_t *last = ctx;

    assert_true(tw->due_ns >= *last);
    *last = tw->due_ns;
}

/* A changed MSL is for those that come. */
static void test_msl_changes(void **state)
{
    struct conn c, d, e;
    uint64_t last = 0;

    to_timewait(&c, CLOSED_FIRST);
    sim_sysctl(w.s, "net.inet.tcp.msl", "5000");
    to_timewait(&d, CLOSED_FIRST);
    sim_sysctl(w.s, "net.inet.tcp.msl", "50000");
    to_timewait(&e, CLOSED_FIRST);
    sim_run(w.sim, 9 * NS_PER_S);
    assert_int_equal(world_state(&d), TCPS_TIME_WAIT);
    sim_run(w.sim, 2 * NS_PER_S);
    assert_int_equal(world_state(&d), TCPS_CLOSED);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    sim_run(w.sim, 50 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    /* A restart that is due before another: behind it. */
    to_timewait(&c, CLOSED_FIRST);
    sim_sysctl(w.s, "net.inet.tcp.msl", "1000");
    send_at(&e, -1, TH_FIN | TH_ACK, 0);
    expect_ack(&e, e.snd_nxt);
    tcp_timewait_foreach(w.s, in_order, &last);
    sim_run(w.sim, 99 * NS_PER_S);
    assert_int_equal(world_state(&e), TCPS_TIME_WAIT);
    sim_run(w.sim, 2 * NS_PER_S);
    assert_int_equal(w.s->tcp->timewait_count, 0);
}

/* Without memory for a record, or for their table, the connection itself goes on. */
static void test_no_memory(void **state)
{
    for (int fail = 0; fail < 3; fail++) {
        struct conn c;
        to_timewait(&c, HELD);
        sim_fail_alloc_after(w.sim, fail == 2 ? -1 : fail);
        weir_close(c.fd);
        sim_settle(w.sim);
        sim_fail_alloc_after(w.sim, -1);
        assert_int_equal(world_record(&c) != NULL, fail == 2);
        send_at(&c, -1, TH_FIN | TH_ACK, 0);
        expect_ack(&c, c.snd_nxt);
        sim_run(w.sim, 61 * NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
        assert_int_equal(sockets(), 1);
    }
}

/* --- what a peer sees --- */

struct answers {
    unsigned n;
    struct {
        uint64_t when_ns;
        size_t len;
        uint8_t raw[128];
    } a[128];
    uint64_t counters[COUNTER_COUNT];
    uint64_t lived_ns; /* after the last segment */
};

static void take_answers(struct answers *out)
{
    while (peer_next(w.p, &w.k, 0)) {
        assert_true(out->n < NELEM(out->a) && w.k.rawlen <= sizeof(out->a[0].raw));
        out->a[out->n].when_ns = w.k.when_ns;
        out->a[out->n].len = w.k.rawlen;
        memcpy(out->a[out->n++].raw, w.k.raw, w.k.rawlen);
    }
}

/* What differs between the runs, and between the connections within. */
struct scene {
    const char *local, *remote;
    const char *knob;
    bool no_ts, unread;
    bool late_only; /* close does not do what shutdown does, but in TIME_WAIT */
    int ttl, tos, rcvbuf, clamp;
};

static void set_options(const struct scene *sc, int fd)
{
    bool v6 = strchr(sc->local, ':') != NULL;

    if (sc->ttl)
        assert_int_equal(weir_setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                         v6 ? IPV6_UNICAST_HOPS : IP_TTL, &sc->ttl, sizeof(int)),
                         0);
    if (sc->tos)
        assert_int_equal(weir_setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                         v6 ? IPV6_TCLASS : IP_TOS, &sc->tos, sizeof(int)),
                         0);
    if (sc->rcvbuf)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &sc->rcvbuf, sizeof(int)), 0);
    if (sc->clamp)
        assert_int_equal(
            weir_setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &sc->clamp, sizeof(int)), 0);
}

static void send_everything(struct conn *c, struct answers *out)
{
    static const int32_t offset[] = {-100000, -1, 0, 1, 100000};

    for (uint32_t flags = 0; flags < 64; flags++) {
        for (size_t i = 0; i < NELEM(offset); i++) {
            struct segment g =
                seg_at(c, c->snd_nxt + (uint32_t)offset[i], (uint8_t)flags, flags & 8 ? 10 : 0);
            if ((flags & (TH_SYN | TH_ACK | TH_RST)) == TH_SYN && offset[i] > 0)
                continue; /* a new connection's */
            g.ack += flags & TH_URG ? 1000 : 0;
            g.no_ts = (flags & TH_PUSH) && i == 2;
            conn_send(c, &g);
            sim_run(w.sim, 300 * MS);
            if (out->n < NELEM(out->a) - 8)
                take_answers(out);
            else
                peer_drain(w.p);
        }
    }
}

static void play(const struct scene *sc, enum how how, struct answers *out)
{
    struct conn c;

    memset(out, 0, sizeof(*out));
    world_open(sc->local, sc->remote);
    if (sc->knob)
        sim_sysctl(w.s, sc->knob, "1");
    conn_init(&c, w.p, 40000, 80);
    c.ts = !sc->no_ts;
    c.tsval = 1u << 31; /* so that the old SYNs have older ones */
    conn_accept(&c, &w.listener, w.s);
    set_options(sc, c.fd);
    if (sc->unread) {
        conn_data(&c, 1000);
        sim_run(w.sim, 100 * MS);
        peer_drain(w.p);
    }
    finish(&c, how == CLOSED_LATE ? HELD : how);
    c.tsval -= 1000000;
    for (int i = 0; i < 12; i++) { /* more than the limit of challenges */
        send_at(&c, -1000, TH_SYN, 0);
        if (i == 2 && how == CLOSED_LATE) {
            weir_close(c.fd);
            sim_settle(w.sim);
        }
    }
    assert_int_equal(world_record(&c) != NULL, how != HELD);
    take_answers(out);
    send_everything(&c, out);
    send_at(&c, -1, TH_FIN | TH_ACK, 0);
    take_answers(out);
    while (world_state(&c) != TCPS_CLOSED) {
        sim_run(w.sim, 100 * MS);
        out->lived_ns += 100 * MS;
    }
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        if (strcmp(counter_table[i].group, "tcp") == 0)
            out->counters[i] = LOAD_RELAXED(&w.s->counters.v[i]);
    if (how == HELD)
        weir_close(c.fd);
    sim_destroy(w.sim);
}

/* Every kind of segment, in and out of place: the same bytes at the same moments, and the same
 * counts, whether a tcpcb or a record answers. */
static void test_answers(void **state)
{
    static const struct scene t[] = {
        {.local = "192.0.2.1", .remote = "192.0.2.2"},
        {.local = "192.0.2.1", .remote = "192.0.2.2", .no_ts = true},
        {.local = "2001:db8::1", .remote = "2001:db8::2", .ttl = 9, .tos = 0x28},
        {.local = "192.0.2.1", .remote = "192.0.2.2", .ttl = 7, .tos = 0x10, .rcvbuf = 9000},
        {.local = "192.0.2.1",
         .remote = "192.0.2.2",
         .clamp = 3000,
         .unread = true,
         .late_only = true},
        {.local = "192.0.2.1",
         .remote = "192.0.2.2",
         .knob = "net.inet.tcp.freebsd_wire",
         .late_only = true},
        {.local = "192.0.2.1", .remote = "192.0.2.2", .knob = "net.inet.tcp.tolerate_missing_ts"},
    };
    static struct answers held, record;

    for (size_t i = 0; i < NELEM(t); i++) {
        play(&t[i], HELD, &held);
        assert_true(held.n > 50);
        for (enum how how = CLOSED_LATE; how < HOWS; how++) {
            if (t[i].late_only && how == CLOSED_FIRST)
                continue;
            play(&t[i], how, &record);
            assert_int_equal(record.n, held.n);
            for (unsigned k = 0; k < held.n; k++) {
                assert_int_equal(record.a[k].when_ns, held.a[k].when_ns);
                assert_int_equal(record.a[k].len, held.a[k].len);
                assert_memory_equal(record.a[k].raw, held.a[k].raw, held.a[k].len);
            }
            for (size_t k = 0; k < COUNTER_COUNT; k++)
                if (record.counters[k] != held.counters[k])
                    fail_msg("scene %zu: %s", i, counter_table[k].name);
            assert_int_equal(record.lived_ns, held.lived_ns);
        }
    }
}

static void open_world(void)
{
    world_open("192.0.2.1", "192.0.2.2");
}

struct seen {
    unsigned in, out, ends;
};

static void see_segment(void *ctx, struct weir_stack *s, enum hook_direction dir,
                        const struct tcpcb *tp, const struct mbuf *m)
{
    struct seen *seen = ctx;

    if (!tp)
        ++*(dir == HOOK_IN ? &seen->in : &seen->out);
}

static void see_state(void *ctx, struct weir_stack *s, const struct tcpcb *tp, int from, int to)
{
    struct seen *seen = ctx;

    seen->ends += from == TCPS_TIME_WAIT && to == TCPS_CLOSED;
}

/* The instruments see no connection in a record, and a connection's end when it becomes one. */
static void test_hooks(void **state)
{
    struct seen seen = {0};
    struct conn c;

    to_timewait(&c, HELD);
    w.s->hooks = (struct hooks){see_segment, &seen, see_state, &seen};
    send_at(&c, -1, TH_FIN | TH_ACK, 0);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(seen.in + seen.out + seen.ends, 0);
    weir_close(c.fd);
    sim_settle(w.sim);
    assert_int_equal(seen.ends, 1);
    send_at(&c, -1, TH_FIN | TH_ACK, 0);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(seen.in, 1);
    assert_int_equal(seen.out, 1);
    w.s->hooks = (struct hooks){0};
}

static void test_icmp(void **state)
{
    struct conn c;

    to_timewait(&c, CLOSED_FIRST);
    for (uint8_t code = 0; code < 5; code++) {
        uint8_t b[8 + 20 + 8] = {3, code};
        put_be16(b + 6, 600);
        b[8] = 0x45;
        put_be16(b + 10, 60);
        b[16] = 64;
        b[17] = IPPROTO_TCP;
        memcpy(b + 20, peer_local(w.p)->b, 4);
        memcpy(b + 24, peer_remote(w.p)->b, 4);
        put_be16(b + 28, c.dport);
        put_be16(b + 30, c.sport);
        put_be32(b + 32, c.rcv_nxt - 1);
        uint16_t sum = (uint16_t)~checksum_fold(checksum_add(b, sizeof(b), 0));
        memcpy(b + 2, &sum, 2);
        peer_inject_ip(w.p, NULL, IPPROTO_ICMP, b, sizeof(b));
    }
    sim_settle(w.sim);
    assert_int_equal(sim_counter(w.s, "tcp.icmp_ignored"), 5);
    assert_non_null(world_record(&c));
}

/* A SYN that may takes the tuple over; its listener sees it. case: FUN-038 */
static void test_new_connection(void **state)
{
    struct conn c, d;

    to_timewait(&c, CLOSED_FIRST);
    conn_init(&d, w.p, c.sport, 80);
    d.iss = d.snd_nxt = c.snd_nxt + 1000;
    d.tsval = c.tsval + 100000;
    conn_accept(&d, &w.listener, w.s);
    assert_null(world_record(&d));
    assert_int_equal(world_state(&d), TCPS_ESTABLISHED);
    assert_int_equal(sim_counter(w.s, "tcp.timewait_reused"), 1);
    assert_int_equal(w.s->tcp->timewait_count, 0);
    finish(&d, CLOSED_FIRST); /* and again */
}

/* --- what bind and connect see --- */

static int sock(int family, int options, bool v6only)
{
    int fd = weir_socket(w.s, family, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    assert_true(fd >= 0);
    if (options & 1)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    if (options & 2)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
    if (v6only)
        assert_int_equal(weir_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)), 0);
    return fd;
}

static int address_call(int (*call)(int, const struct sockaddr *, socklen_t), int fd,
                        const char *text, uint16_t port)
{
    struct ipaddr a;
    struct sockaddr_storage ss = {0};

    assert_int_equal(ipaddr_parse(text, &a), 0);
    return call(fd, (struct sockaddr *)&ss, peer_sockaddr(&a, port, &ss)) == 0 ? 0 : errno;
}

/* bind to a port that only a connection in TIME_WAIT has, all ways: bits of those refused. */
static uint64_t conflicts(enum how how, int options)
{
    static const struct {
        int family;
        const char *a;
        bool v6only;
    } t[] = {{AF_INET, "0.0.0.0", false},   {AF_INET, "192.0.2.1", false},
             {AF_INET, "127.0.0.1", false}, {AF_INET6, "::", false},
             {AF_INET6, "::", true},        {AF_INET6, "::1", false}};
    struct conn c;
    uint64_t refused = 0;

    open_world();
    w.listener = sock(AF_INET, options, false);
    assert_int_equal(address_call(weir_bind, w.listener, "0.0.0.0", 80), 0);
    assert_int_equal(weir_listen(w.listener, 5), 0);
    to_timewait(&c, how);
    weir_close(w.listener);
    sim_run(w.sim, MS);
    for (unsigned i = 0; i < NELEM(t) * 4; i++) {
        int fd = sock(t[i / 4].family, i % 4, t[i / 4].v6only);
        int error = address_call(weir_bind, fd, t[i / 4].a, 80);
        assert_true(error == 0 || error == EADDRINUSE);
        refused |= (uint64_t)(error != 0) << i;
        weir_close(fd);
        sim_run(w.sim, MS);
    }
    if (how == HELD)
        weir_close(c.fd);
    sim_destroy(w.sim);
    return refused;
}

static void test_bind(void **state)
{
    for (int options = 0; options < 4; options++) {
        uint64_t held = conflicts(HELD, options);
        assert_true(held != 0);
        assert_int_equal(conflicts(CLOSED_LATE, options), held);
        assert_int_equal(conflicts(CLOSED_FIRST, options), held);
    }
}

/* From a bound port: the tuple is not to be had; nor is the port for those that choose one, as the
 * application had chosen it. */
static void test_bound_port(void **state)
{
    for (enum how how = HELD; how < HOWS; how++) {
        struct conn c;
        open_world();
        int a = sock(AF_INET, 1, false), b = sock(AF_INET, 1, false), d = sock(AF_INET, 0, false);
        assert_int_equal(address_call(weir_bind, a, "192.0.2.1", 30000), 0);
        conn_init(&c, w.p, 999, 30000);
        assert_int_equal(address_call(weir_connect, a, "192.0.2.2", 999), EINPROGRESS);
        expect_flags(&c, TH_SYN, MS);
        c.fd = a;
        conn_flags(&c, TH_SYN | TH_ACK);
        expect_ack(&c, c.snd_nxt);
        finish(&c, how);
        sim_run(w.sim, 2 * NS_PER_S);
        assert_int_equal(address_call(weir_bind, b, "192.0.2.1", 30000), 0);
        assert_int_equal(address_call(weir_connect, b, "192.0.2.2", 999), EADDRNOTAVAIL);
        sim_sysctl(w.s, "net.inet.ip.portrange.first", "30000");
        sim_sysctl(w.s, "net.inet.ip.portrange.last", "30000");
        weir_close(b);
        sim_run(w.sim, MS);
        assert_int_equal(address_call(weir_connect, d, "192.0.2.2", 998), EADDRNOTAVAIL);
        if (how == HELD)
            weir_close(a);
        sim_run(w.sim, 61 * NS_PER_S);
        peer_drain(w.p);
        assert_int_equal(address_call(weir_connect, d, "192.0.2.2", 999), EINPROGRESS);
        weir_close(d);
        sim_destroy(w.sim);
    }
}

/* --- what the administrator sees --- */

static void test_limit(void **state)
{
    struct conn c;

    sim_sysctl(w.s, "net.inet.tcp.maxtcptw", "2");
    for (int i = 0; i < 2; i++)
        to_timewait(&c, i ? CLOSED_LATE : CLOSED_FIRST);
    world_accept(&c);
    weir_close(c.fd);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    assert_int_equal(sim_counter(w.s, "tcp.timewait_limit"), 1);
}

static void test_drop(void **state)
{
    struct conn c, d;
    struct flow f = {.lport = 80};

    to_timewait(&c, CLOSED_FIRST);
    to_timewait(&d, CLOSED_FIRST);
    f.laddr = *peer_local(w.p);
    f.faddr = *peer_remote(w.p);
    f.fport = c.sport;
    assert_true(owner_try(w.s));
    struct tcptw *tw = tcp_timewait_lookup(w.s, &f);
    assert_ptr_equal(tw, world_record(&c));
    tcp_timewait_drop(w.s, tw);
    stack_leave(w.s);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    assert_int_equal(world_state(&d), TCPS_TIME_WAIT);
    assert_int_equal(sim_counter(w.s, "tcp.conndrops"), 1);
    send_at(&c, -1, TH_FIN | TH_ACK, 0);
    expect_flags(&c, TH_RST, MS);
    sim_run(w.sim, 61 * NS_PER_S);
    assert_int_equal(w.s->tcp->timewait_count, 0);
}

/* A server that closes a thousand connections a second for a hundred seconds: 60,000 are in
 * TIME_WAIT at a time, cost little, and nothing is left of them in the end. */
static void test_churn(void **state)
{
    enum { N = 100000, EACH = 256 }; /* bytes: record, its place in the table; alignment and all */
    uint32_t most = 0;
    int64_t before = 0, highest = 0;
    struct conn c;

    sim_sysctl(w.s, "net.inet.icmp.icmplim", "0");
    for (int i = 0; i < N + 10; i++) {
        if (i == 10) /* what is made once is there */
            before = sim_bytes(w.sim) - 10 * EACH;
        conn_init(&c, w.p, (uint16_t)(1000 + i % 64000), 80);
        conn_accept(&c, &w.listener, w.s);
        weir_close(c.fd);
        assert_true(conn_next(&c, &w.k, MS));
        conn_flags(&c, TH_FIN | TH_ACK);
        assert_true(conn_next(&c, &w.k, MS));
        sim_run(w.sim, MS);
        most = MAX(most, w.s->tcp->timewait_count);
        highest = MAX(highest, sim_bytes(w.sim));
    }
    assert_in_range(most, 55000, 60001);
    assert_int_equal(w.s->tcp->timewaits.records, w.s->tcp->timewait_count);
    assert_true(highest - before <= (int64_t)most * EACH);
    sim_run(w.sim, 61 * NS_PER_S);
    assert_int_equal(w.s->tcp->timewait_count, 0);
    assert_int_equal(w.s->tcp->timewaits.records, 0);
    assert_int_equal(pcbcount(), 1);
    assert_int_equal(sockets(), 1);
    assert_int_equal(w.s->tcp->port_count, 1);
    assert_false(timer_is_armed(&w.s->tcp->timewaits.timer));
    /* The table keeps its size: 8 bytes for each of the most that there were, rounded up. */
    assert_in_range(sim_bytes(w.sim) - before, 0, 65536 * 8 + 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_life),          WORLD_TEST(test_closed_late),
        WORLD_TEST(test_from_closing),  WORLD_TEST(test_restart),
        WORLD_TEST(test_msl_changes),   WORLD_TEST(test_no_memory),
        cmocka_unit_test(test_answers), WORLD_TEST(test_hooks),
        WORLD_TEST(test_icmp),          WORLD_TEST(test_new_connection),
        cmocka_unit_test(test_bind),    cmocka_unit_test(test_bound_port),
        WORLD_TEST(test_limit),         WORLD_TEST(test_drop),
        WORLD_TEST(test_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
