/* SPDX-License-Identifier: BSD-2-Clause
 * Which number of a run is compared. */
#include "ab.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *name, *path;
    const char *other; /* where path has no meaning */
} aliases[] = {
    {"throughput", "throughput_mbps", NULL},
    {"transactions", "transactions_per_s", NULL},
    {"service_demand_local", "service_demand_us_per_kb.local",
     "service_demand_us_per_transaction.local"},
    {"service_demand_remote", "service_demand_us_per_kb.remote",
     "service_demand_us_per_transaction.remote"},
    {"service_demand", "service_demand_us_per_kb.local+service_demand_us_per_kb.remote",
     "service_demand_us_per_transaction.local+service_demand_us_per_transaction.remote"},
    {"cpu_local", "cpu.local_pct", NULL},
    {"cpu_remote", "cpu.remote_pct", NULL},
    {"cpu", "cpu.local_pct+cpu.remote_pct", NULL},
    {"p50", "latency_us.p50", NULL},
    {"p90", "latency_us.p90", NULL},
    {"p99", "latency_us.p99", NULL},
    {"p99_9", "latency_us.p99_9", NULL},
    {"latency_max", "latency_us.max", NULL},
};

const char metric_help[] =
    "throughput_mbps (streams' default), transactions_per_s (that of the others),\n"
    "service_demand_local, service_demand_remote, service_demand (both), cpu_local, cpu_remote,\n"
    "cpu, p50, p90, p99, p99_9, latency_max, retransmits; or any number of bench's JSON by its\n"
    "path, like latency_us.mean or locks.so_rcv.per_gb; + adds\n";

/* One path up to '+' or the end. A lock's name may have dots nowhere, so dots separate. */
static bool get_path(const json_t *doc, const char *path, size_t len, double *value)
{
    char key[128];
    const char *end = path + len;
    while (path < end) {
        size_t n = 0;
        while (path + n < end && path[n] != '.')
            n++;
        if (n == 0 || n >= sizeof(key))
            return false;
        memcpy(key, path, n);
        key[n] = '\0';
        doc = json_object_get(doc, key);
        path += n + (path + n < end);
    }
    if (!json_is_number(doc))
        return false;
    *value = json_number_value(doc);
    return isfinite(*value);
}

static bool get_sum(const json_t *doc, const char *paths, double *value)
{
    double sum = 0, v;
    while (true) {
        size_t n = strcspn(paths, "+");
        if (!get_path(doc, paths, n, &v))
            return false;
        sum += v;
        if (paths[n] == '\0')
            break;
        paths += n + 1;
    }
    *value = sum;
    return true;
}

bool metric_get(const json_t *doc, const char *metric, double *value)
{
    for (size_t i = 0; i < NELEM(aliases); i++)
        if (strcmp(metric, aliases[i].name) == 0)
            return get_sum(doc, aliases[i].path, value) ||
                   (aliases[i].other != NULL && get_sum(doc, aliases[i].other, value));
    return get_sum(doc, metric, value);
}

const char *metric_default(const json_t *doc)
{
    return json_is_number(json_object_get(doc, "throughput_mbps")) ? "throughput_mbps"
                                                                   : "transactions_per_s";
}
