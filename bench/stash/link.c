/* Plain copies between the device and pinned memory: the driver's, which a copy engine does, and
 * our own on some SMs and on all. */
#include "bench/stash/link.h"

static int add_own(bench_flat *way, bool is_stash)
{
    static const int budgets[] = {8, 0};
    bench_slot own[BENCH_NUM_ANCHORS];
    const uint32_t num = bench_own_copies(way->device, PST_BACKEND_AUTO, is_stash, own);
    for (uint32_t i = 0; i < num && !way->timer->is_host; i++)
        for (int b = 0; b < 2; b++)
            if (budgets[b] < way->device->num_sms)
                TOOL_TRY(bench_flat_add(way, own[i], budgets[b]));
    return TOOL_OK;
}

int bench_link_open(bench_link *link, const bench_rig *rig)
{
    void *pinned = NULL;
    TOOL_PST(pst_device_alloc_pinned(rig->device, rig->shape.live_bytes, &pinned));
    for (int op = 0; op < 2; op++) {
        const bool is_stash = op == 0;
        link->ways[op] = (bench_flat){.timer = &rig->timer,
                                      .device = &rig->machine->device,
                                      .role = is_stash ? "to_host" : "from_host",
                                      .state = BENCH_WARM,
                                      .bytes = rig->shape.live_bytes,
                                      .source = rig->copies[0].arena,
                                      .sink = rig->copies[0].target,
                                      .pinned = pinned,
                                      .to_pinned = is_stash};
        TOOL_TRY(bench_flat_add(&link->ways[op], BENCH_DRIVER_COPY, 0));
        TOOL_TRY(add_own(&link->ways[op], is_stash));
    }
    return TOOL_OK;
}

int bench_link_sample(bench_link *link)
{
    TOOL_TRY(bench_flat_sample(&link->ways[0]));
    return bench_flat_sample(&link->ways[1]);
}

int bench_link_report(const bench_link *link, bench_report *report)
{
    bench_host_tier *tier = &report->host_tier;
    for (int op = 0; op < 2; op++) {
        const bench_flat *way = &link->ways[op];
        const bench_flat_copy *best = bench_flat_best(way, 1);
        TOOL_TRY(bench_flat_report(way, report, &tier->engine[op]));
        tier->sm_copy[op] = best ? tier->engine[op] + (int)(best - way->copies) : BENCH_NO_ANCHOR;
    }
    return TOOL_OK;
}

int bench_link_close(bench_link *link)
{
    for (int op = 0; op < 2; op++)
        TOOL_TRY(bench_flat_close(&link->ways[op]));
    return tool_status(pst_device_free_pinned(link->ways[0].timer->device, link->ways[0].pinned));
}
