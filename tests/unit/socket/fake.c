/* SPDX-License-Identifier: BSD-2-Clause
 * The fake stack of the socket tests. */
#include "fake.h"
#include "ip/ip.h"
#include "udp/udp.h"

struct fake fake;

/* --- memory --- */

static void *fake_alloc(void *ctx, size_t size)
{
    (void)ctx;
    if (fake.fail_alloc && --fake.fail_alloc == 0)
        return NULL;
    __atomic_add_fetch(&fake.memory, 1, __ATOMIC_RELAXED);
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void fake_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)size;
    __atomic_sub_fetch(&fake.memory, 1, __ATOMIC_RELAXED);
    free(p);
}

static const struct weir_alloc heap = {fake_alloc, fake_free, NULL};

/* Of the buffer pools, which keep what they have: not counted, never failing. */
static void *pool_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void pool_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}

static const struct weir_alloc pool_heap = {pool_alloc, pool_free, NULL};

/* --- port --- */

static uint64_t fake_now(void *ctx)
{
    (void)ctx;
    return fake.now_ns;
}

static int fake_wait(void *ctx, const struct port_wait *w)
{
    (void)ctx;
    fake.waits++;
    if (atomic_load(w->addr) != w->expected)
        return 0;
    if (fake.on_wait)
        return fake.on_wait(w);
    if (w->deadline_ns == TIME_NEVER)
        fail_msg("a call blocks for ever");
    fake.now_ns = w->deadline_ns;
    return -ETIMEDOUT;
}

static void fake_wake(void *ctx, _Atomic uint32_t *addr, int count)
{
    (void)ctx;
    (void)addr;
    (void)count;
    fake.wakes++;
}

static const struct port fake_port = {.now_ns = fake_now, .wait = fake_wait, .wake = fake_wake};

/* --- the stack's calls --- */

void stack_flush(struct weir_stack *s, uint64_t now_ns)
{
    bool link_ready;
    uint32_t list;

    s->now = now_ns;
    while ((list = owner_take(s, &link_ready)) != 0)
        while (list) {
            uint32_t index = owner_pop(s, &list);
            so_run_work(so_by_index(s, index));
        }
}

bool stack_step(struct weir_stack *s, uint64_t now_ns)
{
    stack_flush(s, now_ns);
    return false;
}

void stack_leave(struct weir_stack *s)
{
    while (!owner_release(s))
        stack_flush(s, s->now);
}

bool ip_is_local(struct weir_stack *s, const struct ipaddr *a)
{
    return true;
}

/* --- protocols --- */

static int dummy_pcb;

static int fake_attach(struct socket *so)
{
    if (fake.attach_error)
        return fake.attach_error;
    fake.attached++;
    so->so_pcb = &dummy_pcb;
    fake.last = so;
    return 0;
}

static void fake_detach(struct socket *so)
{
    fake.detached++;
    if (fake.keep_pcb)
        return;
    so->so_pcb = NULL;
    so_protocol_done(so);
}

static int fake_bind(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    fake.binds++;
    if (fake.bind_error)
        return fake.bind_error;
    so->so_laddr = *a;
    so->so_lport = port ? port : 40000;
    return 0;
}

static int fake_listen(struct socket *so, int backlog)
{
    fake.listens++;
    if (!so->so_lport)
        so->so_lport = 40001;
    return 0;
}

static int fake_connect(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    fake.connects++;
    if (fake.connect_error == 0 || fake.connect_error == -EINPROGRESS) {
        so->so_faddr = *a;
        so->so_fport = port;
        if (!so->so_lport)
            so->so_lport = 40002;
    }
    return fake.connect_error;
}

static int fake_disconnect(struct socket *so)
{
    fake.disconnects++;
    return 0;
}

static void fake_send(struct socket *so)
{
    fake.sends++;
    fake.more_seen = so->so_sndflags & SO_SND_MORE;
    fake.oob_seen = atomic_fetch_and(&so->so_sndflags, ~SO_SND_OOB) & SO_SND_OOB;
    if (so->so_type == SOCK_STREAM)
        return;
    struct mbuf *rec;
    while ((rec = sockbuf_take_record(&so->so_snd)) != NULL) {
        struct so_ancillary a;
        if ((rec->m_flags & M_ADDR) && rec->m_len > sizeof a) { /* at the front's end */
            memcpy(&a, rec->m_data + rec->m_len - sizeof a, sizeof a);
            so_send_failed(so, a.refuse);
        }
        mbuf_free_chain(&rec);
    }
    if (fake.sent_errno)
        so_error_set(so, fake.sent_errno);
}

static void fake_rcvd(struct socket *so)
{
    fake.rcvds++;
}

static int fake_shutdown(struct socket *so, int how)
{
    fake.shutdown_how = how;
    return 0;
}

static void fake_abort(struct socket *so)
{
    fake.aborts++;
    so_disconnected(so);
    if (so_state(so) & SS_NOHANDLE) {
        so->so_pcb = NULL;
        so_protocol_done(so);
    }
}

static int fake_name(struct socket *so, struct ipaddr *a, uint16_t *port)
{
    *a = so->so_laddr;
    *port = so->so_lport;
    return 0;
}

