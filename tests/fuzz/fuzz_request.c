/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: whatever a client of the control socket or of `weir serve` sends, the server answers or
 * refuses it, reads nothing beyond it, opens nothing outside its directory, and what it thinks of a
 * request does not depend on the pieces in which it came. Bound: one request an input.
 *
 * The input: a byte that says which server and the size of pieces, then the request. */
#include "fuzz.h"

/* The server's request handling has no other entrance than its socket. */
#include "runtime/control.c"

#include "cli/serve/http.h"
#include "sim.h"
#include <limits.h>

#define MAX_LEN 4096

/* --- the control socket --- */
static void control_request(const char *line, size_t len)
{
    struct sim *sim = sim_create(3, 0);
    struct weir_stack *s = sim_stack(sim, "control");
    struct control c = {.only = s};
    int fd = weir_socket(s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(fd >= 0 && weir_listen(fd, 1) == 0);
    struct capture_stream *stream = NULL;
    char *reply = serve_request(&c, line, len, &stream);
    FUZZ_CHECK(reply);
    json_t *o = json_loads(reply, 0, NULL); /* every answer is an answer */
    FUZZ_CHECK(json_is_integer(json_object_get(o, "status")) &&
               json_is_string(json_object_get(o, "out")) &&
               json_is_string(json_object_get(o, "err")) && !strchr(reply, '\n'));
    json_decref(o);
    free(reply);
    if (stream != NULL)
        capture_detach(stream);
    capture_close(stream);
    (void)weir_close(fd);
    sim_destroy(sim);
    sysctl_init(&(struct knobs){0}); /* the process's knobs are as they were */
}

/* --- HTTP --- */
static int root_fd = -1;
static char root_path[PATH_MAX];

static void make_file(const char *name, const char *text)
{
    int fd = openat(root_fd, name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    FUZZ_CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void remove_root(void)
{
    static const char *const names[] = {"root/a.txt", "root/index.html", "root/link",
                                        "root/sub/b.txt", "secret"};
    char path[PATH_MAX];
    root_path[strlen(root_path) - strlen("/root")] = '\0';
    for (size_t i = 0; i < NELEM(names); i++) {
        snprintf(path, sizeof(path), "%.4000s/%s", root_path, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%.4000s/root/sub", root_path);
    rmdir(path);
    snprintf(path, sizeof(path), "%.4000s/root", root_path);
    rmdir(path);
    rmdir(root_path);
}

static void open_root(void)
{
    char base[] = "/tmp/weir-fuzz-XXXXXX";
    FUZZ_CHECK(mkdtemp(base));
    snprintf(root_path, sizeof(root_path), "%s/root", base);
    FUZZ_CHECK(mkdir(root_path, 0755) == 0);
    root_fd = open(root_path, O_RDONLY | O_DIRECTORY);
    FUZZ_CHECK(root_fd >= 0 && mkdirat(root_fd, "sub", 0755) == 0);
    make_file("a.txt", "alpha");
    make_file("sub/b.txt", "beta");
    make_file("../secret", "not to be seen");
    FUZZ_CHECK(symlinkat("../secret", root_fd, "link") == 0);
    atexit(remove_root);
}

static size_t feed(struct http_request *r, const char *text, size_t len, size_t piece)
{
    size_t at = 0;
    http_request_init(r);
    while (at < len && !r->complete && r->status == 0) {
        size_t n = MIN(piece, len - at);
        char *exact = malloc(n);
        FUZZ_CHECK(exact);
        memcpy(exact, text + at, n);
        size_t used = http_request_feed(r, exact, n);
        free(exact);
        FUZZ_CHECK(used <= n);
        at += used;
        if (used < n && !r->complete && r->status == 0)
            break;
    }
    return at;
}

static void check_file(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    FUZZ_CHECK(n > 0);
    path[n] = '\0';
    FUZZ_CHECK(strncmp(path, root_path, strlen(root_path)) == 0 && !strstr(path, "secret"));
}

static void http_request_in(const char *text, size_t len, size_t piece)
{
    static struct http_request r, whole;
    struct http_response o;
    if (root_fd < 0)
        open_root();
    size_t used = feed(&r, text, len, piece), used_whole = feed(&whole, text, len, len ? len : 1);
    FUZZ_CHECK(r.complete == whole.complete && r.status == whole.status);
    if (r.complete)
        FUZZ_CHECK(used == used_whole && strcmp(r.url, whole.url) == 0 &&
                   r.keep_alive == whole.keep_alive);
    if (!r.complete && !r.status)
        return;
    http_respond(&o, &r, root_fd, 784111777);
    FUZZ_CHECK(o.status >= 200 && o.status < 600 && o.head_len > 0 && o.head_len <= sizeof(o.head));
    FUZZ_CHECK(memmem(o.head, o.head_len, "\r\n\r\n", 4) == o.head + o.head_len - 4);
    if (o.fd >= 0)
        check_file(o.fd);
    http_response_free(&o);
}

/* --- the pure parts --- */
static void http_parts(const uint8_t *p, size_t n)
{
    static char out[HTTP_MAX_URL + 1];
    char text[256] = "";
    uint64_t from = 0, len = 0, size = n ? (uint64_t)p[0] * p[0] * p[0] : 0;
    time_t t;
    memcpy(text, p, MIN(n, sizeof(text) - 1));
    if (http_decode_target((const char *)p, n, n & 1, out) == 0) {
        FUZZ_CHECK(out[0] != '/' && strlen(out) <= n);
        FUZZ_CHECK(strcmp(out, "..") != 0 && strncmp(out, "../", 3) != 0 && !strstr(out, "/../"));
        char *html = http_escape_html(out), *url = http_escape_url(out);
        FUZZ_CHECK(html && url && !strpbrk(html, "<>\"") && !strpbrk(url, " <>\"\r\n"));
        free(html);
        free(url);
    }
    if (http_parse_range(text, size, &from, &len) == 1)
        FUZZ_CHECK(len > 0 && from < size && len <= size - from);
    if (http_parse_date(text, &t) && t >= 0) { /* what is older is written as 1970 */
        char date[32];
        time_t again;
        http_date(t, date);
        FUZZ_CHECK(http_parse_date(date, &again) && again == t);
    }
    FUZZ_CHECK(http_content_type(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > MAX_LEN)
        return 0;
    size_t n = size - 1;
    char *text = malloc(n ? n : 1);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, n);
    switch (data[0] & 3) {
    case 0:
        control_request(text, n);
        break;
    case 1:
        http_parts((uint8_t *)text, n);
        break;
    default:
        http_request_in(text, n, 1 + (data[0] >> 2));
    }
    free(text);
    return 0;
}

/* --- seeds --- */
static void seed(unsigned i, struct fuzz_out *o)
{
    static const struct {
        uint8_t kind;
        const char *text;
    } seeds[] = {
        {0, "{\"argv\":[\"sysctl\",\"-a\"]}"},
        {0, "{\"argv\":[\"sysctl\",\"net.inet.tcp.msl=1000\",\"-d\",\"kern.ipc.maxsockbuf\"]}"},
        {0, "{\"argv\":[\"netstat\",\"-an\",\"-f\",\"inet6\"]}"},
        {0, "{\"argv\":[\"netstat\",\"-s\",\"-p\",\"tcp\",\"-J\"]}"},
        {0, "{\"argv\":[\"netstat\",\"-e\",\"-J\",\"-P\",\"80\",\"-t\",\"LISTEN\"]}"},
        {0, "{\"argv\":[\"metrics\",\"text\"]}"},
        {0, "{\"argv\":[\"tcpdump\",\"snaplen=96\",\"buffer=1\",\"raw=1,6 0 0 65535\"]}"},
        {0, "{\"argv\":[\"tcpdump\",\"interface=lo0\",\"ethernet=2,5 0 0 0,6 0 0 1\"]}"},
        {0, "{\"argv\":[\"netstat\",\"-m\",\"-S\",\"control\"]}"},
        {0, "{\"argv\":[\"tcpdrop\",\"10.0.0.1\",\"80\",\"10.0.0.2\",\"1000\"]}"},
        {0, "{\"argv\":[\"tcpdrop\",\"-a\",\"-s\",\"LISTEN\"]}"},
        {0, "{\"argv\":[\"tcpdrop\",\"[fd00::1]:80\",\"[fd00::2]:1000\"],\"x\":[[1e9,null]]}"},
        {0, "{\"argv\":[\"\\u0000\",\"\\ud800\"]}"},
        {1, "/a%20b/..c?q=/../"},
        {1, "http://h/%2e%2e/x"},
        {1, "bytes=0-5"},
        {1, "bytes=-3"},
        {1, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {1, "Sunday, 06-Nov-94 08:49:37 GMT"},
        {1, "Sun Nov  6 08:49:37 1994"},
        {2, "GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\nGET / HTTP/1.1\r\n"},
        {6, "HEAD /sub/ HTTP/1.0\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"},
        {10,
         "POST /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12345"},
        {14,
         "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
        {2, "GET /link HTTP/1.0\r\n\r\n"},
        {2, "GET /%2e%2e/secret HTTP/1.0\r\nIf-Range: \"x\"\r\n\r\n"},
        {3, "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"},
    };
    fuzz_put8(o, seeds[i].kind);
    fuzz_put(o, seeds[i].text, strlen(seeds[i].text));
}

const struct fuzz_target fuzz_target = {"fuzz_request", MAX_LEN, 23, seed};
