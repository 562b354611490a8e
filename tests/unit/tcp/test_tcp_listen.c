/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: handshakes complete through the SYN cache and through cookies, under floods, losses and a
 * full accept queue, and nothing half-open stays for ever. Bound: under 20 s. */
#include "wire/checksum.h"
#include "world.h"

static uint8_t buf[65536];

static int listen_on(uint16_t port, int backlog)
{
    struct sockaddr_storage ss;
    socklen_t len = peer_sockaddr(peer_local(w.p), port, &ss);
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_int_equal(weir_bind(fd, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(weir_listen(fd, backlog), 0);
    return fd;
}

static long cache_count(void)
{
    char text[32];

    assert_true(owner_try(w.s));
    assert_int_equal(sysctl_get(w.s, "net.inet.tcp.syncache.count", text, sizeof(text)), 0);
    stack_leave(w.s);
    return atol(text);
}

/* FreeBSD's SYN-ACK: what it offers, and when it is repeated. */
static void test_syn_ack(void **state)
{
    struct conn c;
    static const uint8_t with_ts[] = {2, 4, 5, 180, 1, 3, 3, 6, 4, 2, 8, 10};
    static const uint8_t without_ts[] = {2, 4, 5, 180, 1, 3, 3, 6, 4, 2, 0, 0};

    listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.optlen, 20);
    assert_memory_equal(w.k.opt, with_ts, sizeof(with_ts));
    assert_int_equal(w.k.to.tsecr, 100);
    assert_int_equal(w.k.th.win, 65535);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    uint64_t t = w.k.when_ns;
    static const uint64_t gap[] = {1000, 2200, 4200};
    for (int i = 0; i < 3; i++) {
        expect_flags(&c, TH_SYN | TH_ACK, 10 * NS_PER_S);
        assert_in_range(w.k.when_ns - t, gap[i] * MS, gap[i] * MS + MS);
        t = w.k.when_ns;
    }
    assert_true(peer_quiet(w.p, 60 * NS_PER_S));
    assert_int_equal(cache_count(), 0);
    assert_int_equal(sim_counter(w.s, "tcp.syncache_timeouts"), 1);
    conn_init(&c, w.p, 1001, 80);
    c.ts = false;
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.optlen, 12);
    assert_memory_equal(w.k.opt, without_ts, sizeof(without_ts));
    /* Only what was offered. */
    conn_init(&c, w.p, 1002, 80);
    c.ts = c.sack = false;
    c.wscale = -1;
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.optlen, 4);
    sim_sysctl(w.s, "net.inet.tcp.syn_option_order", "linux");
    static const uint8_t linux_order[] = {2, 4, 5, 180, 4, 2, 8, 10};
    conn_init(&c, w.p, 1003, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_memory_equal(w.k.opt, linux_order, sizeof(linux_order));
}

static void test_syn_again(void **state)
{
    struct conn c;

    listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    uint32_t iss = w.k.th.seq;
    sim_run(w.sim, 500 * MS);
    c.snd_nxt--;
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.th.seq, iss);
    assert_int_equal(w.k.to.tsecr, 600);
    uint64_t t = w.k.when_ns;
    expect_flags(&c, TH_SYN | TH_ACK, 3 * NS_PER_S); /* the timer starts anew */
    assert_in_range(w.k.when_ns - t, 1000 * MS, 1001 * MS);
    assert_int_equal(cache_count(), 1);
}

/* case: SEC-067 */
static void test_listener_ignores(void **state)
{
    struct conn c;

    int fd = listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_RST);
    conn_flags(&c, TH_RST | TH_ACK);
    conn_flags(&c, TH_FIN);
    conn_flags(&c, 0);
    expect_quiet();
    static const uint8_t with_ack[] = {TH_ACK, TH_FIN | TH_ACK, TH_PUSH | TH_ACK, TH_SYN | TH_ACK};
    for (size_t i = 0; i < NELEM(with_ack); i++) {
        struct segment g = {
            .seq = 7, .ack = 4711, .flags = with_ack[i], .win = -1, .len = i == 2 ? 20 : 0};
        conn_send(&c, &g);
        expect_flags(&c, TH_RST, MS);
        assert_int_equal(w.k.th.seq, 4711);
    }
    conn_init(&c, w.p, 1001, 80);
    conn_accept(&c, &fd, w.s);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
}

