/* SPDX-License-Identifier: BSD-2-Clause
 * struct weir_stack: everything a stack is hangs off this. The layers own what their pointers name.
 */
#ifndef WEIR_BASE_STACK_H
#define WEIR_BASE_STACK_H

#include "alloc.h"
#include "base.h"
#include "counter.h"
#include "hook.h"
#include "owner.h"
#include "port.h"
#include "rng.h"
#include "sysctl.h"
#include "wheel.h"

struct mbuf_account;
struct siftr;
struct netif;
struct ip_state;
struct udp_state;
struct tcp_state;
struct socket_table;

/* Field letters: (c) constant after creation; (o) owner only; (a) atomic, any thread;
 * (x) written by the owner, read by any thread with relaxed loads. */
struct weir_stack {
    struct owner owner; /* (a) first: a cache line of its own */

    uint64_t now;                   /* (o) ns, set once at each entry of the owner */
    _Atomic uint64_t next_deadline; /* (x) what the stack thread must wake for; set at release */
    struct weir_alloc alloc;        /* (c) */
    const struct port *port;        /* (c) */
    struct mbuf_account *account;   /* (c) buffer memory charged to this stack */
    struct wheel wheel;             /* (o) */
    struct rng rng;                 /* (o) */
    uint8_t
        secret[SIPHASH_KEY_BYTES]; /* (c) key of ISN, ports, cookies, hash tables; never exported */
    struct knobs knobs;            /* (x) */
    struct sysctl_state sysctl;    /* (o) */
    struct counters counters;      /* (x) */
    struct hooks hooks;            /* (o) */
    /* (a) Set by the owner when an instrument cannot take more: until it is cleared (with
     * owner_link_ready) nothing is polled, no timer runs, nothing is sent. */
    _Atomic uint32_t hold;
    struct siftr *siftr; /* (c) the flow log, NULL without one */
    char name[16];       /* (c) what netstat -an shows as the process's name */

    struct netif *netifs;         /* (o) list of interfaces, loopback first */
    struct ip_state *ip;          /* (o) routes, neighbours, fragments, ICMP limits */
    struct udp_state *udp;        /* (o) */
    struct tcp_state *tcp;        /* (o) */
    struct socket_table *sockets; /* lookups by any thread, changes by the owner */
    void *runtime;                /* (c) what the runtime attached, NULL without one */
};

#endif
