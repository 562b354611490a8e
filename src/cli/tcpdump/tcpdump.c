/* SPDX-License-Identifier: BSD-2-Clause
 * `weir tcpdump`: a capture of a running instance, as pcapng or as text. */
#include "tcpdump.h"

#include "cli/cli.h"
#include "cli/control_client.h"
#include "measure/pcapng.h"
#include "measure/tap.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_PATIENCE_NS (10 * NS_PER_S) /* for a command to open its control socket */
#define MAX_IFACES 4096

static const char me[] = "tcpdump";
static const char help[] =
    "usage: weir tcpdump [OPTION]... [EXPRESSION] [-- COMMAND [ARG]...]\n\n"
    "Frames that pass the interfaces of a running Weir instance (of COMMAND, which is started), "
    "as\n"
    "text or as pcapng. EXPRESSION is a capture filter (pcap-filter(7)).\n\n"
    "  -i, --interface NAME  only this interface\n"
    "  -w, --write FILE    pcapng to FILE; '-': to standard output\n"
    "  -c, --count N       end after N packets\n"
    "  -s, --snaplen N     keep N bytes of a packet (all)\n"
    "  -B, --buffer KIB    for what comes faster than it is read, for each stack (4096)\n"
    "  -n                  (addresses are always numeric)\n"
    "  -S NAME             only the stacks of this name\n"
    "      --pid PID       the instance that is this process\n"
    "      --control PATH  the instance whose control socket this is (else the only one)\n";

static const struct option long_options[] = {{"interface", required_argument, NULL, 'i'},
                                             {"write", required_argument, NULL, 'w'},
                                             {"count", required_argument, NULL, 'c'},
                                             {"snaplen", required_argument, NULL, 's'},
                                             {"buffer", required_argument, NULL, 'B'},
                                             {"pid", required_argument, NULL, 1000},
                                             {"control", required_argument, NULL, 1001},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

struct dump {
    const char *interface, *file, *stack, *control;
    uint64_t count, snaplen, buffer_kib, pid;
    char *expression;
    char **command; /* NULL: none */
    /* while it runs */
    FILE *out;
    bool ending; /* no more packets are wanted */
    uint64_t packets, dropped;
    struct {
        char name[64];
        bool bare;
    } iface[MAX_IFACES];
    unsigned ifaces;
};

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = stop}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    sigaction(SIGPIPE, &ignore, NULL); /* a reader that leaves is told by the write */
}

/* ---- options ---- */

static char *join(char **words, int n)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int i = 0; f != NULL && i < n; i++)
        fprintf(f, "%s%s", i > 0 ? " " : "", words[i]);
    return f != NULL && fclose(f) == 0 ? text : NULL;
}

static int bad(const char *what, const char *value)
{
    return cli_usage(me, "%s: '%s' is not allowed", what, value);
}

/* -1: good; else the exit code. */
static int option(struct dump *d, int c, char **argv)
{
    switch (c) {
    case 'i':
        d->interface = optarg;
        return -1;
    case 'w':
        d->file = optarg;
        return -1;
    case 'S':
        d->stack = optarg;
        return -1;
    case 'n':
        return -1;
    case 'c':
        return parse_u64(optarg, 1, UINT64_MAX, &d->count) ? -1 : bad("-c", optarg);
    case 's':
        if (!parse_u64(optarg, 0, UINT32_MAX, &d->snaplen))
            return bad("-s", optarg);
        if (d->snaplen == 0 || d->snaplen > TAP_FRAME_MAX)
            d->snaplen = TAP_FRAME_MAX;
        return -1;
    case 'B':
        return parse_u64(optarg, 1, TAP_RING_MAX >> 10, &d->buffer_kib) ? -1 : bad("-B", optarg);
    case 1000:
        return parse_u64(optarg, 1, INT32_MAX, &d->pid) ? -1 : bad("--pid", optarg);
    case 1001:
        d->control = optarg;
        return -1;
    case 'h':
        fputs(help, stdout);
        return cli_flush(me);
    default:
        return cli_bad_option(me, c, argv);
    }
}

static int parse(int argc, char **argv, struct dump *d)
{
    int c, code = -1, end = argc;
    for (int i = 1; i < argc && end == argc; i++)
        if (strcmp(argv[i], "--") == 0)
            end = i;
    if (end < argc) {
        d->command = argv + end + 1;
        argv[end] = NULL;
        if (d->command[0] == NULL)
            return cli_usage(me, "a command is missing after --");
    }
    opterr = 0;
    optind = 0;
    while (code < 0 && (c = getopt_long(end, argv, ":i:w:c:s:B:nS:h", long_options, NULL)) != -1)
        code = option(d, c, argv);
    if (code >= 0)
        return code;
    if ((d->pid != 0) + (d->control != NULL) + (d->command != NULL) > 1)
        return cli_usage(me, "--pid, --control and a command exclude each other");
    d->expression = join(argv + optind, end - optind);
    return d->expression != NULL ? -1 : cli_fail(me, "%s", strerror(ENOMEM));
}

