/* SPDX-License-Identifier: BSD-2-Clause
 * The socket: what applications and protocols share, and the calls between them. */
#ifndef WEIR_SOCKET_SOCKET_H
#define WEIR_SOCKET_SOCKET_H

#include "base/event.h"
#include "base/lock.h"
#include "base/stack.h"
#include "buf/sockbuf.h"
#include "wire/addr.h"
#include <bsd/sys/queue.h>

struct socket;
struct poll_watch;

/* so_state bits (Linux's view of a connection). Written by the owner with atomic or/and. */
#define SS_BOUND 0x0001
#define SS_LISTENING 0x0002
#define SS_CONNECTING 0x0004
#define SS_CONNECTED 0x0008
#define SS_CANTRCVMORE 0x0010  /* EOF follows the data, by the peer's FIN or an error */
#define SS_CANTSENDMORE 0x0020 /* send gives EPIPE */
#define SS_SHUT_RD 0x0040      /* the application shut its receiving side */
#define SS_SHUT_WR 0x0080      /* the application shut its sending side */
#define SS_DISCONNECTED 0x0100 /* was connected or failed to connect: POLLHUP */
#define SS_NOHANDLE 0x0200     /* the last descriptor is gone: the protocol finishes alone */
#define SS_OOB_HAVE 0x0800     /* so_oob holds an urgent byte not yet read */
#define SS_INCOMPLETE 0x1000   /* made by a listener, not yet accepted */
#define SS_NBIO 0x2000         /* O_NONBLOCK */
#define SS_PEERFIN 0x4000      /* the peer's FIN: EOF comes before a pending error (SOCK_DONE) */
#define SS_URGENT 0x8000       /* an urgent mark is ahead or at the next byte */
#define SS_OOB_AWAITED 0x10000 /* announced, but the urgent byte has not come */
#define SS_CLOEXEC 0x20000     /* kept for F_GETFD */
#define SS_FINACKED 0x40000    /* the peer has acknowledged our FIN */

/* so_work bits: what a deferred socket owes; set by any thread, taken by the owner. */
#define SO_WORK_SEND 0x1  /* so_snd has new data */
#define SO_WORK_RCVD 0x2  /* the application took data: the window may be updated */
#define SO_WORK_CLOSE 0x4 /* the last handle is gone */
#define SO_WORK_FLUSH 0x8 /* cork lifted, NODELAY set: output now */
#define SO_WORK_DATAGRAM 0x10
#define SO_WORK_VANISHED 0x20      /* received data are gone with the file they were in: reset */
#define SO_WORK_QUEUED 0x80000000u /* the node is, or is about to be, on the deferred list */

/* so_sndflags bits, written by senders before SO_WORK_SEND. */
#define SO_SND_MORE 0x1 /* MSG_MORE, or more to append: no partial segment, no PSH */
#define SO_SND_OOB 0x2  /* the last byte in so_snd is urgent: taken (fetch_and) by the protocol */

/* Booleans of IP and the like, by so_option.c: so_wants. */
enum so_flag {
    SO_FLAG_RECVOPTS,
    SO_FLAG_PKTINFO,
    SO_FLAG_RECVERR,
    SO_FLAG_RECVTTL,
    SO_FLAG_RECVTOS,
    SO_FLAG_BIND_NO_PORT,
    SO_FLAG_MCAST_LOOP,
    SO_FLAG_ORIGDSTADDR,
    SO_FLAG_PKTINFO6,
    SO_FLAG_HOPLIMIT,
    SO_FLAG_TCLASS,
    SO_FLAG_RECVERR6,
    SO_FLAG_DONTFRAG6,
    SO_FLAG_AUTOFLOWLABEL6,
    SO_FLAG_MCAST_LOOP6,
    SO_FLAG_TIMESTAMPNS,
};

/* What is known about a datagram beside its sender (received), or was chosen for it (sent): behind
 * the address in the front mbuf of its record. */
struct so_ancillary {
    uint64_t time_ns;    /* of day, when it came and SO_TIMESTAMP or SO_TIMESTAMPNS was on; or 0 */
    struct ipaddr local; /* where it was sent to; sent: the source, family 0 or any: no choice */
    uint32_t spec_dst;   /* received by IPv4: the local address (network order) that answers it */
    uint32_t ifindex;    /* 0: not told, or no choice */
    uint16_t port;       /* received: the local one */
    int16_t ttl, tos;    /* sent: -1: no choice */
    int16_t refuse;      /* sent: errno that the call ends with if the destination is good */
};

