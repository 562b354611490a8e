/* SPDX-License-Identifier: BSD-2-Clause
 * Command lines of sysctl, netstat and tcpdrop. getopt is not used: several threads parse at once.
 */
#include "inspect.h"

#include "tcp/tcp_var.h"

#include <stdlib.h>
#include <strings.h>

/* A cursor over the arguments: options may be joined ("-an"), their values may be ("-ptcp"), "--"
 * ends them. */
struct args {
    int argc, at;
    const char *const *argv;
    const char *rest; /* letters left of a joined option; NULL: none */
    const char *command;
    FILE *err;
};

static int usage(const struct args *g, const char *what, const char *detail)
{
    fprintf(g->err, "%s: %s%s%s\n", g->command, what, detail[0] ? ": " : "", detail);
    return 2;
}

/* Long options stand for letters; those that are none for '?'. A value follows as a word. */
static int long_option(const char *a)
{
    static const struct {
        const char *name;
        char letter;
    } names[] = {{"--json", 'J'}, {"--detail", 'e'}, {"--port", 'P'}, {"--state", 't'}};
    for (size_t i = 0; i < NELEM(names); i++)
        if (strcmp(a, names[i].name) == 0)
            return names[i].letter;
    return '?';
}

/* The next option letter, 0 when there is none left. */
static int next_option(struct args *g)
{
    if (g->rest == NULL || g->rest[0] == '\0') {
        g->rest = NULL;
        if (g->at >= g->argc)
            return 0;
        const char *a = g->argv[g->at];
        if (a[0] != '-' || a[1] == '\0')
            return 0;
        g->at++;
        if (strcmp(a, "--") == 0)
            return 0;
        if (a[1] == '-')
            return long_option(a);
        g->rest = a + 1;
    }
    return (unsigned char)*g->rest++;
}

static const char *option_value(struct args *g)
{
    const char *v;
    if (g->rest != NULL && g->rest[0] != '\0')
        v = g->rest;
    else
        v = g->at < g->argc ? g->argv[g->at++] : NULL;
    g->rest = NULL;
    return v;
}

static int parse_sysctl(struct args *g, struct inspect_args *a)
{
    for (int c; (c = next_option(g)) != 0;) {
        switch (c) {
        case 'a':
            a->all = true;
            break;
        case 'n':
            a->values_only = true;
            break;
        case 'N':
            a->names_only = true;
            break;
        case 'd':
            a->describe = true;
            break;
        case 'w':
            a->write = true;
            break;
        case 'i':
            a->ignore_unknown = true;
            break;
        case 'S':
            a->stack = option_value(g);
            if (a->stack == NULL)
                return usage(g, "-S needs the name of a stack", "");
            break;
        default:
            return usage(g, "unknown option", g->argv[g->at - 1]);
        }
    }
    for (; g->at < g->argc; g->at++) {
        if (a->names == INSPECT_MAX_NAMES)
            return usage(g, "too many names", g->argv[g->at]);
        const char *name = g->argv[g->at];
        if (a->write && strchr(name, '=') == NULL)
            return usage(g, "-w needs NAME=VALUE", name);
        if (name[0] == '=' || name[0] == '\0')
            return usage(g, "a name is missing", name);
        a->name[a->names++] = name;
    }
    if (a->all ? a->names > 0 || a->write : a->names == 0)
        return usage(g, "give names, or -a for all", "");
    if (a->names_only && a->values_only)
        return usage(g, "-n and -N exclude each other", "");
    return 0;
}

static bool parse_port(const char *text, uint16_t *port)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long v = strtoul(text, &end, 10);
    *port = (uint16_t)v;
    return *end == '\0' && v > 0 && v <= UINT16_MAX;
}

/* FreeBSD's names, and netstat's longer one. */
static bool parse_state(const char *text, int *state)
{
    if (strcasecmp(text, "SYN_RECEIVED") == 0)
        text = "SYN_RCVD";
    for (*state = 0; *state < TCPS_COUNT; ++*state)
        if (strcasecmp(text, tcp_state_name(*state)) == 0)
            return true;
    return false;
}

static int parse_netstat(struct args *g, struct inspect_args *a)
{
    for (int c; (c = next_option(g)) != 0;) {
        const char *v;
        switch (c) {
        case 'a':
            a->all = true;
            break;
        case 'n':
        case 'W':
            break; /* addresses are always numeric and never cut */
        case 's':
            a->statistics = true;
            break;
        case 'm':
            a->memory = true;
            break;
        case 'e':
            a->detail = true;
            break;
        case 'P':
            if ((v = option_value(g)) == NULL || !parse_port(v, &a->port))
                return usage(g, "-P needs a port", v != NULL ? v : "");
            break;
        case 't':
            if ((v = option_value(g)) == NULL || !parse_state(v, &a->state))
                return usage(g, "-t needs a state", v != NULL ? v : "");
            a->have_state = true;
            break;
        case 'J':
            a->json = true;
            break;
        case 'p':
            if ((a->group = option_value(g)) == NULL)
                return usage(g, "-p needs a protocol", "");
            break;
        case 'f':
            v = option_value(g);
            if (v != NULL && strcmp(v, "inet") == 0)
                a->family = AF_INET;
            else if (v != NULL && strcmp(v, "inet6") == 0)
                a->family = AF_INET6;
            else
                return usage(g, "-f needs inet or inet6", v != NULL ? v : "");
            break;
        case 'S':
            if ((a->stack = option_value(g)) == NULL)
                return usage(g, "-S needs the name of a stack", "");
            break;
        default:
            return usage(g, "unknown option", g->argv[g->at - 1]);
        }
    }
    if (g->at < g->argc)
        return usage(g, "unexpected argument", g->argv[g->at]);
    if (a->json && a->memory)
        return usage(g, "-J does not go with -m", "");
    if ((a->detail || a->port != 0 || a->have_state) && (a->statistics || a->memory))
        return usage(g, "-e, -P and -t are about connections", "");
    a->all |= a->have_state && a->state == TCPS_LISTEN;
    if (a->group != NULL && !a->statistics && strcmp(a->group, "tcp") != 0 &&
        strcmp(a->group, "udp") != 0)
        return usage(g, "-p needs tcp or udp", a->group);
    return 0;
}

