/* SPDX-License-Identifier: BSD-2-Clause
 * Options of a connection that outlive it. */
#ifndef WEIR_TCP_TCP_SOCKOPT_H
#define WEIR_TCP_TCP_SOCKOPT_H

#include "tcp_var.h"

/* What the application set on `from` holds for `to` as well. */
void tcp_sockopt_copy(const struct tcpcb *from, struct tcpcb *to);

#endif
