/* SPDX-License-Identifier: BSD-2-Clause
 * From two snapshots to rows: rates, filter, order. Nothing is formatted here but what the filter
 * looks at. */
#include "top.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define NS (1.0 / NS_PER_S)

/* Columns in the order of the screen. The first of a view is what it is sorted by at first. */
static const struct top_column flow_columns[] = {
    {"rate", "", 0, TOP_RATE, TOP_BITS, "sent_bytes", "received_bytes", NULL, 8},
    {"local", "LOCAL", 14, TOP_ENDPOINT, TOP_PLAIN, "local", "local_port", NULL, 1},
    {"foreign", "FOREIGN", 14, TOP_ENDPOINT, TOP_PLAIN, "foreign", "foreign_port", NULL, 1},
    {"tx", "TX", 8, TOP_RATE, TOP_BITS, "sent_bytes", NULL, NULL, 8},
    {"rx", "RX", 8, TOP_RATE, TOP_BITS, "received_bytes", NULL, NULL, 8},
    {"rtt", "RTT", 6, TOP_GAUGE, TOP_NS, "srtt_ns", NULL, NULL, 1},
    {"cwnd", "CWND", 6, TOP_GAUGE, TOP_BYTES, "cwnd", NULL, NULL, 1},
    {"retx", "RETX", 7, TOP_RATE, TOP_PER_S, "retransmits", NULL, NULL, 1},
    {"cpu", "CPU/MB", 6, TOP_COST, TOP_NS, "cpu_ns", "sent_bytes", "received_bytes", 1e6},
    {"sndq", "SNDQ", 5, TOP_FILL, TOP_PERCENT, "sndbuf_used", "sndbuf_limit", NULL, 100},
    {"rcvq", "RCVQ", 5, TOP_FILL, TOP_PERCENT, "rcvbuf_used", "rcvbuf_limit", NULL, 100},
    {"state", "STATE", 11, TOP_TEXT, TOP_PLAIN, "state", NULL, NULL, 1},
    {"stack", "STACK", 12, TOP_TEXT, TOP_PLAIN, "stack", NULL, NULL, 1},
    {"cc", "CC", 7, TOP_TEXT, TOP_PLAIN, "cc", NULL, NULL, 1},
    {"inflight", "INFLIT", 6, TOP_GAUGE, TOP_BYTES, "inflight", NULL, NULL, 1},
    {"ssthresh", "SSTHR", 6, TOP_GAUGE, TOP_BYTES, "ssthresh", NULL, NULL, 1},
    {"sent", "SENT", 6, TOP_GAUGE, TOP_BYTES, "sent_bytes", NULL, NULL, 1},
    {"received", "RCVD", 6, TOP_GAUGE, TOP_BYTES, "received_bytes", NULL, NULL, 1},
    {"retransmits", "RETXS", 5, TOP_GAUGE, TOP_COUNT, "retransmits", NULL, NULL, 1},
};

#define ACTIVITY(name, title)                                                                      \
    {                                                                                              \
        name, title, 5, TOP_RATE, TOP_PERCENT, name "_ns", NULL, NULL, 100 * NS                    \
    }
static const struct top_column thread_columns[] = {
    {"cpu", "CPU", 5, TOP_RATE, TOP_PERCENT, "cpu_ns", NULL, NULL, 100 * NS},
    {"name", "NAME", 14, TOP_TEXT, TOP_PLAIN, "name", NULL, NULL, 1},
    {"tid", "TID", 7, TOP_GAUGE, TOP_PLAIN, "tid", NULL, NULL, 1},
    {"wait", "WAIT", 5, TOP_RATE, TOP_PERCENT, "wait_ns", NULL, NULL, 100 * NS},
    ACTIVITY("application", "APP"),
    ACTIVITY("call", "CALL"),
    ACTIVITY("copy", "COPY"),
    ACTIVITY("input", "INPUT"),
    ACTIVITY("output", "OUTP"),
    ACTIVITY("timers", "TIMER"),
    ACTIVITY("link_rx", "LNKRX"),
    ACTIVITY("link_tx", "LNKTX"),
    ACTIVITY("lock", "LOCK"),
    ACTIVITY("spin", "SPIN"),
    {"time", "TIME", 6, TOP_GAUGE, TOP_NS, "cpu_ns", NULL, NULL, 1},
};

