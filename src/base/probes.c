/* SPDX-License-Identifier: BSD-2-Clause
 * The words that tracers raise, one for each probe. The probes name them in assembly, which no
 * compiler sees. */
#include "probes.h"

#ifdef WEIR_PROBES
#ifdef __clang__
#define KEEP used
#else
#define KEEP used, externally_visible
#endif
#define PROBE(name, arguments, when)                                                               \
    volatile unsigned short weir_##name##_semaphore __attribute__((section(".probes"), KEEP));
#include "probes.def"
#undef PROBE
#endif
