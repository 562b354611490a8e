/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: every combination of flags in every state, in order and out of the window, gives what RFC
 * 9293 3.10.7 (with RFC 5961) says: the state afterwards, and whether the answer is nothing, an
 * ACK, a SYN-ACK or a reset. Bound: under 60 s. */
#include "world.h"

enum answer { NOTHING, ACK, SYN_ACK, RST };
struct outcome {
    int state;
    enum answer answer;
};

/* Bring a new connection into a state; its segments' ACK of all we sent, but for the FIN of
 * half_acked states. */
static void reach(struct conn *c, int state)
{
    conn_init(c, w.p, w.next_port++, 80);
    c->ts = false;
    if (state == TCPS_CLOSED)
        c->dport = 81;
    if (state == TCPS_SYN_SENT || state == TCPS_SYN_RECEIVED) {
        struct sockaddr_storage ss;
        socklen_t sl = peer_sockaddr(peer_remote(w.p), c->sport, &ss);
        c->fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(weir_connect(c->fd, (struct sockaddr *)&ss, sl), -1);
        c->dport = 0;
        expect_flags(c, TH_SYN, MS);
        c->dport = w.k.th.sport;
        if (state == TCPS_SYN_RECEIVED) {
            conn_flags(c, TH_SYN);
            expect_flags(c, TH_SYN | TH_ACK, MS);
        }
        return;
    }
    if (state <= TCPS_LISTEN)
        return;
    conn_accept(c, &w.listener, w.s);
    if (state == TCPS_CLOSE_WAIT || state == TCPS_LAST_ACK) {
        conn_flags(c, TH_FIN | TH_ACK);
        expect_ack(c, c->snd_nxt);
    }
    if (state == TCPS_ESTABLISHED || state == TCPS_CLOSE_WAIT)
        return;
    weir_shutdown(c->fd, SHUT_WR);
    expect_flags(c, TH_FIN | TH_ACK, 50 * MS);
    if (state == TCPS_CLOSING || state == TCPS_TIME_WAIT) {
        struct segment g = seg_at(c, c->snd_nxt, TH_FIN | TH_ACK, 0);
        g.ack -= state == TCPS_CLOSING;
        conn_send(c, &g);
        c->snd_nxt++;
        assert_true(conn_next(c, &w.k, 50 * MS)); /* in CLOSING it carries our FIN again */
        assert_int_equal(w.k.th.ack, c->snd_nxt);
    }
    if (state == TCPS_FIN_WAIT_2)
        conn_ack(c);
}

static void dispose(struct conn *c)
{
    if (c->fd >= 0) {
        struct linger l = {1, 0};
        weir_setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
        weir_close(c->fd);
    }
    struct tcpcb *tp = world_tcpcb(c);
    if (tp) {
        assert_true(owner_try(w.s));
        tcp_abort(tp);
        stack_leave(w.s);
    }
    sim_run(w.sim, 10 * MS);
    peer_drain(w.p);
}

/* --- the oracle: RFC 9293 3.10.7, written down a second time --- */

static struct outcome closed(uint8_t f, int state)
{
    return (struct outcome){state, f & TH_RST ? NOTHING : RST};
}

static struct outcome listening(uint8_t f)
{
    if (f & TH_RST)
        return (struct outcome){TCPS_CLOSED, NOTHING};
    if (f & TH_ACK)
        return (struct outcome){TCPS_CLOSED, RST};
    return (struct outcome){TCPS_CLOSED, f & TH_SYN ? SYN_ACK : NOTHING};
}

static struct outcome syn_sent(uint8_t f)
{
    if (f & TH_RST)
        return (struct outcome){f & TH_ACK ? TCPS_CLOSED : TCPS_SYN_SENT, NOTHING};
    if (!(f & TH_SYN))
        return (struct outcome){TCPS_SYN_SENT, NOTHING};
    if (!(f & TH_ACK))
        return (struct outcome){TCPS_SYN_RECEIVED, SYN_ACK};
    return (struct outcome){f & TH_FIN ? TCPS_CLOSE_WAIT : TCPS_ESTABLISHED, ACK};
}

static struct outcome fin_at_edge(int state)
{
    switch (state) {
    case TCPS_ESTABLISHED:
        return (struct outcome){TCPS_CLOSE_WAIT, ACK};
    case TCPS_FIN_WAIT_2:
        return (struct outcome){TCPS_TIME_WAIT, ACK};
    default: /* after the peer's first FIN there is nothing beyond it */
        return (struct outcome){state, NOTHING};
    }
}

/* What the ACK of everything does by itself. */
static int acked(int state)
{
    switch (state) {
    case TCPS_SYN_RECEIVED:
        return TCPS_ESTABLISHED;
    case TCPS_FIN_WAIT_1:
        return TCPS_FIN_WAIT_2;
    case TCPS_CLOSING:
        return TCPS_TIME_WAIT;
    case TCPS_LAST_ACK:
        return TCPS_CLOSED;
    default:
        return state;
    }
}

