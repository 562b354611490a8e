/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir lockstat`. */
#include "lockstat.h"

#include "cli/cli.h"
#include <stdlib.h>

#define SECONDS_MAX 86400
#define SECONDS_DEFAULT 10

static const char me[] = "lockstat";
static const struct option long_options[] = {
    {"profile", no_argument, NULL, 'p'},       {"json", no_argument, NULL, 'J'},
    {"control", required_argument, NULL, 'c'}, {"pid", required_argument, NULL, 'P'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

/* Columns of the tables of events; the profile has those up to its name, and lock and caller. */
static bool column_fits(enum lock_column c, bool profile)
{
    if (c == LOCK_COL_LOCK || c == LOCK_COL_CALLER || c == LOCK_COL_COUNT || c == LOCK_COL_TOTAL)
        return true;
    return profile ? c <= LOCK_COL_NAME : c == LOCK_COL_NSEC;
}

static int take_column(const char *name, struct lockstat_options *o)
{
    char known[160] = "";
    if (name == NULL) {
        o->by = o->profile ? LOCK_COL_WAIT_TOTAL : LOCK_COL_COUNT;
        return -1;
    }
    for (int c = 0; c < LOCK_COLS; c++) {
        if (!column_fits((enum lock_column)c, o->profile))
            continue;
        if (strcmp(name, lock_column_names[c]) == 0) {
            o->by = (enum lock_column)c;
            return -1;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "",
                 lock_column_names[c]);
    }
    return cli_usage(me, "no column %s to sort by; there are %s", name, known);
}

int lockstat_parse(int argc, char **argv, struct lockstat_options *o)
{
    const char *column = NULL;
    uint64_t n;
    int c, end = 1;
    *o = (struct lockstat_options){.span_ns = SECONDS_DEFAULT * NS_PER_S};
    /* What is behind "--" is the command's, and getopt is not to reorder it. */
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(end, argv, ":n:s:Jh", long_options, NULL)) != -1) {
        switch (c) {
        case 'n':
            if (!parse_u64(optarg, 1, 1000000, &o->rows))
                return cli_usage(me, "-n needs a number of rows, from 1: %s", optarg);
            break;
        case 's':
            column = optarg;
            break;
        case 'p':
            o->profile = true;
            break;
        case 'J':
            o->json = true;
            break;
        case 'c':
            o->control = optarg;
            break;
        case 'P':
            if (!parse_u64(optarg, 1, INT32_MAX, &n))
                return cli_usage(me, "--pid needs the number of a process: %s", optarg);
            o->pid = (pid_t)n;
            break;
        case 'h':
            o->help = true;
            return -1;
        default:
            return cli_bad_option(me, c, argv);
        }
    }
    int status = take_column(column, o);
    if (status >= 0)
        return status;
    if (optind < end) {
        if (!parse_seconds(argv[optind], SECONDS_MAX, &o->span_ns))
            return cli_usage(me, "not a number of seconds: %s", argv[optind]);
        o->have_seconds = true;
        optind++;
    }
    if (optind < end)
        return cli_usage(me, "unexpected argument %s", argv[optind]);
    if (end + 1 == argc)
        return cli_usage(me, "a command is missing behind --");
    if (end < argc)
        o->command = &argv[end + 1];
    if ((o->control != NULL) + (o->pid != 0) + (o->command != NULL) > 1)
        return cli_usage(me, "give one of --control, --pid and a command");
    return -1;
}
