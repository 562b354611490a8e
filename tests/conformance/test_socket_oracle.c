/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: Weir's socket calls answer as the kernel's do. The same random sequence of calls runs on
 * the kernel's loopback and on a Weir stack's, and everything an application can see is compared:
 * results, errno, data, addresses, poll bits, epoll events. Bound: 400 sequences of 80 calls by
 * default (SEQUENCES, CALLS, SEED in the environment); sockets do not block; when the two differ
 * they get 100 ms to settle. With --self the kernel is compared with itself: the test's own noise.
 *
 * Left out, because Weir differs on purpose: buffer sizes (no call fills one); full accept queues;
 * port numbers; connect to port 0; MSG_MORE (nothing is held back where a segment is larger than
 * the buffer); listen after shutdown (the kernel's children are born shut); data for a socket that
 * is shut both ways; the local port and address of a socket that was disconnected; time stamps of
 * streams, and what they say. */
#include "oracle_control.h"
#include "weir/socket.h"
#include "weir/stack.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#define SLOTS 8
#define MAX_SENT 24000 /* bytes through one descriptor: below every buffer */
#define SIOCATMARK_ 0x8905

static struct weir_stack *stack;
static uint64_t rng, seed_now;

static uint32_t rnd(uint32_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % below;
}

/* --- the two sides --- */

struct side {
    const char *name;
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*shutdown)(int, int);
    int (*close)(int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*getpeername)(int, struct sockaddr *, socklen_t *);
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*ioctl)(int, unsigned long, int *);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*epoll_create)(int);
    int (*epoll_ctl)(int, int, int, struct epoll_event *);
    int (*epoll_wait)(int, struct epoll_event *, int, int);
    int ep;
    int fd[SLOTS]; /* -1 closed */
};

static int weir_socket_here(int domain, int type, int protocol)
{
    return weir_socket(stack, domain, type, protocol);
}

static int kernel_ioctl(int fd, unsigned long request, int *arg)
{
    return ioctl(fd, request, arg);
}

static int kernel_bind(int fd, const struct sockaddr *a, socklen_t n)
{
    return bind(fd, a, n);
}

static int kernel_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    return accept4(fd, a, n, flags);
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

static ssize_t kernel_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    return sendmsg(fd, msg, flags | MSG_NOSIGNAL);
}

static int kernel_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
    return getsockname(fd, a, n);
}

static int kernel_getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
    return getpeername(fd, a, n);
}

static const struct side kernel_side = {"kernel",
                                        socket,
                                        kernel_bind,
                                        listen,
                                        kernel_accept4,
                                        kernel_connect,
                                        shutdown,
                                        close,
                                        kernel_sendto,
                                        recvmsg,
                                        kernel_sendmsg,
                                        kernel_getsockname,
                                        kernel_getpeername,
                                        getsockopt,
                                        setsockopt,
                                        kernel_ioctl,
                                        poll,
                                        epoll_create1,
                                        epoll_ctl,
                                        epoll_wait,
                                        -1,
                                        {0}};
static const struct side weir_side = {"weir",
                                      weir_socket_here,
                                      weir_bind,
                                      weir_listen,
                                      weir_accept4,
                                      weir_connect,
                                      weir_shutdown,
                                      weir_close,
                                      weir_sendto,
                                      weir_recvmsg,
                                      weir_sendmsg,
                                      weir_getsockname,
                                      weir_getpeername,
                                      weir_getsockopt,
                                      weir_setsockopt,
                                      weir_ioctl,
                                      weir_poll,
                                      weir_epoll_create,
                                      weir_epoll_ctl,
                                      weir_epoll_wait,
                                      -1,
                                      {0}};

/* --- one sequence --- */

struct slot {
    int domain, type;
    bool shut, listened, connected, oob, defers; /* the call was made */
    int how;                                     /* of shutdown */
    uint32_t sent;                               /* bytes */
};

struct outcome {
    long result;
    int error;                /* errno of a failed call */
    long extra;               /* length, flags, option value */
    uint8_t data[4096 + 256]; /* control messages last */
    size_t len;               /* of data */
};

