/* SPDX-License-Identifier: BSD-2-Clause
 * What the subcommands of `weir` share: messages, strict numbers, settings. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "base/base.h"
#include <getopt.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
};

int cmd_bench(int argc, char **argv);
int cmd_server(int argc, char **argv);
int cmd_nc(int argc, char **argv);
int cmd_copy(int argc, char **argv);
int cmd_ministat(int argc, char **argv);
int cmd_ab(int argc, char **argv);
int cmd_repro(int argc, char **argv);
int cmd_results(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_siftr(int argc, char **argv);
int cmd_sysctl(int argc, char **argv);
int cmd_netstat(int argc, char **argv);
int cmd_tcpdump(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_tcpdrop(int argc, char **argv);
int cmd_cputime(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_lockstat(int argc, char **argv);

/* "weir COMMAND: message" on stderr; cli_usage adds where help is. They return the exit code. */
int cli_usage(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
int cli_fail(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
void cli_warn(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The message for getopt's '?' or ':'. */
int cli_bad_option(const char *command, int c, char **argv);
/* Flush stdout: CLI_OK, or CLI_FAILED with a message (a full disk is not a success). */
int cli_flush(const char *command);

/* Decimal digits and nothing else, within [min, max]. */
bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out) NODISCARD;
/* The same with an optional k, M or G (powers of 1024). */
bool parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *out) NODISCARD;
/* Seconds with an optional fraction ("2.5"), exact to the nanosecond, at most max_s. No sign, no
 * exponent. */
bool parse_seconds(const char *text, uint64_t max_s, uint64_t *out_ns) NODISCARD;
bool parse_port(const char *text, uint16_t *out) NODISCARD; /* 1..65535 */

#define SETTINGS_MAX 64
/* NAME=VALUE pairs of --set, in their order; the text is borrowed. */
struct settings {
    struct {
        char name[96];
        const char *value;
    } v[SETTINGS_MAX];
    unsigned count;
};
/* False: not NAME=VALUE, or too many. */
bool settings_add(struct settings *s, const char *text) NODISCARD;

uint64_t clock_now_ns(void); /* CLOCK_MONOTONIC */

#endif
