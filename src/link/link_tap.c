/* SPDX-License-Identifier: BSD-2-Clause
 * TAP interfaces: Ethernet frames to and from the kernel, superframes with virtio-net headers.
 *
 * A frame is one read or write. Reception goes into a staged 64 KB cluster: a large frame keeps it,
 * a small one is copied into a buffer of its own size, so that what waits in a socket buffer costs
 * about what it holds. */
#include "link_tap.h"

#include "link_frame.h"
#include "link_vnet.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#define TAP_DEVICE "/dev/net/tun"
#define TAP_MAX_QUEUES 8
#define TAP_FRAME_MAX (65535 + 14) /* the largest IP packet in its Ethernet frame */
#define TAP_IOV 64 /* pieces of a frame given to one writev; more: copied together first */
#define TAP_COPY_MAX BIGCLUSTER_16K    /* larger frames keep the cluster they arrived in */
#define TAP_RETRY_NS (200 * NS_PER_US) /* when the kernel has no room: when to offer again */
#define TAP_BULK (32u << 10)           /* that many bytes sent are soon acknowledged */
#define TAP_RX_BYTES (256u << 10)      /* of a burst: what follows still finds them in the cache */

struct tap {
    struct weir_stack *stack;
    unsigned queues;
    unsigned next_rx; /* queue to read first: fairness */
    int fd[TAP_MAX_QUEUES];
    int epfd;            /* of all queues; -1 with one */
    struct mbuf *staged; /* empty 64 KB cluster for the next read */
    uint64_t sent;       /* bytes since nothing was there to read */
    uint64_t retry_ns;   /* TIME_NEVER, or when frames were refused */
    uint8_t spill[64];   /* the end of a frame larger than the cluster */
    uint8_t linear[TAP_FRAME_MAX];
};

/* --- sending --- */

/* 0 sent; -EAGAIN not now; else the errno with which the frame was refused. */
static int send_frame(struct tap *t, const struct mbuf *m)
{
    struct virtio_net_hdr_v1 h;
    struct iovec iov[TAP_IOV];
    uint32_t len = m->m_pkt.len;

    t->sent += len;
    if (len > sizeof(t->linear))
        return -EMSGSIZE;
    link_vnet_build(&h, m);
    iov[0] = (struct iovec){.iov_base = &h, .iov_len = sizeof(h)};
    size_t n = link_frame_iov(m, iov + 1, TAP_IOV - 1);
    if (n == 0) {
        mbuf_copy_out(m, 0, len, t->linear);
        if (unlikely(!mbuf_chain_intact(m)))
            return -EIO;
        iov[1] = (struct iovec){.iov_base = t->linear, .iov_len = len};
        n = 1;
    }
    int fd = t->fd[t->queues > 1 ? m->m_pkt.hash % t->queues : 0];
    for (int i = 0; i < 4; i++) {
        ssize_t r = writev(fd, iov, n + 1);
        if (r >= 0)
            return 0; /* a TAP device takes a frame whole or not at all */
        if (errno != EINTR)
            return -errno;
    }
    return -EAGAIN;
}

static size_t tap_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct tap *t = link;
    size_t i;

    t->retry_ns = TIME_NEVER;
    for (i = 0; i < n; i++) {
        int error = send_frame(t, frames[i]);
        if (error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM) {
            t->retry_ns = now_ns + TAP_RETRY_NS;
            break;
        }
        if (error)
            COUNT(t->stack, link_tx_errors);
        if (unlikely(error == -EFAULT)) /* a file was cut: let its window, and so TCP, know */
            (void)mbuf_chain_intact(frames[i]);
        mbuf_free_chain(&frames[i]);
    }
    return i;
}

/* --- reception --- */

static bool stage(struct tap *t)
{
    if (!t->staged)
        t->staged = mbuf_get_size(t->stack->account, BIGCLUSTER_64K);
    return t->staged != NULL;
}

/* The frame of len bytes in the staged cluster (and the spill), or without one in t->linear, as a
 * packet; NULL: no memory. */
static struct mbuf *take_frame(struct tap *t, uint32_t len)
{
    struct mbuf *m;

    if (len <= TAP_COPY_MAX) {
        m = mbuf_get_size(t->stack->account, len);
        if (!m)
            return NULL;
        memcpy(m->m_data, t->staged ? t->staged->m_data : t->linear, len);
        m->m_len = len;
    } else if (!t->staged) {
        return NULL;
    } else {
        uint32_t room = mbuf_storage(t->staged);
        m = t->staged;
        m->m_len = MIN(len, room);
        t->staged = NULL;
        if (len > room) {
            struct mbuf *rest = mbuf_from_bytes(t->stack->account, t->spill, len - room);
            if (!rest) {
                mbuf_free_chain(&m);
                return NULL;
            }
            rest->m_flags &= (uint16_t)~M_PKTHDR;
            m->m_next = rest;
        }
    }
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = len, .segs = 1};
    return m;
}

