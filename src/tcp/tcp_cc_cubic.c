/* SPDX-License-Identifier: BSD-2-Clause
 * CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction. */
#include "tcp_cc.h"

/* C = 0.4 segments/s^3, beta = 0.7, alpha = 3 (1 - beta) / (1 + beta). Times are in ms, windows in
 * bytes. */
#define CUBIC_C_NUM 4
#define CUBIC_C_DEN 10
#define CUBIC_BETA_NUM 7
#define CUBIC_BETA_DEN 10
#define CUBIC_ALPHA_NUM 9
#define CUBIC_ALPHA_DEN 17
#define CUBIC_MAX_MS                                                                               \
    50000 /* |t - K| beyond this is as good as this: keeps the cube within 64 bits */

struct cubic {
    uint64_t epoch_ns;   /* start of congestion avoidance since the last reduction; 0: not begun */
    uint64_t last_ns;    /* last acknowledgment */
    uint32_t w_max;      /* window before the last reduction */
    uint32_t w_max_prev; /* w_max before the last timeout, for its undoing */
    uint32_t k_ms;       /* time from the epoch until w_max is reached again */
    uint32_t origin;     /* w_max, or cwnd at the epoch if that is greater */
    uint32_t cwnd_prior; /* window at the last reduction */
    uint64_t w_est;      /* window a Reno flow would have, bytes << 8 */
    uint32_t carry;      /* growth not yet a whole byte: numerator over cwnd */
    bool reduced;        /* at least once */
};
_Static_assert(sizeof(struct cubic) <= sizeof(((struct tcpcb *)0)->t_cc_data), "fits");

static struct cubic *cubic_of(struct tcpcb *tp)
{
    return (struct cubic *)(void *)tp->t_cc_data;
}

/* Integer cube root, rounded down. */
static uint32_t cube_root(uint64_t x)
{
    uint64_t y = 0;
    for (int shift = 63; shift >= 0; shift -= 3) {
        y <<= 1;
        uint64_t b = 3 * y * (y + 1) + 1;
        if ((x >> shift) >= b) {
            x -= b << shift;
            y++;
        }
    }
    return (uint32_t)y;
}

static void cubic_init(struct tcpcb *tp)
{
}

static void begin_epoch(struct tcpcb *tp, struct cubic *c, uint32_t mss)
{
    c->epoch_ns = tp->t_stack->now;
    c->w_est = (uint64_t)tp->snd_cwnd << 8;
    c->carry = 0;
    if (c->w_max > tp->snd_cwnd) {
        /* K = cbrt((w_max - cwnd) / C), in ms */
        uint64_t diff = c->w_max - tp->snd_cwnd;
        c->k_ms = cube_root(diff * (UINT64_C(1000000000) * CUBIC_C_DEN / CUBIC_C_NUM) / mss);
        c->origin = c->w_max;
    } else {
        c->k_ms = 0;
        c->origin = tp->snd_cwnd;
    }
}

/* W_cubic at ms after the epoch, bytes (RFC 9438 4.2). */
static uint64_t window_at(const struct cubic *c, uint64_t ms, uint32_t mss)
{
    int64_t dt = (int64_t)ms - c->k_ms;
    dt = MAX(MIN(dt, CUBIC_MAX_MS), -CUBIC_MAX_MS);
    int64_t cube = dt * dt * dt; /* at most 1.25e14 */
    int64_t w = cube / 1000000 * mss / 1000 * CUBIC_C_NUM / CUBIC_C_DEN + c->origin;
    return w > 0 ? (uint64_t)w : 0;
}

