/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: neighbours are asked for once a second, packets for them wait in bounded numbers, senders
 * hear of failure, and nobody on the link can make us believe or keep what they should not. Bound:
 * the listed cases; 6,000 strangers. */
#include "host.h"

#include "wire/arp.h"
#include "wire/icmp.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

static const uint8_t other_mac[6] = {0x02, 0, 0, 0, 0, 0x77};

static void inject_arp(struct host *h, uint16_t op, const uint8_t *sha, const char *spa,
                       const char *tpa)
{
    uint8_t frame[60] = {0};
    struct arp_packet a = {.op = op, .spa = addr(spa), .tpa = addr(tpa)};
    struct eth_header eth = {.type = ETH_TYPE_ARP};

    memcpy(eth.dst, host_mac, 6);
    memcpy(eth.src, sha, 6);
    eth_header_build(frame, &eth);
    memcpy(a.sha, sha, 6);
    memcpy(a.tha, host_mac, 6);
    arp_build(frame + 14, &a);
    host_inject(h, frame, sizeof(frame));
}

/* Build and inject a neighbour message; hop limit and code as given. */
struct nd_spec {
    const char *src, *dst, *target;
    uint8_t type, hlim, code;
    uint32_t flags;
    const uint8_t *lladdr;
};

static void inject_nd(struct host *h, const struct nd_spec *spec)
{
    uint8_t raw[ND_NEIGHBOR_LEN + 8], frame[200];
    struct nd_neighbor nd = {
        .type = spec->type, .flags = spec->flags, .target = addr(spec->target)};
    const char *src = spec->src ? spec->src : "fd00::2", *dst = spec->dst ? spec->dst : "fd00::1";
    size_t len;

    if (spec->lladdr != NULL) {
        nd.has_lladdr = true;
        memcpy(nd.lladdr, spec->lladdr, 6);
    }
    len = nd_neighbor_build(raw, &nd);
    raw[1] = spec->code;
    fill_sum(raw, len, 2, src, dst, IPPROTO_ICMPV6);
    len = make6(h, frame, src, dst, IPPROTO_ICMPV6, raw, len);
    if (spec->hlim != 0)
        frame[14 + 7] = spec->hlim;
    host_inject(h, frame, len);
}

static bool is_arp(const struct frame *f, uint16_t op, const char *tpa)
{
    struct ipaddr a = addr(tpa);
    struct arp_packet p;

    if (get_be16(f->b + 12) != ETH_TYPE_ARP)
        return false;
    assert_int_equal(f->len, 14 + ARP_LEN);
    assert_int_equal(arp_parse(f->b + 14, ARP_LEN, &p), 0);
    assert_memory_equal(p.sha, host_mac, 6);
    return p.op == op && ipaddr_equal(&p.tpa, &a);
}

static void expect_request(struct host *h, const char *tpa, const uint8_t *dst)
{
    struct frame *f = host_next(h);

    assert_non_null(f);
    assert_true(is_arp(f, ARP_REQUEST, tpa));
    assert_memory_equal(f->b, dst, 6);
    free(f);
}

static void expect_nd(struct host *h, uint8_t type, const char *dst, uint32_t flags)
{
    struct frame *f = host_next(h);
    struct ipaddr d = addr(dst);
    const uint8_t *p;

    assert_non_null(f);
    p = f->b + 14;
    assert_int_equal(p[6], IPPROTO_ICMPV6);
    assert_int_equal(p[7], 255);
    assert_memory_equal(p + 24, d.b, 16);
    assert_int_equal(p[40], type);
    assert_int_equal(get_be32(p + 44), flags);
    free(f);
}

