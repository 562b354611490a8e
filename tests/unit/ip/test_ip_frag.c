/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: reassembly puts honest datagrams together in any order, and hostile fragments cost bounded
 * memory and work, deliver nothing wrong and leave nothing behind. Bound: the listed cases; floods
 * of 20,000 fragments. */
#include "host.h"

#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

static uint8_t pattern[65535];

static void piece4(struct host *h, uint16_t id, uint32_t off, uint32_t len, bool more)
{
    inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .id = id, .off = (uint16_t)off, .mf = more},
            pattern + off, len);
}

static void piece6(struct host *h, uint32_t id, uint32_t off, uint32_t len, bool more)
{
    static uint8_t raw[70000];
    struct ipv6_fragment f = {.next = PROTO_TEST, .off = (uint16_t)off, .more = more, .id = id};

    ipv6_fragment_build(raw, &f);
    memcpy(raw + 8, pattern + off, len);
    inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, raw, 8 + len);
}

static void expect_whole(struct host *h, uint32_t packets, uint32_t len)
{
    assert_int_equal(h->seen.packets, packets);
    assert_int_equal(h->seen.len, len);
    assert_memory_equal(h->seen.data, pattern, len);
    assert_int_equal(h->seen.info.proto, PROTO_TEST);
}

static void expect_nothing_held(struct host *h)
{
    assert_int_equal(h->s.ip->frag4.frags + h->s.ip->frag6.frags, 0);
    assert_int_equal(h->s.ip->frag4.queues + h->s.ip->frag6.queues, 0);
}

static void any_order(void **state)
{
    static const uint8_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    struct host *h = host_create(0);
    uint32_t n = 0, chunk;
    unsigned i, k;

    for (chunk = 0; chunk < 100; chunk += 33) {
        h->chunk = chunk;
        for (i = 0; i < NELEM(orders); i++) {
            for (k = 0; k < 4; k++)
                piece4(h, (uint16_t)n, orders[i][k] * 1000u, orders[i][k] == 3 ? 77 : 1000,
                       orders[i][k] != 3);
            expect_whole(h, ++n, 3077);
            for (k = 0; k < 4; k++)
                piece6(h, n, orders[i][k] * 1000u, orders[i][k] == 3 ? 77 : 1000,
                       orders[i][k] != 3);
            expect_whole(h, ++n, 3077);
        }
    }
    /* Two datagrams that differ in the id only, mixed; an exact repetition changes nothing. */
    piece4(h, 100, 0, 800, true);
    piece4(h, 101, 0, 800, true);
    piece4(h, 101, 0, 800, true);
    piece4(h, 101, 800, 5, false);
    expect_whole(h, ++n, 805);
    piece4(h, 100, 800, 6, false);
    expect_whole(h, ++n, 806);
    expect_nothing_held(h);
    host_destroy(h);
}

static void congestion_mark_survives(void **state)
{
    struct host *h = host_create(0);

    inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .id = 1, .tos = 2, .mf = true}, pattern, 8);
    inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .id = 1, .tos = 3, .off = 8}, pattern + 8,
            8);
    expect_whole(h, 1, 16);
    assert_int_equal(h->seen.info.tos, 3);
    host_destroy(h);
}

/* case: SEC-007 */
static void flood_is_bounded(void **state)
{
    struct host *h = host_create(0);
    struct ip_state *ip = h->s.ip;
    unsigned i;

    for (i = 0; i < 20000; i++) {
        uint32_t off = 8 + 8 * rng_below(&h->s.rng, 8000);
        char src[32];

        snprintf(src, sizeof(src), "10.%u.%u.%u", 1 + rng_below(&h->s.rng, 200),
                 rng_below(&h->s.rng, 256), 1 + rng_below(&h->s.rng, 250));
        inject4(h,
                &(struct ip4_spec){.src = src,
                                   .proto = PROTO_TEST,
                                   .id = (uint16_t)rng_u32(&h->s.rng),
                                   .off = (uint16_t)off,
                                   .mf = true},
                pattern, 8);
        piece6(h, rng_u32(&h->s.rng), off, 8, true);
        h->s.now += 100 * NS_PER_US;
        assert_true(ip->frag4.queues <= 1024 && ip->frag4.frags <= 4096);
        assert_true(ip->frag6.queues <= 1024 && ip->frag6.frags <= 4096);
        if (i % 1000 == 0) { /* honest traffic beside it */
            uint32_t n = h->seen.packets;

            piece4(h, 7, 0, 1480, true);
            piece4(h, 7, 1480, 100, false);
            expect_whole(h, n + 1, 1580);
            piece6(h, 7, 0, 1232, true);
            piece6(h, 7, 1232, 100, false);
            expect_whole(h, n + 2, 1332);
            inject4(h, &(struct ip4_spec){.proto = PROTO_TEST}, pattern, 100);
            expect_whole(h, n + 3, 100);
        }
    }
    assert_true(CTR(h, ip_frag_limit) > 10000 && CTR(h, ip6_frag_limit) > 10000);
    host_run(h, 61 * NS_PER_S);
    expect_nothing_held(h);
    assert_int_equal(CTR(h, ip_frag_timeout), 1024);
    assert_int_equal(CTR(h, ip6_frag_timeout), 1024);
    host_destroy(h);
}

