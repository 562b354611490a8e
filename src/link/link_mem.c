/* SPDX-License-Identifier: BSD-2-Clause
 * The memory link: two rings of packet pointers, and running the receiver from the sender's thread.
 *
 * How it works. A ring has one producer (the owner of the sending stack) and one consumer (the
 * owner of the receiving one). A slot says by a turn number that its packet is new, so handing one
 * over moves one cache line between the cores, where a published index would move two. Only the
 * producer writes slots; it looks at the consumer's position only when the ring may be full. What
 * each side writes, and what neither does, are lines of their own.
 *
 * Waking. After its owner has let go, the sender's thread is called to kick. A receiver that has a
 * driver sees its ring by itself; otherwise the sender's thread becomes its owner and runs its
 * input right away (net.isr.dispatch=direct), or, if that fails, leaves LINK_READY in the
 * receiver's word. As that moves all that the input touches to this core and back, a thread of the
 * far end that is between two waits is better waited for: how long, `patience` learns by success
 * and failure. What the receiver sends back kicks in turn: kicks that come up while one is
 * running on this thread are noted and run after it, so that stacks never nest.
 *
 * A full ring makes tx return fewer frames and leave `blocked`. The consumer looks at that flag
 * whenever it has emptied half a ring: a full ring always has one such moment ahead.
 *
 * Both ends live in one block, which the last to close frees. `users` keeps an end's stack from
 * going away while the far end's threads use it: close says `closed` and then waits for them. */
#include "link_mem.h"
#include "stack.h"
#include <sched.h>

#define MAX_KICKS 8       /* noted on one thread at a time; beyond: LINK_READY */
#define MAX_KICK_ROUNDS 8 /* steps of stacks that one kick may cause; then others take over */
#define STEP_ROUNDS 4     /* bursts of a stack that a kick runs */
#define PATIENCE_MAX                                                                               \
    1024 /* turns, some ten microseconds: as long as an interrupt of the far end                   \
          */
#define PATIENCE_MIN 16
#define PATIENCE_TRY 128   /* turns of that one */
#define PATIENCE_RETRY 256 /* kicks without patience before the next that has some */

struct mem_link;

struct mem_slot {
    struct mbuf *frame;
    _Atomic uint32_t turn; /* position of the frame + 1: written last */
};

struct mem_ring {
    CACHE_ALIGNED struct mem_slot *slot; /* (c) */
    uint32_t mask;                       /* (c) slots - 1 */
    _Atomic uint32_t blocked;            /* the producer waits for room: rarely written */
    CACHE_ALIGNED _Atomic uint32_t head; /* next to take; written by the consumer */
    CACHE_ALIGNED uint32_t tail;         /* next to fill; the producer's */
    uint32_t head_seen;                  /* the producer's: head was there when it looked last */
};

struct mem_end {
    struct mem_ring rx;       /* filled by the far end */
    struct mem_end *peer;     /* (c) */
    struct mem_link *link;    /* (c) */
    struct weir_stack *stack; /* (c) after bind */
    _Atomic bool closed;
    CACHE_ALIGNED _Atomic uint32_t
        users;                 /* threads of this end that are using the far end's stack */
    _Atomic uint32_t patience; /* turns that a kick waits for the far end's thread */
    _Atomic uint32_t hurried;  /* kicks since patience was 0 */
};

struct mem_link {
    struct mem_end end[2];
    struct weir_alloc alloc;
    size_t size;
    _Atomic uint32_t open_ends;
};

/* Kicks noted while one is running on this thread. */
static _Thread_local struct {
    bool running;
    unsigned count;
    struct mem_end *end[MAX_KICKS];
} kicks __attribute__((tls_model("initial-exec")));

/* The far end's stack, kept alive until unuse_peer; NULL when it is closed. The increment is also
 * the barrier between filling a slot and looking at the peer's word. */
static struct weir_stack *use_peer(struct mem_end *e)
{
    atomic_fetch_add(&e->users, 1);
    return atomic_load(&e->peer->closed) ? NULL : e->peer->stack;
}

static void unuse_peer(struct mem_end *e)
{
    atomic_fetch_sub_explicit(&e->users, 1, memory_order_release);
}

static void peer_ready(struct mem_end *e)
{
    struct weir_stack *s = use_peer(e);

    if (s)
        owner_link_ready(s);
    unuse_peer(e);
}

/* Room for a frame? A full ring leaves `blocked` for the consumer. */
static bool has_room(struct mem_ring *r)
{
    if (likely(r->tail - r->head_seen <= r->mask))
        return true;
    r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
    if (r->tail - r->head_seen <= r->mask)
        return true;
    atomic_store(&r->blocked, 1);
    r->head_seen = atomic_load(&r->head);
    return r->tail - r->head_seen <= r->mask;
}

