/* SPDX-License-Identifier: BSD-2-Clause
 * What an acknowledgment does to sent data: SACK, RTT, loss recovery, congestion window, send
 * buffer, send window.
 *
 * How it works. Loss is a property of sent ranges (tcp_sent.c); output sends lost ranges first,
 * then new data, as long as cwnd exceeds the pipe. So there is one path for all retransmissions,
 * and this file only decides what is lost and how large cwnd is:
 * - with SACK: RFC 6675 marks, RFC 6937 (PRR) sets cwnd while in recovery;
 * - without: three duplicate ACKs, then one segment a partial ACK, cwnd inflated (RFC 6582);
 * - timeout: everything unSACKed, cwnd one segment, slow start (RFC 5681 3.1); undone when an ACK
 *   shows that the original had arrived (by timestamps, or because it comes too soon).
 * A path that displaces segments looks like one that loses them. What was seen to be displaced
 * raises the number of duplicate ACKs that mean a loss (t_reorder; RFC 4653 bounds it by what is in
 * flight). A fast recovery that turns out to have been needless is undone (t_undo): nothing was
 * retransmitted before the hole was filled; or the ACK echoes a timestamp older than the
 * retransmission (Eifel, RFC 3522); or all that was retransmitted comes back as D-SACK (RFC 3708).
 * t_flags: TF_FASTRECOVERY until snd_recover is acknowledged; TF_CONGRECOVERY likewise for a
 * response to ECN. */
#include "tcp_cc.h"
#include "tcp_sent.h"
#include "tcp_timer.h"

/* --- RTT (RFC 6298) --- */
void tcp_rtt_sample(struct tcpcb *tp, uint64_t rtt_ns)
{
    COUNT(tp->t_stack, tcp_rtt_samples);
    rtt_ns = MAX(rtt_ns, 1);
    tp->t_rtt_samples++;
    if (!tp->t_rttmin_seen || rtt_ns < tp->t_rttmin_seen)
        tp->t_rttmin_seen = rtt_ns;
    if (!tp->t_srtt) {
        tp->t_srtt = rtt_ns;
        tp->t_rttvar = rtt_ns / 2;
    } else {
        uint64_t delta = rtt_ns > tp->t_srtt ? rtt_ns - tp->t_srtt : tp->t_srtt - rtt_ns;
        tp->t_rttvar += delta / 4 - tp->t_rttvar / 4;
        tp->t_srtt += rtt_ns / 8 - tp->t_srtt / 8;
        tp->t_srtt = MAX(tp->t_srtt, 1);
    }
    /* Only a sample ends the backoff (Karn's algorithm, RFC 6298 5). */
    tp->t_rxtshift = 0;
    tp->t_rxtcur = tcp_rto(tp);
    tp->t_softerror = 0;
}

/* Milliseconds that the echoed timestamp of an ACK is old; false: none usable. */
static bool echo_age_ms(const struct tcpcb *tp, const struct tcp_segment *seg, uint32_t *ms)
{
    if (!(seg->to.flags & TOF_TS) || !seg->to.tsecr || !(tp->t_flags & TF_RCVD_TSTMP))
        return false;
    uint32_t age = tcp_ts_now(tp->t_stack) - (seg->to.tsecr - tp->ts_offset);
    *ms = age;
    return (int32_t)age >= 0 &&
           age < 600000; /* no peer holds a segment for ten minutes: it made that up */
}

static void sample_rtt(struct tcpcb *tp, const struct tcp_segment *seg, uint64_t sent_ns)
{
    uint32_t ms;
    if (unlikely(KNOB(tp->t_stack, tcp_freebsd_wire))) {
        if (echo_age_ms(tp, seg, &ms))
            tcp_rtt_sample_ticks(tp, (ms + 1) * NS_PER_MS);
        else if (sent_ns)
            tcp_rtt_sample_ticks(tp, tp->t_stack->now - sent_ns);
        return;
    }
    if (sent_ns)
        tcp_rtt_sample(tp, tp->t_stack->now - sent_ns);
    else if (echo_age_ms(tp, seg, &ms))
        tcp_rtt_sample(tp, MAX(ms, 1) * NS_PER_MS);
}

