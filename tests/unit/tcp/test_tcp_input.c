/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: segments of a connection are judged, trimmed, acknowledged and delivered as RFC 9293, 5961
 * and 7323 ask, and what an attacker may send changes nothing. Bound: under 10 s. */
#include "world.h"
#include <sys/ioctl.h>
#include <linux/sockios.h>

static uint8_t buf[200000];

static void test_data_and_delayed_ack(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 100);
    uint64_t t = sim_now(w.sim);
    expect_flags(&c, TH_ACK, 100 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    assert_in_range(w.k.when_ns - t, 39 * MS, 41 * MS);
    conn_data(&c, 1000);
    conn_data(&c, 1000);
    expect_ack(&c, c.snd_nxt); /* the second at once */
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 2100);
    expect_quiet();
}

/* n segments of len bytes that arrive together, from the peer's next byte + off on. */
static void send_row(struct conn *c, int32_t off, uint32_t n, uint32_t len, uint8_t last)
{
    peer_hold(w.p, true);
    for (uint32_t i = 0; i < n; i++, off += (int32_t)len)
        send_at(c, off, i + 1 < n ? TH_ACK : last, len);
    peer_hold(w.p, false);
}

/* What was merged on the way in counts as what the peer sent: two segments are acknowledged at
 * once, however small and whether PSH came or not, and one is not. */
/* case: FUN-142 */
static void test_merged_segments_count(void **state)
{
    struct conn c;

    world_accept(&c);
    struct tcpcb *tp = world_tcpcb(&c);
    uint32_t segs = tp->t_data_segs_in, total = 0;
    static const struct {
        uint32_t n, len;
        uint8_t last;
    } rows[] = {{2, 100, TH_ACK},
                {3, 1, TH_ACK | TH_PUSH},
                {7, 1448, TH_ACK},
                {45, 1448, TH_ACK | TH_PUSH}}; /* as many as a packet holds */
    for (size_t i = 0; i < NELEM(rows); i++) {
        uint64_t merged = COUNTER_READ(w.s, link_rx_merged), t = sim_now(w.sim);
        send_row(&c, 0, rows[i].n, rows[i].len, rows[i].last);
        assert_int_equal(COUNTER_READ(w.s, link_rx_merged) - merged, rows[i].n - 1);
        c.snd_nxt += rows[i].n * rows[i].len;
        expect_ack(&c, c.snd_nxt);
        assert_int_equal(w.k.when_ns, t);
        segs += rows[i].n;
        assert_int_equal(tp->t_data_segs_in, segs);
        assert_int_equal(read_pattern(c.fd, total, buf, sizeof(buf)), rows[i].n * rows[i].len);
        total += rows[i].n * rows[i].len;
        peer_drain(w.p); /* window updates */
        send_row(&c, 0, 1, 100, TH_ACK | TH_PUSH);
        c.snd_nxt += 100, total += 100, segs++;
        t = sim_now(w.sim);
        expect_flags(&c, TH_ACK, 100 * MS);
        assert_in_range(w.k.when_ns - t, 39 * MS, 41 * MS);
        assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 100);
    }
    /* Behind a hole they count too, and no longer when it is filled; FIN ends the row. */
    send_row(&c, 50, 5, 20, TH_ACK | TH_PUSH | TH_FIN);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(w.k.to.sack[0].end - w.k.to.sack[0].start, 100);
    assert_int_equal(tp->t_reass_segs, 5);
    assert_int_equal(tp->t_rcvoopack, 5);
    send_row(&c, 0, 1, 50, TH_ACK);
    expect_ack(&c, c.snd_nxt + 151);
    assert_int_equal(tp->t_reass_segs, 0);
    assert_int_equal(read_pattern(c.fd, total, buf, sizeof(buf)), 150);
    assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
}