/* case: SEC-038, SEC-061 */
static void test_syn_with_extras(void **state)
{
    struct conn c;
    struct segment g;

    int fd = listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    g = (struct segment){
        .seq = c.snd_nxt, .flags = TH_SYN | TH_FIN | TH_PUSH, .win = -1, .data = "x", .len = 1};
    conn_send(&c, &g);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt + 1); /* neither data nor FIN */
    assert_int_equal(w.k.len, 0);
    c.snd_nxt++;
    conn_ack(&c);
    int a = weir_accept(fd, NULL, NULL);
    assert_true(a >= 0);
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    /* A FIN without data, one byte beyond: remembered, answered once. */
    send_at(&c, 1, TH_FIN | TH_ACK, 0);
    expect_ack(&c, c.snd_nxt);
    expect_quiet();
    conn_data(&c, 1);
    expect_ack(&c, c.snd_nxt + 1);
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_CLOSE_WAIT);
    sim_sysctl(w.s, "net.inet.tcp.drop_synfin", "1");
    conn_init(&c, w.p, 1001, 80);
    conn_flags(&c, TH_SYN | TH_FIN);
    expect_quiet();
}

/* A SYN-ACK with FIN closes the peer's half; a crossing SYN's FIN does when the handshake is over.
 * case: SEC-061 */
static void test_fin_in_syn_sent(void **state)
{
    for (int crossing = 0; crossing < 2; crossing++) {
        struct conn c;
        struct sockaddr_storage ss;
        socklen_t sl = peer_sockaddr(peer_remote(w.p), 999, &ss);
        conn_init(&c, w.p, 999, 0);
        int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
        expect_flags(&c, TH_SYN, MS);
        c.dport = w.k.th.sport;
        struct segment g =
            seg_at(&c, c.snd_nxt, crossing ? TH_SYN | TH_FIN : TH_SYN | TH_ACK | TH_FIN, 0);
        conn_send(&c, &g);
        c.snd_nxt += crossing ? 1 : 2;
        expect_flags(&c, crossing ? TH_SYN | TH_ACK : TH_ACK, MS);
        assert_int_equal(w.k.th.ack, c.snd_nxt);
        if (crossing) {
            conn_flags(&c, TH_ACK);
            expect_ack(&c, ++c.snd_nxt);
        }
        expect_quiet();
        assert_int_equal(world_state(&c), TCPS_CLOSE_WAIT);
        weir_close(fd);
        sim_run(w.sim, MS);
        conn_flags(&c, TH_RST);
        peer_drain(w.p);
    }
}

static void test_reset_of_entry(void **state)
{
    struct conn c;

    listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    send_at(&c, 0, TH_RST | TH_ACK, 0); /* not an answer to a SYN-ACK */
    send_at(&c, 70000, TH_RST, 0);
    expect_quiet();
    send_at(&c, 5, TH_RST, 0);
    expect_ack(&c, c.snd_nxt); /* challenged */
    assert_int_equal(cache_count(), 1);
    send_at(&c, 0, TH_RST, 0);
    assert_int_equal(cache_count(), 0);
    assert_true(peer_quiet(w.p, 5 * NS_PER_S));
}

static void test_listener_closes(void **state)
{
    struct conn c;

    int fd = listen_on(80, 5);
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    weir_close(fd);
    assert_int_equal(cache_count(), 0);
    conn_ack(&c);
    expect_flags(&c, TH_RST, MS);
    assert_true(peer_quiet(w.p, 5 * NS_PER_S));
}

