/* SPDX-License-Identifier: BSD-2-Clause
 * `weir nc`: standard input and output joined to one TCP connection.
 *
 * How it ends: the end of our input is sent as a FIN; the end of the peer's data ends our output.
 * When the peer has finished, input that is still coming goes on, but input that is a terminal, or
 * idle for half a second, is given up. */
#include "net/net.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (128 * 1024)
#define IDLE_MS 500   /* input silent for so long after the peer's end counts as ended */
#define DELIVERY_S 30 /* to wait for the peer's acknowledgment of our last bytes */

static const char help[] =
    "usage: weir nc [OPTION]... HOST PORT\n"
    "       weir nc [OPTION]... -l [HOST] PORT\n\n"
    "Join standard input and output to a TCP connection. The end of input is sent (half-close), "
    "the\n"
    "peer's end ends the output.\n\n"
    "  -l                wait for one connection instead of making one\n"
    "  -N                half-close at the end of input (the default)\n"
    "  -k, --keep-open   do not send the end of input\n"
    "  -d                no input at all\n"
    "  -i FILE           input;  -o FILE  output, instead of the standard ones\n"
    "  -w SEC            give up connecting after this\n"
    "  -v                say what happens, on standard error\n"
    "  -4, -6            address family\n"
    "      --cc NAME     congestion control\n"
    "      --stack weir|kernel\n"
    "      --link SPEC   link of the Weir stack: see weir-link(7)\n"
    "      --set NAME=VALUE\n";

struct nc {
    struct net net;
    const char *host;
    uint16_t port;
    int family;
    bool listening, keep_open, no_input, verbose;
    const char *input, *output, *cc;
    uint64_t wait_ns;
    int fd, in_fd, out_fd;
    int event_fd;       /* tells the sender that the peer is through */
    _Atomic bool abort; /* the sender gives up at once */
    _Atomic bool send_failed;
};

/* SIGINT or SIGTERM, which the main thread alone gets. The stack goes away with this process: the
 * peer must be told first, or it would wait for ever. */
static volatile sig_atomic_t ending;

static void on_signal(int sig)
{
    ending = sig;
}

/* Interrupted calls of the main thread return. Who asks twice does not wait. */
static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

/* A thread that leaves them to the main thread. */
static int start_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    int e = pthread_create(t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

/* True when there is input (or its end) to read; false when it is to be given up. */
static bool await_input(struct nc *n, bool *peer_done)
{
    struct pollfd pfd[2] = {{.fd = n->in_fd, .events = POLLIN},
                            {.fd = n->event_fd, .events = POLLIN}};
    while (!atomic_load(&n->abort)) {
        int r = poll(pfd, 2, *peer_done ? IDLE_MS : -1);
        if (r < 0 && errno != EINTR)
            return true; /* read() will tell */
        if (r == 0)
            return false;
        if (pfd[0].revents != 0)
            return true;
        if (r > 0 && pfd[1].revents != 0) {
            uint64_t v;
            if (read(n->event_fd, &v, sizeof(v)) != sizeof(v) || isatty(n->in_fd))
                return false;
            *peer_done = true;
        }
    }
    return false;
}

static void *sender_main(void *arg)
{
    struct nc *n = arg;
    struct stat st;
    bool peer_done = false, regular = fstat(n->in_fd, &st) == 0 && S_ISREG(st.st_mode);
    char *buf = aligned_alloc(4096, CHUNK);
    while (buf != NULL && !atomic_load(&n->abort) && (regular || await_input(n, &peer_done))) {
        ssize_t r = read(n->in_fd, buf, CHUNK);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            cli_fail("nc", "input: %s", strerror(errno));
            atomic_store(&n->send_failed, true);
        }
        if (r <= 0)
            break;
        if (net_send_all(&n->net, n->fd, buf, (size_t)r) != 0) {
            if (!atomic_load(&n->abort))
                cli_fail("nc", "send: %s", strerror(errno));
            atomic_store(&n->send_failed, true);
            break;
        }
    }
    if (buf == NULL)
        atomic_store(&n->send_failed, true);
    free(buf);
    if (!n->keep_open || peer_done)
        (void)n->net.ops->shutdown(n->fd, SHUT_WR);
    return NULL;
}

static bool write_all(int fd, const char *buf, size_t len)
{
    while (len > 0) {
        ssize_t r = write(fd, buf, len);
        if (r < 0 && errno == EINTR && !ending)
            continue;
        if (r < 0)
            return false;
        buf += r;
        len -= (size_t)r;
    }
    return true;
}

