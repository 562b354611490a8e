/* SPDX-License-Identifier: BSD-2-Clause
 * A scripted peer: injects segments into one stack and looks at what comes out, in virtual time.
 * Segments are built relative to the connection. */
#ifndef WEIR_TESTS_PEER_H
#define WEIR_TESTS_PEER_H

#include "sim.h"
#include "wire/addr.h"
#include "wire/tcp.h"
#include "wire/wire.h"

struct peer;

/* An L3 link (no Ethernet) on s: local address with a default route to the peer's. mtu 0: 1500. */
struct peer *peer_create(struct sim *sim, struct weir_stack *s, const char *local,
                         const char *remote, uint32_t mtu);

/* A packet that the stack emitted. */
struct packet {
    uint64_t when_ns; /* of emission */
    struct ipaddr src, dst;
    uint8_t proto, ttl, tos;
    struct tcp_header th; /* proto TCP */
    struct tcp_options to;
    uint8_t opt[TCP_MAX_OPTIONS];
    uint32_t optlen, len; /* len: payload bytes */
    const uint8_t *data;  /* into raw */
    const uint8_t *l4;
    uint32_t l4len;
    size_t rawlen;
    uint8_t raw[65600];
};

/* The next packet out of the stack, running virtual time for at most within_ns. Checks lengths
 * and checksums (a wrong one fails the test). False: none came. */
bool peer_next(struct peer *p, struct packet *out, uint64_t within_ns);
/* Nothing comes out for ns. */
bool peer_quiet(struct peer *p, uint64_t ns);
void peer_drain(struct peer *p); /* forget what has come out so far */
/* While on, what is injected gathers, and meets the stack as one burst when it is taken off. */
void peer_hold(struct peer *p, bool on);
/* Inject a raw IP packet. */
void peer_inject(struct peer *p, const void *ip, size_t len);
/* Inject a transport payload under a correct IP header; from NULL: the peer's own address. */
void peer_inject_ip(struct peer *p, const struct ipaddr *from, uint8_t proto, const void *l4,
                    size_t len);
const struct ipaddr *peer_local(const struct peer *p);
const struct ipaddr *peer_remote(const struct peer *p);
struct sim *peer_sim(const struct peer *p);

/* One end of a connection as the peer sees it. Sequence numbers here are the peer's absolute
 * ones. */
struct conn {
    struct peer *p;
    uint16_t sport, dport; /* the peer's port, the stack's port */
    uint32_t iss, snd_nxt; /* the peer's side */
    uint32_t irs, rcv_nxt; /* what the stack sent; rcv_nxt is what we acknowledge */
    uint16_t win;          /* window field we send */
    bool ts;               /* send timestamps */
    uint32_t tsval, tsecr;
    uint32_t ts_per_ms; /* tsval advances by this a millisecond (1) */
    uint64_t ts_base_ns;
    uint16_t mss; /* in our SYN; 0: no option */
    int wscale;   /* in our SYN; < 0: no option */
    bool sack;
    uint8_t tos;
    int fd; /* descriptor of the stack's side, when the helper knows it */
};

/* One segment to inject; seq and ack are absolute. */
struct segment {
    uint32_t seq, ack;
    uint8_t flags;
    int win; /* < 0: conn->win */
    uint16_t urp;
    const void *data; /* NULL: len bytes of a pattern by sequence number (peer_pattern) */
    uint32_t len;
    bool no_ts;
    const uint8_t *opt; /* replaces all options when not NULL */
    uint32_t optlen;
    const struct sack_block *sack;
    unsigned nsack;
    bool bad_sum;
};

/* A byte of the peer's stream at a sequence number relative to iss + 1. */
uint8_t peer_pattern(uint32_t offset);
void conn_init(struct conn *c, struct peer *p, uint16_t sport,
               uint16_t dport); /* mss 1460/1440, wscale 7, sack, ts */
void conn_send(struct conn *c, const struct segment *g);
void conn_ack(struct conn *c);                  /* pure ACK of rcv_nxt */
void conn_data(struct conn *c, uint32_t len);   /* in order, PSH|ACK, moves snd_nxt */
void conn_flags(struct conn *c, uint8_t flags); /* at snd_nxt; SYN and FIN move it */
/* The next TCP packet of this connection from the stack; takes tsecr from it; moves rcv_nxt over
 * in-order payload, SYN and FIN. False: none within the time. */
bool conn_next(struct conn *c, struct packet *out, uint64_t within_ns);
/* Passive open on the stack: listens on dport (blocking socket made here when listener_fd < 0,
 * returned in *listener), plays the handshake, accepts: c->fd. */
void conn_accept(struct conn *c, int *listener_fd, struct weir_stack *s);
/* Active open by the stack to our sport, non-blocking connect; c->dport is learned: c->fd. */
void conn_connect(struct conn *c, struct weir_stack *s);
/* Socket address of the stack's or the peer's side. */
socklen_t peer_sockaddr(const struct ipaddr *a, uint16_t port, struct sockaddr_storage *ss);

/* Fail the test program with file and line. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define REQUIRE_EQ(a, b)                                                                           \
    do {                                                                                           \
        long long va_ = (long long)(a), vb_ = (long long)(b);                                      \
        if (va_ != vb_) {                                                                          \
            fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__, #a, va_, #b, \
                    vb_);                                                                          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