/* case: SEC-055 */
static void no_answer(void **state)
{
    struct host *h = host_create(0);
    struct route r;
    struct ipaddr dst = addr("10.0.0.9"), src = addr("10.0.0.1");
    unsigned i;

    for (i = 0; i < 1000; i++)
        assert_int_equal(host_send(h, "10.0.0.9", 20, true), 0);
    expect_request(h, "10.0.0.9", eth_broadcast);
    assert_null(host_next(h)); /* one request for a thousand packets */
    assert_int_equal(CTR(h, arp_hold_drops), 1000 - 16);
    for (i = 0; i < 4; i++) {
        host_run(h, NS_PER_S - NS_PER_MS);
        assert_null(host_next(h));
        host_run(h, NS_PER_MS);
        expect_request(h, "10.0.0.9", eth_broadcast);
    }
    assert_int_equal(h->seen.errors, 0);
    host_run(h, NS_PER_S);
    assert_null(host_next(h));
    /* Each held packet became an error for its sender. */
    assert_int_equal(h->seen.errors, 16);
    assert_int_equal(h->seen.error.kind, ICMP_KIND_UNREACH_HOST);
    assert_int_equal(h->seen.error.error, EHOSTUNREACH);
    assert_true(h->seen.error.local);
    assert_true(ipaddr_equal(&h->seen.error.flow.faddr, &dst));
    assert_true(ipaddr_equal(&h->seen.error.flow.laddr, &src));
    assert_int_equal(h->seen.l4[5], 5);
    assert_int_equal(ip_route(&h->s, &dst, NULL, &r), -EHOSTUNREACH);
    assert_int_equal(host_send(h, "10.0.0.9", 20, true), -EHOSTUNREACH);
    assert_null(host_next(h));
    /* Asked again when `wait` is over. */
    host_run(h, 3 * NS_PER_S);
    assert_int_equal(host_send(h, "10.0.0.9", 20, true), 0);
    expect_request(h, "10.0.0.9", eth_broadcast);
    host_destroy(h);
}

/* case: SEC-055 */
static void late_answer(void **state)
{
    struct host *h = host_create(0);
    struct frame *f;
    unsigned i;

    for (i = 0; i < 1000; i++)
        assert_int_equal(host_send(h, "10.0.0.2", i % 256, true), 0);
    host_run(h, 2 * NS_PER_S);
    host_forget(h);
    inject_arp(h, ARP_REPLY, peer_mac, "10.0.0.2", "10.0.0.1");
    for (i = 1000 - 16; i < 1000; i++) { /* the newest sixteen, in order */
        f = host_next(h);
        assert_non_null(f);
        assert_memory_equal(f->b, peer_mac, 6);
        assert_int_equal(f->len, 34 + i % 256);
        free(f);
    }
    assert_null(host_next(h));
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    f = host_next(h);
    assert_int_equal(f->len, 54);
    free(f);
    /* After the failure too. */
    assert_int_equal(host_send(h, "10.0.0.3", 20, true), 0);
    host_run(h, 6 * NS_PER_S);
    host_forget(h);
    assert_int_equal(host_send(h, "10.0.0.3", 20, true), -EHOSTUNREACH);
    inject_arp(h, ARP_REPLY, other_mac, "10.0.0.3", "10.0.0.1");
    assert_int_equal(host_send(h, "10.0.0.3", 20, true), 0);
    f = host_next(h);
    assert_memory_equal(f->b, other_mac, 6);
    free(f);
    host_destroy(h);
}

static void no_answer_v6(void **state)
{
    struct host *h = host_create(0);
    unsigned i;

    assert_int_equal(host_send(h, "fd00::9", 20, true), 0);
    for (i = 0; i < 5; i++) {
        expect_nd(h, ICMP6_NEIGHBOR_SOLICIT, "ff02::1:ff00:9", 0);
        assert_null(host_next(h));
        host_run(h, NS_PER_S);
    }
    assert_int_equal(h->seen.errors, 1);
    assert_int_equal(host_send(h, "fd00::9", 20, true), -EHOSTUNREACH);
    inject_nd(h, &(struct nd_spec){.src = "fd00::9",
                                   .target = "fd00::9",
                                   .type = ICMP6_NEIGHBOR_ADVERT,
                                   .flags = ND_FLAG_SOLICITED | ND_FLAG_OVERRIDE,
                                   .lladdr = peer_mac});
    assert_int_equal(host_send(h, "fd00::9", 20, true), 0);
    free(host_next(h));
    assert_null(host_next(h));
    host_destroy(h);
}

