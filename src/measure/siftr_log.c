/* SPDX-License-Identifier: BSD-2-Clause
 * One log of SIFTR: its file, its header and footer, and records made into bytes. */
#include "siftr_log.h"

#include "base/stack.h"

#include <stdlib.h>
#include <unistd.h>

#define SYSVER 100 /* Weir 0.1.0 */
#define TAIL 4096  /* bytes looked at for a torn end */
#define FOOTER_PIECE 8192
/* A chunk that is complete; and the heads of those that follow it in one round. */
#define CHUNK_MAX (2 * SIFTR_BIN_HEAD + SIFTR_BIN_PAYLOAD_MAX + 256)

_Static_assert(FOOTER_PIECE > SIFTR_FOOTER_MAX + SIFTR_FLOW_MAX, "it moves on");

static uint64_t wall_ns(const struct weir_stack *s)
{
    const struct port *p = s->port;

    return p->wall_ns ? p->wall_ns(p->ctx) : p->now_ns(p->ctx);
}

/* ---- the writer thread ---- */

static void format_text(struct siftr_log *log, const uint8_t *slots, uint32_t n,
                        struct alq_out *out)
{
    for (; n > 0; n--, slots += SIFTR_STRIDE) {
        const struct siftr_record *r = (const void *)slots;
        char *to = alq_out_room(out, SIFTR_TEXT_MAX);
        CHECK(to != NULL);
        alq_out_add(out, siftr_line_record(log->lines, to, r), r->direction == SIFTR_IN,
                    r->direction == SIFTR_OUT);
    }
}

static void chunk_out(struct siftr_log *log, const uint8_t *chunk, size_t len, struct alq_out *out)
{
    char *to = alq_out_room(out, len);

    CHECK(to != NULL);
    memcpy(to, chunk, len);
    alq_out_add(out, len, log->in_chunk[SIFTR_IN], log->in_chunk[SIFTR_OUT]);
    memset(log->in_chunk, 0, sizeof(log->in_chunk));
}

static void format_binary(struct siftr_log *log, const uint8_t *slots, uint32_t n,
                          struct alq_out *out)
{
    for (; n > 0; n--, slots += SIFTR_STRIDE) {
        const struct siftr_record *r = (const void *)slots;
        const uint8_t *chunk;
        size_t len = siftr_encoder_add(log->encoder, r, &chunk);
        log->in_chunk[r->direction]++;
        if (len > 0)
            chunk_out(log, chunk, len, out);
    }
}

static void op_format(void *ctx, const void *records, uint32_t n, struct alq_out *out)
{
    struct siftr_log *log = ctx;

    if (log->binary)
        format_binary(log, records, n, out);
    else
        format_text(log, records, n, out);
}

static void op_settle(void *ctx, struct alq_out *out)
{
    struct siftr_log *log = ctx;
    const uint8_t *chunk;

    if (!log->binary || log->batch != 0)
        return;
    size_t len = siftr_encoder_flush(log->encoder, &chunk);
    if (len > 0)
        chunk_out(log, chunk, len, out);
}

/* ---- the footer ---- */

static uint32_t flow_hash(const struct siftr_flow *f)
{
    const uint8_t *p = (const void *)f;
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < sizeof(*f); i++)
        h = (h ^ p[i]) * 16777619u;
    return h ^ h >> 15;
}

/* A flow that was closed and opened again is one. */
static void drop_repeated(struct siftr_log *log)
{
    uint32_t size = 16, kept = 0;

    while (size < 2 * log->flow_count)
        size *= 2;
    uint32_t *table = calloc(size, sizeof(*table)); /* index + 1 */
    if (!table)
        return; /* then it is listed twice */
    for (uint32_t i = 0; i < log->flow_count; i++) {
        uint32_t h = flow_hash(&log->flows[i]) & (size - 1);
        while (table[h] && memcmp(&log->flows[table[h] - 1], &log->flows[i], sizeof(*log->flows)))
            h = (h + 1) & (size - 1);
        if (table[h])
            continue;
        log->flows[kept++] = log->flows[i];
        table[h] = kept;
    }
    log->flow_count = kept;
    free(table);
}

