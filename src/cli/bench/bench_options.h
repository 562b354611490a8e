/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir bench`. */
#ifndef WEIR_CLI_BENCH_OPTIONS_H
#define WEIR_CLI_BENCH_OPTIONS_H

#include "bench.h"

#define CPU_AUTO (-2)
#define BENCH_NO_STORE 1100 /* what getopt returns for --no-store */

struct bench_options {
    struct bench_params params;
    struct settings sets, remote_sets;
    const char *host, *link; /* NULL: not given */
    uint16_t port;
    const char *file; /* of TCP_SENDFILE; NULL: one is made */
    int family;       /* 0: any */
    bool kernel, json, no_store;
    bool locks, limit; /* add contention of locks, the limit of the machine */
    bool pipe;         /* "PIPE": the limit alone */
    int cpu[2];        /* of the local and the remote side's threads; CPU_AUTO: choose */
    int stack_cpu[2];  /* of the stacks' own threads; CPU_AUTO: any */
};

/* -1: good, *o is complete and consistent. CLI_OK: help is asked for. Otherwise the exit code, and
 * the mistake was printed. */
int bench_parse(int argc, char **argv, struct bench_options *o);
extern const char bench_help[];
/* For commands that take every option of bench; letters begin with ':'. */
extern const struct option bench_long_options[];
extern const char bench_short_options[];

#endif
