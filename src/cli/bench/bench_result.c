/* SPDX-License-Identifier: BSD-2-Clause
 * What a benchmark prints: netperf's table, iperf's interval lines, one JSON document. All of it
 * from differences of samples. */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STREAMS_LISTED 64 /* one by one */

/* The far side receives in TCP_STREAM: what counts is what arrived. */
unsigned result_counting_side(enum bench_test t)
{
    return t == TCP_STREAM || t == TCP_SENDFILE || t == UDP_STREAM ? 1 : 0;
}

unsigned result_sending_side(enum bench_test t)
{
    return t == TCP_MAERTS ? 1 : 0;
}

json_t *number_or_null(double v, bool known)
{
    return known && isfinite(v) ? json_real(v) : json_null();
}

/* Three decimals are more than any clock here can tell. */
static double rounded(double v)
{
    return round(v * 1000) / 1000;
}

static double seconds_between(const struct sample *a, const struct sample *b)
{
    return b->at_ns > a->at_ns ? (double)(b->at_ns - a->at_ns) / 1e9 : 0;
}

static double cpu_percent(const struct sample *a, const struct sample *b)
{
    double s = seconds_between(a, b);
    return s > 0 && b->cpu_ns >= a->cpu_ns ? (double)(b->cpu_ns - a->cpu_ns) / 1e7 / s : NAN;
}

/* A span of one side: from sample i to sample j, when it has both. */
static bool span(const struct series *s, size_t i, size_t j, const struct sample **a,
                 const struct sample **b)
{
    if (j >= s->count || i >= j)
        return false;
    *a = &s->v[i];
    *b = &s->v[j];
    return true;
}

static json_t *rate(bool known, double amount, double seconds)
{
    return number_or_null(rounded(amount / seconds), known && seconds > 0);
}

static json_t *retransmits(const struct bench_result *r, size_t i, size_t j)
{
    const struct sample *a, *b;
    if (!span(&r->side[result_sending_side(r->p.test)], i, j, &a, &b) || !a->have_tcp ||
        !b->have_tcp || b->retransmits < a->retransmits)
        return json_null();
    return json_integer((json_int_t)(b->retransmits - a->retransmits));
}

static json_t *side_cpu(const struct bench_result *r, unsigned side, size_t i, size_t j)
{
    const struct sample *a, *b;
    if (!span(&r->side[side], i, j, &a, &b))
        return json_null();
    return number_or_null(rounded(cpu_percent(a, b)), true);
}

