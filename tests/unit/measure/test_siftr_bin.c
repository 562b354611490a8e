/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the binary form of the flow log gives back what was put in, to the last whole chunk of a
 * file that is torn or damaged, takes at most 24 bytes for a record of bulk data, and each chunk
 * can be read alone. Bound: 200,000 random records; files of at most 64 KB are cut at every byte.
 */
#include "siftr_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The CRC without the processor's instruction is reached here only. */
#include "measure/siftr_bin.c"

#define SEED 20230726
#define BULK_RECORDS 100000
#define BULK_BYTES_MAX 24.0

/* A file in memory, and where its pieces end. */
struct file {
    uint8_t *bytes;
    size_t len, room;
    size_t piece_end[4096];
    uint64_t records_by[4096]; /* in the pieces up to there */
    unsigned pieces;
    uint64_t records;
    size_t record_end[256]; /* of the first ones, in the file */
};

static struct siftr_encoder encoder;
static struct siftr_decoder decoder;

static void append(struct file *f, const uint8_t *bytes, size_t n, uint64_t records)
{
    if (n == 0)
        return;
    while (f->room < f->len + n) {
        f->room = f->room ? 2 * f->room : 65536;
        f->bytes = realloc(f->bytes, f->room);
        assert_non_null(f->bytes);
    }
    memcpy(f->bytes + f->len, bytes, n);
    f->len += n;
    assert_true(f->pieces < NELEM(f->piece_end));
    f->piece_end[f->pieces] = f->len;
    f->records_by[f->pieces++] = records;
}

static struct file *new_file(void)
{
    struct file *f = calloc(1, sizeof(*f));
    uint8_t preamble[SIFTR_BIN_PREAMBLE];
    assert_non_null(f);
    siftr_encoder_init(&encoder);
    siftr_bin_preamble(preamble);
    append(f, preamble, sizeof(preamble), 0);
    return f;
}

static void free_file(struct file *f)
{
    free(f->bytes);
    free(f);
}

static void add(struct file *f, const struct siftr_record *r)
{
    const uint8_t *chunk = NULL;
    size_t n = siftr_encoder_add(&encoder, r, &chunk);
    if (f->records < NELEM(f->record_end))
        f->record_end[f->records] = f->len + encoder.used;
    append(f, chunk, n, ++f->records);
}

static void flush(struct file *f)
{
    const uint8_t *chunk = NULL;
    size_t n = siftr_encoder_flush(&encoder, &chunk);
    append(f, chunk, n, f->records);
}

/* What reading gives. */
struct reading {
    struct siftr_record *records; /* up to room */
    size_t room, count, lost;
    unsigned lost_pieces, futures, texts, malformed;
    size_t text_bytes;
};

static void decode_chunk(const struct siftr_piece *piece, struct reading *o)
{
    struct siftr_record r;
    int more;
    siftr_decoder_begin(&decoder, piece);
    while ((more = siftr_decoder_next(&decoder, &r)) > 0) {
        if (o->count < o->room)
            o->records[o->count] = r;
        o->count++;
    }
    o->malformed += more < 0;
}

static void salvage(const struct siftr_piece *piece, struct reading *o)
{
    unsigned malformed = o->malformed;
    decode_chunk(piece, o);
    o->malformed = malformed;
    o->lost += piece->size - SIFTR_BIN_HEAD - (size_t)(decoder.p - piece->payload);
}

static void read_file(const uint8_t *bytes, size_t len, struct reading *o)
{
    struct siftr_piece piece;
    for (size_t at = 0; at < len; at += piece.size) {
        siftr_bin_scan(bytes + at, len - at, true, &piece);
        assert_true(piece.size > 0 && piece.size <= len - at);
        assert_true(piece.kind != SIFTR_PIECE_MORE);
        o->futures += piece.kind == SIFTR_PIECE_FUTURE;
        o->lost_pieces += piece.kind == SIFTR_PIECE_LOST;
        o->lost += piece.kind == SIFTR_PIECE_LOST ? piece.size : 0;
        if (piece.kind == SIFTR_PIECE_TEXT) {
            o->texts++;
            o->text_bytes += piece.payload_len;
        }
        if (piece.kind == SIFTR_PIECE_RECORDS)
            decode_chunk(&piece, o);
        if (piece.kind == SIFTR_PIECE_TORN)
            salvage(&piece, o);
    }
}

