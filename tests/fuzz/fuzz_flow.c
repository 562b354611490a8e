/* SPDX-License-Identifier: BSD-2-Clause
 * TCP segments relative to a flow, and the IP header in front. */
#include "fuzz_world.h"

#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#define PAYLOAD_MAX 40000

uint8_t fuzz_peer_byte(uint32_t seq)
{
    return (uint8_t)((seq * UINT32_C(0x9e3779b1)) >> 24);
}

uint8_t fuzz_app_byte(uint32_t off)
{
    return (uint8_t)((off * UINT32_C(0x85ebca77) + 1) >> 24);
}

static struct fuzz_flow *flow_find(struct fuzz_world *w, const struct fuzz_packet *k)
{
    for (size_t i = 0; i < FUZZ_FLOWS; i++) {
        struct fuzz_flow *f = &w->flow[i];
        if (f->peer_port == k->th.dport && f->local_port == k->th.sport &&
            ipaddr_equal(&f->peer, &k->dst))
            return f;
    }
    return NULL;
}

void fuzz_flow_note(struct fuzz_world *w, const struct fuzz_packet *k)
{
    struct fuzz_flow *f = flow_find(w, k);
    uint32_t end = k->th.seq + k->payload + !!(k->th.flags & TH_SYN) + !!(k->th.flags & TH_FIN);
    if (k->th.flags & TH_RST)
        return;
    if (!f) {
        f = &w->flow[w->flow_next++ % FUZZ_FLOWS];
        *f = (struct fuzz_flow){.peer = k->dst,
                                .local = k->src,
                                .peer_port = k->th.dport,
                                .local_port = k->th.sport,
                                .una = k->th.seq,
                                .nxt = end,
                                .expects = 7000};
    }
    if (k->th.flags & TH_SYN) {
        f->una = k->th.seq;
        f->nxt = end;
    }
    if ((int32_t)(end - f->nxt) > 0)
        f->nxt = end;
    if (k->th.flags & TH_ACK)
        f->expects = k->th.ack;
    if (k->to.flags & TOF_TS)
        f->tsval = k->to.tsval;
}

struct fuzz_flow *fuzz_flow_pick(struct fuzz_world *w, struct fuzz_in *in)
{
    uint8_t which = fuzz_u8(in);
    /* Mostly the first two, which are the prelude's. */
    unsigned i = which < 0xc0 ? which & 1 : which % FUZZ_FLOWS;
    struct fuzz_flow *f = &w->flow[i];
    if (f->peer.family && which < 0xf8)
        return f;
    /* A new one: by the address family of bit 3, to the listener's port or (seldom) another. */
    bool v6 = which & 8;
    *f = (struct fuzz_flow){.peer = v6 ? w->peer6 : w->peer4,
                            .local = v6 ? w->local6 : w->local4,
                            .peer_port = (uint16_t)(1000 + i + (which >> 4) * 16),
                            .local_port = (which & 0x70) == 0x70 ? fuzz_u16(in) : 80,
                            .expects = UINT32_MAX - 3000};
    return f;
}

/* All that was sent, nothing more than before, a part, or something else. */
static uint32_t ack_of(struct fuzz_in *in, const struct fuzz_flow *f)
{
    uint8_t kind = fuzz_u8(in);
    if (kind < FUZZ_ACK_DUPLICATE)
        return f->nxt;
    if (kind < FUZZ_ACK_PART)
        return f->una;
    if (kind < FUZZ_ACK_OTHER)
        return f->una + (uint32_t)((uint64_t)(f->nxt - f->una) * (kind - FUZZ_ACK_PART) / 64);
    return f->nxt + fuzz_delta(in);
}

static uint32_t sack_edge(struct fuzz_in *in, const struct fuzz_flow *f)
{
    uint32_t span = f->nxt - f->una;
    uint8_t kind = fuzz_u8(in);
    if (kind < 200 && span) /* of sixteen parts of what is out */
        return f->una + (uint32_t)((uint64_t)span * (kind % 17) / 16);
    return f->una + fuzz_delta(in);
}

