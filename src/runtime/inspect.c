/* SPDX-License-Identifier: BSD-2-Clause
 * sysctl, netstat and tcpdrop on one stack, in FreeBSD's formats. */
#include "inspect.h"

#include "base/stack.h"
#include "buf/sockbuf.h"
#include "snapshot.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"
#include "weir/stack.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <strings.h>

#define VALUE_MAX 65536
#define INSPECT_MAX_ROWS 50000 /* of JSON */

/* ---- sysctl ---- */

/* Above the first line of a stack, where several answer. */
static void print_heading(struct inspect_run *r, const struct weir_stack *s)
{
    if (r->several && !r->headed)
        fprintf(r->out, "%sstack %s:\n", ftello(r->out) > 0 ? "\n" : "", s->name);
    r->headed = true;
}

static void print_knob(struct inspect_run *r, const struct weir_stack *s, const char *name,
                       const char *value)
{
    const struct inspect_args *a = r->args;
    if (!a->values_only)
        print_heading(r, s);
    if (a->names_only)
        fprintf(r->out, "%s\n", name);
    else if (a->values_only)
        fprintf(r->out, "%s\n", value);
    else
        fprintf(r->out, "%s: %s\n", name, value);
}

static int sysctl_show(struct inspect_run *r, struct weir_stack *s, int id)
{
    const struct knob_info *k = &knob_table[id];
    char value[VALUE_MAX];
    if (r->stacks_done > 0 && k->scope == KNOB_SCOPE_PROCESS)
        return 0; /* one value for the whole process: shown once */
    if (r->args->describe) {
        print_knob(r, s, k->name, k->doc);
        return 0;
    }
    int e = sysctl_get(s, k->name, value, sizeof(value));
    if (e != 0) {
        if (r->args->all)
            return 0; /* nobody serves it in this process */
        fprintf(r->err, "sysctl: %s: %s\n", k->name, strerror(-e));
        return 1;
    }
    print_knob(r, s, k->name, value);
    return 0;
}

static const char *sysctl_reason(int error)
{
    switch (error) {
    case -ENOENT:
        return "unknown oid";
    case -EPERM:
        return "oid is read only";
    case -EINVAL:
        return "invalid value";
    case -ERANGE:
        return "value out of range";
    default:
        return strerror(-error);
    }
}

static int sysctl_assign(struct inspect_run *r, struct weir_stack *s, const char *name,
                         const char *value)
{
    char old[VALUE_MAX] = "", now[VALUE_MAX] = "";
    int id = sysctl_find(name);
    if (r->stacks_done > 0 && id >= 0 && knob_table[id].scope == KNOB_SCOPE_PROCESS)
        return 0; /* set already, by the first stack */
    int had = sysctl_get(s, name, old, sizeof(old));
    int e = sysctl_set(s, name, value);
    if (e != 0) {
        fprintf(r->err, "sysctl: %s '%s=%s'\n", sysctl_reason(e), name, value);
        return 1;
    }
    if (sysctl_get(s, name, now, sizeof(now)) != 0)
        snprintf(now, sizeof(now), "%s", value);
    if (!r->args->values_only)
        print_heading(r, s);
    if (r->args->names_only)
        fprintf(r->out, "%s\n", name);
    else if (r->args->values_only)
        fprintf(r->out, "%s -> %s\n", had == 0 ? old : "", now);
    else
        fprintf(r->out, "%s: %s -> %s\n", name, had == 0 ? old : "", now);
    return 0;
}

