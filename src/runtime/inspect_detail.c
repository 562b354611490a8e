/* SPDX-License-Identifier: BSD-2-Clause
 * netstat -e: what a connection is made of, as text below its row or as an object. */
#include "inspect.h"

#include "base/stack.h"
#include "buf/sockbuf.h"
#include "measure/cputime.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_var.h"

#include <inttypes.h>
#include <jansson.h>

/* Name, value. Times in ns, sizes in bytes unless the name says otherwise. */
#define DETAILS(X)                                                                                 \
    X("cwnd", tp->snd_cwnd)                                                                        \
    X("ssthresh", tp->snd_ssthresh)                                                                \
    X("mss", tp->t_maxseg)                                                                         \
    X("srtt_ns", tp->t_srtt)                                                                       \
    X("rttvar_ns", tp->t_rttvar)                                                                   \
    X("rttmin_ns", tp->t_rttmin_seen)                                                              \
    X("rto_ns", tp->t_rxtcur)                                                                      \
    X("backoff", tp->t_rxtshift)                                                                   \
    X("snd_wscale", tp->snd_scale)                                                                 \
    X("rcv_wscale", tp->rcv_scale)                                                                 \
    X("snd_wnd", tp->snd_wnd)                                                                      \
    X("rcv_wnd", tp->rcv_wnd)                                                                      \
    X("inflight", tp->snd_max - tp->snd_una)                                                       \
    X("sndbuf_limit", LOAD_RELAXED(&so->so_snd.sb_hiwat))                                          \
    X("rcvbuf_limit", LOAD_RELAXED(&so->so_rcv.sb_hiwat))                                          \
    X("sent_bytes", tp->t_sndbytes)                                                                \
    X("received_bytes", tp->t_rcvbytes)                                                            \
    X("segments_out", tp->t_segs_out)                                                              \
    X("segments_in", tp->t_segs_in)                                                                \
    X("retransmits", tp->t_sndrexmitpack)                                                          \
    X("retransmitted_bytes", tp->t_bytes_retrans)                                                  \
    X("dsack_dups", tp->t_dsack_dups)                                                              \
    X("out_of_order_segments", tp->t_rcvoopack)                                                    \
    X("sacked_bytes", tp->t_sacked_bytes)                                                          \
    X("lost_bytes", tp->t_lost_bytes)                                                              \
    X("dupacks", tp->t_dupacks)                                                                    \
    X("reordering", tp->t_reorder)                                                                 \
    X("reass_segments", tp->t_reass_segs)                                                          \
    X("reass_bytes", tp->t_reass_bytes)

/* CPU time of the stack's work for it, us for each MB carried both ways. False: not known. */
static bool cpu_per_mb(const struct tcpcb *tp, const struct socket *so, double *us)
{
    uint64_t ticks = tp->t_cpu_in + tp->t_cpu_out + LOAD_RELAXED(&so->so_cpu_copy);
    uint64_t bytes = tp->t_sndbytes + tp->t_rcvbytes;
    if (ticks == 0 || bytes == 0)
        return false;
    *us = (double)cputime_ticks_to_ns(ticks) / 1e3 / ((double)bytes / 1e6);
    return true;
}

void inspect_detail_text(FILE *out, const struct tcpcb *tp, const struct socket *so)
{
    double us;
    fprintf(out, "\t cc:%s sack:%d timestamps:%d ecn:%d recovery:%d", tcp_cc_name(tp->t_cc),
            (tp->t_flags & TF_SACK_PERMIT) != 0, (tp->t_flags & TF_RCVD_TSTMP) != 0,
            (tp->t_flags2 & TF2_ECN_PERMIT) != 0, (tp->t_flags & TF_FASTRECOVERY) != 0);
#define X(name, value) fprintf(out, " " name ":%" PRIu64, (uint64_t)(value));
    DETAILS(X)
#undef X
    if (cpu_per_mb(tp, so, &us))
        fprintf(out, " cpu_us_per_mb:%.2f", us);
    fputc('\n', out);
}

void inspect_detail_json(json_t *o, const struct tcpcb *tp, const struct socket *so)
{
    double us;
    json_object_set_new(o, "cc", json_string(tcp_cc_name(tp->t_cc)));
    json_object_set_new(o, "sack", json_boolean(tp->t_flags & TF_SACK_PERMIT));
    json_object_set_new(o, "timestamps", json_boolean(tp->t_flags & TF_RCVD_TSTMP));
    json_object_set_new(o, "ecn", json_boolean(tp->t_flags2 & TF2_ECN_PERMIT));
    json_object_set_new(o, "recovery", json_boolean(tp->t_flags & TF_FASTRECOVERY));
#define X(name, value) json_object_set_new(o, name, json_integer((json_int_t)(value)));
    DETAILS(X)
#undef X
    json_object_set_new(o, "cpu_us_per_mb", cpu_per_mb(tp, so, &us) ? json_real(us) : json_null());
}
