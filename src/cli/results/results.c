/* SPDX-License-Identifier: BSD-2-Clause
 * `weir results`: the command line, and what changes the store. */
#include "results.h"

#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char help[] =
    "usage: weir results [list] [FILTER]...\n"
    "       weir results show ID\n"
    "       weir results compare ID[:SIDE] ID[:SIDE] [--metric NAME] [-c LEVEL]\n"
    "       weir results compare --test TEST [--since TIME] [--until TIME] [--side a|b]\n"
    "       weir results export [--json|--csv] [ID]... [FILTER]...\n"
    "       weir results delete ID... | prune --older AGE\n\n"
    "What bench, ab and repro measured on this account: each keeps its results in\n"
    "$XDG_STATE_HOME/weir/results.db (~/.local/state/weir/results.db). WEIR_RESULTS names another\n"
    "file; WEIR_RESULTS=off, or --no-store with those commands, keeps nothing.\n\n"
    "      --since TIME, --until TIME  runs from then, before then: 7d, 36h, 90m ago, today,\n"
    "                                  yesterday, or YYYY-MM-DD[ HH:MM[:SS]]\n"
    "      --test TEST, --kind bench|ab|repro\n"
    "  -n COUNT      the latest so many (50; 0: all)\n"
    "      --metric NAME  what compare looks at (that of the first run)\n"
    "  -c LEVEL      confidence in percent (95)\n"
    "      --side a|b     with --test: runs of that side of ab, not those of bench\n"
    "      --older AGE    90d, 12h\n"
    "  -J, --json    one JSON document;  --csv  a line for each sample\n\n"
    "compare with two lists of numbers (3,4,5 7,8) or two spans of time: those from --since (7d)\n"
    "up to --until (today) against those from --until on.\n";

