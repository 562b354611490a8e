/* SPDX-License-Identifier: BSD-2-Clause
 * Pools over the counting allocator, and chains with known contents, for the tests of buf. */
#ifndef WEIR_TESTS_BUF_UNIT_H
#define WEIR_TESTS_BUF_UNIT_H

#include "../base/unit.h"
#include "buf/mbuf.h"

static struct mbuf_account *acct;

UNUSED static int buf_setup(void **state)
{
    mbuf_pools_init(&unit_alloc);
    acct = mbuf_account_create(INT64_C(1) << 30);
    return acct == NULL ? -1 : 0;
}

/* Every test ends with all mbufs returned, and all memory. */
UNUSED static int buf_teardown(void **state)
{
    int64_t mbufs, bytes;
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    assert_int_equal(bytes, 0);
    mbuf_account_drop(acct);
    mbuf_pools_drain();
    assert_int_equal(atomic_load(&unit_bytes), 0);
    return 0;
}

#define BUF_TEST(f) cmocka_unit_test_setup_teardown(f, buf_setup, buf_teardown)

UNUSED static void expect_bytes(const struct mbuf *m, const uint8_t *bytes, uint32_t len)
{
    assert_int_equal(mbuf_chain_len(m), len);
    uint32_t at = 0;
    for (; m != NULL; m = m->m_next) {
        assert_true(m->m_data >= mbuf_start(m));
        assert_true(m->m_data + m->m_len <= mbuf_start(m) + mbuf_storage(m));
        if (m->m_len > 0)
            assert_memory_equal(m->m_data, bytes + at, m->m_len);
        at += m->m_len;
    }
}

/* A chain that holds `len` of the bytes, in pieces of random size and storage. */
UNUSED static struct mbuf *random_chain(struct rng *r, const uint8_t *bytes, uint32_t len)
{
    struct mbuf *head = NULL, **tail = &head;
    do {
        uint32_t piece = rng_below(r, rng_below(r, 2) ? 200 : 4000);
        piece = MIN(piece, len);
        struct mbuf *m = mbuf_get_size(acct, piece + rng_below(r, 3) * rng_below(r, 20000));
        assert_non_null(m);
        m->m_data += rng_below(r, mbuf_storage(m) - piece + 1);
        memcpy(m->m_data, bytes, piece);
        m->m_len = piece;
        bytes += piece;
        len -= piece;
        *tail = m;
        tail = &m->m_next;
    } while (len > 0);
    return head;
}

#endif
