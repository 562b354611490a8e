/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the measurement of reassembly's cost does what it says: the blocks are there, each segment
 * is answered with SACK blocks, the stream arrives whole, and nothing is left, in either form of
 * the queue and any order. How long it takes is nobody's business here. Bound: 1,000 blocks. */
#include "unit.h"

#include "cli/repro/reass_cost.h"

static void run(bool list, enum reass_order order, uint32_t blocks, uint32_t payload)
{
    struct reass_cost_case c = {.list = list,
                                .order = order,
                                .blocks = blocks,
                                .payload = payload,
                                .seed = 7,
                                .limit_s = 60};
    struct reass_cost_result r;
    assert_true(reass_cost(&c, &r));
    assert_int_equal(r.reached, blocks);
    assert_true(r.measured > 0);
    assert_true(r.ns_mean > 0 && r.ns_median > 0 && r.ns_p99 >= r.ns_median);
    uint64_t rounds = r.delivered / (2 * (uint64_t)blocks * (payload ? payload : 100));
    assert_true(rounds > 0);
    assert_int_equal(r.delivered, rounds * 2 * blocks * (payload ? payload : 100));
    assert_int_equal(r.acks, rounds * blocks);
    /* One, two, then three at a time: all that fit beside a timestamp. */
    assert_int_equal(r.sack_blocks, rounds * (blocks < 3 ? blocks : 3 * blocks - 3));
    assert_int_equal(r.left_segments, 0);
    assert_int_equal(r.left_bytes, 0);
    assert_int_equal(r.left_mbufs, 0);
    assert_true(r.bytes_right);
}

static void test_every_order(void **state)
{
    for (int list = 0; list < 2; list++) {
        run(list, REASS_ASCENDING, 100, 0);
        run(list, REASS_DESCENDING, 100, 0);
        run(list, REASS_RANDOM, 100, 0);
    }
}

static void test_sizes(void **state)
{
    run(false, REASS_RANDOM, 1000, 1448);
    run(false, REASS_ASCENDING, 1000, 1);
    run(true, REASS_DESCENDING, 17, 500);
    run(false, REASS_ASCENDING, 1, 100);
}

static void test_bad_cases(void **state)
{
    struct reass_cost_case c = {.blocks = 0};
    struct reass_cost_result r;
    assert_false(reass_cost(&c, &r));
    assert_true(r.error[0] != 0);
    c.blocks = 100;
    c.payload = 1449;
    assert_false(reass_cost(&c, &r));
}

/* Out of time: what was reached is said, and the connection still ends whole. */
static void test_out_of_time(void **state)
{
    struct reass_cost_case c = {.blocks = 20000, .order = REASS_RANDOM, .limit_s = 1e-9};
    struct reass_cost_result r;
    assert_true(reass_cost(&c, &r));
    assert_true(r.reached > 0 && r.reached < c.blocks);
    assert_int_equal(r.left_segments, 0);
    assert_int_equal(r.left_bytes, 0);
    assert_true(r.bytes_right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bad_cases),
        cmocka_unit_test(test_out_of_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