/* A name, or the root of a subtree ("net.inet.tcp"). */
static int sysctl_name(struct inspect_run *r, struct weir_stack *s, const char *arg)
{
    const char *equals = strchr(arg, '=');
    char name[256];
    size_t len = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    int id = -1;
    if (len < sizeof(name)) {
        memcpy(name, arg, len);
        name[len] = '\0';
        id = sysctl_find(name);
    }
    if (id >= 0)
        return equals != NULL ? sysctl_assign(r, s, name, equals + 1) : sysctl_show(r, s, id);
    unsigned found = 0;
    int status = 0;
    for (int i = 0; equals == NULL && len < sizeof(name) && i < KNOB_COUNT; i++) {
        const char *n = knob_table[i].name;
        if (strncmp(n, name, len) == 0 && n[len] == '.') {
            found++;
            status |= sysctl_show(r, s, i);
        }
    }
    if (found > 0)
        return status;
    if (r->args->ignore_unknown)
        return 0;
    fprintf(r->err, "sysctl: unknown oid '%.*s'\n", (int)MIN(len, sizeof(name)), arg);
    return 1;
}

static int run_sysctl(struct inspect_run *r, struct weir_stack *s)
{
    const struct inspect_args *a = r->args;
    int status = 0;
    for (int i = 0; a->all && i < KNOB_COUNT; i++)
        status |= sysctl_show(r, s, i);
    for (unsigned i = 0; i < a->names; i++)
        status |= sysctl_name(r, s, a->name[i]);
    return status;
}

/* ---- netstat ---- */

struct row {
    const char *proto;
    uint32_t recvq, sendq;
    const struct ipaddr *laddr, *faddr;
    uint16_t lport, fport;
    const char *state;
    int state_id;           /* TCPS_*; -1: UDP */
    const struct tcpcb *tp; /* NULL: no more is known */
    const struct socket *so;
};

struct listing {
    struct inspect_run *r;
    struct weir_stack *s;
    bool cut;
};

/* "10.0.0.1.80", "*.80", "*.*" */
static void format_endpoint(char *buf, size_t size, const struct ipaddr *a, uint16_t port)
{
    char host[64] = "*";
    if (!ipaddr_is_any(a))
        ipaddr_format(a, host, sizeof(host));
    if (port != 0)
        snprintf(buf, size, "%s.%u", host, port);
    else
        snprintf(buf, size, "%s.*", host);
}

static void add_row_json(struct listing *l, const struct row *row)
{
    char local[64], foreign[64];
    json_t *o =
        json_pack("{s:s, s:s, s:i, s:i, s:s, s:i, s:s, s:i, s:s}", "stack", l->s->name, "proto",
                  row->proto, "recvq", (int)row->recvq, "sendq", (int)row->sendq, "local",
                  ipaddr_format(row->laddr, local, sizeof(local)), "local_port", row->lport,
                  "foreign", ipaddr_format(row->faddr, foreign, sizeof(foreign)), "foreign_port",
                  row->fport, "state", row->state);
    if (l->r->args->detail && row->tp != NULL)
        inspect_detail_json(o, row->tp, row->so);
    json_array_append_new(l->r->json, o);
    if (json_array_size(l->r->json) >= INSPECT_MAX_ROWS)
        l->cut = true;
}

static bool row_wanted(const struct inspect_args *a, const struct row *row)
{
    return (!a->have_state || row->state_id == a->state) &&
           (a->port == 0 || row->lport == a->port || row->fport == a->port);
}

static void print_row(struct listing *l, const struct row *row)
{
    char local[80], foreign[80];
    if (!row_wanted(l->r->args, row))
        return;
    if (l->r->args->json) {
        if (!l->cut)
            add_row_json(l, row);
        return;
    }
    if (ftello(l->r->out) > INSPECT_MAX_OUTPUT) {
        l->cut = true;
        return;
    }
    format_endpoint(local, sizeof(local), row->laddr, row->lport);
    format_endpoint(foreign, sizeof(foreign), row->faddr, row->fport);
    fprintf(l->r->out, "%-5s %6" PRIu32 " %6" PRIu32 " %-22s %-22s %-11s %s\n", row->proto,
            row->recvq, row->sendq, local, foreign, row->state, l->s->name);
    if (l->r->args->detail && row->tp != NULL)
        inspect_detail_text(l->r->out, row->tp, row->so);
}

