/* SPDX-License-Identifier: BSD-2-Clause
 * One line a packet. */
#include "tcpdump.h"

#include "link/link_frame.h"
#include "measure/pcapng.h"
#include "wire/addr.h"
#include "wire/tcp.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <time.h>

static void print_options(FILE *f, const uint8_t *p, size_t len, bool syn)
{
    struct tcp_options o;
    const char *comma = " [";
    tcp_options_parse(p, len, syn, &o);
    if ((o.flags & ~TOF_BAD) == 0)
        return;
    fputs(", options", f);
    if (o.flags & TOF_MSS)
        fprintf(f, "%smss %u", comma, o.mss), comma = ", ";
    if (o.flags & TOF_SCALE)
        fprintf(f, "%swscale %u", comma, o.wscale), comma = ", ";
    if (o.flags & TOF_SACKPERM)
        fprintf(f, "%ssackOK", comma), comma = ", ";
    if (o.flags & TOF_TS)
        fprintf(f, "%sTS val %" PRIu32 " ecr %" PRIu32, comma, o.tsval, o.tsecr), comma = ", ";
    for (unsigned i = 0; (o.flags & TOF_SACK) && i < o.nsack; i++)
        fprintf(f, "%ssack %" PRIu32 ":%" PRIu32, comma, o.sack[i].start, o.sack[i].end),
            comma = ", ";
    fputc(']', f);
}

static void print_tcp(FILE *f, const uint8_t *p, uint32_t have, uint32_t payload)
{
    static const struct {
        uint8_t bit;
        char letter;
    } flags[] = {{TH_SYN, 'S'}, {TH_FIN, 'F'}, {TH_RST, 'R'}, {TH_PUSH, 'P'},
                 {TH_URG, 'U'}, {TH_ECE, 'E'}, {TH_CWR, 'W'}, {TH_ACK, '.'}};
    struct tcp_header h;
    if (tcp_header_parse(p, have, &h) != 0) {
        fputs(": TCP, cut", f);
        return;
    }
    fputs(": Flags [", f);
    for (size_t i = 0; i < NELEM(flags); i++)
        if (h.flags & flags[i].bit)
            fputc(flags[i].letter, f);
    fprintf(f, "], seq %" PRIu32, h.seq);
    if (payload > 0)
        fprintf(f, ":%" PRIu32, h.seq + payload);
    if (h.flags & TH_ACK)
        fprintf(f, ", ack %" PRIu32, h.ack);
    fprintf(f, ", win %u", h.win);
    if (have > TCP_HEADER_LEN && h.off > TCP_HEADER_LEN)
        print_options(f, p + TCP_HEADER_LEN, MIN(have, (uint32_t)h.off) - TCP_HEADER_LEN,
                      h.flags & TH_SYN);
    fprintf(f, ", length %" PRIu32, payload);
}

static void print_ip(FILE *f, const uint8_t *p, uint32_t caplen, const struct link_frame *l)
{
    bool v4 = l->family == AF_INET, ports = l->proto == IPPROTO_TCP || l->proto == IPPROTO_UDP;
    struct ipaddr src = {.family = l->family}, dst = {.family = l->family};
    char a[64], b[64];
    unsigned protocol = p[l->l3 + (v4 ? 9 : 6)];
    memcpy(src.b, p + l->l3 + (v4 ? 12 : 8), v4 ? 4 : 16);
    memcpy(dst.b, p + l->l3 + (v4 ? 16 : 24), v4 ? 4 : 16);
    ipaddr_format(&src, a, sizeof(a));
    ipaddr_format(&dst, b, sizeof(b));
    fputs(v4 ? "IP " : "IP6 ", f);
    if (!ports || caplen < l->l4 + 4u) {
        fprintf(f, "%s > %s: protocol %u", a, b, protocol);
        return;
    }
    fprintf(f, "%s.%u > %s.%u", a, get_be16(p + l->l4), b, get_be16(p + l->l4 + 2));
    if (l->proto == IPPROTO_TCP)
        print_tcp(f, p + l->l4, caplen - l->l4, l->end - l->payload);
    else
        fprintf(f, ": UDP, length %" PRIu32, l->end - l->payload);
}

void tcpdump_print(FILE *f, uint64_t time_ns, const char *iface, int direction, bool bare,
                   const uint8_t *p, uint32_t caplen, uint32_t len)
{
    struct link_frame l;
    time_t seconds = (time_t)(time_ns / NS_PER_S);
    struct tm tm;
    uint32_t l3 = bare ? 0 : LINK_ETHER_HEADER;
    localtime_r(&seconds, &tm);
    fprintf(f, "%02d:%02d:%02d.%09u %s %s ", tm.tm_hour, tm.tm_min, tm.tm_sec,
            (unsigned)(time_ns % NS_PER_S), iface, direction == PCAPNG_OUT ? "Out" : "In");
    link_frame_parse(p, caplen, len, bare, &l);
    uint32_t need = l.family == AF_INET ? 20 : 40;
    if (l.family != 0 && caplen >= l.l3 + need)
        print_ip(f, p, caplen, &l);
    else if (!bare && caplen >= l3 && get_be16(p + 12) == 0x0806)
        fprintf(f, "ARP, length %" PRIu32, len - l3);
    else if (!bare && caplen >= l3)
        fprintf(f, "ethertype 0x%04x, length %" PRIu32, get_be16(p + 12), len - l3);
    else
        fprintf(f, "length %" PRIu32, len);
    fputc('\n', f);
}
