/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whole stacks under threads: nothing is lost or stuck while knobs change, threads come and
 * go, connections are taken apart under senders, a process forks; and all memory comes back. Over
 * the memory link and over one with descriptors. Bound: some MB and a few thousand calls each; what
 * is stuck ends in the alarm; no assertion on time. */
#include "buf/pool.h"
#include "runtime/runtime.h"
#include "weir/socket.h"
#include "weir/stack.h"
#include "wire_link.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define UNDER_SANITIZER
#endif
#endif

static struct weir_stack *stack[2];
static _Atomic bool stop;

static int setup_mem(void **state)
{
    alarm(100);
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_non_null(stack[i] = weir_stack_create(NULL));
    return weir_link_pair(stack[0], stack[1], NULL, NULL);
}

static int setup_wire(void **state)
{
    alarm(100);
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_non_null(stack[i] = weir_stack_create(NULL));
    wire_link_join(stack[0], stack[1]);
    return 0;
}

static void set_knob(const char *name, const char *value)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_sysctl_set(stack[i], name, value), 0);
}

static int teardown(void **state)
{
    int64_t mbufs, bytes;

    set_knob("kern.idle_spin_us", "200");
    for (int i = 0; i < 2; i++)
        weir_stack_destroy(stack[i]);
    weir_buffer_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    assert_int_equal(bytes, 0);
    mbuf_thread_exit();
    assert_true(account_none()); /* every thread that has ended gave its cache back */
    alarm(0);
    return 0;
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    assert_int_equal(pthread_create(t, NULL, fn, arg), 0);
}

static struct sockaddr_in address(int host, uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)host)};
}

static int listener(uint16_t port)
{
    struct sockaddr_in a = address(1, port);
    int fd = weir_socket(stack[1], AF_INET, SOCK_STREAM, 0);

    assert_int_equal(weir_bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(weir_listen(fd, 128), 0);
    return fd;
}

static void connect_to(int fd, uint16_t port)
{
    struct sockaddr_in a = address(1, port);

    assert_int_equal(weir_connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void make_pair(int lfd, uint16_t port, int fd[2])
{
    fd[0] = weir_socket(stack[0], AF_INET, SOCK_STREAM, 0);
    connect_to(fd[0], port);
    fd[1] = weir_accept(lfd, NULL, NULL);
    assert_true(fd[1] >= 0);
}

/* --- streams while knobs change --- */

#define STREAMS 3
#define STREAM_BYTES (1u << 20)

static void *stream_writer(void *arg)
{
    int fd = *(int *)arg;
    uint32_t sent = 0, seed = (uint32_t)fd;
    uint8_t b[20000];

    while (sent < STREAM_BYTES) {
        seed = seed * 1664525 + 1013904223;
        uint32_t n = MIN(1 + (seed >> 16) % (seed & 0x8000 ? 200 : sizeof(b)), STREAM_BYTES - sent);
        for (uint32_t i = 0; i < n; i++)
            b[i] = (uint8_t)((sent + i) * 7 >> 3);
        assert_int_equal(weir_send(fd, b, n, 0), n);
        sent += n;
    }
    assert_int_equal(weir_shutdown(fd, SHUT_WR), 0);
    assert_int_equal(weir_recv(fd, b, 1, 0), 0); /* the other side is done too */
    return NULL;
}

/* Odd ones wait in a set, edge-triggered and disarmed after each event. */
static void *stream_reader(void *arg)
{
    int fd = ((int *)arg)[1], ep = weir_epoll_create(0);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET | EPOLLONESHOT};
    bool waits = ((int *)arg)[0] & 1;
    uint32_t got = 0;
    uint8_t b[8000];
    ssize_t n;

    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
    while ((n = weir_recv(fd, b, 1 + got % sizeof(b), waits ? MSG_DONTWAIT : 0)) != 0) {
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            assert_int_equal(weir_epoll_wait(ep, &ev, 1, -1), 1);
            ev.events = EPOLLIN | EPOLLET | EPOLLONESHOT;
            assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev), 0);
            continue;
        }
        for (ssize_t i = 0; i < n; i++)
            if (b[i] != (uint8_t)((got + (uint32_t)i) * 7 >> 3))
                fail_msg("wrong byte at %u", got + (uint32_t)i);
        got += (uint32_t)n;
    }
    assert_int_equal(got, STREAM_BYTES);
    weir_close(fd);
    weir_close(ep);
    return NULL;
}

