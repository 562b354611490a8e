/* SPDX-License-Identifier: BSD-2-Clause
 * How much CPU time others took while a run was measured. Time in interrupts is left out: it may be
 * the run's own. */
#include "ab.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Ticks of all processes, and those that a hypervisor took. */
static bool read_stat(uint64_t *busy, uint64_t *steal)
{
    uint64_t user, nice, system, idle, wait, irq, soft, stolen = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL)
        return false;
    int n = fscanf(f,
                   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64,
                   &user, &nice, &system, &idle, &wait, &irq, &soft, &stolen);
    fclose(f);
    *busy = n >= 7 ? user + nice + system : 0;
    *steal = n >= 8 ? stolen : 0;
    return n >= 7;
}

static double self_cpu_s(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

void load_begin(struct load *l)
{
    l->known = read_stat(&l->mark_busy, &l->mark_steal);
    l->mark_self_s = self_cpu_s();
    l->mark_ns = clock_now_ns();
}

void load_end(struct load *l, double child_cpu_s)
{
    uint64_t busy, steal;
    double s = (double)(clock_now_ns() - l->mark_ns) / 1e9;
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    if (!l->known || !read_stat(&busy, &steal) || s <= 0)
        return;
    double other =
        (double)(busy - l->mark_busy) * tick - child_cpu_s - (self_cpu_s() - l->mark_self_s);
    other = MAX(other, 0); /* ticks are coarse */
    l->seconds += s;
    l->other_cpu_s += other;
    l->steal_s += (double)(steal - l->mark_steal) * tick;
    l->worst_pct = MAX(l->worst_pct, 100 * other / s);
}

double load_other_pct(const struct load *l)
{
    return l->seconds > 0 ? 100 * l->other_cpu_s / l->seconds : 0;
}

double load_steal_pct(const struct load *l)
{
    return l->seconds > 0 ? 100 * l->steal_s / l->seconds : 0;
}
