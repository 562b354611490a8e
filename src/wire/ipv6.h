/* SPDX-License-Identifier: BSD-2-Clause
 * The IPv6 header and its extension headers: parse, build, bounded walk (RFC 8200). */
#ifndef WEIR_WIRE_IPV6_H
#define WEIR_WIRE_IPV6_H

#include "addr.h"
#include "base/base.h"

#define IPV6_HEADER_LEN 40
#define IPV6_FRAG_HEADER_LEN 8
#define IPV6_MIN_MTU 1280

/* Next header values of the extension headers. */
#define IPV6_NH_HOPOPTS 0
#define IPV6_NH_ROUTING 43
#define IPV6_NH_FRAGMENT 44
#define IPV6_NH_NONE 59
#define IPV6_NH_DSTOPTS 60

struct ipv6_header {
    uint8_t tclass;
    uint32_t flow; /* 20 bits */
    uint16_t plen; /* bytes behind this header, host order */
    uint8_t next;
    uint8_t hlim;
    struct ipaddr src, dst; /* scope 0: the caller knows the interface */
};

/* 0; -EMSGSIZE fewer bytes than a header; -EPROTO version is not 6; -EBADMSG payload length beyond
 * `len` (bytes behind it are padding; jumbograms are not served). */
int ipv6_header_parse(const uint8_t *p, size_t len, struct ipv6_header *h) NODISCARD;
void ipv6_header_build(uint8_t *p, const struct ipv6_header *h); /* 40 bytes */

/* Bounds of a walk: beyond either the packet is dropped. */
#define IPV6_MAX_EXT_HEADERS 8
#define IPV6_MAX_EXT_BYTES 512
#define IPV6_MAX_EXT_OPTIONS 16 /* options in one header that are not padding */

enum ipv6_walk_result {
    IPV6_WALK_UPPER,    /* next is an upper layer (served or not), off its header */
    IPV6_WALK_FRAGMENT, /* a fragment header stands at off; the walk goes on with another call after
                           the caller has dealt with it (atomic fragments: ipv6_walk_skip_fragment)
                         */
    IPV6_WALK_NONE,     /* no next header: nothing to deliver */
    IPV6_WALK_DROP,     /* malformed, beyond the bounds, or an option that asks for it: no answer */
    IPV6_WALK_PARAM,    /* answer with a parameter problem: code and pointer are set */
};

struct ipv6_walk {
    uint8_t next;      /* protocol of what stands at off */
    uint32_t off;      /* bytes from the start of the IPv6 header */
    uint32_t next_off; /* where the next-header byte that named it stands */
    uint8_t
        code; /* parameter problem: 0 erroneous field, 1 unknown next header, 2 unknown option */
    uint32_t pointer; /* parameter problem: offset of the offending byte */
    bool dst_multicast;
    uint8_t headers; /* seen so far, over all calls */
};

void ipv6_walk_init(struct ipv6_walk *w, const struct ipv6_header *h);
/* Walk on from w. p, len: the packet from its IPv6 header on, len cut to 40 + plen. Reads only
 * within len. */
enum ipv6_walk_result ipv6_walk(const uint8_t *p, size_t len, struct ipv6_walk *w) NODISCARD;

struct ipv6_fragment {
    uint8_t next;
    uint16_t off; /* bytes */
    bool more;
    uint32_t id;
};
/* The fragment header. 0; -EMSGSIZE. */
int ipv6_fragment_parse(const uint8_t *p, size_t len, struct ipv6_fragment *f) NODISCARD;
void ipv6_fragment_build(uint8_t p[IPV6_FRAG_HEADER_LEN], const struct ipv6_fragment *f);
/* Step over the fragment header at w->off. */
void ipv6_walk_skip_fragment(struct ipv6_walk *w, const struct ipv6_fragment *f);

#endif
