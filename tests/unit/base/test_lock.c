/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the lock excludes, sleeps and wakes without losing a wake-up, counts its contention in its
 * class, and works by spinning alone when there is no port. Bound: 4 threads of 20,000 rounds. */
#include "base/lock.h"
#include "unit.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20000

LOCK_CLASS(class_a, "test_a");
LOCK_CLASS(class_b, "test_b");
static struct lock lock;
static uint64_t shared; /* under lock: ThreadSanitizer sees what is wrong, the sum too */

static int futex_wait(void *ctx, const struct port_wait *w)
{
    syscall(SYS_futex, w->addr, FUTEX_WAIT_PRIVATE, w->expected, NULL, NULL, 0);
    return 0;
}

static void futex_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    syscall(SYS_futex, addr, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static const struct port port = {.wait = futex_wait, .wake = futex_wake};

static void *contend(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 16 != 0 || !lock_try(&lock))
            lock_acquire(&lock);
        shared++;
        for (int k = 0; k < (i % 256 == 0 ? 2000 : 5);
             k++) /* now and then longer than anybody spins */
            CPU_PAUSE();
        lock_release(&lock);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t t[THREADS];
    shared = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, contend, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(shared, THREADS * ROUNDS);
    assert_false(lock_is_held(&lock));
}

static void test_basics(void **state)
{
    lock_init(&lock, &class_a);
    assert_false(lock_is_held(&lock));
    lock_acquire(&lock);
    assert_true(lock_is_held(&lock));
    assert_false(lock_try(&lock));
    assert_int_equal(class_a.contended, 1);
    lock_release(&lock);
    bool got = lock_try(&lock);
    assert_true(got);
    if (got)
        lock_release(&lock);
}

static void test_spinning_only(void **state)
{
    lock_set_port(NULL);
    run_threads();
    assert_int_equal(class_a.blocks, 0);
}

static void test_with_port(void **state)
{
    lock_set_port(&port);
    run_threads();
    assert_true(class_a.contended >= class_a.spins + class_a.blocks);
    lock_set_port(NULL);
}

static void test_classes_are_listed_once(void **state)
{
    struct lock many[10];
    for (int i = 0; i < 10; i++)
        lock_init(&many[i], &class_b);
    int a = 0, b = 0;
    for (struct lock_class *c = lock_class_first(); c != NULL; c = c->next) {
        a += c == &class_a;
        b += c == &class_b;
    }
    assert_int_equal(a, 1);
    assert_int_equal(b, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basics),
        cmocka_unit_test(test_spinning_only),
        cmocka_unit_test(test_with_port),
        cmocka_unit_test(test_classes_are_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
