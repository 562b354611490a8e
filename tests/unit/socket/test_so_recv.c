/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what recv delivers, and in which order data, errors and EOF come, is as measured on Linux,
 * whatever net.inet.tcp.soreceive_stream says; no byte is lost or doubled over random reads.
 * Bound: 20,000 random operations for each of its values, no threads. */
#include "fake.h"

static char buf[4096];

/* case: FUN-043 */
static void test_data_before_reset(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    fake_data(fd, buf, 100);
    fake_rst(fd, ECONNRESET);
    assert_int_equal(weir_recv(fd, buf, sizeof buf, 0), 100);
    assert_errno(weir_recv(fd, buf, sizeof buf, 0), ECONNRESET);
    assert_int_equal(weir_recv(fd, buf, sizeof buf, 0), 0);
    assert_errno(weir_send(fd, "x", 1, 0), EPIPE);
    assert_int_equal(fake_so_error(fd), 0);
    weir_close(fd);
}

/* case: FUN-044 */
static void test_reset_told_once(void **state)
{
    (void)state;
    for (int first = 0; first < 3; first++) {
        int fd = fake_connected(true);
        fake_rst(fd, ECONNRESET);
        if (first == 0)
            assert_errno(weir_recv(fd, buf, 1, 0), ECONNRESET);
        else if (first == 1)
            assert_errno(weir_send(fd, "x", 1, 0), ECONNRESET);
        else
            assert_int_equal(fake_so_error(fd), ECONNRESET);
        assert_int_equal(weir_recv(fd, buf, 1, 0), 0);
        assert_errno(weir_send(fd, "x", 1, 0), EPIPE);
        assert_int_equal(fake_so_error(fd), 0);
        assert_int_equal(weir_recv(fd, buf, 1, 0), 0);
        weir_close(fd);
    }
}

/* After the peer's FIN a reset does not disturb recv's EOF; SO_ERROR or send tells it. */
static void test_fin_then_reset(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    fake_fin(fd);
    fake_rst(fd, ECONNRESET);
    assert_int_equal(weir_recv(fd, buf, 5, 0), 0);
    assert_int_equal(fake_so_error(fd), EPIPE); /* as the peer had ended first */
    assert_int_equal(weir_recv(fd, buf, 5, 0), 0);
    weir_close(fd);
}

static void test_fresh_and_listening(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_errno(weir_recv(fd, buf, 1, 0), ENOTCONN);
    assert_errno(weir_recv(fd, buf, 0, 0), ENOTCONN);
    assert_errno(weir_recv(fd, buf, 1, MSG_OOB), EINVAL);
    assert_errno(weir_recv(fd, buf, 1, MSG_ERRQUEUE), EAGAIN);
    weir_close(fd);
    fd = fake_listener(true, 1);
    assert_errno(weir_recv(fd, buf, 1, 0), ENOTCONN);
    assert_errno(weir_send(fd, buf, 1, 0), EPIPE);
    weir_close(fd);
}

