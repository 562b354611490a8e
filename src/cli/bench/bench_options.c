/* SPDX-License-Identifier: BSD-2-Clause
 * Options of `weir bench`. Nothing is started before all of them are known to be good. */
#include "bench_options.h"

#include <sched.h>
#include <stdio.h>
#include <strings.h>

const char bench_help[] =
    "usage: weir bench TEST [OPTION]...\n\n"
    "TEST (netperf's meaning):\n"
    "  TCP_STREAM   bulk data from here to the far end, counted where it arrives\n"
    "  TCP_MAERTS   the other way\n"
    "  TCP_SENDFILE a file, by sendfile, over and over\n"
    "  TCP_RR       request and response on one connection, one at a time\n"
    "  TCP_CRR      connect, request, response, close\n"
    "  UDP_STREAM   datagrams to the far end, numbered, counted where they arrive\n"
    "  UDP_RR       request and response in datagrams; one without an answer is sent again\n"
    "  PIPE         no stack: two copies between two cores, what the machine could do at most\n\n"
    "Without -H both ends are in this process: two Weir stacks on a memory link, or the kernel's\n"
    "loopback, each end on a core of its own where there are two. With -H the far end is 'weir "
    "server'.\n\n"
    "  -l SEC            length of the measured part (10; fractions allowed; 0: until SIGINT)\n"
    "  -i SEC            print (and record) intervals of this length\n"
    "  -O SEC            warm up first; not measured (at most 60)\n"
    "  -b RATE           UDP_STREAM: bits a second of each stream, K, M, G are powers of 1000\n"
    "                    (0: as fast as it goes)\n"
    "  -m BYTES          message size of streams (131072; of datagrams 1400);  -M BYTES  what the "
    "receiver asks for "
    "at\n"
    "                    a time (the same)\n"
    "  -F FILE           what TCP_SENDFILE sends (256 MB made for the run); its -m is what a call\n"
    "                    sends (the whole file)\n"
    "  -r REQ,RSP        request and response size (1,1)\n"
    "  -s BYTES          socket buffer size of both ends (the stack's own)\n"
    "  -P STREAMS        parallel connections (1; at most 2048)\n"
    "  -D                set TCP_NODELAY\n"
    "  -H HOST           far end;  -p PORT  its port (12866)\n"
    "  -4, -6            address family\n"
    "  -T CPU[,CPU]      cores of the near and the far end's threads (one each); one of them may "
    "be\n"
    "                    left out;  --stack-cpu CPU[,CPU]  the same for the stacks' own threads\n"
    "      --spin        a receiver polls instead of sleeping (kernel: non-blocking calls; weir:\n"
    "                    machdep.cpu_idle_hlt=0)\n"
    "      --verify      the payload of a stream is a pattern, checked where it arrives\n"
    "      --limit       measure PIPE too, in the same run, and say what share of it was reached\n"
    "      --locks       count the contended acquisitions of each lock\n"
    "      --cc NAME     congestion control of both ends (cubic)\n"
    "      --stack weir|kernel\n"
    "      --link SPEC   link of the Weir stack (mem): see weir-link(7)\n"
    "      --set NAME=VALUE, --set-remote NAME=VALUE   knobs of the near and the far stack\n"
    "  -J, --json        one JSON document on standard output, nothing else there\n"
    "      --no-store    do not keep the result for `weir results`\n\n"
    "Sizes may end in K, M or G (powers of 1024).\n";

const struct option bench_long_options[] = {
    {"json", no_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},
    {"no-store", no_argument, NULL, BENCH_NO_STORE},
    {"cc", required_argument, NULL, 1000},
    {"stack", required_argument, NULL, 1001},
    {"link", required_argument, NULL, 1002},
    {"set", required_argument, NULL, 1003},
    {"set-remote", required_argument, NULL, 1004},
    {"locks", no_argument, NULL, 1005},
    {"limit", no_argument, NULL, 1006},
    {"spin", no_argument, NULL, 1007},
    {"verify", no_argument, NULL, 1009},
    {"stack-cpu", required_argument, NULL, 1008},
    {NULL, 0, NULL, 0},
};

