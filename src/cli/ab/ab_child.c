/* SPDX-License-Identifier: BSD-2-Clause
 * A run is a process of its own: its knobs, caches and faults end with it. */
#include "ab.h"
#include "cli/cli.h"
#include "cli/results/store.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_LIMIT (64u << 20)
#define ERROR_LIMIT 4096u
#define GRACE_NS (2 * NS_PER_S) /* between the polite and the other end */
#define POLL_MS 50

volatile sig_atomic_t ab_interrupted;

static void note_signal(int sig)
{
    (void)sig;
    ab_interrupted = 1;
}

void ab_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = note_signal}; /* no SA_RESTART: waits end */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

bool self_path(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n < 0)
        return false;
    out[n] = '\0';
    return true;
}

/* What a child says on one descriptor, up to a limit. */
struct stream {
    int fd; /* -1: over */
    char *v;
    size_t len, room, limit;
    bool overflow;
};

static bool stream_read(struct stream *s)
{
    char block[16384];
    ssize_t n = read(s->fd, block, sizeof(block));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (n <= 0) {
        close(s->fd);
        s->fd = -1;
        return true;
    }
    size_t take = MIN((size_t)n, s->limit - s->len);
    s->overflow |= take < (size_t)n;
    if (s->len + take + 1 > s->room) {
        size_t room = MAX(2 * s->room, s->len + take + 1);
        char *v = realloc(s->v, room);
        if (v == NULL)
            return false;
        s->v = v;
        s->room = room;
    }
    memcpy(s->v + s->len, block, take);
    s->len += take;
    s->v[s->len] = '\0';
    return true;
}

static void become(char *const *argv, int out, int err)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv(STORE_ENV, "off", 1); /* whoever compares the runs records them */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(err, STDERR_FILENO) < 0)
        _exit(127);
    execv(argv[0], argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static pid_t start(char *const *argv, struct stream *out, struct stream *err)
{
    int o[2], e[2];
    if (pipe2(o, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(e, O_CLOEXEC) != 0) {
        close(o[0]);
        close(o[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(argv, o[1], e[1]);
    close(o[1]);
    close(e[1]);
    out->fd = o[0];
    err->fd = e[0];
    if (pid > 0)
        setpgid(pid, pid); /* whoever comes first */
    return pid;
}

/* Until the child has ended and all it said was read. Its status, or -1: ended by us. */
static int attend(pid_t pid, struct stream *out, struct stream *err, uint64_t timeout_ns,
                  struct child_result *r)
{
    uint64_t until = clock_now_ns() + timeout_ns, kill_at = TIME_NEVER;
    int status = 0;
    bool ended = false, asked = false;
    struct rusage ru;
    while (true) {
        struct pollfd p[2] = {{.fd = out->fd, .events = POLLIN}, {.fd = err->fd, .events = POLLIN}};
        int n = poll(p, 2, ended ? 0 : POLL_MS);
        if (n > 0 && ((p[0].revents && !stream_read(out)) || (p[1].revents && !stream_read(err))))
            until = 0; /* no memory */
        if (ended && n <= 0)
            break; /* a grandchild may hold the pipe: what was there has been read */
        if (!ended && wait4(pid, &status, WNOHANG, &ru) == pid) {
            ended = true;
            r->cpu_s = (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec +
                       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
            kill(-pid, SIGKILL); /* what it left behind */
        }
        uint64_t now = clock_now_ns();
        if (!ended && !asked && (ab_interrupted || now >= until)) {
            kill(-pid, SIGTERM);
            asked = true;
            kill_at = now + GRACE_NS;
        } else if (!ended && now >= kill_at) {
            kill(-pid, SIGKILL);
        }
    }
    if (asked && !ab_interrupted)
        snprintf(r->error, sizeof(r->error), "it did not end within %.0f s",
                 (double)timeout_ns / 1e9);
    return asked ? -1 : status;
}

static void explain(struct child_result *r, const struct stream *err, int status)
{
    size_t len = err->len;
    while (len > 0 && strchr(" \n\r", err->v[len - 1]) != NULL)
        len--;
    if (len > 0)
        snprintf(r->error, sizeof(r->error), "%.*s", (int)MIN(len, (size_t)900), err->v);
    else if (WIFSIGNALED(status))
        snprintf(r->error, sizeof(r->error), "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(r->error, sizeof(r->error), "exit status %d and no message", WEXITSTATUS(status));
}

bool child_run(char *const *argv, uint64_t timeout_ns, struct child_result *r)
{
    struct stream out = {.fd = -1, .limit = OUTPUT_LIMIT}, err = {.fd = -1, .limit = ERROR_LIMIT};
    *r = (struct child_result){0};
    pid_t pid = start(argv, &out, &err);
    if (pid < 0) {
        snprintf(r->error, sizeof(r->error), "cannot start a process: %s", strerror(errno));
        return false;
    }
    int status = attend(pid, &out, &err, timeout_ns, r);
    json_error_t why;
    if (status == 0 && out.len > 0 && !out.overflow)
        r->doc = json_loadb(out.v, out.len, JSON_REJECT_DUPLICATES, &why);
    if (status > 0)
        explain(r, &err, status);
    else if (status == 0 && !json_is_object(r->doc))
        snprintf(r->error, sizeof(r->error), "its output is not one JSON object");
    if (!json_is_object(r->doc)) {
        json_decref(r->doc);
        r->doc = NULL;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct stream *s = i == 0 ? &out : &err;
        if (s->fd >= 0)
            close(s->fd);
        free(s->v);
    }
    return r->doc != NULL && !ab_interrupted;
}
