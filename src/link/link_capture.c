/* SPDX-License-Identifier: BSD-2-Clause
 * Captures: a libpcap file of what passes a link, around any link. */
#include "link_capture.h"

#include "link_frame.h"

#include <netinet/in.h>
#include <pcap/pcap.h>
#include <stdio.h>

#define CAPTURE_FRAME_MAX (65535 + LINK_ETHER_HEADER)
#define CAPTURE_FLUSH_NS                                                                           \
    NS_PER_S /* a reader of a growing file lags at most so much while frames pass */

struct capture {
    struct weir_stack *stack;
    struct link_end inner;
    pcap_t *pcap;
    pcap_dumper_t *dumper; /* NULL once the file cannot be written */
    char path[256];        /* to be named then */
    uint32_t snaplen;
    int64_t epoch_offset_ns;
    uint64_t flush_ns;
    bool bare;
    size_t recorded; /* frames at the head of the queue that were recorded when the link did not
                        take them */
    uint8_t frame[CAPTURE_FRAME_MAX];   /* a frame as it came */
    uint8_t segment[CAPTURE_FRAME_MAX]; /* one as it is written */
};

/* The traffic goes on without it; people are told once, the counter says how much is missing. */
static void give_up(struct capture *c, int error)
{
    pcap_dump_close(c->dumper);
    c->dumper = NULL;
    COUNT(c->stack, link_capture_errors);
    fprintf(stderr, "weir: capture file %s: %s: it ends here\n", c->path,
            strerror(error ? error : EIO));
}

static void write_record(struct capture *c, const uint8_t *p, uint32_t len, uint64_t now_ns)
{
    uint64_t t = now_ns + (uint64_t)c->epoch_offset_ns;
    struct pcap_pkthdr h = {.caplen = MIN(len, c->snaplen), .len = len};

    if (!c->dumper) {
        COUNT(c->stack, link_capture_errors);
        return;
    }
    h.ts.tv_sec = (time_t)(t / NS_PER_S);
    h.ts.tv_usec = (suseconds_t)(t % NS_PER_S); /* nanoseconds: the file was opened so */
    errno = 0;
    pcap_dump((u_char *)c->dumper, &h, p);
    bool flush = now_ns >= c->flush_ns;
    if (flush)
        c->flush_ns = now_ns + CAPTURE_FLUSH_NS;
    if ((flush && pcap_dump_flush(c->dumper) != 0) || ferror(pcap_dump_file(c->dumper)))
        give_up(c, errno);
}

/* Write the segments of the superframe in c->frame. */
static void record_segments(struct capture *c, const struct link_frame *f, uint32_t segsz,
                            uint64_t now_ns)
{
    uint32_t payload = f->end - f->payload, n = (payload + segsz - 1) / segsz;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = MIN(segsz, payload - i * segsz);
        struct link_frame one = *f;
        memcpy(c->segment, c->frame, f->payload);
        memcpy(c->segment + f->payload, c->frame + f->payload + i * segsz, len);
        link_frame_segment(c->segment, f, i, n, segsz, len);
        one.end = f->payload + len;
        link_frame_checksum(c->segment, &one);
        write_record(c, c->segment, one.end, now_ns);
    }
}

static void record(struct capture *c, const struct mbuf *m, uint64_t now_ns)
{
    uint32_t len = m->m_pkt.len;
    struct link_frame f;

    if (len > sizeof(c->frame)) {
        COUNT(c->stack, link_capture_errors);
        return;
    }
    mbuf_copy_out(m, 0, len, c->frame);
    if (m->m_pkt.csum_flags & (CSUM_L4_PARTIAL | CSUM_L4_VALID) || m->m_pkt.tso_segsz) {
        link_frame_parse(c->frame, len, len, c->bare, &f);
        if (f.proto == IPPROTO_TCP && m->m_pkt.tso_segsz && f.end > f.payload) {
            record_segments(c, &f, m->m_pkt.tso_segsz, now_ns);
            return;
        }
        if (f.proto)
            link_frame_checksum(c->frame, &f);
    }
    write_record(c, c->frame, len, now_ns);
}

