/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the options of TCP have Linux's ranges, errors and values, hold for accepted sockets and
 * over a failed connect; TCP_INFO has Linux's layout. Bound: under 2 s. */
#include "sender.h"

enum {
    MAXSEG = 2,
    KEEPIDLE = 4,
    KEEPINTVL,
    KEEPCNT,
    SYNCNT,
    LINGER2,
    DEFER_ACCEPT,
    WINDOW_CLAMP,
    INFO,
    QUICKACK,
    CONGESTION,
    USER_TIMEOUT = 18,
    FASTOPEN = 23,
    TIMESTAMP = 24,
    NOTSENT_LOWAT = 25,
    FASTOPEN_CONNECT = 30,
};

static int set_raw(int fd, int name, const void *v, socklen_t len)
{
    return weir_setsockopt(fd, IPPROTO_TCP, name, v, len) ? -errno : 0;
}

static int set(int fd, int name, int v)
{
    return set_raw(fd, name, &v, sizeof(v));
}

static int get(int fd, int name)
{
    int v = -12345;
    socklen_t len = sizeof(v);
    if (weir_getsockopt(fd, IPPROTO_TCP, name, &v, &len))
        return -errno;
    assert_int_equal(len, sizeof(v));
    return v;
}

static void test_ranges(void **state)
{
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM, 0);
    static const struct {
        int name, bad_low, low, high, bad_high;
    } t[] = {{KEEPIDLE, 0, 1, 32767, 32768},
             {KEEPINTVL, 0, 1, 32767, 32768},
             {KEEPCNT, 0, 1, 127, 128},
             {SYNCNT, 0, 1, 127, 128},
             {MAXSEG, 87, 88, 32767, 32768}};
    for (unsigned i = 0; i < NELEM(t); i++) {
        assert_int_equal(set(fd, t[i].name, t[i].bad_low), -EINVAL);
        assert_int_equal(set(fd, t[i].name, t[i].bad_high), -EINVAL);
        assert_int_equal(set(fd, t[i].name, -1), -EINVAL);
        assert_int_equal(set(fd, t[i].name, t[i].low), 0);
        assert_int_equal(get(fd, t[i].name), t[i].low);
        assert_int_equal(set(fd, t[i].name, t[i].high), 0);
        assert_int_equal(get(fd, t[i].name), t[i].high);
    }
    short small = 1;
    assert_int_equal(set_raw(fd, OPT_NODELAY, &small, sizeof(small)), -EINVAL);
    assert_int_equal(set(fd, USER_TIMEOUT, -1), -EINVAL);
    assert_int_equal(set(fd, 999, 1), -ENOPROTOOPT);
    assert_int_equal(get(fd, 999), -ENOPROTOOPT);
    assert_int_equal(set(fd, INFO, 1), -ENOPROTOOPT);
    assert_int_equal(set(fd, FASTOPEN, 1), -EOPNOTSUPP);
    assert_int_equal(set(fd, FASTOPEN_CONNECT, 1), -EOPNOTSUPP);
    assert_int_equal(set(fd, TIMESTAMP, 1), -EPERM);
    assert_int_equal(set(fd, LINGER2, -5), 0);
    assert_int_equal(get(fd, LINGER2), -1);
    assert_int_equal(set(fd, LINGER2, 3600), 0);
    assert_int_equal(get(fd, LINGER2), 120);
    assert_int_equal(set(fd, LINGER2, 0), 0);
    assert_int_equal(get(fd, LINGER2), 60);
    assert_int_equal(set(fd, DEFER_ACCEPT, 5), 0);
    assert_int_equal(get(fd, DEFER_ACCEPT), 7);
    assert_int_equal(get(fd, QUICKACK), 1);
    assert_int_equal(set(fd, QUICKACK, 0), 0);
    assert_int_equal(get(fd, QUICKACK), 0);
    assert_int_equal(set(fd, NOTSENT_LOWAT, 4096), 0);
    assert_int_equal(get(fd, NOTSENT_LOWAT), 4096);
    weir_close(fd);
}

