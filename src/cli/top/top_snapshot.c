/* SPDX-License-Identifier: BSD-2-Clause
 * A snapshot from its JSON: whatever the text holds, what comes out is rectangular and safe. */
#include "top.h"

#include <math.h>
#include <stdlib.h>

const char *const top_view_name[TOP_VIEWS] = {"flows", "threads", "locks"};

int top_table_column(const struct top_table *t, const char *name)
{
    for (unsigned i = 0; i < t->columns; i++)
        if (strcmp(t->name[i], name) == 0)
            return (int)i;
    return -1;
}

static bool parse_table(const json_t *o, struct top_table *t)
{
    const json_t *columns = json_object_get(o, "columns"), *rows = json_object_get(o, "rows");
    if (!json_is_array(columns) || !json_is_array(rows) || json_array_size(columns) > 1000)
        return false;
    t->columns = (unsigned)json_array_size(columns);
    t->rows = json_array_size(rows);
    t->name = calloc(t->columns + 1, sizeof(*t->name));
    t->cell = calloc(t->columns * t->rows + 1, sizeof(*t->cell));
    if (t->name == NULL || t->cell == NULL)
        return false;
    for (unsigned i = 0; i < t->columns; i++) {
        t->name[i] = json_string_value(json_array_get(columns, i));
        if (t->name[i] == NULL)
            return false;
    }
    struct top_cell *cell = t->cell;
    for (size_t r = 0; r < t->rows; r++) {
        const json_t *row = json_array_get(rows, r);
        for (unsigned i = 0; i < t->columns; i++, cell++) {
            const json_t *v = json_array_get(row, i); /* NULL where there is none */
            cell->text = json_string_value(v);
            cell->num = json_is_number(v) ? json_number_value(v) : NAN;
        }
    }
    return true;
}

static double number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void sum_stacks(struct top_snapshot *s)
{
    const json_t *stack;
    size_t i;
    json_array_foreach(json_object_get(s->root, "stacks"), i, stack)
    {
        const json_t *counters = json_object_get(stack, "counters");
        s->flows += number(stack, "flows");
        s->sent_bytes += number(counters, "tcp.tx_bytes");
        s->received_bytes += number(counters, "tcp.rx_bytes");
        s->retransmits += number(counters, "tcp.tx_rexmt");
    }
}

struct top_snapshot *top_snapshot_parse(const char *text, size_t len)
{
    struct top_snapshot *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->root = json_loadb(text, len, 0, NULL);
    s->at_ns = number(s->root, "at_ns");
    bool good = number(s->root, "version") == 1 && s->at_ns >= 0;
    for (int v = 0; good && v < TOP_VIEWS; v++)
        good = parse_table(json_object_get(s->root, top_view_name[v]), &s->table[v]);
    if (!good) {
        top_snapshot_free(s);
        return NULL;
    }
    double pid = number(s->root, "pid");
    s->pid = pid >= 0 && pid < INT32_MAX ? (int)pid : 0;
    s->mbufs = number(s->root, "mbufs");
    s->mbuf_bytes = number(s->root, "mbuf_bytes");
    sum_stacks(s);
    return s;
}

void top_snapshot_free(struct top_snapshot *s)
{
    if (s == NULL)
        return;
    for (int v = 0; v < TOP_VIEWS; v++) {
        free(s->table[v].name);
        free(s->table[v].cell);
    }
    json_decref(s->root);
    free(s);
}
