/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the text form of the flow log is FreeBSD's, is read back as it was written, and what is not
 * such a line is refused with its reason. Bound: 100,000 random records. */
#include "measure/siftr_line.h"
#include "siftr_random.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROUNDS 100000
#define SEED 20230726

static const char example[] =
    "o,1690290836.487990,10.1.1.2,40725,10.1.1.3,5001,1073725440,14480,32,65728,66608,7,6,4,1448,"
    "1562,1,16778208,230000,33304,14480,66608,0,14480,0,2931540183,2";

static struct siftr_record parse_good(const char *line, size_t len)
{
    struct siftr_line out;
    const char *why = "";
    if (siftr_parse_line(line, len, &out, &why) != 0)
        fail_msg("%.*s: %s", (int)len, line, why);
    assert_int_equal(out.kind, SIFTR_LINE_RECORD);
    return out.record;
}

static void test_example(void **state)
{
    struct siftr_record r = parse_good(example, strlen(example));
    char text[SIFTR_TEXT_MAX];
    assert_int_equal(r.time_ns, UINT64_C(1690290836487990000));
    assert_int_equal(r.direction, SIFTR_OUT);
    assert_int_equal(r.lport, 40725);
    assert_int_equal(r.ssthresh, 1073725440);
    assert_int_equal(r.cwnd, 14480);
    assert_int_equal(r.flags2, 32);
    assert_int_equal(r.snd_wnd, 65728);
    assert_int_equal(r.rcv_wnd, 66608);
    assert_int_equal(r.snd_scale, 7);
    assert_int_equal(r.rcv_scale, 6);
    assert_int_equal(r.state, 4);
    assert_int_equal(r.mss, 1448);
    assert_int_equal(r.srtt_us, 1562);
    assert_int_equal(r.sack, 1);
    assert_int_equal(r.flags, 16778208);
    assert_int_equal(r.rto_us, 230000);
    assert_int_equal(r.snd_limit, 33304);
    assert_int_equal(r.snd_fill, 14480);
    assert_int_equal(r.rcv_limit, 66608);
    assert_int_equal(r.rcv_fill, 0);
    assert_int_equal(r.inflight, 14480);
    assert_int_equal(r.reass_segs, 0);
    assert_int_equal(r.flowid, 2931540183);
    assert_int_equal(r.flowtype, 2);
    size_t n = siftr_text_record(text, &r);
    assert_int_equal(n, strlen(example) + 1);
    assert_memory_equal(text, example, n - 1);
    assert_int_equal(text[n - 1], '\n');
}

/* case: MEA-059 */
static void test_longest(void **state)
{
    struct siftr_record r;
    char text[SIFTR_TEXT_MAX + 1];
    unsigned commas = 0;
    memset(&r, 0xff, sizeof(r));
    memset(text, '#', sizeof(text));
    r.direction = SIFTR_OUT;
    r.family = 6;
    size_t n = siftr_text_record(text, &r);
    assert_true(n <= SIFTR_TEXT_MAX);
    for (size_t i = 0; i < n; i++)
        commas += text[i] == ',';
    assert_int_equal(commas, SIFTR_FIELDS - 1);
    assert_int_equal(text[n - 1], '\n');
    assert_int_equal(text[n], '#');
    assert_non_null(strstr(text, ",ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,65535,4294967295,"));
}

static void test_there_and_back(void **state)
{
    struct siftr_random x = {SEED};
    struct siftr_record r = {0}, back;
    char text[SIFTR_TEXT_MAX];
    print_message("seed %d\n", SEED);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 8 == 0)
            random_flow(&x, &r);
        if (i % 1000 == 0)
            r.time_ns = 0;
        random_values(&x, &r);
        r.time_ns = r.time_ns / 2 / NS_PER_US * NS_PER_US;
        size_t n = siftr_text_record(text, &r);
        assert_true(n <= sizeof(text));
        back = parse_good(text, n - 1);
        assert_memory_equal(&back, &r, sizeof(r));
    }
}

static void test_addresses(void **state)
{
    struct siftr_random x = {SEED};
    uint8_t a[16];
    char text[48], want[48];
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint8_t family = i % 4 ? 6 : 4;
        random_address(&x, family, a);
        if (i % 16 == 1)
            memset(a, 0, 10 + i / 16 % 4);
        if (i % 32 == 1)
            a[10] = a[11] = 0xff;
        text[siftr_text_address(text, family, a)] = '\0';
        assert_non_null(inet_ntop(family == 6 ? AF_INET6 : AF_INET, a, want, sizeof(want)));
        assert_string_equal(text, want);
    }
}

