/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time accounting: the kernel's clock of the thread at each switch, or ticks of the counter. */
#include "repro.h"

#include <math.h>
#include <stdio.h>

#define BAR_RR 1.41  /* ticks against bintime, request and response */
#define COST_RR 0.95 /* ticks against off */
#define COST_STREAM 0.99
#define SWITCHES "cputime.switches_per_transaction"

enum { BINTIME, TICKS, OFF, SIDES };
static const char *const labels[SIDES] = {"bintime", "ticks", "off"};

static const struct column rr_columns[] = {
    {"trans/s", "transactions_per_s", "transactions_per_s", 1, 0},
    {"CPU local %", "cpu_local_pct", "cpu.local_pct", 1, 2},
    {"CPU remote %", "cpu_remote_pct", "cpu.remote_pct", 1, 2},
    {"switches/tr", "switches_per_transaction", SWITCHES, 1, 2},
    {"accounts us", "accounts_us", "cputime.all.sum_us", 1, 0},
    {"kernel us", "kernel_us", "cputime.all.kernel_us", 1, 0},
};
static const struct column stream_columns[] = {
    {"Mb/s", "throughput_mbps", "throughput_mbps", 1, 0},
    {"us/KB local", "us_per_kb_local", "service_demand_us_per_kb.local", 1, 4},
    {"us/KB remote", "us_per_kb_remote", "service_demand_us_per_kb.remote", 1, 4},
    {"switches", "switches", "cputime.all.switches", 1, 0},
    {"accounts us", "accounts_us", "cputime.all.sum_us", 1, 0},
    {"kernel us", "kernel_us", "cputime.all.kernel_us", 1, 0},
};

/* A kind of test by turns, with each value of the knob. */
struct part {
    const char *test, *key, *metric;
    const struct column *columns;
    unsigned count;
    double cost_bar;
    struct stat_ratio gain, cost;      /* ticks / bintime, ticks / off */
    struct stat_difference difference; /* of ticks against bintime */
    double bintime, ticks, switches[2];
};

static const struct {
    const char *test;
    double before, after, percent, ci; /* ci NAN: no difference was proven */
    int part;                          /* measured here: 0 RR, 1 STREAM, -1 not */
} report[] = {
    {"TCP_STREAM, loopback, Mb/s", 4178.016, 4519.416, 8.17134, 1.49364, 1},
    {"TCP_RR, loopback, trans/s", 27964.662, 39463.23, 41.1182, 2.45457, 0},
    {"TCP_STREAM recv, 10 GbE", 7693.382, 7830.482, 1.78205, 0.848484, -1},
    {"TCP_STREAM send, 10 GbE", 4679.212, 4671.276, NAN, NAN, -1},
    {"TCP_SENDFILE send, 10 GbE", 7490.258, 7369.944, -1.60627, 0.682395, -1},
    {"TCP_RR, 10 GbE, no coal.", 29827.82, 33556.268, 12.4999, 0.544562, -1},
};

static void print_report(const struct part p[2])
{
    printf("%-28s %11s %11s %20s   %s\n", "Reported", "before", "after", "difference",
           "here: bintime, ticks, difference");
    for (unsigned i = 0; i < NELEM(report); i++) {
        printf("%-28s %11.3f %11.3f", report[i].test, report[i].before, report[i].after);
        if (isnan(report[i].percent))
            printf(" %20s", "none proven");
        else
            printf(" %+9.3f %% +/- %5.3f", report[i].percent, report[i].ci);
        const struct part *here = report[i].part >= 0 ? &p[report[i].part] : NULL;
        if (here != NULL)
            printf("   %.0f, %.0f, %+.2f %% +/- %.2f%s", here->bintime, here->ticks,
                   here->difference.percent, here->difference.percent_ci,
                   here->difference.proven ? "" : " (not proven)");
        printf("\n");
    }
}

static bool take(struct repro *r, const struct ab_outcome *out, struct part *p)
{
    struct stat_summary v[SIDES], s;
    for (unsigned i = 0; i < SIDES; i++)
        if (!repro_summary(out, i, p->metric, &v[i])) {
            snprintf(r->error, sizeof(r->error), "a run has no %s", p->metric);
            return false;
        }
    p->gain = stat_ratio(&v[TICKS], &v[BINTIME], r->level_pct);
    p->cost = stat_ratio(&v[TICKS], &v[OFF], r->level_pct);
    p->difference = stat_compare(&v[BINTIME], &v[TICKS], r->level_pct, STAT_CLASSIC);
    p->bintime = v[BINTIME].mean;
    p->ticks = v[TICKS].mean;
    for (unsigned i = 0; i < 2; i++)
        p->switches[i] = repro_summary(out, i, SWITCHES, &s) ? s.mean : NAN;
    json_t *o = json_object();
    for (unsigned i = 0; i < SIDES; i++)
        json_object_set_new(o, labels[i],
                            repro_row_json(out, i, p->columns, i == OFF ? 3 : p->count));
    json_object_set_new(o, "ticks_to_bintime", repro_ratio_json(&p->gain));
    json_object_set_new(o, "ticks_to_off", repro_ratio_json(&p->cost));
    json_object_set_new(o, "difference", ab_difference_json(&p->difference));
    json_object_set_new(r->measured, p->key, o);
    return true;
}

