/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: bytes between two stacks arrive whole, in order and once, whatever the link does to the
 * packets; both directions at a time; and all memory comes back. Bound: each transfer ends within
 * 30 minutes of virtual time. */
#include "peer.h"
#include "weir/stack.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PORT 5001

struct end {
    int fd;
    uint64_t sent, received, total;
    bool shut, eof;
    uint32_t salt;
};

static uint8_t pattern(uint32_t salt, uint64_t at)
{
    return (uint8_t)((at * 131 + (at >> 8) * 17 + (at >> 16) + salt) ^ (at >> 24));
}

/* Send and receive what goes without blocking. True when both directions of this end are done. */
static bool pump(struct end *e, uint32_t peer_salt)
{
    static uint8_t buf[65536];
    while (e->sent < e->total) {
        size_t n = MIN(sizeof(buf), e->total - e->sent);
        for (size_t i = 0; i < n; i++)
            buf[i] = pattern(e->salt, e->sent + i);
        ssize_t w = weir_send(e->fd, buf, n, MSG_DONTWAIT);
        if (w < 0) {
            REQUIRE_EQ(errno, EAGAIN);
            break;
        }
        e->sent += (uint64_t)w;
    }
    if (e->sent == e->total && !e->shut) {
        REQUIRE(weir_shutdown(e->fd, SHUT_WR) == 0);
        e->shut = true;
    }
    while (!e->eof) {
        ssize_t r = weir_recv(e->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (r < 0) {
            REQUIRE_EQ(errno, EAGAIN);
            break;
        }
        if (r == 0)
            e->eof = true;
        for (ssize_t i = 0; i < r; i++) {
            if (buf[i] != pattern(peer_salt, e->received + (uint64_t)i)) {
                fprintf(stderr, "wrong byte at %llu\n",
                        (unsigned long long)e->received + (unsigned long long)i);
                abort();
            }
        }
        e->received += (uint64_t)MAX(r, 0);
    }
    return e->shut && e->eof;
}

struct pair {
    struct sim *sim;
    struct weir_stack *a, *b;
    struct end ea, eb;
};

static socklen_t address(int family, const char *v4, const char *v6, struct sockaddr_storage *ss)
{
    struct ipaddr a;
    REQUIRE(ipaddr_parse(family == AF_INET ? v4 : v6, &a) == 0);
    return peer_sockaddr(&a, PORT, ss);
}

static void connect_pair(struct pair *p, int family)
{
    struct sockaddr_storage ss;
    socklen_t len = address(family, "10.0.0.2", "fd00::2", &ss);
    int l = weir_socket(p->b, family, SOCK_STREAM, 0);
    REQUIRE(l >= 0 && weir_bind(l, (struct sockaddr *)&ss, len) == 0 && weir_listen(l, 8) == 0);
    p->ea.fd = weir_socket(p->a, family, SOCK_STREAM, 0);
    REQUIRE(p->ea.fd >= 0);
    if (weir_connect(p->ea.fd, (struct sockaddr *)&ss, len)) {
        perror("connect");
        abort();
    }
    p->eb.fd = weir_accept(l, NULL, NULL);
    REQUIRE(p->eb.fd >= 0);
    REQUIRE(weir_close(l) == 0);
}

static void run_pair(struct pair *p, uint64_t bytes_ab, uint64_t bytes_ba)
{
    p->ea.total = bytes_ab;
    p->eb.total = bytes_ba;
    p->ea.salt = 1;
    p->eb.salt = 77;
    uint64_t limit = sim_now(p->sim) + 1800 * NS_PER_S;
    for (;;) {
        bool done = pump(&p->ea, p->eb.salt);
        done &= pump(&p->eb, p->ea.salt);
        if (done)
            break;
        if (!sim_step(p->sim, limit)) {
            fprintf(stderr, "stuck: a sent %llu received %llu, b sent %llu received %llu\n",
                    (unsigned long long)p->ea.sent, (unsigned long long)p->ea.received,
                    (unsigned long long)p->eb.sent, (unsigned long long)p->eb.received);
            abort();
        }
    }
    REQUIRE(p->ea.received == bytes_ba && p->eb.received == bytes_ab);
    REQUIRE(weir_close(p->ea.fd) == 0 && weir_close(p->eb.fd) == 0);
    sim_run(p->sim, 200 * NS_PER_S);
}

static void transfer(const char *link, int family, uint64_t ab, uint64_t ba, const char *knob,
                     const char *value)
{
    struct pair p = {.sim = sim_create(7, 0)};
    p.a = sim_stack(p.sim, "a");
    p.b = sim_stack(p.sim, "b");
    if (knob) {
        sim_sysctl(p.a, knob, value);
        sim_sysctl(p.b, knob, value);
    }
    sim_join(p.sim, p.a, p.b, link);
    connect_pair(&p, family);
    run_pair(&p, ab, ba);
    sim_destroy(p.sim);
}

static void test_clean(void **state)
{
    transfer("", AF_INET, 8 << 20, 3 << 20, NULL, NULL);
    transfer("", AF_INET6, 8 << 20, 3 << 20, NULL, NULL);
    transfer("mtu=9000", AF_INET, 8 << 20, 0, NULL, NULL);
    transfer("mtu=576", AF_INET, 1 << 20, 1 << 20, NULL, NULL);
    transfer("", AF_INET, 4 << 20, 4 << 20, "net.inet.tcp.tso", "0");
}

static void test_delay(void **state)
{
    transfer("delay=20ms", AF_INET, 4 << 20, 4 << 20, NULL, NULL);
    transfer("delay=5ms,rate=50Mbit,queue=50p", AF_INET6, 4 << 20, 1 << 20, NULL, NULL);
    transfer("delay=5ms,rate=50Mbit,queue=50p", AF_INET, 4 << 20, 1 << 20,
             "net.inet.tcp.cc.algorithm", "newreno");
}

static void test_loss(void **state)
{
    transfer("delay=2ms,loss=1%,seed=1", AF_INET, 4 << 20, 1 << 20, NULL, NULL);
    transfer("delay=2ms,loss=1%,seed=2", AF_INET6, 4 << 20, 1 << 20, NULL, NULL);
    transfer("delay=2ms,loss=5%,seed=3", AF_INET, 1 << 20, 1 << 20, NULL, NULL);
    /* Of five requests for an address in a row none may get through: more of them. */
    transfer("delay=2ms,loss=30%,seed=4", AF_INET, 64 << 10, 64 << 10,
             "net.link.ether.inet.maxtries", "20");
    transfer("delay=2ms,loss=2%,seed=5", AF_INET, 2 << 20, 2 << 20, "net.inet.tcp.sack.enable",
             "0");
    transfer("delay=2ms,loss=2%,seed=6", AF_INET, 2 << 20, 2 << 20, "net.inet.tcp.rfc1323", "0");
    transfer("delay=2ms,loss=2%,seed=7", AF_INET, 2 << 20, 2 << 20, "net.inet.tcp.cc.algorithm",
             "newreno");
}

static void test_everything_wrong(void **state)
{
    transfer("delay=1ms,reorder=10%:2,seed=8", AF_INET, 4 << 20, 4 << 20, NULL, NULL);
    transfer("delay=1ms,reorder=20%:40,seed=9", AF_INET, 4 << 20, 1 << 20, NULL, NULL);
    transfer("delay=1ms,dup=10%,seed=10", AF_INET6, 2 << 20, 2 << 20, NULL, NULL);
    transfer("delay=1ms,corrupt=2%,seed=11", AF_INET, 1 << 20, 1 << 20, NULL, NULL);
    transfer("delay=20ms,loss=1%,reorder=5%:5,dup=2%,corrupt=1%,rate=100Mbit,queue=100p,seed=12",
             AF_INET, 1 << 20, 1 << 20, NULL, NULL);
    transfer("delay=20ms,loss=1%,reorder=5%:5,dup=2%,corrupt=1%,rate=100Mbit,queue=100p,seed=13",
             AF_INET6, 1 << 20, 1 << 20, "net.inet.tcp.ecn.enable", "1");
}

/* Many seeds, small transfers: states around handshake and close under loss. */
static void test_many_seeds(void **state)
{
    for (int seed = 100; seed < 160; seed++) {
        char link[96];
        snprintf(link, sizeof(link), "delay=3ms,loss=12%%,reorder=10%%:3,dup=5%%,seed=%d", seed);
        transfer(link, seed & 1 ? AF_INET : AF_INET6, 20000, seed % 3 ? 30000 : 0, NULL, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),      cmocka_unit_test(test_delay),
        cmocka_unit_test(test_loss),       cmocka_unit_test(test_everything_wrong),
        cmocka_unit_test(test_many_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