/* ---- the request ---- */

#define REQUEST_MAX 8
struct request {
    char *word[REQUEST_MAX + 1];
    unsigned count;
};

static bool add_word(struct request *r, char *word)
{
    if (word != NULL)
        r->word[r->count++] = word;
    return word != NULL;
}

static char *pair(const char *key, const char *value)
{
    char *text;
    return asprintf(&text, "%s=%s", key, value) >= 0 ? text : NULL;
}

static char *number_pair(const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    return pair(key, digits);
}

/* An expression may mean something on one kind of link only. -1: good. */
static int add_filters(struct request *r, const char *expression)
{
    const char *why;
    if (expression[0] == '\0')
        return -1;
    char *ethernet = tcpdump_filter("ethernet", DLT_EN10MB, expression, &why);
    char *raw = tcpdump_filter("raw", DLT_RAW, expression, &why);
    if (ethernet == NULL && raw == NULL)
        return cli_usage(me, "%s", why);
    bool good = add_word(r, ethernet != NULL ? ethernet : strdup("ethernet=0"));
    good &= add_word(r, raw != NULL ? raw : strdup("raw=0"));
    return good ? -1 : cli_fail(me, "%s", strerror(ENOMEM));
}

static int make_request(const struct dump *d, struct request *r)
{
    bool good = add_word(r, strdup("tcpdump"));
    if (d->interface != NULL)
        good &= add_word(r, pair("interface", d->interface));
    if (d->stack != NULL)
        good &= add_word(r, pair("stack", d->stack));
    if (d->snaplen != 0)
        good &= add_word(r, number_pair("snaplen", d->snaplen));
    if (d->buffer_kib != 0)
        good &= add_word(r, number_pair("buffer", d->buffer_kib << 10));
    return good ? add_filters(r, d->expression) : cli_fail(me, "%s", strerror(ENOMEM));
}

/* ---- the stream ---- */

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* The value of an option of at least n bytes; NULL: there is none. */
static const uint8_t *find_option(const uint8_t *p, const uint8_t *end, uint16_t code, uint16_t *n)
{
    while (end - p >= 4) {
        uint16_t c, len;
        memcpy(&c, p, 2);
        memcpy(&len, p + 2, 2);
        p += 4;
        if (c == 0 || len > end - p)
            return NULL;
        if (c == code) {
            *n = len;
            return p;
        }
        p += MIN((size_t)(end - p), (size_t)((len + 3u) & ~3u));
    }
    return NULL;
}

static void note_interface(struct dump *d, const uint8_t *b, uint32_t size)
{
    uint16_t n = 0, link;
    if (size < 20 || d->ifaces == MAX_IFACES)
        return;
    const uint8_t *name = find_option(b + 16, b + size - 4, 2, &n);
    memcpy(&link, b + 8, sizeof(link));
    d->iface[d->ifaces].bare = link == PCAPNG_LINK_RAW;
    snprintf(d->iface[d->ifaces].name, sizeof(d->iface[0].name), "%.*s", (int)n,
             name != NULL ? (const char *)name : "");
    d->ifaces++;
}

static void print_packet(struct dump *d, const uint8_t *b, uint32_t size)
{
    uint32_t iface = get32(b + 8), caplen = get32(b + 20), len = get32(b + 24), flags = 0;
    uint64_t t = (uint64_t)get32(b + 12) << 32 | get32(b + 16);
    uint16_t n;
    if (iface >= d->ifaces || caplen > size - 32)
        return;
    const uint8_t *o = find_option(b + 28 + ((caplen + 3) & ~3u), b + size - 4, 2, &n);
    if (o != NULL && n == 4)
        flags = get32(o);
    tcpdump_print(d->out, t, d->iface[iface].name, (int)(flags & 3), d->iface[iface].bare, b + 28,
                  caplen, len);
}

static void take_block(struct dump *d, const uint8_t *b, uint32_t size)
{
    uint32_t type = get32(b);
    uint16_t n;
    if (type == PCAPNG_PACKET && (size < 32 || (d->count > 0 && d->packets == d->count)))
        return;
    if (type == PCAPNG_PACKET)
        d->packets++;
    else if (type == PCAPNG_INTERFACE)
        note_interface(d, b, size);
    const uint8_t *lost =
        type == PCAPNG_STATISTICS && size > 24 ? find_option(b + 20, b + size - 4, 5, &n) : NULL;
    if (lost != NULL && n == 8) {
        uint64_t v;
        memcpy(&v, lost, sizeof(v));
        d->dropped += v;
    }
    if (d->file != NULL)
        (void)fwrite(b, 1, size, d->out);
    else if (type == PCAPNG_PACKET)
        print_packet(d, b, size);
}

