/* SPDX-License-Identifier: BSD-2-Clause
 * The link of the fuzz targets. */
#include "fuzz_link.h"

#include "fuzz.h"
#include "wire/checksum.h"
#include "wire/eth.h"
#include "wire/udp.h"
#include "wire/wire.h"

static uint8_t frame[FUZZ_FRAME_MAX];

/* --- out --- */
static void check_sum(const struct fuzz_packet *k)
{
    uint64_t sum = 0;
    if (k->proto == IPPROTO_UDP && k->l4len >= 8 && get_be16(k->l4 + 6) == 0 &&
        k->src.family == AF_INET)
        return;
    if (k->proto != IPPROTO_ICMP)
        sum = checksum_pseudo(&k->src, &k->dst, k->proto, k->l4len);
    FUZZ_CHECK(checksum_fold(checksum_add(k->l4, k->l4len, sum)) == 0xffff);
}

/* The transport of a packet that is no fragment. */
static void look_at_transport(struct fuzz_packet *k, bool partial)
{
    if (k->proto == IPPROTO_TCP) {
        FUZZ_CHECK(tcp_header_parse(k->l4, k->l4len, &k->th) == 0 && k->th.off <= k->l4len);
        tcp_options_parse(k->l4 + TCP_HEADER_LEN, k->th.off - TCP_HEADER_LEN, k->th.flags & TH_SYN,
                          &k->to);
        FUZZ_CHECK(!(k->to.flags & TOF_BAD));
        k->payload = k->l4len - k->th.off;
    } else if (k->proto == IPPROTO_UDP) {
        struct udp_header uh;
        FUZZ_CHECK(udp_header_parse(k->l4, k->l4len, &uh) == 0 && uh.len == k->l4len);
    } else {
        FUZZ_CHECK(k->proto == IPPROTO_ICMP || k->proto == IPPROTO_ICMPV6);
        FUZZ_CHECK(k->l4len >= 8);
    }
    if (!partial)
        check_sum(k);
}

static void parse4(struct fuzz_packet *k)
{
    const uint8_t *b = k->ip;
    uint32_t hlen = (b[0] & 15u) * 4;
    FUZZ_CHECK(hlen >= 20 && hlen <= k->len && get_be16(b + 2) == k->len);
    FUZZ_CHECK(checksum_fold(checksum_add(b, hlen, 0)) == 0xffff);
    FUZZ_CHECK(b[8] != 0);
    k->src.family = k->dst.family = AF_INET;
    memcpy(k->src.b, b + 12, 4);
    memcpy(k->dst.b, b + 16, 4);
    k->proto = get_be16(b + 6) & 0x3fff ? 0 : b[9];
    k->l4 = b + hlen;
    k->l4len = k->len - hlen;
}

static void parse6(struct fuzz_packet *k)
{
    const uint8_t *b = k->ip;
    FUZZ_CHECK(k->len >= 40 && get_be16(b + 4) + 40u == k->len);
    k->src.family = k->dst.family = AF_INET6;
    memcpy(k->src.b, b + 8, 16);
    memcpy(k->dst.b, b + 24, 16);
    k->proto = b[6] == 44 ? 0 : b[6];
    k->l4 = b + 40;
    k->l4len = k->len - 40;
    if (k->proto == 0 && b[6] == 0) { /* a listener report, behind its router alert */
        k->proto = k->l4[0];
        k->l4 += 8;
        k->l4len -= 8;
    }
}

static void frame_out(struct fuzz_link *l, const struct mbuf *m)
{
    uint32_t len = m->m_pkt.len, head = l->ether ? ETH_HEADER_LEN : 0;
    struct fuzz_packet k = {0};
    FUZZ_CHECK(len == mbuf_chain_len(m) && len <= sizeof(frame) && len > head);
    mbuf_copy_out(m, 0, len, frame);
    l->sent++;
    if (l->ether && get_be16(frame + 12) == ETH_TYPE_ARP) {
        FUZZ_CHECK(len == ETH_HEADER_LEN + 28);
        return;
    }
    k.ip = frame + head;
    k.len = len - head;
    uint32_t limit = l->nif->mtu;
    if (m->m_pkt.tso_segsz) {
        FUZZ_CHECK(l->caps & (NETIF_CAP_TSO4 | NETIF_CAP_TSO6));
        limit = 65535 + 40;
    }
    FUZZ_CHECK(k.len <= limit && k.len >= 20);
    bool v4 = k.ip[0] >> 4 == 4;
    FUZZ_CHECK(v4 || k.ip[0] >> 4 == 6);
    if (l->ether)
        FUZZ_CHECK(get_be16(frame + 12) == (v4 ? ETH_TYPE_IPV4 : ETH_TYPE_IPV6));
    if (v4)
        parse4(&k);
    else
        parse6(&k);
    bool partial = m->m_pkt.csum_flags & CSUM_L4_PARTIAL;
    FUZZ_CHECK(!partial || (l->caps & NETIF_CAP_CSUM_TX));
    if (k.proto)
        look_at_transport(&k, partial);
    if (m->m_pkt.tso_segsz) {
        FUZZ_CHECK(k.proto == IPPROTO_TCP && k.payload > m->m_pkt.tso_segsz);
        FUZZ_CHECK(k.len - k.payload + m->m_pkt.tso_segsz <= l->nif->mtu);
    }
    if (l->packet)
        l->packet(&k, l->ctx);
}

