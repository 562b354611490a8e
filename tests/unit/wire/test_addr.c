/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: addresses are classified, matched with prefixes, written and read as their RFCs say, and
 * pass through sockaddr of either family without loss. Bound: tables. */
#include "../base/unit.h"
#include "wire/addr.h"

static struct ipaddr addr(const char *text)
{
    struct ipaddr a;
    assert_int_equal(ipaddr_parse(text, &a), 0);
    return a;
}

static void test_text(void **state)
{
    static const char *const same[] = {
        "0.0.0.0",       "192.0.2.1", "255.255.255.255",   "::",
        "::1",           "fe80::1",   "2001:db8::1:0:0:1", "2001:db8:0:1:1:1:1:1",
        "ff02::1:ff00:1"};
    char buf[46];
    for (size_t i = 0; i < NELEM(same); i++) {
        struct ipaddr a = addr(same[i]);
        assert_string_equal(ipaddr_format(&a, buf, sizeof(buf)), same[i]);
        assert_int_equal(a.family, strchr(same[i], ':') != NULL ? AF_INET6 : AF_INET);
    }
    static const char *const bad[] = {
        "",      "1.2.3",        "1.2.3.4.5", "1.2.3.256", "01.2.3.4x",
        "::1::", "fe80::1%eth0", "g::",       "1.2.3.4/24"};
    struct ipaddr a;
    for (size_t i = 0; i < NELEM(bad); i++)
        assert_int_equal(ipaddr_parse(bad[i], &a), -EINVAL);
    struct ipaddr none = {0};
    assert_string_equal(ipaddr_format(&none, buf, sizeof(buf)), "-");
}

static void test_kinds(void **state)
{
    static const struct {
        const char *text;
        bool any, multicast, loopback, linklocal;
    } rows[] = {
        {"0.0.0.0", .any = true},
        {"::", .any = true},
        {"127.0.0.1", .loopback = true},
        {"127.255.0.1", .loopback = true},
        {"::1", .loopback = true},
        {"::2", 0},
        {"224.0.0.1", .multicast = true},
        {"239.255.255.255", .multicast = true},
        {"240.0.0.1", 0},
        {"255.255.255.255", 0},
        {"ff02::1", .multicast = true},
        {"fe80::1", .linklocal = true},
        {"febf::1", .linklocal = true},
        {"fec0::1", 0},
        {"169.254.1.1", .linklocal = true},
        {"10.0.0.1", 0},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        struct ipaddr a = addr(rows[i].text);
        assert_int_equal(ipaddr_is_any(&a), rows[i].any);
        assert_int_equal(ipaddr_is_multicast(&a), rows[i].multicast);
        assert_int_equal(ipaddr_is_loopback(&a), rows[i].loopback);
        assert_int_equal(ipaddr_is_linklocal(&a), rows[i].linklocal);
    }
}

static void test_prefixes(void **state)
{
    static const struct {
        const char *a, *prefix;
        unsigned len;
        bool in;
    } rows[] = {
        {"10.1.2.3", "0.0.0.0", 0, true},           {"10.1.2.3", "10.1.2.0", 24, true},
        {"10.1.3.3", "10.1.2.0", 24, false},        {"10.1.3.3", "10.1.2.0", 23, true},
        {"10.1.2.3", "10.1.2.3", 32, true},         {"10.1.2.2", "10.1.2.3", 32, false},
        {"10.1.2.2", "10.1.2.3", 31, true},         {"fd00::1", "fd00::", 64, true},
        {"fd00::1", "fd00::2", 127, false},         {"fd00::1", "fd00::1", 128, true},
        {"fd00:0:0:0:8000::", "fd00::", 65, false}, {"10.1.2.3", "::", 0, false},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        struct ipaddr a = addr(rows[i].a), p = addr(rows[i].prefix);
        assert_int_equal(ipaddr_in_prefix(&a, &p, rows[i].len), rows[i].in);
    }
}

static void test_sockaddr(void **state)
{
    static const struct {
        const char *text;
        int domain;
        bool mapped;
        socklen_t len;
    } rows[] = {
        {"192.0.2.1", AF_INET, false, sizeof(struct sockaddr_in)},
        {"192.0.2.1", AF_INET6, true, sizeof(struct sockaddr_in6)},
        {"fd00::1", AF_INET6, false, sizeof(struct sockaddr_in6)},
        {"fe80::1", AF_INET6, false, sizeof(struct sockaddr_in6)},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        struct sockaddr_storage ss;
        struct ipaddr a = addr(rows[i].text), b;
        uint16_t port;
        bool mapped = !rows[i].mapped;
        a.scope = ipaddr_is_linklocal(&a) ? 3 : 0;
        assert_int_equal(ipaddr_to_sockaddr(&a, 8080, rows[i].domain, &ss), rows[i].len);
        assert_int_equal(ss.ss_family, rows[i].domain);
        assert_int_equal(
            sockaddr_to_ipaddr((struct sockaddr *)&ss, rows[i].len, &b, &port, &mapped), 0);
        assert_true(ipaddr_equal(&a, &b));
        assert_int_equal(port, 8080);
        assert_int_equal(mapped, rows[i].mapped);
        /* Linux takes a sockaddr_in6 without its scope. */
        socklen_t least = rows[i].domain == AF_INET ? sizeof(struct sockaddr_in) : 24;
        for (socklen_t len = 0; len < least; len++) {
            struct sockaddr *exact = malloc(len + 1);
            memcpy(exact, &ss, len);
            assert_int_equal(sockaddr_to_ipaddr(exact, len, &b, &port, NULL), -EINVAL);
            free(exact);
        }
        assert_int_equal(sockaddr_to_ipaddr((struct sockaddr *)&ss, least, &b, &port, NULL), 0);
    }
    struct sockaddr_storage ss = {.ss_family = AF_UNIX};
    struct ipaddr b;
    uint16_t port;
    assert_int_equal(sockaddr_to_ipaddr((struct sockaddr *)&ss, sizeof(ss), &b, &port, NULL),
                     -EAFNOSUPPORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_sockaddr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
