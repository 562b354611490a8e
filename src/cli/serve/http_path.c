/* SPDX-License-Identifier: BSD-2-Clause
 * Targets, dates, ranges and types of HTTP: functions of text. */
#include "http.h"

#include <stdlib.h>
#include <strings.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "..", alone between slashes */
static bool climbs(const char *path)
{
    for (const char *p = path; p != NULL; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

int http_decode_target(const char *url, size_t len, bool connect, char *out)
{
    struct http_parser_url u;
    size_t n = 0;
    http_parser_url_init(&u);
    if (len > HTTP_MAX_URL || http_parser_parse_url(url, len, connect, &u) != 0)
        return 400;
    if (!(u.field_set & (1 << UF_PATH))) {
        out[0] = '\0'; /* "http://host" */
        return u.field_set & (1 << UF_HOST) ? 0 : 400;
    }
    const char *p = url + u.field_data[UF_PATH].off, *end = p + u.field_data[UF_PATH].len;
    if (*p != '/')
        return 400;
    for (p++; p < end; p++) {
        char c = *p;
        if (c == '%') {
            if (end - p < 3 || hex(p[1]) < 0 || hex(p[2]) < 0)
                return 400;
            c = (char)(hex(p[1]) << 4 | hex(p[2]));
            p += 2;
            if (c == '/' || c == '\\')
                return 403;
        }
        if (c == '\0')
            return 400;
        out[n++] = c;
    }
    out[n] = '\0';
    return climbs(out) ? 403 : 0;
}

const char *http_content_type(const char *path)
{
    static const struct {
        const char *ext, *type;
    } types[] = {
        {"html", "text/html; charset=utf-8"},
        {"htm", "text/html; charset=utf-8"},
        {"txt", "text/plain; charset=utf-8"},
        {"md", "text/plain; charset=utf-8"},
        {"css", "text/css"},
        {"js", "text/javascript"},
        {"json", "application/json"},
        {"xml", "application/xml"},
        {"svg", "image/svg+xml"},
        {"png", "image/png"},
        {"jpg", "image/jpeg"},
        {"jpeg", "image/jpeg"},
        {"gif", "image/gif"},
        {"webp", "image/webp"},
        {"ico", "image/x-icon"},
        {"pdf", "application/pdf"},
        {"mp4", "video/mp4"},
        {"wasm", "application/wasm"},
        {"gz", "application/gzip"},
        {"zst", "application/zstd"},
    };
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash != NULL ? slash : path, '.');
    for (size_t i = 0; dot != NULL && i < NELEM(types); i++)
        if (strcasecmp(dot + 1, types[i].ext) == 0)
            return types[i].type;
    return "application/octet-stream";
}

static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void http_date(time_t t, char buf[32])
{
    struct tm tm;
    if (t < 0 || gmtime_r(&t, &tm) == NULL || tm.tm_year > 8099)
        t = 0, gmtime_r(&t, &tm);
    snprintf(buf, 32, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7], tm.tm_mday % 100,
             months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100,
             tm.tm_sec % 100);
}

bool http_parse_date(const char *text, time_t *out)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %d %H:%M:%S %Y"};
    for (size_t i = 0; i < NELEM(forms); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (end != NULL && *end == '\0') {
            *out = timegm(&tm);
            return true;
        }
    }
    return false;
}

static bool number(const char **p, uint64_t *out)
{
    const char *start = *p;
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(**p - '0');
    }
    *out = v;
    return *p != start;
}

int http_parse_range(const char *text, uint64_t size, uint64_t *from, uint64_t *len)
{
    uint64_t first = 0, last = 0;
    if (strncasecmp(text, "bytes=", 6) != 0) /* RFC 9110 14.1: whatever the case */
        return 0;
    const char *p = text + 6;
    bool have_first = number(&p, &first);
    if (*p++ != '-')
        return 0;
    bool have_last = number(&p, &last);
    if (*p != '\0' ||
        (!have_first && !have_last)) /* several ranges too: the whole is a valid answer */
        return 0;
    if (!have_first) { /* the last n bytes */
        if (last == 0 || size == 0)
            return -1;
        *len = MIN(last, size);
        *from = size - *len;
        return 1;
    }
    if (have_last && last < first)
        return 0;
    if (first >= size)
        return -1;
    if (!have_last || last >= size)
        last = size - 1;
    *from = first;
    *len = last - first + 1;
    return 1;
}

char *http_escape_html(const char *text)
{
    char *out = malloc(6 * strlen(text) + 1), *o = out;
    for (const char *p = text; out != NULL && *p != '\0'; p++) {
        const char *as = *p == '&'    ? "&amp;"
                         : *p == '<'  ? "&lt;"
                         : *p == '>'  ? "&gt;"
                         : *p == '"'  ? "&quot;"
                         : *p == '\'' ? "&#39;"
                                      : NULL;
        if (as != NULL)
            o = stpcpy(o, as);
        else
            *o++ = *p;
    }
    if (out != NULL)
        *o = '\0';
    return out;
}

char *http_escape_url(const char *text)
{
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    char *out = malloc(3 * strlen(text) + 1), *o = out;
    for (const char *p = text; out != NULL && *p != '\0'; p++) {
        if (strchr(safe, *p) != NULL) {
            *o++ = *p;
            continue;
        }
        *o++ = '%';
        *o++ = digits[(unsigned char)*p >> 4];
        *o++ = digits[*p & 15];
    }
    if (out != NULL)
        *o = '\0';
    return out;
}
