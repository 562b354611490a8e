/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: connect, accept, listen, shutdown and close answer in each state as measured on Linux.
 * Bound: virtual time. */
#include "fake.h"

static struct sockaddr_in peer = {.sin_family = AF_INET};
static const struct sockaddr unspec = {.sa_family = AF_UNSPEC};
#define CONNECT(fd) weir_connect(fd, (struct sockaddr *)&peer, sizeof peer)
#define UNSPEC(fd) weir_connect(fd, &unspec, sizeof unspec)

static int fresh(bool nonblock)
{
    peer.sin_port = htons(80);
    peer.sin_addr.s_addr = htonl(0x0a000002);
    return weir_socket(fake.s, AF_INET, SOCK_STREAM | (nonblock ? SOCK_NONBLOCK : 0), 0);
}

/* case: FUN-106 */
/* case: FUN-107 */
static void test_refused(void **state)
{
    int fd = fresh(true);
    char b[4];

    (void)state;
    assert_errno(CONNECT(fd), EINPROGRESS);
    assert_errno(CONNECT(fd), EALREADY);
    assert_int_equal(fake_so_error(fd), 0);
    fake_rst(fd, ECONNREFUSED);
    assert_errno(CONNECT(fd), ECONNREFUSED);
    assert_int_equal(fake_poll(fd), POLLOUT | POLLHUP); /* as new */
    assert_errno(CONNECT(fd), EINPROGRESS);
    fake_rst(fd, ECONNREFUSED);
    assert_int_equal(fake_so_error(fd), ECONNREFUSED);
    assert_int_equal(fake_so_error(fd), 0);
    assert_errno(CONNECT(fd), ECONNABORTED);
    assert_errno(CONNECT(fd), EINPROGRESS);
    fake_rst(fd, ECONNREFUSED);
    assert_errno(weir_recv(fd, b, 1, 0), ECONNREFUSED);
    assert_int_equal(weir_recv(fd, b, 1, 0), 0);
    assert_errno(weir_send(fd, b, 1, 0), EPIPE);
    assert_errno(weir_listen(fd, 1), EINVAL);
    assert_errno(weir_shutdown(fd, SHUT_RDWR), ENOTCONN);
    weir_close(fd);
}

/* case: FUN-071 */
static void test_states(void **state)
{
    int fd = fake_connected(true), l, s;
    char b[4];
    struct sockaddr_in a;
    socklen_t len = sizeof a;

    (void)state;
    assert_errno(CONNECT(fd), EISCONN);
    assert_errno(weir_listen(fd, 1), EINVAL); /* listen on connected */
    assert_errno(weir_bind(fd, (struct sockaddr *)&peer, sizeof peer), EINVAL);
    assert_errno(weir_accept(fd, NULL, NULL), EINVAL); /* accept on non-listener */
    weir_close(fd);

    l = fake_listener(true, 5);
    assert_int_equal(weir_listen(l, 6), 0); /* listen twice */
    assert_errno(CONNECT(l), EISCONN);
    assert_errno(weir_accept(l, NULL, NULL), EAGAIN);
    assert_errno(weir_accept4(l, NULL, NULL, 0x40), EINVAL);
    fake_child(l);
    s = weir_accept4(l, (struct sockaddr *)&a, &len, SOCK_NONBLOCK);
    assert_true(s > 0);
    assert_int_equal(ntohs(a.sin_port), 1234);
    assert_int_equal(len, sizeof a);
    assert_int_equal(weir_fcntl(s, F_GETFL, 0), O_RDWR | O_NONBLOCK);
    assert_errno(CONNECT(s), EISCONN); /* connect on accepted */
    weir_shutdown(s, SHUT_RDWR);
    assert_errno(weir_listen(s, 1), EINVAL); /* listen after shutdown */
    weir_close(s);
    assert_int_equal(weir_shutdown(l, SHUT_WR), 0); /* nothing happens */
    assert_int_equal(fake_poll(l), 0);
    assert_int_equal(weir_shutdown(l, SHUT_RD), 0);
    assert_errno(weir_accept(l, NULL, NULL), EINVAL);
    assert_int_equal(fake_poll(l), POLLOUT | POLLHUP);
    assert_errno(weir_shutdown(l, SHUT_RDWR), ENOTCONN);
    assert_int_equal(weir_listen(l, 3), 0); /* again */
    assert_int_equal(fake_poll(l), 0);
    assert_int_equal(UNSPEC(l), 0);
    assert_int_equal(fake_poll(l), POLLOUT | POLLHUP);
    weir_close(l);

    fd = fresh(true); /* shutdown on a fresh socket */
    assert_errno(weir_shutdown(fd, 3), EINVAL);
    assert_errno(weir_shutdown(fd, SHUT_RD), ENOTCONN);
    assert_int_equal(weir_recv(fd, b, 1, 0), 0);
    assert_errno(weir_send(fd, b, 1, 0), EPIPE);
    weir_close(fd);

    fd = fresh(true); /* after a reset: the state of the second connect */
    assert_errno(CONNECT(fd), EINPROGRESS);
    AS_OWNER(so_connected(fake_so(fd)));
    fake_rst(fd, ECONNRESET);
    assert_errno(weir_recv(fd, b, 1, 0), ECONNRESET);
    assert_errno(weir_shutdown(fd, SHUT_RDWR), ENOTCONN);
    assert_errno(CONNECT(fd), EINVAL);
    assert_int_equal(UNSPEC(fd), 0);
    assert_errno(CONNECT(fd), EINPROGRESS);
    weir_close(fd);
}

