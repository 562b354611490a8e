/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: superframe and checksum marks survive the virtio-net header, and a header that contradicts
 * its frame is refused. Bound: all values of each header field on frames of both families. */
#include "frames.h"

#include "link/link_frame.h"
#include "link/link_vnet.h"
#include "wire/tcp.h"

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

static void marks_survive(void **state)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct frame_spec f = {.v6 = v6,
                               .flags = TH_ACK | TH_CWR,
                               .options = 12,
                               .payload = 20000,
                               .segsz = 1448,
                               .partial = true};
        struct mbuf *m = frame_make(s, &f);
        struct virtio_net_hdr_v1 h;
        link_vnet_build(&h, m);
        assert_int_equal(h.gso_type, (v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4) |
                                         VIRTIO_NET_HDR_GSO_ECN);
        assert_int_equal(h.hdr_len, 14 + (v6 ? 40 : 20) + 32);
        m->m_pkt.csum_flags = 0;
        assert_int_equal(link_vnet_apply(&h, m), 0);
        assert_int_equal(m->m_pkt.tso_segsz, 1448);
        assert_int_equal(m->m_pkt.segs, 14);
        assert_int_equal(m->m_pkt.csum_flags, CSUM_L4_PARTIAL | CSUM_L4_VALID);
        assert_int_equal(m->m_pkt.csum_start, 14 + (v6 ? 40 : 20));
        h.gso_type = v6 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
        assert_int_equal(link_vnet_apply(&h, m), -EPROTO); /* the other family */
        mbuf_free_chain(&m);
    }
}

static void plain_frames_have_no_marks(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 100};
    struct mbuf *m = frame_make(s, &f);
    struct virtio_net_hdr_v1 h, zero = {0};

    link_vnet_build(&h, m);
    assert_memory_equal(&h, &zero, sizeof(h));
    assert_int_equal(link_vnet_apply(&h, m), 0);
    assert_int_equal(m->m_pkt.csum_flags, 0);
    assert_int_equal(m->m_pkt.segs, 1);
    h.flags = VIRTIO_NET_HDR_F_DATA_VALID;
    assert_int_equal(link_vnet_apply(&h, m), 0);
    assert_int_equal(m->m_pkt.csum_flags, CSUM_L4_VALID);
    mbuf_free_chain(&m);
}

/* Whatever the header says: refused, or within the frame. */
static void headers_are_not_believed(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 30000, .segsz = 1448, .partial = true};
    struct mbuf *m = frame_make(s, &f);
    struct virtio_net_hdr_v1 good;

    link_vnet_build(&good, m);
    for (int field = 0; field < 4; field++) {
        for (uint32_t v = 0; v < 65536; v += field == 3 ? 1 : 13) {
            struct virtio_net_hdr_v1 h = good;
            if (field == 0)
                h.gso_size = (uint16_t)v;
            else if (field == 1)
                h.csum_start = (uint16_t)v;
            else if (field == 2)
                h.csum_offset = (uint16_t)v;
            else
                h.gso_type = (uint8_t)v;
            if (link_vnet_apply(&h, m) == 0) {
                assert_in_range(m->m_pkt.segs, 1, LINK_TSO_MAX_SEGS);
                assert_true((uint32_t)m->m_pkt.csum_start + m->m_pkt.csum_offset + 2 <=
                            m->m_pkt.len);
            }
        }
    }
    good.gso_size = 0;
    assert_int_equal(link_vnet_apply(&good, m), -EPROTO);
    good.gso_size = 2; /* 15000 segments */
    assert_int_equal(link_vnet_apply(&good, m), -EPROTO);
    mbuf_free_chain(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(marks_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_frames_have_no_marks, setup, teardown),
        cmocka_unit_test_setup_teardown(headers_are_not_believed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
