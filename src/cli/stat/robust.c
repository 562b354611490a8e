/* SPDX-License-Identifier: BSD-2-Clause
 * Tests that ask for less than equal variances or normal samples, and the check for drift. */
#include "dist.h"
#include "stat.h"

#include <math.h>
#include <stdlib.h>

#define EXACT_RANK_LIMIT 50 /* values of both sets: the table of counts stays small */

struct stat_welch stat_welch(const struct stat_summary *a, const struct stat_summary *b,
                             double level_pct)
{
    struct stat_welch w = {.difference = b->mean - a->mean, .ci = NAN, .df = NAN, .p = NAN};
    if (a->count < 2 || b->count < 2)
        return w;
    double va = a->stddev * a->stddev / (double)a->count;
    double vb = b->stddev * b->stddev / (double)b->count;
    if (!(va + vb > 0) || !isfinite(va + vb))
        return w;
    w.known = true;
    w.df = (va + vb) * (va + vb) /
           (va * va / (double)(a->count - 1) + vb * vb / (double)(b->count - 1));
    w.ci = dist_t_critical((100 - level_pct) / 100, w.df) * sqrt(va + vb);
    w.p = dist_t_two_sided(w.difference / sqrt(va + vb), w.df);
    return w;
}

struct stat_ratio stat_ratio(const struct stat_summary *a, const struct stat_summary *b,
                             double level_pct)
{
    struct stat_ratio r = {.ratio = NAN, .low = NAN, .high = NAN};
    if (a->count < 2 || b->count < 2)
        return r;
    double ma = a->mean, mb = b->mean;
    double va = a->stddev * a->stddev / (double)a->count;
    double vb = b->stddev * b->stddev / (double)b->count;
    r.ratio = mb != 0 ? ma / mb : ma != 0 ? INFINITY : NAN;
    if (!isfinite(r.ratio)) {
        r.low = r.high = vb == 0 ? r.ratio : NAN; /* b is 0 in every run */
        return r;
    }
    /* The degrees of freedom of a - ratio * b. */
    double wb = r.ratio * r.ratio * vb, df = DIST_NORMAL_DF;
    if (va + wb > 0)
        df = (va + wb) * (va + wb) /
             (va * va / (double)(a->count - 1) + wb * wb / (double)(b->count - 1));
    double t = dist_t_critical((100 - level_pct) / 100, df);
    /* All q with (ma - q mb)^2 <= t^2 (va + q^2 vb): between the roots of A q^2 - 2 B q + C. */
    double A = mb * mb - t * t * vb, B = ma * mb, C = ma * ma - t * t * va;
    double root = B * B - A * C;
    if (A > 0) {
        r.low = (B - sqrt(fmax(root, 0))) / A;
        r.high = (B + sqrt(fmax(root, 0))) / A;
    } else if (C > 0 && root > 0) { /* b may be 0, a is not: one end is open */
        r.low = C / (fabs(B) + sqrt(root));
        r.high = INFINITY;
    }
    return r;
}

/* How many of the orders of a and b values give U = u, as shares of all: the classic recurrence
 * over the largest value, N(a, b, u) = N(a - 1, b, u - b) + N(a, b - 1, u). The chance of U <= u.
 */
static double exact_rank_chance(size_t na, size_t nb, size_t u)
{
    size_t span = na * nb + 1;
    double *count = calloc((na + 1) * span, sizeof(*count)); /* for the present b, by a and u */
    if (count == NULL)
        return NAN;
    for (size_t a = 0; a <= na; a++)
        count[a * span] = 1; /* b = 0 */
    for (size_t b = 1; b <= nb; b++)
        for (size_t a = 1; a <= na; a++) {
            double *row = &count[a * span], *less = &count[(a - 1) * span];
            for (size_t k = a * b + 1; k-- > b;)
                row[k] = row[k] + less[k - b];
        }
    double sum = 0, all = 0;
    for (size_t k = 0; k < span; k++) {
        all += count[na * span + k];
        sum += k <= u ? count[na * span + k] : 0;
    }
    free(count);
    return sum / all;
}

