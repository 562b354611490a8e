/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the wheel runs each timer at the first advance at or behind its deadline, in order of
 * deadlines, and names the earliest one exactly, as a plain array would. Bound: 40,000 random
 * operations over spans from 1 ns to 60 days, with a model of 32 timers. */
#include "base/wheel.h"
#include "unit.h"

#define TIMERS 32 /* so few that wheel_next is always exact */
#define DAY_NS (UINT64_C(86400) * NS_PER_S)

struct model {
    struct timer t;    /* first */
    uint64_t deadline; /* TIME_NEVER: not armed */
    uint64_t rearm;    /* by the callback, if not 0: to now + rearm */
};

static struct wheel wheel;
static struct model timers[TIMERS];
static uint64_t last_fired, fired;

static void fire(struct timer *t, uint64_t now_ns)
{
    struct model *m = (struct model *)t;
    assert_false(timer_is_armed(t));
    assert_true(m->deadline <= now_ns);
    assert_true(m->deadline >= last_fired); /* in order */
    last_fired = m->deadline;
    fired++;
    m->deadline = TIME_NEVER;
    if (m->rearm != 0) {
        m->deadline = now_ns + m->rearm;
        m->rearm = 0;
        wheel_arm(&wheel, t, m->deadline);
    }
}

static uint64_t model_next(void)
{
    uint64_t next = TIME_NEVER;
    for (int i = 0; i < TIMERS; i++)
        next = MIN(next, timers[i].deadline);
    return next;
}

/* A span whose magnitude is uniform: a nanosecond as likely as a month. */
static uint64_t random_span(struct rng *r)
{
    uint64_t bits = rng_u64(r);
    return bits >> (63 - rng_below(r, 52)) >> 1;
}

static void check_against_model(void)
{
    uint32_t armed = 0;
    for (int i = 0; i < TIMERS; i++) {
        assert_int_equal(timer_is_armed(&timers[i].t), timers[i].deadline != TIME_NEVER);
        armed += timer_is_armed(&timers[i].t);
    }
    assert_int_equal(wheel.armed, armed);
    assert_true(wheel_next(&wheel) == model_next());
}

static void test_against_model(void **state)
{
    struct rng r;
    unit_seed(&r, __func__);
    uint64_t now = 123456789;
    wheel_init(&wheel, now);
    for (int i = 0; i < TIMERS; i++) {
        timer_init(&timers[i].t, fire);
        timers[i].deadline = TIME_NEVER;
    }
    for (int step = 0; step < 40000; step++) {
        struct model *m = &timers[rng_below(&r, TIMERS)];
        uint64_t span = random_span(&r), next = model_next();
        switch (rng_below(&r, 8)) {
        case 0:
            wheel_cancel(&wheel, &m->t);
            m->deadline = TIME_NEVER;
            break;
        case 1:
            m->rearm = span + 1;
            break;
        case 2: /* past, or now */
            m->deadline = now - MIN(now, span);
            wheel_arm(&wheel, &m->t, m->deadline);
            break;
        case 3:
        case 4:
        case 5:
            m->deadline = now + span;
            wheel_arm(&wheel, &m->t, m->deadline);
            break;
        default: /* to the next deadline, one before it, or anywhere */
            next -= rng_below(&r, 2);
            if (rng_below(&r, 2) == 0 && next < TIME_NEVER - 1)
                now = MAX(now, next);
            else
                now += span / 8;
            last_fired = 0;
            wheel_advance(&wheel, now);
            assert_true(model_next() > now);
            break;
        }
        if (step % 16 == 0)
            check_against_model();
    }
    assert_true(fired > 1000);
    for (int i = 0; i < TIMERS; i++)
        wheel_cancel(&wheel, &timers[i].t);
    assert_true(wheel_next(&wheel) == TIME_NEVER);
}

static void test_exact_within_a_tick(void **state)
{
    wheel_init(&wheel, 0);
    memset(timers, 0, sizeof(timers));
    fired = last_fired = 0;
    for (int i = 0; i < 10; i++) {
        timer_init(&timers[i].t, fire);
        timers[i].deadline = 1000 - 7 * (uint64_t)i;
        wheel_arm(&wheel, &timers[i].t, timers[i].deadline);
    }
    wheel_advance(&wheel, 1000 - 63 - 1);
    assert_int_equal(fired, 0);
    wheel_advance(&wheel, 1000 - 63);
    assert_int_equal(fired, 1);
    assert_int_equal(wheel_next(&wheel), 1000 - 56);
    wheel_advance(&wheel, 999);
    assert_int_equal(fired, 9);
    wheel_advance(&wheel, 1000);
    assert_int_equal(fired, 10);
}

/* A jump over 25 days with a few timers is done at once: were it done by ticks, this would take
 * minutes. */
