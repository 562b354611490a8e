/* SPDX-License-Identifier: BSD-2-Clause
 * A link for fuzz targets: frames go in as the target shapes their buffers, what comes out is
 * checked and handed to the target. */
#ifndef WEIR_TESTS_FUZZ_LINK_H
#define WEIR_TESTS_FUZZ_LINK_H

#include "sim.h"
#include "wire/tcp.h"

#define FUZZ_FRAME_MAX 65600

/* A packet that the stack sent, checked: lengths and checksums are right. */
struct fuzz_packet {
    const uint8_t *ip; /* from its IP header on */
    uint32_t len;
    struct ipaddr src, dst;
    uint8_t proto; /* 0 for fragments and what is no IP */
    const uint8_t *l4;
    uint32_t l4len;
    struct tcp_header th; /* proto TCP */
    struct tcp_options to;
    uint32_t payload; /* of TCP */
};

struct fuzz_link {
    struct weir_stack *s;
    struct netif *nif;
    bool ether;
    bool stuck; /* takes no frame */
    uint32_t caps;
    uint64_t sent; /* frames that came out */
    struct mbuf *in, **in_tail;
    void (*packet)(const struct fuzz_packet *k, void *ctx); /* by the owner, may be NULL */
    void *ctx;
};

/* Attach to s; the link lives as long as the stack. mac of the stack's end: 02:00:00:00:00:01. */
void fuzz_link_open(struct fuzz_link *l, struct weir_stack *s, bool ether, uint32_t caps,
                    uint32_t mtu);

/* How a frame lies in memory. */
struct fuzz_shape {
    bool exact; /* storage of the frame's own size, so that a sanitizer sees each byte too far */
    uint16_t piece;  /* cut into a chain of pieces this long; 0 not */
    bool csum_valid; /* the link vouches for the checksum */
    uint16_t segs;   /* wire segments it stands for; 0: one */
};
/* Queue a frame for the stack; it is processed when the simulation settles. */
void fuzz_link_put(struct fuzz_link *l, const uint8_t *frame, size_t len, struct fuzz_shape shape);

#endif
