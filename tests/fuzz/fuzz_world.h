/* SPDX-License-Identifier: BSD-2-Clause
 * One stack behind a link, its applications and its peers, driven by a fuzz input; and what must
 * hold of it after every operation.
 *
 * How it works. The input is a program: operations with their operands (fuzz_stack.c, fuzz_tcp.c).
 * Packets are built whole and right, relative to what the stack sent last on a flow, and then
 * changed where the input says so; checksums are set again, so that faults lie deeper than the
 * first check. All payload of a peer is a function of its sequence number, all payload of an
 * application of its offset: what is read and what is sent can be checked byte by byte. */
#ifndef WEIR_TESTS_FUZZ_WORLD_H
#define WEIR_TESTS_FUZZ_WORLD_H

#include "fuzz.h"
#include "fuzz_link.h"
#include "sim.h"
#include "wire/addr.h"

#define FUZZ_FLOWS 8
#define FUZZ_FDS 16
#define FUZZ_TRACKED 64

/* A TCP flow as its far end sees it. */
struct fuzz_flow {
    struct ipaddr peer, local; /* family 0: free */
    uint16_t peer_port, local_port;
    uint32_t expects;  /* what the stack acknowledged last: our next in-order byte */
    uint32_t una, nxt; /* of the stack's stream: what it has from us, the end of what it sent */
    uint32_t tsval;    /* its last timestamp */
};

/* What is remembered of a connection from one check to the next. */
struct fuzz_track {
    const void *tp;
    uint32_t iss, irs;
    uint64_t start;
    bool seen;     /* in this round */
    uint32_t edge; /* furthest right edge that the peer has offered */
    uint32_t rcv_adv;
    bool wire;          /* wire_edge holds: */
    uint32_t wire_edge; /* right edge that the stack has offered */
};

struct fuzz_fd {
    int fd; /* < 0: free */
    bool tcp, epoll;
    uint32_t written, read; /* bytes of its stream */
    bool have_irs;
    uint32_t irs;
};

struct fuzz_world {
    struct sim *sim;
    struct weir_stack *s;
    struct fuzz_link link;
    bool ether, knobs_changed;
    uint16_t window; /* the largest that a peer's segments offer, unscaled */
    bool genuine;    /* payload of peers was never changed: what is read can be checked */
    struct fuzz_flow flow[FUZZ_FLOWS];
    unsigned flow_next;
    struct fuzz_fd fd[FUZZ_FDS];
    struct fuzz_track track[FUZZ_TRACKED];
    uint8_t last[1500]; /* the last packet that came out, from its IP header on, cut */
    uint32_t last_len;
    struct ipaddr local4, local6, peer4, peer6;
};

/* The one there is at a time; made anew by fuzz_world_open. */
extern struct fuzz_world fuzz_world;

/* ---- fuzz_world.c ---- */
struct fuzz_world *fuzz_world_open(bool ether, uint32_t caps, uint32_t mtu);
/* Closes all, lets time pass, checks that nothing is left, destroys. */
void fuzz_world_close(struct fuzz_world *w);
/* Peers of one of four kinds: those that offer no large window ever make the window the limit. */
void fuzz_world_peers(struct fuzz_world *w, unsigned kind);
/* Process what is queued, then all invariants. */
void fuzz_world_settle(struct fuzz_world *w);
void fuzz_world_run(struct fuzz_world *w, struct fuzz_in *in); /* time passes */
void fuzz_world_fail(struct fuzz_world *w,
                     struct fuzz_in *in); /* memory that runs out, for the next operation */
void fuzz_world_mend(struct fuzz_world *w);
void fuzz_world_sysctl(struct fuzz_world *w, struct fuzz_in *in);

/* ---- fuzz_check.c ---- */
void fuzz_check_stack(struct fuzz_world *w);
void fuzz_check_segment(struct fuzz_world *w, const struct fuzz_packet *k);

/* ---- fuzz_flow.c: TCP segments relative to a flow ---- */
void fuzz_flow_note(struct fuzz_world *w, const struct fuzz_packet *k);
/* The flow of an operand; made up when there is none there. */
struct fuzz_flow *fuzz_flow_pick(struct fuzz_world *w, struct fuzz_in *in);
/* Build a TCP segment by operands; its length. out has 66,000 bytes. */
uint32_t fuzz_flow_segment(struct fuzz_world *w, struct fuzz_in *in, struct fuzz_flow *f,
                           uint8_t *out);
/* Operands of a segment as fuzz_flow_segment reads them, for seeds. */
struct fuzz_segment {
    uint8_t flags;
    int16_t seq; /* difference from what is expected */
    uint8_t ack; /* 0: all; or one of: */
    uint16_t len;
    uint8_t options; /* FUZZ_OPT_* */
};
enum {
    FUZZ_ACK_DUPLICATE = 96, /* nothing more */
    FUZZ_ACK_PART = 144,     /* + k: k of 64 parts of what is out */
    FUZZ_ACK_OTHER = 208     /* a difference follows */
};
#define FUZZ_FLAGS_ANY 232u /* flags follow */
enum { FUZZ_OPT_USUAL, FUZZ_OPT_NONE, FUZZ_OPT_SACK, FUZZ_OPT_RAW, FUZZ_OPT_KINDS };
void fuzz_flow_seed(struct fuzz_out *o, const struct fuzz_segment *g);
/* An IP header in front of a transport payload at l4 (120 bytes of room before it); returns the
 * packet. */
uint8_t *fuzz_ip_header(const struct ipaddr *src, const struct ipaddr *dst, uint8_t proto,
                        uint8_t tos, uint8_t *l4, uint32_t *len);
/* The byte of a peer's stream at a sequence number; of an application's at an offset. */
uint8_t fuzz_peer_byte(uint32_t seq);
uint8_t fuzz_app_byte(uint32_t off);

/* ---- fuzz_app.c: socket calls ---- */
void fuzz_app_open(struct fuzz_world *w); /* a listener and UDP sockets */
void fuzz_app_call(struct fuzz_world *w, struct fuzz_in *in);
void fuzz_app_close(struct fuzz_world *w);
/* Operands of calls, for seeds: the listener accepts; slot connects, writes, reads, closes. */
enum fuzz_call {
    FUZZ_CALL_ACCEPT,
    FUZZ_CALL_CONNECT,
    FUZZ_CALL_WRITE,
    FUZZ_CALL_READ,
    FUZZ_CALL_SHUTDOWN,
    FUZZ_CALL_CLOSE,
    FUZZ_CALL_SETSOCKOPT,
    FUZZ_CALL_GETSOCKOPT,
    FUZZ_CALL_SOCKET,
    FUZZ_CALL_BIND,
    FUZZ_CALL_LISTEN,
    FUZZ_CALL_SENDTO,
    FUZZ_CALL_RECVMSG,
    FUZZ_CALL_IOCTL,
    FUZZ_CALL_NAMES,
    FUZZ_CALL_POLL,
    FUZZ_CALL_EPOLL,
    FUZZ_CALLS
};

#endif
