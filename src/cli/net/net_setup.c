/* SPDX-License-Identifier: BSD-2-Clause
 * Opening hosts for the subcommands: stacks, their links and knobs; addresses. */
#include "cli/net/net.h"

#include "base/sysctl.h"
#include "link/link_spec.h"
#include "weir/stack.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

static void setting_error(const struct settings *sets, unsigned i, int e, char *err, size_t size)
{
    const char *why = e == ENOENT   ? "no such knob"
                      : e == EPERM  ? "it is read only"
                      : e == EINVAL ? "not a value of its type"
                      : e == ERANGE ? "out of its range"
                                    : strerror(e);
    snprintf(err, size, "cannot set %s=%s: %s", sets->v[i].name, sets->v[i].value, why);
}

static int apply_settings(struct weir_stack *s, const struct settings *sets, char *err, size_t size)
{
    for (unsigned i = 0; sets != NULL && i < sets->count; i++) {
        if (weir_sysctl_set(s, sets->v[i].name, sets->v[i].value) == 0)
            continue;
        setting_error(sets, i, errno, err, size);
        return -1;
    }
    return 0;
}

static int open_stack(struct net *n, const struct net_setup *setup, char *err, size_t size)
{
    if (setup->kernel) {
        *n = (struct net){.ops = &net_kernel_ops};
        net_kernel_raise_limit();
        return 0;
    }
    struct weir_config cfg = {.name = setup->name};
    *n = (struct net){.ops = &net_weir_ops, .stack = weir_stack_create(&cfg)};
    if (n->stack == NULL) {
        snprintf(err, size, "cannot create a stack: %s", strerror(errno));
        return -1;
    }
    return apply_settings(n->stack, setup->sets, err, size);
}

static int link_error(const char *spec, const char *why, char *err, size_t size)
{
    snprintf(err, size, "link %s: %s", spec, why != NULL ? why : strerror(errno));
    return -1;
}

/* Of the Weir stack: congestion control and knobs that there are, a link that can be meant. */
static bool setup_makes_sense(const struct net_setup *setup, char *err, size_t size)
{
    const struct settings *sets = setup->sets;
    struct link_spec spec;
    char why[160];
    if (setup->cc != NULL && sysctl_check("net.inet.tcp.cc.algorithm", setup->cc) != 0) {
        snprintf(err, size, "congestion control %s: there is %s", setup->cc,
                 knob_table[KNOB_tcp_cc_algorithm].words);
        return false;
    }
    for (unsigned i = 0; sets != NULL && i < sets->count; i++) {
        int e = sysctl_check(sets->v[i].name, sets->v[i].value);
        if (e != 0) {
            setting_error(sets, i, -e, err, size);
            return false;
        }
    }
    if (setup->link == NULL || link_spec_parse(setup->link, &spec, why, sizeof(why)) == 0)
        return true;
    (void)link_error(setup->link, why, err, size);
    return false;
}

bool net_check(const struct net_setup *setup, char *err, size_t size)
{
    return setup->kernel || setup_makes_sense(setup, err, size);
}

int net_check_leading_out(const char *command, const struct net_setup *setup)
{
    char err[256];
    if (setup->kernel ? setup->link != NULL || setup->sets->count > 0
                      : setup->link == NULL || net_link_is_mem(setup->link))
        return cli_usage(command,
                         setup->kernel
                             ? "--link and --set are for the weir stack"
                             : "give a --link that leads out of this process, or --stack kernel");
    return net_check(setup, err, sizeof(err)) ? -1 : cli_usage(command, "%s", err);
}

int net_open(struct net *n, const struct net_setup *setup, char *err, size_t size)
{
    const char *why = NULL;
    int e = open_stack(n, setup, err, size);
    if (e == 0 && !setup->kernel && setup->link != NULL &&
        weir_link_open(n->stack, setup->link, &why) != 0)
        e = link_error(setup->link, why, err, size);
    if (e != 0)
        net_close(n);
    return e;
}

bool net_link_is_mem(const char *spec)
{
    return strncmp(spec, "mem", 3) == 0 && (spec[3] == '\0' || spec[3] == ',');
}

