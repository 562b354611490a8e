/* SPDX-License-Identifier: BSD-2-Clause
 * The writer thread: takes what all logs of the process have to their files.
 *
 * It comes with the first log and goes with the last. Between two rounds it naps, so that records
 * gather; a producer wakes it early when a quarter of its buffer is in use. When nothing came for
 * some rounds it sleeps until the first record. (A producer looks whether it sleeps without a
 * barrier, which would cost every record; what it may miss so is found at the next nap's end.)
 *
 * A write that fails is reported once. What the log has then, and gets until the next try, is
 * dropped and counted, so that no disk stops a program; half a unit is cut off again. A file that
 * takes nothing now (a full FIFO) is tried again later, without keeping other logs waiting. */
#include "alq_private.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS (5 * NS_PER_MS)
#define SLEEP_NS (200 * NS_PER_MS)
#define IDLE_NAPS 4 /* in a row without a record; then it sleeps */
#define RETRY_NS (100 * NS_PER_MS)
#define ROUNDS 16 /* outputs of one log before others have their turn */

struct alq_all alq_all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .gone = PTHREAD_COND_INITIALIZER};
_Atomic uint32_t alq_writer_sleep;
static sem_t wake_sem;

void alq_wake(void)
{
    if (atomic_exchange(&alq_writer_sleep, ALQ_AWAKE) != ALQ_AWAKE)
        sem_post(&wake_sem);
}

static void add(_Atomic uint64_t *v, uint64_t n)
{
    STORE_RELAXED(v, LOAD_RELAXED(v) + n);
}

/* ---- the output ---- */

char *alq_out_room(struct alq_out *o, size_t n)
{
    return o->units < ALQ_OUT_UNITS && ALQ_OUT_BYTES - o->len >= n ? o->buf + o->len : NULL;
}

void alq_out_add(struct alq_out *o, size_t len, uint16_t n0, uint16_t n1)
{
    o->unit[o->units++] = (struct alq_unit){.len = (uint32_t)len, .n = {n0, n1}};
    o->len += len;
}

static void out_clear(struct alq_out *o)
{
    o->len = o->done = o->unit_done = 0;
    o->units = o->units_done = 0;
}

/* n bytes more are in the file. */
static void out_credit(struct alq *q, size_t n)
{
    struct alq_out *o = &q->o;

    o->done += n;
    o->unit_done += n;
    while (o->units_done < o->units && o->unit_done >= o->unit[o->units_done].len) {
        const struct alq_unit *u = &o->unit[o->units_done++];
        o->unit_done -= u->len;
        add(&q->written[0], u->n[0]);
        add(&q->written[1], u->n[1]);
    }
}

/* What is not in the file will not be. */
static void out_drop(struct alq *q)
{
    struct alq_out *o = &q->o;

    for (; o->units_done < o->units; o->units_done++) {
        add(&q->lost[0], o->unit[o->units_done].n[0]);
        add(&q->lost[1], o->unit[o->units_done].n[1]);
    }
    out_clear(o);
}

void alq_cut(const struct alq *q, size_t n)
{
    struct stat st;
    off_t end = lseek(q->fd, 0, SEEK_CUR);

    if (q->regular && n > 0 && fstat(q->fd, &st) == 0 && end == st.st_size)
        (void)!ftruncate(q->fd, end - (off_t)n);
}

static void write_failed(struct alq *q, int error, uint64_t now_ns)
{
    add(&q->errors, 1);
    q->retry_ns = now_ns + RETRY_NS;
    alq_cut(q, q->o.unit_done);
    out_drop(q);
    if (!q->complained)
        dprintf(STDERR_FILENO, "weir: %s: %s: records are dropped while it cannot be written\n",
                q->path, strerror(error));
    q->complained = true;
}

/* False: the file takes no more now. */
static bool out_write(struct alq *q, uint64_t now_ns)
{
    struct alq_out *o = &q->o;

    if (unlikely(now_ns < q->retry_ns))
        out_drop(q);
    while (o->done < o->len) {
        ssize_t n = write(q->fd, o->buf + o->done, o->len - o->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0) {
            write_failed(q, n < 0 ? errno : ENOSPC, now_ns);
            break;
        }
        add(&q->writes, 1);
        add(&q->bytes, (uint64_t)n);
        add(&alq_all.progress, 1);
        out_credit(q, (size_t)n);
    }
    out_clear(o);
    return true;
}

/* ---- one log ---- */

