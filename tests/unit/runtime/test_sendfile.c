/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: weir_sendfile and its Linux form: arguments, counts, both forms byte for byte, files that
 * change, shrink and grow under it, and the windows it keeps. Bound: two stacks on a memory link,
 * files of a few MB; no assertion on time. */
#include "base/base.h"
#include "runtime/file_window.h"
#include "weir/socket.h"
#include "weir/stack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MB (1u << 20)

static struct weir_stack *near, *far;
static int s, r; /* the sending and the receiving end of a connection */
static char dir[] = "/tmp/weir-sendfile.XXXXXX";
static char path[64];
static uint8_t *pattern, *got; /* 8 MB each */

/* Never zero, and no page like another: zeros in what arrives are garbage. */
static uint8_t byte_at(size_t i)
{
    return (uint8_t)(1 + (i * 7 + i / 4096 * 13 + i / 1048576) % 255);
}

static int make_file(size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, pattern, size, 0), (ssize_t)size);
    return fd;
}

static void connect_pair(void)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(4000)};
    assert_int_equal(inet_pton(AF_INET, "10.0.0.2", &sin.sin_addr), 1);
    int l = weir_socket(far, AF_INET, SOCK_STREAM, 0);
    int on = 1, room = 512 * 1024;
    (void)weir_setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)weir_setsockopt(l, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    assert_int_equal(weir_bind(l, (struct sockaddr *)&sin, sizeof(sin)), 0);
    assert_int_equal(weir_listen(l, 5), 0);
    s = weir_socket(near, AF_INET, SOCK_STREAM, 0);
    (void)weir_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    assert_int_equal(weir_connect(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
    r = weir_accept(l, NULL, NULL);
    assert_true(r >= 0);
    weir_close(l);
}

static void set(const char *name, const char *value)
{
    assert_int_equal(weir_sysctl_set(near, name, value), 0);
}

static int setup(void **state)
{
    (void)state;
    near = weir_stack_create(NULL);
    far = weir_stack_create(NULL);
    assert_int_equal(weir_link_pair(near, far, "", NULL), 0);
    connect_pair();
    return 0;
}

static int teardown(void **state)
{
    int64_t mbufs, bytes;

    (void)state;
    set("kern.ipc.sendfile.windows", "1024");
    weir_close(s);
    weir_close(r);
    weir_stack_destroy(near);
    weir_stack_destroy(far);
    assert_int_equal(file_windows_drain(), 0);
    weir_buffer_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    assert_int_equal(bytes, 0);
    return 0;
}

static void nonblocking(int fd, bool on)
{
    assert_int_equal(weir_fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0), 0);
}

/* What has arrived by now, and what the sender's window lets follow. */
static size_t drain(size_t have)
{
    for (;;) {
        ssize_t n = weir_recv(r, got + have, 8 * MB - have, MSG_DONTWAIT);
        if (n <= 0)
            return have;
        have += (size_t)n;
    }
}

static void expect_bytes(const uint8_t *want, size_t n)
{
    for (size_t i = 0; memcmp(got, want, n) != 0 && i < n; i++)
        if (got[i] != want[i])
            fail_msg("byte %zu of %zu is %u, not %u", i, n, got[i], want[i]);
}

struct reader {
    size_t want, have;
};

static void *read_all(void *arg)
{
    struct reader *x = arg;
    while (x->have < x->want) {
        ssize_t n = weir_recv(r, got + x->have, MIN(x->want - x->have, (size_t)131072), 0);
        if (n <= 0)
            break;
        x->have += (size_t)n;
    }
    return NULL;
}

/* --- arguments --- */

/* case: FUN-131 */
static void test_linux_arguments(void **state)
{
    uint8_t buf[256];
    int fd = make_file(100), p[2];
    off_t off = -1;

    (void)state;
    assert_int_equal(weir_sendfile_linux(s, fd, &off, 10), -1);
    assert_int_equal(errno, EINVAL);
    for (off_t at = 100; at <= 1000; at += 900) {
        off = at;
        assert_int_equal(weir_sendfile_linux(s, fd, &off, 10), 0);
        assert_int_equal(off, at);
    }
    off = 5;
    assert_int_equal(weir_sendfile_linux(s, fd, &off, 0), 0);
    off = 90; /* more than there is */
    assert_int_equal(weir_sendfile_linux(s, fd, &off, 100), 10);
    assert_int_equal(off, 100);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    assert_int_equal(lseek(fd, 95, SEEK_SET), 95); /* without a pointer it is the file's position */
    assert_int_equal(weir_sendfile_linux(s, fd, NULL, 100), 5);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 100);
    assert_int_equal(weir_recv(r, buf, 15, MSG_WAITALL), 15);
    assert_memory_equal(buf, pattern + 90, 10);
    assert_memory_equal(buf + 10, pattern + 95, 5);

    assert_int_equal(pipe(p), 0);
    int d = open(dir, O_RDONLY), w = open(path, O_WRONLY), o = open(path, O_PATH);
    const int bad[][2] = {{p[0], EINVAL}, {d, EINVAL}, {w, EBADF},
                          {o, EBADF},     {-1, EBADF}, {999, EBADF}};
    for (size_t i = 0; i < NELEM(bad); i++) {
        off = 0;
        assert_int_equal(weir_sendfile_linux(s, bad[i][0], &off, 1), -1);
        assert_int_equal(errno, bad[i][1]);
        assert_int_equal(weir_sendfile_linux(s, bad[i][0], NULL, 1), -1);
        assert_int_equal(errno, bad[i][1]);
        assert_int_equal(weir_sendfile(bad[i][0], s, 0, 0, NULL, NULL, 0), -1);
        assert_int_equal(errno, bad[i][1]);
    }
    off = 0;
    assert_int_equal(weir_sendfile_linux(-1, fd, &off, 1), -1);
    assert_int_equal(errno, EBADF);
    close(p[0]), close(p[1]), close(d), close(w), close(o), close(fd);
}

