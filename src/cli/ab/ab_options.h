/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir ab`: its own, and all of bench. */
#ifndef WEIR_CLI_AB_OPTIONS_H
#define WEIR_CLI_AB_OPTIONS_H

#include "ab.h"

struct ab_options {
    struct ab_plan plan; /* the sides' commands are complete */
    const char *test;
    bool json, strict, no_store;
};
/* -1: good. Otherwise the exit code (help was printed, or the mistake). The caller frees the
 * commands in either case. */
int ab_parse(int argc, char **argv, struct ab_options *o);
/* "LEVEL[,WIDTH]", both percents: strictly between 0 and 100, and above 0. */
bool ab_parse_interval(const char *text, double *level_pct, double *width_pct) NODISCARD;
/* "MIN[,MAX]" */
bool ab_parse_rounds(const char *text, unsigned *min, unsigned *max) NODISCARD;
/* 64 bits of entropy, small enough to be exact as a JSON number everywhere. */
uint64_t ab_random_seed(void);

#endif
