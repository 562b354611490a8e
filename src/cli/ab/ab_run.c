/* SPDX-License-Identifier: BSD-2-Clause
 * Rounds of runs, and what may be said of their results. */
#include "ab.h"
#include "cli/cli.h"
#include "cli/results/store.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define BUSY_MEAN_PCT 10.0 /* of one core, taken by others: from here on it is said */
#define BUSY_WORST_PCT 30.0
#define DRIFT_P 0.01

/* The order of a round's sides, 'a' first in the table. */
static void draw_order(char *order, unsigned sides, uint64_t *state)
{
    for (unsigned i = 0; i < sides; i++)
        order[i] = (char)('a' + i);
    order[sides] = '\0';
    for (unsigned i = sides; i > 1; i--) {
        unsigned k = (unsigned)((stat_random(state) >> 32) * i >> 32);
        char c = order[i - 1];
        order[i - 1] = order[k];
        order[k] = c;
    }
}

static void progress(const struct ab_plan *plan, unsigned round, char side)
{
    static uint64_t start_ns;
    if (!isatty(STDERR_FILENO))
        return;
    if (start_ns == 0)
        start_ns = clock_now_ns();
    double s = (double)(clock_now_ns() - start_ns) / 1e9;
    if (round == 0)
        fprintf(stderr, "\r%s: warming up, side %c, %.0f s      ", plan->who, side, s);
    else
        fprintf(stderr, "\r%s: round %u of %u%s%u, side %c, %.0f s      ", plan->who, round,
                plan->min_rounds, plan->max_rounds > plan->min_rounds ? " to " : " / ",
                plan->max_rounds, side, s);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r                                                            \r", stderr);
}

/* Before the next run begins: what was measured outlives us. */
static void record_run(const struct ab_plan *plan, const struct ab_outcome *o, unsigned round,
                       unsigned side, const json_t *doc)
{
    double v;
    const char *metric = o->metric[0] != '\0'   ? o->metric
                         : plan->metric != NULL ? plan->metric
                                                : metric_default(doc);
    if (round > 0 && plan->record != NULL && metric_get(doc, metric, &v))
        record_sample(plan->record, plan->record_side + side, plan->side[side].label, round, metric,
                      doc);
}

/* One round; its documents in doc[]. */
static bool run_round(const struct ab_plan *plan, struct ab_outcome *o, unsigned round,
                      const char *order, json_t *doc[])
{
    for (unsigned i = 0; i < plan->sides; i++) {
        unsigned side = (unsigned)(order[i] - 'a');
        struct child_result r;
        struct load *l = &o->load;
        progress(plan, round, order[i]);
        load_begin(l);
        bool good = child_run(plan->side[side].command.v, plan->timeout_ns, &r);
        if (good && round > 0)
            load_end(l, r.cpu_s);
        doc[side] = r.doc;
        if (good && plan->after != NULL)
            good = plan->after(plan->after_ctx, side, r.doc, r.error, sizeof(r.error));
        if (good) {
            record_run(plan, o, round, side, r.doc);
            continue;
        }
        o->interrupted = ab_interrupted;
        if (!ab_interrupted)
            snprintf(o->error, sizeof(o->error), "side %c (%s) failed: %s", order[i],
                     plan->side[side].label, r.error);
        return false;
    }
    return true;
}

/* Is the metric there in each document of a round? */
static bool check_metric(const struct ab_plan *plan, struct ab_outcome *o, json_t *doc[])
{
    double v;
    if (o->metric[0] == '\0')
        snprintf(o->metric, sizeof(o->metric), "%s",
                 plan->metric != NULL ? plan->metric : metric_default(doc[0]));
    for (unsigned i = 0; i < plan->sides; i++)
        if (!metric_get(doc[i], o->metric, &v)) {
            bool idle = metric_get(doc[i], "bytes", &v) && v == 0;
            snprintf(o->error, sizeof(o->error), "side %c (%s) has no number for metric %s%s",
                     'a' + i, plan->side[i].label, o->metric,
                     idle ? ": nothing was transferred" : "");
            return false;
        }
    return true;
}

bool ab_values(const struct ab_outcome *o, unsigned side, const char *metric, struct stat_set *set)
{
    double v;
    for (unsigned i = 0; i < o->rounds; i++)
        if (!metric_get(json_array_get(o->docs[side], i), metric, &v) || !stat_set_add(set, v))
            return false;
    return set->count > 0 && stat_set_sort(set);
}

bool ab_width_met(const struct stat_difference *d, double width_pct)
{
    return d->known && isfinite(d->percent_ci) && 2 * fabs(d->percent_ci) <= width_pct;
}