/* --- entering and leaving recovery --- */
static bool in_recovery(const struct tcpcb *tp)
{
    return tp->t_flags & TF_FASTRECOVERY;
}

static bool uses_sack(const struct tcpcb *tp)
{
    return tp->t_flags & TF_SACK_PERMIT;
}

static void congestion_experienced(struct tcpcb *tp)
{
    if (tp->t_flags2 & TF2_ECN_PERMIT)
        tp->t_flags2 |= TF2_ECN_SND_CWR;
}

/* --- displaced segments --- */
uint32_t tcp_dup_threshold(const struct tcpcb *tp)
{
    uint32_t base = (uint32_t)KNOB(tp->t_stack, tcp_reordering);
    if (likely(tp->t_reorder <= base))
        return base;
    /* As much as will surely come back: two thirds of what is out (RFC 4653 3.2). */
    uint32_t out = (tp->snd_nxt - tp->snd_una) / tcp_segment_size(tp);
    return MAX(base, MIN(tp->t_reorder, out / 3 * 2));
}

/* A segment arrived after one that was sent `bytes` behind its start. */
static void note_reordering(struct tcpcb *tp, uint32_t bytes)
{
    uint32_t mss = tcp_segment_size(tp), degree = (bytes + mss - 1) / mss;
    COUNT(tp->t_stack, tcp_reordered);
    degree = MIN(degree, (uint32_t)KNOB(tp->t_stack, tcp_max_reordering));
    tp->t_reorder = MAX(tp->t_reorder, degree);
}

/* --- undoing a needless recovery --- */
static void remember_window(struct tcpcb *tp)
{
    struct tcp_undo *u = &tp->t_undo;
    memset(u, 0, sizeof(*u));
    if (!KNOB(tp->t_stack, tcp_undo))
        return;
    u->cc = tp->t_cc;
    memcpy(u->cc_data, tp->t_cc_data, sizeof(u->cc_data));
    u->cwnd = tp->snd_cwnd;
    u->ssthresh = tp->snd_ssthresh;
    u->marker = tp->snd_una;
}

static void undo_recovery(struct tcpcb *tp)
{
    struct tcp_undo *u = &tp->t_undo;
    COUNT(tp->t_stack, tcp_spurious_fr);
    note_reordering(tp, u->overtook);
    if (u->cc == tp->t_cc)
        memcpy(tp->t_cc_data, u->cc_data, sizeof(u->cc_data));
    u->cc = NULL;
    if (!in_recovery(tp)) {
        /* Later: less is in flight, and slow start fills it without a burst (RFC 4015 3). */
        tp->snd_ssthresh = MAX(tp->snd_ssthresh, MAX(u->ssthresh, u->cwnd));
        return;
    }
    tp->t_flags &= ~TF_FASTRECOVERY;
    tp->t_flags2 &= ~(TF2_REXMT_ONCE | TF2_ECN_SND_CWR);
    tp->t_dupacks = 0;
    tp->snd_recover = tp->snd_una - 1; /* as if it had never begun: duplicates count at once */
    tp->snd_cwnd = MAX(tp->snd_cwnd, u->cwnd);
    tp->snd_ssthresh = MAX(tp->snd_ssthresh, u->ssthresh);
    tcp_sent_unlose(tp);
    tcp_output_later(tp);
}

/* An ACK beyond the hole with which recovery began, `high` being the end of what was SACKed: was it
 * the original that arrived? */
static bool was_needless(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t high)
{
    struct tcp_undo *u = &tp->t_undo;
    if (!u->cc || u->judged)
        return false;
    u->judged = true; /* of later holes the first one's timestamps say nothing (RFC 3522 3.2) */
    /* Without SACK each duplicate stands for one that overtook the missing one. */
    u->overtook = uses_sack(tp) ? high - u->marker : (tp->t_dupacks + 1) * tcp_segment_size(tp);
    if (!u->rexmits)
        return true;
    return (seg->to.flags & TOF_TS) && (tp->t_flags & TF_RCVD_TSTMP) && seg->to.tsecr &&
           SEQ_LT(seg->to.tsecr - tp->ts_offset, u->first_ts);
}

