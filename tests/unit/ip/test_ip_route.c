/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: routes are the longest match, sources are ours and fit, path MTUs only fall, are bounded
 * and end. Bound: the listed routes; 3,000 learned path MTUs. */
#include "host.h"

#include <stdlib.h>

static int route(struct host *h, const char *dst, const char *src, struct route *r)
{
    struct ipaddr d = addr(dst), s = src ? addr(src) : (struct ipaddr){0};

    return ip_route(&h->s, &d, &s, r);
}

static void expect(struct host *h, const char *dst, const char *nexthop, const char *src,
                   unsigned netif)
{
    struct ipaddr n = addr(nexthop), s = addr(src);
    struct route r;

    assert_int_equal(route(h, dst, NULL, &r), 0);
    r.nexthop.scope = r.src.scope = 0;
    assert_true(ipaddr_equal(&r.nexthop, &n));
    assert_true(ipaddr_equal(&r.src, &s));
    assert_int_equal(r.netif->index, netif);
}

static void longest_prefix(void **state)
{
    struct host *h = host_create(0);
    struct ipaddr p = addr("10.2.0.0"), gw = addr("10.0.0.9"), p2 = addr("10.2.3.4"),
                  gw2 = addr("10.0.0.8");
    struct ipaddr second = addr("192.168.7.1");
    struct route r;

    assert_int_equal(ip_route_add(&h->s, &p, 16, &gw, h->nif), 0);
    assert_int_equal(ip_route_add(&h->s, &p, 16, &gw, h->nif), -EEXIST);
    assert_int_equal(ip_route_add(&h->s, &p2, 32, &gw2, h->nif), 0);
    assert_int_equal(netif_add_addr(h->nif, &second, 24), 0);
    assert_int_equal(netif_add_addr(h->nif, &second, 24), -EEXIST);
    expect(h, "10.0.0.77", "10.0.0.77", "10.0.0.1", 2);
    expect(h, "10.2.9.9", "10.0.0.9", "10.0.0.1", 2);
    expect(h, "10.2.3.4", "10.0.0.8", "10.0.0.1", 2);
    expect(h, "8.8.8.8", "10.0.0.254", "10.0.0.1", 2);
    expect(h, "192.168.7.9", "192.168.7.9", "192.168.7.1", 2);
    expect(h, "10.0.0.1", "10.0.0.1", "10.0.0.1", 1); /* ourselves: loopback */
    expect(h, "127.0.0.1", "127.0.0.1", "127.0.0.1", 1);
    expect(h, "127.1.2.3", "127.1.2.3", "127.0.0.1", 1);
    expect(h, "255.255.255.255", "255.255.255.255", "10.0.0.1", 2);
    expect(h, "fd00::99", "fd00::99", "fd00::1", 2);
    expect(h, "2001:db8::1", "fd00::fe", "fd00::1", 2);
    expect(h, "::1", "::1", "::1", 1);
    assert_int_equal(route(h, "0.0.0.0", NULL, &r), -ENETUNREACH);
    assert_int_equal(route(h, "10.0.0.77", "192.168.7.1", &r), 0);
    assert_int_equal(r.src.b[0], 192);
    assert_int_equal(route(h, "10.0.0.77", "10.0.0.2", &r), -EADDRNOTAVAIL);
    assert_int_equal(route(h, "10.0.0.77", "127.0.0.1", &r), -EINVAL);
    assert_int_equal(route(h, "fe80::9", NULL, &r), -EINVAL);
    host_destroy(h);
}

static void no_default_route(void **state)
{
    struct host *h = host_create(0);
    struct route r;

    h->s.ip->route_count -= 2; /* the default routes stand last */
    h->s.ip->route_gen++;
    assert_int_equal(route(h, "8.8.8.8", NULL, &r), -ENETUNREACH);
    assert_int_equal(host_send(h, "8.8.8.8", 8, true), -ENETUNREACH);
    assert_int_equal(CTR(h, ip_tx_noroute), 1);
    host_destroy(h);
}

static void linklocal_source_by_scope(void **state)
{
    struct host *h = host_create(0);
    struct ipaddr dst = addr("fe80::9"), all = addr("ff02::1");
    struct route r;

    /* fe80::/64 with the MAC's EUI-64 came with the first IPv6 address. */
    dst.scope = h->nif->index;
    assert_int_equal(ip_route(&h->s, &dst, NULL, &r), 0);
    assert_true(ipaddr_is_linklocal(&r.src));
    assert_int_equal(r.src.b[11], 0xff);
    assert_int_equal(r.nexthop.scope, h->nif->index);
    all.scope = h->nif->index;
    assert_int_equal(ip_route(&h->s, &all, NULL, &r), 0);
    assert_true(ipaddr_is_linklocal(&r.src));
    host_destroy(h);
}

static uint32_t mtu_to(struct host *h, const char *dst)
{
    struct route r;

    assert_int_equal(route(h, dst, NULL, &r), 0);
    return r.mtu;
}

static void learn(struct host *h, const char *dst, uint32_t mtu)
{
    struct ipaddr a = addr(dst);

    ip_pmtu_update(&h->s, &a, mtu);
}

/* case: SEC-052 */
static void path_mtu_store(void **state)
{
    struct host *h = host_create(0);
    char text[32];
    unsigned i;

    assert_int_equal(mtu_to(h, "8.8.8.8"), 1500);
    learn(h, "8.8.8.8", 1400);
    assert_int_equal(mtu_to(h, "8.8.8.8"), 1400);
    assert_int_equal(mtu_to(h, "8.8.4.4"), 1500);
    learn(h, "8.8.8.8", 1450); /* never raised */
    learn(h, "8.8.8.8", 65535);
    assert_int_equal(mtu_to(h, "8.8.8.8"), 1400);
    learn(h, "8.8.8.8", 68);
    assert_int_equal(mtu_to(h, "8.8.8.8"), 552);
    learn(h, "2001:db8::1", 1279);
    learn(h, "2001:db8::1", 0);
    assert_int_equal(mtu_to(h, "2001:db8::1"), 1500);
    learn(h, "2001:db8::1", 1280);
    assert_int_equal(mtu_to(h, "2001:db8::1"), 1280);
    assert_int_equal(CTR(h, icmp_pmtu_updates), 3);
    host_run(h, 599 * NS_PER_S);
    assert_int_equal(mtu_to(h, "8.8.8.8"), 552);
    host_run(h, 2 * NS_PER_S); /* then a larger one is tried again */
    assert_int_equal(mtu_to(h, "8.8.8.8"), 1500);
    for (i = 0; i < 3000; i++) {
        snprintf(text, sizeof(text), "9.9.%u.%u", i / 200, 1 + i % 200);
        learn(h, text, 1300);
        assert_int_equal(mtu_to(h, text), 1300);
        assert_true(h->s.ip->pmtu_count <= PMTU_MAX);
    }
    ip_pmtu_forget_all(&h->s);
    assert_int_equal(mtu_to(h, text), 1500);
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longest_prefix),
        cmocka_unit_test(no_default_route),
        cmocka_unit_test(linklocal_source_by_scope),
        cmocka_unit_test(path_mtu_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
