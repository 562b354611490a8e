/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: stacks under the runtime: creation and destruction, sysctl, links, the registry, fork,
 * idleness. Bound: a few stacks and threads; no assertion on time. */
#include "runtime/runtime.h"
#include "weir/socket.h"
#include "weir/stack.h"
#include "wire_link.h"

#include <arpa/inet.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) /* dies of a thread that is made in the child of a fork */
#define NO_THREADS_AFTER_FORK
#endif
#elif defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK
#endif

static int64_t mbufs_in_use(void)
{
    int64_t mbufs, bytes;

    weir_buffer_usage(&mbufs, &bytes);
    return mbufs;
}

static void test_create_and_destroy(void **state)
{
    const struct weir_config cfg = {.name = "alpha", .seed = 7, .buffer_limit = 1 << 20};
    char value[64];

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct weir_stack *s = weir_stack_create(i % 2 ? &cfg : NULL);
        assert_non_null(s);
        assert_int_equal(weir_sysctl_get(s, "net.inet.tcp.sendspace", value, sizeof(value)), 0);
        weir_stack_destroy(s);
    }
    weir_stack_destroy(NULL);
    assert_int_equal(mbufs_in_use(), 0);
}

static bool count_stacks(struct weir_stack *s, void *ctx)
{
    (void)s;
    ++*(int *)ctx;
    return true;
}

static void test_registry(void **state)
{
    const struct weir_config cfg[2] = {{.name = "alpha"}, {.name = "beta"}};
    int n = 0;

    (void)state;
    struct weir_stack *a = weir_stack_create(&cfg[0]), *b = weir_stack_create(&cfg[1]);
    assert_ptr_equal(runtime_find_stack("alpha"), a);
    assert_ptr_equal(runtime_find_stack("beta"), b);
    assert_null(runtime_find_stack("gamma"));
    runtime_foreach_stack(count_stacks, &n);
    assert_int_equal(n, 2);
    weir_stack_destroy(a);
    assert_null(runtime_find_stack("alpha"));
    weir_stack_destroy(b);
}

static void test_sysctl_errors(void **state)
{
    struct weir_stack *s = weir_stack_create(NULL);
    char value[64];

    (void)state;
    assert_int_equal(weir_sysctl_set(s, "net.inet.tcp.sendspace", "65536"), 0);
    assert_int_equal(weir_sysctl_get(s, "net.inet.tcp.sendspace", value, sizeof(value)), 0);
    assert_string_equal(value, "65536");
    assert_int_equal(weir_sysctl_get(s, "no.such.thing", value, sizeof(value)), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(weir_sysctl_set(s, "net.inet.tcp.sendspace", "much"), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_sysctl_set(s, "net.inet.tcp.sendspace", "-5"), -1);
    assert_int_equal(errno, ERANGE);
    weir_stack_destroy(s);
}

static void test_link_errors(void **state)
{
    struct weir_stack *s = weir_stack_create(NULL);
    const char *message = NULL;

    (void)state;
    assert_int_equal(weir_link_open(s, "carrier-pigeon:1", &message), -1);
    assert_int_equal(errno, EINVAL);
    assert_true(message && message[0]);
    assert_int_equal(weir_link_open(s, "mem", &message), -1);
    assert_int_equal(weir_link_open(s, NULL, NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_link_pair(s, s, NULL, &message), -1);
    assert_int_equal(errno, EINVAL);
    weir_stack_destroy(s);
}

static struct sockaddr_in ip4(const char *text, uint16_t port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

    assert_int_equal(inet_pton(AF_INET, text, &sin.sin_addr), 1);
    return sin;
}

static int udp_socket(struct weir_stack *s, const char *own, const char *far)
{
    struct sockaddr_in a = ip4(own, 7000), b = ip4(far, 7000);
    int fd = weir_socket(s, AF_INET, SOCK_DGRAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&b, sizeof(b)), 0);
    return fd;
}

static void test_datagrams_cross_a_pair(void **state)
{
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);
    const char *message;
    char buf[16];

    (void)state;
    assert_int_equal(weir_link_pair(a, b, "mtu=9000", &message), 0);
    int x = udp_socket(a, "10.0.0.1", "10.0.0.2"), y = udp_socket(b, "10.0.0.2", "10.0.0.1");
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(buf, sizeof(buf), "%d", i), got = -1;
        assert_int_equal(weir_send(x, buf, (size_t)n, 0), n);
        n = (int)weir_recv(y, buf, sizeof(buf) - 1, 0);
        assert_true(n > 0);
        buf[n] = '\0';
        assert_int_equal(sscanf(buf, "%d", &got), 1);
        assert_int_equal(got, i);
        int fd = x; /* they take turns */
        x = y;
        y = fd;
    }
    weir_close(x);
    weir_close(y);
    /* In the order in which a careless program ends: a peer that is gone harms nobody. */
    weir_stack_destroy(a);
    weir_stack_destroy(b);
    assert_int_equal(mbufs_in_use(), 0);
}

