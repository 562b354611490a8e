/* SPDX-License-Identifier: BSD-2-Clause
 * Socket options of TCP, with Linux's names, ranges and errors (tcp(7)). */
#include "tcp_sockopt.h"
#include "tcp_cc.h"
#include "tcp_output.h"
#include "tcp_timer.h"

/* Linux's option numbers. */
enum {
    OPT_NODELAY = 1,
    OPT_MAXSEG = 2,
    OPT_CORK = 3,
    OPT_KEEPIDLE = 4,
    OPT_KEEPINTVL = 5,
    OPT_KEEPCNT = 6,
    OPT_SYNCNT = 7,
    OPT_LINGER2 = 8,
    OPT_DEFER_ACCEPT = 9,
    OPT_WINDOW_CLAMP = 10,
    OPT_INFO = 11,
    OPT_QUICKACK = 12,
    OPT_CONGESTION = 13,
    OPT_USER_TIMEOUT = 18,
    OPT_FASTOPEN = 23,
    OPT_TIMESTAMP = 24,
    OPT_NOTSENT_LOWAT = 25,
    OPT_FASTOPEN_CONNECT = 30,
    OPT_FASTOPEN_KEY = 33,
    OPT_FASTOPEN_NO_COOKIE = 34,
};

#define KEEP_MAX_S 32767 /* MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL */
#define KEEPCNT_MAX 127
#define SYNCNT_MAX 127
#define MAXSEG_MIN 88
#define MAXSEG_MAX 32767
#define WINDOW_CLAMP_MIN 1152
#define RTO_INIT_S 1
#define RTO_MAX_S 120

void tcp_sockopt_copy(const struct tcpcb *from, struct tcpcb *to)
{
    const uint32_t flags = TF_NODELAY | TF_NOPUSH | TF_NOOPT;
    to->t_flags = (to->t_flags & ~flags) | (from->t_flags & flags);
    to->t_flags2 |= from->t_flags2 & TF2_QUICKACK;
    to->t_quickack_off = from->t_quickack_off;
    to->t_user_mss = from->t_user_mss;
    to->t_keepidle_ms = from->t_keepidle_ms;
    to->t_keepintvl_ms = from->t_keepintvl_ms;
    to->t_keepcnt = from->t_keepcnt;
    to->t_keepinit_ms = from->t_keepinit_ms;
    to->t_syncnt = from->t_syncnt;
    to->t_user_timeout_ms = from->t_user_timeout_ms;
    to->t_linger2_ms = from->t_linger2_ms;
    to->t_window_clamp = from->t_window_clamp;
    STORE_RELAXED(&to->t_so->so_notsent_lowat, LOAD_RELAXED(&from->t_so->so_notsent_lowat));
    to->t_defer_accept = from->t_defer_accept;
    to->t_sndbuf_fixed = from->t_sndbuf_fixed;
    to->t_rcvbuf_fixed = from->t_rcvbuf_fixed;
    if (to->t_cc != from->t_cc)
        tcp_cc_attach(to, from->t_cc);
}

void tcp_sockopt_inherit(struct socket *listener, struct socket *so)
{
    tcp_sockopt_copy(so_tcpcb(listener), so_tcpcb(so));
    so_tcpcb(so)->t_defer_accept = 0; /* a listener's own, as on Linux */
}

/* Linux keeps TCP_DEFER_ACCEPT as a number of SYN-ACK timeouts, and shows the time they take: those
 * that fill so many seconds, *count; or, seconds < 0, the time of so many. */
static int defer_accept_s(int seconds, uint8_t *count)
{
    int timeout = RTO_INIT_S, period = 0, n = 0;

    while (n < UINT8_MAX && (seconds < 0 ? n < *count : period < seconds)) {
        period += timeout;
        timeout = MIN(timeout * 2, RTO_MAX_S);
        n++;
    }
    *count = (uint8_t)n;
    return period;
}

/* Time in which n retransmissions of a SYN go unanswered. */
static uint32_t syncnt_to_ms(struct weir_stack *s, uint32_t n)
{
    uint64_t initial = (uint64_t)KNOB(s, tcp_rexmit_initial), sum = initial;
    for (uint32_t i = 1; i <= n; i++) {
        uint64_t ms = initial * tcp_timer_backoff(i) + (uint64_t)KNOB(s, tcp_rexmit_slop);
        sum += MIN(ms, TCP_REXMT_MAX_NS / NS_PER_MS);
    }
    return (uint32_t)MIN(sum, UINT32_MAX);
}

/* Whatever was held back goes now. */
static void push_now(struct tcpcb *tp)
{
    if (!TCPS_HAVEESTABLISHED(tp->t_state))
        return;
    tp->t_flags2 |= TF2_CORK_FLUSH;
    tcp_output_later(tp);
}

static int set_flag(struct tcpcb *tp, uint32_t flag, bool on, bool push)
{
    if (on)
        tp->t_flags |= flag;
    else
        tp->t_flags &= ~flag;
    if (push)
        push_now(tp);
    return 0;
}

