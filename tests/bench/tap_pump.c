/* SPDX-License-Identifier: BSD-2-Clause
 * What a TAP interface can carry: superframes between it and the kernel's TCP, with no more of a
 * TCP at this end than keeps that one going. It answers ARP and one SYN, sends out of one buffer or
 * reads into one, acknowledges once a batch, and begins again at what was acknowledged when nothing
 * more is for 20 ms.
 *
 * usage: tap_pump IFNAME out|in SECONDS       out: towards the kernel; prints Mbit/s
 *
 * The interface must have an IPv4 address and be up; ours is the one with the last two bits
 * turned. A child process is the kernel's end: it reads or writes in pieces of 128 KB. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MSS 1460
#define SUPERFRAME (44 * MSS)
#define PORT 5001
#define SHIFT 7
#define WINDOW (4u << 20)
#define READS 8 /* frames read before an acknowledgment leaves */

struct frame {
    struct virtio_net_hdr vnet;
    struct ether_header eth;
    struct iphdr ip;
    struct tcphdr tcp;
    uint8_t options[8];
} __attribute__((packed));

static int tap;
static uint32_t ours, theirs; /* IPv4, network order */
static uint8_t our_mac[6] = {2, 0, 0, 0, 0, 9}, their_mac[6];
static uint32_t snd_nxt = 1, snd_una = 1, snd_wnd, rcv_nxt;
static unsigned their_shift;
static uint16_t their_port_be;
static bool connected;
static uint8_t payload[SUPERFRAME], in[70000];

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint32_t sum16(const void *p, size_t n, uint32_t sum)
{
    const uint16_t *w = p;

    for (; n >= 2; n -= 2)
        sum += *w++;
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)(sum + (sum >> 16));
}

/* A segment of len bytes of payload. */
static void send_segment(bool syn, uint32_t len)
{
    uint32_t options = syn ? 8 : 0, l4len = 20 + options + len;
    struct frame f = {
        .vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 34, .csum_offset = 16},
        .eth.ether_type = htons(ETHERTYPE_IP),
        .ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP},
        .tcp = {.source = htons(PORT), .doff = 5, .ack = 1},
        .options = {2, 4, MSS >> 8, MSS & 255, 1, 3, 3, SHIFT},
    };
    memcpy(f.eth.ether_dhost, their_mac, 6);
    memcpy(f.eth.ether_shost, our_mac, 6);
    f.ip.tot_len = htons((uint16_t)(20 + l4len));
    f.ip.frag_off = htons(0x4000);
    f.ip.saddr = ours;
    f.ip.daddr = theirs;
    f.ip.check = (uint16_t)~fold(sum16(&f.ip, 20, 0));
    f.tcp.dest = their_port_be;
    f.tcp.seq = htonl(syn ? 0 : snd_nxt);
    f.tcp.ack_seq = htonl(rcv_nxt);
    f.tcp.syn = syn;
    f.tcp.doff = (uint16_t)((20 + options) / 4) & 15;
    f.tcp.window = htons(syn ? 65535 : WINDOW >> SHIFT);
    f.tcp.check = fold(sum16(&f.ip.saddr, 8, htons(IPPROTO_TCP) + htons((uint16_t)l4len)));
    if (len > MSS) {
        f.vnet.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        f.vnet.gso_size = MSS;
        f.vnet.hdr_len = 54;
    }
    struct iovec iov[2] = {{&f, sizeof(f) - 8 + options}, {payload, len}};
    while (writev(tap, iov, len ? 2 : 1) < 0)
        if (errno != EAGAIN && errno != EINTR)
            err(1, "writev");
    snd_nxt += len;
}

static void answer_arp(void)
{
    uint8_t *a = in + sizeof(struct virtio_net_hdr) + 14, reply[54] = {0};
    uint8_t *p = reply + sizeof(struct virtio_net_hdr);

    if (a[7] != 1 || memcmp(a + 24, &ours, 4) != 0)
        return;
    memcpy(p, a + 8, 6);
    memcpy(p + 6, our_mac, 6);
    p[12] = 8;
    p[13] = 6;
    memcpy(p + 14, a, 6);
    p[21] = 2;
    memcpy(p + 22, our_mac, 6);
    memcpy(p + 28, &ours, 4);
    memcpy(p + 32, a + 8, 10);
    if (write(tap, reply, sizeof(struct virtio_net_hdr) + 42) < 0)
        err(1, "write");
}

