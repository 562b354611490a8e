/* SPDX-License-Identifier: BSD-2-Clause
 * The forms in which `weir siftr` writes what it read, compressed or not. */
#include "siftr.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define BUFFER_SIZE (256u << 10)
#define ZSTD_LEVEL 3

struct siftr_writer {
    enum siftr_output_form form;
    FILE *f;
    const char *name;
    ZSTD_CCtx *zstd; /* NULL: plain */
    uint8_t *packed; /* what zstd writes into */
    size_t packed_size;
    struct siftr_encoder *encoder;
    bool begun; /* what stands before all records is written */
};

/* The columns of the text form, in their order; CSV and JSON have these names. */
static const char *const columns[SIFTR_FIELDS] = {
    "direction", "time",     "laddr",    "lport",      "faddr",     "fport",     "ssthresh",
    "cwnd",      "flags2",   "snd_wnd",  "rcv_wnd",    "snd_scale", "rcv_scale", "state",
    "mss",       "srtt_us",  "sack",     "flags",      "rto_us",    "snd_limit", "snd_fill",
    "rcv_limit", "rcv_fill", "inflight", "reass_segs", "flowid",    "flowtype"};

/* ---- bytes ---- */

static int write_plain(struct siftr_writer *w, const void *p, size_t n)
{
    return fwrite(p, 1, n, w->f) == n ? 0 : -errno;
}

static int compress(struct siftr_writer *w, const void *p, size_t n, ZSTD_EndDirective how)
{
    ZSTD_inBuffer from = {p, n, 0};
    size_t left;
    do {
        ZSTD_outBuffer to = {w->packed, w->packed_size, 0};
        left = ZSTD_compressStream2(w->zstd, &to, &from, how);
        if (ZSTD_isError(left))
            return -EIO;
        int e = write_plain(w, w->packed, to.pos);
        if (e != 0)
            return e;
    } while (how == ZSTD_e_continue ? from.pos < n : left != 0);
    return 0;
}

static int put(struct siftr_writer *w, const void *p, size_t n)
{
    return w->zstd != NULL ? compress(w, p, n, ZSTD_e_continue) : write_plain(w, p, n);
}

/* ---- opening and closing ---- */

static bool same_file(const char *path, const struct stat *out)
{
    struct stat st;
    return strcmp(path, "-") != 0 && stat(path, &st) == 0 && st.st_dev == out->st_dev &&
           st.st_ino == out->st_ino && S_ISREG(st.st_mode);
}

bool siftr_output_is_input(const struct siftr_options *o)
{
    struct stat out;
    if (o->output != NULL ? stat(o->output, &out) != 0 : fstat(STDOUT_FILENO, &out) != 0)
        return false;
    for (int i = 0; i < o->file_count; i++) {
        if (!same_file(o->files[i], &out))
            continue;
        cli_fail("siftr", "%s is read and written", o->files[i]);
        return true;
    }
    return false;
}

static bool open_file(struct siftr_writer *w, const struct siftr_options *o)
{
    w->name = o->output != NULL ? o->output : "standard output";
    if (siftr_output_is_input(o))
        return false;
    w->f = o->output != NULL ? fopen(o->output, "we") : stdout;
    if (w->f == NULL) {
        cli_fail("siftr", "cannot open %s: %s", o->output, strerror(errno));
        return false;
    }
    setvbuf(w->f, NULL, _IOFBF, BUFFER_SIZE);
    if ((w->form != OUTPUT_BINARY && !o->compress) || !isatty(fileno(w->f)))
        return true;
    cli_fail("siftr", "binary or compressed output is not for a terminal");
    return false;
}

static bool open_zstd(struct siftr_writer *w)
{
    w->zstd = ZSTD_createCCtx();
    w->packed_size = ZSTD_CStreamOutSize();
    w->packed = malloc(w->packed_size);
    return w->zstd != NULL && w->packed != NULL &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1));
}

static void destroy(struct siftr_writer *w)
{
    if (w->f != NULL && w->f != stdout)
        fclose(w->f);
    ZSTD_freeCCtx(w->zstd);
    free(w->packed);
    free(w->encoder);
    free(w);
}

