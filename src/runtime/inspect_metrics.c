/* SPDX-License-Identifier: BSD-2-Clause
 * All counters and gauges for Prometheus: OpenMetrics 1.0, or the older text format. A family's
 * samples must stand together, so stacks are noted first and written at the end. */
#include "inspect.h"

#include "base/lock.h"
#include "base/stack.h"
#include "buf/sockbuf.h"
#include "measure/cputime.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"
#include "weir/stack.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

struct metrics_stack {
    char name[sizeof(((struct weir_stack *)0)->name)];
    uint64_t counter[COUNTER_COUNT];
    uint64_t state[TCPS_COUNT];
    uint64_t sockets, sndbuf, rcvbuf, contended;
};

struct metrics {
    struct metrics_stack *stack;
    size_t count;
};

/* ---- noting ---- */

static void note_socket(struct socket *so, void *ctx)
{
    struct metrics_stack *m = ctx;
    m->sockets++;
    if (so->so_type == SOCK_STREAM && so->so_pcb != NULL) {
        const struct tcpcb *tp = so_tcpcb(so);
        m->state[tp->t_state]++;
        if (tp->t_state == TCPS_LISTEN)
            return;
    }
    m->sndbuf += sockbuf_used(&so->so_snd);
    m->rcvbuf += sockbuf_used(&so->so_rcv);
}

int inspect_metrics(struct inspect_run *r, struct weir_stack *s)
{
    struct metrics *p = r->metrics;
    if (p == NULL)
        p = r->metrics = calloc(1, sizeof(*p));
    if (p == NULL)
        return 1;
    struct metrics_stack *m;
    if (r->cursor == 0) {
        m = reallocarray(p->stack, p->count + 1, sizeof(*m));
        if (m == NULL)
            return 1;
        p->stack = m;
        m += p->count++;
        *m = (struct metrics_stack){0};
        memcpy(m->name, s->name, sizeof(m->name));
    }
    m = &p->stack[p->count - 1];
    r->cursor = so_foreach_slice(s, r->cursor, INSPECT_SLICE, note_socket, m);
    if (r->cursor != 0)
        return 0;
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        m->counter[i] = LOAD_RELAXED(&s->counters.v[i]);
    m->state[TCPS_TIME_WAIT] += s->tcp->timewaits.records;
    m->contended = LOAD_RELAXED(&s->owner.contended);
    return 0;
}

/* ---- writing ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* The head of a family. In OpenMetrics a counter's family has the name without _total. */
static void family(struct inspect_run *r, const char *name, bool counter, const char *help)
{
    bool modern = !r->args->text_format;
    const char *total = counter && !modern ? "_total" : "";
    fprintf(r->out, "# TYPE %s%s %s\n", name, total, counter ? "counter" : "gauge");
    if (modern && ends_with(name, "_bytes"))
        fprintf(r->out, "# UNIT %s bytes\n", name);
    if (modern && ends_with(name, "_seconds"))
        fprintf(r->out, "# UNIT %s seconds\n", name);
    fprintf(r->out, "# HELP %s%s ", name, total);
    for (const char *p = help; *p != '\0'; p++) {
        if (*p == '\\' || *p == '\n' || (*p == '"' && modern))
            fputc('\\', r->out);
        fputc(*p == '\n' ? 'n' : *p, r->out);
    }
    fputc('\n', r->out);
}

static void label(FILE *out, const char *name, const char *value, char before)
{
    fprintf(out, "%c%s=\"", before, name);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\\' || *p == '"' || *p == '\n')
            fputc('\\', out);
        fputc(*p == '\n' ? 'n' : (unsigned char)*p < 0x80 ? *p : '?', out);
    }
    fputc('"', out);
}

/* "tcp.rx_bytes" is weir_tcp_rx_bytes. */
static void metric_name(char *buf, size_t size, const char *name)
{
    snprintf(buf, size, "weir_%s", name);
    for (char *p = buf; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p))
            *p = '_';
}

static void write_counters(struct inspect_run *r, const struct metrics *p)
{
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        char name[128];
        metric_name(name, sizeof(name), counter_table[i].name);
        family(r, name, true, counter_table[i].meaning);
        for (size_t k = 0; k < p->count; k++) {
            fprintf(r->out, "%s_total", name);
            label(r->out, "stack", p->stack[k].name, '{');
            fprintf(r->out, "} %" PRIu64 "\n", p->stack[k].counter[i]);
        }
    }
}

