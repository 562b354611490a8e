/* SPDX-License-Identifier: BSD-2-Clause
 * Benchmarks: what a test is, one side of it (engine), its clock (run), and what comes out.
 *
 * How it works: a test has two sides. Each side is an engine: streams that connect or accept and
 * then send, receive or converse as the test says. Few streams have a thread each, in blocking
 * calls; many share one thread, which waits at an epoll set. A run samples the
 * engines' totals at the boundaries of the intervals; all results are differences of samples, so
 * that intervals always add up to the whole. Both sides are in this process on the same run, or the
 * far one is a session of `weir server`, which samples for itself and tells by JSON lines. */
#ifndef WEIR_CLI_BENCH_H
#define WEIR_CLI_BENCH_H

#include "hist.h"
#include "cli/net/net.h"
#include <jansson.h>
#include <pthread.h>

#define BENCH_MAX_STREAMS 2048
#define BENCH_MAX_THREADS 4 /* of a side; more streams than that share one */
#define BENCH_MAX_SAMPLES 100000
#define BENCH_MAX_MESSAGE (64u << 20)
#define BENCH_MAX_SECONDS 1000000
#define BENCH_MAX_OMIT_S 60
#define BENCH_PORT 12866 /* of weir server */

#define BENCH_MAX_DATAGRAM 65487u /* fits a packet of either family */

enum bench_test {
    TCP_STREAM,
    TCP_MAERTS,
    TCP_SENDFILE,
    TCP_RR,
    TCP_CRR,
    UDP_STREAM,
    UDP_RR,
    BENCH_TESTS
};
extern const char *const bench_test_name[BENCH_TESTS];

struct bench_params {
    enum bench_test test;
    uint64_t length_ns;   /* 0: until stopped */
    uint64_t interval_ns; /* 0: one interval */
    uint64_t omit_ns;     /* warm-up in front of the measured part */
    uint32_t message, request, response;
    uint32_t receive; /* bytes a stream's receiver asks for at a time; 0: message */
    uint32_t sockbuf; /* 0: the stack's own */
    uint64_t rate;    /* UDP_STREAM: payload bits a second of each stream; 0: as fast as it goes */
    uint64_t cookie;  /* of this run: tells its datagrams, seeds its pattern */
    bool verify;      /* payload is the pattern, and is checked where it arrives */
    uint32_t streams;
    bool nodelay;
    bool spin;     /* the kernel's sockets: receive by non-blocking calls over and over */
    bool cc_asked; /* the user named it: a refusal is an error, else a warning */
    char cc[16];
    /* TCP_SENDFILE, of the sending side alone: */
    int file_fd; /* -1: none */
    uint64_t file_bytes;
    uint32_t file_call; /* bytes of a call; 0: the whole file */
};
static inline bool bench_is_stream(enum bench_test t)
{
    return t == TCP_STREAM || t == TCP_MAERTS || t == TCP_SENDFILE || t == UDP_STREAM;
}
static inline bool bench_is_udp(enum bench_test t)
{
    return t == UDP_STREAM || t == UDP_RR;
}

/* Totals of one side at a moment. */
struct sample {
    uint64_t at_ns; /* CLOCK_MONOTONIC of the side that took it */
    uint64_t bytes, transactions, cpu_ns;
    bool have_tcp; /* the following are known */
    uint64_t retransmits, cwnd_bytes, rtt_us;
    bool have_udp; /* the following are known */
    uint64_t sent, received, lost, reordered, duplicates, retried, jitter_ns;
};
struct series {
    struct sample *v;
    size_t count, room;
};
/* Beyond BENCH_MAX_SAMPLES the last one is replaced (its interval grows). False: no memory. */
bool series_add(struct series *s, const struct sample *x) NODISCARD;
void series_free(struct series *s);

