/* SPDX-License-Identifier: BSD-2-Clause
 * Options of SOL_SOCKET, IPPROTO_IP and IPPROTO_IPV6, with Linux's errors and lengths; the rest is
 * the protocol's. */
#include "so_private.h"
#include <sys/time.h>

/* linux/in.h and linux/in6.h clash with the libc's headers. */
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#ifndef IPV6_AUTOFLOWLABEL
#define IPV6_AUTOFLOWLABEL 70
#endif

#define SNDBUF_MIN                                                                                 \
    2048 /* one cluster: below it a buffer's memory budget would never let a byte in */
#define BOOLEANS                                                                                   \
    (1u << SO_DEBUG | 1u << SO_REUSEADDR | 1u << SO_DONTROUTE | 1u << SO_BROADCAST |               \
     1u << SO_KEEPALIVE | 1u << SO_OOBINLINE | 1u << SO_NO_CHECK | 1u << SO_REUSEPORT |            \
     1u << SO_TIMESTAMP)

/* Booleans of IP that are kept: a bit each in so_ipflags. */
static const struct {
    int level, name;
} ip_booleans[] = {
    [SO_FLAG_RECVOPTS] = {IPPROTO_IP, IP_RECVOPTS},
    [SO_FLAG_PKTINFO] = {IPPROTO_IP, IP_PKTINFO},
    [SO_FLAG_RECVERR] = {IPPROTO_IP, IP_RECVERR},
    [SO_FLAG_RECVTTL] = {IPPROTO_IP, IP_RECVTTL},
    [SO_FLAG_RECVTOS] = {IPPROTO_IP, IP_RECVTOS},
    [SO_FLAG_BIND_NO_PORT] = {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT},
    [SO_FLAG_MCAST_LOOP] = {IPPROTO_IP, IP_MULTICAST_LOOP},
    [SO_FLAG_ORIGDSTADDR] = {IPPROTO_IP, IP_RECVORIGDSTADDR},
    [SO_FLAG_PKTINFO6] = {IPPROTO_IPV6, IPV6_RECVPKTINFO},
    [SO_FLAG_HOPLIMIT] = {IPPROTO_IPV6, IPV6_RECVHOPLIMIT},
    [SO_FLAG_TCLASS] = {IPPROTO_IPV6, IPV6_RECVTCLASS},
    [SO_FLAG_RECVERR6] = {IPPROTO_IPV6, IPV6_RECVERR},
    [SO_FLAG_DONTFRAG6] = {IPPROTO_IPV6, IPV6_DONTFRAG},
    [SO_FLAG_AUTOFLOWLABEL6] = {IPPROTO_IPV6, IPV6_AUTOFLOWLABEL},
    [SO_FLAG_MCAST_LOOP6] = {IPPROTO_IPV6, IPV6_MULTICAST_LOOP},
};

static uint32_t ip_boolean_bit(int level, int name)
{
    for (size_t i = 0; i < NELEM(ip_booleans); i++)
        if (ip_booleans[i].level == level && ip_booleans[i].name == name)
            return 1u << i;
    return 0;
}

void so_option_init(struct socket *so)
{
    struct weir_stack *s = so->so_stack;

    so->so_linger_s = -1;
    so->so_rcv_notice = so->so_type == SOCK_STREAM ? 2 * 1460 : 0;
    so->so_ttl = so->so_hoplimit = so->so_mcast_ttl = -1;
    so->so_pmtudisc = IP_PMTUDISC_WANT;
    so->so_v6only = so->so_domain == AF_INET6 && KNOB(s, ip6_v6only);
    so->so_ipflags =
        1u << SO_FLAG_MCAST_LOOP | 1u << SO_FLAG_MCAST_LOOP6 | 1u << SO_FLAG_AUTOFLOWLABEL6;
}

