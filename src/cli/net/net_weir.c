/* SPDX-License-Identifier: BSD-2-Clause
 * Sockets of a Weir stack. */
#include "cli/net/net.h"

#include "runtime/runtime.h"
#include "weir/socket.h"

#include <sched.h>
#include <time.h>

static int w_socket(struct weir_stack *s, int domain, int type)
{
    return weir_socket(s, domain, type, 0);
}

static int w_epoll_create(void)
{
    return weir_epoll_create(0);
}

const struct net_ops net_weir_ops = {
    .name = "weir",
    .socket = w_socket,
    .bind = weir_bind,
    .listen = weir_listen,
    .accept = weir_accept4,
    .connect = weir_connect,
    .send = weir_send,
    .recv = weir_recv,
    .sendto = weir_sendto,
    .recvfrom = weir_recvfrom,
    .sendfile = weir_sendfile_linux,
    .shutdown = weir_shutdown,
    .close = weir_close,
    .poll = weir_poll,
    .epoll_create = w_epoll_create,
    .epoll_ctl = weir_epoll_ctl,
    .epoll_wait = weir_epoll_wait,
    .getsockopt = weir_getsockopt,
    .setsockopt = weir_setsockopt,
    .getsockname = weir_getsockname,
};

uint64_t net_stack_cpu_ns(const struct net *n)
{
    clockid_t clock;
    struct timespec ts;
    if (n->stack == NULL || pthread_getcpuclockid(runtime_of(n->stack)->thread, &clock) != 0 ||
        clock_gettime(clock, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

int net_stack_pin(const struct net *n, int cpu)
{
    cpu_set_t set;
    if (n->stack == NULL)
        return 0;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(runtime_of(n->stack)->thread, sizeof(set), &set);
}
