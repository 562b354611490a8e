/* SPDX-License-Identifier: BSD-2-Clause
 * Addresses of both families in one form; IPv4 is kept as itself with a family, never v4-mapped. */
#ifndef WEIR_WIRE_ADDR_H
#define WEIR_WIRE_ADDR_H

#include "base/base.h"
#include <netinet/in.h>
#include <sys/socket.h>

struct ipaddr {
    uint8_t family; /* AF_INET, AF_INET6; 0: none */
    uint8_t pad[3];
    uint32_t scope; /* interface index of a link-local IPv6 address, else 0 */
    union {
        uint8_t b[16]; /* network order; IPv4 in b[0..3], the rest zero */
        uint32_t w[4]; /* network order */
        uint64_t q[2];
    };
};

/* A transport address pair; all of it is significant (no hidden padding), so it can be hashed
 * whole. */
struct flow {
    struct ipaddr laddr, faddr;
    uint16_t lport, fport; /* host order */
    uint32_t zero;
};

static inline bool ipaddr_equal(const struct ipaddr *a, const struct ipaddr *b)
{
    return a->family == b->family && a->scope == b->scope && a->q[0] == b->q[0] &&
           a->q[1] == b->q[1];
}
/* Fields are compared, not bytes: what a caller left in padding does not count. */
static inline bool flow_equal(const struct flow *a, const struct flow *b)
{
    return a->lport == b->lport && a->fport == b->fport && ipaddr_equal(&a->faddr, &b->faddr) &&
           ipaddr_equal(&a->laddr, &b->laddr);
}

bool ipaddr_is_any(const struct ipaddr *a); /* unspecified address, or family 0 */
bool ipaddr_is_multicast(const struct ipaddr *a);
bool ipaddr_is_loopback(const struct ipaddr *a);
bool ipaddr_is_linklocal(const struct ipaddr *a);
bool ipaddr_in_prefix(const struct ipaddr *a, const struct ipaddr *prefix, unsigned prefixlen);
static inline struct ipaddr ipaddr_v4(uint32_t host_order)
{
    return (struct ipaddr){.family = AF_INET, .w = {htonl(host_order)}};
}
/* Text to address: "10.0.0.1", "fe80::1". 0 or -EINVAL. */
int ipaddr_parse(const char *text, struct ipaddr *out) NODISCARD;
/* Address to text ("192.0.2.1", RFC 5952 for IPv6); buf of at least 46 bytes; returns buf. */
char *ipaddr_format(const struct ipaddr *a, char *buf, size_t size);

/* sockaddr_in / sockaddr_in6 to address and port. v4-mapped IPv6 becomes IPv4 (*mapped is set if
 * not NULL). 0, -EINVAL (short), -EAFNOSUPPORT. */
int sockaddr_to_ipaddr(const struct sockaddr *sa, socklen_t len, struct ipaddr *addr,
                       uint16_t *port, bool *mapped) NODISCARD;
/* For a socket of `domain` (AF_INET6 shows IPv4 as ::ffff:a.b.c.d). Returns the true length. */
socklen_t ipaddr_to_sockaddr(const struct ipaddr *addr, uint16_t port, int domain,
                             struct sockaddr_storage *out);

#endif
