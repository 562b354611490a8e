/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the lock profile for people names callers by function and offset, static ones too, prints
 * the tables of lockstat and lock_profile to the byte, sorts by any column, survives JSON, and its
 * knobs read and set it. Bound: two threads meet ten times. */
#include "../base/unit.h"
#include "base/stack.h"
#include "measure/lock_stats.h"
#include "measure/symbol.h"

#include <jansson.h>
#include <pthread.h>
#include <sched.h>

LOCK_CLASS(class_planted, "so_planted");
static struct lock lock;

/* ---- names ---- */

static __attribute__((noinline)) const void *here(void)
{
    return __builtin_return_address(0);
}

static __attribute__((noinline)) const void *a_static_function(void)
{
    const void *p = here();
    LOCK_NO_TAIL_CALL();
    return p;
}

static void test_symbols(void **state)
{
    struct symbols *s = symbols_open();
    char name[96], want[96];
    assert_non_null(s);
    const void *p = a_static_function();
    snprintf(want, sizeof(want), "a_static_function+0x%zx",
             (size_t)((const char *)p - (const char *)(const void *)(uintptr_t)a_static_function));
    symbol_name(s, p, name, sizeof(name));
    assert_string_equal(name, want);
    symbol_name(s, (const char *)(const void *)(uintptr_t)qsort + 4, name, sizeof(name));
    assert_non_null(strstr(name, "+0x")); /* of another file, stripped or not */
    symbol_name(s, (const void *)16, name, sizeof(name));
    assert_string_equal(name, "0x10"); /* nothing is there */
    symbol_name(s, NULL, name, sizeof(name));
    symbol_name(s, p, name, 5);
    assert_string_equal(name, "a_st"); /* cut */
    symbols_close(s);
}

/* ---- tables ---- */

static struct lock_stats_row report[] = {
    {"so_rcv",
     "src/tcp/tcp_input.c:1456",
     "tcp_input+0xad",
     {6465, 0, 0, 6454, 0, 82348000, 2218286000, 0, 97000, 3566000}},
    {"so_rcv",
     "src/socket/so_recv.c:21",
     "weir_recv+0x21",
     {303700, 3, 6454, 303685, 2, 1000000, 327979800, 9000, 2000, 5000}},
    {"alq", "src/a.c:1", "zero+0x1", {2, 0, 0, 0, 0, 7000000, 0, 0, 6000000, 0}},
};

static char *text;
static size_t text_len;

static FILE *begin(void)
{
    return open_memstream(&text, &text_len);
}

static void compare_text(FILE *f, const char *want)
{
    fclose(f);
    assert_string_equal(text, want);
    free(text);
}

static void test_events_table(void **state)
{
    struct lock_stats s = {.row = report, .count = 2, .counted_ns = 10017 * NS_PER_MS};
    report[0].v[LOCK_STAT_SPINS] = 63847;
    report[0].v[LOCK_STAT_SPIN_TIME] = 63847 * 25;
    FILE *f = begin();
    lock_stats_events(&s, false, LOCK_COL_COUNT, 0, f);
    compare_text(
        f, "Adaptive mutex spin: 367532 events in 10.017 seconds (36691 events/sec)\n\n"
           "Count indv cuml rcnt     nsec Lock                   Caller\n"
           "-------------------------------------------------------------------------------\n"
           "303685  83%  83% 0.00     1080 so_rcv                 weir_recv+0x21\n"
           " 63847  17% 100% 0.00       25 so_rcv                 tcp_input+0xad\n"
           "-------------------------------------------------------------------------------\n\n");
    f = begin();
    lock_stats_events(&s, false, LOCK_COL_CALLER, 1, f); /* shares are of all rows */
    compare_text(
        f, "Adaptive mutex spin: 367532 events in 10.017 seconds (36691 events/sec)\n\n"
           "Count indv cuml rcnt     nsec Lock                   Caller\n"
           "-------------------------------------------------------------------------------\n"
           " 63847  17%  17% 0.00       25 so_rcv                 tcp_input+0xad\n"
           "-------------------------------------------------------------------------------\n\n");
    f = begin();
    lock_stats_events(&s, true, LOCK_COL_NSEC, 0, f);
    compare_text(
        f, "Adaptive mutex block: 2 events in 10.017 seconds (0 events/sec)\n\n"
           "Count indv cuml rcnt     nsec Lock                   Caller\n"
           "-------------------------------------------------------------------------------\n"
           "     2 100% 100% 0.00     4500 so_rcv                 weir_recv+0x21\n"
           "-------------------------------------------------------------------------------\n\n");
    s.count = 0;
    f = begin();
    lock_stats_events(&s, true, LOCK_COL_COUNT, 0, f);
    compare_text(f, "Adaptive mutex block: 0 events in 10.017 seconds (0 events/sec)\n\n");
}

