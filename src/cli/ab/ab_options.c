/* SPDX-License-Identifier: BSD-2-Clause
 * The command lines of both sides are put together here: common options, then the side's own. */
#include "ab_options.h"

#include "cli/bench/bench_options.h"
#include "cli/cli.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIN_ROUNDS 5
#define MAX_ROUNDS 40         /* when a width is asked for and no cap */
#define DEFAULT_WIDTH_PCT 5   /* where there is a cap */
#define PATIENCE_S 60         /* beyond the length of a run */
#define UNKNOWN_LENGTH_S 3600 /* of another binary's run */

static const char help[] =
    "usage: weir ab TEST [BENCH OPTION]... [OPTION]...\n\n"
    "Compares two settings: runs 'weir bench TEST' for side a and for side b in pairs, the order\n"
    "within each pair drawn from the seed, after one run of each that is thrown away; prints\n"
    "ministat's table and the difference of the means with its confidence interval. Every option "
    "of\n"
    "bench is for both sides, then:\n\n"
    "  --a NAME=VALUE         knob of side a's near stack;  --a-remote: of its far stack\n"
    "  --a-stack weir|kernel, --a-link SPEC\n"
    "  --a-bench \"OPTIONS\"    more options of bench\n"
    "  --a-bin PATH           another executable\n"
    "  --b ...                the same for side b\n\n"
    "  -n MIN[,MAX]           pairs (5); with a cap, or a WIDTH (cap 40 then), go on until\n"
    "  -I LEVEL[,WIDTH]       the interval of the difference, at LEVEL percent confidence (95), is "
    "at\n"
    "                         most WIDTH percent of a's mean (5) from end to end\n"
    "      --strict           exit status 1 when WIDTH was not reached\n"
    "      --metric NAME      what to compare, see below\n"
    "      --seed N           of the order (random; it is printed)\n"
    "  -J, --json             one JSON document on standard output, nothing else there\n\n"
    "Metrics: ";

enum { OWN = 3000, METRIC, SEED, STRICT, SIDE };
enum { SIDE_SET, SIDE_REMOTE, SIDE_STACK, SIDE_LINK, SIDE_BENCH, SIDE_BIN, SIDE_OPTIONS };

#define SIDE_ROWS(x, n)                                                                            \
    {x, required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_SET},                              \
        {x "-remote", required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_REMOTE},             \
        {x "-stack", required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_STACK},               \
        {x "-link", required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_LINK},                 \
        {x "-bench", required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_BENCH},               \
    {                                                                                              \
        x "-bin", required_argument, NULL, SIDE + (n)*SIDE_OPTIONS + SIDE_BIN                      \
    }

static const struct option own_options[] = {
    SIDE_ROWS("a", 0),
    SIDE_ROWS("b", 1),
    {"metric", required_argument, NULL, METRIC},
    {"seed", required_argument, NULL, SEED},
    {"strict", no_argument, NULL, STRICT},
};

/* What is read before it is put together. */
struct parts {
    struct words common, own[2];
    const char *bin[2];
    char self[4096];
};

static int bad(const char *what, const char *value)
{
    return cli_usage("ab", "%s: '%s' is not allowed", what, value);
}

bool ab_parse_interval(const char *text, double *level_pct, double *width_pct)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *level_pct = strtod(text, &end);
    *width_pct = 0;
    if (*end == ',') {
        if (end[1] != '.' && (end[1] < '0' || end[1] > '9'))
            return false;
        *width_pct = strtod(end + 1, &end);
        if (!(*width_pct > 0) || !isfinite(*width_pct))
            return false;
    }
    return *end == '\0' && *level_pct > 0 && *level_pct < 100;
}

bool ab_parse_rounds(const char *text, unsigned *min, unsigned *max)
{
    char first[16];
    uint64_t a, b;
    const char *comma = strchr(text, ',');
    size_t len = comma != NULL ? (size_t)(comma - text) : strlen(text);
    if (len >= sizeof(first))
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    if (!parse_u64(first, 2, AB_MAX_ROUNDS, &a))
        return false;
    b = 0;
    if (comma != NULL && !parse_u64(comma + 1, a, AB_MAX_ROUNDS, &b))
        return false;
    *min = (unsigned)a;
    *max = (unsigned)b;
    return true;
}

uint64_t ab_random_seed(void)
{
    uint32_t v;
    randombytes_buf(&v, sizeof(v));
    return v;
}

static int no_room(void)
{
    return cli_usage("ab", "too many options");
}

/* An option of one side. -1: good. */
static int side_option(struct parts *p, struct ab_options *o, int c)
{
    static const char *const bench_name[] = {"--set", "--set-remote", "--stack", "--link"};
    static const char *const prefix[] = {"", "remote ", "stack ", "link ", "", "bin "};
    unsigned side = (unsigned)(c - SIDE) / SIDE_OPTIONS, what = (unsigned)(c - SIDE) % SIDE_OPTIONS;
    struct ab_side *s = &o->plan.side[side];
    label_add(s->label, sizeof(s->label), prefix[what], optarg);
    if (what == SIDE_BIN) {
        p->bin[side] = optarg;
        return -1;
    }
    if (what == SIDE_BENCH)
        return words_split(&p->own[side], optarg) ? -1
                                                  : bad(side ? "--b-bench" : "--a-bench", optarg);
    return words_add(&p->own[side], bench_name[what]) && words_add(&p->own[side], optarg)
               ? -1
               : no_room();
}

