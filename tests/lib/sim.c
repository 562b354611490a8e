/* SPDX-License-Identifier: BSD-2-Clause
 * Whole stacks in virtual time: see sim.h. */
#include "sim.h"

#include "buf/mbuf.h"
#include "link/link_open.h"
#include "socket/descriptor.h"
#include "weir/stack.h"

#define SIM_MAX_STACKS 16
#define SIM_MAX_ROUNDS 100000 /* of one settling: more is a livelock */

struct sim {
    struct port port;
    struct weir_alloc alloc;
    struct weir_stack *stacks[SIM_MAX_STACKS];
    size_t count;
    uint64_t now;
    uint64_t seed;
    int64_t fail_after, bytes;
    bool drives;
    const struct port_wait *wait; /* of the blocking call that drives its stacks */
};

static void die(const char *what)
{
    fprintf(stderr, "sim: %s\n", what);
    abort();
}

static void *sim_alloc(void *ctx, size_t size)
{
    struct sim *sim = ctx;
    if (sim->fail_after >= 0 && sim->fail_after-- == 0)
        return NULL;
    sim->bytes += (int64_t)size;
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void sim_free(void *ctx, void *p, size_t size)
{
    struct sim *sim = ctx;
    sim->bytes -= (int64_t)size;
    free(p);
}

static uint64_t sim_port_now(void *ctx)
{
    return ((struct sim *)ctx)->now;
}

static bool word_changed(void *ctx)
{
    const struct port_wait *w = ctx;
    return atomic_load(w->addr) != w->expected;
}

/* A wait that nothing will ever end is a fault of the test, not a hang. */
static int sim_port_wait(void *ctx, const struct port_wait *w)
{
    struct sim *sim = ctx;
    int r = 0;
    sim->wait = sim->drives ? w : NULL;
    if (sim->drives)
        sim_settle(sim);
    while (r == 0 && !word_changed((void *)(uintptr_t)w)) {
        if (sim->now >= w->deadline_ns) {
            r = -ETIMEDOUT;
        } else if (!sim_step(sim, w->deadline_ns)) {
            if (w->deadline_ns == TIME_NEVER)
                die("a call blocks for ever");
            sim->now = w->deadline_ns;
        }
    }
    sim->wait = NULL;
    return r;
}

static void sim_port_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
}

static void sim_port_kick(void *ctx, struct weir_stack *s)
{
}

static void sim_panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
    abort();
}

static void *plain_alloc(void *ctx, size_t size)
{
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void plain_free(void *ctx, void *p, size_t size)
{
    free(p);
}

static const struct weir_alloc plain = {plain_alloc, plain_free, NULL};

struct sim *sim_create(uint64_t seed, uint64_t start_ns)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    if (!sim)
        die("no memory");
    base_panic_hook = sim_panic;
    owner_self_tid = 1;
    desc_table_init(&plain);
    mbuf_pools_init(&plain); /* the process's: not counted with the stacks' memory */
    sim->port = (struct port){sim, sim_port_now, sim_port_wait, sim_port_wake, sim_port_kick};
    sim->alloc = (struct weir_alloc){sim_alloc, sim_free, sim};
    sim->now = start_ns ? start_ns : SIM_START_NS;
    sim->seed = seed;
    sim->fail_after = -1;
    return sim;
}

struct weir_stack *sim_stack(struct sim *sim, const char *name)
{
    struct stack_config cfg = {
        .alloc = &sim->alloc, .port = &sim->port, .name = name, .now_ns = sim->now};
    uint64_t seed[2] = {sim->seed, sim->count + 1};
    memcpy(cfg.seed, seed, sizeof(seed));
    struct weir_stack *s = stack_create(&cfg);
    if (!s || sim->count == SIM_MAX_STACKS)
        die("no stack");
    sim->stacks[sim->count++] = s;
    return s;
}

static void own(struct weir_stack *s)
{
    if (!owner_try(s))
        die("the stack is owned");
}

