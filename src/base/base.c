/* SPDX-License-Identifier: BSD-2-Clause
 * What a failed CHECK does. */
#include "base.h"

void (*base_panic_hook)(const char *file, int line, const char *what);

void base_panic(const char *file, int line, const char *what)
{
    if (base_panic_hook != NULL)
        base_panic_hook(file, line, what);
    __builtin_trap();
}
