/* SPDX-License-Identifier: BSD-2-Clause
 * Taps: copies of the frames that pass a stack's interfaces, for `weir tcpdump`.
 *
 * A tap is one stack's ring between the stack's owner, which writes, and one reader. Neither waits
 * for the other: a frame that finds no room is counted and not copied. A stack without taps pays
 * one predicted branch a burst. Superframes are copied as they are; a checksum that was left to the
 * link is for the reader to complete (tap_finish_checksum). */
#ifndef WEIR_MEASURE_TAP_H
#define WEIR_MEASURE_TAP_H

#include "base/base.h"
#include <sys/types.h>

#include <pcap/pcap.h>

#define TAP_MAX 8                  /* taps of a stack */
#define TAP_IFACES 65              /* interfaces that a tap tells apart */
#define TAP_FRAME_MAX (65535 + 14) /* bytes of a frame that are ever copied */
#define TAP_FILTER_MAX 512         /* instructions */
#define TAP_RING_MIN (256u << 10)  /* bytes */
#define TAP_RING_MAX (256u << 20)

/* A filter for one kind of interface; code NULL: everything passes. */
struct tap_filter {
    struct bpf_insn *code;
    unsigned count;
    bool never; /* nothing passes: the expression means nothing on such a link */
};

struct tap_config {
    uint32_t snaplen;            /* bytes of a frame that are kept, 1 .. TAP_FRAME_MAX */
    uint32_t ring_bytes;         /* TAP_RING_MIN .. TAP_RING_MAX, a power of two */
    const char *interface;       /* NULL: all; borrowed while the tap lives, as the filters are */
    struct tap_filter filter[2]; /* [0] Ethernet, [1] bare IP */
};

enum tap_kind { TAP_PAD, TAP_IFACE, TAP_FRAME };
#define TAP_OUT 0x1      /* sent; else received */
#define TAP_BARE 0x2     /* no Ethernet header */
#define TAP_CHECKSUM 0x4 /* the transport checksum may not be in place yet */

struct tap_record {
    uint32_t size; /* with this header: where the next begins */
    uint8_t kind, flags;
    uint16_t iface;       /* place in the tap's table: an IFACE record comes before its frames */
    uint32_t caplen, len; /* kept, and of the frame */
    uint64_t time_ns;     /* the stack's clock */
    uint64_t order;
    uint8_t data[]; /* IFACE: the name, with its terminator */
};

struct tap;

/* True when a filter may be run: it ends, and looks at nothing but the frame. */
bool tap_filter_is_sound(const struct tap_filter *f);

/* Tap a stack, by its owner. NULL with *error: -ENOSPC (TAP_MAX), -ENOMEM. */
struct tap *tap_attach(struct weir_stack *s, const struct tap_config *cfg, int *error) NODISCARD;
/* The stack it taps; NULL: detached. Whoever may detach asks. */
struct weir_stack *tap_stack(const struct tap *t);
/* Take it off its stack, by the owner; what is in the ring can still be read. */
void tap_detach(struct tap *t);
/* All of a stack, by the owner: it is about to be destroyed. */
void tap_detach_all(struct weir_stack *s);
/* Free a detached tap. NULL is allowed. */
void tap_free(struct tap *t);

/* By the reader: the oldest record, NULL when there is none. Valid until tap_pop. */
struct tap_record *tap_peek(struct tap *t);
void tap_pop(struct tap *t);
/* Frames that passed the filter, and those of them that found no room. */
void tap_counts(const struct tap *t, unsigned iface, uint64_t *seen, uint64_t *lost);

/* Complete the transport checksum of a whole frame (caplen == len) where flags ask for it. */
void tap_finish_checksum(struct tap_record *r);

#endif
