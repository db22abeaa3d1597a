/* Reset, resize, step, check and expect. They run alone, see pagestash/pool.h. */
#ifndef PSTI_CUDA_CONTROL_CUH
#define PSTI_CUDA_CONTROL_CUH

#include "kernels/cuda/copy.cuh"

#include "kernels/core/control.h"
#include "kernels/core/mailbox.h"
#include "kernels/core/sketch.h"

PSTI_DEVICE psti_ticket_record *ticket_at(const psti_pool_view &pool, uint32_t index)
{
    return (psti_ticket_record *)pool.tickets[index];
}

/* Clears pages and sets owner words: a page is one block's, which so clears it before nobody can
 * tell any more that it was held. */
PSTI_DEVICE void scrub_tier(const psti_pool_view &pool, uint32_t tier, uint32_t num_pages)
{
    for (uint64_t page = team_of(); page < pool.max_pages[tier]; page += num_teams()) {
        const uint32_t id = (uint32_t)page | tier << 31;
        const bool dirty = psti_is_dirty(&pool, id);
        PSTI_SYNC_TEAM();
        for (uint64_t at = 0; dirty && at >> pool.page_shift == 0; at += PSTI_TILE_BYTES)
            clear_tile(psti_page_address(&pool, id) + at);
        if (thread_of() == 0)
            pool.owner[tier][page] = psti_first_owner(page, num_pages);
    }
}

PSTI_DEVICE void refill(const psti_pool_view &pool, const uint32_t *num_pages)
{
    const uint32_t first = team_of() * num_threads() + thread_of();
    const uint32_t stride = num_teams() * num_threads();
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        if (pool.scrubs)
            scrub_tier(pool, tier, num_pages[tier]);
        for (uint64_t page = first; !pool.scrubs && page < pool.max_pages[tier]; page += stride)
            pool.owner[tier][page] = psti_first_owner(page, num_pages[tier]);
        for (uint64_t page = first; page < num_pages[tier]; page += stride)
            pool.ring[tier][page & pool.ring_mask[tier]] = (uint32_t)page | tier << 31;
    }
    for (uint32_t i = first; i < pool.max_tickets; i += stride) {
        psti_ticket_record *ticket = ticket_at(pool, i);
        if (ticket) {
            ticket->ready = 0;
            ticket->arrive_in = 0;
            ticket->launch = psti_launch_of(ticket->launch);
        }
    }
}

/* True in one thread, of the last block. */
PSTI_DEVICE bool is_last(psti_pool_state *state)
{
    PSTI_SYNC_TEAM();
    if (thread_of() != 0 || psti_add_acq_rel_u64(&state->arrive, 1) + 1 != num_teams())
        return false;
    psti_store_relaxed_u64(&state->arrive, 0);
    return true;
}

PSTI_DEVICE void clear_sketch(const psti_pool_view &pool)
{
    const uint32_t first = team_of() * num_threads() + thread_of();
    for (uint32_t i = first; i < PSTI_SKETCH_BUCKETS; i += num_teams() * num_threads())
        pool.sketch[i] = 0;
}

static inline uint64_t reset_work(const psti_control_args *args)
{
    const uint64_t all = (uint64_t)args->pool.max_pages[0] + args->pool.max_pages[1];
    const uint64_t pages = args->what & PST_RESET_PAGES ? all : 0;
    return args->pool.scrubs ? pages : pages / PSTI_MAX_THREADS + 1;
}

PSTI_KERNEL(reset_kernel, psti_control_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    const bool pages = (args.what & PST_RESET_PAGES) != 0;
    psti_pool_state *state = args.pool.state;
    if (pages)
        refill(args.pool, state->num_pages);
    if (args.what & PST_RESET_STATISTICS)
        clear_sketch(args.pool);
    if (!is_last(state))
        return;
    if (pages)
        psti_reset_pages(state);
    if (args.what & PST_RESET_FAULTS) {
        psti_reset_faults(args.pool.status);
        psti_end_schedule_refusal(state);
    }
    if (args.what & PST_RESET_STATISTICS)
        psti_reset_statistics(state, args.pool.status);
}

static inline uint64_t resize_work(const psti_control_args *args)
{
    return args->pool.max_pages[0] / PSTI_MAX_THREADS + 1;
}

