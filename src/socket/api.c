/* SPDX-License-Identifier: BSD-2-Clause
 * The public calls on sockets, but for messages (api_msg.c) and sets (api_poll.c). Each finds the
 * descriptor's object, does its work through so_*, and turns a negative error into -1 and errno.
 *
 * connect, listen and shutdown follow the kernel's two-level state: so_conn is what the calls
 * decide by, so_state what the protocol reached (inet_stream_connect's rules, measured). */
#include "api.h"
#include "base/cputime.h"
#include "ip/ip.h"
#include "so_watch.h"
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

bool api_socket_of(int fd, struct desc_ref *r)
{
    if (!desc_get(fd, r)) {
        errno = EBADF;
        return false;
    }
    if (likely(r->kind == DESC_SOCKET))
        return true;
    errno = r->kind == DESC_FOREIGN ? EIO : ENOTSOCK;
    desc_put(r);
    return false;
}

bool api_socket(int fd, struct desc_ref *r)
{
    cputime_switch(CPU_CALL);
    if (api_socket_of(fd, r))
        return true;
    cputime_switch(CPU_APP);
    return false;
}

int api_result(struct desc_ref *r, int error)
{
    cputime_switch(CPU_APP); /* what is charged may go with the object */
    desc_put(r);
    if (error >= 0)
        return error;
    errno = -error;
    return -1;
}

static void set_flag(struct socket *so, uint32_t flag, bool on)
{
    so_state_change(so, on ? flag : 0, on ? 0 : flag);
}

static void set_type_flags(struct socket *so, int flags)
{
    uint32_t set = (flags & SOCK_NONBLOCK ? SS_NBIO : 0) | (flags & SOCK_CLOEXEC ? SS_CLOEXEC : 0);

    if (set)
        so_state_change(so, set, 0);
}

int weir_socket(struct weir_stack *s, int domain, int type, int protocol)
{
    int flags = type & ~0xf, index, error;

    if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
        errno = EINVAL;
        return -1;
    }
    watch_set_port(s->port);
    index = desc_reserve();
    if (index < 0) {
        errno = -index;
        return -1;
    }
    struct socket *so = NULL;
    error = so_enter(s);
    if (error == 0) {
        cputime_switch(CPU_CALL);
        so = so_create(s, domain, type & 0xf, protocol, &error);
        so_leave(s);
        cputime_switch(CPU_APP);
    }
    if (!so) {
        desc_cancel(index);
        errno = -error;
        return -1;
    }
    set_type_flags(so, flags);
    return desc_commit(index, DESC_SOCKET, so);
}

/* --- addresses --- */

/* The caller's address as one of the socket's family. for_bind: AF_UNSPEC may stand for INADDR_ANY.
 */
static int address_of(struct socket *so, const struct sockaddr *sa, socklen_t len, bool for_bind,
                      struct ipaddr *a, uint16_t *port)
{
    struct sockaddr_storage ss = {0};
    bool mapped = false;
    socklen_t need =
        so->so_domain == AF_INET ? sizeof(struct sockaddr_in) : 24; /* RFC 2133: no scope */

    if (len < need || len > sizeof ss)
        return -EINVAL;
    memcpy(&ss, sa, len);
    if (for_bind && so->so_domain == AF_INET && ss.ss_family == AF_UNSPEC &&
        ((struct sockaddr_in *)&ss)->sin_addr.s_addr == INADDR_ANY)
        ss.ss_family = AF_INET;
    if (ss.ss_family != so->so_domain)
        return -EAFNOSUPPORT;
    int error = sockaddr_to_ipaddr((struct sockaddr *)&ss, sizeof ss, a, port, &mapped);
    if (error == 0 && mapped && so->so_v6only)
        error = for_bind ? -EINVAL : -ENETUNREACH;
    return error;
}

/* The unspecified address as destination means this host. */
static void any_to_loopback(struct ipaddr *a)
{
    if (!ipaddr_is_any(a))
        return;
    if (a->family == AF_INET)
        *a = ipaddr_v4(INADDR_LOOPBACK);
    else
        a->b[15] = 1;
}

