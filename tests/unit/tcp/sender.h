/* SPDX-License-Identifier: BSD-2-Clause
 * What the tests of TCP's output share: a connection whose stack side sends a known stream. */
#ifndef WEIR_TESTS_SENDER_H
#define WEIR_TESTS_SENDER_H

#include "world.h"
#include <fcntl.h>
#include <netinet/in.h>

#define OPT_NODELAY 1
#define OPT_CORK 3

static struct conn cn;
static uint32_t base_seq; /* of the first byte the stack sends */
static size_t written;

UNUSED static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 131 + (i >> 9) * 7);
}

/* A connection with the peer's options as cn says: conn_init first, then change cn, then this. */
UNUSED static void sender_open(void)
{
    int size = 1 << 20;
    conn_accept(&cn, &w.listener, w.s);
    peer_drain(w.p);
    assert_int_equal(weir_setsockopt(cn.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    base_seq = cn.rcv_nxt;
    written = 0;
}

UNUSED static void sender_init(void)
{
    conn_init(&cn, w.p, w.next_port++, 80);
}

/* The usual one: no timestamps, so that a segment is 1460 bytes. */
UNUSED static void sender_plain(void)
{
    sender_init();
    cn.ts = false;
    sender_open();
}

UNUSED static void send_flags(size_t n, int flags)
{
    static uint8_t buf[1 << 20];
    for (size_t i = 0; i < n; i++)
        buf[i] = byte_at(written + i);
    ssize_t r = weir_send(cn.fd, buf, n, flags);
    assert_int_equal(r, (ssize_t)n);
    written += n;
    sim_settle(w.sim);
}

UNUSED static void send_n(size_t n)
{
    send_flags(n, 0);
}

/* The next segment is data of this length at this offset of the stream, right in content; flags
 * compared unless 0. */
UNUSED static void expect_data(uint32_t off, uint32_t len, uint8_t flags, uint64_t within_ns)
{
    assert_true(conn_next(&cn, &w.k, within_ns));
    assert_int_equal(w.k.th.seq, base_seq + off);
    assert_int_equal(w.k.len, len);
    if (flags)
        assert_int_equal(w.k.th.flags, flags);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(w.k.data[i], byte_at(off + i));
}

UNUSED static void expect_segments(uint32_t off, unsigned n, uint32_t len)
{
    for (unsigned i = 0; i < n; i++)
        expect_data(off + i * len, len, 0, 0);
}

UNUSED static void expect_nothing(uint64_t ns)
{
    assert_true(peer_quiet(w.p, ns));
}

/* ACK up to an offset of the stream with a window field (< 0: the usual one). */
UNUSED static void ack_win(uint32_t off, int win)
{
    conn_send(&cn, &(struct segment){
                       .seq = cn.snd_nxt, .ack = base_seq + off, .flags = TH_ACK, .win = win});
}

UNUSED static void ack_to(uint32_t off)
{
    ack_win(off, -1);
}

/* A duplicate ACK at `off` with up to three SACK blocks in stream offsets. */
UNUSED static void ack_sack(uint32_t off, unsigned n, const uint32_t *edges)
{
    struct sack_block b[3];
    for (unsigned i = 0; i < n; i++)
        b[i] = (struct sack_block){base_seq + edges[2 * i], base_seq + edges[2 * i + 1]};
    conn_send(&cn, &(struct segment){.seq = cn.snd_nxt,
                                     .ack = base_seq + off,
                                     .flags = TH_ACK,
                                     .win = -1,
                                     .sack = b,
                                     .nsack = n});
}

UNUSED static void set_opt(int name, int v)
{
    assert_int_equal(weir_setsockopt(cn.fd, IPPROTO_TCP, name, &v, sizeof(v)), 0);
    sim_settle(w.sim);
}

/* Close with a reset: nothing of it will come up again. */
UNUSED static void sender_abort(void)
{
    struct linger hard = {.l_onoff = 1};
    assert_int_equal(weir_setsockopt(cn.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    weir_close(cn.fd);
    sim_settle(w.sim);
    peer_drain(w.p);
}

#endif
