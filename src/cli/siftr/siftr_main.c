/* SPDX-License-Identifier: BSD-2-Clause
 * `weir siftr`: reads, converts, filters and sums flow logs; switches that of a running instance.
 */
#include "siftr.h"

#include "siftr_control.h"
#include <signal.h>
#include <unistd.h>

/* Where records go: one of the two. */
struct consumer {
    struct siftr_filter *filter;
    struct siftr_writer *writer;
    struct siftr_summary *summary;
};

static int on_record(void *ctx, const struct siftr_record *r)
{
    struct consumer *c = ctx;
    bool keeps = siftr_filter_keeps(c->filter, r);
    if (c->writer != NULL)
        return keeps ? siftr_writer_record(c->writer, r) : 0;
    if (keeps)
        return siftr_summary_record(c->summary, r);
    siftr_summary_hidden(c->summary);
    return 0;
}

static int on_line(void *ctx, const struct siftr_line *line, const char *text, size_t len)
{
    struct consumer *c = ctx;
    if (c->writer != NULL)
        return siftr_writer_line(c->writer, line, text, len);
    siftr_summary_line(c->summary, line);
    return 0;
}

static int on_idle(void *ctx)
{
    struct consumer *c = ctx;
    return c->writer != NULL ? siftr_writer_flush(c->writer) : 0;
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = siftr_stop};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

/* The exit code, or the negative error of the consumer. */
static int read_files(const struct siftr_options *o, struct consumer *c)
{
    struct siftr_sink sink = {c, on_record, on_line, on_idle};
    int worst = CLI_OK;
    if (o->follow)
        catch_signals();
    for (int i = 0; i < o->file_count; i++) {
        if (c->summary != NULL)
            siftr_summary_file(c->summary);
        int status = siftr_read(o->files[i], o->follow, &sink);
        if (status < 0)
            return status;
        worst = MAX(worst, status);
    }
    return worst;
}

static int convert(struct siftr_options *o)
{
    for (int i = 0; i < o->file_count; i++) /* before an older output is cut */
        if (strcmp(o->files[i], "-") != 0 && access(o->files[i], R_OK) != 0)
            return cli_fail("siftr", "cannot open %s: %s", o->files[i], strerror(errno));
    struct consumer c = {.filter = &o->filter, .writer = siftr_writer_open(o)};
    if (c.writer == NULL)
        return CLI_FAILED;
    int status = read_files(o, &c);
    if (status < 0)
        cli_fail("siftr", "%s: %s", o->output != NULL ? o->output : "standard output",
                 strerror(-status));
    int closed = siftr_writer_close(c.writer, status < 0);
    return status != CLI_OK ? CLI_FAILED : closed;
}

static int sum_up(struct siftr_options *o)
{
    if (siftr_output_is_input(o))
        return CLI_FAILED;
    const struct siftr_filter *f = &o->filter;
    bool filtered = f->have_flow || f->have_host || f->have_port || f->have_direction ||
                    f->from_ns != TIME_UNSET || f->to_ns != TIME_UNSET;
    struct consumer c = {.filter = &o->filter, .summary = siftr_summary_create(filtered)};
    int status = c.summary != NULL ? read_files(o, &c) : -ENOMEM;
    if (status < 0 || (status != CLI_OK && siftr_summary_is_empty(c.summary))) {
        siftr_summary_destroy(c.summary);
        return status < 0 ? cli_fail("siftr", "%s", strerror(-status)) : status;
    }
    FILE *to = o->output != NULL ? fopen(o->output, "we") : stdout;
    if (to == NULL) {
        siftr_summary_destroy(c.summary);
        return cli_fail("siftr", "cannot open %s: %s", o->output, strerror(errno));
    }
    siftr_summary_print(c.summary, to, o->summary_json);
    siftr_summary_destroy(c.summary);
    if (to == stdout)
        return status | cli_flush("siftr");
    bool bad = ferror(to) != 0;
    return fclose(to) != 0 || bad ? cli_fail("siftr", "%s: %s", o->output, strerror(errno))
                                  : status;
}

int cmd_siftr(int argc, char **argv)
{
    struct siftr_options o;
    if (siftr_control_is_meant(argc, argv))
        return siftr_control(argc, argv);
    int status = siftr_options_parse(&o, argc, argv);
    if (status >= 0)
        return status;
    return o.form == OUTPUT_SUMMARY ? sum_up(&o) : convert(&o);
}
