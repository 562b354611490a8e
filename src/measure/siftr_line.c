/* SPDX-License-Identifier: BSD-2-Clause
 * Text records by the difference: of a record's 27 fields few have changed since the one before in
 * its flow, and to copy sixteen bytes costs a fifth of making digits. */
#include "siftr_line.h"

#include <stdio.h>

_Static_assert(sizeof(struct siftr_line_field) == 16, "copied at once");
_Static_assert(SIFTR_TEXT_MAX >= 256 + 16, "room for what a copy writes too much");

static void field_make(struct siftr_line_field *f, uint32_t v)
{
    char digits[10];
    unsigned n = 0;

    f->value = v;
    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    f->len = (uint8_t)(n + 1);
    for (unsigned i = 0; i < n; i++)
        f->text[i] = digits[n - 1 - i];
    f->text[n] = ',';
}

void siftr_line_init(struct siftr_line_cache *c)
{
    memset(c, 0, sizeof(*c));
    c->second = UINT64_MAX;
    for (unsigned i = 0; i < SIFTR_LINE_FLOWS; i++)
        for (unsigned k = 0; k < SIFTR_LINE_FIELDS; k++)
            field_make(&c->flow[i].field[k], 0);
}

static inline char *put_field(char *p, struct siftr_line_field *f, uint32_t v)
{
    if (unlikely(f->value != v))
        field_make(f, v);
    memcpy(p, f, sizeof(*f));
    return p + f->len;
}

static bool is_flow(const struct siftr_line_flow *f, const struct siftr_record *r)
{
    return f->lport == r->lport && f->fport == r->fport && f->family == r->family &&
           memcmp(f->laddr, r->laddr, 16) == 0 && memcmp(f->faddr, r->faddr, 16) == 0;
}

static void flow_make(struct siftr_line_flow *f, const struct siftr_record *r)
{
    char *p = f->ends;

    memcpy(f->laddr, r->laddr, 16);
    memcpy(f->faddr, r->faddr, 16);
    f->lport = r->lport;
    f->fport = r->fport;
    f->family = r->family;
    p += siftr_text_address(p, r->family, r->laddr);
    p += sprintf(p, ",%u,", r->lport);
    p += siftr_text_address(p, r->family, r->faddr);
    p += sprintf(p, ",%u,", r->fport);
    f->ends_len = (uint8_t)(p - f->ends);
}

static inline char *put_time(struct siftr_line_cache *c, char *p, uint64_t ns)
{
    uint64_t second = ns / NS_PER_S;
    uint32_t us = (uint32_t)(ns - second * NS_PER_S) / (uint32_t)NS_PER_US;

    if (unlikely(second != c->second)) {
        c->second = second;
        c->second_len = (uint32_t)sprintf(c->second_text, "%llu.", (unsigned long long)second);
    }
    memcpy(p, c->second_text, sizeof(c->second_text));
    p += c->second_len;
    for (int i = 5; i >= 0; i--, us /= 10)
        p[i] = (char)('0' + us % 10);
    p[6] = ',';
    return p + 7;
}

size_t siftr_line_record(struct siftr_line_cache *c, char *buf, const struct siftr_record *r)
{
    struct siftr_line_flow *f = &c->flow[(r->flowid ^ r->lport ^ r->fport) % SIFTR_LINE_FLOWS];
    struct siftr_line_field *at = f->field;
    char *p = buf;

    if (unlikely(!is_flow(f, r)))
        flow_make(f, r);
    *p++ = r->direction == SIFTR_OUT ? 'o' : 'i';
    *p++ = ',';
    p = put_time(c, p, r->time_ns);
    memcpy(p, f->ends, 64);
    if (unlikely(f->ends_len > 64))
        memcpy(p + 64, f->ends + 64, sizeof(f->ends) - 64);
    p += f->ends_len;
#define FIELD(name) p = put_field(p, at++, r->name);
    SIFTR_NUMBERS(FIELD)
#undef FIELD
    *p++ = (char)('0' + r->flowtype);
    *p++ = '\n';
    return (size_t)(p - buf);
}
