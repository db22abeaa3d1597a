/* Reset, resize, step, check and expect on the CPU. */
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"

#include "kernels/core/control.h"
#include "kernels/core/mailbox.h"
#include "kernels/core/sketch.h"

static psti_ticket_record *ticket_of(const psti_pool_view *pool, uint32_t index)
{
    return (psti_ticket_record *)(uintptr_t)pool->tickets[index];
}

static void refill(const psti_pool_view *pool)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint32_t num_pages = pool->state->num_pages[tier];
        for (uint32_t page = 0; pool->scrubs && page < pool->max_pages[tier]; page++)
            if (psti_is_dirty(pool, page | tier << 31))
                scrub_page(pool, page | tier << 31);
        for (uint32_t page = 0; page < pool->max_pages[tier]; page++)
            psti_store_relaxed_u64(&pool->owner[tier][page], psti_first_owner(page, num_pages));
        for (uint32_t page = 0; page < num_pages; page++)
            pool->ring[tier][page & pool->ring_mask[tier]] = page | tier << 31;
    }
    for (uint32_t i = 0; i < pool->max_tickets; i++) {
        psti_ticket_record *ticket = ticket_of(pool, i);
        if (ticket) {
            ticket->ready = 0;
            ticket->arrive_in = 0;
        }
    }
    psti_reset_pages(pool->state);
}

void psti_host_reset(const void *opaque)
{
    const psti_control_args *args = opaque;
    if (args->what & PST_RESET_PAGES)
        refill(&args->pool);
    if (args->what & PST_RESET_FAULTS) {
        psti_reset_faults(args->pool.status);
        psti_end_schedule_refusal(args->pool.state);
    }
    if (args->what & PST_RESET_STATISTICS) {
        for (uint32_t i = 0; i < PSTI_SKETCH_BUCKETS; i++)
            args->pool.sketch[i] = 0;
        psti_reset_statistics(args->pool.state, args->pool.status);
    }
}

void psti_host_resize(const void *opaque)
{
    const psti_control_args *args = opaque;
    const psti_pool_view *pool = &args->pool;
    psti_pool_state *state = pool->state;
    if (psti_shrinks(state, args->num_pages)) {
        psti_set_num_pages(state, args->num_pages);
        refill(pool);
        return;
    }
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        for (uint32_t page = state->num_pages[tier]; page < args->num_pages[tier]; page++)
            psti_add_page(pool, tier, page);
    psti_add_pages(state, args->num_pages);
}

void psti_host_slab(const void *opaque)
{
    const psti_slab_args *args = opaque;
    for (uint32_t i = 0; i < args->num; i++)
        psti_make_record(args, i);
}

void psti_host_step(const void *opaque)
{
    const psti_control_args *args = opaque;
    pst_pool_status *status = args->pool.status;
    uint32_t *sketch = args->pool.sketch;
    uint64_t total = 0;
    psti_fold_step(args->pool.state, status);
    psti_sketch_add(sketch, status->step_demand);
    for (uint32_t bucket = 0; bucket < PSTI_SKETCH_BUCKETS; bucket++)
        total += sketch[bucket];
    psti_sketch_quantiles(sketch, 0, PSTI_SKETCH_BUCKETS, 0, total, status);
    psti_publish_covered(args->pool.state, args->covered, args->mailbox);
    psti_publish_status(status, args->mailbox);
    psti_store_relaxed_u32((uint32_t *)&status->step_valid, 1);
    psti_end_schedule_refusal(args->pool.state);
}

void psti_host_expect(const void *opaque)
{
    psti_expect_word(opaque);
}

void psti_host_check(const void *opaque)
{
    const psti_control_args *args = opaque;
    const psti_pool_view *pool = &args->pool;
    const psti_pool_state *state = pool->state;
    const uint32_t round = (uint32_t)++pool->status->checks;
    uint64_t met = 0;
    uint64_t errors = 0;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        uint64_t head;
        const uint64_t span = psti_check_span(pool, tier, &head, &errors);
        for (uint64_t i = 0; i < span; i++) {
            const uint32_t id = pool->ring[tier][(head + i) & pool->ring_mask[tier]];
            const bool right = psti_id_tier(id) == tier && psti_check_id(pool, id, 0, round);
            met += right;
            errors += !right;
        }
    }
    for (uint32_t i = 0; i < pool->max_tickets; i++) {
        psti_ticket_record *ticket = ticket_of(pool, i);
        if (!ticket || psti_ticket_now(ticket, state->epoch) != PSTI_TICKET_LIVE)
            continue;
        const uint32_t *table = psti_ticket_table(ticket, ticket->count_room);
        const uint64_t pages = psti_min_u64(ticket->num_pages, ticket->table_pages);
        for (uint64_t page = 0; page < pages; page++) {
            const uint64_t owner = psti_owner_word(i, state->epoch, page);
            const bool right = psti_check_id(pool, table[page], owner, round);
            met += right;
            errors += !right;
        }
    }
    psti_check_conclude(pool, met, errors);
}
