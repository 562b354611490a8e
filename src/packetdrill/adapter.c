/* SPDX-License-Identifier: BSD-2-Clause
 * packetdrill's shared-object interface over a Weir stack in virtual time: see adapter.h.
 *
 * How it works. A script's socket calls become weir_* calls; its descriptors are real eventfds, so
 * that the tool may close what a script leaves open, and a table maps them to Weir's. Packets pass
 * through pd_link, time through virtual_clock. Every call holds the clock's lock while it runs and
 * gives it up only inside the port's wait.
 *
 * Weir's calls answer as Linux's do. Conformance scripts of FreeBSD presume its errno where the two
 * differ: what differs is translated here (as_freebsd_...). */
#include "adapter.h"

#include "pd_link.h"
#include "runtime/control.h"
#include "socket/descriptor.h"
#include "weir/socket.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PD_MAX_FDS 65536
#define PD_START_S UINT64_C(1000)       /* of the stack's clock when a script begins */
#define PD_EPOCH_S UINT64_C(1700000000) /* what gettimeofday adds to it */
#define PD_READ_TICK_NS NS_PER_US
#define PD_RECEIVE_LIMIT_NS                                                                        \
    (4 * 3600 * NS_PER_S) /* virtual time that netdev_receive may pass: two keepalive times */
#define PD_MAX_POLL 64

/* What a socket has been through, for the answers that depend on it. */
enum pd_past {
    PD_FRESH,
    PD_IN_PROGRESS, /* connect has said EINPROGRESS */
    PD_USED,        /* accepted, or connect was called otherwise */
};

struct pd {
    struct pd_clock clock;
    struct pd_link *link;
    struct control *control;
    int32_t handle[PD_MAX_FDS]; /* Weir's descriptor + 1 for each of ours; 0: not ours */
    uint8_t past[PD_MAX_FDS];   /* enum pd_past of each */
};

static _Noreturn void give_up(const char *what, const char *detail)
{
    fprintf(stderr, "libweir-packetdrill: %s%s%s\n", what, detail ? ": " : "",
            detail ? detail : "");
    exit(1);
}

static void enter(struct pd *p)
{
    pd_lock(&p->clock);
}

static long leave(struct pd *p, long result)
{
    int saved = errno;
    pd_unlock(&p->clock);
    errno = saved;
    return result;
}

/* Weir's descriptor of fd, -1 when it is none of ours. */
static int handle_of(const struct pd *p, int fd)
{
    return fd >= 0 && fd < PD_MAX_FDS ? p->handle[fd] - 1 : -1;
}

/* A real descriptor that stands for Weir's. */
static int publish(struct pd *p, int handle)
{
    if (handle < 0)
        return -1;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || fd >= PD_MAX_FDS) {
        if (fd >= 0)
            close(fd);
        weir_close(handle);
        errno = EMFILE;
        return -1;
    }
    p->handle[fd] = handle + 1;
    p->past[fd] = PD_FRESH;
    return fd;
}

/* --- where FreeBSD's answers differ --- */

/* Linux's number of the TCP state; 0: not a TCP socket. */
static int tcp_state_of(int h)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    int saved = errno;
    int state = weir_getsockopt(h, IPPROTO_TCP, TCP_INFO, &info, &len) ? 0 : info.tcpi_state;
    errno = saved;
    return state;
}