int api_destination(struct socket *so, const struct sockaddr *sa, socklen_t len, struct ipaddr *a,
                    uint16_t *port)
{
    struct sockaddr_in sin;
    int error;

    if (len < sizeof sa->sa_family)
        return -EINVAL;
    if (so->so_domain == AF_INET6 && sa->sa_family == AF_INET) {
        if (so->so_v6only)
            return -ENETUNREACH;
        error = sockaddr_to_ipaddr(sa, len, a, port, NULL);
    } else if (so->so_domain == AF_INET && sa->sa_family == AF_UNSPEC && len >= sizeof sin) {
        memcpy(&sin, sa, sizeof sin);
        sin.sin_family = AF_INET;
        error = sockaddr_to_ipaddr((struct sockaddr *)&sin, sizeof sin, a, port, NULL);
    } else {
        error = address_of(so, sa, len, false, a, port);
    }
    if (error == 0 && *port == 0)
        error = -EINVAL;
    if (error == 0)
        any_to_loopback(a);
    return error;
}

static int give_address(const struct ipaddr *a, uint16_t port, int domain, struct sockaddr *sa,
                        socklen_t *len)
{
    struct sockaddr_storage ss = {0};
    struct ipaddr any = {.family = (uint8_t)domain};

    socklen_t size = ipaddr_to_sockaddr(a->family ? a : &any, port, domain, &ss);
    if ((int)*len < 0)
        return -EINVAL;
    memcpy(sa, &ss, MIN(*len, size));
    *len = size;
    return 0;
}

static int bind_protocol(struct socket *so, const struct ipaddr *a, uint16_t port)
{
    bool v6only = so->so_v6only;

    /* As on Linux an IPv6 address of its own leaves no IPv4 to a socket. */
    if (a->family == AF_INET6 && !ipaddr_is_any(a))
        so->so_v6only = true;
    int error = so->so_proto->bind(so, a, port);
    if (error)
        so->so_v6only = v6only;
    return error;
}

void api_autobind(struct socket *so)
{
    if (so_reattach(so))
        return;
    so_note_sockname(so);
    if (so->so_lport == 0 && so->so_proto->bind(so, &so->so_laddr, 0) == 0)
        so_note_sockname(so);
}

static int do_bind(struct socket *so, const struct sockaddr *sa, socklen_t len)
{
    struct ipaddr a;
    uint16_t port;
    int error = address_of(so, sa, len, true, &a, &port);

    if (error)
        return error;
    if (so_has_port(so))
        return so->so_domain == AF_INET && !ipaddr_is_any(&a) && !ip_is_local(so->so_stack, &a)
                   ? -EADDRNOTAVAIL /* what Linux looks at first */
                   : -EINVAL;
    bool was_bound = so->so_bound;
    so->so_bound = false; /* nothing of a former connection's is bound again */
    error = so_reattach(so);
    if (error == 0)
        error = bind_protocol(so, &a, port);
    if (error) {
        so->so_bound = was_bound;
        return error;
    }
    so->so_bound_port = port != 0; /* one that the stack chose goes with the connection */
    so->so_bound_addr = !ipaddr_is_any(&a);
    so->so_bound = so->so_bound_port || so->so_bound_addr;
    so_state_change(so, SS_BOUND, SS_DISCONNECTED);
    so_note_sockname(so);
    return 0;
}

int weir_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = do_bind(r.so, addr, len);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

static int do_listen(struct socket *so, int backlog)
{
    int64_t max = KNOB(so->so_stack, kern_somaxconn);

    if (so->so_type != SOCK_STREAM)
        return -EOPNOTSUPP;
    if (so->so_conn != SO_UNCONNECTED || (so_state(so) & (SS_CONNECTING | SS_CONNECTED)))
        return -EINVAL;
    if (backlog < 0 || backlog > max)
        backlog = (int)max;
    int error = so_reattach(so);
    if (error == 0)
        error = so->so_proto->listen(so, backlog);
    if (error)
        return error;
    STORE_RELAXED(&so->so_qlimit, (uint32_t)backlog);
    so_state_change(so, SS_LISTENING | SS_BOUND,
                    SS_DISCONNECTED | SS_CANTRCVMORE | SS_CANTSENDMORE);
    so_note_sockname(so);
    so_wakeup(so);
    return 0;
}

