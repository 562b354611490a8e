/* SPDX-License-Identifier: BSD-2-Clause
 * Sockets of the kernel. */
#include "cli/net/net.h"

#include <sys/resource.h>
#include <sys/sendfile.h>
#include <unistd.h>

static int k_socket(struct weir_stack *s, int domain, int type)
{
    (void)s;
    return socket(domain, type | SOCK_CLOEXEC, 0);
}

static int k_accept(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
    return accept4(fd, sa, len, flags | SOCK_CLOEXEC);
}

static int k_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
    return connect(fd, sa, len);
}

static ssize_t k_send(int fd, const void *buf, size_t len, int flags)
{
    return send(fd, buf, len, flags | MSG_NOSIGNAL);
}

static ssize_t k_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *sa,
                        socklen_t sa_len)
{
    return sendto(fd, buf, len, flags | MSG_NOSIGNAL, sa, sa_len);
}

static ssize_t k_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *sa,
                          socklen_t *sa_len)
{
    return recvfrom(fd, buf, len, flags, sa, sa_len);
}

static int k_epoll_create(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static int k_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
    return bind(fd, sa, len);
}

static int k_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
    return getsockname(fd, sa, len);
}

/* A descriptor for each socket: the soft limit is for programs that use select(). */
void net_kernel_raise_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r); /* where it is refused, socket() says so in time */
}

const struct net_ops net_kernel_ops = {
    .name = "kernel",
    .socket = k_socket,
    .bind = k_bind,
    .listen = listen,
    .accept = k_accept,
    .connect = k_connect,
    .send = k_send,
    .recv = recv,
    .sendto = k_sendto,
    .recvfrom = k_recvfrom,
    .sendfile = sendfile,
    .shutdown = shutdown,
    .close = close,
    .poll = poll,
    .epoll_create = k_epoll_create,
    .epoll_ctl = epoll_ctl,
    .epoll_wait = epoll_wait,
    .getsockopt = getsockopt,
    .setsockopt = setsockopt,
    .getsockname = k_getsockname,
};
