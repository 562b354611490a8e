/* SPDX-License-Identifier: BSD-2-Clause
 * TCP_INFO: Linux's struct tcp_info, as long as it has grown. */
#include "tcp_cc.h"
#include "tcp_sent.h"

/* Of Linux 6.7's uapi/linux/tcp.h; the names there bear the prefix tcpi_. */
struct linux_tcp_info {
    uint8_t state, ca_state, retransmits, probes, backoff, options;
    uint8_t wscale;    /* low half: sending, high half: receiving */
    uint8_t app_flags; /* delivery_rate_app_limited:1, fastopen_client_fail:2 */
    uint32_t rto, ato, snd_mss, rcv_mss;
    uint32_t unacked, sacked, lost, retrans, fackets;
    uint32_t last_data_sent, last_ack_sent, last_data_recv, last_ack_recv;
    uint32_t pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering;
    uint32_t rcv_rtt, rcv_space;
    uint32_t total_retrans;
    uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
    uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
    uint64_t delivery_rate, busy_time, rwnd_limited, sndbuf_limited;
    uint32_t delivered, delivered_ce;
    uint64_t bytes_sent, bytes_retrans;
    uint32_t dsack_dups, reord_seen, rcv_ooopack, snd_wnd, rcv_wnd, rehash;
    uint16_t total_rto, total_rto_recoveries;
    uint32_t total_rto_time;
};
_Static_assert(sizeof(struct linux_tcp_info) == 248, "Linux's layout");

enum { CA_OPEN, CA_DISORDER, CA_CWR, CA_RECOVERY, CA_LOSS };
enum { OPT_TIMESTAMPS = 1, OPT_SACK = 2, OPT_WSCALE = 4, OPT_ECN = 8 };

static const uint8_t linux_state[TCPS_COUNT] = {
    [TCPS_CLOSED] = 7,      [TCPS_LISTEN] = 10,    [TCPS_SYN_SENT] = 2,   [TCPS_SYN_RECEIVED] = 3,
    [TCPS_ESTABLISHED] = 1, [TCPS_CLOSE_WAIT] = 8, [TCPS_FIN_WAIT_1] = 4, [TCPS_CLOSING] = 11,
    [TCPS_LAST_ACK] = 9,    [TCPS_FIN_WAIT_2] = 5, [TCPS_TIME_WAIT] = 6,
};

static uint8_t ca_state(const struct tcpcb *tp)
{
    if (tp->t_flags & TF_FASTRECOVERY)
        return CA_RECOVERY;
    if (tp->t_lost_bytes)
        return CA_LOSS;
    if (tp->t_flags & TF_CONGRECOVERY)
        return CA_CWR;
    return tp->t_sacked_bytes || tp->t_dupacks ? CA_DISORDER : CA_OPEN;
}

static uint32_t ms_since(const struct tcpcb *tp, uint64_t then_ns)
{
    uint64_t now = tp->t_stack->now;
    return then_ns && now > then_ns ? (uint32_t)MIN((now - then_ns) / NS_PER_MS, UINT32_MAX) : 0;
}

static uint32_t us(uint64_t ns)
{
    return (uint32_t)MIN(ns / NS_PER_US, UINT32_MAX);
}

static uint32_t segments(uint32_t bytes, uint32_t mss)
{
    return (bytes + mss - 1) / mss;
}

