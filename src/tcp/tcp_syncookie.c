/* SPDX-License-Identifier: BSD-2-Clause
 * SYN cookies: the state of a half-open connection in its initial sequence number (RFC 4987 3.6).
 *
 * How it works. The low byte of the ISN holds indices into two small tables (MSS, window scale),
 * whether SACK was offered, and which of two keys was used, masked with a byte of the hash; the
 * upper 24 bits are a keyed hash of the tuple, the peer's ISN and that byte. A key makes cookies
 * for TCP_COOKIE_LIFE_NS and stays good as long again. Keys are changed when they are used, so that
 * an idle stack has no timer for them. Timestamps need no bits: the peer shows that it uses them
 * with its ACK. */
#include "tcp_in.h"

#define BITS_SACK 0x40u
#define BITS_KEY 0x80u

static const uint16_t mss_table[8] = {216, 536, 1200, 1360, 1400, 1440, 1452, 1460};
/* Index 0: the peer offered no scaling. */
static const uint8_t wscale_table[8] = {0, 0, 1, 2, 4, 6, 7, 8};

static void keys_refresh(struct weir_stack *s, struct tcp_cookie_keys *k)
{
    uint64_t born = k->born_ns[k->current];

    if (born != 0 && s->now - born < TCP_COOKIE_LIFE_NS)
        return;
    /* After a long silence neither key is to be honoured any more. */
    bool both = born == 0 || s->now - born >= 2 * TCP_COOKIE_LIFE_NS;
    k->current ^= 1;
    rng_bytes(&s->rng, k->key[k->current], SIPHASH_KEY_BYTES);
    k->born_ns[k->current] = MAX(s->now, 1);
    if (both) {
        rng_bytes(&s->rng, k->key[k->current ^ 1], SIPHASH_KEY_BYTES);
        k->born_ns[k->current ^ 1] = 0;
    }
}

static uint32_t cookie_hash(const struct tcp_cookie_keys *k, const struct flow *f, uint32_t irs,
                            uint8_t bits)
{
    struct {
        uint8_t laddr[16], faddr[16];
        uint32_t scope, irs;
        uint16_t lport, fport;
        uint8_t lfamily, ffamily, bits, zero;
    } in = {.scope = f->laddr.scope,
            .irs = irs,
            .lport = f->lport,
            .fport = f->fport,
            .lfamily = f->laddr.family,
            .ffamily = f->faddr.family,
            .bits = bits};

    memcpy(in.laddr, f->laddr.b, 16);
    memcpy(in.faddr, f->faddr.b, 16);
    return (uint32_t)siphash(k->key[(bits & BITS_KEY) != 0], &in, sizeof(in));
}

/* The byte is masked, so that it does not show what was offered. */
static uint32_t cookie_compose(uint32_t hash, uint8_t bits)
{
    return (hash & ~UINT32_C(0xff)) | (uint8_t)(bits ^ (hash >> 24));
}

uint32_t tcp_cookie_make(struct weir_stack *s, struct tcp_cookie_keys *k, const struct flow *f,
                         uint32_t irs, const struct tcp_cookie *c)
{
    uint8_t mss = NELEM(mss_table) - 1, scale = 0, bits;

    keys_refresh(s, k);
    while (mss > 0 && mss_table[mss] > c->mss)
        mss--;
    if (c->wscale != 0xff) {
        scale = NELEM(wscale_table) - 1;
        while (scale > 1 && wscale_table[scale] > c->wscale)
            scale--;
    }
    bits = (uint8_t)(mss | scale << 3 | (c->sack ? BITS_SACK : 0) | (k->current ? BITS_KEY : 0));
    return cookie_compose(cookie_hash(k, f, irs, bits), bits);
}

bool tcp_cookie_check(struct weir_stack *s, struct tcp_cookie_keys *k, const struct flow *f,
                      uint32_t irs, uint32_t iss, struct tcp_cookie *c)
{
    uint8_t bits;

    keys_refresh(s, k);
    bits = (uint8_t)(iss ^ (iss >> 24));
    if (k->born_ns[(bits & BITS_KEY) != 0] == 0)
        return false;
    if (cookie_compose(cookie_hash(k, f, irs, bits), bits) != iss)
        return false;
    c->mss = mss_table[bits & 7];
    c->wscale = (bits >> 3 & 7) ? wscale_table[bits >> 3 & 7] : 0xff;
    c->sack = (bits & BITS_SACK) != 0;
    return true;
}