/* Reachable ends; the next use probes, unicast; no answer: forgotten, and everybody is asked. */
static void ageing(void **state)
{
    struct host *h = host_create(0);
    struct frame *f;
    unsigned i;

    STORE_RELAXED(&h->s.knobs.arp_max_age, 100);
    inject_arp(h, ARP_REQUEST, peer_mac, "10.0.0.2", "10.0.0.1");
    host_forget(h);
    host_run(h, 101 * NS_PER_S);
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    f = host_next(h);
    assert_memory_equal(f->b, peer_mac, 6);
    free(f);
    host_run(h, 5 * NS_PER_S);
    expect_request(h, "10.0.0.2", peer_mac);
    inject_arp(h, ARP_REPLY, peer_mac, "10.0.0.2", "10.0.0.1");
    host_run(h, 50 * NS_PER_S);
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    host_forget(h);
    host_run(h, 60 * NS_PER_S);
    assert_null(host_next(h));
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    host_forget(h);
    host_run(h, 9 * NS_PER_S);
    for (i = 0; i < 3; i++)
        expect_request(h, "10.0.0.2", peer_mac);
    assert_null(host_next(h));
    assert_int_equal(h->s.ip->neigh_count, 0);
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    expect_request(h, "10.0.0.2", eth_broadcast);
    host_destroy(h);
}

/* Like host_send, for a transport that has just heard from the far end. */
static void send_confirmed(struct host *h, const char *dst)
{
    struct ip_output_args a = {.dst = addr(dst), .src = addr("10.0.0.1"), .proto = PROTO_TEST};
    struct mbuf *m = mbuf_get_packet(h->s.account);

    if (a.dst.family == AF_INET6)
        a.src = addr("fd00::1");
    assert_non_null(m);
    m->m_flags |= M_CONFIRM;
    assert_int_equal(ip_output(&h->s, &m, &a), 0);
}

/* RFC 4861 7.3.1: progress of a transport spares the probes, in REACHABLE that has run out, DELAY
 * and PROBE; it vouches for no address that nobody has answered from. */
static void confirmed(void **state)
{
    static const char *const who[] = {"10.0.0.2", "fd00::2"};
    struct host *h = host_create(0);
    unsigned i;

    STORE_RELAXED(&h->s.knobs.arp_max_age, 30);
    for (i = 0; i < 2; i++) {
        if (i == 0)
            inject_arp(h, ARP_REQUEST, peer_mac, "10.0.0.2", "10.0.0.1");
        else
            inject_nd(h, &(struct nd_spec){.target = "fd00::1",
                                           .type = ICMP6_NEIGHBOR_SOLICIT,
                                           .lladdr = peer_mac});
        send_confirmed(h, who[i]);  /* IPv6: from DELAY, as the solicitation was answered */
        host_run(h, 50 * NS_PER_S); /* no longer reachable by the clock */
        send_confirmed(h, who[i]);
        host_forget(h);
        host_run(h, 10 * NS_PER_S);
        assert_null(host_next(h));
        host_run(h, 50 * NS_PER_S);
        assert_int_equal(host_send(h, who[i], 8, true), 0); /* DELAY */
        host_forget(h);
        host_run(h, 5 * NS_PER_S + NS_PER_MS); /* PROBE */
        assert_int_equal(h->out_count, 1);
        send_confirmed(h, who[i]);
        host_forget(h);
        host_run(h, 10 * NS_PER_S);
        assert_null(host_next(h));
    }
    inject_nd(h, &(struct nd_spec){.target = "fd00::2",
                                   .type = ICMP6_NEIGHBOR_ADVERT,
                                   .flags = ND_FLAG_OVERRIDE,
                                   .lladdr = other_mac});
    send_confirmed(h, "fd00::2"); /* STALE: the progress was that of the old address */
    host_forget(h);
    host_run(h, 5 * NS_PER_S + NS_PER_MS);
    expect_nd(h, ICMP6_NEIGHBOR_SOLICIT, "fd00::2", 0);
    host_destroy(h);
}

