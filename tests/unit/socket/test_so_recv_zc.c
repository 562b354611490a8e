/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: weir_recv_zc lends the stream's bytes as they arrived, in as few pieces as asked, blocks
 * and ends as recv does, charges what is held, and what is lent outlives descriptor and stack;
 * bytes of a file that was cut are never shown. Bound: 20,000 random operations for each way to
 * receive, no threads (test_so_recv_threads.c has them). */
#include "fake.h"

#define PIECES 8
static struct weir_zc zc[PIECES];
static char buf[70000];

static size_t pieces(void)
{
    size_t n = 0;

    while (n < PIECES && zc[n].len)
        n++;
    for (size_t i = n; i < PIECES; i++)
        assert_null(zc[i].data);
    return n;
}

static void expect(const char *bytes, size_t len)
{
    for (size_t i = 0; i < pieces(); i++) {
        assert_true(zc[i].len <= len);
        assert_memory_equal(zc[i].data, bytes, zc[i].len);
        bytes += zc[i].len;
        len -= zc[i].len;
    }
    assert_int_equal(len, 0);
}

static uint32_t charged(int fd)
{
    return sockbuf_mem(&fake_so(fd)->so_rcv);
}

static void test_pieces(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    for (size_t i = 0; i < sizeof buf; i++)
        buf[i] = (char)(i * 31);
    fake_data(fd, buf, 5000);
    fake_data(fd, buf + 5000, 15000);
    fake_data(fd, buf + 20000, 40000);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 60000, 0), 60000);
    assert_int_equal(pieces(), 3);
    expect(buf, 60000);
    assert_int_equal(sockbuf_used(&fake_so(fd)->so_rcv), 0);
    assert_true(charged(fd) > 60000);
    weir_zc_release(fd, zc, PIECES);
    assert_int_equal(pieces(), 0);
    assert_int_equal(charged(fd), 0);
    weir_zc_release(fd, zc, PIECES); /* of nothing */

    /* No more pieces than asked for, no more bytes either; what is cut in the middle is shared. */
    fake_data(fd, buf, 5000);
    fake_data(fd, buf + 5000, 15000);
    assert_int_equal(weir_recv_zc(fd, zc, 1, 60000, 0), 5000);
    expect(buf, 5000);
    weir_zc_release(fd, zc, 1);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 100, 0), 100);
    struct weir_zc held = zc[0];
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 5000, 0), 5000);
    expect(buf + 5100, 5000);
    weir_zc_release(fd, zc, PIECES);
    assert_memory_equal(held.data, buf + 5000, 100);
    assert_int_equal(weir_recv(fd, buf + 60000, 10000, 0), 9900); /* mixes with recv */
    assert_memory_equal(buf + 60000, buf + 10100, 9900);
    assert_memory_equal(held.data, buf + 5000, 100);
    weir_zc_release(fd, &held, 1);
    assert_int_equal(charged(fd), 0);
    weir_close(fd);
}

/* What arrives in the space behind a piece that is lent leaves the piece alone. */
static void test_tail_goes_on(void **state)
{
    int fd = fake_connected(true);
    struct weir_zc first;

    (void)state;
    fake_data(fd, "0123456789", 10);
    fake_data(fd, "abc", 3);
    assert_int_equal(weir_recv_zc(fd, &first, 1, 5, 0), 5);
    fake_data(fd, "defgh", 5);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 100, 0), 13);
    assert_memory_equal(first.data, "01234", 5);
    expect("56789abcdefgh", 13);
    fake_data(fd, "xyz", 3);
    assert_int_equal(weir_recv(fd, buf, 100, 0), 3);
    expect("56789abcdefgh", 13);
    weir_zc_release(fd, zc, PIECES);
    weir_zc_release(fd, &first, 1);
    assert_int_equal(charged(fd), 0);
    weir_close(fd);
}

static void test_errors_and_ends(void **state)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int dgram = weir_socket(fake.s, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_errno(weir_recv_zc(-1, zc, PIECES, 10, 0), EBADF);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 10, 0), ENOTCONN);
    assert_errno(weir_recv_zc(dgram, zc, PIECES, 10, 0), EOPNOTSUPP);
    weir_close(fd);
    weir_close(dgram);
    fd = fake_listener(true, 1);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 10, 0), ENOTCONN);
    weir_close(fd);

    fd = fake_connected(false);
    assert_errno(weir_recv_zc(fd, zc, 0, 10, 0), EINVAL);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 0, 0), EINVAL);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 10, MSG_PEEK), EINVAL);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 10, MSG_DONTWAIT), EAGAIN);
    fake_data(fd, "abc", 3);
    fake_rst(fd, ECONNRESET);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 10, 0), 3);
    expect("abc", 3);
    weir_zc_release(fd, zc, PIECES);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 10, 0), ECONNRESET);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 10, 0), 0);
    weir_close(fd);

    fd = fake_connected(true);
    fake_data(fd, buf, 300);
    STORE_RELAXED(&fake.s->account->fail_after, 1);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 200, 0), ENOBUFS); /* no bookkeeping */
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 10, 0), 10);
    weir_zc_release(fd, zc, PIECES);
    STORE_RELAXED(&fake.s->account->fail_after, 1);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 200, 0), ENOBUFS);  /* no header to share with */
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, 0), 290); /* nothing was lost */
    expect(buf + 10, 290);
    weir_zc_release(fd, zc, PIECES);
    weir_close(fd);
}

