/* SPDX-License-Identifier: BSD-2-Clause
 * One side of a test: its threads, connections and totals. */
#include "bench.h"

#include "base/stack.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define STOP_GRACE_NS (NS_PER_S / 2) /* before connections are cut */

static uint64_t thread_cpu_ns(pthread_t t)
{
    clockid_t clock;
    struct timespec ts;
    if (pthread_getcpuclockid(t, &clock) != 0 || clock_gettime(clock, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

bool engine_failed(struct worker *w, const char *what)
{
    int e = errno;
    if (atomic_load(&w->engine->phase) != PHASE_STOP)
        run_fail(w->engine->run, "%s: %s", what,
                 e != 0 ? strerror(e) : "the other end closed the connection");
    return false;
}

int engine_prepare(struct engine *e, int fd)
{
    const struct net *n = e->net;
    int size = (int)e->p.sockbuf;
    if (size > 0 && (net_set_int(n, fd, SOL_SOCKET, SO_SNDBUF, size) != 0 ||
                     net_set_int(n, fd, SOL_SOCKET, SO_RCVBUF, size) != 0))
        return -1;
    if (bench_is_udp(e->p.test))
        return 0;
    if (e->p.nodelay && net_set_nodelay(n, fd) != 0)
        return -1;
    if (e->p.cc[0] != '\0' && net_set_cc(n, fd, e->p.cc) != 0) {
        if (e->p.cc_asked) {
            run_fail(e->run, "the %s stack refused congestion control %s: %s", n->ops->name,
                     e->p.cc, strerror(errno));
            return -1;
        }
        pthread_mutex_lock(&e->mutex);
        if (e->cc_refused[0] == '\0')
            snprintf(e->cc_refused, sizeof(e->cc_refused),
                     "the %s stack refused congestion control %s: %s", n->ops->name, e->p.cc,
                     strerror(errno));
        pthread_mutex_unlock(&e->mutex);
    }
    return 0;
}

static void note_buffers(struct engine *e, int fd)
{
    int v;
    socklen_t len = sizeof(v);
    if (e->net->ops->getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &v, &len) == 0)
        e->sndbuf = (uint32_t)v;
    len = sizeof(v);
    if (e->net->ops->getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, &len) == 0)
        e->rcvbuf = (uint32_t)v;
}

bool worker_stopping(const struct worker *w)
{
    return atomic_load_explicit(&w->engine->phase, memory_order_relaxed) == PHASE_STOP;
}

void stream_publish(struct worker *w, struct stream *s, int fd)
{
    struct engine *e = w->engine;
    pthread_mutex_lock(&e->mutex);
    s->fd = fd;
    if (s == e->stream && !s->published)
        note_buffers(e, fd);
    e->ready += !s->published;
    s->published = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

bool stream_hold(struct worker *w, struct stream *s, int fd)
{
    struct engine *e = w->engine;
    pthread_mutex_lock(&e->mutex);
    s->fd = fd;
    /* Whoever stops sets the phase, then cuts what is held: one of the two sees the other. */
    bool going_on = atomic_load(&e->phase) != PHASE_STOP;
    pthread_mutex_unlock(&e->mutex);
    return going_on;
}

void stream_add_transaction(struct worker *w, struct stream *s, uint64_t began_ns, uint64_t now_ns)
{
    const struct engine *e = w->engine;
    if (began_ns > 0 && atomic_load_explicit(&e->phase, memory_order_relaxed) == PHASE_MEASURE)
        hist_add(&w->hist, (int64_t)(now_ns - began_ns));
    stream_add_bytes(s, (uint64_t)e->p.request + e->p.response);
    STORE_RELAXED(&s->transactions, LOAD_RELAXED(&s->transactions) + 1);
}

/* A benchmark's result is taken before its connections end, so they are cut: nothing is left in
 * TIME_WAIT, and a slow link need not be drained. */
static void stream_cut(struct engine *e, struct stream *s)
{
    struct linger cut = {.l_onoff = 1, .l_linger = 0};
    pthread_mutex_lock(&e->mutex);
    int fd = s->fd;
    s->fd = -1;
    pthread_mutex_unlock(&e->mutex);
    if (fd < 0)
        return;
    (void)e->net->ops->setsockopt(fd, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut));
    e->net->ops->close(fd);
}

static void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set),
                            &set); /* a wish: without it the test runs all the same */
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct engine *e = w->engine;
    STORE_RELAXED(&w->tid, gettid());
    pin(e->cpu);
    if (bench_is_udp(e->p.test))
        (void)worker_udp(w);
    else
        (void)(w->streams > 1 ? worker_events(w) : worker_role(w));
    for (unsigned i = 0; i < w->streams; i++)
        stream_cut(e, &w->stream[i]);
    pthread_mutex_lock(&e->mutex);
    w->cpu_ns = thread_cpu_ns(pthread_self());
    w->ended = true;
    e->ended++;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

