/* SPDX-License-Identifier: BSD-2-Clause
 * What a packet socket can answer: TCP without a state, so that the kernel at the other end talks
 * as if to a server and nearly all that remains is its own work and the way there and back. It
 * looks at a receive ring without sleeping, as a busy-polling stack does, and answers each segment
 * by a system call.
 *
 * usage: packet_reflector serve IFNAME ADDRESS rr|crr|crr-together
 *        packet_reflector rr|crr ADDRESS SECONDS     the kernel's end; prints transactions/s
 *
 * rr echoes a segment's bytes; crr sends a FIN after them; crr-together sends it with them. The
 * interface must be up and have no address of the kernel's. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 5001
#define ISN 1000
#define BLOCK (128u << 10)
#define BLOCKS 16
#define SLOT 2048u
#define SLOTS (BLOCK / SLOT * BLOCKS)
#define ECHO_MAX 512

struct frame {
    struct ether_header eth;
    struct iphdr ip;
    struct tcphdr tcp;
    uint8_t payload[ECHO_MAX];
} __attribute__((packed));

static int packet_fd;
static uint8_t mac[6];
static in_addr_t ours;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint32_t sum16(const void *p, size_t n, uint32_t sum)
{
    const uint8_t *b = p;

    for (; n >= 2; n -= 2, b += 2)
        sum += (uint32_t)(b[0] << 8 | b[1]);
    return n ? sum + (uint32_t)(b[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t) ~(sum + (sum >> 16)));
}

static void transmit(const void *frame, size_t len)
{
    if (send(packet_fd, frame, len, 0) < 0 && errno != ENOBUFS && errno != EAGAIN)
        err(1, "send");
}

/* Answer the segment `in` with flags, from seq, having received up to ack. */
static void answer(const struct frame *in, uint8_t flags, uint32_t seq, uint32_t ack,
                   const uint8_t *payload, uint16_t len)
{
    struct frame f = {0};
    uint16_t tcp_len = (uint16_t)(sizeof(f.tcp) + len);

    memcpy(f.eth.ether_dhost, in->eth.ether_shost, 6);
    memcpy(f.eth.ether_shost, mac, 6);
    f.eth.ether_type = htons(ETHERTYPE_IP);
    f.ip = (struct iphdr){.version = 4,
                          .ihl = 5,
                          .ttl = 64,
                          .protocol = IPPROTO_TCP,
                          .tot_len = htons((uint16_t)(sizeof(f.ip) + tcp_len)),
                          .saddr = in->ip.daddr,
                          .daddr = in->ip.saddr};
    f.ip.check = fold(sum16(&f.ip, sizeof(f.ip), 0));
    f.tcp.th_sport = in->tcp.th_dport;
    f.tcp.th_dport = in->tcp.th_sport;
    f.tcp.th_seq = htonl(seq);
    f.tcp.th_ack = htonl(ack);
    f.tcp.th_off = sizeof(f.tcp) / 4;
    f.tcp.th_flags = flags;
    f.tcp.th_win = htons(65535);
    if (len > 0)
        memcpy(f.payload, payload, len);
    f.tcp.th_sum = fold(sum16(&f.tcp, tcp_len, sum16(&f.ip.saddr, 8, IPPROTO_TCP + tcp_len)));
    transmit(&f, sizeof(f.eth) + sizeof(f.ip) + tcp_len);
}

static void answer_arp(const uint8_t *frame)
{
    struct {
        struct ether_header eth;
        struct ether_arp arp;
    } __attribute__((packed)) f;

    memcpy(&f, frame, sizeof(f));
    if (f.arp.ea_hdr.ar_op != htons(ARPOP_REQUEST) || memcmp(f.arp.arp_tpa, &ours, 4) != 0)
        return;
    f.arp.ea_hdr.ar_op = htons(ARPOP_REPLY);
    memcpy(f.eth.ether_dhost, f.arp.arp_sha, 6);
    memcpy(f.eth.ether_shost, mac, 6);
    memcpy(f.arp.arp_tpa, f.arp.arp_spa, 4);
    memcpy(f.arp.arp_spa, &ours, 4);
    memcpy(f.arp.arp_tha, f.arp.arp_sha, 6);
    memcpy(f.arp.arp_sha, mac, 6);
    transmit(&f, sizeof(f));
}

