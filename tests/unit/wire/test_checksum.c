/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: sums equal those of a byte-by-byte sum for every length, alignment, split into pieces and
 * starting sum; the examples of RFC 1071 and real headers come out right. Bound: 20,000 random
 * sums. */
#include "../buf/buf_unit.h"

#include "wire/checksum.h"
#include "wire/wire.h"

/* The definition: 16-bit words in network order, an odd byte padded. Returned in memory order. */
static uint16_t reference(const uint8_t *p, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return __builtin_bswap16((uint16_t)sum);
}

/* Zero has two forms. */
static void expect_sum(uint16_t got, uint16_t expected)
{
    assert_int_equal(got == 0xffff ? 0 : got, expected == 0xffff ? 0 : expected);
}

static void test_rfc1071_example(void **state)
{
    static const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    uint16_t sum = checksum_fold(checksum_add(bytes, sizeof(bytes), 0));
    assert_int_equal(get_be16(&sum), 0xddf2);
}

static void test_every_length_and_alignment(void **state)
{
    uint8_t bytes[400];
    struct rng r;
    unit_seed(&r, __func__);
    rng_bytes(&r, bytes, sizeof(bytes));
    for (size_t off = 0; off < 70; off++) {
        for (size_t n = 0; n <= 300; n++)
            expect_sum(checksum_fold(checksum_add(bytes + off, n, 0)), reference(bytes + off, n));
    }
    memset(bytes, 0xff, sizeof(bytes)); /* every carry there can be */
    for (size_t n = 0; n <= 300; n++)
        assert_int_equal(checksum_fold(checksum_add(bytes, n, UINT64_MAX)),
                         n % 2 ? 0x00ff : 0xffff);
}

static void test_pieces_and_copies(void **state)
{
    static uint8_t bytes[70000], copy[70000];
    struct rng r;
    unit_seed(&r, __func__);
    for (int round = 0; round < 300; round++) {
        uint32_t len = rng_below(&r, rng_below(&r, 2) ? 70000 : 200);
        rng_bytes(&r, bytes, len);
        uint16_t whole = reference(bytes, len);
        uint32_t cut = rng_below(&r, len + 1) & ~1u;
        expect_sum(checksum_fold(checksum_add(bytes + cut, len - cut, checksum_add(bytes, cut, 0))),
                   whole);
        memset(copy, 0, sizeof(copy));
        expect_sum(checksum_fold(checksum_copy(copy, bytes, len, 0)), whole);
        assert_memory_equal(copy, bytes, len);
        struct mbuf *m = random_chain(&r, bytes, len);
        expect_sum(checksum_fold(checksum_mbuf(m, 0, len, 0)), whole);
        uint32_t off = rng_below(&r, len + 1), n = rng_below(&r, len - off + 1);
        expect_sum(checksum_fold(checksum_mbuf(m, off, n, 0)), reference(bytes + off, n));
        mbuf_free_chain(&m);
    }
}

static void test_pseudo_header(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    for (int i = 0; i < 1000; i++) {
        uint8_t v4[12] = {0}, v6[40] = {0};
        struct ipaddr s = {.family = AF_INET}, d = {.family = AF_INET};
        uint32_t len = rng_below(&r, 65536);
        uint8_t proto = (uint8_t)rng_below(&r, 256);
        rng_bytes(&r, s.b, 4);
        rng_bytes(&r, d.b, 4);
        memcpy(v4, s.b, 4);
        memcpy(v4 + 4, d.b, 4);
        v4[9] = proto;
        put_be16(v4 + 10, (uint16_t)len);
        expect_sum(checksum_fold(checksum_pseudo(&s, &d, proto, len)), reference(v4, sizeof(v4)));
        s.family = d.family = AF_INET6;
        rng_bytes(&r, s.b, 16);
        rng_bytes(&r, d.b, 16);
        memcpy(v6, s.b, 16);
        memcpy(v6 + 16, d.b, 16);
        len += rng_below(&r, 100000);
        put_be32(v6 + 32, len);
        v6[39] = proto;
        expect_sum(checksum_fold(checksum_pseudo(&s, &d, proto, len)), reference(v6, sizeof(v6)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_rfc1071_example),
        BUF_TEST(test_every_length_and_alignment),
        BUF_TEST(test_pieces_and_copies),
        BUF_TEST(test_pseudo_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
