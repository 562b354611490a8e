/* SPDX-License-Identifier: BSD-2-Clause
 * Frames and a stand-in link for the tests of this layer. */
#include "frames.h"

#include "wire/tcp.h"
#include "wire/wire.h"

static void *bare_alloc(void *ctx, size_t size)
{
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void bare_free(void *ctx, void *p, size_t size)
{
    free(p);
}

struct weir_stack *bare_stack_create(void)
{
    struct weir_stack *s = bare_alloc(NULL, sizeof(*s));

    memset(s, 0, sizeof(*s));
    s->alloc = (struct weir_alloc){.alloc = bare_alloc, .free = bare_free};
    mbuf_pools_init(&s->alloc);
    s->account = mbuf_account_create(INT64_C(1) << 30);
    assert_non_null(s->account);
    return s;
}

void bare_stack_destroy(struct weir_stack *s)
{
    mbuf_account_settle(s->account);
    assert_int_equal(atomic_load(&s->account->mbufs), 0);
    assert_int_equal(atomic_load(&s->account->bytes), 0);
    mbuf_account_drop(s->account);
    mbuf_pools_drain();
    free(s);
}

uint8_t payload_byte(uint32_t i)
{
    return (uint8_t)(i * 7 + i / 256);
}

/* The sum of 16-bit words, most significant byte first: on purpose not the code under test. */
static uint32_t slow_sum(const uint8_t *p, uint32_t n, uint32_t sum)
{
    for (uint32_t i = 0; i < n; i++) {
        sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static uint32_t slow_pseudo(const uint8_t *ip, uint32_t l4len)
{
    uint8_t tail[4] = {(uint8_t)(l4len >> 8), (uint8_t)l4len, 0, 6};
    bool v4 = ip[0] >> 4 == 4;

    return slow_sum(tail, 4, slow_sum(ip + (v4 ? 12 : 8), v4 ? 8 : 32, 0));
}

static uint32_t build_ip(uint8_t *ip, const struct frame_spec *f, uint32_t l4len)
{
    if (f->v6) {
        put_be32(ip, 0x60000000u | (uint32_t)f->tos << 20);
        put_be16(ip + 4, (uint16_t)l4len);
        ip[6] = 6;
        ip[7] = 64;
        for (int i = 0; i < 16; i++) {
            ip[8 + i] = (uint8_t)(0xfd - i);
            ip[24 + i] = (uint8_t)(0xfd + i);
        }
        return 40;
    }
    ip[0] = 0x45;
    ip[1] = f->tos;
    put_be16(ip + 2, (uint16_t)(20 + l4len));
    put_be16(ip + 4, 0xfffe);
    put_be16(ip + 6, f->df ? 0x4000 : 0);
    ip[8] = 64;
    ip[9] = 6;
    put_be32(ip + 12, 0x0a000001);
    put_be32(ip + 16, 0x0a000002);
    put_be16(ip + 10, (uint16_t)~slow_sum(ip, 20, 0));
    return 20;
}

struct mbuf *frame_make(struct weir_stack *s, const struct frame_spec *f)
{
    uint8_t h[160] = {0}, *data = malloc(f->payload + 1u);
    uint32_t l2 = f->bare ? 0 : 14, thlen = 20 + f->options, l4len = thlen + f->payload;

    for (uint32_t i = 0; i < f->payload; i++)
        data[i] = payload_byte(i);
    if (!f->bare) {
        memset(h, 0x02, 12);
        put_be16(h + 12, f->v6 ? 0x86dd : 0x0800);
    }
    uint32_t l4 = l2 + build_ip(h + l2, f, l4len);
    uint8_t *th = h + l4;
    put_be16(th, 1234);
    put_be16(th + 2, 80);
    put_be32(th + 4, f->seq);
    th[12] = (uint8_t)(thlen / 4 << 4);
    th[13] = f->flags;
    put_be16(th + 14, 65535);
    memset(th + 20, 1, f->options);
    uint32_t sum = slow_pseudo(h + l2, l4len);
    if (!f->partial)
        sum = 0xffff & ~slow_sum(data, f->payload, slow_sum(th, thlen, sum));
    put_be16(th + 16, (uint16_t)sum);

    struct mbuf *m = mbuf_get(s->account), *last = m;
    m->m_data += MBUF_INLINE - sizeof(h);
    memcpy(m->m_data, h, l4 + thlen);
    m->m_len = l4 + thlen;
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = l4 + thlen + f->payload, .segs = 1};
    if (f->partial)
        m->m_pkt.csum_flags = CSUM_L4_PARTIAL;
    m->m_pkt.csum_start = (uint16_t)l4;
    m->m_pkt.csum_offset = 16;
    if (f->segsz) {
        m->m_pkt.tso_segsz = (uint16_t)f->segsz;
        m->m_pkt.segs = (uint16_t)((f->payload + f->segsz - 1) / f->segsz);
        m->m_pkt.csum_flags |= f->v6 ? CSUM_TSO6 : CSUM_TSO4;
    }
    uint32_t pieces = f->pieces ? f->pieces : 1, done = 0;
    for (uint32_t i = 0; i < pieces && f->payload; i++) {
        uint32_t n = i + 1 == pieces ? f->payload - done : f->payload / pieces;
        if (n == 0)
            continue;
        struct mbuf *d = mbuf_from_bytes(s->account, data + done, n);
        assert_non_null(d);
        d->m_flags &= (uint16_t)~M_PKTHDR;
        last->m_next = d;
        last = mbuf_last(d);
        done += n;
    }
    free(data);
    return m;
}

void frame_look(const uint8_t *p, uint32_t len, bool bare, struct seen *out)
{
    uint32_t l3 = bare ? 0 : 14;
    const uint8_t *ip = p + l3;
    bool v4 = ip[0] >> 4 == 4;
    uint32_t l4 = l3 + (v4 ? (ip[0] & 15) * 4u : 40), end = l3;

    memset(out, 0, sizeof(*out));
    end += v4 ? get_be16(ip + 2) : 40u + get_be16(ip + 4);
    assert_int_equal(end, len);
    const uint8_t *th = p + l4;
    uint32_t payload = l4 + (th[12] >> 4) * 4u;
    *out = (struct seen){
        .len = len,
        .seq = get_be32(th + 4),
        .payload_len = end - payload,
        .flags = th[13],
        .tos = v4 ? ip[1] : (uint8_t)(get_be16(ip) >> 4),
        .ip_id = v4 ? get_be16(ip + 4) : 0,
        .ip_ok = !v4 || slow_sum(ip, l4 - l3, 0) == 0xffff,
        .sum_ok = slow_sum(th, end - l4, slow_pseudo(ip, end - l4)) == 0xffff,
        .first = end > payload ? p[payload] : 0,
    };
}

void frame_look_mbuf(const struct mbuf *m, bool bare, struct seen *out)
{
    uint8_t *p = malloc(m->m_pkt.len);

    assert_int_equal(mbuf_chain_len(m), m->m_pkt.len);
    mbuf_copy_out(m, 0, m->m_pkt.len, p);
    frame_look(p, m->m_pkt.len, bare, out);
    free(p);
}

static size_t stub_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct stub_link *l = link;
    size_t i;

    for (i = 0; i < n && l->accept; i++, l->accept--) {
        frames[i]->m_nextpkt = NULL;
        *l->out_tail = frames[i];
        l->out_tail = &frames[i]->m_nextpkt;
        frames[i] = NULL;
        l->out_count++;
    }
    return i;
}

static size_t stub_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct stub_link *l = link;
    size_t i;

    for (i = 0; i < n && l->in; i++) {
        frames[i] = l->in;
        l->in = l->in->m_nextpkt;
        frames[i]->m_nextpkt = NULL;
    }
    if (!l->in)
        l->in_tail = &l->in;
    return i;
}

