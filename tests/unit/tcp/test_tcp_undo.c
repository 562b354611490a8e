/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a fast recovery that only met displaced segments is undone and makes the next one less
 * likely; one that met a loss is not; and recovery resends what RFC 6675 lets it. Bound: under
 * 10 s. */
#include "sender.h"

#define MSS 1460u
#define TS_MSS 1448u

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

static void open_with_window(unsigned segs, bool ts, bool sack)
{
    char text[16];
    uint32_t len = ts ? TS_MSS : MSS;
    snprintf(text, sizeof(text), "%u", segs);
    sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", text);
    sender_init();
    cn.ts = ts;
    cn.sack = sack;
    sender_open();
    send_n(60 * len);
    expect_segments(0, segs, len);
    assert_int_equal(tp()->snd_cwnd, segs * len);
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

/* Three SACKs and the ACK that fills the hole meet the stack at once: nothing was resent, and
 * nothing is lost. */
static void test_hole_is_filled_at_once(void **state)
{
    unsigned resent;
    for (int sack = 0; sack < 2; sack++) {
        open_with_window(20, false, sack);
        uint32_t cwnd = tp()->snd_cwnd, ssthresh = tp()->snd_ssthresh;
        peer_hold(w.p, true);
        for (uint32_t i = 2; i <= 4; i++) {
            if (sack)
                ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
            else
                ack_to(0);
        }
        ack_to(4 * MSS);
        peer_hold(w.p, false);
        count_sent(20 * MSS, &resent);
        assert_int_equal(resent, 0);
        assert_false(tp()->t_flags & TF_FASTRECOVERY);
        assert_true(tp()->snd_cwnd >= cwnd);
        assert_int_equal(tp()->snd_ssthresh, ssthresh);
        assert_int_equal(tp()->t_lost_bytes, 0);
        assert_int_equal(tp()->t_reorder, 4);
        assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), sack + 1);
        /* What is lost next is found as ever, though one more has to say so. */
        for (uint32_t i = 6; i <= 9; i++) {
            assert_false(tp()->t_flags & TF_FASTRECOVERY);
            if (sack)
                ack_sack(4 * MSS, 1, (uint32_t[]){5 * MSS, i * MSS});
            else
                ack_to(4 * MSS);
        }
        count_sent(20 * MSS, &resent);
        assert_int_equal(resent, 1);
        assert_true(tp()->t_flags & TF_FASTRECOVERY);
        weir_close(cn.fd);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    weir_close(w.listener);
}

/* RFC 3522: the ACK echoes a timestamp older than the retransmission. */
static void test_old_timestamp_undoes(void **state)
{
    unsigned resent;
    open_with_window(20, true, true);
    uint32_t cwnd = tp()->snd_cwnd, ssthresh = tp()->snd_ssthresh, early = cn.tsecr;
    sim_run(w.sim, 20 * MS);
    for (uint32_t i = 2; i <= 4; i++)
        ack_sack(0, 1, (uint32_t[]){TS_MSS, i * TS_MSS});
    count_sent(20 * TS_MSS, &resent);
    assert_int_equal(resent, 1);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    assert_true(tp()->snd_ssthresh < cwnd);
    cn.tsecr = early;
    ack_to(4 * TS_MSS);
    count_sent(20 * TS_MSS, &resent);
    assert_int_equal(resent, 0);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    assert_true(tp()->snd_cwnd >= cwnd);
    assert_int_equal(tp()->snd_ssthresh, ssthresh);
    assert_int_equal(tp()->t_reorder, 4);
    assert_int_equal(tcp_dup_threshold(tp()), 4);
    /* The same again is no sign of a loss now. */
    for (uint32_t i = 6; i <= 8; i++)
        ack_sack(4 * TS_MSS, 1, (uint32_t[]){5 * TS_MSS, i * TS_MSS});
    count_sent(20 * TS_MSS, &resent);
    assert_int_equal(resent, 0);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    /* One more is. */
    ack_sack(4 * TS_MSS, 1, (uint32_t[]){5 * TS_MSS, 9 * TS_MSS});
    count_sent(20 * TS_MSS, &resent);
    assert_int_equal(resent, 1);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    close_all();
}

