/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: options of SOL_SOCKET, IP and IPv6 have the lengths, values and errors measured on Linux,
 * but for buffer sizes, which read as they were set. Bound: single thread. */
#include "fake.h"
#include <netinet/tcp.h>

static int set(int fd, int level, int name, int v)
{
    return weir_setsockopt(fd, level, name, &v, sizeof v);
}

static int get(int fd, int level, int name)
{
    int v = -77;
    socklen_t len = sizeof v;

    assert_int_equal(weir_getsockopt(fd, level, name, &v, &len), 0);
    return v;
}

/* case: FUN-122 */
static void test_lengths(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
    const int names[] = {SO_DEBUG,  SO_REUSEADDR, SO_KEEPALIVE, SO_SNDBUF,
                         SO_RCVBUF, SO_RCVLOWAT,  SO_PRIORITY};
    struct linger lg = {1, 7};
    struct timeval tv = {3, 4};
    uint8_t b[64];

    (void)state;
    for (size_t i = 0; i < NELEM(names); i++)
        for (socklen_t room = 0; room <= 16; room++) {
            socklen_t len = room;
            memset(b, 0xee, sizeof b);
            assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, names[i], b, &len), 0);
            assert_int_equal(len, MIN(room, 4));
            assert_int_equal(b[len], 0xee);
            int r = weir_setsockopt(fd, SOL_SOCKET, names[i], b, room);
            assert_int_equal(r, room < 4 ? -1 : 0);
        }
    socklen_t len = (socklen_t)-1;
    assert_errno(weir_getsockopt(fd, SOL_SOCKET, SO_TYPE, b, &len), EINVAL);
    assert_errno(weir_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, 4), EINVAL);
    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, 8), 0);
    lg.l_linger = 0;
    len = sizeof lg;
    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, &len), 0);
    assert_int_equal(lg.l_linger, 7);
    assert_errno(weir_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, 8), EINVAL);
    tv.tv_usec = 1000000;
    assert_errno(weir_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv), EDOM);
    len = 1; /* IP gives single bytes */
    assert_int_equal(weir_getsockopt(fd, IPPROTO_IP, IP_TTL, b, &len), 0);
    assert_int_equal(len, 1);
    assert_int_equal(b[0], 64);
    b[0] = 9;
    assert_int_equal(weir_setsockopt(fd, IPPROTO_IP, IP_TTL, b, 1), 0);
    assert_int_equal(get(fd, IPPROTO_IP, IP_TTL), 9);
    weir_close(fd);
}

static void test_booleans(void **state)
{
    const int names[] = {SO_DEBUG,     SO_REUSEADDR, SO_DONTROUTE, SO_BROADCAST, SO_KEEPALIVE,
                         SO_OOBINLINE, SO_NO_CHECK,  SO_REUSEPORT, SO_TIMESTAMP};
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);

    (void)state;
    for (size_t i = 0; i < NELEM(names); i++) {
        assert_int_equal(get(fd, SOL_SOCKET, names[i]), 0);
        assert_int_equal(set(fd, SOL_SOCKET, names[i], -1), 0);
        assert_int_equal(get(fd, SOL_SOCKET, names[i]), 1);
        assert_true(so_has_option(fake_so(fd), names[i]));
        assert_int_equal(set(fd, SOL_SOCKET, names[i], 0), 0);
        assert_int_equal(get(fd, SOL_SOCKET, names[i]), 0);
    }
    weir_close(fd);
}