static void test_freebsd_arguments(void **state)
{
    int fd = make_file(100), u = weir_socket(near, AF_INET, SOCK_DGRAM, 0);
    int fresh = weir_socket(near, AF_INET, SOCK_STREAM, 0), ep = weir_epoll_create(0);
    struct iovec iov = {(void *)(uintptr_t) "head", 4};
    struct weir_sf_hdtr bad = {.headers = &iov, .hdr_cnt = -1};
    off_t sent = 77;

    (void)state;
    assert_int_equal(weir_sendfile(fd, -1, 0, 0, NULL, &sent, 0), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(sent, 0);
    assert_int_equal(weir_sendfile(fd, ep, 0, 0, NULL, NULL, 0), -1);
    assert_int_equal(errno, ENOTSOCK);
    assert_int_equal(weir_sendfile(fd, u, 0, 0, NULL, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_sendfile(fd, s, -1, 0, NULL, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_sendfile(fd, s, 0, (size_t)-1, NULL, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_sendfile(fd, s, 0, 0, &bad, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(weir_sendfile(fd, fresh, 0, 0, NULL, NULL, 0), -1);
    assert_int_equal(errno, ENOTCONN);
    off_t off = 0;
    assert_int_equal(weir_sendfile_linux(fresh, fd, &off, 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(weir_sendfile(fd, s, 100, 0, NULL, &sent, 0), 0); /* at the end: nothing */
    assert_int_equal(sent, 0);
    assert_int_equal(weir_sendfile(fd, s, 1000, 5, NULL, &sent, 0), 0);
    assert_int_equal(weir_sendfile(fd, s, 90, 50, NULL, &sent, 0), 0); /* what there is */
    assert_int_equal(sent, 10);
    weir_shutdown(s, SHUT_WR);
    assert_int_equal(weir_sendfile(fd, s, 0, 0, NULL, &sent, 0), -1);
    assert_int_equal(errno, EPIPE);
    weir_close(u), weir_close(fresh), weir_close(ep), close(fd);
}

/* --- bytes --- */

/* One transfer with headers and trailers, checked. */
static void transfer(int fd, size_t size, size_t off, size_t nbytes)
{
    struct iovec h[2] = {{(void *)(uintptr_t) "first ", 6}, {(void *)(uintptr_t) "second", 6}};
    struct iovec t = {(void *)(uintptr_t) "end", 3};
    struct weir_sf_hdtr hdtr = {h, 2, &t, 1};
    size_t file = off >= size ? 0 : nbytes == 0 ? size - off : MIN(nbytes, size - off);
    struct reader x = {.want = file + 15};
    pthread_t reader;
    off_t sent = -1;

    pthread_create(&reader, NULL, read_all, &x);
    assert_int_equal(weir_sendfile(fd, s, (off_t)off, nbytes, &hdtr, &sent, 0), 0);
    pthread_join(reader, NULL);
    assert_int_equal(sent, file + 15);
    assert_int_equal(x.have, file + 15);
    assert_memory_equal(got, "first second", 12);
    assert_memory_equal(got + 12 + file, "end", 3);
    memmove(got, got + 12, file);
    expect_bytes(pattern + off, file);
}

static void test_content(void **state)
{
    static const size_t at[][3] = {{5 * MB + 123, 0, 0},
                                   {5 * MB + 123, 4095, 0},
                                   {5 * MB + 123, 1, 70000},
                                   {5 * MB, 2 * MB - 1, 2},
                                   {5 * MB, 2 * MB - 1, 2 * MB + 2},
                                   {5 * MB + 1, 5 * MB, 9},
                                   {3, 0, 0},
                                   {65536, 0, 0},
                                   {65537, 0, 0},
                                   {100000, 99999, 0},
                                   {4 * MB, 4 * MB - 4097, 4097}};
    static const char *const windows[] = {"1024", "1", "0"};

    (void)state;
    for (size_t w = 0; w < NELEM(windows); w++) {
        set("kern.ipc.sendfile.windows", windows[w]);
        for (int bulk = 0; bulk < 2; bulk++) {
            set("kern.ipc.sendfile.bulk", bulk ? "1" : "0");
            for (int tso = 0; tso < 2; tso++) {
                set("net.inet.tcp.tso", tso ? "1" : "0");
                for (size_t i = 0; i < NELEM(at); i++) {
                    int fd = make_file(at[i][0]);
                    transfer(fd, at[i][0], at[i][1], at[i][2]);
                    close(fd);
                }
            }
        }
    }
}

/* case: FUN-134 */
static void test_nonblocking_counts(void **state)
{
    int fd = make_file(4 * MB);
    size_t off = 0, have = 0;

    (void)state;
    for (int bulk = 0; bulk < 2; bulk++) {
        bool partial = false, nothing = false;
        set("kern.ipc.sendfile.bulk", bulk ? "1" : "0");
        nonblocking(s, true);
        for (off = have = 0; off < 4 * MB;) {
            off_t sent = -1;
            int e = weir_sendfile(fd, s, (off_t)off, 0, NULL, &sent, 0);
            off += (size_t)sent;
            if (e == 0)
                break;
            assert_int_equal(errno, EAGAIN);
            partial |= sent > 0;
            e = weir_sendfile(fd, s, (off_t)off, 0, NULL, &sent, 0);
            if (e < 0 && sent == 0)
                nothing = true;
            off += (size_t)sent;
            have = drain(have);
        }
        assert_int_equal(off, 4 * MB);
        nonblocking(s, false);
        while (have < off)
            have = drain(have);
        assert_true(partial && nothing);
        assert_int_equal(have, off);
        expect_bytes(pattern, off);
    }
    close(fd);
}

/* SO_SNDTIMEO ends a blocking call as O_NONBLOCK does, with the count. */
static void test_timeout_counts(void **state)
{
    struct timeval tv = {.tv_usec = 20000};
    int fd = make_file(8 * MB);
    off_t sent = -1;

    (void)state;
    assert_int_equal(weir_setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)), 0);
    assert_int_equal(weir_sendfile(fd, s, 0, 0, NULL, &sent, 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(sent > 0 && sent < 8 * MB);
    size_t have = 0;
    while (have < (size_t)sent)
        have = drain(have);
    assert_int_equal(have, sent);
    expect_bytes(pattern, have);
    off_t off = sent;
    ssize_t n = weir_sendfile_linux(s, fd, &off, 8 * MB);
    assert_true(n > 0 && off == sent + n);
    close(fd);
}

static volatile sig_atomic_t signals;

static void on_usr1(int sig)
{
    (void)sig;
    signals = signals + 1;
}

struct interrupted {
    int fd, error;
    off_t sent;
    _Atomic bool done;
};

static void *send_interrupted(void *arg)
{
    struct interrupted *x = arg;
    x->error = weir_sendfile(x->fd, s, 0, 0, NULL, &x->sent, 0) ? errno : 0;
    atomic_store(&x->done, true);
    return NULL;
}

/* case: FUN-134 */
static void test_interrupted_counts(void **state)
{
    struct sigaction act = {.sa_handler = on_usr1}, old;
    struct interrupted x = {.fd = make_file(8 * MB)};
    pthread_t t;
    size_t have = 0;

    (void)state;
    sigaction(SIGUSR1, &act, &old);
    pthread_create(&t, NULL, send_interrupted, &x);
    while (!atomic_load(&x.done)) { /* until one comes while it sleeps */
        pthread_kill(t, SIGUSR1);
        usleep(1000);
    }
    pthread_join(t, NULL);
    sigaction(SIGUSR1, &old, NULL);
    assert_int_equal(x.error, EINTR);
    assert_true(x.sent > 0 && x.sent < 8 * MB);
    while (have < (size_t)x.sent)
        have = drain(have);
    assert_int_equal(have, x.sent);
    expect_bytes(pattern, have);
    close(x.fd);
}

/* --- files that change --- */

/* Fill the buffers with the file, without a reader. Returns the bytes taken. */
static size_t fill(int fd)
{
    off_t sent = 0, more;
    nonblocking(s, true);
    do {
        (void)weir_sendfile(fd, s, sent, 0, NULL, &more, 0);
        sent += more;
    } while (more > 0);
    nonblocking(s, false);
    return (size_t)sent;
}

/* Read until nothing comes. *error: of the last recv, 0 when it was the end. */
static size_t read_to_end(int *error)
{
    size_t have = 0;
    for (;;) {
        ssize_t n = weir_recv(r, got + have, MIN(8 * MB - have, (size_t)10000), 0);
        if (n <= 0) {
            *error = n < 0 ? errno : 0;
            return have;
        }
        have += (size_t)n;
    }
}

/* A file that is cut while its pages wait to be read: what was there before the cut arrives, then
 * an error. Never zeros, never what was cut off, and no signal. */
static void cut_at(size_t size)
{
    int fd = make_file(4 * MB), error = 0;
    size_t taken = fill(fd), have;
    off_t sent;

    assert_true(taken > 256 * 1024 && taken < 4 * MB);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(weir_sendfile(fd, s, (off_t)taken, 0, NULL, &sent, 0), 0); /* beyond its end */
    assert_int_equal(sent, 0);
    weir_shutdown(s, SHUT_WR);
    have = read_to_end(&error);
    expect_bytes(pattern, have);
    assert_true(have <= size);
    assert_true(error == EIO || error == ECONNRESET);
    close(fd);
    weir_close(s);
    weir_close(r);
    connect_pair();
}

/* case: FUN-133 */
static void test_cut_under_way(void **state)
{
    (void)state;
    cut_at(0);
    cut_at(1);
    cut_at(8192);
    cut_at(20000); /* inside of a page: the kernel fills it with zeros, and signals nothing */
    cut_at(131071);
}

/* The only page that is referred to is cut: nothing but the zeros would tell. */
static void test_cut_inside_of_a_page(void **state)
{
    int fd = make_file(2 * MB + 100000), error = 0;
    off_t sent;

    (void)state;
    /* A call whose last bytes lie in a page that the file goes on behind. */
    assert_int_equal(weir_sendfile(fd, s, 0, 70000, NULL, &sent, 0), 0);
    assert_int_equal(sent, 70000);
    size_t end = (size_t)sent;
    assert_int_equal(ftruncate(fd, (off_t)end - 100), 0);
    weir_shutdown(s, SHUT_WR);
    size_t have = read_to_end(&error);
    expect_bytes(pattern, have);
    assert_int_equal(error, EIO);
    close(fd);
}

/* case: FUN-133 */
static void test_delete_and_replace(void **state)
{
    char other[80];
    struct reader x;

    (void)state;
    snprintf(other, sizeof(other), "%s.new", path);
    for (int how = 0; how < 2; how++) {
        int fd = make_file(4 * MB);
        size_t taken = fill(fd);
        if (how == 0) {
            assert_int_equal(unlink(path), 0);
        } else {
            int n = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
            assert_int_equal(pwrite(n, "other", 5, 0), 5);
            close(n);
            assert_int_equal(rename(other, path), 0);
        }
        x = (struct reader){.want = 4 * MB};
        pthread_t reader;
        pthread_create(&reader, NULL, read_all, &x);
        off_t sent;
        assert_int_equal(weir_sendfile(fd, s, (off_t)taken, 0, NULL, &sent, 0), 0);
        pthread_join(reader, NULL);
        assert_int_equal(x.have, 4 * MB); /* the open file is what it was */
        expect_bytes(pattern, x.have);
        close(fd);
    }
}

/* case: FUN-133 */
static void test_growing(void **state)
{
    int fd = make_file(3 * MB);
    struct reader x = {.want = 3 * MB};
    pthread_t reader;
    off_t sent;

    (void)state;
    pthread_create(&reader, NULL, read_all, &x);
    assert_int_equal(weir_sendfile(fd, s, 0, 0, NULL, &sent, 0), 0);
    assert_int_equal(sent, 3 * MB);
    pthread_join(reader, NULL);
    assert_int_equal(pwrite(fd, pattern + 3 * MB, MB + 77, 3 * MB), MB + 77);
    x = (struct reader){.want = MB + 77};
    pthread_create(&reader, NULL, read_all, &x); /* the rest of a window that ended before */
    assert_int_equal(weir_sendfile(fd, s, 3 * MB, 0, NULL, &sent, 0), 0);
    pthread_join(reader, NULL);
    assert_int_equal(sent, MB + 77);
    expect_bytes(pattern + 3 * MB, MB + 77);
    close(fd);
}

struct resizer {
    int fd;
    _Atomic bool stop;
};

static void *resize(void *arg)
{
    struct resizer *x = arg;
    while (!atomic_load(&x->stop)) {
        (void)!ftruncate(x->fd, 100000);
        (void)!pwrite(x->fd, pattern + 100000, 3 * MB - 100000, 100000);
    }
    return NULL;
}

/* Under load: a file that somebody cuts and fills again all the time. What arrives is the prefix of
 * the file that the counts say, or the connection ends with an error. */
static void test_resized_under_load(void **state)
{
    struct resizer z = {.fd = make_file(3 * MB)};
    pthread_t t, reader;

    (void)state;
    pthread_create(&t, NULL, resize, &z);
    for (int round = 0; round < 20; round++) {
        struct reader x = {.want = 8 * MB};
        off_t sent = 0;
        set("kern.ipc.sendfile.bulk", round % 2 ? "1" : "0");
        pthread_create(&reader, NULL, read_all, &x);
        int e = weir_sendfile(z.fd, s, 0, 0, NULL, &sent, 0);
        assert_true(e == 0 || errno == EPIPE || errno == ECONNRESET || errno == EIO);
        weir_shutdown(s, SHUT_WR);
        pthread_join(reader, NULL);
        assert_true(x.have <= (size_t)sent);
        expect_bytes(pattern, MIN(x.have, (size_t)100000)); /* this much never changes */
        weir_close(s);
        weir_close(r);
        connect_pair();
    }
    atomic_store(&z.stop, true);
    pthread_join(t, NULL);
    close(z.fd);
}

/* --- the windows --- */

static void send_and_expect(int fd, size_t size, uint8_t first)
{
    struct reader x = {.want = size};
    pthread_t reader;
    pthread_create(&reader, NULL, read_all, &x);
    assert_int_equal(weir_sendfile(fd, s, 0, 0, NULL, NULL, 0), 0);
    pthread_join(reader, NULL);
    assert_int_equal(x.have, size);
    assert_int_equal(got[0], first);
    assert_int_equal(got[size - 1], byte_at(size - 1));
}

/* Until the last acknowledgment is here, and with it all references to windows. */
static void await_acknowledgment(void)
{
    int left;
    while (weir_ioctl(s, SIOCOUTQ, &left) == 0 && left > 0)
        sched_yield();
}

static void test_changes_are_seen(void **state)
{
    uint64_t hits, maps, hits2, maps2;
    int fd = make_file(3 * MB);
    uint8_t byte;

    (void)state;
    send_and_expect(fd, 3 * MB, byte_at(0));
    file_windows_stats(&hits, &maps);
    send_and_expect(fd, 3 * MB, byte_at(0));
    file_windows_stats(&hits2, &maps2);
    assert_int_equal(maps2, maps); /* kept */
    assert_true(hits2 > hits);
    byte = 201;
    assert_int_equal(pwrite(fd, &byte, 1, 0), 1);
    send_and_expect(fd, 3 * MB, 201);
    /* Through a mapping, of which no time need tell. */
    uint8_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m[0] = 202;
    send_and_expect(fd, 3 * MB, 202);
    m[0] = 203;
    send_and_expect(fd, 3 * MB, 203);
    munmap(m, 4096);
    /* Another file under the same name. */
    assert_int_equal(unlink(path), 0);
    int other = make_file(3 * MB);
    send_and_expect(other, 3 * MB, byte_at(0));
    send_and_expect(fd, 3 * MB, 203);
    close(other);
    close(fd);
}

static void test_windows_are_bounded(void **state)
{
    int fd = make_file(8 * MB);

    (void)state;
    set("kern.ipc.sendfile.windows", "2");
    for (int i = 0; i < 3; i++)
        send_and_expect(fd, 8 * MB, byte_at(0));
    close(fd);
}

static void test_windows_expire(void **state)
{
    uint64_t hits, maps, hits2, maps2;
    int fd = make_file(3 * MB);

    (void)state;
    send_and_expect(fd, 3 * MB, byte_at(0));
    file_windows_stats(&hits, &maps);
    (void)file_windows_expire(0); /* nothing is old */
    send_and_expect(fd, 3 * MB, byte_at(0));
    file_windows_stats(&hits2, &maps2);
    assert_int_equal(maps2, maps);
    await_acknowledgment();
    assert_int_equal(file_windows_expire(TIME_NEVER / 2), TIME_NEVER); /* all are */
    send_and_expect(fd, 3 * MB, byte_at(0));
    file_windows_stats(&hits2, &maps2);
    assert_int_equal(maps2, maps + 2); /* 3 MB */
    close(fd);
}

/* The process's locks on the file outlive what sendfile does with it. */
static void test_record_locks_stay(void **state)
{
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = make_file(3 * MB);

    (void)state;
    assert_int_equal(fcntl(fd, F_SETLK, &fl), 0);
    send_and_expect(fd, 3 * MB, byte_at(0));
    await_acknowledgment();
    assert_int_equal(file_windows_drain(), 0);
    pid_t child = fork();
    if (child == 0) {
        struct flock probe = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        _exit(fcntl(fd, F_GETLK, &probe) == 0 && probe.l_type == F_WRLCK ? 0 : 1);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    close(fd);
}

static sigjmp_buf escaped;
static volatile sig_atomic_t theirs;

static void app_handler(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info, (void)context;
    theirs = theirs + 1;
    siglongjmp(escaped, 1);
}

/* An application's own handler still hears of its own SIGBUS, and ours still works. */
static void test_handlers_are_chained(void **state)
{
    struct sigaction act = {.sa_sigaction = app_handler, .sa_flags = SA_SIGINFO | SA_NODEFER}, old;
    int fd = make_file(4096);

    (void)state;
    sigaction(SIGBUS, &act, &old);
    int data = open(path, O_RDWR);
    uint8_t *m = mmap(NULL, 8192, PROT_READ, MAP_SHARED, data, 0);
    close(fd);
    fd = make_file(3 * MB);
    uint8_t *own = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 5 * MB);
    send_and_expect(fd, 3 * MB, byte_at(0)); /* installs ours in front */
    if (sigsetjmp(escaped, 1) == 0)
        (void)*(volatile uint8_t *)own;
    assert_int_equal(theirs, 1);
    cut_at(0);
    assert_int_equal(theirs, 1);
    sigaction(SIGBUS, &old, NULL);
    munmap(m, 8192), munmap(own, 4096);
    close(data), close(fd);
}

/* Closing and destroying while windows are in flight. */
static void test_ends_with_windows_in_flight(void **state)
{
    int fd = make_file(4 * MB);

    (void)state;
    (void)fill(fd);
    close(fd);
    weir_close(s); /* teardown destroys both stacks, and finds all windows free */
    s = -1;
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_linux_arguments),
        T(test_freebsd_arguments),
        T(test_content),
        T(test_nonblocking_counts),
        T(test_timeout_counts),
        T(test_interrupted_counts),
        T(test_cut_under_way),
        T(test_cut_inside_of_a_page),
        T(test_delete_and_replace),
        T(test_growing),
        T(test_resized_under_load),
        T(test_changes_are_seen),
        T(test_windows_are_bounded),
        T(test_windows_expire),
        T(test_record_locks_stay),
        T(test_handlers_are_chained),
        T(test_ends_with_windows_in_flight),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    pattern = malloc(8 * MB);
    got = malloc(8 * MB);
    for (size_t i = 0; i < 8 * MB; i++)
        pattern[i] = byte_at(i);
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/file", dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    free(pattern);
    free(got);
    return failed;
}
