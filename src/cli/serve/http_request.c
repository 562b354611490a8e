/* SPDX-License-Identifier: BSD-2-Clause
 * One HTTP request, by http-parser's callbacks, within limits. */
#include "http.h"

#include <strings.h>

/* Refuse the request: the parser stops at a callback that returns non-zero. */
static int refuse(struct http_request *r, int status)
{
    if (r->status == 0)
        r->status = status;
    return 1;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    struct http_request *r = p->data;
    if (len > HTTP_MAX_URL - r->url_len)
        return refuse(r, 414);
    memcpy(r->url + r->url_len, at, len);
    r->url_len += len;
    return 0;
}

static int count(struct http_request *r, size_t len)
{
    r->header_bytes += len + 2;
    return r->header_bytes > HTTP_MAX_HEADERS ? refuse(r, 431) : 0;
}

static int on_header_field(http_parser *p, const char *at, size_t len)
{
    struct http_request *r = p->data;
    if (r->in_value)
        r->field_len = 0;
    r->in_value = false;
    size_t room = sizeof(r->field) - 1 - r->field_len, n = MIN(len, room);
    memcpy(r->field + r->field_len, at, n);
    r->field_len += n;
    return count(r, len);
}

static void field_begins(struct http_request *r)
{
    r->field[r->field_len] = '\0';
    r->known = HTTP_FIELD_NONE;
    if (strcasecmp(r->field, "host") == 0)
        r->known = HTTP_FIELD_HOST, r->hosts++;
    else if (strcasecmp(r->field, "range") == 0)
        r->known = HTTP_FIELD_RANGE, r->range_long = r->range[0] != '\0';
    else if (strcasecmp(r->field, "if-modified-since") == 0)
        r->known = HTTP_FIELD_SINCE;
    else if (strcasecmp(r->field, "if-range") == 0)
        r->known = HTTP_FIELD_IF_RANGE;
}

static bool append(char *to, size_t size, const char *at, size_t len)
{
    size_t have = strlen(to);
    if (len >= size - have)
        return false;
    memcpy(to + have, at, len);
    to[have + len] = '\0';
    return true;
}

static int on_header_value(http_parser *p, const char *at, size_t len)
{
    struct http_request *r = p->data;
    if (!r->in_value)
        field_begins(r);
    r->in_value = true;
    switch (r->known) {
    case HTTP_FIELD_RANGE:
        r->range_long |= !append(r->range, sizeof(r->range), at, len);
        break;
    case HTTP_FIELD_SINCE:
        r->since_long |= !append(r->since, sizeof(r->since), at, len);
        break;
    case HTTP_FIELD_IF_RANGE:
        if (!append(r->if_range, sizeof(r->if_range), at, len))
            strcpy(r->if_range, "?"); /* matches nothing: the whole is sent */
        break;
    default:
        break;
    }
    return count(r, len);
}

static int on_headers_complete(http_parser *p)
{
    struct http_request *r = p->data;
    r->head = p->method == HTTP_HEAD;
    if (p->http_major != 1 || p->http_minor > 1)
        return refuse(r, 505);
    if (r->hosts > 1 || (r->hosts == 0 && p->http_minor == 1))
        return refuse(r, 400);
    if (p->method != HTTP_GET && p->method != HTTP_HEAD)
        return refuse(r, 405);
    if (p->content_length != UINT64_MAX && p->content_length > HTTP_MAX_BODY)
        return refuse(r, 413);
    return 0;
}

static int on_body(http_parser *p, const char *at, size_t len)
{
    struct http_request *r = p->data;
    (void)at;
    r->body_bytes += len;
    return r->body_bytes > HTTP_MAX_BODY ? refuse(r, 413) : 0;
}

static int on_message_complete(http_parser *p)
{
    struct http_request *r = p->data;
    r->complete = true;
    r->keep_alive = http_should_keep_alive(p) != 0;
    http_parser_pause(p, 1); /* what follows belongs to the next request */
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void http_request_init(struct http_request *r)
{
    memset(r, 0, sizeof(*r));
    http_parser_init(&r->parser, HTTP_REQUEST);
    r->parser.data = r;
}

size_t http_request_feed(struct http_request *r, const char *data, size_t len)
{
    size_t used = http_parser_execute(&r->parser, &settings, data, len);
    enum http_errno e = HTTP_PARSER_ERRNO(&r->parser);
    if (r->complete)
        return e == HPE_PAUSED ? used : MIN(used, len);
    if (r->parser.upgrade)
        (void)refuse(r, 405); /* CONNECT, or an upgrade of something else than GET */
    if (e == HPE_INVALID_METHOD)
        (void)refuse(r, 501);
    else if (e == HPE_HEADER_OVERFLOW)
        (void)refuse(r, 431);
    else if (e == HPE_INVALID_VERSION)
        (void)refuse(r, 505);
    else if (e != HPE_OK)
        (void)refuse(r, 400);
    return used;
}