/* case: FUN-055 */
static void test_accept_queue_full(void **state)
{
    struct conn c[3];
    int fd = listen_on(80, 1); /* Linux: one more than the backlog fits */

    for (int i = 0; i < 3; i++) {
        conn_init(&c[i], w.p, (uint16_t)(1000 + i), 80);
        conn_flags(&c[i], TH_SYN);
        expect_flags(&c[i], TH_SYN | TH_ACK, MS);
        conn_ack(&c[i]);
    }
    expect_quiet();
    assert_int_equal(world_state(&c[2]), TCPS_CLOSED);
    conn_data(&c[2], 500); /* it believes it is connected */
    c[2].snd_nxt -= 500;
    expect_quiet();
    sim_run(w.sim, 3 * NS_PER_S);
    peer_drain(w.p);
    for (int i = 0; i < 2; i++)
        assert_true(weir_accept(fd, NULL, NULL) >= 0);
    expect_flags(&c[2], TH_SYN | TH_ACK, 5 * NS_PER_S);
    c[2].rcv_nxt = w.k.th.seq + 1;
    conn_ack(&c[2]);
    conn_data(&c[2], 500);
    int a = weir_accept4(fd, NULL, NULL, SOCK_NONBLOCK);
    assert_true(a >= 0);
    assert_int_equal(read_pattern(a, 0, buf, sizeof(buf)), 500);
    assert_int_equal(weir_accept(fd, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
}

/* --- floods and cookies --- */

static void flood(uint32_t n)
{
    static uint32_t i;
    uint8_t b[20];

    for (uint32_t end = i + n; i < end; i++) {
        struct ipaddr from = ipaddr_v4(0x0a000000u + i * 2654435761u % 0xffffff);
        memset(b, 0, sizeof(b));
        put_be16(b, (uint16_t)(1024 + i % 60000));
        put_be16(b + 2, 80);
        put_be32(b + 4, i * 7919);
        b[12] = 0x50;
        b[13] = TH_SYN;
        put_be16(b + 14, 1000);
        uint64_t sum = checksum_pseudo(&from, peer_local(w.p), IPPROTO_TCP, sizeof(b));
        uint16_t folded = (uint16_t)~checksum_fold(checksum_add(b, sizeof(b), sum));
        memcpy(b + 16, &folded, 2);
        peer_inject_ip(w.p, &from, IPPROTO_TCP, b, sizeof(b));
        if (i % 64 == 0)
            peer_drain(w.p);
    }
    peer_drain(w.p);
}

/* case: SEC-029 */
static void test_flood(void **state)
{
    struct conn c;
    int64_t mbufs, bytes;
    int fd = listen_on(80, 128);

    sim_sysctl(w.s, "net.inet.tcp.syncache.cachelimit", "1000");
    for (int round = 0; round < 20; round++) {
        flood(500);
        conn_init(&c, w.p, (uint16_t)(1000 + round), 80);
        conn_flags(&c, TH_SYN);
        do
            assert_true(conn_next(&c, &w.k, MS));
        while (w.k.th.flags != (TH_SYN | TH_ACK));
        flood(500);
        conn_ack(&c);
        conn_data(&c, 100);
        int a = weir_accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        assert_true(a >= 0);
        assert_int_equal(read_pattern(a, 0, buf, sizeof(buf)), 100);
        assert_true(cache_count() <= 1000);
        sim_run(w.sim, 20 * MS);
    }
    assert_true(sim_counter(w.s, "tcp.cookie_recv") > 0);
    mbuf_usage(&mbufs, &bytes);
    assert_true(mbufs < 100);
    /* Everything half-open ends; and then a cookie is nothing any more. */
    sim_run(w.sim, 120 * NS_PER_S);
    peer_drain(w.p);
    assert_int_equal(cache_count(), 0);
    conn_init(&c, w.p, 5000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    send_at(&c, 0, TH_RST, 0);
    assert_int_equal(cache_count(), 0);
    conn_ack(&c);
    expect_flags(&c, TH_RST, MS);
    /* Clients whose last ACK lacks the timestamp do not fill the cache for ever. */
    for (int i = 0; i < 50; i++) {
        conn_init(&c, w.p, (uint16_t)(6000 + i), 80);
        conn_flags(&c, TH_SYN);
        expect_flags(&c, TH_SYN | TH_ACK, MS);
        struct segment g = seg_at(&c, c.snd_nxt, TH_ACK, 0);
        g.no_ts = true;
        conn_send(&c, &g);
    }
    assert_int_equal(cache_count(), 50);
    sim_run(w.sim, 60 * NS_PER_S);
    assert_int_equal(cache_count(), 0);
}

/* case: SEC-032 */
static void test_cookie_with_data(void **state)
{
    struct conn c;
    int fd = listen_on(80, 5);

    sim_sysctl(w.s, "net.inet.tcp.syncookies_only", "1");
    conn_init(&c, w.p, 1000, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(cache_count(), 0);
    assert_true(w.k.to.flags & TOF_TS);
    assert_int_equal(w.k.to.wscale, 6);
    assert_true(peer_quiet(w.p, 3 * NS_PER_S)); /* nothing is kept, nothing is repeated */
    conn_ack(&c);
    conn_data(&c, 1000);
    conn_data(&c, 1000);
    conn_data(&c, 1000);
    conn_flags(&c, TH_FIN | TH_ACK);
    int a = weir_accept4(fd, NULL, NULL, SOCK_NONBLOCK);
    assert_true(a >= 0);
    assert_int_equal(read_pattern(a, 0, buf, sizeof(buf)), 3000);
    assert_int_equal(weir_read(a, buf, 1), 0);
    struct tcpcb *tp = world_tcpcb(&c);
    assert_int_equal(tp->snd_scale, 7);
    assert_true(tp->t_flags & TF_SACK_PERMIT);
    assert_true(tp->t_flags & TF_RCVD_TSTMP);
    assert_int_equal(tp->t_maxseg, 1460);
    /* The ACK is lost: the first data segment opens the connection. */
    peer_drain(w.p);
    conn_init(&c, w.p, 1001, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    conn_data(&c, 700);
    a = weir_accept4(fd, NULL, NULL, SOCK_NONBLOCK);
    assert_int_equal(read_pattern(a, 0, buf, sizeof(buf)), 700);
    /* A forged one. */
    conn_init(&c, w.p, 1002, 80);
    c.rcv_nxt = 12345;
    conn_ack(&c);
    expect_flags(&c, TH_RST, 100 * MS);
}

/* case: FUN-016 */
static void test_wscale_above_14(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_init(&c, w.p, w.next_port++, 80);
    c.wscale = 15;
    conn_accept(&c, &w.listener, w.s);
    assert_int_equal(world_tcpcb(&c)->snd_scale, 14);
    conn_init(&c, w.p, 900, 0);
    c.wscale = 200;
    conn_connect(&c, w.s);
    assert_int_equal(world_tcpcb(&c)->snd_scale, 14);
}

/* --- simultaneous open --- */

static void open_crossing(int options, bool lose)
{
    struct conn c;
    struct sockaddr_storage ss;
    uint16_t port = w.next_port++;
    socklen_t sl = peer_sockaddr(peer_remote(w.p), port, &ss);

    conn_init(&c, w.p, port, 0);
    c.ts = options & 1;
    c.sack = options & 2;
    c.wscale = options & 4 ? 7 : -1;
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
    expect_flags(&c, TH_SYN, MS);
    c.dport = w.k.th.sport;
    uint32_t iss = w.k.th.seq;
    struct segment g = {
        .seq = c.snd_nxt++, .flags = TH_SYN, .win = -1, .len = options & 8 ? 50 : 0};
    conn_send(&c, &g);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    assert_int_equal(w.k.th.seq, iss);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    assert_int_equal(!!(w.k.to.flags & TOF_TS), c.ts);
    assert_int_equal(!!(w.k.to.flags & TOF_SACKPERM), c.sack);
    assert_int_equal(!!(w.k.to.flags & TOF_SCALE), c.wscale >= 0);
    assert_int_equal(world_state(&c), TCPS_SYN_RECEIVED);
    if (lose) {
        expect_flags(&c, TH_SYN | TH_ACK, 3 * NS_PER_S);
        assert_int_equal(w.k.th.seq, iss);
    }
    /* The peer's SYN-ACK, as a stack would send it. */
    c.snd_nxt--;
    conn_flags(&c, TH_SYN | TH_ACK);
    sim_run(w.sim, MS);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    while (conn_next(&c, &w.k, 100 * MS))
        assert_int_equal(w.k.th.flags, TH_ACK);
    int error = -1;
    socklen_t el = sizeof(error);
    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &el), 0);
    assert_int_equal(error, 0);
    if (options & 8) { /* text of the SYN was kept */
        assert_int_equal(weir_read(fd, buf, sizeof(buf)), 50);
        c.snd_nxt += 50;
    }
    conn_data(&c, 100);
    assert_int_equal(read_pattern(fd, options & 8 ? 50 : 0, buf, sizeof(buf)), 100);
    assert_int_equal(weir_write(fd, "abc", 3), 3);
    assert_true(conn_next(&c, &w.k, 100 * MS));
    assert_int_equal(w.k.len, 3);
    conn_ack(&c);
    weir_close(fd);
    sim_run(w.sim, MS);
    conn_flags(&c, TH_RST);
    peer_drain(w.p);
}

/* case: FUN-061 */
static void test_simultaneous_open(void **state)
{
    for (int options = 0; options < 16; options++) {
        open_crossing(options, false);
        open_crossing(options, true);
    }
}

/* Text that waits for the end of a handshake is held to the memory that so_rcv may cost, however
 * small its pieces are; what was not kept comes again. */
static void test_early_text_is_bounded(void **state)
{
    struct conn c;
    struct sockaddr_storage ss;
    uint16_t port = w.next_port++;
    socklen_t sl = peer_sockaddr(peer_remote(w.p), port, &ss);

    conn_init(&c, w.p, port, 0);
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
    expect_flags(&c, TH_SYN, MS);
    c.dport = w.k.th.sport;
    conn_send(&c, &(struct segment){.seq = c.snd_nxt++, .flags = TH_SYN, .win = -1});
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    struct tcpcb *tp = world_tcpcb(&c);
    for (uint32_t i = 0; i < 5000; i++) {
        conn_send(&c, &(struct segment){.seq = c.snd_nxt + i, .win = -1, .len = 1});
        if (i % 32 == 31)
            sim_run(w.sim, MS / 100);
    }
    sim_run(w.sim, MS);
    assert_int_equal(tp->t_state, TCPS_SYN_RECEIVED);
    assert_true(tp->t_early_len > 500);
    assert_in_range(mbuf_chain_mem(tp->t_early), 1, LOAD_RELAXED(&tp->t_so->so_rcv.sb_memmax));
    conn_send(&c, &(struct segment){
                      .seq = c.snd_nxt, .ack = c.rcv_nxt, .flags = TH_ACK, .win = -1, .len = 1000});
    c.snd_nxt += 1000;
    sim_run(w.sim, MS);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    assert_true(read_pattern(fd, 0, buf, sizeof(buf)) >= 1000);
    weir_close(fd);
    sim_run(w.sim, MS);
    conn_flags(&c, TH_RST);
    peer_drain(w.p);
}

/* --- no memory --- */

static void test_no_memory(void **state)
{
    struct conn c;
    int fd = listen_on(80, 50);

    for (int n = 0; n < 12; n++) {
        conn_init(&c, w.p, (uint16_t)(1000 + n), 80);
        sim_fail_alloc_after(w.sim, n % 6);
        conn_flags(&c, TH_SYN);
        sim_fail_alloc_after(w.sim, -1);
        while (conn_next(&c, &w.k, MS))
            ;
        sim_fail_alloc_after(w.sim, n / 2);
        conn_ack(&c);
        sim_fail_alloc_after(w.sim, -1);
        conn_data(&c, 10);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    int a;
    while ((a = weir_accept(fd, NULL, NULL)) >= 0)
        weir_close(a);
    sim_run(w.sim, 300 * NS_PER_S);
    assert_int_equal(cache_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_syn_ack),
        WORLD_TEST(test_syn_again),
        WORLD_TEST(test_listener_ignores),
        WORLD_TEST(test_syn_with_extras),
        WORLD_TEST(test_fin_in_syn_sent),
        WORLD_TEST(test_reset_of_entry),
        WORLD_TEST(test_listener_closes),
        WORLD_TEST(test_accept_queue_full),
        WORLD_TEST(test_flood),
        WORLD_TEST(test_cookie_with_data),
        WORLD_TEST(test_wscale_above_14),
        WORLD_TEST(test_simultaneous_open),
        WORLD_TEST(test_early_text_is_bounded),
        WORLD_TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
