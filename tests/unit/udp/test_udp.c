/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: UDP sockets bind, connect, send, receive and hear of errors as Linux's do, over a stack of
 * nothing but IP; bad datagrams are dropped and counted. Bound: the listed cases; 2,000 ports;
 * 10,000 reconnects. */
#include "host.h"

#include "udp/udp.h"
#include "udp/udp_var.h"
#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/udp.h"
#include "wire/wire.h"
#include <stdlib.h>

/* ---- the socket layer, as far as UDP sees it ---- */

static unsigned readable, writable, done;

void so_readable(struct socket *so)
{
    readable++;
}
void so_writable(struct socket *so)
{
    writable++;
}
void so_error_set(struct socket *so, int error)
{
    atomic_store(&so->so_error, error);
}
void so_protocol_done(struct socket *so)
{
    assert_null(so->so_pcb);
    done++;
}

LOCK_CLASS(class_rcv, "so_rcv");
LOCK_CLASS(class_snd, "so_snd");

static struct socket *make(struct host *h, int domain)
{
    struct socket *so =
        aligned_alloc(CACHE_LINE, (sizeof(*so) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);

    memset(so, 0, sizeof(*so));
    so->so_stack = &h->s;
    so->so_domain = domain;
    so->so_type = SOCK_DGRAM;
    so->so_proto = &udp_protosw;
    so->so_ttl = so->so_hoplimit = so->so_mcast_ttl = -1;
    so->so_pmtudisc = IP_PMTUDISC_WANT;
    sockbuf_init(&so->so_rcv, &class_rcv, 65536);
    sockbuf_init(&so->so_snd, &class_snd, 65536);
    assert_int_equal(udp_protosw.attach(so), 0);
    return so;
}

static void drop(struct socket *so)
{
    udp_protosw.detach(so);
    assert_null(so->so_pcb);
    sockbuf_fini(&so->so_rcv);
    sockbuf_fini(&so->so_snd);
    free(so);
}

static int bind_to(struct socket *so, const char *a, uint16_t port)
{
    struct ipaddr x = addr(a);

    return udp_protosw.bind(so, &x, port);
}

static int connect_to(struct socket *so, const char *a, uint16_t port)
{
    struct ipaddr x = addr(a);

    return udp_protosw.connect(so, &x, port);
}

static void option(struct socket *so, int opt)
{
    atomic_fetch_or(&so->so_options, 1u << opt);
}

static uint16_t port_of(struct socket *so)
{
    struct ipaddr a;
    uint16_t port;

    assert_int_equal(udp_protosw.sockname(so, &a, &port), 0);
    return port;
}

/* sendto; to NULL: send. Returns the error that the socket was told, 0 none. */
static int send_text(struct socket *so, const char *to, uint16_t port, const void *data, size_t len)
{
    struct mbuf *m = len != 0 ? mbuf_from_bytes(so->so_stack->account, data, len)
                              : mbuf_get(so->so_stack->account);
    struct sockaddr_storage ss;
    socklen_t sslen = 0;

    if (to != NULL) {
        struct ipaddr a = addr(to);

        sslen = ipaddr_to_sockaddr(&a, port, so->so_domain, &ss);
    }
    assert_true(
        sockbuf_append_record(&so->so_snd, so->so_stack->account, to ? &ss : NULL, sslen, &m));
    udp_protosw.send(so);
    assert_int_equal(sockbuf_used(&so->so_snd), 0);
    return atomic_exchange(&so->so_error, 0);
}

/* recvfrom: the length, -1 when there is nothing. */
static int receive(struct socket *so, char *from, size_t fromsize, uint16_t *port, void *data,
                   size_t size)
{
    struct mbuf *m = sockbuf_take_record(&so->so_rcv);
    struct sockaddr_storage ss;
    struct ipaddr a;
    bool mapped;
    uint32_t len;

    if (m == NULL)
        return -1;
    assert_true(m->m_flags & M_ADDR);
    memcpy(&ss, m->m_data, m->m_len);
    assert_int_equal(ss.ss_family, so->so_domain);
    assert_int_equal(sockaddr_to_ipaddr((struct sockaddr *)&ss, m->m_len, &a, port, &mapped), 0);
    ipaddr_format(&a, from, fromsize);
    m = mbuf_free(m);
    len = mbuf_chain_len(m);
    assert_true(len <= size);
    if (len > 0)
        mbuf_copy_out(m, 0, len, data);
    mbuf_free_chain(&m);
    return (int)len;
}

static void expect(struct socket *so, const char *from, uint16_t port, const char *text)
{
    char who[46], buf[100];
    uint16_t p;

    assert_int_equal(receive(so, who, sizeof(who), &p, buf, sizeof(buf)), strlen(text));
    assert_memory_equal(buf, text, strlen(text));
    assert_string_equal(who, from);
    assert_int_equal(p, port);
}

static void expect_nothing(struct socket *so)
{
    assert_int_equal(sockbuf_used(&so->so_rcv), 0);
    assert_null(so->so_rcv.sb_mb);
}

static struct host *begin(void)
{
    struct host *h = host_create(0);

