/* SPDX-License-Identifier: BSD-2-Clause
 * The Internet checksum (RFC 1071). */
#ifndef WEIR_WIRE_CHECKSUM_H
#define WEIR_WIRE_CHECKSUM_H

#include "addr.h"
#include "base/base.h"

struct mbuf;

/* One's complement sum of n bytes added to `sum` (unfolded, in memory byte order); the bytes start
 * at an even offset of the data that is summed. */
uint64_t checksum_add(const void *p, size_t n, uint64_t sum);
/* Fold to 16 bits, not complemented; as it is stored in memory order (assign with memcpy). */
uint16_t checksum_fold(uint64_t sum);
/* Sum over bytes [off, off+len) of a chain, whatever its pieces' alignment. */
uint64_t checksum_mbuf(const struct mbuf *m, uint32_t off, uint32_t len, uint64_t sum);
/* Sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1). */
uint64_t checksum_pseudo(const struct ipaddr *src, const struct ipaddr *dst, uint8_t proto,
                         uint32_t len);
/* Copy and sum in one pass. */
uint64_t checksum_copy(void *dst, const void *src, size_t n, uint64_t sum);

#endif
