/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile for people. */
#include "lock_stats.h"

#include "base/stack.h"
#include "symbol.h"

#include <inttypes.h>
#include <stdlib.h>

const char *const lock_column_names[LOCK_COLS] = {
    [LOCK_COL_MAX] = "max",           [LOCK_COL_WAIT_MAX] = "wait_max",
    [LOCK_COL_TOTAL] = "total",       [LOCK_COL_WAIT_TOTAL] = "wait_total",
    [LOCK_COL_COUNT] = "count",       [LOCK_COL_AVG] = "avg",
    [LOCK_COL_WAIT_AVG] = "wait_avg", [LOCK_COL_CNT_HOLD] = "cnt_hold",
    [LOCK_COL_CNT_LOCK] = "cnt_lock", [LOCK_COL_NAME] = "name",
    [LOCK_COL_NSEC] = "nsec",         [LOCK_COL_LOCK] = "lock",
    [LOCK_COL_CALLER] = "caller",
};

/* ---- what the profile says ---- */

static void fill(struct lock_stats_row *out, const struct lock_prof_row *in, double tick_ns,
                 struct symbols *names)
{
    /* The compiler knows files as seen from the build directory. */
    const char *where = strstr(in->where, "/src/"), *tests = strstr(in->where, "/tests/");
    where = where != NULL ? where + 1 : tests != NULL ? tests + 1 : in->where;
    snprintf(out->lock, sizeof(out->lock), "%s", in->class->name);
    snprintf(out->where, sizeof(out->where), "%s", where);
    symbol_name(names, in->caller, out->caller, sizeof(out->caller));
    for (int i = 0; i < LOCK_STATS; i++)
        out->v[i] = i < LOCK_STAT_HOLD ? in->v[i] : (uint64_t)((double)in->v[i] * tick_ns + 0.5);
}

int lock_stats_take(struct lock_stats *out)
{
    struct lock_prof_row *raw = calloc(LOCK_PROF_SITES, sizeof(*raw));
    struct symbols *names = symbols_open();
    *out = (struct lock_stats){.row = calloc(LOCK_PROF_SITES, sizeof(*out->row))};
    if (raw != NULL && names != NULL && out->row != NULL) {
        double tick_ns = lock_prof_tick_ns();
        out->count = lock_prof_read(raw, LOCK_PROF_SITES);
        out->overflow = lock_prof_overflow();
        out->counted_ns = lock_prof_counted_ns();
        for (size_t i = 0; i < out->count; i++)
            fill(&out->row[i], &raw[i], tick_ns, names);
    }
    bool good = raw != NULL && names != NULL && out->row != NULL;
    symbols_close(names);
    free(raw);
    if (!good)
        lock_stats_free(out);
    return good ? 0 : -ENOMEM;
}

void lock_stats_free(struct lock_stats *s)
{
    free(s->row);
    *s = (struct lock_stats){0};
}

/* ---- tables ---- */

static uint64_t waits(const struct lock_stats_row *r)
{
    return r->v[LOCK_STAT_SPINS] + r->v[LOCK_STAT_BLOCKS];
}

static uint64_t wait_ns(const struct lock_stats_row *r)
{
    return r->v[LOCK_STAT_SPIN_TIME] + r->v[LOCK_STAT_BLOCK_TIME];
}

static uint64_t mean(uint64_t total, uint64_t n)
{
    return n > 0 ? total / n : 0;
}

/* Which events a table is about: 's'pins, 'b'locks, or the 'p'rofile, of acquisitions. */
struct order {
    enum lock_column by;
    char table;
};

static uint64_t events_of(const struct lock_stats_row *r, char table)
{
    return r->v[table == 's' ? LOCK_STAT_SPINS : LOCK_STAT_BLOCKS];
}

static uint64_t events_ns(const struct lock_stats_row *r, char table)
{
    return r->v[table == 's' ? LOCK_STAT_SPIN_TIME : LOCK_STAT_BLOCK_TIME];
}

static uint64_t key(const struct lock_stats_row *r, const struct order *o)
{
    bool profile = o->table == 'p';
    switch (o->by) {
    case LOCK_COL_MAX:
        return r->v[LOCK_STAT_HOLD_MAX];
    case LOCK_COL_WAIT_MAX:
        return r->v[LOCK_STAT_WAIT_MAX];
    case LOCK_COL_TOTAL:
        return profile ? r->v[LOCK_STAT_HOLD] : events_ns(r, o->table);
    case LOCK_COL_WAIT_TOTAL:
        return wait_ns(r);
    case LOCK_COL_COUNT:
        return profile ? r->v[LOCK_STAT_COUNT] : events_of(r, o->table);
    case LOCK_COL_AVG:
        return mean(r->v[LOCK_STAT_HOLD], r->v[LOCK_STAT_COUNT]);
    case LOCK_COL_WAIT_AVG:
        return mean(wait_ns(r), r->v[LOCK_STAT_COUNT]);
    case LOCK_COL_CNT_HOLD:
        return r->v[LOCK_STAT_HELD_UP];
    case LOCK_COL_CNT_LOCK:
        return waits(r);
    case LOCK_COL_NSEC:
        return profile ? 0 : mean(events_ns(r, o->table), events_of(r, o->table));
    default:
        return 0;
    }
}

static int compare(const void *a, const void *b, void *ctx)
{
    const struct lock_stats_row *x = a, *y = b;
    const struct order *o = ctx;
    uint64_t kx = key(x, o), ky = key(y, o);
    if (kx != ky)
        return kx < ky ? 1 : -1;
    int by_lock = strcmp(x->lock, y->lock), by_caller = strcmp(x->caller, y->caller);
    int by_where = strcmp(x->where, y->where);
    if (o->by == LOCK_COL_NAME && by_where != 0)
        return by_where;
    if (o->by == LOCK_COL_CALLER && by_caller != 0)
        return by_caller;
    return by_lock != 0 ? by_lock : by_caller;
}

