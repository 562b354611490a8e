/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: weir top reckons right from two snapshots, formats within its columns, and its screen holds
 * at any size and for any snapshot. No terminal. Bound: 10,000 flows, sizes to 300 x 100. */
#include "unit.h"

#include "cli/top/top.h"

#include <math.h>
#include <ncurses.h>
#include <stdlib.h>
#include <time.h>

/* ---- snapshots ---- */

#define S 1e9

struct row {
    int id;
    const char *local, *foreign;
    int lport;
    double started, at, sent, received, retransmits;
};

static char *text;
static size_t text_len;

static FILE *begin(void)
{
    free(text);
    FILE *f = open_memstream(&text, &text_len);
    assert_non_null(f);
    return f;
}

static struct top_snapshot *end(FILE *f)
{
    fclose(f);
    return top_snapshot_parse(text, text_len);
}

#define FLOW_HEAD                                                                                  \
    "\"flows\":{\"columns\":[\"stack\",\"at_ns\",\"local\",\"local_port\",\"foreign\","            \
    "\"foreign_port\",\"state\",\"id\",\"started_ns\",\"sent_bytes\",\"received_bytes\","          \
    "\"retransmits\",\"srtt_ns\",\"cwnd\",\"sndbuf_used\",\"sndbuf_limit\",\"cpu_ns\"],\"rows\":["

static void head(FILE *f, double at, double sent)
{
    fprintf(f,
            "{\"version\":1,\"pid\":7,\"at_ns\":%.0f,\"mbufs\":3,\"mbuf_bytes\":6000,"
            "\"stacks\":[{\"name\":\"a\",\"flows\":2,\"counters\":{\"tcp.tx_bytes\":%.0f,"
            "\"tcp.rx_bytes\":0,\"tcp.tx_rexmt\":1}}],",
            at, sent);
}

static void tail(FILE *f, double at, double cpu)
{
    fprintf(
        f,
        "\"threads\":{\"columns\":[\"tid\",\"at_ns\",\"name\",\"cpu_ns\",\"input_ns\"],\"rows\":["
        "[10,%.0f,\"driver\",%.0f,%.0f],[11,%.0f,\"idle\",0,null]]},"
        "\"locks\":{\"columns\":[\"id\",\"at_ns\",\"name\",\"contended\",\"spins\",\"blocks\"],"
        "\"rows\":[[2,%.0f,\"so_rcv\",%.0f,5,0],[1,%.0f,\"pool\",0,0,0]]}}",
        at, cpu, cpu / 2, at, at, cpu / 1e6, at);
}

static struct top_snapshot *snapshot(double at, const struct row *r, size_t n, double cpu)
{
    FILE *f = begin();
    head(f, at, n > 0 ? r[0].sent : 0);
    fputs(FLOW_HEAD, f);
    for (size_t i = 0; i < n; i++)
        fprintf(f,
                "%s[\"a\",%.0f,\"%s\",%d,\"%s\",80,\"ESTABLISHED\",%d,%.0f,%.0f,%.0f,%.0f,"
                "1500000,14480,50,200,%.0f]",
                i > 0 ? "," : "", r[i].at, r[i].local, r[i].lport, r[i].foreign, r[i].id,
                r[i].started, r[i].sent, r[i].received, r[i].retransmits, cpu);
    fputs("]},", f);
    tail(f, at, cpu);
    struct top_snapshot *s = end(f);
    assert_non_null(s);
    return s;
}

static unsigned column(const struct top_model *m, const char *name)
{
    for (unsigned c = 0; c < m->columns; c++)
        if (strcmp(m->column[c].name, name) == 0)
            return c;
    fail_msg("no column %s", name);
    return 0;
}

static double value(const struct top_model *m, size_t row, const char *name)
{
    return top_model_value(m, row, column(m, name));
}

static const struct row before[] = {
    {1, "10.0.0.1", "10.0.0.2", 1000, 1 * S, 10 * S, 1000, 0, 2},
    {2, "10.0.0.1", "10.0.0.3", 1001, 1 * S, 10 * S, 0, 5000, 0},
};
/* The second is another connection by now; a third came after the first snapshot, a fourth is older
 * and was not listed. */
