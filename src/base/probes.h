/* SPDX-License-Identifier: BSD-2-Clause
 * USDT probes of provider "weir" for bpftrace and others: listed in probes.def.
 *
 * WEIR_PROBEn(name, n arguments) tests a word that tracers raise, so that arguments are not even
 * looked at when nobody traces. Without sys/sdt.h at build time there are none. */
#ifndef WEIR_BASE_PROBES_H
#define WEIR_BASE_PROBES_H

#include "base.h"

#ifdef WEIR_PROBES

#define PROBE(name, arguments, when) extern volatile unsigned short weir_##name##_semaphore;
#include "probes.def"
#undef PROBE

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#define WEIR_PROBE_IF(name, call)                                                                  \
    do {                                                                                           \
        if (unlikely(weir_##name##_semaphore))                                                     \
            call;                                                                                  \
    } while (0)
#define WEIR_PROBE1(n, a) WEIR_PROBE_IF(n, STAP_PROBE1(weir, n, a))
#define WEIR_PROBE2(n, a, b) WEIR_PROBE_IF(n, STAP_PROBE2(weir, n, a, b))
#define WEIR_PROBE3(n, a, b, c) WEIR_PROBE_IF(n, STAP_PROBE3(weir, n, a, b, c))
#define WEIR_PROBE4(n, a, b, c, d) WEIR_PROBE_IF(n, STAP_PROBE4(weir, n, a, b, c, d))
#define WEIR_PROBE6(n, a, b, c, d, e, f) WEIR_PROBE_IF(n, STAP_PROBE6(weir, n, a, b, c, d, e, f))

#else

#define WEIR_PROBE1(n, a) ((void)0)
#define WEIR_PROBE2(n, a, b) ((void)0)
#define WEIR_PROBE3(n, a, b, c) ((void)0)
#define WEIR_PROBE4(n, a, b, c, d) ((void)0)
#define WEIR_PROBE6(n, a, b, c, d, e, f) ((void)0)

#endif
#endif
