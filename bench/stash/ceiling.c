/* A0: the best of all ways to copy contiguous bytes, sampled all through the run. */
#include "bench/stash/ceiling.h"

#include <inttypes.h>

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

int bench_ceiling_open(bench_ceiling *ceiling, pst_device *device, const bench_machine *machine,
                       bool quick)
{
    const uint64_t bytes = ceiling_bytes(machine, quick);
    uint64_t most, free_bytes;
    void *from = NULL, *to = NULL;
    TOOL_TRY(bench_memory_limit(device, machine, &most, &free_bytes));
    if (2 * bytes > most)
        return tool_fail(
            TOOL_NO, "A0: %" PRIu64 " bytes wanted, at most %" PRIu64 " of %" PRIu64 " bytes free",
            2 * bytes, most, free_bytes);
    TOOL_TRY(bench_timer_open(&ceiling->timer, device));
    TOOL_PST(pst_device_alloc(device, bytes, &from));
    TOOL_PST(pst_device_alloc(device, bytes, &to));
    ceiling->flat = (bench_flat){.timer = &ceiling->timer,
                                 .device = &machine->device,
                                 .role = "a0",
                                 .state = BENCH_COLD,
                                 .bytes = bytes,
                                 .source = from,
                                 .sink = to};
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (is_candidate(&machine->device, (bench_slot)slot))
            TOOL_TRY(bench_flat_add(&ceiling->flat, (bench_slot)slot, 0));
    return TOOL_OK;
}

int bench_ceiling_sample(bench_ceiling *ceiling, uint32_t num)
{
    for (uint32_t i = 0; i < num; i++)
        TOOL_TRY(bench_flat_sample(&ceiling->flat));
    return TOOL_OK;
}

int bench_ceiling_report(const bench_ceiling *ceiling, bench_report *report)
{
    TOOL_TRY(bench_flat_report(&ceiling->flat, report, &report->a0));
    report->a0 += (int)(bench_flat_best(&ceiling->flat, 0) - ceiling->flat.copies);
    return TOOL_OK;
}

int bench_ceiling_close(bench_ceiling *ceiling, int code)
{
    TOOL_TRY(code);
    TOOL_TRY(bench_flat_close(&ceiling->flat));
    TOOL_PST(pst_device_free(ceiling->timer.device, ceiling->flat.source));
    TOOL_PST(pst_device_free(ceiling->timer.device, ceiling->flat.sink));
    return bench_timer_close(&ceiling->timer);
}
