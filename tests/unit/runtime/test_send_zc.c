/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: weir_send_zc: the bytes arrive, and memory is released after the acknowledgment and the
 * last reader, not before, whatever ends first: call, connection, socket, stack. Bound: two stacks
 * on a memory link, a few MB; no assertion on time. */
#include "base/base.h"
#include "weir/socket.h"
#include "weir/stack.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define MB (1u << 20)

static struct weir_stack *near, *far;
static int s, r;
static uint8_t *buf, *got; /* 4 MB each */
static _Atomic int notices;

static void on_done(struct weir_zc_send *z)
{
    (void)z; /* its owner may be sending again */
    atomic_fetch_add(&notices, 1);
}

static int setup(void **state)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(4001)};
    int room = 256 * 1024;

    (void)state;
    near = weir_stack_create(NULL);
    far = weir_stack_create(NULL);
    assert_int_equal(weir_link_pair(near, far, "", NULL), 0);
    assert_int_equal(inet_pton(AF_INET, "10.0.0.2", &sin.sin_addr), 1);
    int l = weir_socket(far, AF_INET, SOCK_STREAM, 0);
    (void)weir_setsockopt(l, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    assert_int_equal(weir_bind(l, (struct sockaddr *)&sin, sizeof(sin)), 0);
    assert_int_equal(weir_listen(l, 5), 0);
    s = weir_socket(near, AF_INET, SOCK_STREAM, 0);
    (void)weir_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    assert_int_equal(weir_connect(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
    r = weir_accept(l, NULL, NULL);
    assert_true(r >= 0);
    weir_close(l);
    atomic_store(&notices, 0);
    return 0;
}

static void end(void)
{
    if (near)
        weir_stack_destroy(near);
    if (far)
        weir_stack_destroy(far);
    near = far = NULL;
}

static int teardown(void **state)
{
    int64_t mbufs, bytes;

    (void)state;
    weir_close(s);
    weir_close(r);
    end();
    weir_buffer_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    assert_int_equal(bytes, 0);
    return 0;
}

static void *read_all(void *arg)
{
    size_t want = *(size_t *)arg, have = 0;
    while (have < want) {
        ssize_t n = weir_recv(r, got + have, want - have, 0);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    *(size_t *)arg = have;
    return NULL;
}

/* A buffer is written again as soon as it is free: what arrives is what was in it when it was sent.
 */
static void test_reuse(void **state)
{
    enum { ROUNDS = 24, SIZE = 128 * 1024 };
    struct weir_zc_send z[2] = {{.done = on_done}, {.done = on_done}};
    size_t have = ROUNDS * SIZE;
    pthread_t reader;

    (void)state;
    pthread_create(&reader, NULL, read_all, &have);
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t *b = buf + (size_t)(i % 2) * SIZE;
        assert_int_equal(weir_zc_wait(&z[i % 2], -1), 0);
        memset(b, i + 1, SIZE);
        assert_int_equal(weir_send_zc(s, b, SIZE, 0, &z[i % 2]), SIZE);
    }
    pthread_join(reader, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_zc_wait(&z[i], -1), 0);
    assert_int_equal(have, ROUNDS * SIZE);
    for (size_t i = 0; i < have; i++)
        assert_int_equal(got[i], i / SIZE + 1);
    assert_int_equal(atomic_load(&notices), ROUNDS);
}

/* Held until the far application has read them: an acknowledgment alone is not enough here. */
static void test_held_by_the_reader(void **state)
{
    struct weir_zc_send z = {.done = on_done};

    (void)state;
    memset(buf, 7, MB);
    ssize_t n = weir_send_zc(s, buf, 100000, 0, &z);
    assert_int_equal(n, 100000);
    assert_int_equal(weir_send_zc(s, buf, 100000, 0, &z), 100000);
    assert_int_equal(weir_zc_pending(&z), 2);
    assert_int_equal(weir_zc_wait(&z, 10), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(weir_recv(r, got, 200000, MSG_WAITALL), 200000);
    assert_int_equal(weir_zc_wait(&z, -1), 0);
    assert_int_equal(atomic_load(&notices), 1);
}

/* Pieces that were lent without a copy keep the sender's memory, too. */
static void test_zero_copies(void **state)
{
    struct weir_zc_send z = {0};
    struct weir_zc piece[64];
    size_t sum = 0;

    (void)state;
    memset(buf, 9, 50000);
    assert_int_equal(weir_send_zc(s, buf, 50000, 0, &z), 50000);
    while (sum < 50000) {
        ssize_t n = weir_recv_zc(r, piece, 64, 50000, 0);
        assert_true(n > 0);
        for (int i = 0; i < 64 && piece[i].len; i++) {
            const uint8_t *p = piece[i].data;
            assert_true(p >= buf && p + piece[i].len <= buf + 50000);
            assert_true(p[0] == 9 && p[piece[i].len - 1] == 9);
        }
        sum += (size_t)n;
        assert_int_equal(weir_zc_pending(&z), 1);
        weir_zc_release(r, piece, 64);
    }
    assert_int_equal(weir_zc_wait(&z, -1), 0);
}

static void test_errors(void **state)
{
    static struct weir_zc_send z = {.done = on_done}; /* outlives the test: some sends do */
    int u = weir_socket(near, AF_INET, SOCK_DGRAM, 0),
        fresh = weir_socket(near, AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(weir_send_zc(-1, buf, MB, 0, &z), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(weir_send_zc(u, buf, MB, 0, &z), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(weir_send_zc(s, buf, MB, 0, NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_send_zc(s, buf, MB, MSG_OOB, &z), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_send_zc(fresh, buf, MB, 0, &z), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(weir_zc_pending(&z), 0); /* nothing refers to what was not taken */
    assert_int_equal(weir_send_zc(s, buf, 100, 0, &z), 100); /* copied */
    assert_int_equal(weir_zc_pending(&z), 0);
    ssize_t n = weir_send_zc(s, buf, 4 * MB, MSG_DONTWAIT, &z); /* what there is room for */
    assert_true(n > 0 && n < (ssize_t)(4 * MB));
    while ((n = weir_send_zc(s, buf, 4 * MB, MSG_DONTWAIT, &z)) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
    assert_true(weir_zc_pending(&z) > 0);
    assert_int_equal(atomic_load(&notices), 0);
    weir_close(u), weir_close(fresh);
}

/* The sender is gone, the data are not: the memory is released when the last of them is. */
static void test_ends_in_any_order(void **state)
{
    for (int how = 0; how < 5; how++) {
        struct weir_zc_send z = {.done = on_done};
        struct linger cut = {.l_onoff = 1};
        if (how)
            setup(state);
        while (weir_send_zc(s, buf, MB, MSG_DONTWAIT, &z) > 0)
            ;
        assert_true(weir_zc_pending(&z) > 0);
        switch (how) {
        case 0: /* closed in good order, and read */
            weir_close(s);
            while (weir_recv(r, got, 4 * MB, 0) > 0)
                ;
            break;
        case 1: /* reset by the sender: the far socket still holds what it has */
            (void)weir_setsockopt(s, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut));
            weir_close(s);
            weir_close(r);
            break;
        case 2: /* closed over unread data by the receiver */
            weir_close(r);
            weir_close(s);
            break;
        case 3: /* the sender's stack goes first */
            weir_stack_destroy(near);
            near = NULL;
            weir_close(r);
            break;
        default: /* the receiver's */
            weir_stack_destroy(far);
            far = NULL;
            weir_close(s);
        }
        if (how < 3) {
            assert_int_equal(weir_zc_wait(&z, -1), 0);
            weir_close(s), weir_close(r);
        }
        end();
        assert_int_equal(weir_zc_pending(&z), 0);
        assert_int_equal(atomic_load(&notices), 1);
        memset(buf, how, MB); /* ours again: a sanitizer would tell of a late reader */
    }
    setup(state);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_reuse), T(test_held_by_the_reader),
                                       T(test_zero_copies), T(test_errors),
                                       T(test_ends_in_any_order)};

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    buf = calloc(4, MB);
    got = calloc(4, MB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(buf);
    free(got);
    return failed;
}
