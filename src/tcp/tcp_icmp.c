/* SPDX-License-Identifier: BSD-2-Clause
 * What ICMP errors do to connections (RFC 5927, RFC 1122 4.2.3.9, RFC 1191, RFC 8201). */
#include "tcp_in.h"
#include "wire/ipv6.h"
#include "wire/wire.h"

/* Does the error speak of a port, protocol or policy that refuses us? */
static bool is_refusal(const struct icmp_error *e)
{
    return e->kind == ICMP_KIND_UNREACH_PROTO || e->kind == ICMP_KIND_UNREACH_PORT ||
           e->kind == ICMP_KIND_UNREACH_ADMIN;
}

/* The next smaller MTU that is common, for routers that do not say theirs (RFC 1191 7). */
static uint32_t next_smaller_mtu(uint32_t mtu)
{
    static const uint16_t plateau[] = {32000, 17914, 8166, 4352, 2002, 1492, 1280, 1006, 552};

    for (size_t i = 0; i < NELEM(plateau); i++) {
        if (plateau[i] < mtu)
            return plateau[i];
    }
    return 552;
}

/* A path MTU below IPv6's minimum. */
static void too_small(struct tcpcb *tp)
{
    const uint32_t mss = IPV6_MIN_MTU - 8 - 60;

    if (mss >= tp->t_maxseg)
        return;
    COUNT(tp->t_stack, tcp_mtu_drops);
    tp->t_peermss = MIN(tp->t_peermss, mss); /* or it would grow back to what the route says */
    tp->t_maxseg = mss;
    tcp_recovery_mtu_changed(tp);
}

static void too_big(struct tcpcb *tp, const struct icmp_error *e)
{
    struct weir_stack *s = tp->t_stack;
    uint32_t headers = tp->t_flow.faddr.family == AF_INET6 ? 60 : 40;
    uint32_t mtu = e->mtu ? e->mtu : next_smaller_mtu(tp->t_maxseg + headers), mss;
    struct route rt;

    if (!KNOB(s, tcp_path_mtu_discovery))
        return;
    if (headers == 60 && mtu < IPV6_MIN_MTU && KNOB(s, tcp_freebsd_wire)) {
        /* FreeBSD leaves room for a fragment header, for this connection. */
        too_small(tp);
        return;
    }
    ip_pmtu_update(s, &tp->t_flow.faddr, mtu);
    /* What the route says now: a floor may have kept it from believing all. */
    if (ip_route(s, &tp->t_flow.faddr, &tp->t_flow.laddr, &rt) || rt.mtu <= headers)
        return;
    mss = MAX(rt.mtu - headers, 64);
    if (mss >= tp->t_maxseg)
        return;
    COUNT(s, tcp_mtu_drops);
    tp->t_maxseg = mss;
    tcp_recovery_mtu_changed(tp);
}

static void unreachable(struct tcpcb *tp, const struct icmp_error *e)
{
    struct weir_stack *s = tp->t_stack;
    int error = is_refusal(e) ? ECONNREFUSED : e->error;

    /* The next hop does not answer: connect() says so at once, as on Linux. What routers say may be
     * forged, or pass. */
    if (tp->t_state == TCPS_SYN_SENT && e->local) {
        tcp_drop(tp, error);
        return;
    }
    if (tp->t_state == TCPS_SYN_SENT && is_refusal(e) && KNOB(s, tcp_icmp_may_rst)) {
        tcp_drop(tp, error);
        return;
    }
    if (tp->t_state == TCPS_SYN_SENT && e->kind == ICMP_KIND_TIME_EXCEEDED &&
        KNOB(s, tcp_icmp_may_rst)) {
        tcp_drop(tp, e->error);
        return;
    }
    COUNT(s, tcp_soft_errors);
    if (tp->t_state < TCPS_ESTABLISHED && tp->t_rxtshift > 3 && tp->t_softerror) {
        tcp_drop(tp, error); /* several SYNs and a second error: it is not going to work */
        return;
    }
    /* Routes come back: an established connection only remembers why it may time out. */
    tp->t_softerror = e->error;
}

void tcp_ctlinput(struct weir_stack *s, const struct icmp_error *e)
{
    struct tcpcb *tp;
    uint32_t seq;

    if (e->l4len < 8)
        return;
    seq = get_be32(e->l4 + 4);
    tp = tcp_lookup(s, &e->flow);
    if (!tp && tcp_timewait_lookup(s, &e->flow)) {
        COUNT(s, tcp_icmp_ignored); /* nothing is out */
        return;
    }
    if (!tp) {
        if (e->kind != ICMP_KIND_TOOBIG && e->kind != ICMP_KIND_SOURCE_QUENCH)
            tcp_syncache_icmp(s, &e->flow, seq, e->error);
        return;
    }
    if (SEQ_LT(seq, tp->snd_una) || SEQ_GEQ(seq, tp->snd_max)) {
        COUNT(s, tcp_icmp_ignored);
        return;
    }
    switch (e->kind) {
    case ICMP_KIND_SOURCE_QUENCH: /* RFC 6633 */
        COUNT(s, tcp_icmp_ignored);
        break;
    case ICMP_KIND_TOOBIG:
        too_big(tp, e);
        break;
    default:
        unreachable(tp, e);
        break;
    }
}
