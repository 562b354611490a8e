/* SPDX-License-Identifier: BSD-2-Clause
 * The last steps of RFC 9293 3.10.7.4: urgent data, text, FIN. */
#include "tcp_in.h"
#include "tcp_timer.h"

/* The urgent byte is not part of the stream: it is cut out (no byte moves: the storage may be
 * shared), and the segment keeps its length in sequence space. False: no memory for the cut. */
static bool urgent_byte_cut(struct tcp_segment *seg, uint32_t off, uint8_t *byte)
{
    struct mbuf *rest;

    mbuf_copy_out(seg->m, off, 1, byte);
    if (seg->len == 1) {
        mbuf_free_chain(&seg->m);
    } else if (off == 0) {
        mbuf_trim_head(&seg->m, 1);
    } else if (off + 1 == seg->len) {
        mbuf_trim_tail(seg->m, 1);
    } else {
        rest = mbuf_split(seg->m, off);
        if (!rest)
            return false;
        mbuf_trim_head(&rest, 1);
        mbuf_cat(seg->m, rest);
    }
    return true;
}

/* Take the urgent byte out of a segment that is next in order. The segment is cut where the
 * reassembly queue begins. Out of order, it is cut in front of the urgent byte, which will come
 * again. False: not in the segment, or not to be had. */
static bool urgent_byte(struct tcpcb *tp, struct tcp_segment *seg, uint8_t *byte)
{
    uint32_t off = (uint32_t)seg->th.urp - 1, next;

    if (off >= seg->len || so_has_option(tp->t_so, SO_OOBINLINE))
        return false;
    if (seg->seq != tp->rcv_nxt) {
        tcp_segment_trim_tail(seg, seg->len - off);
        return false;
    }
    if (tcp_reass_first(tp, &next) && SEQ_GT(seg->seq + seg->len, next))
        tcp_segment_trim_tail(seg, seg->seq + seg->len - next);
    return off < seg->len && urgent_byte_cut(seg, off, byte);
}

/* Sixth: URG. The pointer points behind the urgent byte, as everybody implements it (RFC 6093 3.1).
 * Nothing marks data after the peer's FIN, or further away than any buffer is long. */
void tcp_step_urg(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct socket *so = tp->t_so;
    uint32_t up, used;
    bool have;
    uint8_t byte = 0;

    if (SEQ_GT(tp->rcv_nxt, tp->rcv_up))
        tp->rcv_up = tp->rcv_nxt; /* so that it never falls half the sequence space behind */
    if (likely(!(seg->flags & TH_URG)) || seg->th.urp == 0 || TCPS_HAVERCVDFIN(tp->t_state) ||
        !TCPS_HAVEESTABLISHED(tp->t_state))
        return;
    used = sockbuf_used(&so->so_rcv);
    if ((uint64_t)seg->th.urp + used > (uint64_t)KNOB(tp->t_stack, kern_maxsockbuf))
        return;
    up = seg->seq + seg->th.urp;
    if (SEQ_LT(up, tp->rcv_up))
        return; /* an older mark counts no more: its byte is text, as on Linux */
    have = urgent_byte(tp, seg, &byte);
    /* A new mark, or the byte of a mark that an earlier segment announced. */
    if (SEQ_GT(up, tp->rcv_up) || have) {
        tp->rcv_up = up;
        so_oob_arrived(so, byte, have, (up - tp->rcv_nxt) - 1);
    }
}

/* RFC 9293 3.8.6.3, as BSD does it: the second segment in a row is acknowledged at once. */
static void acknowledge_text(struct tcpcb *tp, const struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (tp->t_flags & TF_ACKNOW)
        return;
    if (seg->segs > 1 || (tp->t_flags & TF_RXWIN0SENT) || (tp->t_flags2 & TF2_QUICKACK) ||
        seg->len > tp->t_maxseg || !KNOB(s, tcp_delayed_ack) || tcp_timer_active(tp, TT_DELACK))
        tp->t_flags |= TF_ACKNOW;
    else
        tcp_timer_event_delack(tp);
}

void tcp_text_in_order(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct socket *so = tp->t_so;
    uint32_t len = seg->len;

    acknowledge_text(tp, seg);
    tp->rcv_nxt += len;
    tp->t_rcvbytes += len;
    tp->t_flags2 |= TF2_PROGRESS;
    COUNT_ADD(tp->t_stack, tcp_rx_bytes, len);
    seg->len = 0;
    if (unlikely(so_state(so) & SS_CANTRCVMORE) || unlikely(!seg->m)) {
        mbuf_free_chain(&seg->m);
        return;
    }
    sockbuf_append_stream(&so->so_rcv, &seg->m);
    so_readable(so);
    tcp_rcvbuf_grow(tp, len);
}

