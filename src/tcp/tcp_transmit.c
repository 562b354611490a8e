/* SPDX-License-Identifier: BSD-2-Clause
 * Building one segment or superframe, and what its departure means for the connection. */
#include "tcp_output.h"
#include "tcp_cc.h"
#include "tcp_sent.h"
#include "tcp_timer.h"
#include "wire/checksum.h"

#define TCP_MAX_WINDOW 65535u
#define ECN_ECT0 0x02
#define PROGRESS_FRESH_NS NS_PER_S /* what came longer ago says little of the neighbour now */

static uint32_t ip_header_len(const struct tcpcb *tp)
{
    return tp->t_flow.faddr.family == AF_INET6 ? 40 : 20;
}

/* --- receive window --- */
uint32_t tcp_receive_space(const struct tcpcb *tp)
{
    uint32_t win = sockbuf_space(&tp->t_so->so_rcv);
    if (unlikely(tp->t_window_clamp))
        win = MIN(win, tp->t_window_clamp);
    return MIN(win, TCP_MAX_WINDOW << tp->rcv_scale);
}

uint32_t tcp_window_to_offer(const struct tcpcb *tp)
{
    uint32_t win = tcp_receive_space(tp), unit = 1u << tp->rcv_scale;
    /* Less than a segment is no window, unless the buffer is that small (RFC 9293 3.8.6.2.2). */
    if (win < LOAD_RELAXED(&tp->t_so->so_rcv.sb_hiwat) / 4 && win < tp->t_maxseg)
        win = 0;
    /* What the buffer had room for when it was offered stands. */
    if (SEQ_GT(tp->rcv_edge, tp->rcv_nxt))
        win = MAX(win, tp->rcv_edge - tp->rcv_nxt);
    /* Round up, lest scaling takes back a part of it. The edge that is rounded is never a rounded
     * one, or it would creep on and on with small segments. */
    win = (win + unit - 1) & ~(unit - 1);
    return MIN(win, TCP_MAX_WINDOW << tp->rcv_scale);
}

void tcp_window_offered(struct tcpcb *tp, uint32_t window)
{
    uint32_t unit = 1u << tp->rcv_scale, space = MIN(tcp_receive_space(tp), window);
    if (SEQ_GT(tp->rcv_nxt + window, tp->rcv_adv))
        tp->rcv_adv = tp->rcv_nxt + window;
    /* A window of nothing but an old edge's rest leaves that edge where it is. */
    if (space + unit > window && SEQ_GT(tp->rcv_nxt + space, tp->rcv_edge))
        tp->rcv_edge = tp->rcv_nxt + space;
    if (unlikely(KNOB(tp->t_stack, tcp_freebsd_wire)))
        tp->rcv_edge = tp->rcv_adv; /* there it creeps */
}

/* --- options --- */
static void put_timestamp(const struct tcpcb *tp, struct tcp_options *o)
{
    o->flags |= TOF_TS;
    o->tsval = tcp_ts_now(tp->t_stack) + tp->ts_offset;
    o->tsecr = tp->ts_recent;
}

uint32_t tcp_tx_segment(const struct tcpcb *tp)
{
    uint32_t opt = (tp->t_flags & (TF_RCVD_TSTMP | TF_NOOPT)) == TF_RCVD_TSTMP ? 12 : 0;
    uint32_t blocks = tp->t_nrcv_sack + (tp->t_dsack_pending ? 1u : 0u);
    if (unlikely(blocks))
        opt += 4 + 8 * MIN(blocks, opt ? TCP_MAX_SACK_BLOCKS - 1u : TCP_MAX_SACK_BLOCKS);
    return tp->t_maxseg > opt ? tp->t_maxseg - opt : 1;
}

static void build_options(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    struct tcp_options o;
    o.flags = 0;
    tx->optlen = 0;
    if ((tp->t_flags & (TF_RCVD_TSTMP | TF_NOOPT)) == TF_RCVD_TSTMP)
        put_timestamp(tp, &o);
    if (unlikely(tp->t_nrcv_sack || tp->t_dsack_pending) && TCPS_HAVEESTABLISHED(tp->t_state)) {
        o.nsack = (uint8_t)tcp_sack_report(tp, o.sack,
                                           o.flags ? TCP_MAX_SACK_BLOCKS - 1 : TCP_MAX_SACK_BLOCKS);
        if (o.nsack)
            o.flags |= TOF_SACK;
    }
    if (o.flags)
        tx->optlen = tcp_options_build(tx->opt, &o, false, TCP_ORDER_FREEBSD);
}