/* The ACK answers the retransmission: a loss stays one. */
static void test_loss_is_not_undone(void **state)
{
    unsigned resent;
    for (int ts = 0; ts < 2; ts++) {
        uint32_t len = ts ? TS_MSS : MSS;
        open_with_window(20, ts, true);
        sim_run(w.sim, 20 * MS);
        for (uint32_t i = 2; i <= 4; i++)
            ack_sack(0, 1, (uint32_t[]){len, i * len});
        count_sent(20 * len, &resent); /* takes the timestamp of the retransmission */
        assert_int_equal(resent, 1);
        uint32_t ssthresh = tp()->snd_ssthresh;
        assert_true(ssthresh < 20 * len);
        ack_to(4 * len);
        assert_true(count_sent(20 * len, &resent) > 0);
        assert_true(tp()->t_flags & TF_FASTRECOVERY);
        ack_to(20 * len);
        count_sent(20 * len, &resent);
        assert_int_equal(tp()->snd_ssthresh, ssthresh);
        assert_int_equal(tp()->t_reorder, 0);
        assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), 0);
        weir_close(cn.fd);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    weir_close(w.listener);
}

/* RFC 3708: what was resent comes back as D-SACK, while recovery lasts or after it; when only a
 * part does, it says nothing. */
static void test_dsack_undoes(void **state)
{
    unsigned resent;
    for (int late = 0; late < 3; late++) {
        open_with_window(20, false, true);
        uint32_t cwnd = tp()->snd_cwnd, ssthresh = tp()->snd_ssthresh;
        uint64_t undone = sim_counter(w.s, "tcp.spurious_fr");
        for (uint32_t i = 2; i <= 4; i++)
            ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
        count_sent(20 * MSS, &resent);
        assert_int_equal(resent, 1);
        uint32_t to = late == 1 ? tp()->snd_nxt - base_seq : 4 * MSS;
        ack_to(to);
        count_sent(20 * MSS, &resent);
        assert_int_equal(tp()->snd_ssthresh, 14 * MSS);
        assert_int_equal(!!(tp()->t_flags & TF_FASTRECOVERY), late != 1);
        ack_sack(to, 1, late == 2 ? (uint32_t[]){0, 100} : (uint32_t[]){0, MSS});
        count_sent(20 * MSS, &resent);
        assert_int_equal(resent, 0);
        if (late == 2) {
            assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), undone);
            assert_true(tp()->t_flags & TF_FASTRECOVERY);
        } else {
            assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), undone + 1);
            assert_false(tp()->t_flags & TF_FASTRECOVERY);
            assert_int_equal(tp()->snd_ssthresh, ssthresh);
            assert_true(late || tp()->snd_cwnd >= cwnd);
            assert_int_equal(tp()->t_reorder, 4);
        }
        weir_close(cn.fd);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    weir_close(w.listener);
}

/* A D-SACK tells of a retransmission once, in however many pieces; repeated, or of what was never
 * resent, it undoes nothing. */
static void test_dsack_counts_once(void **state)
{
    unsigned resent;
    open_with_window(20, false, true);
    for (uint32_t i = 2; i <= 4; i++)
        ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
    count_sent(20 * MSS, &resent);
    assert_int_equal(resent, 1);
    ack_to(4 * MSS);
    count_sent(20 * MSS, &resent);
    for (int i = 0; i < 40; i++) {
        ack_sack(4 * MSS, 1, (uint32_t[]){500, 600});         /* out of its middle */
        ack_sack(4 * MSS, 1, (uint32_t[]){0, 100});           /* the beginning */
        ack_sack(4 * MSS, 1, (uint32_t[]){MSS - 1, 3 * MSS}); /* the end, and more */
        ack_sack(4 * MSS, 1, (uint32_t[]){MSS, 2 * MSS});
    }
    assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), 0);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    ack_sack(4 * MSS, 1, (uint32_t[]){50, 550});
    assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), 0);
    ack_sack(4 * MSS, 1, (uint32_t[]){599, MSS - 1}); /* that was the rest */
    assert_int_equal(sim_counter(w.s, "tcp.spurious_fr"), 1);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    close_all();
}

