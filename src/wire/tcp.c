/* SPDX-License-Identifier: BSD-2-Clause
 * TCP header and options. */
#include "tcp.h"

#include "wire.h"

enum { OPT_EOL, OPT_NOP, OPT_MSS, OPT_WSCALE, OPT_SACKPERM, OPT_SACK, OPT_TS = 8 };
#define LEN_MSS 4
#define LEN_WSCALE 3
#define LEN_SACKPERM 2
#define LEN_SACK_HEADER 2
#define LEN_SACK_BLOCK 8
#define LEN_TS 10
/* nop nop TS: what nearly every segment of a connection with timestamps carries, alone (RFC 7323
 * appendix A). */
#define TS_WORD UINT32_C(0x0101080a)
#define LEN_TS_ALIGNED 12

int tcp_header_parse(const uint8_t *p, size_t len, struct tcp_header *h)
{
    if (len < TCP_HEADER_LEN)
        return -EMSGSIZE;
    h->sport = get_be16(p);
    h->dport = get_be16(p + 2);
    h->seq = get_be32(p + 4);
    h->ack = get_be32(p + 8);
    h->off = (uint8_t)((p[12] >> 4) * 4);
    h->ns = p[12] & 1;
    h->flags = p[13];
    h->win = get_be16(p + 14);
    memcpy(&h->sum, p + 16, 2);
    h->urp = get_be16(p + 18);
    if (h->off < TCP_HEADER_LEN)
        return -EINVAL;
    return h->off > len ? -EMSGSIZE : 0;
}

void tcp_header_build(uint8_t *p, const struct tcp_header *h)
{
    CHECK(h->off >= TCP_HEADER_LEN && h->off <= TCP_HEADER_LEN + TCP_MAX_OPTIONS &&
          h->off % 4 == 0);
    put_be16(p, h->sport);
    put_be16(p + 2, h->dport);
    put_be32(p + 4, h->seq);
    put_be32(p + 8, h->ack);
    p[12] = (uint8_t)(h->off / 4 << 4 | (h->ns & 1));
    p[13] = h->flags;
    put_be16(p + 14, h->win);
    memcpy(p + 16, &h->sum, 2);
    put_be16(p + 18, h->urp);
}

/* The blocks of a SACK option of `len` bytes; its length has been checked. */
static void parse_sack(const uint8_t *p, size_t len, struct tcp_options *o)
{
    size_t n = (len - LEN_SACK_HEADER) / LEN_SACK_BLOCK;
    o->nsack = (uint8_t)MIN(n, TCP_MAX_SACK_BLOCKS);
    for (unsigned i = 0; i < o->nsack; i++) {
        o->sack[i].start = get_be32(p + LEN_SACK_HEADER + i * LEN_SACK_BLOCK);
        o->sack[i].end = get_be32(p + LEN_SACK_HEADER + i * LEN_SACK_BLOCK + 4);
    }
    o->flags |= TOF_SACK;
}

/* One option whose length byte lies within the header. */
static void parse_option(const uint8_t *p, size_t len, bool syn, struct tcp_options *o)
{
    bool ok = true;
    switch (p[0]) {
    case OPT_MSS:
        ok = len == LEN_MSS;
        if (ok && syn) {
            o->flags |= TOF_MSS;
            o->mss = get_be16(p + 2);
        }
        break;
    case OPT_WSCALE:
        ok = len == LEN_WSCALE;
        if (ok && syn) {
            o->flags |= TOF_SCALE;
            o->wscale = p[2];
        }
        break;
    case OPT_SACKPERM:
        ok = len == LEN_SACKPERM;
        if (ok && syn)
            o->flags |= TOF_SACKPERM;
        break;
    case OPT_SACK:
        ok = len > LEN_SACK_HEADER && (len - LEN_SACK_HEADER) % LEN_SACK_BLOCK == 0;
        if (ok && !syn)
            parse_sack(p, len, o);
        break;
    case OPT_TS:
        ok = len == LEN_TS;
        if (ok) {
            o->flags |= TOF_TS;
            o->tsval = get_be32(p + 2);
            o->tsecr = get_be32(p + 6);
        }
        break;
    default:
        break; /* unknown: ignored (RFC 9293 3.1) */
    }
    if (!ok)
        o->flags |= TOF_BAD;
}

void tcp_options_parse(const uint8_t *p, size_t len, bool syn, struct tcp_options *o)
{
    o->flags = 0;
    o->nsack = 0;
    if (len == LEN_TS_ALIGNED && get_be32(p) == TS_WORD) {
        o->flags = TOF_TS;
        o->tsval = get_be32(p + 4);
        o->tsecr = get_be32(p + 8);
        return;
    }
    for (size_t i = 0; i < len && p[i] != OPT_EOL;) {
        if (p[i] == OPT_NOP) {
            i++;
            continue;
        }
        size_t left = len - i;
        if (left < 2 || p[i + 1] < 2 || p[i + 1] > left) {
            o->flags |= TOF_BAD; /* where the next option starts is not known */
            return;
        }
        parse_option(p + i, p[i + 1], syn, o);
        i += p[i + 1];
    }
}

