/* SPDX-License-Identifier: BSD-2-Clause
 * SIFTR: the knobs, and what the packet path does.
 *
 * How it works. While a log is on, TCP's hook sees every packet that TCP gets or hands down. It
 * counts it, or says why it is skipped, and copies some thirty fields of the connection into a slot
 * of the stack's ring: no clock, no lock, no memory. The rest happens in the writer thread. When
 * three quarters of the ring are in use the stack is held (s->hold): it takes, times and sends
 * nothing, whoever owns it goes on to do other things, and the writer lets go when half is free.
 * What one step may still add meanwhile fits in the last quarter.
 *
 * A log goes from a header to a footer, and is an object of its own: switching off hands it to the
 * writer thread, which ends and frees it, so a new one may begin at once. */
#include "siftr.h"
#include "siftr_log.h"

#include "stack.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_var.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_NS (5 * NS_PER_S) /* with a file that does not move, at the end */
#define FULL_ALMOST(size) ((size) / 4 * 3)

/* The flow log of a stack. (o) owner. */
struct siftr {
    struct weir_stack *s;
    struct siftr_log *log; /* (o) NULL: off; changed under all_mutex */
    uint32_t last_id;      /* (o) */
    char path[1024];       /* (o) */
    struct siftr *next;    /* under all_mutex: those that are on */
};

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct siftr *all;

/* FreeBSD's bits; others are ours. */
#define FLAGS_SHOWN                                                                                \
    (TF_ACKNOW | TF_DELACK | TF_NODELAY | TF_NOOPT | TF_SENTFIN | TF_REQ_SCALE | TF_RCVD_SCALE |   \
     TF_REQ_TSTMP | TF_RCVD_TSTMP | TF_SACK_PERMIT | TF_NEEDSYN | TF_NEEDFIN | TF_NOPUSH |         \
     TF_PREVVALID | TF_MORETOCOME | TF_LASTIDLE | TF_RXWIN0SENT | TF_FASTRECOVERY |                \
     TF_WASFRECOVERY | TF_TSO | TF_CONGRECOVERY | TF_WASCRECOVERY)
#define FLAGS2_SHOWN                                                                               \
    (TF2_PLPMTU_BLACKHOLE | TF2_PLPMTU_PMTUD | TF2_PLPMTU_MAXSEGSNT | TF2_ECN_PERMIT |             \
     TF2_ECN_SND_CWR | TF2_ECN_SND_ECE)

/* ---- a packet ---- */

static uint32_t us(uint64_t ns)
{
    return (uint32_t)MIN(ns / NS_PER_US, UINT32_MAX);
}

static void fill(struct siftr_record *r, const struct tcpcb *tp, uint64_t time_ns, uint8_t dir)
{
    const struct sockbuf *snd = &tp->t_so->so_snd, *rcv = &tp->t_so->so_rcv;
    bool v6 = tp->t_flow.faddr.family == AF_INET6;

    r->time_ns = time_ns;
    memcpy(r->laddr, tp->t_flow.laddr.b, sizeof(r->laddr));
    memcpy(r->faddr, tp->t_flow.faddr.b, sizeof(r->faddr));
    r->lport = tp->t_flow.lport;
    r->fport = tp->t_flow.fport;
    r->direction = dir;
    r->family = v6 ? 6 : 4;
    r->snd_scale = tp->snd_scale;
    r->rcv_scale = tp->rcv_scale;
    r->state = tp->t_state;
    r->sack = (tp->t_flags & TF_SACK_PERMIT) != 0;
    r->flowtype = v6 ? 4 : 2;
    r->zero = 0;
    r->ssthresh = tp->snd_ssthresh;
    r->cwnd = tp->snd_cwnd;
    r->flags2 = tp->t_flags2 & FLAGS2_SHOWN;
    r->snd_wnd = tp->snd_wnd;
    r->rcv_wnd = SEQ_GT(tp->rcv_adv, tp->rcv_nxt) ? tp->rcv_adv - tp->rcv_nxt : 0;
    r->mss = tcp_segment_size(tp);
    r->srtt_us = us(tp->t_srtt);
    r->flags = tp->t_flags & FLAGS_SHOWN;
    r->rto_us = us(tp->t_rxtcur);
    r->snd_limit = LOAD_RELAXED(&snd->sb_hiwat);
    r->snd_fill = sockbuf_used(snd);
    r->rcv_limit = LOAD_RELAXED(&rcv->sb_hiwat);
    r->rcv_fill = sockbuf_used(rcv);
    r->inflight = tp->snd_max - tp->snd_una;
    r->reass_segs = tp->t_reass_segs;
    r->flowid = tp->t_hashval;
}

