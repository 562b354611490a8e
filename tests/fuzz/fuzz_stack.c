/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever frames come out of an Ethernet, whole, fragmented, cut or changed, and whatever
 * the applications do meanwhile, with memory running out at times: no assertion fails, nothing
 * leaks, all that is sent is well formed, and every invariant of fuzz_check.c holds. Bound: 300
 * operations an input. */
#include "fuzz_frame.h"

#define MAX_OPS 300

enum { OP_FRAME, OP_CALL, OP_TIME, OP_FAIL, OP_STUCK, OP_SYSCTL };
static uint8_t op_of(uint8_t byte)
{
    return byte < 150   ? OP_FRAME
           : byte < 210 ? OP_CALL
           : byte < 234 ? OP_TIME
           : byte < 246 ? OP_FAIL
           : byte < 250 ? OP_STUCK
                        : OP_SYSCTL;
}

static void run_program(struct fuzz_world *w, struct fuzz_in *in)
{
    bool failing = false;
    for (int i = 0; i < MAX_OPS && in->left > 0; i++) {
        switch (op_of(fuzz_u8(in))) {
        case OP_FRAME:
            fuzz_frame_put(w, in);
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
        fuzz_world_settle(w);
        if (failing)
            fuzz_world_mend(w);
        failing = false;
    }
}

/* --- programs --- */
static void put_frame(struct fuzz_out *o, enum fuzz_frame kind, unsigned how)
{
    fuzz_put8(o, 0);
    fuzz_put8(o, kind);
    fuzz_put8(o, 255);
    fuzz_put8(o, how);
}

static void put_call(struct fuzz_out *o, enum fuzz_call call, unsigned slot)
{
    fuzz_put8(o, 150);
    fuzz_put8(o, call);
    fuzz_put8(o, slot);
}

static void put_segment(struct fuzz_out *o, unsigned flow, unsigned how, struct fuzz_segment g)
{
    put_frame(o, FUZZ_FRAME_TCP, how);
    fuzz_put8(o, flow);
    fuzz_flow_seed(o, &g);
}

/* What most inputs begin with: a connection of each family with data on its way. */
static void prelude(struct fuzz_world *w)
{
    static uint8_t program[512];
    static struct fuzz_out o = {.p = program, .room = sizeof(program)};
    for (unsigned i = 0; i < 2 && o.len < sizeof(program) / 2; i++) {
        put_segment(&o, i * 9, 0, (struct fuzz_segment){.flags = 2});
        put_segment(&o, i, 0, (struct fuzz_segment){.flags = 16});
        put_call(&o, FUZZ_CALL_ACCEPT, 0);
        put_segment(&o, i, 0, (struct fuzz_segment){.flags = 24, .len = 100});
        put_call(&o, FUZZ_CALL_WRITE, 3 + i);
        fuzz_put8(&o, 224);
        fuzz_put16(&o, 4000);
        fuzz_put8(&o, 0);
    }
    struct fuzz_in in = {program, o.len};
    run_program(w, &in);
}

/* case: SEC-068, SEC-041, SEC-049 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t config = fuzz_u8(&in);
    struct fuzz_world *w =
        fuzz_world_open(true, config & 4 ? NETIF_CAP_CSUM_TX : 0, config & 1 ? 1280 : 1500);
    w->genuine = false;
    fuzz_world_peers(w, config >> 4);
    if (!(config & 2)) { /* the neighbours are known */
        fuzz_frame_neighbours(w);
        fuzz_world_settle(w);
        if (!(config & 8))
            prelude(w);
    }
    run_program(w, &in);
    fuzz_world_close(w);
    return 0;
}

/* --- seeds --- */
/* A connection, data both ways, the frames shaped by `how`. */
static void seed_connection(struct fuzz_out *o, bool v6, unsigned how)
{
    fuzz_put8(o, 8);
    put_segment(o, v6 ? 8 : 0, 0, (struct fuzz_segment){.flags = 2});
    put_segment(o, 0, 0, (struct fuzz_segment){.flags = 16});
    put_call(o, FUZZ_CALL_ACCEPT, 0);
    put_segment(o, 0, how, (struct fuzz_segment){.flags = 24, .len = 1400});
    put_segment(o, 0, how, (struct fuzz_segment){.flags = 24, .len = 1400});
    put_call(o, FUZZ_CALL_WRITE, 3);
    fuzz_put8(o, 224);
    fuzz_put16(o, 20000);
    fuzz_put8(o, 0);
    put_segment(o, 0, 0, (struct fuzz_segment){.flags = 16, .options = FUZZ_OPT_SACK});
    put_call(o, FUZZ_CALL_READ, 3);
    fuzz_put16(o, 0);
    put_frame(o, FUZZ_FRAME_QUOTE, 0); /* an error about the last packet */
    fuzz_put32(o, 0x04030300);
    put_segment(o, 0, 0, (struct fuzz_segment){.flags = 17});
    put_call(o, FUZZ_CALL_CLOSE, 3);
    fuzz_put8(o, 210);
    fuzz_put8(o, 6);
}

static void seed_datagrams(struct fuzz_out *o, unsigned how)
{
    fuzz_put8(o, 0);
    for (unsigned i = 0; i < 6; i++) {
        put_frame(o, FUZZ_FRAME_UDP, i & 1 ? how : 0);
        fuzz_put8(o, i & 2); /* family */
        fuzz_put8(o, 0);     /* port 53 */
        fuzz_put16(o, 600 * i);
    }
    put_call(o, FUZZ_CALL_SENDTO, 1);
    fuzz_put8(o, 0);
    fuzz_put8(o, 1);
    fuzz_put16(o, 4000);
    put_frame(o, FUZZ_FRAME_QUOTE, 0);
    fuzz_put32(o, 0x03);
    put_call(o, FUZZ_CALL_RECVMSG, 1);
    fuzz_put32(o, 0x40ff);
}

/* Every kind of frame once. */
static void seed_kinds(struct fuzz_out *o, unsigned how, unsigned operand)
{
    fuzz_put8(o, 0);
    for (unsigned kind = 0; kind < FUZZ_FRAMES; kind++) {
        put_frame(o, (enum fuzz_frame)kind, how);
        for (unsigned i = 0; i < 8; i++)
            fuzz_put8(o, operand * i);
    }
    fuzz_put8(o, 210);
    fuzz_put8(o, operand);
}

static void seed(unsigned i, struct fuzz_out *o)
{
    static const unsigned hows[] = {0,
                                    FUZZ_HOW_FRAGMENTS,
                                    FUZZ_HOW_EXTENSIONS,
                                    FUZZ_HOW_CHAIN,
                                    FUZZ_HOW_EXACT,
                                    FUZZ_HOW_CHANGED,
                                    FUZZ_HOW_FRAGMENTS | FUZZ_HOW_EXTENSIONS,
                                    FUZZ_HOW_CUT};
    if (i < 8)
        seed_connection(o, i & 1, hows[i]);
    else if (i < 16)
        seed_datagrams(o, hows[i - 8]);
    else
        seed_kinds(o, hows[(i - 16) % 8], i - 15);
}

const struct fuzz_target fuzz_target = {"fuzz_stack", 4096, 32, seed};
