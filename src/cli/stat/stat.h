/* SPDX-License-Identifier: BSD-2-Clause
 * Samples, their summary, and the difference of two of them: pure functions, as ministat has them.
 */
#ifndef WEIR_CLI_STAT_H
#define WEIR_CLI_STAT_H

#include "base/base.h"

/* The values of one side in the order in which they came, and sorted. */
struct stat_set {
    const char *name; /* borrowed */
    double *v, *sorted;
    size_t count, room;
};
/* Append a value. False: no memory (the set is as before). */
bool stat_set_add(struct stat_set *s, double value) NODISCARD;
/* Bring .sorted up to date: after the last value, before anything below. False: no memory. */
bool stat_set_sort(struct stat_set *s) NODISCARD;
void stat_set_free(struct stat_set *s);

struct stat_summary {
    size_t count;
    double min, max, median, mean;
    double stddev; /* of the sample (n - 1); NAN below two values */
};
/* Needs at least one value. The median is element n/2 of the sorted values (counted from 0), as
 * ministat prints it. Two passes: no cancellation, however far the values lie from zero. */
struct stat_summary stat_summarize(const struct stat_set *s);

/* How critical values are found. */
enum stat_table {
    STAT_CLASSIC, /* at 80, 90, 95, 98, 99 and 99.5 %: those of ministat's table, so that its every
                     figure comes out; at other levels exact */
    STAT_EXACT,
};
/* Student's t for a two-sided interval; level_pct strictly between 0 and 100. */
double stat_t_critical(double level_pct, size_t df, enum stat_table table);

/* The means of b and a (the reference) compared by Student's t with pooled variance. */
struct stat_difference {
    double level_pct;
    double difference, difference_ci; /* mean of b less mean of a; half of its interval */
    double percent, percent_ci;       /* the same in % of a's mean; NAN when that is 0 */
    double pooled_s;
    bool known;  /* both sets have two values at least: else nothing but .difference is */
    bool proven; /* zero lies outside the interval */
};
struct stat_difference stat_compare(const struct stat_summary *a, const struct stat_summary *b,
                                    double level_pct, enum stat_table table);

/* ---- robust companions ---- */

/* Welch's test: the variances need not be equal. */
struct stat_welch {
    double difference, ci, df, p;
    bool known; /* both sets have two values, not all equal */
};
struct stat_welch stat_welch(const struct stat_summary *a, const struct stat_summary *b,
                             double level_pct);

/* How many times larger mean a is than mean b, with Fieller's interval (variances may differ,
 * Welch's degrees of freedom). high is INFINITY where b's mean cannot be told from 0; everything
 * NAN where neither can, or below two values. */
struct stat_ratio {
    double ratio, low, high;
};
struct stat_ratio stat_ratio(const struct stat_summary *a, const struct stat_summary *b,
                             double level_pct);

/* Mann and Whitney's test: does one side tend to be larger? Exact for small sets without ties,
 * else by the normal approximation corrected for ties and continuity. */
struct stat_rank {
    double u;           /* pairs in which b is larger, a tie counts half */
    double superiority; /* u as a share of all pairs: 0.5 when neither is larger */
    double p;           /* two-sided */
    bool exact;
};
struct stat_rank stat_mann_whitney(const struct stat_set *a, const struct stat_set *b);

/* The difference of the medians (the usual ones, the mean of the middle two for an even count), and
 * its interval by the percentile bootstrap. Same seed, same result. */
struct stat_bootstrap {
    double difference, low, high;
    bool known;
};
struct stat_bootstrap stat_bootstrap_median(const struct stat_set *a, const struct stat_set *b,
                                            double level_pct, unsigned rounds, uint64_t seed);

/* The slope of values over their order, as a check for drift: p two-sided, NAN below three values
 * or when all are equal. */
struct stat_trend {
    double slope; /* per step */
    double p;
};
struct stat_trend stat_trend(const double *v, size_t count);

/* A small generator for orders and bootstraps (splitmix64). */
static inline uint64_t stat_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