/* ---- bench_run.c: when to sample and when to stop; shared by all that may end a test ---- */
struct run {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop;       /* end now, with a result */
    bool failed;     /* end now, without */
    char error[256]; /* the first failure */
};
void run_init(struct run *r);
void run_fini(struct run *r);
void run_stop(struct run *r);
void run_fail(struct run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool run_has_failed(struct run *r);

struct engine;
/* For each sample of engine `side`; streams: bytes so far of each of its streams. */
typedef void run_sample_fn(void *ctx, unsigned side, const struct sample *x,
                           const uint64_t *streams);
/* Warm up, then sample from now to the end (or until stopped). The engines go on when it returns.
 */
void run_measure(struct run *r, struct engine *const *e, unsigned engines,
                 const struct bench_params *p, run_sample_fn *fn, void *ctx);

/* ---- bench_engine.c: one side ---- */
enum { PHASE_WARM, PHASE_MEASURE, PHASE_STOP };

/* One connection at a time. */
struct stream {
    CACHE_ALIGNED _Atomic uint64_t bytes; /* payload received, or sent where this side only sends */
    _Atomic uint64_t transactions;
    int fd; /* under the engine's mutex when changed; -1 none */
    bool published;
    /* Of bench_events.c: */
    uint8_t step;
    uint32_t events;    /* that its set was told; 0: not in the set */
    uint32_t done;      /* bytes of the message that is under way */
    uint64_t before_ns; /* when the transaction began */
    off_t at;           /* in the file */
    struct stream *next_free;
};

/* A thread: of one stream, or of all. */
struct worker {
    struct engine *engine;
    struct stream *stream;
    unsigned streams;
    pthread_t thread;
    bool started, ended;
    _Atomic int tid;
    uint64_t cpu_ns; /* when ended */
    char *buf;
    size_t buf_size;
    struct hist hist;
};

/* ---- bench_udp.c ---- */
#define UDP_WINDOW 8192u /* datagrams back that a duplicate is told from one that is late */
struct udp_header {
    uint32_t kind, stream;
    uint64_t cookie, seq, sent_ns;
};
struct udp_stream {
    _Atomic uint64_t sent, received, lost, reordered, duplicates, retried, jitter_ns;
    /* Of the receiver: */
    uint64_t next; /* one more than the highest number seen */
    int64_t transit_ns;
    uint64_t seen[UDP_WINDOW / 64];
    struct sockaddr_storage peer;
};
/* Datagram seq arrived after a way of transit_ns (clocks may differ). Those older than the window
 * count as duplicates. */
void udp_arrived(struct udp_stream *u, uint64_t seq, int64_t transit_ns);
void udp_sample(const struct engine *e, struct sample *x);

struct engine {
    const struct net *net;
    struct bench_params p;
    struct run *run;
    bool active; /* connects */
    int cpu;     /* pinned to; -1 not */
    int listen_fd;
    struct sockaddr_storage peer;
    _Atomic int phase;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned ready, ended;
    uint32_t sndbuf, rcvbuf; /* of the first connection, as the stack says */
    uint64_t counter_base;
    struct stream *stream;  /* p.streams of them */
    struct udp_stream *udp; /* as many, in UDP tests; else NULL */
    char *pattern;          /* to verify; else NULL */
    struct worker *worker;
    unsigned workers;
    char cc_refused[128]; /* why the congestion control was not set; "" it was */
};

/* The passive side: listens on *sa's address (any port when 0) and starts. *sa gets the port. 0, -1
 * with run_fail. */
int engine_listen(struct engine *e, const struct net *n, struct run *r,
                  const struct bench_params *p, struct sockaddr_storage *sa, int cpu) NODISCARD;
/* The active side: starts to connect. */
int engine_connect(struct engine *e, const struct net *n, struct run *r,
                   const struct bench_params *p, const struct sockaddr_storage *peer,
                   int cpu) NODISCARD;
/* Until every stream has its connection. False: failed, stopped or too late (run_fail). */
bool engine_wait_ready(struct engine *e, unsigned seconds);
void engine_sample(struct engine *e, struct sample *x, uint64_t *streams);
/* End the threads: no result is taken from them after this. Join and free. */
void engine_stop(struct engine *e);
void engine_hist(const struct engine *e,
                 struct hist *out); /* after engine_stop, before engine_free */
void engine_free(struct engine *e);
/* What a worker does once it runs: bench_roles.c with one stream, bench_events.c with many. False:
 * it failed (run_fail was called, unless stopping). */
bool worker_role(struct worker *w);
bool worker_events(struct worker *w);
bool worker_udp(struct worker *w);
bool worker_stopping(const struct worker *w);
/* The stream's connection is fd; counts the stream as ready once. */
void stream_publish(struct worker *w, struct stream *s, int fd);
/* Name the descriptor that the thread may block in from now on (-1: none), so that engine_stop can
 * wake it. False: the end has come already, do not block. */
bool stream_hold(struct worker *w, struct stream *s, int fd);
static inline void stream_add_bytes(struct stream *s, uint64_t n)
{
    STORE_RELAXED(&s->bytes, LOAD_RELAXED(&s->bytes) + n); /* one writer */
}
/* A request and its response; began: when (0: not to be timed). */
void stream_add_transaction(struct worker *w, struct stream *s, uint64_t began_ns, uint64_t now_ns);
/* A connection's options, before connect or listen. */
int engine_prepare(struct engine *e, int fd) NODISCARD;
bool engine_failed(struct worker *w,
                   const char *what); /* reports errno unless stopping; returns false */

/* ---- bench_pattern.c ---- */
#define PATTERN_PERIOD 1048573u
/* Caller frees; a run of up to `longest` bytes can be had from any place. NULL: no memory. */
char *pattern_create(uint64_t seed, size_t longest);
static inline const char *pattern_at(const char *pattern, uint64_t place)
{
    return pattern + place % PATTERN_PERIOD;
}
/* Index of the first byte that is not as it should be; len: none. */
size_t pattern_differs(const char *pattern, const char *buf, size_t len, uint64_t place);
/* False with run_fail. */
bool pattern_check(struct engine *e, const char *buf, size_t len, uint64_t place);

/* ---- bench_file.c ---- */
/* Open path, or make a file (NULL): p's file_fd (the caller's) and file_bytes. */
bool bench_file_open(const char *path, struct bench_params *p, char *err, size_t size) NODISCARD;

/* ---- bench_proto.c: JSON lines between bench and server ---- */
#define PROTO_VERSION 2
#define PROTO_MAX_LINE 65536
struct lines { /* a connection and what was read beyond a line */
    const struct net *net;
    int fd;
    size_t held;
    char buf[PROTO_MAX_LINE];
};
json_t *lines_read(struct lines *l, char *err, size_t size); /* NULL: closed, too long, not JSON */
int lines_write(struct lines *l, json_t *o);                 /* consumes o; 0, -1 */
json_t *params_to_json(const struct bench_params *p);
/* Checks every value. False: err says what is wrong. */
bool params_from_json(const json_t *o, struct bench_params *p, char *err, size_t size);
json_t *sample_to_json(const struct sample *x, const uint64_t *streams, unsigned count);
bool sample_from_json(const json_t *o, struct sample *x, uint64_t *streams, unsigned count);

/* ---- bench_result.c: what is printed ---- */
struct bench_result {
    struct bench_params p;
    const char *stack, *link, *host; /* host NULL: both ends here */
    struct series side[2];           /* local, remote */
    struct hist *hist;               /* NULL: none */
    const uint64_t *stream_bytes;    /* of each stream, where they count; NULL: not known */
    uint32_t sndbuf[2], rcvbuf[2];
    double start_time;              /* s since the epoch, of the measured part */
    json_t *sysctl, *sysctl_remote; /* borrowed; may be NULL */
    json_t *siftr;                  /* the same; NULL: no flow log */
    json_t *warnings;
    char remote_stack[16];
};
/* Sides by what they count. */
unsigned result_counting_side(enum bench_test t);
unsigned result_sending_side(enum bench_test t);
json_t *result_json(const struct bench_result *r);
void result_print(const struct bench_result *r);
json_t *number_or_null(double v, bool known);
/* Jain's index: 1 when all have the same, 1/n when one has all; NAN when there is nothing. */
double fairness(const uint64_t *v, unsigned n);

/* Interval lines as they come, and what each stream had at the first and the last of them. */
struct ticker {
    const struct bench_params *p;
    bool on;
    uint64_t base_ns, last_ns, last_bytes, last_transactions;
    uint64_t first_stream[BENCH_MAX_STREAMS], last_stream[BENCH_MAX_STREAMS];
    bool started;
};
void ticker_sample(struct ticker *t, const struct sample *x, const uint64_t *streams);

/* ---- bench_remote.c: a far side that is a session of weir server ---- */
struct remote;
struct remote *remote_open(const struct net *n, const char *host, uint16_t port, int family,
                           char *err, size_t size);
/* Ask for the test; *peer gets the address for the data connections. */
int remote_start(struct remote *m, const struct bench_params *p, const struct settings *sets,
                 struct sockaddr_storage *peer, struct bench_result *result, char *err,
                 size_t size);
/* Begin; samples go to *series and to tick (may be NULL) as they come; failures to r. */
int remote_go(struct remote *m, struct run *r, struct series *series, struct ticker *tick);
/* The local side is through: wait for the far side's last sample. */
bool remote_finish(struct remote *m, struct run *r, struct bench_result *result);
void remote_close(struct remote *m); /* NULL allowed */

#endif
