/* The stash, over the way to copy. */
#ifndef PSTI_CUDA_STASH_CUH
#define PSTI_CUDA_STASH_CUH

#include "kernels/cuda/paging/protocol.cuh"

PSTI_DEVICE int64_t first_misfit(const psti_move_args &args)
{
    for (uint32_t i = 0; i < args.num_spaces; i++)
        for (uint32_t e = 0; e < args.spaces[i].num_segments; e++) {
            const int64_t count = psti_space_count(&args.spaces[i], e);
            if (!psti_count_fits(count, args.spaces[i].capacity))
                return count;
        }
    return 0;
}

/* By thread 0, with ring ends read: the same answer in every block of an ordered pool. There only the
 * last block of a stash records faults, and step, reset and pst_nccl_agree run alone: step_valid
 * stays as it is until all blocks have read it. Should somebody write it all the same, the numbers of
 * the blocks do not add up. */
PSTI_DEVICE void decide_stash(move_shared &s, const psti_move_args &args, bool counts_fit)
{
    s.copies = 0;
    s.lost = psti_is_lost(&args.pool);
    if (psti_ticket_now(args.ticket, s.epoch) == PSTI_TICKET_LIVE) {
        s.fault = PST_FAULT_LIVE;
    } else if (!counts_fit) {
        s.fault = PST_FAULT_COUNT;
        s.fault_value = (uint64_t)first_misfit(args);
    } else if (s.lost) {
        s.fault = PST_FAULT_LOST;
    } else {
        s.decision = psti_decide(s.pages, s.tail[0] - s.head[0], s.tail[1] - s.head[1],
                                 args.host_num, args.host_den);
        s.copies = s.decision.fits && s.pages <= args.table_pages;
        s.fault = s.copies ? PST_FAULT_NONE : PST_FAULT_EXHAUSTED;
        s.fault_value = s.copies ? 0 : s.pages;
    }
}

PSTI_DEVICE void commit_pages(move_shared &s, const psti_move_args &args)
{
    const psti_pool_view &pool = args.pool;
    int64_t *counts = psti_ticket_counts(args.ticket);
    uint32_t *table = psti_ticket_table(args.ticket, args.count_room);
    for (uint32_t i = 0; i < args.num_spaces; i++)
        for (uint32_t e = threadIdx.x; e < args.spaces[i].num_segments; e += blockDim.x)
            counts[args.spaces[i].first_count + e] = caller_count(s.plan.sums, args.spaces, i, e);
    for (uint64_t page = threadIdx.x; page < s.pages; page += blockDim.x) {
        const uint64_t mine = psti_owner_word(args.ticket_index, s.epoch, page);
        uint32_t id = psti_ring_id(&pool, s.head, &s.decision, page);
        if (!psti_id_in_range(&pool, id) ||
            psti_cas_relaxed_u64(psti_owner_of(&pool, id), 0, mine) != 0) {
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
            id = PSTI_ID_NONE;
        }
        table[page] = id;
    }
}

/* Takes what was decided and writes the record. By the whole block that may write pool state. */
PSTI_DEVICE void commit_stash(move_shared &s, const psti_move_args &args)
{
    psti_pool_state *state = args.pool.state;
    if (s.copies)
        commit_pages(s, args);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (s.fault != PST_FAULT_NONE)
        psti_record_fault(&args.pool, (pst_fault)s.fault, args.ticket_index, s.fault_value);
    if (s.fault == PST_FAULT_LIVE)
        return;
    psti_forget_failure(state, args.ticket);
    args.ticket->epoch = s.epoch;
    args.ticket->num_pages = s.pages;
    args.ticket->form = args.form;
    args.ticket->num_host = s.copies ? s.decision.take[PSTI_TIER_HOST] : 0;
    args.ticket->state = s.copies ? PSTI_TICKET_LIVE : PSTI_TICKET_FAILED;
    if (s.copies) {
        for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
            psti_store_relaxed_u64(&state->head[tier], s.head[tier] + s.decision.take[tier]);
        psti_count_pages(args.pool.status, &s.decision);
    } else {
        state->failed_wanted += s.pages;
    }
    psti_raise_marks(state);
}

/* Concurrent pools: the first block decides for all and takes the pages. */
PSTI_DEVICE void agree(move_shared &s, const psti_move_args &args, bool counts_fit)
{
    if (!join(s, args))
        return;
    if (threadIdx.x == 0)
        decide_stash(s, args, counts_fit);
    __syncthreads();
    commit_stash(s, args);
    __syncthreads();
    let_others_go(s, args);
}

template <class Copier> struct stash_mover {
    static const bool kAsync = Copier::kAsync;
    static const bool kHasRows = Copier::kHasRows;
    unsigned char *to;
    Copier &copier;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copier.run(to + at, rows, bytes);
    }
    PSTI_DEVICE_METHOD void rows(const row_span &span, uint32_t at, uint32_t bytes) const
    {
        copier.rows(to + at, span, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copier.piece(to + at, rows, bytes);
    }
};

template <class Copier> struct stash_source {
    const psti_move_args &args;
    const move_shared &s;
    Copier &copier;

    /* Where the tile goes to; 0: nowhere. */
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        uint32_t id;
        if (pool.concurrent)
            id = psti_ticket_table(args.ticket, args.count_room)[page];
        else
            id = psti_ring_id(&pool, s.head, &s.decision, page);
        if (!psti_id_in_range(&pool, id) || !(tiers >> psti_id_tier(id) & 1))
            return 0;
        /* an ordered pool takes ownership after the copy: a page that has an owner is not ours */
        if (!pool.concurrent && psti_load_relaxed_u64(psti_owner_of(&pool, id)) != 0)
            return 0;
        return (uint64_t)(psti_page_address(&pool, id) + offset);
    }

    PSTI_DEVICE_METHOD stash_mover<Copier> mover(uint64_t to) const
    {
        return {(unsigned char *)to, copier};
    }
};

PSTI_DEVICE void share_stash(move_shared &s, const psti_move_args &args)
{
    if (threadIdx.x == 0 && args.pool.concurrent) /* only the block that led knows the decision */
        s.share = share_of(args, args.ticket->num_pages, args.ticket->num_host);
    else if (threadIdx.x == 0)
        s.share = share_of(args, s.pages, s.decision.take[PSTI_TIER_HOST]);
    __syncthreads();
}

template <class Copier>
PSTI_DEVICE void run_stash(move_shared &s, Copier &copier, const psti_move_args &args)
{
    if (!begin(s, args))
        return;
    add_up(s.plan.sums, args.spaces, args.num_spaces);
    const bool counts_fit = misfits<NEW>(s, args, NULL) == 0;
    if (counts_fit) {
        plan_tiles<NEW>(s.plan, args, NULL);
        if (threadIdx.x == 0)
            s.pages = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    }
    if (args.pool.concurrent)
        agree(s, args, counts_fit);
    else if (threadIdx.x == 0)
        decide_stash(s, args, counts_fit);
    __syncthreads();
    if (s.copies && s.pages) {
        const stash_source<Copier> source = {args, s, copier};
        share_stash(s, args);
        copier.open();
        move_tiles<NEW>(source, s.share, s.plan, s.scratch, args, NULL);
        copier.close();
    }
    if (!arrive(s, args))
        return;
    if (!args.pool.concurrent)
        commit_stash(s, args);
    if (threadIdx.x == 0)
        finish(s, args);
}

#endif