static void write_states(struct inspect_run *r, const struct metrics *p)
{
    family(r, "weir_connections", false, "TCP connections by state");
    for (size_t k = 0; k < p->count; k++) {
        for (int st = 0; st < TCPS_COUNT; st++) {
            fputs("weir_connections", r->out);
            label(r->out, "stack", p->stack[k].name, '{');
            label(r->out, "state", tcp_state_name(st), ',');
            fprintf(r->out, "} %" PRIu64 "\n", p->stack[k].state[st]);
        }
    }
}

static void write_stacks(struct inspect_run *r, const struct metrics *p)
{
    static const struct {
        const char *name, *help;
        bool counter;
        size_t at;
    } rows[] = {
        {"weir_sockets", "sockets", false, offsetof(struct metrics_stack, sockets)},
        {"weir_send_buffer_bytes", "bytes in send buffers", false,
         offsetof(struct metrics_stack, sndbuf)},
        {"weir_receive_buffer_bytes", "bytes in receive buffers", false,
         offsetof(struct metrics_stack, rcvbuf)},
        {"weir_owner_contended", "attempts to own the stack that found it owned", true,
         offsetof(struct metrics_stack, contended)},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        family(r, rows[i].name, rows[i].counter, rows[i].help);
        for (size_t k = 0; k < p->count; k++) {
            uint64_t v;
            memcpy(&v, (const char *)&p->stack[k] + rows[i].at, sizeof(v));
            fprintf(r->out, "%s%s", rows[i].name, rows[i].counter ? "_total" : "");
            label(r->out, "stack", p->stack[k].name, '{');
            fprintf(r->out, "} %" PRIu64 "\n", v);
        }
    }
}

/* Classes of one name (one for each place that declares it) are one row. */
static void write_locks(struct inspect_run *r)
{
    family(r, "weir_lock_contended", true, "acquisitions of a lock that had to wait, by class");
    for (const struct lock_class *c = lock_class_first(); c != NULL; c = c->next) {
        bool first = true;
        uint64_t sum = 0;
        for (const struct lock_class *o = lock_class_first(); o != c; o = o->next)
            first &= strcmp(o->name, c->name) != 0;
        for (const struct lock_class *o = c; first && o != NULL; o = o->next)
            if (strcmp(o->name, c->name) == 0)
                sum += LOAD_RELAXED(&o->contended);
        if (!first)
            continue;
        fputs("weir_lock_contended_total", r->out);
        label(r->out, "class", c->name, '{');
        fprintf(r->out, "} %" PRIu64 "\n", sum);
    }
}

static void write_cpu(struct inspect_run *r)
{
    struct cputime_snapshot cpu = {0};
    family(r, "weir_cpu_seconds", true,
           "CPU time of threads by activity, while kern.cputime accounts for it");
    if (cputime_snapshot(&cpu) != 0)
        return;
    for (unsigned a = 0; a < CPU_ACTIVITIES; a++) {
        uint64_t ns = cpu.total.ns[a];
        fputs("weir_cpu_seconds_total", r->out);
        label(r->out, "activity", cpu_activity_name[a], '{');
        fprintf(r->out, "} %" PRIu64 ".%09u\n", ns / NS_PER_S, (unsigned)(ns % NS_PER_S));
    }
    cputime_snapshot_free(&cpu);
}

static void gauge(struct inspect_run *r, const char *name, const char *help, int64_t v)
{
    family(r, name, false, help);
    fprintf(r->out, "%s %" PRId64 "\n", name, v);
}

void inspect_metrics_finish(struct inspect_run *r)
{
    struct metrics *p = r->metrics;
    int64_t mbufs, bytes;
    r->metrics = NULL;
    if (p == NULL)
        return;
    weir_buffer_usage(&mbufs, &bytes);
    write_counters(r, p);
    write_states(r, p);
    write_stacks(r, p);
    gauge(r, "weir_mbufs", "packet buffers in use", mbufs);
    gauge(r, "weir_mbuf_bytes", "packet memory in use", bytes);
    write_locks(r);
    write_cpu(r);
    if (!r->args->text_format)
        fputs("# EOF\n", r->out);
    free(p->stack);
    free(p);
}