static bool width_met(const struct ab_plan *plan, const struct ab_outcome *o)
{
    struct stat_set a = {0}, b = {0};
    bool met = false;
    if (ab_values(o, 0, o->metric, &a) && ab_values(o, 1, o->metric, &b)) {
        struct stat_summary sa = stat_summarize(&a), sb = stat_summarize(&b);
        struct stat_difference d = stat_compare(&sa, &sb, plan->level_pct, STAT_CLASSIC);
        struct stat_ratio q = stat_ratio(&sa, &sb, plan->level_pct);
        met = plan->ratio_width > 0 ? q.high - q.low <= plan->ratio_width * q.ratio
                                    : ab_width_met(&d, plan->width_pct);
    }
    stat_set_free(&a);
    stat_set_free(&b);
    return met;
}

bool ab_run(const struct ab_plan *plan, struct ab_outcome *o)
{
    uint64_t state = plan->seed;
    char warm_up[AB_MAX_SIDES + 1] = "abcde";
    unsigned narrow = 0;
    bool asked = plan->width_pct > 0 || plan->ratio_width > 0;
    *o = (struct ab_outcome){0};
    for (unsigned i = 0; i < plan->sides; i++)
        o->docs[i] = json_array();
    warm_up[plan->sides] = '\0';
    for (unsigned round = 0; round <= plan->max_rounds; round++) {
        json_t *doc[AB_MAX_SIDES] = {NULL};
        char *order = o->order[o->rounds];
        if (round > 0)
            draw_order(order, plan->sides, &state);
        bool good = run_round(plan, o, round, round > 0 ? order : warm_up, doc) &&
                    check_metric(plan, o, doc);
        for (unsigned i = 0; i < plan->sides; i++)
            if (good && round > 0)
                json_array_append_new(o->docs[i], doc[i]);
            else
                json_decref(doc[i]);
        if (!good)
            break;
        o->rounds = round;
        if (round < plan->min_rounds)
            continue;
        o->width_met = !asked || width_met(plan, o);
        narrow = o->width_met ? narrow + 1 : 0;
        if (narrow >= (asked ? AB_NARROW_ROUNDS : 1))
            break;
    }
    progress_end();
    return o->error[0] == '\0';
}

void ab_outcome_free(struct ab_outcome *o)
{
    for (unsigned i = 0; i < AB_MAX_SIDES; i++)
        json_decref(o->docs[i]);
    memset(o->docs, 0, sizeof(o->docs));
}

/* ---- doubts ---- */

static void doubt(json_t *warnings, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void doubt(json_t *warnings, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_array_append_new(warnings, json_string(text));
}

/* Do all sides together rise or fall over the rounds? Each value counts as a share of its side's
 * mean. */
static void check_drift(const struct ab_outcome *o, unsigned sides, json_t *warnings)
{
    double v[AB_MAX_ROUNDS];
    for (unsigned i = 0; i < o->rounds; i++)
        v[i] = 0;
    for (unsigned side = 0; side < sides; side++) {
        struct stat_set s = {0};
        bool good = ab_values(o, side, o->metric, &s);
        double mean = good ? stat_summarize(&s).mean : 0;
        for (unsigned i = 0; good && mean != 0 && i < o->rounds; i++)
            v[i] += s.v[i] / mean / sides;
        stat_set_free(&s);
    }
    struct stat_trend t = stat_trend(v, o->rounds);
    if (t.p < DRIFT_P)
        doubt(warnings,
              "the results drift: %+.1f %% from the first round to the last, both sides together "
              "(p = %.2g)",
              100 * t.slope * (o->rounds - 1), t.p);
}

void ab_doubts(const struct ab_outcome *o, unsigned sides, json_t *warnings)
{
    double other = load_other_pct(&o->load), steal = load_steal_pct(&o->load);
    if (other > BUSY_MEAN_PCT || o->load.worst_pct > BUSY_WORST_PCT)
        doubt(warnings,
              "the machine was busy: other processes used %.0f %% of a core on average, %.0f %% in "
              "the worst run",
              other, o->load.worst_pct);
    if (steal > BUSY_MEAN_PCT)
        doubt(warnings, "the hypervisor took %.0f %% of a core away", steal);
    check_drift(o, sides, warnings);
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *ab_difference_json(const struct stat_difference *d)
{
    return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:b}", "confidence_pct", d->level_pct,
                     "difference", number(d->difference), "difference_ci", number(d->difference_ci),
                     "percent", number(d->percent), "percent_ci", number(d->percent_ci), "pooled_s",
                     number(d->pooled_s), "proven", (int)d->proven);
}

json_t *ab_numbers_json(const struct stat_set *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(list, number(s->v[i]));
    return list;
}
