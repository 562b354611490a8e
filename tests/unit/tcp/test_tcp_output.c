/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what TCP sends and when: segment sizes, PSH, Nagle, corks, initial window, send window,
 * window updates, FIN, urgent data, ECN, and what happens when buffers run out. Bound: under 20 s.
 */
#include "sender.h"

/* Take all data segments that are out; checks content and size. Returns bytes; *pushes: how many
 * bore PSH. */
static uint32_t take_all(uint32_t off, uint32_t max_payload, unsigned *pushes, bool *last_pushed)
{
    uint32_t total = 0;
    *pushes = 0;
    while (conn_next(&cn, &w.k, 0)) {
        if (!w.k.len)
            continue;
        assert_int_equal(w.k.th.seq, base_seq + off + total);
        assert_true(w.k.len + w.k.optlen <= max_payload);
        for (uint32_t i = 0; i < w.k.len; i++)
            assert_int_equal(w.k.data[i], byte_at(off + total + i));
        total += w.k.len;
        *last_pushed = w.k.th.flags & TH_PUSH;
        *pushes += *last_pushed;
    }
    return total;
}

/* case: FUN-088 */
static void test_segment_size_and_push(void **state)
{
    static const uint16_t mss[] = {536, 1000, 8960};
    static const uint32_t sizes[] = {1, 1999, 10000};
    for (unsigned i = 0; i < NELEM(mss); i++) {
        for (unsigned k = 0; k < 2; k++) {
            sender_init();
            cn.mss = mss[i];
            cn.ts = k;
            sender_open();
            uint32_t off = 0;
            for (unsigned n = 0; n < NELEM(sizes); n++) {
                unsigned pushes = 0;
                bool last = false;
                send_n(sizes[n]);
                uint32_t sent = 0;
                while (sent < sizes[n]) {
                    unsigned p;
                    uint32_t got = take_all(off + sent, MIN(mss[i], 1460), &p, &last);
                    assert_true(got > 0);
                    sent += got;
                    pushes += p;
                    ack_to(off + sent);
                }
                assert_int_equal(pushes, 1); /* on the last piece only */
                assert_true(last);
                off += sizes[n];
            }
            weir_close(cn.fd);
        }
    }
    weir_close(w.listener);
}

/* case: SEC-016 */
static void test_tiny_mss(void **state)
{
    static const uint16_t mss[] = {0, 12, 40};
    sim_sysctl(w.s, "net.inet.tcp.minmss", "1");
    for (unsigned i = 0; i < NELEM(mss); i++) {
        sender_init();
        uint8_t opt[20] = {2, 4, 0, (uint8_t)mss[i], 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0};
        struct segment syn = {.seq = cn.iss, .flags = TH_SYN, .win = -1, .opt = opt, .optlen = 16};
        if (w.listener < 0) {
            struct conn first;
            world_accept(&first);
            weir_close(first.fd);
        }
        peer_drain(w.p);
        conn_send(&cn, &syn);
        cn.snd_nxt++;
        assert_true(conn_next(&cn, &w.k, 0));
        conn_ack(&cn);
        cn.fd = weir_accept4(w.listener, NULL, NULL, SOCK_NONBLOCK);
        assert_true(cn.fd >= 0);
        base_seq = cn.rcv_nxt;
        written = 0;
        /* Holes on our side: SACK blocks want to be sent back. */
        for (uint32_t h = 0; h < 3; h++) {
            struct segment g = seg_at(&cn, cn.snd_nxt + 100 + 200 * h, TH_ACK, 50);
            conn_send(&cn, &g);
        }
        peer_drain(w.p);
        send_n(1);
        expect_data(0, 1, 0, 0);
        assert_true(w.k.len >= 1);
        ack_to(1);
        send_n(300);
        unsigned pushes;
        bool last;
        uint32_t got = 0;
        while (got < 300) {
            uint32_t n = take_all(1 + got, 1460, &pushes, &last);
            assert_true(n > 0);
            got += n;
            ack_to(1 + got);
        }
        weir_close(cn.fd);
    }
    weir_close(w.listener);
}

