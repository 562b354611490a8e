/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: merging a burst changes no byte of any stream, no order, and nothing that TCP would learn;
 * what must not be merged is not. Bound: bursts of 64 frames, 2000 random ones. */
#include "../link/frames.h"

#include "ip/lro.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#define BURST 64

static struct weir_stack *s;
static struct netif nif;
static struct mbuf *burst[BURST];
static size_t count;

static int setup(void **state)
{
    s = bare_stack_create();
    nif = (struct netif){.stack = s, .mac = {2, 2, 2, 2, 2, 2}};
    count = 0;
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < count; i++)
        mbuf_free_chain(&burst[i]);
    bare_stack_destroy(s);
    return 0;
}

/* A segment of a connection; what tests change of it. */
struct seg {
    uint32_t seq, len, ack;
    uint8_t flags;    /* 0: ACK */
    uint8_t tos, ttl; /* ttl 0: 64 */
    uint16_t win, port;
    uint32_t tsval; /* 0: no timestamps */
    uint32_t pieces;
    bool v6, bare, partial, bad_sum, other_options, padded;
};

static uint8_t *l3_of(struct mbuf *m, const struct seg *g)
{
    return m->m_data + (g->bare ? 0 : 14);
}

static uint8_t *th_of(struct mbuf *m, const struct seg *g)
{
    return l3_of(m, g) + (g->v6 ? 40 : 20);
}

/* Change 16 bits of a header and mend the TCP checksum (RFC 1624). */
static void patch(struct mbuf *m, const struct seg *g, uint8_t *at, uint16_t value)
{
    uint8_t *sum = th_of(m, g) + 16;
    uint32_t n = (uint16_t)~get_be16(sum);

    n += (uint16_t)~get_be16(at) + (uint32_t)value;
    n = (n & 0xffff) + (n >> 16);
    n = (n & 0xffff) + (n >> 16);
    put_be16(sum, (uint16_t)~n);
    put_be16(at, value);
}

static void patch32(struct mbuf *m, const struct seg *g, uint8_t *at, uint32_t value)
{
    patch(m, g, at, (uint16_t)(value >> 16));
    patch(m, g, at + 2, (uint16_t)value);
}

