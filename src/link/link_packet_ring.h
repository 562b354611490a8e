/* SPDX-License-Identifier: BSD-2-Clause
 * The receive ring of a packet socket (TPACKET_V2 with virtio-net headers); private to the packet
 * link. */
#ifndef WEIR_LINK_LINK_PACKET_RING_H
#define WEIR_LINK_LINK_PACKET_RING_H

#include "base/base.h"

#include <linux/if_packet.h>
#include <linux/virtio_net.h>

struct packet_ring {
    uint8_t *base;
    size_t size; /* bytes mapped */
    uint32_t slot_size, block_size, slots_per_block, slots;
    _Atomic uint32_t next; /* slot that is filled next: moved by the owner, read by anybody */
};

/* A frame as it lies in its slot. */
struct packet_slot {
    const struct virtio_net_hdr *vnet;
    const uint8_t *data;
    uint32_t len;        /* of the frame */
    uint32_t have;       /* bytes of it in the slot */
    uint32_t status;     /* TP_STATUS_* */
    uint16_t vlan_id;    /* 0: none */
    uint8_t packet_type; /* PACKET_HOST ... PACKET_OUTGOING */
};

/* Ask fd, which is not bound yet, for a ring of about `bytes` with slots for frames of frame_len
 * (longer ones come by recvmsg, their slots say TP_STATUS_COPY), and map it. 0 or a negative
 * errno. */
int packet_ring_init(struct packet_ring *r, int fd, uint32_t frame_len, uint32_t bytes) NODISCARD;
void packet_ring_fini(struct packet_ring *r);
/* The next frame, if there is one. It stays in its slot until packet_ring_pop. By the owner. */
bool packet_ring_peek(struct packet_ring *r, struct packet_slot *out);
void packet_ring_pop(struct packet_ring *r);
/* Is there a frame? Any thread; a look at memory. */
bool packet_ring_pending(const struct packet_ring *r);

#endif
