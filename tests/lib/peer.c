/* SPDX-License-Identifier: BSD-2-Clause
 * A scripted peer: see peer.h. */
#include "peer.h"

#include "ip/ip.h"
#include "wire/checksum.h"
#include <bsd/sys/queue.h>
#include <fcntl.h>

struct emitted {
    STAILQ_ENTRY(emitted) link;
    uint64_t when_ns;
    size_t len;
    uint8_t bytes[];
};

struct peer {
    struct sim *sim;
    struct weir_stack *s;
    struct ipaddr local, remote;
    STAILQ_HEAD(, emitted) out;
    struct mbuf *in, **in_tail;
    bool hold;
};

/* --- the link --- */
static size_t peer_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct peer *p = link;
    for (size_t i = 0; i < n; i++) {
        uint32_t len = frames[i]->m_pkt.len;
        struct emitted *e = malloc(sizeof(*e) + len);
        REQUIRE(e && len == mbuf_chain_len(frames[i]));
        e->when_ns = now_ns;
        e->len = len;
        mbuf_copy_out(frames[i], 0, len, e->bytes);
        STAILQ_INSERT_TAIL(&p->out, e, link);
        mbuf_free_chain(&frames[i]);
    }
    return n;
}

static size_t peer_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct peer *p = link;
    size_t i = 0;
    while (i < n && p->in) {
        frames[i] = p->in;
        p->in = p->in->m_nextpkt;
        frames[i++]->m_nextpkt = NULL;
    }
    if (!p->in)
        p->in_tail = &p->in;
    return i;
}

static uint64_t peer_deadline(void *link)
{
    return TIME_NEVER;
}

static bool peer_pending(void *link)
{
    return ((struct peer *)link)->in != NULL;
}

static void peer_close(void *link)
{
    struct peer *p = link;
    peer_drain(p);
    while (p->in) {
        struct mbuf *m = p->in;
        p->in = m->m_nextpkt;
        mbuf_free_chain(&m);
    }
    free(p);
}

static const struct netif_ops peer_ops = {
    .tx = peer_tx,
    .rx = peer_rx,
    .next_deadline = peer_deadline,
    .pending = peer_pending,
    .close = peer_close,
};

struct peer *peer_create(struct sim *sim, struct weir_stack *s, const char *local,
                         const char *remote, uint32_t mtu)
{
    struct peer *p = calloc(1, sizeof(*p));
    REQUIRE(p);
    p->sim = sim;
    p->s = s;
    REQUIRE(ipaddr_parse(local, &p->local) == 0 && ipaddr_parse(remote, &p->remote) == 0);
    STAILQ_INIT(&p->out);
    p->in_tail = &p->in;
    struct netif_config cfg = {.name = "peer0",
                               .ops = &peer_ops,
                               .link = p,
                               .caps = NETIF_CAP_L3,
                               .mtu = mtu ? mtu : 1500};
    REQUIRE(owner_try(s));
    struct netif *nif = netif_create(s, &cfg);
    REQUIRE(nif);
    bool v4 = p->local.family == AF_INET;
    REQUIRE(netif_add_addr(nif, &p->local, v4 ? 24 : 64) == 0);
    struct ipaddr any = {.family = p->local.family};
    REQUIRE(ip_route_add(s, &any, 0, NULL, nif) == 0);
    stack_flush(s, sim_now(sim));
    stack_leave(s);
    peer_drain(p);
    return p;
}

const struct ipaddr *peer_local(const struct peer *p)
{
    return &p->local;
}

const struct ipaddr *peer_remote(const struct peer *p)
{
    return &p->remote;
}

struct sim *peer_sim(const struct peer *p)
{
    return p->sim;
}

