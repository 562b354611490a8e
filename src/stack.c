/* SPDX-License-Identifier: BSD-2-Clause
 * The sans-I/O stack: joins the layers, and runs them in one order.
 *
 * How it works. Whoever owns the stack calls stack_step (or stack_flush after work of its own)
 * and then stack_leave. A step runs in the order in which causes precede effects: what
 * applications deferred, what the links brought, what timers fell due, then the output that all
 * of these owe, then the links' queues. Output is decided after the batch, so that a burst of
 * segments is answered by one ACK and a burst of small writes leaves as one packet. Loopback
 * frames produced by the output are input again, so the loop goes round until it is quiet, at
 * most STACK_ROUNDS times: what is left then is left for the next owner, and next_deadline says
 * "now". */
#include "stack.h"

#include "base/cputime.h"
#include "buf/mbuf.h"
#include "ip/ip.h"
#include "ip/netif.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"
#include "udp/udp.h"

#define STACK_ROUNDS 16
#define STACK_LEAVE_ROUNDS 16 /* of work left by others: then the next owner is asked */
#define DEFAULT_BUFFER_LIMIT (INT64_C(1) << 30)

static int init_layers(struct weir_stack *s)
{
    int error = so_table_init(s);
    if (!error)
        error = ip_init(s);
    if (!error)
        error = udp_init(s);
    if (!error)
        error = tcp_init(s);
    return error;
}

struct weir_stack *stack_create(const struct stack_config *cfg)
{
    struct weir_stack *s = alloc_zero(cfg->alloc, sizeof(*s));
    if (!s)
        return NULL;
    s->alloc = *cfg->alloc;
    s->port = cfg->port;
    s->now = cfg->now_ns;
    STORE_RELAXED(&s->next_deadline, TIME_NEVER);
    if (cfg->name)
        strncpy(s->name, cfg->name, sizeof(s->name) - 1);
    rng_init(&s->rng, cfg->seed);
    rng_bytes(&s->rng, s->secret, sizeof(s->secret));
    wheel_init(&s->wheel, cfg->now_ns);
    sysctl_init(&s->knobs);
    owner_init(s);
    mbuf_pools_init(cfg->alloc); /* for whoever has not chosen one for the process before */
    s->account = mbuf_account_create(cfg->buffer_limit ? cfg->buffer_limit : DEFAULT_BUFFER_LIMIT);
    if (!s->account || init_layers(s)) {
        stack_destroy(s);
        return NULL;
    }
    return s;
}

void stack_destroy(struct weir_stack *s)
{
    if (s->hooks.stack_ends)
        s->hooks.stack_ends(s->hooks.stack_ends_ctx, s, false);
    if (s->sockets) {
        so_table_fini(s);
        s->sockets = NULL;
    }
    for (struct netif *nif = s->netifs; nif; nif = nif->next)
        netif_flush(nif); /* the resets of what was aborted */
    if (s->tcp)
        tcp_fini(s);
    if (s->udp)
        udp_fini(s);
    if (s->ip)
        ip_fini(s);
    if (s->hooks.stack_ends)
        s->hooks.stack_ends(s->hooks.stack_ends_ctx, s, true);
    if (s->account)
        mbuf_account_drop(s->account);
    struct weir_alloc alloc = s->alloc;
    explicit_bzero(s->secret, sizeof(s->secret));
    alloc_free(&alloc, s, sizeof(*s));
}

/* Run the work of every socket on the deferred list; a socket is freed only after its node's
 * turn. */
static void run_deferred(struct weir_stack *s, uint32_t list)
{
    while (list) {
        struct socket *so = so_by_index(s, owner_pop(s, &list));
        CHECK(so);
        COUNT(s, stack_deferred);
        so_run_work(so);
    }
}

/* Frames that the stack sent to itself. True when there were any. */
static bool poll_loopback(struct weir_stack *s)
{
    return s->netifs && s->netifs->txq && netif_poll(s->netifs, STACK_BURST) > 0;
}

static void flush_links(struct weir_stack *s)
{
    for (struct netif *nif = s->netifs; nif; nif = nif->next)
        if (nif->txq)
            netif_flush(nif);
}

/* An instrument has no room for what more packets would make it note. */
static inline bool is_held(const struct weir_stack *s)
{
    return unlikely(LOAD_RELAXED(&s->hold));
}