static struct side sides[2];
static struct slot slots[SLOTS];
static char trace[1 << 20];
static size_t trace_len;

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (trace_len < sizeof trace)
        trace_len += (size_t)vsnprintf(trace + trace_len, sizeof trace - trace_len, fmt, ap);
    va_end(ap);
}

static void result(struct outcome *o, long r)
{
    o->result = r;
    o->error = r < 0 ? errno : 0;
}

static int free_slot(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (sides[0].fd[i] < 0)
            return i;
    return -1;
}

/* A descriptor in use, -1 none; `type` 0: any. */
static int used_slot(int type)
{
    int at = (int)rnd(SLOTS);

    for (int i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS)
        if (sides[0].fd[at] >= 0 && (!type || slots[at].type == type))
            return at;
    return -1;
}

/* The side's own address of a slot, made a destination. Length 0: it has none. */
static socklen_t destination(struct side *s, int slot, struct sockaddr_storage *ss)
{
    socklen_t len = sizeof *ss;

    memset(ss, 0, sizeof *ss);
    if (s->getsockname(s->fd[slot], (struct sockaddr *)ss, &len) != 0)
        return 0;
    if (ss->ss_family == AF_INET)
        ((struct sockaddr_in *)ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)ss)->sin6_addr = in6addr_loopback;
    return len;
}

/* Ports differ between the sides: only whether there is one is compared. */
static void keep_address(struct outcome *o, struct sockaddr_storage *ss, socklen_t len)
{
    struct sockaddr_in *sin = (struct sockaddr_in *)ss; /* the port is at the same place in both */

    o->extra = len;
    if (len == 0)
        return;
    sin->sin_port = sin->sin_port != 0;
    o->len = len < sizeof o->data ? len : sizeof o->data;
    memcpy(o->data, ss, o->len);
}

static void set_add(struct side *s, int slot)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI,
                             .data.u32 = (uint32_t)slot};

    if (s->epoll_ctl(s->ep, EPOLL_CTL_ADD, s->fd[slot], &ev) != 0) {
        perror("epoll_ctl");
        abort();
    }
}

/* A call: its parameters are drawn once, then it is made on both sides. */
struct call {
    int op, slot, other, a, b, control;
    uint8_t data[3000];
};

enum {
    OP_SOCKET,
    OP_BIND,
    OP_LISTEN,
    OP_ACCEPT,
    OP_CONNECT,
    OP_CONNECT_NONE,
    OP_UNSPEC,
    OP_SEND,
    OP_RECV,
    OP_SHUTDOWN,
    OP_CLOSE,
    OP_ERROR,
    OP_NAME,
    OP_OPTION,
    OP_IOCTL,
    OP_LINGER,
    OP_SENDTO,
    OP_OPTION_SET,
    OP_SENDMSG,
    OP_TELL,
    OP_DEFER,
    OP_COUNT
};
static const char *const op_names[OP_COUNT] = {"socket",
                                               "bind",
                                               "listen",
                                               "accept",
                                               "connect",
                                               "connect(nobody)",
                                               "connect(unspec)",
                                               "send",
                                               "recv",
                                               "shutdown",
                                               "close",
                                               "SO_ERROR",
                                               "name",
                                               "getsockopt",
                                               "ioctl",
                                               "linger0",
                                               "sendto",
                                               "setsockopt",
                                               "sendmsg",
                                               "tell",
                                               "defer accept"};
/* How often each is drawn. */
static const uint8_t weights[OP_COUNT] = {8, 3, 5, 9, 10, 2, 1, 14, 16, 6, 6,
                                          3, 3, 2, 3, 2,  4, 2, 3,  3,  2};

static const int recv_flags[] = {
    0, 0, 0, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_PEEK | MSG_TRUNC, MSG_OOB, MSG_ERRQUEUE};
