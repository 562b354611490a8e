/* SPDX-License-Identifier: BSD-2-Clause
 * A stack of nothing but the IP layer over an interface whose frames the test makes and sees, in
 * virtual time. */
#ifndef WEIR_TESTS_HOST_H
#define WEIR_TESTS_HOST_H

#include "ip/ip_var.h"
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HOST_MAX_FRAMES 512
#define PROTO_TEST 253 /* RFC 3692: for experiments; host_create serves it */

struct frame {
    uint32_t len;
    uint16_t csum_flags, tso_segsz;
    uint8_t b[65600];
};

/* What the transport of the test was last told. */
struct seen {
    uint32_t packets, errors;
    struct ip_info info;
    uint32_t len;
    uint8_t data[65600];
    struct icmp_error error;
    uint8_t l4[64];
};

struct host {
    struct weir_stack s;
    struct port port;
    struct netif *nif;
    struct frame *out[HOST_MAX_FRAMES]; /* frames the stack has sent, not looked at yet */
    uint32_t out_count;
    size_t tx_room; /* frames the link takes before it is full */
    struct seen seen;
    uint32_t chunk; /* bytes of an mbuf of injected frames; 0: all in one */
};

/* The host: 10.0.0.1/24 and fd00::1/64, default routes by .254 and ::fe. The neighbour: .2, ::2. */
extern const uint8_t host_mac[6], peer_mac[6];

struct host *host_create(uint32_t caps); /* 0: Ethernet */
/* Fails the test when an mbuf or a byte of memory has not come back. */
void host_destroy(struct host *h);
/* Let ns pass and everything happen that is due. */
void host_run(struct host *h, uint64_t ns);
/* Send what is queued; take the oldest frame off (free it with free); NULL: none. */
struct frame *host_next(struct host *h);
struct frame *host_next_packet(struct host *h); /* passing over ARP and neighbour discovery */
void host_forget(struct host *h);               /* all frames sent so far */
void host_inject(struct host *h, const void *frame, size_t len);

struct ipaddr addr(const char *text);
/* A frame's IPv4 or IPv6 header and what follows; Ethernet in front unless the interface has none.
 * Return lengths. */
struct ip4_spec {
    const char *src, *dst;
    uint8_t proto, ttl, tos;
    uint16_t id, off; /* bytes */
    bool mf, df;
    const uint8_t *options;
    uint8_t options_len;
};
size_t make4(struct host *h, uint8_t *frame, const struct ip4_spec *spec, const void *data,
             size_t len);
size_t make6(struct host *h, uint8_t *frame, const char *src, const char *dst, uint8_t next,
             const void *data, size_t len);
void inject4(struct host *h, const struct ip4_spec *spec, const void *data, size_t len);
void inject6(struct host *h, const char *src, const char *dst, uint8_t next, const void *data,
             size_t len);
/* Start of the IP header in a frame of this host. */
const uint8_t *ip_of(const struct host *h, const struct frame *f);
/* Fill a checksum at off of a message: ICMP (family 0: no pseudo header) or a transport's. */
void fill_sum(uint8_t *p, size_t len, size_t off, const char *src, const char *dst, uint8_t proto);
/* The neighbour tells its address (as if it had been asked), so that packets leave at once. */
void host_learn_peers(struct host *h);
/* Send `len` bytes of PROTO_TEST. */
int host_send(struct host *h, const char *dst, uint32_t len, bool df);
/* A TCP-like quote for errors: a packet as host_send would send it to dst. */
size_t quote4(uint8_t *p, const char *src, const char *dst, uint8_t proto, uint16_t total);

#define CTR(h, id) COUNTER_READ(&(h)->s, id)

#endif
