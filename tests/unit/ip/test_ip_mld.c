/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: switches that snoop learn of the solicited-node groups of our addresses, when they come and
 * when a querier asks, in the querier's version. Bound: the listed cases. */
#include "host.h"

#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

enum { QUERY_V1 = 24, QUERY_V2 = 28 };

struct query {
    uint16_t code;
    uint8_t len, hlim;
    const char *src;
};

static void inject_query(struct host *h, const struct query *q)
{
    uint8_t raw[QUERY_V2] = {ICMP6_MLD_QUERY}, frame[200];
    const char *src = q->src ? q->src : "fe80::5";
    size_t len;

    put_be16(raw + 4, q->code);
    fill_sum(raw, q->len, 2, src, "ff02::1", IPPROTO_ICMPV6);
    len = make6(h, frame, src, "ff02::1", IPPROTO_ICMPV6, raw, q->len);
    frame[14 + 7] = q->hlim;
    memcpy(frame, (uint8_t[]){0x33, 0x33, 0, 0, 0, 1}, 6);
    host_inject(h, frame, len);
}

/* The next report: of `group`, of version 2 with `mode`, or of version 1 when mode is 0. */
static void expect_report(struct host *h, const char *group, uint8_t mode)
{
    static const uint8_t hop_by_hop[8] = {IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0};
    struct ipaddr g = addr(group), dst = mode ? addr("ff02::16") : g, src;
    struct frame *f = host_next(h);
    const uint8_t *p;
    uint32_t len = mode ? 28 : 24;

    assert_non_null(f);
    assert_int_equal(f->len, 14 + 40 + 8 + len);
    p = f->b + 14;
    assert_int_equal(get_be16(f->b), 0x3333);
    assert_memory_equal(f->b + 2, dst.b + 12, 4);
    assert_int_equal(get_be16(p + 4), 8 + len);
    assert_int_equal(p[6], IPV6_NH_HOPOPTS);
    assert_int_equal(p[7], 1); /* hop limit */
    src = (struct ipaddr){.family = AF_INET6};
    memcpy(src.b, p + 8, 16);
    assert_true(ipaddr_is_linklocal(&src));
    assert_memory_equal(p + 24, dst.b, 16);
    assert_memory_equal(p + 40, hop_by_hop, 8);
    p += 48;
    assert_int_equal(
        checksum_fold(checksum_add(p, len, checksum_pseudo(&src, &dst, IPPROTO_ICMPV6, len))),
        0xffff);
    assert_int_equal(p[0], mode ? ICMP6_MLD_REPORT_V2 : ICMP6_MLD_REPORT_V1);
    if (mode) {
        assert_int_equal(get_be16(p + 6), 1);
        assert_int_equal(p[8], mode);
        assert_int_equal(get_be16(p + 10), 0);
    }
    assert_memory_equal(p + len - 16, g.b, 16);
    free(f);
}

/* Those of the host: of fd00::1 and of its link-local address (02:00:00:00:00:01). */
static void expect_both(struct host *h, uint8_t mode)
{
    expect_report(h, "ff02::1:ff00:1", mode); /* both addresses end alike: one group */
    assert_null(host_next(h));
}

static void on_addition(void **state)
{
    struct host *h = host_create(0);
    struct ipaddr a = addr("fd00::77:1234");
    unsigned i;

    assert_int_equal(CTR(h, icmp_mld_reports), 2); /* of host_create: at once and repeated */
    assert_int_equal(netif_add_addr(h->nif, &a, 64), 0);
    free(host_next(h)); /* the advertisement */
    for (i = 0; i < 2; i++) {
        expect_report(h, "ff02::1:ff00:1", 4);
        expect_report(h, "ff02::1:ff77:1234", 4);
        assert_null(host_next(h));
        host_run(h, NS_PER_S);
    }
    assert_null(host_next(h));
    host_run(h, 100 * NS_PER_S);
    assert_null(host_next(h));
    assert_int_equal(
        netif_add_addr(h->nif, &(struct ipaddr){.family = AF_INET, .b = {10, 9, 0, 1}}, 24), 0);
    free(host_next(h)); /* ARP */
    host_run(h, 2 * NS_PER_S);
    assert_null(host_next(h)); /* IPv4 has nothing to report */
    host_destroy(h);
}

static void answers_queries(void **state)
{
    struct host *h = host_create(0);
    unsigned i;

    for (i = 0; i < 5; i++) /* one answer for all that came while it was due */
        inject_query(h, &(struct query){.code = 4000, .len = QUERY_V2, .hlim = 1});
    host_run(h, 4 * NS_PER_S);
    expect_both(h, 2);
    inject_query(h, &(struct query){.code = 4000, .len = QUERY_V1, .hlim = 1});
    host_run(h, 4 * NS_PER_S);
    expect_both(h, 0);
    inject_query(h, &(struct query){.code = 0x8000 | 0x100, .len = QUERY_V2, .hlim = 1}); /* 35 s */
    host_run(h, 35 * NS_PER_S);
    expect_both(h, 2);
    inject_query(h, &(struct query){.code = 0, .len = QUERY_V2, .hlim = 1});
    host_run(h, NS_PER_MS);
    expect_both(h, 2);
    host_destroy(h);
}

static void bad_queries(void **state)
{
    struct host *h = host_create(0);
    uint64_t ignored = CTR(h, icmp_rx_ignored);

    inject_query(h, &(struct query){.code = 10, .len = QUERY_V2, .hlim = 64});
    inject_query(h, &(struct query){.code = 10, .len = QUERY_V2, .hlim = 1, .src = "fd00::2"});
    inject_query(h, &(struct query){.code = 10, .len = 20, .hlim = 1});
    assert_int_equal(CTR(h, icmp_rx_ignored) - ignored, 3);
    host_run(h, 10 * NS_PER_S);
    assert_null(host_next(h));
    host_destroy(h);
}

/* An interface without Ethernet, and one that goes while a report is due. */
static void without_a_link(void **state)
{
    struct host *h = host_create(NETIF_CAP_L3);

    assert_int_equal(CTR(h, icmp_mld_reports), 0);
    host_destroy(h);
    h = host_create(0);
    inject_query(h, &(struct query){.code = 30000, .len = QUERY_V2, .hlim = 1});
    assert_int_equal(h->s.wheel.armed, 1);
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_addition),
        cmocka_unit_test(answers_queries),
        cmocka_unit_test(bad_queries),
        cmocka_unit_test(without_a_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
