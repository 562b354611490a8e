/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a socket buffer holds the bytes (or records) that a plain array would, its two sums are
 * exact after each operation, its cursor never misleads, small segments do not pin big clusters.
 * Bound: 30,000 random operations, and 19,600 hand-overs between two threads. */
#include "buf_unit.h"

#include "buf/sockbuf.h"

#include <pthread.h>
#include <sched.h>

LOCK_CLASS(test_lock_class, "test_sockbuf");
static struct sockbuf sb;

#define MODEL_MAX (1 << 20)
static uint8_t model[MODEL_MAX];
static uint32_t model_len;

static void check_sums(void)
{
    uint32_t cc = 0, mem = 0;
    const struct mbuf *last = NULL;
    for (const struct mbuf *rec = sb.sb_mb; rec != NULL; rec = rec->m_nextpkt) {
        mem += mbuf_chain_mem(rec);
        cc += mbuf_chain_len(rec->m_flags & M_ADDR ? rec->m_next : rec);
        for (last = rec; last->m_next != NULL;)
            last = last->m_next;
    }
    assert_int_equal(sockbuf_used(&sb), cc);
    assert_int_equal(LOAD_RELAXED(&sb.sb_mem), mem);
    assert_ptr_equal(sb.sb_tail, last);
}

static void check_stream(void)
{
    check_sums();
    assert_int_equal(sockbuf_used(&sb), model_len);
    expect_bytes(sb.sb_mb, model, model_len);
    bool cursor_seen = sb.sb_cursor == NULL;
    uint32_t at = 0;
    for (const struct mbuf *m = sb.sb_mb; m != NULL; at += m->m_len, m = m->m_next) {
        assert_true(m->m_len > 0);
        if (m == sb.sb_cursor) {
            assert_int_equal(at, sb.sb_cursor_off);
            cursor_seen = true;
        }
    }
    assert_true(cursor_seen);
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
    struct rng r;
    unit_seed(&r, __func__);
    sockbuf_init(&sb, &test_lock_class, 1 << 20);
    model_len = 0;
    uint32_t next = 0; /* the sequential reader */
    for (int step = 0; step < 20000; step++) {
        struct witness *w = &seen[rng_below(&r, NELEM(seen))];
        uint32_t n;
        switch (rng_below(&r, 8)) {
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
            check_stream();
    }
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
        assert_true(LOAD_RELAXED(&sb.sb_mem) < 3 * 10000);
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
        uint32_t at = sb.sb_cursor_off;
        assert_true(sb.sb_cursor != NULL);
        assert_int_equal(at % 2000, 0);
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

/* --- one producer, one consumer --- */

#define HAND_OVERS (28 * 700)
#define STREAM_BYTE(i) ((uint8_t)((i)*31 + ((i) >> 8)))

static void *produce(void *arg)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < HAND_OVERS; i++) {
        uint32_t n = 1 + i % 700;
        while (sockbuf_space(&sb) < n)
            sched_yield();
        struct mbuf *m = mbuf_get_size(acct, n);
        for (uint32_t k = 0; k < n; k++)
            m->m_data[k] = STREAM_BYTE(at + k);
        m->m_len = n;
        sockbuf_append_stream(&sb, &m);
        at += n;
    }
    mbuf_thread_exit();
    return (void *)(uintptr_t)at;
}

static void test_two_threads(void **state)
{
    pthread_t t;
    void *sent;
    uint32_t got = 0, rounds = 0;
    sockbuf_init(&sb, &test_lock_class, 30000);
    assert_int_equal(pthread_create(&t, NULL, produce, NULL), 0);
    for (uint32_t total = HAND_OVERS / 700 * (700 * 701 / 2); got < total; rounds++) {
        uint32_t n = sockbuf_used(&sb);
        if (n == 0) {
            sched_yield();
            continue;
        }
        struct mbuf *m = sockbuf_ref(&sb, acct, 0, n);
        uint32_t at = got;
        for (const struct mbuf *p = m; p != NULL; p = p->m_next) {
            for (uint32_t k = 0; k < p->m_len; k++)
                assert_int_equal(p->m_data[k], STREAM_BYTE(at + k));
            at += p->m_len;
        }
        mbuf_free_chain(&m);
        sockbuf_drop(&sb, n);
        got += n;
    }
    pthread_join(t, &sent);
    sockbuf_flush(&sb);
    check_sums();
    sockbuf_fini(&sb);
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
        BUF_TEST(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
