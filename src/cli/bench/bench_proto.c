/* SPDX-License-Identifier: BSD-2-Clause
 * What bench and server say to each other: one JSON object a line, bounded. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

const char *const bench_test_name[BENCH_TESTS] = {
    [TCP_STREAM] = "TCP_STREAM", [TCP_MAERTS] = "TCP_MAERTS", [TCP_SENDFILE] = "TCP_SENDFILE",
    [TCP_RR] = "TCP_RR",         [TCP_CRR] = "TCP_CRR",       [UDP_STREAM] = "UDP_STREAM",
    [UDP_RR] = "UDP_RR",
};

/* The first line of what is held, parsed and taken off. */
static json_t *take_line(struct lines *l, char *end, char *err, size_t size)
{
    json_error_t why;
    size_t len = (size_t)(end - l->buf);
    json_t *o = json_loadb(l->buf, len, JSON_REJECT_DUPLICATES, &why);
    l->held -= len + 1;
    memmove(l->buf, end + 1, l->held);
    if (json_is_object(o))
        return o;
    json_decref(o);
    snprintf(err, size, "the far end does not speak this protocol");
    return NULL;
}

json_t *lines_read(struct lines *l, char *err, size_t size)
{
    while (true) {
        char *end = l->held > 0 ? memchr(l->buf, '\n', l->held) : NULL;
        if (end != NULL)
            return take_line(l, end, err, size);
        if (l->held == sizeof(l->buf)) {
            snprintf(err, size, "the far end does not speak this protocol (line too long)");
            return NULL;
        }
        ssize_t r = l->net->ops->recv(l->fd, l->buf + l->held, sizeof(l->buf) - l->held, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) {
            snprintf(err, size, "control connection: %s",
                     r == 0                                    ? "closed by the far end"
                     : errno == EAGAIN || errno == EWOULDBLOCK ? "no answer in time"
                                                               : strerror(errno));
            return NULL;
        }
        l->held += (size_t)r;
    }
}

int lines_write(struct lines *l, json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (text == NULL)
        return -1;
    size_t len = strlen(text);
    text[len] = '\n';
    int e = net_send_all(l->net, l->fd, text, len + 1);
    free(text);
    return e;
}

json_t *params_to_json(const struct bench_params *p)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:I, s:I,"
        "s:b}",
        "test", bench_test_name[p->test], "length_ns", (json_int_t)p->length_ns, "interval_ns",
        (json_int_t)p->interval_ns, "receive", (json_int_t)p->receive, "omit_ns",
        (json_int_t)p->omit_ns, "message", (json_int_t)p->message, "request",
        (json_int_t)p->request, "response", (json_int_t)p->response, "sockbuf",
        (json_int_t)p->sockbuf, "streams", (json_int_t)p->streams, "nodelay", (int)p->nodelay,
        "spin", (int)p->spin, "cc_asked", (int)p->cc_asked, "cc", p->cc, "rate",
        (json_int_t)p->rate, "cookie", (json_int_t)p->cookie, "verify", (int)p->verify);
}

static bool take_int(const json_t *o, const char *key, uint64_t min, uint64_t max, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return *out >= min && *out <= max;
}

