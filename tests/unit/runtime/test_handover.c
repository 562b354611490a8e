/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: nothing is lost between drivers, stack threads, senders and sleepers. Two threads play
 * ping-pong over a memory link between two stacks; the core is replaced by one that counts frames,
 * so that only ownership, waiting, waking and the link are under test. A frame or wake-up that is
 * lost ends in the test's timeout. Bound: ROUNDS round trips for each way of waiting; no assertion
 * on time. */
#include "buf/mbuf.h"
#include "link/link_mem.h"
#include "runtime/runtime.h"
#include "stack.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 20000
#else
#define ROUNDS 100000
#endif

/* One host: a stack of which only the runtime's half is real, and what its application waits for.
 */
struct host {
    struct weir_stack stack;
    struct runtime rt;
    struct link_end end;
    bool kick_needed;
    uint32_t got; /* by the owner */
    CACHE_ALIGNED _Atomic uint32_t event;
    _Atomic uint32_t delivered;
    uint32_t consumed;
};
static struct host *host[2];
static struct mbuf_account *account;

static struct host *host_of(struct weir_stack *s)
{
    return CONTAINER_OF(s, struct host, stack);
}

/* --- the core's part --- */

bool stack_step(struct weir_stack *s, uint64_t now_ns)
{
    struct host *h = host_of(s);
    struct mbuf *m[STACK_BURST];
    bool link_ready;

    assert_true(owner_is_me(s));
    assert_int_equal(owner_take(s, &link_ready), 0);
    s->now = now_ns;
    size_t n = h->end.ops->rx(h->end.link, m, STACK_BURST, now_ns);
    COUNT_ADD(s, link_rx_frames, n);
    for (size_t i = 0; i < n; i++)
        mbuf_free_chain(&m[i]);
    if (n > 0) {
        h->got += (uint32_t)n;
        atomic_store_explicit(&h->delivered, h->got, memory_order_release);
        atomic_fetch_add(&h->event, 1);
        s->port->wake(s->port->ctx, &h->event, INT_MAX);
    }
    return n == STACK_BURST;
}

bool stack_step_for(struct weir_stack *s, uint64_t now_ns, const _Atomic uint32_t *addr,
                    uint32_t expected)
{
    return stack_step(s, now_ns);
}

void stack_leave(struct weir_stack *s)
{
    struct host *h = host_of(s);
    bool kick = h->kick_needed;

    h->kick_needed = false;
    while (!owner_release(s))
        stack_step(s, s->port->now_ns(s->port->ctx));
    if (kick)
        h->end.ops->kick(h->end.link);
}

/* --- the hosts --- */

static uint32_t thread_id(void)
{
    return (uint32_t)gettid();
}

static uint64_t port_now(void *ctx)
{
    (void)ctx;
    return runtime_now_ns();
}

static const struct port port = {
    .now_ns = port_now, .wait = runtime_wait, .wake = runtime_wake, .kick = runtime_kick};

static void *heap_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
}

static void heap_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}

static const struct weir_alloc heap = {heap_alloc, heap_free, NULL};

static void hosts_create(int64_t dispatch, uint32_t slots)
{
    const struct link_mem_options o = {.slots = slots};
    struct link_end ends[2];

    owner_tid_hook = thread_id;
    assert_int_equal(link_mem_create(&heap, &o, ends), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct host *h = host[i] = alloc_zero(&heap, sizeof(*h));
        assert_non_null(h);
        h->end = ends[i];
        h->stack.port = &port;
        h->stack.runtime = &h->rt;
        atomic_store(&h->stack.next_deadline, TIME_NEVER);
        atomic_store(&h->stack.knobs.isr_dispatch, dispatch);
        owner_init(&h->stack);
        link_mem_bind(&ends[i], &h->stack);
        h->rt.stack = &h->stack;
        h->rt.link[0] = (struct runtime_link){ends[i].ops, ends[i].link, -1};
        atomic_store(&h->rt.link_count, 1);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(runtime_thread_start(&host[i]->rt), 0);
}

static void hosts_destroy(void)
{
    for (unsigned i = 0; i < 2; i++)
        runtime_thread_stop(&host[i]->rt);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(owner_acquire(&host[i]->stack), 0);
        link_end_close(&host[i]->end);
        close(host[i]->rt.event_fd);
        alloc_free(&heap, host[i], sizeof(*host[i]));
    }
}

/* As a socket's send does: frames that the link does not take now are offered again. */
static void send_frames(struct host *h, unsigned n)
{
    struct weir_stack *s = &h->stack;

    while (n > 0) {
        struct mbuf *m = mbuf_get_packet(account);
        assert_non_null(m);
        while (m) {
            assert_int_equal(owner_acquire(s), 0);
            bool taken = h->end.ops->tx(h->end.link, &m, 1, 0) == 1;
            h->kick_needed = true;
            stack_leave(s);
            assert_true(taken == (m == NULL));
            if (!taken)
                sched_yield();
        }
        n--;
    }
}