static unsigned build_options(struct fuzz_world *w, struct fuzz_in *in, const struct fuzz_flow *f,
                              uint8_t flags, uint8_t *out)
{
    uint8_t pick = fuzz_u8(in), kind = pick < 128   ? pick % FUZZ_OPT_KINDS
                                       : pick < 200 ? FUZZ_OPT_USUAL
                                                    : FUZZ_OPT_SACK;
    struct tcp_options o = {0};
    bool syn = flags & TH_SYN;
    if (kind == FUZZ_OPT_NONE)
        return 0;
    if (kind == FUZZ_OPT_RAW) {
        unsigned n = fuzz_below(in, 11) * 4;
        fuzz_bytes(in, out, n);
        return n;
    }
    if (syn) {
        uint8_t which = fuzz_u8(in); /* of them are left out, mostly none */
        which &= fuzz_u8(in);
        o.flags = (uint8_t)((TOF_MSS | TOF_SCALE | TOF_SACKPERM | TOF_TS) & ~which);
        o.mss = (uint16_t)(1460 + fuzz_delta(in));
        o.wscale = which & 0x80 ? fuzz_u8(in) : 7;
    } else if (f->tsval) {
        o.flags = TOF_TS;
    }
    o.tsval = (uint32_t)(sim_now(w->sim) / NS_PER_MS) + fuzz_delta(in);
    o.tsecr = flags & TH_ACK ? f->tsval : 0;
    if (kind == FUZZ_OPT_SACK && !syn) {
        o.flags |= TOF_SACK;
        o.nsack = (uint8_t)(1 + fuzz_below(in, TCP_MAX_SACK_BLOCKS));
        for (unsigned i = 0; i < o.nsack; i++) {
            o.sack[i].start = sack_edge(in, f);
            o.sack[i].end = sack_edge(in, f);
        }
    }
    return tcp_options_build(out, &o, syn, TCP_ORDER_LINUX);
}

/* What peers send most, else any byte. */
static uint8_t flags_of(struct fuzz_in *in)
{
    static const uint8_t rare[] = {
        TH_SYN, TH_ACK | TH_FIN, TH_SYN | TH_ACK, TH_ACK | TH_ECE,
        TH_RST, TH_ACK | TH_URG, TH_ACK | TH_CWR, TH_ACK | TH_FIN | TH_PUSH};
    uint8_t kind = fuzz_u8(in);
    if (kind < 160)
        return kind & 1 ? TH_ACK | TH_PUSH : TH_ACK;
    return kind < FUZZ_FLAGS_ANY ? rare[kind % NELEM(rare)] : fuzz_u8(in);
}

/* As large as this peer's are, shut, or anything between. */
static uint16_t window_of(const struct fuzz_world *w, struct fuzz_in *in)
{
    uint8_t kind = fuzz_u8(in);
    uint16_t any = kind < 144 ? 0 : kind < 224 ? fuzz_u8(in) : fuzz_u16(in);
    return kind < 120 ? w->window : MIN(any, w->window);
}

static uint32_t payload_len(struct fuzz_in *in)
{
    uint8_t kind = fuzz_u8(in);
    if (kind < 96)
        return 0;
    if (kind < 160)
        return kind - 95;
    return kind < 224 ? fuzz_u16(in) % 1461 : fuzz_u16(in) % PAYLOAD_MAX;
}

