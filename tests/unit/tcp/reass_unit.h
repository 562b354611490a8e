/* SPDX-License-Identifier: BSD-2-Clause
 * A connection of nothing but a receive side, with the neighbours of tcp_reass.c played by the
 * test. */
#ifndef WEIR_TESTS_REASS_UNIT_H
#define WEIR_TESTS_REASS_UNIT_H

#include "../buf/buf_unit.h"
#include "base/counter.h"
#include "tcp/tcp_in.h"

LOCK_CLASS(unit_rcv_class, "unit_rcv");

static struct weir_stack st;
static struct tcp_state tcp;
static struct socket so;
static struct tcpcb tcb;
static unsigned wakeups;

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
    sockbuf_init(&so.so_rcv, &unit_rcv_class, hiwat);
    so.so_stack = &st;
    tcb.t_stack = &st;
    tcb.t_so = &so;
    tcb.t_state = TCPS_ESTABLISHED;
    tcb.t_flags = TF_SACK_PERMIT;
    tcb.rcv_nxt = tcb.last_ack_sent = rcv_nxt;
    ranges_init(&tcb.t_reass);
    wakeups = 0;
}

static void unit_close(void)
{
    tcp_reass_flush(&tcb);
    assert_int_equal(tcp.reass_segs, 0);
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

/* The invariants of the queue: disjoint blocks that do not touch, all beyond rcv_nxt, sums exact.
 */
UNUSED static void unit_check_queue(void)
{
    uint32_t bytes = 0, count = 0;
    const struct range *prev = NULL;

    for (const struct range *r = ranges_first(&tcb.t_reass); r; r = ranges_next(r)) {
        assert_true(SEQ_LT(r->start, r->end));
        assert_true(SEQ_GT(r->start, prev ? prev->end : tcb.rcv_nxt));
        bytes += r->end - r->start;
        count++;
        prev = r;
    }
    assert_int_equal(bytes, tcb.t_reass_bytes);
    assert_int_equal(count, tcb.t_reass.count);
    assert_true(tcb.t_reass_segs >= count);
    assert_int_equal(tcb.t_reass_segs, tcp.reass_segs);
}

UNUSED static void unit_expect_stream(const uint8_t *bytes, uint32_t len)
{
    assert_int_equal(sockbuf_used(&so.so_rcv), len);
    if (len)
        expect_bytes(so.so_rcv.sb_mb, bytes, len);
}

#define UNIT_COUNTER(id) ((uint64_t)COUNTER_READ(&st, id))

#endif