/* Take whole blocks from a buffer; how many bytes, -1: these are none. */
static ssize_t take_blocks(struct dump *d, const uint8_t *p, size_t have)
{
    size_t at = 0;
    while (have - at >= 12) {
        uint32_t size = get32(p + at + 4);
        if (size < 12 || size % 4 != 0 || size > PCAPNG_BLOCK_MAX)
            return -1;
        if (size > have - at)
            break;
        take_block(d, p + at, size);
        at += size;
    }
    return (ssize_t)at;
}

static void end_if_due(struct dump *d, int fd)
{
    if (d->ending || (!stopped && (d->count == 0 || d->packets < d->count)))
        return;
    d->ending = true;
    (void)shutdown(fd, SHUT_WR); /* the rest and the statistics follow */
}

/* Until the instance closes. -1: good. */
static int run_stream(struct dump *d, int fd)
{
    size_t room = 2 * PCAPNG_BLOCK_MAX, have = 0;
    uint8_t *buf = malloc(room);
    int code = buf != NULL ? -1 : cli_fail(me, "%s", strerror(ENOMEM));
    while (code < 0) {
        end_if_due(d, fd);
        ssize_t n = recv(fd, buf + have, room - have, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
        ssize_t used = take_blocks(d, buf, have);
        if (used < 0) {
            code = cli_fail(me, "the instance did not answer in its protocol");
            break;
        }
        have -= (size_t)used;
        memmove(buf, buf + used, have);
        if (fflush(d->out) != 0)
            code = cli_fail(me, "%s: %s", d->file != NULL ? d->file : "standard output",
                            strerror(errno));
    }
    free(buf);
    return code;
}

static int capture(struct dump *d, const char *path, const struct request *r)
{
    char *err = NULL;
    int fd = control_stream(path, (const char *const *)r->word, &err);
    if (fd < 0) {
        int code =
            err != NULL ? cli_fail(me, "%s", err) : cli_fail(me, "%s: %s", path, strerror(-fd));
        free(err);
        return code;
    }
    d->out = stdout;
    if (d->file != NULL && strcmp(d->file, "-") != 0)
        d->out = fopen(d->file, "wbe");
    int code =
        d->out != NULL ? run_stream(d, fd) : cli_fail(me, "%s: %s", d->file, strerror(errno));
    close(fd);
    if (d->out != NULL && d->out != stdout && fclose(d->out) != 0 && code < 0)
        code = cli_fail(me, "%s: %s", d->file, strerror(errno));
    if (code < 0)
        fprintf(stderr, "%" PRIu64 " packets captured, %" PRIu64 " dropped\n", d->packets,
                d->dropped);
    return code < 0 ? CLI_OK : code;
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

static int run_command(struct dump *d, const struct request *r)
{
    char path[CONTROL_PATH_MAX];
    bool found = false, reaped = false;
    int status = 0, code = CLI_FAILED;
    pid_t pid = spawn(d->command);
    if (pid < 0)
        return cli_fail(me, "%s", strerror(errno));
    uint64_t limit = clock_now_ns() + START_PATIENCE_NS;
    while (!found && !reaped && !stopped && clock_now_ns() < limit) {
        struct timespec ts = {.tv_nsec = NS_PER_MS};
        found = control_find_pid(pid, path, sizeof(path));
        if (!found)
            nanosleep(&ts, NULL);
        reaped = !found && waitpid(pid, &status, WNOHANG) == pid;
    }
    if (found)
        code = capture(d, path, r);
    else if (!(reaped && WIFEXITED(status) && WEXITSTATUS(status) == 127))
        cli_fail(me, "%s opened no control socket", d->command[0]);
    if (stopped && !reaped)
        kill(pid, SIGTERM);
    while (!reaped && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (code == CLI_OK && !stopped && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        code = cli_fail(me, "%s failed", d->command[0]);
    return code;
}

int cmd_tcpdump(int argc, char **argv)
{
    struct dump *d = calloc(1, sizeof(*d));
    struct request r = {0};
    char path[CONTROL_PATH_MAX];
    if (d == NULL)
        return cli_fail(me, "%s", strerror(ENOMEM));
    int code = parse(argc, argv, d);
    if (code < 0)
        code = make_request(d, &r);
    if (code < 0) {
        catch_signals();
        if (d->command != NULL)
            code = run_command(d, &r);
        else if (d->control != NULL)
            code = capture(d, d->control, &r);
        else if (d->pid != 0 && !control_find_pid((pid_t)d->pid, path, sizeof(path)))
            code = cli_fail(me, "process %d has no control socket of Weir", (int)d->pid);
        else if (d->pid == 0 && !control_find_only(me, path, sizeof(path)))
            code = CLI_FAILED;
        else
            code = capture(d, path, &r);
    }
    for (unsigned i = 0; i < r.count; i++)
        free(r.word[i]);
    free(d->expression);
    free(d);
    return code;
}
