/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the generator repeats for a seed, differs between seeds, is independent of how its bytes
 * are fetched, and is uniform enough; SipHash gives its published test vector. Bound: 100,000
 * draws. */
#include "unit.h"

static void test_same_seed_same_sequence(void **state)
{
    uint8_t seed[RNG_SEED_BYTES] = {1, 2, 3}, whole[2000], pieces[2000], other[2000];
    struct rng a, b, c;
    rng_init(&a, seed);
    rng_init(&b, seed);
    seed[31] = 1;
    rng_init(&c, seed);
    rng_bytes(&a, whole, sizeof(whole));
    for (size_t i = 0, n = 1; i < sizeof(pieces); i += n, n = n * 2 + 1) {
        n = MIN(n, sizeof(pieces) - i);
        rng_bytes(&b, pieces + i, n);
    }
    rng_bytes(&c, other, sizeof(other));
    assert_memory_equal(whole, pieces, sizeof(whole));
    assert_memory_not_equal(whole, other, sizeof(whole));
}

/* ChaCha20 with a zero key and nonce: the first bytes of its published key stream (RFC 8439 A.1,
 * vector 1). */
static void test_known_stream(void **state)
{
    static const uint8_t expected[8] = {0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90};
    uint8_t seed[RNG_SEED_BYTES] = {0};
    struct rng r;
    rng_init(&r, seed);
    assert_true(rng_u64(&r) == UINT64_C(0x903df1a0ade0b876));
    rng_init(&r, seed);
    uint8_t got[8];
    rng_bytes(&r, got, sizeof(got));
    assert_memory_equal(got, expected, sizeof(got));
}

static void test_below_is_uniform(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    static const uint32_t bounds[] = {
        1, 2, 3, 10, 1000, UINT32_C(1) << 31, (UINT32_C(1) << 31) + 1, UINT32_MAX};
    for (size_t b = 0; b < NELEM(bounds); b++) {
        uint32_t tenth[10] = {0};
        for (int i = 0; i < 10000; i++) {
            uint32_t v = rng_below(&r, bounds[b]);
            assert_true(v < bounds[b]);
            tenth[(uint64_t)v * 10 / bounds[b]]++;
        }
        for (int i = 0; i < 10 && bounds[b] >= 1000; i++)
            assert_in_range(tenth[i], 800, 1200); /* six standard deviations */
    }
}

/* The vector of the SipHash paper, appendix A: key 00..0f, message 00..0e. */
static void test_siphash_vector(void **state)
{
    uint8_t key[SIPHASH_KEY_BYTES], message[15];
    for (uint8_t i = 0; i < sizeof(key); i++)
        key[i] = i;
    for (uint8_t i = 0; i < sizeof(message); i++)
        message[i] = i;
    assert_true(siphash(key, message, sizeof(message)) == UINT64_C(0xa129ca6149be45e5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_sequence),
        cmocka_unit_test(test_known_stream),
        cmocka_unit_test(test_below_is_uniform),
        cmocka_unit_test(test_siphash_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