/* The receiver says that [start, end) came twice. */
static void take_dsack(struct tcpcb *tp, uint32_t start, uint32_t end)
{
    struct tcp_undo *u = &tp->t_undo;
    COUNT(tp->t_stack, tcp_dsack_rcv);
    tp->t_dsack_dups++;
    if (u->cc && u->rexmits && tcp_sent_settle(tp, start, end))
        undo_recovery(tp);
}

static void enter_recovery(struct tcpcb *tp)
{
    uint32_t mss = tcp_segment_size(tp), out = tp->snd_nxt - tp->snd_una;
    bool reduced = tp->t_flags & TF_CONGRECOVERY;
    remember_window(tp);
    if (reduced)
        tp->t_undo.cc = NULL;
    tp->t_flags |= TF_FASTRECOVERY;
    tp->t_flags &= ~(TF_CONGRECOVERY | TF_PREVVALID);
    if (!reduced) { /* once a window: an ECN echo may have done it */
        tp->t_cc->event(tp, TCP_CC_LOSS);
        congestion_experienced(tp);
    }
    tp->snd_recover = tp->snd_max;
    tp->prr_recover_fs = MAX(out, 1);
    tp->prr_delivered = tp->t_sacked_bytes;
    tp->prr_out = 0;
    tp->t_flags2 |= TF2_REXMT_ONCE;
    if (uses_sack(tp)) {
        COUNT(tp->t_stack, tcp_sack_recoveries);
        tp->t_rexmit_next = tp->snd_una;
        tp->t_flags2 &= ~TF2_RESCUED;
        tcp_sent_mark_lost(tp, mss, tcp_dup_threshold(tp));
        if (!tcp_sent_to_rexmit(tp))
            tcp_sent_lose_head(tp, mss);
        tp->snd_cwnd = tcp_sent_pipe(tp) + mss;
    } else {
        COUNT(tp->t_stack, tcp_fast_recoveries);
        tcp_sent_lose_head(tp, mss);
        tp->snd_cwnd = tp->snd_ssthresh + tp->t_dupacks * mss;
    }
    tcp_timer_arm(tp, TT_REXMT, tp->t_rxtcur); /* for the retransmission */
    tcp_output_later(tp);
}

static void leave_recovery(struct tcpcb *tp)
{
    uint32_t mss = tcp_segment_size(tp), pipe = tcp_sent_pipe(tp);
    tp->t_flags &= ~TF_FASTRECOVERY;
    tp->t_flags2 &= ~TF2_REXMT_ONCE;
    tp->t_dupacks = 0;
    /* Whatever is less than ssthresh in flight is filled by slow start, not by a burst (RFC
     * 6582 3.2 step 3). */
    if (pipe < tp->snd_ssthresh)
        tp->snd_cwnd = MIN(tp->snd_ssthresh, MAX(pipe, mss) + mss);
    else
        tp->snd_cwnd = tp->snd_ssthresh;
    tp->t_bytes_acked = 0;
}

/* Proportional rate reduction (RFC 6937): `delivered` bytes arrived by this ACK. */
static void prr_ack(struct tcpcb *tp, uint32_t delivered)
{
    uint32_t mss = tcp_segment_size(tp), pipe = tcp_sent_pipe(tp);
    int64_t send;
    tp->prr_delivered += delivered;
    if (!KNOB(tp->t_stack, tcp_do_prr)) {
        tp->snd_cwnd = MAX(tp->snd_ssthresh, mss);
        return;
    }
    if (pipe > tp->snd_ssthresh) {
        uint64_t share = (uint64_t)tp->prr_delivered * tp->snd_ssthresh;
        send = (int64_t)((share + tp->prr_recover_fs - 1) / tp->prr_recover_fs) - tp->prr_out;
    } else {
        int64_t limit = MAX((int64_t)tp->prr_delivered - tp->prr_out, (int64_t)delivered) + mss;
        send = MIN((int64_t)tp->snd_ssthresh - pipe, limit);
    }
    tp->snd_cwnd = pipe + (uint32_t)MAX(send, 0);
}

