/* SPDX-License-Identifier: BSD-2-Clause
 * The parts of `weir tcpdump`. */
#ifndef WEIR_CLI_TCPDUMP_H
#define WEIR_CLI_TCPDUMP_H

#include "base/base.h"
#include <stdio.h>

/* ---- tcpdump_filter.c ---- */
/* Compile an expression for a link type (DLT_*) into text for the instance, "KEY=COUNT,CODE JT JF
 * K,...". NULL: it means nothing there, *why (static until the next call) says why. malloc'ed. */
char *tcpdump_filter(const char *key, int dlt, const char *expression, const char **why);

/* ---- tcpdump_print.c ---- */
/* One line about a packet. bare: no Ethernet header; time_ns since 1970. */
void tcpdump_print(FILE *f, uint64_t time_ns, const char *iface, int direction, bool bare,
                   const uint8_t *p, uint32_t caplen, uint32_t len);

#endif