void so_option_inherit(const struct socket *from, struct socket *to)
{
    to->so_options = LOAD_RELAXED(&from->so_options);
    to->so_linger_s = LOAD_RELAXED(&from->so_linger_s);
    to->so_rcvtimeo_ns = LOAD_RELAXED(&from->so_rcvtimeo_ns);
    to->so_sndtimeo_ns = LOAD_RELAXED(&from->so_sndtimeo_ns);
    to->so_ttl = LOAD_RELAXED(&from->so_ttl);
    to->so_hoplimit = LOAD_RELAXED(&from->so_hoplimit);
    to->so_mcast_ttl = LOAD_RELAXED(&from->so_mcast_ttl);
    to->so_tos = LOAD_RELAXED(&from->so_tos);
    to->so_tclass = LOAD_RELAXED(&from->so_tclass);
    to->so_pmtudisc = LOAD_RELAXED(&from->so_pmtudisc);
    to->so_v6only = LOAD_RELAXED(&from->so_v6only);
    to->so_ipflags = LOAD_RELAXED(&from->so_ipflags);
    to->so_priority = LOAD_RELAXED(&from->so_priority);
    to->so_mark = LOAD_RELAXED(&from->so_mark);
    sockbuf_reserve(&to->so_rcv, LOAD_RELAXED(&from->so_rcv.sb_hiwat));
    sockbuf_reserve(&to->so_snd, LOAD_RELAXED(&from->so_snd.sb_hiwat));
    STORE_RELAXED(&to->so_rcv.sb_lowat, LOAD_RELAXED(&from->so_rcv.sb_lowat));
}

/* --- reading --- */

/* As much as there is room for; *len becomes what was copied. */
static int give(void *val, socklen_t *len, const void *from, socklen_t size)
{
    *len = MIN(*len, size);
    if (*len)
        memcpy(val, from, *len);
    return 0;
}

static int give_int(void *val, socklen_t *len, int v)
{
    return give(val, len, &v, sizeof v);
}

static int give_timeo(void *val, socklen_t *len, uint64_t ns)
{
    struct timeval tv = {(time_t)(ns / NS_PER_S), (suseconds_t)(ns % NS_PER_S / NS_PER_US)};

    return give(val, len, &tv, sizeof tv);
}

static int get_linger(struct socket *so, void *val, socklen_t *len)
{
    int32_t l = LOAD_RELAXED(&so->so_linger_s);
    struct linger lg = {l >= 0, l >= 0 ? l : 0};

    return give(val, len, &lg, sizeof lg);
}

static int get_socket_option(struct socket *so, int name, void *val, socklen_t *len)
{
    uint64_t all = UINT64_MAX;

    if (name > 0 && name < 32 && (BOOLEANS & 1u << name))
        return give_int(val, len, so_has_option(so, name) != 0);
    switch (name) {
    case SO_TYPE:
        return give_int(val, len, so->so_type);
    case SO_DOMAIN:
        return give_int(val, len, so->so_domain);
    case SO_PROTOCOL:
        return give_int(val, len, so->so_protocol);
    case SO_ERROR:
        return give_int(val, len, so_take_error(so));
    case SO_ACCEPTCONN:
        return give_int(val, len, (so_state(so) & SS_LISTENING) != 0);
    case SO_SNDBUF:
        return give_int(val, len, (int)LOAD_RELAXED(&so->so_snd.sb_hiwat));
    case SO_RCVBUF:
        return give_int(val, len, (int)LOAD_RELAXED(&so->so_rcv.sb_hiwat));
    case SO_RCVLOWAT:
        return give_int(val, len, (int)LOAD_RELAXED(&so->so_rcv.sb_lowat));
    case SO_SNDLOWAT:
        return give_int(val, len, 1);
    case SO_RCVTIMEO:
        return give_timeo(val, len, so->so_rcvtimeo_ns);
    case SO_SNDTIMEO:
        return give_timeo(val, len, so->so_sndtimeo_ns);
    case SO_LINGER:
        return get_linger(so, val, len);
    case SO_PRIORITY:
        return give_int(val, len, so->so_priority);
    case SO_MARK:
        return give_int(val, len, so->so_mark);
    case SO_INCOMING_CPU:
        return give_int(val, len, -1);
    case SO_BUSY_POLL:
    case SO_ZEROCOPY:
    case SO_TIMESTAMPING:
    case SO_RXQ_OVFL:
        return give_int(val, len, 0);
    case SO_TIMESTAMPNS:
        return give_int(val, len, so_wants(so, SO_FLAG_TIMESTAMPNS));
    case SO_MAX_PACING_RATE:
        return give(val, len, &all, *len < sizeof all ? sizeof(uint32_t) : sizeof all);
    case SO_BINDTODEVICE:
        *len = 0;
        return 0;
    case SO_PASSCRED:
    case SO_PASSSEC:
        return -EOPNOTSUPP;
    default:
        return -ENOPROTOOPT;
    }
}

