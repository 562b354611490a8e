/* SPDX-License-Identifier: BSD-2-Clause
 * What a flow log tells of its connections, and whether it is whole.
 *
 * A record has no sequence numbers, but the bytes in flight before the packet. Between the record
 * of an outbound packet and the next of its flow nothing but that packet adds to them, and an
 * inbound one only takes away: so the sums of what was added and taken are the bytes sent (for the
 * first time) and acknowledged, exactly where every packet was logged, and at least that many
 * otherwise. What a peer sent cannot be told: the receive buffer is emptied between records.
 *
 * What limited a sender is looked at when a packet comes in, as then it had sent what it could. */
#include "siftr.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define HASH_SIZE (2 * SUMMARY_FLOWS_MAX)
#define FASTRECOVERY 0x00100000u /* of flags */
#define CONGRECOVERY 0x20000000u

/* Values of 32 bits, in steps of at most a 32nd. */
#define STEPS 32u
#define BUCKETS ((32 - 5 + 1) * STEPS)

#define LIMITS(X)                                                                                  \
    X(cwnd, "cwnd")                                                                                \
    X(window, "peer's window")                                                                     \
    X(buffer, "send buffer")                                                                       \
    X(application, "application")                                                                  \
    X(nothing, "nothing")
enum limit {
#define X(id, name) LIMIT_##id,
    LIMITS(X)
#undef X
        LIMIT_COUNT
};
static const char *const limit_names[] = {
#define X(id, name) name,
    LIMITS(X)
#undef X
};
static const char *const limit_keys[] = {
#define X(id, name) #id,
    LIMITS(X)
#undef X
};

struct flow_summary {
    struct siftr_record last;
    uint64_t log; /* that of `last`: nothing is known of what was between two */
    uint64_t first_ns, last_ns;
    uint64_t records[2]; /* by direction */
    uint64_t sent, acked;
    uint64_t cwnd_sum;
    uint32_t cwnd_max;
    uint32_t srtt_min, srtt_max;
    uint64_t srtt_count;
    uint64_t fast_recoveries, collapses, recovery_packets;
    uint64_t limited[LIMIT_COUNT];
    uint32_t srtt[BUCKETS];
};

struct siftr_summary {
    struct flow_summary **flows;
    uint32_t flow_count;
    uint32_t hash[HASH_SIZE]; /* index + 1; 0: free */
    uint64_t records[2], other_records, hidden;
    uint64_t first_ns, last_ns;
    bool filtered;
    /* Logs that are open. Several stacks may write to one file: their records are told from each
     * other by nothing, so that their footers are compared together, when the last has come. */
    uint64_t log;
    uint64_t open;                      /* headers without a footer */
    uint64_t session_records;           /* since the latest header, or the beginning of the file */
    uint64_t group_records;             /* since the first of the open headers */
    uint64_t group_counted, group_logs; /* by the footers that came since */
    uint64_t sessions, complete, agreeing;
    uint64_t packets[2], skipped, footer_records;
};

struct siftr_summary *siftr_summary_create(bool filtered)
{
    struct siftr_summary *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->filtered = filtered;
    s->first_ns = TIME_UNSET;
    s->flows = calloc(SUMMARY_FLOWS_MAX, sizeof(struct flow_summary *));
    if (s->flows != NULL)
        return s;
    free(s);
    return NULL;
}

void siftr_summary_destroy(struct siftr_summary *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->flow_count; i++)
        free(s->flows[i]);
    free(s->flows);
    free(s);
}

/* ---- flows ---- */

static bool same_flow(const struct siftr_record *a, const struct siftr_record *b)
{
    return a->lport == b->lport && a->fport == b->fport && a->family == b->family &&
           memcmp(a->laddr, b->laddr, sizeof(a->laddr)) == 0 &&
           memcmp(a->faddr, b->faddr, sizeof(a->faddr)) == 0;
}

static uint32_t flow_hash(const struct siftr_record *r)
{
    uint64_t h = (uint64_t)r->lport << 16 | r->fport;
    for (unsigned i = 0; i < 16; i++)
        h = (h ^ r->laddr[i] ^ (uint64_t)r->faddr[i] << 8) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32) % HASH_SIZE;
}

/* The flow of a record, made when it is new (*fresh). NULL: there are too many (*no_memory: or
 * no memory). */
