/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the three ways to receive (net.inet.tcp.soreceive_stream), and a socket for which the way
 * changes at each call, cannot be told apart: the same arrivals and calls give the same bytes,
 * results, errors, marks, readiness and memory. Bound: 60 connections of 400 random steps, no
 * threads. */
#include "fake.h"

#define WAYS 4 /* the last one is a random one at each call */
#define FIONREAD_ 0x541B
#define SIOCATMARK_ 0x8905

static uint32_t rng_state;

static uint32_t rnd(uint32_t below)
{
    rng_state = rng_state * 1664525 + 1013904223;
    return (rng_state >> 8) % below;
}

static void use_way(int way)
{
    STORE_RELAXED(&fake.s->knobs.tcp_soreceive_stream, way < 3 ? way : (int)rnd(3));
}

/* What one call showed, and how the socket looks afterwards. */
struct seen {
    ssize_t result;
    int error, msg_flags, inq, at_mark, so_error;
    short poll;
    uint32_t used, mem;
    uint8_t bytes[3000];
};

struct arrival {
    enum { DATA, URGENT, ANNOUNCED, FIN, RESET } kind;
    uint32_t len, seed;
    bool big; /* storage that is too large for the data */
};

static void arrive(int fd, const struct arrival *a)
{
    struct socket *so = fake_so(fd);

    switch (a->kind) {
    case DATA: {
        struct mbuf *m = mbuf_get_size(fake.s->account, a->big ? CLUSTER_SIZE : a->len);
        for (uint32_t i = 0; i < a->len; i++)
            m->m_data[i] = (uint8_t)((a->seed + i) * 2654435761u >> 24);
        m->m_len = a->len;
        AS_OWNER({
            sockbuf_append_stream(&so->so_rcv, &m);
            so_readable(so);
        });
        break;
    }
    case URGENT:
        AS_OWNER(so_oob_arrived(so, (uint8_t)a->seed, true, 0));
        break;
    case ANNOUNCED:
        AS_OWNER(so_oob_arrived(so, 0, false, a->len));
        break;
    case FIN:
        fake_fin(fd);
        break;
    case RESET:
        fake_rst(fd, ECONNRESET);
        break;
    }
}

static struct arrival random_arrival(void)
{
    struct arrival a = {.seed = rng_state};

    a.kind = rnd(100) < 88 ? DATA : rnd(10) < 6 ? URGENT : rnd(10) < 8 ? ANNOUNCED : DATA;
    a.big = rnd(2);
    a.len = rnd(3) ? 1 + rnd(40) : 1 + rnd(a.big ? CLUSTER_SIZE : 9000);
    if (a.kind == ANNOUNCED)
        a.len = rnd(60);
    return a;
}

/* --- what comes while a call waits --- */
static struct {
    int fd, waits;
    uint32_t count;
    struct arrival a[3];
} script;

static int on_wait(const struct port_wait *w)
{
    if ((uint32_t)script.waits < script.count) {
        arrive(script.fd, &script.a[script.waits++]);
        return 0;
    }
    return -ETIMEDOUT;
}

static void look(int fd, struct seen *s)
{
    struct socket *so = fake_so(fd);

    assert_int_equal(weir_ioctl(fd, FIONREAD_, &s->inq), 0);
    assert_int_equal(weir_ioctl(fd, SIOCATMARK_, &s->at_mark), 0);
    s->poll = fake_poll(fd);
    s->so_error = LOAD_RELAXED(&so->so_error);
    s->used = sockbuf_used(&so->so_rcv);
    s->mem = sockbuf_mem(&so->so_rcv);
}

static void call(int fd, uint32_t len, int flags, struct seen *s)
{
    struct iovec iov[2] = {{s->bytes, len / 3}, {s->bytes + len / 3, len - len / 3}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    memset(s, 0, sizeof(*s));
    errno = 0;
    s->result = weir_recvmsg(fd, &msg, flags);
    s->error = s->result < 0 ? errno : 0;
    s->msg_flags = s->result < 0 ? 0 : msg.msg_flags;
    look(fd, s);
}

static int random_flags(void)
{
    static const int bits[] = {MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC};
    int flags = 0;

    if (rnd(20) == 0)
        flags |= MSG_OOB;
    for (size_t i = 0; i < NELEM(bits); i++)
        if (rnd(4) == 0)
            flags |= bits[i];
    return flags;
}

static void call_all(const int *fd, int step)
{
    static struct seen s[WAYS];
    uint32_t len = rnd(12) == 0 ? 0 : rnd(3) ? 1 + rnd(200) : 1 + rnd(sizeof s[0].bytes - 1);
    int flags = random_flags();

    script.count = rnd(3) ? 0 : 1 + rnd(NELEM(script.a));
    for (uint32_t i = 0; i < script.count; i++)
        script.a[i] = random_arrival();
    for (int way = 0; way < WAYS; way++) {
        use_way(way);
        script.fd = fd[way];
        script.waits = 0;
        call(fd[way], len, flags, &s[way]);
        while ((uint32_t)script.waits < script.count) /* nobody waited for it: it comes now */
            arrive(fd[way], &script.a[script.waits++]);
    }
    for (int way = 1; way < WAYS; way++)
        if (memcmp(&s[0], &s[way], sizeof s[0]) != 0)
            fail_msg(
                "step %d, len %u, flags 0x%x, way %d: %zd/%zd errno %d/%d inq %d/%d mark %d/%d "
                "poll 0x%x/0x%x used %u/%u mem %u/%u",
                step, len, (unsigned)flags, way, s[0].result, s[way].result, s[0].error,
                s[way].error, s[0].inq, s[way].inq, s[0].at_mark, s[way].at_mark,
                (unsigned)s[0].poll, (unsigned)s[way].poll, s[0].used, s[way].used, s[0].mem,
                s[way].mem);
}

static void option_all(const int *fd, int name, int value)
{
    for (int way = 0; way < WAYS; way++)
        assert_int_equal(weir_setsockopt(fd[way], SOL_SOCKET, name, &value, sizeof value), 0);
}

static void step_all(const int *fd, int step, bool late)
{
    struct arrival a = random_arrival();

    if (late && rnd(100) == 0)
        a.kind = rnd(2) ? FIN : RESET;
    switch (rnd(20)) {
    case 0:
        option_all(fd, SO_RCVLOWAT, rnd(2) ? 1 : (int)(1 + rnd(500)));
        break;
    case 1:
        if (rnd(4) == 0)
            option_all(fd, SO_OOBINLINE, (int)rnd(2));
        break;
    case 2:
        if (late && rnd(20) == 0)
            for (int way = 0; way < WAYS; way++)
                weir_shutdown(fd[way], SHUT_RD);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        for (int way = 0; way < WAYS; way++) {
            use_way(way);
            arrive(fd[way], &a);
        }
        break;
    default:
        call_all(fd, step);
        break;
    }
}

static void test_same(void **state)
{
    const char *seed = getenv("SEED");
    struct timeval tv = {1, 0};
    int fd[WAYS];

    (void)state;
    rng_state = seed ? (uint32_t)strtoul(seed, NULL, 0) : 20091;
    printf("SEED=%u\n", rng_state);
    fake.on_wait = on_wait;
    for (int round = 0; round < 60; round++) {
        for (int way = 0; way < WAYS; way++) {
            fd[way] = fake_connected(false);
            weir_setsockopt(fd[way], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
        }
        for (int step = 0; step < 400; step++)
            step_all(fd, round * 400 + step, step > 300);
        for (int way = 0; way < WAYS; way++)
            weir_close(fd[way]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same, fake_group_setup, fake_group_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
