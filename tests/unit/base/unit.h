/* SPDX-License-Identifier: BSD-2-Clause
 * What the unit tests of the lowest layers share: cmocka, a seeded generator, an allocator that
 * counts. */
#ifndef WEIR_TESTS_UNIT_H
#define WEIR_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The seed of a random test: WEIR_TEST_SEED, or always the same; printed. */
UNUSED static void unit_seed(struct rng *r, const char *test)
{
    const char *env = getenv("WEIR_TEST_SEED");
    uint64_t seed = env != NULL ? strtoull(env, NULL, 0) : 1;
    uint8_t key[RNG_SEED_BYTES] = {0};
    memcpy(key, &seed, sizeof(seed));
    rng_init(r, key);
    printf("%s: WEIR_TEST_SEED=%" PRIu64 "\n", test, seed);
}

static _Atomic int64_t unit_bytes;      /* now allocated */
static _Atomic int64_t unit_fail_after; /* n > 0: the n-th allocation from now fails; 0: off */

UNUSED static void *unit_malloc(void *ctx, size_t size)
{
    if (atomic_load(&unit_fail_after) > 0 && atomic_fetch_sub(&unit_fail_after, 1) == 1)
        return NULL;
    atomic_fetch_add(&unit_bytes, (int64_t)size);
    return malloc(size);
}

UNUSED static void unit_free(void *ctx, void *p, size_t size)
{
    atomic_fetch_sub(&unit_bytes, (int64_t)size);
    free(p);
}

UNUSED static const struct weir_alloc unit_alloc = {.alloc = unit_malloc, .free = unit_free};

#endif
