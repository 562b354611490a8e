/* SPDX-License-Identifier: BSD-2-Clause
 * Seeded random generator and keyed hash of a stack (libsodium: ChaCha20, SipHash-2-4). */
#ifndef WEIR_BASE_RNG_H
#define WEIR_BASE_RNG_H

#include "base.h"

#define RNG_SEED_BYTES 32
#define SIPHASH_KEY_BYTES 16

struct rng {
    uint8_t key[RNG_SEED_BYTES];
    uint64_t block;
    uint32_t used;
    uint8_t buf[512];
};

/* The same seed gives the same sequence on every machine. */
void rng_init(struct rng *r, const uint8_t seed[RNG_SEED_BYTES]);
void rng_bytes(struct rng *r, void *out, size_t n);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
/* Uniform in [0, bound); bound > 0. */
uint32_t rng_below(struct rng *r, uint32_t bound);

/* SipHash-2-4 of n bytes under a 16-byte key. */
uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *p, size_t n);
/* SipHash-2-4 with 128 bits, for a little more than the price of 64: parts of it serve several
 * uses, none of which reveals another. */
void siphash128(const uint8_t key[SIPHASH_KEY_BYTES], const void *p, size_t n, uint64_t out[2]);

#endif
