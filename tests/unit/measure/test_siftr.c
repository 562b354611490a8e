/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: with real threads no record is lost, whatever the log's file does: slow readers hold the
 * stack back, full disks cost counted records, and the transfer arrives all the same; at the end of
 * the process, too.
 * Bound: a few MB a case, over a memory link, two logging stacks. */
#include "siftr_read.h"
#include "weir/socket.h"
#include "weir/stack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/weir-siftr.XXXXXX";
static char path[2][64];

static int setup(void **state)
{
    strcpy(strrchr(dir, '.'), ".XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof(path[i]), "%s/log%d", dir, i);
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    return rmdir(dir);
}

/* ---- two stacks and a transfer ---- */

struct pair {
    struct weir_stack *s[2];
    int listener, fd[2];
    size_t bytes, message;
    pthread_t thread[2];
};

static void set(struct weir_stack *s, const char *name, const char *value)
{
    assert_int_equal(weir_sysctl_set(s, name, value), 0);
}

static uint64_t stat_of(struct weir_stack *s, const char *name)
{
    char text[1024], find[32];

    assert_int_equal(weir_sysctl_get(s, "net.inet.siftr.stats", text, sizeof(text)), 0);
    snprintf(find, sizeof(find), " %s=", name);
    const char *at = strstr(text, find);
    assert_non_null(at);
    return strtoull(at + strlen(find), NULL, 10);
}

static void begin(struct pair *p, size_t bytes, size_t message)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(5001)};

    p->bytes = bytes;
    p->message = message;
    for (int i = 0; i < 2; i++) {
        p->s[i] = weir_stack_create(NULL);
        assert_non_null(p->s[i]);
        set(p->s[i], "net.inet.tcp.tso", "0");
    }
    assert_int_equal(weir_link_pair(p->s[0], p->s[1], "mtu=1500", NULL), 0);
    p->listener = weir_socket(p->s[1], AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(p->listener, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(weir_listen(p->listener, 8), 0);
    inet_pton(AF_INET, "10.0.0.2", &to.sin_addr);
    p->fd[0] = weir_socket(p->s[0], AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(p->fd[0], (struct sockaddr *)&to, sizeof(to)), 0);
    p->fd[1] = weir_accept(p->listener, NULL, NULL);
    assert_true(p->fd[1] >= 0);
}

static void log_to(struct pair *p, int side, const char *batch, const char *binary)
{
    set(p->s[side], "net.inet.siftr.logfile", path[side]);
    set(p->s[side], "net.inet.siftr.batch", batch);
    set(p->s[side], "net.inet.siftr.binary", binary);
    set(p->s[side], "net.inet.siftr.enabled", "1");
}

static void *sender(void *arg)
{
    struct pair *p = arg;
    static char buf[65536];

    for (size_t sent = 0; sent < p->bytes;) {
        ssize_t n = weir_send(p->fd[0], buf, MIN(p->message, p->bytes - sent), 0);
        SIFTR_REQUIRE(n > 0);
        sent += (size_t)n;
    }
    SIFTR_REQUIRE(weir_shutdown(p->fd[0], SHUT_WR) == 0);
    return NULL;
}

static void *receiver(void *arg)
{
    struct pair *p = arg;
    static char buf[65536];
    size_t got = 0;
    ssize_t n;

    while ((n = weir_recv(p->fd[1], buf, sizeof(buf), 0)) > 0)
        got += (size_t)n;
    SIFTR_REQUIRE(n == 0 && got == p->bytes);
    return NULL;
}

static void start(struct pair *p)
{
    assert_int_equal(pthread_create(&p->thread[0], NULL, sender, p), 0);
    assert_int_equal(pthread_create(&p->thread[1], NULL, receiver, p), 0);
}

static void join(struct pair *p)
{
    pthread_join(p->thread[0], NULL);
    pthread_join(p->thread[1], NULL);
}

static void end(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        weir_stack_destroy(p->s[i]);
}

static uint64_t expect_exact(const char *name)
{
    struct siftr_file f;

    siftr_file_read(&f, name);
    assert_int_equal(f.sessions, 1);
    assert_false(f.torn);
    siftr_session_exact(&f, &f.session[0]);
    uint64_t n = f.session[0].records[0] + f.session[0].records[1];
    siftr_file_free(&f);
    return n;
}

/* ---- cases ---- */

/* Both stacks log, in each way of handing over and each form, and end with the stacks. */
static void every_packet_is_in_the_file(void **state)
{
    static const char *const how[][2] = {{"0", "0"}, {"0", "1"}, {"1", "0"},
                                         {"3", "0"}, {"1", "1"}, {"3", "1"}};

    for (unsigned i = 0; i < NELEM(how); i++) {
        struct pair p;
        begin(&p, 8 << 20, 30000);
        for (int side = 0; side < 2; side++)
            log_to(&p, side, how[i][0], how[i][1]);
        start(&p);
        join(&p);
        if (i % 2 == 0)
            set(p.s[0], "net.inet.siftr.enabled", "0");
        end(&p);
        for (int side = 0; side < 2; side++) {
            assert_true(expect_exact(path[side]) > (side == 0 ? 4000 : 100));
            unlink(path[side]);
        }
    }
}

struct slow {
    int fd;
    char *bytes;
    size_t len;
    struct weir_stack *s;
};

/* Reads nothing until the log is known to hold the stack back (s NULL: at once). */
static void *slow_reader(void *arg)
{
    struct slow *r = arg;
    ssize_t n;

    while (r->s && stat_of(r->s, "holds") == 0)
        usleep(1000);
    while ((n = read(r->fd, r->bytes + r->len, 4096)) > 0)
        r->len += (size_t)n;
    return NULL;
}

/* A file that takes nothing holds the stack, not its owner: other calls on it go on. Nothing is
 * lost. case: MEA-056 */
static void a_slow_file_holds_the_stack_back(void **state)
{
    static const char *const batch[] = {"0", "3"};

    for (unsigned i = 0; i < NELEM(batch); i++) {
        struct pair p;
        struct siftr_file f;
        pthread_t thread;
        begin(&p, 20 << 20, 30000);
        assert_int_equal(mkfifo(path[0], 0600), 0);
        struct slow r = {
            .fd = open(path[0], O_RDONLY | O_NONBLOCK), .bytes = malloc(32 << 20), .s = p.s[0]};
        assert_int_equal(fcntl(r.fd, F_SETFL, 0), 0);
        log_to(&p, 0, batch[i], "0");
        start(&p);
        assert_int_equal(pthread_create(&thread, NULL, slow_reader, &r), 0);
        join(&p);
        set(p.s[0], "net.inet.siftr.enabled", "0");
        pthread_join(thread, NULL);
        end(&p);
        siftr_file_bytes(&f, r.bytes, r.len);
        siftr_session_exact(&f, &f.session[0]);
        assert_int_equal(siftr_skipped(&f.session[0].footer, SIFTR_OUT), 0);
        assert_true(f.records > 14000);
        siftr_file_free(&f);
        free(r.bytes);
        close(r.fd);
        unlink(path[0]);
    }
}

/* full=drop: the transfer does not wait, and what is missing is in the footer. case: MEA-056 */
static void or_records_are_dropped(void **state)
{
    struct pair p;
    struct siftr_file f;

    begin(&p, 40 << 20, 30000);
    set(p.s[0], "net.inet.siftr.full", "drop");
    assert_int_equal(mkfifo(path[0], 0600), 0);
    int fd = open(path[0], O_RDONLY | O_NONBLOCK);
    log_to(&p, 0, "0", "0");
    start(&p);
    join(&p); /* nobody has read a byte */
    assert_int_equal(stat_of(p.s[0], "holds"), 0);
    assert_true(stat_of(p.s[0], "skipped_out") > 0);
    struct slow r = {.fd = fd, .bytes = malloc(32 << 20)};
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, slow_reader, &r), 0);
    set(p.s[0], "net.inet.siftr.enabled", "0");
    pthread_join(thread, NULL);
    end(&p);
    close(fd);
    siftr_file_bytes(&f, r.bytes, r.len);
    siftr_session_exact(&f, &f.session[0]);
    assert_true(f.session[0].footer.skipped_malloc[SIFTR_OUT] > 0);
    siftr_file_free(&f);
    free(r.bytes);
}