static void reflect(const uint8_t *frame, size_t len, bool ends, bool together)
{
    const struct frame *in = (const void *)frame;

    if (len >= 42 && in->eth.ether_type == htons(ETHERTYPE_ARP))
        answer_arp(frame);
    if (len < 54 || in->eth.ether_type != htons(ETHERTYPE_IP) || in->ip.daddr != ours ||
        in->ip.protocol != IPPROTO_TCP || in->ip.ihl != 5)
        return;
    uint16_t head = (uint16_t)(in->tcp.th_off * 4 + 20), total = ntohs(in->ip.tot_len);
    uint32_t seq = ntohl(in->tcp.th_seq), ack = ntohl(in->tcp.th_ack);
    if (total < head || total > len - 14 || total - head > ECHO_MAX)
        return;
    uint16_t n = (uint16_t)(total - head);
    if (in->tcp.th_flags & TH_SYN) {
        answer(in, TH_SYN | TH_ACK, ISN, seq + 1, NULL, 0);
    } else if (n > 0) {
        uint8_t flags = TH_PUSH | TH_ACK | (ends && together ? TH_FIN : 0);
        answer(in, flags, ack, seq + n, frame + 14 + head, n);
        if (ends && !together)
            answer(in, TH_FIN | TH_ACK, ack + n, seq + n, NULL, 0);
    } else if (in->tcp.th_flags & TH_FIN) {
        answer(in, TH_ACK, ack, seq + 1, NULL, 0);
    }
}

static uint8_t *open_ring(const char *ifname)
{
    struct tpacket_req req = {
        .tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = SLOT, .tp_frame_nr = SLOTS};
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(ifname)};
    int version = TPACKET_V2, on = 1;
    struct ifreq ifr = {0};

    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
    packet_fd = socket(AF_PACKET, SOCK_RAW, 0);
    if (packet_fd < 0 || ioctl(packet_fd, SIOCGIFHWADDR, &ifr) < 0 ||
        setsockopt(packet_fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) < 0 ||
        setsockopt(packet_fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0 ||
        setsockopt(packet_fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)) < 0 ||
        bind(packet_fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        err(1, "packet socket on %s", ifname);
    memcpy(mac, ifr.ifr_hwaddr.sa_data, sizeof(mac));
    uint8_t *ring =
        mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, packet_fd, 0);
    if (ring == MAP_FAILED)
        err(1, "ring");
    return ring;
}

static void serve(const char *ifname, const char *mode)
{
    bool ends = strncmp(mode, "crr", 3) == 0, together = strcmp(mode, "crr-together") == 0;
    uint8_t *ring = open_ring(ifname);

    for (unsigned i = 0;; i = (i + 1) % SLOTS) {
        struct tpacket2_hdr *h = (void *)(ring + (size_t)i * SLOT);
        while (!(__atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            __builtin_ia32_pause();
        reflect((uint8_t *)h + h->tp_mac, h->tp_snaplen, ends, together);
        __atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    }
}

static int dial(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) < 0 ||
        connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        err(1, "connect");
    return fd;
}

static void converse(bool ends, const char *address, double seconds)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    char byte = 0;
    unsigned long done = 0;

    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        errx(1, "%s: not an address", address);
    int fd = dial(&to);
    double start = now(), end = start;
    for (; end < start + seconds; end = now(), done++) {
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1 ||
            (ends && recv(fd, &byte, 1, 0) != 0))
            err(1, "transaction %lu", done);
        if (ends) {
            close(fd);
            fd = dial(&to);
        }
    }
    close(fd);
    printf("%.1f\n", (double)done / (end - start));
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "serve") == 0 && inet_pton(AF_INET, argv[3], &ours) == 1)
        serve(argv[2], argv[4]);
    else if (argc == 4 && (strcmp(argv[1], "rr") == 0 || strcmp(argv[1], "crr") == 0))
        converse(argv[1][0] == 'c', argv[2], atof(argv[3]));
    else
        errx(2, "usage: packet_reflector serve IFNAME ADDRESS rr|crr|crr-together\n"
                "       packet_reflector rr|crr ADDRESS SECONDS");
    return 0;
}
