/* SPDX-License-Identifier: BSD-2-Clause
 * The adapter's link: bare IP packets between a script and the stack, stamped with virtual time. */
#ifndef WEIR_PACKETDRILL_PD_LINK_H
#define WEIR_PACKETDRILL_PD_LINK_H

#include "ip/netif.h"
#include "virtual_clock.h"

struct pd_link;

/* Attach a link to the clock's stack (owned by the caller). Addresses: local with prefixlen,
 * everything else is reached through the link. NULL: no memory or a bad address. */
struct pd_link *pd_link_create(struct pd_clock *c, const struct ipaddr *local, unsigned prefixlen,
                               uint32_t mtu);
/* Hand one packet to the stack: 0 or a negative errno. */
int pd_link_inject(struct pd_link *l, const void *packet, size_t len);
/* The oldest packet that the stack has sent: copied into buf (room *len), *len its length,
 * *when_ns of emission. False: none. */
bool pd_link_take(struct pd_link *l, void *buf, size_t *len, uint64_t *when_ns);

#endif
