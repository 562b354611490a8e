/* SPDX-License-Identifier: BSD-2-Clause
 * The `weir` command: finds the subcommand. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct command commands[] = {
    {"bench", "measure throughput, latency and CPU time, on Weir or on the kernel", cmd_bench},
    {"server", "be the other end of bench for another process or host", cmd_server},
    {"ab", "run two settings by turns and compare them with confidence", cmd_ab},
    {"repro", "repeat the reports' experiments and judge their claims", cmd_repro},
    {"results", "list, compare and export what was measured before", cmd_results},
    {"ministat", "summarise numbers and compare samples", cmd_ministat},
    {"nc", "join standard input and output to a TCP connection", cmd_nc},
    {"serve", "serve the files of a directory over HTTP", cmd_serve},
    {"copy", "copy a file through two Weir stacks in this process", cmd_copy},
    {"siftr", "read, convert and sum flow logs; switch that of a running instance", cmd_siftr},
    {"sysctl", "read and set the knobs of a running instance", cmd_sysctl},
    {"netstat", "list the sockets and counters of a running instance", cmd_netstat},
    {"lockstat", "show who waits for which lock in a running instance", cmd_lockstat},
    {"top", "watch flows, threads and locks of a running instance", cmd_top},
    {"cputime", "CPU time of a running instance by thread, activity and connection", cmd_cputime},
    {"tcpdump", "capture the frames of a running instance", cmd_tcpdump},
    {"metrics", "show or serve what a running instance counts, as OpenMetrics", cmd_metrics},
    {"tcpdrop", "drop connections of a running instance", cmd_tcpdrop},
};

static int help(FILE *to)
{
    fputs("usage: weir COMMAND [OPTION]... [ARGUMENT]...\n"
          "       weir --help | --version\n\n"
          "A TCP/IP stack in user space that measures itself. Commands:\n\n",
          to);
    for (size_t i = 0; i < NELEM(commands); i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n'weir COMMAND --help' says more about each. Exit status: 0 good, 1 failed, 2 usage.\n",
          to);
    return to == stdout ? cli_flush("") : CLI_USAGE;
}

/* Started with a standard descriptor closed: an interface or a file of ours must not get its number
 * and with it our messages. What takes its place fails like a closed one. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            abort();
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        printf("weir %s\n", WEIR_VERSION);
        return cli_flush("");
    }
    int skip = 1;
    /* --control may stand before the command too. */
    if (strcmp(argv[1], "--control") == 0 && argc >= 4)
        skip = 3;
    else if (strncmp(argv[1], "--control=", 10) == 0 && argc >= 3)
        skip = 2;
    for (size_t i = 0; i < NELEM(commands); i++) {
        if (strcmp(argv[skip], commands[i].name) != 0)
            continue;
        if (skip == 1)
            return commands[i].run(argc - 1, argv + 1);
        /* Rotate: "--control PATH CMD ARGS" becomes "CMD --control PATH ARGS". */
        char *name = argv[skip];
        memmove(&argv[2], &argv[1], (size_t)(skip - 1) * sizeof(*argv));
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    return cli_usage("", "%s is not a command", argv[skip]);
}
