/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: every operation on chains does to the bytes what it would do to an array, keeps packet
 * headers right, never writes to bytes that others see, and fails cleanly when an allocation does.
 * Bound: 20,000 random operations. */
#include "buf_unit.h"

#define MODEL_MAX 60000

static void test_sizes(void **state)
{
    static const struct {
        size_t want;
        uint32_t storage;
    } rows[] = {{0, MBUF_INLINE},        {168, MBUF_INLINE},      {169, CLUSTER_SIZE},
                {2048, CLUSTER_SIZE},    {2049, BIGCLUSTER_16K},  {16384, BIGCLUSTER_16K},
                {16385, BIGCLUSTER_64K}, {65536, BIGCLUSTER_64K}, {100000, BIGCLUSTER_64K}};
    for (size_t i = 0; i < NELEM(rows); i++) {
        struct mbuf *m = mbuf_get_size(acct, rows[i].want);
        assert_int_equal(mbuf_storage(m), rows[i].storage);
        assert_int_equal(mbuf_trailing(m), rows[i].storage);
        if (m->m_flags & M_EXT)
            assert_int_equal((uintptr_t)m->m_data % 64, 0);
        memset(m->m_data, 1, rows[i].storage);
        mbuf_free_chain(&m);
        assert_null(m);
    }
    struct mbuf *m = mbuf_get_packet(acct);
    assert_int_equal(m->m_flags, M_PKTHDR);
    assert_int_equal(m->m_pkt.segs, 1);
    assert_int_equal(m->m_pkt.len, 0);
    assert_int_equal(mbuf_leading(m), MBUF_HEADROOM);
    assert_null(mbuf_free(m));
}

static void test_accounting(void **state)
{
    struct mbuf *m = mbuf_get_size(acct, 50000);
    mbuf_account_settle(acct);
    int64_t one = LOAD_RELAXED(&acct->bytes);
    assert_true(one >= BIGCLUSTER_64K + MBUF_SIZE);
    m->m_len = 50000;
    struct mbuf *r = mbuf_ref(acct, m, 100, 1000);
    mbuf_account_settle(acct);
    assert_int_equal(LOAD_RELAXED(&acct->mbufs), 2);
    assert_int_equal(LOAD_RELAXED(&acct->bytes), one + MBUF_SIZE);
    mbuf_free_chain(&m);
    mbuf_account_settle(acct);
    assert_int_equal(LOAD_RELAXED(&acct->bytes), one); /* the cluster lives on in the reference */
    mbuf_free_chain(&r);
    mbuf_account_settle(acct);
    assert_int_equal(LOAD_RELAXED(&acct->bytes), 0);
}

static void test_limits_and_injection(void **state)
{
    struct mbuf_account *small = mbuf_account_create(3000);
    struct mbuf *m = mbuf_get_size(small, 2000);
    assert_non_null(m);
    assert_null(mbuf_get_size(small, 2000));
    assert_int_equal(small->denied, 1);
    struct mbuf *n = mbuf_get(small);
    assert_non_null(n);
    mbuf_free(n);
    STORE_RELAXED(&small->fail_after, 2);
    n = mbuf_get(small);
    assert_non_null(n);
    assert_null(mbuf_get(small));
    mbuf_free(n);
    n = mbuf_get(small);
    assert_non_null(n);
    mbuf_free(n);
    assert_int_equal(small->denied, 2);
    mbuf_account_drop(small); /* lives until its last buffer comes home */
    mbuf_free_chain(&m);
}

static void ext_freed(struct mbuf_ext *e)
{
    *(int *)e->ctx += 1;
}

static void test_external_storage(void **state)
{
    static uint8_t file[10000];
    int freed = 0;
    struct mbuf_ext e = {.ctx = &freed};
    assert_true(mbuf_ext_init(&e, acct, file, sizeof(file), ext_freed));
    struct mbuf *m = mbuf_get_ext(acct, &e, file + 10, 5000, M_RDONLY);
    assert_false(mbuf_is_writable(m));
    assert_int_equal(mbuf_leading(m), 0);
    assert_int_equal(mbuf_trailing(m), 0);
    struct mbuf *r = mbuf_ref(acct, m, 100, 4000);
    assert_true(r->m_flags & M_RDONLY);
    assert_ptr_equal(r->m_data, file + 110);
    mbuf_free_chain(&m);
    assert_int_equal(freed, 0);
    mbuf_free_chain(&r);
    assert_int_equal(freed, 1);
}

