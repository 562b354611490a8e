/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: an owner that feeds and readers that take, in each way to receive and while the way
 * changes: no byte is lost, doubled or out of order, the lock-free way finds no lock held, a read
 * never passes an urgent mark, disconnect and shutdown may come at any time (under ThreadSanitizer
 * too). Bound: some 10 MB in all, a few seconds; waits end by events, never by time. */
#include "fake.h"
#include <pthread.h>
#include <sched.h>

#define TOTAL 1500000u
#define BYTE(i) ((uint8_t)((i)*31 + ((i) >> 8)))

static uint64_t port_now(void *ctx)
{
    (void)ctx;
    return NS_PER_S;
}

static int port_wait(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    while (atomic_load(w->addr) == w->expected)
        sched_yield();
    return 0;
}

static void port_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    (void)addr;
    (void)count;
}

static const struct port threads_port = {.now_ns = port_now, .wait = port_wait, .wake = port_wake};
static _Atomic uint32_t next_tid = 1;

static uint32_t new_tid(void)
{
    return atomic_fetch_add(&next_tid, 1);
}

static int setup(void **state)
{
    (void)state;
    owner_tid_hook = new_tid;
    fake_setup();
    fake.s->port = &threads_port;
    return 0;
}

static void use_way(uint32_t way)
{
    STORE_RELAXED(&fake.s->knobs.tcp_soreceive_stream, (int)way);
}

static uint64_t contended(const char *name)
{
    uint64_t n = 0;

    for (struct lock_class *k = lock_class_first(); k; k = k->next)
        if (strcmp(k->name, name) == 0)
            n += LOAD_RELAXED(&k->contended);
    return n;
}

/* --- the owner's side --- */

static int shared_fd;
static struct socket *shared_so;
static _Atomic bool done;
static uint32_t marks[4096];
static uint32_t mark_count;
static bool switching, marking;

static struct mbuf *chain_of(uint32_t at, uint32_t n)
{
    struct mbuf *head = NULL, **tail = &head;

    for (uint32_t k; n; n -= k, at += k) {
        k = MIN(n, 1448u);
        struct mbuf *m = *tail = mbuf_get_size(fake.s->account, at % 3 ? k : CLUSTER_SIZE);
        for (uint32_t i = 0; i < k; i++)
            m->m_data[i] = BYTE(at + i);
        m->m_len = k;
        tail = &m->m_next;
    }
    return head;
}

static void feed(uint32_t total)
{
    for (uint32_t at = 0, i = 0; at < total; i++) {
        uint32_t n = i % 3 ? 1 + i * 7 % 90 : 1 + i * 31 % 20000;
        n = MIN(n, total - at);
        while (sockbuf_space(&shared_so->so_rcv) < n)
            sched_yield();
        if (switching && i % 16 == 0)
            use_way(i / 16 % 3);
        struct mbuf *m = chain_of(at, n);
        AS_OWNER({
            /* The last one must have been passed: a new mark takes its place. */
            if (marking && i % 20 == 5 && mark_count < NELEM(marks) &&
                !(so_state(shared_so) & SS_URGENT)) {
                so_oob_arrived(shared_so, 'u', true, i % 40 == 5 ? 0 : n / 2);
                marks[mark_count++] = i % 40 == 5 ? at : at + n / 2;
            }
            sockbuf_append_stream(&shared_so->so_rcv, &m);
            so_readable(shared_so);
        });
        at += n;
    }
    fake_fin(shared_fd);
}

static void open_socket(void)
{
    shared_fd = fake_connected(false);
    shared_so = fake_so(shared_fd);
}

/* --- one reader: the stream itself --- */

struct reader {
    pthread_t thread;
    uint32_t seed, got;
    uint32_t *ends; /* where calls ended; NULL: not asked for */
    uint32_t end_count;
};

static void expect(const uint8_t *p, uint32_t n, uint32_t at)
{
    for (uint32_t i = 0; i < n; i++)
        if (p[i] != BYTE(at + i))
            fail_msg("byte %u differs", at + i);
}

static void *read_stream(void *arg)
{
    static _Thread_local uint8_t b[30000];
    struct reader *r = arg;

    for (uint32_t i = r->seed;; i++) {
        uint32_t want = 1 + i * 7919 % (i % 4 ? 2000 : sizeof b);
        int flags = i % 11 == 3 ? MSG_PEEK : i % 13 == 5 ? MSG_WAITALL : 0;
        ssize_t n = weir_recv(shared_fd, b, want, flags);
        assert_true(n >= 0);
        if (n == 0)
            break;
        expect(b, (uint32_t)n, r->got);
        if (flags & MSG_PEEK)
            continue;
        r->got += (uint32_t)n;
        if (r->ends && r->end_count < 4 * TOTAL / 100)
            r->ends[r->end_count++] = r->got;
    }
    mbuf_thread_exit();
    return NULL;
}

static void run_one_reader(struct reader *r)
{
    open_socket();
    assert_int_equal(pthread_create(&r->thread, NULL, read_stream, r), 0);
    feed(TOTAL);
    pthread_join(r->thread, NULL);
    assert_int_equal(r->got, TOTAL);
    assert_int_equal(sockbuf_mem(&shared_so->so_rcv), 0);
    weir_close(shared_fd);
}

