/* What follows an iteration that wanted more pages than the pool has: more pages, everything reset,
 * and the same work once more. */
#include "tools/replay/replay.h"

#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Whether the lack of pages is all that went wrong. A restore of what was not stashed is its
 * consequence. */
static bool is_overflow(const pst_pool_status *status)
{
    const uint32_t overflow = 1u << PST_FAULT_EXHAUSTED;
    const uint32_t consequence = 1u << PST_FAULT_FAILED;
    return status->step_valid == 0 && (status->flags & overflow) != 0 &&
           (status->flags & ~(overflow | consequence)) == 0;
}

/* Adds as many pages as were missing to a tier. */
static pst_status grow(replay_machine *machine, enum replay_tier tier,
                       const pst_pool_status *status, replay_result *result)
{
    uint64_t *pages = machine->num_pages;
    const uint64_t all = pages[REPLAY_DEVICE] + pages[REPLAY_HOST];
    const uint64_t missing = status->demand_high_water - all;
    uint64_t wanted[REPLAY_TIERS] = {pages[REPLAY_DEVICE], pages[REPLAY_HOST]};
    wanted[tier] += missing;
    const pst_status grown =
        pst_pool_resize(machine->pool, wanted[REPLAY_DEVICE], wanted[REPLAY_HOST]);
    if (grown != PST_OK)
        return grown;
    pages[tier] = wanted[tier];
    result->grown_pages[tier] += missing;
    result->times_grown++;
    return PST_OK;
}

/* The iteration that is thrown away leaves pages, faults and mismatches as they were before it. */
static int take_back(const replay_machine *machine, const replay_result *result)
{
    const pst_stream stream = machine->stream;
    TOOL_PST(pst_pool_reset(machine->pool, PST_RESET_PAGES | PST_RESET_FAULTS, stream));
    *machine->mismatches_pinned = result->mismatched_bytes;
    TOOL_PST(pst_device_copy(machine->device, machine->mismatches, machine->mismatches_pinned,
                             sizeof(uint64_t), stream));
    return tool_status(pst_stream_synchronize(machine->device, stream));
}

int replay_recover(replay_machine *machine, const pst_pool_status *status, replay_result *result,
                   bool *again_out)
{
    const enum replay_tier tier =
        machine->options->on_overflow == REPLAY_GROW ? REPLAY_DEVICE : REPLAY_HOST;
    *again_out = false;
    if (machine->options->on_overflow == REPLAY_FAIL || !is_overflow(status) ||
        result->growth_failure[0] != '\0')
        return TOOL_OK;
    const double begin = now();
    const pst_status grown = grow(machine, tier, status, result);
    if (grown == PST_E_NOMEM || grown == PST_E_DEVICE_NOMEM) {
        snprintf(result->growth_failure, sizeof(result->growth_failure), "%s", tool_last_message());
        return TOOL_OK;
    }
    TOOL_PST(grown);
    TOOL_TRY(take_back(machine, result));
    machine->recover_seconds[result->steps_retried++] = now() - begin;
    *again_out = true;
    return TOOL_OK;
}
