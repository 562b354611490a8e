/* SPDX-License-Identifier: BSD-2-Clause
 * Numbers with units, and long names, in little room. */
#include "top.h"

#include <math.h>

/* Three digits of v < 999.5. */
static int digits(double v, char *buf, size_t size)
{
    if (v >= 99.95 || v == floor(v))
        return snprintf(buf, size, "%.0f", v);
    return snprintf(buf, size, v >= 9.995 ? "%.1f" : "%.2f", v);
}

static void scaled(double v, const char *const *prefix, size_t prefixes, const char *unit,
                   char *buf, size_t size)
{
    size_t i = 0;
    char text[32];
    for (; v >= 999.5 && i + 1 < prefixes; i++)
        v /= 1000;
    if (v >= 999.5)
        snprintf(text, sizeof(text), v < 1e15 ? "%.0f" : "%.2g", v);
    else
        digits(v, text, sizeof(text));
    snprintf(buf, size, "%s%s%s", text, prefix[i], unit);
}

void top_format(double v, enum top_unit unit, char *buf, size_t size)
{
    static const char *const si[] = {"", "k", "M", "G", "T", "P"};
    static const char *const ns[] = {"ns", "us", "ms", "s"};
    if (!(v >= 0) || isinf(v)) {
        snprintf(buf, size, "-");
        return;
    }
    switch (unit) {
    case TOP_PLAIN:
        snprintf(buf, size, "%.0f", v);
        break;
    case TOP_COUNT:
        scaled(v, si, NELEM(si), "", buf, size);
        break;
    case TOP_PER_S:
        scaled(v, si, NELEM(si), "/s", buf, size);
        break;
    case TOP_BITS:
        scaled(v, si, NELEM(si), "b/s", buf, size);
        break;
    case TOP_BYTES:
        scaled(v, si, NELEM(si), "B", buf, size);
        break;
    case TOP_NS:
        scaled(v, ns, NELEM(ns), "", buf, size);
        break;
    case TOP_PERCENT:
        snprintf(buf, size, v > 0 && v < 9.95 ? "%.1f%%" : "%.0f%%", v);
        break;
    }
}

void top_shorten(const char *text, size_t keep, size_t width, char *buf)
{
    size_t len = strlen(text), at = 0;
    if (len <= width) {
        memcpy(buf, text, len);
        at = len;
    } else if (width > 0) {
        const char *gap = width >= 12 ? ".." : "~";
        size_t left = width - strlen(gap); /* characters of the text that stay */
        size_t tail = MIN(left, keep + (left > keep ? (left - keep) / 2 : 0));
        size_t head = left - tail;
        memcpy(buf, text, head);
        memcpy(buf + head, gap, width - left);
        memcpy(buf + head + (width - left), text + len - tail, tail);
        at = width;
    }
    buf[at] = '\0';
    for (char *p = buf; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}