static size_t mem_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct mem_end *e = link;
    struct mem_ring *r = &e->peer->rx;
    size_t i;

    (void)now_ns;
    if (unlikely(atomic_load_explicit(&e->peer->closed, memory_order_relaxed))) {
        for (i = 0; i < n; i++)
            mbuf_free_chain(&frames[i]);
        return n;
    }
    for (i = 0; i < n && has_room(r); i++) {
        struct mem_slot *slot = &r->slot[r->tail & r->mask];
        struct mbuf *m = frames[i];
        frames[i] = NULL;
        m->m_pkt.csum_flags |= CSUM_L4_VALID | CSUM_IP_VALID;
        slot->frame = m;
        atomic_store_explicit(&slot->turn, ++r->tail, memory_order_release);
    }
    return i;
}

/* The frame of this position has come. Any thread may look. */
static bool has_come(const struct mem_ring *r, uint32_t pos)
{
    return atomic_load_explicit(&r->slot[pos & r->mask].turn, memory_order_acquire) == pos + 1;
}

static size_t take(struct mem_end *e, struct mbuf **frames, size_t n)
{
    struct mem_ring *r = &e->rx;
    uint32_t first = LOAD_RELAXED(&r->head), head = first, half = (r->mask + 1) / 2;
    size_t i;

    for (i = 0; i < n && has_come(r, head); i++, head++) {
        struct mbuf *m = r->slot[head & r->mask].frame;
        /* The other core wrote all of it: fetch its lines at once, not one after another. */
        __builtin_prefetch((char *)m + CACHE_LINE);
        __builtin_prefetch((char *)m + 2 * CACHE_LINE);
        __builtin_prefetch((char *)m + 3 * CACHE_LINE);
        frames[i] = m;
    }
    if (i == 0)
        return 0;
    atomic_store_explicit(&r->head, head, memory_order_release);
    if (unlikely(first / half != head / half) && atomic_exchange(&r->blocked, 0))
        peer_ready(e);
    return i;
}

static bool mem_pending(void *link)
{
    struct mem_end *e = link;

    return has_come(&e->rx, LOAD_RELAXED(&e->rx.head));
}

static size_t mem_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct mem_end *e = link;
    size_t taken = take(e, frames, n);

    for (size_t i = 0; i < taken; i++)
        frames[i]->m_pkt.time_ns = now_ns;
    /* Who sent them has been here and gone: what is left must not be forgotten when our owner lets
     * go. */
    if (unlikely(taken == n) && mem_pending(link))
        owner_link_ready(e->stack);
    return taken;
}

/* A thread of the far end comes, or has been there, within our patience. */
static bool peer_comes(struct mem_end *e, const struct weir_stack *s)
{
    uint32_t patience = LOAD_RELAXED(&e->patience);

    if (patience == 0) {
        uint32_t n = LOAD_RELAXED(&e->hurried) + 1;
        STORE_RELAXED(&e->hurried, n);
        if (n % PATIENCE_RETRY != 0)
            return false;
        patience = PATIENCE_TRY;
    }
    for (uint32_t i = 0; i < patience; i++) {
        CPU_PAUSE();
        /* Each look at the owner's word takes its line from who is about to change it. */
        if (!mem_pending(e->peer) || (i % 16 == 15 && owner_is_driven(s))) {
            STORE_RELAXED(&e->patience, PATIENCE_MAX);
            return true;
        }
    }
    STORE_RELAXED(&e->patience, patience / 2 < PATIENCE_MIN ? 0 : patience / 2);
    return false;
}

/* Let the far end's stack, which is in use, take what we sent. Nothing is owned. */
static void run_peer(struct mem_end *e)
{
    struct weir_stack *s = e->peer->stack;

    if (!owner_is_driven(s) && !peer_comes(e, s)) {
        if (KNOB(s, isr_dispatch) == 0 && owner_try(s)) {
            uint64_t now = s->port->now_ns(s->port->ctx);
            for (int i = 0; i < STEP_ROUNDS && stack_step(s, now); i++)
                ;
            stack_leave(s); /* may note a kick of its own */
        } else if (mem_pending(e->peer)) {
            owner_link_ready(s);
        }
    }
    unuse_peer(e);
}

/* Run later on this thread. The far end stays in use until then. */
static void note_kick(struct mem_end *e)
{
    for (unsigned i = 0; i < kicks.count; i++) {
        if (kicks.end[i] == e) {
            unuse_peer(e);
            return;
        }
    }
    if (kicks.count < MAX_KICKS) {
        kicks.end[kicks.count++] = e;
    } else {
        owner_link_ready(e->peer->stack);
        unuse_peer(e);
    }
}

static void mem_kick(void *link)
{
    struct mem_end *e = link;

    if (!use_peer(e)) {
        unuse_peer(e);
        return;
    }
    if (kicks.running) {
        note_kick(e);
        return;
    }
    kicks.running = true;
    run_peer(e);
    for (int rounds = 0; kicks.count > 0; rounds++) {
        e = kicks.end[--kicks.count];
        if (rounds < MAX_KICK_ROUNDS) {
            run_peer(e);
        } else {
            owner_link_ready(e->peer->stack);
            unuse_peer(e);
        }
    }
    kicks.running = false;
}

