/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: IPv4, UDP, ARP and Ethernet headers refuse every impossible length, parse back to what was
 * built, and never read past their bytes. Bound: all lengths of interest, 20,000 random headers in
 * buffers of exact size. */
#include "../base/unit.h"
#include "wire/arp.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/udp.h"
#include "wire/wire.h"

static int parse_exact(const uint8_t *p, size_t len, struct ipv4_header *h)
{
    uint8_t *copy = malloc(len + (len == 0));
    memcpy(copy, p, len);
    int result = ipv4_header_parse(copy, len, h);
    free(copy);
    return result;
}

/* case: SEC-041 */
static void test_lengths(void **state)
{
    uint8_t bytes[100] = {0};
    struct ipv4_header h;
    for (uint8_t ihl = 0; ihl < 16; ihl++) {
        for (size_t len = 0; len <= sizeof(bytes); len++) {
            const size_t totals[] = {0,   19,      20,   ihl * 4 - (ihl > 0), ihl * 4 + 19,
                                     len, len + 1, 65535};
            for (size_t i = 0; i < NELEM(totals); i++) {
                bytes[0] = (uint8_t)(0x40 | ihl);
                put_be16(bytes + 2, (uint16_t)totals[i]);
                int expected = 0;
                if (len < 20)
                    expected = -EMSGSIZE;
                else if (ihl < 5 || ihl * 4u > len)
                    expected = -EINVAL;
                else if (totals[i] < ihl * 4u || totals[i] > len)
                    expected = -EBADMSG;
                assert_int_equal(parse_exact(bytes, len, &h), expected);
            }
        }
    }
    bytes[0] = 0x65;
    assert_int_equal(parse_exact(bytes, 40, &h), -EPROTO);
}

static void test_known_header(void **state)
{
    /* A widely used worked example of the header checksum: 0xb861. */
    static const uint8_t bytes[20] = {0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                      0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7};
    uint8_t packet[115] = {0}, again[20];
    struct ipv4_header h;
    memcpy(packet, bytes, sizeof(bytes));
    assert_int_equal(ipv4_header_parse(packet, sizeof(packet), &h), 0);
    assert_int_equal(h.len, 115);
    assert_int_equal(h.hlen, 20);
    assert_true(h.df);
    assert_false(h.mf);
    assert_int_equal(h.ttl, 64);
    assert_int_equal(h.proto, 17);
    struct ipaddr src = ipaddr_v4(UINT32_C(0xc0a80001));
    assert_true(ipaddr_equal(&h.src, &src));
    assert_true(ipv4_sum_is_ok(packet, 20));
    ipv4_header_build(again, &h);
    assert_memory_equal(again, bytes, sizeof(bytes));
    packet[8] = 63;
    assert_false(ipv4_sum_is_ok(packet, 20));
    ipv4_sum_update(packet, 20);
    assert_true(ipv4_sum_is_ok(packet, 20));
}

static void test_round_trip(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    for (int i = 0; i < 20000; i++) {
        static uint8_t bytes[65535];
        uint8_t again[20];
        struct ipv4_header h;
        rng_bytes(&r, bytes, 20);
        bytes[0] = 0x45;
        bytes[6] &= 0x7f; /* the reserved bit is not kept */
        put_be16(bytes + 2, (uint16_t)(20 + rng_below(&r, 65516)));
        ipv4_sum_update(bytes, 20);
        assert_true(ipv4_sum_is_ok(bytes, 20));
        assert_int_equal(ipv4_header_parse(bytes, sizeof(bytes), &h), 0);
        ipv4_header_build(again, &h);
        assert_memory_equal(bytes, again, 20);
    }
}

static void test_options(void **state)
{
    uint8_t p[60] = {0};
    unsigned seen, bad;
    assert_int_equal(ipv4_options_scan(p, 20, &seen, &bad), 0);
    assert_int_equal(seen, 0);
    static const uint8_t good[] = {1, 7,   7, 4, 0, 0, 0, 0, 148, 4,  0,
                                   0, 131, 7, 4, 1, 2, 3, 4, 0,   137};
    memcpy(p + 20, good, sizeof(good));
    assert_int_equal(ipv4_options_scan(p, 20 + 20, &seen, &bad), 0);
    assert_int_equal(seen, IPV4_OPT_RECORD | IPV4_OPT_ALERT | IPV4_OPT_SOURCE_ROUTE);
    static const uint8_t lengths[] = {0, 1, 6, 255};
    for (size_t i = 0; i < NELEM(lengths); i++) {
        uint8_t *q = malloc(24); /* an option that says more than there is, at the very end */
        memset(q, 1, 24);
        q[21] = 7;
        q[22] = lengths[i];
        assert_int_equal(ipv4_options_scan(q, 24, &seen, &bad), -EINVAL);
        assert_int_equal(bad, 22);
        q[21] = q[22] = 1;
        q[23] = 7;
        assert_int_equal(ipv4_options_scan(q, 24, &seen, &bad), -EINVAL);
        assert_int_equal(bad, 23);
        free(q);
    }
}

