/* SPDX-License-Identifier: BSD-2-Clause
 * Large receive offload in software: segments in a row of a burst become one, before IP sees them.
 * Private to this layer. */
#ifndef WEIR_IP_LRO_H
#define WEIR_IP_LRO_H

#include "netif.h"

/* Merge the TCP segments of a burst of frames that one superframe could have carried; the others
 * stay as they are and keep their order. Frames that are merged are counted as received here; what
 * they became has m_pkt.segs wire segments.
 * burst    n frames, owned by the caller; compacted
 * returns  how many are left
 * cost     linear in n for up to LRO_FLOWS flows at once; flows beyond are left alone */
size_t lro_merge(struct netif *nif, struct mbuf **burst, size_t n);

#define LRO_FLOWS 8

#endif
