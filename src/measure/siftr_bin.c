/* SPDX-License-Identifier: BSD-2-Clause
 * The binary form of the flow log.
 *
 * A file is a sequence of pieces; numbers are little-endian. A preamble stands first, and again
 * where a writer went on with an older file:
 *
 *     "\x89SIFTR\r\n"  version (16 bits)  zero (16)  CRC-32C of the 12 bytes before (32)
 *
 * All else are chunks, each readable by itself:
 *
 *     "\xD7SF" kind  length of payload (32 bits)  records (32)  CRC-32C (32)  payload
 *
 * The CRC is that of the 12 bytes before it and the payload. Kind T: the payload is a piece of the
 * lines of the text form that are no records (header, footer). Kind R: records, in order. Readers
 * pass over kinds they do not know, and search for the next marker where a CRC is wrong. Where a
 * chunk ends before its length, its whole records are good: a file grows from front to back.
 *
 * A varint has 7 bits in each byte, the lowest first, the highest bit set in all but the last byte.
 * A difference is a varint of 2d for d >= 0, -2d - 1 else, d being taken modulo the field's width.
 * A record is:
 *
 *     varint  what follows: bit 0: outbound; bit 1: a flow is named; bit 2 + n: field n differs
 *             from the record before in the same flow and chunk
 *     varint  if bit 1: number of the flow in the chunk, in the order of appearance, from 0; else
 *             it is that of the record before
 *     flow    if that number is new: family (1 byte: 4 or 6), local and foreign address (4 or 16
 *             bytes each), local and foreign port (2 each), flowid (4), flowtype (1); the fields of
 *             the record before are then taken as 0
 *     differences of the fields that bits 2 and on tell of, in the order of FIELDS below. Time (ns)
 *             is against the record before in the chunk, of whatever flow (the first: against 0).
 *
 * Fields that change most have the lowest bits: a record of bulk data takes about 20 bytes. */
#include "siftr_record.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

/* X(field, bits): after time_ns, field 0. */
#define FIELDS(X)                                                                                  \
    X(inflight, 32)                                                                                \
    X(snd_fill, 32)                                                                                \
    X(cwnd, 32)                                                                                    \
    X(snd_wnd, 32)                                                                                 \
    X(rcv_fill, 32)                                                                                \
    X(srtt_us, 32)                                                                                 \
    X(rto_us, 32)                                                                                  \
    X(flags, 32)                                                                                   \
    X(rcv_wnd, 32)                                                                                 \
    X(snd_limit, 32)                                                                               \
    X(ssthresh, 32)                                                                                \
    X(reass_segs, 32)                                                                              \
    X(rcv_limit, 32)                                                                               \
    X(flags2, 32)                                                                                  \
    X(state, 8)                                                                                    \
    X(mss, 32)                                                                                     \
    X(snd_scale, 8)                                                                                \
    X(rcv_scale, 8)                                                                                \
    X(sack, 8)

#define BIT_OUT 1u
#define BIT_FLOW 2u
#define BIT_TIME 4u
enum {
    SHIFT_TIME = 2,
#define X(field, bits) SHIFT_##field,
    FIELDS(X)
#undef X
        SHIFT_END
};
/* Of a record: the bits, the number of the flow, its definition, the time, the fields. */
_Static_assert(4 + 2 + (1 + 32 + 4 + 4 + 1) + 10 + 15 * 5 + 4 * 2 <= SIFTR_BIN_RECORD_MAX, "fits");
_Static_assert(SHIFT_END <= 28, "the bits are a varint of four bytes");

static const uint8_t magic[8] = {0x89, 'S', 'I', 'F', 'T', 'R', '\r', '\n'};
static const uint8_t marker[3] = {0xd7, 'S', 'F'};
enum { KIND_RECORDS = 'R', KIND_TEXT = 'T' };

struct chunk_head {
    uint8_t marker[3], kind;
    uint32_t length, records, crc;
};
_Static_assert(sizeof(struct chunk_head) == SIFTR_BIN_HEAD, "no padding");
struct preamble {
    uint8_t magic[8];
    uint16_t version, zero;
    uint32_t crc;
};
_Static_assert(sizeof(struct preamble) == SIFTR_BIN_PREAMBLE, "no padding");