    assert_int_equal(udp_init(&h->s), 0);
    host_learn_peers(h);
    return h;
}

static void end(struct host *h)
{
    udp_fini(&h->s);
    host_destroy(h);
}

/* A datagram from the neighbour; len < 0: a true length field. */
static void from_wire(struct host *h, bool v6, uint16_t sport, uint16_t dport, const char *text,
                      int len)
{
    uint8_t raw[200];
    struct udp_header u = {.sport = sport, .dport = dport};
    size_t n = 8 + strlen(text);

    u.len = (uint16_t)(len < 0 ? (int)n : len);
    udp_header_build(raw, &u);
    memcpy(raw + 8, text, strlen(text));
    fill_sum(raw, n, 6, v6 ? "fd00::2" : "10.0.0.2", v6 ? "fd00::1" : "10.0.0.1", IPPROTO_UDP);
    if (v6)
        inject6(h, NULL, NULL, IPPROTO_UDP, raw, n);
    else
        inject4(h, &(struct ip4_spec){.proto = IPPROTO_UDP}, raw, n);
}

static void there_and_back(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET), *b = make(h, AF_INET6), *c = make(h, AF_INET);
    struct frame *f;
    struct ipaddr src = addr("10.0.0.1"), dst = addr("10.0.0.2");

    assert_int_equal(bind_to(a, "0.0.0.0", 5000), 0);
    assert_int_equal(bind_to(b, "::", 6000), 0);
    from_wire(h, false, 77, 5000, "four", -1);
    expect(a, "10.0.0.2", 77, "four");
    from_wire(h, true, 78, 6000, "six", -1);
    expect(b, "fd00::2", 78, "six");
    from_wire(h, false, 79, 6000, "mapped", -1); /* the dual socket shows it v4-mapped */
    expect(b, "10.0.0.2", 79, "mapped");
    assert_int_equal(readable, 3);
    assert_int_equal(send_text(a, "10.0.0.2", 99, "hello", 5), 0);
    f = host_next(h);
    assert_int_equal(f->len, 34 + 13);
    assert_int_equal(get_be16(f->b + 34), 5000);
    assert_int_equal(get_be16(f->b + 36), 99);
    assert_int_equal(
        checksum_fold(checksum_add(f->b + 34, 13, checksum_pseudo(&src, &dst, IPPROTO_UDP, 13))),
        0xffff);
    free(f);
    assert_int_equal(send_text(c, "10.0.0.2", 99, "", 0),
                     0); /* an empty one, from an ephemeral port */
    f = host_next(h);
    assert_int_equal(f->len, 34 + 8);
    assert_true(get_be16(f->b + 34) >= 10000);
    assert_int_equal(get_be16(f->b + 34), port_of(c));
    free(f);
    /* Over loopback, from the IPv6 socket to an IPv4 one. */
    assert_int_equal(send_text(b, "127.0.0.1", 5000, "lo", 2), 0);
    assert_null(host_next(h));
    expect(a, "127.0.0.1", 6000, "lo");
    assert_int_equal(send_text(a, NULL, 0, "x", 1), EDESTADDRREQ);
    drop(a);
    drop(b);
    drop(c);
    end(h);
}