static void limit_files(rlim_t size)
{
    struct rlimit r;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

/* The disk is full in the middle: the transfer goes on, the file is whole up to there, and what is
 * missing is counted. case: MEA-061 */
static void a_full_disk_stops_nobody(void **state)
{
    static const char *const binary[] = {"0", "1"};

    for (unsigned i = 0; i < 2; i++) {
        struct pair p;
        struct siftr_file f;
        begin(&p, 8 << 20, 30000);
        log_to(&p, 0, "0", binary[i]);
        limit_files(i == 0 ? 100001 : 10001);
        start(&p);
        join(&p);
        while (stat_of(p.s[0], "lost") == 0)
            ;
        uint64_t in = stat_of(p.s[0], "written_in"), out = stat_of(p.s[0], "written_out");
        siftr_file_read(&f, path[0]);
        assert_false(f.torn);
        assert_int_equal(f.session[0].records[SIFTR_IN], in);
        assert_int_equal(f.session[0].records[SIFTR_OUT], out);
        siftr_file_free(&f);
        limit_files(RLIM_INFINITY);
        end(&p); /* the next try may be due, or not: then the footer is lost too */
        siftr_file_read(&f, path[0]);
        if (f.session[0].ended) {
            siftr_session_exact(&f, &f.session[0]);
            assert_true(f.session[0].footer.skipped_malloc[SIFTR_OUT] > 0);
        }
        siftr_file_free(&f);
        unlink(path[0]);
    }
}

/* ---- the end of the process ---- */

static int child(void (*how)(struct pair *p))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct pair p;
        begin(&p, (size_t)1 << 40, 30000);
        for (int side = 0; side < 2; side++)
            log_to(&p, side, side == 0 ? "0" : "3", side == 0 ? "0" : "1");
        start(&p);
        while (stat_of(p.s[0], "out") < 20000)
            usleep(1000);
        how(&p);
        while (true)
            pause();
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void by_exit(struct pair *p)
{
    exit(3);
}

static void by_term(struct pair *p)
{
    kill(getpid(), SIGTERM);
}

static void by_kill(struct pair *p)
{
    kill(getpid(), SIGKILL);
}

/* In the middle of a transfer. case: MEA-061 */
static void the_process_ends_and_no_record_is_lost(void **state)
{
    void (*const how[])(struct pair *) = {by_exit, by_term};

    for (unsigned i = 0; i < NELEM(how); i++) {
        int status = child(how[i]);
        if (how[i] == by_exit)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        for (int side = 0; side < 2; side++) {
            assert_true(expect_exact(path[side]) > (side == 0 ? 20000 : 100));
            unlink(path[side]);
        }
    }
}

/* case: MEA-061 */
static void killed_it_leaves_whole_records(void **state)
{
    int status = child(by_kill);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int side = 0; side < 2; side++) {
        struct siftr_file f;
        siftr_file_read(&f, path[side]); /* every line and chunk but, at most, the last is whole */
        assert_int_equal(f.sessions, 1);
        assert_false(f.session[0].ended);
        siftr_file_free(&f);
    }
}

