/* SPDX-License-Identifier: BSD-2-Clause
 * Frames of every kind, for the whole-stack target. */
#ifndef WEIR_TESTS_FUZZ_FRAME_H
#define WEIR_TESTS_FUZZ_FRAME_H

#include "fuzz_world.h"

enum fuzz_frame {
    FUZZ_FRAME_TCP,
    FUZZ_FRAME_UDP,
    FUZZ_FRAME_ARP,
    FUZZ_FRAME_ND,
    FUZZ_FRAME_ECHO,
    FUZZ_FRAME_QUOTE,  /* an ICMP error about the last packet that came out */
    FUZZ_FRAME_BOUNCE, /* the last packet, sent back as it is or with its ends exchanged */
    FUZZ_FRAME_IP,     /* any protocol */
    FUZZ_FRAME_RAW,    /* bytes of the input */
    FUZZ_FRAMES
};

/* What is done to a frame. */
#define FUZZ_HOW_FRAGMENTS 0x01u
#define FUZZ_HOW_EXTENSIONS 0x02u /* IPv6 extension headers, IPv4 options */
#define FUZZ_HOW_CHANGED 0x04u    /* bytes are changed; checksums are set again unless ... */
#define FUZZ_HOW_BAD_SUM 0x08u
#define FUZZ_HOW_CUT 0x10u
#define FUZZ_HOW_CHAIN 0x20u
#define FUZZ_HOW_EXACT 0x40u
#define FUZZ_HOW_ODD_ENDS 0x80u /* other addresses, of IP or of the link */

/* One frame by operands: kind, how, and what these need. */
void fuzz_frame_put(struct fuzz_world *w, struct fuzz_in *in);
/* Frames from which the stack learns where the peers are. */
void fuzz_frame_neighbours(struct fuzz_world *w);

#endif