static void receive_frame(struct host *h)
{
    struct weir_stack *s = &h->stack;

    for (;;) {
        uint32_t event = atomic_load(&h->event);
        if (atomic_load(&h->delivered) != h->consumed) {
            h->consumed++;
            return;
        }
        struct port_wait w = {&h->event, event, TIME_NEVER, &s, 1};
        assert_int_equal(runtime_wait(NULL, &w), 0);
    }
}

static void *echo(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        receive_frame(host[1]);
        send_frames(host[1], 1);
    }
    mbuf_thread_exit();
    return NULL;
}

static void ping_pong(int64_t spin_us, int64_t dispatch)
{
    pthread_t t;

    atomic_store(&process_knobs.kern_idle_spin_us, spin_us);
    hosts_create(dispatch, 0);
    assert_int_equal(pthread_create(&t, NULL, echo, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        send_frames(host[0], 1);
        receive_frame(host[0]);
    }
    pthread_join(t, NULL);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(atomic_load(&host[i]->delivered), ROUNDS);
    hosts_destroy();
}

static void test_ping_pong_asleep(void **state)
{
    (void)state;
    ping_pong(0, 0);
}

static void test_ping_pong_spinning(void **state)
{
    (void)state;
    ping_pong(200, 0);
}

static void test_ping_pong_deferred(void **state)
{
    (void)state;
    ping_pong(200, 1);
}

static void test_ping_pong_deferred_asleep(void **state)
{
    (void)state;
    ping_pong(0, 1);
}

static void *sink(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++)
        receive_frame(host[1]);
    mbuf_thread_exit();
    return NULL;
}

/* A ring of 4 frames is full most of the time. */
static void test_one_way_through_a_short_ring(void **state)
{
    pthread_t t;

    (void)state;
    atomic_store(&process_knobs.kern_idle_spin_us, 20);
    hosts_create(0, 4);
    assert_int_equal(pthread_create(&t, NULL, sink, NULL), 0);
    send_frames(host[0], ROUNDS);
    pthread_join(t, NULL);
    assert_int_equal(atomic_load(&host[1]->delivered), ROUNDS);
    hosts_destroy();
}

/* While an application drives, the stack's thread sleeps through it all. */
static void test_threads_sleep_when_idle(void **state)
{
    (void)state;
    atomic_store(&process_knobs.kern_idle_spin_us, 200);
    hosts_create(0, 0);
    for (unsigned i = 0; i < 2; i++)
        while (!(atomic_load(&host[i]->stack.owner.word) & OWNER_SLEEPER))
            sched_yield();
    uint64_t before = atomic_load(&host[0]->rt.wakeups) + atomic_load(&host[1]->rt.wakeups);
    /* One thread is both applications: the receiver's input runs in the sender's call. */
    for (unsigned i = 0; i < 1000; i++) {
        send_frames(host[0], 1);
        receive_frame(host[1]);
    }
    uint64_t after = atomic_load(&host[0]->rt.wakeups) + atomic_load(&host[1]->rt.wakeups);
    assert_int_equal(after, before);
    hosts_destroy();
}

static void test_wait_times_out(void **state)
{
    struct port_wait w = {&host[0]->event, 0, 1, NULL, 0};
    _Atomic uint32_t word = 7;

    (void)state;
    w.addr = &word;
    assert_int_equal(runtime_wait(NULL, &w), 0); /* changed already */
    w.expected = 7;
    assert_int_equal(runtime_wait(NULL, &w), -ETIMEDOUT); /* a deadline in the past */

    hosts_create(0, 0);
    struct weir_stack *s = &host[0]->stack;
    w.stacks = &s;
    w.stack_count = 1;
    assert_int_equal(runtime_wait(NULL, &w), -ETIMEDOUT);
    w.deadline_ns = runtime_now_ns() + NS_PER_MS; /* beyond the spin */
    assert_int_equal(runtime_wait(NULL, &w), -ETIMEDOUT);
    assert_int_equal(atomic_load(&s->owner.word) & OWNER_DRIVERS_MASK, 0);
    hosts_destroy();
}

static int group_setup(void **state)
{
    (void)state;
    mbuf_pools_init(&heap);
    account = mbuf_account_create(INT64_C(1) << 30);
    return account ? 0 : -1;
}

static int group_teardown(void **state)
{
    int64_t mbufs, bytes;

    (void)state;
    mbuf_thread_exit();
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    mbuf_account_drop(account);
    mbuf_pools_drain();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping_pong_asleep),
        cmocka_unit_test(test_ping_pong_spinning),
        cmocka_unit_test(test_ping_pong_deferred),
        cmocka_unit_test(test_ping_pong_deferred_asleep),
        cmocka_unit_test(test_one_way_through_a_short_ring),
        cmocka_unit_test(test_threads_sleep_when_idle),
        cmocka_unit_test(test_wait_times_out),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