static uint64_t gain(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

/* Datagrams between two samples; what the receiver does not say is null, never 0. */
static json_t *udp_json(const struct bench_result *r, size_t i, size_t j)
{
    const struct sample *a, *b;
    json_t *o = json_object();
    bool stream = r->p.test == UDP_STREAM;
    if (!bench_is_udp(r->p.test)) {
        json_decref(o);
        return json_null();
    }
    bool known = span(&r->side[0], i, j, &a, &b) && a->have_udp && b->have_udp;
    json_object_set_new(o, stream ? "sent" : "retried",
                        !known   ? json_null()
                        : stream ? json_integer((json_int_t)gain(a->sent, b->sent))
                                 : json_integer((json_int_t)gain(a->retried, b->retried)));
    if (!stream)
        return o;
    known = span(&r->side[1], i, j, &a, &b) && a->have_udp && b->have_udp;
    uint64_t received = known ? gain(a->received, b->received) : 0;
    uint64_t lost = known ? gain(a->lost, b->lost) : 0, all = received + lost;
    const struct {
        const char *name;
        uint64_t v;
    } count[] = {{"received", received},
                 {"lost", lost},
                 {"reordered", known ? gain(a->reordered, b->reordered) : 0},
                 {"duplicates", known ? gain(a->duplicates, b->duplicates) : 0}};
    for (size_t k = 0; k < NELEM(count); k++)
        json_object_set_new(o, count[k].name,
                            known ? json_integer((json_int_t)count[k].v) : json_null());
    json_object_set_new(o, "lost_pct", number_or_null(100 * (double)lost / (double)all, all > 0));
    json_object_set_new(o, "jitter_us",
                        number_or_null(known ? (double)b->jitter_ns / 1e3 : 0, received > 0));
    return o;
}

static void print_udp(const struct bench_result *r)
{
    json_t *o = udp_json(r, 0, r->side[result_counting_side(r->p.test)].count - 1), *v;
    const char *name;
    printf("\nDatagrams:");
    json_object_foreach(o, name, v)
    {
        if (json_is_number(v))
            printf("  %s %.*f", name, json_is_real(v) ? 2 : 0, json_number_value(v));
    }
    printf("\n");
    json_decref(o);
}

static json_t *interval_json(const struct bench_result *r, size_t i)
{
    const struct series *counting = &r->side[result_counting_side(r->p.test)];
    const struct series *sending = &r->side[result_sending_side(r->p.test)];
    const struct sample *base = &counting->v[0], *a = &counting->v[i], *b = &counting->v[i + 1];
    const struct sample *tcp = i + 1 < sending->count ? &sending->v[i + 1] : NULL;
    bool stream = bench_is_stream(r->p.test),
         known = tcp != NULL && tcp->have_tcp && tcp->cwnd_bytes > 0;
    double s = seconds_between(a, b);
    json_t *o = json_object();
    json_object_set_new(o, "start", json_real(seconds_between(base, a)));
    json_object_set_new(o, "end", json_real(seconds_between(base, b)));
    json_object_set_new(o, "bytes", json_integer((json_int_t)(b->bytes - a->bytes)));
    json_object_set_new(o, "throughput_mbps",
                        rate(stream, (double)(b->bytes - a->bytes) * 8e-6, s));
    json_object_set_new(o, "transactions_per_s",
                        rate(!stream, (double)(b->transactions - a->transactions), s));
    json_object_set_new(o, "retransmits", retransmits(r, i, i + 1));
    json_object_set_new(o, "cwnd", known ? json_integer((json_int_t)tcp->cwnd_bytes) : json_null());
    json_object_set_new(o, "rtt_us", known ? json_integer((json_int_t)tcp->rtt_us) : json_null());
    json_object_set_new(o, "udp", udp_json(r, i, i + 1));
    json_object_set_new(o, "cpu_local_pct", side_cpu(r, 0, i, i + 1));
    json_object_set_new(o, "cpu_remote_pct", side_cpu(r, 1, i, i + 1));
    return o;
}

static json_t *quantile(const struct hist *h, unsigned per_mille)
{
    uint64_t v = 0;
    bool known = h != NULL && hist_quantile(h, per_mille, &v);
    return number_or_null((double)v / 1e3, known);
}

static json_t *latency_json(const struct hist *h)
{
    json_t *o = json_object();
    bool any = h != NULL && h->count > 0;
    json_object_set_new(o, "p50", quantile(h, 500));
    json_object_set_new(o, "p90", quantile(h, 900));
    json_object_set_new(o, "p99", quantile(h, 990));
    json_object_set_new(o, "p99_9", quantile(h, 999));
    json_object_set_new(o, "max", number_or_null(any ? (double)h->max / 1e3 : 0, any));
    json_object_set_new(o, "mean", number_or_null(any ? (double)hist_mean(h) / 1e3 : 0, any));
    json_object_set_new(o, "count", h != NULL ? json_integer((json_int_t)h->count) : json_null());
    return o;
}

/* CPU us of one side for each `amount`; NAN when nothing was moved or the side is not known. */
static double service_demand(const struct bench_result *r, unsigned side, double amount)
{
    const struct sample *a, *b;
    if (r->side[side].count < 2 || !span(&r->side[side], 0, r->side[side].count - 1, &a, &b) ||
        amount <= 0)
        return NAN;
    return (double)(b->cpu_ns - a->cpu_ns) / 1e3 / amount;
}

static json_t *demand_json(const struct bench_result *r, bool known, double amount)
{
    json_t *o = json_object();
    json_object_set_new(o, "local", number_or_null(rounded(service_demand(r, 0, amount)), known));
    json_object_set_new(o, "remote", number_or_null(rounded(service_demand(r, 1, amount)), known));
    return o;
}

/* What is sent in a call. */
static uint64_t message_bytes(const struct bench_params *p)
{
    if (p->test != TCP_SENDFILE)
        return p->message;
    return p->file_call > 0 ? p->file_call : p->file_bytes;
}

double fairness(const uint64_t *v, unsigned n)
{
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < n; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    return squares > 0 ? sum * sum / (n * squares) : NAN;
}

/* A stream's share: Mb/s, or transactions a second. */
static double stream_rate(const struct bench_params *p, uint64_t bytes, double s)
{
    double each = (double)p->request + (double)p->response;
    return bench_is_stream(p->test) ? (double)bytes * 8e-6 / s : (double)bytes / each / s;
}

static json_t *streams_json(const struct bench_result *r, double s)
{
    bool stream = bench_is_stream(r->p.test);
    json_t *list = json_array();
    for (unsigned i = 0; r->stream_bytes != NULL && i < r->p.streams; i++) {
        double v = rounded(stream_rate(&r->p, r->stream_bytes[i], s));
        json_t *o = json_object();
        json_object_set_new(o, "bytes", json_integer((json_int_t)r->stream_bytes[i]));
        json_object_set_new(o, "throughput_mbps", number_or_null(v, stream));
        json_object_set_new(o, "transactions_per_s", number_or_null(v, !stream));
        json_array_append_new(list, o);
    }
    return list;
}

static void echo_options(json_t *o, const struct bench_result *r)
{
    const struct bench_params *p = &r->p;
    bool stream = bench_is_stream(p->test);
    json_object_set_new(o, "host", r->host != NULL ? json_string(r->host) : json_null());
    json_object_set_new(o, "remote_stack",
                        json_string(r->host != NULL ? r->remote_stack : r->stack));
    json_object_set_new(o, "length_s", json_real((double)p->length_ns / 1e9));
    json_object_set_new(o, "interval_s", json_real((double)p->interval_ns / 1e9));
    json_object_set_new(o, "omit_s", json_real((double)p->omit_ns / 1e9));
    json_object_set_new(o, "streams", json_integer(p->streams));
    json_object_set_new(o, "message_bytes",
                        stream ? json_integer((json_int_t)message_bytes(p)) : json_null());
    json_object_set_new(o, "receive_bytes",
                        stream ? json_integer(p->receive > 0 ? p->receive : p->message)
                               : json_null());
    json_object_set_new(o, "file_bytes",
                        p->file_bytes > 0 ? json_integer((json_int_t)p->file_bytes) : json_null());
    json_object_set_new(o, "request_bytes", !stream ? json_integer(p->request) : json_null());
    json_object_set_new(o, "response_bytes", !stream ? json_integer(p->response) : json_null());
    json_object_set_new(o, "socket_buffer_bytes",
                        p->sockbuf > 0 ? json_integer(p->sockbuf) : json_null());
    json_object_set_new(o, "rate_bps",
                        p->rate > 0 ? json_integer((json_int_t)p->rate) : json_null());
    json_object_set_new(o, "verify", json_boolean(p->verify));
    json_object_set_new(o, "cc", bench_is_udp(p->test) ? json_null() : json_string(p->cc));
    json_object_set_new(o, "nodelay", json_boolean(p->nodelay));
    json_object_set_new(o, "spin", json_boolean(p->spin));
}

json_t *result_json(const struct bench_result *r)
{
    const struct bench_params *p = &r->p;
    bool stream = bench_is_stream(p->test);
    const struct series *c = &r->side[result_counting_side(p->test)];
    size_t last = c->count - 1;
    const struct sample *a = &c->v[0], *b = &c->v[last];
    double s = seconds_between(a, b), kb = (double)(b->bytes - a->bytes) / 1024;
    double trans = (double)(b->transactions - a->transactions);
    json_t *o = json_object(), *intervals = json_array(), *cpu = json_object();
    json_object_set_new(o, "test", json_string(bench_test_name[p->test]));
    json_object_set_new(o, "stack", json_string(r->stack));
    json_object_set_new(o, "link", json_string(r->link));
    json_object_set_new(o, "start_time", json_real(r->start_time));
    json_object_set_new(o, "seconds", json_real(s));
    json_object_set_new(o, "bytes", json_integer((json_int_t)(b->bytes - a->bytes)));
    json_object_set_new(o, "transactions", stream ? json_null() : json_integer((json_int_t)trans));
    json_object_set_new(o, "throughput_mbps",
                        rate(stream, (double)(b->bytes - a->bytes) * 8e-6, s));
    json_object_set_new(o, "transactions_per_s", rate(!stream, trans, s));
    json_object_set_new(o, "latency_us", latency_json(r->hist));
    json_object_set_new(cpu, "local_pct", side_cpu(r, 0, 0, r->side[0].count - 1));
    json_object_set_new(cpu, "remote_pct",
                        side_cpu(r, 1, 0, r->side[1].count > 0 ? r->side[1].count - 1 : 0));
    json_object_set_new(o, "cpu", cpu);
    json_object_set_new(o, "service_demand_us_per_kb", demand_json(r, stream, kb));
    json_object_set_new(o, "service_demand_us_per_transaction", demand_json(r, !stream, trans));
    json_object_set_new(o, "retransmits",
                        retransmits(r, 0, r->side[result_sending_side(p->test)].count - 1));
    json_object_set_new(o, "udp", udp_json(r, 0, last));
    for (size_t i = 0; i < last; i++)
        json_array_append_new(intervals, interval_json(r, i));
    json_object_set_new(o, "intervals", intervals);
    json_object_set_new(o, "per_stream", streams_json(r, s));
    bool several = r->stream_bytes != NULL && p->streams > 1;
    json_object_set_new(
        o, "fairness",
        number_or_null(several ? fairness(r->stream_bytes, p->streams) : NAN, several));
    json_object_set(o, "sysctl", r->sysctl != NULL ? r->sysctl : json_null());
    json_object_set(o, "sysctl_remote", r->sysctl_remote != NULL ? r->sysctl_remote : json_null());
    if (r->siftr != NULL)
        json_object_set(o, "siftr", r->siftr);
    json_object_set(o, "warnings", r->warnings);
    echo_options(o, r);
    return o;
}

/* ---- text ---- */

static void print_cell(double v, const char *fmt, int width)
{
    char text[32];
    if (isfinite(v))
        snprintf(text, sizeof(text), fmt, v);
    else
        snprintf(text, sizeof(text), "-");
    printf(" %*s", width, text);
}

static void print_latency(const struct hist *h)
{
    static const struct {
        const char *name;
        unsigned per_mille;
    } q[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}};
    uint64_t v;
    if (h == NULL || h->count == 0)
        return;
    printf("\nLatency, us: mean %.2f", (double)hist_mean(h) / 1e3);
    for (size_t i = 0; i < NELEM(q); i++)
        if (hist_quantile(h, q[i].per_mille, &v))
            printf("  %s %.2f", q[i].name, (double)v / 1e3);
    printf("  max %.2f  (%" PRIu64 " samples%s)\n", (double)h->max / 1e3, h->count,
           h->count < 1000 ? ": too few for the missing ones" : "");
    if (h->negative > 0)
        printf("%" PRIu64 " negative time differences were left out\n", h->negative);
}

