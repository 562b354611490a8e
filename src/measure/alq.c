/* SPDX-License-Identifier: BSD-2-Clause
 * Log queues: opening, closing, and the queue of bytes.
 *
 * The queue is a circle of entries, each a header and its bytes, in the order of their reservation.
 * All that the lock covers is arithmetic: producers fill their entries without it, and the writer
 * thread copies posted ones, which nobody changes any more, without it too. An entry whose producer
 * is slow holds up those behind it, as their order is kept. */
#include "alq_private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

LOCK_CLASS(alq_class, "alq");

#define ENTRY_ALIGN 16
enum { ENTRY_RESERVED, ENTRY_POSTED, ENTRY_PAD };

uint64_t alq_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- opening and closing ---- */

/* Who may look at the file's end and cut it: nobody else has it open as a log. */
static bool is_ours_alone(int fd)
{
    bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;

    (void)flock(fd, LOCK_SH | LOCK_NB);
    return alone;
}

static int file_open(const struct alq_config *cfg, struct stat *st)
{
    off_t size;
    /* Non-blocking: a FIFO without a reader is refused, one that is full is not waited for. */
    int fd =
        open(cfg->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, cfg->mode);
    if (fd >= 0 && fstat(fd, st) == 0 && S_ISFIFO(st->st_mode)) {
        close(fd); /* it would be its own reader */
        fd = -1;
        errno = EACCES;
    }
    if (fd < 0 && (errno == EACCES || errno == EPERM))
        fd = open(cfg->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, st) != 0)
        return -errno;
    bool regular = S_ISREG(st->st_mode);
    size = regular ? st->st_size : 0;
    bool alone = regular && is_ours_alone(fd);
    int error = cfg->look ? cfg->look(cfg->ctx, fd, &size) : 0;
    if (error == 0 && alone && size < st->st_size && ftruncate(fd, size) != 0)
        error = -errno;
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

static int head_write(struct alq *q, const char *head, size_t len)
{
    ssize_t n = len > 0 ? write(q->fd, head, len) : 0;

    if (n == (ssize_t)len)
        return 0;
    int error = n < 0 ? -errno : -ENOSPC;
    if (n > 0)
        alq_cut(q, (size_t)n);
    return error;
}

static void head_later(struct alq *q, const char *head, size_t len)
{
    char *to = alq_out_room(&q->o, len);

    CHECK(to != NULL);
    memcpy(to, head, len);
    alq_out_add(&q->o, len, 0, 0);
}

