/* SPDX-License-Identifier: BSD-2-Clause
 * Segments from IP: checks, whom they are for, and the order of the steps.
 *
 * How it works. segment_parse checks the header and takes it off. A segment for a connection first
 * tries the fast path (header prediction: in order, nothing special), which serves almost all; else
 * it goes through the steps of RFC 9293 3.10.7.4, one function each, in their order; each returns a
 * verdict, and segment_arrives says what becomes of the segment. RST and SYN come before the check
 * of the sequence numbers, since RFC 5961 has its own for them, and PAWS before both ends of the
 * text are trimmed. What the connection owes in return is noted (TF_ACKNOW, tcp_output_later) and
 * leaves after the batch. A connection may end in any step: from TCP_GONE on tp is not touched. */
#include "tcp_in.h"
#include "base/cputime.h"
#include "wire/checksum.h"
#include "wire/wire.h"

static bool checksum_is_right(const struct mbuf *m, const struct ip_info *info)
{
    uint32_t len = m->m_pkt.len;

    if (m->m_pkt.csum_flags & (CSUM_L4_VALID | CSUM_L4_PARTIAL))
        return true;
    return checksum_fold(checksum_mbuf(
               m, 0, len, checksum_pseudo(&info->src, &info->dst, IPPROTO_TCP, len))) == 0xffff;
}

static void options_parse(struct weir_stack *s, const uint8_t *p, unsigned len,
                          struct tcp_segment *seg)
{
    static const uint8_t timestamp_only[4] = {1, 1, 8, 10};

    seg->to.flags = 0;
    seg->to.nsack = 0;
    if (len == 0)
        return;
    if (len == 12 && memcmp(p, timestamp_only, 4) == 0) {
        seg->to.flags = TOF_TS;
        seg->to.tsval = get_be32(p + 4);
        seg->to.tsecr = get_be32(p + 8);
        return;
    }
    tcp_options_parse(p, len, (seg->flags & TH_SYN) != 0, &seg->to);
    if (seg->to.flags & TOF_BAD)
        COUNT(s, tcp_rx_badoptions);
}

/* Make the header contiguous and check it. *mp is NULL when memory ran out. False: dropped,
 * counted. */
static bool header_parse(struct weir_stack *s, struct mbuf **mp, struct tcp_segment *seg)
{
    struct mbuf *m = *mp;
    uint32_t total = m->m_pkt.len, off;

    if (total < TCP_HEADER_LEN) {
        COUNT(s, tcp_rx_short);
        return false;
    }
    if (m->m_len < TCP_HEADER_LEN)
        m = *mp = mbuf_pullup(m, TCP_HEADER_LEN);
    if (!m) {
        COUNT(s, tcp_rx_nobufs);
        return false;
    }
    off = (uint32_t)(m->m_data[12] >> 4) * 4;
    if (off < TCP_HEADER_LEN || off > total) {
        COUNT(s, tcp_rx_badoff);
        return false;
    }
    if (m->m_len < off)
        m = *mp = mbuf_pullup(m, off);
    if (!m) {
        COUNT(s, tcp_rx_nobufs);
        return false;
    }
    if (tcp_header_parse(m->m_data, off, &seg->th)) {
        COUNT(s, tcp_rx_badoff);
        return false;
    }
    return true;
}

/* Fill in seg, but for what depends on a connection; *mp still has the header. False: dropped,
 * counted. */
static bool segment_parse(struct weir_stack *s, struct mbuf **mp, const struct ip_info *info,
                          struct tcp_segment *seg)
{
    COUNT_ADD(s, tcp_rx, MAX((*mp)->m_pkt.segs, 1));
    if (!header_parse(s, mp, seg))
        return false;
    if (!checksum_is_right(*mp, info)) {
        COUNT(s, tcp_rx_badsum);
        return false;
    }
    seg->ip = *info;
    if (info->multicast || ((*mp)->m_flags & (M_BCAST | M_MCAST))) {
        COUNT(s, tcp_rx_multicast);
        return false;
    }
    if (seg->th.sport == 0 || seg->th.dport == 0) {
        COUNT(s, tcp_rx_badport);
        return false;
    }
    if (unlikely(seg->th.sport == seg->th.dport) && ipaddr_equal(&info->src, &info->dst) &&
        !(info->netif && (info->netif->caps & NETIF_CAP_LOOPBACK))) {
        COUNT(s, tcp_rx_land);
        return false;
    }
    seg->flags = seg->th.flags;
    seg->seq = seg->th.seq;
    seg->ack = seg->th.ack;
    seg->wnd = seg->th.win;
    seg->len = (*mp)->m_pkt.len - seg->th.off;
    seg->segs = MAX((*mp)->m_pkt.segs, 1);
    options_parse(s, (*mp)->m_data + TCP_HEADER_LEN, seg->th.off - TCP_HEADER_LEN, seg);
    return true;
}