static void print_stream_table(const struct bench_result *r, double s, double bytes,
                               const double cpu[2])
{
    unsigned snd = result_sending_side(r->p.test), rcv = !snd;
    printf("Recv   Send    Send                          Utilization       Service Demand\n"
           "Socket Socket  Message  Elapsed              Send     Recv     Send    Recv\n"
           "Size   Size    Size     Time     Throughput  %-8s %-8s %-7s %s\n"
           "bytes  bytes   bytes    secs.    10^6bits/s  %% S      %% S      us/KB   us/KB\n\n",
           snd == 0 ? "local" : "remote", rcv == 0 ? "local" : "remote",
           snd == 0 ? "local" : "remote", rcv == 0 ? "local" : "remote");
    printf("%6" PRIu32 " %6" PRIu32 " %6" PRIu64 "   ", r->rcvbuf[rcv], r->sndbuf[snd],
           message_bytes(&r->p));
    printf(" %7.2f ", s);
    print_cell(s > 0 ? bytes * 8e-6 / s : NAN, "%.2f", 11);
    print_cell(cpu[snd], "%.2f", 7);
    print_cell(cpu[rcv], "%.2f", 7);
    print_cell(service_demand(r, snd, bytes / 1024), "%.3f", 7);
    print_cell(service_demand(r, rcv, bytes / 1024), "%.3f", 7);
    printf("\n");
}

