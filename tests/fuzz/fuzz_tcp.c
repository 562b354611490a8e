/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever segments a peer sends around a connection and whatever the applications do, no
 * assertion fails, nothing leaks, nothing is sent beyond the peer's window, no window is taken
 * back, both streams keep their bytes, and what is closed ends. Bound: 300 operations an input.
 *
 * The input: a byte of configuration, then operations: a segment of a flow, a socket call, time. */
#include "fuzz_world.h"

#include "tcp/tcp_var.h"

#define MAX_OPS 300
#define CONFIG_BARE 0x80u /* no connection is there at first */

enum { OP_SEGMENT, OP_CALL, OP_TIME, OP_FAIL, OP_STUCK, OP_SYSCTL };
/* Segments and calls are most of what random bytes give. */
static uint8_t op_of(uint8_t byte)
{
    return byte < 144   ? OP_SEGMENT
           : byte < 210 ? OP_CALL
           : byte < 234 ? OP_TIME
           : byte < 246 ? OP_FAIL
           : byte < 250 ? OP_STUCK
                        : OP_SYSCTL;
}

static uint8_t packet[66200];

static void op_segment(struct fuzz_world *w, struct fuzz_in *in)
{
    struct fuzz_shape shape = {0};
    struct fuzz_flow *f = fuzz_flow_pick(w, in);
    uint8_t how = fuzz_u8(in);
    if (how < 128) /* mostly nothing special */
        how = 0;
    else
        how = fuzz_u8(in);
    shape.exact = how & 0x40;
    shape.piece = how & 0x80 ? 1 + fuzz_u8(in) : 0;
    unsigned copies = how & 0x10 ? 3 : 1;
    uint32_t len = fuzz_flow_segment(w, in, f, packet + 120);
    if (len > 1500) { /* merged on its way, as a link would */
        shape.segs = (uint16_t)(len / 1448 + 1);
        shape.csum_valid = true;
    }
    uint8_t *p = fuzz_ip_header(&f->peer, &f->local, IPPROTO_TCP, how & 3, packet + 120, &len);
    for (unsigned i = 0; i < copies; i++)
        fuzz_link_put(&w->link, p, len, shape);
    if (how & 0x20) /* with the next one in a batch */
        return;
    fuzz_world_settle(w);
}

static struct fuzz_world *open_world(struct fuzz_in *in, bool *bare)
{
    static const uint32_t mtus[] = {1500, 9000, 1280, 65535};
    uint8_t config = fuzz_u8(in);
    uint8_t peers = fuzz_u8(in);
    *bare = config & CONFIG_BARE;
    uint32_t caps = config & 4 ? NETIF_CAP_TSO4 | NETIF_CAP_TSO6 | NETIF_CAP_CSUM_TX : 0;
    struct fuzz_world *w = fuzz_world_open(false, caps, mtus[config & 3]);
    fuzz_world_peers(w, peers);
    if (config & 8)
        sim_sysctl(w->s, "net.inet.tcp.cc.algorithm", "newreno");
    if (config & 16)
        sim_sysctl(w->s, "net.inet.tcp.ecn.enable", "1");
    if ((config & 0xe0) == 0xe0)
        sim_sysctl(w->s, "net.inet.tcp.syncookies_only", "1");
    if (config & 64)
        sim_sysctl(w->s, "net.inet.tcp.pmtud_blackhole_detection", "1");
    return w;
}

static void run_program(struct fuzz_world *w, struct fuzz_in *in)
{
    bool failing = false;
    for (int i = 0; i < MAX_OPS && in->left > 0; i++) {
        uint8_t op = op_of(fuzz_u8(in));
        switch (op) {
        case OP_SEGMENT:
            op_segment(w, in);
            break;
        case OP_CALL:
            fuzz_app_call(w, in);
            break;
        case OP_TIME:
            fuzz_world_run(w, in);
            break;
        case OP_FAIL:
            fuzz_world_fail(w, in);
            failing = true;
            continue;
        case OP_STUCK:
            w->link.stuck = !w->link.stuck;
            break;
        default:
            fuzz_world_sysctl(w, in);
        }
        if (failing)
            fuzz_world_mend(w);
        failing = false;
        if (op != OP_SEGMENT)
            fuzz_world_settle(w);
    }
}