/* case: FUN-130 */
static void test_unspec(void **state)
{
    int fd = fake_connected(true);
    char b[100];

    (void)state;
    fake_data(fd, b, 50);
    assert_int_equal(UNSPEC(fd), 0);
    assert_int_equal(fake.disconnects, 1);
    assert_int_equal(fake_so_error(fd), ECONNRESET);
    assert_int_equal(fake_poll(fd), POLLOUT | POLLHUP);
    assert_errno(weir_recv(fd, b, 1, 0), ENOTCONN);
    assert_errno(weir_send(fd, b, 1, 0), EPIPE);
    assert_errno(CONNECT(fd), EINPROGRESS);
    AS_OWNER(so_connected(fake_so(fd)));
    assert_int_equal(CONNECT(fd), 0);
    assert_int_equal(fake_poll(fd), POLLOUT);
    weir_close(fd);
}

static int act_fd, act_step;

static int act(const struct port_wait *w)
{
    (void)w;
    switch (act_step) {
    case 0:
        AS_OWNER(so_connected(fake_so(act_fd)));
        return 0;
    case 1:
        fake_rst(act_fd, ETIMEDOUT);
        return 0;
    case 2:
        return -EINTR;
    case 3:
        assert_int_equal(weir_shutdown(act_fd, SHUT_RDWR), 0);
        return 0;
    case 4:
        fake_child(act_fd);
        return 0;
    default:
        return -ETIMEDOUT;
    }
}

/* case: FUN-104 */
static void test_blocking(void **state)
{
    char b[4];
    int fd;

    (void)state;
    fake.on_wait = act;
    for (act_step = 0; act_step < 4; act_step++) {
        int expected[] = {0, ETIMEDOUT, EINTR, ECONNRESET};
        fd = act_fd = fresh(false);
        if (expected[act_step])
            assert_errno(CONNECT(fd), expected[act_step]);
        else
            assert_int_equal(CONNECT(fd), 0);
        weir_close(fd);
    }
    fd = act_fd = fresh(false); /* SO_SNDTIMEO */
    act_step = 9;
    assert_errno(CONNECT(fd), EINPROGRESS);
    assert_errno(CONNECT(fd), EALREADY);
    act_step = 1; /* recv during connect waits for the result */
    assert_errno(weir_recv(fd, b, 1, 0), ETIMEDOUT);
    weir_close(fd);

    fd = act_fd = fake_listener(false, 5);
    act_step = 4;
    int s = weir_accept(fd, NULL, NULL);
    assert_true(s > 0);
    assert_int_equal(weir_fcntl(s, F_GETFL, 0), O_RDWR);
    weir_close(s);
    act_step = 3; /* accept is woken by shutdown of the listener */
    assert_errno(weir_accept(fd, NULL, NULL), EINVAL);
    weir_close(fd);
}