static uint64_t stub_deadline(void *link)
{
    return ((struct stub_link *)link)->deadline_ns;
}

static bool stub_pending(void *link)
{
    return ((struct stub_link *)link)->in != NULL;
}

static void stub_close(void *link)
{
    struct stub_link *l = link;
    struct mbuf *m;

    while ((m = stub_link_take(l)) != NULL)
        mbuf_free_chain(&m);
    while (l->in) {
        m = l->in;
        l->in = m->m_nextpkt;
        mbuf_free_chain(&m);
    }
    l->closed = true;
}

void stub_link_init(struct stub_link *l, struct link_end *end, uint32_t caps)
{
    static const struct netif_ops ops = {
        .tx = stub_tx,
        .rx = stub_rx,
        .next_deadline = stub_deadline,
        .pending = stub_pending,
        .close = stub_close,
    };

    *l = (struct stub_link){.accept = SIZE_MAX, .deadline_ns = TIME_NEVER};
    l->out_tail = &l->out;
    l->in_tail = &l->in;
    *end = (struct link_end){.ops = &ops, .link = l, .caps = caps, .mtu = 1500};
}

void stub_link_put(struct stub_link *l, struct mbuf *m)
{
    *l->in_tail = m;
    l->in_tail = &m->m_nextpkt;
}

struct mbuf *stub_link_take(struct stub_link *l)
{
    struct mbuf *m = l->out;

    if (m) {
        l->out = m->m_nextpkt;
        if (!l->out)
            l->out_tail = &l->out;
        m->m_nextpkt = NULL;
    }
    return m;
}
