/* SPDX-License-Identifier: BSD-2-Clause
 * `weir serve`: the files of a directory over HTTP/1.1, one thread, one epoll set.
 *
 * A connection is either reading a request or sending an answer, never both, so pipelined requests
 * wait in its small input buffer (or in the stack). Files go out by sendfile; a small one is read
 * into a buffer that all connections share and leaves with its head, and what the stack does not
 * take is read again later: the memory of a connection does not depend on the size of what it
 * fetches. */
#include "http.h"
#include "cli/net/net.h"

#include <bsd/sys/queue.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX 4096
#define SHARED_BUF (512u * 1024)
#define SMALL_FILE 65536u /* up to which it is read, to leave with its head */
#define EVENTS 256
#define CONNECTIONS 8192
#define REQUEST_NS (10 * NS_PER_S) /* from its first byte to the end of its header */
#define IDLE_NS (30 * NS_PER_S)    /* between requests */
#define STALL_NS (30 * NS_PER_S)   /* without a byte taken by the client */
#define TURN_BYTES (4u << 20)      /* that one connection may send before others get their turn */
#define STARVED_MS 10              /* when to try again what the stack had no buffers for */
#define LINGER_BYTES                                                                               \
    (256u * 1024) /* read and thrown away after an answer that ends the connection */

static const char help[] = "usage: weir serve [OPTION]... DIR\n\n"
                           "Serve the files beneath DIR over HTTP/1.1 (GET and HEAD).\n\n"
                           "  -p PORT           port to listen on (8080)\n"
                           "  -c COUNT          connections at once (8192); more wait\n"
                           "  -v                a line for each request, on standard error\n"
                           "  -4, -6            address family (both)\n"
                           "      --cc NAME     congestion control\n"
                           "      --stack weir|kernel\n"
                           "      --link SPEC   link of the Weir stack: see weir-link(7)\n"
                           "      --set NAME=VALUE\n";

enum state { READING, SENDING, LINGERING };

struct conn {
    TAILQ_ENTRY(conn) link;
    int fd;
    enum state state;
    uint32_t armed; /* EPOLL* in the set */
    bool request_begun;
    bool peer_done;               /* it will send nothing more */
    bool starved;                 /* the stack had no buffers for it */
    uint64_t since_ns;            /* what its timeout counts from */
    struct http_request *request; /* while there is one */
    struct http_response response;
    size_t head_sent, body_sent;
    uint32_t lingered;
    size_t in_len;
    char in[INPUT_MAX];
};
TAILQ_HEAD(conns, conn);

struct server {
    struct net net;
    int root_fd, listen_fd, ep;
    bool verbose, listening;
    bool starving; /* some connection is starved */
    struct conns conns;
    unsigned count, limit;
    uint64_t now_ns;
    char *buf; /* SHARED_BUF bytes */
};

static volatile sig_atomic_t ending;

static void on_signal(int sig)
{
    (void)sig;
    ending = 1;
}

/* ---- connections ---- */

static void arm(struct server *s, struct conn *c, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};
    if (c->armed != events && s->net.ops->epoll_ctl(s->ep, EPOLL_CTL_MOD, c->fd, &ev) == 0)
        c->armed = events;
}

/* Stop accepting while the table is full, so that clients wait in the stack's queue. */
static void update_listening(struct server *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    bool want = s->count < s->limit;
    if (want == s->listening)
        return;
    if (s->net.ops->epoll_ctl(s->ep, want ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listen_fd, &ev) == 0)
        s->listening = want;
}

static void conn_close(struct server *s, struct conn *c)
{
    TAILQ_REMOVE(&s->conns, c, link);
    s->count--;
    (void)s->net.ops->epoll_ctl(s->ep, EPOLL_CTL_DEL, c->fd, NULL);
    s->net.ops->close(c->fd);
    free(c->request);
    http_response_free(&c->response);
    free(c);
    update_listening(s);
}

static void accept_some(struct server *s)
{
    for (int i = 0; i < 64 && s->count < s->limit; i++) {
        int fd = s->net.ops->accept(s->listen_fd, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0)
            break;
        struct conn *c = calloc(1, sizeof(*c));
        struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
        if (c == NULL || s->net.ops->epoll_ctl(s->ep, EPOLL_CTL_ADD, fd, &ev) != 0) {
            s->net.ops->close(fd);
            free(c);
            break;
        }
        c->fd = fd;
        c->armed = ev.events;
        c->since_ns = s->now_ns;
        c->response.fd = -1;
        (void)net_set_nodelay(&s->net, fd);
        TAILQ_INSERT_TAIL(&s->conns, c, link);
        s->count++;
    }
    update_listening(s);
}

