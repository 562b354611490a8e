/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: each ill of the emulator does what its option says, in virtual time, and the same every
 * run; nothing is lost that was not meant to be, and no buffer leaks. Bound: a few ten thousand
 * frames a test. */
#include "frames.h"

#include "link/link_emul.h"
#include "wire/tcp.h"

#define SHARE(percent) (LINK_EMUL_SHARE_ALL / 100 * (percent))
#define START (1000 * NS_PER_S)

static struct weir_stack *s;
static struct stub_link stub;
static struct link_end end;

static int setup(void **state)
{
    s = bare_stack_create();
    return 0;
}

static int teardown(void **state)
{
    link_end_close(&end);
    bare_stack_destroy(s);
    return 0;
}

static void wrap(const struct link_emul_config *cfg, enum link_emul_direction dirs, uint32_t caps)
{
    stub_link_init(&stub, &end, caps);
    assert_int_equal(link_emul_wrap(s, &end, cfg, dirs), 0);
}

/* Frame number i, as its sequence number tells. */
static struct mbuf *numbered(uint32_t i, uint32_t payload)
{
    struct frame_spec f = {.flags = TH_ACK, .seq = i, .payload = payload};

    return frame_make(s, &f);
}

static void send_one(struct mbuf *m, uint64_t now)
{
    assert_int_equal(end.ops->tx(end.link, &m, 1, now), 1);
    assert_null(m);
}

/* Let everything come out of the sending side, up to a time; returns the last moment. */
static uint64_t drain(uint64_t now, uint64_t until)
{
    struct mbuf *none[1];
    uint64_t t;

    for (int i = 0; i < 1000000 && (t = end.ops->next_deadline(end.link)) <= until; i++) {
        now = MAX(now, t);
        assert_int_equal(end.ops->rx(end.link, none, 1, now), 0);
    }
    return now;
}

/* The next frame that came out at the far side, looked at and freed. False: none. */
static bool arrived(struct seen *seen)
{
    struct mbuf *m = stub_link_take(&stub);

    if (!m)
        return false;
    frame_look_mbuf(m, false, seen);
    mbuf_free_chain(&m);
    return true;
}

static void delay_is_exact(void **state)
{
    struct link_emul_config cfg = {.delay_ns = 20 * NS_PER_MS};
    struct mbuf *got[4];

    wrap(&cfg, LINK_EMUL_BOTH, 0);
    send_one(numbered(0, 100), START);
    send_one(numbered(1, 100), START + NS_PER_MS);
    assert_int_equal(stub.out_count, 0);
    assert_int_equal(end.ops->next_deadline(end.link), START + 20 * NS_PER_MS);
    assert_int_equal(end.ops->rx(end.link, got, 4, START + 20 * NS_PER_MS - 1), 0);
    assert_int_equal(stub.out_count, 0);
    assert_int_equal(end.ops->rx(end.link, got, 4, START + 20 * NS_PER_MS), 0);
    assert_int_equal(stub.out_count, 1);
    assert_int_equal(drain(START, TIME_NEVER - 1), START + 21 * NS_PER_MS);
    assert_int_equal(stub.out_count, 2);
    /* and what comes in */
    uint64_t t = START + NS_PER_S;
    stub_link_put(&stub, numbered(5, 1));
    assert_int_equal(end.ops->rx(end.link, got, 4, t), 0);
    assert_int_equal(end.ops->next_deadline(end.link), t + 20 * NS_PER_MS);
    assert_int_equal(end.ops->rx(end.link, got, 4, t + 20 * NS_PER_MS), 1);
    assert_int_equal(got[0]->m_pkt.time_ns, t + 20 * NS_PER_MS);
    mbuf_free_chain(&got[0]);
    assert_int_equal(end.ops->next_deadline(end.link), TIME_NEVER);
}

static void only_the_direction_asked_for(void **state)
{
    struct link_emul_config cfg = {.delay_ns = NS_PER_MS};
    struct mbuf *got[1];

    wrap(&cfg, LINK_EMUL_RX, 0);
    send_one(numbered(0, 1), START);
    assert_int_equal(stub.out_count, 1);
    stub_link_put(&stub, numbered(1, 1));
    assert_int_equal(end.ops->rx(end.link, got, 1, START), 0);
    assert_int_equal(end.ops->rx(end.link, got, 1, START + NS_PER_MS), 1);
    mbuf_free_chain(&got[0]);
}

