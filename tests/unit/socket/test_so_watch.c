/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: epoll sets report what Linux's do: level, edge, one-shot, nested, several sets on one
 * socket; and a wait costs by what is ready. Bound: virtual time, 2,000 descriptors; two threads,
 * once.
 */
#include "fake.h"
#include <pthread.h>
#include <sched.h>

static struct epoll_event out[16];

static void add(int ep, int fd, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.fd = fd};

    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

static void modify(int ep, int fd, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.fd = fd};

    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev), 0);
}

#define WAIT(ep) weir_epoll_wait(ep, out, NELEM(out), 0)

static void test_ctl_errors(void **state)
{
    int ep = weir_epoll_create(0), fd = fake_connected(true), other = fake_connected(true);
    struct epoll_event ev = {.events = EPOLLIN};

    (void)state;
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev), EINVAL);
    add(ep, fd, EPOLLIN);
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), EEXIST);
    assert_errno(weir_epoll_ctl(ep, 77, fd, &ev), EINVAL);
    assert_errno(weir_epoll_ctl(fd, EPOLL_CTL_ADD, ep, &ev), EINVAL);
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_DEL, other, NULL), ENOENT);
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_MOD, other, &ev), ENOENT);
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_ADD, 9999, &ev), EBADF);
    assert_errno(weir_epoll_ctl(9999, EPOLL_CTL_ADD, ep, &ev), EBADF);
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_ADD, other, NULL), EFAULT);
    assert_errno(weir_epoll_wait(ep, out, 0, 0), EINVAL);
    assert_errno(weir_epoll_wait(ep, out, -1, 0), EINVAL);
    assert_errno(weir_epoll_wait(fd, out, 1, 0), EINVAL);
    ev.events = EPOLLEXCLUSIVE | EPOLLIN;
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev), EINVAL);
    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_ADD, other, &ev), 0);
    ev.events = EPOLLIN;
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_MOD, other, &ev), EINVAL);
    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_DEL, other, NULL), 0);
    ev.events = EPOLLEXCLUSIVE | EPOLLRDHUP;
    assert_errno(weir_epoll_ctl(ep, EPOLL_CTL_ADD, other, &ev), EINVAL);
    weir_close(fd);
    weir_close(other);
    weir_close(ep);
}

/* case: FUN-113 */
static void test_level_and_edge(void **state)
{
    int lt = weir_epoll_create(0), et = weir_epoll_create(0), fd = fake_connected(true);
    char b[100];

    (void)state;
    fake_data(fd, b, 10); /* before ADD */
    add(lt, fd, EPOLLIN);
    add(et, fd, EPOLLIN | EPOLLET);
    assert_int_equal(WAIT(et), 1);
    assert_int_equal(out[0].events, EPOLLIN);
    assert_int_equal(out[0].data.fd, fd);
    assert_int_equal(WAIT(et), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(WAIT(lt), 1); /* until drained */
    fake_data(fd, b, 10);
    assert_int_equal(WAIT(et), 1); /* a new arrival */
    assert_int_equal(WAIT(et), 0);
    assert_int_equal(weir_recv(fd, b, 15, 0), 15);
    assert_int_equal(WAIT(et), 0);
    assert_int_equal(WAIT(lt), 1);
    assert_int_equal(weir_recv(fd, b, 100, 0), 5);
    assert_int_equal(WAIT(lt), 0);
    modify(et, fd, EPOLLIN | EPOLLOUT | EPOLLET);
    assert_int_equal(WAIT(et), 1);
    assert_int_equal(out[0].events, EPOLLOUT);
    fake_data(fd, b, 1);
    assert_int_equal(WAIT(et), 1);
    assert_int_equal(out[0].events, EPOLLIN | EPOLLOUT);
    fake_rst(fd, ECONNRESET); /* never asked for, always told */
    assert_int_equal(WAIT(lt), 1);
    assert_int_equal(out[0].events, EPOLLIN | EPOLLERR | EPOLLHUP);
    weir_close(fd); /* leaves both sets */
    assert_int_equal(WAIT(lt), 0);
    assert_int_equal(WAIT(et), 0);
    weir_close(lt);
    weir_close(et);
}

/* An edge for POLLOUT comes only after somebody found no room. */
static void test_edge_out(void **state)
{
    static char big[1 << 16];
    int et = weir_epoll_create(0), fd = fake_connected(true);

    (void)state;
    add(et, fd, EPOLLOUT | EPOLLET);
    assert_int_equal(WAIT(et), 1);
    weir_send(fd, big, 1000, 0);
    fake_acked(fd, 1000);
    assert_int_equal(WAIT(et), 0);
    weir_send(fd, big, sizeof big, 0);
    assert_errno(weir_send(fd, big, 1, 0), EAGAIN);
    fake_acked(fd, 32768);
    assert_int_equal(WAIT(et), 1);
    assert_int_equal(WAIT(et), 0);
    weir_close(fd);
    weir_close(et);
}

static void test_oneshot(void **state)
{
    int ep = weir_epoll_create(0), fd = fake_connected(true);

    (void)state;
    add(ep, fd, EPOLLIN | EPOLLONESHOT);
    fake_data(fd, "a", 1);
    assert_int_equal(WAIT(ep), 1);
    fake_data(fd, "b", 1);
    fake_rst(fd, ECONNRESET); /* not even errors */
    assert_int_equal(WAIT(ep), 0);
    modify(ep, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
    assert_int_equal(WAIT(ep), 1);
    assert_int_equal(out[0].events, EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP);
    assert_int_equal(WAIT(ep), 0);
    weir_close(fd);
    weir_close(ep);
}

/* case: FUN-058 */
static void test_accept_events(void **state)
{
    (void)state;
    for (int et = 0; et < 2; et++) {
        int ep = weir_epoll_create(0), l = fake_listener(true, 5);
        assert_errno(weir_accept(l, NULL, NULL), EAGAIN);
        add(ep, l, EPOLLIN | (et ? EPOLLET : 0));
        for (int i = 0; i < 5; i++) {
            assert_int_equal(WAIT(ep), 0);
            fake_child(l);
            assert_int_equal(WAIT(ep), 1);
            weir_close(weir_accept(l, NULL, NULL));
            assert_errno(weir_accept(l, NULL, NULL), EAGAIN);
        }
        weir_close(l);
        weir_close(ep);
    }
}

/* case: FUN-116 */
static void test_maxevents_and_order(void **state)
{
    int ep = weir_epoll_create(0), fds[3], seen[3] = {0};
    struct epoll_event two[2] = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        fds[i] = fake_connected(true);
        add(ep, fds[i], EPOLLIN);
        fake_data(fds[i], "x", 1);
    }
    two[1].events = 0xdead;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(weir_epoll_wait(ep, two, 1, 0), 1);
        for (int k = 0; k < 3; k++)
            seen[k] += two[0].data.fd == fds[k];
    }
    assert_int_equal(two[1].events, 0xdead);
    for (int k = 0; k < 3; k++)
        assert_int_equal(seen[k], 10); /* turn by turn */
    for (int k = 0; k < 3; k++)
        weir_close(fds[k]);
    weir_close(ep);
}

