/* SPDX-License-Identifier: BSD-2-Clause
 * Opening links from their specifications and attaching them to stacks. */
#ifndef WEIR_LINK_LINK_OPEN_H
#define WEIR_LINK_LINK_OPEN_H

#include "link.h"
#include "link_spec.h"

/* Open the link that a specification names ("tap:IFNAME,addr=...": see link_spec.h), wrap it with
 * the emulator and the capture it asks for, attach it to s, add its addresses and default routes.
 * err      gets a message in English when the call fails, else "" (always terminated)
 * returns  0; -EINVAL a bad specification; -ENOTSUP a kind that needs a partner (mem); -ENOMEM;
 *          -EEXIST an address that s holds already; what the driver met (-EPERM, -EBUSY, -ENODEV)
 * locks    none may be held: becomes the owner of s for a moment */
int link_open(struct weir_stack *s, const char *spec, char *err, size_t err_size) NODISCARD;

/* Join two stacks of this process by a memory link.
 * options  those of a specification ("mtu=9000,delay=1ms"), with addr=, addr6= for a and peer=,
 *          peer6= for b; the default is 10.0.0.1/24 and fd00::1/64 for a, .2 and ::2 for b. NULL or
 *          "" takes all defaults. Emulation applies to each direction once, on reception. A capture
 *          file shows what a sends and receives.
 * returns  and locks: as link_open */
int link_open_pair(struct weir_stack *a, struct weir_stack *b, const char *options, char *err,
                   size_t err_size) NODISCARD;

/* Wrap and attach an end that is open already, with what a parsed specification asks for.
 * end      consumed, on failure too
 * peer     add the specification's peer addresses, not its own ones
 * returns  and locks: as link_open */
int link_attach(struct weir_stack *s, struct link_end *end, const struct link_spec *spec, bool peer,
                char *err, size_t err_size) NODISCARD;

#endif
