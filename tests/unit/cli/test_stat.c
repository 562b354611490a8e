/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the statistics are right: against published tables, closed forms, enumeration, and the
 * coverage that intervals promise; and sound for values that break one-pass formulas.
 * Bound: some thousand simulated comparisons, from a fixed seed. */
#include "unit.h"

#include "cli/ab/ab.h"
#include "cli/stat/dist.h"
#include "cli/stat/plot.h"
#include "cli/stat/stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED UINT64_C(20240607)

static void near(double got, double want, double error)
{
    if (fabs(got - want) > error)
        fail_msg("%.15g is not %.15g within %g", got, want, error);
}

static struct stat_set make(const double *v, size_t n)
{
    struct stat_set s = {.name = "s"};
    for (size_t i = 0; i < n; i++)
        assert_true(stat_set_add(&s, v[i]));
    assert_true(stat_set_sort(&s));
    return s;
}

static double uniform(uint64_t *state)
{
    return ((double)(stat_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    double r = sqrt(-2 * log(uniform(state)));
    return r * cos(2 * M_PI * uniform(state));
}

/* ---- distributions ---- */

/* Two-sided critical values, as tables and statistics programs print them. */
static void test_published_quantiles(void **state)
{
    (void)state;
    static const struct {
        double alpha, df, t;
    } row[] = {
        {0.05, 1, 12.7062047362},   {0.05, 2, 4.30265272991},   {0.05, 3, 3.18244630528},
        {0.05, 5, 2.57058183661},   {0.05, 10, 2.22813885196},  {0.05, 30, 2.04227245630},
        {0.05, 100, 1.98397151845}, {0.01, 1, 63.6567411629},   {0.01, 10, 3.16927267160},
        {0.20, 3, 1.63774435370},   {0.10, 4, 2.13184678633},   {0.05, 1e9, 1.95996398454},
        {0.01, 1e9, 2.57582930355}, {0.10, 1e9, 1.64485362695},
    };
    for (size_t i = 0; i < NELEM(row); i++)
        near(dist_t_critical(row[i].alpha, row[i].df), row[i].t, 1e-6);
}

/* One and two degrees of freedom have closed forms. */
static void test_closed_forms(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < 500; i++) {
        double alpha = pow(10, -8 * uniform(&seed)) * 0.999, c = 1 - alpha;
        double one = 1 / tan(M_PI * alpha / 2), two = c * sqrt(2 / (alpha * (2 - alpha)));
        near(dist_t_critical(alpha, 1) / one, 1, 1e-10);
        near(dist_t_critical(alpha, 2) / two, 1, 1e-10);
    }
}

static void test_inverse(void **state)
{
    (void)state;
    uint64_t seed = SEED + 1;
    for (int i = 0; i < 300; i++) {
        double df = exp(uniform(&seed) * 14), alpha = pow(10, -10 * uniform(&seed)) * 0.99;
        near(dist_t_two_sided(dist_t_critical(alpha, df), df) / alpha, 1, 1e-9);
    }
    near(dist_t_two_sided(0, 5), 1, 1e-15);
    near(dist_t_two_sided(INFINITY, 5), 0, 0);
}

/* case: MEA-052 */
static void test_levels(void **state)
{
    (void)state;
    static const double level[] = {80, 90, 95, 98, 99};
    for (size_t df = 1; df <= 1000; df++) {
        double wide = df > 100 ? 0.02 : 0.0005001; /* the table has the normal values beyond 100 */
        for (size_t i = 0; i < NELEM(level); i++) {
            double exact = stat_t_critical(level[i], df, STAT_EXACT);
            near(stat_t_critical(level[i], df, STAT_CLASSIC) / exact, 1, wide);
            near(exact, dist_t_critical((100 - level[i]) / 100, (double)df), 0);
        }
    }
    near(stat_t_critical(97, 8, STAT_CLASSIC), 2.633814, 1e-6); /* no table: exact */
    near(stat_t_critical(95, 8, STAT_CLASSIC), 2.306, 0);
    near(stat_t_critical(95, 101, STAT_CLASSIC), 1.960, 0);
    near(stat_t_critical(99.5, 7, STAT_CLASSIC), 4.782, 0);
    near(stat_t_critical(99.5, 8, STAT_EXACT), 3.832519, 1e-6);
}

/* ---- summaries ---- */

/* case: MEA-049 */
static void test_no_cancellation(void **state)
{
    (void)state;
    static const struct {
        double v[3], mean, stddev;
    } row[] = {
        {{1e9 + 1, 1e9 + 2, 1e9 + 3}, 1e9 + 2, 1},
        {{1e15, 1e15 + 1, 1e15 + 2}, 1e15 + 1, 1},
        {{1e300, 1e300, 1e300}, 1e300, 0},
        {{1e308, 1e308, 1e308}, 1e308, 0}, /* the sum overflows */
        {{-1e308, 1e308, 0}, 0, 1e308},    /* the squares do */
        {{0, 0, 0}, 0, 0},
        {{5e-324, 5e-324, 5e-324}, 5e-324, 0},
    };
    for (size_t i = 0; i < NELEM(row); i++) {
        struct stat_set s = make(row[i].v, 3);
        struct stat_summary r = stat_summarize(&s);
        near(r.mean, row[i].mean, fabs(row[i].mean) * 1e-15);
        near(r.stddev, row[i].stddev, row[i].stddev * 1e-15);
        stat_set_free(&s);
    }
    struct stat_set s = {0};
    for (int i = 0; i < 1000000; i++)
        assert_true(stat_set_add(&s, 0.1));
    assert_true(stat_set_sort(&s));
    struct stat_summary r = stat_summarize(&s);
    assert_true(r.stddev >= 0 && r.stddev < 1e-11);
    near(r.mean, 0.1, 0); /* never outside of what there is */
    stat_set_free(&s);
}

/* Student's sleep data; the figures are those of statistics programs. */
static const double sleep1[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
static const double sleep2[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

static void test_sleep(void **state)
{
    (void)state;
    struct stat_set a = make(sleep1, 10), b = make(sleep2, 10);
    struct stat_summary sa = stat_summarize(&a), sb = stat_summarize(&b);
    struct stat_difference d = stat_compare(&sa, &sb, 95, STAT_EXACT);
    near(d.difference, 1.58, 1e-12);
    near(d.difference + d.difference_ci, 3.363874, 1e-6);
    near(d.difference - d.difference_ci, -0.203874, 1e-6);
    assert_false(d.proven);
    struct stat_welch w = stat_welch(&sa, &sb, 95);
    near(w.df, 17.776, 1e-3);
    near(w.p, 0.07939, 1e-5);
    near(w.difference + w.ci, 3.3654832, 1e-7);
    struct stat_rank r = stat_mann_whitney(&a, &b);
    near(r.u, 74.5, 0);
    assert_false(r.exact); /* ties */
    near(r.p, 0.06933, 1e-5);
    stat_set_free(&a);
    stat_set_free(&b);
}

/* case: MEA-050 */
static void test_constant_sets(void **state)
{
    (void)state;
    static const double five[] = {5, 5, 5}, six[] = {6, 6, 6}, zero[] = {0, 0, 0};
    struct stat_set a = make(five, 3), b = make(six, 3), z = make(zero, 3);
    struct stat_summary sa = stat_summarize(&a), sb = stat_summarize(&b), sz = stat_summarize(&z);
    struct stat_difference d = stat_compare(&sa, &sa, 95, STAT_CLASSIC);
    assert_false(d.proven);
    d = stat_compare(&sa, &sb, 95, STAT_CLASSIC);
    assert_true(d.proven);
    near(d.difference_ci, 0, 0);
    d = stat_compare(&sz, &sb, 95, STAT_CLASSIC);
    assert_true(d.proven && isnan(d.percent) && isnan(d.percent_ci));
    assert_false(stat_welch(&sa, &sb, 95).known);
    near(stat_mann_whitney(&a, &a).p, 1, 0);
    struct stat_ratio q = stat_ratio(&sa, &sz, 95);
    assert_true(isinf(q.ratio) && isinf(q.low));
    assert_true(isnan(stat_ratio(&sz, &sz, 95).low));
    stat_set_free(&a);
    stat_set_free(&b);
    stat_set_free(&z);
}

/* ---- robust tests ---- */

/* All ways to choose which of n values are b's: how often is U as extreme? */
static double enumerate(unsigned na, unsigned nb, double u)
{
    unsigned n = na + nb, all = 0, extreme = 0;
    double mid = na * nb / 2.0;
    for (unsigned mask = 0; mask < 1u << n; mask++) {
        if ((unsigned)__builtin_popcount(mask) != nb)
            continue;
        double v = 0;
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0; k < i; k++)
                v += (mask >> i & 1) && !(mask >> k & 1);
        all++;
        extreme += fabs(v - mid) >= fabs(u - mid) - 1e-9;
    }
    return (double)extreme / all;
}

static void test_rank_against_enumeration(void **state)
{
    (void)state;
    uint64_t seed = SEED + 2;
    for (int round = 0; round < 30; round++) {
        double a[8], b[8];
        unsigned na = 2 + (unsigned)(stat_random(&seed) % 5);
        unsigned nb = 2 + (unsigned)(stat_random(&seed) % 5);
        for (unsigned i = 0; i < 8; i++) {
            a[i] = uniform(&seed);
            b[i] = uniform(&seed) + 0.2;
        }
        struct stat_set sa = make(a, na), sb = make(b, nb);
        struct stat_rank r = stat_mann_whitney(&sa, &sb);
        assert_true(r.exact);
        near(r.p, fmin(1, enumerate(na, nb, r.u)), 1e-12);
        stat_set_free(&sa);
        stat_set_free(&sb);
    }
}

static void test_bootstrap(void **state)
{
    (void)state;
    struct stat_set a = make(sleep1, 10), b = make(sleep2, 10);
    struct stat_bootstrap x = stat_bootstrap_median(&a, &b, 95, 2000, 7);
    struct stat_bootstrap y = stat_bootstrap_median(&a, &b, 95, 2000, 7);
    assert_true(x.known && x.low == y.low && x.high == y.high);
    near(x.difference, 1.75 - 0.35, 1e-12);
    assert_true(x.low <= x.difference && x.difference <= x.high && x.low < x.high);
    struct stat_bootstrap wide = stat_bootstrap_median(&a, &b, 99, 2000, 7);
    assert_true(wide.low <= x.low && wide.high >= x.high);
    stat_set_free(&a);
    stat_set_free(&b);
}

static void test_trend(void **state)
{
    (void)state;
    double v[20];
    uint64_t seed = SEED + 3;
    for (int i = 0; i < 20; i++)
        v[i] = 3 + 0.5 * i;
    near(stat_trend(v, 20).slope, 0.5, 1e-12);
    assert_true(stat_trend(v, 20).p < 1e-9);
    unsigned low = 0;
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 12; i++)
            v[i] = normal(&seed);
        low += stat_trend(v, 12).p < 0.05;
    }
    assert_in_range(low, 60, 145); /* 100 expected; four deviations */
    assert_true(isnan(stat_trend(v, 2).p));
}

