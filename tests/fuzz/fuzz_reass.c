/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: in whatever pieces, order and overlap a stream arrives, with whatever limits and memory,
 * what becomes in order is the stream, what came first stays, the queue's sums are exact, the SACK
 * blocks reported tell of bytes that are held; and the two forms of the queue deliver the same
 * bytes and report the same blocks as long as no limit is met. Bound: 500 segments an input.
 *
 * The neighbours of tcp_reass.c are played here. A byte carries its sequence number and, where the
 * input says so, a tag of its segment: of conflicting copies the first must stay. */
#include "fuzz.h"

#include "base/lock.h"
#include "buf/mbuf.h"
#include "tcp/tcp_reass.h"

#define MAX_SEGMENTS 500
#define STREAM 20000u /* bytes of sequence space in play */

LOCK_CLASS(fuzz_rcv_class, "fuzz_rcv");

enum { CHAIN, LIST, FORMS };

/* A receiving connection of each form. */
static struct receiver {
    struct weir_stack st;
    struct tcp_state tcp;
    struct socket so;
    struct tcpcb tcb;
    uint8_t first[STREAM]; /* the first copy of a byte that was taken */
    bool held[STREAM];
    uint32_t delivered;
    int fin;
    struct sack_block sack[4];
    unsigned nsack;
} receivers[FORMS], *rx;

static struct mbuf_account *account;
static uint32_t irs; /* sequence number of byte 0 */
static bool fail_alloc;
static bool alike; /* no limit was met and no memory was refused: the forms must agree */

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

static void receiver_open(int form, uint8_t limits)
{
    rx = &receivers[form];
    memset(rx, 0, sizeof(*rx));
    rx->st.alloc = alloc;
    rx->st.account = account;
    rx->st.tcp = &rx->tcp;
    sysctl_init(&rx->st.knobs);
    STORE_RELAXED(&rx->st.knobs.tcp_reass_algorithm, form == CHAIN);
    STORE_RELAXED(&rx->st.knobs.tcp_reass_maxqueuelen, limits & 1 ? 3 : 1000);
    STORE_RELAXED(&rx->st.knobs.tcp_reass_maxsegments, limits & 2 ? 5 : 10000);
    STORE_RELAXED(&rx->st.knobs.tcp_reass_new_limit, limits & 8 ? 1 : 0);
    sockbuf_init(&rx->so.so_rcv, &fuzz_rcv_class, limits & 4 ? 2500 : 1 << 20);
    rx->so.so_stack = &rx->st;
    rx->tcb.t_stack = &rx->st;
    rx->tcb.t_so = &rx->so;
    rx->tcb.t_state = TCPS_ESTABLISHED;
    rx->tcb.t_flags = TF_SACK_PERMIT;
    rx->tcb.rcv_nxt = rx->tcb.last_ack_sent = irs;
    ranges_init(&rx->tcb.t_reass);
    TAILQ_INIT(&rx->tcb.t_reass_list);
}

static void reass_open(struct fuzz_in *in)
{
    static const uint32_t origins[] = {0, 1000, UINT32_MAX - 5000, (1u << 31) - 5000};
    fail_alloc = false;
    irs = origins[fuzz_below(in, NELEM(origins))];
    mbuf_pools_init(&alloc);
    account = mbuf_account_create(INT64_C(1) << 30);
    FUZZ_CHECK(account);
    uint8_t limits = fuzz_u8(in);
    if (limits < 128) /* half of the inputs meet none */
        limits = 0;
    alike = (limits & 15) == 0;
    for (int form = 0; form < FORMS; form++)
        receiver_open(form, limits);
}

/* The runs of contiguous text in the queue. */
struct run_walk {
    const struct range *r;
    const struct reass_segment *e;
};

static void runs_begin(struct run_walk *w)
{
    *w = (struct run_walk){ranges_first(&rx->tcb.t_reass), TAILQ_FIRST(&rx->tcb.t_reass_list)};
}

static bool runs_next(struct run_walk *w, struct sack_block *run)
{
    if (w->r) {
        *run = (struct sack_block){w->r->start, w->r->end};
        w->r = ranges_next(w->r);
        return true;
    }
    if (!w->e)
        return false;
    *run = (struct sack_block){w->e->start, w->e->end};
    while ((w->e = TAILQ_NEXT(w->e, link)) != NULL && w->e->start == run->end)
        run->end = w->e->end;
    return true;
}

