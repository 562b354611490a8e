/* SPDX-License-Identifier: BSD-2-Clause
 * `weir results`: what its parts share. */
#ifndef WEIR_CLI_RESULTS_H
#define WEIR_CLI_RESULTS_H

#include "store.h"

#include "cli/stat/stat.h"

#define RESULTS_MAX_IDS 256

struct results_options {
    const char *verb, *test, *kind, *metric;
    int side;            /* compare --test: of ab's runs; -1: runs of bench */
    double since, until; /* seconds since 1970; NAN: not given */
    double older_s;      /* NAN: not given */
    double level_pct;
    uint64_t limit; /* of list: the latest so many; 0: all */
    bool json, csv;
    char **word; /* what follows the verb */
    int words;
};

/* ---- results.c ---- */
/* Local midnight, so many days from today; seconds since 1970. */
double results_midnight(int days);
/* ---- results_read.c ---- */
/* Statement of the runs that the options choose (and of these ids, where there are any), oldest
 * first: id, kind, test, at, state, command, host, cpu, kernel, version, build, doc. */
sqlite3_stmt *results_runs(struct store *s, const struct results_options *o, const int64_t *id,
                           unsigned ids, bool latest);
/* The row a statement stands on, with its sides and all samples; docs: with the documents. NULL:
 * see s->error. */
json_t *results_run_json(struct store *s, sqlite3_stmt *run, bool docs);
/* "2026-12-01 02:03:04" in local time */
void results_time(double at, char *out, size_t size);
int results_print_json(json_t *doc); /* consumed */

int results_list(struct store *s, const struct results_options *o);
int results_show(struct store *s, const struct results_options *o);
int results_export(struct store *s, const struct results_options *o);
/* ---- results_compare.c ---- */
int results_compare(struct store *s, const struct results_options *o);

#endif