/* so_conn: what connect() and shutdown() decide by (Linux's sock->state). */
enum so_conn { SO_UNCONNECTED, SO_CONNECTING, SO_CONNECTED, SO_DISCONNECTING };

/* Who wants to hear of changes of readiness (epoll sets, polling threads): see so_watch.c. */
LIST_HEAD(poll_watch_list, poll_watch);
struct watch_list {
    struct lock lock;
    struct poll_watch_list list; /* under lock */
    _Atomic uint32_t count;      /* changed under lock, looked at without */
};
TAILQ_HEAD(socket_queue, socket);

/* Field letters: (c) constant; (o) owner only; (a) atomic, any thread;
 * (q) accept queue: under so_rcv.sb_lock; sockbufs say for themselves. */
struct socket {
    struct deferred_node so_node;        /* (a) */
    struct weir_stack *so_stack;         /* (c) */
    uint32_t so_index;                   /* (c) in the stack's socket table */
    _Atomic uint32_t so_handle;          /* (a) descriptor, for socket lists; UINT32_MAX none */
    int so_domain, so_type, so_protocol; /* (c) */
    const struct protosw *so_proto;      /* (c) */
    void *so_pcb;                        /* (o) tcpcb or udpcb; NULL when the protocol is done */

    _Atomic uint32_t so_refs;    /* (a) handles and running calls; the owner frees after the last */
    _Atomic uint32_t so_state;   /* (a) */
    _Atomic uint32_t so_work;    /* (a) */
    _Atomic int32_t so_error;    /* (a) pending error; exchanged to 0 by whoever reports it */
    _Atomic uint32_t so_event;   /* (a) event count of all changes of readiness, slept on */
    _Atomic uint32_t so_options; /* (a) 1 << SO_xxx for the boolean options: so_has_option */

    /* In this order, so that what applications write lies together. */
    struct sockbuf so_rcv;
    struct lock so_rcv_serial; /* one receiver at a time copies out */
    struct lock so_snd_serial; /* one sender at a time appends */
    struct sockbuf so_snd;

    _Atomic int32_t so_linger_s;                     /* (a) < 0: off */
    _Atomic uint64_t so_rcvtimeo_ns, so_sndtimeo_ns; /* (a) 0: none */

    /* listener */
    struct socket_queue so_accept;       /* (q) completed, not accepted */
    TAILQ_ENTRY(socket) so_accept_link;  /* (q of the listener) */
    struct socket *so_listener;          /* (q of the listener) */
    _Atomic uint32_t so_qlen, so_qlimit; /* (q), looked at without the lock */
    uint32_t so_incomplete;              /* (o) */

    uint8_t so_oob;      /* (l of so_rcv) */
    uint32_t so_oobmark; /* (l of so_rcv) with SS_URGENT: what so_rcv.sb_out is at the mark */

    struct watch_list so_watch;
    void *_Atomic so_fd_hook; /* (a) kernel descriptor attached, see weir_fd; NULL none */

    _Atomic uint32_t so_sndflags; /* (a) SO_SND_* */
    _Atomic uint32_t so_nospace;  /* (a) somebody waits for room: so_writable wakes only then */
    /* (a) TCP_NOTSENT_LOWAT, 0: none; while it is set the owner keeps so_sent: bytes of so_snd that
     * are sent */
    _Atomic uint32_t so_notsent_lowat, so_sent;
    _Atomic uint32_t so_rcv_notice; /* (a) bytes to be taken before the protocol is told (rcvd): two
                                       Ethernet segments at first, at most a quarter of the buffer;
                                       TCP may set it, 0: each recv */
    uint32_t so_rcv_taken;        /* under so_rcv_serial: bytes taken since the protocol was told */
    _Atomic uint64_t so_cpu_copy; /* (a) ticks of copying to and from the caller: base/cputime.h */

