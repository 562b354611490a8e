/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: every knob of knobs.def can be found, has its default in range, and takes exactly the texts
 * of its type; the tables of knobs and counters hold no name twice. Bound: all knobs, a few texts
 * each. */
#include "base/stack.h"
#include "unit.h"

static struct weir_stack *stack_new(void)
{
    struct weir_stack *s = alloc_zero(&unit_alloc, sizeof(*s));
    assert_non_null(s);
    sysctl_init(&s->knobs);
    return s;
}

static void stack_free(struct weir_stack *s)
{
    alloc_free(&unit_alloc, s, sizeof(*s));
    assert_int_equal(atomic_load(&unit_bytes), 0);
}

static void expect_get(struct weir_stack *s, const char *name, const char *value)
{
    char out[64];
    assert_int_equal(sysctl_get(s, name, out, sizeof(out)), 0);
    assert_string_equal(out, value);
}

static void test_tables(void **state)
{
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob_info *k = &knob_table[i];
        assert_non_null(k->name);
        assert_true(k->doc != NULL && k->doc[0] != '\0');
        assert_int_equal(sysctl_find(k->name), i); /* no name twice */
        if (k->type == KNOB_TYPE_INT || k->type == KNOB_TYPE_BOOL)
            assert_true(k->min <= k->dflt && k->dflt <= k->max);
    }
    for (int i = 0; i < COUNTER_COUNT; i++) {
        assert_true(counter_table[i].meaning[0] != '\0' && counter_table[i].group[0] != '\0');
        for (int k = 0; k < i; k++)
            assert_string_not_equal(counter_table[i].name, counter_table[k].name);
    }
}

/* Every default reads back as text that sets the same value. */
static void test_defaults_round_trip(void **state)
{
    struct weir_stack *s = stack_new();
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob_info *k = &knob_table[i];
        char out[64], again[64];
        if (k->type == KNOB_TYPE_PROC) {
            assert_int_equal(sysctl_get(s, k->name, out, sizeof(out)), -ENOENT);
            continue;
        }
        assert_int_equal(sysctl_get(s, k->name, out, sizeof(out)), 0);
        assert_int_equal(sysctl_set(s, k->name, out), 0);
        assert_int_equal(sysctl_get(s, k->name, again, sizeof(again)), 0);
        assert_string_equal(out, again);
    }
    stack_free(s);
}

static void test_int(void **state)
{
    struct weir_stack *s = stack_new();
    const char *name = "net.inet.tcp.delacktime";
    expect_get(s, name, "40");
    assert_int_equal(sysctl_set(s, name, "1000"), 0);
    assert_int_equal(KNOB(s, tcp_delacktime), 1000);
    static const char *const wrong[] = {"",    " 5", "5 ",  "+5",  "0x5",
                                        "5ms", "-",  "--5", "1e3", "five"};
    for (size_t i = 0; i < NELEM(wrong); i++)
        assert_int_equal(sysctl_set(s, name, wrong[i]), -EINVAL);
    static const char *const far[] = {"0", "-1", "600001", "99999999999999999999",
                                      "-99999999999999999999"};
    for (size_t i = 0; i < NELEM(far); i++)
        assert_int_equal(sysctl_set(s, name, far[i]), -ERANGE);
    expect_get(s, name, "1000");
    assert_int_equal(sysctl_set(s, "net.inet.tcp.keepidle", "1099511627776"), 0);
    expect_get(s, "net.inet.tcp.keepidle", "1099511627776");
    stack_free(s);
}

