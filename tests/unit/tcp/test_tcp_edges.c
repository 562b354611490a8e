/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: at the edges of what is allowed: a segment gives just what of it lies in the window,
 * wherever it lies; data are taken in every state in which our side alone is shut; ICMPv6 errors
 * end nothing; and whoever fills one connection's queue with fragments of a stream disturbs no
 * other. Bound: under 10 s. */
#include "world.h"
#include "tcp/tcp_reass.h"
#include "wire/checksum.h"

#include <netinet/in.h>

static uint8_t buf[200000];

/* --- every place of a segment --- */

/* Close the connection's books: nothing of it stays. */
static void abandon(struct conn *c)
{
    struct linger hard = {.l_onoff = 1};

    assert_int_equal(weir_setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    weir_close(c->fd);
    sim_settle(w.sim);
    peer_drain(w.p);
}

/* One segment at snd_nxt + off (which is the left edge of a window of `win`), then what was missing
 * before it. The stream and the FIN must be those of the part inside. */
static void place(int64_t off, uint32_t len, bool fin)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 3000); /* so that there is something to the left */
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 3000);
    sim_settle(w.sim);
    peer_drain(w.p);
    struct tcpcb *tp = world_tcpcb(&c);
    int64_t win = MAX(sockbuf_space(&tp->t_so->so_rcv), tp->rcv_adv - tp->rcv_nxt);
    if (off > 3000) /* given from the right edge */
        off += win - (1 << 20);
    int64_t first = MAX(off, 0), last = MIN(off + len, win);
    bool inside = last > first || (last == first && first == 0 && fin && off + len == 0);

    send_at(&c, (int32_t)off, (uint8_t)(TH_ACK | (fin ? TH_FIN : 0)), len);
    sim_settle(w.sim);
    peer_drain(w.p);
    uint32_t had = inside && first == 0 ? (uint32_t)last : 0;
    for (uint32_t at = had; inside && first > 0 && at < first;) {
        uint32_t n = MIN((uint32_t)first - at, 1400);
        send_at(&c, (int32_t)at, TH_ACK, n);
        at += n;
    }
    if (inside && first > 0)
        had = (uint32_t)last;
    sim_run(w.sim, 100 * MS);
    uint32_t got = 0;
    for (ssize_t n; (n = read_pattern(c.fd, 3000 + got, buf, sizeof(buf))) > 0;)
        got += (uint32_t)n;
    bool ended = fin && inside && off + len <= win;
    if (got != had || (world_state(&c) == TCPS_CLOSE_WAIT) != ended)
        fail_msg("%lld + %u%s of %lld: %u bytes, not %u; state %d", (long long)off, len,
                 fin ? " with FIN" : "", (long long)win, got, had, world_state(&c));
    abandon(&c);
}

/* case: FUN-032 */
static void test_every_place(void **state)
{
    enum { EDGE = 1 << 20 }; /* stands for the right edge */
    static const int64_t from[] = {-3000,       -1400,      -1000,    -999,        -1,
                                   0,           1,          1000,     EDGE - 2000, EDGE - 1400,
                                   EDGE - 1000, EDGE - 999, EDGE - 1, EDGE,        EDGE + 1};
    static const uint32_t lens[] = {1, 2, 999, 1000, 1001, 1400};

    for (size_t i = 0; i < NELEM(from); i++)
        for (size_t j = 0; j < NELEM(lens); j++)
            for (int fin = 0; fin < 2; fin++)
                place(from[i], lens[j], fin);
    weir_close(w.listener);
}

/* case: FUN-032 */
static void test_window_edges(void **state)
{
    struct conn c;
    struct tcpcb *tp;

    world_accept(&c);
    tp = world_tcpcb(&c);
    uint32_t win = sockbuf_space(&tp->t_so->so_rcv);
    /* Beyond the right edge, with FIN: cut there, and no FIN. */
    struct segment g = seg_at(&c, c.snd_nxt + win - 100, TH_ACK | TH_FIN, 200);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(tp->t_reass_bytes, 100);
    assert_false(tp->t_reass_fin);
    /* Wholly beyond what was offered, which is rounded to the scale: acknowledged and dropped. */
    g = seg_at(&c, c.snd_nxt + win + (1u << tp->rcv_scale), TH_ACK, 10);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(tp->t_reass_bytes, 100);
    /* Old and new at once, with a FIN inside the window. */
    conn_data(&c, 100);
    expect_ack(&c, c.snd_nxt);
    g = seg_at(&c, c.snd_nxt - 50, TH_ACK, 1000);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt + 950);
    g = seg_at(&c, c.snd_nxt + 950, TH_ACK | TH_FIN, 10);
    tcp_reass_flush(tp);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt + 961);
    assert_int_equal(tp->t_state, TCPS_CLOSE_WAIT);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 1060);
    assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
}