/* On and off, and to other files, while packets pass: each log by itself is exact. */
static void switched_while_packets_pass(void **state)
{
    struct pair p;
    struct siftr_file f;
    uint64_t records = 0;

    begin(&p, 64 << 20, 30000);
    log_to(&p, 0, "0", "0");
    start(&p);
    for (unsigned i = 0; i < 20; i++) {
        set(p.s[0], "net.inet.siftr.batch", i % 3 == 0 ? "0" : i % 3 == 1 ? "1" : "3");
        if (i % 2 == 0)
            set(p.s[0], "net.inet.siftr.enabled", "0");
        else
            set(p.s[0], "net.inet.siftr.logfile", path[0]);
        set(p.s[0], "net.inet.siftr.enabled", "1");
    }
    join(&p);
    end(&p);
    siftr_file_read(&f, path[0]);
    assert_int_equal(f.sessions, 21);
    for (unsigned i = 0; i < f.sessions; i++) {
        siftr_session_exact(&f, &f.session[i]);
        records += f.session[i].records[SIFTR_OUT];
    }
    assert_true(records > 0);
    siftr_file_free(&f);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(every_packet_is_in_the_file),
        T(a_slow_file_holds_the_stack_back),
        T(or_records_are_dropped),
        T(a_full_disk_stops_nobody),
        T(the_process_ends_and_no_record_is_lost),
        T(killed_it_leaves_whole_records),
        T(switched_while_packets_pass),
    };
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
