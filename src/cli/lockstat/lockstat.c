/* SPDX-License-Identifier: BSD-2-Clause
 * `weir lockstat`: the lock profile of a running instance, for a span of time. */
#include "lockstat.h"

#include "cli/cli.h"
#include "cli/control_client.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_PATIENCE_NS (10 * NS_PER_S) /* for a command to open its control socket */
#define LOOK_NS (100 * NS_PER_MS)         /* between pictures of a command that may end any time */

static const char me[] = "lockstat";
static const char help[] =
    "usage: weir lockstat [OPTION]... [SECONDS] [-- COMMAND [ARG]...]\n\n"
    "Who waits for which lock in a running Weir instance: adaptive spins and blocks, by call\n"
    "site, for SECONDS (10; with a command until it ends). 0 shows what has been counted so "
    "far.\n\n"
    "      --profile     all acquisitions with hold and wait times (us), as lock_profile shows "
    "them\n"
    "  -n N              the first N rows\n"
    "  -s COLUMN         sort by count, total, nsec, lock or caller; with --profile by max,\n"
    "                    wait_max, total, wait_total, count, avg, wait_avg, cnt_hold, cnt_lock,\n"
    "                    name, lock or caller\n"
    "  -J, --json        as JSON\n"
    "      --pid PID     the instance that is this process\n"
    "      --control PATH  the instance whose control socket this is (else the only one that "
    "runs)\n";

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

/* So that the profile is switched off again; what was counted till then is shown. */
static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = stop};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

static void wait_until(uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* ---- asking ---- */

/* What the profile said at a moment. */
struct picture {
    struct lock_stats stats;
    bool enabled;
};

static bool picture_read(const char *text, struct picture *p)
{
    json_t *o = json_loads(text, 0, NULL);
    bool good = lock_stats_from_json(o, &p->stats);
    p->enabled = json_is_true(json_object_get(o, "enabled"));
    json_decref(o);
    return good;
}

/* -1: good, else the exit code, with a message unless `quiet`. */
static int look(const char *path, struct picture *p, bool quiet)
{
    static const char *const argv[] = {"lockstat", NULL};
    char *out, *err;
    int status = control_ask(path, argv, &out, &err), code = -1;
    if (status != 0 || !picture_read(out, p)) {
        code = CLI_FAILED;
        if (quiet)
            ;
        else if (status < 0)
            cli_fail(me, "%s: %s", path, strerror(-status));
        else
            cli_fail(me, "the instance has no lock profile: %s", err);
    }
    free(out);
    free(err);
    return code;
}

static int set(const char *path, const char *setting)
{
    const char *const argv[] = {"sysctl", setting, NULL};
    char *out, *err;
    int status = control_ask(path, argv, &out, &err), code = -1;
    if (status < 0)
        code = cli_fail(me, "%s: %s", path, strerror(-status));
    else if (status > 0)
        code = cli_fail(me, "%s", err);
    free(out);
    free(err);
    return code;
}

/* Profile from `before` on; *ours: it was off, and is to be off again. What was counted in an
 * earlier time is forgotten then, so that maxima are of this span too. */
static int begin(const char *path, struct picture *before, bool *ours)
{
    int code = look(path, before, false);
    *ours = code < 0 && !before->enabled;
    if (!*ours)
        return code;
    lock_stats_free(&before->stats);
    code = set(path, "debug.lock.prof.reset=1");
    if (code < 0)
        code = set(path, "debug.lock.prof.enable=1");
    return code < 0 ? look(path, before, false) : code;
}

/* ---- showing ---- */

static int show_json(const struct lockstat_options *o, struct lock_stats *s)
{
    lock_stats_sort(s, o->by);
    json_t *all = lock_stats_to_json(s, (size_t)o->rows);
    (void)json_dumpf(all, stdout, JSON_INDENT(1));
    json_decref(all);
    putchar('\n');
    return cli_flush(me);
}

static int show(const struct lockstat_options *o, struct lock_stats *s)
{
    if (s->overflow > 0)
        cli_warn(me, "%" PRIu64 " acquisitions are not counted: too many call sites", s->overflow);
    if (o->json)
        return show_json(o, s);
    if (o->profile) {
        (void)lock_stats_profile(s, o->by, (size_t)o->rows, stdout);
    } else {
        lock_stats_events(s, false, o->by, (size_t)o->rows, stdout);
        lock_stats_events(s, true, o->by, (size_t)o->rows, stdout);
    }
    return cli_flush(me);
}

static int show_span(const struct lockstat_options *o, struct picture *now,
                     const struct picture *before)
{
    if (!now->enabled)
        cli_warn(me, "somebody has switched the profile off meanwhile");
    lock_stats_since(&now->stats, &before->stats);
    return show(o, &now->stats);
}

/* ---- what is running ---- */

static int show_so_far(const struct lockstat_options *o, const char *path)
{
    struct picture now;
    int code = look(path, &now, false);
    if (code >= 0)
        return code;
    if (!now.enabled && now.stats.count == 0)
        code = cli_fail(me, "the lock profile is off and has counted nothing: give a number of "
                            "seconds, or switch it on with weir sysctl debug.lock.prof.enable=1");
    else
        code = show(o, &now.stats);
    lock_stats_free(&now.stats);
    return code;
}

static int watch(const struct lockstat_options *o, const char *path)
{
    struct picture before = {0}, now = {0};
    bool ours;
    if (o->span_ns == 0)
        return show_so_far(o, path);
    catch_signals();
    int code = begin(path, &before, &ours);
    uint64_t end = clock_now_ns() + o->span_ns;
    while (code < 0 && !stopped && clock_now_ns() < end)
        wait_until(end);
    if (code < 0)
        code = look(path, &now, false);
    if (ours)
        (void)set(path, "debug.lock.prof.enable=0");
    if (code < 0)
        code = show_span(o, &now, &before);
    lock_stats_free(&now.stats);
    lock_stats_free(&before.stats);
    return code;
}

/* ---- a command ---- */

static pid_t spawn(char **command)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    execvp(command[0], command);
    cli_fail(me, "%s: %s", command[0], strerror(errno));
    _exit(127);
}