/* --- our side is shut, the peer's is not --- */

static void expect_acked(struct conn *c, uint32_t ack)
{
    assert_true(conn_next(c, &w.k, 50 * MS));
    assert_int_equal(w.k.th.flags & ~TH_FIN, TH_ACK); /* an unacknowledged FIN goes with each */
    assert_int_equal(w.k.th.ack, ack);
}

/* Data in and out of order, acknowledged and read. `at`: of the stream. */
static void take_some(struct conn *c, uint32_t at)
{
    uint32_t theirs = c->rcv_nxt; /* what the peer acknowledges stays what it was */

    send_at(c, 1000, TH_ACK, 1000);
    expect_acked(c, c->snd_nxt);
    c->rcv_nxt = theirs;
    conn_data(c, 1000);
    expect_acked(c, c->snd_nxt + 1000);
    c->rcv_nxt = theirs;
    c->snd_nxt += 1000;
    conn_data(c, 500);
    conn_data(c, 500);
    expect_acked(c, c->snd_nxt);
    c->rcv_nxt = theirs;
    assert_int_equal(read_pattern(c->fd, at, buf, sizeof(buf)), 3000);
}

/* case: FUN-049 */
static void test_data_after_our_fin(void **state)
{
    struct conn c;

    for (int end = 0; end < 3; end++) {
        world_accept(&c);
        uint32_t ours = c.rcv_nxt;
        weir_shutdown(c.fd, SHUT_WR);
        expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
        uint32_t behind = c.rcv_nxt;
        c.rcv_nxt = ours; /* the peer has not seen the FIN: FIN_WAIT_1 */
        take_some(&c, 0);
        assert_int_equal(world_state(&c), TCPS_FIN_WAIT_1);
        c.rcv_nxt = behind;
        conn_ack(&c);
        assert_int_equal(world_state(&c), TCPS_FIN_WAIT_2);
        take_some(&c, 3000);
        sim_run(w.sim, 300 * NS_PER_S); /* however late */
        peer_drain(w.p);
        take_some(&c, 6000);
        if (end == 0) { /* the last data come with the FIN, and count */
            send_at(&c, 0, TH_ACK | TH_FIN, 100);
            expect_ack(&c, c.snd_nxt + 101);
            assert_int_equal(read_pattern(c.fd, 9000, buf, sizeof(buf)), 100);
            assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
            assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
            weir_close(c.fd);
        } else if (end == 1) { /* shut, not closed: Linux and we still take what comes */
            weir_shutdown(c.fd, SHUT_RD);
            assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
            take_some(&c, 9000);
            assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
            abandon(&c);
        } else { /* closed: nobody can read it */
            weir_close(c.fd);
            sim_settle(w.sim);
            peer_drain(w.p);
            conn_data(&c, 10);
            expect_flags(&c, TH_RST, MS);
            assert_int_equal(w.k.th.seq, c.rcv_nxt);
        }
    }
    weir_close(w.listener);
}

/* --- an attacked neighbour --- */

/* A burst of single bytes with gaps between, from the far end of the window to its beginning. */
static void attack(struct conn *c, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--) {
        send_at(c, (int32_t)(2 * i), TH_ACK, 1);
        if (i % 64 == 0)
            peer_drain(w.p);
    }
    peer_drain(w.p);
}

/* One connection's queue is full, by its own limit or by the stack's: it goes on with what is in
 * order, and the other connection gets its data in any order that its own limit allows.
 * case: SEC-001 */
static void test_attacked_neighbour(void **state)
{
    struct conn bad, good;

    for (int of_all = 0; of_all < 2; of_all++) {
        sim_sysctl(w.s, "net.inet.tcp.reass.maxqueuelen", of_all ? "100000" : "100");
        sim_sysctl(w.s, "net.inet.tcp.reass.maxsegments", of_all ? "1000" : "262144");
        world_accept(&bad);
        world_accept(&good);
        attack(&bad, 20000);
        uint64_t limit = of_all ? 1000 : 100;
        struct tcpcb *tp = world_tcpcb(&bad);
        assert_in_range(tp->t_reass_segs, limit / 2, limit);
        assert_true(sim_counter(w.s, of_all ? "tcp.reass_global_limit" : "tcp.reass_limit") > 0);
        /* In order: as if nothing were. */
        for (uint32_t i = 0; i < 10; i++) {
            conn_data(&good, 1000);
            conn_data(&good, 1000);
            expect_ack(&good, good.snd_nxt);
        }
        assert_int_equal(read_pattern(good.fd, 0, buf, sizeof(buf)), 20000);
        /* Out of order. At the limit of all what is not next may be refused, and comes again. */
        for (int i = 9; i >= 0; i--)
            send_at(&good, i * 1000, TH_ACK, 1000);
        peer_drain(w.p);
        if (of_all)
            for (int i = 1; i < 10; i++)
                send_at(&good, i * 1000, TH_ACK, 1000);
        sim_settle(w.sim);
        assert_int_equal(read_pattern(good.fd, 20000, buf, sizeof(buf)), 10000);
        /* The attacked one itself takes what is next. */
        peer_drain(w.p);
        conn_data(&bad, 1);
        sim_settle(w.sim);
        assert_true(read_pattern(bad.fd, 0, buf, sizeof(buf)) >= 1);
        abandon(&bad);
        abandon(&good);
    }
    weir_close(w.listener);
}