static void test_each_way(void **state)
{
    (void)state;
    switching = marking = false;
    for (uint32_t way = 0; way < 3; way++) {
        struct reader r = {.seed = way};
        use_way(way);
        uint64_t rcv = contended("so_rcv"), serial = contended("so_rcv_serial");
        run_one_reader(&r);
        assert_int_equal(contended("so_rcv_serial"), serial); /* it is the only reader */
        if (way == SOCKBUF_LOCKFREE)
            assert_int_equal(contended("so_rcv"), rcv);
    }
}

static void test_switching(void **state)
{
    struct reader r = {.seed = 3};

    (void)state;
    switching = true;
    marking = false;
    run_one_reader(&r);
}

/* A call ends at each mark. */
static void test_marks(void **state)
{
    struct reader r = {.ends = malloc(4 * TOTAL / 100 * sizeof(uint32_t))};

    (void)state;
    switching = marking = true;
    mark_count = 0;
    run_one_reader(&r);
    assert_true(mark_count > 3);
    for (uint32_t i = 0, k = 0; i < mark_count; i++) {
        while (k < r.end_count && r.ends[k] < marks[i])
            k++;
        if (marks[i] && (k == r.end_count || r.ends[k] != marks[i]))
            fail_msg("no call ended at the mark at %u", marks[i]);
    }
    free(r.ends);
    marking = false;
}

/* --- several readers: they share the bytes --- */

static void *read_some(void *arg)
{
    static _Thread_local uint8_t b[5000];
    struct reader *r = arg;
    struct weir_zc zc[4];

    for (uint32_t i = r->seed;; i++) {
        bool peek = i % 5 == 0, lent = i % 3 == 0;
        size_t want = 1 + i * 7919 % sizeof b;
        ssize_t n = lent ? weir_recv_zc(shared_fd, zc, NELEM(zc), want, 0)
                         : weir_recv(shared_fd, b, want, peek ? MSG_PEEK : 0);
        assert_true(n >= 0);
        if (n == 0)
            break;
        if (lent)
            weir_zc_release(i % 2 ? shared_fd : -1, zc, NELEM(zc));
        if (lent || !peek)
            r->got += (uint32_t)n;
    }
    mbuf_thread_exit();
    return NULL;
}

static void test_many_readers(void **state)
{
    struct reader r[3] = {{.seed = 1}, {.seed = 1000}, {.seed = 12345}};
    uint32_t sum = 0;

    (void)state;
    switching = true;
    open_socket();
    for (size_t i = 0; i < NELEM(r); i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, read_some, &r[i]), 0);
    feed(TOTAL);
    for (size_t i = 0; i < NELEM(r); i++) {
        pthread_join(r[i].thread, NULL);
        sum += r[i].got;
    }
    assert_int_equal(sum, TOTAL);
    assert_int_equal(sockbuf_mem(&shared_so->so_rcv), 0);
    weir_close(shared_fd);
}

/* --- ends --- */

static void *read_anything(void *arg)
{
    static _Thread_local uint8_t b[5000];
    struct weir_zc zc[4];

    (void)arg;
    for (uint32_t i = 0; !atomic_load(&done); i++) {
        if (i % 2 == 0) {
            (void)!weir_recv(shared_fd, b, sizeof b, MSG_DONTWAIT | (i % 3 ? 0 : MSG_PEEK));
        } else if (weir_recv_zc(shared_fd, zc, NELEM(zc), 3000, MSG_DONTWAIT) > 0) {
            weir_zc_release(shared_fd, zc, NELEM(zc));
        }
    }
    mbuf_thread_exit();
    return NULL;
}

/* The connection is taken apart and made anew, shut, reset, while readers read. */
static void test_disconnect(void **state)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    pthread_t t[2];

    (void)state;
    done = false;
    open_socket();
    for (size_t i = 0; i < NELEM(t); i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_anything, NULL), 0);
    for (uint32_t i = 0; i < 1500; i++) {
        use_way(i % 3);
        for (uint32_t k = 0; k < i % 5; k++) {
            struct mbuf *m = chain_of(i, 1 + i * 97 % 5000);
            AS_OWNER({
                sockbuf_append_stream(&shared_so->so_rcv, &m);
                so_readable(shared_so);
            });
        }
        if (i % 4 == 0)
            fake_rst(shared_fd, ECONNRESET);
        if (i % 7 == 0)
            weir_shutdown(shared_fd, SHUT_RD);
        assert_int_equal(weir_connect(shared_fd, &none, sizeof none), 0);
        weir_fcntl(shared_fd, F_SETFL, O_NONBLOCK);
        (void)!weir_connect(shared_fd, (struct sockaddr *)&a, sizeof a);
        AS_OWNER(so_connected(shared_so));
    }
    atomic_store(&done, true);
    for (size_t i = 0; i < NELEM(t); i++)
        pthread_join(t[i], NULL);
    assert_int_equal(weir_connect(shared_fd, &none, sizeof none), 0);
    assert_int_equal(sockbuf_used(&shared_so->so_rcv), 0);
    assert_int_equal(sockbuf_mem(&shared_so->so_rcv), 0);
    weir_close(shared_fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, fake_group_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_each_way),     T(test_switching),  T(test_marks),
        T(test_many_readers), T(test_disconnect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
