/* SPDX-License-Identifier: BSD-2-Clause
 * The TCP connection and what the files of this folder owe each other. */
#ifndef WEIR_TCP_TCP_VAR_H
#define WEIR_TCP_TCP_VAR_H

#include "base/stack.h"
#include "buf/mbuf.h"
#include "buf/ranges.h"
#include "ip/ip.h"
#include "socket/socket.h"
#include "wire/tcp.h"
#include <bsd/sys/queue.h>

/* FreeBSD's numbers (siftr, TCP_INFO translate from these). */
#define TCP_STATES(X)                                                                              \
    X(CLOSED, 0)                                                                                   \
    X(LISTEN, 1)                                                                                   \
    X(SYN_SENT, 2)                                                                                 \
    X(SYN_RECEIVED, 3)                                                                             \
    X(ESTABLISHED, 4)                                                                              \
    X(CLOSE_WAIT, 5) X(FIN_WAIT_1, 6) X(CLOSING, 7) X(LAST_ACK, 8) X(FIN_WAIT_2, 9) X(TIME_WAIT, 10)
enum tcp_state_id {
#define X(n, v) TCPS_##n = (v),
    TCP_STATES(X)
#undef X
        TCPS_COUNT
};
#define TCPS_HAVEESTABLISHED(s) ((s) >= TCPS_ESTABLISHED)
#define TCPS_HAVERCVDFIN(s)                                                                        \
    ((s) == TCPS_CLOSE_WAIT || ((s) >= TCPS_CLOSING && (s) != TCPS_FIN_WAIT_2))
const char *tcp_state_name(int state); /* "SYN_RCVD" style: FreeBSD's netstat names */

enum tcp_timer_id { TT_REXMT, TT_PERSIST, TT_KEEP, TT_2MSL, TT_DELACK, TT_CORK, TT_COUNT };

/* t_flags: FreeBSD's bits (formats of siftr). */
#define TF_ACKNOW 0x00000001u
#define TF_DELACK 0x00000002u
#define TF_NODELAY 0x00000004u
#define TF_NOOPT 0x00000008u
#define TF_SENTFIN 0x00000010u
#define TF_REQ_SCALE 0x00000020u
#define TF_RCVD_SCALE 0x00000040u
#define TF_REQ_TSTMP 0x00000080u
#define TF_RCVD_TSTMP 0x00000100u
#define TF_SACK_PERMIT 0x00000200u
#define TF_NEEDSYN 0x00000400u
#define TF_NEEDFIN 0x00000800u
#define TF_NOPUSH 0x00001000u /* TCP_CORK, TCP_NOPUSH */
#define TF_PREVVALID 0x00002000u
#define TF_MORETOCOME 0x00010000u /* MSG_MORE */
#define TF_LASTIDLE 0x00040000u
#define TF_RXWIN0SENT 0x00080000u
#define TF_FASTRECOVERY 0x00100000u
#define TF_WASFRECOVERY 0x00200000u
#define TF_FORCEDATA 0x00800000u
#define TF_TSO 0x01000000u
#define TF_CONGRECOVERY 0x20000000u
#define TF_WASCRECOVERY 0x40000000u
/* t_flags2 */
#define TF2_PLPMTU_BLACKHOLE 0x1u
#define TF2_PLPMTU_PMTUD 0x2u
#define TF2_PLPMTU_MAXSEGSNT 0x4u
#define TF2_ECN_PERMIT 0x20u
#define TF2_ECN_SND_CWR 0x40u
#define TF2_ECN_SND_ECE 0x80u
#define TF2_NO_ISS_CHECK                                                                           \
    0x00400000u /* more than a window past iss: ghost ACKs need no stricter bound */
/* ours, never exported */
#define TF2_ACK_MAY_WAIT                                                                           \
    0x00200000u /* the ACK that is owed is one that the application's next call may carry */
#define TF2_PROGRESS                                                                               \
    0x00800000u /* the peer answers: to be told to the neighbour cache by the next packet */
