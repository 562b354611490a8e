/* SPDX-License-Identifier: BSD-2-Clause
 * The Internet checksum. The sum is kept in memory byte order (RFC 1071 2 (B)): words are added as
 * the machine loads them, and only the folded result is stored. */
#include "checksum.h"

#include "buf/mbuf.h"
#include "wire.h"

#define BLOCK 64

/* One's complement addition: 2^64 is 1 modulo 2^16 - 1. */
static inline uint64_t add64(uint64_t a, uint64_t b)
{
    a += b;
    return a + (a < b);
}

typedef uint64_t v4u64 __attribute__((vector_size(32), aligned(1), may_alias));

/* Sum blocks of 64 bytes, and copy them if dst is not NULL: each 64-bit lane is added in its two
 * 32-bit halves, which cannot overflow in 2^31 blocks. */
static inline __attribute__((always_inline)) uint64_t sum_body(uint8_t *dst, const uint8_t *p,
                                                               size_t blocks)
{
    v4u64 lo0 = {0}, lo1 = {0}, hi0 = {0}, hi1 = {0};
    for (size_t i = 0; i < blocks; i++) {
        v4u64 a = *(const v4u64 *)(const void *)(p + i * BLOCK);
        v4u64 b = *(const v4u64 *)(const void *)(p + i * BLOCK + BLOCK / 2);
        if (dst != NULL) {
            *(v4u64 *)(void *)(dst + i * BLOCK) = a;
            *(v4u64 *)(void *)(dst + i * BLOCK + BLOCK / 2) = b;
        }
        lo0 += a & UINT32_MAX;
        hi0 += a >> 32;
        lo1 += b & UINT32_MAX;
        hi1 += b >> 32;
    }
    /* 2^32 is 1 modulo 2^16 - 1: the halves need no shift. */
    lo0 += hi0;
    lo1 += hi1;
    lo0 += lo1;
    return add64(add64(lo0[0], lo0[1]), add64(lo0[2], lo0[3]));
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint64_t sum_blocks_avx2(const uint8_t *p, size_t blocks)
{
    return sum_body(NULL, p, blocks);
}

__attribute__((target("avx2"))) static uint64_t copy_blocks_avx2(uint8_t *dst, const uint8_t *p,
                                                                 size_t blocks)
{
    return sum_body(dst, p, blocks);
}
#define USE_AVX2(blocks) ((blocks) >= 4 && __builtin_cpu_supports("avx2"))
#else
#define USE_AVX2(blocks) false
#define sum_blocks_avx2 sum_blocks_any
#define copy_blocks_avx2 copy_blocks_any
#endif

static uint64_t sum_blocks_any(const uint8_t *p, size_t blocks)
{
    return sum_body(NULL, p, blocks);
}

static uint64_t copy_blocks_any(uint8_t *dst, const uint8_t *p, size_t blocks)
{
    return sum_body(dst, p, blocks);
}

uint64_t checksum_add(const void *data, size_t n, uint64_t sum)
{
    const uint8_t *p = data;
    uint64_t word;
    if (n >= BLOCK) {
        size_t blocks = n / BLOCK;
        sum = add64(sum, USE_AVX2(blocks) ? sum_blocks_avx2(p, blocks) : sum_blocks_any(p, blocks));
        p += blocks * BLOCK;
        n -= blocks * BLOCK;
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        sum = add64(sum, word);
    }
    if (n > 0) {
        word = 0;
        memcpy(&word, p, n); /* an odd byte is padded with zero behind it */
        sum = add64(sum, word);
    }
    return sum;
}

uint16_t checksum_fold(uint64_t sum)
{
    sum = (sum & UINT32_MAX) + (sum >> 32);
    sum = (sum & UINT32_MAX) + (sum >> 32);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    return (uint16_t)sum;
}

uint64_t checksum_mbuf(const struct mbuf *m, uint32_t off, uint32_t len, uint64_t sum)
{
    bool odd = false; /* the next piece starts at an odd offset of the data */
    while (len > 0) {
        CHECK(m != NULL);
        if (off >= m->m_len) {
            off -= m->m_len;
            m = m->m_next;
            continue;
        }
        uint32_t n = MIN(len, m->m_len - off);
        if (odd)
            sum = add64(sum, __builtin_bswap16(checksum_fold(checksum_add(m->m_data + off, n, 0))));
        else
            sum = checksum_add(m->m_data + off, n, sum);
        odd ^= n & 1;
        len -= n;
        off = 0;
        m = m->m_next;
    }
    return sum;
}

uint64_t checksum_pseudo(const struct ipaddr *src, const struct ipaddr *dst, uint8_t proto,
                         uint32_t len)
{
    /* Unused bytes of IPv4 addresses are zero; the length is 16 or 32 bits by family, the sum is
     * the same. */
    uint64_t sum = add64(add64(src->q[0], src->q[1]), add64(dst->q[0], dst->q[1]));
    return add64(sum, (uint64_t)__builtin_bswap32(len) + ((uint64_t)proto << 8));
}

uint64_t checksum_copy(void *dst, const void *src, size_t n, uint64_t sum)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    size_t blocks = n / BLOCK, tail = n % BLOCK;
    if (blocks > 0)
        sum = add64(sum, USE_AVX2(blocks) ? copy_blocks_avx2(d, s, blocks)
                                          : copy_blocks_any(d, s, blocks));
    if (tail > 0) {
        memcpy(d + blocks * BLOCK, s + blocks * BLOCK, tail);
        sum = checksum_add(d + blocks * BLOCK, tail, sum);
    }
    return sum;
}
