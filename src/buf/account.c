/* SPDX-License-Identifier: BSD-2-Clause
 * Accounts: who holds how much buffer memory.
 *
 * How it works: any thread charges and credits any account, for one stack frees what another
 * allocated. Doing that in the account itself would move its cache line between cores with every
 * buffer, so each thread gathers what it did in a line of its own and settles now and then: after
 * LINE_OPS operations or LINE_BYTES. Accounts with a small limit are not worth the error this makes
 * in enforcing it and are always written directly, and so are all as long as one thread alone has
 * buffers. Gauges (mbuf_usage) add the lines of all threads and are exact whenever nobody allocates
 * or frees.
 *
 * An account's life: holders and lines have references. When the last is dropped, DEAD is added to
 * `bytes`, which is exact then; whoever brings it to exactly DEAD frees the account. */
#include "base/alloc.h"
#include "base/lock.h"
#include "base/owner.h"
#include "pool.h"

#include <bsd/sys/queue.h>

#define DEAD (INT64_C(1) << 62)
#define LINE_OPS 64
#define LINE_BYTES (INT64_C(1) << 20)
#define LINE_LIMIT_MIN (64 * LINE_BYTES) /* accounts with a lower limit have no lines */

struct account_node {
    struct mbuf_account account; /* first */
    LIST_ENTRY(account_node) link;
};

LOCK_CLASS(registry_class, "mbuf_registry");
static struct lock registry_lock; /* of all of these; the innermost lock */
static LIST_HEAD(, account_node)
accounts = LIST_HEAD_INITIALIZER(accounts);
static struct thread_cache *thread_caches;
static uint32_t next_line;
static _Atomic uint32_t thread_count; /* of that list */

_Thread_local struct thread_cache *thread_cache;

void account_init(void)
{
    lock_init(&registry_lock, &registry_class);
}

void account_lock(void) TS_NO_ANALYSIS
{
    lock_acquire(&registry_lock);
}

void account_unlock(void) TS_NO_ANALYSIS
{
    lock_release(&registry_lock);
}

bool account_none(void)
{
    lock_acquire(&registry_lock);
    bool none = LIST_EMPTY(&accounts) && thread_caches == NULL;
    lock_release(&registry_lock);
    return none;
}

/* --- life --- */

struct mbuf_account *mbuf_account_create(int64_t limit_bytes)
{
    CHECK(pool_is_ready()); /* mbuf_pools_init comes first */
    struct account_node *n = alloc_zero(&pool_alloc, sizeof(*n));
    if (n == NULL)
        return NULL;
    atomic_init(&n->account.limit, limit_bytes);
    atomic_init(&n->account.refs, 1);
    atomic_init(&n->account.fail_after, -1);
    lock_acquire(&registry_lock);
    n->account.line = next_line++ % CHARGE_LINES; /* those of a process that has few never meet */
    LIST_INSERT_HEAD(&accounts, n, link);
    lock_release(&registry_lock);
    return &n->account;
}

static void account_free(struct mbuf_account *acct)
{
    struct account_node *n = CONTAINER_OF(acct, struct account_node, account);
    CHECK(LOAD_RELAXED(&acct->mbufs) == 0);
    lock_acquire(&registry_lock);
    LIST_REMOVE(n, link);
    lock_release(&registry_lock);
    alloc_free(&pool_alloc, n, sizeof(*n));
}