/* The payload becomes seg's; the header goes. An mbuf that held nothing but the header is freed. */
static void header_strip(struct mbuf **mp, struct tcp_segment *seg)
{
    struct mbuf *m = *mp;
    uint32_t off = seg->th.off;

    *mp = NULL;
    seg->m = NULL;
    if (seg->len == 0) {
        mbuf_free_chain(&m);
        return;
    }
    if (m->m_len == off) {
        m = mbuf_free(m);
    } else {
        m->m_data += off;
        m->m_len -= off;
        m->m_pkt.len -= off;
    }
    seg->m = m;
}

/* --- the connection's side --- */

/* RFC 3168 6.1.3, the receiver's half: echo congestion until the peer says that it has reacted. */
static void ecn_receive(struct tcpcb *tp, const struct tcp_segment *seg)
{
    if (seg->flags & TH_CWR) {
        tp->t_flags2 &= ~TF2_ECN_SND_ECE;
        tp->t_flags |= TF_ACKNOW;
    }
    if ((seg->ip.tos & 3) == 3) {
        COUNT(tp->t_stack, tcp_ecn_ce);
        tp->t_flags2 |= TF2_ECN_SND_ECE;
    }
}

/* Window that text may use now: never less than what was offered. */
static void receive_window_update(struct tcpcb *tp)
{
    uint32_t space = sockbuf_space(&tp->t_so->so_rcv);
    int32_t offered = (int32_t)(tp->rcv_adv - tp->rcv_nxt);

    tp->rcv_wnd = MAX(space, (uint32_t)MAX(offered, 0));
}

/* Header prediction: the next expected segment of an established connection. True: processed. */
static bool fast_path(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;
    bool ack_says_nothing;

    if (tp->t_state != TCPS_ESTABLISHED || seg->seq != tp->rcv_nxt ||
        (seg->flags & (TH_SYN | TH_FIN | TH_RST | TH_URG | TH_ACK)) != TH_ACK ||
        (tp->t_flags & (TF_NEEDSYN | TF_NEEDFIN)) || tp->t_reass_bytes || tp->t_reass_fin)
        return false;
    if (SEQ_LT(seg->ack, tp->snd_una) || SEQ_GT(seg->ack, tp->snd_max))
        return false;
    if ((seg->to.flags & TOF_TS) && TSTMP_LT(seg->to.tsval, tp->ts_recent))
        return false;
    if (seg->len) {
        receive_window_update(tp);
        if (seg->len > tp->rcv_wnd || (tp->t_flags2 & TF2_ORPHAN))
            return false;
    }
    if ((seg->to.flags & TOF_TS) && SEQ_LEQ(seg->seq, tp->last_ack_sent)) {
        tp->ts_recent = seg->to.tsval;
        tp->ts_recent_ns = s->now;
    }
    ack_says_nothing = seg->len && seg->ack == tp->snd_una && seg->wnd == tp->snd_wnd &&
                       !(seg->to.flags & TOF_SACK) && !(seg->flags & TH_ECE);
    if (ack_says_nothing) {
        tp->snd_wl1 = seg->seq;
        tp->snd_wl2 = seg->ack;
    } else {
        bool fin_is_acked = tcp_ack(tp, seg);
        CHECK(!fin_is_acked); /* none is out in ESTABLISHED */
    }
    if (seg->len) {
        COUNT(s, tcp_preddat);
        tcp_text_in_order(tp, seg);
    } else {
        COUNT(s, tcp_predack);
    }
    if (SEQ_GT(tp->rcv_nxt, tp->rcv_up))
        tp->rcv_up = tp->rcv_nxt;
    return true;
}

/* The same for text out of order, or in order while text beyond it waits: where its ACK says
 * nothing, only reassembly is left of the steps. True: processed. */
