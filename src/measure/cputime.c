/* SPDX-License-Identifier: BSD-2-Clause
 * The accounts of CPU time: who has one, what a tick is worth, and reading them.
 *
 * How it works. A thread's account is opened at its first switch and put on a list; it alone writes
 * it. When it ends, what it has goes to `ended`. The rate of the counter is measured against the
 * clock over all the time since it was first looked at; a reader that comes early waits
 * until that says enough. Of two rates the faster is believed, as a counter may halt, but never
 * runs ahead. */
#include "cputime.h"
#include "base/sysctl.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#define RATE_FIRST_NS (5 * NS_PER_MS)    /* of measuring at least */
#define RATE_SETTLE_NS (200 * NS_PER_MS) /* until a rate replaces the one before whatever it is */
#define RATE_TRIES 5
#define SNAPSHOT_TRIES 100

struct account {
    struct cputime_thread t; /* first: it is the thread's pointer */
    struct account *next;
    pid_t tid;
    clockid_t clock;
    uint64_t base_cpu_ns, base_stolen_ns, base_preempted;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct account *accounts; /* under mutex */
static struct account *spares;   /* under mutex: of ended threads; others may look into them */
static unsigned count;           /* under mutex */
static struct cputime_row ended; /* under mutex; ns[] unused, as ticks: */
static uint64_t ended_ticks[CPU_ACTIVITIES], ended_away_ticks;
static bool denied;       /* under mutex */
static pthread_key_t key; /* its destructor ends accounts */

/* Under mutex. */
static struct {
    uint64_t ticks, ns; /* where measuring began; ns 0: it did not */
    uint64_t span_ns;   /* over which `rate` was measured */
    double rate;        /* ticks an ns; 0: not known */
} counter;

/* ---- clocks ---- */

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;

    if (clock_gettime(id, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* Of two clocks the one that goes on while the machine is suspended: so may the counter. */
static uint64_t boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

static uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* The counter runs at one rate, whatever the core does or where the thread goes. */
static bool counter_is_steady(void)
{
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d = 0;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/* Both clocks at one moment, as nearly as can be. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < RATE_TRIES; i++) {
        uint64_t before = cputime_counter(), at = boot_ns(), after = cputime_counter();
        if (after - before >= best)
            continue;
        best = after - before;
        *ticks = before + (after - before) / 2;
        *ns = at;
    }
}

static void set_rate(double rate)
{
    counter.rate = rate;
    atomic_store_explicit(&cputime.rate, (uint64_t)(rate * (double)(1 << 20)),
                          memory_order_relaxed);
    STORE_RELAXED(&cputime.long_ticks, (uint64_t)(rate * (double)CPUTIME_LONG_NS));
    STORE_RELAXED(&cputime.anchor_ticks, (uint64_t)(rate * (double)CPUTIME_ANCHOR_NS));
}

/* mutex held. */
static void calibrate(uint32_t config)
{
    uint64_t ticks = 0, ns = 0;

    if ((config & CPUTIME_MODE_MASK) != CPUTIME_TICKS)
        return;
    if (config & CPUTIME_NO_COUNTER) {
        set_rate(1);
        return;
    }
    do
        read_both(&ticks, &ns);
    while (ns - counter.ns < RATE_FIRST_NS);
    double rate = (double)(ticks - counter.ticks) / (double)(ns - counter.ns);
    if (counter.span_ns < RATE_SETTLE_NS || rate > counter.rate) {
        set_rate(rate);
        counter.span_ns = ns - counter.ns;
    }
}

uint64_t cputime_ticks_to_ns(uint64_t ticks)
{
    uint64_t r = LOAD_RELAXED(&cputime.rate);

    return r ? (uint64_t)(((unsigned __int128)ticks << 20) / r) : 0;
}

bool cputime_has_counter(void)
{
    pthread_mutex_lock(&mutex);
    bool has = counter_is_steady() && !denied;
    pthread_mutex_unlock(&mutex);
    return has;
}

double cputime_ticks_per_second(void)
{
    pthread_mutex_lock(&mutex);
    calibrate(CPUTIME_TICKS | (counter_is_steady() && !denied ? 0 : CPUTIME_NO_COUNTER));
    double rate = counter.rate;
    pthread_mutex_unlock(&mutex);
    return rate * 1e9;
}

/* ---- the kernel's figures of a thread ---- */

static size_t read_file(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void kernel_view(pid_t tid, uint64_t *stolen_ns, uint64_t *preempted, char *name)
{
    char path[64], text[4096];
    const char *at;
    unsigned long long run, delay;

    *stolen_ns = *preempted = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)tid);
    if (read_file(path, text, sizeof(text)) && sscanf(text, "%llu %llu", &run, &delay) == 2)
        *stolen_ns = delay;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)tid);
    if (!read_file(path, text, sizeof(text)))
        return;
    if ((at = strstr(text, "nonvoluntary_ctxt_switches:")) != NULL)
        *preempted = strtoull(at + 27, NULL, 10);
    if (name)
        (void)sscanf(text, "Name: %15[^\n]", name);
}

/* ---- opening and closing ---- */

/* Zeroed, but for what never goes back. */
static struct account *take_spare(void)
{
    pthread_mutex_lock(&mutex);
    struct account *a = spares;
    if (a)
        spares = a->next;
    pthread_mutex_unlock(&mutex);
    if (a) {
        for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
            STORE_RELAXED(&a->t.account[i], 0);
        STORE_RELAXED(&a->t.away, 0);
        STORE_RELAXED(&a->t.turn, 0);
        a->t.anchor_ns = 0;
        a->next = NULL;
    } else if ((a = aligned_alloc(CACHE_LINE, sizeof(*a))) != NULL) {
        memset(a, 0, sizeof(*a));
    }
    return a;
}

/* mutex held. */
static void put_spare(struct account *a)
{
    a->next = spares;
    spares = a;
}

static struct cputime_thread *open_account(void)
{
    struct account *a = take_spare();

