/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: Weir's sets of descriptors report as the kernel's epoll does: edges, one shots, exclusive
 * watches, sets within sets, any number of events asked for, descriptors closed while watched. The
 * same random calls run on both sides; results, errno and events are compared. Bound: 300 sequences
 * of 120 calls by default (SEQUENCES, CALLS, SEED in the environment); nothing blocks; when the two
 * differ they get 50 ms to settle, in which what comes is added up. With --self the kernel is
 * compared with itself.
 *
 * Left out, because it differs by design or chance: which of several ready ones comes first when
 * fewer are asked for (the number is compared); duplicated descriptors; edges of EPOLLOUT on
 * datagram sockets, of which the kernel gives one for each datagram that has left; EPOLLRDNORM
 * without EPOLLIN of a set, of which the kernel does not always tell. */
#include "weir/socket.h"
#include "weir/stack.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOCKETS 6 /* pairs of connected streams: 0-1, 2-3; 4 a listener, 5 a datagram socket */
#define SETS 3
#define FDS (SOCKETS + SETS)

static struct weir_stack *stack;
static uint64_t rng, seed_now;

static uint32_t rnd(uint32_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % below;
}

struct side {
    const char *name;
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept)(int, struct sockaddr *, socklen_t *);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*shutdown)(int, int);
    int (*close)(int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*recv)(int, void *, size_t, int);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*epoll_create)(int);
    int (*epoll_ctl)(int, int, int, struct epoll_event *);
    int (*epoll_wait)(int, struct epoll_event *, int, int);
    int fd[FDS];
    int extra[64]; /* clients of the listener, and what it accepted */
    int extras;
};

static int weir_socket_here(int domain, int type, int protocol)
{
    return weir_socket(stack, domain, type, protocol);
}

static int kernel_bind(int fd, const struct sockaddr *a, socklen_t n)
{
    return bind(fd, a, n);
}

static int kernel_accept(int fd, struct sockaddr *a, socklen_t *n)
{
    return accept4(fd, a, n, SOCK_NONBLOCK);
}

static int kernel_connect(int fd, const struct sockaddr *a, socklen_t n)
{
    return connect(fd, a, n);
}

static ssize_t kernel_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *a,
                             socklen_t an)
{
    return sendto(fd, p, n, flags | MSG_NOSIGNAL, a, an);
}

static int kernel_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
    return getsockname(fd, a, n);
}

static const struct side kernel_side = {.name = "kernel",
                                        .socket = socket,
                                        .bind = kernel_bind,
                                        .listen = listen,
                                        .accept = kernel_accept,
                                        .connect = kernel_connect,
                                        .shutdown = shutdown,
                                        .close = close,
                                        .sendto = kernel_sendto,
                                        .recv = recv,
                                        .getsockname = kernel_getsockname,
                                        .setsockopt = setsockopt,
                                        .getsockopt = getsockopt,
                                        .poll = poll,
                                        .epoll_create = epoll_create1,
                                        .epoll_ctl = epoll_ctl,
                                        .epoll_wait = epoll_wait};

static int weir_accept_here(int fd, struct sockaddr *a, socklen_t *n)
{
    return weir_accept4(fd, a, n, SOCK_NONBLOCK);
}

static const struct side weir_side = {.name = "weir",
                                      .socket = weir_socket_here,
                                      .bind = weir_bind,
                                      .listen = weir_listen,
                                      .accept = weir_accept_here,
                                      .connect = weir_connect,
                                      .shutdown = weir_shutdown,
                                      .close = weir_close,
                                      .sendto = weir_sendto,
                                      .recv = weir_recv,
                                      .getsockname = weir_getsockname,
                                      .setsockopt = weir_setsockopt,
                                      .getsockopt = weir_getsockopt,
                                      .poll = weir_poll,
                                      .epoll_create = weir_epoll_create,
                                      .epoll_ctl = weir_epoll_ctl,
                                      .epoll_wait = weir_epoll_wait};

static struct side sides[2];
static char trace[1 << 18];
static size_t trace_len;

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void die(const char *what)
{
    printf("%s  differ: %s; again with SEED=%llu SEQUENCES=1\n", trace, what,
           (unsigned long long)seed_now);
    exit(1);
}

/* --- sockets --- */