static void print_rr_table(const struct bench_result *r, double s, double trans,
                           const double cpu[2])
{
    printf("Local /Remote\n"
           "Socket Size   Request Resp.  Elapsed Trans.      CPU     CPU     S.dem    S.dem\n"
           "Send   Recv   Size    Size   Time    Rate        local   remote  local    remote\n"
           "bytes  bytes  bytes   bytes  secs.   per sec     %% S     %% S     us/Tr    us/Tr\n\n");
    printf("%-6" PRIu32 " %-6" PRIu32 " %-7" PRIu32 " %-6" PRIu32 " %-7.2f", r->sndbuf[0],
           r->rcvbuf[0], r->p.request, r->p.response, s);
    print_cell(s > 0 ? trans / s : NAN, "%.2f", 10);
    print_cell(cpu[0], "%.2f", 7);
    print_cell(cpu[1], "%.2f", 7);
    print_cell(service_demand(r, 0, trans), "%.3f", 8);
    print_cell(service_demand(r, 1, trans), "%.3f", 8);
    printf("\n%-6" PRIu32 " %-6" PRIu32 "\n", r->sndbuf[1], r->rcvbuf[1]);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* All of them in columns while they are few, and how they spread. */
static void print_streams(const struct bench_result *r, double s)
{
    static const struct {
        const char *name;
        unsigned percent;
    } q[] = {{"lowest", 0}, {"10 %", 10}, {"median", 50}, {"90 %", 90}, {"highest", 100}};
    uint64_t v[BENCH_MAX_STREAMS];
    unsigned n = r->p.streams;
    bool stream = bench_is_stream(r->p.test);
    double scale = stream ? 1e3 : 1;
    memcpy(v, r->stream_bytes, n * sizeof(v[0]));
    for (unsigned i = 0; n <= STREAMS_LISTED && i < n; i++)
        printf("%s[%3u] %*.1f MB %*.*f", i % 4 == 0 ? "\n" : "   ", i + 1, 8, (double)v[i] / 1e6,
               stream ? 6 : 9, stream ? 2 : 0, stream_rate(&r->p, v[i], s) / scale);
    qsort(v, n, sizeof(v[0]), compare_u64);
    printf("\nEach stream, %s:", stream ? "10^9bits/s" : "trans/s");
    for (unsigned i = 0; i < NELEM(q); i++)
        printf("  %s %.*f", q[i].name, stream ? 3 : 0,
               stream_rate(&r->p, v[(n - 1) * q[i].percent / 100], s) / scale);
    printf("\nFairness (Jain's index): %.4f\n", fairness(v, n));
}

void result_print(const struct bench_result *r)
{
    const struct series *c = &r->side[result_counting_side(r->p.test)];
    const struct sample *a = &c->v[0], *b = &c->v[c->count - 1];
    double s = seconds_between(a, b), cpu[2] = {NAN, NAN};
    for (unsigned i = 0; i < 2; i++)
        if (r->side[i].count >= 2)
            cpu[i] = cpu_percent(&r->side[i].v[0], &r->side[i].v[r->side[i].count - 1]);
    printf("\n%s TEST, %s stack, link %s%s%s, congestion control %s, %" PRIu32 " stream%s\n",
           bench_test_name[r->p.test], r->stack, r->link, r->host != NULL ? ", to " : "",
           r->host != NULL ? r->host : "", r->p.cc, r->p.streams, r->p.streams == 1 ? "" : "s");
    printf("(utilization: CPU time of that side's threads as a share of one core)\n");
    if (bench_is_stream(r->p.test))
        print_stream_table(r, s, (double)(b->bytes - a->bytes), cpu);
    else
        print_rr_table(r, s, (double)(b->transactions - a->transactions), cpu);
    if (bench_is_udp(r->p.test))
        print_udp(r);
    json_t *rexmt = retransmits(r, 0, r->side[result_sending_side(r->p.test)].count - 1);
    if (json_is_integer(rexmt))
        printf("\nRetransmitted segments: %" JSON_INTEGER_FORMAT "\n", json_integer_value(rexmt));
    json_decref(rexmt);
    if (r->stream_bytes != NULL && r->p.streams > 1 && s > 0)
        print_streams(r, s);
    print_latency(r->hist);
}

static void format_amount(char *buf, size_t size, double v, const char *unit, double step)
{
    static const char prefix[] = " KMGT";
    unsigned i = 0;
    while (v >= step && i < 4) {
        v /= step;
        i++;
    }
    int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    if (i == 0)
        snprintf(buf, size, "%4.*f %s", digits, v, unit);
    else
        snprintf(buf, size, "%4.*f %c%s", digits, v, prefix[i], unit);
}

static void print_interval(const struct ticker *t, const char *id, double from, double to,
                           uint64_t bytes, uint64_t transactions)
{
    char amount[32], speed[32];
    double s = to - from;
    if (!bench_is_stream(t->p->test)) {
        printf("[%3s] %.2f-%.2f sec  %" PRIu64 " Trans  %.2f Trans/sec\n", id, from, to,
               transactions, s > 0 ? (double)transactions / s : 0);
        return;
    }
    format_amount(amount, sizeof(amount), (double)bytes, "Bytes", 1024);
    format_amount(speed, sizeof(speed), s > 0 ? (double)bytes * 8 / s : 0, "bits/sec", 1000);
    printf("[%3s] %.2f-%.2f sec  %s  %s\n", id, from, to, amount, speed);
}

void ticker_sample(struct ticker *t, const struct sample *x, const uint64_t *streams)
{
    unsigned n = t->p->streams;
    bool stream = bench_is_stream(t->p->test);
    char id[16];
    if (!t->started) {
        t->base_ns = x->at_ns;
        memcpy(t->first_stream, streams, n * sizeof(streams[0]));
        if (t->on)
            printf("[ ID] Interval        Transfer     Bandwidth\n");
    } else if (t->on) {
        double from = (double)(t->last_ns - t->base_ns) / 1e9,
               to = (double)(x->at_ns - t->base_ns) / 1e9;
        for (unsigned i = 0; i < n && (stream ? n <= STREAMS_LISTED : n == 1); i++) {
            snprintf(id, sizeof(id), "%u", i + 1);
            print_interval(t, id, from, to, streams[i] - t->last_stream[i],
                           x->transactions - t->last_transactions);
        }
        if (n > 1)
            print_interval(t, "SUM", from, to, x->bytes - t->last_bytes,
                           x->transactions - t->last_transactions);
    }
    if (t->on)
        fflush(stdout);
    t->started = true;
    t->last_ns = x->at_ns;
    t->last_bytes = x->bytes;
    t->last_transactions = x->transactions;
    memcpy(t->last_stream, streams, n * sizeof(streams[0]));
}
