/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: what a client writes reaches only files beneath the root, and every malformed request gets
 * its status. Bound: a directory of a few files made for the test. */
#include "unit.h"

#include "cli/serve/http.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root_path[] = "/tmp/weir-test-http-XXXXXX";
static int root = -1;

static void make(const char *name, const char *text)
{
    int fd = openat(root, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(root_path) == NULL || (root = open(root_path, O_RDONLY | O_DIRECTORY)) < 0)
        return -1;
    make("a.txt", "0123456789");
    make("a&b.html", "x");
    mkdirat(root, "sub", 0755);
    make("sub/index.html", "index");
    mkdirat(root, "empty", 0755);
    if (symlinkat("/etc/passwd", root, "out") != 0 || symlinkat("../a.txt", root, "sub/in") != 0 ||
        symlinkat("..", root, "sub/up") != 0)
        return -1;
    return mkfifoat(root, "fifo", 0644);
}

static int teardown(void **state)
{
    (void)state;
    static const char *const files[] = {"a.txt", "a&b.html", "sub/index.html", "sub/in", "sub/up",
                                        "out",   "fifo"};
    for (size_t i = 0; i < NELEM(files); i++)
        unlinkat(root, files[i], 0);
    unlinkat(root, "sub", AT_REMOVEDIR);
    unlinkat(root, "empty", AT_REMOVEDIR);
    close(root);
    return rmdir(root_path);
}

static int decode(const char *url, char *out)
{
    return http_decode_target(url, strlen(url), false, out);
}

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int status;
        const char *path;
    } rows[] = {
        {"/", 0, ""},           {"/a%20b", 0, "a b"},     {"/a?x=/../", 0, "a"},
        {"http://h/a", 0, "a"}, {"http://h", 0, ""},      {"/..", 403, NULL},
        {"/../x", 403, NULL},   {"/a/../b", 403, NULL},   {"/%2e%2e/x", 403, NULL},
        {"/a/.%2E", 403, NULL}, {"/...", 0, "..."},       {"/a..b/..c", 0, "a..b/..c"},
        {"/a%2fb", 403, NULL},  {"/a%5Cb", 403, NULL},    {"/a%00b", 400, NULL},
        {"/a%", 400, NULL},     {"/a%4", 400, NULL},      {"/a%zz", 400, NULL},
        {"*", 400, NULL},       {"/%25%32%65", 0, "%2e"},
    };
    char out[HTTP_MAX_URL + 1];
    for (size_t i = 0; i < NELEM(rows); i++) {
        assert_int_equal(decode(rows[i].url, out), rows[i].status);
        if (rows[i].path != NULL)
            assert_string_equal(out, rows[i].path);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t size;
        int result;
        uint64_t from, len;
    } rows[] = {
        {"bytes=0-0", 10, 1, 0, 1},  {"bytes=2-", 10, 1, 2, 8},
        {"bytes=-3", 10, 1, 7, 3},   {"bytes=5-99", 10, 1, 5, 5},
        {"bytes=-99", 10, 1, 0, 10}, {"bytes=10-", 10, -1, 0, 0},
        {"bytes=-0", 10, -1, 0, 0},  {"bytes=0-", 0, -1, 0, 0},
        {"bytes=3-2", 10, 0, 0, 0},  {"bytes=1-2,4-5", 10, 0, 0, 0},
        {"bytes=", 10, 0, 0, 0},     {"bytes=-", 10, 0, 0, 0},
        {"lines=1-2", 10, 0, 0, 0},  {"bytes=99999999999999999999-", 10, 0, 0, 0},
        {"bytes=1", 10, 0, 0, 0},    {"Bytes=1-1", 10, 1, 1, 1},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        uint64_t from = 0, len = 0;
        assert_int_equal(http_parse_range(rows[i].text, rows[i].size, &from, &len), rows[i].result);
        if (rows[i].result == 1)
            assert_true(from == rows[i].from && len == rows[i].len);
    }
}