uint32_t fuzz_flow_segment(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_flow *f,
                           uint8_t *out)
{
    struct tcp_header th = {.sport = f->peer_port, .dport = f->local_port, .flags = flags_of(in)};
    th.seq = f->expects + fuzz_delta(in);
    th.ack = th.flags & TH_ACK ? ack_of(in, f) : 0;
    uint32_t len = payload_len(in);
    th.win = window_of(w, in);
    th.urp = th.flags & TH_URG ? (uint16_t)fuzz_delta(in) : 0;
    th.off = (uint8_t)(TCP_HEADER_LEN + build_options(w, in, f, th.flags, out + TCP_HEADER_LEN));
    tcp_header_build(out, &th);
    uint32_t first = th.seq + !!(th.flags & TH_SYN);
    for (uint32_t i = 0; i < len; i++)
        out[th.off + i] = fuzz_peer_byte(first + i);
    if (th.flags & TH_URG)
        w->genuine = false; /* its byte leaves the stream */
    len += th.off;
    uint64_t sum = checksum_pseudo(&f->peer, &f->local, IPPROTO_TCP, len);
    uint16_t folded = (uint16_t)~checksum_fold(checksum_add(out, len, sum));
    memcpy(out + 16, &folded, 2);
    if ((th.flags & TH_ACK) && (int32_t)(th.ack - f->una) > 0 && (int32_t)(th.ack - f->nxt) <= 0)
        f->una = th.ack;
    return len;
}

static void seed_delta(struct fuzz_out *o, int16_t d)
{
    fuzz_put8(o, d == 0 ? 0 : d >= -128 && d < 128 ? 160 : 192);
    if (d >= -128 && d < 128) {
        if (d)
            fuzz_put8(o, (uint8_t)d);
    } else {
        fuzz_put16(o, (uint16_t)d);
    }
}

void fuzz_flow_seed(struct fuzz_out *o, const struct fuzz_segment *g)
{
    fuzz_put8(o, FUZZ_FLAGS_ANY);
    fuzz_put8(o, g->flags);
    seed_delta(o, g->seq);
    if (g->flags & TH_ACK)
        fuzz_put8(o, g->ack);
    if (g->len > 64) {
        fuzz_put8(o, g->len > 1460 ? 224 : 160);
        fuzz_put16(o, g->len);
    } else {
        fuzz_put8(o, g->len ? 95u + g->len : 0);
    }
    fuzz_put8(o, 0); /* window */
    if (g->flags & TH_URG)
        fuzz_put8(o, 0);
    fuzz_put8(o, g->options);
    if (g->options == FUZZ_OPT_RAW) {
        fuzz_put8(o, 3); /* 12 bytes, a wrong and a long one among them */
        fuzz_put(o, "\x08\x0a\0\0\0\1\0\0\0\2\5\x28", 12);
    } else if (g->options != FUZZ_OPT_NONE) {
        if (g->flags & TH_SYN) {
            fuzz_put16(o, 0);
            fuzz_put8(o, 0);
        }
        fuzz_put8(o, 0); /* timestamp */
    }
    if (g->options == FUZZ_OPT_SACK && !(g->flags & TH_SYN)) {
        fuzz_put8(o, 1); /* two blocks: [4,8) and [12,16) sixteenths */
        fuzz_put8(o, 4);
        fuzz_put8(o, 8);
        fuzz_put8(o, 12);
        fuzz_put8(o, 16);
    }
}

uint8_t *fuzz_ip_header(const struct ipaddr *src, const struct ipaddr *dst, uint8_t proto,
                        uint8_t tos, uint8_t *l4, uint32_t *len)
{
    if (src->family == AF_INET) {
        struct ipv4_header h = {.hlen = IPV4_HEADER_LEN,
                                .tos = tos,
                                .len = (uint16_t)(*len + IPV4_HEADER_LEN),
                                .ttl = 64,
                                .proto = proto,
                                .src = *src,
                                .dst = *dst};
        l4 -= IPV4_HEADER_LEN;
        ipv4_header_build(l4, &h);
        *len += IPV4_HEADER_LEN;
        return l4;
    }
    struct ipv6_header h = {
        .tclass = tos, .plen = (uint16_t)*len, .next = proto, .hlim = 64, .src = *src, .dst = *dst};
    l4 -= IPV6_HEADER_LEN;
    ipv6_header_build(l4, &h);
    *len += IPV6_HEADER_LEN;
    return l4;
}
