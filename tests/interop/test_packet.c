/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the packet link takes what is for its station and no more, in order, whatever its size;
 * what its ring has no room for is counted; it outlives an interface that goes down, and a fork.
 * Bound: some thousand frames over a veth pair in a network namespace of its own; needs the
 * privilege to make one. */
#include "unit/link/frames.h"

#include "link/link_packet.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING (256u << 10) /* a few slots, so that it can be filled */

static struct weir_stack *s;
static struct link_end end;
static char err[256];
static int far_fd; /* on the peer interface */

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    struct link_packet_config cfg = {.ifname = "wpk1", .ring_bytes = RING};
    int one = 1;

    s = bare_stack_create();
    memset(&end, 0, sizeof(end));
    assert_int_equal(link_packet_open(s, &cfg, &end, err, sizeof(err)), 0);
    far_fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    assert_true(far_fd >= 0);
    assert_int_equal(setsockopt(far_fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)), 0);
    struct sockaddr_ll sa = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex("wpk0")};
    assert_int_equal(bind(far_fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return 0;
}

static int teardown(void **state)
{
    close(far_fd);
    link_end_close(&end);
    bare_stack_destroy(s);
    return 0;
}

/* Send a segment from the far side, a superframe if it is long. */
static void far_sends(const uint8_t *to, uint32_t seq, uint32_t payload)
{
    static uint8_t buf[66000];
    struct frame_spec f = {.flags = TH_ACK, .seq = seq, .payload = payload, .df = true};
    struct mbuf *m = frame_make(s, &f);
    struct virtio_net_hdr h = {0};
    uint32_t len = m->m_pkt.len;

    mbuf_copy_out(m, 0, len, buf);
    mbuf_free_chain(&m);
    memcpy(buf, to, 6);
    if (payload > 1460) {
        h.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        h.csum_start = 34;
        h.csum_offset = 16;
        h.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        h.gso_size = 1460;
        h.hdr_len = 54;
    }
    struct iovec iov[2] = {{&h, sizeof(h)}, {buf, len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    assert_int_equal(sendmsg(far_fd, &msg, 0), (ssize_t)(len + sizeof(h)));
}

/* All that the link has now: those of our own kind are counted, their bytes compared. */
static uint32_t receive_all(uint32_t first_seq, uint32_t payload)
{
    struct mbuf *m[64];
    uint32_t n = 0;
    size_t got;

    while ((got = end.ops->rx(end.link, m, NELEM(m), 5)) > 0) {
        for (size_t i = 0; i < got; i++) {
            uint8_t h[54] = {0}, b;
            assert_int_equal(m[i]->m_pkt.len, mbuf_chain_len(m[i]));
            assert_int_equal(m[i]->m_pkt.time_ns, 5);
            mbuf_copy_out(m[i], 0, MIN(m[i]->m_pkt.len, 54), h);
            if (h[6] == 2 && get_be16(h + 12) == ETHERTYPE_IP) {
                assert_int_equal(get_be32(h + 38), first_seq + n);
                assert_int_equal(m[i]->m_pkt.len, 54 + payload);
                for (uint32_t at = 0; at < payload; at += 61) {
                    mbuf_copy_out(m[i], 54 + at, 1, &b);
                    assert_int_equal(b, payload_byte(at));
                }
                n++;
            }
            mbuf_free_chain(&m[i]);
        }
    }
    return n;
}

static void frames_come_in(void **state)
{
    const uint32_t sizes[] = {1, 100, 1446, 5000, 20000, 64000};

    for (size_t i = 0; i < NELEM(sizes); i++) {
        for (uint32_t k = 0; k < 20; k++)
            far_sends(end.mac, 1000 + k, sizes[i]);
        assert_true(end.ops->pending(end.link));
        assert_int_equal(receive_all(1000, sizes[i]), 20);
        assert_false(end.ops->pending(end.link));
    }
    assert_int_equal(COUNTER_READ(s, link_rx_nomem), 0);
}

/* Superframes come by another way than small frames: they stay in order. */
static void sizes_may_alternate(void **state)
{
    for (uint32_t k = 0; k < 40; k++) {
        far_sends(end.mac, k, k % 2 ? 30000 : 700);
        struct mbuf *m;
        if (k % 2 == 0)
            continue;
        for (uint32_t i = k - 1; i <= k;) {
            uint8_t seq[4];
            assert_int_equal(end.ops->rx(end.link, &m, 1, 5), 1);
            mbuf_copy_out(m, 38, 4, seq);
            bool ours = m->m_pkt.len > 700;
            if (ours) {
                assert_int_equal(get_be32(seq), i);
                assert_int_equal(m->m_pkt.len, 54 + (i % 2 ? 30000 : 700));
                i++;
            }
            mbuf_free_chain(&m);
        }
    }
}

static void others_frames_do_not_come(void **state)
{
    uint8_t other[6];

    memcpy(other, end.mac, 6);
    other[5] ^= 1;
    receive_all(0, 0);
    for (uint32_t k = 0; k < 10; k++)
        far_sends(other, k, 100);
    assert_int_equal(receive_all(0, 100), 0);
    /* What the interface itself sends does not come back, from us or from others. */
    struct frame_spec f = {.flags = TH_ACK, .seq = 7, .payload = 10};
    struct mbuf *m = frame_make(s, &f);
    assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1);
    assert_int_equal(receive_all(0, 10), 0);
    assert_int_equal(COUNTER_READ(s, link_tx_errors), 0);
}

static void what_the_ring_cannot_hold_is_counted(void **state)
{
    const uint32_t sent = 1000;

    for (uint32_t k = 0; k < sent; k++)
        far_sends(end.mac, k, 1000);
    uint32_t got = receive_all(0, 1000);
    assert_in_range(got, 50, sent - 1);
    far_sends(end.mac, 5, 1000); /* its slot says that some were lost */
    assert_int_equal(receive_all(5, 1000), 1);
    assert_in_range(COUNTER_READ(s, link_rx_ring_full), sent - got, sent - got + 50);
}

static void without_buffers_frames_are_counted(void **state)
{
    for (uint32_t k = 0; k < 2; k++)
        far_sends(end.mac, k, k ? 30000 : 1000);
    mbuf_account_settle(s->account);
    atomic_store(&s->account->limit, 1);
    assert_int_equal(receive_all(0, 0), 0);
    assert_true(COUNTER_READ(s, link_rx_nomem) >= 2);
    atomic_store(&s->account->limit, INT64_C(1) << 30);
    far_sends(end.mac, 9, 30000); /* the one before was taken off the socket's queue */
    assert_int_equal(receive_all(9, 30000), 1);
}

static bool readable(void)
{
    struct pollfd p = {.fd = end.ops->fd(end.link), .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void an_interface_that_goes_down_and_away(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 10};
    struct mbuf *m;

    receive_all(0, 0);
    run("ip link set wpk1 down");
    assert_true(readable());
    assert_int_equal(end.ops->rx(end.link, &m, 1, NS_PER_S), 0);
    assert_false(readable()); /* told once, or whoever sleeps on it would spin */
    assert_int_equal(COUNTER_READ(s, link_down), 1);
    m = frame_make(s, &f);
    assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1);
    assert_int_equal(COUNTER_READ(s, link_tx_errors), 1);
    run("ip link set wpk1 up");
    far_sends(end.mac, 3, 500);
    assert_int_equal(receive_all(3, 500), 1);
    run("ip link del wpk1");
    assert_int_equal(end.ops->rx(end.link, &m, 1, 2 * NS_PER_S), 0);
    assert_int_equal(COUNTER_READ(s, link_down), 2);
    assert_false(readable());
    m = frame_make(s, &f);
    assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1);
    assert_int_equal(COUNTER_READ(s, link_tx_errors), 2);
}

/* The socket's error is in front of superframes that came before it: none is lost or takes
 * another's place. */
static void an_error_shifts_nothing(void **state)
{
    for (uint32_t k = 0; k < 3; k++)
        far_sends(end.mac, 1000 + k, 30000);
    run("ip link set wpk1 down");
    run("ip link set wpk1 up");
    assert_int_equal(receive_all(1000, 30000), 3);
    assert_true(COUNTER_READ(s, link_down) > 0);
}

static void an_address_has_one_station(void **state)
{
    struct netif_addr addr[2] = {{.prefixlen = 24}, {.prefixlen = 64}};
    struct link_packet_config cfg = {.ifname = "wpk1", .addr = addr, .addr_count = 2};
    struct link_end other = {0}, third = {0};

    assert_true(ipaddr_parse("10.77.0.2", &addr[0].addr) == 0 &&
                ipaddr_parse("fd77::2", &addr[1].addr) == 0);
    assert_int_equal(link_packet_open(s, &cfg, &other, err, sizeof(err)), 0);
    for (unsigned i = 0; i < 2; i++) { /* either of the two */
        cfg.addr = &addr[i];
        cfg.addr_count = 1;
        assert_int_equal(link_packet_open(s, &cfg, &third, err, sizeof(err)), -EADDRINUSE);
        assert_non_null(strstr(err, i ? "fd77::2" : "10.77.0.2"));
    }
    cfg.ifname = "wpk0"; /* elsewhere it is heard, and ARP tells */
    assert_int_equal(link_packet_open(s, &cfg, &third, err, sizeof(err)), 0);
    link_end_close(&third);
    link_end_close(&other);
    cfg.ifname = "wpk1";
    assert_int_equal(link_packet_open(s, &cfg, &third, err, sizeof(err)), 0);
    link_end_close(&third);
}

static void a_child_leaves_it_alone(void **state)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    far_sends(end.mac, 1, 1000);
    assert_int_equal(receive_all(1, 1000), 1);
}

