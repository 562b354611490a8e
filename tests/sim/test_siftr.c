/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the flow log says what TCP's own counters and TCP_INFO say, packet by packet, and what is
 * not logged is counted with its cause; the knobs do what they promise at any time. Bound: at most
 * some thousand packets a case, in virtual time. */
#include "measure/siftr.h"
#include "peer.h"
#include "siftr_read.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ENABLED "net.inet.siftr.enabled"
#define LOGFILE "net.inet.siftr.logfile"

static struct sim *sim;
static struct weir_stack *a, *b;
static int listener, client, server;
static struct siftr_file file;
static char dir[] = "/tmp/weir-siftr.XXXXXX";
static char path[64], other[64];

static int setup(void **state)
{
    strcpy(strrchr(dir, '.'), ".XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/log", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    sim = sim_create(5, 0);
    a = sim_stack(sim, "a");
    b = sim_stack(sim, "b");
    assert_int_equal(siftr_attach(a), 0);
    memset(&file, 0, sizeof(file));
    listener = client = server = -1;
    return 0;
}

static int teardown(void **state)
{
    siftr_file_free(&file);
    sim_destroy(sim);
    unlink(path);
    unlink(other);
    return rmdir(dir);
}

/* ---- knobs and connections ---- */

static int set(const char *name, const char *value)
{
    assert_true(owner_try(a));
    int e = sysctl_set(a, name, value);
    stack_leave(a);
    siftr_settle(a);
    return e;
}

static void knob_reads(const char *name, const char *value)
{
    char text[1024];

    assert_true(owner_try(a));
    assert_int_equal(sysctl_get(a, name, text, sizeof(text)), 0);
    stack_leave(a);
    assert_string_equal(text, value);
}

static void log_on(void)
{
    assert_int_equal(set(LOGFILE, path), 0);
    assert_int_equal(set(ENABLED, "1"), 0);
}

/* Switch off and read; with ppl of 1 the last session must be exact. */
static const struct siftr_session *log_off(void)
{
    assert_int_equal(set(ENABLED, "0"), 0);
    siftr_file_free(&file);
    siftr_file_read(&file, path);
    assert_true(file.sessions > 0);
    const struct siftr_session *s = &file.session[file.sessions - 1];
    if (KNOB(a, siftr_ppl) == 1)
        siftr_session_exact(&file, s);
    return s;
}

static const struct siftr_record *record(const struct siftr_session *s, size_t i)
{
    assert_true(i < s->records[0] + s->records[1]);
    return &file.record[s->first + i];
}

static void open_port(int family, uint16_t port)
{
    struct sockaddr_storage ss;
    struct ipaddr any = {.family = (uint8_t)family};
    socklen_t len = ipaddr_to_sockaddr(&any, port, family, &ss);

    listener = weir_socket(b, family, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(listener, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(weir_listen(listener, 8), 0);
}

static int try_connect(int family, uint16_t from, uint16_t port)
{
    struct sockaddr_storage ss;
    struct ipaddr to, any = {.family = (uint8_t)family};

    assert_int_equal(ipaddr_parse(family == AF_INET ? "10.0.0.2" : "fd00::2", &to), 0);
    client = weir_socket(a, family, SOCK_STREAM, 0);
    if (from != 0) {
        int on = 1;
        socklen_t any_len = ipaddr_to_sockaddr(&any, from, family, &ss);
        assert_int_equal(weir_setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
        assert_int_equal(weir_bind(client, (struct sockaddr *)&ss, any_len), 0);
    }
    socklen_t len = ipaddr_to_sockaddr(&to, port, family, &ss);
    return weir_connect(client, (struct sockaddr *)&ss, len);
}

static void establish(int family, uint16_t from)
{
    assert_int_equal(try_connect(family, from, 5001), 0);
    server = weir_accept(listener, NULL, NULL);
    assert_true(server >= 0);
}

static void begin(int family, const char *link)
{
    sim_join(sim, a, b, link);
    open_port(family, 5001);
    establish(family, 0);
}

/* n small segments from a to b, each acknowledged before the next is sent. */
static void ping(unsigned n)
{
    char buf[8] = {0};

    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(weir_send(client, buf, 1, 0), 1);
        assert_int_equal(weir_recv(server, buf, sizeof(buf), 0), 1);
        sim_run(sim, NS_PER_S);
    }
}

static void transfer(size_t bytes)
{
    static char buf[65536];

    while (bytes > 0) {
        ssize_t n = weir_send(client, buf, MIN(sizeof(buf), bytes), MSG_DONTWAIT);
        bytes -= n > 0 ? (size_t)n : 0;
        while (weir_recv(server, buf, sizeof(buf), MSG_DONTWAIT) > 0)
            ;
        (void)sim_step(sim, sim_now(sim) + NS_PER_S);
    }
    sim_run(sim, NS_PER_S);
    while (weir_recv(server, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
}

static void hang_up(void)
{
    weir_close(client);
    weir_close(server);
    sim_run(sim, 200 * NS_PER_S);
}

/* ---- what is in a record ---- */

static void expect_info(const struct siftr_record *r, const struct tcp_info *i)
{
    assert_int_equal(r->state, 4);
    assert_int_equal(r->mss, i->tcpi_snd_mss);
    assert_int_equal(r->cwnd / r->mss, i->tcpi_snd_cwnd);
    if (r->ssthresh == 1073725440) /* FreeBSD's "none yet" */
        assert_int_equal(i->tcpi_snd_ssthresh, INT32_MAX);
    else
        assert_int_equal(r->ssthresh / r->mss, i->tcpi_snd_ssthresh);
    assert_int_equal(r->srtt_us, i->tcpi_rtt);
    assert_int_equal(r->rto_us, i->tcpi_rto);
    assert_int_equal(r->snd_wnd, i->tcpi_snd_wnd);
    assert_int_equal(r->snd_scale, i->tcpi_snd_wscale);
    assert_int_equal(r->rcv_scale, i->tcpi_rcv_wscale);
    assert_int_equal(r->sack, (i->tcpi_options & 2) != 0);
    assert_int_equal((r->inflight + r->mss - 1) / r->mss, i->tcpi_unacked);
    assert_int_equal(r->rcv_limit, i->tcpi_rcv_space);
}

/* Outbound packets show the state that TCP_INFO showed just before; the RTT of the path is 50 ms.
 * case: MEA-062 */
static void fields_are_those_of_tcp_info(void **state)
{
    struct tcp_info before, after;
    socklen_t len = sizeof(before);
    char byte = 0;
    int size = 0;

    sim_sysctl(b, "net.inet.tcp.delayed_ack", "0");
    begin(AF_INET, "delay=25ms");
    ping(60);
    log_on();
    assert_int_equal(weir_getsockopt(client, IPPROTO_TCP, TCP_INFO, &before, &len), 0);
    assert_int_equal(weir_send(client, &byte, 1, 0), 1);
    sim_run(sim, NS_PER_S);
    const struct siftr_session *s = log_off();
    assert_int_equal(s->records[SIFTR_OUT], 1);
    assert_int_equal(s->records[SIFTR_IN], 1);
    const struct siftr_record *r = record(s, 0);
    assert_int_equal(r->direction, SIFTR_OUT);
    expect_info(r, &before);
    assert_true(r->srtt_us >= 50000 && r->srtt_us < 51000);
    assert_int_equal(r->inflight, 0); /* not yet */
    assert_int_equal(r->snd_fill, 1);
    len = sizeof(size);
    assert_int_equal(weir_getsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, &len), 0);
    assert_int_equal(r->snd_limit, size);
    assert_int_equal(r->fport, 5001);
    assert_int_equal(r->flowtype, 2);
    uint8_t local[4] = {10, 0, 0, 1};
    assert_memory_equal(r->laddr, local, 4);
    /* Inbound: before TCP processed it, so the byte is in flight still. */
    const struct siftr_record *in = record(s, 1);
    assert_int_equal(in->direction, SIFTR_IN);
    assert_int_equal(in->inflight, 1);
    assert_int_equal(in->srtt_us, r->srtt_us);
    assert_true(in->time_ns - r->time_ns >= 50 * NS_PER_MS);
    assert_int_equal(in->flowid, r->flowid);
    len = sizeof(after);
    assert_int_equal(weir_getsockopt(client, IPPROTO_TCP, TCP_INFO, &after, &len), 0);
    assert_int_equal(after.tcpi_unacked, 0);
}

/* Every state from ESTABLISHED to TIME_WAIT shows; before, and without a connection, packets are
 * skipped, each for its cause. case: MEA-064 */
static void states_and_causes(void **state)
{
    sim_join(sim, a, b, "delay=1ms");
    open_port(AF_INET, 5001);
    log_on();
    establish(AF_INET, 0); /* SYN, SYN-ACK: no established connection yet */
    ping(1);
    weir_close(client);
    sim_run(sim, NS_PER_S);
    weir_close(server);
    sim_run(sim, NS_PER_S);
    assert_int_equal(try_connect(AF_INET, 0, 5999), -1); /* SYN out, RST in */
    const struct siftr_session *s = log_off();
    assert_int_equal(s->footer.skipped_tcpcb[SIFTR_OUT], 2);
    assert_int_equal(s->footer.skipped_tcpcb[SIFTR_IN], 2);
    assert_int_equal(s->footer.skipped_inpcb[SIFTR_IN], 0);
    uint32_t seen = 0;
    for (size_t i = 0; i < s->records[0] + s->records[1]; i++)
        seen |= 1u << record(s, i)->state;
    assert_int_equal(seen, 1u << 4 | 1u << 6 | 1u << 9 | 1u << 10);
    assert_int_equal(s->flows, 1);
    weir_close(client);
}

/* case: MEA-064 */
static void packets_of_no_connection(void **state)
{
    struct peer *p = peer_create(sim, a, "192.0.2.1", "192.0.2.2", 0);
    struct conn c;

    log_on();
    conn_init(&c, p, 40000, 80);
    for (unsigned i = 0; i < 100; i++)
        conn_flags(&c, i % 2 ? TH_RST : TH_SYN);
    sim_run(sim, NS_PER_S);
    const struct siftr_session *s = log_off();
    assert_int_equal(s->footer.packets[SIFTR_IN], 100);
    assert_int_equal(s->footer.skipped_inpcb[SIFTR_IN], 100);
    assert_int_equal(s->footer.skipped_inpcb[SIFTR_OUT], s->footer.packets[SIFTR_OUT]);
    assert_true(s->footer.packets[SIFTR_OUT] > 0); /* resets */
    assert_int_equal(s->records[0] + s->records[1], 0);
    assert_int_equal(s->flows, 0);
}

/* What TCP counts is what the log counts, in every way of handing records over, with losses. */
static void counts_are_those_of_tcp(void **state)
{
    const char *const batch[] = {"0", "1", "3"};

    begin(AF_INET, "delay=5ms,loss=1%,mtu=1500");
    for (unsigned i = 0; i < 6; i++) {
        unlink(path);
        assert_int_equal(set("net.inet.siftr.batch", batch[i % 3]), 0);
        assert_int_equal(set("net.inet.siftr.binary", i < 3 ? "0" : "1"), 0);
        log_on();
        uint64_t out = sim_counter(a, "tcp.tx"), in = sim_counter(b, "tcp.tx");
        uint64_t drops = sim_counter(a, "tcp.rx");
        transfer(3000000);
        out = sim_counter(a, "tcp.tx") - out;
        in = sim_counter(b, "tcp.tx") - in;
        drops = sim_counter(a, "tcp.rx") - drops; /* acknowledgments are no superframes */
        const struct siftr_session *s = log_off();
        assert_int_equal(s->footer.packets[SIFTR_OUT], out);
        assert_int_equal(s->records[SIFTR_OUT], out);
        assert_int_equal(s->footer.packets[SIFTR_IN], drops);
        assert_true(in >= drops && drops > 100);
        assert_int_equal(siftr_skipped(&s->footer, 0) + siftr_skipped(&s->footer, 1), 0);
        assert_int_equal(file.sessions, 1);
    }
}

/* ---- knobs ---- */

/* Packets of established connections that a session saw. */
static uint64_t logged_packets(const struct siftr_session *s)
{
    return s->footer.packets[0] + s->footer.packets[1] - siftr_skipped(&s->footer, 0) -
           siftr_skipped(&s->footer, 1);
}

/* case: MEA-058 */
static void every_nth_packet_of_a_flow(void **state)
{
    begin(AF_INET, "delay=1ms");
    assert_int_equal(set("net.inet.siftr.ppl", "0"), -ERANGE);
    knob_reads("net.inet.siftr.ppl", "1");
    assert_int_equal(set("net.inet.siftr.ppl", "7"), 0);
    log_on();
    ping(50);
    const struct siftr_session *s = log_off();
    assert_int_equal(logged_packets(s), 100); /* data and acknowledgments */
    assert_int_equal(s->records[0] + s->records[1], 100 / 7);
    /* Another value counts from the last record on. */
    log_on();
    ping(3);
    assert_int_equal(set("net.inet.siftr.ppl", "3"), 0);
    ping(3);
    assert_int_equal(set("net.inet.siftr.ppl", "2"), 0);
    ping(4);
    s = log_off();
    /* 6 packets; 1, 4; 1, 3, 5, 7 of those that followed each change. */
    assert_int_equal(s->records[0] + s->records[1], 0 + 2 + 4);
}

/* case: MEA-058 */
static void a_flow_that_is_opened_again_starts_afresh(void **state)
{
    uint64_t records = 0;

    sim_join(sim, a, b, "delay=1ms");
    open_port(AF_INET, 5001);
    assert_int_equal(set("net.inet.siftr.ppl", "5"), 0);
    for (unsigned i = 0; i < 2; i++) {
        log_on();
        for (unsigned k = 0; k <= i; k++) {
            establish(AF_INET, 20000);
            ping(6);
            hang_up();
        }
        const struct siftr_session *s = log_off();
        uint64_t n = s->records[0] + s->records[1];
        assert_true(n > 0 && logged_packets(s) % (5 * (i + 1)) != 0);
        assert_int_equal(n, (i + 1) * (logged_packets(s) / (i + 1) / 5));
        assert_int_equal(s->flows, 1); /* one pair of addresses and ports */
        records += n;
    }
    assert_true(records > 0);
}

static void one_port_only(void **state)
{
    begin(AF_INET, "delay=1ms");
    int first = client;
    assert_int_equal(set("net.inet.siftr.port_filter", "5999"), 0);
    log_on();
    ping(5);
    open_port(AF_INET, 5999);
    assert_int_equal(try_connect(AF_INET, 0, 5999), 0);
    server = weir_accept(listener, NULL, NULL);
    ping(5);
    const struct siftr_session *s = log_off();
    assert_int_equal(s->footer.packets[0] + s->footer.packets[1], 3 + 10);
    for (size_t i = 0; i < s->records[0] + s->records[1]; i++)
        assert_int_equal(record(s, i)->fport, 5999);
    assert_int_equal(s->flows, 1);
    weir_close(first);
}

/* case: MEA-061 */
static void on_and_off_as_often_as_one_likes(void **state)
{
    struct stat st;

    begin(AF_INET, "delay=1ms");
    knob_reads(ENABLED, "0");
    knob_reads(LOGFILE, "/var/log/siftr.log");
    assert_int_equal(set(ENABLED, "0"), 0);
    assert_int_equal(set(ENABLED, "2"), -EINVAL);
    log_on();
    knob_reads(ENABLED, "1");
    ping(1);
    assert_int_equal(set(ENABLED, "1"), 0); /* on already: nothing happens */
    ping(1);
    assert_int_equal(log_off()->records[SIFTR_OUT], 2);
    assert_int_equal(file.sessions, 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(set(ENABLED, "0"), 0); /* off already */
    assert_int_equal(st.st_size, (off_t)file.size);
    ping(1);                            /* not logged */
    for (unsigned i = 2; i < 10; i++) { /* appended */
        log_on();
        ping(1);
        assert_int_equal(log_off()->records[SIFTR_OUT], 1);
        assert_int_equal(file.sessions, i);
    }
}

/* case: MEA-061 */
static void what_cannot_be_opened_is_an_error(void **state)
{
    FILE *f = fopen(path, "w");
    char text[16] = {0};

    fputs("something else\n", f);
    fclose(f);
    begin(AF_INET, "delay=1ms");
    assert_int_equal(set(LOGFILE, ""), -EINVAL);
    assert_int_equal(set(LOGFILE, "/nonexistent/log"), 0);
    assert_int_equal(set(ENABLED, "1"), -ENOENT);
    assert_int_equal(set(LOGFILE, "/dev/full"), 0);
    assert_int_equal(set(ENABLED, "1"), -ENOSPC);
    assert_int_equal(set(LOGFILE, path), 0); /* no log: it is left alone */
    assert_int_equal(set(ENABLED, "1"), -EINVAL);
    knob_reads(ENABLED, "0");
    f = fopen(path, "r");
    assert_int_equal(fread(text, 1, 15, f), 15);
    fclose(f);
    assert_string_equal(text, "something else\n");
    ping(1);
    /* One form is not appended to the other. */
    unlink(path);
    log_on();
    (void)log_off();
    assert_int_equal(set("net.inet.siftr.binary", "1"), 0);
    assert_int_equal(set(ENABLED, "1"), -EINVAL);
    /* A name that cannot be had leaves the log as it is. */
    assert_int_equal(set("net.inet.siftr.binary", "0"), 0);
    log_on();
    ping(1);
    assert_int_equal(set(LOGFILE, "/nonexistent/log"), -ENOENT);
    knob_reads(LOGFILE, path);
    ping(1);
    assert_int_equal(log_off()->records[SIFTR_OUT], 2);
}

/* case: MEA-061 */
static void a_log_is_moved_away_and_a_new_one_begun(void **state)
{
    uint64_t records = 0;

    begin(AF_INET, "delay=1ms");
    log_on();
    ping(2);
    assert_int_equal(rename(path, other), 0);
    ping(2); /* still to the same file */
    assert_int_equal(set(LOGFILE, path), 0);
    ping(2);
    (void)log_off();
    records = file.record ? file.session[0].records[SIFTR_OUT] : 0;
    assert_int_equal(records, 2);
    siftr_file_free(&file);
    siftr_file_read(&file, other);
    assert_int_equal(file.sessions, 1);
    siftr_session_exact(&file, &file.session[0]);
    assert_int_equal(file.session[0].records[SIFTR_OUT], 4);
}

/* The torn line of a writer that was killed goes; a log that has lost its end is gone on with.
 * case: MEA-061 */
static void a_torn_end_is_cut_off(void **state)
{
    begin(AF_INET, "delay=1ms");
    log_on();
    ping(2);
    (void)log_off();
    FILE *f = fopen(path, "a");
    fputs("o,1690290836.48", f);
    fclose(f);
    log_on();
    ping(1);
    assert_int_equal(log_off()->records[SIFTR_OUT], 1);
    assert_int_equal(file.sessions, 2);
}

/* case: MEA-059 */
static void ipv6_and_its_flow_list(void **state)
{
    uint8_t local[16] = {0xfd, [15] = 1};

    begin(AF_INET6, "delay=1ms");
    log_on();
    ping(2);
    const struct siftr_session *s = log_off();
    assert_int_equal(s->records[SIFTR_OUT], 2);
    const struct siftr_record *r = record(s, 0);
    assert_int_equal(r->family, 6);
    assert_int_equal(r->flowtype, 4);
    assert_memory_equal(r->laddr, local, 16);
    assert_int_equal(r->mss, 1500 - 60 - 12);
    assert_int_equal(s->flows, 1);
}

/* A stack that is destroyed ends its log, the resets of what was open included. */
static void the_log_ends_with_its_stack(void **state)
{
    begin(AF_INET, "delay=1ms");
    assert_int_equal(set("net.inet.siftr.batch", "3"), 0); /* with some pending */
    log_on();
    ping(2);
    uint64_t out = sim_counter(a, "tcp.tx");
    sim_destroy(sim);
    sim = sim_create(6, 0);
    siftr_file_read(&file, path);
    assert_int_equal(file.sessions, 1);
    siftr_session_exact(&file, &file.session[0]);
    assert_int_equal(file.session[0].records[SIFTR_OUT], 3);
    assert_true(out >= 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(fields_are_those_of_tcp_info),
        T(states_and_causes),
        T(packets_of_no_connection),
        T(counts_are_those_of_tcp),
        T(every_nth_packet_of_a_flow),
        T(a_flow_that_is_opened_again_starts_afresh),
        T(one_port_only),
        T(on_and_off_as_often_as_one_likes),
        T(what_cannot_be_opened_is_an_error),
        T(a_log_is_moved_away_and_a_new_one_begun),
        T(a_torn_end_is_cut_off),
        T(ipv6_and_its_flow_list),
        T(the_log_ends_with_its_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
