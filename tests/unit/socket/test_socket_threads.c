/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: sockets under real threads: blocked calls and close, two readers, a feeding owner, sets
 * that are changed while they are waited on; nothing is lost, freed twice or raced for (under
 * ThreadSanitizer too). Bound: some 100,000 operations, a few seconds; waits end by events, never
 * by time. */
#include "fake.h"
#include <pthread.h>

/* --- a port of threads: one condition variable for all words --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static _Atomic uint32_t sleeping;

static uint64_t port_now(void *ctx)
{
    (void)ctx;
    return NS_PER_S;
}

static int port_wait(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    pthread_mutex_lock(&mutex);
    while (atomic_load(w->addr) == w->expected) {
        atomic_fetch_add(&sleeping, 1);
        pthread_cond_wait(&cond, &mutex);
        atomic_fetch_sub(&sleeping, 1);
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void port_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    (void)addr;
    (void)count;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

static const struct port threads_port = {.now_ns = port_now, .wait = port_wait, .wake = port_wake};
static _Atomic uint32_t next_tid = 1;

static uint32_t new_tid(void)
{
    return atomic_fetch_add(&next_tid, 1);
}

static int setup(void **state)
{
    (void)state;
    owner_tid_hook = new_tid;
    fake_setup();
    fake.s->port = &threads_port;
    return 0;
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    assert_int_equal(pthread_create(t, NULL, fn, arg), 0);
}

static void wait_until_sleeping(uint32_t n)
{
    while (atomic_load(&sleeping) < n)
        sched_yield();
}

/* --- close and blocked calls --- */

static int shared_fd;

static void *blocked_recv(void *arg)
{
    char b[16];

    *(ssize_t *)arg = weir_recv(shared_fd, b, sizeof b, 0);
    mbuf_thread_exit();
    return NULL;
}

/* case: FUN-125 */
static void test_close_leaves_recv_blocked(void **state)
{
    ssize_t got = -99;
    pthread_t t;

    (void)state;
    shared_fd = fake_connected(false);
    struct socket *so = fake_so(shared_fd);
    start(&t, blocked_recv, &got);
    wait_until_sleeping(1);
    assert_int_equal(weir_close(shared_fd), 0);
    assert_int_equal(fake.detached, 0);
    struct mbuf *m = mbuf_from_bytes(fake.s->account, "data", 4);
    AS_OWNER({
        sockbuf_append_stream(&so->so_rcv, &m);
        so_readable(so);
    });
    pthread_join(t, NULL);
    assert_int_equal(got, 4); /* of what it blocked on, though closed */
    assert_int_equal(fake.detached, 1);
}

static void test_shutdown_wakes_recv(void **state)
{
    ssize_t got = -99;
    pthread_t t;

    (void)state;
    shared_fd = fake_connected(false);
    start(&t, blocked_recv, &got);
    wait_until_sleeping(1);
    assert_int_equal(weir_shutdown(shared_fd, SHUT_RD), 0);
    pthread_join(t, NULL);
    assert_int_equal(got, 0);
    weir_close(shared_fd);
}

static void *blocked_accept(void *arg)
{
    *(int *)arg = weir_accept(shared_fd, NULL, NULL) < 0 ? errno : 0;
    return NULL;
}

static void test_shutdown_wakes_accept(void **state)
{
    int error = -1;
    pthread_t t;

    (void)state;
    shared_fd = fake_listener(false, 3);
    start(&t, blocked_accept, &error);
    wait_until_sleeping(1);
    assert_int_equal(weir_shutdown(shared_fd, SHUT_RDWR), 0);
    pthread_join(t, NULL);
    assert_int_equal(error, EINVAL);
    weir_close(shared_fd);
}

/* --- a feeding owner, two readers --- */

#define TOTAL 2000000u
static _Atomic uint32_t received;

static void *reader(void *arg)
{
    static _Thread_local uint8_t b[5000];
    uint32_t n = *(uint32_t *)arg;
    ssize_t r;

    while ((r = weir_recv(shared_fd, b, 1 + n * 7919 % sizeof b, n % 5 ? 0 : MSG_PEEK)) > 0) {
        if (n % 5)
            atomic_fetch_add(&received, (uint32_t)r);
        n++;
    }
    mbuf_thread_exit();
    return NULL;
}

static void test_feed_two_readers(void **state)
{
    uint32_t seeds[2] = {1, 1000}, fed = 0;
    static uint8_t b[3000];
    pthread_t t[2];

    (void)state;
    received = 0;
    shared_fd = fake_connected(false);
    struct socket *so = fake_so(shared_fd);
    for (int i = 0; i < 2; i++)
        start(&t[i], reader, &seeds[i]);
    while (fed < TOTAL) {
        uint32_t n = MIN(1 + fed * 31 % sizeof b, TOTAL - fed);
        if (sockbuf_space(&so->so_rcv) < n) {
            sched_yield();
            continue;
        }
        fake_data(shared_fd, b, n);
        fed += n;
    }
    fake_fin(shared_fd);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(received, TOTAL);
    weir_close(shared_fd);
}

