/* SPDX-License-Identifier: BSD-2-Clause
 * Sockets: table, life, deferred work, and what protocols tell them.
 *
 * How it works. A socket lives as long as it has references (a descriptor, running calls, its place
 * in an accept queue) or a protocol block. The drop of the last reference leaves SO_WORK_CLOSE to
 * the owner of the stack, who detaches the protocol, and frees the socket when the protocol is done
 * with it.
 *
 * Deferred work: bits in so_work, and the socket's node on the stack's deferred list.
 * SO_WORK_QUEUED stands in the same word as the bits, so that exactly one thread pushes the node
 * between two runs: a thread that sets bits and finds QUEUED set does not touch the socket again,
 * which the owner may free from then on. */
#include "so_private.h"
#include "so_watch.h"
#include "stack.h"
#include "udp/udp.h"

LOCK_CLASS_BRIEF(class_rcv, "so_rcv");
LOCK_CLASS_BRIEF(class_snd, "so_snd");
LOCK_CLASS(class_rcv_serial, "so_rcv_serial");
LOCK_CLASS(class_snd_serial, "so_snd_serial");

void (*so_fd_signal)(struct socket *so);

#define CHUNK_SHIFT 10
#define CHUNK_SIZE (1u << CHUNK_SHIFT)
#define CHUNK_COUNT 1024u
#define SO_LINGER_MAX 4096 /* bytes unacknowledged up to which a sender may linger */

/* A slot holds the socket, or, free, the index of the next free slot + 1 in an odd number. */
struct socket_table {
    _Atomic(uintptr_t) *_Atomic chunk[CHUNK_COUNT];
    uint32_t used; /* (o) slots that were ever in use */
    uint32_t free; /* (o) head of the free slots, index + 1 */
    uint32_t live; /* (o) */
};

static _Atomic(uintptr_t) *slot(struct socket_table *t, uint32_t index)
{
    _Atomic(uintptr_t) *c =
        atomic_load_explicit(&t->chunk[index >> CHUNK_SHIFT], memory_order_acquire);

    return c ? &c[index & (CHUNK_SIZE - 1)] : NULL;
}

struct socket *so_by_index(struct weir_stack *s, uint32_t index)
{
    if (index >= CHUNK_COUNT * CHUNK_SIZE)
        return NULL;
    _Atomic(uintptr_t) *p = slot(s->sockets, index);
    uintptr_t v = p ? atomic_load_explicit(p, memory_order_acquire) : 0;

    return v & 1 ? NULL : (struct socket *)v;
}

struct deferred_node *so_node_of(struct weir_stack *s, uint32_t index)
{
    struct socket *so = so_by_index(s, index);

    CHECK(so != NULL);
    return &so->so_node;
}

int so_table_init(struct weir_stack *s)
{
    s->sockets = alloc_zero(&s->alloc, sizeof *s->sockets);
    if (!s->sockets)
        return -ENOMEM;
    owner_set_node(s, so_node_of);
    return 0;
}

static int table_insert(struct weir_stack *s, struct socket *so)
{
    struct socket_table *t = s->sockets;
    uint32_t index;

    if (t->live >= (uint64_t)KNOB(s, kern_maxsockets)) {
        COUNT(s, socket_limit);
        return -EMFILE;
    }
    if (t->free) {
        index = t->free - 1;
        t->free = (uint32_t)(LOAD_RELAXED(slot(t, index)) >> 1);
    } else {
        if (t->used == CHUNK_COUNT * CHUNK_SIZE)
            return -EMFILE;
        index = t->used;
        if (!slot(t, index)) {
            void *c = alloc_zero(&s->alloc, CHUNK_SIZE * sizeof(uintptr_t));
            if (!c)
                return -ENOMEM;
            atomic_store_explicit(&t->chunk[index >> CHUNK_SHIFT], c, memory_order_release);
        }
        t->used++;
    }
    so->so_index = index;
    atomic_store_explicit(slot(t, index), (uintptr_t)so, memory_order_release);
    t->live++;
    return 0;
}

static void table_remove(struct socket *so)
{
    struct socket_table *t = so->so_stack->sockets;

    atomic_store_explicit(slot(t, so->so_index), (uintptr_t)t->free << 1 | 1, memory_order_release);
    t->free = so->so_index + 1;
    t->live--;
}

