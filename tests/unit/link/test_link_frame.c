/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a superframe cut into wire segments carries the same bytes, with the headers each segment
 * would have had if it had been sent alone; parsing never looks beyond what is there. Bound: sizes
 * around the segment size, up to 64 KB. */
#include "frames.h"

#include "link/link_frame.h"
#include "wire/tcp.h"
#include "wire/wire.h"

static struct weir_stack *s;

static int setup(void **state)
{
    s = bare_stack_create();
    return 0;
}

static int teardown(void **state)
{
    bare_stack_destroy(s);
    return 0;
}

static void free_list(struct mbuf *list)
{
    while (list) {
        struct mbuf *next = list->m_nextpkt;
        mbuf_free_chain(&list);
        list = next;
    }
}

/* Cut one superframe and compare every segment with what it must be. */
static void check_cut(const struct frame_spec *f)
{
    struct mbuf *m = frame_make(s, f), *list;
    uint32_t n = (f->payload + f->segsz - 1) / f->segsz, i = 0;
    bool df = f->df;

    assert_int_equal(link_tso_cut(s->account, &m, f->bare, &list), n);
    assert_null(m);
    for (struct mbuf **p = &list; *p; i++) {
        struct mbuf *next = (*p)->m_nextpkt;
        struct seen seen;
        assert_int_equal((*p)->m_pkt.segs, 1);
        assert_int_equal((*p)->m_pkt.tso_segsz, 0);
        assert_true((*p)->m_pkt.csum_flags & CSUM_L4_PARTIAL);
        assert_int_equal(link_csum_complete(p), 0);
        (*p)->m_nextpkt = next;
        frame_look_mbuf(*p, f->bare, &seen);
        assert_true(seen.ip_ok);
        assert_true(seen.sum_ok);
        assert_int_equal(seen.seq, (uint32_t)(f->seq + i * f->segsz));
        assert_int_equal(seen.payload_len, MIN(f->segsz, f->payload - i * f->segsz));
        assert_int_equal(seen.first, payload_byte(i * f->segsz));
        assert_int_equal(seen.tos, f->tos);
        if (!f->v6)
            assert_int_equal(seen.ip_id, (uint16_t)(0xfffe + (df ? 0 : i)));
        uint8_t want = f->flags;
        if (i > 0)
            want &= (uint8_t)~TH_CWR;
        if (i + 1 < n)
            want &= (uint8_t) ~(TH_FIN | TH_PUSH);
        assert_int_equal(seen.flags, want);
        p = &(*p)->m_nextpkt;
    }
    assert_int_equal(i, n);
    free_list(list);
}

static void cut_gives_the_same_stream(void **state)
{
    const uint32_t sizes[] = {1449, 2896, 2897, 5000, 65160};

    for (size_t i = 0; i < NELEM(sizes); i++) {
        for (int kind = 0; kind < 8; kind++) {
            struct frame_spec f = {
                .v6 = kind & 1,
                .bare = kind & 2,
                .df = kind & 4,
                .flags = TH_ACK | TH_PUSH | TH_FIN | TH_CWR | TH_ECE,
                .tos = 2,
                .options = 12,
                .seq = 0xffffff00, /* wraps */
                .payload = sizes[i],
                .segsz = 1448,
                .partial = true,
                .pieces = (uint32_t)kind + 1,
            };
            check_cut(&f);
        }
    }
}

static void odd_and_tiny_segments(void **state)
{
    struct frame_spec f = {
        .flags = TH_ACK, .payload = 999, .segsz = 7, .partial = true, .pieces = 13};

    check_cut(&f);
    f.segsz = 1;
    f.payload = 300;
    check_cut(&f);
}

/* case: SEC-017 */
static void one_segment_stays_whole(void **state)
{
    struct frame_spec f = {
        .flags = TH_ACK | TH_PUSH, .payload = 1448, .segsz = 1448, .partial = true};
    struct mbuf *m = frame_make(s, &f), *same = m, *list;

    assert_int_equal(link_tso_cut(s->account, &m, false, &list), 1);
    assert_ptr_equal(list, same);
    assert_int_equal(list->m_pkt.tso_segsz, 0);
    assert_false(list->m_pkt.csum_flags & (CSUM_TSO4 | CSUM_TSO6));
    free_list(list);
}