static void bad_datagrams(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET6);
    uint8_t raw[100];
    struct udp_header u = {.sport = 1, .dport = 5000, .len = 12};
    struct frame *f;
    int i;

    assert_int_equal(bind_to(a, "::", 5000), 0);
    for (i = 0; i < 8; i++) {
        udp_header_build(raw, &u);
        inject4(h, &(struct ip4_spec){.proto = IPPROTO_UDP}, raw, (size_t)i);
        from_wire(h, false, 1, 5000, "text", i); /* a length below 8 */
        if (i > 0)
            from_wire(h, true, 1, 5000, "text", i);
    }
    from_wire(h, false, 1, 5000, "text", 13); /* beyond the packet */
    from_wire(h, true, 1, 5000, "text", 65535);
    assert_int_equal(CTR(h, udp_rx_short), 8 + 8 + 7 + 2);
    memcpy(raw + 8, "text", 4);
    u.sum = 0x1234;
    udp_header_build(raw, &u);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_UDP}, raw, 12);
    u.sum = 0; /* none: allowed for IPv4, not for IPv6 */
    udp_header_build(raw, &u);
    inject6(h, NULL, NULL, IPPROTO_UDP, raw, 12);
    assert_int_equal(CTR(h, udp_rx_badsum), 2);
    expect_nothing(a);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_UDP}, raw, 12);
    expect(a, "10.0.0.2", 1, "text");
    /* Bytes behind the length are not part of it. */
    udp_header_build(raw, &u);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_UDP}, raw, 30);
    expect(a, "10.0.0.2", 1, "text");
    assert_null(host_next(h));
    from_wire(h, false, 1, 5001, "nobody", -1);
    f = host_next(h);
    assert_non_null(f);
    assert_int_equal(f->b[34], ICMP4_UNREACH);
    assert_int_equal(f->b[35], ICMP4_UNREACH_PORT);
    assert_memory_equal(f->b + 34 + 8 + 28, "nobody", 6);
    free(f);
    from_wire(h, true, 1, 5001, "nobody", -1);
    f = host_next_packet(h);
    assert_non_null(f);
    assert_int_equal(f->b[54], ICMP6_UNREACH);
    assert_int_equal(f->b[55], ICMP6_UNREACH_PORT);
    free(f);
    STORE_RELAXED(&h->s.knobs.udp_blackhole, 1);
    from_wire(h, false, 1, 5001, "nobody", -1);
    from_wire(h, false, 1, 0, "port 0", -1);
    assert_null(host_next_packet(h));
    assert_int_equal(CTR(h, udp_rx_noport), 4);
    drop(a);
    end(h);
}

/* case: FUN-127 */
static void bind_conflicts(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET), *b = make(h, AF_INET), *c = make(h, AF_INET6),
                  *d = make(h, AF_INET6);

    assert_int_equal(bind_to(a, "10.0.0.1", 5000), 0);
    assert_int_equal(bind_to(a, "10.0.0.1", 5001), -EINVAL); /* bound already */
    assert_int_equal(bind_to(b, "10.0.0.9", 5000), -EADDRNOTAVAIL);
    assert_int_equal(bind_to(b, "10.0.0.1", 5000), -EADDRINUSE);
    assert_int_equal(bind_to(b, "0.0.0.0", 5000), -EADDRINUSE);
    assert_int_equal(bind_to(b, "::", 5000), -EAFNOSUPPORT);
    assert_int_equal(bind_to(c, "::", 5000), -EADDRINUSE); /* dual: wants IPv4 too */
    c->so_v6only = true;
    assert_int_equal(bind_to(c, "10.0.0.1", 5001), -EINVAL);
    assert_int_equal(bind_to(c, "::", 5000), 0);
    assert_int_equal(connect_to(c, "10.0.0.2", 9), -ENETUNREACH);
    assert_int_equal(bind_to(b, "127.0.0.1", 5000), 0);
    assert_int_equal(bind_to(d, "fd00::1", 5000), -EADDRINUSE);
    from_wire(h, false, 1, 5000, "to a", -1);
    expect(a, "10.0.0.2", 1, "to a");
    expect_nothing(b);
    expect_nothing(c);
    from_wire(h, true, 1, 5000, "to c", -1);
    expect(c, "fd00::2", 1, "to c");
    drop(a);
    drop(b);
    drop(c);
    drop(d);
    end(h);
}

