/* SPDX-License-Identifier: BSD-2-Clause
 * The receiver's SACK and D-SACK blocks (RFC 2018, RFC 2883). */
#include "tcp_in.h"

/* The most recently touched blocks are remembered by a range within each; what they cover now is
 * read from the reassembly queue when they are reported, so that a report is never out of date. */

static void forget(struct tcpcb *tp, unsigned i)
{
    memmove(&tp->t_rcv_sack[i], &tp->t_rcv_sack[i + 1],
            (tp->t_nrcv_sack - i - 1u) * sizeof(tp->t_rcv_sack[0]));
    tp->t_nrcv_sack--;
}

/* What block i covers now; false: it is in order meanwhile, or gone. */
static bool current(const struct tcpcb *tp, const struct sack_block *b, struct sack_block *now)
{
    const struct range *r = ranges_find(&tp->t_reass, b->start);

    if (!r || SEQ_GT(r->start, b->start))
        return false;
    *now = (struct sack_block){r->start, r->end};
    return true;
}

void tcp_sack_note(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    struct sack_block note = {start, end}, whole, other;

    if (!(tp->t_flags & TF_SACK_PERMIT) || !current(tp, &note, &whole))
        return;
    for (unsigned i = 0; i < tp->t_nrcv_sack;) {
        if (!current(tp, &tp->t_rcv_sack[i], &other) || other.start == whole.start)
            forget(tp, i);
        else
            i++;
    }
    if (tp->t_nrcv_sack == NELEM(tp->t_rcv_sack))
        tp->t_nrcv_sack--;
    memmove(&tp->t_rcv_sack[1], &tp->t_rcv_sack[0], tp->t_nrcv_sack * sizeof(tp->t_rcv_sack[0]));
    tp->t_rcv_sack[0] = whole;
    tp->t_nrcv_sack++;
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
        if (!current(tp, &tp->t_rcv_sack[i], &out[n])) {
            forget(tp, i);
            continue;
        }
        i++;
        n++;
    }
    COUNT_ADD(tp->t_stack, tcp_sack_snd_blocks, n);
    return n;
}