/* ---- sending ---- */

enum sent { SENT_ALL, SENT_SOME, SENT_FAILED };

/* What a call that sends returned. SENT_SOME: the socket is full, or the stack has no buffers. */
static enum sent note_sent(struct server *s, struct conn *c, ssize_t n, size_t len)
{
    if (n < 0 && (errno == ENOBUFS || errno == ENOMEM))
        s->starving = c->starved = true;
    else if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? SENT_SOME : SENT_FAILED;
    if (n > 0)
        c->since_ns = s->now_ns;
    return n >= 0 && (size_t)n == len ? SENT_ALL : SENT_SOME;
}

/* Offer bytes. */
static enum sent offer(struct server *s, struct conn *c, const char *data, size_t len, int flags,
                       size_t *taken)
{
    ssize_t n;
    do {
        n = s->net.ops->send(c->fd, data, len, MSG_DONTWAIT | flags);
    } while (n < 0 && errno == EINTR);
    *taken = n > 0 ? (size_t)n : 0;
    return note_sent(s, c, n, len);
}

/* Head and, where there is one, the body in memory or a small file, in one go. */
static enum sent send_head(struct server *s, struct conn *c)
{
    struct http_response *o = &c->response;
    size_t head = o->head_len - c->head_sent,
           body = MIN(o->body_len - c->body_sent, (size_t)SHARED_BUF / 2), taken;
    memcpy(s->buf, o->head + c->head_sent, head);
    if (body > 0) {
        memcpy(s->buf + head, o->body + c->body_sent, body);
    } else if (o->fd >= 0 && o->left <= SMALL_FILE) {
        ssize_t r = pread(o->fd, s->buf + head, (size_t)o->left, (off_t)o->off);
        body = r > 0 ? (size_t)r : 0; /* a failure is met again below */
    }
    bool more = o->fd >= 0 && body < o->left;
    enum sent r = offer(s, c, s->buf, head + body, more ? MSG_MORE : 0, &taken);
    size_t of_head = MIN(taken, head), rest = taken - of_head;
    c->head_sent += of_head;
    if (o->fd >= 0) {
        o->off += rest;
        o->left -= rest;
    } else {
        c->body_sent += rest;
    }
    return r;
}

static enum sent send_body(struct server *s, struct conn *c)
{
    struct http_response *o = &c->response;
    size_t taken;
    while (c->body_sent < o->body_len) {
        enum sent r = offer(s, c, o->body + c->body_sent, o->body_len - c->body_sent, 0, &taken);
        c->body_sent += taken;
        if (r != SENT_ALL)
            return r;
    }
    return SENT_ALL;
}

/* The file, until the socket is full, the turn is over, or it ends. A file that has become shorter
 * ends the connection: its length was promised. */
static enum sent send_file(struct server *s, struct conn *c)
{
    struct http_response *o = &c->response;
    for (uint64_t turn = 0; o->left > 0 && turn < TURN_BYTES;) {
        size_t want = (size_t)MIN(o->left, TURN_BYTES - turn);
        off_t off = (off_t)o->off;
        ssize_t r = s->net.ops->sendfile(c->fd, o->fd, &off, want);
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return SENT_FAILED;
        o->off += r > 0 ? (uint64_t)r : 0;
        o->left -= r > 0 ? (uint64_t)r : 0;
        turn += r > 0 ? (uint64_t)r : 0;
        enum sent e = note_sent(s, c, r, want);
        if (e == SENT_FAILED || (e == SENT_SOME && r <= 0))
            return e;
    }
    return o->left > 0 ? SENT_SOME : SENT_ALL;
}

static enum sent send_response(struct server *s, struct conn *c)
{
    enum sent r = SENT_ALL;
    if (c->head_sent < c->response.head_len)
        r = send_head(s, c);
    if (r == SENT_ALL)
        r = send_body(s, c);
    if (r == SENT_ALL && c->response.fd >= 0)
        r = send_file(s, c);
    return r;
}

/* ---- requests ---- */

static void answer(struct server *s, struct conn *c)
{
    struct http_request *r = c->request;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    http_respond(&c->response, r, s->root_fd, ts.tv_sec);
    if (s->verbose && r->url_len > 0)
        fprintf(stderr, "%d %s %.*s\n", c->response.status, http_method_str(r->parser.method),
                (int)MIN(r->url_len, (size_t)200), r->url);
    else if (s->verbose)
        fprintf(stderr, "%d -\n", c->response.status);
    free(c->request);
    c->request = NULL;
    c->request_begun = false;
    c->head_sent = c->body_sent = 0;
    c->state = SENDING;
    c->since_ns = s->now_ns;
}