/* What went to so_rcv is the first copy of each byte. */
static void check_delivered(void)
{
    uint32_t n = rx->tcb.rcv_nxt - irs, skip = rx->delivered;
    FUZZ_CHECK(n >= rx->delivered && n <= STREAM + 1);
    FUZZ_CHECK(sockbuf_used(&rx->so.so_rcv) <= n &&
               n - sockbuf_used(&rx->so.so_rcv) <= 1); /* a FIN has a number only */
    n = sockbuf_used(&rx->so.so_rcv);
    uint32_t at = 0, off;
    for (const struct mbuf *m = sockbuf_head(&rx->so.so_rcv, &off); m;
         at += m->m_len, m = m->m_next)
        for (uint32_t i = skip > at ? skip - at : 0; i < m->m_len; i++)
            FUZZ_CHECK(rx->held[at + i] && m->m_data[i] == rx->first[at + i]);
    FUZZ_CHECK(at == n);
    rx->delivered = n;
}

static void check_queue(void)
{
    uint32_t bytes = 0, count = 0, segs = 0, end = rx->tcb.rcv_nxt;
    struct run_walk w;
    struct sack_block run;
    runs_begin(&w);
    for (; runs_next(&w, &run); count++) {
        FUZZ_CHECK(SEQ_LT(run.start, run.end) && SEQ_GT(run.start, end));
        end = run.end;
        bytes += run.end - run.start;
    }
    FUZZ_CHECK(bytes == rx->tcb.t_reass_bytes && rx->tcb.t_reass_segs == rx->tcp.reass_segs);
    if (rx == &receivers[CHAIN]) {
        FUZZ_CHECK(count == rx->tcb.t_reass.count && !rx->tcb.t_reass_entries);
        FUZZ_CHECK(rx->tcb.t_reass_segs >= count);
        FUZZ_CHECK((int64_t)count <= KNOB(&rx->st, tcp_reass_maxqueuelen));
        return;
    }
    FUZZ_CHECK(!rx->tcb.t_reass.count && count <= rx->tcb.t_reass_entries);
    FUZZ_CHECK((int64_t)rx->tcb.t_reass_entries <= KNOB(&rx->st, tcp_reass_maxqueuelen));
    const struct reass_segment *e;
    count = 0;
    TAILQ_FOREACH (e, &rx->tcb.t_reass_list, link) {
        FUZZ_CHECK(mbuf_chain_len(e->m) == e->end - e->start);
        segs += e->segs;
        count++;
    }
    FUZZ_CHECK(segs == rx->tcb.t_reass_segs && count == rx->tcb.t_reass_entries);
}

static void check_sack(bool dsack)
{
    struct sack_block *b = rx->sack, run;
    unsigned n = rx->nsack = tcp_sack_report(&rx->tcb, b, 4);
    FUZZ_CHECK(n <= 4);
    for (unsigned i = dsack ? 1 : 0; i < n; i++) {
        struct run_walk w;
        bool found = false;
        runs_begin(&w);
        while (!found && runs_next(&w, &run))
            found = run.start == b[i].start && run.end == b[i].end;
        FUZZ_CHECK(found && SEQ_LT(b[i].start, b[i].end));
    }
}

/* Which bytes of the segment are new to what is held; noted as firsts if they were taken. */
static void note_taken(uint32_t off, const uint8_t *bytes, uint32_t len)
{
    struct run_walk w;
    struct sack_block run;
    runs_begin(&w);
    bool more = runs_next(&w, &run);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t seq = irs + off + i;
        while (more && SEQ_LEQ(run.end, seq))
            more = runs_next(&w, &run);
        bool now = SEQ_LT(seq, rx->tcb.rcv_nxt) || (more && SEQ_LEQ(run.start, seq));
        if (now && !rx->held[off + i])
            rx->first[off + i] = bytes[i];
        rx->held[off + i] = now; /* bytes that the queue gave up may come again */
    }
}

/* A segment as the input tells it. */
struct told {
    uint8_t kind;
    uint32_t off, len;
    uint8_t bytes[4096];
};

