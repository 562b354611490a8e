/* SPDX-License-Identifier: BSD-2-Clause
 * The control socket's server.
 *
 * How it works: one thread polls the listening socket, an eventfd that asks it to stop, and at most
 * CONTROL_MAX_CLIENTS clients, each a pair of buffers; one more takes the place of the client that
 * has moved no byte for longest, so that idle ones keep nobody out. A complete line is run at once,
 * in that thread: it acquires each stack in turn, so a command sees one stack at rest at a time.
 * The process's own server shows all stacks of a registry; the registry's lock is held while a
 * command runs, which is what control_stop waits for. The order is registry before owner, and no
 * owner ever calls in here. */
#include "control.h"

#include "base/lock.h"
#include "base/owner.h"
#include "base/stack.h"
#include "buf/mbuf.h"
#include "capture.h"
#include "inspect.h"
#include "measure/siftr.h"
#include "measure/tap.h"
#include "stack.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct client {
    int fd; /* -1: free */
    char *in;
    size_t in_len, in_room;
    char *out;
    size_t out_len, out_sent;
    uint64_t last_ns;              /* when it last moved a byte */
    bool closing;                  /* close when the answer is out */
    struct capture_stream *stream; /* what follows the answer; the client asks no more */
    bool stream_ends;              /* all that is left of it is on its way */
};

#define STREAM_CHUNK (256u << 10)
#define STREAM_BUSY_MS 1 /* between looks at the captures: while frames come, */
#define STREAM_IDLE_MS 10
#define STREAM_LAST_NS NS_PER_S /* for slow readers of captures, when the server ends */

struct control {
    pthread_t thread;
    int listen_fd, stop_fd;
    struct weir_stack *only; /* NULL: the registry */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct client client[CONTROL_MAX_CLIENTS];
};

LOCK_CLASS(registry_class, "control");

static struct {
    struct lock lock;
    pid_t pid; /* whose registry this is: a forked child starts over */
    struct weir_stack *stack[CONTROL_MAX_STACKS];
    size_t count;
    struct control *server;
} registry = {.lock = LOCK_STATIC(registry_class)};

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- running a command ---- */

static int run_on_stacks(struct inspect_run *r, struct weir_stack *const *stacks, size_t count)
{
    int status = 0;
    size_t wanted = 0;
    const char *only = r->args->stack;
    for (size_t i = 0; i < count; i++)
        if (only == NULL || strcmp(stacks[i]->name, only) == 0)
            wanted++;
    if (wanted == 0) {
        fprintf(r->err, only != NULL ? "no stack is named %s\n" : "there is no stack%s\n",
                only != NULL ? only : "");
        return 1;
    }
    r->several = wanted > 1;
    for (size_t i = 0; i < count; i++) {
        struct weir_stack *s = stacks[i];
        if (only != NULL && strcmp(s->name, only) != 0)
            continue;
        do {
            if (owner_acquire(s) != 0) {
                fprintf(r->err, "stack %s is busy\n", s->name);
                status = 1;
                break;
            }
            s->now = s->port->now_ns(s->port->ctx);
            status |= inspect_stack(r, s);
            stack_flush(s, s->now);
            stack_leave(s);
            siftr_settle(s);
        } while (r->cursor != 0 && status == 0);
        r->cursor = 0;
    }
    return status | inspect_finish(r);
}

int control_run(struct weir_stack *const *stacks, size_t count, int argc, const char *const *argv,
                int *status, char **out, char **err)
{
    struct inspect_args args;
    size_t out_size, err_size;
    *out = *err = NULL;
    FILE *o = open_memstream(out, &out_size);
    FILE *e = open_memstream(err, &err_size);
    if (o != NULL && e != NULL) {
        struct inspect_run r = {.args = &args, .out = o, .err = e};
        *status = inspect_parse(argc, argv, &args, e);
        if (*status == 0)
            *status = args.command == INSPECT_LOCKSTAT ? inspect_locks(&r)
                                                       : run_on_stacks(&r, stacks, count);
    }
    bool bad = o == NULL || e == NULL || ferror(o) || ferror(e);
    if (o != NULL)
        bad |= fclose(o) != 0;
    if (e != NULL)
        bad |= fclose(e) != 0;
    if (!bad && *out != NULL && *err != NULL)
        return 0;
    free(*out);
    free(*err);
    *out = *err = NULL;
    return -ENOMEM;
}

/* ---- requests and answers ---- */

