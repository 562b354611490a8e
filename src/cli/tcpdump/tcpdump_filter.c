/* SPDX-License-Identifier: BSD-2-Clause
 * Capture filters: libpcap compiles them here, where looking up a name holds up nobody; the
 * instance runs the program. */
#include "tcpdump.h"

#include "measure/tap.h"

#include <stdlib.h>

char *tcpdump_filter(const char *key, int dlt, const char *expression, const char **why)
{
    static char message[PCAP_ERRBUF_SIZE];
    struct bpf_program prog;
    char *text = NULL;
    size_t size;
    pcap_t *p = pcap_open_dead(dlt, TAP_FRAME_MAX);
    *why = "out of memory";
    if (p == NULL)
        return NULL;
    if (pcap_compile(p, &prog, expression, 1, PCAP_NETMASK_UNKNOWN) != 0) {
        snprintf(message, sizeof(message), "%s", pcap_geterr(p));
        *why = message;
        pcap_close(p);
        return NULL;
    }
    FILE *f = prog.bf_len <= TAP_FILTER_MAX ? open_memstream(&text, &size) : NULL;
    if (prog.bf_len > TAP_FILTER_MAX)
        *why = "the expression is too complex";
    if (f != NULL) {
        fprintf(f, "%s=%u", key, prog.bf_len);
        for (unsigned i = 0; i < prog.bf_len; i++)
            fprintf(f, ",%u %u %u %u", prog.bf_insns[i].code, prog.bf_insns[i].jt,
                    prog.bf_insns[i].jf, prog.bf_insns[i].k);
        if (fclose(f) != 0) {
            free(text);
            text = NULL;
        }
    }
    pcap_freecode(&prog);
    pcap_close(p);
    return text;
}