static void test_dates(void **state)
{
    (void)state;
    char buf[32];
    time_t t;
    http_date(784111777, buf);
    assert_string_equal(buf, "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_true(http_parse_date(buf, &t) && t == 784111777);
    assert_true(http_parse_date("Sunday, 06-Nov-94 08:49:37 GMT", &t) && t == 784111777);
    assert_true(http_parse_date("Sun Nov  6 08:49:37 1994", &t) && t == 784111777);
    assert_false(http_parse_date("yesterday", &t));
    http_date(-5, buf);
    http_date((time_t)INT64_MAX, buf);
}

/* The status that a request gets; feeds it in pieces of `step` bytes. */
static int status_of(const char *text, size_t step, struct http_response *keep)
{
    static struct http_request r;
    struct http_response o;
    size_t len = strlen(text), at = 0;
    http_request_init(&r);
    while (at < len && !r.complete && r.status == 0) {
        size_t n = MIN(step, len - at);
        at += http_request_feed(&r, text + at, n);
    }
    if (!r.complete && r.status == 0)
        return 0;
    http_respond(&o, &r, root, 784111777);
    int status = o.status;
    if (keep != NULL)
        *keep = o;
    else
        http_response_free(&o);
    return status;
}

static void test_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200},
        {"HEAD /a.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200},
        {"HEAD /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=0-0\r\n\r\n", 200},
        {"GET /a.txt HTTP/1.0\r\n\r\n", 200},
        {"GET /a%26b.html HTTP/1.0\r\n\r\n", 200},
        {"GET /a.txt HTTP/1.1\r\n\r\n", 400},
        {"GET /a.txt HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400},
        {"GET /a.txt HTTP/2.0\r\nHost: h\r\n\r\n", 505},
        {"GET /sub/ HTTP/1.0\r\n\r\n", 200},
        {"GET /sub HTTP/1.0\r\n\r\n", 301},
        {"GET /empty/ HTTP/1.0\r\n\r\n", 200},
        {"GET /sub/in HTTP/1.0\r\n\r\n", 200},
        {"GET /sub/up/a.txt HTTP/1.0\r\n\r\n", 200},
        {"GET /sub/up/../a.txt HTTP/1.0\r\n\r\n", 403},
        {"GET /out HTTP/1.0\r\n\r\n", 403},
        {"GET /fifo HTTP/1.0\r\n\r\n", 403},
        {"GET /none HTTP/1.0\r\n\r\n", 404},
        {"GET /a.txt/ HTTP/1.0\r\n\r\n", 404},
        {"GET /a.txt/b HTTP/1.0\r\n\r\n", 404},
        {"POST /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", 405},
        {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 405},
        {"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405},
        {"BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n", 501},
        {"GET /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n", 413},
        {"GET /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400},
        {"GET /a.txt HTTP/1.1\r\nbroken\r\n\r\n", 400},
        {"GET /a.txt HTTP/1.0\r\nRange: bytes=3-4\r\n\r\n", 206},
        {"GET /a.txt HTTP/1.0\r\nRange: bytes=30-\r\n\r\n", 416},
        {"GET /a.txt HTTP/1.0\r\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\n", 304},
        {"GET /a.txt HTTP/1.0\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n", 200},
        {"GET /a.txt HTTP/1.0\r\nIf-Range: x\r\nRange: bytes=3-4\r\n\r\n", 200},
        {"GET /a.txt HT", 0},
    };
    for (size_t i = 0; i < NELEM(rows); i++) {
        for (size_t step = 1; step < 100; step += 33) {
            int status = status_of(rows[i].text, step, NULL);
            if (status != rows[i].status)
                fail_msg("%d, not %d, in steps of %zu: %s", status, rows[i].status, step,
                         rows[i].text);
        }
    }
}

static void test_limits(void **state)
{
    (void)state;
    static char text[3 * HTTP_MAX_HEADERS];
    char *p;
    p = stpcpy(text, "GET /");
    memset(p, 'a', HTTP_MAX_URL);
    strcpy(p + HTTP_MAX_URL, " HTTP/1.0\r\n\r\n");
    assert_int_equal(status_of(text, 1000, NULL), 414);
    p = stpcpy(text, "GET / HTTP/1.0\r\nX: ");
    memset(p, 'a', HTTP_MAX_HEADERS);
    strcpy(p + HTTP_MAX_HEADERS, "\r\n\r\n");
    assert_int_equal(status_of(text, 1000, NULL), 431);
    p = stpcpy(text, "GET / HTTP/1.0\r\n");
    for (int i = 0; i < HTTP_MAX_HEADERS / 3; i++)
        p = stpcpy(p, "a:b\r\n");
    strcpy(p, "\r\n");
    assert_int_equal(status_of(text, 1000, NULL), 431);
}

static void test_what_is_sent(void **state)
{
    (void)state;
    struct http_response o;
    assert_int_equal(
        status_of("GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=3-4\r\n\r\n", 100, &o), 206);
    assert_non_null(strstr(o.head, "Content-Length: 2\r\n"));
    assert_non_null(strstr(o.head, "Content-Range: bytes 3-4/10\r\n"));
    assert_non_null(strstr(o.head, "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
    assert_true(o.fd >= 0 && o.off == 3 && o.left == 2 && !o.close);
    http_response_free(&o);
    assert_int_equal(status_of("HEAD /a.txt HTTP/1.0\r\n\r\n", 100, &o), 200);
    assert_non_null(strstr(o.head, "Content-Length: 10\r\n"));
    assert_true(o.fd < 0 && o.body_len == 0 && o.close);
    http_response_free(&o);
    assert_int_equal(status_of("GET //h/sub/../sub HTTP/1.0\r\n\r\n", 100, &o), 403);
    http_response_free(&o);
    assert_int_equal(status_of("GET //sub HTTP/1.0\r\n\r\n", 100, &o), 301);
    assert_non_null(strstr(o.head, "Location: /sub/\r\n"));
    http_response_free(&o);
    assert_int_equal(status_of("GET / HTTP/1.0\r\n\r\n", 100, &o), 200);
    assert_non_null(strstr(o.body, "<a href=\"a%26b.html\">a&amp;b.html</a>"));
    http_response_free(&o);
}

/* Mutations of valid requests: whatever comes, there is a status, or more is wanted. */
static void test_random_requests(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\nConnection: keep-alive\r\n\r\n",
        "HEAD /sub/ HTTP/1.0\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
        ("GET http://h/a%26b.html HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
         "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    };
    uint64_t x = 0x9e3779b97f4a7c15u;
    print_message("seed 0x9e3779b97f4a7c15\n");
    for (int i = 0; i < 20000; i++) {
        char text[256];
        snprintf(text, sizeof(text), "%s", seeds[i % NELEM(seeds)]);
        size_t len = strlen(text);
        for (unsigned k = 0; k < 1 + x % 4; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[x % len] = (char)(1 + (x >> 32) % 255);
        }
        int status = status_of(text, 1 + x % 40, NULL);
        assert_true(status == 0 || (status >= 200 && status <= 505));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),         cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_dates),           cmocka_unit_test(test_requests),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_random_requests),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