static const struct top_column lock_columns[] = {
    {"contended", "CONTEND", 8, TOP_RATE, TOP_PER_S, "contended", NULL, NULL, 1},
    {"name", "LOCK", 16, TOP_TEXT, TOP_PLAIN, "name", NULL, NULL, 1},
    {"spins", "SPIN", 8, TOP_RATE, TOP_PER_S, "spins", NULL, NULL, 1},
    {"blocks", "BLOCK", 8, TOP_RATE, TOP_PER_S, "blocks", NULL, NULL, 1},
    {"acquired", "ACQUIRED", 8, TOP_RATE, TOP_PER_S, "acquired", NULL, NULL, 1},
    {"held", "HELD", 5, TOP_RATE, TOP_PERCENT, "held_ns", NULL, NULL, 100 * NS},
    {"waited", "WAIT", 5, TOP_RATE, TOP_PERCENT, "waited_ns", NULL, NULL, 100 * NS},
    {"contentions", "CONTENDS", 8, TOP_GAUGE, TOP_COUNT, "contended", NULL, NULL, 1},
    {"all-spins", "SPINS", 8, TOP_GAUGE, TOP_COUNT, "spins", NULL, NULL, 1},
    {"all-blocks", "BLOCKS", 8, TOP_GAUGE, TOP_COUNT, "blocks", NULL, NULL, 1},
};

#define MAX_KEYS 3
static const struct view {
    const struct top_column *column;
    unsigned columns;
    const char *key[MAX_KEYS]; /* columns that say which rows of two snapshots are one; NULL ends */
    const char *born;          /* when a row's totals were 0 (as at_ns tells time); NULL not told */
} views[TOP_VIEWS] = {
    [TOP_FLOWS] = {flow_columns, NELEM(flow_columns), {"stack", "id", "started_ns"}, "started_ns"},
    [TOP_THREADS] = {thread_columns, NELEM(thread_columns), {"tid"}, NULL},
    [TOP_LOCKS] = {lock_columns, NELEM(lock_columns), {"id"}, NULL},
};
_Static_assert(NELEM(flow_columns) <= TOP_MAX_COLUMNS && NELEM(thread_columns) <= TOP_MAX_COLUMNS,
               "columns fit");

void top_model_init(struct top_model *m)
{
    *m = (struct top_model){.view = TOP_FLOWS};
    (void)top_model_arrange(m);
}

void top_model_fini(struct top_model *m)
{
    top_snapshot_free(m->prev);
    top_snapshot_free(m->cur);
    free(m->before);
    free(m->order);
    *m = (struct top_model){0};
}

void top_model_add(struct top_model *m, struct top_snapshot *s)
{
    /* Another process has the socket now: nothing is in common. */
    if (m->cur != NULL && m->cur->pid != s->pid) {
        top_snapshot_free(m->cur);
        m->cur = NULL;
    }
    top_snapshot_free(m->prev);
    m->prev = m->cur;
    m->cur = s;
}

double top_model_interval(const struct top_model *m)
{
    return m->prev != NULL ? (m->cur->at_ns - m->prev->at_ns) * NS : NAN;
}

/* ---- one row ---- */

static const struct top_cell *cell_of(const struct top_table *t, size_t row, int column)
{
    static const struct top_cell none = {.num = NAN};
    return column >= 0 ? &t->cell[row * t->columns + (unsigned)column] : &none;
}

/* What a total (a, b or c of the column: which) grew by since the snapshot before; a row that was
 * not there began at 0, if it is known to be younger than that. */
static double growth(const struct top_model *m, size_t row, unsigned column, int which)
{
    const struct top_table *cur = &m->cur->table[m->view];
    double now = cell_of(cur, row, m->source[column][which])->num;
    if (m->prev == NULL)
        return NAN;
    if (m->before[row] > 0) {
        const struct top_table *prev = &m->prev->table[m->view];
        double then = cell_of(prev, m->before[row] - 1, m->was[column][which])->num;
        return now >= then ? now - then : NAN;
    }
    bool young = m->born < 0 || cell_of(cur, row, m->born)->num >= m->prev->at_ns;
    return young ? now : NAN;
}

/* The time in which it grew, ns. */
static double age(const struct top_model *m, size_t row)
{
    double now = cell_of(&m->cur->table[m->view], row, m->at)->num, then = NAN;
    if (m->prev != NULL && m->before[row] > 0)
        then = cell_of(&m->prev->table[m->view], m->before[row] - 1, m->was_at)->num;
    else if (m->prev != NULL)
        then = m->prev->at_ns;
    return now > then ? now - then : NAN;
}

double top_model_value(const struct top_model *m, size_t row, unsigned column)
{
    const struct top_column *c = &m->column[column];
    const struct top_table *t = &m->cur->table[m->view];
    const int *src = m->source[column];
    double v = NAN;
    switch (c->kind) {
    case TOP_TEXT:
    case TOP_ENDPOINT:
        break;
    case TOP_GAUGE:
        v = cell_of(t, row, src[0])->num;
        break;
    case TOP_RATE:
        v = growth(m, row, column, 0);
        if (c->b != NULL)
            v += growth(m, row, column, 1);
        v /= age(m, row) * NS;
        break;
    case TOP_FILL:
        v = cell_of(t, row, src[0])->num / cell_of(t, row, src[1])->num;
        break;
    case TOP_COST:
        v = growth(m, row, column, 0) / (growth(m, row, column, 1) + growth(m, row, column, 2));
        break;
    }
    v *= c->scale;
    return isfinite(v) ? v : NAN;
}

