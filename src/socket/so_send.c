/* SPDX-License-Identifier: BSD-2-Clause
 * Sending: user bytes are copied into clusters outside any lock of the owner's, then appended to
 * so_snd, and the protocol is told once. */
#include "so_private.h"
#include "base/cputime.h"

/* A send is handed over in pieces of this size, so that the peer may start on the first. */
#define SEND_BATCH (256u * 1024)
/* A blocked sender without buffers looks again so often. */
#define NOBUFS_RETRY_NS (5 * NS_PER_MS)

int so_sendable(struct socket *so, bool take)
{
    uint32_t st = so_state(so);
    int error = atomic_load_explicit(&so->so_error, memory_order_acquire);

    if (likely((st & (SS_CONNECTED | SS_CANTSENDMORE | SS_SHUT_WR)) == SS_CONNECTED && !error))
        return 0;
    if (error && take)
        error = so_take_error(so);
    if (error)
        return -error;
    return (st & (SS_CONNECTING | SS_CONNECTED)) == SS_CONNECTING ? -EAGAIN : -EPIPE;
}

uint32_t so_send_room(struct socket *so)
{
    uint32_t space = sockbuf_space(&so->so_snd);

    if (likely(space && !so_unsent_is_enough(so)))
        return space;
    /* so_writable looks at so_nospace after the space has changed. */
    atomic_store_explicit(&so->so_nospace, 1, memory_order_seq_cst);
    return so_unsent_is_enough(so) ? 0 : sockbuf_space(&so->so_snd);
}

void so_send_set_more(struct socket *so, bool more)
{
    uint32_t now = LOAD_RELAXED(&so->so_sndflags);

    if (more && !(now & SO_SND_MORE))
        atomic_fetch_or_explicit(&so->so_sndflags, SO_SND_MORE, memory_order_relaxed);
    else if (!more && (now & SO_SND_MORE))
        atomic_fetch_and_explicit(&so->so_sndflags, ~SO_SND_MORE, memory_order_relaxed);
}

ssize_t so_send_append(struct socket *so, struct so_uio *u)
{
    size_t total = 0;

    if (cputime_on() && u->left >= CPUTIME_COPY_MIN) {
        cputime_switch(CPU_COPY);
        cputime_flow(&so->so_cpu_copy);
    }
    while (u->left && total < SEND_BATCH) {
        uint32_t space = so_send_room(so);
        if (space == 0)
            break;
        uint32_t n = (uint32_t)MIN(MIN(u->left, space), BIGCLUSTER_64K);
        struct mbuf *m = mbuf_get_data(so->so_stack->account, n);
        if (!m)
            return total ? (ssize_t)total : -ENOBUFS;
        so_uio_get(u, m->m_data, n);
        m->m_len = n;
        sockbuf_append_stream(&so->so_snd, &m);
        total += n;
    }
    return total ? (ssize_t)total : -EAGAIN;
}

/* As append; 0 when the connection has ended meanwhile. more: the caller will append what is left,
 * so that no short segment need leave before. */
static ssize_t append_checked(struct socket *so, struct so_uio *u, int flags, bool more)
{
    ssize_t n = 0;

    lock_acquire(&so->so_snd_serial);
    /* connect(AF_UNSPEC) empties so_snd under this lock: what was sent to a connection that is over
     * must not wait there for the next one. */
    if (likely(so_sendable(so, false) == 0))
        n = so_send_append(so, u);
    if (n > 0)
        so_send_set_more(so, (flags & MSG_MORE) || (more && u->left));
    lock_release(&so->so_snd_serial);
    return n;
}

/* The urgent byte is the last in so_snd at the moment when the protocol looks: so no other sender
 * may come between. */
static ssize_t send_oob(struct socket *so, struct so_uio *u, int flags, bool more)
{
    int error = so_enter(so->so_stack);

    if (error)
        return error;
    ssize_t n = append_checked(so, u, flags, more);
    if (n > 0 && u->left == 0)
        atomic_fetch_or_explicit(&so->so_sndflags, SO_SND_OOB, memory_order_relaxed);
    if (n > 0 && so->so_pcb)
        so->so_proto->send(so);
    so_leave(so->so_stack);
    return n;
}

static ssize_t send_some(struct socket *so, struct so_uio *u, int flags, bool more)
{
    if (unlikely(flags & MSG_OOB))
        return send_oob(so, u, flags, more);
    ssize_t n = append_checked(so, u, flags, more);
    if (n > 0)
        so_defer(so, SO_WORK_SEND);
    return n;
}

/* Fewer bytes than asked for were taken: those wait for no others any more. */
static ssize_t cut_short(struct socket *so, int flags, size_t sent)
{
    if (!(flags & MSG_MORE) && (LOAD_RELAXED(&so->so_sndflags) & SO_SND_MORE)) {
        so_send_set_more(so, false);
        so_defer(so, SO_WORK_SEND);
    }
    return (ssize_t)sent;
}

