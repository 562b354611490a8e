/* SPDX-License-Identifier: BSD-2-Clause
 * Sending without a copy: mbufs refer to the caller's memory.
 *
 * How it works. Each call makes one piece of external storage of the caller's memory; its header
 * lies in an mbuf of its own, so it belongs to no stack and may be dropped by any thread: here
 * after the acknowledgment, or at the far end of a memory link after the data were read. The last
 * drop counts the caller's `pending` down. Socket, stack and descriptor may be gone by then. */
#include "api.h"
#include <limits.h>

/* Less than this is copied: a reference costs more. */
#define COPY_MAX 2048u
/* A call takes at most so much. */
#define CALL_MAX (1u << 30)
#define NOBUFS_RETRY_NS (5 * NS_PER_MS)

struct zc_memory {
    struct mbuf_ext ext; /* first */
    struct mbuf *self;   /* holds this */
    struct weir_zc_send *z;
    const struct port *port;
};
_Static_assert(sizeof(struct zc_memory) <= MBUF_INLINE, "it lies in an mbuf");

/* One send refers to the memory no longer. */
static void count_down(const struct port *port, struct weir_zc_send *z, bool tell)
{
    void (*done)(struct weir_zc_send *) = z->done;

    /* From here on *z may be gone: what wakes needs the address alone. */
    if (__atomic_sub_fetch(&z->pending, 1, __ATOMIC_ACQ_REL) > 0 || !tell)
        return;
    port->wake(port->ctx, (_Atomic uint32_t *)&z->pending, INT_MAX);
    if (done)
        done(z);
}

static void memory_free(struct mbuf_ext *e)
{
    struct zc_memory *m = (struct zc_memory *)e;
    struct mbuf *self = m->self;

    count_down(m->port, m->z, true);
    /* The credit that follows is of an account that is nobody's. */
    (void)mbuf_free(self);
}

/* With one reference, the caller's. */
static struct zc_memory *memory_create(struct socket *so, const void *buf, uint32_t len,
                                       struct weir_zc_send *z)
{
    struct mbuf *self = mbuf_get(so->so_stack->account);

    if (!self)
        return NULL;
    struct zc_memory *m =
        (struct zc_memory *)(void *)(((uintptr_t)self->m_dat + 7) & ~(uintptr_t)7);
    _Static_assert(sizeof(*m) + 7 <= MBUF_INLINE, "also when aligned");
    bool charged = mbuf_ext_init(&m->ext, NULL, (uint8_t *)(uintptr_t)buf, len, memory_free);
    CHECK(charged);
    m->self = self;
    m->z = z;
    m->port = so->so_stack->port;
    __atomic_add_fetch(&z->pending, 1, __ATOMIC_RELAXED);
    return m;
}

/* Append what there is room for from `at`. Bytes, -EAGAIN, -ENOBUFS, or why not. */
static ssize_t append(struct socket *so, struct zc_memory *mem, size_t at, int flags)
{
    size_t left = mem->ext.size - at;
    ssize_t n;

    lock_acquire(&so->so_snd_serial);
    n = so_sendable(so, at == 0);
    uint32_t room = n == 0 ? so_send_room(so) : 0;
    if (n == 0 && room == 0)
        n = -EAGAIN;
    if (n == 0) {
        n = (ssize_t)MIN(left, (size_t)room);
        struct mbuf *m = NULL;
        mbuf_ext_hold(&mem->ext);
        m = mbuf_get_ext(so->so_stack->account, &mem->ext, mem->ext.buf + at, (uint32_t)n,
                         M_RDONLY);
        if (m) {
            sockbuf_append_stream(&so->so_snd, &m);
            so_send_set_more(so, (flags & MSG_MORE) || (size_t)n < left);
        } else {
            mbuf_ext_drop(&mem->ext);
            n = -ENOBUFS;
        }
    }
    lock_release(&so->so_snd_serial);
    if (n > 0)
        so_defer(so, SO_WORK_SEND);
    return n;
}

static int wait_for_buffers(struct socket *so, uint32_t seq, uint64_t deadline)
{
    uint64_t until = MIN(deadline, so_deadline(so->so_stack, NOBUFS_RETRY_NS));
    int error = so_wait(so, seq, until);

    return error == -EAGAIN && until < deadline ? 0 : error;
}

/* Bytes, or a negative errno when none were taken. */
static ssize_t send_all(struct socket *so, struct zc_memory *mem, int flags, bool nonblock)
{
    uint64_t deadline = 0;
    size_t sent = 0;
    int error = 0;

    while (sent < mem->ext.size && !error) {
        uint32_t seq = so_event_seq(so);
        ssize_t n = append(so, mem, sent, flags);
        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        error = (int)n;
        if ((error != -EAGAIN && error != -ENOBUFS) || nonblock)
            break;
        if (!deadline)
            deadline = so_deadline(so->so_stack, so->so_sndtimeo_ns);
        error =
            error == -ENOBUFS ? wait_for_buffers(so, seq, deadline) : so_wait(so, seq, deadline);
    }
    if (sent > 0 && sent < mem->ext.size && !(flags & MSG_MORE)) { /* waits for no others */
        so_send_set_more(so, false);
        so_defer(so, SO_WORK_SEND);
    }
    return sent ? (ssize_t)sent : error;
}

static ssize_t send_zc(struct socket *so, const void *buf, size_t len, int flags,
                       struct weir_zc_send *z)
{
    bool nonblock = (flags & MSG_DONTWAIT) || (so_state(so) & SS_NBIO);

    if (so->so_type != SOCK_STREAM)
        return -EOPNOTSUPP;
    if (!z || (flags & ~(MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL)))
        return -EINVAL;
    if (len < COPY_MAX) {
        struct iovec iov = {(void *)(uintptr_t)buf, len};
        struct so_uio u;
        int error = so_uio_init(&u, &iov, 1);
        return error ? error : so_send_stream(so, &u, flags, nonblock);
    }
    struct zc_memory *mem = memory_create(so, buf, (uint32_t)MIN(len, (size_t)CALL_MAX), z);
    if (!mem)
        return -ENOBUFS;
    ssize_t n = send_all(so, mem, flags, nonblock);
    if (n > 0) {
        mbuf_ext_drop(&mem->ext);
        return n;
    }
    struct mbuf *self = mem->self; /* nothing refers to it: no notice of what never was */
    count_down(mem->port, z, false);
    (void)mbuf_free(self);
    return n;
}

ssize_t weir_send_zc(int fd, const void *buf, size_t len, int flags, struct weir_zc_send *z)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    ssize_t n = send_zc(r.so, buf, len, flags, z);
    return n < 0 ? api_result(&r, (int)n) : (api_result(&r, 0), n);
}

unsigned weir_zc_pending(const struct weir_zc_send *z)
{
    return __atomic_load_n(&z->pending, __ATOMIC_ACQUIRE);
}