#define TF2_ON_OUTPUT_LIST 0x01000000u
#define TF2_ORPHAN 0x02000000u /* no handle any more */
#define TF2_OOB_INLINE 0x04000000u
#define TF2_QUICKACK 0x08000000u
#define TF2_CORK_FLUSH 0x10000000u /* send what a cork or Nagle held back, once */
#define TF2_PROBED 0x20000000u     /* a window probe left since the window shut */
#define TF2_RESCUED 0x80000000u    /* recovery has had its rescue retransmission */
#define TF2_REXMT_ONCE                                                                             \
    0x40000000u /* one retransmission whatever cwnd says (fast retransmit, RFC 5681 3.2) */

/* A range of sent data, transmitted at one moment; splits at segment boundaries. Kept by
 * tcp_sent.c: the list covers [snd_una, snd_nxt) without gaps. (A window probe's byte is not in it:
 * then snd_max is beyond snd_nxt.) */
#define SENT_SACKED 0x01
#define SENT_LOST 0x02
#define SENT_REXMIT 0x04 /* LOST, retransmitted, and not yet SACKed or lost again */
struct tcp_sent {
    struct range r;   /* [start, end): SYN and FIN count as a byte */
    uint64_t sent_ns; /* last transmission */
    uint32_t base;    /* segments of this range begin at base + k * segsz */
    uint16_t segsz;
    uint16_t transmissions; /* 1 = once */
    uint8_t flags;
};

struct tcp_cc;

#define TCP_UNDO_OWED 16

/* What fast recovery changed, for as long as it may turn out to have been needless
 * (tcp_recovery.c). */
struct tcp_undo {
    const struct tcp_cc *cc; /* whose state cc_data is; NULL: nothing is to be undone */
    uint64_t cc_data[8];
    uint32_t cwnd, ssthresh;
    uint32_t marker;    /* snd_una at the start */
    uint32_t rexmits;   /* bytes retransmitted in it */
    uint32_t overtook;  /* bytes that had arrived before what marker stands at */
    uint32_t first_ts;  /* clock of timestamps at the first retransmission */
    bool judged;        /* an ACK of more than marker has come: timestamps say no more */
    bool uncounted;     /* D-SACKs prove nothing: too many pieces, or one that was sent again */
    uint8_t owed_count; /* pieces retransmitted that no D-SACK has told of yet: each counts once */
    struct sack_block owed[TCP_UNDO_OWED];
};

struct tcp_timer {
    struct timer t;
    uint64_t due_ns; /* 0: not active. The wheel may fire earlier: then it is armed again (moving is
                        free) */
};

struct tcpcb {
    /* identity */
    struct weir_stack *t_stack;
    struct socket *t_so; /* NULL never while the pcb lives */
    struct flow t_flow;
    LIST_ENTRY(tcpcb) t_hash;     /* connections by flow, or listeners of a port */
    LIST_ENTRY(tcpcb) t_porthash; /* in t_port: owners (bind, listen) or users (connections) */
    struct tcp_port *t_port;      /* the local port it holds, NULL none (tcp_port.c) */
    TAILQ_ENTRY(tcpcb) t_outlink; /* connections that owe output or an ACK */
    uint8_t t_state;              /* enum tcp_state_id: written by tcp_state_set only */
    uint8_t t_family;   /* AF_INET6: socket's domain is IPv6 (t_flow may be IPv4: v4-mapped) */
    bool t_hashed;      /* t_hash is linked */
    bool t_port_owner;  /* of t_port: bound or listening, not only using it */
    bool t_v6only;      /* as so_v6only was at bind, listen or connect */
    uint32_t t_hashval; /* of t_flow */
    uint32_t t_flags, t_flags2;

    /* send (RFC 9293 3.3.1) */
    uint32_t iss, snd_una, snd_nxt, snd_max, snd_up, snd_wl1, snd_wl2;
    uint32_t snd_wnd, max_sndwnd; /* scaled */
    uint32_t snd_recover;         /* recovery ends when this is acknowledged */
    uint32_t t_finseq;            /* TF_SENTFIN: sequence number of our FIN */
    uint8_t snd_scale, rcv_scale, request_r_scale;
    /* receive */
    uint32_t irs, rcv_nxt, rcv_adv, rcv_up, last_ack_sent;
    uint32_t rcv_edge; /* right edge for which the buffer had room; rcv_adv is that, rounded to the
                          window scale */
    uint32_t rcv_wnd;

