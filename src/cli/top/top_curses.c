/* SPDX-License-Identifier: BSD-2-Clause
 * The terminal: paints the screen's lines, reads keys, and leaves it as it was, whatever ends us.
 * ncurses itself stops and continues (SIGTSTP) and notices a new size (SIGWINCH). */
#include "cli/cli.h"
#include "top.h"

#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Reads without a key from a terminal that says there is one: it has hung up. */
#define MAX_EMPTY_READS 100
#define SILENCE_NS (3 * NS_PER_S)

static void take_size(struct top_screen *s)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0 &&
        (w.ws_row != LINES || w.ws_col != COLS))
        (void)resizeterm(w.ws_row, w.ws_col);
    s->width = (unsigned)MAX(COLS, 1);
    s->height = (unsigned)MAX(LINES, 1);
    top_screen_settle(s);
}

static void paint(const struct top_screen *s)
{
    static const attr_t attr[] = {
        [TOP_LOOK_PLAIN] = A_NORMAL, [TOP_LOOK_BOLD] = A_BOLD, [TOP_LOOK_REVERSE] = A_REVERSE};
    char *line = malloc(s->width + 1u);
    for (unsigned y = 0; line != NULL && y < s->height; y++) {
        enum top_look look = top_screen_line(s, y, line);
        attrset(attr[look]);
        (void)mvaddnstr((int)y, 0, line, (int)s->width); /* the last corner may be refused */
    }
    attrset(A_NORMAL);
    free(line);
    refresh();
}

/* Signals that end us, and SIGCONT, come through a descriptor. */
static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGCONT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The signal to die of, 0: none. */
static int read_signals(int fd)
{
    struct signalfd_siginfo info;
    int last = 0;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCONT)
            (void)clearok(curscr, TRUE); /* the screen may have been written over */
        else
            last = (int)info.ssi_signo;
    }
    return last;
}

static void die_of(int signo)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signo);
    signal(signo, SIG_DFL);
    raise(signo);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

struct loop {
    struct top_screen *s;
    struct top_pace *p;
    int signals;
    unsigned empty;
    int signo;
    bool hung_up;
    char why[128];
};

static void read_keys(struct loop *l)
{
    int key, n = 0;
    while ((key = getch()) != ERR) {
        n++;
        if (key != KEY_RESIZE)
            top_screen_key(l->s, key);
    }
    l->empty = n > 0 ? 0 : l->empty + 1;
}

/* Wait for a key, an answer, a signal or the time. */
static void wait_for_something(struct loop *l)
{
    struct pollfd pfd[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = l->signals, .events = POLLIN},
                           {.fd = l->p->fetch.fd, .events = POLLIN}};
    int n = poll(pfd, NELEM(pfd), top_pace_timeout(l->p, l->s->paused && !l->s->refresh));
    if (n <= 0) {
        read_keys(l); /* a signal: ncurses may have a new size to tell */
        l->empty = 0;
        return;
    }
    if (pfd[0].revents != 0)
        read_keys(l);
    if (pfd[1].revents != 0)
        l->signo = read_signals(l->signals);
    l->hung_up = l->empty > MAX_EMPTY_READS || (pfd[0].revents & (POLLERR | POLLNVAL)) != 0;
}

/* Say so when an answer is long in coming: keys work all the same. */
static void note_silence(struct loop *l)
{
    uint64_t asked = l->p->fetch.since_ns, now = clock_now_ns();
    if (l->p->fetch.fd >= 0 && now - asked > SILENCE_NS)
        snprintf(l->s->message, sizeof(l->s->message), "no answer for %u s",
                 (unsigned)((now - asked) / NS_PER_S));
    else
        l->s->message[0] = '\0';
}

static int run(struct loop *l, uint64_t count)
{
    uint64_t shown = 0;
    while (!l->s->quit && l->signo == 0 && !l->hung_up) {
        if (l->s->refresh && l->p->fetch.fd < 0)
            l->p->next_ns = 0;
        int r = top_pace_step(l->p, &l->s->model, l->s->paused && !l->s->refresh, l->why,
                              sizeof(l->why));
        if (r < 0)
            return CLI_FAILED;
        if (r > 0)
            l->s->refresh = false;
        note_silence(l);
        take_size(l->s);
        paint(l->s);
        if (r > 0 && l->s->model.prev != NULL && count > 0 && ++shown == count)
            return CLI_OK;
        wait_for_something(l);
    }
    return l->hung_up ? CLI_FAILED : CLI_OK;
}

int top_curses_run(struct top_screen *s, struct top_pace *p, uint64_t count, const char *command)
{
    struct loop l = {.s = s, .p = p, .signals = open_signals()};
    if (l.signals < 0)
        return cli_fail(command, "signalfd: %s", strerror(errno));
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        const char *term = getenv("TERM");
        close(l.signals);
        return cli_fail(command, "a terminal of type '%s' is not known here; -b needs none",
                        term != NULL ? term : "");
    }
    cbreak();
    noecho();
    nonl();
    (void)intrflush(stdscr, FALSE);
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    set_escdelay(50);
    (void)curs_set(0);
    int status = run(&l, count);
    endwin();
    delscreen(screen);
    close(l.signals);
    if (l.signo != 0)
        die_of(l.signo);
    if (l.why[0] != '\0')
        (void)cli_fail(command, "%s", l.why);
    return status;
}