static bool flows_grow(struct siftr_log *log)
{
    uint32_t room = log->flow_room ? 2 * log->flow_room : 64;
    struct siftr_flow *flows =
        room <= SIFTR_FLOWS_MAX ? realloc(log->flows, room * sizeof(*flows)) : NULL;

    if (!flows)
        return false;
    log->flows = flows;
    log->flow_room = room;
    return true;
}

/* The first packet of a connection in this log. The tcpcb's two fields are there for us. */
static void flow_begins(struct siftr_log *log, struct tcpcb *tp)
{
    tp->t_siftr_log = log->id;
    tp->t_siftr_count = 0;
    if (log->flow_count == log->flow_room && !flows_grow(log)) {
        log->flows_unlisted++;
        return;
    }
    struct siftr_flow *f = &log->flows[log->flow_count++];
    *f = (struct siftr_flow){.lport = tp->t_flow.lport,
                             .fport = tp->t_flow.fport,
                             .family = tp->t_flow.faddr.family == AF_INET6 ? 6 : 4};
    memcpy(f->laddr, tp->t_flow.laddr.b, sizeof(f->laddr));
    memcpy(f->faddr, tp->t_flow.faddr.b, sizeof(f->faddr));
}

/* Of a packet whose TCP header m begins with: has it the port that is asked for? */
static bool has_port(const struct mbuf *m, int64_t port)
{
    uint8_t p[4] = {0};

    if (m->m_len < sizeof(p))
        return false;
    memcpy(p, m->m_data, sizeof(p));
    return (p[0] << 8 | p[1]) == port || (p[2] << 8 | p[3]) == port;
}

/* Much is in use: hold the stack, unless it is being destroyed. */
static void hold(struct siftr_log *log)
{
    struct weir_stack *s = log->s;

    if (KNOB(s, siftr_full) != 0 || log->may_block || LOAD_RELAXED(&s->hold))
        return;
    log->holds++;
    atomic_store(&s->hold, 1);
    if (alq_want_room(log->q))
        atomic_store(&s->hold, 0);
}

/* The stack is being destroyed: nobody else waits for this thread. */
static void *slot_wait(struct siftr_log *log)
{
    void *slot = NULL;

    for (int i = 0; i < 5000 && !slot; i++) {
        struct timespec ts = {.tv_nsec = NS_PER_MS};
        alq_wake();
        nanosleep(&ts, NULL);
        slot = alq_ring_slot(log->ring);
    }
    return slot;
}

static void record_queue(struct siftr_log *log, const struct tcpcb *tp, uint8_t dir)
{
    fill(&log->pending[log->pending_count++], tp, log->s->now + log->wall_offset, dir);
    if (log->pending_count < log->batch)
        return;
    siftr_log_batch(log);
    if (unlikely(alq_queued(log->q) > FULL_ALMOST(SIFTR_QUEUE)))
        hold(log);
}

