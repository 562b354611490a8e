/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the allocator of stacks: blocks are aligned, distinct and keep their bytes whatever comes
 * and goes beside them, from several threads; an arena lives until its last block is back.
 * Bound: a second. */
#include "runtime/arena.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define BLOCKS 4096
#define THREADS 4

struct held {
    uint8_t *p;
    size_t size;
};

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    return *x ^= *x << 5;
}

static void put(const struct weir_alloc *a, struct held *h, uint32_t *rnd)
{
    h->size = 1 + next_random(rnd) % (next_random(rnd) % 8 == 0 ? 9000 : 2100);
    h->p = a->alloc(a->ctx, h->size);
    assert_non_null(h->p);
    assert_int_equal((uintptr_t)h->p % 16, 0);
    memset(h->p, (int)(h->size & 0xff), h->size);
}

static void take(const struct weir_alloc *a, struct held *h)
{
    for (size_t i = 0; i < h->size; i++)
        assert_int_equal(h->p[i], h->size & 0xff);
    a->free(a->ctx, h->p, h->size);
    h->p = NULL;
}

static void churn(const struct weir_alloc *a, uint32_t seed)
{
    struct held *held = calloc(BLOCKS, sizeof(*held));

    assert_non_null(held);
    for (int i = 0; i < 20000; i++) {
        struct held *h = &held[next_random(&seed) % BLOCKS];
        if (h->p)
            take(a, h);
        else
            put(a, h, &seed);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (held[i].p)
            take(a, &held[i]);
    free(held);
}

static void test_churn(void **state)
{
    struct arena *arena = arena_create();
    struct weir_alloc a = arena_allocator(arena);

    (void)state;
    churn(&a, 1);
    churn(&a, 2);
    arena_close(arena);
}

struct churner {
    const struct weir_alloc *a;
    uint32_t seed;
};

static void *churner(void *arg)
{
    const struct churner *c = arg;

    churn(c->a, c->seed);
    return NULL;
}

static void test_threads(void **state)
{
    struct arena *arena = arena_create();
    struct weir_alloc a = arena_allocator(arena);
    struct churner c[THREADS];
    pthread_t t[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        c[i] = (struct churner){&a, (uint32_t)i + 3};
        assert_int_equal(pthread_create(&t[i], NULL, churner, &c[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    arena_close(arena);
}

/* Several chunks of one size, emptied in the order in which they were filled and in the other. */
static void test_many_of_a_size(void **state)
{
    enum { COUNT = 5000, SIZE = 1216 };
    struct arena *arena = arena_create();
    struct weir_alloc a = arena_allocator(arena);
    uint8_t **p = calloc(COUNT, sizeof(*p));

    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        for (int i = 0; i < COUNT; i++) {
            p[i] = a.alloc(a.ctx, SIZE);
            assert_non_null(p[i]);
            memset(p[i], i & 0xff, SIZE);
        }
        for (int i = 0; i < COUNT; i++) {
            int k = backwards ? COUNT - 1 - i : i;
            assert_int_equal(p[k][0], k & 0xff);
            assert_int_equal(p[k][SIZE - 1], k & 0xff);
            a.free(a.ctx, p[k], SIZE);
        }
    }
    free(p);
    arena_close(arena);
}

/* What a memory link does: its block outlives the stack that it was made from. */
static void test_outlives_its_creator(void **state)
{
    struct arena *arena = arena_create();
    struct weir_alloc a = arena_allocator(arena);
    uint8_t *small = a.alloc(a.ctx, 100), *big = a.alloc(a.ctx, 100000);

    (void)state;
    a.free(a.ctx, NULL, 10);
    arena_close(arena);
    memset(small, 1, 100);
    memset(big, 2, 100000);
    a.free(a.ctx, small, 100);
    a.free(a.ctx, big, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_many_of_a_size),
        cmocka_unit_test(test_outlives_its_creator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
