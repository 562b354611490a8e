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
#include <stdint.h>
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

/* --- receiving without a copy: see weir_recv_zc(3) --- */

/* A piece of received data, in the memory where it arrived. */
struct weir_zc {
    const void *data; /* len bytes, to be read only, valid until weir_zc_release */
    size_t len;       /* 0: no piece */
    void *opaque[2];  /* Weir's */
};

/* Take the next bytes of a stream, at most max, as at most nbufs pieces in order; entries that are
 * not needed become empty. Blocks as weir_recv does, by O_NONBLOCK, MSG_DONTWAIT (the only flag),
 * SO_RCVLOWAT and SO_RCVTIMEO; stops at the urgent mark. Returns the bytes in all pieces; 0: the
 * end; -1 with errno as weir_recv, EINVAL (nbufs < 1, max 0, a flag), EOPNOTSUPP (not a stream),
 * ENOBUFS.
 * The bytes have been received: the window opens for as many more. Their memory counts against
 * the socket's receive buffer until it is given back: who holds about 8 times SO_RCVBUF
 * finds the window shut. */
ssize_t weir_recv_zc(int fd, struct weir_zc *bufs, int nbufs, size_t max, int flags);
/* Give pieces back, in any order, from any thread, and empty them; empty ones are skipped. fd:
 * where they came from, so that the peer may hear of the room; -1, or one that is closed, serves
 * too, and neither the socket nor the stack need still exist. errno is kept. */
void weir_zc_release(int fd, struct weir_zc *bufs, int nbufs);

/* SIGPIPE is never raised: a stack in user space reports EPIPE only. */
ssize_t weir_send(int fd, const void *buf, size_t len, int flags);
ssize_t weir_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
                    socklen_t alen);
ssize_t weir_sendmsg(int fd, const struct msghdr *msg, int flags);

/* --- sending without a copy: see weir_send_zc(3) --- */

/* Who counts the sends that still refer to some memory: the caller's, zeroed before its first use.
 * It and the memory must stay, the memory unchanged, until pending is 0. */
struct weir_zc_send {
    uint32_t pending; /* weir_zc_pending */
    uint32_t reserved;
    /* NULL, or called when pending has become 0, by whichever thread dropped the last reference: it
     * must not block or call Weir (write to an eventfd, say). */
    void (*done)(struct weir_zc_send *z);
    void *user; /* the caller's */
};

/* As weir_send on a stream (flags MSG_DONTWAIT, MSG_MORE), but the bytes are not copied: they are
 * read where they are when they leave, when they are sent again, and by the far end of a memory
 * link. Counts z->pending up before it returns if it refers to any of them (a call of less than 2
 * KB copies), and down when the peer has acknowledged them and nobody reads them any more, at the
 * latest when the connection and the far end's socket are gone: closing the socket or destroying
 * the stack does not release them at once. At most 1 GB a call. EOPNOTSUPP: not a stream. */
ssize_t weir_send_zc(int fd, const void *buf, size_t len, int flags, struct weir_zc_send *z);
unsigned weir_zc_pending(const struct weir_zc_send *z);
/* Wait until it is 0. 0, or -1 with EAGAIN (timeout_ms passed; -1: no limit) or EINTR. The stacks
 * run meanwhile without the caller's help. */
int weir_zc_wait(struct weir_zc_send *z, int timeout_ms);

/* sendfile, FreeBSD's: send hdtr's headers, nbytes of the regular file fd (a descriptor of the
 * kernel's) from offset (0: to its end), and hdtr's trailers, over the connected stream socket s.
 * 0, or -1 and errno; either way *sbytes (may be NULL) says how many bytes of all three were taken,
 * also after EAGAIN (non-blocking, or SO_SNDTIMEO) and EINTR. A file that ends early ends the
 * transfer with success. EBADF, ENOTSOCK, EINVAL (no regular file, no stream socket, negative
 * offset or count), ENOTCONN, EPIPE, EIO, ENOBUFS, ENOMEM (SF_MNOWAIT), EBUSY (SF_NODISKIO).
 *
 * The file's pages are referenced, not copied: a change to the file shows in what is still to be
 * sent, or sent again. If it is cut so that bytes that were taken are gone, the connection is reset
 * rather than filled with zeros. The process gets a SIGBUS handler, which passes on what is not its
 * own; threads must not block SIGBUS. See weir-sendfile(3). */
struct weir_sf_hdtr {
    struct iovec *headers;
    int hdr_cnt;
    struct iovec *trailers;
    int trl_cnt;
};
#ifndef SF_NODISKIO
#define SF_NODISKIO 0x1 /* EBUSY instead of reading from the disk */
#define SF_MNOWAIT 0x2  /* ENOMEM instead of waiting for buffers */
#endif
int weir_sendfile(int fd, int s, off_t offset, size_t nbytes, struct weir_sf_hdtr *hdtr,
                  off_t *sbytes, int flags);
/* sendfile(2), Linux's: returns the bytes taken, from *offset (moved) or, if offset is NULL, from
 * the position of in_fd (moved). in_fd is a regular file or a block device. */
ssize_t weir_sendfile_linux(int out_fd, int in_fd, off_t *offset, size_t count);

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