static bool parse_pair(const char *text, uint32_t *req, uint32_t *rsp)
{
    char first[32];
    uint64_t a, b;
    const char *comma = strchr(text, ',');
    size_t len = comma != NULL ? (size_t)(comma - text) : 0;
    if (len == 0 || len >= sizeof(first))
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    if (!parse_size(first, 0, BENCH_MAX_MESSAGE, &a) ||
        !parse_size(comma + 1, 0, BENCH_MAX_MESSAGE, &b))
        return false;
    *req = (uint32_t)a;
    *rsp = (uint32_t)b;
    return true;
}

const char bench_short_options[] = ":l:i:b:m:M:r:s:P:O:H:F:p:T:JD46h";

/* "A,B", "A" (both), "A," or ",B"; each a core this process may use. */
static bool parse_cpus(const char *text, int cpu[2])
{
    char first[16];
    cpu_set_t set;
    uint64_t v;
    const char *comma = strchr(text, ',');
    size_t len = comma != NULL ? (size_t)(comma - text) : strlen(text);
    if (len >= sizeof(first) || sched_getaffinity(0, sizeof(set), &set) != 0)
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    const char *part[2] = {first, comma != NULL ? comma + 1 : first};
    if (part[0][0] == '\0' && part[1][0] == '\0')
        return false;
    for (unsigned i = 0; i < 2; i++) {
        if (part[i][0] == '\0')
            continue;
        if (!parse_u64(part[i], 0, CPU_SETSIZE - 1, &v) || !CPU_ISSET((int)v, &set))
            return false;
        cpu[i] = (int)v;
    }
    return true;
}

/* Bits a second: digits, and K, M or G for powers of 1000. */
static bool parse_rate(const char *text, uint64_t *rate)
{
    static const char unit[] = "KMG";
    char digits[24];
    size_t len = strspn(text, "0123456789");
    uint64_t step = 1;
    if (len == 0 || len >= sizeof(digits))
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    const char *u = text[len] != '\0' ? strchr(unit, text[len]) : NULL;
    if (text[len] != '\0' && (u == NULL || text[len + 1] != '\0'))
        return false;
    for (const char *k = unit; u != NULL && k <= u; k++)
        step *= 1000;
    if (!parse_u64(digits, 0, UINT64_C(1000000000000000) / step, rate))
        return false;
    *rate *= step;
    return true;
}

static int bad(const char *what, const char *value)
{
    return cli_usage("bench", "%s: '%s' is not allowed", what, value);
}

/* One option that sets a number of the test. -1: good. */
static int parse_parameter(int c, struct bench_options *o)
{
    struct bench_params *p = &o->params;
    uint64_t v;
    switch (c) {
    case 'l':
        return parse_seconds(optarg, BENCH_MAX_SECONDS, &p->length_ns) ? -1 : bad("-l", optarg);
    case 'i':
        if (!parse_seconds(optarg, BENCH_MAX_SECONDS, &p->interval_ns) ||
            (p->interval_ns > 0 && p->interval_ns < NS_PER_MS))
            return bad("-i", optarg);
        return -1;
    case 'O':
        return parse_seconds(optarg, BENCH_MAX_OMIT_S, &p->omit_ns) ? -1 : bad("-O", optarg);
    case 'b':
        return parse_rate(optarg, &p->rate) ? -1 : bad("-b", optarg);
    case 'm':
        if (!parse_size(optarg, 1, BENCH_MAX_MESSAGE, &v))
            return bad("-m", optarg);
        p->message = (uint32_t)v;
        return -1;
    case 'M':
        if (!parse_size(optarg, 1, BENCH_MAX_MESSAGE, &v))
            return bad("-M", optarg);
        p->receive = (uint32_t)v;
        return -1;
    case 's':
        if (!parse_size(optarg, 1, 1 << 30, &v))
            return bad("-s", optarg);
        p->sockbuf = (uint32_t)v;
        return -1;
    case 'P':
        if (!parse_u64(optarg, 1, BENCH_MAX_STREAMS, &v))
            return cli_usage("bench", "-P: '%s' is not a number of streams from 1 to %d", optarg,
                             BENCH_MAX_STREAMS);
        p->streams = (uint32_t)v;
        return -1;
    default:
        return parse_pair(optarg, &p->request, &p->response) ? -1 : bad("-r", optarg);
    }
}

