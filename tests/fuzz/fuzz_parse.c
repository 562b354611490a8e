/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: no parser reads beyond its bytes, whatever they are, none loops, and what one takes can be
 * built again and parses to the same. Bound: one call of one parser an input.
 *
 * The input: a byte that names the parser, then its bytes, given in memory of exactly their size.
 */
#include "fuzz.h"

#include "base/stack.h"
#include "link/link_frame.h"
#include "link/link_spec.h"
#include "link/link_vnet.h"
#include "wire/addr.h"
#include "wire/arp.h"
#include "wire/eth.h"
#include "wire/icmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"
#include "wire/wire.h"

#define MAX_LEN 2048

/* --- TCP --- */
static void same_options(const struct tcp_options *a, const struct tcp_options *b)
{
    FUZZ_CHECK(a->flags == b->flags);
    if (a->flags & TOF_MSS)
        FUZZ_CHECK(a->mss == b->mss);
    if (a->flags & TOF_SCALE)
        FUZZ_CHECK(a->wscale == b->wscale);
    if (a->flags & TOF_TS)
        FUZZ_CHECK(a->tsval == b->tsval && a->tsecr == b->tsecr);
    FUZZ_CHECK(a->nsack <= TCP_MAX_SACK_BLOCKS && b->nsack <= a->nsack);
    if (b->nsack)
        FUZZ_CHECK(memcmp(a->sack, b->sack, b->nsack * sizeof(a->sack[0])) == 0);
}

static void parse_tcp_options(const uint8_t *p, size_t n)
{
    for (int syn = 0; syn < 2; syn++) {
        struct tcp_options o = {0}, again = {0};
        uint8_t built[TCP_MAX_OPTIONS];
        tcp_options_parse(p, MIN(n, (size_t)TCP_MAX_OPTIONS), syn, &o);
        FUZZ_CHECK(!(o.flags & (syn ? TOF_SACK : TOF_MSS | TOF_SCALE | TOF_SACKPERM)));
        o.flags &= (uint8_t)~TOF_BAD;
        for (int order = 0; order < 2; order++) {
            unsigned len = tcp_options_build(built, &o, syn, (enum tcp_option_order)order);
            FUZZ_CHECK(len <= TCP_MAX_OPTIONS && len % 4 == 0);
            tcp_options_parse(built, len, syn, &again);
            same_options(&o, &again);
        }
    }
}

static void parse_tcp_header(const uint8_t *p, size_t n)
{
    struct tcp_header h, again;
    uint8_t built[TCP_HEADER_LEN];
    if (tcp_header_parse(p, n, &h))
        return;
    FUZZ_CHECK(h.off >= TCP_HEADER_LEN && h.off <= 60 && n >= TCP_HEADER_LEN);
    tcp_header_build(built, &h);
    FUZZ_CHECK(tcp_header_parse(built, h.off, &again) == 0);
    FUZZ_CHECK(h.seq == again.seq && h.ack == again.ack && h.flags == again.flags &&
               h.off == again.off && h.win == again.win && h.urp == again.urp &&
               h.sport == again.sport && h.dport == again.dport);
}

/* --- IP --- */
static void parse_ipv4(const uint8_t *p, size_t n)
{
    struct ipv4_header h, again;
    unsigned seen, bad;
    uint8_t built[IPV4_HEADER_LEN];
    if (ipv4_header_parse(p, n, &h))
        return;
    FUZZ_CHECK(h.hlen >= IPV4_HEADER_LEN && h.hlen <= h.len && h.len <= n);
    (void)ipv4_sum_is_ok(p, h.hlen);
    if (ipv4_options_scan(p, h.hlen, &seen, &bad))
        FUZZ_CHECK(bad >= IPV4_HEADER_LEN && bad <= h.hlen);
    h.len = (uint16_t)(h.len - h.hlen + IPV4_HEADER_LEN);
    h.hlen = IPV4_HEADER_LEN;
    ipv4_header_build(built, &h);
    FUZZ_CHECK(ipv4_sum_is_ok(built, sizeof(built)));
    FUZZ_CHECK(h.len > n || ipv4_header_parse(built, h.len, &again) == 0);
}