/* --- route and MTU --- */

/* The path's MTU may have been lowered by what another connection learned, or have grown back (RFC
 * 8201 4). */
static void follow_mtu(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    uint32_t headers = ip_header_len(tp) + TCP_HEADER_LEN;
    if (!tp->t_peermss || tx->rt.mtu <= headers)
        return;
    uint32_t mss = MIN(tx->rt.mtu - headers, tp->t_peermss);
    if (tp->t_user_mss)
        mss = MIN(mss, tp->t_user_mss);
    if (mss < tp->t_maxseg) {
        COUNT(tx->s, tcp_mtu_drops);
        tp->t_maxseg = mss;
        tcp_recovery_mtu_changed(tp);
    } else if (mss > tp->t_maxseg && !(tp->t_flags2 & TF2_PLPMTU_BLACKHOLE) &&
               mss <= LOAD_RELAXED(&tx->so->so_snd.sb_hiwat)) {
        tp->t_maxseg = mss;
        /* A window of less than a segment would let nothing out until the persist timer fires. */
        tp->snd_cwnd = MAX(tp->snd_cwnd, tcp_segment_size(tp));
    }
}

int tcp_tx_route(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    int error = ip_route(tx->s, &tp->t_flow.faddr, NULL, &tx->rt);
    if (unlikely(error))
        return error;
    tx->routed = true;
    uint32_t cap = tp->t_flow.faddr.family == AF_INET6 ? NETIF_CAP_TSO6 : NETIF_CAP_TSO4;
    tx->tso = (tx->rt.netif->caps & cap) && KNOB(tx->s, tcp_tso);
    if (tx->tso)
        tp->t_flags |= TF_TSO;
    else
        tp->t_flags &= ~TF_TSO;
    if (TCPS_HAVEESTABLISHED(tp->t_state))
        follow_mtu(tx);
    return 0;
}

/* --- building --- */
static int build(struct tcp_tx *tx, const struct tcp_piece *p, const struct tcp_header *th,
                 struct mbuf **out)
{
    struct tcpcb *tp = tx->tp;
    struct mbuf *m = mbuf_get_packet(tx->s->account);
    *out = NULL;
    if (unlikely(!m))
        return -ENOBUFS;
    uint32_t hlen = TCP_HEADER_LEN + tx->optlen;
    tcp_header_build(m->m_data, th);
    memcpy(m->m_data + TCP_HEADER_LEN, tx->opt, tx->optlen);
    m->m_len = hlen;
    m->m_pkt.len = hlen + p->len;
    if (p->len && p->len <= MBUF_INLINE - MBUF_HEADROOM - hlen) {
        /* It fits behind the header: a copy costs less than a reference, and moves fewer lines
         * between cores. */
        if (unlikely(!sockbuf_copy_out(&tx->so->so_snd, p->seq - tp->snd_una, p->len,
                                       m->m_data + hlen))) {
            mbuf_free_chain(&m);
            return -EIO;
        }
        m->m_len += p->len;
    } else if (p->len) {
        m->m_next = sockbuf_ref(&tx->so->so_snd, tx->s->account, p->seq - tp->snd_una, p->len);
        if (unlikely(!m->m_next)) {
            mbuf_free_chain(&m);
            return -ENOBUFS;
        }
        if (unlikely(mbuf_chain_broken(m->m_next))) {
            mbuf_free_chain(&m);
            return -EIO;
        }
    }
    m->m_pkt.csum_flags = CSUM_L4_PARTIAL;
    m->m_pkt.csum_start = 0;
    m->m_pkt.csum_offset = 16;
    if (p->len > tx->seg) {
        m->m_pkt.csum_flags |= tp->t_flow.faddr.family == AF_INET6 ? CSUM_TSO6 : CSUM_TSO4;
        m->m_pkt.tso_segsz = (uint16_t)tx->seg;
        m->m_pkt.segs = (uint16_t)((p->len + tx->seg - 1) / tx->seg);
    }
    uint16_t sum = checksum_fold(
        checksum_pseudo(&tp->t_flow.laddr, &tp->t_flow.faddr, IPPROTO_TCP, m->m_pkt.len));
    memcpy(m->m_data + 16, &sum, 2);
    *out = m;
    return 0;
}

