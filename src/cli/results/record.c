/* SPDX-License-Identifier: BSD-2-Clause
 * Runs go into the store as they come. */
#include "commit.h"
#include "store.h"

#include "cli/ab/ab.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* "MODEL, N cores" */
static void describe_cpu(char *out, size_t size)
{
    char line[256], model[200] = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "model name : %199[^\n]", model) == 1)
            break;
    if (f != NULL)
        fclose(f);
    snprintf(out, size, "%s, %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
}

void record_begin(struct record *r, bool wanted, const char *kind, const char *test)
{
    r->who = r->kind = kind;
    r->test = test;
    r->on = wanted;
    r->id = 0;
}

void record_command(struct record *r, int argc, char **argv)
{
    size_t len = 0;
    len += (size_t)snprintf(r->command, sizeof(r->command), "weir");
    for (int i = 0; i < argc && len < sizeof(r->command) - 1; i++) {
        bool quote = argv[i][0] == '\0' || strpbrk(argv[i], " \t\n'\"\\$&;|<>*?()") != NULL;
        len += (size_t)snprintf(r->command + len, sizeof(r->command) - len,
                                quote ? " \"%s\"" : " %s", argv[i]);
    }
}

/* Bind texts and run a statement that has no rows. */
static bool run_text(struct store *s, sqlite3_stmt *st)
{
    bool good = st != NULL && sqlite3_step(st) == SQLITE_DONE;
    if (st != NULL && !good)
        store_error(s, "cannot write");
    sqlite3_finalize(st);
    return good;
}

static void bind_text(sqlite3_stmt *st, int i, const char *text)
{
    sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
}

static bool insert_run(struct store *s, struct record *r)
{
    struct utsname u;
    char cpu[256], kernel[512];
    sqlite3_stmt *st =
        store_prepare(s, "INSERT INTO run(kind,test,at,state,command,host,cpu,kernel,version,build)"
                         "VALUES(?,?,?,'unfinished',?,?,?,?,?,?)");
    if (st == NULL || uname(&u) != 0) {
        sqlite3_finalize(st);
        return false;
    }
    describe_cpu(cpu, sizeof(cpu));
    snprintf(kernel, sizeof(kernel), "%s %s %s", u.sysname, u.release, u.machine);
    bind_text(st, 1, r->kind);
    bind_text(st, 2, r->test);
    sqlite3_bind_double(st, 3, now_s());
    bind_text(st, 4, r->command);
    bind_text(st, 5, u.nodename);
    bind_text(st, 6, cpu);
    bind_text(st, 7, kernel);
    bind_text(st, 8, WEIR_VERSION);
    bind_text(st, 9, build_commit);
    if (!run_text(s, st))
        return false;
    r->id = sqlite3_last_insert_rowid(s->db);
    return true;
}

static bool insert_side(struct store *s, int64_t run, unsigned side, const char *label,
                        const char *metric, const json_t *doc)
{
    json_t *knobs = json_pack("{s:O?, s:O?}", "sysctl", json_object_get(doc, "sysctl"),
                              "sysctl_remote", json_object_get(doc, "sysctl_remote"));
    char *text = knobs != NULL ? json_dumps(knobs, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    sqlite3_stmt *st = store_prepare(
        s, "INSERT OR IGNORE INTO side(run,side,label,metric,knobs) VALUES(?,?,?,?,?)");
    if (st != NULL) {
        sqlite3_bind_int64(st, 1, run);
        sqlite3_bind_int64(st, 2, side);
        bind_text(st, 3, label);
        bind_text(st, 4, metric);
        bind_text(st, 5, text != NULL ? text : "{}");
    }
    free(text);
    json_decref(knobs);
    return run_text(s, st);
}

static bool insert_sample(struct store *s, int64_t run, unsigned side, unsigned round,
                          const char *metric, const json_t *doc)
{
    double value;
    char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(15));
    sqlite3_stmt *st =
        store_prepare(s, "INSERT INTO sample(run,side,round,at,value,doc) VALUES(?,?,?,?,?,?)");
    if (st != NULL) {
        const json_t *start = json_object_get(doc, "start_time");
        sqlite3_bind_int64(st, 1, run);
        sqlite3_bind_int64(st, 2, side);
        sqlite3_bind_int64(st, 3, round);
        sqlite3_bind_double(st, 4, json_is_real(start) ? json_real_value(start) : now_s());
        if (metric_get(doc, metric, &value))
            sqlite3_bind_double(st, 5, value);
        bind_text(st, 6, text); /* NULL, without memory, is refused by the table */
    }
    free(text);
    return run_text(s, st);
}

/* Say it once, and let be. */
static void give_up(struct record *r, const struct store *s)
{
    cli_warn(r->who, "warning: the result is not recorded: %s (" STORE_ENV "=off ends this)",
             s->error);
    r->on = false;
}

static bool begin(struct record *r, struct store *s)
{
    if (!r->on)
        return false;
    enum store_status e = store_open(s, STORE_WRITE);
    if (e == STORE_OFF)
        r->on = false;
    if (e == STORE_OK && !store_exec(s, "BEGIN IMMEDIATE")) {
        store_close(s);
        e = STORE_FAILED;
    }
    if (e == STORE_FAILED)
        give_up(r, s);
    return e == STORE_OK;
}

static void commit(struct record *r, struct store *s, bool good)
{
    good = good && store_exec(s, "COMMIT");
    if (!good) {
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        give_up(r, s);
    }
    store_close(s);
}

void record_sample(struct record *r, unsigned side, const char *label, unsigned round,
                   const char *metric, const json_t *doc)
{
    struct store s = {0};
    if (!begin(r, &s))
        return;
    commit(r, &s,
           (r->id != 0 || insert_run(&s, r)) && insert_side(&s, r->id, side, label, metric, doc) &&
               insert_sample(&s, r->id, side, round, metric, doc));
}

void record_end(struct record *r, bool interrupted, const json_t *doc)
{
    struct store s = {0};
    if ((r->id == 0 && doc == NULL) || !begin(r, &s))
        return;
    char *text = doc != NULL ? json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    bool good = r->id != 0 || insert_run(&s, r);
    sqlite3_stmt *st = good ? store_prepare(&s, "UPDATE run SET state=?, doc=? WHERE id=?") : NULL;
    if (st != NULL) {
        bind_text(st, 1, interrupted ? "interrupted" : "complete");
        bind_text(st, 2, text);
        sqlite3_bind_int64(st, 3, r->id);
    }
    commit(r, &s, good && run_text(&s, st));
    free(text);
}
