/* SPDX-License-Identifier: BSD-2-Clause
 * `weir sysctl`, `netstat`, `tcpdrop`: the command line goes to a running instance, its answer
 * comes out here. */
#include "control_client.h"

#include "cli.h"

#include "runtime/control.h"
#include "runtime/inspect.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (UINT64_C(128) << 20)
#define ANSWER_PATIENCE_S 60

static const char sysctl_help[] =
    "usage: weir sysctl [OPTION]... NAME[=VALUE]...\n"
    "       weir sysctl [OPTION]... -a\n\n"
    "Read and set the knobs of a running Weir instance. A NAME may be the root of a subtree.\n\n"
    "  -a                all knobs\n"
    "  -d                what each is for, instead of its value\n"
    "  -i                pass over unknown names\n"
    "  -n                values only;  -N  names only\n"
    "  -w                write (not needed: NAME=VALUE writes)\n";
static const char netstat_help[] =
    "usage: weir netstat [-aenJ] [-f inet|inet6] [-p tcp|udp] [-P PORT] [-t STATE]\n"
    "       weir netstat -s [-p GROUP] [-J]\n"
    "       weir netstat -m\n\n"
    "Sockets or counters of a running Weir instance. Addresses are always numeric.\n\n"
    "  -a                listening sockets too\n"
    "  -e, --detail      windows, times, losses and queues of each connection\n"
    "  -P, --port PORT   only those with this port at either end\n"
    "  -t, --state STATE  only those in this state\n"
    "  -f FAMILY         inet or inet6 only\n"
    "  -m                packet memory\n"
    "  -p PROTOCOL       only this protocol (with -s: this group of counters)\n"
    "  -s                counters with their meanings\n"
    "  -J, --json        as JSON\n";
static const char tcpdrop_help[] =
    "usage: weir tcpdrop LADDR LPORT FADDR FPORT\n"
    "       weir tcpdrop LADDR:LPORT FADDR:FPORT\n"
    "       weir tcpdrop -s STATE\n"
    "       weir tcpdrop -a\n\n"
    "Drop TCP connections of a running Weir instance: one, all in a state, or all.\n\n";
static const char cputime_help[] =
    "usage: weir cputime [-J]\n\n"
    "CPU time of a running Weir instance by thread and activity, and what each of its connections\n"
    "cost, since kern.cputime was set.\n\n"
    "  -J, --json        as one JSON document\n";
static const char common_help[] =
    "  -S NAME           only the stacks of this name, where the instance has several\n"
    "      --control PATH  the instance whose control socket this is (else the only one that "
    "runs)\n";

