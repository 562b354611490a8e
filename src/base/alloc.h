/* SPDX-License-Identifier: BSD-2-Clause
 * The allocator seam: all memory of a stack comes through one of these, handed in at creation. */
#ifndef WEIR_BASE_ALLOC_H
#define WEIR_BASE_ALLOC_H

#include "base.h"
#include "weir/stack.h" /* struct weir_alloc */

/* Zeroed memory of `size` bytes, aligned for any type (64 bytes if size >= 64); NULL when there is
 * none. Owned by the caller, returned with alloc_free and the same size. */
void *alloc_zero(const struct weir_alloc *a, size_t size) NODISCARD;
/* p may be NULL. */
void alloc_free(const struct weir_alloc *a, void *p, size_t size);

#endif
