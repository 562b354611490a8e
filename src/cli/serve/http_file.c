/* SPDX-License-Identifier: BSD-2-Clause
 * From a request to its answer: opens files beneath the root, lists directories. */
#include "http.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) /* a FIFO must not block us */
#define LISTING_ENTRIES 10000

static const char *reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 206:
        return "Partial Content";
    case 301:
        return "Moved Permanently";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 416:
        return "Range Not Satisfiable";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Internal Server Error";
    }
}

static void PRINTF_LIKE(2, 3) head_add(struct http_response *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->head + o->head_len, sizeof(o->head) - o->head_len, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && (size_t)n < sizeof(o->head) - o->head_len); /* every caller's text is bounded */
    o->head_len += (size_t)n;
}

static void head_begin(struct http_response *o, int status, time_t now)
{
    char date[32];
    http_date(now, date);
    o->status = status;
    o->head_len = 0;
    head_add(o, "HTTP/1.1 %d %s\r\nServer: weir\r\nDate: %s\r\n", status, reason(status), date);
}

static void head_end(struct http_response *o)
{
    head_add(o, "Connection: %s\r\n\r\n", o->close ? "close" : "keep-alive");
}

/* A short text as the answer. */
static void respond_text(struct http_response *o, int status, const struct http_request *r,
                         time_t now)
{
    head_begin(o, status, now);
    int n = asprintf(&o->body, "%d %s\n", status, reason(status));
    o->body_len = n > 0 ? (size_t)n : 0;
    if (n < 0)
        o->body = NULL;
    if (status == 405)
        head_add(o, "Allow: GET, HEAD\r\n");
    head_add(o, "Content-Type: text/plain\r\nContent-Length: %zu\r\n", o->body_len);
    head_end(o);
    if (r->head)
        o->body_len = 0;
}

/* Step by step without following any link: for kernels (and sandboxes) without openat2. */
static int open_stepwise(int root_fd, const char *path)
{
    char part[NAME_MAX + 1];
    int dir = openat(root_fd, ".", OPEN_FLAGS | O_DIRECTORY);
    while (dir >= 0 && *path != '\0') {
        size_t n = strcspn(path, "/");
        if (n > NAME_MAX) {
            close(dir);
            return -ENAMETOOLONG;
        }
        memcpy(part, path, n);
        part[n] = '\0';
        path += n + strspn(path + n, "/");
        if (n == 0)
            continue;
        int next = strcmp(part, "..") == 0 ? -1 : openat(dir, part, OPEN_FLAGS | O_NOFOLLOW);
        int e = strcmp(part, "..") == 0 ? EXDEV : errno;
        close(dir);
        if (next < 0)
            return -e;
        dir = next;
    }
    return dir >= 0 ? dir : -errno;
}

