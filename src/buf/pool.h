/* SPDX-License-Identifier: BSD-2-Clause
 * The process's pools of mbufs and clusters: per-thread magazines over a depot. Private to buf. */
#ifndef WEIR_BUF_POOL_H
#define WEIR_BUF_POOL_H

#include "mbuf.h"

enum pool_kind { POOL_MBUF, POOL_2K, POOL_16K, POOL_64K, POOL_COUNT };

struct magazine;

/* What a thread did to an account and has not yet told it: accounts are shared between cores, lines
 * are not. */
struct charge_line {
    struct mbuf_account *_Atomic account; /* NULL: free. Holds a reference */
    _Atomic int64_t bytes, mbufs;         /* all three written by the thread, read by anybody */
    uint32_t ops;                         /* since the last settlement */
};
#define CHARGE_LINES 4

/* All that a thread keeps for itself. */
struct thread_cache {
    struct {
        struct magazine *loaded, *spare; /* either may be NULL */
    } pools[POOL_COUNT];
    struct charge_line lines[CHARGE_LINES];
    uint32_t pressure; /* how often memory had been short when the magazines were last given back */
    struct thread_cache *next, **prevp;
};

/* initial-exec: a plain load, also in a shared object; one pointer fits the space that the loader
 * keeps for it. NULL until thread_cache_create. */
extern _Thread_local struct thread_cache *thread_cache __attribute__((tls_model("initial-exec")));
/* Make this thread's cache; NULL: no memory. */
struct thread_cache *thread_cache_create(void);
void thread_cache_destroy(void); /* settles and frees; the magazines must be gone */

extern struct weir_alloc pool_alloc; /* constant while there is memory out of it */
bool pool_is_ready(void);            /* mbuf_pools_init was called */
void account_init(void);
void account_lock(void); /* around fork */
void account_unlock(void);
bool account_none(void); /* no account and no thread cache is left */

/* One object, contents undefined, 64-byte aligned; NULL when the allocator or kern.ipc.nmbclusters
 * refuses. Clusters come as struct mbuf_ext in the first 64 bytes and the storage behind. */
void *pool_get(enum pool_kind kind) NODISCARD;
void pool_put(enum pool_kind kind, void *obj);

#define POOL_EXT_ROOM CACHE_LINE
_Static_assert(sizeof(struct mbuf_ext) <= POOL_EXT_ROOM,
               "the reference count fits in front of a cluster");

/* One allocation of `bytes` for acct, `mbufs` headers among it. False: refused and counted. */
bool account_charge(struct mbuf_account *acct, int64_t bytes, int64_t mbufs) NODISCARD;
/* Count a refusal for another reason. */
void account_denied(struct mbuf_account *acct);
/* The reverse; may free a dropped account, so it is the last use of acct. */
void account_credit(struct mbuf_account *acct, int64_t bytes, int64_t mbufs);

#endif
