/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving datagrams: records behind their sender's address, under the lock of so_rcv. */
#include "so_recv.h"

static ssize_t deliver(const struct socket *so, struct mbuf *rec, struct so_uio *u, int flags,
                       struct so_recv_result *r)
{
    struct mbuf *m = rec;

    if (m->m_flags & M_ADDR) {
        so_front_get(so, m, r);
        m = m->m_next;
    }
    uint32_t len = mbuf_chain_len(m), n = (uint32_t)MIN(u->left, len), left = n;
    for (; left; m = m->m_next) {
        uint32_t k = MIN(left, m->m_len);
        so_uio_put(u, m->m_data, k);
        left -= k;
    }
    if (n < len)
        r->msg_flags |= MSG_TRUNC;
    return flags & MSG_TRUNC ? (ssize_t)len : (ssize_t)n;
}

/* -EAGAIN: none. Readers are serialised: a record that is only looked at stays. */
static ssize_t datagram_take(struct socket *so, struct so_uio *u, int flags,
                             struct so_recv_result *r)
{
    struct mbuf *rec;
    ssize_t n = -EAGAIN;

    if (!(flags & MSG_PEEK)) {
        lock_acquire(&so->so_rcv_serial);
        rec = sockbuf_take_record(&so->so_rcv);
        lock_release(&so->so_rcv_serial);
        if (rec) {
            n = deliver(so, rec, u, flags, r);
            mbuf_free_chain(&rec);
        }
        return n;
    }
    lock_acquire(&so->so_rcv_serial);
    lock_acquire(&so->so_rcv.sb_lock);
    rec = so->so_rcv.sb_mb;
    lock_release(&so->so_rcv.sb_lock);
    if (rec)
        n = deliver(so, rec, u, flags, r);
    lock_release(&so->so_rcv_serial);
    return n;
}

ssize_t so_receive_datagram(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                            struct so_recv_result *r)
{
    uint64_t deadline = 0;

    for (;;) {
        uint32_t seq = so_event_seq(so);
        uint32_t st = so_state(so);
        int error = so_take_error(so);
        if (error)
            return -error;
        ssize_t n = datagram_take(so, u, flags, r);
        if (n != -EAGAIN || nonblock)
            return n;
        if (st & (SS_SHUT_RD | SS_CANTRCVMORE))
            return 0;
        if (!deadline)
            deadline = so_deadline(so->so_stack, so->so_rcvtimeo_ns);
        int w = so_wait(so, seq, deadline);
        if (w)
            return w;
    }
}

uint32_t so_datagram_len(struct socket *so)
{
    struct sockbuf *sb = &so->so_rcv;

    lock_acquire(&so->so_rcv_serial);
    lock_acquire(&sb->sb_lock);
    const struct mbuf *rec = sb->sb_mb;
    lock_release(&sb->sb_lock);
    if (rec && (rec->m_flags & M_ADDR))
        rec = rec->m_next;
    uint32_t n = rec ? mbuf_chain_len(rec) : 0;
    lock_release(&so->so_rcv_serial);
    return n;
}

bool so_has_record(struct socket *so)
{
    lock_acquire(&so->so_rcv.sb_lock);
    bool have = so->so_rcv.sb_mb != NULL;
    lock_release(&so->so_rcv.sb_lock);
    return have;
}
