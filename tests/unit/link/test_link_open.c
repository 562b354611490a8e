/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: opening a link gives a stack its interface, addresses and routes, or a message and nothing
 * at all. Bound: two stacks in virtual time, some allocations that fail. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "buf/mbuf.h"
#include "ip/ip.h"
#include "link/link_open.h"

static char err[256];

static bool holds(struct weir_stack *s, const char *text)
{
    struct ipaddr a;

    assert_int_equal(ipaddr_parse(text, &a), 0);
    return netif_of_addr(s, &a) != NULL;
}

static unsigned interfaces(struct weir_stack *s)
{
    unsigned n = 0;

    for (struct netif *nif = s->netifs; nif; nif = nif->next)
        n++;
    return n;
}

static void pair_has_default_addresses(void **state)
{
    struct sim *sim = sim_create(1, 0);
    struct weir_stack *a = sim_stack(sim, "a"), *b = sim_stack(sim, "b");

    assert_int_equal(link_open_pair(a, b, NULL, err, sizeof(err)), 0);
    assert_string_equal(err, "");
    assert_true(holds(a, "10.0.0.1") && holds(a, "fd00::1"));
    assert_true(holds(b, "10.0.0.2") && holds(b, "fd00::2"));
    assert_false(holds(a, "10.0.0.2"));
    sim_destroy(sim);
}

static void pair_takes_addresses_routers_and_mtu(void **state)
{
    struct sim *sim = sim_create(1, 0);
    struct weir_stack *a = sim_stack(sim, "a"), *b = sim_stack(sim, "b");
    struct ipaddr far = ipaddr_v4(0x08080808);
    struct route r;

    assert_int_equal(
        link_open_pair(
            a, b, "addr=192.0.2.1/24,addr6=2001:db8::1/64,peer=192.0.2.9/24,gw=192.0.2.9,mtu=9000",
            err, sizeof(err)),
        0);
    assert_true(holds(a, "192.0.2.1") && holds(a, "2001:db8::1"));
    assert_true(holds(b, "192.0.2.9"));
    assert_false(holds(b, "10.0.0.2"));
    assert_int_equal(owner_acquire(a), 0);
    assert_int_equal(ip_route(a, &far, NULL, &r), 0);
    stack_leave(a);
    assert_int_equal(r.mtu, 9000);
    assert_true(ipaddr_equal(&r.nexthop, &(struct ipaddr){.family = AF_INET, .b = {192, 0, 2, 9}}));
    sim_destroy(sim);
}

static void refusals_leave_nothing(void **state)
{
    struct sim *sim = sim_create(1, 0);
    struct weir_stack *a = sim_stack(sim, "a"), *b = sim_stack(sim, "b");

    assert_int_equal(link_open(a, "mem", err, sizeof(err)), -ENOTSUP);
    assert_non_null(strstr(err, "mem"));
    assert_int_equal(link_open(a, "tap:x,mtu=0", err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "mtu"));
    assert_int_equal(link_open(a, "tap:lo", err, sizeof(err)) < 0, true);
    assert_non_null(strstr(err, "lo"));
    assert_int_equal(link_open_pair(a, b, "delay=1", err, sizeof(err)), -EINVAL);
    assert_int_equal(link_open_pair(a, b, "capture=/nonexistent/x", err, sizeof(err)), -ENOENT);
    assert_non_null(strstr(err, "/nonexistent/x"));
    assert_int_equal(interfaces(a), 1); /* loopback */
    sim_destroy(sim);
}

static void out_of_memory_leaves_nothing(void **state)
{
    int r = -ENOMEM;

    for (int n = 0; r == -ENOMEM && n < 50; n++) {
        struct sim *sim = sim_create(1, 0);
        struct weir_stack *a = sim_stack(sim, "a"), *b = sim_stack(sim, "b");
        sim_fail_alloc_after(sim, n);
        r = link_open_pair(a, b, "delay=1ms,capture=/dev/null", err, sizeof(err));
        sim_fail_alloc_after(sim, -1);
        assert_true(r == 0 || r == -ENOMEM);
        assert_true(r == 0 || interfaces(a) == 1);
        sim_destroy(sim); /* looks for leaks */
    }
    assert_int_equal(r, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_has_default_addresses),
        cmocka_unit_test(pair_takes_addresses_routers_and_mtu),
        cmocka_unit_test(refusals_leave_nothing),
        cmocka_unit_test(out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
