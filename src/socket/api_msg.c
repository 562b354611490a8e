/* SPDX-License-Identifier: BSD-2-Clause
 * The public calls that move data. */
#include "api.h"
#include "base/cputime.h"
#include <limits.h>

static bool is_nonblock(const struct socket *so, int flags)
{
    return (flags & MSG_DONTWAIT) || (so_state(so) & SS_NBIO);
}

/* api_result for counts. */
static ssize_t msg_result(struct desc_ref *r, ssize_t n)
{
    cputime_call_ends(); /* what is charged may go with the object */
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
    struct msghdr *msg; /* its flags and control messages */
};

static ssize_t receive(struct socket *so, struct so_uio *u, int flags, const struct peer_out *out)
{
    struct so_recv_result r;
    ssize_t n = so_receive(so, u, flags, is_nonblock(so, flags), &r);

    if (n < 0)
        return n;
    if (out->msg) {
        out->msg->msg_flags = r.msg_flags;
        so_cmsg_put(so, &r.info, out->msg);
    }
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

    if (!api_socket_of(fd, &r))
        return -1;
    cputime_call_begins();
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
    if (r->kind == DESC_SOCKET) {
        cputime_call_begins();
        return true;
    }
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
    struct peer_out out = {msg->msg_name, &msg->msg_namelen, msg};

    if (msg->msg_iovlen > IOV_MAX || (msg->msg_name && (int)msg->msg_namelen < 0)) {
        errno = msg->msg_iovlen > IOV_MAX ? EMSGSIZE : EINVAL;
        return -1;
    }
    return recv_iov(fd, msg->msg_iov, msg->msg_iovlen, flags & ~MSG_CMSG_CLOEXEC, &out);
}

/* --- sending --- */

/* Where to, and what else of it; all may be NULL. */
struct peer_in {
    const struct sockaddr *addr;
    socklen_t len;
    const struct msghdr *control;
};

static ssize_t send_datagram(struct socket *so, struct so_uio *u, int flags,
                             const struct peer_in *in)
{
    struct ipaddr addr;
    struct so_send_to to = {.control = in->control};
    ssize_t n = 0;

    if (in->addr && in->len) {
        to.addr = &addr;
        n = api_destination(so, in->addr, in->len, &addr, &to.port);
    }
    if (n == 0)
        n = so_send_datagram(so, u, &to, flags);
    if (n < 0 && so_enter(so->so_stack) == 0) {
        api_autobind(so);
        so_leave(so->so_stack);
    }
    return n;
}

static ssize_t send_uio(struct socket *so, struct so_uio *u, int flags, const struct peer_in *in)
{
    struct so_ancillary none;

    if (so->so_type != SOCK_STREAM)
        return send_datagram(so, u, flags, in);
    /* As on Linux the address of a stream's send is not looked at. */
    if (flags & MSG_FASTOPEN)
        return -EOPNOTSUPP;
    uint32_t ends = so_state(so) & (SS_CONNECTED | SS_CANTSENDMORE | SS_SHUT_WR);
    if (in->control && ends == SS_CONNECTED && so_cmsg_take(so, in->control, true, &none))
        return -EINVAL;
    return so_send_stream(so, u, flags, is_nonblock(so, flags));
}

ssize_t weir_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
                    socklen_t alen)
{
    struct iovec iov = {(void *)(uintptr_t)buf, MIN(len, (size_t)SSIZE_MAX)};
    struct desc_ref r;
    struct so_uio u;

    if (!api_socket_of(fd, &r))
        return -1;
    cputime_call_begins();
    int error = so_uio_init(&u, &iov, 1);
    struct peer_in in = {addr, alen, NULL};
    return msg_result(&r, error ? error : send_uio(r.so, &u, flags, &in));
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
    return msg_result(&r, error ? error : send_uio(r.so, &u, 0, &(struct peer_in){0}));
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

    if (!api_socket_of(fd, &r))
        return -1;
    cputime_call_begins();
    if (msg->msg_iovlen > IOV_MAX)
        return msg_result(&r, -EMSGSIZE);
    int error = so_uio_init(&u, msg->msg_iov, msg->msg_iovlen);
    struct peer_in in = {msg->msg_name, msg->msg_namelen, msg->msg_controllen ? msg : NULL};
    return msg_result(&r, error ? error : send_uio(r.so, &u, flags, &in));
}