static struct flow_summary *find_flow(struct siftr_summary *s, const struct siftr_record *r,
                                      bool *fresh, bool *no_memory)
{
    uint32_t at = flow_hash(r);
    for (; s->hash[at] != 0; at = (at + 1) % HASH_SIZE)
        if (same_flow(&s->flows[s->hash[at] - 1]->last, r))
            return s->flows[s->hash[at] - 1];
    if (s->flow_count == SUMMARY_FLOWS_MAX)
        return NULL;
    struct flow_summary *f = calloc(1, sizeof(*f));
    *no_memory = f == NULL;
    if (f == NULL)
        return NULL;
    *fresh = true;
    f->first_ns = r->time_ns;
    f->srtt_min = UINT32_MAX;
    s->flows[s->flow_count++] = f;
    s->hash[at] = s->flow_count;
    return f;
}

/* ---- quantiles ---- */

static unsigned bucket_of(uint32_t v)
{
    if (v < STEPS)
        return v;
    unsigned shift = 31u - (unsigned)__builtin_clz(v) - 5;
    return (shift + 1) * STEPS + (v >> shift) - STEPS;
}

static uint32_t bucket_end(unsigned b)
{
    if (b < STEPS)
        return b;
    unsigned shift = b / STEPS - 1;
    return (uint32_t)(((uint64_t)(b % STEPS + STEPS + 1) << shift) - 1);
}

static uint32_t quantile(const struct flow_summary *f, unsigned percent)
{
    uint64_t rank = (f->srtt_count * percent + 99) / 100, seen = 0;
    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += f->srtt[b];
        if (seen >= rank)
            return MIN(MAX(bucket_end(b), f->srtt_min), f->srtt_max);
    }
    return f->srtt_max;
}

/* ---- adding ---- */

static enum limit limit_of(const struct siftr_record *r)
{
    uint64_t with_one_more = (uint64_t)r->inflight + MAX(r->mss, 1u);
    if (r->snd_fill <= r->inflight)
        return (uint64_t)r->snd_fill + r->mss > r->snd_limit ? LIMIT_buffer : LIMIT_application;
    if (with_one_more > r->snd_wnd && r->snd_wnd <= r->cwnd)
        return LIMIT_window;
    return with_one_more > r->cwnd ? LIMIT_cwnd : LIMIT_nothing;
}

/* What happened between a flow's last record and this one. */
static void add_step(struct flow_summary *f, const struct siftr_record *r)
{
    const struct siftr_record *last = &f->last;
    int32_t grown = (int32_t)(r->inflight - last->inflight);
    if (grown > 0)
        f->sent += (uint32_t)grown;
    else
        f->acked += (uint32_t) - (int64_t)grown;
    if ((r->flags & FASTRECOVERY) && !(last->flags & FASTRECOVERY))
        f->fast_recoveries++;
    if (r->cwnd <= r->mss && last->cwnd > last->mss)
        f->collapses++;
    if (last->direction == SIFTR_OUT && (last->flags & (FASTRECOVERY | CONGRECOVERY)) &&
        last->inflight > 0 && grown <= 0)
        f->recovery_packets++;
}

static void add_srtt(struct flow_summary *f, uint32_t srtt_us)
{
    if (srtt_us == 0)
        return; /* no sample yet */
    f->srtt_min = MIN(f->srtt_min, srtt_us);
    f->srtt_max = MAX(f->srtt_max, srtt_us);
    f->srtt[bucket_of(srtt_us)]++;
    f->srtt_count++;
}

int siftr_summary_record(struct siftr_summary *s, const struct siftr_record *r)
{
    bool fresh = false, no_memory = false;
    struct flow_summary *f = find_flow(s, r, &fresh, &no_memory);
    s->records[r->direction]++;
    s->session_records++;
    s->group_records++;
    s->first_ns = MIN(s->first_ns, r->time_ns);
    s->last_ns = MAX(s->last_ns, r->time_ns);
    if (f == NULL) {
        s->other_records++;
        return no_memory ? -ENOMEM : 0;
    }
    /* Nor from one connection to the next between the same ends. */
    if (!fresh && f->last.flowid == r->flowid && f->log == s->log)
        add_step(f, r);
    if (r->direction == SIFTR_IN)
        f->limited[limit_of(r)]++;
    add_srtt(f, r->srtt_us);
    f->records[r->direction]++;
    f->cwnd_sum += r->cwnd;
    f->cwnd_max = MAX(f->cwnd_max, r->cwnd);
    f->first_ns = MIN(f->first_ns, r->time_ns);
    f->last_ns = MAX(f->last_ns, r->time_ns);
    f->last = *r;
    f->log = s->log;
    return 0;
}

bool siftr_summary_is_empty(const struct siftr_summary *s)
{
    return s->records[SIFTR_IN] + s->records[SIFTR_OUT] + s->hidden + s->sessions == 0;
}

