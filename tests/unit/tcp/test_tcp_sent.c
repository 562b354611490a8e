/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the list of sent ranges agrees with a model that knows the fate of each segment, whatever
 * is sent, SACKed, lost, resent and acknowledged; its sums are exact; hostile SACKs cost neither
 * memory nor time. Bound: under 10 s. */
#include "sent_unit.h"
#include <time.h>

#define MSS 100u
#define MODEL_SEGS 4096u

enum fate { OUT, SACKED, LOST, RESENT };
static struct {
    uint32_t base;     /* sequence number of segment 0 */
    uint32_t una, nxt; /* in segments */
    enum fate fate[MODEL_SEGS];
} model;

static uint32_t seq_of(uint32_t seg)
{
    return model.base + seg * MSS;
}

static void check_model(void)
{
    uint32_t sacked = 0, lost = 0, resent = 0, runs = 0;
    bool in_run = false;
    for (uint32_t i = model.una; i < model.nxt; i++) {
        sacked += model.fate[i] == SACKED;
        lost += model.fate[i] == LOST || model.fate[i] == RESENT;
        resent += model.fate[i] == RESENT;
        runs += model.fate[i] == SACKED && !in_run;
        in_run = model.fate[i] == SACKED;
    }
    assert_int_equal(tcb.t_sacked_bytes, sacked * MSS);
    assert_int_equal(tcb.t_lost_bytes, lost * MSS);
    assert_int_equal(tcb.t_rexmit_bytes, resent * MSS);
    assert_int_equal(tcb.t_sack_runs, runs);
    assert_int_equal(tcp_sent_pipe(&tcb), (model.nxt - model.una - sacked - lost + resent) * MSS);
    uint32_t at = tcb.snd_una;
    for (struct range *r = ranges_first(&tcb.t_sent); r; r = ranges_next(r)) {
        assert_int_equal(r->start, at);
        at = r->end;
    }
    assert_int_equal(at, tcb.snd_nxt);
}

static void model_open(uint32_t base)
{
    unit_open(base, MSS);
    memset(&model, 0, sizeof(model));
    model.base = base;
}

static void do_send(uint32_t segs)
{
    if (model.nxt + segs > MODEL_SEGS)
        return;
    assert_int_equal(tcp_sent_add(&tcb, tcb.snd_nxt, tcb.snd_nxt + segs * MSS, MSS), 0);
    tcb.snd_nxt += segs * MSS;
    tcb.snd_max = tcb.snd_nxt;
    for (uint32_t i = 0; i < segs; i++)
        model.fate[model.nxt++] = OUT;
}

static void do_sack(uint32_t a, uint32_t b)
{
    uint32_t newly = 0;
    for (uint32_t i = a; i < b; i++) {
        newly += model.fate[i] != SACKED;
        model.fate[i] = SACKED;
    }
    assert_int_equal(tcp_sent_sack(&tcb, seq_of(a), seq_of(b), NULL), newly * MSS);
}

static void do_ack(uint32_t una)
{
    struct tcp_sent_ack gone;
    tcp_sent_acked(&tcb, seq_of(una), &gone);
    tcb.snd_una = seq_of(una);
    model.una = una;
    if (SEQ_LT(tcb.t_lost_mark, tcb.snd_una))
        tcb.t_lost_mark = tcb.snd_una;
    if (SEQ_LT(tcb.t_rexmit_next, tcb.snd_una))
        tcb.t_rexmit_next = tcb.snd_una;
}

static void do_timeout(void)
{
    tcp_sent_lose_all(&tcb);
    for (uint32_t i = model.una; i < model.nxt; i++) {
        if (model.fate[i] != SACKED)
            model.fate[i] = LOST;
    }
}

static void do_mark_lost(void)
{
    tcp_sent_mark_lost(&tcb, MSS, 3);
    /* RFC 6675's IsLost, from its definition. */
    for (uint32_t i = model.una; i < model.nxt; i++) {
        uint32_t above = 0, runs = 0;
        for (uint32_t k = i + 1; k < model.nxt; k++) {
            above += model.fate[k] == SACKED;
            runs += model.fate[k] == SACKED && model.fate[k - 1] != SACKED;
        }
        if (model.fate[i] == OUT && (above * MSS > 2 * MSS || runs >= 3))
            model.fate[i] = LOST;
    }
}

