/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: no IPv4 or IPv6 header that lies about lengths, addresses, options or extension headers
 * reaches a transport, and honest ones do whatever their buffers look like. Bound: the listed
 * cases, each in one buffer and in pieces. */
#include "host.h"

#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

static const struct ip4_spec plain = {.proto = PROTO_TEST};

static void sum4(struct host *h, uint8_t *frame)
{
    uint8_t *p = frame + (h->nif->caps & NETIF_CAP_L3 ? 0 : 14);
    size_t hlen = MAX((p[0] & 0x0f) * 4, 20);

    ipv4_sum_update(p, hlen);
}

static void delivers(void **state)
{
    static const uint32_t chunks[] = {0, 1, 7, 13, 14, 20, 33, 34, 35, 40, 53, 54, 55};
    struct host *h = host_create(0);
    uint8_t data[64];
    unsigned i;

    memset(data, 0xa5, sizeof(data));
    for (i = 0; i < NELEM(chunks); i++) {
        h->chunk = chunks[i];
        inject4(h, &(struct ip4_spec){.proto = PROTO_TEST, .tos = 0x2e, .ttl = 9}, data,
                sizeof(data));
        assert_int_equal(h->seen.packets, 2 * i + 1);
        assert_int_equal(h->seen.len, sizeof(data));
        assert_memory_equal(h->seen.data, data, sizeof(data));
        assert_int_equal(h->seen.info.hlen, 20);
        assert_int_equal(h->seen.info.ttl, 9);
        assert_int_equal(h->seen.info.tos, 0x2e);
        inject6(h, NULL, NULL, PROTO_TEST, data, sizeof(data));
        assert_int_equal(h->seen.packets, 2 * i + 2);
        assert_int_equal(h->seen.len, sizeof(data));
        assert_memory_equal(h->seen.data, data, sizeof(data));
    }
    host_destroy(h);
}

/* case: SEC-041 */
static void ipv4_lengths_lie(void **state)
{
    static const uint16_t totals[] = {0, 19, 23, 20 + 60 + 1, 65535};
    struct host *h = host_create(0);
    uint8_t frame[256], data[60] = {0};
    size_t len;
    unsigned i;

    for (i = 0; i < 5; i++) { /* header length below 20 */
        len = make4(h, frame, &plain, data, sizeof(data));
        frame[14] = (uint8_t)(0x40 | i);
        sum4(h, frame);
        host_inject(h, frame, len);
    }
    len = make4(h, frame, &plain, data, 0); /* and 60 where 20 are there */
    frame[14] = 0x4f;
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, ip_rx_badhlen), 6);
    for (i = 0; i < NELEM(totals); i++) {
        len = make4(h, frame,
                    &(struct ip4_spec){.proto = PROTO_TEST,
                                       .options = (const uint8_t[]){1, 1, 1, 0},
                                       .options_len = totals[i] == 23 ? 4 : 0},
                    data, sizeof(data));
        put_be16(frame + 14 + 2, totals[i]);
        sum4(h, frame);
        host_inject(h, frame, len);
        assert_int_equal(CTR(h, ip_rx_badlen), i + 1);
    }
    for (i = 0; i < 20; i++) { /* shorter than a header */
        len = make4(h, frame, &plain, data, 0);
        host_inject(h, frame, 14 + i);
    }
    assert_int_equal(CTR(h, ip_rx_short) + CTR(h, link_rx_short), 20);
    len = make4(h, frame, &plain, data, sizeof(data));
    frame[14] = 0x55;
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, ip_rx_badver), 1);
    len = make4(h, frame, &plain, data, sizeof(data));
    frame[14 + 10] ^= 1;
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, ip_rx_badsum), 1);
    assert_int_equal(h->seen.packets, 0);
    /* A total length of just the header is an empty packet. */
    len = make4(h, frame, &plain, data, sizeof(data));
    put_be16(frame + 14 + 2, 20);
    sum4(h, frame);
    host_inject(h, frame, len);
    assert_int_equal(h->seen.packets, 1);
    assert_int_equal(h->seen.len, 0);
    assert_null(host_next(h));
    host_destroy(h);
}