static size_t link_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct fuzz_link *l = link;
    if (l->stuck)
        return 0;
    for (size_t i = 0; i < n; i++) {
        frame_out(l, frames[i]);
        mbuf_free_chain(&frames[i]);
    }
    return n;
}

/* --- in --- */
static size_t link_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct fuzz_link *l = link;
    size_t i = 0;
    while (i < n && l->in) {
        frames[i] = l->in;
        l->in = l->in->m_nextpkt;
        frames[i++]->m_nextpkt = NULL;
    }
    if (!l->in)
        l->in_tail = &l->in;
    return i;
}

static bool link_pending(void *link)
{
    return ((struct fuzz_link *)link)->in != NULL;
}

static void link_close(void *link)
{
    struct fuzz_link *l = link;
    while (l->in) {
        struct mbuf *m = l->in;
        l->in = m->m_nextpkt;
        mbuf_free_chain(&m);
    }
}

static const struct netif_ops ops = {
    .tx = link_tx, .rx = link_rx, .pending = link_pending, .close = link_close};

void fuzz_link_open(struct fuzz_link *l, struct weir_stack *s, bool ether, uint32_t caps,
                    uint32_t mtu)
{
    l->s = s;
    l->ether = ether;
    l->caps = caps | (ether ? 0 : NETIF_CAP_L3);
    l->in_tail = &l->in;
    struct netif_config cfg = {.name = "fuzz0",
                               .ops = &ops,
                               .link = l,
                               .caps = l->caps,
                               .mtu = mtu,
                               .mac = {2, 0, 0, 0, 0, 1}};
    l->nif = netif_create(s, &cfg);
    FUZZ_CHECK(l->nif);
}

struct exact {
    struct mbuf_ext ext;
    uint8_t *bytes;
};

static void exact_free(struct mbuf_ext *e)
{
    struct exact *x = e->ctx;
    free(x->bytes);
    free(x);
}

/* Storage that ends where the bytes end. */
static struct mbuf *exact_mbuf(struct fuzz_link *l, const uint8_t *bytes, size_t len)
{
    struct exact *x = calloc(1, sizeof(*x));
    FUZZ_CHECK(x);
    x->bytes = malloc(len);
    FUZZ_CHECK(x->bytes);
    memcpy(x->bytes, bytes, len);
    if (!mbuf_ext_init(&x->ext, l->s->account, x->bytes, (uint32_t)len, exact_free)) {
        free(x->bytes);
        free(x);
        return NULL;
    }
    x->ext.ctx = x;
    struct mbuf *m = mbuf_get_ext(l->s->account, &x->ext, x->bytes, (uint32_t)len, 0);
    if (!m)
        mbuf_ext_drop(&x->ext);
    return m;
}

static struct mbuf *piece_mbuf(struct fuzz_link *l, const uint8_t *bytes, size_t len, bool exact)
{
    if (exact)
        return exact_mbuf(l, bytes, len);
    struct mbuf *m = mbuf_get_size(l->s->account, len);
    if (m) {
        memcpy(m->m_data, bytes, len);
        m->m_len = (uint32_t)len;
    }
    return m;
}

void fuzz_link_put(struct fuzz_link *l, const uint8_t *bytes, size_t len, struct fuzz_shape shape)
{
    struct mbuf *head = NULL, **tail = &head;
    size_t step = shape.piece ? MAX(shape.piece, len / 64 + 1) : len;
    if (!len)
        return;
    for (size_t at = 0; at < len; at += step) {
        *tail = piece_mbuf(l, bytes + at, MIN(step, len - at), shape.exact);
        if (!*tail) { /* the account is at its limit: a link drops such a frame */
            mbuf_free_chain(&head);
            return;
        }
        tail = &(*tail)->m_next;
    }
    head->m_flags |= M_PKTHDR;
    head->m_pkt = (struct mbuf_pkt){.len = (uint32_t)len, .segs = shape.segs ? shape.segs : 1};
    if (shape.csum_valid)
        head->m_pkt.csum_flags = CSUM_L4_VALID;
    *l->in_tail = head;
    l->in_tail = &head->m_nextpkt;
}