static void do_resend(void)
{
    uint32_t start, len = tcp_sent_next_lost(&tcb, MSS, &start), i = model.una;
    while (i < model.nxt && model.fate[i] != LOST)
        i++;
    if (i == model.nxt) {
        assert_int_equal(len, 0);
        return;
    }
    assert_int_equal(len, MSS);
    i = (start - model.base) / MSS;
    assert_int_equal(model.fate[i], LOST);
    tcp_sent_rexmitted(&tcb, start, len, MSS);
    model.fate[i] = RESENT;
}

static void random_step(void)
{
    uint32_t out = model.nxt - model.una, a, b;
    st.now += (uint64_t)(rand() % 3) * NS_PER_MS;
    switch (rand() % 8) {
    case 0:
    case 1:
        do_send(1 + (uint32_t)rand() % 8);
        break;
    case 2:
    case 3:
        if (out < 2)
            break;
        a = model.una + 1 + (uint32_t)rand() % (out - 1);
        b = a + 1 + (uint32_t)rand() % 4;
        do_sack(a, b > model.nxt ? model.nxt : b);
        break;
    case 4:
        if (out && model.fate[model.una] != SACKED)
            do_ack(model.una + 1 + (uint32_t)rand() % out);
        break;
    case 5:
        do_mark_lost();
        break;
    case 6:
        if (rand() % 8 == 0)
            do_timeout();
        break;
    default:
        do_resend();
        break;
    }
}

/* case: SEC-056 */
static void test_model(void **state)
{
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    static const uint32_t bases[] = {0, 0xffffffff, 0xfffffff0, 0x7fffffff, 0x80000000, 0xffff0000};
    for (unsigned round = 0; round < 60; round++) {
        model_open(bases[round % NELEM(bases)]);
        for (int i = 0; i < 400; i++) {
            random_step();
            check_model();
        }
        unit_close();
    }
}

static void test_bursts_are_one_range(void **state)
{
    model_open(1000);
    for (int i = 0; i < 10; i++)
        do_send(4);
    assert_int_equal(tcb.t_sent.count, 1);
    st.now++;
    do_send(1);
    assert_int_equal(tcb.t_sent.count, 2);
    for (uint32_t i = 1; i <= 41; i++)
        do_ack(i);
    assert_int_equal(tcb.t_sent.count, 0);
    unit_close();
}

/* A SACK that covers a part of a segment says nothing; what it covers wholly counts. */
static void test_partial_segments_are_ignored(void **state)
{
    model_open(5000);
    do_send(10);
    assert_int_equal(tcp_sent_sack(&tcb, 5001, 5099, NULL), 0);
    assert_int_equal(tcp_sent_sack(&tcb, 5150, 5250, NULL), 0);
    assert_int_equal(tcb.t_sent.count, 1);
    assert_int_equal(tcp_sent_sack(&tcb, 5150, 5450, NULL), 200);
    /* The last segment may be short. */
    assert_int_equal(tcp_sent_add(&tcb, 6000, 6030, MSS), 0);
    tcb.snd_nxt = tcb.snd_max = 6030;
    assert_int_equal(tcp_sent_sack(&tcb, 6000, 6030, NULL), 30);
    unit_close();
}

/* case: SEC-013 */
static void test_ascending_merges(void **state)
{
    unit_open(0xfff00000, 48);
    assert_int_equal(tcp_sent_add(&tcb, tcb.snd_una, tcb.snd_una + 10000000, 48), 0);
    tcb.snd_nxt = tcb.snd_max = tcb.snd_una + 10000000;
    STORE_RELAXED(&st.knobs.tcp_sack_maxholes, 128);
    uint32_t top = tcb.snd_una + 10000000 / 48 * 48;
    for (uint32_t i = 1; i <= 50000; i++) {
        uint32_t end = top - (i - 1) * 48;
        tcp_sent_sack(&tcb, end - 48, end, NULL);
        assert_true(tcb.t_sent.count <= 3);
    }
    assert_int_equal(tcb.t_sacked_bytes, 50000u * 48);
    /* Every second segment: the number of runs is limited, and the rest is ignored. */
    for (uint32_t i = 1; i < 50000; i++)
        tcp_sent_sack(&tcb, tcb.snd_una + i * 96, tcb.snd_una + i * 96 + 48, NULL);
    assert_true(tcb.t_sack_runs <= 128);
    assert_true(tcb.t_sent.count <= 2 * 128 + 2);
    unit_close();
}

