/* SPDX-License-Identifier: BSD-2-Clause
 * Histogram of latencies: logarithmic buckets, integers only, exact count, bounded error of a value
 * (under 0.8 %). */
#ifndef WEIR_CLI_HIST_H
#define WEIR_CLI_HIST_H

#include "base/base.h"

#define HIST_SUB_BITS 7 /* 2^7 linear steps for each power of two */
#define HIST_SUBS (1u << HIST_SUB_BITS)
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) * HIST_SUBS)

struct hist {
    uint64_t count, min, max;
    uint64_t negative; /* differences below zero: counted apart, in nothing else */
    unsigned __int128 sum;
    uint64_t bucket[HIST_BUCKETS];
};

void hist_init(struct hist *h);
/* A time difference in ns. Cost: some instructions and one cache line of the table. */
void hist_add(struct hist *h, int64_t value_ns);
void hist_merge(struct hist *into, const struct hist *from);
/* The value below or at which `per_mille`/1000 of all values are: the upper end of its bucket, at
 * most max. False when so few values cannot tell (fewer than one is expected above it), or there is
 * none. */
bool hist_quantile(const struct hist *h, unsigned per_mille, uint64_t *value_ns);
/* 0 when empty; always between min and max. */
uint64_t hist_mean(const struct hist *h);

#endif