static bool take_u32(const json_t *o, const char *key, uint64_t min, uint64_t max, uint32_t *out)
{
    uint64_t v;
    if (!take_int(o, key, min, max, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

bool params_from_json(const json_t *o, struct bench_params *p, char *err, size_t size)
{
    const char *test = json_string_value(json_object_get(o, "test"));
    const char *cc = json_string_value(json_object_get(o, "cc"));
    *p = (struct bench_params){.test = BENCH_TESTS, .file_fd = -1};
    for (unsigned t = 0; test != NULL && t < BENCH_TESTS; t++)
        if (strcmp(test, bench_test_name[t]) == 0)
            p->test = (enum bench_test)t;
    if (p->test == BENCH_TESTS) {
        snprintf(err, size, "no such test");
        return false;
    }
    bool udp = bench_is_udp(p->test);
    uint64_t longest = BENCH_MAX_SECONDS * NS_PER_S;
    bool good =
        take_int(o, "length_ns", 0, longest, &p->length_ns) &&
        take_int(o, "interval_ns", 0, longest, &p->interval_ns) &&
        take_int(o, "omit_ns", 0, BENCH_MAX_OMIT_S * NS_PER_S, &p->omit_ns) &&
        take_u32(o, "message", 1, BENCH_MAX_MESSAGE, &p->message) &&
        take_u32(o, "receive", 0, BENCH_MAX_MESSAGE, &p->receive) &&
        take_u32(o, "request", udp ? 0 : 1, BENCH_MAX_MESSAGE, &p->request) &&
        take_u32(o, "response", udp ? 0 : 1, BENCH_MAX_MESSAGE, &p->response) &&
        take_u32(o, "sockbuf", 0, INT32_MAX, &p->sockbuf) &&
        take_u32(o, "streams", 1, udp ? BENCH_MAX_THREADS : BENCH_MAX_STREAMS, &p->streams) &&
        take_int(o, "rate", 0, INT64_MAX, &p->rate) &&
        take_int(o, "cookie", 0, INT64_MAX, &p->cookie) && cc != NULL && strlen(cc) < sizeof(p->cc);
    if (udp && (p->request > BENCH_MAX_DATAGRAM || p->response > BENCH_MAX_DATAGRAM ||
                (p->test == UDP_STREAM &&
                 (p->message > BENCH_MAX_DATAGRAM || p->message < sizeof(struct udp_header)))))
        good = false;
    if (!good || (p->interval_ns > 0 && p->interval_ns < NS_PER_MS)) {
        snprintf(err, size, "a parameter is missing or out of range");
        return false;
    }
    memcpy(p->cc, cc, strlen(cc) + 1);
    p->nodelay = json_is_true(json_object_get(o, "nodelay"));
    p->verify = json_is_true(json_object_get(o, "verify"));
    p->spin = json_is_true(json_object_get(o, "spin"));
    p->cc_asked = json_is_true(json_object_get(o, "cc_asked"));
    return true;
}

json_t *sample_to_json(const struct sample *x, const uint64_t *streams, unsigned count)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(list, json_integer((json_int_t)streams[i]));
    json_t *udp =
        json_pack("[I,I,I,I,I,I,I]", (json_int_t)x->sent, (json_int_t)x->received,
                  (json_int_t)x->lost, (json_int_t)x->reordered, (json_int_t)x->duplicates,
                  (json_int_t)x->retried, (json_int_t)x->jitter_ns);
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:o, s:b, s:o}", "at_ns",
                     (json_int_t)x->at_ns, "bytes", (json_int_t)x->bytes, "transactions",
                     (json_int_t)x->transactions, "cpu_ns", (json_int_t)x->cpu_ns, "have_tcp",
                     (int)x->have_tcp, "retransmits", (json_int_t)x->retransmits, "cwnd_bytes",
                     (json_int_t)x->cwnd_bytes, "rtt_us", (json_int_t)x->rtt_us, "streams", list,
                     "have_udp", (int)x->have_udp, "udp", udp);
}

bool sample_from_json(const json_t *o, struct sample *x, uint64_t *streams, unsigned count)
{
    const json_t *list = json_object_get(o, "streams");
    *x = (struct sample){.have_tcp = json_is_true(json_object_get(o, "have_tcp"))};
    uint64_t *udp[] = {&x->sent,       &x->received, &x->lost,     &x->reordered,
                       &x->duplicates, &x->retried,  &x->jitter_ns};
    x->have_udp = json_is_true(json_object_get(o, "have_udp"));
    for (size_t i = 0; i < NELEM(udp); i++) {
        json_int_t v = json_integer_value(json_array_get(json_object_get(o, "udp"), i));
        if (v < 0)
            return false;
        *udp[i] = (uint64_t)v;
    }
    for (unsigned i = 0; i < count; i++)
        streams[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    return take_int(o, "at_ns", 0, INT64_MAX, &x->at_ns) &&
           take_int(o, "bytes", 0, INT64_MAX, &x->bytes) &&
           take_int(o, "transactions", 0, INT64_MAX, &x->transactions) &&
           take_int(o, "cpu_ns", 0, INT64_MAX, &x->cpu_ns) &&
           take_int(o, "retransmits", 0, INT64_MAX, &x->retransmits) &&
           take_int(o, "cwnd_bytes", 0, INT64_MAX, &x->cwnd_bytes) &&
           take_int(o, "rtt_us", 0, INT64_MAX, &x->rtt_us);
}
