/* SPDX-License-Identifier: BSD-2-Clause
 * Names of code addresses in this process, static functions included. */
#ifndef WEIR_MEASURE_SYMBOL_H
#define WEIR_MEASURE_SYMBOL_H

#include "base/base.h"

/* "tcp_input+0xad", from the symbol table of the file that is mapped there; where that is stripped
 * from its dynamic symbols, else "libweir.so.0+0x1234" (offset in the file's addresses), else the
 * bare address. Reads the file at each call of symbol_open; between open and close it stays
 * mapped. */
struct symbols;
/* NULL: no memory. */
struct symbols *symbols_open(void) NODISCARD;
void symbols_close(struct symbols *s);
void symbol_name(struct symbols *s, const void *addr, char *out, size_t size);

#endif
