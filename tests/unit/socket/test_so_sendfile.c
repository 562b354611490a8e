/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: both forms of sendfile on a made-up file: what the protocol is told and when, how much at a
 * time, and what each way to fail leaves behind. Bound: no threads, virtual time. */
#include "fake.h"
#include "socket/so_sendfile.h"

/* A file of `size` bytes whose reads fail from `bad` on (0: never). */
struct made_up {
    struct so_file file;
    uint64_t size, bad;
    int error;
    unsigned gets;
    size_t most; /* bytes asked for at once */
};

static ssize_t get(struct so_file *f, struct mbuf_account *acct, uint64_t off, size_t n, int flags,
                   struct mbuf **out)
{
    struct made_up *m = (struct made_up *)f;

    (void)flags;
    m->gets++;
    m->most = MAX(m->most, n);
    if (m->bad && off >= m->bad)
        return m->error;
    if (off >= m->size)
        return 0;
    n = MIN(MIN(n, m->size - off), (uint64_t)CLUSTER_SIZE);
    struct mbuf *x = mbuf_get_size(acct, n);
    if (!x)
        return -ENOBUFS;
    for (size_t i = 0; i < n; i++)
        x->m_data[i] = (uint8_t)((off + i) * 3);
    x->m_len = (uint32_t)n;
    *out = x;
    return (ssize_t)n;
}

static int fd;

static void bulk(bool on)
{
    fake.s->knobs.kern_sendfile_bulk = on;
}

static struct so_sendfile asked(struct made_up *m, uint64_t off, uint64_t left)
{
    bool nonblock = so_state(fake_so(fd)) & SS_NBIO;

    return (struct so_sendfile){.file = &m->file, .off = off, .left = left, .nonblock = nonblock};
}

/* What waits in so_snd is the file from off on. */
static void expect_file(uint64_t off, uint32_t n)
{
    struct sockbuf *sb = &fake_so(fd)->so_snd;
    uint8_t *data = malloc(n);

    assert_int_equal(sockbuf_used(sb), n);
    sockbuf_copy_out(sb, 0, n, data);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(data[i], (uint8_t)((off + i) * 3));
    free(data);
}

