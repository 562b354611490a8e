/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the options of `weir lockstat` are read strictly. Bound: a table of lines. */
#include "unit.h"

#include "cli/cli.h"
#include "cli/lockstat/lockstat.h"

#include <stdio.h>

static char buffer[512];
static char *argv_of[32];

/* -1, or the exit code. */
static int parse(const char *line, struct lockstat_options *o)
{
    int argc = 0;
    snprintf(buffer, sizeof(buffer), "%s", line);
    for (char *p = strtok(buffer, " "); p != NULL; p = strtok(NULL, " "))
        argv_of[argc++] = p;
    argv_of[argc] = NULL;
    return lockstat_parse(argc, argv_of, o);
}

static void test_good(void **state)
{
    struct lockstat_options o;
    (void)state;
    assert_int_equal(parse("lockstat", &o), -1);
    assert_int_equal(o.span_ns, 10 * NS_PER_S);
    assert_false(o.have_seconds);
    assert_int_equal(o.by, LOCK_COL_COUNT);
    assert_int_equal(parse("lockstat 0", &o), -1);
    assert_true(o.have_seconds && o.span_ns == 0);
    assert_int_equal(parse("lockstat -n 5 --profile -s wait_avg 2.5 --pid 12", &o), -1);
    assert_true(o.profile && o.rows == 5 && o.pid == 12 && o.span_ns == 2500 * NS_PER_MS);
    assert_int_equal(o.by, LOCK_COL_WAIT_AVG);
    assert_int_equal(parse("lockstat --profile", &o), -1);
    assert_int_equal(o.by, LOCK_COL_WAIT_TOTAL);
    assert_int_equal(parse("lockstat -s lock --profile", &o), -1); /* in any order */
    assert_int_equal(parse("lockstat --control /x -J", &o), -1);
    assert_string_equal(o.control, "/x");
    assert_int_equal(parse("lockstat 3 -- weir bench TCP_RR -l 1 -n", &o), -1);
    assert_string_equal(o.command[0], "weir");
    assert_string_equal(o.command[5], "-n");
    assert_null(o.command[6]);
    assert_int_equal(o.span_ns, 3 * NS_PER_S);
    assert_int_equal(o.rows, 0);
    assert_int_equal(parse("lockstat -- x --help", &o), -1);
    assert_false(o.help);
    assert_int_equal(parse("lockstat --help", &o), -1);
    assert_true(o.help);
}

static void test_mistakes(void **state)
{
    static const char *const bad[] = {
        "-s",
        "-s bogus",
        "-s max",
        "-s avg",
        "--profile -s nsec",
        "-n",
        "-n 0",
        "-n -1",
        "-n x",
        "x",
        "-1",
        "1e3",
        "99999999",
        "1 2",
        "--pid",
        "--pid 0",
        "--pid x",
        "--pid -1",
        "--control",
        "--bogus",
        "-q",
        "--",
        "1 --",
        "--control a --pid 1",
        "--pid 1 -- x",
        "--control a -- x",
    };
    (void)state;
    for (size_t i = 0; i < NELEM(bad); i++) {
        struct lockstat_options o;
        char line[128];
        snprintf(line, sizeof(line), "lockstat %s", bad[i]);
        if (parse(line, &o) != CLI_USAGE)
            fail_msg("'%s' was taken", line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
