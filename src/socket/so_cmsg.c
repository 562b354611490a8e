/* SPDX-License-Identifier: BSD-2-Clause
 * Control messages of datagram sockets: what recvmsg tells beside the data, in Linux's order and
 * with Linux's truncation, and what sendmsg may choose for one datagram. */
#include "so_private.h"
#include <time.h>

#define CONTROL_MAX (128u * 1024) /* net.core.optmem_max */

/* --- receiving --- */

void so_front_get(const struct socket *so, const struct mbuf *front, struct so_recv_result *r)
{
    uint32_t len =
        so->so_domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    r->fromlen = MIN(front->m_len, len);
    memcpy(&r->from, front->m_data, r->fromlen);
    if (front->m_len >= len + sizeof r->info)
        memcpy(&r->info, front->m_data + len, sizeof r->info);
}

struct writer {
    uint8_t *at; /* NULL: the caller wants none */
    size_t room;
    int flags;
};

static void put(struct writer *w, int level, int type, const void *data, size_t len)
{
    struct cmsghdr h = {.cmsg_len = CMSG_LEN(len), .cmsg_level = level, .cmsg_type = type};

    if (!w->at || w->room < sizeof h) {
        w->flags |= MSG_CTRUNC;
        return;
    }
    if (w->room < h.cmsg_len) {
        w->flags |= MSG_CTRUNC;
        h.cmsg_len = w->room;
    }
    memcpy(w->at, &h, sizeof h);
    memcpy(w->at + sizeof h, data, h.cmsg_len - sizeof h);
    size_t whole = MIN(CMSG_SPACE(len), w->room);
    w->at += whole;
    w->room -= whole;
}

static void put_int(struct writer *w, int level, int type, int v)
{
    put(w, level, type, &v, sizeof v);
}

static void put_time(struct socket *so, const struct so_ancillary *a, struct writer *w)
{
    bool micro = so_has_option(so, SO_TIMESTAMP);

    if (!micro && !so_wants(so, SO_FLAG_TIMESTAMPNS))
        return;
    /* The option came after the datagram: now will do, as on Linux. */
    uint64_t ns = a->time_ns ? a->time_ns : so_wall_ns(so->so_stack);
    if (micro) {
        struct timeval tv = {(time_t)(ns / NS_PER_S), (suseconds_t)(ns % NS_PER_S / NS_PER_US)};
        put(w, SOL_SOCKET, SO_TIMESTAMP, &tv, sizeof tv);
    } else {
        struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
        put(w, SOL_SOCKET, SO_TIMESTAMPNS, &ts, sizeof ts);
    }
}

static void put_ip4(struct socket *so, const struct so_ancillary *a, struct writer *w)
{
    if (so_wants(so, SO_FLAG_PKTINFO)) {
        struct in_pktinfo pi = {.ipi_ifindex = (int)a->ifindex,
                                .ipi_spec_dst.s_addr = a->spec_dst,
                                .ipi_addr.s_addr = a->local.w[0]};
        put(w, IPPROTO_IP, IP_PKTINFO, &pi, sizeof pi);
    }
    if (so_wants(so, SO_FLAG_RECVTTL))
        put_int(w, IPPROTO_IP, IP_TTL, a->ttl);
    if (so_wants(so, SO_FLAG_RECVTOS))
        put(w, IPPROTO_IP, IP_TOS, &(uint8_t){(uint8_t)a->tos}, 1);
    if (so_wants(so, SO_FLAG_ORIGDSTADDR)) {
        struct sockaddr_storage ss;
        socklen_t len = ipaddr_to_sockaddr(&a->local, a->port, AF_INET, &ss);
        put(w, IPPROTO_IP, IP_ORIGDSTADDR, &ss, len);
    }
}

static void put_ip6(struct socket *so, const struct so_ancillary *a, struct writer *w)
{
    if (so_wants(so, SO_FLAG_PKTINFO6)) {
        struct sockaddr_storage ss;
        struct in6_pktinfo pi = {.ipi6_ifindex = a->ifindex};
        ipaddr_to_sockaddr(&a->local, 0, AF_INET6, &ss);
        pi.ipi6_addr = ((struct sockaddr_in6 *)&ss)->sin6_addr;
        put(w, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof pi);
    }
    if (a->local.family == AF_INET) {
        put_ip4(so, a, w);
        return;
    }
    if (so_wants(so, SO_FLAG_HOPLIMIT))
        put_int(w, IPPROTO_IPV6, IPV6_HOPLIMIT, a->ttl);
    if (so_wants(so, SO_FLAG_TCLASS))
        put_int(w, IPPROTO_IPV6, IPV6_TCLASS, a->tos);
}

void so_cmsg_put(struct socket *so, const struct so_ancillary *a, struct msghdr *msg)
{
    struct writer w = {.at = msg->msg_control, .room = msg->msg_control ? msg->msg_controllen : 0};
    size_t before = w.room;

    if (a->local.family) {
        put_time(so, a, &w);
        if (so->so_domain == AF_INET)
            put_ip4(so, a, &w);
        else
            put_ip6(so, a, &w);
    }
    msg->msg_controllen = before - w.room;
    msg->msg_flags |= w.flags;
}

/* --- sending --- */

