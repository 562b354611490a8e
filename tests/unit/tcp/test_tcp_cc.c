/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: NewReno and CUBIC grow and shrink the window as RFC 5681, 3465, 6928 and 9438 say. Bound:
 * under 1 s. */
#include "sent_unit.h"

#define MSS 1000u

static void open_with(const struct tcp_cc *cc)
{
    unit_open(0, MSS);
    tcb.snd_ssthresh = 0;
    tcp_cc_attach(&tcb, cc);
    tcb.snd_cwnd = 10 * MSS;
}

static void acks(uint32_t bytes, uint32_t each, bool limited)
{
    for (uint32_t done = 0; done < bytes; done += each) {
        struct tcp_cc_ack a = {.bytes = each, .segs = 1, .cwnd_limited = limited};
        tcb.t_cc->acked(&tcb, &a);
    }
}

static void test_choice(void **state)
{
    assert_ptr_equal(tcp_cc_find("cubic"), &tcp_cc_cubic);
    assert_ptr_equal(tcp_cc_find("newreno"), &tcp_cc_newreno);
    assert_ptr_equal(tcp_cc_find("reno"), &tcp_cc_newreno);
    assert_null(tcp_cc_find("bbr"));
    unit_open(0, MSS);
    tcp_cc_attach(&tcb, NULL);
    assert_string_equal(tcp_cc_name(tcb.t_cc), "cubic");
    STORE_RELAXED(&st.knobs.tcp_cc_algorithm, 0);
    tcp_cc_attach(&tcb, NULL);
    assert_string_equal(tcp_cc_name(tcb.t_cc), "newreno");
    unit_close();
}

static void test_initial_window(void **state)
{
    static const struct {
        int64_t segs;
        uint32_t maxseg, window;
    } t[] = {{10, 1460, 14600}, {10, 536, 5360}, {10, 8960, 17920},
             {0, 1460, 4380},   {0, 536, 2144},  {0, 8960, 17920}};
    for (unsigned i = 0; i < NELEM(t); i++) {
        unit_open(0, t[i].maxseg);
        STORE_RELAXED(&st.knobs.tcp_initcwnd_segments, t[i].segs);
        assert_int_equal(tcp_cc_initial_window(&tcb), t[i].window);
        unit_close();
    }
}

/* case: SEC-062 */
static void test_ack_division_gains_nothing(void **state)
{
    open_with(&tcp_cc_newreno);
    acks(10 * MSS, 1, true);
    assert_int_equal(tcb.snd_cwnd, 20 * MSS); /* by bytes, not by ACKs */
    open_with(&tcp_cc_newreno);
    struct tcp_cc_ack stretch = {.bytes = 10 * MSS, .segs = 1, .cwnd_limited = true};
    tcb.t_cc->acked(&tcb, &stretch);
    assert_int_equal(tcb.snd_cwnd, 12 * MSS); /* L = 2 */
    open_with(&tcp_cc_cubic);
    acks(10 * MSS, 1, true);
    assert_int_equal(tcb.snd_cwnd, 20 * MSS);
    unit_close();
}

static void test_growth_needs_use(void **state)
{
    open_with(&tcp_cc_newreno);
    acks(100 * MSS, MSS, false);
    assert_int_equal(tcb.snd_cwnd, 10 * MSS);
    open_with(&tcp_cc_cubic);
    acks(100 * MSS, MSS, false);
    assert_int_equal(tcb.snd_cwnd, 10 * MSS);
    unit_close();
}

static void test_newreno(void **state)
{
    open_with(&tcp_cc_newreno);
    tcb.snd_cwnd = 20 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS);
    assert_int_equal(tcb.snd_ssthresh, 10 * MSS);
    tcb.snd_cwnd = 10 * MSS + 1;
    acks(11 * MSS, MSS, true); /* congestion avoidance: one segment a window */
    assert_int_equal(tcb.snd_cwnd, 11 * MSS + 1);
    tcb.snd_cwnd = 2 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS);
    assert_int_equal(tcb.snd_ssthresh, 2 * MSS);
    tcb.snd_cwnd = 16 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_ECN);
    assert_int_equal(tcb.snd_cwnd, 8 * MSS);
    struct tcp_cc_ack after = {
        .bytes = 4 * MSS, .segs = 2, .cwnd_limited = true, .after_rto = true};
    tcb.snd_cwnd = MSS;
    tcb.t_cc->acked(&tcb, &after);
    assert_int_equal(tcb.snd_cwnd, 2 * MSS);
    unit_close();
}

