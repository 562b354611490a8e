/* SPDX-License-Identifier: BSD-2-Clause
 * The text form of the flow log: what FreeBSD 14 writes (siftrver 1.3.0), and a strict reader. */
#include "siftr_record.h"

#include <arpa/inet.h>

/* 17 numbers of 32 bits, 2 of 16, 5 of 8, two addresses, the time, a letter, 26 commas, a newline.
 */
_Static_assert(1 + 11 + 1 + 6 + 2 * 39 + 2 * 5 + 16 * 10 + 5 * 3 + 26 + 1 <= SIFTR_TEXT_MAX,
               "a record fits");
_Static_assert(2 * (39 + 1 + 5 + 1) <= SIFTR_FLOW_MAX, "a flow fits");

/* ---- numbers ---- */

static const char two_digits[201] = "00010203040506070809101112131415161718192021222324"
                                    "25262728293031323334353637383940414243444546474849"
                                    "50515253545556575859606162636465666768697071727374"
                                    "75767778798081828384858687888990919293949596979899";

/* Two digits at p. */
static void put_two(char *p, uint32_t v)
{
    memcpy(p, &two_digits[2 * v], 2);
}

/* v < 100, without a leading zero. */
static char *put_tens(char *p, uint32_t v)
{
    if (v < 10) {
        *p = (char)('0' + v);
        return p + 1;
    }
    put_two(p, v);
    return p + 2;
}

/* v < 10000, without leading zeros. */
static char *put_small(char *p, uint32_t v)
{
    if (v < 100)
        return put_tens(p, v);
    p = put_tens(p, v / 100);
    put_two(p, v % 100);
    return p + 2;
}

/* Four digits of v < 10000. */
static char *put_four(char *p, uint32_t v)
{
    put_two(p, v / 100);
    put_two(p + 2, v % 100);
    return p + 4;
}

static char *put_u32(char *p, uint32_t v)
{
    if (v < 10000)
        return put_small(p, v);
    if (v < 100000000)
        return put_four(put_small(p, v / 10000), v % 10000);
    p = put_small(p, v / 100000000);
    v %= 100000000;
    return put_four(put_four(p, v / 10000), v % 10000);
}

static char *put_u64(char *p, uint64_t v)
{
    char digits[20], *q = digits + sizeof(digits);
    if (v <= UINT32_MAX)
        return put_u32(p, (uint32_t)v);
    for (; v > 0; v /= 10)
        *--q = (char)('0' + v % 10);
    size_t length = (size_t)(digits + sizeof(digits) - q);
    memcpy(p, q, length);
    return p + length;
}

/* Always six digits; v < 1000000. */
static char *put_micros(char *p, uint32_t v)
{
    put_two(p, v / 10000);
    return put_four(p + 2, v % 10000);
}

static char *put_text(char *p, const char *text)
{
    size_t length = strlen(text);
    memcpy(p, text, length);
    return p + length;
}

/* ---- addresses ---- */

static char *put_ipv4(char *p, const uint8_t *a)
{
    for (unsigned i = 0; i < 4; i++) {
        p = put_u32(p, a[i]);
        *p++ = '.';
    }
    return p - 1;
}

static char *put_hex(char *p, unsigned v)
{
    static const char hex[] = "0123456789abcdef";
    unsigned shift = v >= 0x1000 ? 12 : v >= 0x100 ? 8 : v >= 0x10 ? 4 : 0;
    for (;; shift -= 4) {
        *p++ = hex[v >> shift & 15];
        if (shift == 0)
            return p;
    }
}

/* The longest run of at least two zero words, the first of equals (RFC 5952 4.2): its start and
 * length. */
static unsigned zero_run(const uint8_t *a, unsigned *length)
{
    unsigned best = 8, start = 0, run = 0;
    *length = 1;
    for (unsigned i = 0; i < 8; i++) {
        if (a[2 * i] != 0 || a[2 * i + 1] != 0) {
            run = 0;
            continue;
        }
        if (run++ == 0)
            start = i;
        if (run > *length) {
            *length = run;
            best = start;
        }
    }
    return best;
}

