/* SPDX-License-Identifier: BSD-2-Clause
 * What one can see and change in a running stack, as text: sysctl, netstat, tcpdrop; and
 * `snapshot`, all of it at once for programs. No socket, no thread here. */
#ifndef WEIR_RUNTIME_INSPECT_H
#define WEIR_RUNTIME_INSPECT_H

#include "base/base.h"
#include "wire/addr.h"
#include <stdio.h>

#define INSPECT_MAX_NAMES 64
/* Bytes of text; a longer list is cut, and says so on err. */
#define INSPECT_MAX_OUTPUT (16 << 20)

enum inspect_command {
    INSPECT_SYSCTL,
    INSPECT_NETSTAT,
    INSPECT_SNAPSHOT,
    INSPECT_TCPDROP,
    INSPECT_LOCKSTAT,
    INSPECT_CPUTIME,
    INSPECT_METRICS
};

/* A parsed command line; strings are borrowed from its argv. */
struct inspect_args {
    enum inspect_command command;
    const char *stack; /* -S NAME: only the stacks of this name; NULL all */
    bool all;          /* -a */
    /* sysctl */
    bool names_only, values_only, describe, write, ignore_unknown;
    const char *name[INSPECT_MAX_NAMES];
    unsigned names;
    /* netstat */
    bool statistics, memory, json;
    const char *group; /* -p */
    int family;        /* -f; 0 both */
    bool detail;       /* -e */
    uint16_t port;     /* -P: at either end; 0 all */
    bool text_format;  /* metrics: the older format of Prometheus */
    /* with netstat: -t; with tcpdrop: -s */
    bool have_state;
    int state; /* TCPS_* */
    /* tcpdrop */
    struct flow flow;
    bool have_flow;
};

/* What a command carries from one stack to the next. */
struct inspect_run {
    const struct inspect_args *args;
    FILE *out, *err;
    bool several; /* more than one stack is addressed: output is headed by its name */
    bool headed;  /* this stack's name was printed */
    unsigned stacks_done;
    unsigned matched;          /* tcpdrop: connections dropped */
    void *json;                /* netstat -J: the document so far */
    struct snapshot *snapshot; /* what was taken down so far */
    struct metrics *metrics;   /* the same for metrics */
    uint32_t cursor;           /* where the walk over the stack's sockets goes on; 0: it is done */
};

/* 0, or 2 (usage) with a message on err. */
int inspect_parse(int argc, const char *const *argv, struct inspect_args *a, FILE *err) NODISCARD;

/* Sockets that are looked at in one go: others may own the stack in between. Fewer where each is
 * printed. */
#define INSPECT_SLICE 4096
#define INSPECT_SLICE_TEXT 256

/* Run on one stack; by its owner, with s->now set. Returns the status: 0 good, 1 failed. While
 * r->cursor is not 0 there is more: to be called again after letting go of the stack. */
int inspect_stack(struct inspect_run *r, struct weir_stack *s) NODISCARD;
/* lockstat: the lock profile of the process as one line of JSON; no stack is needed. */
int inspect_locks(struct inspect_run *r) NODISCARD;
/* cputime: threads by activity (once), and the stack's connections. By the owner of s. */
int inspect_cputime(struct inspect_run *r, struct weir_stack *s) NODISCARD;
#define INSPECT_CPU_COLUMNS 12 /* threads in the table */
/* The sysctls kern.cputime of a new stack. */
void inspect_cputime_attach(struct weir_stack *s);
/* netstat -e: a line of text, or what an object gets (struct json_t). */
struct tcpcb;
struct socket;
struct json_t;
void inspect_detail_text(FILE *out, const struct tcpcb *tp, const struct socket *so);
void inspect_detail_json(struct json_t *o, const struct tcpcb *tp, const struct socket *so);
/* metrics: note a stack, by its owner; write all and free. */
int inspect_metrics(struct inspect_run *r, struct weir_stack *s) NODISCARD;
void inspect_metrics_finish(struct inspect_run *r);
/* After the last stack: what can only be said then. */
int inspect_finish(struct inspect_run *r) NODISCARD;

#endif