#define FAKE_PROTO                                                                                 \
    .attach = fake_attach, .detach = fake_detach, .bind = fake_bind, .listen = fake_listen,        \
    .connect = fake_connect, .disconnect = fake_disconnect, .send = fake_send, .rcvd = fake_rcvd,  \
    .shutdown = fake_shutdown, .abort = fake_abort, .sockname = fake_name

const struct protosw tcp_protosw = {.type = SOCK_STREAM, .protocol = IPPROTO_TCP, FAKE_PROTO};
const struct protosw udp_protosw = {.type = SOCK_DGRAM, .protocol = IPPROTO_UDP, FAKE_PROTO};

/* --- life --- */

static void fake_panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: CHECK(%s)\n", file, line, what);
    abort();
}

void fake_setup(void)
{
    memset(&fake, 0, sizeof fake);
    base_panic_hook = fake_panic;
    fake.now_ns = NS_PER_S;
    fake.shutdown_how = -1;
    fake.connect_error = -EINPROGRESS;
    mbuf_pools_init(&pool_heap);
    struct weir_stack *s = alloc_zero(&heap, sizeof *s);
    fake.s = s;
    s->alloc = heap;
    s->port = &fake_port;
    s->account = mbuf_account_create(INT64_C(1) << 30);
    sysctl_init(&s->knobs);
    assert_int_equal(desc_table_init(&heap), 0);
    assert_int_equal(so_table_init(s), 0);
}

void fake_teardown(void)
{
    struct weir_stack *s = fake.s;
    int64_t mbufs, bytes;

    fake.keep_pcb = false;
    assert_int_equal(owner_acquire(s), 0);
    so_table_fini(s);
    assert_true(owner_release(s));
    mbuf_account_drop(s->account);
    mbuf_pools_drain();
    mbuf_usage(&mbufs, &bytes);
    assert_int_equal(mbufs, 0);
    alloc_free(&heap, s, sizeof *s);
    desc_table_fini();
    assert_int_equal(fake.memory, 0);
}

int fake_group_setup(void **state)
{
    (void)state;
    fake_setup();
    return 0;
}

int fake_group_teardown(void **state)
{
    (void)state;
    fake_teardown();
    return 0;
}

struct socket *fake_so(int fd)
{
    struct desc_ref r;

    assert_true(desc_get(fd, &r));
    struct socket *so = r.so;
    assert_false(desc_put(&r));
    return so;
}

int fake_connected(bool nonblock)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = {htonl(0x0a000002)}};
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_true(fd > 0);
    assert_errno(weir_connect(fd, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    AS_OWNER(so_connected(fake_so(fd)));
    assert_int_equal(weir_connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    if (!nonblock)
        weir_fcntl(fd, F_SETFL, 0);
    return fd;
}

int fake_listener(bool nonblock, int backlog)
{
    int fd = weir_socket(fake.s, AF_INET, SOCK_STREAM | (nonblock ? SOCK_NONBLOCK : 0), 0);

    assert_true(fd > 0);
    assert_int_equal(weir_listen(fd, backlog), 0);
    return fd;
}

struct socket *fake_child(int listener)
{
    struct socket *child;

    AS_OWNER({
        child = so_newconn(fake_so(listener));
        if (child) {
            child->so_faddr = ipaddr_v4(0x0a000002);
            child->so_fport = 1234;
            so_connected(child);
        }
    });
    return child;
}

void fake_data(int fd, const void *data, size_t len)
{
    struct mbuf *m = mbuf_from_bytes(fake.s->account, data, len);
    struct socket *so = fake_so(fd);

    assert_non_null(m);
    AS_OWNER({
        sockbuf_append_stream(&so->so_rcv, &m);
        so_readable(so);
    });
}

void fake_datagram(int fd, uint16_t port, const void *data, size_t len)
{
    struct mbuf *m = mbuf_from_bytes(fake.s->account, data, len);
    struct sockaddr_in from = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(0x0a000002)}};
    struct socket *so = fake_so(fd);

    AS_OWNER({
        assert_true(sockbuf_append_record(&so->so_rcv, fake.s->account, &from, sizeof from, &m));
        so_readable(so);
    });
}

void fake_fin(int fd)
{
    AS_OWNER(so_cantrcvmore(fake_so(fd)));
}

void fake_rst(int fd, int error)
{
    AS_OWNER({
        so_error_set(fake_so(fd), error);
        so_disconnected(fake_so(fd));
    });
}

void fake_acked(int fd, uint32_t n)
{
    AS_OWNER({
        sockbuf_drop(&fake_so(fd)->so_snd, n);
        so_writable(fake_so(fd));
    });
}

int fake_so_error(int fd)
{
    int e = -1;
    socklen_t len = sizeof e;

    assert_int_equal(weir_getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len), 0);
    assert_int_equal(len, sizeof e);
    return e;
}

short fake_poll(int fd)
{
    short all = POLLIN | POLLOUT | POLLPRI | POLLRDHUP;
    struct pollfd p = {fd, all, 0};

    weir_poll(&p, 1, 0);
    return p.revents;
}