/* case: SEC-007 */
static void one_datagram_is_bounded(void **state)
{
    struct host *h = host_create(0);
    unsigned i;

    for (i = 0; i < 8000; i++) { /* every second piece, from the end */
        piece4(h, 1, 65504 - 16 * (i % 4000), 8, true);
        piece6(h, 1, 65504 - 16 * (i % 4000), 8, true);
        assert_true(h->s.ip->frag4.frags <= 64 && h->s.ip->frag6.frags <= 64);
    }
    assert_int_equal(h->seen.packets, 0);
    assert_true(CTR(h, ip_frag_limit) > 7000);
    host_run(h, 61 * NS_PER_S);
    expect_nothing_held(h);
    host_destroy(h);
}

/* case: SEC-008 */
static void ping_of_death(void **state)
{
    static const uint8_t nops[40] = {1, 1, 1, 1};
    struct host *h = host_create(0);
    unsigned i, n = 0;

    for (i = 8; i <= 1480; i += 8) {
        piece4(h, 5, 0, 1480, true);
        inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .id = 5, .off = 8191 * 8}, pattern, i);
        assert_int_equal(CTR(h, ip_frag_bad), ++n);
        expect_nothing_held(h);
    }
    piece4(h, 5, 0, 1480, true);
    inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .id = 5, .off = 8189 * 8}, pattern, 1480);
    assert_int_equal(CTR(h, ip_frag_bad), ++n);
    expect_nothing_held(h);
    piece6(h, 5, 0, 1480, true);
    {
        static uint8_t raw[1500];

        ipv6_fragment_build(raw,
                            &(struct ipv6_fragment){.next = PROTO_TEST, .off = 8189 * 8, .id = 5});
        inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, raw, 8 + 1480);
    }
    assert_int_equal(CTR(h, ip6_frag_bad), 1);
    expect_nothing_held(h);
    /* 65,535 bytes of payload fit, but not behind a header of 60. */
    for (i = 0; i < 65512; i += 32760)
        piece4(h, 6, i, MIN(32760u, 65512 - i), i + 32760 < 65512);
    expect_whole(h, 1, 65512);
    for (i = 0; i < 65512; i += 32760)
        inject4(h,
                &(struct ip4_spec){.proto = PROTO_TEST,
                                   .id = 7,
                                   .off = (uint16_t)i,
                                   .mf = i + 32760 < 65512,
                                   .options = nops,
                                   .options_len = i == 0 ? 40 : 0},
                pattern + i, MIN(32760u, 65512 - i));
    assert_int_equal(h->seen.packets, 1);
    assert_int_equal(CTR(h, ip_frag_bad), ++n);
    expect_nothing_held(h);
    host_destroy(h);
}

static void overlap_condemns(void **state)
{
    static const struct {
        uint32_t off, len;
    } second[] = {{8, 16}, {0, 24}, {0, 32}, {16, 16}, {0, 16}, {16, 8}, {8, 24}};
    struct host *h = host_create(0);
    unsigned i;

    for (i = 0; i < NELEM(second); i++) {
        piece4(h, (uint16_t)i, 8, 16, true);
        piece4(h, (uint16_t)i, second[i].off, second[i].len, true);
        piece6(h, i, 8, 16, true);
        piece6(h, i, second[i].off, second[i].len, true);
        assert_int_equal(CTR(h, ip_frag_overlap), i);
        assert_int_equal(CTR(h, ip6_frag_overlap), i);
        assert_int_equal(h->s.ip->frag4.frags, 1);
    }
    /* Contradictory lengths: two last fragments, one beyond the last, a last one that is not. */
    piece4(h, 50, 800, 8, false);
    piece4(h, 50, 1600, 8, false);
    piece4(h, 51, 800, 8, false);
    piece4(h, 51, 1600, 8, true);
    piece4(h, 52, 800, 8, true);
    piece4(h, 52, 400, 8, false);
    assert_int_equal(CTR(h, ip_frag_bad), 3);
    piece4(h, 53, 0, 7, true);  /* not a multiple of 8 */
    piece4(h, 53, 8, 0, false); /* nothing */
    assert_int_equal(CTR(h, ip_frag_bad), 5);
    piece6(h, 53, 0, 7, true);
    assert_int_equal(CTR(h, ip6_frag_bad), 1);
    assert_int_equal(h->seen.packets, 0);
    host_destroy(h);
}