static void sort(struct lock_stats *s, enum lock_column by, char table)
{
    struct order o = {.by = by, .table = table};
    if (s->count > 1)
        qsort_r(s->row, s->count, sizeof(*s->row), compare, &o);
}

void lock_stats_sort(struct lock_stats *s, enum lock_column by)
{
    sort(s, by, 'p');
}

static uint64_t us(uint64_t ns)
{
    return ns / 1000;
}

size_t lock_stats_profile(struct lock_stats *s, enum lock_column by, size_t limit, FILE *to)
{
    size_t n = 0;
    fprintf(to, "%6s %9s %11s %11s %11s %6s %8s %8s %8s %s\n", "max", "wait_max", "total",
            "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock", "name");
    sort(s, by, 'p');
    for (size_t i = 0; i < s->count && (limit == 0 || n < limit); i++) {
        const struct lock_stats_row *r = &s->row[i];
        if (r->v[LOCK_STAT_COUNT] == 0)
            continue;
        fprintf(to,
                "%6" PRIu64 " %9" PRIu64 " %11" PRIu64 " %11" PRIu64 " %11" PRIu64 " %6" PRIu64
                " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %s (%s:%s)\n",
                us(r->v[LOCK_STAT_HOLD_MAX]), us(r->v[LOCK_STAT_WAIT_MAX]),
                us(r->v[LOCK_STAT_HOLD]), us(wait_ns(r)), r->v[LOCK_STAT_COUNT],
                us(mean(r->v[LOCK_STAT_HOLD], r->v[LOCK_STAT_COUNT])),
                us(mean(wait_ns(r), r->v[LOCK_STAT_COUNT])), r->v[LOCK_STAT_HELD_UP], waits(r),
                r->where[0] != '\0' ? r->where : r->caller,
                strcmp(r->lock, "owner") == 0 ? "word" : "mutex", r->lock);
        n++;
    }
    return n;
}

void lock_stats_events(struct lock_stats *s, bool blocks, enum lock_column by, size_t limit,
                       FILE *to)
{
    double seconds = (double)s->counted_ns / (double)NS_PER_S;
    static const char line[] =
        "-------------------------------------------------------------------------------\n";
    char table = blocks ? 'b' : 's';
    uint64_t total = 0, sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        total += events_of(&s->row[i], table);
    fprintf(to, "Adaptive mutex %s: %" PRIu64 " events in %.3f seconds (%.0f events/sec)\n\n",
            blocks ? "block" : "spin", total, seconds, seconds > 0 ? (double)total / seconds : 0.0);
    if (total == 0)
        return;
    fprintf(to, "Count indv cuml rcnt     nsec Lock                   Caller\n%s", line);
    sort(s, by, table);
    for (size_t i = 0; i < s->count && (limit == 0 || n < limit); i++) {
        const struct lock_stats_row *r = &s->row[i];
        uint64_t events = events_of(r, table);
        if (events == 0)
            continue;
        sum += events;
        fprintf(to, "%6" PRIu64 " %3.0f%% %3.0f%% %4.2f %8" PRIu64 " %-22s %s\n", events,
                100.0 * (double)events / (double)total, 100.0 * (double)sum / (double)total, 0.0,
                mean(events_ns(r, table), events), r->lock, r->caller);
        n++;
    }
    fprintf(to, "%s\n", line);
}

/* ---- knobs ---- */

static int knob_enable(struct weir_stack *s, const char *write, char *out, size_t size)
{
    if (write == NULL)
        return snprintf(out, size, "%d", lock_prof_is_on()) < (int)size ? 0 : -ENOSPC;
    if (strcmp(write, "0") != 0 && strcmp(write, "1") != 0)
        return -EINVAL;
    lock_prof_enable(write[0] == '1');
    return 0;
}

static int knob_reset(struct weir_stack *s, const char *write, char *out, size_t size)
{
    if (write == NULL)
        return snprintf(out, size, "0") < (int)size ? 0 : -ENOSPC;
    if (strcmp(write, "0") != 0 && strcmp(write, "1") != 0)
        return -EINVAL;
    if (write[0] == '1')
        lock_prof_reset();
    return 0;
}

static int knob_stats(struct weir_stack *s, const char *write, char *out, size_t size)
{
    struct lock_stats stats;
    char *text = NULL;
    size_t len = 0;
    if (write != NULL)
        return -EPERM;
    int error = lock_stats_take(&stats);
    if (error != 0)
        return error;
    FILE *f = open_memstream(&text, &len);
    if (f != NULL) {
        fputc('\n', f);
        (void)lock_stats_profile(&stats, LOCK_COL_WAIT_TOTAL, 0, f);
        if (stats.overflow > 0)
            fprintf(f, "%" PRIu64 " events of sites that there was no room for\n", stats.overflow);
    }
    lock_stats_free(&stats);
    if (f == NULL || fclose(f) != 0) {
        free(text);
        return -ENOMEM;
    }
    bool fits = len < size;
    if (fits)
        memcpy(out, text, len); /* without the last newline */
    if (fits)
        out[len - 1] = '\0';
    free(text);
    return fits ? 0 : -ENOSPC;
}

void lock_stats_attach(struct weir_stack *s)
{
    sysctl_set_handler(s, KNOB_lock_prof_enable, knob_enable);
    sysctl_set_handler(s, KNOB_lock_prof_reset, knob_reset);
    sysctl_set_handler(s, KNOB_lock_prof_stats, knob_stats);
}
