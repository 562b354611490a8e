/* SPDX-License-Identifier: BSD-2-Clause
 * UDP (RFC 768): datagrams in and out, errors, and the calls of the socket layer.
 *
 * How it works. The application's side appends a record to so_snd, with a front mbuf that holds the
 * destination unless the socket is connected; the owner takes records here, puts a header in front
 * and gives them to ip_output without a copy. Received datagrams go to so_rcv as records behind the
 * sender's address. */
#include "udp_var.h"
#include "wire/checksum.h"
#include "wire/udp.h"

#define CHECKSUM_OFFSET 6 /* in the header */

/* ---- input ---- */

/* As on Linux what takes work is told only if it was asked for before the datagram came. */
static void describe(const struct socket *so, const struct flow *f, const struct ip_info *info,
                     struct so_ancillary *a)
{
    struct weir_stack *s = so->so_stack;
    bool v4 = f->laddr.family == AF_INET;
    struct route r;

    *a = (struct so_ancillary){
        .local = f->laddr, .port = f->lport, .ttl = info->ttl, .tos = info->tos};
    if (!v4 || so_wants(so, SO_FLAG_PKTINFO) || so_wants(so, SO_FLAG_PKTINFO6)) {
        a->ifindex = info->netif->index;
        if (v4 && !info->multicast)
            a->spec_dst = f->laddr.w[0];
        else if (v4 && ip_route(s, &f->faddr, NULL, &r) == 0)
            a->spec_dst = r.src.w[0];
    }
    if (so_has_option(so, SO_TIMESTAMP) || so_wants(so, SO_FLAG_TIMESTAMPNS))
        a->time_ns = s->port->wall_ns ? s->port->wall_ns(s->port->ctx) : s->now;
}

/* Append one datagram (m_data at its payload) to a socket. Consumes *m. */
static void deliver(struct udpcb *p, struct mbuf **m, const struct flow *f,
                    const struct ip_info *info)
{
    struct weir_stack *s = p->so->so_stack;
    struct sockaddr_storage from;
    socklen_t len = ipaddr_to_sockaddr(&f->faddr, f->fport, p->so->so_domain, &from);
    struct so_ancillary a;

    describe(p->so, f, info, &a);
    memcpy((uint8_t *)&from + len, &a, sizeof a);
    len += (socklen_t)sizeof a;
    _Static_assert(sizeof(struct sockaddr_in6) + sizeof a <= sizeof from &&
                       sizeof from <= MBUF_INLINE,
                   "both fit in front of a record");
    if (!sockbuf_append_record(&p->so->so_rcv, s->account, &from, len, m)) {
        COUNT(s, udp_rx_full);
        return;
    }
    so_readable(p->so);
}

/* Every socket that fits gets its own reference. Consumes *m. */
static void deliver_group(struct weir_stack *s, struct mbuf **m, const struct flow *f,
                          const struct ip_info *info)
{
    struct udpcb *p, *next;
    bool found = false;

    LIST_FOREACH_SAFE (p, udp_bucket(s, f->lport), hash, next) {
        struct mbuf *copy;

        if (udp_pcb_score(p, f) == 0)
            continue;
        found = true;
        copy = mbuf_ref(s->account, *m, 0, (*m)->m_pkt.len);
        if (copy == NULL) {
            COUNT(s, udp_rx_full);
            continue;
        }
        deliver(p, &copy, f, info);
    }
    if (!found)
        COUNT(s, udp_rx_noport);
    mbuf_free_chain(m);
}

/* The checksum is of pseudo header, header and data; 0 means none, which IPv6 does not allow (RFC
 * 8200 8.1). */
static bool checksum_is_ok(const struct mbuf *m, const struct ip_info *info,
                           const struct udp_header *h)
{
    uint64_t sum;

    if (m->m_pkt.csum_flags & CSUM_L4_VALID)
        return true;
    if (h->sum == 0)
        return info->src.family == AF_INET;
    sum = checksum_pseudo(&info->src, &info->dst, IPPROTO_UDP, m->m_pkt.len);
    return checksum_fold(checksum_mbuf(m, 0, m->m_pkt.len, sum)) == 0xffff;
}