/* --- programs --- */
static void put_segment(struct fuzz_out *o, unsigned flow, struct fuzz_segment g)
{
    fuzz_put8(o, 0);
    fuzz_put8(o, flow);
    fuzz_put8(o, 0);
    fuzz_flow_seed(o, &g);
}

static void put_call(struct fuzz_out *o, enum fuzz_call call, unsigned slot)
{
    fuzz_put8(o, 144);
    fuzz_put8(o, call);
    fuzz_put8(o, slot);
}

static void put_time(struct fuzz_out *o, unsigned which)
{
    fuzz_put8(o, 210);
    fuzz_put8(o, which < 6 ? which : 198 + which - 6);
}

static void put_write(struct fuzz_out *o, unsigned slot, uint16_t len, uint8_t how)
{
    put_call(o, FUZZ_CALL_WRITE, slot);
    fuzz_put8(o, 224);
    fuzz_put16(o, len);
    fuzz_put8(o, how);
}

static void put_read(struct fuzz_out *o, unsigned slot)
{
    put_call(o, FUZZ_CALL_READ, slot);
    fuzz_put16(o, 0);
}

/* Flow 0 to the listener, accepted in slot 3. */
static void put_connection(struct fuzz_out *o, bool v6)
{
    put_segment(o, v6 ? 8 : 0, (struct fuzz_segment){.flags = TH_SYN});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK});
    put_call(o, FUZZ_CALL_ACCEPT, 0);
}

static void put_open(struct fuzz_out *o, unsigned config, bool v6)
{
    fuzz_put16(o, config | CONFIG_BARE);
    put_connection(o, v6);
}

/* What most inputs begin with: a connection of each family with data on its way. */
static void prelude(struct fuzz_world *w)
{
    static uint8_t program[512];
    static struct fuzz_out o = {.p = program, .room = sizeof(program)};
    if (o.len == 0) {
        put_connection(&o, false);
        put_segment(&o, 9, (struct fuzz_segment){.flags = TH_SYN});
        put_segment(&o, 1, (struct fuzz_segment){.flags = TH_ACK});
        put_call(&o, FUZZ_CALL_ACCEPT, 0);
        put_write(&o, 3, 5000, 0);
        put_segment(&o, 1, (struct fuzz_segment){.flags = TH_ACK | TH_PUSH, .len = 100});
    }
    struct fuzz_in in = {program, o.len};
    run_program(w, &in);
}

/* case: SEC-068, FUN-017, SEC-044 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    bool bare;
    struct fuzz_world *w = open_world(&in, &bare);
    if (!bare)
        prelude(w);
    run_program(w, &in);
    fuzz_world_close(w);
    return 0;
}

/* --- seeds --- */
static void seed_active(struct fuzz_out *o, unsigned end)
{
    fuzz_put16(o, CONFIG_BARE);
    put_call(o, FUZZ_CALL_SOCKET, 3);
    fuzz_put8(o, 0);
    put_call(o, FUZZ_CALL_CONNECT, 3);
    fuzz_put16(o, 0);
    if (end == 0) /* simultaneous */
        put_segment(o, 0, (struct fuzz_segment){.flags = TH_SYN});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_SYN | TH_ACK});
    put_write(o, 3, 4000, 0);
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK});
    put_call(o, FUZZ_CALL_SHUTDOWN, 3);
    fuzz_put8(o, 1);
    put_segment(
        o, 0,
        (struct fuzz_segment){.flags = TH_ACK | TH_FIN, .ack = end == 1 ? FUZZ_ACK_PART + 60 : 0});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .seq = 1});
    put_time(o, 7);
}

static void put_shaped(struct fuzz_out *o, unsigned how, struct fuzz_segment g)
{
    fuzz_put8(o, 0);
    fuzz_put8(o, 0);
    fuzz_put8(o, 128);
    fuzz_put8(o, how);
    fuzz_flow_seed(o, &g);
}

