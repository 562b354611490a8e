/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a socket buffer holds the bytes (or records) that a plain array would, its two sums are
 * exact after each operation, its cursor never misleads, small segments do not pin big clusters.
 * Bound: 30,000 random operations, and some 100,000 hand-overs between two threads. */
#include "buf_unit.h"

#include "buf/sockbuf.h"

#include <pthread.h>
#include <sched.h>

LOCK_CLASS(test_lock_class, "test_sockbuf");
static struct sockbuf sb;

#define MODEL_MAX (1 << 20)
static uint8_t model[MODEL_MAX];
static uint32_t model_len;

/* lent: memory that is charged though it has left. */
static void check_sums_but(uint32_t lent)
{
    uint32_t cc = 0, mem = 0, off;
    const struct mbuf *last = NULL;
    for (const struct mbuf *rec = sockbuf_head(&sb, &off); rec != NULL; rec = rec->m_nextpkt) {
        mem += mbuf_chain_mem(rec);
        cc += mbuf_chain_len(rec->m_flags & M_ADDR ? rec->m_next : rec);
        for (last = rec; last->m_next != NULL;)
            last = last->m_next;
    }
    assert_int_equal(sockbuf_used(&sb), cc - off);
    assert_int_equal(sockbuf_mem(&sb), mem + lent);
    assert_ptr_equal(sb.sb_tail, last);
}

static void check_sums(void)
{
    check_sums_but(0);
}

static void check_stream_but(uint32_t lent)
{
    check_sums_but(lent);
    assert_int_equal(sockbuf_used(&sb), model_len);
    bool cursor_seen = sb.sb_cursor == NULL;
    uint32_t off, at = LOAD_RELAXED(&sb.sb_out), k = 0;
    const struct mbuf *first = sockbuf_head(&sb, &off);
    at -= off;
    for (const struct mbuf *m = first; m != NULL; at += m->m_len, m = m->m_next) {
        uint32_t skip = m == first ? off : 0;
        assert_true(m->m_len > skip);
        assert_true(k + m->m_len - skip <= model_len);
        assert_memory_equal(m->m_data + skip, model + k, m->m_len - skip);
        k += m->m_len - skip;
        if (m == sb.sb_cursor) {
            assert_int_equal(at, sb.sb_cursor_at);
            cursor_seen = true;
        }
    }
    assert_int_equal(k, model_len);
    assert_true(cursor_seen);
}

static void check_stream(void)
{
    check_stream_but(0);
}

static void random_append(struct rng *r)
{
    uint32_t len = rng_below(r, 3) == 0
                       ? rng_below(r, 20)
                       : (rng_below(r, 2) ? rng_below(r, 1500) : rng_below(r, 40000));
    len = MIN(len, MODEL_MAX - model_len);
    rng_bytes(r, model + model_len, len);
    struct mbuf *m = random_chain(r, model + model_len, len);
    m->m_flags |= M_PKTHDR; /* as it comes from the network */
    m->m_pkt = (struct mbuf_pkt){.len = len, .segs = 1};
    sockbuf_append_stream(&sb, &m);
    assert_null(m);
    model_len += len;
}

/* What was lent is the front of the stream, in few enough pieces, and is charged until it is given
 * back. */
struct loan {
    struct sockbuf_lent *from;
    struct mbuf *m;
};

static void loan_end(struct loan *l)
{
    while (l->m != NULL) {
        struct mbuf *next = l->m->m_next;
        l->m->m_next = NULL;
        sockbuf_give_back(l->from, l->m);
        l->m = next;
    }
}

static void loan_take(struct rng *r, struct loan *l, uint32_t *next)
{
    int pieces = 1 + (int)rng_below(r, 5), count = 0;
    loan_end(l);
    if (model_len == 0)
        return;
    uint32_t n = 1 + rng_below(r, model_len), got = 0;
    if (rng_below(r, 8) == 0)
        STORE_RELAXED(&acct->fail_after, 1); /* of no matter where nothing must be shared */
    int error = sockbuf_lend(&sb, acct, n, pieces, &l->m, &l->from);
    STORE_RELAXED(&acct->fail_after, 0);
    if (error != 0) {
        assert_int_equal(error, -ENOBUFS);
        assert_null(l->m);
        return;
    }
    for (const struct mbuf *m = l->m; m != NULL; m = m->m_next, count++) {
        assert_true(m->m_len > 0);
        assert_memory_equal(m->m_data, model + got, m->m_len);
        got += m->m_len;
    }
    assert_true(got > 0 && got <= n && count <= pieces);
    model_len -= got;
    *next -= MIN(*next, got);
    memmove(model, model + got, model_len);
}

