/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: numbers and options are read strictly, and a mistake is found before anything starts.
 * Bound: a table of lines. */
#include "unit.h"

#include "cli/bench/bench_options.h"

#include <stdio.h>
#include <unistd.h>

static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "-1", "+1", " 1", "1 ", "0x10", "1e9", "Z", "10X", "99999999999999999999", "1.5"};
    uint64_t v;
    uint16_t port;
    for (size_t i = 0; i < NELEM(bad); i++)
        assert_false(parse_u64(bad[i], 0, UINT64_MAX, &v));
    assert_true(parse_u64("18446744073709551615", 0, UINT64_MAX, &v));
    assert_true(v == UINT64_MAX);
    assert_false(parse_u64("4", 5, 9, &v));
    assert_true(parse_size("64K", 0, UINT64_MAX, &v));
    assert_int_equal(v, 65536);
    assert_true(parse_size("1G", 0, UINT64_MAX, &v));
    assert_int_equal(v, 1 << 30);
    assert_false(parse_size("64KB", 0, UINT64_MAX, &v));
    assert_false(parse_size("99999999999G", 0, UINT64_MAX, &v));
    assert_true(parse_port("65535", &port));
    assert_false(parse_port("0", &port));
    assert_false(parse_port("65536", &port));
}

static void test_seconds(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", ".", ".x", "1.", "-1", "1e9", "1,5", "nan", "inf", "1000.000000001", "1001"};
    uint64_t ns;
    for (size_t i = 0; i < NELEM(bad); i++)
        assert_false(parse_seconds(bad[i], 1000, &ns));
    assert_true(parse_seconds("2.5", 1000, &ns));
    assert_int_equal(ns, 2500000000u);
    assert_true(parse_seconds(".5", 1000, &ns));
    assert_int_equal(ns, 500000000u);
    assert_true(parse_seconds("0.000000001", 1000, &ns));
    assert_int_equal(ns, 1);
    assert_true(parse_seconds("0.0000000009", 1000, &ns));
    assert_int_equal(ns, 0);
    assert_true(parse_seconds("1000", 1000, &ns));
}

static void test_settings(void **state)
{
    (void)state;
    struct settings s = {0};
    assert_true(settings_add(&s, "net.inet.tcp.msl=5=6"));
    assert_string_equal(s.v[0].name, "net.inet.tcp.msl");
    assert_string_equal(s.v[0].value, "5=6");
    assert_false(settings_add(&s, "novalue"));
    assert_false(settings_add(&s, "=x"));
    for (int i = 1; i < SETTINGS_MAX; i++)
        assert_true(settings_add(&s, "a="));
    assert_false(settings_add(&s, "a=b"));
}

/* Parse one command line, words separated by blanks. */
static int parse(const char *line, struct bench_options *o)
{
    static char text[512];
    char *argv[32], *save = NULL;
    int argc = 0;
    snprintf(text, sizeof(text), "bench %s", line);
    for (char *w = strtok_r(text, " ", &save); w != NULL && argc < 31;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    return bench_parse(argc, argv, o);
}

/* case: MEA-011 */
static void test_bad_bench_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "NOSUCH",
        "TCP_RR extra",
        "TCP_RR -l -1",
        "TCP_RR -l 1e9",
        "TCP_RR -l 99999999",
        "TCP_RR -P 0",
        "TCP_RR -P 2049",
        "TCP_RR -P 99999999999999999999",
        "TCP_RR -P 1k",
        "TCP_RR -P -1",
        "TCP_RR -P 1.5",
        "TCP_RR -P ''",
        "TCP_RR -P",
        "TCP_STREAM -m Z",
        "TCP_STREAM -m 10X",
        "TCP_STREAM -m 0",
        "TCP_STREAM -m -5",
        "TCP_RR -i -3",
        "TCP_RR -i 0.0000001",
        "TCP_RR -O 61",
        "TCP_RR -r 5",
        "TCP_RR -r 0,1",
        "TCP_RR -r 1,2,3",
        "TCP_RR -s 0",
        "TCP_RR -p 0",
        "TCP_RR --stack linux",
        "TCP_RR --set x",
        "TCP_RR --nosuch",
        "TCP_RR -z",
        "TCP_RR --cc averyveryverylongname",
        "TCP_RR --json=yes",
        "TCP_RR --stack kernel --link mem",
        "TCP_RR --stack kernel --set a=b",
        "TCP_RR --link tap:t0",
        "TCP_RR -H h --link mem",
        "TCP_RR -l 1000 -i 0.001",
        "TCP_RR -T",
        "TCP_RR -T ,",
        "TCP_RR -T x",
        "TCP_RR -T 0,1,2",
        "TCP_RR -T 5000",
        "TCP_RR --stack-cpu -1",
        "TCP_RR --stack kernel --stack-cpu 0",
        "TCP_RR --stack kernel --locks",
        "TCP_RR --stack kernel -H h --limit",
        "PIPE --stack kernel -H h",
        "PIPE -l 0",
        "TCP_STREAM -F /etc/passwd",
        "TCP_SENDFILE -F",
        "TCP_RR -r 0,1",
        "TCP_STREAM -b 1M",
        "UDP_STREAM -b 1X",
        "UDP_STREAM -b 1MM",
        "UDP_STREAM -b -1",
        "UDP_STREAM -b 99999999999999999999",
        "UDP_STREAM -m 31",
        "UDP_STREAM -m 65488",
        "UDP_STREAM -P 5",
        "UDP_RR -r 65488,1",
        "UDP_RR --verify",
        "TCP_SENDFILE --verify",
    };
    struct bench_options o;
    for (size_t i = 0; i < NELEM(bad); i++)
        if (parse(bad[i], &o) != CLI_USAGE)
            fail_msg("accepted: %s", bad[i]);
}

