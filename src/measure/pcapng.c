/* SPDX-License-Identifier: BSD-2-Clause
 * pcapng blocks: each is type, length, body, options, length again, all padded to 32 bits. */
#include "pcapng.h"

#define OPT_END 0
#define OPT_SHB_APPLICATION 4
#define OPT_IF_NAME 2
#define OPT_IF_RESOLUTION 9
#define OPT_EPB_FLAGS 2
#define OPT_ISB_START 2
#define OPT_ISB_END 3
#define OPT_ISB_RECEIVED 4
#define OPT_ISB_DROPPED 5

static void put(FILE *f, const void *p, size_t n)
{
    (void)fwrite(p, 1, n, f);
}

static void put16(FILE *f, uint16_t v)
{
    put(f, &v, sizeof(v));
}

static void put32(FILE *f, uint32_t v)
{
    put(f, &v, sizeof(v));
}

static void put_time(FILE *f, uint64_t ns)
{
    put32(f, (uint32_t)(ns >> 32));
    put32(f, (uint32_t)ns);
}

static uint32_t padded(uint32_t n)
{
    return (n + 3) & ~3u;
}

static void put_padded(FILE *f, const void *p, uint32_t n)
{
    put(f, p, n);
    put(f, "\0\0\0", padded(n) - n);
}

static void put_option(FILE *f, uint16_t code, const void *p, uint16_t n)
{
    put16(f, code);
    put16(f, n);
    put_padded(f, p, n);
}

static uint32_t option_size(uint32_t n)
{
    return 4 + padded(n);
}

static void begin(FILE *f, uint32_t type, uint32_t size)
{
    put32(f, type);
    put32(f, size);
}

void pcapng_put_section(FILE *f, const char *application)
{
    uint16_t n = (uint16_t)strlen(application);
    uint32_t size = 28 + option_size(n) + 4;
    begin(f, PCAPNG_SECTION, size);
    put32(f, 0x1a2b3c4d);
    put16(f, 1);
    put16(f, 0);
    put32(f, UINT32_MAX); /* its length is not known */
    put32(f, UINT32_MAX);
    put_option(f, OPT_SHB_APPLICATION, application, n);
    put32(f, OPT_END);
    put32(f, size);
}

void pcapng_put_interface(FILE *f, const char *name, uint16_t link, uint32_t snaplen)
{
    static const uint8_t nanoseconds = 9;
    uint16_t n = (uint16_t)strlen(name);
    uint32_t size = 20 + option_size(n) + option_size(1) + 4;
    begin(f, PCAPNG_INTERFACE, size);
    put16(f, link);
    put16(f, 0);
    put32(f, snaplen);
    put_option(f, OPT_IF_NAME, name, n);
    put_option(f, OPT_IF_RESOLUTION, &nanoseconds, 1);
    put32(f, OPT_END);
    put32(f, size);
}

void pcapng_put_packet(FILE *f, uint32_t iface, uint64_t time_ns, enum pcapng_direction dir,
                       const void *data, uint32_t caplen, uint32_t len)
{
    uint32_t flags = (uint32_t)dir, size = 32 + padded(caplen) + option_size(4) + 4;
    begin(f, PCAPNG_PACKET, size);
    put32(f, iface);
    put_time(f, time_ns);
    put32(f, caplen);
    put32(f, len);
    put_padded(f, data, caplen);
    put_option(f, OPT_EPB_FLAGS, &flags, sizeof(flags));
    put32(f, OPT_END);
    put32(f, size);
}

/* A time as an option holds it: two halves, the high one first. */
static void put_time_option(FILE *f, uint16_t code, uint64_t ns)
{
    uint32_t halves[2] = {(uint32_t)(ns >> 32), (uint32_t)ns};
    put_option(f, code, halves, sizeof(halves));
}

void pcapng_put_statistics(FILE *f, uint32_t iface, uint64_t start_ns, uint64_t end_ns,
                           uint64_t received, uint64_t dropped)
{
    uint32_t size = 24 + 4 * option_size(8) + 4;
    begin(f, PCAPNG_STATISTICS, size);
    put32(f, iface);
    put_time(f, end_ns);
    put_time_option(f, OPT_ISB_START, start_ns);
    put_time_option(f, OPT_ISB_END, end_ns);
    put_option(f, OPT_ISB_RECEIVED, &received, sizeof(received));
    put_option(f, OPT_ISB_DROPPED, &dropped, sizeof(dropped));
    put32(f, OPT_END);
    put32(f, size);
}