/* case: SEC-041 */
static void ipv6_lengths_lie(void **state)
{
    static const uint8_t jumbo[] = {PROTO_TEST, 0, 0xc2, 4, 0, 1, 0, 0};
    struct host *h = host_create(0);
    uint8_t frame[256], data[60] = {0};
    size_t len;
    unsigned i;

    for (i = 0; i < 40; i++) {
        make6(h, frame, NULL, NULL, PROTO_TEST, data, 0);
        host_inject(h, frame, 14 + i);
    }
    assert_int_equal(CTR(h, ip6_rx_short) + CTR(h, link_rx_short), 40);
    len = make6(h, frame, NULL, NULL, IPPROTO_TCP, data, sizeof(data));
    put_be16(frame + 14 + 4, 0); /* nothing, but TCP next */
    host_inject(h, frame, len);
    put_be16(frame + 14 + 4, sizeof(data) + 1);
    host_inject(h, frame, len);
    put_be16(frame + 14 + 4, 65535);
    host_inject(h, frame, len);
    len = make6(h, frame, NULL, NULL, IPV6_NH_HOPOPTS, jumbo, sizeof(jumbo));
    put_be16(frame + 14 + 4, 0);
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, ip6_rx_badlen), 4);
    inject6(h, NULL, NULL, IPV6_NH_HOPOPTS, jumbo,
            sizeof(jumbo)); /* with a length: an unknown option */
    assert_int_equal(CTR(h, ip6_rx_badext), 1);
    len = make6(h, frame, NULL, NULL, PROTO_TEST, data, sizeof(data));
    frame[14] = 0x40;
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, ip6_rx_badver), 1);
    assert_int_equal(h->seen.packets, 0);
    host_destroy(h);
}

/* case: SEC-010 */
static void padding_is_cut(void **state)
{
    struct host *h = host_create(0);
    uint8_t frame[256], data[26];
    unsigned pad, chunk;
    size_t len;

    memset(data, 0x5a, sizeof(data));
    for (chunk = 0; chunk < 60; chunk += 19) {
        h->chunk = chunk;
        for (pad = 0; pad <= 46; pad++) {
            len = make4(h, frame, &plain, data, sizeof(data));
            memset(frame + len, 0xee, pad);
            host_inject(h, frame, len + pad);
            assert_int_equal(h->seen.len, sizeof(data));
            assert_memory_equal(h->seen.data, data, sizeof(data));
            len = make6(h, frame, NULL, NULL, PROTO_TEST, data, sizeof(data));
            memset(frame + len, 0xee, pad);
            host_inject(h, frame, len + pad);
            assert_int_equal(h->seen.len, sizeof(data));
        }
    }
    host_destroy(h);
}

/* case: SEC-010 */
static void unknown_protocol_is_answered(void **state)
{
    struct host *h = host_create(0);
    uint8_t inner[600] = {0x45, 0, 0xff, 0xff}, frame[700];
    struct frame *f;
    const uint8_t *p;
    unsigned i;
    size_t len;

    host_learn_peers(h);
    /* IP in IP, the inner length larger than what is there, in two fragments with bytes behind. */
    len = make4(h, frame, &(struct ip4_spec){.proto = 4, .id = 9, .mf = true}, inner, 400);
    host_inject(h, frame, len + 20);
    len = make4(h, frame, &(struct ip4_spec){.proto = 4, .id = 9, .off = 400}, inner, 200);
    host_inject(h, frame, len + 20);
    f = host_next(h);
    assert_non_null(f);
    p = ip_of(h, f);
    assert_int_equal(p[9], IPPROTO_ICMP);
    assert_int_equal(p[20], ICMP4_UNREACH);
    assert_int_equal(p[21], ICMP4_UNREACH_PROTO);
    assert_int_equal(get_be16(p + 2), 576); /* the quote is cut to what an error may be long */
    free(f);
    inject6(h, NULL, NULL, 4, inner, 64);
    f = host_next(h);
    assert_non_null(f);
    p = ip_of(h, f);
    assert_int_equal(p[40], ICMP6_PARAM_PROBLEM);
    assert_int_equal(p[41], ICMP6_PARAM_NEXT_HEADER);
    assert_int_equal(get_be32(p + 44), 6);
    free(f);
    for (i = 0; i < 1000; i++)
        inject4(h, &(struct ip4_spec){.proto = 4}, inner, 64);
    assert_true(CTR(h, icmp_tx_errors) <= 200);
    assert_int_equal(CTR(h, icmp_tx_errors) + CTR(h, icmp_tx_limited), 1002);
    assert_int_equal(CTR(h, ip_rx_noproto), 1001);
    assert_int_equal(h->seen.packets, 0);
    host_destroy(h);
}

