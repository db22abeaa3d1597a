#include "bench/stash/goals.h"

#include <inttypes.h>
#include <math.h>

enum { STASH, RESTORE };
enum { FEW_SMS = 8 };

static bool is_whole(const bench_host_row *row)
{
    return !row->is_part && row->num == row->den;
}

/* The best of the budgets that may be used, in the smallest pool. */
static bench_figure best_share(const bench_host_tier *tier, int op, bool of_engine, int most_sms)
{
    bench_figure best = bench_no_figure();
    for (size_t i = 0; i < tier->num_rows; i++) {
        const bench_host_row *row = &tier->rows[i];
        if (is_whole(row) && row->pool_bytes == tier->rows[0].pool_bytes &&
            row->num_sms <= most_sms)
            bench_worsen(&best, of_engine ? row->share_of_engine[op] : row->share_of_sm_copy[op],
                         true, "%s with %d SMs", op == STASH ? "stash" : "restore", row->num_sms);
    }
    return best;
}

static double part_seconds(const bench_host_tier *tier, int num_sms, bool pinned)
{
    for (size_t i = 0; i < tier->num_rows; i++)
        if (tier->rows[i].is_part && tier->rows[i].num_sms == num_sms &&
            (tier->rows[i].num != 0) == pinned)
            return tier->rows[i].seconds[STASH].median;
    return (double)NAN;
}

static bench_figure mixed_over_part(const bench_host_tier *tier)
{
    bench_figure most = bench_no_figure();
    for (size_t i = 0; i < tier->num_rows; i++) {
        const bench_host_row *row = &tier->rows[i];
        const double device = part_seconds(tier, row->num_sms, false);
        const double host = part_seconds(tier, row->num_sms, true);
        if (row->is_part || row->num == row->den || isnan(device) || isnan(host))
            continue;
        bench_worsen(&most, row->seconds[STASH].median / fmax(device, host), true,
                     "%u/%u with %d SMs, pool of %" PRIu64 " MiB", row->num, row->den, row->num_sms,
                     row->pool_bytes / BENCH_MIB);
    }
    return most;
}

/* Of the larger pool over the smaller one. */
static bench_figure large_pool(const bench_host_tier *tier)
{
    bench_figure least = bench_no_figure();
    for (size_t i = 0; i < tier->num_rows; i++)
        for (size_t j = 0; j < tier->num_rows; j++) {
            const bench_host_row *small = &tier->rows[i], *large = &tier->rows[j];
            if (!is_whole(small) || !is_whole(large) || small->num_sms != large->num_sms ||
                small->pool_bytes >= large->pool_bytes)
                continue;
            for (int op = 0; op < 2; op++)
                bench_worsen(&least, small->seconds[op].median / large->seconds[op].median, false,
                             "%s with %d SMs, %" PRIu64 " over %" PRIu64 " MiB",
                             op == STASH ? "stash" : "restore", large->num_sms,
                             large->pool_bytes / BENCH_MIB, small->pool_bytes / BENCH_MIB);
        }
    return least;
}

void bench_print_host_goals(const bench_report *report)
{
    const bench_host_tier *tier = &report->host_tier;
    const char *missing = "sweep host, or what it skipped";
    bench_figure figure = best_share(tier, STASH, true, FEW_SMS);
    bench_print_goal("T1", "stash to host: share of the engine, at most 8 SMs", &figure, false,
                     0.92, missing);
    figure = best_share(tier, RESTORE, false, report->machine.device.num_sms);
    bench_print_goal("T2", "restore from it: share of the best SM copy", &figure, false, 0.95,
                     missing);
    figure = mixed_over_part(tier);
    bench_print_goal("T3", "seconds of a mixed stash over its larger part", &figure, true, 1.1,
                     missing);
    figure = large_pool(tier);
    bench_print_goal("T4", "speed in 16 GiB of host pages over that in 1 GiB", &figure, false, 0.9,
                     "sweep host without --quick, and memory for both");
    figure = bench_no_figure();
    if (tier->recovery.seconds.samples)
        bench_worsen(&figure, tier->recovery.seconds.median * 1e3, true, "grow by %" PRIu64 " MiB",
                     tier->recovery.grown_bytes / BENCH_MIB);
    bench_print_goal("T5", "ms to grow by 1 GiB of device pages, and reset", &figure, true, 50,
                     *tier->recovery.unavailable ? tier->recovery.unavailable : missing);
}
