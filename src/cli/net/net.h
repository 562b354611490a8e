/* SPDX-License-Identifier: BSD-2-Clause
 * One view of sockets for the subcommands, on a Weir stack or on the kernel: the calls are POSIX's,
 * with errno. */
#ifndef WEIR_CLI_NET_H
#define WEIR_CLI_NET_H

#include "cli/cli.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct weir_stack;

struct net_ops {
    const char *name; /* "weir", "kernel" */
    int (*socket)(struct weir_stack *s, int domain, int type);
    int (*bind)(int fd, const struct sockaddr *sa, socklen_t len);
    int (*listen)(int fd, int backlog);
    int (*accept)(int fd, struct sockaddr *sa, socklen_t *len, int flags);
    int (*connect)(int fd, const struct sockaddr *sa, socklen_t len);
    ssize_t (*send)(int fd, const void *buf, size_t len, int flags);
    ssize_t (*recv)(int fd, void *buf, size_t len, int flags);
    ssize_t (*sendto)(int fd, const void *buf, size_t len, int flags, const struct sockaddr *sa,
                      socklen_t sa_len);
    ssize_t (*recvfrom)(int fd, void *buf, size_t len, int flags, struct sockaddr *sa,
                        socklen_t *sa_len);
    /* Linux's sendfile: from a file of the kernel's, *off moves. */
    ssize_t (*sendfile)(int fd, int file_fd, off_t *off, size_t len);
    int (*shutdown)(int fd, int how);
    int (*close)(int fd);
    int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms);
    int (*epoll_create)(void);
    int (*epoll_ctl)(int ep, int op, int fd, struct epoll_event *ev);
    int (*epoll_wait)(int ep, struct epoll_event *ev, int max, int timeout_ms);
    int (*getsockopt)(int fd, int level, int name, void *value, socklen_t *len);
    int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t len);
    int (*getsockname)(int fd, struct sockaddr *sa, socklen_t *len);
};

/* A host to open sockets on. */
struct net {
    const struct net_ops *ops;
    struct weir_stack *stack; /* owned; NULL on the kernel */
};

extern const struct net_ops net_kernel_ops, net_weir_ops;
/* As many descriptors as this process may have. */
void net_kernel_raise_limit(void);

/* --- setting up (net_setup.c). On failure err holds a message in English. --- */
struct net_setup {
    bool kernel;
    const char *name;            /* of the stack, in socket lists */
    const char *link;            /* specification; NULL none */
    const struct settings *sets; /* NULL none */
    const char *cc;              /* asked for of sockets, to be checked; NULL none */
};
/* False: this can be meant on no machine (a mistake in the link's specification, a knob that there
 * is not or a value that it cannot have): usage, where net_open's failures are not. */
bool net_check(const struct net_setup *setup, char *err, size_t size) NODISCARD;
/* The same for commands with one stack, whose link must lead out of the process, with the message.
 * -1: good. Otherwise the exit code. */
int net_check_leading_out(const char *command, const struct net_setup *setup);
int net_open(struct net *n, const struct net_setup *setup, char *err,
             size_t size) NODISCARD; /* 0 or -1 */
/* Two hosts on a memory link ("mem[,OPTIONS]"), or the kernel twice. setup[1].link is not used. */
int net_open_pair(struct net n[2], const struct net_setup setup[2], char *err,
                  size_t size) NODISCARD;
void net_close(struct net *n); /* harmless on a zeroed one */
/* True: 0 = a "mem" specification of two stacks in one process. */
bool net_link_is_mem(const char *spec);

/* The address of host b of a pair, from the options of its link. */
int net_pair_address(bool kernel, const char *link, int family, struct sockaddr_storage *sa,
                     char *err, size_t size) NODISCARD;
/* HOST (NULL: any address, of both families unless told) and port to a socket address; family 0
 * any. The length; 0 with err. */
socklen_t net_resolve(const char *host, uint16_t port, int family, struct sockaddr_storage *sa,
                      char *err, size_t size) NODISCARD;
socklen_t net_sockaddr_len(const struct sockaddr_storage *sa);
void net_sockaddr_set_port(struct sockaddr_storage *sa, uint16_t port);

/* --- small helpers --- */
int net_set_int(const struct net *n, int fd, int level, int name, int value);
/* flags: 0 or SOCK_NONBLOCK. -1 and errno. */
int net_listener(const struct net *n, const struct sockaddr_storage *sa, int backlog, int flags);
/* All of it, blocking. 0, or -1 and errno. */
int net_send_all(const struct net *n, int fd, const void *buf, size_t len);
/* CPU time of the stack's own threads so far, ns; 0 on the kernel. */
uint64_t net_stack_cpu_ns(const struct net *n);
/* Bind the stack's own thread to a core. 0 or an error number; 0 on the kernel. */
int net_stack_pin(const struct net *n, int cpu);

/* What TCP_INFO tells about a connection (net_info.c). */
struct net_tcp_info {
    uint8_t state; /* Linux's numbers */
    uint64_t retransmits, cwnd_bytes, rtt_us, unacked;
};
#define NET_TCP_CLOSED 7
#define NET_TCP_TIME_WAIT 6
#define NET_TCP_FIN_WAIT2 5
bool net_tcp_info(const struct net *n, int fd, struct net_tcp_info *out);
/* Set the congestion control; 0, or -1 and errno. */
int net_set_cc(const struct net *n, int fd, const char *name);
int net_set_nodelay(const struct net *n, int fd);

#endif