    /* options of IP; the protocol reads them when it sends. Set by the owner, relaxed access. */
    _Atomic int16_t so_ttl;               /* IP_TTL; -1: the knob */
    _Atomic int16_t so_hoplimit;          /* IPV6_UNICAST_HOPS; -1: the knob */
    _Atomic int16_t so_mcast_ttl;         /* IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS; -1: 1 */
    _Atomic uint8_t so_tos;               /* IP_TOS without the ECN bits for TCP */
    _Atomic uint8_t so_tclass;            /* IPV6_TCLASS */
    _Atomic int8_t so_pmtudisc;           /* IP_MTU_DISCOVER, IPV6_MTU_DISCOVER: IP_PMTUDISC_* */
    _Atomic bool so_v6only;               /* IPV6_V6ONLY; the protocol's bind and listen heed it */
    _Atomic uint32_t so_ipflags;          /* 1 << enum so_flag */
    _Atomic int32_t so_priority, so_mark; /* kept for reading back */

    uint8_t so_conn;          /* (o) enum so_conn */
    uint16_t so_conn_waiters; /* (o) threads in a connect that blocks */
    /* (o) The application chose something of the local address, the address, the port: that is kept
     * when a connection is over; so_laddr and so_lport are then what is to be bound again (port 0:
     * any). */
    bool so_bound, so_bound_addr, so_bound_port;
    bool so_closing, so_in_work; /* (o) private to socket.c */
    bool so_queued;              /* (o) is or was in a listener's accept queue */
    /* (o) What sockname and peername said last. The foreign side of a child is constant once it is
     * in the accept queue. */
    struct ipaddr so_laddr, so_faddr;
    uint16_t so_lport, so_fport;
    uint16_t so_oldport; /* (o) lost with its connection: getsockname tells it still */
};

/* What a protocol serves. All are called by the owner; return 0 or a negative errno. */
struct protosw {
    int type, protocol;
    int (*attach)(struct socket *so);
    /* The last handle is gone: finish alone or free; so_pcb may stay. */
    void (*detach)(struct socket *so);
    int (*bind)(struct socket *so, const struct ipaddr *a, uint16_t port);
    int (*listen)(struct socket *so, int backlog);
    /* -EINPROGRESS when the outcome comes later (so_connected or so_error_set). */
    int (*connect)(struct socket *so, const struct ipaddr *a, uint16_t port);
    int (*disconnect)(struct socket *so); /* connect(AF_UNSPEC) */
    void (*send)(struct socket *so);      /* so_snd has new data (or a cork was lifted) */
    void (*rcvd)(struct socket *so);      /* data were taken from so_rcv */
    int (*shutdown)(struct socket *so, int how);
    void (*abort)(struct socket *so); /* reset */
    int (*sockname)(struct socket *so, struct ipaddr *a, uint16_t *port);
    int (*peername)(struct socket *so, struct ipaddr *a, uint16_t *port); /* -ENOTCONN */
    /* -ENOPROTOOPT for options it does not know. get: *len in: room, out: true length copied. */
    int (*getopt)(struct socket *so, int level, int name, void *val, socklen_t *len);
    int (*setopt)(struct socket *so, int level, int name, const void *val, socklen_t len);
    /* Option values a new connection inherits from its listener. */
    void (*inherit)(struct socket *listener, struct socket *so);
};

/* Rules between sockets and protocols:
 * - so_create and so_newconn call attach (so_pcb is set then); so_newconn then calls inherit.
 * - setsockopt at SOL_SOCKET, IPPROTO_IP and IPPROTO_IPV6 is stored by the socket first; then the
 *   protocol's setopt is told and may answer -ENOPROTOOPT. SO_SNDBUF and SO_RCVBUF have been
 *   reserved by then.
 * - the socket sets SS_BOUND, SS_LISTENING and so_qlimit after bind or listen returned 0, and
 *   calls so_connecting before connect, so_connected after it returned 0.
 * - datagrams wait in so_snd as records, behind an M_ADDR mbuf with the destination's sockaddr, and
 *   behind that, maybe, a struct so_ancillary; sockaddr_in of family AF_UNSPEC, or no M_ADDR mbuf:
 *   the connected peer. The protocol's send takes them all; what fails is told with
 *   so_send_failed before send returns, and is the answer of the call. so_rcv holds them the same
 *   way, behind the sender's sockaddr (of the socket's family).
 * - a protocol never takes or flushes data of so_rcv: a reader may be copying out of it without
 *   the lock.
 * - when so_pcb is NULL no protosw call but attach is made. */

extern const struct protosw tcp_protosw;

/* --- socket table and lifetime (owner, unless said) --- */
int so_table_init(struct weir_stack *s) NODISCARD;
void so_table_fini(struct weir_stack *s); /* aborts what is left */
/* A socket with one reference. NULL: *error (negative) says why: -EMFILE limit, -ENOMEM,
 * -EPROTONOSUPPORT, ... */
