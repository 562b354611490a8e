/* SPDX-License-Identifier: BSD-2-Clause
 * Receiving without a copy: mbufs leave so_rcv whole and are lent to the application.
 *
 * The bytes leave the window's budget when they are taken, as if they had been copied; their memory
 * is charged to so_rcv (sockbuf_lent) until it is given back, which bounds what can be held. What
 * is lent holds neither the socket nor the stack. */
#include "api.h"
#include "base/cputime.h"
#include "so_recv.h"

/* Returns the bytes. */
static size_t fill(struct weir_zc *bufs, struct mbuf *m, struct sockbuf_lent *from)
{
    size_t sum = 0;

    for (struct mbuf *next; m; m = next) {
        next = m->m_next;
        m->m_next = NULL;
        *bufs++ = (struct weir_zc){m->m_data, m->m_len, {m, from}};
        sum += m->m_len;
    }
    return sum;
}

/* Take what there is, if that is enough (`least`). Returns bytes, 0: not enough (*there: what there
 * is), or a negative errno. so_rcv_serial held. */
static ssize_t take(struct socket *so, struct weir_zc *bufs, int nbufs, size_t max, size_t least,
                    size_t *there) TS_NO_ANALYSIS
{
    struct sockbuf *sb = &so->so_rcv;
    bool locked = sockbuf_is_locked(sb);
    struct sockbuf_lent *from;
    struct mbuf *chain = NULL;
    size_t sum = 0;
    int error = 0;

    if (locked)
        lock_acquire(&sb->sb_lock);
    struct so_recv_look l = so_recv_look(so, max, 0, 0, locked);
    *there = l.n;
    if (l.n && (l.n >= least || (so_state(so) & SS_URGENT)))
        error = sockbuf_lend(sb, so->so_stack->account, l.n, nbufs, &chain, &from);
    if (locked)
        lock_release(&sb->sb_lock);
    if (chain)
        sum = fill(bufs, chain, from);
    so->so_rcv_taken += (uint32_t)sum;
    return error ? error : (ssize_t)sum;
}

static ssize_t receive(struct socket *so, struct weir_zc *bufs, int nbufs, size_t max,
                       bool nonblock)
{
    size_t least = MIN(LOAD_RELAXED(&so->so_rcv.sb_lowat), max), there;
    struct so_recv_wait w = {0};
    ssize_t n;

    if (so_state(so) & SS_LISTENING)
        return -ENOTCONN;
    for (;;) {
        so_recv_begin(so, &w);
        lock_acquire(&so->so_rcv_serial);
        n = take(so, bufs, nbufs, max, least, &there);
        bool notice = so_recv_notice_due(so);
        lock_release(&so->so_rcv_serial);
        if (notice)
            so_defer(so, SO_WORK_RCVD);
        if (unlikely(n == -EIO)) /* as for those who copy */
            so_defer(so, SO_WORK_VANISHED);
        if (n)
            return n;
        if (so_recv_block(so, &w, there, nonblock, &n))
            continue;
        if (n <= 0)
            return n;
        least = 1; /* more will not come: what is there will do */
    }
}

ssize_t weir_recv_zc(int fd, struct weir_zc *bufs, int nbufs, size_t max, int flags)
{
    struct desc_ref r;
    ssize_t n = -EINVAL;

    if (!api_socket(fd, &r))
        return -1;
    if (nbufs >= 1 && max >= 1 && !(flags & ~MSG_DONTWAIT)) {
        struct socket *so = r.so;
        bool nonblock = (flags & MSG_DONTWAIT) || (so_state(so) & SS_NBIO);
        memset(bufs, 0, (size_t)nbufs * sizeof(*bufs));
        n = so->so_type == SOCK_STREAM ? receive(so, bufs, nbufs, max, nonblock) : -EOPNOTSUPP;
    }
    return n < 0 ? api_result(&r, (int)n) : (api_result(&r, 0), n);
}

/* Does the memory that is lent keep the window smaller than the bytes would? */
static bool presses(const struct sockbuf *sb)
{
    uint32_t cc = sockbuf_used(sb), mem = sockbuf_mem(sb);
    uint32_t hiwat = LOAD_RELAXED(&sb->sb_hiwat), memmax = LOAD_RELAXED(&sb->sb_memmax);

    return cc < hiwat && (mem >= memmax || memmax - mem < hiwat - cc);
}

static void give_back(const struct socket *so, struct weir_zc *bufs, int nbufs, bool *tell)
{
    for (int i = 0; i < nbufs; i++) {
        if (!bufs[i].len)
            continue;
        struct sockbuf_lent *from = bufs[i].opaque[1];
        if (so && !*tell && atomic_load_explicit(&so->so_rcv.sb_lent, memory_order_acquire) == from)
            *tell = presses(&so->so_rcv);
        sockbuf_give_back(from, bufs[i].opaque[0]);
        bufs[i] = (struct weir_zc){0};
    }
}

void weir_zc_release(int fd, struct weir_zc *bufs, int nbufs)
{
    int saved = errno;
    struct desc_ref r;
    bool tell = false, open = fd >= 0 && desc_get(fd, &r);
    struct socket *so = open && r.kind == DESC_SOCKET ? r.so : NULL;

    give_back(so, bufs, nbufs, &tell);
    if (tell) {
        cputime_switch(CPU_CALL);
        so_defer(so, SO_WORK_RCVD);
        cputime_switch(CPU_APP);
    }
    if (open)
        desc_put(&r);
    errno = saved;
}