static void *knob_turner(void *arg)
{
    static const char *const spin[] = {"0", "30", "200"}, *const way[] = {"0", "1", "2"};

    for (uint32_t i = 0; !atomic_load(&stop); i++) {
        set_knob("net.isr.dispatch", i & 1 ? "deferred" : "direct");
        set_knob("net.isr.bindthreads", i & 16 ? "1" : "0");
        set_knob("net.inet.tcp.soreceive_stream", way[i / 3 % NELEM(way)]);
        set_knob("kern.idle_spin_us", spin[i / 2 % NELEM(spin)]);
        set_knob("machdep.cpu_idle_hlt", i % 7 == 3 ? "0" : "1");
        usleep(500);
    }
    set_knob("machdep.cpu_idle_hlt", "1");
    return NULL;
}

static void test_streams_while_knobs_change(void **state)
{
    pthread_t w[STREAMS], r[STREAMS], k;
    int fd[STREAMS][2], args[STREAMS][2], lfd = listener(80);

    for (int i = 0; i < STREAMS; i++) {
        make_pair(lfd, 80, fd[i]);
        args[i][0] = i;
        args[i][1] = fd[i][1];
    }
    start(&k, knob_turner, NULL);
    for (int i = 0; i < STREAMS; i++) {
        start(&r[i], stream_reader, args[i]);
        start(&w[i], stream_writer, &fd[i][0]);
    }
    for (int i = 0; i < STREAMS; i++) {
        pthread_join(w[i], NULL);
        pthread_join(r[i], NULL);
        weir_close(fd[i][0]);
    }
    atomic_store(&stop, true);
    pthread_join(k, NULL);
    weir_close(lfd);
}

/* --- calls that need the owner, beside a busy stream --- */

static void *busy_sender(void *arg)
{
    static uint8_t b[65536];

    while (!atomic_load(&stop))
        if (weir_send(*(int *)arg, b, sizeof(b), 0) < 0)
            break;
    return NULL;
}

static void *busy_receiver(void *arg)
{
    static uint8_t b[65536];

    while (weir_recv(*(int *)arg, b, sizeof(b), 0) > 0)
        ;
    return NULL;
}

static void test_owner_calls_beside_a_stream(void **state)
{
    int fd[2], lfd = listener(80), v;
    pthread_t s, r;
    socklen_t len;

    make_pair(lfd, 80, fd);
    start(&r, busy_receiver, &fd[1]);
    start(&s, busy_sender, &fd[0]);
    for (int i = 0; i < 2000; i++) {
        len = sizeof(v);
        assert_int_equal(weir_getsockopt(fd[i & 1], SOL_SOCKET, SO_ERROR, &v, &len), 0);
    }
    atomic_store(&stop, true);
    pthread_join(s, NULL);
    weir_shutdown(fd[0], SHUT_WR);
    pthread_join(r, NULL);
    for (int i = 0; i < 2; i++)
        weir_close(fd[i]);
    weir_close(lfd);
}

/* --- a thread that frees buffers and never owns a stack --- */

static void *read_once(void *arg)
{
    char b[4000];

    assert_int_equal(weir_recv(*(int *)arg, b, sizeof(b), MSG_DONTWAIT), 1000);
    return NULL;
}

static void test_threads_that_only_free(void **state)
{
    static char b[1000];
    int fd[2], lfd = listener(80), n;
    pthread_t t;

    make_pair(lfd, 80, fd);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(weir_send(fd[0], b, sizeof(b), 0), sizeof(b));
        do {
            sched_yield();
            weir_ioctl(fd[1], FIONREAD, &n);
        } while (n < (int)sizeof(b));
        start(&t, read_once, &fd[1]);
        pthread_join(t, NULL);
    }
    weir_close(fd[0]);
    weir_close(fd[1]);
    weir_close(lfd);
}

/* --- a connection taken apart under a sender --- */

static void *send_until_error(void *arg)
{
    static char b[5000];

    while (weir_send(*(int *)arg, b, sizeof(b), 0) > 0)
        ;
    return NULL;
}

