/* SPDX-License-Identifier: BSD-2-Clause
 * The real clock and real entropy. */
#include "runtime.h"
#include <sys/random.h>
#include <time.h>

uint64_t runtime_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

int runtime_entropy(void *out, size_t n)
{
    uint8_t *p = out;

    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}