static void test_a_page_at_a_time(void **state)
{
    struct made_up m = {.file.get = get, .size = 30000};
    struct so_sendfile sf;

    (void)state;
    fd = fake_connected(true);
    bulk(false);
    sf = asked(&m, 100, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
    assert_int_equal(sf.sent, 29900);
    assert_true(m.most <= SO_FILE_PAGE);
    assert_int_equal(fake.sends, 8); /* pages 0 to 7 */
    assert_false(fake.more_seen);
    expect_file(100, 29900);
    /* An end that comes with a page is only met behind it: then the last waits for no more. */
    fake_acked(fd, 29900);
    m = (struct made_up){.file.get = get, .size = 8192};
    sf = asked(&m, 0, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
    assert_int_equal(sf.sent, 8192);
    assert_int_equal(fake.sends, 8 + 2 + 1);
    assert_false(fake.more_seen);
    weir_close(fd);
}

static void test_all_at_once(void **state)
{
    struct made_up m = {.file.get = get, .size = 30000};
    struct so_sendfile sf;

    (void)state;
    fd = fake_connected(true);
    bulk(true);
    sf = asked(&m, 100, 29900);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
    assert_int_equal(sf.sent, 29900);
    assert_int_equal(fake.sends, 1);
    assert_false(fake.more_seen);
    expect_file(100, 29900);
    weir_close(fd);
}

static unsigned waits, sends_before;
static uint32_t least;

/* A little is acknowledged at a time; the protocol wakes no sender below a half. */
static int trickle(const struct port_wait *w)
{
    struct socket *so = fake_so(fd);
    uint32_t seq = LOAD_RELAXED(&so->so_event);

    (void)w;
    waits++;
    assert_int_equal(fake.sends, sends_before + 1); /* one output a chain */
    sends_before = fake.sends;
    while (LOAD_RELAXED(&so->so_event) == seq)
        fake_acked(fd, 1000);
    least = MIN(least, sockbuf_space(&so->so_snd));
    return 0;
}

static void test_waits_for_half(void **state)
{
    struct made_up m = {.file.get = get, .size = 1 << 20};
    struct so_sendfile sf;

    (void)state;
    fd = fake_connected(false);
    bulk(true);
    fake.on_wait = trickle;
    waits = 0, least = UINT32_MAX, sends_before = fake.sends;
    sf = asked(&m, 0, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
    assert_int_equal(sf.sent, 1 << 20);
    assert_true(least >= 16000); /* half of 32 KB, but at the end */
    assert_true(waits >= 60 && waits <= 64);
    assert_int_equal(LOAD_RELAXED(&fake_so(fd)->so_snd.sb_lowat), 1);
    fake_acked(fd, sockbuf_used(&fake_so(fd)->so_snd));
    weir_close(fd);
}

/* The buffer becomes smaller than the room that is waited for; then all of it is acknowledged. */
static int shrink(const struct port_wait *w)
{
    struct socket *so = fake_so(fd);
    uint32_t seq = LOAD_RELAXED(&so->so_event);
    int size = 8192;

    (void)w;
    if (waits++ == 0)
        assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    while (LOAD_RELAXED(&so->so_event) == seq) {
        uint32_t used = sockbuf_used(&so->so_snd);
        assert_true(used > 0); /* else nobody would ever wake the sender */
        fake_acked(fd, MIN(used, 1000));
    }
    return 0;
}

static void test_buffer_shrinks_under_way(void **state)
{
    struct made_up m = {.file.get = get, .size = 200000};
    struct so_sendfile sf;

    (void)state;
    fd = fake_connected(false);
    bulk(true);
    fake.on_wait = shrink;
    waits = 0;
    sf = asked(&m, 0, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
    assert_int_equal(sf.sent, 200000);
    fake_acked(fd, sockbuf_used(&fake_so(fd)->so_snd));
    weir_close(fd);
}

static void test_headers_and_trailers(void **state)
{
    struct iovec h = {(void *)(uintptr_t) "ab", 2}, t = {(void *)(uintptr_t) "yz", 2};
    char data[8];

    (void)state;
    for (int on = 0; on < 2; on++) {
        struct made_up m = {.file.get = get, .size = 4};
        fd = fake_connected(true);
        bulk(on);
        unsigned before = fake.sends;
        struct so_sendfile sf = asked(&m, 1, SO_FILE_TO_END);
        assert_int_equal(so_uio_init(&sf.head, &h, 1), 0);
        assert_int_equal(so_uio_init(&sf.trail, &t, 1), 0);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
        assert_int_equal(sf.sent, 7);
        assert_false(fake.more_seen);
        if (on)
            assert_int_equal(fake.sends, before + 1);
        sockbuf_copy_out(&fake_so(fd)->so_snd, 0, 7, data);
        assert_memory_equal(data, "ab\x03\x06\x09yz", 7);
        weir_close(fd);
    }
}

static void test_read_errors(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct made_up m = {.file.get = get, .size = 1 << 20, .bad = 10000, .error = -EIO};
        fd = fake_connected(true);
        bulk(on);
        struct so_sendfile sf = asked(&m, 0, SO_FILE_TO_END);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -EIO);
        assert_true(sf.sent >= 8192 &&
                    sf.sent <= 10240); /* whole reads in front of the bad place */
        expect_file(0, (uint32_t)sf.sent);
        assert_false(fake.more_seen);
        assert_false(LOAD_RELAXED(&fake_so(fd)->so_sndflags) & SO_SND_MORE);
        assert_int_equal(fake_so_error(fd), 0); /* the connection is none the worse */
        m = (struct made_up){.file.get = get, .size = 5000};
        sf = asked(&m, 0, 9000); /* shorter than was said */
        uint32_t before = sockbuf_used(&fake_so(fd)->so_snd);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
        assert_int_equal(sf.sent, 5000);
        assert_int_equal(sockbuf_used(&fake_so(fd)->so_snd), before + 5000);
        assert_false(LOAD_RELAXED(&fake_so(fd)->so_sndflags) & SO_SND_MORE);
        weir_close(fd);
    }
}

static int give_buffers(const struct port_wait *w)
{
    (void)w;
    waits++;
    return -ETIMEDOUT;
}

/* Without buffers: ENOMEM at once with SF_MNOWAIT, ENOBUFS on a non-blocking socket, else a wait.
 */
static void test_no_buffers(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct made_up m = {.file.get = get, .size = 10000};
        fd = fake_connected(false);
        bulk(on);
        fake.on_wait = give_buffers;
        waits = 0;
        struct so_sendfile sf = asked(&m, 0, SO_FILE_TO_END);
        sf.flags = SF_MNOWAIT;
        int64_t limit = atomic_exchange(&fake.s->account->limit, 0);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -ENOMEM);
        assert_int_equal(waits, 0);
        sf.flags = 0;
        sf.nonblock = true;
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -ENOBUFS);
        assert_int_equal(sf.sent, 0);
        atomic_store(&fake.s->account->limit, limit);
        atomic_store(&fake.s->account->fail_after, 1);
        sf.nonblock = false;
        assert_int_equal(so_sendfile(fake_so(fd), &sf), 0);
        assert_int_equal(sf.sent, 10000);
        assert_true(waits >= 1);
        expect_file(0, 10000);
        weir_close(fd);
    }
}

/* case: FUN-134 */
static void test_counts_when_it_stops(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct made_up m = {.file.get = get, .size = 1 << 20};
        fd = fake_connected(true);
        bulk(on);
        struct so_sendfile sf = asked(&m, 0, SO_FILE_TO_END);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -EAGAIN);
        assert_int_equal(sf.sent, 32768);
        sf = asked(&m, 32768, SO_FILE_TO_END);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -EAGAIN);
        assert_int_equal(sf.sent, 0);
        fake_acked(fd, 100);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -EAGAIN);
        assert_int_equal(sf.sent, 100);
        fake_rst(fd, ECONNRESET);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -ECONNRESET);
        assert_int_equal(sf.sent, 0);
        assert_int_equal(so_sendfile(fake_so(fd), &sf), -EPIPE);
        weir_close(fd);
    }
}

static int interrupt(const struct port_wait *w)
{
    (void)w;
    return -EINTR;
}

static void test_interrupted(void **state)
{
    struct made_up m = {.file.get = get, .size = 1 << 20};

    (void)state;
    fd = fake_connected(false);
    bulk(true);
    fake.on_wait = interrupt;
    struct so_sendfile sf = asked(&m, 0, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), -EINTR);
    assert_int_equal(sf.sent, 32768);
    fake.on_wait = NULL; /* the clock jumps to the deadline */
    AS_OWNER(fake_so(fd)->so_sndtimeo_ns = NS_PER_S);
    sf = asked(&m, 0, SO_FILE_TO_END);
    assert_int_equal(so_sendfile(fake_so(fd), &sf), -EAGAIN);
    assert_int_equal(sf.sent, 0);
    weir_close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fake_group_setup, fake_group_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_page_at_a_time),     T(test_all_at_once),
        T(test_waits_for_half),       T(test_buffer_shrinks_under_way),
        T(test_headers_and_trailers), T(test_read_errors),
        T(test_no_buffers),           T(test_counts_when_it_stops),
        T(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