/* Text may quote what a client sent, cut anywhere: what is no UTF-8 any more is masked. */
static json_t *text_value(char *text)
{
    json_t *v = json_string(text);
    for (char *p = text; v == NULL && *p != '\0'; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    return v != NULL ? v : json_string(text);
}

static char *answer(int status, char *out, char *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "status", json_integer(status));
    json_object_set_new(o, "out", text_value(out));
    json_object_set_new(o, "err", text_value(err));
    char *line = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return line;
}

static char *refuse(const char *why)
{
    char out[] = "", err[128];
    snprintf(err, sizeof(err), "%s\n", why);
    return answer(2, out, err);
}

static int run_registered(const struct control *c, int argc, const char *const *argv, int *status,
                          char **out, char **err)
{
    if (c->only != NULL)
        return control_run(&c->only, 1, argc, argv, status, out, err);
    lock_acquire(&registry.lock);
    int e = control_run(registry.stack, registry.count, argc, argv, status, out, err);
    lock_release(&registry.lock);
    return e;
}

/* All stacks that this server shows, held until let_go_stacks. */
TS_NO_ANALYSIS static size_t hold_stacks(const struct control *c, struct weir_stack *const **stacks)
{
    if (c->only != NULL) {
        *stacks = &c->only;
        return 1;
    }
    lock_acquire(&registry.lock);
    *stacks = registry.stack;
    return registry.count;
}

TS_NO_ANALYSIS static void let_go_stacks(const struct control *c)
{
    if (c->only == NULL)
        lock_release(&registry.lock);
}

/* tcpdump: an answer that a stream follows. Without a place for it (stream NULL) refused. */
static char *open_stream(const struct control *c, int argc, const char *const *argv,
                         struct capture_stream **stream)
{
    char *err = NULL, *reply = NULL, out[] = "";
    size_t size;
    int status = 1;
    FILE *e = open_memstream(&err, &size);
    struct capture_stream *cap = NULL;
    if (e == NULL)
        return NULL;
    if (stream == NULL)
        fputs("tcpdump: too many captures\n", e);
    else
        cap = capture_open(argc, argv, e, &status);
    if (cap != NULL) {
        struct weir_stack *const *stacks;
        size_t count = hold_stacks(c, &stacks);
        if (!capture_sync(cap, stacks, count, e)) {
            capture_detach(cap);
            status = 1;
        }
        let_go_stacks(c);
    }
    if (fclose(e) == 0)
        reply = answer(status, out, err);
    free(err);
    if (cap != NULL && status == 0 && reply != NULL)
        *stream = cap;
    else
        capture_close(cap);
    return reply;
}

/* The answer to one line; malloc'ed, NULL: no memory. *stream: what follows it, where it is NULL
 * before. */
static char *serve_request(const struct control *c, const char *line, size_t len,
                           struct capture_stream **stream)
{
    const char *argv[CONTROL_MAX_ARGS + 1] = {0};
    char *out, *err, *reply = NULL;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(o, "argv");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > CONTROL_MAX_ARGS) {
        json_decref(o);
        return refuse("a request is {\"argv\":[...]} on one line");
    }
    for (size_t i = 0; i < n; i++) {
        argv[i] = json_string_value(json_array_get(list, i));
        if (argv[i] == NULL) {
            json_decref(o);
            return refuse("arguments must be strings");
        }
    }
    int status = 1;
    if (strcmp(argv[0], "tcpdump") == 0)
        reply = open_stream(c, (int)n, argv, stream);
    else if (run_registered(c, (int)n, argv, &status, &out, &err) == 0) {
        reply = answer(status, out, err);
        free(out);
        free(err);
    }
    json_decref(o);
    return reply;
}

/* ---- clients ---- */

static void stream_detach(const struct control *c, struct client *cl)
{
    struct weir_stack *const *stacks;
    (void)hold_stacks(c, &stacks);
    capture_detach(cl->stream);
    let_go_stacks(c);
}

static void client_close(const struct control *c, struct client *cl)
{
    if (cl->stream != NULL)
        stream_detach(c, cl);
    capture_close(cl->stream);
    close(cl->fd);
    free(cl->in);
    free(cl->out);
    *cl = (struct client){.fd = -1};
}

static void client_answer(struct client *cl, char *line)
{
    if (line == NULL) {
        cl->closing = true;
        return;
    }
    cl->out_len = strlen(line);
    cl->out_sent = 0;
    line[cl->out_len++] = '\n'; /* in place of the terminator */
    cl->out = line;
}

