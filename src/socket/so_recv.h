/* SPDX-License-Identifier: BSD-2-Clause
 * The ways to take data from a stream, net.inet.tcp.soreceive_stream, and what they share. */
#ifndef WEIR_SOCKET_SO_RECV_H
#define WEIR_SOCKET_SO_RECV_H

#include "so_private.h"

/* One look at so_rcv: what may be delivered of it. */
struct so_recv_look {
    uint32_t off; /* where it starts, from the front (MSG_PEEK goes on behind what it copied) */
    uint32_t n;   /* bytes */
    bool at_mark; /* the urgent mark keeps the call from going on */
};

/* Decide how much may be delivered now to somebody who has got `copied` bytes of so far, and has
 * room for `room`. By the reader (so_rcv_serial). locked: it holds so_rcv's lock, which is taken
 * here otherwise if there is urgent data, never else. */
struct so_recv_look so_recv_look(struct socket *so, size_t room, int flags, size_t copied,
                                 bool locked);

/* Copy n bytes of the chain from m + off on to the user (MSG_TRUNC: discard them); no lock is
 * needed but the reader's. Returns the bytes that were copied: fewer when a file under them was
 * cut.
 */
uint32_t so_recv_copy(const struct mbuf *m, uint32_t off, struct so_uio *u, uint32_t n, int flags);

/* Deliver what is there now, from `copied` on with MSG_PEEK. Returns bytes, or -EIO when the first
 * one is lost; *stop: the urgent mark was reached. so_rcv_serial held. */
typedef ssize_t so_recv_fn(struct socket *so, struct so_uio *u, int flags, size_t copied,
                           bool *stop);
so_recv_fn so_recv_generic;  /* 0: the lock for each mbuf */
so_recv_fn so_recv_stream;   /* 1: the lock twice */
so_recv_fn so_recv_lockfree; /* 2: no lock */

/* A datagram; so_receive's contract. */
ssize_t so_receive_datagram(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                            struct so_recv_result *r) NODISCARD;
uint32_t so_datagram_len(struct socket *so); /* of the first one that waits; 0: none */

/* What a reader remembers while it waits for more. */
struct so_recv_wait {
    uint32_t seq, st; /* as they were before the buffer was looked at */
    int error;
    uint64_t deadline; /* 0: not begun */
};
void so_recv_begin(struct socket *so, struct so_recv_wait *w); /* before each look */
/* Take part in telling the protocol: true when SO_WORK_RCVD is due. so_rcv_serial held. */
bool so_recv_notice_due(struct socket *so);
/* After a look that did not bring enough: wait. True: look again; false: *result is the call's. */
bool so_recv_block(struct socket *so, struct so_recv_wait *w, size_t copied, bool nonblock,
                   ssize_t *result) NODISCARD;

#endif
