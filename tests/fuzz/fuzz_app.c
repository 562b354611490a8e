/* SPDX-License-Identifier: BSD-2-Clause
 * The applications of the stack's fuzz targets: every socket call, never one that waits for ever.
 */
#include "fuzz_world.h"

#include "socket/descriptor.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"
#include "weir/socket.h"
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>

#define BUFFER 70000

static uint8_t buf[BUFFER];

static struct fuzz_fd *slot_new(struct fuzz_world *w, int fd, bool tcp)
{
    for (size_t i = 0; i < FUZZ_FDS; i++) {
        if (w->fd[i].fd < 0) {
            w->fd[i] = (struct fuzz_fd){.fd = fd, .tcp = tcp};
            return &w->fd[i];
        }
    }
    weir_close(fd);
    return NULL;
}

static socklen_t destination(struct fuzz_world *w, struct fuzz_in *in, struct sockaddr_storage *ss)
{
    static const char *const others[] = {
        "127.0.0.1",  "::1",       "0.0.0.0", "::",       "255.255.255.255",
        "10.0.0.255", "224.0.0.1", "ff02::1", "10.0.0.9", "203.0.113.7"};
    uint8_t which = fuzz_u8(in);
    struct ipaddr a = w->peer4;
    switch (which & 7) {
    case 0:
    case 1:
        break;
    case 2:
    case 3:
        a = w->peer6;
        break;
    case 4:
        a = w->local4;
        break;
    case 5:
        a = w->local6;
        break;
    default:
        FUZZ_CHECK(ipaddr_parse(others[(which >> 3) % NELEM(others)], &a) == 0);
    }
    static const uint16_t ports[] = {80, 7, 53, 1000, 0, 443};
    uint8_t port = fuzz_u8(in);
    socklen_t len = ipaddr_to_sockaddr(&a, port < 200 ? ports[port % NELEM(ports)] : fuzz_u16(in),
                                       which & 0x80 ? AF_INET6 : a.family, ss);
    if (port >= 0xf8)
        ss->ss_family = (sa_family_t)(port & 7);
    return port >= 0xf0 ? len - (port & 7) : len;
}