/* case: SEC-011 */
static void atomic_fragment_stands_alone(void **state)
{
    static const uint8_t atomic[] = {PROTO_TEST, 0, 0, 0, 0, 0, 0, 7, 'a', 't', 'o', 'm'};
    struct host *h = host_create(0);

    piece6(h, 7, 0, 1200, true);
    inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, atomic, sizeof(atomic));
    assert_int_equal(h->seen.packets, 1);
    assert_int_equal(h->seen.len, 4);
    assert_memory_equal(h->seen.data, "atom", 4);
    piece6(h, 7, 1200, 99, false);
    expect_whole(h, 2, 1299);
    assert_int_equal(CTR(h, ip6_frag_atomic), 1);
    host_destroy(h);
}

static void first_fragment_holds_all_headers(void **state)
{
    /* Destination options that end in the second fragment (RFC 7112). */
    static const uint8_t first[] = {IPV6_NH_DSTOPTS, 0, 0, 1, 0, 0, 0, 9,
                                    PROTO_TEST,      1, 1, 4, 0, 0, 0, 0};
    struct host *h = host_create(0);

    inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, first, sizeof(first));
    assert_int_equal(CTR(h, ip6_frag_bad), 1);
    expect_nothing_held(h);
    host_destroy(h);
}

static void extension_inside_fragments(void **state)
{
    struct host *h = host_create(0);
    uint8_t raw[8 + 8 + 64] = {0}, *opts = raw + 8;

    for (h->chunk = 0; h->chunk < 90; h->chunk += 9) {
        uint32_t n = h->seen.packets;

        ipv6_fragment_build(
            raw, &(struct ipv6_fragment){.next = IPV6_NH_DSTOPTS, .more = true, .id = 3});
        memcpy(opts, (const uint8_t[]){PROTO_TEST, 0, 1, 4, 0, 0, 0, 0}, 8);
        memcpy(opts + 8, pattern, 64);
        inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, raw, sizeof(raw));
        ipv6_fragment_build(raw,
                            &(struct ipv6_fragment){.next = IPV6_NH_DSTOPTS, .off = 72, .id = 3});
        memcpy(raw + 8, pattern + 64, 30);
        inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, raw, 8 + 30);
        expect_whole(h, n + 1, 94);
    }
    host_destroy(h);
}

static void timeout_is_told(void **state)
{
    struct host *h = host_create(0);
    struct frame *f;

    host_learn_peers(h);
    piece4(h, 1, 0, 800, true);
    piece4(h, 2, 8, 800, true); /* nothing to quote */
    piece6(h, 1, 0, 800, true);
    host_run(h, 29 * NS_PER_S);
    assert_null(host_next_packet(h));
    host_run(h, 2 * NS_PER_S);
    assert_int_equal(CTR(h, ip_frag_timeout), 2);
    f = host_next_packet(h);
    assert_non_null(f);
    assert_int_equal(ip_of(h, f)[20], ICMP4_TIME_EXCEEDED);
    assert_int_equal(ip_of(h, f)[21], 1);
    assert_memory_equal(ip_of(h, f) + 28 + 20, pattern, 528);
    free(f);
    assert_null(host_next_packet(h));
    host_run(h, 28 * NS_PER_S);
    host_learn_peers(h);
    host_run(h, 2 * NS_PER_S);
    assert_int_equal(CTR(h, ip6_frag_timeout), 1);
    f = host_next_packet(h);
    assert_non_null(f);
    assert_int_equal(ip_of(h, f)[40], ICMP6_TIME_EXCEEDED);
    assert_int_equal(ip_of(h, f)[41], 1);
    free(f);
    expect_nothing_held(h);
    host_destroy(h);
}

static void discovery_not_in_fragments(void **state)
{
    struct host *h = host_create(0);
    uint8_t raw[8 + 32] = {0};
    struct nd_neighbor nd = {.type = ICMP6_NEIGHBOR_SOLICIT, .target = addr("fd00::1")};

    nd_neighbor_build(raw + 8, &nd);
    fill_sum(raw + 8, 24, 2, "fd00::2", "fd00::1", IPPROTO_ICMPV6);
    ipv6_fragment_build(raw, &(struct ipv6_fragment){.next = IPPROTO_ICMPV6, .id = 1});
    inject6(h, NULL, NULL, IPV6_NH_FRAGMENT, raw, 8 + 24);
    assert_int_equal(CTR(h, ip6_frag_bad), 1);
    assert_null(host_next_packet(h));
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),
        cmocka_unit_test(congestion_mark_survives),
        cmocka_unit_test(flood_is_bounded),
        cmocka_unit_test(one_datagram_is_bounded),
        cmocka_unit_test(ping_of_death),
        cmocka_unit_test(overlap_condemns),
        cmocka_unit_test(atomic_fragment_stands_alone),
        cmocka_unit_test(first_fragment_holds_all_headers),
        cmocka_unit_test(extension_inside_fragments),
        cmocka_unit_test(timeout_is_told),
        cmocka_unit_test(discovery_not_in_fragments),
    };
    unsigned i;

    for (i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)(i * 7 + (i >> 8));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
