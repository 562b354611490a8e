/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir lockstat`. */
#ifndef WEIR_CLI_LOCKSTAT_H
#define WEIR_CLI_LOCKSTAT_H

#include "measure/lock_stats.h"
#include <sys/types.h>

struct lockstat_options {
    bool profile, json, help;
    bool have_seconds;
    uint64_t span_ns; /* 0: what has been counted so far */
    uint64_t rows;    /* 0: all */
    enum lock_column by;
    const char *control; /* NULL: by pid, command, or the only one */
    pid_t pid;           /* 0: none */
    char **command;      /* NULL: none; ends with NULL */
};
/* -1: good, else the exit code of a mistake (a message is out). */
int lockstat_parse(int argc, char **argv, struct lockstat_options *o) NODISCARD;

#endif
