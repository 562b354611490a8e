/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the memory link's rings and kicks: order, what is vouched for, a full ring, who runs the
 * receiver, closing. Bound: one thread; a few thousand frames. The core is replaced by one that
 * takes frames from the link. */
#include "buf/mbuf.h"
#include "link/link_mem.h"
#include "stack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

struct host {
    struct weir_stack stack;
    struct link_end end;
    int steps, kicks;
    uint32_t got, last;
    int answers; /* frames to send back while it runs */
    bool kick_needed;
};
static struct host *a, *b;
static struct mbuf_account *account;
static int depth, deepest;

static struct mbuf *frame(uint32_t number)
{
    struct mbuf *m = mbuf_from_bytes(account, &number, sizeof(number));

    assert_non_null(m);
    m->m_pkt.csum_flags = CSUM_L4_PARTIAL | CSUM_TSO4;
    m->m_pkt.tso_segsz = 1460;
    m->m_pkt.segs = 3;
    return m;
}

static size_t transmit(struct host *h, uint32_t first, size_t n)
{
    struct mbuf *m[64];

    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++)
        m[i] = frame(first + (uint32_t)i);
    size_t taken = h->end.ops->tx(h->end.link, m, n, 0);
    for (size_t i = 0; i < n; i++) {
        assert_true((m[i] == NULL) == (i < taken));
        mbuf_free_chain(&m[i]);
    }
    h->kick_needed = true;
    return taken;
}

/* Takes all that fits in a burst and checks that numbers go up by one. */
static size_t receive(struct host *h, size_t max)
{
    struct mbuf *m[STACK_BURST];
    size_t n = h->end.ops->rx(h->end.link, m, max, 4711);

    for (size_t i = 0; i < n; i++) {
        uint32_t number;
        mbuf_copy_out(m[i], 0, sizeof(number), &number);
        assert_int_equal(number, ++h->last);
        assert_int_equal(m[i]->m_pkt.time_ns, 4711);
        assert_int_equal(m[i]->m_pkt.tso_segsz, 1460);
        assert_int_equal(m[i]->m_pkt.segs, 3);
        uint16_t vouched = CSUM_L4_VALID | CSUM_IP_VALID;
        assert_int_equal(m[i]->m_pkt.csum_flags & vouched, vouched);
        mbuf_free_chain(&m[i]);
    }
    return n;
}

/* --- the core's part --- */

bool stack_step(struct weir_stack *s, uint64_t now_ns)
{
    struct host *h = CONTAINER_OF(s, struct host, stack);
    bool link_ready;

    (void)now_ns;
    depth++;
    if (depth > deepest)
        deepest = depth;
    h->steps++;
    assert_int_equal(owner_take(s, &link_ready), 0);
    size_t n = receive(h, STACK_BURST);
    h->got += (uint32_t)n;
    if (n > 0 && h->answers > 0) {
        h->answers--;
        assert_int_equal(transmit(h, 1 + (h == a ? b : a)->last, 1), 1);
    }
    depth--;
    return n == STACK_BURST;
}

void stack_leave(struct weir_stack *s)
{
    struct host *h = CONTAINER_OF(s, struct host, stack);
    bool kick = h->kick_needed;

    while (!owner_release(s))
        stack_step(s, 0);
    kick |= h->kick_needed;
    h->kick_needed = false;
    if (kick)
        h->end.ops->kick(h->end.link);
}

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return 4711;
}

static void kicked(void *ctx, struct weir_stack *s)
{
    (void)ctx;
    CONTAINER_OF(s, struct host, stack)->kicks++;
}

static const struct port port = {.now_ns = now_ns, .kick = kicked};

/* --- */

static void *heap_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return malloc(size);
}

static void heap_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}

static const struct weir_alloc heap = {heap_alloc, heap_free, NULL};

static void join(const struct link_mem_options *o)
{
    struct link_end ends[2];

    assert_int_equal(link_mem_create(&heap, o, ends), 0);
    a->end = ends[0];
    b->end = ends[1];
    link_mem_bind(&ends[0], &a->stack);
    link_mem_bind(&ends[1], &b->stack);
}