static void rate_spaces_frames(void **state)
{
    struct link_emul_config cfg = {.rate_bps = 100000000};
    const uint64_t each = (14 + 40 + 1446 + 24) * 8 * 10; /* ns at 100 Mbit/s */

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < 100; i++)
        send_one(numbered(i, 1446), START);
    for (uint32_t i = 1; i <= 100; i++) {
        assert_int_equal(end.ops->next_deadline(end.link), START + i * each);
        drain(START, START + i * each);
        assert_int_equal(stub.out_count, i);
    }
    /* An idle bottleneck saves nothing up. */
    send_one(numbered(100, 1446), START + NS_PER_S);
    assert_int_equal(end.ops->next_deadline(end.link), START + NS_PER_S + each);
}

static void queue_drops_what_does_not_fit(void **state)
{
    struct link_emul_config cfg = {.rate_bps = 1000000, .queue_packets = 10};
    struct seen seen;

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < 25; i++)
        send_one(numbered(i, 1000), START);
    assert_int_equal(COUNTER_READ(s, link_emul_queue_drops), 15);
    drain(START, TIME_NEVER - 1);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(arrived(&seen));
        assert_int_equal(seen.seq, i); /* the tail was dropped */
    }
    assert_false(arrived(&seen));
    /* There is room again. */
    send_one(numbered(77, 1000), START + 10 * NS_PER_S);
    drain(START, TIME_NEVER - 1);
    assert_true(arrived(&seen));
}

static void queue_in_bytes(void **state)
{
    struct link_emul_config cfg = {.rate_bps = 1000000, .queue_bytes = 5000};

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < 10; i++)
        send_one(numbered(i, 946), START); /* 1000 bytes each */
    assert_int_equal(COUNTER_READ(s, link_emul_queue_drops), 5);
}

static void queue_marks_from_threshold(void **state)
{
    struct link_emul_config cfg = {.rate_bps = 1000000, .queue_packets = 20, .ecn_packets = 5};
    struct seen seen;

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < 10; i++) {
        struct frame_spec f = {
            .flags = TH_ACK, .seq = i, .payload = 10, .tos = i == 9 ? 0 : 2, .v6 = i == 8};
        send_one(frame_make(s, &f), START);
    }
    drain(START, TIME_NEVER - 1);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(arrived(&seen));
        assert_true(seen.ip_ok);
        assert_int_equal(seen.tos, i == 9 ? 0 : i >= 5 ? 3 : 2);
    }
    assert_int_equal(COUNTER_READ(s, link_emul_marked), 4);
}

/* Send n frames and count those that come out, in order. */
static uint32_t survivors(const struct link_emul_config *cfg, uint32_t n, uint64_t *fingerprint)
{
    struct seen seen;
    uint32_t count = 0;

    wrap(cfg, LINK_EMUL_TX, 0);
    *fingerprint = 0;
    for (uint32_t i = 0; i < n; i++)
        send_one(numbered(i, 1), START + i * NS_PER_US);
    drain(START, TIME_NEVER - 1);
    for (; arrived(&seen); count++)
        *fingerprint = *fingerprint * 31 + seen.seq;
    link_end_close(&end);
    return count;
}

static void loss_and_duplication_are_of_their_share_and_repeatable(void **state)
{
    struct link_emul_config loss = {.loss = SHARE(10), .seed = 7},
                            dup = {.dup = SHARE(10), .seed = 7};
    uint64_t a, b, c;
    uint32_t n = survivors(&loss, 20000, &a);

    assert_in_range(n, 17800, 18200); /* 18000, standard deviation 42 */
    assert_int_equal(COUNTER_READ(s, link_emul_lost), 20000 - n);
    assert_int_equal(survivors(&loss, 20000, &b), n);
    assert_int_equal(a, b);
    loss.seed = 8;
    survivors(&loss, 20000, &c);
    assert_int_not_equal(a, c);
    assert_in_range(survivors(&dup, 20000, &a), 21800, 22200);
    loss.loss = LINK_EMUL_SHARE_ALL;
    assert_int_equal(survivors(&loss, 100, &a), 0);
}

static void reordering_displaces_by_places(void **state)
{
    struct link_emul_config cfg = {.reorder = SHARE(10), .reorder_places = 2, .seed = 3};
    const uint32_t n = 20000;
    uint32_t late = 0, top = 0, *at = calloc(n, sizeof(*at)), count = 0;
    struct seen seen;

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < n; i++)
        send_one(numbered(i, 1), START);
    drain(START, TIME_NEVER - 1);
    while (arrived(&seen)) {
        assert_true(seen.seq < n);
        assert_int_equal(at[seen.seq], 0);
        at[seen.seq] = ++count;
        late += seen.seq < top;
        top = MAX(top, seen.seq);
    }
    assert_int_equal(count, n);
    assert_in_range(COUNTER_READ(s, link_emul_reordered), 1800, 2200);
    assert_in_range(late, 1700, 2200);
    for (uint32_t i = 0; i < n; i++)
        assert_in_range(at[i] + 12, i + 1, i + 1 + 2 + 12); /* later by two places at most */
    free(at);
}