static void sharing(void **state)
{
    struct host *h = begin();
    struct socket *so[4];
    unsigned i, got[4] = {0};
    char text[10];

    for (i = 0; i < 4; i++) {
        so[i] = make(h, AF_INET);
        option(so[i], SO_REUSEADDR);
        assert_int_equal(bind_to(so[i], "0.0.0.0", 5000), 0);
    }
    from_wire(h, false, 1, 5000, "last", -1); /* the newest gets it */
    expect(so[3], "10.0.0.2", 1, "last");
    for (i = 0; i < 4; i++)
        drop(so[i]);
    for (i = 0; i < 4; i++) {
        so[i] = make(h, AF_INET);
        option(so[i], SO_REUSEPORT);
        assert_int_equal(bind_to(so[i], "0.0.0.0", 5000), 0);
    }
    for (i = 0; i < 400; i++) {
        snprintf(text, sizeof(text), "%u", i % 100);
        from_wire(h, false, (uint16_t)(1000 + i % 100), 5000, text, -1);
    }
    for (i = 0; i < 4; i++) {
        char who[46], buf[10];
        uint16_t p;

        while (receive(so[i], who, sizeof(who), &p, buf, sizeof(buf)) >= 0)
            got[i]++;
        assert_true(got[i] > 20 && got[i] % 4 == 0); /* each flow stays with its socket */
    }
    assert_int_equal(got[0] + got[1] + got[2] + got[3], 400);
    for (i = 0; i < 4; i++)
        drop(so[i]);
    end(h);
}

static void connected_sockets(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET), *b = make(h, AF_INET), *c = make(h, AF_INET6);
    struct ipaddr who;
    uint16_t port;
    uint8_t msg[8 + 28];
    struct frame *f;

    option(a, SO_REUSEADDR);
    option(b, SO_REUSEADDR);
    assert_int_equal(bind_to(a, "0.0.0.0", 5000), 0);
    assert_int_equal(bind_to(b, "0.0.0.0", 5000), 0);
    assert_int_equal(udp_protosw.peername(a, &who, &port), -ENOTCONN);
    assert_int_equal(connect_to(a, "10.0.0.2", 77), 0);
    assert_int_equal(udp_protosw.peername(a, &who, &port), 0);
    assert_int_equal(port, 77);
    assert_int_equal(udp_protosw.sockname(a, &who, &port), 0);
    assert_int_equal(who.b[3], 1); /* the source address was chosen */
    from_wire(h, false, 77, 5000, "for a", -1);
    from_wire(h, false, 78, 5000, "for b", -1);
    expect(a, "10.0.0.2", 77, "for a");
    expect(b, "10.0.0.2", 78, "for b");
    assert_int_equal(send_text(a, NULL, 0, "hi", 2), 0);
    f = host_next(h);
    /* The port is closed: told to the connected socket, once. */
    memset(msg, 0, sizeof(msg));
    msg[0] = ICMP4_UNREACH;
    msg[1] = ICMP4_UNREACH_PORT;
    memcpy(msg + 8, f->b + 14, 28);
    fill_sum(msg, sizeof(msg), 2, NULL, NULL, 0);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_ICMP}, msg, sizeof(msg));
    assert_int_equal(atomic_exchange(&a->so_error, 0), ECONNREFUSED);
    msg[1] = ICMP4_UNREACH_HOST; /* not a hard one */
    fill_sum(msg, sizeof(msg), 2, NULL, NULL, 0);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_ICMP}, msg, sizeof(msg));
    assert_int_equal(a->so_error, 0);
    free(f);
    /* An unconnected socket hears nothing. */
    assert_int_equal(send_text(b, "10.0.0.2", 78, "hi", 2), 0);
    f = host_next(h);
    msg[1] = ICMP4_UNREACH_PORT;
    memcpy(msg + 8, f->b + 14, 28);
    free(f);
    fill_sum(msg, sizeof(msg), 2, NULL, NULL, 0);
    inject4(h, &(struct ip4_spec){.proto = IPPROTO_ICMP}, msg, sizeof(msg));
    assert_int_equal(b->so_error, 0);
    assert_int_equal(udp_protosw.disconnect(a), 0);
    assert_int_equal(port_of(a), 5000); /* bound: kept */
    assert_int_equal(udp_protosw.sockname(a, &who, &port), 0);
    assert_true(ipaddr_is_any(&who));
    assert_int_equal(connect_to(c, "10.0.0.2", 5), 0); /* v4-mapped */
    assert_int_equal(connect_to(c, "fd00::2", 5), 0);  /* and again, another family */
    assert_int_equal(connect_to(c, "255.255.255.255", 5), -EACCES);
    option(c, SO_BROADCAST);
    assert_int_equal(connect_to(c, "10.0.0.255", 5), 0);
    assert_int_equal(send_text(c, NULL, 0, "all", 3), 0);
    f = host_next(h);
    assert_memory_equal(f->b, eth_broadcast, 6);
    free(f);
    assert_int_equal(connect_to(c, "::", 5), 0); /* any: ourselves */
    assert_int_equal(udp_protosw.peername(c, &who, &port), 0);
    assert_true(ipaddr_is_loopback(&who));
    drop(a);
    drop(b);
    drop(c);
    end(h);
}