static void client_write(struct client *cl)
{
    while (cl->out_sent < cl->out_len) {
        ssize_t n = send(cl->fd, cl->out + cl->out_sent, cl->out_len - cl->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            cl->closing = true;
            break;
        }
        cl->out_sent += (size_t)n;
        cl->last_ns = clock_ns();
    }
    free(cl->out);
    cl->out = NULL;
    cl->out_len = cl->out_sent = 0;
}

/* Captures keep their places while they last, so some are left for other questions. */
static bool may_stream(const struct control *c)
{
    unsigned streams = 0;
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++)
        streams += c->client[i].stream != NULL;
    return streams < CONTROL_MAX_STREAMS;
}

/* Serve the complete lines that are held, one answer at a time. */
static void client_serve(const struct control *c, struct client *cl)
{
    while (cl->out == NULL && !cl->closing && cl->stream == NULL) {
        char *end = cl->in_len > 0 ? memchr(cl->in, '\n', cl->in_len) : NULL;
        if (end == NULL)
            break;
        size_t len = (size_t)(end - cl->in);
        client_answer(cl, serve_request(c, cl->in, len, may_stream(c) ? &cl->stream : NULL));
        cl->in_len -= len + 1;
        memmove(cl->in, end + 1, cl->in_len);
        client_write(cl);
    }
    if (cl->stream != NULL)
        cl->in_len = 0;
    if (cl->out == NULL && !cl->closing && cl->in_len == CONTROL_MAX_REQUEST) {
        client_answer(cl, refuse("the request is too long"));
        client_write(cl);
        cl->closing = true;
    }
}

static void client_read(const struct control *c, struct client *cl)
{
    if (cl->in_len == cl->in_room) {
        size_t room = cl->in_room > 0 ? MIN(2 * cl->in_room, (size_t)CONTROL_MAX_REQUEST) : 1024;
        char *bigger = realloc(cl->in, room);
        if (bigger == NULL) {
            cl->closing = true;
            return;
        }
        cl->in = bigger;
        cl->in_room = room;
    }
    ssize_t n = recv(cl->fd, cl->in + cl->in_len, cl->in_room - cl->in_len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 0 && cl->stream != NULL) {
        if (!cl->stream_ends) {
            stream_detach(c, cl);
            cl->stream_ends = true;
            cl->last_ns = clock_ns();
        }
        return;
    }
    if (n <= 0) {
        cl->closing = true;
        return;
    }
    if (cl->stream != NULL)
        return; /* nothing more is understood */
    cl->in_len += (size_t)n;
    cl->last_ns = clock_ns();
    client_serve(c, cl);
}

/* More of a capture, when what was sent before is out. True: there was something. */
static bool stream_more(const struct control *c, struct client *cl)
{
    char *text = NULL;
    size_t size;
    struct weir_stack *const *stacks;
    if (cl->stream == NULL || cl->out != NULL || cl->closing)
        return false;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        cl->closing = true;
        return false;
    }
    if (!cl->stream_ends) { /* stacks that are new */
        size_t count = hold_stacks(c, &stacks);
        (void)capture_sync(cl->stream, stacks, count, stderr);
        let_go_stacks(c);
    }
    bool any = capture_write(cl->stream, out, STREAM_CHUNK);
    if (!any && cl->stream_ends) {
        capture_finish(cl->stream, out);
        cl->closing = true;
    }
    if (fclose(out) != 0 || size == 0) {
        cl->closing |= size != 0;
        free(text);
        return any;
    }
    cl->out = text;
    cl->out_len = size;
    cl->out_sent = 0;
    return any;
}

/* The server ends: what a capture holds still goes out, to those who read, until `end_ns`. */
static void stream_flush(const struct control *c, struct client *cl, uint64_t end_ns)
{
    if (!cl->stream_ends)
        stream_detach(c, cl);
    cl->stream_ends = true;
    for (uint64_t now; (now = clock_ns()) < end_ns;) {
        (void)stream_more(c, cl);
        if (cl->out == NULL)
            return;
        struct pollfd pfd = {.fd = cl->fd, .events = POLLOUT};
        (void)poll(&pfd, 1, (int)((end_ns - now) / NS_PER_MS) + 1);
        client_write(cl);
    }
}

/* A place for one more. Those that were served in this turn have moved a byte, the others wait. */
static struct client *client_place(struct control *c)
{
    struct client *oldest = NULL;
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++) {
        struct client *cl = &c->client[i];
        if (cl->fd < 0)
            return cl;
        if (cl->stream == NULL && (oldest == NULL || cl->last_ns < oldest->last_ns))
            oldest = cl;
    }
    CHECK(oldest != NULL); /* CONTROL_MAX_STREAMS */
    client_close(c, oldest);
    return oldest;
}

