/* SPDX-License-Identifier: BSD-2-Clause
 * UDP_STREAM and UDP_RR.
 *
 * How it works: each stream of the near end has a socket and a thread; the far end has one of
 * both for all of them. A stream says hello until it is answered, so that the far end knows whose
 * an address is; what comes from elsewhere, or bears another run's cookie, is ignored. Datagrams of
 * UDP_STREAM are numbered and stamped. The receiver alone says what was lost: a number that is
 * skipped is, until it comes after all. A request that is not answered in time is sent again. */
#include "bench.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define HELLO_MS 50
#define RETRY_MIN_MS 200
#define RETRY_MAX_MS 2000
#define SLEEP_LEAST_NS (50 * NS_PER_US)
#define SLEEP_MOST_NS (50 * NS_PER_MS)
#define CATCH_UP_NS (20 * NS_PER_MS) /* more held-up time is not made up for: no flood after it */
#define TAG_BYTES 8u                 /* of a request's number, as far as they fit */

enum { UDP_HELLO = 0x77656972, UDP_DATA };

void udp_arrived(struct udp_stream *u, uint64_t seq, int64_t transit_ns)
{
    uint64_t bit = UINT64_C(1) << (seq % 64), *word = &u->seen[(seq / 64) % NELEM(u->seen)];
    uint64_t next = u->next;
    if (seq >= next) {
        uint64_t from = seq - next < UDP_WINDOW ? next : seq - UDP_WINDOW + 1;
        for (uint64_t i = from; i <= seq; i++)
            u->seen[(i / 64) % NELEM(u->seen)] &= ~(UINT64_C(1) << (i % 64));
        u->next = seq + 1;
        STORE_RELAXED(&u->lost, LOAD_RELAXED(&u->lost) + (seq - next));
    } else if (next - seq > UDP_WINDOW || (*word & bit) != 0) {
        STORE_RELAXED(&u->duplicates, LOAD_RELAXED(&u->duplicates) + 1);
        return;
    } else {
        STORE_RELAXED(&u->reordered, LOAD_RELAXED(&u->reordered) + 1);
        STORE_RELAXED(&u->lost, LOAD_RELAXED(&u->lost) - 1);
    }
    *word |= bit;
    uint64_t got = LOAD_RELAXED(&u->received);
    STORE_RELAXED(&u->received, got + 1);
    if (got > 0) { /* RFC 3550, section 6.4.1: a smoothed mean of the changes of the way's time */
        int64_t d = transit_ns - u->transit_ns, j = (int64_t)LOAD_RELAXED(&u->jitter_ns);
        STORE_RELAXED(&u->jitter_ns, (uint64_t)(j + ((d < 0 ? -d : d) - j) / 16));
    }
    u->transit_ns = transit_ns;
}

void udp_sample(const struct engine *e, struct sample *x)
{
    x->have_udp = true;
    for (unsigned i = 0; i < e->p.streams; i++) {
        const struct udp_stream *u = &e->udp[i];
        x->sent += LOAD_RELAXED(&u->sent);
        x->received += LOAD_RELAXED(&u->received);
        x->lost += LOAD_RELAXED(&u->lost);
        x->reordered += LOAD_RELAXED(&u->reordered);
        x->duplicates += LOAD_RELAXED(&u->duplicates);
        x->retried += LOAD_RELAXED(&u->retried);
        x->jitter_ns = MAX(x->jitter_ns, LOAD_RELAXED(&u->jitter_ns));
    }
}