static bool memory_get(struct alq *q, const struct alq_config *cfg)
{
    q->path = strdup(cfg->path);
    q->o.buf = malloc(ALQ_OUT_BYTES);
    q->o.unit = malloc(ALQ_OUT_UNITS * sizeof(*q->o.unit));
    if (!q->path || !q->o.buf || !q->o.unit)
        return false;
    if (cfg->queue_bytes > 0) {
        q->queue_bytes = (cfg->queue_bytes + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
        q->queue = aligned_alloc(ENTRY_ALIGN, q->queue_bytes);
        if (!q->queue)
            return false;
    }
    if (cfg->ring_count > 0) {
        size_t size = (size_t)cfg->ring_count * cfg->ring_stride;
        q->ring.mask = cfg->ring_count - 1;
        q->ring.stride = cfg->ring_stride;
        q->ring.slots = aligned_alloc(CACHE_LINE, size);
        if (!q->ring.slots)
            return false;
        memset(q->ring.slots, 0, size); /* its pages are there before the first record */
    }
    return true;
}

void alq_free(struct alq *q)
{
    if (q->fd >= 0)
        close(q->fd);
    pthread_mutex_destroy(&q->room_lock);
    pthread_mutex_destroy(&q->sleep_lock);
    pthread_cond_destroy(&q->sleep_cond);
    free(q->path);
    free(q->o.buf);
    free(q->o.unit);
    free(q->queue);
    free(q->ring.slots);
    free(q);
}

int alq_open(struct alq **out, const struct alq_config *cfg)
{
    struct alq *q = aligned_alloc(CACHE_LINE, sizeof(*q));
    struct stat st;

    *out = NULL;
    CHECK((cfg->ring_count & (cfg->ring_count - 1)) == 0 && cfg->ring_stride % CACHE_LINE == 0);
    CHECK(cfg->keep_max + cfg->record_max < ALQ_OUT_BYTES / 2);
    if (!q)
        return -ENOMEM;
    memset(q, 0, sizeof(*q));
    q->fd = -1;
    q->ops = *cfg->ops;
    q->ctx = cfg->ctx;
    q->tag = cfg->tag;
    q->record_max = cfg->record_max;
    q->keep_max = cfg->keep_max;
    pthread_mutex_init(&q->room_lock, NULL);
    pthread_mutex_init(&q->sleep_lock, NULL);
    pthread_cond_init(&q->sleep_cond, NULL);
    lock_init(&q->lock, &alq_class);
    int error = memory_get(q, cfg) ? 0 : -ENOMEM;
    if (error == 0) {
        q->fd = file_open(cfg, &st);
        error = MIN(q->fd, 0);
    }
    if (error == 0) {
        q->regular = S_ISREG(st.st_mode);
        q->dev = st.st_dev;
        q->ino = st.st_ino;
        if (alq_writer_has(q)) /* a log that ends is still being written there */
            head_later(q, cfg->head, cfg->head_len);
        else
            error = head_write(q, cfg->head, cfg->head_len);
    }
    if (error == 0)
        error = alq_writer_add(q);
    if (error != 0) {
        alq_free(q);
        return error;
    }
    *out = q;
    return 0;
}

void alq_close(struct alq *q)
{
    pthread_mutex_lock(&q->room_lock);
    atomic_store_explicit(&q->state, ALQ_CLOSING, memory_order_release);
    pthread_mutex_unlock(&q->room_lock);
    alq_wake();
}

/* ---- the queue ---- */

#define queue_lock(q) queue_lock_at((q), LOCK_HERE)
/* Inlined, so that the profile shows who takes it. */
__attribute__((always_inline)) static inline void queue_lock_at(struct alq *q, const char *where)
    TS_ACQUIRE(&q->lock) TS_NO_ANALYSIS
{
    uint64_t since = lock_is_held(&q->lock) ? alq_now_ns() : 0;

    lock_acquire_at(&q->lock, where);
    STORE_RELAXED(&q->locks, LOAD_RELAXED(&q->locks) + 1);
    if (unlikely(since != 0)) {
        uint64_t waited = alq_now_ns() - since;
        STORE_RELAXED(&q->lock_waits, LOAD_RELAXED(&q->lock_waits) + 1);
        STORE_RELAXED(&q->lock_wait_ns, LOAD_RELAXED(&q->lock_wait_ns) + waited);
    }
}

static struct alq_entry *entry_at(const struct alq *q, uint64_t pos)
{
    return (struct alq_entry *)(void *)(q->queue + pos % q->queue_bytes);
}

static uint32_t entry_size(size_t len)
{
    return (uint32_t)((sizeof(struct alq_entry) + len + ENTRY_ALIGN - 1) / ENTRY_ALIGN *
                      ENTRY_ALIGN);
}

/* NULL: there is no room now. */
static struct alq_entry *reserve(struct alq *q, uint32_t size) TS_REQUIRES(&q->lock)
{
    uint64_t in = LOAD_RELAXED(&q->in), room = q->queue_bytes - (in - LOAD_RELAXED(&q->out));
    size_t to_end = q->queue_bytes - in % q->queue_bytes;
    struct alq_entry *e;

    if (size > to_end) { /* entries do not wrap: the end stays unused */
        if (room < to_end + size)
            return NULL;
        e = entry_at(q, in);
        e->state = ENTRY_PAD;
        e->size = (uint32_t)to_end;
        in += to_end;
    } else if (room < size) {
        return NULL;
    }
    e = entry_at(q, in);
    e->state = ENTRY_RESERVED;
    e->size = size;
    STORE_RELAXED(&q->in, in + size);
    return e;
}

struct alq_entry *alq_get(struct alq *q, size_t len, int how)
{
    uint32_t size = entry_size(len);

    if (size > q->queue_bytes / 4) /* so that it fits whenever half is free, wherever the end is */
        return NULL;
    while (true) {
        queue_lock(q);
        struct alq_entry *e = reserve(q, size);
        if (!e && how == ALQ_WAIT)
            q->sleepers++;
        lock_release(&q->lock);
        if (e || how != ALQ_WAIT)
            return e;
        pthread_mutex_lock(&q->sleep_lock);
        alq_wake();
        while (q->queue_bytes - alq_queued(q) < q->queue_bytes / 2)
            pthread_cond_wait(&q->sleep_cond, &q->sleep_lock);
        pthread_mutex_unlock(&q->sleep_lock);
        queue_lock(q);
        q->sleepers--;
        lock_release(&q->lock);
    }
}

void alq_post(struct alq *q, struct alq_entry *e, size_t used, uint16_t n0, uint16_t n1)
{
    uint32_t size = entry_size(used), sleep = LOAD_RELAXED(&alq_writer_sleep);

    queue_lock(q);
    CHECK(size <= e->size);
    e->used = (uint32_t)used;
    e->n[0] = n0;
    e->n[1] = n1;
    e->state = ENTRY_POSTED;
    uint64_t in = LOAD_RELAXED(&q->in);
    if (entry_at(q, in - e->size) == e) { /* the last one: what it did not need is free again */
        in -= e->size - size;
        STORE_RELAXED(&q->in, in);
        e->size = size;
    }
    bool mark = in - LOAD_RELAXED(&q->out) > q->queue_bytes / 4;
    lock_release(&q->lock);
    if (unlikely(sleep != ALQ_AWAKE) && (sleep == ALQ_SLEEPS || mark))
        alq_wake();
}

size_t alq_queued(const struct alq *q)
{
    uint64_t out = atomic_load(&q->out);

    return (size_t)(atomic_load(&q->in) - out);
}

/* Posted entries at the front, as far as the output has room: where they end. */
static uint64_t posted_end(struct alq *q, bool *all)
{
    size_t room = ALQ_OUT_BYTES - q->o.len;
    uint32_t units = ALQ_OUT_UNITS - q->o.units;

    queue_lock(q);
    uint64_t pos = LOAD_RELAXED(&q->out), in = LOAD_RELAXED(&q->in);
    while (pos != in) {
        const struct alq_entry *e = entry_at(q, pos);
        if (e->state == ENTRY_RESERVED ||
            (e->state == ENTRY_POSTED && (e->used > room || units == 0)))
            break;
        if (e->state == ENTRY_POSTED) {
            room -= e->used;
            units--;
        }
        pos += e->size;
    }
    *all = pos == in || entry_at(q, pos)->state == ENTRY_RESERVED;
    lock_release(&q->lock);
    return pos;
}

bool alq_queue_collect(struct alq *q)
{
    bool all = true;

    if (!q->queue || alq_queued(q) == 0)
        return true;
    uint64_t end = posted_end(q, &all), pos = LOAD_RELAXED(&q->out);
    if (pos == end)
        return all;
    for (; pos != end; pos += entry_at(q, pos)->size) {
        const struct alq_entry *e = entry_at(q, pos);
        if (e->state == ENTRY_PAD)
            continue;
        char *to = alq_out_room(&q->o, e->used);
        CHECK(to != NULL);
        memcpy(to, e->data, e->used);
        alq_out_add(&q->o, e->used, e->n[0], e->n[1]);
    }
    queue_lock(q);
    atomic_store(&q->out, end);
    bool sleepers = q->sleepers > 0;
    lock_release(&q->lock);
    if (sleepers) {
        pthread_mutex_lock(&q->sleep_lock);
        pthread_cond_broadcast(&q->sleep_cond);
        pthread_mutex_unlock(&q->sleep_lock);
    }
    return all;
}

/* ---- room ---- */

struct alq_ring *alq_ring_of(struct alq *q)
{
    return q->ring.slots ? &q->ring : NULL;
}

static bool has_room(const struct alq *q)
{
    uint32_t head = atomic_load(&q->ring.head), used = atomic_load(&q->ring.tail) - head;

    return used <= (q->ring.mask + 1) / 2 && alq_queued(q) <= q->queue_bytes / 2;
}

/* The producer sets want, then looks at what is used; the writer frees, then looks at want. */
bool alq_want_room(struct alq *q)
{
    atomic_store(&q->want, 1);
    if (has_room(q) && atomic_exchange(&q->want, 0))
        return true;
    alq_wake();
    return false;
}

void alq_writer_room(struct alq *q)
{
    if (likely(!atomic_load(&q->want)) || !has_room(q) || !atomic_exchange(&q->want, 0))
        return;
    pthread_mutex_lock(&q->room_lock);
    if (LOAD_RELAXED(&q->state) == ALQ_OPEN && q->ops.room)
        q->ops.room(q->ctx);
    pthread_mutex_unlock(&q->room_lock);
}

void alq_stats(const struct alq *q, struct alq_stats *st)
{
    *st = (struct alq_stats){.locks = LOAD_RELAXED(&q->locks),
                             .lock_waits = LOAD_RELAXED(&q->lock_waits),
                             .lock_wait_ns = LOAD_RELAXED(&q->lock_wait_ns),
                             .bytes = LOAD_RELAXED(&q->bytes),
                             .writes = LOAD_RELAXED(&q->writes),
                             .errors = LOAD_RELAXED(&q->errors)};
    for (int i = 0; i < 2; i++) {
        st->written[i] = LOAD_RELAXED(&q->written[i]);
        st->lost[i] = LOAD_RELAXED(&q->lost[i]);
    }
}