/* The int of a message, or -1 with *error. */
static int int_of(const struct cmsghdr *h, const uint8_t *data, int *error)
{
    int v = -1;

    if (h->cmsg_len != CMSG_LEN(sizeof v))
        *error = -EINVAL;
    else
        memcpy(&v, data, sizeof v);
    return v;
}

static int take_socket(const struct cmsghdr *h, const uint8_t *data)
{
    int error = 0;

    switch (h->cmsg_type) {
    case SO_MARK:
    case SO_PRIORITY: /* kept nowhere: no link has use for them */
        int_of(h, data, &error);
        return error;
    case SCM_RIGHTS:
    case SCM_CREDENTIALS: /* Unix sockets' own: not looked at by others */
        return 0;
    default:
        return -EINVAL;
    }
}

static int take_ip4(const struct cmsghdr *h, const uint8_t *data, struct so_ancillary *a)
{
    struct in_pktinfo pi;
    int v, error = 0;

    switch (h->cmsg_type) {
    case IP_PKTINFO:
        if (h->cmsg_len != CMSG_LEN(sizeof pi))
            return -EINVAL;
        memcpy(&pi, data, sizeof pi);
        a->ifindex = pi.ipi_ifindex ? (uint32_t)pi.ipi_ifindex : a->ifindex;
        a->local = (struct ipaddr){.family = AF_INET, .w = {pi.ipi_spec_dst.s_addr}};
        return 0;
    case IP_TTL:
        v = int_of(h, data, &error);
        if (error || v < 1 || v > 255)
            return -EINVAL;
        a->ttl = (int16_t)v;
        return 0;
    case IP_TOS:
        v = h->cmsg_len == CMSG_LEN(1) ? *data : int_of(h, data, &error);
        if (error || v < 0 || v > 255)
            return -EINVAL;
        a->tos = (int16_t)v;
        return 0;
    default:
        return -EINVAL;
    }
}

/* IPV6_PKTINFO; v4: the datagram goes to an IPv4 address. */
static int take_pktinfo6(const struct cmsghdr *h, const uint8_t *data, bool v4,
                         struct so_ancillary *a)
{
    struct in6_pktinfo pi;
    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6};
    uint16_t port;
    bool mapped = false;

    if (h->cmsg_len < CMSG_LEN(sizeof pi))
        return -EINVAL;
    memcpy(&pi, data, sizeof pi);
    a->ifindex = pi.ipi6_ifindex ? pi.ipi6_ifindex : a->ifindex;
    sin6.sin6_addr = pi.ipi6_addr;
    sin6.sin6_scope_id = a->ifindex;
    int error =
        sockaddr_to_ipaddr((struct sockaddr *)&sin6, sizeof sin6, &a->local, &port, &mapped);
    if (error || mapped != v4)
        return -EINVAL;
    return !v4 && ipaddr_is_linklocal(&a->local) && !a->ifindex ? -EINVAL : 0;
}

static int take_ip6(const struct cmsghdr *h, const uint8_t *data, struct so_ancillary *a)
{
    int error = 0, v;

    if (h->cmsg_type == IPV6_PKTINFO)
        return take_pktinfo6(h, data, false, a);
    v = int_of(h, data, &error);
    if (error || v < -1 || v > 255)
        return -EINVAL;
    switch (h->cmsg_type) {
    case IPV6_HOPLIMIT:
        a->ttl = (int16_t)v;
        return 0;
    case IPV6_TCLASS:
        a->tos = (int16_t)v;
        return 0;
    case IPV6_DONTFRAG:
        return v == 0 || v == 1 ? 0 : -EINVAL;
    default:
        return -EINVAL;
    }
}

static int take(const struct socket *so, bool v4, const struct cmsghdr *h, const uint8_t *data,
                struct so_ancillary *a)
{
    if (h->cmsg_level == SOL_SOCKET)
        return take_socket(h, data);
    if (so->so_type == SOCK_STREAM)
        return 0;
    if (h->cmsg_level == IPPROTO_UDP)
        return -EINVAL;
    if (!v4)
        return h->cmsg_level == IPPROTO_IPV6 ? take_ip6(h, data, a) : 0;
    if (h->cmsg_level == IPPROTO_IPV6 && so->so_domain == AF_INET6 && h->cmsg_type == IPV6_PKTINFO)
        return take_pktinfo6(h, data, true, a);
    return h->cmsg_level == IPPROTO_IP ? take_ip4(h, data, a) : 0;
}

int so_cmsg_take(const struct socket *so, const struct msghdr *msg, bool v4, struct so_ancillary *a)
{
    const uint8_t *p = msg->msg_control;
    size_t left = p ? msg->msg_controllen : 0;
    struct cmsghdr h;

    *a = (struct so_ancillary){.ttl = -1, .tos = -1};
    if (left > CONTROL_MAX)
        return -ENOBUFS;
    while (left >= sizeof h) {
        memcpy(&h, p, sizeof h);
        if (h.cmsg_len < sizeof h || h.cmsg_len > left)
            return -EINVAL;
        int error = take(so, v4, &h, p + sizeof h, a);
        if (error)
            return error;
        size_t whole = MIN(CMSG_ALIGN(h.cmsg_len), left);
        p += whole;
        left -= whole;
    }
    return 0;
}
