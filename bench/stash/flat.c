/* Plain copies of contiguous bytes: recorded, checked, sampled, reported. */
#include "bench/stash/flat.h"

#include <string.h>

static int enqueue(const bench_flat *flat, const bench_flat_copy *copy)
{
    const bool from_pinned = flat->pinned && !flat->to_pinned;
    return bench_enqueue_copy(flat->timer, copy->slot, copy->num_sms,
                              flat->to_pinned ? flat->pinned : flat->sink,
                              from_pinned ? flat->pinned : flat->source, flat->bytes);
}

/* Where one side is pinned, the driver brings the bytes there or back. */
static int check(const bench_flat *flat, bench_flat_copy *copy)
{
    const bench_timer *timer = flat->timer;
    const uint64_t key =
        flat->num + BENCH_MAX_FLAT_COPIES * (uint64_t)(flat->pinned && !flat->to_pinned);
    TOOL_TRY(bench_fill_flat(timer, flat->source, flat->bytes, key));
    if (flat->pinned)
        memset(flat->pinned, BENCH_POISON, flat->bytes);
    TOOL_PST(pst_device_fill(timer->device, flat->sink, BENCH_POISON, flat->bytes, timer->stream));
    if (flat->pinned && !flat->to_pinned)
        TOOL_PST(
            pst_device_copy(timer->device, flat->pinned, flat->source, flat->bytes, timer->stream));
    TOOL_PST(pst_graph_launch(copy->graph, timer->stream));
    if (flat->to_pinned)
        TOOL_PST(
            pst_device_copy(timer->device, flat->sink, flat->pinned, flat->bytes, timer->stream));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    return bench_verify_flat(timer, flat->sink, flat->bytes, key, &copy->mismatched_bytes);
}

/* Launched once before it is recorded, because that loads the kernel. */
int bench_flat_add(bench_flat *flat, bench_slot slot, int num_sms)
{
    bench_flat_copy *copy = &flat->copies[flat->num++];
    *copy = (bench_flat_copy){.slot = slot, .num_sms = num_sms};
    TOOL_TRY(enqueue(flat, copy));
    TOOL_PST(pst_stream_synchronize(flat->timer->device, flat->timer->stream));
    BENCH_RECORD(flat->timer, enqueue(flat, copy), &copy->graph);
    return check(flat, copy);
}

int bench_flat_sample(bench_flat *flat)
{
    double seconds;
    for (uint32_t i = 0; i < flat->num; i++) {
        TOOL_TRY(bench_time(flat->timer, flat->copies[i].graph, &seconds));
        bench_series_add(&flat->copies[i].series, seconds);
    }
    return TOOL_OK;
}

const bench_flat_copy *bench_flat_best(const bench_flat *flat, uint32_t first)
{
    const bench_flat_copy *best = NULL;
    double least = 0.0;
    for (uint32_t i = first; i < flat->num; i++) {
        const double median = bench_summary(&flat->copies[i].series).median;
        if (best == NULL || median < least) {
            best = &flat->copies[i];
            least = median;
        }
    }
    return best;
}

int bench_flat_report(const bench_flat *flat, bench_report *report, int *first_out)
{
    *first_out = (int)report->num_anchors;
    for (uint32_t i = 0; i < flat->num; i++) {
        const bench_flat_copy *copy = &flat->copies[i];
        const bench_anchor anchor = {.name = bench_anchor_name(flat->device, copy->slot),
                                     .role = flat->role,
                                     .state = flat->state,
                                     .bytes = flat->bytes,
                                     .num_sms = copy->num_sms,
                                     .nodes = 1,
                                     .seconds = bench_summary(&copy->series),
                                     .mismatched_bytes = copy->mismatched_bytes};
        int index;
        TOOL_TRY(bench_add_anchor(report, &anchor, &index));
    }
    return TOOL_OK;
}

int bench_flat_close(bench_flat *flat)
{
    for (uint32_t i = 0; i < flat->num; i++)
        TOOL_PST(pst_graph_destroy(flat->copies[i].graph));
    return TOOL_OK;
}