static void test_restart_after_idle(void **state)
{
    const struct tcp_cc *cc[] = {&tcp_cc_newreno, &tcp_cc_cubic};
    for (unsigned i = 0; i < NELEM(cc); i++) {
        open_with(cc[i]);
        tcb.snd_cwnd = 100 * MSS;
        tcb.snd_ssthresh = 50 * MSS;
        tcb.t_cc->event(&tcb, TCP_CC_IDLE);
        assert_int_equal(tcb.snd_cwnd, 10 * MSS);
        assert_int_equal(tcb.snd_ssthresh, 75 * MSS);
        unit_close();
    }
}

/* Grow for ms in round trips of rtt_ms, one window acknowledged in each. */
static void run_ms(uint32_t ms, uint32_t rtt_ms)
{
    tcb.t_srtt = rtt_ms * NS_PER_MS;
    for (uint32_t t = 0; t < ms; t += rtt_ms) {
        st.now += rtt_ms * NS_PER_MS;
        acks(tcb.snd_cwnd, MSS, true);
    }
}

static void test_cubic_curve(void **state)
{
    open_with(&tcp_cc_cubic);
    tcb.snd_cwnd = 1000 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS);
    assert_int_equal(tcb.snd_ssthresh, 700 * MSS);
    tcb.snd_cwnd = 700 * MSS + 1;
    /* K = cbrt(300 / 0.4) = 9.09 s: back at the old maximum, flat around it, then beyond. */
    run_ms(4500, 100);
    assert_in_range(tcb.snd_cwnd, 940 * MSS, 985 * MSS);
    run_ms(4500, 100);
    assert_in_range(tcb.snd_cwnd, 990 * MSS, 1010 * MSS);
    run_ms(5000, 100);
    assert_in_range(tcb.snd_cwnd, 1030 * MSS, 1070 * MSS);
    /* Fast convergence: a second loss below the maximum aims lower. */
    tcb.snd_cwnd = 800 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS); /* w_max was about 1000 */
    assert_int_equal(tcb.snd_ssthresh, 560 * MSS);
    tcb.snd_cwnd = 560 * MSS + 1;
    run_ms(9000, 100); /* w_max = 800 * 0.85 = 680; K = 6.7 s */
    assert_in_range(tcb.snd_cwnd, 670 * MSS, 700 * MSS);
    unit_close();
}

/* Where CUBIC would be slower than Reno it keeps up with it (RFC 9438 4.3). */
static void test_cubic_friendly(void **state)
{
    open_with(&tcp_cc_cubic);
    tcb.snd_cwnd = 20 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS);
    tcb.snd_cwnd = 14 * MSS + 1;
    run_ms(100, 10); /* ten rounds: 0.53 segments each */
    assert_in_range(tcb.snd_cwnd, 18 * MSS, 20 * MSS);
    run_ms(100, 10); /* past the old window: one each */
    assert_in_range(tcb.snd_cwnd, 26 * MSS, 31 * MSS);
    unit_close();
}

static void test_cubic_idle_time_does_not_count(void **state)
{
    open_with(&tcp_cc_cubic);
    tcb.snd_cwnd = 1000 * MSS;
    tcb.t_cc->event(&tcb, TCP_CC_LOSS);
    tcb.snd_cwnd = 700 * MSS + 1;
    run_ms(1000, 100);
    uint32_t before = tcb.snd_cwnd;
    st.now += 60 * NS_PER_S;
    acks(MSS, MSS, false);
    run_ms(100, 100);
    assert_in_range(tcb.snd_cwnd, before, before + 20 * MSS);
    unit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_initial_window),
        cmocka_unit_test(test_ack_division_gains_nothing),
        cmocka_unit_test(test_growth_needs_use),
        cmocka_unit_test(test_newreno),
        cmocka_unit_test(test_restart_after_idle),
        cmocka_unit_test(test_cubic_curve),
        cmocka_unit_test(test_cubic_friendly),
        cmocka_unit_test(test_cubic_idle_time_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