/* case: SEC-035 */
static void impossible_sources(void **state)
{
    static const char *bad4[] = {"10.0.0.1",  "127.0.0.1",       "0.0.0.0",    "0.1.2.3",
                                 "224.0.0.1", "255.255.255.255", "10.0.0.255", "240.0.0.1"};
    static const char *bad6[] = {"fd00::1", "::1", "ff02::1", "::", "::ffff:10.0.0.2"};
    struct host *h = host_create(0);
    uint8_t data[20] = {0};
    unsigned i;

    for (i = 0; i < NELEM(bad4); i++)
        inject4(h, &(struct ip4_spec){.src = bad4[i], .proto = PROTO_TEST}, data, sizeof(data));
    assert_int_equal(CTR(h, ip_rx_badsrc), NELEM(bad4));
    for (i = 0; i < NELEM(bad6); i++)
        inject6(h, bad6[i], NULL, PROTO_TEST, data, sizeof(data));
    assert_int_equal(CTR(h, ip6_rx_badsrc), NELEM(bad6));
    /* Loopback's addresses are not served to the wire. */
    inject4(h, &(struct ip4_spec){.dst = "127.0.0.1", .proto = PROTO_TEST}, data, sizeof(data));
    inject4(h, &(struct ip4_spec){.dst = "10.0.0.3", .proto = PROTO_TEST}, data, sizeof(data));
    assert_int_equal(CTR(h, ip_rx_not_ours), 2);
    inject6(h, NULL, "::1", PROTO_TEST, data, sizeof(data));
    inject6(h, NULL, "fd00::3", PROTO_TEST, data, sizeof(data));
    assert_int_equal(CTR(h, ip6_rx_not_ours), 2);
    assert_int_equal(h->seen.packets, 0);
    /* To ourselves over loopback is another matter. */
    assert_int_equal(host_send(h, "10.0.0.1", 20, true), 0);
    assert_null(host_next(h));
    assert_int_equal(h->seen.packets, 1);
    assert_int_equal(host_send(h, "fd00::1", 20, true), 0);
    assert_int_equal(host_send(h, "127.0.0.7", 20, true), 0);
    assert_null(host_next(h));
    assert_int_equal(h->seen.packets, 3);
    host_destroy(h);
}

static void groups_and_broadcast(void **state)
{
    struct host *h = host_create(0);
    uint8_t frame[100], data[20] = {0};
    size_t len;

    inject4(h, &(struct ip4_spec){.dst = "10.0.0.255", .proto = PROTO_TEST}, data, sizeof(data));
    inject4(h, &(struct ip4_spec){.dst = "255.255.255.255", .proto = PROTO_TEST}, data,
            sizeof(data));
    inject4(h, &(struct ip4_spec){.dst = "224.0.0.1", .proto = PROTO_TEST}, data, sizeof(data));
    inject6(h, NULL, "ff02::1", PROTO_TEST, data, sizeof(data));
    inject6(h, NULL, "ff02::1:ff00:1", PROTO_TEST, data, sizeof(data));
    assert_int_equal(h->seen.packets, 5);
    assert_true(h->seen.info.multicast);
    inject4(h, &(struct ip4_spec){.dst = "224.0.0.9", .proto = PROTO_TEST}, data, sizeof(data));
    inject6(h, NULL, "ff02::1:ff00:2", PROTO_TEST, data, sizeof(data));
    /* No unicast packet in a broadcast frame. */
    len = make4(h, frame, &plain, data, sizeof(data));
    memset(frame, 0xff, 6);
    host_inject(h, frame, len);
    assert_int_equal(h->seen.packets, 5);
    assert_int_equal(CTR(h, ip_rx_not_ours), 2);
    assert_int_equal(CTR(h, ip6_rx_not_ours), 1);
    /* And no error about a broadcast. */
    host_learn_peers(h);
    inject4(h, &(struct ip4_spec){.dst = "10.0.0.255", .proto = 99}, data, sizeof(data));
    inject6(h, NULL, "ff02::1", 99, data, sizeof(data));
    assert_null(host_next(h));
    host_destroy(h);
}

