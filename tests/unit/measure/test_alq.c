/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what is logged is in the file, whole and in order, whatever the file does; what could not
 * be written is counted, to the unit. Bound: some 10,000 short records, a few threads; files of
 * less than 2 MB. */
#include "measure/alq.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE (20 * NS_PER_S)

static char dir[] = "/tmp/weir-alq.XXXXXX";
static char path[64];

static int setup(void **state)
{
    strcpy(strrchr(dir, '.'), ".XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/log", dir);
    return 0;
}

static int teardown(void **state)
{
    assert_true(alq_wait_closed(NULL, PATIENCE));
    unlink(path);
    return rmdir(dir);
}

/* ---- what the logs of these tests do ---- */

struct raw {
    uint32_t number;
    char text[60];
};

struct log {
    struct alq *q;
    struct alq_stats last; /* when it was gone */
    _Atomic uint32_t rooms;
    bool footer;
};

static void format(void *ctx, const void *records, uint32_t n, struct alq_out *out)
{
    const struct raw *r = records;

    for (uint32_t i = 0; i < n; i++) {
        char *to = alq_out_room(out, sizeof(*r) + 16);
        if (!to)
            abort();
        int len = snprintf(to, sizeof(*r) + 16, "%u %s\n", r[i].number, r[i].text);
        alq_out_add(out, (size_t)len, 1, 0);
    }
}

static bool finish(void *ctx, struct alq_out *out)
{
    struct log *l = ctx;
    char *to = alq_out_room(out, 16);

    if (!to)
        return false;
    if (l->footer)
        alq_out_add(out, (size_t)sprintf(to, "end\n"), 0, 0);
    return true;
}

static void room(void *ctx)
{
    struct log *l = ctx;

    atomic_fetch_add(&l->rooms, 1);
}

static void gone(void *ctx)
{
    struct log *l = ctx;

    alq_stats(l->q, &l->last);
}

static const struct alq_ops ops = {.format = format, .finish = finish, .room = room, .gone = gone};

static int log_open(struct log *l, size_t queue, uint32_t ring)
{
    struct alq_config cfg = {.path = path,
                             .mode = 0600,
                             .head = "head\n",
                             .head_len = 5,
                             .queue_bytes = queue,
                             .ring_count = ring,
                             .ring_stride = sizeof(struct raw),
                             .record_max = sizeof(struct raw) + 16,
                             .ops = &ops,
                             .ctx = l,
                             .tag = l};
    _Static_assert(sizeof(struct raw) == 64, "a slot");
    return alq_open(&l->q, &cfg);
}

static void log_close(struct log *l)
{
    alq_close(l->q);
    assert_true(alq_wait_closed(l, PATIENCE));
}

static bool say(struct log *l, unsigned who, unsigned i, int how)
{
    char text[32];
    size_t len = (size_t)snprintf(text, sizeof(text), "%u %u\n", who, i);
    struct alq_entry *e = alq_get(l->q, sizeof(text), how);

    if (!e)
        return false;
    memcpy(e->data, text, len);
    alq_post(l->q, e, len, 1, 0);
    return true;
}

static bool push(struct log *l, unsigned i)
{
    struct raw *r = alq_ring_slot(alq_ring_of(l->q));

    if (!r)
        return false;
    r->number = i;
    snprintf(r->text, sizeof(r->text), "%0*u", (int)(i % 50 + 1), i);
    alq_ring_push(alq_ring_of(l->q));
    return true;
}

/* ---- reading back ---- */

static char *file_text(void)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 4 << 20);

    assert_non_null(f);
    assert_true(fread(text, 1, (4 << 20) - 1, f) < (4 << 20) - 1);
    fclose(f);
    return text;
}

/* How many lines of raw records stand in text from `at` on, numbered from `first` on without a gap.
 */
