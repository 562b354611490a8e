/* SPDX-License-Identifier: BSD-2-Clause
 * `weir server`: the far end of bench. A thread for each client; one that fails takes nothing else
 * with it. */
#include "bench.h"
#include "bench_sysctl.h"

#include "weir/stack.h"

#include <bsd/sys/queue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SERVER_MAX_SESSIONS 32
#define SERVER_PATIENCE_S 20
#define SERVER_END_S 3 /* for the sessions to break off when the server is told to end */

static const char help[] =
    "usage: weir server [OPTION]...\n\n"
    "The far end of 'weir bench -H'. Serves several clients at once until SIGINT or SIGTERM.\n\n"
    "  -p PORT           port to listen on (12866)\n"
    "  -4, -6            address family (both)\n"
    "      --stack weir|kernel\n"
    "      --link SPEC   link of the Weir stack: see weir-link(7)\n"
    "      --set NAME=VALUE\n"
    "      --trust       let clients set knobs that name files\n"
    "  -1                serve one client, then end\n";

struct server {
    struct net net;
    bool trust, once;
    int family;
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    unsigned sessions;
    LIST_HEAD(, session)
    list; /* under mutex: those whose run and control connection are there */
};

/* One client. */
struct session {
    LIST_ENTRY(session) link;
    struct server *server;
    struct lines lines;
    struct run run;
    struct engine engine;
    struct bench_params p;
    struct settings asked; /* what it set; text in `request` */
    char *old[SETTINGS_MAX];
    json_t *request;
};

