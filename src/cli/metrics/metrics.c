/* SPDX-License-Identifier: BSD-2-Clause
 * `weir metrics`: what an instance counts, printed once, or served over HTTP to Prometheus. One
 * request a connection; a client that dawdles is cut off. */
#include "cli/cli.h"
#include "cli/control_client.h"
#include "cli/serve/http.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 16
#define PATIENCE_NS (5 * NS_PER_S) /* for a whole exchange */

static const char me[] = "metrics";
static const char open_type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
static const char text_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char help[] =
    "usage: weir metrics [--text] [--listen ADDRESS:PORT] [--pid PID | --control PATH]\n\n"
    "All counters and gauges of a running Weir instance as OpenMetrics, once; or for Prometheus "
    "at\n"
    "http://ADDRESS:PORT/metrics.\n\n"
    "      --text          the older text format of Prometheus\n"
    "      --listen ADDRESS:PORT  serve (port 0: any that is free, told on standard output)\n"
    "      --pid PID       the instance that is this process (else the only one that runs)\n"
    "      --control PATH  the instance whose control socket this is\n";

static const struct option long_options[] = {
    {"text", no_argument, NULL, 1000},      {"listen", required_argument, NULL, 1001},
    {"pid", required_argument, NULL, 1002}, {"control", required_argument, NULL, 1003},
    {"help", no_argument, NULL, 'h'},       {0}};

struct exchange {
    int fd; /* -1: free */
    uint64_t since_ns;
    char in[HTTP_MAX_HEADERS];
    size_t in_len;
    char *out; /* NULL: the request is not complete */
    size_t out_len, out_sent;
};

struct metrics_server {
    const char *path;
    bool text;
    int listen_fd;
    struct exchange client[CLIENTS];
};

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

/* ---- asking ---- */

static int fetch(const char *path, bool text, char **out, char **err)
{
    const char *const argv[] = {"metrics", text ? "text" : NULL, NULL};
    return control_ask(path, argv, out, err);
}

static int print_once(const char *path, bool text)
{
    char *out, *err;
    int status = fetch(path, text, &out, &err), code = CLI_OK;
    if (status < 0)
        code = cli_fail(me, "%s: %s", path, strerror(-status));
    else if (status > 0)
        code = cli_fail(me, "%.*s", (int)strcspn(err, "\n"), err);
    else
        fputs(out, stdout);
    free(out);
    free(err);
    return code == CLI_OK ? cli_flush(me) : code;
}

/* ---- HTTP ---- */

static void respond(struct exchange *x, const char *status, const char *type, const char *body,
                    bool head)
{
    FILE *f = open_memstream(&x->out, &x->out_len);
    if (f == NULL)
        return;
    fprintf(f,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
            status, type, strlen(body), head ? "" : body);
    if (fclose(f) != 0) {
        free(x->out);
        x->out = NULL;
    }
}

/* The value of Accept among the fields that came, which end with an empty line. */
static bool wants_openmetrics(const char *in)
{
    for (const char *p = in; (p = strchr(p, '\n')) != NULL && p[1] != '\r';) {
        p++;
        if (strncasecmp(p, "accept:", 7) == 0) {
            size_t n = strcspn(p, "\r\n");
            return memmem(p, n, "application/openmetrics-text", 28) != NULL;
        }
    }
    return false;
}

static void answer(const struct metrics_server *s, struct exchange *x, const struct http_request *r)
{
    char *out = NULL, *err = NULL;
    size_t n = strcspn(r->url, "?");
    if (r->status != 0) {
        respond(x, "400 Bad Request", "text/plain", "bad request\n", false);
    } else if (n != 8 || memcmp(r->url, "/metrics", n) != 0) {
        respond(x, "404 Not Found", "text/plain", "what there is, is at /metrics\n", r->head);
    } else {
        bool text = s->text || !wants_openmetrics(x->in);
        if (fetch(s->path, text, &out, &err) == 0)
            respond(x, "200 OK", text ? text_type : open_type, out, r->head);
        else
            respond(x, "503 Service Unavailable", "text/plain", "the instance does not answer\n",
                    r->head);
    }
    free(out);
    free(err);
}

static void finish(struct exchange *x)
{
    close(x->fd);
    free(x->out);
    x->out = NULL;
    x->out_len = x->out_sent = x->in_len = 0;
    x->fd = -1;
}

static void take(const struct metrics_server *s, struct exchange *x)
{
    static struct http_request r;
    ssize_t n = recv(x->fd, x->in + x->in_len, sizeof(x->in) - 1 - x->in_len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        finish(x);
        return;
    }
    x->in_len += (size_t)n;
    x->in[x->in_len] = '\0';
    http_request_init(&r);
    (void)http_request_feed(&r, x->in, x->in_len);
    if (x->in_len == sizeof(x->in) - 1 && !r.complete && r.status == 0)
        r.status = 431;
    if (!r.complete && r.status == 0)
        return;
    answer(s, x, &r);
    if (x->out == NULL)
        finish(x);
}