static int check_type(int domain, int type, int protocol, const struct protosw **p)
{
    if (domain != AF_INET && domain != AF_INET6)
        return -EAFNOSUPPORT;
    if (type < 0 || type > SOCK_PACKET || protocol < 0 || protocol >= 256)
        return -EINVAL;
    if (type == SOCK_STREAM)
        *p = &tcp_protosw;
    else if (type == SOCK_DGRAM)
        *p = &udp_protosw;
    else
        return type == SOCK_RAW ? -EPROTONOSUPPORT : -ESOCKTNOSUPPORT;
    return protocol == 0 || protocol == (*p)->protocol ? 0 : -EPROTONOSUPPORT;
}

static void so_free(struct socket *so)
{
    struct weir_stack *s = so->so_stack;

    CHECK(atomic_load(&so->so_refs) == 0 && so->so_pcb == NULL);
    CHECK(LIST_EMPTY(&so->so_watch.list) && TAILQ_EMPTY(&so->so_accept));
    sockbuf_fini(&so->so_rcv);
    sockbuf_fini(&so->so_snd);
    table_remove(so);
    alloc_free(&s->alloc, so, sizeof *so);
}

static void init_buffers(struct socket *so)
{
    struct weir_stack *s = so->so_stack;
    bool stream = so->so_type == SOCK_STREAM;
    uint32_t rcv = (uint32_t)(stream ? KNOB(s, tcp_recvspace) : KNOB(s, udp_recvspace));
    uint32_t snd = (uint32_t)(stream ? KNOB(s, tcp_sendspace) : KNOB(s, udp_recvspace));

    sockbuf_init(&so->so_rcv, &class_rcv, rcv);
    sockbuf_init(&so->so_snd, &class_snd, snd);
    sockbuf_set_mode(&so->so_rcv, &s->knobs.tcp_soreceive_stream);
    lock_init(&so->so_rcv_serial, &class_rcv_serial);
    lock_init(&so->so_snd_serial, &class_snd_serial);
    watch_list_init(&so->so_watch);
    TAILQ_INIT(&so->so_accept);
}

struct socket *so_create(struct weir_stack *s, int domain, int type, int protocol, int *error)
{
    const struct protosw *p = NULL;

    *error = check_type(domain, type, protocol, &p);
    if (*error)
        return NULL;
    struct socket *so = alloc_zero(&s->alloc, sizeof *so);
    if (!so) {
        COUNT(s, socket_nomem);
        *error = -ENOMEM;
        return NULL;
    }
    so->so_stack = s;
    so->so_handle = UINT32_MAX;
    so->so_domain = domain;
    so->so_type = type;
    so->so_protocol = p->protocol;
    so->so_proto = p;
    *error = table_insert(s, so);
    if (*error) {
        alloc_free(&s->alloc, so, sizeof *so);
        return NULL;
    }
    init_buffers(so);
    so_option_init(so);
    *error = p->attach(so);
    if (*error) {
        so->so_pcb = NULL;
        so_free(so);
        return NULL;
    }
    atomic_store(&so->so_refs, 1);
    COUNT(s, socket_created);
    return so;
}

int so_reattach(struct socket *so)
{
    if (so->so_pcb)
        return 0;
    int error = so->so_proto->attach(so);
    if (error)
        return error;
    /* An address that the application chose stays chosen; if it was taken meanwhile, the next call
     * says so. */
    if (so->so_bound)
        error = so->so_proto->bind(so, &so->so_laddr, so->so_lport);
    else
        so->so_lport = 0;
    return error;
}

bool so_has_port(const struct socket *so)
{
    uint32_t st = so_state(so);

    return so->so_bound_port || (st & (SS_LISTENING | SS_CONNECTING | SS_CONNECTED)) ||
           (so->so_lport && !(st & SS_DISCONNECTED));
}

void so_note_sockname(struct socket *so)
{
    struct ipaddr a;
    uint16_t port;

    if (so->so_pcb && so->so_proto->sockname && so->so_proto->sockname(so, &a, &port) == 0) {
        so->so_laddr = a;
        so->so_lport = port;
    }
    if (so->so_pcb && so->so_proto->peername && so->so_proto->peername(so, &a, &port) == 0) {
        so->so_faddr = a;
        so->so_fport = port;
    }
}

