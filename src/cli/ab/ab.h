/* SPDX-License-Identifier: BSD-2-Clause
 * Runs of `weir bench`, interleaved: the engine of `weir ab` and `weir repro`.
 *
 * How it works: each run is a child process that prints one JSON document. A round has one run of
 * every side, in an order drawn anew from the seed, so that whatever drifts on the machine meets
 * all sides alike. A first round warms up and is thrown away. Rounds go on until the interval of
 * the difference is as narrow as asked or the cap is reached; significance never ends them, so that
 * looking often does not make chance differences "proven". */
#ifndef WEIR_CLI_AB_H
#define WEIR_CLI_AB_H

#include "cli/stat/stat.h"
#include <jansson.h>
#include <signal.h>

struct record;

#define AB_MAX_SIDES 5
#define AB_MAX_ROUNDS 1000
#define AB_MAX_WORDS 256
/* In so many rounds in a row the interval must be narrow: one that happens to be narrow is also
 * more likely to miss the truth. With two, an interval of 95 % covers it in 93.7 % of cases or more
 * (simulated), against 93.3 % with one. */
#define AB_NARROW_ROUNDS 2u

/* ---- ab_words.c: command lines ---- */
struct words {
    char *v[AB_MAX_WORDS + 1]; /* owned; NULL-terminated */
    unsigned count;
};
/* False: no room or no memory. */
bool words_add(struct words *w, const char *text) NODISCARD;
/* Words as a shell splits them: blanks, '...', "...", backslash. False also: a quote is not closed.
 */
bool words_split(struct words *w, const char *text) NODISCARD;
bool words_append(struct words *w, const struct words *more) NODISCARD;
void words_free(struct words *w);

/* ---- ab_child.c: one run ---- */
/* Set by SIGINT and SIGTERM once ab_catch_signals was called. */
extern volatile sig_atomic_t ab_interrupted;
void ab_catch_signals(void);
struct child_result {
    json_t *doc;      /* what it printed; owned; NULL: failed */
    double cpu_s;     /* of the child and what it waited for */
    char error[1024]; /* why it failed: its standard error, or its exit status */
};
/* Run a command, its standard output one JSON object, for at most timeout_ns. It is its own process
 * group and is ended, with all of the group, on interruption and timeout. */
bool child_run(char *const *argv, uint64_t timeout_ns, struct child_result *r);
/* The path of this executable. False: errno. */
bool self_path(char *out, size_t size) NODISCARD;

/* ---- ab_metric.c: a number of a run ---- */
/* The number that `metric` names in a document of `bench -J`: a member, or members joined by dots
 * ("latency_us.p99"), or a sum of such ("cpu.local_pct+cpu.remote_pct"), or one of the short names
 * of metric_help. False: it is not there, or null. */
bool metric_get(const json_t *doc, const char *metric, double *value);
extern const char metric_help[];
/* What a test is judged by when nothing was chosen, from one of its documents. */
const char *metric_default(const json_t *doc);

/* ---- ab_load.c: is anything else going on? ---- */
struct load {
    double seconds, other_cpu_s, steal_s, worst_pct;
    bool known;
    uint64_t mark_ns, mark_busy, mark_steal; /* at load_begin */
    double mark_self_s;
};
void load_begin(struct load *l);
void load_end(struct load *l, double child_cpu_s); /* of the run since load_begin */
double load_other_pct(const struct load *l);       /* of one core */
double load_steal_pct(const struct load *l);

/* ---- ab_run.c: rounds ---- */
struct ab_side {
    char label[256];
    struct words command;
};
struct ab_plan {
    const char *who; /* for messages: "ab" */
    struct ab_side side[AB_MAX_SIDES];
    unsigned sides;
    unsigned min_rounds, max_rounds;
    double level_pct, width_pct; /* width 0: min_rounds it is */
    double
        ratio_width; /* > 0, instead: of the interval of the ratio of the means, as a share of it */
    const char *metric; /* NULL: metric_default; sides 0 and 1 are compared */
    uint64_t seed, timeout_ns;
    /* After each run: may add to its document. False: *error says why it was no good. May be NULL.
     */
    bool (*after)(void *ctx, unsigned side, json_t *doc, char *error, size_t size);
    void *after_ctx;
    struct record *record; /* each run goes there as it comes; NULL: nowhere */
    unsigned record_side;  /* of side 0: several plans may share a record */
};
struct ab_outcome {
    json_t *docs[AB_MAX_SIDES];                      /* arrays: a document for each round */
    char order[AB_MAX_ROUNDS + 1][AB_MAX_SIDES + 1]; /* "ab", "ba", ... */
    unsigned rounds;                                 /* complete ones */
    bool interrupted, width_met;
    struct load load;
    char metric[256];
    char error[1400]; /* "" good */
};
/* False: a run failed, see error (interruption is no failure). */
bool ab_run(const struct ab_plan *plan, struct ab_outcome *o);
void ab_outcome_free(struct ab_outcome *o);
/* The values of a metric of one side, sorted too. False: a run lacks it, or no memory. */
bool ab_values(const struct ab_outcome *o, unsigned side, const char *metric,
               struct stat_set *set) NODISCARD;
/* Has the interval the width that was asked for? */
bool ab_width_met(const struct stat_difference *d, double width_pct);
/* Add to a JSON array of strings what makes the result doubtful: load, drift. */
void ab_doubts(const struct ab_outcome *o, unsigned sides, json_t *warnings);
/* {"confidence_pct", "difference", ...} */
json_t *ab_difference_json(const struct stat_difference *d);
json_t *ab_numbers_json(const struct stat_set *s);
/* For the name of a side: its settings. */
void label_add(char *label, size_t size, const char *prefix, const char *text);

#endif
