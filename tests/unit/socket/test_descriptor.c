/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a descriptor names one object for its life only; close never pulls the object from under a
 * running call. Bound: 100,000 opens and closes, single thread. */
#include "fake.h"

static void test_numbers(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
    const int wrong[] = {-1,        0,        1, DESC_MAX - 1, fd + 1, fd + DESC_MAX, fd - DESC_MAX,
                         INT32_MAX, INT32_MIN};

    (void)state;
    assert_true(fd >= (int)DESC_MAX); /* never a number that the kernel gives */
    for (size_t i = 0; i < NELEM(wrong); i++)
        assert_errno(weir_close(wrong[i]), EBADF);
    assert_int_equal(weir_close(fd), 0);
    assert_errno(weir_close(fd), EBADF);
}

/* case: FUN-125 */
static void test_close_in_use(void **state)
{
    int fd = fake_connected(true);
    struct desc_ref r;

    (void)state;
    assert_true(desc_get(fd, &r)); /* a blocked call */
    struct socket *so = r.so;
    assert_int_equal(weir_close(fd), 0);
    assert_errno(weir_close(fd), EBADF);
    assert_errno(weir_send(fd, "x", 1, 0), EBADF);
    assert_int_equal(fake.detached, 0); /* nothing is sent while it runs */
    int other = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
    assert_int_not_equal(other & (DESC_MAX - 1), fd & (DESC_MAX - 1)); /* the slot is not free */
    assert_ptr_equal(r.so, so);
    assert_true(desc_put(&r));
    assert_int_equal(fake.detached, 1);
    weir_close(other);
}

static void test_no_early_reuse(void **state)
{
    int first = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);

    (void)state;
    weir_close(first);
    for (int i = 0; i < 100000; i++) {
        int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
        assert_int_not_equal(fd, first);
        assert_errno(weir_recv(first, NULL, 0, 0), EBADF);
        weir_close(fd);
    }
}

static void test_kinds(void **state)
{
    int ep = weir_epoll_create(EPOLL_CLOEXEC);
    struct sockaddr_in a = {.sin_family = AF_INET};
    char b;

    (void)state;
    assert_errno(weir_read(ep, &b, 1), EINVAL);
    assert_errno(weir_write(ep, &b, 1), EINVAL);
    assert_errno(weir_recv(ep, &b, 1, 0), ENOTSOCK);
    assert_errno(weir_bind(ep, (struct sockaddr *)&a, sizeof a), ENOTSOCK);
    assert_int_equal(weir_fcntl(ep, F_GETFL, 0), O_RDWR);
    assert_errno(weir_epoll_create(5), EINVAL);
    weir_close(ep);
}

static void test_fcntl_ioctl(void **state)
{
    int fd = fake_connected(false), v = 1;

    (void)state;
    assert_int_equal(weir_fcntl(fd, F_GETFL, 0), O_RDWR);
    assert_int_equal(weir_ioctl(fd, 0x5421 /* FIONBIO */, &v), 0);
    assert_int_equal(weir_fcntl(fd, F_GETFL, 0), O_RDWR | O_NONBLOCK);
    assert_int_equal(weir_fcntl(fd, F_GETFD, 0), 0);
    assert_int_equal(weir_fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(weir_fcntl(fd, F_GETFD, 0), FD_CLOEXEC);
    assert_errno(weir_fcntl(fd, 99, 0), EINVAL);
    weir_send(fd, "abc", 3, 0);
    assert_int_equal(weir_ioctl(fd, 0x5411 /* SIOCOUTQ */, &v), 0);
    assert_int_equal(v, 3);
    assert_errno(weir_ioctl(fd, 0x1234, &v), ENOTTY);
    weir_close(fd);
    fd = fake_listener(true, 1);
    assert_errno(weir_ioctl(fd, 0x541B /* FIONREAD */, &v), EINVAL);
    weir_close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_numbers), T(test_close_in_use), T(test_no_early_reuse),
        T(test_kinds),   T(test_fcntl_ioctl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
