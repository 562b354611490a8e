/* SPDX-License-Identifier: BSD-2-Clause
 * Many streams on one thread: what bench_roles.c does in blocking calls, in calls that never block,
 * each made when the stream's set says that it can do something.
 *
 * How it works: an event serves its stream once (one message, one transaction), so that the set,
 * which goes round those that are ready, serves all alike. A stream waits for one thing at a time;
 * the set is told when that changes, which for a bulk stream is never. */
#include "bench.h"

#define EVENTS_AT_ONCE 64
#define CONNECTING_AT_ONCE 64 /* so that no queue on the way must hold a SYN of every stream */
#define LOOK_MS 100           /* until the end is seen where nothing else happens */

/* CLOSING: the far end's FIN is to come. */
enum { CONNECTING, BULK, SENDING, RECEIVING, CLOSING };

struct loop {
    struct worker *w;
    int set;
    bool listening;      /* the listener is in the set */
    unsigned begun;      /* streams that had a connection, or are about to */
    unsigned connecting; /* of those, not connected yet */
    struct stream *free; /* had one, and are without */
};

static const struct net_ops *ops_of(const struct loop *l)
{
    return l->w->engine->net->ops;
}

/* Whether a failed call only has to wait. */
static bool must_wait(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static bool wait_for(struct loop *l, struct stream *s, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = s};
    if (s->events == events)
        return true;
    if (ops_of(l)->epoll_ctl(l->set, s->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s->fd, &ev) !=
        0)
        return engine_failed(l->w, "epoll_ctl");
    s->events = events;
    return true;
}

static void close_stream(struct loop *l, struct stream *s)
{
    int fd = s->fd;
    (void)stream_hold(l->w, s, -1);
    ops_of(l)->close(fd); /* leaves the set */
    s->events = 0;
}

/* ---- what a turn does; false: the test has failed or is over ---- */

static bool sends_bulk(const struct engine *e)
{
    return e->p.test == TCP_MAERTS ? !e->active : e->active;
}

static bool send_turn(struct loop *l, struct stream *s)
{
    const struct bench_params *p = &l->w->engine->p;
    ssize_t r;
    if (p->test == TCP_SENDFILE) {
        uint64_t left = p->file_bytes - (uint64_t)s->at;
        r = ops_of(l)->sendfile(s->fd, p->file_fd, &s->at,
                                p->file_call > 0 ? MIN(left, (uint64_t)p->file_call) : left);
        if ((uint64_t)s->at >= p->file_bytes)
            s->at = 0;
        if (r == 0) {
            errno = ENODATA; /* it has become shorter */
            return engine_failed(l->w, "sendfile");
        }
    } else {
        const char *from =
            p->verify ? pattern_at(l->w->engine->pattern, LOAD_RELAXED(&s->bytes)) : l->w->buf;
        r = ops_of(l)->send(s->fd, from, p->message, MSG_DONTWAIT);
    }
    if (r < 0)
        return must_wait() || engine_failed(l->w, "send");
    stream_add_bytes(s, (uint64_t)r);
    return true;
}

static bool receive_turn(struct loop *l, struct stream *s)
{
    const struct bench_params *p = &l->w->engine->p;
    ssize_t r =
        ops_of(l)->recv(s->fd, l->w->buf, p->receive > 0 ? p->receive : p->message, MSG_DONTWAIT);
    if (r == 0)
        errno = 0;
    if (r == 0 || (r < 0 && !must_wait()))
        return engine_failed(l->w, "receive");
    if (r > 0 && p->verify &&
        !pattern_check(l->w->engine, l->w->buf, (size_t)r, LOAD_RELAXED(&s->bytes)))
        return false;
    stream_add_bytes(s, r > 0 ? (uint64_t)r : 0);
    return true;
}

static bool begin_connect(struct loop *l, struct stream *s)
{
    struct engine *e = l->w->engine;
    const struct net *n = e->net;
    int fd = n->ops->socket(n->stack, e->peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd < 0)
        return engine_failed(l->w, "socket");
    s->before_ns = clock_now_ns();
    s->step = CONNECTING;
    (void)stream_hold(l->w, s, fd);
    if (engine_prepare(e, fd) != 0)
        return engine_failed(l->w, "socket options");
    if (n->ops->connect(fd, (struct sockaddr *)&e->peer, net_sockaddr_len(&e->peer)) != 0 &&
        errno != EINPROGRESS && errno != EINTR)
        return engine_failed(l->w, "connect");
    return wait_for(l, s, EPOLLOUT);
}

/* The FIN for which the near end waits has come, or the far end gives its answer and goes. */
static bool end_connection(struct loop *l, struct stream *s)
{
    struct worker *w = l->w;
    close_stream(l, s);
    stream_add_transaction(w, s, w->engine->active ? s->before_ns : 0, clock_now_ns());
    if (w->engine->active)
        return begin_connect(l, s);
    s->next_free = l->free;
    l->free = s;
    return true;
}

static void next_message(struct stream *s, uint8_t step)
{
    s->step = step;
    s->done = 0;
}

/* A message was sent. The answer takes a while: others have their turn. */
static bool sent(struct loop *l, struct stream *s)
{
    struct worker *w = l->w;
    if (!w->engine->active && w->engine->p.test == TCP_CRR)
        return end_connection(l, s);
    if (!w->engine->active)
        stream_add_transaction(w, s, 0, 0);
    next_message(s, RECEIVING);
    return wait_for(l, s, EPOLLIN);
}

