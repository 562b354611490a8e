/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time by activity, as sysctls and as the `cputime` command: threads, and what each connection
 * cost. */
#include "inspect.h"

#include "base/stack.h"
#include "measure/cputime.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"

#include <inttypes.h>
#include <jansson.h>

/* ---- sysctl ---- */

static void knob_changed(struct weir_stack *s)
{
    (void)s;
    cputime_apply();
}

static int show_switches(struct weir_stack *s, const char *write, char *out, size_t size)
{
    struct cputime_row total;

    (void)s;
    if (write)
        return -EPERM;
    cputime_totals(&total);
    snprintf(out, size, "%" PRIu64, total.switches);
    return 0;
}

static int show_us(struct weir_stack *s, const char *write, char *out, size_t size)
{
    struct cputime_row total;
    size_t at = 0;

    (void)s;
    if (write)
        return -EPERM;
    cputime_totals(&total);
    for (unsigned i = 0; i < CPU_ACTIVITIES && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s=%" PRIu64, i ? " " : "",
                               cpu_activity_name[i], total.ns[i] / NS_PER_US);
    return at < size ? 0 : -ENOSPC;
}

static int show_source(struct weir_stack *s, const char *write, char *out, size_t size)
{
    (void)s;
    if (write)
        return -EPERM;
    snprintf(out, size, "%s", cputime_has_counter() ? "counter" : "clock");
    return 0;
}

static int show_rate(struct weir_stack *s, const char *write, char *out, size_t size)
{
    (void)s;
    if (write)
        return -EPERM;
    snprintf(out, size, "%.0f", cputime_ticks_per_second());
    return 0;
}

void inspect_cputime_attach(struct weir_stack *s)
{
    sysctl_set_changed(s, KNOB_kern_cputime, knob_changed);
    sysctl_set_handler(s, KNOB_kern_cputime_switches, show_switches);
    sysctl_set_handler(s, KNOB_kern_cputime_us, show_us);
    sysctl_set_handler(s, KNOB_kern_cputime_source, show_source);
    sysctl_set_handler(s, KNOB_kern_cputime_tick_rate, show_rate);
}

/* ---- connections ---- */

struct flow_cost {
    double in_us, out_us, copy_us, mb;
    char local[80], foreign[80];
};

/* False: it has not moved or cost anything. By the owner, after tcp_cputime_settle. */
static bool cost_of(const struct tcpcb *tp, struct flow_cost *c)
{
    uint64_t copy = LOAD_RELAXED(&tp->t_so->so_cpu_copy);
    const struct flow *f = &tp->t_flow;
    char a[64];

    if (tp->t_cpu_in + tp->t_cpu_out + copy == 0)
        return false;
    c->in_us = (double)cputime_ticks_to_ns(tp->t_cpu_in) / 1e3;
    c->out_us = (double)cputime_ticks_to_ns(tp->t_cpu_out) / 1e3;
    c->copy_us = (double)cputime_ticks_to_ns(copy) / 1e3;
    c->mb = (double)(tp->t_sndbytes + tp->t_rcvbytes) / 1e6;
    snprintf(c->local, sizeof(c->local), "%s.%u", ipaddr_format(&f->laddr, a, sizeof(a)), f->lport);
    snprintf(c->foreign, sizeof(c->foreign), "%s.%u", ipaddr_format(&f->faddr, a, sizeof(a)),
             f->fport);
    return true;
}

static void print_flow(struct tcpcb *tp, void *ctx)
{
    struct inspect_run *r = ctx;
    struct flow_cost c;
    double all;

    if (!cost_of(tp, &c) || ftello(r->out) > INSPECT_MAX_OUTPUT)
        return;
    all = c.in_us + c.out_us + c.copy_us;
    fprintf(r->out, "%-22s %-22s %12.1f %12.0f %12.0f %12.0f", c.local, c.foreign, c.mb, c.in_us,
            c.out_us, c.copy_us);
    if (c.mb > 0)
        fprintf(r->out, " %10.2f\n", all / c.mb);
    else
        fprintf(r->out, " %10s\n", "-");
}

static void flow_json(struct tcpcb *tp, void *ctx)
{
    struct inspect_run *r = ctx;
    struct flow_cost c;

    if (!cost_of(tp, &c))
        return;
    double all = c.in_us + c.out_us + c.copy_us;
    json_array_append_new(json_object_get(r->json, "connections"),
                          json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:o}", "stack",
                                    tp->t_stack->name, "local", c.local, "foreign", c.foreign, "mb",
                                    c.mb, "input_us", c.in_us, "output_us", c.out_us, "copy_us",
                                    c.copy_us, "us_per_mb",
                                    c.mb > 0 ? json_real(all / c.mb) : json_null()));
}

