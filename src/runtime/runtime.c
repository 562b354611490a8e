/* SPDX-License-Identifier: BSD-2-Clause
 * Stacks under the runtime: creation, the registry of a process, links, sysctl, fork.
 *
 * After a fork the child holds a copy of each stack, but none of its threads, and its links'
 * descriptors are the parent's too. So the child's copies are marked foreign: nobody can own them,
 * calls on them fail with EIO and change nothing that the parent sees. A child that wants a network
 * makes a stack of its own. */
#include "runtime.h"
#include "arena.h"
#include "base/lock.h"
#include "buf/mbuf.h"
#include "control.h"
#include "file_window.h"
#include "inspect.h"
#include "link/link_open.h"
#include "measure/cputime.h"
#include "measure/lock_stats.h"
#include "measure/siftr.h"
#include "socket/descriptor.h"
#include "stack.h"
#include "weir/stack.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ERROR_SIZE 256

static pthread_once_t once = PTHREAD_ONCE_INIT;
LOCK_CLASS(registry_class, "stacks");
static struct lock registry_lock = LOCK_STATIC(registry_class);
static struct runtime *registry;
static pthread_key_t thread_key;
static _Thread_local char link_error[ERROR_SIZE];

static uint64_t port_now(void *ctx)
{
    (void)ctx;
    return runtime_now_ns();
}

static uint64_t port_wall(void *ctx)
{
    struct timespec ts;

    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

const struct port runtime_port = {.now_ns = port_now,
                                  .wall_ns = port_wall,
                                  .wait = runtime_wait,
                                  .wake = runtime_wake,
                                  .kick = runtime_kick,
                                  .linger = runtime_linger};

static void *default_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return malloc(size); /* whoever needs more alignment than 16 bytes makes it */
}

static void default_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}

static const struct weir_alloc default_allocator = {default_alloc, default_free, NULL};

/* --- the process --- */

static void panic(const char *file, int line, const char *what)
{
    dprintf(STDERR_FILENO, "weir: %s:%d: check failed: %s\n", file, line, what);
    abort();
}

/* The first time that a thread owns a stack or has buffers. */
static uint32_t thread_begins(void)
{
    pthread_setspecific(thread_key, (void *)1);
    return (uint32_t)gettid();
}

static void thread_ends(void *value)
{
    (void)value;
    mbuf_thread_exit();
    lock_prof_thread_exit();
    owner_self_tid = 0; /* another key's destructor may use sockets still: then it begins again */
}

/* The locks of the process. Those of stacks, sockets and sets stay as they are: the child does not
 * touch them. */
static void fork_prepare(void) TS_NO_ANALYSIS
{
    lock_acquire(&registry_lock);
    desc_fork_prepare();
    file_window_fork_prepare();
    cputime_fork_prepare();
    mbuf_fork_prepare();
}

static void fork_parent(void) TS_NO_ANALYSIS
{
    mbuf_fork_done();
    cputime_fork_done(false);
    file_window_fork_done();
    desc_fork_done(false);
    lock_release(&registry_lock);
}

static void fork_child(void) TS_NO_ANALYSIS
{
    mbuf_fork_done();
    cputime_fork_done(true);
    file_window_fork_done();
    desc_fork_done(true);
    for (struct runtime *rt = registry; rt; rt = rt->next)
        owner_disown(rt->stack);
    if (owner_self_tid)
        owner_self_tid = (uint32_t)gettid();
    lock_release(&registry_lock);
}