/* A message was received. */
static void received(struct loop *l, struct stream *s)
{
    struct worker *w = l->w;
    bool answer = !w->engine->active;
    if (!answer && w->engine->p.test == TCP_RR) {
        uint64_t now = clock_now_ns();
        stream_add_transaction(w, s, s->before_ns, now);
        s->before_ns = now;
        answer = true;
    }
    next_message(s, answer ? SENDING : CLOSING);
}

/* The connection ended or failed where a message, or its end, was to come. */
static bool receive_ended(struct loop *l, struct stream *s, ssize_t r)
{
    const struct engine *e = l->w->engine;
    if (r == 0 && s->step == CLOSING)
        return end_connection(l, s);
    if (r == 0)
        errno = 0;
    if (e->active || e->p.test == TCP_RR)
        return engine_failed(l->w, "receive");
    close_stream(l, s); /* its client gave it up, and will say why */
    s->next_free = l->free;
    l->free = s;
    return true;
}

/* Send and receive until one of both has to wait. */
static bool converse_turn(struct loop *l, struct stream *s)
{
    const struct engine *e = l->w->engine;
    while (!worker_stopping(l->w)) {
        bool out = s->step == SENDING;
        uint32_t len = out == e->active ? e->p.request : e->p.response;
        uint32_t left = s->step == CLOSING ? 1 : len - s->done;
        ssize_t r = out ? ops_of(l)->send(s->fd, l->w->buf, left, MSG_DONTWAIT)
                        : ops_of(l)->recv(s->fd, l->w->buf, left, MSG_DONTWAIT);
        if (r < 0 && must_wait())
            return wait_for(l, s, out ? EPOLLOUT : EPOLLIN);
        if (r < 0 && out && e->active)
            return engine_failed(l->w, "send");
        if (r <= 0)
            return receive_ended(l, s, r);
        s->done += (uint32_t)r;
        if (s->done < len || s->step == CLOSING)
            continue;
        if (out)
            return sent(l, s);
        received(l, s);
    }
    return true;
}

/* ---- connections ---- */

static bool established(struct loop *l, struct stream *s)
{
    struct engine *e = l->w->engine;
    stream_publish(l->w, s, s->fd);
    if (bench_is_stream(e->p.test)) {
        s->step = BULK;
        return wait_for(l, s, sends_bulk(e) ? EPOLLOUT : EPOLLIN);
    }
    next_message(s, e->active ? SENDING : RECEIVING);
    if (!e->active)
        return wait_for(l, s, EPOLLIN);
    if (e->p.test == TCP_RR)
        s->before_ns = clock_now_ns();
    return converse_turn(l, s);
}

static bool connected(struct loop *l, struct stream *s)
{
    int error = 0;
    socklen_t len = sizeof(error);
    (void)ops_of(l)->getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        errno = error;
        return engine_failed(l->w, "connect");
    }
    l->connecting -= !s->published;
    return established(l, s);
}

/* What is queued, while there are streams to take it: no more connections come than there are. */
static bool accept_turn(struct loop *l)
{
    struct engine *e = l->w->engine;
    for (unsigned i = 0; i < EVENTS_AT_ONCE; i++) {
        struct stream *s = l->begun < l->w->streams ? &l->w->stream[l->begun] : l->free;
        if (s == NULL)
            return true;
        int fd = ops_of(l)->accept(e->listen_fd, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0)
            return must_wait() || errno == ECONNABORTED || engine_failed(l->w, "accept");
        if (s == l->free)
            l->free = s->next_free;
        else
            l->begun++;
        (void)stream_hold(l->w, s, fd);
        if (!established(l, s))
            return false;
    }
    return true;
}

/* A listener is in the set while it may have something for us. */
static bool listen_for_more(struct loop *l)
{
    struct engine *e = l->w->engine;
    bool more = l->begun < l->w->streams || e->p.test == TCP_CRR;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (more == l->listening)
        return true;
    l->listening = more;
    return ops_of(l)->epoll_ctl(l->set, more ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, e->listen_fd, &ev) ==
               0 ||
           engine_failed(l->w, "epoll_ctl");
}

static bool begin_more(struct loop *l)
{
    if (!l->w->engine->active)
        return listen_for_more(l);
    while (l->begun < l->w->streams && l->connecting < CONNECTING_AT_ONCE) {
        l->connecting++;
        if (!begin_connect(l, &l->w->stream[l->begun++]))
            return false;
    }
    return true;
}

static bool serve(struct loop *l, struct stream *s)
{
    if (s == NULL)
        return accept_turn(l);
    if (s->step == CONNECTING)
        return connected(l, s);
    if (s->step != BULK)
        return converse_turn(l, s);
    return sends_bulk(l->w->engine) ? send_turn(l, s) : receive_turn(l, s);
}

bool worker_events(struct worker *w)
{
    struct epoll_event ev[EVENTS_AT_ONCE];
    struct loop l = {.w = w, .set = w->engine->net->ops->epoll_create()};
    int patience = w->engine->p.spin && w->engine->net->stack == NULL ? 0 : LOOK_MS;
    if (l.set < 0)
        return engine_failed(w, "epoll_create");
    bool good = true;
    while (good && !worker_stopping(w)) {
        good = begin_more(&l);
        int n = good ? ops_of(&l)->epoll_wait(l.set, ev, EVENTS_AT_ONCE, patience) : 0;
        if (n < 0 && errno != EINTR)
            good = engine_failed(w, "epoll_wait");
        for (int i = 0; good && i < n; i++)
            good = serve(&l, ev[i].data.ptr);
    }
    ops_of(&l)->close(l.set);
    return good;
}