    /* segments */
    uint32_t t_maxseg;       /* payload bytes of a segment without options (peer's MSS, path MTU) */
    uint32_t t_peermss;      /* what the peer offered */
    uint32_t t_user_mss;     /* TCP_MAXSEG of the application, 0 none */
    uint32_t t_saved_maxseg; /* before black hole detection lowered t_maxseg */
    uint32_t t_window_clamp; /* TCP_WINDOW_CLAMP, 0 none */

    /* timestamps (RFC 7323) */
    uint32_t ts_offset; /* added to our millisecond clock */
    uint32_t ts_recent;
    uint64_t ts_recent_ns; /* when it was taken */

    /* RTT and RTO (RFC 6298), ns */
    uint64_t t_srtt, t_rttvar, t_rttmin_seen, t_rxtcur;
    uint32_t t_rxtshift;
    uint32_t t_rtt_samples;

    /* congestion (bytes) */
    const struct tcp_cc *t_cc;
    uint64_t t_cc_data[8]; /* state of t_cc */
    uint32_t snd_cwnd, snd_ssthresh;
    uint32_t snd_cwnd_prev, snd_ssthresh_prev; /* before the last RTO, for its undoing */
    uint32_t t_bytes_acked;
    uint32_t t_dupacks;
    uint32_t prr_delivered, prr_out, prr_recover_fs;
    uint64_t t_badrxtwin; /* TF_PREVVALID: an ACK before this (ns, or the timestamp of the first
                           * retransmission) shows that the timeout was spurious */
    uint32_t snd_recover_prev;
    struct tcp_undo t_undo;
    uint32_t t_reorder; /* segments by which the path was seen to displace some; 0: none */

    /* sent data and SACK */
    struct ranges t_sent;                                  /* struct tcp_sent */
    uint32_t t_sacked_bytes, t_lost_bytes, t_rexmit_bytes; /* sums over t_sent */
    uint32_t t_sack_high; /* end of the highest SACKed range; meaningful while t_sacked_bytes > 0 */
    uint32_t t_sack_runs; /* SACKed ranges in t_sent: holes, as tcp_sack_maxholes counts them */
    uint32_t t_lost_mark; /* everything unSACKed below is marked lost already */
    uint32_t t_rexmit_next; /* next sequence to look at for a retransmission */

    /* reassembly (tcp_reass.c) and the SACK blocks we report */
    struct ranges t_reass; /* chain */
    TAILQ_HEAD(reass_list, reass_segment)
    t_reass_list;
    uint32_t t_reass_entries;                          /* of the list */
    bool t_reass_is_list;                              /* the form of what is queued */
    uint32_t t_reass_segs, t_reass_bytes, t_reass_mem; /* wire segments, payload, memory held;
                                                        * t_reass_bytes is 0 when nothing is */
    struct sack_block t_rcv_sack[6];
    uint8_t t_nrcv_sack;
    struct sack_block t_dsack;
    bool t_dsack_pending;
    bool t_reass_fin; /* a FIN waits in the reassembly queue at t_reass_finseq */
    uint32_t t_reass_finseq;
    struct mbuf *t_early; /* text from rcv_nxt on that came before the end of the handshake */
    uint32_t t_early_len;
    bool t_early_fin; /* a FIN follows it */

    /* timers (tcp_timer.c alone arms) */
    struct tcp_timer t_timers[TT_COUNT];
    uint64_t t_rcvtime;  /* last segment received */
    uint64_t t_lastsend; /* last data sent */
    uint64_t t_starttime;
    uint64_t t_unacked_since; /* snd_una has not moved since; 0: nothing outstanding */
    uint32_t t_keepidle_ms, t_keepintvl_ms, t_keepcnt, t_keepinit_ms,
        t_user_timeout_ms; /* 0: the knob */
    int32_t t_linger2_ms;  /* TCP_LINGER2; 0: the knob; < 0: no FIN_WAIT_2 */
    uint32_t t_keepprobes;

