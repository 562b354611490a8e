/* SPDX-License-Identifier: BSD-2-Clause
 * A client's capture: its request, its taps, and their frames merged by time. */
#include "capture.h"

#include "base/owner.h"
#include "base/stack.h"
#include "measure/pcapng.h"
#include "measure/tap.h"
#include "stack.h"

#include <stdlib.h>
#include <time.h>

struct source {
    struct tap *tap;
    char stack[sizeof(((struct weir_stack *)0)->name)];
    int64_t epoch_ns;           /* added to the stack's clock: time since 1970 */
    uint32_t iface[TAP_IFACES]; /* number in the file + 1 */
};

struct capture_stream {
    struct tap_config cfg;
    char *interface, *stack; /* NULL: all */
    struct source source[CAPTURE_MAX_TAPS];
    size_t sources;
    uint32_t ifaces;
    uint64_t start_ns; /* since 1970 */
    bool begun, full;
};

static uint64_t realtime_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- the request ---- */

static bool parse_number(const char **text, uint64_t max, uint64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= max;
}

static bool parse_instruction(const char **text, struct bpf_insn *in)
{
    static const uint64_t max[] = {UINT16_MAX, UINT8_MAX, UINT8_MAX, UINT32_MAX};
    uint64_t v[4];
    for (unsigned i = 0; i < 4; i++) {
        if (**text != (i == 0 ? ',' : ' '))
            return false;
        (*text)++;
        if (!parse_number(text, max[i], &v[i]))
            return false;
    }
    *in = (struct bpf_insn){(u_short)v[0], (u_char)v[1], (u_char)v[2], (bpf_u_int32)v[3]};
    return true;
}

static bool parse_program(const char *text, struct tap_filter *f)
{
    uint64_t n;
    free(f->code);
    *f = (struct tap_filter){0};
    if (!parse_number(&text, TAP_FILTER_MAX, &n))
        return false;
    f->never = n == 0;
    f->count = (unsigned)n;
    f->code = n > 0 ? calloc(n, sizeof(*f->code)) : NULL;
    if (n > 0 && f->code == NULL)
        return false;
    for (unsigned i = 0; i < f->count; i++)
        if (!parse_instruction(&text, &f->code[i]))
            return false;
    return *text == '\0' && tap_filter_is_sound(f);
}

static bool parse_name(const char *value, char **out)
{
    free(*out);
    *out = value[0] != '\0' ? strdup(value) : NULL;
    return *out != NULL;
}

static bool parse_pair(struct capture_stream *c, const char *arg)
{
    const char *value = strchr(arg, '=');
    uint64_t v;
    if (value == NULL)
        return false;
    size_t n = (size_t)(value++ - arg);
    if (n == 9 && memcmp(arg, "interface", n) == 0)
        return parse_name(value, &c->interface);
    if (n == 5 && memcmp(arg, "stack", n) == 0)
        return parse_name(value, &c->stack);
    if (n == 8 && memcmp(arg, "ethernet", n) == 0)
        return parse_program(value, &c->cfg.filter[0]);
    if (n == 3 && memcmp(arg, "raw", n) == 0)
        return parse_program(value, &c->cfg.filter[1]);
    if (n == 7 && memcmp(arg, "snaplen", n) == 0) {
        bool good = parse_number(&value, TAP_FRAME_MAX, &v) && *value == '\0' && v > 0;
        c->cfg.snaplen = good ? (uint32_t)v : 0;
        return good;
    }
    if (n == 6 && memcmp(arg, "buffer", n) == 0) {
        if (!parse_number(&value, TAP_RING_MAX, &v) || *value != '\0')
            return false;
        for (c->cfg.ring_bytes = TAP_RING_MIN; c->cfg.ring_bytes < v;)
            c->cfg.ring_bytes *= 2;
        return true;
    }
    return false;
}

struct capture_stream *capture_open(int argc, const char *const *argv, FILE *err, int *status)
{
    struct capture_stream *c = calloc(1, sizeof(*c));
    *status = 1;
    if (c == NULL) {
        fputs("tcpdump: out of memory\n", err);
        return NULL;
    }
    c->cfg.snaplen = TAP_FRAME_MAX;
    c->cfg.ring_bytes = CAPTURE_BUFFER;
    for (int i = 1; i < argc; i++) {
        if (!parse_pair(c, argv[i])) {
            fprintf(err, "tcpdump: not understood: %.200s\n", argv[i]);
            capture_close(c);
            *status = 2;
            return NULL;
        }
    }
    c->cfg.interface = c->interface;
    c->start_ns = realtime_ns();
    *status = 0;
    return c;
}

/* ---- taps ---- */