static void test_out_of_order(void **state)
{
    struct conn c;

    world_accept(&c);
    send_at(&c, 1000, TH_ACK, 500);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(w.k.to.nsack, 1);
    assert_int_equal(w.k.to.sack[0].start, c.snd_nxt + 1000);
    assert_int_equal(w.k.to.sack[0].end, c.snd_nxt + 1500);
    send_at(&c, 2000, TH_ACK, 500);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(w.k.to.nsack, 2);
    assert_int_equal(w.k.to.sack[0].start, c.snd_nxt + 2000);
    send_at(&c, 0, TH_ACK, 1000);
    expect_ack(&c, c.snd_nxt + 1500);
    assert_int_equal(w.k.to.nsack, 1);
    send_at(&c, 1500, TH_ACK, 500);
    expect_ack(&c, c.snd_nxt + 2500);
    assert_int_equal(w.k.to.nsack, 0);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 2500);
}

/* case: FUN-098 */
static void test_old_segments(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 1000);
    conn_data(&c, 1000);
    expect_ack(&c, c.snd_nxt);
    send_at(&c, -2000, TH_ACK, 1000);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(w.k.to.nsack, 1); /* D-SACK */
    assert_int_equal(w.k.to.sack[0].start, c.snd_nxt - 2000);
    assert_int_equal(w.k.to.sack[0].end, c.snd_nxt - 1000);
    send_at(&c, -1000, TH_ACK | TH_FIN, 500); /* an old FIN that never was */
    expect_ack(&c, c.snd_nxt);
    send_at(&c, -100, TH_ACK, 0);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    send_at(&c, -500, TH_ACK, 700); /* half old, half new */
    expect_ack(&c, c.snd_nxt + 200);
    assert_int_equal(w.k.to.sack[0].end, c.snd_nxt);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 2200);
}

/* case: FUN-031 */
static void test_data_beyond_fin(void **state)
{
    struct conn c;

    world_accept(&c);
    send_at(&c, 10, TH_ACK | TH_FIN, 10);
    send_at(&c, 20, TH_ACK, 10);
    send_at(&c, 0, TH_ACK, 10);
    peer_drain(w.p);
    assert_int_equal(world_state(&c), TCPS_CLOSE_WAIT);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 20);
    assert_int_equal(weir_read(c.fd, buf, sizeof(buf)), 0);
}

/* Single bytes until the window shuts: all that was acknowledged is there. case: FUN-011 */
static void test_tiny_segments(void **state)
{
    struct conn c;
    uint32_t sent = 0, got = 0;
    ssize_t n;

    world_accept(&c);
    c.ts = false;
    struct tcpcb *tp = world_tcpcb(&c);
    tp->t_flags &= ~TF_RCVD_TSTMP;
    do {
        conn_data(&c, 1);
        sent++;
        while (conn_next(&c, &w.k, 0))
            ;
        assert_true(sent < 100000);
    } while (tp->rcv_adv != c.snd_nxt);
    sim_run(w.sim, 50 * MS);
    while (conn_next(&c, &w.k, 0))
        ;
    assert_int_equal(w.k.th.win, 0);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
    conn_data(&c, 1); /* a probe: answered, not taken */
    expect_ack(&c, c.snd_nxt - 1);
    while ((n = read_pattern(c.fd, got, buf, sizeof(buf))) > 0)
        got += (uint32_t)n;
    assert_int_equal(got, sent);
    assert_true(conn_next(&c, &w.k, 50 * MS)); /* the window opens */
    assert_true(w.k.th.win > 0);
}

/* --- RFC 5961 --- */

