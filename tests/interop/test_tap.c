/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: frames and superframes pass between the TAP driver and the kernel unchanged in both
 * directions, and a device that is busy, absent, down or of another kind is reported. Bound: some
 * hundred frames in a network namespace of its own; needs the privilege to make one. */
#include "unit/link/frames.h"

#include "link/link_tap.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define IFNAME "weirtap0"
#define FRAME_MAX 66000

static struct weir_stack *s;
static struct link_end end;
static char err[256];
static int packet_fd; /* the kernel's side */

static int setup(void **state)
{
    struct link_tap_config cfg = {.ifname = IFNAME};
    int one = 1;

    s = bare_stack_create();
    assert_int_equal(link_tap_open(s, &cfg, &end, err, sizeof(err)), 0);
    packet_fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    assert_true(packet_fd >= 0);
    assert_int_equal(setsockopt(packet_fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)), 0);
    struct sockaddr_ll sa = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(IFNAME)};
    assert_int_equal(bind(packet_fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return 0;
}

static int teardown(void **state)
{
    close(packet_fd);
    link_end_close(&end);
    bare_stack_destroy(s);
    return 0;
}

static void set_up(bool up)
{
    struct ifreq ifr = {.ifr_name = IFNAME};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &ifr), 0);
    ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &ifr), 0);
    close(fd);
}

/* What the kernel got next from us with our sequence number (it may send frames of its own); its
 * length. */
static size_t kernel_receives(uint32_t seq, bool v6, uint8_t *buf, struct virtio_net_hdr *h)
{
    size_t seq_at = 14 + (v6 ? 40 : 20) + 4;

    for (int i = 0; i < 50; i++) {
        struct pollfd p = {.fd = packet_fd, .events = POLLIN};
        if (poll(&p, 1, 2000) != 1)
            break;
        struct iovec iov[2] = {{h, sizeof(*h)}, {buf, FRAME_MAX}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = recvmsg(packet_fd, &msg, 0);
        if (n < 0 && errno == ENETDOWN) /* told once after the interface was down */
            continue;
        assert_true(n > (ssize_t)sizeof(*h));
        size_t len = (size_t)n - sizeof(*h);
        if (len > seq_at + 4 && buf[0] == 0x02 && get_be32(buf + seq_at) == seq)
            return len;
    }
    fail_msg("frame %u did not arrive", seq);
    return 0;
}

/* The next frame from the kernel that is one of ours (the kernel may add its own); NULL: none came.
 */
static struct mbuf *weir_receives(uint32_t seq, bool v6)
{
    uint32_t seq_at = 14 + (v6 ? 40 : 20) + 4;

    for (int i = 0; i < 50; i++) {
        struct pollfd p = {.fd = end.ops->fd(end.link), .events = POLLIN};
        struct mbuf *m;
        if (poll(&p, 1, 2000) != 1)
            return NULL;
        assert_true(end.ops->pending(end.link));
        if (end.ops->rx(end.link, &m, 1, 77) != 1)
            continue;
        assert_int_equal(m->m_pkt.time_ns, 77);
        assert_int_equal(mbuf_chain_len(m), m->m_pkt.len);
        uint8_t is[4] = {0};
        if (m->m_pkt.len > seq_at + 4)
            mbuf_copy_out(m, seq_at, 4, is);
        if (get_be32(is) == seq)
            return m;
        mbuf_free_chain(&m);
    }
    return NULL;
}

static void frames_go_out(void **state)
{
    static uint8_t got[FRAME_MAX];
    const uint32_t sizes[] = {0, 1, 1446, 5000, 64000};

    for (uint32_t i = 0; i < NELEM(sizes) * 4; i++) {
        struct frame_spec f = {.v6 = i & 1,
                               .flags = TH_ACK | TH_PUSH,
                               .seq = 0x01020304 + i,
                               .payload = sizes[i / 4],
                               .partial = true,
                               .pieces = i & 2 ? 100 : 2}; /* too many for one call, and few */
        f.segsz = f.payload > 1448 ? 1448 : 0;
        struct mbuf *m = frame_make(s, &f);
        uint32_t len = m->m_pkt.len;
        uint8_t *want = malloc(len);
        struct virtio_net_hdr h;
        mbuf_copy_out(m, 0, len, want);
        assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1);
        assert_null(m);
        assert_int_equal(kernel_receives(f.seq, f.v6, got, &h), len);
        assert_memory_equal(got, want, len);
        assert_int_equal(h.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_F_NEEDS_CSUM);
        assert_int_equal(h.gso_type, !f.segsz ? 0
                                     : f.v6   ? VIRTIO_NET_HDR_GSO_TCPV6
                                              : VIRTIO_NET_HDR_GSO_TCPV4);
        assert_int_equal(h.gso_size, f.segsz);
        free(want);
    }
    assert_int_equal(COUNTER_READ(s, link_tx_errors), 0);
}

