/* SPDX-License-Identifier: BSD-2-Clause
 * Small definitions that every layer uses: attributes, checks, integer helpers. */
#ifndef WEIR_BASE_BASE_H
#define WEIR_BASE_BASE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define UNUSED __attribute__((unused))
#define CACHE_LINE 64
#define CACHE_ALIGNED _Alignas(CACHE_LINE)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define NELEM(a) (sizeof(a) / sizeof((a)[0]))
/* Both arguments are evaluated once, so these are no constant expressions. */
#define MIN(a, b) PICK(<, a, b, __COUNTER__)
#define MAX(a, b) PICK(>, a, b, __COUNTER__)
#define PICK(op, a, b, n) PICK_NAMED(op, a, b, n)
#define PICK_NAMED(op, a, b, n)                                                                    \
    __extension__({                                                                                \
        __typeof__(1 ? (a) : (b)) pick_a##n = (a), pick_b##n = (b);                                \
        pick_a##n op pick_b##n ? pick_a##n : pick_b##n;                                            \
    })
#define CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
/* "Never": the deadline of something that is not armed. */
#define TIME_NEVER UINT64_MAX

struct weir_stack;

/* Our own bugs, never bytes from a peer. On failure base_panic is called and does not return. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (unlikely(!(cond)))                                                                     \
            base_panic(__FILE__, __LINE__, #cond);                                                 \
    } while (0)

/* What a failed CHECK does. The runtime replaces the hook by one that prints; it must not return.
 * Until then, and if it does return, the process traps. */
extern void (*base_panic_hook)(const char *file, int line, const char *what);
_Noreturn void base_panic(const char *file, int line, const char *what);

/* Loads and stores of fields that one thread writes and others only look at (statistics, knobs). */
#define LOAD_RELAXED(p) atomic_load_explicit((p), memory_order_relaxed)
#define STORE_RELAXED(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

#if defined(__x86_64__) || defined(__i386__)
#define CPU_PAUSE() __builtin_ia32_pause()
#else
#define CPU_PAUSE() atomic_signal_fence(memory_order_seq_cst)
#endif

#endif