/* The peer's data to the output, until its end. */
static bool receive(struct nc *n)
{
    char *buf = aligned_alloc(4096, CHUNK);
    bool good = buf != NULL;
    while (good) {
        ssize_t r = n->net.ops->recv(n->fd, buf, CHUNK, 0);
        if (r < 0 && errno == EINTR && !ending)
            continue;
        if (r == 0)
            break;
        if (ending) {
            good = false;
        } else if (r < 0) {
            cli_fail("nc", "receive: %s", strerror(errno));
            good = false;
        } else if (!write_all(n->out_fd, buf, (size_t)r)) {
            if (!ending)
                cli_fail("nc", "output: %s", strerror(errno));
            good = false;
        }
    }
    free(buf);
    return good;
}

/* The stack goes away with this process, so what the peer has not acknowledged yet would be lost.
 */
static bool await_delivery(const struct nc *n)
{
    struct timespec pause = {.tv_nsec = 500 * 1000};
    struct net_tcp_info ti;
    uint64_t until = clock_now_ns() + DELIVERY_S * NS_PER_S;
    if (n->net.stack == NULL)
        return true;
    while (net_tcp_info(&n->net, n->fd, &ti) && ti.state != NET_TCP_CLOSED &&
           ti.state != NET_TCP_TIME_WAIT && ti.state != NET_TCP_FIN_WAIT2) {
        if (clock_now_ns() > until || ending)
            return ti.unacked == 0;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 50 * 1000 * 1000)
            pause.tv_nsec *= 2;
    }
    return true;
}

static bool converse(struct nc *n)
{
    pthread_t sender;
    uint64_t one = 1;
    n->event_fd = eventfd(0, EFD_CLOEXEC);
    if (n->event_fd < 0 || start_thread(&sender, sender_main, n) != 0) {
        cli_fail("nc", "cannot start: %s", strerror(errno));
        return false;
    }
    bool good = receive(n);
    if (!good) {
        atomic_store(&n->abort, true);
        (void)n->net.ops->shutdown(n->fd, SHUT_RDWR);
    }
    if (write(n->event_fd, &one, sizeof(one)) != sizeof(one))
        good = false;
    pthread_join(sender, NULL);
    close(n->event_fd);
    if (atomic_load(&n->send_failed))
        good = false;
    if (good && !await_delivery(n)) {
        cli_fail("nc", "the peer has not acknowledged all of the data");
        good = false;
    }
    return good;
}

static int connect_out(struct nc *n, const struct sockaddr_storage *sa, socklen_t len)
{
    struct timeval tv = {.tv_sec = (time_t)(n->wait_ns / NS_PER_S),
                         .tv_usec = (long)(n->wait_ns % NS_PER_S / 1000)};
    struct timeval none = {0};
    int fd = n->net.ops->socket(n->net.stack, sa->ss_family, SOCK_STREAM);
    if (fd < 0)
        return -1;
    if (n->wait_ns > 0)
        (void)n->net.ops->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    if ((n->cc == NULL || net_set_cc(&n->net, fd, n->cc) == 0) &&
        n->net.ops->connect(fd, (const struct sockaddr *)sa, len) == 0) {
        (void)n->net.ops->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
        return fd;
    }
    int e = errno == EINPROGRESS ? ETIMEDOUT : errno;
    n->net.ops->close(fd);
    errno = e;
    return -1;
}

static int accept_in(struct nc *n, const struct sockaddr_storage *sa)
{
    int listener = net_listener(&n->net, sa, 1, 0), fd;
    if (listener < 0)
        return -1;
    if (n->cc != NULL)
        (void)net_set_cc(&n->net, listener, n->cc);
    if (n->verbose)
        fprintf(stderr, "weir nc: listening on port %u\n", n->port);
    do {
        fd = n->net.ops->accept(listener, NULL, NULL, 0);
    } while (fd < 0 && !ending && (errno == EINTR || errno == ECONNABORTED));
    int e = errno;
    n->net.ops->close(listener);
    errno = e;
    return fd;
}