static void engine_init(struct engine *e, const struct net *n, struct run *r,
                        const struct bench_params *p, int cpu)
{
    pthread_condattr_t attr;
    *e = (struct engine){.net = n, .p = *p, .run = r, .cpu = cpu, .listen_fd = -1};
    pthread_mutex_init(&e->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static size_t buffer_size(const struct bench_params *p)
{
    if (bench_is_udp(p->test))
        return 65536;
    size_t n =
        bench_is_stream(p->test) ? MAX(p->message, p->receive) : MAX(p->request, p->response);
    return (MAX(n, (size_t)4096) + 4095) & ~(size_t)4095;
}

static int start_workers(struct engine *e)
{
    size_t size = buffer_size(&e->p);
    if (e->net->stack != NULL)
        e->counter_base = COUNTER_READ(e->net->stack, tcp_tx_rexmt);
    bool one = e->p.streams > BENCH_MAX_THREADS || (bench_is_udp(e->p.test) && !e->active);
    unsigned each = one ? e->p.streams : 1;
    if (bench_is_udp(e->p.test))
        e->udp = calloc(e->p.streams, sizeof(*e->udp));
    if (e->p.verify)
        e->pattern = pattern_create(e->p.cookie, size);
    e->workers = e->p.streams / each;
    e->stream = aligned_alloc(CACHE_LINE, e->p.streams * sizeof(struct stream));
    e->worker = calloc(e->workers, sizeof(struct worker));
    if (e->stream == NULL || e->worker == NULL || (e->p.verify && e->pattern == NULL) ||
        (bench_is_udp(e->p.test) && e->udp == NULL)) {
        run_fail(e->run, "out of memory");
        return -1;
    }
    for (unsigned i = 0; i < e->p.streams; i++)
        e->stream[i] = (struct stream){.fd = -1};
    for (unsigned i = 0; i < e->workers; i++) {
        struct worker *w = &e->worker[i];
        w->engine = e;
        w->stream = &e->stream[i * each];
        w->streams = each;
        hist_init(&w->hist);
        w->buf_size = size;
        w->buf = aligned_alloc(4096, size);
        if (w->buf == NULL) {
            run_fail(e->run, "out of memory");
            return -1;
        }
        for (size_t k = 0; k < size; k++)
            w->buf[k] = (char)(k * 31 + i);
        int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error != 0) {
            run_fail(e->run, "cannot create a thread: %s", strerror(error));
            return -1;
        }
        w->started = true;
    }
    return 0;
}

int engine_listen(struct engine *e, const struct net *n, struct run *r,
                  const struct bench_params *p, struct sockaddr_storage *sa, int cpu)
{
    socklen_t len = sizeof(*sa);
    engine_init(e, n, r, p, cpu);
    bool udp = bench_is_udp(p->test);
    int type =
        udp ? SOCK_DGRAM : SOCK_STREAM | (p->streams > BENCH_MAX_THREADS ? SOCK_NONBLOCK : 0);
    int fd = n->ops->socket(n->stack, sa->ss_family, type);
    if (fd < 0) {
        run_fail(r, "socket: %s", strerror(errno));
        return -1;
    }
    e->listen_fd = fd;
    (void)net_set_int(n, fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (engine_prepare(e, fd) != 0) {
        run_fail(r, "the far end refused an option of its sockets: %s", strerror(errno));
        return -1;
    }
    if (n->ops->bind(fd, (struct sockaddr *)sa, net_sockaddr_len(sa)) != 0 ||
        (!udp && n->ops->listen(fd, (int)MAX(p->streams, 16u)) != 0) ||
        n->ops->getsockname(fd, (struct sockaddr *)sa, &len) != 0) {
        run_fail(r, "listen: %s", strerror(errno));
        return -1;
    }
    return start_workers(e);
}

int engine_connect(struct engine *e, const struct net *n, struct run *r,
                   const struct bench_params *p, const struct sockaddr_storage *peer, int cpu)
{
    engine_init(e, n, r, p, cpu);
    e->active = true;
    e->peer = *peer;
    return start_workers(e);
}

bool engine_wait_ready(struct engine *e, unsigned seconds)
{
    uint64_t deadline = clock_now_ns() + seconds * NS_PER_S;
    bool ready;
    while (true) {
        uint64_t until = MIN(clock_now_ns() + NS_PER_S / 20, deadline);
        struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                              .tv_nsec = (long)(until % NS_PER_S)};
        pthread_mutex_lock(&e->mutex);
        if (e->ready < e->p.streams && e->ended == 0)
            pthread_cond_timedwait(&e->changed, &e->mutex, &ts);
        ready = e->ready >= e->p.streams;
        pthread_mutex_unlock(&e->mutex);
        pthread_mutex_lock(&e->run->mutex);
        bool over = e->run->failed || e->run->stop;
        pthread_mutex_unlock(&e->run->mutex);
        if (over)
            return false;
        if (ready)
            return true;
        if (clock_now_ns() >= deadline) {
            run_fail(e->run, "no connection within %u s", seconds);
            return false;
        }
    }
}

/* Retransmissions and windows: of the connections that live, or, where they come and go, of the
 * whole stack. */
static void sample_tcp(struct engine *e, struct sample *x)
{
    struct net_tcp_info ti;
    if (bench_is_udp(e->p.test)) {
        udp_sample(e, x);
        return;
    }
    unsigned known = 0;
    uint64_t rtt = 0;
    for (unsigned i = 0; e->p.test != TCP_CRR && i < e->p.streams; i++) {
        if (e->stream[i].fd < 0 || !net_tcp_info(e->net, e->stream[i].fd, &ti))
            continue;
        known++;
        x->retransmits += ti.retransmits;
        x->cwnd_bytes += ti.cwnd_bytes;
        rtt += ti.rtt_us;
    }
    if (known > 0) {
        x->rtt_us = rtt / known;
        x->have_tcp = true;
    } else if (e->net->stack != NULL && e->p.test == TCP_CRR) {
        x->retransmits = COUNTER_READ(e->net->stack, tcp_tx_rexmt) - e->counter_base;
        x->have_tcp = true;
    }
}

void engine_sample(struct engine *e, struct sample *x, uint64_t *streams)
{
    *x = (struct sample){.at_ns = clock_now_ns()};
    for (unsigned i = 0; i < e->p.streams; i++) {
        struct stream *s = &e->stream[i];
        streams[i] = LOAD_RELAXED(&s->bytes);
        x->bytes += streams[i];
        x->transactions += LOAD_RELAXED(&s->transactions);
    }
    pthread_mutex_lock(&e->mutex); /* threads stay, descriptors stay */
    for (unsigned i = 0; i < e->workers; i++) {
        struct worker *w = &e->worker[i];
        x->cpu_ns += w->ended ? w->cpu_ns : thread_cpu_ns(w->thread);
    }
    sample_tcp(e, x);
    pthread_mutex_unlock(&e->mutex);
    x->cpu_ns += net_stack_cpu_ns(e->net);
}

/* Shut what threads may be blocked in; shutdown() is the one call that wakes them on both stacks.
 */
static void cut_all(struct engine *e)
{
    pthread_mutex_lock(&e->mutex);
    for (unsigned i = 0; i < e->p.streams; i++)
        if (e->stream[i].fd >= 0)
            (void)e->net->ops->shutdown(e->stream[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&e->mutex);
    if (e->listen_fd >= 0)
        (void)e->net->ops->shutdown(e->listen_fd, SHUT_RDWR);
}

void engine_stop(struct engine *e)
{
    unsigned started = 0;
    atomic_store(&e->phase, PHASE_STOP);
    for (unsigned i = 0; e->worker != NULL && i < e->workers; i++)
        started += e->worker[i].started;
    if (started > 0) {
        uint64_t until =
            clock_now_ns() + (run_has_failed(e->run) || !e->active ? 0 : STOP_GRACE_NS);
        struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                              .tv_nsec = (long)(until % NS_PER_S)};
        pthread_mutex_lock(&e->mutex);
        while (e->ended < started && pthread_cond_timedwait(&e->changed, &e->mutex, &ts) == 0)
            continue;
        bool all = e->ended == started;
        pthread_mutex_unlock(&e->mutex);
        if (!all)
            cut_all(e);
    }
    for (unsigned i = 0; e->worker != NULL && i < e->workers; i++)
        if (e->worker[i].started)
            pthread_join(e->worker[i].thread, NULL);
    if (e->listen_fd >= 0)
        e->net->ops->close(e->listen_fd);
    e->listen_fd = -1;
}

void engine_hist(const struct engine *e, struct hist *out)
{
    for (unsigned i = 0; i < e->workers; i++)
        hist_merge(out, &e->worker[i].hist);
}

void engine_free(struct engine *e)
{
    if (e->run == NULL)
        return;
    for (unsigned i = 0; e->worker != NULL && i < e->workers; i++)
        free(e->worker[i].buf);
    free(e->worker);
    free(e->stream);
    free(e->udp);
    free(e->pattern);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->mutex);
    *e = (struct engine){0};
}
