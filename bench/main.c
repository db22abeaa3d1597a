/* pagestash-bench: how fast stash and restore are, next to a plain copy of the same bytes. */
#include "bench.h"

#include <argp.h>
#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CASES = 64, SAMPLES = 31, QUICK_SAMPLES = 21 };
enum { KEY_DEVICE = 256, KEY_JSON, KEY_QUICK, KEY_CALL_COST };

typedef struct bench_options {
    const char *device;
    const char *json;
    bool quick;
    bool call_cost;
} bench_options;

int bench_fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("pagestash-bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

int bench_status(pst_status status)
{
    switch (status) {
    case PST_OK:
        return BENCH_OK;
    case PST_E_INVALID:
        return bench_fail(BENCH_USAGE, "%s", pst_last_message());
    case PST_E_NOMEM:
    case PST_E_DEVICE_NOMEM:
        return bench_fail(BENCH_NO, "%s", pst_last_message());
    default:
        return bench_fail(BENCH_DEVICE, "%s", pst_last_message());
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    bench_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* one line, not the advice that argp adds to it */
        return 0;
    case KEY_DEVICE:
        options->device = argument;
        return 0;
    case KEY_JSON:
        options->json = argument;
        return 0;
    case KEY_QUICK:
        options->quick = true;
        return 0;
    case KEY_CALL_COST:
        options->call_cost = true;
        return 0;
    case ARGP_KEY_ARG:
        bench_fail(BENCH_USAGE, "argument \"%.80s\": allowed are options only", argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    const int version = pst_version();
    fprintf(stream, "pagestash-bench %d.%d.%d (%s)\n", version / 10000, version / 100 % 100,
            version % 100, PAGESTASH_COMMIT);
}

/* Before the work that would be in vain. */
static int check_json(const char *path)
{
    if (path == NULL || strcmp(path, "-") == 0)
        return BENCH_OK;
    if (*path == '\0')
        return bench_fail(BENCH_USAGE, "--json: empty: allowed is a file, or - for stdout");
    char *copy = strdup(path);
    if (copy == NULL)
        return bench_fail(BENCH_NO, "out of memory");
    const int denied = access(dirname(copy), W_OK | X_OK);
    free(copy);
    return denied ? bench_fail(BENCH_USAGE, "--json %s: %s", path, strerror(errno)) : BENCH_OK;
}

static int parse_options(int argc, char **argv, bench_options *options)
{
    static const struct argp_option list[] = {
        {"device", KEY_DEVICE, "auto|host|cuda", 0,
         "auto is cuda if there is one, else host (auto)", 1},
        {"json", KEY_JSON, "FILE", 0, "write the report as JSON; - is stdout, and no table then",
         2},
        {"quick", KEY_QUICK, NULL, 0, "fewer configurations and samples", 3},
        {"call-cost", KEY_CALL_COST, NULL, 0,
         "only the argument path of a stash call on cuda, which needs no GPU", 4},
        {0},
    };
    const struct argp parser = {
        .options = list,
        .parser = parse_option,
        .doc = "Times stash and restore beside a plain copy of the same bytes, in turn in one "
               "process, and checks every byte.\vExit codes: 0 done, whatever the ratios; 1 bytes "
               "differ, or memory does not suffice; 2 usage; 4 device absent or failed."};
    argp_program_version_hook = print_version;
    argp_err_exit_status = BENCH_USAGE;
    if (argp_parse(&parser, argc, argv, 0, NULL, options) != 0)
        return BENCH_USAGE;
    return check_json(options->json);
}

static bool shows_table(const bench_options *options)
{
    return options->json == NULL || strcmp(options->json, "-") != 0;
}

static int run_sweep(pst_device *device, const bench_options *options, bench_result *results,
                     size_t *num_results)
{
    bench_case cases[MAX_CASES];
    const size_t num_cases = bench_sweep(options->quick, cases, MAX_CASES);
    for (size_t i = 0; i < num_cases && i < MAX_CASES; i++) {
        BENCH_TRY(bench_measure(device, &cases[i], options->quick ? QUICK_SAMPLES : SAMPLES,
                                &results[i]));
        *num_results = i + 1;
        if (shows_table(options))
            bench_print_result(&results[i]);
    }
    return BENCH_OK;
}

static int run(pst_device *device, const bench_options *options)
{
    static bench_result results[MAX_CASES];
    bench_call_cost cost;
    bench_report report = {.results = results, .cost = &cost};
    int mismatch = BENCH_OK;
    BENCH_PST(pst_device_get_info(device, &report.device));
    if (shows_table(options) && !options->call_cost)
        bench_print_header(&report.device);
    if (!options->call_cost)
        BENCH_TRY(run_sweep(device, options, results, &report.num_results));
    BENCH_TRY(bench_measure_calls(&cost));
    for (size_t i = 0; i < report.num_results; i++)
        mismatch = results[i].mismatched_bytes ? BENCH_NO : mismatch;
    if (options->json)
        BENCH_TRY(bench_write_json(&report, options->json));
    if (shows_table(options))
        bench_print_summary(&report);
    if (fflush(stdout) != 0 && errno != EPIPE)
        return bench_fail(BENCH_NO, "standard output: %s", strerror(errno));
    return mismatch;
}

int main(int argc, char **argv)
{
    bench_options options = {.device = "auto"};
    pst_device *device = NULL;
    BENCH_TRY(parse_options(argc, argv, &options));
    BENCH_PST(pst_device_open(options.call_cost ? "host" : options.device, 0, &device));
    const int code = run(device, &options);
    const pst_status closed = pst_device_close(device);
    return code == BENCH_OK ? bench_status(closed) : code;
}
