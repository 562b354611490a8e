/* SPDX-License-Identifier: BSD-2-Clause
 * The machine-readable snapshot of a process: copied under ownership, formatted afterwards. */
#include "snapshot.h"

#include "base/lock_prof.h"
#include "base/stack.h"
#include "buf/sockbuf.h"
#include "measure/cputime.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_var.h"
#include "weir/stack.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 4096

/* The numbers of a connection: field of struct snapshot_flow, where it is taken from. */
#define FLOW_NUMBERS(X)                                                                            \
    X(id, so->so_index)                                                                            \
    X(started_ns, tp->t_starttime)                                                                 \
    X(sent_bytes, tp->t_sndbytes)                                                                  \
    X(received_bytes, tp->t_rcvbytes)                                                              \
    X(retransmitted_bytes, tp->t_bytes_retrans)                                                    \
    X(retransmits, tp->t_sndrexmitpack)                                                            \
    X(segments_out, tp->t_segs_out)                                                                \
    X(segments_in, tp->t_segs_in)                                                                  \
    X(srtt_ns, tp->t_srtt)                                                                         \
    X(rto_ns, tp->t_rxtcur)                                                                        \
    X(cwnd, tp->snd_cwnd)                                                                          \
    X(ssthresh, tp->snd_ssthresh)                                                                  \
    X(snd_wnd, tp->snd_wnd)                                                                        \
    X(mss, tp->t_maxseg)                                                                           \
    X(inflight, tp->snd_max - tp->snd_una)                                                         \
    X(sndbuf_used, sockbuf_used(&so->so_snd))                                                      \
    X(sndbuf_limit, LOAD_RELAXED(&so->so_snd.sb_hiwat))                                            \
    X(rcvbuf_used, sockbuf_used(&so->so_rcv))                                                      \
    X(rcvbuf_limit, LOAD_RELAXED(&so->so_rcv.sb_hiwat))

struct snapshot_flow {
    struct flow flow;
    int state;
    const char *cc;
    uint64_t cpu_ticks;
#define X(field, from) uint64_t field;
    FLOW_NUMBERS(X)
#undef X
};

struct snapshot_stack {
    char name[sizeof(((struct weir_stack *)0)->name)];
    uint64_t at_ns;
    uint64_t counter[COUNTER_COUNT];
    struct snapshot_flow *flow;
    size_t count, room, all;
};

struct snapshot {
    struct snapshot_stack *stack;
    size_t count, flows;
};

/* ---- taking ---- */

static void take_flow(struct socket *so, void *ctx)
{
    struct snapshot_stack *st = ctx;
    const struct tcpcb *tp = so->so_type == SOCK_STREAM ? so->so_pcb : NULL;
    if (tp == NULL || tp->t_state == TCPS_LISTEN || tp->t_state == TCPS_CLOSED)
        return;
    st->all++;
    if (st->count == st->room)
        return; /* more than there is room for */
    struct snapshot_flow *f = &st->flow[st->count++];
    f->flow = tp->t_flow;
    f->state = tp->t_state;
    f->cc = tcp_cc_name(tp->t_cc);
    f->cpu_ticks = tp->t_cpu_in + tp->t_cpu_out + LOAD_RELAXED(&so->so_cpu_copy);
#define X(field, from) f->field = (from);
    FLOW_NUMBERS(X)
#undef X
}

static int begin_stack(struct snapshot **snap, struct weir_stack *s)
{
    struct snapshot *p = *snap != NULL ? *snap : calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    *snap = p;
    struct snapshot_stack *bigger = reallocarray(p->stack, p->count + 1, sizeof(*bigger));
    if (bigger == NULL)
        return -ENOMEM;
    p->stack = bigger;
    struct snapshot_stack *st = &p->stack[p->count];
    *st = (struct snapshot_stack){.at_ns = s->now};
    st->room = MIN((size_t)s->tcp->pcb_count, SNAPSHOT_MAX_FLOWS - p->flows);
    st->flow = calloc(st->room + 1, sizeof(*st->flow));
    if (st->flow == NULL)
        return -ENOMEM;
    p->count++;
    memcpy(st->name, s->name, sizeof(st->name));
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        st->counter[i] = LOAD_RELAXED(&s->counters.v[i]);
    return 0;
}

