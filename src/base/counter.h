/* SPDX-License-Identifier: BSD-2-Clause
 * Counters of a stack: one row each in counters.def, with a meaning; every drop has one. */
#ifndef WEIR_BASE_COUNTER_H
#define WEIR_BASE_COUNTER_H

#include "base.h"
#include "probes.h"

enum counter_id {
#define COUNTER(id, group, name, meaning) CTR_##id,
#include "counters.def"
#undef COUNTER
    COUNTER_COUNT
};

struct counter_info {
    const char *group;   /* "tcp": the heading in netstat -s */
    const char *name;    /* "tcp.rcv_badsum" */
    const char *meaning; /* "segments dropped for a wrong checksum" */
};
extern const struct counter_info counter_table[COUNTER_COUNT];

struct counters {
    _Atomic uint64_t v[COUNTER_COUNT];
};

/* By the owner of the stack only: not a locked instruction. */
#define COUNT_ADD(stack, id, n)                                                                    \
    STORE_RELAXED(&(stack)->counters.v[CTR_##id],                                                  \
                  LOAD_RELAXED(&(stack)->counters.v[CTR_##id]) + (n))
#ifdef WEIR_PROBES
/* What each counts, where the compiler can read it: drops are shown to tracers. */
#define COUNTER(id, group, name, meaning) static const char counter_meaning_##id[] UNUSED = meaning;
#include "counters.def"
#undef COUNTER
#define COUNT(stack, id)                                                                           \
    do {                                                                                           \
        COUNT_ADD(stack, id, 1);                                                                   \
        if (__builtin_strstr(counter_meaning_##id, "dropped") != NULL)                             \
            WEIR_PROBE3(drop, (stack)->name, (int)CTR_##id, counter_table[CTR_##id].name);         \
    } while (0)
#else
#define COUNT(stack, id) COUNT_ADD(stack, id, 1)
#endif
/* By any thread, for counters that are never touched with COUNT_ADD. */
#define COUNT_SHARED(stack, id)                                                                    \
    atomic_fetch_add_explicit(&(stack)->counters.v[CTR_##id], 1, memory_order_relaxed)
#define COUNTER_READ(stack, id) LOAD_RELAXED(&(stack)->counters.v[CTR_##id])

#endif
