/* SPDX-License-Identifier: BSD-2-Clause
 * AF_PACKET: a station of its own on an existing Ethernet interface.
 *
 * How it works. The stack has a station address of its own, so the kernel takes frames for it for
 * somebody else's and drops its copies; a filter on the socket lets only these and group frames in.
 * Received frames lie in a ring that is looked at without a system call and are copied out; frames
 * larger than a slot (superframes of a sender whose interface does not cut) wait in the socket's
 * queue and are read from there, in the order of their slots. Sending takes superframes with a
 * virtio-net header, a burst a system call: the kernel cuts them where the interface does not. */
#include "link_packet.h"

#include "link_packet_ring.h"
#include "link_frame.h"
#include "link_vnet.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PACKET_BURST 64
#define PACKET_IOV 512      /* of a burst */
#define PACKET_FRAME_IOV 64 /* of a frame; more pieces: copied together first */
#define PACKET_FRAME_MAX (65535 + ETH_HLEN)
#define PACKET_COPY_MAX BIGCLUSTER_16K /* larger frames keep the cluster they were read into */
#define PACKET_BULK (32u << 10)        /* that many bytes sent are soon acknowledged */
#define PACKET_RETRY_NS (200 * NS_PER_US)
#define PACKET_LOOK_NS NS_PER_MS /* between looks at the socket's error while nothing comes */
#define PACKET_SOCKET_BUFFER (8 << 20)
#define VNET_SIZE sizeof(struct virtio_net_hdr)

struct packet_link {
    struct weir_stack *stack;
    struct packet_ring ring;
    int fd, epfd;               /* epfd: so that an error of the socket shows as readable */
    int claim[NETIF_MAX_ADDRS]; /* what keeps the addresses ours; -1 none */
    struct mbuf *staged;        /* empty 64 KB cluster for the next superframe */
    uint64_t retry_ns;          /* TIME_NEVER, or when frames were refused */
    uint64_t looked_ns;         /* at the socket's error */
    uint64_t sent;              /* bytes since packet_hint said yes */
    struct mmsghdr msg[PACKET_BURST];
    struct virtio_net_hdr_v1 vnet[PACKET_BURST];
    struct iovec iov[PACKET_IOV];
    uint8_t spill[64]; /* the end of a frame larger than the cluster */
    uint8_t linear[PACKET_FRAME_MAX];
};

/* --- sending --- */

/* Fill messages with frames until there is no room. Returns how many; a frame of too many pieces
 * goes alone, made contiguous. 0: the first one's data have vanished (files that are cut). */
static size_t fill_messages(struct packet_link *l, struct mbuf **frames, size_t n)
{
    size_t used = 0, i;

    for (i = 0; i < MIN(n, (size_t)PACKET_BURST); i++) {
        struct iovec *iov = &l->iov[used];
        if (PACKET_IOV - used < 2)
            break;
        size_t room = MIN(PACKET_IOV - used - 1, (size_t)PACKET_FRAME_IOV);
        size_t pieces = link_frame_iov(frames[i], iov + 1, room);
        if (pieces == 0) {
            if (i > 0)
                break;
            uint32_t len = MIN(frames[0]->m_pkt.len, (uint32_t)PACKET_FRAME_MAX);
            mbuf_copy_out(frames[0], 0, len, l->linear);
            if (unlikely(!mbuf_chain_intact(frames[0])))
                return 0;
            iov[1] = (struct iovec){.iov_base = l->linear, .iov_len = len};
            pieces = 1;
            n = 1;
        }
        link_vnet_build(&l->vnet[i], frames[i]);
        iov[0] = (struct iovec){.iov_base = &l->vnet[i], .iov_len = VNET_SIZE};
        l->msg[i].msg_hdr = (struct msghdr){.msg_iov = iov, .msg_iovlen = pieces + 1};
        used += pieces + 1;
    }
    return i;
}

/* Hand frames to the kernel. Returns how many it took or refused for good (counted); 0: none now.
 */
static size_t send_some(struct packet_link *l, struct mbuf **frames, size_t n)
{
    size_t filled = fill_messages(l, frames, n);
    int r = filled ? sendmmsg(l->fd, l->msg, (unsigned)filled, MSG_DONTWAIT) : 0;

    if (r > 0)
        return (size_t)r;
    if (r < 0 && errno == EFAULT) /* a file was cut: let its window, and so TCP, know */
        (void)mbuf_chain_intact(frames[0]);
    else if (r < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR))
        return 0;
    COUNT(l->stack, link_tx_errors);
    return 1;
}

