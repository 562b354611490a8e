/* SPDX-License-Identifier: BSD-2-Clause
 * The results store: every run of bench, ab and repro, in one SQLite database of the user's.
 *
 * How it works: a row of `run` says what ran, when, where and on which build; a row of `side` for
 * each thing that was measured (one for bench, two for ab) has its knobs; a row of `sample` for
 * each single run has its number and bench's whole document. A write is one short transaction on a
 * connection of its own, in WAL mode, so that processes that write at once wait for each other and
 * one that is killed leaves what it had finished. A run that was begun and never ended stays
 * "unfinished". Changes of the schema are steps in store.c, each applied once. */
#ifndef WEIR_CLI_RESULTS_STORE_H
#define WEIR_CLI_RESULTS_STORE_H

#include "base/base.h"
#include <jansson.h>
#include <sqlite3.h>

#define STORE_SCHEMA 1
#define STORE_ENV "WEIR_RESULTS"

struct store {
    sqlite3 *db; /* NULL: not open */
    char path[4096];
    char error[4400]; /* what went wrong last, complete with the path */
};
enum store_mode { STORE_READ, STORE_WRITE };
enum store_status { STORE_OK, STORE_OFF, STORE_ABSENT, STORE_FAILED };

/* Where it is: $WEIR_RESULTS, else $XDG_STATE_HOME/weir/results.db, else the same under
 * ~/.local/state. STORE_OFF: it is switched off; STORE_FAILED: see error. */
enum store_status store_path(struct store *s) NODISCARD;
/* Open it; for writing it is made, and brought to this schema, where that is needed. STORE_ABSENT
 * (only for reading): there is none yet. On anything but STORE_OK there is nothing to close. */
enum store_status store_open(struct store *s, enum store_mode mode) NODISCARD;
void store_close(struct store *s);
/* Note what SQLite says of the last call, in words; returns false. */
bool store_error(struct store *s, const char *what);
/* A prepared statement, or NULL: error is set. The caller finalizes it. */
sqlite3_stmt *store_prepare(struct store *s, const char *sql) NODISCARD;
/* Statements without results. False: error is set. */
bool store_exec(struct store *s, const char *sql) NODISCARD;

/* ---- record.c: what the measuring commands call ---- */

/* One run on its way into the store. After a failure, said once on stderr, everything below does
 * nothing: a store that cannot be written is no reason to lose a measurement. */
struct record {
    const char *who; /* for the message: "bench" */
    bool on;
    int64_t id; /* 0: no row yet */
    const char *kind, *test;
    char command[4096];
};
/* The command line as typed: first of all, getopt changes the order. */
void record_command(struct record *r, int argc, char **argv);
/* No row is written before the first sample. kind: "bench", "ab" or "repro"; borrowed, as test. */
void record_begin(struct record *r, bool wanted, const char *kind, const char *test);
/* One single run of a side (0 on): its number, and its document (borrowed). Round from 1. The
 * metric is the same for all of a side. */
void record_sample(struct record *r, unsigned side, const char *label, unsigned round,
                   const char *metric, const json_t *doc);
/* The last word: the document of the whole (borrowed; NULL: that of the only sample is it). */
void record_end(struct record *r, bool interrupted, const json_t *doc);

#endif