static void test_congestion(void **state)
{
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM, 0);
    char name[32] = {0};
    socklen_t len = sizeof(name);
    assert_int_equal(weir_getsockopt(fd, IPPROTO_TCP, CONGESTION, name, &len), 0);
    assert_int_equal(len, 16);
    assert_string_equal(name, "cubic");
    assert_int_equal(set_raw(fd, CONGESTION, "newreno", 7), 0);
    len = 4;
    memset(name, 0, sizeof(name));
    assert_int_equal(weir_getsockopt(fd, IPPROTO_TCP, CONGESTION, name, &len), 0);
    assert_int_equal(len, 4);
    assert_string_equal(name, "newr");
    assert_int_equal(set_raw(fd, CONGESTION, "vegas", 5), -ENOENT);
    assert_int_equal(set_raw(fd, CONGESTION, "", 0), -EINVAL);
    assert_int_equal(set_raw(fd, CONGESTION, "reno\0x", 6), 0);
    weir_close(fd);
}

static void test_inherited(void **state)
{
    struct conn first;
    world_accept(&first);
    assert_int_equal(set(w.listener, OPT_NODELAY, 1), 0);
    assert_int_equal(set(w.listener, KEEPIDLE, 77), 0);
    assert_int_equal(set_raw(w.listener, CONGESTION, "newreno", 7), 0);
    sender_plain();
    assert_int_equal(get(cn.fd, OPT_NODELAY), 1);
    assert_int_equal(get(cn.fd, KEEPIDLE), 77);
    assert_int_equal(get(first.fd, OPT_NODELAY), 0);
    char name[16];
    socklen_t len = sizeof(name);
    assert_int_equal(weir_getsockopt(cn.fd, IPPROTO_TCP, CONGESTION, name, &len), 0);
    assert_string_equal(name, "newreno");
    weir_close(first.fd);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-143 */
static void test_kept_over_a_failed_connect(void **state)
{
    struct sockaddr_storage ss;
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, size = 50000;
    assert_int_equal(set(fd, OPT_NODELAY, 1), 0);
    assert_int_equal(set(fd, KEEPIDLE, 33), 0);
    weir_setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    weir_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    int sndbuf, after;
    socklen_t len = sizeof(int);
    weir_getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, &len);
    for (int i = 0; i < 3; i++) {
        struct conn c;
        conn_init(&c, w.p, w.next_port++, 0);
        socklen_t sl = peer_sockaddr(peer_remote(w.p), c.sport, &ss);
        assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
        assert_int_equal(errno, EINPROGRESS);
        expect_flags(&c, TH_SYN, 0);
        c.dport = w.k.th.sport;
        conn_send(
            &c, &(struct segment){.seq = 0, .ack = c.rcv_nxt, .flags = TH_RST | TH_ACK, .win = 0});
        assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
        assert_int_equal(errno, ECONNREFUSED);
        assert_int_equal(get(fd, OPT_NODELAY), 1);
        assert_int_equal(get(fd, KEEPIDLE), 33);
        weir_getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &after, &len);
        assert_int_equal(after, sndbuf);
    }
    weir_close(fd);
}

static void test_info(void **state)
{
    uint8_t b[300];
    sender_init();
    sender_open();
    send_n(2000);
    expect_data(0, 1448, 0, 0);
    sim_run(w.sim, 20 * MS);
    ack_to(1448);
    expect_data(1448, 552, 0, 0);
    memset(b, 0xee, sizeof(b));
    socklen_t len = sizeof(b);
    assert_int_equal(weir_getsockopt(cn.fd, IPPROTO_TCP, INFO, b, &len), 0);
    assert_int_equal(len, 248);
    assert_int_equal(b[248], 0xee);
    uint32_t u32;
    uint64_t u64;
    assert_int_equal(b[0], 1);          /* tcpi_state: ESTABLISHED */
    assert_int_equal(b[5], 1 | 2 | 4);  /* timestamps, SACK, scaling */
    assert_int_equal(b[6], 7 | 6 << 4); /* scales: the peer's 7, ours 6 */
    memcpy(&u32, b + 16, 4);
    assert_int_equal(u32, 1448); /* tcpi_snd_mss */
    memcpy(&u32, b + 24, 4);
    assert_int_equal(u32, 1); /* tcpi_unacked */
    memcpy(&u32, b + 68, 4);
    assert_int_equal(u32, 20000); /* tcpi_rtt */
    memcpy(&u64, b + 120, 8);
    assert_int_equal(u64, 1448); /* tcpi_bytes_acked */
    memcpy(&u64, b + 200, 8);
    assert_int_equal(u64, 2000); /* tcpi_bytes_sent */
    len = 104;                   /* as long as it once was */
    memset(b, 0xee, sizeof(b));
    assert_int_equal(weir_getsockopt(cn.fd, IPPROTO_TCP, INFO, b, &len), 0);
    assert_int_equal(len, 104);
    assert_int_equal(b[104], 0xee);
    weir_close(cn.fd);
    weir_close(w.listener);
}

