/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever the order, overlap and size of segments, the stream that reassembly delivers is
 * the first-received bytes, its sums are exact, its limits hold, and its cost stays logarithmic.
 * Bound: under 10 s. */
#include "reass_unit.h"

static uint64_t ranges_steps;
#define RANGES_STEP() (ranges_steps++)
#include "buf/ranges.c"

#define SPACE 4096u

/* What the stream must be: the first byte that came for each place. */
struct model {
    uint8_t bytes[SPACE];
    bool have[SPACE];
    uint32_t next;
};

static void model_add(struct model *m, uint32_t at, const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (!m->have[at + i]) {
            m->have[at + i] = true;
            m->bytes[at + i] = bytes[i];
        }
    }
    while (m->next < SPACE && m->have[m->next])
        m->next++;
}

static void random_round(struct rng *r, uint32_t base)
{
    struct model *m = calloc(1, sizeof(*m));
    uint8_t bytes[1500];
    uint32_t reach = 1 + rng_below(r, 1499);

    assert_non_null(m);
    unit_open(base, 1 << 20);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, 100000);
    for (int i = 0; i < 4000 && m->next < SPACE; i++) {
        uint32_t at = rng_below(r, 4) == 0 ? m->next : rng_below(r, SPACE);
        uint32_t len = 1 + rng_below(r, reach);
        if (at == SPACE)
            break;
        len = MIN(len, SPACE - at);
        rng_bytes(r, bytes, len);
        assert_int_equal(unit_segment(base + at, bytes, len, 0, rng_below(r, 3) * 2000), 0);
        model_add(m, at, bytes, len);
        assert_int_equal(tcb.rcv_nxt - base, m->next);
        unit_check_queue();
    }
    unit_expect_stream(m->bytes, m->next);
    unit_close();
    free(m);
}

/* case: SEC-056 */
static void test_any_order(void **state)
{
    static const uint32_t bases[] = {0,          1,          0xffffffff, 0xfffffffe,
                                     0x7fffffff, 0x80000000, 0xfffff800, 12345};
    struct rng r;

    unit_seed(&r, "any_order");
    for (int i = 0; i < 160; i++)
        random_round(&r, bases[i % NELEM(bases)]);
}

/* case: SEC-005 */
static void test_conflicting_overlap(void **state)
{
    static const uint32_t piece[3][2] = {{100, 200}, {150, 250}, {50, 300}};
    static const uint8_t order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    uint8_t bytes[300], head[50];

    memset(head, 'H', sizeof(head));
    for (int o = 0; o < 6; o++) {
        struct model *m = calloc(1, sizeof(*m));
        unit_open(1000, 65536);
        for (int k = 0; k < 3; k++) {
            const uint32_t *p = piece[order[o][k]];
            memset(bytes, 'A' + order[o][k], sizeof(bytes));
            unit_segment(1000 + p[0], bytes, p[1] - p[0], 0, 0);
            model_add(m, p[0], bytes, p[1] - p[0]);
            unit_check_queue();
        }
        assert_int_equal(tcb.rcv_nxt, 1000);
        unit_segment(1000, head, 50, 0, 0);
        model_add(m, 0, head, 50);
        unit_expect_stream(m->bytes, 300);
        unit_close();
        free(m);
    }
}

/* All 13 relations that two intervals can have. case: SEC-005 */
static void test_interval_relations(void **state)
{
    static const uint32_t other[13][2] = {
        {100, 110}, {100, 120}, {100, 130}, {100, 140}, {100, 150}, {120, 130}, {120, 140},
        {120, 150}, {125, 135}, {125, 140}, {130, 150}, {140, 150}, {145, 150}};
    uint8_t a[64], b[64], gap[256];

    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    memset(gap, 'g', sizeof(gap));
    for (int i = 0; i < 13; i++) {
        struct model *m = calloc(1, sizeof(*m));
        unit_open(7, 65536);
        unit_segment(7 + 120, a, 20, 0, 0);
        model_add(m, 120, a, 20);
        unit_segment(7 + other[i][0], b, other[i][1] - other[i][0], 0, 0);
        model_add(m, other[i][0], b, other[i][1] - other[i][0]);
        unit_check_queue();
        unit_segment(7, gap, 160, 0, 0);
        model_add(m, 0, gap, 160);
        unit_expect_stream(m->bytes, 160);
        unit_close();
        free(m);
    }
}

enum { N = 65536 };
/* case: FUN-097 */
static void test_single_bytes(void **state)
{
    const uint32_t n = unit_list ? 4096 : N; /* the list takes quadratic time */
    static uint8_t bytes[N];
    static uint32_t order[N];
    struct rng r;

    unit_seed(&r, "single_bytes");
    rng_bytes(&r, bytes, n);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = rng_below(&r, i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    unit_open(0xffff0000, 1 << 26);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, n);
    for (uint32_t i = 0; i < n; i++)
        unit_segment(0xffff0000 + order[i], bytes + order[i], 1, 0, 0);
    unit_check_queue();
    unit_expect_stream(bytes, n);
    unit_close();
}

