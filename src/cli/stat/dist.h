/* SPDX-License-Identifier: BSD-2-Clause
 * The distributions that tests of significance need: pure functions of numbers. */
#ifndef WEIR_CLI_STAT_DIST_H
#define WEIR_CLI_STAT_DIST_H

/* Degrees of freedom that mean the normal distribution. */
#define DIST_NORMAL_DF 1e9

/* The chance that |T| exceeds t, T by Student's distribution with df > 0 degrees of freedom (a
 * fraction is allowed; DIST_NORMAL_DF and more: the normal distribution). Relative error under
 * 1e-11 down to chances of 1e-290. */
double dist_t_two_sided(double t, double df);
/* The t that |T| exceeds with the chance alpha, 0 < alpha < 1: the inverse of the above, so a
 * confidence interval at level 95 % takes alpha = 0.05. */
double dist_t_critical(double alpha, double df);

#endif