static unsigned raws_in_order(const char **at, unsigned first)
{
    unsigned n = 0, number, again;
    int used = 0;

    while (sscanf(*at, "%u %u\n%n", &number, &again, &used) == 2) {
        if (number != first + n)
            break;
        assert_int_equal(again, number);
        n++;
        *at += used;
    }
    return n;
}

/* ---- the queue ---- */

#define WRITERS 4
#define EACH 3000

struct writer {
    struct log *l;
    unsigned who;
};

static void *writer(void *arg)
{
    const struct writer *w = arg;

    for (unsigned i = 0; i < EACH; i++)
        assert_true(say(w->l, w->who, i, ALQ_WAIT));
    return NULL;
}

/* Much less room than records: every thread has to wait now and then. */
static void many_threads_lose_nothing(void **state)
{
    struct log l = {.footer = true};
    pthread_t thread[WRITERS];
    struct writer w[WRITERS];
    unsigned next[WRITERS] = {0}, who, i;
    int used;

    assert_int_equal(log_open(&l, 4096, 0), 0);
    for (unsigned k = 0; k < WRITERS; k++) {
        w[k] = (struct writer){&l, k};
        assert_int_equal(pthread_create(&thread[k], NULL, writer, &w[k]), 0);
    }
    for (unsigned k = 0; k < WRITERS; k++)
        pthread_join(thread[k], NULL);
    log_close(&l);
    char *text = file_text();
    const char *p = text + 5;
    assert_memory_equal(text, "head\n", 5);
    while (sscanf(p, "%u %u\n%n", &who, &i, &used) == 2) {
        assert_int_equal(i, next[who]++);
        p += used;
    }
    assert_string_equal(p, "end\n");
    for (unsigned k = 0; k < WRITERS; k++)
        assert_int_equal(next[k], EACH);
    assert_int_equal(l.last.written[0], WRITERS * EACH);
    assert_int_equal(l.last.lost[0], 0);
    assert_true(l.last.locks >= 2 * WRITERS * EACH);
    free(text);
}

/* An entry that is posted late holds up those behind it: the order is that of alq_get. */
static void order_is_that_of_reservation(void **state)
{
    struct log l = {0};

    assert_int_equal(log_open(&l, 4096, 0), 0);
    struct alq_entry *a = alq_get(l.q, 100, ALQ_NOWAIT), *b = alq_get(l.q, 100, ALQ_NOWAIT);
    memcpy(b->data, "b\n", 2);
    alq_post(l.q, b, 2, 1, 0);
    memcpy(a->data, "a\n", 2);
    alq_post(l.q, a, 2, 0, 1);
    log_close(&l);
    char *text = file_text();
    assert_string_equal(text, "head\na\nb\n");
    assert_int_equal(l.last.written[0], 1);
    assert_int_equal(l.last.written[1], 1);
    free(text);
}

static void what_never_fits_is_refused(void **state)
{
    struct log l = {0};

    assert_int_equal(log_open(&l, 4096, 0), 0);
    assert_null(alq_get(l.q, 4096, ALQ_WAIT));
    log_close(&l);
}

/* ---- a FIFO: a file that takes nothing until somebody reads ---- */

static int fifo_reader(void)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    return fd;
}

/* Everything up to the end of the FIFO, when its writer has closed it. */
static char *read_to_end(int fd, size_t *len)
{
    char *text = calloc(1, 4 << 20);
    ssize_t n;

    *len = 0;
    while ((n = read(fd, text + *len, 4096)) > 0)
        *len += (size_t)n;
    return text;
}

#define QUEUE 1000000