static int stream(struct side *s)
{
    int one = 1, fd = s->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    must(fd >= 0, "socket");
    must(s->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    return fd;
}

static struct sockaddr_in where(struct side *s, int fd)
{
    struct sockaddr_in sin;
    socklen_t len = sizeof sin;

    must(s->getsockname(fd, (struct sockaddr *)&sin, &len) == 0, "getsockname");
    return sin;
}

static int dial(struct side *s, int listener)
{
    struct sockaddr_in to = where(s, listener);
    int fd = stream(s);

    must(s->connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS, "connect");
    return fd;
}

static int accept_soon(struct side *s, int listener)
{
    struct pollfd p = {listener, POLLIN, 0};

    must(s->poll(&p, 1, 5000) == 1, "poll");
    return s->accept(listener, NULL, NULL);
}

static void open_side(struct side *s)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    s->fd[4] = stream(s);
    must(s->bind(s->fd[4], (struct sockaddr *)&any, sizeof any) == 0, "bind");
    must(s->listen(s->fd[4], 100) == 0, "listen");
    for (int i = 0; i < 4; i += 2) {
        s->fd[i] = dial(s, s->fd[4]);
        s->fd[i + 1] = accept_soon(s, s->fd[4]);
        must(s->fd[i + 1] >= 0, "accept");
    }
    s->fd[5] = s->socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    must(s->bind(s->fd[5], (struct sockaddr *)&any, sizeof any) == 0, "bind");
    for (int i = SOCKETS; i < FDS; i++)
        must((s->fd[i] = s->epoll_create(0)) >= 0, "epoll_create");
    s->extras = 0;
}

static void close_side(struct side *s)
{
    for (int i = 0; i < FDS; i++)
        if (s->fd[i] >= 0)
            s->close(s->fd[i]);
    for (int i = 0; i < s->extras; i++)
        s->close(s->extra[i]);
}

/* --- calls --- */

enum { CTL_ADD, CTL_MOD, CTL_DEL, CTL_WRONG, WAIT, SEND, RECV, ACCEPT, DIAL, SHUT, CLOSE, OPS };
static const char *const names[OPS] = {"add",  "mod",    "del",  "wrong", "wait", "send",
                                       "recv", "accept", "dial", "shut",  "close"};
static const uint8_t weights[OPS] = {14, 8, 4, 2, 24, 14, 12, 4, 4, 2, 1};

struct call {
    int op, set, fd, max;
    uint32_t events;
    size_t n;
};

static void draw(struct call *c)
{
    static const uint32_t bits[] = {EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI, EPOLLRDNORM};
    uint32_t total = 0, at;

    for (int i = 0; i < OPS; i++)
        total += weights[i];
    at = rnd(total);
    for (c->op = 0; at >= weights[c->op]; c->op++)
        at -= weights[c->op];
    c->set = SOCKETS + (int)rnd(SETS);
    c->fd = (int)rnd(rnd(4) ? SOCKETS : FDS);
    c->events = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        c->events |= rnd(2) ? bits[i] : 0;
    c->events |= rnd(2) ? EPOLLET : 0;
    c->events |= rnd(4) ? 0 : EPOLLONESHOT;
    c->events |= rnd(8) ? 0 : EPOLLEXCLUSIVE;
    if (c->fd == 5 && (c->events & EPOLLET))
        c->events &= ~(uint32_t)EPOLLOUT;
    if (c->fd >= SOCKETS)
        c->events &= ~(uint32_t)EPOLLRDNORM;
    c->max = rnd(4) ? 16 : (int)rnd(5) - 1;
    c->n = 1 + rnd(2000);
}

/* The FIN's acknowledgment is an edge too, and may be delayed: it is waited for. */
static long shut(struct side *s, int fd)
{
    struct tcp_info ti;
    socklen_t len = sizeof ti;
    int r = s->shutdown(fd, SHUT_WR), error = errno;

    for (int i = 0; r == 0 && i < 300; i++) {
        if (s->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) != 0 ||
            (ti.tcpi_state != TCP_FIN_WAIT1 && ti.tcpi_state != TCP_LAST_ACK))
            break;
        s->poll(&(struct pollfd){-1, 0, 0}, 1, 1);
    }
    errno = error;
    return r;
}

static long do_io(struct side *s, const struct call *c)
{
    static char buf[4096];
    struct sockaddr_in to;
    int fd = s->fd[c->fd % SOCKETS], got;

    switch (c->op) {
    case SEND:
        if (c->fd % SOCKETS != 5 || fd < 0)
            return s->sendto(fd, buf, c->n, 0, NULL, 0);
        to = where(s, fd);
        return s->sendto(fd, buf, c->n, 0, (struct sockaddr *)&to, sizeof to);
    case RECV: /* half of the time all of it */
        return s->recv(fd, buf, c->n & 1 ? sizeof buf : c->n, 0);
    case SHUT:
        return shut(s, fd);
    case DIAL:
        if (s->fd[4] < 0 || s->extras == 60)
            return 0;
        s->extra[s->extras++] = dial(s, s->fd[4]);
        return 0;
    default: /* ACCEPT */
        if (s->fd[4] < 0 || s->extras == 62)
            return 0;
        got = s->accept(s->fd[4], NULL, NULL);
        if (got >= 0)
            s->extra[s->extras++] = got;
        return got >= 0 ? 0 : -1;
    }
}

