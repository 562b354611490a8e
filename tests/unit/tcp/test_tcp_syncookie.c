/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a cookie gives back what it was made of, only for its own tuple, only while its key is
 * good, and shows nothing. Bound: under 2 s. */
#include "../base/unit.h"
#include "tcp/tcp_in.h"

static struct weir_stack st;
static struct tcp_cookie_keys keys;

static int setup(void **state)
{
    uint8_t seed[RNG_SEED_BYTES] = {42};

    memset(&st, 0, sizeof(st));
    memset(&keys, 0, sizeof(keys));
    rng_init(&st.rng, seed);
    st.now = 1000 * NS_PER_S;
    return 0;
}

static struct flow random_flow(struct rng *r)
{
    struct flow f = {0};
    bool v4 = rng_below(r, 2);

    f.laddr.family = f.faddr.family = v4 ? AF_INET : AF_INET6;
    rng_bytes(r, f.laddr.b, v4 ? 4 : 16);
    rng_bytes(r, f.faddr.b, v4 ? 4 : 16);
    f.lport = (uint16_t)rng_u32(r);
    f.fport = (uint16_t)rng_u32(r);
    return f;
}

static void test_round_trip(void **state)
{
    static const uint16_t mss[] = {1, 216, 535, 536, 1220, 1440, 1460, 9000, 65535};
    static const uint16_t mss_back[] = {216, 216, 216, 536, 1200, 1440, 1460, 1460, 1460};
    struct rng r;

    unit_seed(&r, "round_trip");
    for (uint32_t i = 0; i < 10000; i++) {
        struct flow f = random_flow(&r);
        uint32_t irs = rng_u32(&r);
        uint8_t scale = (uint8_t)rng_below(&r, 16);
        struct tcp_cookie in = {mss[i % NELEM(mss)], scale == 15 ? 0xff : scale, i & 1}, out;
        uint32_t iss = tcp_cookie_make(&st, &keys, &f, irs, &in);
        assert_true(tcp_cookie_check(&st, &keys, &f, irs, iss, &out));
        assert_int_equal(out.mss, mss_back[i % NELEM(mss)]);
        assert_int_equal(out.sack, in.sack);
        assert_int_equal(out.wscale == 0xff, in.wscale == 0xff);
        assert_true(in.wscale == 0xff || out.wscale <= in.wscale);
    }
}

/* Not for another tuple or sequence number, and guesses do not succeed. */
static void test_forgery(void **state)
{
    struct rng r;
    unsigned accepted = 0;

    unit_seed(&r, "forgery");
    for (int i = 0; i < 20000; i++) {
        struct flow f = random_flow(&r), g = f;
        struct tcp_cookie in = {1460, 7, true}, out;
        uint32_t irs = rng_u32(&r), iss = tcp_cookie_make(&st, &keys, &f, irs, &in);
        switch (i % 5) {
        case 0:
            g.fport++;
            break;
        case 1:
            g.lport++;
            break;
        case 2:
            g.faddr.b[3] ^= 1;
            break;
        case 3:
            irs++;
            break;
        case 4:
            iss = rng_u32(&r);
            break;
        }
        accepted += tcp_cookie_check(&st, &keys, &g, irs, iss, &out);
    }
    assert_true(accepted <= 1); /* one in 2^24 by chance */
}

/* The last key stays good for one more period, then no longer; a long silence makes both bad. */
/* case: SEC-031 */
static void test_rotation(void **state)
{
    struct rng r;
    struct tcp_cookie in = {1460, 7, true}, out;

    unit_seed(&r, "rotation");
    struct flow f = random_flow(&r);
    (void)tcp_cookie_make(&st, &keys, &f, 1, &in);
    st.now += TCP_COOKIE_LIFE_NS - NS_PER_S;
    uint32_t iss = tcp_cookie_make(&st, &keys, &f, 1, &in);
    st.now += 2 * NS_PER_S; /* a new key makes cookies now */
    uint32_t next = tcp_cookie_make(&st, &keys, &f, 1, &in);
    assert_int_not_equal(iss, next);
    assert_true(tcp_cookie_check(&st, &keys, &f, 1, iss, &out));
    assert_true(tcp_cookie_check(&st, &keys, &f, 1, next, &out));
    st.now += TCP_COOKIE_LIFE_NS;
    (void)tcp_cookie_make(&st, &keys, &f, 1, &in);
    assert_false(tcp_cookie_check(&st, &keys, &f, 1, iss, &out));
    assert_true(tcp_cookie_check(&st, &keys, &f, 1, next, &out));
    st.now += 10 * TCP_COOKIE_LIFE_NS;
    assert_false(tcp_cookie_check(&st, &keys, &f, 1, next, &out));
}

/* A stack that has the keys accepts what another made, before and after it changes its own; one
 * that has other keys does not. */
/* case: SEC-031 */
static void test_another_stack(void **state)
{
    uint8_t seed[RNG_SEED_BYTES] = {43};
    static struct weir_stack other;
    struct tcp_cookie_keys theirs, own = {0};
    struct tcp_cookie in = {1460, 7, true}, out;
    struct rng r;

    unit_seed(&r, "another_stack");
    memset(&other, 0, sizeof(other));
    rng_init(&other.rng, seed);
    for (int i = 0; i < 1000; i++) {
        struct flow f = random_flow(&r);
        other.now = st.now;
        uint32_t irs = rng_u32(&r), iss = tcp_cookie_make(&st, &keys, &f, irs, &in);
        theirs = keys;
        (void)tcp_cookie_make(&other, &own, &f, irs, &in);
        assert_true(tcp_cookie_check(&other, &theirs, &f, irs, iss, &out));
        assert_int_equal(out.mss, 1460);
        assert_int_equal(out.wscale, 7);
        assert_true(out.sack);
        assert_false(tcp_cookie_check(&other, &own, &f, irs, iss, &out));
        other.now += TCP_COOKIE_LIFE_NS - 1; /* whenever in its life it was made */
        assert_true(tcp_cookie_check(&other, &theirs, &f, irs, iss, &out));
        st.now += 1 + rng_below(&r, 60) * NS_PER_S;
    }
}

/* Before the first cookie was made none is accepted. */
static void test_nothing_made(void **state)
{
    struct tcp_cookie out;
    struct flow f = {0};

    for (uint32_t iss = 0; iss < 100000; iss++)
        assert_false(tcp_cookie_check(&st, &keys, &f, 1, iss * 42949, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_round_trip, setup),
        cmocka_unit_test_setup(test_forgery, setup),
        cmocka_unit_test_setup(test_rotation, setup),
        cmocka_unit_test_setup(test_another_stack, setup),
        cmocka_unit_test_setup(test_nothing_made, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
