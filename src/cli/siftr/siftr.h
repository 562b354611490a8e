/* SPDX-License-Identifier: BSD-2-Clause
 * The parts of `weir siftr`: reading logs, choosing records, writing and summing them. */
#ifndef WEIR_CLI_SIFTR_H
#define WEIR_CLI_SIFTR_H

#include "cli/cli.h"
#include "measure/siftr_record.h"
#include <stdio.h>

#define TIME_UNSET UINT64_MAX

struct siftr_end {
    uint8_t family, addr[16];
    uint16_t port;
};

/* Which records count: those that all that is set agrees with. */
struct siftr_filter {
    bool have_flow, have_host, have_port, have_direction;
    struct siftr_end flow[2]; /* local and foreign, or the other way round */
    struct siftr_end host;    /* either end */
    uint16_t port;            /* either end */
    uint8_t direction;
    uint64_t from_ns, to_ns; /* both included; TIME_UNSET: open */
    bool from_is_relative, to_is_relative;
    uint64_t first_ns; /* of the first record that was looked at; TIME_UNSET: none was */
};
bool siftr_filter_keeps(struct siftr_filter *f, const struct siftr_record *r);

enum siftr_output_form { OUTPUT_SUMMARY, OUTPUT_TEXT, OUTPUT_CSV, OUTPUT_JSON, OUTPUT_BINARY };
struct siftr_options {
    enum siftr_output_form form;
    bool summary_json, follow, compress;
    const char *output; /* NULL: standard output */
    struct siftr_filter filter;
    char **files;
    int file_count;
};
/* -1: go on; else the exit code. */
int siftr_options_parse(struct siftr_options *o, int argc, char **argv) NODISCARD;

/* ---- siftr_read.c ---- */
/* What a log consists of, in its order. Each returns 0, or the negative error that ends it all. */
struct siftr_sink {
    void *ctx;
    int (*record)(void *ctx, const struct siftr_record *r);
    /* A header or footer; text with its newline. */
    int (*line)(void *ctx, const struct siftr_line *line, const char *text, size_t len);
    int (*idle)(void *ctx); /* --follow waits for more */
};
/* Read a log of any form, plain or compressed; says on stderr what is wrong with it. follow: until
 * siftr_stop. Returns the exit code, or the negative error of the sink. */
int siftr_read(const char *path, bool follow, const struct siftr_sink *sink) NODISCARD;
void siftr_stop(int signal); /* ends siftr_read at the end of what is there: a signal handler */

/* ---- siftr_write.c ---- */
struct siftr_writer;
/* Whether one of the files would be overwritten; that is said on stderr. */
bool siftr_output_is_input(const struct siftr_options *o);
/* NULL: the reason was said on stderr. */
struct siftr_writer *siftr_writer_open(const struct siftr_options *o) NODISCARD;
int siftr_writer_record(struct siftr_writer *w, const struct siftr_record *r) NODISCARD;
int siftr_writer_line(struct siftr_writer *w, const struct siftr_line *line, const char *text,
                      size_t len) NODISCARD;
int siftr_writer_flush(struct siftr_writer *w) NODISCARD; /* readers see all so far */
/* The exit code. failed: an error was met, and said, before. */
int siftr_writer_close(struct siftr_writer *w, bool failed) NODISCARD;

/* ---- siftr_summary.c ---- */
#define SUMMARY_FLOWS_MAX 16384 /* shown one by one; records of more are counted together */
struct siftr_summary;
struct siftr_summary *siftr_summary_create(bool filtered) NODISCARD; /* NULL: no memory */
void siftr_summary_destroy(struct siftr_summary *s);
int siftr_summary_record(struct siftr_summary *s, const struct siftr_record *r) NODISCARD;
void siftr_summary_line(struct siftr_summary *s, const struct siftr_line *line);
void siftr_summary_file(struct siftr_summary *s); /* another file begins */
/* A record that a filter hides still counts against the footer. */
void siftr_summary_hidden(struct siftr_summary *s);
bool siftr_summary_is_empty(const struct siftr_summary *s); /* nothing was read */
void siftr_summary_print(struct siftr_summary *s, FILE *to, bool json);

#endif