/* In recovery, when nothing is left to send that is surely lost or new: the next hole, or once the
 * end of what was out when recovery began (RFC 6675 4, NextSeg(), rules 3 and 4). */
static void resend_on_suspicion(struct tcpcb *tp)
{
    uint32_t mss = tcp_segment_size(tp), used = sockbuf_used(&tp->t_so->so_snd);
    uint32_t out = tp->snd_nxt - tp->snd_una;
    if (tcp_sent_to_rexmit(tp) || tp->snd_cwnd < (uint64_t)tcp_sent_pipe(tp) + mss)
        return;
    if (used > out && out < tp->snd_wnd && !(tp->t_flags & TF_SENTFIN))
        return;
    if (tcp_sent_lose_hole(tp, mss))
        return;
    if (!(tp->t_flags2 & TF2_RESCUED) && tcp_sent_lose_tail(tp, tp->snd_recover, mss)) {
        tp->t_flags2 |= TF2_RESCUED;
        tp->t_rexmit_next = tp->snd_una;
    }
}

/* --- timeouts --- */
static void remember_for_undo(struct tcpcb *tp)
{
    tp->snd_cwnd_prev = tp->snd_cwnd;
    tp->snd_ssthresh_prev = tp->snd_ssthresh;
    tp->snd_recover_prev = tp->snd_recover;
    tp->t_flags &= ~(TF_WASFRECOVERY | TF_WASCRECOVERY);
    if (tp->t_flags & TF_FASTRECOVERY)
        tp->t_flags |= TF_WASFRECOVERY;
    if (tp->t_flags & TF_CONGRECOVERY)
        tp->t_flags |= TF_WASCRECOVERY;
    if (tp->t_flags & TF_RCVD_TSTMP)
        tp->t_badrxtwin = tcp_ts_now(tp->t_stack);
    else
        tp->t_badrxtwin = tp->t_stack->now + tp->t_srtt / 2;
    tp->t_flags |= TF_PREVVALID;
}

void tcp_recovery_timeout(struct tcpcb *tp)
{
    if (tp->t_rxtshift == 1)
        remember_for_undo(tp);
    else
        tp->t_flags &= ~TF_PREVVALID;
    tp->t_undo.cc = NULL;
    /* Waiting for more duplicates has cost a timeout. */
    if (!in_recovery(tp) && tp->t_sacked_bytes)
        tp->t_reorder = 0;
    if (tcp_sent_first_sacked(tp)) /* it says to hold what it does not acknowledge (RFC 2018 8) */
        tcp_sent_renege(tp);
    if (tp->t_rxtshift <= 1)
        tp->t_cc->event(tp, TCP_CC_TIMEOUT);
    tp->snd_cwnd = tcp_segment_size(tp);
    tp->t_bytes_acked = 0;
    tp->t_dupacks = 0;
    tp->t_flags &= ~(TF_FASTRECOVERY | TF_CONGRECOVERY);
    tp->snd_recover = tp->snd_max;
    congestion_experienced(tp);
    tcp_sent_lose_all(tp);
    tp->t_flags2 |= TF2_REXMT_ONCE;
}

/* The ACK of the retransmission came so soon, or echoes so old a timestamp, that it answers the
 * original. */
