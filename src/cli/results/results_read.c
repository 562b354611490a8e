/* SPDX-License-Identifier: BSD-2-Clause
 * Runs out of the store: listed, shown, exported. */
#include "results.h"

#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void results_time(double at, char *out, size_t size)
{
    time_t t = (time_t)at;
    struct tm tm;
    localtime_r(&t, &tm);
    strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm);
}

int results_print_json(json_t *doc)
{
    int e = doc != NULL ? json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : -1;
    fputc('\n', stdout);
    json_decref(doc);
    return e != 0 ? cli_fail("results", "cannot write the result") : cli_flush("results");
}

sqlite3_stmt *results_runs(struct store *s, const struct results_options *o, const int64_t *id,
                           unsigned ids, bool latest)
{
    sqlite3_str *sql = sqlite3_str_new(s->db);
    sqlite3_str_appendall(sql, "SELECT * FROM (SELECT id,kind,test,at,state,command,host,cpu,"
                               "kernel,version,build,doc FROM run WHERE 1");
    if (!isnan(o->since))
        sqlite3_str_appendf(sql, " AND at >= %!.17g", o->since);
    if (!isnan(o->until))
        sqlite3_str_appendf(sql, " AND at < %!.17g", o->until);
    if (o->test != NULL)
        sqlite3_str_appendf(sql, " AND test = %Q", o->test);
    if (o->kind != NULL)
        sqlite3_str_appendf(sql, " AND kind = %Q", o->kind);
    for (unsigned i = 0; i < ids; i++)
        sqlite3_str_appendf(sql, "%s%lld", i == 0 ? " AND id IN (" : ",", (long long)id[i]);
    sqlite3_str_appendall(sql, ids > 0 ? ")" : "");
    if (latest && o->limit > 0)
        sqlite3_str_appendf(sql, " ORDER BY at DESC, id DESC LIMIT %llu",
                            (unsigned long long)o->limit);
    sqlite3_str_appendall(sql, ") ORDER BY at, id");
    char *text = sqlite3_str_finish(sql);
    sqlite3_stmt *st = text != NULL ? store_prepare(s, text) : NULL;
    if (text == NULL)
        store_error(s, "cannot read");
    sqlite3_free(text);
    return st;
}

static const char *text(sqlite3_stmt *st, int i)
{
    const char *t = (const char *)sqlite3_column_text(st, i);
    return t != NULL ? t : "";
}

static json_t *document(sqlite3_stmt *st, int i)
{
    json_t *doc = json_loads(text(st, i), JSON_DECODE_ANY, NULL);
    return doc != NULL ? doc : json_null();
}

