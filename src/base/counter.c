/* SPDX-License-Identifier: BSD-2-Clause
 * The table of counters. */
#include "counter.h"

const struct counter_info counter_table[COUNTER_COUNT] = {
#define COUNTER(id, grp, nm, txt) [CTR_##id] = {.group = (grp), .name = (nm), .meaning = (txt)},
#include "counters.def"
#undef COUNTER
};
