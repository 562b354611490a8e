/* SPDX-License-Identifier: BSD-2-Clause
 * Zeroed, cache-aligned memory out of an allocator that promises only 16-byte alignment. */
#include "alloc.h"

#define MALLOC_ALIGN 16

void *alloc_zero(const struct weir_alloc *a, size_t size)
{
    if (size < CACHE_LINE) {
        void *p = a->alloc(a->ctx, size);
        if (p != NULL)
            memset(p, 0, size);
        return p;
    }
    if (size > SIZE_MAX - CACHE_LINE)
        return NULL;
    uint8_t *raw = a->alloc(a->ctx, size + CACHE_LINE);
    if (raw == NULL)
        return NULL;
    CHECK(((uintptr_t)raw & (MALLOC_ALIGN - 1)) == 0);
    /* The gap in front is 16 to 64 bytes; its length is kept in the byte before the block. */
    size_t gap = CACHE_LINE - ((uintptr_t)raw & (CACHE_LINE - 1));
    uint8_t *p = raw + gap;
    p[-1] = (uint8_t)gap;
    memset(p, 0, size);
    return p;
}

void alloc_free(const struct weir_alloc *a, void *p, size_t size)
{
    if (p == NULL)
        return;
    if (size < CACHE_LINE) {
        a->free(a->ctx, p, size);
        return;
    }
    uint8_t *block = p;
    a->free(a->ctx, block - block[-1], size + CACHE_LINE);
}
