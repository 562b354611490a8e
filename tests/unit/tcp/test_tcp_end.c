/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: connections end as RFC 9293 3.6 says, whoever closes first and whatever is lost, repeated
 * or out of time; resets are sent and taken where they belong; TIME_WAIT holds. Bound: under 10 s.
 */
#include "wire/checksum.h"
#include "world.h"
#include <netinet/tcp.h>

static uint8_t buf[65536];

/* The stack closes first: FIN_WAIT_1. */
static void close_first(struct conn *c)
{
    world_accept(c);
    assert_int_equal(weir_close(c->fd), 0);
    expect_flags(c, TH_FIN | TH_ACK, 50 * MS);
    assert_int_equal(world_state(c), TCPS_FIN_WAIT_1);
}

static void to_timewait(struct conn *c)
{
    close_first(c);
    conn_ack(c);
    assert_int_equal(world_state(c), TCPS_FIN_WAIT_2);
    conn_flags(c, TH_FIN | TH_ACK);
    expect_ack(c, c->snd_nxt);
    assert_int_equal(world_state(c), TCPS_TIME_WAIT);
}

static void test_active_close(void **state)
{
    struct conn c;

    to_timewait(&c);
    sim_run(w.sim, 59 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    sim_run(w.sim, 2 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    expect_quiet();
}

/* FIN and ACK of ours in one segment. */
static void test_active_close_in_one(void **state)
{
    struct conn c;

    close_first(&c);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
}

static void test_passive_close(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_CLOSE_WAIT);
    assert_int_equal(weir_read(c.fd, buf, 1), 0);
    assert_int_equal(weir_write(c.fd, "bye", 3), 3);
    assert_true(conn_next(&c, &w.k, MS));
    assert_int_equal(weir_close(c.fd), 0);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    assert_int_equal(world_state(&c), TCPS_LAST_ACK);
    /* Its FIN again: acknowledged again. */
    struct segment g = seg_at(&c, c.snd_nxt - 1, TH_FIN | TH_ACK, 0);
    g.ack = w.k.th.seq;
    conn_send(&c, &g);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    conn_ack(&c);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    expect_quiet();
}

/* Both at once; the peer's ACKs are lost. case: FUN-025 */
static void test_closing(void **state)
{
    struct conn c;

    world_accept(&c);
    weir_close(c.fd);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    uint32_t fin = w.k.th.seq;
    struct segment g = seg_at(&c, c.snd_nxt, TH_FIN | TH_ACK, 0);
    g.ack = fin; /* ours is not acknowledged */
    conn_send(&c, &g);
    c.snd_nxt++;
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS); /* the ACK carries the FIN again */
    assert_int_equal(w.k.th.seq, fin);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_CLOSING);
    for (int i = 0; i < 3; i++) {
        expect_flags(&c, TH_FIN | TH_ACK, 20 * NS_PER_S);
        assert_int_equal(w.k.th.seq, fin);
        assert_int_equal(w.k.len, 0);
    }
    g = seg_at(&c, c.snd_nxt, TH_ACK, 0);
    g.ack = fin + 1;
    conn_send(&c, &g);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    sim_run(w.sim, 61 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

/* A late SYN-ACK or SYN changes nothing in any state. case: FUN-035 */
static void test_late_syn_ack(void **state)
{
    struct conn c;
    uint32_t irs;

    conn_init(&c, w.p, 999, 0);
    conn_connect(&c, w.s);
    irs = c.snd_nxt - 1;
    struct segment g = seg_at(&c, irs, TH_SYN | TH_ACK, 0);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    weir_shutdown(c.fd, SHUT_WR);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_FIN_WAIT_1);
    conn_ack(&c);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_FIN_WAIT_2);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt);
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    weir_close(c.fd);
}

/* Half-closed: the peer goes on sending. case: FUN-049 */
static void test_data_in_fin_wait_2(void **state)
{
    struct conn c;

    world_accept(&c);
    weir_shutdown(c.fd, SHUT_WR);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    conn_ack(&c);
    for (int i = 0; i < 10; i++) {
        conn_data(&c, 1000);
        conn_data(&c, 1000);
        expect_ack(&c, c.snd_nxt);
    }
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 20000);
    /* With the descriptor gone nobody will read it: a reset, by its own number. case: FUN-046 */
    weir_close(c.fd);
    sim_run(w.sim, MS);
    peer_drain(w.p); /* a window update */
    conn_data(&c, 10);
    expect_flags(&c, TH_RST, MS);
    assert_int_equal(w.k.th.seq, c.rcv_nxt);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

