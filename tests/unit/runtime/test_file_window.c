/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: which windows on files stay, which go, and that a window which is handed out has all its
 * pages mapped, wherever they were before. Bound: files of up to 96 MB, sparse where they are
 * large. */
#include "base/base.h"
#include "base/sysctl.h"
#include "runtime/file_window.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#define PAGE 4096u

static int fd;
static struct stat st;
static uint64_t maps, hits; /* since count() */

static void windows(int64_t n)
{
    STORE_RELAXED(&process_knobs.kern_sendfile_windows, n);
}

static void count(void)
{
    file_windows_stats(&hits, &maps);
}

static uint64_t mapped(void)
{
    uint64_t h, m;

    file_windows_stats(&h, &m);
    return m - maps;
}

static void file(size_t size)
{
    char path[] = "/tmp/weir-window.XXXXXX";

    fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fstat(fd, &st), 0);
    st.st_nlink = 1; /* so that windows are kept */
}

static int setup(void **state)
{
    (void)state;
    windows(8192);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(fd);
    assert_int_equal(file_windows_drain(), 0);
    windows(8192);
    return 0;
}

static struct file_window *get(unsigned i)
{
    uint64_t off = (uint64_t)i * FILE_WINDOW_SIZE;
    int error;
    struct file_window *w = file_window_get(fd, &st, off, off + FILE_WINDOW_SIZE, false, &error);

    if (!w)
        assert_int_equal(error, -ENODEV);
    return w;
}

/* Send n windows one after another; how many had to be mapped. */
static uint64_t pass(unsigned n)
{
    struct file_window *w, *last = NULL;

    count();
    for (unsigned i = 0; i < n; i++, last = w) {
        w = get(i);
        assert_non_null(w);
        if (last)
            file_window_drop(last);
    }
    file_window_drop(last);
    return mapped();
}

static long faults(void)
{
    struct rusage u;

    assert_int_equal(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_minflt + u.ru_majflt;
}

/* Bytes that differ, one looked at of each page. A sanitizer would touch memory of its own. */
__attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread"))) static unsigned
differ(const volatile uint8_t *at, const volatile uint8_t *text)
{
    unsigned wrong = 0;

    for (size_t p = 0; p < FILE_WINDOW_SIZE; p += PAGE)
        wrong += at[p] != text[p];
    return wrong;
}

/* In memory, not in memory, in part: who reads the window never waits for a page. */
static void every_page_is_mapped(void **state)
{
    static const unsigned gone[][2] = {{0, 0}, {0, 512}, {0, 1}, {1, 20}, {17, 1}, {511, 1}};
    static uint8_t text[FILE_WINDOW_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (uint8_t)(i + i / PAGE);
    file(NELEM(gone) * FILE_WINDOW_SIZE);
    for (size_t p = 0; p < NELEM(gone) * FILE_WINDOW_SIZE; p += PAGE) /* so no large folios */
        assert_int_equal(pwrite(fd, text + p % FILE_WINDOW_SIZE, PAGE, (off_t)p), PAGE);
    assert_int_equal(fsync(fd), 0);
    for (unsigned i = 0; i < NELEM(gone); i++)
        (void)posix_fadvise(fd, (off_t)i * FILE_WINDOW_SIZE + gone[i][0] * (off_t)PAGE,
                            gone[i][1] * (off_t)PAGE, gone[i][1] ? POSIX_FADV_DONTNEED : 0);
    assert_int_equal(fstat(fd, &st), 0);
    (void)faults();
    for (unsigned i = 0; i < NELEM(gone); i++) {
        struct file_window *w = get(i);
        assert_non_null(w);
        const uint8_t *at = file_window_at(w, (uint64_t)i * FILE_WINDOW_SIZE);
        long before = faults();
        unsigned wrong = differ(at, text);
        long after = faults();
        assert_int_equal(wrong, 0);
        assert_int_equal(after, before);
        file_window_drop(w);
    }
}

/* The end of a file in a window: what is there is mapped, what is not is told. */
static void a_file_that_ends_in_it(void **state)
{
    int error;

    (void)state;
    file(FILE_WINDOW_SIZE);
    assert_int_equal(ftruncate(fd, 3 * 65536 + 5), 0); /* st says it is longer */
    assert_null(file_window_get(fd, &st, 0, FILE_WINDOW_SIZE, false, &error));
    assert_int_equal(error, -ENODATA);
    assert_int_equal(fstat(fd, &st), 0);
    struct file_window *w = file_window_get(fd, &st, 0, (uint64_t)st.st_size, false, &error);
    assert_non_null(w);
    assert_int_equal(file_window_end(w), st.st_size);
    file_window_drop(w);
}

/* A file of 12 windows through a cache of 8, again and again: some of them are found. */
static void a_file_larger_than_the_cache_keeps_a_part(void **state)
{
    uint64_t sum = 0;

    (void)state;
    windows(8);
    file(12 * (size_t)FILE_WINDOW_SIZE);
    assert_int_equal(pass(12), 12);
    for (int i = 0; i < 32; i++)
        sum += pass(12);
    assert_in_range(sum, 32 * 4, 32 * 7); /* the least that is possible; with LRU 32 * 12 */
}

/* What is used now drives out what was used once. */
static void a_new_file_gets_in(void **state)
{
    int old;

    (void)state;
    windows(8);
    file(8 * (size_t)FILE_WINDOW_SIZE);
    assert_int_equal(pass(8), 8);
    assert_int_equal(pass(8), 0);
    old = fd;
    file(4 * (size_t)FILE_WINDOW_SIZE);
    for (int i = 0; i < 100; i++)
        (void)pass(4);
    assert_int_equal(pass(4), 0);
    close(old);
}

/* In use they stay, and who asks for more reads. */
static void those_in_use_stay(void **state)
{
    struct file_window *w[9] = {0};

    (void)state;
    windows(8);
    file(9 * (size_t)FILE_WINDOW_SIZE);
    for (unsigned i = 0; i < 8; i++)
        assert_non_null(w[i] = get(i));
    assert_null(get(8));
    file_window_drop(w[3]);
    assert_non_null(w[8] = get(8));
    for (unsigned i = 0; i < 9; i++)
        if (i != 3)
            file_window_drop(w[i]);
}

/* They go a few at a time, so that no thread is held up for long. */
static void old_ones_go_in_turns(void **state)
{
    uint64_t now = runtime_now_ns(), due, far = now + 3600 * NS_PER_S;
    unsigned turns = 0;

    (void)state;
    file(48 * (size_t)FILE_WINDOW_SIZE);
    assert_int_equal(pass(48), 48);
    for (due = far; due != TIME_NEVER; turns++) {
        due = file_windows_expire(far);
        assert_true(due == TIME_NEVER || due <= far + NS_PER_S);
        far = due;
    }
    assert_in_range(turns, 2, 10);
    assert_int_equal(pass(48), 48);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_page_is_mapped),
        T(a_file_that_ends_in_it),
        T(a_file_larger_than_the_cache_keeps_a_part),
        T(a_new_file_gets_in),
        T(those_in_use_stay),
        T(old_ones_go_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
