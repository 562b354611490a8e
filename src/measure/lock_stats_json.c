/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile as JSON: how it goes from one process to another. */
#include "lock_stats.h"

#include <jansson.h>
#include <stdlib.h>

const char *const lock_stat_names[LOCK_STATS] = {
    [LOCK_STAT_COUNT] = "count",          [LOCK_STAT_FAILED] = "failed",
    [LOCK_STAT_HELD_UP] = "cnt_hold",     [LOCK_STAT_SPINS] = "spins",
    [LOCK_STAT_BLOCKS] = "blocks",        [LOCK_STAT_HOLD] = "hold_ns",
    [LOCK_STAT_SPIN_TIME] = "spin_ns",    [LOCK_STAT_BLOCK_TIME] = "block_ns",
    [LOCK_STAT_HOLD_MAX] = "hold_max_ns", [LOCK_STAT_WAIT_MAX] = "wait_max_ns",
};

json_t *lock_stats_to_json(const struct lock_stats *s, size_t limit)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < s->count && (limit == 0 || i < limit); i++) {
        const struct lock_stats_row *r = &s->row[i];
        json_t *o =
            json_pack("{s:s, s:s, s:s}", "lock", r->lock, "where", r->where, "caller", r->caller);
        for (int v = 0; v < LOCK_STATS; v++)
            json_object_set_new(o, lock_stat_names[v], json_integer((json_int_t)r->v[v]));
        json_array_append_new(rows, o);
    }
    return json_pack("{s:f, s:I, s:o}", "seconds", (double)s->counted_ns / (double)NS_PER_S,
                     "overflow", (json_int_t)s->overflow, "rows", rows);
}

static bool take_text(const json_t *o, const char *name, char *out, size_t size)
{
    const char *v = json_string_value(json_object_get(o, name));
    if (v == NULL)
        return false;
    snprintf(out, size, "%s", v);
    return true;
}

static bool row_read(const json_t *o, struct lock_stats_row *r)
{
    if (!take_text(o, "lock", r->lock, sizeof(r->lock)) ||
        !take_text(o, "where", r->where, sizeof(r->where)) ||
        !take_text(o, "caller", r->caller, sizeof(r->caller)))
        return false;
    for (int i = 0; i < LOCK_STATS; i++) {
        const json_t *v = json_object_get(o, lock_stat_names[i]);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return false;
        r->v[i] = (uint64_t)json_integer_value(v);
    }
    return true;
}

bool lock_stats_from_json(const json_t *o, struct lock_stats *out)
{
    const json_t *rows = json_object_get(o, "rows"), *seconds = json_object_get(o, "seconds");
    const json_t *overflow = json_object_get(o, "overflow");
    size_t n = json_array_size(rows);
    double s = json_number_value(seconds);
    *out = (struct lock_stats){0};
    if (!json_is_array(rows) || !json_is_number(seconds) || !(s >= 0 && s < 1e9) ||
        !json_is_integer(overflow) || json_integer_value(overflow) < 0)
        return false;
    out->counted_ns = (uint64_t)(s * (double)NS_PER_S + 0.5);
    out->overflow = (uint64_t)json_integer_value(overflow);
    out->row = calloc(n + 1, sizeof(*out->row));
    bool good = out->row != NULL;
    while (good && out->count < n) {
        good = row_read(json_array_get(rows, out->count), &out->row[out->count]);
        out->count++;
    }
    if (!good)
        lock_stats_free(out);
    return good;
}

/* The names are filled up with zeros. */
static bool same_site(const struct lock_stats_row *a, const struct lock_stats_row *b)
{
    return memcmp(a, b, offsetof(struct lock_stats_row, v)) == 0;
}

void lock_stats_since(struct lock_stats *now, const struct lock_stats *before)
{
    if (now->counted_ns < before->counted_ns)
        return; /* reset meanwhile: all of it came after */
    now->counted_ns -= before->counted_ns;
    now->overflow -= MIN(before->overflow, now->overflow);
    for (size_t i = 0; i < now->count; i++) {
        struct lock_stats_row *r = &now->row[i];
        const struct lock_stats_row *old = before->row, *end = old + before->count;
        while (old < end && !same_site(r, old))
            old++;
        for (int v = 0; old < end && v < LOCK_STAT_HOLD_MAX; v++)
            r->v[v] -= MIN(old->v[v], r->v[v]);
    }
}