static size_t packet_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct packet_link *l = link;
    size_t done = 0;

    l->retry_ns = TIME_NEVER;
    while (done < n) {
        size_t took = send_some(l, frames + done, n - done);
        if (took == 0) {
            l->retry_ns = now_ns + PACKET_RETRY_NS;
            break;
        }
        for (size_t i = 0; i < took; i++) {
            l->sent += frames[done + i]->m_pkt.len;
            mbuf_free_chain(&frames[done + i]);
        }
        done += took;
    }
    return done;
}

/* --- reception --- */

/* The frame of a slot that holds it whole. NULL: no memory. */
static struct mbuf *copy_slot(struct packet_link *l, const struct packet_slot *slot,
                              struct virtio_net_hdr_v1 *vnet)
{
    struct mbuf *m = mbuf_get_size(l->stack->account, slot->len);

    if (!m)
        return NULL;
    memcpy(vnet, slot->vnet, VNET_SIZE);
    memcpy(m->m_data, slot->data, slot->len);
    m->m_len = slot->len;
    return m;
}

/* What was read into the staged cluster and the spill, as a chain; NULL: no memory. */
static struct mbuf *take_staged(struct packet_link *l, uint32_t len)
{
    struct mbuf *m = l->staged, *rest;
    uint32_t room = mbuf_storage(m);

    if (len <= PACKET_COPY_MAX) {
        m = mbuf_get_size(l->stack->account, len);
        if (m) {
            memcpy(m->m_data, l->staged->m_data, len);
            m->m_len = len;
        }
        return m;
    }
    m->m_len = MIN(len, room);
    l->staged = NULL;
    if (len > room) {
        rest = mbuf_from_bytes(l->stack->account, l->spill, len - room);
        if (!rest) {
            mbuf_free_chain(&m);
            return NULL;
        }
        rest->m_flags &= (uint16_t)~M_PKTHDR;
        m->m_next = rest;
    }
    return m;
}

/* The frame of a slot that says TP_STATUS_COPY, from the socket's queue, where it must be taken off
 * in any case. NULL: no memory, or `wanted` is false. */
static struct mbuf *read_queued(struct packet_link *l, bool wanted, struct virtio_net_hdr_v1 *vnet)
{
    if (!l->staged && wanted)
        l->staged = mbuf_get_size(l->stack->account, BIGCLUSTER_64K);
    wanted &= l->staged != NULL;
    struct iovec iov[3] = {
        {.iov_base = vnet, .iov_len = VNET_SIZE},
        {.iov_base = wanted ? l->staged->m_data : l->linear,
         .iov_len = wanted ? mbuf_storage(l->staged) : 1},
        {.iov_base = l->spill, .iov_len = wanted ? sizeof(l->spill) : 0},
    };
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = NELEM(iov)};
    ssize_t r = recvmsg(l->fd, &msg, MSG_DONTWAIT);
    /* A waiting error is given first, and the frame stays: it would be taken for the next one's. */
    for (int i = 0; i < 4 && unlikely(r < 0) && errno != EAGAIN; i++) {
        COUNT(l->stack, link_down);
        r = recvmsg(l->fd, &msg, MSG_DONTWAIT);
    }
    if (r < (ssize_t)(VNET_SIZE + ETH_HLEN) || !wanted || (msg.msg_flags & MSG_TRUNC))
        return NULL;
    return take_staged(l, (uint32_t)r - (uint32_t)VNET_SIZE);
}

/* Frames that the ring had no room for. Asking also takes TP_STATUS_LOSING off. */
static void count_lost(struct packet_link *l)
{
    struct tpacket_stats st;
    socklen_t len = sizeof(st);

    if (getsockopt(l->fd, SOL_PACKET, PACKET_STATISTICS, &st, &len) == 0)
        COUNT_ADD(l->stack, link_rx_ring_full, st.tp_drops);
}

/* The frame in a slot; NULL: dropped, counted but where it was none of ours. */
static struct mbuf *take_slot(struct packet_link *l, const struct packet_slot *slot)
{
    struct weir_stack *s = l->stack;
    struct virtio_net_hdr_v1 vnet = {0};
    bool own = slot->packet_type == PACKET_OUTGOING, queued = slot->status & TP_STATUS_COPY;
    bool whole = slot->have == slot->len, wanted = !own && slot->vlan_id == 0;
    struct mbuf *m = NULL;