static void undo_timeout(struct tcpcb *tp, const struct tcp_segment *seg)
{
    if (!(tp->t_flags & TF_PREVVALID))
        return;
    tp->t_flags &= ~TF_PREVVALID;
    if (tp->t_rxtshift != 1)
        return;
    bool early;
    if (tp->t_flags & TF_RCVD_TSTMP) {
        uint32_t echo = seg->to.tsecr - tp->ts_offset;
        early =
            (seg->to.flags & TOF_TS) && seg->to.tsecr && SEQ_LT(echo, (uint32_t)tp->t_badrxtwin);
    } else {
        early = tp->t_stack->now < tp->t_badrxtwin;
    }
    if (!early)
        return;
    COUNT(tp->t_stack, tcp_spurious_rto);
    /* A segment may have become larger since. */
    tp->snd_cwnd = MAX(tp->snd_cwnd_prev, tcp_segment_size(tp));
    tp->snd_ssthresh = tp->snd_ssthresh_prev;
    tp->snd_recover = tp->snd_recover_prev;
    if (tp->t_flags & TF_WASFRECOVERY)
        tp->t_flags |= TF_FASTRECOVERY;
    if (tp->t_flags & TF_WASCRECOVERY)
        tp->t_flags |= TF_CONGRECOVERY;
    tp->t_flags &= ~(TF_WASFRECOVERY | TF_WASCRECOVERY);
    tcp_sent_unlose(tp);
    tp->t_cc->event(tp, TCP_CC_UNDO);
}

void tcp_recovery_mtu_changed(struct tcpcb *tp)
{
    if (!TCPS_HAVEESTABLISHED(tp->t_state))
        return;
    tcp_sent_lose_bigger(tp, tcp_segment_size(tp));
    if (!tcp_sent_to_rexmit(tp))
        return;
    /* What the peer says meanwhile of the missing segments is no sign of congestion. */
    tp->t_dupacks = 0;
    tp->snd_recover = tp->snd_max;
    tp->t_flags2 |= TF2_REXMT_ONCE;
    tcp_output_later(tp);
}

/* --- SACK --- */
/* Take in the blocks of an ACK. Returns bytes newly SACKed; *had says whether there were any blocks
 * above una; *low comes down to the lowest byte newly SACKed that was sent once. */
static uint32_t take_sack(struct tcpcb *tp, const struct tcp_segment *seg, bool *had, uint32_t *low)
{
    struct weir_stack *s = tp->t_stack;
    uint32_t newly = 0;
    *had = false;
    if (likely(!(seg->to.flags & TOF_SACK)) || !uses_sack(tp))
        return 0;
    for (unsigned i = 0; i < seg->to.nsack; i++) {
        const struct sack_block *b = &seg->to.sack[i];
        COUNT(s, tcp_sack_rcv_blocks);
        if (!SEQ_LT(b->start, b->end)) {
            COUNT(s, tcp_sack_bad_blocks);
            continue;
        }
        bool below = SEQ_LEQ(b->end, seg->ack);
        bool inside = i == 0 && seg->to.nsack > 1 && SEQ_GEQ(b->start, seg->to.sack[1].start) &&
                      SEQ_LEQ(b->end, seg->to.sack[1].end);
        if (below || inside) {
            if (i == 0) /* D-SACK (RFC 2883) */
                take_dsack(tp, b->start, b->end);
            continue;
        }
        if (SEQ_LEQ(b->start, seg->ack) || SEQ_GT(b->end, tp->snd_max)) {
            COUNT(s, tcp_sack_bad_blocks);
            continue;
        }
        *had = true;
        newly += tcp_sent_sack(tp, b->start, b->end, low);
    }
    return newly;
}

/* --- ECN --- */
static void take_ecn(struct tcpcb *tp, const struct tcp_segment *seg)
{
    if (likely(!(seg->flags & TH_ECE)) || !(tp->t_flags2 & TF2_ECN_PERMIT) ||
        (seg->th.flags & TH_SYN))
        return;
    COUNT(tp->t_stack, tcp_ecn_ece);
    tp->t_undo.cc = NULL; /* the path is congested, whatever else it did */
    /* Once a window (RFC 3168 6.1.2). */
    if ((tp->t_flags & (TF_FASTRECOVERY | TF_CONGRECOVERY)) && SEQ_LT(seg->ack, tp->snd_recover))
        return;
    if (tp->snd_una == tp->snd_max)
        return;
    tp->t_flags |= TF_CONGRECOVERY;
    tp->snd_recover = tp->snd_max;
    tp->t_flags2 |= TF2_ECN_SND_CWR;
    tp->t_cc->event(tp, TCP_CC_ECN);
}

