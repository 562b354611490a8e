/* SPDX-License-Identifier: BSD-2-Clause
 * bench's end of the conversation with `weir server`. A thread reads what the server tells; the
 * run's condition is where both meet. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define REMOTE_PATIENCE_S 20

struct remote {
    struct lines lines;
    const struct net *net;
    struct sockaddr_storage peer;
    pthread_t reader;
    bool reading;
    struct run *run;
    struct series *series;
    struct ticker *tick;
    unsigned streams;
    json_t *result; /* under the run's mutex */
    bool over;      /* under the run's mutex: the reader has ended */
};

static void set_patience(const struct net *n, int fd, unsigned seconds)
{
    struct timeval tv = {.tv_sec = seconds};
    (void)n->ops->setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

struct remote *remote_open(const struct net *n, const char *host, uint16_t port, int family,
                           char *err, size_t size)
{
    struct remote *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        snprintf(err, size, "out of memory");
        return NULL;
    }
    m->net = n;
    m->lines.net = n;
    m->lines.fd = -1;
    socklen_t len = net_resolve(host, port, family, &m->peer, err, size);
    if (len == 0)
        goto fail;
    m->lines.fd = n->ops->socket(n->stack, m->peer.ss_family, SOCK_STREAM);
    if (m->lines.fd < 0) {
        snprintf(err, size, "socket: %s", strerror(errno));
        goto fail;
    }
    set_patience(n, m->lines.fd, REMOTE_PATIENCE_S);
    (void)net_set_nodelay(n, m->lines.fd);
    if (n->ops->connect(m->lines.fd, (struct sockaddr *)&m->peer, len) == 0)
        return m;
    snprintf(err, size, "cannot connect to %s port %u: %s", host, port, strerror(errno));
fail:
    remote_close(m);
    return NULL;
}

static void note_answer(const json_t *o, struct bench_result *result)
{
    const char *stack = json_string_value(json_object_get(o, "stack"));
    const json_t *warning = json_object_get(o, "warning");
    snprintf(result->remote_stack, sizeof(result->remote_stack), "%s", stack != NULL ? stack : "?");
    if (json_is_string(warning))
        json_array_append(result->warnings, (json_t *)(uintptr_t)warning);
}

int remote_start(struct remote *m, const struct bench_params *p, const struct settings *sets,
                 struct sockaddr_storage *peer, struct bench_result *result, char *err, size_t size)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < sets->count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", sets->v[i].name, "value", sets->v[i].value));
    m->streams = p->streams;
    if (lines_write(&m->lines, json_pack("{s:i, s:o, s:o}", "weir", PROTO_VERSION, "params",
                                         params_to_json(p), "set", list)) != 0) {
        snprintf(err, size, "control connection: %s", strerror(errno));
        return -1;
    }
    json_t *o = lines_read(&m->lines, err, size);
    if (o == NULL)
        return -1;
    const char *error = json_string_value(json_object_get(o, "error"));
    json_int_t port = json_integer_value(json_object_get(o, "port"));
    bool good = error == NULL && port > 0 && port <= UINT16_MAX;
    if (good) {
        note_answer(o, result);
        *peer = m->peer;
        net_sockaddr_set_port(peer, (uint16_t)port);
    } else {
        snprintf(err, size, "the server refuses: %s", error != NULL ? error : "no reason given");
    }
    json_decref(o);
    return good ? 0 : -1;
}

/* One line from the server. False: it was the last. */
static bool take_message(struct remote *m, const json_t *o)
{
    uint64_t streams[BENCH_MAX_STREAMS] = {0};
    struct sample x;
    const char *error = json_string_value(json_object_get(o, "error"));
    const json_t *s = json_object_get(o, "sample"), *result = json_object_get(o, "result");
    if (error != NULL) {
        run_fail(m->run, "the server failed: %s", error);
        return false;
    }
    if (json_is_object(result)) {
        pthread_mutex_lock(&m->run->mutex);
        m->result = json_incref((json_t *)(uintptr_t)result);
        pthread_mutex_unlock(&m->run->mutex);
        return false;
    }
    if (json_is_object(s) && sample_from_json(s, &x, streams, m->streams)) {
        if (!series_add(m->series, &x))
            run_fail(m->run, "out of memory");
        if (m->tick != NULL)
            ticker_sample(m->tick, &x, streams);
    }
    return true;
}

static void *reader_main(void *arg)
{
    struct remote *m = arg;
    char err[160];
    for (bool more = true; more;) {
        json_t *o = lines_read(&m->lines, err, sizeof(err));
        if (o == NULL) {
            run_fail(m->run, "%s", err);
            break;
        }
        more = take_message(m, o);
        json_decref(o);
    }
    pthread_mutex_lock(&m->run->mutex);
    m->over = true;
    pthread_cond_broadcast(&m->run->changed);
    pthread_mutex_unlock(&m->run->mutex);
    return NULL;
}

int remote_go(struct remote *m, struct run *r, struct series *series, struct ticker *tick)
{
    m->run = r;
    m->series = series;
    m->tick = tick;
    set_patience(m->net, m->lines.fd, 0); /* a test may be silent for as long as it takes */
    if (lines_write(&m->lines, json_pack("{s:s}", "op", "go")) != 0) {
        run_fail(r, "control connection: %s", strerror(errno));
        return -1;
    }
    int error = pthread_create(&m->reader, NULL, reader_main, m);
    if (error != 0) {
        run_fail(r, "cannot create a thread: %s", strerror(error));
        return -1;
    }
    m->reading = true;
    return 0;
}

bool remote_finish(struct remote *m, struct run *r, struct bench_result *result)
{
    uint64_t until = clock_now_ns() + REMOTE_PATIENCE_S * NS_PER_S;
    struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    /* A test of a given length ends by the server's own clock; otherwise, or when interrupted, we
     * say so. */
    pthread_mutex_lock(&r->mutex);
    bool tell = r->stop;
    pthread_mutex_unlock(&r->mutex);
    if (tell && lines_write(&m->lines, json_pack("{s:s}", "op", "stop")) != 0)
        run_fail(r, "control connection: %s", strerror(errno));
    pthread_mutex_lock(&r->mutex);
    while (!m->over && !r->failed && pthread_cond_timedwait(&r->changed, &r->mutex, &ts) == 0)
        continue;
    json_t *o = m->result;
    bool failed = r->failed;
    pthread_mutex_unlock(&r->mutex);
    if (o == NULL || failed) {
        if (!failed)
            run_fail(r, "the server did not send its result in time");
        return false;
    }
    result->sndbuf[1] = (uint32_t)json_integer_value(json_object_get(o, "sndbuf"));
    result->rcvbuf[1] = (uint32_t)json_integer_value(json_object_get(o, "rcvbuf"));
    result->sysctl_remote = json_incref(json_object_get(o, "sysctl"));
    return true;
}

void remote_close(struct remote *m)
{
    if (m == NULL)
        return;
    if (m->lines.fd >= 0)
        (void)m->net->ops->shutdown(m->lines.fd, SHUT_RDWR);
    if (m->reading)
        pthread_join(m->reader, NULL);
    if (m->lines.fd >= 0)
        m->net->ops->close(m->lines.fd);
    json_decref(m->result);
    free(m);
}
