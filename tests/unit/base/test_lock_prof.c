/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the lock profile finds a contention that is planted, with its counts, by lock and call
 * site; counts nothing while it is off; may be switched and reset while locks are held and taken;
 * runs out of neither stripes nor sites. Bound: 100 planted waits, 40 threads of 2,000 rounds. */
#include "base/lock_prof.h"
#include "base/owner.h"
#include "base/stack.h"
#include "unit.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLANTED 50
#define THREADS 40 /* more than there are stripes */
#define ROUNDS 2000

LOCK_CLASS(class_planted, "planted");
LOCK_CLASS_BRIEF(class_brief, "brief");
static struct lock lock;

static uint64_t now_ns(void *ctx)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int futex_wait(void *ctx, const struct port_wait *w)
{
    syscall(SYS_futex, w->addr, FUTEX_WAIT_PRIVATE, w->expected, NULL, NULL, 0);
    return 0;
}

static void futex_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    syscall(SYS_futex, addr, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static const struct port port = {.now_ns = now_ns, .wait = futex_wait, .wake = futex_wake};

/* ---- looking ---- */

static struct lock_prof_row rows[LOCK_PROF_SITES];
static size_t row_count;

static void look(void)
{
    row_count = lock_prof_read(rows, LOCK_PROF_SITES);
}

/* The sum over the sites of a class whose place ends so ("" all). */
static uint64_t figure(const struct lock_class *class, const char *where, enum lock_stat v)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < row_count; i++) {
        size_t len = strlen(rows[i].where), want = strlen(where);
        if (rows[i].class == class && len >= want && strcmp(rows[i].where + len - want, where) == 0)
            sum += rows[i].v[v];
    }
    return sum;
}

static uint64_t total(const struct lock_class *class, enum lock_stat v)
{
    return figure(class, "", v);
}

/* ---- two threads, one lock, two places ---- */

static _Atomic uint32_t turn; /* odd: the holder has it */
static bool sleeps;           /* wait until the other sleeps, not only until it waits */
static const char *hold_where, *want_where;

static void *holder(void *arg)
{
    for (uint32_t i = 0; i < PLANTED; i++) {
        while (atomic_load(&turn) != 2 * i)
            sched_yield();
        hold_where = LOCK_HERE, lock_acquire(&lock);
        atomic_store(&turn, 2 * i + 1);
        while (LOAD_RELAXED(&lock.waiters) == 0 ||
               (sleeps && LOAD_RELAXED(&lock.word) != LOCK_SLEEPERS))
            sched_yield();
        lock_release(&lock);
    }
    return NULL;
}

static void *wanter(void *arg)
{
    for (uint32_t i = 0; i < PLANTED; i++) {
        while (atomic_load(&turn) != 2 * i + 1)
            sched_yield();
        want_where = LOCK_HERE, lock_acquire(&lock);
        lock_release(&lock);
        atomic_store(&turn, 2 * i + 2);
    }
    return NULL;
}

static void plant(bool to_sleep)
{
    pthread_t a, b;
    sleeps = to_sleep;
    atomic_store(&turn, 0);
    lock_init(&lock, &class_planted);
    assert_int_equal(pthread_create(&a, NULL, holder, NULL), 0);
    assert_int_equal(pthread_create(&b, NULL, wanter, NULL), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    look();
    assert_int_equal(figure(&class_planted, hold_where, LOCK_STAT_COUNT), PLANTED);
    assert_int_equal(figure(&class_planted, hold_where, LOCK_STAT_HELD_UP), PLANTED);
    assert_int_equal(figure(&class_planted, hold_where, LOCK_STAT_SPINS), 0);
    assert_int_equal(figure(&class_planted, hold_where, LOCK_STAT_BLOCKS), 0);
    assert_int_equal(figure(&class_planted, want_where, LOCK_STAT_COUNT), PLANTED);
    assert_int_equal(figure(&class_planted, want_where, LOCK_STAT_HELD_UP), 0);
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 2 * PLANTED);
    uint64_t spins = total(&class_planted, LOCK_STAT_SPINS);
    uint64_t blocks = total(&class_planted, LOCK_STAT_BLOCKS);
    assert_int_equal(spins + blocks, PLANTED);
    assert_int_equal(blocks, to_sleep ? PLANTED : 0);
    /* What one waits, the other holds at least. */
    uint64_t waited =
        total(&class_planted, LOCK_STAT_SPIN_TIME) + total(&class_planted, LOCK_STAT_BLOCK_TIME);
    assert_true(waited > 0);
    assert_true(total(&class_planted, LOCK_STAT_WAIT_MAX) <= waited);
    assert_true(figure(&class_planted, hold_where, LOCK_STAT_HOLD) > 0);
    assert_true(figure(&class_planted, hold_where, LOCK_STAT_HOLD_MAX) <=
                figure(&class_planted, hold_where, LOCK_STAT_HOLD));
}

