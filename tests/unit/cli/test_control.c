/* SPDX-License-Identifier: BSD-2-Clause
 * Goal: the control socket answers every request, good or malformed, and its commands do what they
 * say on live stacks. Bound: two stacks on a memory link, some connections. */
#include "unit.h"

#include "runtime/control.h"
#include "weir/socket.h"
#include "weir/stack.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char run_dir[] = "/tmp/weir-test-control-XXXXXX";
static struct weir_stack *a, *b;

static int setup(void **state)
{
    (void)state;
    const struct weir_config ca = {.name = "alpha"}, cb = {.name = "beta"};
    const char *why = NULL;
    if (mkdtemp(run_dir) == NULL || setenv("XDG_RUNTIME_DIR", run_dir, 1) != 0)
        return -1;
    a = weir_stack_create(&ca);
    b = weir_stack_create(&cb);
    return a != NULL && b != NULL ? weir_link_pair(a, b, "", &why) : -1;
}

static int teardown(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof(path), "%s", control_path());
    weir_stack_destroy(a);
    assert_int_equal(access(path, F_OK), 0); /* there is one stack left */
    weir_stack_destroy(b);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof(path), "%s/weir", run_dir);
    rmdir(path);
    return rmdir(run_dir);
}

static int dial(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof(sun.sun_path));
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
    return fd;
}

static json_t *answer(int fd)
{
    static char buf[1 << 20];
    size_t len = 0;
    do /* a line, and nothing of the next answer */
        assert_int_equal(recv(fd, buf + len, 1, 0), 1);
    while (buf[len++] != '\n');
    json_t *o = json_loadb(buf, len, 0, NULL);
    assert_non_null(o);
    return o;
}

static json_t *ask(int fd, const char *line)
{
    assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
    return answer(fd);
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static json_int_t status(const json_t *o)
{
    return json_integer_value(json_object_get(o, "status"));
}

/* One command on both stacks, without the socket; the output is checked to hold `expect`. */
static int run(const char *line, const char *expect)
{
    char copy[256], *save = NULL, *out, *err;
    const char *argv[16];
    struct weir_stack *stacks[] = {a, b};
    int argc = 0, code = -1;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    assert_int_equal(control_run(stacks, 2, argc, argv, &code, &out, &err), 0);
    if (expect != NULL && strstr(out, expect) == NULL && strstr(err, expect) == NULL)
        fail_msg("%s: no '%s' in:\n%s%s", line, expect, out, err);
    free(out);
    free(err);
    return code;
}

/* Tables are walked in slices, between which the stack is let go of: no row is lost or doubled. */
static void test_long_tables(void **state)
{
    (void)state;
    enum { MANY = 700 }; /* more than two slices of text */
    static int fd[MANY];
    struct weir_stack *stacks[] = {a};
    const char *argv[] = {"netstat", "-J", "-p", "udp"}, *metrics[] = {"metrics"};
    static bool seen[65536];
    char *out, *err;
    int code = -1;
    for (int i = 0; i < MANY; i++) {
        const struct sockaddr_in sin = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)(i + 1000))};
        fd[i] = weir_socket(a, AF_INET, SOCK_DGRAM, 0);
        assert_int_equal(weir_bind(fd[i], (const struct sockaddr *)&sin, sizeof(sin)), 0);
    }
    assert_int_equal(control_run(stacks, 1, 4, argv, &code, &out, &err), 0);
    assert_int_equal(code, 0);
    json_t *list = json_loads(out, 0, NULL);
    assert_int_equal(json_array_size(list), MANY);
    for (size_t i = 0; i < MANY; i++) {
        json_int_t port =
            json_integer_value(json_object_get(json_array_get(list, i), "local_port"));
        assert_false(seen[port & 0xffff]);
        seen[port & 0xffff] = true;
    }
    json_decref(list);
    free(out);
    free(err);
    assert_int_equal(control_run(stacks, 1, 1, metrics, &code, &out, &err), 0);
    assert_non_null(strstr(out, "\nweir_sockets{stack=\"alpha\"} 700\n"));
    free(out);
    free(err);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_close(fd[i]), 0);
}