int weir_listen(int fd, int backlog)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = do_listen(r.so, backlog);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

/* --- accept --- */

/* A child, or NULL with *error. */
static struct socket *accept_wait(struct socket *so, int *error)
{
    uint64_t deadline = 0;

    *error = so->so_type == SOCK_STREAM ? 0 : -EOPNOTSUPP;
    while (*error == 0) {
        uint32_t seq = so_event_seq(so);
        if (!(so_state(so) & SS_LISTENING)) {
            *error = -EINVAL;
            break;
        }
        struct socket *child = so_accept_take(so);
        if (child)
            return child;
        if (so_state(so) & SS_NBIO) {
            *error = -EAGAIN;
            break;
        }
        if (!deadline)
            deadline = so_deadline(so->so_stack, so->so_rcvtimeo_ns);
        *error = so_wait(so, seq, deadline);
    }
    return NULL;
}

int weir_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    struct desc_ref r;
    int error = 0;

    if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
        errno = EINVAL;
        return -1;
    }
    if (!api_socket(fd, &r))
        return -1;
    int index = desc_reserve();
    if (index < 0)
        return api_result(&r, index);
    struct socket *child = accept_wait(r.so, &error);
    if (!child) {
        desc_cancel(index);
        return api_result(&r, error);
    }
    set_type_flags(child, flags);
    WEIR_PROBE3(socket_accept, child->so_stack->name, (int)child->so_index, index);
    if (addr && len)
        give_address(&child->so_faddr, child->so_fport, child->so_domain, addr, len);
    return api_result(&r, desc_commit(index, DESC_SOCKET, child));
}

int weir_accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    return weir_accept4(fd, addr, len, 0);
}

/* --- connect --- */

/* The socket as if new, but for its options, the address that the application bound, and a port
 * that no connection took away yet. SS_DISCONNECTED stays: as on Linux getsockname goes on to tell
 * a port that the socket no longer has. Owner. */
static void make_fresh(struct socket *so)
{
    uint32_t was = SS_LISTENING | SS_CONNECTING | SS_CONNECTED | SS_DISCONNECTED;
    bool keeps_port = !(so_state(so) & was) && so->so_lport;

    /* Readers copy out of so_rcv under their serial lock, never waiting for the owner. */
    lock_acquire(&so->so_rcv_serial);
    sockbuf_flush(&so->so_rcv);
    so->so_rcv_taken = 0;
    lock_release(&so->so_rcv_serial);
    /* Senders look at the state under theirs, and append. */
    lock_acquire(&so->so_snd_serial);
    so_state_change(so, 0,
                    SS_LISTENING | SS_CONNECTING | SS_CONNECTED | SS_CANTRCVMORE | SS_CANTSENDMORE |
                        SS_SHUT_RD | SS_SHUT_WR | SS_OOB_HAVE | SS_PEERFIN | SS_URGENT |
                        SS_OOB_AWAITED | (so->so_bound ? 0 : SS_BOUND));
    sockbuf_flush(&so->so_snd);
    atomic_store_explicit(&so->so_sndflags, 0, memory_order_relaxed);
    lock_release(&so->so_snd_serial);
    so->so_conn = SO_UNCONNECTED;
    so->so_conn_waiters = 0;
    so->so_fport = 0;
    if (keeps_port) {
        so_wakeup(so);
        return;
    }
    so_state_change(so, SS_DISCONNECTED, 0);
    so->so_oldport = so->so_lport ? so->so_lport : so->so_oldport;
    if (!so->so_bound_port)
        so->so_lport = 0;
    if (!so->so_bound_addr)
        so->so_laddr = (struct ipaddr){.family = (uint8_t)so->so_domain};
    so_wakeup(so);
}

/* connect(AF_UNSPEC), shutdown of a listener or of a connection in the making, a connect that
 * failed. Owner. */
