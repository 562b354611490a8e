/* SPDX-License-Identifier: BSD-2-Clause
 * Windows on files.
 *
 * How it works. A window is 2 MB of a file, mapped shared and read-only at a slot of one reserved
 * part of the address space, populated by the thread that asked for it. mbufs refer to it; the
 * cache keeps it for the next who sends the same part: the least recently used that nobody refers
 * to gives up its slot. All is bounded by kern.ipc.sendfile.windows; when every window is in use
 * the caller reads and copies. A window is found by device, inode and position, and not used again
 * if the file's size or times have changed; a change that these do not show (a store through a
 * mapping) shows in the pages themselves.
 *
 * Pages can vanish while mbufs refer to them: somebody cuts the file, or the disk fails. Whoever
 * reads gets SIGBUS then. The handler marks the window broken, puts zeros in place of the rest of
 * it, and returns, so no reader dies, be it a copy to an application, a link, or a checksum. Who
 * copies asks afterwards (mbuf_intact) and throws the copy away. The page in which the file now
 * ends raises nothing: the kernel fills its end with zeros. So mbuf_intact looks at the last byte
 * that was read of every page, and where one is zero asks for the size of the file.
 *
 * The cache asks through descriptors of its own, opened with O_PATH: closing these does not release
 * the process's record locks on the file, as closing a duplicate would. */
#include "file_window.h"
#include "base/lock.h"
#include "base/sysctl.h"
#include "runtime.h"

#include <bsd/sys/queue.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef PAGEMAP_SCAN /* Linux 6.7 */
#define PAGE_IS_PRESENT (1 << 3)
struct page_region {
    uint64_t start, end, categories;
};
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif

#define MAX_WINDOWS 16384 /* as kern.ipc.sendfile.windows allows */
#define MIN_WINDOWS 64    /* a reserve of fewer is not worth it */
#define BUCKETS 4096
#define PAGE 4096u
#define FAULT_AROUND 65536u /* a fault maps what is in memory of so much around it */
#define EVICT_LOOKS 64      /* windows looked at for one that nobody uses */
#define EVICT_LEAVES 16     /* that are in use stay where they are */
#define KEEP_ONE_OF 16      /* windows that found the cache full */
#define EXPIRE_AT_ONCE 32   /* of windows: a thread that serves a stack is held up by each */
#define KEEP_NS (60 * NS_PER_S)
#define EXPIRE_EVERY_NS (30 * NS_PER_S)
#define EXPIRE_NEXT_NS NS_PER_MS

struct open_file {
    LIST_ENTRY(open_file) link;
    dev_t dev;
    ino_t ino;
    int path_fd;      /* O_PATH; -1 where there is no /proc */
    unsigned windows; /* that refer to it */
};

/* Under the lock unless it says (c), constant while referred to, or (a), atomic. */
struct file_window {
    struct mbuf_ext ext; /* first; one reference is the cache's while cached is set */
    LIST_ENTRY(file_window) hash;
    TAILQ_ENTRY(file_window) lru;
    struct open_file *file; /* (c) */
    uint64_t off;           /* (c) of its first byte in the file */
    off_t size;             /* of the file when it was mapped, and its times */
    struct timespec mtime, ctime;
    _Atomic uint32_t populated; /* (a) bytes from the start whose pages are there */
    uint64_t used_ns;           /* last; 0: its file has no name any more */
    bool cached;
};
LIST_HEAD(window_list, file_window);
TAILQ_HEAD(window_queue, file_window);

LOCK_CLASS(cache_class, "file_windows");