/* All of a packet's extension headers: the walk goes on, ends within its bounds, and points inside.
 */
static void parse_ipv6(const uint8_t *p, size_t n)
{
    struct ipv6_header h;
    struct ipv6_walk w;
    if (ipv6_header_parse(p, n, &h))
        return;
    uint32_t len = IPV6_HEADER_LEN + h.plen;
    FUZZ_CHECK(len <= n);
    ipv6_walk_init(&w, &h);
    for (int i = 0; i < 64; i++) {
        uint32_t before = w.off;
        enum ipv6_walk_result r = ipv6_walk(p, len, &w);
        FUZZ_CHECK(w.off >= before && w.off <= len && w.next_off < w.off);
        FUZZ_CHECK(w.off <= IPV6_HEADER_LEN + IPV6_MAX_EXT_BYTES + IPV6_FRAG_HEADER_LEN * 64u);
        if (r == IPV6_WALK_PARAM)
            FUZZ_CHECK(w.pointer < len && w.code <= 2);
        if (r != IPV6_WALK_FRAGMENT)
            return;
        struct ipv6_fragment f, again;
        uint8_t built[IPV6_FRAG_HEADER_LEN];
        FUZZ_CHECK(ipv6_fragment_parse(p + w.off, len - w.off, &f) == 0);
        ipv6_fragment_build(built, &f);
        FUZZ_CHECK(ipv6_fragment_parse(built, sizeof(built), &again) == 0 && f.off == again.off &&
                   f.more == again.more && f.id == again.id && f.next == again.next);
        ipv6_walk_skip_fragment(&w, &f);
    }
    FUZZ_CHECK(!"the walk ends");
}

static void parse_small(const uint8_t *p, size_t n)
{
    struct eth_header eh;
    struct arp_packet arp;
    struct icmp_header ih;
    struct nd_neighbor nd, again;
    struct udp_header uh;
    uint8_t built[ND_NEIGHBOR_LEN + 8];
    if (eth_header_parse(p, n, &eh) == 0) {
        eth_header_build(built, &eh);
        FUZZ_CHECK(memcmp(built, p, ETH_HEADER_LEN) == 0);
    }
    if (arp_parse(p, n, &arp) == 0)
        FUZZ_CHECK(arp.op == ARP_REQUEST || arp.op == ARP_REPLY);
    if (icmp_header_parse(p, n, &ih) == 0) {
        icmp_header_build(built, &ih);
        FUZZ_CHECK(memcmp(built, p, ICMP_HEADER_LEN) == 0);
    }
    if (udp_header_parse(p, n, &uh) == 0)
        FUZZ_CHECK(uh.len >= UDP_HEADER_LEN && uh.len <= n);
    if (n && (p[0] == ICMP6_NEIGHBOR_SOLICIT || p[0] == ICMP6_NEIGHBOR_ADVERT) &&
        nd_neighbor_parse(p, n, &nd) == 0) {
        size_t len = nd_neighbor_build(built, &nd);
        FUZZ_CHECK(nd_neighbor_parse(built, len, &again) == 0 &&
                   ipaddr_equal(&nd.target, &again.target) && nd.has_lladdr == again.has_lladdr &&
                   nd.flags == again.flags);
    }
}

