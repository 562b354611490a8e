/* SPDX-License-Identifier: BSD-2-Clause
 * `weir top`: what a running instance does, refreshed. Snapshot, model and screen are free of any
 * terminal; top_curses.c paints the screen's lines. */
#ifndef WEIR_CLI_TOP_H
#define WEIR_CLI_TOP_H

#include "base/base.h"
#include <jansson.h>
#include <stdio.h>

/* ---- top_snapshot.c: what the instance said (runtime/snapshot.h) ---- */

enum top_view { TOP_FLOWS, TOP_THREADS, TOP_LOCKS, TOP_VIEWS };
extern const char *const top_view_name[TOP_VIEWS];

struct top_cell {
    const char *text; /* NULL: a number */
    double num;       /* NAN: not known */
};

struct top_table {
    unsigned columns;
    size_t rows;
    const char **name;     /* of the columns */
    struct top_cell *cell; /* by rows */
};

struct top_snapshot {
    json_t *root; /* owns all text */
    int pid;
    double at_ns;
    double mbufs, mbuf_bytes;
    double flows, sent_bytes, received_bytes, retransmits; /* sums over the stacks */
    struct top_table table[TOP_VIEWS];
};

/* From the JSON text. NULL: it is not what a snapshot should be, or no memory. */
struct top_snapshot *top_snapshot_parse(const char *text, size_t len) NODISCARD;
void top_snapshot_free(struct top_snapshot *s); /* NULL is allowed */
/* The column of this name; -1: the instance does not tell it. */
int top_table_column(const struct top_table *t, const char *name);

/* ---- top_format.c: numbers in few characters ---- */

enum top_unit {
    TOP_PLAIN,   /* 12345 */
    TOP_COUNT,   /* 12.3k */
    TOP_PER_S,   /* 12.3k/s */
    TOP_BITS,    /* 12.3Gb/s */
    TOP_BYTES,   /* 12.3MB */
    TOP_NS,      /* 12.3us */
    TOP_PERCENT, /* 12% */
};
/* Three digits and the unit, at most 8 characters below 10^18; "-" for NAN. The error is at most
 * half of the last digit that is printed. */
void top_format(double value, enum top_unit unit, char *buf, size_t size);
/* Text to `width` characters (buf has room for one more): what does not fit goes out of the middle,
 * for which ".." stands, or "~" where there is little room; the last `keep` characters (a port)
 * stay if they can. What is not printable ASCII is '?'. */
void top_shorten(const char *text, size_t keep, size_t width, char *buf);

/* ---- top_model.c: two snapshots make rows with rates ---- */

enum top_kind {
    TOP_TEXT,     /* a */
    TOP_ENDPOINT, /* a (address) and b (port) */
    TOP_GAUGE,    /* a */
    TOP_RATE,     /* growth of a and b (NULL: only a) in a second */
    TOP_FILL,     /* a in percent of b, as they stand */
    TOP_COST,     /* growth of a, for each that b and c grew */
};

struct top_column {
    const char *name;  /* as -s takes it */
    const char *title; /* over the column */
    uint8_t width;     /* at least; 0: never shown, to sort by only */
    enum top_kind kind;
    enum top_unit unit;
    const char *a, *b, *c; /* columns of the snapshot */
    double scale;          /* the value is multiplied by this */
};
#define TOP_MAX_COLUMNS 20

struct top_model {
    struct top_snapshot *prev, *cur; /* owned; prev NULL: no rates yet; cur NULL: nothing at all */
    enum top_view view;
    struct {
        unsigned column; /* what its rows are sorted by */
        bool reverse;    /* against the column's own order: numbers fall, text rises */
    } sort[TOP_VIEWS];
    char filter[64]; /* rows that have it in their text, in whatever case; "" all */

    /* top_model_arrange makes these, of the present view */
    const struct top_column *column;
    unsigned columns;
    /* Places of a, b, c in the table, and in that of prev; -1: not told. */
    int source[TOP_MAX_COLUMNS][3], was[TOP_MAX_COLUMNS][3];
    int at, was_at, born;
    uint32_t *before; /* for each row: 1 + its row in prev; 0: none */
    uint32_t *order;  /* rows in the order of the screen */
    size_t shown;     /* how many of them */
};