#define HEAD                                                                                       \
    "   max  wait_max       total  wait_total       count    avg wait_avg cnt_hold cnt_lock "      \
    "name\n"

static void test_profile_table(void **state)
{
    struct lock_stats s = {.row = report, .count = NELEM(report)};
    for (size_t i = 0; i < s.count; i++)
        if (strcmp(report[i].caller, "tcp_input+0xad") == 0) {
            report[i].v[LOCK_STAT_SPINS] = 6454;
            report[i].v[LOCK_STAT_SPIN_TIME] = 2218286000;
        }
    FILE *f = begin();
    assert_int_equal(lock_stats_profile(&s, LOCK_COL_WAIT_TOTAL, 1, f), 1);
    compare_text(f,
                 HEAD "    97      3566       82348     2218286        6465     12      343       "
                      " 0     6454 src/tcp/tcp_input.c:1456 (mutex:so_rcv)\n");
    /* Who comes first, by each column. */
    static const char *const first[LOCK_COLS] = {[LOCK_COL_MAX] = "alq",
                                                 [LOCK_COL_WAIT_MAX] = "tcp_input",
                                                 [LOCK_COL_TOTAL] = "tcp_input",
                                                 [LOCK_COL_WAIT_TOTAL] = "tcp_input",
                                                 [LOCK_COL_COUNT] = "so_recv.c",
                                                 [LOCK_COL_AVG] = "alq",
                                                 [LOCK_COL_WAIT_AVG] = "tcp_input",
                                                 [LOCK_COL_CNT_HOLD] = "so_recv.c",
                                                 [LOCK_COL_CNT_LOCK] = "so_recv.c",
                                                 [LOCK_COL_NAME] = "alq",
                                                 [LOCK_COL_LOCK] = "alq",
                                                 [LOCK_COL_CALLER] = "tcp_input"};
    for (int c = 0; c < LOCK_COLS; c++) {
        if (first[c] == NULL)
            continue;
        f = begin();
        lock_stats_profile(&s, (enum lock_column)c, 1, f);
        fclose(f);
        if (strstr(text, first[c]) == NULL)
            fail_msg("by %s: %s", lock_column_names[c], text);
        free(text);
    }
}

static void test_json_and_difference(void **state)
{
    struct lock_stats s = {
        .row = report, .count = NELEM(report), .overflow = 7, .counted_ns = 2 * NS_PER_S};
    struct lock_stats back, less;
    json_t *o = lock_stats_to_json(&s, 0);
    assert_true(lock_stats_from_json(o, &back));
    assert_true(lock_stats_from_json(o, &less));
    assert_int_equal(back.count, s.count);
    assert_int_equal(back.overflow, 7);
    assert_int_equal(back.counted_ns, s.counted_ns);
    assert_memory_equal(&back.row[1], &s.row[1], sizeof(s.row[1]));
    back.row[1].v[LOCK_STAT_COUNT] += 5;
    back.row[1].v[LOCK_STAT_HOLD_MAX] = 1;
    back.counted_ns += NS_PER_S;
    lock_stats_since(&back, &less);
    assert_int_equal(back.counted_ns, NS_PER_S);
    assert_int_equal(back.overflow, 0);
    assert_int_equal(back.row[1].v[LOCK_STAT_COUNT], 5);
    assert_int_equal(back.row[1].v[LOCK_STAT_HOLD_MAX], 1);
    assert_int_equal(back.row[0].v[LOCK_STAT_COUNT], 0);
    /* A reset came between: what there is came after it. */
    lock_stats_free(&back);
    assert_true(lock_stats_from_json(o, &back));
    back.counted_ns = 1;
    lock_stats_since(&back, &less);
    assert_int_equal(back.row[0].v[LOCK_STAT_COUNT], s.row[0].v[LOCK_STAT_COUNT]);
    lock_stats_free(&back);
    lock_stats_free(&less);
    json_object_set_new(json_array_get(json_object_get(o, "rows"), 2), "spins", json_string("x"));
    assert_false(lock_stats_from_json(o, &back));
    json_decref(o);
    assert_false(lock_stats_from_json(NULL, &back));
}