static char *put_ipv6(char *p, const uint8_t *a)
{
    unsigned length, run = zero_run(a, &length);
    /* ::a.b.c.d and ::ffff:a.b.c.d */
    bool ends_in_ipv4 =
        run == 0 && (length == 6 || (length == 5 && a[10] == 0xff && a[11] == 0xff));
    for (unsigned i = 0; i < 8; i++) {
        if (i == run) {
            *p++ = ':';
            i += length - 1;
            if (i == 7)
                *p++ = ':';
            continue;
        }
        if (i > 0)
            *p++ = ':';
        if (i == 6 && ends_in_ipv4)
            return put_ipv4(p, a + 12);
        p = put_hex(p, (unsigned)a[2 * i] << 8 | a[2 * i + 1]);
    }
    return p;
}

static char *put_address(char *p, uint8_t family, const uint8_t *a)
{
    return family == 6 ? put_ipv6(p, a) : put_ipv4(p, a);
}

size_t siftr_text_address(char *buf, uint8_t family, const uint8_t *addr)
{
    return (size_t)(put_address(buf, family, addr) - buf);
}

/* ---- writing ---- */

size_t siftr_text_record(char *buf, const struct siftr_record *r)
{
    char *p = buf;
#define FIELD(name)                                                                                \
    p = put_u32(p, r->name);                                                                       \
    *p++ = ',';
    *p++ = r->direction == SIFTR_OUT ? 'o' : 'i';
    *p++ = ',';
    p = put_u64(p, r->time_ns / NS_PER_S);
    *p++ = '.';
    p = put_micros(p, (uint32_t)(r->time_ns % NS_PER_S / NS_PER_US));
    *p++ = ',';
    p = put_address(p, r->family, r->laddr);
    *p++ = ',';
    FIELD(lport)
    p = put_address(p, r->family, r->faddr);
    *p++ = ',';
    FIELD(fport)
    SIFTR_NUMBERS(FIELD)
#undef FIELD
    p = put_u32(p, r->flowtype);
    *p++ = '\n';
    return (size_t)(p - buf);
}

/* "_secs=S<tab>PREFIX_usecs=U": a log's two times. */
static char *put_time(char *p, const char *prefix, uint64_t ns)
{
    p = put_text(put_text(p, prefix), "_time_secs=");
    p = put_u64(p, ns / NS_PER_S);
    *p++ = '\t';
    p = put_text(put_text(p, prefix), "_time_usecs=");
    return put_micros(p, (uint32_t)(ns % NS_PER_S / NS_PER_US));
}

static char *put_named(char *p, const char *name, uint64_t v)
{
    *p++ = '\t';
    p = put_text(p, name);
    *p++ = '=';
    return put_u64(p, v);
}

size_t siftr_text_header(char *buf, const struct siftr_header *h)
{
    char *p = put_time(buf, "enable", h->enable_ns);
    p = put_text(p, "\tsiftrver=");
    p = put_text(p, h->version[0] != '\0' ? h->version : SIFTR_VERSION);
    p = put_text(p, "\tsysname=");
    p = put_text(p, h->sysname[0] != '\0' ? h->sysname : "Weir");
    p = put_named(p, "sysver", h->sysver);
    p = put_named(p, "ipmode", h->ipmode);
    *p++ = '\n';
    return (size_t)(p - buf);
}

