/* SPDX-License-Identifier: BSD-2-Clause
 * The flow log: records handed over one by one, in threes, and without a lock. */
#include "repro.h"

#include "measure/lock_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The report's conditions: one stream, messages of 1 MB, packets of the MTU, the sender logs. */
#define CONDITIONS " -m 1M --set net.inet.tcp.tso=0 --locks"
#define FASTER 1.135 /* throughput with threes, of that with single records */

static const struct column columns[] = {
    {"Mb/s", "throughput_mbps", "throughput_mbps", 1, 2},
    {"CPU send %", "cpu_send_pct", "cpu.local_pct", 1, 2},
    {"records", "records", "log.records", 1, 0},
    {"skipped", "skipped", "log.skipped", 1, 0},
    {"lost", "lost", "log.lost", 1, 0},
    {"locks/record", "locks_per_record", "log.locks_per_record", 1, 3},
    {"contended", "contended", "locks.alq.contended", 1, 0},
    {"wait us", "wait_us", "siftr.lock_wait_us", 1, 0},
};
static const double reported[2][NELEM(columns)] = {
    {570, NAN, 740230, 2, 0, NAN, NAN, 1979391},
    {647, NAN, 840113, 2, 0, NAN, NAN, 991094},
};
enum { SINGLE, THREES, RINGS, OFF, SIDES };
static const struct {
    const char *label, *key, *batch; /* batch NULL: no log */
} sides[SIDES] = {
    {"one by one (1)", "single", "1"},
    {"in threes (3)", "threes", "3"},
    {"rings, no lock (0)", "rings", "0"},
    {"no log", "off", NULL},
};

struct logs {
    char dir[32];
    char path[SIDES][64];
};

/* ---- what is in a log ---- */

struct log_count {
    double records, packets, skipped;
    unsigned footers;
};

static void count_footer(char *line, struct log_count *n)
{
    char *word;
    n->footers++;
    while ((word = strsep(&line, "\t")) != NULL) {
        if (strncmp(word, "total_tcp_pkts=", 15) == 0)
            n->packets += strtod(word + 15, NULL);
        else if (strncmp(word, "total_skipped_tcp_pkts=", 23) == 0)
            n->skipped += strtod(word + 23, NULL);
    }
}

static bool count_log(const char *path, struct log_count *n)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    if (f == NULL)
        return false;
    while ((len = getline(&line, &room, f)) > 0) {
        if (line[0] == 'i' || line[0] == 'o')
            n->records += line[len - 1] == '\n';
        else if (strncmp(line, "disable_", 8) == 0)
            count_footer(line, n);
    }
    free(line);
    fclose(f);
    return true;
}

/* A run is over: count its log, add what was found to its document, and remove the log. */
static bool after_run(void *ctx, unsigned side, json_t *doc, char *error, size_t size)
{
    const struct logs *logs = ctx;
    struct log_count n = {0};
    double locks = 0;
    if (sides[side].batch == NULL)
        return true;
    bool there = count_log(logs->path[side], &n);
    unlink(logs->path[side]);
    if (!there || n.footers != 1) {
        snprintf(error, size, "%s: %s", logs->path[side],
                 there ? "the log has no end" : strerror(errno));
        return false;
    }
    (void)metric_get(doc, "siftr.locks", &locks);
    json_object_set_new(doc, "log",
                        json_pack("{s:f, s:f, s:f, s:f}", "records", n.records, "skipped",
                                  n.skipped, "lost", n.packets - n.skipped - n.records,
                                  "locks_per_record", n.records > 0 ? locks / n.records : 0));
    return true;
}

/* ---- the verdict ---- */

static bool judge(struct repro *r, const struct ab_outcome *out)
{
    struct stat_summary speed[SIDES], locks[2], lost[3], wait[2];
    struct stat_ratio q;
    char text[128];
    bool exact = true;
    for (unsigned i = 0; i < SIDES; i++)
        if (!repro_summary(out, i, "throughput_mbps", &speed[i]))
            return false;
    for (unsigned i = 0; i < 3; i++) {
        if (!repro_summary(out, i, "log.lost", &lost[i])) {
            snprintf(r->error, sizeof(r->error), "a run has no count of its log");
            return false;
        }
        exact = exact && lost[i].min == 0 && lost[i].max == 0;
    }
    q = stat_ratio(&speed[THREES], &speed[SINGLE], r->level_pct);
    r->verdict = repro_at_least(&q, FASTER);
    json_object_set_new(r->measured, "threes_ratio", repro_ratio_json(&q));
    repro_ratio_text(&q, r->level_pct, text, sizeof(text));
    repro_why(r, "Throughput in threes is %s that of single records; %.3f is claimed.", text,
              FASTER);
    if (repro_summary(out, SINGLE, "log.locks_per_record", &locks[0]) &&
        repro_summary(out, THREES, "log.locks_per_record", &locks[1]))
        repro_why(r, "The queue's lock is taken %.2f and %.2f times a record.", locks[0].mean,
                  locks[1].mean);
    if (repro_summary(out, SINGLE, "siftr.lock_wait_us", &wait[0]) &&
        repro_summary(out, THREES, "siftr.lock_wait_us", &wait[1])) {
        q = stat_ratio(&wait[0], &wait[1], r->level_pct);
        json_object_set_new(r->measured, "wait_ratio", repro_ratio_json(&q));
        repro_why(r, "It was waited for %.0f and %.0f us a run (the report: half as long).",
                  wait[0].mean, wait[1].mean);
    }
    for (unsigned i = 0; i < 3; i++) {
        q = stat_ratio(&speed[i], &speed[OFF], r->level_pct);
        repro_ratio_text(&q, r->level_pct, text, sizeof(text));
        json_t *o = json_object_get(r->measured, sides[i].key);
        json_object_set_new(o, "of_no_log", repro_ratio_json(&q));
        if (i == RINGS)
            repro_why(r, "Rings, against no log: %s.", text);
    }
    repro_why(r, "%s",
              exact ? "Every packet that was not skipped is in its file." : "Records are missing.");
    if (!exact)
        r->verdict = REPRO_FALSE;
    return true;
}