static void parse_address(const uint8_t *p, size_t n)
{
    struct ipaddr a, b;
    char text[128] = "", shown[64];
    uint16_t port;
    bool mapped;
    struct sockaddr_storage ss = {0};
    memcpy(text, p, MIN(n, sizeof(text) - 1));
    if (ipaddr_parse(text, &a) == 0) {
        ipaddr_format(&a, shown, sizeof(shown));
        FUZZ_CHECK(ipaddr_parse(shown, &b) == 0 && ipaddr_equal(&a, &b));
    }
    memcpy(&ss, p, MIN(n, sizeof(ss)));
    if (n & 1)
        ss.ss_family = n & 2 ? AF_INET6 : AF_INET;
    if (sockaddr_to_ipaddr((struct sockaddr *)&ss, (socklen_t)MIN(n, sizeof(ss)), &a, &port,
                           &mapped) == 0) {
        struct sockaddr_storage out;
        uint16_t port2;
        socklen_t len = ipaddr_to_sockaddr(&a, port, mapped ? AF_INET6 : a.family, &out);
        FUZZ_CHECK(sockaddr_to_ipaddr((struct sockaddr *)&out, len, &b, &port2, NULL) == 0);
        FUZZ_CHECK(port == port2 && ipaddr_equal(&a, &b));
    }
}

/* --- links --- */
static void parse_frame(const uint8_t *p, size_t n)
{
    struct link_frame f;
    size_t have = n > 3 ? n - 1 - p[0] % 3u : n;
    for (int bare = 0; bare < 2; bare++) {
        uint32_t frame_len = (uint32_t)have + (n > 1 && p[1] & 1 ? 2000 : 0);
        link_frame_parse(p, have, frame_len, bare, &f);
        FUZZ_CHECK(f.family == 0 || f.end <= frame_len);
        if (f.family && f.proto)
            FUZZ_CHECK(f.l3 < f.l4 && f.l4 < f.payload && f.payload <= f.end);
    }
}

static void *plain_alloc(void *ctx, size_t size)
{
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void plain_free(void *ctx, void *p, size_t size)
{
    free(p);
}

/* A frame as a TAP hands it over, with a header that a far sender may have shaped: what the marks
 * ask for is done without a fault. */
static void parse_vnet(const uint8_t *p, size_t n)
{
    static const struct weir_alloc plain = {plain_alloc, plain_free, NULL};
    struct virtio_net_hdr_v1 h;
    int64_t mbufs, bytes;
    if (n < sizeof(h) + 2)
        return;
    memcpy(&h, p, sizeof(h));
    p += sizeof(h);
    n -= sizeof(h);
    uint32_t more = p[0] & 0x80 ? 3000 : 0; /* payload of a superframe, as zeros */
    bool bare = p[0] & 1;
    mbuf_pools_init(&plain);
    struct mbuf_account *acct = mbuf_account_create(1 << 24);
    struct mbuf *m = mbuf_get_size(acct, n + more), *list = NULL;
    FUZZ_CHECK(m);
    memcpy(m->m_data, p + 1, n - 1);
    memset(m->m_data + n - 1, 0, more);
    m->m_len = (uint32_t)n - 1 + more;
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = m->m_len, .segs = 1};
    if (m->m_len && link_vnet_apply(&h, m) == 0) {
        uint32_t whole = m->m_pkt.len, total = 0, segsz = m->m_pkt.tso_segsz;
        int count = link_tso_cut(acct, &m, bare, &list);
        FUZZ_CHECK(!m);
        for (int i = 0; list; i++) {
            struct mbuf *one = list;
            list = one->m_nextpkt;
            one->m_nextpkt = NULL;
            FUZZ_CHECK(i < count && one->m_pkt.len == mbuf_chain_len(one));
            total += one->m_pkt.len;
            (void)!link_csum_complete(&one);
            mbuf_free_chain(&one);
        }
        FUZZ_CHECK(count < 0 || segsz || total == whole);
    }
    mbuf_free_chain(&m);
    mbuf_usage(&mbufs, &bytes);
    FUZZ_CHECK(mbufs == 0 && bytes == 0);
    mbuf_account_drop(acct);
}

