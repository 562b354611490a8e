/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a stack against a scripted peer that shuts its window, acknowledges half, speaks early or
 * was silent for weeks. Bound: a few hundred segments a test. */
#include "../unit/tcp/world.h"

static void accepted(struct conn *c)
{
    conn_init(c, w.p, 40000, 80);
    conn_accept(c, &w.listener, w.s);
}

static uint8_t byte_at(uint32_t at)
{
    return (uint8_t)(at * 13 + at / 256);
}

static void app_sends(const struct conn *c, uint32_t len)
{
    uint8_t *data = malloc(len);

    for (uint32_t i = 0; i < len; i++)
        data[i] = byte_at(i);
    assert_int_equal(weir_send(c->fd, data, len, MSG_DONTWAIT), len);
    free(data);
}

/* Bytes of the stack's stream that the peer has in order. */
static uint32_t peer_has(const struct conn *c)
{
    return c->rcv_nxt - c->irs - 1;
}

/* Take what comes, acknowledging with the window given, until the peer has n bytes. */
static void peer_collects(struct conn *c, uint32_t n)
{
    for (int i = 0; peer_has(c) < n; i++) {
        assert_true(i < 1000);
        if (conn_next(c, &w.k, 60 * NS_PER_S)) {
            uint32_t at = w.k.th.seq - c->irs - 1;
            for (uint32_t b = 0; b < w.k.len; b++)
                assert_int_equal(w.k.data[b], byte_at(at + b));
        }
        conn_ack(c);
    }
}

/* case: FUN-070 */
static void a_syn_ack_with_window_zero(void **state)
{
    struct conn c;

    conn_init(&c, w.p, 7000, 0);
    c.win = 0;
    conn_connect(&c, w.s);
    app_sends(&c, 100);
    uint32_t before = c.rcv_nxt;
    for (int i = 0; i < 5;
         i++) { /* nothing but probes, of a byte at most, for as long as it takes */
        assert_true(conn_next(&c, &w.k, 120 * NS_PER_S));
        assert_in_range(w.k.len, 0, 1);
        c.rcv_nxt = before; /* not taken */
        conn_ack(&c);
    }
    c.win = 1000;
    conn_ack(&c);
    peer_collects(&c, 100);
    weir_close(c.fd);
}

/* case: FUN-005 */
static void peers_that_answer_probes_in_their_ways(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct conn c;
        conn_init(&c, w.p, (uint16_t)(7100 + kind), 0);
        c.win = 0;
        conn_connect(&c, w.s);
        app_sends(&c, 5000);
        uint32_t before = c.rcv_nxt;
        for (int i = 0; i < 4; i++) {
            assert_true(conn_next(&c, &w.k, 120 * NS_PER_S));
            assert_int_equal(w.k.th.seq, before); /* never skips */
            if (kind == 0) {
                assert_int_equal(w.k.len, 1); /* a peer that answers nothing else can be served */
                c.rcv_nxt = before;
            } else if (kind == 1) {
                before = c.rcv_nxt; /* takes the byte each time */
            } else {
                c.rcv_nxt = before; /* takes nothing but answers */
            }
            conn_ack(&c);
        }
        c.win = 5000;
        conn_ack(&c);
        peer_collects(&c, 5000);
        assert_int_equal(peer_has(&c), 5000);
        weir_close(c.fd);
    }
}

/* case: FUN-008 */
static void a_window_that_shuts_on_data_in_flight(void **state)
{
    struct conn c;

    accepted(&c);
    app_sends(&c, 14480);
    while (conn_next(&c, &w.k, 10 * NS_PER_MS))
        ;
    c.rcv_nxt = c.irs + 1 + 3 * 1448;
    c.win = 0;
    conn_ack(&c);
    for (int i = 0; i < 3; i++) { /* a timer runs all the time */
        uint32_t before = c.rcv_nxt;
        assert_true(conn_next(&c, &w.k, 120 * NS_PER_S));
        c.rcv_nxt = before;
        conn_ack(&c);
    }
    c.win = 65535;
    conn_ack(&c);
    peer_collects(&c, 14480);
    weir_close(c.fd);
}