/* A peer that offers `offered` gets segments of `mss`; what is no longer than one is one. */
static void expect_mss(uint16_t offered, uint32_t mss)
{
    const uint32_t sizes[] = {mss - 1, mss, mss + 1, 2 * mss};
    uint32_t off = 0;

    sender_init();
    cn.mss = offered;
    cn.ts = false;
    sender_open();
    for (unsigned i = 0; i < NELEM(sizes); i++) {
        send_n(sizes[i]);
        expect_data(off, MIN(sizes[i], mss), 0, 0);
        if (sizes[i] > mss)
            expect_data(off + mss, sizes[i] - mss, 0, 0);
        off += sizes[i];
        ack_to(off);
        expect_nothing(0);
    }
    weir_close(cn.fd);
}

/* case: SEC-017 */
static void test_mss_defaults(void **state)
{
    for (int v6 = 0; v6 < 2; v6++) {
        if (v6) {
            weir_close(w.listener);
            sim_destroy(w.sim);
            world_open("2001:db8::1", "2001:db8::2");
        }
        const uint16_t most = v6 ? 1440 : 1460;
        expect_mss(0, v6 ? 1220 : 536); /* no option */
        expect_mss(700, 700);
        expect_mss(most, most);
        expect_mss(most + 1, most);
        expect_mss(65535, most);
    }
    weir_close(w.listener);
}

