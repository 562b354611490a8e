/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a link specification means exactly what it says, and whatever it cannot mean is refused
 * with a message that names the option. Bound: one good and some bad values for each option. */
#include "frames.h"

#include "link/link_spec.h"

static struct link_spec spec;
static char err[256];

static void refused(const char *text, const char *says)
{
    err[0] = '\0';
    if (link_spec_parse(text, &spec, err, sizeof(err)) != -EINVAL)
        fail_msg("taken: %s", text);
    if (!strstr(err, says))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, err, says);
}

static void taken(const char *text)
{
    if (link_spec_parse(text, &spec, err, sizeof(err)) != 0)
        fail_msg("%s: %s", text, err);
    assert_string_equal(err, "");
}

static void all_options(void **state)
{
    char text[64];

    taken("tap:tap0,addr=10.0.0.2/24,addr=10.1.0.2/16,addr6=fd00::2/"
          "64,gw=10.0.0.1,gw6=fd00::1,mtu=9000,"
          "queues=2,mac=02:00:00:00:00:0a,capture=/tmp/"
          "x=y.pcap,delay=20ms,rate=100Mbit,queue=100p,loss=1%,"
          "dup=0.5%,corrupt=0.001%,reorder=10%:2,ecn=2%,ecn=30p,coalesce=25us,seed=7");
    assert_int_equal(spec.kind, LINK_KIND_TAP);
    assert_string_equal(spec.name, "tap0");
    assert_int_equal(spec.addr_count, 3);
    assert_string_equal(ipaddr_format(&spec.addr[1].addr, text, sizeof(text)), "10.1.0.2");
    assert_int_equal(spec.addr[1].prefixlen, 16);
    assert_string_equal(ipaddr_format(&spec.addr[2].addr, text, sizeof(text)), "fd00::2");
    assert_string_equal(ipaddr_format(&spec.gw, text, sizeof(text)), "10.0.0.1");
    assert_string_equal(ipaddr_format(&spec.gw6, text, sizeof(text)), "fd00::1");
    assert_int_equal(spec.mtu, 9000);
    assert_int_equal(spec.queues, 2);
    assert_true(spec.has_mac);
    assert_int_equal(spec.mac[5], 10);
    assert_string_equal(spec.capture, "/tmp/x=y.pcap");
    const struct link_emul_config *e = &spec.emul;
    assert_int_equal(e->delay_ns, 20 * NS_PER_MS);
    assert_int_equal(e->rate_bps, 100000000);
    assert_int_equal(e->queue_packets, 100);
    assert_int_equal(e->queue_bytes, 0);
    assert_int_equal(e->loss, (LINK_EMUL_SHARE_ALL + 50) / 100);
    assert_int_equal(e->dup, (LINK_EMUL_SHARE_ALL + 100) / 200);
    assert_int_equal(e->corrupt, 42950);
    assert_int_equal(e->reorder, (LINK_EMUL_SHARE_ALL + 5) / 10);
    assert_int_equal(e->reorder_places, 2);
    assert_int_equal(e->ecn, (LINK_EMUL_SHARE_ALL + 25) / 50);
    assert_int_equal(e->ecn_packets, 30);
    assert_int_equal(e->coalesce_ns, 25000);
    assert_int_equal(e->seed, 7);
    assert_true(link_emul_wanted(e));
}

static void short_forms(void **state)
{
    taken("mem");
    assert_int_equal(spec.kind, LINK_KIND_MEM);
    assert_false(link_emul_wanted(&spec.emul));
    taken("mem:one,mtu=65535");
    assert_string_equal(spec.name, "one");
    taken("mem,loss=0%");
    assert_false(link_emul_wanted(&spec.emul));
    taken("mem,loss=100%");
    assert_int_equal(spec.emul.loss, LINK_EMUL_SHARE_ALL);
    taken("mem,delay=0.5s");
    assert_int_equal(spec.emul.delay_ns, NS_PER_S / 2);
    taken("mem,reorder=5%");
    assert_int_equal(spec.emul.reorder_places, 1);
    assert_false(spec.emul.reorder_timed);
    taken("mem,reorder=5%:3:2us");
    assert_true(spec.emul.reorder_timed);
    assert_int_equal(spec.emul.reorder_places, 3);
    assert_int_equal(spec.emul.reorder_ns, 2 * NS_PER_US);
    taken("mem,rate=1Gbit,queue=256k");
    assert_int_equal(spec.emul.queue_bytes, 256 * 1024);
    assert_int_equal(spec.emul.queue_packets, 0);
    assert_int_equal(link_spec_parse_options(LINK_KIND_MEM, NULL, &spec, err, sizeof(err)), 0);
    assert_int_equal(
        link_spec_parse_options(LINK_KIND_MEM, "peer=10.0.0.9/8", &spec, err, sizeof(err)), 0);
    assert_int_equal(spec.peer_count, 1);
}

