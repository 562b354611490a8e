/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving without the lock of so_rcv: the owner appends, the reader that holds so_rcv_serial
 * takes, and what they agree on is the counts of sockbuf.c. That serial lock is the readers' own:
 * one reader never finds it held. Only urgent data, which the owner announces with the lock, are
 * looked at with it. */
#include "so_recv.h"

ssize_t so_recv_lockfree(struct socket *so, struct so_uio *u, int flags, size_t copied, bool *stop)
{
    struct sockbuf *sb = &so->so_rcv;
    struct so_recv_look l = so_recv_look(so, u->left, flags, copied, false);
    uint32_t off;

    *stop = l.at_mark;
    if (l.n == 0)
        return 0;
    const struct mbuf *m = sockbuf_head(sb, &off);
    uint32_t n = so_recv_copy(m, off + l.off, u, l.n, flags);
    if (!(flags & MSG_PEEK) && n > 0) {
        struct mbuf *done = sockbuf_unlink(sb, n);
        mbuf_free_chain(&done);
        so->so_rcv_taken += n;
    }
    return n == 0 ? -EIO : (ssize_t)n;
}