/* Format what is in the ring, as far as the output has room. True: all of it. */
static bool ring_collect(struct alq *q)
{
    struct alq_ring *r = &q->ring;
    uint32_t head = LOAD_RELAXED(&r->head);
    uint32_t used = atomic_load_explicit(&r->tail, memory_order_acquire) - head;
    size_t room = ALQ_OUT_BYTES - q->o.len;

    room = room > q->keep_max ? (room - q->keep_max) / q->record_max : 0;
    uint32_t fit = (uint32_t)MIN(room, (size_t)(ALQ_OUT_UNITS - q->o.units - 1));
    uint32_t n = MIN(MIN(used, fit), r->mask + 1 - (head & r->mask));
    if (n > 0) {
        q->ops.format(q->ctx, r->slots + (size_t)(head & r->mask) * r->stride, n, &q->o);
        atomic_store(&r->head, head + n);
    }
    return n == used;
}

/* True: the log had something. *over: it is closed, and all of it is in the file. */
static bool serve(struct alq *q, bool *over)
{
    bool any = false, all = false;

    *over = false;
    if (q->after)
        return false;
    /* Looked at first: what was logged before is seen below. */
    bool closing = atomic_load_explicit(&q->state, memory_order_acquire) == ALQ_CLOSING;
    uint64_t now = alq_now_ns();

    for (int i = 0; i < ROUNDS && !all; i++) {
        if (q->o.len == 0) {
            all = alq_queue_collect(q);
            if (all && q->ring.slots)
                all = ring_collect(q);
            if (all && q->ops.settle)
                q->ops.settle(q->ctx, &q->o);
            alq_writer_room(q);
        }
        any |= q->o.len > 0;
        if (!out_write(q, now))
            return any;
    }
    if (!all)
        return true;
    while (closing && !q->finished) {
        q->finished = !q->ops.finish || q->ops.finish(q->ctx, &q->o);
        if (!out_write(q, now))
            return true;
    }
    *over = closing;
    return any;
}

/* Take q off the list: what was logged is in the file. */
static void retire(struct alq *q)
{
    close(q->fd);
    q->fd = -1;
    if (q->ops.gone)
        q->ops.gone(q->ctx);
    pthread_mutex_lock(&alq_all.mutex);
    struct alq **p = &alq_all.first;
    while (*p != q)
        p = &(*p)->next;
    *p = q->next;
    for (struct alq *other = alq_all.first; other; other = other->next)
        if (other->after == q)
            other->after = NULL;
    add(&alq_all.progress, 1);
    pthread_cond_broadcast(&alq_all.gone);
    pthread_mutex_unlock(&alq_all.mutex);
    pthread_mutex_lock(&q->room_lock); /* alq_close has let go of it */
    pthread_mutex_unlock(&q->room_lock);
    alq_free(q);
}

/* ---- the thread ---- */

static bool wants_service(const struct alq *q)
{
    uint32_t used = atomic_load(&q->ring.tail) - atomic_load(&q->ring.head);

    return (q->ring.slots && used > q->ring.mask / 4) || LOAD_RELAXED(&q->want) ||
           atomic_load(&q->state) == ALQ_CLOSING ||
           (q->queue && alq_queued(q) > q->queue_bytes / 4);
}

/* Sleep until woken, or for a while. Nothing may be put off by it that wants to be done now. */
static void rest(struct alq *first, uint32_t idle_rounds, bool stuck)
{
    bool deep = idle_rounds >= IDLE_NAPS;
    struct timespec ts;
    uint64_t until = alq_now_ns() + (deep ? SLEEP_NS : NAP_NS);

    atomic_store(&alq_writer_sleep, deep ? ALQ_SLEEPS : ALQ_NAPS);
    for (struct alq *q = first; q && !stuck; q = q->next) {
        bool some =
            deep && (alq_queued(q) > 0 || atomic_load(&q->ring.tail) != atomic_load(&q->ring.head));
        if (some || wants_service(q)) {
            if (atomic_exchange(&alq_writer_sleep, ALQ_AWAKE) != ALQ_AWAKE)
                return;
        }
    }
    ts.tv_sec = (time_t)(until / NS_PER_S);
    ts.tv_nsec = (long)(until % NS_PER_S);
    while (sem_clockwait(&wake_sem, CLOCK_MONOTONIC, &ts) != 0 && errno == EINTR)
        ;
    atomic_store(&alq_writer_sleep, ALQ_AWAKE);
}