static void fill_sending(struct tcpcb *tp, struct linux_tcp_info *i, uint32_t mss)
{
    uint32_t out = tp->snd_nxt - tp->snd_una, used = sockbuf_used(&tp->t_so->so_snd);
    i->rto = us(tp->t_rxtcur);
    i->snd_mss = mss;
    i->unacked = segments(out, mss);
    i->sacked = segments(tp->t_sacked_bytes, mss);
    i->lost = segments(tp->t_lost_bytes, mss);
    i->retrans = segments(tp->t_rexmit_bytes, mss);
    i->last_data_sent = ms_since(tp, tp->t_lastsend);
    i->rtt = us(tp->t_srtt);
    i->rttvar = us(tp->t_rttvar);
    i->min_rtt = tp->t_rttmin_seen ? us(tp->t_rttmin_seen) : UINT32_MAX;
    i->snd_ssthresh = tp->snd_ssthresh >= TCP_SSTHRESH_INITIAL ? INT32_MAX : tp->snd_ssthresh / mss;
    i->snd_cwnd = MAX(tp->snd_cwnd / mss, 1);
    i->reordering = tcp_dup_threshold(tp);
    i->total_retrans = tp->t_sndrexmitpack;
    i->pacing_rate = i->max_pacing_rate = UINT64_MAX; /* no pacing */
    i->bytes_acked = tp->t_bytes_acked_total;
    i->segs_out = tp->t_segs_out;
    i->data_segs_out = tp->t_data_segs_out;
    i->notsent_bytes = used > out ? used - out : 0;
    i->delivered = (uint32_t)((tp->t_bytes_acked_total + tp->t_sacked_bytes) / mss);
    if (tp->t_srtt)
        i->delivery_rate = (uint64_t)MIN(tp->snd_cwnd, tp->snd_wnd) * NS_PER_S / tp->t_srtt;
    i->bytes_sent = tp->t_sndbytes + tp->t_bytes_retrans;
    i->bytes_retrans = tp->t_bytes_retrans;
    i->dsack_dups = tp->t_dsack_dups;
    i->snd_wnd = tp->snd_wnd;
}

static void fill_receiving(struct tcpcb *tp, struct linux_tcp_info *i, uint32_t mss)
{
    i->ato = (uint32_t)KNOB(tp->t_stack, tcp_delacktime) * 1000;
    i->rcv_mss = mss;
    i->last_data_recv = i->last_ack_recv = ms_since(tp, tp->t_rcvtime);
    i->rcv_ssthresh = i->rcv_space = LOAD_RELAXED(&tp->t_so->so_rcv.sb_hiwat);
    i->rcv_rtt = us(tp->t_srtt);
    i->bytes_received = tp->t_rcvbytes;
    i->segs_in = tp->t_segs_in;
    i->data_segs_in = tp->t_data_segs_in;
    i->rcv_ooopack = tp->t_rcvoopack;
    i->rcv_wnd = SEQ_GT(tp->rcv_adv, tp->rcv_nxt) ? tp->rcv_adv - tp->rcv_nxt : 0;
}

size_t tcp_fill_info(struct tcpcb *tp, void *out, size_t room)
{
    struct linux_tcp_info i = {0};
    uint32_t mss = tcp_segment_size(tp);
    i.state = linux_state[tp->t_state];
    i.ca_state = ca_state(tp);
    i.retransmits = i.backoff = (uint8_t)tp->t_rxtshift;
    i.probes = (uint8_t)MIN(tp->t_keepprobes, UINT8_MAX);
    if (tp->t_flags & TF_RCVD_TSTMP)
        i.options |= OPT_TIMESTAMPS;
    if (tp->t_flags & TF_SACK_PERMIT)
        i.options |= OPT_SACK;
    if (tp->t_flags & TF_RCVD_SCALE) {
        i.options |= OPT_WSCALE;
        i.wscale = (uint8_t)(tp->snd_scale | tp->rcv_scale << 4);
    }
    if (tp->t_flags2 & TF2_ECN_PERMIT)
        i.options |= OPT_ECN;
    if (tp->t_state == TCPS_LISTEN) { /* Linux: the accept queue's length and limit */
        i.unacked = LOAD_RELAXED(&tp->t_so->so_qlen);
        i.sacked = LOAD_RELAXED(&tp->t_so->so_qlimit);
    } else {
        fill_sending(tp, &i, mss);
        fill_receiving(tp, &i, mss);
    }
    i.advmss = tp->t_maxseg;
    i.pmtu = tp->t_maxseg + (tp->t_flow.faddr.family == AF_INET6 ? 60 : 40);
    size_t n = MIN(room, sizeof(i));
    memcpy(out, &i, n);
    return n;
}