static void test_maxseg(void **state)
{
    struct sockaddr_storage ss;
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(get(fd, MAXSEG), 536);
    assert_int_equal(set(fd, MAXSEG, 1000), 0);
    conn_init(&cn, w.p, w.next_port++, 0);
    cn.ts = false;
    cn.fd = fd;
    socklen_t sl = peer_sockaddr(peer_remote(w.p), cn.sport, &ss);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
    expect_flags(&cn, TH_SYN, 0);
    assert_int_equal(w.k.to.mss, 1000);
    cn.dport = w.k.th.sport;
    conn_flags(&cn, TH_SYN | TH_ACK);
    expect_flags(&cn, TH_ACK, 0);
    base_seq = cn.rcv_nxt;
    written = 0;
    send_n(3000);
    expect_segments(0, 3, 1000);
    weir_close(fd);
}

static bool is_writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_true(weir_poll(&p, 1, 0) >= 0);
    return p.revents & POLLOUT;
}

static short edge_of(int set)
{
    struct epoll_event e;
    int n = weir_epoll_wait(set, &e, 1, 0);
    assert_true(n >= 0);
    return n ? (short)e.events : 0;
}

/* TCP_NOTSENT_LOWAT: what the peer's window does not take yet waits with the application, not in
 * the buffer. */
static void test_notsent_lowat(void **state)
{
    static uint8_t buf[300000];
    enum { LOWAT = 10000, WINDOW = 64000 };
    sender_init();
    cn.ts = false;
    cn.wscale = -1;
    cn.win = WINDOW;
    sender_open();
    sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", "100");
    assert_int_equal(weir_fcntl(cn.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(set(cn.fd, NOTSENT_LOWAT, LOWAT), 0);
    assert_int_equal(get(cn.fd, NOTSENT_LOWAT), LOWAT);
    assert_true(is_writable(cn.fd));
    /* Once the cwnd is full, no more than the mark and one piece (64 KB) is taken. */
    for (int i = 0; i < 100; i++) {
        if (weir_send(cn.fd, buf, 2000, 0) < 0)
            break;
        sim_settle(w.sim);
    }
    assert_int_equal(weir_send(cn.fd, buf, sizeof(buf), 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(is_writable(cn.fd));
    struct tcpcb *tp = world_tcpcb(&cn);
    uint32_t unsent = sockbuf_used(&tp->t_so->so_snd) - (tp->snd_nxt - tp->snd_una);
    assert_in_range(unsent, LOWAT, LOWAT + 2000);
    /* There is room in the buffer all the time; an ACK sends what waits, and wakes. */
    int set_fd = weir_epoll_create(0);
    struct epoll_event e = {.events = EPOLLOUT | EPOLLET};
    assert_int_equal(weir_epoll_ctl(set_fd, EPOLL_CTL_ADD, cn.fd, &e), 0);
    assert_int_equal(edge_of(set_fd), 0);
    cn.rcv_nxt = tp->snd_nxt;
    conn_ack(&cn);
    assert_true(edge_of(set_fd) & EPOLLOUT);
    assert_true(is_writable(cn.fd));
    assert_true(weir_send(cn.fd, buf, 2000, 0) > 0);
    weir_close(set_fd);
    /* 0: no mark. */
    while (weir_send(cn.fd, buf, 2000, 0) > 0)
        sim_settle(w.sim);
    assert_int_equal(set(cn.fd, NOTSENT_LOWAT, 0), 0);
    assert_true(is_writable(cn.fd));
    assert_true(weir_send(cn.fd, buf, sizeof(buf), 0) > 100000);
    weir_close(cn.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_ranges),        WORLD_TEST(test_congestion),
        WORLD_TEST(test_inherited),     WORLD_TEST(test_kept_over_a_failed_connect),
        WORLD_TEST(test_info),          WORLD_TEST(test_maxseg),
        WORLD_TEST(test_notsent_lowat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
