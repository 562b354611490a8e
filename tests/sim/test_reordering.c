/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: on a path that displaces segments a stream is not slowed by recoveries that nothing was
 * lost for: counted over several seeds, beside what the same path does without undoing and without
 * learning the degree; and losses among displaced segments are still repaired without timeouts.
 * What is printed is in virtual time. Bound: each transfer ends within 10 minutes of virtual time.
 */
#include "peer.h"
#include "weir/stack.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PORT 5001
#define TOTAL (4u << 20)
#define SEEDS 3
#define PERIOD 65521u /* of the stream: no multiple of anything that could be displaced */
#define CHUNK 65536u

struct outcome {
    uint64_t recoveries, undone, resent, timeouts, lost, ns;
    uint64_t segments, acks, sack_blocks, dsacks, out_of_order; /* of the receiving end */
};

struct setting {
    bool robust;      /* undo, and learn the degree */
    const char *form; /* of the receiver's queue */
};

/* CHUNK bytes of the stream from `at` on. */
static const uint8_t *stream(uint64_t at)
{
    static uint8_t bytes[PERIOD + CHUNK];
    if (!bytes[1])
        for (uint32_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)(i % PERIOD * 131 + (i % PERIOD >> 8) * 17);
    return bytes + at % PERIOD;
}

