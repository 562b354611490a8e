/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the IPv6 header and the walk over extension headers keep to their bytes and bounds, answer
 * as RFC 8200 says, and neighbour discovery messages refuse malformed options. Bound: 100,000
 * random packets in buffers of exact size. */
#include "../base/unit.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

/* A packet under construction: the IPv6 header and what follows. */
static uint8_t packet[4096];
static size_t packet_len;

static void start(uint8_t next)
{
    memset(packet, 0, sizeof(packet));
    packet[0] = 0x60;
    packet[6] = next;
    packet[8] = 0xfd;
    packet[24] = 0xfd;
    packet_len = IPV6_HEADER_LEN;
}

static void add(const void *bytes, size_t len)
{
    memcpy(packet + packet_len, bytes, len);
    packet_len += len;
    put_be16(packet + 4, (uint16_t)(packet_len - IPV6_HEADER_LEN));
}
#define ADD(...) add((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static struct ipv6_walk walk;

/* Parse and walk the packet in a heap block of exactly its size. */
static enum ipv6_walk_result run(void)
{
    uint8_t *copy = malloc(packet_len);
    memcpy(copy, packet, packet_len);
    struct ipv6_header h;
    assert_int_equal(ipv6_header_parse(copy, packet_len, &h), 0);
    ipv6_walk_init(&walk, &h);
    enum ipv6_walk_result r = ipv6_walk(copy, packet_len, &walk);
    free(copy);
    return r;
}

static void expect_param(uint8_t code, uint32_t pointer)
{
    assert_int_equal(run(), IPV6_WALK_PARAM);
    assert_int_equal(walk.code, code);
    assert_int_equal(walk.pointer, pointer);
}

static void test_header(void **state)
{
    struct ipv6_header h = {.tclass = 0xa5, .flow = 0xfedcb, .plen = 8, .next = 6, .hlim = 64}, g;
    h.src.family = h.dst.family = AF_INET6;
    for (uint8_t i = 0; i < 16; i++) {
        h.src.b[i] = i;
        h.dst.b[i] = (uint8_t)(0xf0 - i);
    }
    uint8_t p[48] = {0};
    ipv6_header_build(p, &h);
    for (size_t len = 0; len < 40; len++)
        assert_int_equal(ipv6_header_parse(p, len, &g), -EMSGSIZE);
    for (size_t len = 40; len < 48; len++)
        assert_int_equal(ipv6_header_parse(p, len, &g), -EBADMSG);
    assert_int_equal(ipv6_header_parse(p, 48, &g), 0);
    assert_true(ipaddr_equal(&g.src, &h.src) && ipaddr_equal(&g.dst, &h.dst));
    assert_true(g.tclass == h.tclass && g.flow == h.flow && g.next == h.next && g.hlim == h.hlim &&
                g.plen == 8);
    p[0] = 0x45;
    assert_int_equal(ipv6_header_parse(p, 48, &g), -EPROTO);
}

static void test_plain_and_chained(void **state)
{
    start(6);
    assert_int_equal(run(), IPV6_WALK_UPPER);
    assert_int_equal(walk.off, 40);
    assert_int_equal(walk.next_off, 6);
    start(IPV6_NH_HOPOPTS);
    ADD(IPV6_NH_ROUTING, 0, 1, 4, 0, 0, 0, 0); /* PadN */
    ADD(IPV6_NH_DSTOPTS, 0, 0, 0, 0, 0, 0, 0); /* no segments left */
    ADD(17, 1, 0x1e, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0,
        0); /* an unknown option that may be skipped */
    ADD(1, 2, 3, 4, 5, 6, 7, 8);
    assert_int_equal(run(), IPV6_WALK_UPPER);
    assert_int_equal(walk.next, 17);
    assert_int_equal(walk.off, 72);
    assert_int_equal(walk.next_off, 56);
    start(IPV6_NH_NONE);
    assert_int_equal(run(), IPV6_WALK_NONE);
}

