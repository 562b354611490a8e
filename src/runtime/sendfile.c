/* SPDX-License-Identifier: BSD-2-Clause
 * weir_sendfile: files of the kernel's, by windows where that pays, else read and copied; waiting
 * for what was sent without a copy. */
#include "file_window.h"
#include "runtime.h"
#include "socket/api.h"
#include "socket/so_sendfile.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

/* Less than this of a window is read and copied: a mapping costs more (and so much of a file's end
 * is not in danger of being cut). */
#define COPY_MAX 65536u
/* What the kernel sends at most in a call. */
#define LINUX_MAX_COUNT ((size_t)0x7ffff000)

struct kernel_file {
    struct so_file file; /* first */
    int fd;
    bool maps;    /* windows are worth a try */
    uint64_t end; /* of what is to be sent; beyond the file's size: not known */
    struct stat st;
    struct file_window *window; /* the last one used */
};

static ssize_t read_copy(struct kernel_file *k, struct mbuf_account *acct, uint64_t off, size_t n,
                         int flags, struct mbuf **out)
{
    struct mbuf *m = mbuf_get_data(acct, MIN(n, (size_t)BIGCLUSTER_64K));
    ssize_t r;

    if (!m)
        return -ENOBUFS;
    struct iovec iov = {m->m_data, MIN(MIN(n, (size_t)mbuf_storage(m)), (size_t)BIGCLUSTER_64K)};
    do {
        r = preadv2(k->fd, &iov, 1, (off_t)off, flags & SF_NODISKIO ? RWF_NOWAIT : 0);
        if (r < 0 && errno == EOPNOTSUPP && (flags & SF_NODISKIO))
            r = preadv2(k->fd, &iov, 1, (off_t)off, 0);
    } while (r < 0 && errno == EINTR);
    if (r <= 0) {
        int error = r == 0 ? 0 : errno == EAGAIN ? -EBUSY : -errno;
        mbuf_free_chain(&m);
        return error;
    }
    m->m_len = (uint32_t)r;
    *out = m;
    return r;
}

/* A window that holds off, with pages to `end` (or its own end). NULL and *error. */
static struct file_window *window_for(struct kernel_file *k, uint64_t off, int flags, int *error)
{
    struct file_window *w = k->window;
    uint64_t limit = (off / FILE_WINDOW_SIZE + 1) * FILE_WINDOW_SIZE;
    uint64_t end = MIN(limit, k->end);

    if (likely(w && off < file_window_end(w) &&
               off / FILE_WINDOW_SIZE == (file_window_end(w) - 1) / FILE_WINDOW_SIZE))
        return w;
    if (end - off <= COPY_MAX) {
        *error = -ENODEV;
        return NULL;
    }
    w = file_window_get(k->fd, &k->st, off, end, flags & SF_NODISKIO, error);
    if (w) {
        if (k->window)
            file_window_drop(k->window);
        k->window = w;
    }
    return w;
}

static ssize_t kernel_get(struct so_file *f, struct mbuf_account *acct, uint64_t off, size_t n,
                          int flags, struct mbuf **out)
{
    struct kernel_file *k = (struct kernel_file *)f;
    int error = -ENODEV;
    struct file_window *w = k->maps && off < k->end ? window_for(k, off, flags, &error) : NULL;

    if (!w) {
        if (error == -ENODEV || error == -ENODATA) /* read tells how far the file goes now */
            return read_copy(k, acct, off, n, flags, out);
        return error;
    }
    uint64_t end = MIN(file_window_end(w), k->end);
    uint32_t len = (uint32_t)MIN(n, end - off);
    struct mbuf_ext *e = file_window_ext(w);
    struct mbuf *m = mbuf_get_ext(acct, e, file_window_at(w, off), len, M_RDONLY | M_VOLATILE);
    if (!m) {
        mbuf_ext_drop(e);
        return -ENOBUFS;
    }
    *out = m;
    return len;
}

/* Look at the file and what is asked of it. left: bytes to send, SO_FILE_TO_END for all. */
static int file_open(struct kernel_file *k, int fd, uint64_t off, uint64_t left, bool block_too)
{
    int mode = fcntl(fd, F_GETFL);

    if (mode < 0 || (mode & O_PATH) || (mode & O_ACCMODE) == O_WRONLY)
        return -EBADF;
    *k = (struct kernel_file){.file.get = kernel_get, .fd = fd};
    if (fstat(fd, &k->st) != 0)
        return -errno;
    if (!S_ISREG(k->st.st_mode) && !(block_too && S_ISBLK(k->st.st_mode)))
        return -EINVAL;
    uint64_t size = (uint64_t)k->st.st_size;
    k->end = left < size - MIN(off, size) ? off + left : size;
    k->maps = S_ISREG(k->st.st_mode) && KNOB_P(kern_sendfile_windows) > 0;
    return 0;
}