static int set_keep(struct tcpcb *tp, uint32_t *field, int v, int max, uint32_t unit)
{
    if (v < 1 || v > max)
        return -EINVAL;
    *field = (uint32_t)v * unit;
    tcp_timer_event_keep_changed(tp);
    return 0;
}

static int set_linger2(struct tcpcb *tp, int v)
{
    if (v < 0)
        tp->t_linger2_ms = -1;
    else
        tp->t_linger2_ms = (int32_t)MIN((int64_t)v * 1000, TCP_LINGER2_MAX_MS);
    return 0;
}

static int set_maxseg(struct tcpcb *tp, int v)
{
    if (KNOB(tp->t_stack, tcp_freebsd_wire)) {
        /* It only lowers what holds now; the SYN offers what the path takes. */
        if (v < 1 || (uint32_t)v > tp->t_maxseg || v + 40 < KNOB(tp->t_stack, tcp_minmss))
            return -EINVAL;
        tp->t_maxseg = (uint32_t)v;
        if (TCPS_HAVEESTABLISHED(tp->t_state))
            tp->t_user_mss = (uint32_t)v;
        return 0;
    }
    if (v && (v < MAXSEG_MIN || v > MAXSEG_MAX))
        return -EINVAL;
    tp->t_user_mss = (uint32_t)v;
    /* Of an established connection the segments may become shorter, never longer than the peer
     * allowed. */
    if (v && TCPS_HAVEESTABLISHED(tp->t_state) && (uint32_t)v < tp->t_maxseg)
        tp->t_maxseg = (uint32_t)v;
    return 0;
}

static int set_window_clamp(struct tcpcb *tp, int v)
{
    if (!v && tp->t_state != TCPS_CLOSED)
        return -EINVAL;
    tp->t_window_clamp = v ? (uint32_t)MAX(v, WINDOW_CLAMP_MIN) : 0;
    return 0;
}

static int set_quickack(struct tcpcb *tp, int v)
{
    tp->t_quickack_off = !(v & 1);
    if (v & 1) {
        tp->t_flags2 |= TF2_QUICKACK;
        if (tcp_timer_active(tp, TT_DELACK) && TCPS_HAVEESTABLISHED(tp->t_state)) {
            tp->t_flags |= TF_ACKNOW;
            tcp_output_later(tp);
        }
    } else {
        tp->t_flags2 &= ~TF2_QUICKACK;
    }
    return 0;
}

static int set_congestion(struct tcpcb *tp, const void *val, socklen_t len)
{
    char name[TCP_CC_NAME_MAX];
    if (len < 1)
        return -EINVAL;
    size_t n = MIN((size_t)len, sizeof(name) - 1);
    memcpy(name, val, n);
    name[n] = '\0';
    const struct tcp_cc *cc = tcp_cc_find(name);
    if (!cc)
        return -ENOENT;
    if (cc != tp->t_cc)
        tcp_cc_attach(tp, cc);
    return 0;
}

static int set_int(struct tcpcb *tp, int name, int v)
{
    switch (name) {
    case OPT_NODELAY:
        return set_flag(tp, TF_NODELAY, v != 0, v != 0);
    case OPT_CORK:
        return set_flag(tp, TF_NOPUSH, v != 0, v == 0);
    case OPT_MAXSEG:
        return set_maxseg(tp, v);
    case OPT_KEEPIDLE:
        return set_keep(tp, &tp->t_keepidle_ms, v, KEEP_MAX_S, 1000);
    case OPT_KEEPINTVL:
        return set_keep(tp, &tp->t_keepintvl_ms, v, KEEP_MAX_S, 1000);
    case OPT_KEEPCNT:
        return set_keep(tp, &tp->t_keepcnt, v, KEEPCNT_MAX, 1);
    case OPT_SYNCNT:
        if (v < 1 || v > SYNCNT_MAX)
            return -EINVAL;
        tp->t_syncnt = (uint8_t)v;
        tp->t_keepinit_ms = syncnt_to_ms(tp->t_stack, (uint32_t)v);
        tcp_timer_event_keep_changed(tp);
        return 0;
    case OPT_LINGER2:
        return set_linger2(tp, v);
    case OPT_DEFER_ACCEPT:
        defer_accept_s(MAX(v, 0), &tp->t_defer_accept);
        return 0;
    case OPT_WINDOW_CLAMP:
        return set_window_clamp(tp, v);
    case OPT_QUICKACK:
        return set_quickack(tp, v);
    case OPT_USER_TIMEOUT:
        if (v < 0)
            return -EINVAL;
        tp->t_user_timeout_ms = (uint32_t)v;
        return 0;
    case OPT_NOTSENT_LOWAT:
        STORE_RELAXED(&tp->t_so->so_notsent_lowat, (uint32_t)v);
        tcp_output_later(tp); /* so_sent is kept from now on; who waits may go on */
        return 0;
    case OPT_FASTOPEN:
    case OPT_FASTOPEN_CONNECT:
    case OPT_FASTOPEN_KEY:
    case OPT_FASTOPEN_NO_COOKIE:
        return -EOPNOTSUPP;
    case OPT_TIMESTAMP:
        return -EPERM;
    default:
        return -ENOPROTOOPT;
    }
}

