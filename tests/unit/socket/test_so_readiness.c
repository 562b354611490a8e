/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: poll bits in every state are those measured on Linux. Bound: no waiting, no threads. */
#include "fake.h"

#define IN POLLIN
#define OUT POLLOUT
#define RDHUP POLLRDHUP
#define HUP POLLHUP
#define ERR POLLERR

/* case: FUN-101 */
static void test_states(void **state)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_int_equal(fake_poll(fd), OUT | HUP); /* fresh */
    assert_errno(weir_connect(fd, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    assert_int_equal(fake_poll(fd), 0); /* connecting */
    fake_rst(fd, ECONNREFUSED);         /* refused */
    assert_int_equal(fake_poll(fd), IN | OUT | ERR | HUP | RDHUP);
    assert_int_equal(fake_so_error(fd), ECONNREFUSED);
    assert_int_equal(fake_poll(fd), IN | OUT | HUP | RDHUP);
    assert_int_equal(weir_close(fd), 0);
    assert_int_equal(fake_poll(fd), POLLNVAL); /* closed */

    fd = fake_listener(true, 5);
    assert_int_equal(fake_poll(fd), 0); /* idle listener */
    assert_non_null(fake_child(fd));
    assert_int_equal(fake_poll(fd), IN);
    weir_close(fd);

    fd = fake_connected(true);
    assert_int_equal(fake_poll(fd), OUT);
    assert_int_equal(weir_shutdown(fd, SHUT_WR), 0);
    assert_int_equal(fake_poll(fd), OUT);
    fake_fin(fd); /* peer FIN and own SHUT_WR */
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP | HUP);
    weir_close(fd);

    fd = fake_connected(true);
    fake_fin(fd);
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP);
    weir_close(fd);

    fd = fake_connected(true);
    assert_int_equal(weir_shutdown(fd, SHUT_RD), 0);
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP);
    assert_int_equal(weir_shutdown(fd, SHUT_RDWR), 0);
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP | HUP);
    weir_close(fd);

    fd = fake_connected(true);
    fake_rst(fd, ECONNRESET);
    assert_int_equal(fake_poll(fd), IN | OUT | ERR | HUP | RDHUP);
    assert_int_equal(fake_so_error(fd), ECONNRESET);
    assert_int_equal(fake_poll(fd), IN | OUT | HUP | RDHUP);
    weir_close(fd);
}

/* case: FUN-100 */
static void test_rdhup_only(void **state)
{
    int fd = fake_connected(true);
    struct pollfd p = {fd, POLLRDHUP, 0};

    (void)state;
    assert_int_equal(weir_poll(&p, 1, 0), 0);
    fake_fin(fd);
    assert_int_equal(weir_poll(&p, 1, 0), 1);
    assert_int_equal(p.revents, POLLRDHUP);
    p.events |= POLLIN;
    assert_int_equal(weir_poll(&p, 1, 0), 1);
    assert_int_equal(p.revents, POLLRDHUP | POLLIN);
    weir_close(fd);

    fd = p.fd = fake_connected(true);
    p.events = POLLRDHUP;
    weir_shutdown(fd, SHUT_RD);
    assert_int_equal(weir_poll(&p, 1, 0), 1);
    assert_int_equal(p.revents, POLLRDHUP);
    weir_close(fd);
}

/* case: FUN-103 */
static void test_no_events_asked(void **state)
{
    int fd = fake_connected(true);
    struct pollfd p = {fd, 0, 0};

    (void)state;
    assert_int_equal(weir_poll(&p, 1, 0), 0);
    fake_rst(fd, ECONNRESET);
    assert_int_equal(weir_poll(&p, 1, 0), 1);
    assert_int_equal(p.revents, POLLERR | POLLHUP);
    weir_close(fd);
}

static void test_datagram(void **state)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    int fd = weir_socket(fake.s, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    (void)state;
    assert_int_equal(fake_poll(fd), OUT);
    fake_datagram(fd, 5, "", 0); /* an empty one is one */
    assert_int_equal(fake_poll(fd), IN | OUT);
    assert_int_equal(weir_recv(fd, NULL, 0, 0), 0);
    fake.connect_error = 0;
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    AS_OWNER(so_error_set(fake_so(fd), ECONNREFUSED));
    assert_int_equal(fake_poll(fd), OUT | ERR);
    assert_errno(weir_send(fd, "x", 1, 0), ECONNREFUSED);
    assert_int_equal(weir_send(fd, "x", 1, 0), 1);
    weir_shutdown(fd, SHUT_RD);
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP);
    weir_shutdown(fd, SHUT_WR);
    assert_int_equal(fake_poll(fd), IN | OUT | RDHUP | HUP);
    weir_close(fd);
}

/* POLLOUT comes back when half as much is free as is used, and only whoever waited is woken. */
static void test_writable_threshold(void **state)
{
    static char big[1 << 20];
    int fd = fake_connected(true), size = 65536;
    socklen_t len = sizeof size;

    (void)state;
    weir_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, len);
    assert_int_equal(weir_send(fd, big, sizeof big, 0), 65536);
    assert_int_equal(fake_poll(fd), 0);
    fake_acked(fd, 20000);
    assert_int_equal(fake_poll(fd), 0);
    fake_acked(fd, 2000);
    assert_int_equal(fake_poll(fd), OUT);
    weir_close(fd);
}

static void test_lowat(void **state)
{
    int fd = fake_connected(true), lowat = 10;

    (void)state;
    assert_int_equal(weir_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat), 0);
    fake_data(fd, "12345", 5);
    assert_int_equal(fake_poll(fd), OUT);
    fake_data(fd, "67890", 5);
    assert_int_equal(fake_poll(fd), IN | OUT);
    weir_close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_states, fake_group_setup, fake_group_teardown),
        cmocka_unit_test_setup_teardown(test_rdhup_only, fake_group_setup, fake_group_teardown),
        cmocka_unit_test_setup_teardown(test_no_events_asked, fake_group_setup,
                                        fake_group_teardown),
        cmocka_unit_test_setup_teardown(test_datagram, fake_group_setup, fake_group_teardown),
        cmocka_unit_test_setup_teardown(test_writable_threshold, fake_group_setup,
                                        fake_group_teardown),
        cmocka_unit_test_setup_teardown(test_lowat, fake_group_setup, fake_group_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