static void record_ring(struct siftr_log *log, const struct tcpcb *tp, uint8_t dir)
{
    struct alq_ring *ring = log->ring;
    struct siftr_record *r = alq_ring_slot(ring);

    if (unlikely(!r) && log->may_block && KNOB(log->s, siftr_full) == 0)
        r = slot_wait(log);
    if (unlikely(!r)) {
        log->footer.skipped_malloc[dir]++;
        return;
    }
    fill(r, tp, log->s->now + log->wall_offset, dir);
    if (unlikely(alq_ring_push(ring) > FULL_ALMOST(SIFTR_RING)) &&
        alq_ring_used(ring) > FULL_ALMOST(SIFTR_RING))
        hold(log);
}

static void hook(void *ctx, struct weir_stack *s, enum hook_direction hook_dir,
                 const struct tcpcb *tp, const struct mbuf *m)
{
    struct siftr_log *log = ctx;
    uint8_t dir = hook_dir == HOOK_IN ? SIFTR_IN : SIFTR_OUT;
    int64_t port = KNOB(s, siftr_port_filter), ppl = KNOB(s, siftr_ppl);

    if (unlikely(port != 0) && !has_port(m, port))
        return;
    log->footer.packets[dir]++;
    if (unlikely(!tp)) {
        log->footer.skipped_inpcb[dir]++;
        return;
    }
    if (unlikely(!TCPS_HAVEESTABLISHED(tp->t_state))) {
        log->footer.skipped_tcpcb[dir]++;
        return;
    }
    struct tcpcb *mine = (struct tcpcb *)tp;
    if (unlikely(tp->t_siftr_log != log->id))
        flow_begins(log, mine);
    if (unlikely(ppl > 1)) {
        if (++mine->t_siftr_count < ppl)
            return;
        mine->t_siftr_count = 0;
    }
    if (likely(log->ring != NULL))
        record_ring(log, tp, dir);
    else
        record_queue(log, tp, dir);
}

/* ---- on and off, by the owner ---- */

static void close_locked(struct siftr *sf)
{
    struct siftr **p = &all;

    while (*p != sf)
        p = &(*p)->next;
    *p = sf->next;
    sf->s->hooks.tcp_segment = NULL;
    siftr_log_close(sf->log);
    sf->log = NULL;
}

static void log_off(struct siftr *sf)
{
    pthread_mutex_lock(&all_mutex);
    if (sf->log)
        close_locked(sf);
    pthread_mutex_unlock(&all_mutex);
}

/* Begin a log at path; what was on until now ends. */
static int log_on(struct siftr *sf, const char *path)
{
    struct siftr_log *log;
    struct weir_stack *s = sf->s;

    if (!sf->log && s->hooks.tcp_segment)
        return -EBUSY;
    int error = siftr_log_open(&log, s, path, sf->last_id + 1, sf);
    if (error)
        return error;
    sf->last_id++;
    pthread_mutex_lock(&all_mutex);
    if (sf->log)
        close_locked(sf);
    sf->log = log;
    sf->next = all;
    all = sf;
    pthread_mutex_unlock(&all_mutex);
    s->hooks.tcp_segment = hook;
    s->hooks.tcp_segment_ctx = log;
    return 0;
}

static int put(char *out, size_t size, const char *text)
{
    int n = snprintf(out, size, "%s", text);

    return n < 0 || (size_t)n >= size ? -ENOSPC : 0;
}

static int enabled_handler(struct weir_stack *s, const char *write, char *out, size_t size)
{
    struct siftr *sf = s->siftr;

    if (!write)
        return put(out, size, sf->log ? "1" : "0");
    if (strcmp(write, "0") == 0)
        log_off(sf);
    else if (strcmp(write, "1") != 0)
        return -EINVAL;
    else if (!sf->log)
        return log_on(sf, sf->path);
    return 0;
}

static int logfile_handler(struct weir_stack *s, const char *write, char *out, size_t size)
{
    struct siftr *sf = s->siftr;

    if (!write)
        return put(out, size, sf->path);
    size_t len = strlen(write);
    if (len == 0 || len >= sizeof(sf->path))
        return -EINVAL;
    int error = sf->log ? log_on(sf, write) : 0;
    if (!error)
        memcpy(sf->path, write, len + 1);
    return error;
}