static void cubic_avoidance(struct tcpcb *tp, const struct tcp_cc_ack *a)
{
    struct cubic *c = cubic_of(tp);
    uint32_t mss = tcp_segment_size(tp), cwnd = tp->snd_cwnd;
    if (!c->epoch_ns)
        begin_epoch(tp, c, mss);
    /* The Reno-friendly window (4.3): alpha segments a window, 1 once the old maximum is reached.
     */
    bool past = (c->w_est >> 8) >= c->cwnd_prior;
    uint64_t step = ((uint64_t)a->bytes * mss << 8) / cwnd;
    c->w_est += past ? step : step * CUBIC_ALPHA_NUM / CUBIC_ALPHA_DEN;
    uint64_t est = c->w_est >> 8;

    uint64_t t_ms = (tp->t_stack->now - c->epoch_ns) / NS_PER_MS;
    uint64_t next = cwnd;
    if (window_at(c, t_ms, mss) < est) {
        next = MAX(est, cwnd);
    } else {
        uint64_t target = window_at(c, t_ms + tp->t_srtt / NS_PER_MS, mss);
        target = MAX(MIN(target, (uint64_t)cwnd + cwnd / 2), cwnd);
        uint64_t grow = (target - cwnd) * a->bytes + c->carry;
        next += grow / cwnd;
        c->carry = (uint32_t)(grow % cwnd);
    }
    tp->snd_cwnd = (uint32_t)MIN(next, tcp_cc_max_window(tp));
}

static void cubic_acked(struct tcpcb *tp, const struct tcp_cc_ack *a)
{
    struct cubic *c = cubic_of(tp);
    uint64_t since = tp->t_stack->now - c->last_ns;
    c->last_ns = tp->t_stack->now;
    if (!tcp_cc_is_limited(tp, a)) {
        /* Time in which the window is not used must not count as growth (5.8). */
        if (c->epoch_ns)
            c->epoch_ns += since;
        return;
    }
    if (tp->snd_cwnd > tp->snd_ssthresh) {
        cubic_avoidance(tp, a);
        return;
    }
    c->epoch_ns = 0;
    uint64_t next = (uint64_t)tp->snd_cwnd + tcp_cc_slow_start(tp, a);
    tp->snd_cwnd = (uint32_t)MIN(next, tcp_cc_max_window(tp));
}

static void reduce(struct tcpcb *tp)
{
    struct cubic *c = cubic_of(tp);
    uint32_t mss = tcp_segment_size(tp), cwnd = tp->snd_cwnd;
    c->epoch_ns = 0;
    c->cwnd_prior = cwnd;
    /* Fast convergence (4.7): a flow that did not come back to its old maximum leaves room for
     * others. */
    if (cwnd < c->w_max)
        c->w_max =
            (uint32_t)((uint64_t)cwnd * (CUBIC_BETA_DEN + CUBIC_BETA_NUM) / (2 * CUBIC_BETA_DEN));
    else
        c->w_max = cwnd;
    uint32_t beta = (uint32_t)((uint64_t)cwnd * CUBIC_BETA_NUM / CUBIC_BETA_DEN);
    if (KNOB(tp->t_stack, tcp_freebsd_wire) && !c->reduced) { /* slow start overshot: by half */
        c->w_max = beta;
        beta = cwnd / 2;
    }
    c->reduced = true;
    tp->snd_ssthresh = MAX(beta, 2 * mss);
}

static void cubic_event(struct tcpcb *tp, enum tcp_cc_event e)
{
    struct cubic *c = cubic_of(tp);
    switch (e) {
    case TCP_CC_LOSS:
        reduce(tp);
        break;
    case TCP_CC_ECN:
        reduce(tp);
        tp->snd_cwnd = tp->snd_ssthresh;
        break;
    case TCP_CC_TIMEOUT:
        c->w_max_prev = c->w_max;
        reduce(tp);
        break;
    case TCP_CC_UNDO:
        c->w_max = c->w_max_prev;
        c->epoch_ns = 0;
        break;
    case TCP_CC_IDLE:
        c->epoch_ns = 0;
        tcp_cc_restart(tp);
        break;
    }
}

const struct tcp_cc tcp_cc_cubic = {
    .name = "cubic",
    .init = cubic_init,
    .acked = cubic_acked,
    .event = cubic_event,
};
