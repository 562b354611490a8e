/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what the fuzz targets found does not come back. Bound: one small scenario a test. */
#include "../unit/tcp/world.h"

#include "weir/socket.h"

/* An answer that is built at once takes back nothing of the window, though the receive buffer was
 * made smaller after it was offered. */
static void test_challenge_keeps_the_window(void **state)
{
    struct conn c;
    int size = 2304;
    uint32_t offered;

    world_accept(&c);
    conn_data(&c, 1448);
    conn_data(&c, 1448);
    assert_true(conn_next(&c, &w.k, 100 * MS));
    while (conn_next(&c, &w.k, 100 * MS))
        ;
    uint32_t unit = 1u << world_tcpcb(&c)->rcv_scale;
    offered = w.k.th.ack + w.k.th.win * unit;
    assert_int_equal(weir_setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    send_at(&c, 0, TH_SYN, 0);
    expect_flags(&c, TH_ACK, 50 * MS);
    assert_true(SEQ_GT(w.k.th.ack + w.k.th.win * unit + 2 * unit, offered));
    weir_close(c.fd);
    weir_close(w.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_challenge_keeps_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
