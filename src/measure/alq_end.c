/* SPDX-License-Identifier: BSD-2-Clause
 * Logs at the end of the process: by exit(), and by the signals that ask a process to end.
 *
 * While logs are open, handlers stand for SIGTERM, SIGINT and SIGHUP where the program has none of
 * its own. They ask the writer thread, which has the logs closed, writes all that is left, and then
 * lets the signal do what it would have done. */
#include "alq_private.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_NS (5 * NS_PER_S) /* with a file that does not move */

static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
static void (*end_hook)(void);
static _Atomic int asked; /* which of them came */

void alq_set_end(void (*fn)(void))
{
    end_hook = fn;
}

static void end_by_default(int sig)
{
    sigset_t one;

    signal(sig, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(sig);
}

static void on_signal(int sig)
{
    int saved = errno;

    /* A second one does not wait; a child has no logs. */
    if (asked || alq_all.pid != getpid() || !alq_all.running)
        end_by_default(sig);
    asked = sig;
    atomic_store(&alq_writer_sleep, ALQ_NAPS); /* if it is awake, a wake-up too many does no harm */
    alq_wake();
    errno = saved;
}

static void at_exit(void)
{
    if (alq_all.pid != getpid())
        return;
    if (end_hook)
        end_hook();
    (void)alq_wait_closed(NULL, PATIENCE_NS);
}

void alq_end_watch(void)
{
    static bool registered;
    struct sigaction old, act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (!registered)
        registered = atexit(at_exit) == 0;
    for (size_t i = 0; i < NELEM(signals); i++)
        if (sigaction(signals[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) &&
            old.sa_handler == SIG_DFL)
            sigaction(signals[i], &act, NULL);
}

void alq_end_unwatch(void)
{
    struct sigaction old;

    if (asked)
        return;
    for (size_t i = 0; i < NELEM(signals); i++)
        if (sigaction(signals[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) &&
            old.sa_handler == on_signal)
            signal(signals[i], SIG_DFL);
}

bool alq_end_wanted(void)
{
    static uint64_t since, seen;
    uint64_t progress = LOAD_RELAXED(&alq_all.progress);

    if (!asked)
        return false;
    if (since == 0 && end_hook)
        end_hook();
    if (since == 0 || progress != seen)
        since = alq_now_ns();
    seen = progress;
    if (alq_now_ns() - since > PATIENCE_NS)
        alq_end_now();
    return true;
}

void alq_end_now(void)
{
    end_by_default(asked);
}
