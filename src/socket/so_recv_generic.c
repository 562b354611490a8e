/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving as it was before stream receive: for every mbuf the lock of so_rcv is dropped, the mbuf
 * copied out, the lock taken again, the mbuf unlinked and the sums adjusted.
 *
 * That lock traffic is the design. All else is as good as it can be: no mbuf is freed and no one is
 * woken under the lock, what was unlinked is freed together, and the protocol is told once a call.
 */
#include "so_recv.h"

ssize_t so_recv_generic(struct socket *so, struct so_uio *u, int flags, size_t copied, bool *stop)
{
    struct sockbuf *sb = &so->so_rcv;
    bool peek = flags & MSG_PEEK, lost = false;
    struct mbuf *done = NULL, **last = &done;
    uint32_t off, sum = 0;

    lock_acquire(&sb->sb_lock);
    struct so_recv_look l = so_recv_look(so, u->left, flags, copied, true);
    const struct mbuf *m = sockbuf_head(sb, &off);
    off += l.off;
    while (sum < l.n && !lost) {
        uint32_t len = sockbuf_len(m);
        if (off >= len) { /* peeked at, or taken before */
            off -= len;
            m = sockbuf_next(m);
            continue;
        }
        uint32_t n = MIN(l.n - sum, len - off);
        lock_release(&sb->sb_lock);
        while (*last)
            last = &(*last)->m_next;
        uint32_t got = so_recv_copy(m, off, u, n, flags);
        lost = got < n;
        lock_acquire(&sb->sb_lock);
        sum += got;
        off += got;
        if (!peek) {
            *last = sockbuf_unlink(sb, got);
            m = sockbuf_head(sb, &off);
        }
    }
    lock_release(&sb->sb_lock);
    mbuf_free_chain(&done);
    *stop = l.at_mark;
    if (!peek)
        so->so_rcv_taken += sum;
    return lost && sum == 0 ? -EIO : (ssize_t)sum;
}