/* case: FUN-130 */
static void disconnect_frees_the_port(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET);
    unsigned i;

    STORE_RELAXED(&h->s.knobs.ip_portrange_first, 20000);
    STORE_RELAXED(&h->s.knobs.ip_portrange_last, 20003);
    for (i = 0; i < 10000; i++) {
        assert_int_equal(connect_to(a, "10.0.0.2", 7), 0);
        assert_in_range(port_of(a), 20000, 20003);
        assert_int_equal(udp_protosw.disconnect(a), 0);
        assert_int_equal(port_of(a), 0);
    }
    for (i = 0; i < UDP_BUCKETS; i++)
        assert_true(LIST_EMPTY(&h->s.udp->hash[i]));
    drop(a);
    end(h);
}

static void ephemeral_ports(void **state)
{
    struct host *h = begin();
    struct socket *so[2001];
    unsigned i, k, in_order = 0;

    STORE_RELAXED(&h->s.knobs.ip_portrange_first, 20000);
    STORE_RELAXED(&h->s.knobs.ip_portrange_last, 21999);
    for (i = 0; i < 2000; i++) {
        so[i] = make(h, AF_INET);
        option(so[i], SO_REUSEADDR); /* does not make two get one */
        assert_int_equal(bind_to(so[i], "0.0.0.0", 0), 0);
        in_order += i > 0 && port_of(so[i]) == port_of(so[i - 1]) + 1;
        for (k = 0; k < i; k++)
            assert_int_not_equal(port_of(so[k]), port_of(so[i]));
    }
    assert_true(in_order < 100);
    so[i] = make(h, AF_INET);
    assert_int_equal(bind_to(so[i], "0.0.0.0", 0), -EADDRINUSE);
    assert_int_equal(connect_to(so[i], "10.0.0.2", 7), -EAGAIN);
    for (i = 0; i < 2001; i++)
        drop(so[i]);
    end(h);
}