    /* challenge ACKs (RFC 5961) */
    uint64_t t_challenge_start;
    uint32_t t_challenge_count;

    int t_softerror;
    bool t_quickack_off; /* TCP_QUICKACK was set to 0 */
    uint8_t t_syncnt;    /* TCP_SYNCNT as set (t_keepinit_ms follows from it), 0 not */
    bool t_sndbuf_fixed, t_rcvbuf_fixed; /* SO_SNDBUF, SO_RCVBUF were set: no automatic growth */

    /* receive buffer growth (dynamic right-sizing) */
    uint64_t rfbuf_since; /* start of the measuring round, 0 none */
    uint32_t rfbuf_cnt;   /* bytes received in it */

    /* totals for TCP_INFO */
    uint64_t t_sndbytes, t_rcvbytes, t_bytes_acked_total, t_bytes_retrans;
    uint32_t t_segs_out, t_segs_in, t_data_segs_out, t_data_segs_in, t_sndrexmitpack, t_rcvoopack;
    uint32_t t_dsack_dups;
    uint8_t t_defer_accept; /* TCP_DEFER_ACCEPT: SYN-ACK timeouts to wait for data; 0: off */
    uint32_t t_orphan_una;  /* snd_una at the last look at an orphan's progress */

    uint64_t t_cpu_in, t_cpu_out; /* ticks of input and output: tcp_cputime.c */

    /* private to the flow log: the log that has listed this flow, packets since its last record */
    uint32_t t_siftr_log, t_siftr_count;
};

static inline struct tcpcb *so_tcpcb(const struct socket *so)
{
    return so->so_pcb;
}

/* One parsed segment on its way through tcp_input's steps. */
struct tcp_segment {
    struct tcp_header th;
    struct tcp_options to;
    struct ip_info ip; /* src, dst, tos */
    uint32_t seq, ack; /* seq: of the first byte of m, after trimming */
    uint32_t len;      /* payload bytes left */
    uint32_t wnd;      /* scaled */
    uint16_t segs;     /* wire segments */
    uint8_t flags;     /* TH_*, after trimming */
    struct mbuf *m;    /* payload (owned while the segment is processed), NULL when given away */
};

/* ---- tcp_state.c: the one writer of t_state ---- */
void tcp_state_set(struct tcpcb *tp,
                   int state); /* checks the transition table, fires the probe, tells timers */

/* ---- tcp_pcb.c: lookup, ports, life ---- */
int tcp_init(struct weir_stack *s) NODISCARD;
void tcp_fini(struct weir_stack *s);
struct tcpcb *tcp_pcb_create(struct socket *so) NODISCARD; /* CLOSED; NULL: no memory */
void tcp_pcb_free(struct tcpcb *tp); /* all timers off, all queues freed, unhashed */
struct tcpcb *tcp_lookup(struct weir_stack *s, const struct flow *f); /* exact connection */
struct tcpcb *tcp_lookup_listener(struct weir_stack *s, const struct ipaddr *laddr, uint16_t lport);
struct tcpcb *tcp_lookup_listener_flow(struct weir_stack *s,
                                       const struct flow *f); /* spreads SO_REUSEPORT groups */
/* Bind to an address (any allowed) and port (0: choose later or an ephemeral one now). -EADDRINUSE,
 * -EADDRNOTAVAIL. */
int tcp_pcb_bind(struct tcpcb *tp, const struct ipaddr *a, uint16_t port) NODISCARD;
/* Fix the flow (source address, ephemeral port by RFC 6056 algorithm 4) and hash it.
 * -EADDRNOTAVAIL, -EADDRINUSE, -ENETUNREACH, ... */
int tcp_pcb_connect(struct tcpcb *tp, const struct ipaddr *a, uint16_t port) NODISCARD;
int tcp_pcb_hash_connection(struct tcpcb *tp) NODISCARD; /* t_flow is set (syncache) */
/* Make it findable as a listener; an unbound one gets an ephemeral port. -EADDRINUSE (another
 * listener), -ENOMEM. */
