/* SPDX-License-Identifier: BSD-2-Clause
 * Histogram of latencies. */
#include "hist.h"

void hist_init(struct hist *h)
{
    memset(h, 0, sizeof(*h));
    h->min = UINT64_MAX;
}

/* Values below HIST_SUBS have a bucket each; above, the leading HIST_SUB_BITS + 1 bits choose it.
 */
static unsigned bucket_of(uint64_t v)
{
    if (v < HIST_SUBS)
        return (unsigned)v;
    unsigned shift = 63u - (unsigned)__builtin_clzll(v) - HIST_SUB_BITS;
    return (shift + 1) * HIST_SUBS + (unsigned)((v >> shift) - HIST_SUBS);
}

static uint64_t bucket_end(unsigned b)
{
    if (b < HIST_SUBS)
        return b;
    unsigned shift = b / HIST_SUBS - 1;
    uint64_t lead = b % HIST_SUBS + HIST_SUBS;
    return (lead << shift) + ((UINT64_C(1) << shift) - 1);
}

void hist_add(struct hist *h, int64_t value_ns)
{
    if (value_ns < 0) {
        h->negative++;
        return;
    }
    uint64_t v = (uint64_t)value_ns;
    h->count++;
    h->sum += v;
    if (v < h->min)
        h->min = v;
    if (v > h->max)
        h->max = v;
    h->bucket[bucket_of(v)]++;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    into->count += from->count;
    into->negative += from->negative;
    into->sum += from->sum;
    into->min = MIN(into->min, from->min);
    into->max = MAX(into->max, from->max);
    for (size_t i = 0; i < HIST_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

bool hist_quantile(const struct hist *h, unsigned per_mille, uint64_t *value_ns)
{
    unsigned __int128 above = (unsigned __int128)h->count * (1000 - per_mille);
    if (h->count == 0 || above < 1000)
        return false;
    uint64_t rank = (uint64_t)(((unsigned __int128)h->count * per_mille + 999) / 1000), seen = 0;
    for (unsigned b = 0; b < HIST_BUCKETS; b++) {
        seen += h->bucket[b];
        if (seen >= rank && seen > 0) {
            *value_ns = MAX(MIN(bucket_end(b), h->max), h->min);
            return true;
        }
    }
    return false;
}

uint64_t hist_mean(const struct hist *h)
{
    return h->count > 0 ? (uint64_t)(h->sum / h->count) : 0;
}