static bool may_set_df(struct tcpcb *tp, const struct socket *so)
{
    if (tp->t_flow.faddr.family == AF_INET6)
        return true;
    if (!KNOB(tp->t_stack, tcp_path_mtu_discovery) || tp->t_maxseg <= KNOB(tp->t_stack, tcp_minmss))
        return false;
    if ((tp->t_flags2 & (TF2_PLPMTU_BLACKHOLE | TF2_PLPMTU_PMTUD)) == TF2_PLPMTU_BLACKHOLE)
        return false;
    return LOAD_RELAXED(&so->so_pmtudisc) != IP_PMTUDISC_DONT;
}

static int emit(struct tcp_tx *tx, struct mbuf *m, uint8_t ecn)
{
    struct tcpcb *tp = tx->tp;
    struct ip_output_args a;
    a.src = tp->t_flow.laddr;
    a.dst = tp->t_flow.faddr;
    a.proto = IPPROTO_TCP;
    bool v4 = a.dst.family == AF_INET;
    int ttl = v4 ? LOAD_RELAXED(&tx->so->so_ttl) : LOAD_RELAXED(&tx->so->so_hoplimit);
    a.ttl = ttl > 0 ? (uint8_t)ttl : 0;
    uint8_t tos = v4 ? LOAD_RELAXED(&tx->so->so_tos) : LOAD_RELAXED(&tx->so->so_tclass);
    a.tos = (uint8_t)((tos & ~3) | ecn);
    a.df = may_set_df(tp, tx->so);
    if (a.df && !(tp->t_flags2 & TF2_PLPMTU_BLACKHOLE))
        tp->t_flags2 |= TF2_PLPMTU_PMTUD;
    a.route = tx->routed ? &tx->rt : NULL;
    if (tp->t_flags2 & TF2_PROGRESS) {
        tp->t_flags2 &= ~TF2_PROGRESS;
        if (tx->s->now - tp->t_rcvtime < PROGRESS_FRESH_NS)
            m->m_flags |= M_CONFIRM;
    }
    WEIR_PROBE4(tcp_segment_out, tx->s->name, (int)tx->so->so_index, m->m_pkt.len,
                (uint32_t)m->m_pkt.segs);
    if (unlikely(tx->s->hooks.tcp_segment != NULL))
        tx->s->hooks.tcp_segment(tx->s->hooks.tcp_segment_ctx, tx->s, HOOK_OUT, tp, m);
    return ip_output(tx->s, &m, &a);
}

/* --- accounting --- */
static void count_piece(struct tcp_tx *tx, const struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    struct weir_stack *s = tx->s;
    uint32_t segs = p->len > tx->seg ? (p->len + tx->seg - 1) / tx->seg : 1;
    COUNT(s, tcp_tx);
    COUNT_ADD(s, tcp_tx_segs, segs);
    tp->t_segs_out += segs;
    if (p->len)
        tp->t_data_segs_out += segs;
    switch (p->kind) {
    case TCP_TX_PROBE:
        COUNT(s, tcp_tx_probes);
        break;
    case TCP_TX_REXMIT:
        COUNT_ADD(s, tcp_tx_rexmt, segs);
        COUNT_ADD(s, tcp_tx_rexmt_bytes, p->len);
        if (tp->t_flags & TF_FASTRECOVERY)
            COUNT_ADD(s, tcp_sack_rexmits, segs);
        WEIR_PROBE4(tcp_retransmit, s->name, (int)tp->t_so->so_index, (uint32_t)p->len,
                    (uint32_t)segs);
        tp->t_sndrexmitpack += segs;
        tp->t_bytes_retrans += p->len;
        break;
    case TCP_TX_NEW:
        COUNT_ADD(s, tcp_tx_bytes, p->len);
        tp->t_sndbytes += p->len;
        if (p->flags & TH_FIN)
            COUNT(s, tcp_tx_control);
        else if (!p->len && p->winupdate)
            COUNT(s, tcp_tx_winupdates);
        else if (!p->len)
            COUNT(s, tcp_tx_acks);
        break;
    }
}

/* The peer has been told rcv_nxt and a window. */
static void ack_left(struct tcpcb *tp, uint32_t window)
{
    tcp_window_offered(tp, window);
    tp->last_ack_sent = tp->rcv_nxt;
    tp->t_flags &= ~(TF_ACKNOW | TF_DELACK | TF_RXWIN0SENT);
    tp->t_flags2 &= ~TF2_ACK_MAY_WAIT;
    if (!window)
        tp->t_flags |= TF_RXWIN0SENT;
    tcp_timer_event_ack_sent(tp);
}

