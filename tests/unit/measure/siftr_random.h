/* SPDX-License-Identifier: BSD-2-Clause
 * Records for tests of the flow log: any, and those of a connection that sends in bulk. */
#ifndef WEIR_TESTS_SIFTR_RANDOM_H
#define WEIR_TESTS_SIFTR_RANDOM_H

#include "measure/siftr_record.h"

struct siftr_random {
    uint64_t state;
};

static inline uint64_t random64(struct siftr_random *x)
{
    uint64_t z = (x->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t random_below(struct siftr_random *x, uint32_t n)
{
    return (uint32_t)(random64(x) >> 32) % n;
}

/* Of any size, the ends of the range often. */
static inline uint32_t random_value(struct siftr_random *x)
{
    static const uint32_t ends[] = {0,   1,     9,          10,         99,
                                    100, 65535, 0x7fffffff, 0x80000000, UINT32_MAX};
    if (random_below(x, 4) == 0)
        return ends[random_below(x, NELEM(ends))];
    return (uint32_t)random64(x) >> random_below(x, 32);
}

/* Many zeros, so that text has something to leave out. */
static inline void random_address(struct siftr_random *x, uint8_t family, uint8_t out[16])
{
    unsigned words = family == 6 ? 8 : 2;
    memset(out, 0, 16);
    for (unsigned i = 0; i < words; i++) {
        if (random_below(x, 3) == 0)
            continue;
        uint16_t v = (uint16_t)(random64(x) >> random_below(x, 16));
        out[2 * i] = (uint8_t)(v >> 8);
        out[2 * i + 1] = (uint8_t)v;
    }
}

static inline void random_flow(struct siftr_random *x, struct siftr_record *r)
{
    r->family = random_below(x, 2) ? 6 : 4;
    r->flowtype = r->family == 6 ? 4 : 2;
    random_address(x, r->family, r->laddr);
    random_address(x, r->family, r->faddr);
    r->lport = (uint16_t)random_value(x);
    r->fport = (uint16_t)random_value(x);
    r->flowid = random_value(x);
}

/* All but the flow. */
static inline void random_values(struct siftr_random *x, struct siftr_record *r)
{
    r->direction = (uint8_t)random_below(x, 2);
    r->time_ns += random_below(x, 20) == 0 ? random64(x) >> 4 : random_below(x, 100000);
    r->snd_scale = (uint8_t)random_value(x);
    r->rcv_scale = (uint8_t)random_below(x, 15);
    r->state = (uint8_t)(random_below(x, 9) ? 4 : random_value(x));
    r->sack = (uint8_t)random_below(x, 2);
    uint32_t *first = &r->ssthresh, *end = &r->flowid;
    for (uint32_t *v = first; v < end; v++)
        if (random_below(x, 2))
            *v = random_below(x, 2) ? random_value(x) : *v + random_below(x, 3000) - 1500;
}
_Static_assert(offsetof(struct siftr_record, flowid) - offsetof(struct siftr_record, ssthresh) ==
                   15 * 4,
               "fifteen numbers in a row");

/* A sender in bulk, MTU-sized, an ACK for two segments, as logged on a path of 1 Gbit/s. */
struct siftr_bulk {
    struct siftr_record r;
    uint32_t rttvar_us;
    unsigned burst; /* segments that may leave before the next ACK */
};

static inline void bulk_init(struct siftr_bulk *b)
{
    *b = (struct siftr_bulk){.r = {.time_ns = UINT64_C(1690290836487990123),
                                   .laddr = {10, 1, 1, 2},
                                   .faddr = {10, 1, 1, 3},
                                   .lport = 40725,
                                   .fport = 5001,
                                   .family = 4,
                                   .snd_scale = 7,
                                   .rcv_scale = 6,
                                   .state = 4,
                                   .sack = 1,
                                   .flowtype = 2,
                                   .ssthresh = 1073725440,
                                   .cwnd = 14480,
                                   .flags2 = 32,
                                   .snd_wnd = 65728,
                                   .rcv_wnd = 66608,
                                   .mss = 1448,
                                   .srtt_us = 1562,
                                   .flags = 16778208,
                                   .rto_us = 230000,
                                   .snd_limit = 33304,
                                   .rcv_limit = 66608,
                                   .flowid = 2931540183},
                             .rttvar_us = 500};
}

static inline void bulk_ack(struct siftr_bulk *b, struct siftr_random *x)
{
    struct siftr_record *r = &b->r;
    uint32_t acked = MIN(r->inflight, 2 * r->mss);
    uint32_t sample_us = 1500 + random_below(x, 400);
    uint32_t error_us = sample_us > r->srtt_us ? sample_us - r->srtt_us : r->srtt_us - sample_us;
    r->inflight -= acked;
    r->snd_fill -= acked;
    r->srtt_us = r->srtt_us - r->srtt_us / 8 + sample_us / 8;
    b->rttvar_us = b->rttvar_us - b->rttvar_us / 4 + error_us / 4;
    r->rto_us = MAX(r->srtt_us + 4 * b->rttvar_us, 230000u);
    if (r->cwnd < r->ssthresh)
        r->cwnd += acked;
    else
        r->cwnd += r->mss * r->mss / r->cwnd;
    if (r->cwnd > 1000000) { /* a loss */
        r->ssthresh = r->cwnd / 2;
        r->cwnd = r->ssthresh;
    }
    r->snd_wnd = 3000000 - random_below(x, 20) * 1448;
    r->snd_limit = MIN(r->snd_limit + acked, 4194304u);
    r->snd_fill = MIN(r->snd_fill + 16384, r->snd_limit);
    uint32_t may = MIN(MIN(r->cwnd, r->snd_wnd), r->snd_fill);
    b->burst = may > r->inflight ? (may - r->inflight) / r->mss : 0;
}

/* The next packet, as logged. */
static inline struct siftr_record bulk_next(struct siftr_bulk *b, struct siftr_random *x)
{
    struct siftr_record logged;
    b->r.time_ns += 2000 + random_below(x, 9000);
    b->r.direction = b->burst > 0 ? SIFTR_OUT : SIFTR_IN;
    logged = b->r;
    if (b->burst > 0) {
        b->burst--;
        b->r.inflight += b->r.mss;
    } else {
        bulk_ack(b, x);
    }
    return logged;
}

#endif
