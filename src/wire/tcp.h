/* SPDX-License-Identifier: BSD-2-Clause
 * TCP header and options: parse and build (RFC 9293 3.1, RFC 7323, RFC 2018). */
#ifndef WEIR_WIRE_TCP_H
#define WEIR_WIRE_TCP_H

#include "base/base.h"

#define TH_FIN 0x01
#define TH_SYN 0x02
#define TH_RST 0x04
#define TH_PUSH 0x08
#define TH_ACK 0x10
#define TH_URG 0x20
#define TH_ECE 0x40
#define TH_CWR 0x80

#define TCP_HEADER_LEN 20
#define TCP_MAX_OPTIONS 40
#define TCP_MAX_SACK_BLOCKS 4
#define TCP_MAX_WSCALE 14

struct tcp_header {
    uint16_t sport, dport; /* host order, all of them */
    uint32_t seq, ack;
    uint8_t off;   /* header length, bytes */
    uint8_t flags; /* TH_* */
    uint8_t ns;    /* bit 8 of the flags (AE, RFC 3168 nonce) */
    uint16_t win;
    uint16_t sum; /* as stored (memory order) */
    uint16_t urp;
};

struct sack_block {
    uint32_t start, end;
};

/* to_flags */
#define TOF_MSS 0x01
#define TOF_SCALE 0x02
#define TOF_SACKPERM 0x04
#define TOF_TS 0x08
#define TOF_SACK 0x10
#define TOF_BAD 0x80 /* some option had a wrong length: it was ignored */

struct tcp_options {
    uint8_t flags;  /* TOF_* */
    uint8_t wscale; /* as on the wire when parsed; > 14 must be taken as 14 (RFC 7323 2.3) */
    uint16_t mss;
    uint32_t tsval, tsecr;
    uint8_t nsack;
    struct sack_block sack[TCP_MAX_SACK_BLOCKS];
};

/* 0; -EMSGSIZE shorter than its header; -EINVAL data offset below 20. */
int tcp_header_parse(const uint8_t *p, size_t len, struct tcp_header *h) NODISCARD;
void tcp_header_build(uint8_t *p, const struct tcp_header *h); /* sum as given */
/* Never fails: malformed options are ignored, TOF_BAD set. syn: MSS, scale and SACK-permitted are
 * looked at only with SYN. */
void tcp_options_parse(const uint8_t *p, size_t len, bool syn, struct tcp_options *o);

enum tcp_option_order { TCP_ORDER_FREEBSD, TCP_ORDER_LINUX };
/* Write the options named in o->flags, padded to a multiple of 4; returns their length (<= 40).
 * With syn in the given order (freebsd: mss, nop, wscale, sackOK, TS, without TS closed by eol eol;
 * linux: mss, sackOK, TS, nop, wscale); without: nop nop TS, nop nop SACK. As many SACK blocks as
 * fit. */
unsigned tcp_options_build(uint8_t out[TCP_MAX_OPTIONS], const struct tcp_options *o, bool syn,
                           enum tcp_option_order order);

#endif
