/* SPDX-License-Identifier: BSD-2-Clause
 * The cost of an out-of-order segment over the whole input path, as the reassembly queue grows. */
#ifndef WEIR_CLI_REPRO_REASS_COST_H
#define WEIR_CLI_REPRO_REASS_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reass_order { REASS_ASCENDING, REASS_DESCENDING, REASS_RANDOM };

/* Every second segment of a window arrives, in some order, until `blocks` lie in the queue. */
struct reass_cost_case {
    bool list; /* net.inet.tcp.reass.algorithm: list, else chain */
    enum reass_order order;
    uint32_t blocks;  /* in the queue at the end, 1 to 200000 */
    uint32_t payload; /* bytes of a segment, 1 to 1448; 0: 100 */
    uint64_t seed;    /* of the random order */
    double limit_s;   /* give up after so long; 0: 20. What was measured till then counts */
};

struct reass_cost_result {
    uint32_t reached;  /* blocks in the queue when measuring ended; < blocks: out of time */
    uint32_t measured; /* segments in the sample: those that made the last tenth of the blocks,
                        * at least 100; with few blocks the filling is repeated */
    double ns_mean;    /* a segment: frame in, IP, TCP, reassembly, SACK, acknowledgment out */
    double ns_median, ns_p99; /* of groups of 10 segments, divided by 10 */
    double fill_ns;           /* a segment of those that close the holes afterwards, left to right:
                               * median of groups too */
    uint64_t acks;            /* that came out while the blocks arrived */
    uint64_t sack_blocks;     /* in them */
    uint64_t delivered;       /* bytes read by the application at the end */
    uint64_t left_segments, left_bytes; /* in the queue at the end: 0 */
    int64_t left_mbufs;                 /* of the stack when it was empty again: 0 */
    bool bytes_right;                   /* what was read is what was sent */
    char error[128];                    /* when reass_cost() is false */
};

/* Run one case in a stack of its own, in this thread. False: it could not be run, error says why.
 * Takes no privilege; memory: about 700 bytes a block. */
bool reass_cost(const struct reass_cost_case *c, struct reass_cost_result *r);

#endif
