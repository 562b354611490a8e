/* SPDX-License-Identifier: BSD-2-Clause
 * What the files of this folder owe each other. */
#ifndef WEIR_SOCKET_SO_PRIVATE_H
#define WEIR_SOCKET_SO_PRIVATE_H

#include "socket.h"
#include <sys/uio.h>

/* Shared with poll bits: what the kernel gives in pairs. */
#define SO_POLL_IN (POLLIN | POLLRDNORM)
#define SO_POLL_OUT (POLLOUT | POLLWRNORM)

/* --- socket.c --- */
/* Become the owner and set the time of this entry. 0, -EDEADLK (signal handler), -EIO (after fork).
 */
int so_enter(struct weir_stack *s) NODISCARD;
void so_leave(struct weir_stack *s); /* flush what the call caused, release */
/* Give the socket a protocol block again after its last one ended. Owner. 0 or -ENOMEM... */
int so_reattach(struct socket *so) NODISCARD;
/* Remember the local address for the time when so_pcb is gone. Owner. */
void so_note_sockname(struct socket *so);
/* It holds a port: the port of a connection that is over goes with it, unless the application chose
 * it. Owner. */
bool so_has_port(const struct socket *so);
void so_state_change(struct socket *so, uint32_t set, uint32_t clear);
/* The pending error (positive), taken; 0 none. */
static inline int so_take_error(struct socket *so)
{
    if (atomic_load_explicit(&so->so_error, memory_order_acquire) == 0)
        return 0;
    return atomic_exchange_explicit(&so->so_error, 0, memory_order_acq_rel);
}
/* First completed connection of a listener, with the queue's reference; NULL: none. Any thread. */
struct socket *so_accept_take(struct socket *listener) NODISCARD;
/* Reset every connection of a listener's queue. Owner. */
void so_accept_flush(struct socket *listener);
uint64_t so_now(const struct weir_stack *s);
uint64_t so_wall_ns(const struct weir_stack *s); /* time of day, since 1970 */
/* now + ns, or TIME_NEVER for 0 (no limit) and beyond the end of time. */
uint64_t so_deadline(const struct weir_stack *s, uint64_t timeout_ns);
/* Sleep until so_event differs from seq. 0, -EAGAIN (deadline), -EINTR. No ownership, no lock held.
 */
int so_wait(struct socket *so, uint32_t seq, uint64_t deadline) NODISCARD;
/* The same; idle: see struct port_wait. */
int so_wait_for(struct socket *so, uint32_t seq, uint64_t deadline, bool idle) NODISCARD;
static inline uint32_t so_event_seq(struct socket *so)
{
    return event_seq(&so->so_event);
}

/* --- a cursor over the caller's memory --- */
struct so_uio {
    const struct iovec *iov;
    size_t count; /* iovecs left */
    size_t off;   /* bytes of the first done */
    size_t left;  /* bytes left in all */
};
/* -EINVAL: too long for a ssize_t or count out of range. */
int so_uio_init(struct so_uio *u, const struct iovec *iov, size_t count) NODISCARD;
void so_uio_put(struct so_uio *u, const void *src, size_t n); /* n <= left: copies to the user */
void so_uio_get(struct so_uio *u, void *dst, size_t n);       /* n <= left: copies from the user */
void so_uio_skip(struct so_uio *u, size_t n);

/* --- so_send.c --- */
/* Returns bytes taken, or a negative errno when none were. Blocks unless nonblock. */
ssize_t so_send_stream(struct socket *so, struct so_uio *u, int flags, bool nonblock) NODISCARD;
struct so_send_to {
    const struct ipaddr *addr; /* NULL: the connected peer */
    uint16_t port;
    const struct msghdr *control; /* NULL: none */
};
/* Does not block. */
ssize_t so_send_datagram(struct socket *so, struct so_uio *u, const struct so_send_to *to,
                         int flags) NODISCARD;

/* What sendfile shares with it. 0: data may be appended; -EAGAIN: the connection is still being
 * made; else the error of Linux's tcp_sendmsg. take: the pending error is reported, thus consumed.
 */
int so_sendable(struct socket *so, bool take) NODISCARD;
uint32_t so_send_room(struct socket *so); /* bytes; when 0, so_nospace is set */
void so_send_set_more(struct socket *so, bool more);
/* Copy and append what there is room for, up to a batch. Bytes, -EAGAIN, -ENOBUFS. so_snd_serial
 * held. */
ssize_t so_send_append(struct socket *so, struct so_uio *u) NODISCARD;

/* --- so_recv.c --- */
struct so_recv_result {
    struct sockaddr_storage from; /* datagrams */
    socklen_t fromlen;            /* 0: none */
    int msg_flags;                /* MSG_TRUNC, MSG_OOB */
    struct so_ancillary info;     /* datagrams; local.family 0: none */
};
/* Take address and ancillary data out of the front mbuf of a record. */
void so_front_get(const struct socket *so, const struct mbuf *front, struct so_recv_result *r);
/* Returns bytes delivered (0: EOF), or a negative errno. r zeroed by the callee. */
ssize_t so_receive(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                   struct so_recv_result *r) NODISCARD;
/* Bytes that FIONREAD tells. */
uint32_t so_inq(struct socket *so);
bool so_has_record(struct socket *so); /* a datagram waits, be it empty */
bool so_is_at_mark(struct socket *so); /* the next byte to read is the urgent mark */

/* --- so_cmsg.c --- */
/* Write what the socket's options ask for about a datagram; msg_controllen and msg_flags
 * (MSG_CTRUNC) are the caller's answer then. */
void so_cmsg_put(struct socket *so, const struct so_ancillary *a, struct msghdr *msg);
/* What the control messages of a send choose. v4: it goes to an IPv4 address. 0, -EINVAL,
 * -ENOBUFS. */
int so_cmsg_take(const struct socket *so, const struct msghdr *msg, bool v4,
                 struct so_ancillary *a) NODISCARD;

/* --- so_option.c --- */
int so_getopt(struct socket *so, int level, int name, void *val, socklen_t *len) NODISCARD;
int so_setopt(struct socket *so, int level, int name, const void *val, socklen_t len) NODISCARD;
void so_option_inherit(const struct socket *from, struct socket *to);
void so_option_init(struct socket *so);

/* --- so_readiness.c --- */
/* True when senders should be woken: Linux's rule, free space at least half of what is used. */
bool so_is_writable(struct socket *so);
/* As much waits unsent in so_snd as TCP_NOTSENT_LOWAT allows. */
bool so_unsent_is_enough(const struct socket *so);

#endif
