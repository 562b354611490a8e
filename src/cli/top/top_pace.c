/* SPDX-License-Identifier: BSD-2-Clause
 * Requests at regular times, one under way at most. */
#include "cli/cli.h"
#include "top.h"

/* A connection may be refused or cut for a moment (many clients at once); then it is tried again,
 * soon, so often. */
#define MAX_REFUSED 5
#define RETRY_NS (100 * NS_PER_MS)
#define PATIENCE_NS (60 * NS_PER_S)

/* Not answered: later, or never. */
static int failed(struct top_pace *p, int error, char *why, size_t size)
{
    bool gone = error == -ECONNREFUSED || error == -ENOENT;
    top_fetch_stop(&p->fetch);
    p->next_ns = clock_now_ns() + RETRY_NS;
    if (!gone && ++p->refused < MAX_REFUSED)
        return 0;
    if (gone)
        snprintf(why, size, "the instance is gone");
    else
        snprintf(why, size, "control socket: %s", strerror(-error));
    return -1;
}

static int ask(struct top_pace *p, char *why, size_t size)
{
    uint64_t now = clock_now_ns();
    int e = top_fetch_start(&p->fetch);
    if (e != 0)
        return failed(p, e, why, size);
    /* At multiples of the delay, without running after what was missed. */
    p->next_ns = MAX(p->next_ns, now > p->delay_ns ? now - p->delay_ns : 0) + p->delay_ns;
    if (p->next_ns <= now)
        p->next_ns = now + p->delay_ns;
    return 0;
}

int top_pace_step(struct top_pace *p, struct top_model *m, bool paused, char *why, size_t size)
{
    if (p->fetch.fd < 0) {
        bool due = clock_now_ns() >= p->next_ns && !paused;
        return due ? ask(p, why, size) : 0;
    }
    int r = top_fetch_step(&p->fetch);
    if (r == 0 && clock_now_ns() - p->fetch.since_ns > PATIENCE_NS)
        r = -ETIMEDOUT;
    if (r <= 0)
        return r < 0 ? failed(p, r, why, size) : 0;
    struct top_snapshot *s = top_fetch_take(&p->fetch, why, size);
    if (s == NULL)
        return -1;
    p->refused = 0;
    top_model_add(m, s);
    (void)top_model_arrange(m);
    return 1;
}

int top_pace_timeout(const struct top_pace *p, bool paused)
{
    uint64_t now = clock_now_ns();
    if (p->fetch.fd >= 0)
        return 1000; /* the answer wakes; this is for patience */
    if (paused)
        return -1;
    return p->next_ns > now ? (int)MIN((p->next_ns - now) / NS_PER_MS + 1, 3600000u) : 0;
}
