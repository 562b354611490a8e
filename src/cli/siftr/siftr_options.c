/* SPDX-License-Identifier: BSD-2-Clause
 * Options and filters of `weir siftr`. */
#include "siftr.h"

#include "wire/addr.h"

#define SECONDS_MAX UINT64_C(18446744000)

static const char help[] =
    "usage: weir siftr [OPTION]... FILE...\n"
    "       weir siftr on|off|status [--control PATH] [-S STACK]\n\n"
    "Reads flow logs (SIFTR): text as FreeBSD writes it or Weir's binary form, plain or "
    "compressed\n"
    "with zstd; - is standard input. on, off and status switch the log of a running instance (see\n"
    "'weir siftr on --help').\n\n"
    "What comes out (a summary of each flow, unless said otherwise):\n"
    "      --text          siftr.log as FreeBSD writes it\n"
    "      --csv           the same columns below a row of their names; no header and footer\n"
    "      --json          JSON Lines; with --summary: one document\n"
    "      --binary        the compact form\n"
    "      --summary       flows: records, bytes, RTT, cwnd, recovery, limited by what; totals\n"
    "  -o, --output FILE   there, instead of standard output; compressed if it ends in .zst\n"
    "  -z, --zstd          compressed in any case\n"
    "Only the records that all of these agree with:\n"
    "      --flow ADDR:PORT-ADDR:PORT   ([ADDR]:PORT for IPv6, or ADDR;PORT); either way round\n"
    "      --host ADDR     either end\n"
    "      --port PORT     either end\n"
    "      --direction in|out\n"
    "      --from TIME, --to TIME   seconds since 1970, or +SECONDS after the first record\n\n"
    "  -f, --follow        go on as the file grows, until interrupted\n";

