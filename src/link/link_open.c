/* SPDX-License-Identifier: BSD-2-Clause
 * Opening links from their specifications and attaching them to stacks. */
#include "link_open.h"

#include "ip/ip.h"
#include "link_capture.h"
#include "link_mem.h"
#include "link_packet.h"
#include "link_tap.h"
#include "stack.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static int fail(char *err, size_t err_size, int error, const char *fmt, ...) PRINTF_LIKE(4, 5);
static int fail(char *err, size_t err_size, int error, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err, err_size, fmt, ap);
    va_end(ap);
    return error;
}

/* What to add to the stack's clock for the time of day. */
static int64_t epoch_offset(const struct weir_stack *s)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * (int64_t)NS_PER_S + ts.tv_nsec -
           (int64_t)s->port->now_ns(s->port->ctx);
}

/* Emulation next to the driver, capture around both: the file shows what the stack sent and got. */
static int wrap(struct weir_stack *s, struct link_end *end, const struct link_spec *spec, bool peer,
                char *err, size_t err_size)
{
    if (link_emul_wanted(&spec->emul)) {
        struct link_emul_config emul = spec->emul;
        emul.seed += peer; /* the two ends of a pair have luck of their own */
        int error = link_emul_wrap(s, end, &emul, end->ops->kick ? LINK_EMUL_RX : LINK_EMUL_BOTH);
        if (error)
            return fail(err, err_size, error, "no memory for the emulator");
    }
    if (spec->capture[0] && !peer) {
        struct link_capture_config capture = {.path = spec->capture,
                                              .epoch_offset_ns = epoch_offset(s)};
        return link_capture_wrap(s, end, &capture, err, err_size);
    }
    return 0;
}

static int add_addresses(struct netif *nif, const struct netif_addr *a, unsigned n, char *err,
                         size_t err_size)
{
    for (unsigned i = 0; i < n; i++) {
        char text[64];
        int error = netif_add_addr(nif, &a[i].addr, a[i].prefixlen);
        if (error)
            return fail(err, err_size, error, "address %s/%u: %s",
                        ipaddr_format(&a[i].addr, text, sizeof(text)), a[i].prefixlen,
                        strerror(-error));
    }
    return 0;
}

static int add_router(struct netif *nif, const struct ipaddr *gw, char *err, size_t err_size)
{
    struct ipaddr any = {.family = gw->family};
    char text[64];

    if (gw->family == 0)
        return 0;
    int error = ip_route_add(nif->stack, &any, 0, gw, nif);
    if (error)
        return fail(err, err_size, error, "router %s: %s", ipaddr_format(gw, text, sizeof(text)),
                    strerror(-error));
    return 0;
}

/* Make the interface and configure it; by the owner. */
static int create(struct weir_stack *s, struct link_end *end, const struct link_spec *spec,
                  bool peer, char *err, size_t err_size)
{
    struct netif_config cfg = {
        .name = spec->name[0] ? spec->name : "mem",
        .ops = end->ops,
        .link = end->link,
        .caps = end->caps,
        .mtu = end->mtu,
    };

    memcpy(cfg.mac, end->mac, sizeof(cfg.mac));
    struct netif *nif = netif_create(s, &cfg);
    if (!nif)
        return fail(err, err_size, -ENOMEM, "no memory for an interface");
    end->link = NULL; /* the interface's now */
    int error = add_addresses(nif, peer ? spec->peer : spec->addr,
                              peer ? spec->peer_count : spec->addr_count, err, err_size);
    if (!error && !peer)
        error = add_router(nif, &spec->gw, err, err_size);
    if (!error && !peer)
        error = add_router(nif, &spec->gw6, err, err_size);
    if (error)
        netif_destroy(nif);
    return error;
}

int link_attach(struct weir_stack *s, struct link_end *end, const struct link_spec *spec, bool peer,
                char *err, size_t err_size)
{
    int error = wrap(s, end, spec, peer, err, err_size);

    if (!error) {
        error = owner_acquire(s);
        if (error) {
            fail(err, err_size, error, "the stack is busy in this thread");
        } else {
            error = create(s, end, spec, peer, err, err_size);
            stack_flush(s, s->port->now_ns(s->port->ctx));
            stack_leave(s);
        }
    }
    if (error)
        link_end_close(end);
    return error;
}

int link_open(struct weir_stack *s, const char *text, char *err, size_t err_size)
{
    struct link_end end = {0};
    struct link_spec spec;
    int error = link_spec_parse(text, &spec, err, err_size);

    if (error)
        return error;
    if (spec.kind == LINK_KIND_MEM)
        return fail(err, err_size, -ENOTSUP, "mem: a memory link joins two stacks; this is one");
    if (spec.kind == LINK_KIND_TAP) {
        struct link_tap_config tap = {
            .ifname = spec.name,
            .mtu = spec.mtu,
            .queues = spec.queues,
            .mac = spec.has_mac ? spec.mac : NULL,
        };
        error = link_tap_open(s, &tap, &end, err, err_size);
    } else {
        struct link_packet_config packet = {
            .ifname = spec.name,
            .mtu = spec.mtu,
            .mac = spec.has_mac ? spec.mac : NULL,
            .addr = spec.addr,
            .addr_count = spec.addr_count,
        };
        error = link_packet_open(s, &packet, &end, err, err_size);
    }
    return error ? error : link_attach(s, &end, &spec, false, err, err_size);
}

/* 10.0.0.host/24 and, where the MTU allows it, fd00::host/64 */
static void default_addresses(struct netif_addr *a, unsigned *n, uint8_t host, uint32_t mtu)
{
    if (*n)
        return;
    a[0] = (struct netif_addr){.addr = ipaddr_v4(0x0a000000u + host), .prefixlen = 24};
    a[1] = (struct netif_addr){.addr = {.family = AF_INET6}, .prefixlen = 64};
    a[1].addr.b[0] = 0xfd;
    a[1].addr.b[15] = host;
    *n = mtu && mtu < IPV6_MIN_MTU ? 1 : 2;
}

int link_open_pair(struct weir_stack *a, struct weir_stack *b, const char *text, char *err,
                   size_t err_size)
{
    struct link_end ends[2] = {{0}, {0}};
    struct link_spec spec;
    int error = link_spec_parse_options(LINK_KIND_MEM, text, &spec, err, err_size);

    if (error)
        return error;
    default_addresses(spec.addr, &spec.addr_count, 1, spec.mtu);
    default_addresses(spec.peer, &spec.peer_count, 2, spec.mtu);
    struct link_mem_options mem = {.mtu = spec.mtu};
    error = link_mem_create(&a->alloc, &mem, ends);
    if (error)
        return fail(err, err_size, error, "memory link: %s", strerror(-error));
    link_mem_bind(&ends[0], a);
    link_mem_bind(&ends[1], b);
    error = link_attach(b, &ends[1], &spec, true, err, err_size);
    if (!error)
        error = link_attach(a, &ends[0], &spec, false, err, err_size);
    else
        link_end_close(&ends[0]);
    return error;
}
