/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever stands in a flow log, text or binary, its readers read nothing beyond it, always
 * go on, and what they take for a record can be written and read again to the same. Bound: one
 * line, or one file of at most MAX_LEN bytes, an input.
 *
 * The input: a byte that says what follows: a line; a file; the payload of a chunk; values of
 * records. */
#include "fuzz.h"

/* For the CRC, without which no chunk is looked into. */
#include "measure/siftr_bin.c"

#define MAX_LEN 4096

static struct siftr_encoder encoder;
static struct siftr_decoder decoder;

/* The bytes in memory of their own, so that a sanitizer sees one too many. */
static uint8_t *exactly(const uint8_t *p, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    FUZZ_CHECK(copy);
    memcpy(copy, p, n);
    return copy;
}

/* What was read can be written, and is read back to the same. */
static void there_and_back(const struct siftr_record *r)
{
    char text[SIFTR_TEXT_MAX];
    const uint8_t *chunk;
    const char *why;
    struct siftr_line line;
    struct siftr_piece piece;
    struct siftr_record again;
    size_t n = siftr_text_record(text, r);
    FUZZ_CHECK(n <= sizeof(text) && text[n - 1] == '\n');
    FUZZ_CHECK(siftr_parse_line(text, n - 1, &line, &why) == 0);
    siftr_encoder_init(&encoder);
    FUZZ_CHECK(siftr_encoder_add(&encoder, r, &chunk) == 0);
    n = siftr_encoder_flush(&encoder, &chunk);
    siftr_bin_scan(chunk, n, true, &piece);
    FUZZ_CHECK(piece.kind == SIFTR_PIECE_RECORDS && piece.size == n && piece.records == 1);
    siftr_decoder_begin(&decoder, &piece);
    FUZZ_CHECK(siftr_decoder_next(&decoder, &again) == 1);
    FUZZ_CHECK(siftr_decoder_next(&decoder, &line.record) == 0);
    FUZZ_CHECK(memcmp(&again, r, sizeof(again)) == 0);
}

static void text_line(const uint8_t *p, size_t n)
{
    struct siftr_line line;
    const char *why = NULL;
    if (siftr_parse_line((const char *)p, n, &line, &why) != 0)
        FUZZ_CHECK(why);
    else if (line.kind == SIFTR_LINE_RECORD)
        there_and_back(&line.record);
}

static void decode(const struct siftr_piece *piece)
{
    struct siftr_record r;
    uint64_t count = 0;
    int more;
    siftr_decoder_begin(&decoder, piece);
    while ((more = siftr_decoder_next(&decoder, &r)) > 0) {
        FUZZ_CHECK((r.family == 4 || r.family == 6) && r.direction <= 1 && r.sack <= 1);
        if (count++ < 3 && r.time_ns < UINT64_MAX - 2 * NS_PER_S)
            there_and_back(&r);
    }
    FUZZ_CHECK(count <= piece->records && decoder.p <= decoder.end);
}

static void file(const uint8_t *p, size_t n)
{
    struct siftr_piece piece, growing;
    (void)siftr_form_of(p, n);
    for (size_t at = 0; at < n; at += piece.size) {
        siftr_bin_scan(p + at, n - at, true, &piece);
        siftr_bin_scan(p + at, n - at, false, &growing);
        FUZZ_CHECK(piece.size > 0 && piece.size <= n - at && piece.kind != SIFTR_PIECE_MORE);
        FUZZ_CHECK(growing.kind == SIFTR_PIECE_MORE || growing.size == piece.size);
        if (piece.kind == SIFTR_PIECE_RECORDS || piece.kind == SIFTR_PIECE_TORN)
            decode(&piece);
    }
}

static void payload(const uint8_t *p, size_t n)
{
    struct siftr_piece piece = {.kind = SIFTR_PIECE_RECORDS, .payload = p, .payload_len = n};
    piece.records = (uint32_t)n; /* a record takes a byte at least */
    decode(&piece);
}