static void test_bool_and_enum(void **state)
{
    struct weir_stack *s = stack_new();
    assert_int_equal(sysctl_set(s, "net.inet.tcp.sack.enable", "0"), 0);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.sack.enable", "2"), -ERANGE);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.sack.enable", "on"), -EINVAL);
    expect_get(s, "net.inet.tcp.sack.enable", "0");

    expect_get(s, "net.inet.tcp.cc.algorithm", "cubic");
    assert_int_equal(sysctl_set(s, "net.inet.tcp.cc.algorithm", "newreno"), 0);
    assert_int_equal(KNOB(s, tcp_cc_algorithm), 0);
    static const char *const wrong[] = {"", "0", "1", "cubi", "cubicc", "newreno|cubic", "|"};
    for (size_t i = 0; i < NELEM(wrong); i++)
        assert_int_equal(sysctl_set(s, "net.inet.tcp.cc.algorithm", wrong[i]), -EINVAL);

    assert_int_equal(sysctl_set(s, "net.inet.tcp.rfc1323", "3"), 0);
    assert_int_equal(KNOB(s, tcp_rfc1323), 3);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.rfc1323", "4"), -ERANGE);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.rfc1323", "x"), -EINVAL);
    stack_free(s);
}

static void test_names_scopes_and_room(void **state)
{
    struct weir_stack *a = stack_new(), *b = stack_new();
    char out[8];
    assert_int_equal(sysctl_get(a, "net.inet.tcp", out, sizeof(out)), -ENOENT);
    assert_int_equal(sysctl_set(a, "net.inet.tcp.ms", "1"), -ENOENT);
    assert_int_equal(sysctl_get(a, "net.inet.tcp.keepidle", out, sizeof(out)),
                     0); /* 7200000 just fits */
    assert_int_equal(sysctl_get(a, "net.inet.tcp.keepidle", out, 7), -ENOSPC);
    assert_int_equal(sysctl_get(a, "net.inet.tcp.keepidle", out, 0), -ENOSPC);

    assert_int_equal(sysctl_set(a, "net.inet.tcp.msl", "5"), 0);
    expect_get(b, "net.inet.tcp.msl", "30000");
    assert_int_equal(sysctl_set(a, "kern.idle_spin_us", "5"), 0);
    assert_int_equal(KNOB_P(kern_idle_spin_us), 5);
    expect_get(b, "kern.idle_spin_us", "5");
    expect_get(NULL, "kern.idle_spin_us", "5"); /* a process-wide knob needs no stack */
    assert_int_equal(sysctl_set(NULL, "kern.idle_spin_us", "200"), 0);
    alloc_free(&unit_alloc, b, sizeof(*b));
    stack_free(a);
}

static int changes;
static void changed(struct weir_stack *s)
{
    changes++;
}

static int handler(struct weir_stack *s, const char *write, char *out, size_t out_size)
{
    if (write != NULL)
        return strcmp(write, "1") == 0 ? 0 : -EINVAL;
    snprintf(out, out_size, "%d", 42);
    return 0;
}

static int read_only(struct weir_stack *s, const char *write, char *out, size_t out_size)
{
    return write != NULL ? -EPERM : 0;
}

static void test_handlers(void **state)
{
    struct weir_stack *s = stack_new();
    const char *purge = "net.inet.tcp.hostcache.purgenow", *count = "net.inet.tcp.pcbcount";
    sysctl_set_handler(s, KNOB_tcp_hostcache_purgenow, handler);
    sysctl_set_handler(s, KNOB_tcp_pcbcount, read_only);
    sysctl_set_changed(s, KNOB_tcp_hostcache_purgenow, changed);
    sysctl_set_changed(s, KNOB_tcp_msl, changed);
    expect_get(s, purge, "42");
    assert_int_equal(sysctl_set(s, purge, "2"), -EINVAL);
    assert_int_equal(changes, 0);
    assert_int_equal(sysctl_set(s, purge, "1"), 0);
    assert_int_equal(changes, 1);
    assert_int_equal(sysctl_set(s, count, "1"), -EPERM);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.msl", "0"), -ERANGE);
    assert_int_equal(changes, 1);
    assert_int_equal(sysctl_set(s, "net.inet.tcp.msl", "7"), 0);
    assert_int_equal(changes, 2);
    stack_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_defaults_round_trip),
        cmocka_unit_test(test_int),
        cmocka_unit_test(test_bool_and_enum),
        cmocka_unit_test(test_names_scopes_and_room),
        cmocka_unit_test(test_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