/* Text of the records read from the file must be the text of those that went in. */
static void test_there_and_back(void **state)
{
    enum { N = 200000, FLOWS = 3000 };
    struct siftr_random x = {SEED};
    struct siftr_record *in = calloc(N, sizeof(*in)), *flows = calloc(FLOWS, sizeof(*flows));
    struct file *f = new_file();
    struct reading got = {.records = calloc(N, sizeof(*in)), .room = N};
    char want[SIFTR_TEXT_MAX], text[SIFTR_TEXT_MAX];
    print_message("seed %d\n", SEED);
    assert_true(in && flows && got.records);
    for (unsigned i = 0; i < FLOWS; i++)
        random_flow(&x, &flows[i]);
    for (unsigned i = 0; i < N; i++) {
        /* Few flows, then many, then more than a chunk holds. */
        uint32_t among = i < N / 3 ? 3 : i < N / 2 ? 300 : FLOWS;
        struct siftr_record *r = &flows[random_below(&x, among)];
        random_values(&x, r);
        in[i] = *r;
        add(f, r);
        if (random_below(&x, 5000) == 0)
            flush(f);
    }
    flush(f);
    read_file(f->bytes, f->len, &got);
    assert_int_equal(got.count, N);
    assert_int_equal(got.lost + got.malformed, 0);
    for (unsigned i = 0; i < N; i++) {
        assert_memory_equal(&got.records[i], &in[i], sizeof(*in));
        size_t n = siftr_text_record(text, &got.records[i]);
        assert_int_equal(n, siftr_text_record(want, &in[i]));
        assert_memory_equal(text, want, n);
    }
    free_file(f);
    free(in);
    free(flows);
    free(got.records);
}

static void test_bulk_size(void **state)
{
    struct siftr_random x = {SEED};
    struct siftr_bulk b;
    struct file *f = new_file();
    size_t text = 0;
    char line[SIFTR_TEXT_MAX];
    bulk_init(&b);
    for (unsigned i = 0; i < BULK_RECORDS; i++) {
        struct siftr_record r = bulk_next(&b, &x);
        add(f, &r);
        text += siftr_text_record(line, &r);
    }
    flush(f);
    double each = (double)f->len / BULK_RECORDS;
    print_message("%.2f bytes a record of bulk data, %.1f as text\n", each,
                  (double)text / BULK_RECORDS);
    assert_true(each <= BULK_BYTES_MAX);
    free_file(f);
}

/* A small file: records of several flows, text, some chunks. */
static struct file *small_file(void)
{
    struct siftr_random x = {SEED};
    struct siftr_record flows[3] = {0};
    struct file *f = new_file();
    const uint8_t *chunk;
    size_t n = siftr_encoder_text(&encoder, "enable_time_secs=1\n", 19, &chunk);
    append(f, chunk, n, 0);
    for (unsigned i = 0; i < 3; i++)
        random_flow(&x, &flows[i]);
    for (unsigned i = 0; i < 60; i++) {
        struct siftr_record *r = &flows[random_below(&x, 3)];
        random_values(&x, r);
        add(f, r);
        if (i % 10 == 9)
            flush(f);
    }
    n = siftr_encoder_text(&encoder, "disable_time_secs=1\n", 20, &chunk);
    append(f, chunk, n, f->records);
    return f;
}

/* Bytes of the file's beginning that can be read: whole pieces, then the head and whole records. */
static size_t readable(const struct file *f, size_t len, uint64_t records)
{
    size_t whole = 0;
    unsigned i = 0;
    for (; i < f->pieces && f->piece_end[i] <= len; i++)
        whole = f->piece_end[i];
    if (i == 0 || i == f->pieces || f->records_by[i] == f->records_by[i - 1])
        return whole;
    if (len > whole + SIFTR_BIN_HEAD)
        whole += SIFTR_BIN_HEAD;
    return records > 0 ? MAX(whole, f->record_end[records - 1]) : whole;
}

/* Wherever a file ends, all records that are whole are read, and what is lost is known exactly. */
static void test_every_truncation(void **state)
{
    struct file *f = small_file();
    assert_true(f->records <= NELEM(f->record_end));
    for (size_t len = 0; len <= f->len; len++) {
        struct reading got = {0};
        uint64_t want = 0;
        uint8_t *cut = malloc(len ? len : 1);
        assert_non_null(cut);
        memcpy(cut, f->bytes, len);
        while (want < f->records && f->record_end[want] <= len)
            want++;
        read_file(cut, len, &got);
        assert_int_equal(got.count, want);
        assert_int_equal(got.lost, len - readable(f, len, want));
        assert_int_equal(got.malformed, 0);
        free(cut);
    }
    free_file(f);
}

/* Zeros where data were to come are no records. */
static void test_zeros_at_the_end(void **state)
{
    struct file *f = small_file();
    for (size_t len = f->piece_end[1] + 1; len < f->piece_end[2] - 8; len++) {
        struct reading cut = {0}, filled = {0};
        uint8_t *copy = calloc(1, f->len);
        assert_non_null(copy);
        memcpy(copy, f->bytes, len);
        read_file(copy, len, &cut);
        read_file(copy, f->piece_end[2] - 1, &filled);
        assert_true(filled.count <= cut.count + 1);
        free(copy);
    }
    free_file(f);
}