PSTI_KERNEL(resize_kernel, psti_control_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    const uint32_t first = team_of() * num_threads() + thread_of();
    const uint32_t stride = num_teams() * num_threads();
    psti_pool_state *state = args.pool.state;
    const bool shrinks = psti_shrinks(state, args.num_pages);
    if (shrinks)
        refill(args.pool, args.num_pages);
    for (uint32_t tier = 0; tier < PSTI_TIERS && !shrinks; tier++)
        for (uint64_t page = (uint64_t)state->num_pages[tier] + first; page < args.num_pages[tier];
             page += stride)
            psti_add_page(&args.pool, tier, (uint32_t)page);
    if (!is_last(state))
        return;
    if (shrinks) {
        psti_set_num_pages(state, args.num_pages);
        psti_reset_pages(state);
    } else {
        psti_add_pages(state, args.num_pages);
    }
}

static inline uint64_t slab_work(const psti_slab_args *args)
{
    return args->num / PSTI_MAX_THREADS + 1;
}

PSTI_KERNEL(slab_kernel, psti_slab_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    const uint32_t first = team_of() * num_threads() + thread_of();
    for (uint32_t i = first; i < args.num; i += num_teams() * num_threads())
        psti_make_record(&args, i);
}

/* Each thread has the counters of the same number of buckets. */
PSTI_DEVICE void work_out_quantiles(block_scratch &scratch, const psti_pool_view &pool)
{
    const uint32_t each = (PSTI_SKETCH_BUCKETS + num_threads() - 1) / num_threads();
    const uint32_t first = (uint32_t)psti_min_u64(thread_of() * each, PSTI_SKETCH_BUCKETS);
    const uint32_t end = (uint32_t)psti_min_u64(first + each, PSTI_SKETCH_BUCKETS);
    uint64_t mine = 0;
    uint64_t total;
    for (uint32_t bucket = first; bucket < end; bucket++)
        mine += pool.sketch[bucket];
    const uint64_t below = block_exclusive_scan(scratch, mine, &total);
    psti_sketch_quantiles(pool.sketch, first, end, below, total, pool.status);
}

/* One block. */
PSTI_KERNEL(step_kernel, psti_control_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    PSTI_SHARED(block_scratch, scratch);
    pst_pool_status *status = args.pool.status;
    if (thread_of() == 0) {
        psti_fold_step(args.pool.state, status);
        psti_sketch_add(args.pool.sketch, status->step_demand);
    }
    PSTI_SYNC_TEAM();
    work_out_quantiles(scratch, args.pool);
    PSTI_SYNC_TEAM();
    if (thread_of() != 0)
        return;
    psti_publish_covered(args.pool.state, args.covered, args.mailbox);
    psti_publish_status(status, args.mailbox);
    psti_store_relaxed_u32((uint32_t *)&status->step_valid, 1);
    psti_end_schedule_refusal(args.pool.state);
}

/* One block. */
PSTI_KERNEL(expect_kernel, psti_expect_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    if (thread_of() == 0)
        psti_expect_word(&args);
}

struct check_counts {
    uint64_t met, errors;
};

PSTI_DEVICE void check_one(check_counts &counts, bool right)
{
    counts.met += right;
    counts.errors += !right;
}

/* One block: a pass over the free ids and the tables of live tickets. */
PSTI_KERNEL(check_kernel, psti_control_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    PSTI_SHARED(block_scratch, scratch);
    const psti_pool_view &pool = args.pool;
    const psti_pool_state *state = pool.state;
    const uint32_t round = (uint32_t)pool.status->checks + 1;
    check_counts counts = {0, 0};
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        uint64_t head;
        uint64_t bad_ends = 0;
        const uint64_t span = psti_check_span(&pool, tier, &head, &bad_ends);
        counts.errors += thread_of() == 0 ? bad_ends : 0;
        for (uint64_t i = thread_of(); i < span; i += num_threads()) {
            const uint32_t id = pool.ring[tier][(head + i) & pool.ring_mask[tier]];
            check_one(counts, psti_id_tier(id) == tier && psti_check_id(&pool, id, 0, round));
        }
    }
    for (uint32_t i = 0; i < pool.max_tickets; i++) {
        psti_ticket_record *ticket = ticket_at(pool, i);
        if (!ticket || psti_ticket_now(ticket, state->epoch) != PSTI_TICKET_LIVE)
            continue;
        const psti_page_id *table = psti_ticket_table(ticket, ticket->count_room);
        const uint64_t pages = psti_min_u64(ticket->num_pages, ticket->table_pages);
        for (uint64_t page = thread_of(); page < pages; page += num_threads()) {
            const uint64_t owner = psti_owner_word(i, state->epoch, page);
            check_one(counts, psti_check_id(&pool, table[page], owner, round));
        }
    }
    const uint64_t met = block_sum(scratch, counts.met);
    const uint64_t errors = block_sum(scratch, counts.errors);
    if (thread_of() == 0) {
        pool.status->checks++;
        psti_check_conclude(&pool, met, errors);
    }
}

#endif