void top_model_text(const struct top_model *m, size_t row, unsigned column, char *buf, size_t size,
                    size_t *keep)
{
    const struct top_column *c = &m->column[column];
    const struct top_table *t = &m->cur->table[m->view];
    const char *text = cell_of(t, row, m->source[column][0])->text;
    *keep = 0;
    if (c->kind == TOP_ENDPOINT) {
        double port = cell_of(t, row, m->source[column][1])->num;
        char tail[16] = ".*";
        if (port > 0 && port < 65536)
            snprintf(tail, sizeof(tail), ".%.0f", port);
        *keep = strlen(tail);
        snprintf(buf, size, "%s%s", text != NULL ? text : "?", tail);
    } else if (c->kind == TOP_TEXT) {
        snprintf(buf, size, "%s", text != NULL ? text : "?");
    } else {
        top_format(top_model_value(m, row, column), c->unit, buf, size);
    }
}

bool top_model_has(const struct top_model *m, unsigned column)
{
    const struct top_column *c = &m->column[column];
    const int *src = m->source[column];
    return src[0] >= 0 && (c->b == NULL || src[1] >= 0) && (c->c == NULL || src[2] >= 0);
}

/* ---- which rows of two snapshots are one ---- */

static bool cells_equal(const struct top_cell *a, const struct top_cell *b)
{
    if ((a->text == NULL) != (b->text == NULL))
        return false;
    return a->text != NULL ? strcmp(a->text, b->text) == 0 : a->num == b->num;
}

static bool same_row(const struct top_table *a, size_t row_a, const int *key_a,
                     const struct top_table *b, size_t row_b, const int *key_b)
{
    for (int k = 0; k < MAX_KEYS && key_a[k] >= 0; k++)
        if (!cells_equal(cell_of(a, row_a, key_a[k]), cell_of(b, row_b, key_b[k])))
            return false;
    return true;
}

static uint64_t hash_row(const struct top_table *t, size_t row, const int *key)
{
    uint64_t h = 14695981039346656037u;
    for (int k = 0; k < MAX_KEYS && key[k] >= 0; k++) {
        const struct top_cell *c = cell_of(t, row, key[k]);
        const char *p = c->text != NULL ? c->text : (const char *)&c->num;
        size_t len = c->text != NULL ? strlen(c->text) : sizeof(c->num);
        for (size_t i = 0; i < len; i++)
            h = (h ^ (uint8_t)p[i]) * 1099511628211u;
    }
    return h ^ h >> 29;
}

static bool find_keys(const struct top_table *t, enum top_view view, int *key)
{
    for (int k = 0; k < MAX_KEYS; k++) {
        const char *name = views[view].key[k];
        key[k] = name != NULL ? top_table_column(t, name) : -1;
        if (name != NULL && key[k] < 0)
            return false;
    }
    return true;
}

/* m->before of all rows, by an open hash over the rows of the snapshot before. */
static bool join_rows(struct top_model *m)
{
    const struct top_table *cur = &m->cur->table[m->view];
    int key[MAX_KEYS], old_key[MAX_KEYS];
    memset(m->before, 0, cur->rows * sizeof(*m->before));
    const struct top_table *prev = m->prev != NULL ? &m->prev->table[m->view] : NULL;
    if (prev == NULL || !find_keys(cur, m->view, key) || !find_keys(prev, m->view, old_key))
        return true;
    size_t slots = 16;
    while (slots < 2 * prev->rows)
        slots *= 2;
    uint32_t *slot = calloc(slots, sizeof(*slot));
    if (slot == NULL)
        return false;
    for (size_t r = 0; r < prev->rows; r++) {
        size_t i = hash_row(prev, r, old_key) & (slots - 1);
        while (slot[i] != 0)
            i = (i + 1) & (slots - 1);
        slot[i] = (uint32_t)r + 1;
    }
    for (size_t r = 0; r < cur->rows; r++) {
        size_t i = hash_row(cur, r, key) & (slots - 1);
        while (slot[i] != 0 && !same_row(cur, r, key, prev, slot[i] - 1, old_key))
            i = (i + 1) & (slots - 1);
        m->before[r] = slot[i];
    }
    free(slot);
    return true;
}

/* ---- filter and order ---- */