/* M_TAIL: appending behind bytes that others refer to, never over them. */
static void test_tail_rule(void **state)
{
    uint8_t bytes[1000];
    memset(bytes, 7, sizeof(bytes));
    struct mbuf *m = mbuf_from_bytes(acct, bytes, sizeof(bytes));
    struct mbuf *r = mbuf_ref(acct, m, 0, 1000);
    assert_int_equal(mbuf_trailing(m), 1048);
    assert_int_equal(mbuf_trailing(r), 0);
    assert_int_equal(mbuf_leading(m), 0);
    mbuf_trim_tail(m, 1);
    assert_int_equal(mbuf_trailing(m), 0); /* the byte behind is r's now */
    mbuf_free_chain(&r);
    assert_int_equal(mbuf_trailing(m), 1049); /* alone again */
    struct mbuf *rest = mbuf_split(m, 500);
    assert_int_equal(mbuf_trailing(m), 0);
    mbuf_free_chain(&rest);
    mbuf_free_chain(&m);
}

static void test_prepend_and_pullup(void **state)
{
    uint8_t bytes[300], header[60];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    memset(header, 0xee, sizeof(header));
    struct mbuf *m = mbuf_get_packet(acct);
    m->m_next = mbuf_from_bytes(acct, bytes, sizeof(bytes));
    m->m_pkt.len = sizeof(bytes);
    m->m_flags |= M_MCAST;
    struct mbuf *shared = mbuf_ref(acct, m, 0, 300);
    m = mbuf_pullup(m, 40);
    assert_non_null(m);
    assert_int_equal(m->m_len, 40);
    expect_bytes(m, bytes, 300);
    m = mbuf_prepend(m, 60);
    m = mbuf_prepend(m, 60); /* beyond the headroom: a new mbuf */
    assert_true(m->m_flags & M_PKTHDR && m->m_flags & M_MCAST);
    assert_false(m->m_next->m_flags & (M_PKTHDR | M_MCAST));
    assert_int_equal(m->m_pkt.len, 420);
    assert_int_equal(m->m_pkt.segs, 1);
    mbuf_copy_in(m, 0, 60, header);
    mbuf_copy_in(m, 60, 60, header);
    mbuf_trim_head(&m, 120);
    assert_int_equal(m->m_pkt.len, 300);
    expect_bytes(m, bytes, 300);
    expect_bytes(shared, bytes, 300);
    m = mbuf_pullup(m, MBUF_INLINE - MBUF_HEADROOM);
    assert_non_null(m);
    expect_bytes(m, bytes, 300);
    mbuf_free_chain(&m);
    mbuf_free_chain(&shared);
}

/* The first mbuf is a shared cluster: the header is made private. */
static void test_pullup_makes_private(void **state)
{
    uint8_t bytes[1000] = {1, 2, 3};
    struct mbuf *m = mbuf_from_bytes(acct, bytes, sizeof(bytes));
    struct mbuf *r = mbuf_ref(acct, m, 0, 1000);
    r = mbuf_pullup(r, 20);
    assert_true(mbuf_is_writable(r));
    r->m_data[0] = 99;
    expect_bytes(m, bytes, 1000);
    mbuf_free_chain(&r);
    r = mbuf_from_bytes(acct, bytes, 30);
    assert_null(mbuf_pullup(r, 31)); /* too short: freed */
    mbuf_free_chain(&m);
}

static void check_packet(const struct mbuf *m, const uint8_t *model, uint32_t len)
{
    assert_true(m->m_flags & M_PKTHDR);
    assert_int_equal(m->m_pkt.len, len);
    assert_int_equal(m->m_pkt.hash, 0x12345678);
    expect_bytes(m, model, len);
}

static struct mbuf *random_packet(struct rng *r, uint8_t *model, uint32_t *len)
{
    *len = rng_below(r, 20000);
    rng_bytes(r, model, *len);
    struct mbuf *m = random_chain(r, model, *len);
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = *len, .segs = 1, .hash = 0x12345678};
    return m;
}

/* One operation on a packet and its model. References taken before must show the same bytes
 * afterwards. */