/* case: SEC-002 */
static void test_limits(void **state)
{
    uint8_t bytes[4000] = {0};

    unit_open(1, 65536);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, 10);
    for (uint32_t i = 0; i < 20; i++)
        unit_segment(1 + 10 + i * 20, bytes, 10, 0, 0);
    assert_int_equal(unit_entries(), 10);
    assert_int_equal(UNIT_COUNTER(tcp_reass_limit), 10);
    /* What touches a block needs no new one; in the list each segment has its own. */
    unit_segment(1 + 20, bytes, 10, 0, 0);
    assert_int_equal(UNIT_COUNTER(tcp_reass_limit), unit_list ? 11 : 10);
    unit_check_queue();
    /* The left edge is taken at the limit, and drains what it completes. */
    unit_segment(1, bytes, 10, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 1 + (unit_list ? 20 : 40));
    unit_check_queue();
    /* The sum over all connections. */
    atomic_store(&st.knobs.tcp_reass_maxsegments, tcp.reass_segs);
    unit_segment(1 + 1000, bytes, 10, 0, 0);
    assert_int_equal(UNIT_COUNTER(tcp_reass_global_limit), 1);
    unit_segment(tcb.rcv_nxt, bytes, 10, 0, 0);
    assert_int_equal(UNIT_COUNTER(tcp_reass_global_limit), 1);
    unit_close();
    /* Memory: single bytes in big buffers, none touching. */
    unit_open(1, 65536);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, 1 << 20);
    for (uint32_t i = 1; i < 65535; i += 2)
        unit_segment(1 + i, bytes, 1, 0, 2048);
    assert_true(UNIT_COUNTER(tcp_reass_limit) > 0);
    assert_true(tcb.t_reass_mem <= LOAD_RELAXED(&so.so_rcv.sb_memmax));
    int64_t mbufs, held;
    mbuf_usage(&mbufs, &held);
    assert_true(held <= 2 * (int64_t)LOAD_RELAXED(&so.so_rcv.sb_memmax));
    unit_close();
}

/* case: SEC-004 */
static void test_fill_at_limit(void **state)
{
    uint8_t bytes[100];

    unit_open(0, 1 << 20);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, 8);
    for (int round = 0; round < 1000; round++) {
        uint32_t base = tcb.rcv_nxt;
        memset(bytes, round, sizeof(bytes));
        for (uint32_t i = 1; i <= 12; i++)
            unit_segment(base + i * 20, bytes, 10, 0, 0);
        assert_int_equal(unit_entries(), 8);
        for (uint32_t i = 0; i <= 8; i++) {
            unit_segment(base + i * 20, bytes, 10, 0, 0);
            unit_segment(base + i * 20 + 10, bytes, 10, 0, 0);
            unit_check_queue();
        }
        assert_int_equal(tcb.rcv_nxt, base + 180);
        assert_int_equal(unit_entries(), 0);
        assert_int_equal(tcp.reass_segs, 0);
        sockbuf_flush(&so.so_rcv);
    }
    unit_close();
}

/* case: FUN-031 */
static void test_nothing_beyond_fin(void **state)
{
    uint8_t bytes[64];

    memset(bytes, 'x', sizeof(bytes));
    for (int late = 0; late < 2; late++) {
        unit_open(100, 65536);
        if (late) /* what lies beyond the FIN came before it */
            assert_int_equal(unit_segment(115, bytes, 15, 0, 0), 0);
        assert_int_equal(unit_segment(110, bytes, 10, TH_FIN, 0), 0);
        assert_int_equal(unit_segment(120, bytes, 10, 0, 0), 0);
        assert_int_equal(unit_segment(118, bytes, 10, TH_FIN, 0), 0);
        unit_check_queue();
        assert_int_equal(tcb.t_reass_bytes, 10);
        assert_int_equal(unit_segment(100, bytes, 10, 0, 0), TH_FIN);
        assert_int_equal(tcb.rcv_nxt, 120);
        unit_expect_stream(bytes, 20);
        unit_close();
    }
    /* A FIN alone, out of order, then the hole. */
    unit_open(100, 65536);
    assert_int_equal(unit_segment(105, NULL, 0, TH_FIN, 0), 0);
    assert_int_equal(unit_segment(100, bytes, 5, 0, 0), TH_FIN);
    unit_close();
}

