/* SPDX-License-Identifier: BSD-2-Clause
 * Asking a running instance through its control socket. */
#ifndef WEIR_CLI_CONTROL_CLIENT_H
#define WEIR_CLI_CONTROL_CLIENT_H

#include "base/base.h"
#include <sys/types.h>

#define CONTROL_PATH_MAX 512

/* The socket of the only instance of this user; false, with a message of `command`, when there is
 * none or more than one. */
bool control_find_only(const char *command, char *path, size_t size) NODISCARD;
/* The socket of the instance that is process `pid`; false with errno: nobody answers there. */
bool control_find_pid(pid_t pid, char *path, size_t size) NODISCARD;
/* One command, NULL at its end, over a connection of its own. The status of the answer (0 good) and
 * its malloc'ed texts, or a negative errno: the instance is gone. The texts may be NULL then. */
int control_ask(const char *path, const char *const *argv, char **out, char **err) NODISCARD;
/* The same for a command that a stream follows: the descriptor to read it from (shut down its
 * writing side to end it), or a negative errno; *err: what the instance said, malloc'ed, or NULL.
 */
int control_stream(const char *path, const char *const *argv, char **err) NODISCARD;

#endif