/* An answer without a request: 408. */
static void answer_status(struct server *s, struct conn *c, int status)
{
    if (c->request == NULL && (c->request = malloc(sizeof(*c->request))) == NULL)
        return;
    http_request_init(c->request);
    c->request->status = status;
    answer(s, c);
}

/* Parse what is held. False: no memory. */
static bool parse_held(struct server *s, struct conn *c)
{
    while (c->state == READING && c->in_len > 0) {
        if (c->request == NULL) {
            c->request = malloc(sizeof(*c->request));
            if (c->request == NULL)
                return false;
            http_request_init(c->request);
        }
        if (!c->request_begun)
            c->since_ns = s->now_ns;
        c->request_begun = true;
        size_t used = http_request_feed(c->request, c->in, c->in_len);
        c->in_len -= MIN(used, c->in_len);
        memmove(c->in, c->in + used, c->in_len);
        if (c->request->complete || c->request->status != 0)
            answer(s, c);
    }
    return true;
}

/* 1: go on; 0: nothing more now; -1: over. */
static int read_some(struct server *s, struct conn *c)
{
    ssize_t n;
    do {
        n = s->net.ops->recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    if (n == 0)
        return -1; /* between requests, or in the middle of one: nobody to answer */
    c->in_len += (size_t)n;
    return parse_held(s, c) ? 1 : -1;
}

/* After an answer that ends the connection: what the client still sends is read for a while, since
 * closing over unread data would reset the connection and destroy the answer on its way. False:
 * over. */
static bool linger(struct server *s, struct conn *c)
{
    while (c->lingered < LINGER_BYTES) {
        ssize_t n = s->net.ops->recv(c->fd, s->buf, SHARED_BUF, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0)
            return false;
        c->lingered += (uint32_t)n;
    }
    return false;
}

/* An answer is out. False: the connection is over. */
static bool answered(struct server *s, struct conn *c)
{
    bool last = c->response.close;
    http_response_free(&c->response);
    c->response = (struct http_response){.fd = -1};
    c->since_ns = s->now_ns;
    if (last) {
        (void)s->net.ops->shutdown(c->fd, SHUT_WR);
        c->state = LINGERING;
        c->in_len = 0;
        return linger(s, c);
    }
    c->state = READING;
    return parse_held(s, c);
}

/* Whatever can be done for a connection now. */
static void conn_run(struct server *s, struct conn *c, uint32_t events)
{
    bool alive = !(events & EPOLLERR);
    c->starved = false;
    for (int turns = 0; alive && turns < 64; turns++) {
        if (c->state == SENDING) {
            enum sent r = send_response(s, c);
            if (r == SENT_SOME)
                break;
            alive = r == SENT_ALL && answered(s, c);
        } else if (c->state == READING) {
            int r = read_some(s, c);
            alive = r >= 0;
            if (r == 0)
                break;
        } else {
            alive = linger(s, c);
            break;
        }
    }
    if (!alive) {
        conn_close(s, c);
        return;
    }
    if (c->starved)
        arm(s, c, 0); /* it has room, which is not what it waits for */
    else
        arm(s, c, c->state == SENDING ? EPOLLOUT : EPOLLIN | EPOLLRDHUP);
}

/* Those for which the stack had no buffers: perhaps it has some now. */
static void feed_starved(struct server *s)
{
    struct conn *c, *next;
    s->starving = false;
    for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->starved)
            conn_run(s, c, 0);
    }
}

/* Once a second: those whose time is up. */
static void expire(struct server *s)
{
    struct conn *c, *next;
    for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        uint64_t age = s->now_ns - c->since_ns;
        if (c->state == READING && c->request_begun && age > REQUEST_NS) {
            answer_status(s, c, 408);
            conn_run(s, c, 0);
        } else if ((c->state == READING && age > IDLE_NS) ||
                   (c->state == SENDING && age > STALL_NS) ||
                   (c->state == LINGERING && age > 2 * NS_PER_S)) {
            conn_close(s, c);
        }
    }
}

