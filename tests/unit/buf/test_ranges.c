/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: ranges stay sorted and are found as in a plain array, across the wrap of sequence space.
 * Bound: 20,000 random operations on up to 200 ranges. */
#include "../base/unit.h"
#include "buf/ranges.h"

#define SPAN 400 /* cells of 10 sequence numbers: each holds at most one range */

static struct range cells[SPAN];
static bool held[SPAN];

static void check(const struct ranges *r, uint32_t base, struct rng *rng)
{
    const struct range *e = ranges_first(r);
    uint32_t n = 0;
    struct range *prev = NULL;
    for (int i = 0; i < SPAN; i++) {
        if (!held[i])
            continue;
        assert_ptr_equal(e, &cells[i]);
        assert_ptr_equal(ranges_prev(e), prev);
        prev = &cells[i];
        e = ranges_next(e);
        n++;
    }
    assert_null(e);
    assert_int_equal(r->count, n);
    assert_ptr_equal(ranges_last(r), prev);
    for (int k = 0; k < 10; k++) {
        uint32_t seq = base + rng_below(rng, SPAN * 10);
        int i = 0;
        while (i < SPAN && !(held[i] && SEQ_GT(cells[i].end, seq)))
            i++;
        assert_ptr_equal(ranges_find(r, seq), i < SPAN ? &cells[i] : NULL);
    }
}

static void test_against_array(void **state)
{
    static const uint32_t bases[] = {0, UINT32_MAX - SPAN * 5, (UINT32_C(1) << 31) - SPAN * 5};
    struct rng rng;
    unit_seed(&rng, __func__);
    for (size_t b = 0; b < NELEM(bases); b++) {
        struct ranges r;
        ranges_init(&r);
        assert_null(ranges_first(&r));
        assert_null(ranges_last(&r));
        assert_null(ranges_find(&r, 5));
        memset(held, 0, sizeof(held));
        for (int step = 0; step < 7000; step++) {
            uint32_t i = rng_below(&rng, SPAN);
            if (held[i]) {
                ranges_remove(&r, &cells[i]);
            } else {
                cells[i].start = bases[b] + i * 10 + rng_below(&rng, 5);
                cells[i].end = cells[i].start + 1 + rng_below(&rng, 5);
                ranges_insert(&r, &cells[i]);
            }
            held[i] = !held[i];
            if (step % 50 == 0)
                check(&r, bases[b], &rng);
        }
    }
}

static void test_sequence_comparison(void **state)
{
    assert_true(SEQ_LT(UINT32_MAX, 0));
    assert_true(SEQ_GT(5, UINT32_MAX - 5));
    assert_true(SEQ_LEQ(7, 7) && SEQ_GEQ(7, 7));
    assert_int_equal(SEQ_MIN(UINT32_MAX, 1), UINT32_MAX);
    assert_int_equal(SEQ_MAX(UINT32_MAX, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_array),
        cmocka_unit_test(test_sequence_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