static void full_is_said_and_nothing_lost(void **state)
{
    struct log l = {.footer = true};
    unsigned queued = 0, pushed = 0, number, again;
    size_t len;
    int fd = fifo_reader(), used;

    assert_int_equal(log_open(&l, 64 * 1024, 1024), 0);
    /* Until both are full, which the FIFO and the output buffer put off for a while. */
    while (say(&l, QUEUE, queued, ALQ_NOWAIT))
        queued++;
    while (push(&l, pushed))
        pushed++;
    assert_true(pushed >= 1024);
    assert_true(alq_ring_used(alq_ring_of(l.q)) > 1000);
    alq_close(l.q);
    char *text = read_to_end(fd, &len);
    assert_true(alq_wait_closed(&l, PATIENCE));
    unsigned seen[2] = {0};
    char *p = text + 5;
    for (; sscanf(p, "%u %u\n%n", &number, &again, &used) == 2; p += used) {
        if (number == QUEUE)
            assert_int_equal(again, seen[0]++);
        else
            assert_int_equal(number, seen[1]++);
    }
    assert_int_equal(seen[0], queued);
    assert_int_equal(seen[0] + seen[1], queued + pushed);
    assert_string_equal(p, "end\n");
    assert_int_equal(l.last.written[0], queued + pushed);
    assert_int_equal(l.last.lost[0], 0);
    free(text);
    close(fd);
}

static void room_is_told_once_it_is_there(void **state)
{
    struct log l = {0};
    unsigned pushed = 0;
    size_t len;
    int fd = fifo_reader();

    assert_int_equal(log_open(&l, 0, 1024), 0);
    assert_true(alq_want_room(l.q)); /* there is */
    /* Beyond what pipe and output buffer take, so that it stays full. */
    do
        while (push(&l, pushed))
            pushed++;
    while (pushed < 15000 && alq_want_room(l.q));
    char buf[4096];
    while (atomic_load(&l.rooms) == 0)
        assert_true(read(fd, buf, sizeof(buf)) > 0);
    assert_true(alq_ring_used(alq_ring_of(l.q)) <= 512);
    alq_close(l.q);
    free(read_to_end(fd, &len));
    assert_true(alq_wait_closed(&l, PATIENCE));
    assert_int_equal(l.last.written[0], pushed);
    close(fd);
}

static void a_reader_that_leaves_costs_what_it_did_not_take(void **state)
{
    struct log l = {.footer = true};
    unsigned pushed = 0;
    int fd = fifo_reader();
    char head[5];

    assert_int_equal(log_open(&l, 0, 1024), 0);
    assert_int_equal(read(fd, head, 5), 5);
    close(fd);
    while (pushed < 5000)
        pushed += push(&l, pushed);
    log_close(&l);
    assert_int_equal(l.last.lost[0], 5000);
    assert_true(l.last.errors >= 1);
}

static void a_fifo_without_a_reader_is_refused(void **state)
{
    struct log l = {0};

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(log_open(&l, 4096, 0), -ENXIO);
}

/* ---- files that cannot be written ---- */

static void what_cannot_be_opened_is_said(void **state)
{
    struct log l = {0};
    char keep[sizeof(path)];

    strcpy(keep, path);
    strcpy(path, "/nonexistent/log");
    assert_int_equal(log_open(&l, 4096, 0), -ENOENT);
    strcpy(path, dir);
    assert_int_equal(log_open(&l, 4096, 0), -EISDIR);
    strcpy(path, "/dev/full");
    assert_int_equal(log_open(&l, 4096, 0), -ENOSPC);
    strcpy(path, keep);
}