/* Its connection has ended: it will never be another one's there. */
static bool is_dropped(struct pd *p, int fd)
{
    return handle_of(p, fd) >= 0 && p->past[fd] != PD_FRESH &&
           tcp_state_of(handle_of(p, fd)) == TCP_CLOSE;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* A socket that is not connected yet refuses to send. */
static ssize_t as_freebsd_send(struct pd *p, int fd, ssize_t result)
{
    if (result >= 0)
        return result;
    if (is_dropped(p, fd)) { /* while the call waited */
        errno = EPIPE;
        return result;
    }
    if (errno != EPIPE && errno != EAGAIN)
        return result;
    int state = tcp_state_of(handle_of(p, fd));
    if (state == TCP_SYN_SENT || state == TCP_SYN_RECV ||
        (errno == EPIPE && p->past[fd] == PD_FRESH))
        errno = ENOTCONN;
    return result;
}

/* A reset is a reset in CLOSE_WAIT, too. */
static ssize_t as_freebsd_receive(ssize_t result)
{
    if (result < 0 && errno == EPIPE)
        errno = ECONNRESET;
    return result;
}

/* Flags are shown as the bits that they are there, and no error is EPIPE. */
static void as_freebsd_option(int level, int name, int *value)
{
    static const struct {
        int level, name, bit;
    } flags[] = {{SOL_SOCKET, SO_ACCEPTCONN, 0x2}, {SOL_SOCKET, SO_REUSEADDR, 0x4},
                 {SOL_SOCKET, SO_KEEPALIVE, 0x8},  {SOL_SOCKET, SO_OOBINLINE, 0x100},
                 {IPPROTO_TCP, TCP_NODELAY, 0x4},  {IPPROTO_TCP, TCP_CORK, 0x1000}};
    if (level == SOL_SOCKET && name == SO_ERROR && *value == EPIPE)
        *value = ECONNRESET;
    for (size_t i = 0; i < NELEM(flags); i++) {
        if (flags[i].level == level && flags[i].name == name && *value)
            *value = flags[i].bit;
    }
}

/* The second connect of a socket finds it connected; a listener does not connect. */
static int as_freebsd_connect(struct pd *p, int fd, int result, int state_before)
{
    if (result == 0 && p->past[fd] == PD_IN_PROGRESS) {
        errno = EISCONN;
        result = -1;
    } else if (result < 0 && state_before == TCP_LISTEN) {
        errno = EOPNOTSUPP;
        return result;
    }
    if (handle_of(p, fd) >= 0)
        p->past[fd] =
            result < 0 && errno == EINPROGRESS ? PD_IN_PROGRESS : MAX(p->past[fd], PD_USED);
    return result;
}

/* Body of a call that sends: EPIPE comes before an error that waits. */
#define WITH_HANDLE_TO_SEND(call)                                                                  \
    struct pd *p = u;                                                                              \
    enter(p);                                                                                      \
    int h = handle_of(p, fd);                                                                      \
    if (is_dropped(p, fd))                                                                         \
        return leave(p, refuse(EPIPE));                                                            \
    return leave(p, as_freebsd_send(p, fd, call))

/* Body of a call that only translates the descriptor. */
#define WITH_HANDLE(type, call)                                                                    \
    struct pd *p = u;                                                                              \
    enter(p);                                                                                      \
    int h = handle_of(p, fd);                                                                      \
    return (type)leave(p, (long)(call))

static int pd_socket(void *u, int domain, int type, int proto)
{
    struct pd *p = u;
    enter(p);
    return (int)leave(p, publish(p, weir_socket(p->clock.stack, domain, type, proto)));
}

static int pd_bind(void *u, int fd, const struct sockaddr *addr, socklen_t len)
{
    WITH_HANDLE(int, is_dropped(p, fd) ? refuse(EINVAL) : weir_bind(h, addr, len));
}

static int pd_listen(void *u, int fd, int backlog)
{
    /* FreeBSD's queue takes half as many again. */
    int n = backlog > 0 && backlog < INT_MAX / 2 ? backlog * 3 / 2 : backlog;
    WITH_HANDLE(int, is_dropped(p, fd) ? refuse(EINVAL) : weir_listen(h, n));
}

static int pd_accept(void *u, int fd, struct sockaddr *addr, socklen_t *len)
{
    struct pd *p = u;
    enter(p);
    int h = weir_accept(handle_of(p, fd), addr, len);
    if (h >= 0 && tcp_state_of(h) == TCP_CLOSE) { /* the peer has reset it meanwhile */
        weir_close(h);
        errno = ECONNABORTED;
        h = -1;
    }
    int listener_flags = weir_fcntl(handle_of(p, fd), F_GETFL, 0), mine = publish(p, h);
    if (mine >= 0) {
        p->past[mine] = PD_USED;
        if (listener_flags & O_NONBLOCK) /* inherited there */
            weir_fcntl(h, F_SETFL, O_RDWR | O_NONBLOCK);
    }
    return (int)leave(p, mine);
}

static int pd_connect(void *u, int fd, const struct sockaddr *addr, socklen_t len)
{
    struct pd *p = u;
    enter(p);
    int h = handle_of(p, fd), state = tcp_state_of(h);
    if (is_dropped(p, fd))
        return (int)leave(p, refuse(ECONNREFUSED));
    return (int)leave(p, as_freebsd_connect(p, fd, weir_connect(h, addr, len), state));
}

static ssize_t pd_read(void *u, int fd, void *buf, size_t len)
{
    if (handle_of(u, fd) < 0)
        return read(fd, buf, len);
    WITH_HANDLE(ssize_t, as_freebsd_receive(weir_read(h, buf, len)));
}

static ssize_t pd_readv(void *u, int fd, const struct iovec *iov, int n)
{
    WITH_HANDLE(ssize_t, as_freebsd_receive(weir_readv(h, iov, n)));
}

static ssize_t pd_recv(void *u, int fd, void *buf, size_t len, int flags)
{
    WITH_HANDLE(ssize_t, as_freebsd_receive(weir_recv(h, buf, len, flags)));
}

static ssize_t pd_recvfrom(void *u, int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                           socklen_t *alen)
{
    WITH_HANDLE(ssize_t, as_freebsd_receive(weir_recvfrom(h, buf, len, flags, addr, alen)));
}

static ssize_t pd_recvmsg(void *u, int fd, struct msghdr *msg, int flags)
{
    WITH_HANDLE(ssize_t, as_freebsd_receive(weir_recvmsg(h, msg, flags)));
}

static ssize_t pd_write(void *u, int fd, const void *buf, size_t len)
{
    if (handle_of(u, fd) < 0)
        return write(fd, buf, len);
    WITH_HANDLE_TO_SEND(weir_write(h, buf, len));
}

static ssize_t pd_writev(void *u, int fd, const struct iovec *iov, int n)
{
    WITH_HANDLE_TO_SEND(weir_writev(h, iov, n));
}

static ssize_t pd_send(void *u, int fd, const void *buf, size_t len, int flags)
{
    WITH_HANDLE_TO_SEND(weir_send(h, buf, len, flags));
}

static ssize_t pd_sendto(void *u, int fd, const void *buf, size_t len, int flags,
                         const struct sockaddr *addr, socklen_t alen)
{
    WITH_HANDLE_TO_SEND(weir_sendto(h, buf, len, flags, addr, alen));
}

static ssize_t pd_sendmsg(void *u, int fd, const struct msghdr *msg, int flags)
{
    WITH_HANDLE_TO_SEND(weir_sendmsg(h, msg, flags));
}

static int pd_fcntl(void *u, int fd, int cmd, ...)
{
    va_list ap;
    va_start(ap, cmd);
    int arg = va_arg(ap, int);
    va_end(ap);
    if (handle_of(u, fd) < 0) /* an end of a pipe */
        return fcntl(fd, cmd, arg);
    WITH_HANDLE(int, weir_fcntl(h, cmd, arg));
}

static int pd_ioctl(void *u, int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    int *arg = va_arg(ap, int *);
    va_end(ap);
    WITH_HANDLE(int, weir_ioctl(h, request, arg));
}

static int pd_close(void *u, int fd)
{
    struct pd *p = u;
    enter(p);
    int h = handle_of(p, fd), result = 0;
    if (h >= 0) {
        p->handle[fd] = 0;
        result = weir_close(h);
    }
    int saved = errno;
    if (close(fd) < 0 && result == 0)
        return (int)leave(p, -1);
    errno = saved;
    return (int)leave(p, result);
}

static int pd_shutdown(void *u, int fd, int how)
{
    struct pd *p = u;
    enter(p);
    int h = handle_of(p, fd);
    bool listener = tcp_state_of(h) == TCP_LISTEN;
    int result = weir_shutdown(h, how);
    if (result == 0 && listener) { /* FreeBSD wakes those who accept, and yet says: */
        errno = ENOTCONN;
        result = -1;
    }
    return (int)leave(p, result);
}

static int pd_getsockopt(void *u, int fd, int level, int name, void *val, socklen_t *len)
{
    struct pd *p = u;
    enter(p);
    int result = weir_getsockopt(handle_of(p, fd), level, name, val, len);
    if (result == 0 && *len == sizeof(int))
        as_freebsd_option(level, name, val);
    return (int)leave(p, result);
}

static int pd_setsockopt(void *u, int fd, int level, int name, const void *val, socklen_t len)
{
    WITH_HANDLE(int, weir_setsockopt(h, level, name, val, len));
}

static int pd_poll(void *u, struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct pd *p = u;
    struct pollfd mine[PD_MAX_POLL];
    if (n > PD_MAX_POLL) {
        errno = EINVAL;
        return -1;
    }
    if (n == 1 && fds[0].fd >= 0 && handle_of(p, fds[0].fd) < 0) /* an end of a pipe */
        return poll(fds, n, 0);
    enter(p);
    for (nfds_t i = 0; i < n; i++)
        mine[i] = (struct pollfd){.fd = handle_of(p, fds[i].fd), .events = fds[i].events};
    int r = weir_poll(mine, n, timeout_ms);
    for (nfds_t i = 0; i < n; i++)
        fds[i].revents = mine[i].revents;
    return (int)leave(p, r);
}

static int pd_netdev_send(void *u, const void *buf, size_t len)
{
    struct pd *p = u;
    enter(p);
    int error = pd_link_inject(p->link, buf, len);
    if (!error)
        pd_clock_settle(&p->clock);
    return (int)leave(p, error ? -1 : 0);
}

static int pd_netdev_receive(void *u, void *buf, size_t *len, long long *time_usecs)
{
    struct pd *p = u;
    enter(p);
    uint64_t when, limit = p->clock.now_ns + PD_RECEIVE_LIMIT_NS;
    bool got;
    while (!(got = pd_link_take(p->link, buf, len, &when)) && pd_clock_step(&p->clock, limit))
        ;
    if (!got) { /* nothing can come any more: a junk byte lets the script fail cleanly */
        *(uint8_t *)buf = 0;
        *len = 1;
        when = p->clock.now_ns;
    }
    *time_usecs = (long long)(when / NS_PER_US + PD_EPOCH_S * 1000000);
    return (int)leave(p, 0);
}

static int pd_usleep(void *u, useconds_t us)
{
    struct pd *p = u;
    enter(p);
    pd_clock_run(&p->clock, p->clock.now_ns + us * NS_PER_US);
    return (int)leave(p, 0);
}

static int pd_gettimeofday(void *u, struct timeval *tv, struct timezone *tz)
{
    struct pd *p = u;
    enter(p);
    uint64_t now = pd_clock_read(&p->clock, PD_READ_TICK_NS);
    tv->tv_sec = (time_t)(now / NS_PER_S + PD_EPOCH_S);
    tv->tv_usec = (suseconds_t)(now % NS_PER_S / NS_PER_US);
    return (int)leave(p, 0);
}

static int pd_epoll_create(void *u, int size)
{
    struct pd *p = u;
    enter(p);
    if (size <= 0) {
        errno = EINVAL;
        return (int)leave(p, -1);
    }
    return (int)leave(p, publish(p, weir_epoll_create(0)));
}

static int pd_epoll_ctl(void *u, int epfd, int op, int fd, struct epoll_event *event)
{
    struct pd *p = u;
    enter(p);
    return (int)leave(p, weir_epoll_ctl(handle_of(p, epfd), op, handle_of(p, fd), event));
}

static int pd_epoll_wait(void *u, int epfd, struct epoll_event *events, int max, int timeout_ms)
{
    struct pd *p = u;
    enter(p);
    return (int)leave(p, weir_epoll_wait(handle_of(p, epfd), events, max, timeout_ms));
}

static int pd_pipe(void *u, int fds[2])
{
    return pipe(fds);
}

/* Between a pipe of the kernel and a socket of ours; what the pipe does not take stays in the
 * socket. */
static ssize_t splice_out(struct pd *p, int fd_in, int fd_out, size_t len)
{
    static char buf[65536];
    ssize_t n = pd_recv(p, fd_in, buf, MIN(len, sizeof(buf)), MSG_PEEK);
    if (n <= 0)
        return n;
    n = write(fd_out, buf, (size_t)n);
    return n <= 0 ? n : pd_recv(p, fd_in, buf, (size_t)n, 0);
}

static int pd_splice(void *u, int fd_in, loff_t *off_in, int fd_out, loff_t *off_out, size_t len,
                     unsigned flags)
{
    struct pd *p = u;
    static char buf[65536];
    bool in = handle_of(p, fd_in) >= 0, out = handle_of(p, fd_out) >= 0;
    if (in == out || off_in || off_out) {
        errno = in || out ? EINVAL : EBADF;
        return -1;
    }
    if (in)
        return (int)splice_out(p, fd_in, fd_out, len);
    ssize_t n = read(fd_in, buf, MIN(len, sizeof(buf)));
    return (int)(n <= 0 ? n : pd_send(p, fd_out, buf, (size_t)n, 0));
}

static void pd_free(void *u)
{
    struct pd *p = u;
    if (p->control)
        control_close(p->control);
    for (int fd = 0; fd < PD_MAX_FDS; fd++) {
        if (p->handle[fd])
            weir_close(p->handle[fd] - 1);
    }
    if (owner_try(p->clock.stack))
        stack_destroy(p->clock.stack);
    pd_clock_fini(&p->clock);
    free(p);
}

static const struct packetdrill_interface template = {
    .free = pd_free,
    .socket = pd_socket,
    .bind = pd_bind,
    .listen = pd_listen,
    .accept = pd_accept,
    .connect = pd_connect,
    .read = pd_read,
    .readv = pd_readv,
    .recv = pd_recv,
    .recvfrom = pd_recvfrom,
    .recvmsg = pd_recvmsg,
    .write = pd_write,
    .writev = pd_writev,
    .send = pd_send,
    .sendto = pd_sendto,
    .sendmsg = pd_sendmsg,
    .fcntl = pd_fcntl,
    .ioctl = pd_ioctl,
    .close = pd_close,
    .shutdown = pd_shutdown,
    .getsockopt = pd_getsockopt,
    .setsockopt = pd_setsockopt,
    .poll = pd_poll,
    .netdev_send = pd_netdev_send,
    .netdev_receive = pd_netdev_receive,
    .usleep = pd_usleep,
    .gettimeofday = pd_gettimeofday,
    .epoll_create = pd_epoll_create,
    .epoll_ctl = pd_epoll_ctl,
    .epoll_wait = pd_epoll_wait,
    .pipe = pd_pipe,
    .splice = pd_splice,
};

/* --- start --- */

/* Scripts see segments, not superframes; the others are what FreeBSD's scripts presume and Weir's
 * defaults are not. */
static const char *const script_knobs[][2] = {
    {"net.inet.tcp.tso", "0"},
    {"net.inet.tcp.lro", "0"},
    {"net.inet.tcp.close_unread_rst", "0"},
    {"net.inet.tcp.msgmore_flush", "60000"},
    {"net.inet.tcp.syncache.rst_on_queue_full", "1"},
    {"net.inet.icmp.pmtu_floor", "256"},
    {"net.inet.tcp.freebsd_wire", "1"},
    {"net.inet.tcp.fast_finwait2_recycle", "0"},
    {"net.inet.tcp.newcwv", "0"},
};

struct pd_options {
    struct ipaddr local;
    unsigned prefixlen;
    uint32_t mtu;
    char ctl[108];
};

static unsigned mask_length(const char *text)
{
    struct in_addr mask;
    if (inet_pton(AF_INET, text, &mask) != 1)
        give_up("not a netmask", text);
    return (unsigned)__builtin_popcount(mask.s_addr);
}

static void parse_option(struct pd_options *o, const char *key, const char *value)
{
    if (strcmp(key, "local") == 0) {
        if (ipaddr_parse(value, &o->local))
            give_up("not an address", value);
    } else if (strcmp(key, "mask") == 0) {
        o->prefixlen = *value ? mask_length(value) : 0;
    } else if (strcmp(key, "mtu") == 0) {
        o->mtu = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(key, "ctl") == 0) {
        if (strlen(value) >= sizeof(o->ctl))
            give_up("the control socket's path is too long", value);
        strcpy(o->ctl, value);
    } else if (strcmp(key, "gateway") != 0 && strcmp(key, "remote") != 0) {
        give_up("unknown flag",
                key); /* gateway and remote: everything is reached through the link */
    }
}

static struct pd_options parse_flags(const char *flags)
{
    struct pd_options o = {.mtu = 1500};
    if (ipaddr_parse("192.168.0.1", &o.local))
        give_up("address", NULL);
    char *copy = strdup(flags ? flags : ""), *rest = copy, *item;
    while (copy && (item = strsep(&rest, ","))) {
        char *value = strchr(item, '=');
        if (!value) {
            if (*item)
                give_up("a flag without a value", item);
            continue;
        }
        *value++ = '\0';
        parse_option(&o, item, value);
    }
    free(copy);
    unsigned most = o.local.family == AF_INET ? 32 : 128;
    if (o.prefixlen == 0 || o.prefixlen > most)
        o.prefixlen = o.local.family == AF_INET ? 16 : 64;
    if (o.mtu < 68 || o.mtu > 65535)
        give_up("mtu out of range", NULL);
    return o;
}

static void *heap_alloc(void *ctx, size_t size)
{
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void heap_free(void *ctx, void *p, size_t size)
{
    free(p);
}

static void panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "libweir-packetdrill: %s:%d: check failed: %s\n", file, line, what);
    abort();
}