static void test_addresses(void **state)
{
    int fd = fresh(true);
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(5)};
    struct sockaddr_storage ss;

    (void)state;
    assert_errno(weir_bind(fd, (struct sockaddr *)&peer, 4), EINVAL);
    assert_int_equal(weir_bind(fd, &unspec, 16), 0); /* stands for INADDR_ANY */
    assert_errno(weir_bind(fd, &unspec, 16), EINVAL);
    peer.sin_family = 99;
    assert_errno(weir_bind(fd, (struct sockaddr *)&peer, sizeof peer), EAFNOSUPPORT);
    assert_errno(CONNECT(fd), EAFNOSUPPORT);
    peer.sin_family = AF_INET;
    assert_errno(weir_connect(fd, (struct sockaddr *)&peer, 1), EINVAL);
    assert_errno(weir_connect(fd, (struct sockaddr *)&peer, 8), EINVAL);
    /* case: FUN-121 */
    for (socklen_t room = 0; room <= 28; room += 4) {
        socklen_t len = room;
        memset(&ss, 0xee, sizeof ss);
        assert_int_equal(weir_getsockname(fd, (struct sockaddr *)&ss, &len), 0);
        assert_int_equal(len, sizeof(struct sockaddr_in));
        for (size_t i = MIN(room, len); i < sizeof ss; i++)
            assert_int_equal(((uint8_t *)&ss)[i], 0xee);
    }
    socklen_t len = sizeof ss;
    assert_errno(weir_getpeername(fd, (struct sockaddr *)&ss, &len), ENOTCONN);
    weir_close(fd);

    fd = weir_socket(fake.s, AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_errno(weir_bind(fd, (struct sockaddr *)&peer, sizeof peer),
                 EINVAL);                                           /* too short first */
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&a6, 24), 0); /* RFC 2133's */
    len = sizeof ss;
    assert_int_equal(weir_getsockname(fd, (struct sockaddr *)&ss, &len), 0);
    assert_int_equal(len, sizeof a6);
    weir_close(fd);
}

/* case: FUN-127 */
static void test_mapped(void **state)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(5)};
    int fd, on = 1;
    socklen_t len = sizeof a6;
    struct sockaddr_in6 out;

    (void)state;
    inet_pton(AF_INET6, "::ffff:10.0.0.2", &a6.sin6_addr);
    fd = weir_socket(fake.s, AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
    assert_errno(weir_bind(fd, (struct sockaddr *)&a6, sizeof a6), EINVAL);
    assert_errno(weir_connect(fd, (struct sockaddr *)&a6, sizeof a6), ENETUNREACH);
    on = 0;
    assert_int_equal(weir_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
    assert_int_equal(weir_bind(fd, (struct sockaddr *)&a6, sizeof a6), 0);
    assert_int_equal(weir_getsockname(fd, (struct sockaddr *)&out, &len), 0);
    assert_memory_equal(&out, &a6, sizeof a6); /* shown as ::ffff:10.0.0.2 */
    assert_errno(weir_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), EINVAL);
    weir_close(fd);
}

static int lingered;

static int ack_all(const struct port_wait *w)
{
    (void)w;
    lingered++;
    if (fake.shutdown_how != SHUT_WR)
        fail_msg("no FIN was asked for");
    AS_OWNER({
        if (lingered == 1) {
            sockbuf_drop(&fake.last->so_snd, sockbuf_used(&fake.last->so_snd));
            so_writable(fake.last);
        } else {
            so_fin_acked(fake.last);
        }
    });
    return 0;
}

static void test_linger(void **state)
{
    int fd = fake_connected(true);
    struct linger lg = {1, 5};

    (void)state;
    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof lg), 0);
    weir_send(fd, "data", 4, 0);
    fake.on_wait = ack_all;
    assert_int_equal(weir_close(fd), 0);
    assert_int_equal(lingered, 2); /* for the data, for the FIN */
    fake.on_wait = NULL;           /* not acknowledged: until the time is over */
    fd = fake_connected(true);
    weir_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof lg);
    weir_send(fd, "data", 4, 0);
    uint64_t t = fake.now_ns;
    assert_int_equal(weir_close(fd), 0);
    assert_int_equal(fake.now_ns - t, 5 * NS_PER_S);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_refused),   T(test_states), T(test_unspec), T(test_blocking),
        T(test_addresses), T(test_mapped), T(test_linger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