static struct {
    struct lock lock;
    struct file_window *window; /* (c) one for each slot */
    uint8_t *arena;             /* (c) their slots */
    unsigned slots;             /* (c) */
    unsigned taken;             /* from the first on, those that were ever in use */
    struct window_list bucket[BUCKETS];
    struct window_queue lru; /* first: used last */
    struct window_list free;
    LIST_HEAD(, open_file)
    files;
    unsigned cached; /* windows in lru */
    _Atomic uint64_t hits, maps;
    _Atomic uint64_t expire_ns; /* when to look for what has not been used; 0: nothing is kept */
} cache = {.lock = LOCK_STATIC(cache_class), .lru = TAILQ_HEAD_INITIALIZER(cache.lru)};

/* What the application had for SIGBUS. */
static struct sigaction others;

/* --- SIGBUS --- */

static bool in_arena(const void *p)
{
    return cache.arena && (const uint8_t *)p >= cache.arena &&
           (const uint8_t *)p < cache.arena + (size_t)cache.slots * FILE_WINDOW_SIZE;
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    if (others.sa_flags & SA_SIGINFO) {
        others.sa_sigaction(sig, info, context);
    } else if (others.sa_handler == SIG_DFL || others.sa_handler == SIG_IGN) {
        signal(sig, SIG_DFL); /* raised again by what raised it */
    } else {
        others.sa_handler(sig);
    }
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    int saved = errno;

    if (!in_arena(info->si_addr)) {
        pass_on(sig, info, context);
        return;
    }
    size_t at = (size_t)((uint8_t *)info->si_addr - cache.arena);
    uint8_t *page = cache.arena + at / PAGE * PAGE;
    struct file_window *w = &cache.window[at / FILE_WINDOW_SIZE];
    size_t rest = FILE_WINDOW_SIZE - at % FILE_WINDOW_SIZE / PAGE * PAGE;
    /* Before the zeros are there to be read. */
    atomic_store(&w->ext.broken, 1);
    if (mmap(page, rest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        signal(sig, SIG_DFL);
    errno = saved;
}

/* Ours must be the one that is asked first; an application may have set its own since. */
static void install_handler(void)
{
    struct sigaction now, ours = {.sa_sigaction = on_sigbus};

    if (sigaction(SIGBUS, NULL, &now) != 0)
        return;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)
        return;
    others = now;
    ours.sa_mask = now.sa_mask; /* their handler runs as it would run without ours */
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & (SA_NODEFER | SA_RESTART));
    (void)sigaction(SIGBUS, &ours, NULL);
}

/* --- what mbufs ask --- */

/* Reads the last byte of each page; true: one of them is zero. */
static bool a_page_ends_in_zero(const uint8_t *data, uint32_t len)
{
    uintptr_t last = (uintptr_t)data + len - 1;

    for (uintptr_t p = (uintptr_t)data | (PAGE - 1); p < last; p += PAGE)
        if (*(const volatile uint8_t *)p == 0)
            return true;
    return *(const volatile uint8_t *)last == 0;
}

static bool window_intact(struct mbuf_ext *e, const uint8_t *data, uint32_t len)
{
    struct file_window *w = (struct file_window *)e;
    struct stat st;

    bool zero = len > 0 && a_page_ends_in_zero(data, len);
    if (unlikely(atomic_load_explicit(&e->broken, memory_order_acquire)))
        return false;
    if (likely(!zero) || w->file->path_fd < 0)
        return true;
    uint64_t end = w->off + (uint64_t)(data - e->buf) + len;
    if (fstat(w->file->path_fd, &st) != 0 || (uint64_t)st.st_size >= end)
        return true;
    atomic_store(&e->broken, 1);
    return false;
}

/* --- files --- */

static struct open_file *file_hold(int fd, const struct stat *st)
{
    struct open_file *f;
    char path[32];

    LIST_FOREACH (f, &cache.files, link) {
        if (f->dev == st->st_dev && f->ino == st->st_ino) {
            f->windows++;
            return f;
        }
    }
    f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *f = (struct open_file){.dev = st->st_dev,
                            .ino = st->st_ino,
                            .path_fd = open(path, O_PATH | O_CLOEXEC),
                            .windows = 1};
    struct stat same; /* the number may have been given to another file meanwhile */
    if (f->path_fd >= 0 &&
        (fstat(f->path_fd, &same) != 0 || same.st_dev != st->st_dev || same.st_ino != st->st_ino)) {
        close(f->path_fd);
        f->path_fd = -1;
    }
    LIST_INSERT_HEAD(&cache.files, f, link);
    return f;
}