static void account_unref(struct mbuf_account *acct)
{
    if (atomic_fetch_sub_explicit(&acct->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (atomic_fetch_add_explicit(&acct->bytes, DEAD, memory_order_acq_rel) == 0)
        account_free(acct);
}

/* A reference for a line, unless the account is dead. */
static bool account_ref(struct mbuf_account *acct)
{
    uint32_t refs = LOAD_RELAXED(&acct->refs);
    while (refs != 0) {
        if (atomic_compare_exchange_weak_explicit(&acct->refs, &refs, refs + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    }
    return false;
}

/* --- lines --- */

static void line_settle(struct charge_line *l)
{
    struct mbuf_account *acct = LOAD_RELAXED(&l->account);
    int64_t bytes = LOAD_RELAXED(&l->bytes), mbufs = LOAD_RELAXED(&l->mbufs);
    l->ops = 0;
    STORE_RELAXED(&l->bytes, 0);
    STORE_RELAXED(&l->mbufs, 0);
    if (mbufs != 0)
        atomic_fetch_add_explicit(&acct->mbufs, mbufs, memory_order_relaxed);
    if (bytes != 0) /* cannot be the end of the account: the line holds a reference */
        atomic_fetch_add_explicit(&acct->bytes, bytes, memory_order_acq_rel);
}

static void line_close(struct charge_line *l)
{
    struct mbuf_account *acct = LOAD_RELAXED(&l->account);
    if (acct == NULL)
        return;
    line_settle(l);
    STORE_RELAXED(&l->account, NULL);
    account_unref(acct);
}

static inline size_t line_index(const struct mbuf_account *acct)
{
    return acct->line;
}

static inline struct charge_line *line_slot(struct thread_cache *t, const struct mbuf_account *acct)
{
    return &t->lines[line_index(acct)];
}

static __attribute__((noinline)) struct charge_line *line_open(struct mbuf_account *acct)
{
    struct thread_cache *t = thread_cache;
    if (t == NULL || LOAD_RELAXED(&thread_count) < 2 ||
        LOAD_RELAXED(&acct->limit) < LINE_LIMIT_MIN || !account_ref(acct))
        return NULL;
    struct charge_line *l = line_slot(t, acct);
    line_close(l);
    STORE_RELAXED(&l->account, acct);
    return l;
}

/* The thread's line of this account; NULL: it has none and gets none. */
static inline struct charge_line *line_of(struct mbuf_account *acct)
{
    struct thread_cache *t = thread_cache;
    if (likely(t != NULL)) {
        struct charge_line *l = line_slot(t, acct);
        if (likely(LOAD_RELAXED(&l->account) == acct))
            return l;
    }
    return line_open(acct);
}

static inline void line_add(struct charge_line *l, int64_t bytes, int64_t mbufs)
{
    int64_t b = LOAD_RELAXED(&l->bytes) + bytes;
    STORE_RELAXED(&l->bytes, b);
    STORE_RELAXED(&l->mbufs, LOAD_RELAXED(&l->mbufs) + mbufs);
    if (unlikely(++l->ops >= LINE_OPS || b > LINE_BYTES || b < -LINE_BYTES))
        line_settle(l);
}

/* The line that the thread has for this account already, or NULL. */
static struct charge_line *own_line(const struct mbuf_account *acct)
{
    struct thread_cache *t = thread_cache;
    struct charge_line *l = t != NULL ? line_slot(t, acct) : NULL;
    return l != NULL && LOAD_RELAXED(&l->account) == acct ? l : NULL;
}

void mbuf_account_drop(struct mbuf_account *acct)
{
    if (acct == NULL)
        return;
    struct charge_line *l = own_line(acct);
    if (l != NULL)
        line_close(l);
    account_unref(acct);
}

/* What all threads did to acct and have not settled. Many threads that sleep on what they freed
 * make it look fuller than it is. */
static int64_t unsettled(const struct mbuf_account *acct)
{
    int64_t bytes = 0;
    lock_acquire(&registry_lock);
    for (const struct thread_cache *t = thread_caches; t != NULL; t = t->next) {
        const struct charge_line *l = &t->lines[line_index(acct)];
        if (LOAD_RELAXED(&l->account) == acct)
            bytes += LOAD_RELAXED(&l->bytes);
    }
    lock_release(&registry_lock);
    return bytes;
}

/* --- charging --- */

void account_denied(struct mbuf_account *acct)
{
    if (acct != NULL)
        atomic_fetch_add_explicit(&acct->denied, 1, memory_order_relaxed);
}

/* The test hook: true when this allocation is the one to refuse. */
static bool injected_failure(struct mbuf_account *acct)
{
    int64_t left = LOAD_RELAXED(&acct->fail_after);
    if (likely(left <= 0))
        return false;
    return atomic_fetch_sub_explicit(&acct->fail_after, 1, memory_order_relaxed) == 1;
}

static __attribute__((noinline)) bool charge_directly(struct mbuf_account *acct, int64_t bytes,
                                                      int64_t mbufs)
{
    struct charge_line *l = own_line(acct);
    if (l != NULL)
        line_settle(l);
    int64_t old = atomic_fetch_add_explicit(&acct->bytes, bytes, memory_order_relaxed);
    int64_t limit = LOAD_RELAXED(&acct->limit);
    if (likely(old + bytes <= limit) ||
        (limit >= LINE_LIMIT_MIN && old + bytes + unsettled(acct) <= limit)) {
        if (mbufs != 0)
            atomic_fetch_add_explicit(&acct->mbufs, mbufs, memory_order_relaxed);
        return true;
    }
    atomic_fetch_sub_explicit(&acct->bytes, bytes, memory_order_relaxed);
    account_denied(acct);
    return false;
}

bool account_charge(struct mbuf_account *acct, int64_t bytes, int64_t mbufs)
{
    if (acct == NULL)
        return true;
    if (unlikely(injected_failure(acct))) {
        account_denied(acct);
        return false;
    }
    struct charge_line *l = line_of(acct);
    if (unlikely(l == NULL || LOAD_RELAXED(&acct->bytes) + LOAD_RELAXED(&l->bytes) + bytes >
                                  LOAD_RELAXED(&acct->limit)))
        return charge_directly(acct, bytes, mbufs);
    line_add(l, bytes, mbufs);
    return true;
}

void account_credit(struct mbuf_account *acct, int64_t bytes, int64_t mbufs)
{
    if (acct == NULL || bytes == 0)
        return;
    struct charge_line *l = line_of(acct);
    if (likely(l != NULL)) {
        line_add(l, -bytes, -mbufs);
        return;
    }
    if (mbufs != 0)
        atomic_fetch_sub_explicit(&acct->mbufs, mbufs, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&acct->bytes, bytes, memory_order_acq_rel) - bytes == DEAD)
        account_free(acct);
}

/* --- threads --- */

struct thread_cache *thread_cache_create(void)
{
    struct thread_cache *t = alloc_zero(&pool_alloc, sizeof(*t));
    if (t == NULL)
        return NULL;
    (void)owner_self(); /* who calls mbuf_thread_exit must know of this thread, owner or not */
    lock_acquire(&registry_lock);
    t->next = thread_caches;
    if (t->next != NULL)
        t->next->prevp = &t->next;
    t->prevp = &thread_caches;
    thread_caches = t;
    atomic_fetch_add_explicit(&thread_count, 1, memory_order_relaxed);
    lock_release(&registry_lock);
    thread_cache = t;
    return t;
}

void thread_cache_destroy(void)
{
    struct thread_cache *t = thread_cache;
    thread_cache = NULL;
    for (size_t i = 0; i < CHARGE_LINES; i++)
        line_close(&t->lines[i]);
    lock_acquire(&registry_lock);
    *t->prevp = t->next;
    atomic_fetch_sub_explicit(&thread_count, 1, memory_order_relaxed);
    if (t->next != NULL)
        t->next->prevp = t->prevp;
    lock_release(&registry_lock);
    alloc_free(&pool_alloc, t, sizeof(*t));
}

/* --- gauges --- */

void mbuf_usage(int64_t *mbufs, int64_t *bytes)
{
    *mbufs = *bytes = 0;
    if (!pool_is_ready())
        return;
    lock_acquire(&registry_lock);
    struct account_node *n;
    LIST_FOREACH (n, &accounts, link) {
        int64_t b = LOAD_RELAXED(&n->account.bytes);
        *mbufs += LOAD_RELAXED(&n->account.mbufs);
        *bytes += b >= DEAD / 2 ? b - DEAD : b;
    }
    for (const struct thread_cache *t = thread_caches; t != NULL; t = t->next) {
        for (size_t i = 0; i < CHARGE_LINES; i++) {
            *mbufs += LOAD_RELAXED(&t->lines[i].mbufs);
            *bytes += LOAD_RELAXED(&t->lines[i].bytes);
        }
    }
    lock_release(&registry_lock);
}

void mbuf_account_settle(struct mbuf_account *acct)
{
    struct charge_line *l = own_line(acct);
    if (l != NULL)
        line_settle(l);
}
