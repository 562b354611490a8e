/* SPDX-License-Identifier: BSD-2-Clause
 * A cursor over the caller's memory. */
#include "so_private.h"
#include <limits.h>

/* What the kernel takes at most in a call. */
#define UIO_MAX_BYTES ((size_t)0x7ffff000)

int so_uio_init(struct so_uio *u, const struct iovec *iov, size_t count)
{
    *u = (struct so_uio){.iov = iov, .count = count};
    if (count > IOV_MAX)
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if ((ssize_t)iov[i].iov_len < 0)
            return -EINVAL;
        u->left += MIN(iov[i].iov_len, UIO_MAX_BYTES - u->left);
    }
    return 0;
}

/* The next piece of at most n bytes; steps over empty ones. */
static uint8_t *piece(struct so_uio *u, size_t n, size_t *len)
{
    while (u->off == u->iov->iov_len) {
        CHECK(u->count > 1);
        u->iov++;
        u->count--;
        u->off = 0;
    }
    *len = MIN(n, u->iov->iov_len - u->off);
    return (uint8_t *)u->iov->iov_base + u->off;
}

static void advance(struct so_uio *u, size_t n)
{
    u->off += n;
    u->left -= n;
}

void so_uio_put(struct so_uio *u, const void *src, size_t n)
{
    const uint8_t *from = src;
    size_t k;

    CHECK(n <= u->left);
    for (; n; n -= k, from += k) {
        uint8_t *to = piece(u, n, &k);
        memcpy(to, from, k);
        advance(u, k);
    }
}

void so_uio_get(struct so_uio *u, void *dst, size_t n)
{
    uint8_t *to = dst;
    size_t k;

    CHECK(n <= u->left);
    for (; n; n -= k, to += k) {
        const uint8_t *from = piece(u, n, &k);
        memcpy(to, from, k);
        advance(u, k);
    }
}

void so_uio_skip(struct so_uio *u, size_t n)
{
    size_t k;

    CHECK(n <= u->left);
    for (; n; n -= k) {
        (void)piece(u, n, &k);
        advance(u, k);
    }
}
