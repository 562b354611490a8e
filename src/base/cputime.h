/* SPDX-License-Identifier: BSD-2-Clause
 * CPU time by activity: a thread says what it does from now on, and the time of what it did till
 * now is charged.
 *
 * How it works. kern.cputime chooses one of two ways to tell the time at a switch. `bintime` asks
 * the kernel for the thread's CPU time and adds the difference to accounts that the process shares.
 * `ticks` reads the cycle counter, once for the end of one activity and the begin of the next, and
 * adds the difference, as it is, to an account that the thread alone writes; readers scale it
 * (measure/cputime.h). Switched off, a switch is a look at one word.
 *
 * Switches are few, so that a packet stays cheap. What a socket call still does after protocol work
 * or a large copy is charged to that, not to the call; copies under CPUTIME_COPY_MIN are part of
 * the call; a memory link is part of TCP's input and output. Two short parts of calls that move few
 * bytes are timed once in sixteen, by chance, and else taken to be as long as those were: what such
 * a call does before anything else, and work for a single segment at its end.
 *
 * The counter goes on while a thread does not run. So a span of CPUTIME_LONG_NS or more, and every
 * sleep, is compared with the kernel's figure: what the thread did not run is not charged. */
#ifndef WEIR_BASE_CPUTIME_H
#define WEIR_BASE_CPUTIME_H

#include "base.h"

/* id, name in tables and JSON */
#define CPU_ACTIVITY_LIST(X)                                                                       \
    X(APP, "application")                                                                          \
    X(CALL, "call")                                                                                \
    X(COPY, "copy")                                                                                \
    X(INPUT, "input")                                                                              \
    X(OUTPUT, "output")                                                                            \
    X(TIMERS, "timers")                                                                            \
    X(LINK_RX, "link_rx")                                                                          \
    X(LINK_TX, "link_tx")                                                                          \
    X(LOCK, "lock")                                                                                \
    X(SPIN, "spin")                                                                                \
    X(SLEEP, "sleep")
enum cpu_activity {
#define X(id, name) CPU_##id,
    CPU_ACTIVITY_LIST(X)
#undef X
        CPU_ACTIVITIES
};
extern const char *const cpu_activity_name[CPU_ACTIVITIES];

#define CPUTIME_COPY_MIN 1024u
#define CPUTIME_SLOTS 8 /* stacks that one thread tells apart */
#define CPUTIME_ANCHOR_NS NS_PER_MS
#define CPUTIME_LONG_NS (200 * NS_PER_US)

/* Values of kern.cputime. */
enum cputime_mode { CPUTIME_OFF, CPUTIME_BINTIME, CPUTIME_TICKS };

/* The account of a thread. It alone writes; (x) fields are read by any thread. Ticks are those of
 * the source in use; with bintime only `turn` and `since` move, and these are ns of CPU time. */
struct cputime_thread {
    CACHE_ALIGNED _Atomic uint64_t
        turn;               /* (x) twice the number of switches; odd while one is made */
    _Atomic uint64_t since; /* (x) when the present activity began */
    _Atomic uint64_t account[CPU_ACTIVITIES]; /* (x) ticks */
    _Atomic uint64_t away;                    /* (x) ticks that it did not run, sleeps left out */
    _Atomic uint32_t activity;                /* (x) */
    _Atomic uint32_t config;                  /* (x) cputime_config when `since` was set */
    /* Of connections: what is charged with the present span too (NULL none), and since when. */
    _Atomic uint64_t *flow;
    uint64_t flow_since;
    /* What the thread spent on each stack's connections: input and output. These never go back,
     * whoever has the account. */
    _Atomic uint64_t spent[CPUTIME_SLOTS][2]; /* (x) ticks */
    /* The short parts of calls that are not timed each (cputime_call_begins, cputime_call_ends):
     * how many calls the present span has in it, what it began with (a CPU_ value; 0: nothing),
     * what such parts take on the average, and when one is timed next. */
    uint32_t calls, tail;
    uint32_t segments; /* that the present span worked for */
    uint32_t dice;
    bool learn; /* the present span is such a part */
    uint8_t next_timed;
    uint64_t mean[CPU_ACTIVITIES]; /* ticks, times 8; 0: not known */
    uint64_t owed[CPU_ACTIVITIES]; /* ticks of such parts that spans had no room for */
    /* A moment by the counter and by the monotonic clock, at most CPUTIME_ANCHOR_NS ago or so. */
    uint64_t anchor_ticks, anchor_ns;
    /* The last comparison with the kernel's figure. */
    _Atomic uint64_t checked_ns, checked_ticks; /* (x) CPU time, and the sum of the accounts */
};