/* ---- threads ---- */

static json_t *row_json(const struct cputime_row *row)
{
    json_t *us = json_object();

    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        json_object_set_new(us, cpu_activity_name[i], json_real((double)row->ns[i] / 1e3));
    return json_pack("{s:s, s:i, s:o, s:I, s:f, s:f, s:I, s:f}", "name", row->name, "tid",
                     (int)row->tid, "us", us, "switches", (json_int_t)row->switches, "cpu_us",
                     (double)row->cpu_ns / 1e3, "stolen_us", (double)row->stolen_ns / 1e3,
                     "preempted", (json_int_t)row->preempted, "away_us",
                     (double)row->away_ns / 1e3);
}

static const char *mode_name(enum cputime_mode m)
{
    return m == CPUTIME_TICKS ? "ticks" : m == CPUTIME_BINTIME ? "bintime" : "off";
}

static void print_threads(FILE *f, const struct cputime_snapshot *s)
{
    fprintf(f, "kern.cputime=%s", mode_name(s->mode));
    if (s->mode == CPUTIME_TICKS)
        fprintf(f, ", ticks of the %s, %.0f a second", s->counter ? "cycle counter" : "clock",
                s->ticks_per_second);
    fprintf(f, "\nCPU time, us\n%-16s", "");
    for (unsigned i = 0; i < s->threads && i < INSPECT_CPU_COLUMNS; i++)
        fprintf(f, " %15s", s->thread[i].name);
    fprintf(f, " %15s\n", "total");
    for (unsigned k = 0; k < CPU_ACTIVITIES + 5; k++) {
        static const char *const more[] = {"sum", "by the kernel", "not run, us", "stolen, us",
                                           "switches"};
        fprintf(f, "%-16s", k < CPU_ACTIVITIES ? cpu_activity_name[k] : more[k - CPU_ACTIVITIES]);
        for (unsigned i = 0; i <= s->threads; i++) {
            const struct cputime_row *r = i < s->threads ? &s->thread[i] : &s->total;
            uint64_t more_v[] = {cputime_sum_ns(r) / 1000, r->cpu_ns / 1000, r->away_ns / 1000,
                                 r->stolen_ns / 1000, r->switches};
            if (i >= INSPECT_CPU_COLUMNS && i < s->threads)
                continue;
            fprintf(f, " %15" PRIu64,
                    k < CPU_ACTIVITIES ? r->ns[k] / 1000 : more_v[k - CPU_ACTIVITIES]);
        }
        fprintf(f, "\n");
    }
    if (s->threads > INSPECT_CPU_COLUMNS)
        fprintf(f, "(%u more threads are in the total)\n", s->threads - INSPECT_CPU_COLUMNS);
}

static int show_threads(struct inspect_run *r)
{
    struct cputime_snapshot snap;

    if (cputime_snapshot(&snap)) {
        fputs("cputime: out of memory\n", r->err);
        return 1;
    }
    if (r->args->json) {
        json_t *list = json_array();
        for (unsigned i = 0; i < snap.threads; i++)
            json_array_append_new(list, row_json(&snap.thread[i]));
        r->json =
            json_pack("{s:s, s:s, s:f, s:o, s:o, s:[]}", "mode", mode_name(snap.mode), "source",
                      snap.counter ? "counter" : "clock", "ticks_per_second", snap.ticks_per_second,
                      "total", row_json(&snap.total), "threads", list, "connections");
    } else {
        print_threads(r->out, &snap);
    }
    cputime_snapshot_free(&snap);
    return r->args->json && !r->json;
}

int inspect_cputime(struct inspect_run *r, struct weir_stack *s)
{
    if (r->stacks_done == 0 && show_threads(r))
        return 1;
    tcp_cputime_settle(s);
    if (r->args->json) {
        tcp_foreach(s, flow_json, r);
        return 0;
    }
    fprintf(r->out, "\nConnections of %s\n%-22s %-22s %12s %12s %12s %12s %10s\n", s->name, "Local",
            "Foreign", "MB", "input us", "output us", "copy us", "us/MB");
    tcp_foreach(s, print_flow, r);
    return 0;
}
