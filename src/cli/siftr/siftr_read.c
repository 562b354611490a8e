/* SPDX-License-Identifier: BSD-2-Clause
 * Logs as they come: files that may be compressed, grow, be torn or damaged. */
#include "siftr.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define RAW_SIZE (128u << 10)
#define BUFFER_MIN (1u << 20)
#define LINE_MAX_BYTES (64u << 20) /* a footer names every flow */
#define COMPLAINTS_MAX 10          /* for each file */
#define FOLLOW_INTERVAL_NS (100 * NS_PER_MS)

static volatile sig_atomic_t stopped;

void siftr_stop(int signal)
{
    stopped = signal;
}

struct log_input {
    const char *name, *path;
    int fd;
    bool follow, replaced, at_end, failed;
    /* What was read, before it is decompressed. */
    bool looked, compressed, mid_frame, more_inside;
    ZSTD_DStream *zstd;
    uint8_t *raw;
    size_t raw_len, raw_at;
    uint64_t raw_total; /* read from the file */
    /* What waits for its end: buf[0, len). `offset` is where that stands in the log. */
    uint8_t *buf;
    size_t len, room;
    uint64_t offset;
    /* Text inside the binary form. */
    char *line;
    size_t line_len, line_room;

    enum siftr_form form;
    struct siftr_decoder *decoder;
    const struct siftr_sink *sink;
    uint64_t line_number, records, lost, complaints;
    uint64_t damaged; /* where the damage began in which we are; NO_DAMAGE */
};
#define NO_DAMAGE UINT64_MAX

static void complain(struct log_input *in, const char *what)
{
    in->failed = true;
    if (in->complaints++ < COMPLAINTS_MAX)
        cli_warn("siftr", "%s: %s", in->name, what);
}

static void complain_at(struct log_input *in, const char *unit, uint64_t where, const char *what)
{
    in->failed = true;
    if (in->complaints++ < COMPLAINTS_MAX)
        cli_warn("siftr", "%s:%s%llu: %s", in->name, unit, (unsigned long long)where, what);
}

/* ---- bytes ---- */

/* Whether the log goes on under its name in another file, or was cut. */
static bool was_replaced(const struct log_input *in)
{
    struct stat mine, now;
    return fstat(in->fd, &mine) == 0 && stat(in->path, &now) == 0 &&
           (mine.st_dev != now.st_dev || mine.st_ino != now.st_ino ||
            (uint64_t)now.st_size < in->raw_total);
}

/* The end of what is there, in a file that is followed. False: it is the end. */
static bool wait_for_more(struct log_input *in, int *status)
{
    struct timespec ts = {.tv_nsec = FOLLOW_INTERVAL_NS};
    if (!in->follow || stopped)
        return false;
    *status = in->sink->idle(in->sink->ctx);
    if (*status != 0)
        return false;
    in->replaced = was_replaced(in);
    if (!in->replaced)
        nanosleep(&ts, NULL);
    return !in->replaced;
}

/* More bytes behind raw[0, raw_len). False: the end, or *status says why not. */
static bool read_raw(struct log_input *in, int *status)
{
    for (;;) {
        ssize_t n = read(in->fd, in->raw + in->raw_len, RAW_SIZE - in->raw_len);
        if (n > 0) {
            in->raw_len += (size_t)n;
            in->raw_total += (uint64_t)n;
            return true;
        }
        if (n < 0 && errno == EINTR && !stopped)
            continue;
        if (n < 0 && errno != EINTR) {
            complain(in, strerror(errno));
            return false;
        }
        if (!wait_for_more(in, status))
            return false;
    }
}

/* Refill raw, of which all was used; the first time see what it is. */
static bool fill_raw(struct log_input *in, int *status)
{
    static const uint8_t zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    in->raw_len = in->raw_at = 0;
    if (in->looked)
        return read_raw(in, status);
    while (in->raw_len < sizeof(zstd_magic) && read_raw(in, status))
        ;
    in->looked = true;
    in->compressed =
        in->raw_len >= sizeof(zstd_magic) && memcmp(in->raw, zstd_magic, sizeof(zstd_magic)) == 0;
    return in->raw_len > 0;
}