/* Many records in one encoder: chunks, flows, differences. */
static void values(struct fuzz_in *in)
{
    static struct siftr_record given[MAX_LEN];
    struct siftr_record flows[4] = {0};
    struct siftr_piece piece;
    unsigned count = 0;
    const uint8_t *chunk;
    siftr_encoder_init(&encoder);
    while (in->left > 0 && count < NELEM(given)) {
        struct siftr_record *r = &flows[fuzz_below(in, 4)];
        r->family = fuzz_u8(in) & 1 ? 6 : 4;
        fuzz_bytes(in, r->laddr, r->family == 6 ? 16 : 4);
        r->flowid += fuzz_delta(in);
        r->direction = fuzz_u8(in) & 1;
        r->time_ns += (uint64_t)fuzz_delta(in) << (fuzz_u8(in) & 31);
        r->sack = fuzz_u8(in) & 1;
        r->state = fuzz_u8(in);
        for (uint32_t *v = &r->ssthresh; v < &r->flowid; v++)
            *v += fuzz_delta(in);
        if (r->family == 4)
            memset(r->laddr + 4, 0, 12);
        given[count++] = *r;
        FUZZ_CHECK(siftr_encoder_add(&encoder, r, &chunk) == 0);
    }
    size_t n = siftr_encoder_flush(&encoder, &chunk);
    FUZZ_CHECK((n == 0) == (count == 0));
    if (n == 0)
        return;
    siftr_bin_scan(chunk, n, true, &piece);
    FUZZ_CHECK(piece.kind == SIFTR_PIECE_RECORDS && piece.records == count);
    siftr_decoder_begin(&decoder, &piece);
    for (unsigned i = 0; i < count; i++) {
        struct siftr_record r;
        FUZZ_CHECK(siftr_decoder_next(&decoder, &r) == 1);
        FUZZ_CHECK(memcmp(&r, &given[i], sizeof(r)) == 0);
    }
    FUZZ_CHECK(siftr_decoder_next(&decoder, given) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > MAX_LEN)
        return 0;
    uint8_t *bytes = exactly(data + 1, size - 1);
    struct fuzz_in in = {bytes, size - 1};
    switch (data[0] & 3) {
    case 0:
        text_line(bytes, size - 1);
        break;
    case 1:
        file(bytes, size - 1);
        break;
    case 2:
        payload(bytes, size - 1);
        break;
    default:
        values(&in);
    }
    free(bytes);
    return 0;
}

/* --- seeds --- */
static const char *const lines[] = {
    "o,1690290836.487990,10.1.1.2,40725,10.1.1.3,5001,1073725440,14480,32,65728,66608,7,6,4,1448,"
    "1562,1,16778208,230000,33304,14480,66608,0,14480,0,2931540183,2",
    "i,0.000000,::,0,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,65535,0,4294967295,0,0,0,255,255,255,"
    "0,"
    "0,0,0,0,0,0,0,0,0,0,0,255",
    "enable_time_secs=1690290836\tenable_time_usecs=487977\tsiftrver=1.3.0\tsysname=Weir\t"
    "sysver=100\tipmode=6",
    "disable_time_secs=1\tdisable_time_usecs=000001\tnum_inbound_tcp_pkts=1\t"
    "num_outbound_tcp_pkts=2\ttotal_tcp_pkts=3\tnum_inbound_skipped_pkts_malloc=0\t"
    "num_outbound_skipped_pkts_malloc=0\tnum_inbound_skipped_pkts_tcpcb=0\t"
    "num_outbound_skipped_pkts_tcpcb=0\tnum_inbound_skipped_pkts_inpcb=0\t"
    "num_outbound_skipped_pkts_inpcb=0\ttotal_skipped_tcp_pkts=0\tflow_list=",
};

static void seed_file(struct fuzz_out *o, size_t skip, bool whole)
{
    struct siftr_line line;
    const char *why;
    const uint8_t *chunk;
    uint8_t preamble[SIFTR_BIN_PREAMBLE];
    siftr_bin_preamble(preamble);
    siftr_encoder_init(&encoder);
    if (whole) {
        fuzz_put(o, preamble, sizeof(preamble));
        size_t n = siftr_encoder_text(&encoder, lines[2], strlen(lines[2]), &chunk);
        fuzz_put(o, chunk, n);
    }
    FUZZ_CHECK(siftr_parse_line(lines[0], strlen(lines[0]), &line, &why) == 0);
    for (unsigned i = 0; i < 5; i++) {
        line.record.direction ^= 1;
        line.record.inflight += i * 1448;
        FUZZ_CHECK(siftr_encoder_add(&encoder, &line.record, &chunk) == 0);
    }
    size_t n = siftr_encoder_flush(&encoder, &chunk);
    fuzz_put(o, chunk + skip, n - skip);
}

static void seed(unsigned i, struct fuzz_out *o)
{
    fuzz_put8(o, i < NELEM(lines) ? 0 : i - NELEM(lines) + 1);
    if (i < NELEM(lines))
        fuzz_put(o, lines[i], strlen(lines[i]));
    else if (i == NELEM(lines))
        seed_file(o, 0, true);
    else if (i == NELEM(lines) + 1)
        seed_file(o, SIFTR_BIN_HEAD, false);
    else
        for (unsigned k = 0; k < 400; k++)
            fuzz_put8(o, k * 37 >> 2);
}

const struct fuzz_target fuzz_target = {"fuzz_siftr", MAX_LEN, NELEM(lines) + 3, seed};
