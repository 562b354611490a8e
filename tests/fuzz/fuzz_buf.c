/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a socket buffer is the array of bytes that it models, whatever is appended, referenced,
 * dropped and copied in whatever order with memory running out; mbuf operations keep lengths and
 * bytes; ranges stay what a sorted array is. Bound: 400 operations an input. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/lock.h"
#include "buf/ranges.h"
#include "buf/sockbuf.h"

#define MAX_OPS 400
#define MODEL_MAX (1u << 18)
#define WITNESSES 8

LOCK_CLASS(fuzz_lock_class, "fuzz_sockbuf");

static struct mbuf_account *acct;

static void *plain_alloc(void *ctx, size_t size)
{
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void plain_free(void *ctx, void *p, size_t size)
{
    free(p);
}

static const struct weir_alloc plain = {plain_alloc, plain_free, NULL};

/* The endless stream that all bytes are of, written down once. */
#define PERIOD (1u << 18)
static uint8_t stream_bytes[PERIOD];

static uint8_t byte_of(uint32_t n)
{
    return stream_bytes[n % PERIOD];
}

static void make_stream(void)
{
    if (stream_bytes[1] != 0)
        return;
    for (uint32_t i = 0; i < PERIOD; i++)
        stream_bytes[i] = (uint8_t)((i * UINT32_C(2654435761)) >> 24);
}

static bool is_stream(const uint8_t *p, uint32_t start, uint32_t len)
{
    while (len > 0) {
        uint32_t at = start % PERIOD, n = MIN(len, PERIOD - at);
        if (memcmp(p, stream_bytes + at, n) != 0)
            return false;
        p += n;
        start += n;
        len -= n;
    }
    return true;
}

/* --- the stream: byte k of the buffer is byte_of(start + k) --- */
struct stream {
    struct sockbuf sb;
    uint32_t start, len;
    struct {
        struct mbuf *m;
        uint32_t start, len;
    } seen[WITNESSES]; /* references taken, and what they must go on to show */
};

static void expect(const struct mbuf *m, uint32_t start, uint32_t len)
{
    uint32_t at = 0;
    FUZZ_CHECK(mbuf_chain_len(m) == len);
    for (; m; m = m->m_next) {
        FUZZ_CHECK(m->m_data >= mbuf_start(m) &&
                   m->m_data + m->m_len <= mbuf_start(m) + mbuf_storage(m));
        FUZZ_CHECK(is_stream(m->m_data, start + at, m->m_len));
        at += m->m_len;
    }
}

static struct mbuf *chain(struct fuzz_in *in, uint32_t start, uint32_t len)
{
    struct mbuf *head = NULL, **tail = &head;
    unsigned pieces = 0;
    do {
        uint32_t piece = ++pieces < 8 ? fuzz_u16(in) : len, room = fuzz_u8(in) * 100u;
        piece = MIN(piece, len);
        struct mbuf *m = mbuf_get_size(acct, piece + room);
        if (!m) {
            mbuf_free_chain(&head);
            return NULL;
        }
        piece = MIN(piece, mbuf_storage(m));
        m->m_data += (mbuf_storage(m) - piece) * (room & 3) / 3;
        for (uint32_t i = 0; i < piece; i++)
            m->m_data[i] = byte_of(start + i);
        m->m_len = piece;
        start += piece;
        len -= piece;
        *tail = m;
        tail = &m->m_next;
    } while (len > 0);
    head->m_flags |= M_PKTHDR;
    head->m_pkt = (struct mbuf_pkt){.len = mbuf_chain_len(head), .segs = 1};
    return head;
}

static void stream_append(struct stream *s, struct fuzz_in *in)
{
    uint8_t kind = fuzz_u8(in);
    uint32_t len = kind < 128 ? kind : kind < 224 ? fuzz_u16(in) % 1500 : fuzz_u16(in);
    len = MIN(len, MODEL_MAX - s->len);
    struct mbuf *m = chain(in, s->start + s->len, len);
    if (!m)
        return;
    sockbuf_append_stream(&s->sb, &m);
    FUZZ_CHECK(!m);
    s->len += len;
}

static void stream_ref(struct stream *s, struct fuzz_in *in)
{
    unsigned i = fuzz_below(in, WITNESSES);
    if (s->seen[i].m)
        expect(s->seen[i].m, s->seen[i].start, s->seen[i].len);
    mbuf_free_chain(&s->seen[i].m);
    if (!s->len)
        return;
    uint32_t off = fuzz_u32(in) % s->len, len = 1 + fuzz_u16(in) % (s->len - off);
    s->seen[i].m = sockbuf_ref(&s->sb, acct, off, len);
    s->seen[i].start = s->start + off;
    s->seen[i].len = len;
}

static void stream_check(struct stream *s)
{
    const struct mbuf *last = NULL;
    uint32_t off;
    const struct mbuf *first = sockbuf_head(&s->sb, &off);
    expect(first, s->start - off, s->len + off);
    FUZZ_CHECK(sockbuf_used(&s->sb) == s->len);
    FUZZ_CHECK(sockbuf_mem(&s->sb) == (first ? mbuf_chain_mem(first) : 0));
    for (const struct mbuf *m = first; m; m = m->m_next) {
        FUZZ_CHECK(m->m_len > (m == first ? off : 0));
        last = m;
    }
    FUZZ_CHECK(s->sb.sb_tail == last);
}

static void stream_op(struct stream *s, struct fuzz_in *in)
{
    static uint8_t out[MODEL_MAX];
    uint32_t n;
    switch (fuzz_u8(in) % 6) {
    case 0:
    case 1:
        stream_append(s, in);
        break;
    case 2:
    case 3:
        stream_ref(s, in);
        break;
    case 4:
        n = fuzz_u32(in) % (s->len + 1);
        sockbuf_copy_out(&s->sb, n, s->len - n, out);
        FUZZ_CHECK(is_stream(out, s->start + n, s->len - n));
        break;
    default:
        n = fuzz_u8(in) == 255 ? s->len : fuzz_u16(in) % (s->len + 1);
        sockbuf_drop(&s->sb, n);
        s->start += n;
        s->len -= n;
    }
    stream_check(s);
}

static void fuzz_stream(struct fuzz_in *in)
{
    static struct stream s;
    memset(&s, 0, sizeof(s));
    sockbuf_init(&s.sb, &fuzz_lock_class, 65536);
    for (int i = 0; i < MAX_OPS && in->left; i++) {
        uint8_t fail = fuzz_u8(in);
        if (fail >= 0xf0)
            atomic_store(&acct->fail_after, 1 + (fail & 7));
        stream_op(&s, in);
        atomic_store(&acct->fail_after, -1);
    }
    sockbuf_fini(&s.sb);
    for (size_t i = 0; i < WITNESSES; i++) {
        if (s.seen[i].m)
            expect(s.seen[i].m, s.seen[i].start, s.seen[i].len);
        mbuf_free_chain(&s.seen[i].m);
    }
}

/* --- one packet: bytes start .. start + len --- */
struct packet {
    struct mbuf *m;
    uint32_t start, len;
};

static void packet_cut(struct packet *k, struct fuzz_in *in)
{
    uint32_t n = fuzz_u16(in) % (k->len + 1);
    if (fuzz_u8(in) & 1) {
        mbuf_trim_head(&k->m, n);
        k->start += n;
    } else {
        mbuf_trim_tail(k->m, n);
    }
    k->len -= n;
}

static void packet_split(struct packet *k, struct fuzz_in *in)
{
    if (k->len < 2)
        return;
    uint32_t n = 1 + fuzz_u16(in) % (k->len - 1);
    struct mbuf *rest = mbuf_split(k->m, n);
    if (!rest)
        return;
    expect(rest, k->start + n, k->len - n);
    if (fuzz_u8(in) & 1) {
        mbuf_cat(k->m, rest);
        k->m->m_pkt.len = k->len;
    } else {
        mbuf_free_chain(&rest);
        k->len = n;
    }
}

static void packet_op(struct packet *k, struct fuzz_in *in)
{
    uint32_t n;
    struct mbuf *m;
    switch (fuzz_u8(in) % 6) {
    case 0:
        packet_cut(k, in);
        break;
    case 1:
        packet_split(k, in);
        break;
    case 2: /* fails when it is too short: the chain is gone then */
        n = fuzz_below(in, (uint32_t)(MBUF_INLINE - MBUF_HEADROOM));
        k->m = mbuf_pullup(k->m, n);
        FUZZ_CHECK(!k->m || (n <= k->len && k->m->m_len >= n));
        break;
    case 3:
        n = fuzz_below(in, 64);
        k->m = mbuf_prepend(k->m, n);
        k->start -= n;
        k->len += n;
        for (uint32_t i = 0; k->m && i < n; i++)
            k->m->m_data[i] = byte_of(k->start + i);
        break;
    case 4: {
        uint32_t off = fuzz_u16(in) % (k->len + 1), len = fuzz_u16(in);
        m = mbuf_ref(acct, k->m, off, len);
        FUZZ_CHECK(!m || len <= k->len - off);
        if (m && len)
            expect(m, k->start + off, len);
        mbuf_free_chain(&m);
        break;
    }
    default:
        m = mbuf_dup_contiguous(acct, k->m);
        if (m) {
            FUZZ_CHECK(!m->m_next);
            expect(m, k->start, k->len);
        }
        mbuf_free_chain(&m);
    }
}

static void fuzz_packet(struct fuzz_in *in)
{
    struct packet k = {.start = 1000, .len = fuzz_u16(in)};
    k.m = chain(in, k.start, k.len);
    for (int i = 0; i < MAX_OPS && in->left && k.m; i++) {
        uint8_t fail = fuzz_u8(in);
        if (fail >= 0xe0)
            atomic_store(&acct->fail_after, 1 + (fail & 3));
        packet_op(&k, in);
        atomic_store(&acct->fail_after, -1);
        if (!k.m)
            return;
        expect(k.m, k.start, k.len);
        FUZZ_CHECK(k.m->m_pkt.len == k.len);
    }
    mbuf_free_chain(&k.m);
}

/* --- ranges, against a map of cells --- */
#define CELLS 256

static void fuzz_ranges(struct fuzz_in *in)
{
    static struct range cell[CELLS];
    static bool held[CELLS];
    struct ranges r;
    uint32_t base = fuzz_u32(in), count = 0;
    memset(held, 0, sizeof(held));
    ranges_init(&r);
    for (int i = 0; i < 4 * MAX_OPS && in->left; i++) {
        unsigned c = fuzz_u8(in), k = c;
        if (!held[c]) {
            cell[c].start = base + c * 16 + 3;
            cell[c].end = base + c * 16 + (fuzz_u8(in) & 1 ? 16 : 5);
            ranges_insert(&r, &cell[c]);
            count++;
        } else {
            ranges_remove(&r, &cell[c]);
            count--;
        }
        held[c] = !held[c];
        uint32_t seq = base + fuzz_u16(in) % (CELLS * 16);
        for (k = 0; k < CELLS && !(held[k] && SEQ_GT(cell[k].end, seq));)
            k++;
        FUZZ_CHECK(ranges_find(&r, seq) == (k < CELLS ? &cell[k] : NULL) && r.count == count);
    }
    const struct range *e = ranges_first(&r), *prev = NULL;
    for (unsigned c = 0; c < CELLS; c++) {
        if (!held[c])
            continue;
        FUZZ_CHECK(e == &cell[c] && ranges_prev(e) == prev);
        prev = e;
        e = ranges_next(e);
    }
    FUZZ_CHECK(!e && ranges_last(&r) == prev);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    int64_t mbufs, bytes;
    make_stream();
    mbuf_pools_init(&plain);
    acct = mbuf_account_create(INT64_C(1) << 30);
    FUZZ_CHECK(acct);
    switch (fuzz_u8(&in) % 4) {
    case 0:
    case 1:
        fuzz_stream(&in);
        break;
    case 2:
        fuzz_packet(&in);
        break;
    default:
        fuzz_ranges(&in);
    }
    mbuf_usage(&mbufs, &bytes);
    FUZZ_CHECK(mbufs == 0 && bytes == 0);
    mbuf_account_drop(acct);
    return 0;
}

/* Seeds: a short program of each kind whose operands differ. */
static void seed(unsigned i, struct fuzz_out *o)
{
    fuzz_put8(o, i & 3);
    for (unsigned k = 0; k < 200; k++)
        fuzz_put8(o, (k * (2 * i + 1) * 37) >> (i & 2));
}

const struct fuzz_target fuzz_target = {"fuzz_buf", 2048, 16, seed};