static struct mbuf *random_operation(struct rng *r, struct mbuf *m, uint8_t *model, uint32_t *len)
{
    uint32_t n = rng_below(r, *len + 1), k;
    switch (rng_below(r, 8)) {
    case 0:
        mbuf_trim_head(&m, n / 8);
        *len -= n / 8;
        memmove(model, model + n / 8, *len);
        break;
    case 1:
        mbuf_trim_tail(m, n / 8);
        *len -= n / 8;
        break;
    case 2:
        k = rng_below(r, MBUF_INLINE + 1);
        m = mbuf_prepend(m, k);
        assert_non_null(m);
        memmove(model + k, model, *len);
        *len += k;
        rng_bytes(r, model, k);
        if (k > 0)
            memcpy(m->m_data, model, k); /* contiguous and writable by contract */
        break;
    case 3:
        k = rng_below(r, MBUF_INLINE - MBUF_HEADROOM + 1);
        k = MIN(k, *len);
        m = mbuf_pullup(m, k);
        assert_non_null(m);
        assert_true(m->m_len >= k);
        if (k > 0) {
            m->m_data[k - 1] ^= 0x55;
            model[k - 1] ^= 0x55;
        }
        break;
    case 4:
        if (n > 0 && n < *len) {
            struct mbuf *rest = mbuf_split(m, n);
            check_packet(m, model, n);
            expect_bytes(rest, model + n, *len - n);
            mbuf_cat(m, rest);
        }
        break;
    case 5: {
        struct mbuf *d = mbuf_dup_contiguous(acct, m);
        assert_non_null(d);
        assert_null(d->m_next);
        assert_true(mbuf_is_writable(d));
        mbuf_free_chain(&m);
        m = d;
        break;
    }
    case 6: {
        uint32_t off = rng_below(r, *len + 1);
        n = rng_below(r, *len - off + 1);
        struct mbuf *ref = mbuf_ref(acct, m, off, n);
        assert_non_null(ref);
        assert_false(ref->m_flags & M_PKTHDR);
        expect_bytes(ref, model + off, n);
        mbuf_free_chain(&ref);
        assert_null(mbuf_ref(acct, m, off, *len - off + 1));
        break;
    }
    default: {
        uint32_t off = rng_below(r, *len + 1);
        static uint8_t out[MODEL_MAX];
        mbuf_copy_out(m, off, *len - off, out);
        assert_memory_equal(out, model + off, *len - off);
        break;
    }
    }
    return m;
}

static void test_random_operations(void **state)
{
    static uint8_t model[MODEL_MAX], kept[MODEL_MAX];
    struct rng r;
    unit_seed(&r, __func__);
    for (int round = 0; round < 1000; round++) {
        uint32_t len, kept_len = 0;
        struct mbuf *m = random_packet(&r, model, &len), *witness = NULL;
        for (int i = 0; i < 20; i++) {
            if (i == 5) {
                kept_len = len;
                memcpy(kept, model, len);
                witness = mbuf_ref(acct, m, 0, len);
                assert_non_null(witness);
            }
            m = random_operation(&r, m, model, &len);
            check_packet(m, model, len);
        }
        expect_bytes(witness, kept, kept_len);
        mbuf_free_chain(&m);
        mbuf_free_chain(&witness);
    }
}

/* Each operation that allocates, with each of its allocations refused in turn: the inputs stay
 * whole or are freed as documented, and nothing leaks (the teardown checks). */
static void test_refused_allocations(void **state)
{
    static uint8_t bytes[MODEL_MAX];
    struct rng r;
    unit_seed(&r, __func__);
    rng_bytes(&r, bytes, sizeof(bytes));
    for (int round = 0; round < 300; round++) {
        uint32_t len = 1000 + rng_below(&r, 5000);
        struct mbuf *m = random_chain(&r, bytes, len), *got = NULL;
        for (int64_t nth = 1; nth < 4; nth++) {
            STORE_RELAXED(&acct->fail_after, nth);
            got = round % 3 == 0 ? mbuf_ref(acct, m, 1, len - 2)
                                 : (round % 3 == 1 ? mbuf_dup_contiguous(acct, m)
                                                   : mbuf_from_bytes(acct, bytes, 60000));
            mbuf_free_chain(&got);
            STORE_RELAXED(&acct->fail_after, nth);
            uint32_t at = 1 + rng_below(&r, len - 1);
            got = mbuf_split(m, at);
            if (got != NULL)
                mbuf_cat(m, got);
            expect_bytes(m, bytes, len);
        }
        STORE_RELAXED(&acct->fail_after, 1);
        m->m_data = mbuf_start(m); /* no leading space */
        struct mbuf *p = round % 2 ? mbuf_prepend(m, 100) : mbuf_pullup(m, 96);
        STORE_RELAXED(&acct->fail_after, 0);
        mbuf_free_chain(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_sizes),
        BUF_TEST(test_accounting),
        BUF_TEST(test_limits_and_injection),
        BUF_TEST(test_external_storage),
        BUF_TEST(test_tail_rule),
        BUF_TEST(test_prepend_and_pullup),
        BUF_TEST(test_pullup_makes_private),
        BUF_TEST(test_random_operations),
        BUF_TEST(test_refused_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