void top_model_init(struct top_model *m);
void top_model_fini(struct top_model *m);
/* The newest snapshot (consumed); the one that was newest is what rates are reckoned from. */
void top_model_add(struct top_model *m, struct top_snapshot *s);
/* Choose rows and put them in order: after whatever changed. Cost O(rows log rows). False: no
 * memory (nothing is shown). */
bool top_model_arrange(struct top_model *m);
/* Sort the present view by the column of this name. False: it has none. */
bool top_model_sort_by(struct top_model *m, const char *name) NODISCARD;
/* Sort by the next (1) or previous (-1) column that the instance tells. */
void top_model_sort_step(struct top_model *m, int step);
/* True when the instance tells this column of the present view. */
bool top_model_has(const struct top_model *m, unsigned column);
/* A number of a row of the table, NAN: not known. */
double top_model_value(const struct top_model *m, size_t row, unsigned column);
/* Its text, whole; `keep`: how many characters at its end matter most. */
void top_model_text(const struct top_model *m, size_t row, unsigned column, char *buf, size_t size,
                    size_t *keep);
/* Seconds between the snapshots; NAN: there are not two. */
double top_model_interval(const struct top_model *m);
/* For usage: the columns of a view that -s takes. */
void top_model_list_columns(enum top_view view, FILE *to);

/* ---- top_screen.c: lines of text ---- */

enum top_look { TOP_LOOK_PLAIN, TOP_LOOK_BOLD, TOP_LOOK_REVERSE };

struct top_screen {
    struct top_model model;
    unsigned width, height;
    size_t first;  /* row at the top */
    unsigned skip; /* columns scrolled out at the left */
    bool help, paused, quit;
    bool refresh; /* a snapshot is wanted now */
    bool editing; /* the filter is being typed; what it was stands in `before` */
    char before[sizeof(((struct top_model *)0)->filter)];
    char message[128]; /* last line instead of the hints; "" none */
};

/* One key, as ncurses numbers them. Keys that mean nothing are ignored. */
void top_screen_key(struct top_screen *s, int key);
/* Line y (< height) in buf, of width + 1 characters; its look. */
enum top_look top_screen_line(const struct top_screen *s, unsigned y, char *buf);
/* Keep `first` and `skip` within what there is: after a new size or new rows. */
void top_screen_settle(struct top_screen *s);
/* Batch mode: everything of the present view, lines as long as they get. */
void top_screen_print(const struct top_model *m, FILE *out);

/* ---- top_fetch.c: one request, without blocking ---- */

struct top_fetch {
    const char *path; /* borrowed */
    int fd;           /* -1: nothing is under way */
    char *buf;
    size_t len, room;
    uint64_t since_ns; /* CLOCK_MONOTONIC, of the request */
};
/* Ask. 0, or a negative errno: -EAGAIN busy, others: nobody is there. */
int top_fetch_start(struct top_fetch *f) NODISCARD;
/* Take what came. 1: the answer is complete; 0: not yet; a negative errno. */
int top_fetch_step(struct top_fetch *f) NODISCARD;
/* The snapshot in a complete answer; NULL: `why` (at least one byte) says what is wrong. */
struct top_snapshot *top_fetch_take(struct top_fetch *f, char *why, size_t size) NODISCARD;
void top_fetch_stop(struct top_fetch *f);

/* ---- top_pace.c: when to ask, and what an answer means ---- */

struct top_pace {
    struct top_fetch fetch;
    uint64_t delay_ns;
    uint64_t next_ns; /* CLOCK_MONOTONIC, of the next request */
    unsigned refused; /* in a row */
};
/* Do what is due: ask, take, give up. `m` gets a new snapshot: 1. 0: nothing new. -1: the instance
 * is gone, or does not answer as one should: `why`. */
int top_pace_step(struct top_pace *p, struct top_model *m, bool paused, char *why,
                  size_t size) NODISCARD;
/* What poll is to wait for until something is due: ms; and for p->fetch.fd if that is open. */
int top_pace_timeout(const struct top_pace *p, bool paused);

/* ---- top_curses.c ---- */

/* Show it on the terminal until the user has enough or `count` refreshes (0: no limit) were shown.
 * The exit code; a signal that ends it is raised anew when the terminal is as it was. */
int top_curses_run(struct top_screen *s, struct top_pace *p, uint64_t count, const char *command);

#endif
