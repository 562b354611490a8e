/* SPDX-License-Identifier: BSD-2-Clause
 * What protocols tell a socket, and whom that wakes. */
#include "so_private.h"
#include "so_watch.h"
#include <limits.h>
#include <poll.h>

/* Whom Linux wakes by data: an edge-triggered watch of POLLPRI is one of them. */
#define SO_WAKE_IN (SO_POLL_IN | POLLPRI | POLLRDBAND)

void so_state_change(struct socket *so, uint32_t set, uint32_t clear)
{
    uint32_t old = atomic_load_explicit(&so->so_state, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&so->so_state, &old, (old & ~clear) | set,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
}

void so_wakeup_events(struct socket *so, uint32_t events)
{
    const struct port *port = so->so_stack->port;

    if (event_change(&so->so_event)) {
        WEIR_PROBE2(wake, so->so_stack->name, (int)so->so_index);
        port->wake(port->ctx, &so->so_event, INT_MAX);
    }
    if (atomic_load_explicit(&so->so_watch.count, memory_order_seq_cst))
        watch_list_notify(&so->so_watch, events);
    if (unlikely(atomic_load_explicit(&so->so_fd_hook, memory_order_acquire) != NULL) &&
        so_fd_signal)
        so_fd_signal(so);
}

void so_wakeup(struct socket *so)
{
    so_wakeup_events(so, 0);
}

void so_connecting(struct socket *so)
{
    so_state_change(so, SS_CONNECTING,
                    SS_DISCONNECTED | SS_CANTRCVMORE | SS_CANTSENDMORE | SS_PEERFIN | SS_FINACKED);
    so->so_conn = SO_CONNECTING;
}

static void accept_enqueue(struct socket *so)
{
    struct socket *l = so->so_listener;

    so->so_conn = SO_CONNECTED;
    so_state_change(so, SS_CONNECTED | SS_BOUND, SS_CONNECTING);
    so_note_sockname(so);
    if (so->so_queued)
        return;
    lock_acquire(&l->so_rcv.sb_lock);
    so->so_queued = true;
    TAILQ_INSERT_TAIL(&l->so_accept, so, so_accept_link);
    l->so_qlen++;
    lock_release(&l->so_rcv.sb_lock);
    so_wakeup_events(l, SO_WAKE_IN);
}

void so_connected(struct socket *so)
{
    if (so_state(so) & SS_INCOMPLETE) {
        accept_enqueue(so);
        return;
    }
    if (so->so_conn_waiters) { /* they need not come back to learn it */
        so->so_conn_waiters = 0;
        so->so_conn = SO_CONNECTED;
    }
    so_state_change(so, SS_CONNECTED, SS_CONNECTING | SS_DISCONNECTED);
    so_note_sockname(so);
    so_wakeup(so);
}

void so_error_set(struct socket *so, int error)
{
    uint32_t st = so_state(so);

    CHECK(error > 0);
    /* Linux's tcp_reset: between the peer's FIN and ours the reader knows of the end already. */
    if (error == ECONNRESET && (st & SS_PEERFIN) && !(st & (SS_SHUT_WR | SS_CANTSENDMORE)))
        error = EPIPE;
    atomic_store_explicit(&so->so_error, error, memory_order_release);
    so_wakeup(so);
}

void so_cantrcvmore(struct socket *so)
{
    so_state_change(so, SS_CANTRCVMORE | SS_PEERFIN, 0);
    so_wakeup(so);
}

void so_cantsendmore(struct socket *so)
{
    so_state_change(so, SS_CANTSENDMORE, 0);
    so_wakeup_events(so, SO_POLL_OUT | POLLHUP);
}

void so_disconnected(struct socket *so)
{
    so_state_change(so, SS_CANTRCVMORE | SS_CANTSENDMORE | SS_DISCONNECTED,
                    SS_CONNECTED | SS_CONNECTING);
    so_wakeup(so);
}

void so_fin_acked(struct socket *so)
{
    so_state_change(so, SS_FINACKED, 0);
    so_wakeup(so);
}

void so_readable(struct socket *so)
{
    /* Linux's tcp_data_ready: below the low-water mark nobody is woken. Those who wait for more
     * (MSG_WAITALL) are woken at each arrival, as the mark is 1 for them. */
    uint32_t lowat = LOAD_RELAXED(&so->so_rcv.sb_lowat);

    if (unlikely(lowat > 1) && so->so_type == SOCK_STREAM && sockbuf_used(&so->so_rcv) < lowat &&
        sockbuf_space(&so->so_rcv) != 0)
        return;
    so_wakeup_events(so, SO_WAKE_IN);
}

void so_writable(struct socket *so)
{
    /* Pairs with senders and pollers: they set so_nospace, then look at the space again. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!LOAD_RELAXED(&so->so_nospace) || !so_is_writable(so))
        return;
    /* sendfile's: a half of the buffer, which may have become smaller since. */
    uint32_t half = LOAD_RELAXED(&so->so_snd.sb_hiwat) / 2;
    if (sockbuf_space(&so->so_snd) < MIN(half, LOAD_RELAXED(&so->so_snd.sb_lowat)))
        return;
    atomic_store_explicit(&so->so_nospace, 0, memory_order_relaxed);
    so_wakeup_events(so, SO_POLL_OUT | POLLWRBAND);
}

void so_oob_arrived(struct socket *so, uint8_t byte, bool have_byte, uint32_t mark_off)
{
    lock_acquire(&so->so_rcv.sb_lock);
    so->so_oob = byte;
    so->so_oobmark = LOAD_RELAXED(&so->so_rcv.sb_in) + mark_off;
    /* Before the data behind it are appended: readers look at the state after the count. */
    so_state_change(so, SS_URGENT | (have_byte ? SS_OOB_HAVE : SS_OOB_AWAITED),
                    have_byte ? SS_OOB_AWAITED : SS_OOB_HAVE);
    lock_release(&so->so_rcv.sb_lock);
    so_wakeup_events(so, POLLPRI);
}

/* --- listeners --- */

bool so_accept_full(const struct socket *listener)
{
    return LOAD_RELAXED(&listener->so_qlen) > LOAD_RELAXED(&listener->so_qlimit);
}

struct socket *so_newconn(struct socket *listener)
{
    struct weir_stack *s = listener->so_stack;
    int error;

    if (!(so_state(listener) & SS_LISTENING))
        return NULL;
    if (so_accept_full(listener)) {
        COUNT(s, tcp_listen_drops);
        return NULL;
    }
    struct socket *so =
        so_create(s, listener->so_domain, listener->so_type, listener->so_protocol, &error);
    if (!so)
        return NULL;
    so->so_listener = listener;
    so_state_change(so, SS_INCOMPLETE, 0);
    so_option_inherit(listener, so);
    /* As on Linux the choice of an address is inherited, that of the port is not. */
    so->so_bound = so->so_bound_addr = listener->so_bound_addr;
    if (so->so_proto->inherit)
        so->so_proto->inherit(listener, so);
    return so;
}

struct socket *so_accept_take(struct socket *listener)
{
    lock_acquire(&listener->so_rcv.sb_lock);
    struct socket *so = TAILQ_FIRST(&listener->so_accept);
    if (so) {
        TAILQ_REMOVE(&listener->so_accept, so, so_accept_link);
        listener->so_qlen--;
        so->so_listener = NULL;
    }
    lock_release(&listener->so_rcv.sb_lock);
    if (so)
        so_state_change(so, 0, SS_INCOMPLETE);
    return so;
}