/* --- window --- */
static void window_opened(struct tcpcb *tp)
{
    if (!tcp_timer_active(tp, TT_PERSIST))
        return;
    if (tp->snd_nxt != tp->snd_una) {
        /* Data were out when the window shut. After probes they have had their time: the peer threw
         * them away. */
        if (tp->t_flags2 & TF2_PROBED)
            tcp_sent_lose_all(tp);
        tcp_timer_event_window_opened(tp);
    }
    /* Else the timer runs until something is sent: a window of a few bytes may not be worth a
     * segment yet. */
}

static void take_window(struct tcpcb *tp, const struct tcp_segment *seg)
{
    bool newer = SEQ_LT(tp->snd_wl1, seg->seq) ||
                 (tp->snd_wl1 == seg->seq && (SEQ_LT(tp->snd_wl2, seg->ack) ||
                                              (tp->snd_wl2 == seg->ack && seg->wnd > tp->snd_wnd)));
    if (!newer)
        return;
    if (seg->len == 0 && tp->snd_wl2 == seg->ack && seg->wnd > tp->snd_wnd)
        COUNT(tp->t_stack, tcp_rx_winupd);
    bool grew = seg->wnd > tp->snd_wnd;
    tp->snd_wnd = seg->wnd;
    tp->snd_wl1 = seg->seq;
    tp->snd_wl2 = seg->ack;
    if (tp->snd_wnd > tp->max_sndwnd)
        tp->max_sndwnd = tp->snd_wnd;
    if (tp->snd_wnd)
        window_opened(tp);
    if (grew)
        tcp_output_later(tp);
}

/* --- ACKs that move nothing --- */
static bool is_duplicate(const struct tcpcb *tp, const struct tcp_segment *seg, bool had_sack,
                         uint32_t newly)
{
    if (seg->len || (seg->flags & (TH_FIN | TH_SYN)) || seg->ack != tp->snd_una)
        return false;
    if (seg->seq != seg->th.seq) /* it had data that we had already: a keepalive probe */
        return false;
    if (tp->snd_nxt == tp->snd_una || !tcp_timer_active(tp, TT_REXMT))
        return false;
    if (uses_sack(tp) && (had_sack || tp->t_sacked_bytes || (seg->to.flags & TOF_SACK)))
        return newly > 0; /* the scoreboard says what arrived; an ACK without news says nothing */
    return seg->wnd == tp->snd_wnd;
}

static void duplicate_ack(struct tcpcb *tp)
{
    uint32_t mss = tcp_segment_size(tp), threshold = tcp_dup_threshold(tp);
    bool repairing = tp->t_lost_bytes != 0;
    COUNT(tp->t_stack, tcp_rx_dupack);
    tp->t_dupacks++;
    if (in_recovery(tp)) {
        if (!uses_sack(tp)) {
            /* A segment has left the network: never more of them than were out (RFC 5681 3.2 step
             * 4, and 4). */
            if (tp->snd_cwnd < tp->snd_ssthresh + tp->prr_recover_fs)
                tp->snd_cwnd += mss;
        }
        tcp_output_later(tp);
        return;
    }
    bool lost = tp->t_dupacks >= threshold || tcp_sent_mark_lost(tp, mss, threshold) > 0 ||
                (uses_sack(tp) && tp->t_sacked_bytes > (uint64_t)(threshold - 1) * mss);
    if (!lost) {
        if (KNOB(tp->t_stack, tcp_rfc3042))
            tcp_output_later(tp); /* limited transmit: output allows a segment for each */
        return;
    }
    /* After a timeout, duplicate ACKs of what was out before it prove nothing (RFC 6582 3.2, step
     * 1; RFC 6675 5.1); output goes on by the scoreboard anyway. */
    if (repairing) {
        tcp_output_later(tp);
        return;
    }
    if (!uses_sack(tp) && !(tp->t_flags & TF_CONGRECOVERY) &&
        SEQ_LEQ(tp->snd_una, tp->snd_recover)) {
        tp->t_dupacks = 0;
        return;
    }
    enter_recovery(tp);
}