/* case: SEC-014 */
static void test_one_byte_blocks(void **state)
{
    unit_open(77, 536);
    assert_int_equal(tcp_sent_add(&tcb, 77, 77 + 1048576, 536), 0);
    tcb.snd_nxt = tcb.snd_max = 77 + 1048576;
    for (uint32_t i = 0; i < 300000; i++)
        tcp_sent_sack(&tcb, 78 + 2 * i, 79 + 2 * i, NULL);
    assert_int_equal(tcb.t_sent.count, 1);
    assert_int_equal(tcb.t_sacked_bytes, 0);
    unit_close();
}

static void test_short_pieces_make_full_segments(void **state)
{
    uint32_t start;
    unit_open(0, 1000);
    for (uint32_t i = 0; i < 20; i++) {
        st.now += NS_PER_MS;
        assert_int_equal(tcp_sent_add(&tcb, i * 150, (i + 1) * 150, 1000), 0);
    }
    tcb.snd_nxt = tcb.snd_max = 3000;
    tcp_sent_lose_head(&tcb, 1000);
    assert_int_equal(tcp_sent_next_lost(&tcb, 1000, &start), 1000);
    assert_int_equal(start, 0);
    tcp_sent_rexmitted(&tcb, 0, 1000, 1000);
    assert_int_equal(tcp_sent_next_lost(&tcb, 1000, &start), 0);
    assert_int_equal(tcb.t_rexmit_bytes, 1000);
    assert_int_equal(tcp_sent_pipe(&tcb), 3000);
    unit_close();
}

static void test_rtt_only_of_what_was_sent_once(void **state)
{
    struct tcp_sent_ack a;
    model_open(0);
    do_send(2);
    st.now += NS_PER_MS;
    do_send(2);
    tcp_sent_acked(&tcb, 100, &a);
    assert_int_equal(a.sent_ns, NS_PER_S);
    tcp_sent_acked(&tcb, 300, &a);
    assert_int_equal(a.sent_ns, NS_PER_S + NS_PER_MS);
    tcb.snd_una = 300;
    tcp_sent_lose_all(&tcb);
    tcp_sent_rexmitted(&tcb, 300, 100, MSS);
    tcp_sent_acked(&tcb, 400, &a);
    assert_int_equal(a.sent_ns, 0);
    assert_true(a.rexmitted);
    tcb.snd_una = 400;
    unit_close();
}

static void test_undo(void **state)
{
    model_open(0);
    do_send(3);
    assert_int_equal(tcp_sent_add(&tcb, 300, 500, MSS), 0);
    tcp_sent_undo(&tcb, 300);
    check_model();
    tcp_sent_lose_all(&tcb);
    tcp_sent_rexmitted(&tcb, 0, 100, MSS);
    tcp_sent_unlose(&tcb);
    assert_int_equal(tcp_sent_pipe(&tcb), 300);
    unit_close();
}

/* RFC 6675 4, IsLost(): three runs above are enough, however few their bytes; two are not. */
static void test_three_runs_are_enough(void **state)
{
    enum { SMSS = 1460, PIECE = 100 };
    unit_open(1000, SMSS);
    assert_int_equal(tcp_sent_add(&tcb, 1000, 2000, PIECE), 0);
    tcb.snd_nxt = tcb.snd_max = 2000;
    assert_int_equal(tcp_sent_sack(&tcb, 1100, 1200, NULL), PIECE);
    assert_int_equal(tcp_sent_sack(&tcb, 1300, 1400, NULL), PIECE);
    assert_int_equal(tcp_sent_mark_lost(&tcb, SMSS, 3), 0);
    assert_int_equal(tcp_sent_sack(&tcb, 1700, 1800, NULL), PIECE);
    assert_int_equal(tcp_sent_mark_lost(&tcb, SMSS, 3), PIECE);
    assert_int_equal(tcp_sent_sack(&tcb, 1900, 2000, NULL), PIECE);
    assert_int_equal(tcp_sent_mark_lost(&tcb, SMSS, 3), PIECE); /* [1200, 1300) too */
    assert_int_equal(tcb.t_lost_bytes, 2 * PIECE);
    unit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_runs_are_enough),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_bursts_are_one_range),
        cmocka_unit_test(test_partial_segments_are_ignored),
        cmocka_unit_test(test_ascending_merges),
        cmocka_unit_test(test_one_byte_blocks),
        cmocka_unit_test(test_short_pieces_make_full_segments),
        cmocka_unit_test(test_rtt_only_of_what_was_sent_once),
        cmocka_unit_test(test_undo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
