/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: send takes what there is room for, waits and reports as Linux does, and tells the protocol.
 * Bound: no threads, virtual time. */
#include "fake.h"

static char big[1 << 20];

static void test_simple(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    assert_int_equal(weir_send(fd, "hello", 5, 0), 5);
    assert_int_equal(fake.sends, 1);
    assert_int_equal(weir_send(fd, "x", 1, MSG_MORE), 1);
    assert_true(fake.more_seen);
    assert_int_equal(weir_write(fd, "y", 1), 1);
    assert_false(fake.more_seen);
    assert_int_equal(weir_send(fd, "", 0, 0), 0);
    assert_int_equal(sockbuf_used(&fake_so(fd)->so_snd), 7);
    assert_int_equal(weir_send(fd, "abX", 3, MSG_OOB), 3);
    assert_true(fake.oob_seen);
    assert_false(fake_so(fd)->so_sndflags & SO_SND_OOB);
    assert_errno(weir_send(fd, "x", 1, MSG_FASTOPEN), EOPNOTSUPP);
    weir_close(fd);
}

static void test_nonblocking_fills(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    assert_int_equal(weir_send(fd, big, sizeof big, 0), 32768);
    assert_errno(weir_send(fd, big, 1, 0), EAGAIN);
    assert_int_equal(fake_so(fd)->so_nospace, 1);
    fake_acked(fd, 100);
    assert_int_equal(weir_send(fd, big, sizeof big, 0), 100);
    weir_close(fd);
}

static int drain_fd;

static int drain(const struct port_wait *w)
{
    (void)w;
    fake_acked(drain_fd, sockbuf_used(&fake_so(drain_fd)->so_snd));
    return 0;
}

static void test_blocking_returns_all(void **state)
{
    int fd = drain_fd = fake_connected(false);

    (void)state;
    fake.on_wait = drain;
    assert_int_equal(weir_send(fd, big, sizeof big, 0), sizeof big);
    assert_true(fake.waits >= 31);
    weir_close(fd);
}

/* case: FUN-128 */
static void test_sndtimeo(void **state)
{
    struct iovec iov[3] = {{big, 30000}, {big, 0}, {big, sizeof big}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};

    (void)state;
    for (int call = 0; call < 3; call++) {
        for (int nonblock = 0; nonblock < 2; nonblock++) { /* which has no time to wait */
            int fd = fake_connected(nonblock);
            struct timeval tv = {1, 500000};
            weir_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
            for (int again = 0; again < 2; again++) {
                uint64_t t = fake.now_ns;
                ssize_t n = call == 0   ? weir_send(fd, big, sizeof big, 0)
                            : call == 1 ? weir_writev(fd, iov, 3)
                                        : weir_sendmsg(fd, &msg, 0);
                assert_int_equal(n, again ? -1 : 32768);
                assert_true(!again || errno == EAGAIN);
                assert_int_equal(fake.now_ns - t, nonblock ? 0 : NS_PER_S * 3 / 2);
            }
            weir_close(fd);
        }
    }
}

static int reset_fd;

static int reset(const struct port_wait *w)
{
    (void)w;
    fake_rst(reset_fd, ECONNRESET);
    return 0;
}

/* What was taken before an error is told first, the error by the next call. */
static void test_partial_then_error(void **state)
{
    int fd = reset_fd = fake_connected(false);

    (void)state;
    fake.on_wait = reset;
    assert_int_equal(weir_send(fd, big, sizeof big, 0), 32768);
    assert_errno(weir_send(fd, big, 1, 0), ECONNRESET);
    assert_errno(weir_send(fd, big, 1, 0), EPIPE);
    weir_close(fd);
}

static int connect_fd;

static int complete(const struct port_wait *w)
{
    (void)w;
    AS_OWNER(so_connected(fake_so(connect_fd)));
    return 0;
}

static void test_while_connecting(void **state)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    int fd = connect_fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_errno(weir_send(fd, "x", 1, 0), EPIPE); /* fresh */
    assert_errno(weir_send(fd, "", 0, 0), EPIPE);
    assert_errno(weir_connect(fd, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    assert_errno(weir_send(fd, "x", 1, 0), EAGAIN);
    weir_fcntl(fd, F_SETFL, 0);
    fake.on_wait = complete;
    assert_int_equal(weir_send(fd, "x", 1, 0), 1); /* waits for the connection */
    weir_close(fd);
}

static void test_no_buffers(void **state)
{
    int fd = fake_connected(false);

    (void)state;
    atomic_store(&fake.s->account->fail_after, 1);
    assert_errno(weir_send(fd, "x", 1, MSG_DONTWAIT), ENOBUFS);
    atomic_store(&fake.s->account->fail_after, 1);
    int waits = fake.waits;
    assert_int_equal(weir_send(fd, "x", 1, 0), 1); /* looks again a little later */
    assert_int_equal(fake.waits, waits + 1);

    /* The end of the memory is left to the stack's own packets. */
    struct mbuf_account *acct = fake.s->account;
    struct mbuf *held = mbuf_get_size(acct, BIGCLUSTER_64K);
    assert_non_null(held);
    int64_t limit = atomic_load(&acct->limit);
    uint64_t denied = atomic_load(&acct->denied);
    mbuf_account_settle(acct);
    atomic_store(&acct->limit, atomic_load(&acct->bytes) + 2048);
    assert_errno(weir_send(fd, "x", 1, MSG_DONTWAIT), ENOBUFS);
    assert_int_equal(atomic_load(&acct->denied), denied + 1);
    struct mbuf *header = mbuf_get(acct);
    assert_non_null(header);
    mbuf_free_chain(&header);
    atomic_store(&acct->limit, limit);
    mbuf_free_chain(&held);
    assert_int_equal(weir_send(fd, "x", 1, MSG_DONTWAIT), 1);
    weir_close(fd);
}

static void test_datagram(void **state)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    int fd = weir_socket(fake.s, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_errno(weir_send(fd, "x", 1, 0), EDESTADDRREQ);
    assert_int_equal(weir_sendto(fd, big, 65507, 0, (struct sockaddr *)&a, sizeof a), 65507);
    assert_int_equal(weir_sendto(fd, big, 0, 0, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fake.sends, 2);
    assert_errno(weir_sendto(fd, big, 65536, 0, (struct sockaddr *)&a, sizeof a), EMSGSIZE);
    fake.sent_errno = EMSGSIZE; /* the protocol's answer is the call's */
    assert_errno(weir_sendto(fd, big, 65508, 0, (struct sockaddr *)&a, sizeof a), EMSGSIZE);
    fake.sent_errno = 0;
    assert_int_equal(fake_so_error(fd), 0);
    assert_errno(weir_sendto(fd, "x", 1, 0, (struct sockaddr *)&a, 8), EINVAL);
    assert_errno(weir_sendto(fd, "x", 1, MSG_OOB, (struct sockaddr *)&a, sizeof a), EOPNOTSUPP);
    a.sin_family = AF_UNSPEC; /* taken for AF_INET */
    assert_int_equal(weir_sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof a), 1);
    a.sin_family = 77;
    assert_errno(weir_sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof a), EAFNOSUPPORT);
    a.sin_family = AF_INET;
    a.sin_port = 0;
    assert_errno(weir_sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof a), EINVAL);
    weir_close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_simple),     T(test_nonblocking_fills),  T(test_blocking_returns_all),
        T(test_sndtimeo),   T(test_partial_then_error), T(test_while_connecting),
        T(test_no_buffers), T(test_datagram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