static void bad_shapes(void **state)
{
    refused("", "kind of link");
    refused("tun:x", "kind of link");
    refused("memory", "kind of link");
    refused("tap", "interface");
    refused("packet", "interface");
    refused("packet:", "name");
    refused("packets:x", "kind of link");
    refused("tap:", "name");
    refused("tap:,mtu=1500", "name");
    refused("mem,", "missing");
    refused("mem,mtu=1500,", "missing");
    refused("mem,,mtu=1500", "OPTION=VALUE");
    refused("mem,mtu", "OPTION=VALUE");
    refused("mem,mtu=", "mtu");
    refused("mem,speed=1", "unknown option");
    refused("mem,Mtu=1500", "unknown option");
    refused("mem,=1", "unknown option");
    refused("mem,averylongoptionname=1", "unknown option");
    refused("mem,mtu=1500,mtu=1500", "twice");
}

static void bad_values(void **state)
{
    static const char *const bad[] = {
        "mtu=575",
        "mtu=65536",
        "mtu=-1",
        "mtu=1e3",
        "mtu=1500x",
        "mtu= 1500",
        "mtu=1500.5",
        "delay=20",
        "delay=ms",
        "delay=-1ms",
        "delay=2h",
        "delay=1.ms",
        "delay=.5ms",
        "delay=1 ms",
        "rate=100",
        "rate=100mbit",
        "rate=1bit",
        "rate=9999999Gbit",
        "loss=1",
        "loss=101%",
        "loss=-1%",
        "loss=nan%",
        "loss=1%%",
        "dup=x",
        "corrupt=200%",
        "reorder=10%:",
        "reorder=10%:0",
        "reorder=10:2",
        "reorder=10%:1025",
        "reorder=10%:2:3",
        "reorder=10%:2:",
        "reorder=10%:2:1us:1",
        "queue=0p",
        "queue=1x",
        "ecn=5",
        "ecn=0p",
        "coalesce=25",
        "seed=x",
        "seed=-1",
        "seed=99999999999999999999",
        "addr=10.0.0.2",
        "addr=10.0.0.2/33",
        "addr=10.0.0.2/",
        "addr=10.0.0/24",
        "addr=fd00::2/64",
        "addr6=10.0.0.2/24",
        "addr6=fd00::2/129",
        "addr=0.0.0.0/0",
        "addr=224.0.0.1/24",
        "addr=127.0.0.1/8",
        "addr=10.0.0.2/-1",
    };

    for (size_t i = 0; i < NELEM(bad); i++) {
        char text[128], key[16];
        snprintf(text, sizeof(text), "mem,rate=1Mbit,%s", bad[i]);
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(bad[i], "="), bad[i]);
        if (strcmp(key, "rate") == 0)
            snprintf(text, sizeof(text), "mem,%s", bad[i]);
        refused(text, key);
    }
    refused("tap:t,mac=01:00:00:00:00:01", "mac");
    refused("tap:t,mac=00:00:00:00:00:00", "mac");
    refused("tap:t,mac=02-00-00-00-00-01", "mac");
    refused("tap:t,mac=02:00:00:00:00", "mac");
    refused("tap:t,queues=0", "queues");
    refused("tap:t,queues=9", "queues");
}

static void bad_combinations(void **state)
{
    refused("mem,queues=1", "not an option");
    refused("tap:t,peer=10.0.0.1/24", "not an option of a tap link");
    refused("packet:p,peer=10.0.0.1/24", "not an option of a packet link");
    refused("packet:p,queues=2", "not an option of a packet link");
    taken("packet:p,mac=02:00:00:00:00:01,mtu=1400,delay=1ms");
    assert_int_equal(spec.kind, LINK_KIND_PACKET);
    assert_true(spec.has_mac);
    refused("tap:t,gw=10.0.0.1", "gw");
    refused("tap:t,addr=10.0.0.2/24,gw6=fd00::1", "gw6");
    refused("tap:t,addr6=fd00::2/64,mtu=1000", "1280");
    refused("mem,addr6=fd00::1/64,mtu=1000", "1280");
    taken("mem,mtu=1000"); /* its default addresses do without IPv6 then */
    refused("mem,gw6=fd00::1,mtu=1000", "gw6");
    refused("mem,queue=10p", "rate");
    refused("mem,addr=10.0.0.1/24,addr=10.0.0.1/16", "twice");
    refused("mem,addr=10.0.0.1/8,addr=10.0.0.2/8,addr=10.0.0.3/8,addr=10.0.0.4/8,addr=10.0.0.5/8,"
            "addr=10.0.0.6/8,addr=10.0.0.7/8,addr=10.0.0.8/8,addr=10.0.0.9/8",
            "fewer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_options),      cmocka_unit_test(short_forms),
        cmocka_unit_test(bad_shapes),       cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