static void a_frame_is_held_as_long_as_said(void **state)
{
    struct link_emul_config cfg = {.reorder = LINK_EMUL_SHARE_ALL,
                                   .reorder_places = 100,
                                   .reorder_timed = true,
                                   .reorder_ns = 7};

    wrap(&cfg, LINK_EMUL_TX, 0);
    send_one(numbered(0, 1), START);
    assert_int_equal(end.ops->next_deadline(end.link), START + 7);
    assert_int_equal(stub.out_count, 0);
    assert_int_equal(drain(START, TIME_NEVER - 1), START + 7);
    assert_int_equal(stub.out_count, 1);
}

/* Displaced among those that arrive together, and not held when none follows. */
static void without_time_nothing_is_held(void **state)
{
    struct link_emul_config cfg = {
        .reorder = LINK_EMUL_SHARE_ALL, .reorder_places = 100, .reorder_timed = true};

    wrap(&cfg, LINK_EMUL_TX, 0);
    send_one(numbered(0, 1), START);
    assert_int_equal(stub.out_count, 1);
    assert_int_equal(end.ops->next_deadline(end.link), TIME_NEVER);
    assert_int_equal(COUNTER_READ(s, link_emul_reordered), 1);
}

static void held_frames_do_not_wait_for_ever(void **state)
{
    struct link_emul_config cfg = {.reorder = LINK_EMUL_SHARE_ALL, .reorder_places = 100};

    wrap(&cfg, LINK_EMUL_TX, 0);
    send_one(numbered(0, 1), START);
    assert_int_equal(stub.out_count, 0);
    assert_true(drain(START, TIME_NEVER - 1) <= START + NS_PER_MS);
    assert_int_equal(stub.out_count, 1);
}

static void corruption_is_found_by_the_checksums(void **state)
{
    struct link_emul_config cfg = {.corrupt = LINK_EMUL_SHARE_ALL, .seed = 5};
    struct mbuf *got[1];

    wrap(&cfg, LINK_EMUL_RX, 0);
    for (uint32_t i = 0; i < 2000; i++) {
        struct frame_spec f = {.flags = TH_ACK, .seq = i, .payload = 100, .partial = true};
        uint8_t was[154], is[154];
        struct mbuf *m = frame_make(s, &f);
        m->m_pkt.csum_flags |= CSUM_L4_VALID;
        struct mbuf *twin = mbuf_dup_contiguous(s->account, m);
        assert_non_null(twin);
        stub_link_put(&stub, m);
        assert_int_equal(end.ops->rx(end.link, got, 1, START), 1);
        assert_int_equal(got[0]->m_pkt.csum_flags, 0); /* nobody vouches for it */
        assert_int_equal(got[0]->m_pkt.len, sizeof(is));
        mbuf_copy_out(got[0], 0, sizeof(is), is);
        mbuf_copy_out(twin, 0, sizeof(was), was);
        uint32_t bits = 0;
        for (uint32_t k = 0; k < sizeof(is); k++)
            if (k != 14 + 20 + 16 && k != 14 + 20 + 17) /* the checksum, completed */
                bits += (uint32_t)__builtin_popcount(was[k] ^ is[k]);
        assert_in_range(bits, 0, 1);
        assert_memory_equal(was, is, 14);
        mbuf_free_chain(&twin);
        mbuf_free_chain(&got[0]);
    }
    assert_int_equal(COUNTER_READ(s, link_emul_corrupted), 2000);
}

static void superframes_are_cut_first(void **state)
{
    struct link_emul_config cfg = {.loss = SHARE(50), .seed = 9};
    uint32_t want = 0;
    struct seen seen;

    wrap(&cfg, LINK_EMUL_TX, 0); /* a link without checksums or segmentation */
    assert_true(end.caps & NETIF_CAP_TSO4);
    for (uint32_t i = 0; i < 50; i++) {
        struct frame_spec f = {.flags = TH_ACK,
                               .seq = i * 28960,
                               .payload = 28960,
                               .segsz = 1448,
                               .partial = true,
                               .v6 = i & 1};
        send_one(frame_make(s, &f), START);
        want += 20;
    }
    uint32_t got = 0;
    while (arrived(&seen)) {
        assert_int_equal(seen.payload_len, 1448);
        assert_int_equal(seen.seq % 1448, 0);
        assert_true(seen.sum_ok && seen.ip_ok);
        got++;
    }
    assert_int_equal(got + COUNTER_READ(s, link_emul_lost), want);
    assert_in_range(got, 400, 600);
}

