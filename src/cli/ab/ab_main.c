/* SPDX-License-Identifier: BSD-2-Clause
 * `weir ab`: A against B. */
#include "ab_options.h"

#include "cli/cli.h"
#include "cli/results/store.h"
#include "cli/stat/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct answer {
    struct stat_set set[2];
    struct stat_difference difference;
    json_t *warnings;
};

static bool work_out(const struct ab_options *o, const struct ab_outcome *out, struct answer *a)
{
    const struct ab_plan *plan = &o->plan;
    a->warnings = json_array();
    for (unsigned i = 0; i < 2; i++) {
        a->set[i].name = plan->side[i].label;
        if (!ab_values(out, i, out->metric, &a->set[i]))
            return false;
    }
    struct stat_summary sa = stat_summarize(&a->set[0]), sb = stat_summarize(&a->set[1]);
    a->difference = stat_compare(&sa, &sb, plan->level_pct, STAT_CLASSIC);
    if (out->interrupted)
        json_array_append_new(a->warnings, json_string("interrupted: the result is partial"));
    else if (!out->width_met)
        json_array_append_new(a->warnings,
                              json_string("the interval is wider than asked for: the cap came "
                                          "first"));
    ab_doubts(out, 2, a->warnings);
    return true;
}

static json_t *side_json(const struct answer *a, unsigned side)
{
    return json_pack("{s:s, s:o}", "label", a->set[side].name, "runs",
                     ab_numbers_json(&a->set[side]));
}

static json_t *order_json(const struct ab_outcome *out)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < out->rounds; i++)
        json_array_append_new(list, json_string(out->order[i]));
    return list;
}

static int print_json(json_t *o)
{
    int e = o != NULL ? json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : -1;
    fputc('\n', stdout);
    json_decref(o);
    return e != 0 ? cli_fail("ab", "cannot write the result") : cli_flush("ab");
}

static json_t *document(const struct ab_options *o, const struct ab_outcome *out,
                        const struct answer *a)
{
    const struct ab_plan *plan = &o->plan;
    const struct load *l = &out->load;
    return json_pack(
        "{s:s, s:I, s:o, s:o, s:o, s:s, s:o, s:o, s:b, s:{s:f, s:f, s:f}, s:O}", "metric",
        out->metric, "seed", (json_int_t)plan->seed, "a", side_json(a, 0), "b", side_json(a, 1),
        "ministat", ab_difference_json(&a->difference), "test", o->test, "order", order_json(out),
        "width_met", plan->width_pct > 0 ? json_boolean(out->width_met) : json_null(),
        "interrupted", (int)out->interrupted, "load", "other_pct", load_other_pct(l), "worst_pct",
        l->worst_pct, "steal_pct", load_steal_pct(l), "warnings", a->warnings);
}

static int report_text(const struct ab_options *o, const struct ab_outcome *out,
                       const struct answer *a)
{
    const struct ab_plan *plan = &o->plan;
    struct plot_options plot = {
        .width = PLOT_DEFAULT_WIDTH, .level_pct = plan->level_pct, .table = STAT_CLASSIC};
    printf("%s, %s, %u pairs, seed %" PRIu64 "\n", o->test, out->metric, out->rounds, plan->seed);
    if (!plot_print(stdout, a->set, 2, &plot))
        return cli_fail("ab", "out of memory");
    if (plan->width_pct > 0)
        printf("Interval: %.3g %% of the first mean wide, %.3g %% asked for: %s\n",
               2 * fabs(a->difference.percent_ci), plan->width_pct,
               out->width_met ? "reached" : "NOT reached");
    for (size_t i = 0; i < json_array_size(a->warnings); i++)
        printf("Note: %s\n", json_string_value(json_array_get(a->warnings, i)));
    return cli_flush("ab");
}

static int fail(const struct ab_options *o, const char *error)
{
    if (o->json)
        (void)print_json(json_pack("{s:I, s:s}", "seed", (json_int_t)o->plan.seed, "error", error));
    return cli_fail("ab", "%s", error);
}

static int report(const struct ab_options *o, const struct ab_outcome *out)
{
    struct answer a = {0};
    int status;
    if (out->error[0] != '\0')
        return fail(o, out->error);
    if (out->rounds < 2)
        return fail(o, "interrupted before two pairs were complete: no result");
    if (work_out(o, out, &a)) {
        json_t *doc = document(o, out, &a);
        status = o->json ? print_json(json_incref(doc)) : report_text(o, out, &a);
        record_end(o->plan.record, out->interrupted, doc);
        json_decref(doc);
    } else {
        status = fail(o, "out of memory");
    }
    if (status == CLI_OK && out->interrupted)
        status = cli_fail("ab", "interrupted: the result is of %u pairs", out->rounds);
    if (status == CLI_OK && o->strict && !out->width_met)
        status = cli_fail("ab", "the interval is wider than asked for");
    stat_set_free(&a.set[0]);
    stat_set_free(&a.set[1]);
    json_decref(a.warnings);
    return status;
}

int cmd_ab(int argc, char **argv)
{
    static struct ab_options o;
    static struct record record;
    record_command(&record, argc, argv);
    int status = ab_parse(argc, argv, &o);
    if (status < 0) {
        struct ab_outcome *out = calloc(1, sizeof(*out));
        ab_catch_signals();
        record_begin(&record, !o.no_store, "ab", o.test);
        o.plan.record = &record;
        if (!o.json)
            fprintf(stderr, "weir ab: seed %" PRIu64 "\n", o.plan.seed);
        if (out != NULL)
            (void)ab_run(&o.plan, out);
        status = out != NULL ? report(&o, out) : cli_fail("ab", "out of memory");
        if (out != NULL)
            ab_outcome_free(out);
        free(out);
    }
    for (unsigned i = 0; i < 2; i++)
        words_free(&o.plan.side[i].command);
    return status;
}