int snapshot_stack(struct snapshot **snap, struct weir_stack *s, uint32_t *cursor)
{
    int error = *cursor == 0 ? begin_stack(snap, s) : 0;
    if (error != 0)
        return error;
    struct snapshot_stack *st = &(*snap)->stack[(*snap)->count - 1];
    size_t before = st->count;
    st->at_ns = s->now;
    tcp_cputime_settle(s);
    *cursor = so_foreach_slice(s, *cursor, SNAPSHOT_SLICE, take_flow, st);
    (*snap)->flows += st->count - before;
    return 0;
}

/* ---- writing ---- */

static void put_text(FILE *out, const char *text)
{
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *p = copy; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~' || *p == '"' || *p == '\\')
            *p = '?';
    fprintf(out, "\"%s\"", copy);
}

static void put_stack(FILE *out, const struct snapshot_stack *st)
{
    fputs("{\"name\":", out);
    put_text(out, st->name);
    fprintf(out, ",\"flows\":%zu,\"counters\":{", st->all);
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        fprintf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", counter_table[i].name, st->counter[i]);
    fputs("}}", out);
}

static void put_flow(FILE *out, const struct snapshot_stack *st, const struct snapshot_flow *f,
                     bool cpu_known)
{
    char local[64], foreign[64];
    fputc('[', out);
    put_text(out, st->name);
    fprintf(out, ",%" PRIu64 ",\"%s\",%u,\"%s\",%u,\"%s\",\"%s\"", st->at_ns,
            ipaddr_format(&f->flow.laddr, local, sizeof(local)), f->flow.lport,
            ipaddr_format(&f->flow.faddr, foreign, sizeof(foreign)), f->flow.fport,
            tcp_state_name(f->state), f->cc);
#define X(field, from) fprintf(out, ",%" PRIu64, f->field);
    FLOW_NUMBERS(X)
#undef X
    if (cpu_known)
        fprintf(out, ",%" PRIu64 "]", cputime_ticks_to_ns(f->cpu_ticks));
    else
        fputs(",null]", out);
}

/* cpu_ns: what its input, output and copies took on a core (kern.cputime=ticks). */
static void put_flows(FILE *out, const struct snapshot *p, bool cpu_known)
{
    const char *comma = "";
    fputs("{\"columns\":[\"stack\",\"at_ns\",\"local\",\"local_port\",\"foreign\","
          "\"foreign_port\",\"state\",\"cc\"",
          out);
#define X(field, from) fputs(",\"" #field "\"", out);
    FLOW_NUMBERS(X)
#undef X
    fputs(",\"cpu_ns\"],\"rows\":[", out);
    for (size_t i = 0; i < p->count; i++) {
        for (size_t k = 0; k < p->stack[i].count; k++, comma = ",\n") {
            fputs(comma, out);
            put_flow(out, &p->stack[i], &p->stack[i].flow[k], cpu_known);
        }
    }
    fputs("]}", out);
}

/* The first line of a file of a thread, "" when there is none. */
static void read_line(const char *tid, const char *name, char *buf, size_t size)
{
    char path[320];
    snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, name);
    FILE *f = fopen(path, "re");
    buf[0] = '\0';
    if (f != NULL && fgets(buf, (int)size, f) == NULL)
        buf[0] = '\0';
    if (f != NULL)
        fclose(f);
    buf[strcspn(buf, "\n")] = '\0';
}

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void put_thread(FILE *out, const char *tid_text, const struct cputime_snapshot *cpu)
{
    char name[64], stat[128];
    uint64_t run_ns, wait_ns;
    long tid = strtol(tid_text, NULL, 10);
    const struct cputime_row *row = NULL;
    read_line(tid_text, "comm", name, sizeof(name));
    read_line(tid_text, "schedstat", stat, sizeof(stat));
    fprintf(out, "[%ld,%" PRIu64 ",", tid, clock_ns());
    put_text(out, name);
    if (sscanf(stat, "%" SCNu64 " %" SCNu64, &run_ns, &wait_ns) == 2)
        fprintf(out, ",%" PRIu64 ",%" PRIu64, run_ns, wait_ns);
    else
        fputs(",null,null", out);
    for (unsigned i = 0; i < cpu->threads && row == NULL; i++)
        if (cpu->thread[i].tid == tid)
            row = &cpu->thread[i];
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++) {
        if (row != NULL)
            fprintf(out, ",%" PRIu64, row->ns[i]);
        else
            fputs(",null", out);
    }
    fputc(']', out);
}