struct stat_rank stat_mann_whitney(const struct stat_set *a, const struct stat_set *b)
{
    double na = (double)a->count, nb = (double)b->count, u = 0, ties = 0;
    size_t below = 0, upto = 0, i = 0, j = 0;
    for (size_t k = 0; k < b->count; k++) {
        while (below < a->count && a->sorted[below] < b->sorted[k])
            below++;
        upto = MAX(upto, below);
        while (upto < a->count && a->sorted[upto] <= b->sorted[k])
            upto++;
        u += (double)below + 0.5 * (double)(upto - below);
    }
    while (i < a->count || j < b->count) { /* groups of equal values over both */
        double v = j >= b->count || (i < a->count && a->sorted[i] <= b->sorted[j]) ? a->sorted[i]
                                                                                   : b->sorted[j];
        double t = 0;
        for (; i < a->count && a->sorted[i] == v; i++)
            t++;
        for (; j < b->count && b->sorted[j] == v; j++)
            t++;
        ties += t * t * t - t;
    }
    struct stat_rank r = {.u = u, .superiority = na * nb > 0 ? u / (na * nb) : NAN};
    double small = fmin(u, na * nb - u), n = na + nb;
    r.exact = ties == 0 && n <= EXACT_RANK_LIMIT;
    if (r.exact) {
        r.p = fmin(1, 2 * exact_rank_chance(a->count, b->count, (size_t)small));
    } else {
        double var = na * nb / 12 * (n + 1 - ties / (n * (n - 1)));
        double z = fmax(0, na * nb / 2 - small - 0.5) / sqrt(var);
        r.p = var > 0 ? dist_t_two_sided(z, DIST_NORMAL_DF) : 1;
    }
    return r;
}

static double middle(const double *sorted, size_t n)
{
    return n % 2 == 1 ? sorted[n / 2] : sorted[n / 2 - 1] / 2 + sorted[n / 2] / 2;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of as many values drawn with replacement. */
static double resampled_median(const struct stat_set *s, double *scratch, uint64_t *state)
{
    for (size_t i = 0; i < s->count; i++)
        scratch[i] = s->sorted[stat_random(state) % s->count];
    qsort(scratch, s->count, sizeof(*scratch), by_value);
    return middle(scratch, s->count);
}

struct stat_bootstrap stat_bootstrap_median(const struct stat_set *a, const struct stat_set *b,
                                            double level_pct, unsigned rounds, uint64_t seed)
{
    struct stat_bootstrap r = {.difference = NAN, .low = NAN, .high = NAN};
    if (a->count == 0 || b->count == 0 || rounds == 0)
        return r;
    double *draws = calloc(rounds, sizeof(*draws));
    double *scratch = calloc(MAX(a->count, b->count), sizeof(*scratch));
    r.difference = middle(b->sorted, b->count) - middle(a->sorted, a->count);
    if (draws != NULL && scratch != NULL) {
        for (unsigned i = 0; i < rounds; i++) {
            double ma = resampled_median(a, scratch, &seed);
            draws[i] = resampled_median(b, scratch, &seed) - ma;
        }
        qsort(draws, rounds, sizeof(*draws), by_value);
        double cut = (100 - level_pct) / 200 * rounds;
        r.low = draws[MIN((size_t)cut, (size_t)rounds - 1)];
        r.high = draws[rounds - 1 - MIN((size_t)cut, (size_t)rounds - 1)];
        r.known = true;
    }
    free(draws);
    free(scratch);
    return r;
}

struct stat_trend stat_trend(const double *v, size_t count)
{
    struct stat_trend t = {.slope = NAN, .p = NAN};
    if (count < 3)
        return t;
    double n = (double)count, mid = (n - 1) / 2, mean = 0, sxy = 0, syy = 0;
    double sxx = n * (n * n - 1) / 12;
    for (size_t i = 0; i < count; i++)
        mean += v[i] / n;
    for (size_t i = 0; i < count; i++) {
        sxy += ((double)i - mid) * (v[i] - mean);
        syy += (v[i] - mean) * (v[i] - mean);
    }
    t.slope = sxy / sxx;
    double rest = syy - sxy * sxy / sxx;
    if (syy > 0)
        t.p = rest > 0 ? dist_t_two_sided(t.slope / sqrt(rest / (n - 2) / sxx), n - 2) : 0;
    return t;
}
