/* SPDX-License-Identifier: BSD-2-Clause
 * The allocator of a stack that was given none: small objects of a size side by side. */
#ifndef WEIR_RUNTIME_ARENA_H
#define WEIR_RUNTIME_ARENA_H

#include "base/base.h"
#include "weir/stack.h"

struct arena;

/* NULL: no memory. */
struct arena *arena_create(void) NODISCARD;
/* Give up the creator's claim: the arena goes with its last object. */
void arena_close(struct arena *a);
/* Its functions as an allocator: memory aligned to 16 bytes; any thread. Valid as long as the
 * arena. */
struct weir_alloc arena_allocator(struct arena *a);

#endif
