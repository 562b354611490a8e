/* SPDX-License-Identifier: BSD-2-Clause
 * The table of descriptors.
 *
 * How it works. An entry's word holds the count of uses, the bit OPEN and the generation. A use is
 * begun by a compare-and-swap that adds one while OPEN is set and the generation fits; close clears
 * OPEN. Whoever brings the word to "not open, no use" (exactly one thread does, since no use begins
 * on a closed entry) lets go of the object and frees the entry. So close never waits, and a blocked
 * call keeps what it blocks on, as on Linux. */
#include "descriptor.h"
#include "base/alloc.h"
#include "base/lock.h"
#include "so_watch.h"

LOCK_CLASS(class_table, "descriptors");

#define WORD_OPEN (UINT64_C(1) << 32)
#define WORD_USES (WORD_OPEN - 1)
#define WORD_GEN_SHIFT 33

#define CHUNK_SHIFT 10
#define CHUNK_SIZE (1u << CHUNK_SHIFT)
#define NO_INDEX UINT32_MAX

struct desc {
    _Atomic uint64_t word;
    void *obj;          /* constant while OPEN or in use */
    uint32_t next_free; /* table lock */
    uint8_t kind;       /* as obj */
};

/* Free entries are used first in, first out: the longer an index rests, the later its generations
 * come round. */
static struct {
    struct lock lock;
    const struct weir_alloc *alloc;
    struct desc *_Atomic chunk[DESC_MAX / CHUNK_SIZE];
    uint32_t used;        /* lock: entries that exist */
    uint32_t first, last; /* lock: free list */
} table;

static struct desc *entry(uint32_t index)
{
    struct desc *c = atomic_load_explicit(&table.chunk[index >> CHUNK_SHIFT], memory_order_acquire);

    return c ? &c[index & (CHUNK_SIZE - 1)] : NULL;
}

static void revoke_socket(struct socket *so)
{
    desc_revoke((int)LOAD_RELAXED(&so->so_handle));
}

int desc_table_init(const struct weir_alloc *a)
{
    if (table.alloc)
        return 0;
    lock_init(&table.lock, &class_table);
    table.alloc = a;
    table.first = table.last = NO_INDEX;
    watch_init(a);
    so_revoke_handle = revoke_socket;
    return 0;
}

void desc_table_fini(void)
{
    for (uint32_t c = 0; c < NELEM(table.chunk); c++)
        if (LOAD_RELAXED(&table.chunk[c]))
            alloc_free(table.alloc, LOAD_RELAXED(&table.chunk[c]),
                       CHUNK_SIZE * sizeof(struct desc));
    memset(&table, 0, sizeof table);
    watch_set_port(NULL);
}

void desc_fork_prepare(void) TS_NO_ANALYSIS
{
    watch_fork_prepare();
    lock_acquire(&table.lock);
}

/* Calls of threads that the child does not have use their entries for ever. */
static void disown_all(void)
{
    for (uint32_t i = 0; i < table.used; i++) {
        struct desc *d = entry(i);
        uint64_t w = atomic_load_explicit(&d->word, memory_order_relaxed);
        if (w & WORD_OPEN) {
            d->kind = DESC_FOREIGN;
            atomic_store_explicit(&d->word, w & ~WORD_USES, memory_order_relaxed);
        }
    }
}

void desc_fork_done(bool in_child) TS_NO_ANALYSIS
{
    if (in_child)
        disown_all();
    lock_release(&table.lock);
    watch_fork_done();
}

const struct weir_alloc *desc_alloc(void)
{
    return table.alloc;
}

/* Lock held. */
static void push_free(uint32_t index)
{
    entry(index)->next_free = NO_INDEX;
    if (table.first == NO_INDEX)
        table.first = index;
    else
        entry(table.last)->next_free = index;
    table.last = index;
}

/* Lock held. */
static int grow(void)
{
    if (table.used == DESC_MAX)
        return -EMFILE;
    struct desc *c = alloc_zero(table.alloc, CHUNK_SIZE * sizeof *c);
    if (!c)
        return -ENOMEM;
    for (uint32_t i = 0; i < CHUNK_SIZE; i++)
        atomic_store_explicit(&c[i].word, UINT64_C(1) << WORD_GEN_SHIFT, memory_order_relaxed);
    atomic_store_explicit(&table.chunk[table.used >> CHUNK_SHIFT], c, memory_order_release);
    for (uint32_t i = 0; i < CHUNK_SIZE; i++)
        push_free(table.used++);
    return 0;
}