/* References to the stream, taken at some time, with the bytes they showed then. */
struct witness {
    struct mbuf *m;
    uint8_t *bytes;
    uint32_t len;
};

static void witness_end(struct witness *w)
{
    if (w->m != NULL)
        expect_bytes(w->m, w->bytes, w->len);
    mbuf_free_chain(&w->m);
    free(w->bytes);
    memset(w, 0, sizeof(*w));
}

static void witness_take(struct witness *w, uint32_t off, uint32_t len)
{
    witness_end(w);
    w->m = sockbuf_ref(&sb, acct, off, len);
    assert_non_null(w->m);
    w->len = len;
    w->bytes = malloc(len + 1);
    memcpy(w->bytes, model + off, len);
    expect_bytes(w->m, w->bytes, len);
}

static void test_stream_against_model(void **state)
{
    static struct witness seen[32];
    static uint8_t out[MODEL_MAX];
    struct loan loan = {0};
    struct rng r;
    unit_seed(&r, __func__);
    sockbuf_init(&sb, &test_lock_class, 1 << 20);
    model_len = 0;
    uint32_t next = 0; /* the sequential reader */
    for (int step = 0; step < 20000; step++) {
        struct witness *w = &seen[rng_below(&r, NELEM(seen))];
        uint32_t n;
        switch (rng_below(&r, 9)) {
        case 8:
            loan_take(&r, &loan, &next);
            break;
        case 0:
        case 1:
            random_append(&r);
            break;
        case 2:
        case 3: /* as the protocol sends: one after the other */
            n = rng_below(&r, 3000);
            n = MIN(n, model_len - next);
            if (n > 0)
                witness_take(w, next, n);
            next += n;
            break;
        case 4: /* a retransmission */
            n = rng_below(&r, model_len + 1);
            if (n < model_len)
                witness_take(w, n, 1 + rng_below(&r, MIN(model_len - n, 5000u)));
            break;
        case 5:
            n = rng_below(&r, model_len + 1);
            sockbuf_copy_out(&sb, n, model_len - n, out);
            assert_memory_equal(out, model + n, model_len - n);
            break;
        default: /* acknowledged */
            n = rng_below(&r, 4) == 0 ? model_len : rng_below(&r, MIN(model_len, next) + 1);
            sockbuf_drop(&sb, n);
            model_len -= n;
            next -= MIN(next, n);
            memmove(model, model + n, model_len);
            break;
        }
        if (step % 4 == 0)
            check_stream_but(mbuf_chain_mem(loan.m));
    }
    loan_end(&loan);
    sockbuf_flush(&sb);
    model_len = 0;
    check_stream();
    random_append(&r);
    sockbuf_fini(&sb);
    for (size_t i = 0; i < NELEM(seen); i++)
        witness_end(&seen[i]);
}

static void append_bytes(size_t storage, uint32_t len)
{
    struct mbuf *m = mbuf_get_size(acct, storage);
    memset(m->m_data, 'x', len);
    m->m_len = len;
    sockbuf_append_stream(&sb, &m);
}

/* Tiny segments, each in a cluster of its own, as a mean peer sends them: memory stays near the
 * bytes. */
static void test_small_segments_are_copied(void **state)
{
    static const size_t storages[] = {2000, 16000, 64000};
    for (size_t i = 0; i < NELEM(storages); i++) {
        sockbuf_init(&sb, &test_lock_class, 65536);
        for (int k = 0; k < 10000; k++)
            append_bytes(storages[i], 1);
        assert_int_equal(sockbuf_used(&sb), 10000);
        assert_true(sockbuf_mem(&sb) < 3 * 10000);
        mbuf_account_settle(acct);
        assert_true(LOAD_RELAXED(&acct->bytes) < 4 * 10000 + 65536);
        sockbuf_fini(&sb);
        /* A small one behind each full one. */
        sockbuf_init(&sb, &test_lock_class, 1 << 20);
        for (int k = 0; k < 100; k++) {
            append_bytes(storages[i], (uint32_t)storages[i]);
            append_bytes(storages[i], 60);
        }
        mbuf_account_settle(acct);
        assert_true(LOAD_RELAXED(&acct->bytes) < (int64_t)(100 * (storages[i] * 11 / 10 + 2700)));
        sockbuf_fini(&sb);
    }
}

