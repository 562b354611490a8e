/* SPDX-License-Identifier: BSD-2-Clause
 * Sockets of a Weir stack: POSIX's calls with Linux's semantics, constants and errno.
 *
 * A descriptor is a non-negative int from Weir's own table (not the kernel's). All functions
 * return -1 and set errno on error, unless said otherwise. They may be called from any thread; a
 * descriptor may be closed while others use it: as on Linux a blocked call stays blocked until
 * its condition comes true or shutdown() wakes it. */
#ifndef WEIR_SOCKET_PUBLIC_H
#define WEIR_SOCKET_PUBLIC_H

#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_stack;

/* domain AF_INET or AF_INET6; type SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK (SOCK_CLOEXEC
 * is ignored). */
int weir_socket(struct weir_stack *s, int domain, int type, int protocol);
int weir_bind(int fd, const struct sockaddr *addr, socklen_t len);
int weir_listen(int fd, int backlog);
int weir_accept(int fd, struct sockaddr *addr, socklen_t *len);
int weir_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int weir_connect(int fd, const struct sockaddr *addr, socklen_t len);
int weir_shutdown(int fd, int how);
int weir_close(int fd);

ssize_t weir_read(int fd, void *buf, size_t len);
ssize_t weir_readv(int fd, const struct iovec *iov, int iovcnt);
ssize_t weir_recv(int fd, void *buf, size_t len, int flags);
ssize_t weir_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                      socklen_t *alen);
ssize_t weir_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t weir_write(int fd, const void *buf, size_t len);
ssize_t weir_writev(int fd, const struct iovec *iov, int iovcnt);
/* SIGPIPE is never raised: a stack in user space reports EPIPE only. */
ssize_t weir_send(int fd, const void *buf, size_t len, int flags);
ssize_t weir_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
                    socklen_t alen);
ssize_t weir_sendmsg(int fd, const struct msghdr *msg, int flags);

int weir_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int weir_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int weir_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int weir_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
/* F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD, F_SETFD. */
int weir_fcntl(int fd, int cmd, int arg);
/* FIONREAD, FIONBIO, SIOCATMARK, SIOCOUTQ, SIOCINQ. */
int weir_ioctl(int fd, unsigned long request, int *arg);

/* poll(2) over Weir descriptors only; negative fds are skipped. */
int weir_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

/* A set like epoll(7): EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI, EPOLLERR, EPOLLHUP, EPOLLET,
 * EPOLLONESHOT. A wait costs by what is ready, not by what is registered. */
int weir_epoll_create(int flags);
int weir_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int weir_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
