/* SPDX-License-Identifier: BSD-2-Clause
 * sendfile, both forms, on any source of mbufs.
 *
 * How it works. The form of kern.ipc.sendfile.bulk=0 goes through the file a page at a time: one
 * mbuf, appended to so_snd, and TCP's output for it, so that a superframe holds a page and what was
 * left of the one before. The form of bulk=1 has two loops: the inner one makes mbufs of all that
 * so_snd has room for, the outer one appends the whole chain, calls output once, and waits until
 * half of the buffer is free. Both reference the file's pages where the source can give references.
 *
 * The file is read without any lock: so_snd_serial is only taken to append what was made. */
#include "so_sendfile.h"
#include "weir/socket.h"

/* Waiting for at least so much room takes longer than to sleep and be woken. */
#define SLEEP_BYTES (256u * 1024)
#define NOBUFS_RETRY_NS (5 * NS_PER_MS)

static int check_state(struct socket *so, const struct so_sendfile *sf)
{
    int error = so_sendable(so, sf->sent == 0);

    if (likely(error == 0) || sf->linux_rules)
        return error;
    uint32_t st = so_state(so);
    bool never = !(st & (SS_CONNECTED | SS_CANTSENDMORE | SS_SHUT_WR | SS_DISCONNECTED));
    return (error == -EPIPE || error == -EAGAIN) && never ? -ENOTCONN : error;
}

/* More is to come behind what is appended now. */
static bool more_follows(const struct so_sendfile *sf)
{
    return sf->head.left > 0 || sf->left > 0 || sf->trail.left > 0;
}

/* so_snd_serial held for the append alone. 0 or why not. */
static int append_chain(struct socket *so, struct so_sendfile *sf, struct mbuf **chain)
{
    lock_acquire(&so->so_snd_serial);
    int error = check_state(so, sf);
    if (likely(error == 0)) {
        sockbuf_append_stream(&so->so_snd, chain);
        so_send_set_more(so, more_follows(sf));
    }
    lock_release(&so->so_snd_serial);
    mbuf_free_chain(chain);
    return error;
}

/* Headers or trailers: copied. Bytes, or a negative errno. */
static ssize_t append_memory(struct socket *so, struct so_sendfile *sf, struct so_uio *u)
{
    lock_acquire(&so->so_snd_serial);
    ssize_t n = check_state(so, sf);
    if (likely(n == 0))
        n = so_send_append(so, u);
    if (n > 0)
        so_send_set_more(so, more_follows(sf));
    lock_release(&so->so_snd_serial);
    if (n > 0)
        sf->sent += (uint64_t)n;
    return n;
}

/* Make mbufs of up to `room` bytes of the file; *n: how many. 0, or the error that stopped it. */
static int make_chain(struct socket *so, struct so_sendfile *sf, size_t room, struct mbuf **chain,
                      size_t *n)
{
    struct mbuf **tail = chain;

    *chain = NULL;
    *n = 0;
    while (*n < room && sf->left > 0) {
        size_t want = (size_t)MIN(sf->left, room - *n);
        ssize_t r = sf->file->get(sf->file, so->so_stack->account, sf->off, want, sf->flags, tail);
        if (r < 0)
            return (int)r;
        if (r == 0) { /* the end, wherever it was said to be */
            sf->left = 0;
            return 0;
        }
        CHECK((size_t)r <= want && *tail != NULL);
        while (*tail != NULL)
            tail = &(*tail)->m_next;
        sf->off += (uint64_t)r;
        if (sf->left != SO_FILE_TO_END)
            sf->left -= (uint64_t)r;
        *n += (size_t)r;
    }
    return 0;
}

/* A chunk of the file into so_snd. Bytes; 0 at its end; -EAGAIN: no room; or another error. */
static ssize_t append_file(struct socket *so, struct so_sendfile *sf, bool bulk)
{
    struct mbuf *chain;
    uint64_t off = sf->off, left = sf->left;
    size_t n, room = so_send_room(so);

    if (room == 0)
        return -EAGAIN;
    if (!bulk)
        room = MIN(room, SO_FILE_PAGE - sf->off % SO_FILE_PAGE);
    int made = make_chain(so, sf, room, &chain, &n);
    if (n == 0)
        return made;
    int error = append_chain(so, sf, &chain);
    if (unlikely(error)) {
        sf->off = off;
        sf->left = left;
        return error;
    }
    sf->sent += n;
    return (ssize_t)n; /* what stopped it is met again, with nothing made */
}