static const char header[] =
    "enable_time_secs=1690290836\tenable_time_usecs=000977\tsiftrver=1.3.0\t"
    "sysname=Weir\tsysver=100\tipmode=6\n";
static const char footer[] =
    "disable_time_secs=1690290846\tdisable_time_usecs=000001\tnum_inbound_tcp_pkts=10\t"
    "num_outbound_tcp_pkts=20\ttotal_tcp_pkts=30\tnum_inbound_skipped_pkts_malloc=0\t"
    "num_outbound_skipped_pkts_malloc=1\tnum_inbound_skipped_pkts_tcpcb=2\t"
    "num_outbound_skipped_pkts_tcpcb=3\tnum_inbound_skipped_pkts_inpcb=4\t"
    "num_outbound_skipped_pkts_inpcb=5\ttotal_skipped_tcp_pkts=15\tflow_list="
    "10.1.1.2;40725-10.1.1.3;5001,\n";

static void test_header_and_footer(void **state)
{
    struct siftr_header h = {
        .enable_ns = UINT64_C(1690290836000977123), .sysver = 100, .ipmode = 6};
    struct siftr_footer f = {.disable_ns = UINT64_C(1690290846000001000),
                             .packets = {10, 20},
                             .skipped_malloc = {0, 1},
                             .skipped_tcpcb = {2, 3},
                             .skipped_inpcb = {4, 5}};
    struct siftr_record r = parse_good(example, strlen(example));
    struct siftr_line line;
    const char *why;
    char text[SIFTR_FOOTER_MAX + SIFTR_FLOW_MAX + 1];
    size_t n = siftr_text_header(text, &h);
    assert_int_equal(n, strlen(header));
    assert_memory_equal(text, header, n);
    n = siftr_text_footer(text, &f);
    n += siftr_text_flow(text + n, &r);
    text[n++] = '\n';
    assert_int_equal(n, strlen(footer));
    assert_memory_equal(text, footer, n);

    assert_int_equal(siftr_parse_line(header, strlen(header) - 1, &line, &why), 0);
    assert_int_equal(line.kind, SIFTR_LINE_HEADER);
    assert_string_equal(line.header.version, "1.3.0");
    assert_string_equal(line.header.sysname, "Weir");
    assert_int_equal(line.header.enable_ns, UINT64_C(1690290836000977000));
    assert_int_equal(line.header.sysver, 100);
    assert_int_equal(siftr_parse_line(footer, strlen(footer) - 1, &line, &why), 0);
    assert_int_equal(line.kind, SIFTR_LINE_FOOTER);
    assert_memory_equal(&line.footer, &f, sizeof(f));
}

/* The largest of everything fits. */
static void test_longest_header_and_footer(void **state)
{
    struct siftr_header h;
    struct siftr_footer f;
    struct siftr_record r;
    char text[SIFTR_FOOTER_MAX];
    memset(&h, 0xff, sizeof(h));
    memset(h.version, 'v', sizeof(h.version) - 1);
    memset(h.sysname, 's', sizeof(h.sysname) - 1);
    h.version[sizeof(h.version) - 1] = h.sysname[sizeof(h.sysname) - 1] = '\0';
    memset(&f, 0xff, sizeof(f));
    memset(&r, 0xff, sizeof(r));
    r.family = 6;
    assert_true(siftr_text_header(text, &h) <= SIFTR_HEADER_MAX);
    assert_true(siftr_text_footer(text, &f) <= SIFTR_FOOTER_MAX);
    assert_true(siftr_text_flow(text, &r) <= SIFTR_FLOW_MAX);
}

static void test_what_other_versions_add(void **state)
{
    static const char older[] =
        "enable_time_secs=1\tenable_time_usecs=000002\tsiftrver=1.3.0\thz=1000"
        "\ttcp_rtt_scale=32\tsysname=FreeBSD\tsysver=1400097\tipmode=4";
    struct siftr_line line;
    const char *why;
    assert_int_equal(siftr_parse_line(older, strlen(older), &line, &why), 0);
    assert_string_equal(line.header.sysname, "FreeBSD");
    assert_int_equal(line.header.sysver, 1400097);
    assert_int_equal(line.header.ipmode, 4);
}