enum { SINCE = 1000, UNTIL, TEST, KIND, METRIC, SIDE, OLDER, CSV };
static const struct option long_options[] = {
    {"since", required_argument, NULL, SINCE},
    {"until", required_argument, NULL, UNTIL},
    {"test", required_argument, NULL, TEST},
    {"kind", required_argument, NULL, KIND},
    {"metric", required_argument, NULL, METRIC},
    {"side", required_argument, NULL, SIDE},
    {"older", required_argument, NULL, OLDER},
    {"csv", no_argument, NULL, CSV},
    {"json", no_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* "90d" in seconds. */
static bool parse_age(const char *text, double *out)
{
    static const struct {
        char unit;
        double s;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    char digits[16];
    uint64_t v;
    size_t len = strlen(text);
    if (len < 2 || len > sizeof(digits))
        return false;
    memcpy(digits, text, len - 1);
    digits[len - 1] = '\0';
    for (size_t i = 0; i < NELEM(units); i++)
        if (text[len - 1] == units[i].unit && parse_u64(digits, 0, 1000000000, &v)) {
            *out = (double)v * units[i].s;
            return true;
        }
    return false;
}

double results_midnight(int days)
{
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    tm.tm_mday += days;
    tm.tm_isdst = -1;
    return (double)mktime(&tm);
}

static bool parse_time(const char *text, double *out)
{
    static const char *const format[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M",
                                         "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"};
    double age;
    if (strcmp(text, "now") == 0 || parse_age(text, &age)) {
        *out = (double)time(NULL) - (text[0] == 'n' ? 0 : age);
        return true;
    }
    if (strcmp(text, "today") == 0 || strcmp(text, "yesterday") == 0) {
        *out = results_midnight(text[0] == 't' ? 0 : -1);
        return true;
    }
    for (size_t i = 0; i < NELEM(format); i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, format[i], &tm);
        if (end != NULL && *end == '\0') {
            *out = (double)mktime(&tm);
            return true;
        }
    }
    return false;
}

static int bad(const char *what, const char *value)
{
    return cli_usage("results", "%s: '%s' is not allowed", what, value);
}

static bool parse_level(const char *text, double *level)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *level = strtod(text, &end);
    return *end == '\0' && *level > 0 && *level < 100;
}

/* One option. -1: good. */
static int take(int c, struct results_options *o)
{
    switch (c) {
    case SINCE:
        return parse_time(optarg, &o->since) ? -1 : bad("--since", optarg);
    case UNTIL:
        return parse_time(optarg, &o->until) ? -1 : bad("--until", optarg);
    case TEST:
        o->test = optarg;
        return -1;
    case KIND:
        o->kind = optarg;
        return strcmp(optarg, "bench") == 0 || strcmp(optarg, "ab") == 0 ||
                       strcmp(optarg, "repro") == 0
                   ? -1
                   : bad("--kind", optarg);
    case METRIC:
        o->metric = optarg;
        return -1;
    case SIDE:
        o->side = optarg[0] - 'a';
        return (o->side == 0 || o->side == 1) && optarg[1] == '\0' ? -1 : bad("--side", optarg);
    case OLDER:
        return parse_age(optarg, &o->older_s) ? -1 : bad("--older", optarg);
    case 'n':
        return parse_u64(optarg, 0, INT32_MAX, &o->limit) ? -1 : bad("-n", optarg);
    case 'c':
        return parse_level(optarg, &o->level_pct) ? -1 : bad("-c", optarg);
    case CSV:
        o->csv = true;
        return -1;
    default:
        o->json = true;
        return -1;
    }
}

static int results_delete(struct store *s, const struct results_options *o)
{
    uint64_t id;
    if (o->words == 0)
        return cli_usage("results", "delete which? Give numbers");
    for (int i = 0; i < o->words; i++)
        if (!parse_u64(o->word[i], 1, INT64_MAX, &id))
            return bad("delete", o->word[i]);
    if (!store_exec(s, "BEGIN IMMEDIATE"))
        return cli_fail("results", "%s", s->error);
    for (int i = 0; i < o->words; i++) {
        char sql[64];
        snprintf(sql, sizeof(sql), "DELETE FROM run WHERE id=%s", o->word[i]);
        bool good = store_exec(s, sql);
        if (good && sqlite3_changes(s->db) == 0) /* nothing is deleted then: closing rolls back */
            return cli_fail("results", "there is no result %s", o->word[i]);
        if (!good)
            return cli_fail("results", "%s", s->error);
    }
    if (!store_exec(s, "COMMIT; PRAGMA incremental_vacuum"))
        return cli_fail("results", "%s", s->error);
    return CLI_OK;
}

static int results_prune(struct store *s, const struct results_options *o)
{
    char sql[128];
    if (isnan(o->older_s))
        return cli_usage("results", "prune needs --older AGE");
    snprintf(sql, sizeof(sql), "DELETE FROM run WHERE at < %.3f", (double)time(NULL) - o->older_s);
    if (!store_exec(s, sql))
        return cli_fail("results", "%s", s->error);
    int count = sqlite3_changes(s->db);
    if (!store_exec(s, "PRAGMA incremental_vacuum"))
        return cli_fail("results", "%s", s->error);
    if (o->json)
        return results_print_json(json_pack("{s:i}", "deleted", count));
    printf("%d deleted\n", count);
    return cli_flush("results");
}

static const struct {
    const char *name;
    int (*run)(struct store *s, const struct results_options *o);
    enum store_mode mode;
    bool absent_good; /* no store is like an empty one */
} verbs[] = {
    {"list", results_list, STORE_READ, true},       {"show", results_show, STORE_READ, false},
    {"export", results_export, STORE_READ, true},   {"compare", results_compare, STORE_READ, false},
    {"delete", results_delete, STORE_WRITE, false}, {"prune", results_prune, STORE_WRITE, false},
};

static int run_verb(size_t verb, const struct results_options *o)
{
    static struct store s;
    enum store_status e = store_path(&s);
    /* What deletes must not make an empty store. */
    if (e == STORE_OK)
        e = store_open(&s, STORE_READ);
    if (e == STORE_OK && verbs[verb].mode == STORE_WRITE) {
        store_close(&s);
        e = store_open(&s, STORE_WRITE);
    }
    if (e == STORE_OFF)
        return cli_fail("results", "the results store is switched off (" STORE_ENV "=off)");
    if (e == STORE_FAILED)
        return cli_fail("results", "%s", s.error);
    if (e == STORE_ABSENT && !verbs[verb].absent_good)
        return cli_fail("results", "there are no results yet: %s", s.path);
    int status = verbs[verb].run(&s, o);
    store_close(&s);
    return status;
}

int cmd_results(int argc, char **argv)
{
    struct results_options o = {
        .side = -1, .since = NAN, .until = NAN, .older_s = NAN, .level_pct = 95, .limit = 50};
    int c, e = -1;
    opterr = 0;
    optind = 0;
    while (e < 0 && (c = getopt_long(argc, argv, ":n:c:Jh", long_options, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return cli_flush("results");
        }
        e = c == '?' || c == ':' ? cli_bad_option("results", c, argv) : take(c, &o);
    }
    if (e >= 0)
        return e;
    if (o.json && o.csv)
        return cli_usage("results", "--json or --csv, not both");
    o.verb = optind < argc ? argv[optind++] : "list";
    o.word = argv + optind;
    o.words = argc - optind;
    for (size_t i = 0; i < NELEM(verbs); i++)
        if (strcmp(o.verb, verbs[i].name) == 0)
            return run_verb(i, &o);
    return cli_usage("results", "%s: list, show, compare, export, delete or prune", o.verb);
}
