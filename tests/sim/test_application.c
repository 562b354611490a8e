/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what applications do to streams at their edges: writes larger than the buffers, one-sided
 * ends, hundreds of short connections under loss, no port left, odd MTUs, hosts that do not answer.
 * Bound: minutes of virtual time a test. */
#include "peer.h"

#include <netinet/tcp.h>
#include <pcap/pcap.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "tcp/tcp_var.h"

#define PORT 5001

struct world {
    struct sim *sim;
    struct weir_stack *a, *b; /* 10.0.0.1, 10.0.0.2 */
    int listener;             /* of b, at PORT */
};

static struct sockaddr_in to(uint32_t ip, uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = __builtin_bswap16(port),
                                .sin_addr.s_addr = __builtin_bswap32(ip)};
}

static void world_init(struct world *w, const char *link)
{
    struct sockaddr_in sa = to(0, PORT);

    w->sim = sim_create(11, 0);
    w->a = sim_stack(w->sim, "a");
    w->b = sim_stack(w->sim, "b");
    sim_join(w->sim, w->a, w->b, link);
    w->listener = weir_socket(w->b, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(weir_bind(w->listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(weir_listen(w->listener, 1024), 0);
}

/* All sockets closed: nothing may be left once every timer has run. */
static void world_fini(struct world *w)
{
    assert_int_equal(weir_close(w->listener), 0);
    sim_run(w->sim, 600 * NS_PER_S);
    assert_int_equal(w->a->tcp->pcb_count, 0);
    assert_int_equal(w->b->tcp->pcb_count, 0);
    sim_destroy(w->sim);
}

/* A connection from a to b; both blocking. */
static void join(struct world *w, int *fa, int *fb)
{
    struct sockaddr_in sa = to(0x0a000002, PORT);

    *fa = weir_socket(w->a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(*fa, (struct sockaddr *)&sa, sizeof(sa)), 0);
    sim_run(w->sim, NS_PER_S);
    *fb = weir_accept(w->listener, NULL, NULL);
    assert_true(*fb >= 0);
}

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 7 + at / 251);
}

/* Read what is there, verifying it. False: the end. */
static bool drain(int fd, uint64_t *got)
{
    static uint8_t buf[65536];
    ssize_t n;

    while ((n = weir_recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (buf[i] != byte_at(*got + (uint64_t)i))
                fail_msg("wrong byte at %llu", (unsigned long long)(*got + (uint64_t)i));
        *got += (uint64_t)n;
    }
    if (n < 0)
        assert_int_equal(errno, EAGAIN);
    return n != 0;
}

/* Write up to `total` as far as it goes. */
static void fill(int fd, uint64_t *sent, uint64_t total)
{
    static uint8_t buf[65536];
    ssize_t n = 1;

    while (*sent < total && n > 0) {
        size_t len = MIN(sizeof(buf), total - *sent);
        for (size_t i = 0; i < len; i++)
            buf[i] = byte_at(*sent + i);
        n = weir_send(fd, buf, len, MSG_DONTWAIT);
        if (n < 0)
            assert_int_equal(errno, EAGAIN);
        *sent += (uint64_t)MAX(n, 0);
    }
}

/* case: FUN-019 */
static void writes_larger_than_the_buffer(void **state)
{
    const size_t huge = 64 << 20;
    uint8_t *data = malloc(huge);
    struct world w;
    int fa, fb, size = 32768;
    uint64_t got = 0;

    for (size_t i = 0; i < huge; i++)
        data[i] = byte_at(i);
    world_init(&w, "delay=1ms");
    join(&w, &fa, &fb);
    assert_int_equal(weir_setsockopt(fa, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    /* Blocking, more than the send buffer: the rest follows as the peer takes it. */
    assert_int_equal(weir_send(fa, data, 60000, 0), 60000);
    /* Not blocking, more than both sides hold: a part, then nothing, then room again. */
    ssize_t part = weir_send(fa, data + 60000, huge - 60000, MSG_DONTWAIT);
    assert_true(part > 0 && part < (ssize_t)huge - 60000);
    uint64_t sent = 60000 + (uint64_t)part;
    sim_run(w.sim, NS_PER_S);
    fill(fa, &sent, huge);
    sim_run(w.sim, NS_PER_S);
    fill(fa, &sent, huge);
    sim_run(w.sim, NS_PER_S);
    fill(fa, &sent, huge);
    struct pollfd p = {.fd = fa, .events = POLLOUT};
    assert_int_equal(weir_poll(&p, 1, 0), 0);
    for (int i = 0; got < sent && i < 1000; i++) {
        assert_true(drain(fb, &got));
        sim_run(w.sim, 10 * NS_PER_MS);
    }
    assert_int_equal(got, sent);
    assert_int_equal(weir_poll(&p, 1, 0), 1);
    assert_int_equal(p.revents, POLLOUT);
    weir_close(fa);
    weir_close(fb);
    world_fini(&w);
    free(data);
}

/* The server echoes; the client writes all it has before it reads, as far as the buffers go. */
/* case: FUN-020 */
static void echo_goes_on_when_the_application_reads(void **state)
{
    const uint64_t total = 1 << 20;
    struct world w;
    int fa, fb, size = 16384;
    uint64_t sent = 0, echoed_in = 0, echoed_out = 0, got = 0, idle_ms = 0;

    world_init(&w, "delay=5ms");
    sim_sysctl(w.a, "net.inet.tcp.sendbuf_auto", "0");
    sim_sysctl(w.b, "net.inet.tcp.sendbuf_auto", "0");
    join(&w, &fa, &fb);
    int fds[2] = {fa, fb};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
        assert_int_equal(weir_setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    }
    for (int ms = 0; got < total; ms++) {
        assert_true(ms < 60000);
        uint64_t before = sent + echoed_out + got;
        fill(fa, &sent, total);
        if (echoed_in == echoed_out)
            drain(fb, &echoed_in);
        fill(fb, &echoed_out, echoed_in);
        if (sent == total || idle_ms > 1000) /* written all, or truly stuck: now it reads */
            drain(fa, &got);
        sim_run(w.sim, NS_PER_MS);
        idle_ms = sent + echoed_out + got == before ? idle_ms + 1 : idle_ms > 1000 ? idle_ms : 0;
        assert_true(idle_ms < 3000);
    }
    weir_close(fa);
    weir_close(fb);
    world_fini(&w);
}

/* case: FUN-034 */
static void a_reply_after_the_request_is_finished(void **state)
{
    const uint64_t total = 10 << 20;
    struct world w;
    int fa, fb;
    uint64_t request = 0, reply = 0, sent = 0;

    world_init(&w, "delay=5ms,loss=0.5%,seed=4");
    join(&w, &fa, &fb);
    fill(fa, &request, 1000);
    assert_int_equal(weir_shutdown(fa, SHUT_WR), 0);
    request = 0;
    for (int i = 0; drain(fb, &request) && i < 1000; i++)
        sim_run(w.sim, 10 * NS_PER_MS);
    assert_int_equal(request, 1000);
    for (uint64_t ms = 0; sent < total; ms += 10) {
        fill(fb, &sent, MIN(total, (ms + 10) * total / 5000)); /* over five seconds */
        assert_true(drain(fa, &reply));
        sim_run(w.sim, 10 * NS_PER_MS);
        assert_true(ms < 120000);
    }
    assert_int_equal(weir_close(fb), 0);
    for (int i = 0; drain(fa, &reply) && i < 10000; i++)
        sim_run(w.sim, 10 * NS_PER_MS);
    assert_int_equal(reply, total);
    assert_int_equal(sim_counter(w.a, "tcp.drops"), 0);
    assert_int_equal(sim_counter(w.b, "tcp.drops"), 0);
    weir_close(fa);
    world_fini(&w);
}

/* Short connections by the hundred under loss: each is accepted once, all end, none is left. */
/* case: FUN-050, FUN-059 */
static void hundreds_of_short_connections(void **state)
{
    enum { TOTAL = 600, AT_ONCE = 50 };
    struct {
        int fd;
        bool sent;
    } client[AT_ONCE] = {{0}};
    int server[AT_ONCE * 2], started = 0, ended = 0, accepted = 0, served = 0, open_servers = 0;
    struct sockaddr_in sa = to(0x0a000002, PORT);
    struct world w;

    world_init(&w, "delay=1ms,loss=3%,reorder=5%:2,dup=1%,seed=21");
    for (int i = 0; i < AT_ONCE; i++)
        client[i].fd = -1;
    for (int step = 0; served < TOTAL; step++) {
        assert_true(step < 1000000);
        for (int i = 0; i < AT_ONCE; i++) {
            if (client[i].fd < 0 && started < TOTAL) {
                client[i].fd = weir_socket(w.a, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                assert_true(client[i].fd >= 0);
                assert_int_equal(weir_connect(client[i].fd, (struct sockaddr *)&sa, sizeof(sa)),
                                 -1);
                assert_int_equal(errno, EINPROGRESS);
                client[i].sent = false;
                started++;
            }
            if (client[i].fd >= 0 && weir_send(client[i].fd, "0123456789", 10, 0) == 10) {
                assert_int_equal(weir_close(client[i].fd), 0);
                client[i].fd = -1;
                ended++;
            }
        }
        while (open_servers < AT_ONCE * 2 &&
               (server[open_servers] = weir_accept(w.listener, NULL, NULL)) >= 0) {
            for (int i = 0; i < open_servers; i++)
                assert_int_not_equal(server[i], server[open_servers]);
            open_servers++;
            accepted++;
        }
        for (int i = 0; i < open_servers; i++) {
            char buf[64];
            ssize_t n = weir_recv(server[i], buf, sizeof(buf), MSG_DONTWAIT | MSG_PEEK);
            struct pollfd p = {.fd = server[i], .events = POLLRDHUP};
            if (n < 0 || weir_poll(&p, 1, 0) != 1)
                continue; /* not all there yet */
            assert_int_equal(n, 10);
            assert_int_equal(weir_close(server[i]), 0);
            server[i--] = server[--open_servers];
            served++;
        }
        sim_run(w.sim, NS_PER_MS);
    }
    assert_int_equal(ended, TOTAL);
    assert_int_equal(accepted, TOTAL);
    world_fini(&w); /* no connection left */
}

/* case: FUN-065, FUN-067 */
static void ports_run_out_per_destination(void **state)
{
    enum { PORTS = 10 };
    struct sockaddr_in sa = to(0x0a000002, PORT), other = to(0x0a000002, PORT + 1), name;
    socklen_t len = sizeof(name);
    struct world w;
    int fd[PORTS], fb[PORTS * 2], n = 0;
    bool used[PORTS] = {false};

    world_init(&w, "");
    sim_sysctl(w.a, "net.inet.ip.portrange.first", "20000");
    sim_sysctl(w.a, "net.inet.ip.portrange.last", "20009");
    /* A listener with a connection of its own on a port of the range does not take it from others.
     */
    struct sockaddr_in mine = to(0, 20003), here = to(0x0a000001, 20003);
    int l = weir_socket(w.a, AF_INET, SOCK_STREAM, 0),
        in = weir_socket(w.b, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(l, (struct sockaddr *)&mine, sizeof(mine)), 0);
    assert_int_equal(weir_listen(l, 8), 0);
    assert_int_equal(weir_connect(in, (struct sockaddr *)&here, sizeof(here)), 0);
    int acc = weir_accept(l, NULL, NULL);
    assert_true(acc >= 0);

    int usable = 0;
    for (int i = 0; i < PORTS; i++) {
        fd[i] = weir_socket(w.a, AF_INET, SOCK_STREAM, 0);
        if (weir_connect(fd[i], (struct sockaddr *)&sa, sizeof(sa)) != 0) {
            assert_int_equal(errno, EADDRNOTAVAIL);
            assert_true(i >= PORTS - 1); /* at most the listener's own port is kept back */
            weir_close(fd[i]);
            break;
        }
        usable++;
        assert_int_equal(weir_getsockname(fd[i], (struct sockaddr *)&name, &len), 0);
        int port = __builtin_bswap16(name.sin_port) - 20000;
        assert_in_range(port, 0, PORTS - 1);
        assert_false(used[port]);
        used[port] = true;
        sim_run(w.sim, 10 * NS_PER_MS);
        fb[n++] = weir_accept(w.listener, NULL, NULL);
    }
    int one = weir_socket(w.a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(one, (struct sockaddr *)&sa, sizeof(sa)), -1);
    assert_int_equal(errno, EADDRNOTAVAIL);
    /* The same ports serve another destination. */
    struct sockaddr_in any = to(0, PORT + 1);
    int l2 = weir_socket(w.b, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(l2, (struct sockaddr *)&any, sizeof(any)), 0);
    assert_int_equal(weir_listen(l2, 8), 0);
    assert_int_equal(weir_connect(one, (struct sockaddr *)&other, sizeof(other)), 0);
    weir_close(one);
    for (int i = 0; i < usable; i++)
        weir_close(fd[i]);
    for (int i = 0; i < n; i++)
        weir_close(fb[i]);
    weir_close(acc);
    weir_close(in);
    weir_close(l);
    weir_close(l2);
    world_fini(&w);
}

/* case: FUN-137 */
static void a_long_path_is_filled(void **state)
{
    const uint64_t total = 48 << 20;
    struct world w;
    struct tcp_info info;
    socklen_t len = sizeof(info);
    int fa, fb;
    uint64_t sent = 0, got = 0;

    world_init(&w, "delay=25ms,rate=1Gbit");
    join(&w, &fa, &fb);
    assert_int_equal(weir_getsockopt(fa, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    assert_int_equal(info.tcpi_options & (TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE),
                     TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE);
    uint64_t start = sim_now(w.sim);
    while (got < total) {
        fill(fa, &sent, total);
        assert_true(drain(fb, &got));
        sim_run(w.sim, NS_PER_MS);
        /* 64 KB a round trip would take 38 s. */
        assert_true(sim_now(w.sim) - start < 10 * NS_PER_S);
    }
    weir_close(fa);
    weir_close(fb);
    world_fini(&w);
}

/* case: FUN-089 */
static void every_large_mtu(void **state)
{
    for (unsigned mtu = 64499; mtu <= 65535; mtu += mtu < 65500 ? 143 : 7) {
        const uint64_t total = 1 << 20;
        uint64_t sent_a = 0, sent_b = 0, got_a = 0, got_b = 0;
        struct world w;
        char link[32];
        int fa, fb;
        snprintf(link, sizeof(link), "mtu=%u,delay=1ms", mtu);
        world_init(&w, link);
        join(&w, &fa, &fb);
        for (int ms = 0; got_a < total || got_b < total; ms++) {
            fill(fa, &sent_a, total);
            fill(fb, &sent_b, total);
            assert_true(drain(fa, &got_a) && drain(fb, &got_b));
            sim_run(w.sim, NS_PER_MS);
            assert_true(ms < 5000);
        }
        weir_close(fa);
        weir_close(fb);
        world_fini(&w);
    }
}

/* case: FUN-064 */
static void hosts_that_do_not_answer(void **state)
{
    struct world w;
    struct sockaddr_in nowhere = to(0x08080808, 80), absent = to(0x0a000063, 80), lost;

    world_init(&w, "");
    int fd = weir_socket(w.a, AF_INET, SOCK_STREAM, 0);
    uint64_t start = sim_now(w.sim);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&nowhere, sizeof(nowhere)), -1);
    assert_int_equal(errno, ENETUNREACH);
    assert_int_equal(sim_now(w.sim), start);
    weir_close(fd);
    fd = weir_socket(w.a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&absent, sizeof(absent)), -1);
    assert_int_equal(errno, EHOSTUNREACH);
    assert_int_equal((sim_now(w.sim) - start) / NS_PER_S, 5); /* maxtries, one a second */
    weir_close(fd);
    world_fini(&w);

    world_init(&w, "loss=100%");
    fd = weir_socket(w.a, AF_INET, SOCK_STREAM, 0);
    lost = to(0x0a000002, PORT);
    start = sim_now(w.sim);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&lost, sizeof(lost)), -1);
    assert_int_equal(errno, EHOSTUNREACH);
    assert_int_equal((sim_now(w.sim) - start) / NS_PER_S, 5);
    weir_close(fd);
    world_fini(&w);
}

/* Segments of the capture file that come from, or go to, a. */
static void count_captured(const char *path, uint32_t ip, uint64_t *out, uint64_t *in)
{
    char why[PCAP_ERRBUF_SIZE];
    pcap_t *f = pcap_open_offline(path, why);
    struct pcap_pkthdr *h;
    const u_char *data;

    assert_non_null(f);
    for (*out = *in = 0; pcap_next_ex(f, &h, &data) == 1;) {
        if (h->caplen < 34 || get_be16(data + 12) != 0x0800 || data[23] != 6)
            continue;
        *out += get_be32(data + 26) == ip;
        *in += get_be32(data + 30) == ip;
    }
    pcap_close(f);
}

/* case: MEA-065 */
static void counters_agree_with_a_capture(void **state)
{
    const uint64_t total = 2 << 20;
    uint64_t sent_a = 0, sent_b = 0, got_a = 0, got_b = 0, out, in;
    char link[128], path[64];
    struct world w;
    int fa, fb;

    snprintf(path, sizeof(path), "/tmp/weir-counters-XXXXXX");
    assert_int_equal(close(mkstemp(path)), 0);
    snprintf(link, sizeof(link), "delay=1ms,loss=1%%,dup=1%%,seed=5,capture=%s", path);
    world_init(&w, link);
    join(&w, &fa, &fb);
    for (int ms = 0; got_a < total || got_b < total; ms++) {
        fill(fa, &sent_a, total);
        fill(fb, &sent_b, total);
        assert_true(drain(fa, &got_a) && drain(fb, &got_b));
        sim_run(w.sim, NS_PER_MS);
        assert_true(ms < 60000);
    }
    weir_close(fa);
    weir_close(fb);
    sim_run(w.sim, 300 * NS_PER_S);
    uint64_t tx = sim_counter(w.a, "tcp.tx_segs"), rx = sim_counter(w.a, "tcp.rx");
    assert_int_equal(sim_counter(w.a, "tcp.rx_bytes"), total);
    assert_int_equal(sim_counter(w.a, "tcp.tx_bytes"), total);
    world_fini(&w); /* the gauges are back at zero, and the file is closed */
    count_captured(path, 0x0a000001, &out, &in);
    unlink(path);
    assert_int_equal(tx, out);
    assert_int_equal(rx, in);
}

/* Where a transport hears from its peer, neighbours need not be asked again (RFC 4861 7.3.1). */
static void progress_keeps_neighbours_reachable(void **state)
{
    struct world w;
    int fa, fb;
    char byte = 'x';

    world_init(&w, "delay=1ms");
    sim_sysctl(w.a, "net.link.ether.inet.max_age", "10");
    sim_sysctl(w.b, "net.link.ether.inet.max_age", "10");
    join(&w, &fa, &fb);
    uint64_t asked = sim_counter(w.a, "arp.tx_requests") + sim_counter(w.b, "arp.tx_requests");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(weir_send(fa, &byte, 1, 0), 1);
        assert_int_equal(weir_recv(fb, &byte, 1, 0), 1);
        sim_run(w.sim, NS_PER_S);
    }
    assert_int_equal(sim_counter(w.a, "arp.tx_requests") + sim_counter(w.b, "arp.tx_requests"),
                     asked);
    /* After a silence nothing vouches for them: the next use probes. */
    sim_run(w.sim, 100 * NS_PER_S);
    assert_int_equal(weir_send(fa, &byte, 1, 0), 1);
    sim_run(w.sim, 10 * NS_PER_S);
    assert_true(sim_counter(w.a, "arp.tx_requests") + sim_counter(w.b, "arp.tx_requests") > asked);
    weir_close(fa);
    weir_close(fb);
    world_fini(&w);
}

/* A connection from a, whose thread drives its stack; b has accepted nothing yet. */
static int connect_driven(struct world *w)
{
    struct sockaddr_in sa = to(0x0a000002, PORT);
    int fd = weir_socket(w->a, AF_INET, SOCK_STREAM, 0);

    /* Else the thread that sends runs the far stack too, and its own as far as that answers. */
    sim_sysctl(w->a, "net.isr.dispatch", "deferred");
    sim_sysctl(w->b, "net.isr.dispatch", "deferred");
    sim_drive(w->sim, true);
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* The acknowledgments of SYN and FIN go with the request and with the close that follow. */
static void acknowledgments_go_with_the_next_call(void **state)
{
    struct world w;
    uint8_t byte = 1;

    (void)state;
    world_init(&w, "");
    int fa = connect_driven(&w);
    assert_int_equal(sim_counter(w.a, "tcp.tx"), 1); /* SYN */
    assert_int_equal(weir_accept(w.listener, NULL, NULL), -1);
    assert_int_equal(weir_send(fa, &byte, 1, 0), 1);
    assert_int_equal(sim_counter(w.a, "tcp.tx"), 2);
    sim_settle(w.sim);
    int fb = weir_accept(w.listener, NULL, NULL);
    assert_true(fb >= 0);
    assert_int_equal(weir_recv(fb, &byte, 1, 0), 1);
    assert_int_equal(weir_send(fb, &byte, 1, 0), 1);
    assert_int_equal(weir_close(fb), 0);
    assert_int_equal(weir_recv(fa, &byte, 1, 0), 1);
    assert_int_equal(weir_recv(fa, &byte, 1, 0), 0);
    assert_int_equal(weir_close(fa), 0);
    sim_settle(w.sim);
    assert_int_equal(sim_counter(w.a, "tcp.tx"), 3); /* FIN */
    assert_int_equal(sim_counter(w.a, "tcp.tx_acks"), 0);
    sim_drive(w.sim, false);
    world_fini(&w);
}

/* A thread that does nothing more: within a millisecond the acknowledgment leaves by itself. */
static void acknowledgments_do_not_wait_for_ever(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "");
    int fa = connect_driven(&w);
    sim_drive(w.sim, false);
    assert_int_equal(weir_accept(w.listener, NULL, NULL), -1);
    sim_run(w.sim, NS_PER_MS);
    assert_int_equal(sim_counter(w.a, "tcp.tx_acks"), 1);
    int fb = weir_accept(w.listener, NULL, NULL);
    assert_true(fb >= 0);
    weir_close(fa);
    weir_close(fb);
    world_fini(&w);
}

/* Who waits on sends them at once: the step brought nothing that ends the wait; or the user wants
 * no acknowledgment delayed. */
static void acknowledgments_of_who_waits_on(void **state)
{
    struct sockaddr_in sa = to(0x0a000002, PORT);
    struct timeval tv = {.tv_usec = 100};
    struct world w;
    uint8_t byte;

    (void)state;
    world_init(&w, "");
    sim_drive(w.sim, true);
    int waits = connect_driven(&w);
    int fa = weir_socket(w.a, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    weir_setsockopt(waits, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    assert_int_equal(weir_recv(waits, &byte, 1, 0), -1);
    uint64_t acks = sim_counter(w.a, "tcp.tx_acks");
    assert_int_equal(weir_connect(fa, (struct sockaddr *)&sa, sizeof(sa)), -1);
    assert_int_equal(weir_recv(waits, &byte, 1, 0), -1);
    assert_int_equal(sim_counter(w.a, "tcp.tx_acks"), acks + 1);

    sim_sysctl(w.a, "net.inet.tcp.delayed_ack", "0");
    int fc = connect_driven(&w);
    assert_int_equal(sim_counter(w.a, "tcp.tx_acks"), acks + 2);
    sim_drive(w.sim, false);
    weir_close(waits);
    weir_close(fa);
    weir_close(fc);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_keeps_neighbours_reachable),
        cmocka_unit_test(writes_larger_than_the_buffer),
        cmocka_unit_test(echo_goes_on_when_the_application_reads),
        cmocka_unit_test(a_reply_after_the_request_is_finished),
        cmocka_unit_test(hundreds_of_short_connections),
        cmocka_unit_test(ports_run_out_per_destination),
        cmocka_unit_test(a_long_path_is_filled),
        cmocka_unit_test(every_large_mtu),
        cmocka_unit_test(hosts_that_do_not_answer),
        cmocka_unit_test(counters_agree_with_a_capture),
        cmocka_unit_test(acknowledgments_go_with_the_next_call),
        cmocka_unit_test(acknowledgments_do_not_wait_for_ever),
        cmocka_unit_test(acknowledgments_of_who_waits_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
