/* SPDX-License-Identifier: BSD-2-Clause
 * Results against results: ministat's test, and what makes it doubtful. */
#include "results.h"

#include "cli/ab/ab.h"
#include "cli/cli.h"
#include "cli/stat/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What should be alike on both sides for the difference to mean the build. */
static const char *const alike[] = {"test", "host", "cpu", "kernel"};
/* Of the documents: the knobs, and bench's options. */
static const char *const doc_alike[] = {
    "stack",         "link",           "remote_stack",        "sysctl",  "sysctl_remote",
    "message_bytes", "receive_bytes",  "socket_buffer_bytes", "cc",      "streams",
    "request_bytes", "response_bytes", "file_bytes",          "nodelay", "spin",
    "length_s",      "omit_s"};

struct half {
    struct stat_set set;
    char name[256], metric[256];
    json_t *seen; /* {property: {value as text: true}} */
    json_t *builds;
    unsigned runs, without;
};

static void note(json_t *seen, const char *property, const json_t *value)
{
    char *t = json_dumps(value != NULL ? value : json_null(),
                         JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    json_t *values = json_object_get(seen, property);
    if (values == NULL) {
        values = json_object();
        json_object_set_new(seen, property, values);
    }
    if (t != NULL)
        json_object_set_new(values, t, json_true());
    free(t);
}

/* The samples of one side of a run. */
static bool add_side(struct half *h, const json_t *run, const json_t *side)
{
    size_t i, k;
    json_t *sample;
    json_array_foreach(json_object_get(side, "samples"), i, sample)
    {
        const json_t *doc = json_object_get(sample, "doc");
        double v;
        if (h->metric[0] == '\0')
            snprintf(h->metric, sizeof(h->metric), "%s",
                     json_string_value(json_object_get(side, "metric")));
        if (!metric_get(doc, h->metric, &v)) {
            h->without++;
            continue;
        }
        if (!stat_set_add(&h->set, v))
            return false;
        for (k = 0; k < NELEM(doc_alike); k++)
            note(h->seen, doc_alike[k], json_object_get(doc, doc_alike[k]));
        for (k = 0; k < NELEM(alike); k++)
            note(h->seen, alike[k], json_object_get(run, alike[k]));
        note(h->builds, "build", json_object_get(run, "build"));
    }
    h->runs++;
    return true;
}

/* Runs of a statement (finalized), the chosen side of each. 0: done. */
static int gather(struct store *s, sqlite3_stmt *st, int side, struct half *h)
{
    int e = SQLITE_ERROR, status = CLI_OK;
    while (status == CLI_OK && st != NULL && (e = sqlite3_step(st)) == SQLITE_ROW) {
        json_t *run = results_run_json(s, st, true);
        json_t *sides = json_object_get(run, "sides");
        if (run == NULL)
            status = cli_fail("results", "%s", s->error);
        else if (side < 0 && json_array_size(sides) > 1)
            status = cli_usage("results", "result %lld has %zu sides: say which (%lld:a)",
                               (long long)sqlite3_column_int64(st, 0), json_array_size(sides),
                               (long long)sqlite3_column_int64(st, 0));
        else if ((size_t)MAX(side, 0) < json_array_size(sides) &&
                 !add_side(h, run, json_array_get(sides, (size_t)MAX(side, 0))))
            status = cli_fail("results", "out of memory");
        json_decref(run);
    }
    if (status == CLI_OK && (st == NULL || e != SQLITE_DONE)) {
        if (st != NULL)
            store_error(s, "cannot read");
        status = cli_fail("results", "%s", s->error);
    }
    sqlite3_finalize(st);
    return status;
}

/* "3,4,5" or "7:a" */
static int by_ids(struct store *s, const char *word, struct half *h)
{
    static const struct results_options all = {.since = NAN, .until = NAN};
    int64_t id[RESULTS_MAX_IDS];
    unsigned ids = 0;
    int side = -1;
    const char *p = word;
    for (char *end; ids < RESULTS_MAX_IDS; p = end + 1) {
        if (*p < '0' || *p > '9')
            return cli_usage("results", "compare: '%s' is no list of numbers", word);
        id[ids++] = strtoll(p, &end, 10);
        if (*end == ':' && end[1] >= 'a' && end[1] <= 'z') {
            side = end[1] - 'a';
            end += 2;
        }
        if (*end == '\0')
            break;
        if (*end != ',')
            return cli_usage("results", "compare: '%s' is no list of numbers", word);
    }
    snprintf(h->name, sizeof(h->name), "%s", word);
    int status = gather(s, results_runs(s, &all, id, ids, false), side, h);
    if (status == CLI_OK && h->runs < ids)
        return cli_fail("results", "%s: %u of these %u are not there, or lack that side", word,
                        ids - h->runs, ids);
    return status;
}

static int by_time(struct store *s, const struct results_options *o, double from, double to,
                   struct half *h)
{
    struct results_options part = *o;
    char a[32] = "", b[32] = "now";
    part.since = from;
    part.until = to;
    part.kind = o->kind != NULL ? o->kind : o->side >= 0 ? "ab" : "bench";
    results_time(from, a, sizeof(a));
    if (!isnan(to))
        results_time(to, b, sizeof(b));
    snprintf(h->name, sizeof(h->name), "%s, %s to %s", o->test, a, b);
    return gather(s, results_runs(s, &part, NULL, 0, false), o->side, h);
}

/* What differs between the halves, or within one. */
static json_t *doubts(struct half h[2])
{
    json_t *list = json_array(), *values;
    const char *key;
    json_object_foreach(h[0].seen, key, values)
    {
        json_t *other = json_object_get(h[1].seen, key);
        char t[128];
        if (other == NULL)
            continue;
        if (!json_equal(values, other))
            snprintf(t, sizeof(t), "%s differs between the two", key);
        else if (json_object_size(values) > 1)
            snprintf(t, sizeof(t), "%s differs within each", key);
        else
            continue;
        json_array_append_new(list, json_string(t));
    }
    for (unsigned i = 0; i < 2; i++) {
        char t[128];
        if (h[i].without == 0)
            continue;
        snprintf(t, sizeof(t), "%u samples of %s lack the metric and are left out", h[i].without,
                 i == 0 ? "the first" : "the second");
        json_array_append_new(list, json_string(t));
    }
    if (!json_equal(h[0].builds, h[1].builds))
        json_array_append_new(list, json_string("the builds differ"));
    return list;
}

static json_t *half_json(const struct half *h)
{
    return json_pack("{s:s, s:o}", "name", h->name, "runs", ab_numbers_json(&h->set));
}

static int report(struct half h[2], const struct results_options *o)
{
    json_t *notes = doubts(h);
    struct stat_set sets[2] = {h[0].set, h[1].set};
    struct stat_summary a = stat_summarize(&sets[0]), b = stat_summarize(&sets[1]);
    struct stat_difference d = stat_compare(&a, &b, o->level_pct, STAT_CLASSIC);
    bool few = !d.known;
    if (few)
        d.proven = false;
    if (few)
        json_array_append_new(
            notes, json_string("too few runs: a difference needs two on each side to be judged"));
    if (o->json)
        return results_print_json(json_pack("{s:s, s:o, s:o, s:o, s:o}", "metric", h[0].metric, "a",
                                            half_json(&h[0]), "b", half_json(&h[1]), "ministat",
                                            ab_difference_json(&d), "warnings", notes));
    struct plot_options plot = {.width = PLOT_DEFAULT_WIDTH,
                                .level_pct = o->level_pct,
                                .table = STAT_CLASSIC,
                                .no_plot = true,
                                .no_test = few};
    printf("%s\n", h[0].metric);
    if (!plot_print(stdout, sets, 2, &plot))
        return cli_fail("results", "out of memory");
    if (few)
        printf("No difference proven: %g\n", d.difference);
    else if (!d.proven)
        printf("\t%g +/- %g\n", d.difference, d.difference_ci);
    for (size_t i = 0; i < json_array_size(notes); i++)
        printf("Note: %s\n", json_string_value(json_array_get(notes, i)));
    json_decref(notes);
    return cli_flush("results");
}

static int choose(struct store *s, const struct results_options *o, struct half h[2])
{
    if (o->words == 2) {
        int e = by_ids(s, o->word[0], &h[0]);
        snprintf(h[1].metric, sizeof(h[1].metric), "%s", h[0].metric);
        return e != CLI_OK ? e : by_ids(s, o->word[1], &h[1]);
    }
    if (o->words != 0 || o->test == NULL)
        return cli_usage("results", "compare two numbers, or --test TEST");
    struct results_options t = *o;
    double until = isnan(o->until) ? results_midnight(0) : o->until;
    double since = isnan(o->since) ? until - 7 * 86400.0 : o->since;
    if (since >= until)
        return cli_usage("results", "compare: --since is not before --until");
    int e = by_time(s, &t, since, until, &h[0]);
    snprintf(h[1].metric, sizeof(h[1].metric), "%s", h[0].metric);
    return e != CLI_OK ? e : by_time(s, &t, until, NAN, &h[1]);
}

int results_compare(struct store *s, const struct results_options *o)
{
    struct half h[2] = {0};
    for (unsigned i = 0; i < 2; i++) {
        h[i].seen = json_object();
        h[i].builds = json_object();
        if (o->metric != NULL)
            snprintf(h[i].metric, sizeof(h[i].metric), "%s", o->metric);
    }
    int status = choose(s, o, h);
    for (unsigned i = 0; status == CLI_OK && i < 2; i++) {
        h[i].set.name = h[i].name;
        if (h[i].set.count == 0)
            status =
                cli_fail("results", "nothing to compare: no sample of %s%s%s", h[i].name,
                         h[i].without ? " has the metric " : "", h[i].without ? h[i].metric : "");
        else if (!stat_set_sort(&h[i].set))
            status = cli_fail("results", "out of memory");
    }
    if (status == CLI_OK)
        status = report(h, o);
    for (unsigned i = 0; i < 2; i++) {
        stat_set_free(&h[i].set);
        json_decref(h[i].seen);
        json_decref(h[i].builds);
    }
    return status;
}
