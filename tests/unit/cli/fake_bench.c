/* SPDX-License-Identifier: BSD-2-Clause
 * A stand-in for `weir bench` whose results are drawn from a known distribution: tests of `weir ab`
 * know what must come out.
 *
 * --set fake.mean=M and fake.sd=S: throughput is normal; fake.step=D is added for each run so far.
 * --set fake.mode=fail | garbage | hang | twice | null. FAKE_DIR holds the count of runs ("count")
 * and a line for each ("log": the words of the command). FAKE_SEED starts the generator. */
#include "cli/stat/stat.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static double uniform(uint64_t *state)
{
    return ((double)(stat_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static unsigned count_run(int argc, char **argv)
{
    char path[4096];
    const char *dir = getenv("FAKE_DIR");
    unsigned n = 0;
    if (dir == NULL)
        exit(3);
    snprintf(path, sizeof(path), "%s/count", dir);
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%u", &n) != 1)
        n = 0;
    if (f != NULL)
        fclose(f);
    f = fopen(path, "w");
    fprintf(f, "%u\n", n + 1);
    fclose(f);
    snprintf(path, sizeof(path), "%s/log", dir);
    f = fopen(path, "a");
    for (int i = 1; i < argc; i++)
        fprintf(f, "%s%c", argv[i], i + 1 < argc ? ' ' : '\n');
    fclose(f);
    return n;
}

static void misbehave(const char *mode)
{
    if (strcmp(mode, "fail") == 0) {
        fprintf(stderr, "weir bench: nothing works\n");
        exit(1);
    } else if (strcmp(mode, "garbage") == 0) {
        printf("{\"throughput_mbps\": nan}\n");
    } else if (strcmp(mode, "twice") == 0) {
        printf("{} {}\n");
    } else if (strcmp(mode, "null") == 0) {
        printf("{\"throughput_mbps\": null}\n");
    } else if (strcmp(mode, "hang") == 0) {
        signal(SIGTERM, SIG_IGN);
        pause();
    } else {
        return;
    }
    exit(0);
}

int main(int argc, char **argv)
{
    double mean = 100, sd = 0, step = 0;
    char mode[32] = "";
    unsigned run = count_run(argc, argv);
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--set") != 0)
            continue;
        (void)sscanf(argv[i + 1], "fake.mean=%lf", &mean);
        (void)sscanf(argv[i + 1], "fake.sd=%lf", &sd);
        (void)sscanf(argv[i + 1], "fake.step=%lf", &step);
        (void)sscanf(argv[i + 1], "fake.mode=%31s", mode);
    }
    misbehave(mode);
    const char *text = getenv("FAKE_SEED");
    uint64_t state = (text != NULL ? strtoull(text, NULL, 10) : 1) * 1000003u + run;
    (void)stat_random(&state);
    double r = sqrt(-2 * log(uniform(&state)));
    double v = mean + step * run + sd * r * cos(2 * M_PI * uniform(&state));
    printf("{\"test\": \"TCP_STREAM\", \"bytes\": 1, \"throughput_mbps\": %.6f,"
           " \"transactions_per_s\": null, \"run\": %u,"
           " \"cpu\": {\"local_pct\": 10.5, \"remote_pct\": 20.25}}\n",
           v, run);
    return 0;
}