static void parse_spec(const uint8_t *p, size_t n)
{
    struct link_spec spec;
    char err[200] = "", *text = malloc(n + 1);
    FUZZ_CHECK(text);
    memcpy(text, p, n);
    text[n] = '\0';
    memset(err, 'x', sizeof(err));
    if (link_spec_parse(text, &spec, err, sizeof(err))) {
        FUZZ_CHECK(memchr(err, '\0', sizeof(err)) && err[0]);
    } else {
        FUZZ_CHECK(spec.addr_count <= NETIF_MAX_ADDRS && spec.peer_count <= NETIF_MAX_ADDRS);
        FUZZ_CHECK(spec.mtu == 0 || (spec.mtu >= 576 && spec.mtu <= 65535));
        FUZZ_CHECK(spec.queues <= LINK_SPEC_MAX_QUEUES);
        FUZZ_CHECK(memchr(spec.name, '\0', sizeof(spec.name)) &&
                   memchr(spec.capture, '\0', sizeof(spec.capture)));
    }
    /* With room for nothing. */
    (void)!link_spec_parse(text, &spec, err, 1);
    FUZZ_CHECK(err[0] == '\0');
    free(text);
}

/* "NAME=VALUE": what is taken can be read, and written again. */
static void parse_sysctl(const uint8_t *p, size_t n)
{
    static struct weir_stack s;
    char text[300] = "", value[128];
    sysctl_init(&s.knobs);
    if (n && p[0] < KNOB_COUNT) { /* a true name by its number */
        int len = snprintf(text, sizeof(text), "%s=", knob_table[p[0]].name);
        memcpy(text + len, p + 1, MIN(n - 1, sizeof(text) - 1 - (size_t)len));
    } else {
        memcpy(text, p, MIN(n, sizeof(text) - 1));
    }
    char *eq = strchr(text, '=');
    if (!eq)
        return;
    *eq = '\0';
    int id = sysctl_find(text), error = sysctl_set(&s, text, eq + 1);
    FUZZ_CHECK(id >= 0 || error == -ENOENT);
    if (error)
        return;
    const struct knob_info *k = &knob_table[id];
    FUZZ_CHECK(sysctl_get(&s, text, value, sizeof(value)) == 0);
    FUZZ_CHECK(sysctl_set(&s, text, value) == 0);
    if (k->type == KNOB_TYPE_INT) {
        long long v = strtoll(value, NULL, 10);
        FUZZ_CHECK(v >= k->min && v <= k->max);
    }
    sysctl_init(&s.knobs); /* the process's knobs too */
}

/* case: SEC-043, SEC-047 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(const uint8_t *, size_t) = {
        parse_tcp_options, parse_tcp_header, parse_ipv4, parse_ipv6,   parse_small,
        parse_address,     parse_frame,      parse_spec, parse_sysctl, parse_vnet,
    };
    if (size < 1 || size > MAX_LEN)
        return 0;
    size_t n = size - 1;
    uint8_t *exact = malloc(n ? n : 1);
    FUZZ_CHECK(exact);
    memcpy(exact, data + 1, n);
    parsers[data[0] % NELEM(parsers)](exact, n);
    free(exact);
    return 0;
}

/* --- seeds --- */
static void seed_text(struct fuzz_out *o, unsigned parser, const char *text)
{
    fuzz_put8(o, parser);
    fuzz_put(o, text, strlen(text));
}

/* An IPv6 packet with extension headers of the named kinds. */
static void seed_ipv6(struct fuzz_out *o, const uint8_t *kinds, unsigned n)
{
    struct ipv6_header h = {.next = kinds[0], .hlim = 64, .plen = (uint16_t)(8 * n + 8)};
    uint8_t bytes[IPV6_HEADER_LEN];
    ipv6_header_build(bytes, &h);
    fuzz_put8(o, 3);
    fuzz_put(o, bytes, sizeof(bytes));
    for (unsigned i = 0; i < n; i++) {
        fuzz_put8(o, i + 1 < n ? kinds[i + 1] : IPPROTO_UDP);
        fuzz_put(o, kinds[i] == IPV6_NH_ROUTING ? "\0\0\0\0\0\0\0" : "\0\1\4\0\0\0\0", 7);
    }
    fuzz_put(o, "\0\7\0\7\0\10\0\0", 8);
}

