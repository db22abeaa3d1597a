/* A0: the best of all ways to copy contiguous bytes, sampled all through the run. */
#include "bench/stash/ceiling.h"

#include <inttypes.h>
#include <stdlib.h>

static bool is_candidate(const pst_device_info *device, bench_slot slot)
{
    switch (slot) {
    case BENCH_OWN_SQUEEZE:
    case BENCH_OWN_SQUEEZE_STREAMING:
    case BENCH_CUB_BATCHED:
    case BENCH_FULL_CAPACITY:
    case BENCH_EMPTY_NODE:
        return false;
    default:
        return bench_has_anchor(device, slot);
    }
}

/* One copy moves four times the cache at least, and so finds nothing of the one before in it. */
static uint64_t ceiling_bytes(const bench_machine *machine, bool quick)
{
    const bool is_small = quick && machine->device.kind == PST_DEVICE_HOST;
    const uint64_t usual = (is_small ? 256 : 1024) * BENCH_MIB, cold = 2 * machine->cache_bytes;
    return usual > cold ? usual : cold;
}

static int check(bench_ceiling *ceiling, bench_slot slot)
{
    const bench_timer *timer = &ceiling->timer;
    TOOL_PST(
        pst_device_fill(timer->device, ceiling->to, BENCH_POISON, ceiling->bytes, timer->stream));
    TOOL_TRY(bench_replay(timer, ceiling->graphs[slot]));
    return bench_verify_flat(timer, ceiling->to, ceiling->bytes, slot,
                             &ceiling->mismatched_bytes[slot]);
}

/* Launched once before it is recorded, because that loads the kernel. */
static int make_candidate(bench_ceiling *ceiling, bench_slot slot)
{
    const bench_timer *timer = &ceiling->timer;
    TOOL_TRY(bench_fill_flat(timer, ceiling->from, ceiling->bytes, slot));
    TOOL_TRY(bench_enqueue_copy(timer, slot, 0, ceiling->to, ceiling->from, ceiling->bytes));
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    BENCH_RECORD(timer,
                 bench_enqueue_copy(timer, slot, 0, ceiling->to, ceiling->from, ceiling->bytes),
                 &ceiling->graphs[slot]);
    return check(ceiling, slot);
}

static int make_candidates(bench_ceiling *ceiling)
{
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (is_candidate(&ceiling->machine->device, (bench_slot)slot))
            TOOL_TRY(make_candidate(ceiling, (bench_slot)slot));
    return TOOL_OK;
}

int bench_ceiling_open(bench_ceiling *ceiling, pst_device *device, const bench_machine *machine,
                       bool quick)
{
    uint64_t most, free_bytes;
    void *memory = NULL;
    *ceiling = (bench_ceiling){.machine = machine, .bytes = ceiling_bytes(machine, quick)};
    ceiling->series = calloc(BENCH_NUM_ANCHORS, sizeof(ceiling->series[0]));
    if (ceiling->series == NULL)
        return tool_fail(TOOL_NO, "out of memory");
    TOOL_TRY(bench_memory_limit(device, machine, &most, &free_bytes));
    if (2 * ceiling->bytes > most)
        return tool_fail(
            TOOL_NO, "A0: %" PRIu64 " bytes wanted, at most %" PRIu64 " of %" PRIu64 " bytes free",
            2 * ceiling->bytes, most, free_bytes);
    TOOL_TRY(bench_timer_open(&ceiling->timer, device));
    TOOL_PST(pst_device_alloc(device, ceiling->bytes, &memory));
    ceiling->from = memory;
    TOOL_PST(pst_device_alloc(device, ceiling->bytes, &memory));
    ceiling->to = memory;
    return make_candidates(ceiling);
}

int bench_ceiling_sample(bench_ceiling *ceiling, uint32_t num)
{
    double seconds;
    for (uint32_t i = 0; i < num; i++)
        for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
            if (ceiling->graphs[slot]) {
                TOOL_TRY(bench_time(&ceiling->timer, ceiling->graphs[slot], &seconds));
                bench_series_add(&ceiling->series[slot], seconds);
            }
    return TOOL_OK;
}

int bench_ceiling_report(const bench_ceiling *ceiling, bench_report *report)
{
    double best = 0.0;
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++) {
        if (ceiling->graphs[slot] == NULL)
            continue;
        const bench_anchor anchor = {
            .name = bench_anchor_name(&ceiling->machine->device, (bench_slot)slot),
            .role = "a0",
            .state = BENCH_COLD,
            .bytes = ceiling->bytes,
            .nodes = 1,
            .seconds = bench_summary(&ceiling->series[slot]),
            .mismatched_bytes = ceiling->mismatched_bytes[slot]};
        int index;
        TOOL_TRY(bench_add_anchor(report, &anchor, &index));
        if (best <= 0.0 || anchor.seconds.median < best) {
            best = anchor.seconds.median;
            report->a0 = index;
        }
    }
    return TOOL_OK;
}

int bench_ceiling_close(bench_ceiling *ceiling, int code)
{
    pst_device *device = ceiling->timer.device;
    TOOL_TRY(code);
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        TOOL_PST(pst_graph_destroy(ceiling->graphs[slot]));
    free(ceiling->series);
    TOOL_PST(pst_device_free(device, ceiling->from));
    TOOL_PST(pst_device_free(device, ceiling->to));
    return bench_timer_close(&ceiling->timer);
}