/* No memory for the copy: the segment is kept as it came. */
static void test_append_never_fails(void **state)
{
    sockbuf_init(&sb, &test_lock_class, 65536);
    struct mbuf *m = mbuf_get_size(acct, 60000);
    m->m_data[0] = 'x';
    m->m_len = 1;
    STORE_RELAXED(&acct->fail_after, 1);
    sockbuf_append_stream(&sb, &m);
    assert_int_equal(sockbuf_used(&sb), 1);
    check_sums();
    STORE_RELAXED(&acct->fail_after, 1);
    assert_null(sockbuf_ref(&sb, acct, 0, 1));
    check_sums();
    sockbuf_fini(&sb);
}

/* 10,000 sequential references cost what they should: each mbuf is stepped over once. */
static void test_cursor_is_kept(void **state)
{
    sockbuf_init(&sb, &test_lock_class, 1 << 30);
    for (int i = 0; i < 10000; i++)
        append_bytes(2000, 2000);
    for (uint32_t i = 0; i < 10000; i++) {
        struct mbuf *m = sockbuf_ref(&sb, acct, 2000 * (i - i / 2), 2000);
        assert_non_null(m);
        mbuf_free_chain(&m);
        if (i % 2 == 1)
            sockbuf_drop(&sb, 2000);
        assert_true(sb.sb_cursor != NULL);
        assert_int_equal(sb.sb_cursor_at % 2000, 0);
    }
    check_sums();
    sockbuf_fini(&sb);
}

static void test_space(void **state)
{
    sockbuf_init(&sb, &test_lock_class, 10000);
    assert_int_equal(sockbuf_space(&sb), 10000);
    append_bytes(2000, 2000);
    assert_int_equal(sockbuf_space(&sb), 8000);
    sockbuf_reserve(&sb, 1000);
    assert_int_equal(sockbuf_space(&sb), 0);
    sockbuf_reserve(&sb, 5000);
    assert_int_equal(LOAD_RELAXED(&sb.sb_memmax), 40000);
    assert_int_equal(sockbuf_space(&sb), 3000);
    sockbuf_reserve(&sb, UINT32_MAX);
    assert_int_equal(LOAD_RELAXED(&sb.sb_memmax), INT32_MAX);
    sockbuf_fini(&sb);
}

/* --- records --- */

static void test_records(void **state)
{
    enum { RECORDS = 64 };
    static uint8_t bytes[RECORDS][9000];
    uint32_t len[RECORDS], first = 0, last = 0;
    struct rng r;
    unit_seed(&r, __func__);
    sockbuf_init(&sb, &test_lock_class, 200000);
    for (int step = 0; step < 10000; step++) {
        if (rng_below(&r, 2) == 0 && last - first < RECORDS) {
            uint32_t i = last % RECORDS, from = last;
            len[i] = rng_below(&r, 4) == 0 ? 0 : rng_below(&r, rng_below(&r, 2) ? 9000 : 50);
            rng_bytes(&r, bytes[i], len[i]);
            struct mbuf *m = random_chain(&r, bytes[i], len[i]);
            m->m_flags |= M_PKTHDR;
            m->m_pkt = (struct mbuf_pkt){.len = len[i], .segs = 1};
            uint32_t space = sockbuf_space(&sb);
            bool ok = sockbuf_append_record(&sb, acct, i % 2 ? &from : NULL, sizeof(from), &m);
            assert_null(m);
            if (len[i] > space)
                assert_false(ok);
            last += ok;
        } else if (first != last) {
            uint32_t i = first % RECORDS;
            struct mbuf *rec = sockbuf_take_record(&sb);
            struct mbuf *data = rec;
            assert_int_equal(!!(rec->m_flags & M_ADDR), i % 2);
            if (rec->m_flags & M_ADDR) {
                assert_memory_equal(rec->m_data, &first, sizeof(first));
                data = rec->m_next;
            }
            assert_int_equal(data->m_pkt.len, len[i]);
            expect_bytes(data, bytes[i], len[i]);
            mbuf_free_chain(&rec);
            first++;
        } else {
            assert_null(sockbuf_take_record(&sb));
        }
        if (step % 4 == 0)
            check_sums();
    }
    sockbuf_fini(&sb);
}

/* Empty datagrams count no bytes: their memory limits them. */
static void test_empty_records_are_bounded(void **state)
{
    sockbuf_init(&sb, &test_lock_class, 10000);
    int n = 0;
    for (bool ok = true; ok; n += ok) {
        struct mbuf *m = mbuf_get_packet(acct);
        ok = sockbuf_append_record(&sb, acct, "a", 1, &m);
    }
    assert_int_equal(n, 80000 / (2 * MBUF_SIZE));
    sockbuf_fini(&sb);
}