static void shuttle(struct sim *sim, int from, int to)
{
    static uint8_t buf[CHUNK];
    uint64_t sent = 0, received = 0, limit = sim_now(sim) + 600 * NS_PER_S;
    while (received < TOTAL) {
        ssize_t n;
        do {
            size_t len = MIN(CHUNK, TOTAL - sent);
            n = len ? weir_send(from, stream(sent), len, MSG_DONTWAIT) : 0;
            sent += (uint64_t)MAX(n, 0);
        } while (n > 0);
        while ((n = weir_recv(to, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
            REQUIRE(memcmp(buf, stream(received), (size_t)n) == 0);
            received += (uint64_t)n;
        }
        REQUIRE(received == TOTAL || sim_step(sim, limit));
    }
}

static void run(const char *link, unsigned seed, const struct setting *how, struct outcome *o)
{
    struct sim *sim = sim_create(seed, 0);
    struct weir_stack *a = sim_stack(sim, "a"), *b = sim_stack(sim, "b");
    struct sockaddr_storage ss;
    struct ipaddr ip;
    char options[160];

    sim_sysctl(b, "net.inet.tcp.reass.algorithm", how->form);
    sim_sysctl(b, "net.inet.tcp.reass.maxqueuelen", "100000");
    if (!how->robust) {
        sim_sysctl(a, "net.inet.tcp.undo", "0");
        sim_sysctl(a, "net.inet.tcp.max_reordering", "0");
    }
    snprintf(options, sizeof(options), "%s,seed=%u", link, seed);
    sim_join(sim, a, b, options);
    REQUIRE(ipaddr_parse("10.0.0.2", &ip) == 0);
    socklen_t len = peer_sockaddr(&ip, PORT, &ss);
    int l = weir_socket(b, AF_INET, SOCK_STREAM, 0), c = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    REQUIRE(weir_bind(l, (struct sockaddr *)&ss, len) == 0 && weir_listen(l, 1) == 0);
    REQUIRE(weir_connect(c, (struct sockaddr *)&ss, len) == 0);
    int r = weir_accept(l, NULL, NULL);
    uint64_t start = sim_now(sim);
    shuttle(sim, c, r);
    o->ns += sim_now(sim) - start;
    o->recoveries += sim_counter(a, "tcp.sack_recoveries");
    o->undone += sim_counter(a, "tcp.spurious_fr");
    o->resent += sim_counter(a, "tcp.tx_rexmt");
    o->timeouts += sim_counter(a, "tcp.rexmt_timeouts");
    o->lost += sim_counter(a, "link.emul_lost") + sim_counter(b, "link.emul_lost");
    o->segments += sim_counter(b, "tcp.rx");
    o->acks += sim_counter(b, "tcp.tx_acks");
    o->sack_blocks += sim_counter(b, "tcp.sack_snd_blocks");
    o->dsacks += sim_counter(b, "tcp.dsack_snd");
    o->out_of_order += sim_counter(b, "tcp.rx_ooo");
    REQUIRE(sim_counter(b, "tcp.reass_limit") == 0);
    REQUIRE(weir_close(c) == 0 && weir_close(r) == 0 && weir_close(l) == 0);
    sim_run(sim, 200 * NS_PER_S);
    sim_destroy(sim);
}

static void compare(const char *link, struct outcome *before, struct outcome *after)
{
    *before = *after = (struct outcome){0};
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        run(link, seed, &(struct setting){false, "chain"}, before);
        run(link, seed, &(struct setting){true, "chain"}, after);
    }
    printf("%s, %d seeds, %u MB each\n", link, SEEDS, TOTAL >> 20);
    for (int i = 0; i < 2; i++) {
        const struct outcome *o = i ? after : before;
        printf("  %s: %.2f MB/s, %llu recoveries, %llu undone, %llu resent, %llu lost, "
               "%llu timeouts\n",
               i ? "default           " : "no undo, no degree",
               (double)TOTAL * SEEDS / 1e6 / ((double)o->ns / 1e9),
               (unsigned long long)o->recoveries, (unsigned long long)o->undone,
               (unsigned long long)o->resent, (unsigned long long)o->lost,
               (unsigned long long)o->timeouts);
    }
}

static void test_displaced_by_three(void **state)
{
    struct outcome before, after;
    compare("delay=20ms,rate=100Mbit,queue=200p,reorder=5%:3", &before, &after);
    assert_true(before.recoveries >= 10 * SEEDS); /* the path does what this is about */
    assert_int_equal(before.undone, 0);
    assert_in_range(after.recoveries, 0, 2 * SEEDS);
    assert_true(after.undone >= after.recoveries);
    assert_in_range(after.resent, 0, 4 * SEEDS);
    assert_int_equal(after.timeouts, 0);
    assert_true(after.ns * 4 < before.ns);
}

static void test_displaced_by_thirty(void **state)
{
    struct outcome before, after;
    compare("delay=20ms,rate=100Mbit,queue=200p,reorder=5%:30", &before, &after);
    assert_true(before.recoveries >= 10 * SEEDS);
    assert_true(after.recoveries * 4 < before.recoveries);
    assert_true(after.ns * 4 < before.ns);
}

/* All is held back within one burst: the hole is filled before anything is resent. */
static void test_without_rate(void **state)
{
    struct outcome before, after;
    compare("delay=20ms,reorder=5%:3", &before, &after);
    assert_int_equal(after.resent, 0);
    assert_true(after.undone >= after.recoveries);
}

/* Where segments are lost too, each is resent about once, and the response to losses stays. */
static void test_losses_among_displaced(void **state)
{
    struct outcome before, after;
    compare("delay=20ms,rate=100Mbit,queue=200p,loss=1%,reorder=5%:3", &before, &after);
    assert_true(after.recoveries > after.undone + 5 * SEEDS);
    assert_true(after.resent < before.resent);
    assert_in_range(after.timeouts, 0, after.lost / 10);
    assert_true(after.ns < before.ns);
}

/* Only lost ones: nothing to undo but what lost ACKs make look so. */
static void test_losses_alone(void **state)
{
    struct outcome before, after;
    compare("delay=20ms,rate=100Mbit,queue=200p,loss=1%", &before, &after);
    assert_in_range(after.undone, 0, after.recoveries / 10);
    assert_true(after.recoveries >= 5 * SEEDS);
}

/* The form of the receiver's queue cannot be told from outside: every packet leaves at the same
 * moment with the same blocks. case: SEC-056 */
static void test_forms_are_alike(void **state)
{
    static const char *const links[] = {
        "delay=20ms,rate=100Mbit,queue=200p,loss=1%,reorder=5%:30,dup=2%",
        "delay=1ms,reorder=20%:40",
        "delay=5ms,rate=20Mbit,queue=20p,loss=3%,reorder=10%:3,corrupt=1%,dup=5%",
    };
    for (size_t i = 0; i < NELEM(links); i++) {
        struct outcome chain = {0}, list = {0};
        run(links[i], 1, &(struct setting){true, "chain"}, &chain);
        run(links[i], 1, &(struct setting){true, "list"}, &list);
        printf("%s: %llu segments, %llu out of order, %llu SACK blocks, %llu D-SACKs\n", links[i],
               (unsigned long long)chain.segments, (unsigned long long)chain.out_of_order,
               (unsigned long long)chain.sack_blocks, (unsigned long long)chain.dsacks);
        assert_true(chain.out_of_order > 100);
        assert_memory_equal(&chain, &list, sizeof(chain));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_displaced_by_three), cmocka_unit_test(test_displaced_by_thirty),
        cmocka_unit_test(test_without_rate),       cmocka_unit_test(test_losses_among_displaced),
        cmocka_unit_test(test_losses_alone),       cmocka_unit_test(test_forms_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
