/* SPDX-License-Identifier: BSD-2-Clause
 * What the experiments share: rounds of runs, rows of tables, ratios. */
#include "repro.h"

#include "cli/cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN_TIMEOUT_NS (120 * NS_PER_S)
#define LABEL_WIDTH 26

void repro_plan(struct repro *r, struct ab_plan *plan, const char *metric, double ratio_width)
{
    static char who[64];
    snprintf(who, sizeof(who), "weir repro %s", r->name);
    *plan = (struct ab_plan){.who = who,
                             .min_rounds = r->rounds,
                             .max_rounds = r->max_rounds,
                             .ratio_width = r->max_rounds > r->rounds ? ratio_width : 0,
                             .level_pct = r->level_pct,
                             .metric = metric,
                             .seed = r->seed,
                             .record = r->record,
                             .record_side = r->record_sides,
                             .timeout_ns = RUN_TIMEOUT_NS};
}

bool repro_side(struct repro *r, struct ab_plan *plan, const char *label, const char *bench)
{
    struct ab_side *s = &plan->side[plan->sides];
    snprintf(s->label, sizeof(s->label), "%s", label);
    bool good = plan->sides < AB_MAX_SIDES && words_add(&s->command, r->self) &&
                words_add(&s->command, "bench") && words_split(&s->command, bench) &&
                words_add(&s->command, "-J");
    plan->sides += good;
    if (!good)
        snprintf(r->error, sizeof(r->error), "out of memory");
    return good;
}

bool repro_rounds(struct repro *r, struct ab_plan *plan, struct ab_outcome *out)
{
    bool good = ab_run(plan, out);
    r->record_sides += plan->sides;
    for (unsigned i = 0; i < plan->sides; i++)
        words_free(&plan->side[i].command);
    if (!good)
        snprintf(r->error, sizeof(r->error), "%s", out->error);
    if (good && !out->interrupted)
        ab_doubts(out, plan->sides, r->warnings);
    return good && !out->interrupted;
}

bool repro_summary(const struct ab_outcome *out, unsigned side, const char *metric,
                   struct stat_summary *s)
{
    struct stat_set set = {0};
    bool good = ab_values(out, side, metric, &set);
    if (good)
        *s = stat_summarize(&set);
    stat_set_free(&set);
    return good;
}

json_t *repro_row_json(const struct ab_outcome *out, unsigned side, const struct column *c,
                       unsigned columns)
{
    json_t *row = json_object();
    for (unsigned i = 0; i < columns; i++) {
        struct stat_set set = {0};
        if (c[i].metric == NULL || !ab_values(out, side, c[i].metric, &set)) {
            json_object_set_new(row, c[i].key, json_null());
            stat_set_free(&set);
            continue;
        }
        for (size_t k = 0; k < set.count; k++)
            set.v[k] *= c[i].scale;
        struct stat_summary s = {0};
        if (stat_set_sort(&set))
            s = stat_summarize(&set);
        json_t *deviation = isfinite(s.stddev) ? json_real(s.stddev) : json_null();
        json_object_set_new(row, c[i].key,
                            json_pack("{s:f, s:o, s:o}", "mean", s.mean, "stddev", deviation,
                                      "runs", ab_numbers_json(&set)));
        stat_set_free(&set);
    }
    return row;
}

void repro_print_heads(const char *title, const struct column *c, unsigned columns)
{
    printf("%-*s", LABEL_WIDTH, title);
    for (unsigned i = 0; i < columns; i++)
        printf(" %13s", c[i].title);
    printf("\n");
}

void repro_print_figures(const char *label, const double *v, const struct column *c,
                         unsigned columns)
{
    printf("  %-*s", LABEL_WIDTH - 2, label);
    for (unsigned i = 0; i < columns; i++)
        if (isfinite(v[i]))
            printf(" %13.*f", c[i].digits, v[i]);
        else
            printf(" %13s", "-");
    printf("\n");
}

void repro_print_row(const struct ab_outcome *out, unsigned side, const char *label,
                     const struct column *c, unsigned columns)
{
    double v[16];
    for (unsigned i = 0; i < columns && i < NELEM(v); i++) {
        struct stat_summary s;
        bool good = c[i].metric != NULL && repro_summary(out, side, c[i].metric, &s);
        v[i] = good ? s.mean * c[i].scale : NAN;
    }
    repro_print_figures(label, v, c, columns);
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *repro_ratio_json(const struct stat_ratio *q)
{
    return json_pack("{s:o, s:o, s:o}", "ratio", number(q->ratio), "low", number(q->low), "high",
                     number(q->high));
}

enum repro_verdict repro_at_least(const struct stat_ratio *q, double bar)
{
    if (q->low >= bar)
        return REPRO_TRUE;
    if (q->high < bar)
        return REPRO_FALSE;
    return REPRO_UNPROVEN; /* also when nothing is known */
}

void repro_ratio_text(const struct stat_ratio *q, double level_pct, char *out, size_t size)
{
    if (isnan(q->ratio))
        snprintf(out, size, "not known (nothing was transferred)");
    else if (isinf(q->ratio))
        snprintf(out, size, "without end (the second is 0 in every run)");
    else if (isnan(q->low))
        snprintf(out, size, "%.2f times (no interval: too few or too different runs)", q->ratio);
    else if (isinf(q->high))
        snprintf(out, size, "%.2f times (%.4g %% interval from %.2f up)", q->ratio, level_pct,
                 fmax(q->low, 0));
    else
        snprintf(out, size, "%.2f times (%.4g %% interval %.2f to %.2f)", q->ratio, level_pct,
                 fmax(q->low, 0), q->high);
}

void repro_why(struct repro *r, const char *fmt, ...)
{
    size_t len = strlen(r->why);
    va_list ap;
    if (len > 0 && len + 2 < sizeof(r->why))
        r->why[len++] = ' ';
    va_start(ap, fmt);
    vsnprintf(r->why + len, sizeof(r->why) - len, fmt, ap);
    va_end(ap);
}

void repro_say(const struct repro *r, const char *fmt, ...)
{
    va_list ap;
    if (r->json)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
}
