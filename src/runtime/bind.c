/* SPDX-License-Identifier: BSD-2-Clause
 * net.isr.bindthreads: the thread of a stack keeps to a core where no application works.
 *
 * Threads that wait for the stack leave a note of the core they are on. Every RUNTIME_BIND_NS the
 * stack thread takes the notes; if its own core is among them it moves to one that is not, if there
 * is any. Where there is none, it stays where it is. When the knob is cleared it gets back the
 * cores it was born with. */
#include "runtime.h"
#include <sched.h>

/* Notes are taken this often: rarely, for a thread that moves loses its cache. */
#define RUNTIME_BIND_NS (20 * NS_PER_MS)

void runtime_bind_note(struct runtime *rt)
{
    int core = sched_getcpu();

    if (core < 0 || core >= RUNTIME_CORES)
        return;
    uint64_t bit = UINT64_C(1) << core % 64;
    _Atomic uint64_t *word = &rt->app_cores[core / 64];
    if (!(LOAD_RELAXED(word) & bit))
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
}

/* The notes since the last time. False: there are none. */
static bool take_notes(struct runtime *rt, cpu_set_t *used)
{
    bool any = false;

    CPU_ZERO(used);
    for (int i = 0; i < RUNTIME_CORES; i++) {
        if (i % 64 == 0 && !LOAD_RELAXED(&rt->app_cores[i / 64])) {
            i += 63;
        } else if (LOAD_RELAXED(&rt->app_cores[i / 64]) & UINT64_C(1) << i % 64) {
            CPU_SET(i, used);
            any = true;
        }
    }
    for (int i = 0; i < RUNTIME_CORES / 64; i++)
        STORE_RELAXED(&rt->app_cores[i], 0);
    return any;
}

static void bind_to(struct runtime *rt, int core)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(core, &one);
    /* A core may be taken from the process at any time: then the scheduler chooses. */
    rt->bound_core = sched_setaffinity(0, sizeof(one), &one) == 0 ? core : -1;
}

/* A core of ours that is not in use, from `from` on; -1: none. */
static int free_core(const struct runtime *rt, const cpu_set_t *used, int from)
{
    for (int i = 0; i < RUNTIME_CORES; i++) {
        int core = (from + i) % RUNTIME_CORES;
        if (CPU_ISSET(core, &rt->born_cores) && !CPU_ISSET(core, used))
            return core;
    }
    return -1;
}

void runtime_bind(struct runtime *rt, uint64_t now_ns)
{
    cpu_set_t used;

    if (likely(!KNOB(rt->stack, isr_bindthreads))) {
        if (unlikely(rt->bound_core >= 0)) {
            (void)sched_setaffinity(0, sizeof(rt->born_cores), &rt->born_cores);
            rt->bound_core = -1;
        }
        return;
    }
    if (rt->bound_core >= 0 && now_ns < rt->bind_next_ns)
        return;
    rt->bind_next_ns = now_ns + RUNTIME_BIND_NS;
    if (rt->bound_core < 0 && sched_getaffinity(0, sizeof(rt->born_cores), &rt->born_cores) != 0)
        return;
    bool noted = take_notes(rt, &used);
    if (rt->bound_core >= 0 && (!noted || !CPU_ISSET(rt->bound_core, &used)))
        return;
    int here = rt->bound_core >= 0 ? rt->bound_core : sched_getcpu();
    int core = free_core(rt, &used, MAX(here, 0));
    if (core >= 0)
        bind_to(rt, core);
    else if (rt->bound_core < 0 && here >= 0)
        bind_to(rt, here);
}
