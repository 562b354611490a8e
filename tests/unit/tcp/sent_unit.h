/* SPDX-License-Identifier: BSD-2-Clause
 * A connection of nothing but a send side: enough for the sent list and congestion control, without
 * sockets. */
#ifndef WEIR_TESTS_SENT_UNIT_H
#define WEIR_TESTS_SENT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tcp/tcp_cc.h"
#include "tcp/tcp_sent.h"

static int64_t unit_live; /* allocations not returned */

static void *unit_alloc_fn(void *ctx, size_t size)
{
    unit_live++;
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void unit_free_fn(void *ctx, void *p, size_t size)
{
    unit_live--;
    free(p);
}

static struct weir_stack st;
static struct tcp_state tcp;
static struct socket so;
static struct tcpcb tcb;

static void unit_open(uint32_t una, uint32_t maxseg)
{
    memset(&st, 0, sizeof(st));
    memset(&tcp, 0, sizeof(tcp));
    memset(&so, 0, sizeof(so));
    memset(&tcb, 0, sizeof(tcb));
    st.alloc = (struct weir_alloc){unit_alloc_fn, unit_free_fn, NULL};
    st.tcp = &tcp;
    st.now = NS_PER_S;
    sysctl_init(&st.knobs);
    so.so_stack = &st;
    tcb.t_stack = &st;
    tcb.t_so = &so;
    tcb.t_state = TCPS_ESTABLISHED;
    tcb.t_flags = TF_SACK_PERMIT;
    tcb.t_maxseg = maxseg;
    tcb.snd_una = tcb.snd_nxt = tcb.snd_max = una;
    tcb.t_lost_mark = tcb.t_rexmit_next = una;
    tcb.snd_scale = 14;
    tcb.snd_wnd = 1u << 30;
    ranges_init(&tcb.t_sent);
}

static void unit_close(void)
{
    tcp_sent_flush(&tcb);
    assert_int_equal(tcb.t_sacked_bytes + tcb.t_lost_bytes + tcb.t_rexmit_bytes + tcb.t_sack_runs,
                     0);
    tcp_sent_drain(&st);
    assert_int_equal(unit_live, 0);
}

#endif