static void set_patience(struct session *c, unsigned seconds)
{
    struct timeval tv = {.tv_sec = seconds};
    (void)c->server->net.ops->setsockopt(c->lines.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

static void say_error(struct session *c, const char *what)
{
    (void)lines_write(&c->lines, json_pack("{s:s}", "error", what));
}

/* ---- knobs of the client ---- */

/* A knob whose value is a path would let a client write files here. */
static bool names_a_file(const char *knob)
{
    const char *leaf = strrchr(knob, '.');
    leaf = leaf != NULL ? leaf + 1 : knob;
    return strstr(leaf, "file") != NULL || strstr(leaf, "path") != NULL ||
           strstr(leaf, "dir") == leaf || strcmp(knob, "net.inet.siftr.enabled") == 0;
}

static bool apply_knobs(struct session *c, char *err, size_t size)
{
    const json_t *list = json_object_get(c->request, "set");
    struct weir_stack *s = c->server->net.stack;
    char value[1024];
    if (json_array_size(list) > 0 && s == NULL) {
        snprintf(err, size, "this server runs on the kernel: it has no knobs to set");
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        const char *text = json_string_value(json_object_get(o, "value"));
        if (name == NULL || text == NULL || c->asked.count == SETTINGS_MAX ||
            strlen(name) >= sizeof(c->asked.v[0].name)) {
            snprintf(err, size, "malformed knobs");
            return false;
        }
        if (names_a_file(name) && !c->server->trust) {
            snprintf(err, size, "%s names a file: the server was not started with --trust", name);
            return false;
        }
        if (weir_sysctl_get(s, name, value, sizeof(value)) != 0 ||
            weir_sysctl_set(s, name, text) != 0) {
            snprintf(err, size, "cannot set %s=%s: %s", name, text, strerror(errno));
            return false;
        }
        unsigned k = c->asked.count++;
        snprintf(c->asked.v[k].name, sizeof(c->asked.v[k].name), "%s", name);
        c->asked.v[k].value = text;
        c->old[k] = strdup(value);
    }
    return true;
}

static void restore_knobs(struct session *c)
{
    for (unsigned i = c->asked.count; i-- > 0;) {
        if (c->old[i] != NULL)
            (void)weir_sysctl_set(c->server->net.stack, c->asked.v[i].name, c->old[i]);
        free(c->old[i]);
    }
}

/* ---- a test ---- */

static void send_sample(void *ctx, unsigned side, const struct sample *x, const uint64_t *streams)
{
    struct session *c = ctx;
    (void)side;
    json_t *o = json_pack("{s:o}", "sample", sample_to_json(x, streams, c->p.streams));
    if (lines_write(&c->lines, o) != 0)
        run_fail(&c->run, "control connection: %s", strerror(errno));
}

/* Watches the control connection while the test runs. */
static void *reader_main(void *arg)
{
    struct session *c = arg;
    char err[160];
    json_t *o;
    while ((o = lines_read(&c->lines, err, sizeof(err))) != NULL) {
        const char *op = json_string_value(json_object_get(o, "op"));
        if (op != NULL && strcmp(op, "stop") == 0)
            run_stop(&c->run);
        json_decref(o);
    }
    run_fail(&c->run, "%s", err);
    return NULL;
}

static void wait_for_end(struct session *c)
{
    uint64_t until = clock_now_ns() + SERVER_PATIENCE_S * NS_PER_S;
    struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    pthread_mutex_lock(&c->run.mutex);
    while (!c->run.failed && pthread_cond_timedwait(&c->run.changed, &c->run.mutex, &ts) == 0)
        continue;
    pthread_mutex_unlock(&c->run.mutex);
}

/* From "go" to the client's closing the connection. */
static void run_session(struct session *c)
{
    struct engine *e = &c->engine;
    pthread_t reader;
    if (!engine_wait_ready(e, SERVER_PATIENCE_S)) {
        say_error(c, c->run.error);
        return;
    }
    set_patience(c, 0);
    (void)net_set_int(&c->server->net, c->lines.fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    if (pthread_create(&reader, NULL, reader_main, c) != 0) {
        say_error(c, "out of threads");
        return;
    }
    run_measure(&c->run, &e, 1, &c->p, send_sample, c);
    if (run_has_failed(&c->run)) {
        say_error(c, c->run.error);
    } else {
        json_t *knobs = bench_sysctl_json(&c->server->net, &c->asked);
        json_t *result = json_pack("{s:i, s:i, s:o}", "sndbuf", (int)e->sndbuf, "rcvbuf",
                                   (int)e->rcvbuf, "sysctl", knobs != NULL ? knobs : json_null());
        (void)lines_write(&c->lines, json_pack("{s:o}", "result", result));
        wait_for_end(c); /* the client ends its connections before ours are cut */
    }
    (void)c->server->net.ops->shutdown(c->lines.fd, SHUT_RDWR);
    pthread_join(reader, NULL);
}

static bool start_session(struct session *c, char *err, size_t size)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    c->request = lines_read(&c->lines, err, size);
    if (c->request == NULL)
        return false;
    if (json_integer_value(json_object_get(c->request, "weir")) != PROTO_VERSION) {
        snprintf(err, size, "another version of this protocol");
        return false;
    }
    if (!params_from_json(json_object_get(c->request, "params"), &c->p, err, size) ||
        !apply_knobs(c, err, size))
        return false;
    if (c->server->net.ops->getsockname(c->lines.fd, (struct sockaddr *)&sa, &len) != 0) {
        snprintf(err, size, "getsockname: %s", strerror(errno));
        return false;
    }
    net_sockaddr_set_port(&sa, 0);
    if (engine_listen(&c->engine, &c->server->net, &c->run, &c->p, &sa, -1) != 0) {
        snprintf(err, size, "%s", c->run.error);
        return false;
    }
    uint16_t port = sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
                                             : ((struct sockaddr_in *)&sa)->sin_port;
    json_t *o =
        json_pack("{s:i, s:s}", "port", (int)ntohs(port), "stack", c->server->net.ops->name);
    if (c->engine.cc_refused[0] != '\0')
        json_object_set_new(o, "warning", json_string(c->engine.cc_refused));
    if (lines_write(&c->lines, o) != 0) {
        snprintf(err, size, "%s", strerror(errno));
        return false;
    }
    return true;
}

static bool await_go(struct session *c, char *err, size_t size)
{
    json_t *o = lines_read(&c->lines, err, size);
    const char *op = json_string_value(json_object_get(o, "op"));
    bool go = op != NULL && strcmp(op, "go") == 0;
    if (o != NULL && !go)
        snprintf(err, size, "expected go");
    json_decref(o);
    return go;
}

static void *session_main(void *arg)
{
    struct session *c = arg;
    struct server *s = c->server;
    char err[256];
    set_patience(c, SERVER_PATIENCE_S);
    (void)net_set_nodelay(&s->net, c->lines.fd);
    if (start_session(c, err, sizeof(err)) && await_go(c, err, sizeof(err)))
        run_session(c);
    else
        say_error(c, err);
    if (c->engine.run != NULL) {
        engine_stop(&c->engine);
        engine_free(&c->engine);
    }
    restore_knobs(c);
    pthread_mutex_lock(&s->mutex);
    LIST_REMOVE(c, link);
    pthread_mutex_unlock(&s->mutex);
    s->net.ops->close(c->lines.fd);
    json_decref(c->request);
    run_fini(&c->run);
    free(c);
    pthread_mutex_lock(&s->mutex);
    s->sessions--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static bool begin_session(struct server *s, int fd)
{
    pthread_attr_t attr;
    pthread_t t;
    struct session *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return false;
    c->server = s;
    c->lines.net = &s->net;
    c->lines.fd = fd;
    pthread_mutex_lock(&s->mutex);
    bool room = s->sessions < SERVER_MAX_SESSIONS;
    s->sessions += room;
    if (room) {
        run_init(&c->run);
        LIST_INSERT_HEAD(&s->list, c, link);
    }
    pthread_mutex_unlock(&s->mutex);
    if (!room)
        say_error(c, "the server is busy");
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    bool started = room && pthread_create(&t, &attr, session_main, c) == 0;
    pthread_attr_destroy(&attr);
    if (started)
        return true;
    if (room) {
        pthread_mutex_lock(&s->mutex);
        s->sessions--;
        LIST_REMOVE(c, link);
        pthread_mutex_unlock(&s->mutex);
        run_fini(&c->run);
    }
    free(c);
    return false;
}

static volatile sig_atomic_t ending;

static void on_signal(int sig)
{
    (void)sig;
    ending = 1;
}

/* A session has ended, or a second has passed: a signal wakes nobody. Under the mutex. */
static void await_change(struct server *s)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec++;
    (void)pthread_cond_timedwait(&s->idle, &s->mutex, &ts);
}

/* Break off what runs, so that its clients hear of it. The number of sessions that did not end. */
static unsigned end_sessions(struct server *s)
{
    uint64_t until = clock_now_ns() + SERVER_END_S * NS_PER_S;
    struct session *c;
    pthread_mutex_lock(&s->mutex);
    LIST_FOREACH (c, &s->list, link) {
        run_fail(&c->run, "the server was told to end");
        (void)s->net.ops->shutdown(c->lines.fd, SHUT_RD);
    }
    while (s->sessions > 0 && clock_now_ns() < until)
        await_change(s);
    unsigned left = s->sessions;
    pthread_mutex_unlock(&s->mutex);
    return left;
}

static int serve(struct server *s, int listen_fd)
{
    while (!ending) {
        struct pollfd pfd = {.fd = listen_fd, .events = POLLIN};
        if (s->net.ops->poll(&pfd, 1, 500) <= 0)
            continue;
        int fd = s->net.ops->accept(listen_fd, NULL, NULL, 0);
        if (fd < 0)
            continue;
        if (!begin_session(s, fd))
            s->net.ops->close(fd);
        else if (s->once)
            break;
    }
    s->net.ops->close(listen_fd);
    pthread_mutex_lock(&s->mutex);
    while (s->once && s->sessions > 0 && !ending)
        await_change(s);
    pthread_mutex_unlock(&s->mutex);
    if (end_sessions(s) > 0)
        _exit(CLI_OK); /* their threads still use the stack */
    return CLI_OK;
}

static const struct option long_options[] = {
    {"help", no_argument, NULL, 'h'},        {"stack", required_argument, NULL, 1001},
    {"link", required_argument, NULL, 1002}, {"set", required_argument, NULL, 1003},
    {"trust", no_argument, NULL, 1004},      {NULL, 0, NULL, 0},
};

static int parse(int argc, char **argv, struct server *s, struct net_setup *setup,
                 struct settings *sets, uint16_t *port)
{
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":p:461h", long_options, NULL)) != -1) {
        switch (c) {
        case 'p':
            if (!parse_port(optarg, port))
                return cli_usage("server", "-p: '%s' is not a port", optarg);
            break;
        case '4':
            s->family = AF_INET;
            break;
        case '6':
            s->family = AF_INET6;
            break;
        case '1':
            s->once = true;
            break;
        case 1001:
            if (strcmp(optarg, "weir") != 0 && strcmp(optarg, "kernel") != 0)
                return cli_usage("server", "--stack: '%s' is neither weir nor kernel", optarg);
            setup->kernel = optarg[0] == 'k';
            break;
        case 1002:
            setup->link = optarg;
            break;
        case 1003:
            if (!settings_add(sets, optarg))
                return cli_usage("server", "--set: '%s' is not NAME=VALUE", optarg);
            break;
        case 1004:
            s->trust = true;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("server");
        default:
            return cli_bad_option("server", c, argv);
        }
    }
    if (optind < argc)
        return cli_usage("server", "unexpected argument: %s", argv[optind]);
    return net_check_leading_out("server", setup);
}

int cmd_server(int argc, char **argv)
{
    static struct settings sets;
    static struct server s = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
    struct net_setup setup = {.name = "weir-server", .sets = &sets};
    struct sockaddr_storage sa;
    uint16_t port = BENCH_PORT;
    char err[256];
    int status = parse(argc, argv, &s, &setup, &sets, &port);
    if (status >= 0)
        return status;
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (net_open(&s.net, &setup, err, sizeof(err)) != 0)
        return cli_fail("server", "%s", err);
    int fd = net_resolve(NULL, port, s.family, &sa, err, sizeof(err)) > 0
                 ? net_listener(&s.net, &sa, 16, 0)
                 : -1;
    if (fd < 0) {
        status = cli_fail("server", "port %u: %s", port, strerror(errno));
    } else {
        fprintf(stderr, "weir server: listening on port %u (%s stack)\n", port, s.net.ops->name);
        status = serve(&s, fd);
    }
    net_close(&s.net);
    return status;
}