static void accept_client(struct control *c)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    bool allowed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
                   (peer.uid == geteuid() || peer.uid == 0);
    if (allowed)
        *client_place(c) = (struct client){.fd = fd, .last_ns = clock_ns()};
    else
        close(fd);
}

/* ---- the thread ---- */

/* Fill the poll set: [0] stop, [1] listener, then the clients. */
static int poll_clients(struct control *c, struct pollfd *pfd, bool busy)
{
    bool any = false, streams = false;
    pfd[0] = (struct pollfd){.fd = c->stop_fd, .events = POLLIN};
    pfd[1] = (struct pollfd){.fd = c->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++) {
        struct client *cl = &c->client[i];
        pfd[2 + i] = (struct pollfd){.fd = cl->fd, .events = cl->out != NULL ? POLLOUT : POLLIN};
        if (cl->stream != NULL && !cl->stream_ends)
            pfd[2 + i].events |= POLLIN; /* its end */
        streams |= cl->stream != NULL && cl->out == NULL;
        any |= cl->fd >= 0;
    }
    int patience = any ? 1000 : -1;
    if (streams)
        patience = busy ? STREAM_BUSY_MS : STREAM_IDLE_MS;
    return poll(pfd, 2 + CONTROL_MAX_CLIENTS, patience);
}

static void *control_thread(void *arg)
{
    struct control *c = arg;
    struct pollfd pfd[2 + CONTROL_MAX_CLIENTS];
    bool busy = false;
    while (true) {
        if (poll_clients(c, pfd, busy) < 0 && errno != EINTR)
            break;
        if (pfd[0].revents != 0)
            break;
        uint64_t now = clock_ns();
        busy = false;
        for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++) {
            struct client *cl = &c->client[i];
            if (cl->fd < 0)
                continue;
            if (cl->out != NULL && (pfd[2 + i].revents & ~POLLIN) != 0) {
                client_write(cl);
                client_serve(c, cl);
            }
            if ((pfd[2 + i].revents & ~POLLOUT) != 0 && !cl->closing)
                client_read(c, cl);
            if (stream_more(c, cl)) {
                busy = true;
                client_write(cl);
            }
            bool stale = (cl->stream == NULL || cl->stream_ends) && now > cl->last_ns &&
                         now - cl->last_ns > CONTROL_IDLE_S * NS_PER_S;
            if ((cl->closing && cl->out == NULL) || stale)
                client_close(c, cl);
        }
        if (pfd[1].revents != 0)
            accept_client(c);
    }
    uint64_t end = clock_ns() + STREAM_LAST_NS;
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++)
        if (c->client[i].stream != NULL)
            stream_flush(c, &c->client[i], end);
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++)
        if (c->client[i].fd >= 0)
            client_close(c, &c->client[i]);
    mbuf_thread_exit(); /* tcpdrop sends resets */
    return NULL;
}

/* ---- opening and closing ---- */

/* True when somebody answers at the path. */
static bool socket_is_live(const struct sockaddr_un *sun)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    bool live = connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0 || errno == EAGAIN;
    close(fd);
    return live;
}

/* Make way at a path: a socket that nobody serves is removed. 0, -EADDRINUSE, -EEXIST (not a
 * socket). */
static int clear_path(const struct sockaddr_un *sun)
{
    struct stat st;
    if (lstat(sun->sun_path, &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    if (socket_is_live(sun))
        return -EADDRINUSE;
    return unlink(sun->sun_path) != 0 && errno != ENOENT ? -errno : 0;
}

static int listen_at(const char *path, int *fd_out)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(sun.sun_path))
        return -ENAMETOOLONG;
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int e = clear_path(&sun);
    if (e != 0)
        return e;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    /* The mode set before bind is the one the file is born with: no moment at which others may
     * connect. */
    if (fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0 ||
        listen(fd, 16) != 0) {
        e = -errno;
        close(fd);
        return e;
    }
    *fd_out = fd;
    return 0;
}