static void test_fragment(void **state)
{
    start(IPV6_NH_FRAGMENT);
    ADD(6, 0, 0x05, 0xa9, 0xde, 0xad, 0xbe, 0xef);
    assert_int_equal(run(), IPV6_WALK_FRAGMENT);
    struct ipv6_fragment f;
    uint8_t again[8];
    assert_int_equal(ipv6_fragment_parse(packet + walk.off, packet_len - walk.off, &f), 0);
    assert_true(f.next == 6 && f.off == 0x5a8 && f.more && f.id == 0xdeadbeef);
    ipv6_fragment_build(again, &f);
    assert_memory_equal(again, packet + walk.off, 8);
    ipv6_walk_skip_fragment(&walk, &f);
    assert_int_equal(ipv6_walk(packet, packet_len, &walk), IPV6_WALK_UPPER);
    assert_int_equal(walk.off, 48);
    assert_int_equal(ipv6_fragment_parse(packet + 40, 7, &f), -EMSGSIZE);
    start(IPV6_NH_FRAGMENT);
    ADD(6, 0, 0, 0, 1, 2, 3);
    assert_int_equal(run(), IPV6_WALK_DROP);
}

/* case: SEC-047 */
static void test_hostile_headers(void **state)
{
    static const uint8_t types[] = {IPV6_NH_HOPOPTS, IPV6_NH_DSTOPTS, IPV6_NH_ROUTING};
    uint8_t big[2048] = {0};
    for (size_t i = 0; i < NELEM(types); i++) {
        start(types[i]); /* length 255: beyond the packet, and beyond the bound */
        ADD(6, 255, 1, 4, 0, 0, 0, 0);
        assert_int_equal(run(), IPV6_WALK_DROP);
        add(big, sizeof(big));
        assert_int_equal(run(), IPV6_WALK_DROP);
        start(types[i]); /* no room for the header */
        ADD(6, 0, 1, 4, 0, 0, 0);
        assert_int_equal(run(), IPV6_WALK_DROP);
    }
    start(IPV6_NH_DSTOPTS); /* 100 empty headers */
    for (int i = 0; i < 100; i++)
        ADD(IPV6_NH_DSTOPTS, 0, 1, 4, 0, 0, 0, 0);
    assert_int_equal(run(), IPV6_WALK_DROP);
    start(IPV6_NH_DSTOPTS); /* PadN with a length that leads out */
    ADD(6, 0, 1, 255, 0, 0, 0, 0);
    expect_param(0, 42);
    start(IPV6_NH_DSTOPTS); /* any option that does */
    ADD(6, 0, 1, 1, 0, 0x1e, 2, 0);
    expect_param(0, 45);
    start(IPV6_NH_DSTOPTS); /* a type without a length */
    ADD(6, 0, 1, 3, 0, 0, 0, 0x1e);
    expect_param(0, 47);
    start(IPV6_NH_DSTOPTS); /* padding without end */
    ADD(6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    assert_int_equal(run(), IPV6_WALK_DROP);
    start(IPV6_NH_DSTOPTS); /* options without end */
    big[0] = 6;
    big[1] = 9;
    for (size_t i = 2; i < 80; i += 2)
        big[i] = 0x1e;
    add(big, 80);
    assert_int_equal(run(), IPV6_WALK_DROP);
    start(6); /* hop-by-hop options in the wrong place */
    packet[6] = IPV6_NH_DSTOPTS;
    ADD(IPV6_NH_HOPOPTS, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0);
    expect_param(1, 40);
}

static void test_unknown_options_and_routing(void **state)
{
    static const struct {
        uint8_t type;
        enum ipv6_walk_result unicast, multicast;
    } rows[] = {
        {0x3e, IPV6_WALK_UPPER, IPV6_WALK_UPPER}, {0x7e, IPV6_WALK_DROP, IPV6_WALK_DROP},
        {0xbe, IPV6_WALK_PARAM, IPV6_WALK_PARAM}, {0xfe, IPV6_WALK_PARAM, IPV6_WALK_DROP},
        {0xc2, IPV6_WALK_PARAM, IPV6_WALK_DROP}, /* jumbo payload: not served */
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        start(IPV6_NH_HOPOPTS);
        ADD(6, 0, rows[i].type, 4, 0, 0, 0, 0);
        assert_int_equal(run(), rows[i].unicast);
        if (rows[i].unicast == IPV6_WALK_PARAM)
            expect_param(2, 42);
        packet[24] = 0xff;
        assert_int_equal(run(), rows[i].multicast);
    }
    start(IPV6_NH_ROUTING);
    ADD(6, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    expect_param(0, 42); /* type 0 with a segment left (RFC 5095) */
}

static void test_any_bytes(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    static const uint8_t likely_next[] = {0, 43, 44, 60, 59, 6};
    for (int i = 0; i < 100000; i++) {
        start(likely_next[rng_below(&r, NELEM(likely_next))]);
        uint32_t len = rng_below(&r, 200);
        uint8_t bytes[200];
        for (uint32_t k = 0; k < len; k++)
            bytes[k] = rng_below(&r, 2) ? likely_next[rng_below(&r, NELEM(likely_next))]
                                        : (uint8_t)rng_below(&r, 4);
        add(bytes, len);
        enum ipv6_walk_result result = run();
        assert_true(walk.off <= packet_len);
        assert_true(result != IPV6_WALK_PARAM || walk.pointer < packet_len);
    }
}

static void test_icmp(void **state)
{
    struct icmp_header h = {.type = 8, .code = 1, .sum = 0x1234, .rest = 0xaabbccdd}, g;
    uint8_t p[8];
    icmp_header_build(p, &h);
    assert_int_equal(icmp_header_parse(p, 7, &g), -EMSGSIZE);
    assert_int_equal(icmp_header_parse(p, 8, &g), 0);
    assert_true(g.type == 8 && g.code == 1 && g.sum == 0x1234 && g.rest == 0xaabbccdd);
    assert_int_equal(p[4], 0xaa);
}

static void test_neighbor_messages(void **state)
{
    struct nd_neighbor n = {.type = ICMP6_NEIGHBOR_ADVERT,
                            .flags = ND_FLAG_SOLICITED | ND_FLAG_OVERRIDE,
                            .has_lladdr = true,
                            .lladdr = {2, 3, 4, 5, 6, 7}},
                       g;
    assert_int_equal(ipaddr_parse("fe80::1234:5678", &n.target), 0);
    uint8_t p[64] = {0};
    assert_int_equal(nd_neighbor_build(p, &n), 32);
    assert_int_equal(p[24], 2);
    assert_int_equal(nd_neighbor_parse(p, 32, &g), 0);
    assert_true(g.has_lladdr && ipaddr_equal(&g.target, &n.target) && g.flags == n.flags);
    assert_memory_equal(g.lladdr, n.lladdr, 6);
    n.type = ICMP6_NEIGHBOR_SOLICIT;
    assert_int_equal(nd_neighbor_build(p, &n), 32);
    assert_int_equal(p[24], 1);
    assert_int_equal(nd_neighbor_parse(p, 24, &g), 0);
    assert_false(g.has_lladdr);
    assert_int_equal(g.flags, 0);
    for (size_t len = 0; len < 24; len++)
        assert_int_equal(nd_neighbor_parse(p, len, &g), -EMSGSIZE);
    for (size_t len = 25; len < 32; len++)
        assert_int_equal(nd_neighbor_parse(p, len, &g), -EINVAL);
    p[25] = 0; /* an option of length 0 */
    assert_int_equal(nd_neighbor_parse(p, 32, &g), -EINVAL);
    p[25] = 1;
    p[8] = 0xff; /* a multicast target */
    assert_int_equal(nd_neighbor_parse(p, 32, &g), -EINVAL);
    struct ipaddr group = nd_solicited_node(&n.target);
    char text[46];
    assert_string_equal(ipaddr_format(&group, text, sizeof(text)), "ff02::1:ff34:5678");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_plain_and_chained),
        cmocka_unit_test(test_fragment),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_unknown_options_and_routing),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_icmp),
        cmocka_unit_test(test_neighbor_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