/* IPPROTO_IP takes and gives single bytes where they suffice. */
static int give_ip(void *val, socklen_t *len, int v)
{
    if (*len > 0 && *len < sizeof v && v >= 0 && v <= 255) {
        *(uint8_t *)val = (uint8_t)v;
        *len = 1;
        return 0;
    }
    return give_int(val, len, v);
}

static int get_ip_option(struct socket *so, int name, void *val, socklen_t *len)
{
    uint32_t bit = ip_boolean_bit(IPPROTO_IP, name);

    if (bit)
        return give_ip(val, len, (LOAD_RELAXED(&so->so_ipflags) & bit) != 0);
    switch (name) {
    case IP_TTL:
        return give_ip(val, len, so->so_ttl >= 0 ? so->so_ttl : (int)KNOB(so->so_stack, ip_ttl));
    case IP_TOS:
        return give_ip(val, len, so->so_tos);
    case IP_MTU_DISCOVER:
        return give_ip(val, len, so->so_pmtudisc);
    case IP_MULTICAST_TTL:
        return give_ip(val, len, so->so_mcast_ttl >= 0 ? so->so_mcast_ttl : 1);
    case IP_OPTIONS:
        *len = 0;
        return 0;
    case IP_FREEBIND:
    case IP_TRANSPARENT:
        return give_ip(val, len, 0);
    case IP_MTU:
        return -ENOTCONN;
    default:
        return -ENOPROTOOPT;
    }
}

static int get_ip6_option(struct socket *so, int name, void *val, socklen_t *len)
{
    uint32_t bit = ip_boolean_bit(IPPROTO_IPV6, name);

    if (so->so_domain != AF_INET6)
        return -EOPNOTSUPP;
    if (bit)
        return give_int(val, len, (LOAD_RELAXED(&so->so_ipflags) & bit) != 0);
    switch (name) {
    case IPV6_V6ONLY:
        return give_int(val, len, so->so_v6only);
    case IPV6_UNICAST_HOPS:
        return give_int(val, len,
                        so->so_hoplimit >= 0 ? so->so_hoplimit : (int)KNOB(so->so_stack, ip6_hlim));
    case IPV6_MULTICAST_HOPS:
        return give_int(val, len, so->so_mcast_ttl >= 0 ? so->so_mcast_ttl : 1);
    case IPV6_TCLASS:
        return give_int(val, len, so->so_tclass);
    case IPV6_MTU_DISCOVER:
        return give_int(val, len, so->so_pmtudisc);
    case IPV6_MTU:
        return -ENOTCONN;
    default:
        return -ENOPROTOOPT;
    }
}

int so_getopt(struct socket *so, int level, int name, void *val, socklen_t *len)
{
    int error = -ENOPROTOOPT;

    if ((int)*len < 0)
        return -EINVAL;
    if (level == SOL_SOCKET)
        return get_socket_option(so, name, val, len);
    if (level == IPPROTO_IP)
        error = get_ip_option(so, name, val, len);
    else if (level == IPPROTO_IPV6)
        error = get_ip6_option(so, name, val, len);
    else if (level != so->so_protocol)
        return so->so_domain == AF_INET ? -EOPNOTSUPP : -ENOPROTOOPT;
    if (error != -ENOPROTOOPT && error != -ENOTCONN)
        return error;
    /* IP_MTU and what IP does not know may be the protocol's. */
    int own = so->so_pcb && so->so_proto->getopt ? so->so_proto->getopt(so, level, name, val, len)
                                                 : -ENOPROTOOPT;
    return own != -ENOPROTOOPT ? own : error;
}

/* --- setting --- */

static int set_boolean(struct socket *so, int name, bool on)
{
    if (on)
        atomic_fetch_or_explicit(&so->so_options, 1u << name, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&so->so_options, ~(1u << name), memory_order_relaxed);
    return 0;
}

static void set_ip_boolean(struct socket *so, uint32_t bit, bool on)
{
    if (on)
        atomic_fetch_or_explicit(&so->so_ipflags, bit, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&so->so_ipflags, ~bit, memory_order_relaxed);
}

