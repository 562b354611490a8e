/* SPDX-License-Identifier: BSD-2-Clause
 * The memory link: joins two stacks of one process. Packets change hands as they are, nothing is
 * copied. */
#ifndef WEIR_LINK_LINK_MEM_H
#define WEIR_LINK_LINK_MEM_H

#include "link.h"

#define LINK_MEM_SLOTS 1024 /* frames a direction holds */
#define LINK_MEM_MTU 1500

struct link_mem_options {
    uint32_t mtu;   /* bytes of an IP packet; 0: LINK_MEM_MTU */
    uint32_t slots; /* frames a direction; a power of two, 2..65536; 0: LINK_MEM_SLOTS */
    bool l3;        /* bare IP packets: no Ethernet header, no ARP or ND */
};

/* Make both ends. Each must be told its stack with link_mem_bind before it is attached
 * (netif_create), wrapped or not. a    the allocator of everything in it; must live until both ends
 * are closed o    NULL: all defaults returns 0, -EINVAL, -ENOMEM */
int link_mem_create(const struct weir_alloc *a, const struct link_mem_options *o,
                    struct link_end ends[2]) NODISCARD;

/* Say which stack an end will be attached to. end: as link_mem_create made it, not wrapped yet;
 * before the far end sends. */
void link_mem_bind(const struct link_end *end, struct weir_stack *s);

/* Create, bind and attach both ends, with the addresses 10.0.0.1/24, fd00::1/64 for a
 * and 10.0.0.2/24, fd00::2/64 for b. Becomes the owner of each stack for a moment; none may be
 * held. 0, -EINVAL, -ENOMEM, or what netif_add_addr and owner_acquire return; on failure nothing
 * stays attached to a; an interface of b's that was made stays until b goes. */
int link_mem_pair(struct weir_stack *a, struct weir_stack *b,
                  const struct link_mem_options *o) NODISCARD;

#endif
