/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile for people: times in ns, names of callers, and the tables of lockstat and
 * lock_profile. */
#ifndef WEIR_MEASURE_LOCK_STATS_H
#define WEIR_MEASURE_LOCK_STATS_H

#include "base/lock_prof.h"
#include <stdio.h>

#define LOCK_STATS_NAME 32
#define LOCK_STATS_WHERE 96
#define LOCK_STATS_CALLER 96

struct lock_stats_row {
    char lock[LOCK_STATS_NAME];
    char where[LOCK_STATS_WHERE];   /* "src/tcp/tcp_input.c:1456" */
    char caller[LOCK_STATS_CALLER]; /* "tcp_input+0xad" */
    uint64_t v[LOCK_STATS];         /* times in ns */
};
struct lock_stats {
    struct lock_stats_row *row;
    size_t count;
    uint64_t overflow;
    uint64_t counted_ns; /* time for which the profile was on */
};
/* The names of v[] in JSON. */
extern const char *const lock_stat_names[LOCK_STATS];

struct json_t; /* jansson's */
/* {"seconds", "overflow", "rows": [{"lock", "where", "caller", "count", ...}]}; at most `limit`
 * rows, 0: all. */
struct json_t *lock_stats_to_json(const struct lock_stats *s, size_t limit);
/* False: it is nothing of the kind, or there is no memory. */
bool lock_stats_from_json(const struct json_t *o, struct lock_stats *out) NODISCARD;
/* Leave in `now` what came after `before`; maxima stay those since the last reset. */
void lock_stats_since(struct lock_stats *now, const struct lock_stats *before);

/* What the profile of this process says. 0 or -ENOMEM. */
int lock_stats_take(struct lock_stats *out) NODISCARD;
void lock_stats_free(struct lock_stats *s);

/* The columns of lock_profile, then those of lockstat, as they are named on a command line. */
enum lock_column {
    LOCK_COL_MAX,
    LOCK_COL_WAIT_MAX,
    LOCK_COL_TOTAL,
    LOCK_COL_WAIT_TOTAL,
    LOCK_COL_COUNT,
    LOCK_COL_AVG,
    LOCK_COL_WAIT_AVG,
    LOCK_COL_CNT_HOLD,
    LOCK_COL_CNT_LOCK,
    LOCK_COL_NAME,
    LOCK_COL_NSEC,   /* of the table: mean time of an event */
    LOCK_COL_LOCK,   /* by name */
    LOCK_COL_CALLER, /* by name */
    LOCK_COLS
};
extern const char *const lock_column_names[LOCK_COLS];

/* Sort as the profile does: numbers from the greatest, names from A. */
void lock_stats_sort(struct lock_stats *s, enum lock_column by);
/* lock_profile: sorted by a column; us. At most `limit`
 * rows, 0: all. Returns rows printed. */
size_t lock_stats_profile(struct lock_stats *s, enum lock_column by, size_t limit, FILE *to);
/* lockstat: one table of spins or of blocks. Nothing when there was no event. */
void lock_stats_events(struct lock_stats *s, bool blocks, enum lock_column by, size_t limit,
                       FILE *to);

/* The knobs debug.lock.prof.* of a stack. */
void lock_stats_attach(struct weir_stack *s);

#endif