static void seed_receive(struct fuzz_out *o, unsigned kind)
{
    put_open(o, kind & 1 ? 4 : 0, kind & 2);
    for (int i = 0; i < 6; i++)
        put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK | TH_PUSH, .len = 1448});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .seq = 100, .len = 50});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .seq = 40, .len = 30});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .len = 64});
    put_read(o, 3);
    for (int i = 6; i > 0; i--)
        put_segment(
            o, 0, (struct fuzz_segment){.flags = TH_ACK, .seq = (int16_t)(i * 2000), .len = 1448});
    for (int i = 0; i < 8; i++)
        put_segment(
            o, 0, (struct fuzz_segment){.flags = TH_ACK, .seq = (int16_t)(i * 1400), .len = 1448});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .len = 30000});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK | TH_URG, .len = 10});
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK | TH_FIN, .seq = 3000, .len = 20});
    put_segment(
        o, 0, (struct fuzz_segment){.flags = TH_ACK | TH_FIN, .len = 20, .options = FUZZ_OPT_RAW});
    put_read(o, 3);
    put_call(o, FUZZ_CALL_CLOSE, 3);
}

static void seed_send(struct fuzz_out *o, unsigned kind)
{
    put_open(o, kind & 1 ? 4 : 8, false);
    put_write(o, 3, 30000, 0);
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .ack = FUZZ_ACK_PART + 20});
    for (int i = 0; i < 5; i++)
        put_segment(o, 0,
                    (struct fuzz_segment){
                        .flags = TH_ACK, .ack = FUZZ_ACK_DUPLICATE, .options = FUZZ_OPT_SACK});
    put_time(o, 1 + kind);
    put_write(o, 3, 30000, kind & 2 ? 0x40 : 0);
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK, .ack = FUZZ_ACK_PART + 40});
    put_time(o, 5);
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK});
    put_write(o, 3, 10, 0x80);
    put_call(o, FUZZ_CALL_CLOSE, 3);
    put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK});
    put_segment(o, 0, (struct fuzz_segment){.flags = kind & 1 ? TH_RST : TH_ACK | TH_FIN});
}

/* A long transfer with losses: by duplicate ACKs, with and without SACK, and by timeouts. */
static void seed_recovery(struct fuzz_out *o, unsigned kind)
{
    uint8_t sack = kind & 1 ? FUZZ_OPT_SACK : FUZZ_OPT_NONE;
    put_open(o, (kind & 2 ? 4 : 8) | (kind >> 2) << 8, kind & 1);
    for (int round = 0; round < 5; round++) {
        put_write(o, 3, 60000, 0);
        put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK});
        put_time(o, 1);
        put_segment(
            o, 0,
            (struct fuzz_segment){.flags = TH_ACK, .ack = (uint8_t)(FUZZ_ACK_PART + 10 * round)});
        put_shaped(
            o, 0x10,
            (struct fuzz_segment){.flags = TH_ACK, .ack = FUZZ_ACK_DUPLICATE, .options = sack});
        put_segment(
            o, 0,
            (struct fuzz_segment){.flags = TH_ACK, .ack = FUZZ_ACK_DUPLICATE, .options = sack});
        put_time(o, kind & 2 ? 1 : 4);
        put_segment(
            o, 0,
            (struct fuzz_segment){.flags = TH_ACK, .ack = FUZZ_ACK_PART + 30, .options = sack});
        put_time(o, 2);
        put_segment(o, 0, (struct fuzz_segment){.flags = TH_ACK | (round & 1 ? TH_ECE : 0)});
        put_call(o, FUZZ_CALL_GETSOCKOPT, 3);
        fuzz_put8(o, 24); /* TCP_INFO */
        fuzz_put8(o, 255);
    }
    put_call(o, FUZZ_CALL_CLOSE, 3);
}

static void seed(unsigned i, struct fuzz_out *o)
{
    if (i < 3)
        seed_active(o, i);
    else if (i < 7)
        seed_receive(o, i - 3);
    else if (i < 11)
        seed_send(o, i - 7);
    else
        seed_recovery(o, i - 11);
}

const struct fuzz_target fuzz_target = {"fuzz_tcp", 4096, 27, seed};