/* case: FUN-085 */
static void test_nagle(void **state)
{
    sender_plain();
    send_n(100);
    expect_data(0, 100, TH_ACK | TH_PUSH, 0);
    send_n(100);
    send_n(50);
    expect_nothing(10 * MS);
    ack_to(100);
    expect_data(100, 150, TH_ACK | TH_PUSH, 0); /* the rest in one */
    set_opt(OPT_NODELAY, 1);
    send_n(10);
    send_n(20);
    expect_data(250, 10, 0, 0);
    expect_data(260, 20, 0, 0);
    /* A full segment never waits. */
    set_opt(OPT_NODELAY, 0);
    send_n(1500);
    expect_data(280, 1460, 0, 0);
    expect_nothing(MS);
    ack_to(1740);
    expect_data(1740, 40, 0, 0);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-086 */
static void test_cork_and_more(void **state)
{
    sender_plain();
    send_flags(100, MSG_MORE);
    conn_data(&cn, 10); /* an ACK must not take it along */
    sim_run(w.sim, 50 * MS);
    expect_ack(&cn, cn.snd_nxt);
    assert_true(conn_next(&cn, &w.k, 200 * MS));
    assert_int_equal(w.k.len, 100); /* after 200 ms it goes */
    assert_in_range(w.k.when_ns, SIM_START_NS + 195 * MS, SIM_START_NS + 210 * MS);
    ack_to(100);
    send_flags(50, MSG_MORE);
    expect_nothing(0);
    send_n(25); /* a plain send takes all along */
    expect_data(100, 75, TH_ACK | TH_PUSH, 0);
    ack_to(175);
    set_opt(OPT_CORK, 1);
    send_n(1470);
    expect_data(175, 1460, TH_ACK, 0); /* full segments go */
    ack_to(175 + 1460);
    expect_nothing(150 * MS);
    set_opt(OPT_CORK, 0);
    expect_data(175 + 1460, 10, TH_ACK | TH_PUSH, 0);
    ack_to(1645);
    /* close flushes */
    set_opt(OPT_CORK, 1);
    send_n(30);
    expect_nothing(MS);
    char buf[64];
    assert_int_equal(weir_read(cn.fd, buf, sizeof(buf)), 10);
    weir_close(cn.fd);
    expect_data(1645, 30, TH_ACK | TH_PUSH | TH_FIN, 0);
    /* and shutdown */
    sender_plain();
    send_flags(30, MSG_MORE);
    expect_nothing(MS);
    weir_shutdown(cn.fd, SHUT_WR);
    sim_settle(w.sim);
    assert_true(conn_next(&cn, &w.k, 0));
    assert_int_equal(w.k.len, 30);
    assert_true(w.k.th.flags & TH_FIN);
    weir_close(cn.fd);
    /* in any state */
    int fd = weir_socket(w.s, AF_INET, SOCK_STREAM, 0), one = 1, zero = 0;
    assert_int_equal(weir_setsockopt(fd, IPPROTO_TCP, OPT_CORK, &one, sizeof(one)), 0);
    assert_int_equal(weir_setsockopt(fd, IPPROTO_TCP, OPT_CORK, &zero, sizeof(zero)), 0);
    weir_close(fd);
    weir_close(w.listener);
}

/* case: FUN-076 */
static void test_initial_window(void **state)
{
    static const struct {
        const char *segments; /* of the knob; "0": RFC 3390 */
        uint16_t mss;
        bool ts;
        uint32_t first; /* segments */
    } kind[] = {{"10", 1460, false, 10}, {"10", 1460, true, 10}, {"10", 536, false, 10},
                {"10", 100, false, 10},  {"4", 1460, false, 4},  {"1", 1460, true, 1},
                {"40", 1460, false, 40}, {"0", 1460, false, 3},  {"0", 536, false, 4}};

    for (size_t i = 0; i < NELEM(kind); i++) {
        uint32_t len = kind[i].mss - (kind[i].ts ? 12u : 0), n = kind[i].first;
        sim_sysctl(w.s, "net.inet.tcp.minmss", "64");
        sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", kind[i].segments);
        sender_init();
        cn.ts = kind[i].ts;
        cn.mss = kind[i].mss;
        sender_open();
        send_n((n + 3) * len + 100);
        expect_segments(0, n, len); /* RFC 6928, all at once */
        expect_nothing(100 * MS);
        ack_to(n * len);
        expect_segments(n * len, MIN(n, 3), len);
        sender_abort();
    }
    /* Slow start from there: a segment more for each that is acknowledged. */
    sim_sysctl(w.s, "net.inet.tcp.initcwnd_segments", "10");
    sender_plain();
    send_n(20000);
    expect_segments(0, 10, 1460);
    expect_nothing(100 * MS);
    ack_to(2920);
    expect_segments(14600, 3, 1460);
    expect_nothing(0); /* Nagle */
    ack_to(18980);
    expect_data(18980, 1020, TH_ACK | TH_PUSH, 0);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-013 */
static void test_window_shrinks(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 8000;
    sender_open();
    send_n(20000);
    expect_segments(0, 5, 1460);
    expect_nothing(MS);
    ack_win(1460, 2000); /* the edge moves left, to below what was sent */
    expect_nothing(100 * MS);
    ack_win(2920, 0); /* and shut */
    expect_nothing(100 * MS);
    ack_win(7300, 20000);
    expect_segments(7300, 1, 1460);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-017 */
static void test_never_beyond_the_edge(void **state)
{
    sender_init();
    cn.ts = false;
    cn.wscale = 0;
    cn.win = 1000;
    sender_open();
    uint32_t seed = 12345, acked = 0, edge = 1000, sent = 0;
    printf("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 3000; i++) {
        if (written - acked < 12000)
            send_n(1 + (uint32_t)rand() % 3000);
        while (conn_next(&cn, &w.k, 0)) {
            uint32_t end = w.k.th.seq + w.k.len - base_seq;
            if (w.k.len > 1)
                assert_true(end <= edge);
            sent = MAX(sent, end);
        }
        acked += sent > acked ? (uint32_t)rand() % (sent - acked + 1) : 0;
        int win = rand() % 4 ? rand() % 4000 : 0;
        edge = MAX(edge, acked + (uint32_t)win);
        ack_win(acked, win);
        if (win == 0 || rand() % 16 == 0)
            sim_run(w.sim, (uint64_t)(rand() % 300) * MS);
    }
    assert_true(acked > 100000);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-014 */
static void test_collapsing_window(void **state)
{
    sender_plain();
    int flags = weir_fcntl(cn.fd, F_GETFL, 0);
    weir_fcntl(cn.fd, F_SETFL, flags | O_NONBLOCK);
    static uint8_t chunk[65536];
    uint32_t acked = 0, sent = 0;
    for (int t = 0; t < 300; t++) { /* 10 ms each; ACKs come 50 ms late */
        while (weir_write(cn.fd, chunk, sizeof(chunk)) > 0)
            ;
        static uint32_t sent_at[8];
        while (conn_next(&cn, &w.k, 0))
            sent = MAX(sent, w.k.th.seq + w.k.len - base_seq);
        sent_at[t % 5] = sent;
        uint32_t late = sent_at[(t + 1) % 5];
        acked = MAX(acked, late);
        ack_win(acked, t % 2 ? 64 : 2048); /* 8 KB, 256 KB */
        sim_run(w.sim, 10 * MS);
    }
    assert_true(acked > 500000);
    assert_int_equal(sim_counter(w.s, "tcp.tx_rexmt"), 0);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-010 FUN-011 */
static void test_window_updates(void **state)
{
    sender_plain();
    static char buf[70000];
    uint32_t edge = cn.snd_nxt + 65535;
    do {
        conn_data(&cn, MIN(1460, edge - cn.snd_nxt));
        sim_run(w.sim, 50 * MS);
        while (conn_next(&cn, &w.k, 0)) {
            uint32_t right = w.k.th.ack + ((uint32_t)w.k.th.win << 6);
            assert_true(
                SEQ_GT(right + 64, edge)); /* never retracted, but for what scaling cannot say */
            edge = right;
        }
    } while (w.k.th.win);
    uint32_t held = cn.snd_nxt - cn.iss - 1;
    assert_in_range(held, 65700, 65700 + 17 * 64);
    /* Tiny reads cause no update; half a buffer does, and one. */
    for (int i = 0; i < 2900; i++)
        assert_int_equal(weir_read(cn.fd, buf, 1), 1);
    expect_nothing(0);
    assert_int_equal(weir_read(cn.fd, buf, 33000 + held - 65700), 33000 + held - 65700);
    sim_settle(w.sim);
    unsigned updates = 0;
    while (conn_next(&cn, &w.k, 0))
        updates++;
    assert_int_equal(updates, 1);
    assert_true((uint32_t)w.k.th.win << 6 >= 2 * 1460);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* RFC 9293 3.8.6.2.2: a window of less than a segment is offered as none, unless the edge stood
 * there before. */
static void test_no_silly_window(void **state)
{
    int size = 8192;
    sender_init();
    cn.ts = false;
    cn.wscale = -1;
    w.listener = weir_socket(w.s, AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(80)};
    assert_int_equal(weir_setsockopt(w.listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    assert_int_equal(weir_bind(w.listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(weir_listen(w.listener, 5), 0);
    sender_open();
    static char buf[10000];
    for (;;) { /* fill it */
        struct tcpcb *tp = world_tcpcb(&cn);
        uint32_t room = tp->rcv_adv - cn.snd_nxt;
        if (!room)
            break;
        conn_data(&cn, MIN(room, 1000));
        sim_run(w.sim, 50 * MS);
    }
    peer_drain(w.p);
    assert_int_equal(weir_read(cn.fd, buf, 1400), 1400); /* less than a segment came free */
    sim_settle(w.sim);
    send_at(&cn, 0, TH_ACK, 1); /* a probe */
    expect_flags(&cn, TH_ACK, 50 * MS);
    assert_int_equal(w.k.th.win, 0);
    assert_int_equal(w.k.th.ack, ++cn.snd_nxt); /* there was room for the byte */
    assert_int_equal(weir_read(cn.fd, buf, 2000), 2000);
    sim_settle(w.sim);
    peer_drain(w.p);
    send_at(&cn, -1, TH_ACK, 1);
    expect_flags(&cn, TH_ACK, 50 * MS);
    assert_in_range(w.k.th.win, 1460, 3400 + 1460);
    weir_close(cn.fd);
    weir_close(w.listener);
}

/* case: FUN-026 FUN-029 */
static void test_fin_is_repeated(void **state)
{
    sender_plain();
    send_flags(500, MSG_MORE);
    weir_shutdown(cn.fd, SHUT_WR);
    sim_settle(w.sim);
    expect_data(0, 500, TH_FIN | TH_ACK | TH_PUSH, 0);
    ack_to(500); /* but not the FIN */
    expect_data(500, 0, TH_FIN | TH_ACK, NS_PER_S);
    expect_data(500, 0, TH_FIN | TH_ACK, NS_PER_S);
    conn_send(&cn, &(struct segment){
                       .seq = cn.snd_nxt, .ack = base_seq + 501, .flags = TH_ACK, .win = -1});
    assert_int_equal(world_state(&cn), TCPS_FIN_WAIT_2);
    expect_nothing(2 * NS_PER_S);
    weir_close(cn.fd);
    /* With lost data before it, and from CLOSE_WAIT. */
    sender_plain();
    conn_flags(&cn, TH_FIN | TH_ACK);
    assert_true(conn_next(&cn, &w.k, 0));
    send_n(700);
    weir_close(cn.fd);
    sim_settle(w.sim);
    expect_data(0, 700, 0, 0);
    expect_data(700, 0, TH_FIN | TH_ACK, 0);
    assert_int_equal(world_state(&cn), TCPS_LAST_ACK);
    expect_data(0, 700, TH_FIN | TH_ACK | TH_PUSH, NS_PER_S); /* both, as they fit */
    conn_send(&cn, &(struct segment){
                       .seq = cn.snd_nxt, .ack = base_seq + 701, .flags = TH_ACK, .win = -1});
    assert_int_equal(world_state(&cn), TCPS_CLOSED);
    weir_close(w.listener);
}

/* case: FUN-028 */
static void test_fin_after_late_ack(void **state)
{
    sender_plain();
    send_n(1460);
    expect_data(0, 1460, 0, 0);
    sim_run(w.sim, 300 * MS); /* a timeout: resent */
    peer_drain(w.p);
    ack_to(1460);
    weir_close(cn.fd);
    sim_settle(w.sim);
    expect_data(1460, 0, TH_FIN | TH_ACK, 0);
    weir_close(w.listener);
}

/* case: FUN-052 */
static void test_no_buffers(void **state)
{
    enum { N = 20 };
    struct conn c[N];
    for (int i = 0; i < N; i++)
        world_accept(&c[i]);
    peer_drain(w.p);
    int64_t limit = atomic_load(&w.s->account->limit);
    atomic_store(&w.s->account->limit, 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(weir_close(c[i].fd), 0);
    sim_run(w.sim, 3 * NS_PER_S);
    assert_true(peer_quiet(w.p, 0));
    atomic_store(&w.s->account->limit, limit);
    sim_run(w.sim, 10 * NS_PER_S);
    unsigned fins = 0;
    for (int i = 0; i < N; i++)
        c[i].sack = false;
    bool seen[N] = {false};
    while (peer_next(w.p, &w.k, 0)) {
        for (int i = 0; i < N; i++) {
            if (w.k.th.dport == c[i].sport && (w.k.th.flags & TH_FIN) && !seen[i]) {
                seen[i] = true;
                fins++;
            }
        }
    }
    assert_int_equal(fins, N);
    weir_close(w.listener);
}

static void test_urgent(void **state)
{
    sender_plain();
    send_n(100);
    expect_data(0, 100, 0, 0);
    send_flags(10, MSG_OOB);
    expect_data(100, 10, TH_ACK | TH_PUSH | TH_URG, 0); /* Nagle does not hold it */
    assert_int_equal(w.k.th.urp, 10);
    ack_to(110);
    send_n(5);
    expect_data(110, 5, TH_ACK | TH_PUSH, 0);
    weir_close(cn.fd);
    weir_close(w.listener);
}

static void test_ecn(void **state)
{
    sim_sysctl(w.s, "net.inet.tcp.ecn.enable", "1");
    struct conn c;
    conn_init(&c, w.p, w.next_port++, 0);
    struct sockaddr_storage ss;
    c.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t len = peer_sockaddr(peer_remote(w.p), c.sport, &ss);
    assert_int_equal(weir_connect(c.fd, (struct sockaddr *)&ss, len), -1);
    expect_flags(&c, TH_SYN | TH_ECE | TH_CWR, 0);
    assert_int_equal(w.k.tos & 3, 0);
    expect_flags(&c, TH_SYN | TH_ECE | TH_CWR, 2 * NS_PER_S); /* maxretries is 1 */
    expect_flags(&c, TH_SYN, 3 * NS_PER_S);
    c.dport = w.k.th.sport;
    weir_close(c.fd);
    c.sport = w.next_port++;
    c.dport = 0;
    c.fd = weir_socket(w.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    len = peer_sockaddr(peer_remote(w.p), c.sport, &ss);
    assert_int_equal(weir_connect(c.fd, (struct sockaddr *)&ss, len), -1);
    expect_flags(&c, TH_SYN | TH_ECE | TH_CWR, 0);
    c.dport = w.k.th.sport;
    conn_flags(&c, TH_SYN | TH_ACK | TH_ECE);
    expect_flags(&c, TH_ACK, 0);
    cn = c;
    base_seq = c.rcv_nxt;
    written = 0;
    send_n(2896);
    expect_data(0, 1448, TH_ACK, 0);
    assert_int_equal(w.k.tos & 3, 2); /* ECT(0) */
    expect_data(1448, 1448, TH_ACK | TH_PUSH, 0);
    conn_send(&cn,
              &(struct segment){
                  .seq = cn.snd_nxt, .ack = base_seq + 1448, .flags = TH_ACK | TH_ECE, .win = -1});
    uint32_t cwnd = world_tcpcb(&cn)->snd_cwnd;
    assert_true(cwnd < 10 * 1448);
    send_n(100);
    ack_to(2896);
    expect_data(2896, 100, TH_ACK | TH_PUSH | TH_CWR, 0);
    weir_close(cn.fd);
}

/* A connection that began with a send buffer below the MSS has tiny segments, and a congestion
 * window in them. When the buffer has grown, the window must hold one of the larger segments. */
static void test_segments_grow(void **state)
{
    int size = 1 << 20;
    sim_sysctl(w.s, "net.inet.tcp.sendspace", "16");
    sender_init();
    cn.ts = false;
    conn_accept(&cn, &w.listener, w.s);
    peer_drain(w.p);
    base_seq = cn.rcv_nxt;
    written = 0;
    assert_true(world_tcpcb(&cn)->snd_cwnd < 1460);
    assert_int_equal(weir_setsockopt(cn.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    send_n(16);
    expect_data(0, 16, TH_ACK | TH_PUSH, 0);
    ack_to(16);
    send_n(8000);
    for (uint32_t off = 16; off < 16 + 8000;) {
        assert_true(conn_next(&cn, &w.k, NS_PER_MS));
        assert_int_equal(w.k.th.seq, base_seq + off);
        off += w.k.len;
        ack_to(off);
    }
    weir_close(cn.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_segment_size_and_push),
        WORLD_TEST(test_tiny_mss),
        WORLD_TEST(test_mss_defaults),
        WORLD_TEST(test_nagle),
        WORLD_TEST(test_cork_and_more),
        WORLD_TEST(test_initial_window),
        WORLD_TEST(test_window_shrinks),
        WORLD_TEST(test_never_beyond_the_edge),
        WORLD_TEST(test_collapsing_window),
        WORLD_TEST(test_window_updates),
        WORLD_TEST(test_no_silly_window),
        WORLD_TEST(test_fin_is_repeated),
        WORLD_TEST(test_fin_after_late_ack),
        WORLD_TEST(test_no_buffers),
        WORLD_TEST(test_urgent),
        WORLD_TEST(test_ecn),
        WORLD_TEST(test_segments_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