int tcp_pcb_hash_listener(struct tcpcb *tp);
/* Out of the hashes; the port is given back too, unless keep_owned and the application bound it. */
void tcp_pcb_unhash(struct tcpcb *tp, bool keep_owned);
uint32_t tcp_iss(struct weir_stack *s, const struct flow *f);       /* RFC 6528 */
uint32_t tcp_ts_offset(struct weir_stack *s, const struct flow *f); /* keyed, RFC 7323 */
uint32_t tcp_ts_now(const struct weir_stack *s); /* ms clock of timestamps, without offset */
uint64_t tcp_flow_hash(struct weir_stack *s, const struct flow *f); /* SipHash */
void tcp_foreach(struct weir_stack *s, void (*fn)(struct tcpcb *tp, void *ctx), void *ctx);

/* ---- tcp_subr.c: ends and answers ---- */
/* The connection is over: tells the socket (so_disconnected). tp is gone for the caller. Really
 * freed (tcp_pcb_free, so_pcb = NULL, so_protocol_done) only when the socket has SS_NOHANDLE; while
 * the application still holds it the tcpcb stays as CLOSED: state set, timers stopped, queues
 * flushed, off the output list and out of the hashes, so that its options, TCP_INFO and the name in
 * socket lists survive (tcp_usrreq.c's detach frees it, connect makes a new one from it). */
void tcp_close(struct tcpcb *tp);
/* Drop with an error (positive errno, reported once to the socket); sends a RST if synchronized. tp
 * is gone. */
void tcp_drop(struct tcpcb *tp, int error);
/* Abort by the application (RST), no error set. */
void tcp_abort(struct tcpcb *tp);
/* Answer a segment with a RST (tp may be NULL), by the rules of RFC 9293 3.10.7.1; rate limited,
 * never for a RST. */
void tcp_respond_rst(struct weir_stack *s, struct tcpcb *tp, const struct tcp_segment *seg,
                     bool limited);
/* A bare segment of a connection, built at once: ACKs, keepalive probes, resets. */
void tcp_send_bare(struct tcpcb *tp, uint32_t seq, uint32_t ack, uint8_t flags);
/* A challenge ACK under the limit of RFC 5961 7. */
void tcp_send_challenge_ack(struct tcpcb *tp, const struct tcp_segment *seg);
/* MSS to offer on a route, and the effective one from the peer's offer (0: none offered). Sets
 * t_maxseg, initial cwnd, buffer roundings (FreeBSD's tcp_mss). */
uint32_t tcp_mss_to_offer(struct weir_stack *s, const struct flow *f, uint32_t user_mss);
void tcp_mss_apply(struct tcpcb *tp, uint32_t offered); /* ends with tcp_cc_conn_init */

/* ---- tcp_timewait.c ---- */
void tcp_enter_timewait(struct tcpcb *tp);
/* What is left of a connection in TIME_WAIT whose socket nobody holds. */
struct tcptw {
    struct flow flow;
    struct tcptw *hash_next;
    uint64_t due_ns;             /* end of 2MSL */
    TAILQ_ENTRY(tcptw) queue;    /* by due_ns */
    LIST_ENTRY(tcptw) port_link; /* in port->timewaits */
    struct tcp_port *port;       /* the local port it keeps */
    uint64_t rcvtime_ns;         /* last segment before TIME_WAIT */
    uint64_t challenge_end;      /* RFC 5961 7, as a tcpcb has it */
    uint32_t challenge_count;
    uint32_t hashval; /* of flow */
    uint32_t snd_nxt, rcv_nxt;
    uint32_t ts_recent, ts_offset; /* RFC 7323 */
    uint16_t win;                  /* the field, scaled */
    uint8_t ttl, tos;              /* of IP; ttl 0: the knob */
    uint8_t flags;                 /* TW_* */
};
_Static_assert(sizeof(struct tcptw) <= 160, "a busy server keeps tens of thousands");
#define TW_TIMESTAMPS 0x01 /* were agreed on */
#define TW_SENDS_TIMESTAMPS 0x02
#define TW_REUSEADDR 0x04 /* options of the socket, for bind's conflicts */
#define TW_REUSEPORT 0x08
#define TW_PORT_OWNER 0x10 /* the connection was bound to the port */
struct tcptw *tcp_timewait_find(struct weir_stack *s, const struct flow *f); /* NULL: none */
/* By the administrator. */
void tcp_timewait_drop(struct weir_stack *s, struct tcptw *tw);
void tcp_timewait_foreach(struct weir_stack *s, void (*fn)(const struct tcptw *tw, void *ctx),
                          void *ctx);

