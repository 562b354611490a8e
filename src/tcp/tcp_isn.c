/* SPDX-License-Identifier: BSD-2-Clause
 * Keyed numbers of a connection: initial sequence number, timestamp offset, hash. */
#include "tcp_in.h"

void tcp_keyed_hash(struct weir_stack *s, enum tcp_hash_label label, const struct flow *f,
                    uint64_t out[2])
{
    struct {
        uint8_t label, lfamily, ffamily, zero;
        uint16_t lport, fport;
        uint32_t w[10];
    } in = {.label = (uint8_t)label, .lport = f->lport, .fport = f->fport};

    in.lfamily = f->laddr.family;
    in.ffamily = f->faddr.family;
    if (f->laddr.family == AF_INET) {
        in.w[0] = f->laddr.w[0];
        in.w[1] = f->faddr.w[0];
        siphash128(s->secret, &in, 16, out);
        return;
    }
    memcpy(in.w, f->laddr.b, 16);
    memcpy(in.w + 4, f->faddr.b, 16);
    in.w[8] = f->laddr.scope;
    in.w[9] = f->faddr.scope;
    siphash128(s->secret, &in, sizeof(in), out);
}

/* The numbers of a tuple: a handshake asks for the same ones again and again. The first word is
 * secret, the halves of the second are shown to the peer. */
static const uint64_t *tuple_hash(struct weir_stack *s, const struct flow *f)
{
    struct tcp_state *t = s->tcp;

    if (!t->hash_valid || !flow_equal(&t->hash_flow, f)) {
        t->hash_flow = *f;
        tcp_keyed_hash(s, TCP_LABEL_TUPLE, f, t->hash);
        t->hash_valid = true;
    }
    return t->hash;
}

uint64_t tcp_flow_hash(struct weir_stack *s, const struct flow *f)
{
    return tuple_hash(s, f)[0];
}

/* RFC 6528: a clock plus a keyed hash of the four-tuple. The clock ticks each 64 ns, so that a
 * sequence number space used at up to 125 Mbit/s stays behind it and a later connection on the same
 * tuple starts above its predecessor. */
uint32_t tcp_iss(struct weir_stack *s, const struct flow *f)
{
    COUNT(s, tcp_iss_generated);
    return (uint32_t)(s->now >> 6) + (uint32_t)tuple_hash(s, f)[1];
}

/* Constant for a tuple, so that the timestamps of its next connection are above the last (RFC
 * 6191). */
uint32_t tcp_ts_offset(struct weir_stack *s, const struct flow *f)
{
    return KNOB(s, tcp_ts_offset_per_conn) ? (uint32_t)(tuple_hash(s, f)[1] >> 32) : 0;
}

uint32_t tcp_ts_now(const struct weir_stack *s)
{
    return (uint32_t)(s->now / NS_PER_MS);
}
