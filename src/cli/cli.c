/* SPDX-License-Identifier: BSD-2-Clause
 * Messages and strict parsing for all subcommands. */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static void message(const char *command, const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof(text), fmt, ap);
    fprintf(stderr, "weir%s%s: %s\n", command[0] ? " " : "", command,
            text); /* one write: threads share stderr */
}

int cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    message(command, fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try 'weir %s%s--help'.\n", command, command[0] ? " " : "");
    return CLI_USAGE;
}

int cli_fail(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    message(command, fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

void cli_warn(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    message(command, fmt, ap);
    va_end(ap);
}

int cli_bad_option(const char *command, int c, char **argv)
{
    const char *arg = argv[optind - 1];
    bool is_long = arg != NULL && arg[0] == '-' && arg[1] == '-';
    const char *what = c == ':' ? "needs a value" : "is not an option here, or takes no value";
    if (optopt != 0 && !is_long && optopt < 128)
        return cli_usage(command, "-%c %s", optopt, what);
    return cli_usage(command, "%s %s", arg != NULL ? arg : "?", what);
}

int cli_flush(const char *command)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_OK;
    return cli_fail(command, "standard output: %s", strerror(errno));
}

/* Digits up to *end; false: none, or too large for 64 bits. */
static bool digits(const char *text, uint64_t *out, const char **end)
{
    uint64_t v = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t d = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *out = v;
    *end = p;
    return p != text;
}

bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *end;
    uint64_t v;
    if (!digits(text, &v, &end) || *end != '\0' || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *end;
    uint64_t v;
    unsigned shift = 0;
    if (!digits(text, &v, &end))
        return false;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    case '\0':
        break;
    default:
        return false;
    }
    if ((shift > 0 && end[1] != '\0') || v > UINT64_MAX >> shift)
        return false;
    v <<= shift;
    if (v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool parse_seconds(const char *text, uint64_t max_s, uint64_t *out_ns)
{
    const char *p = text;
    uint64_t whole = 0, ns = 0, unit = NS_PER_S / 10;
    if (*text != '.' && (!digits(text, &whole, &p) || whole > max_s))
        return false;
    if (*p == '.') {
        if (*++p == '\0')
            return false;
        for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
            ns += (uint64_t)(*p - '0') * unit;
    }
    if (*p != '\0')
        return false;
    ns += whole * NS_PER_S;
    if (ns > max_s * NS_PER_S)
        return false;
    *out_ns = ns;
    return true;
}

bool parse_port(const char *text, uint16_t *out)
{
    uint64_t v;
    if (!parse_u64(text, 1, UINT16_MAX, &v))
        return false;
    *out = (uint16_t)v;
    return true;
}

bool settings_add(struct settings *s, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t len = equals != NULL ? (size_t)(equals - text) : 0;
    if (len == 0 || len >= sizeof(s->v[0].name) || s->count == SETTINGS_MAX)
        return false;
    memcpy(s->v[s->count].name, text, len);
    s->v[s->count].name[len] = '\0';
    s->v[s->count++].value = equals + 1;
    return true;
}

uint64_t clock_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}
