/* SPDX-License-Identifier: BSD-2-Clause
 * Windows: parts of files, mapped, that mbufs refer to. */
#ifndef WEIR_RUNTIME_FILE_WINDOW_H
#define WEIR_RUNTIME_FILE_WINDOW_H

#include "buf/mbuf.h"
#include <sys/stat.h>

#define FILE_WINDOW_SIZE (2u << 20)

struct file_window;

/* A window on the file fd (st: its fstat, just taken), holding byte off, its pages in memory up to
 * end at least (a position in the file, beyond off, within the window). The caller gets a
 * reference. NULL: *error says why; -ENODEV: no window to be had (all in use, or the file cannot be
 * mapped), so read instead; -EBUSY: nodiskio, and pages are not in memory; -ENODATA: the file ends
 * before end; -EIO. Blocks in the file system. */
struct file_window *file_window_get(int fd, const struct stat *st, uint64_t off, uint64_t end,
                                    bool nodiskio, int *error) NODISCARD;
/* Another mbuf refers to it: a reference for mbuf_get_ext. */
struct mbuf_ext *file_window_ext(struct file_window *w);
uint8_t *file_window_at(const struct file_window *w, uint64_t off); /* address of that byte */
uint64_t file_window_end(const struct file_window *w); /* position up to which pages are there */
void file_window_drop(struct file_window *w);

/* Give up all windows that nobody refers to. Returns how many are left. For tests and exit. */
unsigned file_windows_drain(void);
/* Give up those that were not used for a minute (files that have no name any more: at once), so
 * that a deleted file's blocks come free. Cheap when there is nothing to do. Returns when to ask
 * again; TIME_NEVER: no window is kept. */
uint64_t file_windows_expire(uint64_t now_ns);
/* How often a window was found, and how often one was mapped. */
void file_windows_stats(uint64_t *hits, uint64_t *maps);
/* Around fork. */
void file_window_fork_prepare(void);
void file_window_fork_done(void); /* in parent and child */

#endif