static void test_finds_planted_spins(void **state)
{
    lock_set_port(NULL); /* nothing to sleep with */
    lock_prof_enable(true);
    lock_prof_reset();
    plant(false);
    lock_prof_enable(false);
}

static void test_finds_planted_blocks(void **state)
{
    lock_set_port(&port);
    lock_prof_enable(true);
    lock_prof_reset();
    plant(true);
    lock_prof_enable(false);
    lock_set_port(NULL);
}

/* ---- switching ---- */

static void test_off_counts_nothing(void **state)
{
    lock_prof_enable(false);
    lock_prof_reset();
    lock_init(&lock, &class_planted);
    lock_acquire(&lock);
    bool second = lock_try(&lock);
    assert_false(second);
    assert_int_equal(LOAD_RELAXED(&lock.waiters), 0);
    lock_release(&lock);
    look();
    assert_int_equal(row_count, 0);
    assert_int_equal(lock_prof_overflow(), 0);
}

/* A hold counts when the profile is on at both of its ends, without a switch between. */
static void test_switched_while_held(void **state)
{
    lock_prof_reset();
    lock_init(&lock, &class_planted);
    lock_acquire(&lock);
    lock_prof_enable(true);
    lock_release(&lock);
    look();
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 0);
    lock_acquire(&lock);
    lock_prof_enable(false);
    lock_prof_enable(true);
    lock_release(&lock); /* taken in an earlier time */
    look();
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 0);
    lock_acquire(&lock);
    lock_prof_enable(true); /* it is on already: nothing changes */
    lock_release(&lock);
    look();
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 1);
    lock_prof_enable(false);
    look();
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 1); /* it stays to be read */
    lock_prof_reset();
    look();
    assert_int_equal(row_count, 0);
}

static void test_nested_in_any_order(void **state)
{
    struct lock a, b;
    lock_prof_enable(true);
    lock_prof_reset();
    lock_init(&a, &class_planted);
    lock_init(&b, &class_brief);
    for (int i = 0; i < 10; i++) {
        lock_acquire(&a);
        lock_acquire(&b);
        lock_release(&a); /* not the last that was taken */
        bool got = lock_try(&a);
        assert_true(got);
        bool again = lock_try(&b);
        assert_false(again);
        if (got)
            lock_release(&a);
        lock_release(&b);
    }
    look();
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 20);
    assert_int_equal(total(&class_brief, LOCK_STAT_COUNT), 10);
    assert_int_equal(total(&class_brief, LOCK_STAT_FAILED), 10);
    assert_int_equal(total(&class_brief, LOCK_STAT_SPINS), 0);
    lock_prof_enable(false);
}

/* ---- the owner of a stack ---- */

