/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: echo works at any size; errors reach a transport only when they quote a packet of ours,
 * whole enough, and say what Linux says; errors of ours are rate limited and never answer errors.
 * Bound: the listed messages, cut off at every byte. */
#include "host.h"

#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

static void icmp4(struct host *h, const char *dst, uint8_t *msg, size_t len)
{
    fill_sum(msg, len, 2, NULL, NULL, 0);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_ICMP, .dst = dst}, msg, len);
}

static void icmp6(struct host *h, const char *dst, uint8_t *msg, size_t len)
{
    fill_sum(msg, len, 2, "fd00::2", dst ? dst : "fd00::1", IPPROTO_ICMPV6);
    inject6(h, NULL, dst, IPPROTO_ICMPV6, msg, len);
}

static void echo(void **state)
{
    static const uint32_t sizes[] = {0, 1, 56, 1400};
    struct host *h = host_create(0);
    uint8_t msg[1408];
    struct frame *f;
    unsigned i, k;

    host_learn_peers(h);
    for (i = 0; i < NELEM(sizes); i++) {
        for (h->chunk = 0; h->chunk < 120; h->chunk += 17) {
            memset(msg, 0, 8);
            msg[0] = ICMP4_ECHO;
            put_be32(msg + 4, 0x12345678);
            for (k = 0; k < sizes[i]; k++)
                msg[8 + k] = (uint8_t)k;
            icmp4(h, NULL, msg, 8 + sizes[i]);
            f = host_next(h);
            assert_non_null(f);
            assert_int_equal(f->len, 34 + 8 + sizes[i]);
            assert_int_equal(f->b[34], ICMP4_ECHO_REPLY);
            assert_memory_equal(f->b + 38, msg + 4, 4 + sizes[i]);
            assert_int_equal(checksum_fold(checksum_add(f->b + 34, 8 + sizes[i], 0)), 0xffff);
            free(f);
            msg[0] = ICMP6_ECHO;
            icmp6(h, NULL, msg, 8 + sizes[i]);
            f = host_next(h);
            assert_non_null(f);
            assert_int_equal(f->b[54], ICMP6_ECHO_REPLY);
            assert_memory_equal(f->b + 58, msg + 4, 4 + sizes[i]);
            free(f);
        }
    }
    h->chunk = 0;
    msg[0] = ICMP4_ECHO; /* to a broadcast address: only if told so */
    icmp4(h, "10.0.0.255", msg, 16);
    msg[0] = ICMP6_ECHO;
    icmp6(h, "ff02::1", msg, 16);
    assert_null(host_next(h));
    STORE_RELAXED(&h->s.knobs.icmp_bmcastecho, 1);
    icmp6(h, "ff02::1", msg, 16);
    free(host_next(h));
    msg[0] = ICMP4_ECHO;
    icmp4(h, "10.0.0.255", msg, 16);
    f = host_next(h);
    assert_non_null(f);
    assert_int_equal(get_be32(f->b + 26), 0x0a000001);
    free(f);
    msg[5] ^= 1; /* wrong checksum */
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_ICMP}, msg, 16);
    inject6(h, NULL, NULL, IPPROTO_ICMPV6, msg, 16);
    assert_int_equal(CTR(h, icmp_rx_badsum), 2);
    assert_null(host_next(h));
    host_destroy(h);
}

/* A big one comes and goes in fragments. */
static void big_echo(void **state)
{
    struct host *h = host_create(0);
    static uint8_t msg[65515];
    struct frame *f;
    uint32_t off, got = 0;

    host_learn_peers(h);
    memset(msg, 0x42, sizeof(msg));
    memcpy(msg, (const uint8_t[]){ICMP4_ECHO, 0, 0, 0}, 4);
    fill_sum(msg, sizeof(msg), 2, NULL, NULL, 0);
    for (off = 0; off < sizeof(msg); off += 1480)
        inject4(h,
                &(struct ip4_spec){.proto = IPPROTO_ICMP,
                                   .id = 3,
                                   .off = (uint16_t)off,
                                   .mf = off + 1480 < sizeof(msg)},
                msg + off, MIN(1480u, sizeof(msg) - off));
    msg[0] = ICMP4_ECHO_REPLY;
    fill_sum(msg, sizeof(msg), 2, NULL, NULL, 0);
    while ((f = host_next(h)) != NULL) {
        off = (get_be16(f->b + 20) & 0x1fffu) * 8;
        assert_memory_equal(f->b + 34, msg + off, f->len - 34);
        got += f->len - 34;
        free(f);
    }
    assert_int_equal(got, sizeof(msg));
    host_destroy(h);
}

