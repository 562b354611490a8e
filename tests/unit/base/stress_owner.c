/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: no work is lost by the ownership word. Threads push work to one stack and drain it as
 * socket calls, drivers, peers of a memory link and a stack thread do. After every few pushes all
 * stop: each unit of work must have been done exactly once then, though nobody looks again after
 * the last push. Bound: ROUNDS pushes in all (argument 1), up to 4 threads, a few seconds. The seed
 * is printed; argument 2 sets it. */
#include "base/stack.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define NODES 64
#define PUSHERS 3
#define BATCH 16 /* pushes of a thread between two stops */

static struct weir_stack stack;
static struct deferred_node nodes[NODES];

/* Work of a node: pushed by any thread, taken whole by the owner. */
static _Atomic uint64_t pending[NODES];
static _Atomic uint64_t frames; /* of the link */
static uint64_t done;           /* by the owner only: TSan checks that ownership is exclusive */
static uint64_t rounds = 2000000;

/* The port's sleeping, without futexes: a condition variable for all. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool kicked, finished;
static pthread_barrier_t barrier;

static struct deferred_node *node_of(struct weir_stack *s, uint32_t index)
{
    (void)s;
    return &nodes[index];
}

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return 0;
}

static int wait_changed(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    pthread_mutex_lock(&mutex);
    while (atomic_load(w->addr) == w->expected)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    (void)addr;
    (void)count;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

static void kick(void *ctx, struct weir_stack *s)
{
    (void)ctx;
    if (!owner_claim_sleeper(s))
        return;
    pthread_mutex_lock(&mutex);
    kicked = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

static const struct port port = {NULL, now_ns, wait_changed, wake, kick};

static void step(void)
{
    bool ready;
    uint32_t list = owner_take(&stack, &ready);

    while (list) {
        uint32_t i = owner_pop(&stack, &list);
        done += atomic_exchange(&pending[i], 0);
    }
    done += atomic_exchange(&frames, 0);
}

static void leave(unsigned patience)
{
    while (!owner_release(&stack)) {
        if (patience-- == 0) {
            owner_yield(&stack);
            return;
        }
        step();
    }
}

static void *stack_thread(void *arg)
{
    (void)arg;
    for (;;) {
        if (owner_try(&stack)) {
            step();
            leave(4);
        }
        if (!owner_sleep(&stack, TIME_NEVER))
            continue;
        pthread_mutex_lock(&mutex);
        while (!kicked && !finished)
            pthread_cond_wait(&cond, &mutex);
        kicked = false;
        bool stop = finished;
        pthread_mutex_unlock(&mutex);
        owner_awake(&stack);
        if (stop)
            return NULL;
    }
}

static uint32_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (uint32_t)(*x >> 32);
}

/* As a socket call does. */
static void push_deferred(uint32_t i)
{
    atomic_fetch_add(&pending[i], 1);
    for (;;) {
        if (owner_try(&stack)) {
            done += atomic_exchange(&pending[i], 0);
            leave(8);
            return;
        }
        if (!owner_defer(&stack, i))
            return;
    }
}

static void push(uint32_t r)
{
    uint32_t i = r / 16 % NODES;

    switch (r % 16) {
    case 0: /* a peer of a memory link */
        atomic_fetch_add(&frames, 1);
        owner_link_ready(&stack);
        break;
    case 1: /* a driver that comes, works and leaves */
        if (!owner_drive_enter(&stack, 2)) {
            push_deferred(i);
            break;
        }
        atomic_fetch_add(&frames, 1);
        owner_link_ready(&stack);
        if (r & 0x10000 && owner_try(&stack)) {
            step();
            leave(1);
        }
        if (owner_drive_leave(&stack) && (r & 0x20000) && owner_try(&stack)) {
            step();
            leave(1);
        }
        break;
    case 2: /* a call that needs an answer now */
        if (owner_acquire(&stack) != 0)
            abort();
        done++;
        leave(0);
        break;
    default:
        push_deferred(i);
    }
}

/* Nobody pushes now: all must get done without help. */
static void check_all_done(uint64_t pushed)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        uint64_t w = atomic_load(&stack.owner.word);
        /* Taken under the mutex: a sleeper that was kicked is not asleep. */
        bool stuck = (w & OWNER_SLEEPER) && (w & OWNER_WORK) && !(w & OWNER_HELD) && !kicked;
        pthread_mutex_unlock(&mutex);
        if (stuck) {
            fprintf(stderr, "work is left and everybody sleeps: word %#llx\n",
                    (unsigned long long)w);
            exit(1);
        }
        if (!(w & (OWNER_WORK | OWNER_HELD)))
            break;
        sched_yield();
    }
    if (owner_acquire(&stack) != 0)
        abort();
    uint64_t sum = done;
    leave(0);
    if (sum != pushed) {
        fprintf(stderr, "%llu pushed, %llu done\n", (unsigned long long)pushed,
                (unsigned long long)sum);
        exit(1);
    }
}

static void *pusher(void *arg)
{
    uint64_t x = (uint64_t)(uintptr_t)arg;

    owner_self_tid = 10 + (uint32_t)(x % 1000);
    for (uint64_t n = 1; n <= rounds / PUSHERS; n++) {
        push(random_next(&x));
        if (n % BATCH)
            continue;
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            check_all_done(n * PUSHERS);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t sleeper, threads[PUSHERS];
    uint64_t seed = 20041231;

    if (argc > 1)
        rounds = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    rounds -= rounds % (PUSHERS * BATCH);
    stack.port = &port;
    atomic_store(&stack.next_deadline, TIME_NEVER);
    owner_init(&stack);
    owner_set_node(&stack, node_of);

    pthread_barrier_init(&barrier, NULL, PUSHERS);
    pthread_create(&sleeper, NULL, stack_thread, NULL);
    for (unsigned i = 0; i < PUSHERS; i++)
        pthread_create(&threads[i], NULL, pusher,
                       (void *)(uintptr_t)(seed * PUSHERS * 1000 + 1 + i));
    for (unsigned i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);

    pthread_mutex_lock(&mutex);
    finished = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    pthread_join(sleeper, NULL);

    printf("%llu pushed, %llu done\n", (unsigned long long)rounds, (unsigned long long)done);
    return done == rounds && atomic_load(&stack.owner.word) == 0 ? 0 : 1;
}
