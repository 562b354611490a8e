/* SPDX-License-Identifier: BSD-2-Clause
 * Summary of a sample, and Student's comparison of two. */
#include "stat.h"
#include "dist.h"

#include <math.h>
#include <stdlib.h>

bool stat_set_add(struct stat_set *s, double value)
{
    if (s->count == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 64;
        double *v = reallocarray(s->v, room, sizeof(*v));
        if (v == NULL)
            return false;
        s->v = v;
        s->room = room;
    }
    s->v[s->count++] = value;
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool stat_set_sort(struct stat_set *s)
{
    double *sorted = reallocarray(s->sorted, MAX(s->count, (size_t)1), sizeof(*sorted));
    if (sorted == NULL)
        return false;
    s->sorted = sorted;
    if (s->count > 0)
        memcpy(sorted, s->v, s->count * sizeof(*sorted));
    qsort(sorted, s->count, sizeof(*sorted), by_value);
    return true;
}

void stat_set_free(struct stat_set *s)
{
    free(s->v);
    free(s->sorted);
    *s = (struct stat_set){.name = s->name};
}

/* The plain sum in the order of input decides the last digit, and so what ministat prints of a mean
 * that ends in a 5; only where it overflows is it done another way. */
static double mean_of(const struct stat_set *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->v[i];
    if (isfinite(sum))
        return sum / (double)s->count;
    long double wide = 0;
    for (size_t i = 0; i < s->count; i++)
        wide += (long double)s->v[i] / (long double)s->count;
    return (double)wide;
}

struct stat_summary stat_summarize(const struct stat_set *s)
{
    CHECK(s->count > 0 && s->sorted != NULL);
    double mean = mean_of(s);
    struct stat_summary r = {
        .count = s->count,
        .min = s->sorted[0],
        .max = s->sorted[s->count - 1],
        .median = s->sorted[s->count / 2],
        .mean = fmin(fmax(mean, s->sorted[0]), s->sorted[s->count - 1]),
        .stddev = NAN,
    };
    if (s->count < 2)
        return r;
    /* The second sum corrects what rounding left in the mean (Chan, Golub and LeVeque 1983). */
    long double squares = 0, rest = 0, n = (long double)s->count;
    for (size_t i = 0; i < s->count; i++) {
        long double d = (long double)s->v[i] - (long double)mean;
        squares += d * d;
        rest += d;
    }
    long double sum = squares - rest * rest / n;
    r.stddev = sum > 0 ? (double)sqrtl(sum / (n - 1)) : 0;
    return r;
}

/* Where the classic table is off in its last digit, at "99.5 %", by degrees of freedom from 7. */
static const double classic_misprints[] = {4.782, 4.499, 4.296, 4.143, 4.024, 3.929};

/* ministat's table: three decimals, the normal distribution beyond 100 degrees of freedom; the
 * column for 99.5 % holds the values of 99.8 %. */
static double classic_critical(double level_pct, size_t df)
{
    double alpha = level_pct == 99.5 ? 0.002 : (100 - level_pct) / 100;
    if (level_pct == 99.5 && df >= 7 && df < 7 + NELEM(classic_misprints))
        return classic_misprints[df - 7];
    return round(dist_t_critical(alpha, df > 100 ? DIST_NORMAL_DF : (double)df) * 1000) / 1000;
}

double stat_t_critical(double level_pct, size_t df, enum stat_table table)
{
    static const double classic[] = {80, 90, 95, 98, 99, 99.5};
    CHECK(level_pct > 0 && level_pct < 100 && df > 0);
    for (size_t i = 0; table == STAT_CLASSIC && i < NELEM(classic); i++)
        if (level_pct == classic[i])
            return classic_critical(level_pct, df);
    return dist_t_critical((100 - level_pct) / 100, (double)df);
}

struct stat_difference stat_compare(const struct stat_summary *a, const struct stat_summary *b,
                                    double level_pct, enum stat_table table)
{
    struct stat_difference d = {
        .level_pct = level_pct,
        .difference = b->mean - a->mean,
        .known = a->count >= 2 && b->count >= 2,
    };
    d.percent = a->mean != 0 ? d.difference * 100 / a->mean : NAN;
    if (!d.known) {
        d.difference_ci = d.percent_ci = d.pooled_s = NAN;
        return d;
    }
    size_t df = a->count + b->count - 2;
    long double va = (long double)a->stddev * (long double)a->stddev;
    long double vb = (long double)b->stddev * (long double)b->stddev;
    d.pooled_s = (double)sqrtl(
        ((long double)(a->count - 1) * va + (long double)(b->count - 1) * vb) / (long double)df);
    d.difference_ci = stat_t_critical(level_pct, df, table) * d.pooled_s *
                      sqrt(1 / (double)a->count + 1 / (double)b->count);
    d.percent_ci = a->mean != 0 ? d.difference_ci * 100 / a->mean : NAN;
    d.proven = fabs(d.difference) > d.difference_ci;
    return d;
}
