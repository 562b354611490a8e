/* SPDX-License-Identifier: BSD-2-Clause
 * Readiness: the bits that Linux's tcp_poll and datagram_poll give in each state. */
#include "so_private.h"
#include <poll.h>

#define RD_SHUT (SS_CANTRCVMORE | SS_SHUT_RD)
#define WR_SHUT (SS_CANTSENDMORE | SS_SHUT_WR)

bool so_unsent_is_enough(const struct socket *so)
{
    uint32_t lowat = LOAD_RELAXED(&so->so_notsent_lowat), used, sent;

    if (likely(!lowat))
        return false;
    used = sockbuf_used(&so->so_snd);
    sent = LOAD_RELAXED(&so->so_sent);
    return used > sent && used - sent >= lowat;
}

bool so_is_writable(struct socket *so)
{
    uint64_t space = sockbuf_space(&so->so_snd);

    return space > 0 && space * 2 >= sockbuf_used(&so->so_snd) && !so_unsent_is_enough(so);
}

static bool writable_or_note(struct socket *so)
{
    if (so_is_writable(so))
        return true;
    /* so_writable looks at so_nospace after the space has changed. */
    atomic_store_explicit(&so->so_nospace, 1, memory_order_seq_cst);
    return so_is_writable(so);
}

static bool stream_readable(struct socket *so)
{
    uint32_t used = sockbuf_used(&so->so_rcv);

    if (used == 0)
        return false;
    return used >= LOAD_RELAXED(&so->so_rcv.sb_lowat) || sockbuf_space(&so->so_rcv) == 0;
}

static short stream_bits(struct socket *so, uint32_t st)
{
    short bits = 0;

    if (((st & RD_SHUT) && (st & WR_SHUT)) || !(st & (SS_CONNECTING | SS_CONNECTED)))
        bits |= POLLHUP;
    if (st & RD_SHUT)
        bits |= SO_POLL_IN | POLLRDHUP;
    if (!(st & SS_CONNECTING) || (st & SS_CONNECTED)) {
        if (stream_readable(so))
            bits |= SO_POLL_IN;
        if ((st & WR_SHUT) || writable_or_note(so))
            bits |= SO_POLL_OUT;
        if ((st & SS_OOB_HAVE) || ((st & SS_URGENT) && so_has_option(so, SO_OOBINLINE)))
            bits |= POLLPRI;
    }
    return bits;
}

static short datagram_bits(struct socket *so, uint32_t st)
{
    short bits = 0;

    if (st & RD_SHUT)
        bits |= SO_POLL_IN | POLLRDHUP;
    if ((st & RD_SHUT) && (st & WR_SHUT))
        bits |= POLLHUP;
    if (so_has_record(so))
        bits |= SO_POLL_IN;
    if (writable_or_note(so))
        bits |= SO_POLL_OUT | POLLWRBAND;
    return bits;
}

short so_poll_bits(struct socket *so)
{
    uint32_t st = so_state(so);

    if (st & SS_LISTENING) /* not even errors */
        return LOAD_RELAXED(&so->so_qlen) ? SO_POLL_IN : 0;
    short bits = so->so_type == SOCK_STREAM ? stream_bits(so, st) : datagram_bits(so, st);
    if (atomic_load_explicit(&so->so_error, memory_order_acquire))
        bits |= POLLERR;
    return bits;
}
