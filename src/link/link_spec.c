/* SPDX-License-Identifier: BSD-2-Clause
 * Link specifications: "tap:tap0,addr=10.0.0.2/24,gw=10.0.0.1,delay=20ms,loss=1%" to a struct. */
#include "link_spec.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_MAX LINK_SPEC_PATH

/* What a parser of a value gets. It returns NULL, or what it would have wanted. */
struct ctx {
    struct link_spec *spec;
    const char *key, *value;
};

static int fail(char *err, size_t err_size, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int fail(char *err, size_t err_size, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err, err_size, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

/* A non-negative decimal number, "12" or "0.5", then its unit; no sign, no exponent, no space. */
static bool parse_number(const char *text, double *out, const char **unit)
{
    const char *p = text;
    double v = 0, place = 0.1;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        v = v * 10 + (*p - '0');
    if (*p == '.') {
        p++;
        if (!isdigit((unsigned char)*p))
            return false;
        for (; isdigit((unsigned char)*p); p++, place /= 10)
            v += (*p - '0') * place;
    }
    *out = v;
    *unit = p;
    return true;
}

struct unit {
    const char *name;
    double factor;
};

/* A number with one of the units, scaled, rounded, within [min, max]. */
static bool parse_scaled(const char *text, const struct unit *units, size_t n, double min,
                         double max, uint64_t *out)
{
    const char *unit;
    double v;

    if (!parse_number(text, &v, &unit))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(unit, units[i].name) == 0) {
            v = v * units[i].factor;
            if (v < min || v > max)
                return false;
            *out = (uint64_t)(v + 0.5);
            return true;
        }
    }
    return false;
}

