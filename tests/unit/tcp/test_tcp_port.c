/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: bind refuses what Linux refuses; ephemeral ports are unpredictable between destinations,
 * not reused at once, and found quickly while there are any. Bound: under 20 s. */
#include "world.h"

static int sock(int family, int options)
{
    int fd = weir_socket(w.s, family, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    assert_true(fd >= 0);
    if (options & 1)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    if (options & 2)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
    if (options & 4)
        assert_int_equal(weir_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)), 0);
    return fd;
}

/* 0, or errno. text NULL: the wildcard. */
static int bind_to(int fd, const char *text, uint16_t port)
{
    struct ipaddr a;
    struct sockaddr_storage ss = {0};
    socklen_t len;

    if (text && strncmp(text, "::ffff:", 7) == 0) {
        struct sockaddr_in6 *s6 = (void *)&ss;
        assert_int_equal(ipaddr_parse(text + 7, &a), 0);
        len = ipaddr_to_sockaddr(&a, port, AF_INET6, &ss);
        assert_int_equal(s6->sin6_family, AF_INET6);
    } else {
        assert_int_equal(ipaddr_parse(text, &a), 0);
        len = peer_sockaddr(&a, port, &ss);
    }
    return weir_bind(fd, (struct sockaddr *)&ss, len) == 0 ? 0 : errno;
}

static uint16_t local_port(int fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);

    assert_int_equal(weir_getsockname(fd, (struct sockaddr *)&ss, &len), 0);
    return ntohs(((struct sockaddr_in *)&ss)->sin_port); /* the same place in both families */
}

/* A port that the stack chose is free again when the listener or connection is over, one that the
 * application chose is not. */
static void test_chosen_port_goes_with_its_use(void **state)
{
    for (int chosen = 0; chosen < 2; chosen++) {
        int fd = sock(AF_INET, 0), other = sock(AF_INET, 0);
        assert_int_equal(bind_to(fd, "192.0.2.1", chosen ? 0 : 7000), 0);
        assert_int_equal(weir_listen(fd, 1), 0);
        uint16_t port = local_port(fd);
        assert_int_equal(bind_to(other, "192.0.2.1", port), EADDRINUSE);
        assert_int_equal(weir_shutdown(fd, SHUT_RD), 0);
        assert_int_equal(bind_to(other, "192.0.2.1", port), chosen ? 0 : EADDRINUSE);
        assert_int_equal(weir_listen(fd, 1), 0); /* another one, where it was lost */
        assert_int_equal(local_port(fd) == port, !chosen);
        weir_close(fd);
        weir_close(other);
        sim_run(w.sim, MS);
    }
}

static void test_conflicts(void **state)
{
    static const struct {
        int fam1, opt1;
        const char *a1;
        int fam2, opt2;
        const char *a2;
        int error;
    } t[] = {
        {AF_INET, 0, "0.0.0.0", AF_INET, 0, "0.0.0.0", EADDRINUSE},
        {AF_INET, 1, "0.0.0.0", AF_INET, 0, "0.0.0.0", EADDRINUSE},
        {AF_INET, 1, "0.0.0.0", AF_INET, 1, "0.0.0.0", 0},
        {AF_INET, 2, "0.0.0.0", AF_INET, 2, "0.0.0.0", 0},
        {AF_INET, 2, "0.0.0.0", AF_INET, 1, "0.0.0.0", EADDRINUSE},
        {AF_INET, 0, "192.0.2.1", AF_INET, 0, "127.0.0.1", 0},
        {AF_INET, 0, "192.0.2.1", AF_INET, 0, "0.0.0.0", EADDRINUSE},
        {AF_INET, 0, "0.0.0.0", AF_INET, 0, "192.0.2.1", EADDRINUSE},
        {AF_INET6, 0, "::", AF_INET, 0, "0.0.0.0", EADDRINUSE},
        {AF_INET6, 0, "::", AF_INET, 0, "192.0.2.1", EADDRINUSE},
        {AF_INET, 0, "192.0.2.1", AF_INET6, 0, "::", EADDRINUSE},
        {AF_INET6, 4, "::", AF_INET, 0, "0.0.0.0", 0},
        {AF_INET, 0, "0.0.0.0", AF_INET6, 4, "::", 0},
        {AF_INET6, 0, "::1", AF_INET, 0, "0.0.0.0", 0},
        {AF_INET6, 0, "::1", AF_INET6, 0, "::", EADDRINUSE},
        {AF_INET6, 0, "::ffff:192.0.2.1", AF_INET, 0, "192.0.2.1", EADDRINUSE},
        {AF_INET6, 0, "::ffff:192.0.2.1", AF_INET6, 4, "::", 0},
        {AF_INET, 0, "203.0.113.9", AF_INET, 0, "192.0.2.1", EADDRNOTAVAIL},
    };

    for (size_t i = 0; i < NELEM(t); i++) {
        int a = sock(t[i].fam1, t[i].opt1), b = sock(t[i].fam2, t[i].opt2);
        if (t[i].error == EADDRNOTAVAIL) {
            assert_int_equal(bind_to(a, t[i].a1, 7000), EADDRNOTAVAIL);
        } else {
            assert_int_equal(bind_to(a, t[i].a1, 7000), 0);
            int error = bind_to(b, t[i].a2, 7000);
            if (error != t[i].error)
                fail_msg("row %zu: %s", i, strerror(error));
        }
        weir_close(a);
        weir_close(b);
        sim_run(w.sim, MS);
    }
}