/* False: m is to be dropped (counted). m cut to the length that the header says. */
static bool header_check(struct weir_stack *s, struct mbuf *m, const struct ip_info *info,
                         struct udp_header *h)
{
    uint8_t raw[UDP_HEADER_LEN];
    uint32_t len = m->m_pkt.len;

    mbuf_copy_out(m, 0, MIN(len, (uint32_t)sizeof(raw)), raw);
    if (udp_header_parse(raw, len, h) != 0) {
        COUNT(s, udp_rx_short);
        return false;
    }
    if (len > h->len)
        mbuf_trim_tail(m, len - h->len);
    if (!checksum_is_ok(m, info, h)) {
        COUNT(s, udp_rx_badsum);
        return false;
    }
    return true;
}

static void udp_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    struct flow f = {.laddr = info->dst, .faddr = info->src};
    struct udp_header h;
    struct udpcb *p;

    COUNT(s, udp_rx);
    if (!header_check(s, *m, info, &h))
        goto drop;
    f.lport = h.dport;
    f.fport = h.sport;
    if (info->multicast) {
        mbuf_trim_head(m, UDP_HEADER_LEN);
        deliver_group(s, m, &f, info);
        return;
    }
    p = h.dport != 0 ? udp_pcb_lookup(s, &f) : NULL;
    if (p == NULL) {
        COUNT(s, udp_rx_noport);
        if (!KNOB(s, udp_blackhole))
            icmp_send_error(s, *m, info, ICMP_KIND_UNREACH_PORT);
        goto drop;
    }
    mbuf_trim_head(m, UDP_HEADER_LEN);
    deliver(p, m, &f, info);
    return;
drop:
    mbuf_free_chain(m);
}

/* IP_PMTUDISC_WANT, the default, lets routers fragment: UDP cannot check the path MTUs that it
 * would be told. */
static bool sets_df(const struct udpcb *p)
{
    int8_t how = LOAD_RELAXED(&p->so->so_pmtudisc);

    return how == IP_PMTUDISC_DO || how == IP_PMTUDISC_PROBE;
}

/* Only what Linux passes on without IP_RECVERR: hard errors of connected sockets. The quoted
 * addresses and ports are all that UDP can check; so an IPv4 path MTU counts only for sockets that
 * asked for discovery. */
static void udp_error(struct weir_stack *s, const struct icmp_error *e)
{
    struct udpcb *p = udp_pcb_lookup(s, &e->flow);

    if (p == NULL)
        return;
    if (e->kind == ICMP_KIND_TOOBIG) {
        if (e->flow.faddr.family == AF_INET6 || sets_df(p))
            ip_pmtu_update(s, &e->flow.faddr, e->mtu);
        if (p->faddr.family != 0 && sets_df(p))
            so_error_set(p->so, EMSGSIZE);
        return;
    }
    if (p->faddr.family != 0 && e->hard)
        so_error_set(p->so, e->error);
}

static const struct ip_proto udp_ip_proto = {.input = udp_input, .error = udp_error};

/* ---- output ---- */

/* Put the header in front of data (consumed, may be NULL: an empty datagram). NULL: no memory. */
static struct mbuf *prepend_header(struct weir_stack *s, struct mbuf *data, const struct flow *f)
{
    struct mbuf *m = mbuf_get_packet(s->account);
    struct udp_header h = {.sport = f->lport, .dport = f->fport};

    if (m == NULL) {
        COUNT(s, udp_tx_nobufs);
        mbuf_free_chain(&data);
        return NULL;
    }
    if (data != NULL)
        data->m_flags &= (uint16_t)~M_PKTHDR;
    m->m_next = data;
    m->m_len = UDP_HEADER_LEN;
    m->m_pkt.len = UDP_HEADER_LEN + mbuf_chain_len(data);
    h.len = (uint16_t)m->m_pkt.len;
    h.sum = checksum_fold(checksum_pseudo(&f->laddr, &f->faddr, IPPROTO_UDP, m->m_pkt.len));
    udp_header_build(m->m_data, &h);
    m->m_pkt.csum_flags = CSUM_L4_PARTIAL;
    m->m_pkt.csum_start = 0;
    m->m_pkt.csum_offset = CHECKSUM_OFFSET;
    return m;
}