static size_t decompress(struct log_input *in)
{
    ZSTD_inBuffer from = {in->raw, in->raw_len, in->raw_at};
    ZSTD_outBuffer to = {in->buf + in->len, in->room - in->len, 0};
    size_t left = ZSTD_decompressStream(in->zstd, &to, &from);
    in->raw_at = from.pos;
    if (ZSTD_isError(left)) {
        complain(in, ZSTD_getErrorName(left));
        in->at_end = true;
        left = 0;
    }
    in->mid_frame = left != 0;
    in->more_inside = left != 0 && to.pos == to.size;
    return to.pos;
}

static size_t copy_plain(struct log_input *in)
{
    size_t n = MIN(in->raw_len - in->raw_at, in->room - in->len);
    memcpy(in->buf + in->len, in->raw + in->raw_at, n);
    in->raw_at += n;
    return n;
}

/* Append to buf, which has room. Nothing was appended: in->at_end, or *status is not 0. */
static void fill(struct log_input *in, int *status)
{
    size_t n = 0;
    while (n == 0 && !in->at_end && *status == 0) {
        if (in->raw_at < in->raw_len || in->more_inside)
            n = in->compressed ? decompress(in) : copy_plain(in);
        else if (!fill_raw(in, status))
            in->at_end = true;
    }
    in->len += n;
}

static void consume(struct log_input *in, size_t n)
{
    memmove(in->buf, in->buf + n, in->len - n);
    in->len -= n;
    in->offset += n;
}

/* ---- text ---- */

static int give(struct log_input *in, const struct siftr_line *line, const char *text, size_t len)
{
    if (line->kind != SIFTR_LINE_RECORD)
        return in->sink->line(in->sink->ctx, line, text, len + 1);
    in->records++;
    return in->sink->record(in->sink->ctx, &line->record);
}

/* A line, behind which its newline stands. */
static int give_line(struct log_input *in, const char *text, size_t len)
{
    static const char start[] = "enable_time_secs=";
    struct siftr_line line;
    const char *why = NULL, *again = NULL;
    in->line_number++;
    if (siftr_parse_line(text, len, &line, &why) == 0)
        return give(in, &line, text, len);
    if (in->form == SIFTR_FORM_BINARY)
        complain_at(in, " byte ", in->offset, why);
    else
        complain_at(in, "", in->line_number, why);
    /* The end of a log that was torn, and the header of the next on the same line? */
    if (len > 0)
        again = memmem(text + 1, len - 1, start, sizeof(start) - 1);
    size_t rest = again != NULL ? len - (size_t)(again - text) : 0;
    if (again == NULL || siftr_parse_line(again, rest, &line, &why) != 0) {
        in->lost += len + 1;
        return 0;
    }
    in->lost += len - rest;
    return give(in, &line, again, rest);
}

static int take_text(struct log_input *in)
{
    size_t at = 0;
    int status = 0;
    while (status == 0 && at < in->len) {
        const char *text = (const char *)in->buf + at;
        const char *newline = memchr(text, '\n', in->len - at);
        if (newline == NULL)
            break;
        status = give_line(in, text, (size_t)(newline - text));
        at += (size_t)(newline - text) + 1;
    }
    consume(in, at);
    return status;
}

/* ---- binary ---- */

static bool reserve(void *buffer, size_t *room, size_t need)
{
    char **p = buffer;
    size_t want = MAX(*room, (size_t)4096);
    if (need <= *room)
        return true;
    while (want < need)
        want *= 2;
    char *bigger = realloc(*p, want);
    if (bigger == NULL)
        return false;
    *p = bigger;
    *room = want;
    return true;
}