/* --- ACKs that move snd_una --- */
static void newreno_partial_ack(struct tcpcb *tp, uint32_t acked)
{
    uint32_t mss = tcp_segment_size(tp);
    /* The next hole: resend it, take out what left the network (RFC 6582 3.2, step 5). */
    tcp_sent_lose_head(tp, mss);
    tp->t_flags2 |= TF2_REXMT_ONCE;
    tp->snd_cwnd = tp->snd_cwnd > acked ? tp->snd_cwnd - acked : 0;
    if (acked >= mss)
        tp->snd_cwnd += mss;
    tp->snd_cwnd = MAX(tp->snd_cwnd, mss);
}

/* What an ACK finds, before it changes it. */
struct before {
    uint32_t flight; /* pipe */
    uint32_t sacked; /* t_sacked_bytes */
    uint32_t high;   /* t_sack_high, snd_una when nothing is SACKed */
};

/* Congestion control and recovery after `acked` bytes; sacks: something is newly SACKed. */
static void grow_or_recover(struct tcpcb *tp, const struct tcp_segment *seg, uint32_t acked,
                            bool sacks, const struct before *b)
{
    bool repairing = tp->t_lost_bytes != 0;
    if (in_recovery(tp)) {
        if (was_needless(tp, seg, b->high)) {
            undo_recovery(tp);
        } else if (SEQ_GEQ(tp->snd_una, tp->snd_recover)) {
            leave_recovery(tp);
        } else if (uses_sack(tp)) {
            tcp_sent_mark_lost(tp, tcp_segment_size(tp), tcp_dup_threshold(tp));
            prr_ack(tp, acked + tp->t_sacked_bytes - b->sacked);
            resend_on_suspicion(tp);
        } else {
            newreno_partial_ack(tp, acked);
        }
        return;
    }
    tp->t_dupacks = 0;
    if ((tp->t_flags & TF_CONGRECOVERY) && SEQ_GEQ(tp->snd_una, tp->snd_recover))
        tp->t_flags &= ~TF_CONGRECOVERY;
    if (sacks && !repairing &&
        tcp_sent_mark_lost(tp, tcp_segment_size(tp), tcp_dup_threshold(tp))) {
        enter_recovery(tp);
        return;
    }
    if (tp->t_flags & TF_CONGRECOVERY)
        return;
    struct tcp_cc_ack a = {
        .bytes = acked,
        .segs = MAX(seg->segs, 1),
        .cwnd_limited =
            repairing || (tp->snd_cwnd <= tp->snd_wnd && tp->snd_cwnd < (uint64_t)b->flight * 2),
        .after_rto = repairing,
    };
    tp->t_cc->acked(tp, &a);
}

/* Take acknowledged bytes out of so_snd. acked: sequence numbers; the SYN's is not among them.
 * Returns data bytes. */
static uint32_t drop_acked(struct tcpcb *tp, uint32_t acked)
{
    struct socket *so = tp->t_so;
    if (!acked)
        return 0;
    uint32_t used = sockbuf_used(&so->so_snd);
    if (tp->t_flags & TF_SENTFIN)
        used = MIN(used, tp->t_finseq - tp->snd_una);
    uint32_t data = MIN(acked, used);
    if (data) {
        sockbuf_drop(&so->so_snd, data);
        so_writable(so);
        tp->t_bytes_acked_total += data;
    }
    return data;
}