/* case: FUN-109 */
static void test_peek(void **state)
{
    int fd = fake_connected(false);

    (void)state;
    assert_errno(weir_recv(fd, buf, 5, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    fake_data(fd, "hello", 5);
    fake_data(fd, "world", 5);
    assert_int_equal(weir_recv(fd, buf, 0, MSG_PEEK), 0);
    assert_int_equal(weir_recv(fd, buf, 1, MSG_PEEK), 1);
    assert_int_equal(weir_recv(fd, buf, 100, MSG_PEEK), 10);
    assert_memory_equal(buf, "helloworld", 10);
    assert_int_equal(weir_recv(fd, buf, 10, MSG_PEEK | MSG_WAITALL), 10);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 10);
    assert_memory_equal(buf, "helloworld", 10);
    assert_errno(weir_recv(fd, buf, 1, MSG_DONTWAIT), EAGAIN);
    weir_close(fd);
}

static int wait_fd, wait_step;

static int arrive_then(const struct port_wait *w)
{
    (void)w;
    switch (wait_step++) {
    case 0:
        fake_data(wait_fd, buf, 600);
        return 0;
    case 1:
        return -ETIMEDOUT;
    case 10:
        fake_data(wait_fd, buf, 600);
        return 0;
    case 11:
        fake_fin(wait_fd);
        return 0;
    case 20:
        fake_data(wait_fd, buf, 600);
        return 0;
    case 21:
        fake_rst(wait_fd, ECONNRESET);
        return 0;
    case 30:
        fake_data(wait_fd, buf, 600);
        return 0;
    default:
        return -EINTR;
    }
}

/* case: FUN-110 */
static void test_waitall_partial(void **state)
{
    int fd = wait_fd = fake_connected(false);

    (void)state;
    fake.on_wait = arrive_then;
    wait_step = 0; /* timeout partway */
    assert_int_equal(weir_recv(fd, buf, 1000, MSG_WAITALL), 600);
    wait_step = 1;
    assert_errno(weir_recv(fd, buf, 1000, MSG_WAITALL), EAGAIN);
    wait_step = 30; /* signal partway */
    assert_int_equal(weir_recv(fd, buf, 1000, MSG_WAITALL), 600);
    assert_errno(weir_recv(fd, buf, 1000, MSG_WAITALL), EINTR);
    wait_step = 10; /* FIN partway */
    assert_int_equal(weir_recv(fd, buf, 1000, MSG_WAITALL), 600);
    assert_int_equal(weir_recv(fd, buf, 1000, MSG_WAITALL), 0);
    weir_close(fd);
    fd = wait_fd = fake_connected(false);
    wait_step = 20; /* reset partway */
    assert_int_equal(weir_recv(fd, buf, 1000, MSG_WAITALL), 600);
    assert_errno(weir_recv(fd, buf, 1000, MSG_WAITALL), ECONNRESET);
    weir_close(fd);
    /* OOB partway: stops at the mark */
    fd = wait_fd = fake_connected(false);
    fake_data(fd, "abc", 3);
    AS_OWNER(so_oob_arrived(fake_so(fd), 'Z', true, 0));
    fake_data(fd, "defg", 4);
    int step = wait_step;
    assert_int_equal(weir_recv(fd, buf, 9, MSG_WAITALL), 3);
    assert_int_equal(wait_step, step); /* at once, for nothing more may ever come */
    assert_int_equal(weir_recv(fd, buf, 4, MSG_WAITALL), 4);
    weir_close(fd);
}

/* SO_RCVTIMEO counts from the call's first wait and is not started anew by data. */
static void test_rcvtimeo(void **state)
{
    int fd = fake_connected(false);
    struct timeval tv = {1, 500000}, back = {0, 0};
    socklen_t len = sizeof back;

    (void)state;
    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv), 0);
    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len), 0);
    assert_int_equal(back.tv_sec * 1000000 + back.tv_usec, 1500000);
    uint64_t t = fake.now_ns;
    assert_errno(weir_recv(fd, buf, 1, 0), EAGAIN);
    assert_int_equal(fake.now_ns - t, 1500 * NS_PER_MS);
    weir_close(fd);
}

static void test_shut_rd(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    fake_data(fd, buf, 50);
    weir_shutdown(fd, SHUT_RD);
    assert_int_equal(weir_recv(fd, buf, 20, 0), 20);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 30);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 0);
    fake_data(fd, buf, 5); /* still delivered */
    assert_int_equal(weir_recv(fd, buf, 100, 0), 5);
    weir_close(fd);
}

static void test_trunc_and_name(void **state)
{
    int fd = fake_connected(true);
    struct sockaddr_in from;
    socklen_t len = sizeof from;

    (void)state;
    fake_data(fd, "0123456789", 10);
    assert_int_equal(weir_recv(fd, NULL, 4, MSG_TRUNC), 4);
    assert_int_equal(weir_recvfrom(fd, buf, 2, 0, (struct sockaddr *)&from, &len), 2);
    assert_memory_equal(buf, "45", 2);
    assert_int_equal(len, 0); /* a stream names nobody */
    assert_int_equal(weir_read(fd, buf, 0), 0);
    weir_close(fd);
}

/* A burst of segments costs one wake-up of a sleeping reader, and of a set. */
static int burst_fd;

static int burst(const struct port_wait *w)
{
    for (int i = 0; i < 20; i++)
        fake_data(burst_fd, "0123456789", 10);
    return 0;
}