static void test_read_only(void **state)
{
    int fd = weir_socket(fake.s, AF_INET6, SOCK_DGRAM, 0);
    const int names[] = {SO_TYPE,     SO_ERROR, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN,
                         SO_SNDLOWAT, 500};

    (void)state;
    for (size_t i = 0; i < NELEM(names); i++) {
        assert_errno(set(fd, SOL_SOCKET, names[i], 1), ENOPROTOOPT);
        assert_errno(weir_setsockopt(fd, SOL_SOCKET, names[i], "", 0), EINVAL);
    }
    assert_int_equal(get(fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
    assert_int_equal(get(fd, SOL_SOCKET, SO_DOMAIN), AF_INET6);
    assert_int_equal(get(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
    assert_int_equal(get(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
    assert_errno(set(fd, SOL_SOCKET, SO_PASSCRED, 1), EOPNOTSUPP);
    int l = fake_listener(true, 1);
    assert_int_equal(get(l, SOL_SOCKET, SO_ACCEPTCONN), 1);
    weir_close(l);
    weir_close(fd);
}

static void test_sizes(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(get(fd, SOL_SOCKET, SO_SNDBUF), 32768);
    assert_int_equal(get(fd, SOL_SOCKET, SO_RCVBUF), 65536);
    for (int k = 0; k < 2; k++) {
        int name = k ? SO_SNDBUF : SO_RCVBUF;
        assert_int_equal(set(fd, SOL_SOCKET, name, 100001), 0);
        assert_int_equal(get(fd, SOL_SOCKET, name), 100001); /* not doubled */
        assert_int_equal(set(fd, SOL_SOCKET, name, 1), 0);
        assert_int_equal(get(fd, SOL_SOCKET, name), 2048);
        assert_int_equal(set(fd, SOL_SOCKET, name, -1), 0);
        assert_int_equal(get(fd, SOL_SOCKET, name), 2097152);
    }
    assert_int_equal(set(fd, SOL_SOCKET, SO_RCVLOWAT, 0), 0);
    assert_int_equal(get(fd, SOL_SOCKET, SO_RCVLOWAT), 1);
    weir_close(fd);
}

static void test_ip(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0),
        fd6 = weir_socket(fake.s, AF_INET6, SOCK_STREAM, 0);

    (void)state;
    assert_errno(set(fd, IPPROTO_IP, IP_TTL, 0), EINVAL);
    assert_errno(set(fd, IPPROTO_IP, IP_TTL, 256), EINVAL);
    assert_int_equal(set(fd, IPPROTO_IP, IP_TTL, 255), 0);
    assert_int_equal(set(fd, IPPROTO_IP, IP_TTL, -1), 0);
    assert_int_equal(get(fd, IPPROTO_IP, IP_TTL), 64);
    assert_int_equal(set(fd, IPPROTO_IP, IP_TOS, 255), 0);
    assert_int_equal(get(fd, IPPROTO_IP, IP_TOS), 252); /* ECN is TCP's */
    assert_errno(set(fd, IPPROTO_IP, IP_MTU_DISCOVER, -1), EINVAL);
    assert_int_equal(set(fd, IPPROTO_IP, IP_RECVTTL, 7), 0);
    assert_int_equal(get(fd, IPPROTO_IP, IP_RECVTTL), 1);
    assert_errno(set(fd, IPPROTO_IP, IP_HDRINCL, 1), ENOPROTOOPT);
    assert_errno(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1), ENOPROTOOPT);
    int v;
    socklen_t len = sizeof v;
    assert_errno(weir_getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v, &len), EOPNOTSUPP);
    assert_errno(weir_getsockopt(fd, 77, 1, &v, &len), EOPNOTSUPP);
    assert_errno(weir_getsockopt(fd, IPPROTO_IP, IP_MTU, &v, &len), ENOTCONN);
    assert_errno(set(fd, 77, 1, 1), ENOPROTOOPT);

    assert_int_equal(get(fd6, IPPROTO_IPV6, IPV6_V6ONLY), 0);
    assert_errno(weir_setsockopt(fd6, IPPROTO_IPV6, IPV6_V6ONLY, "", 1), EINVAL);
    assert_int_equal(set(fd6, IPPROTO_IPV6, IPV6_V6ONLY, 5), 0);
    assert_int_equal(get(fd6, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    assert_int_equal(get(fd6, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 64);
    assert_errno(set(fd6, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 256), EINVAL);
    assert_int_equal(set(fd6, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 0), 0);
    assert_int_equal(set(fd6, IPPROTO_IPV6, IPV6_TCLASS, 255), 0);
    assert_int_equal(get(fd6, IPPROTO_IPV6, IPV6_TCLASS), 252);
    assert_errno(set(fd6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 2), EINVAL);
    weir_close(fd);
    weir_close(fd6);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_lengths), T(test_booleans), T(test_read_only), T(test_sizes), T(test_ip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
