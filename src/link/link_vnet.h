/* SPDX-License-Identifier: BSD-2-Clause
 * The virtio-net header: superframe and checksum marks between Weir and the kernel. */
#ifndef WEIR_LINK_LINK_VNET_H
#define WEIR_LINK_LINK_VNET_H

#include "buf/mbuf.h"

#include <linux/virtio_net.h>

#define LINK_VNET_HEADER 12
_Static_assert(sizeof(struct virtio_net_hdr_v1) == LINK_VNET_HEADER, "the v1 layout");

/* The header for a frame that is sent: superframe and checksum marks of m. */
void link_vnet_build(struct virtio_net_hdr_v1 *h, const struct mbuf *m);

/* Set m's marks from the header it was received with. The header describes what a remote sender may
 * have chosen, so nothing in it is believed that the frame does not bear out.
 * returns  0; -EPROTO: the frame must be dropped (still owned by the caller) */
int link_vnet_apply(const struct virtio_net_hdr_v1 *h, struct mbuf *m) NODISCARD;

#endif
