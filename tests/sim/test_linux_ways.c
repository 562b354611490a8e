/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what Linux does over time and POSIX leaves open: a lingering close waits for the FIN's
 * acknowledgment, TCP_DEFER_ACCEPT for data. Bound: a minute of virtual time a test. */
#include "../unit/tcp/world.h"

#include <netinet/tcp.h>
#include <poll.h>

/* --- SO_LINGER --- */

static void set_linger(int fd, int seconds)
{
    struct linger lg = {1, seconds};

    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)), 0);
}

static uint64_t timed_close(int fd)
{
    uint64_t before = sim_now(w.sim);

    assert_int_equal(weir_close(fd), 0);
    return sim_now(w.sim) - before;
}

/* Nobody answers: the time is waited for, with data or without. */
static void close_lingers_to_the_end_of_its_time(void **state)
{
    for (int len = 0; len < 2; len++) {
        struct conn c;
        conn_init(&c, w.p, (uint16_t)(40000 + len), 80);
        conn_accept(&c, &w.listener, w.s);
        set_linger(c.fd, 3);
        assert_int_equal(weir_send(c.fd, "x", (size_t)len, 0), len);
        assert_in_range(timed_close(c.fd), 3 * NS_PER_S, 3 * NS_PER_S + NS_PER_MS);
        peer_drain(w.p);
    }
}

/* Data acknowledged, the FIN not: that is not the end yet. */
static void close_lingers_for_the_fin(void **state)
{
    struct conn c;

    conn_init(&c, w.p, 40000, 80);
    conn_accept(&c, &w.listener, w.s);
    set_linger(c.fd, 3);
    assert_int_equal(weir_send(c.fd, "abc", 3, 0), 3);
    assert_true(conn_next(&c, &w.k, NS_PER_S));
    conn_ack(&c);
    sim_run(w.sim, NS_PER_MS);
    assert_in_range(timed_close(c.fd), 3 * NS_PER_S, 3 * NS_PER_S + NS_PER_MS);
}

/* A reset, and a FIN that was acknowledged before, leave nothing to wait for. */
static void close_does_not_linger_for_nothing(void **state)
{
    struct conn c;

    conn_init(&c, w.p, 40000, 80);
    conn_accept(&c, &w.listener, w.s);
    set_linger(c.fd, 3);
    assert_int_equal(weir_shutdown(c.fd, SHUT_WR), 0);
    assert_true(conn_next(&c, &w.k, NS_PER_S));
    conn_ack(&c);
    sim_run(w.sim, NS_PER_MS);
    assert_int_equal(timed_close(c.fd), 0);

    conn_init(&c, w.p, 40001, 80);
    conn_accept(&c, &w.listener, w.s);
    set_linger(c.fd, 3);
    conn_flags(&c, TH_RST);
    sim_run(w.sim, NS_PER_MS);
    assert_int_equal(timed_close(c.fd), 0);
}

/* Between two stacks 20 ms apart it takes a round trip; whoever closes first. */
static void close_lingers_for_a_round_trip(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = __builtin_bswap16(5001),
                             .sin_addr.s_addr = __builtin_bswap32(0x0a000002)};
    struct weir_stack *a = sim_stack(w.sim, "a"), *b = sim_stack(w.sim, "b");

    sim_join(w.sim, a, b, "delay=10ms");
    int l = weir_socket(b, AF_INET, SOCK_STREAM, 0), fa = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(l, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(weir_listen(l, 5), 0);
    assert_int_equal(weir_connect(fa, (struct sockaddr *)&to, sizeof(to)), 0);
    int fb = weir_accept(l, NULL, NULL);
    set_linger(fa, 5);
    set_linger(fb, 5);
    /* The bare FIN is acknowledged at once or a delayed acknowledgment later. */
    assert_in_range(timed_close(fa), 20 * NS_PER_MS, 80 * NS_PER_MS);
    assert_in_range(timed_close(fb), 20 * NS_PER_MS, 80 * NS_PER_MS);
    weir_close(l);
    sim_run(w.sim, 120 * NS_PER_S);
}

/* --- TCP_DEFER_ACCEPT --- */

static int deferring_listener(uint16_t port, int seconds)
{
    struct sockaddr_storage ss;
    socklen_t len = peer_sockaddr(peer_local(w.p), port, &ss);
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_int_equal(weir_bind(fd, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(weir_listen(fd, 5), 0);
    assert_int_equal(weir_setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)),
                     0);
    return fd;
}

static void handshake(struct conn *c, uint16_t sport, uint16_t dport)
{
    conn_init(c, w.p, sport, dport);
    conn_flags(c, TH_SYN);
    assert_true(conn_next(c, &w.k, NS_PER_S));
    assert_int_equal(w.k.th.flags, TH_SYN | TH_ACK);
    conn_ack(c);
    sim_run(w.sim, NS_PER_MS);
}

static bool acceptable(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return weir_poll(&pfd, 1, 0) == 1;
}

