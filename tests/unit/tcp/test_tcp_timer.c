/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: each timer of a connection fires when it should, backs off, gives up and stops:
 * retransmission, SYN, persist, keepalive, user timeout, FIN_WAIT_2, delayed ACK, orphans; and none
 * minds a clock that wraps. Bound: under 20 s. */
#include "sender.h"
#include <poll.h>

#define MSS 1460u
enum {
    OPT_KEEPIDLE = 4,
    OPT_KEEPINTVL,
    OPT_KEEPCNT,
    OPT_SYNCNT,
    OPT_LINGER2,
    OPT_USER_TIMEOUT = 18
};

static uint64_t expect_at(uint64_t t0, uint64_t after_ns, uint64_t slack_ns)
{
    assert_true(conn_next(&cn, &w.k, 200 * NS_PER_S));
    assert_in_range(w.k.when_ns - t0, after_ns, after_ns + slack_ns);
    return w.k.when_ns;
}

static int so_error(int fd)
{
    int v = -1;
    socklen_t len = sizeof(v);
    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_ERROR, &v, &len), 0);
    return v;
}

static short poll_now(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    weir_poll(&p, 1, 0);
    return p.revents;
}

static void test_retransmissions(void **state)
{
    sender_plain();
    send_n(10);
    uint64_t t0 = expect_at(sim_now(w.sim), 0, 0);
    sim_run(w.sim, 20 * MS);
    ack_to(10); /* RTT 20 ms: RTO 20 + 4 * 10 + 200 */
    send_n(10);
    t0 = expect_at(sim_now(w.sim), 0, 0);
    uint64_t base = 60;
    static const uint16_t backoff[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512};
    for (unsigned i = 0; i < NELEM(backoff); i++) {
        if (i == 5) /* after the fourth timeout of the round trip a quarter is left, as in BSD */
            base = 20 / 4 + 4 * 10;
        t0 = expect_at(t0, (MIN(base * backoff[i] + 200, 64000)) * MS, 2 * MS);
        assert_int_equal(w.k.len, 10);
    }
    uint64_t end = t0 + (base * 512 + 200) * MS;
    expect_flags(&cn, TH_RST | TH_ACK, 100 * NS_PER_S);
    assert_in_range(w.k.when_ns, end, end + 5 * MS);
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    assert_true(poll_now(cn.fd) & POLLHUP);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* RFC 6298 2: the smoothed round trip moves by an eighth, its variation by a quarter. */
static void test_smoothing(void **state)
{
    static const struct {
        uint32_t rtt_ms;
        double srtt_ms, var_ms;
    } t[] = {{20, 20, 10}, {40, 22.5, 12.5}, {40, 24.6875, 13.75}, {10, 22.8516, 13.9844}};
    sender_plain();
    for (size_t i = 0; i < NELEM(t); i++) {
        send_n(10);
        expect_data((uint32_t)i * 10, 10, 0, 0);
        sim_run(w.sim, t[i].rtt_ms * MS);
        ack_to((uint32_t)(i + 1) * 10);
        const struct tcpcb *tp = world_tcpcb(&cn);
        uint64_t srtt = (uint64_t)(t[i].srtt_ms * MS), var = (uint64_t)(t[i].var_ms * MS);
        assert_in_range(tp->t_srtt, srtt - MS / 100, srtt + MS / 100);
        assert_in_range(tp->t_rttvar, var - MS / 100, var + MS / 100);
        assert_int_equal(tp->t_rxtcur, tp->t_srtt + 4 * tp->t_rttvar + 200 * MS);
    }
    weir_close(cn.fd);
    weir_close(w.listener);
}

static int start_connect(void)
{
    struct sockaddr_storage ss;
    conn_init(&cn, w.p, w.next_port++, 0);
    cn.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t len = peer_sockaddr(peer_remote(w.p), cn.sport, &ss);
    return weir_connect(cn.fd, (struct sockaddr *)&ss, len);
}

static void test_syn(void **state)
{
    sim_sysctl(w.s, "net.inet.tcp.rexmit_drop_options", "1");
    uint64_t t0 = sim_now(w.sim), t = t0;
    assert_int_equal(start_connect(), -1);
    static const uint32_t gaps[] = {0, 1000, 2200, 4200, 8200, 16200, 32200};
    for (unsigned i = 0; i < NELEM(gaps); i++) {
        t = expect_at(t, gaps[i] * MS, 2 * MS);
        assert_int_equal(w.k.th.flags, TH_SYN);
        assert_int_equal(w.k.th.win, 65535);
        assert_int_equal(w.k.to.flags,
                         i < 3 ? TOF_MSS | TOF_SCALE | TOF_SACKPERM | TOF_TS : TOF_MSS);
        if (i == 0) {
            assert_int_equal(w.k.to.mss, 1460);
            assert_int_equal(w.k.to.wscale, 6);
            static const uint8_t order[] = {2, 4, 5, 180, 1, 3, 3, 6, 4, 2, 8, 10};
            assert_memory_equal(w.k.opt, order, sizeof(order));
        }
    }
    sim_run(w.sim, t0 + 75 * NS_PER_S + MS - sim_now(w.sim));
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    weir_close(cn.fd);
    /* TCP_SYNCNT 2: three SYNs, and the time of the last runs out. */
    assert_int_equal(start_connect(), -1);
    set_opt(OPT_SYNCNT, 2);
    t0 = sim_now(w.sim);
    peer_drain(w.p);
    sim_run(w.sim, 7300 * MS);
    assert_int_equal(so_error(cn.fd), 0);
    sim_run(w.sim, 200 * MS);
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    weir_close(cn.fd);
}

/* case: FUN-001 FUN-005 */
static void test_persist(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 1000;
    sender_open();
    send_n(100000);
    expect_data(0, 1000, 0, 0);
    cn.win = 0;
    uint64_t t = sim_now(w.sim);
    ack_to(1000);
    static const uint32_t gaps[] = {5, 5, 5, 5, 5, 5, 5, 5}; /* a short path: the minimum */
    for (unsigned i = 0; i < NELEM(gaps); i++) {
        t = expect_at(t, gaps[i] * NS_PER_S, 2 * MS);
        assert_int_equal(w.k.len, 1);
        assert_int_equal(w.k.th.seq, base_seq + 1000); /* the same byte, as it was not taken */
        assert_int_equal(w.k.data[0], byte_at(1000));
        ack_to(1000);
    }
    /* The window opens without the byte: it comes again as part of a segment. */
    ack_win(1000, 5000);
    expect_data(1000, 1460, 0, 0);
    expect_segments(2460, 2, 1460);
    ack_win(5380, 0);
    t = expect_at(sim_now(w.sim), 5 * NS_PER_S, 2 * MS);
    assert_int_equal(w.k.th.seq, base_seq + 5380);
    /* This time it is taken. */
    ack_win(5381, 3000);
    expect_data(5381, 1460, 0, 0);
    expect_data(6841, 1460, 0, 0);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-002 */
static void test_persist_gives_up(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 1000;
    sender_open();
    send_n(10000);
    expect_data(0, 1000, 0, 0);
    ack_win(1000, 0);
    uint64_t t0 = sim_now(w.sim);
    for (int i = 0; i < 200 && !so_error(cn.fd); i++)
        sim_run(w.sim, 10 * NS_PER_S);
    assert_in_range(sim_now(w.sim) - t0, 60 * NS_PER_S, 1500 * NS_PER_S);
    assert_true(poll_now(cn.fd) & POLLHUP);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-004 */
static void test_small_window_flows(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    sender_open();
    cn.win = 700;
    ack_to(0);
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    weir_close(cn.fd);
    sender_open();
    /* The first window was large; now it is 700 for ever. */
    send_n(1);
    expect_data(0, 1, 0, 0);
    cn.win = 700;
    ack_to(1);
    send_n(20000);
    uint64_t t0 = sim_now(w.sim);
    uint32_t off = 1;
    while (off < 20001) {
        assert_true(conn_next(&cn, &w.k, 10 * NS_PER_S));
        assert_int_equal(w.k.th.seq, base_seq + off);
        assert_true(w.k.len && w.k.len <= 700);
        off += w.k.len;
        sim_run(w.sim, MS);
        ack_to(off);
    }
    assert_true(sim_now(w.sim) - t0 < 7 * NS_PER_S); /* one override, then a window a round trip */
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-007 FUN-008 */
static void test_window_shuts_on_data_in_flight(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    sender_open();
    send_n(10 * MSS);
    expect_segments(0, 10, MSS);
    ack_win(3 * MSS, 0);
    unsigned packets = 0;
    uint64_t t0 = sim_now(w.sim);
    while (conn_next(&cn, &w.k, t0 + 30 * NS_PER_S - sim_now(w.sim))) {
        assert_int_equal(w.k.len, 1);
        assert_int_equal(w.k.th.seq, base_seq + 3 * MSS);
        packets++;
    }
    assert_in_range(packets, 1, 6);
    ack_win(3 * MSS, 60000);
    expect_data(3 * MSS, MSS, 0, NS_PER_S);
    uint32_t off = 4 * MSS;
    ack_win(off, 60000);
    while (off < 10 * MSS) {
        assert_true(conn_next(&cn, &w.k, 2 * NS_PER_S));
        if (w.k.th.seq == base_seq + off)
            off += w.k.len;
        ack_win(off, 60000);
    }
    expect_nothing(NS_PER_S);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-091 */
static void test_keepalive(void **state)
{
    sender_plain();
    int one = 1;
    weir_setsockopt(cn.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    set_opt(OPT_KEEPIDLE, 2);
    set_opt(OPT_KEEPINTVL, 1);
    set_opt(OPT_KEEPCNT, 3);
    uint64_t t0 = sim_now(w.sim);
    for (uint64_t i = 0; i < 3; i++) {
        expect_at(t0, (2 + i) * NS_PER_S, 2 * MS);
        assert_int_equal(w.k.th.seq, base_seq - 1);
        assert_int_equal(w.k.len, 0);
        assert_int_equal(so_error(cn.fd), 0);
    }
    expect_flags(&cn, TH_RST | TH_ACK, 2 * NS_PER_S);
    assert_in_range(w.k.when_ns - t0, 5 * NS_PER_S, 5 * NS_PER_S + 2 * MS);
    short events = poll_now(cn.fd);
    assert_int_equal(events & (POLLERR | POLLHUP | POLLIN), POLLERR | POLLHUP | POLLIN);
    char b;
    assert_int_equal(weir_read(cn.fd, &b, 1), -1);
    assert_int_equal(errno, ETIMEDOUT);
    weir_close(cn.fd);
    /* Answered probes: for ever. */
    sender_plain();
    set_opt(OPT_KEEPIDLE, 2);
    set_opt(OPT_KEEPINTVL, 1);
    set_opt(OPT_KEEPCNT, 3);
    for (int i = 0; i < 20; i++) {
        uint64_t t = sim_now(w.sim);
        expect_at(t, 2 * NS_PER_S, 2 * MS);
        ack_to(0);
    }
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-092 */
static void test_user_timeout(void **state)
{
    /* Idle, with keepalive that would take far longer. */
    sender_plain();
    set_opt(OPT_KEEPIDLE, 1);
    set_opt(OPT_KEEPINTVL, 10);
    set_opt(OPT_KEEPCNT, 9);
    set_opt(OPT_USER_TIMEOUT, 5000);
    sim_run(w.sim, 4900 * MS);
    assert_int_equal(so_error(cn.fd), 0);
    sim_run(w.sim, 300 * MS);
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    weir_close(cn.fd);
    /* Data unacknowledged. */
    sender_plain();
    set_opt(OPT_USER_TIMEOUT, 5000);
    send_n(100);
    sim_run(w.sim, 4900 * MS);
    assert_int_equal(so_error(cn.fd), 0);
    sim_run(w.sim, 300 * MS);
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    weir_close(cn.fd);
    /* Window shut, probes answered. */
    sim_sysctl(w.s, "net.inet.tcp.persmin", "500");
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 1000;
    sender_open();
    set_opt(OPT_USER_TIMEOUT, 5000);
    send_n(5000);
    expect_data(0, 1000, 0, 0);
    ack_win(1000, 0);
    uint64_t t0 = sim_now(w.sim);
    while (conn_next(&cn, &w.k, 10 * NS_PER_S) && !(w.k.th.flags & TH_RST))
        ack_win(1000, 0);
    assert_in_range(sim_now(w.sim) - t0, 4900 * MS, 5200 * MS);
    assert_int_equal(so_error(cn.fd), ETIMEDOUT);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-047 */
static void test_fin_wait_2(void **state)
{
    static const struct {
        int linger2;
        uint32_t seconds;
    } t[] = {{0, 60}, {5, 5}, {-1, 0}, {3600, 120}};
    for (unsigned i = 0; i < NELEM(t); i++) {
        sender_plain();
        if (t[i].linger2)
            set_opt(OPT_LINGER2, t[i].linger2);
        weir_close(cn.fd);
        sim_settle(w.sim);
        assert_true(conn_next(&cn, &w.k, 0));
        assert_true(w.k.th.flags & TH_FIN);
        conn_ack(&cn);
        if (t[i].seconds) {
            assert_int_equal(world_state(&cn), TCPS_FIN_WAIT_2);
            sim_run(w.sim, t[i].seconds * NS_PER_S - 100 * MS);
            assert_int_equal(world_state(&cn), TCPS_FIN_WAIT_2);
            sim_run(w.sim, 200 * MS);
        } else {
            sim_run(w.sim, MS);
        }
        assert_int_equal(world_state(&cn), TCPS_CLOSED);
        peer_drain(w.p);
        conn_data(&cn, 10);
        expect_flags(&cn, TH_RST, 0);
    }
    weir_close(w.listener);
}

/* case: SEC-034 */
static void test_orphans_end(void **state)
{
    /* Window 0, answered; a window of some bytes; nobody answers. */
    for (int kind = 0; kind < 3; kind++) {
        sender_init();
        cn.ts = false;
        cn.wscale = 0;
        cn.win = 1000;
        sender_open();
        send_n(100000);
        expect_data(0, 1000, 0, 0);
        ack_win(1000, 0);
        weir_close(cn.fd);
        uint32_t off = 1000;
        uint64_t t0 = sim_now(w.sim);
        while (world_state(&cn) != TCPS_CLOSED && sim_now(w.sim) - t0 < 2000 * NS_PER_S) {
            sim_run(w.sim, NS_PER_S);
            while (conn_next(&cn, &w.k, 0)) {
                if (kind == 1 && w.k.th.seq == base_seq + off)
                    off += w.k.len;
            }
            if (kind == 0)
                ack_win(off, 0);
            if (kind == 1)
                ack_win(off, 5);
        }
        assert_int_equal(world_state(&cn), TCPS_CLOSED);
        assert_true(sim_now(w.sim) - t0 < 600 * NS_PER_S);
        peer_drain(w.p);
    }
    /* While the application holds it, an answered zero window is kept. */
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 1000;
    sender_open();
    send_n(100000);
    expect_data(0, 1000, 0, 0);
    ack_win(1000, 0);
    for (int i = 0; i < 40; i++) {
        assert_true(conn_next(&cn, &w.k, 61 * NS_PER_S));
        ack_win(1000, 0);
    }
    assert_int_equal(world_state(&cn), TCPS_ESTABLISHED);
    int linger[2] = {1, 0};
    weir_setsockopt(cn.fd, SOL_SOCKET, SO_LINGER, linger, sizeof(linger));
    weir_close(cn.fd); /* and it can always end it */
    sim_settle(w.sim);
    expect_flags(&cn, TH_RST | TH_ACK, 0);
    weir_close(w.listener);
}

static void test_delayed_ack(void **state)
{
    sender_plain();
    uint64_t t0 = sim_now(w.sim);
    conn_data(&cn, 100);
    expect_at(t0, 40 * MS, MS);
    assert_int_equal(w.k.th.ack, cn.snd_nxt);
    t0 = sim_now(w.sim);
    conn_data(&cn, MSS);
    conn_data(&cn, MSS);
    expect_at(t0, 0, 0); /* the second full segment: at once */
    assert_int_equal(w.k.th.ack, cn.snd_nxt);
    conn_data(&cn, 100);
    send_n(10); /* takes the ACK along */
    expect_data(0, 10, 0, 0);
    assert_int_equal(w.k.th.ack, cn.snd_nxt);
    ack_to(10);
    expect_nothing(NS_PER_S);
    char buf[4096];
    while (weir_read(cn.fd, buf, sizeof(buf)) > 0)
        ;
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-094 */
static void test_clock_wraps(void **state)
{
    /* The millisecond clock passes 2^31 and 2^32 five seconds after the start. */
    static const uint64_t ms[] = {(UINT64_C(1) << 31) - 5000, (UINT64_C(1) << 32) - 5000};
    for (unsigned i = 0; i < NELEM(ms); i++) {
        sim_destroy(w.sim);
        w.sim = sim_create(7, ms[i] * NS_PER_MS);
        w.s = sim_stack(w.sim, "wrap");
        w.p = peer_create(w.sim, w.s, "192.0.2.1", "192.0.2.2", 0);
        w.listener = -1;
        sender_init();
        sender_open();
        for (int k = 0; k < 40; k++) { /* 10 s across the wrap: data, ACKs, timestamps */
            uint64_t t0 = sim_now(w.sim);
            send_n(10);
            expect_at(t0, 0, 0);
            sim_run(w.sim, 10 * MS);
            ack_to((uint32_t)written);
            conn_data(&cn, 10);
            expect_at(sim_now(w.sim), 40 * MS, MS);
            sim_run(w.sim, 200 * MS);
        }
        assert_int_equal(sim_counter(w.s, "tcp.rexmt_timeouts"), 0);
        send_n(10);
        uint64_t t0 = expect_at(sim_now(w.sim), 0, 0);
        expect_at(t0, 230 * MS, 40 * MS);
        weir_close(cn.fd);
    }
    weir_close(w.listener);
}

/* Full segments vanish: after two timeouts smaller ones are tried, and the old size again when that
 * did not help. */
static void test_black_hole(void **state)
{
    sim_sysctl(w.s, "net.inet.tcp.pmtud_blackhole_detection", "1");
    sender_plain();
    send_n(MSS);
    expect_data(0, MSS, 0, 0);
    static const uint32_t sizes[] = {1460, 1200, 1200, 536, 536, 1460};
    for (unsigned i = 0; i < NELEM(sizes); i++)
        expect_data(0, sizes[i], 0, 200 * NS_PER_S);
    ack_to(MSS);
    expect_nothing(NS_PER_S);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* What is known of a peer seeds the next connection's timeout, until it is forgotten. */
static void test_host_cache(void **state)
{
    for (int round = 0; round < 3; round++) {
        if (round == 2)
            sim_sysctl(w.s, "net.inet.tcp.hostcache.purgenow", "1");
        sender_plain();
        struct tcpcb *tp = world_tcpcb(&cn);
        if (round == 1)
            assert_in_range(tp->t_srtt, 80 * MS, 110 * MS);
        else
            assert_int_equal(tp->t_srtt, 0);
        for (int i = 0; i < 30; i++) {
            send_n(10);
            sim_run(w.sim, 100 * MS);
            ack_to((uint32_t)written);
        }
        peer_drain(w.p);
        weir_close(cn.fd);
        sim_settle(w.sim);
        assert_true(conn_next(&cn, &w.k, 0));
        conn_send(&cn, &(struct segment){.seq = cn.snd_nxt,
                                         .ack = base_seq + (uint32_t)written + 1,
                                         .flags = TH_ACK | TH_FIN,
                                         .win = -1});
        sim_run(w.sim, 61 * NS_PER_S);
        peer_drain(w.p);
    }
    weir_close(w.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_retransmissions),
        WORLD_TEST(test_smoothing),
        WORLD_TEST(test_syn),
        WORLD_TEST(test_persist),
        WORLD_TEST(test_persist_gives_up),
        WORLD_TEST(test_small_window_flows),
        WORLD_TEST(test_window_shuts_on_data_in_flight),
        WORLD_TEST(test_keepalive),
        WORLD_TEST(test_user_timeout),
        WORLD_TEST(test_fin_wait_2),
        WORLD_TEST(test_orphans_end),
        WORLD_TEST(test_delayed_ack),
        WORLD_TEST(test_clock_wraps),
        WORLD_TEST(test_black_hole),
        WORLD_TEST(test_host_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
