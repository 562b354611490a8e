/* SPDX-License-Identifier: BSD-2-Clause
 * Reads flow logs back, in either form, for tests. What is no log fails the process. */
#ifndef WEIR_TESTS_SIFTR_READ_H
#define WEIR_TESTS_SIFTR_READ_H

#include "measure/siftr_record.h"

#include <stdio.h>
#include <stdlib.h>

#define SIFTR_SESSIONS 64

#define SIFTR_REQUIRE(c)                                                                           \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* From a header to its footer. */
struct siftr_session {
    struct siftr_header header;
    struct siftr_footer footer;
    bool ended; /* there is a footer */
    uint64_t records[2];
    unsigned flows; /* of the footer's list */
    size_t first;   /* of its records, in siftr_file.record */
};

struct siftr_file {
    struct siftr_session session[SIFTR_SESSIONS];
    unsigned sessions;
    struct siftr_record *record;
    size_t records, room;
    size_t size; /* of the file */
    bool torn;   /* it ends in half a line */
};

static inline void siftr_file_line(struct siftr_file *f, const char *line, size_t len)
{
    static struct siftr_line l;
    const char *why = "";

    if (siftr_parse_line(line, len, &l, &why) != 0) {
        fprintf(stderr, "%s: %.*s\n", why, (int)len, line);
        abort();
    }
    if (l.kind == SIFTR_LINE_HEADER) {
        SIFTR_REQUIRE(f->sessions < SIFTR_SESSIONS);
        f->session[f->sessions++] = (struct siftr_session){.header = l.header, .first = f->records};
        return;
    }
    SIFTR_REQUIRE(f->sessions > 0);
    struct siftr_session *s = &f->session[f->sessions - 1];
    SIFTR_REQUIRE(!s->ended);
    if (l.kind == SIFTR_LINE_FOOTER) {
        s->footer = l.footer;
        s->ended = true;
        const char *list = memmem(line, len, "flow_list=", 10);
        SIFTR_REQUIRE(list != NULL);
        for (; list < line + len; list++)
            s->flows += *list == ',';
        return;
    }
    if (f->records == f->room) {
        f->room = f->room ? 2 * f->room : 1024;
        f->record = realloc(f->record, f->room * sizeof(*f->record));
        SIFTR_REQUIRE(f->record != NULL);
    }
    f->record[f->records++] = l.record;
    s->records[l.record.direction]++;
}

static inline void siftr_file_lines(struct siftr_file *f, const char *text, size_t len)
{
    const char *end;

    for (; (end = memchr(text, '\n', len)) != NULL; text = end + 1) {
        siftr_file_line(f, text, (size_t)(end - text));
        len -= (size_t)(end + 1 - text);
    }
    f->torn = len > 0;
}

/* Records of chunks as lines, and its text; text may come in pieces. */
static inline void siftr_file_pieces(struct siftr_file *f, const uint8_t *buf, size_t len)
{
    static struct siftr_decoder d;
    char line[SIFTR_TEXT_MAX], *text = malloc(len);
    size_t text_len = 0;

    SIFTR_REQUIRE(text != NULL);
    while (len > 0) {
        struct siftr_piece p;
        struct siftr_record r;
        siftr_bin_scan(buf, len, true, &p);
        if (p.kind == SIFTR_PIECE_TEXT) {
            memcpy(text + text_len, p.payload, p.payload_len);
            text_len += p.payload_len;
            if (text[text_len - 1] == '\n') {
                siftr_file_lines(f, text, text_len);
                text_len = 0;
            }
        } else if (p.kind == SIFTR_PIECE_RECORDS) {
            siftr_decoder_begin(&d, &p);
            int more;
            while ((more = siftr_decoder_next(&d, &r)) == 1)
                siftr_file_line(f, line, siftr_text_record(line, &r) - 1);
            SIFTR_REQUIRE(more == 0);
        } else if (p.kind == SIFTR_PIECE_LOST) {
            f->torn = true;
            SIFTR_REQUIRE(p.size == len); /* nothing but the end may be torn */
        } else {
            SIFTR_REQUIRE(p.kind == SIFTR_PIECE_PREAMBLE);
        }
        buf += p.size;
        len -= p.size;
    }
    SIFTR_REQUIRE(text_len == 0 || f->torn);
    free(text);
}

static inline void siftr_file_bytes(struct siftr_file *f, const char *bytes, size_t len)
{
    memset(f, 0, sizeof(*f));
    f->size = len;
    if (siftr_form_of(bytes, MIN(len, (size_t)16)) == SIFTR_FORM_BINARY)
        siftr_file_pieces(f, (const uint8_t *)bytes, len);
    else
        siftr_file_lines(f, bytes, len);
}

static inline void siftr_file_read(struct siftr_file *f, const char *path)
{
    FILE *in = fopen(path, "r");
    SIFTR_REQUIRE(in != NULL && fseek(in, 0, SEEK_END) == 0);
    size_t len = (size_t)ftell(in);
    char *bytes = malloc(len + 1);
    rewind(in);
    SIFTR_REQUIRE(bytes != NULL && fread(bytes, 1, len, in) == len);
    fclose(in);
    siftr_file_bytes(f, bytes, len);
    free(bytes);
}

static inline void siftr_file_free(struct siftr_file *f)
{
    free(f->record);
}

static inline uint64_t siftr_skipped(const struct siftr_footer *f, int dir)
{
    return f->skipped_malloc[dir] + f->skipped_tcpcb[dir] + f->skipped_inpcb[dir];
}

/* Records in the file are packets counted less those skipped, each way, and no time runs back. */
static inline void siftr_session_exact(const struct siftr_file *f, const struct siftr_session *s)
{
    SIFTR_REQUIRE(s->ended);
    for (int dir = 0; dir < 2; dir++) {
        if (s->records[dir] + siftr_skipped(&s->footer, dir) == s->footer.packets[dir])
            continue;
        fprintf(stderr, "%s: %llu records, %llu packets, %llu skipped\n", dir ? "out" : "in",
                (unsigned long long)s->records[dir], (unsigned long long)s->footer.packets[dir],
                (unsigned long long)siftr_skipped(&s->footer, dir));
        abort();
    }
    size_t end = s->first + s->records[0] + s->records[1];
    for (size_t i = s->first + 1; i < end; i++)
        SIFTR_REQUIRE(f->record[i].time_ns >= f->record[i - 1].time_ns);
}

#endif
