/* SPDX-License-Identifier: BSD-2-Clause
 * sendfile without the file: where its bytes come from is the caller's. */
#ifndef WEIR_SOCKET_SO_SENDFILE_H
#define WEIR_SOCKET_SO_SENDFILE_H

#include "so_private.h"

#define SO_FILE_PAGE 4096u
#define SO_FILE_TO_END UINT64_MAX

/* A file as sendfile sees it, supplied by the runtime (windows on the kernel's files) or a test. */
struct so_file {
    /* Bytes [off, off+n) or the first of them, as mbufs charged to acct; *out is the caller's.
     * Returns how many (at least 1); 0 at the end of the file; -ENOBUFS: no buffers now; -EBUSY:
     * they are not in memory and SF_NODISKIO asks not to read; -EIO and others: they cannot be
     * read. May block in the file system: called without ownership and locks. */
    ssize_t (*get)(struct so_file *f, struct mbuf_account *acct, uint64_t off, size_t n, int flags,
                   struct mbuf **out);
};

struct so_sendfile {
    struct so_file *file;
    uint64_t off, left;        /* of the file; left SO_FILE_TO_END: all there is */
    struct so_uio head, trail; /* in front and behind; left 0: none */
    int flags;                 /* SF_* */
    bool nonblock;
    bool linux_rules; /* an unconnected socket is EPIPE, one that connects is waited for */
    uint64_t sent;    /* out: bytes taken, of all three */
};

/* Send. 0: all of it, or up to the end of the file; else a negative errno, with what went before in
 * sf->sent. kern.ipc.sendfile.bulk chooses the form. */
int so_sendfile(struct socket *so, struct so_sendfile *sf) NODISCARD;

#endif
