/* SPDX-License-Identifier: BSD-2-Clause
 * `weir copy`: a file through two Weir stacks in this process, over a memory link that may lose,
 * delay and reorder: shows in one command that what goes in comes out. */
#include "net/net.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <inttypes.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (256 * 1024)
#define COPY_PORT 7

static const char help[] =
    "usage: weir copy [OPTION]... SOURCE DESTINATION\n\n"
    "Copy a file through two Weir stacks in this process, joined by a memory link, and compare "
    "the\n"
    "SHA-256 of both. Exit status 1 when they differ.\n\n"
    "      --link SPEC   the link (mem), e.g. mem,delay=10ms,loss=1%,rate=100Mbit,seed=7\n"
    "  -6                over IPv6\n"
    "      --cc NAME     congestion control\n"
    "      --set NAME=VALUE, --set-remote NAME=VALUE   knobs of the sending and the receiving "
    "stack\n"
    "  -J, --json        the result as JSON\n";

struct copy {
    const char *source, *destination, *link, *cc;
    struct settings sets, remote_sets;
    int family;
    bool json;
    struct net_setup setup[2];
    struct net net[2];
    int in_fd, out_fd, listen_fd, fd[2];
    struct sockaddr_storage peer;
    pthread_mutex_t mutex;
    char error[256]; /* the first; under mutex */
    uint64_t sent, received;
    bool hash_stream; /* the destination cannot be read again: hash what passes */
    uint8_t hash[2][crypto_hash_sha256_BYTES];
    uint64_t retransmits;
};

static void fail(struct copy *c, const char *what, int error)
{
    pthread_mutex_lock(&c->mutex);
    if (c->error[0] == '\0')
        snprintf(c->error, sizeof(c->error), "%s: %s", what, strerror(error));
    pthread_mutex_unlock(&c->mutex);
}

static bool connect_out(struct copy *c)
{
    const struct net *n = &c->net[0];
    c->fd[0] = n->ops->socket(n->stack, c->peer.ss_family, SOCK_STREAM);
    if (c->fd[0] < 0 || (c->cc != NULL && net_set_cc(n, c->fd[0], c->cc) != 0) ||
        n->ops->connect(c->fd[0], (struct sockaddr *)&c->peer, net_sockaddr_len(&c->peer)) != 0) {
        fail(c, "connect", errno);
        return false;
    }
    return true;
}

static bool send_file(struct copy *c, char *buf)
{
    const struct net *n = &c->net[0];
    crypto_hash_sha256_state sha;
    crypto_hash_sha256_init(&sha);
    while (true) {
        ssize_t r = read(c->in_fd, buf, CHUNK);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            fail(c, c->source, errno);
            return false;
        }
        if (r == 0)
            break;
        if (c->hash_stream)
            crypto_hash_sha256_update(&sha, (const uint8_t *)buf, (size_t)r);
        if (net_send_all(n, c->fd[0], buf, (size_t)r) != 0) {
            fail(c, "send", errno);
            return false;
        }
        c->sent += (uint64_t)r;
    }
    if (c->hash_stream)
        crypto_hash_sha256_final(&sha, c->hash[0]);
    if (n->ops->shutdown(c->fd[0], SHUT_WR) != 0) {
        fail(c, "shutdown", errno);
        return false;
    }
    ssize_t r = n->ops->recv(c->fd[0], buf, 1, 0); /* the receiver closes when it has all */
    if (r != 0)
        fail(c, "the receiver's end", r < 0 ? errno : EPROTO);
    return r == 0;
}

static void *sender_main(void *arg)
{
    struct copy *c = arg;
    struct net_tcp_info ti;
    char *buf = aligned_alloc(4096, CHUNK);
    bool good = buf != NULL && connect_out(c) && send_file(c, buf);
    if (good && net_tcp_info(&c->net[0], c->fd[0], &ti))
        c->retransmits = ti.retransmits;
    if (!good) { /* or the other thread would wait for ever */
        if (c->fd[0] >= 0)
            (void)c->net[0].ops->shutdown(c->fd[0], SHUT_RDWR);
        (void)c->net[1].ops->shutdown(c->listen_fd, SHUT_RDWR);
    }
    free(buf);
    return NULL;
}

static bool write_out(struct copy *c, const char *buf, size_t len)
{
    while (len > 0) {
        ssize_t w = write(c->out_fd, buf, len);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0) {
            fail(c, c->destination, errno);
            return false;
        }
        buf += w;
        len -= (size_t)w;
    }
    return true;
}