    if (unlikely(slot->status & TP_STATUS_LOSING))
        count_lost(l);
    if (unlikely(queued))
        m = read_queued(l, wanted, &vnet);
    else if (likely(wanted && whole && slot->len >= ETH_HLEN))
        m = copy_slot(l, slot, &vnet);
    if (unlikely(!m)) {
        if (slot->vlan_id != 0 && !own)
            COUNT(s, link_rx_vlan);
        else if (slot->len < ETH_HLEN)
            COUNT(s, link_rx_short);
        else if (!own)
            COUNT(s, link_rx_nomem);
        return NULL;
    }
    m->m_flags |= M_PKTHDR;
    m->m_pkt = (struct mbuf_pkt){.len = mbuf_chain_len(m), .segs = 1};
    if (link_vnet_apply(&vnet, m) < 0) {
        COUNT(s, link_rx_bad_offload);
        mbuf_free_chain(&m);
    }
    return m;
}

/* An error of the socket makes its descriptor readable until somebody asks for it: the interface
 * went down, or away. */
static void look_at_error(struct packet_link *l, uint64_t now_ns)
{
    int error = 0;
    socklen_t len = sizeof(error);

    l->looked_ns = now_ns;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error != 0)
        COUNT(l->stack, link_down);
}

static size_t packet_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct packet_link *l = link;
    struct packet_slot slot;
    size_t got = 0, seen;

    for (seen = 0; got < n && seen < 2 * n && packet_ring_peek(&l->ring, &slot); seen++) {
        struct mbuf *m = take_slot(l, &slot);
        packet_ring_pop(&l->ring);
        if (likely(m != NULL)) {
            m->m_pkt.time_ns = now_ns;
            frames[got++] = m;
        }
    }
    if (seen == 0 && now_ns - l->looked_ns >= PACKET_LOOK_NS)
        look_at_error(l, now_ns);
    return got;
}

static uint64_t packet_next_deadline(void *link)
{
    return ((struct packet_link *)link)->retry_ns;
}

static int packet_fd(void *link)
{
    return ((struct packet_link *)link)->epfd;
}

static bool packet_pending(void *link)
{
    return packet_ring_pending(&((struct packet_link *)link)->ring);
}

/* The answer to bulk that was sent. What is received meanwhile stays in the ring: the application
 * had better take first what it has already. */
static bool packet_hint(void *link)
{
    struct packet_link *l = link;

    if (l->sent < PACKET_BULK || !packet_ring_pending(&l->ring))
        return false;
    l->sent = 0;
    return true;
}

static void packet_close(void *link)
{
    struct packet_link *l = link;
    struct weir_alloc alloc = l->stack->alloc;

    mbuf_free_chain(&l->staged);
    packet_ring_fini(&l->ring);
    if (l->epfd >= 0)
        close(l->epfd);
    if (l->fd >= 0)
        close(l->fd);
    for (unsigned i = 0; i < NETIF_MAX_ADDRS; i++)
        if (l->claim[i] >= 0)
            close(l->claim[i]);
    alloc_free(&alloc, l, sizeof(*l));
}

static const struct netif_ops packet_ops = {
    .tx = packet_tx,
    .rx = packet_rx,
    .next_deadline = packet_next_deadline,
    .fd = packet_fd,
    .pending = packet_pending,
    .hint = packet_hint,
    .pending_is_cheap = true,
    .close = packet_close,
};

/* --- opening --- */

struct interface {
    int index;
    uint32_t mtu;
    uint8_t mac[6];
};

static int refuse(char *err, size_t err_size, const char *ifname, int error, const char *why)
{
    snprintf(err, err_size, "interface %s: %s", ifname, why ? why : strerror(-error));
    return error;
}

/* Does the kernel hold one of the addresses on the interface? It would answer what is sent to us.
 */