static void frames_come_in(void **state)
{
    static uint8_t frame[FRAME_MAX], is[FRAME_MAX];
    const uint32_t sizes[] = {0, 1426, 5000, 64000};

    for (uint32_t i = 0; i < NELEM(sizes) * 2; i++) {
        struct frame_spec f = {.v6 = i & 1,
                               .flags = TH_ACK,
                               .seq = 0x11223344 + i,
                               .payload = sizes[i / 2],
                               .partial = true};
        struct mbuf *m = frame_make(s, &f);
        uint32_t len = m->m_pkt.len;
        uint16_t l4 = m->m_pkt.csum_start;
        mbuf_copy_out(m, 0, len, frame);
        mbuf_free_chain(&m);
        struct virtio_net_hdr h = {
            .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = l4, .csum_offset = 16};
        if (f.payload > 1448) {
            h.gso_type = f.v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
            h.gso_size = 1448;
            h.hdr_len = (uint16_t)(l4 + 20);
        }
        struct iovec iov[2] = {{&h, sizeof(h)}, {frame, len}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        assert_int_equal(sendmsg(packet_fd, &msg, 0), (ssize_t)(sizeof(h) + len));
        m = weir_receives(f.seq, f.v6);
        assert_non_null(m);
        assert_int_equal(m->m_pkt.len, len);
        mbuf_copy_out(m, 0, len, is);
        assert_memory_equal(is, frame, len);
        assert_int_equal(m->m_pkt.csum_flags, CSUM_L4_PARTIAL | CSUM_L4_VALID);
        assert_int_equal(m->m_pkt.tso_segsz, h.gso_size);
        assert_int_equal(m->m_pkt.segs, h.gso_size ? (f.payload + 1447) / 1448 : 1);
        if (f.payload == 0)
            assert_true(mbuf_chain_mem(m) <= 2 * MBUF_SIZE); /* no cluster held for a small frame */
        mbuf_free_chain(&m);
    }
}

static void an_interface_that_is_down(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .seq = 5, .payload = 10};
    struct mbuf *m = frame_make(s, &f), *got[4];

    set_up(false);
    assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1); /* dropped, not stuck */
    assert_null(m);
    assert_int_equal(COUNTER_READ(s, link_tx_errors), 1);
    for (size_t n; (n = end.ops->rx(end.link, got, 4, 0)) > 0;) /* the kernel's own, sent before */
        while (n)
            mbuf_free_chain(&got[--n]);
    set_up(true);
    static uint8_t buf[FRAME_MAX];
    struct virtio_net_hdr h;
    m = frame_make(s, &f);
    assert_int_equal(end.ops->tx(end.link, &m, 1, 0), 1);
    kernel_receives(5, false, buf, &h);
}

static void without_buffers_frames_are_dropped_and_counted(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .seq = 6, .payload = 10};
    struct mbuf *m = frame_make(s, &f), *got[1];
    uint8_t frame[64];
    struct virtio_net_hdr h = {0};

    mbuf_copy_out(m, 0, sizeof(frame), frame);
    mbuf_free_chain(&m);
    while (end.ops->rx(end.link, got, 1, 0) == 1)
        mbuf_free_chain(&got[0]);
    struct iovec iov[2] = {{&h, sizeof(h)}, {frame, sizeof(frame)}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    assert_true(sendmsg(packet_fd, &msg, 0) > 0);
    atomic_store(&s->account->limit, 1);
    struct pollfd p = {.fd = end.ops->fd(end.link), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 2000), 1);
    assert_int_equal(end.ops->rx(end.link, got, 1, 0), 0);
    assert_true(COUNTER_READ(s, link_rx_nomem) > 0);
}

static void refusals(void **state)
{
    struct link_end other;
    struct link_tap_config cfg = {.ifname = IFNAME};

    assert_int_equal(link_tap_open(s, &cfg, &other, err, sizeof(err)), -EBUSY);
    assert_non_null(strstr(err, IFNAME));
    cfg.ifname = "lo";
    assert_int_equal(link_tap_open(s, &cfg, &other, err, sizeof(err)), -EINVAL);
    cfg.ifname = "a-name-that-is-too-long";
    assert_int_equal(link_tap_open(s, &cfg, &other, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "too long"));
}

static void mtu_and_queues(void **state)
{
    struct link_end other;
    struct link_tap_config cfg = {.ifname = "weirtap1", .mtu = 9000, .queues = 2};
    struct ifreq ifr = {.ifr_name = "weirtap1"};
    struct mbuf *got[4];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(end.mtu, 1500);
    assert_int_equal(end.mac[0] & 3, 2);
    assert_int_equal(link_tap_open(s, &cfg, &other, err, sizeof(err)), 0);
    assert_int_equal(other.mtu, 9000);
    assert_int_equal(ioctl(fd, SIOCGIFMTU, &ifr), 0);
    assert_int_equal(ifr.ifr_mtu, 9000);
    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &ifr), 0);
    assert_true(ifr.ifr_flags & IFF_UP);
    for (size_t n = other.ops->rx(other.link, got, 4, 0); n; n--)
        mbuf_free_chain(&got[n - 1]);
    assert_true(other.ops->fd(other.link) >= 0);
    close(fd);
    link_end_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(frames_go_out, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_come_in, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interface_that_is_down, setup, teardown),
        cmocka_unit_test_setup_teardown(without_buffers_frames_are_dropped_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(mtu_and_queues, setup, teardown),
    };

    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        fprintf(stderr, "no privilege to make a network namespace\n");
        return 77;
    }
    if (access("/dev/net/tun", R_OK | W_OK) != 0) {
        fprintf(stderr, "no access to /dev/net/tun\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