/* While it is written: whole chunks at once, the rest when it is there. */
static void test_growing(void **state)
{
    struct file *f = small_file();
    struct siftr_piece piece;
    size_t at = 0;
    unsigned pieces = 0;
    for (size_t len = 0; len <= f->len; len++) {
        siftr_bin_scan(f->bytes + at, len - at, false, &piece);
        if (piece.kind == SIFTR_PIECE_MORE)
            continue;
        at += piece.size;
        assert_int_equal(at, len);
        assert_int_equal(at, f->piece_end[pieces++]);
        assert_true(piece.kind != SIFTR_PIECE_LOST);
    }
    assert_int_equal(pieces, f->pieces);
    free_file(f);
}

/* A wrong byte costs its chunk and no other, and is never taken for records. */
static void test_every_damage(void **state)
{
    struct file *f = small_file();
    for (size_t i = 0; i < f->len; i++) {
        struct reading got = {0};
        size_t start = 0, size = 0;
        uint64_t before = 0, held = 0;
        for (unsigned k = 0; k < f->pieces; k++) {
            if (i < f->piece_end[k]) {
                size = f->piece_end[k] - start;
                held = f->records_by[k] - before;
                break;
            }
            start = f->piece_end[k];
            before = f->records_by[k];
        }
        f->bytes[i] ^= 0x10;
        read_file(f->bytes, f->len, &got);
        f->bytes[i] ^= 0x10;
        assert_int_equal(got.malformed, 0);
        /* A length that grew looks like a chunk that ends early. */
        if (got.lost < size && i - start >= 4 && i - start < 8) {
            assert_int_equal(got.count, f->records);
            continue;
        }
        assert_int_equal(got.count, f->records - held);
        assert_int_equal(got.lost, size);
    }
    free_file(f);
}

/* After a crash a writer goes on behind the torn end, with a preamble. */
static void test_going_on_after_a_torn_end(void **state)
{
    struct file *a = small_file(), *b = small_file();
    for (size_t cut = 1; cut < a->len; cut += 7) {
        struct reading got = {0}, first = {0};
        uint8_t *both = malloc(cut + b->len);
        assert_non_null(both);
        memcpy(both, a->bytes, cut);
        memcpy(both + cut, b->bytes, b->len);
        read_file(a->bytes, cut, &first);
        read_file(both, cut + b->len, &got);
        assert_int_equal(got.count, first.count + b->records);
        assert_int_equal(got.lost, first.lost);
        free(both);
    }
    free_file(a);
    free_file(b);
}

static void test_each_chunk_alone(void **state)
{
    struct file *f = small_file();
    size_t start = 0;
    for (unsigned i = 0; i < f->pieces; i++) {
        struct reading got = {0};
        read_file(f->bytes + start, f->piece_end[i] - start, &got);
        assert_int_equal(got.count, f->records_by[i] - (i ? f->records_by[i - 1] : 0));
        assert_int_equal(got.lost, 0);
        start = f->piece_end[i];
    }
    free_file(f);
}

static void test_versions(void **state)
{
    struct siftr_piece piece;
    uint8_t bytes[SIFTR_BIN_PREAMBLE];
    struct preamble p = {.version = 2};
    siftr_bin_preamble(bytes);
    siftr_bin_scan(bytes, sizeof(bytes), false, &piece);
    assert_int_equal(piece.kind, SIFTR_PIECE_PREAMBLE);
    assert_int_equal(piece.version, SIFTR_BIN_VERSION);
    /* The format is fixed: what older files have stays as it is. */
    static const uint8_t fixed[SIFTR_BIN_PREAMBLE] = {0x89, 'S', 'I', 'F', 'T',  'R',  '\r', '\n',
                                                      1,    0,   0,   0,   0x4b, 0xfc, 0x20, 0x41};
    assert_memory_equal(bytes, fixed, sizeof(fixed));
    memcpy(p.magic, magic, sizeof(magic));
    p.crc = crc32c(&p, 12, NULL, 0);
    siftr_bin_scan((const uint8_t *)&p, sizeof(p), false, &piece);
    assert_int_equal(piece.kind, SIFTR_PIECE_FUTURE);
    assert_int_equal(piece.version, 2);
}

