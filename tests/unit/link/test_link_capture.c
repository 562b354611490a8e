/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: a capture file, read back by libpcap, shows what passed: segments instead of superframes,
 * right checksums, nanoseconds; trouble with the file never disturbs the traffic. Bound: some
 * hundred frames. */
#include "frames.h"

#include "link/link_capture.h"
#include "wire/tcp.h"

#include <pcap/pcap.h>
#include <unistd.h>

#define START (1000 * NS_PER_S)
#define EPOCH (INT64_C(1700000000) * (int64_t)NS_PER_S)

static struct weir_stack *s;
static struct stub_link stub;
static struct link_end end;
static char path[64], err[256];

static int setup(void **state)
{
    s = bare_stack_create();
    snprintf(path, sizeof(path), "/tmp/weir-capture-XXXXXX");
    return close(mkstemp(path));
}

static int teardown(void **state)
{
    link_end_close(&end);
    bare_stack_destroy(s);
    unlink(path);
    return 0;
}

static int wrap(const char *file, uint32_t snaplen, uint32_t caps)
{
    struct link_capture_config cfg = {.path = file, .snaplen = snaplen, .epoch_offset_ns = EPOCH};

    stub_link_init(&stub, &end, caps);
    return link_capture_wrap(s, &end, &cfg, err, sizeof(err));
}

static pcap_t *reopen(void)
{
    char why[PCAP_ERRBUF_SIZE];

    link_end_close(&end);
    pcap_t *p = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, why);
    assert_non_null(p);
    return p;
}

static void segments_with_right_checksums(void **state)
{
    struct pcap_pkthdr *h;
    const u_char *data;
    uint32_t n = 0, next = 0;

    assert_int_equal(wrap(path, 0, 0), 0);
    for (int v6 = 0; v6 < 2; v6++) {
        struct frame_spec f = {.v6 = v6,
                               .flags = TH_ACK | TH_PUSH,
                               .payload = 14480,
                               .segsz = 1448,
                               .partial = true,
                               .pieces = 3};
        struct mbuf *m = frame_make(s, &f);
        assert_int_equal(end.ops->tx(end.link, &m, 1, START + 123456789), 1);
        f = (struct frame_spec){
            .v6 = v6, .flags = TH_ACK, .seq = 14480, .payload = 5, .partial = true};
        m = frame_make(s, &f);
        m->m_pkt.csum_flags |= CSUM_L4_VALID;
        stub_link_put(&stub, m);
        assert_int_equal(end.ops->rx(end.link, &m, 1, START + 123456790), 1);
        assert_true(m->m_pkt.csum_flags & CSUM_L4_PARTIAL); /* the frame itself is not touched */
        mbuf_free_chain(&m);
    }
    pcap_t *p = reopen();
    assert_int_equal(pcap_datalink(p), DLT_EN10MB);
    while (pcap_next_ex(p, &h, &data) == 1) {
        struct seen seen;
        assert_int_equal(h->caplen, h->len);
        assert_int_equal(h->ts.tv_sec, 1700001000);
        assert_int_equal(h->ts.tv_usec, n % 11 < 10 ? 123456789 : 123456790);
        frame_look(data, h->len, false, &seen);
        assert_true(seen.sum_ok && seen.ip_ok);
        assert_int_equal(seen.seq, next);
        assert_int_equal(!!(seen.flags & TH_PUSH), n % 11 == 9);
        next = n % 11 == 10 ? 0 : next + 1448;
        n++;
    }
    pcap_close(p);
    assert_int_equal(n, 22);
}

static void each_frame_once_though_offered_twice(void **state)
{
    struct mbuf *frames[10];
    struct pcap_pkthdr *h;
    const u_char *data;
    size_t done = 0;
    uint32_t n = 0;

    assert_int_equal(wrap(path, 0, NETIF_CAP_L3), 0);
    for (uint32_t i = 0; i < 10; i++) {
        struct frame_spec f = {.bare = true, .flags = TH_ACK, .seq = i, .payload = 10};
        frames[i] = frame_make(s, &f);
    }
    for (int i = 0; done < 10 && i < 20; i++) {
        stub.accept = (size_t)i % 3;
        done += end.ops->tx(end.link, frames + done, MIN(10 - done, 4), START);
    }
    assert_int_equal(done, 10);
    pcap_t *p = reopen();
    assert_int_equal(pcap_datalink(p), DLT_RAW);
    for (; pcap_next_ex(p, &h, &data) == 1; n++) {
        struct seen seen;
        frame_look(data, h->len, true, &seen);
        assert_int_equal(seen.seq, n);
    }
    pcap_close(p);
    assert_int_equal(n, 10);
}

static void snaplen_cuts(void **state)
{
    struct frame_spec f = {.flags = TH_ACK, .payload = 1000, .partial = true};
    struct pcap_pkthdr *h;
    const u_char *data;

    assert_int_equal(wrap(path, 96, 0), 0);
    struct mbuf *m = frame_make(s, &f);
    assert_int_equal(end.ops->tx(end.link, &m, 1, START), 1);
    pcap_t *p = reopen();
    assert_int_equal(pcap_next_ex(p, &h, &data), 1);
    assert_int_equal(h->caplen, 96);
    assert_int_equal(h->len, 1054);
    pcap_close(p);
}

static void a_bad_file_is_an_error(void **state)
{
    assert_int_equal(wrap("/nonexistent/x.pcap", 0, 0), -ENOENT);
    assert_non_null(strstr(err, "/nonexistent/x.pcap"));
    assert_ptr_equal(end.link, &stub); /* unchanged */
}

static void a_full_disk_ends_the_capture_only(void **state)
{
    FILE *said = tmpfile();
    int saved = dup(STDERR_FILENO);
    char line[256] = "";

    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_true(said && saved >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    assert_int_equal(wrap("/dev/full", 0, 0), 0);
    for (uint32_t i = 0; i < 300; i++) {
        struct frame_spec f = {.flags = TH_ACK, .seq = i, .payload = 1000};
        struct mbuf *m = frame_make(s, &f);
        assert_int_equal(end.ops->tx(end.link, &m, 1, START + i * NS_PER_S), 1);
    }
    link_end_close(&end);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(stub.out_count, 300);
    assert_true(COUNTER_READ(s, link_capture_errors) > 0);
    rewind(said); /* once, with the reason */
    assert_non_null(fgets(line, sizeof(line), said));
    assert_non_null(strstr(line, "/dev/full: No space left on device"));
    assert_null(fgets(line, sizeof(line), said));
    fclose(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(segments_with_right_checksums, setup, teardown),
        cmocka_unit_test_setup_teardown(each_frame_once_though_offered_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(snaplen_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_file_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_the_capture_only, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