enum {
    OPT_TEXT = 1000,
    OPT_CSV,
    OPT_JSON,
    OPT_BINARY,
    OPT_SUMMARY,
    OPT_FLOW,
    OPT_HOST,
    OPT_PORT,
    OPT_DIRECTION,
    OPT_FROM,
    OPT_TO
};
static const struct option long_options[] = {
    /* from OPT_TEXT on, in that order */
    {"text", no_argument, NULL, OPT_TEXT},
    {"csv", no_argument, NULL, OPT_CSV},
    {"json", no_argument, NULL, OPT_JSON},
    {"binary", no_argument, NULL, OPT_BINARY},
    {"summary", no_argument, NULL, OPT_SUMMARY},
    {"flow", required_argument, NULL, OPT_FLOW},
    {"host", required_argument, NULL, OPT_HOST},
    {"port", required_argument, NULL, OPT_PORT},
    {"direction", required_argument, NULL, OPT_DIRECTION},
    {"from", required_argument, NULL, OPT_FROM},
    {"to", required_argument, NULL, OPT_TO},
    {"output", required_argument, NULL, 'o'},
    {"zstd", no_argument, NULL, 'z'},
    {"follow", no_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* ---- values ---- */

static bool parse_address(const char *text, struct siftr_end *out)
{
    struct ipaddr a;
    if (ipaddr_parse(text, &a) != 0)
        return false;
    out->family = a.family == AF_INET6 ? 6 : 4;
    memcpy(out->addr, a.b, sizeof(out->addr));
    return true;
}

/* "10.0.0.1:80", "[fd00::1]:80", or with a semicolon, as in the footer's flow_list. */
static bool parse_end(const char *text, size_t length, struct siftr_end *out)
{
    char copy[64];
    if (length >= sizeof(copy))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *separator = strchr(copy, ';'), *address = copy;
    if (separator == NULL)
        separator = strrchr(copy, ':');
    if (separator == NULL)
        return false;
    *separator = '\0';
    size_t n = strlen(copy);
    bool bracketed = n >= 2 && copy[0] == '[' && copy[n - 1] == ']';
    if (bracketed) {
        copy[n - 1] = '\0';
        address++;
    }
    return parse_address(address, out) && parse_port(separator + 1, &out->port);
}

static bool parse_flow(const char *text, struct siftr_filter *f)
{
    const char *dash = strchr(text, '-');
    f->have_flow = dash != NULL && parse_end(text, (size_t)(dash - text), &f->flow[0]) &&
                   parse_end(dash + 1, strlen(dash + 1), &f->flow[1]) &&
                   f->flow[0].family == f->flow[1].family;
    return f->have_flow;
}

static bool parse_direction(const char *text, struct siftr_filter *f)
{
    bool out = strcmp(text, "out") == 0 || strcmp(text, "o") == 0;
    f->have_direction = true;
    f->direction = out ? SIFTR_OUT : SIFTR_IN;
    return out || strcmp(text, "in") == 0 || strcmp(text, "i") == 0;
}

static bool parse_time(const char *text, uint64_t *ns, bool *is_relative)
{
    *is_relative = text[0] == '+';
    return parse_seconds(text + *is_relative, SECONDS_MAX, ns);
}

/* ---- options ---- */

static bool set_filter(struct siftr_filter *f, int c, const char *value)
{
    switch (c) {
    case OPT_FLOW:
        return parse_flow(value, f);
    case OPT_HOST:
        f->have_host = true;
        return parse_address(value, &f->host);
    case OPT_PORT:
        f->have_port = true;
        return parse_port(value, &f->port);
    case OPT_DIRECTION:
        return parse_direction(value, f);
    case OPT_FROM:
        return parse_time(value, &f->from_ns, &f->from_is_relative);
    default:
        return parse_time(value, &f->to_ns, &f->to_is_relative);
    }
}

/* What the options that choose a form come to. -1: go on. */
static int choose_form(struct siftr_options *o, unsigned forms, bool summary)
{
    unsigned json = 1u << OUTPUT_JSON;
    if (summary && forms == json)
        o->summary_json = true;
    else if (summary && forms != 0)
        return cli_usage("siftr", "--summary goes with --json only");
    else if ((forms & (forms - 1)) != 0)
        return cli_usage("siftr", "only one of --text, --csv, --json and --binary");
    o->form = summary || forms == 0 ? OUTPUT_SUMMARY : (enum siftr_output_form)__builtin_ctz(forms);
    return -1;
}

static int check(struct siftr_options *o, int argc, char **argv)
{
    size_t length = o->output != NULL ? strlen(o->output) : 0;
    o->files = argv + optind;
    o->file_count = argc - optind;
    if (o->file_count == 0)
        return cli_usage("siftr", "no file is named");
    if (o->follow && (o->file_count > 1 || strcmp(o->files[0], "-") == 0))
        return cli_usage("siftr", "--follow takes one file");
    if (length >= 4 && strcmp(o->output + length - 4, ".zst") == 0)
        o->compress = true;
    if (o->compress && o->form == OUTPUT_SUMMARY)
        return cli_usage("siftr", "a summary is not compressed");
    return -1;
}

int siftr_options_parse(struct siftr_options *o, int argc, char **argv)
{
    unsigned forms = 0;
    bool summary = false;
    int c;
    *o = (struct siftr_options){
        .filter = {.from_ns = TIME_UNSET, .to_ns = TIME_UNSET, .first_ns = TIME_UNSET}};
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":o:zfh", long_options, NULL)) != -1) {
        switch (c) {
        case OPT_TEXT:
        case OPT_CSV:
        case OPT_JSON:
        case OPT_BINARY:
            forms |= 1u << (OUTPUT_TEXT + (c - OPT_TEXT));
            break;
        case OPT_SUMMARY:
            summary = true;
            break;
        case 'o':
            o->output = optarg;
            break;
        case 'z':
            o->compress = true;
            break;
        case 'f':
            o->follow = true;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("siftr");
        case ':':
        case '?':
            return cli_bad_option("siftr", c, argv);
        default:
            if (!set_filter(&o->filter, c, optarg))
                return cli_usage("siftr", "--%s: '%s' is not allowed",
                                 long_options[c - OPT_TEXT].name, optarg);
        }
    }
    int status = choose_form(o, forms, summary);
    return status >= 0 ? status : check(o, argc, argv);
}

/* ---- filtering ---- */

static bool is_end(const struct siftr_end *e, const struct siftr_record *r, bool local)
{
    return e->family == r->family &&
           memcmp(e->addr, local ? r->laddr : r->faddr, sizeof(e->addr)) == 0;
}

static bool is_flow(const struct siftr_end flow[2], const struct siftr_record *r)
{
    for (unsigned i = 0; i < 2; i++)
        if (is_end(&flow[i], r, true) && is_end(&flow[!i], r, false) && flow[i].port == r->lport &&
            flow[!i].port == r->fport)
            return true;
    return false;
}

/* from or to, as a time of day; a sum that is too large is the end of time. */
static uint64_t bound(const struct siftr_filter *f, uint64_t ns, bool is_relative)
{
    if (!is_relative)
        return ns;
    return ns > UINT64_MAX - f->first_ns ? UINT64_MAX : f->first_ns + ns;
}

bool siftr_filter_keeps(struct siftr_filter *f, const struct siftr_record *r)
{
    if (f->first_ns == TIME_UNSET)
        f->first_ns = r->time_ns;
    if (f->have_direction && r->direction != f->direction)
        return false;
    if (f->have_port && r->lport != f->port && r->fport != f->port)
        return false;
    if (f->from_ns != TIME_UNSET && r->time_ns < bound(f, f->from_ns, f->from_is_relative))
        return false;
    if (f->to_ns != TIME_UNSET && r->time_ns > bound(f, f->to_ns, f->to_is_relative))
        return false;
    if (f->have_host && !is_end(&f->host, r, true) && !is_end(&f->host, r, false))
        return false;
    return !f->have_flow || is_flow(f->flow, r);
}