static const struct row after[] = {
    {4, "fd00::1", "fd00::2", 4, 2 * S, 12 * S, 0, 9e9, 0},
    {1, "10.0.0.1", "10.0.0.2", 1000, 1 * S, 12 * S, 3000, 500, 6},
    {2, "10.0.0.1", "10.0.0.3", 1001, 11 * S, 12 * S, 7000, 0, 0},
    {3, "10.0.0.9", "10.0.0.2", 99, 10.5 * S, 12 * S, 100, 0, 0},
};

static void two(struct top_model *m)
{
    top_model_init(m);
    top_model_add(m, snapshot(10 * S, before, 2, 1e6));
    top_model_add(m, snapshot(12 * S, after, 4, 3e6));
    assert_true(top_model_arrange(m));
}

/* ---- the model ---- */

static void test_rates(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    assert_true(fabs(top_model_interval(&m) - 2) < 1e-9);
    /* 2000 bytes sent and 500 received in 2 s, 4 resent. */
    assert_true(fabs(value(&m, 1, "tx") - 8000) < 1e-6);
    assert_true(fabs(value(&m, 1, "rx") - 2000) < 1e-6);
    assert_true(fabs(value(&m, 1, "rate") - 10000) < 1e-6);
    assert_true(fabs(value(&m, 1, "retx") - 2) < 1e-9);
    assert_true(fabs(value(&m, 1, "sndq") - 25) < 1e-9);
    assert_true(fabs(value(&m, 1, "rtt") - 1500000) < 1e-9);
    /* 2 ms of CPU for 2500 bytes: 800 s for a megabyte, in ns for each. */
    assert_true(fabs(value(&m, 1, "cpu") - 2e6 / 2500 * 1e6) < 1);
    top_model_fini(&m);
}

static void test_new_and_reused_connections(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    /* The same place and addresses, another connection: from nothing, in the whole interval. */
    assert_true(fabs(value(&m, 2, "tx") - 7000 * 8 / 2.0) < 1e-6);
    assert_true(fabs(value(&m, 3, "tx") - 100 * 8 / 2.0) < 1e-6);
    /* It grew before the first snapshot, nobody knows how much of it. */
    assert_true(isnan(value(&m, 0, "rx")));
    top_model_fini(&m);
}

static void test_one_snapshot_has_no_rates(void **state)
{
    (void)state;
    struct top_model m;
    top_model_init(&m);
    assert_int_equal(m.shown, 0);
    top_model_add(&m, snapshot(10 * S, before, 2, 1e6));
    assert_true(top_model_arrange(&m));
    assert_int_equal(m.shown, 2);
    assert_true(isnan(value(&m, 0, "tx")));
    assert_true(isnan(top_model_interval(&m)));
    assert_true(value(&m, 0, "cwnd") == 14480);
    top_model_fini(&m);
}