static size_t flow_text(char *to, const struct siftr_flow *f)
{
    struct siftr_record r = {.family = f->family, .lport = f->lport, .fport = f->fport};

    memcpy(r.laddr, f->laddr, sizeof(r.laddr));
    memcpy(r.faddr, f->faddr, sizeof(r.faddr));
    return siftr_text_flow(to, &r);
}

/* The next piece of the footer. *end: it is the last. */
static size_t footer_piece(struct siftr_log *log, char text[FOOTER_PIECE], bool *end)
{
    size_t len = 0;

    if (!log->footer_begun) {
        struct siftr_footer f = log->footer;
        struct alq_stats st;
        alq_stats(log->q, &st);
        for (int i = 0; i < 2; i++)
            f.skipped_malloc[i] += st.lost[i];
        drop_repeated(log);
        len = siftr_text_footer(text, &f);
        log->footer_begun = true;
    }
    while (log->flows_done < log->flow_count && FOOTER_PIECE - len > SIFTR_FLOW_MAX)
        len += flow_text(text + len, &log->flows[log->flows_done++]);
    *end = log->flows_done == log->flow_count;
    if (*end)
        text[len++] = '\n';
    return len;
}

static bool op_finish(void *ctx, struct alq_out *out)
{
    struct siftr_log *log = ctx;
    char text[FOOTER_PIECE], *to;
    const uint8_t *chunk;

    for (bool end = false; !end;) {
        to = alq_out_room(out, FOOTER_PIECE + SIFTR_BIN_HEAD);
        if (!to)
            return false;
        size_t len = footer_piece(log, log->binary ? text : to, &end);
        if (log->binary) {
            len = siftr_encoder_text(log->encoder, text, len, &chunk);
            memcpy(to, chunk, len);
        }
        alq_out_add(out, len, 0, 0);
    }
    return true;
}

/* There is room again. While this runs the log is open, so its stack is there. */
static void op_room(void *ctx)
{
    struct siftr_log *log = ctx;

    atomic_store(&log->s->hold, 0);
    owner_link_ready(log->s);
}

static void log_free(struct siftr_log *log)
{
    free(log->encoder);
    free(log->lines);
    free(log->flows);
    free(log);
}

static void op_gone(void *ctx)
{
    log_free(ctx);
}

static const struct alq_ops ops = {.format = op_format,
                                   .settle = op_settle,
                                   .finish = op_finish,
                                   .room = op_room,
                                   .gone = op_gone};

/* ---- the owner ---- */

/* The file must hold nothing, or a log of this form; the torn line that a killed process left at
 * its end goes. */
static int op_look(void *ctx, int fd, off_t *size)
{
    const struct siftr_log *log = ctx;
    char buf[TAIL];
    off_t from = *size > TAIL ? *size - TAIL : 0;
    ssize_t n = *size > 0 ? pread(fd, buf, 16, 0) : 0;

    if (n <= 0)
        return 0;
    enum siftr_form form = siftr_form_of(buf, (size_t)n);
    if (form != (log->binary ? SIFTR_FORM_BINARY : SIFTR_FORM_TEXT))
        return -EINVAL;
    n = log->binary ? 0 : pread(fd, buf, TAIL, from);
    if (n <= 0 || buf[n - 1] == '\n')
        return 0;
    while (n > 0 && buf[n - 1] != '\n')
        n--;
    if (n > 0)
        *size = from + n;
    return 0;
}

/* What the file begins with, or goes on with. */
static size_t head_make(struct siftr_log *log, uint64_t now_ns, uint8_t *to)
{
    struct siftr_header h = {.enable_ns = now_ns, .sysver = SYSVER, .ipmode = 6};
    char text[SIFTR_HEADER_MAX];
    const uint8_t *chunk;
    size_t len = siftr_text_header(text, &h);

    if (!log->binary) {
        memcpy(to, text, len);
        return len;
    }
    siftr_bin_preamble(to);
    len = siftr_encoder_text(log->encoder, text, len, &chunk);
    memcpy(to + SIFTR_BIN_PREAMBLE, chunk, len);
    return SIFTR_BIN_PREAMBLE + len;
}