static void what_cannot_be_cut_is_dropped(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 60000, .segsz = 2, .partial = true};
    struct mbuf *m = frame_make(s, &f), *list;

    assert_int_equal(link_tso_cut(s->account, &m, false, &list), -EPROTO); /* too many */
    assert_null(m);
    assert_null(list);
    f.segsz = 1448;
    m = frame_make(s, &f);
    m->m_data[14 + 9] = 17; /* not TCP */
    assert_int_equal(link_tso_cut(s->account, &m, false, &list), -EPROTO);
    assert_null(m);
}

/* Out of memory at each of the allocations in turn: an error, nothing lost. */
static void cut_without_memory(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 10000, .segsz = 1448, .partial = true};
    int r = -ENOMEM;

    for (int n = 1; r == -ENOMEM && n < 100; n++) {
        struct mbuf *m = frame_make(s, &f), *list;
        atomic_store(&s->account->fail_after, n);
        r = link_tso_cut(s->account, &m, false, &list);
        atomic_store(&s->account->fail_after, -1);
        assert_null(m);
        free_list(list);
    }
    assert_int_equal(r, 7);
}

static void checksum_completed(void **state)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct frame_spec f = {
            .v6 = v6, .flags = TH_ACK, .payload = 777, .partial = true, .pieces = 5};
        struct mbuf *m = frame_make(s, &f);
        struct seen seen;
        assert_int_equal(link_csum_complete(&m), 0);
        assert_false(m->m_pkt.csum_flags & CSUM_L4_PARTIAL);
        frame_look_mbuf(m, false, &seen);
        assert_true(seen.sum_ok);
        mbuf_free_chain(&m);
    }
    struct frame_spec f = {.flags = TH_ACK, .partial = true};
    struct mbuf *m = frame_make(s, &f);
    m->m_pkt.csum_offset = 19; /* ends beyond the frame */
    assert_int_equal(link_csum_complete(&m), -EPROTO);
    assert_null(m);
}

/* Every prefix of a frame, and every value of its first bytes, under the sanitizer. */
/* case: SEC-041 */
static void parse_stays_within(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        struct frame_spec f = {.v6 = kind & 1, .bare = kind & 2, .flags = TH_ACK, .options = 40};
        struct mbuf *m = frame_make(s, &f);
        uint32_t len = m->m_pkt.len;
        struct link_frame out;
        for (uint32_t n = 0; n <= len; n++) {
            uint8_t *p = malloc(n + (n == 0));
            mbuf_copy_out(m, 0, n, p);
            link_frame_parse(p, n, n, f.bare, &out);
            assert_true(out.proto == 0 || n == len);
            link_frame_parse(p, n, len, f.bare, &out);
            assert_true(out.payload <= n);
            for (uint32_t at = 0; at < MIN(n, 60); at++) {
                uint8_t before = p[at];
                for (int v = 0; v < 256; v += 5) {
                    p[at] = (uint8_t)v;
                    link_frame_parse(p, n, n, f.bare, &out);
                    assert_true(out.end <= n && out.payload <= n);
                }
                p[at] = before;
            }
            free(p);
        }
        mbuf_free_chain(&m);
    }
}

static void ipv6_extension_headers_are_walked(void **state)
{
    uint8_t p[14 + 40 + 24 + 20] = {0};
    struct link_frame f;

    put_be16(p + 12, 0x86dd);
    p[14] = 0x60;
    put_be16(p + 18, 24 + 20);
    p[20] = 0;  /* hop by hop */
    p[54] = 60; /* then destination options */
    p[62] = 6;  /* then TCP */
    p[63] = 1;  /* of 16 bytes */
    p[78 + 12] = 0x50;
    link_frame_parse(p, sizeof(p), sizeof(p), false, &f);
    assert_int_equal(f.proto, 6);
    assert_int_equal(f.l4, 78);
    assert_int_equal(f.payload, 98);
    p[54] = 0; /* hop by hop after itself, for ever */
    p[62] = 0;
    p[63] = 0;
    link_frame_parse(p, sizeof(p), sizeof(p), false, &f);
    assert_int_equal(f.proto, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cut_gives_the_same_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_and_tiny_segments, setup, teardown),
        cmocka_unit_test_setup_teardown(one_segment_stays_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_cut_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_without_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(checksum_completed, setup, teardown),
        cmocka_unit_test_setup_teardown(parse_stays_within, setup, teardown),
        cmocka_unit_test(ipv6_extension_headers_are_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