static void print_tables(const struct repro *r, const struct ab_outcome *out)
{
    if (r->json)
        return;
    repro_print_heads("Reported, 10 s", columns, NELEM(columns));
    repro_print_figures("before", reported[0], columns, NELEM(columns));
    repro_print_figures("after, in threes", reported[1], columns, NELEM(columns));
    printf("Measured here, %u runs a side, means\n", out->rounds);
    for (unsigned i = 0; i < SIDES; i++)
        repro_print_row(out, i, sides[i].label, columns, NELEM(columns));
}

/* ---- lock_profile's table: one run more of each, profiled ---- */

static bool profile_run(struct repro *r, unsigned side, const char *line, const struct logs *logs)
{
    struct words w = {0};
    struct child_result run = {0};
    struct lock_stats s = {0};
    size_t n = 0;
    bool good = words_add(&w, r->self) && words_add(&w, "bench") && words_split(&w, line) &&
                words_split(&w, "--set debug.lock.prof.enable=1 -J") &&
                child_run(w.v, 120 * NS_PER_S, &run) &&
                lock_stats_from_json(json_object_get(run.doc, "lock_profile"), &s);
    unlink(logs->path[side]);
    for (size_t i = 0; i < s.count; i++)
        if (strcmp(s.row[i].lock, "alq") == 0)
            s.row[n++] = s.row[i];
    s.count = n;
    if (good && !r->json) {
        printf("Measured here, %s, profiled\n", sides[side].label);
        (void)lock_stats_profile(&s, LOCK_COL_WAIT_TOTAL, 0, stdout);
    }
    if (good)
        json_object_set_new(json_object_get(r->measured, sides[side].key), "lock_profile",
                            lock_stats_to_json(&s, 0));
    else if (!ab_interrupted)
        snprintf(r->error, sizeof(r->error), "the profiled run failed: %s", run.error);
    lock_stats_free(&s);
    json_decref(run.doc);
    words_free(&w);
    return good;
}

static void side_line(const struct repro *r, unsigned i, const struct logs *logs, char *out,
                      size_t size)
{
    int n = snprintf(out, size, "TCP_STREAM -l %s -O 0.2" CONDITIONS, r->quick ? "0.5" : "1.5");
    if (sides[i].batch != NULL)
        snprintf(out + n, size - (size_t)n,
                 " --set net.inet.siftr.logfile=%s --set net.inet.siftr.batch=%s"
                 " --set net.inet.siftr.enabled=1",
                 logs->path[i], sides[i].batch);
}

static bool run_sides(struct repro *r, struct logs *logs)
{
    struct ab_plan plan;
    struct ab_outcome out;
    char line[SIDES][512];
    bool good = true;
    repro_plan(r, &plan, "throughput_mbps", 0.1);
    plan.after = after_run;
    plan.after_ctx = logs;
    for (unsigned i = 0; i < SIDES; i++) {
        snprintf(logs->path[i], sizeof(logs->path[i]), "%s/%s.log", logs->dir, sides[i].key);
        side_line(r, i, logs, line[i], sizeof(line[i]));
        good = good && repro_side(r, &plan, sides[i].label, line[i]);
    }
    if (!good)
        return false;
    repro_say(r, "(interleaved: TCP_STREAM%s; logs under %s)\n", CONDITIONS, logs->dir);
    good = repro_rounds(r, &plan, &out);
    if (good) {
        print_tables(r, &out);
        for (unsigned i = 0; i < SIDES; i++)
            json_object_set_new(r->measured, sides[i].key,
                                repro_row_json(&out, i, columns, NELEM(columns)));
        good = judge(r, &out);
    }
    for (unsigned i = SINGLE; good && i <= THREES; i++)
        good = profile_run(r, i, line[i], logs);
    ab_outcome_free(&out);
    return good;
}

static bool run(struct repro *r)
{
    struct logs logs = {.dir = "/tmp/weir-repro.XXXXXX"};
    if (mkdtemp(logs.dir) == NULL) {
        snprintf(r->error, sizeof(r->error), "%s: %s", logs.dir, strerror(errno));
        return false;
    }
    bool good = run_sides(r, &logs);
    for (unsigned i = 0; i < SIDES; i++) /* of a run that was ended */
        unlink(logs.path[i]);
    rmdir(logs.dir);
    return good;
}

const struct experiment repro_siftr = {
    .name = "siftr",
    .claim =
        "records of the flow log in threes: 13.5 % more throughput of a sender that logs, half "
        "the wait for the queue's lock, no record lost",
    .reported =
        "{\"source\": \"FreeBSD review D41175, July 2023: 1 Gb/s, CPU bound, iperf -l 1M -t "
        "10\","
        " \"single\": {\"throughput_mbps\": 570, \"records\": 740230, \"skipped\": 2,"
        " \"wait_us\": 1979391},"
        " \"threes\": {\"throughput_mbps\": 647, \"records\": 840113, \"skipped\": 2,"
        " \"wait_us\": 991094},"
        " \"threes_ratio\": 1.135, \"wait_percent\": -50}",
    .run = run,
};
