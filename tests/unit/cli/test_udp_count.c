/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the receiver of numbered datagrams counts what is lost, late and double apart, and payload
 * that is not the pattern is found at its place. Bound: made-up numbers, fixed seeds, no clock. */
#include "unit.h"

#include "cli/bench/bench.h"

#include <stdlib.h>

static struct udp_stream u;

static int reset(void **state)
{
    (void)state;
    memset(&u, 0, sizeof(u));
    return 0;
}

static void expect(uint64_t received, uint64_t lost, uint64_t reordered, uint64_t duplicates)
{
    assert_true(u.received == received);
    assert_true(u.lost == lost);
    assert_true(u.reordered == reordered);
    assert_true(u.duplicates == duplicates);
}

/* case: MEA-022 */
static void test_first_lost_and_duplicates(void **state)
{
    (void)state;
    for (uint64_t i = 100; i < 200; i++) {
        udp_arrived(&u, i, 0);
        if (i % 10 == 0)
            udp_arrived(&u, i, 0);
    }
    expect(100, 100, 0, 10);
    udp_arrived(&u, 50, 0);
    udp_arrived(&u, 50, 0);
    expect(101, 99, 1, 11);
}

/* case: MEA-023 */
static void test_swapped_pairs_are_not_lost(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i += 2) {
        udp_arrived(&u, i + 1, 0);
        udp_arrived(&u, i, 0);
    }
    expect(1000, 0, 500, 0);
}

/* case: MEA-025 */
static void test_numbers_past_32_bits(void **state)
{
    (void)state;
    static const uint64_t start[] = {(UINT64_C(1) << 31) - 1000, (UINT64_C(1) << 32) - 1000};
    for (size_t k = 0; k < NELEM(start); k++) {
        memset(&u, 0, sizeof(u));
        u.next = start[k];
        for (uint64_t i = 0; i < 5000; i++)
            udp_arrived(&u, start[k] + i, 0);
        expect(5000, 0, 0, 0);
    }
}

/* What is older than the window, or a jump over it, keeps every count in its bounds. */
static void test_jumps_over_the_window(void **state)
{
    (void)state;
    udp_arrived(&u, 0, 0);
    udp_arrived(&u, 10 * UDP_WINDOW, 0);
    expect(2, 10 * UDP_WINDOW - 1, 0, 0);
    udp_arrived(&u, 1, 0);
    expect(2, 10 * UDP_WINDOW - 1, 0, 1);
    for (uint64_t i = 10 * UDP_WINDOW - 1; i > 9 * UDP_WINDOW; i--)
        udp_arrived(&u, i, 0);
    expect(UDP_WINDOW + 1, 9 * UDP_WINDOW, UDP_WINDOW - 1, 1);
}

static void test_jitter_is_of_changes(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        udp_arrived(&u, i, -5000000);
    assert_int_equal(u.jitter_ns, 0);
    for (uint64_t i = 100; i < 1000; i++)
        udp_arrived(&u, i, i % 2 == 0 ? 0 : 1600);
    assert_in_range(u.jitter_ns, 1584, 1616);
}

static void test_pattern_differs_at_its_place(void **state)
{
    (void)state;
    char *p = pattern_create(42, 4096), *other = pattern_create(43 << 1, 4096), buf[4096];
    static const uint64_t place[] = {0, 1, PATTERN_PERIOD - 1, PATTERN_PERIOD, UINT64_MAX / 2};
    assert_true(p != NULL && other != NULL);
    for (size_t k = 0; k < NELEM(place); k++) {
        memcpy(buf, pattern_at(p, place[k]), sizeof(buf));
        assert_int_equal(pattern_differs(p, buf, sizeof(buf), place[k]), sizeof(buf));
        for (size_t i = 0; i < sizeof(buf); i += 997) {
            buf[i] ^= 1;
            assert_int_equal(pattern_differs(p, buf, sizeof(buf), place[k]), i);
            buf[i] ^= 1;
        }
        assert_true(pattern_differs(other, buf, sizeof(buf), place[k]) < 16);
        assert_true(pattern_differs(p, buf, sizeof(buf), place[k] + 1) < 16);
    }
    free(p);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_first_lost_and_duplicates, reset),
        cmocka_unit_test_setup(test_swapped_pairs_are_not_lost, reset),
        cmocka_unit_test_setup(test_numbers_past_32_bits, reset),
        cmocka_unit_test_setup(test_jumps_over_the_window, reset),
        cmocka_unit_test_setup(test_jitter_is_of_changes, reset),
        cmocka_unit_test(test_pattern_differs_at_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