/* Nobody tells when buffers are free again: they are the whole stack's. 0: look again; -EAGAIN (the
 * deadline), -EINTR. */
static int wait_for_buffers(struct socket *so, uint32_t seq, uint64_t deadline)
{
    uint64_t until = MIN(deadline, so_deadline(so->so_stack, NOBUFS_RETRY_NS));
    int error = so_wait(so, seq, until);

    return error == -EAGAIN && until < deadline ? 0 : error;
}

ssize_t so_send_stream(struct socket *so, struct so_uio *u, int flags, bool nonblock)
{
    uint64_t deadline = 0;
    size_t sent = 0;

    for (;;) {
        uint32_t seq = so_event_seq(so);
        ssize_t n = so_sendable(so, sent == 0);
        if (n == 0 && u->left == 0)
            return 0;
        if (n == 0)
            n = send_some(so, u, flags, !nonblock);
        if (n >= 0) {
            sent += (size_t)n;
            if (u->left == 0)
                return (ssize_t)sent;
            continue;
        }
        if ((n != -EAGAIN && n != -ENOBUFS) || nonblock)
            return sent ? cut_short(so, flags, sent) : n;
        if (!deadline)
            deadline = so_deadline(so->so_stack, so->so_sndtimeo_ns);
        int error =
            n == -ENOBUFS ? wait_for_buffers(so, seq, deadline) : so_wait(so, seq, deadline);
        if (error)
            return sent ? cut_short(so, flags, sent) : error;
    }
}

static bool goes_to_v4(const struct socket *so, const struct so_send_to *to)
{
    return (to->addr ? to->addr : &so->so_faddr)->family == AF_INET;
}

/* 0, with what the control messages chose; a negative error. */
static int datagram_sendable(struct socket *so, const struct so_send_to *to, int flags, size_t len,
                             struct so_ancillary *a)
{
    if (len > 0xffff)
        return -EMSGSIZE;
    if ((flags & MSG_OOB) && so->so_domain == AF_INET) /* Linux's IPv6 does not mind */
        return -EOPNOTSUPP;
    if (!to->addr && !(so_state(so) & SS_CONNECTED))
        return -EDESTADDRREQ;
    *a = (struct so_ancillary){.ttl = -1, .tos = -1};
    int error = to->control ? so_cmsg_take(so, to->control, goes_to_v4(so, to), a) : 0;
    a->refuse = (int16_t)(error ? 0 : so_take_error(so));
    if (!a->refuse && (so_state(so) & (SS_SHUT_WR | SS_CANTSENDMORE)))
        a->refuse = EPIPE;
    return error;
}

/* What goes in front of a record in so_snd; returns its length, 0 if nothing need be told. */
static uint32_t make_front(const struct socket *so, const struct so_send_to *to,
                           const struct so_ancillary *a, uint8_t front[MBUF_INLINE])
{
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    bool more = to->control || a->refuse;
    uint32_t len = to->addr || more ? sizeof(struct sockaddr_in) : 0;

    if (to->addr)
        len = ipaddr_to_sockaddr(to->addr, to->port, so->so_domain, &ss);
    memcpy(front, &ss, len);
    if (!more)
        return len;
    memcpy(front + len, a, sizeof *a);
    return len + (uint32_t)sizeof *a;
}

/* A record of so_snd. */
static int datagram_append(struct socket *so, struct so_uio *u, const struct so_send_to *to,
                           const struct so_ancillary *a)
{
    struct mbuf_account *acct = so->so_stack->account;
    uint32_t len = (uint32_t)u->left;
    uint8_t front[MBUF_INLINE];
    uint32_t front_len = make_front(so, to, a, front);
    struct mbuf *m = mbuf_get_size(acct, len);

    if (!m)
        return -ENOBUFS;
    so_uio_get(u, m->m_data, len);
    m->m_len = len;
    return sockbuf_append_record(&so->so_snd, acct, front_len ? front : NULL, front_len, &m)
               ? 0
               : -ENOBUFS;
}

ssize_t so_send_datagram(struct socket *so, struct so_uio *u, const struct so_send_to *to,
                         int flags)
{
    struct weir_stack *s = so->so_stack;
    size_t len = u->left;
    struct so_ancillary a;
    int error = datagram_sendable(so, to, flags, len, &a);

    if (error == 0)
        error = datagram_append(so, u, to, &a);
    if (error == 0)
        error = so_enter(s);
    if (error)
        return error;
    error = so_reattach(so);
    if (error == 0) {
        so->so_proto->send(so);
        error = -so_take_error(so);
    }
    if (error != -a.refuse && a.refuse != EPIPE) /* what was pending is still to be told */
        atomic_store_explicit(&so->so_error, a.refuse, memory_order_release);
    if (so->so_lport == 0)
        so_note_sockname(so);
    so_leave(s);
    return error ? error : (ssize_t)len;
}
