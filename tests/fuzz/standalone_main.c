/* SPDX-License-Identifier: BSD-2-Clause
 * Runs a fuzz target without libFuzzer: its seeds, mutations of them and of what followed, and
 * random inputs, a bounded number, the same for the same seed. A crash names the seed and the
 * number of the input, and leaves the input in a file where -o says so. */
#include "base/rng.h"
#include "fuzz.h"
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#define POOL 64 /* inputs that mutations start from */

static struct {
    uint8_t *bytes;
    size_t len;
} pool[POOL];
static unsigned pool_count;

static uint8_t *input; /* the one that runs now */
static size_t input_len;
static char epitaph[128]; /* ready before the crash */
static size_t epitaph_len;
static const char *crash_file;

static void leave_input(void)
{
    int fd = crash_file ? open(crash_file, O_CREAT | O_TRUNC | O_WRONLY, 0644) : -1;
    ssize_t n = write(STDERR_FILENO, epitaph, epitaph_len);
    if (fd >= 0)
        n += write(fd, input, input_len);
    (void)n;
}

static void on_signal(int sig)
{
    leave_input();
    signal(sig, SIG_DFL);
    raise(sig);
}

#if defined(__SANITIZE_ADDRESS__)
#define FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FUZZ_ASAN 1
#endif
#endif
#ifdef FUZZ_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

static void catch_crashes(void)
{
    static const int sigs[] = {SIGABRT, SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
    for (size_t i = 0; i < NELEM(sigs); i++)
        signal(sigs[i], on_signal);
#ifdef FUZZ_ASAN
    __sanitizer_set_death_callback(leave_input);
#endif
}

static void run(uint64_t seed, uint64_t number)
{
    int n =
        snprintf(epitaph, sizeof(epitaph), "%s: failed at seed %llu, input %llu, %zu bytes\n",
                 fuzz_target.name, (unsigned long long)seed, (unsigned long long)number, input_len);
    epitaph_len = (size_t)n;
    /* A copy of the true size: a target that reads beyond it is seen by the sanitizer. */
    uint8_t *copy = malloc(input_len ? input_len : 1);
    if (!copy)
        abort();
    memcpy(copy, input, input_len);
    alarm(60); /* an input that does not end */
    LLVMFuzzerTestOneInput(copy, input_len);
    alarm(0);
    free(copy);
}

static void remember(struct rng *r)
{
    unsigned i = pool_count < POOL ? pool_count++ : rng_below(r, POOL);
    free(pool[i].bytes);
    pool[i].bytes = malloc(input_len + 1);
    if (!pool[i].bytes)
        abort();
    memcpy(pool[i].bytes, input, input_len);
    pool[i].len = input_len;
}

static uint8_t interesting(struct rng *r)
{
    static const uint8_t v[] = {0, 1, 2, 4, 8, 16, 20, 40, 64, 127, 128, 192, 240, 254, 255};
    return rng_below(r, 2) ? v[rng_below(r, NELEM(v))] : (uint8_t)rng_u32(r);
}

/* One change at a random place. */
static void mutate(struct rng *r)
{
    size_t at = rng_below(r, (uint32_t)input_len + 1), room = fuzz_target.max_len - input_len;
    size_t n = 1 + rng_below(r, rng_below(r, 4) ? 8 : 64);
    switch (rng_below(r, 6)) {
    case 0: /* insert */
        n = MIN(n, room);
        memmove(input + at + n, input + at, input_len - at);
        rng_bytes(r, input + at, n);
        input_len += n;
        break;
    case 1: /* remove */
        n = MIN(n, input_len - at);
        memmove(input + at, input + at + n, input_len - at - n);
        input_len -= n;
        break;
    case 2: { /* repeat a piece of its own elsewhere */
        size_t from = rng_below(r, (uint32_t)input_len + 1);
        n = MIN(MIN(n, input_len - from), room);
        uint8_t piece[64];
        memcpy(piece, input + from, n);
        memmove(input + at + n, input + at, input_len - at);
        memcpy(input + at, piece, n);
        input_len += n;
        break;
    }
    case 3: { /* the rest of another */
        unsigned i = rng_below(r, pool_count);
        size_t from = rng_below(r, (uint32_t)pool[i].len + 1);
        n = MIN(pool[i].len - from, fuzz_target.max_len - at);
        memcpy(input + at, pool[i].bytes + from, n);
        input_len = at + n;
        break;
    }
    default:
        if (at < input_len)
            input[at] = interesting(r);
    }
}

static void next_input(struct rng *r)
{
    if (rng_below(r, 4) == 0) { /* nothing known */
        input_len = rng_below(r, (uint32_t)MIN(fuzz_target.max_len, 1024) + 1);
        rng_bytes(r, input, input_len);
        return;
    }
    unsigned i = rng_below(r, pool_count);
    input_len = pool[i].len;
    memcpy(input, pool[i].bytes, input_len);
    for (uint32_t n = 1 + rng_below(r, 12); n > 0; n--)
        mutate(r);
}

static void make_seed(unsigned i)
{
    struct fuzz_out o = {.p = input, .room = fuzz_target.max_len};
    fuzz_target.seed(i, &o);
    input_len = o.len;
}

static void write_seeds(const char *dir)
{
    for (unsigned i = 0; i < fuzz_target.seeds; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s-%03u", dir, fuzz_target.name, i);
        make_seed(i);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(input, 1, input_len, f) != input_len || fclose(f)) {
            perror(path);
            exit(1);
        }
    }
}

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    input_len = fread(input, 1, fuzz_target.max_len, f);
    fclose(f);
    run(0, 0);
}

static void run_many(uint64_t seed, uint64_t runs)
{
    uint8_t key[RNG_SEED_BYTES] = {0};
    struct rng r;
    memcpy(key, &seed, sizeof(seed));
    rng_init(&r, key);
    for (unsigned i = 0; i < fuzz_target.seeds; i++) {
        make_seed(i);
        run(seed, i);
        remember(&r);
    }
    input_len = 0;
    run(seed, fuzz_target.seeds);
    remember(&r);
    for (uint64_t i = fuzz_target.seeds + 1; i < runs; i++) {
        next_input(&r);
        run(seed, i);
        if (rng_below(&r, 8) == 0)
            remember(&r);
    }
}

int main(int argc, char **argv)
{
    uint64_t runs = 1000, seed = 1;
    int opt;
    while ((opt = getopt(argc, argv, "n:s:w:o:")) >= 0) {
        if (opt == 'n')
            runs = strtoull(optarg, NULL, 0);
        else if (opt == 's')
            seed = strtoull(optarg, NULL, 0);
        else if (opt == 'o')
            crash_file = optarg;
        else if (opt != 'w') {
            fprintf(stderr, "usage: %s [-n RUNS] [-s SEED] [-o CRASHFILE] [-w SEEDDIR | FILE...]\n",
                    argv[0]);
            return 2;
        }
        if (opt == 'w') {
            input = malloc(fuzz_target.max_len);
            if (!input)
                abort();
            write_seeds(optarg);
            return 0;
        }
    }
    input = malloc(fuzz_target.max_len);
    if (!input)
        abort();
    catch_crashes();
    if (optind < argc) {
        for (; optind < argc; optind++)
            run_file(argv[optind]);
    } else {
        printf("%s: seed %llu, %llu inputs\n", fuzz_target.name, (unsigned long long)seed,
               (unsigned long long)runs);
        fflush(stdout);
        run_many(seed, runs);
    }
    for (unsigned i = 0; i < pool_count; i++)
        free(pool[i].bytes);
    free(input);
    return 0;
}
