/* SPDX-License-Identifier: BSD-2-Clause
 * packetdrill's shared-object interface: the table of functions it asks for. */
#ifndef WEIR_PACKETDRILL_ADAPTER_H
#define WEIR_PACKETDRILL_ADAPTER_H

#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>

struct packetdrill_interface {
    void *userdata;
    void (*free)(void *u);
    int (*socket)(void *u, int domain, int type, int proto);
    int (*bind)(void *u, int fd, const struct sockaddr *addr, socklen_t len);
    int (*listen)(void *u, int fd, int backlog);
    int (*accept)(void *u, int fd, struct sockaddr *addr, socklen_t *len);
    int (*connect)(void *u, int fd, const struct sockaddr *addr, socklen_t len);
    ssize_t (*read)(void *u, int fd, void *buf, size_t len);
    ssize_t (*readv)(void *u, int fd, const struct iovec *iov, int n);
    ssize_t (*recv)(void *u, int fd, void *buf, size_t len, int flags);
    ssize_t (*recvfrom)(void *u, int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                        socklen_t *alen);
    ssize_t (*recvmsg)(void *u, int fd, struct msghdr *msg, int flags);
    ssize_t (*write)(void *u, int fd, const void *buf, size_t len);
    ssize_t (*writev)(void *u, int fd, const struct iovec *iov, int n);
    ssize_t (*send)(void *u, int fd, const void *buf, size_t len, int flags);
    ssize_t (*sendto)(void *u, int fd, const void *buf, size_t len, int flags,
                      const struct sockaddr *addr, socklen_t alen);
    ssize_t (*sendmsg)(void *u, int fd, const struct msghdr *msg, int flags);
    int (*fcntl)(void *u, int fd, int cmd, ...);
    int (*ioctl)(void *u, int fd, unsigned long request, ...);
    int (*close)(void *u, int fd);
    int (*shutdown)(void *u, int fd, int how);
    int (*getsockopt)(void *u, int fd, int level, int name, void *val, socklen_t *len);
    int (*setsockopt)(void *u, int fd, int level, int name, const void *val, socklen_t len);
    int (*poll)(void *u, struct pollfd *fds, nfds_t n, int timeout_ms);
    int (*netdev_send)(void *u, const void *buf, size_t len);
    int (*netdev_receive)(void *u, void *buf, size_t *len, long long *time_usecs);
    int (*usleep)(void *u, useconds_t us);
    int (*gettimeofday)(void *u, struct timeval *tv, struct timezone *tz);
    int (*epoll_create)(void *u, int size);
    int (*epoll_ctl)(void *u, int epfd, int op, int fd, struct epoll_event *event);
    int (*epoll_wait)(void *u, int epfd, struct epoll_event *events, int max, int timeout_ms);
    int (*pipe)(void *u, int fds[2]);
    int (*splice)(void *u, int fd_in, loff_t *off_in, int fd_out, loff_t *off_out, size_t len,
                  unsigned flags);
};
_Static_assert(sizeof(struct packetdrill_interface) == 33 * sizeof(void *), "33 pointers");

/* flags: "local=A,gateway=A,remote=A,mask=M,mtu=N,ctl=PATH", IPv4 or IPv6; NULL: IPv4 defaults.
 * Fills *ifc; exits the process with a message where that cannot be done. */
__attribute__((visibility("default"))) void
packetdrill_interface_init(const char *flags, struct packetdrill_interface *ifc);

#endif
