/* The command line: what is allowed together, and what it means. */
#include "bench/stash/options.h"
#include "tools/common/tool.h"

#include <stdlib.h>
#include <string.h>

#define ONE_CASE "--bytes, --page-size, --num-sms, --backend, --tensors, --pattern"
#define ALL_SWEEPS ((1u << BENCH_NUM_SWEEPS) - 1)

#define FLAG_OPTIONS bench_options
static const flag place_flags[] = {BENCH_PLACE_FLAGS(FLAG_ROW)};
static const flag case_flags[] = {BENCH_CASE_FLAGS(FLAG_ROW)};

/* A name of `length` characters: its sweeps, 0 if there are none. */
static uint32_t sweeps_named(const char *name, size_t length)
{
    if (length == 3 && strncmp(name, "all", length) == 0)
        return ALL_SWEEPS;
    for (int sweep = 0; sweep < BENCH_NUM_SWEEPS; sweep++) {
        const char *known = bench_sweep_name((bench_sweep)sweep);
        if (strlen(known) == length && strncmp(name, known, length) == 0)
            return 1u << sweep;
    }
    return 0;
}

static int parse_sweeps(const char *list, uint32_t *sweeps)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        const uint32_t named = sweeps_named(at, length);
        if (named == 0)
            return tool_fail(
                TOOL_USAGE,
                "--sweep %.80s: allowed is all, or bytes, num_sms, page_size, ring, "
                "pattern, tensors, alignment, pitch, backend, gemm, pairs, host, glu, linear, with "
                "commas",
                list);
        *sweeps |= named;
        at += length;
        if (*at == '\0')
            return TOOL_OK;
    }
}

/* The base, and what the flags say about it. */
static void make_custom(bench_options *options)
{
    bench_case *custom = &options->custom;
    *custom = bench_base_case();
    options->has_custom = true;
    custom->sweep = BENCH_SWEEP_CUSTOM;
    custom->peers = true;
    if (options->bytes)
        custom->bytes = options->bytes;
    if (options->page_size)
        custom->page_bytes = options->page_size;
    if (options->num_sms != UINT32_MAX)
        custom->num_sms = (int)options->num_sms;
    if (options->backend >= 0)
        custom->backend = (pst_backend)options->backend;
    if (options->tensors)
        custom->tensors = options->tensors;
    if (options->pattern >= 0)
        custom->pattern = (bench_pattern)options->pattern;
}

/* What they stand for would be reported as auto and as all. */
static int check_environment(void)
{
    static const char *const names[] = {"PAGESTASH_BACKEND", "PAGESTASH_NUM_SMS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return tool_fail(TOOL_USAGE,
                             "%s=%.80s: must not be set: --backend and --num-sms say what is "
                             "measured",
                             names[i], getenv(names[i]));
    return TOOL_OK;
}

int bench_parse_options(int argc, char **argv, bench_options *options)
{
    static const flag_table table = {
        .command = "pagestash-bench",
        .doc = "Times stash and restore beside plain copies, in turn in one process, and checks "
               "every byte.\vSizes: bytes, or with KiB, MiB, GiB. Exit codes: 0 done, whatever the "
               "ratios; 1 bytes differ, or memory does not suffice; 2 usage; 4 device or backend "
               "absent or failed.",
        .groups = {FLAG_GROUP(place_flags, 0), FLAG_GROUP(case_flags, 0)},
        .json = offsetof(bench_options, json),
    };
    TOOL_TRY(flags_parse(&table, argc, argv, options));
    TOOL_TRY(check_environment());
    if (options->bytes || options->page_size || options->num_sms != UINT32_MAX ||
        options->backend >= 0 || options->tensors || options->pattern >= 0)
        make_custom(options);
    if (options->call_cost && (options->has_custom || options->sweep || options->quick))
        return tool_fail(TOOL_USAGE, "--call-cost: not together with --quick, --sweep, " ONE_CASE);
    if (options->has_custom && options->sweep)
        return tool_fail(TOOL_USAGE, "--sweep: not together with " ONE_CASE);
    options->sweeps = 0;
    return parse_sweeps(options->sweep ? options->sweep : "all", &options->sweeps);
}
