/* SPDX-License-Identifier: BSD-2-Clause
 * `weir ministat`: the options and the output of the tool of that name, with any level, exact
 * critical values and robust tests beside them. */
#include "cli.h"
#include "stat/plot.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MIN_POINTS 3
#define BOOTSTRAP_ROUNDS 10000
#define BOOTSTRAP_SEED 1

static const char help[] =
    "usage: weir ministat [OPTION]... [FILE]...\n\n"
    "Summarises the numbers in each FILE (- or none: standard input), and compares each with the\n"
    "first by Student's t with pooled variance. At most 7 files, at least 3 numbers in each; a\n"
    "line has one number in the chosen column, # begins a comment.\n\n"
    "  -c LEVEL    confidence in percent, between 0 and 100 (95)\n"
    "  -C COLUMN   which column (1)\n"
    "  -d CHARS    what separates columns (blank and tab)\n"
    "  -A          no plot;  -n  summary only;  -s  a bar for each set\n"
    "  -w WIDTH    width of the plot (the terminal's, or 74)\n"
    "      --exact   exact critical values also at 80, 90, 95, 98, 99 and 99.5, where the classic\n"
    "                table is used otherwise; every point in the plot\n"
    "      --robust  Welch's test, Mann and Whitney's test, bootstrap of the medians\n"
    "  -J, --json  one JSON document\n";

static const struct option long_options[] = {
    {"exact", no_argument, NULL, 1000},
    {"robust", no_argument, NULL, 1001},
    {"json", no_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct ministat {
    struct plot_options plot;
    struct stat_set set[PLOT_MAX_SETS];
    char unit[PLOT_MAX_SETS][32]; /* "": not said */
    unsigned sets;
    unsigned column;
    const char *delimiters;
    bool robust, json;
};

/* Columns of the terminal between the sides of the frame. */
static int terminal_width(void)
{
    struct winsize ws;
    const char *columns = getenv("COLUMNS");
    uint64_t v;
    if (!isatty(STDOUT_FILENO))
        return PLOT_DEFAULT_WIDTH;
    if (columns != NULL && parse_u64(columns, PLOT_MIN_WIDTH, PLOT_MAX_WIDTH, &v))
        return (int)v;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= PLOT_MIN_WIDTH + 2)
        return ws.ws_col - 2;
    return PLOT_DEFAULT_WIDTH;
}

static bool parse_level(const char *text, double *level)
{
    char *end;
    if (text[0] != '.' && (text[0] < '0' || text[0] > '9'))
        return false;
    *level = strtod(text, &end);
    return *end == '\0' && *level > 0 && *level < 100;
}

static int bad(const char *what, const char *value)
{
    return cli_usage("ministat", "%s: '%s' is not allowed", what, value);
}

/* -1: go on. */
static int parse(int argc, char **argv, struct ministat *m)
{
    uint64_t v;
    int c;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, ":AnsC:c:d:w:Jh", long_options, NULL)) != -1) {
        switch (c) {
        case 'A':
            m->plot.no_plot = true;
            break;
        case 'n':
            m->plot.no_test = true;
            break;
        case 's':
            m->plot.separate_bars = true;
            break;
        case 'C':
            if (!parse_u64(optarg, 1, 1000000, &v))
                return bad("-C", optarg);
            m->column = (unsigned)v;
            break;
        case 'c':
            if (!parse_level(optarg, &m->plot.level_pct))
                return bad("-c", optarg);
            break;
        case 'd':
            if (optarg[0] == '\0')
                return bad("-d", optarg);
            m->delimiters = optarg;
            break;
        case 'w':
            if (!parse_u64(optarg, PLOT_MIN_WIDTH, PLOT_MAX_WIDTH, &v))
                return bad("-w", optarg);
            m->plot.width = (int)v;
            break;
        case 1000:
            m->plot.table = STAT_EXACT;
            break;
        case 1001:
            m->robust = true;
            break;
        case 'J':
            m->json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_flush("ministat");
        default:
            return cli_bad_option("ministat", c, argv);
        }
    }
    return -1;
}

/* ---- reading ---- */