static void test_disconnect_under_a_sender(void **state)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int lfd = listener(80), fd = weir_socket(stack[0], AF_INET, SOCK_STREAM, 0), left;
    pthread_t t[2];

    for (int i = 0; i < 150; i++) {
        connect_to(fd, 80);
        int far = weir_accept(lfd, NULL, NULL);
        for (int k = 0; k < 2; k++)
            start(&t[k], send_until_error, &fd);
        for (int k = 0; k < i * 7 % 50; k++)
            sched_yield();
        assert_int_equal(weir_connect(fd, &none, sizeof(none)), 0);
        for (int k = 0; k < 2; k++)
            pthread_join(t[k], NULL);
        /* Nothing waits for the next connection. */
        assert_int_equal(weir_ioctl(fd, SIOCOUTQ, &left), 0);
        assert_int_equal(left, 0);
        weir_close(far);
    }
    weir_close(fd);
    weir_close(lfd);
}

/* --- the urgent mark, with a reader that drops while it is set --- */

#define MARKS 300
static _Atomic uint32_t marks_met;
static uint32_t mark_at[MARKS];

static void *mark_reader(void *arg)
{
    uint32_t got = 0, met = 0;
    int fd = *(int *)arg, at, left;
    char b[64];

    while (met < MARKS) {
        assert_int_equal(weir_ioctl(fd, SIOCATMARK, &at), 0);
        if (at) {
            if (got != mark_at[met]) {
                fprintf(stderr, "mark %u met at %u, not at %u\n", met, got, mark_at[met]);
                abort();
            }
            atomic_store(&marks_met, ++met);
            if (met == MARKS)
                break;
        }
        /* A read at the mark goes past it: only where something is known to be in front of it. */
        assert_int_equal(weir_ioctl(fd, FIONREAD, &left), 0);
        if (!at && left == 0) {
            sched_yield();
            continue;
        }
        ssize_t n = weir_recv(fd, b, 1 + got % sizeof(b), 0);
        assert_true(n > 0);
        got += (uint32_t)n;
    }
    return NULL;
}

static void test_urgent_mark_under_a_reader(void **state)
{
    int fd[2], lfd = listener(80);
    static char b[3000];
    uint32_t sent = 0;
    pthread_t t;

    make_pair(lfd, 80, fd);
    atomic_store(&marks_met, 0);
    for (uint32_t i = 0; i < MARKS; i++) {
        uint32_t n = 1 + i * 37 % sizeof(b);
        mark_at[i] = (i ? mark_at[i - 1] : 0) + n;
    }
    start(&t, mark_reader, &fd[1]);
    for (uint32_t i = 0; i < MARKS; i++) {
        while (sent < mark_at[i]) {
            uint32_t k = MIN(1 + sent % 700, mark_at[i] - sent);
            assert_int_equal(weir_send(fd[0], b, k, 0), k);
            sent += k;
        }
        assert_int_equal(weir_send(fd[0], "!", 1, MSG_OOB), 1);
        while (atomic_load(&marks_met) <= i)
            sched_yield();
    }
    pthread_join(t, NULL);
    weir_close(fd[0]);
    weir_close(fd[1]);
    weir_close(lfd);
}

/* --- the end of a stack --- */

static void *recv_error(void *arg)
{
    char b;

    *(int *)arg = weir_recv(*(int *)arg, &b, 1, 0) < 0 ? errno : 0;
    return NULL;
}

/* What is open is aborted, and the peer learns of it though nobody runs that stack any more. */
static void test_destruction_resets_the_peer(void **state)
{
    int fd[2], lfd = listener(80), error;
    pthread_t t;

    make_pair(lfd, 80, fd);
    error = fd[1];
    start(&t, recv_error, &error);
    usleep(2000); /* asleep or still spinning: it must learn */
    weir_stack_destroy(stack[0]);
    pthread_join(t, NULL);
    assert_int_equal(error, ECONNRESET);
    assert_int_equal(weir_close(fd[0]), -1);
    stack[0] = weir_stack_create(NULL); /* for the teardown */
    weir_close(fd[1]);
    weir_close(lfd);
}

/* --- fork --- */

