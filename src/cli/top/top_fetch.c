/* SPDX-License-Identifier: BSD-2-Clause
 * A request for a snapshot whose answer is taken as it comes, so that keys work meanwhile. Each has
 * a connection of its own: the instance cuts off clients that are silent for long. */
#include "cli/cli.h"
#include "top.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 << 20)

static const char request[] = "{\"argv\":[\"snapshot\"]}\n";

int top_fetch_start(struct top_fetch *f)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    top_fetch_stop(f);
    if (strlen(f->path) >= sizeof(sun.sun_path))
        return -ENAMETOOLONG;
    memcpy(sun.sun_path, f->path, strlen(f->path) + 1);
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (f->fd < 0)
        return -errno;
    ssize_t n = -1;
    /* A new connection takes so few bytes at once. */
    if (connect(f->fd, (struct sockaddr *)&sun, sizeof(sun)) == 0)
        n = send(f->fd, request, strlen(request), MSG_NOSIGNAL);
    if (n == (ssize_t)strlen(request)) {
        f->since_ns = clock_now_ns();
        return 0;
    }
    int e = n >= 0 ? EAGAIN : errno;
    top_fetch_stop(f);
    return -e;
}

int top_fetch_step(struct top_fetch *f)
{
    while (true) {
        if (f->len == f->room) {
            size_t room = f->room > 0 ? 2 * f->room : 65536;
            char *bigger = room <= ANSWER_MAX ? realloc(f->buf, room) : NULL;
            if (bigger == NULL)
                return -EMSGSIZE;
            f->buf = bigger;
            f->room = room;
        }
        ssize_t n = recv(f->fd, f->buf + f->len, f->room - f->len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (n == 0)
            return -ECONNRESET;
        f->len += (size_t)n;
        if (f->buf[f->len - 1] == '\n')
            return 1;
    }
}

struct top_snapshot *top_fetch_take(struct top_fetch *f, char *why, size_t size)
{
    struct top_snapshot *s = NULL;
    json_t *o = json_loadb(f->buf, f->len, 0, NULL);
    const char *err = json_string_value(json_object_get(o, "err"));
    const json_t *out = json_object_get(o, "out");
    /* A stack that was busy is left out of an answer that is good for the others. */
    if (json_string_length(out) > 0)
        s = top_snapshot_parse(json_string_value(out), json_string_length(out));
    if (s == NULL)
        snprintf(why, size, "%s",
                 err != NULL && err[0] != '\0' ? err
                                               : "the instance did not answer in its protocol");
    why[strcspn(why, "\n")] = '\0';
    json_decref(o);
    top_fetch_stop(f);
    return s;
}

void top_fetch_stop(struct top_fetch *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->len = 0;
}