/* Timers, owed output and loopback until quiet. True when something is left. */
static bool settle(struct weir_stack *s)
{
    for (int round = 0; round < STACK_ROUNDS && !is_held(s); round++) {
        if (cputime_on() && wheel_next(&s->wheel) <= s->now)
            cputime_switch_now(CPU_TIMERS, s->now);
        wheel_advance(&s->wheel, s->now);
        bool more = tcp_output_run(s);
        more |= poll_loopback(s);
        if (!more) {
            flush_links(s);
            return false;
        }
    }
    flush_links(s);
    return !is_held(s);
}

/* `now` never goes back, whatever order owners read the clock in. */
static void set_now(struct weir_stack *s, uint64_t now_ns)
{
    s->now = MAX(s->now, now_ns);
}

bool stack_step(struct weir_stack *s, uint64_t now_ns)
{
    set_now(s, now_ns);
    COUNT(s, stack_steps);
    mbuf_thread_relieve();
    /* Any thread may be refused; the account counts for all of them. */
    STORE_RELAXED(&s->counters.v[CTR_mbuf_denied], LOAD_RELAXED(&s->account->denied));
    bool link_ready;
    run_deferred(s, owner_take(s, &link_ready));
    bool more = false;
    for (struct netif *nif = s->netifs ? s->netifs->next : NULL; nif && !is_held(s);
         nif = nif->next)
        more |= netif_poll(nif, STACK_BURST) == STACK_BURST;
    more |= settle(s);
    return more && !is_held(s);
}

bool stack_step_for(struct weir_stack *s, uint64_t now_ns, const _Atomic uint32_t *addr,
                    uint32_t expected)
{
    s->tcp->acks_wait = true;
    bool more = stack_step(s, now_ns);
    s->tcp->acks_wait = false;
    if (!more && s->tcp->acks_alone && atomic_load_explicit(addr, memory_order_relaxed) == expected)
        more = settle(s); /* the thread stays: nobody carries them */
    return more;
}

/* Links that say so bring the answer to what was just sent. True when there were frames. */
static bool poll_answers(struct weir_stack *s)
{
    bool any = false;

    for (struct netif *nif = s->netifs ? s->netifs->next : NULL; nif && !is_held(s);
         nif = nif->next)
        if (nif->ops->hint && nif->ops->hint(nif->link) && netif_poll(nif, STACK_BURST) > 0)
            any = true;
    return any;
}

void stack_flush(struct weir_stack *s, uint64_t now_ns)
{
    set_now(s, now_ns);
    settle(s);
    if (poll_answers(s)) {
        COUNT(s, stack_flush_polls);
        settle(s);
    }
}

uint64_t stack_next_deadline(const struct weir_stack *s)
{
    if (is_held(s))
        return TIME_NEVER;
    uint64_t deadline = MIN(wheel_next(&s->wheel), tcp_output_due(s));
    for (const struct netif *nif = s->netifs; nif; nif = nif->next) {
        if (nif->ops->next_deadline)
            deadline = MIN(deadline, nif->ops->next_deadline(nif->link));
    }
    return deadline;
}

struct kick {
    void (*fn)(void *link);
    void *link;
};

static bool kick_is_noted(const struct kick *kicks, size_t n, const void *link)
{
    while (n > 0)
        if (kicks[--n].link == link)
            return true;
    return false;
}

/* Note which links want their peers told, while the list of interfaces may still be looked at. */
static size_t take_kicks(struct weir_stack *s, struct kick kicks[NETIF_MAX], size_t n)
{
    for (struct netif *nif = s->netifs; nif; nif = nif->next) {
        if (!nif->kick_needed)
            continue;
        nif->kick_needed = false;
        if (nif->ops->kick && !kick_is_noted(kicks, n, nif->link))
            kicks[n++] = (struct kick){nif->ops->kick, nif->link};
    }
    return n;
}

void stack_leave(struct weir_stack *s)
{
    struct kick kicks[NETIF_MAX];
    size_t n = take_kicks(s, kicks, 0);
    COUNT(s, stack_entries);
    for (int round = 0;; round++) {
        STORE_RELAXED(&s->next_deadline, stack_next_deadline(s));
        if (round == STACK_LEAVE_ROUNDS) {
            owner_yield(s);
            break;
        }
        if (owner_release(s))
            break;
        stack_step(s, s->port->now_ns(s->port->ctx));
        n = take_kicks(s, kicks, n);
    }
    for (size_t i = 0; i < n; i++)
        kicks[i].fn(kicks[i].link);
}