static void test_order(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    const uint32_t falling[] = {2, 1, 3, 0}; /* 28000, 10000, 400, not known */
    for (int i = 0; i < 4; i++)
        assert_int_equal(m.order[i], falling[i]);
    m.sort[TOP_FLOWS].reverse = true;
    assert_true(top_model_arrange(&m));
    const uint32_t rising[] = {3, 1, 2, 0}; /* not known is last all the same */
    for (int i = 0; i < 4; i++)
        assert_int_equal(m.order[i], rising[i]);
    assert_true(top_model_sort_by(&m, "LOCAL"));
    assert_true(top_model_arrange(&m));
    const uint32_t named[] = {1, 2, 3, 0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(m.order[i], named[i]);
    assert_false(top_model_sort_by(&m, "nosuch"));
    top_model_fini(&m);
}

static void test_filter(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    snprintf(m.filter, sizeof(m.filter), "FD00::1.4");
    assert_true(top_model_arrange(&m));
    assert_int_equal(m.shown, 1);
    assert_int_equal(m.order[0], 0);
    snprintf(m.filter, sizeof(m.filter), "100");
    assert_true(top_model_arrange(&m));
    assert_int_equal(m.shown, 2);
    snprintf(m.filter, sizeof(m.filter), "nothing has this");
    assert_true(top_model_arrange(&m));
    assert_int_equal(m.shown, 0);
    top_model_fini(&m);
}

static void test_threads_and_locks(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    m.view = TOP_THREADS;
    assert_true(top_model_arrange(&m));
    assert_int_equal(m.shown, 2);
    assert_true(fabs(value(&m, 0, "cpu") - 0.1) < 1e-9); /* 2 ms of 2 s, in percent */
    assert_true(fabs(value(&m, 0, "input") - 0.05) < 1e-9);
    assert_true(isnan(value(&m, 1, "input")));
    assert_false(top_model_has(&m, column(&m, "wait"))); /* this instance does not tell it */
    m.view = TOP_LOCKS;
    assert_true(top_model_arrange(&m));
    assert_true(fabs(value(&m, 0, "contended") - 1) < 1e-9);
    top_model_sort_step(&m, 1);
    assert_int_equal(m.sort[TOP_LOCKS].column, column(&m, "name"));
    top_model_sort_step(&m, -1);
    assert_int_equal(m.sort[TOP_LOCKS].column, column(&m, "contended"));
    top_model_fini(&m);
}

static void test_another_process(void **state)
{
    (void)state;
    struct top_model m;
    two(&m);
    struct top_snapshot *s = snapshot(13 * S, after, 4, 3e6);
    s->pid = 8;
    top_model_add(&m, s);
    assert_true(top_model_arrange(&m));
    assert_true(isnan(value(&m, 1, "tx"))); /* its totals have nothing to do with those before */
    top_model_fini(&m);
}

static void test_ten_thousand_flows(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct row *r = calloc(N, sizeof(*r));
    struct top_model m;
    top_model_init(&m);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < N; i++)
            r[i] = (struct row){
                i, "10.0.0.1", "10.0.0.2", 1 + i, 1 * S, (10 + turn) * S, turn * (i * 7919 % N),
                0, 0};
        top_model_add(&m, snapshot((10 + turn) * S, r, N, 0));
        assert_true(top_model_arrange(&m));
    }
    assert_int_equal(m.shown, N);
    for (int i = 1; i < N; i++)
        assert_true(value(&m, m.order[i - 1], "tx") >= value(&m, m.order[i], "tx"));
    assert_true(fabs(value(&m, m.order[0], "tx") - (N - 1) * 8) < 1e-6);
    top_model_fini(&m);
    free(r);
}

/* ---- what is no snapshot ---- */

static void test_broken_snapshots(void **state)
{
    (void)state;
    FILE *f = begin();
    head(f, 10 * S, 0);
    fputs(FLOW_HEAD "[\"a\",1],[],7,null,[[],{},\"x\",\"y\",1e999]]},", f);
    tail(f, 10 * S, 1);
    struct top_snapshot *s = end(f);
    if (s != NULL) { /* short rows are filled up */
        struct top_screen screen = {.width = 80, .height = 24};
        char line[81];
        top_model_init(&screen.model);
        top_model_add(&screen.model, s);
        assert_true(top_model_arrange(&screen.model));
        for (unsigned y = 0; y < 24; y++)
            (void)top_screen_line(&screen, y, line);
        top_model_fini(&screen.model);
    }
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "null",
        "{\"version\":2}",
        "{\"version\":1,\"at_ns\":5}",
        "{\"version\":1,\"at_ns\":5,\"flows\":{\"columns\":[1],\"rows\":[]}}"};
    for (size_t i = 0; i < NELEM(bad); i++)
        assert_null(top_snapshot_parse(bad[i], strlen(bad[i])));
    /* Cut anywhere, it is refused. */
    struct top_snapshot *whole = snapshot(10 * S, before, 2, 1);
    top_snapshot_free(whole);
    for (size_t len = 0; len + 1 < text_len; len++)
        assert_null(top_snapshot_parse(text, len));
}

/* ---- numbers and names ---- */