int desc_reserve(void)
{
    int r = 0;

    CHECK(table.alloc != NULL);
    lock_acquire(&table.lock);
    if (table.first == NO_INDEX)
        r = grow();
    if (r == 0) {
        r = (int)table.first;
        table.first = entry(table.first)->next_free;
    }
    lock_release(&table.lock);
    return r;
}

void desc_cancel(int index)
{
    lock_acquire(&table.lock);
    push_free((uint32_t)index);
    lock_release(&table.lock);
}

int desc_commit(int index, enum desc_kind kind, void *obj)
{
    struct desc *d = entry((uint32_t)index);
    uint64_t w = atomic_load_explicit(&d->word, memory_order_relaxed);

    CHECK(!(w & (WORD_OPEN | WORD_USES)));
    d->obj = obj;
    d->kind = (uint8_t)kind;
    int fd = (int)((uint32_t)index | (uint32_t)(w >> WORD_GEN_SHIFT) << DESC_INDEX_BITS);
    if (kind == DESC_SOCKET)
        STORE_RELAXED(&((struct socket *)obj)->so_handle, (uint32_t)fd);
    atomic_store_explicit(&d->word, w | WORD_OPEN, memory_order_release);
    return fd;
}

bool desc_get(int fd, struct desc_ref *r)
{
    if (fd < (int)DESC_MAX)
        return false; /* generation 0, and negative ones */
    uint32_t index = (uint32_t)fd & (DESC_MAX - 1);
    struct desc *d = entry(index);
    if (!d)
        return false;
    uint64_t tag = (uint64_t)((uint32_t)fd >> DESC_INDEX_BITS) << WORD_GEN_SHIFT | WORD_OPEN;
    uint64_t w = atomic_load_explicit(&d->word, memory_order_acquire);
    do {
        if ((w & ~WORD_USES) != tag)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&d->word, &w, w + 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    r->obj = d->obj;
    r->kind = d->kind;
    r->index = index;
    return true;
}

/* Nobody uses the entry, and nobody can begin to. */
static void recycle(uint32_t index)
{
    struct desc *d = entry(index);
    uint64_t gen = atomic_load_explicit(&d->word, memory_order_relaxed) >> WORD_GEN_SHIFT;

    gen = gen + 1 < DESC_GENERATIONS ? gen + 1 : 1;
    d->obj = NULL;
    d->kind = DESC_NONE;
    lock_acquire(&table.lock);
    atomic_store_explicit(&d->word, gen << WORD_GEN_SHIFT, memory_order_release);
    push_free(index);
    lock_release(&table.lock);
}

static void let_go(const struct desc_ref *r)
{
    if (r->kind == DESC_SOCKET) {
        watch_list_detach(&r->so->so_watch);
        so_drop(r->so);
    } else if (r->kind == DESC_SET) {
        poll_set_fini(r->set);
        alloc_free(table.alloc, r->set, sizeof *r->set);
    }
}

bool desc_put(struct desc_ref *r)
{
    struct desc *d = entry(r->index);
    uint64_t w = atomic_fetch_sub_explicit(&d->word, 1, memory_order_acq_rel) - 1;

    if (likely(w & (WORD_OPEN | WORD_USES)))
        return false;
    recycle(r->index);
    let_go(r);
    return true;
}

bool desc_close(const struct desc_ref *r)
{
    return atomic_fetch_and_explicit(&entry(r->index)->word, ~WORD_OPEN, memory_order_acq_rel) &
           WORD_OPEN;
}

void desc_revoke(int fd)
{
    struct desc_ref r;

    if (!desc_get(fd, &r))
        return;
    watch_list_detach(&r.so->so_watch);
    if (!desc_close(&r))
        return;
    uint64_t w = atomic_fetch_sub_explicit(&entry(r.index)->word, 1, memory_order_acq_rel) - 1;
    if (!(w & WORD_USES))
        recycle(r.index);
}