int http_open_beneath(int root_fd, const char *path)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    while (*path == '/')
        path++;
    long fd;
    for (int tries = 0; tries < 16; tries++) { /* EAGAIN: a rename raced with ".." in a link */
        fd = syscall(SYS_openat2, root_fd, *path != '\0' ? path : ".", &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_stepwise(root_fd, path);
    return fd >= 0 ? (int)fd : -errno;
}

static int status_of(int error)
{
    switch (error) {
    case -ENOENT:
    case -ENOTDIR:
        return 404;
    case -EACCES:
    case -EPERM:
    case -EXDEV:
    case -ELOOP:
    case -ENXIO:
    case -ENODEV:
        return 403;
    case -ENAMETOOLONG:
        return 414;
    case -EMFILE:
    case -ENFILE:
    case -ENOMEM:
        return 503;
    default:
        return 500;
    }
}

static void respond_file(struct http_response *o, const struct http_request *r, const char *path,
                         int fd, const struct stat *st, time_t now)
{
    char modified[32];
    time_t since;
    uint64_t size = (uint64_t)st->st_size, from = 0, len = size;
    int part = 0;
    http_date(st->st_mtime, modified);
    /* Ranges are for GET alone (RFC 9110 14.2). */
    bool ranged = !r->head && r->range[0] != '\0' && !r->range_long &&
                  (r->if_range[0] == '\0' || strcmp(r->if_range, modified) == 0);
    if (ranged)
        part = http_parse_range(r->range, size, &from, &len);
    if (r->since[0] != '\0' && !r->since_long && http_parse_date(r->since, &since) &&
        st->st_mtime <= since) {
        head_begin(o, 304, now);
        head_add(o, "Last-Modified: %s\r\n", modified);
        head_end(o);
        close(fd);
        return;
    }
    if (part < 0) {
        head_begin(o, 416, now);
        head_add(o, "Content-Range: bytes */%" PRIu64 "\r\nContent-Length: 0\r\n", size);
        head_end(o);
        close(fd);
        return;
    }
    if (part == 0)
        from = 0, len = size;
    head_begin(o, part > 0 ? 206 : 200, now);
    head_add(o,
             "Content-Type: %s\r\nContent-Length: %" PRIu64
             "\r\nLast-Modified: %s\r\nAccept-Ranges: bytes\r\n",
             http_content_type(path), len, modified);
    if (part > 0)
        head_add(o, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", from,
                 from + len - 1, size);
    head_end(o);
    if (r->head || len == 0) {
        close(fd);
        return;
    }
    o->fd = fd;
    o->off = from;
    o->left = len;
}

static void list_entry(FILE *f, const char *name, bool directory)
{
    char *url = http_escape_url(name), *text = http_escape_html(name);
    if (url != NULL && text != NULL)
        fprintf(f, "<li><a href=\"%s%s\">%s%s</a></li>\n", url, directory ? "/" : "", text,
                directory ? "/" : "");
    free(url);
    free(text);
}

static int skip_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* A list of the names in a directory, bounded; fd is consumed. */
static void respond_listing(struct http_response *o, const struct http_request *r, const char *path,
                            int fd, time_t now)
{
    struct dirent **names = NULL;
    size_t size = 0;
    char *title = http_escape_html(path);
    int n = scandirat(fd, ".", &names, skip_hidden, alphasort);
    FILE *f = n >= 0 && title != NULL ? open_memstream(&o->body, &size) : NULL;
    if (f != NULL)
        fprintf(
            f,
            "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>/%s</title>\n<h1>/%s</h1>\n<ul>\n",
            title, title);
    for (int i = 0; i < n; i++) {
        if (f != NULL && i < LISTING_ENTRIES && ftello(f) < HTTP_MAX_LISTING)
            list_entry(f, names[i]->d_name, names[i]->d_type == DT_DIR);
        free(names[i]);
    }
    free(names);
    free(title);
    close(fd);
    if (f != NULL)
        fputs("</ul>\n", f);
    if (f == NULL || fclose(f) != 0) {
        free(o->body);
        o->body = NULL;
        respond_text(o, 503, r, now);
        return;
    }
    o->body_len = size;
    head_begin(o, 200, now);
    head_add(o, "Content-Type: text/html; charset=utf-8\r\nContent-Length: %zu\r\n", size);
    head_end(o);
    if (r->head)
        o->body_len = 0;
}

static void respond_redirect(struct http_response *o, const struct http_request *r, time_t now)
{
    struct http_parser_url u;
    http_parser_url_init(&u);
    if (http_parser_parse_url(r->url, r->url_len, 0, &u) != 0 || u.field_data[UF_PATH].len > 512) {
        respond_text(o, 404, r, now);
        return;
    }
    const char *p = r->url + u.field_data[UF_PATH].off;
    int n = u.field_data[UF_PATH].len;
    while (n > 1 && p[0] == '/' && p[1] == '/') /* "//x/" would name a host */
        p++, n--;
    head_begin(o, 301, now);
    head_add(o, "Location: %.*s/\r\nContent-Length: 0\r\n", n, p);
    head_end(o);
}

static void respond_directory(struct http_response *o, const struct http_request *r,
                              const char *path, int fd, time_t now)
{
    struct stat st;
    size_t len = strlen(path);
    if (len > 0 && path[len - 1] != '/') {
        close(fd);
        respond_redirect(o, r, now);
        return;
    }
    int index = http_open_beneath(fd, "index.html");
    if (index >= 0 && fstat(index, &st) == 0 && S_ISREG(st.st_mode)) {
        close(fd);
        respond_file(o, r, "index.html", index, &st, now);
        return;
    }
    if (index >= 0)
        close(index);
    respond_listing(o, r, path, fd, now);
}

void http_respond(struct http_response *o, const struct http_request *r, int root_fd, time_t now)
{
    char path[HTTP_MAX_URL + 1];
    struct stat st;
    *o = (struct http_response){.fd = -1, .close = r->status != 0 || !r->keep_alive};
    int status = r->status;
    if (status == 0)
        status = http_decode_target(r->url, r->url_len, false, path);
    if (status != 0) {
        respond_text(o, status, r, now);
        return;
    }
    int fd = http_open_beneath(root_fd, path);
    if (fd < 0 || fstat(fd, &st) != 0) {
        respond_text(o, status_of(fd < 0 ? fd : -errno), r, now);
        if (fd >= 0)
            close(fd);
        return;
    }
    size_t len = strlen(path);
    if (S_ISDIR(st.st_mode)) {
        respond_directory(o, r, path, fd, now);
    } else if (S_ISREG(st.st_mode) && (len == 0 || path[len - 1] != '/')) {
        respond_file(o, r, path, fd, &st, now);
    } else {
        close(fd);
        respond_text(o, S_ISREG(st.st_mode) ? 404 : 403, r, now);
    }
}

void http_response_free(struct http_response *o)
{
    free(o->body);
    if (o->fd >= 0)
        close(o->fd);
    o->body = NULL;
    o->fd = -1;
}
