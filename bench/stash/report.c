/* The lists that a report grows by. */
#include "bench/stash/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Room for one more; the new array or NULL. */
static void *grown(void *array, size_t num, size_t item_bytes)
{
    void *larger = realloc(array, (num + 1) * item_bytes);
    if (larger == NULL)
        tool_fail(TOOL_NO, "out of memory");
    return larger;
}

int bench_add_anchor(bench_report *report, const bench_anchor *anchor, int *index_out)
{
    bench_anchor *anchors = grown(report->anchors, report->num_anchors, sizeof(*anchors));
    if (anchors == NULL)
        return TOOL_NO;
    anchors[report->num_anchors] = *anchor;
    *index_out = (int)report->num_anchors;
    report->anchors = anchors;
    report->num_anchors++;
    return TOOL_OK;
}

int bench_add_result(bench_report *report, const bench_result *result)
{
    bench_result *results = grown(report->results, report->num_results, sizeof(*results));
    if (results == NULL)
        return TOOL_NO;
    results[report->num_results] = *result;
    report->results = results;
    report->num_results++;
    return TOOL_OK;
}

void bench_describe(const bench_case *what, char *text, size_t bytes)
{
    char pinned[48] = "", rows[64] = "";
    if (what->host_bytes)
        snprintf(pinned, sizeof(pinned), "%" PRIu64 " bytes pinned, ", what->host_bytes);
    if (what->row_bytes)
        snprintf(rows, sizeof(rows), "rows of %u every %u bytes, ", what->row_bytes,
                 what->row_stride);
    snprintf(text, bytes,
             "%" PRIu64 " bytes, %spages of %" PRIu64 ", %u tensors, %s%s, ring %s, alignment %u, "
             "backend %s, num_sms %d",
             what->bytes, pinned, what->page_bytes, what->tensors, rows,
             bench_pattern_name(what->pattern), bench_ring_name(what->ring), what->alignment,
             bench_backend_name(what->backend), what->num_sms);
}

int bench_add_skip(bench_report *report, const bench_case *what, const char *reason)
{
    bench_skip *skips = grown(report->skips, report->num_skips, sizeof(*skips));
    if (skips == NULL)
        return TOOL_NO;
    bench_skip *skip = &skips[report->num_skips];
    skip->sweep = what->sweep;
    bench_describe(what, skip->what, sizeof(skip->what));
    snprintf(skip->reason, sizeof(skip->reason), "%s", reason);
    report->skips = skips;
    report->num_skips++;
    return TOOL_OK;
}

const char *bench_call_name(bench_call call)
{
    static const char *const names[] = {"stash", "restore",       "describe",     "take",
                                        "give",  "take_captured", "give_captured"};
    return names[call];
}

void bench_free_report(bench_report *report)
{
    free(report->anchors);
    free(report->results);
    free(report->skips);
}

uint64_t bench_mismatches(const bench_report *report)
{
    uint64_t bytes = report->pairs.mismatched_bytes;
    for (size_t i = 0; i < report->num_anchors; i++)
        bytes += report->anchors[i].mismatched_bytes;
    for (size_t i = 0; i < report->num_results; i++)
        bytes += report->results[i].mismatched_bytes;
    for (size_t i = 0; i < report->num_overlaps; i++)
        bytes += report->overlaps[i].mismatched_bytes;
    for (size_t i = 0; i < report->host_tier.num_rows; i++)
        bytes += report->host_tier.rows[i].mismatched_bytes;
    bytes += report->host_tier.recovery.mismatched_bytes;
    for (size_t i = 0; i < report->num_glus; i++)
        bytes += report->glus[i].mismatched_bytes;
    return bytes;
}

uint64_t bench_pool_bytes(const bench_result *result)
{
    return result->pages * result->what.page_bytes * result->num_copies;
}

double bench_gbps(uint64_t bytes, const bench_times *seconds)
{
    return bytes ? (double)bytes / seconds->median * 1e-9 : 0.0;
}

double bench_share_of_a0(const bench_report *report, uint64_t bytes, const bench_times *seconds)
{
    if (bytes == 0 || report->a0 == BENCH_NO_ANCHOR)
        return (double)NAN;
    const bench_anchor *a0 = &report->anchors[report->a0];
    return bench_gbps(bytes, seconds) / bench_gbps(a0->bytes, &a0->seconds);
}
