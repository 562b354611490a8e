/* SPDX-License-Identifier: BSD-2-Clause
 * TCP-level options of both stacks; apart, because linux/tcp.h (whose struct tcp_info is the full
 * one) does not go with netinet/tcp.h. */
#include "cli/net/net.h"

#include <linux/tcp.h>

bool net_tcp_info(const struct net *n, int fd, struct net_tcp_info *out)
{
    struct tcp_info ti = {0};
    socklen_t len = sizeof(ti);
    if (n->ops->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) != 0)
        return false;
    *out = (struct net_tcp_info){
        .state = ti.tcpi_state,
        .retransmits = ti.tcpi_total_retrans,
        .cwnd_bytes = (uint64_t)ti.tcpi_snd_cwnd * ti.tcpi_snd_mss,
        .rtt_us = ti.tcpi_rtt,
        .unacked = ti.tcpi_unacked,
    };
    return true;
}

int net_set_cc(const struct net *n, int fd, const char *name)
{
    return n->ops->setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

int net_set_nodelay(const struct net *n, int fd)
{
    return net_set_int(n, fd, IPPROTO_TCP, TCP_NODELAY, 1);
}
