/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: weir_recv_zc over a real connection: every byte arrives, what is held shuts the window and
 * what is given back opens it, pieces outlive their descriptor and both stacks, no buffer stays
 * behind. Bound: 64 MB over a memory link, a few seconds; nothing is asserted on time. */
#include "runtime/runtime.h"
#include "weir/socket.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define PIECES 16
#define BYTE(i) ((uint8_t)((i)*31 + ((i) >> 8)))

static struct weir_stack *a, *b;
static int out, in; /* from a to b */

static int setup(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7)};
    int size = 65536;

    (void)state;
    a = weir_stack_create(NULL);
    b = weir_stack_create(NULL);
    assert_true(a && b);
    assert_int_equal(weir_link_pair(a, b, "", NULL), 0);
    int listener = weir_socket(b, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    assert_int_equal(weir_bind(listener, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(weir_listen(listener, 1), 0);
    inet_pton(AF_INET, "10.0.0.2", &to.sin_addr);
    out = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(out, (struct sockaddr *)&to, sizeof to), 0);
    in = weir_accept(listener, NULL, NULL);
    assert_true(in >= 0);
    weir_close(listener);
    return 0;
}

static void destroy(void)
{
    weir_stack_destroy(a);
    weir_stack_destroy(b);
    a = b = NULL;
}

static int teardown(void **state)
{
    int64_t mbufs, bytes;

    (void)state;
    destroy();
    weir_buffer_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    return 0;
}

static void *send_all(void *arg)
{
    size_t total = *(size_t *)arg;
    static uint8_t buf[100000];

    for (size_t at = 0; at < total;) {
        size_t n = total - at < sizeof buf ? total - at : sizeof buf;
        for (size_t i = 0; i < n; i++)
            buf[i] = BYTE(at + i);
        assert_int_equal(weir_send(out, buf, n, 0), n);
        at += n;
    }
    weir_shutdown(out, SHUT_WR);
    return NULL;
}

static void expect(const struct weir_zc *z, size_t at)
{
    const uint8_t *p = z->data;

    for (size_t i = 0; i < z->len; i++)
        if (p[i] != BYTE(at + i))
            fail_msg("byte %zu differs", at + i);
}

/* Pieces are held for a while, and given back out of order. */
static void test_stream(void **state)
{
    static const char *const way[] = {"0", "1", "2"};
    static struct weir_zc z[4][PIECES];
    size_t total = 32 << 20, at = 0;
    pthread_t t;
    ssize_t n;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, send_all, &total), 0);
    for (unsigned round = 0;; round++) {
        struct weir_zc *mine = z[round * 7 % 4];
        weir_zc_release(round % 3 ? in : -1, mine, PIECES);
        if (round % 100 == 0)
            assert_int_equal(
                weir_sysctl_set(b, "net.inet.tcp.soreceive_stream", way[round / 100 % 3]), 0);
        n = weir_recv_zc(in, mine, PIECES, 1 + round * 7919 % 60000, 0);
        if (n <= 0)
            break;
        for (int i = 0; i < PIECES && mine[i].len; i++) {
            expect(&mine[i], at);
            at += mine[i].len;
        }
    }
    assert_int_equal(n, 0);
    assert_int_equal(at, total);
    pthread_join(t, NULL);
    for (int i = 0; i < 4; i++)
        weir_zc_release(in, z[i], PIECES);
}

#define HELD 512
static struct weir_zc held[HELD];

/* Take until the sender can do no more. Returns pieces. */
static int take_until_stuck(size_t *bytes)
{
    static uint8_t buf[50000];
    int count = 0, idle = 0;
    ssize_t n;

    *bytes = 0;
    while (count < HELD && idle < 100) {
        bool sent = weir_send(out, buf, sizeof buf, MSG_DONTWAIT) > 0;
        n = weir_recv_zc(in, &held[count], 1, SIZE_MAX, MSG_DONTWAIT);
        if (n > 0) {
            count++;
            *bytes += (size_t)n;
        }
        idle = sent || n > 0 ? 0 : idle + 1;
    }
    return count;
}

static void test_window(void **state)
{
    size_t first, more;

    (void)state;
    int count = take_until_stuck(&first);
    assert_true(count > 0 && count < HELD);
    assert_true(first <
                4 * 8 * 65536); /* no more than its memory may be, and what was on its way */
    weir_zc_release(in, held, count);
    count = take_until_stuck(&more);
    assert_true(more > first / 2);
    weir_zc_release(in, held, count);
}

static void test_outlives_stacks(void **state)
{
    static uint8_t buf[50000];
    size_t at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof buf; i++)
        buf[i] = BYTE(i);
    assert_int_equal(weir_send(out, buf, sizeof buf, 0), sizeof buf);
    int count = 0;
    while (at < sizeof buf) {
        ssize_t n = weir_recv_zc(in, &held[count++], 1, 30000, 0);
        assert_true(n > 0);
        at += (size_t)n;
    }
    weir_close(in);
    weir_close(out);
    destroy();
    at = 0;
    for (int i = 0; i < count; i++) {
        expect(&held[i], at);
        at += held[i].len;
    }
    weir_zc_release(in, held, count);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_stream), T(test_window), T(test_outlives_stacks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