/* cpu_ns: on a core; wait_ns: ready to run, without one (the kernel's schedstat). Then the accounts
 * by activity, which each thread has with kern.cputime=ticks. */
static void put_threads(FILE *out, const struct cputime_snapshot *cpu)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    unsigned count = 0;
    fputs("{\"columns\":[\"tid\",\"at_ns\",\"name\",\"cpu_ns\",\"wait_ns\"", out);
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        fprintf(out, ",\"%s_ns\"", cpu_activity_name[i]);
    fputs("],\"rows\":[", out);
    while (d != NULL && count < MAX_THREADS && (e = readdir(d)) != NULL) {
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        fputs(count++ > 0 ? ",\n" : "", out);
        put_thread(out, e->d_name, cpu);
    }
    if (d != NULL)
        closedir(d);
    fputs("]}", out);
}

/* What the lock profile has for a class: acquisitions, times held and waited for; else null. */
static void put_profile(FILE *out, const struct lock_class *class, const struct lock_prof_row *row,
                        size_t rows)
{
    double tick_ns = lock_prof_tick_ns(), count = 0, held = 0, waited = 0;
    bool known = false;
    for (size_t i = 0; i < rows; i++) {
        const uint64_t *v = row[i].v;
        if (row[i].class != class)
            continue;
        known = true;
        count += (double)v[LOCK_STAT_COUNT];
        held += (double)v[LOCK_STAT_HOLD] * tick_ns;
        waited += (double)(v[LOCK_STAT_SPIN_TIME] + v[LOCK_STAT_BLOCK_TIME]) * tick_ns;
    }
    if (known)
        fprintf(out, ",%.0f,%.0f,%.0f]", count, held, waited);
    else
        fputs(",null,null,null]", out);
}

/* Classes come in front of the list, so the place from its end is a name that stays. The last three
 * columns are the lock profile's (debug.lock.prof.enable). */
static void put_locks(FILE *out)
{
    struct lock_prof_row *row = calloc(LOCK_PROF_SITES, sizeof(*row));
    size_t rows = row != NULL ? lock_prof_read(row, LOCK_PROF_SITES) : 0;
    uint64_t now = clock_ns();
    unsigned id = 0;
    const char *comma = "";
    for (const struct lock_class *c = lock_class_first(); c != NULL; c = c->next)
        id++;
    fputs("{\"columns\":[\"id\",\"at_ns\",\"name\",\"contended\",\"spins\",\"blocks\","
          "\"acquired\",\"held_ns\",\"waited_ns\"],\"rows\":[",
          out);
    for (const struct lock_class *c = lock_class_first(); c != NULL && id > 0; c = c->next) {
        fprintf(out, "%s[%u,%" PRIu64 ",", comma, id--, now);
        put_text(out, c->name);
        fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, LOAD_RELAXED(&c->contended),
                LOAD_RELAXED(&c->spins), LOAD_RELAXED(&c->blocks));
        put_profile(out, c, row, rows);
        comma = ",\n";
    }
    fputs("]}", out);
    free(row);
}

void snapshot_finish(struct snapshot *p, FILE *out)
{
    struct cputime_snapshot cpu = {0};
    int64_t mbufs, bytes;
    if (cputime_snapshot(&cpu) != 0)
        cpu = (struct cputime_snapshot){0};
    bool cpu_known = cpu.mode == CPUTIME_TICKS;
    if (!cpu_known)
        cpu.threads = 0;
    weir_buffer_usage(&mbufs, &bytes);
    fprintf(out,
            "{\"version\":1,\"pid\":%d,\"at_ns\":%" PRIu64 ",\"mbufs\":%" PRId64
            ",\"mbuf_bytes\":%" PRId64 ",\n\"stacks\":[",
            (int)getpid(), p->stack[0].at_ns, mbufs, bytes);
    for (size_t i = 0; i < p->count; i++) {
        fputs(i > 0 ? ",\n" : "", out);
        put_stack(out, &p->stack[i]);
    }
    fputs("],\n\"flows\":", out);
    put_flows(out, p, cpu_known);
    fputs(",\n\"threads\":", out);
    put_threads(out, &cpu);
    fputs(",\n\"locks\":", out);
    put_locks(out);
    fputs("}\n", out);
    for (size_t i = 0; i < p->count; i++)
        free(p->stack[i].flow);
    free(p->stack);
    free(p);
    cputime_snapshot_free(&cpu);
}
