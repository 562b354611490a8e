/* SPDX-License-Identifier: BSD-2-Clause
 * The screen as lines of text, and what keys do to it. Any size is good: lines are cut, and where
 * there are few, what matters least goes first. */
#include "top.h"

#include <math.h>
#include <ncurses.h>

/* ---- which line is what ---- */

struct plan {
    int title, totals, tabs, heads, foot; /* lines, -1: there is none */
    unsigned rows_at, rows;
};

static struct plan plan_lines(unsigned height)
{
    struct plan p = {.title = height >= 4 ? 0 : -1, .totals = -1, .tabs = -1, .foot = -1};
    int y = height >= 4 ? 1 : 0;
    if (height >= 8)
        p.totals = y++;
    if (height >= 6)
        p.tabs = y++;
    p.heads = height >= 2 ? y++ : -1;
    p.foot = height >= 5 ? (int)height - 1 : -1;
    p.rows_at = (unsigned)y;
    p.rows = height - p.rows_at - (p.foot >= 0);
    return p;
}

/* ---- columns ---- */

struct slot {
    unsigned column, x, width;
};

static bool stretches(const struct top_column *c)
{
    return c->kind == TOP_ENDPOINT;
}

/* Columns from the skip-th on that fit, with what is left over given to addresses. */
static unsigned plan_columns(const struct top_model *m, unsigned skip, unsigned width,
                             struct slot *slot)
{
    unsigned n = 0, x = 0, soft = 0;
    for (unsigned c = 0; c < m->columns; c++) {
        const struct top_column *col = &m->column[c];
        if (col->width == 0 || (m->cur != NULL && !top_model_has(m, c)))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (n > 0 && x + col->width > width)
            break;
        slot[n++] = (struct slot){.column = c, .width = MIN((unsigned)col->width, width)};
        x += col->width + 1u;
        soft += stretches(col);
    }
    unsigned spare = x <= width + 1 ? width + 1 - x : 0;
    x = 0;
    for (unsigned i = 0; i < n; i++) {
        if (stretches(&m->column[slot[i].column])) {
            unsigned more = MIN(spare / soft, 45u - slot[i].width);
            slot[i].width += more;
            spare -= more;
            soft--;
        }
        slot[i].x = x;
        x += slot[i].width + 1;
    }
    return n;
}

static bool is_left(const struct top_column *c)
{
    return c->kind == TOP_TEXT || c->kind == TOP_ENDPOINT;
}

/* Text into a cell of a line that is blank so far. */
static void place(char *line, unsigned width, const struct slot *s, bool left, const char *text)
{
    size_t len = MIN(strlen(text), (size_t)s->width), room = s->x < width ? width - s->x : 0;
    size_t pad = left ? 0 : s->width - len;
    for (size_t i = 0; i < len && pad + i < room; i++)
        line[s->x + pad + i] = text[i];
}

static void put_heads(const struct top_screen *s, char *line)
{
    struct slot slot[TOP_MAX_COLUMNS];
    const struct top_model *m = &s->model;
    unsigned n = plan_columns(m, s->skip, s->width, slot);
    for (unsigned i = 0; i < n; i++) {
        const struct top_column *c = &m->column[slot[i].column];
        place(line, s->width, &slot[i], is_left(c), c->title);
    }
}

static void put_row(const struct top_screen *s, size_t row, char *line)
{
    struct slot slot[TOP_MAX_COLUMNS];
    char text[512], cut[512];
    size_t keep;
    unsigned n = plan_columns(&s->model, s->skip, s->width, slot);
    for (unsigned i = 0; i < n; i++) {
        top_model_text(&s->model, row, slot[i].column, text, sizeof(text), &keep);
        top_shorten(text, keep, MIN(slot[i].width, sizeof(cut) - 1), cut);
        place(line, s->width, &slot[i], is_left(&s->model.column[slot[i].column]), cut);
    }
}

/* ---- the lines above and below ---- */

static void title(const struct top_model *m, bool paused, char *buf, size_t size)
{
    char when[32];
    snprintf(when, sizeof(when), m->prev != NULL ? "%.3f s" : "-", top_model_interval(m));
    if (m->cur == NULL)
        snprintf(buf, size, "weir top");
    else
        snprintf(buf, size, "weir top: pid %d, %.0f flows%s, %zu threads, interval %s%s",
                 m->cur->pid, m->cur->flows,
                 m->cur->flows > (double)m->cur->table[TOP_FLOWS].rows ? " (not all listed)" : "",
                 m->cur->table[TOP_THREADS].rows, when, paused ? "  PAUSED" : "");
}