static int address_is_kernels(const struct link_packet_config *cfg, char *err, size_t err_size)
{
    struct ifaddrs *list, *i;
    int error = 0;

    if (getifaddrs(&list) < 0)
        return refuse(err, err_size, cfg->ifname, -errno, NULL);
    for (i = list; i && !error; i = i->ifa_next) {
        struct ipaddr a = {0};
        char text[64], why[256];
        if (!i->ifa_addr || strcmp(i->ifa_name, cfg->ifname) != 0)
            continue;
        a.family = (uint8_t)i->ifa_addr->sa_family;
        if (a.family == AF_INET)
            memcpy(a.b, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, 4);
        else if (a.family == AF_INET6)
            memcpy(a.b, &((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr, 16);
        else
            continue;
        for (unsigned k = 0; k < cfg->addr_count && !error; k++) {
            const struct ipaddr *ours = &cfg->addr[k].addr;
            if (ours->family != a.family || memcmp(ours->b, a.b, sizeof(a.b)) != 0)
                continue;
            snprintf(why, sizeof(why),
                     "the kernel holds %s there and would answer with resets: choose another "
                     "address, or take it away (ip addr del %s dev %.16s)",
                     ipaddr_format(&a, text, sizeof(text)), text, cfg->ifname);
            error = refuse(err, err_size, cfg->ifname, -EADDRINUSE, why);
        }
    }
    freeifaddrs(list);
    return error;
}

/* What the kernel says about the interface; refuses what cannot work. */
static int examine(int fd, const struct link_packet_config *cfg, struct interface *out, char *err,
                   size_t err_size)
{
    struct ifreq ifr = {0};
    char why[96];

    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", cfg->ifname);
    if (ioctl(fd, SIOCGIFINDEX, &ifr) < 0)
        return refuse(err, err_size, cfg->ifname, -errno,
                      errno == ENODEV ? "there is no such interface" : NULL);
    out->index = ifr.ifr_ifindex;
    if (ioctl(fd, SIOCGIFHWADDR, &ifr) < 0)
        return refuse(err, err_size, cfg->ifname, -errno, NULL);
    if (ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER)
        return refuse(err, err_size, cfg->ifname, -EINVAL, "carries no Ethernet frames");
    memcpy(out->mac, ifr.ifr_hwaddr.sa_data, sizeof(out->mac));
    if (ioctl(fd, SIOCGIFMTU, &ifr) < 0)
        return refuse(err, err_size, cfg->ifname, -errno, NULL);
    uint32_t theirs = (uint32_t)MIN(ifr.ifr_mtu, 65535);
    if (cfg->mtu > theirs) {
        snprintf(why, sizeof(why), "mtu=%u: it carries %u bytes at most", cfg->mtu, theirs);
        return refuse(err, err_size, cfg->ifname, -EINVAL, why);
    }
    out->mtu = cfg->mtu ? cfg->mtu : theirs;
    if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
        return refuse(err, err_size, cfg->ifname, -errno, NULL);
    if (!(ifr.ifr_flags & IFF_UP)) {
        snprintf(why, sizeof(why), "is down (ip link set %.16s up)", cfg->ifname);
        return refuse(err, err_size, cfg->ifname, -ENETDOWN, why);
    }
    return address_is_kernels(cfg, err, err_size);
}

/* Stations on one interface do not hear each other, so that two with one address would find no
 * conflict by ARP. A name in the network namespace, which goes with its socket, stands for each
 * address. */
static int claim_addresses(struct packet_link *l, const struct interface *nic,
                           const struct link_packet_config *cfg, char *err, size_t err_size)
{
    for (unsigned i = 0; i < MIN(cfg->addr_count, (unsigned)NETIF_MAX_ADDRS); i++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        char text[64], why[128];

        ipaddr_format(&cfg->addr[i].addr, text, sizeof(text));
        int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "weir-packet-%d-%s",
                         nic->index, text);
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
        l->claim[i] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (l->claim[i] < 0)
            return refuse(err, err_size, cfg->ifname, -errno, NULL);
        if (bind(l->claim[i], (struct sockaddr *)&name, len) < 0) {
            snprintf(why, sizeof(why), "another Weir stack has %s there", text);
            return refuse(err, err_size, cfg->ifname, -errno, errno == EADDRINUSE ? why : NULL);
        }
    }
    return 0;
}

/* Only frames for this station and for groups. */
static int attach_filter(int fd, const uint8_t mac[6])
{
    uint32_t high, low = (uint32_t)(mac[4] << 8 | mac[5]);
    memcpy(&high, mac, sizeof(high));
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 4, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(high), 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog prog = {.len = NELEM(code), .filter = code};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0 ? -errno : 0;
}

/* The interface must hear our station's address, and all groups: neighbour discovery uses them. */
static int join(int fd, int index, const uint8_t mac[6], bool own_mac)
{
    struct packet_mreq mr = {.mr_ifindex = index, .mr_type = PACKET_MR_ALLMULTI};

    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mr, sizeof(mr)) < 0)
        return -errno;
    if (!own_mac)
        return 0;
    mr.mr_type = PACKET_MR_UNICAST;
    mr.mr_alen = 6;
    memcpy(mr.mr_address, mac, 6);
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mr, sizeof(mr)) == 0)
        return 0;
    mr.mr_type = PACKET_MR_PROMISC;
    return setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mr, sizeof(mr)) < 0 ? -errno : 0;
}