/* ---- coverage ---- */

static void random_set(struct stat_set *s, unsigned n, double mean, double sd, uint64_t *seed)
{
    s->count = 0;
    for (unsigned i = 0; i < n; i++)
        assert_true(stat_set_add(s, mean + sd * normal(seed)));
    assert_true(stat_set_sort(s));
}

static void test_coverage(void **state)
{
    (void)state;
    uint64_t seed = SEED + 4;
    struct stat_set a = {0}, b = {0};
    unsigned rounds = 2000, student = 0, welch = 0, ratio = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < rounds; i++) {
        random_set(&a, 6, 10, 1, &seed);
        random_set(&b, 5, 12, 1, &seed);
        struct stat_summary sa = stat_summarize(&a), sb = stat_summarize(&b);
        struct stat_difference d = stat_compare(&sa, &sb, 95, STAT_EXACT);
        student += fabs(d.difference - 2) <= d.difference_ci;
        random_set(&b, 9, 2, 0.1, &seed);
        sb = stat_summarize(&b);
        struct stat_welch w = stat_welch(&sa, &sb, 95);
        welch += fabs(w.difference + 8) <= w.ci;
        struct stat_ratio q = stat_ratio(&sa, &sb, 95);
        ratio += q.low <= 5 && 5 <= q.high;
    }
    /* 1900 expected; four deviations are 39. */
    assert_in_range(student, 1860, 1940);
    assert_in_range(welch, 1860, 1940);
    assert_in_range(ratio, 1860, 1940);
    stat_set_free(&a);
    stat_set_free(&b);
}