/* A displaced segment below the threshold costs nothing and is remembered; the knob bounds that. */
static void test_degree_is_learnt(void **state)
{
    unsigned resent;
    open_with_window(20, false, true);
    ack_sack(0, 1, (uint32_t[]){MSS, 2 * MSS});
    ack_sack(0, 1, (uint32_t[]){MSS, 3 * MSS});
    ack_to(3 * MSS);
    count_sent(20 * MSS, &resent);
    assert_int_equal(resent, 0);
    assert_int_equal(tp()->t_reorder, 3);
    /* By SACK alone: the lower one comes later, while another hole is still open. */
    ack_sack(3 * MSS, 1, (uint32_t[]){5 * MSS, 6 * MSS});
    ack_sack(3 * MSS, 1, (uint32_t[]){4 * MSS, 6 * MSS});
    assert_int_equal(count_sent(20 * MSS, &resent), 2);
    assert_int_equal(tp()->t_reorder, 3);
    /* One ACK that tells of several says nothing of their order. */
    ack_sack(6 * MSS, 2, (uint32_t[]){15 * MSS, 16 * MSS, 8 * MSS, 9 * MSS});
    assert_int_equal(tp()->t_reorder, 3);
    sim_sysctl(w.s, "net.inet.tcp.max_reordering", "5");
    ack_sack(6 * MSS, 2, (uint32_t[]){15 * MSS, 16 * MSS, 7 * MSS, 9 * MSS});
    count_sent(20 * MSS, &resent);
    assert_int_equal(tp()->t_reorder, 5); /* nine, held down */
    sim_sysctl(w.s, "net.inet.tcp.max_reordering", "300");
    close_all();
}

/* Waiting for more duplicates than will come costs a timeout: after it they count as before. */
static void test_timeout_forgets(void **state)
{
    unsigned resent;
    open_with_window(20, false, true);
    tp()->t_reorder = 12;
    assert_int_equal(tcp_dup_threshold(tp()), 12);
    ack_to(14 * MSS);
    assert_true(tcp_dup_threshold(tp()) >= 3);
    count_sent(20 * MSS, &resent);
    uint32_t all = tp()->snd_nxt - base_seq;
    ack_sack(14 * MSS, 1, (uint32_t[]){15 * MSS, 18 * MSS});
    count_sent(all, &resent);
    assert_int_equal(resent, 0);
    sim_run(w.sim, NS_PER_S);
    assert_int_equal(tp()->t_reorder, 0);
    count_sent(all, &resent);
    assert_true(resent > 0);
    close_all();
}

/* The knob that holds off loss detection. case: FUN-023 */
static void test_detection_held_off(void **state)
{
    unsigned resent;
    sim_sysctl(w.s, "net.inet.tcp.reordering", "1000000");
    for (int sack = 0; sack < 2; sack++) {
        open_with_window(20, false, sack);
        for (uint32_t i = 2; i <= 20; i++) {
            if (sack)
                ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
            else
                ack_to(0);
        }
        count_sent(20 * MSS, &resent);
        assert_int_equal(resent, 0);
        assert_false(tp()->t_flags & TF_FASTRECOVERY);
        sim_run(w.sim, 2 * NS_PER_S); /* the timeout finds it */
        count_sent(20 * MSS, &resent);
        assert_true(resent > 0);
        weir_close(cn.fd);
        sim_run(w.sim, MS);
        peer_drain(w.p);
    }
    sim_sysctl(w.s, "net.inet.tcp.reordering", "3");
    weir_close(w.listener);
}