/* --- senders, an owner that drains --- */

static void *sender(void *arg)
{
    static _Thread_local uint8_t b[100000];
    uint32_t left = TOTAL / 2;

    (void)arg;
    while (left) {
        ssize_t r = weir_send(shared_fd, b, MIN(left, sizeof b), 0);
        assert_true(r > 0);
        left -= (uint32_t)r;
    }
    mbuf_thread_exit();
    return NULL;
}

static void test_two_senders(void **state)
{
    pthread_t t[2];
    uint32_t drained = 0;

    (void)state;
    shared_fd = fake_connected(false);
    for (int i = 0; i < 2; i++)
        start(&t[i], sender, NULL);
    while (drained < TOTAL) {
        uint32_t n = sockbuf_used(&fake_so(shared_fd)->so_snd);
        if (n == 0)
            sched_yield();
        else
            fake_acked(shared_fd, n);
        drained += n;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    weir_close(shared_fd);
}

/* --- sets --- */

static int shared_ep;
static _Atomic bool done;

static void *waiter(void *arg)
{
    struct epoll_event ev[4];
    char b[64];

    while (!atomic_load(&done)) {
        int n = weir_epoll_wait(shared_ep, ev, 4, -1);
        for (int i = 0; i < n; i++) {
            ssize_t r = weir_recv(ev[i].data.fd, b, sizeof b, MSG_DONTWAIT);
            if (r > 0)
                atomic_fetch_add((_Atomic uint32_t *)arg, (uint32_t)r);
        }
    }
    mbuf_thread_exit();
    return NULL;
}

/* Sockets come, get data, and go while two threads wait on the set they are in. */
static void test_set_churn(void **state)
{
    _Atomic uint32_t got = 0;
    uint32_t sent = 0;
    pthread_t t[2];

    (void)state;
    done = false;
    shared_ep = weir_epoll_create(0);
    int stop = fake_connected(true);
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = stop};
    assert_int_equal(weir_epoll_ctl(shared_ep, EPOLL_CTL_ADD, stop, &ev), 0);
    for (int i = 0; i < 2; i++)
        start(&t[i], waiter, &got);
    for (int i = 0; i < 2000; i++) {
        int fd = fake_connected(true);
        ev = (struct epoll_event){.events = EPOLLIN | (i & 1 ? EPOLLET : 0), .data.fd = fd};
        assert_int_equal(weir_epoll_ctl(shared_ep, EPOLL_CTL_ADD, fd, &ev), 0);
        for (int k = 0; k < 3; k++) {
            fake_data(fd, "0123456789", 10);
            sent += 10;
            if (k == 1)
                weir_epoll_ctl(shared_ep, EPOLL_CTL_MOD, fd, &ev);
        }
        while (atomic_load(&got) < sent) /* every event is delivered */
            sched_yield();
        weir_close(fd);
    }
    done = true;
    fake_rst(stop, ECONNRESET); /* stays ready: wakes both */
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    weir_close(stop);
    weir_close(shared_ep);
}

static _Atomic int victim;

static void *user(void *arg)
{
    char b[8];

    (void)arg;
    while (!atomic_load(&done)) {
        int fd = atomic_load(&victim);
        struct pollfd p[2] = {{fd, POLLIN, 0}, {-1, 0, 0}};
        (void)!weir_recv(fd, b, sizeof b, MSG_DONTWAIT);
        (void)!weir_send(fd, "x", 1, MSG_DONTWAIT);
        weir_poll(p, 2, 0);
        weir_shutdown(fd, SHUT_WR);
    }
    mbuf_thread_exit();
    return NULL;
}

/* Calls race with the close of their descriptor and the reuse of its slot. */
static void test_close_races(void **state)
{
    pthread_t t[2];

    (void)state;
    done = false;
    victim = -1;
    for (int i = 0; i < 2; i++)
        start(&t[i], user, NULL);
    for (int i = 0; i < 3000; i++) {
        int fd = fake_connected(true);
        atomic_store(&victim, fd);
        if (i % 3 == 0)
            fake_data(fd, "abc", 3);
        sched_yield();
        assert_int_equal(weir_close(fd), 0);
    }
    done = true;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_close_leaves_recv_blocked),
        T(test_shutdown_wakes_recv),
        T(test_shutdown_wakes_accept),
        T(test_feed_two_readers),
        T(test_two_senders),
        T(test_set_churn),
        T(test_close_races),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
