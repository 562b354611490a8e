/* SPDX-License-Identifier: BSD-2-Clause
 * A link with descriptors: a frame is a record. */
#include "wire_link.h"

#include "ip/netif.h"
#include "runtime/runtime.h"
#include "stack.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX 2000

#define RETRY_NS (200 * NS_PER_US)

struct wire {
    int fd;
    uint64_t retry_ns;
    struct weir_stack *stack;
};

static size_t wire_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct wire *w = link;
    uint8_t frame[FRAME_MAX];
    size_t i;

    w->retry_ns = TIME_NEVER;
    for (i = 0; i < n; i++) {
        uint32_t len = frames[i]->m_pkt.len;
        CHECK(len <= sizeof(frame));
        mbuf_copy_out(frames[i], 0, len, frame);
        if (send(w->fd, frame, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN) {
            w->retry_ns = now_ns + RETRY_NS;
            break;
        }
        mbuf_free_chain(&frames[i]);
    }
    return i;
}

static uint64_t wire_next_deadline(void *link)
{
    return ((const struct wire *)link)->retry_ns;
}

static size_t wire_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    const struct wire *w = link;
    uint8_t frame[FRAME_MAX];
    size_t got = 0;

    while (got < n) {
        ssize_t len = recv(w->fd, frame, sizeof(frame), MSG_DONTWAIT);
        if (len <= 0)
            break;
        struct mbuf *m = mbuf_from_bytes(w->stack->account, frame, (size_t)len);
        if (!m)
            continue;
        m->m_flags |= M_PKTHDR;
        m->m_pkt = (struct mbuf_pkt){.len = (uint32_t)len, .segs = 1, .time_ns = now_ns};
        frames[got++] = m;
    }
    return got;
}

static int wire_fd(void *link)
{
    return ((const struct wire *)link)->fd;
}

static void wire_close(void *link)
{
    struct wire *w = link;

    close(w->fd);
    free(w);
}

static const struct netif_ops wire_ops = {
    .tx = wire_tx,
    .rx = wire_rx,
    .next_deadline = wire_next_deadline,
    .fd = wire_fd,
    .close = wire_close,
};

static void attach(struct weir_stack *s, int fd, uint8_t host)
{
    struct wire *w = malloc(sizeof(*w));
    struct ipaddr a = ipaddr_v4(0x0a000000u + host);

    CHECK(w != NULL);
    *w = (struct wire){fd, TIME_NEVER, s};
    struct netif_config cfg = {
        .name = "wire", .ops = &wire_ops, .link = w, .caps = NETIF_CAP_L3, .mtu = 1500};
    CHECK(owner_acquire(s) == 0);
    struct netif *nif = netif_create(s, &cfg);
    CHECK(nif != NULL && netif_add_addr(nif, &a, 24) == 0);
    runtime_links_changed(s);
    stack_leave(s);
}

void wire_link_join(struct weir_stack *a, struct weir_stack *b)
{
    int fd[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
    attach(a, fd[0], 1);
    attach(b, fd[1], 2);
}

void wire_link_broken(struct weir_stack *s)
{
    int fd[2];

    CHECK(pipe(fd) == 0);
    close(fd[1]); /* a hang-up for ever, and nothing to read */
    attach(s, fd[0], 3);
}
