/* SPDX-License-Identifier: BSD-2-Clause
 * A link with descriptors for tests: two stacks joined by a pair of the kernel's sockets, as a TAP
 * interface looks to the runtime. */
#ifndef WIRE_LINK_H
#define WIRE_LINK_H

#include "base/stack.h"

/* Addresses 10.0.0.1/24 for a, 10.0.0.2/24 for b. Fails the test if it cannot be made. */
void wire_link_join(struct weir_stack *a, struct weir_stack *b);
/* A link of s whose other end is gone. */
void wire_link_broken(struct weir_stack *s);

#endif