/* A transport without answers: a wrong or old address does not stay for its whole life. */
static void doubted(void **state)
{
    struct host *h = host_create(0);
    struct ipaddr dst = addr("10.0.0.2"), far = addr("192.0.2.9");
    unsigned i;

    inject_arp(h, ARP_REQUEST, other_mac, "10.0.0.2", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, other_mac, "10.0.0.254", "10.0.0.1");
    ip_nexthop_doubt(&h->s, &dst);
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    host_forget(h);
    host_run(h, 9 * NS_PER_S);
    for (i = 0; i < 3; i++)
        expect_request(h, "10.0.0.2", other_mac);
    assert_int_equal(host_send(h, "10.0.0.2", 20, true), 0);
    expect_request(h, "10.0.0.2", eth_broadcast);
    ip_nexthop_doubt(&h->s, &far); /* by the gateway */
    assert_int_equal(host_send(h, "192.0.2.9", 20, true), 0);
    host_run(h, 5 * NS_PER_S);
    host_forget(h);
    assert_int_equal(host_send(h, "10.0.0.254", 20, true), 0);
    host_forget(h);
    host_run(h, NS_PER_S);
    expect_request(h, "10.0.0.254", other_mac);
    host_destroy(h);
}

static void answers_arp(void **state)
{
    struct host *h = host_create(0);
    struct frame *f;

    inject_arp(h, ARP_REQUEST, peer_mac, "10.0.0.2", "10.0.0.1");
    f = host_next(h);
    assert_true(is_arp(f, ARP_REPLY, "10.0.0.2"));
    assert_memory_equal(f->b, peer_mac, 6);
    free(f);
    inject_arp(h, ARP_REQUEST, peer_mac, "0.0.0.0", "10.0.0.1"); /* a probe (RFC 5227) */
    f = host_next(h);
    assert_true(is_arp(f, ARP_REPLY, "0.0.0.0"));
    free(f);
    inject_arp(h, ARP_REQUEST, peer_mac, "10.0.0.2", "10.0.0.7");
    assert_null(host_next(h));
    assert_int_equal(h->s.ip->neigh_count, 1);
    host_destroy(h);
}

static void bad_arp(void **state)
{
    struct host *h = host_create(0);
    uint8_t frame[60] = {0}, group[6] = {1, 0, 0x5e, 0, 0, 1};
    unsigned i;

    inject_arp(h, ARP_REQUEST, group, "10.0.0.2", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, peer_mac, "224.0.0.1", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, peer_mac, "127.0.0.1", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, peer_mac, "255.255.255.255", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, peer_mac, "10.0.0.255", "10.0.0.1");
    memcpy(frame, host_mac, 6);
    put_be16(frame + 12, ETH_TYPE_ARP);
    for (i = 14; i < 14 + ARP_LEN; i++)
        host_inject(h, frame, i);
    host_inject(h, frame, sizeof(frame)); /* not Ethernet's ARP */
    assert_int_equal(CTR(h, arp_bad), 5 + ARP_LEN + 1);
    /* Nothing is learned from replies that nobody asked for, nor of strangers' networks. */
    inject_arp(h, ARP_REPLY, peer_mac, "10.0.0.2", "10.0.0.1");
    inject_arp(h, ARP_REQUEST, peer_mac, "10.77.0.2", "10.0.0.1");
    assert_int_equal(h->s.ip->neigh_count, 0);
    host_destroy(h);
}

static void conflicts(void **state)
{
    struct host *h = host_create(0);
    unsigned i;

    for (i = 0; i < 100; i++)
        inject_arp(h, ARP_REPLY, other_mac, "10.0.0.1", "10.0.0.1");
    assert_int_equal(CTR(h, arp_conflicts), 100);
    expect_request(h, "10.0.0.1", eth_broadcast); /* one defence */
    assert_null(host_next(h));
    inject_arp(h, ARP_REPLY, host_mac, "10.0.0.1", "10.0.0.1"); /* our own announcement come back */
    assert_int_equal(CTR(h, arp_conflicts), 100);
    host_run(h, 11 * NS_PER_S);
    inject_nd(h, &(struct nd_spec){
                     .target = "fd00::1", .type = ICMP6_NEIGHBOR_ADVERT, .lladdr = other_mac});
    expect_nd(h, ICMP6_NEIGHBOR_ADVERT, "ff02::1", ND_FLAG_OVERRIDE);
    host_destroy(h);
}