static int stats_handler(struct weir_stack *s, const char *write, char *out, size_t size)
{
    const struct siftr_log *log = s->siftr->log;
    struct alq_stats st;

    if (write)
        return -EPERM;
    if (!log)
        return put(out, size, "");
    const struct siftr_footer *f = &log->footer;
    alq_stats(log->q, &st);
    int n =
        snprintf(out, size,
                 "in=%" PRIu64 " out=%" PRIu64 " skipped_in=%" PRIu64 " skipped_out=%" PRIu64
                 " written_in=%" PRIu64 " written_out=%" PRIu64 " lost=%" PRIu64 " bytes=%" PRIu64
                 " writes=%" PRIu64 " errors=%" PRIu64 " holds=%" PRIu64 " flows_unlisted=%" PRIu64
                 " locks=%" PRIu64 " lock_waits=%" PRIu64 " lock_wait_us=%" PRIu64,
                 f->packets[0], f->packets[1],
                 f->skipped_malloc[0] + f->skipped_tcpcb[0] + f->skipped_inpcb[0],
                 f->skipped_malloc[1] + f->skipped_tcpcb[1] + f->skipped_inpcb[1], st.written[0],
                 st.written[1], st.lost[0] + st.lost[1], st.bytes, st.writes, st.errors, log->holds,
                 log->flows_unlisted, st.locks, st.lock_waits, st.lock_wait_ns / NS_PER_US);
    return n < 0 || (size_t)n >= size ? -ENOSPC : 0;
}

void siftr_settle(struct weir_stack *s)
{
    if (s->siftr && s->siftr->last_id > 0)
        (void)alq_wait_closed(s->siftr, PATIENCE_NS);
}

/* ---- life ---- */

static void stack_ends(void *ctx, struct weir_stack *s, bool over)
{
    struct siftr *sf = ctx;

    if (!over) { /* the resets of what is aborted follow */
        if (sf->log) {
            sf->log->may_block = true;
            atomic_store(&s->hold, 0);
        }
        return;
    }
    log_off(sf);
    siftr_settle(s);
    s->siftr = NULL;
    free(sf);
}

/* The process ends: close what is on. Stacks may be in use still, by threads that know nothing of
 * it, or by this very thread; what cannot be had in time stays open, and its file has no footer. */
static void process_ends(void)
{
    for (int tries = 0; tries < 2000; tries++) {
        struct timespec ts = {.tv_nsec = NS_PER_MS};
        struct siftr *sf, *next;
        pthread_mutex_lock(&all_mutex);
        for (sf = all; sf; sf = next) {
            struct weir_stack *s = sf->s;
            bool mine = owner_is_me(s);
            next = sf->next;
            if (!mine && !owner_try(s))
                continue;
            close_locked(sf);
            if (!mine)
                stack_leave(s);
        }
        bool done = all == NULL;
        pthread_mutex_unlock(&all_mutex);
        if (done)
            return;
        nanosleep(&ts, NULL);
    }
}

static void in_child(void)
{
    pthread_mutex_init(&all_mutex, NULL);
    all = NULL;
}

static void init(void)
{
    pthread_atfork(NULL, NULL, in_child);
    alq_set_end(process_ends);
}

int siftr_attach(struct weir_stack *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct siftr *sf = calloc(1, sizeof(*sf));

    if (!sf)
        return -ENOMEM;
    pthread_once(&once, init);
    sf->s = s;
    snprintf(sf->path, sizeof(sf->path), "/var/log/siftr.log");
    s->siftr = sf;
    s->hooks.stack_ends = stack_ends;
    s->hooks.stack_ends_ctx = sf;
    sysctl_set_handler(s, KNOB_siftr_enabled, enabled_handler);
    sysctl_set_handler(s, KNOB_siftr_logfile, logfile_handler);
    sysctl_set_handler(s, KNOB_siftr_stats, stats_handler);
    return 0;
}