static void drain(struct mem_end *e)
{
    struct mbuf *m[STACK_BURST];
    size_t n;

    while ((n = take(e, m, STACK_BURST)) > 0)
        for (size_t i = 0; i < n; i++)
            mbuf_free_chain(&m[i]);
}

static void mem_close(void *link)
{
    struct mem_end *e = link;
    struct mem_link *l = e->link;

    atomic_store(&e->closed, true);
    /* The last of their calls to see us open: short, for they cannot own our stack while we do. */
    while (atomic_load(&e->peer->users))
        sched_yield();
    drain(e);
    peer_ready(e); /* for what was sent last: nobody kicks for a stack that is destroyed */
    if (atomic_fetch_sub(&l->open_ends, 1) == 1) {
        /* What was sent to an end while it closed. */
        drain(&l->end[0]);
        drain(&l->end[1]);
        struct weir_alloc a = l->alloc;
        alloc_free(&a, l, l->size);
    }
}

static const struct netif_ops mem_ops = {
    .tx = mem_tx,
    .rx = mem_rx,
    .kick = mem_kick,
    .pending = mem_pending,
    .close = mem_close,
};

int link_mem_create(const struct weir_alloc *a, const struct link_mem_options *o,
                    struct link_end ends[2])
{
    static const struct link_mem_options defaults;
    static _Atomic uint32_t next_station;

    if (!o)
        o = &defaults;
    uint32_t slots = o->slots ? o->slots : LINK_MEM_SLOTS;
    uint32_t mtu = o->mtu ? o->mtu : LINK_MEM_MTU;
    if (slots < 2 || slots > 65536 || (slots & (slots - 1)) || mtu < 576 || mtu > 65535)
        return -EINVAL;

    size_t ring = slots * sizeof(struct mem_slot);
    size_t size = sizeof(struct mem_link) + 2 * ring;
    struct mem_link *l = alloc_zero(a, size);
    if (!l)
        return -ENOMEM;
    l->alloc = *a;
    l->size = size;
    atomic_init(&l->open_ends, 2);
    uint32_t station = atomic_fetch_add(&next_station, 2);
    for (unsigned i = 0; i < 2; i++) {
        struct mem_end *e = &l->end[i];
        e->link = l;
        e->peer = &l->end[1 - i];
        e->rx.mask = slots - 1;
        e->rx.slot = (void *)((char *)(l + 1) + i * ring);
        uint32_t mac = station + i + 1;
        ends[i] = (struct link_end){
            .ops = &mem_ops,
            .link = e,
            .caps = NETIF_CAP_CSUM_TX | NETIF_CAP_CSUM_RX | NETIF_CAP_TSO4 | NETIF_CAP_TSO6 |
                    (o->l3 ? NETIF_CAP_L3 : 0),
            .mtu = mtu,
            .mac = {2, 0, (uint8_t)(mac >> 24), (uint8_t)(mac >> 16), (uint8_t)(mac >> 8),
                    (uint8_t)mac},
        };
    }
    return 0;
}

void link_mem_bind(const struct link_end *end, struct weir_stack *s)
{
    struct mem_end *e = end->link;

    CHECK(end->ops == &mem_ops);
    e->stack = s;
}

/* Attach one end; consumes it in every case. */
static int attach(struct weir_stack *s, struct link_end *end, const char *addr, const char *addr6)
{
    struct netif_config cfg = {
        .name = "mem", .ops = end->ops, .link = end->link, .caps = end->caps, .mtu = end->mtu};
    struct ipaddr a, a6;

    memcpy(cfg.mac, end->mac, sizeof(cfg.mac));
    int error = owner_acquire(s);
    if (error) {
        link_end_close(end);
        return error;
    }
    s->now = s->port->now_ns(s->port->ctx);
    struct netif *nif = netif_create(s, &cfg);
    if (!nif) {
        stack_leave(s);
        link_end_close(end);
        return -ENOMEM;
    }
    end->link = NULL;
    if ((error = ipaddr_parse(addr, &a)) || (error = ipaddr_parse(addr6, &a6)) ||
        (error = netif_add_addr(nif, &a, 24)) || (error = netif_add_addr(nif, &a6, 64)))
        netif_destroy(nif);
    stack_leave(s);
    return error;
}

int link_mem_pair(struct weir_stack *a, struct weir_stack *b, const struct link_mem_options *o)
{
    struct link_end ends[2];
    int error = link_mem_create(&a->alloc, o, ends);

    if (error)
        return error;
    link_mem_bind(&ends[0], a);
    link_mem_bind(&ends[1], b);
    error = attach(b, &ends[1], "10.0.0.2", "fd00::2");
    if (error)
        link_end_close(&ends[0]);
    else
        error = attach(a, &ends[0], "10.0.0.1", "fd00::1");
    return error;
}
