/* SPDX-License-Identifier: BSD-2-Clause
 * The public calls that move data. */
#include "api.h"
#include <limits.h>

static bool is_nonblock(const struct socket *so, int flags)
{
    return (flags & MSG_DONTWAIT) || (so_state(so) & SS_NBIO);
}

/* api_result for counts. */
static ssize_t msg_result(struct desc_ref *r, ssize_t n)
{
    desc_put(r);
    if (n >= 0)
        return n;
    errno = (int)-n;
    return -1;
}

/* Where the caller wants the sender's address; all may be NULL. */
struct peer_out {
    struct sockaddr *addr;
    socklen_t *len;
    int *msg_flags;
};

static ssize_t receive(struct socket *so, struct so_uio *u, int flags, const struct peer_out *out)
{
    struct so_recv_result r;
    ssize_t n = so_receive(so, u, flags, is_nonblock(so, flags), &r);

    if (n < 0)
        return n;
    if (out->msg_flags)
        *out->msg_flags = r.msg_flags;
    if (out->addr && out->len) { /* of a stream: length 0 */
        memcpy(out->addr, &r.from, MIN(*out->len, r.fromlen));
        *out->len = r.fromlen;
    }
    return n;
}

static ssize_t recv_iov(int fd, const struct iovec *iov, size_t count, int flags,
                        const struct peer_out *out)
{
    struct desc_ref r;
    struct so_uio u;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_uio_init(&u, iov, count);
    return msg_result(&r, error ? error : receive(r.so, &u, flags, out));
}

ssize_t weir_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                      socklen_t *alen)
{
    struct iovec iov = {buf, MIN(len, (size_t)SSIZE_MAX)};
    struct peer_out out = {addr, alen, NULL};

    if (addr && alen && (int)*alen < 0) {
        errno = EINVAL;
        return -1;
    }
    return recv_iov(fd, &iov, 1, flags, &out);
}

ssize_t weir_recv(int fd, void *buf, size_t len, int flags)
{
    return weir_recvfrom(fd, buf, len, flags, NULL, NULL);
}

/* read(2) of nothing asks for nothing; a set is not read. */
static bool plain_file_call(int fd, struct desc_ref *r)
{
    if (!desc_get(fd, r)) {
        errno = EBADF;
        return false;
    }
    if (r->kind == DESC_SOCKET)
        return true;
    api_result(r, r->kind == DESC_FOREIGN ? -EIO : -EINVAL);
    return false;
}

ssize_t weir_readv(int fd, const struct iovec *iov, int iovcnt)
{
    const struct peer_out none = {0};
    struct desc_ref r;
    struct so_uio u;

    if (!plain_file_call(fd, &r))
        return -1;
    int error = iovcnt < 0 ? -EINVAL : so_uio_init(&u, iov, (size_t)iovcnt);
    return msg_result(&r, error || u.left == 0 ? error : receive(r.so, &u, 0, &none));
}

ssize_t weir_read(int fd, void *buf, size_t len)
{
    struct iovec iov = {buf, MIN(len, (size_t)SSIZE_MAX)};

    return weir_readv(fd, &iov, 1);
}

ssize_t weir_recvmsg(int fd, struct msghdr *msg, int flags)
{
    int msg_flags = 0;
    struct peer_out out = {msg->msg_name, &msg->msg_namelen, &msg_flags};

    if (msg->msg_iovlen > IOV_MAX || (msg->msg_name && (int)msg->msg_namelen < 0)) {
        errno = msg->msg_iovlen > IOV_MAX ? EMSGSIZE : EINVAL;
        return -1;
    }
    ssize_t n = recv_iov(fd, msg->msg_iov, msg->msg_iovlen, flags & ~MSG_CMSG_CLOEXEC, &out);
    if (n >= 0) {
        msg->msg_controllen = 0;
        msg->msg_flags = msg_flags;
    }
    return n;
}

/* --- sending --- */

static ssize_t send_datagram(struct socket *so, struct so_uio *u, int flags,
                             const struct sockaddr *addr, socklen_t alen)
{
    struct ipaddr to;
    uint16_t port = 0;
    bool named = addr && alen;
    ssize_t n = named ? api_destination(so, addr, alen, &to, &port) : 0;

    if (n == 0)
        n = so_send_datagram(so, u, named ? &to : NULL, port, flags);
    if (n < 0 && so_enter(so->so_stack) == 0) {
        api_autobind(so);
        so_leave(so->so_stack);
    }
    return n;
}

static ssize_t send_uio(struct socket *so, struct so_uio *u, int flags, const struct sockaddr *addr,
                        socklen_t alen)
{
    if (so->so_type != SOCK_STREAM)
        return send_datagram(so, u, flags, addr, alen);
    /* As on Linux the address of a stream's send is not looked at. */
    return flags & MSG_FASTOPEN ? -EOPNOTSUPP
                                : so_send_stream(so, u, flags, is_nonblock(so, flags));
}

ssize_t weir_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
                    socklen_t alen)
{
    struct iovec iov = {(void *)(uintptr_t)buf, MIN(len, (size_t)SSIZE_MAX)};
    struct desc_ref r;
    struct so_uio u;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_uio_init(&u, &iov, 1);
    return msg_result(&r, error ? error : send_uio(r.so, &u, flags, addr, alen));
}

ssize_t weir_send(int fd, const void *buf, size_t len, int flags)
{
    return weir_sendto(fd, buf, len, flags, NULL, 0);
}

ssize_t weir_writev(int fd, const struct iovec *iov, int iovcnt)
{
    struct desc_ref r;
    struct so_uio u;

    if (!plain_file_call(fd, &r))
        return -1;
    int error = iovcnt < 0 ? -EINVAL : so_uio_init(&u, iov, (size_t)iovcnt);
    return msg_result(&r, error ? error : send_uio(r.so, &u, 0, NULL, 0));
}

ssize_t weir_write(int fd, const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, MIN(len, (size_t)SSIZE_MAX)};

    return weir_writev(fd, &iov, 1);
}

ssize_t weir_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct desc_ref r;
    struct so_uio u;

    if (!api_socket(fd, &r))
        return -1;
    if (msg->msg_iovlen > IOV_MAX)
        return msg_result(&r, -EMSGSIZE);
    int error = so_uio_init(&u, msg->msg_iov, msg->msg_iovlen);
    return msg_result(&r,
                      error ? error : send_uio(r.so, &u, flags, msg->msg_name, msg->msg_namelen));
}
