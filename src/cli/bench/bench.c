/* SPDX-License-Identifier: BSD-2-Clause
 * `weir bench`: sets up both ends, runs the test, prints the result. */
#include "bench.h"
#include "bench_options.h"
#include "bench_sysctl.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define READY_S 20

/* All of a running bench; what is zero was not set up yet. */
struct bench {
    const struct bench_options *o;
    struct run run;
    struct net net[2];
    struct engine engine[2]; /* local, and the far one when it is here */
    struct remote *remote;
    struct bench_result result;
    struct ticker ticker;
    struct hist hist;
    char link[256];
    pthread_t signals, progress;
    bool signals_on, progress_on;
};

/* ---- signals and progress: threads, so that nothing else need be interruptible ---- */

static sigset_t end_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1); /* ends the thread itself */
    return set;
}

static void *signals_main(void *arg)
{
    struct bench *b = arg;
    sigset_t set = end_signals();
    for (int seen = 0, sig; sigwait(&set, &sig) == 0;) {
        if (sig == SIGUSR1)
            break;
        if (++seen > 1)
            _exit(128 + sig); /* asked twice: at once */
        run_stop(&b->run);
    }
    return NULL;
}

static void *progress_main(void *arg)
{
    struct bench *b = arg;
    const struct bench_params *p = &b->o->params;
    uint64_t start = clock_now_ns(), total = p->length_ns + p->omit_ns;
    bool shown = false;
    while (true) {
        struct timespec ts = {.tv_nsec = 200 * 1000 * 1000};
        nanosleep(&ts, NULL);
        pthread_mutex_lock(&b->run.mutex);
        bool over = b->run.stop || b->run.failed;
        pthread_mutex_unlock(&b->run.mutex);
        uint64_t t = clock_now_ns() - start;
        if (over || (p->length_ns > 0 && t >= total))
            break;
        if (t < 2 * NS_PER_S)
            continue;
        if (p->length_ns > 0)
            fprintf(stderr, "\r%.0f of %.0f s ", (double)t / 1e9, (double)total / 1e9);
        else
            fprintf(stderr, "\r%.0f s, SIGINT ends ", (double)t / 1e9);
        shown = true;
    }
    if (shown)
        fputs("\r                              \r", stderr);
    return NULL;
}

static void watch_start(struct bench *b)
{
    const struct bench_params *p = &b->o->params;
    sigset_t set = end_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any other thread is made: they inherit it */
    b->signals_on = pthread_create(&b->signals, NULL, signals_main, b) == 0;
    if (isatty(STDERR_FILENO) && !b->ticker.on &&
        (p->length_ns == 0 || p->length_ns + p->omit_ns > 2 * NS_PER_S))
        b->progress_on = pthread_create(&b->progress, NULL, progress_main, b) == 0;
}

static void watch_stop(struct bench *b)
{
    if (b->progress_on) {
        run_stop(&b->run);
        pthread_join(b->progress, NULL);
    }
    if (b->signals_on) {
        pthread_kill(b->signals, SIGUSR1);
        pthread_join(b->signals, NULL);
    }
    b->progress_on = b->signals_on = false;
}

/* ---- both ends ---- */

/* The k-th core this process may use; -1 where there are not two. */
static int core(int k)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < 2)
        return -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set) && k-- == 0)
            return i;
    return -1;
}

static bool setup_here(struct bench *b, char *err, size_t size)
{
    const struct bench_options *o = b->o;
    struct net_setup setup[2] = {
        {.kernel = o->kernel, .name = "bench-local", .link = o->link, .sets = &o->sets},
        {.kernel = o->kernel, .name = "bench-remote", .link = o->link, .sets = &o->remote_sets},
    };
    struct sockaddr_storage far, any;
    if (net_open_pair(b->net, setup, err, size) != 0 ||
        net_pair_address(o->kernel, o->link, o->family, &far, err, size) != 0)
        return false;
    any = far;
    if (engine_listen(&b->engine[1], &b->net[1], &b->run, &o->params, &any, core(1)) != 0)
        return false;
    return engine_connect(&b->engine[0], &b->net[0], &b->run, &o->params, &any, core(0)) == 0 &&
           engine_wait_ready(&b->engine[0], READY_S) && engine_wait_ready(&b->engine[1], READY_S);
}

static bool setup_there(struct bench *b, char *err, size_t size)
{
    const struct bench_options *o = b->o;
    struct net_setup setup = {
        .kernel = o->kernel, .name = "bench", .link = o->link, .sets = &o->sets};
    struct sockaddr_storage peer;
    if (net_open(&b->net[0], &setup, err, size) != 0)
        return false;
    b->remote = remote_open(&b->net[0], o->host, o->port, o->family, err, size);
    if (b->remote == NULL ||
        remote_start(b->remote, &o->params, &o->remote_sets, &peer, &b->result, err, size) != 0)
        return false;
    if (engine_connect(&b->engine[0], &b->net[0], &b->run, &o->params, &peer, -1) != 0 ||
        !engine_wait_ready(&b->engine[0], READY_S))
        return false;
    struct ticker *tick = result_counting_side(o->params.test) == 1 ? &b->ticker : NULL;
    return remote_go(b->remote, &b->run, &b->result.side[1], tick) == 0;
}

