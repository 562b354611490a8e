/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: two stacks deliver every byte in order through links that lose, duplicate, reorder and
 * delay, with each combination of SACK, timestamps, TSO and congestion control; the sender keeps
 * its invariants at each step, and nothing of a connection is left at the end. Bound: under 60 s,
 * virtual time under 10 minutes each. */
#include "../base/unit.h"
#include "sim.h"
#include "socket/socket.h"
#include "tcp/tcp_sent.h"
#include <fcntl.h>

static struct sim *sim;
static struct weir_stack *a, *b;
static int lfd, cfd, dfd;

struct flow_state {
    int from, to;
    size_t total, sent, got;
    bool closed; /* our FIN was asked for */
    bool eof;
};

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 131 + (i >> 9) * 7 + (i >> 17));
}

static struct tcpcb *found;
static void find_first(struct tcpcb *tp, void *ctx)
{
    if (tp->t_state != TCPS_LISTEN && tp->t_state != TCPS_CLOSED)
        found = tp;
}

/* case: FUN-074 */
static void watch_segment(void *ctx, struct weir_stack *s, enum hook_direction dir,
                          const struct tcpcb *tp, const struct mbuf *m)
{
    if (dir != HOOK_OUT || !tp || tp->t_state < TCPS_ESTABLISHED)
        return;
    struct tcp_header th;
    assert_int_equal(tcp_header_parse(m->m_data, m->m_len, &th), 0);
    uint32_t len = m->m_pkt.len - th.off, pipe = tcp_sent_pipe(tp);
    if (!len || tcp_timer_active(tp, TT_PERSIST))
        return;
    if (th.seq == tp->snd_nxt) {
        assert_true(SEQ_LEQ(th.seq + len, tp->snd_una + tp->snd_wnd));
        assert_true(pipe + len <= tp->snd_cwnd + 2 * tp->t_maxseg); /* limited transmit */
    } else {
        assert_true(pipe <= tp->snd_cwnd || (tp->t_flags2 & TF2_REXMT_ONCE));
    }
}

/* case: FUN-083 */
static void check_sender(struct weir_stack *s)
{
    found = NULL;
    tcp_foreach(s, find_first, NULL);
    if (!found || found->t_state < TCPS_ESTABLISHED)
        return;
    struct tcpcb *tp = found;
    uint32_t used = sockbuf_used(&tp->t_so->so_snd), out = tp->snd_nxt - tp->snd_una;
    uint32_t fin = (tp->t_flags & TF_SENTFIN) && SEQ_LEQ(tp->snd_una, tp->t_finseq);
    if (tp->t_state != TCPS_TIME_WAIT)
        assert_true(out <= used + fin); /* what is out is still held */
    assert_true(tp->t_sacked_bytes + tp->t_lost_bytes <= out);
    assert_true(tp->t_rexmit_bytes <= tp->t_lost_bytes);
    /* Something waits: a timer runs. */
    if (out && tp->t_state < TCPS_TIME_WAIT)
        assert_true(tcp_timer_active(tp, TT_REXMT) || tcp_timer_active(tp, TT_PERSIST));
}

static bool pump(struct flow_state *f)
{
    static uint8_t buf[16384];
    bool any = false;
    while (f->sent < f->total) {
        size_t n = MIN(f->total - f->sent, sizeof(buf));
        for (size_t i = 0; i < n; i++)
            buf[i] = byte_at(f->sent + i);
        ssize_t r = weir_write(f->from, buf, n);
        if (r <= 0)
            break;
        f->sent += (size_t)r;
        any = true;
    }
    if (f->sent == f->total && !f->closed) {
        f->closed = true;
        weir_shutdown(f->from, SHUT_WR);
        any = true;
    }
    while (!f->eof) {
        ssize_t r = weir_read(f->to, buf, sizeof(buf));
        if (r < 0)
            break;
        f->eof = r == 0;
        for (ssize_t i = 0; i < r; i++)
            assert_int_equal(buf[i], byte_at(f->got + (size_t)i));
        f->got += (size_t)r;
        any = true;
    }
    return any;
}

static void net_open(uint64_t seed, const char *options)
{
    sim = sim_create(seed, 0);
    a = sim_stack(sim, "a");
    b = sim_stack(sim, "b");
    sim_join(sim, a, b, options);
    a->hooks.tcp_segment = b->hooks.tcp_segment = watch_segment;
}

static void both(const char *name, const char *value)
{
    sim_sysctl(a, name, value);
    sim_sysctl(b, name, value);
}

