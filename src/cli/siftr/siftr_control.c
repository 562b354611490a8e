/* SPDX-License-Identifier: BSD-2-Clause
 * `weir siftr on|off|status` sets and shows the knobs net.inet.siftr of a running instance. */
#include "siftr_control.h"

#include "cli/cli.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "usage: weir siftr on [OPTION]... | off | status\n\n"
    "Switches the flow log of a running Weir instance, and shows how it stands.\n\n"
    "  -o, --logfile FILE  where to (the instance appends to it)\n"
    "      --text, --binary  the form\n"
    "      --ppl N         every N-th packet of a flow\n"
    "      --port PORT     only this port (0: all)\n"
    "      --batch 0|1|3   how records are handed over\n"
    "      --full wait|drop  when the log cannot keep up\n"
    "  -S NAME             only the stacks of this name\n"
    "      --control PATH  the instance whose control socket this is (else the only one)\n";

static const struct option long_options[] = {
    {"logfile", required_argument, NULL, 'o'}, {"text", no_argument, NULL, 1000},
    {"binary", no_argument, NULL, 1001},       {"ppl", required_argument, NULL, 1002},
    {"port", required_argument, NULL, 1003},   {"batch", required_argument, NULL, 1004},
    {"full", required_argument, NULL, 1005},   {"control", required_argument, NULL, 1006},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

#define WORDS_MAX 12

struct request {
    const char *control, *stack;
    char *knobs[WORDS_MAX]; /* NAME=VALUE, malloc'ed */
    unsigned count;
};

bool siftr_control_is_meant(int argc, char **argv)
{
    int at = 1;
    while (at < argc - 1 && (strcmp(argv[at], "--control") == 0 || strcmp(argv[at], "-S") == 0))
        at += 2;
    while (at < argc - 1 && strncmp(argv[at], "--control=", 10) == 0)
        at++;
    return at < argc && (strcmp(argv[at], "on") == 0 || strcmp(argv[at], "off") == 0 ||
                         strcmp(argv[at], "status") == 0);
}

static bool add_knob(struct request *r, const char *name, const char *value)
{
    CHECK(r->count < WORDS_MAX);
    return asprintf(&r->knobs[r->count], "net.inet.siftr.%s=%s", name, value) >= 0 &&
           r->knobs[r->count++] != NULL;
}

/* The instance may run elsewhere: its log is named from the root. */
static bool add_logfile(struct request *r, const char *path)
{
    char full[2 * PATH_MAX], *cwd = path[0] == '/' ? NULL : realpath(".", NULL);
    snprintf(full, sizeof(full), "%s%s%s", cwd != NULL ? cwd : "", cwd != NULL ? "/" : "", path);
    free(cwd);
    return add_knob(r, "logfile", full);
}

/* -1: go on. */
static int parse(int argc, char **argv, struct request *r)
{
    static const char *const names[] = {"ppl", "port_filter", "batch", "full"};
    bool good = true;
    int c;
    opterr = 0;
    optind = 0;
    while (good && (c = getopt_long(argc, argv, ":o:S:h", long_options, NULL)) != -1) {
        switch (c) {
        case 'o':
            good = add_logfile(r, optarg);
            break;
        case 'S':
            r->stack = optarg;
            break;
        case 1000:
        case 1001:
            good = add_knob(r, "binary", c == 1001 ? "1" : "0");
            break;
        case 1002:
        case 1003:
        case 1004:
        case 1005:
            good = add_knob(r, names[c - 1002], optarg);
            break;
        case 1006:
            r->control = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("siftr");
        default:
            return cli_bad_option("siftr", c, argv);
        }
        if (r->count == WORDS_MAX)
            return cli_usage("siftr", "too many options");
    }
    return good ? -1 : cli_fail("siftr", "%s", strerror(ENOMEM));
}

/* One request to the instance: `weir sysctl` of these words. */
static int ask(const struct request *r, char **words, unsigned count)
{
    char *argv[WORDS_MAX + 6], name[] = "sysctl", control[] = "--control", stack[] = "-S";
    int argc = 0;
    argv[argc++] = name;
    if (r->control != NULL) {
        argv[argc++] = control;
        argv[argc++] = (char *)(uintptr_t)r->control;
    }
    if (r->stack != NULL) {
        argv[argc++] = stack;
        argv[argc++] = (char *)(uintptr_t)r->stack;
    }
    for (unsigned i = 0; i < count; i++)
        argv[argc++] = words[i];
    argv[argc] = NULL;
    return cmd_sysctl(argc, argv);
}

static int run(struct request *r, const char *verb)
{
    char all[] = "net.inet.siftr", on[] = "net.inet.siftr.enabled=1",
         off[] = "net.inet.siftr.enabled=0";
    char *word = strcmp(verb, "on") == 0 ? on : strcmp(verb, "off") == 0 ? off : all;
    /* Not switched on where a setting was refused. */
    int status = r->count > 0 ? ask(r, r->knobs, r->count) : CLI_OK;
    return status != CLI_OK ? status : ask(r, &word, 1);
}

int siftr_control(int argc, char **argv)
{
    struct request r = {0};
    int status = parse(argc, argv, &r);
    const char *verb = optind < argc ? argv[optind] : "";
    if (status < 0 && optind != argc - 1)
        status = cli_usage("siftr", "one of on, off and status, and nothing more");
    else if (status < 0 && r.count > 0 && strcmp(verb, "on") != 0)
        status = cli_usage("siftr", "%s takes no settings", verb);
    else if (status < 0)
        status = run(&r, verb);
    for (unsigned i = 0; i < r.count; i++)
        free(r.knobs[i]);
    return status;
}
