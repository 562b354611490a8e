/* SPDX-License-Identifier: BSD-2-Clause
 * The pools of mbufs and clusters.
 *
 * How it works: each thread has, for each kind of object, two magazines (arrays of free objects).
 * It takes from and gives to the loaded one; when that is empty (or full) it is swapped with the
 * other, and when that does not help with a full (or empty) one of the depot, under the depot's
 * lock. So a thread that only allocates and one that only frees meet at the depot once a magazine.
 * Headers and 2 KB clusters are carved from slabs, which go back to the allocator only when every
 * object is at home (mbuf_pools_drain); larger clusters are allocated one by one, and the depot
 * keeps a bounded number of them. kern.ipc.nmbclusters limits what the pools take from the
 * allocator; at the limit, clusters of other sizes that lie in the depot are freed for the one that
 * is wanted, and each thread gives its magazines to the depot when it comes by next. */
#include "pool.h"

#include "base/alloc.h"
#include "base/lock.h"
#include "base/sysctl.h"

#if defined(__SANITIZE_ADDRESS__)
#define POOL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN 1
#endif
#endif
#ifdef POOL_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

#define NMBCLUSTERS_UNIT 2048

/* Objects of a magazine, at most. */
#define MAGAZINE_MAX 32

struct magazine {
    struct magazine *next;
    uint32_t count;
    void *obj[MAGAZINE_MAX];
};

struct slab {
    struct slab *next;
};

/* A free object that no magazine could be had for. */
struct loose {
    struct loose *next;
};

struct pool_kind_info {
    size_t size;         /* of an object, a multiple of CACHE_LINE */
    uint32_t magazine;   /* objects in a magazine */
    uint32_t slab;       /* objects in a slab; 1: allocated one by one */
    uint32_t depot_keep; /* full magazines the depot keeps of one-by-one objects */
};

static const struct pool_kind_info kinds[POOL_COUNT] = {
    [POOL_MBUF] = {.size = MBUF_SIZE, .magazine = 32, .slab = 256},
    [POOL_2K] = {.size = CLUSTER_SIZE + POOL_EXT_ROOM, .magazine = 32, .slab = 32},
    [POOL_16K] = {.size = BIGCLUSTER_16K + POOL_EXT_ROOM,
                  .magazine = 16,
                  .slab = 1,
                  .depot_keep = 64},
    [POOL_64K] = {.size = BIGCLUSTER_64K + POOL_EXT_ROOM,
                  .magazine = 8,
                  .slab = 1,
                  .depot_keep = 32},
};
_Static_assert(MBUF_SIZE % CACHE_LINE == 0 && CLUSTER_SIZE % CACHE_LINE == 0,
               "objects stay aligned");

struct depot {
    CACHE_ALIGNED struct lock lock;
    /* All of this under lock. */
    struct magazine *full; /* magazines with at least one object */
    struct magazine *empty;
    struct loose *loose;
    struct slab *slabs;
    uint32_t full_count;
    uint64_t total; /* objects that exist, wherever they are */
};

LOCK_CLASS(depot_class, "mbuf_depot");
static struct depot depots[POOL_COUNT];
struct weir_alloc pool_alloc;
static _Atomic bool pool_ready;
static _Atomic int64_t pool_bytes;     /* taken from the allocator for objects */
static _Atomic int64_t magazine_count; /* magazines that exist */
static _Atomic uint32_t pool_pressure; /* times that the limit or the allocator refused */

void mbuf_pools_init(const struct weir_alloc *a)
{
    if (atomic_load(&pool_ready))
        return;
    for (int i = 0; i < POOL_COUNT; i++)
        lock_init(&depots[i].lock, &depot_class);
    account_init();
    pool_alloc = *a;
    atomic_store(&pool_ready, true);
}

bool pool_is_ready(void)
{
    return atomic_load_explicit(&pool_ready, memory_order_acquire);
}

/* --- memory from the allocator --- */

/* Headers may go a slab beyond the limit: when data have taken all of it, packets without data must
 * still get out and in, or nothing would ever be freed. */
static bool within_limit(enum pool_kind kind, int64_t bytes)
{
    int64_t limit = KNOB_P(kern_nmbclusters) * NMBCLUSTERS_UNIT + (kind == POOL_MBUF ? bytes : 0);
    int64_t old = atomic_fetch_add_explicit(&pool_bytes, bytes, memory_order_relaxed);
    if (old + bytes <= limit)
        return true;
    atomic_fetch_sub_explicit(&pool_bytes, bytes, memory_order_relaxed);
    return false;
}