static void listen_on(struct fuzz_world *w, int domain, const struct ipaddr *a)
{
    struct sockaddr_storage ss;
    int fd = weir_socket(w->s, domain, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(weir_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
    socklen_t len = ipaddr_to_sockaddr(a, 80, domain, &ss);
    FUZZ_CHECK(weir_bind(fd, (struct sockaddr *)&ss, len) == 0 && weir_listen(fd, 5) == 0);
    slot_new(w, fd, true);
}

static void udp_on(struct fuzz_world *w, int domain, const struct ipaddr *a)
{
    struct sockaddr_storage ss;
    int fd = weir_socket(w->s, domain, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(fd >= 0);
    socklen_t len = ipaddr_to_sockaddr(a, 53, domain, &ss);
    FUZZ_CHECK(weir_bind(fd, (struct sockaddr *)&ss, len) == 0);
    slot_new(w, fd, false);
}

void fuzz_app_open(struct fuzz_world *w)
{
    struct ipaddr any4 = {.family = AF_INET}, any6 = {.family = AF_INET6};
    for (size_t i = 0; i < FUZZ_FDS; i++)
        w->fd[i].fd = -1;
    listen_on(w, AF_INET6, &any6); /* slot 0: both families */
    udp_on(w, AF_INET, &any4);     /* slot 1 */
    udp_on(w, AF_INET6, &w->local6);
}

void fuzz_app_close(struct fuzz_world *w)
{
    for (size_t i = 0; i < FUZZ_FDS; i++) {
        if (w->fd[i].fd >= 0)
            FUZZ_CHECK(weir_close(w->fd[i].fd) == 0);
        w->fd[i].fd = -1;
    }
}

/* --- the stream --- */

/* The first sequence number of the peer's stream, once the connection is there. */
static void learn_irs(struct fuzz_fd *f)
{
    struct desc_ref r;
    if (f->have_irs || !f->tcp || !desc_get(f->fd, &r))
        return;
    if (r.kind == DESC_SOCKET && r.so->so_pcb) {
        const struct tcpcb *tp = so_tcpcb(r.so);
        f->irs = tp->irs;
        f->have_irs = tp->t_state >= TCPS_ESTABLISHED;
    }
    desc_put(&r);
}

static void check_read(struct fuzz_world *w, struct fuzz_fd *f, ssize_t n, int flags)
{
    if (n <= 0 || !f->tcp)
        return;
    for (ssize_t i = 0; i < n && w->genuine && f->have_irs && !(flags & (MSG_OOB | MSG_TRUNC)); i++)
        FUZZ_CHECK(buf[i] == fuzz_peer_byte(f->irs + 1 + f->read + (uint32_t)i));
    if (!(flags & (MSG_PEEK | MSG_OOB)))
        f->read += (uint32_t)n;
}

static void do_read(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_fd *f)
{
    static const int flag_bits[] = {MSG_PEEK, MSG_OOB, MSG_WAITALL, MSG_TRUNC};
    uint32_t len = fuzz_u8(in);
    uint8_t bits = fuzz_u8(in);
    int flags = MSG_DONTWAIT;
    for (size_t i = 0; i < NELEM(flag_bits); i++)
        flags |= bits & (0x10 << i) ? flag_bits[i] : 0;
    learn_irs(f);
    len = len < 128 ? BUFFER : len < 192 ? len - 128 : fuzz_u16(in);
    ssize_t n = weir_recv(f->fd, buf, len, flags);
    FUZZ_CHECK(n <= (ssize_t)len || (flags & MSG_TRUNC));
    check_read(w, f, n, flags);
}

static void do_write(struct fuzz_in *in, struct fuzz_fd *f)
{
    uint8_t kind = fuzz_u8(in);
    uint32_t len = kind < 128 ? kind : kind < 224 ? fuzz_u16(in) % 5000 : fuzz_u16(in);
    uint8_t bits = fuzz_u8(in);
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    flags |= bits & 0x40 ? MSG_MORE : 0;
    flags |= bits & 0x80 ? MSG_OOB : 0;
    for (uint32_t i = 0; i < len; i++)
        buf[i] = fuzz_app_byte(f->written + i);
    ssize_t n;
    if (bits & 0x20) {
        uint32_t cut = len ? bits % len : 0;
        struct iovec iov[3] = {{buf, cut}, {buf, 0}, {buf + cut, len - cut}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};
        n = weir_sendmsg(f->fd, &msg, flags);
    } else {
        n = weir_send(f->fd, buf, len, flags);
    }
    FUZZ_CHECK(n <= (ssize_t)len);
    if (n > 0)
        f->written += (uint32_t)n;
}

/* --- options --- */
static const struct {
    int level, name;
} options[] = {
    {SOL_SOCKET, SO_REUSEADDR},
    {SOL_SOCKET, SO_REUSEPORT},
    {SOL_SOCKET, SO_KEEPALIVE},
    {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_RCVBUF},
    {SOL_SOCKET, SO_RCVLOWAT},
    {SOL_SOCKET, SO_OOBINLINE},
    {SOL_SOCKET, SO_ERROR},
    {SOL_SOCKET, SO_BROADCAST},
    {SOL_SOCKET, SO_RCVTIMEO},
    {SOL_SOCKET, SO_PRIORITY},
    {SOL_SOCKET, SO_ACCEPTCONN},
    {SOL_SOCKET, SO_DONTROUTE},
    {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_CORK},
    {IPPROTO_TCP, TCP_MAXSEG},
    {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL},
    {IPPROTO_TCP, TCP_KEEPCNT},
    {IPPROTO_TCP, TCP_SYNCNT},
    {IPPROTO_TCP, TCP_LINGER2},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP},
    {IPPROTO_TCP, TCP_INFO},
    {IPPROTO_TCP, TCP_QUICKACK},
    {IPPROTO_TCP, TCP_CONGESTION},
    {IPPROTO_TCP, TCP_USER_TIMEOUT},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
    {IPPROTO_TCP, TCP_FASTOPEN},
    {IPPROTO_IP, IP_TTL},
    {IPPROTO_IP, IP_TOS},
    {IPPROTO_IP, IP_MTU_DISCOVER},
    {IPPROTO_IP, IP_MTU},
    {IPPROTO_IP, IP_MULTICAST_TTL},
    {IPPROTO_IP, IP_RECVTTL},
    {IPPROTO_IP, IP_PKTINFO},
    {IPPROTO_IP, IP_OPTIONS},
    {IPPROTO_IPV6, IPV6_V6ONLY},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS},
    {IPPROTO_IPV6, IPV6_TCLASS},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER},
    {IPPROTO_IPV6, IPV6_MTU},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO},
    {IPPROTO_UDP, 1},
};