/* An error of this type and code about a packet of ours. Returns its length. */
static size_t error4(uint8_t *msg, uint8_t type, uint8_t code, uint32_t rest)
{
    memset(msg, 0, 8);
    msg[0] = type;
    msg[1] = code;
    put_be32(msg + 4, rest);
    return 8 + quote4(msg + 8, "10.0.0.1", "8.8.8.8", PROTO_TEST, 1500);
}

/* case: SEC-053 */
static void errors_in(void **state)
{
    static const struct {
        int error;
        bool hard;
    } want[16] = {
        {ENETUNREACH, false},  {EHOSTUNREACH, false}, {ENOPROTOOPT, true},   {ECONNREFUSED, true},
        {EMSGSIZE, false},     {EOPNOTSUPP, false},   {ENETUNREACH, false},  {EHOSTDOWN, false},
        {ENONET, false},       {ENETUNREACH, false},  {EHOSTUNREACH, false}, {ENETUNREACH, false},
        {EHOSTUNREACH, false}, {EHOSTUNREACH, false}, {EHOSTUNREACH, false}, {EHOSTUNREACH, false}};
    struct host *h = host_create(0);
    struct ipaddr src = addr("10.0.0.1"), dst = addr("8.8.8.8");
    uint8_t msg[64];
    unsigned code;
    size_t len;

    for (code = 0; code < 16; code++) {
        len = error4(msg, ICMP4_UNREACH, (uint8_t)code, 1400);
        icmp4(h, NULL, msg, len);
        assert_int_equal(h->seen.errors, code + 1);
        assert_int_equal(h->seen.error.error, want[code].error);
        assert_int_equal(h->seen.error.hard, want[code].hard);
        assert_true(ipaddr_equal(&h->seen.error.flow.laddr, &src));
        assert_true(ipaddr_equal(&h->seen.error.flow.faddr, &dst));
        assert_int_equal(h->seen.error.l4len, 8);
        assert_int_equal(h->seen.l4[7], 0x11);
    }
    len = error4(msg, ICMP4_SOURCE_QUENCH, 0, 0);
    icmp4(h, NULL, msg, len);
    assert_int_equal(h->seen.error.kind, ICMP_KIND_SOURCE_QUENCH);
    len = error4(msg, ICMP4_TIME_EXCEEDED, 0, 0);
    icmp4(h, NULL, msg, len);
    assert_int_equal(h->seen.error.kind, ICMP_KIND_TIME_EXCEEDED);
    assert_int_equal(h->seen.errors, 18);
    len = error4(msg, ICMP4_UNREACH, 16, 0);
    icmp4(h, NULL, msg, len);
    len = error4(msg, ICMP4_REDIRECT, 1, 0x0a000009);
    icmp4(h, NULL, msg, len);
    assert_int_equal(h->seen.errors, 18);
    assert_int_equal(CTR(h, icmp_rx_ignored), 2);
    host_destroy(h);
}