static int in_the_child(const int fd[2], int ep)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct pollfd p = {.fd = fd[0], .events = POLLIN};
    char b[100] = "x";

    if (weir_recv(fd[1], b, sizeof(b), 0) != -1 || errno != EIO)
        return 1;
    if (weir_send(fd[0], b, sizeof(b), 0) != -1 || errno != EIO)
        return 2;
    if (weir_epoll_wait(ep, &ev, 1, -1) != -1 || errno != EIO)
        return 3;
    if (weir_poll(&p, 1, -1) != 1 || p.revents != POLLERR)
        return 4;
        /* ThreadSanitizer dies of a thread that is made in the child of a fork; AddressSanitizer's
         * allocator may be left locked there by a thread that the child does not have. */
#ifndef UNDER_SANITIZER
    struct weir_stack *own = weir_stack_create(NULL);
    int mine = weir_epoll_create(0), so = own ? weir_socket(own, AF_INET, SOCK_DGRAM, 0) : -1;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (mine < 0 || so < 0 || weir_bind(so, (struct sockaddr *)&a, sizeof(a)) != 0 ||
        weir_sendto(so, b, 50, 0, (struct sockaddr *)&a, sizeof(a)) != 50 ||
        weir_recv(so, b, sizeof(b), 0) != 50)
        return 5;
    if (weir_epoll_ctl(mine, EPOLL_CTL_ADD, fd[0], &ev) != -1 || errno != EIO)
        return 6;
    weir_close(so);
    weir_stack_destroy(own);
#endif
    return weir_close(fd[0]) == 0 && weir_close(fd[1]) == 0 && weir_close(ep) == 0 ? 0 : 7;
}

static void *set_user(void *arg)
{
    int *a = arg; /* set, socket */
    struct epoll_event ev = {.events = EPOLLIN};

    while (!atomic_load(&stop)) {
        weir_epoll_ctl(a[0], EPOLL_CTL_ADD, a[1], &ev);
        (void)!weir_epoll_wait(a[0], &ev, 1, 0);
        weir_epoll_ctl(a[0], EPOLL_CTL_DEL, a[1], NULL);
    }
    return NULL;
}

/* The child hangs at no lock that another thread held. */
static void test_fork_beside_busy_threads(void **state)
{
    int fd[2], lfd = listener(80), status, a[2];
    pthread_t s, r, u;

    make_pair(lfd, 80, fd);
    a[0] = weir_epoll_create(0);
    a[1] = fd[1];
    start(&r, busy_receiver, &fd[1]);
    start(&s, busy_sender, &fd[0]);
    start(&u, set_user, a);
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(20);
            _exit(in_the_child(fd, a[0]));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    pthread_join(s, NULL);
    pthread_join(u, NULL);
    weir_shutdown(fd[0], SHUT_WR);
    pthread_join(r, NULL);
    for (int i = 0; i < 2; i++)
        weir_close(fd[i]);
    weir_close(a[0]);
    weir_close(lfd);
}

/* --- a descriptor that reports nothing but an error --- */

static void test_broken_descriptor_is_let_alone(void **state)
{
    struct runtime *rt = runtime_of(stack[0]);

    wire_link_broken(stack[0]);
    while (!(atomic_load(&stack[0]->owner.word) & OWNER_SLEEPER) || atomic_load(&rt->wakeups) < 2)
        sched_yield();
    usleep(5000); /* let it find out */
    uint64_t before = atomic_load(&rt->wakeups);
    usleep(20000);
    assert_in_range(atomic_load(&rt->wakeups) - before, 0, 20);
}

#define MEM(f) cmocka_unit_test_setup_teardown(f, setup_mem, teardown)
#define WIRE(f)                                                                                    \
    {                                                                                              \
#f " (descriptors)", f, setup_wire, teardown, NULL                                         \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        MEM(test_streams_while_knobs_change),     WIRE(test_streams_while_knobs_change),
        MEM(test_owner_calls_beside_a_stream),    WIRE(test_owner_calls_beside_a_stream),
        MEM(test_threads_that_only_free),         MEM(test_disconnect_under_a_sender),
        MEM(test_urgent_mark_under_a_reader),     MEM(test_destruction_resets_the_peer),
        WIRE(test_destruction_resets_the_peer),   MEM(test_fork_beside_busy_threads),
        MEM(test_broken_descriptor_is_let_alone),
    };
    if (argc > 1) /* a pattern */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
