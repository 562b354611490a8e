/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving from streams: the socket buffer's lock for every mbuf, twice a call, not at all. */
#include "repro.h"

#include "measure/lock_stats.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>

/* The report's conditions: packets of the MTU, merged by LRO into chains of 16 and more, a receive
 * buffer of 64 KB, protocol and application on different cores. The receiver asks for a part of the
 * buffer: where it takes all at once on a link without delay, both ends take turns and no variant
 * contends. */
#define CONDITIONS                                                                                 \
    " -s 64K -M 24K --locks --set net.inet.tcp.tso=0 --set-remote net.inet.tcp.lro=1"              \
    " --set-remote net.isr.dispatch=deferred"
#define LOCKS "locks.so_rcv.per_gb"
#define BAR 3.5

static const struct column columns[] = {
    {"Mb/s", "throughput_mbps", "throughput_mbps", 1, 2},
    {"CPU send %", "cpu_send_pct", "cpu.local_pct", 1, 2},
    {"CPU recv %", "cpu_recv_pct", "cpu.remote_pct", 1, 2},
    {"us/KB send", "us_per_kb_send", "service_demand_us_per_kb.local", 1, 3},
    {"us/KB recv", "us_per_kb_recv", "service_demand_us_per_kb.remote", 1, 3},
    {"contended/GB", "contended_per_gb", LOCKS, 1, 1},
    {"spins", "spins", "locks.so_rcv.spins", 1, 0},
    {"blocks", "blocks", "locks.so_rcv.blocks", 1, 0},
};
/* Contended events of the report: in 10 s, at its throughput. */
static const double reported[2][NELEM(columns)] = {
    {7709.14, 13.30, 79.60, 0.283, 1.692, 38327, 369333, NAN},
    {8403.86, 14.66, 81.63, 0.286, 1.592, 10005, 105102, NAN},
};
static const char *const labels[] = {"generic (0)", "stream (1)", "lock-free (2)"};

static void print_tables(const struct repro *r, const struct ab_outcome *out)
{
    if (r->json)
        return;
    repro_print_heads("Reported", columns, NELEM(columns));
    repro_print_figures("generic, before", reported[0], columns, NELEM(columns));
    repro_print_figures("stream, after", reported[1], columns, NELEM(columns));
    printf("Measured here, %u runs a side, means\n", out->rounds);
    for (unsigned i = 0; i < NELEM(labels); i++)
        repro_print_row(out, i, labels[i], columns, NELEM(columns));
}

/* ---- the tables of lockstat and lock_profile ---- */

/* As far as the report told them. */
static const char reported_lockstat[] =
    "Reported, lockstat in the middle of a run\n"
    "  generic: Adaptive mutex spin: 369333 events in 10.017 seconds (36869 events/sec)\n"
    "    303685  82%  82% 0.00     1080 so_rcv                 (the receive call)\n"
    "     63847  17% 100% 0.00       25 so_rcv                 (TCP input)\n"
    "  stream: 105102 events in 10 seconds\n"
    "            72%                2860 so_rcv                 (TCP input)\n"
    "            27%                1355 so_rcv                 (the receive call)\n\n";

/* The rows of so_rcv alone. */
static void keep_rcv(struct lock_stats *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->row[i].lock, "so_rcv") == 0)
            s->row[n++] = s->row[i];
    s->count = n;
}

/* One run more, profiled: what it costs is not in the figures above. */
static bool profile_run(struct repro *r, const char *label, const char *key, const char *line)
{
    struct words w = {0};
    struct child_result run = {0};
    struct lock_stats s = {0};
    bool good = words_add(&w, r->self) && words_add(&w, "bench") && words_split(&w, line) &&
                words_split(&w, "--set debug.lock.prof.enable=1 -J") &&
                child_run(w.v, 120 * NS_PER_S, &run) &&
                lock_stats_from_json(json_object_get(run.doc, "lock_profile"), &s);
    if (good) {
        keep_rcv(&s);
        json_object_set_new(r->measured, key, lock_stats_to_json(&s, 0));
    } else if (!ab_interrupted) {
        snprintf(r->error, sizeof(r->error), "the profiled run failed: %s", run.error);
    }
    if (good && !r->json) {
        printf("Measured here, %s\n", label);
        lock_stats_events(&s, false, LOCK_COL_COUNT, 0, stdout);
        lock_stats_events(&s, true, LOCK_COL_COUNT, 0, stdout);
        (void)lock_stats_profile(&s, LOCK_COL_WAIT_TOTAL, 0, stdout);
        printf("\n");
    }
    lock_stats_free(&s);
    json_decref(run.doc);
    words_free(&w);
    return good;
}

