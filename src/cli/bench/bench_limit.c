/* SPDX-License-Identifier: BSD-2-Clause
 * The limit that a stack with one copy at either end runs into: nothing but those two copies and
 * the hand-over between the cores. */
#include "bench_extra.h"
#include "cli/cli.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SPINS_BEFORE_YIELD 1000 /* both ends may have to share a core */

struct pipeline {
    CACHE_ALIGNED _Atomic uint64_t filled;
    CACHE_ALIGNED _Atomic uint64_t emptied;
    CACHE_ALIGNED _Atomic bool stop;
    char *ring, *out, *in;
    uint32_t message, length[LIMIT_BUFFERS];
    int cpu[2];
    uint64_t taken; /* bytes; the reader's until it ends */
};

static void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

/* Until *counter is not `value`. False: the end. */
static bool await(struct pipeline *p, const _Atomic uint64_t *counter, uint64_t value)
{
    for (unsigned spins = 0;; spins++) {
        if (atomic_load_explicit(counter, memory_order_acquire) != value)
            return true;
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return false;
        if (spins < SPINS_BEFORE_YIELD)
            CPU_PAUSE();
        else
            sched_yield();
    }
}

static void *fill(void *arg)
{
    struct pipeline *p = arg;
    uint64_t filled = 0;
    pin(p->cpu[0]);
    while (true)
        for (uint32_t done = 0; done < p->message;) {
            if (filled >= LIMIT_BUFFERS && !await(p, &p->emptied, filled - LIMIT_BUFFERS))
                return NULL;
            if (atomic_load_explicit(&p->stop, memory_order_relaxed))
                return NULL;
            uint32_t slot = (uint32_t)(filled % LIMIT_BUFFERS);
            uint32_t n = MIN(p->message - done, LIMIT_BUFFER_BYTES);
            memcpy(p->ring + (size_t)slot * LIMIT_BUFFER_BYTES, p->out + done, n);
            p->length[slot] = n;
            done += n;
            atomic_store_explicit(&p->filled, ++filled, memory_order_release);
        }
}

static void *drain(void *arg)
{
    struct pipeline *p = arg;
    uint64_t emptied = 0, bytes = 0;
    uint32_t at = 0;
    pin(p->cpu[1]);
    while (await(p, &p->filled, emptied)) {
        uint32_t slot = (uint32_t)(emptied % LIMIT_BUFFERS), n = p->length[slot];
        memcpy(p->in + at, p->ring + (size_t)slot * LIMIT_BUFFER_BYTES, n);
        at = at + n >= p->message ? 0 : at + n;
        bytes += n;
        atomic_store_explicit(&p->emptied, ++emptied, memory_order_release);
    }
    p->taken = bytes;
    return NULL;
}

/* Both threads for a while. Mb/s. */
static double run_threads(struct pipeline *p, uint64_t length_ns)
{
    pthread_t writer, reader;
    if (pthread_create(&reader, NULL, drain, p) != 0)
        return 0;
    uint64_t start = clock_now_ns();
    bool both = pthread_create(&writer, NULL, fill, p) == 0;
    struct timespec ts = {.tv_sec = (time_t)(length_ns / NS_PER_S),
                          .tv_nsec = (long)(length_ns % NS_PER_S)};
    if (both)
        nanosleep(&ts, NULL);
    uint64_t length = clock_now_ns() - start;
    atomic_store(&p->stop, true);
    if (both)
        pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    return both && length > 0 ? (double)p->taken * 8e3 / (double)length : 0;
}

double limit_measure(uint32_t message, const int cpu[2], uint64_t length_ns)
{
    struct pipeline *p = aligned_alloc(CACHE_LINE, sizeof(*p));
    size_t size = (message + (size_t)4095) & ~(size_t)4095;
    double mbps = 0;
    if (p == NULL)
        return 0;
    memset(p, 0, sizeof(*p));
    p->message = message;
    p->cpu[0] = cpu[0], p->cpu[1] = cpu[1];
    p->ring = aligned_alloc(4096, (size_t)LIMIT_BUFFERS * LIMIT_BUFFER_BYTES);
    p->out = aligned_alloc(4096, size);
    p->in = aligned_alloc(4096, size);
    if (p->ring != NULL && p->out != NULL && p->in != NULL) {
        memset(p->ring, 1, (size_t)LIMIT_BUFFERS * LIMIT_BUFFER_BYTES); /* every page is there */
        memset(p->out, 2, size);
        memset(p->in, 3, size);
        mbps = run_threads(p, length_ns);
    }
    free(p->ring);
    free(p->out);
    free(p->in);
    free(p);
    return mbps;
}

double limit_best(const struct limit *l)
{
    double best = 0;
    for (unsigned i = 0; i < l->runs; i++)
        best = fmax(best, l->run_mbps[i]);
    return best;
}

json_t *limit_json(const struct limit *l, double reached_mbps)
{
    json_t *runs = json_array();
    double best = limit_best(l);
    for (unsigned i = 0; i < l->runs; i++)
        json_array_append_new(runs, json_real(round(l->run_mbps[i] * 1000) / 1000));
    json_t *share = best > 0 && isfinite(reached_mbps)
                        ? json_real(round(reached_mbps / best * 1e5) / 1e3)
                        : json_null();
    return json_pack("{s:f, s:o, s:o}", "throughput_mbps", round(best * 1000) / 1000, "share_pct",
                     share, "runs", runs);
}