static const int send_flags[] = {0, 0, 0, 0, MSG_NOSIGNAL, MSG_OOB, MSG_DONTWAIT};
static const struct {
    int level, name;
} options[] = {
    {SOL_SOCKET, SO_TYPE},
    {SOL_SOCKET, SO_ACCEPTCONN},
    {SOL_SOCKET, SO_DOMAIN},
    {SOL_SOCKET, SO_PROTOCOL},
    {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},
    {SOL_SOCKET, SO_KEEPALIVE},
    {SOL_SOCKET, SO_OOBINLINE},
    {SOL_SOCKET, SO_REUSEADDR},
    {SOL_SOCKET, SO_RCVLOWAT},
    {IPPROTO_IP, IP_TTL},
    {IPPROTO_IP, IP_TOS},
    {IPPROTO_IPV6, IPV6_V6ONLY},
    {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_KEEPIDLE},
    {SOL_SOCKET, 500},
    {77, 1},
};
/* What recvmsg may be asked to tell about datagrams. */
static const struct {
    int level, name;
} tells[] = {
    {SOL_SOCKET, SO_TIMESTAMP},       {SOL_SOCKET, SO_TIMESTAMPNS},
    {IPPROTO_IP, IP_PKTINFO},         {IPPROTO_IP, IP_RECVTTL},
    {IPPROTO_IP, IP_RECVTOS},         {IPPROTO_IP, IP_RECVORIGDSTADDR},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT},
    {IPPROTO_IPV6, IPV6_RECVTCLASS},
};
/* Not SIOCOUTQ: the kernel counts SYN and FIN too. */
static const unsigned long ioctls[] = {FIONREAD, SIOCATMARK_, 0x1234};

static void op_socket(struct side *s, const struct call *c, struct outcome *o)
{
    static const int kinds[][2] = {{AF_INET, SOCK_STREAM},
                                   {AF_INET6, SOCK_STREAM},
                                   {AF_INET, SOCK_DGRAM},
                                   {AF_INET6, SOCK_DGRAM}};
    int one = 1;
    const int *k = kinds[c->a < 6 ? 0 : c->a < 9 ? 1 : c->a < 11 ? 2 : 3];

    s->fd[c->slot] = s->socket(k[0], k[1] | SOCK_NONBLOCK, 0);
    result(o, s->fd[c->slot] < 0 ? -1 : 0);
    if (k[1] == SOCK_STREAM) /* data move at once, whoever delays ACKs */
        s->setsockopt(s->fd[c->slot], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    slots[c->slot] = (struct slot){.domain = k[0], .type = k[1]};
    set_add(s, c->slot);
}

static void op_bind(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_in sin = {.sin_family = AF_INET};
    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6};
    bool v4 = (slots[c->slot].domain == AF_INET) != (c->a == 7); /* sometimes the wrong family */

    if (c->a & 1) {
        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sin6.sin6_addr = in6addr_loopback;
    }
    if (c->a == 6) /* not ours */
        sin.sin_addr.s_addr = htonl(0x08080808);
    result(o, v4 ? s->bind(s->fd[c->slot], (struct sockaddr *)&sin, sizeof sin)
                 : s->bind(s->fd[c->slot], (struct sockaddr *)&sin6, sizeof sin6));
}

static void op_accept(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    int fd = s->accept4(s->fd[c->slot], (struct sockaddr *)&ss, &len, SOCK_NONBLOCK);

    result(o, fd < 0 ? -1 : 0);
    if (fd < 0)
        return;
    keep_address(o, &ss, len);
    s->fd[c->other] = fd;
    slots[c->other] =
        (struct slot){.domain = slots[c->slot].domain, .type = SOCK_STREAM, .connected = true};
    set_add(s, c->other);
}

static void op_connect(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_storage ss;
    struct sockaddr_in nobody = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr unspec = {.sa_family = AF_UNSPEC};

    if (c->op == OP_CONNECT) {
        socklen_t len = destination(s, c->other, &ss);
        struct sockaddr_in *sin =
            (struct sockaddr_in *)&ss; /* the port is at the same place in both */
        if (sin->sin_port == 0)
            sin->sin_port = htons(1);
        result(o, s->connect(s->fd[c->slot], (struct sockaddr *)&ss, len));
    } else if (c->op == OP_CONNECT_NONE) {
        result(o, s->connect(s->fd[c->slot], (struct sockaddr *)&nobody, sizeof nobody));
    } else {
        result(o, s->connect(s->fd[c->slot], &unspec, sizeof unspec));
    }
}

