/* SPDX-License-Identifier: BSD-2-Clause
 * The parts of `weir serve` that know HTTP: paths, files, requests. No sockets here. */
#ifndef WEIR_CLI_HTTP_H
#define WEIR_CLI_HTTP_H

#include "base/base.h"
#include <http_parser.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#define HTTP_MAX_URL 8192
#define HTTP_MAX_HEADERS 16384 /* bytes of all header fields of a request */
#define HTTP_MAX_BODY 65536    /* of a request: read and thrown away */
#define HTTP_MAX_LISTING (1u << 20)

/* ---- http_path.c ---- */
/* The path of a request target ("/a%20b?q" or "http://host/a"), decoded, without its leading slash;
 * out is at least HTTP_MAX_URL + 1 bytes. 0, or the status to answer: 400 (not a path, a NUL, a bad
 * escape), 403 (".." or an encoded slash: never a file's name here). */
int http_decode_target(const char *url, size_t len, bool connect, char *out) NODISCARD;
const char *http_content_type(const char *path);
/* IMF-fixdate of RFC 9110 5.6.7; buf of 32 bytes. */
void http_date(time_t t, char buf[32]);
/* The three date forms of RFC 9110. False: none of them. */
bool http_parse_date(const char *text, time_t *out);
/* One range of "bytes=a-b" over size bytes. 1: *from and *len; 0: to be ignored; -1: not
 * satisfiable (416). */
int http_parse_range(const char *text, uint64_t size, uint64_t *from, uint64_t *len);
/* Text for HTML or for a URL's path; malloc'ed. */
char *http_escape_html(const char *text);
char *http_escape_url(const char *text);

/* ---- http_request.c ---- */
enum { HTTP_FIELD_NONE, HTTP_FIELD_HOST, HTTP_FIELD_RANGE, HTTP_FIELD_SINCE, HTTP_FIELD_IF_RANGE };

/* One request while it is parsed; the parser's data points here. */
struct http_request {
    http_parser parser;
    char url[HTTP_MAX_URL + 1];
    size_t url_len, header_bytes, body_bytes;
    char field[24];
    size_t field_len;
    bool in_value;
    int known;      /* HTTP_FIELD_* of the current field */
    unsigned hosts; /* Host fields seen */
    char range[64], since[64], if_range[64];
    bool range_long, since_long;
    bool complete; /* all of it is here */
    bool keep_alive, head, connect_method;
    int status; /* to refuse with; 0: none */
};
void http_request_init(struct http_request *r);
/* Parse bytes; returns how many were used (stops behind a complete request). r->complete or
 * r->status when done. */
size_t http_request_feed(struct http_request *r, const char *data, size_t len);

/* ---- http_file.c: from a request to what is sent ---- */
struct http_response {
    int status;
    char head[1024]; /* status line and fields */
    size_t head_len;
    char *body; /* malloc'ed, or NULL */
    size_t body_len;
    int fd;             /* file to send, -1 none */
    uint64_t off, left; /* what of it */
    bool close;         /* end the connection after it */
};
void http_respond(struct http_response *out, const struct http_request *r, int root_fd, time_t now);
void http_response_free(struct http_response *out);
/* Open beneath a directory; symbolic links that lead out of it are refused (-EXDEV, -ELOOP). fd or
 * -errno. */
int http_open_beneath(int root_fd, const char *path);

#endif