static const struct unit plain[] = {{"", 1}};
static const struct unit times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
static const struct unit rates[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
static const struct unit shares[] = {{"%", (double)LINK_EMUL_SHARE_ALL / 100}};

static const char *set_time(const struct ctx *c, uint64_t *out)
{
    return parse_scaled(c->value, times, NELEM(times), 0, 3600e9, out)
               ? NULL
               : "a time up to an hour, like 20ms (ns, us, ms, s)";
}

static const char *set_share(const struct ctx *c, uint64_t *out)
{
    return parse_scaled(c->value, shares, NELEM(shares), 0, (double)LINK_EMUL_SHARE_ALL, out)
               ? NULL
               : "a share from 0% to 100%, like 1%";
}

static const char *set_uint(const struct ctx *c, uint32_t min, uint32_t max, uint32_t *out,
                            const char *wanted)
{
    uint64_t v;

    if (!parse_scaled(c->value, plain, 1, min, max, &v) || strchr(c->value, '.'))
        return wanted;
    *out = (uint32_t)v;
    return NULL;
}

static const char *add_addr(const struct ctx *c, int family, struct netif_addr *list, unsigned *n)
{
    const char *wanted = family == AF_INET
                             ? "an IPv4 address with its prefix length, like 10.0.0.2/24"
                             : "an IPv6 address with its prefix length, like fd00::2/64";
    struct netif_addr a = {0};
    char text[64];
    uint64_t len;
    const char *slash = strchr(c->value, '/');

    if (!slash || (size_t)(slash - c->value) >= sizeof(text))
        return wanted;
    memcpy(text, c->value, (size_t)(slash - c->value));
    text[slash - c->value] = '\0';
    if (ipaddr_parse(text, &a.addr) < 0 || a.addr.family != family)
        return wanted;
    if (!parse_scaled(slash + 1, plain, 1, 0, family == AF_INET ? 32 : 128, &len))
        return wanted;
    if (ipaddr_is_any(&a.addr) || ipaddr_is_multicast(&a.addr) || ipaddr_is_loopback(&a.addr))
        return "a unicast address";
    for (unsigned i = 0; i < *n; i++)
        if (ipaddr_equal(&list[i].addr, &a.addr))
            return "an address that is not given twice";
    if (*n == NETIF_MAX_ADDRS)
        return "fewer addresses (8 at most)";
    a.prefixlen = (uint8_t)len;
    list[(*n)++] = a;
    return NULL;
}

static const char *set_addr(const struct ctx *c)
{
    return add_addr(c, AF_INET, c->spec->addr, &c->spec->addr_count);
}

static const char *set_addr6(const struct ctx *c)
{
    return add_addr(c, AF_INET6, c->spec->addr, &c->spec->addr_count);
}

static const char *set_peer(const struct ctx *c)
{
    return add_addr(c, AF_INET, c->spec->peer, &c->spec->peer_count);
}

static const char *set_peer6(const struct ctx *c)
{
    return add_addr(c, AF_INET6, c->spec->peer, &c->spec->peer_count);
}

static const char *set_router(const struct ctx *c, int family, struct ipaddr *out)
{
    struct ipaddr a;

    if (ipaddr_parse(c->value, &a) < 0 || a.family != family || ipaddr_is_any(&a) ||
        ipaddr_is_multicast(&a))
        return family == AF_INET ? "an IPv4 address, like 10.0.0.1"
                                 : "an IPv6 address, like fd00::1";
    *out = a;
    return NULL;
}

static const char *set_gw(const struct ctx *c)
{
    return set_router(c, AF_INET, &c->spec->gw);
}

static const char *set_gw6(const struct ctx *c)
{
    return set_router(c, AF_INET6, &c->spec->gw6);
}

static const char *set_mtu(const struct ctx *c)
{
    return set_uint(c, 576, 65535, &c->spec->mtu, "bytes from 576 to 65535");
}

static const char *set_queues(const struct ctx *c)
{
    uint32_t v = 0;
    const char *wanted = set_uint(c, 1, LINK_SPEC_MAX_QUEUES, &v, "a number from 1 to 8");

    c->spec->queues = v;
    return wanted;
}

static const char *set_mac(const struct ctx *c)
{
    const char *wanted = "a station's address, like 02:00:00:00:00:01";
    uint8_t mac[6], any = 0;

    if (strlen(c->value) != 17)
        return wanted;
    for (int i = 0; i < 6; i++) {
        const char *p = c->value + i * 3;
        if (!isxdigit((unsigned char)p[0]) || !isxdigit((unsigned char)p[1]) ||
            p[2] != (i < 5 ? ':' : '\0'))
            return wanted;
        mac[i] = (uint8_t)strtoul(p, NULL, 16);
        any |= mac[i];
    }
    if (mac[0] & 1 || any == 0)
        return wanted;
    memcpy(c->spec->mac, mac, sizeof(mac));
    c->spec->has_mac = true;
    return NULL;
}

static const char *set_capture(const struct ctx *c)
{
    snprintf(c->spec->capture, sizeof(c->spec->capture), "%s", c->value);
    return NULL;
}

static const char *set_delay(const struct ctx *c)
{
    return set_time(c, &c->spec->emul.delay_ns);
}

static const char *set_coalesce(const struct ctx *c)
{
    return set_time(c, &c->spec->emul.coalesce_ns);
}

static const char *set_rate(const struct ctx *c)
{
    return parse_scaled(c->value, rates, NELEM(rates), 1000, 1e12, &c->spec->emul.rate_bps)
               ? NULL
               : "a rate from 1kbit to 1000Gbit, like 100Mbit (bit, kbit, Mbit, Gbit)";
}

static const char *set_queue(const struct ctx *c)
{
    static const struct unit packets[] = {{"p", 1}, {"", 1}},
                             bytes[] = {{"k", 1024}, {"M", 1 << 20}};
    struct link_emul_config *e = &c->spec->emul;
    uint64_t v;

    e->queue_packets = e->queue_bytes = 0;
    if (parse_scaled(c->value, packets, NELEM(packets), 1, LINK_EMUL_LINE_MAX, &v))
        e->queue_packets = (uint32_t)v;
    else if (parse_scaled(c->value, bytes, NELEM(bytes), 2048, 1u << 30, &v))
        e->queue_bytes = (uint32_t)v;
    else
        return "packets or bytes, like 100p, 256k or 1M";
    return NULL;
}

static const char *set_loss(const struct ctx *c)
{
    return set_share(c, &c->spec->emul.loss);
}

static const char *set_dup(const struct ctx *c)
{
    return set_share(c, &c->spec->emul.dup);
}

static const char *set_corrupt(const struct ctx *c)
{
    return set_share(c, &c->spec->emul.corrupt);
}

static const char *set_ecn(const struct ctx *c)
{
    static const struct unit packets[] = {{"p", 1}};
    struct link_emul_config *e = &c->spec->emul;
    uint64_t v;

    if (parse_scaled(c->value, packets, 1, 1, LINK_EMUL_LINE_MAX, &v)) {
        e->ecn_packets = (uint32_t)v;
        return NULL;
    }
    return set_share(c, &e->ecn) ? "a share like 1%, or a queue's length like 30p" : NULL;
}

static const char *set_reorder(const struct ctx *c)
{
    const char *wanted = "a share, how many places (1024 at most) and how long a frame waits for "
                         "others to pass it, like 10%:2 or 10%:2:50us";
    struct link_emul_config *e = &c->spec->emul;
    char text[96], *places, *wait = NULL;
    struct ctx part = {.spec = c->spec, .key = c->key, .value = text};

    if (strlen(c->value) >= sizeof(text))
        return wanted;
    strcpy(text, c->value);
    if ((places = strchr(text, ':')) != NULL)
        *places++ = '\0';
    if (places && (wait = strchr(places, ':')) != NULL)
        *wait++ = '\0';
    if (set_share(&part, &e->reorder))
        return wanted;
    part.value = places ? places : "1";
    if (set_uint(&part, 1, LINK_EMUL_HOLD_MAX, &e->reorder_places, wanted))
        return wanted;
    e->reorder_timed = wait != NULL;
    part.value = wait;
    return wait && set_time(&part, &e->reorder_ns) ? wanted : NULL;
}

static const char *set_seed(const struct ctx *c)
{
    char *end;

    errno = 0;
    c->spec->emul.seed = strtoull(c->value, &end, 10);
    return isdigit((unsigned char)c->value[0]) && *end == '\0' && errno == 0 ? NULL : "a number";
}

static const struct {
    const char *name;
    const char *example; /* where an interface must be named */
} kinds[] = {
    [LINK_KIND_MEM] = {"mem", NULL},
    [LINK_KIND_TAP] = {"tap", "tap:tap0"},
    [LINK_KIND_PACKET] = {"packet", "packet:veth0"},
};

static const struct option {
    const char *key;
    const char *(*set)(const struct ctx *c);
    bool repeatable;
    uint8_t kinds; /* 1 << LINK_KIND_*; 0: all */
} options[] = {
    {"addr", set_addr, .repeatable = true},
    {"addr6", set_addr6, .repeatable = true},
    {"peer", set_peer, .repeatable = true, .kinds = 1 << LINK_KIND_MEM},
    {"peer6", set_peer6, .repeatable = true, .kinds = 1 << LINK_KIND_MEM},
    {"gw", set_gw},
    {"gw6", set_gw6},
    {"mtu", set_mtu},
    {"queues", set_queues, .kinds = 1 << LINK_KIND_TAP},
    {"mac", set_mac, .kinds = 1 << LINK_KIND_TAP | 1 << LINK_KIND_PACKET},
    {"capture", set_capture},
    {"delay", set_delay},
    {"rate", set_rate},
    {"queue", set_queue},
    {"loss", set_loss},
    {"dup", set_dup},
    {"corrupt", set_corrupt},
    {"reorder", set_reorder},
    {"ecn", set_ecn, .repeatable = true},
    {"coalesce", set_coalesce},
    {"seed", set_seed},
};
_Static_assert(NELEM(options) <= 32, "seen is a mask");

/* One "key=value". */
static int parse_option(struct link_spec *spec, const char *text, uint32_t *seen, char *err,
                        size_t err_size)
{
    char key[16], value[VALUE_MAX];
    const char *eq = strchr(text, '='), *wanted;
    struct ctx c = {.spec = spec, .key = key, .value = value};

    if (!eq)
        return fail(err, err_size, "\"%.32s\" is not OPTION=VALUE", text);
    snprintf(key, sizeof(key), "%.*s", (int)MIN(eq - text, 15), text);
    if ((size_t)snprintf(value, sizeof(value), "%s", eq + 1) >= sizeof(value))
        return fail(err, err_size, "%s: the value is too long", key);
    for (size_t i = 0; i < NELEM(options); i++) {
        const struct option *o = &options[i];
        if (strlen(o->key) != (size_t)(eq - text) || strcmp(o->key, key) != 0)
            continue;
        if (o->kinds && !(o->kinds & 1 << spec->kind))
            return fail(err, err_size, "%s: not an option of a %s link", key,
                        kinds[spec->kind].name);
        if (*seen & 1u << i && !o->repeatable)
            return fail(err, err_size, "%s: given twice", key);
        *seen |= 1u << i;
        wanted = value[0] ? o->set(&c) : "a value";
        if (wanted)
            return fail(err, err_size, "%s=%.64s: wanted %s", key, value, wanted);
        return 0;
    }
    return fail(err, err_size, "%s: unknown option", key);
}

/* What only the whole can tell. */
static int check_whole(const struct link_spec *s, char *err, size_t err_size)
{
    bool v4 = s->addr_count == 0 && s->kind == LINK_KIND_MEM; /* its default addresses */
    bool v6 = v4 && (s->mtu == 0 || s->mtu >= IPV6_MIN_MTU);

    for (unsigned i = 0; i < s->addr_count; i++) {
        v4 |= s->addr[i].addr.family == AF_INET;
        v6 |= s->addr[i].addr.family == AF_INET6;
    }
    if (v6 && s->mtu && s->mtu < IPV6_MIN_MTU)
        return fail(err, err_size, "mtu=%u: wanted at least %d with IPv6 (RFC 8200 5)", s->mtu,
                    IPV6_MIN_MTU);
    if (s->gw.family && !v4)
        return fail(err, err_size, "gw: wanted an addr= too");
    if (s->gw6.family && !v6)
        return fail(err, err_size, "gw6: wanted an addr6= too");
    if ((s->emul.ecn_packets || s->emul.queue_packets || s->emul.queue_bytes) && !s->emul.rate_bps)
        return fail(err, err_size,
                    "queue and ecn=...p: wanted a rate= too: without, nothing queues");
    return 0;
}

static int parse_options(const char *text, struct link_spec *out, char *err, size_t err_size)
{
    char one[VALUE_MAX + 32];
    uint32_t seen = 0;

    while (text && *text) {
        size_t n = strcspn(text, ",");
        if (n >= sizeof(one))
            return fail(err, err_size, "%.16s...: too long", text);
        memcpy(one, text, n);
        one[n] = '\0';
        if (parse_option(out, one, &seen, err, err_size) < 0)
            return -EINVAL;
        text += n;
        if (*text == ',' && *++text == '\0')
            return fail(err, err_size, "an option is missing behind the last comma");
    }
    return check_whole(out, err, err_size);
}

int link_spec_parse_options(enum link_kind kind, const char *text, struct link_spec *out, char *err,
                            size_t err_size)
{
    memset(out, 0, sizeof(*out));
    out->kind = kind;
    out->emul.seed = 1;
    snprintf(err, err_size, "%s", "");
    return parse_options(text, out, err, err_size);
}

int link_spec_parse(const char *text, struct link_spec *out, char *err, size_t err_size)
{
    size_t kind_len = strcspn(text, ":,"), name_len = 0, i;

    memset(out, 0, sizeof(*out));
    out->emul.seed = 1;
    snprintf(err, err_size, "%s", "");
    for (i = 0; i < NELEM(kinds); i++)
        if (strlen(kinds[i].name) == kind_len && memcmp(kinds[i].name, text, kind_len) == 0)
            break;
    if (i == NELEM(kinds))
        return fail(err, err_size,
                    "\"%.*s\" is not a kind of link: wanted mem, tap:IFNAME or packet:IFNAME",
                    (int)MIN(kind_len, 32), text);
    out->kind = (enum link_kind)i;
    text += kind_len;
    if (*text == ':') {
        name_len = strcspn(++text, ",");
        if (name_len == 0 || name_len >= sizeof(out->name))
            return fail(err, err_size, "a name of 1 to %d bytes is wanted behind \"%s:\"",
                        LINK_SPEC_NAME - 1, kinds[i].name);
        memcpy(out->name, text, name_len);
        text += name_len;
    }
    if (kinds[i].example && name_len == 0)
        return fail(err, err_size, "%s: an interface is wanted, like %s", kinds[i].name,
                    kinds[i].example);
    if (*text == ',' && *++text == '\0')
        return fail(err, err_size, "an option is missing behind the last comma");
    return parse_options(text, out, err, err_size);
}