int net_open_pair(struct net n[2], const struct net_setup setup[2], char *err, size_t size)
{
    const char *spec = setup[0].link != NULL ? setup[0].link : "mem", *why = NULL;
    n[0] = n[1] = (struct net){0};
    int e = open_stack(&n[0], &setup[0], err, size);
    if (e == 0)
        e = open_stack(&n[1], &setup[1], err, size);
    if (e == 0 && !setup[0].kernel &&
        weir_link_pair(n[0].stack, n[1].stack, spec[3] == ',' ? spec + 4 : "", &why) != 0)
        e = link_error(spec, why, err, size);
    if (e != 0) {
        net_close(&n[0]);
        net_close(&n[1]);
    }
    return e;
}

void net_close(struct net *n)
{
    if (n->stack != NULL)
        weir_stack_destroy(n->stack);
    *n = (struct net){0};
}

/* The value of an option of a link specification, without its prefix length. */
static bool spec_option(const char *spec, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    for (const char *p = spec; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, len) != 0 || p[len] != '=')
            continue;
        p += len + 1;
        size_t n = strcspn(p, ",/");
        if (n >= size)
            return false;
        memcpy(out, p, n);
        out[n] = '\0';
        return true;
    }
    return false;
}

int net_pair_address(bool kernel, const char *link, int family, struct sockaddr_storage *sa,
                     char *err, size_t size)
{
    char host[64];
    bool v6 = family == AF_INET6;
    if (kernel)
        snprintf(host, sizeof(host), "%s", v6 ? "::1" : "127.0.0.1");
    else if (link == NULL || !spec_option(link, v6 ? "peer6" : "peer", host, sizeof(host)))
        snprintf(host, sizeof(host), "%s", v6 ? "fd00::2" : "10.0.0.2");
    return net_resolve(host, 0, family, sa, err, size) > 0 ? 0 : -1;
}

static socklen_t any_address(uint16_t port, int family, struct sockaddr_storage *sa)
{
    memset(sa, 0, sizeof(*sa)); /* both families' "any" are zeros */
    sa->ss_family = (sa_family_t)family;
    net_sockaddr_set_port(sa, port);
    return net_sockaddr_len(sa);
}

socklen_t net_resolve(const char *host, uint16_t port, int family, struct sockaddr_storage *sa,
                      char *err, size_t size)
{
    struct addrinfo hints = {.ai_family = family != 0 ? family : AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM},
                    *list;
    if (host == NULL)
        return any_address(port, family != 0 ? family : AF_INET6, sa); /* IPv6 takes IPv4 too */
    int e = getaddrinfo(host, NULL, &hints, &list);
    if (e != 0) {
        snprintf(err, size, "%s: %s", host, e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e));
        return 0;
    }
    memset(sa, 0, sizeof(*sa));
    memcpy(sa, list->ai_addr, MIN((size_t)list->ai_addrlen, sizeof(*sa)));
    freeaddrinfo(list);
    net_sockaddr_set_port(sa, port);
    return net_sockaddr_len(sa);
}

socklen_t net_sockaddr_len(const struct sockaddr_storage *sa)
{
    return sa->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void net_sockaddr_set_port(struct sockaddr_storage *sa, uint16_t port)
{
    if (sa->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)sa)->sin_port = htons(port);
}

int net_set_int(const struct net *n, int fd, int level, int name, int value)
{
    return n->ops->setsockopt(fd, level, name, &value, sizeof(value));
}

int net_listener(const struct net *n, const struct sockaddr_storage *sa, int backlog, int flags)
{
    struct sockaddr_storage v4;
    int fd = n->ops->socket(n->stack, sa->ss_family, SOCK_STREAM | flags);
    if (fd < 0 && errno == EAFNOSUPPORT && sa->ss_family == AF_INET6 &&
        IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)sa)->sin6_addr)) {
        /* A kernel without IPv6: its every address is an IPv4 one. */
        any_address(ntohs(((const struct sockaddr_in6 *)sa)->sin6_port), AF_INET, &v4);
        return net_listener(n, &v4, backlog, flags);
    }
    if (fd < 0)
        return -1;
    (void)net_set_int(n, fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (sa->ss_family == AF_INET6)
        (void)net_set_int(n, fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (n->ops->bind(fd, (const struct sockaddr *)sa, net_sockaddr_len(sa)) == 0 &&
        n->ops->listen(fd, backlog) == 0)
        return fd;
    int e = errno;
    n->ops->close(fd);
    errno = e;
    return -1;
}

int net_send_all(const struct net *n, int fd, const void *buf, size_t len)
{
    const char *p = buf;
    while (len > 0) {
        ssize_t r = n->ops->send(fd, p, len, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -1;
        p += r;
        len -= (size_t)r;
    }
    return 0;
}
