/* SPDX-License-Identifier: BSD-2-Clause
 * One log of SIFTR, from its header to its footer: what the packet path (siftr.c) and the writer
 * thread (siftr_log.c) share. Private to this facility. */
#ifndef WEIR_MEASURE_SIFTR_LOG_H
#define WEIR_MEASURE_SIFTR_LOG_H

#include "alq.h"
#include "siftr_line.h"
#include "siftr_record.h"

#define SIFTR_RING 8192       /* raw records, batch=0 */
#define SIFTR_STRIDE 128      /* bytes between them */
#define SIFTR_QUEUE (1 << 20) /* bytes of formatted ones, batch=1 and 3 */
#define SIFTR_BATCH_MAX 3
#define SIFTR_FLOWS_MAX (1u << 18) /* flows that a footer lists */

_Static_assert(sizeof(struct siftr_record) <= SIFTR_STRIDE, "a record fits its slot");

/* A flow that the footer lists. */
struct siftr_flow {
    uint8_t laddr[16], faddr[16];
    uint16_t lport, fport;
    uint8_t family;
    uint8_t zero[3];
};

/* (c) constant; (o) the owner of the stack; (e) the owner until the log is closed, then the writer
 * thread; (w) the writer thread, with batch=1 and 3 not before it is closed. */
struct siftr_log {
    struct weir_stack *s;  /* (c); not looked at after the log is closed */
    struct alq *q;         /* (c) */
    struct alq_ring *ring; /* (c) NULL: batch=1 or 3 */
    uint64_t wall_offset;  /* (c) of the stack's clock to the time of day, ns */
    uint32_t id;           /* (c) of the logs of this stack */
    uint32_t batch;        /* (c) */
    bool binary;           /* (c) */
    bool may_block;        /* (o) the stack is being destroyed: nobody else waits for its owner */
    uint64_t holds;        /* (o) how often the stack was held */

    struct siftr_footer footer; /* (e) */
    struct siftr_flow *flows;   /* (e) */
    uint32_t flow_count, flow_room;
    uint64_t flows_unlisted;

    struct siftr_record pending[SIFTR_BATCH_MAX]; /* (o) batch=3 */
    uint32_t pending_count;
    struct siftr_encoder *encoder;  /* binary: (w), or with batch=1 and 3 (e) */
    struct siftr_line_cache *lines; /* text: the same */

    uint16_t in_chunk[2]; /* (w) records in the encoder, by direction */

    uint32_t flows_done; /* (w) of the footer */
    bool footer_begun;
};

/* A log of s, its header in its file; begun with batch and binary as they are set. 0, or a negative
 * errno: -EINVAL when the file holds the other form. */
int siftr_log_open(struct siftr_log **log, struct weir_stack *s, const char *path, uint32_t id,
                   const void *tag) NODISCARD;
/* No more records. The writer thread ends and frees the log. By the owner. */
void siftr_log_close(struct siftr_log *log);
/* Format what is pending (batch=1 and 3) into one reservation. */
void siftr_log_batch(struct siftr_log *log);

#endif
