/* SPDX-License-Identifier: BSD-2-Clause
 * Creating Weir stacks and joining them to links. */
#ifndef WEIR_STACK_PUBLIC_H
#define WEIR_STACK_PUBLIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A TCP/IP host in user space: addresses, routes, sockets. Any thread may use it. */
struct weir_stack;

/* All memory of a stack comes from one of these. alloc: size bytes, at least 16-byte aligned,
 * contents undefined, or NULL. free: gets the size that was asked for. Both must be callable
 * from any thread. */
struct weir_alloc {
    void *(*alloc)(void *ctx, size_t size);
    void (*free)(void *ctx, void *p, size_t size);
    void *ctx;
};

struct weir_config {
    const char *name;               /* shown in socket lists; NULL: the program's name */
    const struct weir_alloc *alloc; /* NULL: malloc */
    uint64_t seed;                  /* of all its randomness; 0: the kernel's entropy */
    int64_t buffer_limit;           /* bytes of packet memory; 0: 1 GiB */
};

/* A running stack with its own thread (which sleeps when idle) and a loopback interface. cfg may
 * be NULL. Returns NULL with errno ENOMEM or EAGAIN. */
struct weir_stack *weir_stack_create(const struct weir_config *cfg);

/* Stop and free. Open sockets are aborted, their descriptors answer EBADF from then on. No other
 * thread may be inside a call on this stack's sockets, or wait on a set that holds one. */
void weir_stack_destroy(struct weir_stack *s);

/* Attach a link by its specification:
 * "tap:IFNAME,addr=10.0.0.2/24,gw=10.0.0.1,addr6=fd00::2/64,mtu=1500,..." plus the emulation
 * options (see weir-link(7)). 0, or -1 with errno; *error (may be NULL) then points to a message
 * in English that is valid until this thread's next call. */
int weir_link_open(struct weir_stack *s, const char *spec, const char **error);

/* Join two stacks in this process by a memory link. Options as in a "mem" specification:
 * "mtu=9000,delay=1ms,loss=1%" apply to both directions; addresses default to 10.0.0.1/24 and
 * fd00::1/64 for a, .2 and ::2 for b (addr=, addr6= set a's, peer=, peer6= set b's). */
int weir_link_pair(struct weir_stack *a, struct weir_stack *b, const char *options,
                   const char **error);

/* sysctl by name, as text. 0, or -1 with errno: ENOENT unknown, EINVAL not of its type, ERANGE,
 * EPERM read-only. */
int weir_sysctl_get(struct weir_stack *s, const char *name, char *value, size_t size);
int weir_sysctl_set(struct weir_stack *s, const char *name, const char *value);

/* Packet memory this process holds right now (all stacks): buffers and bytes. */
void weir_buffer_usage(int64_t *mbufs, int64_t *bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