/* --- what comes out --- */
static void parse_ip(struct packet *k)
{
    const uint8_t *b = k->raw;
    size_t hlen;
    if (b[0] >> 4 == 4) {
        hlen = (b[0] & 15) * 4u;
        REQUIRE(hlen == 20 && get_be16(b + 2) == k->rawlen);
        REQUIRE(checksum_fold(checksum_add(b, 20, 0)) == 0xffff);
        k->proto = b[9];
        k->ttl = b[8];
        k->tos = b[1];
        k->src.family = k->dst.family = AF_INET;
        memcpy(k->src.b, b + 12, 4);
        memcpy(k->dst.b, b + 16, 4);
    } else {
        hlen = 40;
        REQUIRE(b[0] >> 4 == 6 && get_be16(b + 4) + 40u == k->rawlen);
        k->proto = b[6];
        k->ttl = b[7];
        k->tos = (uint8_t)(get_be16(b) >> 4);
        k->src.family = k->dst.family = AF_INET6;
        memcpy(k->src.b, b + 8, 16);
        memcpy(k->dst.b, b + 24, 16);
    }
    k->l4 = b + hlen;
    k->l4len = (uint32_t)(k->rawlen - hlen);
}

static void parse_tcp(struct packet *k)
{
    REQUIRE(tcp_header_parse(k->l4, k->l4len, &k->th) == 0);
    uint64_t sum = checksum_pseudo(&k->src, &k->dst, IPPROTO_TCP, k->l4len);
    REQUIRE(checksum_fold(checksum_add(k->l4, k->l4len, sum)) == 0xffff);
    REQUIRE(k->th.off <= k->l4len);
    k->optlen = k->th.off - TCP_HEADER_LEN;
    memcpy(k->opt, k->l4 + TCP_HEADER_LEN, k->optlen);
    tcp_options_parse(k->opt, k->optlen, k->th.flags & TH_SYN, &k->to);
    REQUIRE(!(k->to.flags & TOF_BAD));
    k->data = k->l4 + k->th.off;
    k->len = k->l4len - k->th.off;
}

static bool has_output(void *ctx)
{
    return !STAILQ_EMPTY(&((struct peer *)ctx)->out);
}

bool peer_next(struct peer *p, struct packet *k, uint64_t within_ns)
{
    if (!sim_run_until(p->sim, has_output, p, within_ns))
        return false;
    struct emitted *e = STAILQ_FIRST(&p->out);
    STAILQ_REMOVE_HEAD(&p->out, link);
    memset(k, 0, offsetof(struct packet, raw));
    REQUIRE(e->len >= 20 && e->len <= sizeof(k->raw));
    k->when_ns = e->when_ns;
    k->rawlen = e->len;
    memcpy(k->raw, e->bytes, e->len);
    free(e);
    parse_ip(k);
    if (k->proto == IPPROTO_TCP)
        parse_tcp(k);
    return true;
}

bool peer_quiet(struct peer *p, uint64_t ns)
{
    return !sim_run_until(p->sim, has_output, p, ns);
}

void peer_drain(struct peer *p)
{
    struct emitted *e;
    while ((e = STAILQ_FIRST(&p->out))) {
        STAILQ_REMOVE_HEAD(&p->out, link);
        free(e);
    }
}

/* --- what goes in --- */
void peer_inject(struct peer *p, const void *ip, size_t len)
{
    struct mbuf *m = mbuf_get_packet(p->s->account);
    REQUIRE(m);
    if (len > MBUF_INLINE - MBUF_HEADROOM) {
        mbuf_free_chain(&m);
        m = mbuf_from_bytes(p->s->account, ip, len);
        REQUIRE(m);
        m->m_flags |= M_PKTHDR;
        memset(&m->m_pkt, 0, sizeof(m->m_pkt));
        m->m_pkt.segs = 1;
    } else {
        memcpy(m->m_data, ip, len);
        m->m_len = (uint32_t)len;
    }
    m->m_pkt.len = (uint32_t)len;
    *p->in_tail = m;
    p->in_tail = &m->m_nextpkt;
    if (!p->hold)
        sim_settle(p->sim);
}

void peer_hold(struct peer *p, bool on)
{
    p->hold = on;
    if (!on)
        sim_settle(p->sim);
}

