/* SPDX-License-Identifier: BSD-2-Clause
 * Reading and writing network byte order at any alignment. */
#ifndef WEIR_WIRE_WIRE_H
#define WEIR_WIRE_WIRE_H

#include "base/base.h"

static inline uint16_t get_be16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t get_be32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline void put_be16(void *p, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(p, &v, 2);
}
static inline void put_be32(void *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "get_be and put_be swap");

#endif