/* SO_REUSEADDR shares a bound port, but not with a listener; the second listen is refused. */
static void test_listeners(void **state)
{
    int a = sock(AF_INET, 1), b = sock(AF_INET, 1), c = sock(AF_INET, 1), d = sock(AF_INET, 0);

    assert_int_equal(bind_to(a, "0.0.0.0", 7000), 0);
    assert_int_equal(bind_to(b, "0.0.0.0", 7000), 0);
    assert_int_equal(weir_listen(a, 5), 0);
    assert_int_equal(weir_listen(a, 10), 0); /* again: the backlog changes */
    assert_int_equal(bind_to(c, "0.0.0.0", 7000), EADDRINUSE);
    assert_int_equal(weir_listen(b, 5), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(weir_listen(d, 5), 0); /* unbound: a port of its own */
    assert_in_range(local_port(d), 10000, 65535);
    weir_close(a);
    sim_run(w.sim, MS);
    assert_int_equal(weir_listen(b, 5), 0);
    /* Connections of a listener that is gone do not keep the port from it with SO_REUSEADDR, as on
     * Linux. */
    struct conn k;
    world_accept(&k);
    weir_close(w.listener);
    sim_run(w.sim, MS);
    int e = sock(AF_INET, 0), f = sock(AF_INET, 1);
    assert_int_equal(bind_to(e, "0.0.0.0", 80), EADDRINUSE);
    assert_int_equal(bind_to(f, "0.0.0.0", 80), 0);
    assert_int_equal(weir_listen(f, 5), 0);
}

/* A group of listeners takes turns by flow, and an ACK meets the listener of its SYN. */
static void test_reuseport_group(void **state)
{
    enum { N = 4, CONNS = 200 };
    int fd[N];
    unsigned got[N] = {0}, sum = 0;

    for (int i = 0; i < N; i++) {
        fd[i] = sock(AF_INET, 2);
        assert_int_equal(bind_to(fd[i], "192.0.2.1", 7000), 0);
        assert_int_equal(weir_listen(fd[i], 4096), 0);
    }
    for (int i = 0; i < CONNS; i++) {
        struct conn c;
        conn_init(&c, w.p, (uint16_t)(2000 + i), 7000);
        conn_flags(&c, TH_SYN);
        expect_flags(&c, TH_SYN | TH_ACK, MS);
        conn_ack(&c);
    }
    for (int i = 0; i < N; i++) {
        while (weir_accept(fd[i], NULL, NULL) >= 0)
            got[i]++;
        sum += got[i];
        assert_in_range(got[i], CONNS / N / 3, CONNS / N * 2);
    }
    assert_int_equal(sum, CONNS);
}

/* A member of a group that goes takes what waits in its own queue with it, and nothing of the
 * others: neither their waiting connections nor the accepted ones; new ones meet who is left. Its
 * events come with the handshake. case: FUN-068 */
static void test_reuseport_member_goes(void **state)
{
    enum { N = 4, CONNS = 40 };
    static struct conn c[2 * CONNS];
    bool reset[CONNS] = {false};
    uint32_t of[2 * CONNS];
    int fd[N], set = weir_epoll_create(0);

    for (uint32_t i = 0; i < N; i++) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
        fd[i] = sock(AF_INET, 2);
        assert_int_equal(bind_to(fd[i], "192.0.2.1", 7000), 0);
        assert_int_equal(weir_listen(fd[i], 4096), 0);
        assert_int_equal(weir_epoll_ctl(set, EPOLL_CTL_ADD, fd[i], &e), 0);
    }
    for (int i = 0; i < 2 * CONNS; i++) {
        struct epoll_event e[N];
        if (i == CONNS) { /* the first member goes; it has accepted one of its connections */
            c[0].fd = weir_accept(fd[of[0]], NULL, NULL);
            assert_true(c[0].fd >= 0);
            weir_close(fd[of[0]]);
            sim_run(w.sim, MS);
            while (peer_next(w.p, &w.k, 0)) {
                assert_true(w.k.th.flags & TH_RST);
                reset[w.k.th.dport - 2000] = true;
            }
        }
        conn_init(&c[i], w.p, (uint16_t)(2000 + i), 7000);
        conn_flags(&c[i], TH_SYN);
        expect_flags(&c[i], TH_SYN | TH_ACK, MS);
        conn_ack(&c[i]);
        assert_int_equal(weir_epoll_wait(set, e, N, 0), 1); /* the clock stands still */
        of[i] = e[0].data.u32;
        assert_true(i < CONNS || of[i] != of[0]);
    }
    for (int i = 0; i < CONNS; i++) {
        assert_int_equal(reset[i], i > 0 && of[i] == of[0]);
        assert_int_equal(world_state(&c[i]), reset[i] ? TCPS_CLOSED : TCPS_ESTABLISHED);
    }
    weir_close(c[0].fd);
    weir_close(set);
}