/* One chunk byte for byte, so that the format cannot change unnoticed. */
static void test_fixed_chunk(void **state)
{
    static const uint8_t want[] = {
        0xd7, 0x53, 0x46, 0x52, 0x56, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x08, 0x23, 0xfd,
        0x65, 0xe6, 0xfe, 0xfe, 0x01, 0x00, 0x04, 0x0a, 0x01, 0x01, 0x02, 0x0a, 0x01, 0x01, 0x03,
        0x15, 0x9f, 0x89, 0x13, 0xd7, 0xc0, 0xbb, 0xae, 0x02, 0x90, 0xf3, 0xb7, 0xbf, 0xed, 0xa3,
        0x8f, 0xf5, 0x2e, 0xa0, 0xe2, 0x01, 0x80, 0x83, 0x08, 0xb4, 0x18, 0xe0, 0x89, 0x1c, 0xc0,
        0x8f, 0x80, 0x10, 0xe0, 0x90, 0x08, 0xb0, 0x88, 0x04, 0x80, 0x80, 0xfe, 0xff, 0x07, 0xe0,
        0x90, 0x08, 0x40, 0x08, 0xd0, 0x16, 0x0e, 0x0c, 0x02, 0xd5, 0x02, 0xd4, 0x59, 0x80, 0x80,
        0x02, 0xe0, 0x80, 0xe3, 0x02, 0x08, 0x0d, 0xa2, 0x92, 0x01, 0xd0, 0x16};
    struct siftr_bulk b;
    struct siftr_random x = {SEED};
    const uint8_t *chunk;
    siftr_encoder_init(&encoder);
    bulk_init(&b);
    for (unsigned i = 0; i < 3; i++) {
        struct siftr_record r = bulk_next(&b, &x);
        assert_int_equal(siftr_encoder_add(&encoder, &r, &chunk), 0);
    }
    size_t n = siftr_encoder_flush(&encoder, &chunk);
    assert_int_equal(n, sizeof(want));
    assert_memory_equal(chunk, want, n);
}

static void test_crc(void **state)
{
    struct siftr_random x = {SEED};
    uint8_t bytes[300];
    assert_int_equal(crc32c("12345", 5, "6789", 4), 0xe3069283); /* RFC 3720 B.4's polynomial */
    assert_int_equal(~crc_plain(UINT32_MAX, (const uint8_t *)"123456789", 9), 0xe3069283);
    for (unsigned i = 0; i < 1000; i++) {
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)random64(&x);
        size_t from = random_below(&x, 20), n = random_below(&x, 280);
        if (HAVE_FAST_CRC)
            assert_int_equal(crc_fast(i, bytes + from, n), crc_plain(i, bytes + from, n));
    }
}

/* A chunk whose CRC is right and whose content is not. */
static void test_malformed(void **state)
{
    struct siftr_random x = {SEED};
    struct file *f = small_file();
    uint8_t *copy = malloc(f->len);
    unsigned malformed = 0;
    assert_non_null(copy);
    for (unsigned round = 0; round < 20000; round++) {
        struct siftr_piece piece;
        struct reading got = {0};
        size_t start = f->piece_end[2], n = f->piece_end[3] - start; /* the second of records */
        memcpy(copy, f->bytes + start, n);
        siftr_bin_scan(copy, n, true, &piece);
        assert_int_equal(piece.kind, SIFTR_PIECE_RECORDS);
        piece.payload_len = round % 2 ? piece.payload_len : random_below(&x, (uint32_t)n - 16);
        piece.records += round % 3;
        copy[16 + random_below(&x, (uint32_t)n - 16)] = (uint8_t)random64(&x);
        uint8_t *exact = malloc(piece.payload_len ? piece.payload_len : 1);
        assert_non_null(exact);
        memcpy(exact, copy + 16, piece.payload_len);
        piece.payload = exact;
        decode_chunk(&piece, &got);
        assert_true(got.count <= piece.records);
        malformed += got.malformed;
        free(exact);
    }
    assert_true(malformed > 10000);
    free(copy);
    free_file(f);
}

static void test_forms(void **state)
{
    struct file *f = small_file();
    assert_int_equal(siftr_form_of("", 0), SIFTR_FORM_EMPTY);
    assert_int_equal(siftr_form_of(f->bytes, f->len), SIFTR_FORM_BINARY);
    assert_int_equal(siftr_form_of(f->bytes + 16, 16), SIFTR_FORM_BINARY);
    assert_int_equal(siftr_form_of("o,1690290836.487", 16), SIFTR_FORM_TEXT);
    assert_int_equal(siftr_form_of("enable_time_secs=1", 18), SIFTR_FORM_TEXT);
    assert_int_equal(siftr_form_of("\x7f"
                                   "ELF",
                                   4),
                     SIFTR_FORM_UNKNOWN);
    assert_int_equal(siftr_form_of("hello, world", 12), SIFTR_FORM_UNKNOWN);
    free_file(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_bulk_size),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_zeros_at_the_end),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_every_damage),
        cmocka_unit_test(test_going_on_after_a_torn_end),
        cmocka_unit_test(test_each_chunk_alone),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_fixed_chunk),
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
