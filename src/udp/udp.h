/* SPDX-License-Identifier: BSD-2-Clause
 * UDP (RFC 768): sockets' side and input. */
#ifndef WEIR_UDP_UDP_H
#define WEIR_UDP_UDP_H

#include "base/stack.h"

int udp_init(struct weir_stack *s) NODISCARD;
void udp_fini(struct weir_stack *s);

struct protosw;
extern const struct protosw udp_protosw;

#endif
