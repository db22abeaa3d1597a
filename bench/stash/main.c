/* pagestash-bench: how fast stash and restore are, next to plain copies. */
#include "bench/stash/options.h"
#include "bench/stash/rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 31, QUICK_SAMPLES = 21 };
enum { PAIRS = 100000, QUICK_PAIRS = 10000 };

static bool has_progress_line;

static void clear_progress_line(void)
{
    if (has_progress_line)
        fputs("\r\033[K", stderr);
    has_progress_line = false;
}

static void show_progress(size_t done, size_t all)
{
    if (!isatty(STDERR_FILENO))
        return;
    clear_progress_line();
    fprintf(stderr, "configuration %zu of %zu", done + 1, all);
    has_progress_line = true;
}

int bench_fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    clear_progress_line();
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

int bench_gpu(const char *error)
{
    return error ? bench_fail(BENCH_DEVICE, "%s", error) : BENCH_OK;
}

/* Before anything is measured. */
static int check_custom(pst_device *device, const bench_options *options, bench_report *report)
{
    const bench_case *custom = &options->custom;
    const pst_device_info *info = &report->machine.device;
    if (!options->has_custom)
        return BENCH_OK;
    if (custom->num_sms > info->num_sms)
        return bench_fail(BENCH_USAGE, "--num-sms %d: allowed are 0 to %d on %s", custom->num_sms,
                          info->num_sms, info->name);
    if (custom->backend != PST_BACKEND_AUTO && !(info->backends & 1u << custom->backend))
        return bench_fail(BENCH_DEVICE, "--backend %s: %s has none",
                          bench_backend_name(custom->backend), info->name);
    return bench_may_measure(device, custom, report);
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
        show_progress(i, num);
        BENCH_TRY(bench_measure(device, &cases[i], samples, !options->has_custom, report));
        BENCH_TRY(bench_ceiling_sample(ceiling, 1));
    }
    return BENCH_OK;
}

static bool has_sweep(const bench_options *options, bench_sweep sweep)
{
    return !options->has_custom && options->sweeps & 1u << sweep;
}

static int run_others(pst_device *device, const bench_options *options, bench_report *report)
{
    if (has_sweep(options, BENCH_SWEEP_GEMM))
        BENCH_TRY(bench_measure_overlaps(device, options->quick, report));
    else
        snprintf(report->no_overlap, sizeof(report->no_overlap), "not asked for");
    if (has_sweep(options, BENCH_SWEEP_HOST))
        BENCH_TRY(bench_measure_host_tier(device, options->quick, report));
    if (has_sweep(options, BENCH_SWEEP_PAIRS))
        BENCH_TRY(bench_measure_pairs(device, options->quick ? QUICK_PAIRS : PAIRS, report));
    return BENCH_OK;
}

static int measure_all(pst_device *device, const bench_options *options, bench_report *report)
{
    const uint32_t samples = options->quick ? QUICK_SAMPLES : SAMPLES;
    bench_ceiling ceiling;
    BENCH_TRY(check_custom(device, options, report));
    BENCH_TRY(bench_ceiling_open(&ceiling, device, &report->machine, options->quick));
    BENCH_TRY(bench_ceiling_sample(&ceiling, samples));
    bench_read_clocks(&report->machine);
    BENCH_TRY(bench_measure_nodes(device, samples, report));
    BENCH_TRY(run_cases(device, options, &ceiling, report));
    BENCH_TRY(run_others(device, options, report));
    clear_progress_line();
    return bench_ceiling_close(&ceiling, bench_ceiling_report(&ceiling, report));
}

static int run(pst_device *device, const bench_options *options, bench_report *report)
{
    BENCH_TRY(bench_machine_of(device, &report->machine));
    if (!options->call_cost)
        BENCH_TRY(measure_all(device, options, report));
    BENCH_TRY(bench_measure_calls(&report->cost));
    if (options->json)
        BENCH_TRY(bench_write_json(report, options->json));
    if (options->json == NULL || strcmp(options->json, "-") != 0)
        bench_print_report(report);
    if (fflush(stdout) != 0 && errno != EPIPE)
        return bench_fail(BENCH_NO, "standard output: %s", strerror(errno));
    const uint64_t mismatches = bench_mismatches(report);
    const bench_pairs *pairs = &report->pairs;
    if (mismatches)
        return bench_fail(BENCH_NO, "%llu bytes differ", (unsigned long long)mismatches);
    if (pairs->faults || pairs->check_errors || pairs->moved_pages)
        return bench_fail(BENCH_NO, "random pairs: %llu faults, %llu pages lost, %llu moved",
                          (unsigned long long)pairs->faults,
                          (unsigned long long)pairs->check_errors,
                          (unsigned long long)pairs->moved_pages);
    return BENCH_OK;
}

int main(int argc, char **argv)
{
    bench_options options = {.device = "auto"};
    bench_report report = {.a0 = BENCH_NO_ANCHOR};
    pst_device *device = NULL;
    BENCH_TRY(bench_parse_options(argc, argv, &options));
    report.quick = options.quick;
    BENCH_PST(pst_device_open(options.call_cost ? "host" : options.device, 0, &device));
    const int code = run(device, &options, &report);
    bench_free_report(&report);
    const pst_status closed = pst_device_close(device);
    return code ? code : bench_status(closed);
}
