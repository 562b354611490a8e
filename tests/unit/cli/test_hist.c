/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the latency histogram counts exactly, never lies about few or impossible values, and keeps
 * quantiles within its stated error. Bound: 100,000 values from a fixed seed. */
#include "unit.h"

#include "cli/bench/hist.h"

#include <stdlib.h>

static struct hist h;

static int reset(void **state)
{
    (void)state;
    hist_init(&h);
    return 0;
}

/* case: MEA-016 */
static void test_differences_of_every_sign_and_size(void **state)
{
    (void)state;
    uint64_t v;
    hist_add(&h, -1000);
    hist_add(&h, INT64_MIN);
    assert_int_equal(h.negative, 2);
    assert_int_equal(h.count, 0);
    assert_false(hist_quantile(&h, 500, &v));
    hist_add(&h, 0);
    hist_add(&h, 1000);
    hist_add(&h, INT64_C(1) << 31);
    hist_add(&h, INT64_MAX);
    assert_int_equal(h.count, 4);
    assert_int_equal(h.min, 0);
    assert_true(h.max == INT64_MAX);
    assert_true(hist_quantile(&h, 500, &v));
    assert_in_range(v, 1000, 1008);
}

/* case: MEA-035 */
static void test_mean_of_very_many_does_not_overflow(void **state)
{
    (void)state;
    hist_add(&h, INT64_C(10000000000));
    h.count = UINT64_C(100000000000); /* as after a day of ten-second values */
    h.sum = (unsigned __int128)h.count * UINT64_C(10000000000);
    assert_true(hist_mean(&h) == UINT64_C(10000000000));
}

/* case: MEA-037 */
static void test_few_values_give_no_high_quantiles(void **state)
{
    (void)state;
    uint64_t v;
    hist_add(&h, 5);
    assert_false(hist_quantile(&h, 500, &v));
    assert_int_equal(hist_mean(&h), 5);
    hist_add(&h, 7);
    assert_true(hist_quantile(&h, 500, &v));
    assert_int_equal(v, 5);
    for (int i = 0; i < 98; i++)
        hist_add(&h, 6);
    assert_true(hist_quantile(&h, 990, &v));
    assert_false(hist_quantile(&h, 999, &v));
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_quantiles_are_within_their_error(void **state)
{
    (void)state;
    static uint64_t values[100000];
    static const unsigned q[] = {10, 500, 900, 990, 999};
    uint64_t x = 88172645463325252u, v;
    print_message("seed 88172645463325252\n");
    for (size_t i = 0; i < NELEM(values); i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        values[i] = x >> (20 + x % 40);
        hist_add(&h, (int64_t)values[i]);
    }
    qsort(values, NELEM(values), sizeof(values[0]), compare);
    for (size_t i = 0; i < NELEM(q); i++) {
        uint64_t exact = values[(NELEM(values) * q[i] + 999) / 1000 - 1];
        assert_true(hist_quantile(&h, q[i], &v));
        assert_true(v >= exact && v - exact <= exact / 128 + 1);
    }
    assert_true(hist_mean(&h) >= h.min && hist_mean(&h) <= h.max);
}

static void test_merge_adds_up(void **state)
{
    (void)state;
    static struct hist other;
    hist_init(&other);
    hist_add(&h, 10);
    hist_add(&other, 1);
    hist_add(&other, -1);
    hist_merge(&h, &other);
    assert_int_equal(h.count, 2);
    assert_int_equal(h.min, 1);
    assert_int_equal(h.max, 10);
    assert_int_equal(h.negative, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_differences_of_every_sign_and_size, reset),
        cmocka_unit_test_setup(test_mean_of_very_many_does_not_overflow, reset),
        cmocka_unit_test_setup(test_few_values_give_no_high_quantiles, reset),
        cmocka_unit_test_setup(test_quantiles_are_within_their_error, reset),
        cmocka_unit_test_setup(test_merge_adds_up, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