struct control *control_open(const char *path, struct weir_stack *only, int *error)
{
    int scratch;
    sigset_t all, old;
    if (error == NULL)
        error = &scratch;
    struct control *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        *error = -ENOMEM;
        return NULL;
    }
    c->only = only;
    c->listen_fd = c->stop_fd = -1;
    for (size_t i = 0; i < CONTROL_MAX_CLIENTS; i++)
        c->client[i].fd = -1;
    *error = listen_at(path, &c->listen_fd);
    if (*error != 0)
        goto fail;
    snprintf(c->path, sizeof(c->path), "%s", path);
    c->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (c->stop_fd < 0) {
        *error = -errno;
        goto fail;
    }
    sigfillset(&all); /* the application's signals are not for this thread */
    pthread_sigmask(SIG_BLOCK, &all, &old);
    *error = -pthread_create(&c->thread, NULL, control_thread, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (*error != 0)
        goto fail;
    pthread_setname_np(c->thread, "weir-control");
    return c;
fail:
    if (c->stop_fd >= 0)
        close(c->stop_fd);
    if (c->listen_fd >= 0) {
        close(c->listen_fd);
        if (c->path[0] != '\0')
            unlink(c->path);
    }
    free(c);
    return NULL;
}

void control_close(struct control *c)
{
    uint64_t one = 1;
    if (c == NULL)
        return;
    unlink(c->path);
    if (write(c->stop_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(c->thread, NULL);
    close(c->stop_fd);
    close(c->listen_fd);
    free(c);
}

/* ---- the process's own socket ---- */

int control_directory(char *path, size_t size, bool create)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int n;
    if (xdg != NULL && xdg[0] == '/')
        n = snprintf(path, size, "%s/weir", xdg);
    else
        n = snprintf(path, size, "/tmp/weir-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &st) != 0)
        return -errno;
    /* In /tmp anybody could have made it first: then it is not trusted. */
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return -EPERM;
    return 0;
}

/* Remove the sockets of processes that are gone. Asked by connecting: pids of other containers mean
 * nothing here. */
static void clean_directory(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    for (int seen = 0; d != NULL && seen < 4096 && (e = readdir(d)) != NULL; seen++) {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        size_t len = strlen(e->d_name);
        int n = snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s", dir, e->d_name);
        if (len > 5 && strcmp(e->d_name + len - 5, ".sock") == 0 && n > 0 &&
            (size_t)n < sizeof(sun.sun_path))
            (void)clear_path(&sun);
    }
    if (d != NULL)
        closedir(d);
}

static struct control *open_own(int *error)
{
    char dir[128], path[192];
    struct control *c = NULL;
    *error = control_directory(dir, sizeof(dir), true);
    if (*error != 0)
        return NULL;
    clean_directory(dir);
    for (int i = 0; c == NULL && i < 16;
         i++) { /* a process of another container may have our pid */
        if (i == 0)
            snprintf(path, sizeof(path), "%s/%d.sock", dir, (int)getpid());
        else
            snprintf(path, sizeof(path), "%s/%d-%d.sock", dir, (int)getpid(), i);
        c = control_open(path, NULL, error);
        if (*error != -EADDRINUSE)
            break;
    }
    return c;
}

/* A forked child inherits the registry and descriptors, but neither thread nor (maybe) a free
 * lock. */
static void registry_check_fork(void)
{
    if (registry.pid == getpid())
        return;
    lock_class_register(&registry_class);
    if (registry.pid != 0) {
        lock_init(&registry.lock, &registry_class);
        if (registry.server != NULL) {
            close(registry.server->listen_fd);
            close(registry.server->stop_fd);
            free(registry.server);
        }
        registry.server = NULL;
        registry.count = 0;
    }
    registry.pid = getpid();
}

int control_start(struct weir_stack *s)
{
    int error = 0;
    registry_check_fork();
    lock_acquire(&registry.lock);
    if (registry.count == CONTROL_MAX_STACKS) {
        error = -ENOSPC;
    } else {
        registry.stack[registry.count++] = s;
        if (registry.server == NULL)
            registry.server = open_own(&error);
    }
    lock_release(&registry.lock);
    return error;
}

void control_stop(struct weir_stack *s)
{
    struct control *last = NULL;
    registry_check_fork();
    lock_acquire(&registry.lock);
    for (size_t i = 0; i < registry.count; i++) {
        if (registry.stack[i] != s)
            continue;
        registry.count--;
        if (owner_acquire(s) == 0) {
            tap_detach_all(s);
            stack_leave(s);
        }
        memmove(&registry.stack[i], &registry.stack[i + 1],
                (registry.count - i) * sizeof(registry.stack[0]));
        break;
    }
    if (registry.count == 0) {
        last = registry.server;
        registry.server = NULL;
    }
    lock_release(&registry.lock);
    control_close(last); /* unlocked: its thread may be waiting for the registry */
}

const char *control_path(void)
{
    return registry.server != NULL ? registry.server->path : NULL;
}
