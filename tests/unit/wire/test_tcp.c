/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: TCP headers and options are built byte for byte in FreeBSD's (and Linux's) layout, parse
 * back to what they were built from, and any bytes at all are parsed without reading past their
 * end. Bound: every subset of options, 100,000 random headers in buffers of exact size (for
 * AddressSanitizer). */
#include "../base/unit.h"
#include "wire/tcp.h"

static void expect_options(const struct tcp_options *o, bool syn, enum tcp_option_order order,
                           const uint8_t *expected, unsigned len)
{
    uint8_t out[TCP_MAX_OPTIONS];
    assert_int_equal(tcp_options_build(out, o, syn, order), len);
    assert_memory_equal(out, expected, len);
}
#define EXPECT(o, syn, order, ...)                                                                 \
    expect_options(o, syn, order, (const uint8_t[]){__VA_ARGS__},                                  \
                   sizeof((const uint8_t[]){__VA_ARGS__}))

#define MSS 2, 4, 5, 0xb4
#define WSCALE 3, 3, 6
#define SACKOK 4, 2
#define TS 8, 10, 1, 2, 3, 4, 5, 6, 7, 8

static const struct tcp_options full = {
    .mss = 1460,
    .wscale = 6,
    .tsval = 0x01020304,
    .tsecr = 0x05060708,
    .nsack = 4,
    .sack = {{0x11111111, 0x22222222},
             {0x33333333, 0x44444444},
             {0x55555555, 0x66666666},
             {0x77777777, 0x88888888}},
};

static struct tcp_options with(uint8_t flags)
{
    struct tcp_options o = full;
    o.flags = flags;
    return o;
}

static void test_freebsd_layouts(void **state)
{
    struct tcp_options o = with(TOF_MSS | TOF_SCALE | TOF_SACKPERM | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, 1, WSCALE, SACKOK, TS);
    o = with(TOF_MSS | TOF_SCALE | TOF_SACKPERM);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, 1, WSCALE, SACKOK, 0, 0);
    o = with(TOF_MSS);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS);
    o = with(TOF_MSS | TOF_SCALE);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, 1, WSCALE);
    o = with(TOF_MSS | TOF_SACKPERM);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, SACKOK, 0, 0);
    o = with(TOF_MSS | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, 1, 1, TS);
    o = with(TOF_MSS | TOF_SACKPERM | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, SACKOK, TS);
    o = with(TOF_MSS | TOF_SCALE | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_FREEBSD, MSS, 1, WSCALE, 1, 1, TS);
    o = with(0);
    uint8_t none[TCP_MAX_OPTIONS];
    assert_int_equal(tcp_options_build(none, &o, true, TCP_ORDER_FREEBSD), 0);
}

static void test_linux_layouts(void **state)
{
    struct tcp_options o = with(TOF_MSS | TOF_SCALE | TOF_SACKPERM | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_LINUX, MSS, SACKOK, TS, 1, WSCALE);
    o = with(TOF_MSS | TOF_SCALE | TOF_SACKPERM);
    EXPECT(&o, true, TCP_ORDER_LINUX, MSS, 1, 1, SACKOK, 1, WSCALE);
    o = with(TOF_MSS | TOF_SCALE | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_LINUX, MSS, 1, 1, TS, 1, WSCALE);
    o = with(TOF_MSS | TOF_SACKPERM | TOF_TS);
    EXPECT(&o, true, TCP_ORDER_LINUX, MSS, SACKOK, TS);
    o = with(TOF_MSS | TOF_SCALE);
    EXPECT(&o, true, TCP_ORDER_LINUX, MSS, 1, WSCALE);
}

#define BLOCK1 0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22
#define BLOCK2 0x33, 0x33, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44
#define BLOCK3 0x55, 0x55, 0x55, 0x55, 0x66, 0x66, 0x66, 0x66
#define BLOCK4 0x77, 0x77, 0x77, 0x77, 0x88, 0x88, 0x88, 0x88