static void set_buffer(int fd, int force, int plain)
{
    int size = PACKET_SOCKET_BUFFER;

    if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof(size)) < 0)
        (void)setsockopt(fd, SOL_SOCKET, plain, &size, sizeof(size));
}

/* Everything that is set before the first frame may come, then bind. */
static int prepare(struct packet_link *l, const struct interface *nic, const uint8_t mac[6],
                   uint32_t ring_bytes)
{
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = nic->index};
    int on = 1, thresh = 1;

    set_buffer(l->fd, SO_RCVBUFFORCE, SO_RCVBUF);
    set_buffer(l->fd, SO_SNDBUFFORCE, SO_SNDBUF);
    if (setsockopt(l->fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
        setsockopt(l->fd, SOL_PACKET, PACKET_COPY_THRESH, &thresh, sizeof(thresh)) < 0)
        return -errno;
    (void)setsockopt(l->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
    int error = attach_filter(l->fd, mac);
    if (!error)
        error = packet_ring_init(&l->ring, l->fd, nic->mtu + ETH_HLEN, ring_bytes);
    if (!error)
        error = join(l->fd, nic->index, mac, memcmp(mac, nic->mac, 6) != 0);
    if (!error && bind(l->fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        error = -errno;
    struct epoll_event ev = {.events = EPOLLIN};
    if (!error && epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->fd, &ev) < 0)
        error = -errno;
    return error;
}

static struct packet_link *create(struct weir_stack *s)
{
    struct packet_link *l = alloc_zero(&s->alloc, sizeof(*l));

    if (!l)
        return NULL;
    l->stack = s;
    l->retry_ns = TIME_NEVER;
    memset(l->claim, -1, sizeof(l->claim));
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    /* Protocol 0: nothing is received before bind. */
    l->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return l;
}

static void choose_mac(uint8_t mac[6], const uint8_t *wanted)
{
    if (wanted) {
        memcpy(mac, wanted, 6);
        return;
    }
    if (getrandom(mac, 6, 0) != 6)
        memcpy(mac, &mac, 6);
    mac[0] = (uint8_t)((mac[0] & 0xfe) | 0x02); /* one station, locally administered */
}

int link_packet_open(struct weir_stack *s, const struct link_packet_config *cfg,
                     struct link_end *end, char *err, size_t err_size)
{
    struct interface nic = {0};
    int error;

    if (strlen(cfg->ifname) >= IFNAMSIZ)
        return refuse(err, err_size, cfg->ifname, -EINVAL, "the name is too long");
    struct packet_link *l = create(s);
    if (!l)
        return refuse(err, err_size, cfg->ifname, -ENOMEM, NULL);
    if (l->fd < 0 || l->epfd < 0) {
        error = refuse(err, err_size, cfg->ifname, -errno,
                       errno == EPERM ? "no permission to open a packet socket: run as root, or "
                                        "give the program CAP_NET_RAW"
                                      : NULL);
        goto fail;
    }
    error = examine(l->fd, cfg, &nic, err, err_size);
    if (!error)
        error = claim_addresses(l, &nic, cfg, err, err_size);
    if (error)
        goto fail;
    choose_mac(end->mac, cfg->mac);
    error = prepare(l, &nic, end->mac, cfg->ring_bytes ? cfg->ring_bytes : LINK_PACKET_RING);
    if (error) {
        refuse(err, err_size, cfg->ifname, error, NULL);
        goto fail;
    }
    end->ops = &packet_ops;
    end->link = l;
    end->mtu = nic.mtu;
    end->caps = NETIF_CAP_CSUM_TX | NETIF_CAP_TSO4 | NETIF_CAP_TSO6;
    return 0;
fail:
    packet_close(l);
    return error;
}
