/* SPDX-License-Identifier: BSD-2-Clause
 * What ministat prints: the plot of up to seven samples, their table, the differences. */
#ifndef WEIR_CLI_STAT_PLOT_H
#define WEIR_CLI_STAT_PLOT_H

#include "stat.h"
#include <stdio.h>

#define PLOT_MAX_SETS 7
#define PLOT_DEFAULT_WIDTH 74
#define PLOT_MIN_WIDTH 2
#define PLOT_MAX_WIDTH 100000

struct plot_options {
    int width; /* columns between the frame's sides */
    bool separate_bars, no_plot, no_test;
    double level_pct;
    enum stat_table table;
    bool points_hidden; /* set when the classic plot left some out */
};
/* The symbol of set i (from 0). */
char plot_symbol(unsigned i);
/* All of it for count sorted sets, 1 to PLOT_MAX_SETS; the first is the reference. False: no
 * memory. */
bool plot_print(FILE *to, const struct stat_set *sets, unsigned count,
                struct plot_options *o) NODISCARD;
/* "Difference at ..." or "No difference proven ...". */
void plot_print_difference(FILE *to, const struct stat_difference *d);

#endif