static bool open_files(struct nc *n)
{
    n->in_fd = STDIN_FILENO;
    n->out_fd = STDOUT_FILENO;
    if (n->no_input || n->input != NULL)
        n->in_fd = open(n->no_input ? "/dev/null" : n->input, O_RDONLY | O_CLOEXEC);
    if (n->in_fd < 0) {
        cli_fail("nc", "%s: %s", n->input != NULL ? n->input : "/dev/null", strerror(errno));
        return false;
    }
    if (n->output != NULL)
        n->out_fd = open(n->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (n->out_fd < 0) {
        cli_fail("nc", "%s: %s", n->output, strerror(errno));
        return false;
    }
    return true;
}

static int run(struct nc *n)
{
    struct sockaddr_storage sa;
    char err[256];
    socklen_t len = net_resolve(n->host, n->port, n->family, &sa, err, sizeof(err));
    if (len == 0)
        return cli_fail("nc", "%s", err);
    if (!open_files(n))
        return CLI_FAILED;
    n->fd = n->listening ? accept_in(n, &sa) : connect_out(n, &sa, len);
    if (n->fd < 0 && ending)
        return CLI_FAILED;
    if (n->fd < 0)
        return cli_fail("nc", "%s %s port %u: %s", n->listening ? "listen on" : "connect to",
                        n->host != NULL ? n->host : "any address,", n->port, strerror(errno));
    if (n->verbose)
        fprintf(stderr, "weir nc: connected\n");
    bool good = converse(n);
    if (n->net.ops->close(n->fd) != 0)
        good = false;
    if (n->output != NULL && close(n->out_fd) != 0) {
        cli_fail("nc", "%s: %s", n->output, strerror(errno));
        good = false;
    }
    return good ? CLI_OK : CLI_FAILED;
}

static const struct option long_options[] = {
    {"help", no_argument, NULL, 'h'},
    {"keep-open", no_argument, NULL, 'k'},
    {"cc", required_argument, NULL, 1000},
    {"stack", required_argument, NULL, 1001},
    {"link", required_argument, NULL, 1002},
    {"set", required_argument, NULL, 1003},
    {NULL, 0, NULL, 0},
};

static int parse_arguments(int argc, char **argv, struct nc *n)
{
    int left = argc - optind;
    if (left < (n->listening ? 1 : 2) || left > 2)
        return cli_usage("nc", n->listening ? "give [HOST] PORT" : "give HOST and PORT");
    n->host = left == 2 ? argv[optind] : NULL;
    if (!parse_port(argv[argc - 1], &n->port))
        return cli_usage("nc", "'%s' is not a port", argv[argc - 1]);
    return -1;
}

static int parse(int argc, char **argv, struct nc *n, struct net_setup *setup,
                 struct settings *sets)
{
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":lNkdi:o:w:v46h", long_options, NULL)) != -1) {
        switch (c) {
        case 'l':
            n->listening = true;
            break;
        case 'N':
            n->keep_open = false;
            break;
        case 'k':
            n->keep_open = true;
            break;
        case 'd':
            n->no_input = true;
            break;
        case 'i':
            n->input = optarg;
            break;
        case 'o':
            n->output = optarg;
            break;
        case 'v':
            n->verbose = true;
            break;
        case '4':
            n->family = AF_INET;
            break;
        case '6':
            n->family = AF_INET6;
            break;
        case 1000:
            n->cc = optarg;
            break;
        case 1002:
            setup->link = optarg;
            break;
        case 'w':
            if (!parse_seconds(optarg, 86400, &n->wait_ns))
                return cli_usage("nc", "-w: '%s' is not a time", optarg);
            break;
        case 1001:
            if (strcmp(optarg, "weir") != 0 && strcmp(optarg, "kernel") != 0)
                return cli_usage("nc", "--stack: '%s' is neither weir nor kernel", optarg);
            setup->kernel = optarg[0] == 'k';
            break;
        case 1003:
            if (!settings_add(sets, optarg))
                return cli_usage("nc", "--set: '%s' is not NAME=VALUE", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("nc");
        default:
            return cli_bad_option("nc", c, argv);
        }
    }
    setup->cc = n->cc;
    int status = net_check_leading_out("nc", setup);
    return status >= 0 ? status : parse_arguments(argc, argv, n);
}

int cmd_nc(int argc, char **argv)
{
    static struct settings sets;
    struct net_setup setup = {.name = "weir-nc", .sets = &sets};
    struct nc n = {.fd = -1};
    char err[256];
    int status = parse(argc, argv, &n, &setup, &sets);
    if (status >= 0)
        return status;
    if (net_open(&n.net, &setup, err, sizeof(err)) != 0)
        return cli_fail("nc", "%s", err);
    catch_signals();
    status = run(&n);
    net_close(&n.net);
    if (ending) { /* and now as without a handler */
        signal(ending, SIG_DFL);
        raise(ending);
    }
    return status;
}
