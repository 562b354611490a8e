/* SPDX-License-Identifier: BSD-2-Clause
 * Addresses: predicates, text, sockaddr. */
#include "addr.h"

#include "wire.h"
#include <arpa/inet.h>

/* ::ffff:0:0/96, RFC 4291 2.5.5.2. */
static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool ipaddr_is_any(const struct ipaddr *a)
{
    return a->family == 0 || (a->q[0] == 0 && a->q[1] == 0);
}

bool ipaddr_is_multicast(const struct ipaddr *a)
{
    if (a->family == AF_INET)
        return (a->b[0] & 0xf0) == 0xe0;
    return a->family == AF_INET6 && a->b[0] == 0xff;
}

bool ipaddr_is_loopback(const struct ipaddr *a)
{
    if (a->family == AF_INET)
        return a->b[0] == 127;
    return a->family == AF_INET6 && a->q[0] == 0 && get_be32(&a->b[8]) == 0 &&
           get_be32(&a->b[12]) == 1;
}

bool ipaddr_is_linklocal(const struct ipaddr *a)
{
    if (a->family == AF_INET)
        return a->b[0] == 169 && a->b[1] == 254;
    return a->family == AF_INET6 && a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
}

bool ipaddr_in_prefix(const struct ipaddr *a, const struct ipaddr *prefix, unsigned prefixlen)
{
    if (a->family != prefix->family)
        return false;
    CHECK(prefixlen <= (a->family == AF_INET ? 32u : 128u));
    unsigned bytes = prefixlen / 8, bits = prefixlen % 8;
    if (memcmp(a->b, prefix->b, bytes) != 0)
        return false;
    return bits == 0 || ((a->b[bytes] ^ prefix->b[bytes]) & (0xff00u >> bits) & 0xff) == 0;
}

int ipaddr_parse(const char *text, struct ipaddr *out)
{
    struct ipaddr a = {.family = AF_INET};
    if (inet_pton(AF_INET, text, a.b) != 1) {
        memset(&a, 0, sizeof(a));
        a.family = AF_INET6;
        if (inet_pton(AF_INET6, text, a.b) != 1)
            return -EINVAL;
    }
    *out = a;
    return 0;
}

char *ipaddr_format(const struct ipaddr *a, char *buf, size_t size)
{
    CHECK(size >= INET6_ADDRSTRLEN);
    if (a->family == 0 || inet_ntop(a->family, a->b, buf, (socklen_t)size) == NULL)
        memcpy(buf, "-", 2);
    return buf;
}

/* Link-local unicast, or multicast of interface or link scope (RFC 4291 2.7): these need an
 * interface. */
static bool needs_scope(const struct ipaddr *a)
{
    return ipaddr_is_linklocal(a) || (a->b[0] == 0xff && (a->b[1] & 0x0f) <= 2);
}

int sockaddr_to_ipaddr(const struct sockaddr *sa, socklen_t len, struct ipaddr *addr,
                       uint16_t *port, bool *mapped)
{
    if (len < sizeof(sa->sa_family))
        return -EINVAL;
    sa_family_t family;
    memcpy(&family, &sa->sa_family, sizeof(family));
    struct ipaddr a = {.family = AF_INET};
    uint16_t p;
    bool is_mapped = false;
    if (family == AF_INET) {
        struct sockaddr_in in;
        if (len < sizeof(in))
            return -EINVAL;
        memcpy(&in, sa, sizeof(in));
        memcpy(a.b, &in.sin_addr, 4);
        p = in.sin_port;
    } else if (family == AF_INET6) {
        struct sockaddr_in6 in6;
        /* The scope came last into this structure: Linux takes it without. */
        if (len < offsetof(struct sockaddr_in6, sin6_scope_id))
            return -EINVAL;
        memset(&in6, 0, sizeof(in6));
        memcpy(&in6, sa, MIN(len, sizeof(in6)));
        p = in6.sin6_port;
        is_mapped = memcmp(&in6.sin6_addr, mapped_prefix, sizeof(mapped_prefix)) == 0;
        if (is_mapped) {
            memcpy(a.b, in6.sin6_addr.s6_addr + 12, 4);
        } else {
            a.family = AF_INET6;
            memcpy(a.b, &in6.sin6_addr, 16);
            if (needs_scope(&a))
                a.scope = in6.sin6_scope_id;
        }
    } else {
        return -EAFNOSUPPORT;
    }
    *addr = a;
    *port = get_be16(&p);
    if (mapped != NULL)
        *mapped = is_mapped;
    return 0;
}

socklen_t ipaddr_to_sockaddr(const struct ipaddr *addr, uint16_t port, int domain,
                             struct sockaddr_storage *out)
{
    uint16_t p;
    put_be16(&p, port);
    memset(out, 0, sizeof(*out));
    if (domain == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = p};
        memcpy(&in.sin_addr, addr->b, 4);
        memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = p, .sin6_scope_id = addr->scope};
    if (addr->family == AF_INET) {
        memcpy(in6.sin6_addr.s6_addr, mapped_prefix, sizeof(mapped_prefix));
        memcpy(in6.sin6_addr.s6_addr + 12, addr->b, 4);
    } else {
        memcpy(&in6.sin6_addr, addr->b, 16); /* family 0: the unspecified address */
    }
    memcpy(out, &in6, sizeof(in6));
    return sizeof(in6);
}