static void op_recv(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_storage from = {0};
    uint8_t control[256] = {0};
    struct iovec iov[2] = {{o->data, (size_t)c->a / 2},
                           {o->data + c->a / 2, (size_t)(c->a - c->a / 2)}};
    struct msghdr msg = {
        .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = iov, .msg_iovlen = 2};

    if (c->control >= 0) {
        msg.msg_control = control;
        msg.msg_controllen = (size_t)c->control;
    }
    result(o, s->recvmsg(s->fd[c->slot], &msg, recv_flags[c->b]));
    if (o->result < 0)
        return;
    if (!(recv_flags[c->b] & MSG_TRUNC) || slots[c->slot].type == SOCK_DGRAM)
        o->len = o->result < c->a ? (size_t)o->result : (size_t)c->a;
    o->extra = (long)msg.msg_controllen << 32 | msg.msg_flags << 8 | (int)msg.msg_namelen;
    hide_differences(control, msg.msg_controllen);
    memcpy(o->data + o->len, control, msg.msg_controllen);
    o->len += msg.msg_controllen;
}

/* --- control messages --- */

static void op_sendmsg(struct side *s, const struct call *c, struct outcome *o)
{
    uint8_t control[256] = {0};
    struct sockaddr_storage ss;
    struct iovec iov = {(void *)(uintptr_t)c->data, (size_t)c->a};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};

    msg.msg_controllen = make_control(c->control, control);
    if (c->b) {
        msg.msg_name = &ss;
        msg.msg_namelen = destination(s, c->other, &ss);
    }
    result(o, s->sendmsg(s->fd[c->slot], &msg, 0));
}

static void op_defer(struct side *s, const struct call *c, struct outcome *o)
{
    int v = 0;
    socklen_t len = sizeof v;

    result(o, s->setsockopt(s->fd[c->slot], IPPROTO_TCP, TCP_DEFER_ACCEPT, &c->a, sizeof c->a));
    if (s->getsockopt(s->fd[c->slot], IPPROTO_TCP, TCP_DEFER_ACCEPT, &v, &len) == 0)
        o->extra = v;
}

static void op_tell(struct side *s, const struct call *c, struct outcome *o)
{
    int v = 0;
    socklen_t len = sizeof v;

    result(o,
           s->setsockopt(s->fd[c->slot], tells[c->a].level, tells[c->a].name, &c->b, sizeof c->b));
    if (o->result == 0)
        o->result = s->getsockopt(s->fd[c->slot], tells[c->a].level, tells[c->a].name, &v, &len);
    o->extra = v;
}

static void op_name(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;

    result(o, c->a ? s->getpeername(s->fd[c->slot], (struct sockaddr *)&ss, &len)
                   : s->getsockname(s->fd[c->slot], (struct sockaddr *)&ss, &len));
    if (o->result == 0)
        keep_address(o, &ss, len);
}

static void op_option(struct side *s, const struct call *c, struct outcome *o)
{
    int level = c->op == OP_ERROR ? SOL_SOCKET : options[c->a].level;
    int name = c->op == OP_ERROR ? SO_ERROR : options[c->a].name;
    socklen_t len = (socklen_t)(c->op == OP_ERROR ? 4 : c->b);

    if (c->op == OP_OPTION_SET) {
        int v[4] = {c->b & 15, 0, 0, 0};
        result(o, s->setsockopt(s->fd[c->slot], level, name, v, (socklen_t)(c->b >> 4)));
        return;
    }
    memset(o->data, 0xee, 64);
    o->len = 64;
    result(o, s->getsockopt(s->fd[c->slot], level, name, o->data, &len));
    o->extra = o->result == 0 ? (long)len : 0;
    if (o->result < 0)
        o->len = 0;
}