static void test_bind_ephemeral(void **state)
{
    int a = sock(AF_INET, 0), b = sock(AF_INET, 0), c = sock(AF_INET, 0);

    sim_sysctl(w.s, "net.inet.ip.portrange.first", "20000");
    sim_sysctl(w.s, "net.inet.ip.portrange.last", "20001");
    assert_int_equal(bind_to(a, "0.0.0.0", 0), 0);
    assert_int_equal(bind_to(b, "0.0.0.0", 0), 0);
    assert_int_not_equal(local_port(a), local_port(b));
    assert_int_equal(bind_to(c, "0.0.0.0", 0), EADDRINUSE);
    assert_int_equal(bind_to(a, "0.0.0.0", 9), EINVAL); /* bound already */
    sim_sysctl(w.s, "net.inet.ip.portrange.reservedhigh", "1023");
    assert_int_equal(bind_to(c, "0.0.0.0", 80), EACCES);
}

static int connect_to(int fd, uint32_t addr, uint16_t port)
{
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(addr)};

    return weir_connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1 ? errno : 0;
}

/* case: SEC-026 */
static void test_choice(void **state)
{
    enum { N = 400 };
    static uint16_t one[N], many[N];
    int fd[N];

    /* One destination: all different, and the port just closed does not come back at once. */
    for (int i = 0; i < N; i++) {
        fd[i] = sock(AF_INET, 0);
        assert_int_equal(connect_to(fd[i], 0xc6336401, 80), EINPROGRESS);
        one[i] = local_port(fd[i]);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(one[i], one[j]);
        weir_close(fd[i]);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    /* Many destinations: no sequence shows from one to the next, and a port may serve several. */
    unsigned close_by = 0, near_one = 0;
    for (int i = 0; i < N; i++) {
        fd[i] = sock(AF_INET, 0);
        assert_int_equal(connect_to(fd[i], 0xc6336402u + (uint32_t)i, 80), EINPROGRESS);
        many[i] = local_port(fd[i]);
        if (i > 0)
            close_by += abs((int)many[i] - (int)many[i - 1]) < 32;
        near_one += abs((int)many[i] - (int)one[N - 1]) < 32;
        peer_drain(w.p);
    }
    assert_true(close_by < 10);
    assert_true(near_one < 10);
    for (int i = 0; i < N; i++)
        weir_close(fd[i]);
    /* Another host chooses otherwise. */
    struct weir_stack *other = sim_stack(w.sim, "other");
    struct peer *p = peer_create(w.sim, other, "192.0.2.1", "192.0.2.2", 0);
    unsigned same = 0;
    for (int i = 0; i < 50; i++) {
        int f = weir_socket(other, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(connect_to(f, 0xc6336402u + (uint32_t)i, 80), EINPROGRESS);
        same += local_port(f) == many[i];
        weir_close(f);
        peer_drain(p);
    }
    assert_true(same < 3);
}

/* 90 % full: few ports are looked at; full: EADDRNOTAVAIL; another destination: all are free.
 * case: SEC-026 */
static void test_nearly_full(void **state)
{
    enum { RANGE = 2000, LATE = 50 };
    static int fd[RANGE];
    uint64_t tries = 0;

    sim_sysctl(w.s, "net.inet.ip.portrange.first", "30000");
    sim_sysctl(w.s, "net.inet.ip.portrange.last", "31999");
    for (int i = 0; i < RANGE; i++) {
        if (i == RANGE * 9 / 10)
            tries = sim_counter(w.s, "tcp.port_tries");
        fd[i] = sock(AF_INET, 0);
        assert_int_equal(connect_to(fd[i], 0xc6336401, 80), EINPROGRESS);
        if (i == RANGE * 9 / 10 + LATE - 1) /* each costs two look-ups in hash tables */
            assert_in_range(sim_counter(w.s, "tcp.port_tries") - tries, LATE, LATE * 100);
    }
    int full = sock(AF_INET, 0);
    assert_int_equal(connect_to(full, 0xc6336401, 80), EADDRNOTAVAIL);
    assert_int_equal(sim_counter(w.s, "tcp.ports_exhausted"), 1);
    assert_int_equal(connect_to(full, 0xc6336402, 80), EINPROGRESS);
    weir_close(fd[77]);
    sim_run(w.sim, MS);
    int again = sock(AF_INET, 0);
    assert_int_equal(connect_to(again, 0xc6336401, 80), EINPROGRESS);
    for (int i = 0; i < RANGE; i++) {
        if (i != 77)
            weir_close(fd[i]);
    }
}

/* A connection that the stack opened and closed first: its side is in TIME_WAIT. The descriptor
 * stays open when `keep`. */
static void to_timewait(struct conn *c, bool timestamps, bool keep)
{
    conn_init(c, w.p, 80, 0);
    c->ts = timestamps;
    conn_connect(c, w.s);
    peer_drain(w.p);
    if (keep)
        assert_int_equal(weir_shutdown(c->fd, SHUT_RDWR), 0);
    else
        weir_close(c->fd);
    expect_flags(c, TH_FIN | TH_ACK, 50 * MS);
    conn_flags(c, TH_FIN | TH_ACK);
    expect_ack(c, c->snd_nxt);
    assert_int_equal(world_state(c), TCPS_TIME_WAIT);
}

/* The only port of the range is in TIME_WAIT: a connect to the same peer gets it after a second, if
 * timestamps tell the two connections apart (RFC 6191) and nobody holds the old one. */
static void test_timewait_is_taken_over(void **state)
{
    static const struct {
        bool timestamps, keep;
        uint64_t after_ms;
        int error;
    } t[] = {{true, false, 900, EADDRNOTAVAIL},
             {true, false, 1100, EINPROGRESS},
             {false, false, 1100, EADDRNOTAVAIL},
             {true, true, 1100, EADDRNOTAVAIL}};

    sim_sysctl(w.s, "net.inet.ip.portrange.first", "30000");
    sim_sysctl(w.s, "net.inet.ip.portrange.last", "30000");
    for (size_t i = 0; i < NELEM(t); i++) {
        struct conn c, d;
        to_timewait(&c, t[i].timestamps, t[i].keep);
        uint64_t taken = sim_counter(w.s, "tcp.timewait_recycled");
        sim_run(w.sim, t[i].after_ms * MS);
        int fd = sock(AF_INET, 0), error = connect_to(fd, 0xc0000202, 80);
        if (error != t[i].error)
            fail_msg("row %zu: %s", i, strerror(error));
        assert_int_equal(sim_counter(w.s, "tcp.timewait_recycled") - taken, error == EINPROGRESS);
        if (error == EINPROGRESS) { /* it works, and its numbers are above the old ones */
            conn_init(&d, w.p, 80, 30000);
            d.iss = d.snd_nxt = 5000;
            assert_true(conn_next(&d, &w.k, MS));
            assert_int_equal(w.k.th.flags, TH_SYN);
            assert_true(SEQ_GT(w.k.th.seq, c.rcv_nxt));
            assert_true(SEQ_GT(w.k.to.tsval, c.tsecr));
            conn_flags(&d, TH_SYN | TH_ACK);
            expect_ack(&d, d.snd_nxt);
            assert_int_equal(world_state(&d), TCPS_ESTABLISHED);
            conn_flags(&d, TH_RST);
        }
        weir_close(fd);
        if (t[i].keep)
            weir_close(c.fd);
        sim_run(w.sim, 100 * NS_PER_S); /* TIME_WAIT is over */
        peer_drain(w.p);
    }
}

/* The same tuple twice, from a bound socket. */
static void test_bound_connect(void **state)
{
    int a = sock(AF_INET, 1), b = sock(AF_INET, 1);

    assert_int_equal(bind_to(a, "192.0.2.1", 7000), 0);
    assert_int_equal(bind_to(b, "192.0.2.1", 7000), 0);
    assert_int_equal(connect_to(a, 0xc6336401, 80), EINPROGRESS);
    assert_int_equal(connect_to(b, 0xc6336401, 80), EADDRNOTAVAIL);
    assert_int_equal(connect_to(b, 0xc6336401, 81), EINPROGRESS);
    assert_int_equal(local_port(b), 7000);
}

/* Initial sequence numbers and timestamp offsets of different tuples have nothing in common; those
 * of one tuple rise. case: SEC-025 */
static void test_iss(void **state)
{
    struct flow f = {0};
    uint32_t last_iss = 0, last_ts = 0;
    unsigned near_iss = 0, near_ts = 0;

    assert_int_equal(ipaddr_parse("192.0.2.1", &f.laddr), 0);
    assert_int_equal(ipaddr_parse("192.0.2.2", &f.faddr), 0);
    assert_true(owner_try(w.s));
    for (uint16_t port = 1; port < 20000; port++) {
        f.fport = port;
        uint32_t iss = tcp_iss(w.s, &f), ts = tcp_ts_offset(w.s, &f);
        near_iss += iss - last_iss + (1u << 20) < 1u << 21;
        near_ts += ts - last_ts + (1u << 20) < 1u << 21;
        last_iss = iss;
        last_ts = ts;
    }
    assert_true(near_iss < 40 && near_ts < 40);
    uint32_t now = tcp_iss(w.s, &f);
    w.s->now += NS_PER_S;
    assert_true(SEQ_GT(tcp_iss(w.s, &f), now));
    w.s->now -= NS_PER_S;
    assert_int_equal(tcp_ts_offset(w.s, &f), last_ts);
    stack_leave(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_chosen_port_goes_with_its_use),
        WORLD_TEST(test_conflicts),
        WORLD_TEST(test_listeners),
        WORLD_TEST(test_reuseport_group),
        WORLD_TEST(test_bind_ephemeral),
        WORLD_TEST(test_choice),
        WORLD_TEST(test_nearly_full),
        WORLD_TEST(test_bound_connect),
        WORLD_TEST(test_iss),
        WORLD_TEST(test_timewait_is_taken_over),
        WORLD_TEST(test_reuseport_member_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