static void file_drop(struct open_file *f)
{
    if (--f->windows > 0)
        return;
    LIST_REMOVE(f, link);
    if (f->path_fd >= 0)
        close(f->path_fd);
    free(f);
}

/* --- the cache, under its lock --- */

static struct window_list *bucket_of(dev_t dev, ino_t ino, uint64_t off)
{
    uint64_t h =
        ((uint64_t)dev * 31 + (uint64_t)ino) * 0x9e3779b97f4a7c15u + off / FILE_WINDOW_SIZE;

    return &cache.bucket[(h ^ h >> 32) % BUCKETS];
}

static uint8_t *slot_of(const struct file_window *w)
{
    return cache.arena + (size_t)(w - cache.window) * FILE_WINDOW_SIZE;
}

/* Address space for n slots; each could be mapped by one entry of a page directory. */
static uint8_t *reserve(size_t n)
{
    size_t size = n * FILE_WINDOW_SIZE, extra = FILE_WINDOW_SIZE;
    uint8_t *at =
        mmap(NULL, size + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    size_t skip = -(uintptr_t)at % FILE_WINDOW_SIZE;
    if (skip > 0)
        (void)munmap(at, skip);
    (void)munmap(at + skip + size, extra - skip);
    return at + skip;
}

static bool init_locked(void)
{
    size_t n = MAX_WINDOWS;
    uint8_t *arena;

    if (cache.arena)
        return true;
    while (!(arena = reserve(n)) && n > MIN_WINDOWS) /* RLIMIT_AS */
        n /= 2;
    if (!arena)
        return false;
    cache.window = calloc(n, sizeof(*cache.window));
    if (!cache.window) {
        (void)munmap(arena, n * FILE_WINDOW_SIZE);
        return false;
    }
    cache.slots = (unsigned)n;
    cache.arena = arena;
    lock_class_register(&cache_class);
    return true;
}

/* One without a file, or NULL. It stays where it is until take_locked. */
static struct file_window *vacant_locked(void)
{
    if (!LIST_EMPTY(&cache.free))
        return LIST_FIRST(&cache.free);
    return cache.taken < cache.slots ? &cache.window[cache.taken] : NULL;
}

static void take_locked(struct file_window *w)
{
    if (w == &cache.window[cache.taken])
        cache.taken++;
    else
        LIST_REMOVE(w, hash);
}

/* Nobody refers to it any more. */
static void retire_locked(struct file_window *w)
{
    (void)mmap(slot_of(w), FILE_WINDOW_SIZE, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    file_drop(w->file);
    w->file = NULL;
    LIST_INSERT_HEAD(&cache.free, w, hash);
}

/* The last reference is dropped. */
static void window_free(struct mbuf_ext *e)
{
    lock_acquire(&cache.lock);
    retire_locked((struct file_window *)e);
    lock_release(&cache.lock);
}

static bool idle(struct file_window *w)
{
    return atomic_load_explicit(&w->ext.refs, memory_order_acquire) == 1;
}

/* Found no more. True: it was idle, and is retired. */
static bool uncache_locked(struct file_window *w)
{
    LIST_REMOVE(w, hash);
    TAILQ_REMOVE(&cache.lru, w, lru);
    cache.cached--;
    w->cached = false;
    /* New references are only given under the lock: that of the cache being the last one stays so.
     * Otherwise whoever drops the last retires it, which needs the lock. */
    if (idle(w)) {
        retire_locked(w);
        return true;
    }
    return false;
}

/* Drop the cache's reference of a window that uncache_locked left alive. Without the lock. */
static void uncached_drop(struct file_window *w)
{
    if (w)
        mbuf_ext_drop(&w->ext);
}

static bool same_version(const struct file_window *w, const struct stat *st)
{
    return w->size == st->st_size && w->mtime.tv_sec == st->st_mtim.tv_sec &&
           w->mtime.tv_nsec == st->st_mtim.tv_nsec && w->ctime.tv_sec == st->st_ctim.tv_sec &&
           w->ctime.tv_nsec == st->st_ctim.tv_nsec;
}

/* With a reference for the caller, or NULL. *stale: one that may not be used any more, to be given
 * to uncached_drop. */
static struct file_window *find_locked(const struct stat *st, uint64_t off,
                                       struct file_window **stale)
{
    struct file_window *w;

    LIST_FOREACH (w, bucket_of(st->st_dev, st->st_ino, off), hash) {
        if (w->off != off || w->file->ino != st->st_ino || w->file->dev != st->st_dev)
            continue;
        if (atomic_load(&w->ext.broken) || !same_version(w, st)) {
            if (!uncache_locked(w))
                *stale = w;
            return NULL;
        }
        mbuf_ext_hold(&w->ext);
        w->used_ns = st->st_nlink ? runtime_now_ns() : 0;
        TAILQ_REMOVE(&cache.lru, w, lru);
        TAILQ_INSERT_HEAD(&cache.lru, w, lru);
        return w;
    }
    return NULL;
}

/* Make room for one more. *full: something had to go for it. */
static bool evict_locked(bool *full)
{
    unsigned limit = (unsigned)MIN(KNOB_P(kern_sendfile_windows), (int64_t)cache.slots);
    struct file_window *w, *before;
    int looks = 0;

    *full = cache.cached >= limit;
    if (limit == 0)
        return false;
    for (w = TAILQ_LAST(&cache.lru, window_queue);
         w && cache.cached >= limit && looks < EVICT_LOOKS; w = before, looks++) {
        before = TAILQ_PREV(w, window_queue, lru);
        if (idle(w)) {
            (void)uncache_locked(w);
        } else if (looks >= EVICT_LEAVES) { /* so many in use must not be in the way */
            TAILQ_REMOVE(&cache.lru, w, lru);
            TAILQ_INSERT_HEAD(&cache.lru, w, lru);
        }
    }
    return cache.cached < limit && vacant_locked() != NULL;
}

/* Where a new one goes. In front where there was room. Else it goes first when the next one comes,
 * unless it is used again before: a file larger than the cache, sent again and again, would push
 * out each window just before its turn, and so it keeps most of them. Some are put in front anyway,
 * so that what is used now replaces what was used once. */
static void queue_locked(struct file_window *w, bool full)
{
    if (full && LOAD_RELAXED(&cache.maps) % KEEP_ONE_OF != 0)
        TAILQ_INSERT_TAIL(&cache.lru, w, lru);
    else
        TAILQ_INSERT_HEAD(&cache.lru, w, lru);
}

/* A new one, mapped but not populated, with references for the cache and the caller. */
static struct file_window *map_locked(int fd, const struct stat *st, uint64_t off, int *error)
{
    bool full;

    *error = -ENODEV;
    if (!evict_locked(&full))
        return NULL;
    struct open_file *f = file_hold(fd, st);
    if (!f)
        return NULL;
    install_handler();
    struct file_window *w = vacant_locked();
    uint8_t *at = slot_of(w);
    if (mmap(at, FILE_WINDOW_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)off) ==
        MAP_FAILED) {
        file_drop(f);
        return NULL;
    }
    take_locked(w);
    bool charged = mbuf_ext_init(&w->ext, NULL, at, FILE_WINDOW_SIZE, window_free);
    CHECK(charged); /* nobody is charged */
    w->ext.intact = window_intact;
    w->file = f;
    w->off = off;
    w->size = st->st_size;
    w->mtime = st->st_mtim;
    w->ctime = st->st_ctim;
    atomic_store(&w->populated, 0);
    w->cached = true;
    uint64_t now = runtime_now_ns();
    w->used_ns = st->st_nlink ? now : 0;
    if (LOAD_RELAXED(&cache.expire_ns) == 0)
        STORE_RELAXED(&cache.expire_ns, now + EXPIRE_EVERY_NS);
    mbuf_ext_hold(&w->ext);
    LIST_INSERT_HEAD(bucket_of(st->st_dev, st->st_ino, off), w, hash);
    queue_locked(w, full);
    cache.cached++;
    atomic_fetch_add_explicit(&cache.maps, 1, memory_order_relaxed);
    return w;
}

/* --- populating --- */

static bool in_memory(const uint8_t *at, size_t len)
{
    unsigned char v[FILE_WINDOW_SIZE / PAGE];

    if (mincore((void *)(uintptr_t)at, len, v) != 0)
        return true;
    for (size_t i = 0; i < (len + PAGE - 1) / PAGE; i++)
        if (!(v[i] & 1))
            return false;
    return true;
}

/* Without MADV_POPULATE_READ (Linux 5.14): a byte of each page, under the handler. */
static int touch(struct file_window *w, uint32_t from, uint32_t to)
{
    for (uint32_t p = from; p < to; p += PAGE)
        (void)*(const volatile uint8_t *)(w->ext.buf + p);
    return atomic_load(&w->ext.broken) ? -EFAULT : 0;
}

static int populate_range(uint8_t *at, size_t len)
{
    int r;

    do {
        r = madvise(at, len, MADV_POPULATE_READ) == 0 ? 0 : -errno;
    } while (r == -EINTR || r == -EAGAIN);
    return r;
}

/* Is every page mapped? */
static bool all_mapped(int pagemap, const uint8_t *at, size_t len)
{
    struct page_region missing;
    struct pm_scan_arg scan = {.size = sizeof(scan),
                               .start = (uintptr_t)at,
                               .end = (uintptr_t)at + len,
                               .vec = (uintptr_t)&missing,
                               .vec_len = 1,
                               .max_pages = 1, /* tell the first that is missing */
                               .category_inverted = PAGE_IS_PRESENT,
                               .category_mask = PAGE_IS_PRESENT,
                               .return_mask = PAGE_IS_PRESENT};

    return ioctl(pagemap, PAGEMAP_SCAN, &scan) == 0;
}

/* Asked for all pages the kernel looks at each, which takes three times as long as mapping them.
 * Asked for one it maps what is in memory around it: 64 KB, or all where the file lies in huge
 * pages. So that is done first, and what is not in memory is asked for then. */
static int populate_around(int pagemap, uint8_t *at, size_t len)
{
    int error = populate_range(at, PAGE);

    if (error || all_mapped(pagemap, at, len))
        return error;
    for (size_t p = FAULT_AROUND; !error && p < len; p += FAULT_AROUND)
        error = populate_range(at + p, PAGE);
    return error || all_mapped(pagemap, at, len) ? error : populate_range(at, len);
}

static int populate_mapping(uint8_t *at, size_t len)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); /* a fork would spoil it */

    if (pagemap < 0)
        return populate_range(at, len);
    int error = populate_around(pagemap, at, len);
    close(pagemap);
    return error;
}