/* case: FUN-046 */
static void test_listener_with_queue_closes(void **state)
{
    struct conn c[5];

    world_accept(&c[0]);
    for (int i = 1; i < 5; i++) {
        conn_init(&c[i], w.p, w.next_port++, 80);
        conn_flags(&c[i], TH_SYN);
        expect_flags(&c[i], TH_SYN | TH_ACK, MS);
        conn_ack(&c[i]);
    }
    weir_close(w.listener);
    for (int i = 1; i < 5; i++) {
        assert_true(peer_next(w.p, &w.k, MS));
        assert_true(w.k.th.flags & TH_RST);
    }
    expect_quiet();
    assert_int_equal(world_state(&c[0]), TCPS_ESTABLISHED);
}

/* case: FUN-041 */
static void test_close_with_unread_data(void **state)
{
    struct conn c;

    for (int some = 0; some < 2; some++) {
        world_accept(&c);
        conn_data(&c, 100);
        if (some)
            assert_int_equal(weir_recv(c.fd, buf, 10, 0), 10);
        peer_drain(w.p);
        weir_close(c.fd);
        expect_flags(&c, TH_RST | TH_ACK, MS);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
    }
}

/* A reset in every state on the way out: nothing is left. case: FUN-053 */
static void test_reset_everywhere(void **state)
{
    for (int step = 0; step < 7; step++) {
        struct conn c;
        world_accept(&c);
        if (step >= 5)
            conn_flags(&c, TH_FIN | TH_ACK);
        if (step == 1)
            weir_shutdown(c.fd, SHUT_WR);
        if (step >= 2)
            weir_close(c.fd);
        while (conn_next(&c, &w.k, MS))
            ;
        if (step == 3)
            conn_ack(&c);
        if (step == 4)
            conn_flags(&c, TH_FIN | TH_ACK);
        send_at(&c, 0, TH_RST, 0);
        sim_run(w.sim, MS);
        assert_int_equal(world_state(&c), step == 4 ? TCPS_TIME_WAIT : TCPS_CLOSED);
        if (step < 2)
            weir_close(c.fd);
        peer_drain(w.p);
    }
    sim_run(w.sim, 120 * NS_PER_S);
    char text[32];
    assert_true(owner_try(w.s));
    assert_int_equal(sysctl_get(w.s, "net.inet.tcp.pcbcount", text, sizeof(text)), 0);
    stack_leave(w.s);
    assert_string_equal(text, "1"); /* the listener */
}

/* close() while the handshake is under way: the peer is told by a reset or a FIN. case: FUN-040 */
static void test_close_while_connecting(void **state)
{
    for (int when = 0; when < 4; when++) {
        struct conn c;
        struct sockaddr_storage ss;
        uint16_t port = w.next_port++;
        socklen_t sl = peer_sockaddr(peer_remote(w.p), port, &ss);
        conn_init(&c, w.p, port, 0);
        c.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(weir_connect(c.fd, (struct sockaddr *)&ss, sl), -1);
        if (when == 0)
            weir_close(c.fd);
        expect_flags(&c, TH_SYN, MS);
        c.dport = w.k.th.sport;
        if (when == 1)
            weir_close(c.fd);
        if (when == 3) { /* crossing SYNs */
            conn_flags(&c, TH_SYN);
            expect_flags(&c, TH_SYN | TH_ACK, MS);
            weir_close(c.fd);
            c.snd_nxt--;
        }
        conn_flags(&c, TH_SYN | TH_ACK);
        if (when == 2)
            weir_close(c.fd);
        bool told = false;
        while (conn_next(&c, &w.k, 10 * MS))
            told |= (w.k.th.flags & (TH_RST | TH_FIN)) != 0;
        assert_true(told);
        conn_flags(&c, TH_FIN | TH_ACK);
        sim_run(w.sim, 100 * NS_PER_S);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
        peer_drain(w.p);
    }
}

/* --- TIME_WAIT --- */