static void set_ttl(struct mbuf *m, const struct seg *g)
{
    uint8_t *ip = l3_of(m, g);
    uint32_t sum = 0;

    if (g->v6) {
        ip[7] = g->ttl;
        return;
    }
    ip[8] = g->ttl;
    put_be16(ip + 10, 0);
    for (int i = 0; i < 20; i += 2)
        sum += get_be16(ip + i);
    sum = (sum & 0xffff) + (sum >> 16);
    put_be16(ip + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
}

static void put(const struct seg *g)
{
    struct frame_spec f = {
        .v6 = g->v6,
        .bare = g->bare,
        .flags = g->flags ? g->flags : TH_ACK,
        .tos = g->tos,
        .df = true,
        .options = g->tsval || g->other_options ? 12 : 0,
        .seq = g->seq,
        .payload = g->len,
        .partial = g->partial,
        .pieces = g->pieces,
    };
    struct mbuf *m = frame_make(s, &f);
    uint8_t *th = th_of(m, g);

    if (!g->partial) {
        patch32(m, g, th + 8, g->ack);
        patch(m, g, th + 14, g->win ? g->win : 1000);
        patch(m, g, th, (uint16_t)(1234 + g->port));
        if (g->tsval) {
            patch32(m, g, th + 20, 0x0101080a);
            patch32(m, g, th + 24, g->tsval);
        }
        if (g->bad_sum)
            th[16] ^= 1;
    }
    if (g->ttl)
        set_ttl(m, g);
    if (g->padded) {
        struct mbuf *pad = mbuf_from_bytes(s->account, "12345", 5);
        pad->m_flags &= (uint16_t)~M_PKTHDR;
        mbuf_last(m)->m_next = pad;
        m->m_pkt.len += 5;
    }
    m->m_pkt.csum_flags &= CSUM_L4_PARTIAL;
    burst[count++] = m;
}

static void merge(void)
{
    count = lro_merge(&nif, burst, count);
}

/* burst[i] stands for so many segments with so many bytes that begin with seq; lengths and header
 * checksum hold, and the payload is that of a stream of payload_byte by offset in each segment. */
static void expect(size_t i, const struct seg *first, uint32_t segs, uint32_t bytes)
{
    struct mbuf *m = burst[i];
    uint8_t *ip = l3_of(m, first), *th = th_of(m, first);
    uint32_t transport = (th[12] >> 4) * 4u + bytes, sum = 0;

    assert_true(i < count);
    assert_int_equal(m->m_pkt.segs, segs);
    assert_int_equal(m->m_pkt.len, mbuf_chain_len(m));
    assert_int_equal(get_be32(th + 4), first->seq);
    assert_int_equal(get_be16(ip + (first->v6 ? 4 : 2)), transport + (first->v6 ? 0 : 20));
    if (segs > 1) {
        assert_int_equal(m->m_pkt.len, (first->bare ? 0 : 14) + (first->v6 ? 40 : 20) + transport);
        assert_true(m->m_pkt.csum_flags & CSUM_L4_VALID);
        assert_false(m->m_pkt.csum_flags & CSUM_L4_PARTIAL);
        for (struct mbuf *n = m->m_next; n; n = n->m_next)
            assert_false(n->m_flags & M_PKTHDR);
    }
    if (first->v6)
        return;
    for (int k = 0; k < 20; k += 2)
        sum += get_be16(ip + k);
    sum = (sum & 0xffff) + (sum >> 16);
    assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
}

static void a_row_becomes_one(void **state)
{
    for (int kind = 0; kind < 16; kind++) {
        struct seg g = {.seq = 0xfffff000, /* wraps */
                        .len = 1448,
                        .v6 = kind & 1,
                        .bare = kind & 2,
                        .tsval = kind & 4 ? 77 : 0,
                        .partial = (kind & 12) == 8,
                        .pieces = kind & 8 ? 2 : 1},
                   first = g;
        nif.caps = g.bare ? NETIF_CAP_L3 : 0;
        for (int i = 0; i < 20; i++, g.seq += g.len)
            put(&g);
        uint64_t frames = COUNTER_READ(s, link_rx_frames);
        merge();
        assert_int_equal(count, 1);
        expect(0, &first, 20, 20 * 1448);
        assert_int_equal(COUNTER_READ(s, link_rx_frames) - frames, 19);
        for (uint32_t i = 0; i < 20 * 1448; i++) {
            uint8_t b;
            if (i % 1448 > 3 && i % 1448 < 1440)
                continue;
            mbuf_copy_out(burst[0], burst[0]->m_pkt.len - 20 * 1448 + i, 1, &b);
            assert_int_equal(b, payload_byte(i % 1448));
        }
        mbuf_free_chain(&burst[0]);
        count = 0;
    }
    nif.caps = 0;
}

/* What follows a segment, and why it must not be merged with it. */
static void what_differs_is_left_alone(void **state)
{
    const struct seg first = {.seq = 5000, .len = 1000, .ack = 9, .tsval = 5};
    const struct seg others[] = {
        {.seq = 6001, .len = 1000, .ack = 9, .tsval = 5},              /* a hole */
        {.seq = 5000, .len = 1000, .ack = 9, .tsval = 5},              /* again */
        {.seq = 6000, .len = 0, .ack = 9, .tsval = 5},                 /* a pure ACK */
        {.seq = 6000, .len = 1000, .ack = 10, .tsval = 5},             /* acknowledges more */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 6},              /* later */
        {.seq = 6000, .len = 1000, .ack = 9},                          /* without timestamp */
        {.seq = 6000, .len = 1000, .ack = 9, .other_options = true},   /* other layout */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .win = 999},  /* window */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .tos = 3},    /* ECN: CE */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .tos = 0x20}, /* DSCP */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .ttl = 63},   /* another path */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_FIN},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_URG},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_CWR},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_ECE},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_RST},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_ACK | TH_SYN},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .flags = TH_PUSH}, /* no ACK */
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .bad_sum = true},
        {.seq = 6000, .len = 1000, .ack = 9, .tsval = 5, .port = 1}, /* another flow */
    };

    for (size_t i = 0; i < NELEM(others); i++) {
        put(&first);
        put(&others[i]);
        merge();
        assert_int_equal(count, 2);
        expect(0, &first, 1, first.len);
        assert_int_equal(burst[1]->m_pkt.segs, 1);
        assert_int_equal(get_be32(th_of(burst[1], &first) + 4), others[i].seq);
        mbuf_free_chain(&burst[0]);
        mbuf_free_chain(&burst[1]);
        count = 0;
    }
    /* A wrong checksum of the first one spoils nothing either. */
    struct seg bad = first, next = others[0];
    bad.bad_sum = true;
    next.seq = 6000;
    put(&bad);
    put(&next);
    merge();
    assert_int_equal(count, 2);
    assert_false(burst[0]->m_pkt.csum_flags & CSUM_L4_VALID);
}

static void a_pure_ack_keeps_its_place(void **state)
{
    struct seg g = {.seq = 1, .len = 100, .ack = 9}, ack = {.seq = 201, .ack = 9};
    const struct seg first = g;

    put(&g);
    g.seq += 100;
    put(&g);
    put(&ack);
    g.seq += 100;
    struct seg third = g;
    put(&g);
    g.seq += 100;
    put(&g);
    merge();
    assert_int_equal(count, 3);
    expect(0, &first, 2, 200);
    expect(1, &ack, 1, 0);
    expect(2, &third, 2, 200);
}

