/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time by activity: switching it on, and reading the accounts (base/cputime.h keeps them). */
#ifndef WEIR_MEASURE_CPUTIME_H
#define WEIR_MEASURE_CPUTIME_H

#include "base/cputime.h"
#include <sys/types.h>

#define CPUTIME_NAME 16
#define CPUTIME_MAX_THREADS 4096 /* accounts; threads beyond are not accounted for */

/* One thread, or all together. Times in ns. */
struct cputime_row {
    char name[CPUTIME_NAME]; /* the kernel's for the thread */
    pid_t tid;               /* 0: threads that have ended, or the process */
    uint64_t ns[CPU_ACTIVITIES];
    uint64_t switches;
    /* By the kernel, since the account was opened: CPU time; time that the thread could run and did
     * not get a core; how often its core was taken away. */
    uint64_t cpu_ns, stolen_ns, preempted;
    /* In spans of CPUTIME_LONG_NS and more, ns that it did not run (waiting for a core, or asleep
     * outside of Weir). */
    uint64_t away_ns;
};

struct cputime_snapshot {
    enum cputime_mode mode;
    bool counter;            /* ticks are the cycle counter's, else the monotonic clock's */
    double ticks_per_second; /* 0: not known yet */
    /* All accounts, those of threads that have ended and (bintime) the shared one included. */
    struct cputime_row total;
    struct cputime_row *thread; /* those that live, in the order in which they came */
    unsigned threads;
};

/* Once a process, before the knob is read. */
void cputime_init(void);
/* What kern.cputime says now holds. Any thread; called when the knob was set. */
void cputime_apply(void);
/* Locks across a fork; in the child the accounts begin anew. */
void cputime_fork_prepare(void);
void cputime_fork_done(bool child);

/* The accounts now; spans that have not ended are counted as far as their threads ran. 0, or
 * -ENOMEM. `thread` is the caller's to give to cputime_snapshot_free. */
int cputime_snapshot(struct cputime_snapshot *out) NODISCARD;
void cputime_snapshot_free(struct cputime_snapshot *s);
/* The total alone, without the kernel's figures. */
void cputime_totals(struct cputime_row *out);
/* Sum of all activities, ns. */
uint64_t cputime_sum_ns(const struct cputime_row *r);
/* *now -= what was before. */
void cputime_row_subtract(struct cputime_row *now, const struct cputime_row *before);
/* Ticks, as connections keep them. */
uint64_t cputime_ticks_to_ns(uint64_t ticks);

/* Ticks are the cycle counter's; its rate as measured till now. */
bool cputime_has_counter(void);
double cputime_ticks_per_second(void);

/* For tests, while kern.cputime is off and no account is open: do as where the cycle counter does
 * not go at one rate. */
void cputime_deny_counter(bool deny);

#endif
