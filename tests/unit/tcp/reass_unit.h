/* SPDX-License-Identifier: BSD-2-Clause
 * A connection of nothing but a receive side, with the neighbours of tcp_reass.c played by the
 * test. */
#ifndef WEIR_TESTS_REASS_UNIT_H
#define WEIR_TESTS_REASS_UNIT_H

#include "../buf/buf_unit.h"
#include "base/counter.h"
#include "tcp/tcp_reass.h"

LOCK_CLASS(unit_rcv_class, "unit_rcv");

static struct weir_stack st;
static struct tcp_state tcp;
static struct socket so;
static struct tcpcb tcb;
static unsigned wakeups;
static bool unit_list; /* net.inet.tcp.reass.algorithm for what is opened next */

void so_readable(struct socket *s)
{
    wakeups++;
}

void tcp_rcvbuf_grow(struct tcpcb *tp, uint32_t len)
{
}

static void unit_open(uint32_t rcv_nxt, uint32_t hiwat)
{
    memset(&st, 0, sizeof(st));
    memset(&tcp, 0, sizeof(tcp));
    memset(&so, 0, sizeof(so));
    memset(&tcb, 0, sizeof(tcb));
    st.alloc = unit_alloc;
    st.account = acct;
    st.tcp = &tcp;
    sysctl_init(&st.knobs);
    STORE_RELAXED(&st.knobs.tcp_reass_algorithm, !unit_list);
    sockbuf_init(&so.so_rcv, &unit_rcv_class, hiwat);
    so.so_stack = &st;
    tcb.t_stack = &st;
    tcb.t_so = &so;
    tcb.t_state = TCPS_ESTABLISHED;
    tcb.t_flags = TF_SACK_PERMIT;
    tcb.rcv_nxt = tcb.last_ack_sent = rcv_nxt;
    ranges_init(&tcb.t_reass);
    TAILQ_INIT(&tcb.t_reass_list);
    wakeups = 0;
}

static void unit_close(void)
{
    tcp_reass_flush(&tcb);
    assert_int_equal(tcp.reass_segs, 0);
    tcp_reass_drain(&st);
    sockbuf_fini(&so.so_rcv);
}

/* Hand a segment to tcp_reass as input does: what is below rcv_nxt is trimmed. storage: of its
 * mbuf. */
static int unit_segment(uint32_t seq, const uint8_t *bytes, uint32_t len, uint8_t flags,
                        uint32_t storage)
{
    struct tcp_segment seg = {.seq = seq, .len = len, .segs = 1, .flags = TH_ACK | flags};

    if (len) {
        seg.m = mbuf_get_size(acct, MAX(len, storage));
        assert_non_null(seg.m);
        seg.m->m_flags |= M_PKTHDR;
        seg.m->m_pkt.len = seg.m->m_len = len;
        memcpy(seg.m->m_data, bytes, len);
    }
    if (SEQ_LT(seq, tcb.rcv_nxt))
        tcp_segment_trim_head(&seg, MIN(tcb.rcv_nxt - seq, len));
    if (SEQ_LT(seg.seq, tcb.rcv_nxt) || (seg.len == 0 && len))
        return 0;
    return tcp_reass(&tcb, &seg);
}

/* The runs of contiguous text in the queue; returns how many there are. */
UNUSED static uint32_t unit_runs(struct sack_block *out, uint32_t max)
{
    uint32_t n = 0;

    for (const struct range *r = ranges_first(&tcb.t_reass); r; r = ranges_next(r)) {
        if (n < max)
            out[n] = (struct sack_block){r->start, r->end};
        n++;
    }
    struct reass_segment *e;
    TAILQ_FOREACH (e, &tcb.t_reass_list, link) {
        if (n && n <= max && out[n - 1].end == e->start) {
            out[n - 1].end = e->end;
            continue;
        }
        if (n < max)
            out[n] = (struct sack_block){e->start, e->end};
        n++;
    }
    return n;
}

/* Entries: blocks, or segments. */
UNUSED static uint32_t unit_entries(void)
{
    return unit_list ? tcb.t_reass_entries : tcb.t_reass.count;
}

/* The invariants of the queue: entries disjoint, all beyond rcv_nxt, blocks that do not touch,
 * sums exact. */
UNUSED static void unit_check_queue(void)
{
    uint32_t bytes = 0, count = 0, segs = 0, mem = 0, end = tcb.rcv_nxt + 1;
    struct reass_segment *e;

    for (const struct range *r = ranges_first(&tcb.t_reass); r; r = ranges_next(r)) {
        assert_true(SEQ_LT(r->start, r->end));
        assert_true(SEQ_GEQ(r->start, end));
        bytes += r->end - r->start;
        count++;
        end = r->end + 1;
    }
    assert_int_equal(count, tcb.t_reass.count);
    assert_true(tcb.t_reass_segs >= count);
    TAILQ_FOREACH (e, &tcb.t_reass_list, link) {
        assert_true(SEQ_LT(e->start, e->end) && SEQ_GEQ(e->start, end));
        assert_int_equal(mbuf_chain_len(e->m), e->end - e->start);
        bytes += e->end - e->start;
        segs += e->segs;
        mem += e->mem;
        count++;
        end = e->end;
    }
    assert_int_equal(tcb.t_reass.count ? 0 : count, tcb.t_reass_entries);
    assert_true(!tcb.t_reass_entries || (segs == tcb.t_reass_segs && mem == tcb.t_reass_mem));
    assert_int_equal(bytes, tcb.t_reass_bytes);
    assert_int_equal(tcb.t_reass_segs, tcp.reass_segs);
}

/* Run a test program over both forms. */
#define UNIT_RUN_FORMS(tests)                                                                      \
    do {                                                                                           \
        unit_list = false;                                                                         \
        int failed = cmocka_run_group_tests_name("chain", tests, NULL, NULL);                      \
        unit_list = true;                                                                          \
        return failed + cmocka_run_group_tests_name("list", tests, NULL, NULL);                    \
    } while (0)

UNUSED static void unit_expect_stream(const uint8_t *bytes, uint32_t len)
{
    assert_int_equal(sockbuf_used(&so.so_rcv), len);
    uint32_t off;
    const struct mbuf *m = sockbuf_head(&so.so_rcv, &off);
    assert_int_equal(off, 0);
    if (len)
        expect_bytes(m, bytes, len);
}

#define UNIT_COUNTER(id) ((uint64_t)COUNTER_READ(&st, id))

#endif
