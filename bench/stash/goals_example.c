/* The goals of a report that nobody measured: tests/tools/test_bench.py knows what must come out. */
#include "bench/stash/goals.h"

#include <math.h>

enum { ALL_SMS = 132, MAX_RESULTS = 64 };

static bench_anchor anchors[] = {
    {.name = "driver_copy", .role = "a0", .bytes = 1000000000, .seconds = {1e-3, 1e-3, 1e-3, 21}},
    {.name = "empty_node", .role = "configuration", .seconds = {2e-6, 2e-6, 2e-6, 21}}};
static bench_result results[MAX_RESULTS];
static bench_report report = {.anchors = anchors, .num_anchors = 2, .results = results};

static bench_times always(double seconds)
{
    return (bench_times){seconds, seconds, seconds, 21};
}

int bench_fail(int code, const char *format, ...)
{
    (void)format;
    return code;
}

/* Cold and warm alike: stash and restore at so many shares of A0, 1000 bytes a nanosecond. */
static bench_result *add(bench_case what, double stash, double restore)
{
    const double shares[2] = {stash, restore};
    bench_result *result = &results[report.num_results++];
    *result = (bench_result){.what = what,
                             .bytes = what.pattern == BENCH_EMPTY ? 0 : what.bytes,
                             .num_sms = what.num_sms ? what.num_sms : ALL_SMS,
                             .nodes = {1, 1}};
    for (int state = 0; state < BENCH_NUM_STATES; state++)
        for (int op = 0; op < 2; op++) {
            bench_row *row = &result->rows[state][op];
            row->seconds = always((double)what.bytes * 1e-12 / shares[op]);
            row->share_of_own_copy = 0.98;
            for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
                row->anchors[slot] = BENCH_NO_ANCHOR;
        }
    return result;
}

static bench_case of(bench_sweep sweep, uint64_t mib)
{
    bench_case what = bench_base_case();
    what.sweep = sweep;
    what.bytes = mib * BENCH_MIB;
    return what;
}

static void add_budget(pst_backend backend, int num_sms, double stash, double restore)
{
    bench_case what = of(BENCH_SWEEP_NUM_SMS, 256);
    what.backend = backend;
    what.num_sms = num_sms;
    add(what, stash, restore);
}

static void add_copies(void)
{
    add(of(BENCH_SWEEP_BYTES, 1024), 0.97, 0.97);
    add(of(BENCH_SWEEP_BYTES, 512), 0.96, 0.951);
    add(of(BENCH_SWEEP_BYTES, 256), 0.92, 0.94);
    add(of(BENCH_SWEEP_BYTES, 64), 0.84, 0.9)->rows[BENCH_COLD][1].share_of_own_copy = 0.95;
    add(of(BENCH_SWEEP_BYTES, 16), 0.7, 0.66)->rows[BENCH_COLD][0].share_of_own_copy = 0.5;
    add_budget(PST_BACKEND_LDG, 8, 0.21, 0.2);
    add_budget(PST_BACKEND_LDG, 32, 0.8, 0.8);
    add_budget(PST_BACKEND_LDG, 48, 0.91, 0.89);
    add_budget(PST_BACKEND_LDG, 64, 0.96, 0.96);
    add_budget(PST_BACKEND_BULK, 8, 0.3, 0.19);
    add_budget(PST_BACKEND_BULK, 32, 0.9, 0.91);
    add_budget(PST_BACKEND_BULK, 64, 0.5, 0.5);
}