/* The socket has changed something of its own that concerns us. */
static void socket_option_set(struct tcpcb *tp, int name)
{
    switch (name) {
    case SO_KEEPALIVE:
        tcp_timer_event_keep_changed(tp);
        break;
    case SO_SNDBUF:
    case SO_SNDBUFFORCE:
        tp->t_sndbuf_fixed = true;
        break;
    case SO_RCVBUF:
    case SO_RCVBUFFORCE:
        tp->t_rcvbuf_fixed = true;
        if (tp->t_state >= TCPS_ESTABLISHED) {
            tcp_set_rcv_notice(tp);
            tcp_output_later(tp); /* there may be more window to tell of */
        }
        break;
    default:
        break;
    }
}

int tcp_setopt(struct socket *so, int level, int name, const void *val, socklen_t len)
{
    struct tcpcb *tp = so_tcpcb(so);
    int v;
    if (level == SOL_SOCKET)
        socket_option_set(tp, name);
    if (level != IPPROTO_TCP)
        return -ENOPROTOOPT;
    if (name == OPT_CONGESTION)
        return set_congestion(tp, val, len);
    if (len < sizeof(v))
        return -EINVAL;
    memcpy(&v, val, sizeof(v));
    return set_int(tp, name, v);
}

/* --- get --- */
static int linger2_s(const struct tcpcb *tp)
{
    if (tp->t_linger2_ms < 0)
        return -1;
    if (tp->t_linger2_ms)
        return tp->t_linger2_ms / 1000;
    return (int)(KNOB(tp->t_stack, tcp_finwait2_timeout) / 1000);
}

static int in_s(uint32_t own_ms, int64_t knob_ms)
{
    return (int)((own_ms ? own_ms : knob_ms) / 1000);
}

static int get_int(const struct tcpcb *tp, int name, int *v)
{
    struct weir_stack *s = tp->t_stack;
    enum { LINUX_SYN_RETRIES = 6 };
    switch (name) {
    case OPT_NODELAY:
        *v = (tp->t_flags & TF_NODELAY) != 0;
        return 0;
    case OPT_CORK:
        *v = (tp->t_flags & TF_NOPUSH) != 0;
        return 0;
    case OPT_MAXSEG:
        *v = (int)(tp->t_state <= TCPS_LISTEN && tp->t_user_mss ? tp->t_user_mss : tp->t_maxseg);
        return 0;
    case OPT_KEEPIDLE:
        *v = in_s(tp->t_keepidle_ms, KNOB(s, tcp_keepidle));
        return 0;
    case OPT_KEEPINTVL:
        *v = in_s(tp->t_keepintvl_ms, KNOB(s, tcp_keepintvl));
        return 0;
    case OPT_KEEPCNT:
        *v = (int)(tp->t_keepcnt ? tp->t_keepcnt : KNOB(s, tcp_keepcnt));
        return 0;
    case OPT_SYNCNT:
        *v = tp->t_syncnt ? tp->t_syncnt : LINUX_SYN_RETRIES;
        return 0;
    case OPT_LINGER2:
        *v = linger2_s(tp);
        return 0;
    case OPT_DEFER_ACCEPT:
        *v = defer_accept_s(-1, &(uint8_t){tp->t_defer_accept});
        return 0;
    case OPT_WINDOW_CLAMP:
        *v = (int)tp->t_window_clamp;
        return 0;
    case OPT_QUICKACK:
        *v = !tp->t_quickack_off;
        return 0;
    case OPT_USER_TIMEOUT:
        *v = (int)tp->t_user_timeout_ms;
        return 0;
    case OPT_NOTSENT_LOWAT:
        *v = (int)LOAD_RELAXED(&tp->t_so->so_notsent_lowat);
        return 0;
    case OPT_TIMESTAMP:
        *v = (int)(tcp_ts_now(s) + tp->ts_offset);
        return 0;
    case OPT_FASTOPEN:
    case OPT_FASTOPEN_CONNECT:
    case OPT_FASTOPEN_KEY:
    case OPT_FASTOPEN_NO_COOKIE:
        return -EOPNOTSUPP;
    default:
        return -ENOPROTOOPT;
    }
}

int tcp_getopt(struct socket *so, int level, int name, void *val, socklen_t *len)
{
    struct tcpcb *tp = so_tcpcb(so);
    if (level != IPPROTO_TCP)
        return -ENOPROTOOPT;
    if ((int)*len < 0)
        return -EINVAL;
    if (name == OPT_INFO) {
        *len = (socklen_t)tcp_fill_info(tp, val, *len);
        return 0;
    }
    if (name == OPT_CONGESTION) {
        char text[TCP_CC_NAME_MAX] = {0};
        const char *cc = tcp_cc_name(tp->t_cc);
        memcpy(text, cc, MIN(strlen(cc), sizeof(text) - 1));
        *len = MIN(*len, (socklen_t)sizeof(text));
        memcpy(val, text, *len);
        return 0;
    }
    int v = 0, error = get_int(tp, name, &v);
    if (error)
        return error;
    *len = MIN(*len, (socklen_t)sizeof(v));
    memcpy(val, &v, *len);
    return 0;
}
