/* What one thread does at the end of reset, step and check, and in expect, on the CPU and on the
 * GPU. */
#ifndef PSTI_CORE_CONTROL_H
#define PSTI_CORE_CONTROL_H

#include "kernels/core/pool.h"

/* The rings hold all pages, in order. */
PSTI_FN void psti_reset_pages(psti_pool_state *state)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        psti_store_relaxed_u64(&state->head[tier], 0);
        psti_store_relaxed_u64(&state->tail[tier], state->num_pages[tier]);
    }
    state->failed_wanted = 0;
    psti_store_relaxed_u32(&state->epoch, state->epoch + 1);
    psti_store_relaxed_u32(&state->refuse, 0);
    psti_store_relaxed_u32(&state->lock_next, 0);
    psti_store_relaxed_u32(&state->lock_serving, 0);
    /* an operation that wrongly overlaps this reset and has not claimed the word yet cannot */
    psti_store_release_u64(&state->launch, psti_launch_of((state->launch | 1) + 1));
}

/* A graph of another schedule runs: nothing that it does to the pool is wanted. */
PSTI_FN void psti_expect_word(const psti_expect_args *args)
{
    pst_pool_status *status = args->pool.status;
    const uint64_t found = psti_load_relaxed_u64(args->word);
    if (found == args->expected)
        return;
    psti_or_relaxed_u32(&args->pool.state->refuse, PSTI_REFUSES_SCHEDULE);
    if (!psti_claim_fault(status, PST_FAULT_SCHEDULE, UINT32_MAX, found))
        return;
    status->fault_free[0] = args->expected;
    status->fault_free[1] = 0;
    psti_store_release_u32(&status->fault_state, 2);
}

PSTI_FN void psti_end_schedule_refusal(psti_pool_state *state)
{
    const uint32_t refuse = psti_load_relaxed_u32(&state->refuse);
    psti_store_relaxed_u32(&state->refuse, refuse & ~PSTI_REFUSES_SCHEDULE);
}

PSTI_FN bool psti_shrinks(const psti_pool_state *state, const uint32_t *num_pages)
{
    return num_pages[0] < state->num_pages[0] || num_pages[1] < state->num_pages[1];
}

/* The owner word of a page after a reset. */
PSTI_FN uint64_t psti_first_owner(uint64_t page, uint32_t num_pages)
{
    return page < num_pages ? PSTI_OWNER_FREE : PSTI_OWNER_ABSENT;
}

/* A pool that grows: this page goes behind the free ones, which psti_add_pages publishes. */
PSTI_FN void psti_add_page(const psti_pool_view *pool, uint32_t tier, uint32_t page)
{
    const psti_pool_state *state = pool->state;
    const uint64_t tail = psti_load_relaxed_u64(&state->tail[tier]);
    const uint64_t slot = tail + (page - state->num_pages[tier]);
    psti_store_relaxed_u64(&pool->owner[tier][page], PSTI_OWNER_FREE);
    pool->ring[tier][slot & pool->ring_mask[tier]] = page | tier << 31;
}

PSTI_FN void psti_add_pages(psti_pool_state *state, const uint32_t *num_pages)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint64_t tail = psti_load_relaxed_u64(&state->tail[tier]);
        psti_store_relaxed_u64(&state->tail[tier],
                               tail + (num_pages[tier] - state->num_pages[tier]));
        state->num_pages[tier] = num_pages[tier];
    }
}

PSTI_FN void psti_set_num_pages(psti_pool_state *state, const uint32_t *num_pages)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        state->num_pages[tier] = num_pages[tier];
}

PSTI_FN void psti_reset_faults(pst_pool_status *status)
{
    status->struct_bytes = sizeof(*status);
    status->version = PST_VERSION;
    status->flags = 0;
    status->step_valid = 1;
    status->fault = PST_FAULT_NONE;
    status->fault_ticket = UINT32_MAX;
    status->num_faults = 0;
    status->fault_wanted = 0;
    status->fault_free[0] = 0;
    status->fault_free[1] = 0;
    psti_store_release_u32(&status->fault_state, 0);
}