/* ---- CRC-32C (Castagnoli; RFC 3720 B.4) ---- */

static uint32_t crc_plain(uint32_t crc, const uint8_t *p, size_t n)
{
    /* Half a byte a step: only where the processor has no instruction for it. */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (; n > 0; n--) {
        crc ^= *p++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_fast(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t wide = crc, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    for (crc = (uint32_t)wide; n > 0; n--)
        crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
#define HAVE_FAST_CRC __builtin_cpu_supports("sse4.2")
#else
#define crc_fast crc_plain
#define HAVE_FAST_CRC false
#endif

/* Of two ranges, one after the other. */
static uint32_t crc32c(const void *a, size_t a_len, const void *b, size_t b_len)
{
    if (HAVE_FAST_CRC)
        return ~crc_fast(crc_fast(UINT32_MAX, a, a_len), b, b_len);
    return ~crc_plain(crc_plain(UINT32_MAX, a, a_len), b, b_len);
}

static uint32_t chunk_crc(const struct chunk_head *h, const uint8_t *payload)
{
    return crc32c(h, offsetof(struct chunk_head, crc), payload, h->length);
}

/* ---- writing ---- */

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

static uint64_t zigzag64(uint64_t d)
{
    return d << 1 ^ (uint64_t)((int64_t)d >> 63);
}

static uint32_t zigzag32(uint32_t d)
{
    return d << 1 ^ (uint32_t)((int32_t)d >> 31);
}

static uint8_t zigzag8(uint8_t d)
{
    return (uint8_t)(d << 1 ^ (d & 0x80 ? 0xff : 0));
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n)
{
    memcpy(p, bytes, n);
    return p + n;
}

void siftr_bin_preamble(uint8_t out[SIFTR_BIN_PREAMBLE])
{
    struct preamble p = {.version = SIFTR_BIN_VERSION};
    memcpy(p.magic, magic, sizeof(magic));
    p.crc = crc32c(&p, offsetof(struct preamble, crc), NULL, 0);
    memcpy(out, &p, sizeof(p));
}

static void chunk_begin(struct siftr_encoder *e)
{
    if (e->flows.count > 0)
        memset(e->hash, 0, sizeof(e->hash));
    e->flows.count = e->flows.recent = 0;
    e->flows.time_ns = 0;
    e->records = 0;
    e->used = SIFTR_BIN_HEAD;
    e->done = false;
}

static size_t chunk_end(struct siftr_encoder *e, uint8_t kind, const uint8_t **out)
{
    struct chunk_head h = {.kind = kind, .length = e->used - SIFTR_BIN_HEAD, .records = e->records};
    memcpy(h.marker, marker, sizeof(marker));
    h.crc = chunk_crc(&h, e->chunk + SIFTR_BIN_HEAD);
    memcpy(e->chunk, &h, sizeof(h));
    e->done = true;
    *out = e->chunk;
    return e->used;
}

void siftr_encoder_init(struct siftr_encoder *e)
{
    memset(e->hash, 0, sizeof(e->hash));
    e->flows.count = 0;
    chunk_begin(e);
}

static bool same_flow(const struct siftr_record *a, const struct siftr_record *b)
{
    const size_t from = offsetof(struct siftr_record, laddr);
    return memcmp((const char *)a + from, (const char *)b + from, 36) == 0 &&
           a->flowid == b->flowid && a->family == b->family && a->flowtype == b->flowtype;
}
_Static_assert(offsetof(struct siftr_record, direction) - offsetof(struct siftr_record, laddr) ==
                   36,
               "addresses and ports are compared at once");

/* flowid is a keyed hash where it comes from Weir, so that peers cannot choose collisions. */
static uint32_t flow_hash(const struct siftr_record *r)
{
    uint64_t l[2], f[2], h = (uint64_t)r->flowid << 32 | (uint32_t)r->lport << 16 | r->fport;
    memcpy(l, r->laddr, sizeof(l));
    memcpy(f, r->faddr, sizeof(f));
    h = (h ^ l[0] ^ (f[0] << 17 | f[0] >> 47)) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 29 ^ l[1] ^ (f[1] << 17 | f[1] >> 47)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(h >> 32);
}

/* The number of r's flow in the chunk; a new one is entered, and equals the count before. */
static uint32_t find_flow(struct siftr_encoder *e, const struct siftr_record *r)
{
    struct siftr_bin_flows *f = &e->flows;
    uint32_t at = flow_hash(r) % SIFTR_BIN_HASH;
    for (; e->hash[at] != 0; at = (at + 1) % SIFTR_BIN_HASH)
        if (same_flow(&f->last[e->hash[at] - 1], r))
            return e->hash[at] - 1u;
    e->hash[at] = (uint16_t)(f->count + 1);
    return f->count;
}
_Static_assert(SIFTR_BIN_FLOWS < SIFTR_BIN_HASH && SIFTR_BIN_HASH <= UINT16_MAX, "it has a hole");

static uint8_t *put_flow(uint8_t *p, const struct siftr_record *r)
{
    size_t n = r->family == 6 ? 16 : 4;
    *p++ = r->family == 6 ? 6 : 4;
    p = put_bytes(p, r->laddr, n);
    p = put_bytes(p, r->faddr, n);
    p = put_bytes(p, &r->lport, 2);
    p = put_bytes(p, &r->fport, 2);
    p = put_bytes(p, &r->flowid, 4);
    *p++ = r->flowtype;
    return p;
}

/* The fields of `last` that differ in r, by the bits of a record. */
static uint32_t differing(const struct siftr_record *last, const struct siftr_record *r)
{
    uint32_t bits = 0;
#define X(field, width) bits |= (uint32_t)(last->field != r->field) << SHIFT_##field;
    FIELDS(X)
#undef X
    return bits;
}

static uint8_t *put_fields(uint8_t *p, uint32_t bits, const struct siftr_record *last,
                           const struct siftr_record *r)
{
#define X(field, width)                                                                            \
    if (bits & 1u << SHIFT_##field)                                                                \
        p = put_varint(p, zigzag##width((uint##width##_t)(r->field - last->field)));
    FIELDS(X)
#undef X
    return p;
}

size_t siftr_encoder_add(struct siftr_encoder *e, const struct siftr_record *r, const uint8_t **out)
{
    if (e->done)
        chunk_begin(e);
    struct siftr_bin_flows *f = &e->flows;
    bool same = f->count > 0 && same_flow(&f->last[f->recent], r);
    uint32_t flow = same ? f->recent : find_flow(e, r);
    struct siftr_record *last = &f->last[flow];
    bool is_new = flow == f->count;
    if (is_new) {
        memset(last, 0, sizeof(*last));
        f->count++;
    }
    uint32_t bits = differing(last, r) | (r->direction == SIFTR_OUT ? BIT_OUT : 0) |
                    (same ? 0 : BIT_FLOW) | (r->time_ns != f->time_ns ? BIT_TIME : 0);
    uint8_t *p = put_varint(e->chunk + e->used, bits);
    if (!same)
        p = put_varint(p, flow);
    if (is_new)
        p = put_flow(p, r);
    if (bits & BIT_TIME)
        p = put_varint(p, zigzag64(r->time_ns - f->time_ns));
    p = put_fields(p, bits, last, r);
    *last = *r;
    f->recent = flow;
    f->time_ns = r->time_ns;
    e->used = (uint32_t)(p - e->chunk);
    e->records++;
    if (sizeof(e->chunk) - e->used >= SIFTR_BIN_RECORD_MAX && f->count < SIFTR_BIN_FLOWS)
        return 0;
    return chunk_end(e, KIND_RECORDS, out);
}

size_t siftr_encoder_flush(struct siftr_encoder *e, const uint8_t **out)
{
    if (e->done || e->records == 0)
        return 0;
    return chunk_end(e, KIND_RECORDS, out);
}

size_t siftr_encoder_text(struct siftr_encoder *e, const char *text, size_t len,
                          const uint8_t **out)
{
    if (e->done)
        chunk_begin(e);
    CHECK(e->records == 0 && len <= SIFTR_BIN_PAYLOAD_MAX);
    memcpy(e->chunk + SIFTR_BIN_HEAD, text, len);
    e->used = (uint32_t)(SIFTR_BIN_HEAD + len);
    return chunk_end(e, KIND_TEXT, out);
}

/* ---- finding the pieces of a file ---- */

/* Whether buf begins as something does, as far as it goes. */
static bool begins(const uint8_t *buf, size_t len, const uint8_t *with, size_t n)
{
    return memcmp(buf, with, MIN(len, n)) == 0;
}

/* Bytes up to where a piece may begin, at least one. */
static size_t lost_bytes(const uint8_t *buf, size_t len)
{
    for (size_t i = 1; i < len; i++)
        if (begins(buf + i, len - i, marker, sizeof(marker)) ||
            begins(buf + i, len - i, magic, sizeof(magic)))
            return i;
    return len;
}

/* False: buf does not begin with a whole and good one (more: it may, when more is there). */
static bool scan_preamble(const uint8_t *buf, size_t len, struct siftr_piece *o, bool *more)
{
    struct preamble p;
    *more = len < sizeof(p);
    if (*more)
        return false;
    memcpy(&p, buf, sizeof(p));
    if (p.crc != crc32c(&p, offsetof(struct preamble, crc), NULL, 0))
        return false;
    o->kind = p.version == SIFTR_BIN_VERSION ? SIFTR_PIECE_PREAMBLE : SIFTR_PIECE_FUTURE;
    o->version = p.version;
    o->size = sizeof(p);
    return true;
}

static bool scan_chunk(const uint8_t *buf, size_t len, struct siftr_piece *o, bool *more)
{
    struct chunk_head h;
    *more = len < sizeof(h);
    if (*more)
        return false;
    memcpy(&h, buf, sizeof(h));
    if (h.length > SIFTR_BIN_PAYLOAD_MAX)
        return false;
    *more = len - sizeof(h) < h.length;
    if (*more || h.crc != chunk_crc(&h, buf + sizeof(h)))
        return false;
    o->kind = h.kind == KIND_RECORDS ? SIFTR_PIECE_RECORDS
              : h.kind == KIND_TEXT  ? SIFTR_PIECE_TEXT
                                     : SIFTR_PIECE_OTHER;
    o->size = sizeof(h) + h.length;
    o->payload = buf + sizeof(h);
    o->payload_len = h.length;
    o->records = h.records;
    return true;
}

/* Lost bytes may be the beginning of a chunk that was never written to its end. After a failure of
 * power zeros can stand where data were to come: they are no records. */
static void scan_torn(const uint8_t *buf, struct siftr_piece *o)
{
    enum { ZEROS = 8 };
    struct chunk_head h;
    if (o->size <= sizeof(h))
        return;
    memcpy(&h, buf, sizeof(h));
    if (memcmp(h.marker, marker, sizeof(marker)) != 0 || h.kind != KIND_RECORDS ||
        h.length > SIFTR_BIN_PAYLOAD_MAX || o->size - sizeof(h) >= h.length)
        return;
    size_t n = o->size - sizeof(h), zeros = 0;
    while (zeros < n && buf[o->size - 1 - zeros] == 0)
        zeros++;
    o->kind = SIFTR_PIECE_TORN;
    o->payload = buf + sizeof(h);
    o->payload_len = zeros < ZEROS ? n : n - zeros;
    o->records = h.records;
}

void siftr_bin_scan(const uint8_t *buf, size_t len, bool at_end, struct siftr_piece *out)
{
    bool found = false, more = len == 0;
    *out = (struct siftr_piece){.kind = SIFTR_PIECE_MORE};
    if (len > 0 && begins(buf, len, magic, sizeof(magic)))
        found = scan_preamble(buf, len, out, &more);
    else if (len > 0 && begins(buf, len, marker, sizeof(marker)))
        found = scan_chunk(buf, len, out, &more);
    if (found || (more && !at_end) || len == 0)
        return;
    out->kind = SIFTR_PIECE_LOST;
    out->size = lost_bytes(buf, len);
    scan_torn(buf, out);
}

enum siftr_form siftr_form_of(const void *head, size_t len)
{
    const uint8_t *p = head;
    if (len == 0)
        return SIFTR_FORM_EMPTY;
    if (begins(p, len, magic, sizeof(magic)) ||
        (len >= sizeof(marker) && begins(p, len, marker, sizeof(marker))))
        return SIFTR_FORM_BINARY;
    if ((len > 1 && (p[0] == 'i' || p[0] == 'o') && p[1] == ',') ||
        begins(p, len, (const uint8_t *)"enable_time_secs", 16))
        return SIFTR_FORM_TEXT;
    return SIFTR_FORM_UNKNOWN;
}

/* ---- decoding ---- */

void siftr_decoder_begin(struct siftr_decoder *d, const struct siftr_piece *piece)
{
    CHECK(piece->kind == SIFTR_PIECE_RECORDS || piece->kind == SIFTR_PIECE_TORN);
    d->p = piece->payload;
    d->end = piece->payload + piece->payload_len;
    d->left = piece->records;
    d->flows.count = d->flows.recent = 0;
    d->flows.time_ns = 0;
}

static bool take_varint(struct siftr_decoder *d, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; d->p < d->end && shift < 64; shift += 7) {
        uint64_t seven = *d->p & 0x7f;
        if (seven << shift >> shift != seven)
            return false;
        v |= seven << shift;
        if ((*d->p++ & 0x80) == 0) {
            *out = v;
            return v <= max;
        }
    }
    return false;
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

static bool take_bytes(struct siftr_decoder *d, void *out, size_t n)
{
    if ((size_t)(d->end - d->p) < n)
        return false;
    memcpy(out, d->p, n);
    d->p += n;
    return true;
}

/* A new flow of the chunk, with all else zero. */
static bool take_flow(struct siftr_decoder *d)
{
    if (d->flows.count == SIFTR_BIN_FLOWS)
        return false;
    struct siftr_record *r = &d->flows.last[d->flows.count++];
    memset(r, 0, sizeof(*r));
    if (!take_bytes(d, &r->family, 1) || (r->family != 4 && r->family != 6))
        return false;
    size_t n = r->family == 6 ? 16 : 4;
    return take_bytes(d, r->laddr, n) && take_bytes(d, r->faddr, n) &&
           take_bytes(d, &r->lport, 2) && take_bytes(d, &r->fport, 2) &&
           take_bytes(d, &r->flowid, 4) && take_bytes(d, &r->flowtype, 1);
}

static bool take_fields(struct siftr_decoder *d, uint64_t bits, struct siftr_record *r)
{
    uint64_t v = 0;
#define X(field, width)                                                                            \
    if (bits & 1u << SHIFT_##field) {                                                              \
        if (!take_varint(d, UINT##width##_MAX, &v))                                                \
            return false;                                                                          \
        r->field = (uint##width##_t)(r->field + unzigzag(v));                                      \
    }
    FIELDS(X)
#undef X
    return r->sack <= 1;
}

static bool take_record(struct siftr_decoder *d, struct siftr_record *out)
{
    struct siftr_bin_flows *f = &d->flows;
    uint64_t bits, flow = f->recent, time = 0;
    if (!take_varint(d, (1u << SHIFT_END) - 1, &bits))
        return false;
    if ((bits & BIT_FLOW) && !take_varint(d, f->count, &flow))
        return false;
    if (!(bits & BIT_FLOW) && f->count == 0)
        return false;
    if (flow == f->count && !take_flow(d))
        return false;
    if ((bits & BIT_TIME) && !take_varint(d, UINT64_MAX, &time))
        return false;
    struct siftr_record *r = &f->last[flow];
    if (!take_fields(d, bits, r))
        return false;
    f->time_ns += unzigzag(time);
    f->recent = (uint32_t)flow;
    r->time_ns = f->time_ns;
    r->direction = bits & BIT_OUT ? SIFTR_OUT : SIFTR_IN;
    *out = *r;
    return true;
}

int siftr_decoder_next(struct siftr_decoder *d, struct siftr_record *out)
{
    const uint8_t *start = d->p;
    if (d->left == 0)
        return d->p == d->end ? 0 : -EBADMSG;
    if (!take_record(d, out)) {
        d->p = start;
        return -EBADMSG;
    }
    d->left--;
    return 1;
}