/* SO_RCVLOWAT and SO_RCVTIMEO as for recv; the urgent mark ends a call. */
static void test_waiting(void **state)
{
    int fd = fake_connected(false), lowat = 100, at_mark = 0;
    struct timeval tv = {1, 0};

    (void)state;
    weir_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    weir_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat);
    uint64_t t = fake.now_ns;
    assert_errno(weir_recv_zc(fd, zc, PIECES, 1000, 0), EAGAIN);
    assert_int_equal(fake.now_ns - t, NS_PER_S);
    fake_data(fd, "abc", 3);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, 0), 3); /* after another second */
    assert_int_equal(fake.now_ns - t, 2 * NS_PER_S);
    weir_zc_release(fd, zc, PIECES);
    fake_data(fd, buf, 100);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, 0), 100);
    assert_int_equal(fake.now_ns - t, 2 * NS_PER_S);
    weir_zc_release(fd, zc, PIECES);

    fake_data(fd, "abc", 3);
    AS_OWNER(so_oob_arrived(fake_so(fd), 'Z', true, 0));
    fake_data(fd, "defg", 4);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, 0), 3);
    assert_int_equal(weir_ioctl(fd, 0x8905 /* SIOCATMARK */, &at_mark), 0);
    assert_int_equal(at_mark, 1);
    weir_zc_release(fd, zc, PIECES);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, MSG_DONTWAIT), 4);
    expect("defg", 4);
    weir_zc_release(fd, zc, PIECES);
    weir_close(fd);
}

/* Who holds all that the buffer may cost finds the window shut, and open when it is given back. */
static void test_held_memory_shuts_the_window(void **state)
{
    static struct weir_zc held[64];
    int fd = fake_connected(true), n = 0;
    struct sockbuf *sb = &fake_so(fd)->so_rcv;
    uint32_t limit = LOAD_RELAXED(&sb->sb_memmax);

    (void)state;
    while (sockbuf_space(sb) >= 60000) {
        fake_data(fd, buf, 60000);
        assert_true(n < 64);
        assert_int_equal(weir_recv_zc(fd, &held[n++], 1, 60000, 0), 60000);
    }
    assert_in_range(charged(fd), limit - 66000, limit + 66000);
    fake_data(fd, buf, 60000);
    assert_int_equal(weir_recv_zc(fd, &held[n++], 1, 60000, 0), 60000);
    unsigned told = fake.rcvds;
    weir_zc_release(fd, &held[--n], 1);
    assert_int_equal(fake.rcvds, told + 1); /* the window opens */
    weir_zc_release(-1, &held[--n], 1);
    weir_zc_release(fd, held, n);
    assert_int_equal(charged(fd), 0);
    told = fake.rcvds;
    fake_data(fd, buf, 10);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 60000, 0), 10);
    weir_zc_release(fd, zc, PIECES);
    assert_int_equal(fake.rcvds, told); /* nothing to tell */
    weir_close(fd);
}

static void test_release_after_close(void **state)
{
    int fd = fake_connected(true);
    struct weir_zc kept;

    (void)state;
    fake_data(fd, "abcdef", 6);
    assert_int_equal(weir_recv_zc(fd, &kept, 1, 3, 0), 3);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 100, 0), 3);
    weir_close(fd);
    int other = fake_connected(true);
    errno = 77;
    weir_zc_release(fd, &kept, 1); /* of a descriptor that is no more */
    assert_int_equal(errno, 77);
    expect("def", 3);
    weir_zc_release(other, zc, PIECES); /* of another one */
    weir_close(other);
}

static struct weir_zc last;

/* fake_teardown finds all buffers home only after that. */
static int teardown_with_loan(void **state)
{
    struct weir_stack *s = fake.s;

    (void)state;
    assert_int_equal(owner_acquire(s), 0);
    so_table_fini(s);
    assert_memory_equal(last.data, "outlives", 8);
    weir_zc_release(-1, &last, 1);
    assert_int_equal(so_table_init(s), 0);
    assert_true(owner_release(s));
    fake_teardown();
    return 0;
}

static void test_stack_ends_first(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    fake_data(fd, "outlives", 8);
    assert_int_equal(weir_recv_zc(fd, &last, 1, 100, 0), 8);
}