/* What is lent may come home when the buffer is gone. */
static void test_loan_outlives_buffer(void **state)
{
    struct sockbuf_lent *from;
    struct mbuf *m;
    sockbuf_init(&sb, &test_lock_class, 10000);
    append_bytes(2000, 2000);
    append_bytes(2000, 2000);
    assert_int_equal(sockbuf_lend(&sb, acct, 3000, 8, &m, &from), 0);
    assert_int_equal(mbuf_chain_len(m), 3000);
    assert_int_equal(sockbuf_used(&sb), 1000);
    assert_int_equal(sockbuf_space(&sb), 9000);
    sockbuf_fini(&sb);
    while (m != NULL) {
        struct mbuf *next = m->m_next;
        sockbuf_give_back(from, m);
        m = next;
    }
}

/* An mbuf that was drained while the producer was at work stays as an empty first one. What it cost
 * is free again when it goes, also when there is no memory for what was asked for. */
static void test_loan_fails_behind_a_drained_mbuf(void **state)
{
    struct sockbuf_lent *from;
    struct mbuf *m, *tail;
    sockbuf_init(&sb, &test_lock_class, 100000);
    append_bytes(2000, 2000);
    assert_int_equal(sockbuf_lend(&sb, acct, 10, 8, &m, &from), 0); /* makes what loans need */
    sockbuf_give_back(from, m);
    tail = atomic_exchange(&sb.sb_tail, (struct mbuf *)1); /* an append begins */
    sockbuf_drop(&sb, 1990);
    STORE_RELAXED(&sb.sb_tail, tail);
    append_bytes(2000, 2000);
    STORE_RELAXED(&acct->fail_after, 1);
    assert_int_equal(sockbuf_lend(&sb, acct, 10, 8, &m, &from), -ENOBUFS);
    STORE_RELAXED(&acct->fail_after, 0);
    check_sums();
    sockbuf_drop(&sb, 2000);
    assert_int_equal(sockbuf_mem(&sb), 0);
    sockbuf_fini(&sb);
}

/* As much as the memory budget allows can be held; then there is no space. */
static void test_loans_shut_the_window(void **state)
{
    struct mbuf *held[64] = {NULL};
    struct sockbuf_lent *from = NULL;
    size_t n = 0;
    sockbuf_init(&sb, &test_lock_class, 10000);
    while (sockbuf_space(&sb) >= 2000) {
        append_bytes(2000, 2000);
        assert_true(n < NELEM(held));
        assert_int_equal(sockbuf_lend(&sb, acct, 2000, 1, &held[n++], &from), 0);
    }
    assert_in_range(n, 80000 / (CLUSTER_SIZE + MBUF_SIZE) - 1, 80000 / 2000);
    while (n > 0)
        sockbuf_give_back(from, held[--n]);
    assert_int_equal(sockbuf_space(&sb), 10000);
    check_sums();
    sockbuf_fini(&sb);
}

/* --- one producer, one consumer --- */

#define STREAM_BYTE(i) ((uint8_t)((i)*31 + ((i) >> 8)))

/* Who appends what: sizes in turn 1 .. max, some in clusters that are too big for them. */
struct feed {
    uint32_t appends, max;
    int chain; /* mbufs an append */
};
static _Atomic int64_t mode;

static uint32_t feed_total(const struct feed *f)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < f->appends; i++)
        total += 1 + i % f->max;
    return total;
}

static struct mbuf *feed_mbuf(uint32_t at, uint32_t n, bool big)
{
    struct mbuf *m = mbuf_get_size(acct, big ? CLUSTER_SIZE : n);
    for (uint32_t k = 0; k < n; k++)
        m->m_data[k] = STREAM_BYTE(at + k);
    m->m_len = n;
    return m;
}

static void *produce(void *arg)
{
    const struct feed *f = arg;
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->appends;) {
        struct mbuf *head = NULL, **tail = &head;
        uint32_t sum = 0;
        for (int k = 0; k < f->chain && i < f->appends; k++, i++) {
            uint32_t n = 1 + i % f->max;
            *tail = feed_mbuf(at, n, i % 3 == 0);
            tail = &(*tail)->m_next;
            at += n;
            sum += n;
        }
        while (sockbuf_space(&sb) < sum)
            sched_yield();
        sockbuf_append_stream(&sb, &head);
    }
    mbuf_thread_exit();
    return NULL;
}