static size_t slab_bytes(enum pool_kind kind)
{
    return kinds[kind].size * kinds[kind].slab + CACHE_LINE + sizeof(struct slab);
}

/* A slab, its first object in *first; NULL: refused. */
static struct slab *slab_create(enum pool_kind kind, uint8_t **first)
{
    size_t bytes = slab_bytes(kind);
    if (!within_limit(kind, (int64_t)bytes))
        return NULL;
    struct slab *slab = pool_alloc.alloc(pool_alloc.ctx, bytes);
    if (slab == NULL) {
        atomic_fetch_sub_explicit(&pool_bytes, (int64_t)bytes, memory_order_relaxed);
        return NULL;
    }
    uintptr_t p = (uintptr_t)slab + sizeof(struct slab);
    *first = (uint8_t *)((p + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    return slab;
}

static void slab_destroy(enum pool_kind kind, struct slab *slab)
{
    size_t bytes = slab_bytes(kind);
    UNPOISON(slab, bytes);
    atomic_fetch_sub_explicit(&pool_bytes, (int64_t)bytes, memory_order_relaxed);
    pool_alloc.free(pool_alloc.ctx, slab, bytes);
}

/* One-by-one objects remember where their allocation starts, behind the reference count. */
static struct slab **single_slab(void *obj)
{
    return (struct slab **)(void *)((uint8_t *)obj + POOL_EXT_ROOM - sizeof(struct slab *));
}
_Static_assert(sizeof(struct mbuf_ext) + sizeof(struct slab *) <= POOL_EXT_ROOM, "both fit");

static void single_destroy(enum pool_kind kind, void *obj)
{
    UNPOISON(obj, kinds[kind].size);
    slab_destroy(kind, *single_slab(obj));
}

static struct magazine *magazine_create(void)
{
    struct magazine *m = alloc_zero(&pool_alloc, sizeof(*m));
    if (m != NULL)
        atomic_fetch_add_explicit(&magazine_count, 1, memory_order_relaxed);
    return m;
}

static void magazine_destroy(struct magazine *m)
{
    atomic_fetch_sub_explicit(&magazine_count, 1, memory_order_relaxed);
    alloc_free(&pool_alloc, m, sizeof(*m));
}

/* --- the depot, under its lock --- */

static void depot_put_full(struct depot *d, struct magazine *m)
{
    m->next = d->full;
    d->full = m;
    d->full_count++;
}

static struct magazine *depot_take_full(struct depot *d)
{
    struct magazine *m = d->full;
    if (m != NULL) {
        d->full = m->next;
        d->full_count--;
    }
    return m;
}

static void depot_put_empty(struct depot *d, struct magazine *m)
{
    m->next = d->empty;
    d->empty = m;
}

static struct magazine *depot_take_empty(struct depot *d)
{
    struct magazine *m = d->empty;
    if (m != NULL)
        d->empty = m->next;
    return m;
}

static void depot_put_loose(struct depot *d, void *obj)
{
    struct loose *l = obj;
    UNPOISON(l, sizeof(*l));
    l->next = d->loose;
    d->loose = l;
}

static void *depot_take_loose(struct depot *d)
{
    struct loose *l = d->loose;
    if (l != NULL)
        d->loose = l->next;
    return l;
}

/* Give the objects of a full magazine back to the allocator: the depot has enough. */
static void empty_magazine(enum pool_kind kind, struct magazine *m)
{
    while (m->count > 0)
        single_destroy(kind, m->obj[--m->count]);
}

static uint64_t depot_objects_locked(const struct depot *d)
{
    uint64_t n = 0;
    for (const struct magazine *m = d->full; m != NULL; m = m->next)
        n += m->count;
    for (const struct loose *l = d->loose; l != NULL; l = l->next)
        n++;
    return n;
}

/* Free what lies in the depot: single objects always, slabs if all of their objects are there. */
static void depot_drain_locked(enum pool_kind kind, struct depot *d)
{
    bool single = kinds[kind].slab == 1;
    struct magazine *m;
    if (single || depot_objects_locked(d) == d->total) {
        while ((m = depot_take_full(d)) != NULL) {
            d->total -= m->count;
            if (single)
                empty_magazine(kind, m);
            m->count = 0;
            depot_put_empty(d, m);
        }
        for (void *obj; (obj = depot_take_loose(d)) != NULL; d->total--) {
            if (single)
                single_destroy(kind, obj);
        }
        while (d->slabs != NULL) {
            struct slab *slab = d->slabs;
            d->slabs = slab->next;
            slab_destroy(kind, slab);
        }
    }
    while ((m = depot_take_empty(d)) != NULL)
        magazine_destroy(m);
}

/* --- short of memory --- */

static void give_back_magazines(struct thread_cache *t)
{
    for (int kind = 0; kind < POOL_COUNT; kind++) {
        struct depot *d = &depots[kind];
        struct magazine *both[] = {t->pools[kind].loaded, t->pools[kind].spare};
        t->pools[kind].loaded = t->pools[kind].spare = NULL;
        lock_acquire(&d->lock);
        for (size_t i = 0; i < NELEM(both); i++) {
            if (both[i] == NULL)
                continue;
            if (both[i]->count > 0)
                depot_put_full(d, both[i]);
            else
                depot_put_empty(d, both[i]);
        }
        lock_release(&d->lock);
    }
}

void mbuf_thread_relieve(void)
{
    struct thread_cache *t = thread_cache;
    uint32_t pressure = LOAD_RELAXED(&pool_pressure);
    if (likely(t == NULL || t->pressure == pressure))
        return;
    t->pressure = pressure;
    give_back_magazines(t);
}

/* Refused an object of this kind: what this thread and the depot hold of others makes room. */
static void reclaim(enum pool_kind wanted)
{
    atomic_fetch_add_explicit(&pool_pressure, 1, memory_order_relaxed);
    mbuf_thread_relieve();
    for (int kind = 0; kind < POOL_COUNT; kind++) {
        if (kind == (int)wanted)
            continue;
        struct depot *d = &depots[kind];
        lock_acquire(&d->lock);
        depot_drain_locked((enum pool_kind)kind, d);
        lock_release(&d->lock);
    }
}

/* --- allocation --- */

/* New objects: one is returned, the others of a slab lie loose in the depot. */
static void *pool_grow(enum pool_kind kind)
{
    uint8_t *first;
    struct slab *slab = slab_create(kind, &first);
    if (unlikely(slab == NULL)) {
        reclaim(kind);
        slab = slab_create(kind, &first);
        if (slab == NULL)
            return NULL;
    }
    struct depot *d = &depots[kind];
    uint32_t n = kinds[kind].slab;
    if (n == 1)
        *single_slab(first) = slab;
    lock_acquire(&d->lock);
    d->total += n;
    if (n > 1) {
        slab->next = d->slabs;
        d->slabs = slab;
        for (uint32_t i = n - 1; i > 0; i--) {
            POISON(first + i * kinds[kind].size, kinds[kind].size);
            depot_put_loose(d, first + i * kinds[kind].size);
        }
    }
    lock_release(&d->lock);
    return first;
}

/* Fill the loaded magazine (empty, or NULL when there is no memory for one) from loose objects;
 * returns one. */
static void *take_loose_locked(enum pool_kind kind, struct magazine *loaded)
{
    struct depot *d = &depots[kind];
    void *obj = depot_take_loose(d);
    while (obj != NULL && loaded != NULL && loaded->count < kinds[kind].magazine &&
           d->loose != NULL)
        loaded->obj[loaded->count++] = depot_take_loose(d);
    return obj;
}

static __attribute__((noinline)) void *pool_get_slow(enum pool_kind kind)
{
    CHECK(pool_is_ready()); /* mbuf_pools_init comes first */
    mbuf_thread_relieve();
    struct thread_cache *t = thread_cache != NULL ? thread_cache : thread_cache_create();
    struct magazine *loaded = t != NULL ? t->pools[kind].loaded : NULL;
    struct magazine *spare = t != NULL ? t->pools[kind].spare : NULL;
    if (spare != NULL && spare->count > 0) {
        t->pools[kind].loaded = spare;
        t->pools[kind].spare = loaded;
        return spare->obj[--spare->count];
    }
    struct depot *d = &depots[kind];
    if (loaded == NULL && t != NULL)
        loaded = magazine_create();
    void *obj = NULL;
    lock_acquire(&d->lock);
    struct magazine *full = loaded != NULL ? depot_take_full(d) : NULL;
    if (full != NULL) {
        depot_put_empty(d, loaded);
        loaded = full;
        obj = full->obj[--full->count];
    } else {
        obj = take_loose_locked(kind, loaded);
    }
    lock_release(&d->lock);
    if (t != NULL)
        t->pools[kind].loaded = loaded;
    return obj != NULL ? obj : pool_grow(kind);
}

void *pool_get(enum pool_kind kind)
{
    struct thread_cache *t = thread_cache;
    struct magazine *m = likely(t != NULL) ? t->pools[kind].loaded : NULL;
    void *obj;
    if (likely(m != NULL && m->count > 0)) {
        obj = m->obj[--m->count];
        if (m->count > 0)
            __builtin_prefetch(m->obj[m->count - 1], 1);
    } else {
        obj = pool_get_slow(kind);
        if (obj == NULL)
            return NULL;
    }
    UNPOISON(obj, kinds[kind].size);
    return obj;
}

/* Exchange a full magazine (or NULL) for an empty one at the depot; NULL when there is none and no
 * memory. */
static struct magazine *exchange_full(enum pool_kind kind, struct magazine *full)
{
    const struct pool_kind_info *info = &kinds[kind];
    struct depot *d = &depots[kind];
    lock_acquire(&d->lock);
    struct magazine *empty = NULL;
    bool surplus = full != NULL && info->slab == 1 && d->full_count >= info->depot_keep;
    if (surplus) {
        d->total -= full->count;
    } else {
        empty = depot_take_empty(d);
        if (full != NULL)
            depot_put_full(d, full);
    }
    lock_release(&d->lock);
    if (surplus) {
        empty_magazine(kind, full);
        return full;
    }
    return empty != NULL ? empty : magazine_create();
}

static __attribute__((noinline)) void pool_put_slow(enum pool_kind kind, void *obj)
{
    mbuf_thread_relieve();
    struct thread_cache *t = thread_cache != NULL ? thread_cache : thread_cache_create();
    struct magazine *m = NULL;
    if (t != NULL) {
        m = t->pools[kind].spare;
        if (m == NULL || m->count == kinds[kind].magazine)
            m = exchange_full(kind, m);
        t->pools[kind].spare = t->pools[kind].loaded;
        t->pools[kind].loaded = m;
    }
    if (m != NULL) {
        m->obj[m->count++] = obj;
        return;
    }
    struct depot *d = &depots[kind];
    lock_acquire(&d->lock);
    depot_put_loose(d, obj);
    lock_release(&d->lock);
}

void pool_put(enum pool_kind kind, void *obj)
{
    struct thread_cache *t = thread_cache;
    struct magazine *m = likely(t != NULL) ? t->pools[kind].loaded : NULL;
    POISON(obj, kinds[kind].size);
    if (likely(m != NULL && m->count < kinds[kind].magazine))
        m->obj[m->count++] = obj;
    else
        pool_put_slow(kind, obj);
}

/* --- giving memory back --- */

void mbuf_thread_exit(void)
{
    struct thread_cache *t = thread_cache;
    if (t == NULL)
        return;
    give_back_magazines(t);
    thread_cache_destroy();
}

void mbuf_fork_prepare(void) TS_NO_ANALYSIS
{
    if (!pool_is_ready())
        return;
    for (int i = 0; i < POOL_COUNT; i++)
        lock_acquire(&depots[i].lock);
    account_lock();
}

void mbuf_fork_done(void) TS_NO_ANALYSIS
{
    if (!pool_is_ready())
        return;
    account_unlock();
    for (int i = POOL_COUNT - 1; i >= 0; i--)
        lock_release(&depots[i].lock);
}

void mbuf_pools_drain(void)
{
    if (!pool_is_ready())
        return;
    mbuf_thread_exit();
    for (int kind = 0; kind < POOL_COUNT; kind++) {
        struct depot *d = &depots[kind];
        lock_acquire(&d->lock);
        depot_drain_locked((enum pool_kind)kind, d);
        lock_release(&d->lock);
    }
    /* With nothing left of its memory, another allocator may take over. */
    if (account_none() && atomic_load(&pool_bytes) == 0 && atomic_load(&magazine_count) == 0)
        atomic_store(&pool_ready, false);
}