/* case: FUN-022 */
static void peeking_does_not_open_the_window(void **state)
{
    static uint8_t buf[1 << 20];
    struct conn c;
    uint32_t edge = 0;

    accepted(&c);
    for (int i = 0; i < 40; i++)
        conn_data(&c, 1000);
    while (conn_next(&c, &w.k, 100 * NS_PER_MS))
        edge = w.k.th.ack + ((uint32_t)w.k.th.win << 6);
    for (int i = 0; i < 100; i++)
        assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT), 40000);
    assert_true(peer_quiet(w.p, NS_PER_S));
    struct segment old = {.seq = c.iss + 1, .ack = c.rcv_nxt, .flags = TH_ACK, .win = -1, .len = 1};
    conn_send(&c, &old);
    assert_true(conn_next(&c, &w.k, NS_PER_S));
    assert_int_equal(w.k.th.ack + ((uint32_t)w.k.th.win << 6), edge);
    assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 40000);
    assert_true(conn_next(&c, &w.k, NS_PER_S)); /* now it opens */
    assert_true(w.k.th.ack + ((uint32_t)w.k.th.win << 6) - edge >= 30000);
    weir_close(c.fd);
}

/* case: FUN-029 */
static void data_acknowledged_but_not_the_fin(void **state)
{
    struct conn c;

    accepted(&c);
    app_sends(&c, 500);
    assert_int_equal(weir_shutdown(c.fd, SHUT_WR), 0);
    uint32_t fin_at = c.irs + 1 + 500;
    bool fin = false;
    while (conn_next(&c, &w.k, 10 * NS_PER_MS))
        fin |= w.k.th.flags & TH_FIN;
    assert_true(fin);
    c.rcv_nxt = fin_at;
    conn_ack(&c);
    for (int i = 0; i < 2; i++) {
        assert_true(conn_next(&c, &w.k, 60 * NS_PER_S));
        assert_true(w.k.th.flags & TH_FIN);
        assert_int_equal(w.k.th.seq, fin_at);
        assert_int_equal(w.k.len, 0);
    }
    c.rcv_nxt = fin_at + 1;
    conn_ack(&c);
    assert_true(peer_quiet(w.p, 10 * NS_PER_S));
    weir_close(c.fd);
}

/* The handshake's last ACK carries data, or is lost and the data says it all, or the FIN comes with
 * it. */
/* case: FUN-139 */
static void data_with_the_last_ack(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct sockaddr_storage ss;
        struct conn c;
        uint8_t buf[512];
        if (w.listener < 0) {
            socklen_t len = peer_sockaddr(peer_local(w.p), 80, &ss);
            w.listener = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            assert_int_equal(weir_bind(w.listener, (struct sockaddr *)&ss, len), 0);
            assert_int_equal(weir_listen(w.listener, 8), 0);
        }
        conn_init(&c, w.p, (uint16_t)(7200 + kind), 80);
        conn_flags(&c, TH_SYN);
        assert_true(conn_next(&c, &w.k, NS_PER_S));
        assert_int_equal(w.k.th.flags & (TH_SYN | TH_ACK), TH_SYN | TH_ACK);
        if (kind == 1) { /* the second segment overtakes the first */
            struct segment late = {
                .seq = c.snd_nxt + 100, .ack = c.rcv_nxt, .flags = TH_ACK, .win = -1, .len = 100};
            conn_send(&c, &late);
            conn_data(&c, 100);
            c.snd_nxt += 100;
        } else {
            conn_data(&c, 100);
            conn_data(&c, 100);
        }
        if (kind == 2)
            conn_flags(&c, TH_FIN | TH_ACK);
        sim_run(w.sim, NS_PER_MS);
        c.fd = weir_accept(w.listener, NULL, NULL);
        assert_true(c.fd >= 0);
        assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 200);
        for (uint32_t i = 0; i < 200; i++)
            assert_int_equal(buf[i], peer_pattern(i));
        if (kind == 2)
            assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 0);
        weir_close(c.fd);
        peer_drain(w.p);
    }
}