/* Sent list and sequence numbers before the packet leaves; undone by piece_failed. */
static int piece_record(struct tcp_tx *tx, const struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    uint32_t span = p->len + !!(p->flags & TH_FIN);
    if (!span || p->kind == TCP_TX_PROBE)
        return 0;
    if (p->kind == TCP_TX_NEW)
        return tcp_sent_add(tp, p->seq, p->seq + span, tx->seg);
    tcp_sent_rexmitted(tp, p->seq, span, tx->seg);
    return 0;
}

static void piece_failed(struct tcp_tx *tx, const struct tcp_piece *p)
{
    if (p->kind == TCP_TX_NEW)
        tcp_sent_undo(tx->tp, p->seq);
    else if (p->kind == TCP_TX_REXMIT)
        tcp_sent_rexmit_failed(tx->tp, p->seq);
}

static void piece_left(struct tcp_tx *tx, const struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    uint32_t span = p->len + !!(p->flags & TH_FIN), end = p->seq + span;
    if (!span)
        return;
    tx->sent += p->len;
    if (p->flags & TH_FIN) {
        tp->t_flags |= TF_SENTFIN;
        tp->t_finseq = end - 1;
    }
    if (p->kind == TCP_TX_NEW)
        tp->snd_nxt = end;
    if (SEQ_GT(end, tp->snd_max))
        tp->snd_max = end;
    if (tp->t_flags & TF_FASTRECOVERY)
        tp->prr_out += p->len;
    if (p->kind == TCP_TX_REXMIT)
        tp->t_flags2 &= ~TF2_REXMT_ONCE;
    if (p->len >= tx->seg)
        tp->t_flags2 |= TF2_PLPMTU_MAXSEGSNT;
    else
        tp->t_flags2 &= ~TF2_PLPMTU_MAXSEGSNT;
    if (p->kind != TCP_TX_PROBE)
        tcp_timer_event_sent(tp);
}

static uint8_t ecn_bits(struct tcpcb *tp, const struct tcp_piece *p, uint8_t *flags)
{
    if (likely(!(tp->t_flags2 & TF2_ECN_PERMIT)))
        return 0;
    if (tp->t_flags2 & TF2_ECN_SND_ECE)
        *flags |= TH_ECE;
    /* Only data sent the first time (RFC 3168 6.1.4 to 6.1.6). */
    if (!p->len || p->kind != TCP_TX_NEW)
        return 0;
    if (tp->t_flags2 & TF2_ECN_SND_CWR) {
        *flags |= TH_CWR;
        tp->t_flags2 &= ~TF2_ECN_SND_CWR;
    }
    return ECN_ECT0;
}

/* BSD's acknowledgments carry our FIN again while the peer has not acknowledged it: if it got lost,
 * they repair that. */
static bool ack_repeats_fin(const struct tcpcb *tp, const struct tcp_piece *p)
{
    bool waits = tp->t_state == TCPS_FIN_WAIT_1 || tp->t_state == TCPS_CLOSING ||
                 tp->t_state == TCPS_LAST_ACK;
    return unlikely(waits) && !p->len && !(p->flags & TH_FIN) && p->kind == TCP_TX_NEW &&
           (tp->t_flags & TF_SENTFIN) && tp->snd_nxt == tp->t_finseq + 1;
}

int tcp_tx_send(struct tcp_tx *tx, const struct tcp_piece *p)
{
    struct tcpcb *tp = tx->tp;
    uint32_t window = tcp_window_to_offer(tp);
    build_options(tx);
    struct tcp_header th = {.sport = tp->t_flow.lport,
                            .dport = tp->t_flow.fport,
                            .seq = p->seq,
                            .ack = tp->rcv_nxt,
                            .off = (uint8_t)(TCP_HEADER_LEN + tx->optlen),
                            .flags = p->flags,
                            .win = (uint16_t)(window >> tp->rcv_scale)};
    if (ack_repeats_fin(tp, p)) {
        th.seq = tp->t_finseq;
        th.flags |= TH_FIN;
    }
    if (unlikely(SEQ_GT(tp->snd_up, p->seq)) && p->len) {
        th.flags |= TH_URG;
        th.urp = (uint16_t)MIN(tp->snd_up - p->seq, UINT16_MAX);
    }
    uint32_t flags2 = tp->t_flags2;
    uint8_t ecn = ecn_bits(tp, p, &th.flags);
    struct mbuf *m;
    int error = build(tx, p, &th, &m);
    if (unlikely(error))
        goto fail;
    error = piece_record(tx, p);
    if (unlikely(error)) {
        mbuf_free_chain(&m);
        goto fail;
    }
    error = emit(tx, m, ecn);
    if (unlikely(error)) {
        piece_failed(tx, p);
        goto fail;
    }
    count_piece(tx, p);
    piece_left(tx, p);
    ack_left(tp, window);
    return 0;
fail:
    tp->t_flags2 |= flags2 & TF2_ECN_SND_CWR;
    return error;
}

