/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what acknowledgments do: which ACKs count as duplicates, fast retransmit with and without
 * SACK, partial ACKs, timeouts and their undoing, smaller path MTUs, the send buffer. Bound: under
 * 10 s. */
#include "sender.h"

#define MSS 1460u

static void open_no_sack(void)
{
    sender_init();
    cn.ts = false;
    cn.sack = false;
    sender_open();
}

static struct tcpcb *tp(void)
{
    struct tcpcb *t = world_tcpcb(&cn);
    assert_non_null(t);
    return t;
}

static void close_all(void)
{
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-023 */
static void test_what_is_duplicate(void **state)
{
    for (int sack = 0; sack < 2; sack++) {
        sender_init();
        cn.ts = false;
        cn.sack = sack;
        sender_open();
        send_n(10 * MSS);
        expect_segments(0, 10, MSS);
        cn.rcv_nxt = base_seq; /* nothing is acknowledged by what follows */
        for (int i = 1; i <= 5; i++)
            ack_win(0, 60000 - i * 100); /* each another window */
        for (int i = 1; i <= 5; i++)
            ack_win(0, 60000 + i * 100);
        for (int i = 0; i < 5; i++)
            send_at(&cn, -1, TH_ACK, 1); /* keepalive probes */
        for (int i = 0; i < 4; i++)
            conn_data(&cn, 10); /* with data */
        sim_settle(w.sim);
        while (conn_next(&cn, &w.k, 0))
            assert_int_equal(w.k.len, 0);
        conn_flags(&cn, TH_FIN | TH_ACK);
        while (conn_next(&cn, &w.k, 0))
            assert_int_equal(w.k.len, 0);
        int win = 60500;
        ack_win(0, win);
        ack_win(0, win);
        ack_win(0, win);
        expect_nothing(0);
        ack_win(0, win);
        expect_data(0, MSS, 0, 0); /* three of the same */
        weir_close(cn.fd);
    }
    weir_close(w.listener);
}

static void test_limited_transmit(void **state)
{
    open_no_sack();
    send_n(20 * MSS);
    expect_segments(0, 10, MSS);
    ack_to(0);
    expect_data(10 * MSS, MSS, 0, 0);
    ack_to(0);
    expect_data(11 * MSS, MSS, 0, 0);
    assert_int_equal(tp()->snd_cwnd, 10 * MSS);
    ack_to(0);
    expect_data(0, MSS, 0, 0); /* the third: fast retransmit */
    expect_nothing(0);
    close_all();
}

static void test_newreno(void **state)
{
    open_no_sack();
    sim_sysctl(w.s, "net.inet.tcp.cc.algorithm", "newreno");
    assert_int_equal(weir_setsockopt(cn.fd, IPPROTO_TCP, 13, "newreno", 7), 0);
    send_n(40 * MSS);
    expect_segments(0, 10, MSS);
    /* Segments 0 and 3 are lost: 8 duplicates. */
    ack_to(0);
    ack_to(0);
    expect_segments(10 * MSS, 2, MSS); /* limited transmit */
    ack_to(0);
    expect_data(0, MSS, 0, 0);
    assert_int_equal(tp()->snd_ssthresh, 5 * MSS);
    assert_int_equal(tp()->snd_cwnd, 8 * MSS);
    for (int i = 0; i < 7; i++)
        ack_to(0);
    /* cwnd 15, 12 out */
    expect_segments(12 * MSS, 3, MSS);
    ack_to(3 * MSS); /* partial: the next hole at once, no waiting for duplicates */
    expect_data(3 * MSS, MSS, 0, 0);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    while (conn_next(&cn, &w.k, 0))
        assert_true(SEQ_GEQ(w.k.th.seq, base_seq + 15 * MSS)); /* nothing else is resent */
    ack_to(15 * MSS);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    assert_true(tp()->snd_cwnd <= 5 * MSS);
    close_all();
}

/* case: FUN-079 */
static void test_fast_retransmit_is_a_full_segment(void **state)
{
    open_no_sack();
    set_opt(OPT_NODELAY, 1);
    for (int i = 0; i < 60; i++) {
        send_n(100);
        sim_run(w.sim, MS);
    }
    expect_segments(0, 60, 100);
    ack_to(400);
    for (int i = 0; i < 3; i++)
        ack_to(400);
    expect_data(400, MSS, 0, 0);
    close_all();
}

static void test_sack_recovery(void **state)
{
    sender_plain();
    send_n(30 * MSS);
    expect_segments(0, 10, MSS);
    /* 0, 2 and 4 are lost. */
    ack_sack(0, 1, (uint32_t[]){MSS, 2 * MSS});
    expect_data(10 * MSS, MSS, 0, 0); /* the pipe has shrunk */
    ack_sack(0, 2, (uint32_t[]){3 * MSS, 4 * MSS, MSS, 2 * MSS});
    expect_data(11 * MSS, MSS, 0, 0);
    ack_sack(0, 3, (uint32_t[]){5 * MSS, 8 * MSS, 3 * MSS, 4 * MSS, MSS, 2 * MSS});
    /* More than two segments are SACKed above all three. */
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    assert_int_equal(tp()->snd_ssthresh, 7 * MSS); /* CUBIC: 0.7 */
    expect_data(0, MSS, 0, 0);
    ack_sack(0, 3, (uint32_t[]){5 * MSS, 10 * MSS, 3 * MSS, 4 * MSS, MSS, 2 * MSS});
    expect_data(2 * MSS, MSS, 0, 0);
    expect_data(4 * MSS, MSS, 0, 0);
    while (conn_next(&cn, &w.k, 0))
        assert_true(SEQ_GEQ(w.k.th.seq, base_seq + 12 * MSS)); /* then new data, nothing twice */
    ack_to(10 * MSS);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    ack_to(12 * MSS);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    assert_int_equal(tp()->t_sacked_bytes + tp()->t_lost_bytes, 0);
    assert_int_equal(sim_counter(w.s, "tcp.tx_rexmt"), 3);
    close_all();
}

static void test_dsack_and_nonsense(void **state)
{
    sender_plain();
    send_n(10 * MSS);
    expect_segments(0, 10, MSS);
    ack_to(2 * MSS);
    ack_sack(2 * MSS, 1, (uint32_t[]){0, MSS});             /* D-SACK */
    ack_sack(2 * MSS, 1, (uint32_t[]){50 * MSS, 60 * MSS}); /* never sent */
    ack_sack(2 * MSS, 1, (uint32_t[]){6 * MSS, 4 * MSS});   /* backwards */
    ack_sack(2 * MSS, 1, (uint32_t[]){0, 5 * MSS});         /* over the ACK itself */
    expect_nothing(0);
    assert_int_equal(tp()->t_sacked_bytes, 0);
    assert_int_equal(sim_counter(w.s, "tcp.dsack_rcv"), 1);
    assert_int_equal(tp()->t_dsack_dups, 1); /* TCP_INFO's */
    assert_int_equal(sim_counter(w.s, "tcp.sack_bad_blocks"), 3);
    close_all();
}

/* The receiver goes back on its SACKs: after the timeout all is sent again. */
static void test_reneging(void **state)
{
    sender_plain();
    send_n(4 * MSS);
    expect_segments(0, 4, MSS);
    ack_sack(0, 1, (uint32_t[]){MSS, 2 * MSS});
    ack_sack(MSS, 1, (uint32_t[]){2 * MSS, 3 * MSS}); /* acknowledges 0 only, though 1 was SACKed */
    sim_run(w.sim, 400 * MS);
    expect_data(MSS, MSS, 0, 0);
    ack_to(2 * MSS);
    expect_segments(2 * MSS, 2, MSS);
    close_all();
}

/* case: FUN-073 */
static void test_timer_survives_old_acks(void **state)
{
    open_no_sack();
    send_n(10 * MSS);
    expect_segments(0, 10, MSS);
    sim_run(w.sim, 100 * MS);
    ack_to(5 * MSS);
    uint64_t t0 = sim_now(w.sim);
    for (int i = 0; i < 20; i++) {
        sim_run(w.sim, 5 * MS);
        ack_win(3 * MSS, 1000 + i); /* old */
        ack_win(5 * MSS, 2000 + i); /* window updates */
    }
    expect_data(5 * MSS, MSS, 0, 500 * MS);
    assert_in_range(w.k.when_ns - t0, 200 * MS, 600 * MS);
    close_all();
}

static void test_timeout_and_slow_start(void **state)
{
    open_no_sack();
    send_n(10 * MSS);
    expect_segments(0, 10, MSS);
    expect_data(0, MSS, 0, 1100 * MS);
    expect_nothing(10 * MS);
    assert_int_equal(tp()->snd_cwnd, MSS);
    ack_to(MSS);
    expect_segments(MSS, 2, MSS);
    ack_to(3 * MSS);
    expect_segments(3 * MSS, 3, MSS); /* L = 1 after a timeout */
    ack_to(10 * MSS);                 /* the rest had come */
    expect_nothing(NS_PER_S);
    assert_int_equal(tp()->t_lost_bytes, 0);
    close_all();
}

static void test_spurious_timeout_is_undone(void **state)
{
    sender_init();
    sender_open();
    send_n(20 * 1448);
    expect_segments(0, 10, 1448);
    uint32_t cwnd = tp()->snd_cwnd, early = cn.tsecr;
    expect_data(0, 1448, 0, 1100 * MS);
    sim_run(w.sim, 20 * MS);
    cn.tsecr = early; /* the ACK of the original */
    ack_to(2 * 1448);
    assert_int_equal(sim_counter(w.s, "tcp.spurious_rto"), 1);
    assert_true(tp()->snd_cwnd >= cwnd);
    while (conn_next(&cn, &w.k, 0))
        assert_true(SEQ_GEQ(w.k.th.seq, base_seq + 10 * 1448)); /* new data only */
    close_all();
}

/* case: FUN-082 */
static void test_odd_acks(void **state)
{
    static const uint32_t acks[] = {1, 777, 1460, 1461, 3000, 4379};

    for (int sack = 0; sack < 2; sack++) {
        sender_init();
        cn.ts = false;
        cn.sack = sack;
        sender_open();
        send_n(5 * MSS);
        expect_segments(0, 5, MSS);
        for (unsigned i = 0; i < NELEM(acks); i++) {
            if (sack) /* with a hole behind it, or none */
                ack_sack(acks[i], i % 2, (uint32_t[]){4 * MSS, 5 * MSS});
            else
                ack_to(acks[i]);
            int outq = -1;
            assert_int_equal(weir_ioctl(cn.fd, 0x5411 /* SIOCOUTQ */, &outq), 0);
            assert_int_equal(outq, 5 * MSS - acks[i]);
        }
        uint32_t off = 4379;
        while (off < 5 * MSS) { /* the remainder, in full segments, but for what was SACKed */
            assert_true(conn_next(&cn, &w.k, NS_PER_S));
            assert_int_equal(w.k.th.seq, base_seq + off);
            assert_int_equal(w.k.len, MIN(MSS, (sack ? 4 * MSS : 5 * MSS) - off));
            off += w.k.len;
            if (sack && off == 4 * MSS)
                off = 5 * MSS;
            ack_to(off);
        }
        expect_nothing(NS_PER_S);
        sender_abort();
    }
    weir_close(w.listener);
}

/* A segment too small for Nagle is resent together with what waited behind it. */
static void test_rexmit_takes_new_data_along(void **state)
{
    open_no_sack();
    send_n(100);
    expect_data(0, 100, 0, 0);
    send_n(300);
    expect_nothing(0);
    expect_data(0, 400, TH_ACK | TH_PUSH, NS_PER_S);
    ack_to(400);
    expect_nothing(NS_PER_S);
    close_all();
}

static void inject_ptb(uint16_t mtu, uint32_t seq, uint16_t fport)
{
    uint8_t b[8 + 20 + 8] = {3, 4};
    put_be16(b + 6, mtu);
    uint8_t *ip = b + 8;
    ip[0] = 0x45;
    put_be16(ip + 2, 1500);
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = IPPROTO_TCP;
    memcpy(ip + 12, peer_local(w.p)->b, 4);
    memcpy(ip + 16, peer_remote(w.p)->b, 4);
    put_be16(ip + 20, cn.dport);
    put_be16(ip + 22, fport);
    put_be32(ip + 24, seq);
    uint32_t sum = 0;
    for (unsigned i = 0; i < sizeof(b); i += 2)
        sum += get_be16(b + i);
    sum = (sum & 0xffff) + (sum >> 16);
    put_be16(b + 2, (uint16_t) ~(sum + (sum >> 16)));
    peer_inject_ip(w.p, NULL, IPPROTO_ICMP, b, sizeof(b));
}

/* case: FUN-077 SEC-052 */
static void test_smaller_path_mtu(void **state)
{
    sender_plain();
    send_n(30 * MSS);
    expect_segments(0, 10, MSS);
    uint32_t cwnd = tp()->snd_cwnd;
    inject_ptb(1400, base_seq, (uint16_t)(cn.sport + 1)); /* another connection */
    inject_ptb(1400, base_seq - 5000, cn.sport);          /* not in flight */
    inject_ptb(65535, base_seq, cn.sport);
    expect_nothing(0);
    assert_int_equal(tp()->t_maxseg, MSS);
    inject_ptb(1400, base_seq, cn.sport);
    expect_data(0, 1360, 0, 0); /* at once, at the new size */
    uint32_t off = 1360;
    while (conn_next(&cn, &w.k, 0)) {
        assert_int_equal(w.k.th.seq, base_seq + off);
        assert_true(w.k.len <= 1360);
        off += w.k.len;
    }
    assert_true(off >= 9 * MSS);
    assert_int_equal(tp()->snd_cwnd, cwnd);
    assert_int_equal(tp()->t_rxtshift, 0);
    inject_ptb(68, base_seq, cn.sport); /* never below the floor */
    sim_settle(w.sim);
    assert_true(tp()->t_maxseg >= 552 - 40);
    ack_to(10 * MSS);
    peer_drain(w.p);
    /* Later the larger MTU is tried again. */
    sim_run(w.sim, 700 * NS_PER_S);
    peer_drain(w.p);
    if (world_tcpcb(&cn)) {
        ack_to(30 * MSS);
        send_n(5 * MSS);
        assert_true(conn_next(&cn, &w.k, 0));
        assert_int_equal(w.k.len, MSS);
    }
    close_all();
}

/* case: SEC-062 */
static void test_dupack_spoofing_is_bounded(void **state)
{
    open_no_sack();
    send_n(200 * MSS);
    expect_segments(0, 10, MSS);
    for (int i = 0; i < 1000; i++)
        ack_to(0);
    uint32_t high = 0;
    while (conn_next(&cn, &w.k, 0))
        high = MAX(high, w.k.th.seq + w.k.len - base_seq);
    assert_true(tp()->snd_cwnd <= tp()->snd_ssthresh + (tp()->snd_nxt - tp()->snd_una) + MSS);
    assert_true(high <= 40 * MSS);
    /* An ACK of what was never sent changes nothing. */
    uint32_t una = tp()->snd_una;
    ack_to(150 * MSS);
    assert_int_equal(tp()->snd_una, una);
    close_all();
}

/* Segments that the stack sends now; *resent: those below `high`. */
static unsigned count_sent(uint32_t high, unsigned *resent)
{
    unsigned n = 0;
    *resent = 0;
    for (; conn_next(&cn, &w.k, 0); n++)
        *resent += SEQ_LT(w.k.th.seq, base_seq + high);
    return n;
}

static void open_with_window(unsigned segs)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", segs);
    sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", text);
    sender_plain();
    send_n(60 * MSS);
    expect_segments(0, segs, MSS);
    assert_int_equal(tp()->snd_cwnd, segs * MSS);
}