static struct alq *first_log(void)
{
    pthread_mutex_lock(&alq_all.mutex);
    struct alq *q = alq_all.first;
    if (!q) {
        alq_all.running = false;
        alq_end_unwatch();
    }
    pthread_mutex_unlock(&alq_all.mutex);
    return q;
}

static void *writer_main(void *arg)
{
    uint32_t idle = 0;
    struct alq *first, *next;

    (void)arg;
    while ((first = first_log()) != NULL) {
        bool any = false, stuck = false, left = false;
        (void)alq_end_wanted();
        for (struct alq *q = first; q; q = next) {
            bool over;
            next = q->next;
            any |= serve(q, &over);
            stuck |= q->o.len > 0 && !q->after;
            left |= !over;
            if (over)
                retire(q);
        }
        if (!left)
            continue;
        idle = any ? 0 : idle + 1;
        pthread_mutex_lock(&alq_all.mutex);
        first = alq_all.first;
        pthread_mutex_unlock(&alq_all.mutex);
        rest(first, idle, stuck);
    }
    if (alq_end_wanted())
        alq_end_now();
    return NULL;
}

static int thread_start(void)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;

    alq_end_watch();
    sigfillset(&all); /* the application's signals are for its threads; SIGPIPE becomes an error */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    int error = pthread_create(&thread, &attr, writer_main, NULL);
    if (error == 0)
        pthread_setname_np(thread, "weir/alq");
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

/* In a child of a fork: the logs and the thread are the parent's. By its only thread. */
static void start_over(void)
{
    alq_all.first = NULL;
    alq_all.running = false;
    STORE_RELAXED(&alq_all.progress, 0);
    pthread_mutex_init(&alq_all.mutex, NULL);
    pthread_cond_init(&alq_all.gone, NULL);
    sem_init(&wake_sem, 0, 0);
    atomic_store(&alq_writer_sleep, ALQ_AWAKE);
    alq_all.pid = getpid();
}

/* The log whose end comes before q's beginning: of the same file, and closed, or about to be. */
static struct alq *ending_there(const struct alq *q)
{
    for (struct alq *o = alq_all.first; o; o = o->next)
        if (q->regular && o->dev == q->dev && o->ino == q->ino &&
            (LOAD_RELAXED(&o->state) == ALQ_CLOSING || (q->tag && o->tag == q->tag)))
            return o;
    return NULL;
}

bool alq_writer_has(const struct alq *q)
{
    if (alq_all.pid != getpid())
        return false;
    pthread_mutex_lock(&alq_all.mutex);
    bool has = ending_there(q) != NULL;
    pthread_mutex_unlock(&alq_all.mutex);
    return has;
}

int alq_writer_add(struct alq *q)
{
    int error = 0;

    if (alq_all.pid != getpid())
        start_over();
    pthread_mutex_lock(&alq_all.mutex);
    q->after = ending_there(q);
    q->next = alq_all.first;
    alq_all.first = q;
    if (!alq_all.running)
        error = thread_start();
    if (error == 0)
        alq_all.running = true;
    else
        alq_all.first = q->next;
    pthread_mutex_unlock(&alq_all.mutex);
    alq_wake();
    return error;
}

/* ---- waiting ---- */

static bool is_closing(const void *tag)
{
    for (const struct alq *q = alq_all.first; q; q = q->next)
        if ((!tag || q->tag == tag) && atomic_load(&q->state) == ALQ_CLOSING)
            return true;
    return false;
}

bool alq_wait_closed(const void *tag, uint64_t limit_ns)
{
    bool left = true;

    if (alq_all.pid != getpid())
        return true;
    pthread_mutex_lock(&alq_all.mutex);
    uint64_t progress = LOAD_RELAXED(&alq_all.progress), until = alq_now_ns() + limit_ns;
    while ((left = is_closing(tag)) && alq_now_ns() < until) {
        struct timespec ts;
        uint64_t look = MIN(until, alq_now_ns() + 50 * NS_PER_MS);
        ts.tv_sec = (time_t)(look / NS_PER_S);
        ts.tv_nsec = (long)(look % NS_PER_S);
        pthread_cond_clockwait(&alq_all.gone, &alq_all.mutex, CLOCK_MONOTONIC, &ts);
        if (LOAD_RELAXED(&alq_all.progress) != progress) {
            progress = LOAD_RELAXED(&alq_all.progress);
            until = alq_now_ns() + limit_ns;
        }
    }
    pthread_mutex_unlock(&alq_all.mutex);
    return !left;
}
