/* Plain copies between the device and pinned memory: the driver's, which a copy engine does, and
 * our own on some SMs and on all. */
#include "bench/stash/host_tier.h"

#include <string.h>

static const int budgets[] = {8, 0};
enum { NUM_BUDGETS = sizeof(budgets) / sizeof(budgets[0]) };

static int enqueue(const bench_link *link, int direction, const bench_link_copy *copy)
{
    const bench_rig *rig = link->rig;
    const bench_copy *buffers = &rig->copies[0];
    const bool out = direction == BENCH_TO_HOST;
    return bench_enqueue_copy(&rig->timer, copy->slot, copy->num_sms,
                              out ? link->pinned : buffers->target,
                              out ? buffers->arena : link->pinned, rig->shape.live_bytes);
}

/* Out by the copy and back by the driver, or the other way round. */
static int check(const bench_link *link, int direction, bench_link_copy *copy, uint64_t key)
{
    const bench_rig *rig = link->rig;
    const bench_timer *timer = &rig->timer;
    const uint64_t bytes = rig->shape.live_bytes;
    unsigned char *arena = rig->copies[0].arena, *target = rig->copies[0].target;
    TOOL_TRY(bench_fill_flat(timer, arena, bytes, key));
    memset(link->pinned, BENCH_POISON, bytes);
    TOOL_PST(pst_device_fill(rig->device, target, BENCH_POISON, bytes, timer->stream));
    if (direction == BENCH_FROM_HOST)
        TOOL_PST(pst_device_copy(rig->device, link->pinned, arena, bytes, timer->stream));
    TOOL_PST(pst_graph_launch(copy->graph, timer->stream));
    if (direction == BENCH_TO_HOST)
        TOOL_PST(pst_device_copy(rig->device, target, link->pinned, bytes, timer->stream));
    TOOL_PST(pst_stream_synchronize(rig->device, timer->stream));
    return bench_verify_flat(timer, target, bytes, key, &copy->mismatched_bytes);
}

/* Launched once before it is recorded, because that loads the kernel. */
static int add(bench_link *link, int direction, bench_slot slot, int num_sms)
{
    const bench_timer *timer = &link->rig->timer;
    const uint32_t number = link->num[direction]++;
    bench_link_copy *copy = &link->copies[direction][number];
    *copy = (bench_link_copy){.slot = slot, .num_sms = num_sms};
    TOOL_TRY(enqueue(link, direction, copy));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    BENCH_RECORD(timer, enqueue(link, direction, copy), &copy->graph);
    return check(link, direction, copy, number + BENCH_MAX_LINK_COPIES * (uint64_t)direction);
}

int bench_link_open(bench_link *link, const bench_rig *rig)
{
    const pst_device_info *info = &rig->machine->device;
    *link = (bench_link){.rig = rig};
    TOOL_PST(pst_device_alloc_pinned(rig->device, rig->shape.live_bytes, &link->pinned));
    for (int direction = 0; direction < BENCH_DIRECTIONS; direction++) {
        bench_slot own[BENCH_NUM_ANCHORS];
        const bool is_stash = direction == BENCH_TO_HOST;
        const uint32_t num = bench_own_copies(info, PST_BACKEND_AUTO, is_stash, own);
        TOOL_TRY(add(link, direction, BENCH_DRIVER_COPY, 0));
        for (uint32_t i = 0; i < num && !rig->timer.is_host; i++)
            for (int b = 0; b < NUM_BUDGETS; b++)
                if (budgets[b] < info->num_sms)
                    TOOL_TRY(add(link, direction, own[i], budgets[b]));
    }
    return TOOL_OK;
}

int bench_link_sample(bench_link *link)
{
    double seconds;
    for (int direction = 0; direction < BENCH_DIRECTIONS; direction++)
        for (uint32_t i = 0; i < link->num[direction]; i++) {
            bench_link_copy *copy = &link->copies[direction][i];
            TOOL_TRY(bench_time(&link->rig->timer, copy->graph, &seconds));
            bench_series_add(&copy->series, seconds);
        }
    return TOOL_OK;
}

const bench_link_copy *bench_link_best(const bench_link *link, int direction)
{
    const bench_link_copy *best = NULL;
    double least = 0.0;
    for (uint32_t i = 1; i < link->num[direction]; i++) {
        const bench_link_copy *copy = &link->copies[direction][i];
        const double median = bench_summary(&copy->series).median;
        if (best == NULL || median < least) {
            best = copy;
            least = median;
        }
    }
    return best;
}

int bench_link_report(const bench_link *link, bench_report *report)
{
    bench_host_tier *tier = &report->host_tier;
    for (int direction = 0; direction < BENCH_DIRECTIONS; direction++) {
        const bench_link_copy *best = bench_link_best(link, direction);
        tier->sm_copy[direction] = BENCH_NO_ANCHOR;
        for (uint32_t i = 0; i < link->num[direction]; i++) {
            const bench_link_copy *copy = &link->copies[direction][i];
            const bench_anchor anchor = {
                .name = bench_anchor_name(&report->machine.device, copy->slot),
                .role = direction == BENCH_TO_HOST ? "to_host" : "from_host",
                .state = BENCH_WARM,
                .bytes = link->rig->shape.live_bytes,
                .num_sms = copy->num_sms,
                .nodes = 1,
                .seconds = bench_summary(&copy->series),
                .mismatched_bytes = copy->mismatched_bytes};
            int index;
            TOOL_TRY(bench_add_anchor(report, &anchor, &index));
            if (i == 0)
                tier->engine[direction] = index;
            if (copy == best)
                tier->sm_copy[direction] = index;
        }
    }
    return TOOL_OK;
}

int bench_link_close(bench_link *link)
{
    for (int direction = 0; direction < BENCH_DIRECTIONS; direction++)
        for (uint32_t i = 0; i < link->num[direction]; i++)
            TOOL_PST(pst_graph_destroy(link->copies[direction][i].graph));
    return tool_status(pst_device_free_pinned(link->rig->device, link->pinned));
}
