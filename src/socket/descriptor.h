/* SPDX-License-Identifier: BSD-2-Clause
 * The process's table of descriptors: small integers that name sockets and epoll sets of all
 * stacks. */
#ifndef WEIR_SOCKET_DESCRIPTOR_H
#define WEIR_SOCKET_DESCRIPTOR_H

#include "base/base.h"
#include "weir/stack.h"

struct socket;
struct poll_set;

/* A descriptor is index | generation << DESC_INDEX_BITS; the generation is never 0, so descriptors
 * are not below 1 << 20, and one that was closed does not name its successor soon. */
#define DESC_INDEX_BITS 20
#define DESC_MAX (1u << DESC_INDEX_BITS)
#define DESC_GENERATIONS 2048u

/* DESC_FOREIGN: of the process that this one was forked from: calls fail with EIO. */
enum desc_kind { DESC_NONE, DESC_SOCKET, DESC_SET, DESC_FOREIGN };

/* One use of a descriptor: keeps what it names alive though it be closed meanwhile. */
struct desc_ref {
    union {
        struct socket *so;
        struct poll_set *set;
        void *obj;
    };
    uint32_t index;
    uint8_t kind; /* enum desc_kind */
};

/* Once a process, before the first descriptor; more calls do nothing. The allocator is kept: it
 * must live on. 0, -ENOMEM. */
int desc_table_init(const struct weir_alloc *a);
/* Give the memory back; all descriptors must be closed. For tests. */
void desc_table_fini(void);
const struct weir_alloc *desc_alloc(void);
/* Around fork, so that the child finds no lock held by a thread that it does not have. In the
 * child, which has no other thread yet, every descriptor that is open becomes foreign. */
void desc_fork_prepare(void);
void desc_fork_done(bool in_child);

/* A descriptor in the making: its index, -EMFILE (DESC_MAX are open), -ENOMEM. */
int desc_reserve(void) NODISCARD;
void desc_cancel(int index);
/* Name obj, whose one reference the table takes over. Returns the descriptor. */
int desc_commit(int index, enum desc_kind kind, void *obj);

/* False: it is not open (EBADF). Any thread; one atomic operation, as desc_put. */
bool desc_get(int fd, struct desc_ref *r) NODISCARD;
/* Ends the use. The last one of a closed descriptor lets go of the object: true. */
bool desc_put(struct desc_ref *r);
/* Take the descriptor away while the caller uses it (r from desc_get): new uses fail. False:
 * another thread did. */
bool desc_close(const struct desc_ref *r);
/* The object goes away with its stack, whoever uses it: nothing is called on it any more. */
void desc_revoke(int fd);

#endif