static void table_is_bounded(void **state)
{
    struct host *h = host_create(0);
    char text[32];
    unsigned i;

    STORE_RELAXED(&h->s.knobs.arp_maxentries, 64);
    for (i = 0; i < 6000; i++) { /* strangers who ask */
        snprintf(text, sizeof(text), "10.0.0.%u", 2 + i % 250);
        inject_arp(h, ARP_REQUEST, peer_mac, text, "10.0.0.1");
        assert_true(h->s.ip->neigh_count <= 64);
        host_forget(h);
    }
    for (i = 0; i < 250; i++) { /* destinations of our own */
        snprintf(text, sizeof(text), "fd00::%x", 0x100 + i);
        assert_int_equal(host_send(h, text, 8, true), 0);
        assert_true(h->s.ip->neigh_count <= 64);
        host_forget(h);
    }
    assert_true(CTR(h, arp_table_full) > 200);
    host_run(h, 20 * NS_PER_S);
    host_destroy(h);
}

static void answers_nd(void **state)
{
    struct host *h = host_create(0);

    inject_nd(h, &(struct nd_spec){.dst = "ff02::1:ff00:1",
                                   .target = "fd00::1",
                                   .type = ICMP6_NEIGHBOR_SOLICIT,
                                   .lladdr = peer_mac});
    expect_nd(h, ICMP6_NEIGHBOR_ADVERT, "fd00::2", ND_FLAG_SOLICITED | ND_FLAG_OVERRIDE);
    /* Somebody's duplicate address detection. */
    inject_nd(h, &(struct nd_spec){.src = "::",
                                   .dst = "ff02::1:ff00:1",
                                   .target = "fd00::1",
                                   .type = ICMP6_NEIGHBOR_SOLICIT});
    expect_nd(h, ICMP6_NEIGHBOR_ADVERT, "ff02::1", ND_FLAG_OVERRIDE);
    inject_nd(h, &(struct nd_spec){.dst = "ff02::1:ff00:1",
                                   .target = "fd00::77:0:1",
                                   .type = ICMP6_NEIGHBOR_SOLICIT,
                                   .lladdr = peer_mac});
    assert_null(host_next(h));
    host_destroy(h);
}

static void bad_nd(void **state)
{
    static const uint8_t group[6] = {0x33, 0x33, 0, 0, 0, 1};
    static const struct nd_spec bad[] = {
        {.target = "fd00::1", .type = ICMP6_NEIGHBOR_SOLICIT, .hlim = 254, .lladdr = peer_mac},
        {.target = "fd00::1", .type = ICMP6_NEIGHBOR_SOLICIT, .code = 1, .lladdr = peer_mac},
        {.target = "ff02::1", .type = ICMP6_NEIGHBOR_SOLICIT, .lladdr = peer_mac},
        {.target = "fd00::1", .type = ICMP6_NEIGHBOR_SOLICIT, .lladdr = group},
        {.target = "fd00::1",
         .type = ICMP6_NEIGHBOR_SOLICIT,
         .src = "::",
         .dst = "ff02::1:ff00:1",
         .lladdr = peer_mac},
        {.target = "fd00::1", .type = ICMP6_NEIGHBOR_SOLICIT, .src = "::"},
        {.target = "fd00::2", .type = ICMP6_NEIGHBOR_ADVERT, .hlim = 64, .lladdr = peer_mac},
        {.target = "fd00::2",
         .type = ICMP6_NEIGHBOR_ADVERT,
         .dst = "ff02::1",
         .flags = ND_FLAG_SOLICITED,
         .lladdr = peer_mac},
    };
    struct host *h = host_create(0);
    uint8_t raw[ND_NEIGHBOR_LEN + 8];
    struct nd_neighbor nd = {
        .type = ICMP6_NEIGHBOR_SOLICIT, .target = addr("fd00::1"), .has_lladdr = true};
    unsigned i;

    for (i = 0; i < NELEM(bad); i++) {
        inject_nd(h, &bad[i]);
        assert_int_equal(CTR(h, arp_bad), i + 1);
    }
    nd_neighbor_build(raw, &nd);
    for (i = 8; i < sizeof(raw); i++) { /* cut off at every byte */
        if (i == ND_NEIGHBOR_LEN)
            continue;
        fill_sum(raw, i, 2, "fd00::2", "fd00::1", IPPROTO_ICMPV6);
        inject6(h, NULL, NULL, IPPROTO_ICMPV6, raw, i);
    }
    raw[ND_NEIGHBOR_LEN + 1] = 0; /* an option of length 0 */
    fill_sum(raw, sizeof(raw), 2, "fd00::2", "fd00::1", IPPROTO_ICMPV6);
    inject6(h, NULL, NULL, IPPROTO_ICMPV6, raw, sizeof(raw));
    assert_int_equal(CTR(h, arp_bad), NELEM(bad) + 24);
    assert_int_equal(h->s.ip->neigh_count, 0);
    assert_null(host_next(h));
    host_destroy(h);
}