/* Lines in the binary form may be cut into several chunks. */
static int take_line_chunk(struct log_input *in, const struct siftr_piece *piece)
{
    if (in->line_len + piece->payload_len > LINE_MAX_BYTES) {
        complain_at(in, " byte ", in->offset, "a line is too long");
        in->line_len = 0;
        return 0;
    }
    if (!reserve(&in->line, &in->line_room, in->line_len + piece->payload_len))
        return -ENOMEM;
    memcpy(in->line + in->line_len, piece->payload, piece->payload_len);
    in->line_len += piece->payload_len;
    size_t at = 0;
    int status = 0;
    while (status == 0) {
        char *newline = memchr(in->line + at, '\n', in->line_len - at);
        if (newline == NULL)
            break;
        status = give_line(in, in->line + at, (size_t)(newline - in->line) - at);
        at = (size_t)(newline - in->line) + 1;
    }
    memmove(in->line, in->line + at, in->line_len - at);
    in->line_len -= at;
    return status;
}

static int take_records(struct log_input *in, const struct siftr_piece *piece, uint64_t where)
{
    struct siftr_record r;
    int more = 0, status = 0;
    siftr_decoder_begin(in->decoder, piece);
    while (status == 0 && (more = siftr_decoder_next(in->decoder, &r)) > 0) {
        in->records++;
        status = in->sink->record(in->sink->ctx, &r);
    }
    if (status == 0 && more < 0 && piece->kind == SIFTR_PIECE_RECORDS)
        complain_at(in, " byte ", where, "a chunk of records is not of this format");
    if (status == 0 && (more < 0 || piece->kind == SIFTR_PIECE_TORN)) {
        in->failed = true;
        in->lost += piece->size - (size_t)(in->decoder->p - (piece->payload - SIFTR_BIN_HEAD));
    }
    return status;
}

static int take_piece(struct log_input *in, const struct siftr_piece *piece, uint64_t where)
{
    char text[64];
    switch (piece->kind) {
    case SIFTR_PIECE_RECORDS:
    case SIFTR_PIECE_TORN:
        return take_records(in, piece, where);
    case SIFTR_PIECE_TEXT:
        return take_line_chunk(in, piece);
    case SIFTR_PIECE_OTHER:
        complain_at(in, " byte ", where, "a chunk of an unknown kind was passed over");
        return 0;
    case SIFTR_PIECE_FUTURE:
        snprintf(text, sizeof(text), "version %u of the binary form is not known here",
                 piece->version);
        complain(in, text);
        return -EPROTONOSUPPORT;
    case SIFTR_PIECE_LOST:
        in->failed = true;
        in->lost += piece->size;
        in->line_len = 0;
        return 0;
    default:
        return 0;
    }
}

/* Say where damage was when it is over; that of the end is told of by finish. */
static void note_damage(struct log_input *in, const struct siftr_piece *piece, uint64_t where)
{
    if (piece->kind == SIFTR_PIECE_LOST || piece->kind == SIFTR_PIECE_TORN) {
        in->damaged = MIN(in->damaged, where);
        return;
    }
    if (in->damaged != NO_DAMAGE)
        complain_at(in, " byte ", in->damaged,
                    "torn or damaged, from here to the next whole chunk");
    in->damaged = NO_DAMAGE;
}

static int take_binary(struct log_input *in)
{
    struct siftr_piece piece;
    size_t at = 0;
    int status = 0;
    while (status == 0) {
        siftr_bin_scan(in->buf + at, in->len - at, in->at_end, &piece);
        if (piece.kind == SIFTR_PIECE_MORE)
            break;
        note_damage(in, &piece, in->offset + at);
        status = take_piece(in, &piece, in->offset + at);
        at += piece.size;
    }
    consume(in, at);
    return status;
}

/* ---- the whole ---- */

/* 1: it is known what the log is; 0: more bytes are needed; -1: it is none. */
static int find_form(struct log_input *in)
{
    static const char why[] = "not a flow log: neither text of FreeBSD's SIFTR nor Weir's binary "
                              "form";
    enum siftr_form form = siftr_form_of(in->buf, in->len);
    if (in->len < SIFTR_BIN_PREAMBLE && !in->at_end)
        return 0;
    if (form == SIFTR_FORM_EMPTY)
        complain(in, "empty: no flow log");
    else if (form == SIFTR_FORM_UNKNOWN)
        complain(in, why);
    in->form = form;
    return form == SIFTR_FORM_TEXT || form == SIFTR_FORM_BINARY ? 1 : -1;
}

