/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what leaves has right headers, checksums, fragments and ids; what must not be cut is not.
 * Bound: the listed sizes; 4,000 ids. */
#include "host.h"

#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/wire.h"
#include <stdlib.h>

static void check_bytes(const uint8_t *p, uint32_t off, uint32_t len)
{
    uint32_t i;

    for (i = 0; i < len; i++)
        assert_int_equal(p[i], (uint8_t)((off + i) ^ (off + i) >> 8));
}

static void whole_packets(void **state)
{
    struct host *h = host_create(0);
    struct ipv4_header ip;
    struct ipv6_header ip6;
    struct frame *f;

    host_learn_peers(h);
    assert_int_equal(host_send(h, "10.0.0.2", 1480, true), 0);
    f = host_next(h);
    assert_int_equal(f->len, 1514);
    assert_memory_equal(f->b, peer_mac, 6);
    assert_memory_equal(f->b + 6, host_mac, 6);
    assert_int_equal(ipv4_header_parse(f->b + 14, 1500, &ip), 0);
    assert_true(ipv4_sum_is_ok(f->b + 14, 20));
    assert_true(ip.df && !ip.mf && ip.id == 0 && ip.ttl == 64 && ip.proto == PROTO_TEST);
    check_bytes(f->b + 34, 0, 1480);
    free(f);
    assert_int_equal(host_send(h, "fd00::2", 1460, true), 0);
    f = host_next(h);
    assert_int_equal(ipv6_header_parse(f->b + 14, 1500, &ip6), 0);
    assert_int_equal(ip6.plen, 1460);
    check_bytes(f->b + 54, 0, 1460);
    free(f);
    assert_int_equal(host_send(h, "10.0.0.2", 1481, true), -EMSGSIZE);
    assert_int_equal(host_send(h, "fd00::2", 1461, true), -EMSGSIZE);
    assert_int_equal(CTR(h, ip_tx_toobig), 1);
    assert_int_equal(CTR(h, ip6_tx_toobig), 1);
    assert_null(host_next(h));
    host_destroy(h);
}

/* Every fragment, put together by the same stack's input. */
static void fragments(void **state)
{
    static const uint32_t sizes[] = {1481, 2960, 2961, 8192, 65515};
    struct host *h = host_create(0);
    struct frame *f;
    unsigned i, v6;
    uint32_t n = 0;

    host_learn_peers(h);
    for (i = 0; i < NELEM(sizes); i++) {
        for (v6 = 0; v6 < 2; v6++) {
            assert_int_equal(host_send(h, v6 ? "fd00::2" : "10.0.0.2", sizes[i], false), 0);
            while ((f = host_next(h)) != NULL) {
                assert_true(f->len <= 1514);
                /* Turn it round: as if the neighbour had sent it. */
                memcpy(f->b, host_mac, 6);
                if (v6) {
                    uint8_t t[16];

                    memcpy(t, f->b + 22, 16);
                    memcpy(f->b + 22, f->b + 38, 16);
                    memcpy(f->b + 38, t, 16);
                } else {
                    uint8_t t[4];

                    assert_true(ipv4_sum_is_ok(f->b + 14, 20));
                    memcpy(t, f->b + 26, 4);
                    memcpy(f->b + 26, f->b + 30, 4);
                    memcpy(f->b + 30, t, 4);
                }
                host_inject(h, f->b, f->len);
                free(f);
            }
            assert_int_equal(h->seen.packets, ++n);
            assert_int_equal(h->seen.len, sizes[i]);
            check_bytes(h->seen.data, 0, sizes[i]);
        }
    }
    assert_int_equal(host_send(h, "10.0.0.2", 65516, false), -EMSGSIZE);
    host_destroy(h);
}

static int send_csum(struct host *h, const char *dst, uint8_t proto, uint32_t len, uint16_t flags,
                     uint16_t segsz)
{
    struct ip_output_args a = {.dst = addr(dst), .proto = proto, .df = true};
    struct mbuf *m = mbuf_get_packet(h->s.account);
    uint8_t *bytes = calloc(1, len);
    struct route r;
    uint16_t sum;

    assert_int_equal(ip_route(&h->s, &a.dst, NULL, &r), 0);
    a.src = r.src;
    sum = checksum_fold(checksum_pseudo(&a.src, &a.dst, proto, 20 + len));
    memset(m->m_data, 3, 20);
    memcpy(m->m_data + 16, &sum, 2);
    m->m_len = 20;
    bytes[len - 1] = 0x77;
    m->m_next = mbuf_from_bytes(h->s.account, bytes, len);
    m->m_pkt.len = 20 + len;
    m->m_pkt.csum_flags = CSUM_L4_PARTIAL | flags;
    m->m_pkt.csum_offset = 16;
    m->m_pkt.tso_segsz = segsz;
    free(bytes);
    return ip_output(&h->s, &m, &a);
}

