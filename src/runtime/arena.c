/* SPDX-License-Identifier: BSD-2-Clause
 * The allocator of a stack that was given none.
 *
 * How it works. Connections come and go by the thousand and are of few sizes, so objects of a size
 * lie side by side in chunks, found by the address alone (chunks are aligned to their size). The
 * first chunk of a size is ordinary memory, of which only what is used exists; those after it ask
 * for huge pages: a stack that makes connections as fast as it can spends a fifth of its time on
 * page faults and TLB misses otherwise. A chunk that has become empty is given back, but for one of
 * each size. Larger blocks are malloc's.
 *
 * Under AddressSanitizer all blocks are malloc's, so that it sees them. */
#include "arena.h"
#include "base/lock.h"

#include <bsd/sys/queue.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CHUNK_SIZE ((size_t)2 << 20)
#define UNIT 64 /* sizes are multiples of it */
#define SIZE_MAX_OWN 2048
#define CLASSES (SIZE_MAX_OWN / UNIT)

#if defined(__SANITIZE_ADDRESS__)
#define OWN_BLOCKS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_BLOCKS false
#endif
#endif
#ifndef OWN_BLOCKS
#define OWN_BLOCKS true
#endif

struct block {
    struct block *next;
};

/* At the start of its memory. */
struct chunk {
    LIST_ENTRY(chunk) link; /* while it has room */
    struct arena *arena;
    struct block *free; /* blocks that were used */
    uint32_t size;      /* of a block */
    uint32_t fresh;     /* offset of the blocks that were never used */
    uint32_t used;
};
LIST_HEAD(chunk_list, chunk);

struct arena {
    struct lock lock;
    bool closed;
    uint64_t objects; /* that are out, malloc's too */
    struct {
        struct chunk_list room;
        uint32_t chunks;
    } class[CLASSES];
};

LOCK_CLASS_BRIEF(arena_class, "arena");

struct arena *arena_create(void)
{
    struct arena *a = calloc(1, sizeof(*a));

    if (a)
        lock_init(&a->lock, &arena_class);
    return a;
}

static struct chunk *chunk_map(struct arena *a, uint32_t size, bool huge)
{
    /* As much again, for the alignment; what is too much goes back. */
    uint8_t *p =
        mmap(NULL, 2 * CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint8_t *start = (uint8_t *)(((uintptr_t)p + CHUNK_SIZE - 1) & ~(CHUNK_SIZE - 1));
    if (start > p)
        munmap(p, (size_t)(start - p));
    if (start < p + CHUNK_SIZE)
        munmap(start + CHUNK_SIZE, (size_t)(p + CHUNK_SIZE - start));
    if (huge)
        (void)madvise(start, CHUNK_SIZE, MADV_HUGEPAGE);
    struct chunk *c = (struct chunk *)(void *)start;
    *c = (struct chunk){.arena = a, .size = size, .fresh = 2 * UNIT};
    _Static_assert(sizeof(*c) <= 2 * UNIT, "the first block is behind the header");
    return c;
}

static void *chunk_take(struct chunk *c)
{
    void *p = c->free;

    if (p) {
        c->free = c->free->next;
    } else {
        p = (uint8_t *)c + c->fresh;
        c->fresh += c->size;
    }
    c->used++;
    return p;
}

static bool chunk_is_full(const struct chunk *c)
{
    return !c->free && c->fresh + c->size > CHUNK_SIZE;
}

static void *own_alloc(struct arena *a, uint32_t class)
{
    struct chunk *c = LIST_FIRST(&a->class[class].room);

    if (!c) {
        c = chunk_map(a, (class + 1) * UNIT, a->class[class].chunks > 0);
        if (!c)
            return NULL;
        a->class[class].chunks++;
        LIST_INSERT_HEAD(&a->class[class].room, c, link);
    }
    void *p = chunk_take(c);
    if (chunk_is_full(c))
        LIST_REMOVE(c, link);
    return p;
}

/* Returns a chunk to be unmapped, or NULL. */
static struct chunk *own_free(struct arena *a, void *p, uint32_t class)
{
    struct chunk *c = (struct chunk *)((uintptr_t)p & ~(CHUNK_SIZE - 1));
    struct block *b = p;

    CHECK(c->arena == a && c->size == (class + 1) * UNIT && c->used > 0);
    if (chunk_is_full(c))
        LIST_INSERT_HEAD(&a->class[class].room, c, link);
    b->next = c->free;
    c->free = b;
    if (--c->used > 0 || (a->class[class].chunks == 1 && !a->closed))
        return NULL;
    a->class[class].chunks--;
    LIST_REMOVE(c, link);
    return c;
}

static bool is_own(size_t size)
{
    return OWN_BLOCKS && size > 0 && size <= SIZE_MAX_OWN;
}

static void *arena_alloc(void *ctx, size_t size)
{
    struct arena *a = ctx;
    bool own = is_own(size);
    void *p = own ? NULL : malloc(size);

    lock_acquire(&a->lock);
    if (own)
        p = own_alloc(a, (uint32_t)((size - 1) / UNIT));
    a->objects += p != NULL;
    lock_release(&a->lock);
    return p;
}

/* Nothing is out, and nobody will ask for more. */
static void arena_destroy(struct arena *a)
{
    for (size_t i = 0; i < CLASSES; i++) {
        struct chunk *c;
        while ((c = LIST_FIRST(&a->class[i].room)) != NULL) {
            LIST_REMOVE(c, link);
            munmap(c, CHUNK_SIZE);
        }
    }
    free(a);
}

static void arena_free(void *ctx, void *p, size_t size)
{
    struct arena *a = ctx;
    struct chunk *empty = NULL;

    if (!p)
        return;
    if (!is_own(size))
        free(p);
    lock_acquire(&a->lock);
    if (is_own(size))
        empty = own_free(a, p, (uint32_t)((size - 1) / UNIT));
    bool last = --a->objects == 0 && a->closed;
    lock_release(&a->lock);
    if (empty)
        munmap(empty, CHUNK_SIZE);
    if (last)
        arena_destroy(a);
}

void arena_close(struct arena *a)
{
    lock_acquire(&a->lock);
    a->closed = true;
    bool last = a->objects == 0;
    lock_release(&a->lock);
    if (last)
        arena_destroy(a);
}

struct weir_alloc arena_allocator(struct arena *a)
{
    return (struct weir_alloc){arena_alloc, arena_free, a};
}
