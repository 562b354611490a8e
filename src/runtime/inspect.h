/* SPDX-License-Identifier: BSD-2-Clause
 * What one can see and change in a running stack, as text: sysctl, netstat, tcpdrop. No socket, no
 * thread here. */
#ifndef WEIR_RUNTIME_INSPECT_H
#define WEIR_RUNTIME_INSPECT_H

#include "base/base.h"
#include "wire/addr.h"
#include <stdio.h>

#define INSPECT_MAX_NAMES 64
/* Bytes of text; a longer list is cut, and says so on err. */
#define INSPECT_MAX_OUTPUT (16 << 20)

enum inspect_command { INSPECT_SYSCTL, INSPECT_NETSTAT, INSPECT_TCPDROP };

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
    /* tcpdrop */
    bool have_state;
    int state; /* -s: TCPS_* */
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
    unsigned matched; /* tcpdrop: connections dropped */
    void *json;       /* netstat -J: the document so far */
};

/* 0, or 2 (usage) with a message on err. */
int inspect_parse(int argc, const char *const *argv, struct inspect_args *a, FILE *err) NODISCARD;

/* Run on one stack; by its owner, with s->now set. Returns the status: 0 good, 1 failed. */
int inspect_stack(struct inspect_run *r, struct weir_stack *s) NODISCARD;
/* After the last stack: what can only be said then. */
int inspect_finish(struct inspect_run *r) NODISCARD;

#endif