static const char *protocol_name(const struct socket *so, const struct ipaddr *l,
                                 const struct ipaddr *f, bool v6only)
{
    bool tcp = so->so_type == SOCK_STREAM;
    int family = !ipaddr_is_any(f) ? f->family : !ipaddr_is_any(l) ? l->family : 0;
    if (family == 0 && so->so_domain == AF_INET6 && !v6only)
        return tcp ? "tcp46" : "udp46";
    if (family == 0)
        family = so->so_domain;
    if (family == AF_INET6)
        return tcp ? "tcp6" : "udp6";
    return tcp ? "tcp4" : "udp4";
}

static bool family_wanted(const struct inspect_args *a, const char *proto)
{
    return a->family == 0 || strchr(proto, a->family == AF_INET ? '4' : '6') != NULL;
}

static void list_socket(struct socket *so, void *ctx)
{
    struct listing *l = ctx;
    const struct inspect_args *a = l->r->args;
    bool tcp = so->so_type == SOCK_STREAM, v6only = false;
    if (a->group != NULL && strcmp(a->group, tcp ? "tcp" : "udp") != 0)
        return;
    struct ipaddr laddr = {0}, faddr = {0};
    struct row row = {.laddr = &laddr,
                      .faddr = &faddr,
                      .state = tcp ? tcp_state_name(TCPS_CLOSED) : "",
                      .state_id = tcp ? TCPS_CLOSED : -1,
                      .so = so};
    int state = TCPS_CLOSED;
    if (tcp && so->so_pcb != NULL) {
        const struct tcpcb *tp = so_tcpcb(so);
        state = tp->t_state;
        row.state = tcp_state_name(state);
        row.state_id = state;
        row.tp = tp;
        v6only = tp->t_v6only;
        laddr = tp->t_flow.laddr, faddr = tp->t_flow.faddr;
        row.lport = tp->t_flow.lport, row.fport = tp->t_flow.fport;
    } else if (so->so_pcb != NULL) {
        if (so->so_proto->sockname(so, &laddr, &row.lport) != 0)
            laddr = (struct ipaddr){0}, row.lport = 0;
        if (so->so_proto->peername(so, &faddr, &row.fport) != 0)
            faddr = (struct ipaddr){0}, row.fport = 0;
    }
    if (state == TCPS_LISTEN) {
        if (!a->all)
            return;
    } else {
        row.recvq = sockbuf_used(&so->so_rcv);
        row.sendq = sockbuf_used(&so->so_snd);
    }
    row.proto = protocol_name(so, &laddr, &faddr, v6only);
    if (family_wanted(a, row.proto))
        print_row(l, &row);
}

static void list_flow(struct listing *l, const struct flow *f, int state)
{
    struct row row = {.proto = f->laddr.family == AF_INET6 ? "tcp6" : "tcp4",
                      .laddr = &f->laddr,
                      .faddr = &f->faddr,
                      .lport = f->lport,
                      .fport = f->fport,
                      .state = tcp_state_name(state),
                      .state_id = state};
    if (family_wanted(l->r->args, row.proto))
        print_row(l, &row);
}

static void list_syncache(const struct flow *f, struct tcpcb *listener, void *ctx)
{
    (void)listener;
    list_flow(ctx, f, TCPS_SYN_RECEIVED);
}

/* What is left of a connection has no socket, and no data. */
static void list_timewait(const struct tcptw *tw, void *ctx)
{
    list_flow(ctx, &tw->flow, TCPS_TIME_WAIT);
}