PSTI_FN void psti_reset_statistics(psti_pool_state *state, pst_pool_status *status)
{
    status->high_water[0] = 0;
    status->high_water[1] = 0;
    status->demand_high_water = 0;
    status->step_demand = 0;
    status->spilled_pages = 0;
    status->offloaded_pages = 0;
    status->displaced_pages = 0;
    status->demoted_pages = 0;
    status->promoted_pages = 0;
    status->stranded_pages = 0;
    for (uint32_t i = 0; i < PSTI_QUANTILES; i++)
        status->demand_quantiles[i] = 0;
    state->step_high[0] = 0;
    state->step_high[1] = 0;
    state->step_demand = 0;
    psti_raise_marks(state);
}

/* Folds the marks of the step that ends here and opens the next. */
PSTI_FN void psti_fold_step(psti_pool_state *state, pst_pool_status *status)
{
    psti_raise_marks(state);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        status->high_water[tier] = psti_max_u64(status->high_water[tier], state->step_high[tier]);
        status->in_use[tier] = state->num_pages[tier] - psti_free_pages(state, tier);
        state->step_high[tier] = 0;
    }
    status->step_demand = state->step_demand;
    status->demand_high_water = psti_max_u64(status->demand_high_water, state->step_demand);
    state->step_demand = 0;
    status->epoch = state->epoch;
    status->steps++;
    psti_raise_marks(state);
}

/* Claims a page for a running check: true when this is its first sight. `round` tells this check's
 * marks from those of earlier ones. */
PSTI_FN bool psti_check_mark(const psti_pool_view *pool, uint32_t id, uint32_t round)
{
    const uint64_t word =
        (uint64_t)psti_id_tier(id) * pool->max_pages[PSTI_TIER_DEVICE] + psti_id_index(id);
    const uint32_t old = psti_load_relaxed_u32(&pool->seen[word]);
    return old != round && psti_cas_acq_rel_u32(&pool->seen[word], old, round) == old;
}

/* Whether ring or table entry `id` is right: in range, met for the first time, owned by `owner`. */
PSTI_FN bool psti_check_id(const psti_pool_view *pool, uint32_t id, uint64_t owner, uint32_t round)
{
    if (!psti_id_in_range(pool, id) ||
        psti_id_index(id) >= pool->state->num_pages[psti_id_tier(id)])
        return false;
    return psti_check_mark(pool, id, round) &&
           psti_load_relaxed_u64(psti_owner_of(pool, id)) == owner;
}

/* Free ids of a tier, the first at *head; 0 and an error where the ring's ends cannot be. */
PSTI_FN uint64_t psti_check_span(const psti_pool_view *pool, uint32_t tier, uint64_t *head,
                                 uint64_t *errors)
{
    *head = psti_load_relaxed_u64(&pool->state->head[tier]);
    const uint64_t span = psti_load_relaxed_u64(&pool->state->tail[tier]) - *head;
    if (span <= pool->state->num_pages[tier])
        return span;
    (*errors)++;
    return 0;
}

/* The record with this index is empty, and in the directory. */
PSTI_FN void psti_make_record(const psti_slab_args *args, uint32_t idx)
{
    const uint64_t address = args->first_record + idx * args->record_bytes;
    psti_ticket_record *record = (psti_ticket_record *)(uintptr_t)address;
    const psti_ticket_record header = {
        PSTI_TICKET_EMPTY, 0, idx, args->count_room, args->table_pages, 0, 0, 0, 0, 0, 0, 0};
    *record = header;
    args->pool.tickets[idx] = address;
}

/* After all ids were met: `met` of them right, `errors` wrong. Pages never met are lost. */
PSTI_FN void psti_check_conclude(const psti_pool_view *pool, uint64_t met, uint64_t errors)
{
    const psti_pool_state *state = pool->state;
    const uint64_t all = (uint64_t)state->num_pages[0] + state->num_pages[1];
    const uint64_t lost = all > met + errors ? all - met - errors : 0;
    const uint64_t wrong = psti_min_u64(errors + lost, UINT32_MAX);
    pool->status->check_errors = (uint32_t)wrong;
    if (wrong)
        psti_record_fault(pool, PST_FAULT_CHECK, UINT32_MAX, wrong);
}

#endif
