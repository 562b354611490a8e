/* SPDX-License-Identifier: BSD-2-Clause
 * Sets of watched descriptors.
 *
 * How it works. Each watched object has a list of watches. A change of readiness walks that list
 * and puts each watch that is interested on the ready list of its set. A wait takes watches off the
 * ready list, asks the object for its bits, and reports; level-triggered ones go back to the end of
 * the list, so that they are looked at again by the next wait, and fall off when they are found not
 * ready.
 *
 * Locks, outer first: topology (who watches what, process-wide; not taken by waits or
 * notifications) > mutex of a set > list of a watched object > ready list of a set. A set that is
 * itself watched passes notifications on, holding the lock of the list it came from: circles are
 * refused when watches are added. */
#include "so_private.h"
#include "so_watch.h"
#include <limits.h>
#include <poll.h>

LOCK_CLASS(class_topology, "watch_topology");
LOCK_CLASS(class_mutex, "epoll_set");
LOCK_CLASS(class_list, "so_watch");
LOCK_CLASS(class_ready, "epoll_ready");

/* Sets within sets: as many levels as on Linux. */
#define NEST_MAX 4

#define EVENT_FLAGS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)
#define EXCLUSIVE_OK                                                                               \
    (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

/* The process's: set once by watch_init, before any set. */
static struct lock topology;
static const struct weir_alloc *watch_alloc;
static const struct port *_Atomic watch_port;

void watch_init(const struct weir_alloc *a)
{
    lock_init(&topology, &class_topology);
    watch_alloc = a;
}

void watch_fork_prepare(void) TS_NO_ANALYSIS
{
    lock_acquire(&topology);
}

void watch_fork_done(void) TS_NO_ANALYSIS
{
    lock_release(&topology);
}

void watch_set_port(const struct port *port)
{
    atomic_store_explicit(&watch_port, port, memory_order_release);
}

const struct port *watch_get_port(void)
{
    return atomic_load_explicit(&watch_port, memory_order_acquire);
}

static int watch_compare(const struct poll_watch *a, const struct poll_watch *b)
{
    return a->fd < b->fd ? -1 : a->fd > b->fd;
}

RB_PROTOTYPE(poll_watch_tree, poll_watch, tree, watch_compare)
RB_GENERATE(poll_watch_tree, poll_watch, tree, watch_compare)

void watch_list_init(struct watch_list *l)
{
    lock_init(&l->lock, &class_list);
    LIST_INIT(&l->list);
}

void poll_set_init(struct poll_set *set)
{
    memset(set, 0, sizeof *set);
    lock_init(&set->mutex, &class_mutex);
    lock_init(&set->ready_lock, &class_ready);
    TAILQ_INIT(&set->ready);
    RB_INIT(&set->tree);
    watch_list_init(&set->watchers);
}

/* --- notification --- */

static void set_wake(struct poll_set *set, const struct port *port)
{
    if (event_change(&set->event))
        port->wake(port->ctx, &set->event, INT_MAX);
}

/* False: it was on the list already. */
static bool make_ready(struct poll_watch *w)
{
    struct poll_set *set = w->set;

    lock_acquire(&set->ready_lock);
    bool fresh = !w->on_ready;
    if (fresh) {
        w->on_ready = true;
        TAILQ_INSERT_TAIL(&set->ready, w, ready);
    }
    lock_release(&set->ready_lock);
    return fresh;
}

/* `port` is the one of the stack that the news came from. depth bounds the recursion by NEST_MAX.
 */
static void notify(struct watch_list *l, uint32_t events, const struct port *port,
                   int depth) TS_NO_ANALYSIS
{
    struct poll_watch *w;

    CHECK(depth <= NEST_MAX);
    lock_acquire(&l->lock);
    LIST_FOREACH (w, &l->list, link) {
        uint32_t want = atomic_load_explicit(&w->events, memory_order_acquire);
        if (!(want & ~EVENT_FLAGS) || (events && !(events & want)))
            continue;
        make_ready(w);
        set_wake(w->set, port);
        if (atomic_load_explicit(&w->set->watchers.count, memory_order_seq_cst))
            notify(&w->set->watchers, SO_POLL_IN, port, depth + 1);
    }
    lock_release(&l->lock);
}

void watch_list_notify(struct watch_list *l, uint32_t events)
{
    struct socket *so = CONTAINER_OF(l, struct socket, so_watch);

    notify(l, events, so->so_stack->port, 0);
}

/* --- looking --- */

static uint32_t watch_bits(struct poll_watch *w)
{
    uint32_t want = atomic_load_explicit(&w->events, memory_order_relaxed);

    if (!(want & ~EVENT_FLAGS))
        return 0;
    uint32_t bits = (uint16_t)(w->so ? so_poll_bits(w->so) : poll_set_bits(w->sub));
    return bits & want;
}

static struct poll_watch *ready_pop(struct poll_set *set)
{
    lock_acquire(&set->ready_lock);
    struct poll_watch *w = TAILQ_FIRST(&set->ready);
    if (w) {
        TAILQ_REMOVE(&set->ready, w, ready);
        /* From here on a change puts it back: nothing is lost while its bits are looked at. */
        w->on_ready = false;
    }
    lock_release(&set->ready_lock);
    return w;
}

/* Nothing is ready, and nobody is about to find out. */
static bool ready_is_empty(struct poll_set *set)
{
    lock_acquire(&set->ready_lock);
    bool empty = TAILQ_EMPTY(&set->ready) && !LOAD_RELAXED(&set->looking);
    lock_release(&set->ready_lock);
    return empty;
}

/* Before the first watch is taken off the ready list, and when all that stay are back on it: nobody
 * is told of those again. With the mutex; ready_lock orders it for those who see the list. */
static void set_looking(struct poll_set *set, bool on)
{
    atomic_store_explicit(&set->looking, on, memory_order_release);
}

/* The chain is newest first: turned round, so that the set goes round its level-triggered ones
 * fairly. */
static void readd_seen(struct poll_watch *seen)
{
    struct poll_watch *order = NULL, *next;

    for (; seen; seen = next) {
        next = seen->seen;
        seen->seen = order;
        order = seen;
    }
    for (; order; order = order->seen) {
        order->reported = false;
        if (order->readd)
            make_ready(order);
    }
}

int poll_set_collect(struct poll_set *set, struct epoll_event *out, int max)
{
    struct poll_watch *seen = NULL, *w;
    int n = 0;

    if (ready_is_empty(set))
        return 0;
    lock_acquire(&set->mutex);
    set_looking(set, true);
    while (n < max && (w = ready_pop(set)) != NULL) {
        if (w->reported) { /* once round: it was made ready again meanwhile */
            w->readd = true;
            break;
        }
        uint32_t bits = watch_bits(w);
        if (!bits)
            continue;
        out[n].events = bits;
        out[n++].data = w->data;
        uint32_t want = LOAD_RELAXED(&w->events);
        if (want & EPOLLONESHOT)
            atomic_store_explicit(&w->events, want & EVENT_FLAGS, memory_order_release);
        w->readd = !(want & (EPOLLONESHOT | EPOLLET));
        w->reported = true;
        w->seen = seen;
        seen = w;
    }
    readd_seen(seen);
    set_looking(set, false);
    lock_release(&set->mutex);
    return n;
}

short poll_set_bits(struct poll_set *set)
{
    struct poll_watch *w;
    short bits = 0;

    if (ready_is_empty(set))
        return 0;
    lock_acquire(&set->mutex);
    set_looking(set, true);
    while (!bits && (w = ready_pop(set)) != NULL) {
        if (!watch_bits(w))
            continue;
        bits = SO_POLL_IN;
        lock_acquire(&set->ready_lock);
        if (!w->on_ready) {
            w->on_ready = true;
            TAILQ_INSERT_HEAD(&set->ready, w, ready);
        }
        lock_release(&set->ready_lock);
    }
    set_looking(set, false);
    lock_release(&set->mutex);
    return bits;
}

/* --- waiting --- */

int poll_set_sleep(struct poll_set *set, const struct port *port, uint32_t seq, uint64_t deadline)
{
    struct weir_stack *stacks[POLL_SET_STACKS];
    struct port_wait w = {.addr = &set->event, .deadline_ns = deadline, .stacks = stacks};

    if (!event_arm(&set->event, seq, &w.expected))
        return 0;
    lock_acquire(&set->mutex);
    for (uint32_t i = 0; i < set->nstacks; i++)
        stacks[i] = set->stacks[i].stack;
    w.stack_count = set->nstacks;
    lock_release(&set->mutex);
    int r = port->wait(port->ctx, &w);
    return r == -ETIMEDOUT ? -EAGAIN : r;
}

int poll_set_wait(struct poll_set *set, const struct port *port, struct epoll_event *out, int max,
                  uint64_t deadline)
{
    for (;;) {
        uint32_t seq = event_seq(&set->event);
        int n = poll_set_collect(set, out, max);
        if (n || deadline == 0)
            return n;
        int r = poll_set_sleep(set, port, seq, deadline);
        if (r == -EAGAIN)
            return poll_set_collect(set, out, max);
        if (r)
            return r;
    }
}

/* --- who watches what --- */

/* Stacks that a waiter drives; those of nested sets are left to their threads and to whoever waits
 * there. */
static void count_stack(struct poll_set *set, struct weir_stack *s, bool add)
{
    uint32_t i = 0;

    while (i < set->nstacks && set->stacks[i].stack != s)
        i++;
    if (add) {
        if (i == POLL_SET_STACKS)
            return;
        if (i == set->nstacks) {
            set->stacks[i].stack = s;
            set->stacks[i].watches = 0;
            set->nstacks++;
        }
        set->stacks[i].watches++;
    } else if (i < set->nstacks && --set->stacks[i].watches == 0) {
        set->stacks[i] = set->stacks[--set->nstacks];
    }
}

static void link_watch(struct poll_set *set, struct poll_watch *w, struct socket *so,
                       struct poll_set *sub)
{
    w->set = set;
    w->so = so;
    w->sub = sub;
    w->list = so ? &so->so_watch : &sub->watchers;
    w->on_ready = false;
    if (so)
        count_stack(set, so->so_stack, true);
    lock_acquire(&w->list->lock);
    LIST_INSERT_HEAD(&w->list->list, w, link);
    atomic_fetch_add_explicit(&w->list->count, 1, memory_order_seq_cst);
    lock_release(&w->list->lock);
}

static void unlink_watch(struct poll_set *set, struct poll_watch *w)
{
    lock_acquire(&w->list->lock);
    LIST_REMOVE(w, link);
    atomic_fetch_sub_explicit(&w->list->count, 1, memory_order_relaxed);
    lock_release(&w->list->lock);
    lock_acquire(&set->ready_lock);
    if (w->on_ready)
        TAILQ_REMOVE(&set->ready, w, ready);
    lock_release(&set->ready_lock);
    if (w->so)
        count_stack(set, w->so->so_stack, false);
}

void poll_set_attach(struct poll_set *set, struct poll_watch *w, struct socket *so,
                     struct poll_set *sub, uint32_t events)
{
    lock_acquire(&set->mutex);
    atomic_store_explicit(&w->events, events, memory_order_relaxed);
    link_watch(set, w, so, sub);
    lock_release(&set->mutex);
}

void poll_set_detach(struct poll_set *set, struct poll_watch *w)
{
    lock_acquire(&set->mutex);
    unlink_watch(set, w);
    lock_release(&set->mutex);
}

/* Levels of sets below (down) or above a set, at most NEST_MAX + 1. *meets: `other` was met.
 * Topology lock held, which keeps all but the watches of running polls (fd < 0) as they are. */
static int levels(struct poll_set *set, struct poll_set *other, bool down, int depth,
                  bool *meets) TS_NO_ANALYSIS
{
    struct poll_watch *w;
    int best = 0;

    if (set == other)
        *meets = true;
    if (depth > NEST_MAX)
        return 0;
    if (down) {
        RB_FOREACH (w, poll_watch_tree, &set->tree)
            if (w->sub)
                best = MAX(best, 1 + levels(w->sub, other, true, depth + 1, meets));
        return best;
    }
    lock_acquire(&set->watchers.lock);
    LIST_FOREACH (w, &set->watchers.list, link)
        if (w->fd >= 0)
            best = MAX(best, 1 + levels(w->set, other, false, depth + 1, meets));
    lock_release(&set->watchers.lock);
    return best;
}

static int check_nesting(struct poll_set *set, struct poll_set *sub)
{
    bool circle = false;
    int below = levels(sub, set, true, 0, &circle);
    int above = levels(set, NULL, false, 0, &circle);

    return circle || below + above + 1 > NEST_MAX ? -ELOOP : 0;
}

static struct poll_watch *find(struct poll_set *set, int fd)
{
    struct poll_watch key = {.fd = fd};

    return RB_FIND(poll_watch_tree, &set->tree, &key);
}

/* After its interest changed: report at the next wait if it is ready now. Set's mutex held. */
static void arm(struct poll_set *set, struct poll_watch *w, const struct epoll_event *ev)
{
    const struct port *port = w->so ? w->so->so_stack->port : watch_get_port();

    w->data = ev->data;
    atomic_store_explicit(&w->events, ev->events | EPOLLERR | EPOLLHUP, memory_order_seq_cst);
    /* One on the list already was told of, and will be looked at with its new interest. */
    if (!watch_bits(w) || !make_ready(w) || !port)
        return;
    set_wake(set, port);
    if (atomic_load_explicit(&set->watchers.count, memory_order_seq_cst))
        notify(&set->watchers, SO_POLL_IN, port, 1);
}

static int add_locked(struct poll_set *set, struct poll_watch *w, struct socket *so,
                      struct poll_set *sub, const struct epoll_event *ev)
{
    if ((ev->events & EPOLLEXCLUSIVE) && (sub || (ev->events & ~(uint32_t)EXCLUSIVE_OK)))
        return -EINVAL;
    int error = sub ? check_nesting(set, sub) : 0;
    if (error)
        return error;
    if (find(set, w->fd))
        return -EEXIST;
    lock_acquire(&set->mutex);
    link_watch(set, w, so, sub);
    RB_INSERT(poll_watch_tree, &set->tree, w);
    arm(set, w, ev);
    lock_release(&set->mutex);
    return 0;
}

int poll_set_add(struct poll_set *set, int fd, struct socket *so, struct poll_set *sub,
                 const struct epoll_event *ev)
{
    struct poll_watch *w = alloc_zero(watch_alloc, sizeof *w);

    if (!w)
        return -ENOMEM;
    w->fd = fd;
    lock_acquire(&topology);
    int error = add_locked(set, w, so, sub, ev);
    lock_release(&topology);
    if (error)
        alloc_free(watch_alloc, w, sizeof *w);
    return error;
}

int poll_set_modify(struct poll_set *set, int fd, const struct epoll_event *ev)
{
    int error = 0;

    lock_acquire(&set->mutex);
    struct poll_watch *w = find(set, fd);
    if ((ev->events & EPOLLEXCLUSIVE) || (w && (LOAD_RELAXED(&w->events) & EPOLLEXCLUSIVE)))
        error = -EINVAL;
    else if (!w)
        error = -ENOENT;
    else
        arm(set, w, ev);
    lock_release(&set->mutex);
    return error;
}

static void remove_locked(struct poll_set *set, struct poll_watch *w)
{
    lock_acquire(&set->mutex);
    unlink_watch(set, w);
    RB_REMOVE(poll_watch_tree, &set->tree, w);
    lock_release(&set->mutex);
}

int poll_set_remove(struct poll_set *set, int fd)
{
    lock_acquire(&topology);
    struct poll_watch *w = find(set, fd);
    if (w)
        remove_locked(set, w);
    lock_release(&topology);
    if (!w)
        return -ENOENT;
    alloc_free(watch_alloc, w, sizeof *w);
    return 0;
}

void watch_list_detach(struct watch_list *l)
{
    struct poll_watch *w;

    if (atomic_load_explicit(&l->count, memory_order_acquire) == 0)
        return;
    lock_acquire(&topology);
    for (;;) {
        lock_acquire(&l->lock);
        w = LIST_FIRST(&l->list);
        lock_release(&l->lock);
        if (!w)
            break;
        remove_locked(w->set, w); /* the set lives: its end takes the topology lock too */
        alloc_free(watch_alloc, w, sizeof *w);
    }
    lock_release(&topology);
}

void poll_set_fini(struct poll_set *set)
{
    struct poll_watch *w;

    watch_list_detach(&set->watchers);
    lock_acquire(&topology);
    while ((w = RB_MIN(poll_watch_tree, &set->tree)) != NULL) {
        remove_locked(set, w);
        alloc_free(watch_alloc, w, sizeof *w);
    }
    lock_release(&topology);
}
