/* SPDX-License-Identifier: BSD-2-Clause
 * Experiments that repeat the five reports: what each claims, how it is run here, what came out. */
#ifndef WEIR_CLI_REPRO_H
#define WEIR_CLI_REPRO_H

#include "cli/ab/ab.h"
#include "cli/stat/stat.h"
#include <jansson.h>

enum repro_verdict { REPRO_FALSE, REPRO_TRUE, REPRO_UNPROVEN };

struct repro {
    unsigned rounds, max_rounds; /* of each side: as many until the ratio is known well enough */
    double level_pct;
    uint64_t seed;
    bool quick, json; /* json: print nothing but the document */
    const char *self; /* the executable */
    bool no_store;
    struct record *record; /* of this experiment */
    unsigned record_sides; /* sides of the plans so far */
    /* of the experiment that runs now */
    const char *name;
    json_t *measured, *warnings;
    enum repro_verdict verdict;
    char why[1024];
    char error[1500]; /* "": it could be run */
};

struct experiment {
    const char *name, *claim;
    /* The report's figures, a JSON object as text. */
    const char *reported;
    /* Runs all of it, prints its tables unless r->json, fills measured, verdict and why. False:
     * error says why it could not, or r->error is empty: interrupted. */
    bool (*run)(struct repro *r);
};
extern const struct experiment repro_siftr, repro_stream, repro_reass, repro_sendfile,
    repro_cputime;

/* ---- repro_tools.c ---- */
/* A plan of rounds; sides are added to it. */
/* Sides 0 and 1 are those whose ratio of `metric` is to be known: rounds go on, up to the cap,
 * until its interval is at most ratio_width of it. */
void repro_plan(struct repro *r, struct ab_plan *plan, const char *metric, double ratio_width);
/* "bench" and what follows in words; returns false when there is no room. */
bool repro_side(struct repro *r, struct ab_plan *plan, const char *label, const char *bench);
/* Run and free the commands. False: as experiment.run. Doubts go to r->warnings. */
bool repro_rounds(struct repro *r, struct ab_plan *plan, struct ab_outcome *out);

/* A column of a table: a metric of the runs, times scale. */
struct column {
    const char *title, *key; /* key: of the JSON object */
    const char *metric;
    double scale;
    int digits;
};
/* A row of means, with every run in JSON: {key: {"mean", "stddev", "runs"}}. */
json_t *repro_row_json(const struct ab_outcome *out, unsigned side, const struct column *c,
                       unsigned columns);
void repro_print_heads(const char *title, const struct column *c, unsigned columns);
void repro_print_row(const struct ab_outcome *out, unsigned side, const char *label,
                     const struct column *c, unsigned columns);
void repro_print_figures(const char *label, const double *v, const struct column *c,
                         unsigned columns); /* NAN prints as - */
bool repro_summary(const struct ab_outcome *out, unsigned side, const char *metric,
                   struct stat_summary *s) NODISCARD;
/* {"ratio", "low", "high"}; what is not finite is null */
json_t *repro_ratio_json(const struct stat_ratio *q);
/* Is the ratio at least `bar`? From its interval: true above it, false below, else unproven. */
enum repro_verdict repro_at_least(const struct stat_ratio *q, double bar);
/* "12.3 times (95 % interval 11 to 14)" */
void repro_ratio_text(const struct stat_ratio *q, double level_pct, char *out, size_t size);
void repro_why(struct repro *r, const char *fmt, ...) PRINTF_LIKE(2, 3); /* appends a sentence */
void repro_say(const struct repro *r, const char *fmt, ...) PRINTF_LIKE(2, 3); /* unless JSON */

#endif
