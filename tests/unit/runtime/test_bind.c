/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: with net.isr.bindthreads the stack's thread keeps to one core, which is not the
 * application's where there is another, follows when the application moves, and is let go; the
 * dispatch policy may change meanwhile. Bound: 2,000 waits of 1 ms until it has happened. */
#include "runtime/runtime.h"
#include "weir/socket.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define PATIENCE 2000

static struct weir_stack *s;
static int fd;

static int setup(void **state)
{
    struct timeval tv = {0, 1000};
    struct sockaddr_in a = {.sin_family = AF_INET};

    (void)state;
    s = weir_stack_create(NULL);
    assert_non_null(s);
    fd = weir_socket(s, AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weir_close(fd);
    weir_stack_destroy(s);
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(weir_sysctl_set(s, name, value), 0);
}

/* The two lowest cores that this process may use. False: there is but one. */
static bool two_cores(int core[2])
{
    cpu_set_t all;
    int n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &all))
            core[n++] = i;
    return n == 2;
}

static void move_to(int core)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

/* Wait for the stack until its thread may use `count` cores, among them not `but`. */
static void await(int count, int but)
{
    cpu_set_t set;
    char b[8];

    for (int i = 0; i < PATIENCE; i++) {
        assert_int_equal(weir_recv(fd, b, sizeof b, 0), -1);
        runtime_thread_wake(runtime_of(s)); /* as a frame would: idle it stays where it is */
        assert_int_equal(pthread_getaffinity_np(runtime_of(s)->thread, sizeof set, &set), 0);
        if (CPU_COUNT(&set) == count && (but < 0 || !CPU_ISSET(but, &set)))
            return;
    }
    fail_msg("the thread may use %d cores", CPU_COUNT(&set));
}

static void test_bind(void **state)
{
    cpu_set_t before;
    int core[2];

    (void)state;
    if (!two_cores(core))
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    set("net.isr.dispatch", "deferred");
    move_to(core[0]);
    set("net.isr.bindthreads", "1");
    await(1, core[0]);
    move_to(core[1]);
    if (CPU_COUNT(&before) == 2)
        await(1, core[1]);
    set("net.isr.dispatch", "direct");
    move_to(core[0]);
    await(1, core[0]);
    set("net.isr.bindthreads", "0");
    await(CPU_COUNT(&before), -1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bind, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