static void inject_ip(struct peer *p, const struct ipaddr *from, uint8_t proto, uint8_t tos,
                      const void *l4, size_t len)
{
    static uint8_t b[66000];
    const struct ipaddr *src = from ? from : &p->remote;
    if (p->local.family == AF_INET) {
        memset(b, 0, 20);
        b[0] = 0x45;
        b[1] = tos;
        put_be16(b + 2, (uint16_t)(20 + len));
        b[8] = 64;
        b[9] = proto;
        memcpy(b + 12, src->b, 4);
        memcpy(b + 16, p->local.b, 4);
        uint16_t sum = (uint16_t)~checksum_fold(checksum_add(b, 20, 0));
        memcpy(b + 10, &sum, 2);
        memcpy(b + 20, l4, len);
        peer_inject(p, b, 20 + len);
        return;
    }
    memset(b, 0, 40);
    put_be32(b, 0x60000000u | (uint32_t)tos << 20);
    put_be16(b + 4, (uint16_t)len);
    b[6] = proto;
    b[7] = 64;
    memcpy(b + 8, src->b, 16);
    memcpy(b + 24, p->local.b, 16);
    memcpy(b + 40, l4, len);
    peer_inject(p, b, 40 + len);
}

void peer_inject_ip(struct peer *p, const struct ipaddr *from, uint8_t proto, const void *l4,
                    size_t len)
{
    inject_ip(p, from, proto, 0, l4, len);
}

/* --- connections --- */
uint8_t peer_pattern(uint32_t offset)
{
    return (uint8_t)(offset * 31u + (offset >> 8) * 7u + (offset >> 16));
}

void conn_init(struct conn *c, struct peer *p, uint16_t sport, uint16_t dport)
{
    *c = (struct conn){.p = p,
                       .sport = sport,
                       .dport = dport,
                       .iss = 1000,
                       .snd_nxt = 1000,
                       .win = 65535,
                       .ts = true,
                       .tsval = 100,
                       .ts_per_ms = 1,
                       .ts_base_ns = sim_now(p->sim),
                       .wscale = 7,
                       .sack = true,
                       .fd = -1};
    c->mss = p->local.family == AF_INET ? 1460 : 1440;
}

static uint32_t conn_tsval(const struct conn *c)
{
    return c->tsval + (uint32_t)((sim_now(c->p->sim) - c->ts_base_ns) / NS_PER_MS) * c->ts_per_ms;
}

static unsigned build_options(const struct conn *c, const struct segment *g, uint8_t *out)
{
    if (g->opt) {
        memcpy(out, g->opt, g->optlen);
        return g->optlen;
    }
    struct tcp_options o = {0};
    bool syn = g->flags & TH_SYN;
    if (syn && c->mss) {
        o.flags |= TOF_MSS;
        o.mss = c->mss;
    }
    if (syn && c->wscale >= 0) {
        o.flags |= TOF_SCALE;
        o.wscale = (uint8_t)c->wscale;
    }
    if (syn && c->sack)
        o.flags |= TOF_SACKPERM;
    if (c->ts && !g->no_ts && !(g->flags & TH_RST)) {
        o.flags |= TOF_TS;
        o.tsval = conn_tsval(c);
        o.tsecr = g->flags & TH_ACK ? c->tsecr : 0;
    }
    if (g->nsack) {
        o.flags |= TOF_SACK;
        o.nsack = (uint8_t)g->nsack;
        memcpy(o.sack, g->sack, g->nsack * sizeof(o.sack[0]));
    }
    return tcp_options_build(out, &o, syn, TCP_ORDER_LINUX);
}

void conn_send(struct conn *c, const struct segment *g)
{
    static uint8_t b[66000];
    unsigned optlen = build_options(c, g, b + TCP_HEADER_LEN);
    uint32_t hlen = TCP_HEADER_LEN + optlen;
    struct tcp_header th = {.sport = c->sport,
                            .dport = c->dport,
                            .seq = g->seq,
                            .ack = g->ack,
                            .off = (uint8_t)hlen,
                            .flags = g->flags,
                            .win = g->win < 0 ? c->win : (uint16_t)g->win,
                            .urp = g->urp};
    tcp_header_build(b, &th);
    for (uint32_t i = 0; i < g->len; i++)
        b[hlen + i] =
            g->data ? ((const uint8_t *)g->data)[i] : peer_pattern(g->seq - c->iss - 1 + i);
    uint64_t sum = checksum_pseudo(&c->p->remote, &c->p->local, IPPROTO_TCP, hlen + g->len);
    uint16_t folded = (uint16_t)~checksum_fold(checksum_add(b, hlen + g->len, sum));
    if (g->bad_sum)
        folded ^= 0x5555;
    memcpy(b + 16, &folded, 2);
    inject_ip(c->p, NULL, IPPROTO_TCP, c->tos, b, hlen + g->len);
}