static void test_owner_is_a_lock(void **state)
{
    static struct weir_stack s;
    const struct lock_class *owner = NULL;
    bool link;
    owner_init(&s);
    STORE_RELAXED(&s.next_deadline, TIME_NEVER);
    lock_prof_enable(true);
    lock_prof_reset();
    assert_true(owner_try(&s));
    assert_false(owner_try(&s));
    owner_link_ready(&s);
    assert_false(owner_release(&s)); /* still owned */
    assert_int_equal(owner_take(&s, &link), 0);
    assert_true(owner_release(&s));
    assert_int_equal(owner_acquire(&s), 0);
    assert_int_equal(owner_acquire(&s), -EDEADLK);
    owner_yield(&s);
    look();
    for (const struct lock_class *c = lock_class_first(); c != NULL; c = c->next)
        if (strcmp(c->name, "owner") == 0)
            owner = c;
    assert_non_null(owner);
    assert_int_equal(total(owner, LOCK_STAT_COUNT), 2);
    assert_int_equal(total(owner, LOCK_STAT_FAILED), 1);
    for (size_t i = 0; i < row_count; i++)
        assert_non_null(strstr(rows[i].where, "test_lock_prof.c:"));
    lock_prof_enable(false);
}

/* ---- many ---- */

static uint64_t shared;

static void *contend(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        lock_acquire(&lock);
        shared++;
        lock_release(&lock);
    }
    lock_prof_thread_exit();
    return NULL;
}

static void run_threads(void)
{
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, contend, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

static void test_more_threads_than_stripes(void **state)
{
    lock_set_port(&port);
    lock_init(&lock, &class_planted);
    lock_prof_enable(true);
    lock_prof_reset();
    shared = 0;
    run_threads();
    run_threads(); /* in the stripes of those that have ended */
    look();
    assert_int_equal(shared, 2 * THREADS * ROUNDS);
    assert_int_equal(total(&class_planted, LOCK_STAT_COUNT), 2 * THREADS * ROUNDS);
    assert_int_equal(total(&class_planted, LOCK_STAT_HELD_UP),
                     total(&class_planted, LOCK_STAT_SPINS) +
                         total(&class_planted, LOCK_STAT_BLOCKS));
    lock_prof_enable(false);
    lock_set_port(NULL);
}

static _Atomic bool done;

static void *switcher(void *arg)
{
    while (!atomic_load(&done)) {
        lock_prof_enable(true);
        look();
        lock_prof_reset();
        lock_prof_enable(false);
        sched_yield();
    }
    return NULL;
}

static void test_switched_while_running(void **state)
{
    pthread_t t;
    lock_set_port(&port);
    lock_init(&lock, &class_planted);
    shared = 0;
    atomic_store(&done, false);
    assert_int_equal(pthread_create(&t, NULL, switcher, NULL), 0);
    run_threads();
    atomic_store(&done, true);
    pthread_join(t, NULL);
    assert_int_equal(shared, THREADS * ROUNDS);
    assert_false(lock_is_held(&lock));
    lock_prof_reset();
    lock_set_port(NULL);
}

/* Last: the table of sites is full from then on. */
static void test_too_many_sites(void **state)
{
    static struct lock_class many[LOCK_PROF_SITES + 100];
    lock_prof_enable(true);
    lock_prof_reset();
    for (size_t i = 0; i < NELEM(many); i++) {
        many[i].name = "many";
        lock_init(&lock, &many[i]);
        lock_acquire(&lock);
        lock_release(&lock);
    }
    look();
    uint64_t counted = 0;
    for (size_t i = 0; i < row_count; i++)
        counted += rows[i].v[LOCK_STAT_COUNT];
    assert_true(row_count <= LOCK_PROF_SITES);
    assert_true(lock_prof_overflow() >= 100);
    assert_int_equal(counted + lock_prof_overflow(), NELEM(many));
    lock_prof_enable(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_planted_spins),
        cmocka_unit_test(test_finds_planted_blocks),
        cmocka_unit_test(test_off_counts_nothing),
        cmocka_unit_test(test_switched_while_held),
        cmocka_unit_test(test_nested_in_any_order),
        cmocka_unit_test(test_owner_is_a_lock),
        cmocka_unit_test(test_more_threads_than_stripes),
        cmocka_unit_test(test_switched_while_running),
        cmocka_unit_test(test_too_many_sites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
