/* SPDX-License-Identifier: BSD-2-Clause
 * See host.h. */
#include "host.h"

#include "wire/arp.h"
#include "wire/checksum.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdio.h>
#include <stdlib.h>

const uint8_t host_mac[6] = {0x02, 0, 0, 0, 0, 0x01}, peer_mac[6] = {0x02, 0, 0, 0, 0, 0x02};

static int64_t bytes_out;
static struct host *the_host; /* the transport's callbacks get no context: one host at a time */

static void *take(void *ctx, size_t size)
{
    bytes_out += (int64_t)size;
    return malloc(size);
}

static void give_back(void *ctx, void *p, size_t size)
{
    bytes_out -= (int64_t)size;
    free(p);
}

static const struct weir_alloc counting = {.alloc = take, .free = give_back};

static void panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: CHECK(%s)\n", file, line, what);
    abort();
}

static size_t link_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct host *h = link;
    size_t i;

    for (i = 0; i < n && h->tx_room > 0 && h->out_count < HOST_MAX_FRAMES; i++, h->tx_room--) {
        struct frame *f = calloc(1, sizeof(*f));

        f->len = frames[i]->m_pkt.len;
        assert_int_equal(f->len, mbuf_chain_len(frames[i]));
        f->csum_flags = frames[i]->m_pkt.csum_flags;
        f->tso_segsz = frames[i]->m_pkt.tso_segsz;
        mbuf_copy_out(frames[i], 0, f->len, f->b);
        h->out[h->out_count++] = f;
        mbuf_free_chain(&frames[i]);
    }
    return i;
}

static size_t link_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    return 0;
}

static uint64_t link_deadline(void *link)
{
    return TIME_NEVER;
}

static bool link_pending(void *link)
{
    return false;
}

static void link_close(void *link)
{
}

static const struct netif_ops link_ops = {.tx = link_tx,
                                          .rx = link_rx,
                                          .next_deadline = link_deadline,
                                          .pending = link_pending,
                                          .close = link_close};

static void proto_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    struct seen *seen = &the_host->seen;

    seen->packets++;
    seen->info = *info;
    seen->len = (*m)->m_pkt.len;
    assert_int_equal(seen->len, mbuf_chain_len(*m));
    mbuf_copy_out(*m, 0, seen->len, seen->data);
    mbuf_free_chain(m);
}

static void proto_error(struct weir_stack *s, const struct icmp_error *e)
{
    struct seen *seen = &the_host->seen;

    seen->errors++;
    seen->error = *e;
    assert_true(e->l4len >= 8);
    memcpy(seen->l4, e->l4, MIN(e->l4len, sizeof(seen->l4)));
}

static const struct ip_proto test_proto = {.input = proto_input, .error = proto_error};

struct ipaddr addr(const char *text)
{
    struct ipaddr a;

    assert_int_equal(ipaddr_parse(text, &a), 0);
    return a;
}

static void add_addr(struct host *h, const char *text, unsigned prefixlen, const char *gateway)
{
    struct ipaddr a = addr(text), gw = addr(gateway), any = {.family = a.family};

    assert_int_equal(netif_add_addr(h->nif, &a, prefixlen), 0);
    assert_int_equal(ip_route_add(&h->s, &any, 0, &gw, h->nif), 0);
}

