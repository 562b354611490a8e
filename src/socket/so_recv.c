/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving. The stream variant decides under the lock of so_rcv how much may be delivered, copies
 * without it (the owner only touches the tail), takes it once more to drop what was delivered, and
 * tells the protocol once. */
#include "so_private.h"
#include "wire/addr.h"

/* What a walk over so_rcv may look at without its lock: the owner goes on filling the last mbuf. */
struct snapshot {
    const struct mbuf *head, *tail;
    uint32_t tail_len;
};

static void copy_out(const struct snapshot *s, uint32_t off, struct so_uio *u, uint32_t n,
                     bool discard)
{
    const struct mbuf *m = s->head;

    while (n) {
        uint32_t len = m == s->tail ? s->tail_len : m->m_len;
        if (off >= len) {
            CHECK(m != s->tail);
            off -= len;
            m = m->m_next;
            continue;
        }
        uint32_t k = MIN(n, len - off);
        if (discard)
            so_uio_skip(u, k);
        else
            so_uio_put(u, m->m_data + off, k);
        n -= k;
        off += k;
    }
}

/* --- streams --- */

/* Where the urgent mark lets a read go on. Lock of so_rcv held. Returns false when it must stop
 * before any byte. */
static bool pass_mark(struct socket *so, int flags, size_t copied)
{
    uint32_t st = so_state(so);

    if (!(st & SS_RCVATMARK))
        return true;
    if (copied)
        return false;
    /* In line the urgent byte is read with the rest; else it is skipped now, read by MSG_OOB or
     * not. One that is only announced cannot be passed before something is behind it. */
    if (!(flags & MSG_PEEK) && (LOAD_RELAXED(&so->so_rcv.sb_cc) ||
                                (!so_has_option(so, SO_OOBINLINE) && !(st & SS_OOB_AWAITED))))
        so_state_change(so, 0, SS_RCVATMARK | SS_URGENT | SS_OOB_HAVE | SS_OOB_AWAITED);
    return true;
}

/* Bytes that may be read before the urgent mark is met; 0: none is ahead. Lock of so_rcv held. */
static uint32_t before_mark(struct socket *so)
{
    if ((so_state(so) & (SS_URGENT | SS_RCVATMARK)) != SS_URGENT)
        return 0;
    return so->so_oobmark - so->so_rcv.sb_dropped;
}

/* Bytes were dropped: the mark may be next. */
static void meet_mark(struct socket *so)
{
    lock_acquire(&so->so_rcv.sb_lock);
    if ((so_state(so) & SS_URGENT) && so->so_oobmark == so->so_rcv.sb_dropped)
        so_state_change(so, SS_RCVATMARK, 0);
    lock_release(&so->so_rcv.sb_lock);
}

/* Deliver what is there, from `copied` on with MSG_PEEK. Returns bytes; *stop: the urgent mark was
 * reached. so_rcv_serial held. */
static uint32_t stream_take(struct socket *so, struct so_uio *u, int flags, size_t copied,
                            bool *stop)
{
    struct sockbuf *sb = &so->so_rcv;
    uint32_t off = flags & MSG_PEEK ? (uint32_t)copied : 0, n = 0;
    struct snapshot snap;

    *stop = false;
    lock_acquire(&sb->sb_lock);
    uint32_t used = LOAD_RELAXED(&sb->sb_cc);
    if (unlikely(so_state(so) & SS_URGENT)) {
        *stop = !pass_mark(so, flags, copied);
        uint32_t before = before_mark(so);
        if (before && used > before) {
            used = before;
            *stop = off >= used;
        }
    }
    if (used > off && !*stop) {
        n = (uint32_t)MIN(u->left, used - off);
        snap = (struct snapshot){sb->sb_mb, sb->sb_tail, sb->sb_tail ? sb->sb_tail->m_len : 0};
    }
    lock_release(&sb->sb_lock);
    if (n == 0)
        return 0;
    copy_out(&snap, off, u, n, flags & MSG_TRUNC);
    if (flags & MSG_PEEK)
        return n;
    sockbuf_drop(sb, n);
    so->so_rcv_taken += n;
    if (unlikely(so_state(so) & SS_URGENT))
        meet_mark(so);
    return n;
}

/* True when the window may have opened enough for the peer to be told. so_rcv_serial held. */
static bool notice_due(struct socket *so)
{
    uint32_t notice = LOAD_RELAXED(&so->so_rcv_notice);

    if (so->so_rcv_taken == 0)
        return false;
    if (so->so_rcv_taken < MIN(notice, LOAD_RELAXED(&so->so_rcv.sb_hiwat) / 4))
        return false;
    so->so_rcv_taken = 0;
    return true;
}

