/* SPDX-License-Identifier: BSD-2-Clause
 * The knobs that a result depends on, for its record. */
#ifndef WEIR_CLI_BENCH_SYSCTL_H
#define WEIR_CLI_BENCH_SYSCTL_H

#include "cli/net/net.h"
#include <jansson.h>

/* {name: value} of all that were set or differ from their defaults. NULL on the kernel (it has none
 * of ours). */
json_t *bench_sysctl_json(const struct net *n, const struct settings *asked);
/* What the flow log has done so far (net.inet.siftr.stats): {name: number}; NULL: it is off. */
json_t *bench_siftr_json(const struct net *n);

#endif