struct host *host_create(uint32_t caps)
{
    struct host *h =
        aligned_alloc(CACHE_LINE, (sizeof(*h) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    uint8_t seed[RNG_SEED_BYTES] = {7};
    struct netif_config cfg = {
        .name = "test0", .ops = &link_ops, .link = h, .caps = caps, .mtu = 1500};

    assert_non_null(h);
    memset(h, 0, sizeof(*h));
    the_host = h;
    base_panic_hook = panic;
    bytes_out = 0;
    mbuf_pools_drain();
    mbuf_pools_init(&counting);
    h->tx_room = SIZE_MAX;
    h->s.now = 1000 * NS_PER_S;
    h->s.alloc = counting;
    h->s.port = &h->port;
    rng_init(&h->s.rng, seed);
    rng_bytes(&h->s.rng, h->s.secret, sizeof(h->s.secret));
    wheel_init(&h->s.wheel, h->s.now);
    sysctl_init(&h->s.knobs);
    h->s.account = mbuf_account_create(INT64_C(1) << 30);
    assert_non_null(h->s.account);
    assert_int_equal(ip_init(&h->s), 0);
    ip_register(&h->s, PROTO_TEST, &test_proto);
    memcpy(cfg.mac, host_mac, 6);
    h->nif = netif_create(&h->s, &cfg);
    assert_non_null(h->nif);
    add_addr(h, "10.0.0.1", 24, "10.0.0.254");
    add_addr(h, "fd00::1", 64, "fd00::fe");
    host_run(h, NS_PER_S);
    host_forget(h); /* announcements and listener reports */
    return h;
}

void host_destroy(struct host *h)
{
    int64_t mbufs, bytes;

    host_forget(h);
    ip_fini(&h->s);
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(h->s.wheel.armed, 0);
    mbuf_account_drop(h->s.account);
    mbuf_pools_drain();
    assert_int_equal(bytes_out, 0);
    free(h);
}

static void settle(struct host *h)
{
    while (netif_poll(h->s.ip->loopback, 64) > 0)
        ;
    if (h->nif != NULL)
        netif_flush(h->nif);
}

void host_run(struct host *h, uint64_t ns)
{
    uint64_t end = h->s.now + ns, next;

    settle(h);
    while ((next = wheel_next(&h->s.wheel)) <= end) {
        h->s.now = MAX(next, h->s.now);
        wheel_advance(&h->s.wheel, h->s.now);
        settle(h);
    }
    h->s.now = end;
    wheel_advance(&h->s.wheel, end);
    settle(h);
}

struct frame *host_next(struct host *h)
{
    struct frame *f;

    settle(h);
    if (h->out_count == 0)
        return NULL;
    f = h->out[0];
    memmove(h->out, h->out + 1, --h->out_count * sizeof(f));
    return f;
}

struct frame *host_next_packet(struct host *h)
{
    struct frame *f;

    while ((f = host_next(h)) != NULL) {
        const uint8_t *p = ip_of(h, f);
        bool arp = !(h->nif->caps & NETIF_CAP_L3) && get_be16(f->b + 12) == ETH_TYPE_ARP;

        if (!arp && (p[0] >> 4 == 4 || p[6] != IPPROTO_ICMPV6 || p[40] < ICMP6_ROUTER_SOLICIT))
            break;
        free(f);
    }
    return f;
}

void host_forget(struct host *h)
{
    struct frame *f;

    while ((f = host_next(h)) != NULL)
        free(f);
}

void host_inject(struct host *h, const void *frame, size_t len)
{
    const uint8_t *p = frame;
    struct mbuf *head = mbuf_get_packet(h->s.account), *m = head;
    size_t off = 0;

    assert_non_null(head);
    head->m_pkt.len = (uint32_t)len;
    if (len <= MBUF_INLINE - MBUF_HEADROOM && h->chunk == 0) {
        memcpy(head->m_data, p, len);
        head->m_len = (uint32_t)len;
        off = len;
    }
    while (off < len) {
        /* The exact size, in storage of its own, so that reading beyond it is noticed. */
        size_t n = h->chunk != 0 ? MIN(len - off, (size_t)h->chunk) : len - off;

        m->m_next = mbuf_get_size(h->s.account, n);
        m = m->m_next;
        assert_non_null(m);
        m->m_data = mbuf_start(m) + mbuf_storage(m) - n;
        memcpy(m->m_data, p + off, n);
        m->m_len = (uint32_t)n;
        off += n;
    }
    netif_input(h->nif, &head);
    assert_null(head);
}

const uint8_t *ip_of(const struct host *h, const struct frame *f)
{
    return h->nif->caps & NETIF_CAP_L3 ? f->b : f->b + ETH_HEADER_LEN;
}

static size_t link_header(struct host *h, uint8_t *frame, uint16_t type)
{
    struct eth_header eth = {.type = type};

    if (h->nif->caps & NETIF_CAP_L3)
        return 0;
    memcpy(eth.dst, host_mac, 6);
    memcpy(eth.src, peer_mac, 6);
    eth_header_build(frame, &eth);
    return ETH_HEADER_LEN;
}

size_t make4(struct host *h, uint8_t *frame, const struct ip4_spec *spec, const void *data,
             size_t len)
{
    size_t n = link_header(h, frame, ETH_TYPE_IPV4), hlen = IPV4_HEADER_LEN + spec->options_len;
    uint8_t *p = frame + n;
    struct ipv4_header ip = {.hlen = IPV4_HEADER_LEN,
                             .tos = spec->tos,
                             .len = (uint16_t)(hlen + len),
                             .id = spec->id,
                             .frag_off = spec->off,
                             .df = spec->df,
                             .mf = spec->mf,
                             .ttl = spec->ttl ? spec->ttl : 64,
                             .proto = spec->proto,
                             .src = addr(spec->src ? spec->src : "10.0.0.2"),
                             .dst = addr(spec->dst ? spec->dst : "10.0.0.1")};

    ipv4_header_build(p, &ip);
    if (spec->options_len != 0) {
        p[0] = (uint8_t)(0x40 | hlen / 4);
        memcpy(p + IPV4_HEADER_LEN, spec->options, spec->options_len);
        ipv4_sum_update(p, hlen);
    }
    memcpy(p + hlen, data, len);
    return n + hlen + len;
}

size_t make6(struct host *h, uint8_t *frame, const char *src, const char *dst, uint8_t next,
             const void *data, size_t len)
{
    size_t n = link_header(h, frame, ETH_TYPE_IPV6);
    struct ipv6_header ip = {.plen = (uint16_t)len, .next = next, .hlim = 64};

    ip.src = addr(src ? src : "fd00::2");
    ip.dst = addr(dst ? dst : "fd00::1");
    if (next == IPPROTO_ICMPV6)
        ip.hlim = 255;
    ipv6_header_build(frame + n, &ip);
    memcpy(frame + n + IPV6_HEADER_LEN, data, len);
    return n + IPV6_HEADER_LEN + len;
}

void inject4(struct host *h, const struct ip4_spec *spec, const void *data, size_t len)
{
    static uint8_t frame[70000];

    host_inject(h, frame, make4(h, frame, spec, data, len));
}

void inject6(struct host *h, const char *src, const char *dst, uint8_t next, const void *data,
             size_t len)
{
    static uint8_t frame[70000];

    host_inject(h, frame, make6(h, frame, src, dst, next, data, len));
}

void fill_sum(uint8_t *p, size_t len, size_t off, const char *src, const char *dst, uint8_t proto)
{
    uint64_t sum = 0;
    uint16_t folded;

    if (proto != 0) {
        struct ipaddr a = addr(src), b = addr(dst);

        sum = checksum_pseudo(&a, &b, proto, (uint32_t)len);
    }
    memset(p + off, 0, 2);
    folded = (uint16_t)~checksum_fold(checksum_add(p, len, sum));
    memcpy(p + off, &folded, 2);
}

static void learn4(struct host *h, const char *who)
{
    uint8_t frame[64];
    struct arp_packet a = {.op = ARP_REQUEST, .spa = addr(who), .tpa = addr("10.0.0.1")};
    size_t n = link_header(h, frame, ETH_TYPE_ARP);

    memcpy(a.sha, peer_mac, 6);
    arp_build(frame + n, &a);
    host_inject(h, frame, n + ARP_LEN);
}

static void learn6(struct host *h, const char *who)
{
    uint8_t raw[ND_NEIGHBOR_LEN + 8];
    struct nd_neighbor nd = {
        .type = ICMP6_NEIGHBOR_SOLICIT, .target = addr("fd00::1"), .has_lladdr = true};
    size_t len;

    memcpy(nd.lladdr, peer_mac, 6);
    len = nd_neighbor_build(raw, &nd);
    fill_sum(raw, len, 2, who, "fd00::1", IPPROTO_ICMPV6);
    inject6(h, who, "fd00::1", IPPROTO_ICMPV6, raw, len);
}

void host_learn_peers(struct host *h)
{
    learn4(h, "10.0.0.2");
    learn4(h, "10.0.0.254");
    learn6(h, "fd00::2");
    learn6(h, "fd00::fe");
    host_forget(h);
}

int host_send(struct host *h, const char *dst, uint32_t len, bool df)
{
    struct ip_output_args a = {.dst = addr(dst), .proto = PROTO_TEST, .df = df};
    struct mbuf *m = mbuf_get_packet(h->s.account);
    struct route r;
    uint32_t i;

    assert_non_null(m);
    if (ip_route(&h->s, &a.dst, NULL, &r) == 0)
        a.src = r.src;
    if (len > 0) {
        uint8_t *bytes = malloc(len);

        for (i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i ^ i >> 8);
        m->m_next = mbuf_from_bytes(h->s.account, bytes, len);
        free(bytes);
        assert_non_null(m->m_next);
    }
    m->m_pkt.len = len;
    return ip_output(&h->s, &m, &a);
}

size_t quote4(uint8_t *p, const char *src, const char *dst, uint8_t proto, uint16_t total)
{
    struct ipv4_header ip = {.hlen = IPV4_HEADER_LEN,
                             .len = total,
                             .df = true,
                             .ttl = 60,
                             .proto = proto,
                             .src = addr(src),
                             .dst = addr(dst)};

    ipv4_header_build(p, &ip);
    memset(p + IPV4_HEADER_LEN, 0x11, 8);
    return IPV4_HEADER_LEN + 8;
}