static void receive(const struct told *t)
{
    struct tcp_segment seg = {.seq = irs + t->off, .len = t->len, .segs = 1, .flags = TH_ACK};
    if ((t->kind & 0xe0) == 0xe0)
        seg.flags |= TH_FIN;
    rx->fin = 0;
    if (t->len) {
        seg.m = mbuf_get_size(rx->st.account, MAX(t->len, t->kind & 4 ? 2000u : 0));
        FUZZ_CHECK(seg.m);
        seg.m->m_flags |= M_PKTHDR;
        seg.m->m_pkt = (struct mbuf_pkt){.len = t->len, .segs = 1};
        seg.m->m_len = t->len;
        memcpy(seg.m->m_data, t->bytes, t->len);
    }
    if (SEQ_LT(seg.seq, rx->tcb.rcv_nxt)) { /* as input trims it */
        uint32_t old = MIN(rx->tcb.rcv_nxt - seg.seq, t->len);
        tcp_segment_trim_head(&seg, old);
    }
    bool nothing = SEQ_LT(seg.seq, rx->tcb.rcv_nxt) || (!seg.len && !(seg.flags & TH_FIN)) ||
                   (rx->tcb.t_reass_fin && SEQ_GEQ(rx->tcb.rcv_nxt, rx->tcb.t_reass_finseq));
    if (nothing) {
        mbuf_free_chain(&seg.m);
        return;
    }
    fail_alloc = (t->kind & 0xe8) == 0x48;
    if (fail_alloc) {
        alike = false;
        atomic_store(&rx->st.account->fail_after, 1 + (t->kind & 1));
    }
    rx->fin = tcp_reass(&rx->tcb, &seg);
    fail_alloc = false;
    atomic_store(&rx->st.account->fail_after, -1);
    FUZZ_CHECK(!seg.m && (rx->fin == 0 || rx->fin == TH_FIN));
    note_taken(t->off, t->bytes, t->len);
}

static void check_alike(void)
{
    const struct receiver *a = &receivers[CHAIN], *b = &receivers[LIST];
    alike = alike && COUNTER_READ(&a->st, tcp_reass_limit) == 0 &&
            COUNTER_READ(&b->st, tcp_reass_limit) == 0;
    if (!alike)
        return;
    FUZZ_CHECK(a->tcb.rcv_nxt == b->tcb.rcv_nxt && a->fin == b->fin);
    FUZZ_CHECK(a->tcb.t_reass_bytes == b->tcb.t_reass_bytes);
    FUZZ_CHECK(a->nsack == b->nsack &&
               memcmp(a->sack, b->sack, a->nsack * sizeof(a->sack[0])) == 0);
    FUZZ_CHECK(memcmp(a->held, b->held, sizeof(a->held)) == 0);
    for (uint32_t i = 0; i < STREAM; i++)
        FUZZ_CHECK(!a->held[i] || a->first[i] == b->first[i]);
}

static void segment(struct fuzz_in *in)
{
    static struct told t;
    t.kind = fuzz_u8(in);
    uint8_t tag = t.kind & 0x10 ? fuzz_u8(in) : 0;
    uint32_t next = receivers[CHAIN].tcb.rcv_nxt - irs;
    t.off = t.kind & 1 ? next : fuzz_u16(in) % STREAM;
    t.len = fuzz_u8(in) * (t.kind & 2 ? 16u : 1u);
    t.off = MIN(t.off, STREAM - 1);
    t.len = MIN(t.len, STREAM - t.off);
    for (uint32_t i = 0; i < t.len; i++)
        t.bytes[i] = (uint8_t)((t.off + i) * 7 + tag);
    for (int form = 0; form < FORMS; form++) {
        rx = &receivers[form];
        receive(&t);
        check_delivered();
        check_queue();
        check_sack(rx->tcb.t_dsack_pending);
    }
    check_alike();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    int64_t mbufs, bytes;
    reass_open(&in);
    for (int i = 0; i < MAX_SEGMENTS && in.left; i++)
        segment(&in);
    for (int form = 0; form < FORMS; form++) {
        rx = &receivers[form];
        tcp_reass_flush(&rx->tcb);
        FUZZ_CHECK(rx->tcp.reass_segs == 0 && rx->tcb.t_reass_bytes == 0);
        tcp_reass_drain(&rx->st);
        sockbuf_fini(&rx->so.so_rcv);
    }
    mbuf_usage(&mbufs, &bytes);
    FUZZ_CHECK(mbufs == 0 && bytes == 0);
    mbuf_account_drop(account);
    return 0;
}

/* Seeds: in order, backwards, every second one, overlapping. */
static void seed(unsigned i, struct fuzz_out *o)
{
    fuzz_put8(o, i);
    fuzz_put8(o, i & 8 ? 0x80 | i >> 2 : 0);
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