/* case: SEC-019 */
static void test_syn_is_challenged(void **state)
{
    struct conn c;
    static const int32_t off[] = {0, 1000, 1000000, -1000};

    world_accept(&c);
    for (size_t i = 0; i < NELEM(off); i++) {
        for (int with_ack = 0; with_ack < 2; with_ack++) {
            send_at(&c, off[i], with_ack ? TH_SYN | TH_ACK : TH_SYN, 0);
            expect_ack(&c, c.snd_nxt);
            sim_run(w.sim, NS_PER_S);
        }
    }
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    sim_sysctl(w.s, "net.inet.tcp.insecure_syn", "1");
    send_at(&c, 10, TH_SYN, 0);
    expect_flags(&c, TH_RST | TH_ACK, MS);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

/* case: SEC-020 */
static void test_ack_range(void **state)
{
    struct conn c;
    struct tcpcb *tp;

    world_accept(&c);
    tp = world_tcpcb(&c);
    /* Get past the first window, so that iss is no bound any more. */
    memset(buf, 'x', 100000);
    sim_sysctl(w.s, "kern.ipc.maxsockbuf", "20000000");
    assert_int_equal(weir_write(c.fd, buf, 1000), 1000);
    while (conn_next(&c, &w.k, 2 * MS))
        conn_ack(&c);
    struct segment g = seg_at(&c, c.snd_nxt, TH_ACK, 10);
    g.ack = tp->snd_max + 1;
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt); /* the data was not taken */
    g.ack = tp->iss;           /* nothing this old was ever sent */
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt);
    assert_int_equal(sim_counter(w.s, "tcp.rx_ack_challenged"), 2);
    g.ack = tp->snd_una - 1;
    conn_send(&c, &g);
    expect_flags(&c, TH_ACK, 100 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt + 10);
    /* Later on: up to the largest window back. */
    tp->snd_una = tp->snd_nxt = tp->snd_max = tp->iss + (65535u << tp->snd_scale) + 5000;
    g = seg_at(&c, c.snd_nxt + 10, TH_ACK, 10);
    g.ack = tp->snd_una - tp->max_sndwnd - 1;
    conn_send(&c, &g);
    expect_ack(&c, c.snd_nxt + 10);
    g.ack = tp->snd_una - tp->max_sndwnd;
    conn_send(&c, &g);
    expect_flags(&c, TH_ACK, 100 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt + 20);
}

static void test_reset_exactly(void **state)
{
    struct conn c;

    world_accept(&c);
    send_at(&c, 1, TH_RST, 0);
    expect_ack(&c, c.snd_nxt); /* in the window: a challenge */
    send_at(&c, 10000000, TH_RST, 0);
    send_at(&c, -1, TH_RST, 0);
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    send_at(&c, 0, TH_RST, 0);
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    assert_int_equal(weir_read(c.fd, buf, 1), -1);
    assert_int_equal(errno, ECONNRESET);
    /* The knob. */
    world_accept(&c);
    sim_sysctl(w.s, "net.inet.tcp.insecure_rst", "1");
    send_at(&c, 1, TH_RST, 0);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
}

/* A reset right behind data, in one batch: the ACK of the data is still owed. case: FUN-043 */
static void test_reset_behind_data(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 100);
    send_at(&c, 0, TH_RST, 0);
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 100);
    assert_int_equal(weir_read(c.fd, buf, 1), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(weir_read(c.fd, buf, 1), 0);
}

/* case: SEC-022 */
static void test_challenge_limit(void **state)
{
    struct conn c;
    int64_t mbufs, bytes, mbufs_before, bytes_before;
    unsigned acks = 0;

    world_accept(&c);
    expect_quiet();
    mbuf_usage(&mbufs_before, &bytes_before);
    for (int i = 0; i < 20000; i++)
        send_at(&c, 1 + i % 1000, i & 1 ? TH_RST : TH_SYN, i % 3 ? 0 : 100);
    while (peer_next(w.p, &w.k, MS))
        acks++;
    assert_int_equal(acks, 5);
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, mbufs_before);
    assert_int_equal(bytes, bytes_before);
    assert_true(sim_counter(w.s, "tcp.challenge_limited") > 19000);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
}

/* case: SEC-023 */
static void test_retransmissions_are_answered(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 1000);
    conn_data(&c, 1000);
    expect_ack(&c, c.snd_nxt);
    for (int i = 0; i < 20; i++)
        send_at(&c, 1, TH_RST, 0); /* spend the budget */
    sim_run(w.sim, MS);
    peer_drain(w.p);
    for (int i = 0; i < 50; i++) {
        send_at(&c, -1000, TH_ACK, 1000);
        expect_ack(&c, c.snd_nxt);
    }
}