static int read_line(const struct ministat *m, struct stat_set *s, char *line, unsigned number)
{
    char *save = NULL, *end;
    size_t len = strlen(line);
    unsigned column = 1;
    while (len > 0 && strchr(" \t\r\n\v\f", line[len - 1]) != NULL)
        line[--len] = '\0';
    char *word = strtok_r(line, m->delimiters, &save);
    for (; word != NULL && *word != '#' && column < m->column; column++)
        word = strtok_r(NULL, m->delimiters, &save);
    if (word == NULL || *word == '#')
        return -1;
    double v = strtod(word, &end);
    if (*end != '\0' || end == word) {
        cli_fail("ministat", "invalid data on line %u in %s: '%s' is not a number", number, s->name,
                 word);
        return CLI_USAGE;
    }
    if (!isfinite(v)) {
        cli_fail("ministat", "invalid data on line %u in %s: '%s' is not finite", number, s->name,
                 word);
        return CLI_USAGE;
    }
    return stat_set_add(s, v) ? -1 : cli_fail("ministat", "out of memory");
}

/* "# unit: Mbit/s" says what the numbers of a file are. */
static void note_unit(char *unit, size_t size, const char *line)
{
    static const char mark[] = "# unit:";
    if (strncmp(line, mark, sizeof(mark) - 1) != 0)
        return;
    line += sizeof(mark) - 1;
    line += strspn(line, " \t");
    snprintf(unit, size, "%.*s", (int)strcspn(line, "\r\n"), line);
}

/* -1: no two sets say that they are of different units. */
static int check_units(const struct ministat *m)
{
    for (unsigned i = 1; i < m->sets; i++)
        if (m->unit[0][0] != '\0' && m->unit[i][0] != '\0' && strcmp(m->unit[0], m->unit[i]) != 0) {
            cli_fail("ministat", "%s is in %s, %s in %s: not to be compared", m->set[0].name,
                     m->unit[0], m->set[i].name, m->unit[i]);
            return CLI_USAGE;
        }
    return -1;
}

/* -1: the set is there and sorted. */
static int read_set(struct ministat *m, unsigned index, const char *path)
{
    struct stat_set *s = &m->set[index];
    bool standard = path == NULL || strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    int status = -1;
    s->name = standard ? "<stdin>" : path;
    if (f == NULL)
        return cli_fail("ministat", "cannot open %s: %s", path, strerror(errno));
    errno = 0;
    for (unsigned number = 1; status < 0 && getline(&line, &room, f) >= 0; number++) {
        note_unit(m->unit[index], sizeof(m->unit[index]), line);
        status = read_line(m, s, line, number);
    }
    if (status < 0 && ferror(f))
        status = cli_fail("ministat", "cannot read %s: %s", s->name, strerror(errno));
    free(line);
    if (!standard)
        fclose(f);
    if (status < 0 && s->count < MIN_POINTS) {
        cli_fail("ministat", "dataset %s must contain at least %d data points: it has %zu%s",
                 s->name, MIN_POINTS, s->count, m->column > 1 ? " in that column" : "");
        return CLI_USAGE;
    }
    if (status < 0 && !stat_set_sort(s))
        status = cli_fail("ministat", "out of memory");
    return status;
}

static int read_all(struct ministat *m, char **path, int count)
{
    int status = -1, standard = 0;
    if (count > PLOT_MAX_SETS)
        return cli_usage("ministat", "too many datasets: %d, at most %d", count, PLOT_MAX_SETS);
    for (int i = 0; i < count; i++)
        standard += strcmp(path[i], "-") == 0;
    if (standard > 1)
        return cli_usage("ministat", "standard input can be read once only");
    m->sets = count > 0 ? (unsigned)count : 1;
    for (unsigned i = 0; status < 0 && i < m->sets; i++)
        status = read_set(m, i, count > 0 ? path[i] : NULL);
    return status < 0 ? check_units(m) : status;
}

/* ---- what comes out ---- */

