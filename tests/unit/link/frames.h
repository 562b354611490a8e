/* SPDX-License-Identifier: BSD-2-Clause
 * Frames and a stand-in link for the tests of this layer. */
#ifndef WEIR_TESTS_LINK_FRAMES_H
#define WEIR_TESTS_LINK_FRAMES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/stack.h"
#include "link/link.h"

/* A stack as far as links need one: allocator, buffers, counters. */
struct weir_stack *bare_stack_create(void);
/* Fails the test when a buffer has not come back. */
void bare_stack_destroy(struct weir_stack *s);

struct frame_spec {
    bool v6, bare;
    uint8_t flags; /* TCP */
    uint8_t tos;   /* DSCP and ECN */
    bool df;
    uint32_t options; /* bytes of TCP options (NOPs), a multiple of 4 */
    uint32_t seq;
    uint32_t payload; /* bytes: byte i has the value payload_byte(i) */
    uint32_t segsz;   /* superframe of such pieces; 0: none */
    bool partial;     /* leave the checksum to the link */
    uint32_t pieces;  /* payload spread over so many buffers, at least 1 */
};

uint8_t payload_byte(uint32_t i);
/* A TCP packet as output hands it to a link. */
struct mbuf *frame_make(struct weir_stack *s, const struct frame_spec *f);

struct seen {
    uint32_t len, seq, payload_len;
    uint8_t flags, tos;
    uint16_t ip_id;
    bool ip_ok;    /* the IPv4 header's checksum is right (true for IPv6) */
    bool sum_ok;   /* the TCP checksum is right */
    uint8_t first; /* byte of payload */
};
/* Take a frame apart, with checksum arithmetic of its own. len: of the frame. Fails the test when
 * IP lengths contradict it. */
void frame_look(const uint8_t *p, uint32_t len, bool bare, struct seen *out);
void frame_look_mbuf(const struct mbuf *m, bool bare, struct seen *out);

/* A link that keeps what is sent, by m_nextpkt, and gives out what is put into `in`. */
struct stub_link {
    struct mbuf *out, **out_tail, *in, **in_tail;
    size_t out_count, accept; /* accept: frames it takes before it is full */
    uint64_t deadline_ns;
    bool closed;
};
void stub_link_init(struct stub_link *l, struct link_end *end, uint32_t caps);
void stub_link_put(struct stub_link *l, struct mbuf *m); /* into `in`; consumes m */
struct mbuf *stub_link_take(struct stub_link *l);        /* first of `out`, owned; NULL: none */

#endif