static void test_delivery_wakes_once(void **state)
{
    uint8_t bytes[1000] = {0};

    unit_open(0, 65536);
    for (uint32_t i = 1; i < 10; i++)
        unit_segment(i * 1000, bytes, 1000, 0, 0);
    assert_int_equal(unit_entries(), unit_list ? 9 : 1);
    assert_int_equal(tcb.t_reass_segs, 9);
    assert_int_equal(wakeups, 0);
    unit_segment(0, bytes, 1000, 0, 0);
    assert_int_equal(wakeups, 1);
    assert_int_equal(sockbuf_used(&so.so_rcv), 10000);
    unit_close();
}

/* FreeBSD's other limit: beyond queueguard entries only what is worth an mbuf gets one. */
static void test_new_limit(void **state)
{
    uint8_t bytes[300] = {0};

    unit_open(1, 65536);
    atomic_store(&st.knobs.tcp_reass_new_limit, 1);
    atomic_store(&st.knobs.tcp_reass_queueguard, 4);
    for (uint32_t i = 1; i <= 8; i++)
        unit_segment(1 + i * 1000, bytes, 100, 0, 0);
    assert_int_equal(unit_entries(), 5);
    assert_int_equal(UNIT_COUNTER(tcp_reass_limit), 3);
    unit_segment(1 + 8000, bytes, 300, 0, 0);
    assert_int_equal(unit_entries(), 6);
    unit_segment(1, bytes, 100, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 101);
    unit_check_queue();
    unit_close();
}

static void window_free(struct mbuf_ext *e)
{
    (void)e;
}

/* A segment in storage that may vanish. */
static void volatile_segment(struct mbuf_ext *e, uint32_t seq, uint32_t len)
{
    struct tcp_segment seg = {.seq = seq, .len = len, .segs = 1, .flags = TH_ACK};

    seg.m = mbuf_get_ext(acct, e, e->buf, len, M_RDONLY | M_VOLATILE);
    assert_non_null(seg.m);
    seg.m->m_flags |= M_PKTHDR;
    seg.m->m_pkt.len = len;
    assert_int_equal(tcp_reass(&tcb, &seg), 0);
}

/* What lies in a window on a file is not copied on its way through the queue: nobody would ask
 * whether the file was cut meanwhile. case: FUN-136 */
static void test_volatile_text_stays_where_it_is(void **state)
{
    static uint8_t storage[100000], bytes[1000];
    struct mbuf_ext e;
    uint32_t off, of_file = 0;

    assert_true(mbuf_ext_init(&e, NULL, storage, sizeof(storage), window_free));
    unit_open(1, 65536);
    unit_segment(101, bytes, 100, 0, 0);
    volatile_segment(&e, 201, 100); /* there is room for it behind the one before */
    volatile_segment(&e, 501, 100); /* it is alone */
    unit_segment(301, bytes, 200, 0, 0);
    unit_check_queue();
    unit_segment(1, bytes, 100, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 601);
    for (const struct mbuf *m = sockbuf_head(&so.so_rcv, &off); m; m = sockbuf_next(m))
        of_file += m->m_flags & M_VOLATILE ? m->m_len : 0;
    assert_int_equal(of_file, 200);
    unit_close();
    mbuf_ext_drop(&e);
}

/* One segment over many that are held, in order and out of order: only gaps are taken, and what it
 * brought is counted once. */
static void test_spans_many(void **state)
{
    uint8_t bytes[1000], want[1000];

    for (int filled = 0; filled < 2; filled++) {
        memset(bytes, 'a', sizeof(bytes));
        memset(want, 'b', sizeof(want));
        unit_open(0xffffff00, 65536);
        for (uint32_t i = 1; i < 10; i++) {
            unit_segment(0xffffff00 + i * 100, bytes, 30, 0, 0);
            memset(want + i * 100, 'a', 30);
        }
        assert_int_equal(tcb.t_reass_segs, 9);
        memset(bytes, 'b', sizeof(bytes));
        if (filled) { /* first all but a byte */
            unit_segment(0xffffff00 + 1, bytes + 1, 999, 0, 0);
            unit_check_queue();
            assert_int_equal(tcb.t_reass_segs, 10);
            assert_int_equal(tcb.t_reass_bytes, 999);
            struct sack_block b[4];
            assert_int_equal(tcp_sack_report(&tcb, b, 4), 1);
            assert_int_equal(b[0].end - b[0].start, 999);
            assert_int_equal(unit_entries(), unit_list ? 19 : 1);
        }
        unit_segment(0xffffff00, bytes, 1000, 0, 0);
        unit_expect_stream(want, 1000);
        assert_int_equal(tcp.reass_segs, 0);
        assert_int_equal(wakeups, 1);
        unit_close();
    }
}