static void test_segment_layouts(void **state)
{
    struct tcp_options o = with(TOF_TS);
    EXPECT(&o, false, TCP_ORDER_FREEBSD, 1, 1, TS);
    o = with(TOF_TS | TOF_SACK);
    EXPECT(&o, false, TCP_ORDER_FREEBSD, 1, 1, TS, 1, 1, 5, 26, BLOCK1, BLOCK2, BLOCK3);
    o.nsack = 1;
    EXPECT(&o, false, TCP_ORDER_LINUX, 1, 1, TS, 1, 1, 5, 10, BLOCK1);
    o = with(TOF_SACK);
    EXPECT(&o, false, TCP_ORDER_FREEBSD, 1, 1, 5, 34, BLOCK1, BLOCK2, BLOCK3, BLOCK4);
    o.nsack = 0;
    uint8_t none[TCP_MAX_OPTIONS];
    assert_int_equal(tcp_options_build(none, &o, false, TCP_ORDER_FREEBSD), 0);
}

static void test_round_trip_of_every_subset(void **state)
{
    for (uint8_t flags = 0; flags < 16; flags++) {
        for (int order = 0; order < 2; order++) {
            uint8_t out[TCP_MAX_OPTIONS];
            struct tcp_options o = with(flags), p;
            unsigned len =
                tcp_options_build(out, &o, true, order ? TCP_ORDER_LINUX : TCP_ORDER_FREEBSD);
            assert_true(len % 4 == 0 && len <= TCP_MAX_OPTIONS);
            tcp_options_parse(out, len, true, &p);
            assert_int_equal(p.flags, flags);
            assert_true(!(flags & TOF_MSS) || p.mss == 1460);
            assert_true(!(flags & TOF_SCALE) || p.wscale == 6);
            assert_true(!(flags & TOF_TS) || (p.tsval == o.tsval && p.tsecr == o.tsecr));
            tcp_options_parse(out, len, false, &p);
            assert_int_equal(p.flags, flags & TOF_TS); /* the others count with SYN only */
        }
    }
    for (uint8_t n = 1; n <= 4; n++) {
        uint8_t out[TCP_MAX_OPTIONS];
        struct tcp_options o = with(TOF_SACK), p;
        o.nsack = n;
        tcp_options_parse(out, tcp_options_build(out, &o, false, TCP_ORDER_FREEBSD), false, &p);
        assert_int_equal(p.flags, TOF_SACK);
        assert_int_equal(p.nsack, n);
        assert_memory_equal(p.sack, full.sack, n * sizeof(p.sack[0]));
    }
}

/* Parse from a heap block of exactly this size. */
static struct tcp_options parse_exact(const uint8_t *p, size_t len, bool syn)
{
    struct tcp_options o;
    uint8_t *copy = malloc(len + (len == 0));
    memcpy(copy, p, len);
    tcp_options_parse(copy, len, syn, &o);
    free(copy);
    return o;
}

/* case: SEC-043 */
static void test_wrong_lengths_are_ignored(void **state)
{
    static const struct {
        uint8_t kind, len;
        bool syn;
    } rows[] = {
        {2, 2, true},   {2, 3, true},  {2, 5, true},  {2, 40, true},  {3, 2, true},
        {3, 4, true},   {4, 3, true},  {5, 2, false}, {5, 9, false},  {5, 11, false},
        {5, 40, false}, {8, 2, false}, {8, 9, false}, {8, 12, false},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        /* Whole, and then cut so that only 1, 2, ... of its bytes are there. */
        for (size_t have = 1; have <= 40; have++) {
            uint8_t bytes[40] = {rows[i].kind, rows[i].len};
            for (size_t k = 2; k < sizeof(bytes); k++)
                bytes[k] = k < rows[i].len ? 0x11 : 0;
            struct tcp_options o = parse_exact(bytes, have, rows[i].syn);
            assert_int_equal(o.flags, TOF_BAD);
        }
    }
    /* What stands in front of a malformed option counts. */
    struct tcp_options o = parse_exact((const uint8_t[]){MSS, 3, 2, SACKOK, 8}, 9, true);
    assert_int_equal(o.flags, TOF_MSS | TOF_SACKPERM | TOF_BAD);
    /* The scale is given as it is on the wire: its limit is the caller's. */
    o = parse_exact((const uint8_t[]){3, 3, 255}, 3, true);
    assert_int_equal(o.flags, TOF_SCALE);
    assert_int_equal(o.wscale, 255);
    /* A length of 0 or 1 must not stop the walk from ending. */
    o = parse_exact((const uint8_t[]){77, 0, MSS}, 6, true);
    assert_int_equal(o.flags, TOF_BAD);
    o = parse_exact((const uint8_t[]){77, 1, MSS}, 6, true);
    assert_int_equal(o.flags, TOF_BAD);
    /* Unknown kinds are stepped over; nothing behind the end of options counts. */
    o = parse_exact((const uint8_t[]){29, 4, 0, 0, 19, 2, MSS, 0, SACKOK}, 13, true);
    assert_int_equal(o.flags, TOF_MSS);
}