/* RFC 6937 3.1: while more is in flight than ssthresh, 7 segments leave for 10 that arrive (CUBIC's
 * beta), evenly. When all is repaired no burst follows (RFC 6582 3.2 step 3, for SACK too). */
static void test_rate_is_reduced_in_proportion(void **state)
{
    unsigned resent;
    open_with_window(20);
    ack_sack(0, 1, (uint32_t[]){MSS, 4 * MSS}); /* 0 is lost */
    assert_int_equal(count_sent(20 * MSS, &resent), 1);
    assert_int_equal(resent, 1);
    assert_int_equal(tp()->snd_ssthresh, 14 * MSS);
    unsigned out = 1;
    for (unsigned k = 1; k <= 8; k++) {
        ack_sack(0, 1, (uint32_t[]){MSS, (4 + k) * MSS});
        out += count_sent(20 * MSS, &resent);
        assert_int_equal(out, (3 + k) * 7 / 10);
        assert_int_equal(resent, 0);
    }
    uint32_t all = tp()->snd_nxt - base_seq;
    ack_to(all);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    assert_int_equal(tp()->snd_cwnd, 2 * MSS);
    assert_int_equal(count_sent(all, &resent), 2);
    close_all();
}

/* And when less is in flight, no more leaves than arrived, plus a segment (slow start, RFC 6937's
 * SSRB). */