/* An option of bench, for both sides. */
static int common_option(struct parts *p, int c, const struct option *row)
{
    char text[4096];
    if (row == NULL && c < 128)
        snprintf(text, sizeof(text), "-%c", c);
    else
        snprintf(text, sizeof(text), "--%s", row != NULL ? row->name : "?");
    return words_add(&p->common, text) && (optarg == NULL || words_add(&p->common, optarg))
               ? -1
               : no_room();
}

static int take(struct parts *p, struct ab_options *o, int c, const struct option *row)
{
    struct ab_plan *plan = &o->plan;
    switch (c) {
    case METRIC:
        plan->metric = optarg;
        return strlen(optarg) > 0 && strlen(optarg) < sizeof(((struct ab_outcome *)0)->metric)
                   ? -1
                   : bad("--metric", optarg);
    case SEED:
        return parse_u64(optarg, 0, INT64_MAX, &plan->seed) ? -1 : bad("--seed", optarg);
    case STRICT:
        o->strict = true;
        return -1;
    case 'n':
        return ab_parse_rounds(optarg, &plan->min_rounds, &plan->max_rounds) ? -1
                                                                             : bad("-n", optarg);
    case 'I':
        return ab_parse_interval(optarg, &plan->level_pct, &plan->width_pct) ? -1
                                                                             : bad("-I", optarg);
    case 'J':
        o->json = true;
        return -1;
    case BENCH_NO_STORE:
        o->no_store = true;
        return -1;
    default:
        return c >= SIDE ? side_option(p, o, c) : common_option(p, c, row);
    }
}

/* "BIN bench TEST common... own... -J" */
static int build(const struct parts *p, struct ab_options *o, unsigned side)
{
    struct words *w = &o->plan.side[side].command;
    const char *bin = p->bin[side] != NULL ? p->bin[side] : p->self;
    return words_add(w, bin) && words_add(w, "bench") && words_add(w, o->test) &&
                   words_append(w, &p->common) && words_append(w, &p->own[side]) &&
                   words_add(w, "-J")
               ? -1
               : no_room();
}

/* Both sides' lines must be good before anything runs; another binary knows its own options best.
 */
static int check(const struct parts *p, struct ab_options *o)
{
    static struct bench_options b;
    uint64_t longest = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct words *w = &o->plan.side[i].command;
        if (p->bin[i] != NULL) {
            if (access(p->bin[i], X_OK) != 0) {
                cli_usage("ab", "%s: %s", p->bin[i], strerror(errno));
                return CLI_USAGE;
            }
            longest = MAX(longest, UNKNOWN_LENGTH_S * NS_PER_S);
            continue;
        }
        char *v[AB_MAX_WORDS + 1]; /* getopt changes the order */
        memcpy(v, w->v, sizeof(v));
        int e = bench_parse((int)w->count - 1, v + 1, &b);
        if (e == CLI_OK)
            return cli_usage("ab", "a run cannot have bench's option --help");
        if (e > 0)
            return CLI_USAGE;
        if (b.params.length_ns == 0)
            return cli_usage("ab", "runs need a length: -l 0 has none");
        longest = MAX(longest, b.params.length_ns + b.params.omit_ns);
    }
    o->plan.timeout_ns = longest + PATIENCE_S * NS_PER_S;
    return -1;
}

static int parse_all(int argc, char **argv, struct ab_options *o, struct parts *p)
{
    struct option rows[128] = {0};
    char letters[128];
    unsigned count = 0;
    int c, index = -1, e = -1;
    for (unsigned i = 0; i < NELEM(own_options); i++)
        rows[count++] = own_options[i];
    for (unsigned i = 0; bench_long_options[i].name != NULL && count < NELEM(rows) - 1; i++)
        rows[count++] = bench_long_options[i];
    snprintf(letters, sizeof(letters), "%sn:I:", bench_short_options);
    opterr = 0;
    optind = 0;
    while (e < 0 && (c = getopt_long(argc, argv, letters, rows, &index)) != -1) {
        if (c == 'h') {
            printf("%s%s", help, metric_help);
            return cli_flush("ab");
        }
        if (c == '?' || c == ':')
            return cli_bad_option("ab", c, argv);
        e = take(p, o, c, index >= 0 ? &rows[index] : NULL);
        index = -1;
    }
    if (e >= 0)
        return e;
    if (optind >= argc)
        return cli_usage("ab", "name a test of bench");
    if (optind + 1 < argc)
        return cli_usage("ab", "unexpected argument: %s", argv[optind + 1]);
    o->test = argv[optind];
    for (unsigned i = 0; e < 0 && i < 2; i++) {
        if (o->plan.side[i].label[0] == '\0')
            label_add(o->plan.side[i].label, sizeof(o->plan.side[i].label), "", i ? "b" : "a");
        e = build(p, o, i);
    }
    return e >= 0 ? e : check(p, o);
}

int ab_parse(int argc, char **argv, struct ab_options *o)
{
    struct parts p = {0};
    *o = (struct ab_options){.plan = {.who = "weir ab",
                                      .sides = 2,
                                      .min_rounds = MIN_ROUNDS,
                                      .level_pct = 95,
                                      .seed = ab_random_seed()}};
    if (!self_path(p.self, sizeof(p.self)))
        return cli_fail("ab", "/proc/self/exe: %s", strerror(errno));
    int e = parse_all(argc, argv, o, &p);
    struct ab_plan *plan = &o->plan;
    if (plan->max_rounds > plan->min_rounds && plan->width_pct == 0)
        plan->width_pct = DEFAULT_WIDTH_PCT;
    if (plan->max_rounds == 0)
        plan->max_rounds =
            plan->width_pct > 0 ? MAX(plan->min_rounds, MAX_ROUNDS) : plan->min_rounds;
    words_free(&p.common);
    words_free(&p.own[0]);
    words_free(&p.own[1]);
    return e;
}
