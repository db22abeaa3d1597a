#include "bench/stash/options.h"

#include <argp.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/parse.h"

#define MIN_BYTES BENCH_KIB
#define MAX_BYTES ((uint64_t)1 << 40)
enum { MAX_SMS = 1024 };
enum { KEY_DEVICE = 256, KEY_JSON, KEY_QUICK, KEY_SWEEP, KEY_CALL_COST };
enum { KEY_BYTES = 512, KEY_PAGE_SIZE, KEY_NUM_SMS, KEY_BACKEND, KEY_TENSORS, KEY_PATTERN };

static const char *const backends = "auto|ldg|bulk|squeeze";
static const char *const patterns = "prefix|uniform|zipf|hot-expert|empty|full";

static int bad_value(const char *flag, const char *value, const char *allowed)
{
    bench_fail(BENCH_USAGE, "%s %.80s: allowed are %s", flag, value, allowed);
    return EINVAL;
}

static int parse_sweeps(const char *list, uint32_t *sweeps_out)
{
    static const char *const allowed =
        "all, or of bytes, num_sms, page_size, ring, pattern, "
        "tensors, alignment, backend, gemm, pairs, host, with commas";
    uint32_t sweeps = 0;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        bool found = length == 3 && strncmp(at, "all", length) == 0;
        if (found)
            sweeps = (1u << BENCH_NUM_SWEEPS) - 1;
        for (int sweep = 0; sweep < BENCH_NUM_SWEEPS && !found; sweep++) {
            const char *name = bench_sweep_name((bench_sweep)sweep);
            found = strlen(name) == length && strncmp(at, name, length) == 0;
            if (found)
                sweeps |= 1u << sweep;
        }
        if (!found)
            return bad_value("--sweep", list, allowed);
        at += length;
        if (*at == '\0')
            break;
    }
    *sweeps_out = sweeps;
    return 0;
}