static long make(struct side *s, const struct call *c, int *error)
{
    struct epoll_event ev = {.events = c->events, .data.u64 = (uint64_t)c->fd + 1000};
    int fd = s->fd[c->fd];
    long r;

    errno = 0;
    switch (c->op) {
    case CTL_ADD:
        r = s->epoll_ctl(s->fd[c->set], EPOLL_CTL_ADD, fd, &ev);
        break;
    case CTL_MOD:
        r = s->epoll_ctl(s->fd[c->set], EPOLL_CTL_MOD, fd, &ev);
        break;
    case CTL_DEL:
        r = s->epoll_ctl(s->fd[c->set], EPOLL_CTL_DEL, fd, NULL);
        break;
    case CTL_WRONG:
        r = s->epoll_ctl(c->n & 1 ? s->fd[c->fd % SOCKETS] : s->fd[c->set], c->n & 2 ? 9 : 1,
                         c->n & 4 ? -1 : fd, &ev);
        break;
    case CLOSE:
        r = fd >= 0 ? s->close(fd) : -1;
        s->fd[c->fd] = -1;
        break;
    default:
        r = do_io(s, c);
    }
    *error = r < 0 ? errno : 0;
    return r;
}

/* --- waiting and comparing --- */

/* Adds what a wait gives to what was given; its result. */
static int gather(struct side *s, const struct call *c, uint32_t *events)
{
    struct epoll_event ev[16];
    int n = s->epoll_wait(s->fd[c->set], ev, c->max, 0);

    for (int i = 0; i < n; i++) {
        if (ev[i].data.u64 < 1000 || ev[i].data.u64 >= 1000 + FDS)
            die("data of an event");
        events[ev[i].data.u64 - 1000] |= ev[i].events;
    }
    return n < 0 ? -errno : n;
}

static void compare_wait(const struct call *c)
{
    uint32_t events[2][FDS] = {0};
    struct pollfd idle = {-1, 0, 0};
    int n[2];

    for (int i = 0; i < 2; i++)
        n[i] = gather(&sides[i], c, events[i]);
    if (c->max < 16) { /* all the same if the rest is looked at */
        struct call rest = *c;
        rest.max = 16;
        if ((n[0] < 0 || n[1] < 0) && n[0] != n[1])
            die("the error of a wait");
        for (int i = 0; i < 2; i++)
            gather(&sides[i], &rest, events[i]);
    }
    for (int tries = 0; tries < 50; tries++) {
        if (memcmp(events[0], events[1], sizeof events[0]) == 0)
            return;
        sides[1].poll(&idle, 1, 1);
        for (int i = 0; i < 2; i++) {
            struct call again = *c;
            again.max = 16;
            gather(&sides[i], &again, events[i]);
        }
    }
    for (int i = 0; i < FDS; i++)
        if (events[0][i] != events[1][i])
            printf("%d: %s %#x, %s %#x\n", i, sides[0].name, events[0][i], sides[1].name,
                   events[1][i]);
    die("events");
}

static void sequence(unsigned calls)
{
    struct call c;
    long r[2];
    int error[2];

    trace_len = 0;
    open_side(&sides[0]);
    open_side(&sides[1]);
    for (unsigned k = 0; k < calls; k++) {
        draw(&c);
        trace_len += (size_t)snprintf(trace + trace_len, sizeof trace - trace_len,
                                      "%3u %s set %d fd %d events %#x max %d n %zu\n", k,
                                      names[c.op], c.set, c.fd, c.events, c.max, c.n);
        if (c.op == WAIT) {
            compare_wait(&c);
            continue;
        }
        for (int i = 0; i < 2; i++)
            r[i] = make(&sides[i], &c, &error[i]);
        if (r[0] != r[1] || error[0] != error[1]) {
            printf("%s %ld %s, %s %ld %s\n", sides[0].name, r[0], strerror(error[0]), sides[1].name,
                   r[1], strerror(error[1]));
            die("results");
        }
        sides[1].poll(&(struct pollfd){-1, 0, 0}, 1, 0);
    }
    close_side(&sides[0]);
    close_side(&sides[1]);
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v ? strtoull(v, NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
    bool self = argc > 1 && strcmp(argv[1], "--self") == 0;
    uint64_t seed = from_env("SEED", 1);
    unsigned sequences = (unsigned)from_env("SEQUENCES", 300),
             calls = (unsigned)from_env("CALLS", 120);

    printf("seed %llu\n", (unsigned long long)seed);
    sides[0] = kernel_side;
    sides[1] = self ? kernel_side : weir_side;
    if (!self)
        must((stack = weir_stack_create(NULL)) != NULL, "weir_stack_create");
    for (unsigned i = 0; i < sequences; i++) {
        seed_now = seed + i;
        rng = seed_now * UINT64_C(0x9e3779b97f4a7c15) | 1;
        sequence(calls);
    }
    if (stack)
        weir_stack_destroy(stack);
    printf("%u sequences agree\n", sequences);
    return 0;
}