/* case: FUN-118 */
static void test_nested(void **state)
{
    int inner = weir_epoll_create(0), outer = weir_epoll_create(0), fd = fake_connected(true),
        sets[6];
    char b[4];

    (void)state;
    add(outer, inner, EPOLLIN);
    add(inner, fd, EPOLLIN);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(WAIT(outer), 0);
        assert_int_equal(fake_poll(outer), 0);
        fake_data(fd, "x", 1);
        assert_int_equal(fake_poll(outer), POLLIN);
        assert_int_equal(WAIT(outer), 1);
        assert_int_equal(out[0].data.fd, inner);
        assert_int_equal(WAIT(outer), 1); /* level */
        assert_int_equal(WAIT(inner), 1);
        assert_int_equal(weir_recv(fd, b, 4, 0), 1);
    }
    assert_int_equal(WAIT(outer), 0);
    weir_close(inner);
    weir_close(outer);
    weir_close(fd);

    struct epoll_event ev = {.events = EPOLLIN};
    for (int i = 0; i < 6; i++)
        sets[i] = weir_epoll_create(0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(weir_epoll_ctl(sets[i + 1], EPOLL_CTL_ADD, sets[i], &ev), 0);
    assert_errno(weir_epoll_ctl(sets[5], EPOLL_CTL_ADD, sets[4], &ev), ELOOP); /* too deep */
    assert_errno(weir_epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[1], &ev), ELOOP); /* a circle */
    assert_errno(weir_epoll_ctl(sets[0], EPOLL_CTL_ADD, sets[3], &ev), ELOOP);
    for (int i = 0; i < 6; i++)
        weir_close(sets[i]);
}

static int shared_set;
static _Atomic unsigned looked;

static void *look_once(void *got)
{
    struct epoll_event ev;

    *(int *)got = weir_epoll_wait(shared_set, &ev, 1, 0);
    atomic_fetch_add(&looked, 1);
    return NULL;
}

static uint64_t contended(void)
{
    for (struct lock_class *k = lock_class_first(); k; k = k->next)
        if (strcmp(k->name, "epoll_set") == 0)
            return LOAD_RELAXED(&k->contended);
    return 0;
}

/* Threads that look at the same time all find what is level-triggered: else one of them would go to
 * sleep, and nobody tell it of what another one put back. */