/* --- PAWS and timestamps --- */

/* case: SEC-059 */
static void test_timestamp_is_not_poisoned(void **state)
{
    struct conn c;
    struct tcpcb *tp;

    world_accept(&c);
    tp = world_tcpcb(&c);
    uint32_t recent = tp->ts_recent;
    /* In the window, but not at its left edge. */
    c.tsval += 1u << 30;
    send_at(&c, 1000, TH_ACK, 10);
    assert_int_equal(tp->ts_recent, recent);
    /* An old segment. */
    send_at(&c, -10, TH_ACK, 5);
    assert_int_equal(tp->ts_recent, recent);
    c.tsval -= 1u << 30;
    peer_drain(w.p);
    conn_data(&c, 100);
    expect_ack(&c, c.snd_nxt);
    conn_data(&c, 900);
    expect_ack(&c, c.snd_nxt + 10);
    assert_int_equal(sim_counter(w.s, "tcp.rx_paws"), 0);
}

static void test_paws(void **state)
{
    struct conn c;

    world_accept(&c);
    conn_data(&c, 100);
    expect_flags(&c, TH_ACK, 100 * MS);
    c.tsval -= 10000;
    send_at(&c, 0, TH_ACK, 100);
    expect_ack(&c, c.snd_nxt);
    send_at(&c, 0, TH_ACK, 0);
    expect_quiet();
    assert_int_equal(sim_counter(w.s, "tcp.rx_paws"), 2);
    send_at(&c, 0, TH_RST, 0); /* a reset needs no timestamp */
    assert_int_equal(world_state(&c), TCPS_CLOSED);
    /* A timestamp older than 24 days is no longer compared with. */
    world_accept(&c);
    sim_sysctl(w.s, "net.inet.tcp.always_keepalive", "0");
    struct tcpcb *tp = world_tcpcb(&c);
    tcp_timer_cancel(tp, TT_KEEP);
    tp->ts_recent_ns -= UINT64_C(0);
    sim_run(w.sim, UINT64_C(25) * 24 * 3600 * NS_PER_S);
    c.ts_base_ns = sim_now(w.sim);
    c.tsval -= 5000;
    conn_data(&c, 100);
    expect_flags(&c, TH_ACK, 100 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt);
}

/* case: FUN-056 */
static void test_missing_timestamp(void **state)
{
    struct conn c;

    world_accept(&c);
    struct segment g = seg_at(&c, c.snd_nxt, TH_ACK, 100);
    g.no_ts = true;
    conn_send(&c, &g);
    expect_quiet(); /* silently dropped (RFC 7323 3.2), the connection lives */
    assert_int_equal(sim_counter(w.s, "tcp.rx_notimestamp"), 1);
    sim_sysctl(w.s, "net.inet.tcp.tolerate_missing_ts", "1");
    conn_send(&c, &g);
    expect_flags(&c, TH_ACK, 100 * MS);
    assert_int_equal(w.k.th.ack, c.snd_nxt + 100);
    /* The handshake's ACK too. */
    conn_init(&c, w.p, w.next_port++, 80);
    conn_flags(&c, TH_SYN);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    g = seg_at(&c, c.snd_nxt, TH_ACK, 0);
    g.no_ts = true;
    conn_send(&c, &g);
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
}

/* --- options --- */

