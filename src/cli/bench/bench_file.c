/* SPDX-License-Identifier: BSD-2-Clause
 * The file that TCP_SENDFILE sends: the user's, or one made for the run. */
#include "bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MADE_BYTES (256u << 20)
#define BLOCK (1u << 20)

/* A file without a name, full of bytes that no page of which is like another. */
static int make(char *err, size_t size)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir != NULL && *dir != '\0' ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(err, size, "cannot make a file to send (give one by -F): %s", strerror(errno));
        return -1;
    }
    uint64_t x = 88172645463325252u, *block = malloc(BLOCK);
    bool good = block != NULL;
    for (size_t at = 0; good && at < MADE_BYTES; at += BLOCK) {
        for (size_t i = 0; i < BLOCK / sizeof(x); i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            block[i] = x;
        }
        good = pwrite(fd, block, BLOCK, (off_t)at) == (ssize_t)BLOCK;
    }
    free(block);
    if (good)
        return fd;
    snprintf(err, size, "cannot make a file to send (give one by -F): %s", strerror(errno));
    close(fd);
    return -1;
}

bool bench_file_open(const char *path, struct bench_params *p, char *err, size_t size)
{
    struct stat st;
    p->file_fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : make(err, size);
    if (p->file_fd < 0) {
        if (path != NULL)
            snprintf(err, size, "%s: %s", path, strerror(errno));
        return false;
    }
    if (fstat(p->file_fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        snprintf(err, size, "%s: not a regular file with something in it", path);
        close(p->file_fd);
        p->file_fd = -1;
        return false;
    }
    p->file_bytes = (uint64_t)st.st_size;
    return true;
}