static void make_call(struct side *s, const struct call *c, struct outcome *o)
{
    struct sockaddr_storage ss;
    struct linger lg = {1, 0};
    int v = 0;

    memset(o, 0, sizeof *o);
    switch (c->op) {
    case OP_SOCKET:
        op_socket(s, c, o);
        break;
    case OP_BIND:
        op_bind(s, c, o);
        break;
    case OP_LISTEN:
        result(o, s->listen(s->fd[c->slot], SLOTS * 2));
        break;
    case OP_ACCEPT:
        op_accept(s, c, o);
        break;
    case OP_CONNECT:
    case OP_CONNECT_NONE:
    case OP_UNSPEC:
        op_connect(s, c, o);
        break;
    case OP_SEND:
        result(o, s->sendto(s->fd[c->slot], c->data, (size_t)c->a, send_flags[c->b], NULL, 0));
        break;
    case OP_SENDTO:
        result(o, s->sendto(s->fd[c->slot], c->data, (size_t)c->a, 0, (struct sockaddr *)&ss,
                            destination(s, c->other, &ss)));
        break;
    case OP_RECV:
        op_recv(s, c, o);
        break;
    case OP_SENDMSG:
        op_sendmsg(s, c, o);
        break;
    case OP_TELL:
        op_tell(s, c, o);
        break;
    case OP_DEFER:
        op_defer(s, c, o);
        break;
    case OP_SHUTDOWN:
        result(o, s->shutdown(s->fd[c->slot], c->a));
        break;
    case OP_CLOSE:
        /* To the kernel an urgent byte that is next is unread data, for which it resets. */
        if (s->ioctl(s->fd[c->slot], SIOCATMARK_, &v) == 0 && v) {
            struct iovec iov = {o->data, 1};
            struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
            (void)!s->recvmsg(s->fd[c->slot], &msg, 0);
        }
        result(o, s->close(s->fd[c->slot]));
        s->fd[c->slot] = -1;
        break;
    case OP_NAME:
        op_name(s, c, o);
        break;
    case OP_ERROR:
    case OP_OPTION:
    case OP_OPTION_SET:
        op_option(s, c, o);
        break;
    case OP_IOCTL:
        result(o, s->ioctl(s->fd[c->slot], ioctls[c->a], &v));
        o->extra = o->result == 0 ? v : 0;
        break;
    case OP_LINGER:
        result(o, s->setsockopt(s->fd[c->slot], SOL_SOCKET, SO_LINGER, &lg, sizeof lg));
        break;
    default:
        break;
    }
}

