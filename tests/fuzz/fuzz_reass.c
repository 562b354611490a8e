/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: in whatever pieces, order and overlap a stream arrives, with whatever limits and memory,
 * what becomes in order is the stream, what came first stays, the queue's sums are exact, and the
 * SACK blocks reported tell of bytes that are held. Bound: 500 segments an input.
 *
 * The neighbours of tcp_reass.c are played here. A byte carries its sequence number and, where the
 * input says so, a tag of its segment: of conflicting copies the first must stay. */
#include "fuzz.h"

#include "base/lock.h"
#include "buf/mbuf.h"
#include "tcp/tcp_in.h"

#define MAX_SEGMENTS 500
#define STREAM 20000u /* bytes of sequence space in play */

LOCK_CLASS(fuzz_rcv_class, "fuzz_rcv");

static struct weir_stack st;
static struct tcp_state tcp;
static struct socket so;
static struct tcpcb tcb;
static uint8_t first[STREAM]; /* the first copy of a byte that was taken */
static bool held[STREAM];
static uint32_t irs; /* sequence number of byte 0 */
static uint32_t delivered;
static bool fail_alloc;

void so_readable(struct socket *s)
{
}

void tcp_rcvbuf_grow(struct tcpcb *tp, uint32_t len)
{
}

static void *some_alloc(void *ctx, size_t size)
{
    return fail_alloc ? NULL : aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void some_free(void *ctx, void *p, size_t size)
{
    free(p);
}

static const struct weir_alloc alloc = {some_alloc, some_free, NULL};

static void reass_open(struct fuzz_in *in)
{
    static const uint32_t origins[] = {0, 1000, UINT32_MAX - 5000, (1u << 31) - 5000};
    memset(&st, 0, sizeof(st));
    memset(&tcp, 0, sizeof(tcp));
    memset(&so, 0, sizeof(so));
    memset(&tcb, 0, sizeof(tcb));
    memset(held, 0, sizeof(held));
    delivered = 0;
    fail_alloc = false;
    irs = origins[fuzz_below(in, NELEM(origins))];
    st.alloc = alloc;
    mbuf_pools_init(&alloc);
    st.account = mbuf_account_create(INT64_C(1) << 30);
    FUZZ_CHECK(st.account);
    st.tcp = &tcp;
    sysctl_init(&st.knobs);
    uint8_t limits = fuzz_u8(in);
    STORE_RELAXED(&st.knobs.tcp_reass_maxqueuelen, limits & 1 ? 3 : 100);
    STORE_RELAXED(&st.knobs.tcp_reass_maxsegments, limits & 2 ? 5 : 10000);
    sockbuf_init(&so.so_rcv, &fuzz_rcv_class, limits & 4 ? 2500 : 65536);
    so.so_stack = &st;
    tcb.t_stack = &st;
    tcb.t_so = &so;
    tcb.t_state = TCPS_ESTABLISHED;
    tcb.t_flags = TF_SACK_PERMIT;
    tcb.rcv_nxt = tcb.last_ack_sent = irs;
    ranges_init(&tcb.t_reass);
}

/* What went to so_rcv is the first copy of each byte. */
static void check_delivered(void)
{
    uint32_t n = tcb.rcv_nxt - irs, skip = delivered;
    FUZZ_CHECK(n >= delivered && n <= STREAM + 1);
    FUZZ_CHECK(sockbuf_used(&so.so_rcv) <= n &&
               n - sockbuf_used(&so.so_rcv) <= 1); /* a FIN has a number only */
    n = sockbuf_used(&so.so_rcv);
    uint32_t at = 0;
    for (const struct mbuf *m = so.so_rcv.sb_mb; m; at += m->m_len, m = m->m_next)
        for (uint32_t i = skip > at ? skip - at : 0; i < m->m_len; i++)
            FUZZ_CHECK(held[at + i] && m->m_data[i] == first[at + i]);
    FUZZ_CHECK(at == n);
    delivered = n;
}

static void check_queue(void)
{
    uint32_t bytes = 0, count = 0, end = tcb.rcv_nxt;
    for (const struct range *r = ranges_first(&tcb.t_reass); r; r = ranges_next(r), count++) {
        FUZZ_CHECK(SEQ_LT(r->start, r->end) && SEQ_GT(r->start, end));
        end = r->end;
        bytes += r->end - r->start;
    }
    FUZZ_CHECK(bytes == tcb.t_reass_bytes && count == tcb.t_reass.count);
    FUZZ_CHECK(tcb.t_reass_segs >= count && tcb.t_reass_segs == tcp.reass_segs);
    FUZZ_CHECK((int64_t)count <= KNOB(&st, tcp_reass_maxqueuelen) + 1);
}

static void check_sack(bool dsack)
{
    struct sack_block b[4];
    unsigned n = tcp_sack_report(&tcb, b, 4);
    FUZZ_CHECK(n <= 4);
    for (unsigned i = dsack ? 1 : 0; i < n; i++) {
        const struct range *r = ranges_find(&tcb.t_reass, b[i].start);
        FUZZ_CHECK(SEQ_LT(b[i].start, b[i].end) && r && SEQ_LEQ(r->start, b[i].start) &&
                   SEQ_GEQ(r->end, b[i].end));
    }
}

/* Which bytes of the segment are new to what is held; noted as firsts if they were taken. */
static void note_taken(uint32_t off, const uint8_t *bytes, uint32_t len)
{
    const struct range *r = ranges_find(&tcb.t_reass, irs + off);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t seq = irs + off + i;
        while (r && SEQ_LEQ(r->end, seq))
            r = ranges_next(r);
        bool now = SEQ_LT(seq, tcb.rcv_nxt) || (r && SEQ_LEQ(r->start, seq));
        if (now && !held[off + i])
            first[off + i] = bytes[i];
        held[off + i] = now; /* bytes that the queue gave up may come again */
    }
}

