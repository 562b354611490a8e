/* SPDX-License-Identifier: BSD-2-Clause
 * TAP interfaces: Ethernet frames to and from the kernel, superframes with virtio-net headers. */
#ifndef WEIR_LINK_LINK_TAP_H
#define WEIR_LINK_LINK_TAP_H

#include "link.h"

struct link_tap_config {
    const char *ifname;
    uint32_t mtu;       /* 0: the interface's */
    unsigned queues;    /* 0: one */
    const uint8_t *mac; /* of Weir's end; NULL: random and locally administered */
};

/* Open an existing TAP interface, or make one (which is brought up, and vanishes with the process).
 * end      filled on success; owned by the caller
 * err      a message in English on failure
 * returns  0; -EPERM no privilege, -EBUSY in use, -ENODEV no TAP device, -EINVAL, -ENOMEM or what
 *          the kernel said */
int link_tap_open(struct weir_stack *s, const struct link_tap_config *cfg, struct link_end *end,
                  char *err, size_t err_size) NODISCARD;

#endif