void siftr_summary_hidden(struct siftr_summary *s)
{
    s->hidden++;
    s->session_records++;
    s->group_records++;
}

static void group_begin(struct siftr_summary *s)
{
    s->open = s->group_logs = 0;
    s->session_records = s->group_records = s->group_counted = 0;
}

/* A footer counts so many records. */
static void session_end(struct siftr_summary *s, uint64_t counted)
{
    s->complete++;
    if (counted == s->session_records && s->group_logs == 0) {
        /* Alone, whatever was left open before it by a process that was killed. */
        s->agreeing++;
        s->footer_records += counted;
        group_begin(s);
        return;
    }
    s->group_counted += counted;
    s->group_logs++;
    if (--s->open > 0)
        return;
    if (s->group_counted == s->group_records)
        s->agreeing += s->group_logs;
    s->footer_records += s->group_records;
    group_begin(s);
}

void siftr_summary_file(struct siftr_summary *s)
{
    s->log++;
    group_begin(s);
}

void siftr_summary_line(struct siftr_summary *s, const struct siftr_line *line)
{
    if (line->kind == SIFTR_LINE_HEADER) {
        s->log++;
        s->sessions++;
        if (s->open++ == 0)
            s->group_records = s->group_counted = s->group_logs = 0;
        s->session_records = 0;
        return;
    }
    const struct siftr_footer *f = &line->footer;
    uint64_t skipped = 0, packets = f->packets[SIFTR_IN] + f->packets[SIFTR_OUT];
    for (unsigned d = 0; d < 2; d++)
        skipped += f->skipped_malloc[d] + f->skipped_tcpcb[d] + f->skipped_inpcb[d];
    if (s->open > 0) {
        s->packets[SIFTR_IN] += f->packets[SIFTR_IN];
        s->packets[SIFTR_OUT] += f->packets[SIFTR_OUT];
        s->skipped += skipped;
        session_end(s, packets - skipped);
    }
}

/* ---- printing ---- */

static void print_flow_name(FILE *to, const struct siftr_record *r)
{
    char local[48], foreign[48];
    local[siftr_text_address(local, r->family, r->laddr)] = '\0';
    foreign[siftr_text_address(foreign, r->family, r->faddr)] = '\0';
    const char *form = r->family == 6 ? "[%s]:%u > [%s]:%u\n" : "%s:%u > %s:%u\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(to, form, local, r->lport, foreign, r->fport);
#pragma GCC diagnostic pop
}

static double seconds(const struct flow_summary *f)
{
    return (double)(f->last_ns - f->first_ns) / 1e9;
}

static void print_limits(FILE *to, const struct flow_summary *f)
{
    uint64_t in = f->records[SIFTR_IN];
    bool any = false;
    if (in == 0 || f->sent == 0)
        return;
    fprintf(to, "  limited by ");
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        if (f->limited[i] == 0)
            continue;
        fprintf(to, "%s %s %.1f%%", any ? "," : "", limit_names[i],
                100.0 * (double)f->limited[i] / (double)in);
        any = true;
    }
    fputc('\n', to);
}

static void print_flow(FILE *to, const struct flow_summary *f)
{
    double s = seconds(f);
    uint64_t records = f->records[SIFTR_IN] + f->records[SIFTR_OUT];
    print_flow_name(to, &f->last);
    fprintf(to, "  records     %" PRIu64 " (in %" PRIu64 ", out %" PRIu64 ") over %.6f s\n",
            records, f->records[SIFTR_IN], f->records[SIFTR_OUT], s);
    fprintf(to, "  sent        %" PRIu64 " bytes, %" PRIu64 " of them acknowledged", f->sent,
            f->acked);
    if (s > 0)
        fprintf(to, ", %.3f Mbit/s", (double)f->sent * 8 / s / 1e6);
    fputc('\n', to);
    if (f->srtt_count > 0)
        fprintf(to, "  srtt        min %.3f, median %.3f, p95 %.3f, max %.3f ms\n",
                f->srtt_min / 1e3, quantile(f, 50) / 1e3, quantile(f, 95) / 1e3, f->srtt_max / 1e3);
    fprintf(to, "  cwnd        max %" PRIu32 ", mean %.0f bytes\n", f->cwnd_max,
            (double)f->cwnd_sum / (double)records);
    fprintf(to,
            "  recovery    fast recoveries %" PRIu64 ", falls of cwnd to one segment %" PRIu64
            ", packets out in recovery without new data %" PRIu64 "\n",
            f->fast_recoveries, f->collapses, f->recovery_packets);
    print_limits(to, f);
}

