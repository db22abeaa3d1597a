/* pagestash-bench: how fast stash and restore are, next to plain copies. Calls those who measure,
 * in turn, and writes what they found. */
#include "bench/stash/ceiling.h"
#include "bench/stash/measure.h"
#include "bench/stash/options.h"

#include <stdio.h>
#include <string.h>

enum { SAMPLES = 31, QUICK_SAMPLES = 21 };
enum { PAIRS = 100000, QUICK_PAIRS = 10000 };

/* Before anything is measured. */
static int check_custom(pst_device *device, const bench_options *options, bench_report *report)
{
    const bench_case *custom = &options->custom;
    const pst_device_info *info = &report->machine.device;
    if (!options->has_custom)
        return TOOL_OK;
    if (custom->num_sms > info->num_sms)
        return tool_fail(TOOL_USAGE, "--num-sms %d: allowed are 0 to %d on %s", custom->num_sms,
                         info->num_sms, info->name);
    if (custom->backend != PST_BACKEND_AUTO && !(info->backends & 1u << custom->backend))
        return tool_fail(TOOL_DEVICE, "--backend %s: %s has none",
                         bench_backend_name(custom->backend), info->name);
    return bench_can_run(device, custom, report);
}

static int run_cases(pst_device *device, const bench_options *options, bench_ceiling *ceiling,
                     bench_report *report)
{
    bench_case cases[BENCH_MAX_CASES];
    const uint32_t samples = options->quick ? QUICK_SAMPLES : SAMPLES;
    size_t num = 1;
    cases[0] = options->custom;
    if (!options->has_custom)
        num = bench_cases(&report->machine.device, options->sweeps, options->quick, cases);
    for (size_t i = 0; i < num; i++) {
        tool_progress("configuration", i, num);
        TOOL_TRY(bench_measure(device, &cases[i], samples, !options->has_custom, report));
        TOOL_TRY(bench_ceiling_sample(ceiling, 1));
    }
    tool_progress("configuration", num, num);
    return TOOL_OK;
}

static bool has_sweep(const bench_options *options, bench_sweep sweep)
{
    return !options->has_custom && options->sweeps & 1u << sweep;
}

/* A step that shows no progress of its own. */
#define TIMED(what, call)       \
    do {                        \
        tool_clock_begin(what); \
        TOOL_TRY(call);         \
        tool_clock_end();       \
    } while (0)

static int run_others(pst_device *device, const bench_options *options, bench_report *report)
{
    const uint32_t samples = options->quick ? QUICK_SAMPLES : SAMPLES;
    if (has_sweep(options, BENCH_SWEEP_GEMM))
        TIMED("overlap with a GEMM", bench_measure_overlaps(device, options->quick, report));
    else
        snprintf(report->no_overlap, sizeof(report->no_overlap), "not asked for");
    if (has_sweep(options, BENCH_SWEEP_HOST))
        TIMED("pinned tier", bench_measure_host_tier(device, options->quick, report));
    if (has_sweep(options, BENCH_SWEEP_GLU))
        TIMED("gated activations", bench_measure_glu(device, options->quick, samples, report));
    if (has_sweep(options, BENCH_SWEEP_LINEAR))
        TIMED("linears", bench_measure_linears(device, options->quick, samples, report));
    if (has_sweep(options, BENCH_SWEEP_PAIRS))
        TIMED("random pairs",
              bench_measure_pairs(device, options->quick ? QUICK_PAIRS : PAIRS, report));
    return TOOL_OK;
}

static int measure_all(pst_device *device, const bench_options *options, bench_report *report)
{
    const uint32_t samples = options->quick ? QUICK_SAMPLES : SAMPLES;
    bench_ceiling ceiling;
    TOOL_TRY(check_custom(device, options, report));
    TOOL_TRY(bench_ceiling_open(&ceiling, device, &report->machine, options->quick));
    TIMED("A0", bench_ceiling_sample(&ceiling, samples));
    bench_read_clocks(&report->machine);
    TOOL_TRY(bench_measure_nodes(device, samples, report));
    TOOL_TRY(run_cases(device, options, &ceiling, report));
    TOOL_TRY(run_others(device, options, report));
    return bench_ceiling_close(&ceiling, bench_ceiling_report(&ceiling, report));
}

static int verdict(const bench_report *report)
{
    const unsigned long long mismatches = bench_mismatches(report);
    const bench_pairs *pairs = &report->pairs;
    if (mismatches)
        return tool_fail(TOOL_NO, "%llu bytes differ", mismatches);
    if (pairs->faults || pairs->check_errors || pairs->moved_pages)
        return tool_fail(TOOL_NO, "random pairs: %llu faults, %llu pages lost, %llu moved",
                         (unsigned long long)pairs->faults, (unsigned long long)pairs->check_errors,
                         (unsigned long long)pairs->moved_pages);
    return TOOL_OK;
}

static int run(pst_device *device, const bench_options *options, bench_report *report)
{
    TOOL_TRY(bench_machine_of(device, options->cache, &report->machine));
    if (!options->call_cost)
        TOOL_TRY(measure_all(device, options, report));
    TOOL_TRY(bench_measure_calls(&report->cost));
    if (options->json)
        TOOL_TRY(bench_write_json(report, options->json));
    if (options->json == NULL || strcmp(options->json, "-") != 0)
        bench_print_report(report, options->json);
    TOOL_TRY(tool_flush(TOOL_OK));
    return verdict(report);
}

int main(int argc, char **argv)
{
    bench_options options = {.json = NULL};
    bench_report report = {.a0 = BENCH_NO_ANCHOR};
    pst_device *device = NULL;
    tool_name = "pagestash-bench";
    TOOL_TRY(bench_parse_options(argc, argv, &options));
    report.quick = options.quick;
    TOOL_PST(pst_device_open(options.call_cost ? "host" : options.device, 0, &device));
    const int code = run(device, &options, &report);
    bench_free_report(&report);
    const pst_status closed = pst_device_close(device);
    return code ? code : tool_status(closed);
}