static void add_shapes(void)
{
    bench_case what = of(BENCH_SWEEP_PATTERN, 256);
    what.pattern = BENCH_UNIFORM;
    add(what, 0.9, 0.9);
    what.pattern = BENCH_FULL; /* more bytes in as much more time */
    what.bytes += 4 * BENCH_MIB;
    add(what, 0.9, 0.9);
    what.pattern = BENCH_ZIPF;
    add(what, 0.9, 0.9 / 1.02);
    what.pattern = BENCH_EMPTY;
    what.bytes = 1; /* for a time, below */
    bench_result *empty = add(what, 1, 1);
    for (int state = 0; state < BENCH_NUM_STATES; state++) {
        empty->rows[state][0].anchors[BENCH_EMPTY_NODE] = 1;
        empty->rows[state][0].seconds = always(state == BENCH_WARM ? 4e-6 : 3e-6);
    }
    what = of(BENCH_SWEEP_RING, 256);
    add(what, 0.9, 0.9);
    what.ring = BENCH_REVERSED;
    add(what, 0.9 / 1.04, 0.9);
    what = of(BENCH_SWEEP_PAGE_SIZE, 256);
    what.page_bytes = 16 * BENCH_KIB;
    add(what, 0.5, 0.9);
    what.page_bytes = 64 * BENCH_KIB;
    add(what, 0.9, 0.846);
    what = of(BENCH_SWEEP_TENSORS, 16);
    what.tensors = 1;
    const bench_result *one = add(what, 0.9, 0.9);
    what.tensors = 64;
    bench_result *many = add(what, 0.9, 0.9);
    many->rows[BENCH_COLD][1].seconds = always(one->rows[BENCH_COLD][1].seconds.median + 1.9e-6);
}

static void add_overlaps(void)
{
    report.overlaps[0] = (bench_overlap){.backend = PST_BACKEND_BULK,
                                         .num_sms = 33,
                                         .gemm_sms = ALL_SMS - 33,
                                         .gemm_alone = always(1.0),
                                         .gemm_beside = always(1.29)};
    report.overlaps[1] = (bench_overlap){.backend = PST_BACKEND_SQUEEZE,
                                         .num_sms = ALL_SMS,
                                         .gemm_sms = ALL_SMS,
                                         .gemm_alone = always(1.0),
                                         .gemm_beside = always(3.0)};
    report.num_overlaps = 2;
}

static void add_host_row(uint64_t mib, uint32_t num, uint32_t den, int num_sms, double seconds)
{
    bench_host_tier *tier = &report.host_tier;
    bench_host_row *row = &tier->rows[tier->num_rows++];
    *row = (bench_host_row){.bytes = 1,
                            .pool_bytes = mib * BENCH_MIB,
                            .is_part = mib == 0,
                            .num = num,
                            .den = den,
                            .num_sms = num_sms,
                            .seconds = {always(seconds), always(seconds)}};
    for (int op = 0; op < 2; op++) {
        const bool crosses = num == den && mib > 0;
        row->share_of_engine[op] = crosses ? 1e-3 / seconds : (double)NAN;
        row->share_of_sm_copy[op] = crosses ? 0.96e-3 / seconds : (double)NAN;
    }
}

static void add_host_tier(void)
{
    add_host_row(1024, 1, 1, 2, 2e-3);
    add_host_row(1024, 1, 1, 8, 1.1e-3);
    add_host_row(1024, 1, 1, ALL_SMS, 1e-3);
    add_host_row(1024, 1, 2, 8, 0.62e-3);
    add_host_row(16384, 1, 1, 8, 1.25e-3);
    add_host_row(16384, 1, 1, ALL_SMS, 1e-3);
    add_host_row(0, 1, 1, 8, 0.55e-3);
    add_host_row(0, 0, 1, 8, 0.1e-3);
    report.host_tier.recovery =
        (bench_recovery){.grown_bytes = 1024 * BENCH_MIB, .seconds = always(0.012)};
}

int main(void)
{
    report.machine.device.kind = PST_DEVICE_CUDA;
    report.machine.device.num_sms = ALL_SMS;
    add_copies();
    add_shapes();
    add_overlaps();
    add_host_tier();
    report.has_pairs = true;
    report.pairs = (bench_pairs){.pairs = 100000, .check_errors = 3};
    bench_print_goals(&report);
    return 0;
}