/* ---- tcp_input.c ---- */
void tcp_input(struct weir_stack *s, struct mbuf **m, const struct ip_info *info);
void tcp_ctlinput(struct weir_stack *s, const struct icmp_error *e); /* tcp_icmp.c */

/* ---- tcp_syncache.c ---- */
int tcp_syncache_init(struct weir_stack *s) NODISCARD;
void tcp_syncache_fini(struct weir_stack *s);
/* A SYN for a listener (already checked: SYN only). Consumes nothing of seg. */
void tcp_syncache_add(struct tcpcb *listener, const struct tcp_segment *seg);
/* An ACK that belongs to no connection: completes a handshake (entry or cookie). Returns the new
 * connection in SYN_RECEIVED, to be processed further with seg; NULL: *answer_rst says whether a
 * RST is due. */
struct tcpcb *tcp_syncache_expand(struct tcpcb *listener, const struct tcp_segment *seg,
                                  bool *answer_rst);
void tcp_syncache_rst(struct weir_stack *s, struct tcpcb *listener, const struct tcp_segment *seg);
void tcp_syncache_forget(struct weir_stack *s, const struct tcp_segment *seg); /* its entry goes */
void tcp_syncache_icmp(struct weir_stack *s, const struct flow *f, uint32_t seq, int error);
void tcp_syncache_listener_gone(struct tcpcb *listener);
/* For netstat: calls fn for each entry (flow, age). */
void tcp_syncache_foreach(struct weir_stack *s,
                          void (*fn)(const struct flow *f, struct tcpcb *listener, void *ctx),
                          void *ctx);

/* ---- tcp_reass.c ---- */
/* Queue an out-of-order segment (FIN noted), dropping bytes already held; if it starts at rcv_nxt,
 * everything now in order is appended to so_rcv and rcv_nxt moves. seg->m is consumed. Returns
 * TH_FIN when the FIN is now in order, else 0. */
int tcp_reass(struct tcpcb *tp, struct tcp_segment *seg);
void tcp_reass_flush(struct tcpcb *tp);
/* Where the first text beyond the hole starts; false: none is queued. */
bool tcp_reass_first(struct tcpcb *tp, uint32_t *start);
void tcp_reass_drain(struct weir_stack *s); /* memory kept for later; tcp_fini calls it last */
/* SACK blocks to report, most recent first, D-SACK in front (RFC 2018, 2883); returns how many. */
unsigned tcp_sack_report(struct tcpcb *tp, struct sack_block *out, unsigned max);
/* [start, end), a whole block of the queue, has just grown or been hit. */
void tcp_sack_note(struct tcpcb *tp, uint32_t start, uint32_t end);
/* Nothing is queued any more from seq on. */
void tcp_sack_cut(struct tcpcb *tp, uint32_t seq);
void tcp_dsack_note(struct tcpcb *tp, uint32_t start, uint32_t end);

/* ---- tcp_output.c ---- */
/* Send what may be sent now. 0 or a negative error of ip_output. */
int tcp_output(struct tcpcb *tp);
/* Put on the list of connections that owe output; served after the batch, round-robin. */
void tcp_output_later(struct tcpcb *tp);
/* Serve the list (stack_step). True when some are left by the byte quantum. */
bool tcp_output_run(struct weir_stack *s);
/* When the list must be served next; TIME_NEVER: it is empty. */
uint64_t tcp_output_due(const struct weir_stack *s);
uint32_t
tcp_window_to_offer(const struct tcpcb *tp); /* receive window, SWS avoided, never shrinking */
/* A segment with this window and rcv_nxt left. */
void tcp_window_offered(struct tcpcb *tp, uint32_t window);
void tcp_output_forget(struct tcpcb *tp); /* off the list (tcp_pcb_free, tcp_close) */
/* The receive buffer may grow (net.inet.tcp.recvbuf_auto): called by input with the bytes just
 * taken in order, after they are appended; uses seg's echoed timestamp or the smoothed RTT as the
 * measuring round. */