/* case: SEC-043, SEC-044 */
static void test_malformed_options(void **state)
{
    static const struct {
        uint8_t len;
        uint8_t b[40];
    } opt[] = {
        {4, {2, 2, 5, 180}},      {4, {2, 3, 5, 180}},       {4, {2, 5, 5, 180}},
        {4, {2, 40, 5, 180}},     {4, {3, 2, 7, 1}},         {4, {3, 4, 7, 1}},
        {4, {4, 3, 1, 1}},        {4, {5, 2, 1, 1}},         {12, {5, 9, 1, 2, 3, 4}},
        {12, {5, 11, 1, 2, 3}},   {4, {1, 1, 5, 40}},        {4, {1, 1, 8, 2}},
        {12, {8, 9, 1, 2, 3, 4}}, {12, {8, 12, 1, 2, 3, 4}}, {4, {1, 1, 1, 8}},
        {4, {1, 1, 1, 2}},        {4, {29, 2, 1, 1}},        {4, {29, 0, 0, 0}},
        {4, {29, 1, 0, 0}},       {20, {19, 18, 1, 2}},      {4, {19, 17, 0, 0}},
        {4, {253, 4, 1, 2}},      {4, {77, 200, 1, 2}},      {8, {0, 5, 40, 255}},
    };
    struct conn c;

    for (size_t i = 0; i < NELEM(opt); i++) {
        conn_init(&c, w.p, w.next_port++, 80);
        c.ts = false;
        conn_accept(&c, &w.listener, w.s);
        struct segment g = seg_at(&c, c.snd_nxt, TH_ACK, 600);
        g.opt = opt[i].b;
        g.optlen = opt[i].len;
        conn_send(&c, &g);
        g.seq += 600;
        conn_send(&c, &g);
        expect_ack(&c, c.snd_nxt + 1200);
        assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
        /* And in a SYN. */
        struct conn d;
        conn_init(&d, w.p, w.next_port++, 80);
        g = (struct segment){
            .seq = d.snd_nxt++, .flags = TH_SYN, .win = -1, .opt = opt[i].b, .optlen = opt[i].len};
        conn_send(&d, &g);
        expect_flags(&d, TH_SYN | TH_ACK, MS);
        assert_false(w.k.to.flags & (TOF_SCALE | TOF_SACKPERM | TOF_TS));
        conn_flags(&d, TH_RST);
        assert_int_equal(weir_close(c.fd), 0);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
}

/* case: SEC-040 */
static void test_data_offset(void **state)
{
    struct conn c;
    uint8_t b[60];

    world_accept(&c);
    for (int kind = 0; kind < 3; kind++) { /* established, listener, nobody */
        for (unsigned doff = 0; doff < 16; doff++) {
            for (unsigned len = 0; len <= 24; len += len == 19 ? 1 : 19) {
                memset(b, 0, sizeof(b));
                put_be16(b, kind == 0 ? c.sport : 1234);
                put_be16(b + 2, kind == 2 ? 81 : 80);
                put_be32(b + 4, c.snd_nxt);
                put_be32(b + 8, c.rcv_nxt);
                b[12] = (uint8_t)(doff << 4);
                b[13] = TH_ACK;
                if (len < 20 || doff < 5 || doff * 4 > len)
                    peer_inject_ip(w.p, NULL, IPPROTO_TCP, b, len);
            }
        }
    }
    expect_quiet();
    assert_int_equal(world_state(&c), TCPS_ESTABLISHED);
    assert_int_equal(sim_counter(w.s, "tcp.rx_short") + sim_counter(w.s, "tcp.rx_badoff"),
                     3 * (16 + 16 + 15));
}

static void test_checksum(void **state)
{
    struct conn c;

    world_accept(&c);
    struct segment g = seg_at(&c, c.snd_nxt, TH_ACK, 100);
    g.bad_sum = true;
    conn_send(&c, &g);
    expect_quiet();
    assert_int_equal(sim_counter(w.s, "tcp.rx_badsum"), 1);
}

/* --- urgent data --- */

/* case: SEC-046 */
static void test_urgent(void **state)
{
    struct conn c;
    struct segment g;
    int at_mark = 0;

    /* On SYN: nothing remains of it. */
    conn_init(&c, w.p, w.next_port++, 80);
    w.listener = weir_socket(w.s, AF_INET, SOCK_STREAM, 0);
    struct sockaddr_storage ss;
    socklen_t sl = peer_sockaddr(peer_local(w.p), 80, &ss);
    assert_int_equal(weir_bind(w.listener, (struct sockaddr *)&ss, sl), 0);
    assert_int_equal(weir_listen(w.listener, 5), 0);
    g = (struct segment){.seq = c.snd_nxt++, .flags = TH_SYN | TH_URG, .urp = 100, .win = -1};
    conn_send(&c, &g);
    expect_flags(&c, TH_SYN | TH_ACK, MS);
    conn_ack(&c);
    c.fd = weir_accept4(w.listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(c.fd >= 0);
    conn_data(&c, 200);
    assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), -1);
    assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 200);
    /* One byte out of the middle. */
    uint32_t start = c.snd_nxt;
    g = seg_at(&c, start, TH_ACK | TH_URG, 100);
    g.urp = 51;
    conn_send(&c, &g);
    c.snd_nxt += 100;
    assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), 1);
    assert_int_equal(buf[0], peer_pattern(200 + 50));
    assert_int_equal(read_pattern(c.fd, 200, buf, sizeof(buf)), 50); /* a read stops at the mark */
    assert_int_equal(weir_ioctl(c.fd, SIOCATMARK, &at_mark), 0);
    assert_int_equal(at_mark, 1);
    assert_int_equal(read_pattern(c.fd, 251, buf, sizeof(buf)), 49);
    /* The same again (a retransmission) marks nothing. */
    conn_send(&c, &g);
    assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), -1);
    /* Pointer beyond the data; then the byte; then a newer mark before the older was read. */
    start = c.snd_nxt;
    g = seg_at(&c, start, TH_ACK | TH_URG, 10);
    g.urp = 16;
    conn_send(&c, &g);
    g = seg_at(&c, start + 10, TH_ACK | TH_URG, 10);
    g.urp = 6;
    conn_send(&c, &g);
    g = seg_at(&c, start + 20, TH_ACK | TH_URG, 10);
    g.urp = 10;
    conn_send(&c, &g);
    c.snd_nxt += 30;
    assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), 1);
    assert_int_equal(buf[0], peer_pattern(300 + 29));
    size_t total = 0;
    ssize_t n;
    while ((n = weir_read(c.fd, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    assert_in_range(total, 27, 28);
    /* A mark behind the one that is known counts no more, and takes no byte out. */
    start = c.snd_nxt;
    static const uint16_t urp[] = {40, 5, 20}; /* ends at 40, 15, 40 */
    for (unsigned i = 0; i < 3; i++) {
        g = seg_at(&c, start + i * 10, TH_ACK | TH_URG, i == 2 ? 20 : 10);
        g.urp = urp[i];
        conn_send(&c, &g);
        if (i == 1)
            assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), -1); /* it has not come */
    }
    c.snd_nxt += 40;
    assert_int_equal(weir_recv(c.fd, buf, 1, MSG_OOB), 1);
    assert_int_equal(buf[0], peer_pattern(330 + 39));
    assert_int_equal(read_pattern(c.fd, 330, buf, sizeof(buf)), 39);
    /* Out of order: its text waits, its urgent byte comes again with the hole. */
    start = c.snd_nxt;
    g = seg_at(&c, start + 100, TH_ACK | TH_URG, 50);
    g.urp = 25;
    conn_send(&c, &g);
    conn_data(&c, 100);
    conn_send(&c, &g);
    conn_send(&c, &g);
    total = 0;
    while ((n = weir_read(c.fd, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    assert_int_equal(total, 149);
    /* A mark that is never read goes with the connection. */
    assert_int_equal(weir_close(c.fd), 0);
}

/* --- sequence numbers --- */

/* case: SEC-056 */
static void test_sequence_wrap(void **state)
{
    static const uint32_t iss[] = {0xffffffff, 0xfffffffe, 0x7fffffff, 0x80000000,
                                   0,          0xffffff00, 0x7fffff00};

    for (size_t i = 0; i < NELEM(iss); i++) {
        struct conn c;
        conn_init(&c, w.p, w.next_port++, 80);
        c.iss = c.snd_nxt = iss[i];
        conn_accept(&c, &w.listener, w.s);
        for (int k = 0; k < 20; k++) {
            send_at(&c, 300, TH_ACK, 100);
            assert_true(conn_next(&c, &w.k, MS));
            assert_int_equal(w.k.to.sack[0].start, c.snd_nxt + 300);
            conn_data(&c, 300);
            c.snd_nxt += 100;
            expect_ack(&c, c.snd_nxt);
        }
        assert_int_equal(read_pattern(c.fd, 0, buf, sizeof(buf)), 8000);
        weir_close(c.fd);
    }
}

/* case: SEC-058 */
static void test_handshake_off_by_one(void **state)
{
    struct conn c;
    static const int32_t off[] = {-1, 1, -2};
    struct segment g;

    world_accept(&c); /* makes the listener */
    for (size_t i = 0; i < NELEM(off); i++) {
        conn_init(&c, w.p, w.next_port++, 80);
        conn_flags(&c, TH_SYN);
        expect_flags(&c, TH_SYN | TH_ACK, MS);
        g = seg_at(&c, c.snd_nxt, TH_ACK, 0);
        g.ack += (uint32_t)off[i];
        conn_send(&c, &g);
        expect_flags(&c, TH_RST, MS);
        assert_int_equal(w.k.th.seq, g.ack);
        assert_int_equal(world_state(&c), TCPS_CLOSED);
    }
    for (size_t i = 0; i < NELEM(off); i++) {
        struct sockaddr_storage ss;
        socklen_t sl = peer_sockaddr(peer_remote(w.p), 999, &ss);
        conn_init(&c, w.p, 999, 0);
        c.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(weir_connect(c.fd, (struct sockaddr *)&ss, sl), -1);
        expect_flags(&c, TH_SYN, MS);
        c.dport = w.k.th.sport;
        g = seg_at(&c, c.snd_nxt, TH_SYN | TH_ACK, 0);
        g.ack += (uint32_t)off[i];
        conn_send(&c, &g);
        expect_flags(&c, TH_RST, MS);
        assert_int_equal(w.k.th.seq, g.ack);
        assert_int_equal(world_state(&c), TCPS_SYN_SENT);
        weir_close(c.fd);
    }
}

/* case: FUN-062 */
static void test_stray_acks_in_syn_sent(void **state)
{
    struct conn c;
    struct sockaddr_storage ss;
    socklen_t sl = peer_sockaddr(peer_remote(w.p), 999, &ss);

    conn_init(&c, w.p, 999, 0);
    c.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_connect(c.fd, (struct sockaddr *)&ss, sl), -1);
    expect_flags(&c, TH_SYN, MS);
    c.dport = w.k.th.sport;
    uint64_t sent = w.k.when_ns;
    for (uint32_t i = 0; i < 10; i++) {
        struct segment g = seg_at(&c, 5000, TH_ACK, 0);
        g.ack = c.rcv_nxt + 1 + i;
        conn_send(&c, &g);
        expect_flags(&c, TH_RST, MS);
        assert_int_equal(w.k.th.seq, g.ack);
    }
    expect_flags(&c, TH_SYN, 2 * NS_PER_S);
    assert_in_range(w.k.when_ns - sent, 1000 * MS, 1001 * MS);
}

/* --- without a connection --- */

/* case: SEC-037, SEC-038 */
static void test_closed_port(void **state)
{
    struct conn c;

    conn_init(&c, w.p, 5000, 81);
    c.dport = 81;
    for (unsigned flags = 0; flags < 256; flags++) {
        struct segment g = {.seq = 100, .ack = 7777, .flags = (uint8_t)flags, .win = -1, .len = 10};
        conn_send(&c, &g);
        if (flags & TH_RST) {
            expect_quiet();
            continue;
        }
        assert_true(conn_next(&c, &w.k, MS));
        assert_int_equal(w.k.len, 0);
        if (flags & TH_ACK) {
            assert_int_equal(w.k.th.flags, TH_RST);
            assert_int_equal(w.k.th.seq, 7777);
        } else {
            assert_int_equal(w.k.th.flags, TH_RST | TH_ACK);
            assert_int_equal(w.k.th.seq, 0);
            assert_int_equal(w.k.th.ack, 110 + !!(flags & TH_SYN) + !!(flags & TH_FIN));
        }
        expect_quiet();
        sim_run(w.sim, 20 * MS);
    }
    /* In numbers: limited. */
    sim_run(w.sim, 2 * NS_PER_S);
    unsigned rsts = 0;
    for (int i = 0; i < 5000; i++)
        conn_flags(&c, TH_ACK);
    while (peer_next(w.p, &w.k, MS))
        rsts++;
    assert_in_range(rsts, 150, 400);
}

static void test_blackhole(void **state)
{
    struct conn c, d;

    world_accept(&d);
    conn_init(&c, w.p, 5000, 81);
    sim_sysctl(w.s, "net.inet.tcp.blackhole", "1");
    conn_flags(&c, TH_SYN);
    expect_quiet();
    conn_flags(&c, TH_ACK);
    expect_flags(&c, TH_RST, MS);
    sim_sysctl(w.s, "net.inet.tcp.blackhole", "2");
    conn_flags(&c, TH_ACK);
    expect_quiet();
    conn_init(&c, w.p, 5000, 80);
    conn_flags(&c, TH_ACK);
    expect_flags(&c, TH_RST, MS);
    sim_sysctl(w.s, "net.inet.tcp.blackhole", "3");
    conn_flags(&c, TH_ACK);
    expect_quiet();
}

/* --- the fast path's own decisions --- */

static void test_ece_and_cwr(void **state)
{
    struct conn c;

    conn_init(&c, w.p, w.next_port++, 80);
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM, 0);
    struct sockaddr_storage ss;
    socklen_t sl = peer_sockaddr(peer_local(w.p), 80, &ss);
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&ss, sl), 0);
    assert_int_equal(weir_listen(fd, 5), 0);
    conn_flags(&c, TH_SYN | TH_ECE | TH_CWR);
    expect_flags(&c, TH_SYN | TH_ACK | TH_ECE, MS);
    conn_ack(&c);
    c.tos = 3;
    conn_data(&c, 1000);
    c.tos = 2;
    conn_data(&c, 1000);
    expect_flags(&c, TH_ACK | TH_ECE, 100 * MS);
    send_at(&c, 0, TH_ACK | TH_CWR, 1000);
    expect_flags(&c, TH_ACK, 100 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_data_and_delayed_ack),
        WORLD_TEST(test_merged_segments_count),
        WORLD_TEST(test_out_of_order),
        WORLD_TEST(test_old_segments),
        WORLD_TEST(test_data_beyond_fin),
        WORLD_TEST(test_tiny_segments),
        WORLD_TEST(test_syn_is_challenged),
        WORLD_TEST(test_ack_range),
        WORLD_TEST(test_reset_exactly),
        WORLD_TEST(test_reset_behind_data),
        WORLD_TEST(test_challenge_limit),
        WORLD_TEST(test_retransmissions_are_answered),
        WORLD_TEST(test_timestamp_is_not_poisoned),
        WORLD_TEST(test_paws),
        WORLD_TEST(test_missing_timestamp),
        WORLD_TEST(test_malformed_options),
        WORLD_TEST(test_data_offset),
        WORLD_TEST(test_checksum),
        WORLD_TEST(test_urgent),
        WORLD_TEST(test_sequence_wrap),
        WORLD_TEST(test_handshake_off_by_one),
        WORLD_TEST(test_stray_acks_in_syn_sent),
        WORLD_TEST(test_closed_port),
        WORLD_TEST(test_blackhole),
        WORLD_TEST(test_ece_and_cwr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
