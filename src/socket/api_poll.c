/* SPDX-License-Identifier: BSD-2-Clause
 * The public calls on many descriptors: poll and epoll sets. */
#include "api.h"
#include "base/alloc.h"
#include "base/cputime.h"
#include "so_watch.h"
#include <poll.h>

/* --- epoll --- */

int weir_epoll_create(int flags)
{
    if (flags & ~EPOLL_CLOEXEC) {
        errno = EINVAL;
        return -1;
    }
    int index = desc_reserve();
    if (index < 0) {
        errno = -index;
        return -1;
    }
    struct poll_set *set = alloc_zero(desc_alloc(), sizeof *set);
    if (!set) {
        desc_cancel(index);
        errno = ENOMEM;
        return -1;
    }
    poll_set_init(set);
    return desc_commit(index, DESC_SET, set);
}

static int do_ctl(struct poll_set *set, int op, int fd, struct desc_ref *target,
                  const struct epoll_event *event)
{
    bool is_set = target->kind == DESC_SET;

    switch (op) {
    case EPOLL_CTL_ADD:
        return poll_set_add(set, fd, is_set ? NULL : target->so, is_set ? target->set : NULL,
                            event);
    case EPOLL_CTL_MOD:
        return poll_set_modify(set, fd, event);
    case EPOLL_CTL_DEL:
        return poll_set_remove(set, fd);
    default:
        return -EINVAL;
    }
}

int weir_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    struct desc_ref ep, target;
    int error;

    if (op != EPOLL_CTL_DEL && !event) {
        errno = EFAULT;
        return -1;
    }
    if (!desc_get(epfd, &ep)) {
        errno = EBADF;
        return -1;
    }
    if (!desc_get(fd, &target))
        return api_result(&ep, -EBADF);
    if (ep.kind == DESC_FOREIGN || target.kind == DESC_FOREIGN)
        error = -EIO;
    else if (ep.kind != DESC_SET || ep.obj == target.obj)
        error = -EINVAL;
    else
        error = do_ctl(ep.set, op, fd, &target, event);
    desc_put(&target);
    return api_result(&ep, error);
}

/* The deadline of a timeout in ms; 0: do not wait. */
static uint64_t timeout_deadline(const struct port *port, int timeout_ms)
{
    if (timeout_ms == 0)
        return 0;
    return timeout_ms < 0 ? TIME_NEVER : port->now_ns(port->ctx) + (uint64_t)timeout_ms * NS_PER_MS;
}

int weir_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms)
{
    const struct port *port = watch_get_port();
    struct desc_ref ep;

    if (!desc_get(epfd, &ep)) {
        errno = EBADF;
        return -1;
    }
    if (ep.kind != DESC_SET || max <= 0)
        return api_result(&ep, ep.kind == DESC_FOREIGN ? -EIO : -EINVAL);
    if (!port) /* no stack was ever made: nothing can come */
        return api_result(&ep, timeout_ms == 0 ? 0 : -EINVAL);
    cputime_switch(CPU_CALL);
    return api_result(&ep,
                      poll_set_wait(ep.set, port, events, max, timeout_deadline(port, timeout_ms)));
}

/* --- poll --- */

#define POLL_ON_STACK 8
#define POLL_MAX (1u << 20) /* descriptors there can be */

struct poll_item {
    struct desc_ref ref;
    struct poll_watch watch;
    bool open;
};

static short item_bits(struct poll_item *it, short events)
{
    if (it->ref.kind == DESC_FOREIGN)
        return POLLERR;
    short bits =
        it->ref.kind == DESC_SOCKET ? so_poll_bits(it->ref.so) : poll_set_bits(it->ref.set);

    return bits & (short)(events | POLLERR | POLLHUP);
}

static int look(struct pollfd *fds, struct poll_item *items, nfds_t n)
{
    int ready = 0;

    for (nfds_t i = 0; i < n; i++) {
        fds[i].revents = 0;
        if (items[i].open)
            fds[i].revents = item_bits(&items[i], fds[i].events);
        else if (fds[i].fd >= 0)
            fds[i].revents = POLLNVAL;
        ready += fds[i].revents != 0;
    }
    return ready;
}

/* One socket: its own word will do. */
static int wait_one(struct pollfd *fd, struct poll_item *it, uint64_t deadline)
{
    for (;;) {
        uint32_t seq = so_event_seq(it->ref.so);
        int ready = look(fd, it, 1);
        if (ready)
            return ready;
        int error = so_wait(it->ref.so, seq, deadline);
        if (error)
            return error == -EAGAIN ? look(fd, it, 1) : error;
    }
}

static int wait_many(struct pollfd *fds, struct poll_item *items, nfds_t n, const struct port *port,
                     uint64_t deadline)
{
    struct poll_set set;
    int result;

    poll_set_init(&set);
    for (nfds_t i = 0; i < n; i++) {
        struct poll_item *it = &items[i];
        bool is_socket = it->ref.kind == DESC_SOCKET;
        it->watch.fd = -1;
        if (it->open)
            poll_set_attach(&set, &it->watch, is_socket ? it->ref.so : NULL,
                            is_socket ? NULL : it->ref.set,
                            (uint16_t)(fds[i].events | POLLERR | POLLHUP));
    }
    for (;;) {
        uint32_t seq = event_seq(&set.event);
        result = look(fds, items, n);
        if (result)
            break;
        result = poll_set_sleep(&set, port, seq, deadline);
        if (result == -EAGAIN)
            result = look(fds, items, n);
        else if (result == 0)
            continue;
        break;
    }
    for (nfds_t i = 0; i < n; i++)
        if (items[i].open)
            poll_set_detach(&set, &items[i].watch);
    return result;
}

static int poll_items(struct pollfd *fds, struct poll_item *items, nfds_t n, int timeout_ms)
{
    const struct port *port = watch_get_port();

    for (nfds_t i = 0; i < n; i++)
        items[i].open = fds[i].fd >= 0 && desc_get(fds[i].fd, &items[i].ref);
    int result = look(fds, items, n);
    if (result == 0 && timeout_ms != 0) {
        uint64_t deadline = port ? timeout_deadline(port, timeout_ms) : 0;
        if (!port)
            result = -EINVAL;
        else if (n == 1 && items[0].open && items[0].ref.kind == DESC_SOCKET)
            result = wait_one(fds, items, deadline);
        else
            result = wait_many(fds, items, n, port, deadline);
    }
    for (nfds_t i = 0; i < n; i++)
        if (items[i].open)
            desc_put(&items[i].ref);
    return result;
}

int weir_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct poll_item few[POLL_ON_STACK], *items = few;

    if (n > POLL_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (n > POLL_ON_STACK) {
        items = alloc_zero(desc_alloc(), n * sizeof *items);
        if (!items) {
            errno = ENOMEM;
            return -1;
        }
    } else {
        memset(few, 0, n * sizeof *few);
    }
    cputime_switch(CPU_CALL);
    int result = poll_items(fds, items, n, timeout_ms);
    cputime_switch(CPU_APP);
    if (items != few)
        alloc_free(desc_alloc(), items, n * sizeof *items);
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}