static void expect_mac(struct host *h, const uint8_t *mac)
{
    struct frame *f;

    assert_int_equal(host_send(h, "fd00::2", 8, true), 0);
    f = host_next_packet(h);
    assert_non_null(f);
    assert_memory_equal(f->b, mac, 6);
    free(f);
    host_forget(h);
}

/* RFC 4861 7.2.5, line by line. */
static void advertisement_rules(void **state)
{
    struct host *h = host_create(0);
    struct nd_spec na = {.target = "fd00::2", .type = ICMP6_NEIGHBOR_ADVERT, .lladdr = peer_mac};

    inject_nd(h, &na); /* nobody asked: no entry */
    assert_int_equal(h->s.ip->neigh_count, 0);
    assert_int_equal(host_send(h, "fd00::2", 8, true), 0);
    host_forget(h);
    inject_nd(h, &(struct nd_spec){.target = "fd00::2",
                                   .type = ICMP6_NEIGHBOR_ADVERT,
                                   .flags = ND_FLAG_SOLICITED});
    assert_null(host_next(h)); /* no link-layer address */
    na.flags = ND_FLAG_SOLICITED;
    inject_nd(h, &na);
    assert_non_null(h->nif->txq);
    host_forget(h);
    expect_mac(h, peer_mac);
    na.lladdr = other_mac;
    na.flags = 0; /* no override: not believed, but doubted */
    inject_nd(h, &na);
    expect_mac(h, peer_mac);
    host_run(h, 5 * NS_PER_S + NS_PER_MS);
    expect_nd(h, ICMP6_NEIGHBOR_SOLICIT, "fd00::2", 0);
    na.flags = ND_FLAG_OVERRIDE;
    inject_nd(h, &na);
    expect_mac(h, other_mac);
    na.flags = ND_FLAG_OVERRIDE | ND_FLAG_SOLICITED;
    na.lladdr = peer_mac;
    inject_nd(h, &na);
    expect_mac(h, peer_mac);
    host_run(h, 10 * NS_PER_S);
    assert_null(host_next(h)); /* confirmed: no probes */
    host_destroy(h);
}

static void announces(void **state)
{
    struct host *h = host_create(0);
    struct ipaddr a = addr("10.5.0.1"), b = addr("fd05::1");

    assert_int_equal(netif_add_addr(h->nif, &a, 24), 0);
    expect_request(h, "10.5.0.1", eth_broadcast);
    assert_int_equal(netif_add_addr(h->nif, &b, 64), 0);
    expect_nd(h, ICMP6_NEIGHBOR_ADVERT, "ff02::1", ND_FLAG_OVERRIDE);
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_answer),           cmocka_unit_test(late_answer),
        cmocka_unit_test(no_answer_v6),        cmocka_unit_test(ageing),
        cmocka_unit_test(confirmed),           cmocka_unit_test(doubted),
        cmocka_unit_test(answers_arp),         cmocka_unit_test(bad_arp),
        cmocka_unit_test(conflicts),           cmocka_unit_test(table_is_bounded),
        cmocka_unit_test(answers_nd),          cmocka_unit_test(bad_nd),
        cmocka_unit_test(advertisement_rules), cmocka_unit_test(announces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