static void test_idle_stack_does_not_run(void **state)
{
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);

    (void)state;
    assert_int_equal(weir_link_pair(a, b, NULL, NULL), 0);
    struct runtime *rt = runtime_of(a);
    while (!(atomic_load(&a->owner.word) & OWNER_SLEEPER) || atomic_load(&rt->wakeups) == 0)
        sched_yield();
    uint64_t before = atomic_load(&rt->wakeups), deadline = atomic_load(&a->next_deadline);
    for (int i = 0; i < 20000; i++)
        sched_yield();
    /* Only a timer of its own may have woken it, once. */
    assert_true(atomic_load(&rt->wakeups) - before <= (deadline == TIME_NEVER ? 0 : 1));
    weir_stack_destroy(a);
    weir_stack_destroy(b);
}

/* What a child of a fork sees: see runtime.c. Returns the number of the check that failed. */
static int in_the_child(struct weir_stack *s, int fd)
{
    char value[64];

    if (weir_sysctl_get(s, "net.inet.tcp.sendspace", value, sizeof(value)) != -1 || errno != EIO)
        return 1;
    if (weir_socket(s, AF_INET, SOCK_DGRAM, 0) != -1 || errno != EIO)
        return 2;
#ifndef NO_THREADS_AFTER_FORK
    struct weir_stack *own = weir_stack_create(NULL);
    if (!own || weir_sysctl_get(own, "net.inet.tcp.sendspace", value, sizeof(value)) != 0)
        return 3;
    weir_stack_destroy(own);
#endif
    if (weir_recv(fd, value, sizeof(value), 0) != -1)
        return 4;
    weir_close(fd);
    weir_stack_destroy(s);
    return 0;
}

/* case: FUN-124 */
static void test_fork_leaves_the_parent_alone(void **state)
{
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);
    char c;
    int status;

    (void)state;
    assert_int_equal(weir_link_pair(a, b, NULL, NULL), 0);
    int x = udp_socket(a, "10.0.0.1", "10.0.0.2"), y = udp_socket(b, "10.0.0.2", "10.0.0.1");
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(20); /* a child that hangs fails */
            _exit(in_the_child(a, x));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(weir_send(x, "!", 1, 0), 1);
        assert_int_equal(weir_recv(y, &c, 1, 0), 1);
    }
    weir_close(x);
    weir_close(y);
    weir_stack_destroy(b);
    weir_stack_destroy(a);
}

static _Atomic int handled, returned;

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&handled, 1);
}

static void *receiver(void *arg)
{
    char c;
    ssize_t n = weir_recv(*(int *)arg, &c, 1, 0);
    int error = errno;

    atomic_store(&returned, 1);
    return (void *)(intptr_t)(n == -1 ? error : 0);
}