struct socket *so_create(struct weir_stack *s, int domain, int type, int protocol,
                         int *error) NODISCARD;
/* Any thread that keeps it alive. NULL: none. */
struct socket *so_by_index(struct weir_stack *s, uint32_t index);
void so_hold(struct socket *so); /* any thread */
void so_drop(struct socket *so); /* any thread: the last drop defers SO_WORK_CLOSE to the owner */
/* The protocol is finished with the socket (so_pcb is NULL now): freed if no handle is left. */
void so_protocol_done(struct socket *so);
/* Run the deferred work of one socket (called by stack_step for each node taken; it may free the
 * socket). */
void so_run_work(struct socket *so);
/* Any thread that holds a reference: set work bits; run them now if the stack can be owned, else
 * leave them to the owner. */
void so_defer(struct socket *so, uint32_t work);
/* Any thread, with or without a reference afterwards: set bits and push the node only. Returns as
 * owner_defer. */
bool so_queue_work(struct socket *so, uint32_t work);
/* Node of an index for the owner word (any thread); the socket must be alive. */
struct deferred_node *so_node_of(struct weir_stack *s, uint32_t index);
/* For socket lists: calls fn for every socket. */
void so_foreach(struct weir_stack *s, void (*fn)(struct socket *so, void *ctx), void *ctx);
/* The same for `count` places of the table from `from` on: where to go on, 0 at its end. */
uint32_t so_foreach_slice(struct weir_stack *s, uint32_t from, uint32_t count,
                          void (*fn)(struct socket *so, void *ctx), void *ctx) NODISCARD;

/* --- what protocols tell a socket (owner) --- */
void so_connecting(struct socket *so);
/* From SYN_SENT: wakes; a listener's child: is queued for accept. */
void so_connected(struct socket *so);
void so_error_set(struct socket *so, int error); /* positive errno; wakes everybody */
/* What a protocol's send for a datagram socket could not do (positive errno): the answer of the
 * call, thus nobody else's news. */
static inline void so_send_failed(struct socket *so, int error)
{
    atomic_store_explicit(&so->so_error, error, memory_order_release);
}
void so_cantrcvmore(struct socket *so); /* the peer's FIN */
void so_cantsendmore(struct socket *so);
void so_disconnected(struct socket *so); /* both directions are over */
void so_fin_acked(struct socket *so);    /* all that we sent has arrived: who lingers may go */
/* Data were appended to so_rcv (readable) / space came free in so_snd (writable, if above the
 * low-water mark). */
void so_readable(struct socket *so);
void so_writable(struct socket *so);
/* Urgent data: the mark comes mark_off bytes after what so_rcv holds now. */
void so_oob_arrived(struct socket *so, uint8_t byte, bool have_byte, uint32_t mark_off);
/* A child for a listener whose handshake is complete; options inherited; NULL when the accept queue
 * is full or there is no memory (counted). Not yet visible to accept: so_connected makes it so. */
struct socket *so_newconn(struct socket *listener) NODISCARD;
/* True when the listener's accept queue is full (Linux: qlen > backlog). */
bool so_accept_full(const struct socket *listener);
/* Every change of readiness ends here: bumps so_event, wakes sleepers and watches. */
void so_wakeup(struct socket *so);
/* The same for watches that asked for some of `events` only (POLLIN, ...; 0: for all). */
void so_wakeup_events(struct socket *so, uint32_t events);
/* Set by whoever attaches kernel descriptors (so_fd_hook): called at each wake-up of such sockets.
 */
extern void (*so_fd_signal)(struct socket *so);
/* Set by the descriptor table: so_table_fini takes the descriptor of a socket away with it. */
extern void (*so_revoke_handle)(struct socket *so);

/* --- readiness (any thread): poll bits now, Linux's rules --- */
short so_poll_bits(struct socket *so);

static inline bool so_has_option(const struct socket *so, int opt)
{
    return atomic_load_explicit(&so->so_options, memory_order_relaxed) & (1u << opt);
}
static inline bool so_wants(const struct socket *so, enum so_flag f)
{
    return atomic_load_explicit(&so->so_ipflags, memory_order_relaxed) & (1u << f);
}
static inline uint32_t so_state(const struct socket *so)
{
    return atomic_load_explicit(&so->so_state, memory_order_acquire);
}

#endif