/* "10.0.0.1:80", "10.0.0.1.80", "fd00::1.80": the port follows the last dot or colon. */
static bool parse_joined(const char *text, struct ipaddr *addr, uint16_t *port)
{
    const char *dot = strrchr(text, '.'), *colon = strrchr(text, ':');
    const char *cut = dot > colon ? dot : colon;
    char host[64];
    if (cut == NULL || (size_t)(cut - text) >= sizeof(host))
        return false;
    memcpy(host, text, (size_t)(cut - text));
    host[cut - text] = '\0';
    return ipaddr_parse(host, addr) == 0 && parse_port(cut + 1, port);
}

static int parse_flow(struct args *g, struct inspect_args *a)
{
    int n = g->argc - g->at;
    const char *const *v = g->argv + g->at;
    struct flow *f = &a->flow;
    if (n == 4) {
        if (ipaddr_parse(v[0], &f->laddr) != 0)
            return usage(g, "not an address", v[0]);
        if (!parse_port(v[1], &f->lport))
            return usage(g, "not a port", v[1]);
        if (ipaddr_parse(v[2], &f->faddr) != 0)
            return usage(g, "not an address", v[2]);
        if (!parse_port(v[3], &f->fport))
            return usage(g, "not a port", v[3]);
    } else if (n == 2) {
        if (!parse_joined(v[0], &f->laddr, &f->lport))
            return usage(g, "not ADDRESS:PORT", v[0]);
        if (!parse_joined(v[1], &f->faddr, &f->fport))
            return usage(g, "not ADDRESS:PORT", v[1]);
    } else {
        return usage(g, "give LADDR LPORT FADDR FPORT, -s STATE or -a", "");
    }
    if (f->laddr.family != f->faddr.family)
        return usage(g, "the two addresses differ in family", "");
    a->have_flow = true;
    return 0;
}

static int parse_tcpdrop(struct args *g, struct inspect_args *a)
{
    const char *state;

    for (int c; (c = next_option(g)) != 0;) {
        switch (c) {
        case 'a':
            a->all = true;
            break;
        case 's':
            a->have_state = true;
            if ((state = option_value(g)) == NULL)
                return usage(g, "-s needs a state", "");
            if (!parse_state(state, &a->state))
                return usage(g, "unknown state", state);
            break;
        case 'S':
            if ((a->stack = option_value(g)) == NULL)
                return usage(g, "-S needs the name of a stack", "");
            break;
        default:
            return usage(g, "unknown option", g->argv[g->at - 1]);
        }
    }
    if (!a->all && !a->have_state)
        return parse_flow(g, a);
    if (g->at < g->argc)
        return usage(g, "unexpected argument", g->argv[g->at]);
    return 0;
}

static int parse_cputime(struct args *g, struct inspect_args *a)
{
    for (int c; (c = next_option(g)) != 0;) {
        if (c == 'S' && (a->stack = option_value(g)) == NULL)
            return usage(g, "-S needs the name of a stack", "");
        if (c != 'S' && c != 'J')
            return usage(g, "unknown option", g->argv[g->at - 1]);
        a->json |= c == 'J';
    }
    return g->at < g->argc ? usage(g, "unexpected argument", g->argv[g->at]) : 0;
}

int inspect_parse(int argc, const char *const *argv, struct inspect_args *a, FILE *err)
{
    memset(a, 0, sizeof(*a));
    if (argc < 1 || argv[0] == NULL) {
        fputs("a command is missing\n", err);
        return 2;
    }
    struct args g = {.argc = argc, .at = 1, .argv = argv, .command = argv[0], .err = err};
    if (strcmp(argv[0], "sysctl") == 0) {
        a->command = INSPECT_SYSCTL;
        return parse_sysctl(&g, a);
    }
    if (strcmp(argv[0], "netstat") == 0) {
        a->command = INSPECT_NETSTAT;
        return parse_netstat(&g, a);
    }
    if (strcmp(argv[0], "tcpdrop") == 0) {
        a->command = INSPECT_TCPDROP;
        return parse_tcpdrop(&g, a);
    }
    if (strcmp(argv[0], "snapshot") == 0) {
        a->command = INSPECT_SNAPSHOT;
        return argc > 1 ? usage(&g, "takes no arguments", argv[1]) : 0;
    }
    if (strcmp(argv[0], "metrics") == 0) {
        a->command = INSPECT_METRICS;
        a->text_format = argc == 2 && strcmp(argv[1], "text") == 0;
        return argc > 1 + a->text_format ? usage(&g, "unexpected argument", argv[1]) : 0;
    }
    if (strcmp(argv[0], "cputime") == 0) {
        a->command = INSPECT_CPUTIME;
        return parse_cputime(&g, a);
    }
    if (strcmp(argv[0], "lockstat") == 0) {
        a->command = INSPECT_LOCKSTAT;
        return argc > 1 ? usage(&g, "unexpected argument", argv[1]) : 0;
    }
    fprintf(err, "unknown command: %s\n", argv[0]);
    return 2;
}