/* The other options. -1: good. */
static int parse_setup(int c, struct bench_options *o)
{
    struct bench_params *p = &o->params;
    switch (c) {
    case 1000:
        if (strlen(optarg) == 0 || strlen(optarg) >= sizeof(p->cc))
            return bad("--cc", optarg);
        snprintf(p->cc, sizeof(p->cc), "%s", optarg);
        p->cc_asked = true;
        return -1;
    case 1001:
        if (strcmp(optarg, "weir") != 0 && strcmp(optarg, "kernel") != 0)
            return bad("--stack", optarg);
        o->kernel = optarg[0] == 'k';
        return -1;
    case 1003:
        return settings_add(&o->sets, optarg) ? -1 : bad("--set", optarg);
    case 1004:
        return settings_add(&o->remote_sets, optarg) ? -1 : bad("--set-remote", optarg);
    case 1005:
        o->locks = true;
        return -1;
    case 1006:
        o->limit = true;
        return -1;
    case 1007:
        p->spin = true;
        return -1;
    case 1009:
        p->verify = true;
        return -1;
    case 1008:
        return parse_cpus(optarg, o->stack_cpu) ? -1 : bad("--stack-cpu", optarg);
    case 'T':
        return parse_cpus(optarg, o->cpu) ? -1 : bad("-T", optarg);
    case 'p':
        return parse_port(optarg, &o->port) ? -1 : bad("-p", optarg);
    default:
        return cli_usage("bench", "unknown option");
    }
}

static int parse_test(int argc, char **argv, struct bench_options *o)
{
    if (optind >= argc)
        return cli_usage("bench",
                         "name a test: TCP_STREAM, TCP_MAERTS, TCP_SENDFILE, TCP_RR, TCP_CRR, "
                         "UDP_STREAM or UDP_RR");
    for (unsigned t = 0; t < BENCH_TESTS; t++)
        if (strcasecmp(argv[optind], bench_test_name[t]) == 0)
            o->params.test = (enum bench_test)t;
    if (strcasecmp(argv[optind], "PIPE") == 0) {
        o->params.test = TCP_STREAM;
        o->pipe = true;
    }
    if (o->params.test == BENCH_TESTS)
        return cli_usage("bench", "%s is not a test", argv[optind]);
    if (optind + 1 < argc)
        return cli_usage("bench", "unexpected argument: %s", argv[optind + 1]);
    return -1;
}

/* What datagrams can do, and what can be checked. -1: all. */
static int check_datagrams(const struct bench_params *p)
{
    bool udp = bench_is_udp(p->test);
    if (!udp && (p->request == 0 || p->response == 0))
        return cli_usage("bench", "-r: only datagrams can be empty");
    if (p->rate > 0 && p->test != UDP_STREAM)
        return cli_usage("bench", "-b is for UDP_STREAM");
    if (p->verify && p->test != TCP_STREAM && p->test != TCP_MAERTS && p->test != UDP_STREAM)
        return cli_usage("bench", "--verify is for TCP_STREAM, TCP_MAERTS and UDP_STREAM");
    if (!udp)
        return -1;
    if (p->streams > BENCH_MAX_THREADS)
        return cli_usage("bench", "at most %d streams of datagrams", BENCH_MAX_THREADS);
    if (p->request > BENCH_MAX_DATAGRAM || p->response > BENCH_MAX_DATAGRAM ||
        (p->test == UDP_STREAM && p->message > BENCH_MAX_DATAGRAM))
        return cli_usage("bench", "a datagram has at most %u bytes", BENCH_MAX_DATAGRAM);
    if (p->test == UDP_STREAM && p->message < sizeof(struct udp_header))
        return cli_usage("bench", "a datagram that is counted has at least %zu bytes",
                         sizeof(struct udp_header));
    return -1;
}

