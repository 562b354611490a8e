/* SPDX-License-Identifier: BSD-2-Clause
 * What the thread of a stream does: netperf's tests, in blocking calls. */
#include "bench.h"

static int connect_one(struct worker *w)
{
    struct engine *e = w->engine;
    const struct net *n = e->net;
    int fd = n->ops->socket(n->stack, e->peer.ss_family, SOCK_STREAM);
    if (fd < 0) {
        engine_failed(w, "socket");
        return -1;
    }
    if (engine_prepare(e, fd) != 0) {
        engine_failed(w, "socket options");
    } else if (n->ops->connect(fd, (struct sockaddr *)&e->peer, net_sockaddr_len(&e->peer)) != 0) {
        engine_failed(w, "connect");
    } else {
        return fd;
    }
    n->ops->close(fd);
    return -1;
}

static int accept_one(struct worker *w)
{
    int fd;
    do {
        fd = w->engine->net->ops->accept(w->engine->listen_fd, NULL, NULL, 0);
    } while (fd < 0 && !worker_stopping(w) && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        engine_failed(w, "accept");
    return fd;
}

static bool send_stream(struct worker *w, int fd)
{
    const struct net *n = w->engine->net;
    size_t size = w->engine->p.message;
    while (!worker_stopping(w)) {
        const char *from = w->engine->p.verify
                               ? pattern_at(w->engine->pattern, LOAD_RELAXED(&w->stream->bytes))
                               : w->buf;
        ssize_t r = n->ops->send(fd, from, size, 0);
        if (r < 0 && errno != EINTR)
            return engine_failed(w, "send");
        if (r > 0)
            stream_add_bytes(w->stream, (uint64_t)r);
    }
    return true;
}

/* How a receiver waits: in the call, or by asking over and over. */
static int receive_flags(const struct engine *e)
{
    return e->p.spin && e->net->stack == NULL ? MSG_DONTWAIT : 0;
}

/* The file over and over, from where the last call stopped. */
static bool send_file(struct worker *w, int fd)
{
    const struct net *n = w->engine->net;
    const struct bench_params *p = &w->engine->p;
    off_t at = 0;
    while (!worker_stopping(w)) {
        uint64_t left = p->file_bytes - (uint64_t)at;
        size_t want = p->file_call > 0 ? (size_t)MIN(left, (uint64_t)p->file_call) : (size_t)left;
        ssize_t r = n->ops->sendfile(fd, p->file_fd, &at, want);
        if (r == 0)
            errno = ENODATA; /* it has become shorter */
        if (r == 0 || (r < 0 && errno != EINTR))
            return engine_failed(w, "sendfile");
        stream_add_bytes(w->stream, r > 0 ? (uint64_t)r : 0);
        if ((uint64_t)at >= p->file_bytes)
            at = 0;
    }
    return true;
}

static bool receive_stream(struct worker *w, int fd)
{
    const struct net *n = w->engine->net;
    size_t size = w->engine->p.receive > 0 ? w->engine->p.receive : w->engine->p.message;
    int flags = receive_flags(w->engine);
    while (!worker_stopping(w)) {
        ssize_t r = n->ops->recv(fd, w->buf, size, flags);
        if (r < 0 && flags != 0 && errno == EAGAIN)
            continue;
        if (r == 0)
            errno = 0;
        if (r == 0 || (r < 0 && errno != EINTR))
            return engine_failed(w, "receive");
        if (r > 0 && w->engine->p.verify &&
            !pattern_check(w->engine, w->buf, (size_t)r, LOAD_RELAXED(&w->stream->bytes)))
            return false;
        if (r > 0)
            stream_add_bytes(w->stream, (uint64_t)r);
    }
    return true;
}

/* 1: all of it; 0: the end came before the first byte; -1: error. */
static int receive_all(struct worker *w, int fd, size_t len)
{
    const struct net *n = w->engine->net;
    size_t got = 0;
    int flags = receive_flags(w->engine);
    while (got < len) {
        ssize_t r = n->ops->recv(fd, w->buf + got, len - got, flags);
        if (r < 0 && (errno == EINTR || (flags != 0 && errno == EAGAIN && !worker_stopping(w))))
            continue;
        if (r <= 0) {
            if (r == 0)
                errno = 0;
            return r == 0 && got == 0 ? 0 : -1;
        }
        got += (size_t)r;
    }
    return 1;
}

static bool converse(struct worker *w, int fd)
{
    const struct bench_params *p = &w->engine->p;
    const struct net *n = w->engine->net;
    uint64_t before = clock_now_ns();
    while (!worker_stopping(w)) {
        if (net_send_all(n, fd, w->buf, p->request) != 0)
            return engine_failed(w, "send");
        if (receive_all(w, fd, p->response) != 1)
            return engine_failed(w, "receive");
        uint64_t after = clock_now_ns();
        stream_add_transaction(w, w->stream, before, after);
        before = after;
    }
    return true;
}

/* Answers until the peer closes. */
static bool respond(struct worker *w, int fd)
{
    const struct bench_params *p = &w->engine->p;
    const struct net *n = w->engine->net;
    while (!worker_stopping(w)) {
        if (receive_all(w, fd, p->request) != 1)
            return engine_failed(w, "receive");
        if (net_send_all(n, fd, w->buf, p->response) != 0)
            return engine_failed(w, "send");
        stream_add_transaction(w, w->stream, 0, 0);
    }
    return true;
}

/* Connect, request, response, close. The responder closes first, so that the connecting side's
 * ports come free at once and TIME_WAIT is where a new SYN may end it (RFC 6191). */
static bool connect_and_converse(struct worker *w)
{
    const struct bench_params *p = &w->engine->p;
    const struct net *n = w->engine->net;
    while (!worker_stopping(w)) {
        uint64_t before = clock_now_ns();
        int fd = connect_one(w);
        if (fd < 0)
            return false;
        if (LOAD_RELAXED(&w->stream->transactions) == 0)
            stream_publish(w, w->stream, fd);
        if (!stream_hold(w, w->stream, fd)) { /* nobody may be left to answer */
            stream_hold(w, w->stream, -1);
            n->ops->close(fd);
            return true;
        }
        bool sent = net_send_all(n, fd, w->buf, p->request) == 0;
        bool good =
            sent && receive_all(w, fd, p->response) == 1 && n->ops->recv(fd, w->buf, 1, 0) == 0;
        if (!good)
            engine_failed(w, sent ? "receive" : "send");
        stream_hold(w, w->stream, -1);
        n->ops->close(fd);
        if (!good)
            return false;
        stream_add_transaction(w, w->stream, before, clock_now_ns());
    }
    return true;
}

static bool accept_and_respond(struct worker *w)
{
    const struct bench_params *p = &w->engine->p;
    const struct net *n = w->engine->net;
    bool first = true;
    while (!worker_stopping(w)) {
        int fd = accept_one(w);
        if (fd < 0)
            return false;
        if (first)
            stream_publish(w, w->stream, fd);
        bool good = stream_hold(w, w->stream, fd) && receive_all(w, fd, p->request) == 1 &&
                    net_send_all(n, fd, w->buf, p->response) == 0;
        stream_hold(w, w->stream, -1);
        first = false;
        n->ops->close(fd);
        if (good) /* one that its client gave up is the client's to report */
            stream_add_transaction(w, w->stream, 0, 0);
    }
    return true;
}

bool worker_role(struct worker *w)
{
    const struct engine *e = w->engine;
    enum bench_test t = e->p.test;
    if (t == TCP_CRR)
        return e->active ? connect_and_converse(w) : accept_and_respond(w);
    int fd = e->active ? connect_one(w) : accept_one(w);
    if (fd < 0)
        return false;
    stream_publish(w, w->stream, fd);
    if (t == TCP_RR)
        return e->active ? converse(w, fd) : respond(w, fd);
    if (t == TCP_SENDFILE)
        return e->active ? send_file(w, fd) : receive_stream(w, fd);
    return e->active == (t == TCP_STREAM) ? send_stream(w, fd) : receive_stream(w, fd);
}
