/* SPDX-License-Identifier: BSD-2-Clause
 * ministat's dot plot and table.
 *
 * Each column of the plot stands for the same share of the range from the smallest to the largest
 * of all values and all means plus or minus their deviation; the first and the last column reach
 * half a step beyond. Points of a set that fall into one column are stacked; where sets meet in a
 * cell their numbers are OR'ed and name the symbol. Below it each set's bar runs from mean -
 * deviation to mean + deviation with the median (M) and the mean (A), in one row or a row each.
 *
 * The classic plot is as high as the last set needs and leaves out points above that; so does this
 * one with the classic table, so that the same input gives the same output. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

static const char symbols[] = " x+*%#@O";

struct plot {
    size_t width, rows; /* rows: points in the tallest column */
    size_t height;      /* rows that are shown */
    double origin, step;
    unsigned char *cell; /* height rows, the lowest first */
    char *bar;           /* rows of width characters; 0 is empty */
    unsigned bars;
};

char plot_symbol(unsigned i)
{
    return symbols[i + 1];
}

static size_t column(const struct plot *p, double value)
{
    double x = (value - p->origin) / p->step;
    return x <= 0 ? 0 : MIN((size_t)x, p->width - 1);
}

/* The points of the tallest column of a set. */
static size_t tallest(const struct plot *p, const struct stat_set *s)
{
    size_t best = 0, run = 0, last = SIZE_MAX;
    for (size_t i = 0; i < s->count; i++) {
        size_t c = column(p, s->sorted[i]);
        run = c == last ? run + 1 : 1;
        best = MAX(best, run);
        last = c;
    }
    return best;
}

static void draw_points(struct plot *p, const struct stat_set *s, unsigned number, bool classic)
{
    size_t row = 0, last = SIZE_MAX, tall = tallest(p, s);
    if (classic && tall > p->height) /* what was beyond the top is gone */
        memset(&p->cell[p->height * p->width], 0, (tall - p->height) * p->width);
    p->height = classic ? tall : p->rows;
    for (size_t i = 0; i < s->count; i++) {
        size_t c = column(p, s->sorted[i]);
        row = c == last ? row + 1 : 0;
        p->cell[row * p->width + c] |= (unsigned char)number;
        last = c;
    }
}

static void draw_bar(const struct plot *p, char *bar, const struct stat_summary *s)
{
    if (!isnan(s->stddev)) {
        size_t from = column(p, s->mean - s->stddev), to = column(p, s->mean + s->stddev);
        bar[from] = '|';
        for (size_t i = from + 1; i < to; i++)
            if (bar[i] == 0)
                bar[i] = '_';
        bar[to] = '|';
    }
    bar[column(p, s->median)] = 'M';
    bar[column(p, s->mean)] = 'A';
}

static void print_plot(FILE *to, const struct plot *p)
{
    fputc('+', to);
    for (size_t i = 0; i < p->width; i++)
        fputc('-', to);
    fputs("+\n", to);
    for (size_t row = p->height; row-- > 0;) {
        fputc('|', to);
        for (size_t i = 0; i < p->width; i++)
            fputc(symbols[p->cell[row * p->width + i]], to);
        fputs("|\n", to);
    }
    for (unsigned row = 0; row < p->bars; row++) {
        const char *bar = &p->bar[row * p->width];
        fputc('|', to);
        for (size_t i = 0; i < p->width; i++)
            fputc(bar[i] != 0 ? bar[i] : ' ', to);
        fputs("|\n", to);
    }
    fputc('+', to);
    for (size_t i = 0; i < p->width; i++)
        fputc('-', to);
    fputs("+\n", to);
}

static bool draw(FILE *to, const struct stat_set *sets, const struct stat_summary *sum,
                 unsigned count, struct plot_options *o)
{
    double low = INFINITY, high = -INFINITY;
    for (unsigned i = 0; i < count; i++) {
        double spread = isnan(sum[i].stddev) ? 0 : sum[i].stddev;
        low = fmin(low, fmin(sum[i].min, sum[i].mean - spread));
        high = fmax(high, fmax(sum[i].max, sum[i].mean + spread));
    }
    struct plot p = {.width = (size_t)o->width, .bars = o->separate_bars ? count : 1};
    p.step = (high - low) / ((double)p.width - 1.0);
    p.origin = low - 0.5 * p.step;
    if (!(p.step > 0) || !isfinite(high - low)) {
        fputs(isfinite(high - low) ? "[no plot, span is zero width]\n"
                                   : "[no plot, span is too wide]\n",
              to);
        return true;
    }
    for (unsigned i = 0; i < count; i++)
        p.rows = MAX(p.rows, tallest(&p, &sets[i]));
    p.cell = calloc(p.rows, p.width);
    p.bar = calloc(p.bars, p.width);
    bool good = p.cell != NULL && p.bar != NULL;
    for (unsigned i = 0; good && i < count; i++) {
        draw_points(&p, &sets[i], i + 1, o->table == STAT_CLASSIC);
        draw_bar(&p, &p.bar[o->separate_bars ? i * p.width : 0], &sum[i]);
    }
    if (good)
        print_plot(to, &p);
    if (good && p.height < p.rows)
        o->points_hidden = true;
    free(p.cell);
    free(p.bar);
    return good;
}

void plot_print_difference(FILE *to, const struct stat_difference *d)
{
    char level[32];
    snprintf(level, sizeof(level), "%.1f", d->level_pct);
    if (fabs(strtod(level, NULL) - d->level_pct) > 1e-9) /* 99.99 is not 100.0 */
        snprintf(level, sizeof(level), "%.10g", d->level_pct);
    if (!d->proven) {
        fprintf(to, "No difference proven at %s%% confidence\n", level);
        return;
    }
    fprintf(to, "Difference at %s%% confidence\n", level);
    fprintf(to, "\t%g +/- %g\n", d->difference, d->difference_ci);
    if (isfinite(d->percent))
        fprintf(to, "\t%g%% +/- %g%%\n", d->percent, d->percent_ci);
    else
        fputs("\tn/a% +/- n/a% (the first mean is 0)\n", to);
    fprintf(to, "\t(Student's t, pooled s = %g)\n", d->pooled_s);
}

static void print_row(FILE *to, char symbol, const struct stat_summary *s)
{
    fprintf(to, "%c %3zu %13.8g %13.8g %13.8g %13.8g %13.8g\n", symbol, s->count, s->min, s->max,
            s->median, s->mean, s->stddev);
}

bool plot_print(FILE *to, const struct stat_set *sets, unsigned count, struct plot_options *o)
{
    struct stat_summary sum[PLOT_MAX_SETS];
    CHECK(count >= 1 && count <= PLOT_MAX_SETS);
    for (unsigned i = 0; i < count; i++) {
        sum[i] = stat_summarize(&sets[i]);
        fprintf(to, "%c %s\n", plot_symbol(i), sets[i].name);
    }
    if (!o->no_plot && !o->no_test && !draw(to, sets, sum, count, o))
        return false;
    fputs("    N           Min           Max        Median           Avg        Stddev\n", to);
    for (unsigned i = 0; i < count; i++) {
        print_row(to, plot_symbol(i), &sum[i]);
        if (i == 0 || o->no_test)
            continue;
        struct stat_difference d = stat_compare(&sum[0], &sum[i], o->level_pct, o->table);
        plot_print_difference(to, &d);
    }
    return true;
}