static void netstat_sockets(struct inspect_run *r, struct weir_stack *s)
{
    struct listing l = {.r = r, .s = s};
    if (r->args->json && r->json == NULL)
        r->json = json_array();
    if (r->stacks_done == 0 && r->cursor == 0 && !r->args->json) {
        fprintf(r->out, "Active Internet connections%s\n",
                r->args->all ? " (including servers)" : "");
        fprintf(r->out, "%-5s %6s %6s %-22s %-22s %-11s %s\n", "Proto", "Recv-Q", "Send-Q",
                "Local Address", "Foreign Address", "(state)", "Process");
    }
    r->cursor = so_foreach_slice(s, r->cursor, INSPECT_SLICE_TEXT, list_socket, &l);
    if (r->cursor == 0 && (r->args->group == NULL || strcmp(r->args->group, "tcp") == 0)) {
        tcp_timewait_foreach(s, list_timewait, &l);
        tcp_syncache_foreach(s, list_syncache, &l);
    }
    if (l.cut)
        fprintf(r->err, "netstat: the list of %s was cut\n", s->name);
}

static bool group_known(const char *group)
{
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        if (strcmp(counter_table[i].group, group) == 0)
            return true;
    return false;
}

static void statistics_json(struct inspect_run *r, const struct weir_stack *s)
{
    json_t *o = json_object();
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        if (r->args->group == NULL || strcmp(counter_table[i].group, r->args->group) == 0)
            json_object_set_new(o, counter_table[i].name,
                                json_integer((json_int_t)LOAD_RELAXED(&s->counters.v[i])));
    if (r->json == NULL)
        r->json = json_array();
    json_array_append_new(r->json, json_pack("{s:s, s:o}", "stack", s->name, "counters", o));
}

static int netstat_statistics(struct inspect_run *r, const struct weir_stack *s)
{
    const char *group = NULL, *only = r->args->group;
    if (only != NULL && !group_known(only)) {
        fprintf(r->err, "netstat: %s: unknown protocol\n", only);
        return 1;
    }
    if (r->args->json) {
        statistics_json(r, s);
        return 0;
    }
    print_heading(r, s);
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        const struct counter_info *c = &counter_table[i];
        if (only != NULL && strcmp(c->group, only) != 0)
            continue;
        if (group == NULL || strcmp(group, c->group) != 0)
            fprintf(r->out, "%s:\n", c->group);
        group = c->group;
        fprintf(r->out, "\t%" PRIu64 " %s (%s)\n", LOAD_RELAXED(&s->counters.v[i]), c->meaning,
                c->name);
    }
    return 0;
}

static int run_netstat(struct inspect_run *r, struct weir_stack *s)
{
    if (r->args->memory) {
        int64_t mbufs, bytes;
        if (r->stacks_done == 0) {
            weir_buffer_usage(&mbufs, &bytes);
            fprintf(r->out, "%" PRId64 " mbufs in use, %" PRId64 " bytes (whole process)\n", mbufs,
                    bytes);
        }
        return 0;
    }
    if (r->args->statistics)
        return netstat_statistics(r, s);
    netstat_sockets(r, s);
    return 0;
}

/* ---- tcpdrop ---- */

struct victims {
    const struct inspect_args *args;
    struct flow *flow;
    size_t count, room;
    bool nomem;
};

static void collect_flow(struct victims *v, const struct flow *f, int state)
{
    if (state == TCPS_LISTEN || state == TCPS_CLOSED || v->nomem)
        return;
    if (v->args->have_state && state != v->args->state)
        return;
    if (v->count == v->room) {
        size_t room = v->room > 0 ? 2 * v->room : 64;
        struct flow *bigger = reallocarray(v->flow, room, sizeof(*bigger));
        if (bigger == NULL) {
            v->nomem = true;
            return;
        }
        v->flow = bigger;
        v->room = room;
    }
    v->flow[v->count++] = *f;
}

static void collect_connection(struct tcpcb *tp, void *ctx)
{
    collect_flow(ctx, &tp->t_flow, tp->t_state);
}

static void collect_timewait(const struct tcptw *tw, void *ctx)
{
    collect_flow(ctx, &tw->flow, TCPS_TIME_WAIT);
}

