/* SPDX-License-Identifier: BSD-2-Clause
 * Text records, fast: what has not changed since a flow's last record is copied. Private to the
 * flow log. */
#ifndef WEIR_MEASURE_SIFTR_LINE_H
#define WEIR_MEASURE_SIFTR_LINE_H

#include "siftr_record.h"

#define SIFTR_LINE_FLOWS 32 /* at once; a power of two */
#define SIFTR_LINE_FIELDS 20

/* A value and its text with the comma behind it. Copied whole: what is beyond its length is then
 * overwritten. */
struct siftr_line_field {
    char text[11];
    uint8_t len;
    uint32_t value;
};

struct siftr_line_flow {
    uint8_t laddr[16], faddr[16];
    uint16_t lport, fport;
    uint8_t family;
    uint8_t ends_len;
    char ends[122]; /* "laddr,lport,faddr,fport," */
    struct siftr_line_field field[SIFTR_LINE_FIELDS];
};

struct siftr_line_cache {
    uint64_t second;
    char second_text[24];
    uint32_t second_len;
    struct siftr_line_flow flow[SIFTR_LINE_FLOWS];
};

void siftr_line_init(struct siftr_line_cache *c);
/* What siftr_text_record writes, byte for byte. */
size_t siftr_line_record(struct siftr_line_cache *c, char *buf, const struct siftr_record *r);

#endif