/* case: SEC-052 */
static void mtu_as_said(void **state)
{
    static const struct {
        uint32_t said, told;
    } v4[] = {{68, 552}, {0, 1492}, {296, 552}, {1400, 1400}, {1500, 1500}, {65535, 65535}};
    struct host *h = host_create(0);
    struct ipaddr dst = addr("8.8.8.8");
    struct route r;
    uint8_t msg[100] = {0};
    unsigned i;
    size_t len;

    for (i = 0; i < NELEM(v4); i++) {
        len = error4(msg, ICMP4_UNREACH, ICMP4_UNREACH_FRAG_NEEDED, v4[i].said);
        icmp4(h, NULL, msg, len);
        assert_int_equal(h->seen.errors, i + 1);
        assert_int_equal(h->seen.error.kind, ICMP_KIND_TOOBIG);
        assert_int_equal(h->seen.error.mtu, v4[i].told);
    }
    /* The message alone changes nothing: the transport has to believe it. */
    assert_int_equal(ip_route(&h->s, &dst, NULL, &r), 0);
    assert_int_equal(r.mtu, 1500);
    memset(msg, 0, sizeof(msg));
    msg[0] = ICMP6_TOOBIG;
    msg[8] = 0x60;
    msg[8 + 6] = PROTO_TEST;
    memcpy(msg + 8 + 8, addr("fd00::1").b, 16);
    memcpy(msg + 8 + 24, addr("2001:db8::1").b, 16);
    put_be32(msg + 4, 1279);
    icmp6(h, NULL, msg, 64);
    put_be32(msg + 4, 0);
    icmp6(h, NULL, msg, 64);
    assert_int_equal(h->seen.errors, NELEM(v4));
    put_be32(msg + 4, 1280);
    icmp6(h, NULL, msg, 64);
    assert_int_equal(h->seen.errors, NELEM(v4) + 1);
    assert_int_equal(h->seen.error.mtu, 1280);
    host_destroy(h);
}

static void quotes_that_are_not_ours(void **state)
{
    struct host *h = host_create(0);
    uint8_t msg[64];
    size_t len, i;

    len = error4(msg, ICMP4_UNREACH, 3, 0);
    quote4(msg + 8, "10.0.0.9", "8.8.8.8", PROTO_TEST, 100); /* somebody else's */
    icmp4(h, NULL, msg, len);
    len = error4(msg, ICMP4_UNREACH, 3, 0);
    msg[8 + 7] = 1; /* not the first fragment */
    icmp4(h, NULL, msg, len);
    len = error4(msg, ICMP4_UNREACH, 3, 0);
    msg[8] = 0x65;
    icmp4(h, NULL, msg, len);
    len = error4(msg, ICMP4_UNREACH, 3, 0);
    msg[8] = 0x4f; /* a header longer than the quote */
    icmp4(h, NULL, msg, len);
    len = error4(msg, ICMP4_UNREACH, 3, 0);
    msg[8] = 0x44;
    icmp4(h, NULL, msg, len);
    assert_int_equal(CTR(h, icmp_rx_bad_quote), 5);
    for (i = 0; i < len; i++) {
        error4(msg, ICMP4_UNREACH, 3, 0);
        icmp4(h, NULL, msg, MAX(i, 4u)); /* the checksum is in the first four */
    }
    assert_int_equal(CTR(h, icmp_rx_bad_quote), 5 + 28);
    assert_int_equal(CTR(h, icmp_rx_short), 8);
    error4(msg, ICMP4_UNREACH, 3, 0);
    icmp4(h, "10.0.0.255", msg, len); /* not sent to who sent the packet */
    assert_int_equal(h->seen.errors, 0);
    host_destroy(h);
}