void sim_destroy(struct sim *sim)
{
    for (size_t i = 0; i < sim->count; i++) {
        own(sim->stacks[i]);
        stack_destroy(sim->stacks[i]);
    }
    int64_t mbufs, bytes;
    mbuf_usage(&mbufs, &bytes);
    if (mbufs || bytes || sim->bytes) {
        fprintf(stderr, "sim: leaked %lld mbufs, %lld bytes of buffers, %lld bytes of stacks\n",
                (long long)mbufs, (long long)bytes, (long long)sim->bytes);
        abort();
    }
    free(sim);
}

uint64_t sim_now(const struct sim *sim)
{
    return sim->now;
}

static bool due(struct weir_stack *s, uint64_t now)
{
    bool ready =
        (atomic_load(&s->owner.word) & OWNER_LINK_READY) || LOAD_RELAXED(&s->next_deadline) <= now;
    for (struct netif *nif = s->netifs; nif && !ready; nif = nif->next)
        ready = nif->ops->pending && nif->ops->pending(nif->link);
    return ready;
}

static bool waits_on(const struct port_wait *w, const struct weir_stack *s)
{
    for (size_t i = 0; w && i < w->stack_count; i++)
        if (w->stacks[i] == s)
            return true;
    return false;
}

void sim_drive(struct sim *sim, bool on)
{
    sim->drives = on;
}

void sim_settle(struct sim *sim)
{
    bool any = true;
    for (int round = 0; any; round++) {
        if (round > SIM_MAX_ROUNDS)
            die("the stacks do not come to rest");
        any = false;
        for (size_t i = 0; i < sim->count; i++) {
            struct weir_stack *s = sim->stacks[i];
            if (!due(s, sim->now))
                continue;
            own(s);
            if (waits_on(sim->wait, s))
                stack_step_for(s, sim->now, sim->wait->addr, sim->wait->expected);
            else
                stack_step(s, sim->now);
            stack_leave(s);
            any = true;
        }
    }
}

bool sim_step(struct sim *sim, uint64_t until_ns)
{
    sim_settle(sim);
    uint64_t next = TIME_NEVER;
    for (size_t i = 0; i < sim->count; i++)
        next = MIN(next, LOAD_RELAXED(&sim->stacks[i]->next_deadline));
    if (next == TIME_NEVER || next > until_ns)
        return false;
    sim->now = MAX(sim->now, next);
    sim_settle(sim);
    return true;
}

void sim_run(struct sim *sim, uint64_t ns)
{
    uint64_t until = sim->now + ns;
    while (sim_step(sim, until))
        ;
    sim->now = until;
    sim_settle(sim);
}

bool sim_run_until(struct sim *sim, bool (*fn)(void *ctx), void *ctx, uint64_t limit_ns)
{
    uint64_t until = sim->now + limit_ns;
    sim_settle(sim);
    while (!fn(ctx)) {
        if (!sim_step(sim, until)) {
            sim->now = until;
            return fn(ctx);
        }
    }
    return true;
}

void sim_fail_alloc_after(struct sim *sim, int64_t n)
{
    sim->fail_after = n;
}

int64_t sim_bytes(const struct sim *sim)
{
    return sim->bytes;
}

void sim_sysctl(struct weir_stack *s, const char *name, const char *value)
{
    own(s);
    int error = sysctl_set(s, name, value);
    stack_leave(s);
    if (error) {
        fprintf(stderr, "sim: sysctl %s=%s: %s\n", name, value, strerror(-error));
        abort();
    }
}

uint64_t sim_counter(struct weir_stack *s, const char *name)
{
    for (int i = 0; i < COUNTER_COUNT; i++) {
        if (strcmp(counter_table[i].name, name) == 0)
            return LOAD_RELAXED(&s->counters.v[i]);
    }
    die("no such counter");
    return 0;
}

void sim_join(struct sim *sim, struct weir_stack *a, struct weir_stack *b, const char *options)
{
    char err[256];
    if (link_open_pair(a, b, options, err, sizeof(err)))
        die(err);
    sim_settle(sim);
}