/* The knob may change at any time: a queue keeps its form until it is empty. */
static void test_form_may_change(void **state)
{
    uint8_t bytes[100] = {0};

    unit_open(0, 65536);
    unit_segment(100, bytes, 100, 0, 0);
    STORE_RELAXED(&st.knobs.tcp_reass_algorithm, unit_list);
    unit_segment(300, bytes, 100, 0, 0);
    assert_int_equal(unit_entries(), 2);
    unit_segment(0, bytes, 100, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 200);
    assert_int_equal(unit_entries(), 1);
    unit_segment(200, bytes, 100, 0, 0);
    assert_int_equal(tcb.rcv_nxt, 400);
    unit_segment(500, bytes, 100, 0, 0);
    assert_int_equal(unit_list ? tcb.t_reass.count : tcb.t_reass_entries, 1);
    assert_int_equal(unit_entries(), 0);
    unit_check_queue();
    unit_segment(400, bytes, 100, 0, 0);
    assert_int_equal(sockbuf_used(&so.so_rcv), 600);
    unit_close();
}

/* Memory fails at every place where it can: nothing leaks, the sums stay exact, what was kept is
 * delivered. */
static void test_no_memory(void **state)
{
    uint8_t bytes[3000];
    struct rng r;

    unit_seed(&r, "no_memory");
    for (int64_t n = 1; n < 60; n++) {
        unit_open(0, 1 << 20);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t at = rng_below(&r, 4000), len = 1 + rng_below(&r, 3000);
            struct tcp_segment seg = {.seq = at, .len = len, .segs = 1, .flags = TH_ACK};
            memset(bytes, (int)at, sizeof(bytes));
            if (SEQ_LT(at, tcb.rcv_nxt))
                continue;
            seg.m = mbuf_from_bytes(acct, bytes, len);
            atomic_store(&unit_fail_after, rng_below(&r, 2) ? n : 0);
            atomic_store(&acct->fail_after, rng_below(&r, 3) ? 1 + (int64_t)rng_below(&r, 3) : -1);
            tcp_reass(&tcb, &seg);
            atomic_store(&unit_fail_after, 0);
            atomic_store(&acct->fail_after, -1);
            assert_null(seg.m);
            unit_check_queue();
        }
        unit_close();
    }
}

/* --- cost: steps in the tree, all that grows with the queue --- */

static uint64_t steps_per_segment(uint32_t queued, const uint32_t *order, uint32_t probes)
{
    uint64_t before;
    uint8_t byte = 1;

    unit_open(0, 1 << 30);
    atomic_store(&st.knobs.tcp_reass_maxqueuelen, 1 << 24);
    atomic_store(&st.knobs.tcp_reass_maxsegments, 1 << 28);
    for (uint32_t i = 0; i + probes < queued; i++)
        unit_segment(1 + 2 * order[i], &byte, 1, 0, 0);
    before = ranges_steps;
    for (uint32_t i = queued - probes; i < queued; i++)
        unit_segment(1 + 2 * order[i], &byte, 1, 0, 0);
    before = ranges_steps - before;
    assert_int_equal(tcb.t_reass.count, queued);
    unit_close();
    return before / probes;
}

/* case: SEC-001 */
static void test_cost_is_logarithmic(void **state)
{
    if (unit_list)
        return; /* it is not: docs/reassembly.md */
    enum { SMALL = 100, BIG = 20000 };
    static uint32_t order[BIG];
    static const char *const name[] = {"ascending", "descending", "random"};
    struct rng r;

    unit_seed(&r, "cost");
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t i = 0; i < BIG; i++)
            order[i] = kind == 1 ? BIG - 1 - i : i;
        for (uint32_t i = BIG - 1; kind == 2 && i > 0; i--) {
            uint32_t j = rng_below(&r, i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        uint64_t small = steps_per_segment(SMALL, order, 50);
        uint64_t big = steps_per_segment(BIG, order, 1000);
        printf("%s: %u steps a segment at %d blocks, %u at %d\n", name[kind], (unsigned)small,
               SMALL, (unsigned)big, BIG);
        /* A red-black tree is at most 2 log2(n + 1) high; a look-up, an insertion, and a look-up
         * for each of six SACK blocks. */
        assert_in_range(big, 1, 8 * 2 * 15);
        assert_true(big <= 3 * small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUF_TEST(test_any_order),
        BUF_TEST(test_conflicting_overlap),
        BUF_TEST(test_interval_relations),
        BUF_TEST(test_single_bytes),
        BUF_TEST(test_limits),
        BUF_TEST(test_fill_at_limit),
        BUF_TEST(test_nothing_beyond_fin),
        BUF_TEST(test_delivery_wakes_once),
        BUF_TEST(test_no_memory),
        BUF_TEST(test_new_limit),
        BUF_TEST(test_spans_many),
        BUF_TEST(test_volatile_text_stays_where_it_is),
        BUF_TEST(test_form_may_change),
        BUF_TEST(test_cost_is_logarithmic),
    };
    UNIT_RUN_FORMS(tests);
}