static void accept_waits_for_data(void **state)
{
    struct tcp_info ti;
    socklen_t len = sizeof(ti);
    struct conn c;
    char buf[10];
    int fd = deferring_listener(80, 10), v = -1;

    handshake(&c, 40000, 80);
    conn_ack(&c);
    sim_run(w.sim, 300 * NS_PER_MS);
    assert_false(acceptable(fd));
    assert_int_equal(weir_accept(fd, NULL, NULL), -1);
    assert_true(peer_quiet(w.p, 300 * NS_PER_MS));
    assert_int_equal(sim_counter(w.s, "tcp.defer_accept_acks"), 2);
    conn_data(&c, 7);
    sim_run(w.sim, NS_PER_MS);
    assert_true(acceptable(fd));
    int a = weir_accept(fd, NULL, NULL);
    assert_int_equal(weir_recv(a, buf, sizeof(buf), 0), 7);
    /* The round trip ended with the first ACK. */
    assert_int_equal(weir_getsockopt(a, IPPROTO_TCP, TCP_INFO, &ti, &len), 0);
    assert_in_range(ti.tcpi_rtt, 0, 100000);
    len = sizeof(v);
    assert_int_equal(weir_getsockopt(a, IPPROTO_TCP, TCP_DEFER_ACCEPT, &v, &len), 0);
    assert_int_equal(v, 0);
    weir_close(a);
}

/* An end without data is something to tell, a reset is not. */
static void accept_hears_of_a_fin(void **state)
{
    struct conn c;
    char buf[10];
    int fd = deferring_listener(80, 10);

    handshake(&c, 40000, 80);
    conn_flags(&c, TH_FIN | TH_ACK);
    sim_run(w.sim, NS_PER_MS);
    int a = weir_accept(fd, NULL, NULL);
    assert_true(a >= 0);
    assert_int_equal(weir_recv(a, buf, sizeof(buf), 0), 0);
    weir_close(a);
    handshake(&c, 40001, 80);
    conn_flags(&c, TH_RST);
    sim_run(w.sim, NS_PER_MS);
    assert_false(acceptable(fd));
    conn_data(&c, 7); /* and it is forgotten */
    assert_true(conn_next(&c, &w.k, NS_PER_S));
}

/* 3 s are two timeouts: silence after the first, a SYN-ACK after the second, which the peer's ACK
 * then answers for good. */
static void deferral_ends(void **state)
{
    struct conn c;
    int fd = deferring_listener(80, 3);

    handshake(&c, 40000, 80);
    uint64_t begin = sim_now(w.sim);
    do
        assert_true(conn_next(&c, &w.k, 5 * NS_PER_S));
    while (w.k.th.dport != c.sport);
    assert_int_equal(w.k.th.flags, TH_SYN | TH_ACK);
    assert_in_range(w.k.when_ns - begin, 3 * NS_PER_S, 3500 * NS_PER_MS);
    assert_false(acceptable(fd));
    conn_ack(&c);
    sim_run(w.sim, NS_PER_MS);
    assert_true(acceptable(fd));
    int a = weir_accept(fd, NULL, NULL);
    assert_int_equal(weir_send(a, "hello", 5, 0), 5);
    assert_true(conn_next(&c, &w.k, NS_PER_S));
    assert_int_equal(w.k.len, 5);
    weir_close(a);
}

/* A peer that vanished meanwhile leaves nothing. */
static void deferral_ends_without_a_peer(void **state)
{
    static const int seconds[] = {1, 3, 40};

    for (size_t i = 0; i < NELEM(seconds); i++) {
        struct conn c;
        int fd = deferring_listener((uint16_t)(80 + i), seconds[i]), last = 0;
        char text[32];
        handshake(&c, 40000, (uint16_t)(80 + i));
        uint64_t begin = sim_now(w.sim);
        while (conn_next(&c, &w.k, 100 * NS_PER_S)) {
            assert_int_equal(w.k.th.flags, TH_SYN | TH_ACK);
            assert_true(w.k.when_ns - begin >= (uint64_t)seconds[i] * NS_PER_S - NS_PER_S / 10);
            last++;
        }
        assert_in_range(last, 1, 3);
        sim_run(w.sim, 200 * NS_PER_S);
        assert_true(owner_try(w.s));
        assert_int_equal(sysctl_get(w.s, "net.inet.tcp.syncache.count", text, sizeof(text)), 0);
        stack_leave(w.s);
        assert_string_equal(text, "0");
        weir_close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(close_lingers_to_the_end_of_its_time),
        WORLD_TEST(close_lingers_for_the_fin),
        WORLD_TEST(close_does_not_linger_for_nothing),
        WORLD_TEST(close_lingers_for_a_round_trip),
        WORLD_TEST(accept_waits_for_data),
        WORLD_TEST(accept_hears_of_a_fin),
        WORLD_TEST(deferral_ends),
        WORLD_TEST(deferral_ends_without_a_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