/* Samples of one side. */
static json_t *samples_json(struct store *s, int64_t run, int64_t side, bool docs)
{
    json_t *list = json_array();
    sqlite3_stmt *st = store_prepare(
        s, "SELECT round,at,value,doc FROM sample WHERE run=? AND side=? ORDER BY round");
    int e = SQLITE_ERROR;
    if (st != NULL) {
        sqlite3_bind_int64(st, 1, run);
        sqlite3_bind_int64(st, 2, side);
        while ((e = sqlite3_step(st)) == SQLITE_ROW) {
            bool known = sqlite3_column_type(st, 2) != SQLITE_NULL;
            json_t *o =
                json_pack("{s:I, s:f, s:o}", "round", (json_int_t)sqlite3_column_int64(st, 0), "at",
                          sqlite3_column_double(st, 1), "value",
                          known ? json_real(sqlite3_column_double(st, 2)) : json_null());
            if (docs)
                json_object_set_new(o, "doc", document(st, 3));
            json_array_append_new(list, o);
        }
    }
    if (st != NULL && e != SQLITE_DONE)
        store_error(s, "cannot read");
    sqlite3_finalize(st);
    if (e == SQLITE_DONE)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *sides_json(struct store *s, int64_t run, bool docs)
{
    json_t *list = json_array(), *samples = NULL;
    sqlite3_stmt *st =
        store_prepare(s, "SELECT side,label,metric,knobs FROM side WHERE run=? ORDER BY side");
    int e = SQLITE_ERROR;
    if (st != NULL) {
        sqlite3_bind_int64(st, 1, run);
        while ((e = sqlite3_step(st)) == SQLITE_ROW) {
            int64_t side = sqlite3_column_int64(st, 0);
            samples = samples_json(s, run, side, docs);
            if (samples == NULL)
                break;
            json_array_append_new(list,
                                  json_pack("{s:I, s:s, s:s, s:o, s:o}", "side", (json_int_t)side,
                                            "label", text(st, 1), "metric", text(st, 2), "knobs",
                                            document(st, 3), "samples", samples));
        }
        if (e != SQLITE_DONE && e != SQLITE_ROW)
            store_error(s, "cannot read");
    }
    sqlite3_finalize(st);
    if (e == SQLITE_DONE)
        return list;
    json_decref(list);
    return NULL;
}

json_t *results_run_json(struct store *s, sqlite3_stmt *run, bool docs)
{
    static const char *const name[] = {"id",   "kind", "test",   "at",      "state", "command",
                                       "host", "cpu",  "kernel", "version", "build"};
    json_t *sides = sides_json(s, sqlite3_column_int64(run, 0), docs);
    if (sides == NULL)
        return NULL;
    json_t *o = json_object();
    for (int i = 0; i < (int)NELEM(name); i++)
        json_object_set_new(o, name[i],
                            i == 0   ? json_integer(sqlite3_column_int64(run, i))
                            : i == 3 ? json_real(sqlite3_column_double(run, i))
                                     : json_string(text(run, i)));
    if (docs)
        json_object_set_new(o, "doc", document(run, 11));
    json_object_set_new(o, "sides", sides);
    return o;
}

/* All that a statement has; it is finalized. */
static json_t *collect(struct store *s, sqlite3_stmt *st, bool docs)
{
    json_t *list = json_array();
    int e = SQLITE_ERROR;
    while (st != NULL && (e = sqlite3_step(st)) == SQLITE_ROW) {
        json_t *run = results_run_json(s, st, docs);
        if (run == NULL)
            break;
        json_array_append_new(list, run);
    }
    if (st != NULL && e != SQLITE_DONE && e != SQLITE_ROW)
        store_error(s, "cannot read");
    sqlite3_finalize(st);
    if (e == SQLITE_DONE)
        return list;
    json_decref(list);
    return NULL;
}

static const char *str(const json_t *o, const char *key)
{
    const char *t = json_string_value(json_object_get(o, key));
    return t != NULL ? t : "";
}

/* "28645.6 (3)" for each side: mean and count. */
static void side_text(const json_t *side, char *out, size_t size)
{
    const json_t *samples = json_object_get(side, "samples"), *v;
    double sum = 0;
    size_t i, n = 0;
    json_array_foreach(samples, i, v)
    {
        const json_t *value = json_object_get(v, "value");
        sum += json_number_value(value);
        n += json_is_number(value);
    }
    if (n > 0)
        snprintf(out, size, "%.6g (%zu)", sum / (double)n, n);
    else
        snprintf(out, size, "-");
}

int results_list(struct store *s, const struct results_options *o)
{
    if (o->words > 0)
        return cli_usage("results", "list takes no %s", o->word[0]);
    json_t *list = s->db != NULL ? collect(s, results_runs(s, o, NULL, 0, true), false)
                                 : json_array(); /* there is no store yet */
    if (list == NULL)
        return cli_fail("results", "%s", s->error);
    if (o->json)
        return results_print_json(json_pack("{s:o}", "results", list));
    printf("%5s %-19s %-5s %-12s %-18s %-12s %s\n", "ID", "WHEN", "KIND", "TEST", "METRIC", "STATE",
           "MEAN (RUNS) OF EACH SIDE");
    size_t i, k;
    json_t *run, *side;
    json_array_foreach(list, i, run)
    {
        char when[32], what[64];
        json_t *sides = json_object_get(run, "sides");
        results_time(json_real_value(json_object_get(run, "at")), when, sizeof(when));
        printf("%5lld %-19s %-5s %-12s %-18s %-12s",
               (long long)json_integer_value(json_object_get(run, "id")), when, str(run, "kind"),
               str(run, "test"), str(json_array_get(sides, 0), "metric"), str(run, "state"));
        json_array_foreach(sides, k, side)
        {
            side_text(side, what, sizeof(what));
            printf(" %s%s", what, k + 1 < json_array_size(sides) ? "," : "");
        }
        printf("\n");
    }
    json_decref(list);
    return cli_flush("results");
}

static void print_run(const json_t *run)
{
    static const char *const name[] = {"kind", "test",   "state",   "command", "host",
                                       "cpu",  "kernel", "version", "build"};
    char when[32];
    size_t i, k;
    json_t *side, *v;
    results_time(json_real_value(json_object_get(run, "at")), when, sizeof(when));
    printf("%-9s%lld\n%-9s%s\n", "result",
           (long long)json_integer_value(json_object_get(run, "id")), "when", when);
    for (i = 0; i < NELEM(name); i++)
        printf("%-9s%s\n", name[i], str(run, name[i]));
    json_array_foreach(json_object_get(run, "sides"), i, side)
    {
        char *knobs = json_dumps(json_object_get(side, "knobs"), JSON_COMPACT | JSON_ENCODE_ANY);
        printf("\nside %c  %s\nknobs   %s\n%s:", (char)('a' + i % 26), str(side, "label"),
               knobs != NULL ? knobs : "", str(side, "metric"));
        json_array_foreach(json_object_get(side, "samples"), k, v)
        {
            const json_t *value = json_object_get(v, "value");
            if (json_is_number(value))
                printf(" %.8g", json_number_value(value));
            else
                printf(" -");
        }
        printf("\n");
        free(knobs);
    }
}

int results_show(struct store *s, const struct results_options *o)
{
    uint64_t v;
    if (o->words != 1 || !parse_u64(o->word[0], 1, INT64_MAX, &v))
        return cli_usage("results", "show needs one number of `weir results list`");
    int64_t id = (int64_t)v;
    json_t *list = collect(s, results_runs(s, o, &id, 1, false), o->json);
    if (list == NULL)
        return cli_fail("results", "%s", s->error);
    json_t *run = json_incref(json_array_get(list, 0));
    json_decref(list);
    if (run == NULL)
        return cli_fail("results", "there is no result %s", o->word[0]);
    if (o->json)
        return results_print_json(run);
    print_run(run);
    json_decref(run);
    return cli_flush("results");
}

/* ---- export ---- */

/* RFC 4180: quoted where it must be. */
static void csv_text(const char *t)
{
    if (strpbrk(t, ",\"\r\n") == NULL) {
        fputs(t, stdout);
        return;
    }
    fputc('"', stdout);
    for (; *t != '\0'; t++) {
        if (*t == '"')
            fputc('"', stdout);
        fputc(*t, stdout);
    }
    fputc('"', stdout);
}

static int export_csv(struct store *s, const struct results_options *o, const int64_t *id,
                      unsigned ids)
{
    char sql[] = "SELECT r.id,r.kind,r.test,r.state,r.command,r.host,r.cpu,r.kernel,r.version,"
                 "r.build,d.side,d.label,d.knobs,x.round,x.at,d.metric,x.value FROM run r "
                 "JOIN side d ON d.run=r.id JOIN sample x ON x.run=r.id AND x.side=d.side "
                 "WHERE r.id=? ORDER BY d.side,x.round";
    sqlite3_stmt *runs = results_runs(s, o, id, ids, false), *st = store_prepare(s, sql);
    int e = SQLITE_DONE;
    puts("id,kind,test,state,command,host,cpu,kernel,version,build,side,label,knobs,round,at,"
         "metric,value");
    while (runs != NULL && st != NULL && (e = sqlite3_step(runs)) == SQLITE_ROW) {
        sqlite3_bind_int64(st, 1, sqlite3_column_int64(runs, 0));
        while ((e = sqlite3_step(st)) == SQLITE_ROW)
            for (int i = 0; i < sqlite3_column_count(st); i++) {
                if (sqlite3_column_type(st, i) == SQLITE_FLOAT)
                    printf("%.15g", sqlite3_column_double(st, i));
                else
                    csv_text(text(st, i));
                putchar(i + 1 < sqlite3_column_count(st) ? ',' : '\n');
            }
        sqlite3_reset(st);
        if (e != SQLITE_DONE)
            break;
    }
    bool good = runs != NULL && st != NULL && e == SQLITE_DONE;
    if (runs != NULL && st != NULL && !good)
        store_error(s, "cannot read");
    sqlite3_finalize(st);
    sqlite3_finalize(runs);
    return good ? cli_flush("results") : cli_fail("results", "%s", s->error);
}

int results_export(struct store *s, const struct results_options *o)
{
    int64_t id[RESULTS_MAX_IDS];
    unsigned ids = 0;
    for (; (int)ids < o->words; ids++) {
        uint64_t v;
        if (ids == RESULTS_MAX_IDS || !parse_u64(o->word[ids], 1, INT64_MAX, &v))
            return cli_usage("results", "export: '%s' is not a result's number, or too many",
                             o->word[ids]);
        id[ids] = (int64_t)v;
    }
    if (s->db == NULL && o->csv)
        return cli_fail("results", "there are no results yet: %s", s->path);
    if (o->csv)
        return export_csv(s, o, id, ids);
    json_t *list =
        s->db != NULL ? collect(s, results_runs(s, o, id, ids, false), true) : json_array();
    if (list == NULL)
        return cli_fail("results", "%s", s->error);
    return results_print_json(json_pack("{s:i, s:o}", "schema", STORE_SCHEMA, "results", list));
}