static void test_two_look_at_once(void **state)
{
    int inner = weir_epoll_create(0), fd = fake_connected(true), got[2] = {0};
    uint64_t before = contended();
    struct desc_ref r;
    pthread_t t[2];

    (void)state;
    shared_set = weir_epoll_create(0);
    atomic_store(&looked, 0);
    add(shared_set, inner, EPOLLIN);
    add(inner, fd, EPOLLIN);
    fake_data(fd, "x", 1);
    assert_true(desc_get(inner, &r));
    lock_acquire(&r.set->mutex);
    assert_int_equal(pthread_create(&t[0], NULL, look_once, &got[0]), 0);
    while (contended() == before) /* it looks at the inner set */
        sched_yield();
    assert_int_equal(pthread_create(&t[1], NULL, look_once, &got[1]), 0);
    while (contended() < before + 2 && atomic_load(&looked) == 0)
        sched_yield();
    lock_release(&r.set->mutex);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    desc_put(&r);
    assert_int_equal(got[0], 1);
    assert_int_equal(got[1], 1);
    weir_close(fd);
    weir_close(inner);
    weir_close(shared_set);
}

/* case: FUN-115 */
static void test_timeouts(void **state)
{
    const int ms[] = {1, 2, 10, 999, 1000, 1001};
    int ep = weir_epoll_create(0), fd = fake_connected(true);
    struct pollfd two[2] = {{fd, POLLIN, 0}, {-1, POLLIN, 7}};

    (void)state;
    add(ep, fd, EPOLLIN);
    assert_int_equal(WAIT(ep), 0);
    assert_int_equal(fake.waits, 0);
    for (size_t i = 0; i < NELEM(ms); i++) {
        uint64_t t = fake.now_ns;
        assert_int_equal(weir_epoll_wait(ep, out, 1, ms[i]), 0);
        assert_int_equal(fake.now_ns - t, (uint64_t)ms[i] * NS_PER_MS);
        assert_int_equal(weir_poll(two, 1, ms[i]), 0);
        assert_int_equal(weir_poll(two, 2, ms[i]), 0);
        assert_int_equal(fake.now_ns - t, (uint64_t)ms[i] * 3 * NS_PER_MS);
    }
    assert_int_equal(two[1].revents, 0); /* skipped */
    weir_close(fd);
    weir_close(ep);
}

static int arrive_fd;

static int arrive(const struct port_wait *w)
{
    assert_int_equal(w->stack_count, 1); /* the waiter can drive it */
    assert_ptr_equal(w->stacks[0], fake.s);
    if (arrive_fd < 0)
        return -EINTR;
    fake_data(arrive_fd, "x", 1);
    assert_int_not_equal(*w->addr, w->expected);
    return 0;
}

static void test_blocking(void **state)
{
    int ep = weir_epoll_create(0), fd = fake_connected(true), other = fake_connected(true);
    struct pollfd many[12];

    (void)state;
    fake.on_wait = arrive;
    add(ep, fd, EPOLLIN);
    add(ep, other, EPOLLIN);
    arrive_fd = fd;
    assert_int_equal(weir_epoll_wait(ep, out, 16, -1), 1);
    assert_int_equal(out[0].data.fd, fd);
    arrive_fd = other;
    for (int i = 0; i < 12; i++)
        many[i] = (struct pollfd){i % 2 ? -1 : other, POLLIN, 0};
    assert_int_equal(weir_poll(many, 12, -1), 6);
    weir_recv(fd, out, 16, 0);
    weir_recv(other, out, 16, 0);
    arrive_fd = -1;
    assert_errno(weir_epoll_wait(ep, out, 16, -1), EINTR);
    assert_errno(weir_poll(many, 1, -1), EINTR);
    assert_errno(weir_poll(many, 12, -1), EINTR);
    assert_int_equal(atomic_load(&fake_so(fd)->so_watch.count), 1); /* polls left nothing */
    assert_int_equal(atomic_load(&fake_so(other)->so_watch.count), 1);
    weir_close(fd);
    weir_close(other);
    weir_close(ep);
}

static void test_many_idle(void **state)
{
    static int fds[2000];
    int ep = weir_epoll_create(0);

    (void)state;
    for (size_t i = 0; i < NELEM(fds); i++) {
        fds[i] = fake_connected(true);
        add(ep, fds[i], EPOLLIN);
    }
    for (int i = 0; i < 1000; i++) {
        int fd = fds[i * 7 % 2000];
        char b;
        fake_data(fd, "x", 1);
        assert_int_equal(WAIT(ep), 1);
        assert_int_equal(out[0].data.fd, fd);
        weir_recv(fd, &b, 1, 0);
    }
    for (size_t i = 0; i < NELEM(fds); i += 2)
        weir_close(fds[i]);
    weir_close(ep); /* with 1,000 in it */
    for (size_t i = 1; i < NELEM(fds); i += 2)
        weir_close(fds[i]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_ctl_errors), T(test_level_and_edge),   T(test_edge_out),
        T(test_oneshot),    T(test_accept_events),    T(test_maxevents_and_order),
        T(test_nested),     T(test_two_look_at_once), T(test_timeouts),
        T(test_blocking),   T(test_many_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
