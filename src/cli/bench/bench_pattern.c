/* SPDX-License-Identifier: BSD-2-Clause
 * Payload that can be checked: a byte's value follows from its place in the stream and the run's
 * seed. */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>

char *pattern_create(uint64_t seed, size_t longest)
{
    char *pattern = malloc(PATTERN_PERIOD + longest);
    uint64_t x = seed | 1;
    for (size_t i = 0; pattern != NULL && i < PATTERN_PERIOD; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        pattern[i] = (char)(x >> 32);
    }
    for (size_t i = 0; pattern != NULL && i < longest; i++)
        pattern[PATTERN_PERIOD + i] = pattern[i];
    return pattern;
}

size_t pattern_differs(const char *pattern, const char *buf, size_t len, uint64_t place)
{
    const char *want = pattern_at(pattern, place);
    size_t i = 0;
    if (memcmp(want, buf, len) == 0)
        return len;
    while (i < len && want[i] == buf[i])
        i++;
    return i;
}

bool pattern_check(struct engine *e, const char *buf, size_t len, uint64_t place)
{
    size_t i = pattern_differs(e->pattern, buf, len, place);
    if (i == len)
        return true;
    bool udp = e->p.test == UDP_STREAM;
    run_fail(e->run, "verify: byte %" PRIu64 " of %s %" PRIu64 " is %#x, not %#x",
             udp ? (uint64_t)i : place + i, udp ? "the payload of datagram" : "a stream, run",
             udp ? place : e->p.cookie, (uint8_t)buf[i], (uint8_t)pattern_at(e->pattern, place)[i]);
    return false;
}