void tcp_rcvbuf_grow(struct tcpcb *tp, uint32_t len);

/* ---- tcp_recovery.c: everything an acceptable ACK does to sent data ---- */
/* seg->ack in [snd_una, snd_max] was checked by input; also for the ACK of our SYN (snd_una ==
 * iss). SACK, RTT, duplicate ACKs, recovery, cc, so_snd, snd_una, window update. Sets TF_ACKNOW or
 * calls tcp_output_later as needed. Returns true when our FIN is now acknowledged. */
bool tcp_ack(struct tcpcb *tp, const struct tcp_segment *seg);
void tcp_rtt_sample(struct tcpcb *tp, uint64_t rtt_ns);
uint64_t tcp_rto(const struct tcpcb *tp); /* srtt + 4 rttvar + slop, clamped, ns, without backoff */
void tcp_recovery_timeout(
    struct tcpcb *tp); /* RTO: everything unSACKed is lost, cwnd = 1 segment */
/* Duplicate ACKs, or segments SACKed beyond a hole, that mean a loss (DupThresh). */
uint32_t tcp_dup_threshold(const struct tcpcb *tp);
void tcp_recovery_mtu_changed(
    struct tcpcb *tp); /* resend at the new size without congestion response */

/* ---- tcp_sent.c: the list of sent ranges ---- */
/* (more in tcp_sent.h) */
void tcp_sent_flush(struct tcpcb *tp);
/* Bytes in flight by RFC 6675 (pipe). */
uint32_t tcp_sent_pipe(const struct tcpcb *tp);
void tcp_sent_drain(struct weir_stack *s); /* gives cached ranges back; tcp_fini calls it last */

/* ---- tcp_timer.c ---- */
void tcp_timers_init(struct tcpcb *tp); /* also t_rxtcur */
void tcp_timers_stop(struct tcpcb *tp);
void tcp_timer_arm(struct tcpcb *tp, enum tcp_timer_id id, uint64_t delay_ns);
void tcp_timer_cancel(struct tcpcb *tp, enum tcp_timer_id id);
bool tcp_timer_active(const struct tcpcb *tp, enum tcp_timer_id id);
/* Events, reported by input, output and user calls; this module decides what to arm. */
void tcp_timer_event_state(struct tcpcb *tp, int from, int to);
void tcp_timer_event_heard(struct tcpcb *tp); /* an acceptable segment came: keepalive restarts */
void tcp_timer_event_sent(struct tcpcb *tp);  /* data or SYN or FIN left: rexmt if not running */
void tcp_timer_event_acked(struct tcpcb *tp, bool all); /* progress: restart or stop rexmt */
void tcp_timer_event_window_closed(struct tcpcb *tp);   /* data wait, window shut: persist */
void tcp_timer_event_keep_changed(struct tcpcb *tp);    /* keepalive options were set */
void tcp_timer_event_window_opened(struct tcpcb *tp);   /* persist ends, rexmt if data are out */
void tcp_timer_event_orphan(struct tcpcb *tp); /* the last handle is gone: bound what is left */

/* ---- tcp_cc.h: congestion control ---- */
const struct tcp_cc *tcp_cc_find(const char *name);
const char *tcp_cc_name(const struct tcp_cc *cc);
void tcp_cc_attach(
    struct tcpcb *tp,
    const struct tcp_cc *cc); /* state reset; tcp_pcb_create: by the knob (cc NULL) */
/* Initial window (RFC 6928; one segment when the SYN was lost), what the host cache knows of the
 * peer. */
void tcp_cc_conn_init(struct tcpcb *tp);

/* ---- tcp_hostcache.c ---- */
int tcp_hostcache_init(
    struct weir_stack *s) NODISCARD; /* by tcp_init; sets the handler of purgenow */