static void totals(const struct top_model *m, char *buf, size_t size)
{
    char tx[16], rx[16], retx[16], count[16], bytes[16];
    const struct top_snapshot *a = m->prev, *b = m->cur;
    double s = top_model_interval(m);
    top_format(a != NULL ? (b->sent_bytes - a->sent_bytes) * 8 / s : NAN, TOP_BITS, tx, sizeof(tx));
    top_format(a != NULL ? (b->received_bytes - a->received_bytes) * 8 / s : NAN, TOP_BITS, rx,
               sizeof(rx));
    top_format(a != NULL ? (b->retransmits - a->retransmits) / s : NAN, TOP_PER_S, retx,
               sizeof(retx));
    top_format(b != NULL ? b->mbufs : NAN, TOP_COUNT, count, sizeof(count));
    top_format(b != NULL ? b->mbuf_bytes : NAN, TOP_BYTES, bytes, sizeof(bytes));
    snprintf(buf, size, "tx %s, rx %s, retransmits %s; %s mbufs, %s", tx, rx, retx, count, bytes);
}

static void tabs(const struct top_screen *s, char *buf, size_t size)
{
    const struct top_model *m = &s->model;
    size_t at = 0;
    for (int v = 0; v < TOP_VIEWS && at < size; v++)
        at += (size_t)snprintf(buf + at, size - at, v == (int)m->view ? "[%d %s] " : " %d %s  ",
                               v + 1, top_view_name[v]);
    if (at < size)
        at += (size_t)snprintf(buf + at, size - at, " sort: %s%s",
                               m->column[m->sort[m->view].column].name,
                               m->sort[m->view].reverse ? " reversed" : "");
    if (m->filter[0] != '\0' && at < size)
        snprintf(buf + at, size - at, "  filter: %s (%zu)", m->filter, m->shown);
}

static void foot(const struct top_screen *s, char *buf, size_t size)
{
    if (s->editing)
        snprintf(buf, size, "filter: %s_", s->model.filter);
    else if (s->message[0] != '\0')
        snprintf(buf, size, "%s", s->message);
    else
        snprintf(buf, size, "q quit  h help  1 2 3 views  < > sort  r reverse  f filter  p pause");
}

static const char *const help_text[] = {
    "q            quit",
    "1 2 3 tab    flows, threads, locks",
    "up down      scroll; PageUp PageDown Home End too",
    "left right   columns",
    "< > s        sort by the column before, after (the name stands above)",
    "r            reverse the order",
    "f            only rows with a text in them; Enter ends it, Esc takes it back",
    "p            pause",
    "space        refresh now",
    "h            back",
    "",
    "TX RX        payload bits a second      RETX  segments resent a second",
    "CPU/MB       CPU time for a megabyte, sent and received (kern.cputime=ticks)",
    "SNDQ RCVQ    how full the socket's buffers are",
    "CPU WAIT     on a core; ready, without one; then by activity (kern.cputime)",
    "CONTEND      acquisitions that did not succeed at once: by SPIN, by BLOCK",
    "HELD WAIT    of the lock: share of the time (debug.lock.prof.enable=1)",
};

enum top_look top_screen_line(const struct top_screen *s, unsigned y, char *buf)
{
    struct plan p = plan_lines(s->height);
    const struct top_model *m = &s->model;
    enum top_look look = TOP_LOOK_PLAIN;
    char text[512] = "";
    memset(buf, ' ', s->width);
    buf[s->width] = '\0';
    if ((int)y == p.title) {
        title(m, s->paused, text, sizeof(text));
        look = TOP_LOOK_BOLD;
    } else if ((int)y == p.foot) {
        foot(s, text, sizeof(text));
        look = s->message[0] != '\0' && !s->editing ? TOP_LOOK_BOLD : TOP_LOOK_PLAIN;
    } else if (s->help) {
        unsigned line = y - (p.title >= 0);
        if (line < NELEM(help_text))
            snprintf(text, sizeof(text), "%s", help_text[line]);
    } else if ((int)y == p.totals) {
        totals(m, text, sizeof(text));
    } else if ((int)y == p.tabs) {
        tabs(s, text, sizeof(text));
    } else if ((int)y == p.heads) {
        put_heads(s, buf);
        return TOP_LOOK_REVERSE;
    } else {
        size_t i = s->first + (y - p.rows_at);
        if (i < m->shown)
            put_row(s, m->order[i], buf);
        return look;
    }
    for (unsigned i = 0; text[i] != '\0' && i < s->width; i++)
        buf[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    return look;
}

/* ---- keys ---- */

void top_screen_settle(struct top_screen *s)
{
    unsigned rows = plan_lines(s->height).rows, columns = 0;
    const struct top_model *m = &s->model;
    size_t last = m->shown > rows ? m->shown - rows : 0;
    s->first = MIN(s->first, last);
    for (unsigned c = 0; c < m->columns; c++)
        columns += m->column[c].width > 0 && top_model_has(m, c);
    s->skip = MIN(s->skip, columns > 0 ? columns - 1 : 0);
}

static void edit_filter(struct top_screen *s, int key)
{
    char *f = s->model.filter;
    size_t len = strlen(f);
    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        s->editing = false;
    } else if (key == 27) {
        memcpy(f, s->before, sizeof(s->before));
        s->editing = false;
    } else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
        if (len > 0)
            f[len - 1] = '\0';
    } else if (key >= ' ' && key <= '~' && len + 1 < sizeof(s->model.filter)) {
        f[len] = (char)key;
        f[len + 1] = '\0';
    }
    (void)top_model_arrange(&s->model);
}