/* A drop may free other connections, so what is collected are names of connections, looked up one
 * by one. */
static void drop_flow(struct inspect_run *r, struct weir_stack *s, const struct flow *f)
{
    char local[64], foreign[64];
    struct tcpcb *tp = tcp_lookup(s, f);
    struct tcptw *tw = tp == NULL ? tcp_timewait_lookup(s, f) : NULL;
    if (tp != NULL)
        tcp_drop(tp, ECONNABORTED);
    else if (tw != NULL)
        tcp_timewait_drop(s, tw);
    else
        return;
    r->matched++;
    if (ftello(r->out) < INSPECT_MAX_OUTPUT)
        fprintf(r->out, "%s %u %s %u: dropped\n", ipaddr_format(&f->laddr, local, sizeof(local)),
                f->lport, ipaddr_format(&f->faddr, foreign, sizeof(foreign)), f->fport);
}

static int run_tcpdrop(struct inspect_run *r, struct weir_stack *s)
{
    const struct inspect_args *a = r->args;
    if (a->have_flow) {
        drop_flow(r, s, &a->flow);
        return 0;
    }
    struct victims v = {.args = a};
    tcp_foreach(s, collect_connection, &v);
    tcp_timewait_foreach(s, collect_timewait, &v);
    for (size_t i = 0; i < v.count; i++)
        drop_flow(r, s, &v.flow[i]);
    free(v.flow);
    if (v.nomem)
        fputs("tcpdrop: out of memory, not all were dropped\n", r->err);
    return v.nomem ? 1 : 0;
}

int inspect_stack(struct inspect_run *r, struct weir_stack *s)
{
    int status = 1;
    r->headed = false;
    switch (r->args->command) {
    case INSPECT_SYSCTL:
        status = run_sysctl(r, s);
        break;
    case INSPECT_NETSTAT:
        status = run_netstat(r, s);
        break;
    case INSPECT_SNAPSHOT:
        status = snapshot_stack(&r->snapshot, s, &r->cursor) != 0;
        if (status != 0)
            fputs("snapshot: out of memory\n", r->err);
        break;
    case INSPECT_TCPDROP:
        status = run_tcpdrop(r, s);
        break;
    case INSPECT_CPUTIME:
        status = inspect_cputime(r, s);
        break;
    case INSPECT_METRICS:
        status = inspect_metrics(r, s);
        if (status != 0)
            fputs("metrics: out of memory\n", r->err);
        break;
    case INSPECT_LOCKSTAT:
        break; /* about the process */
    }
    if (r->cursor == 0 || status != 0)
        r->stacks_done++;
    return status;
}

int inspect_finish(struct inspect_run *r)
{
    const struct inspect_args *a = r->args;
    if (r->json != NULL) {
        char *text = json_dumps(r->json, JSON_INDENT(1));
        fprintf(r->out, "%s\n", text != NULL ? text : "[]");
        free(text);
        json_decref(r->json);
        r->json = NULL;
    }
    inspect_metrics_finish(r);
    if (r->snapshot != NULL)
        snapshot_finish(r->snapshot, r->out);
    r->snapshot = NULL;
    if (a->command == INSPECT_TCPDROP && a->have_flow && r->matched == 0) {
        char local[64], foreign[64];
        fprintf(r->err, "tcpdrop: %s %u %s %u: %s\n",
                ipaddr_format(&a->flow.laddr, local, sizeof(local)), a->flow.lport,
                ipaddr_format(&a->flow.faddr, foreign, sizeof(foreign)), a->flow.fport,
                strerror(ESRCH));
        return 1;
    }
    if (a->command == INSPECT_TCPDROP && a->have_state && r->matched == 0) {
        fprintf(r->err, "tcpdrop: no connection is in state %s\n", tcp_state_name(a->state));
        return 1;
    }
    return 0;
}