/* case: FUN-142 */
static void push_ends_a_row(void **state)
{
    struct seg g = {.seq = 1, .len = 100, .ack = 9};
    const struct seg first = g;

    for (int i = 0; i < 6; i++, g.seq += 100) {
        g.flags = i == 2 ? TH_ACK | TH_PUSH : TH_ACK;
        put(&g);
    }
    g.flags = TH_ACK | TH_PUSH | TH_FIN;
    put(&g);
    merge();
    assert_int_equal(count, 3);
    expect(0, &first, 3, 300);
    assert_int_equal(th_of(burst[0], &first)[13], TH_ACK | TH_PUSH);
    const struct seg second = {.seq = 301};
    expect(1, &second, 3, 300);
    assert_int_equal(th_of(burst[1], &second)[13], TH_ACK);
    assert_int_equal(burst[2]->m_pkt.segs, 1);
    assert_int_equal(th_of(burst[2], &g)[13], TH_ACK | TH_PUSH | TH_FIN);
}

static void a_packet_stays_one(void **state)
{
    struct seg g = {.seq = 1, .len = 1448, .tsval = 3};
    const struct seg first = g;

    for (int i = 0; i < BURST; i++, g.seq += g.len)
        put(&g);
    merge();
    assert_int_equal(count, 2);
    expect(0, &first, 45, 45 * 1448); /* 65,160 + 52 bytes: one more would not fit the length */
    const struct seg second = {.seq = 1 + 45 * 1448};
    expect(1, &second, BURST - 45, (BURST - 45) * 1448);
}

static void padding_is_no_payload(void **state)
{
    struct seg g = {.seq = 1, .len = 3, .padded = true};
    const struct seg first = g;

    for (int i = 0; i < 4; i++, g.seq += g.len)
        put(&g);
    merge();
    assert_int_equal(count, 1);
    expect(0, &first, 4, 12);
}

static void flows_do_not_mix(void **state)
{
    struct seg g[LRO_FLOWS + 2];

    for (uint16_t k = 0; k < NELEM(g); k++)
        g[k] = (struct seg){.seq = k * 100000u, .len = 100, .port = k};
    for (int i = 0; i < 6; i++)
        for (size_t k = 0; k < NELEM(g); k++, g[k - 1].seq += 100)
            put(&g[k]);
    merge();
    assert_int_equal(count, LRO_FLOWS + 2 * 6); /* two too many: left alone */
    for (uint16_t k = 0; k < LRO_FLOWS; k++) {
        const struct seg first = {.seq = k * 100000u};
        expect(k, &first, 6, 600);
        assert_int_equal(get_be16(th_of(burst[k], &first)), 1234 + k);
    }
}

/* Random segments of three flows: each flow's bytes in order, all segments counted. */
static void random_bursts_lose_nothing(void **state)
{
    uint64_t x = 0x9e3779b97f4a7c15;

    print_message("seed %llx\n", (unsigned long long)x);
    for (int round = 0; round < 2000; round++) {
        uint32_t next[3] = {0}, seen[3] = {0}, put_count = 0, segs = 0;
        for (size_t i = 0; i < BURST; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            uint32_t r = (uint32_t)(x >> 33);
            uint16_t k = (uint16_t)(r % 3);
            struct seg g = {.seq = next[k],
                            .port = k,
                            .len = 1 + (r >> 4) % 300,
                            .flags = (r >> 12) % 8 == 0 ? TH_ACK | TH_PUSH : TH_ACK,
                            .ack = (r >> 16) % 16 == 0,
                            .tsval = (r >> 20) % 16 == 0 ? 2 : 1,
                            .pieces = 1 + (r >> 24) % 2};
            next[k] += g.len;
            put(&g);
            put_count++;
        }
        merge();
        for (size_t i = 0; i < count; i++) {
            const struct seg any = {0};
            uint8_t *th = th_of(burst[i], &any);
            uint16_t k = (uint16_t)(get_be16(th) - 1234);
            assert_int_equal(get_be32(th + 4), seen[k]);
            seen[k] += burst[i]->m_pkt.len - 14 - 20 - (th[12] >> 4) * 4u;
            segs += burst[i]->m_pkt.segs;
            mbuf_free_chain(&burst[i]);
        }
        count = 0;
        assert_int_equal(segs, put_count);
        assert_memory_equal(seen, next, sizeof(next));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_becomes_one, setup, teardown),
        cmocka_unit_test_setup_teardown(what_differs_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pure_ack_keeps_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(push_ends_a_row, setup, teardown),
        cmocka_unit_test_setup_teardown(a_packet_stays_one, setup, teardown),
        cmocka_unit_test_setup_teardown(padding_is_no_payload, setup, teardown),
        cmocka_unit_test_setup_teardown(flows_do_not_mix, setup, teardown),
        cmocka_unit_test_setup_teardown(random_bursts_lose_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