/* --- SYN --- */
static void syn_options(struct tcp_tx *tx, bool ack)
{
    struct tcpcb *tp = tx->tp;
    struct tcp_options o = {0};
    tx->optlen = 0;
    if (tp->t_flags & TF_NOOPT)
        return;
    o.flags = TOF_MSS;
    o.mss = (uint16_t)tcp_mss_to_offer(tx->s, &tp->t_flow, tp->t_user_mss);
    if (tp->t_flags & TF_REQ_SCALE) {
        o.flags |= TOF_SCALE;
        o.wscale = tp->request_r_scale;
    }
    if (tp->t_flags & TF_SACK_PERMIT)
        o.flags |= TOF_SACKPERM;
    if (tp->t_flags & (TF_REQ_TSTMP | TF_RCVD_TSTMP))
        put_timestamp(tp, &o);
    if (!ack)
        o.tsecr = 0;
    enum tcp_option_order order =
        KNOB(tx->s, tcp_syn_option_order) ? TCP_ORDER_LINUX : TCP_ORDER_FREEBSD;
    tx->optlen = tcp_options_build(tx->opt, &o, true, order);
}

static uint8_t syn_ecn(const struct tcpcb *tp, bool ack)
{
    if (ack)
        return tp->t_flags2 & TF2_ECN_PERMIT ? TH_ECE : 0;
    if (KNOB(tp->t_stack, tcp_ecn_enable) != 1)
        return 0;
    return tp->t_rxtshift <= KNOB(tp->t_stack, tcp_ecn_maxretries) ? TH_ECE | TH_CWR : 0;
}

int tcp_tx_syn(struct tcp_tx *tx)
{
    struct tcpcb *tp = tx->tp;
    bool ack = tp->t_state == TCPS_SYN_RECEIVED, first = tp->snd_nxt == tp->iss;
    uint32_t window = MIN(sockbuf_space(&tx->so->so_rcv), TCP_MAX_WINDOW); /* never scaled here */
    syn_options(tx, ack);
    struct tcp_piece p = {.seq = tp->iss,
                          .flags = (uint8_t)(TH_SYN | (ack ? TH_ACK : 0) | syn_ecn(tp, ack))};
    if (!ack && (tp->t_flags & TF_NEEDFIN) && KNOB(tx->s, tcp_freebsd_wire))
        p.flags |= TH_FIN; /* unrecorded: it leaves again when the handshake is over */
    struct tcp_header th = {.sport = tp->t_flow.lport,
                            .dport = tp->t_flow.fport,
                            .seq = p.seq,
                            .ack = ack ? tp->rcv_nxt : 0,
                            .off = (uint8_t)(TCP_HEADER_LEN + tx->optlen),
                            .flags = p.flags,
                            .win = (uint16_t)window};
    struct mbuf *m;
    int error = build(tx, &p, &th, &m);
    if (!error)
        error = emit(tx, m, 0);
    if (!error) {
        COUNT(tx->s, tcp_tx);
        COUNT(tx->s, tcp_tx_segs);
        COUNT(tx->s, tcp_tx_control);
        tp->t_segs_out++;
    }
    /* A SYN that did not leave is a lost one: the timer repeats it. */
    if (first)
        tp->snd_nxt = tp->snd_max = tp->iss + 1;
    tcp_timer_event_sent(tp);
    if (ack && !error)
        ack_left(tp, window);
    else if (!ack)
        tp->rcv_adv = tp->rcv_nxt + window; /* a promise, whatever becomes of the buffer */
    tp->t_flags &= ~(TF_ACKNOW | TF_DELACK);
    return error;
}