static void segment(struct fuzz_in *in)
{
    static uint8_t bytes[4096];
    uint8_t kind = fuzz_u8(in), tag = kind & 0x10 ? fuzz_u8(in) : 0;
    uint32_t off = kind & 1 ? tcb.rcv_nxt - irs : fuzz_u16(in) % STREAM,
             len = fuzz_u8(in) * (kind & 2 ? 16u : 1u);
    off = MIN(off, STREAM - 1);
    len = MIN(len, STREAM - off);
    struct tcp_segment seg = {.seq = irs + off, .len = len, .segs = 1, .flags = TH_ACK};
    if ((kind & 0xe0) == 0xe0)
        seg.flags |= TH_FIN;
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((off + i) * 7 + tag);
    if (len) {
        seg.m = mbuf_get_size(st.account, MAX(len, kind & 4 ? 2000u : 0));
        FUZZ_CHECK(seg.m);
        seg.m->m_flags |= M_PKTHDR;
        seg.m->m_pkt = (struct mbuf_pkt){.len = len, .segs = 1};
        seg.m->m_len = len;
        memcpy(seg.m->m_data, bytes, len);
    }
    if (SEQ_LT(seg.seq, tcb.rcv_nxt)) { /* as input trims it */
        uint32_t old = MIN(tcb.rcv_nxt - seg.seq, len);
        tcp_segment_trim_head(&seg, old);
    }
    if (SEQ_LT(seg.seq, tcb.rcv_nxt) || (!seg.len && !(seg.flags & TH_FIN))) {
        mbuf_free_chain(&seg.m);
        return;
    }
    if (tcb.t_reass_fin && SEQ_GEQ(tcb.rcv_nxt, tcb.t_reass_finseq)) {
        mbuf_free_chain(&seg.m);
        return;
    }
    fail_alloc = (kind & 0xe8) == 0x48;
    if (fail_alloc)
        atomic_store(&st.account->fail_after, 1 + (kind & 1));
    int fin = tcp_reass(&tcb, &seg);
    fail_alloc = false;
    atomic_store(&st.account->fail_after, -1);
    FUZZ_CHECK(!seg.m && (fin == 0 || fin == TH_FIN));
    note_taken(off, bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    int64_t mbufs, bytes;
    reass_open(&in);
    for (int i = 0; i < MAX_SEGMENTS && in.left; i++) {
        segment(&in);
        check_delivered();
        check_queue();
        check_sack(tcb.t_dsack_pending);
        tcb.t_dsack_pending = false;
    }
    tcp_reass_flush(&tcb);
    FUZZ_CHECK(tcp.reass_segs == 0 && tcb.t_reass_bytes == 0);
    sockbuf_fini(&so.so_rcv);
    mbuf_usage(&mbufs, &bytes);
    FUZZ_CHECK(mbufs == 0 && bytes == 0);
    mbuf_account_drop(st.account);
    return 0;
}

/* Seeds: in order, backwards, every second one, overlapping. */
static void seed(unsigned i, struct fuzz_out *o)
{
    fuzz_put8(o, i);
    fuzz_put8(o, i >> 2);
    for (unsigned k = 0; k < 40; k++) {
        unsigned place = i & 1 ? 39 - k : (k * 7) % 40;
        fuzz_put8(o, k % 9 == 8 ? 1 : (i & 2 ? 0x10 : 0));
        if (k % 9 != 8 && (i & 2))
            fuzz_put8(o, k);
        if (k % 9 != 8)
            fuzz_put16(o, place * 100);
        fuzz_put8(o, i & 4 ? 130 : 100);
    }
    fuzz_put8(o, 0xe0);
    fuzz_put16(o, 4000);
    fuzz_put8(o, 10);
}

const struct fuzz_target fuzz_target = {"fuzz_reass", 2048, 16, seed};