static bool open_encoder(struct siftr_writer *w)
{
    if (w->form != OUTPUT_BINARY)
        return true;
    w->encoder = malloc(sizeof(*w->encoder));
    if (w->encoder != NULL)
        siftr_encoder_init(w->encoder);
    return w->encoder != NULL;
}

struct siftr_writer *siftr_writer_open(const struct siftr_options *o)
{
    struct siftr_writer *w = calloc(1, sizeof(*w));
    if (w != NULL) {
        w->form = o->form;
        if (!open_file(w, o)) {
            destroy(w);
            return NULL;
        }
        if ((!o->compress || open_zstd(w)) && open_encoder(w))
            return w;
        destroy(w);
    }
    cli_fail("siftr", "%s", strerror(ENOMEM));
    return NULL;
}

int siftr_writer_flush(struct siftr_writer *w)
{
    const uint8_t *chunk;
    size_t n = w->encoder != NULL ? siftr_encoder_flush(w->encoder, &chunk) : 0;
    int e = n > 0 ? put(w, chunk, n) : 0;
    if (e == 0 && w->zstd != NULL)
        e = compress(w, NULL, 0, ZSTD_e_flush);
    return e == 0 && fflush(w->f) != 0 ? -errno : e;
}

int siftr_writer_close(struct siftr_writer *w, bool failed)
{
    int e = siftr_writer_flush(w);
    if (e == 0 && w->zstd != NULL)
        e = compress(w, NULL, 0, ZSTD_e_end);
    if (e == 0 && (w->f != stdout ? fclose(w->f) : fflush(w->f)) != 0)
        e = -errno;
    if (w->f != stdout && e == 0)
        w->f = NULL;
    if (e != 0 && !failed)
        cli_fail("siftr", "%s: %s", w->name, strerror(-e));
    destroy(w);
    return e == 0 && !failed ? CLI_OK : CLI_FAILED;
}

/* ---- the forms ---- */

/* The text of a record, its time down to the nanosecond. Returns the length. */
static size_t precise_text(char *out, const struct siftr_record *r)
{
    char text[SIFTR_TEXT_MAX];
    size_t n = siftr_text_record(text, r);
    const char *point = memchr(text, '.', n);
    size_t head = (size_t)(point - text) + 7; /* six digits */
    uint32_t ns = (uint32_t)(r->time_ns % NS_PER_US);
    memcpy(out, text, head);
    out[head] = (char)('0' + ns / 100);
    out[head + 1] = (char)('0' + ns / 10 % 10);
    out[head + 2] = (char)('0' + ns % 10);
    memcpy(out + head + 3, text + head, n - head);
    return n + 3;
}

static int put_columns(struct siftr_writer *w)
{
    int e = 0;
    for (unsigned i = 0; i < SIFTR_FIELDS && e == 0; i++) {
        e = put(w, columns[i], strlen(columns[i]));
        if (e == 0)
            e = put(w, i + 1 < SIFTR_FIELDS ? "," : "\n", 1);
    }
    return e;
}

/* Not before there is a record or a line: of what is no log nothing is made. */
static int begin(struct siftr_writer *w)
{
    uint8_t preamble[SIFTR_BIN_PREAMBLE];
    if (w->begun)
        return 0;
    w->begun = true;
    if (w->form == OUTPUT_CSV)
        return put_columns(w);
    if (w->form != OUTPUT_BINARY)
        return 0;
    siftr_bin_preamble(preamble);
    return put(w, preamble, sizeof(preamble));
}

static int put_csv(struct siftr_writer *w, const struct siftr_record *r)
{
    char text[SIFTR_TEXT_MAX + 3];
    return put(w, text, precise_text(text, r));
}

/* The text form with names: only direction and addresses are strings. */
static int put_json(struct siftr_writer *w, const struct siftr_record *r)
{
    char text[SIFTR_TEXT_MAX + 3], out[1024], *p = out;
    size_t n = precise_text(text, r), at = 0;
    p = stpcpy(p, "{\"type\":\"record\"");
    for (unsigned i = 0; i < SIFTR_FIELDS; i++) {
        size_t length = 0;
        while (text[at + length] != ',' && text[at + length] != '\n')
            length++;
        const char *quote = i == 0 || i == 2 || i == 4 ? "\"" : "";
        p = stpcpy(stpcpy(stpcpy(p, ",\""), columns[i]), "\":");
        p = stpcpy(p, quote);
        p = mempcpy(p, text + at, length);
        p = stpcpy(p, quote);
        at += length + 1;
    }
    CHECK(at == n);
    p = stpcpy(p, "}\n");
    return put(w, out, (size_t)(p - out));
}