/* Pages up to `want` bytes of the window. 0, -EBUSY, -ENODATA, -EIO. */
static int populate(struct file_window *w, uint32_t want, bool nodiskio)
{
    uint32_t have = atomic_load_explicit(&w->populated, memory_order_acquire);
    struct stat st;
    int error;

    if (have >= want)
        return 0;
    uint8_t *at = w->ext.buf + have / PAGE * PAGE;
    size_t len = (want - have / PAGE * PAGE + PAGE - 1) / PAGE * PAGE;
    if (nodiskio && !in_memory(at, len))
        return -EBUSY;
    error = populate_mapping(at, len);
    if (error == -EINVAL || error == -ENOSYS)
        error = touch(w, have, want);
    if (error) {
        bool cut = w->file->path_fd >= 0 && fstat(w->file->path_fd, &st) == 0 &&
                   (uint64_t)st.st_size < w->off + want;
        return cut ? -ENODATA : error == -ENOMEM ? -ENOBUFS : -EIO;
    }
    while (have < want && !atomic_compare_exchange_weak(&w->populated, &have, want))
        ;
    return 0;
}

struct file_window *file_window_get(int fd, const struct stat *st, uint64_t off, uint64_t end,
                                    bool nodiskio, int *error)
{
    uint64_t base = off / FILE_WINDOW_SIZE * FILE_WINDOW_SIZE;
    struct file_window *stale = NULL, *w = NULL;

    *error = -ENODEV;
    CHECK(end > off && end - base <= FILE_WINDOW_SIZE);
    lock_acquire(&cache.lock);
    if (init_locked()) {
        w = find_locked(st, base, &stale);
        if (w)
            atomic_fetch_add_explicit(&cache.hits, 1, memory_order_relaxed);
        else
            w = map_locked(fd, st, base, error);
    }
    lock_release(&cache.lock);
    uncached_drop(stale);
    if (!w)
        return NULL;
    *error = populate(w, (uint32_t)(end - base), nodiskio);
    if (*error == 0)
        return w;
    mbuf_ext_drop(&w->ext);
    return NULL;
}

