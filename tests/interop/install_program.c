/* SPDX-License-Identifier: BSD-2-Clause
 * Somebody else's program: it knows only what is installed. Sends a line from one stack to another.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <weir/socket.h>
#include <weir/stack.h>

#define MESSAGE "over the weir"

static int fail(const char *what)
{
    perror(what);
    return 1;
}

int main(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7)};
    struct weir_stack *a = weir_stack_create(NULL), *b = weir_stack_create(NULL);
    const char *why = "";
    char got[64] = "";

    if (!a || !b)
        return fail("weir_stack_create");
    if (weir_link_pair(a, b, NULL, &why) != 0)
        return fail(why);
    inet_pton(AF_INET, "10.0.0.2", &to.sin_addr);
    int listener = weir_socket(b, AF_INET, SOCK_STREAM, 0),
        out = weir_socket(a, AF_INET, SOCK_STREAM, 0);
    if (weir_bind(listener, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        weir_listen(listener, 1) != 0)
        return fail("weir_listen");
    if (weir_connect(out, (struct sockaddr *)&to, sizeof(to)) != 0)
        return fail("weir_connect");
    int in = weir_accept(listener, NULL, NULL);
    if (in < 0 || weir_send(out, MESSAGE, strlen(MESSAGE), 0) != (ssize_t)strlen(MESSAGE))
        return fail("weir_send");
    if (weir_recv(in, got, strlen(MESSAGE), MSG_WAITALL) != (ssize_t)strlen(MESSAGE) ||
        strcmp(got, MESSAGE) != 0)
        return fail("weir_recv");
    weir_close(in);
    weir_close(out);
    weir_close(listener);
    weir_stack_destroy(a);
    weir_stack_destroy(b);
    puts(got);
    return 0;
}
