/* SPDX-License-Identifier: BSD-2-Clause
 * Link specifications: "tap:tap0,addr=10.0.0.2/24,gw=10.0.0.1,delay=20ms,loss=1%" to a struct.
 *
 *   KIND[:NAME][,OPTION=VALUE]...      KIND: mem; tap, packet (need an interface's name)
 *
 *   addr=A/LEN addr6=A/LEN   own addresses, repeatable          gw=A gw6=A     default routers
 *   peer=A/LEN peer6=A/LEN   the far end's addresses (mem only)
 *   mtu=N                    bytes of an IP packet, 576..65535 (at least 1280 with IPv6)
 *   queues=N                 queues of a TAP interface, 1..8    mac=XX:XX:XX:XX:XX:XX
 *   capture=FILE             libpcap file of all frames
 *   delay=TIME rate=RATE queue=N[p|k|M] loss=SHARE dup=SHARE corrupt=SHARE
 *   reorder=SHARE[:PLACES] ecn=SHARE|Np coalesce=TIME seed=N     emulation: see link_emul.h
 *
 * TIME: a number with ns, us, ms or s. RATE: a number with bit, kbit, Mbit or Gbit.
 * SHARE: a number with %. */
#ifndef WEIR_LINK_LINK_SPEC_H
#define WEIR_LINK_LINK_SPEC_H

#include "ip/netif.h"
#include "link_emul.h"
#include "wire/addr.h"
#include "wire/ipv6.h"

enum link_kind { LINK_KIND_MEM, LINK_KIND_TAP, LINK_KIND_PACKET };

#define LINK_SPEC_NAME 64
#define LINK_SPEC_PATH 1024
#define LINK_SPEC_MAX_QUEUES 8

struct link_spec {
    enum link_kind kind;
    char name[LINK_SPEC_NAME]; /* interface or memory link; "" if not named */
    struct netif_addr addr[NETIF_MAX_ADDRS];
    unsigned addr_count;
    struct netif_addr peer[NETIF_MAX_ADDRS];
    unsigned peer_count;
    struct ipaddr gw, gw6; /* family 0: none */
    uint32_t mtu;          /* 0: not told */
    unsigned queues;       /* 0: not told */
    uint8_t mac[6];
    bool has_mac;
    char capture[LINK_SPEC_PATH]; /* "" none */
    struct link_emul_config emul;
};

/* Parse a whole specification. 0 or -EINVAL with a message in err (always terminated) that names
 * the option and what is wrong with its value. */
int link_spec_parse(const char *text, struct link_spec *out, char *err, size_t err_size) NODISCARD;

/* Parse only "OPTION=VALUE,..." for a kind; NULL or "" is no option. Errors as above. */
int link_spec_parse_options(enum link_kind kind, const char *text, struct link_spec *out, char *err,
                            size_t err_size) NODISCARD;

#endif