void conn_ack(struct conn *c)
{
    conn_send(c,
              &(struct segment){.seq = c->snd_nxt, .ack = c->rcv_nxt, .flags = TH_ACK, .win = -1});
}

void conn_data(struct conn *c, uint32_t len)
{
    struct segment g = {
        .seq = c->snd_nxt, .ack = c->rcv_nxt, .flags = TH_ACK | TH_PUSH, .win = -1, .len = len};
    c->snd_nxt += len;
    conn_send(c, &g);
}

void conn_flags(struct conn *c, uint8_t flags)
{
    struct segment g = {
        .seq = c->snd_nxt, .ack = flags & TH_ACK ? c->rcv_nxt : 0, .flags = flags, .win = -1};
    if (flags & (TH_SYN | TH_FIN))
        c->snd_nxt++;
    conn_send(c, &g);
}

bool conn_next(struct conn *c, struct packet *k, uint64_t within_ns)
{
    uint64_t end = sim_now(c->p->sim) + within_ns;
    for (;;) {
        uint64_t now = sim_now(c->p->sim);
        if (!peer_next(c->p, k, end > now ? end - now : 0))
            return false;
        if (k->proto == IPPROTO_TCP && k->th.dport == c->sport &&
            (!c->dport || k->th.sport == c->dport))
            break;
    }
    if (k->to.flags & TOF_TS)
        c->tsecr = k->to.tsval;
    if (k->th.flags & TH_SYN) {
        c->irs = k->th.seq;
        c->rcv_nxt = k->th.seq;
    }
    if (k->th.flags & TH_RST)
        return true;
    uint32_t span = k->len + !!(k->th.flags & TH_SYN) + !!(k->th.flags & TH_FIN);
    if (k->th.seq == c->rcv_nxt)
        c->rcv_nxt += span;
    return true;
}

socklen_t peer_sockaddr(const struct ipaddr *a, uint16_t port, struct sockaddr_storage *ss)
{
    return ipaddr_to_sockaddr(a, port, a->family, ss);
}

void conn_accept(struct conn *c, int *listener_fd, struct weir_stack *s)
{
    struct sockaddr_storage ss;
    struct packet *k = malloc(sizeof(*k));
    REQUIRE(k);
    if (*listener_fd < 0) {
        int one = 1;
        *listener_fd = weir_socket(s, c->p->local.family, SOCK_STREAM, 0);
        REQUIRE(*listener_fd >= 0);
        REQUIRE(weir_setsockopt(*listener_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
        socklen_t len = peer_sockaddr(&c->p->local, c->dport, &ss);
        REQUIRE(weir_bind(*listener_fd, (struct sockaddr *)&ss, len) == 0);
        REQUIRE(weir_listen(*listener_fd, 128) == 0);
    }
    conn_flags(c, TH_SYN);
    REQUIRE(conn_next(c, k, NS_PER_S));
    REQUIRE(k->th.flags == (TH_SYN | TH_ACK) || k->th.flags == (TH_SYN | TH_ACK | TH_ECE));
    REQUIRE_EQ(k->th.ack, c->snd_nxt);
    conn_ack(c);
    c->fd = weir_accept4(*listener_fd, NULL, NULL, SOCK_NONBLOCK);
    REQUIRE(c->fd >= 0);
    free(k);
}

void conn_connect(struct conn *c, struct weir_stack *s)
{
    struct sockaddr_storage ss;
    struct packet *k = malloc(sizeof(*k));
    REQUIRE(k);
    c->fd = weir_socket(s, c->p->local.family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    REQUIRE(c->fd >= 0);
    socklen_t len = peer_sockaddr(&c->p->remote, c->sport, &ss);
    REQUIRE(weir_connect(c->fd, (struct sockaddr *)&ss, len) == -1 && errno == EINPROGRESS);
    c->dport = 0;
    REQUIRE(conn_next(c, k, NS_PER_S));
    REQUIRE_EQ(k->th.flags & ~(TH_ECE | TH_CWR), TH_SYN);
    c->dport = k->th.sport;
    conn_flags(c, TH_SYN | TH_ACK);
    REQUIRE(conn_next(c, k, NS_PER_S));
    REQUIRE_EQ(k->th.flags, TH_ACK);
    free(k);
}
