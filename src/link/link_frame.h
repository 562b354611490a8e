/* SPDX-License-Identifier: BSD-2-Clause
 * Frames as links see them: where their headers lie, cutting superframes, completing checksums. */
#ifndef WEIR_LINK_LINK_FRAME_H
#define WEIR_LINK_LINK_FRAME_H

#include "buf/mbuf.h"
#include <sys/uio.h>

#define LINK_ETHER_HEADER 14
/* Enough for Ethernet, IPv6 and TCP headers with all options, or IPv4's. */
#define LINK_FRAME_HEADERS (LINK_ETHER_HEADER + 60 + 60)
/* Segments a superframe may stand for; more is refused (the smallest MSS worth sending is larger
 * than 8). */
#define LINK_TSO_MAX_SEGS 8192

struct link_frame {
    uint8_t family;   /* AF_INET, AF_INET6; 0: something else, the rest is 0 then */
    uint8_t proto;    /* of the transport; 0 when there is no whole transport header (fragments) */
    uint16_t l3, l4;  /* offsets of the headers from the frame's start */
    uint16_t payload; /* offset behind the transport header (TCP, UDP) */
    uint32_t end;     /* offset of the IP packet's end: padding may follow */
};

/* Find the headers of a frame of frame_len bytes in its first `have` bytes (LINK_FRAME_HEADERS, or
 * the whole frame, are enough but for long IPv6 extension headers). Looks at no byte beyond `have`.
 * bare     no Ethernet header */
void link_frame_parse(const uint8_t *p, size_t have, uint32_t frame_len, bool bare,
                      struct link_frame *f);

/* Turn the headers of a superframe (f->payload bytes at h, private) into those of its i-th of n
 * wire segments, which carries len bytes from offset i * segsz of the payload: IP length and header
 * checksum, identification, sequence number, flags (FIN and PSH on the last only, CWR on the first
 * only); the TCP checksum field becomes the pseudo-header sum. */
void link_frame_segment(uint8_t *h, const struct link_frame *f, uint32_t i, uint32_t n,
                        uint32_t segsz, uint32_t len);

/* Put the right transport checksum into a whole frame whose f->proto is not 0. */
void link_frame_checksum(uint8_t *p, const struct link_frame *f);

/* Cut a superframe (m_pkt.tso_segsz != 0) into its wire segments, which reference its payload and
 * are CSUM_L4_PARTIAL, and VALID where the superframe was.
 * m        consumed on every return
 * list     gets the segments, chained by m_nextpkt, owned by the caller; a frame that is no
 *          superframe alone
 * returns  how many; -ENOMEM; -EPROTO not TCP, or more than LINK_TSO_MAX_SEGS */
int link_tso_cut(struct mbuf_account *acct, struct mbuf **m, bool bare,
                 struct mbuf **list) NODISCARD;

/* The frame's pieces as io vectors, up to max. 0: it has more, and must be copied together. */
size_t link_frame_iov(const struct mbuf *m, struct iovec *iov, size_t max);

/* Do what CSUM_L4_PARTIAL asks for, in software. *m may change; 0, or -ENOMEM, -EPROTO with the
 * frame freed. */
int link_csum_complete(struct mbuf **m) NODISCARD;

#endif