static int set_timeout(const struct engine *e, int fd, unsigned ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    return e->net->ops->setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

static bool timed_out(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Until the far end answers. */
static bool say_hello(struct worker *w, int fd, unsigned index)
{
    struct engine *e = w->engine;
    struct udp_header h = {.kind = UDP_HELLO, .stream = index, .cookie = e->p.cookie}, back;
    while (!worker_stopping(w)) {
        if (e->net->ops->send(fd, &h, sizeof(h), 0) < 0 && !timed_out())
            return engine_failed(w, "send");
        ssize_t r = e->net->ops->recv(fd, &back, sizeof(back), 0);
        if (r < 0 && !timed_out())
            return engine_failed(w, "receive");
        if (r == (ssize_t)sizeof(back) && memcmp(&h, &back, sizeof(h)) == 0)
            return true;
        pthread_mutex_lock(&e->run->mutex);
        bool over = e->run->failed || e->run->stop;
        pthread_mutex_unlock(&e->run->mutex);
        if (over)
            break;
    }
    return false;
}

/* Wait for the moment of the next datagram. */
static void pace(struct worker *w, uint64_t *next_ns, uint64_t gap_ns)
{
    uint64_t now = clock_now_ns();
    if (now > *next_ns + CATCH_UP_NS)
        *next_ns = now;
    while (now + SLEEP_LEAST_NS < *next_ns && !worker_stopping(w)) {
        uint64_t ns = MIN(*next_ns - now, (uint64_t)SLEEP_MOST_NS);
        struct timespec ts = {.tv_nsec = (long)ns};
        nanosleep(&ts, NULL);
        now = clock_now_ns();
    }
    *next_ns += gap_ns;
}

static bool send_datagrams(struct worker *w, int fd)
{
    struct engine *e = w->engine;
    const struct bench_params *p = &e->p;
    struct udp_stream *u = &e->udp[w->stream - e->stream];
    struct udp_header h = {
        .kind = UDP_DATA, .stream = (uint32_t)(w->stream - e->stream), .cookie = p->cookie};
    uint64_t next_ns = clock_now_ns(), bits = 0;
    while (!worker_stopping(w)) {
        if (p->rate > 0) { /* the rest of the division is carried on */
            unsigned __int128 span = (unsigned __int128)p->message * 8 * NS_PER_S + bits;
            bits = (uint64_t)(span % p->rate);
            pace(w, &next_ns, (uint64_t)(span / p->rate));
        }
        h.sent_ns = clock_now_ns();
        if (p->verify)
            memcpy(w->buf + sizeof(h), pattern_at(e->pattern, h.seq), p->message - sizeof(h));
        memcpy(w->buf, &h, sizeof(h));
        ssize_t r = e->net->ops->send(fd, w->buf, p->message, 0);
        if (r < 0 && (errno == ENOBUFS || timed_out())) {
            sched_yield();
            continue;
        }
        if (r < 0)
            return engine_failed(w, "send");
        h.seq++;
        stream_add_bytes(w->stream, (uint64_t)r);
        STORE_RELAXED(&u->sent, h.seq);
    }
    return true;
}

/* 1: the answer came, 0: not in time, or the end; -1: error. */
static int await_answer(struct worker *w, int fd, uint64_t number, size_t tag, uint64_t until_ns)
{
    const struct engine *e = w->engine;
    do {
        ssize_t r = e->net->ops->recv(fd, w->buf, e->p.response > 0 ? e->p.response : 1, 0);
        if (r < 0)
            return timed_out() ? 0 : -1;
        if ((size_t)r == e->p.response && memcmp(w->buf, &number, tag) == 0)
            return 1;
    } while (!worker_stopping(w) && clock_now_ns() < until_ns);
    return 0;
}

static bool converse_datagrams(struct worker *w, int fd)
{
    struct engine *e = w->engine;
    const struct bench_params *p = &e->p;
    struct udp_stream *u = &e->udp[w->stream - e->stream];
    size_t tag = MIN(MIN(p->request, p->response), TAG_BYTES);
    unsigned patience = RETRY_MIN_MS;
    if (set_timeout(e, fd, patience) != 0)
        return engine_failed(w, "socket options");
    for (uint64_t number = 1; !worker_stopping(w); number++) {
        uint64_t before = clock_now_ns();
        for (int got = 0; got == 0;) {
            memcpy(w->buf, &number, MIN(p->request, TAG_BYTES));
            ssize_t r = e->net->ops->send(fd, w->buf, p->request, 0);
            if (r < 0 && errno != ENOBUFS && !timed_out())
                return engine_failed(w, "send");
            got = await_answer(w, fd, number, tag, clock_now_ns() + patience * NS_PER_MS);
            if (got < 0)
                return engine_failed(w, "receive");
            if (worker_stopping(w))
                return true;
            if (got == 0) {
                STORE_RELAXED(&u->retried, LOAD_RELAXED(&u->retried) + 1);
                patience = MIN(2 * patience, (unsigned)RETRY_MAX_MS);
                (void)set_timeout(e, fd, patience);
            }
        }
        stream_add_transaction(w, w->stream, before, clock_now_ns());
    }
    return true;
}

static bool active(struct worker *w)
{
    struct engine *e = w->engine;
    const struct net *n = e->net;
    int fd = n->ops->socket(n->stack, e->peer.ss_family, SOCK_DGRAM);
    if (fd < 0)
        return engine_failed(w, "socket");
    (void)stream_hold(w, w->stream, fd);
    if (engine_prepare(e, fd) != 0 || set_timeout(e, fd, HELLO_MS) != 0)
        return engine_failed(w, "socket options");
    if (n->ops->connect(fd, (struct sockaddr *)&e->peer, net_sockaddr_len(&e->peer)) != 0)
        return engine_failed(w, "connect");
    if (!say_hello(w, fd, (unsigned)(w->stream - e->stream)))
        return false;
    stream_publish(w, w->stream, fd);
    return e->p.test == UDP_RR ? converse_datagrams(w, fd) : send_datagrams(w, fd);
}

/* ---- the far end ---- */

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a6->sin6_port == b6->sin6_port &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

/* A greeting: whose address this is from now on. */
static bool greeted(struct worker *w, const struct sockaddr_storage *from, socklen_t len,
                    size_t size)
{
    struct engine *e = w->engine;
    struct udp_header h;
    if (size != sizeof(h))
        return false;
    memcpy(&h, w->buf, sizeof(h));
    if (h.kind != UDP_HELLO || h.cookie != e->p.cookie || h.stream >= e->p.streams)
        return false;
    e->udp[h.stream].peer = *from;
    stream_publish(w, &e->stream[h.stream], h.stream == 0 ? e->listen_fd : -1);
    (void)e->net->ops->sendto(e->listen_fd, &h, sizeof(h), 0, (const struct sockaddr *)from, len);
    return true;
}

static bool take_datagram(struct worker *w, struct udp_stream *u, size_t size)
{
    struct engine *e = w->engine;
    struct udp_header h;
    if (size < sizeof(h))
        return true;
    memcpy(&h, w->buf, sizeof(h));
    if (h.kind != UDP_DATA || h.cookie != e->p.cookie || size != e->p.message)
        return true;
    if (e->p.verify && !pattern_check(e, w->buf + sizeof(h), size - sizeof(h), h.seq))
        return false;
    uint64_t had = LOAD_RELAXED(&u->duplicates);
    udp_arrived(u, h.seq, (int64_t)(clock_now_ns() - h.sent_ns));
    if (LOAD_RELAXED(&u->duplicates) == had)
        stream_add_bytes(&e->stream[u - e->udp], size);
    return true;
}

static bool answer(struct worker *w, struct stream *s, const struct sockaddr_storage *to,
                   socklen_t len, size_t size)
{
    const struct engine *e = w->engine;
    if (size != e->p.request)
        return true;
    ssize_t r = e->net->ops->sendto(e->listen_fd, w->buf, e->p.response, 0,
                                    (const struct sockaddr *)to, len);
    if (r < 0)
        return errno == ENOBUFS || errno == ECONNREFUSED || timed_out() || engine_failed(w, "send");
    stream_add_transaction(w, s, 0, 0);
    return true;
}

static bool passive(struct worker *w)
{
    struct engine *e = w->engine;
    if (set_timeout(e, e->listen_fd, HELLO_MS) != 0)
        return engine_failed(w, "socket options");
    while (!worker_stopping(w)) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        ssize_t r = e->net->ops->recvfrom(e->listen_fd, w->buf, w->buf_size, 0,
                                          (struct sockaddr *)&from, &len);
        if (r < 0 && (timed_out() || errno == ECONNREFUSED))
            continue;
        if (r < 0)
            return engine_failed(w, "receive");
        if (greeted(w, &from, len, (size_t)r))
            continue;
        for (unsigned i = 0; i < e->p.streams; i++) {
            if (!same_address(&e->udp[i].peer, &from))
                continue;
            if (!(e->p.test == UDP_RR ? answer(w, &e->stream[i], &from, len, (size_t)r)
                                      : take_datagram(w, &e->udp[i], (size_t)r)))
                return false;
            break;
        }
    }
    return true;
}

bool worker_udp(struct worker *w)
{
    bool good = w->engine->active ? active(w) : passive(w);
    if (!w->engine->active) /* the socket is the engine's */
        (void)stream_hold(w, w->stream, -1);
    return good;
}