#define CPUTIME_MODE_MASK 3u
#define CPUTIME_NO_COUNTER 4u /* ticks are ns of the monotonic clock */
#define CPUTIME_GENERATION 8u

extern _Thread_local struct cputime_thread *cputime_self __attribute__((tls_model("initial-exec")));

/* What needs clocks and memory; set before `config` is. */
struct cputime_ops {
    struct cputime_thread *(*begin)(void); /* an account for the calling thread; NULL: none */
    uint64_t (*thread_ns)(void);           /* CPU time of the calling thread */
    uint64_t (*clock_ns)(void);            /* monotonic */
};

/* Looked at by every switch, rarely changed: a line of its own. */
struct cputime {
    /* 0: off; else mode, source, and a number that changes with each change of these. */
    CACHE_ALIGNED _Atomic uint32_t config;
    _Atomic uint64_t rate;         /* ticks in 2^20 ns; 0: not known yet */
    _Atomic uint64_t long_ticks;   /* of CPUTIME_LONG_NS */
    _Atomic uint64_t anchor_ticks; /* of CPUTIME_ANCHOR_NS */
    const struct cputime_ops *ops;
};
extern struct cputime cputime;

/* The accounts of bintime, ns. */
_Atomic uint64_t *cputime_shared(void);
/* The raw counter; 0 where there is none. */
uint64_t cputime_counter(void);

static inline uint64_t cputime_ns_to_ticks(uint64_t ns)
{
    return (uint64_t)(((unsigned __int128)ns * LOAD_RELAXED(&cputime.rate)) >> 20);
}

void cputime_do_switch(enum cpu_activity to);
void cputime_do_switch_now(enum cpu_activity to, uint64_t now_ns);
void cputime_do_call_begins(void);
void cputime_do_call_ends(void);
void cputime_do_flow(_Atomic uint64_t *ticks);
/* What the present span has been till now is charged to the flow, which goes on. */
void cputime_flow_cut(void);
uint64_t cputime_read(uint32_t config);
void cputime_do_switch_at(enum cpu_activity to, uint64_t when);

static inline bool cputime_on(void)
{
    return unlikely(LOAD_RELAXED(&cputime.config) != 0);
}

/* From now on the calling thread does this. */
static inline void cputime_switch(enum cpu_activity to)
{
    if (cputime_on())
        cputime_do_switch(to);
}

/* The same, for whoever read the monotonic clock lately: if that was since the last switch, the
 * counter need not be read. */
static inline void cputime_switch_now(enum cpu_activity to, uint64_t now_ns)
{
    if (cputime_on())
        cputime_do_switch_now(to, now_ns);
}

/* A call that moves data begins and ends: as cputime_switch to CPU_CALL and CPU_APP. */
static inline void cputime_call_begins(void)
{
    if (cputime_on())
        cputime_do_call_begins();
}
static inline void cputime_call_ends(void)
{
    if (cputime_on())
        cputime_do_call_ends();
}

/* What the thread did since its last switch was already this. */
static inline void cputime_rename(enum cpu_activity from, enum cpu_activity to)
{
    struct cputime_thread *t = cputime_on() ? cputime_self : NULL;

    if (!t || LOAD_RELAXED(&t->activity) != (uint32_t)from)
        return;
    STORE_RELAXED(&t->activity, (uint32_t)to);
    STORE_RELAXED(&t->turn, LOAD_RELAXED(&t->turn) + 2); /* it counts as a switch */
    t->learn = false;
}

/* The same, but it began at `when`, a moment told by cputime_mark since the last switch. */
static inline void cputime_switch_at(enum cpu_activity to, uint64_t when)
{
    if (cputime_on() && when != 0)
        cputime_do_switch_at(to, when);
}
static inline uint64_t cputime_mark(void)
{
    return cputime_on() ? cputime_read(LOAD_RELAXED(&cputime.config)) : 0;
}

/* What the thread does now; CPU_APP when that is not known. */
static inline enum cpu_activity cputime_activity(void)
{
    const struct cputime_thread *t = cputime_on() ? cputime_self : NULL;

    return t ? (enum cpu_activity)LOAD_RELAXED(&t->activity) : CPU_APP;
}

/* Charge the present activity to *ticks too, from its begin (or from the last cut) to the
 * next switch. What *ticks is in must be there until then. Ticks mode only. */
static inline void cputime_flow(_Atomic uint64_t *ticks)
{
    if (cputime_on())
        cputime_do_flow(ticks);
}

#endif