static int set_buffer(struct socket *so, struct sockbuf *sb, int v)
{
    int64_t max = KNOB(so->so_stack, kern_maxsockbuf);
    int64_t size = v < 0 ? max : MAX(MIN(v, max), SNDBUF_MIN);

    sockbuf_reserve(sb, (uint32_t)size);
    return 0;
}

static int set_timeo(_Atomic uint64_t *timeo_ns, const void *val, socklen_t len)
{
    struct timeval tv;

    if (len < sizeof tv)
        return -EINVAL;
    memcpy(&tv, val, sizeof tv);
    if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
        return -EDOM;
    uint64_t ns = 0;
    if (tv.tv_sec < 0)
        ns = 1; /* negative: do not wait */
    else if ((uint64_t)tv.tv_sec < TIME_NEVER / NS_PER_S - 1)
        ns = (uint64_t)tv.tv_sec * NS_PER_S + (uint64_t)tv.tv_usec * NS_PER_US;
    STORE_RELAXED(timeo_ns, ns);
    return 0;
}

static int set_linger(struct socket *so, const void *val, socklen_t len)
{
    struct linger lg;

    if (len < sizeof lg)
        return -EINVAL;
    memcpy(&lg, val, sizeof lg);
    STORE_RELAXED(&so->so_linger_s, lg.l_onoff ? MAX(lg.l_linger, 0) : -1);
    return 0;
}

static int set_lowat(struct socket *so, int v)
{
    int64_t max = KNOB(so->so_stack, kern_maxsockbuf);

    STORE_RELAXED(&so->so_rcv.sb_lowat, (uint32_t)(v < 0 ? max : v == 0 ? 1 : MIN(v, max)));
    so_wakeup(so); /* the mark may be reached now */
    return 0;
}

/* One clears the other, and either is cleared by both. */
static int set_timestamp(struct socket *so, int name, bool on)
{
    set_boolean(so, SO_TIMESTAMP, on && name == SO_TIMESTAMP);
    set_ip_boolean(so, 1u << SO_FLAG_TIMESTAMPNS, on && name == SO_TIMESTAMPNS);
    return 0;
}

static int set_socket_option(struct socket *so, int name, const void *val, socklen_t len)
{
    int v;

    if (name == SO_BINDTODEVICE)
        return len == 0 || *(const char *)val == '\0' ? 0 : -ENODEV;
    if (len < sizeof v)
        return -EINVAL;
    memcpy(&v, val, sizeof v);
    if (name == SO_TIMESTAMP || name == SO_TIMESTAMPNS)
        return set_timestamp(so, name, v != 0);
    if (name > 0 && name < 32 && (BOOLEANS & 1u << name))
        return set_boolean(so, name, v != 0);
    switch (name) {
    case SO_SNDBUF:
    case SO_SNDBUFFORCE:
        return set_buffer(so, &so->so_snd, v);
    case SO_RCVBUF:
    case SO_RCVBUFFORCE:
        return set_buffer(so, &so->so_rcv, v);
    case SO_RCVLOWAT:
        return set_lowat(so, v);
    case SO_RCVTIMEO:
        return set_timeo(&so->so_rcvtimeo_ns, val, len);
    case SO_SNDTIMEO:
        return set_timeo(&so->so_sndtimeo_ns, val, len);
    case SO_LINGER:
        return set_linger(so, val, len);
    case SO_PRIORITY:
        so->so_priority = v;
        return 0;
    case SO_MARK:
        so->so_mark = v;
        return 0;
    case SO_BUSY_POLL: /* a waiting thread polls anyway: kern.idle_spin_us */
        return v < 0 ? -EINVAL : 0;
    case SO_INCOMING_CPU:
        return 0;
    case SO_ZEROCOPY:
        return v == 0 ? 0 : v == 1 ? -EOPNOTSUPP : -EINVAL;
    case SO_TIMESTAMPING:
    case SO_RXQ_OVFL:
        return v == 0 ? 0 : -ENOPROTOOPT;
    case SO_PASSCRED:
    case SO_PASSSEC:
        return -EOPNOTSUPP;
    case SO_DETACH_FILTER:
        return -ENOENT;
    default:
        return -ENOPROTOOPT;
    }
}