/* What may go now: with bulk headers, file and trailers in one. Bytes or a negative errno; 0: all
 * is done. */
static ssize_t fill(struct socket *so, struct so_sendfile *sf, bool bulk)
{
    ssize_t total = 0, n = 0;

    while (more_follows(sf)) {
        if (sf->head.left > 0)
            n = append_memory(so, sf, &sf->head);
        else if (sf->left > 0)
            n = append_file(so, sf, bulk);
        else
            n = append_memory(so, sf, &sf->trail);
        if (n < 0)
            return total ? total : n;
        total += n;
        if (!bulk && n > 0)
            break;
    }
    return total;
}

/* Room that is waited for: half of the buffer, or all that is left to be sent if that is less. */
static uint32_t room_needed(const struct socket *so, const struct so_sendfile *sf)
{
    uint32_t half = LOAD_RELAXED(&so->so_snd.sb_hiwat) / 2;
    uint64_t rest = sf->left > SO_FILE_TO_END / 2 ? SO_FILE_TO_END / 2 : sf->left;

    return MAX((uint32_t)MIN(half, rest + sf->head.left + sf->trail.left), 1);
}

static int wait_for_room(struct socket *so, const struct so_sendfile *sf, uint32_t seq,
                         uint64_t deadline)
{
    uint32_t need = room_needed(so, sf);

    STORE_RELAXED(&so->so_snd.sb_lowat, need);
    /* so_writable looks at so_nospace and sb_lowat after the space has changed. */
    atomic_store_explicit(&so->so_nospace, 1, memory_order_seq_cst);
    int error = 0;
    if (sockbuf_space(&so->so_snd) < need || so_unsent_is_enough(so))
        error = so_wait_for(so, seq, deadline, need >= SLEEP_BYTES);
    STORE_RELAXED(&so->so_snd.sb_lowat, 1);
    return error;
}

/* Nobody tells when there are buffers again. */
static int wait_for_buffers(struct socket *so, uint32_t seq, uint64_t deadline)
{
    uint64_t until = MIN(deadline, so_deadline(so->so_stack, NOBUFS_RETRY_NS));
    int error = so_wait(so, seq, until);

    return error == -EAGAIN && until < deadline ? 0 : error;
}

/* What was taken last waits for no more. */
static void end_short(struct socket *so)
{
    if (!(LOAD_RELAXED(&so->so_sndflags) & SO_SND_MORE))
        return;
    so_send_set_more(so, false);
    so_defer(so, SO_WORK_SEND);
}

/* fill could take nothing: wait if that helps. 0: look again. */
static int held_up(struct socket *so, struct so_sendfile *sf, int error, uint32_t seq,
                   uint64_t *deadline)
{
    bool nobufs = error == -ENOBUFS || error == -ENOMEM;

    if (error != -EAGAIN && !nobufs)
        return error;
    if (nobufs && (sf->flags & SF_MNOWAIT))
        return -ENOMEM;
    if (sf->nonblock)
        return error;
    if (*deadline == 0)
        *deadline = so_deadline(so->so_stack, so->so_sndtimeo_ns);
    return nobufs ? wait_for_buffers(so, seq, *deadline) : wait_for_room(so, sf, seq, *deadline);
}

/* The outer loop of the bulk form: no chain is made before half of the buffer is free. */
static bool too_early(struct socket *so, const struct so_sendfile *sf)
{
    return !sf->nonblock && sockbuf_space(&so->so_snd) < room_needed(so, sf);
}

int so_sendfile(struct socket *so, struct so_sendfile *sf)
{
    bool bulk = KNOB(so->so_stack, kern_sendfile_bulk);
    uint64_t deadline = 0;
    int error = 0;

    sf->sent = 0;
    for (;;) {
        uint32_t seq = so_event_seq(so);
        ssize_t n = check_state(so, sf);
        if (n == 0 && more_follows(sf))
            n = bulk && too_early(so, sf) ? -EAGAIN : fill(so, sf, bulk);
        if (n > 0)
            so_defer(so, SO_WORK_SEND);
        if (n == 0 || (n > 0 && !more_follows(sf)))
            break;
        if (n < 0)
            error = held_up(so, sf, (int)n, seq, &deadline);
        if (error)
            break;
    }
    end_short(so);
    return error;
}
