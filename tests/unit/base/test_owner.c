/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: each transition of the ownership word, one thread at a time, with a port that counts kicks
 * and wakes. Bound: a dozen nodes, no threads (stress_owner.c has those). */
#include "base/stack.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#define NODES 8

static struct weir_stack stack;
static struct deferred_node nodes[NODES];
static int kicks, wakes, waits;

static struct deferred_node *node_of(struct weir_stack *s, uint32_t index)
{
    (void)s;
    assert_true(index < NODES);
    return &nodes[index];
}

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return 1000;
}

/* The holder lets go while the acquirer sleeps. */
static int wait_releases(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    waits++;
    assert_ptr_equal(w->addr, &stack.owner.handoff);
    assert_int_equal(w->stack_count, 0);
    assert_true(atomic_load(&stack.owner.word) & OWNER_WAITERS);
    assert_true(owner_release(&stack));
    assert_int_not_equal(atomic_load(w->addr), w->expected);
    return 0;
}

static void wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    assert_ptr_equal(addr, &stack.owner.handoff);
    assert_int_equal(count, INT_MAX);
    wakes++;
}

static void kick(void *ctx, struct weir_stack *s)
{
    (void)ctx;
    assert_ptr_equal(s, &stack);
    kicks++;
}

static const struct port port = {NULL, now_ns, wait_releases, wake, kick};

static int setup(void **state)
{
    (void)state;
    memset(&stack, 0, sizeof(stack));
    memset(nodes, 0, sizeof(nodes));
    stack.port = &port;
    atomic_store(&stack.next_deadline, TIME_NEVER);
    owner_init(&stack);
    owner_set_node(&stack, node_of);
    owner_self_tid = 77;
    kicks = wakes = waits = 0;
    return 0;
}

static void test_try_is_exclusive(void **state)
{
    (void)state;
    assert_false(owner_is_me(&stack));
    assert_true(owner_try(&stack));
    assert_true(owner_is_me(&stack));
    assert_false(owner_try(&stack));
    assert_int_equal(atomic_load(&stack.owner.contended), 1);
    owner_self_tid = 78;
    assert_false(owner_is_me(&stack));
    assert_false(owner_try(&stack));
    owner_self_tid = 77;
    assert_true(owner_release(&stack));
    assert_false(owner_is_me(&stack));
    assert_int_equal(atomic_load(&stack.owner.word), 0);
}

static void test_reentry_is_refused(void **state)
{
    (void)state;
    assert_int_equal(owner_acquire(&stack), 0);
    assert_int_equal(owner_acquire(&stack), -EDEADLK);
    /* A signal handler may still defer: its thread's release finds it. */
    assert_false(owner_defer(&stack, 3));
    assert_false(owner_release(&stack));
    bool ready;
    uint32_t list = owner_take(&stack, &ready);
    assert_int_equal(owner_pop(&stack, &list), 3);
    assert_int_equal(list, 0);
    assert_true(owner_release(&stack));
}

static void test_acquire_sleeps_and_is_woken(void **state)
{
    (void)state;
    owner_self_tid = 5;
    assert_true(owner_try(&stack));
    owner_self_tid = 77;
    assert_int_equal(owner_acquire(&stack), 0);
    assert_int_equal(waits, 1);
    assert_int_equal(wakes, 1);
    assert_true(owner_is_me(&stack));
    assert_true(owner_release(&stack));
    assert_int_equal(wakes, 1);
}

static void test_foreign_stack_cannot_be_owned(void **state)
{
    (void)state;
    assert_true(owner_try(&stack));
    owner_disown(&stack);
    assert_true(owner_is_foreign(&stack));
    assert_int_equal(owner_acquire(&stack), -EIO);
    assert_false(owner_try(&stack));
    assert_false(owner_defer(&stack, 1));
    assert_false(owner_drive_enter(&stack, 10));
    owner_link_ready(&stack);
    assert_int_equal(kicks, 0);
}

static void test_deferred_are_taken_in_order(void **state)
{
    bool ready;

    (void)state;
    assert_true(owner_defer(&stack, 2)); /* nobody owns: the caller must try */
    assert_true(owner_defer(&stack, 5));
    assert_true(owner_defer(&stack, 2)); /* queued already */
    assert_true(owner_defer(&stack, 0));
    assert_true(owner_has_work(&stack));
    assert_true(owner_try(&stack));
    assert_false(owner_release(&stack));
    uint32_t list = owner_take(&stack, &ready);
    assert_false(ready);
    assert_int_equal(owner_pop(&stack, &list), 2);
    assert_false(owner_defer(&stack, 2)); /* again, while the rest is still to be walked */
    assert_int_equal(owner_pop(&stack, &list), 5);
    assert_int_equal(owner_pop(&stack, &list), 0);
    assert_int_equal(list, 0);
    assert_false(owner_release(&stack));
    list = owner_take(&stack, &ready);
    assert_int_equal(owner_pop(&stack, &list), 2);
    assert_int_equal(list, 0);
    assert_int_equal(owner_take(&stack, &ready), 0);
    assert_true(owner_release(&stack));
}