static int connect_to(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    struct timeval tv = {.tv_sec = ANSWER_PATIENCE_S};
    if (strlen(path) >= sizeof(sun.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0)
        return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* Append an instance to a list: its process, if that can be told from here, and its socket. */
static void list_instance(char *list, size_t size, const char *path, const char *file)
{
    char comm[64] = "", name[300];
    size_t at = strlen(list);
    snprintf(name, sizeof(name), "/proc/%ld/comm", strtol(file, NULL, 10));
    FILE *f = fopen(name, "re");
    if (f != NULL && fgets(comm, sizeof(comm), f) == NULL)
        comm[0] = '\0';
    if (f != NULL)
        fclose(f);
    comm[strcspn(comm, "\n")] = '\0';
    snprintf(list + at, size - at, "\n  %-16s %s", comm, path);
}

/* The one instance that answers in the user's directory; its path. */
static int connect_to_only(const char *command, char *where, size_t size)
{
    char dir[128], path[512], list[900] = "";
    struct dirent *entry;
    int found = -1, live = 0;
    DIR *d = control_directory(dir, sizeof(dir), false) == 0 ? opendir(dir) : NULL;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        size_t len = strlen(entry->d_name);
        if (len <= 5 || strcmp(entry->d_name + len - 5, ".sock") != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        int fd = connect_to(path);
        if (fd < 0)
            continue;
        live++;
        list_instance(list, sizeof(list), path, entry->d_name);
        if (found >= 0)
            close(found);
        found = fd;
        snprintf(where, size, "%s", path);
    }
    if (d != NULL)
        closedir(d);
    if (live == 1)
        return found;
    if (found >= 0)
        close(found);
    if (live == 0)
        cli_fail(command, "no Weir instance is running");
    else
        cli_fail(command, "%d Weir instances are running: choose one by --control PATH%s", live,
                 list);
    return -1;
}

static int send_request(int fd, int argc, const char *const *argv)
{
    json_t *list = json_array(), *o = json_object();
    for (int i = 0; i < argc; i++) {
        if (json_array_append_new(list, json_string(argv[i])) != 0) {
            json_decref(list);
            json_decref(o);
            errno = EILSEQ;
            return -1;
        }
    }
    json_object_set_new(o, "argv", list);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (text == NULL)
        return -1;
    size_t len = strlen(text), at = 0;
    text[len++] = '\n';
    while (at < len) {
        ssize_t n = send(fd, text + at, len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    free(text);
    return at == len ? 0 : -1;
}

/* One line, malloc'ed; NULL with errno. */
static char *read_line(int fd, size_t *len_out)
{
    size_t len = 0, room = 65536;
    char *buf = malloc(room);
    while (buf != NULL) {
        ssize_t n = recv(fd, buf + len, room - len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ECONNRESET : errno;
            break;
        }
        len += (size_t)n;
        if (buf[len - 1] == '\n') {
            *len_out = len - 1;
            return buf;
        }
        if (len < room)
            continue;
        char *bigger = room < ANSWER_MAX ? realloc(buf, 2 * room) : NULL;
        if (bigger == NULL) {
            errno = EMSGSIZE;
            break;
        }
        buf = bigger;
        room *= 2;
    }
    free(buf);
    return NULL;
}

static int print_answer(const char *command, const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, 0, NULL);
    const char *out = json_string_value(json_object_get(o, "out"));
    const char *err = json_string_value(json_object_get(o, "err"));
    const json_t *status = json_object_get(o, "status");
    int code = CLI_FAILED;
    if (out != NULL && err != NULL && json_is_integer(status)) {
        code = (int)json_integer_value(status) & 0xff;
        fputs(out, stdout);
        fputs(err, stderr);
    } else {
        cli_fail(command, "the instance did not answer in its protocol");
    }
    json_decref(o);
    int flushed = cli_flush(command);
    return code != CLI_OK ? code : flushed;
}

bool control_find_only(const char *command, char *path, size_t size)
{
    int fd = connect_to_only(command, path, size);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

bool control_find_pid(pid_t pid, char *path, size_t size)
{
    char dir[128];
    int e = control_directory(dir, sizeof(dir), false);
    if (e != 0) {
        errno = -e;
        return false;
    }
    snprintf(path, size, "%s/%d.sock", dir, (int)pid);
    int fd = connect_to(path);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int control_ask(const char *path, const char *const *argv, char **out, char **err)
{
    size_t len = 0;
    int argc = 0, status = -EPROTO;
    *out = *err = NULL;
    while (argv[argc] != NULL)
        argc++;
    int fd = connect_to(path);
    if (fd < 0)
        return -errno;
    char *line = send_request(fd, argc, argv) == 0 ? read_line(fd, &len) : NULL;
    int e = errno;
    close(fd);
    if (line == NULL)
        return -e;
    json_t *o = json_loadb(line, len, 0, NULL);
    const char *text = json_string_value(json_object_get(o, "out"));
    const char *said = json_string_value(json_object_get(o, "err"));
    const json_t *code = json_object_get(o, "status");
    if (text != NULL && said != NULL && json_is_integer(code)) {
        *out = strdup(text);
        *err = strdup(said);
        status = *out != NULL && *err != NULL ? (int)json_integer_value(code) & 0xff : -ENOMEM;
    }
    json_decref(o);
    free(line);
    return status;
}

/* Read to the end of the first line and no further. */
static char *read_first_line(int fd, size_t *len_out)
{
    char buf[4096], *line = NULL;
    size_t len = 0;
    while (len < sizeof(buf)) {
        ssize_t n = recv(fd, buf + len, 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        if (buf[len++] != '\n')
            continue;
        line = malloc(len);
        if (line != NULL)
            memcpy(line, buf, len);
        *len_out = len - 1;
        return line;
    }
    errno = EPROTO;
    return NULL;
}

int control_stream(const char *path, const char *const *argv, char **err)
{
    size_t len = 0;
    int argc = 0;
    *err = NULL;
    while (argv[argc] != NULL)
        argc++;
    int fd = connect_to(path);
    if (fd < 0)
        return -errno;
    errno = EPROTO;
    char *line = send_request(fd, argc, argv) == 0 ? read_first_line(fd, &len) : NULL;
    int e = line != NULL ? EPROTO : errno;
    json_t *o = line != NULL ? json_loadb(line, len, 0, NULL) : NULL;
    const json_t *code = json_object_get(o, "status");
    const char *said = json_string_value(json_object_get(o, "err"));
    bool good = json_is_integer(code) && json_integer_value(code) == 0;
    if (!good && said != NULL)
        *err = strndup(said, strcspn(said, "\n"));
    json_decref(o);
    free(line);
    if (good)
        return fd;
    close(fd);
    return -e;
}

/* Take --control out of argv. -1: good, or the exit code. */
static int take_control(int *argc, char **argv, const char **path)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--control") == 0) {
            if (i + 1 >= *argc)
                return cli_usage(argv[0], "--control needs a path");
            *path = argv[++i];
        } else if (strncmp(argv[i], "--control=", 10) == 0) {
            *path = argv[i] + 10;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return -1;
}

static int run(int argc, char **argv, const char *help)
{
    const char *path = NULL, *command = argv[0];
    struct inspect_args args;
    size_t len;
    int status = take_control(&argc, argv, &path);
    if (status >= 0)
        return status;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s%s", help, common_help);
            return cli_flush(command);
        }
    }
    status = inspect_parse(argc, (const char *const *)argv, &args,
                           stderr); /* a mistake needs no instance */
    if (status != 0) {
        fprintf(stderr, "Try 'weir %s --help'.\n", command);
        return CLI_USAGE;
    }
    char only[CONTROL_PATH_MAX];
    int fd = path != NULL ? connect_to(path) : connect_to_only(command, only, sizeof(only));
    if (fd < 0)
        return path != NULL ? cli_fail(command, "%s: %s", path, strerror(errno)) : CLI_FAILED;
    char *line =
        send_request(fd, argc, (const char *const *)argv) == 0 ? read_line(fd, &len) : NULL;
    if (line != NULL)
        status = print_answer(command, line, len);
    else
        status = cli_fail(command, "control socket: %s", strerror(errno));
    free(line);
    close(fd);
    return status;
}

int cmd_sysctl(int argc, char **argv)
{
    return run(argc, argv, sysctl_help);
}

int cmd_netstat(int argc, char **argv)
{
    return run(argc, argv, netstat_help);
}

int cmd_tcpdrop(int argc, char **argv)
{
    return run(argc, argv, tcpdrop_help);
}

int cmd_cputime(int argc, char **argv)
{
    return run(argc, argv, cputime_help);
}