static uint8_t tos_of(const struct socket *so, int v)
{
    return (uint8_t)(so->so_type == SOCK_STREAM ? v & ~3 : v); /* ECN bits are TCP's own */
}

static int set_ip_option(struct socket *so, int name, const void *val, socklen_t len)
{
    uint32_t bit = ip_boolean_bit(IPPROTO_IP, name);
    int v = 0;

    if (len >= sizeof v)
        memcpy(&v, val, sizeof v);
    else if (len)
        v = *(const uint8_t *)val;
    if (bit) {
        if (len == 0 && name == IP_MULTICAST_LOOP)
            return -EINVAL;
        set_ip_boolean(so, bit, v != 0);
        return 0;
    }
    switch (name) {
    case IP_TTL:
        if (len == 0 || (v != -1 && (v < 1 || v > 255)))
            return -EINVAL;
        so->so_ttl = (int16_t)v;
        return 0;
    case IP_TOS:
        so->so_tos = tos_of(so, v);
        return 0;
    case IP_MTU_DISCOVER:
        if (v < IP_PMTUDISC_DONT || v > IP_PMTUDISC_OMIT)
            return -EINVAL;
        so->so_pmtudisc = (int8_t)v;
        return 0;
    case IP_MULTICAST_TTL:
        if (so->so_type == SOCK_STREAM || len == 0 || v < -1 || v > 255)
            return -EINVAL;
        so->so_mcast_ttl = (int16_t)v;
        return 0;
    case IP_OPTIONS:
        return len == 0 ? 0 : -EINVAL;
    default:
        return -ENOPROTOOPT;
    }
}

static int set_v6only(struct socket *so, int v)
{
    if (so_has_port(so))
        return -EINVAL;
    so->so_v6only = v != 0;
    return 0;
}

static int set_ip6_option(struct socket *so, int name, const void *val, socklen_t len)
{
    uint32_t bit = ip_boolean_bit(IPPROTO_IPV6, name);
    int v;

    if (so->so_domain != AF_INET6)
        return -ENOPROTOOPT;
    if (len < sizeof v)
        return -EINVAL;
    memcpy(&v, val, sizeof v);
    if (bit) {
        if (name == IPV6_MULTICAST_LOOP && (v < 0 || v > 1))
            return -EINVAL;
        set_ip_boolean(so, bit, v != 0);
        return 0;
    }
    switch (name) {
    case IPV6_V6ONLY:
        return set_v6only(so, v);
    case IPV6_UNICAST_HOPS:
        if (v < -1 || v > 255)
            return -EINVAL;
        so->so_hoplimit = (int16_t)v;
        return 0;
    case IPV6_MULTICAST_HOPS:
        if (so->so_type == SOCK_STREAM)
            return -ENOPROTOOPT;
        if (v < -1 || v > 255)
            return -EINVAL;
        so->so_mcast_ttl = (int16_t)v;
        return 0;
    case IPV6_TCLASS:
        if (v < -1 || v > 255)
            return -EINVAL;
        so->so_tclass = v == -1 ? 0 : tos_of(so, v);
        return 0;
    case IPV6_MTU_DISCOVER:
        if (v < IPV6_PMTUDISC_DONT || v > IPV6_PMTUDISC_OMIT)
            return -EINVAL;
        so->so_pmtudisc = (int8_t)v;
        return 0;
    default:
        return -ENOPROTOOPT;
    }
}

int so_setopt(struct socket *so, int level, int name, const void *val, socklen_t len)
{
    int error = -ENOPROTOOPT;

    if ((int)len < 0)
        return -EINVAL;
    if (level == SOL_SOCKET)
        error = set_socket_option(so, name, val, len);
    else if (level == IPPROTO_IP)
        error = set_ip_option(so, name, val, len);
    else if (level == IPPROTO_IPV6)
        error = set_ip6_option(so, name, val, len);
    if (error && error != -ENOPROTOOPT)
        return error;
    /* The protocol reacts to what was stored (keepalive, buffer sizes), and may know what we do
     * not. */
    int own = so->so_pcb && so->so_proto->setopt ? so->so_proto->setopt(so, level, name, val, len)
                                                 : -ENOPROTOOPT;
    return own == -ENOPROTOOPT ? error : own;
}