static void test_burst_wakes_once(void **state)
{
    int fd = burst_fd = fake_connected(false), ep = weir_epoll_create(0);
    struct epoll_event ev = {.events = EPOLLIN};

    fake.on_wait = burst;
    fake.wakes = 0;
    assert_int_equal(weir_recv(fd, buf, 1000, 0), 200);
    assert_int_equal(fake.wakes, 1);
    fake_data(fd, "x", 1); /* nobody sleeps */
    assert_int_equal(fake.wakes, 1);
    assert_int_equal(weir_recv(fd, buf, 1000, 0), 1);
    assert_int_equal(weir_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
    fake.wakes = 0;
    assert_int_equal(weir_epoll_wait(ep, &ev, 1, -1), 1);
    assert_int_equal(fake.wakes, 1);
    fake.on_wait = NULL;
    weir_close(ep);
    weir_close(fd);
}

static int at_mark(int fd)
{
    int v = -1;

    assert_int_equal(weir_ioctl(fd, 0x8905 /* SIOCATMARK */, &v), 0);
    return v;
}

static void test_urgent(void **state)
{
    int fd = fake_connected(true), n;

    (void)state;
    fake_data(fd, "abcdef", 6);
    AS_OWNER(so_oob_arrived(fake_so(fd), 'X', true, 0));
    fake_data(fd, "gh", 2);
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT | POLLPRI);
    assert_int_equal(weir_ioctl(fd, 0x541B /* FIONREAD */, &n), 0);
    assert_int_equal(n, 6);
    assert_int_equal(at_mark(fd), 0);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 6);
    assert_int_equal(at_mark(fd), 1);
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT | POLLPRI);
    assert_int_equal(weir_recv(fd, buf, 5, MSG_OOB | MSG_PEEK), 1);
    assert_int_equal(weir_recv(fd, buf, 5, MSG_OOB), 1);
    assert_int_equal(buf[0], 'X');
    assert_errno(weir_recv(fd, buf, 5, MSG_OOB), EINVAL);
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT);
    assert_int_equal(weir_recv(fd, buf, 100, MSG_PEEK), 2);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 2);
    assert_int_equal(at_mark(fd), 0);

    AS_OWNER(so_oob_arrived(fake_so(fd), 'Y', true, 0)); /* nothing else */
    assert_int_equal(fake_poll(fd), POLLOUT | POLLPRI);
    assert_errno(weir_recv(fd, buf, 5, 0), EAGAIN); /* goes past it */
    assert_errno(weir_recv(fd, buf, 5, MSG_OOB), EINVAL);

    AS_OWNER(so_oob_arrived(fake_so(fd), 0, false, 4)); /* announced only */
    assert_errno(weir_recv(fd, buf, 5, MSG_OOB), EAGAIN);
    weir_close(fd);

    fd = fake_connected(true);
    n = 1;
    weir_setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &n, sizeof n);
    fake_data(fd, "ab", 2);
    AS_OWNER(so_oob_arrived(fake_so(fd), 0, false, 1)); /* one byte after what is here */
    fake_data(fd, "cZgh", 4);
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT | POLLPRI);
    assert_errno(weir_recv(fd, buf, 9, MSG_OOB), EINVAL);
    assert_int_equal(weir_recv(fd, buf, 9, 0), 3);
    assert_int_equal(at_mark(fd), 1);
    assert_int_equal(fake_poll(fd), POLLIN | POLLOUT | POLLPRI);
    assert_int_equal(weir_recv(fd, buf, 9, 0), 3);
    assert_int_equal(fake_poll(fd), POLLOUT);
    weir_close(fd);
}

/* case: FUN-112 */
static void test_datagrams(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), n;
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    struct iovec iov[2] = {{buf, 2}, {buf + 2, 3}};
    char control[64];
    struct msghdr msg = {.msg_name = &from,
                         .msg_namelen = sizeof from,
                         .msg_iov = iov,
                         .msg_iovlen = 2,
                         .msg_control = control,
                         .msg_controllen = sizeof control};

    (void)state;
    assert_errno(weir_recv(fd, buf, 5, 0), EAGAIN);
    fake_datagram(fd, 1000, "0123456789", 10);
    fake_datagram(fd, 1001, "abc", 3);
    assert_int_equal(weir_ioctl(fd, 0x541B /* FIONREAD */, &n), 0);
    assert_int_equal(n, 10);
    assert_int_equal(weir_recvmsg(fd, &msg, MSG_PEEK), 5);
    assert_int_equal(msg.msg_flags, MSG_TRUNC);
    assert_int_equal(msg.msg_controllen, 0);
    assert_int_equal(weir_recv(fd, buf, 5, MSG_PEEK | MSG_TRUNC), 10);
    assert_int_equal(weir_recvfrom(fd, buf, 5, MSG_TRUNC, (struct sockaddr *)&from, &len), 10);
    assert_int_equal(len, sizeof from);
    assert_int_equal(ntohs(from.sin_port), 1000);
    assert_memory_equal(buf, "01234", 5);
    len = 4; /* truncated copy, true length */
    memset(&from, 0xee, sizeof from);
    assert_int_equal(weir_recvfrom(fd, buf, 5, 0, (struct sockaddr *)&from, &len), 3);
    assert_int_equal(len, sizeof from);
    assert_int_equal(ntohs(from.sin_port), 1001);
    assert_int_equal(((uint8_t *)&from)[4], 0xee);
    AS_OWNER(so_error_set(fake_so(fd), ECONNREFUSED)); /* an error comes before what waits */
    fake_datagram(fd, 1001, "abc", 3);
    assert_errno(weir_recv(fd, buf, 5, 0), ECONNREFUSED);
    assert_int_equal(weir_recv(fd, buf, 5, 0), 3);
    weir_close(fd);
}