static int disconnect(struct socket *so)
{
    uint32_t st = so_state(so);
    int error = 0;

    so_accept_flush(so);
    if (so->so_pcb && so->so_proto->disconnect)
        error = so->so_proto->disconnect(so);
    if (error)
        return error;
    if (so->so_type != SOCK_STREAM) {
        so_state_change(so, 0, SS_CONNECTED);
        so->so_fport = 0;
        so_note_sockname(so);
        return 0;
    }
    make_fresh(so);
    if (st & (SS_CONNECTING | SS_CONNECTED))
        so_error_set(so, ECONNRESET);
    return 0;
}

static int connect_datagram(struct socket *so, const struct sockaddr *sa, socklen_t len)
{
    struct ipaddr a;
    uint16_t port;
    int error;

    if (so->so_domain == AF_INET6 && sa->sa_family == AF_INET)
        error = so->so_v6only ? -EAFNOSUPPORT : sockaddr_to_ipaddr(sa, len, &a, &port, NULL);
    else
        error = address_of(so, sa, len, false, &a, &port);
    if (error == 0)
        error = so_reattach(so);
    if (error == 0) {
        any_to_loopback(&a);
        error = so->so_proto->connect(so, &a, port);
    }
    if (error) {
        api_autobind(so);
        return error;
    }
    so_state_change(so, SS_CONNECTED, 0);
    so_note_sockname(so);
    return 0;
}

/* Owner. 0: the outcome is known; -EINPROGRESS, -EALREADY: it is not yet; other errors: refused. */
static int connect_begin(struct socket *so, const struct sockaddr *sa, socklen_t len)
{
    struct ipaddr a;
    uint16_t port;

    switch (so->so_conn) {
    case SO_UNCONNECTED:
        break;
    case SO_CONNECTING:
        return (so_state(so) & (SS_CONNECTING | SS_CONNECTED)) == SS_CONNECTING ? -EALREADY : 0;
    case SO_CONNECTED:
        return -EISCONN;
    default:
        return -EINVAL;
    }
    if (so_state(so) & (SS_LISTENING | SS_CONNECTING | SS_CONNECTED))
        return -EISCONN;
    int error = address_of(so, sa, len, false, &a, &port);
    if (error == 0)
        error = so_reattach(so);
    if (error)
        return error;
    any_to_loopback(&a);
    atomic_store_explicit(&so->so_error, 0, memory_order_relaxed);
    so_connecting(so);
    error = so->so_proto->connect(so, &a, port);
    if (error && error != -EINPROGRESS) {
        so->so_conn = SO_UNCONNECTED;
        so_state_change(so, 0, SS_CONNECTING);
        return error;
    }
    if (error == 0)
        so_connected(so);
    so_note_sockname(so);
    return -EINPROGRESS;
}

/* The protocol has decided. Owner. */
static int connect_end(struct socket *so)
{
    if (so_state(so) & SS_CONNECTED) {
        so->so_conn = SO_CONNECTED;
        return 0;
    }
    int error = so_take_error(so);
    int failed = disconnect(so);
    if (failed)
        so->so_conn = SO_DISCONNECTING;
    return error ? -error : -ECONNABORTED;
}

static int connect_wait(struct socket *so, int verdict)
{
    uint64_t deadline = so_deadline(so->so_stack, so->so_sndtimeo_ns);

    for (;;) {
        uint32_t seq = so_event_seq(so);
        if ((so_state(so) & (SS_CONNECTING | SS_CONNECTED)) != SS_CONNECTING)
            return 0;
        int error = so_wait(so, seq, deadline);
        if (error)
            return error == -EAGAIN ? verdict : error;
    }
}

static int connect_stream(struct socket *so, const struct sockaddr *sa, socklen_t len)
{
    struct weir_stack *s = so->so_stack;
    int error = so_enter(s), verdict;

    if (error)
        return error;
    verdict = connect_begin(so, sa, len);
    if (verdict == 0)
        verdict = connect_end(so);
    bool waits = (verdict == -EINPROGRESS || verdict == -EALREADY) && !(so_state(so) & SS_NBIO);
    if (waits)
        so->so_conn_waiters++;
    so_leave(s);
    if (!waits)
        return verdict;
    error = connect_wait(so, verdict);
    /* Who made it connected knew of us. */
    if (likely(error == 0 && (so_state(so) & SS_CONNECTED)))
        return 0;
    int foreign = so_enter(s);
    if (foreign)
        return foreign;
    so->so_conn_waiters -= so->so_conn_waiters > 0;
    if (error == 0)
        error = connect_end(so);
    so_leave(s);
    return error;
}

