/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a file that changes or is cut between its first transmission and the next: checksums are
 * right, no segment is half of this and half of that, and no zeros are passed off as the file.
 * Bound: a few hundred segments; a peer that acknowledges nothing. */
#include "peer.h"
#include "runtime/file_window.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 300000

static struct sim *sim;
static struct weir_stack *s;
static struct peer *p;
static int listener, file;
static struct packet k;
static char path[] = "/tmp/weir-sim-sendfile.XXXXXX";

static void write_all(uint8_t byte)
{
    uint8_t *data = malloc(SIZE);

    memset(data, byte, SIZE);
    assert_int_equal(pwrite(file, data, SIZE, 0), SIZE);
    free(data);
}

static int setup(void **state)
{
    sim = sim_create(11, 0);
    s = sim_stack(sim, "s");
    p = peer_create(sim, s, "192.0.2.1", "192.0.2.2", 0);
    listener = -1;
    strcpy(strrchr(path, '.'), ".XXXXXX");
    file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    write_all('a');
    return 0;
}

static int teardown(void **state)
{
    close(file);
    sim_destroy(sim);
    assert_int_equal(file_windows_drain(), 0);
    return 0;
}

/* A connection on which the file's first 100,000 bytes were taken, and some segments left. */
static unsigned begin(struct conn *c)
{
    off_t sent = 0;
    unsigned segments = 0;

    conn_init(c, p, 40000, 80);
    conn_accept(c, &listener, s);
    assert_int_equal(weir_fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
    (void)weir_sendfile(file, c->fd, 0, 100000, NULL, &sent, 0);
    assert_true(sent > 20000);
    while (conn_next(c, &k, NS_PER_MS)) {
        for (uint32_t i = 0; i < k.len; i++)
            assert_int_equal(k.data[i], 'a');
        segments += k.len > 0;
    }
    assert_true(segments >= 5);
    return segments;
}

/* case: FUN-136 */
static void a_file_that_changes_before_it_is_sent_again(void **state)
{
    struct conn c;
    unsigned again = 0;

    (void)begin(&c);
    write_all('b');
    while (again < 5) { /* peer_next, below this, checks each checksum */
        assert_true(conn_next(&c, &k, 60 * NS_PER_S));
        for (uint32_t i = 0; i < k.len; i++)
            assert_int_equal(k.data[i], 'b');
        again += k.len > 0;
    }
    weir_close(c.fd);
    weir_close(listener);
}

/* case: FUN-136 */
static void a_file_that_is_cut_before_it_is_sent_again(void **state)
{
    struct conn c;

    (void)begin(&c);
    assert_int_equal(ftruncate(file, 0), 0);
    for (int i = 0; i < 20; i++) {
        assert_true(conn_next(&c, &k, 120 * NS_PER_S));
        assert_int_equal(k.len, 0);
        if (k.th.flags & TH_RST)
            break;
    }
    assert_true(k.th.flags & TH_RST);
    assert_int_equal(weir_send(c.fd, "x", 1, 0), -1);
    assert_int_equal(errno, EIO);
    weir_close(c.fd);
    weir_close(listener);
}

/* A segment that is small enough to be copied (here that of a window probe) is no way round.
 * case: FUN-136 */
static void a_file_that_is_cut_under_a_small_segment(void **state)
{
    struct conn c;

    (void)begin(&c);
    conn_send(&c, &(struct segment){.seq = c.snd_nxt, .ack = c.rcv_nxt, .flags = TH_ACK, .win = 0});
    assert_int_equal(ftruncate(file, 0), 0);
    for (int i = 0; i < 20; i++) {
        assert_true(conn_next(&c, &k, 120 * NS_PER_S));
        for (uint32_t j = 0; j < k.len; j++)
            assert_int_equal(k.data[j], 'a');
        if (k.th.flags & TH_RST)
            break;
    }
    assert_true(k.th.flags & TH_RST);
    weir_close(c.fd);
    weir_close(listener);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_changes_before_it_is_sent_again),
        TEST(a_file_that_is_cut_before_it_is_sent_again),
        TEST(a_file_that_is_cut_under_a_small_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