static void init(void)
{
    base_panic_hook = panic;
    /* Buffers and descriptors are the process's, whatever allocator a stack brings. */
    mbuf_pools_init(&default_allocator);
    CHECK(desc_table_init(&default_allocator) == 0); /* it allocates nothing yet */
    runtime_wait_init();
    cputime_init();
    pthread_key_create(&thread_key, thread_ends);
    owner_tid_hook = thread_begins;
    lock_set_port(&runtime_port);
    lock_class_register(&registry_class);
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void runtime_init(void)
{
    pthread_once(&once, init);
}

static void registry_add(struct runtime *rt)
{
    lock_acquire(&registry_lock);
    rt->next = registry;
    registry = rt;
    lock_release(&registry_lock);
}

static void registry_remove(struct runtime *rt)
{
    lock_acquire(&registry_lock);
    for (struct runtime **p = &registry; *p; p = &(*p)->next) {
        if (*p == rt) {
            *p = rt->next;
            break;
        }
    }
    lock_release(&registry_lock);
}

void runtime_foreach_stack(bool (*fn)(struct weir_stack *s, void *ctx), void *ctx)
{
    lock_acquire(&registry_lock);
    for (struct runtime *rt = registry; rt && fn(rt->stack, ctx); rt = rt->next)
        ;
    lock_release(&registry_lock);
}

struct find {
    const char *name;
    struct weir_stack *found;
};

static bool find_name(struct weir_stack *s, void *ctx)
{
    struct find *f = ctx;

    if (strcmp(s->name, f->name) == 0)
        f->found = s; /* the last of the list is the oldest */
    return true;
}

struct weir_stack *runtime_find_stack(const char *name)
{
    struct find f = {.name = name};

    runtime_foreach_stack(find_name, &f);
    return f.found;
}

/* --- creation --- */

static int stack_config_fill(struct stack_config *out, const struct weir_config *cfg)
{
    out->port = &runtime_port;
    out->name = cfg->name ? cfg->name : program_invocation_short_name;
    out->now_ns = runtime_now_ns();
    out->buffer_limit = cfg->buffer_limit;
    if (cfg->seed == 0)
        return runtime_entropy(out->seed, sizeof(out->seed));
    memcpy(out->seed, &cfg->seed, sizeof(cfg->seed));
    return 0;
}

struct weir_stack *weir_stack_create(const struct weir_config *cfg)
{
    static const struct weir_config defaults;
    struct stack_config sc = {0};

    runtime_init();
    int error = stack_config_fill(&sc, cfg ? cfg : &defaults);
    if (error) {
        errno = -error;
        return NULL;
    }
    struct weir_alloc own;
    struct arena *arena = cfg && cfg->alloc ? NULL : arena_create();
    if (arena)
        own = arena_allocator(arena);
    sc.alloc = arena ? &own : cfg ? cfg->alloc : NULL;
    struct runtime *rt = sc.alloc ? alloc_zero(sc.alloc, sizeof(*rt)) : NULL;
    struct weir_stack *s = rt ? stack_create(&sc) : NULL;
    if (!s) {
        error = -ENOMEM;
        goto fail;
    }
    error = siftr_attach(s);
    if (error)
        goto fail;
    lock_stats_attach(s);
    rt->stack = s;
    rt->arena = arena;
    s->runtime = rt;
    error = runtime_thread_start(rt);
    if (error)
        goto fail;
    registry_add(rt);
    inspect_cputime_attach(s);
    (void)control_start(s); /* works without one */
    return s;
fail:
    if (s)
        stack_destroy(s);
    if (rt)
        alloc_free(sc.alloc, rt, sizeof(*rt));
    if (arena)
        arena_close(arena);
    errno = -error;
    return NULL;
}

void weir_stack_destroy(struct weir_stack *s)
{
    if (!s)
        return;
    struct runtime *rt = runtime_of(s);
    registry_remove(rt);
    if (owner_is_foreign(s)) /* the parent's: this copy goes with the process */
        return;
    control_stop(s);
    runtime_thread_stop(rt);
    if (owner_acquire(s) !=
        0) /* from inside a call on it: a bug of the caller's, and nothing can be freed */
        return;
    struct weir_alloc alloc = s->alloc;
    struct arena *arena = rt->arena;
    stack_destroy(s);
    close(rt->event_fd); /* peers may have kicked us until their links were closed */
    alloc_free(&alloc, rt, sizeof(*rt));
    if (arena)
        arena_close(arena); /* a memory link may live on in it */
}

/* --- links --- */

static bool link_known(const struct runtime *rt, uint32_t n, const struct netif *nif)
{
    for (uint32_t i = 0; i < n; i++)
        if (rt->link[i].link == nif->link)
            return true;
    return false;
}

void runtime_links_changed(struct weir_stack *s)
{
    struct runtime *rt = runtime_of(s);
    uint32_t n = LOAD_RELAXED(&rt->link_count);

    for (struct netif *nif = s->netifs; nif; nif = nif->next) {
        if ((nif->caps & NETIF_CAP_LOOPBACK) || link_known(rt, n, nif) || n == RUNTIME_MAX_LINKS)
            continue;
        int fd = nif->ops->fd ? nif->ops->fd(nif->link) : -1;
        bool cheap = nif->ops->pending_is_cheap;
        rt->link[n++] = (struct runtime_link){nif->ops, nif->link, fd, cheap};
        if (fd >= 0)
            STORE_RELAXED(&rt->polled, LOAD_RELAXED(&rt->polled) + 1);
        if (nif->ops->deadlines_are_exact)
            STORE_RELAXED(&rt->exact, LOAD_RELAXED(&rt->exact) + 1);
        if (fd >= 0 && !cheap)
            STORE_RELAXED(&rt->blind, LOAD_RELAXED(&rt->blind) + 1);
    }
    atomic_store_explicit(&rt->link_count, n, memory_order_release);
    runtime_thread_wake(rt);
}

static int links_refresh(struct weir_stack *s)
{
    int error = owner_acquire(s);

    if (!error) {
        runtime_links_changed(s);
        stack_leave(s);
    }
    return error;
}

/* Internal error to the public form. */
static int give(int error)
{
    if (error >= 0)
        return 0;
    errno = -error;
    return -1;
}

int weir_link_open(struct weir_stack *s, const char *spec, const char **error)
{
    if (error)
        *error = link_error;
    link_error[0] = '\0';
    if (!s || !spec)
        return give(-EINVAL);
    int r = link_open(s, spec, link_error, sizeof(link_error));
    return give(r ? r : links_refresh(s));
}

int weir_link_pair(struct weir_stack *a, struct weir_stack *b, const char *options,
                   const char **error)
{
    if (error)
        *error = link_error;
    link_error[0] = '\0';
    if (!a || !b || a == b)
        return give(-EINVAL);
    int r = link_open_pair(a, b, options, link_error, sizeof(link_error));
    if (!r)
        r = links_refresh(a);
    if (!r)
        r = links_refresh(b);
    return give(r);
}

/* --- knobs and figures --- */

int weir_sysctl_get(struct weir_stack *s, const char *name, char *value, size_t size)
{
    int r = owner_acquire(s);

    if (!r) {
        r = sysctl_get(s, name, value, size);
        stack_leave(s);
    }
    return give(r);
}

int weir_sysctl_set(struct weir_stack *s, const char *name, const char *value)
{
    int r = owner_acquire(s);

    if (!r) {
        r = sysctl_set(s, name, value);
        stack_leave(s);
        siftr_settle(s);
    }
    return give(r);
}

void weir_buffer_usage(int64_t *mbufs, int64_t *bytes)
{
    mbuf_usage(mbufs, bytes);
}
