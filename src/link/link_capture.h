/* SPDX-License-Identifier: BSD-2-Clause
 * Captures: a libpcap file of what passes a link, around any link. */
#ifndef WEIR_LINK_LINK_CAPTURE_H
#define WEIR_LINK_LINK_CAPTURE_H

#include "link.h"

#define LINK_CAPTURE_SNAPLEN 65535

struct link_capture_config {
    const char *path;
    uint32_t snaplen; /* bytes kept of a frame; 0: LINK_CAPTURE_SNAPLEN */
    /* Added to now_ns for the file's time stamps: what makes the stack's clock the time of day. */
    int64_t epoch_offset_ns;
};

/* Wrap *end: each frame that the link takes or hands up is written, with nanosecond time stamps,
 * superframes cut to the segments they stand for, and checksums that the link would complete
 * completed. When the file cannot be written any more (disk full) the capture ends, the traffic
 * goes on and link.capture_errors counts the frames missed.
 * returns  0; -ENOMEM, or -errno of the file with a message in err; *end is unchanged then */
int link_capture_wrap(struct weir_stack *s, struct link_end *end,
                      const struct link_capture_config *cfg, char *err, size_t err_size) NODISCARD;

#endif