/* --- references and deferred work --- */

void so_hold(struct socket *so)
{
    atomic_fetch_add_explicit(&so->so_refs, 1, memory_order_relaxed);
}

uint64_t so_now(const struct weir_stack *s)
{
    return s->port->now_ns(s->port->ctx);
}

uint64_t so_wall_ns(const struct weir_stack *s)
{
    return s->port->wall_ns ? s->port->wall_ns(s->port->ctx) : so_now(s);
}

/* Time never goes back, whatever order owners read the clock in. */
static void set_now(struct weir_stack *s)
{
    s->now = MAX(s->now, so_now(s));
}

int so_enter(struct weir_stack *s)
{
    int error = owner_acquire(s);

    if (error == 0)
        set_now(s);
    return error;
}

void so_leave(struct weir_stack *s)
{
    stack_flush(s, s->now);
    stack_leave(s);
}

bool so_queue_work(struct socket *so, uint32_t work)
{
    struct weir_stack *s = so->so_stack;
    uint32_t index = so->so_index;
    uint32_t old =
        atomic_fetch_or_explicit(&so->so_work, work | SO_WORK_QUEUED, memory_order_acq_rel);

    if (old & SO_WORK_QUEUED)
        return false; /* whoever pushed or pushes the node sees to it that it is run */
    return owner_defer(s, index);
}

