/* SPDX-License-Identifier: BSD-2-Clause
 * `weir repro`: the reports' experiments on this machine, and what became of their claims. */
#include "repro.h"

#include "cli/ab/ab_options.h"
#include "cli/cli.h"
#include "cli/results/store.h"

#include <inttypes.h>
#include <stdio.h>

#define ROUNDS 5
#define MAX_ROUNDS 10
#define QUICK_ROUNDS 3

static const struct experiment *const experiments[] = {&repro_stream, &repro_reass, &repro_sendfile,
                                                       &repro_siftr, &repro_cputime};

static const char help[] =
    "usage: weir repro NAME... [OPTION]...\n\n"
    "Repeats the experiments behind Weir's mechanisms: the design before a change and the design\n"
    "after it, by turns, in this one binary. Prints the figures that were reported beside those\n"
    "measured here, and a verdict: holds, does not hold here, or not proven. A claim that does "
    "not\n"
    "hold is a result, not a failure. NAME is one of\n\n"
    "  stream     receiving with the buffer's lock taken for each mbuf, twice a call, never\n"
    "  reass      reassembly by a list and by chains, four buffer sizes, cost of a segment\n"
    "  sendfile   files sent by the page and in bulk, with and without TSO\n"
    "  siftr      the flow log's records one by one, in threes, and without a lock\n"
    "  cputime    CPU time by a clock read at each switch, and in ticks\n"
    "  all        all of them\n\n"
    "  -n MIN[,MAX]  runs of each side (5,10; with --quick 3): MIN, and more up to MAX until the\n"
    "                ratio is known well enough\n"
    "  -I LEVEL      confidence in percent (95)\n"
    "      --quick   short runs: seconds instead of minutes, wider intervals\n"
    "      --seed N  of the order of the runs (random; it is printed)\n"
    "      --no-store  do not keep the results for `weir results`\n"
    "  -J, --json    one JSON document on standard output, nothing else there\n";

static const struct option long_options[] = {
    {"quick", no_argument, NULL, 1000},    {"seed", required_argument, NULL, 1001},
    {"no-store", no_argument, NULL, 1002}, {"json", no_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
};

static int bad(const char *what, const char *value)
{
    return cli_usage("repro", "%s: '%s' is not allowed", what, value);
}

/* -1: go on, with a bit for each experiment. */
static int parse(int argc, char **argv, struct repro *r, unsigned *chosen)
{
    double width;
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":n:I:Jh", long_options, NULL)) != -1) {
        switch (c) {
        case 'n':
            if (!ab_parse_rounds(optarg, &r->rounds, &r->max_rounds))
                return bad("-n", optarg);
            r->max_rounds = MAX(r->rounds, r->max_rounds);
            break;
        case 'I':
            if (!ab_parse_interval(optarg, &r->level_pct, &width) || width > 0)
                return bad("-I", optarg);
            break;
        case 1000:
            r->quick = true;
            break;
        case 1001:
            if (!parse_u64(optarg, 0, INT64_MAX, &r->seed))
                return bad("--seed", optarg);
            break;
        case 1002:
            r->no_store = true;
            break;
        case 'J':
            r->json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("repro");
        default:
            return cli_bad_option("repro", c, argv);
        }
    }
    if (optind >= argc)
        return cli_usage("repro",
                         "name an experiment: stream, reass, sendfile, siftr, cputime or all");
    for (; optind < argc; optind++) {
        unsigned before = *chosen;
        for (unsigned i = 0; i < NELEM(experiments); i++)
            if (strcmp(argv[optind], "all") == 0 || strcmp(argv[optind], experiments[i]->name) == 0)
                *chosen |= 1u << i;
        if (*chosen == before && strcmp(argv[optind], "all") != 0) {
            bool known = false;
            for (unsigned i = 0; i < NELEM(experiments); i++)
                known |= strcmp(argv[optind], experiments[i]->name) == 0;
            if (!known)
                return cli_usage("repro", "%s is not an experiment", argv[optind]);
        }
    }
    if (r->rounds == 0) {
        r->rounds = r->quick ? QUICK_ROUNDS : ROUNDS;
        r->max_rounds = r->quick ? QUICK_ROUNDS : MAX_ROUNDS;
    }
    return -1;
}

