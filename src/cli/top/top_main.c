/* SPDX-License-Identifier: BSD-2-Clause
 * `weir top`: options, the instance, batch mode. */
#include "cli/cli.h"
#include "cli/control_client.h"
#include "top.h"

#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

static const char help[] =
    "usage: weir top [-b] [-d SECONDS] [-n COUNT] [-s COLUMN] [-v VIEW]\n"
    "                [--pid PID | --control PATH]\n\n"
    "What a running Weir instance does, refreshed: flows, threads, locks.\n\n"
    "  -b                plain text to standard output, no terminal needed\n"
    "  -d SECONDS        time between refreshes (1; 0.1 to 3600)\n"
    "  -n COUNT          end after so many\n"
    "  -s COLUMN         what rows are sorted by ('-s help' lists the columns)\n"
    "  -v VIEW           flows (the default), threads or locks\n"
    "      --pid PID     the instance that is this process (else the only one that runs)\n"
    "      --control PATH  the instance whose control socket this is\n"
    "  -h, --help\n\n"
    "Keys: h shows them.\n";

struct top {
    bool batch;
    uint64_t delay_ns, count, pid;
    const char *sort, *view, *path;
};

static const struct option long_options[] = {{"batch", no_argument, NULL, 'b'},
                                             {"delay", required_argument, NULL, 'd'},
                                             {"count", required_argument, NULL, 'n'},
                                             {"sort", required_argument, NULL, 's'},
                                             {"view", required_argument, NULL, 'v'},
                                             {"pid", required_argument, NULL, 1000},
                                             {"control", required_argument, NULL, 1001},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

static int bad(const char *what, const char *value)
{
    return cli_usage("top", "%s: '%s' is not allowed", what, value);
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, struct top *t)
{
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":bd:n:s:v:h", long_options, NULL)) != -1) {
        switch (c) {
        case 'b':
            t->batch = true;
            break;
        case 'd':
            if (!parse_seconds(optarg, 3600, &t->delay_ns) || t->delay_ns < NS_PER_S / 10)
                return bad("-d", optarg);
            break;
        case 'n':
            if (!parse_u64(optarg, 1, UINT32_MAX, &t->count))
                return bad("-n", optarg);
            break;
        case 's':
            t->sort = optarg;
            break;
        case 'v':
            t->view = optarg;
            break;
        case 1000:
            if (!parse_u64(optarg, 1, INT32_MAX, &t->pid))
                return bad("--pid", optarg);
            break;
        case 1001:
            t->path = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("top");
        default:
            return cli_bad_option("top", c, argv);
        }
    }
    if (optind < argc)
        return cli_usage("top", "unexpected argument '%s'", argv[optind]);
    if (t->pid != 0 && t->path != NULL)
        return cli_usage("top", "--pid and --control exclude each other");
    return -1;
}

/* View and order; -1: go on. */
static int choose_view(const struct top *t, struct top_model *m)
{
    for (int v = 0; t->view != NULL; v++) {
        if (v == TOP_VIEWS)
            return bad("-v", t->view);
        if (strcasecmp(t->view, top_view_name[v]) == 0) {
            m->view = (enum top_view)v;
            break;
        }
    }
    if (t->sort != NULL && strcmp(t->sort, "help") == 0) {
        for (int v = 0; v < TOP_VIEWS; v++) {
            printf("%s:", top_view_name[v]);
            top_model_list_columns((enum top_view)v, stdout);
        }
        return cli_flush("top");
    }
    if (t->sort != NULL && !top_model_sort_by(m, t->sort))
        return cli_usage("top", "-s: there is no column '%s' of %s", t->sort,
                         top_view_name[m->view]);
    return top_model_arrange(m) ? -1 : cli_fail("top", "out of memory");
}

/* Plain text until `count` tables with rates were printed. */
static int run_batch(struct top_model *m, struct top_pace *p, uint64_t count)
{
    char why[128] = "";
    for (uint64_t printed = 0; count == 0 || printed < count;) {
        int r = top_pace_step(p, m, false, why, sizeof(why));
        if (r < 0)
            return cli_fail("top", "%s", why);
        if (r > 0 && m->prev != NULL) {
            top_screen_print(m, stdout);
            printed++;
            if (cli_flush("top") != CLI_OK)
                return CLI_FAILED;
        }
        struct pollfd pfd = {.fd = p->fetch.fd, .events = POLLIN};
        if (count == 0 || printed < count)
            (void)poll(&pfd, 1, top_pace_timeout(p, false));
    }
    return CLI_OK;
}

int cmd_top(int argc, char **argv)
{
    struct top t = {.delay_ns = NS_PER_S};
    struct top_screen screen = {.width = 80, .height = 24};
    char path[CONTROL_PATH_MAX];
    int status = parse(argc, argv, &t);
    if (status >= 0)
        return status;
    top_model_init(&screen.model);
    status = choose_view(&t, &screen.model);
    if (status >= 0)
        return status;
    if (!t.batch && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
        return cli_fail("top", "not on a terminal; -b prints plain text");
    if (t.path != NULL)
        snprintf(path, sizeof(path), "%s", t.path);
    else if (t.pid != 0 && !control_find_pid((pid_t)t.pid, path, sizeof(path)))
        return cli_fail("top", "process %d does not answer as a Weir instance: %s", (int)t.pid,
                        strerror(errno));
    else if (t.pid == 0 && !control_find_only("top", path, sizeof(path)))
        return CLI_FAILED;
    struct top_pace pace = {.fetch = {.path = path, .fd = -1}, .delay_ns = t.delay_ns};
    if (t.batch)
        status = run_batch(&screen.model, &pace, t.count);
    else
        status = top_curses_run(&screen, &pace, t.count, "top");
    top_fetch_stop(&pace.fetch);
    free(pace.fetch.buf);
    top_model_fini(&screen.model);
    return status;
}
