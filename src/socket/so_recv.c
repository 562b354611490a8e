/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving: the call, which blocks, and what its ways of taking data have in common
 * (so_recv_generic.c, so_recv_stream.c, so_recv_lockfree.c). Which one is used is looked at per
 * call. */
#include "so_recv.h"
#include "base/cputime.h"
#include "wire/addr.h"

/* --- the urgent mark: so_oobmark, a position as so_rcv counts --- */

/* Bytes that may be read before the urgent mark is met, of `used`; *at_mark: who has copied some,
 * or reads to the end of these, stops there. With SS_URGENT and the lock of so_rcv. */
static uint32_t up_to_mark(struct socket *so, uint32_t used, int flags, size_t copied,
                           bool *at_mark)
{
    uint32_t st = so_state(so), ahead = so->so_oobmark - LOAD_RELAXED(&so->so_rcv.sb_out);

    *at_mark = false;
    if (!(st & SS_URGENT))
        return used;
    if (ahead) {
        *at_mark = used >= ahead;
        return MIN(used, ahead);
    }
    *at_mark = copied > 0;
    /* In line the urgent byte is read with the rest; else it is skipped now, read by MSG_OOB or
     * not. One that is only announced cannot be passed before something is behind it. */
    if (!*at_mark && !(flags & MSG_PEEK) &&
        (used || (!so_has_option(so, SO_OOBINLINE) && !(st & SS_OOB_AWAITED))))
        so_state_change(so, 0, SS_URGENT | SS_OOB_HAVE | SS_OOB_AWAITED);
    return *at_mark ? 0 : used;
}

