/* SPDX-License-Identifier: BSD-2-Clause
 * A link's end as drivers hand it out and wrappers (emulator, capture) pass it on. */
#ifndef WEIR_LINK_LINK_H
#define WEIR_LINK_LINK_H

#include "ip/netif.h"

/* What a driver makes and netif_create takes over: ops->close(link) frees it. A wrapper takes an
 * end over and puts itself into the same struct. */
struct link_end {
    const struct netif_ops *ops;
    void *link;
    uint32_t caps; /* NETIF_CAP_* */
    uint32_t mtu;  /* IP packet, bytes */
    uint8_t mac[6];
};

/* Close an end that no interface has taken over; harmless on one that is closed or zeroed. */
static inline void link_end_close(struct link_end *e)
{
    if (e->link && e->ops->close)
        e->ops->close(e->link);
    e->link = NULL;
}

/* The optional calls of an end, for wrappers: what their absence means. */
static inline uint64_t link_end_next_deadline(const struct link_end *e)
{
    return e->ops->next_deadline ? e->ops->next_deadline(e->link) : TIME_NEVER;
}

static inline int link_end_fd(const struct link_end *e)
{
    return e->ops->fd ? e->ops->fd(e->link) : -1;
}

static inline bool link_end_pending(const struct link_end *e)
{
    return e->ops->pending && e->ops->pending(e->link);
}

#endif