/* Marks that must not fall behind snd_una, or they would wrap. */
static void drag_along(struct tcpcb *tp)
{
    if (SEQ_LT(tp->snd_nxt, tp->snd_una))
        tp->snd_nxt = tp->snd_una; /* a probe's byte was taken */
    if (SEQ_LT(tp->snd_up, tp->snd_una))
        tp->snd_up = tp->snd_una;
    if (SEQ_LT(tp->t_lost_mark, tp->snd_una))
        tp->t_lost_mark = tp->snd_una;
    if (SEQ_LT(tp->t_rexmit_next, tp->snd_una))
        tp->t_rexmit_next = tp->snd_una;
    if (SEQ_LT(tp->snd_recover, tp->snd_una - 1) && !in_recovery(tp))
        tp->snd_recover = tp->snd_una - 1;
}

static void advance(struct tcpcb *tp, const struct tcp_segment *seg, bool sacks,
                    const struct before *b)
{
    uint32_t acked = seg->ack - tp->snd_una;
    struct tcp_sent_ack gone = {0};
    undo_timeout(tp, seg);
    if (tp->snd_una == tp->iss && SEQ_LT(tp->snd_una, seg->ack) && tp->t_sndbytes == 0 &&
        !tp->t_sent.count) {
        /* Our SYN. */
        if (tp->t_rxtshift == 0 && tp->t_lastsend)
            gone.sent_ns = tp->t_lastsend;
        tp->snd_una++;
        acked--;
        tp->t_rexmit_next = tp->t_lost_mark = tp->snd_una;
        tp->snd_recover = tp->iss;
        tp->snd_wl1 = seg->seq - 1; /* this segment's window counts, whatever stood there before */
    } else {
        tcp_sent_acked(tp, seg->ack, &gone);
        if (unlikely(b->sacked) && gone.fresh && SEQ_LT(gone.low, b->high))
            note_reordering(tp, b->high - gone.low);
    }
    sample_rtt(tp, seg, gone.sent_ns);
    tp->t_rxtshift =
        0; /* progress: the retry budget starts again, t_rxtcur keeps its backoff until a sample */
    uint32_t data = drop_acked(tp, acked);
    tp->snd_una = seg->ack;
    tp->t_flags2 |= TF2_PROGRESS;
    drag_along(tp);
    tcp_timer_event_acked(tp, tp->snd_una == tp->snd_max);
    if (acked)
        grow_or_recover(tp, seg, data, sacks, b);
}

bool tcp_ack(struct tcpcb *tp, const struct tcp_segment *seg)
{
    CHECK(SEQ_LEQ(seg->ack, tp->snd_max));
    struct before b = {.flight = tcp_sent_pipe(tp), .sacked = tp->t_sacked_bytes};
    b.high = b.sacked ? tp->t_sack_high : tp->snd_una;
    uint32_t low = b.high;
    bool had_sack;
    take_ecn(tp, seg);
    uint32_t newly = take_sack(tp, seg, &had_sack, &low);
    if (unlikely(newly) && SEQ_LT(low, b.high))
        note_reordering(tp, b.high - low);
    if (SEQ_GT(seg->ack, tp->snd_una)) {
        advance(tp, seg, newly != 0, &b);
    } else {
        bool dup = is_duplicate(tp, seg, had_sack, newly);
        if (newly && in_recovery(tp)) {
            tcp_sent_mark_lost(tp, tcp_segment_size(tp), tcp_dup_threshold(tp));
            prr_ack(tp, newly);
            resend_on_suspicion(tp);
        }
        if (dup)
            duplicate_ack(tp);
        else if (!in_recovery(tp) && !(seg->to.flags & TOF_SACK))
            tp->t_dupacks = 0;
    }
    take_window(tp, seg);
    uint32_t unsent = sockbuf_used(&tp->t_so->so_snd) - (tp->snd_nxt - tp->snd_una);
    if ((int32_t)unsent > 0 || tcp_sent_to_rexmit(tp))
        tcp_output_later(tp);
    return (tp->t_flags & TF_SENTFIN) && SEQ_GT(tp->snd_una, tp->t_finseq);
}