static void file_close(struct kernel_file *k)
{
    if (k->window)
        file_window_drop(k->window);
}

static int run(struct socket *so, struct so_sendfile *sf, int fd, bool block_too)
{
    struct kernel_file k;
    int error = file_open(&k, fd, sf->off, sf->left, block_too);

    if (error)
        return error;
    sf->file = &k.file;
    /* A file that has a size ends there, whatever is appended meanwhile; others end where a read
     * says so. */
    uint64_t size = (uint64_t)k.st.st_size;
    char byte;
    if (size > 0 || pread(fd, &byte, 1, (off_t)sf->off) <= 0)
        sf->left = MIN(sf->left, size - MIN(sf->off, size));
    error = so_sendfile(so, sf);
    file_close(&k);
    return error;
}

static int uio_of(struct so_uio *u, const struct iovec *iov, int count)
{
    if (count < 0 || (count > 0 && !iov))
        return -EINVAL;
    return so_uio_init(u, iov, (size_t)count);
}

static int take_hdtr(struct so_sendfile *sf, const struct weir_sf_hdtr *hdtr)
{
    if (!hdtr)
        return 0;
    int error = hdtr->headers ? uio_of(&sf->head, hdtr->headers, hdtr->hdr_cnt) : 0;
    if (error == 0 && hdtr->trailers)
        error = uio_of(&sf->trail, hdtr->trailers, hdtr->trl_cnt);
    return error;
}

int weir_sendfile(int fd, int s, off_t offset, size_t nbytes, struct weir_sf_hdtr *hdtr,
                  off_t *sbytes, int flags)
{
    struct so_sendfile sf = {
        .off = (uint64_t)offset, .left = nbytes ? nbytes : SO_FILE_TO_END, .flags = flags};
    struct desc_ref r;

    if (sbytes)
        *sbytes = 0;
    if (!api_socket(s, &r))
        return -1;
    int error = offset < 0 || nbytes > SSIZE_MAX || r.so->so_type != SOCK_STREAM
                    ? -EINVAL
                    : take_hdtr(&sf, hdtr);
    sf.nonblock = so_state(r.so) & SS_NBIO;
    if (error == 0)
        error = run(r.so, &sf, fd, false);
    if (sbytes)
        *sbytes = (off_t)sf.sent;
    return api_result(&r, error);
}

ssize_t weir_sendfile_linux(int out_fd, int in_fd, off_t *offset, size_t count)
{
    off_t from = offset ? *offset : lseek(in_fd, 0, SEEK_CUR);
    struct so_sendfile sf = {
        .off = (uint64_t)from, .left = MIN(count, LINUX_MAX_COUNT), .linux_rules = true};
    struct desc_ref r;

    if (from < 0) {
        if (offset || errno == ESPIPE) /* what cannot be sought is no file of ours */
            errno = EINVAL;
        return -1;
    }
    if (!api_socket(out_fd, &r))
        return -1;
    sf.nonblock = so_state(r.so) & SS_NBIO;
    int error = r.so->so_type == SOCK_STREAM ? run(r.so, &sf, in_fd, true) : -EINVAL;
    if (sf.sent > 0) {
        error = 0;
        if (offset)
            *offset = from + (off_t)sf.sent;
        else
            (void)lseek(in_fd, from + (off_t)sf.sent, SEEK_SET);
    }
    error = api_result(&r, error);
    return error < 0 ? -1 : (ssize_t)sf.sent;
}

int weir_zc_wait(struct weir_zc_send *z, int timeout_ms)
{
    struct port_wait w = {.addr = (_Atomic uint32_t *)&z->pending, .deadline_ns = TIME_NEVER};
    int error = 0;

    if (timeout_ms >= 0)
        w.deadline_ns = runtime_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    /* It is woken when the count is 0, and not before. */
    while ((w.expected = weir_zc_pending(z)) > 0 && !error)
        error = runtime_wait(NULL, &w);
    if (w.expected == 0)
        return 0;
    errno = error == -ETIMEDOUT ? EAGAIN : -error;
    return -1;
}
