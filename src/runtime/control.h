/* SPDX-License-Identifier: BSD-2-Clause
 * The control socket: through it `weir sysctl`, `netstat` and `tcpdrop` look into a running
 * process.
 *
 * A server is a thread of its own behind a Unix stream socket that only its owner may open. A
 * request is one line of JSON, {"argv":["sysctl","-a"]}; the answer is one line,
 * {"status":0,"out":"...","err":"..."}. */
#ifndef WEIR_RUNTIME_CONTROL_H
#define WEIR_RUNTIME_CONTROL_H

#include "base/base.h"

struct control;

#define CONTROL_MAX_STACKS 256
#define CONTROL_MAX_CLIENTS 16    /* one more takes the place of the one that was idle longest */
#define CONTROL_MAX_STREAMS 8     /* clients that capture (capture.h) */
#define CONTROL_MAX_REQUEST 65536 /* bytes of a request line */
#define CONTROL_MAX_ARGS 64
#define CONTROL_IDLE_S 10 /* a client that neither asks nor reads for this long is cut off */

/* Show a stack on the process's own control socket; the first one opens it
 * ($XDG_RUNTIME_DIR/weir/PID.sock, else /tmp/weir-UID/PID.sock; the directory is made 0700, sockets
 * of processes that are gone are removed). Called by weir_stack_create when the stack is ready. A
 * process without a control socket works all the same, so a failure is only reported: 0, or a
 * negative errno. In a process that was forked, the first call opens a socket of its own. */
int control_start(struct weir_stack *s);

/* Take the stack off again; waits for a command that is running on it. The last one closes the
 * socket and removes it. Called by weir_stack_destroy first thing, without ownership. Harmless for
 * a stack that was never started. */
void control_stop(struct weir_stack *s);

/* A server on an explicit path that shows one stack. An old socket at the path is replaced;
 * anything else there is not (-EEXIST). NULL: *error (negative errno) says why. The stack must
 * outlive it. */
struct control *control_open(const char *path, struct weir_stack *only, int *error) NODISCARD;
/* Stops the thread, waits for a running command, removes the socket. NULL is allowed. */
void control_close(struct control *c);

/* The path of the process's own socket; NULL when there is none. Valid until the last control_stop.
 */
const char *control_path(void);

/* Run one command on stacks, as the server does: argv[0] is "sysctl", "netstat", "tcpdrop" or
 * "snapshot". Takes
 * and leaves ownership of each stack in turn. *out and *err are malloc'ed text, owned by the caller
 * (never NULL on 0). Returns 0 and *status (0 good, 1 failed, 2 usage), or -ENOMEM. */
int control_run(struct weir_stack *const *stacks, size_t count, int argc, const char *const *argv,
                int *status, char **out, char **err) NODISCARD;

/* The directory of control sockets of this user, made if `create`: 0 or a negative errno. */
int control_directory(char *path, size_t size, bool create) NODISCARD;

#endif