static bool fast_reass(struct tcpcb *tp, struct tcp_segment *seg)
{
    if (tp->t_state != TCPS_ESTABLISHED || !seg->len ||
        (seg->flags & (TH_SYN | TH_FIN | TH_RST | TH_URG | TH_ACK | TH_ECE)) != TH_ACK ||
        (seg->to.flags & TOF_SACK) || seg->ack != tp->snd_una || seg->wnd != tp->snd_wnd ||
        SEQ_LT(seg->seq, tp->rcv_nxt))
        return false;
    if ((tp->t_flags & (TF_NEEDSYN | TF_NEEDFIN)) || (tp->t_flags2 & TF2_ORPHAN) ||
        tp->t_reass_fin || tp->t_early_len || tp->t_early_fin)
        return false;
    if ((seg->to.flags & TOF_TS) && TSTMP_LT(seg->to.tsval, tp->ts_recent))
        return false;
    receive_window_update(tp);
    if (SEQ_GT(seg->seq + seg->len, tp->rcv_nxt + tp->rcv_wnd))
        return false;
    tcp_step_ts_recent(tp, seg);
    if (SEQ_LT(tp->snd_wl1, seg->seq)) {
        tp->snd_wl1 = seg->seq;
        tp->snd_wl2 = seg->ack;
    }
    if (!(tp->t_flags & TF_FASTRECOVERY))
        tp->t_dupacks = 0;
    tp->t_flags |= TF_ACKNOW;
    int fin = tcp_reass(tp, seg);
    CHECK(!fin);
    if (SEQ_GT(tp->rcv_nxt, tp->rcv_up))
        tp->rcv_up = tp->rcv_nxt;
    return true;
}

static enum tcp_verdict run_steps(struct tcpcb *tp, struct tcp_segment *seg)
{
    enum tcp_verdict v;

    if (tp->t_state == TCPS_SYN_SENT)
        return tcp_syn_sent_input(tp, seg);
    /* An ACK that cannot be for our SYN: the peer's half of the connection is another one (RFC
     * 9293 3.10.7.4, fifth). */
    if (tp->t_state == TCPS_SYN_RECEIVED && (seg->flags & (TH_RST | TH_ACK)) == TH_ACK &&
        (SEQ_LEQ(seg->ack, tp->iss) || SEQ_GT(seg->ack, tp->snd_max)))
        return TCP_DROP_RST;
    if ((v = tcp_step_rst(tp, seg)) != TCP_GO_ON)
        return v;
    if ((v = tcp_step_syn(tp, seg)) != TCP_GO_ON)
        return v;
    if ((v = tcp_step_paws(tp, seg)) != TCP_GO_ON)
        return v;
    if ((v = tcp_step_trim(tp, seg)) != TCP_GO_ON)
        return v;
    tcp_step_ts_recent(tp, seg);
    if ((v = tcp_step_ack(tp, seg)) != TCP_GO_ON)
        return v;
    tcp_step_urg(tp, seg);
    return tcp_step_text(tp, seg);
}

static void verdict_act(struct weir_stack *s, struct tcpcb *tp, struct tcp_segment *seg,
                        enum tcp_verdict v)
{
    switch (v) {
    case TCP_DROP_ACK:
        /* In SYN_RECEIVED only what passes the test of the ACK is acknowledged, else two ends that
         * were sent forged SYNs would answer each other for ever. */
        if (tp->t_state == TCPS_SYN_RECEIVED && (seg->flags & TH_ACK) &&
            (SEQ_LT(seg->ack, tp->snd_una) || SEQ_GT(seg->ack, tp->snd_max)))
            tcp_respond_rst(s, tp, seg, true);
        else
            tcp_ack_now(tp);
        break;
    case TCP_DROP_RST:
        tcp_respond_rst(s, tp, seg, true);
        break;
    case TCP_GONE_RST:
        tcp_respond_rst(s, NULL, seg, false);
        break;
    case TCP_GO_ON:
    case TCP_DONE:
        if (tp->t_flags & TF_ACKNOW)
            tcp_output_later(tp);
        break;
    case TCP_GONE:
        break;
    }
}

/* RFC 7323 3.2: a segment without the timestamp that was agreed on is dropped silently, unless it
 * is a RST. */
static bool timestamp_is_missing(struct tcpcb *tp, const struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    if (!(tp->t_flags & TF_RCVD_TSTMP) || (seg->to.flags & TOF_TS) || (seg->flags & TH_RST) ||
        KNOB(s, tcp_tolerate_missing_ts))
        return false;
    COUNT(s, tcp_rx_notimestamp);
    return true;
}