static bool has_ended(pid_t pid, bool *reaped, int *status)
{
    if (!*reaped)
        *reaped = waitpid(pid, status, WNOHANG) == pid;
    return *reaped;
}

static int run_command(const struct lockstat_options *o)
{
    struct picture before = {0}, now = {0}, next;
    char path[CONTROL_PATH_MAX];
    bool reaped = false, ours = false, found = false;
    int status = 0, code = CLI_FAILED;
    catch_signals();
    pid_t pid = spawn(o->command);
    if (pid < 0)
        return cli_fail(me, "%s", strerror(errno));
    uint64_t limit = clock_now_ns() + START_PATIENCE_NS;
    while (!found && !stopped && clock_now_ns() < limit && !has_ended(pid, &reaped, &status)) {
        found = control_find_pid(pid, path, sizeof(path));
        if (!found)
            wait_until(clock_now_ns() + NS_PER_MS);
    }
    if (!found && !(reaped && WIFEXITED(status) && WEXITSTATUS(status) == 127))
        cli_fail(me, "%s opened no control socket", o->command[0]);
    if (found)
        code = begin(path, &before, &ours);
    uint64_t end = o->have_seconds ? clock_now_ns() + o->span_ns : TIME_NEVER;
    while (code < 0 && !stopped && clock_now_ns() < end && look(path, &next, true) < 0) {
        lock_stats_free(&now.stats);
        now = next;
        wait_until(MIN(end, clock_now_ns() + LOOK_NS));
    }
    if (code < 0 && !has_ended(pid, &reaped, &status) && look(path, &next, true) < 0) {
        lock_stats_free(&now.stats);
        now = next;
        if (ours)
            (void)set(path, "debug.lock.prof.enable=0");
    }
    if (stopped && !reaped)
        kill(pid, SIGTERM);
    while (!reaped && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (code < 0 && now.stats.row == NULL)
        code = cli_fail(me, "%s ended before its locks could be looked at", o->command[0]);
    if (code < 0)
        code = show_span(o, &now, &before);
    lock_stats_free(&now.stats);
    lock_stats_free(&before.stats);
    if (code == CLI_OK && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !stopped)
        code = cli_fail(me, "%s failed", o->command[0]);
    return code;
}

int cmd_lockstat(int argc, char **argv)
{
    struct lockstat_options o;
    char path[CONTROL_PATH_MAX];
    int code = lockstat_parse(argc, argv, &o);
    if (code >= 0)
        return code;
    if (o.help) {
        fputs(help, stdout);
        return cli_flush(me);
    }
    if (o.command != NULL)
        return run_command(&o);
    if (o.control != NULL)
        return watch(&o, o.control);
    if (o.pid != 0 && !control_find_pid(o.pid, path, sizeof(path)))
        return kill(o.pid, 0) != 0 && errno == ESRCH
                   ? cli_fail(me, "there is no process %d", (int)o.pid)
                   : cli_fail(me, "process %d has no control socket of Weir", (int)o.pid);
    if (o.pid == 0 && !control_find_only(me, path, sizeof(path)))
        return CLI_FAILED;
    return watch(&o, path);
}
