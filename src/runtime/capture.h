/* SPDX-License-Identifier: BSD-2-Clause
 * A capture for one client of the control socket: taps on all stacks it asks for, whose frames come
 * out as pcapng.
 *
 * The request is {"argv":["tcpdump","KEY=VALUE",...]} with the keys
 *     snaplen=BYTES buffer=BYTES interface=NAME stack=NAME ethernet=PROGRAM raw=PROGRAM
 * A PROGRAM is a filter for links of that kind, "COUNT,CODE JT JF K,CODE JT JF K,..." in decimal;
 * "0" lets nothing pass, none lets everything. An answer of status 0 is followed by pcapng until
 * the client shuts its side down; interface statistics end it.
 *
 * Only the server's thread uses a capture. Stacks may come and go meanwhile. */
#ifndef WEIR_RUNTIME_CAPTURE_H
#define WEIR_RUNTIME_CAPTURE_H

#include "base/base.h"
#include <stdio.h>

struct capture_stream;

#define CAPTURE_MAX_TAPS 256 /* stacks that one capture sees in its life */
#define CAPTURE_BUFFER (4u << 20)

/* argv[0] is "tcpdump". NULL: *status (1 or 2) with a message on err. */
struct capture_stream *capture_open(int argc, const char *const *argv, FILE *err,
                                    int *status) NODISCARD;
/* Tap those of the stacks that are wanted and not tapped yet. What holds off their destruction is
 * held by the caller. Takes and leaves ownership. False, once: a stack has as many taps as it may
 * have, or there is no memory; the message is on err. */
bool capture_sync(struct capture_stream *c, struct weir_stack *const *stacks, size_t count,
                  FILE *err);
/* Take all taps off; the same is held. */
void capture_detach(struct capture_stream *c);
/* Append what has been captured, up to about `max` bytes. False: there was nothing. */
bool capture_write(struct capture_stream *c, FILE *out, size_t max);
/* The end of the stream: to be written when capture_write has nothing any more. */
void capture_finish(struct capture_stream *c, FILE *out);
/* Detached before. NULL is allowed. */
void capture_close(struct capture_stream *c);

#endif