static bool run_part(struct repro *r, struct part *p)
{
    struct ab_plan plan;
    struct ab_outcome out;
    char line[256];
    bool good = true;
    repro_plan(r, &plan, p->metric, 0.1);
    for (unsigned i = 0; good && i < SIDES; i++) {
        snprintf(line, sizeof(line), "%s -l %s -O 0.2 --set kern.cputime=%s", p->test,
                 r->quick ? "0.5" : "1.5", labels[i]);
        good = repro_side(r, &plan, labels[i], line);
    }
    if (!good)
        return false;
    good = repro_rounds(r, &plan, &out);
    if (good && !r->json) {
        char title[64];
        snprintf(title, sizeof(title), "%s, %u runs", p->test, out.rounds);
        repro_print_heads(title, p->columns, p->count);
        for (unsigned i = 0; i < SIDES; i++)
            repro_print_row(&out, i, labels[i], p->columns, p->count);
    }
    good = good && take(r, &out, p);
    ab_outcome_free(&out);
    return good;
}

static const char *cost_verdict(const struct part *p)
{
    return p->cost.high < p->cost_bar   ? "does not hold here"
           : p->cost.low >= p->cost_bar ? "holds"
                                        : "is not excluded";
}

static void judge(struct repro *r, const struct part p[2])
{
    char text[128];
    bool equal = fabs(p[0].switches[0] / p[0].switches[1] - 1) < 0.02;
    r->verdict = repro_at_least(&p[0].gain, BAR_RR);
    repro_ratio_text(&p[0].gain, r->level_pct, text, sizeof(text));
    repro_why(r, "Request and response: ticks reach %s what bintime does; %.2f is claimed.", text,
              BAR_RR);
    repro_why(r, "Switches a transaction: %.2f with bintime, %.2f with ticks%s.", p[0].switches[0],
              p[0].switches[1], equal ? "" : ", which differs");
    repro_ratio_text(&p[1].gain, r->level_pct, text, sizeof(text));
    repro_why(r, "Stream: %s.", text);
    for (unsigned i = 0; i < 2; i++) {
        repro_ratio_text(&p[i].cost, r->level_pct, text, sizeof(text));
        repro_why(r, "%s, ticks against off: %s; a loss under %.0f %% is asked for, which %s.",
                  p[i].test, text, 100 * (1 - p[i].cost_bar), cost_verdict(&p[i]));
    }
    json_object_set_new(r->measured, "switches_equal", json_boolean(equal));
}

static bool run(struct repro *r)
{
    struct part p[2] = {{.test = "TCP_RR",
                         .key = "rr",
                         .metric = "transactions_per_s",
                         .columns = rr_columns,
                         .count = NELEM(rr_columns),
                         .cost_bar = COST_RR},
                        {.test = "TCP_STREAM",
                         .key = "stream",
                         .metric = "throughput_mbps",
                         .columns = stream_columns,
                         .count = NELEM(stream_columns),
                         .cost_bar = COST_STREAM}};
    repro_say(r, "(interleaved: kern.cputime = bintime, ticks, off; memory link)\n");
    for (unsigned i = 0; i < 2; i++)
        if (!run_part(r, &p[i]))
            return false;
    if (!r->json)
        print_report(p);
    judge(r, p);
    return true;
}

const struct experiment repro_cputime = {
    .name = "cputime",
    .claim = "CPU time in ticks of the counter instead of an exact clock read at each switch: at "
             "least 41 % more transactions a second",
    .reported =
        "{\"source\": \"FreeBSD, February 2006: 5 runs a side, 6 in one, 95 %\","
        " \"tcp_stream_loopback\": {\"before\": 4178.016, \"after\": 4519.416, \"percent\": "
        "8.17134,"
        " \"percent_ci\": 1.49364},"
        " \"tcp_rr_loopback\": {\"before\": 27964.662, \"after\": 39463.23, \"percent\": 41.1182,"
        " \"percent_ci\": 2.45457},"
        " \"tcp_stream_receive_10gbe\": {\"before\": 7693.382, \"after\": 7830.482,"
        " \"percent\": 1.78205, \"percent_ci\": 0.848484},"
        " \"tcp_stream_send_10gbe\": {\"before\": 4679.212, \"after\": 4671.276, \"percent\": null,"
        " \"percent_ci\": null},"
        " \"tcp_sendfile_send_10gbe\": {\"before\": 7490.258, \"after\": 7369.944,"
        " \"percent\": -1.60627, \"percent_ci\": 0.682395},"
        " \"tcp_rr_10gbe\": {\"before\": 29827.82, \"after\": 33556.268, \"percent\": 12.4999,"
        " \"percent_ci\": 0.544562}}",
    .run = run,
};