static ssize_t receive_oob(struct socket *so, struct so_uio *u, int flags, struct so_recv_result *r)
{
    uint32_t st = so_state(so);

    if (so_has_option(so, SO_OOBINLINE) || !(st & (SS_OOB_HAVE | SS_OOB_AWAITED)))
        return -EINVAL;
    if (!(st & (SS_CONNECTING | SS_CONNECTED | SS_PEERFIN)))
        return -ENOTCONN;
    if (st & SS_OOB_AWAITED)
        return st & (SS_CANTRCVMORE | SS_SHUT_RD) ? 0 : -EAGAIN;
    lock_acquire(&so->so_rcv.sb_lock);
    uint8_t byte = so->so_oob;
    bool have = so_state(so) & SS_OOB_HAVE;
    if (!(flags & MSG_PEEK))
        so_state_change(so, 0, SS_OOB_HAVE);
    lock_release(&so->so_rcv.sb_lock);
    if (!have)
        return -EINVAL;
    r->msg_flags |= MSG_OOB;
    if (u->left == 0) {
        r->msg_flags |= MSG_TRUNC;
        return 0;
    }
    if (flags & MSG_TRUNC)
        so_uio_skip(u, 1);
    else
        so_uio_put(u, &byte, 1);
    return 1;
}

/* Nothing more could be delivered. Returns 1 to wait, or what the call returns (<= 0), by the rules
 * of Linux's tcp_recvmsg. st, error: as they were before the buffer was looked at, so that no data
 * is behind an EOF. */
static int stream_blocked(struct socket *so, uint32_t st, int error, bool nonblock)
{
    if (st & SS_PEERFIN)
        return 0;
    if (error && (error = so_take_error(so)) != 0)
        return -error;
    if (st & (SS_CANTRCVMORE | SS_SHUT_RD))
        return 0;
    if (!(st & (SS_CONNECTING | SS_CONNECTED)))
        return -ENOTCONN;
    return nonblock ? -EAGAIN : 1;
}

static ssize_t receive_stream(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                              struct so_recv_result *r)
{
    size_t want = u->left, copied = 0;
    size_t target = flags & MSG_WAITALL ? want : MIN(LOAD_RELAXED(&so->so_rcv.sb_lowat), want);
    uint64_t deadline = 0;

    if (so_state(so) & SS_LISTENING)
        return -ENOTCONN;
    if (unlikely(flags & MSG_OOB))
        return receive_oob(so, u, flags, r);
    for (;;) {
        uint32_t seq = so_event_seq(so);
        uint32_t st = so_state(so);
        int error = atomic_load_explicit(&so->so_error, memory_order_acquire);
        bool stop;

        lock_acquire(&so->so_rcv_serial);
        copied += stream_take(so, u, flags, copied, &stop);
        bool notice = notice_due(so);
        lock_release(&so->so_rcv_serial);
        if (notice)
            so_defer(so, SO_WORK_RCVD);

        if (copied ? copied >= target || stop : want == 0 && sockbuf_used(&so->so_rcv))
            return (ssize_t)copied;
        if (copied) {
            if (nonblock || error || !(st & (SS_CONNECTING | SS_CONNECTED)) ||
                (st & (SS_CANTRCVMORE | SS_SHUT_RD)))
                return (ssize_t)copied;
        } else {
            int verdict = stream_blocked(so, st, error, nonblock);
            if (verdict <= 0)
                return verdict;
        }
        if (!deadline)
            deadline = so_deadline(so->so_stack, so->so_rcvtimeo_ns);
        int w = so_wait(so, seq, deadline);
        if (w)
            return copied ? (ssize_t)copied : w;
    }
}

/* --- datagrams --- */

static ssize_t deliver(struct mbuf *rec, struct so_uio *u, int flags, struct so_recv_result *r)
{
    struct mbuf *m = rec;

    if (m->m_flags & M_ADDR) {
        r->fromlen = (socklen_t)MIN(m->m_len, sizeof r->from);
        memcpy(&r->from, m->m_data, r->fromlen);
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
            n = deliver(rec, u, flags, r);
            mbuf_free_chain(&rec);
        }
        return n;
    }
    lock_acquire(&so->so_rcv_serial);
    lock_acquire(&so->so_rcv.sb_lock);
    rec = so->so_rcv.sb_mb;
    lock_release(&so->so_rcv.sb_lock);
    if (rec)
        n = deliver(rec, u, flags, r);
    lock_release(&so->so_rcv_serial);
    return n;
}

static ssize_t receive_datagram(struct socket *so, struct so_uio *u, int flags, bool nonblock,
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

ssize_t so_receive(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                   struct so_recv_result *r)
{
    r->fromlen = 0;
    r->msg_flags = 0;
    if (unlikely(flags & MSG_ERRQUEUE))
        return -EAGAIN; /* it is always empty */
    return so->so_type == SOCK_STREAM ? receive_stream(so, u, flags, nonblock, r)
                                      : receive_datagram(so, u, flags, nonblock, r);
}

uint32_t so_inq(struct socket *so)
{
    struct sockbuf *sb = &so->so_rcv;
    uint32_t n;

    if (so->so_type == SOCK_STREAM) {
        lock_acquire(&sb->sb_lock);
        n = LOAD_RELAXED(&sb->sb_cc);
        uint32_t before = before_mark(so);
        if (before && n > before && !so_has_option(so, SO_OOBINLINE))
            n = before;
        lock_release(&sb->sb_lock);
        return n;
    }
    lock_acquire(&so->so_rcv_serial);
    lock_acquire(&sb->sb_lock);
    struct mbuf *rec = sb->sb_mb;
    lock_release(&sb->sb_lock);
    if (rec && (rec->m_flags & M_ADDR))
        rec = rec->m_next;
    n = rec ? mbuf_chain_len(rec) : 0;
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