/* What fits together. -1: all. */
static int check(const struct bench_options *o)
{
    const struct bench_params *p = &o->params;
    bool mem = o->link == NULL || net_link_is_mem(o->link);
    if (o->kernel && o->link != NULL)
        return cli_usage("bench", "--link is for the weir stack");
    if (o->kernel && o->sets.count > 0)
        return cli_usage("bench", "--set is for the weir stack");
    if (o->kernel && o->host == NULL && o->remote_sets.count > 0)
        return cli_usage("bench", "--set-remote is for the weir stack");
    if (!o->kernel && o->host == NULL && !mem)
        return cli_usage("bench", "with --link %s give the far end by -H", o->link);
    if (!o->kernel && o->host != NULL && mem)
        return cli_usage("bench",
                         "with -H the weir stack needs a --link that leads out of this process");
    if (o->host != NULL && (o->limit || o->pipe))
        return cli_usage("bench", "the limit of two cores is that of one machine: not with -H");
    if (o->pipe && p->length_ns == 0)
        return cli_usage("bench", "PIPE needs a length");
    if (o->kernel && (o->locks || o->stack_cpu[0] >= 0 || o->stack_cpu[1] >= 0))
        return cli_usage("bench", "--locks and --stack-cpu are for the weir stack");
    if (o->file != NULL && p->test != TCP_SENDFILE)
        return cli_usage("bench", "-F is for TCP_SENDFILE");
    if (p->interval_ns > 0 && p->length_ns / p->interval_ns >= BENCH_MAX_SAMPLES)
        return cli_usage("bench", "more than %d intervals", BENCH_MAX_SAMPLES);
    return -1;
}

int bench_parse(int argc, char **argv, struct bench_options *o)
{
    *o = (struct bench_options){
        .port = BENCH_PORT,
        .cpu = {CPU_AUTO, CPU_AUTO},
        .stack_cpu = {CPU_AUTO, CPU_AUTO},
        .params = {.test = BENCH_TESTS,
                   .length_ns = 10 * NS_PER_S,
                   .file_fd = -1,
                   .request = 1,
                   .response = 1,
                   .streams = 1,
                   .cc = "cubic"},
    };
    int c, e;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, bench_short_options, bench_long_options, NULL)) != -1) {
        e = -1;
        switch (c) {
        case 'l':
        case 'i':
        case 'O':
        case 'b':
        case 'm':
        case 'M':
        case 's':
        case 'P':
        case 'r':
            e = parse_parameter(c, o);
            break;
        case 'J':
            o->json = true;
            break;
        case BENCH_NO_STORE:
            o->no_store = true;
            break;
        case 'D':
            o->params.nodelay = true;
            break;
        case '4':
            o->family = AF_INET;
            break;
        case '6':
            o->family = AF_INET6;
            break;
        case 'H':
            o->host = optarg;
            break;
        case 'F':
            o->file = optarg;
            break;
        case 1002:
            o->link = optarg;
            break;
        case 'h':
            return CLI_OK;
        case '?':
        case ':':
            return cli_bad_option("bench", c, argv);
        default:
            e = parse_setup(c, o);
            break;
        }
        if (e >= 0)
            return e;
    }
    e = parse_test(argc, argv, o);
    if (o->params.test == TCP_SENDFILE) {
        o->params.file_call = o->params.message;
        o->params.message = 0;
    }
    if (o->params.message == 0)
        o->params.message = o->params.test == UDP_STREAM ? 1400 : 131072;
    if (e < 0)
        e = check(o);
    if (e < 0)
        e = check_datagrams(&o->params);
    if (e < 0 && o->params.spin && !o->kernel && !settings_add(&o->sets, "machdep.cpu_idle_hlt=0"))
        e = bad("--spin", "too many settings");
    return e;
}