static size_t capture_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct capture *c = link;

    /* Before they go: afterwards they are gone. What the link does not take is offered again first.
     */
    for (size_t i = c->recorded; i < n; i++)
        record(c, frames[i], now_ns);
    c->recorded = MAX(c->recorded, n);
    size_t taken = c->inner.ops->tx(c->inner.link, frames, n, now_ns);
    c->recorded -= taken;
    return taken;
}

static size_t capture_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct capture *c = link;
    size_t got = c->inner.ops->rx(c->inner.link, frames, n, now_ns);

    for (size_t i = 0; i < got; i++)
        record(c, frames[i], now_ns);
    return got;
}

static uint64_t capture_next_deadline(void *link)
{
    struct capture *c = link;

    return link_end_next_deadline(&c->inner);
}

static void capture_kick(void *link)
{
    struct capture *c = link;

    c->inner.ops->kick(c->inner.link);
}

static int capture_fd(void *link)
{
    struct capture *c = link;

    return link_end_fd(&c->inner);
}

static bool capture_pending(void *link)
{
    struct capture *c = link;

    return link_end_pending(&c->inner);
}

static void capture_close(void *link)
{
    struct capture *c = link;
    struct weir_alloc alloc = c->stack->alloc;

    link_end_close(&c->inner);
    errno = 0;
    if (c->dumper && pcap_dump_flush(c->dumper) != 0)
        give_up(c, errno);
    if (c->dumper)
        pcap_dump_close(c->dumper);
    pcap_close(c->pcap);
    alloc_free(&alloc, c, sizeof(*c));
}

static const struct netif_ops capture_ops = {
    .tx = capture_tx,
    .rx = capture_rx,
    .next_deadline = capture_next_deadline,
    .deadlines_are_exact = true, /* it may be around an emulator */
    .fd = capture_fd,
    .pending = capture_pending,
    .close = capture_close,
};
static const struct netif_ops capture_kick_ops = {
    .tx = capture_tx,
    .rx = capture_rx,
    .next_deadline = capture_next_deadline,
    .deadlines_are_exact = true, /* it may be around an emulator */
    .kick = capture_kick,
    .fd = capture_fd,
    .pending = capture_pending,
    .close = capture_close,
};

int link_capture_wrap(struct weir_stack *s, struct link_end *end,
                      const struct link_capture_config *cfg, char *err, size_t err_size)
{
    struct capture *c = alloc_zero(&s->alloc, sizeof(*c));
    bool bare = end->caps & NETIF_CAP_L3;
    int error = -ENOMEM;

    if (!c)
        goto fail;
    c->stack = s;
    snprintf(c->path, sizeof(c->path), "%s", cfg->path);
    c->inner = *end;
    c->bare = bare;
    c->snaplen = cfg->snaplen ? cfg->snaplen : LINK_CAPTURE_SNAPLEN;
    c->epoch_offset_ns = cfg->epoch_offset_ns;
    c->pcap = pcap_open_dead_with_tstamp_precision(bare ? DLT_RAW : DLT_EN10MB,
                                                   (int)MAX(c->snaplen, CAPTURE_FRAME_MAX),
                                                   PCAP_TSTAMP_PRECISION_NANO);
    if (!c->pcap)
        goto fail;
    errno = 0;
    FILE *file = fopen(cfg->path, "wbe");
    if (!file) {
        error = -errno;
        goto fail;
    }
    c->dumper = pcap_dump_fopen(c->pcap, file);
    if (!c->dumper) {
        error = errno ? -errno : -EIO;
        fclose(file);
        goto fail;
    }
    end->ops = c->inner.ops->kick ? &capture_kick_ops : &capture_ops;
    end->link = c;
    return 0;

fail:
    snprintf(err, err_size, "capture file %s: %s", cfg->path, strerror(-error));
    if (c) {
        if (c->pcap)
            pcap_close(c->pcap);
        alloc_free(&s->alloc, c, sizeof(*c));
    }
    return error;
}