static int put_chunk(struct siftr_writer *w, const uint8_t *chunk, size_t n)
{
    return n > 0 ? put(w, chunk, n) : 0;
}

int siftr_writer_record(struct siftr_writer *w, const struct siftr_record *r)
{
    char text[SIFTR_TEXT_MAX];
    const uint8_t *chunk;
    int e = begin(w);
    if (e != 0)
        return e;
    switch (w->form) {
    case OUTPUT_CSV:
        return put_csv(w, r);
    case OUTPUT_JSON:
        return put_json(w, r);
    case OUTPUT_BINARY: {
        size_t n = siftr_encoder_add(w->encoder, r, &chunk);
        return put_chunk(w, chunk, n);
    }
    default:
        return put(w, text, siftr_text_record(text, r));
    }
}

/* From a file: what JSON would have to escape is not let through. */
static void plain_text(char *out, const char *text)
{
    for (; *text != '\0'; text++)
        *out++ = *text >= ' ' && *text < 0x7f && *text != '"' && *text != '\\' ? *text : '?';
    *out = '\0';
}

static int put_json_line(struct siftr_writer *w, const struct siftr_line *line)
{
    char out[1024];
    const struct siftr_header *h = &line->header;
    const struct siftr_footer *f = &line->footer;
#define U(v) (unsigned long long)(v)
    if (line->kind == SIFTR_LINE_HEADER) {
        char version[sizeof(h->version)], system[sizeof(h->sysname)];
        plain_text(version, h->version);
        plain_text(system, h->sysname);
        snprintf(out, sizeof(out),
                 "{\"type\":\"header\",\"time\":%llu.%06llu,\"siftrver\":\"%s\",\"sysname\":\"%s\","
                 "\"sysver\":%u,\"ipmode\":%u}\n",
                 U(h->enable_ns / NS_PER_S), U(h->enable_ns % NS_PER_S / NS_PER_US), version,
                 system, h->sysver, h->ipmode);
    } else {
        snprintf(out, sizeof(out),
                 "{\"type\":\"footer\",\"time\":%llu.%06llu,\"packets_in\":%llu,"
                 "\"packets_out\":%llu,\"skipped_malloc_in\":%llu,\"skipped_malloc_out\":%llu,"
                 "\"skipped_tcpcb_in\":%llu,\"skipped_tcpcb_out\":%llu,\"skipped_inpcb_in\":%llu,"
                 "\"skipped_inpcb_out\":%llu}\n",
                 U(f->disable_ns / NS_PER_S), U(f->disable_ns % NS_PER_S / NS_PER_US),
                 U(f->packets[0]), U(f->packets[1]), U(f->skipped_malloc[0]),
                 U(f->skipped_malloc[1]), U(f->skipped_tcpcb[0]), U(f->skipped_tcpcb[1]),
                 U(f->skipped_inpcb[0]), U(f->skipped_inpcb[1]));
    }
#undef U
    return put(w, out, strlen(out));
}

static int put_binary_line(struct siftr_writer *w, const char *text, size_t len)
{
    const uint8_t *chunk;
    size_t n = siftr_encoder_flush(w->encoder, &chunk);
    int e = put_chunk(w, chunk, n);
    for (size_t at = 0; at < len && e == 0; at += SIFTR_BIN_PAYLOAD_MAX) {
        n = siftr_encoder_text(w->encoder, text + at, MIN(len - at, (size_t)SIFTR_BIN_PAYLOAD_MAX),
                               &chunk);
        e = put_chunk(w, chunk, n);
    }
    return e;
}

int siftr_writer_line(struct siftr_writer *w, const struct siftr_line *line, const char *text,
                      size_t len)
{
    int e = begin(w);
    if (e != 0)
        return e;
    switch (w->form) {
    case OUTPUT_CSV:
        return 0;
    case OUTPUT_JSON:
        return put_json_line(w, line);
    case OUTPUT_BINARY:
        return put_binary_line(w, text, len);
    default:
        return put(w, text, len);
    }
}