/* --- before the handshake is over: with a SYN that crosses ours, or after it --- */

void tcp_early_text_flush(struct tcpcb *tp)
{
    mbuf_free_chain(&tp->t_early);
    tp->t_early_len = 0;
    tp->t_early_fin = false;
}

/* Keep what is next in order, consuming seg->m. What costs more memory than so_rcv may comes again.
 */
static void early_text_keep(struct tcpcb *tp, struct tcp_segment *seg)
{
    bool fin = (seg->flags & TH_FIN) != 0;
    uint64_t mem = (uint64_t)mbuf_chain_mem(tp->t_early) + mbuf_chain_mem(seg->m);

    if (tp->t_early_fin || seg->seq != tp->rcv_nxt + tp->t_early_len ||
        seg->len > tp->rcv_wnd - MIN(tp->rcv_wnd, tp->t_early_len) ||
        mem > LOAD_RELAXED(&tp->t_so->so_rcv.sb_memmax))
        return;
    tp->t_early_len += seg->len;
    tp->t_early_fin = fin;
    if (!seg->m)
        return;
    if (tp->t_early) {
        seg->m->m_flags &= (uint16_t)~M_PKTHDR;
        mbuf_cat(tp->t_early, seg->m);
    } else {
        tp->t_early = seg->m;
    }
    seg->m = NULL;
}

/* The handshake is over: it becomes the application's; what seg repeats of it is cut off. */
static void early_text_deliver(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct tcp_segment early = {.m = tp->t_early, .len = tp->t_early_len, .segs = 1};
    int32_t dup;

    tp->t_early = NULL;
    tp->t_early_len = 0;
    if (early.len)
        tcp_text_in_order(tp, &early);
    /* FreeBSD leaves the acknowledgment to whatever is sent next, and forgets the FIN: both come
     * again. */
    if (KNOB(tp->t_stack, tcp_freebsd_wire)) {
        tcp_timer_cancel(tp, TT_DELACK);
        tp->t_early_fin = false;
    }
    dup = (int32_t)(tp->rcv_nxt - seg->seq);
    if (dup <= 0)
        return;
    if ((uint32_t)dup > seg->len)
        seg->flags &= (uint8_t)~TH_FIN;
    tcp_segment_trim_head(seg, MIN((uint32_t)dup, seg->len));
}

/* Eighth: FIN. */
static enum tcp_verdict fin_arrives(struct tcpcb *tp)
{
    if (TCPS_HAVERCVDFIN(tp->t_state))
        return TCP_DONE;
    tp->rcv_nxt++;
    /* Unless text before it is owed one at once. */
    if (!(tp->t_flags & TF_ACKNOW))
        tp->t_flags2 |= TF2_ACK_MAY_WAIT;
    tp->t_flags |= TF_ACKNOW;
    tcp_reass_flush(tp);
    switch (tp->t_state) {
    case TCPS_ESTABLISHED:
        tcp_state_set(tp, TCPS_CLOSE_WAIT);
        break;
    case TCPS_FIN_WAIT_1:
        tcp_state_set(tp, TCPS_CLOSING);
        break;
    case TCPS_FIN_WAIT_2:
        so_cantrcvmore(tp->t_so);
        tcp_enter_timewait(tp);
        return TCP_GONE;
    default:
        break;
    }
    so_cantrcvmore(tp->t_so);
    return TCP_DONE;
}

/* Seventh: text, then FIN when all before it is here. */
enum tcp_verdict tcp_step_text(struct tcpcb *tp, struct tcp_segment *seg)
{
    bool fin;

    if (unlikely(tp->t_early_len || tp->t_early_fin) && TCPS_HAVEESTABLISHED(tp->t_state)) {
        early_text_deliver(tp, seg);
        if (tp->t_early_fin) {
            tp->t_early_fin = false;
            return fin_arrives(tp);
        }
    }
    fin = (seg->flags & TH_FIN) != 0;
    if ((!seg->len && !fin) || TCPS_HAVERCVDFIN(tp->t_state))
        return TCP_DONE;
    if (unlikely(!TCPS_HAVEESTABLISHED(tp->t_state))) {
        tp->t_flags |= TF_ACKNOW;
        early_text_keep(tp, seg);
        return TCP_DONE;
    }
    if (seg->seq == tp->rcv_nxt && !tp->t_reass_bytes && !tp->t_reass_fin) {
        if (seg->len)
            tcp_text_in_order(tp, seg);
    } else {
        /* At once, so that the peer's fast retransmit can work. */
        tp->t_flags |= TF_ACKNOW;
        fin = tcp_reass(tp, seg) == TH_FIN;
    }
    return fin ? fin_arrives(tp) : TCP_DONE;
}