static int make_pair(void **state)
{
    run("ip link add wpk0 type veth peer name wpk1");
    run("ip link set wpk0 addrgenmode none up");
    run("ip link set wpk1 addrgenmode none up");
    return setup(state);
}

static int take_away(void **state)
{
    teardown(state);
    (void)!system("ip link del wpk0 2>/dev/null");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(frames_come_in, make_pair, take_away),
        cmocka_unit_test_setup_teardown(sizes_may_alternate, make_pair, take_away),
        cmocka_unit_test_setup_teardown(others_frames_do_not_come, make_pair, take_away),
        cmocka_unit_test_setup_teardown(what_the_ring_cannot_hold_is_counted, make_pair, take_away),
        cmocka_unit_test_setup_teardown(without_buffers_frames_are_counted, make_pair, take_away),
        cmocka_unit_test_setup_teardown(an_interface_that_goes_down_and_away, make_pair, take_away),
        cmocka_unit_test_setup_teardown(an_error_shifts_nothing, make_pair, take_away),
        cmocka_unit_test_setup_teardown(an_address_has_one_station, make_pair, take_away),
        cmocka_unit_test_setup_teardown(a_child_leaves_it_alone, make_pair, take_away),
    };

    if (unshare(CLONE_NEWNET) != 0 || system("ip link add type veth 2>/dev/null") != 0) {
        print_message("no privilege to make a network namespace with interfaces\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
