/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving for streams, which have no records and no addresses: one decision under the lock of
 * so_rcv, the copy without it (the owner only touches the tail), the lock once more to drop what
 * was delivered, at a place that was looked up before. */
#include "so_recv.h"

ssize_t so_recv_stream(struct socket *so, struct so_uio *u, int flags, size_t copied, bool *stop)
{
    struct sockbuf *sb = &so->so_rcv;
    uint32_t off;

    lock_acquire(&sb->sb_lock);
    struct so_recv_look l = so_recv_look(so, u->left, flags, copied, true);
    const struct mbuf *m = sockbuf_head(sb, &off);
    lock_release(&sb->sb_lock);
    *stop = l.at_mark;
    if (l.n == 0)
        return 0;
    uint32_t n = so_recv_copy(m, off + l.off, u, l.n, flags);
    if (!(flags & MSG_PEEK) && n > 0) {
        struct sockbuf_cut cut;
        sockbuf_find(sb, n, &cut);
        lock_acquire(&sb->sb_lock);
        struct mbuf *done = sockbuf_cut(sb, &cut);
        lock_release(&sb->sb_lock);
        mbuf_free_chain(&done);
        so->so_rcv_taken += n;
    }
    return n == 0 ? -EIO : (ssize_t)n;
}