/* case: SEC-049 */
static void quoted_extension_headers(void **state)
{
    static const uint8_t chain[] = {IPV6_NH_ROUTING,
                                    0,
                                    1,
                                    4,
                                    0,
                                    0,
                                    0,
                                    0, /* hop-by-hop */
                                    IPV6_NH_FRAGMENT,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0, /* routing, no segments left */
                                    IPV6_NH_DSTOPTS,
                                    0,
                                    0,
                                    1,
                                    0,
                                    0,
                                    0,
                                    9, /* first fragment */
                                    PROTO_TEST,
                                    0,
                                    1,
                                    4,
                                    0,
                                    0,
                                    0,
                                    0, /* destination options */
                                    't',
                                    'r',
                                    'a',
                                    'n',
                                    's',
                                    'p',
                                    'o',
                                    'r',
                                    't'};
    static const uint8_t types[] = {ICMP6_TOOBIG, ICMP6_UNREACH, ICMP6_TIME_EXCEEDED,
                                    ICMP6_PARAM_PROBLEM};
    struct host *h = host_create(0);
    uint8_t msg[8 + 40 + sizeof(chain)];
    size_t len, whole = sizeof(msg);
    unsigned i;

    for (i = 0; i < NELEM(types); i++) {
        for (len = 8; len <= whole; len++) {
            uint32_t errors = h->seen.errors;

            memset(msg, 0, sizeof(msg));
            msg[0] = types[i];
            put_be32(msg + 4, 1300);
            msg[8] = 0x60;
            put_be16(msg + 12, 1400);
            msg[8 + 6] = IPV6_NH_HOPOPTS;
            memcpy(msg + 8 + 8, addr("fd00::1").b, 16);
            memcpy(msg + 8 + 24, addr("2001:db8::1").b, 16);
            memcpy(msg + 48, chain, sizeof(chain));
            h->chunk = len % 3 == 0 ? 0 : (uint32_t)len % 50 + 1;
            icmp6(h, NULL, msg, len);
            if (len < whole - 1) { /* 8 bytes of the transport make it whole */
                assert_int_equal(h->seen.errors, errors);
                continue;
            }
            assert_int_equal(h->seen.errors, errors + 1);
            assert_int_equal(h->seen.error.l4len, len - (whole - 9));
            assert_memory_equal(h->seen.l4, "transport", h->seen.error.l4len);
        }
    }
    /* A later fragment has no transport header. */
    msg[48 + 19] = 8;
    icmp6(h, NULL, msg, whole);
    assert_int_equal(h->seen.errors, 8);
    host_destroy(h);
}

/* case: SEC-037 */
static void errors_out_are_limited(void **state)
{
    struct host *h = host_create(0);
    uint8_t data[40] = {0};
    char src[32];
    struct frame *f;
    unsigned i, sent = 0, second;

    host_learn_peers(h);
    host_run(h, NS_PER_S);
    for (second = 0; second < 3; second++) {
        unsigned before = (unsigned)CTR(h, icmp_tx_errors);

        for (i = 0; i < 5000; i++) {
            snprintf(src, sizeof(src), "10.7.%u.%u", i / 250 % 250, 1 + i % 250);
            inject4(h, &(struct ip4_spec){.src = src, .proto = 99}, data, sizeof(data));
        }
        host_forget(h);
        sent = (unsigned)CTR(h, icmp_tx_errors) - before;
        assert_in_range(sent, 150, 200);
        h->s.now += NS_PER_S;
    }
    inject4(h, &(struct ip4_spec){.proto = 99}, data, sizeof(data)); /* a single one is answered */
    f = host_next_packet(h);
    assert_non_null(f);
    free(f);
    STORE_RELAXED(&h->s.knobs.icmp_icmplim, 0);
    for (i = 0; i < 1000; i++)
        assert_true(icmp_rate_ok(&h->s));
    host_destroy(h);
}

/* No error about an error, about a broken packet that is one, or to a group. */
static void no_error_about_errors(void **state)
{
    struct host *h = host_create(0);
    uint8_t opts[8 + 48] = {IPPROTO_ICMPV6, 0, 0x9e, 4};
    uint8_t msg[64] = {0};
    struct frame *f;

    host_learn_peers(h);
    /* An unknown option that asks for an answer even from a group gets one... */
    inject6(h, NULL, "ff02::1", IPV6_NH_DSTOPTS, opts, 16);
    f = host_next(h);
    assert_non_null(f);
    assert_memory_equal(f->b + 14 + 8, addr("fd00::1").b, 16);
    free(f);
    opts[2] = 0xde; /* "11": not to groups */
    inject6(h, NULL, "ff02::1", IPV6_NH_DSTOPTS, opts, 16);
    assert_null(host_next(h));
    msg[0] = ICMP4_UNREACH;
    msg[1] = 3;
    icmp4(h, NULL, msg, 36);
    assert_null(host_next(h));
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(echo),
        cmocka_unit_test(big_echo),
        cmocka_unit_test(errors_in),
        cmocka_unit_test(mtu_as_said),
        cmocka_unit_test(quotes_that_are_not_ours),
        cmocka_unit_test(quoted_extension_headers),
        cmocka_unit_test(errors_out_are_limited),
        cmocka_unit_test(no_error_about_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