static void checksum_in_software(void **state)
{
    struct host *h = host_create(0);
    const char *dst[] = {"10.0.0.2", "fd00::2"};
    unsigned i;

    host_learn_peers(h);
    for (i = 0; i < 2; i++) {
        struct ipaddr a = addr(i ? "fd00::1" : "10.0.0.1"), b = addr(dst[i]);
        struct frame *f;
        uint32_t hlen = i ? 40 : 20;

        assert_int_equal(send_csum(h, dst[i], IPPROTO_TCP, 333, 0, 0), 0);
        f = host_next(h);
        assert_int_equal(f->csum_flags & CSUM_L4_PARTIAL, 0);
        assert_int_equal(checksum_fold(checksum_add(f->b + 14 + hlen, 353,
                                                    checksum_pseudo(&a, &b, IPPROTO_TCP, 353))),
                         0xffff);
        free(f);
    }
    host_destroy(h);
}

static void superframes_stay_whole(void **state)
{
    struct host *h = host_create(NETIF_CAP_CSUM_TX | NETIF_CAP_TSO4 | NETIF_CAP_TSO6);
    struct frame *f;

    host_learn_peers(h);
    assert_int_equal(send_csum(h, "10.0.0.2", IPPROTO_TCP, 60000, CSUM_TSO4, 1460), 0);
    f = host_next(h);
    assert_int_equal(f->len, 14 + 20 + 20 + 60000);
    assert_int_equal(f->tso_segsz, 1460);
    assert_true(f->csum_flags & CSUM_L4_PARTIAL);
    free(f);
    assert_null(host_next(h));
    assert_int_equal(send_csum(h, "fd00::2", IPPROTO_TCP, 60000, CSUM_TSO6, 1440), 0);
    f = host_next(h);
    assert_int_equal(f->len, 14 + 40 + 20 + 60000);
    free(f);
    host_destroy(h);
    /* A link that does not take them is not given one, nor pieces of one. */
    h = host_create(NETIF_CAP_CSUM_TX);
    host_learn_peers(h);
    assert_int_equal(send_csum(h, "10.0.0.2", IPPROTO_TCP, 60000, CSUM_TSO4, 1460), -EMSGSIZE);
    assert_null(host_next(h));
    host_destroy(h);
}

/* case: SEC-028 */
static void ids_tell_nothing(void **state)
{
    struct host *h = host_create(0);
    uint16_t ids[4000];
    unsigned i, k, rising = 0;
    struct frame *f;

    host_learn_peers(h);
    for (i = 0; i < NELEM(ids); i++) {
        assert_int_equal(host_send(h, i % 3 ? "10.0.0.2" : "10.0.0.254", 8, false), 0);
        assert_int_equal(host_send(h, "10.0.0.2", 8, true), 0);
        f = host_next(h);
        ids[i] = get_be16(f->b + 18);
        free(f);
        f = host_next(h);
        assert_int_equal(get_be16(f->b + 18), 0); /* DF: a constant, whatever happened before */
        free(f);
        for (k = i > 1000 ? i - 1000 : 0; k < i; k++)
            assert_int_not_equal(ids[k], ids[i]);
        rising += i > 0 && ids[i] > ids[i - 1];
    }
    assert_in_range(rising, 1800, 2200);
    /* A forged path MTU does not make DF packets change their method. */
    {
        struct ipaddr dst = addr("10.0.0.2");

        ip_pmtu_update(&h->s, &dst, 68);
    }
    assert_int_equal(host_send(h, "10.0.0.2", 8, true), 0);
    f = host_next(h);
    assert_int_equal(get_be16(f->b + 18), 0);
    assert_int_equal(get_be16(f->b + 20), 0x4000);
    free(f);
    host_destroy(h);
}

static void no_memory(void **state)
{
    struct host *h = host_create(0);
    unsigned i, failed = 0;

    host_learn_peers(h);
    for (i = 0; i < 40; i++) {
        struct ip_output_args a = {
            .src = addr("10.0.0.1"), .dst = addr("10.0.0.2"), .proto = PROTO_TEST};
        uint8_t bytes[5000] = {0};
        struct mbuf *m = mbuf_get_packet(h->s.account);

        m->m_next = mbuf_from_bytes(h->s.account, bytes, sizeof(bytes));
        m->m_pkt.len = sizeof(bytes);
        atomic_store(&h->s.account->fail_after, i + 1);
        failed += ip_output(&h->s, &m, &a) == -ENOBUFS;
        atomic_store(&h->s.account->fail_after, -1);
        assert_null(m);
        host_forget(h);
    }
    assert_true(failed > 3);
    assert_int_equal(CTR(h, ip_tx_nobufs), failed);
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_packets),        cmocka_unit_test(fragments),
        cmocka_unit_test(checksum_in_software), cmocka_unit_test(superframes_stay_whole),
        cmocka_unit_test(ids_tell_nothing),     cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
