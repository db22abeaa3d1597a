/* The table on stdout. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>

#define MIB ((double)(1 << 20))

enum { GOAL_MIN_MIB = 64 };
static const double goal_share = 0.9; /* of memcpy, on host */

void bench_print_header(const pst_device_info *device)
{
    printf("device %s; copy is %s of the same bytes\n\n", device->name,
           device->kind == PST_DEVICE_HOST ? "memcpy" : "pst_device_copy");
    printf("%-7s %9s %8s %8s %-10s %8s %10s %8s %8s %6s %10s\n", "op", "MiB", "tensors", "page KiB",
           "pattern", "num sms", "median ms", "GB/s", "copy", "share", "mismatched");
}

static void print_row(const bench_result *result, const char *op, const bench_times *times,
                      double share)
{
    const double bytes = (double)result->bytes;
    printf("%-7s %9.2f %8u %8" PRIu64 " %-10s %8d %10.3f %8.2f %8.2f %6.2f %10" PRIu64 "\n", op,
           bytes / MIB, result->what.tensors, result->what.page_bytes >> 10,
           bench_pattern_name(result->what.pattern), result->num_sms, times->median * 1e3,
           bytes / times->median * 1e-9, bytes / result->copy.median * 1e-9, share,
           result->mismatched_bytes);
}

void bench_print_result(const bench_result *result)
{
    print_row(result, "stash", &result->stash, result->stash_share);
    print_row(result, "restore", &result->restore, result->restore_share);
    fflush(stdout);
}

/* The smallest shares among the groups that the goal speaks of. */
static void print_shares(const bench_report *report)
{
    double stash = 0.0, restore = 0.0;
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        const double s = result->stash_share, r = result->restore_share;
        if (result->what.bytes < (uint64_t)GOAL_MIN_MIB << 20)
            continue;
        stash = stash > 0.0 && stash < s ? stash : s;
        restore = restore > 0.0 && restore < r ? restore : r;
    }
    if (stash <= 0.0)
        return;
    printf("least share of copy at %d MiB and more: stash %.2f, restore %.2f", GOAL_MIN_MIB, stash,
           restore);
    if (report->device.kind == PST_DEVICE_HOST)
        printf(" (goal %.1f)", goal_share);
    putchar('\n');
}

static void print_call_cost(const bench_call_cost *cost)
{
    if (cost->unavailable) {
        printf("argument path of a stash call: unavailable: %s\n", cost->unavailable);
        return;
    }
    printf("argument path of a stash call on cuda, launch left out:");
    for (int i = 0; i < BENCH_CALL_TENSORS; i++)
        printf("%s %.0f ns for %u tensors", i ? "," : "", cost->ns[i].median, cost->tensors[i]);
    printf(" (goal %d ns)\n", BENCH_CALL_TARGET_NS);
}

void bench_print_summary(const bench_report *report)
{
    uint64_t mismatched_bytes = 0;
    for (size_t i = 0; i < report->num_results; i++)
        mismatched_bytes += report->results[i].mismatched_bytes;
    if (report->num_results)
        putchar('\n');
    print_shares(report);
    print_call_cost(report->cost);
    if (report->num_results)
        printf("mismatched bytes: %" PRIu64 "\n", mismatched_bytes);
}