static struct outcome synchronized(int state, uint8_t f)
{
    if (f & TH_RST)
        return (struct outcome){state == TCPS_TIME_WAIT ? state : TCPS_CLOSED, NOTHING};
    if ((f & TH_SYN) && state != TCPS_SYN_RECEIVED)
        return (struct outcome){state, ACK};
    if (!(f & TH_ACK)) /* a FIN is kept until the handshake is over */
        return (struct outcome){state,
                                state == TCPS_SYN_RECEIVED && f & TH_FIN ? SYN_ACK : NOTHING};
    if (state == TCPS_TIME_WAIT) /* everything but a plain ACK is acknowledged */
        return (struct outcome){state, f == TH_ACK ? NOTHING : ACK};
    if (state == TCPS_CLOSING || state == TCPS_LAST_ACK)
        return (struct outcome){acked(state), NOTHING};
    return f & TH_FIN ? fin_at_edge(acked(state)) : (struct outcome){acked(state), NOTHING};
}

/* One beyond the window. */
static struct outcome outside(int state, uint8_t f)
{
    if (f & TH_RST)
        return (struct outcome){state, NOTHING};
    if (state == TCPS_TIME_WAIT) {
        /* A SYN above the window is a new connection's. */
        if ((f & (TH_SYN | TH_ACK)) == TH_SYN)
            return (struct outcome){TCPS_CLOSED, SYN_ACK};
        return (struct outcome){state, f & TH_ACK ? ACK : NOTHING};
    }
    if (state == TCPS_SYN_RECEIVED)
        return (struct outcome){state, SYN_ACK};
    return (struct outcome){state, ACK};
}

static struct outcome oracle(int state, uint8_t f, bool in_window)
{
    switch (state) {
    case TCPS_CLOSED:
        return closed(f, state);
    case TCPS_LISTEN:
        return listening(f);
    case TCPS_SYN_SENT:
        return syn_sent(f);
    default:
        return in_window ? synchronized(state, f) : outside(state, f);
    }
}

static enum answer answer_seen(struct conn *c)
{
    enum answer a = NOTHING;

    while (conn_next(c, &w.k, 5 * MS)) {
        uint8_t f = w.k.th.flags & (TH_SYN | TH_ACK | TH_RST);
        assert_int_equal(w.k.len, 0);
        if (a != NOTHING)
            fail_msg("a second answer, flags %#x", w.k.th.flags);
        a = f & TH_RST ? RST : f == (TH_SYN | TH_ACK) ? SYN_ACK : ACK;
    }
    return a;
}

static void try_flags(int state, uint8_t f, bool in_window)
{
    struct conn c;
    struct outcome want = oracle(state, f, in_window), got;

    reach(&c, state);
    struct segment g = seg_at(&c, c.snd_nxt + (in_window ? 0 : 200000), f, 0);
    conn_send(&c, &g);
    got.answer = answer_seen(&c);
    got.state = world_state(&c);
    if (got.state != want.state || got.answer != want.answer)
        fail_msg("%s, flags %#x, %s the window: %s and answer %d, not %s and %d",
                 tcp_state_name(state), f, in_window ? "in" : "outside", tcp_state_name(got.state),
                 got.answer, tcp_state_name(want.state), want.answer);
    dispose(&c);
}

/* case: FUN-140, FUN-053 */
static void test_all(void **state)
{
    struct conn c;

    world_accept(&c);
    dispose(&c);
    sim_sysctl(w.s, "net.inet.icmp.icmplim", "0");
    sim_sysctl(w.s, "net.inet.tcp.ecn.enable", "0");
    for (int st = 0; st < TCPS_COUNT; st++) {
        for (unsigned f = 0; f < 256; f++) {
            try_flags(st, (uint8_t)f, true);
            if (st >= TCPS_SYN_RECEIVED)
                try_flags(st, (uint8_t)f, false);
        }
        w.next_port = (uint16_t)(10000 + st * 1000);
    }
}

/* A segment that would change each state, but for its data offset: below the header's size, or
 * beyond what came. */
/* case: SEC-040 */
static void test_data_offset_everywhere(void **state)
{
    static const uint8_t flags[] = {TH_RST, TH_SYN, TH_SYN | TH_ACK, TH_ACK, TH_FIN | TH_ACK};
    struct conn c;

    world_accept(&c);
    dispose(&c);
    for (int st = 0; st < TCPS_COUNT; st++) {
        reach(&c, st);
        int before = world_state(&c);
        uint64_t dropped = sim_counter(w.s, "tcp.rx_badoff"), sent = 0;
        for (unsigned doff = 0; doff < 16; doff++) {
            for (uint32_t len = 20; len <= 60; len += 13) {
                uint8_t b[60] = {0};
                put_be16(b, c.sport);
                put_be16(b + 2, c.dport);
                put_be32(b + 4, c.snd_nxt);
                put_be32(b + 8, c.rcv_nxt);
                b[12] = (uint8_t)(doff << 4);
                b[13] = flags[(doff + len) % NELEM(flags)];
                put_be16(b + 14, 1000);
                if (doff >= 5 && doff * 4 <= len)
                    continue;
                peer_inject_ip(w.p, NULL, IPPROTO_TCP, b, len);
                sent++;
            }
        }
        sim_settle(w.sim);
        if (answer_seen(&c) != NOTHING || world_state(&c) != before)
            fail_msg("%s: answered, or now %s", tcp_state_name(st),
                     tcp_state_name(world_state(&c)));
        assert_int_equal(sim_counter(w.s, "tcp.rx_badoff") - dropped, sent);
        dispose(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_all),
        WORLD_TEST(test_data_offset_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