/* One frame of a queue. 1 with *out; 0 a frame that had to be dropped (counted); -EAGAIN nothing
 * there. */
static int receive_frame(struct tap *t, int fd, uint64_t now_ns, struct mbuf **out)
{
    struct virtio_net_hdr_v1 h;
    /* Short of memory it is read all the same: the acknowledgments that free some are small. */
    bool staged = stage(t);
    struct iovec iov[3] = {{.iov_base = &h, .iov_len = sizeof(h)},
                           {.iov_base = staged ? t->staged->m_data : t->linear,
                            .iov_len = staged ? mbuf_storage(t->staged) : BIGCLUSTER_64K},
                           {.iov_base = t->spill, .iov_len = sizeof(t->spill)}};
    ssize_t r = readv(fd, iov, NELEM(iov));
    if (r < 0) {
        /* Gone: nothing will ever come, but the set would say so for ever. */
        if (errno != EAGAIN && errno != EINTR && t->epfd >= 0)
            (void)epoll_ctl(t->epfd, EPOLL_CTL_DEL, fd, NULL);
        return -EAGAIN;
    }
    uint32_t len = (uint32_t)r - (uint32_t)MIN((size_t)r, sizeof(h));
    if (len < 14 || len > TAP_FRAME_MAX) {
        COUNT(t->stack, link_rx_short);
        return 0;
    }
    struct mbuf *m = take_frame(t, len);
    if (!m) {
        COUNT(t->stack, link_rx_nomem);
        return 0;
    }
    if (link_vnet_apply(&h, m) < 0) {
        COUNT(t->stack, link_rx_bad_offload);
        mbuf_free_chain(&m);
        return 0;
    }
    m->m_pkt.time_ns = now_ns;
    *out = m;
    return 1;
}

static size_t tap_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct tap *t = link;
    size_t got = 0, dropped = 0;
    uint32_t bytes = 0;

    for (unsigned q = 0; q < t->queues && got < n; q++) {
        int fd = t->fd[(t->next_rx + q) % t->queues];
        while (got < n && dropped < n && bytes < TAP_RX_BYTES) {
            int r = receive_frame(t, fd, now_ns, &frames[got]);
            if (r < 0) {
                t->sent = 0;
                break;
            }
            if (r > 0)
                bytes += frames[got]->m_pkt.len;
            got += (size_t)r;
            dropped += r == 0;
        }
    }
    t->next_rx = (t->next_rx + 1) % t->queues;
    return got;
}

/* The kernel acknowledges bulk while it takes it. */
static bool tap_hint(void *link)
{
    return ((struct tap *)link)->sent >= TAP_BULK;
}

static uint64_t tap_next_deadline(void *link)
{
    return ((struct tap *)link)->retry_ns;
}

static int tap_fd(void *link)
{
    struct tap *t = link;

    return t->epfd >= 0 ? t->epfd : t->fd[0];
}

static bool tap_pending(void *link)
{
    struct pollfd p = {.fd = tap_fd(link), .events = POLLIN};

    return poll(&p, 1, 0) > 0 && (p.revents & POLLIN);
}

static void tap_close(void *link)
{
    struct tap *t = link;
    struct weir_alloc alloc = t->stack->alloc;

    mbuf_free_chain(&t->staged);
    for (unsigned q = 0; q < t->queues; q++)
        close(t->fd[q]);
    if (t->epfd >= 0)
        close(t->epfd);
    alloc_free(&alloc, t, sizeof(*t));
}

static const struct netif_ops tap_ops = {
    .tx = tap_tx,
    .rx = tap_rx,
    .next_deadline = tap_next_deadline,
    .fd = tap_fd,
    .pending = tap_pending,
    .hint = tap_hint,
    .close = tap_close,
};

/* --- opening --- */

static void explain(char *err, size_t err_size, const char *ifname, int error)
{
    const char *why = strerror(-error);

    if (error == -EPERM || error == -EACCES)
        why = "no permission: make it first (ip tuntap add mode tap user NAME), or run as root";
    else if (error == -EBUSY)
        why = "in use by another process";
    else if (error == -ENOENT || error == -ENODEV)
        why = "this system has no " TAP_DEVICE;
    else if (error == -EINVAL)
        why = "exists and is not a TAP interface that can be used so";
    snprintf(err, err_size, "tap interface %s: %s", ifname, why);
}