static void seed_headers(unsigned i, struct fuzz_out *o)
{
    uint8_t b[64] = {0};
    struct ipv4_header ih = {.hlen = 20, .len = 28, .ttl = 64, .proto = IPPROTO_UDP};
    struct tcp_header th = {.sport = 1, .dport = 2, .off = 20, .flags = TH_SYN};
    struct nd_neighbor nd = {
        .type = ICMP6_NEIGHBOR_ADVERT, .target = {.family = AF_INET6}, .has_lladdr = true};
    ipv4_header_build(b, &ih);
    switch (i) {
    case 0:
        fuzz_put8(o, 2);
        fuzz_put(o, b, 28);
        break;
    case 1:
        tcp_header_build(b, &th);
        fuzz_put8(o, 1);
        fuzz_put(o, b, 20);
        break;
    case 2:
        fuzz_put8(o, 4);
        fuzz_put(o, b, nd_neighbor_build(b, &nd));
        break;
    default:
        fuzz_put8(o, i == 3 ? 6 : 9);
        if (i > 3) /* needs a checksum; a superframe of 1000 byte segments; and more to come */
            fuzz_put(o, "\1\1\66\0\350\3\42\0\20\0\0\0\x80", 13);
        fuzz_put(o, "\0\0\0\0\0\0\0\0\0\0\0\0\10\0", 14);
        ih.proto = IPPROTO_TCP;
        ih.len = i == 3 ? 60 : 3040;
        ipv4_header_build(b, &ih);
        tcp_header_build(b + 20, &th);
        fuzz_put(o, b, i == 3 ? 60 : 40);
    }
}

static void seed(unsigned i, struct fuzz_out *o)
{
    static const char *const options[] = {"\2\4\5\xb4\4\2\10\12\1\1\1\1\1\1\1\1\1\3\3\7",
                                          "\1\1\10\12\1\1\1\1\1\1\1\1\1\1\5\12\1\1\1\1\1\1\2\1",
                                          "\2\4\1", "\5\x22\1\1"};
    static const char *const specs[] = {
        "mem",
        "tap:tap0,addr=10.0.0.2/24,gw=10.0.0.1,addr6=fd00::2/"
        "64,mtu=9000,queues=2,mac=02:00:00:00:00:01",
        "mem:x,peer=10.0.0.1/"
        "24,delay=20ms,rate=100Mbit,loss=1%,reorder=10%:2,dup=0.5%,corrupt=1%,queue=100p,seed=7",
        "mem,ecn=5%,coalesce=25us,queue=64k,capture=/tmp/x,peer6=fd00::1/64,gw6=fd00::3"};
    static const char *const knobs[] = {
        "net.inet.tcp.msl=1000", "net.inet.tcp.cc.algorithm=newreno", "net.inet.tcp.sack.enable=0",
        "kern.ipc.maxsockbuf=99999999999999999999"};
    static const char *const addresses[] = {"10.0.0.1", "fe80::1:2", "::ffff:1.2.3.4",
                                            "2001:db8::1"};
    static const uint8_t chains[4][5] = {
        {0, 60, 43, 60, 60}, {43, 43, 44, 60, 60}, {60, 44, 44, 43, 0}, {44, 60, 59, 0, 0}};
    if (i < 4)
        seed_text(o, 0, options[i]);
    else if (i < 8)
        seed_text(o, 7, specs[i - 4]);
    else if (i < 12)
        seed_text(o, 8, knobs[i - 8]);
    else if (i < 16)
        seed_text(o, 5, addresses[i - 12]);
    else if (i < 20)
        seed_ipv6(o, chains[i - 16], 5);
    else
        seed_headers(i - 20, o);
}

const struct fuzz_target fuzz_target = {"fuzz_parse", MAX_LEN, 25, seed};