void tcp_hostcache_fini(struct weir_stack *s);
void tcp_hostcache_apply(struct tcpcb *tp);  /* at connection start: RTT, ssthresh */
void tcp_hostcache_update(struct tcpcb *tp); /* at its end */
void tcp_hostcache_purge(struct weir_stack *s);

/* ---- tcp_usrreq.c (tcp_protosw), tcp_sockopt.c, tcp_info.c ---- */
int tcp_getopt(struct socket *so, int level, int name, void *val, socklen_t *len);
int tcp_setopt(struct socket *so, int level, int name, const void *val, socklen_t len);
void tcp_sockopt_inherit(struct socket *listener, struct socket *so);
struct tcp_info;
size_t tcp_fill_info(struct tcpcb *tp, void *out,
                     size_t room); /* Linux's struct tcp_info, newest layout */

/* Per-stack state, private to this folder. */
LIST_HEAD(tcpcb_list, tcpcb);
LIST_HEAD(tcp_port_list, tcp_port);
TAILQ_HEAD(tcpcb_outlist, tcpcb);
TAILQ_HEAD(tcptw_queue, tcptw);
struct tcp_syncache;
struct tcp_hostcache;
struct tcp_timewaits { /* private to tcp_timewait.c, but for the number */
    uint32_t records;
    uint32_t mask;
    struct tcptw **hash; /* power of two chains, grows; NULL until the first record */
    struct tcptw_queue queue;
    struct timer timer; /* one for all, due with the first */
    struct weir_stack *stack;
};
struct tcp_state {
    struct tcpcb_list *conn_hash; /* power of two buckets, grows */
    uint32_t conn_mask, conn_count;
    struct tcp_port_list *port_hash; /* local ports in use: power of two buckets, grows */
    uint32_t port_mask, port_count;
    uint32_t pcb_count;            /* all, in whatever state */
    struct tcpcb *flow_cache[256]; /* recently looked up connections, by a cheap hash */
    struct tcpcb_outlist outlist;
    bool acks_wait;      /* tcp_output_run is to leave those of TF2_ACK_MAY_WAIT on the list */
    bool acks_alone;     /* the list has nothing else */
    uint64_t acks_until; /* the first of them is due then; 0: none is left there */
    struct tcp_syncache *syncache;
    struct tcp_hostcache *hostcache;
    struct flow hash_flow; /* whose keyed hash is in `hash` */
    uint64_t hash[2];
    bool hash_valid;
    uint32_t timewait_count; /* connections in TIME_WAIT and records */
    struct tcp_timewaits timewaits;
    uint32_t reass_segs;           /* global sum of queued out-of-order segments */
    uint32_t port_table[1024];     /* RFC 6056 algorithm 4 */
    struct reass_pool *reass_pool; /* private to tcp_reass_chain.c: memory for blocks */
    struct tcp_sent *sent_free;    /* private to tcp_sent.c: ranges for reuse */
    uint32_t sent_free_count;
    /* For whom the owner worked last, as which thread, and what that had spent before. */
    struct tcpcb *cpu_tp; /* NULL: nobody */
    struct cputime_thread *cpu_thread;
    uint64_t cpu_seen[2];
    uint32_t cpu_slot; /* of cputime_thread.spent */
};

/* --- tcp_cputime.c: CPU time of each connection, while kern.cputime is ticks --- */
void tcp_cputime_init(struct tcp_state *t);
/* The owner works for tp now. */
void tcp_cputime_begin(struct tcpcb *tp, bool output);
static inline void tcp_cputime_forget(struct tcpcb *tp)
{
    if (tp->t_stack->tcp->cpu_tp == tp)
        tp->t_stack->tcp->cpu_tp = NULL;
}
/* What was done till now is charged; by the owner, before t_cpu_* are read or tp goes. */
void tcp_cputime_settle(struct weir_stack *s);

/* A record of the flow; NULL: none. */
static inline struct tcptw *tcp_timewait_lookup(struct weir_stack *s, const struct flow *f)
{
    return s->tcp->timewaits.records ? tcp_timewait_find(s, f) : NULL;
}

#endif
