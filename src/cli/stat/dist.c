/* SPDX-License-Identifier: BSD-2-Clause
 * Student's distribution by the incomplete beta function, the normal one by erfc. */
#include "dist.h"

#include <math.h>
#include <stdbool.h>

#define FRACTION_STEPS 20000 /* about 5 sqrt(df) are needed */
#define BISECTIONS 200       /* far more than a double has bits */

/* The continued fraction of the incomplete beta function I_x(a, b) (NIST DLMF 8.17.22), by Lentz's
 * method; it converges quickly for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m <= FRACTION_STEPS; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= d * c;
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-16)
            break;
    }
    return f;
}

/* I_x(a, b), with y = 1 - x handed in too so that neither loses digits near an end. */
static double beta_regularized(double a, double b, double x, double y)
{
    int sign;
    if (x <= 0 || y <= 0)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) +
                       a * log(x) + b * log(y));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, y) / b;
}

double dist_t_two_sided(double t, double df)
{
    t = fabs(t);
    if (df >= DIST_NORMAL_DF)
        return erfc(t / M_SQRT2);
    double tt = t * t;
    if (isinf(tt))
        return 0;
    return beta_regularized(df / 2, 0.5, df / (df + tt), tt / (df + tt));
}

double dist_t_critical(double alpha, double df)
{
    double low = 0, high = 1;
    while (dist_t_two_sided(high, df) > alpha && high < 1e150)
        high *= 2;
    for (int i = 0; i < BISECTIONS; i++) {
        double mid = low + (high - low) / 2;
        if (mid <= low || mid >= high)
            break;
        bool beyond = dist_t_two_sided(mid, df) > alpha;
        low = beyond ? mid : low;
        high = beyond ? high : mid;
    }
    return low + (high - low) / 2;
}