size_t siftr_text_footer(char *buf, const struct siftr_footer *f)
{
    char *p = put_time(buf, "disable", f->disable_ns);
    uint64_t skipped = 0;
    p = put_named(p, "num_inbound_tcp_pkts", f->packets[SIFTR_IN]);
    p = put_named(p, "num_outbound_tcp_pkts", f->packets[SIFTR_OUT]);
    p = put_named(p, "total_tcp_pkts", f->packets[SIFTR_IN] + f->packets[SIFTR_OUT]);
#define SKIPPED(cause)                                                                             \
    p = put_named(p, "num_inbound_skipped_pkts_" #cause, f->skipped_##cause[SIFTR_IN]);            \
    p = put_named(p, "num_outbound_skipped_pkts_" #cause, f->skipped_##cause[SIFTR_OUT]);          \
    skipped += f->skipped_##cause[SIFTR_IN] + f->skipped_##cause[SIFTR_OUT];
    SKIPPED(malloc)
    SKIPPED(tcpcb)
    SKIPPED(inpcb)
#undef SKIPPED
    p = put_named(p, "total_skipped_tcp_pkts", skipped);
    p = put_text(p, "\tflow_list=");
    return (size_t)(p - buf);
}

size_t siftr_text_flow(char *buf, const struct siftr_record *r)
{
    char *p = put_address(buf, r->family, r->laddr);
    *p++ = ';';
    p = put_u32(p, r->lport);
    *p++ = '-';
    p = put_address(p, r->family, r->faddr);
    *p++ = ';';
    p = put_u32(p, r->fport);
    *p++ = ',';
    return (size_t)(p - buf);
}

/* ---- reading ---- */

/* What is left of a line, and what was wrong first. */
struct reader {
    const char *p, *end;
    const char *why;
};

static void refuse(struct reader *r, const char *why)
{
    if (r->why == NULL)
        r->why = why;
    r->p = r->end;
}

/* Digits up to `until`, or to the end of the line when that is 0; as printed: no sign, no leading
 * zero. */
static uint64_t take_number(struct reader *r, char until, uint64_t max, const char *why)
{
    const char *start = r->p;
    uint64_t v = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        uint64_t d = (uint64_t)(*r->p - '0');
        if (d > max || v > (max - d) / 10) {
            refuse(r, why);
            return 0;
        }
        v = v * 10 + d;
    }
    bool ended = until == '\0' ? r->p == r->end : r->p < r->end && *r->p == until;
    if (r->p == start || (*start == '0' && r->p > start + 1) || !ended)
        refuse(r, why);
    else if (until != '\0')
        r->p++;
    return v;
}

static uint64_t take_micros(struct reader *r, char until, const char *why)
{
    const char *start = r->p;
    uint64_t v = 0;
    while (r->p < r->end && r->p < start + 6 && *r->p >= '0' && *r->p <= '9')
        v = v * 10 + (uint64_t)(*r->p++ - '0');
    bool ended = until == '\0' ? r->p == r->end : r->p < r->end && *r->p == until;
    if (r->p != start + 6 || !ended)
        refuse(r, why);
    else if (until != '\0')
        r->p++;
    return v;
}

static uint8_t take_address(struct reader *r, uint8_t out[16])
{
    char text[46];
    const char *comma = memchr(r->p, ',', (size_t)(r->end - r->p));
    size_t length = comma != NULL ? (size_t)(comma - r->p) : 0;
    if (length == 0 || length >= sizeof(text) || memchr(r->p, '\0', length) != NULL) {
        refuse(r, "an address is missing or too long");
        return 0;
    }
    memcpy(text, r->p, length);
    text[length] = '\0';
    bool v6 = memchr(text, ':', length) != NULL;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, text, out) != 1) {
        refuse(r, "an address is neither IPv4 nor IPv6");
        return 0;
    }
    r->p = comma + 1;
    return v6 ? 6 : 4;
}

#define SECONDS_MAX (UINT64_MAX / NS_PER_S - 1)

