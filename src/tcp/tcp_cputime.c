/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time of each connection: what the owner of the stack spends on its input and output.
 *
 * How it works. A thread adds up what it spends on a stack's connections (cputime_thread.spent);
 * the stack remembers for which of them that is, and what the sum was when it began. So work that
 * goes on for one connection costs nothing more, and where work for another follows, the counter is
 * read once. A thread's last span ends after it has left the stack, when the connection may be
 * gone: the next owner looks how far that thread has come, if the connection is there. */
#include "base/cputime.h"
#include "buf/sockbuf.h"
#include "tcp_var.h"

void tcp_cputime_init(struct tcp_state *t)
{
    static _Atomic uint32_t stacks;

    t->cpu_slot = atomic_fetch_add_explicit(&stacks, 1, memory_order_relaxed) % CPUTIME_SLOTS;
}

static uint64_t moved(struct tcp_state *t, unsigned i)
{
    uint64_t before = t->cpu_seen[i];

    t->cpu_seen[i] = LOAD_RELAXED(&t->cpu_thread->spent[t->cpu_slot][i]);
    return t->cpu_seen[i] - before;
}

void tcp_cputime_settle(struct weir_stack *s)
{
    struct tcp_state *t = s->tcp;

    if (!t->cpu_thread)
        return;
    uint64_t in = moved(t, 0), out = moved(t, 1);
    if (t->cpu_tp) {
        t->cpu_tp->t_cpu_in += in;
        t->cpu_tp->t_cpu_out += out;
    }
}

void tcp_cputime_begin(struct tcpcb *tp, bool output)
{
    struct weir_stack *s = tp->t_stack;
    struct tcp_state *t = s->tcp;

    if (output && cputime_activity() == CPU_INPUT && sockbuf_used(&tp->t_so->so_snd) == 0)
        output = false; /* an acknowledgment is part of the input that it answers */
    cputime_switch_now(output ? CPU_OUTPUT : CPU_INPUT, s->now);
    struct cputime_thread *self = cputime_self;
    if (unlikely(!self))
        return;
    self->segments++;
    if (t->cpu_tp != tp || t->cpu_thread != self) {
        if (t->cpu_thread == self)
            cputime_flow_cut();
        tcp_cputime_settle(s);
        t->cpu_tp = tp;
        t->cpu_thread = self;
        (void)moved(t, 0);
        (void)moved(t, 1);
    }
    cputime_flow(&self->spent[t->cpu_slot][output]);
}