static void show_view(struct top_screen *s, unsigned view)
{
    s->model.view = (enum top_view)(view % TOP_VIEWS);
    s->first = 0;
    s->skip = 0;
    (void)top_model_arrange(&s->model);
}

static void scroll_by(struct top_screen *s, int key)
{
    size_t page = MAX(plan_lines(s->height).rows, 2u) - 1;
    if (key == KEY_DOWN)
        s->first++;
    else if (key == KEY_UP && s->first > 0)
        s->first--;
    else if (key == KEY_NPAGE)
        s->first += page;
    else if (key == KEY_PPAGE)
        s->first -= MIN(s->first, page);
    else if (key == KEY_HOME)
        s->first = 0;
    else if (key == KEY_END)
        s->first = s->model.shown;
    else if (key == KEY_RIGHT)
        s->skip++;
    else if (key == KEY_LEFT && s->skip > 0)
        s->skip--;
}

static void change_order(struct top_screen *s, int key)
{
    struct top_model *m = &s->model;
    if (key == 'r')
        m->sort[m->view].reverse = !m->sort[m->view].reverse;
    else
        top_model_sort_step(m, key == '<' ? -1 : 1);
    (void)top_model_arrange(m);
}

void top_screen_key(struct top_screen *s, int key)
{
    if (s->editing) {
        edit_filter(s, key);
    } else {
        switch (key) {
        case 'q':
            s->quit = true;
            break;
        case 'h':
        case '?':
            s->help = !s->help;
            break;
        case 27:
            s->help = false;
            break;
        case '1':
        case '2':
        case '3':
            show_view(s, (unsigned)(key - '1'));
            break;
        case '\t':
            show_view(s, s->model.view + 1u);
            break;
        case 's':
        case '>':
        case '<':
        case 'r':
            change_order(s, key);
            break;
        case 'f':
        case '/':
            memcpy(s->before, s->model.filter, sizeof(s->before));
            s->editing = true;
            break;
        case 'p':
            s->paused = !s->paused;
            break;
        case ' ':
            s->refresh = true;
            break;
        default:
            scroll_by(s, key);
        }
    }
    top_screen_settle(s);
}

/* ---- batch ---- */

static void print_cell(FILE *out, const char *text, unsigned width, bool left, bool last)
{
    int pad = left ? (last ? 0 : -(int)width) : (int)width;
    fprintf(out, "%*s%c", pad, text, last ? '\n' : ' ');
}

void top_screen_print(const struct top_model *m, FILE *out)
{
    struct slot slot[TOP_MAX_COLUMNS];
    char text[512], clean[512];
    size_t keep;
    unsigned n = plan_columns(m, 0, 1000, slot);
    title(m, false, text, sizeof(text));
    fprintf(out, "%s\n", text);
    totals(m, text, sizeof(text));
    fprintf(out, "%s\n", text);
    for (unsigned i = 0; i < n; i++) {
        const struct top_column *c = &m->column[slot[i].column];
        if (stretches(c))
            slot[i].width = 22;
        print_cell(out, c->title, slot[i].width, is_left(c), i + 1 == n);
    }
    for (size_t r = 0; r < m->shown; r++) {
        for (unsigned i = 0; i < n; i++) {
            const struct top_column *c = &m->column[slot[i].column];
            top_model_text(m, m->order[r], slot[i].column, text, sizeof(text), &keep);
            top_shorten(text, 0, sizeof(clean) - 1, clean);
            print_cell(out, clean, slot[i].width, is_left(c), i + 1 == n);
        }
    }
    fputc('\n', out);
}