static void check_format(double v, enum top_unit unit, const char *expect)
{
    char buf[32];
    top_format(v, unit, buf, sizeof(buf));
    assert_string_equal(buf, expect);
}

static void test_format(void **state)
{
    (void)state;
    check_format(0, TOP_BITS, "0b/s");
    check_format(999.4, TOP_BITS, "999b/s");
    check_format(999.6, TOP_BITS, "1.00kb/s");
    check_format(1234, TOP_BITS, "1.23kb/s");
    check_format(12345678901, TOP_BITS, "12.3Gb/s");
    check_format(99.96e9, TOP_BITS, "100Gb/s");
    check_format(1500, TOP_NS, "1.50us");
    check_format(20e6, TOP_NS, "20ms");
    check_format(3.6e12, TOP_NS, "3600s");
    check_format(1e6, TOP_BYTES, "1MB");
    check_format(0.25, TOP_PER_S, "0.25/s");
    check_format(100, TOP_PERCENT, "100%");
    check_format(9.94, TOP_PERCENT, "9.9%");
    check_format(9.96, TOP_PERCENT, "10%");
    check_format(NAN, TOP_COUNT, "-");
    check_format(INFINITY, TOP_COUNT, "-");
    check_format(-1, TOP_COUNT, "-");
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 20000; i++) {
        char buf[32], unit[16] = "";
        double v = pow(10, rand() % 1800 / 100.0), back = NAN, times = 1;
        top_format(v, TOP_BITS, buf, sizeof(buf));
        assert_true(strlen(buf) <= 8);
        assert_int_equal(sscanf(buf, "%lf%15s", &back, unit), 2);
        const char *p = strchr("kMGTP", unit[0]);
        if (p != NULL)
            times = pow(10, 3.0 * (double)(p - "kMGTP" + 1));
        assert_true(fabs(back * times - v) <= 0.00501 * v + 0.5);
    }
}

static void check_shorten(const char *s, size_t keep, size_t width, const char *expect)
{
    char buf[64];
    top_shorten(s, keep, width, buf);
    assert_string_equal(buf, expect);
}

static void test_shorten(void **state)
{
    (void)state;
    check_shorten("10.0.0.1.80", 3, 11, "10.0.0.1.80");
    check_shorten("2001:db8:85a3::8a2e:370:7334.40725", 6, 21, "2001:db..0:7334.40725");
    check_shorten("2001:db8:85a3::8a2e:370:7334.40725", 6, 6, "~40725");
    check_shorten("2001:db8:85a3::8a2e:370:7334.40725", 6, 1, "~");
    check_shorten("abc", 0, 0, "");
    check_shorten("a\033[2J\xff\n", 0, 20, "a?[2J??");
    char buf[64];
    const char *name = "2001:db8:85a3::8a2e:370:7334.40725";
    for (size_t w = 0; w < 40; w++) {
        top_shorten(name, 6, w, buf);
        assert_int_equal(strlen(buf), MIN(w, strlen(name)));
        if (w >= 8)
            assert_string_equal(buf + strlen(buf) - 6, ".40725");
    }
}

/* ---- the screen ---- */

static void screen_init(struct top_screen *s)
{
    *s = (struct top_screen){.width = 80, .height = 24};
    two(&s->model);
}

static void check_all_lines(struct top_screen *s)
{
    /* Of its very size, so that a sanitiser sees a byte too much. */
    char *line = malloc(s->width + 1u);
    for (unsigned y = 0; y < s->height; y++) {
        (void)top_screen_line(s, y, line);
        assert_int_equal(strlen(line), s->width);
        for (const char *p = line; *p != '\0'; p++)
            assert_true(*p >= ' ' && *p <= '~');
    }
    free(line);
}

static void test_any_size(void **state)
{
    (void)state;
    struct top_screen s;
    screen_init(&s);
    for (int view = 0; view < TOP_VIEWS; view++) {
        top_screen_key(&s, '1' + view);
        for (unsigned w = 1; w <= 300; w += w < 20 ? 1 : 7) {
            for (unsigned h = 1; h <= 100; h += h < 12 ? 1 : 11) {
                s.width = w;
                s.height = h;
                s.first = 1000;
                s.skip = w % 5;
                top_screen_settle(&s);
                check_all_lines(&s);
                s.help = !s.help;
                check_all_lines(&s);
            }
        }
    }
    top_model_fini(&s.model);
}