/* Make room for more. False: a line longer than any, or no memory. */
static bool make_room(struct log_input *in)
{
    if (in->len < in->room)
        return true;
    if (in->room >= LINE_MAX_BYTES) {
        complain_at(in, "", in->line_number + 1, "the line is too long");
        return false;
    }
    if (reserve(&in->buf, &in->room, in->room * 2))
        return true;
    complain(in, strerror(ENOMEM));
    return false;
}

static int read_all(struct log_input *in)
{
    int status = 0;
    while (status == 0 && !in->at_end && make_room(in)) {
        fill(in, &status);
        if (status != 0)
            break;
        if (in->form == SIFTR_FORM_UNKNOWN) {
            int known = find_form(in);
            if (known < 0)
                return 0;
            if (known == 0)
                continue;
        }
        status = in->form == SIFTR_FORM_TEXT ? take_text(in) : take_binary(in);
    }
    return status;
}

/* What stands behind the last whole record. */
static void finish(struct log_input *in)
{
    if (in->mid_frame)
        complain(in, "the compressed file ends in the middle");
    if (in->form != SIFTR_FORM_TEXT && in->form != SIFTR_FORM_BINARY)
        return;
    if (in->len > 0 || in->line_len > 0)
        in->failed = true;
    in->lost += in->len + in->line_len;
    if (in->complaints > COMPLAINTS_MAX)
        cli_warn("siftr", "%s: and %llu more like these", in->name,
                 (unsigned long long)(in->complaints - COMPLAINTS_MAX));
    if (in->lost > 0 || in->mid_frame)
        cli_warn("siftr", "%s: torn or damaged: salvaged %llu records, %llu bytes lost", in->name,
                 (unsigned long long)in->records, (unsigned long long)in->lost);
}

static int open_input(struct log_input *in, const char *path)
{
    bool standard = strcmp(path, "-") == 0;
    struct stat st;
    in->path = path;
    in->name = standard ? "<stdin>" : path;
    in->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return cli_fail("siftr", "cannot open %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return cli_fail("siftr", "cannot open %s: %s", path, strerror(EISDIR));
    in->zstd = ZSTD_createDStream();
    in->raw = malloc(RAW_SIZE);
    in->buf = malloc(BUFFER_MIN);
    in->room = BUFFER_MIN;
    in->decoder = malloc(sizeof(*in->decoder));
    if (in->zstd != NULL && in->raw != NULL && in->buf != NULL && in->decoder != NULL)
        return CLI_OK;
    return cli_fail("siftr", "%s", strerror(ENOMEM));
}

static void close_input(struct log_input *in)
{
    ZSTD_freeDStream(in->zstd);
    free(in->raw);
    free(in->buf);
    free(in->line);
    free(in->decoder);
    if (in->fd > STDIN_FILENO)
        close(in->fd);
}

/* again: another file has taken its name. */
static int read_one(const char *path, bool follow, const struct siftr_sink *sink, bool *again)
{
    struct log_input in = {.fd = -1, .follow = follow, .sink = sink, .damaged = NO_DAMAGE};
    int status = open_input(&in, path);
    if (status == CLI_OK) {
        status = read_all(&in);
        if (status == 0)
            finish(&in);
        if (status == -EPROTONOSUPPORT)
            status = 0;
        if (status == 0 && in.failed)
            status = CLI_FAILED;
    }
    *again = in.replaced && status >= 0;
    close_input(&in);
    return status;
}

int siftr_read(const char *path, bool follow, const struct siftr_sink *sink)
{
    bool again;
    int worst = CLI_OK;
    do {
        int status = read_one(path, follow, sink, &again);
        if (status < 0)
            return status;
        worst = MAX(worst, status);
    } while (again && !stopped);
    return worst;
}