static void test_long_jumps(void **state)
{
    wheel_init(&wheel, 0);
    fired = last_fired = 0;
    uint64_t now = 0;
    for (int i = 0; i < 2000; i++) {
        struct model *near = &timers[0], *far = &timers[1];
        timer_init(&near->t, fire);
        timer_init(&far->t, fire);
        wheel_arm(&wheel, &near->t, near->deadline = now + 12 * DAY_NS);
        wheel_arm(&wheel, &far->t, far->deadline = now + 25 * DAY_NS);
        assert_true(wheel_next(&wheel) == now + 12 * DAY_NS);
        now += 25 * DAY_NS;
        wheel_advance(&wheel, now - 1);
        assert_int_equal(fired, 2 * i + 1);
        assert_true(wheel_next(&wheel) == now);
        wheel_advance(&wheel, now);
        assert_int_equal(fired, 2 * i + 2);
    }
}

static uint64_t endless_runs;
static void endless(struct timer *t, uint64_t now_ns)
{
    endless_runs++;
    wheel_arm(&wheel, t, now_ns);
}

/* A timer that arms itself for now runs twice an advance; others behind it run as ever. */
static void test_rearming_for_now_ends(void **state)
{
    struct timer t;
    wheel_init(&wheel, 0);
    timer_init(&t, endless);
    timer_init(&timers[0].t, fire);
    fired = last_fired = 0;
    wheel_arm(&wheel, &t, 100);
    wheel_arm(&wheel, &timers[0].t, timers[0].deadline = 3 * NS_PER_S);
    wheel_advance(&wheel, NS_PER_S);
    assert_int_equal(endless_runs, 2);
    assert_int_equal(fired, 0);
    assert_true(wheel_next(&wheel) == NS_PER_S);
    wheel_advance(&wheel, 4 * NS_PER_S);
    assert_int_equal(endless_runs, 4);
    assert_int_equal(fired, 1);
    wheel_cancel(&wheel, &t);
    wheel_advance(&wheel, 5 * NS_PER_S);
    assert_int_equal(endless_runs, 4);
}

static struct timer victim;
static void cancel_victim(struct timer *t, uint64_t now_ns)
{
    wheel_cancel(&wheel, &victim);
}

static void test_cancel_from_callback(void **state)
{
    struct timer t;
    wheel_init(&wheel, 0);
    timer_init(&t, cancel_victim);
    timer_init(&victim, endless);
    endless_runs = 0;
    wheel_arm(&wheel, &victim, 501);
    wheel_arm(&wheel, &t, 500);
    wheel_advance(&wheel, 1000);
    assert_int_equal(endless_runs, 0);
    assert_int_equal(wheel.armed, 0);
    assert_true(wheel_next(&wheel) == TIME_NEVER);
}

/* Many timers in one slot: sorting must not be quadratic (this would take seconds). */
static void test_crowded_slot(void **state)
{
    enum { CROWD = 50000 };
    struct rng r;
    unit_seed(&r, __func__);
    struct model *crowd = calloc(CROWD, sizeof(*crowd));
    wheel_init(&wheel, 0);
    fired = last_fired = 0;
    for (int i = 0; i < CROWD; i++) {
        timer_init(&crowd[i].t, fire);
        crowd[i].deadline = NS_PER_S + rng_below(&r, 1000);
        wheel_arm(&wheel, &crowd[i].t, crowd[i].deadline);
    }
    wheel_advance(&wheel, NS_PER_S - 1);
    assert_int_equal(fired, 0);
    wheel_advance(&wheel, 2 * NS_PER_S);
    assert_int_equal(fired, CROWD);
    free(crowd);
}

/* With a crowd in the first slot wheel_next may be early, but each time it is waited for the wheel
 * comes nearer, and no timer is missed. */
static void test_next_in_a_crowd(void **state)
{
    enum { CROWD = 1000 };
    struct rng r;
    unit_seed(&r, __func__);
    static struct model crowd[CROWD];
    uint64_t now = 5, latest = 0;
    wheel_init(&wheel, now);
    fired = last_fired = 0;
    for (int i = 0; i < CROWD; i++)
        timer_init(&crowd[i].t, fire);
    for (int i = 0; i < 3 * CROWD; i++) { /* all are moved a few times */
        struct model *m = &crowd[i % CROWD];
        m->deadline = now + 230 * NS_PER_MS + rng_below(&r, 1000000);
        latest = MAX(latest, m->deadline);
        wheel_arm(&wheel, &m->t, m->deadline);
        wheel_advance(&wheel, now += 1000);
        assert_true(wheel_next(&wheel) > now);
    }
    int wakes = 0;
    for (uint64_t next; (next = wheel_next(&wheel)) != TIME_NEVER; wakes++) {
        uint64_t min = TIME_NEVER;
        for (int i = 0; i < CROWD; i++)
            min = MIN(min, crowd[i].deadline);
        assert_true(next > now && next <= min);
        now = next;
        last_fired = 0;
        wheel_advance(&wheel, now);
    }
    assert_int_equal(fired, CROWD);
    assert_true(wakes <= CROWD + 10);
    assert_true(now == latest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),        cmocka_unit_test(test_exact_within_a_tick),
        cmocka_unit_test(test_long_jumps),           cmocka_unit_test(test_rearming_for_now_ends),
        cmocka_unit_test(test_cancel_from_callback), cmocka_unit_test(test_crowded_slot),
        cmocka_unit_test(test_next_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
