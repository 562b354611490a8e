/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the receiver's SACK blocks are the queue's, the most recent first, each once, D-SACK in
 * front and but once. Bound: under 2 s. */
#include "reass_unit.h"

static uint8_t zeros[8192];

static void expect_blocks(unsigned max, unsigned n, const uint32_t *edges)
{
    struct sack_block b[8];

    assert_int_equal(tcp_sack_report(&tcb, b, max), n);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(b[i].start, edges[2 * i]);
        assert_int_equal(b[i].end, edges[2 * i + 1]);
    }
}

static void test_most_recent_first(void **state)
{
    unit_open(1000, 65536);
    unit_segment(2000, zeros, 100, 0, 0);
    expect_blocks(4, 1, (uint32_t[]){2000, 2100});
    unit_segment(3000, zeros, 100, 0, 0);
    unit_segment(4000, zeros, 100, 0, 0);
    expect_blocks(4, 3, (uint32_t[]){4000, 4100, 3000, 3100, 2000, 2100});
    unit_segment(2100, zeros, 50, 0, 0);
    expect_blocks(4, 3, (uint32_t[]){2000, 2150, 4000, 4100, 3000, 3100});
    expect_blocks(2, 2, (uint32_t[]){2000, 2150, 4000, 4100});
    /* Blocks that grow together are one. */
    unit_segment(3100, zeros, 900, 0, 0);
    expect_blocks(4, 2, (uint32_t[]){3000, 4100, 2000, 2150});
    /* What became in order is not reported. */
    unit_segment(1000, zeros, 1000, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 2150);
    expect_blocks(4, 1, (uint32_t[]){3000, 4100});
    unit_close();
}

static void test_dsack_in_front_once(void **state)
{
    unit_open(1000, 65536);
    unit_segment(2000, zeros, 200, 0, 0);
    unit_segment(2050, zeros, 100, 0, 0);
    /* The duplicate, then the block that holds it (RFC 2883 4.1). */
    expect_blocks(4, 2, (uint32_t[]){2050, 2150, 2000, 2200});
    expect_blocks(4, 1, (uint32_t[]){2000, 2200});
    unit_segment(2100, zeros, 200, 0, 0);
    expect_blocks(4, 2, (uint32_t[]){2100, 2200, 2000, 2300});
    tcp_dsack_note(&tcb, 500, 600);
    expect_blocks(1, 1, (uint32_t[]){500, 600});
    unit_close();
}

static void test_not_without_permission(void **state)
{
    unit_open(1000, 65536);
    tcb.t_flags = 0;
    unit_segment(2000, zeros, 200, 0, 0);
    tcp_dsack_note(&tcb, 1, 2);
    expect_blocks(4, 0, NULL);
    unit_close();
}

/* Random segments: each block reported is a block of the queue, none twice, the first holds the
 * last segment. case: SEC-056 */
static void test_random(void **state)
{
    struct rng r;

    unit_seed(&r, "sack_random");
    for (int round = 0; round < 200; round++) {
        uint32_t base = round & 1 ? 0xffffff00u : 0x7fffff00u;
        unit_open(base, 1 << 20);
        for (int i = 0; i < 100; i++) {
            struct sack_block b[4], run[200];
            uint32_t at = base + rng_below(&r, 4000), len = 1 + rng_below(&r, 200);
            unit_segment(at, zeros, len, 0, 0);
            tcb.t_dsack_pending = false;
            unsigned n = tcp_sack_report(&tcb, b, 4);
            uint32_t runs = unit_runs(run, NELEM(run));
            assert_int_equal(n, MIN(n, MIN(4u, runs)));
            for (unsigned k = 0; k < n; k++) {
                uint32_t j = 0;
                while (j < runs && run[j].start != b[k].start)
                    j++;
                assert_true(j < runs);
                assert_int_equal(run[j].end, b[k].end);
                for (unsigned i2 = 0; i2 < k; i2++)
                    assert_int_not_equal(b[i2].start, b[k].start);
            }
            if (SEQ_GT(at, tcb.rcv_nxt)) {
                assert_true(n > 0);
                assert_true(SEQ_LEQ(b[0].start, at) && SEQ_GEQ(b[0].end, at + len));
            }
        }
        unit_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_most_recent_first),
        BUF_TEST(test_dsack_in_front_once),
        BUF_TEST(test_not_without_permission),
        BUF_TEST(test_random),
    };
    UNIT_RUN_FORMS(tests);
}
