/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time by activity of either side, between two moments of a test. */
#include "bench.h"
#include "bench_extra.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* Whose a thread is: 0 local, 1 remote, -1 neither's. */
static int side_of(const struct cputime_row *r, const struct engine *const e[2])
{
    for (int side = 0; side < 2; side++)
        for (unsigned i = 0; e[side]->worker != NULL && i < e[side]->workers; i++)
            if (LOAD_RELAXED(&e[side]->worker[i].tid) == r->tid)
                return side;
    if (strncmp(r->name, "weir/bench-r", 12) == 0)
        return 1;
    return strncmp(r->name, "weir/bench", 10) == 0 ? 0 : -1;
}

static void add(struct cputime_row *to, const struct cputime_row *r)
{
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        to->ns[i] += r->ns[i];
    to->switches += r->switches;
    to->cpu_ns += r->cpu_ns;
    to->stolen_ns += r->stolen_ns;
    to->preempted += r->preempted;
    to->away_ns += r->away_ns;
}

void cpu_take(struct cpu_counts *out, const struct engine *const e[2])
{
    struct cputime_snapshot s;
    memset(out, 0, sizeof(*out));
    if (cputime_snapshot(&s) != 0)
        return;
    out->mode = s.mode;
    out->counter = s.counter;
    out->ticks_per_second = s.ticks_per_second;
    for (unsigned i = 0; i < s.threads; i++) {
        int side = side_of(&s.thread[i], e);
        if (side >= 0) {
            add(&out->side[side], &s.thread[i]);
            add(&out->both, &s.thread[i]);
        }
    }
    if (s.mode == CPUTIME_BINTIME) /* one account for all */
        memcpy(out->both.ns, s.total.ns, sizeof(out->both.ns));
    cputime_snapshot_free(&s);
}

void cpu_subtract(struct cpu_counts *now, const struct cpu_counts *before)
{
    cputime_row_subtract(&now->side[0], &before->side[0]);
    cputime_row_subtract(&now->side[1], &before->side[1]);
    cputime_row_subtract(&now->both, &before->both);
}

static json_t *row_json(const struct cputime_row *r)
{
    json_t *o = json_object(), *us = json_object();
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        json_object_set_new(us, cpu_activity_name[i], json_real((double)r->ns[i] / 1e3));
    json_object_set_new(o, "us", us);
    json_object_set_new(o, "sum_us", json_real((double)cputime_sum_ns(r) / 1e3));
    json_object_set_new(o, "kernel_us", json_real((double)r->cpu_ns / 1e3));
    json_object_set_new(o, "stolen_us", json_real((double)r->stolen_ns / 1e3));
    json_object_set_new(o, "away_us", json_real((double)r->away_ns / 1e3));
    json_object_set_new(o, "preempted", json_integer((json_int_t)r->preempted));
    json_object_set_new(o, "switches", json_integer((json_int_t)r->switches));
    return o;
}

json_t *cpu_json(const struct cpu_counts *c, bool far_is_here, double transactions)
{
    bool split = c->mode == CPUTIME_TICKS;
    json_t *o = json_object();
    json_object_set_new(o, "mode", json_string(split ? "ticks" : "bintime"));
    json_object_set_new(o, "ticks_per_second", number_or_null(c->ticks_per_second, split));
    json_object_set_new(o, "local", split ? row_json(&c->side[0]) : json_null());
    json_object_set_new(o, "remote", split && far_is_here ? row_json(&c->side[1]) : json_null());
    json_object_set_new(o, "all", row_json(&c->both));
    json_object_set_new(o, "switches_per_transaction",
                        number_or_null((double)c->both.switches / transactions, transactions > 0));
    return o;
}

static void print_line(const char *name, const struct cputime_row *r, double of, uint64_t ns)
{
    printf("%-14s %12.0f us", name, (double)ns / 1e3);
    if (of > 0)
        printf(" %6.2f %%", 100 * (double)ns / of);
    printf("%s", r != NULL ? "" : "\n");
}

void cpu_print(const struct cpu_counts *c, bool far_is_here, double transactions)
{
    bool split = c->mode == CPUTIME_TICKS;
    const struct cputime_row *col[2] = {split ? &c->side[0] : &c->both,
                                        split && far_is_here ? &c->side[1] : NULL};
    printf("\nCPU time by activity, kern.cputime=%s\n%-14s %23s%s\n", split ? "ticks" : "bintime",
           "", split ? "local" : "both", col[1] != NULL ? "                  remote" : "");
    for (unsigned k = 0; k < CPU_ACTIVITIES; k++) {
        print_line(cpu_activity_name[k], col[1], (double)cputime_sum_ns(col[0]), col[0]->ns[k]);
        if (col[1] != NULL)
            print_line("", NULL, (double)cputime_sum_ns(col[1]), col[1]->ns[k]);
    }
    print_line("sum", col[1], 0, cputime_sum_ns(col[0]));
    if (col[1] != NULL)
        print_line("          ", NULL, 0, cputime_sum_ns(col[1]));
    print_line("by the kernel", col[1], 0, col[0]->cpu_ns);
    if (col[1] != NULL)
        print_line("          ", NULL, 0, col[1]->cpu_ns);
    printf("Switches: %" PRIu64, c->both.switches);
    if (transactions > 0)
        printf(", %.2f a transaction", (double)c->both.switches / transactions);
    printf(". Waited for a core: %.0f us\n", (double)c->both.stolen_ns / 1e3);
}