static int parse_custom(int key, const char *text, bench_options *options)
{
    bench_case *custom = &options->custom;
    uint64_t number = 0;
    int choice = 0;
    options->has_custom = true;
    switch (key) {
    case KEY_BYTES:
        if (!parse_size(text, MIN_BYTES, MAX_BYTES, &custom->bytes))
            return bad_value("--bytes", text, "1KiB to 1024GiB");
        return 0;
    case KEY_PAGE_SIZE:
        if (!parse_size(text, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX, &number) ||
            (number & (number - 1)) != 0)
            return bad_value("--page-size", text, "powers of two from 16KiB to 4MiB");
        custom->page_bytes = number;
        return 0;
    case KEY_NUM_SMS: /* the device has the last word */
        if (!parse_u64(text, 0, MAX_SMS, &number))
            return bad_value("--num-sms", text, "0 (all) to the SMs of the device");
        custom->num_sms = (int)number;
        return 0;
    case KEY_BACKEND:
        if (!parse_choice(text, backends, &choice))
            return bad_value("--backend", text, backends);
        custom->backend = (pst_backend)choice;
        return 0;
    case KEY_TENSORS:
        if (!parse_u64(text, 1, PST_MAX_TENSORS, &number))
            return bad_value("--tensors", text, "1 to 64");
        custom->tensors = (uint32_t)number;
        return 0;
    default:
        if (!parse_choice(text, patterns, &choice))
            return bad_value("--pattern", text, patterns);
        custom->pattern = (bench_pattern)choice;
        return 0;
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
    case KEY_SWEEP:
        return parse_sweeps(argument, &options->sweeps);
    case KEY_CALL_COST:
        options->call_cost = true;
        return 0;
    case KEY_BYTES:
    case KEY_PAGE_SIZE:
    case KEY_NUM_SMS:
    case KEY_BACKEND:
    case KEY_TENSORS:
    case KEY_PATTERN:
        return parse_custom(key, argument, options);
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
    struct stat found;
    if (path == NULL || strcmp(path, "-") == 0)
        return BENCH_OK;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return bench_fail(BENCH_USAGE, "--json %s: a folder: allowed is a file, or - for stdout",
                          path);
    if (*path == '\0')
        return bench_fail(BENCH_USAGE, "--json: empty: allowed is a file, or - for stdout");
    char *copy = strdup(path);
    if (copy == NULL)
        return bench_fail(BENCH_NO, "out of memory");
    const int denied = access(dirname(copy), W_OK | X_OK);
    free(copy);
    return denied ? bench_fail(BENCH_USAGE, "--json %s: %s", path, strerror(errno)) : BENCH_OK;
}

/* What they stand for would be reported as auto and as all. */
static int check_environment(void)
{
    static const char *const names[] = {"PAGESTASH_BACKEND", "PAGESTASH_NUM_SMS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return bench_fail(BENCH_USAGE,
                              "%s=%.80s: must not be set: --backend and --num-sms say "
                              "what is measured",
                              names[i], getenv(names[i]));
    return BENCH_OK;
}

int bench_parse_options(int argc, char **argv, bench_options *options)
{
    static const struct argp_option list[] = {
        {"device", KEY_DEVICE, "auto|host|cuda", 0,
         "auto is cuda if there is one, else host (auto)", 1},
        {"json", KEY_JSON, "FILE", 0, "write the report as JSON; - is stdout, and no table then",
         2},
        {"quick", KEY_QUICK, NULL, 0, "fewer configurations and samples, a smaller A0", 3},
        {"sweep", KEY_SWEEP, "NAME[,NAME]", 0,
         "of bytes, num_sms, page_size, ring, pattern, tensors, alignment, backend, gemm, pairs, "
         "host (all)",
         4},
        {"call-cost", KEY_CALL_COST, NULL, 0,
         "only the argument path of a stash call on cuda, which needs no GPU", 5},
        {NULL, 0, NULL, 0, "In place of the sweeps one configuration:", 6},
        {"bytes", KEY_BYTES, "SIZE", 0, "live bytes, about (64MiB)", 6},
        {"page-size", KEY_PAGE_SIZE, "SIZE", 0, "16KiB to 4MiB (256KiB)", 6},
        {"num-sms", KEY_NUM_SMS, "N", 0, "SM budget; 0 is all (0)", 6},
        {"backend", KEY_BACKEND, "NAME", 0, "auto, ldg, bulk, squeeze (auto)", 6},
        {"tensors", KEY_TENSORS, "N", 0, "1 to 64 (6)", 6},
        {"pattern", KEY_PATTERN, "NAME", 0,
         "prefix, uniform, zipf, hot-expert, empty, full (prefix)", 6},
        {0},
    };
    const struct argp parser = {
        .options = list,
        .parser = parse_option,
        .doc = "Times stash and restore beside plain copies, in turn in one process, and checks "
               "every byte.\vSizes: bytes, or with KiB, MiB, GiB. Exit codes: 0 done, whatever the "
               "ratios; 1 bytes differ, or memory does not suffice; 2 usage; 4 device or backend "
               "absent or failed."};
    argp_program_version_hook = print_version;
    argp_err_exit_status = BENCH_USAGE;
    options->custom = bench_base_case();
    options->custom.sweep = BENCH_SWEEP_CUSTOM;
    options->custom.peers = true;
    if (argp_parse(&parser, argc, argv, 0, NULL, options) != 0)
        return BENCH_USAGE;
    BENCH_TRY(check_environment());
    if (options->call_cost && (options->has_custom || options->sweeps || options->quick))
        return bench_fail(BENCH_USAGE, "--call-cost: not together with --quick, --sweep, --bytes, "
                                       "--page-size, --num-sms, --backend, --tensors, --pattern");
    if (options->has_custom && options->sweeps)
        return bench_fail(BENCH_USAGE, "--sweep: not together with --bytes, --page-size, "
                                       "--num-sms, --backend, --tensors, --pattern");
    if (options->sweeps == 0)
        options->sweeps = (1u << BENCH_NUM_SWEEPS) - 1;
    return check_json(options->json);
}