static json_t *verdict_json(const struct repro *r)
{
    return r->verdict == REPRO_TRUE    ? json_true()
           : r->verdict == REPRO_FALSE ? json_false()
                                       : json_null();
}

static void print_verdict(const struct repro *r, bool good)
{
    if (!good && r->error[0] != '\0')
        repro_say(r, "Verdict: none, it could not be run: %s\n", r->error);
    else if (!good)
        repro_say(r, "Verdict: none, interrupted\n");
    else
        repro_say(r, "Verdict: %s. %s\n",
                  r->verdict == REPRO_TRUE    ? "holds"
                  : r->verdict == REPRO_FALSE ? "does not hold here"
                                              : "not proven",
                  r->why);
    for (size_t i = 0; i < json_array_size(r->warnings); i++)
        repro_say(r, "Note: %s\n", json_string_value(json_array_get(r->warnings, i)));
    repro_say(r, "\n");
    fflush(stdout);
}

/* One experiment; its entry is added to the list. False: it could not be run, or was interrupted.
 */
static bool run_one(struct repro *r, const struct experiment *e, json_t *list)
{
    r->name = e->name;
    r->verdict = REPRO_UNPROVEN;
    r->why[0] = r->error[0] = '\0';
    r->record_sides = 0;
    record_begin(r->record, !r->no_store, "repro", e->name);
    r->measured = json_object();
    r->warnings = json_array();
    repro_say(r, "%s: %s\n", e->name, e->claim);
    bool good = e->run(r);
    if (!good) {
        r->verdict = REPRO_UNPROVEN;
        snprintf(r->why, sizeof(r->why), "%.1000s",
                 r->error[0] != '\0' ? r->error : "interrupted: the result is partial");
    }
    print_verdict(r, good);
    json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:I, s:o}", "name", e->name, "claim",
                          e->claim, "reported", json_loads(e->reported, 0, NULL), "measured",
                          r->measured, "holds", verdict_json(r), "why", r->why, "seed",
                          (json_int_t)r->seed, "warnings", r->warnings);
    if (!good && r->error[0] != '\0') {
        json_object_set_new(o, "error", json_string(r->error));
        cli_fail("repro", "%s: %s", e->name, r->error);
    }
    record_end(r->record, !good, o);
    json_array_append_new(list, o);
    return good;
}

static int run_all(struct repro *r, unsigned chosen)
{
    int status = CLI_OK;
    json_t *list = json_array();
    if (!r->json)
        printf("seed %" PRIu64 "\n\n", r->seed);
    for (unsigned i = 0; i < NELEM(experiments) && !ab_interrupted; i++)
        if ((chosen & 1u << i) != 0 && !run_one(r, experiments[i], list))
            status = CLI_FAILED;
    if (ab_interrupted)
        status = cli_fail("repro", "interrupted: the result is partial");
    json_t *o = json_pack("{s:o, s:b}", "experiments", list, "interrupted", (int)ab_interrupted);
    if (r->json && json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) != 0)
        status = cli_fail("repro", "cannot write the result");
    if (r->json)
        fputc('\n', stdout);
    json_decref(o);
    int e = cli_flush("repro");
    return status != CLI_OK ? status : e;
}

int cmd_repro(int argc, char **argv)
{
    static struct repro r;
    static struct record record;
    char self[4096];
    unsigned chosen = 0;
    r = (struct repro){.level_pct = 95, .seed = ab_random_seed(), .self = self, .record = &record};
    record_command(&record, argc, argv);
    int status = parse(argc, argv, &r, &chosen);
    if (status >= 0)
        return status;
    if (!self_path(self, sizeof(self)))
        return cli_fail("repro", "/proc/self/exe: %s", strerror(errno));
    ab_catch_signals();
    return run_all(&r, chosen);
}