int weir_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct desc_ref r;
    int error = 0;

    if (!api_socket(fd, &r))
        return -1;
    struct socket *so = r.so;
    if (len < sizeof addr->sa_family)
        return api_result(&r, -EINVAL);
    WEIR_PROBE3(socket_connect, so->so_stack->name, (int)so->so_index, fd);
    if (addr->sa_family != AF_UNSPEC && so->so_type == SOCK_STREAM)
        return api_result(&r, connect_stream(so, addr, len));
    error = so_enter(so->so_stack);
    if (error)
        return api_result(&r, error);
    error = addr->sa_family == AF_UNSPEC ? disconnect(so) : connect_datagram(so, addr, len);
    so_leave(so->so_stack);
    return api_result(&r, error);
}

/* --- shutdown, close --- */

static int do_shutdown(struct socket *so, int how)
{
    uint32_t st = so_state(so);
    uint32_t bits = (how != SHUT_WR ? SS_SHUT_RD : 0) | (how != SHUT_RD ? SS_SHUT_WR : 0);
    bool connecting = (st & (SS_CONNECTING | SS_CONNECTED)) == SS_CONNECTING;
    /* On FreeBSD it shuts half of what is in the making. */
    bool lasts = connecting && KNOB(so->so_stack, tcp_freebsd_wire);
    int error = 0;

    if (so->so_conn == SO_CONNECTING && !lasts)
        so->so_conn = (st & SS_CONNECTED) ? SO_CONNECTED : SO_DISCONNECTING;
    if (st & SS_LISTENING) {
        error = bits & SS_SHUT_RD ? disconnect(so) : 0;
        so_wakeup(so); /* whatever it did, as on Linux */
        return error;
    }
    if (connecting && !lasts)
        return disconnect(so);
    if (!(st & SS_CONNECTED) && !lasts)
        error = -ENOTCONN; /* but it counts: those who wait are woken */
    so_state_change(so, bits, 0);
    if (error == 0 && so->so_pcb && so->so_proto->shutdown)
        error = so->so_proto->shutdown(so, how);
    so_wakeup(so);
    return error;
}

int weir_shutdown(int fd, int how)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    if (how < SHUT_RD || how > SHUT_RDWR)
        return api_result(&r, -EINVAL);
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = do_shutdown(r.so, how);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

/* SO_LINGER: data and FIN are given time to be acknowledged, as on Linux. */
static void linger(struct socket *so, int32_t seconds)
{
    uint64_t deadline = so_deadline(so->so_stack, (uint64_t)seconds * NS_PER_S);

    if (so_enter(so->so_stack))
        return;
    int error = do_shutdown(so, SHUT_WR);
    so_leave(so->so_stack);
    while (error == 0) {
        uint32_t seq = so_event_seq(so);
        if ((so_state(so) & (SS_CONNECTED | SS_FINACKED)) != SS_CONNECTED)
            break;
        error = so_wait(so, seq, deadline);
    }
}

int weir_close(int fd)
{
    struct desc_ref r;

    if (!desc_get(fd, &r)) {
        errno = EBADF;
        return -1;
    }
    if (!desc_close(&r))
        return api_result(&r, -EBADF); /* another thread was faster */
    WEIR_PROBE1(socket_close, fd);
    cputime_switch(CPU_CALL);
    struct socket *so = r.kind == DESC_SOCKET ? r.so : NULL;
    int32_t seconds = so ? LOAD_RELAXED(&so->so_linger_s) : -1;
    bool lingers = seconds > 0 && (so_state(so) & SS_CONNECTED) && so->so_type == SOCK_STREAM &&
                   sockbuf_used(&so->so_rcv) == 0; /* unread data mean a reset */
    if (lingers)
        so_hold(so);
    bool last = desc_put(&r);
    if (lingers) {
        if (last)
            linger(so, seconds);
        so_drop(so);
    }
    cputime_switch(CPU_APP);
    return 0;
}