static void expect_feed(const uint8_t *p, uint32_t len, uint32_t at)
{
    for (uint32_t k = 0; k < len; k++)
        if (p[k] != STREAM_BYTE(at + k))
            fail_msg("byte %u differs", at + k);
}

/* The ways to take n bytes. */
static uint32_t take_by_reference(uint32_t n, uint32_t at)
{
    struct mbuf *m = sockbuf_ref(&sb, acct, 0, n);
    for (const struct mbuf *p = m; p != NULL; at += p->m_len, p = p->m_next)
        expect_feed(p->m_data, p->m_len, at);
    mbuf_free_chain(&m);
    sockbuf_drop(&sb, n);
    return n;
}

static uint32_t take_by_walk(uint32_t n, uint32_t at)
{
    uint32_t off, left = n;
    const struct mbuf *m = sockbuf_head(&sb, &off);
    while (left > 0) {
        uint32_t len = sockbuf_len(m) - off, k = MIN(len, left);
        expect_feed(m->m_data + off, k, at);
        at += k;
        left -= k;
        if (left > 0)
            m = sockbuf_next(m);
        off = 0;
    }
    sockbuf_drop(&sb, n);
    return n;
}

static uint32_t take_by_loan(uint32_t n, uint32_t at) TS_NO_ANALYSIS
{
    struct sockbuf_lent *from;
    struct mbuf *m;
    bool locked = sockbuf_is_locked(&sb);
    if (locked)
        lock_acquire(&sb.sb_lock);
    int error = sockbuf_lend(&sb, acct, n, 4, &m, &from);
    if (locked)
        lock_release(&sb.sb_lock);
    assert_int_equal(error, 0);
    n = 0;
    for (struct mbuf *next; m != NULL; m = next) {
        next = m->m_next;
        expect_feed(m->m_data, m->m_len, at + n);
        n += m->m_len;
        sockbuf_give_back(from, m);
    }
    return n;
}

static void run_feed(struct feed f, uint32_t hiwat, bool modes)
{
    static uint32_t (*const way[])(uint32_t, uint32_t) = {take_by_reference, take_by_walk,
                                                          take_by_loan, take_by_walk};
    pthread_t t;
    uint32_t got = 0, total = feed_total(&f);
    sockbuf_init(&sb, &test_lock_class, hiwat);
    atomic_store(&mode, SOCKBUF_LOCKFREE);
    sockbuf_set_mode(&sb, &mode);
    assert_int_equal(pthread_create(&t, NULL, produce, &f), 0);
    for (uint32_t round = 0; got < total;) {
        uint32_t n = sockbuf_used(&sb);
        if (n == 0) {
            sched_yield();
            continue;
        }
        if (round % 7 == 0) /* not always all of it */
            n = 1 + round % n;
        if (modes && round % 64 == 0)
            atomic_store(&mode, (int64_t)(round / 64 % 3));
        got += way[round++ % NELEM(way)](n, got);
    }
    pthread_join(t, NULL);
    assert_int_equal(sockbuf_used(&sb), 0);
    assert_int_equal(sockbuf_unlink(&sb, 0) != NULL, 0);
    check_sums();
    assert_null(sb.sb_tail); /* an empty buffer holds no memory */
    sockbuf_fini(&sb);
}

static void test_two_threads(void **state)
{
    run_feed((struct feed){.appends = 20000, .max = 700, .chain = 1}, 30000, false);
}

/* So small that most go into the last mbuf, while it is being drained. */
static void test_two_threads_tiny(void **state)
{
    run_feed((struct feed){.appends = 60000, .max = 5, .chain = 1}, 4000, false);
}

static void test_two_threads_chains(void **state)
{
    run_feed((struct feed){.appends = 20000, .max = 1448, .chain = 16}, 65536, false);
}

static void test_two_threads_modes(void **state)
{
    run_feed((struct feed){.appends = 30000, .max = 900, .chain = 3}, 30000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_stream_against_model),
        BUF_TEST(test_small_segments_are_copied),
        BUF_TEST(test_append_never_fails),
        BUF_TEST(test_cursor_is_kept),
        BUF_TEST(test_space),
        BUF_TEST(test_records),
        BUF_TEST(test_empty_records_are_bounded),
        BUF_TEST(test_loan_outlives_buffer),
        BUF_TEST(test_loan_fails_behind_a_drained_mbuf),
        BUF_TEST(test_loans_shut_the_window),
        BUF_TEST(test_two_threads),
        BUF_TEST(test_two_threads_tiny),
        BUF_TEST(test_two_threads_chains),
        BUF_TEST(test_two_threads_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