/* An interval at whose width the rounds stopped covers a little less often: bounded. */
/* case: MEA-032 */
static void test_coverage_when_stopped_by_width(void **state)
{
    (void)state;
    uint64_t seed = SEED + 5;
    unsigned rounds = 1500, cover = 0, reached = 0;
    double t[80];
    for (unsigned i = 1; i < NELEM(t); i++)
        t[i] = stat_t_critical(95, i, STAT_CLASSIC);
    for (unsigned i = 0; i < rounds; i++) {
        double sum[2] = {0}, squares[2] = {0};
        struct stat_difference d = {.known = true};
        for (unsigned n = 1, narrow = 0; n <= 40 && narrow < AB_NARROW_ROUNDS; n++) {
            for (unsigned k = 0; k < 2; k++) {
                double v = 3 * normal(&seed);
                sum[k] += v;
                squares[k] += v * v;
            }
            if (n < 5)
                continue;
            double ss = squares[0] - sum[0] * sum[0] / n + squares[1] - sum[1] * sum[1] / n;
            d.difference = (sum[1] - sum[0]) / n;
            d.difference_ci = t[2 * n - 2] * sqrt(ss / (2 * n - 2)) * sqrt(2.0 / n);
            d.percent_ci = d.difference_ci; /* of a mean of 100 */
            narrow = ab_width_met(&d, 5) ? narrow + 1 : 0;
        }
        cover += fabs(d.difference) <= d.difference_ci;
        reached += ab_width_met(&d, 5);
    }
    assert_in_range(cover, 1360, 1470); /* 93.7 % to 95 %, four deviations */
    assert_in_range(reached, 1450, 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_quantiles),
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_inverse),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_no_cancellation),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_constant_sets),
        cmocka_unit_test(test_rank_against_enumeration),
        cmocka_unit_test(test_bootstrap),
        cmocka_unit_test(test_trend),
        cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_coverage_when_stopped_by_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