/* A queue of the interface: descriptor or negative error. */
static int open_queue(const char *ifname, short extra_flags)
{
    struct ifreq ifr = {.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | extra_flags)};
    int size = LINK_VNET_HEADER, fd = open(TAP_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    unsigned long offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;

    if (fd < 0)
        return -errno;
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
    if (ioctl(fd, TUNSETIFF, &ifr) < 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) < 0 ||
        ioctl(fd, TUNSETOFFLOAD, offload) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

/* All queues; an existing interface decides whether it is of the many-queued kind. */
static int open_queues(struct tap *t, const char *ifname, unsigned queues)
{
    int fd = queues > 1 ? -EINVAL : open_queue(ifname, 0);
    short flags = 0;

    if (fd == -EINVAL) {
        flags = IFF_MULTI_QUEUE;
        fd = open_queue(ifname, flags);
    }
    for (unsigned q = 0; fd >= 0; fd = open_queue(ifname, flags)) {
        t->fd[q++] = fd;
        t->queues = q;
        if (q == queues)
            return 0;
    }
    return fd;
}

static int epoll_all(struct tap *t)
{
    if (t->queues == 1)
        return 0;
    t->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epfd < 0)
        return -errno;
    for (unsigned q = 0; q < t->queues; q++) {
        struct epoll_event ev = {.events = EPOLLIN};
        if (epoll_ctl(t->epfd, EPOLL_CTL_ADD, t->fd[q], &ev) < 0)
            return -errno;
    }
    return 0;
}

/* The interface's MTU, set to *mtu first if that is not 0 and differs; brings an interface up that
 * we made. */
static int configure(const char *ifname, bool made, uint32_t *mtu)
{
    struct ifreq ifr = {0};
    int error = 0, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
    if (ioctl(fd, SIOCGIFMTU, &ifr) < 0) {
        error = -errno;
    } else if (*mtu == 0) {
        *mtu = (uint32_t)ifr.ifr_mtu;
    } else if (*mtu != (uint32_t)ifr.ifr_mtu) {
        uint32_t theirs = (uint32_t)ifr.ifr_mtu;
        ifr.ifr_mtu = (int)*mtu;
        /* Sending less than the interface carries is always right; more is not. */
        if (ioctl(fd, SIOCSIFMTU, &ifr) < 0 && *mtu > theirs)
            error = -errno;
    }
    if (!error && made) {
        if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0) {
            error = -errno;
        } else {
            ifr.ifr_flags |= IFF_UP;
            if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
                error = -errno;
        }
    }
    close(fd);
    return error;
}

int link_tap_open(struct weir_stack *s, const struct link_tap_config *cfg, struct link_end *end,
                  char *err, size_t err_size)
{
    unsigned queues = MAX(cfg->queues, 1);
    uint32_t mtu = cfg->mtu;
    int error = -ENOMEM;

    CHECK(queues <= TAP_MAX_QUEUES);
    if (strlen(cfg->ifname) >= IFNAMSIZ) {
        snprintf(err, err_size, "tap interface %s: the name is too long", cfg->ifname);
        return -EINVAL;
    }
    bool made = if_nametoindex(cfg->ifname) == 0;
    struct tap *t = alloc_zero(&s->alloc, sizeof(*t));
    if (t) {
        t->stack = s;
        t->epfd = -1;
        t->retry_ns = TIME_NEVER;
        error = open_queues(t, cfg->ifname, queues);
        if (!error)
            error = epoll_all(t);
        if (!error)
            error = configure(cfg->ifname, made, &mtu);
    }
    if (error) {
        explain(err, err_size, cfg->ifname, error);
        if (t)
            tap_close(t);
        return error;
    }
    *end = (struct link_end){
        .ops = &tap_ops,
        .link = t,
        .mtu = mtu,
        .caps = NETIF_CAP_CSUM_TX | NETIF_CAP_CSUM_RX | NETIF_CAP_TSO4 | NETIF_CAP_TSO6,
    };
    if (cfg->mac) {
        memcpy(end->mac, cfg->mac, sizeof(end->mac));
    } else {
        if (getrandom(end->mac, sizeof(end->mac), 0) < 0)
            memcpy(end->mac, &t, sizeof(end->mac));
        end->mac[0] =
            (uint8_t)((end->mac[0] & 0xfe) | 0x02); /* one station, locally administered */
    }
    return 0;
}