/* ---- running ---- */

static void take_sample(void *ctx, unsigned side, const struct sample *x, const uint64_t *streams)
{
    struct bench *b = ctx;
    if (!series_add(&b->result.side[side], x))
        run_fail(&b->run, "out of memory");
    if (side == result_counting_side(b->o->params.test))
        ticker_sample(&b->ticker, x, streams);
    if (side == 0 && b->result.side[0].count == 1) {
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        b->result.start_time = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
    }
}

static void note_refusals(struct bench *b)
{
    for (unsigned i = 0; i < 2; i++) {
        if (b->engine[i].cc_refused[0] == '\0')
            continue;
        json_array_append_new(b->result.warnings, json_string(b->engine[i].cc_refused));
        cli_warn("bench", "warning: %s", b->engine[i].cc_refused);
    }
}

static bool enough_samples(const struct bench *b)
{
    return b->result.side[0].count >= 2 &&
           b->result.side[result_counting_side(b->o->params.test)].count >= 2;
}

static bool run_test(struct bench *b)
{
    const struct bench_options *o = b->o;
    struct engine *engines[2] = {&b->engine[0], &b->engine[1]};
    struct bench_result *r = &b->result;
    run_measure(&b->run, engines, o->host == NULL ? 2 : 1, &o->params, take_sample, b);
    if (o->host != NULL && !run_has_failed(&b->run))
        (void)remote_finish(b->remote, &b->run, r);
    bool good = !run_has_failed(&b->run);
    r->sysctl = bench_sysctl_json(&b->net[0], &o->sets);
    if (o->host == NULL)
        r->sysctl_remote = bench_sysctl_json(&b->net[1], &o->remote_sets);
    r->sndbuf[0] = b->engine[0].sndbuf, r->rcvbuf[0] = b->engine[0].rcvbuf;
    if (o->host == NULL)
        r->sndbuf[1] = b->engine[1].sndbuf, r->rcvbuf[1] = b->engine[1].rcvbuf;
    note_refusals(b);
    return good;
}

static void teardown(struct bench *b)
{
    for (unsigned i = 0; i < 2;
         i++) /* all first: the one that ends sooner resets the other's connections */
        if (b->engine[i].run != NULL)
            atomic_store(&b->engine[i].phase, PHASE_STOP);
    for (unsigned i = 0; i < 2; i++)
        if (b->engine[i].run != NULL)
            engine_stop(&b->engine[i]);
    if (b->engine[0].worker != NULL && !bench_is_stream(b->o->params.test)) {
        hist_init(&b->hist);
        engine_hist(&b->engine[0], &b->hist);
        b->result.hist = &b->hist;
    }
    remote_close(b->remote);
    for (unsigned i = 0; i < 2; i++) {
        engine_free(&b->engine[i]);
        net_close(&b->net[i]);
    }
}

/* ---- what comes out ---- */

static int print_json(json_t *o)
{
    int e = json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    fputc('\n', stdout);
    json_decref(o);
    if (e != 0)
        return cli_fail("bench", "cannot write the result");
    return cli_flush("bench");
}

static int report_failure(const struct bench *b, const char *error)
{
    if (b->o->json)
        (void)print_json(json_pack("{s:s, s:s, s:s}", "test", bench_test_name[b->o->params.test],
                                   "stack", b->result.stack, "error", error));
    return cli_fail("bench", "%s", error);
}

static int report(struct bench *b)
{
    if (b->o->json)
        return print_json(result_json(&b->result));
    result_print(&b->result);
    return cli_flush("bench");
}

int cmd_bench(int argc, char **argv)
{
    static struct bench_options o;
    char err[256] = "";
    int status = bench_parse(argc, argv, &o);
    if (status >= 0)
        return status;
    struct bench *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return cli_fail("bench", "out of memory");
    b->o = &o;
    snprintf(b->link, sizeof(b->link), "%s",
             o.link != NULL       ? o.link
             : o.kernel && o.host ? "kernel"
             : o.kernel           ? "loopback"
                                  : "mem");
    b->result = (struct bench_result){.p = o.params,
                                      .stack = o.kernel ? "kernel" : "weir",
                                      .link = b->link,
                                      .host = o.host,
                                      .warnings = json_array()};
    b->ticker = (struct ticker){.p = &o.params, .on = o.params.interval_ns > 0 && !o.json};
    run_init(&b->run);
    watch_start(b);
    bool good = (o.host == NULL ? setup_here : setup_there)(b, err, sizeof(err)) && run_test(b);
    watch_stop(b);
    teardown(b);
    if (!good || !enough_samples(b))
        status = report_failure(b, err[0]            ? err
                                   : b->run.error[0] ? b->run.error
                                                     : "interrupted before it began");
    else
        status = report(b);
    for (unsigned i = 0; i < 2; i++)
        series_free(&b->result.side[i]);
    json_decref(b->result.warnings);
    json_decref(b->result.sysctl);
    json_decref(b->result.sysctl_remote);
    run_fini(&b->run);
    free(b);
    return status;
}
