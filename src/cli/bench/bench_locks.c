/* SPDX-License-Identifier: BSD-2-Clause
 * How contended the locks were during a test. */
#include "bench_extra.h"

#include "measure/lock_stats.h"

#include <inttypes.h>
#include <stdio.h>

static unsigned entry(struct lock_counts *c, const char *name)
{
    unsigned i = 0;
    while (i < c->count && strcmp(c->v[i].name, name) != 0)
        i++;
    if (i == c->count && i < LOCKS_MAX) {
        c->v[i].name = name;
        c->count++;
    }
    return i;
}

void locks_snapshot(struct lock_counts *out)
{
    memset(out, 0, sizeof(*out));
    for (struct lock_class *k = lock_class_first(); k != NULL; k = k->next) {
        unsigned i = entry(out, k->name);
        if (i == LOCKS_MAX)
            continue;
        out->v[i].contended += LOAD_RELAXED(&k->contended);
        out->v[i].spins += LOAD_RELAXED(&k->spins);
        out->v[i].blocks += LOAD_RELAXED(&k->blocks);
    }
}

/* What entry i of `to` gained. */
static void gained(const struct lock_counts *from, const struct lock_counts *to, unsigned i,
                   uint64_t out[3])
{
    out[0] = to->v[i].contended, out[1] = to->v[i].spins, out[2] = to->v[i].blocks;
    for (unsigned k = 0; k < from->count; k++) {
        if (strcmp(from->v[k].name, to->v[i].name) != 0)
            continue;
        out[0] -= from->v[k].contended;
        out[1] -= from->v[k].spins;
        out[2] -= from->v[k].blocks;
    }
}

json_t *locks_json(const struct lock_counts *from, const struct lock_counts *to, uint64_t bytes)
{
    json_t *all = json_object();
    for (unsigned i = 0; i < to->count; i++) {
        uint64_t n[3];
        gained(from, to, i, n);
        json_t *per_gb = bytes > 0 ? json_real((double)n[0] * 1e9 / (double)bytes) : json_null();
        json_object_set_new(all, to->v[i].name,
                            json_pack("{s:I, s:I, s:I, s:o}", "contended", (json_int_t)n[0],
                                      "spins", (json_int_t)n[1], "blocks", (json_int_t)n[2],
                                      "per_gb", per_gb));
    }
    return all;
}

void locks_print(const struct lock_counts *from, const struct lock_counts *to, uint64_t bytes)
{
    printf("\n%-16s %12s %12s %12s %14s\n", "Lock", "contended", "spins", "blocks", "contended/GB");
    for (unsigned i = 0; i < to->count; i++) {
        uint64_t n[3];
        gained(from, to, i, n);
        printf("%-16s %12" PRIu64 " %12" PRIu64 " %12" PRIu64, to->v[i].name, n[0], n[1], n[2]);
        if (bytes > 0)
            printf(" %14.1f\n", (double)n[0] * 1e9 / (double)bytes);
        else
            printf(" %14s\n", "-");
    }
}

void locks_profile_begin(void)
{
    if (lock_prof_is_on())
        lock_prof_reset();
}

json_t *locks_profile_json(void)
{
    struct lock_stats s;
    if (!lock_prof_is_on() || lock_stats_take(&s) != 0)
        return NULL;
    json_t *o = lock_stats_to_json(&s, 0);
    lock_stats_free(&s);
    return o;
}

void locks_profile_print(void)
{
    struct lock_stats s;
    if (!lock_prof_is_on() || lock_stats_take(&s) != 0)
        return;
    printf("\n");
    lock_stats_events(&s, false, LOCK_COL_COUNT, 0, stdout);
    lock_stats_events(&s, true, LOCK_COL_COUNT, 0, stdout);
    (void)lock_stats_profile(&s, LOCK_COL_WAIT_TOTAL, 0, stdout);
    lock_stats_free(&s);
}