/* --- from ourselves --- */

static void land(const char *loopback)
{
    struct conn c;
    struct ipaddr self;
    struct sockaddr_storage ss;
    uint8_t b[20];

    world_accept(&c);
    peer_drain(w.p);
    for (int kind = 0; kind < 3; kind++) {
        memset(b, 0, sizeof(b));
        put_be16(b, 80);
        put_be16(b + 2, 80);
        put_be32(b + 4, 1);
        b[12] = 0x50;
        b[13] = kind == 0 ? TH_SYN : kind == 1 ? TH_SYN | TH_ACK : TH_ACK;
        peer_inject_ip(w.p, peer_local(w.p), IPPROTO_TCP, b, sizeof(b));
    }
    expect_quiet();
    assert_int_equal(sim_counter(w.s, "tcp.accepts"), 1);
    /* A connection to oneself, on purpose: simultaneous open over the loopback interface. */
    assert_int_equal(ipaddr_parse(loopback, &self), 0);
    socklen_t len = peer_sockaddr(&self, 45678, &ss);
    int fd = weir_socket(w.s, self.family, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, len), 0);
    uint64_t before = sim_counter(w.s, "tcp.rx");
    assert_int_equal(weir_write(fd, "hello", 5), 5);
    assert_int_equal(weir_read(fd, buf, sizeof(buf)), 5);
    assert_memory_equal(buf, "hello", 5);
    sim_run(w.sim, NS_PER_S);
    assert_true(sim_counter(w.s, "tcp.rx") - before < 10);
    weir_close(fd);
    weir_close(w.listener);
}

/* case: SEC-035 */
static void test_land(void **state)
{
    land("127.0.0.1");
    sim_destroy(w.sim);
    world_open("2001:db8::1", "2001:db8::2");
    land("::1");
}

/* --- ICMPv6 errors --- */

static void send_icmp6(struct conn *c, uint8_t type, uint8_t code, uint32_t seq)
{
    uint8_t b[8 + 40 + 8] = {type, code};

    b[8] = 0x60;
    put_be16(b + 12, 20);
    b[14] = IPPROTO_TCP;
    b[15] = 64;
    memcpy(b + 16, peer_local(w.p)->b, 16);
    memcpy(b + 32, peer_remote(w.p)->b, 16);
    put_be16(b + 48, c->dport);
    put_be16(b + 50, c->sport);
    put_be32(b + 52, seq);
    uint64_t sum = checksum_pseudo(peer_remote(w.p), peer_local(w.p), IPPROTO_ICMPV6, sizeof(b));
    uint16_t folded = (uint16_t)~checksum_fold(checksum_add(b, sizeof(b), sum));
    memcpy(b + 2, &folded, 2);
    peer_inject_ip(w.p, NULL, IPPROTO_ICMPV6, b, sizeof(b));
}

/* case: SEC-053 */
static void test_icmp6_when_established(void **state)
{
    struct conn c;

    sim_destroy(w.sim);
    world_open("2001:db8::1", "2001:db8::2");
    world_accept(&c);
    struct tcpcb *tp = world_tcpcb(&c);
    assert_int_equal(weir_write(c.fd, buf, 5000), 5000);
    sim_run(w.sim, MS);
    peer_drain(w.p);
    uint64_t before = sim_counter(w.s, "icmp.rx_errors");
    static const uint8_t types[] = {1, 3, 4}; /* unreachable, time exceeded, parameter problem */
    for (size_t i = 0; i < NELEM(types); i++)
        for (uint8_t code = 0; code < 8; code++)
            send_icmp6(&c, types[i], code, tp->snd_una);
    assert_true(sim_counter(w.s, "icmp.rx_errors") > before);
    assert_int_equal(tp->t_state, TCPS_ESTABLISHED);
    c.rcv_nxt += 5000;
    conn_data(&c, 100);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 100);
    abandon(&c);
    weir_close(w.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_every_place),
        WORLD_TEST(test_window_edges),
        WORLD_TEST(test_land),
        WORLD_TEST(test_data_after_our_fin),
        WORLD_TEST(test_attacked_neighbour),
        WORLD_TEST(test_icmp6_when_established),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