static void test_good_bench_line(void **state)
{
    (void)state;
    struct bench_options o;
    assert_int_equal(parse("tcp_rr -l 0.5 -i 0.25 -O 2 -r 64,1K -s 128K -P 3 -D -J --cc newreno "
                           "--link mem,delay=1ms "
                           "--set a=b --set-remote c=d",
                           &o),
                     -1);
    const struct bench_params *p = &o.params;
    assert_int_equal(p->test, TCP_RR);
    assert_int_equal(p->length_ns, NS_PER_S / 2);
    assert_int_equal(p->interval_ns, NS_PER_S / 4);
    assert_int_equal(p->omit_ns, 2 * NS_PER_S);
    assert_int_equal(p->request, 64);
    assert_int_equal(p->response, 1024);
    assert_int_equal(p->sockbuf, 131072);
    assert_int_equal(p->streams, 3);
    assert_true(p->nodelay && o.json && p->cc_asked && !o.kernel);
    assert_string_equal(p->cc, "newreno");
    assert_string_equal(o.sets.v[0].name, "a");
    assert_string_equal(o.remote_sets.v[0].value, "d");
    assert_int_equal(parse("TCP_STREAM", &o), -1);
    assert_int_equal(o.params.message, 131072);
    assert_false(o.params.cc_asked);
    assert_string_equal(o.params.cc, "cubic");
    assert_int_equal(parse("TCP_SENDFILE -F /some/file", &o), -1);
    assert_string_equal(o.file, "/some/file");
    assert_int_equal(o.params.message, 131072); /* what the far end asks for at a time */
    assert_int_equal(o.params.file_call, 0);    /* the whole file */
    assert_int_equal(parse("TCP_SENDFILE -m 64K", &o), -1);
    assert_int_equal(o.params.file_call, 65536);
}

static void test_the_file_to_send(void **state)
{
    (void)state;
    static const char *const bad[] = {"/nonexistent/x", "/", "/dev/null"};
    struct bench_params p = {.file_fd = -1};
    char err[128];
    for (size_t i = 0; i < NELEM(bad); i++) {
        err[0] = '\0';
        assert_false(bench_file_open(bad[i], &p, err, sizeof(err)));
        assert_true(err[0] != '\0' && p.file_fd < 0);
    }
    assert_true(bench_file_open("/proc/self/exe", &p, err, sizeof(err)));
    assert_true(p.file_fd >= 0 && p.file_bytes > 0);
    close(p.file_fd);
}

/* case: MEA-007 */
static void test_parameters_survive_the_wire(void **state)
{
    (void)state;
    struct bench_options o;
    struct bench_params back;
    char err[128];
    assert_int_equal(
        parse("TCP_MAERTS -l 1.5 -i 0.1 -O 1 -m 64K -s 70000 -P 2048 -D --cc newreno", &o), -1);
    json_t *j = params_to_json(&o.params);
    assert_true(params_from_json(j, &back, err, sizeof(err)));
    json_t *again = params_to_json(&back);
    assert_true(json_equal(j, again));
    json_decref(again);
    json_object_set_new(j, "streams", json_integer(2049));
    assert_false(params_from_json(j, &back, err, sizeof(err)));
    json_object_set_new(j, "streams", json_string("1"));
    assert_false(params_from_json(j, &back, err, sizeof(err)));
    json_decref(j);
    assert_false(params_from_json(NULL, &back, err, sizeof(err)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_bad_bench_lines),
        cmocka_unit_test(test_good_bench_line),
        cmocka_unit_test(test_the_file_to_send),
        cmocka_unit_test(test_parameters_survive_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