static void test_socket_is_private(void **state)
{
    (void)state;
    struct stat st;
    char dir[128];
    assert_non_null(control_path());
    assert_int_equal(lstat(control_path(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(dir, sizeof(dir), "%s/weir", run_dir);
    assert_int_equal(lstat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void test_requests(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "x\n",
        "{}\n",
        "[]\n",
        "\n",
        "{\"argv\":[]}\n",
        "{\"argv\":\"sysctl\"}\n",
        "{\"argv\":[1]}\n",
        "{\"argv\":[\"nosuch\"]}\n",
        "{\"argv\":[\"sysctl\"]}\n",
        "{\"argv\":[\"netstat\",\"-z\"]}\n",
        "{\"argv\":[\"sysctl\\u0000\",\"-a\"]}\n",
        "{\"argv\":[\"tcpdrop\",\"10.0.0.1\"]}\n",
        "{\"argv\":[\"\xff\"]}\n",
    };
    int fd = dial(control_path());
    for (size_t i = 0; i < NELEM(bad); i++) {
        json_t *o = ask(fd, bad[i]);
        if (status(o) != 2)
            fail_msg("answered: %s", bad[i]);
        assert_true(strlen(text(o, "err")) > 0);
        json_decref(o);
    }
    json_t *o = ask(fd, "{\"argv\":[\"sysctl\",\"-n\",\"-S\",\"alpha\",\"net.inet.tcp.msl\"]}\n");
    assert_int_equal(status(o), 0);
    assert_string_equal(text(o, "out"), "30000\n");
    json_decref(o);
    /* Two in one piece, and one in two pieces. */
    o = ask(fd, "{\"argv\":[\"netstat\"]}\n{\"argv\":[\"netstat\",\"-m\"]}\n{\"argv\":[");
    assert_int_equal(status(o), 0);
    json_decref(o);
    o = answer(fd);
    assert_non_null(strstr(text(o, "out"), "mbufs"));
    json_decref(o);
    o = ask(fd, "\"netstat\"]}\n");
    assert_int_equal(status(o), 0);
    json_decref(o);
    close(fd);
}

static void test_flood_and_killed_clients(void **state)
{
    (void)state;
    static char big[CONTROL_MAX_REQUEST];
    int fd[CONTROL_MAX_CLIENTS + 4], one = dial(control_path());
    memset(big, 'x', sizeof(big));
    json_t *o = NULL;
    assert_int_equal(send(one, big, sizeof(big), MSG_NOSIGNAL), sizeof(big));
    o = answer(one);
    assert_int_equal(status(o), 2);
    json_decref(o);
    assert_int_equal(recv(one, big, 1, 0), 0); /* and is cut off */
    close(one);
    for (size_t i = 0; i < NELEM(fd); i++) {
        fd[i] = dial(control_path());
        (void)send(fd[i], "{\"argv\":[\"sysctl\",\"-a\"]}\n", 25,
                   MSG_NOSIGNAL); /* and nobody reads */
    }
    for (size_t i = 0; i < NELEM(fd); i++)
        close(fd[i]);
    one = dial(control_path());
    o = ask(one, "{\"argv\":[\"netstat\"]}\n");
    assert_int_equal(status(o), 0);
    json_decref(o);
    close(one);
}

/* Clients that neither ask nor read keep nobody out: the oldest of them makes way, and no other. */
static void test_idle_clients_make_way(void **state)
{
    (void)state;
    int fd[CONTROL_MAX_CLIENTS + 4];
    char byte;
    for (size_t i = 0; i < NELEM(fd); i++) {
        fd[i] = dial(control_path());
        if (i % 2)
            (void)send(fd[i], "{\"argv\":[\"sysctl\",", 18, MSG_NOSIGNAL);
    }
    int one = dial(control_path());
    json_t *o = ask(one, "{\"argv\":[\"netstat\"]}\n");
    assert_int_equal(status(o), 0);
    json_decref(o);
    size_t cut = 0;
    for (size_t i = 0; i < NELEM(fd); i++)
        cut += recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
    assert_int_equal(cut, NELEM(fd) + 1 - CONTROL_MAX_CLIENTS);
    for (size_t i = 0; i < NELEM(fd); i++)
        close(fd[i]);
    close(one);
}

static void test_sysctl(void **state)
{
    (void)state;
    char value[64];
    assert_int_equal(run("sysctl net.inet.tcp.msl", "stack beta:\nnet.inet.tcp.msl: 30000\n"), 0);
    assert_int_equal(
        run("sysctl -S beta -w net.inet.tcp.msl=25000", "net.inet.tcp.msl: 30000 -> 25000\n"), 0);
    assert_int_equal(weir_sysctl_get(b, "net.inet.tcp.msl", value, sizeof(value)), 0);
    assert_string_equal(value, "25000");
    assert_int_equal(weir_sysctl_get(a, "net.inet.tcp.msl", value, sizeof(value)), 0);
    assert_string_equal(value, "30000");
    assert_int_equal(run("sysctl -S beta net.inet.tcp.msl=30000", "25000 -> 30000"), 0);
    assert_int_equal(run("sysctl -S alpha -d net.inet.tcp.msl",
                         "net.inet.tcp.msl: maximum segment lifetime, ms"),
                     0);
    assert_int_equal(run("sysctl -S alpha net.inet.tcp.sack", "net.inet.tcp.sack.enable: 1\n"), 0);
    assert_int_equal(run("sysctl -S alpha -a", "kern.ipc.maxsockbuf: 2097152\n"), 0);
    assert_int_equal(run("sysctl net.inet.tcp.nosuch", "unknown oid 'net.inet.tcp.nosuch'"), 1);
    assert_int_equal(run("sysctl net.inet.tcp.nosuch=1", "unknown oid"), 1);
    assert_int_equal(run("sysctl -i net.inet.tcp.nosuch", NULL), 0);
    assert_int_equal(run("sysctl net.inet.tcp.msl=x", "invalid value"), 1);
    assert_int_equal(run("sysctl net.inet.tcp.msl=0", "out of range"), 1);
    assert_int_equal(run("sysctl -w net.inet.tcp.msl", "-w needs NAME=VALUE"), 2);
    assert_int_equal(run("sysctl -S nosuch -a", "no stack is named nosuch"), 1);
}

/* A connection from a to b; fds[0] listener, [1] client, [2] accepted. */
static void make_connection(int fds[3], uint16_t port)
{
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr("10.0.0.2")};
    fds[0] = weir_socket(b, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_bind(fds[0], (struct sockaddr *)&sin, sizeof(sin)), 0);
    assert_int_equal(weir_listen(fds[0], 5), 0);
    fds[1] = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(weir_connect(fds[1], (struct sockaddr *)&sin, sizeof(sin)), 0);
    fds[2] = weir_accept(fds[0], NULL, NULL);
    assert_true(fds[2] >= 0);
}

static void close_all(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        weir_close(fds[i]);
}

static void test_netstat(void **state)
{
    (void)state;
    int fds[3], u = weir_socket(b, AF_INET6, SOCK_DGRAM, 0);
    make_connection(fds, 8080);
    assert_int_equal(
        run("netstat -an",
            "Proto Recv-Q Send-Q Local Address          Foreign Address        (state)"),
        0);
    assert_int_equal(
        run("netstat -an -S beta",
            "tcp4       0      0 10.0.0.2.8080          *.*                    LISTEN      beta\n"),
        0);
    assert_int_equal(run("netstat -an", "ESTABLISHED alpha\n"), 0);
    assert_int_equal(run("netstat -S alpha", "10.0.0.2.8080          ESTABLISHED alpha\n"), 0);
    assert_int_equal(
        run("netstat -a -p udp",
            "udp46      0      0 *.*                    *.*                                beta\n"),
        0);
    assert_int_equal(run("netstat -s -p tcp -S alpha", "tcp:\n\t"), 0);
    assert_int_equal(run("netstat -s -J -S alpha", "\"tcp.connattempt\": "), 0);
    assert_int_equal(run("netstat -s -p nosuch", "unknown protocol"), 1);
    assert_int_equal(run("netstat -f inet5", "-f needs"), 2);
    weir_close(u);
    close_all(fds);
}

static void test_tcpdrop(void **state)
{
    (void)state;
    int fds[3];
    char line[128], buf[1];
    struct sockaddr_in sin;
    socklen_t len = sizeof(sin);
    make_connection(fds, 8081);
    assert_int_equal(weir_getsockname(fds[1], (struct sockaddr *)&sin, &len), 0);
    unsigned port = ntohs(sin.sin_port);
    snprintf(line, sizeof(line), "tcpdrop 10.0.0.1 %u 10.0.0.2 8082", port);
    assert_int_equal(run(line, "No such process"), 1);
    assert_int_equal(run("tcpdrop 10.0.0.1 x 10.0.0.2 8081", "not a port"), 2);
    snprintf(line, sizeof(line), "tcpdrop 10.0.0.1:%u 10.0.0.2:8081", port);
    assert_int_equal(run(line, "dropped"), 0);
    assert_int_equal(weir_recv(fds[1], buf, 1, 0), -1);
    assert_int_equal(errno, ECONNABORTED);
    assert_int_equal(weir_recv(fds[2], buf, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close_all(fds);
    make_connection(fds, 8083);
    assert_int_equal(run("tcpdrop -s NOSUCH", "unknown state"), 2);
    assert_int_equal(run("tcpdrop -s SYN_SENT", "no connection is in state SYN_SENT"), 1);
    assert_int_equal(run("tcpdrop -s LISTEN", "no connection is in state LISTEN"), 1);
    assert_int_equal(run("tcpdrop -s established", "dropped"), 0);
    assert_int_equal(weir_recv(fds[1], buf, 1, 0), -1);
    assert_int_equal(run("tcpdrop -a", NULL), 0);
    close_all(fds);
}

/* Nothing has a socket any more, and yet it is listed and can be dropped. */
static void test_timewait(void **state)
{
    (void)state;
    int fds[3], more[3];
    char line[128], buf[1];
    struct sockaddr_in sin;
    socklen_t len = sizeof(sin);
    for (int by_state = 0; by_state < 2; by_state++) {
        make_connection(fds, 8090);
        assert_int_equal(weir_getsockname(fds[1], (struct sockaddr *)&sin, &len), 0);
        unsigned port = ntohs(sin.sin_port);
        weir_close(fds[1]);
        assert_int_equal(weir_recv(fds[2], buf, 1, 0), 0);
        weir_close(fds[2]);
        make_connection(more, 8091); /* its SYN-ACK comes behind the FIN */
        snprintf(line, sizeof(line),
                 "tcp4       0      0 10.0.0.1.%-5u         10.0.0.2.8090          TIME_WAIT   "
                 "alpha\n",
                 port);
        assert_int_equal(run("netstat -an", line), 0);
        assert_int_equal(run("netstat -n -f inet -p tcp -S alpha", line), 0);
        assert_int_equal(run("sysctl -n -S alpha net.inet.tcp.pcbcount", "2\n"), 0);
        snprintf(line, sizeof(line), "tcpdrop 10.0.0.1:%u 10.0.0.2:8090", port);
        assert_int_equal(run(by_state ? "tcpdrop -s time_wait" : line, "dropped"), 0);
        assert_int_equal(run(line, "No such process"), 1);
        assert_int_equal(run("sysctl -n -S alpha net.inet.tcp.pcbcount", "1\n"), 0);
        weir_close(fds[0]);
        close_all(more);
        assert_int_equal(run("tcpdrop -a", NULL), 0);
    }
}

static void test_explicit_path(void **state)
{
    (void)state;
    char path[128], file[128];
    int error = 0;
    snprintf(path, sizeof(path), "%s/only.sock", run_dir);
    snprintf(file, sizeof(file), "%s/file", run_dir);
    struct control *c = control_open(path, b, &error);
    assert_non_null(c);
    assert_null(control_open(path, a, &error));
    assert_int_equal(error, -EADDRINUSE);
    int fd = dial(path);
    json_t *o = ask(fd, "{\"argv\":[\"sysctl\",\"net.inet.tcp.msl\"]}\n");
    assert_string_equal(text(o, "out"), "net.inet.tcp.msl: 30000\n"); /* one stack: no heading */
    json_decref(o);
    close(fd);
    control_close(c);
    assert_int_not_equal(access(path, F_OK), 0);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_null(control_open(file, a, &error)); /* somebody's file is not replaced */
    assert_int_equal(error, -EEXIST);
    assert_int_equal(unlink(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket_is_private),
        cmocka_unit_test(test_long_tables),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_flood_and_killed_clients),
        cmocka_unit_test(test_idle_clients_make_way),
        cmocka_unit_test(test_sysctl),
        cmocka_unit_test(test_netstat),
        cmocka_unit_test(test_tcpdrop),
        cmocka_unit_test(test_timewait),
        cmocka_unit_test(test_explicit_path),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