/* A screen before anything is known. */
static void test_empty(void **state)
{
    (void)state;
    struct top_screen s = {.width = 80, .height = 24};
    top_model_init(&s.model);
    check_all_lines(&s);
    top_screen_key(&s, '>');
    top_screen_key(&s, KEY_END);
    check_all_lines(&s);
    top_model_fini(&s.model);
}

static bool has_line(const struct top_screen *s, const char *what)
{
    char line[512];
    for (unsigned y = 0; y < s->height; y++) {
        (void)top_screen_line(s, y, line);
        if (strstr(line, what) != NULL)
            return true;
    }
    return false;
}

static void type(struct top_screen *s, const char *keys)
{
    for (; *keys != '\0'; keys++)
        top_screen_key(s, (unsigned char)*keys);
}

static void test_keys(void **state)
{
    (void)state;
    struct top_screen s;
    screen_init(&s);
    assert_true(has_line(&s, "10.0.0.1.1000"));
    assert_true(has_line(&s, "[1 flows]"));
    type(&s, "f");
    type(&s, "fd0q");
    assert_true(has_line(&s, "filter: fd0q_"));
    assert_false(s.quit); /* it is part of the filter */
    assert_int_equal(s.model.shown, 0);
    top_screen_key(&s, KEY_BACKSPACE);
    assert_int_equal(s.model.shown, 1);
    top_screen_key(&s, '\n');
    assert_true(has_line(&s, "filter: fd0 (1)"));
    type(&s, "fxyz");
    top_screen_key(&s, 27);
    assert_string_equal(s.model.filter, "fd0"); /* taken back */
    type(&s, "2");
    assert_true(has_line(&s, "[2 threads]"));
    type(&s, "\t\t");
    assert_true(has_line(&s, "[1 flows]"));
    type(&s, "p");
    assert_true(has_line(&s, "PAUSED"));
    type(&s, "h");
    assert_true(has_line(&s, "quit"));
    type(&s, "hr ");
    assert_true(has_line(&s, "reversed"));
    assert_true(s.refresh);
    type(&s, "q");
    assert_true(s.quit);
    top_model_fini(&s.model);
}

static void test_scrolling(void **state)
{
    (void)state;
    struct top_screen s;
    char line[81];
    screen_init(&s);
    s.height = 4; /* two rows */
    top_screen_settle(&s);
    top_screen_key(&s, KEY_UP);
    assert_int_equal(s.first, 0);
    top_screen_key(&s, KEY_NPAGE);
    top_screen_key(&s, KEY_DOWN);
    top_screen_key(&s, KEY_DOWN);
    assert_int_equal(s.first, 2);
    top_screen_key(&s, KEY_HOME);
    assert_int_equal(s.first, 0);
    top_screen_key(&s, KEY_END);
    assert_int_equal(s.first, 2);
    (void)top_screen_line(&s, 1, line);
    assert_memory_equal(line, "LOCAL", 5);
    top_screen_key(&s, KEY_RIGHT);
    (void)top_screen_line(&s, 1, line);
    assert_memory_equal(line, "FOREIGN", 7);
    for (int i = 0; i < 100; i++)
        top_screen_key(&s, KEY_RIGHT);
    (void)top_screen_line(&s, 1, line);
    assert_true(strspn(line, " ") < 80);
    top_model_fini(&s.model);
}

static int teardown(void **state)
{
    (void)state;
    free(text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_new_and_reused_connections),
        cmocka_unit_test(test_one_snapshot_has_no_rates),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_threads_and_locks),
        cmocka_unit_test(test_another_process),
        cmocka_unit_test(test_ten_thousand_flows),
        cmocka_unit_test(test_broken_snapshots),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_shorten),
        cmocka_unit_test(test_any_size),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_scrolling),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
