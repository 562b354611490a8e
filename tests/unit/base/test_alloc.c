/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: alloc_zero returns zeroed memory, aligned to the cache line from 64 bytes on, and
 * alloc_free gives back exactly what was taken, whatever 16-byte alignment the allocator has.
 * Bound: a few hundred allocations. */
#include "unit.h"

/* An allocator whose blocks start at a chosen offset from a cache line; the bytes are dirty. */
static size_t offset;
static void *raw;
static size_t raw_size;

static void *dirty_alloc(void *ctx, size_t size)
{
    raw = aligned_alloc(CACHE_LINE, (size + CACHE_LINE + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    assert_non_null(raw);
    memset(raw, 0xa5, size + CACHE_LINE);
    raw_size = size;
    return (char *)raw + offset;
}

static void dirty_free(void *ctx, void *p, size_t size)
{
    assert_ptr_equal(p, (char *)raw + offset);
    assert_int_equal(size, raw_size);
    free(raw);
    raw = NULL;
}

static void test_zeroed_aligned_and_returned(void **state)
{
    static const struct weir_alloc a = {.alloc = dirty_alloc, .free = dirty_free};
    static const size_t sizes[] = {1, 16, 63, 64, 65, 127, 128, 1000, 4096};
    for (offset = 0; offset < CACHE_LINE; offset += 16) {
        for (size_t i = 0; i < NELEM(sizes); i++) {
            uint8_t *p = alloc_zero(&a, sizes[i]);
            assert_non_null(p);
            if (sizes[i] >= CACHE_LINE)
                assert_int_equal((uintptr_t)p % CACHE_LINE, 0);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(p[k], 0);
            memset(p, 0xff, sizes[i]);
            alloc_free(&a, p, sizes[i]);
            assert_null(raw);
        }
    }
}

static void test_refusals(void **state)
{
    alloc_free(&unit_alloc, NULL, 100); /* harmless */
    assert_null(alloc_zero(&unit_alloc, SIZE_MAX - 10));
    atomic_store(&unit_fail_after, 1);
    assert_null(alloc_zero(&unit_alloc, 10));
    atomic_store(&unit_fail_after, 1);
    assert_null(alloc_zero(&unit_alloc, 1000));
    assert_int_equal(atomic_load(&unit_bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_aligned_and_returned),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