/* Fewer contended acquisitions, at a throughput that is not proven lower. */
static bool judge(struct repro *r, const struct ab_outcome *out)
{
    struct stat_summary locks[3], speed[3];
    for (unsigned i = 0; i < 3; i++)
        if (!repro_summary(out, i, LOCKS, &locks[i]) ||
            !repro_summary(out, i, "throughput_mbps", &speed[i])) {
            snprintf(r->error, sizeof(r->error), "a run has no count of so_rcv's lock");
            return false;
        }
    struct stat_ratio fewer = stat_ratio(&locks[0], &locks[1], r->level_pct);
    struct stat_difference d = stat_compare(&speed[0], &speed[1], r->level_pct, STAT_CLASSIC);
    char text[128];
    bool slower = d.proven && d.difference < 0, none = locks[2].max == 0;
    r->verdict = slower ? REPRO_FALSE : repro_at_least(&fewer, BAR);
    repro_ratio_text(&fewer, r->level_pct, text, sizeof(text));
    repro_why(
        r, "Generic has %s the contended acquisitions per GB of stream; at least %.1f is claimed.",
        text, BAR);
    repro_why(r, "Throughput: %+.2f %% +/- %.2f %%%s.", d.percent, d.percent_ci,
              !d.proven ? ", no difference proven"
              : slower  ? ", proven lower"
                        : ", proven higher");
    repro_why(r, "The lock-free path %s.",
              none ? "had none in any run" : "had contended acquisitions too");
    json_object_set_new(r->measured, "contention_ratio", repro_ratio_json(&fewer));
    json_object_set_new(r->measured, "throughput", ab_difference_json(&d));
    json_object_set_new(r->measured, "lock_free_has_none", json_boolean(none));
    return true;
}

/* The sender and the receiver's protocol on one core, the receiving application on another. */
static void placement(char *out, size_t size)
{
    cpu_set_t set;
    int core[2], found = 0;
    out[0] = '\0';
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &set))
            core[found++] = i;
    if (found == 2)
        snprintf(out, size, " -T %d,%d --stack-cpu %d", core[1], core[0], core[1]);
}

static bool run(struct repro *r)
{
    static const char *const keys[] = {"generic", "stream", "lock_free"};
    struct ab_plan plan;
    struct ab_outcome out;
    char line[NELEM(labels)][512], cores[64];
    bool good = true;
    placement(cores, sizeof(cores));
    repro_plan(r, &plan, LOCKS, 0.2);
    for (unsigned i = 0; good && i < NELEM(labels); i++) {
        snprintf(line[i], sizeof(line[i]),
                 "TCP_STREAM -l %s -O 0.2" CONDITIONS
                 "%s --set-remote net.inet.tcp.soreceive_stream=%u",
                 r->quick ? "0.5" : "2", cores, i);
        good = repro_side(r, &plan, labels[i], line[i]);
    }
    if (!good)
        return false;
    repro_say(r, "(interleaved:%s%s)\n", CONDITIONS, cores);
    if (cores[0] == '\0')
        json_array_append_new(r->warnings,
                              json_string("there is one core only: the conditions ask for two"));
    good = repro_rounds(r, &plan, &out);
    if (good) {
        print_tables(r, &out);
        for (unsigned i = 0; i < NELEM(keys); i++)
            json_object_set_new(r->measured, keys[i],
                                repro_row_json(&out, i, columns, NELEM(columns)));
        json_object_set_new(r->measured, "conditions", json_string(&CONDITIONS[1]));
        good = judge(r, &out);
    }
    repro_say(r, "\n%s", good ? reported_lockstat : "");
    good = good && profile_run(r, labels[0], "generic_locks", line[0]) &&
           profile_run(r, labels[1], "stream_locks", line[1]);
    ab_outcome_free(&out);
    return good;
}

const struct experiment repro_stream = {
    .name = "stream",
    .claim = "soreceive_stream: at least 3.5 times fewer contended acquisitions of the receive "
             "buffer's lock per GB, and not less throughput",
    .reported = "{\"source\": \"FreeBSD r194672, June 2009: 10 GbE, one stream, LRO, TCP_SENDFILE "
                "from the peer, 64 KB buffers\","
                " \"generic\": {\"throughput_mbps\": 7709.14, \"cpu_send_pct\": 13.30,"
                " \"cpu_recv_pct\": 79.60, \"us_per_kb_send\": 0.283, \"us_per_kb_recv\": 1.692,"
                " \"contended_in_10_s\": 369333, \"contended_per_gb\": 38327},"
                " \"stream\": {\"throughput_mbps\": 8403.86, \"cpu_send_pct\": 14.66,"
                " \"cpu_recv_pct\": 81.63, \"us_per_kb_send\": 0.286, \"us_per_kb_recv\": 1.592,"
                " \"contended_in_10_s\": 105102, \"contended_per_gb\": 10005},"
                " \"contention_ratio\": 3.5, \"throughput_percent\": 9.0}",
    .run = run,
};