static void print_totals(FILE *to, const struct siftr_summary *s)
{
    uint64_t records = s->records[SIFTR_IN] + s->records[SIFTR_OUT];
    fprintf(to, "total\n  records     %" PRIu64 " (in %" PRIu64 ", out %" PRIu64 ")", records,
            s->records[SIFTR_IN], s->records[SIFTR_OUT]);
    if (records > 0)
        fprintf(to, " over %.6f s", (double)(s->last_ns - s->first_ns) / 1e9);
    fprintf(to, ", flows %" PRIu32 "\n", s->flow_count);
    if (s->other_records > 0)
        fprintf(to, "  of more flows than %d, not shown above: %" PRIu64 " records\n",
                SUMMARY_FLOWS_MAX, s->other_records);
    if (s->filtered)
        fprintf(to, "  left out    %" PRIu64 " records\n", s->hidden);
    fprintf(to, "  logs        %" PRIu64 ", with header and footer %" PRIu64 "\n", s->sessions,
            s->complete);
    if (s->complete > 0)
        fprintf(to,
                "  counted     %" PRIu64 " packets (in %" PRIu64 ", out %" PRIu64
                "), skipped %" PRIu64 ", records %" PRIu64 ": %s\n",
                s->packets[SIFTR_IN] + s->packets[SIFTR_OUT], s->packets[SIFTR_IN],
                s->packets[SIFTR_OUT], s->skipped, s->footer_records,
                s->agreeing == s->complete
                    ? "they agree"
                    : "they do NOT agree (unless ppl or port_filter was on)");
}

static void print_flow_json(FILE *to, const struct flow_summary *f)
{
    char address[48];
    const struct siftr_record *r = &f->last;
    address[siftr_text_address(address, r->family, r->laddr)] = '\0';
    fprintf(to, "{\"laddr\":\"%s\",\"lport\":%u,", address, r->lport);
    address[siftr_text_address(address, r->family, r->faddr)] = '\0';
    fprintf(to, "\"faddr\":\"%s\",\"fport\":%u,", address, r->fport);
    fprintf(to,
            "\"records_in\":%" PRIu64 ",\"records_out\":%" PRIu64
            ",\"seconds\":%.9f,\"sent_bytes\":%" PRIu64 ",\"acked_bytes\":%" PRIu64 ",",
            f->records[SIFTR_IN], f->records[SIFTR_OUT], seconds(f), f->sent, f->acked);
    if (f->srtt_count > 0)
        fprintf(to, "\"srtt_us\":{\"min\":%u,\"median\":%u,\"p95\":%u,\"max\":%u},", f->srtt_min,
                quantile(f, 50), quantile(f, 95), f->srtt_max);
    fprintf(to,
            "\"cwnd_max\":%u,\"cwnd_mean\":%.1f,\"fast_recoveries\":%" PRIu64
            ",\"cwnd_collapses\":%" PRIu64 ",\"recovery_packets\":%" PRIu64 ",\"limited\":{",
            f->cwnd_max,
            (double)f->cwnd_sum / (double)(f->records[SIFTR_IN] + f->records[SIFTR_OUT]),
            f->fast_recoveries, f->collapses, f->recovery_packets);
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        fprintf(to, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", limit_keys[i], f->limited[i]);
    fputs("}}", to);
}

static void print_json(FILE *to, const struct siftr_summary *s)
{
    fputs("{\"flows\":[", to);
    for (uint32_t i = 0; i < s->flow_count; i++) {
        if (i > 0)
            fputs(",\n", to);
        print_flow_json(to, s->flows[i]);
    }
    fprintf(to,
            "],\n\"records_in\":%" PRIu64 ",\"records_out\":%" PRIu64 ",\"hidden_records\":%" PRIu64
            ",\"other_records\":%" PRIu64 ",\"logs\":%" PRIu64 ",\"complete_logs\":%" PRIu64
            ",\"agreeing_logs\":%" PRIu64 ",\"packets_in\":%" PRIu64 ",\"packets_out\":%" PRIu64
            ",\"skipped\":%" PRIu64 "}\n",
            s->records[SIFTR_IN], s->records[SIFTR_OUT], s->hidden, s->other_records, s->sessions,
            s->complete, s->agreeing, s->packets[SIFTR_IN], s->packets[SIFTR_OUT], s->skipped);
}

void siftr_summary_print(struct siftr_summary *s, FILE *to, bool json)
{
    if (json) {
        print_json(to, s);
        return;
    }
    for (uint32_t i = 0; i < s->flow_count; i++)
        print_flow(to, s->flows[i]);
    print_totals(to, s);
}