static bool receive_file(struct copy *c)
{
    const struct net *n = &c->net[1];
    crypto_hash_sha256_state sha;
    char *buf = aligned_alloc(4096, CHUNK);
    bool good = buf != NULL;
    crypto_hash_sha256_init(&sha);
    c->fd[1] = n->ops->accept(c->listen_fd, NULL, NULL, 0);
    if (c->fd[1] < 0) {
        fail(c, "accept", errno);
        good = false;
    }
    while (good) {
        ssize_t r = n->ops->recv(c->fd[1], buf, CHUNK, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            break;
        if (r < 0)
            fail(c, "receive", errno);
        good = r > 0 && write_out(c, buf, (size_t)r);
        if (good) {
            c->received += (uint64_t)r;
            if (c->hash_stream)
                crypto_hash_sha256_update(&sha, (const uint8_t *)buf, (size_t)r);
        }
    }
    if (c->hash_stream)
        crypto_hash_sha256_final(&sha, c->hash[1]);
    if (c->fd[1] >= 0) {
        if (!good)
            (void)n->ops->shutdown(c->fd[1], SHUT_RDWR);
        n->ops->close(c->fd[1]);
    }
    free(buf);
    return good;
}

static bool transfer(struct copy *c, char *err, size_t size)
{
    pthread_t sender;
    if (net_open_pair(c->net, c->setup, err, size) != 0 ||
        net_pair_address(false, c->link, c->family, &c->peer, err, size) != 0)
        return false;
    net_sockaddr_set_port(&c->peer, COPY_PORT);
    c->listen_fd = net_listener(&c->net[1], &c->peer, 1, 0);
    if (c->listen_fd < 0) {
        snprintf(err, size, "listen: %s", strerror(errno));
        return false;
    }
    int error = pthread_create(&sender, NULL, sender_main, c);
    if (error != 0) {
        snprintf(err, size, "cannot create a thread: %s", strerror(error));
        return false;
    }
    bool good = receive_file(c);
    pthread_join(sender, NULL);
    if (c->fd[0] >= 0)
        c->net[0].ops->close(c->fd[0]);
    c->net[1].ops->close(c->listen_fd);
    if (c->error[0] != '\0')
        snprintf(err, size, "%s", c->error);
    return good && c->error[0] == '\0';
}

static bool hash_file(const char *path, uint8_t *out, char *err, size_t size)
{
    crypto_hash_sha256_state sha;
    char *buf = malloc(CHUNK);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t r = -1;
    crypto_hash_sha256_init(&sha);
    while (fd >= 0 && buf != NULL && ((r = read(fd, buf, CHUNK)) > 0 || (r < 0 && errno == EINTR)))
        if (r > 0)
            crypto_hash_sha256_update(&sha, (const uint8_t *)buf, (size_t)r);
    if (r != 0)
        snprintf(err, size, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(buf);
    crypto_hash_sha256_final(&sha, out);
    return r == 0;
}

static bool open_files(struct copy *c, char *err, size_t size)
{
    struct stat in, out;
    c->in_fd = open(c->source, O_RDONLY | O_CLOEXEC);
    if (c->in_fd < 0 || fstat(c->in_fd, &in) != 0) {
        snprintf(err, size, "%s: %s", c->source, strerror(errno));
        return false;
    }
    if (stat(c->destination, &out) == 0 && out.st_dev == in.st_dev && out.st_ino == in.st_ino) {
        snprintf(err, size, "%s and %s are the same file", c->source, c->destination);
        return false;
    }
    c->out_fd = open(c->destination, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (c->out_fd < 0 || fstat(c->out_fd, &out) != 0) {
        snprintf(err, size, "%s: %s", c->destination, strerror(errno));
        return false;
    }
    c->hash_stream = !S_ISREG(in.st_mode) || !S_ISREG(out.st_mode);
    return true;
}

static int report(const struct copy *c, double seconds)
{
    char hex[2][2 * crypto_hash_sha256_BYTES + 1];
    bool same = memcmp(c->hash[0], c->hash[1], sizeof(c->hash[0])) == 0 && c->sent == c->received;
    double mbps = seconds > 0 ? (double)c->received * 8e-6 / seconds : NAN;
    for (unsigned i = 0; i < 2; i++)
        sodium_bin2hex(hex[i], sizeof(hex[i]), c->hash[i], sizeof(c->hash[i]));
    if (c->json) {
        json_t *o = json_pack("{s:I, s:f, s:o, s:I, s:s, s:s, s:b}", "bytes",
                              (json_int_t)c->received, "seconds", seconds, "throughput_mbps",
                              isfinite(mbps) ? json_real(mbps) : json_null(), "retransmits",
                              (json_int_t)c->retransmits, "sha256_source", hex[0],
                              "sha256_destination", hex[1], "same", (int)same);
        json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
        fputc('\n', stdout);
        json_decref(o);
    } else {
        printf("bytes        %" PRIu64
               "\nseconds      %.6f\nMbit/s       %.2f\nretransmits  %" PRIu64 "\n",
               c->received, seconds, isfinite(mbps) ? mbps : 0, c->retransmits);
        printf("sha256       %s  %s\nsha256       %s  %s\n", hex[0], c->source, hex[1],
               c->destination);
    }
    int status = cli_flush("copy");
    return same ? status : cli_fail("copy", "the two differ");
}

static int run(struct copy *c)
{
    char err[256] = "";
    bool good = open_files(c, err, sizeof(err));
    uint64_t before = clock_now_ns();
    good = good && transfer(c, err, sizeof(err));
    double seconds = (double)(clock_now_ns() - before) / 1e9;
    net_close(&c->net[0]);
    net_close(&c->net[1]);
    if (c->out_fd >= 0 && close(c->out_fd) != 0 && good) {
        snprintf(err, sizeof(err), "%s: %s", c->destination, strerror(errno));
        good = false;
    }
    if (good && !c->hash_stream)
        good = hash_file(c->source, c->hash[0], err, sizeof(err)) &&
               hash_file(c->destination, c->hash[1], err, sizeof(err));
    if (good)
        return report(c, seconds);
    if (c->json) {
        json_t *o = json_pack("{s:s}", "error", err);
        json_dumpf(o, stdout, JSON_INDENT(1));
        fputc('\n', stdout);
        json_decref(o);
        fflush(stdout);
    }
    return cli_fail("copy", "%s", err);
}

static const struct option long_options[] = {
    {"help", no_argument, NULL, 'h'},
    {"json", no_argument, NULL, 'J'},
    {"cc", required_argument, NULL, 1000},
    {"link", required_argument, NULL, 1002},
    {"set", required_argument, NULL, 1003},
    {"set-remote", required_argument, NULL, 1004},
    {NULL, 0, NULL, 0},
};

int cmd_copy(int argc, char **argv)
{
    static struct copy c = {.in_fd = -1,
                            .out_fd = -1,
                            .listen_fd = -1,
                            .fd = {-1, -1},
                            .family = AF_INET,
                            .mutex = PTHREAD_MUTEX_INITIALIZER};
    char err[256];
    int o;
    opterr = 0;
    optind = 0;
    while ((o = getopt_long(argc, argv, ":46Jh", long_options, NULL)) != -1) {
        switch (o) {
        case '4':
            c.family = AF_INET;
            break;
        case '6':
            c.family = AF_INET6;
            break;
        case 'J':
            c.json = true;
            break;
        case 1000:
            c.cc = optarg;
            break;
        case 1002:
            if (!net_link_is_mem(optarg))
                return cli_usage("copy", "--link: '%s' is not a mem link of this process", optarg);
            c.link = optarg;
            break;
        case 1003:
        case 1004:
            if (!settings_add(o == 1003 ? &c.sets : &c.remote_sets, optarg))
                return cli_usage("copy", "'%s' is not NAME=VALUE", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("copy");
        default:
            return cli_bad_option("copy", o, argv);
        }
    }
    if (argc - optind != 2)
        return cli_usage("copy", "give SOURCE and DESTINATION");
    c.source = argv[optind];
    c.destination = argv[optind + 1];
    c.setup[0] =
        (struct net_setup){.name = "copy-sender", .link = c.link, .sets = &c.sets, .cc = c.cc};
    c.setup[1] =
        (struct net_setup){.name = "copy-receiver", .link = c.link, .sets = &c.remote_sets};
    if (!net_check(&c.setup[0], err, sizeof(err)) || !net_check(&c.setup[1], err, sizeof(err)))
        return cli_usage("copy", "%s", err);
    if (sodium_init() < 0)
        return cli_fail("copy", "libsodium does not start");
    return run(&c);
}