static void expect_refused(const char *line, size_t len, const char *reason)
{
    struct siftr_line out;
    const char *why = "";
    if (siftr_parse_line(line, len, &out, &why) == 0)
        fail_msg("taken: %.*s", (int)len, line);
    if (why == NULL || strstr(why, reason) == NULL)
        fail_msg("%.*s: %s, not %s", (int)len, line, why ? why : "no reason", reason);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"", "neither"},
        {"x,1.000000,1.2.3.4,1", "neither"},
        {"i,-1.000000,1.2.3.4,1", "seconds"},
        {"i,01.000000,1.2.3.4,1", "seconds"},
        {"i,99999999999999999999.000000,1.2.3.4,1", "seconds"},
        {"i,1.00000,1.2.3.4,1", "six digits"},
        {"i,1.0000000,1.2.3.4,1", "six digits"},
        {"i,0x00000000,1.000000,1.2.3.4,1", "older"},
        {"i,1.000000,1.2.3,1,1.2.3.4,1", "neither IPv4 nor IPv6"},
        {"i,1.000000,,1,1.2.3.4,1", "missing"},
        {"i,1.000000,1111111111111111111111111111111111111111111111111,1", "too long"},
        {"i,1.000000,1.2.3.4,65536,1.2.3.4,1", "local port"},
        {"i,1.000000,1.2.3.4,1,::1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2", "families"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,4294967296", "ssthresh"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,1 ,", "ssthresh"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,0,0,0,0,0,256,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2", "snd_scale"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,0,0,0,0,0,0,0,0,0,0,2,0,0,0,0,0,0,0,0,0,2", "sack"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,0,0,0,0,0,0,0,0,0,0,9,0,0,0,0,0,0,0,0,0,2", "sack"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,2,0", "flowtype"},
        {"i,1.000000,1.2.3.4,1,1.2.3.4,1,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,2\r", "flowtype"},
        {"enable_time_secs=1\tenable_time_usecs=000001", "siftrver"},
        {"enable_time_secs=x\tsiftrver=1.3.0", "no number"},
        {"enable_time_secs=1\tenable_time_usecs=1\tsiftrver=1.3.0", "six digits"},
        {"enable_time_secs=1\tsiftrver=1.3.0aaaaaaaaaaaaaaaaaaa", "too long"},
        {"enable_time_secs=1\tsiftrver", "name=value"},
        {"disable_time_secs=1\tnum_inbound_tcp_pkts=1", "not complete"},
    };
    for (size_t i = 0; i < NELEM(bad); i++)
        expect_refused(bad[i].line, strlen(bad[i].line), bad[i].why);
    expect_refused("i,1.000000,1.2.3.4\0,1", 21, "too long");
}

/* Nothing that was cut off passes for a record. */
static void test_every_truncation(void **state)
{
    for (size_t n = 0; n < strlen(example); n++) {
        char *exact = malloc(n + 1); /* so that a sanitizer sees a byte too many */
        assert_non_null(exact);
        exact = memcpy(exact, example, n);
        char *shrunk = realloc(exact, n > 0 ? n : 1);
        assert_non_null(shrunk);
        expect_refused(shrunk, n, "");
        free(shrunk);
    }
}

/* The form by difference: more flows by turns than it keeps, most values as they were. */
static void test_line_is_the_text(void **state)
{
    static struct siftr_line_cache cache;
    static struct siftr_record flow[3 * SIFTR_LINE_FLOWS];
    struct siftr_random x = {SEED};
    char line[2 * SIFTR_TEXT_MAX], text[SIFTR_TEXT_MAX];

    (void)state;
    siftr_line_init(&cache);
    for (size_t i = 0; i < NELEM(flow); i++)
        random_flow(&x, &flow[i]);
    for (int i = 0; i < 100000; i++) {
        struct siftr_record *r = &flow[random_below(&x, NELEM(flow))];
        if (random_below(&x, 4) == 0)
            random_values(&x, r);
        r->cwnd = random_value(&x);
        size_t n = siftr_text_record(text, r);
        assert_int_equal(siftr_line_record(&cache, line, r), n);
        assert_memory_equal(line, text, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_is_the_text),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_header_and_footer),
        cmocka_unit_test(test_longest_header_and_footer),
        cmocka_unit_test(test_what_other_versions_add),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