/* --- names and options --- */

static int do_name(struct socket *so, bool peer, struct sockaddr *sa, socklen_t *len)
{
    uint16_t port;

    if (peer && !(so_state(so) & SS_CONNECTED))
        return -ENOTCONN;
    if (!(so_state(so) & SS_DISCONNECTED))
        so_note_sockname(so);
    if (peer)
        return give_address(&so->so_faddr, so->so_fport, so->so_domain, sa, len);
    port = so->so_lport || !(so_state(so) & SS_DISCONNECTED) ? so->so_lport : so->so_oldport;
    return give_address(&so->so_laddr, port, so->so_domain, sa, len);
}

static int get_name(int fd, bool peer, struct sockaddr *addr, socklen_t *len)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = do_name(r.so, peer, addr, len);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

int weir_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    return get_name(fd, false, addr, len);
}

int weir_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    return get_name(fd, true, addr, len);
}

int weir_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = so_getopt(r.so, level, name, value, len);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

int weir_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    struct desc_ref r;

    if (!api_socket(fd, &r))
        return -1;
    int error = so_enter(r.so->so_stack);
    if (error == 0) {
        error = so_setopt(r.so, level, name, value, len);
        so_leave(r.so->so_stack);
    }
    return api_result(&r, error);
}

/* --- fcntl, ioctl --- */

static int socket_fcntl(struct socket *so, int cmd, int arg)
{
    switch (cmd) {
    case F_GETFL:
        return O_RDWR | (so_state(so) & SS_NBIO ? O_NONBLOCK : 0);
    case F_SETFL:
        set_flag(so, SS_NBIO, arg & O_NONBLOCK);
        return 0;
    case F_GETFD:
        return so_state(so) & SS_CLOEXEC ? FD_CLOEXEC : 0;
    case F_SETFD:
        set_flag(so, SS_CLOEXEC, arg & FD_CLOEXEC);
        return 0;
    default:
        return -EINVAL;
    }
}

int weir_fcntl(int fd, int cmd, int arg)
{
    struct desc_ref r;

    if (!desc_get(fd, &r)) {
        errno = EBADF;
        return -1;
    }
    int result = -EINVAL;
    if (r.kind == DESC_SOCKET)
        result = socket_fcntl(r.so, cmd, arg);
    else if (r.kind == DESC_FOREIGN)
        result = -EIO;
    else if (cmd == F_GETFL)
        result = O_RDWR;
    else if (cmd == F_GETFD)
        result = FD_CLOEXEC;
    else if (cmd == F_SETFL || cmd == F_SETFD)
        result = 0;
    return api_result(&r, result);
}

static int socket_ioctl(struct socket *so, unsigned long request, int *arg)
{
    bool stream = so->so_type == SOCK_STREAM;

    switch (request) {
    case FIONBIO:
        set_flag(so, SS_NBIO, *arg != 0);
        return 0;
    case FIONREAD: /* SIOCINQ */
        if (so_state(so) & SS_LISTENING)
            return -EINVAL;
        *arg = (int)so_inq(so);
        return 0;
    case SIOCOUTQ:
        if (so_state(so) & SS_LISTENING)
            return -EINVAL;
        *arg = stream ? (int)sockbuf_used(&so->so_snd) : 0;
        return 0;
    case SIOCATMARK:
        if (!stream)
            return -ENOTTY;
        *arg = so_is_at_mark(so);
        return 0;
    default:
        return -ENOTTY;
    }
}

int weir_ioctl(int fd, unsigned long request, int *arg)
{
    struct desc_ref r;

    if (!desc_get(fd, &r)) {
        errno = EBADF;
        return -1;
    }
    if (r.kind != DESC_SOCKET)
        return api_result(&r, r.kind == DESC_FOREIGN ? -EIO : -ENOTTY);
    return api_result(&r, socket_ioctl(r.so, request, arg));
}