static void test_udp(void **state)
{
    uint8_t p[20] = {0x12, 0x34, 0, 53, 0, 12, 0xab, 0xcd};
    struct udp_header h;
    for (size_t avail = 0; avail < 8; avail++)
        assert_int_equal(udp_header_parse(p, avail, &h), -EMSGSIZE);
    assert_int_equal(udp_header_parse(p, 11, &h), -EBADMSG);
    assert_int_equal(udp_header_parse(p, 12, &h), 0);
    assert_int_equal(udp_header_parse(p, 20, &h), 0);
    assert_int_equal(h.sport, 0x1234);
    assert_int_equal(h.dport, 53);
    assert_int_equal(h.len, 12);
    uint8_t again[8];
    udp_header_build(again, &h);
    assert_memory_equal(again, p, 8);
    p[5] = 7;
    assert_int_equal(udp_header_parse(p, 20, &h), -EBADMSG);
}

static void test_arp(void **state)
{
    struct arp_packet a = {.op = ARP_REQUEST,
                           .sha = {2, 0, 0, 0, 0, 1},
                           .spa = ipaddr_v4(0x0a000001),
                           .tpa = ipaddr_v4(0x0a000002)};
    static const uint8_t expected[ARP_LEN] = {0,  1, 8, 0, 6, 4, 0, 1, 2, 0, 0,  0, 0, 1,
                                              10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2};
    uint8_t p[ARP_LEN];
    struct arp_packet b;
    arp_build(p, &a);
    assert_memory_equal(p, expected, ARP_LEN);
    assert_int_equal(arp_parse(p, ARP_LEN, &b), 0);
    assert_true(ipaddr_equal(&a.spa, &b.spa) && ipaddr_equal(&a.tpa, &b.tpa));
    assert_memory_equal(a.sha, b.sha, ETH_ADDR_LEN);
    assert_int_equal(arp_parse(p, ARP_LEN - 1, &b), -EMSGSIZE);
    for (size_t i = 0; i < 8; i++) { /* each byte that says what kind of ARP this is */
        arp_build(p, &a);
        p[i] ^= 0x80;
        assert_int_equal(arp_parse(p, ARP_LEN, &b), -EINVAL);
    }
}

static void test_eth(void **state)
{
    struct eth_header h = {.dst = {1, 2, 3, 4, 5, 6},
                           .src = {2, 3, 4, 5, 6, 7},
                           .type = ETH_TYPE_IPV6},
                      g;
    uint8_t p[ETH_HEADER_LEN], mac[ETH_ADDR_LEN];
    eth_header_build(p, &h);
    assert_int_equal(eth_header_parse(p, sizeof(p) - 1, &g), -EMSGSIZE);
    assert_int_equal(eth_header_parse(p, sizeof(p), &g), 0);
    assert_memory_equal(&g, &h, sizeof(g));
    assert_true(eth_is_multicast(h.dst) && !eth_is_multicast(h.src));
    assert_true(eth_is_broadcast(eth_broadcast) && eth_is_multicast(eth_broadcast));
    struct ipaddr group = ipaddr_v4(0xe0ff0102);
    eth_of_multicast(&group, mac);
    assert_memory_equal(mac, ((const uint8_t[]){0x01, 0x00, 0x5e, 0x7f, 0x01, 0x02}), 6);
    assert_int_equal(ipaddr_parse("ff02::1:ff01:203", &group), 0);
    eth_of_multicast(&group, mac);
    assert_memory_equal(mac, ((const uint8_t[]){0x33, 0x33, 0xff, 0x01, 0x02, 0x03}), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_known_header),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_options),
        cmocka_unit_test(test_udp),        cmocka_unit_test(test_arp),
        cmocka_unit_test(test_eth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
