/* SPDX-License-Identifier: BSD-2-Clause
 * One stack, one scripted peer: what the tests of TCP's input share. */
#ifndef WEIR_TESTS_WORLD_H
#define WEIR_TESTS_WORLD_H

#include "../base/unit.h"
#include "peer.h"
#include "socket/socket.h"
#include "tcp/tcp_var.h"
#include <errno.h>

#define MS NS_PER_MS

struct world {
    struct sim *sim;
    struct weir_stack *s;
    struct peer *p;
    int listener;
    uint16_t next_port; /* of the peer */
    struct packet k;    /* the last one looked at */
};
static struct world w;

UNUSED static void world_open(const char *local, const char *remote)
{
    w.sim = sim_create(7, 0);
    w.s = sim_stack(w.sim, "unit");
    w.p = peer_create(w.sim, w.s, local, remote, 0);
    w.listener = -1;
    w.next_port = 40000;
}

UNUSED static int world_setup(void **state)
{
    world_open("192.0.2.1", "192.0.2.2");
    return 0;
}

/* Whatever a test leaves, every mbuf and every byte must come back. */
UNUSED static int world_teardown(void **state)
{
    sim_destroy(w.sim);
    return 0;
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

/* A connection made by the peer to a listener on port 80, accepted: c->fd. */
UNUSED static void world_accept(struct conn *c)
{
    conn_init(c, w.p, w.next_port++, 80);
    conn_accept(c, &w.listener, w.s);
}

struct find {
    struct conn *c;
    struct tcpcb *found;
    unsigned count;
};

UNUSED static void find_tcpcb(struct tcpcb *tp, void *ctx)
{
    struct find *f = ctx;
    if (tp->t_state == TCPS_LISTEN || tp->t_state == TCPS_CLOSED)
        return;
    if (tp->t_flow.fport == f->c->sport && tp->t_flow.lport == f->c->dport) {
        f->found = tp;
        f->count++;
    }
}

/* The stack's side of c, NULL when it is gone. */
UNUSED static struct tcpcb *world_tcpcb(struct conn *c)
{
    struct find f = {c, NULL, 0};
    tcp_foreach(w.s, find_tcpcb, &f);
    assert_true(f.count <= 1);
    return f.found;
}

struct find_record {
    struct conn *c;
    const struct tcptw *found;
};

UNUSED static void find_tcptw(const struct tcptw *tw, void *ctx)
{
    struct find_record *f = ctx;
    if (tw->flow.fport == f->c->sport && tw->flow.lport == f->c->dport) {
        assert_null(f->found);
        f->found = tw;
    }
}

/* The record that is left of c in TIME_WAIT, NULL: none. */
UNUSED static const struct tcptw *world_record(struct conn *c)
{
    struct find_record f = {c, NULL};
    tcp_timewait_foreach(w.s, find_tcptw, &f);
    return f.found;
}

/* TCPS_CLOSED when it is gone. */
UNUSED static int world_state(struct conn *c)
{
    struct tcpcb *tp = world_tcpcb(c);
    if (world_record(c)) {
        assert_null(tp);
        return TCPS_TIME_WAIT;
    }
    return tp ? tp->t_state : TCPS_CLOSED;
}

/* The next packet is of this connection and has exactly these flags. */
UNUSED static void expect_flags(struct conn *c, uint8_t flags, uint64_t within_ns)
{
    assert_true(conn_next(c, &w.k, within_ns));
    assert_int_equal(w.k.th.flags, flags);
}

UNUSED static void expect_ack(struct conn *c, uint32_t ack)
{
    expect_flags(c, TH_ACK, 50 * MS);
    assert_int_equal(w.k.th.ack, ack);
    assert_int_equal(w.k.len, 0);
}

UNUSED static void expect_quiet(void)
{
    assert_true(peer_quiet(w.p, 100 * MS));
}

UNUSED static struct segment seg_at(struct conn *c, uint32_t seq, uint8_t flags, uint32_t len)
{
    return (struct segment){.seq = seq, .ack = c->rcv_nxt, .flags = flags, .win = -1, .len = len};
}

/* Send at an offset from the peer's next sequence number. */
UNUSED static void send_at(struct conn *c, int32_t off, uint8_t flags, uint32_t len)
{
    struct segment g = seg_at(c, c->snd_nxt + (uint32_t)off, flags, len);
    conn_send(c, &g);
}

/* Read what is there; checks it against the peer's pattern from stream offset `from`. */
UNUSED static ssize_t read_pattern(int fd, uint32_t from, uint8_t *buf, size_t size)
{
    ssize_t n = weir_read(fd, buf, size);
    for (ssize_t i = 0; i < n; i++)
        assert_int_equal(buf[i], peer_pattern(from + (uint32_t)i));
    return n;
}

#endif