static void options(void **state)
{
    static const uint8_t ok[] = {7, 7, 4, 0, 0, 0, 0, 1, 148, 4, 0, 0};
    static const uint8_t lsrr[] = {1, 131, 7, 4, 10, 0, 0, 9}, ssrr[] = {137, 7, 4, 10, 0, 0, 9, 0};
    static const uint8_t bad[] = {7, 0, 0, 0}, over[] = {7, 9, 4, 0};
    struct host *h = host_create(0);
    struct ip4_spec spec = {.proto = PROTO_TEST, .options = ok, .options_len = sizeof(ok)};

    inject4(h, &spec, ok, sizeof(ok));
    assert_int_equal(h->seen.packets, 1);
    assert_int_equal(h->seen.info.hlen, 32);
    assert_int_equal(h->seen.len, sizeof(ok));
    spec.options_len = 8;
    spec.options = lsrr;
    inject4(h, &spec, ok, sizeof(ok));
    spec.options = ssrr;
    inject4(h, &spec, ok, sizeof(ok));
    spec.options_len = 4;
    spec.options = bad;
    inject4(h, &spec, ok, sizeof(ok));
    spec.options = over;
    inject4(h, &spec, ok, sizeof(ok));
    assert_int_equal(CTR(h, ip_rx_options), 4);
    assert_int_equal(h->seen.packets, 1);
    host_destroy(h);
}

/* The stack must answer with this, or (type 0) not at all. */
static void expect_param(struct host *h, const uint8_t *ext, size_t len, uint8_t next, uint8_t type,
                         uint8_t code, uint32_t pointer)
{
    uint32_t packets = h->seen.packets, chunk;
    struct frame *f;

    for (chunk = 0; chunk < 80; chunk += 11) {
        h->chunk = chunk;
        inject6(h, NULL, NULL, next, ext, len);
        h->chunk = 0;
        assert_int_equal(h->seen.packets, packets);
        f = host_next(h);
        if (type == 0) {
            assert_null(f);
            continue;
        }
        assert_non_null(f);
        assert_int_equal(ip_of(h, f)[40], type);
        assert_int_equal(ip_of(h, f)[41], code);
        assert_int_equal(get_be32(ip_of(h, f) + 44), pointer);
        assert_int_equal(get_be32(ip_of(h, f) + 48) >> 28,
                         6); /* the quote starts at the IPv6 header */
        free(f);
    }
}

/* case: SEC-047 */
static void extension_headers_bounded(void **state)
{
    struct host *h = host_create(0);
    uint8_t ext[4096] = {0}, n;
    unsigned i;

    host_learn_peers(h);
    STORE_RELAXED(&h->s.knobs.icmp_icmplim, 0);
    for (i = 0; i < 3; i++) { /* a length of 255: 2048 bytes, there or not */
        n = (const uint8_t[]){IPV6_NH_HOPOPTS, IPV6_NH_DSTOPTS, IPV6_NH_ROUTING}[i];
        ext[0] = PROTO_TEST;
        ext[1] = 255;
        expect_param(h, ext, 64, n, 0, 0, 0);
        expect_param(h, ext, 1400, n, 0, 0, 0);
    }
    memset(ext, 0, sizeof(ext));
    for (i = 0; i < 100; i++) { /* 100 headers of the shortest kind */
        ext[i * 8] = IPV6_NH_DSTOPTS;
        ext[i * 8 + 2] = 1;
        ext[i * 8 + 3] = 4;
    }
    expect_param(h, ext, 800, IPV6_NH_DSTOPTS, 0, 0, 0);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 0, 1, 255, 0, 0, 0, 0},
           8); /* PadN beyond the header */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, ICMP6_PARAM_PROBLEM, 0, 42);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 0, 0x1e, 9, 0, 0, 0, 0}, 8); /* another one */
    expect_param(h, ext, 64, IPV6_NH_HOPOPTS, ICMP6_PARAM_PROBLEM, 0, 42);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 0, 1, 3, 0, 0, 0, 0x1e},
           8); /* a type without a length */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, ICMP6_PARAM_PROBLEM, 0, 47);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 0, 0x9e, 4, 0, 0, 0, 0}, 8); /* "answer me" */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_OPTION, 42);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 0, 0x5e, 4, 0, 0, 0, 0}, 8); /* "drop me" */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, 0, 0, 0);
    memcpy(ext, (const uint8_t[]){PROTO_TEST, 2, 0, 1, 0, 0, 0, 0},
           8); /* routing type 0, a segment left */
    expect_param(h, ext, 64, IPV6_NH_ROUTING, ICMP6_PARAM_PROBLEM, 0, 42);
    memcpy(ext, (const uint8_t[]){IPV6_NH_HOPOPTS, 0, 1, 4, 0, 0, 0, 0},
           8); /* hop-by-hop in second place */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_NEXT_HEADER, 40);
    memcpy(ext, (const uint8_t[]){IPV6_NH_NONE, 0, 1, 4, 0, 0, 0, 0}, 8);
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, 0, 0, 0);
    memcpy(ext, (const uint8_t[]){99, 0, 1, 4, 0, 0, 0, 0},
           8); /* an unknown upper layer behind a header */
    expect_param(h, ext, 64, IPV6_NH_DSTOPTS, ICMP6_PARAM_PROBLEM, ICMP6_PARAM_NEXT_HEADER, 40);
    host_destroy(h);
}

