/* SPDX-License-Identifier: BSD-2-Clause
 * Watches: how sets of descriptors (epoll, poll) learn of changes of readiness. */
#ifndef WEIR_SOCKET_SO_WATCH_H
#define WEIR_SOCKET_SO_WATCH_H

#include "socket.h"
#include <bsd/sys/tree.h>
#include <sys/epoll.h>

struct poll_set;

/* One descriptor in one set. (c) constant; (l) lock of the watched object's list; (m) the set's
 * mutex; (r) the set's ready lock; (a) atomic. */
struct poll_watch {
    LIST_ENTRY(poll_watch) link;   /* (l) */
    TAILQ_ENTRY(poll_watch) ready; /* (r) */
    RB_ENTRY(poll_watch) tree;     /* (m) */
    struct watch_list *list;       /* (c) */
    struct poll_set *set;          /* (c) who is told */
    struct socket *so;             /* (c) what is watched: a socket, */
    struct poll_set *sub;          /* (c) or a set */
    struct poll_watch *seen;       /* (m) while a wait collects, with the next two */
    bool reported, readd;
    epoll_data_t data; /* (m) */
    _Atomic uint32_t
        events;    /* (a) EPOLL* wanted, with EPOLLET and the like; 0 with EPOLLONESHOT: disarmed */
    int fd;        /* (c) */
    bool on_ready; /* (r) */
};

RB_HEAD(poll_watch_tree, poll_watch);
#define POLL_SET_STACKS                                                                            \
    16 /* stacks that a waiter drives; more than these run on their own threads only */

struct poll_set {
    struct lock mutex;
    struct lock ready_lock;
    TAILQ_HEAD(poll_ready, poll_watch)
    ready;                       /* (r) perhaps ready */
    _Atomic bool looking;        /* (a) set under mutex: somebody took watches off ready to look at
                                    them, and may put them back */
    struct poll_watch_tree tree; /* (m) by descriptor */
    struct watch_list watchers;  /* sets that this one is in */
    _Atomic uint32_t event;      /* (a) event count: a watch was made ready */
    uint32_t nstacks;            /* (m) */
    struct {
        struct weir_stack *stack;
        uint32_t watches;
    } stacks[POLL_SET_STACKS]; /* (m) */
};

/* Once a process, before any set: memory of watches. */
void watch_init(const struct weir_alloc *a);
void watch_fork_prepare(void);
void watch_fork_done(void);
/* How sets wait that watch no socket: the port of the latest stack will do. */
void watch_set_port(const struct port *port);
const struct port *watch_get_port(void); /* NULL: no stack was ever made */

void watch_list_init(struct watch_list *l);
/* For the list of a socket: tell every watch that asked for one of `events` (0: for all). Any
 * thread; may be called by an owner. */
void watch_list_notify(struct watch_list *l, uint32_t events);
/* The watched object goes: out of every set. No lock held; no new watch can come. */
void watch_list_detach(struct watch_list *l);

void poll_set_init(struct poll_set *set);
/* Out of all sets, and everything out of it. */
void poll_set_fini(struct poll_set *set);
/* The three of epoll_ctl, for a watched socket or set (the other NULL). Callers hold references to
 * all. 0, -EEXIST, -ENOENT, -ENOMEM, -EINVAL (EPOLLEXCLUSIVE misused), -ELOOP (nested too deep or
 * in a circle). */
int poll_set_add(struct poll_set *set, int fd, struct socket *so, struct poll_set *sub,
                 const struct epoll_event *ev) NODISCARD;
int poll_set_modify(struct poll_set *set, int fd, const struct epoll_event *ev) NODISCARD;
int poll_set_remove(struct poll_set *set, int fd) NODISCARD;
/* Take up to max events, without waiting. Cost: by what was made ready. */
int poll_set_collect(struct poll_set *set, struct epoll_event *out, int max);
/* The same, waiting until deadline (of port's clock). Returns the count, 0 at the deadline, -EINTR.
 */
int poll_set_wait(struct poll_set *set, const struct port *port, struct epoll_event *out, int max,
                  uint64_t deadline) NODISCARD;
/* POLLIN | POLLRDNORM when a wait would return something. */
short poll_set_bits(struct poll_set *set);

/* poll(2): a set for the length of one call, whose watches are the caller's. */
void poll_set_attach(struct poll_set *set, struct poll_watch *w, struct socket *so,
                     struct poll_set *sub, uint32_t events);
void poll_set_detach(struct poll_set *set, struct poll_watch *w);
/* Sleep until something was made ready. 0, -EAGAIN (deadline), -EINTR. */
int poll_set_sleep(struct poll_set *set, const struct port *port, uint32_t seq,
                   uint64_t deadline) NODISCARD;

#endif
