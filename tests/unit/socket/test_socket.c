/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: sockets are made, deferred, dropped and freed exactly once, in every order of application
 * and protocol. Bound: single thread; 5,000 sockets. */
#include "fake.h"

static void test_create_errors(void **state)
{
    const struct {
        int domain, type, protocol, error;
    } rows[] = {
        {AF_INET, SOCK_STREAM, IPPROTO_UDP, EPROTONOSUPPORT},
        {AF_INET, SOCK_STREAM, 300, EINVAL},
        {AF_INET, SOCK_STREAM, -1, EINVAL},
        {AF_INET, 0, 0, ESOCKTNOSUPPORT},
        {AF_INET, SOCK_SEQPACKET, 0, ESOCKTNOSUPPORT},
        {AF_INET, SOCK_RDM, 0, ESOCKTNOSUPPORT},
        {99, SOCK_STREAM, 0, EAFNOSUPPORT},
        {AF_INET, SOCK_STREAM | 0x10000, 0, EINVAL},
        {AF_INET, SOCK_DGRAM, IPPROTO_TCP, EPROTONOSUPPORT},
        {AF_INET, 15, 0, EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < NELEM(rows); i++)
        assert_errno(weir_socket(fake.s, rows[i].domain, rows[i].type, rows[i].protocol),
                     rows[i].error);
    fake.attach_error = -ENOBUFS;
    assert_errno(weir_socket(fake.s, AF_INET, SOCK_STREAM, 0), ENOBUFS);
    fake.attach_error = 0;
    fake.s->knobs.kern_maxsockets = 1;
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
    assert_errno(weir_socket(fake.s, AF_INET, SOCK_STREAM, 0), EMFILE);
    weir_close(fd);
    fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
    assert_true(fd > 0);
    weir_close(fd);
}

/* Every allocation of the calls that allocate may fail; nothing is left behind. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (int n = 1; n < 12; n++) {
        fake.fail_alloc = n;
        int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0);
        int ep = weir_epoll_create(0);
        struct epoll_event ev = {.events = EPOLLIN};
        if (fd > 0 && ep > 0)
            (void)!weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        fake.fail_alloc = 0;
        if (fd > 0)
            weir_close(fd);
        else if (ep < 0)
            assert_int_equal(errno, ENOMEM);
        if (ep > 0)
            weir_close(ep);
    }
}

static void test_last_drop_detaches(void **state)
{
    int fd = fake_connected(true);
    struct socket *so = fake_so(fd);

    (void)state;
    so_hold(so); /* a running call */
    weir_close(fd);
    assert_int_equal(fake.detached, 0);
    so_drop(so);
    assert_int_equal(fake.detached, 1);
}

static void test_protocol_outlives(void **state)
{
    int fd = fake_connected(true);
    struct socket *so = fake_so(fd);

    (void)state;
    fake.keep_pcb = true;
    weir_close(fd);
    assert_int_equal(fake.detached, 1);
    assert_true(so_state(so) & SS_NOHANDLE);
    AS_OWNER({
        so->so_pcb = NULL;
        so_protocol_done(so); /* frees it: the leak checker looks */
    });
}

static void test_protocol_ends_first(void **state)
{
    int fd = fake_connected(true);
    struct socket *so = fake_so(fd);
    char b;

    (void)state;
    AS_OWNER({
        so->so_pcb = NULL;
        so_protocol_done(so);
    });
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    assert_int_equal(weir_recv(fd, &b, 1, 0), 0);
    assert_errno(weir_send(fd, &b, 1, 0), EPIPE);
    weir_close(fd);
    assert_int_equal(fake.detached, 0); /* there was nothing to detach */
}

/* Work left while another owns the stack is run once, when it lets go; a close among it frees the
 * socket. */
static void test_deferred(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    assert_int_equal(owner_acquire(fake.s), 0);
    assert_int_equal(weir_send(fd, "x", 1, 0), 1);
    assert_int_equal(weir_send(fd, "y", 1, 0), 1);
    assert_int_equal(fake.sends, 0);
    weir_close(fd);
    assert_int_equal(fake.detached, 0);
    fake.s->now = fake.now_ns;
    stack_leave(fake.s);
    assert_int_equal(fake.sends, 1);
    assert_int_equal(fake.detached, 1);
    assert_errno(weir_send(fd, "x", 1, 0), EBADF);
}

/* A call that needs an answer made by the owner itself (a signal handler) is refused. */
static void test_reentry(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    assert_int_equal(owner_acquire(fake.s), 0);
    assert_errno(weir_shutdown(fd, SHUT_WR), EDEADLK);
    stack_leave(fake.s);
    weir_close(fd);
}

