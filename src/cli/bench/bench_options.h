/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir bench`. */
#ifndef WEIR_CLI_BENCH_OPTIONS_H
#define WEIR_CLI_BENCH_OPTIONS_H

#include "bench.h"

struct bench_options {
    struct bench_params params;
    struct settings sets, remote_sets;
    const char *host, *link; /* NULL: not given */
    uint16_t port;
    int family; /* 0: any */
    bool kernel, json;
};

/* -1: good, *o is complete and consistent. Otherwise the exit code (help was printed, or the
 * mistake). */
int bench_parse(int argc, char **argv, struct bench_options *o);
extern const char bench_help[];

#endif