void so_drop(struct socket *so)
{
    struct weir_stack *s = so->so_stack;

    if (atomic_fetch_sub_explicit(&so->so_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->port->linger)
        (void)s->port->linger(s->port->ctx, s, LINGER_CLOSE);
    /* Work may wait there only because a thread lingers (so_defer). */
    if ((so_queue_work(so, SO_WORK_CLOSE) || owner_has_work(s)) && owner_try(s)) {
        stack_step(s, so_now(s)); /* takes it off the list */
        stack_leave(s);
    }
}

void so_accept_flush(struct socket *listener)
{
    struct socket *child;

    while ((child = so_accept_take(listener)) != NULL) {
        if (child->so_pcb)
            child->so_proto->abort(child);
        so_drop(child); /* the owner finds it on its list before it lets go */
    }
}

static void run_close(struct socket *so)
{
    CHECK(atomic_load(&so->so_refs) == 0 && !so->so_closing);
    so->so_closing = true;
    so->so_in_work = true;
    so->so_handle = UINT32_MAX;
    so_state_change(so, SS_NOHANDLE, 0);
    so_accept_flush(so);
    if (so->so_pcb)
        so->so_proto->detach(so);
    so->so_in_work = false;
    if (!so->so_pcb)
        so_free(so);
}

static void run_bits(struct socket *so, uint32_t work)
{
    const struct protosw *p = so->so_proto;

    if ((work & (SO_WORK_SEND | SO_WORK_FLUSH | SO_WORK_DATAGRAM)) && so->so_pcb && p->send)
        p->send(so);
    if ((work & SO_WORK_RCVD) && so->so_pcb && p->rcvd)
        p->rcvd(so);
    if (unlikely(work & SO_WORK_VANISHED) && so->so_pcb && p->abort) {
        COUNT(so->so_stack, tcp_data_vanished);
        p->abort(so);
    }
    if (work & SO_WORK_CLOSE)
        run_close(so);
}

void so_run_work(struct socket *so)
{
    run_bits(so, atomic_exchange_explicit(&so->so_work, 0, memory_order_acq_rel));
}

void so_defer(struct socket *so, uint32_t work)
{
    struct weir_stack *s = so->so_stack;
    const struct port *port = s->port;

    /* A thread that is about to wait does the work then: one ownership less, and what it adds until
     * then, such as the end, leaves with it. */
    if (work == SO_WORK_SEND && port->linger && sockbuf_used(&so->so_snd) <= SO_LINGER_MAX &&
        port->linger(port->ctx, s, LINGER_SEND)) {
        (void)so_queue_work(so, work);
        if (port->linger(port->ctx, s, LINGER_LEFT))
            return;
    }
    if (owner_try(s)) {
        set_now(s);
        /* QUEUED stays: the node is on the list still, and the list's turn may be the one that
         * closes. */
        if (LOAD_RELAXED(&so->so_work))
            work |= atomic_fetch_and_explicit(&so->so_work, SO_WORK_QUEUED, memory_order_acq_rel) &
                    ~SO_WORK_QUEUED;
        run_bits(so, work);
        so_leave(s);
    } else if (so_queue_work(so, work) && owner_try(s)) {
        set_now(s);
        so_leave(s);
    }
}

void so_protocol_done(struct socket *so)
{
    CHECK(so->so_pcb == NULL);
    if (so->so_closing) {
        if (!so->so_in_work)
            so_free(so);
        return;
    }
    if ((so_state(so) & SS_INCOMPLETE) && !so->so_queued) {
        /* A child that never reached its listener: the reference meant for the queue is the only
         * one. */
        CHECK(atomic_load(&so->so_refs) == 1);
        atomic_store(&so->so_refs, 0);
        so_free(so);
        return;
    }
    if (so_state(so) & (SS_CONNECTED | SS_CONNECTING))
        so_disconnected(so);
}

uint32_t so_foreach_slice(struct weir_stack *s, uint32_t from, uint32_t count,
                          void (*fn)(struct socket *so, void *ctx), void *ctx)
{
    uint32_t i = from;
    for (; i < s->sockets->used && i - from < count; i++) {
        struct socket *so = so_by_index(s, i);
        if (so)
            fn(so, ctx);
    }
    return i < s->sockets->used ? i : 0;
}

void so_foreach(struct weir_stack *s, void (*fn)(struct socket *so, void *ctx), void *ctx)
{
    (void)!so_foreach_slice(s, 0, UINT32_MAX, fn, ctx);
}

/* --- the end of a stack: desc_revoke makes the descriptors answer EBADF --- */
void (*so_revoke_handle)(struct socket *so);

static void table_abort_one(struct socket *so, void *ctx)
{
    if (so->so_handle != UINT32_MAX && so_revoke_handle)
        so_revoke_handle(so);
    atomic_store(&so->so_refs, 0);
    so->so_closing = true;
    so->so_in_work = true; /* not freed under our feet */
    so_state_change(so, SS_NOHANDLE, 0);
    if (so->so_pcb)
        so->so_proto->abort(so);
    CHECK(so->so_pcb == NULL);
}

static void table_flush_one(struct socket *so, void *ctx)
{
    so_accept_flush(so);
}

static void table_free_one(struct socket *so, void *ctx)
{
    so_free(so);
}

void so_table_fini(struct weir_stack *s)
{
    struct socket_table *t = s->sockets;
    bool link_ready;

    if (!t)
        return;
    so_foreach(s, table_flush_one, NULL);
    so_foreach(s, table_abort_one, NULL);
    /* Deferred work of sockets that are no more. */
    uint32_t forgotten = owner_take(s, &link_ready);
    (void)forgotten;
    so_foreach(s, table_free_one, NULL);
    for (uint32_t c = 0; c < CHUNK_COUNT; c++)
        alloc_free(&s->alloc, (void *)LOAD_RELAXED(&t->chunk[c]), CHUNK_SIZE * sizeof(uintptr_t));
    alloc_free(&s->alloc, t, sizeof *t);
    s->sockets = NULL;
}

/* --- waiting --- */

uint64_t so_deadline(const struct weir_stack *s, uint64_t timeout_ns)
{
    if (timeout_ns == 0)
        return TIME_NEVER;
    uint64_t now = so_now(s);
    return timeout_ns >= TIME_NEVER - now ? TIME_NEVER : now + timeout_ns;
}

int so_wait(struct socket *so, uint32_t seq, uint64_t deadline)
{
    return so_wait_for(so, seq, deadline, false);
}

int so_wait_for(struct socket *so, uint32_t seq, uint64_t deadline, bool idle)
{
    struct weir_stack *s = so->so_stack;
    struct port_wait w = {.addr = &so->so_event,
                          .deadline_ns = deadline,
                          .stacks = &s,
                          .stack_count = 1,
                          .idle = idle};

    if (!event_arm(&so->so_event, seq, &w.expected))
        return 0;
    int r = s->port->wait(s->port->ctx, &w);
    return r == -ETIMEDOUT ? -EAGAIN : r;
}