static void join_up(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(5001)};
    lfd = weir_socket(b, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(lfd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(weir_listen(lfd, 5), 0);
    sa.sin_addr.s_addr = htonl(0x0a000002);
    cfd = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    if (weir_connect(cfd, (struct sockaddr *)&sa, sizeof(sa)))
        fail_msg("connect: %s", strerror(errno));
    dfd = weir_accept4(lfd, NULL, NULL, SOCK_NONBLOCK);
    assert_true(dfd >= 0);
    weir_fcntl(cfd, F_SETFL, O_NONBLOCK);
}

static void net_close(void)
{
    weir_close(cfd);
    weir_close(dfd);
    weir_close(lfd);
    sim_run(sim, 1000 * NS_PER_S);
    found = NULL;
    tcp_foreach(a, find_first, NULL);
    tcp_foreach(b, find_first, NULL);
    assert_null(found);
    sim_destroy(sim);
}

/* Both directions at once. Returns virtual ns. */
static uint64_t transfer(size_t there, size_t back)
{
    struct flow_state f[2] = {{.from = cfd, .to = dfd, .total = there},
                              {.from = dfd, .to = cfd, .total = back}};
    uint64_t t0 = sim_now(sim);
    while (!f[0].eof || !f[1].eof) {
        bool any = pump(&f[0]);
        any |= pump(&f[1]);
        if (any) {
            sim_settle(sim);
            continue;
        }
        check_sender(a);
        check_sender(b);
        assert_true(sim_step(sim, sim_now(sim) + 300 * NS_PER_S));
        assert_true(sim_now(sim) - t0 < 600 * NS_PER_S);
    }
    assert_int_equal(f[0].got, there);
    assert_int_equal(f[1].got, back);
    return sim_now(sim) - t0;
}

static const char *const ills[] = {
    "delay=5ms",
    "delay=5ms,loss=1%,seed=3",
    "delay=2ms,reorder=10%:3,seed=4",
    "delay=3ms,loss=5%,dup=3%,reorder=5%:2,seed=5",
    "delay=10ms,rate=20Mbit,queue=15p,seed=6",
    "delay=1ms,corrupt=2%,seed=7",
};

/* case: SEC-056 FUN-083 */
static void test_every_combination(void **state)
{
    for (unsigned ill = 0; ill < NELEM(ills); ill++) {
        for (unsigned mode = 0; mode < 16; mode++) {
            if (ill % 3 != mode % 3 && mode) /* a third of them: enough to meet each pair */
                continue;
            net_open(100 + ill * 16 + mode, ills[ill]);
            both("net.inet.tcp.sack.enable", mode & 1 ? "0" : "1");
            both("net.inet.tcp.rfc1323", mode & 2 ? "0" : "1");
            both("net.inet.tcp.tso", mode & 4 ? "0" : "1");
            both("net.inet.tcp.cc.algorithm", mode & 8 ? "newreno" : "cubic");
            join_up();
            transfer(400000, mode % 5 ? 1000 : 200000);
            net_close();
        }
    }
}

static void test_tso_changes_nothing(void **state)
{
    for (int tso = 0; tso < 2; tso++) {
        net_open(9, "delay=5ms");
        both("net.inet.tcp.tso", tso ? "1" : "0");
        join_up();
        transfer(3000000, 0);
        assert_true(sim_counter(a, "tcp.tx_segs") >= 3000000 / 1448);
        if (tso)
            assert_true(sim_counter(a, "tcp.tx") * 4 < sim_counter(a, "tcp.tx_segs"));
        else
            assert_int_equal(sim_counter(a, "tcp.tx"), sim_counter(a, "tcp.tx_segs"));
        assert_int_equal(sim_counter(a, "tcp.tx_rexmt"), 0);
        net_close();
    }
}

/* Like join_up through a link so bad that it may fail. */
static bool try_join(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(5001)};
    lfd = weir_socket(b, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_bind(lfd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(weir_listen(lfd, 5), 0);
    sa.sin_addr.s_addr = htonl(0x0a000002);
    cfd = weir_socket(a, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    weir_connect(cfd, (struct sockaddr *)&sa, sizeof(sa));
    sim_run(sim, 30 * NS_PER_S);
    dfd = weir_accept4(lfd, NULL, NULL, SOCK_NONBLOCK);
    return dfd >= 0;
}

/* case: FUN-025 FUN-050 */
static void test_simultaneous_close(void **state)
{
    unsigned closed = 0;
    for (unsigned seed = 1; seed <= 60; seed++) {
        char options[64];
        snprintf(options, sizeof(options), "delay=5ms,loss=30%%,seed=%u", seed);
        net_open(seed, options);
        closed += try_join();
        weir_close(cfd);
        if (dfd >= 0)
            weir_close(dfd);
        weir_close(lfd);
        sim_run(sim, 2000 * NS_PER_S);
        found = NULL;
        tcp_foreach(a, find_first, NULL);
        tcp_foreach(b, find_first, NULL);
        assert_null(found);
        sim_destroy(sim);
    }
    assert_true(closed > 30);
}

static void test_fills_a_long_path(void **state)
{
    net_open(11, "delay=25ms,rate=100Mbit,queue=500p");
    join_up();
    uint64_t ns = transfer(20000000, 0);
    double mbit = 20000000 * 8.0 / ((double)ns / 1000.0);
    printf("%.1f Mb/s of 100\n", mbit);
    assert_true(mbit > 70);
    assert_int_equal(sim_counter(a, "tcp.rexmt_timeouts"), 0);
    net_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_combination),
        cmocka_unit_test(test_tso_changes_nothing),
        cmocka_unit_test(test_simultaneous_close),
        cmocka_unit_test(test_fills_a_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