void packetdrill_interface_init(const char *flags, struct packetdrill_interface *ifc)
{
    static const struct weir_alloc heap = {heap_alloc, heap_free, NULL};
    struct pd_options o = parse_flags(flags);
    struct pd *p = calloc(1, sizeof(*p));
    if (!p)
        give_up("no memory", NULL);
    base_panic_hook = panic;
    desc_table_init(&heap);
    pd_clock_init(&p->clock, PD_START_S * NS_PER_S);
    struct stack_config cfg = {.alloc = &heap,
                               .port = &p->clock.port,
                               .seed = "packetdrill",
                               .now_ns = p->clock.now_ns,
                               .name = program_invocation_short_name};
    struct weir_stack *s = p->clock.stack = stack_create(&cfg);
    if (!s || !owner_try(s))
        give_up("no stack", NULL);
    p->link = pd_link_create(&p->clock, &o.local, o.prefixlen, o.mtu);
    if (!p->link)
        give_up("no link", NULL);
    for (size_t i = 0; i < NELEM(script_knobs); i++) {
        if (sysctl_set(s, script_knobs[i][0], script_knobs[i][1]))
            give_up("a knob", script_knobs[i][0]);
    }
    stack_leave(s);
    pd_clock_settle(&p->clock);
    int error = 0;
    if (*o.ctl && !(p->control = control_open(o.ctl, s, &error)))
        give_up(o.ctl, strerror(-error));
    *ifc = template;
    ifc->userdata = p;
}
