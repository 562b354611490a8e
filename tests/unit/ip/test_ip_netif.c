/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: interfaces take what is meant for them, queue in order what the link does not take yet, and
 * lose nothing else. Bound: the listed frames; 5,000 queued ones. */
#include "host.h"

#include "wire/wire.h"
#include <stdlib.h>

static void station_filter(void **state)
{
    struct host *h = host_create(0);
    uint8_t frame[100], data[20] = {0};
    struct ip4_spec spec = {.proto = PROTO_TEST};
    size_t len = make4(h, frame, &spec, data, sizeof(data));

    frame[5] = 9;
    host_inject(h, frame, len);
    memcpy(frame, (const uint8_t[]){0x33, 0x33, 0xff, 0, 0, 2}, 6);
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, link_rx_not_ours), 2);
    memcpy(frame, host_mac, 6);
    put_be16(frame + 12, 0x8100);
    host_inject(h, frame, len);
    assert_int_equal(CTR(h, link_rx_ethertype), 1);
    host_inject(h, frame, 0);
    host_inject(h, frame, 13);
    assert_int_equal(CTR(h, link_rx_short), 2);
    assert_int_equal(h->seen.packets, 0);
    assert_int_equal(CTR(h, link_rx_frames), 5);
    host_destroy(h);
}

/* A link that takes a few frames at a time gets all, in order. */
static void partial_take(void **state)
{
    struct host *h = host_create(NETIF_CAP_L3);
    unsigned i, step, seen = 0;
    struct frame *f;

    for (step = 1; step < 200; step += 13) {
        h->tx_room = 0;
        for (i = 0; i < 200; i++)
            assert_int_equal(host_send(h, "10.0.0.2", 100 + i, true), 0);
        for (seen = 0; seen < 200;) {
            h->tx_room = step;
            netif_flush(h->nif);
            assert_int_equal(h->nif->txq_len, 200 - seen - MIN(step, 200 - seen));
            h->tx_room = 0;
            while ((f = host_next(h)) != NULL) {
                assert_int_equal(f->len, 20 + 100 + seen);
                seen++;
                free(f);
            }
        }
        assert_null(h->nif->txq);
        assert_ptr_equal(h->nif->txq_tail, &h->nif->txq);
    }
    assert_true(h->nif->kick_needed);
    assert_true(CTR(h, link_tx_full) > 0);
    assert_int_equal(CTR(h, link_tx_frames), 200 * 16);
    host_destroy(h);
}

static void queue_is_bounded(void **state)
{
    struct host *h = host_create(NETIF_CAP_L3);
    unsigned i;

    h->tx_room = 0;
    for (i = 0; i < 5000; i++)
        assert_int_equal(host_send(h, "10.0.0.2", 10, true), 0);
    assert_int_equal(h->nif->txq_len, NETIF_TXQ_MAX);
    assert_int_equal(CTR(h, link_tx_queue_drops), 5000 - NETIF_TXQ_MAX);
    host_destroy(h);
}

/* Bare IP: no Ethernet, no ARP. */
static void l3(void **state)
{
    struct host *h = host_create(NETIF_CAP_L3);
    uint8_t data[20] = {0};
    struct frame *f;

    assert_int_equal(host_send(h, "10.0.0.99", 33, true), 0);
    f = host_next(h);
    assert_int_equal(f->len, 53);
    assert_int_equal(f->b[0], 0x45);
    free(f);
    inject4(h, &(struct ip4_spec){.proto = PROTO_TEST}, data, sizeof(data));
    inject6(h, NULL, NULL, PROTO_TEST, data, sizeof(data));
    assert_int_equal(h->seen.packets, 2);
    host_inject(h, data, 0);
    data[0] = 0x70;
    host_inject(h, data, sizeof(data));
    assert_int_equal(CTR(h, link_rx_short) + CTR(h, ip_rx_badver), 2);
    host_destroy(h);
}

static void addresses(void **state)
{
    struct host *h = host_create(0);
    static const char *bad[] = {"0.0.0.0", "224.0.0.1", "127.0.0.1", "255.255.255.255",
                                "::",      "ff02::1",   "::1"};
    struct ipaddr a;
    char text[32];
    unsigned i;

    for (i = 0; i < NELEM(bad); i++) {
        a = addr(bad[i]);
        assert_int_equal(netif_add_addr(h->nif, &a, 24), -EINVAL);
    }
    a = addr("10.9.0.1");
    assert_int_equal(netif_add_addr(h->nif, &a, 33), -EINVAL);
    for (i = 3; i < NETIF_MAX_ADDRS; i++) { /* two and the link-local one are there */
        snprintf(text, sizeof(text), "10.%u.0.1", i);
        a = addr(text);
        assert_int_equal(netif_add_addr(h->nif, &a, 24), 0);
        assert_ptr_equal(netif_of_addr(&h->s, &a), h->nif);
        assert_true(ip_is_local(&h->s, &a));
    }
    a = addr("10.99.0.1");
    assert_int_equal(netif_add_addr(h->nif, &a, 24), -ENOSPC);
    assert_ptr_equal(netif_find(&h->s, 2), h->nif);
    a = addr("10.0.0.255");
    assert_true(ip_is_broadcast(&h->s, &a));
    netif_destroy(h->nif);
    a = addr("10.0.0.1");
    assert_false(ip_is_local(&h->s, &a));
    assert_null(netif_find(&h->s, 2));
    h->nif = NULL;
    host_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(station_filter),   cmocka_unit_test(partial_take),
        cmocka_unit_test(queue_is_bounded), cmocka_unit_test(l3),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