static void test_link_ready_blocks_release(void **state)
{
    bool ready;

    (void)state;
    assert_true(owner_try(&stack));
    owner_link_ready(&stack);
    assert_false(owner_release(&stack));
    assert_int_equal(owner_take(&stack, &ready), 0);
    assert_true(ready);
    assert_true(owner_release(&stack));
    assert_int_equal(kicks, 0);
}

static void test_kicks_go_to_a_sleeper_alone(void **state)
{
    bool ready;

    (void)state;
    owner_link_ready(&stack); /* awake: it will look before it sleeps */
    assert_int_equal(kicks, 0);
    assert_false(owner_sleep(&stack, TIME_NEVER));
    assert_true(owner_try(&stack));
    assert_int_equal(owner_take(&stack, &ready), 0);
    assert_true(owner_release(&stack));

    assert_true(owner_sleep(&stack, TIME_NEVER));
    owner_link_ready(&stack);
    assert_int_equal(kicks, 1);
    assert_true(owner_claim_sleeper(&stack));
    assert_false(owner_claim_sleeper(&stack)); /* one of several kickers wakes it */
    owner_link_ready(&stack);
    assert_int_equal(kicks, 1);
}

static void test_earlier_deadline_kicks(void **state)
{
    (void)state;
    assert_true(owner_sleep(&stack, 5000));
    assert_true(owner_try(&stack));
    atomic_store(&stack.next_deadline, 5000);
    assert_true(owner_release(&stack));
    assert_int_equal(kicks, 0);
    assert_true(owner_try(&stack));
    atomic_store(&stack.next_deadline, 4999);
    assert_true(owner_release(&stack));
    assert_int_equal(kicks, 1);
    owner_awake(&stack);
    assert_false(owner_sleep(&stack, 5000));
    assert_false(atomic_load(&stack.owner.word) & OWNER_SLEEPER);
    assert_true(owner_sleep(&stack, 4999));
}

static void test_drivers_take_over_from_the_thread(void **state)
{
    bool ready;

    (void)state;
    assert_true(owner_sleep(&stack, TIME_NEVER));
    assert_true(owner_drive_enter(&stack, 2));
    assert_true(owner_drive_enter(&stack, 2));
    assert_false(owner_drive_enter(&stack, 2));
    assert_true(owner_is_driven(&stack));
    owner_link_ready(&stack);
    assert_true(owner_try(&stack));
    atomic_store(&stack.next_deadline, 1);
    assert_int_equal(owner_take(&stack, &ready), 0);
    assert_true(owner_release(&stack));
    assert_int_equal(kicks, 0); /* a driver sees to both */
    assert_false(owner_drive_leave(&stack));
    assert_int_equal(kicks, 0);
    assert_true(owner_drive_leave(&stack));
    assert_int_equal(kicks, 1); /* the deadline */
    atomic_store(&stack.next_deadline, TIME_NEVER);
    assert_true(owner_drive_enter(&stack, 2));
    assert_true(owner_defer(&stack, 1));
    assert_true(owner_drive_leave(&stack));
    assert_int_equal(kicks, 2); /* the work */
}

static void test_yield_passes_work_on(void **state)
{
    bool ready;

    (void)state;
    assert_true(owner_sleep(&stack, TIME_NEVER));
    assert_true(owner_try(&stack));
    owner_link_ready(&stack);
    owner_yield(&stack);
    assert_int_equal(kicks, 1);
    assert_true(owner_has_work(&stack));
    assert_true(owner_try(&stack));
    assert_int_equal(owner_take(&stack, &ready), 0);
    assert_true(ready);
    owner_yield(&stack);
    assert_int_equal(kicks, 1);
}

static void test_largest_index(void **state)
{
    (void)state;
    /* Fields do not run into each other. */
    assert_int_equal((uint64_t)OWNER_INDEX_MAX + 1, OWNER_HEAD_MASK >> OWNER_HEAD_SHIFT);
    assert_int_equal(OWNER_TID_MASK & OWNER_HEAD_MASK, 0);
    assert_int_equal(OWNER_TID_MASK & OWNER_DRIVERS_MASK, 0);
    owner_self_tid = 0x3fffff;
    assert_true(owner_try(&stack));
    assert_int_equal(atomic_load(&stack.owner.word) & OWNER_HEAD_MASK, 0);
    assert_int_equal(atomic_load(&stack.owner.word) & OWNER_DRIVERS_MASK, 0);
    assert_true(owner_release(&stack));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_try_is_exclusive, setup),
        cmocka_unit_test_setup(test_reentry_is_refused, setup),
        cmocka_unit_test_setup(test_acquire_sleeps_and_is_woken, setup),
        cmocka_unit_test_setup(test_foreign_stack_cannot_be_owned, setup),
        cmocka_unit_test_setup(test_deferred_are_taken_in_order, setup),
        cmocka_unit_test_setup(test_link_ready_blocks_release, setup),
        cmocka_unit_test_setup(test_kicks_go_to_a_sleeper_alone, setup),
        cmocka_unit_test_setup(test_earlier_deadline_kicks, setup),
        cmocka_unit_test_setup(test_drivers_take_over_from_the_thread, setup),
        cmocka_unit_test_setup(test_yield_passes_work_on, setup),
        cmocka_unit_test_setup(test_largest_index, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