static void fill_args(const struct udpcb *p, const struct flow *f, struct ip_output_args *a)
{
    const struct socket *so = p->so;
    bool v4 = f->faddr.family == AF_INET;
    int16_t ttl = v4 ? LOAD_RELAXED(&so->so_ttl) : LOAD_RELAXED(&so->so_hoplimit);

    if (ipaddr_is_multicast(&f->faddr)) {
        ttl = LOAD_RELAXED(&so->so_mcast_ttl);
        ttl = ttl < 0 ? 1 : ttl;
    }
    *a = (struct ip_output_args){.src = f->laddr,
                                 .dst = f->faddr,
                                 .proto = IPPROTO_UDP,
                                 .ttl = ttl > 0 ? (uint8_t)ttl : 0,
                                 .tos =
                                     v4 ? LOAD_RELAXED(&so->so_tos) : LOAD_RELAXED(&so->so_tclass),
                                 .df = sets_df(p)};
}

/* The route that sendmsg's control messages leave. 0; -ENODEV, -EINVAL, -ENETUNREACH, ... */
static int choose_route(const struct udpcb *p, const struct so_ancillary *a, struct ipaddr *dst,
                        struct route *r)
{
    struct weir_stack *s = p->so->so_stack;
    const struct ipaddr *wish = ipaddr_is_multicast(&p->laddr) ? NULL : &p->laddr;
    int error;

    if (a->ifindex != 0 && netif_find(s, a->ifindex) == NULL)
        return -ENODEV;
    if (a->ifindex != 0 && ipaddr_is_linklocal(dst) && dst->scope == 0)
        dst->scope = a->ifindex;
    if (!ipaddr_is_any(&a->local)) {
        if (!ip_is_local(s, &a->local))
            return dst->family == AF_INET ? -ENETUNREACH : -EINVAL;
        wish = &a->local;
    }
    error = ip_route(s, dst, wish, r);
    return error == 0 && a->ifindex != 0 && r->netif->index != a->ifindex ? -ENETUNREACH : error;
}

/* Send one datagram to f->faddr and f->fport. Consumes data. 0 or a negative error for the
 * application. */
static int datagram_output(struct udpcb *p, struct mbuf *data, struct flow *f,
                           const struct so_ancillary *chosen)
{
    struct weir_stack *s = p->so->so_stack;
    uint32_t len = mbuf_chain_len(data);
    struct ip_output_args a;
    struct route r;
    struct mbuf *m;
    int error;

    error = udp_pcb_destination(p, &f->faddr, &f->faddr);
    if (error == 0 && len > (f->faddr.family == AF_INET ? UDP_MAX_DATA4 : UDP_MAX_DATA6))
        error = -EMSGSIZE;
    if (error == 0)
        error = choose_route(p, chosen, &f->faddr, &r);
    if (error == 0)
        error = -chosen->refuse;
    if (error == 0)
        error = udp_pcb_bind_any(p);
    if (error != 0) {
        mbuf_free_chain(&data);
        return error;
    }
    f->laddr = r.src;
    f->lport = p->lport;
    m = prepend_header(s, data, f);
    if (m == NULL)
        return 0;
    fill_args(p, f, &a);
    a.route = &r;
    if (chosen->ttl >= 0)
        a.ttl = (uint8_t)chosen->ttl;
    if (chosen->tos >= 0)
        a.tos = (uint8_t)chosen->tos;
    COUNT(s, udp_tx);
    error = ip_output(s, &m, &a);
    return error == -ENOBUFS ? 0
                             : error; /* a datagram lost in a full queue is no error, as on Linux */
}

/* The destination in front of a record, and what else was chosen. *rec loses its front mbuf. 0 or a
 * negative error. */