/* Draw a call that can be made now. */
static bool draw(struct call *c)
{
    uint32_t total = 0, at;

    for (int i = 0; i < OP_COUNT; i++)
        total += weights[i];
    at = rnd(total);
    for (c->op = 0; at >= weights[c->op]; c->op++)
        at -= weights[c->op];
    bool datagram = c->op == OP_SENDTO || c->op == OP_TELL;
    int type = datagram ? SOCK_DGRAM : c->op == OP_DEFER ? SOCK_STREAM : 0;
    c->slot = c->op == OP_SOCKET ? free_slot() : used_slot(type);
    c->other = c->op == OP_ACCEPT ? free_slot() : used_slot(0);
    c->a = c->b = 0;
    if (c->slot < 0 || c->other < 0)
        return c->op == OP_SOCKET && c->slot >= 0 ? (c->a = (int)rnd(12), true) : false;
    switch (c->op) {
    case OP_SOCKET:
        c->a = (int)rnd(12);
        break;
    case OP_LISTEN:
        if (slots[c->slot].shut || slots[c->slot].listened)
            return false;
        slots[c->slot].listened = true;
        break;
    case OP_CONNECT: /* to itself: whether it still has its port depends on how it lost its last
                        connection */
        if (c->slot == c->other && slots[c->slot].type == SOCK_STREAM)
            return false;
        if (slots[c->slot].defers)
            return false;
        if (slots[c->slot].listened || (slots[c->slot].shut && slots[c->slot].type == SOCK_STREAM))
            return false;
        slots[c->slot].connected = true;
        if (slots[c->slot].type == SOCK_DGRAM && slots[c->slot].domain != slots[c->other].domain)
            return false; /* the kernel's IPv6 socket, once IPv4, does not go back */
        break;
    case OP_BIND:
        c->a = (int)rnd(8);
        if (slots[c->slot].listened || slots[c->slot].connected)
            return false;
        break;
    case OP_CONNECT_NONE:
        if (slots[c->slot].listened || slots[c->slot].defers)
            return false;
        slots[c->slot].connected = true;
        if (slots[c->slot].type == SOCK_DGRAM && slots[c->slot].domain == AF_INET6)
            return false;
        break;
    case OP_DEFER: /* a client's would delay its ACK to the kernel's SYN-ACK */
        c->a = (int)rnd(12) - 1;
        if (slots[c->slot].connected)
            return false;
        slots[c->slot].defers = true;
        break;
    case OP_TELL:
        c->a = (int)rnd(sizeof tells / sizeof *tells);
        c->b = rnd(3) != 0;
        break;
    case OP_SENDMSG:
        c->control = (int)rnd(CONTROLS);
        c->a = (int)rnd(100);
        c->b = slots[c->slot].type == SOCK_DGRAM && rnd(4);
        if ((c->b && slots[c->slot].domain != slots[c->other].domain) ||
            slots[c->slot].sent + (uint32_t)c->a > MAX_SENT)
            return false;
        slots[c->slot].sent += (uint32_t)c->a;
        memset(c->data, c->control, (size_t)c->a);
        break;
    case OP_SEND:
    case OP_SENDTO:
        if (c->op == OP_SENDTO && slots[c->slot].domain != slots[c->other].domain)
            return false;
        c->a = (int)(rnd(8) ? rnd(500) : rnd(sizeof c->data));
        c->b = (int)rnd(sizeof send_flags / sizeof *send_flags);
        if (slots[c->slot].sent + (uint32_t)c->a > MAX_SENT)
            return false;
        /* A second urgent byte makes the kernel put the first back into the stream. */
        if (send_flags[c->b] == MSG_OOB && slots[c->slot].oob)
            c->b = 0;
        slots[c->slot].oob |= send_flags[c->b] == MSG_OOB;
        slots[c->slot].sent += (uint32_t)c->a;
        for (int i = 0; i < c->a; i++)
            c->data[i] = (uint8_t)rnd(256);
        break;
    case OP_RECV:
        c->a = (int)(rnd(4) ? rnd(600) : rnd(4000));
        c->b = (int)rnd(sizeof recv_flags / sizeof *recv_flags);
        c->control = rnd(4) ? (int)rnd(64) * 4 : (int)rnd(256) - 1; /* -1: none */
        break;
    case OP_SHUTDOWN:
        c->a = (int)rnd(13) % 4; /* 3 is wrong */
        /* Shut both ways the kernel answers data with a reset, FreeBSD and Weir throw them away. */
        if (slots[c->slot].connected &&
            (c->a == SHUT_RDWR || (slots[c->slot].shut && slots[c->slot].how != c->a)))
            return false;
        slots[c->slot].shut = true;
        slots[c->slot].how = c->a;
        break;
    case OP_UNSPEC:
        if (slots[c->slot].listened)
            return false;
        slots[c->slot].listened = true; /* it may keep or lose its port */
        break;
    case OP_NAME: /* the kernel's IPv6 remembers the local address of connections that are over */
        c->a = slots[c->slot].domain == AF_INET6 && slots[c->slot].type == SOCK_STREAM
                   ? 1
                   : (int)rnd(2);
        break;
    case OP_OPTION:
        c->a = (int)rnd(sizeof options / sizeof *options);
        c->b = (int)rnd(3) * 8;
        break;
    case OP_OPTION_SET:
        c->a = (int)rnd(sizeof options / sizeof *options);
        c->b = (int)(rnd(16) | (uint32_t)(rnd(4) * 4) << 4);
        if ((options[c->a].level == SOL_SOCKET && options[c->a].name == SO_RCVLOWAT) ||
            options[c->a].level == IPPROTO_TCP)
            return false; /* later calls would differ by buffer sizes and by what is on its way */
        break;
    case OP_IOCTL:
        c->a = (int)rnd(sizeof ioctls / sizeof *ioctls);
        break;
    default:
        break;
    }
    return true;
}

/* --- comparing --- */

/* The kernel limits the rate of its ICMP errors, so a sequence that differs is tried once more
 * after a pause. */
static jmp_buf once_more;
static bool second_try;

static void die(const char *what, const struct outcome *o)
{
    if (!second_try)
        longjmp(once_more, 1);
    printf("%s  differ: %s; again with SEED=%llu SEQUENCES=1\n", trace, what,
           (unsigned long long)seed_now);
    for (int i = 0; o && i < 2; i++) {
        printf("  %-7s result %ld errno %s extra %ld len %zu:", sides[i].name, o[i].result,
               o[i].error ? strerrorname_np(o[i].error) : "0", o[i].extra, o[i].len);
        for (size_t k = 0; k < o[i].len; k++)
            if (k < 32 || o[0].data[k] != o[1].data[k])
                printf(" %02x", o[i].data[k]);
        printf("\n");
    }
    exit(1);
}