static bool is_tapped(const struct capture_stream *c, const struct weir_stack *s)
{
    for (size_t i = 0; i < c->sources; i++)
        if (tap_stack(c->source[i].tap) == s)
            return true;
    return false;
}

static int attach(struct capture_stream *c, struct weir_stack *s)
{
    int error = c->sources == CAPTURE_MAX_TAPS ? -ENOSPC : owner_acquire(s);
    if (error != 0)
        return error;
    struct source *src = &c->source[c->sources];
    *src = (struct source){.tap = tap_attach(s, &c->cfg, &error)};
    if (src->tap != NULL) {
        memcpy(src->stack, s->name, sizeof(src->stack));
        src->epoch_ns = (int64_t)(realtime_ns() - s->port->now_ns(s->port->ctx));
        c->sources++;
    }
    stack_leave(s);
    return error;
}

bool capture_sync(struct capture_stream *c, struct weir_stack *const *stacks, size_t count,
                  FILE *err)
{
    for (size_t i = 0; i < count && !c->full; i++) {
        if ((c->stack != NULL && strcmp(c->stack, stacks[i]->name) != 0) || is_tapped(c, stacks[i]))
            continue;
        int error = attach(c, stacks[i]);
        if (error == 0)
            continue;
        c->full = true;
        fprintf(err, "tcpdump: stack %s: %s\n", stacks[i]->name,
                error == -ENOSPC ? "too many captures" : strerror(-error));
        return false;
    }
    return true;
}

void capture_detach(struct capture_stream *c)
{
    for (size_t i = 0; i < c->sources; i++) {
        struct weir_stack *s = tap_stack(c->source[i].tap);
        if (s == NULL || owner_acquire(s) != 0)
            continue;
        tap_detach(c->source[i].tap);
        stack_leave(s);
    }
}

/* ---- output ---- */

static void begin(struct capture_stream *c, FILE *out)
{
    if (!c->begun)
        pcapng_put_section(out, "weir");
    c->begun = true;
}

static void write_interface(struct capture_stream *c, struct source *src,
                            const struct tap_record *r, FILE *out)
{
    char name[64];
    snprintf(name, sizeof(name), "%s%s%s", src->stack, src->stack[0] != '\0' ? ":" : "",
             (const char *)r->data);
    pcapng_put_interface(out, name, r->flags & TAP_BARE ? PCAPNG_LINK_RAW : PCAPNG_LINK_ETHERNET,
                         c->cfg.snaplen);
    src->iface[r->iface] = ++c->ifaces;
}

static void write_record(struct capture_stream *c, struct source *src, struct tap_record *r,
                         FILE *out)
{
    if (r->kind == TAP_IFACE) {
        write_interface(c, src, r, out);
        return;
    }
    tap_finish_checksum(r);
    pcapng_put_packet(out, src->iface[r->iface] - 1, r->time_ns + (uint64_t)src->epoch_ns,
                      r->flags & TAP_OUT ? PCAPNG_OUT : PCAPNG_IN, r->data, r->caplen, r->len);
}

/* The source whose first record is the oldest; NULL: all are empty. */
static struct source *oldest(struct capture_stream *c)
{
    struct source *best = NULL;
    uint64_t best_ns = 0;
    for (size_t i = 0; i < c->sources; i++) {
        const struct tap_record *r = tap_peek(c->source[i].tap);
        if (r == NULL)
            continue;
        uint64_t t = r->time_ns + (uint64_t)c->source[i].epoch_ns;
        if (best == NULL || t < best_ns) {
            best = &c->source[i];
            best_ns = t;
        }
    }
    return best;
}

bool capture_write(struct capture_stream *c, FILE *out, size_t max)
{
    bool any = !c->begun;
    size_t done = 0;
    struct source *src;
    begin(c, out);
    while (done < max && (src = oldest(c)) != NULL) {
        struct tap_record *r = tap_peek(src->tap);
        done += r->size;
        write_record(c, src, r, out);
        tap_pop(src->tap);
        any = true;
    }
    return any;
}

void capture_finish(struct capture_stream *c, FILE *out)
{
    uint64_t now = realtime_ns();
    begin(c, out);
    for (size_t i = 0; i < c->sources; i++) {
        for (unsigned k = 0; k < TAP_IFACES; k++) {
            uint64_t seen, lost;
            tap_counts(c->source[i].tap, k, &seen, &lost);
            if (c->source[i].iface[k] != 0)
                pcapng_put_statistics(out, c->source[i].iface[k] - 1, c->start_ns, now, seen, lost);
        }
    }
}

void capture_close(struct capture_stream *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->sources; i++)
        if (tap_stack(c->source[i].tap) == NULL)
            tap_free(c->source[i].tap);
    free(c->cfg.filter[0].code);
    free(c->cfg.filter[1].code);
    free(c->interface);
    free(c->stack);
    free(c);
}
