/* SPDX-License-Identifier: BSD-2-Clause
 * The clock of a test: warm-up, interval boundaries, and every way it may end. */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool series_add(struct series *s, const struct sample *x)
{
    if (s->count == BENCH_MAX_SAMPLES) {
        s->v[s->count - 1] = *x;
        return true;
    }
    if (s->count == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 64;
        struct sample *bigger = reallocarray(s->v, room, sizeof(*bigger));
        if (bigger == NULL)
            return false;
        s->v = bigger;
        s->room = room;
    }
    s->v[s->count++] = *x;
    return true;
}

void series_free(struct series *s)
{
    free(s->v);
    *s = (struct series){0};
}

void run_init(struct run *r)
{
    pthread_condattr_t attr;
    *r = (struct run){0};
    pthread_mutex_init(&r->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void run_fini(struct run *r)
{
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
}

void run_stop(struct run *r)
{
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

void run_fail(struct run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&r->mutex);
    if (!r->failed)
        vsnprintf(r->error, sizeof(r->error), fmt, ap);
    r->failed = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    va_end(ap);
}

bool run_has_failed(struct run *r)
{
    pthread_mutex_lock(&r->mutex);
    bool failed = r->failed;
    pthread_mutex_unlock(&r->mutex);
    return failed;
}

/* Sleep until a moment. False: the run is to end now. */
static bool wait_until(struct run *r, uint64_t at_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(at_ns / NS_PER_S),
                          .tv_nsec = (long)(at_ns % NS_PER_S)};
    pthread_mutex_lock(&r->mutex);
    while (!r->stop && !r->failed && clock_now_ns() < at_ns) {
        if (at_ns == TIME_NEVER)
            pthread_cond_wait(&r->changed, &r->mutex);
        else
            pthread_cond_timedwait(&r->changed, &r->mutex, &ts);
    }
    bool go_on = !r->stop && !r->failed;
    pthread_mutex_unlock(&r->mutex);
    return go_on;
}

static void sample_all(struct engine *const *e, unsigned engines, run_sample_fn *fn, void *ctx)
{
    uint64_t streams[BENCH_MAX_STREAMS];
    struct sample x;
    for (unsigned i = 0; i < engines; i++) {
        engine_sample(e[i], &x, streams);
        fn(ctx, i, &x, streams);
    }
}

void run_measure(struct run *r, struct engine *const *e, unsigned engines,
                 const struct bench_params *p, run_sample_fn *fn, void *ctx)
{
    bool go_on = p->omit_ns == 0 || wait_until(r, clock_now_ns() + p->omit_ns);
    for (unsigned i = 0; i < engines; i++)
        atomic_store(&e[i]->phase, PHASE_MEASURE);
    uint64_t base = clock_now_ns(), next = base;
    uint64_t end = p->length_ns > 0 ? base + p->length_ns : TIME_NEVER;
    sample_all(e, engines, fn, ctx);
    while (go_on && next < end) {
        uint64_t step = p->interval_ns > 0 ? p->interval_ns : TIME_NEVER - next;
        next = step < end - next ? next + step : end;
        go_on = wait_until(r, next);
        if (run_has_failed(r))
            return;
        sample_all(e, engines, fn, ctx);
    }
    if (!go_on && p->omit_ns > 0 && next == base)
        sample_all(e, engines, fn, ctx); /* stopped while warming up: an empty interval, but one */
}
