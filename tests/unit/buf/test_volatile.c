/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: data whose storage may vanish are never copied unasked, never believed when they have
 * vanished, and become ordinary data by mbuf_settle. Bound: a few mbufs. */
#include "buf_unit.h"

#include "buf/sockbuf.h"

LOCK_CLASS(class_test, "test");
static uint8_t storage[100000];
static unsigned frees, asked;
static bool gone;

static void storage_free(struct mbuf_ext *e)
{
    (void)e;
    frees++;
}

static bool intact(struct mbuf_ext *e, const uint8_t *data, uint32_t len)
{
    assert_true(data >= e->buf && data + len <= e->buf + e->size);
    asked++;
    return !gone;
}

static struct mbuf_ext ext;

/* A packet of 40 bytes of header and len of volatile data. */
static struct mbuf *packet(uint32_t len)
{
    for (size_t i = 0; i < sizeof(storage); i++)
        storage[i] = (uint8_t)(i * 11);
    frees = asked = 0;
    gone = false;
    assert_true(mbuf_ext_init(&ext, NULL, storage, sizeof(storage), storage_free));
    ext.intact = intact;
    struct mbuf *h = mbuf_get_packet(acct);
    memset(h->m_data, 5, 40);
    h->m_len = 40;
    h->m_next = mbuf_get_ext(acct, &ext, storage + 7, len, M_RDONLY | M_VOLATILE);
    h->m_pkt.len = 40 + len;
    return h;
}

static void test_references_stay_references(void **state)
{
    struct sockbuf sb;
    struct mbuf *m = packet(50000);

    for (uint32_t len = 1; len < 200; len += 60) { /* others so short would be copied */
        struct mbuf *r = mbuf_ref(acct, m, 40, len);
        assert_true(r->m_flags & M_VOLATILE);
        assert_ptr_equal(r->m_data, storage + 7);
        mbuf_free_chain(&r);
    }
    assert_true(mbuf_chain_is_volatile(m));
    assert_false(mbuf_chain_broken(m));
    atomic_store(&ext.broken, 1);
    assert_true(mbuf_chain_broken(m));
    sockbuf_init(&sb, &class_test, 65536);
    struct mbuf *first = mbuf_from_bytes(acct, "abc", 3), *few = mbuf_ref(acct, m, 40, 100);
    sockbuf_append_stream(&sb, &first);
    sockbuf_append_stream(&sb, &few);
    struct mbuf *r = sockbuf_ref(&sb, acct, 3, 100);
    assert_ptr_equal(r->m_data,
                     storage + 7); /* neither moved into the first nor out of its place */
    mbuf_free_chain(&r);
    sockbuf_fini(&sb);
    assert_int_equal(frees, 0);
    mbuf_free_chain(&m);
    assert_int_equal(frees, 1);
}

static void test_settle(void **state)
{
    struct mbuf *m = packet(50000);
    uint8_t byte;

    struct mbuf *twin = mbuf_ref(acct, m, 40, 50000);
    assert_int_equal(mbuf_settle(&m), 0);
    assert_false(mbuf_chain_is_volatile(m));
    assert_int_equal(m->m_pkt.len, 50040);
    assert_true(m->m_flags & M_PKTHDR);
    assert_true(asked > 0);
    memset(storage, 0, sizeof(storage));
    for (uint32_t i = 0; i < 50000; i += 777) {
        mbuf_copy_out(m, 40 + i, 1, &byte);
        assert_int_equal(byte, (uint8_t)((i + 7) * 11));
    }
    mbuf_free_chain(&m);
    mbuf_free_chain(&twin);
    assert_int_equal(frees, 1);
    m = packet(2000);
    gone = true;
    assert_int_equal(mbuf_settle(&m), -EIO);
    assert_null(m);
    assert_int_equal(frees, 1);
    m = packet(2000);
    atomic_store(&acct->fail_after, 1);
    assert_int_equal(mbuf_settle(&m), -ENOMEM);
    assert_null(m);
    assert_int_equal(frees, 1);
}

static void test_copies_of_what_is_gone(void **state)
{
    struct mbuf *m = packet(1000), *d;

    assert_true(mbuf_chain_intact(m));
    d = mbuf_dup_contiguous(acct, m);
    assert_non_null(d);
    assert_memory_equal(d->m_data + 40, storage + 7, 1000);
    mbuf_free_chain(&d);
    gone = true;
    assert_false(mbuf_chain_intact(m));
    assert_null(mbuf_dup_contiguous(acct, m));
    assert_null(mbuf_pullup(m, 60)); /* frees it */
    assert_int_equal(frees, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {BUF_TEST(test_references_stay_references),
                                       BUF_TEST(test_settle),
                                       BUF_TEST(test_copies_of_what_is_gone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
