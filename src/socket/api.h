/* SPDX-License-Identifier: BSD-2-Clause
 * What the files of the public socket calls share. */
#ifndef WEIR_SOCKET_API_H
#define WEIR_SOCKET_API_H

#include "descriptor.h"
#include "so_private.h"
#include "weir/socket.h"

/* Begin the use of a socket's descriptor; false: errno is set (EBADF, ENOTSOCK, EIO). */
bool api_socket(int fd, struct desc_ref *r) NODISCARD;
/* The same, but the time goes on being the application's. */
bool api_socket_of(int fd, struct desc_ref *r) NODISCARD;
/* End it: what the public call returns, -1 with errno for a negative error. */
int api_result(struct desc_ref *r, int error);
/* The destination of a datagram. 0, -EINVAL, -EAFNOSUPPORT, -ENETUNREACH. */
int api_destination(struct socket *so, const struct sockaddr *sa, socklen_t len, struct ipaddr *a,
                    uint16_t *port) NODISCARD;

/* As on Linux an unbound datagram socket gets its port even by a send or connect that fails. Owner.
 */
void api_autobind(struct socket *so);

#endif