static void sizes(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET), *b = make(h, AF_INET);
    static uint8_t big[65507], got[65507];
    char who[46];
    uint16_t port;
    unsigned i;

    for (i = 0; i < sizeof(big); i++)
        big[i] = (uint8_t)(i * 3);
    sockbuf_reserve(&a->so_snd, 212992);
    sockbuf_reserve(&b->so_rcv, 212992);
    assert_int_equal(bind_to(b, "10.0.0.1", 5000), 0);
    assert_int_equal(send_text(a, "10.0.0.1", 5000, big, sizeof(big)), 0);
    assert_null(host_next(h));
    assert_int_equal(receive(b, who, sizeof(who), &port, got, sizeof(got)), sizeof(big));
    assert_memory_equal(got, big, sizeof(big));
    assert_int_equal(send_text(a, "10.0.0.2", 5000, big, sizeof(big)), 0); /* in fragments */
    assert_int_equal(CTR(h, ip_frag_tx), 45);
    host_forget(h);
    a->so_pmtudisc = IP_PMTUDISC_DO;
    assert_int_equal(send_text(a, "10.0.0.2", 5000, big, 1473), EMSGSIZE);
    assert_int_equal(send_text(a, "10.0.0.2", 5000, big, 1472), 0);
    host_forget(h);
    /* More than the buffer holds is dropped whole. */
    for (i = 0; i < 100; i++)
        from_wire(h, false, 1, 5000, "0123456789012345678901234567890123456789", -1);
    assert_int_equal(CTR(h, udp_rx_full), 0);
    sockbuf_reserve(&b->so_rcv, 2048);
    from_wire(h, false, 1, 5000, "one too many", -1);
    assert_int_equal(CTR(h, udp_rx_full), 1);
    drop(a);
    drop(b);
    end(h);
}

static void options(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET6);
    int v = 0;
    socklen_t len = sizeof(v);
    struct frame *f;

    a->so_ttl = 5;
    a->so_tos = 0x10;
    a->so_hoplimit = 3;
    assert_int_equal(udp_protosw.getopt(a, IPPROTO_IPV6, 9999, &v, &len), -ENOPROTOOPT);
    assert_int_equal(udp_protosw.getopt(a, IPPROTO_IPV6, IPV6_MTU, &v, &len), -ENOTCONN);
    assert_int_equal(send_text(a, "10.0.0.2", 9, "x", 1), 0);
    f = host_next(h);
    assert_int_equal(f->b[14 + 8], 5);
    assert_int_equal(f->b[14 + 1], 0x10);
    free(f);
    assert_int_equal(send_text(a, "fd00::2", 9, "x", 1), 0);
    f = host_next(h);
    assert_int_equal(f->b[14 + 7], 3);
    free(f);
    assert_int_equal(connect_to(a, "10.0.0.2", 9), 0);
    assert_int_equal(udp_protosw.getopt(a, IPPROTO_IP, IP_MTU, &v, &len), 0);
    assert_int_equal(v, 1500);
    drop(a);
    end(h);
}

static void groups(void **state)
{
    struct host *h = begin();
    struct socket *a = make(h, AF_INET), *b = make(h, AF_INET), *c = make(h, AF_INET);
    uint8_t raw[16] = {0};
    struct udp_header u = {.sport = 9, .dport = 5000, .len = 12};

    option(a, SO_REUSEADDR);
    option(b, SO_REUSEADDR);
    assert_int_equal(bind_to(a, "0.0.0.0", 5000), 0);
    assert_int_equal(bind_to(b, "0.0.0.0", 5000), 0);
    assert_int_equal(bind_to(c, "0.0.0.0", 5001), 0);
    udp_header_build(raw, &u);
    memcpy(raw + 8, "all!", 4);
    inject4(h, &(struct ip4_spec){.dst = "10.0.0.255", .proto = IPPROTO_UDP}, raw, 12);
    expect(a, "10.0.0.2", 9, "all!");
    expect(b, "10.0.0.2", 9, "all!");
    expect_nothing(c);
    raw[3] ^= 0x40;
    inject4(h, &(struct ip4_spec){.dst = "10.0.0.255", .proto = IPPROTO_UDP}, raw, 12);
    assert_null(host_next_packet(h)); /* no error about a broadcast */
    drop(a);
    drop(b);
    drop(c);
    end(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),    cmocka_unit_test(bad_datagrams),
        cmocka_unit_test(bind_conflicts),    cmocka_unit_test(sharing),
        cmocka_unit_test(connected_sockets), cmocka_unit_test(disconnect_frees_the_port),
        cmocka_unit_test(ephemeral_ports),   cmocka_unit_test(sizes),
        cmocka_unit_test(options),           cmocka_unit_test(groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
