/* SPDX-License-Identifier: BSD-2-Clause
 * The emulator: delay, rate, queue, loss and the other ills of a path, around any link.
 *
 * A frame passes these in order: cut to wire segments, loss, duplication, corruption, random ECN
 * marking, reordering, the bottleneck (queue limit, ECN threshold, rate), delay. Each direction has
 * a pipe of its own with its own random sequence, so that what one direction carries does not
 * change the luck of the other. Time enters only as now_ns.
 *
 * Reordering holds a frame back until `places` later frames have passed it, or until none came for
 * a short while. */
#ifndef WEIR_LINK_LINK_EMUL_H
#define WEIR_LINK_LINK_EMUL_H

#include "link.h"

#define LINK_EMUL_SHARE_ALL (UINT64_C(1) << 32) /* 100 % */
#define LINK_EMUL_QUEUE_DEFAULT 1000            /* packets before the bottleneck unless told */
#define LINK_EMUL_LINE_MAX                                                                         \
    262144                      /* frames in flight in a direction; beyond: dropped and counted    \
                                 */
#define LINK_EMUL_HOLD_MAX 1024 /* frames held back for reordering at a time: the most places */

enum link_emul_direction { LINK_EMUL_TX = 1, LINK_EMUL_RX = 2, LINK_EMUL_BOTH = 3 };

/* All zero: nothing is emulated. Shares are parts of LINK_EMUL_SHARE_ALL. */
struct link_emul_config {
    uint64_t delay_ns;
    uint64_t rate_bps;      /* 0: no bottleneck */
    uint32_t queue_packets; /* waiting for the bottleneck; with queue_bytes 0 too:
                               LINK_EMUL_QUEUE_DEFAULT */
    uint32_t queue_bytes;   /* 0: not limited by bytes */
    uint64_t loss, dup, corrupt, ecn, reorder;
    uint32_t reorder_places; /* 1..LINK_EMUL_HOLD_MAX when reorder > 0 */
    bool reorder_timed;      /* reorder_ns counts; else 50 us, and for each place 1 us or the time
                                of a frame at the rate */
    uint64_t reorder_ns;     /* a frame is held at most so long for others to pass it; 0: by those
                                that arrive with it only */
    uint32_t
        ecn_packets; /* mark ECN-capable packets that find at least so many in the queue; 0: off */
    uint64_t coalesce_ns; /* receive side: frames are handed up together, at most so much later */
    uint64_t seed;        /* the same seed and traffic give the same ills */
};

/* True when cfg emulates anything. */
bool link_emul_wanted(const struct link_emul_config *cfg);

/* Wrap *end for stack s (memory, buffers, counters).
 * dirs     which directions suffer; coalescing is on reception always. Sending must not be emulated
 *          on a link with a kick (a memory link): what leaves later has nobody to kick the peer;
 *          emulate its reception instead
 * end      becomes the wrapper, which closes the wrapped link with itself
 * returns  0; -ENOMEM (*end unchanged) */
int link_emul_wrap(struct weir_stack *s, struct link_end *end, const struct link_emul_config *cfg,
                   enum link_emul_direction dirs) NODISCARD;

#endif