static void give(struct exchange *x)
{
    ssize_t n =
        send(x->fd, x->out + x->out_sent, x->out_len - x->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        x->out_sent += (size_t)n;
    if (n <= 0 || x->out_sent == x->out_len)
        finish(x);
}

static void accept_one(struct metrics_server *s)
{
    struct exchange *place = &s->client[0];
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (s->client[i].fd < 0) {
            place = &s->client[i];
            break;
        }
        if (s->client[i].since_ns < place->since_ns)
            place = &s->client[i];
    }
    if (place->fd >= 0)
        finish(place); /* the oldest makes way */
    place->fd = fd;
    place->since_ns = clock_now_ns();
}

static void serve(struct metrics_server *s)
{
    struct pollfd pfd[CLIENTS + 1];
    while (!stopped) {
        pfd[CLIENTS] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
        for (unsigned i = 0; i < CLIENTS; i++)
            pfd[i] = (struct pollfd){.fd = s->client[i].fd,
                                     .events = s->client[i].out != NULL ? POLLOUT : POLLIN};
        (void)poll(pfd, CLIENTS + 1, 1000);
        uint64_t now = clock_now_ns();
        for (unsigned i = 0; i < CLIENTS; i++) {
            struct exchange *x = &s->client[i];
            if (x->fd >= 0 && pfd[i].revents != 0)
                x->out != NULL ? give(x) : take(s, x);
            if (x->fd >= 0 && now > x->since_ns + PATIENCE_NS)
                finish(x);
        }
        if (pfd[CLIENTS].revents != 0)
            accept_one(s);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        if (s->client[i].fd >= 0)
            finish(&s->client[i]);
}

/* "10.0.0.1:9100", "[::1]:9100". */
static bool parse_listen(const char *text, struct sockaddr_storage *ss, socklen_t *len)
{
    const char *colon = strrchr(text, ':');
    char host[64];
    uint64_t port;
    *ss = (struct sockaddr_storage){0};
    if (colon == NULL || !parse_u64(colon + 1, 0, UINT16_MAX, &port))
        return false;
    size_t n = (size_t)(colon - text);
    if (n >= 2 && text[0] == '[' && colon[-1] == ']')
        text++, n -= 2;
    if (n >= sizeof(host))
        return false;
    memcpy(host, text, n);
    host[n] = '\0';
    struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *len = sizeof(*v4);
        return true;
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *len = sizeof(*v6);
    return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1;
}

static int run_server(const char *path, bool text, const char *where)
{
    struct sockaddr_storage ss;
    socklen_t len;
    int one = 1;
    if (!parse_listen(where, &ss, &len))
        return cli_usage(me, "--listen: '%s' is not ADDRESS:PORT", where);
    struct metrics_server *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return cli_fail(me, "%s", strerror(ENOMEM));
    s->path = path;
    s->text = text;
    for (unsigned i = 0; i < CLIENTS; i++)
        s->client[i].fd = -1;
    s->listen_fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen_fd >= 0)
        (void)setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    int code = CLI_OK;
    if (s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&ss, len) != 0 ||
        listen(s->listen_fd, CLIENTS) != 0 ||
        getsockname(s->listen_fd, (struct sockaddr *)&ss, &len) != 0)
        code = cli_fail(me, "%s: %s", where, strerror(errno));
    if (code == CLI_OK) {
        struct sigaction sa = {.sa_handler = stop};
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        printf("http://%.*s:%u/metrics\n", (int)(strrchr(where, ':') - where), where,
               ntohs(((struct sockaddr_in *)&ss)->sin_port)); /* at the same place in both */
        code = cli_flush(me);
    }
    if (code == CLI_OK)
        serve(s);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    free(s);
    return code;
}

int cmd_metrics(int argc, char **argv)
{
    const char *control = NULL, *where = NULL;
    char path[CONTROL_PATH_MAX];
    uint64_t pid = 0;
    bool text = false;
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        switch (c) {
        case 1000:
            text = true;
            break;
        case 1001:
            where = optarg;
            break;
        case 1002:
            if (!parse_u64(optarg, 1, INT32_MAX, &pid))
                return cli_usage(me, "--pid: '%s' is not allowed", optarg);
            break;
        case 1003:
            control = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush(me);
        default:
            return cli_bad_option(me, c, argv);
        }
    }
    if (optind < argc)
        return cli_usage(me, "unexpected argument '%s'", argv[optind]);
    if (pid != 0 && control != NULL)
        return cli_usage(me, "--pid and --control exclude each other");
    if (control != NULL)
        snprintf(path, sizeof(path), "%s", control);
    else if (pid != 0 && !control_find_pid((pid_t)pid, path, sizeof(path)))
        return cli_fail(me, "process %d has no control socket of Weir", (int)pid);
    else if (pid == 0 && !control_find_only(me, path, sizeof(path)))
        return CLI_FAILED;
    return where != NULL ? run_server(path, text, where) : print_once(path, text);
}