static bool row_wanted(const struct top_model *m, size_t row)
{
    char text[TOP_MAX_COLUMNS * 80], *p = text, *end = text + sizeof(text);
    size_t keep;
    if (m->filter[0] == '\0')
        return true;
    text[0] = '\0';
    for (unsigned c = 0; c < m->columns; c++) {
        enum top_kind kind = m->column[c].kind;
        if ((kind != TOP_TEXT && kind != TOP_ENDPOINT) || !top_model_has(m, c) || end - p < 2)
            continue;
        top_model_text(m, row, c, p, (size_t)(end - p) - 1, &keep);
        p += strlen(p);
        *p++ = '\n'; /* no match reaches over two columns */
        *p = '\0';
    }
    return strcasestr(text, m->filter) != NULL;
}

struct sort_key {
    double num;
    const char *text;
    uint32_t row;
    int8_t sign;
};

/* What is not known is last, whatever the order; equal rows keep the instance's order. */
static int compare_keys(const void *pa, const void *pb)
{
    const struct sort_key *a = pa, *b = pb;
    int by_text = a->text != NULL && b->text != NULL ? strcmp(a->text, b->text) : 0;
    if (by_text != 0)
        return a->sign * by_text;
    if (isnan(a->num) != isnan(b->num))
        return isnan(a->num) ? 1 : -1;
    if (a->num != b->num && !isnan(a->num))
        return a->sign * (a->num < b->num ? -1 : 1);
    return a->row < b->row ? -1 : 1;
}

static bool order_rows(struct top_model *m)
{
    const struct top_table *t = &m->cur->table[m->view];
    unsigned by = m->sort[m->view].column;
    const struct top_column *c = &m->column[by];
    bool textual = c->kind == TOP_TEXT || c->kind == TOP_ENDPOINT;
    int8_t sign = textual == m->sort[m->view].reverse ? -1 : 1;
    struct sort_key *keys = malloc((t->rows + 1) * sizeof(*keys));
    if (keys == NULL)
        return false;
    size_t n = 0;
    for (size_t r = 0; r < t->rows; r++) {
        if (!row_wanted(m, r))
            continue;
        struct sort_key *k = &keys[n++];
        *k = (struct sort_key){.num = NAN, .row = (uint32_t)r, .sign = sign};
        if (textual)
            k->text = cell_of(t, r, m->source[by][0])->text;
        if (c->kind == TOP_ENDPOINT)
            k->num = cell_of(t, r, m->source[by][1])->num;
        else if (!textual)
            k->num = top_model_value(m, r, by);
    }
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < n; i++)
        m->order[i] = keys[i].row;
    m->shown = n;
    free(keys);
    return true;
}

static int place(const struct top_table *t, const char *name)
{
    return t != NULL && name != NULL ? top_table_column(t, name) : -1;
}

static void find_sources(struct top_model *m)
{
    const struct top_table *cur = m->cur != NULL ? &m->cur->table[m->view] : NULL;
    const struct top_table *prev = m->prev != NULL ? &m->prev->table[m->view] : NULL;
    for (unsigned c = 0; c < m->columns; c++) {
        const char *from[3] = {m->column[c].a, m->column[c].b, m->column[c].c};
        for (int k = 0; k < 3; k++) {
            m->source[c][k] = place(cur, from[k]);
            m->was[c][k] = place(prev, from[k]);
        }
    }
    m->at = place(cur, "at_ns");
    m->was_at = place(prev, "at_ns");
    m->born = place(cur, views[m->view].born);
}

bool top_model_arrange(struct top_model *m)
{
    m->column = views[m->view].column;
    m->columns = views[m->view].columns;
    m->shown = 0;
    find_sources(m);
    if (m->cur == NULL)
        return true;
    size_t rows = m->cur->table[m->view].rows;
    uint32_t *before = reallocarray(m->before, rows + 1, sizeof(*before));
    if (before != NULL)
        m->before = before;
    uint32_t *order = reallocarray(m->order, rows + 1, sizeof(*order));
    if (order != NULL)
        m->order = order;
    return before != NULL && order != NULL && join_rows(m) && order_rows(m);
}

bool top_model_sort_by(struct top_model *m, const char *name)
{
    const struct view *v = &views[m->view];
    for (unsigned c = 0; c < v->columns; c++) {
        if (strcasecmp(v->column[c].name, name) != 0)
            continue;
        m->sort[m->view].column = c;
        m->sort[m->view].reverse = false;
        return true;
    }
    return false;
}

void top_model_sort_step(struct top_model *m, int step)
{
    unsigned c = m->sort[m->view].column;
    for (unsigned i = 0; i < m->columns; i++) {
        c = (c + m->columns + (unsigned)step) % m->columns;
        if (m->cur == NULL || top_model_has(m, c))
            break;
    }
    m->sort[m->view].column = c;
    m->sort[m->view].reverse = false;
}

void top_model_list_columns(enum top_view view, FILE *to)
{
    for (unsigned c = 0; c < views[view].columns; c++)
        fprintf(to, " %s", views[view].column[c].name);
    fputc('\n', to);
}