/* The protocol hears of reads when they may matter for the window, not at each. */
static void test_notice(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    for (int i = 0; i < 100; i++) {
        fake_data(fd, "x", 1);
        assert_int_equal(weir_recv(fd, buf, 1, 0), 1);
    }
    assert_int_equal(fake.rcvds, 0);
    fake_data(fd, buf, sizeof buf);
    assert_int_equal(weir_recv(fd, buf, sizeof buf, 0), sizeof buf);
    assert_int_equal(fake.rcvds, 1);
    weir_close(fd);
}

static uint32_t rng_state;

static uint32_t rnd(uint32_t below)
{
    rng_state = rng_state * 1664525 + 1013904223;
    return (rng_state >> 8) % below;
}

static void test_random_stream(void **state)
{
    const char *seed = getenv("SEED");
    int fd = fake_connected(true);
    uint32_t in = 0, out = 0;
    uint8_t b[8192];

    (void)state;
    rng_state = seed ? (uint32_t)strtoul(seed, NULL, 0) : 12345;
    printf("seed %u\n", rng_state);
    for (int i = 0; i < 20000; i++) {
        uint32_t n = rnd(4) ? rnd(300) : rnd(sizeof b);
        if (rnd(2) && in - out < 60000) {
            for (uint32_t k = 0; k < n; k++)
                b[k] = (uint8_t)((in + k) * 2654435761u >> 24);
            if (n)
                fake_data(fd, b, n);
            in += n;
            continue;
        }
        int flags = rnd(3) == 0 ? MSG_PEEK : 0;
        struct iovec iov[3] = {{b, n / 3}, {b + n / 3, n / 3}, {b + n / 3 * 2, n - n / 3 * 2}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};
        ssize_t r = weir_recvmsg(fd, &msg, flags);
        if (r < 0) {
            assert_int_equal(in, out);
            continue;
        }
        assert_int_equal(r, MIN(n, in - out));
        for (uint32_t k = 0; k < (uint32_t)r; k++)
            if (b[k] != (uint8_t)((out + k) * 2654435761u >> 24))
                fail_msg("byte %u differs", out + k);
        if (!flags)
            out += (uint32_t)r;
    }
    weir_close(fd);
}

static int setup_way(int way)
{
    fake_setup();
    STORE_RELAXED(&fake.s->knobs.tcp_soreceive_stream, way);
    return 0;
}

static int generic(void **state)
{
    return setup_way(SOCKBUF_GENERIC);
}

static int stream(void **state)
{
    return setup_way(SOCKBUF_STREAM);
}

static int lockfree(void **state)
{
    return setup_way(SOCKBUF_LOCKFREE);
}

#define W(f, way)                                                                                  \
    {                                                                                              \
#f " " #way, f, way, fake_group_teardown, NULL                                             \
    }
#define T(f) W(f, generic), W(f, stream), W(f, lockfree)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_data_before_reset),
        T(test_reset_told_once),
        T(test_fin_then_reset),
        T(test_fresh_and_listening),
        T(test_peek),
        T(test_waitall_partial),
        T(test_rcvtimeo),
        T(test_shut_rd),
        T(test_trunc_and_name),
        T(test_burst_wakes_once),
        T(test_urgent),
        T(test_datagrams),
        T(test_notice),
        T(test_random_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