/* What makes bytes of records. */
static bool tools_make(struct siftr_log *log)
{
    if (log->binary) {
        log->encoder = malloc(sizeof(*log->encoder));
        if (log->encoder)
            siftr_encoder_init(log->encoder);
        return log->encoder;
    }
    log->lines = malloc(sizeof(*log->lines));
    if (log->lines)
        siftr_line_init(log->lines);
    return log->lines;
}

int siftr_log_open(struct siftr_log **out, struct weir_stack *s, const char *path, uint32_t id,
                   const void *tag)
{
    static const uint8_t batches[] = {0, 1, 3};
    uint8_t head[SIFTR_BIN_PREAMBLE + SIFTR_BIN_HEAD + SIFTR_HEADER_MAX];
    struct siftr_log *log = calloc(1, sizeof(*log));

    *out = NULL;
    if (!log)
        return -ENOMEM;
    log->s = s;
    log->id = id;
    log->batch = batches[KNOB(s, siftr_batch)];
    log->binary = KNOB(s, siftr_binary);
    log->wall_offset = wall_ns(s) - s->port->now_ns(s->port->ctx);
    if (!tools_make(log)) {
        log_free(log);
        return -ENOMEM;
    }
    struct alq_config cfg = {.path = path,
                             .mode = 0644,
                             .look = op_look,
                             .head = head,
                             .head_len = head_make(log, s->now + log->wall_offset, head),
                             .record_max = log->binary ? SIFTR_BIN_RECORD_MAX : SIFTR_TEXT_MAX,
                             .keep_max = log->binary ? CHUNK_MAX : 0,
                             .ops = &ops,
                             .ctx = log,
                             .tag = tag};
    if (log->batch == 0) {
        cfg.ring_count = SIFTR_RING;
        cfg.ring_stride = SIFTR_STRIDE;
    } else {
        cfg.queue_bytes = SIFTR_QUEUE;
    }
    int error = alq_open(&log->q, &cfg);
    if (error) {
        log_free(log);
        return error;
    }
    log->ring = alq_ring_of(log->q);
    *out = log;
    return 0;
}

void siftr_log_close(struct siftr_log *log)
{
    struct weir_stack *s = log->s;

    if (log->pending_count > 0)
        siftr_log_batch(log);
    log->footer.disable_ns = s->port->now_ns(s->port->ctx) + log->wall_offset;
    alq_close(log->q); /* log may be gone from here on */
    if (atomic_exchange(&s->hold, 0))
        owner_link_ready(s);
}

static size_t batch_binary(struct siftr_log *log, char *to)
{
    const uint8_t *chunk;
    size_t len = 0;

    for (uint32_t i = 0; i < log->pending_count && len == 0; i++)
        len = siftr_encoder_add(log->encoder, &log->pending[i], &chunk);
    if (len == 0) /* as it must be: a chunk takes more than three */
        len = siftr_encoder_flush(log->encoder, &chunk);
    memcpy(to, chunk, len);
    return len;
}

void siftr_log_batch(struct siftr_log *log)
{
    uint32_t n = log->pending_count;
    uint16_t of[2] = {0};
    size_t room = log->binary ? SIFTR_BIN_HEAD + n * SIFTR_BIN_RECORD_MAX : n * SIFTR_TEXT_MAX;
    size_t len = 0;

    for (uint32_t i = 0; i < n; i++)
        of[log->pending[i].direction]++;
    struct alq_entry *e = alq_get(log->q, room, ALQ_NOWAIT);
    if (unlikely(!e)) {
        log->footer.skipped_malloc[SIFTR_IN] += of[SIFTR_IN];
        log->footer.skipped_malloc[SIFTR_OUT] += of[SIFTR_OUT];
    } else {
        if (log->binary)
            len = batch_binary(log, e->data);
        for (uint32_t i = 0; !log->binary && i < n; i++)
            len += siftr_line_record(log->lines, e->data + len, &log->pending[i]);
        alq_post(log->q, e, len, of[SIFTR_IN], of[SIFTR_OUT]);
    }
    log->pending_count = 0;
}
