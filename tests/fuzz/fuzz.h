/* SPDX-License-Identifier: BSD-2-Clause
 * What all fuzz targets share: reading the input as a program, and checks that end the process.
 *
 * A target is one file with LLVMFuzzerTestOneInput and fuzz_target. It is linked either with
 * standalone_main.c, which makes inputs of its own from a printed seed, or with libFuzzer. An input
 * that has come to its end reads as zeros, so every input is a whole program. */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>

struct fuzz_in {
    const uint8_t *p;
    size_t left;
};

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
    uint16_t low = fuzz_u8(in);
    return (uint16_t)(low | fuzz_u8(in) << 8);
}

static inline uint32_t fuzz_u32(struct fuzz_in *in)
{
    uint32_t low = fuzz_u16(in);
    return low | (uint32_t)fuzz_u16(in) << 16;
}

/* In [0, n); n > 0. Takes one byte for n up to 256. */
static inline uint32_t fuzz_below(struct fuzz_in *in, uint32_t n)
{
    return n <= 256 ? fuzz_u8(in) % n : n <= 65536 ? fuzz_u16(in) % n : fuzz_u32(in) % n;
}

/* Bytes, with zeros for those that are not there. */
static inline void fuzz_bytes(struct fuzz_in *in, void *out, size_t n)
{
    size_t have = MIN(n, in->left);
    memset(out, 0, n);
    memcpy(out, in->p, have);
    in->p += have;
    in->left -= have;
}

/* A difference that is mostly nothing, else small, else anything. */
static inline uint32_t fuzz_delta(struct fuzz_in *in)
{
    uint8_t kind = fuzz_u8(in);
    if (kind < 128)
        return 0;
    if (kind < 160)
        return (kind & 7u) - 4u;
    if (kind < 192)
        return (uint32_t)(int32_t)(int8_t)fuzz_u8(in);
    if (kind < 240)
        return (uint32_t)(int32_t)(int16_t)fuzz_u16(in);
    return fuzz_u32(in);
}

/* Writes a seed: the counterpart of the readers above. */
struct fuzz_out {
    uint8_t *p;
    size_t len, room;
};

static inline void fuzz_put8(struct fuzz_out *o, uint32_t v)
{
    if (o->len < o->room)
        o->p[o->len++] = (uint8_t)v;
}

static inline void fuzz_put16(struct fuzz_out *o, uint32_t v)
{
    fuzz_put8(o, v);
    fuzz_put8(o, v >> 8);
}

static inline void fuzz_put32(struct fuzz_out *o, uint32_t v)
{
    fuzz_put16(o, v);
    fuzz_put16(o, v >> 16);
}

static inline void fuzz_put(struct fuzz_out *o, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fuzz_put8(o, ((const uint8_t *)bytes)[i]);
}

struct fuzz_target {
    const char *name;
    size_t max_len; /* of an input */
    unsigned seeds; /* of the corpus: */
    void (*seed)(unsigned i, struct fuzz_out *o);
};
extern const struct fuzz_target fuzz_target;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The fault is found: say where, and leave the input to the driver. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (unlikely(!(cond))) {                                                                   \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
