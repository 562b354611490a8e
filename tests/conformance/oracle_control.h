/* SPDX-License-Identifier: BSD-2-Clause
 * Control messages for the comparison of sockets with the kernel's: good and bad ones to send, and
 * what of received ones cannot be compared. */
#ifndef WEIR_TESTS_ORACLE_CONTROL_H
#define WEIR_TESTS_ORACLE_CONTROL_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* Time stamps and ports differ between the sides. */
static void hide_differences(uint8_t *control, size_t len)
{
    struct cmsghdr h;

    while (len >= sizeof h) {
        memcpy(&h, control, sizeof h);
        size_t whole = CMSG_ALIGN(h.cmsg_len) < len ? CMSG_ALIGN(h.cmsg_len) : len;
        if (h.cmsg_level == SOL_SOCKET)
            memset(control + sizeof h, 0, whole - sizeof h);
        if (h.cmsg_level == IPPROTO_IP && h.cmsg_type == IP_ORIGDSTADDR && whole >= sizeof h + 4)
            memset(control + sizeof h + 2, 0, 2);
        control += whole;
        len -= whole;
    }
}

static size_t add_control(uint8_t *at, int level, int type, const void *data, size_t len)
{
    struct cmsghdr h = {.cmsg_len = CMSG_LEN(len), .cmsg_level = level, .cmsg_type = type};

    memcpy(at, &h, sizeof h);
    memcpy(at + sizeof h, data, len);
    return CMSG_SPACE(len);
}

static size_t add_int(uint8_t *at, int level, int type, int v)
{
    return add_control(at, level, type, &v, sizeof v);
}

/* Good and bad ones; the length of all. */
#define CONTROLS 30
static size_t make_control(int kind, uint8_t *at)
{
    static const int values[] = {7, 0, 255, 256, -1, -2};
    static const char *const addr4[] = {"0.0.0.0", "127.0.0.1", "127.0.0.2", "127.0.0.3"};
    static const char *const addr6[] = {"::", "::1", "2001:db8::1", "::ffff:127.0.0.1"};
    struct in_pktinfo pi = {.ipi_ifindex = kind == 4 ? 77 : kind & 1};
    struct in6_pktinfo pi6 = {.ipi6_ifindex = kind == 9 ? 77 : kind & 1};
    size_t n = 0;

    if (kind < 5) {
        inet_pton(AF_INET, addr4[kind & 3], &pi.ipi_spec_dst);
        return add_control(at, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi);
    }
    if (kind < 10) {
        inet_pton(AF_INET6, addr6[(kind - 5) & 3], &pi6.ipi6_addr);
        return add_control(at, IPPROTO_IPV6, IPV6_PKTINFO, &pi6, sizeof pi6);
    }
    if (kind < 16) {
        n = add_int(at, IPPROTO_IP, IP_TTL, values[kind - 10]);
        return n + add_int(at + n, IPPROTO_IPV6, IPV6_HOPLIMIT, values[kind - 10]);
    }
    if (kind < 22) { /* -1, the default by RFC 3542 6.5, is 255 to some kernels */
        n = add_int(at, IPPROTO_IP, IP_TOS, values[kind - 16] & ~3);
        return n + add_int(at + n, IPPROTO_IPV6, IPV6_TCLASS, kind == 20 ? 8 : values[kind - 16]);
    }
    switch (kind) {
    case 22:
        return add_control(at, IPPROTO_IP, IP_TOS, "\x10", 1);
    case 23:
        return add_control(at, IPPROTO_IP, IP_TTL, "\x10", 1);
    case 24:
        return add_int(at, SOL_SOCKET, 99, 1);
    case 25:
        return add_int(at, 77, 1, 1);
    case 26:
        return add_int(at, IPPROTO_IP, 99, 1);
    case 27:
        return add_int(at, IPPROTO_IPV6, 99, 1);
    case 28: /* longer than there is */
        return add_control(at, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi) - 8;
    default: /* too short to be one */
        memset(at, 0, 16);
        return 16;
    }
}

#endif