/* ---- of this process ---- */

static _Atomic int turn;

static __attribute__((noinline)) void hold_it(void)
{
    lock_acquire(&lock);
    atomic_fetch_add(&turn, 1);
    while (LOAD_RELAXED(&lock.waiters) == 0)
        sched_yield();
    lock_release(&lock);
}

static __attribute__((noinline)) void want_it(void)
{
    lock_acquire(&lock);
    lock_release(&lock);
}

static void *wanter(void *arg)
{
    for (int i = 0; i < 10; i++) {
        while (atomic_load(&turn) != 2 * i + 1)
            sched_yield();
        want_it();
        atomic_fetch_add(&turn, 1);
    }
    return NULL;
}

static struct weir_stack stack;

static const char *get(const char *name, char *out, size_t size)
{
    assert_int_equal(sysctl_get(&stack, name, out, size), 0);
    return out;
}

static void test_knobs_and_planted_contention(void **state)
{
    static char value[65536];
    struct lock_stats s;
    pthread_t t;
    const char *what = "debug.lock.prof.enable", *reset = "debug.lock.prof.reset";
    lock_init(&lock, &class_planted);
    lock_stats_attach(&stack);
    assert_string_equal(get(what, value, sizeof(value)), "0");
    want_it(); /* not counted */
    assert_int_equal(sysctl_set(&stack, what, "2"), -EINVAL);
    assert_int_equal(sysctl_set(&stack, "debug.lock.prof.stats", "1"), -EPERM);
    assert_int_equal(sysctl_set(&stack, what, "1"), 0);
    assert_string_equal(get(what, value, sizeof(value)), "1");
    assert_int_equal(pthread_create(&t, NULL, wanter, NULL), 0);
    for (int i = 0; i < 10; i++) {
        while (atomic_load(&turn) != 2 * i)
            sched_yield();
        hold_it();
    }
    pthread_join(t, NULL);
    assert_int_equal(sysctl_set(&stack, what, "0"), 0);
    assert_int_equal(lock_stats_take(&s), 0);
    bool held = false, wanted = false;
    for (size_t i = 0; i < s.count; i++) {
        const struct lock_stats_row *r = &s.row[i];
        if (strcmp(r->lock, "so_planted") != 0)
            continue;
        assert_int_equal(r->v[LOCK_STAT_COUNT], 10);
        assert_int_equal(strncmp(r->where, "tests/unit/measure/test_lock_stats.c:", 37), 0);
        bool holds = strncmp(r->caller, "hold_it+0x", 10) == 0;
        assert_true(holds || strncmp(r->caller, "want_it+0x", 10) == 0);
        held |= holds;
        wanted |= !holds;
        assert_int_equal(r->v[LOCK_STAT_HELD_UP], holds ? 10 : 0);
        assert_int_equal(r->v[LOCK_STAT_SPINS] + r->v[LOCK_STAT_BLOCKS], holds ? 0 : 10);
    }
    assert_true(held && wanted);
    FILE *f = begin();
    lock_stats_events(&s, false, LOCK_COL_COUNT, 0, f);
    fclose(f);
    assert_non_null(strstr(text, "    10 100% 100% 0.00"));
    assert_non_null(strstr(text, "so_planted             want_it+0x"));
    free(text);
    lock_stats_free(&s);
    get("debug.lock.prof.stats", value, sizeof(value));
    assert_int_equal(strncmp(value, "\n" HEAD, sizeof(HEAD)), 0);
    assert_non_null(strstr(value, " (mutex:so_planted)"));
    assert_int_equal(sysctl_get(&stack, "debug.lock.prof.stats", value, 100), -ENOSPC);
    assert_int_equal(sysctl_set(&stack, reset, "1"), 0);
    get("debug.lock.prof.stats", value, sizeof(value));
    assert_int_equal(strlen(value), sizeof(HEAD) - 1); /* one more in front, none behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_events_table),
        cmocka_unit_test(test_profile_table),
        cmocka_unit_test(test_json_and_difference),
        cmocka_unit_test(test_knobs_and_planted_contention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