struct mbuf_ext *file_window_ext(struct file_window *w)
{
    mbuf_ext_hold(&w->ext);
    return &w->ext;
}

uint8_t *file_window_at(const struct file_window *w, uint64_t off)
{
    return w->ext.buf + (off - w->off);
}

uint64_t file_window_end(const struct file_window *w)
{
    return w->off + LOAD_RELAXED(&w->populated);
}

void file_window_drop(struct file_window *w)
{
    mbuf_ext_drop(&w->ext);
}

uint64_t file_windows_expire(uint64_t now_ns)
{
    uint64_t due = LOAD_RELAXED(&cache.expire_ns);
    struct file_window *w, *next;
    unsigned gone = 0;

    if (likely(due == 0 || now_ns < due))
        return due ? due : TIME_NEVER;
    if (!lock_try(&cache.lock))
        return now_ns + NS_PER_S;
    for (w = TAILQ_FIRST(&cache.lru); w && gone < EXPIRE_AT_ONCE; w = next) {
        next = TAILQ_NEXT(w, lru);
        if (now_ns >= w->used_ns + KEEP_NS && idle(w))
            gone += uncache_locked(w);
    }
    due = cache.cached == 0 ? 0 : now_ns + (w ? EXPIRE_NEXT_NS : EXPIRE_EVERY_NS);
    STORE_RELAXED(&cache.expire_ns, due);
    lock_release(&cache.lock);
    return due ? due : TIME_NEVER;
}

unsigned file_windows_drain(void)
{
    struct file_window *w, *next;

    lock_acquire(&cache.lock);
    for (w = TAILQ_FIRST(&cache.lru); w; w = next) {
        next = TAILQ_NEXT(w, lru);
        if (idle(w))
            (void)uncache_locked(w);
    }
    unsigned left = 0;
    for (unsigned i = 0; i < cache.taken; i++)
        left += cache.window[i].file != NULL;
    lock_release(&cache.lock);
    return left;
}

void file_windows_stats(uint64_t *hits, uint64_t *maps)
{
    *hits = LOAD_RELAXED(&cache.hits);
    *maps = LOAD_RELAXED(&cache.maps);
}

void file_window_fork_prepare(void) TS_NO_ANALYSIS
{
    lock_acquire(&cache.lock);
}

void file_window_fork_done(void) TS_NO_ANALYSIS
{
    lock_release(&cache.lock);
}
