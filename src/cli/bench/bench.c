/* SPDX-License-Identifier: BSD-2-Clause
 * `weir bench`: sets up both ends, runs the test, prints the result. */
#include "bench.h"
#include "bench_extra.h"
#include "bench_options.h"
#include "bench_sysctl.h"
#include "cli/ab/ab.h"
#include "cli/results/store.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define READY_S 20
#define LIMIT_RUN_NS (NS_PER_S / 5)

/* All of a running bench; what is zero was not set up yet. */
struct bench {
    const struct bench_options *o;
    struct run run;
    struct net net[2];
    struct engine engine[2]; /* local, and the far one when it is here */
    struct remote *remote;
    struct bench_result result;
    struct record record;
    struct ticker ticker;
    struct hist hist;
    char link[256];
    struct lock_counts locks_from, locks_to;
    struct cpu_counts cpu_from, cpu_to;
    struct limit limit;
    int cpu[2];
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

/* Runs of the bare pipeline, in front of the test and after it. */
static void run_limit(struct bench *b, unsigned runs, uint64_t each_ns)
{
    while (runs-- > 0 && b->limit.runs < LIMIT_RUNS) {
        pthread_mutex_lock(&b->run.mutex);
        bool over = b->run.stop || b->run.failed;
        pthread_mutex_unlock(&b->run.mutex);
        double mbps = over ? 0 : limit_measure(b->o->params.message, b->cpu, each_ns);
        if (mbps > 0)
            b->limit.run_mbps[b->limit.runs++] = mbps;
    }
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
    for (unsigned i = 0; i < 2; i++)
        if (o->stack_cpu[i] >= 0 && net_stack_pin(&b->net[i], o->stack_cpu[i]) != 0) {
            snprintf(err, size, "cannot bind a stack's thread to core %d", o->stack_cpu[i]);
            return false;
        }
    any = far;
    if (engine_listen(&b->engine[1], &b->net[1], &b->run, &o->params, &any, b->cpu[1]) != 0)
        return false;
    return engine_connect(&b->engine[0], &b->net[0], &b->run, &o->params, &any, b->cpu[0]) == 0 &&
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
    if (o->stack_cpu[0] >= 0)
        (void)net_stack_pin(&b->net[0], o->stack_cpu[0]);
    if (engine_connect(&b->engine[0], &b->net[0], &b->run, &o->params, &peer,
                       o->cpu[0] >= 0 ? o->cpu[0] : -1) != 0 ||
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
    if (side == 0 && !b->o->kernel && cputime_on())
        cpu_take(b->result.side[0].count == 1 ? &b->cpu_from : &b->cpu_to,
                 (const struct engine *const[2]){&b->engine[0], &b->engine[1]});
    if (side == 0 && b->o->locks)
        locks_snapshot(b->result.side[0].count == 1 ? &b->locks_from : &b->locks_to);
    if (side == 0 && b->o->locks && b->result.side[0].count == 1)
        locks_profile_begin();
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
    r->siftr = bench_siftr_json(&b->net[0]);
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

/* After the output: a store that fails costs no result. Consumes the document. */
static int keep(struct bench *b, int status, json_t *doc)
{
    record_sample(&b->record, 0, "", 1, metric_default(doc), doc);
    record_end(&b->record, false, NULL);
    json_decref(doc);
    return status;
}

static int report_failure(const struct bench *b, int status, const char *error)
{
    if (b->o->json)
        (void)print_json(json_pack("{s:s, s:s, s:s}", "test", bench_test_name[b->o->params.test],
                                   "stack", b->result.stack, "error", error));
    return status == CLI_USAGE ? cli_usage("bench", "%s", error) : cli_fail("bench", "%s", error);
}

/* Transactions of the measured part; 0 for streams. */
static double measured_transactions(const struct bench *b)
{
    const struct series *c = &b->result.side[0];
    return bench_is_stream(b->o->params.test)
               ? 0
               : (double)(c->v[c->count - 1].transactions - c->v[0].transactions);
}

/* Payload of the measured part, and its rate in Mb/s. */
static uint64_t measured_bytes(const struct bench *b, double *mbps)
{
    const struct series *c = &b->result.side[result_counting_side(b->o->params.test)];
    const struct sample *first = &c->v[0], *last = &c->v[c->count - 1];
    uint64_t ns = last->at_ns - first->at_ns;
    *mbps = ns > 0 ? (double)(last->bytes - first->bytes) * 8e3 / (double)ns : NAN;
    return last->bytes - first->bytes;
}

static int report(struct bench *b)
{
    const struct bench_options *o = b->o;
    struct ticker *t = &b->ticker;
    for (unsigned i = 0; i < o->params.streams; i++)
        t->first_stream[i] = t->last_stream[i] - t->first_stream[i];
    b->result.stream_bytes = t->started ? t->first_stream : NULL;
    double mbps;
    uint64_t bytes = measured_bytes(b, &mbps);
    if (!bench_is_stream(o->params.test))
        mbps = NAN;
    bool cpu = b->cpu_to.mode != CPUTIME_OFF, here = o->host == NULL;
    double trans = measured_transactions(b);
    cpu_subtract(&b->cpu_to, &b->cpu_from);
    json_t *doc = b->record.on || o->json ? result_json(&b->result) : NULL;
    if (doc != NULL) {
        if (o->limit)
            json_object_set_new(doc, "limit", limit_json(&b->limit, mbps));
        if (o->locks)
            json_object_set_new(doc, "locks", locks_json(&b->locks_from, &b->locks_to, bytes));
        json_t *profile = o->locks ? locks_profile_json() : NULL;
        if (profile != NULL)
            json_object_set_new(doc, "lock_profile", profile);
        if (cpu)
            json_object_set_new(doc, "cputime", cpu_json(&b->cpu_to, here, trans));
    }
    if (o->json)
        return keep(b, print_json(json_incref(doc)), doc);
    result_print(&b->result);
    if (cpu)
        cpu_print(&b->cpu_to, here, trans);
    if (o->limit && limit_best(&b->limit) > 0)
        printf("\nLimit: two copies between the same cores reach %.2f Mb/s at best",
               limit_best(&b->limit));
    if (o->limit && limit_best(&b->limit) > 0 && isfinite(mbps))
        printf("; this is %.1f %% of it", 100 * mbps / limit_best(&b->limit));
    if (o->limit)
        printf("\n");
    if (o->locks)
        locks_print(&b->locks_from, &b->locks_to, bytes);
    if (o->locks)
        locks_profile_print();
    int status = cli_flush("bench");
    return doc != NULL ? keep(b, status, doc) : status;
}

/* The limit alone: -l is the time of all its runs. */
static int run_pipe(struct bench *b)
{
    const struct bench_params *p = &b->o->params;
    run_limit(b, LIMIT_RUNS, MAX(p->length_ns / LIMIT_RUNS, NS_PER_MS));
    watch_stop(b);
    if (b->limit.runs == 0)
        return cli_fail("bench", "no run of the pipeline was completed");
    double best = limit_best(&b->limit);
    if (b->o->json) {
        json_t *doc = limit_json(&b->limit, NAN);
        json_object_del(doc, "share_pct");
        json_object_set_new(doc, "test", json_string("PIPE"));
        json_object_set_new(doc, "message_bytes", json_integer(p->message));
        return print_json(doc);
    }
    printf("PIPE: two copies between two cores, %d buffers of %u bytes, messages of %" PRIu32
           " bytes, best of %u: %.2f 10^6bits/s\n",
           LIMIT_BUFFERS, LIMIT_BUFFER_BYTES, p->message, b->limit.runs, best);
    return cli_flush("bench");
}

/* The test, with the limit of the machine in front and after it where that was asked for. */
static int run_bench(struct bench *b)
{
    const struct bench_options *o = b->o;
    char err[256] = "";
    const struct net_setup near = {.kernel = o->kernel,
                                   .link = o->link,
                                   .sets = &o->sets,
                                   .cc = o->params.cc_asked ? o->params.cc : NULL},
                           far = {.kernel = o->kernel, .sets = &o->remote_sets};
    if (!net_check(&near, err, sizeof(err)) || !net_check(&far, err, sizeof(err))) {
        watch_stop(b);
        return report_failure(b, CLI_USAGE, err);
    }
    if (o->limit)
        run_limit(b, LIMIT_RUNS / 2, LIMIT_RUN_NS);
    bool good = (o->host == NULL ? setup_here : setup_there)(b, err, sizeof(err)) && run_test(b);
    teardown(b);
    if (good && o->limit)
        run_limit(b, LIMIT_RUNS, LIMIT_RUN_NS);
    watch_stop(b);
    if (good && enough_samples(b))
        return report(b);
    return report_failure(b, CLI_FAILED,
                          err[0]            ? err
                          : b->run.error[0] ? b->run.error
                                            : "interrupted before it began");
}

int cmd_bench(int argc, char **argv)
{
    static struct bench_options o;
    char err[256];
    struct record record = {0};
    record_command(&record, argc, argv);
    int status = bench_parse(argc, argv, &o);
    if (status == CLI_OK) {
        fputs(bench_help, stdout);
        return cli_flush("bench");
    }
    if (status > 0)
        return status;
    if (o.params.test == TCP_SENDFILE && !bench_file_open(o.file, &o.params, err, sizeof(err)))
        return cli_fail("bench", "%s", err);
    if (getrandom(&o.params.cookie, sizeof(o.params.cookie), 0) < 0)
        o.params.cookie = clock_now_ns();
    o.params.cookie >>= 1; /* JSON's integers have a sign */
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
    b->record = record;
    record_begin(&b->record, !o.no_store && !o.pipe, "bench", bench_test_name[o.params.test]);
    run_init(&b->run);
    for (int i = 0; i < 2; i++)
        b->cpu[i] = o.cpu[i] >= 0 ? o.cpu[i] : core(i);
    watch_start(b);
    status = o.pipe ? run_pipe(b) : run_bench(b);
    for (unsigned i = 0; i < 2; i++)
        series_free(&b->result.side[i]);
    json_decref(b->result.warnings);
    json_decref(b->result.sysctl);
    json_decref(b->result.siftr);
    json_decref(b->result.sysctl_remote);
    run_fini(&b->run);
    free(b);
    return status;
}