static int setup(void **state)
{
    (void)state;
    a = alloc_zero(&heap, sizeof(*a));
    b = alloc_zero(&heap, sizeof(*b));
    if (!a || !b)
        return -1;
    for (int i = 0; i < 2; i++) {
        struct host *h = i ? b : a;
        h->stack.port = &port;
        atomic_store(&h->stack.next_deadline, TIME_NEVER);
        owner_init(&h->stack);
    }
    owner_self_tid = 1;
    depth = deepest = 0;
    return 0;
}

static int teardown(void **state)
{
    int64_t mbufs, bytes;

    (void)state;
    link_end_close(&a->end);
    link_end_close(&b->end);
    alloc_free(&heap, a, sizeof(*a));
    alloc_free(&heap, b, sizeof(*b));
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    return 0;
}

static void send_and_kick(struct host *h, uint32_t number)
{
    assert_true(owner_try(&h->stack));
    assert_int_equal(transmit(h, number, 1), 1);
    stack_leave(&h->stack);
}

static void test_frames_keep_order_and_marks(void **state)
{
    uint32_t sent = 0;

    (void)state;
    join(NULL);
    assert_int_equal(a->end.mtu, 1500);
    assert_memory_not_equal(a->end.mac, b->end.mac, 6);
    assert_int_equal(a->end.mac[0], 2);
    assert_false(b->end.ops->pending(b->end.link));
    for (unsigned burst = 0; burst < 3 * LINK_MEM_SLOTS / 50; burst++) {
        assert_int_equal(transmit(a, sent + 1, 50), 50);
        sent += 50;
        assert_true(b->end.ops->pending(b->end.link));
        assert_int_equal(receive(b, 64), 50);
        assert_false(b->end.ops->pending(b->end.link));
    }
    assert_int_equal(b->last, sent);
}

static void test_options_are_checked(void **state)
{
    struct link_end ends[2];
    const struct link_mem_options bad[] = {
        {.mtu = 575}, {.mtu = 65536}, {.slots = 1}, {.slots = 3}, {.slots = 131072}};

    (void)state;
    for (size_t i = 0; i < NELEM(bad); i++)
        assert_int_equal(link_mem_create(&heap, &bad[i], ends), -EINVAL);
    join(&(struct link_mem_options){.mtu = 65535, .slots = 2, .l3 = true});
    assert_int_equal(a->end.mtu, 65535);
    assert_true(a->end.caps & NETIF_CAP_L3);
}

static void test_full_ring_wakes_the_sender_when_there_is_room(void **state)
{
    (void)state;
    join(&(struct link_mem_options){.slots = 8});
    assert_int_equal(transmit(a, 1, 12), 8);
    assert_int_equal(transmit(a, 9, 1), 0);
    assert_false(owner_has_work(&a->stack));
    assert_int_equal(receive(b, 3), 3);
    assert_false(owner_has_work(&a->stack)); /* not for every frame */
    assert_int_equal(receive(b, 1), 1);
    assert_true(owner_has_work(&a->stack));
    assert_int_equal(transmit(a, 9, 5), 4);
    assert_int_equal(receive(b, 64), 8);
    assert_int_equal(transmit(a, 13, 1), 1);
    assert_int_equal(receive(b, 64), 1);
}

static void test_smallest_ring(void **state)
{
    (void)state;
    join(&(struct link_mem_options){.slots = 2});
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(transmit(a, 2 * i + 1, 3), 2);
        assert_int_equal(receive(b, 64), 2);
        bool ready;
        assert_true(owner_try(&a->stack));
        assert_int_equal(owner_take(&a->stack, &ready), 0);
        assert_true(ready);
        assert_true(owner_release(&a->stack));
    }
}

static void test_sender_runs_an_idle_receiver(void **state)
{
    (void)state;
    join(NULL);
    assert_true(owner_sleep(&b->stack, TIME_NEVER));
    send_and_kick(a, 1);
    assert_int_equal(b->got, 1);
    assert_int_equal(b->kicks, 0); /* its thread sleeps on */
}

