/* SPDX-License-Identifier: BSD-2-Clause
 * A moment of the process for programs to read: counters, connections, threads and locks, as JSON.
 *
 * {"version":1,"pid":..,"at_ns":..,"mbufs":..,"mbuf_bytes":..,
 *  "stacks":[{"name":..,"flows":..,"counters":{NAME:VALUE,..}},..],
 *  "flows":TABLE,"threads":TABLE,"locks":TABLE}
 * with TABLE {"columns":[NAME,..],"rows":[[VALUE,..],..]}. Readers find a column by its name.
 * Totals only ever grow for one row of the same key; at_ns is CLOCK_MONOTONIC, when the row was
 * read, and that of the whole when its first stack was. null: not known. */
#ifndef WEIR_RUNTIME_SNAPSHOT_H
#define WEIR_RUNTIME_SNAPSHOT_H

#include "base/base.h"
#include <stdio.h>

struct snapshot;

/* Connections that are listed, of all stacks; "flows" of each stack tells how many there are. */
#define SNAPSHOT_MAX_FLOWS 50000
#define SNAPSHOT_SLICE 4096 /* sockets that are looked at in one go */

/* Take down a stack: by its owner, with s->now set. It copies, and formats nothing, so that the
 * stack is held for little more than the walk over its sockets. *snap NULL: the first; it is made.
 *  *cursor is 0 at first; while it is not
 * 0 afterwards, there is more: let go of the stack, own it again and call again. What has that many
 * sockets is of different moments. 0 or -ENOMEM. */
int snapshot_stack(struct snapshot **snap, struct weir_stack *s, uint32_t *cursor) NODISCARD;
/* Write it, with what belongs to the process, and free it. */
void snapshot_finish(struct snapshot *snap, FILE *out);

#endif