/* case: SEC-040 */
static void test_header_lengths(void **state)
{
    uint8_t bytes[80] = {0};
    struct tcp_header h;
    for (size_t len = 0; len <= 60; len++) {
        uint8_t *copy = malloc(len + (len == 0));
        for (uint8_t doff = 0; doff < 16; doff++) {
            bytes[12] = (uint8_t)(doff << 4);
            memcpy(copy, bytes, len);
            int expected =
                len < 20 ? -EMSGSIZE : (doff < 5 ? -EINVAL : (doff * 4u > len ? -EMSGSIZE : 0));
            assert_int_equal(tcp_header_parse(copy, len, &h), expected);
        }
        free(copy);
    }
}

static void test_header_round_trip(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    for (int i = 0; i < 1000; i++) {
        uint8_t bytes[60], again[60] = {0};
        struct tcp_header h;
        rng_bytes(&r, bytes, sizeof(bytes));
        bytes[12] = (uint8_t)((5 + rng_below(&r, 11)) << 4 | (bytes[12] & 1));
        assert_int_equal(tcp_header_parse(bytes, sizeof(bytes), &h), 0);
        tcp_header_build(again, &h);
        assert_memory_equal(bytes, again, TCP_HEADER_LEN);
    }
    static const uint8_t syn[20] = {0x1f, 0x90, 0,    80,   1,    2,    3,    4,    0, 0,
                                    0,    0,    0x51, 0xc2, 0xff, 0xff, 0x12, 0x34, 0, 7};
    struct tcp_header h;
    assert_int_equal(tcp_header_parse(syn, sizeof(syn), &h), 0);
    assert_int_equal(h.sport, 8080);
    assert_int_equal(h.dport, 80);
    assert_int_equal(h.seq, 0x01020304);
    assert_int_equal(h.flags, TH_SYN | TH_ECE | TH_CWR);
    assert_int_equal(h.ns, 1);
    assert_int_equal(h.win, 65535);
    assert_int_equal(h.urp, 7);
}

static void test_any_bytes(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    for (int i = 0; i < 100000; i++) {
        uint8_t bytes[40];
        uint32_t len = rng_below(&r, sizeof(bytes) + 1);
        for (uint32_t k = 0; k < len; k++)
            bytes[k] = (uint8_t)rng_below(&r, rng_below(&r, 2) ? 12 : 256);
        struct tcp_options o = parse_exact(bytes, len, i % 2);
        assert_true(o.nsack <= TCP_MAX_SACK_BLOCKS);
        assert_true(!(o.flags & TOF_SACK) || o.nsack > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freebsd_layouts),
        cmocka_unit_test(test_linux_layouts),
        cmocka_unit_test(test_segment_layouts),
        cmocka_unit_test(test_round_trip_of_every_subset),
        cmocka_unit_test(test_wrong_lengths_are_ignored),
        cmocka_unit_test(test_header_lengths),
        cmocka_unit_test(test_header_round_trip),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