static void segment_arrives(struct tcpcb *tp, struct tcp_segment *seg)
{
    struct weir_stack *s = tp->t_stack;

    tp->t_segs_in += seg->segs;
    if (seg->len)
        tp->t_data_segs_in += seg->segs;
    if (unlikely(tp->t_state == TCPS_TIME_WAIT)) {
        tcp_timewait_input(tp, seg);
        return;
    }
    if (unlikely((seg->flags & (TH_SYN | TH_FIN)) == (TH_SYN | TH_FIN)) &&
        KNOB(s, tcp_drop_synfin)) {
        COUNT(s, tcp_rx_synfin);
        return;
    }
    tp->t_rcvtime = s->now;
    tcp_timer_event_heard(tp);
    if (!(seg->flags & TH_SYN))
        seg->wnd <<= tp->snd_scale;
    if (timestamp_is_missing(tp, seg))
        return;
    if (tp->t_flags2 & TF2_ECN_PERMIT)
        ecn_receive(tp, seg);
    if (likely(fast_path(tp, seg)) || fast_reass(tp, seg)) {
        if (tp->t_flags & TF_ACKNOW)
            tcp_output_later(tp);
        return;
    }
    receive_window_update(tp);
    verdict_act(s, tp, seg, run_steps(tp, seg));
}

/* --- without a connection --- */

/* net.inet.tcp.blackhole: 1 silences closed ports to SYN, 2 to everything, 3 open ports too. Never
 * towards ourselves. */
static bool is_blackholed(struct weir_stack *s, const struct tcp_segment *seg, bool closed_port)
{
    int64_t level = KNOB(s, tcp_blackhole);
    bool silent = closed_port ? level > 1 || (level == 1 && (seg->flags & TH_SYN)) : level == 3;

    return silent && !ip_is_local(s, &seg->ip.src);
}

static void answer_rst(struct weir_stack *s, const struct tcp_segment *seg, bool closed_port)
{
    if (!is_blackholed(s, seg, closed_port))
        tcp_respond_rst(s, NULL, seg, true);
}

/* RFC 9293 3.10.7.2 */
static void listen_input(struct weir_stack *s, struct tcpcb *listener, struct tcp_segment *seg)
{
    uint8_t kind = seg->flags & (TH_RST | TH_ACK | TH_SYN);

    if (kind & TH_RST) {
        tcp_syncache_rst(s, listener, seg);
    } else if (kind == TH_ACK) {
        bool rst = false;
        struct tcpcb *tp = tcp_syncache_expand(listener, seg, &rst);
        if (tp)
            segment_arrives(tp, seg);
        else if (rst)
            answer_rst(s, seg, false);
    } else if (kind == (TH_SYN | TH_ACK)) {
        COUNT(s, tcp_rx_badsyn);
        if (KNOB(s, tcp_freebsd_wire))
            tcp_syncache_forget(s, seg);
        answer_rst(s, seg, false);
    } else if (kind == 0) {
        COUNT(s, tcp_rx_badsyn);
    } else if ((seg->flags & TH_FIN) && KNOB(s, tcp_drop_synfin)) {
        COUNT(s, tcp_rx_synfin);
    } else if (seg->th.sport == seg->th.dport && ipaddr_equal(&seg->ip.src, &seg->ip.dst)) {
        COUNT(s, tcp_rx_land);
    } else {
        tcp_syncache_add(listener, seg);
    }
}

void tcp_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info)
{
    struct tcp_segment seg;
    struct flow f;
    struct tcpcb *tp, *listener;

    if (!segment_parse(s, m, info, &seg)) {
        mbuf_free_chain(m);
        return;
    }
    tcp_segment_flow(&seg, &f);
    tp = tcp_lookup(s, &f);
    WEIR_PROBE6(tcp_segment_in, s->name, tp ? (int)tp->t_so->so_index : -1, seg.seq, seg.ack,
                seg.len, (uint32_t)seg.flags);
    if (unlikely(s->hooks.tcp_segment != NULL))
        s->hooks.tcp_segment(s->hooks.tcp_segment_ctx, s, HOOK_IN, tp, *m);
    header_strip(m, &seg);
    if (tp && tcp_timewait_yields(tp, &seg)) {
        COUNT(s, tcp_timewait_reused);
        tcp_close(tp);
        tp = NULL;
    }
    if (likely(tp != NULL)) {
        if (cputime_on())
            tcp_cputime_begin(tp, false);
        segment_arrives(tp, &seg);
    } else if (s->tcp->timewaits.records && tcp_timewait_segment(s, &f, &seg)) {
        /* A record has answered it. */
    } else if ((listener = tcp_lookup_listener_flow(s, &f)) != NULL) {
        listen_input(s, listener, &seg);
    } else {
        COUNT(s, tcp_rx_noport);
        answer_rst(s, &seg, true);
    }
    mbuf_free_chain(&seg.m);
}
