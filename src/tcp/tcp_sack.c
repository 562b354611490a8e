/* SPDX-License-Identifier: BSD-2-Clause
 * The receiver's SACK and D-SACK blocks (RFC 2018, RFC 2883). */
#include "tcp_in.h"

/* The most recently touched blocks of the reassembly queue, as they are now: whatever makes a block
 * grow, or joins some, notes the whole block, which takes the place of those that it covers; and
 * blocks only go as rcv_nxt passes them. So no look at the queue is needed. */

static void forget(struct tcpcb *tp, unsigned i)
{
    memmove(&tp->t_rcv_sack[i], &tp->t_rcv_sack[i + 1],
            (tp->t_nrcv_sack - i - 1u) * sizeof(tp->t_rcv_sack[0]));
    tp->t_nrcv_sack--;
}

void tcp_sack_note(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    unsigned kept = 0;

    if (!(tp->t_flags & TF_SACK_PERMIT))
        return;
    CHECK(SEQ_LT(start, end) && SEQ_GT(start, tp->rcv_nxt));
    struct sack_block old[NELEM(tp->t_rcv_sack)];
    memcpy(old, tp->t_rcv_sack, sizeof(old));
    tp->t_rcv_sack[kept++] = (struct sack_block){start, end};
    for (unsigned i = 0; i < tp->t_nrcv_sack && kept < NELEM(tp->t_rcv_sack); i++) {
        bool covered = SEQ_GEQ(old[i].start, start) && SEQ_LEQ(old[i].end, end);
        if (!covered && SEQ_GT(old[i].start, tp->rcv_nxt))
            tp->t_rcv_sack[kept++] = old[i];
    }
    tp->t_nrcv_sack = (uint8_t)kept;
}

void tcp_sack_cut(struct tcpcb *tp, uint32_t seq)
{
    for (unsigned i = 0; i < tp->t_nrcv_sack;) {
        struct sack_block *b = &tp->t_rcv_sack[i];
        if (SEQ_GEQ(b->start, seq)) {
            forget(tp, i);
            continue;
        }
        b->end = SEQ_MIN(b->end, seq);
        i++;
    }
}

void tcp_dsack_note(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    if (!(tp->t_flags & TF_SACK_PERMIT) || !SEQ_LT(start, end))
        return;
    tp->t_dsack = (struct sack_block){start, end};
    tp->t_dsack_pending = true;
}

unsigned tcp_sack_report(struct tcpcb *tp, struct sack_block *out, unsigned max)
{
    unsigned n = 0;

    if (!(tp->t_flags & TF_SACK_PERMIT) || max == 0)
        return 0;
    if (tp->t_dsack_pending) {
        out[n++] = tp->t_dsack;
        tp->t_dsack_pending = false;
        COUNT(tp->t_stack, tcp_dsack_snd);
    }
    for (unsigned i = 0; i < tp->t_nrcv_sack && n < max;) {
        if (SEQ_LEQ(tp->t_rcv_sack[i].start, tp->rcv_nxt)) { /* in order meanwhile */
            forget(tp, i);
            continue;
        }
        out[n++] = tp->t_rcv_sack[i++];
    }
    COUNT_ADD(tp->t_stack, tcp_sack_snd_blocks, n);
    return n;
}
