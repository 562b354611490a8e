/* SPDX-License-Identifier: BSD-2-Clause
 * Segments without payload, built and sent at once: answers to segments, resets, probes, SYN-ACKs.
 */
#include "tcp_in.h"
#include "tcp_output.h"
#include "wire/checksum.h"

void tcp_segment_flow(const struct tcp_segment *seg, struct flow *f)
{
    memset(f, 0, sizeof(*f));
    f->laddr = seg->ip.dst;
    f->faddr = seg->ip.src;
    f->lport = seg->th.dport;
    f->fport = seg->th.sport;
}

/* Header and options into m; the checksum field holds the pseudo header's sum. */
static void control_build(struct weir_stack *s, struct mbuf *m, const struct tcp_control *c)
{
    uint8_t options[TCP_MAX_OPTIONS], *p = m->m_data;
    unsigned optlen = 0;
    struct tcp_header th = {.sport = c->flow->lport,
                            .dport = c->flow->fport,
                            .seq = c->seq,
                            .ack = c->ack,
                            .flags = c->flags,
                            .win = c->win,
                            .urp = c->urp};

    if (c->to)
        optlen = tcp_options_build(options, c->to, (c->flags & TH_SYN) != 0,
                                   (enum tcp_option_order)KNOB(s, tcp_syn_option_order));
    m->m_len = m->m_pkt.len = TCP_HEADER_LEN + optlen;
    th.off = (uint8_t)m->m_len;
    tcp_header_build(p, &th);
    memcpy(p + TCP_HEADER_LEN, options, optlen);
    m->m_pkt.csum_flags = CSUM_L4_PARTIAL;
    m->m_pkt.csum_start = 0;
    m->m_pkt.csum_offset = 16;
    uint16_t sum =
        checksum_fold(checksum_pseudo(&c->flow->laddr, &c->flow->faddr, IPPROTO_TCP, m->m_len));
    memcpy(p + 16, &sum, 2);
}

static void control_count(struct weir_stack *s, uint8_t flags)
{
    COUNT(s, tcp_tx);
    COUNT(s, tcp_tx_segs);
    if (flags & TH_RST)
        COUNT(s, tcp_tx_rst);
    if (flags & (TH_SYN | TH_FIN | TH_RST))
        COUNT(s, tcp_tx_control);
    else
        COUNT(s, tcp_tx_acks);
}

int tcp_control_send(struct weir_stack *s, const struct tcp_control *c)
{
    const struct socket *so = c->tp ? c->tp->t_so : c->so;
    struct ip_output_args a = {.src = c->flow->laddr, .dst = c->flow->faddr, .proto = IPPROTO_TCP};
    struct mbuf *m = mbuf_get_packet(s->account);

    if (!m) {
        COUNT(s, ip_tx_nobufs);
        return -ENOBUFS;
    }
    control_build(s, m, c);
    a.df = KNOB(s, tcp_path_mtu_discovery);
    if (so) {
        bool v4 = a.dst.family == AF_INET;
        int ttl = v4 ? LOAD_RELAXED(&so->so_ttl) : LOAD_RELAXED(&so->so_hoplimit);
        a.ttl = ttl > 0 ? (uint8_t)ttl : 0;
        a.tos = v4 ? LOAD_RELAXED(&so->so_tos) : LOAD_RELAXED(&so->so_tclass);
    }
    if (!so && c->tw) {
        a.ttl = c->tw->ttl;
        a.tos = c->tw->tos;
    }
    if (unlikely(s->hooks.tcp_segment != NULL))
        s->hooks.tcp_segment(s->hooks.tcp_segment_ctx, s, HOOK_OUT, c->tp, m);
    control_count(s, c->flags);
    return ip_output(s, &m, &a);
}

/* No more than there is room for: a window in the field's units, rounded down. Nor less than was
 * offered, though the buffer has become smaller since. */
uint16_t tcp_control_window(const struct tcpcb *tp)
{
    uint32_t win = tcp_receive_space(tp);

    if (SEQ_GT(tp->rcv_edge, tp->rcv_nxt))
        win = MAX(win, tp->rcv_edge - tp->rcv_nxt);
    return (uint16_t)MIN(win >> tp->rcv_scale, TCP_MAXWIN);
}

void tcp_send_bare(struct tcpcb *tp, uint32_t seq, uint32_t ack, uint8_t flags)
{
    struct weir_stack *s = tp->t_stack;
    struct tcp_options to = {0};
    struct tcp_control c = {.flow = &tp->t_flow, .tp = tp, .seq = seq, .ack = ack, .flags = flags};

    if (!(flags & TH_RST))
        c.win = tcp_control_window(tp);
    if ((tp->t_flags & (TF_RCVD_TSTMP | TF_NOOPT)) == TF_RCVD_TSTMP) {
        to.flags = TOF_TS;
        to.tsval = tcp_ts_now(s) + tp->ts_offset;
        to.tsecr = tp->ts_recent;
        c.to = &to;
    }
    tp->t_segs_out++;
    if (tcp_control_send(s, &c) || (flags & (TH_ACK | TH_RST)) != TH_ACK || ack != tp->rcv_nxt)
        return;
    tcp_window_offered(tp, (uint32_t)c.win << tp->rcv_scale);
    tp->last_ack_sent = ack;
}

bool tcp_challenge_ok(struct weir_stack *s, uint64_t *epoch_end, uint32_t *count)
{
    int64_t window_ms = KNOB(s, tcp_ack_war_timewindow), limit = KNOB(s, tcp_ack_war_cnt);

    if (window_ms == 0 || limit == 0)
        return true;
    if (s->now >= *epoch_end) {
        *epoch_end = s->now + (uint64_t)window_ms * NS_PER_MS;
        *count = 0;
    }
    if (*count < limit) {
        ++*count;
        return true;
    }
    COUNT(s, tcp_challenge_limited);
    return false;
}

void tcp_send_challenge_ack(struct tcpcb *tp, const struct tcp_segment *seg)
{
    if (tcp_challenge_ok(tp->t_stack, &tp->t_challenge_start, &tp->t_challenge_count))
        tcp_send_bare(tp, tp->snd_nxt, tp->rcv_nxt, TH_ACK);
}

/* RFC 9293 3.10.7.1: a reset takes its sequence number from the segment's ACK, else it acknowledges
 * the segment. */
void tcp_respond_rst(struct weir_stack *s, struct tcpcb *tp, const struct tcp_segment *seg,
                     bool limited)
{
    struct flow f;
    struct tcp_options to = {0};
    struct tcp_control c = {.flow = &f, .tp = tp, .flags = TH_RST};

    if ((seg->flags & TH_RST) || (seg->th.flags & TH_RST) || seg->ip.multicast ||
        ipaddr_is_multicast(&seg->ip.src) || ipaddr_is_any(&seg->ip.src))
        return;
    if (limited && !icmp_rate_ok(s))
        return;
    tcp_segment_flow(seg, &f);
    if (seg->flags & TH_ACK) {
        c.seq = seg->ack;
    } else {
        c.flags |= TH_ACK;
        c.ack = seg->seq + seg->len + ((seg->flags & TH_SYN) != 0) + ((seg->flags & TH_FIN) != 0);
    }
    if (tp && (tp->t_flags & (TF_RCVD_TSTMP | TF_NOOPT)) == TF_RCVD_TSTMP) {
        to.flags = TOF_TS;
        to.tsval = tcp_ts_now(s) + tp->ts_offset;
        to.tsecr = tp->ts_recent;
        c.to = &to;
    }
    if (tcp_control_send(s, &c))
        return;
}