static int take_destination(struct mbuf **rec, struct flow *f, struct so_ancillary *a)
{
    struct mbuf *front = *rec;
    struct sockaddr_storage to;
    uint32_t len = MIN(front->m_len, (uint32_t)sizeof(to)), own = sizeof(struct sockaddr_in);

    memcpy(&to, front->m_data, len);
    if (to.ss_family == AF_INET6)
        own = sizeof(struct sockaddr_in6);
    if (len >= own + sizeof *a)
        memcpy(a, front->m_data + own, sizeof *a);
    *rec = mbuf_free(front);
    if (to.ss_family == AF_UNSPEC)
        return f->faddr.family != 0 ? 0 : -EDESTADDRREQ;
    return sockaddr_to_ipaddr((const struct sockaddr *)&to, MIN(len, own), &f->faddr, &f->fport,
                              NULL);
}

static void udp_send(struct socket *so)
{
    struct udpcb *p = so_udpcb(so);
    struct mbuf *rec;

    while ((rec = sockbuf_take_record(&so->so_snd)) != NULL) {
        struct flow f = {.faddr = p->faddr, .fport = p->fport};
        struct so_ancillary a = {.ttl = -1, .tos = -1};
        int error = p->faddr.family != 0 ? 0 : -EDESTADDRREQ;

        rec->m_nextpkt = NULL;
        if (rec->m_flags & M_ADDR)
            error = take_destination(&rec, &f, &a);
        if (error == 0)
            error = datagram_output(p, rec, &f, &a);
        else
            mbuf_free_chain(&rec);
        if (error != 0)
            so_send_failed(so, -error);
    }
    so_writable(so);
}

/* ---- the socket layer's calls ---- */

static void udp_detach(struct socket *so)
{
    udp_pcb_free(so_udpcb(so));
    so_protocol_done(so);
}

static int udp_bind(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    return udp_pcb_bind(so_udpcb(so), a, port);
}

static int udp_listen(struct socket *so, int backlog)
{
    return -EOPNOTSUPP;
}

static int udp_connect(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    return udp_pcb_connect(so_udpcb(so), a, port);
}

static int udp_disconnect(struct socket *so)
{
    udp_pcb_disconnect(so_udpcb(so));
    return 0;
}

static int udp_sockname(struct socket *so, struct ipaddr *a, uint16_t *port)
{
    *a = so_udpcb(so)->laddr;
    *port = so_udpcb(so)->lport;
    return 0;
}

static int udp_peername(struct socket *so, struct ipaddr *a, uint16_t *port)
{
    const struct udpcb *p = so_udpcb(so);

    if (p->faddr.family == 0)
        return -ENOTCONN;
    *a = p->faddr;
    *port = p->fport;
    return 0;
}

/* The path MTU of a connected socket; the socket keeps all other options itself. */
static int udp_getopt(struct socket *so, int level, int name, void *val, socklen_t *len)
{
    const struct udpcb *p = so_udpcb(so);
    struct route r;
    int mtu;

    if (!(level == IPPROTO_IP && name == IP_MTU) && !(level == IPPROTO_IPV6 && name == IPV6_MTU))
        return -ENOPROTOOPT;
    if (p->faddr.family == 0 || ip_route(so->so_stack, &p->faddr, NULL, &r) != 0)
        return -ENOTCONN;
    mtu = (int)r.mtu;
    *len = MIN(*len, (socklen_t)sizeof(mtu));
    memcpy(val, &mtu, *len);
    return 0;
}

const struct protosw udp_protosw = {
    .type = SOCK_DGRAM,
    .protocol = IPPROTO_UDP,
    .attach = udp_pcb_attach,
    .detach = udp_detach,
    .bind = udp_bind,
    .listen = udp_listen,
    .connect = udp_connect,
    .disconnect = udp_disconnect,
    .send = udp_send,
    .abort = udp_detach,
    .sockname = udp_sockname,
    .peername = udp_peername,
    .getopt = udp_getopt,
};

/* ---- life ---- */

int udp_init(struct weir_stack *s)
{
    s->udp = alloc_zero(&s->alloc, sizeof(*s->udp));
    if (s->udp == NULL)
        return -ENOMEM;
    ip_register(s, IPPROTO_UDP, &udp_ip_proto);
    return 0;
}

void udp_fini(struct weir_stack *s)
{
    alloc_free(&s->alloc, s->udp, sizeof(*s->udp));
    s->udp = NULL;
}
