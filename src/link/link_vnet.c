/* SPDX-License-Identifier: BSD-2-Clause
 * The virtio-net header: superframe and checksum marks between Weir and the kernel. */
#include "link_vnet.h"

#include "link_frame.h"
#include "wire/tcp.h"

#include <netinet/in.h>

void link_vnet_build(struct virtio_net_hdr_v1 *h, const struct mbuf *m)
{
    const struct mbuf_pkt *pkt = &m->m_pkt;
    uint8_t th[TCP_HEADER_LEN];

    memset(h, 0, sizeof(*h));
    if (pkt->csum_flags & CSUM_L4_PARTIAL) {
        h->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        h->csum_start = pkt->csum_start;
        h->csum_offset = pkt->csum_offset;
    }
    if (!(pkt->csum_flags & (CSUM_TSO4 | CSUM_TSO6)) || pkt->tso_segsz == 0)
        return;
    mbuf_copy_out(m, pkt->csum_start, sizeof(th), th);
    h->gso_type = pkt->csum_flags & CSUM_TSO4 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
    if (th[13] & TH_CWR)
        h->gso_type |= VIRTIO_NET_HDR_GSO_ECN;
    h->gso_size = pkt->tso_segsz;
    h->hdr_len = (uint16_t)(pkt->csum_start + (th[12] >> 4) * 4u);
}

/* The superframe marks. */
static int apply_gso(const struct virtio_net_hdr_v1 *h, struct mbuf *m)
{
    uint8_t type = h->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
    uint8_t headers[LINK_FRAME_HEADERS];
    struct link_frame f;

    if (type == VIRTIO_NET_HDR_GSO_NONE)
        return 0;
    int family = type == VIRTIO_NET_HDR_GSO_TCPV4   ? AF_INET
                 : type == VIRTIO_NET_HDR_GSO_TCPV6 ? AF_INET6
                                                    : AF_UNSPEC;
    if (family == AF_UNSPEC || h->gso_size == 0)
        return -EPROTO;
    uint32_t have = MIN(m->m_pkt.len, (uint32_t)sizeof(headers));
    mbuf_copy_out(m, 0, have, headers);
    link_frame_parse(headers, have, m->m_pkt.len, false, &f);
    if (f.family != family || f.proto != IPPROTO_TCP)
        return -EPROTO;
    uint32_t segs = (f.end - f.payload + h->gso_size - 1u) / h->gso_size;
    if (segs > LINK_TSO_MAX_SEGS)
        return -EPROTO;
    if (segs > 1) {
        m->m_pkt.tso_segsz = h->gso_size;
        m->m_pkt.segs = (uint16_t)segs;
    }
    return 0;
}

int link_vnet_apply(const struct virtio_net_hdr_v1 *h, struct mbuf *m)
{
    struct mbuf_pkt *pkt = &m->m_pkt;

    pkt->csum_flags = 0;
    pkt->tso_segsz = 0;
    pkt->segs = 1;
    if (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        uint32_t at = (uint32_t)h->csum_start + h->csum_offset;
        if (h->csum_start < LINK_ETHER_HEADER || at + 2 > pkt->len)
            return -EPROTO;
        /* The frame never was on a wire: nothing can have spoiled it. What reads it off the stack
         * (a capture, the emulator) still has to complete the sum. */
        pkt->csum_flags = CSUM_L4_PARTIAL | CSUM_L4_VALID;
        pkt->csum_start = h->csum_start;
        pkt->csum_offset = h->csum_offset;
    } else if (h->flags & VIRTIO_NET_HDR_F_DATA_VALID) {
        pkt->csum_flags = CSUM_L4_VALID;
    }
    return apply_gso(h, m);
}