    if (!a)
        return NULL;
    a->tid = gettid();
    a->base_cpu_ns = thread_ns();
    kernel_view(a->tid, &a->base_stolen_ns, &a->base_preempted, NULL);
    if (pthread_getcpuclockid(pthread_self(), &a->clock) != 0)
        a->clock = CLOCK_THREAD_CPUTIME_ID;
    pthread_mutex_lock(&mutex);
    bool room = count < CPUTIME_MAX_THREADS;
    struct account **last = &accounts;
    while (room && *last)
        last = &(*last)->next;
    if (room) {
        *last = a;
        count++;
    } else {
        put_spare(a);
    }
    pthread_mutex_unlock(&mutex);
    if (!room)
        return NULL;
    pthread_setspecific(key, a);
    return &a->t;
}

static const struct cputime_ops ops = {
    .begin = open_account, .thread_ns = thread_ns, .clock_ns = clock_ns};

void cputime_apply(void)
{
    pthread_mutex_lock(&mutex);
    uint32_t mode = (uint32_t)KNOB_P(kern_cputime);
    static uint32_t generation;
    bool steady = counter_is_steady() && !denied;
    if ((LOAD_RELAXED(&cputime.config) & CPUTIME_MODE_MASK) != mode) {
        generation += CPUTIME_GENERATION;
        uint32_t config = mode ? generation | mode | (steady ? 0 : CPUTIME_NO_COUNTER) : 0;
        calibrate(config);
        STORE_RELAXED(&cputime.config, config);
    }
    pthread_mutex_unlock(&mutex);
}

void cputime_deny_counter(bool deny)
{
    pthread_mutex_lock(&mutex);
    denied = deny;
    counter.span_ns = 0;
    pthread_mutex_unlock(&mutex);
}

/* mutex held. */
static void end_account(struct account *a)
{
    uint64_t stolen, preempted;

    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        ended_ticks[i] += LOAD_RELAXED(&a->t.account[i]);
    ended_away_ticks += LOAD_RELAXED(&a->t.away);
    ended.switches += LOAD_RELAXED(&a->t.turn) / 2;
    ended.cpu_ns += thread_ns() - a->base_cpu_ns;
    kernel_view(a->tid, &stolen, &preempted, NULL);
    ended.stolen_ns += stolen - a->base_stolen_ns;
    ended.preempted += preempted - a->base_preempted;
}

static void thread_ends(void *value)
{
    struct cputime_thread *t = cputime_self;

    (void)value;
    if (!t)
        return;
    cputime_switch(LOAD_RELAXED(&t->activity) == CPU_APP ? CPU_CALL : CPU_APP); /* the last span */
    pthread_mutex_lock(&mutex);
    cputime_self = NULL;
    for (struct account **p = &accounts; *p; p = &(*p)->next) {
        if (&(*p)->t != t)
            continue;
        struct account *a = *p;
        end_account(a);
        *p = a->next;
        count--;
        put_spare(a);
        break;
    }
    pthread_mutex_unlock(&mutex);
}

void cputime_fork_prepare(void)
{
    pthread_mutex_lock(&mutex);
}

void cputime_init(void)
{
    cputime.ops = &ops;
    CHECK(pthread_key_create(&key, thread_ends) == 0);
    read_both(&counter.ticks, &counter.ns);
    cputime_apply();
}

/* The child has the account of the thread that forked, and it begins at nothing. */
void cputime_fork_done(bool child)
{
    if (child) {
        while (accounts) {
            struct account *a = accounts;
            accounts = a->next;
            put_spare(a);
        }
        count = 0;
        cputime_self = NULL;
        memset(&ended, 0, sizeof(ended));
        memset(ended_ticks, 0, sizeof(ended_ticks));
        ended_away_ticks = 0;
        for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
            STORE_RELAXED(&cputime_shared()[i], 0);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- reading ---- */

/* What of a thread's account is not yet in it: the part of its present span that it ran. */
static uint64_t present_span(const struct cputime_thread *t, const struct account *a,
                             const uint64_t ticks[CPU_ACTIVITIES], uint64_t began)
{
    uint32_t config = LOAD_RELAXED(&cputime.config);
    uint64_t sum = 0;

    if ((config & CPUTIME_MODE_MASK) != CPUTIME_TICKS || LOAD_RELAXED(&t->config) != config)
        return 0;
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        sum += ticks[i];
    uint64_t now = cputime_read(config), cpu_ns = read_clock(a->clock);
    uint64_t checked = LOAD_RELAXED(&t->checked_ns);
    uint64_t ran = cpu_ns > checked ? cputime_ns_to_ticks(cpu_ns - checked) : 0;
    uint64_t charged = sum - LOAD_RELAXED(&t->checked_ticks);
    uint64_t left = ran > charged ? ran - charged : 0;
    return (int64_t)(now - began) > 0 ? MIN(now - began, left) : 0;
}

/* A consistent copy, where the thread's switches allow it. mutex held. */
static void copy_account(const struct account *a, uint64_t ticks[CPU_ACTIVITIES],
                         struct cputime_row *r, uint64_t *away)
{
    const struct cputime_thread *t = &a->t;
    uint64_t before, began = 0, rest = 0;
    uint32_t activity = 0;

    for (int i = 0; i < SNAPSHOT_TRIES; i++) {
        before = atomic_load_explicit(&t->turn, memory_order_acquire);
        for (unsigned k = 0; k < CPU_ACTIVITIES; k++)
            ticks[k] = LOAD_RELAXED(&t->account[k]);
        *away = LOAD_RELAXED(&t->away);
        began = LOAD_RELAXED(&t->since);
        activity = LOAD_RELAXED(&t->activity);
        rest = present_span(t, a, ticks, began);
        atomic_thread_fence(memory_order_acquire);
        r->switches = before / 2;
        if (!(before & 1) && LOAD_RELAXED(&t->turn) == before)
            break;
        rest = 0;
    }
    ticks[activity] += rest;
}

static void add_rows(struct cputime_row *to, const struct cputime_row *r)
{
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        to->ns[i] += r->ns[i];
    to->switches += r->switches;
    to->cpu_ns += r->cpu_ns;
    to->stolen_ns += r->stolen_ns;
    to->preempted += r->preempted;
    to->away_ns += r->away_ns;
}

static void read_row(const struct account *a, struct cputime_row *r, bool kernel)
{
    uint64_t ticks[CPU_ACTIVITIES], away, stolen = 0, preempted = 0;

    memset(r, 0, sizeof(*r));
    copy_account(a, ticks, r, &away);
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        r->ns[i] = cputime_ticks_to_ns(ticks[i]);
    r->away_ns = cputime_ticks_to_ns(away);
    r->tid = a->tid;
    if (!kernel)
        return;
    uint64_t cpu_ns = read_clock(a->clock);
    r->cpu_ns = cpu_ns - MIN(cpu_ns, a->base_cpu_ns);
    kernel_view(a->tid, &stolen, &preempted, r->name);
    r->stolen_ns = stolen - MIN(stolen, a->base_stolen_ns);
    r->preempted = preempted - MIN(preempted, a->base_preempted);
}

/* mutex held. */
static void begin_total(struct cputime_row *total)
{
    *total = ended;
    snprintf(total->name, sizeof(total->name), "total");
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        total->ns[i] = cputime_ticks_to_ns(ended_ticks[i]) + LOAD_RELAXED(&cputime_shared()[i]);
    total->away_ns = cputime_ticks_to_ns(ended_away_ticks);
}

int cputime_snapshot(struct cputime_snapshot *out)
{
    int error = 0;

    memset(out, 0, sizeof(*out));
    pthread_mutex_lock(&mutex);
    uint32_t config = LOAD_RELAXED(&cputime.config);
    calibrate(LOAD_RELAXED(&cputime.config));
    out->mode = config & CPUTIME_MODE_MASK;
    out->counter = !(config & CPUTIME_NO_COUNTER);
    out->ticks_per_second = counter.rate * 1e9;
    begin_total(&out->total);
    if (count > 0 && !(out->thread = calloc(count, sizeof(*out->thread))))
        error = -ENOMEM;
    for (struct account *a = accounts; a && !error; a = a->next) {
        struct cputime_row *r = &out->thread[out->threads++];
        read_row(a, r, true);
        add_rows(&out->total, r);
    }
    pthread_mutex_unlock(&mutex);
    return error;
}

void cputime_snapshot_free(struct cputime_snapshot *s)
{
    free(s->thread);
    s->thread = NULL;
    s->threads = 0;
}

void cputime_totals(struct cputime_row *out)
{
    pthread_mutex_lock(&mutex);
    calibrate(LOAD_RELAXED(&cputime.config));
    begin_total(out);
    for (struct account *a = accounts; a; a = a->next) {
        struct cputime_row r;
        read_row(a, &r, false);
        add_rows(out, &r);
    }
    pthread_mutex_unlock(&mutex);
}

uint64_t cputime_sum_ns(const struct cputime_row *r)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        n += r->ns[i];
    return n;
}

static void less(uint64_t *now, uint64_t before)
{
    *now -= MIN(*now, before);
}

void cputime_row_subtract(struct cputime_row *now, const struct cputime_row *before)
{
    for (unsigned i = 0; i < CPU_ACTIVITIES; i++)
        less(&now->ns[i], before->ns[i]);
    less(&now->switches, before->switches);
    less(&now->cpu_ns, before->cpu_ns);
    less(&now->stolen_ns, before->stolen_ns);
    less(&now->preempted, before->preempted);
    less(&now->away_ns, before->away_ns);
}
