/* SPDX-License-Identifier: BSD-2-Clause
 * The receive ring of a packet socket.
 *
 * TPACKET_V2: the kernel fills slot after slot, each visible at once, so that a busy-polling owner
 * sees a frame without a system call; blocks of TPACKET_V3 show theirs only when they are full or a
 * timer ends, a millisecond and more later. */
#include "link_packet_ring.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK_SIZE (128u << 10)
#define SLOT_MAX 16384u /* larger frames are superframes */
/* What the kernel puts before a frame: its header, the sender's address, the virtio-net header, and
 * what aligns the IP header. */
#define SLOT_OVERHEAD (TPACKET2_HDRLEN + 16 + TPACKET_ALIGNMENT + sizeof(struct virtio_net_hdr))

int packet_ring_init(struct packet_ring *r, int fd, uint32_t frame_len, uint32_t bytes)
{
    int version = TPACKET_V2;
    uint32_t slot = MAX(MIN((uint32_t)TPACKET_ALIGN(frame_len + SLOT_OVERHEAD), SLOT_MAX), 2048);
    uint32_t per_block = BLOCK_SIZE / slot, blocks = MAX(bytes / BLOCK_SIZE, 1);
    struct tpacket_req req = {.tp_block_size = BLOCK_SIZE,
                              .tp_block_nr = blocks,
                              .tp_frame_size = slot,
                              .tp_frame_nr = blocks * per_block};

    *r = (struct packet_ring){0};
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)) < 0)
        return -errno;
    size_t size = (size_t)BLOCK_SIZE * blocks;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    (void)madvise(p, size, MADV_DONTFORK); /* a child could only spoil it */
    r->base = p;
    r->size = size;
    r->slot_size = slot;
    r->block_size = BLOCK_SIZE;
    r->slots_per_block = per_block;
    r->slots = req.tp_frame_nr;
    return 0;
}

void packet_ring_fini(struct packet_ring *r)
{
    if (r->base)
        munmap(r->base, r->size);
    r->base = NULL;
}

static uint8_t *slot_at(const struct packet_ring *r, uint32_t i)
{
    return r->base + (size_t)(i / r->slots_per_block) * r->block_size +
           (size_t)(i % r->slots_per_block) * r->slot_size;
}

static _Atomic uint32_t *status_of(uint8_t *slot)
{
    _Static_assert(offsetof(struct tpacket2_hdr, tp_status) == 0, "the status comes first");
    return (_Atomic uint32_t *)(void *)slot;
}

bool packet_ring_pending(const struct packet_ring *r)
{
    uint8_t *slot = slot_at(r, LOAD_RELAXED(&r->next));

    return LOAD_RELAXED(status_of(slot)) & TP_STATUS_USER;
}

bool packet_ring_peek(struct packet_ring *r, struct packet_slot *out)
{
    uint32_t next = LOAD_RELAXED(&r->next);
    uint8_t *slot = slot_at(r, next);
    uint32_t status = atomic_load_explicit(status_of(slot), memory_order_acquire);

    if (!(status & TP_STATUS_USER))
        return false;
    const struct tpacket2_hdr *h = (const void *)slot;
    const struct sockaddr_ll *from =
        (const void *)(slot + TPACKET_ALIGN(sizeof(struct tpacket2_hdr)));
    CHECK(h->tp_mac >= sizeof(struct virtio_net_hdr) && h->tp_mac + h->tp_snaplen <= r->slot_size);
    *out = (struct packet_slot){
        .vnet = (const void *)(slot + h->tp_mac - sizeof(struct virtio_net_hdr)),
        .data = slot + h->tp_mac,
        .len = h->tp_len,
        .have = h->tp_snaplen,
        .status = status,
        .vlan_id = status & TP_STATUS_VLAN_VALID ? h->tp_vlan_tci & 0x0fff : 0,
        .packet_type = from->sll_pkttype,
    };
    /* The next frame's header and first bytes, while this one is copied. */
    __builtin_prefetch(slot_at(r, next + 1 == r->slots ? 0 : next + 1));
    return true;
}

void packet_ring_pop(struct packet_ring *r)
{
    uint32_t next = LOAD_RELAXED(&r->next);

    atomic_store_explicit(status_of(slot_at(r, next)), TP_STATUS_KERNEL, memory_order_release);
    STORE_RELAXED(&r->next, next + 1 == r->slots ? 0 : next + 1);
}