/* No undoing and no learning, as FreeBSD does it. */
static void test_knobs_off(void **state)
{
    unsigned resent;
    sim_sysctl(w.s, "net.inet.tcp.undo", "0");
    sim_sysctl(w.s, "net.inet.tcp.max_reordering", "0");
    open_with_window(20, false, true);
    for (uint32_t i = 2; i <= 4; i++)
        ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
    count_sent(20 * MSS, &resent);
    ack_to(4 * MSS);
    ack_sack(4 * MSS, 1, (uint32_t[]){0, MSS});
    count_sent(20 * MSS, &resent);
    assert_int_equal(tp()->snd_ssthresh, 14 * MSS);
    assert_true(tp()->t_flags & TF_FASTRECOVERY);
    assert_int_equal(tp()->t_reorder, 0);
    sim_sysctl(w.s, "net.inet.tcp.undo", "1");
    sim_sysctl(w.s, "net.inet.tcp.max_reordering", "300");
    close_all();
}

/* A response to ECN is none that displaced segments caused. */
static void test_congestion_is_not_undone(void **state)
{
    unsigned resent;
    open_with_window(20, false, true);
    tp()->t_flags2 |= TF2_ECN_PERMIT;
    for (uint32_t i = 2; i <= 4; i++)
        ack_sack(0, 1, (uint32_t[]){MSS, i * MSS});
    count_sent(20 * MSS, &resent);
    conn_send(&cn, &(struct segment){.seq = cn.snd_nxt,
                                     .ack = base_seq + 4 * MSS,
                                     .flags = TH_ACK | TH_ECE,
                                     .win = -1});
    ack_sack(4 * MSS, 1, (uint32_t[]){0, MSS});
    count_sent(20 * MSS, &resent);
    assert_int_equal(tp()->snd_ssthresh, 14 * MSS);
    close_all();
}

static void open_small(unsigned segs)
{
    sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", "20");
    sender_plain();
    send_n(segs * MSS);
    expect_segments(0, segs, MSS);
}

/* RFC 6675 4, NextSeg(), rule 3: nothing new to send, a hole that is not surely lost. */
static void test_holes_when_nothing_is_new(void **state)
{
    open_small(10);
    /* 0 and 8 are missing. */
    ack_sack(0, 1, (uint32_t[]){MSS, 8 * MSS});
    expect_data(0, MSS, 0, 0);
    ack_sack(0, 2, (uint32_t[]){9 * MSS, 10 * MSS, MSS, 8 * MSS});
    expect_data(8 * MSS, MSS, 0, 0);
    expect_nothing(0);
    ack_to(10 * MSS);
    assert_int_equal(sim_counter(w.s, "tcp.rexmt_timeouts"), 0);
    close_all();
}

/* Rule 4: the end of the window is missing, and nothing beyond it tells; once a recovery. */
static void test_rescue(void **state)
{
    open_small(10);
    /* 0, 8 and 9 are missing. */
    ack_sack(0, 1, (uint32_t[]){MSS, 8 * MSS});
    expect_data(0, MSS, 0, 0);
    ack_to(8 * MSS);
    expect_data(9 * MSS, MSS, 0, 0);
    expect_nothing(0);
    ack_sack(8 * MSS, 1, (uint32_t[]){9 * MSS, 10 * MSS}); /* now 8 is a hole */
    expect_data(8 * MSS, MSS, 0, 0);
    ack_to(10 * MSS);
    assert_false(tp()->t_flags & TF_FASTRECOVERY);
    assert_int_equal(sim_counter(w.s, "tcp.rexmt_timeouts"), 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_hole_is_filled_at_once),
        WORLD_TEST(test_old_timestamp_undoes),
        WORLD_TEST(test_loss_is_not_undone),
        WORLD_TEST(test_dsack_undoes),
        WORLD_TEST(test_dsack_counts_once),
        WORLD_TEST(test_degree_is_learnt),
        WORLD_TEST(test_timeout_forgets),
        WORLD_TEST(test_detection_held_off),
        WORLD_TEST(test_knobs_off),
        WORLD_TEST(test_congestion_is_not_undone),
        WORLD_TEST(test_holes_when_nothing_is_new),
        WORLD_TEST(test_rescue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
