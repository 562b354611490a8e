/* SPDX-License-Identifier: BSD-2-Clause
 * ICMP and ICMPv6 message headers (RFC 792, 4443) and neighbour discovery (RFC 4861): parse and
 * build. */
#ifndef WEIR_WIRE_ICMP_H
#define WEIR_WIRE_ICMP_H

#include "addr.h"
#include "base/base.h"
#include "eth.h"

#define ICMP_HEADER_LEN                                                                            \
    8 /* both families: type, code, checksum, 4 bytes that depend on the type                      \
       */

/* Type and code numbers, by their RFCs' names. */
#define ICMP4_ECHO_REPLY 0
#define ICMP4_UNREACH 3
#define ICMP4_UNREACH_NET 0
#define ICMP4_UNREACH_HOST 1
#define ICMP4_UNREACH_PROTO 2
#define ICMP4_UNREACH_PORT 3
#define ICMP4_UNREACH_FRAG_NEEDED 4
#define ICMP4_UNREACH_SRC_ROUTE 5
#define ICMP4_UNREACH_NET_UNKNOWN 6
#define ICMP4_UNREACH_HOST_UNKNOWN 7
#define ICMP4_UNREACH_ISOLATED 8
#define ICMP4_UNREACH_NET_PROHIB 9
#define ICMP4_UNREACH_HOST_PROHIB 10
#define ICMP4_UNREACH_NET_TOS 11
#define ICMP4_UNREACH_HOST_TOS 12
#define ICMP4_UNREACH_FILTER_PROHIB 13
#define ICMP4_UNREACH_HOST_PRECEDENCE 14
#define ICMP4_UNREACH_PRECEDENCE_CUTOFF 15
#define ICMP4_SOURCE_QUENCH 4
#define ICMP4_REDIRECT 5
#define ICMP4_ECHO 8
#define ICMP4_TIME_EXCEEDED 11
#define ICMP4_PARAM_PROBLEM 12

#define ICMP6_UNREACH 1
#define ICMP6_UNREACH_NOROUTE 0
#define ICMP6_UNREACH_ADMIN 1
#define ICMP6_UNREACH_SCOPE 2
#define ICMP6_UNREACH_ADDR 3
#define ICMP6_UNREACH_PORT 4
#define ICMP6_UNREACH_POLICY 5
#define ICMP6_UNREACH_REJECT 6
#define ICMP6_TOOBIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAM_PROBLEM 4
#define ICMP6_PARAM_HEADER 0
#define ICMP6_PARAM_NEXT_HEADER 1
#define ICMP6_PARAM_OPTION 2
#define ICMP6_ECHO 128
#define ICMP6_ECHO_REPLY 129
#define ICMP6_MLD_QUERY 130
#define ICMP6_MLD_REPORT_V1 131
#define ICMP6_MLD_REPORT_V2 143
#define ICMP6_ROUTER_SOLICIT 133
#define ICMP6_ROUTER_ADVERT 134
#define ICMP6_NEIGHBOR_SOLICIT 135
#define ICMP6_NEIGHBOR_ADVERT 136
#define ICMP6_REDIRECT 137

struct icmp_header {
    uint8_t type, code;
    uint16_t sum;  /* as stored (memory order) */
    uint32_t rest; /* host order: identifier << 16 | sequence, MTU (IPv4: low 16 bits), pointer
                      (IPv4: top 8 bits), ND flags */
};

/* 0; -EMSGSIZE. The checksum is the caller's (checksum_mbuf; ICMPv6 with the pseudo header). */
int icmp_header_parse(const uint8_t *p, size_t len, struct icmp_header *h) NODISCARD;
void icmp_header_build(uint8_t *p, const struct icmp_header *h); /* 8 bytes, sum as given */

/* --- neighbour discovery --- */
#define ND_NEIGHBOR_LEN 24 /* a solicitation or advertisement without options */
#define ND_FLAG_ROUTER UINT32_C(0x80000000)
#define ND_FLAG_SOLICITED UINT32_C(0x40000000)
#define ND_FLAG_OVERRIDE UINT32_C(0x20000000)

struct nd_neighbor {
    uint8_t type;   /* ICMP6_NEIGHBOR_SOLICIT or ICMP6_NEIGHBOR_ADVERT */
    uint32_t flags; /* ND_FLAG_*, advertisements only */
    struct ipaddr target;
    bool has_lladdr; /* source (solicitation) or target (advertisement) link-layer address option */
    uint8_t lladdr[ETH_ADDR_LEN];
};

/* Parse a neighbour solicitation or advertisement with its options. The caller has checked the hop
 * limit (255), the checksum and the code. 0; -EMSGSIZE too short; -EINVAL an option of length 0 or
 * beyond the end, or the target is multicast. */
int nd_neighbor_parse(const uint8_t *p, size_t len, struct nd_neighbor *n) NODISCARD;
/* Build one with its option where has_lladdr; the checksum field is 0. Returns the length (24 or
 * 32). */
size_t nd_neighbor_build(uint8_t p[ND_NEIGHBOR_LEN + 8], const struct nd_neighbor *n);
/* ff02::1:ffXX:XXXX of an address (RFC 4291 2.7.1). */
struct ipaddr nd_solicited_node(const struct ipaddr *a);

#endif
