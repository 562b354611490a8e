/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what comes out of samples is one valid document whose intervals add up, whatever the
 * samples are. Bound: made-up samples, no clock. */
#include "unit.h"

#include "cli/bench/bench.h"

#include <stdlib.h>

static struct bench_result result(enum bench_test test)
{
    return (struct bench_result){.p = {.test = test,
                                       .streams = 1,
                                       .message = 131072,
                                       .request = 1,
                                       .response = 1,
                                       .cc = "cubic"},
                                 .stack = "weir",
                                 .link = "mem",
                                 .warnings = json_array()};
}

static void add(struct bench_result *r, unsigned side, uint64_t ms, uint64_t bytes, uint64_t cpu_us)
{
    struct sample x = {.at_ns = 5 * NS_PER_S + ms * NS_PER_MS,
                       .bytes = bytes,
                       .transactions = bytes / 2,
                       .cpu_ns = cpu_us * NS_PER_US,
                       .have_tcp = true,
                       .retransmits = ms / 10,
                       .cwnd_bytes = 14480,
                       .rtt_us = 40};
    assert_true(series_add(&r->side[side], &x));
}

/* The document as a reader sees it: printed, and parsed again. */
static json_t *document(const struct bench_result *r)
{
    json_t *o = result_json(r);
    char *text = json_dumps(o, JSON_REAL_PRECISION(15));
    assert_non_null(text);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    json_t *back = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(back);
    free(text);
    json_decref(o);
    return back;
}

static void done(struct bench_result *r, json_t *o)
{
    json_decref(o);
    json_decref(r->warnings);
    series_free(&r->side[0]);
    series_free(&r->side[1]);
}

static double number(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);
    return json_number_value(b != NULL ? json_object_get(v, b) : v);
}

/* Each side's service demand is from the CPU time of its own threads: no number of processors
 * enters. case: MEA-008 */
/* case: MEA-013 */
/* case: MEA-019 */
static void test_intervals_add_up(void **state)
{
    (void)state;
    struct bench_result r = result(TCP_STREAM);
    static const uint64_t at[] = {0, 1000, 2003, 2999, 3500},
                          bytes[] = {777, 1000777, 1000777, 5000001, 5000002};
    json_int_t sum = 0;
    double previous = 0;
    for (unsigned i = 0; i < NELEM(at); i++) {
        add(&r, 0, at[i] + 1, bytes[i] + 99999, at[i] * 200);
        add(&r, 1, at[i], bytes[i], at[i] * 500);
    }
    json_t *o = document(&r), *v;
    size_t i;
    json_array_foreach(json_object_get(o, "intervals"), i, v)
    {
        sum += json_integer_value(json_object_get(v, "bytes"));
        assert_float_equal(number(v, "start", NULL), previous, 1e-9);
        previous = number(v, "end", NULL);
    }
    assert_int_equal(i, 4);
    assert_int_equal(sum, 5000002 - 777);
    assert_int_equal(json_integer_value(json_object_get(o, "bytes")), sum);
    assert_float_equal(number(o, "seconds", NULL), 3.5, 1e-9);
    assert_float_equal(number(o, "throughput_mbps", NULL), (double)sum * 8e-6 / 3.5, 0.001);
    assert_float_equal(number(o, "cpu", "local_pct"), 20, 0.01);
    assert_float_equal(number(o, "cpu", "remote_pct"), 50, 0.01);
    assert_float_equal(number(o, "service_demand_us_per_kb", "local"),
                       3500 * 200 / ((double)sum / 1024), 0.01);
    assert_float_equal(number(o, "service_demand_us_per_kb", "remote"),
                       3500 * 500 / ((double)sum / 1024), 0.01);
    assert_int_equal(json_integer_value(json_object_get(o, "retransmits")), 350);
    assert_true(json_is_null(json_object_get(o, "transactions_per_s")));
    assert_true(json_is_null(json_object_get(json_object_get(o, "latency_us"), "p50")));
    done(&r, o);
}

/* case: MEA-001 */
/* case: MEA-010 */
/* case: MEA-038 */
static void test_nothing_happened_in_no_time(void **state)
{
    (void)state;
    for (enum bench_test t = TCP_STREAM; t < BENCH_TESTS; t++) {
        struct bench_result r = result(t);
        for (unsigned side = 0; side < 2; side++) {
            add(&r, side, 0, 0, 0);
            add(&r, side, 0, 0, 0);
        }
        json_t *o = document(&r);
        assert_true(json_is_null(json_object_get(o, "throughput_mbps")));
        assert_true(json_is_null(json_object_get(o, "transactions_per_s")));
        assert_true(json_is_null(json_object_get(json_object_get(o, "cpu"), "local_pct")));
        assert_int_equal(json_integer_value(json_object_get(o, "bytes")), 0);
        done(&r, o);
    }
}

/* case: MEA-002 */
static void test_rates_of_every_size(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 50; bytes *= 1000) {
        struct bench_result r = result(TCP_MAERTS);
        for (unsigned side = 0; side < 2; side++) {
            add(&r, side, 0, 0, 0);
            add(&r, side, 1000, bytes, 1000);
        }
        json_t *o = document(&r);
        assert_float_equal(number(o, "throughput_mbps", NULL), (double)bytes * 8e-6,
                           (double)bytes * 8e-6 / 1e6 + 0.0006);
        done(&r, o);
    }
}

