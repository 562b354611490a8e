/* SPDX-License-Identifier: BSD-2-Clause
 * A stack with protocols and a port that do what the test says: sockets alone, without TCP, UDP,
 * links or a clock. */
#ifndef WEIR_TESTS_SOCKET_FAKE_H
#define WEIR_TESTS_SOCKET_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "socket/api.h"
#include "socket/so_watch.h"
#include "stack.h"
#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

/* What the fake protocols were asked, and what they answer. */
struct fake {
    struct weir_stack *s;
    uint64_t now_ns;
    unsigned attached, detached, sends, rcvds, aborts, disconnects, binds, listens, connects;
    int attach_error, connect_error, bind_error, sent_errno;
    int shutdown_how; /* of the last shutdown; -1 none */
    bool keep_pcb;    /* detach leaves the pcb: the protocol goes on alone */
    bool oob_seen;    /* SO_SND_OOB was set at the last send */
    bool more_seen;
    struct socket *last; /* attached last */
    /* Called instead of sleeping; returns what port->wait returns. NULL: the clock jumps to the
     * deadline. */
    int (*on_wait)(const struct port_wait *w);
    unsigned waits, wakes;
    int64_t memory; /* allocations not yet freed */
    int fail_alloc; /* counts down; the allocation that makes it 0 fails */
};
extern struct fake fake;

void fake_setup(void);
void fake_teardown(void); /* checks that nothing leaked */
/* cmocka's shape of the two. */
int fake_group_setup(void **state);
int fake_group_teardown(void **state);

struct socket *fake_so(int fd); /* borrowed: the test keeps the descriptor open */
/* A stream socket as if connected, non-blocking if asked. */
int fake_connected(bool nonblock);
/* A bound, listening socket, and a completed connection in its queue. */
int fake_listener(bool nonblock, int backlog);
struct socket *fake_child(int listener);

/* Run code as the owner. */
#define AS_OWNER(code)                                                                             \
    do {                                                                                           \
        assert_int_equal(so_enter(fake.s), 0);                                                     \
        code;                                                                                      \
        so_leave(fake.s);                                                                          \
    } while (0)

/* Data or ends arrive (as the owner). */
void fake_data(int fd, const void *data, size_t len);
void fake_fin(int fd);
void fake_rst(int fd, int error);
void fake_datagram(int fd, uint16_t port, const void *data, size_t len);
/* Bytes leave so_snd (acknowledged). */
void fake_acked(int fd, uint32_t n);

#define assert_errno(call, e)                                                                      \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal((call), -1);                                                              \
        assert_int_equal(errno, (e));                                                              \
    } while (0)

int fake_so_error(int fd); /* SO_ERROR */
short fake_poll(int fd);   /* all bits, without waiting, less RDNORM and the like */

#endif