/* case: FUN-046 */
static void test_listener_closes(void **state)
{
    int l = fake_listener(true, 10);

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_non_null(fake_child(l));
    int s = weir_accept(l, NULL, NULL);
    weir_close(l);
    assert_int_equal(fake.aborts, 4);
    assert_int_equal(fake_poll(s), POLLOUT); /* the accepted one lives */
    weir_close(s);
}

static void test_accept_queue(void **state)
{
    int l = fake_listener(true, 2), fds[3];

    (void)state;
    for (int i = 0; i < 3; i++) /* backlog + 1, as on Linux */
        assert_non_null(fake_child(l));
    assert_true(so_accept_full(fake_so(l)));
    assert_null(fake_child(l));
    for (int i = 0; i < 3; i++)
        assert_true((fds[i] = weir_accept(l, NULL, NULL)) > 0);
    assert_errno(weir_accept(l, NULL, NULL), EAGAIN);
    for (int i = 0; i < 3; i++)
        weir_close(fds[i]);
    weir_close(l);
}

/* A child that dies before it was shown to its listener, and one that dies in the queue. */
static void test_child_dies(void **state)
{
    int l = fake_listener(true, 2);
    char b;

    (void)state;
    AS_OWNER({
        struct socket *child = so_newconn(fake_so(l));
        child->so_pcb = NULL;
        so_protocol_done(child);
    });
    struct socket *child = fake_child(l);
    AS_OWNER({
        so_error_set(child, ECONNRESET);
        child->so_pcb = NULL;
        so_protocol_done(child);
    });
    int s = weir_accept(l, NULL, NULL); /* still handed out */
    assert_errno(weir_recv(s, &b, 1, 0), ECONNRESET);
    weir_close(s);
    weir_close(l);
}

static void test_inherit(void **state)
{
    int l = fake_listener(true, 2), v = 12345, on = 1;
    socklen_t len = sizeof v;

    (void)state;
    weir_setsockopt(l, SOL_SOCKET, SO_RCVBUF, &v, sizeof v);
    weir_setsockopt(l, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    v = 17;
    weir_setsockopt(l, IPPROTO_IP, IP_TTL, &v, sizeof v);
    fake_child(l);
    int s = weir_accept(l, NULL, NULL);
    assert_int_equal(weir_fcntl(s, F_GETFL, 0), O_RDWR); /* O_NONBLOCK is not */
    weir_getsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, &len);
    assert_int_equal(v, 12345);
    weir_getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &v, &len);
    assert_int_equal(v, 1);
    weir_getsockopt(s, IPPROTO_IP, IP_TTL, &v, &len);
    assert_int_equal(v, 17);
    weir_close(s);
    weir_close(l);
}

static void count(struct socket *so, void *ctx)
{
    (void)so;
    ++*(int *)ctx;
}

static void test_many(void **state)
{
    static int fds[5000];
    int n = 0;

    (void)state;
    for (size_t i = 0; i < NELEM(fds); i++)
        assert_true((fds[i] = weir_socket(fake.s, AF_INET, SOCK_DGRAM, 0)) > 0);
    for (size_t i = 0; i < NELEM(fds); i += 2)
        weir_close(fds[i]);
    AS_OWNER(so_foreach(fake.s, count, &n));
    assert_int_equal(n, NELEM(fds) / 2);
    for (size_t i = 0; i < NELEM(fds); i += 2)
        assert_true((fds[i] = weir_socket(fake.s, AF_INET, SOCK_STREAM, 0)) > 0);
    for (size_t i = 0; i < NELEM(fds); i++)
        assert_int_equal(fake_so(fds[i])->so_type, i % 2 ? SOCK_DGRAM : SOCK_STREAM);
    for (size_t i = 0; i < NELEM(fds); i++)
        weir_close(fds[i]);
}

/* The end of a stack takes its sockets along; their descriptors, and the sets they were in, know.
 */
static void test_stack_ends(void **state)
{
    int fd = fake_connected(true), l = fake_listener(true, 3), ep = weir_epoll_create(0);
    struct epoll_event ev = {.events = EPOLLIN};

    (void)state;
    fake_child(l);
    fake_data(fd, "x", 1);
    weir_send(fd, "y", 1, 0);
    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
    assert_int_equal(owner_acquire(fake.s), 0);
    so_table_fini(fake.s);
    assert_int_equal(so_table_init(fake.s), 0);
    stack_leave(fake.s);
    assert_errno(weir_send(fd, "x", 1, 0), EBADF);
    assert_errno(weir_close(l), EBADF);
    assert_int_equal(weir_epoll_wait(ep, &ev, 1, 0), 0);
    weir_close(ep);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_create_errors),
        T(test_out_of_memory),
        T(test_last_drop_detaches),
        T(test_protocol_outlives),
        T(test_protocol_ends_first),
        T(test_deferred),
        T(test_reentry),
        T(test_listener_closes),
        T(test_accept_queue),
        T(test_child_dies),
        T(test_inherit),
        T(test_many),
        T(test_stack_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