static void test_driven_receiver_is_left_alone(void **state)
{
    (void)state;
    join(NULL);
    assert_true(owner_drive_enter(&b->stack, 1));
    send_and_kick(a, 1);
    assert_int_equal(b->steps, 0);
    assert_false(owner_has_work(&b->stack)); /* the driver looks at the ring itself */
    assert_true(b->end.ops->pending(b->end.link));
    assert_true(owner_drive_leave(&b->stack));
    send_and_kick(a, 2);
    assert_int_equal(b->got, 2);
}

static void test_held_receiver_is_told_by_its_word(void **state)
{
    (void)state;
    join(NULL);
    owner_self_tid = 2;
    assert_true(owner_try(&b->stack));
    owner_self_tid = 1;
    send_and_kick(a, 1);
    assert_int_equal(b->steps, 0);
    assert_false(owner_release(&b->stack));
    stack_leave(&b->stack);
    assert_int_equal(b->got, 1);
}

/* A burst takes part of what is there; nobody else would remember the rest. */
static void test_frames_behind_a_burst_are_not_forgotten(void **state)
{
    (void)state;
    join(NULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(transmit(a, 1 + 50 * i, 50), 50);
    assert_true(owner_try(&b->stack));
    assert_true(stack_step(&b->stack, 0));
    assert_true(owner_has_work(&b->stack));
    stack_leave(&b->stack);
    assert_int_equal(b->got, 200);
    assert_false(owner_has_work(&b->stack));
}

static void test_deferred_dispatch_wakes_the_protocol_thread(void **state)
{
    (void)state;
    join(NULL);
    atomic_store(&b->stack.knobs.isr_dispatch, 1);
    assert_true(owner_sleep(&b->stack, TIME_NEVER));
    send_and_kick(a, 1);
    assert_int_equal(b->steps, 0);
    assert_int_equal(b->kicks, 1);
    assert_true(owner_has_work(&b->stack));
}

static void test_dialogue_does_not_nest(void **state)
{
    (void)state;
    join(NULL);
    a->answers = 3;
    b->answers = 3;
    send_and_kick(a, 1);
    assert_int_equal(b->got, 4);
    assert_int_equal(a->got, 3);
    assert_int_equal(deepest, 1);
}

static void test_endless_dialogue_is_handed_on(void **state)
{
    (void)state;
    join(NULL);
    a->answers = b->answers = 1000;
    send_and_kick(a, 1);
    assert_true(a->got + b->got < 50);
    assert_true(owner_has_work(&a->stack) || owner_has_work(&b->stack));
    a->answers = b->answers = 0;
}

static void test_closed_peer_takes_and_drops(void **state)
{
    (void)state;
    join(NULL);
    assert_int_equal(transmit(a, 1, 5), 5);
    assert_int_equal(transmit(b, 1, 5), 5);
    link_end_close(&b->end); /* frees what waits for it */
    assert_int_equal(transmit(a, 6, 3), 3);
    a->end.ops->kick(a->end.link);
    assert_int_equal(b->steps, 0);
    assert_int_equal(receive(a, 64), 5); /* what was sent to us before arrives still */
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
    (void)state;
    mbuf_account_drop(account);
    mbuf_pools_drain();
    return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_frames_keep_order_and_marks),
        T(test_options_are_checked),
        T(test_full_ring_wakes_the_sender_when_there_is_room),
        T(test_smallest_ring),
        T(test_sender_runs_an_idle_receiver),
        T(test_driven_receiver_is_left_alone),
        T(test_held_receiver_is_told_by_its_word),
        T(test_frames_behind_a_burst_are_not_forgotten),
        T(test_deferred_dispatch_wakes_the_protocol_thread),
        T(test_dialogue_does_not_nest),
        T(test_endless_dialogue_is_handed_on),
        T(test_closed_peer_takes_and_drops),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