static void test_reduction_bound(void **state)
{
    unsigned resent;
    open_with_window(20);
    ack_sack(0, 1, (uint32_t[]){10 * MSS, 20 * MSS}); /* 0 to 9 are lost: nothing is in flight */
    assert_int_equal(count_sent(20 * MSS, &resent), 1);
    ack_sack(MSS, 1, (uint32_t[]){10 * MSS, 20 * MSS});
    /* 11 arrived, 1 was sent: 10, and one. ssthresh would allow 14. */
    assert_int_equal(count_sent(20 * MSS, &resent), 11);
    assert_int_equal(resent, 9);
    close_all();
}

/* RFC 3168 6.1.2: one response a window, however often the echo comes. */
static void test_one_ecn_response_a_window(void **state)
{
    sim_sysctl(w.s, "net.inet.tcp.ecn.enable", "1");
    sender_init();
    cn.ts = false;
    conn_flags(&cn, TH_SYN | TH_ECE | TH_CWR);
    if (w.listener < 0) {
        struct conn first;
        world_accept(&first); /* makes the listener */
        weir_close(first.fd);
        sim_run(w.sim, MS);
        peer_drain(w.p);
        sender_init();
        cn.ts = false;
        conn_flags(&cn, TH_SYN | TH_ECE | TH_CWR);
    }
    expect_flags(&cn, TH_SYN | TH_ACK | TH_ECE, MS);
    conn_ack(&cn);
    cn.fd = weir_accept(w.listener, NULL, NULL);
    assert_true(cn.fd >= 0);
    int size = 1 << 20;
    assert_int_equal(weir_setsockopt(cn.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    base_seq = cn.rcv_nxt;
    written = 0;
    send_n(60 * MSS);
    expect_segments(0, 10, MSS);
    uint32_t cwnd = 0;
    for (uint32_t i = 1; i <= 10; i++) {
        conn_send(&cn, &(struct segment){.seq = cn.snd_nxt,
                                         .ack = base_seq + i * MSS,
                                         .flags = TH_ACK | TH_ECE,
                                         .win = -1});
        if (i == 1) {
            cwnd = tp()->snd_cwnd;
            assert_int_equal(cwnd, 7 * MSS); /* CUBIC's beta */
        } else if (i < 10) {
            assert_int_equal(tp()->snd_cwnd, cwnd);
        }
    }
    /* What was out at the first echo is acknowledged: the next is of a new window. */
    uint32_t all = 10 * MSS;
    while (conn_next(&cn, &w.k, 0))
        all = w.k.th.seq + w.k.len - base_seq;
    conn_send(&cn, &(struct segment){.seq = cn.snd_nxt,
                                     .ack = base_seq + 11 * MSS,
                                     .flags = TH_ACK | TH_ECE,
                                     .win = -1});
    assert_true(tp()->snd_cwnd < cwnd);
    assert_true(all > 11 * MSS);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_rate_is_reduced_in_proportion),
        WORLD_TEST(test_reduction_bound),
        WORLD_TEST(test_one_ecn_response_a_window),
        WORLD_TEST(test_what_is_duplicate),
        WORLD_TEST(test_limited_transmit),
        WORLD_TEST(test_newreno),
        WORLD_TEST(test_fast_retransmit_is_a_full_segment),
        WORLD_TEST(test_sack_recovery),
        WORLD_TEST(test_dsack_and_nonsense),
        WORLD_TEST(test_reneging),
        WORLD_TEST(test_timer_survives_old_acks),
        WORLD_TEST(test_timeout_and_slow_start),
        WORLD_TEST(test_spurious_timeout_is_undone),
        WORLD_TEST(test_odd_acks),
        WORLD_TEST(test_rexmit_takes_new_data_along),
        WORLD_TEST(test_smaller_path_mtu),
        WORLD_TEST(test_dupack_spoofing_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
