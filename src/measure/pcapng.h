/* SPDX-License-Identifier: BSD-2-Clause
 * Blocks of the pcapng format, written by hand: libpcap writes the older format only. In the byte
 * order of the machine, as the format allows; times in nanoseconds since 1970. */
#ifndef WEIR_MEASURE_PCAPNG_H
#define WEIR_MEASURE_PCAPNG_H

#include "base/base.h"
#include <stdio.h>

#define PCAPNG_SECTION UINT32_C(0x0a0d0d0a)
#define PCAPNG_INTERFACE UINT32_C(1)
#define PCAPNG_STATISTICS UINT32_C(5)
#define PCAPNG_PACKET UINT32_C(6)
#define PCAPNG_BLOCK_MAX (1u << 20) /* no block of ours is larger */

#define PCAPNG_LINK_ETHERNET 1
#define PCAPNG_LINK_RAW 101 /* bare IPv4 or IPv6 */

enum pcapng_direction { PCAPNG_IN = 1, PCAPNG_OUT = 2 };

void pcapng_put_section(FILE *f, const char *application);
/* Interfaces are numbered in the order in which they are put. */
void pcapng_put_interface(FILE *f, const char *name, uint16_t link, uint32_t snaplen);
void pcapng_put_packet(FILE *f, uint32_t iface, uint64_t time_ns, enum pcapng_direction dir,
                       const void *data, uint32_t caplen, uint32_t len);
/* received: all that passed the filter; dropped: those that are missing. */
void pcapng_put_statistics(FILE *f, uint32_t iface, uint64_t start_ns, uint64_t end_ns,
                           uint64_t received, uint64_t dropped);

#endif