/* case: FUN-037 */
static void test_fin_again(void **state)
{
    struct conn c;

    world_accept(&c);
    weir_shutdown(c.fd, SHUT_RDWR);
    expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
    weir_close(c.fd);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt);
    sim_run(w.sim, 20 * NS_PER_S);
    send_at(&c, -1, TH_FIN | TH_ACK, 0);
    expect_ack(&c, c.snd_nxt);
    sim_run(w.sim, 55 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    sim_run(w.sim, 10 * NS_PER_S);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

/* RFC 1337. */
static void test_timewait_ignores_resets(void **state)
{
    struct conn c;

    to_timewait(&c);
    send_at(&c, 0, TH_RST, 0);
    send_at(&c, 0, TH_RST | TH_ACK, 0);
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
    conn_data(&c, 10); /* acknowledged for what it is: nothing */
    expect_ack(&c, c.snd_nxt - 10);
    c.snd_nxt -= 10;
    conn_ack(&c);
    expect_quiet();
}

/* case: FUN-038 */
static void test_timewait_reuse(void **state)
{
    enum { SEQ_HIGH = 1, TS_NEW = 2, NO_TS = 4 };
    static const struct {
        int how;
        bool taken;
    } kind[] = {
        {SEQ_HIGH | TS_NEW, true}, {TS_NEW, true}, {SEQ_HIGH, true}, {0, false}, {NO_TS, false},
        {SEQ_HIGH | NO_TS, true}};

    for (size_t i = 0; i < NELEM(kind); i++) {
        struct conn c, d;
        conn_init(&c, w.p, (uint16_t)(20000 + i), 80);
        c.ts = !(kind[i].how & NO_TS);
        conn_accept(&c, &w.listener, w.s);
        weir_close(c.fd);
        expect_flags(&c, TH_FIN | TH_ACK, 50 * MS);
        conn_flags(&c, TH_FIN | TH_ACK);
        expect_ack(&c, c.snd_nxt);
        sim_run(w.sim, MS);
        conn_init(&d, w.p, c.sport, 80);
        d.ts = c.ts;
        d.iss = d.snd_nxt = c.snd_nxt + (kind[i].how & SEQ_HIGH ? 1000 : (uint32_t)-1000);
        d.tsval = kind[i].how & TS_NEW ? c.tsval + 1000 : c.tsval - 50;
        for (int burst = 0; burst < 3; burst++) {
            d.snd_nxt = d.iss;
            conn_flags(&d, TH_SYN);
        }
        assert_true(conn_next(&d, &w.k, MS));
        if (!kind[i].taken) {
            assert_int_equal(w.k.th.flags, TH_ACK);
            assert_int_equal(w.k.th.ack, c.snd_nxt);
            assert_int_equal(world_state(&c), TCPS_TIME_WAIT);
            peer_drain(w.p);
            continue;
        }
        assert_int_equal(w.k.th.flags, TH_SYN | TH_ACK);
        assert_int_equal(w.k.th.ack, d.snd_nxt);
        conn_ack(&d);
        assert_int_equal(world_state(&d), TCPS_ESTABLISHED);
        int a = weir_accept4(w.listener, NULL, NULL, SOCK_NONBLOCK);
        assert_true(a >= 0);
        struct pollfd pfd = {.fd = w.listener, .events = POLLIN};
        assert_int_equal(weir_poll(&pfd, 1, 0), 0); /* one connection */
        weir_close(a);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
}

/* A SYN in the same batch as the last ACK. case: FUN-038 */
static void test_syn_behind_last_ack(void **state)
{
    struct conn c, d;

    world_accept(&c);
    conn_flags(&c, TH_FIN | TH_ACK);
    weir_close(c.fd);
    while (conn_next(&c, &w.k, MS))
        ;
    assert_int_equal(world_state(&c), TCPS_LAST_ACK);
    conn_init(&d, w.p, c.sport, 80);
    d.iss = d.snd_nxt = c.snd_nxt + 1000;
    d.tsval = c.tsval + 1000;
    conn_ack(&c);
    conn_flags(&d, TH_SYN);
    expect_flags(&d, TH_SYN | TH_ACK, MS);
}

static void test_timewait_limit(void **state)
{
    struct conn c;

    sim_sysctl(w.s, "net.inet.tcp.maxtcptw", "2");
    for (int i = 0; i < 2; i++)
        to_timewait(&c);
    close_first(&c);
    conn_flags(&c, TH_FIN | TH_ACK);
    expect_ack(&c, c.snd_nxt); /* the last ACK goes out all the same */
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    assert_int_equal(sim_counter(w.s, "tcp.timewait_limit"), 1);
}

/* --- ICMP --- */

static void send_icmp(struct conn *c, uint8_t type, uint8_t code, uint32_t seq, uint16_t mtu)
{
    uint8_t b[8 + 20 + 8] = {type, code};

    put_be16(b + 6, mtu);
    b[8] = 0x45;
    put_be16(b + 10, 60);
    b[16] = 64;
    b[17] = IPPROTO_TCP;
    memcpy(b + 20, peer_local(w.p)->b, 4);
    memcpy(b + 24, peer_remote(w.p)->b, 4);
    put_be16(b + 28, c->dport);
    put_be16(b + 30, c->sport);
    put_be32(b + 32, seq);
    uint16_t sum = (uint16_t)~checksum_fold(checksum_add(b, sizeof(b), 0));
    memcpy(b + 2, &sum, 2);
    peer_inject_ip(w.p, NULL, IPPROTO_ICMP, b, sizeof(b));
}

static int connect_half(struct conn *c)
{
    struct sockaddr_storage ss;
    socklen_t sl = peer_sockaddr(peer_remote(w.p), 999, &ss);
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    conn_init(c, w.p, 999, 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&ss, sl), -1);
    expect_flags(c, TH_SYN, MS);
    c->dport = w.k.th.sport;
    return fd;
}

static int so_error_of(int fd)
{
    int error = -1;
    socklen_t len = sizeof(error);

    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    return error;
}

static void test_icmp_in_syn_sent(void **state)
{
    struct conn c;
    int fd = connect_half(&c);

    send_icmp(&c, 3, 3, w.k.th.seq + 1, 0); /* nothing that was sent */
    assert_int_equal(world_state(&c), TCPS_SYN_SENT);
    send_icmp(&c, 3, 1, w.k.th.seq, 0); /* routes come back */
    assert_int_equal(world_state(&c), TCPS_SYN_SENT);
    send_icmp(&c, 3, 3, w.k.th.seq, 0);
    assert_int_equal(so_error_of(fd), ECONNREFUSED);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    sim_sysctl(w.s, "net.inet.tcp.icmp_may_rst", "0");
    fd = connect_half(&c);
    send_icmp(&c, 3, 3, w.k.th.seq, 0);
    assert_int_equal(world_state(&c), TCPS_SYN_SENT);
    weir_close(fd);
}

/* case: SEC-053, SEC-052 */
static void test_icmp_when_established(void **state)
{
    struct conn c;

    world_accept(&c);
    struct tcpcb *tp = world_tcpcb(&c);
    memset(buf, 'x', 5000);
    assert_int_equal(weir_write(c.fd, buf, 5000), 5000);
    sim_run(w.sim, MS);
    peer_drain(w.p);
    for (uint8_t code = 0; code < 16; code++) {
        if (code != 4)
            send_icmp(&c, 3, code, tp->snd_una, 0);
    }
    send_icmp(&c, 4, 0, tp->snd_una, 0);
    assert_int_equal(tp->t_state, TCPS_ESTABLISHED);
    uint32_t mss = tp->t_maxseg;
    send_icmp(&c, 3, 4, tp->snd_max + 5, 1000); /* nothing in flight */
    send_icmp(&c, 3, 4, tp->snd_una - 1, 1000);
    assert_int_equal(tp->t_maxseg, mss);
    send_icmp(&c, 3, 4, tp->snd_una, 9000); /* never up */
    assert_int_equal(tp->t_maxseg, mss);
    send_icmp(&c, 3, 4, tp->snd_una, 1000);
    assert_int_equal(tp->t_maxseg, 960);
    assert_true(conn_next(&c, &w.k, MS)); /* again at once, smaller */
    assert_in_range(w.k.len, 1, 948);
    send_icmp(&c, 3, 4, tp->snd_una, 68); /* not below the floor */
    assert_int_equal(tp->t_maxseg, 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_active_close),
        WORLD_TEST(test_active_close_in_one),
        WORLD_TEST(test_passive_close),
        WORLD_TEST(test_closing),
        WORLD_TEST(test_late_syn_ack),
        WORLD_TEST(test_data_in_fin_wait_2),
        WORLD_TEST(test_listener_with_queue_closes),
        WORLD_TEST(test_close_with_unread_data),
        WORLD_TEST(test_reset_everywhere),
        WORLD_TEST(test_close_while_connecting),
        WORLD_TEST(test_fin_again),
        WORLD_TEST(test_timewait_ignores_resets),
        WORLD_TEST(test_timewait_reuse),
        WORLD_TEST(test_syn_behind_last_ack),
        WORLD_TEST(test_timewait_limit),
        WORLD_TEST(test_icmp_in_syn_sent),
        WORLD_TEST(test_icmp_when_established),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