static void take_segment(const struct frame *f)
{
    uint32_t len = ntohs(f->ip.tot_len) - 20u - f->tcp.doff * 4u;

    if (f->ip.protocol != IPPROTO_TCP || f->ip.daddr != ours || ntohs(f->tcp.dest) != PORT)
        return;
    if (f->tcp.syn && !connected) {
        their_port_be = f->tcp.source;
        memcpy(their_mac, f->eth.ether_shost, 6);
        rcv_nxt = ntohl(f->tcp.seq) + 1;
        for (const uint8_t *o = f->options, *e = o + f->tcp.doff * 4 - 20; o < e;) {
            if (*o == 3)
                their_shift = o[2];
            o += *o < 2 ? 1 : o[1];
        }
        send_segment(true, 0);
        return;
    }
    if (f->tcp.source != their_port_be) /* a run before this one's */
        return;
    connected = true;
    if (f->tcp.rst)
        errx(1, "the kernel reset the connection");
    int32_t behind = (int32_t)(rcv_nxt - ntohl(f->tcp.seq));
    if (behind < 0)
        errx(1, "a segment was lost");
    if (behind == 0) /* else the kernel grew impatient and sent it again */
        rcv_nxt += len;
    if ((int32_t)(ntohl(f->tcp.ack_seq) - snd_una) > 0)
        snd_una = ntohl(f->tcp.ack_seq);
    if ((int32_t)(snd_una - snd_nxt) > 0)
        snd_nxt = snd_una; /* it was only late */
    snd_wnd = (uint32_t)ntohs(f->tcp.window) << their_shift;
}

/* Read what is there, at most READS frames. Returns how many. */
static int read_frames(void)
{
    int n;

    for (n = 0; n < READS; n++) {
        ssize_t r = read(tap, in, sizeof(in));
        if (r < 0)
            break;
        const struct frame *f = (const void *)in;
        if (f->eth.ether_type == htons(ETHERTYPE_ARP))
            answer_arp();
        else if (f->eth.ether_type == htons(ETHERTYPE_IP))
            take_segment(f);
    }
    return n;
}

static void open_tap(const char *name)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int s = socket(AF_INET, SOCK_DGRAM, 0);

    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
    tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    int header = sizeof(struct virtio_net_hdr); /* an interface remembers what others chose */
    if (tap < 0 || ioctl(tap, TUNSETIFF, &ifr) < 0 || ioctl(tap, TUNSETVNETHDRSZ, &header) < 0 ||
        ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0)
        err(1, "%s", name);
    if (ioctl(s, SIOCGIFADDR, &ifr) < 0)
        err(1, "%s: address", name);
    theirs = ((struct sockaddr_in *)(void *)&ifr.ifr_addr)->sin_addr.s_addr;
    ours = theirs ^ htonl(3);
    close(s);
}

/* The kernel's end. */
static void be_peer(bool reads)
{
    static char buf[128 << 10];
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = ours};
    int s = socket(AF_INET, SOCK_STREAM, 0);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(tap);
    (void)setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    /* The kernel sees a little later that the interface has a carrier now. */
    for (int i = 0; connect(s, (struct sockaddr *)&to, sizeof(to)) < 0; i++) {
        if (i == 400)
            err(1, "connect");
        usleep(10000);
    }
    while ((reads ? recv(s, buf, sizeof(buf), 0) : send(s, buf, sizeof(buf), MSG_NOSIGNAL)) > 0)
        ;
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 4 || (strcmp(argv[2], "out") != 0 && strcmp(argv[2], "in") != 0))
        errx(2, "usage: tap_pump IFNAME out|in SECONDS");
    bool out = argv[2][0] == 'o';
    double seconds = atof(argv[3]), until = now() + 5;
    open_tap(argv[1]);
    pid_t child = fork();
    if (child == 0)
        be_peer(out);
    while (!connected && now() < until)
        read_frames();
    if (!connected)
        errx(1, "no connection");
    double start = now(), progress = start;
    uint64_t bytes = 0;
    do {
        uint32_t before = out ? snd_una : rcv_nxt;
        if (out)
            for (int i = 0; i < READS && snd_nxt - snd_una + SUPERFRAME <= snd_wnd; i++)
                send_segment(false, SUPERFRAME);
        int n = read_frames();
        if (!out && n > 0)
            send_segment(false, 0);
        uint32_t more = (out ? snd_una : rcv_nxt) - before;
        bytes += more;
        if (more || snd_nxt == snd_una) {
            progress = now();
        } else if (now() - progress > 0.02) {
            snd_nxt = snd_una;
            progress = now();
        }
    } while (now() - start < seconds);
    printf("%.0f\n", (double)bytes * 8 / (now() - start) / 1e6);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
