/* SPDX-License-Identifier: BSD-2-Clause
 * What bench adds to a result when asked: contention of locks, and what the machine could do. */
#ifndef WEIR_CLI_BENCH_EXTRA_H
#define WEIR_CLI_BENCH_EXTRA_H

#include "measure/cputime.h"
#include <jansson.h>

/* ---- bench_locks.c: counts of every lock class between two moments ---- */
#define LOCKS_MAX 64
struct lock_counts {
    unsigned count;
    struct {
        const char *name; /* borrowed for ever */
        uint64_t contended, spins, blocks;
    } v[LOCKS_MAX]; /* classes of one name are one entry */
};
void locks_snapshot(struct lock_counts *out);
/* {name: {contended, spins, blocks, per_gb}} of what came between; per_gb: contended acquisitions
 * for each 10^9 bytes, null when there are none. */
json_t *locks_json(const struct lock_counts *from, const struct lock_counts *to, uint64_t bytes);
/* What the profile has seen since the test began, with the knob debug.lock.prof.enable; NULL when
 * that is off. */
void locks_profile_begin(void);
json_t *locks_profile_json(void);
void locks_profile_print(void);
void locks_print(const struct lock_counts *from, const struct lock_counts *to, uint64_t bytes);

/* ---- bench_cputime.c: CPU time by activity, while kern.cputime is on ---- */
struct engine;
struct cpu_counts {
    enum cputime_mode mode;
    bool counter;
    double ticks_per_second;
    struct cputime_row side[2], both; /* bintime: times in `both` alone */
};
void cpu_take(struct cpu_counts *out, const struct engine *const e[2]);
void cpu_subtract(struct cpu_counts *now, const struct cpu_counts *before);
/* transactions: 0 where there are none. */
json_t *cpu_json(const struct cpu_counts *c, bool far_is_here, double transactions);
void cpu_print(const struct cpu_counts *c, bool far_is_here, double transactions);

/* ---- bench_limit.c: a bare pipeline of two copies between two cores ---- */
#define LIMIT_RUNS 5
#define LIMIT_BUFFERS 8
#define LIMIT_BUFFER_BYTES 65536u
/* One thread copies messages into a ring of 8 buffers of 64 KB, another copies them out: what any
 * stack that copies at either end can reach at most on these cores (-1: not pinned). Mb/s; 0: it
 * could not be run. */
double limit_measure(uint32_t message, const int cpu[2], uint64_t length_ns);
struct limit {
    double run_mbps[LIMIT_RUNS];
    unsigned runs;
};
double limit_best(const struct limit *l);                       /* 0: none */
json_t *limit_json(const struct limit *l, double reached_mbps); /* reached: NAN for none */

#endif
