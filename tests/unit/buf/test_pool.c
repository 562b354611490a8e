/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: pools hand each object to one holder at a time, also when one thread allocates what another
 * frees; they keep to kern.ipc.nmbclusters, survive a failing allocator, and give all memory back.
 * Bound: 200,000 buffers over two threads, 10 s. */
#include "buf_unit.h"

#include "base/sysctl.h"
#include "buf/pool.h"

#include <pthread.h>
#include <sched.h>

#define HAND_OVERS 200000
#define RING 256

static struct mbuf *_Atomic ring[RING];

static void *consumer(void *arg)
{
    for (uint32_t i = 0; i < HAND_OVERS; i++) {
        struct mbuf *m;
        while ((m = atomic_exchange(&ring[i % RING], NULL)) == NULL)
            sched_yield();
        assert_int_equal(*(uint32_t *)(void *)m->m_data, i); /* nobody else wrote to it */
        mbuf_free_chain(&m);
    }
    mbuf_thread_exit();
    return NULL;
}

static void test_two_threads(void **state)
{
    static const size_t sizes[] = {100, 1000, 100, 10000, 100, 60000};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, consumer, NULL), 0);
    for (uint32_t i = 0; i < HAND_OVERS; i++) {
        struct mbuf *m = mbuf_get_size(acct, sizes[i % NELEM(sizes)]);
        assert_non_null(m);
        memcpy(m->m_data, &i, sizeof(i));
        m->m_len = sizeof(i);
        while (atomic_load(&ring[i % RING]) != NULL)
            sched_yield();
        atomic_store(&ring[i % RING], m);
    }
    pthread_join(t, NULL);
}

/* Far more of each kind than the caches hold, twice: no object is handed out twice, and the surplus
 * of big clusters goes back to the allocator. */
static void test_many_objects(void **state)
{
    enum { MANY = 1000 };
    static struct mbuf *m[MANY];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            m[i] = mbuf_get_size(
                acct, i % 4 == 0 ? 60000 : (i % 4 == 1 ? 10000 : (i % 4 == 2 ? 1000 : 10)));
            memset(m[i]->m_data, i & 0xff, mbuf_trailing(m[i]));
        }
        for (int i = 0; i < MANY; i++) {
            for (uint32_t k = 0; k < mbuf_storage(m[i]); k += 7)
                assert_int_equal(m[i]->m_data[k], i & 0xff);
        }
        for (int i = 0; i < MANY; i++)
            mbuf_free_chain(&m[i]);
    }
    assert_true(atomic_load(&unit_bytes) < (64 + 16) * 65536 * 2 + 4 * 1000 * 1000 * 10);
}

static void test_process_limit(void **state)
{
    int64_t old = KNOB_P(kern_nmbclusters);
    STORE_RELAXED(&process_knobs.kern_nmbclusters, 512); /* 1 MB */
    static struct mbuf *m[64];
    int n = 0;
    while (n < 64 && (m[n] = mbuf_get_size(acct, 60000)) != NULL)
        n++;
    assert_in_range(n, 10, 15);
    assert_true(LOAD_RELAXED(&acct->denied) > 0);
    mbuf_free_chain(&m[--n]);
    m[n] = mbuf_get_size(acct, 60000);
    assert_non_null(m[n]); /* a normal event: it goes on */
    for (; n >= 0; n--)
        mbuf_free_chain(&m[n]);
    STORE_RELAXED(&process_knobs.kern_nmbclusters, old);
}

/* What another thread freed, and clusters of another size, do not starve whoever wants one. */
static struct mbuf *hoard[64];
static _Atomic int hoarded, hoarder_turn;

static void *hoarder(void *arg)
{
    for (int i = 0; i < atomic_load(&hoarded); i++)
        mbuf_free_chain(&hoard[i]);
    atomic_store(&hoarder_turn, 1);
    while (atomic_load(&hoarder_turn) != 2)
        sched_yield();
    mbuf_thread_relieve(); /* memory was short: its magazines go to the depot */
    atomic_store(&hoarder_turn, 3);
    while (atomic_load(&hoarder_turn) != 4)
        sched_yield();
    mbuf_thread_exit();
    return NULL;
}