/* The options under construction. */
struct builder {
    uint8_t *out;
    unsigned len;
};

/* NOPs until len modulo `modulus` is `rest`. */
static void put_nops(struct builder *b, unsigned modulus, unsigned rest)
{
    while (b->len < TCP_MAX_OPTIONS && b->len % modulus != rest)
        b->out[b->len++] = OPT_NOP;
}

static void put_mss(struct builder *b, const struct tcp_options *o)
{
    uint8_t *p = b->out + b->len;
    p[0] = OPT_MSS;
    p[1] = LEN_MSS;
    put_be16(p + 2, o->mss);
    b->len += LEN_MSS;
}

static void put_wscale(struct builder *b, const struct tcp_options *o)
{
    uint8_t *p = b->out + b->len;
    p[0] = OPT_WSCALE;
    p[1] = LEN_WSCALE;
    p[2] = o->wscale;
    b->len += LEN_WSCALE;
}

static void put_sackperm(struct builder *b)
{
    uint8_t *p = b->out + b->len;
    p[0] = OPT_SACKPERM;
    p[1] = LEN_SACKPERM;
    b->len += LEN_SACKPERM;
}

static void put_ts(struct builder *b, const struct tcp_options *o)
{
    uint8_t *p = b->out + b->len;
    p[0] = OPT_TS;
    p[1] = LEN_TS;
    put_be32(p + 2, o->tsval);
    put_be32(p + 6, o->tsecr);
    b->len += LEN_TS;
}

/* As many blocks as fit. */
static void put_sack(struct builder *b, const struct tcp_options *o)
{
    unsigned start = b->len;
    put_nops(b, 4, 2);
    if (b->len + LEN_SACK_HEADER + LEN_SACK_BLOCK > TCP_MAX_OPTIONS || o->nsack == 0) {
        b->len = start;
        return;
    }
    unsigned n = (TCP_MAX_OPTIONS - b->len - LEN_SACK_HEADER) / LEN_SACK_BLOCK;
    n = MIN(n, MIN(o->nsack, (unsigned)TCP_MAX_SACK_BLOCKS));
    uint8_t *p = b->out + b->len;
    p[0] = OPT_SACK;
    p[1] = (uint8_t)(LEN_SACK_HEADER + n * LEN_SACK_BLOCK);
    for (unsigned i = 0; i < n; i++) {
        put_be32(p + LEN_SACK_HEADER + i * LEN_SACK_BLOCK, o->sack[i].start);
        put_be32(p + LEN_SACK_HEADER + i * LEN_SACK_BLOCK + 4, o->sack[i].end);
    }
    b->len += p[1];
}

/* mss, nop wscale, sackOK, TS: each at the alignment FreeBSD gives it, which holds for any subset.
 */
static void build_freebsd(struct builder *b, const struct tcp_options *o)
{
    if (o->flags & TOF_MSS)
        put_mss(b, o);
    if (o->flags & TOF_SCALE) {
        put_nops(b, 2, 1);
        put_wscale(b, o);
    }
    if (o->flags & TOF_SACKPERM) {
        put_nops(b, 2, 0);
        put_sackperm(b);
    }
    if (o->flags & TOF_TS) {
        put_nops(b, 4, 2);
        put_ts(b, o);
    }
}

/* mss, sackOK TS, nop wscale: SACK-permitted takes the place of the NOPs in front of the
 * timestamps. */
static void build_linux(struct builder *b, const struct tcp_options *o)
{
    if (o->flags & TOF_MSS)
        put_mss(b, o);
    if (o->flags & TOF_SACKPERM) {
        if (!(o->flags & TOF_TS))
            put_nops(b, 4, 2);
        put_sackperm(b);
    }
    if (o->flags & TOF_TS) {
        put_nops(b, 4, 2);
        put_ts(b, o);
    }
    if (o->flags & TOF_SCALE) {
        put_nops(b, 2, 1);
        put_wscale(b, o);
    }
}

unsigned tcp_options_build(uint8_t out[TCP_MAX_OPTIONS], const struct tcp_options *o, bool syn,
                           enum tcp_option_order order)
{
    if (o->flags == TOF_TS) { /* the common segment */
        put_be32(out, TS_WORD);
        put_be32(out + 4, o->tsval);
        put_be32(out + 8, o->tsecr);
        return LEN_TS_ALIGNED;
    }
    struct builder b = {.out = out};
    if (syn && order == TCP_ORDER_LINUX)
        build_linux(&b, o);
    else
        build_freebsd(&b, o);
    if (o->flags & TOF_SACK)
        put_sack(&b, o);
    while (b.len % 4 != 0)
        out[b.len++] = OPT_EOL; /* the padding behind is zero as well */
    return b.len;
}