static void print_robust(const struct ministat *m, unsigned i)
{
    const struct stat_set *a = &m->set[0], *b = &m->set[i];
    struct stat_summary sa = stat_summarize(a), sb = stat_summarize(b);
    double level = m->plot.level_pct, alpha = (100 - level) / 100;
    struct stat_welch w = stat_welch(&sa, &sb, level);
    struct stat_rank r = stat_mann_whitney(a, b);
    struct stat_bootstrap boot =
        stat_bootstrap_median(a, b, level, BOOTSTRAP_ROUNDS, BOOTSTRAP_SEED);
    printf("%c against %c, robust, at %.10g%% confidence\n", plot_symbol(i), plot_symbol(0), level);
    if (w.known)
        printf("\tWelch: %g +/- %g, %.2f degrees of freedom, p = %.4g: %s\n", w.difference, w.ci,
               w.df, w.p, w.p < alpha ? "differ" : "not proven");
    else
        printf("\tWelch: all values of each are equal\n");
    printf("\tMann-Whitney (%s): U = %g, larger in %.1f%% of pairs, p = %.4g: %s\n",
           r.exact ? "exact" : "normal approximation", r.u, r.superiority * 100, r.p,
           r.p < alpha ? "differ" : "not proven");
    if (boot.known)
        printf("\tMedians: difference %g, bootstrap interval %g to %g: %s\n", boot.difference,
               boot.low, boot.high, boot.low > 0 || boot.high < 0 ? "differ" : "not proven");
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *robust_json(const struct ministat *m, unsigned i)
{
    const struct stat_set *a = &m->set[0], *b = &m->set[i];
    struct stat_summary sa = stat_summarize(a), sb = stat_summarize(b);
    struct stat_welch w = stat_welch(&sa, &sb, m->plot.level_pct);
    struct stat_rank r = stat_mann_whitney(a, b);
    struct stat_bootstrap boot =
        stat_bootstrap_median(a, b, m->plot.level_pct, BOOTSTRAP_ROUNDS, BOOTSTRAP_SEED);
    return json_pack("{s:{s:o, s:o, s:o, s:o}, s:{s:f, s:f, s:f, s:b}, s:{s:o, s:o, s:o}}", "welch",
                     "difference", number(w.difference), "difference_ci", number(w.ci), "df",
                     number(w.df), "p", number(w.p), "mann_whitney", "u", r.u, "superiority",
                     r.superiority, "p", r.p, "exact", (int)r.exact, "median_bootstrap",
                     "difference", number(boot.difference), "low", number(boot.low), "high",
                     number(boot.high));
}

static json_t *set_json(const struct stat_set *s)
{
    struct stat_summary r = stat_summarize(s);
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "name", s->name, "n",
                     (json_int_t)r.count, "min", number(r.min), "max", number(r.max), "median",
                     number(r.median), "avg", number(r.mean), "stddev", number(r.stddev));
}

static json_t *difference_json(const struct ministat *m, unsigned i)
{
    struct stat_summary a = stat_summarize(&m->set[0]), b = stat_summarize(&m->set[i]);
    struct stat_difference d = stat_compare(&a, &b, m->plot.level_pct, m->plot.table);
    json_t *o = json_pack(
        "{s:s, s:s, s:f, s:o, s:o, s:o, s:o, s:o, s:b}", "reference", m->set[0].name, "name",
        m->set[i].name, "confidence_pct", d.level_pct, "difference", number(d.difference),
        "difference_ci", number(d.difference_ci), "percent", number(d.percent), "percent_ci",
        number(d.percent_ci), "pooled_s", number(d.pooled_s), "proven", (int)d.proven);
    if (o != NULL && m->robust)
        json_object_set_new(o, "robust", robust_json(m, i));
    return o;
}

static int print_json(const struct ministat *m)
{
    json_t *sets = json_array(), *differences = json_array();
    for (unsigned i = 0; i < m->sets; i++) {
        json_array_append_new(sets, set_json(&m->set[i]));
        if (i > 0 && !m->plot.no_test)
            json_array_append_new(differences, difference_json(m, i));
    }
    json_t *o = json_pack("{s:o, s:o}", "sets", sets, "differences", differences);
    int e = o != NULL ? json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : -1;
    fputc('\n', stdout);
    json_decref(o);
    return e == 0 ? cli_flush("ministat")
                  : cli_fail("ministat", "cannot write the result (a file name in UTF-8?)");
}

static int print_all(struct ministat *m)
{
    if (m->json)
        return print_json(m);
    if (m->plot.level_pct == 99.5 && m->plot.table == STAT_CLASSIC && m->sets > 1)
        cli_warn("ministat", "note: at 99.5 the classic table has the values of 99.8 %% (--exact)");
    if (!plot_print(stdout, m->set, m->sets, &m->plot))
        return cli_fail("ministat", "out of memory");
    if (m->plot.points_hidden)
        cli_warn("ministat", "note: the classic plot has no room for all points (--exact has)");
    for (unsigned i = 1; m->robust && i < m->sets; i++)
        print_robust(m, i);
    return cli_flush("ministat");
}

int cmd_ministat(int argc, char **argv)
{
    struct ministat m = {
        .plot = {.width = terminal_width(), .level_pct = 95}, .column = 1, .delimiters = " \t"};
    int status = parse(argc, argv, &m);
    if (status < 0)
        status = read_all(&m, argv + optind, argc - optind);
    if (status < 0)
        status = print_all(&m);
    for (unsigned i = 0; i < m.sets; i++)
        stat_set_free(&m.set[i]);
    return status;
}