/* --- storage that may be cut under us --- */

static bool cut;
static char file[3000];
static int windows;

static bool window_intact(struct mbuf_ext *e, const uint8_t *data, uint32_t len)
{
    return !cut;
}

static void window_free(struct mbuf_ext *e)
{
    windows--;
    free(e);
}

static void window_data(int fd)
{
    struct socket *so = fake_so(fd);
    struct mbuf_ext *e = calloc(1, sizeof *e);

    assert_true(mbuf_ext_init(e, fake.s->account, (uint8_t *)file, sizeof file, window_free));
    e->intact = window_intact;
    windows++;
    struct mbuf *m =
        mbuf_get_ext(fake.s->account, e, (uint8_t *)file, sizeof file, M_RDONLY | M_VOLATILE);
    AS_OWNER({
        sockbuf_append_stream(&so->so_rcv, &m);
        so_readable(so);
    });
}

static void test_file_windows(void **state)
{
    int fd = fake_connected(true);

    (void)state;
    memset(file, 'f', sizeof file);
    fake_data(fd, "head", 4);
    window_data(fd);
    fake_data(fd, "tail", 4);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 10000, 0), 4);
    expect("head", 4);
    weir_zc_release(fd, zc, PIECES);
    assert_int_equal(weir_recv_zc(fd, zc, PIECES, 1000, 0), 1000);
    assert_int_equal(weir_recv_zc(fd, zc + 1, PIECES - 1, 10000, 0), 2000);
    assert_int_equal(windows, 0); /* a copy is lent */
    memset(file, 0, sizeof file);
    assert_int_equal(((const char *)zc[1].data)[1999], 'f');
    weir_zc_release(fd, zc, PIECES);
    assert_int_equal(weir_recv(fd, buf, 10, 0), 4);
    assert_int_equal(charged(fd), 0);

    fake_data(fd, "head", 4);
    window_data(fd);
    cut = true;
    assert_int_equal(weir_recv(fd, buf, 1000, 0), 4); /* what is good */
    assert_errno(weir_recv(fd, buf, 1000, 0), EIO);
    assert_errno(weir_recv_zc(fd, zc, PIECES, 1000, 0), EIO);
    cut = false;
    weir_close(fd);
    assert_int_equal(windows, 0);
}

/* --- random --- */

static uint32_t rng_state;

static uint32_t rnd(uint32_t below)
{
    rng_state = rng_state * 1664525 + 1013904223;
    return (rng_state >> 8) % below;
}

static void test_random(void **state)
{
    const char *seed = getenv("SEED");
    int fd = fake_connected(true);
    struct sockbuf *sb = &fake_so(fd)->so_rcv;
    uint32_t in = 0, out = 0;
    char b[8000];

    (void)state;
    rng_state = seed ? (uint32_t)strtoul(seed, NULL, 0) : 777;
    printf("SEED=%u\n", rng_state);
    for (int i = 0; i < 20000; i++) {
        uint32_t n = rnd(4) ? 1 + rnd(300) : 1 + rnd(sizeof b - 1);
        if (rnd(2) && sockbuf_space(sb) >= n) {
            for (uint32_t k = 0; k < n; k++)
                b[k] = (char)((in + k) * 2654435761u >> 24);
            fake_data(fd, b, n);
            in += n;
            continue;
        }
        struct weir_zc *z = &zc[rnd(PIECES / 2) * 2];
        weir_zc_release(rnd(2) ? fd : -1, z, 2); /* what it held from earlier */
        ssize_t r = weir_recv_zc(fd, z, 1 + (int)rnd(2), n, 0);
        if (r < 0) {
            assert_int_equal(in, out);
            continue;
        }
        assert_true(r > 0 && r <= n && z[0].len + z[1].len == (size_t)r);
        for (int p = 0; p < 2; p++)
            for (uint32_t k = 0; k < z[p].len; k++, out++)
                if (((const char *)z[p].data)[k] != (char)(out * 2654435761u >> 24))
                    fail_msg("byte %u differs", out);
    }
    weir_zc_release(fd, zc, PIECES);
    while (weir_recv(fd, b, sizeof b, 0) > 0)
        ;
    assert_int_equal(sockbuf_mem(sb), 0);
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

#define W(f, way, end)                                                                             \
    {                                                                                              \
#f " " #way, f, way, end, NULL                                                             \
    }
#define TE(f, end) W(f, generic, end), W(f, stream, end), W(f, lockfree, end)
#define T(f) TE(f, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_pieces),
        T(test_tail_goes_on),
        T(test_errors_and_ends),
        T(test_waiting),
        T(test_held_memory_shuts_the_window),
        T(test_release_after_close),
        TE(test_stack_ends_first, teardown_with_loan),
        T(test_file_windows),
        T(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