/* Without SA_RESTART a handler ends a blocked call. */
static void test_signal_interrupts_a_receiver(void **state)
{
    struct sigaction sa = {.sa_handler = on_signal};
    struct weir_stack *s = weir_stack_create(NULL);
    pthread_t t;
    void *result;

    (void)state;
    sigaction(SIGUSR1, &sa, NULL);
    int fd = udp_socket(s, "127.0.0.1", "127.0.0.1");
    assert_int_equal(pthread_create(&t, NULL, receiver, &fd), 0);
    while (!atomic_load(&returned)) { /* it may be spinning still, or not have begun */
        pthread_kill(t, SIGUSR1);
        sched_yield();
    }
    pthread_join(t, &result);
    assert_int_equal((intptr_t)result, EINTR);
    assert_true(atomic_load(&handled) > 0);
    weir_close(fd);
    weir_stack_destroy(s);
}

/* Who polls for ever (machdep.cpu_idle_hlt=0) sleeps when the knob is set back during its wait;
 * else this test would not end. */
static void test_poller_is_told_to_sleep(void **state)
{
    struct sigaction sa = {.sa_handler = on_signal};
    struct weir_stack *s = weir_stack_create(NULL);
    pthread_t t;

    (void)state;
    sigaction(SIGUSR1, &sa, NULL);
    atomic_store(&returned, 0);
    atomic_store(&process_knobs.machdep_cpu_idle_hlt, 0);
    int fd = udp_socket(s, "127.0.0.1", "127.0.0.1");
    assert_int_equal(pthread_create(&t, NULL, receiver, &fd), 0);
    while (!(atomic_load(&s->owner.word) & OWNER_DRIVERS_MASK))
        sched_yield();
    atomic_store(&process_knobs.machdep_cpu_idle_hlt, 1);
    while (atomic_load(&s->owner.word) & OWNER_DRIVERS_MASK)
        sched_yield();
    while (!atomic_load(&returned)) {
        pthread_kill(t, SIGUSR1);
        sched_yield();
    }
    pthread_join(t, NULL);
    weir_close(fd);
    weir_stack_destroy(s);
}

static void wait_a_moment(struct weir_stack *s)
{
    _Atomic uint32_t word = 0;
    struct port_wait w = {&word, 0, runtime_now_ns(), &s, 1, false};

    assert_int_equal(runtime_wait(NULL, &w), -ETIMEDOUT);
}

/* A thread may leave output to its wait once it has often waited right after it sent, and only
 * while the stack thread looks by itself. */
static void test_lingering_is_learned(void **state)
{
    struct weir_stack *s = weir_stack_create(NULL);
    struct runtime *rt = runtime_of(s);
    unsigned turns = 0;

    (void)state;
    for (int i = 0; i < 200; i++) {
        assert_false(runtime_linger(NULL, s, LINGER_SEND));
        wait_a_moment(s);
    }
    atomic_store(&rt->polled, 1);
    for (;;) { /* a wait that is interrupted counts against it; the thread may begin late */
        atomic_store(&rt->leased, true);
        if (runtime_linger(NULL, s, LINGER_SEND))
            break;
        wait_a_moment(s);
        turns++;
    }
    assert_true(turns >= 30);
    while (runtime_linger(NULL, s, LINGER_SEND)) /* and does not wait */
        assert_true(++turns < UINT32_MAX);
    while (!runtime_linger(NULL, s, LINGER_LEFT))
        atomic_store(&rt->leased, true);
    atomic_store(&rt->leased, false);
    assert_false(runtime_linger(NULL, s, LINGER_LEFT));
    wait_a_moment(s);
    weir_stack_destroy(s);
}