static void limit_files(rlim_t size)
{
    struct rlimit r;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

/* A file that takes a part of a write and then no more: what is in it is whole, what is not is
 * counted, and when it grows again the log goes on. */
static void a_full_disk_costs_whole_records(void **state)
{
    struct log l = {.footer = true};
    unsigned pushed = 0;
    struct alq_stats st;

    assert_int_equal(log_open(&l, 0, 1024), 0);
    limit_files(10007);
    while (pushed < 4000)
        pushed += push(&l, pushed);
    do
        alq_stats(l.q, &st);
    while (st.written[0] + st.lost[0] < pushed);
    limit_files(RLIM_INFINITY);
    char *text = file_text();
    assert_true(strlen(text) > 10007 - 80 && strlen(text) <= 10007);
    const char *p = text + 5;
    assert_int_equal(raws_in_order(&p, 0), st.written[0]);
    assert_string_equal(p, "");
    free(text);
    unsigned lost = (unsigned)st.lost[0], first = pushed;
    do { /* it tries again before long */
        first = pushed;
        while (!push(&l, pushed))
            ;
        pushed++;
        do
            alq_stats(l.q, &st);
        while (st.written[0] + st.lost[0] < pushed);
    } while (st.lost[0] > lost && (lost = (unsigned)st.lost[0]));
    log_close(&l);
    text = file_text();
    p = text + 5;
    unsigned before = raws_in_order(&p, 0), after = raws_in_order(&p, first);
    assert_int_equal(before + after + l.last.lost[0], pushed);
    assert_true(before > 0 && after > 0);
    assert_string_equal(p, "end\n");
    free(text);
}

/* ---- the end of the process ---- */

static struct log *to_close;

static void close_at_end(void)
{
    alq_close(to_close->q);
}

/* A child that logs n records and then ends as `how` says; how it ended. */
static int child(unsigned n, void (*how)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        static struct log l = {.footer = true};
        to_close = &l;
        alq_set_end(close_at_end);
        if (log_open(&l, 4096, 1024) != 0)
            _exit(99);
        for (unsigned i = 0; i < n; i++)
            while (!push(&l, i))
                ;
        how();
        while (true)
            pause();
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void by_exit(void)
{
    exit(3);
}

static void by_term(void)
{
    kill(getpid(), SIGTERM);
}

static void by_kill(void)
{
    kill(getpid(), SIGKILL);
}

static void exit_and_signals_lose_nothing(void **state)
{
    void (*const how[])(void) = {by_exit, by_term};

    for (unsigned i = 0; i < 2; i++) {
        int status = child(20000, how[i]);
        if (i == 0)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        char *text = file_text();
        const char *p = text + 5;
        assert_int_equal(raws_in_order(&p, 0), 20000);
        assert_string_equal(p, "end\n");
        free(text);
        unlink(path);
    }
}

/* case: MEA-061 */
static void killed_it_leaves_a_readable_file(void **state)
{
    int status = child(20000, by_kill);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    char *text = file_text();
    const char *p = text + 5;
    (void)raws_in_order(&p, 0);
    assert_null(strchr(p, '\n')); /* nothing but, at most, half a line */
    free(text);
}

/* Its handlers are there while logs are open, and only where the program has none. */
static void signals_are_left_alone_without_logs(void **state)
{
    struct log l = {0};
    struct sigaction sa;

    signal(SIGHUP, SIG_IGN);
    assert_int_equal(log_open(&l, 4096, 0), 0);
    assert_int_equal(sigaction(SIGTERM, NULL, &sa), 0);
    assert_true(sa.sa_handler != SIG_DFL);
    assert_int_equal(sigaction(SIGHUP, NULL, &sa), 0);
    assert_true(sa.sa_handler == SIG_IGN);
    log_close(&l);
    do
        assert_int_equal(sigaction(SIGTERM, NULL, &sa), 0);
    while (sa.sa_handler != SIG_DFL); /* the thread goes in a moment */
    signal(SIGHUP, SIG_DFL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(many_threads_lose_nothing),          T(order_is_that_of_reservation),
        T(what_never_fits_is_refused),         T(full_is_said_and_nothing_lost),
        T(room_is_told_once_it_is_there),      T(a_reader_that_leaves_costs_what_it_did_not_take),
        T(a_fifo_without_a_reader_is_refused), T(what_cannot_be_opened_is_said),
        T(a_full_disk_costs_whole_records),    T(exit_and_signals_lose_nothing),
        T(killed_it_leaves_a_readable_file),   T(signals_are_left_alone_without_logs),
    };
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