static void bits_of(struct side *s, short *bits)
{
    for (int i = 0; i < SLOTS; i++) {
        struct pollfd p = {s->fd[i], POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
        bits[i] = 0;
        if (s->fd[i] >= 0 && s->poll(&p, 1, 0) >= 0)
            bits[i] = p.revents;
    }
}

static void events_of(struct side *s, uint32_t *events)
{
    struct epoll_event ev[SLOTS];
    int n = s->epoll_wait(s->ep, ev, SLOTS, 0);

    memset(events, 0, SLOTS * sizeof *events);
    for (int i = 0; i < n; i++)
        events[ev[i].data.u32] = ev[i].events;
}

static void compare_readiness(void)
{
    short bits[2][SLOTS];
    uint32_t events[2][SLOTS];
    struct pollfd idle = {-1, 0, 0};

    for (int tries = 0; tries < 100; tries++) {
        for (int i = 0; i < 2; i++) {
            bits_of(&sides[i], bits[i]);
            events_of(&sides[i], events[i]);
        }
        if (memcmp(bits[0], bits[1], sizeof bits[0]) == 0 &&
            memcmp(events[0], events[1], sizeof events[0]) == 0)
            return;
        sides[1].poll(&idle, 1, 1);
    }
    for (int i = 0; i < SLOTS; i++)
        if (bits[0][i] != bits[1][i] || events[0][i] != events[1][i])
            note("  slot %d: %s poll %#x epoll %#x, %s poll %#x epoll %#x\n", i, sides[0].name,
                 bits[0][i], events[0][i], sides[1].name, bits[1][i], events[1][i]);
    die("readiness", NULL);
}

static void sequence(unsigned calls)
{
    static struct outcome o[2];
    static struct call c;

    trace_len = 0;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < 2; i++) {
        sides[i].ep = sides[i].epoll_create(0);
        for (int k = 0; k < SLOTS; k++)
            sides[i].fd[k] = -1;
    }
    for (unsigned n = 0; n < calls; n++) {
        if (!draw(&c))
            continue;
        note("%3u %s slot %d other %d a %d b %d control %d", n, op_names[c.op], c.slot, c.other,
             c.a, c.b, c.control);
        for (int i = 0; i < 2; i++)
            make_call(&sides[i], &c, &o[i]);
        note(" = %ld %s\n", o[0].result, o[0].error ? strerrorname_np(o[0].error) : "");
        if (o[0].result != o[1].result || o[0].error != o[1].error || o[0].extra != o[1].extra ||
            o[0].len != o[1].len)
            die("outcome", o);
        if (memcmp(o[0].data, o[1].data, o[0].len) != 0)
            die("data", o);
        compare_readiness();
    }
}

static void close_all(void)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < SLOTS; k++)
            if (sides[i].fd[k] >= 0)
                sides[i].close(sides[i].fd[k]);
        sides[i].close(sides[i].ep);
    }
}

/* calls is volatile only for setjmp's sake. */
static void run_seed(uint64_t seed, volatile unsigned calls)
{
    struct pollfd idle = {-1, 0, 0};

    seed_now = seed;
    second_try = false;
    if (setjmp(once_more)) {
        close_all();
        sides[1].poll(&idle, 1, 500);
        second_try = true;
    }
    rng = seed_now * UINT64_C(0x9e3779b97f4a7c15) | 1;
    sequence(calls);
    close_all();
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
    unsigned sequences = (unsigned)from_env("SEQUENCES", 400),
             calls = (unsigned)from_env("CALLS", 80);

    printf("seed %llu\n", (unsigned long long)seed);
    sides[0] = kernel_side;
    sides[1] = self ? kernel_side : weir_side;
    if (!self && !(stack = weir_stack_create(NULL))) {
        perror("weir_stack_create");
        return 1;
    }
    if (stack) /* many are refused here */
        weir_sysctl_set(stack, "net.inet.icmp.icmplim", "0");
    for (unsigned i = 0; i < sequences; i++)
        run_seed(seed + i, calls);
    if (stack)
        weir_stack_destroy(stack);
    printf("%u sequences agree\n", sequences);
    return 0;
}