static void do_option(struct fuzz_in *in, int fd, bool set)
{
    uint8_t value[256];
    unsigned i = fuzz_below(in, NELEM(options));
    uint8_t len = fuzz_u8(in);
    socklen_t n = len < 192 ? 4 : len < 224 ? len - 192u : len;
    if (!set) {
        /* Exactly as large as told. */
        uint8_t *room = malloc(n ? n : 1);
        FUZZ_CHECK(room);
        socklen_t had = n;
        if (weir_getsockopt(fd, options[i].level, options[i].name, room, &n) == 0)
            FUZZ_CHECK(n <= had);
        free(room);
        return;
    }
    if (options[i].name == TCP_CONGESTION && options[i].level == IPPROTO_TCP && len < 192) {
        const char *name = len & 1 ? "newreno" : "cubic";
        weir_setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
        return;
    }
    memset(value, 0, sizeof(value));
    if (len < 192 && len & 1) { /* a small number */
        value[0] = fuzz_u8(in);
    } else {
        fuzz_bytes(in, value, n);
    }
    weir_setsockopt(fd, options[i].level, options[i].name, value, n);
}

/* --- the other calls --- */
static void do_socket(struct fuzz_world *w, struct fuzz_in *in)
{
    uint8_t which = fuzz_u8(in);
    bool tcp = !(which & 2);
    int fd = weir_socket(w->s, which & 1 ? AF_INET6 : AF_INET,
                         (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        slot_new(w, fd, tcp);
}

static void do_accept(struct fuzz_world *w, struct fuzz_fd *f)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    int fd = weir_accept4(f->fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    FUZZ_CHECK(ss.ss_family == AF_INET || ss.ss_family == AF_INET6);
    slot_new(w, fd, true);
}

static void do_close(struct fuzz_fd *f)
{
    FUZZ_CHECK(weir_close(f->fd) == 0);
    FUZZ_CHECK(weir_close(f->fd) < 0 && errno == EBADF);
    f->fd = -1;
}

static void do_connect(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_fd *f)
{
    struct sockaddr_storage ss;
    socklen_t len = destination(w, in, &ss);
    if (weir_connect(f->fd, (struct sockaddr *)&ss, len) < 0 && errno == EINPROGRESS) {
        f->written = f->read = 0; /* a new stream */
        f->have_irs = false;
    }
}

static void do_sendto(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_fd *f)
{
    struct sockaddr_storage ss;
    socklen_t len = destination(w, in, &ss);
    uint32_t n = fuzz_u16(in);
    if (f->tcp)
        return;
    memset(buf, 'u', n);
    weir_sendto(f->fd, buf, n, MSG_DONTWAIT, (struct sockaddr *)&ss, len);
}

static void do_recvmsg(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_fd *f)
{
    uint8_t control[64];
    struct sockaddr_storage ss;
    uint32_t len = fuzz_u16(in);
    struct iovec iov[2] = {{buf, len / 2}, {buf + len / 2, len - len / 2}};
    struct msghdr msg = {.msg_name = &ss,
                         .msg_namelen = fuzz_u8(in) % sizeof(ss),
                         .msg_iov = iov,
                         .msg_iovlen = 2,
                         .msg_control = control,
                         .msg_controllen = fuzz_u8(in) % sizeof(control)};
    learn_irs(f);
    ssize_t n = weir_recvmsg(f->fd, &msg, MSG_DONTWAIT);
    check_read(w, f, n, 0);
}

static void do_ioctl(struct fuzz_in *in, int fd)
{
    static const unsigned long requests[] = {FIONREAD, SIOCATMARK, SIOCOUTQ, 0x1234};
    int value = 1;
    if (weir_ioctl(fd, requests[fuzz_below(in, NELEM(requests))], &value) == 0)
        FUZZ_CHECK(value >= 0);
}

static void do_names(struct fuzz_in *in, int fd)
{
    struct sockaddr_storage ss;
    socklen_t len = fuzz_u8(in) % (sizeof(ss) + 1);
    weir_getsockname(fd, (struct sockaddr *)&ss, &len);
    len = sizeof(ss);
    weir_getpeername(fd, (struct sockaddr *)&ss, &len);
}

static void do_poll(struct fuzz_world *w)
{
    struct pollfd p[FUZZ_FDS];
    for (size_t i = 0; i < FUZZ_FDS; i++)
        p[i] = (struct pollfd){.fd = w->fd[i].epoll ? -1 : w->fd[i].fd,
                               .events = POLLIN | POLLOUT | POLLPRI};
    FUZZ_CHECK(weir_poll(p, FUZZ_FDS, 0) >= 0);
}

static void do_epoll(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_fd *f)
{
    uint8_t what = fuzz_u8(in);
    struct epoll_event ev[8] = {{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI}};
    if (what < 24 || what == 64) {
        int fd = weir_epoll_create(0);
        if (fd >= 0) {
            struct fuzz_fd *set = slot_new(w, fd, false);
            if (set)
                set->epoll = true;
        }
        return;
    }
    struct fuzz_fd *set = NULL;
    for (size_t i = 0; i < FUZZ_FDS; i++)
        if (w->fd[i].fd >= 0 && w->fd[i].epoll)
            set = &w->fd[i];
    if (!set)
        return;
    ev[0].events |= what & 64 ? EPOLLET : 0;
    ev[0].events |= what & 128 ? EPOLLONESHOT : 0;
    switch (what & 3) {
    case 0:
        weir_epoll_ctl(set->fd, EPOLL_CTL_ADD, f->fd, &ev[0]);
        break;
    case 1:
        weir_epoll_ctl(set->fd, EPOLL_CTL_MOD, f->fd, &ev[0]);
        break;
    case 2:
        weir_epoll_ctl(set->fd, EPOLL_CTL_DEL, f->fd, NULL);
        break;
    default:
        FUZZ_CHECK(weir_epoll_wait(set->fd, ev, NELEM(ev), 0) >= 0);
    }
}

void fuzz_app_call(struct fuzz_world *w, struct fuzz_in *in)
{
    uint8_t call = fuzz_u8(in) % FUZZ_CALLS;
    struct fuzz_fd *f = &w->fd[fuzz_below(in, FUZZ_FDS)];
    struct sockaddr_storage ss;
    if (call == FUZZ_CALL_SOCKET || f->fd < 0) {
        do_socket(w, in);
        return;
    }
    switch ((enum fuzz_call)call) {
    case FUZZ_CALL_ACCEPT:
        do_accept(w, f);
        break;
    case FUZZ_CALL_CONNECT:
        do_connect(w, in, f);
        break;
    case FUZZ_CALL_WRITE:
        do_write(in, f);
        break;
    case FUZZ_CALL_READ:
        do_read(w, in, f);
        break;
    case FUZZ_CALL_SHUTDOWN:
        weir_shutdown(f->fd, (int)fuzz_below(in, 4));
        break;
    case FUZZ_CALL_CLOSE:
        do_close(f);
        break;
    case FUZZ_CALL_SETSOCKOPT:
    case FUZZ_CALL_GETSOCKOPT:
        do_option(in, f->fd, call == FUZZ_CALL_SETSOCKOPT);
        break;
    case FUZZ_CALL_BIND: {
        socklen_t len = destination(w, in, &ss);
        weir_bind(f->fd, (struct sockaddr *)&ss, len);
        break;
    }
    case FUZZ_CALL_LISTEN:
        weir_listen(f->fd, (int)(int8_t)fuzz_u8(in));
        break;
    case FUZZ_CALL_SENDTO:
        do_sendto(w, in, f);
        break;
    case FUZZ_CALL_RECVMSG:
        do_recvmsg(w, in, f);
        break;
    case FUZZ_CALL_IOCTL:
        do_ioctl(in, f->fd);
        break;
    case FUZZ_CALL_NAMES:
        do_names(in, f->fd);
        break;
    case FUZZ_CALL_POLL:
        do_poll(w);
        break;
    case FUZZ_CALL_EPOLL:
        do_epoll(w, in, f);
        break;
    case FUZZ_CALL_SOCKET:
    case FUZZ_CALLS:
        break;
    }
}