/* case: MEA-040 */
static void test_what_is_not_known_is_null(void **state)
{
    (void)state;
    struct bench_result r = result(TCP_CRR);
    add(&r, 0, 0, 0, 0);
    add(&r, 0, 1000, 2000, 1000);
    r.side[0].v[0].have_tcp = r.side[0].v[1].have_tcp = false;
    json_t *o = document(&r);
    assert_true(json_is_null(json_object_get(o, "retransmits")));
    assert_true(json_is_null(json_object_get(json_object_get(o, "cpu"), "remote_pct")));
    assert_float_equal(number(o, "transactions_per_s", NULL), 1000, 0.01);
    assert_float_equal(number(o, "service_demand_us_per_transaction", "local"), 1, 0.001);
    done(&r, o);
}

static void test_fairness(void **state)
{
    (void)state;
    static const uint64_t alike[4] = {7, 7, 7, 7}, one[4] = {0, 0, 9, 0}, none[4] = {0},
                          huge[2] = {UINT64_MAX, UINT64_MAX}, half[2] = {1, 3};
    assert_float_equal(fairness(alike, 4), 1, 1e-12);
    assert_float_equal(fairness(one, 4), 0.25, 1e-12);
    assert_float_equal(fairness(huge, 2), 1, 1e-12);
    assert_float_equal(fairness(half, 2), 0.8, 1e-12);
    assert_true(fairness(none, 4) != fairness(none, 4));
}

static void test_each_stream_has_its_share(void **state)
{
    (void)state;
    for (unsigned t = 0; t < 2; t++) {
        struct bench_result r = result(t == 0 ? TCP_STREAM : TCP_RR);
        uint64_t bytes[3] = {3000000, 1000000, 2000000};
        for (unsigned side = 0; side < 2; side++) {
            add(&r, side, 0, 0, 0);
            add(&r, side, 2000, 6000000, 1000);
        }
        r.p.streams = 3;
        r.stream_bytes = bytes;
        json_t *o = document(&r), *list = json_object_get(o, "per_stream"), *v;
        const char *rate = t == 0 ? "throughput_mbps" : "transactions_per_s";
        double sum = 0;
        size_t i;
        assert_int_equal(json_array_size(list), 3);
        json_array_foreach(list, i, v)
        {
            assert_int_equal(json_integer_value(json_object_get(v, "bytes")), bytes[i]);
            sum += number(v, rate, NULL);
        }
        assert_float_equal(sum, number(o, rate, NULL), 0.002);
        assert_float_equal(number(o, "fairness", NULL), 36.0 / (3 * 14), 1e-9);
        done(&r, o);
    }
}

/* One stream is neither fair nor unfair. */
static void test_no_fairness_of_one(void **state)
{
    (void)state;
    struct bench_result r = result(TCP_STREAM);
    uint64_t bytes = 5;
    for (unsigned side = 0; side < 2; side++) {
        add(&r, side, 0, 0, 0);
        add(&r, side, 1000, 5, 1);
    }
    r.stream_bytes = &bytes;
    json_t *o = document(&r);
    assert_true(json_is_null(json_object_get(o, "fairness")));
    assert_int_equal(json_array_size(json_object_get(o, "per_stream")), 1);
    done(&r, o);
}

static void test_samples_are_bounded(void **state)
{
    (void)state;
    struct series s = {0};
    struct sample x = {0};
    for (x.at_ns = 0; x.at_ns < BENCH_MAX_SAMPLES + 10; x.at_ns++)
        assert_true(series_add(&s, &x));
    assert_int_equal(s.count, BENCH_MAX_SAMPLES);
    assert_int_equal(s.v[s.count - 1].at_ns, BENCH_MAX_SAMPLES + 9);
    series_free(&s);
}

/* A far end with as many streams as there may be is understood. */
static void test_a_line_holds_every_stream(void **state)
{
    (void)state;
    static uint64_t streams[BENCH_MAX_STREAMS], back[BENCH_MAX_STREAMS];
    struct sample x = {.at_ns = INT64_MAX, .bytes = INT64_MAX, .cpu_ns = INT64_MAX}, y;
    for (unsigned i = 0; i < BENCH_MAX_STREAMS; i++)
        streams[i] = INT64_MAX - i;
    json_t *o = json_pack("{s:o}", "sample", sample_to_json(&x, streams, BENCH_MAX_STREAMS));
    char *text = json_dumps(o, JSON_COMPACT);
    assert_true(strlen(text) < PROTO_MAX_LINE);
    assert_true(sample_from_json(json_object_get(o, "sample"), &y, back, BENCH_MAX_STREAMS));
    assert_memory_equal(back, streams, sizeof(back));
    free(text);
    json_decref(o);
}

static void test_samples_survive_the_wire(void **state)
{
    (void)state;
    struct sample x = {.at_ns = 1,
                       .bytes = INT64_MAX,
                       .transactions = 3,
                       .cpu_ns = 4,
                       .have_tcp = true,
                       .retransmits = 5,
                       .cwnd_bytes = 6,
                       .rtt_us = 7},
                  y;
    uint64_t streams[2] = {8, 9}, back[2];
    json_t *o = sample_to_json(&x, streams, 2);
    assert_true(sample_from_json(o, &y, back, 2));
    assert_memory_equal(back, streams, sizeof(back));
    assert_true(y.bytes == x.bytes && y.cpu_ns == x.cpu_ns && y.rtt_us == x.rtt_us && y.have_tcp);
    json_object_set_new(o, "bytes", json_integer(-1));
    assert_false(sample_from_json(o, &y, back, 2));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_intervals_add_up),
        cmocka_unit_test(test_nothing_happened_in_no_time),
        cmocka_unit_test(test_rates_of_every_size),
        cmocka_unit_test(test_what_is_not_known_is_null),
        cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_each_stream_has_its_share),
        cmocka_unit_test(test_no_fairness_of_one),
        cmocka_unit_test(test_samples_are_bounded),
        cmocka_unit_test(test_a_line_holds_every_stream),
        cmocka_unit_test(test_samples_survive_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