/* case: SEC-050 */
static void transport_sees_no_extension(void **state)
{
    static const uint8_t ext[] = {IPV6_NH_DSTOPTS,
                                  0,
                                  1,
                                  4,
                                  0,
                                  0,
                                  0,
                                  0, /* hop-by-hop */
                                  IPV6_NH_ROUTING,
                                  1,
                                  0x1e,
                                  12,
                                  0,
                                  0,
                                  0,
                                  0, /* destination options */
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0, /* an unknown one, skipped */
                                  PROTO_TEST,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0, /* routing, no segments left */
                                  'p',
                                  'a',
                                  'y',
                                  'l',
                                  'o',
                                  'a',
                                  'd'};
    struct host *h = host_create(0);

    for (h->chunk = 0; h->chunk < 100; h->chunk++) {
        inject6(h, NULL, NULL, IPV6_NH_HOPOPTS, ext, sizeof(ext));
        assert_int_equal(h->seen.packets, h->chunk + 1);
        assert_int_equal(h->seen.len, 7);
        assert_memory_equal(h->seen.data, "payload", 7);
        assert_int_equal(h->seen.info.proto, PROTO_TEST);
    }
    assert_int_equal(CTR(h, ip6_rx_badext), 0);
    host_destroy(h);
}

/* Goal: whatever bytes come, nothing is read outside, nothing leaks, no check fails. */
static void random_bytes(void **state)
{
    struct host *h = host_create(0);
    uint8_t frame[400], data[300];
    unsigned i, k, flips;
    size_t len;

    for (i = 0; i < 20000; i++) {
        static const uint8_t nexts[] = {0, 43, 44, 60, 58, 17, 6, 1, 253, 59, 4};
        uint8_t next = nexts[rng_below(&h->s.rng, NELEM(nexts))];

        rng_bytes(&h->s.rng, data, sizeof(data));
        for (k = 0; k < 24; k += 8) {
            data[k] = nexts[rng_below(&h->s.rng, NELEM(nexts))];
            data[k + 1] &= 1;
        }
        len = rng_below(&h->s.rng, 256);
        if (i & 1)
            len = make6(h, frame, NULL, NULL, next, data, len);
        else
            len = make4(h, frame,
                        &(struct ip4_spec){.proto = next,
                                           .mf = rng_below(&h->s.rng, 4) == 0,
                                           .off = (uint16_t)(rng_below(&h->s.rng, 3) * 8)},
                        data, len);
        for (flips = rng_below(&h->s.rng, 4); flips > 0; flips--)
            frame[14 + rng_below(&h->s.rng, 60)] ^= (uint8_t)(1u << rng_below(&h->s.rng, 8));
        h->chunk = rng_below(&h->s.rng, 2) ? 1 + rng_below(&h->s.rng, 80) : 0;
        if (!(i & 1) && rng_below(&h->s.rng, 2))
            sum4(h, frame);
        host_inject(h, frame, 14 + rng_below(&h->s.rng, (uint32_t)len - 13));
        host_forget(h);
    }
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delivers),
        cmocka_unit_test(ipv4_lengths_lie),
        cmocka_unit_test(ipv6_lengths_lie),
        cmocka_unit_test(padding_is_cut),
        cmocka_unit_test(unknown_protocol_is_answered),
        cmocka_unit_test(impossible_sources),
        cmocka_unit_test(groups_and_broadcast),
        cmocka_unit_test(options),
        cmocka_unit_test(extension_headers_bounded),
        cmocka_unit_test(transport_sees_no_extension),
        cmocka_unit_test(random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