static void a_full_link_holds_back_and_loses_nothing(void **state)
{
    struct link_emul_config cfg = {.delay_ns = NS_PER_MS};
    struct seen seen;

    wrap(&cfg, LINK_EMUL_TX, 0);
    for (uint32_t i = 0; i < 10; i++)
        send_one(numbered(i, 1), START);
    stub.accept = 3;
    drain(START, START + NS_PER_MS);
    assert_int_equal(stub.out_count, 3);
    uint64_t again = end.ops->next_deadline(end.link);
    assert_true(again > START + NS_PER_MS && again < START + 2 * NS_PER_MS);
    stub.accept = SIZE_MAX;
    drain(again, TIME_NEVER - 1);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(arrived(&seen));
        assert_int_equal(seen.seq, i);
    }
}

static void coalescing_gathers(void **state)
{
    struct link_emul_config cfg = {.coalesce_ns = 25 * NS_PER_US};
    struct mbuf *got[8];

    wrap(&cfg, LINK_EMUL_BOTH, 0);
    send_one(numbered(9, 1), START);
    assert_int_equal(stub.out_count, 1); /* sending is not touched */
    for (uint32_t i = 0; i < 3; i++) {
        stub_link_put(&stub, numbered(i, 1));
        assert_int_equal(end.ops->rx(end.link, got, 8, START + i * 10 * NS_PER_US), 0);
        assert_int_equal(end.ops->next_deadline(end.link), START + 25 * NS_PER_US);
    }
    assert_int_equal(end.ops->rx(end.link, got, 8, START + 25 * NS_PER_US), 3);
    for (int i = 0; i < 3; i++)
        mbuf_free_chain(&got[i]);
    assert_int_equal(end.ops->next_deadline(end.link), TIME_NEVER);
    stub_link_put(&stub, numbered(3, 1));
    assert_int_equal(end.ops->rx(end.link, got, 8, START + NS_PER_MS), 0);
    assert_int_equal(end.ops->next_deadline(end.link), START + NS_PER_MS + 25 * NS_PER_US);
}

/* All ills at once, superframes, both directions, memory that runs out: nothing leaks (teardown
 * looks). */
static void everything_at_once(void **state)
{
    struct link_emul_config cfg = {.delay_ns = NS_PER_MS,
                                   .rate_bps = 1000000000,
                                   .queue_packets = 200,
                                   .loss = SHARE(5),
                                   .dup = SHARE(5),
                                   .corrupt = SHARE(5),
                                   .ecn = SHARE(5),
                                   .reorder = SHARE(5),
                                   .reorder_places = 3,
                                   .ecn_packets = 50,
                                   .coalesce_ns = 10 * NS_PER_US,
                                   .seed = 11};
    struct mbuf *got[16];
    uint64_t now = START, received = 0;

    wrap(&cfg, LINK_EMUL_BOTH, 0);
    for (uint32_t i = 0; i < 3000; i++, now += 50 * NS_PER_US) {
        struct frame_spec f = {
            .flags = TH_ACK, .payload = 100 + i % 9000, .partial = true, .tos = 1};
        f.segsz = f.payload > 1448 ? 1448 : 0;
        struct mbuf *m = frame_make(s, &f), *m2 = frame_make(s, &f);
        if (i % 7 == 0)
            atomic_store(&s->account->fail_after, 1 + i % 5);
        send_one(m, now);
        stub_link_put(&stub, m2);
        size_t n = end.ops->rx(end.link, got, 16, now);
        atomic_store(&s->account->fail_after, -1);
        received += n;
        while (n)
            mbuf_free_chain(&got[--n]);
    }
    assert_true(received > 1000);
    assert_true(stub.out_count > 1000);
    assert_true(COUNTER_READ(s, link_emul_nomem) > 0);
}

static void the_wrapped_link_goes_with_it(void **state)
{
    struct link_emul_config cfg = {.delay_ns = 1};

    assert_false(link_emul_wanted(&(struct link_emul_config){.seed = 1}));
    wrap(&cfg, LINK_EMUL_BOTH, NETIF_CAP_CSUM_TX);
    assert_true(end.caps & NETIF_CAP_TSO6);
    link_end_close(&end);
    assert_true(stub.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(delay_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_direction_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(rate_spaces_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_drops_what_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_in_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_marks_from_threshold, setup, teardown),
        cmocka_unit_test_setup_teardown(loss_and_duplication_are_of_their_share_and_repeatable,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(reordering_displaces_by_places, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_is_held_as_long_as_said, setup, teardown),
        cmocka_unit_test_setup_teardown(without_time_nothing_is_held, setup, teardown),
        cmocka_unit_test_setup_teardown(held_frames_do_not_wait_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(corruption_is_found_by_the_checksums, setup, teardown),
        cmocka_unit_test_setup_teardown(superframes_are_cut_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_link_holds_back_and_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(coalescing_gathers, setup, teardown),
        cmocka_unit_test_setup_teardown(everything_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_wrapped_link_goes_with_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