static void test_hoarded_memory_is_found(void **state)
{
    int64_t old = KNOB_P(kern_nmbclusters);
    pthread_t t;
    int n = 0;
    STORE_RELAXED(&process_knobs.kern_nmbclusters, 512);
    while (n < 64 && (hoard[n] = mbuf_get_size(acct, 60000)) != NULL)
        n++;
    assert_in_range(n, 10, 15);
    atomic_store(&hoarded, n);
    assert_int_equal(pthread_create(&t, NULL, hoarder, NULL), 0);
    while (atomic_load(&hoarder_turn) != 1)
        sched_yield();
    /* Little or nothing is left outside of the other's magazines. */
    for (n = 0; (hoard[n] = mbuf_get_size(acct, 10000)) != NULL; n++)
        assert_in_range(n, 0, 9);
    atomic_store(&hoarder_turn, 2);
    while (atomic_load(&hoarder_turn) != 3)
        sched_yield();
    for (int end = n + 20; n < end; n++) {
        hoard[n] = mbuf_get_size(acct, 10000);
        assert_non_null(hoard[n]);
    }
    while (n > 0)
        mbuf_free_chain(&hoard[--n]);
    atomic_store(&hoarder_turn, 4);
    pthread_join(t, NULL);
    STORE_RELAXED(&process_knobs.kern_nmbclusters, old);
}

/* The allocator fails at each of its calls in turn; frees must work without any memory. */
static void test_failing_allocator(void **state)
{
    for (int64_t nth = 1; nth < 40; nth++) {
        static struct mbuf *m[400];
        atomic_store(&unit_fail_after, nth);
        for (int i = 0; i < 400; i++)
            m[i] = mbuf_get_size(acct, i % 3 * 3000);
        for (int i = 0; i < 400; i++)
            mbuf_free_chain(&m[i]);
        atomic_store(&unit_fail_after, 0);
        int64_t mbufs, bytes;
        mbuf_usage(&mbufs, &bytes);
        assert_int_equal(mbufs, 0);
        assert_int_equal(bytes, 0);
        mbuf_pools_drain();
    }
}

static void *hold_some(void *arg)
{
    struct mbuf **m = arg;
    *m = mbuf_get_size(acct, 1000);
    assert_non_null(*m);
    mbuf_thread_exit();
    return NULL;
}

/* A thread that leaves hands its cache over, and what it allocated may come home from another. */
static void test_thread_exit(void **state)
{
    struct mbuf *m = NULL;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, hold_some, &m), 0);
    pthread_join(t, NULL);
    mbuf_pools_drain(); /* cannot free the slabs yet */
    assert_true(atomic_load(&unit_bytes) > 0);
    memset(m->m_data, 1, 1000);
    mbuf_free_chain(&m);
}

/* Threads that sleep on credits they have not settled must not make an account look full. */
enum { FREERS = 80, EACH = 15 };
static _Atomic uint32_t freed;
static _Atomic bool go_home;

static void *free_and_idle(void *arg)
{
    struct mbuf **m = arg;
    for (int i = 0; i < EACH; i++)
        mbuf_free_chain(&m[i]);
    atomic_fetch_add(&freed, 1);
    while (!atomic_load(&go_home))
        sched_yield();
    mbuf_thread_exit();
    return NULL;
}

static void test_idle_freers_do_not_use_up_the_limit(void **state)
{
    static struct mbuf *m[FREERS * EACH];
    pthread_t t[FREERS];
    int n;
    STORE_RELAXED(&acct->limit, INT64_C(80) << 20);
    for (n = 0; n < FREERS * EACH; n++)
        assert_non_null(m[n] = mbuf_get_size(acct, 60000)); /* 75 MB */
    mbuf_account_settle(acct);
    for (int i = 0; i < FREERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, free_and_idle, &m[i * EACH]), 0);
    while (atomic_load(&freed) < FREERS)
        sched_yield();
    for (n = 0; n < FREERS * EACH; n++)
        assert_non_null(m[n] = mbuf_get_size(acct, 60000));
    for (; n > 0; n--)
        mbuf_free_chain(&m[n - 1]);
    atomic_store(&go_home, true);
    for (int i = 0; i < FREERS; i++)
        pthread_join(t[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_two_threads),
        BUF_TEST(test_many_objects),
        BUF_TEST(test_process_limit),
        BUF_TEST(test_failing_allocator),
        BUF_TEST(test_thread_exit),
        BUF_TEST(test_hoarded_memory_is_found),
        BUF_TEST(test_idle_freers_do_not_use_up_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