/* A segment of the peer's stream at [from, to), and the ACK that it causes. */
static void out_of_order(struct conn *c, uint32_t from, uint32_t to)
{
    struct segment g = {
        .seq = c->iss + 1 + from, .ack = c->rcv_nxt, .flags = TH_ACK, .win = -1, .len = to - from};

    conn_send(c, &g);
    assert_true(conn_next(c, &w.k, NS_PER_S));
    assert_true(w.k.to.flags & TOF_SACK);
}

static void block_is(const struct conn *c, unsigned i, uint32_t from, uint32_t to)
{
    assert_true(i < w.k.to.nsack);
    assert_int_equal(w.k.to.sack[i].start - c->iss - 1, from);
    assert_int_equal(w.k.to.sack[i].end - c->iss - 1, to);
}

/* case: FUN-080 */
static void blocks_of_nested_and_touching_ranges(void **state)
{
    uint8_t buf[64];
    struct conn c;

    accepted(&c);
    out_of_order(&c, 10, 20);
    block_is(&c, 0, 10, 20);
    out_of_order(&c, 12,
                 15); /* inside: reported as a duplicate (RFC 2883), then the block it lies in */
    block_is(&c, 0, 12, 15);
    block_is(&c, 1, 10, 20);
    out_of_order(&c, 5, 30); /* around */
    block_is(&c, w.k.to.nsack - 1, 5, 30);
    out_of_order(&c, 30, 40); /* touching */
    block_is(&c, 0, 5, 40);
    assert_int_equal(w.k.to.nsack, 1);
    out_of_order(&c, 50, 60); /* the newest is first */
    block_is(&c, 0, 50, 60);
    block_is(&c, 1, 5, 40);
    struct segment g = {.seq = c.iss + 1, .ack = c.rcv_nxt, .flags = TH_ACK, .win = -1, .len = 5};
    conn_send(&c, &g);
    assert_true(conn_next(&c, &w.k, NS_PER_S));
    assert_int_equal(w.k.th.ack, c.iss + 1 + 40);
    assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 40);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(buf[i], peer_pattern(i));
    weir_close(c.fd);
}

/* case: FUN-095 */
static void a_timestamp_is_forgotten_after_weeks(void **state)
{
    uint8_t buf[64];
    struct conn c;

    sim_sysctl(w.s, "net.inet.tcp.always_keepalive", "0");
    accepted(&c);
    c.tsval = 1000000;
    conn_data(&c, 10);
    peer_drain(w.p);
    c.ts_per_ms = 0;
    c.tsval = 5000; /* looks older: the clock has gone round, or started anew */
    conn_data(&c, 10);
    sim_run(w.sim, NS_PER_S);
    assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 10); /* refused at once... */
    c.snd_nxt -= 10;
    sim_run(w.sim, 25 * 86400 * NS_PER_S);
    peer_drain(w.p);
    conn_data(&c, 10);
    assert_true(conn_next(&c, &w.k, NS_PER_S)); /* ...and taken after 25 days */
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    assert_int_equal(weir_recv(c.fd, buf, sizeof(buf), MSG_DONTWAIT), 10);
    weir_close(c.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_syn_ack_with_window_zero),
        WORLD_TEST(peers_that_answer_probes_in_their_ways),
        WORLD_TEST(a_window_that_shuts_on_data_in_flight),
        WORLD_TEST(peeking_does_not_open_the_window),
        WORLD_TEST(data_acknowledged_but_not_the_fin),
        WORLD_TEST(data_with_the_last_ack),
        WORLD_TEST(blocks_of_nested_and_touching_ranges),
        WORLD_TEST(a_timestamp_is_forgotten_after_weeks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
