/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever a peer sends, with an application that reads, writes and closes at random and
 * memory that runs out at times, no assertion fails, nothing leaks, and what is delivered of the
 * peer's stream is the peer's. Bound: under 20 s. */
#include "world.h"

#define CONNS 8

static uint8_t buf[70000];

struct play {
    struct conn c;
    bool open;     /* c.fd is ours */
    bool genuine;  /* the peer has sent nothing but its pattern: the stream can be checked */
    uint32_t read; /* bytes taken so far */
};

static void check_stream(struct play *p, ssize_t n)
{
    for (ssize_t i = 0; i < n && p->genuine; i++)
        assert_int_equal(buf[i], peer_pattern(p->read + (uint32_t)i));
    p->read += n > 0 ? (uint32_t)n : 0;
}

static void application(struct rng *r, struct play *p)
{
    if (!p->open)
        return;
    switch (rng_below(r, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        check_stream(p, weir_read(p->c.fd, buf, rng_below(r, sizeof(buf))));
        break;
    case 4:
    case 5:
    case 6:
        weir_write(p->c.fd, buf, rng_below(r, 20000));
        break;
    case 7:
        if (rng_below(r, 10) == 0)
            weir_shutdown(p->c.fd, (int)rng_below(r, 3));
        break;
    case 8:
        if (rng_below(r, 20) == 0) {
            weir_close(p->c.fd);
            p->open = false;
        }
        break;
    default:
        break;
    }
}

static void random_options(struct rng *r, struct segment *g, uint8_t *opt)
{
    if (rng_below(r, 8))
        return;
    g->optlen = rng_below(r, 11) * 4;
    rng_bytes(r, opt, g->optlen);
    for (uint32_t i = 0; i + 1 < g->optlen && rng_below(r, 2); i += 4) { /* nearly right ones */
        static const uint8_t kinds[] = {2, 3, 4, 5, 8, 1, 0, 29};
        opt[i] = kinds[rng_below(r, 8)];
        opt[i + 1] = (uint8_t)rng_below(r, 14);
    }
    g->opt = opt;
}

static void peer_sends(struct rng *r, struct play *p)
{
    struct conn *c = &p->c;
    uint8_t opt[40];
    struct segment g = seg_at(c, c->snd_nxt, TH_ACK, 0);

    switch (rng_below(r, 10)) {
    case 0:
    case 1:
    case 2:
        conn_data(c, 1 + rng_below(r, 3000));
        return;
    case 3:
        conn_ack(c);
        return;
    case 4:
    case 5: /* its own stream, somewhere around */
        g.seq += rng_below(r, 8000) - 4000;
        if (SEQ_LT(g.seq, c->iss + 1))
            g.seq = c->iss + 1;
        g.len = rng_below(r, 3000);
        conn_send(c, &g);
        return;
    default:
        break;
    }
    /* Anything. */
    g.flags = rng_below(r, 3) ? (uint8_t)(TH_ACK | rng_below(r, 256)) : (uint8_t)rng_below(r, 256);
    if (rng_below(r, 4))
        g.flags &= (uint8_t)~TH_RST;
    g.seq += rng_below(r, 2) ? rng_below(r, 200000) - 100000 : rng_below(r, 5) - 2;
    g.ack += rng_below(r, 2) ? rng_below(r, 200000) - 100000 : rng_below(r, 5) - 2;
    g.win = rng_below(r, 3) ? -1 : (int)rng_below(r, 65536);
    g.urp = rng_below(r, 4) ? (uint16_t)rng_below(r, 100) : (uint16_t)rng_u32(r);
    g.len = rng_below(r, 4) ? rng_below(r, 100) : rng_below(r, 40000);
    g.no_ts = rng_below(r, 4) == 0;
    random_options(r, &g, opt);
    if ((g.flags & (TH_SYN | TH_URG | TH_FIN)))
        p->genuine = false; /* an urgent byte leaves the stream, a SYN shifts the pattern */
    conn_send(c, &g);
}

static void round_of(struct rng *r, bool memory_fails)
{
    static struct play play[CONNS];

    for (int i = 0; i < CONNS; i++) {
        struct play *p = &play[i];
        *p = (struct play){.genuine = true, .open = true};
        conn_init(&p->c, w.p, w.next_port++, 80);
        p->c.iss = p->c.snd_nxt = rng_u32(r);
        p->c.ts = rng_below(r, 2);
        p->c.sack = rng_below(r, 4);
        p->c.wscale = rng_below(r, 3) ? 7 : -1;
        p->c.mss = rng_below(r, 3) ? 1460 : (uint16_t)rng_below(r, 2000);
        if (rng_below(r, 2)) {
            conn_accept(&p->c, &w.listener, w.s);
        } else {
            p->c.dport = 0;
            conn_connect(&p->c, w.s);
        }
    }
    for (int step = 0; step < 1500; step++) {
        struct play *p = &play[rng_below(r, CONNS)];
        if (memory_fails && rng_below(r, 10) == 0) {
            sim_fail_alloc_after(w.sim, rng_below(r, 4));
            atomic_store(&w.s->account->fail_after, 4 + rng_below(r, 6)); /* not the peer's own */
        }
        if (rng_below(r, 3))
            peer_sends(r, p);
        else
            application(r, p);
        sim_fail_alloc_after(w.sim, -1);
        atomic_store(&w.s->account->fail_after, -1);
        while (rng_below(r, 3) && conn_next(&p->c, &w.k, rng_below(r, 4) ? 0 : 300 * MS))
            ;
        if (rng_below(r, 50) == 0)
            sim_run(w.sim, rng_below(r, 3000) * MS);
        peer_drain(w.p);
    }
    for (int i = 0; i < CONNS; i++) {
        if (play[i].open)
            weir_close(play[i].c.fd);
    }
    /* With what random SYNs and ACKs may have put into its queue. */
    if (w.listener >= 0)
        weir_close(w.listener);
    w.listener = -1;
    sim_run(w.sim, 400 * NS_PER_S);
    peer_drain(w.p);
}

/* case: SEC-068 */
static void test_any_segment(void **state)
{
    struct rng r;

    unit_seed(&r, "any_segment");
    for (int i = 0; i < 12; i++)
        round_of(&r, false);
}

static void test_any_segment_and_no_memory(void **state)
{
    struct rng r;

    unit_seed(&r, "no_memory");
    for (int i = 0; i < 12; i++)
        round_of(&r, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_any_segment),
        WORLD_TEST(test_any_segment_and_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