bool so_is_at_mark(struct socket *so)
{
    struct sockbuf *sb = &so->so_rcv;

    if (likely(!(so_state(so) & SS_URGENT)))
        return false;
    lock_acquire(&sb->sb_lock);
    bool at = (so_state(so) & SS_URGENT) && so->so_oobmark == LOAD_RELAXED(&sb->sb_out);
    lock_release(&sb->sb_lock);
    return at;
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

/* --- streams --- */

struct so_recv_look so_recv_look(struct socket *so, size_t room, int flags, size_t copied,
                                 bool locked) TS_NO_ANALYSIS
{
    struct sockbuf *sb = &so->so_rcv;
    struct so_recv_look l = {.off = flags & MSG_PEEK ? (uint32_t)copied : 0};
    /* In this order: data behind a mark are published after the mark. */
    uint32_t used = sockbuf_used(sb);

    if (unlikely(so_state(so) & SS_URGENT)) {
        if (!locked)
            lock_acquire(&sb->sb_lock);
        used = up_to_mark(so, used, flags, copied, &l.at_mark);
        if (!locked)
            lock_release(&sb->sb_lock);
    }
    if (used > l.off)
        l.n = (uint32_t)MIN(room, used - l.off);
    l.at_mark = l.at_mark && l.off + l.n >= used;
    return l;
}

/* Bytes that somebody may have cut off their file. False: lost, nothing was copied. */
static bool put_volatile(struct so_uio *u, const struct mbuf *m, uint32_t off, uint32_t n)
{
    struct so_uio before = *u;

    so_uio_put(u, m->m_data + off, n);
    if (mbuf_intact(m))
        return true;
    *u = before;
    return false;
}

uint32_t so_recv_copy(const struct mbuf *m, uint32_t off, struct so_uio *u, uint32_t n, int flags)
{
    uint32_t left = n;

    while (left) {
        uint32_t len = sockbuf_len(m);
        if (off >= len) {
            off -= len;
            m = sockbuf_next(m);
            continue;
        }
        uint32_t k = MIN(left, len - off);
        __builtin_prefetch(m->m_ext); /* what it costs and who has it is needed to free it */
        if (flags & MSG_TRUNC) {
            so_uio_skip(u, k);
        } else if (likely(!(m->m_flags & M_VOLATILE))) {
            so_uio_put(u, m->m_data + off, k);
        } else if (!put_volatile(u, m, off, k)) {
            return n - left;
        }
        left -= k;
        off += k;
    }
    return n;
}

bool so_recv_notice_due(struct socket *so)
{
    uint32_t notice = LOAD_RELAXED(&so->so_rcv_notice);

    if (so->so_rcv_taken == 0)
        return false;
    if (so->so_rcv_taken < MIN(notice, LOAD_RELAXED(&so->so_rcv.sb_hiwat) / 4))
        return false;
    so->so_rcv_taken = 0;
    return true;
}

void so_recv_begin(struct socket *so, struct so_recv_wait *w)
{
    w->seq = so_event_seq(so);
    w->st = so_state(so);
    w->error = atomic_load_explicit(&so->so_error, memory_order_acquire);
}

/* Nothing was delivered. Returns 1 to wait, or what the call returns (<= 0), by the rules of
 * Linux's tcp_recvmsg. State and error are those from before the buffer was looked at, so that no
 * data is behind an EOF. */
static int verdict(struct socket *so, const struct so_recv_wait *w, bool nonblock)
{
    int error = w->error;

    if (w->st & SS_PEERFIN)
        return 0;
    if (error && (error = so_take_error(so)) != 0)
        return -error;
    if (w->st & (SS_CANTRCVMORE | SS_SHUT_RD))
        return 0;
    if (!(w->st & (SS_CONNECTING | SS_CONNECTED)))
        return -ENOTCONN;
    return nonblock ? -EAGAIN : 1;
}

bool so_recv_block(struct socket *so, struct so_recv_wait *w, size_t copied, bool nonblock,
                   ssize_t *result)
{
    *result = (ssize_t)copied;
    if (copied) {
        if (nonblock || w->error || !(w->st & (SS_CONNECTING | SS_CONNECTED)) ||
            (w->st & (SS_CANTRCVMORE | SS_SHUT_RD)))
            return false;
    } else {
        int v = verdict(so, w, nonblock);
        *result = v;
        if (v <= 0)
            return false;
    }
    if (!w->deadline)
        w->deadline = so_deadline(so->so_stack, so->so_rcvtimeo_ns);
    int error = so_wait(so, w->seq, w->deadline);
    if (error && !copied)
        *result = error;
    return error == 0;
}

static so_recv_fn *way(const struct socket *so)
{
    switch (KNOB(so->so_stack, tcp_soreceive_stream)) {
    case SOCKBUF_GENERIC:
        return so_recv_generic;
    case SOCKBUF_STREAM:
        return so_recv_stream;
    default:
        return so_recv_lockfree;
    }
}

/* One look at the buffer, and what it gives. Nobody takes a lock to see that there is nothing. */
static ssize_t take_some(struct socket *so, so_recv_fn *take, struct so_uio *u, int flags,
                         size_t copied, bool *stop)
{
    *stop = false;
    uint32_t used = sockbuf_used(&so->so_rcv);
    if (used == 0 && likely(!(so_state(so) & SS_URGENT)))
        return 0;
    lock_acquire(&so->so_rcv_serial);
    if (cputime_on() && MIN(used, u->left) >= CPUTIME_COPY_MIN) {
        cputime_switch(CPU_COPY);
        cputime_flow(&so->so_cpu_copy);
    }
    ssize_t n = take(so, u, flags, copied, stop);
    bool notice = so_recv_notice_due(so);
    lock_release(&so->so_rcv_serial);
    if (notice)
        so_defer(so, SO_WORK_RCVD);
    return n;
}

static ssize_t receive_stream(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                              struct so_recv_result *r)
{
    size_t want = u->left, copied = 0;
    size_t target = flags & MSG_WAITALL ? want : MIN(LOAD_RELAXED(&so->so_rcv.sb_lowat), want);
    struct so_recv_wait w = {0};
    so_recv_fn *take = way(so);

    if (so_state(so) & SS_LISTENING)
        return -ENOTCONN;
    if (unlikely(flags & MSG_OOB))
        return receive_oob(so, u, flags, r);
    for (;;) {
        bool stop;

        so_recv_begin(so, &w);
        ssize_t n = take_some(so, take, u, flags, copied, &stop);
        if (unlikely(n < 0)) { /* the peer must not wait for a reader who cannot go on */
            so_defer(so, SO_WORK_VANISHED);
            return copied ? (ssize_t)copied : n;
        }
        copied += (size_t)n;

        if (copied ? copied >= target || stop : want == 0 && sockbuf_used(&so->so_rcv))
            return (ssize_t)copied;
        if (!so_recv_block(so, &w, copied, nonblock, &n))
            return n;
    }
}

ssize_t so_receive(struct socket *so, struct so_uio *u, int flags, bool nonblock,
                   struct so_recv_result *r)
{
    r->fromlen = 0;
    r->msg_flags = 0;
    r->info.local.family = 0;
    if (unlikely(flags & MSG_ERRQUEUE))
        return -EAGAIN; /* it is always empty */
    return so->so_type == SOCK_STREAM ? receive_stream(so, u, flags, nonblock, r)
                                      : so_receive_datagram(so, u, flags, nonblock, r);
}

uint32_t so_inq(struct socket *so)
{
    struct sockbuf *sb = &so->so_rcv;

    if (so->so_type != SOCK_STREAM)
        return so_datagram_len(so);
    uint32_t n = sockbuf_used(sb);
    if (unlikely(so_state(so) & SS_URGENT) && !so_has_option(so, SO_OOBINLINE)) {
        lock_acquire(&sb->sb_lock);
        uint32_t ahead = so->so_oobmark - LOAD_RELAXED(&sb->sb_out);
        if ((so_state(so) & SS_URGENT) && ahead)
            n = MIN(n, ahead);
        lock_release(&sb->sb_lock);
    }
    return n;
}