static int loop(struct server *s)
{
    struct epoll_event ev[EVENTS];
    uint64_t last = clock_now_ns();
    update_listening(s);
    while (!ending) {
        int n = s->net.ops->epoll_wait(s->ep, ev, EVENTS, s->starving ? STARVED_MS : 1000);
        if (n < 0 && errno != EINTR)
            return cli_fail("serve", "epoll: %s", strerror(errno));
        s->now_ns = clock_now_ns();
        bool incoming = false;
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr == NULL)
                incoming = true;
            else
                conn_run(s, ev[i].data.ptr, ev[i].events);
        }
        if (incoming)
            accept_some(s);
        if (s->starving)
            feed_starved(s);
        if (s->now_ns - last >= NS_PER_S) {
            last = s->now_ns;
            expire(s);
        }
    }
    return CLI_OK;
}

/* ---- starting ---- */

static int run(struct server *s, const struct sockaddr_storage *sa, const char *cc, uint16_t port)
{
    s->listen_fd = net_listener(&s->net, sa, 4096, SOCK_NONBLOCK);
    if (s->listen_fd < 0)
        return cli_fail("serve", "port %u: %s", port, strerror(errno));
    if (cc != NULL && net_set_cc(&s->net, s->listen_fd, cc) != 0)
        return cli_fail("serve", "congestion control %s: %s", cc, strerror(errno));
    s->ep = s->net.ops->epoll_create();
    s->buf = aligned_alloc(4096, SHARED_BUF + 4096);
    if (s->ep < 0 || s->buf == NULL)
        return cli_fail("serve", "cannot start: %s", strerror(errno));
    fprintf(stderr, "weir serve: listening on port %u (%s stack)\n", port, s->net.ops->name);
    int status = loop(s);
    while (!TAILQ_EMPTY(&s->conns))
        conn_close(s, TAILQ_FIRST(&s->conns));
    s->net.ops->close(s->ep);
    s->net.ops->close(s->listen_fd);
    free(s->buf);
    return status;
}

static const struct option long_options[] = {
    {"help", no_argument, NULL, 'h'},         {"cc", required_argument, NULL, 1000},
    {"stack", required_argument, NULL, 1001}, {"link", required_argument, NULL, 1002},
    {"set", required_argument, NULL, 1003},   {NULL, 0, NULL, 0},
};

struct options {
    struct net_setup setup;
    struct settings sets;
    const char *dir;
    uint16_t port;
    int family;
};

static int parse(int argc, char **argv, struct server *s, struct options *o)
{
    uint64_t v;
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":p:c:v46h", long_options, NULL)) != -1) {
        switch (c) {
        case 'p':
            if (!parse_port(optarg, &o->port))
                return cli_usage("serve", "-p: '%s' is not a port", optarg);
            break;
        case 'c':
            if (!parse_u64(optarg, 1, 1000000, &v))
                return cli_usage("serve", "-c: '%s' is not a count", optarg);
            s->limit = (unsigned)v;
            break;
        case 'v':
            s->verbose = true;
            break;
        case '4':
            o->family = AF_INET;
            break;
        case '6':
            o->family = AF_INET6;
            break;
        case 1000:
            o->setup.cc = optarg;
            break;
        case 1001:
            if (strcmp(optarg, "weir") != 0 && strcmp(optarg, "kernel") != 0)
                return cli_usage("serve", "--stack: '%s' is neither weir nor kernel", optarg);
            o->setup.kernel = optarg[0] == 'k';
            break;
        case 1002:
            o->setup.link = optarg;
            break;
        case 1003:
            if (!settings_add(&o->sets, optarg))
                return cli_usage("serve", "--set: '%s' is not NAME=VALUE", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("serve");
        default:
            return cli_bad_option("serve", c, argv);
        }
    }
    if (argc - optind != 1)
        return cli_usage("serve", "give one directory");
    o->dir = argv[optind];
    return net_check_leading_out("serve", &o->setup);
}

int cmd_serve(int argc, char **argv)
{
    static struct options o = {.port = 8080, .setup = {.name = "weir-serve"}};
    struct server s = {.limit = CONNECTIONS, .ep = -1, .listen_fd = -1};
    struct sockaddr_storage sa;
    char err[256] = "";
    o.setup.sets = &o.sets;
    TAILQ_INIT(&s.conns);
    int status = parse(argc, argv, &s, &o);
    if (status >= 0)
        return status;
    s.root_fd = open(o.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s.root_fd < 0)
        return cli_fail("serve", "%s: %s", o.dir, strerror(errno));
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (net_open(&s.net, &o.setup, err, sizeof(err)) != 0)
        return cli_fail("serve", "%s", err);
    if (net_resolve(NULL, o.port, o.family, &sa, err, sizeof(err)) == 0)
        return cli_fail("serve", "%s", err);
    status = run(&s, &sa, o.setup.cc, o.port);
    net_close(&s.net);
    close(s.root_fd);
    return status;
}