static void take_start(struct reader *r, struct siftr_record *o)
{
    if (r->end - r->p < 4 || r->p[1] != ',' || (r->p[0] != 'i' && r->p[0] != 'o')) {
        refuse(r, "neither a record (i or o, then a comma), a header, nor a footer");
        return;
    }
    o->direction = r->p[0] == 'o' ? SIFTR_OUT : SIFTR_IN;
    r->p += 2;
    if (r->p[0] == '0' && r->p[1] == 'x') {
        refuse(r, "a record with a packet hash, as older than siftrver 1.3.0 of FreeBSD 14");
        return;
    }
    o->time_ns = take_number(r, '.', SECONDS_MAX, "the time is no number of seconds") * NS_PER_S;
    o->time_ns += take_micros(r, ',', "the time has not six digits after the point") * NS_PER_US;
}

static void take_record(struct reader *r, struct siftr_record *o)
{
#define FIELD32(name)                                                                              \
    o->name = (uint32_t)take_number(r, ',', UINT32_MAX, #name " is no number of 32 bits")
#define FIELD8(name, until, max)                                                                   \
    o->name = (uint8_t)take_number(r, until, max, #name " is no number up to " #max)
    take_start(r, o);
    o->family = take_address(r, o->laddr);
    o->lport = (uint16_t)take_number(r, ',', UINT16_MAX, "the local port is none");
    if (take_address(r, o->faddr) != o->family)
        refuse(r, "the addresses are of different families");
    o->fport = (uint16_t)take_number(r, ',', UINT16_MAX, "the foreign port is none");
    FIELD32(ssthresh);
    FIELD32(cwnd);
    FIELD32(flags2);
    FIELD32(snd_wnd);
    FIELD32(rcv_wnd);
    FIELD8(snd_scale, ',', 255);
    FIELD8(rcv_scale, ',', 255);
    FIELD8(state, ',', 255);
    FIELD32(mss);
    FIELD32(srtt_us);
    FIELD8(sack, ',', 1);
    FIELD32(flags);
    FIELD32(rto_us);
    FIELD32(snd_limit);
    FIELD32(snd_fill);
    FIELD32(rcv_limit);
    FIELD32(rcv_fill);
    FIELD32(inflight);
    FIELD32(reass_segs);
    FIELD32(flowid);
    FIELD8(flowtype, '\0', 255);
#undef FIELD32
#undef FIELD8
}

/* The next name=value of a header or footer; false: no more, or refused. */
struct pair {
    const char *name, *value;
    size_t name_length, value_length;
};
static bool take_pair(struct reader *r, struct pair *o)
{
    if (r->p == r->end)
        return false;
    const char *tab = memchr(r->p, '\t', (size_t)(r->end - r->p));
    const char *end = tab != NULL ? tab : r->end;
    const char *equals = memchr(r->p, '=', (size_t)(end - r->p));
    if (equals == NULL) {
        refuse(r, "the header or footer is not name=value, separated by tabs");
        return false;
    }
    *o = (struct pair){r->p, equals + 1, (size_t)(equals - r->p), (size_t)(end - equals - 1)};
    r->p = tab != NULL ? tab + 1 : r->end;
    return true;
}

static bool is_named(const struct pair *p, const char *name)
{
    return p->name_length == strlen(name) && memcmp(p->name, name, p->name_length) == 0;
}

static uint64_t pair_number(struct reader *r, const struct pair *p, uint64_t max)
{
    struct reader value = {.p = p->value, .end = p->value + p->value_length};
    uint64_t v = take_number(&value, '\0', max, "a value of the header or footer is no number");
    if (value.why != NULL)
        refuse(r, value.why);
    return v;
}

static void pair_micros(struct reader *r, const struct pair *p, uint64_t *ns)
{
    struct reader value = {.p = p->value, .end = p->value + p->value_length};
    *ns += take_micros(&value, '\0', "time_usecs has not six digits") * NS_PER_US;
    if (value.why != NULL)
        refuse(r, value.why);
}

static void pair_text(struct reader *r, const struct pair *p, char *out, size_t size)
{
    if (p->value_length >= size || memchr(p->value, '\0', p->value_length) != NULL) {
        refuse(r, "a value of the header is too long");
        return;
    }
    memcpy(out, p->value, p->value_length);
    out[p->value_length] = '\0';
}

static void take_header(struct reader *r, struct siftr_header *h)
{
    struct pair p;
    while (take_pair(r, &p)) {
        if (is_named(&p, "enable_time_secs"))
            h->enable_ns = pair_number(r, &p, SECONDS_MAX) * NS_PER_S;
        else if (is_named(&p, "enable_time_usecs"))
            pair_micros(r, &p, &h->enable_ns);
        else if (is_named(&p, "siftrver"))
            pair_text(r, &p, h->version, sizeof(h->version));
        else if (is_named(&p, "sysname"))
            pair_text(r, &p, h->sysname, sizeof(h->sysname));
        else if (is_named(&p, "sysver"))
            h->sysver = (uint32_t)pair_number(r, &p, UINT32_MAX);
        else if (is_named(&p, "ipmode"))
            h->ipmode = (uint8_t)pair_number(r, &p, UINT8_MAX);
    }
    if (h->version[0] == '\0')
        refuse(r, "the header names no siftrver");
}

static void take_footer(struct reader *r, struct siftr_footer *f)
{
    static const struct {
        const char *name;
        size_t offset;
    } counts[] = {
#define COUNT(name, field, direction)                                                              \
    {name, offsetof(struct siftr_footer, field) + direction * sizeof(uint64_t)}
        COUNT("num_inbound_tcp_pkts", packets, SIFTR_IN),
        COUNT("num_outbound_tcp_pkts", packets, SIFTR_OUT),
        COUNT("num_inbound_skipped_pkts_malloc", skipped_malloc, SIFTR_IN),
        COUNT("num_outbound_skipped_pkts_malloc", skipped_malloc, SIFTR_OUT),
        COUNT("num_inbound_skipped_pkts_tcpcb", skipped_tcpcb, SIFTR_IN),
        COUNT("num_outbound_skipped_pkts_tcpcb", skipped_tcpcb, SIFTR_OUT),
        COUNT("num_inbound_skipped_pkts_inpcb", skipped_inpcb, SIFTR_IN),
        COUNT("num_outbound_skipped_pkts_inpcb", skipped_inpcb, SIFTR_OUT),
#undef COUNT
    };
    unsigned seen = 0;
    struct pair p;
    while (take_pair(r, &p)) {
        if (is_named(&p, "disable_time_secs"))
            f->disable_ns = pair_number(r, &p, SECONDS_MAX) * NS_PER_S;
        else if (is_named(&p, "disable_time_usecs"))
            pair_micros(r, &p, &f->disable_ns);
        for (size_t i = 0; i < NELEM(counts); i++) {
            if (!is_named(&p, counts[i].name))
                continue;
            uint64_t v = pair_number(r, &p, UINT64_MAX);
            memcpy((char *)f + counts[i].offset, &v, sizeof(v));
            seen |= 1u << i;
        }
    }
    if (seen != (1u << NELEM(counts)) - 1)
        refuse(r, "the footer is not complete");
}

static bool begins(const struct reader *r, const char *prefix)
{
    size_t length = strlen(prefix);
    return (size_t)(r->end - r->p) >= length && memcmp(r->p, prefix, length) == 0;
}

int siftr_parse_line(const char *line, size_t len, struct siftr_line *out, const char **why)
{
    struct reader r = {.p = line, .end = line + len};
    memset(out, 0, sizeof(*out));
    if (begins(&r, "enable_time_secs=")) {
        out->kind = SIFTR_LINE_HEADER;
        take_header(&r, &out->header);
    } else if (begins(&r, "disable_time_secs=")) {
        out->kind = SIFTR_LINE_FOOTER;
        take_footer(&r, &out->footer);
    } else {
        out->kind = SIFTR_LINE_RECORD;
        take_record(&r, &out->record);
    }
    if (r.why == NULL)
        return 0;
    *why = r.why;
    return -EINVAL;
}