/* Without descriptors a wait after the send is no reason, only a close before it. */
static void test_lingering_for_a_close(void **state)
{
    struct weir_stack *s = weir_stack_create(NULL);
    struct runtime *rt = runtime_of(s);
    unsigned turns = 0;

    (void)state;
    for (int i = 0; i < 200; i++) {
        atomic_store(&rt->leased, true);
        assert_false(runtime_linger(NULL, s, LINGER_SEND));
        wait_a_moment(s);
    }
    for (;; turns++) {
        atomic_store(&rt->leased, true);
        if (runtime_linger(NULL, s, LINGER_SEND))
            break;
        assert_false(runtime_linger(NULL, s, LINGER_CLOSE));
    }
    assert_true(turns >= 30);
    wait_a_moment(s); /* once not closed: it is learnt anew */
    atomic_store(&rt->leased, true);
    assert_false(runtime_linger(NULL, s, LINGER_SEND));
    wait_a_moment(s);
    weir_stack_destroy(s);
}

static _Atomic uint32_t echoed;

static void *echo_bytes(void *arg)
{
    int fd = weir_accept(*(int *)arg, NULL, NULL);
    char byte;

    while (weir_recv(fd, &byte, 1, 0) == 1) {
        atomic_fetch_add(&echoed, 1);
        if (weir_send(fd, &byte, 1, 0) != 1)
            break;
    }
    weir_close(fd);
    return NULL;
}

/* What a thread left to a wait that it does not come to is sent all the same; else this test would
 * not end. */
static void test_what_lingers_is_sent(void **state)
{
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);
    struct sockaddr_in to = ip4("10.0.0.2", 7);
    pthread_t t;
    char byte = 'x';

    (void)state;
    wire_link_join(a, b);
    int listener = weir_socket(b, AF_INET, SOCK_STREAM, 0);
    int fd = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(listener, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(weir_listen(listener, 1), 0);
    assert_int_equal(pthread_create(&t, NULL, echo_bytes, &listener), 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    for (uint32_t i = 1; i <= 2000; i++) {
        assert_int_equal(weir_send(fd, &byte, 1, 0), 1);
        while (i % 100 == 0 && atomic_load(&echoed) != i)
            sched_yield();
        assert_int_equal(weir_recv(fd, &byte, 1, 0), 1);
    }
    weir_close(fd);
    pthread_join(t, NULL);
    weir_close(listener);
    weir_stack_destroy(a);
    weir_stack_destroy(b);
}

static _Atomic bool stop_churn;

static void *churn(void *arg)
{
    unsigned n = 0;

    (void)arg;
    while (!atomic_load(&stop_churn)) {
        struct weir_stack *s = weir_stack_create(NULL);
        assert_non_null(s);
        weir_stack_destroy(s);
        n++;
    }
    return (void *)(uintptr_t)n;
}

/* Stacks come and go beside one that works. */
static void test_stacks_do_not_disturb_each_other(void **state)
{
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);
    pthread_t t;
    char c;

    (void)state;
    assert_int_equal(weir_link_pair(a, b, NULL, NULL), 0);
    int x = udp_socket(a, "10.0.0.1", "10.0.0.2"), y = udp_socket(b, "10.0.0.2", "10.0.0.1");
    assert_int_equal(pthread_create(&t, NULL, churn, NULL), 0);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(weir_send(x, "!", 1, 0), 1);
        assert_int_equal(weir_recv(y, &c, 1, 0), 1);
    }
    atomic_store(&stop_churn, true);
    pthread_join(t, NULL);
    weir_stack_destroy(a); /* descriptors left open */
    weir_stack_destroy(b);
    assert_int_equal(mbufs_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_sysctl_errors),
        cmocka_unit_test(test_link_errors),
        cmocka_unit_test(test_datagrams_cross_a_pair),
        cmocka_unit_test(test_idle_stack_does_not_run),
        cmocka_unit_test(test_fork_leaves_the_parent_alone),
        cmocka_unit_test(test_signal_interrupts_a_receiver),
        cmocka_unit_test(test_poller_is_told_to_sleep),
        cmocka_unit_test(test_lingering_is_learned),
        cmocka_unit_test(test_lingering_for_a_close),
        cmocka_unit_test(test_what_lingers_is_sent),
        cmocka_unit_test(test_stacks_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
