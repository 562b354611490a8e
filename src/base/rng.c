/* SPDX-License-Identifier: BSD-2-Clause
 * The random sequence is ChaCha20's key stream under the seed, 512 bytes a refill, the refill's
 * number as nonce. */
#include "rng.h"

#include <sodium.h>

_Static_assert(RNG_SEED_BYTES == crypto_stream_chacha20_KEYBYTES, "the seed is the key");
_Static_assert(crypto_stream_chacha20_NONCEBYTES == sizeof(uint64_t),
               "the block number is the nonce");
_Static_assert(SIPHASH_KEY_BYTES == crypto_shorthash_siphash24_KEYBYTES, "key of SipHash");

void rng_init(struct rng *r, const uint8_t seed[RNG_SEED_BYTES])
{
    memcpy(r->key, seed, RNG_SEED_BYTES);
    r->block = 0;
    r->used = sizeof(r->buf);
}

static void rng_refill(struct rng *r)
{
    uint8_t nonce[sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = (uint8_t)(r->block >> (8 * i));
    r->block++;
    crypto_stream_chacha20(r->buf, sizeof(r->buf), nonce, r->key);
    r->used = 0;
}

void rng_bytes(struct rng *r, void *out, size_t n)
{
    uint8_t *p = out;
    while (n > 0) {
        if (r->used == sizeof(r->buf))
            rng_refill(r);
        size_t k = MIN(n, sizeof(r->buf) - r->used);
        memcpy(p, r->buf + r->used, k);
        memset(r->buf + r->used, 0, k); /* what was given out is not kept */
        r->used += (uint32_t)k;
        p += k;
        n -= k;
    }
}

uint32_t rng_u32(struct rng *r)
{
    uint8_t b[4];
    rng_bytes(r, b, sizeof(b));
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t low = rng_u32(r);
    return low | (uint64_t)rng_u32(r) << 32;
}

/* Multiply and shift; a product in the short end of the range is drawn again (fewer than two draws
 * on average). */
uint32_t rng_below(struct rng *r, uint32_t bound)
{
    CHECK(bound > 0);
    uint64_t m = (uint64_t)rng_u32(r) * bound;
    if ((uint32_t)m < bound) {
        uint32_t threshold = (0 - bound) % bound;
        while ((uint32_t)m < threshold)
            m = (uint64_t)rng_u32(r) * bound;
    }
    return (uint32_t)(m >> 32);
}

static uint64_t le64(const uint8_t h[8])
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8; i++)
        v |= (uint64_t)h[i] << (8 * i);
    return v;
}

uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *p, size_t n)
{
    uint8_t h[crypto_shorthash_siphash24_BYTES];
    crypto_shorthash_siphash24(h, p, n, key);
    return le64(h);
}

void siphash128(const uint8_t key[SIPHASH_KEY_BYTES], const void *p, size_t n, uint64_t out[2])
{
    uint8_t h[crypto_shorthash_siphashx24_BYTES];
    crypto_shorthash_siphashx24(h, p, n, key);
    out[0] = le64(h);
    out[1] = le64(h + 8);
}
