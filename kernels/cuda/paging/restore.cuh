/* Restore and release, over the way to copy. */
#ifndef PSTI_CUDA_RESTORE_CUH
#define PSTI_CUDA_RESTORE_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/paging/protocol.cuh"

template <class Copier> struct restore_mover {
    static const bool kAsync = Copier::kAsync;
    static const bool kHasRows = Copier::kHasRows;
    const unsigned char *from;
    Copier &copier;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copier.run(rows, from + at, bytes);
    }
    PSTI_DEVICE_METHOD void rows(const row_span &span, uint32_t at, uint32_t bytes) const
    {
        copier.rows(const_cast<unsigned char *>(from) + at, span, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copier.piece(rows, from + at, bytes);
    }
};

template <class Copier> struct restore_source {
    const psti_move_args &args;
    uint32_t epoch;
    Copier &copier;

    /* Where the tile comes from; 0: its page is not the ticket's, or not at this place. */
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        const uint32_t id = psti_ticket_table(args.ticket, args.count_room)[page];
        if (!(tiers >> psti_id_tier(id) & 1))
            return 0;
        if (psti_id_in_range(&pool, id) && psti_load_relaxed_u64(psti_owner_of(&pool, id)) ==
                                               psti_owner_word(args.ticket_index, epoch, page))
            return (uint64_t)(psti_page_address(&pool, id) + offset);
        if (threadIdx.x < PSTI_WARP && offset == 0) /* once per page */
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
        return 0;
    }

    PSTI_DEVICE_METHOD restore_mover<Copier> mover(uint64_t from) const
    {
        return {(const unsigned char *)from, copier};
    }
};

template <class Copier> struct zero_mover {
    static const bool kAsync = false;
    static const bool kHasRows = Copier::kHasRows;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        (void)at;
        zero_run(rows, bytes);
    }
    PSTI_DEVICE_METHOD void rows(const row_span &span, uint32_t at, uint32_t bytes) const
    {
        (void)at;
        zero_rows(span, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        (void)at;
        for (uint32_t i = 0; i < bytes; i++)
            rows[i] = 0;
    }
};

template <class Copier> struct zero_source {
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        (void)tile;
        (void)tiers;
        return 1;
    }
    PSTI_DEVICE_METHOD zero_mover<Copier> mover(uint64_t found) const
    {
        (void)found;
        return {};
    }
};

/* What stands in the way; plans the tiles on the way. The same in every block. */
PSTI_DEVICE pst_fault restore_verdict(move_shared &s, const psti_move_args &args)
{
    const uint32_t state = s.state;
    const int64_t *counts = psti_ticket_counts(args.ticket);
    if (state == PSTI_TICKET_EMPTY)
        return PST_FAULT_EMPTY;
    if (args.flags & PSTI_MOVE_RELEASE)
        return PST_FAULT_NONE;
    if (state == PSTI_TICKET_FAILED)
        return PST_FAULT_FAILED;
    if (s.form != args.form)
        return PST_FAULT_FORM;
    if (misfits<KEPT>(s, args, counts) != 0)
        return PST_FAULT_DESTINATION;
    plan_tiles<KEPT>(s.plan, args, counts);
    const uint64_t pages = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    return pages == s.held && pages <= args.table_pages ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
}

template <class Copier>
PSTI_DEVICE void copy_restore(move_shared &s, Copier &copier, const psti_move_args &args)
{
    const int64_t *counts = psti_ticket_counts(args.ticket);
    const restore_source<Copier> source = {args, s.epoch, copier};
    if (s.held) {
        copier.open();
        move_tiles<KEPT>(source, s.share, s.plan, s.scratch, args, counts);
        copier.close();
    }
}

/* Whether a restore that copies nothing clears its destination. */
PSTI_DEVICE bool clears_all(const move_shared &s, const psti_move_args &args)
{
    return s.fault != PST_FAULT_NONE && args.flags & PSTI_MOVE_ZERO_FAILED;
}

PSTI_DEVICE const int64_t *counts_left(const move_shared &s, const psti_move_args &args)
{
    return clears_all(s, args) ? NULL : psti_ticket_counts(args.ticket);
}

/* This block's share of what a restore clears. */
template <class Copier> PSTI_DEVICE void clear_rows(move_shared &s, const psti_move_args &args)
{
    const zero_source<Copier> zero = {};
    __syncthreads(); /* nobody reads the share before this one any more */
    if (threadIdx.x == 0)
        s.share = share_of_all();
    plan_tiles<GAP>(s.plan, args, counts_left(s, args));
    move_tiles<GAP>(zero, s.share, s.plan, s.scratch, args, counts_left(s, args));
}

/* By one block. */
PSTI_DEVICE void update_dirty(const move_shared &s, const psti_move_args &args)
{
    const int64_t *counts = counts_left(s, args);
    for (uint32_t i = threadIdx.x; args.dirty && i < args.num_counts; i += blockDim.x) {
        const uint64_t live = counts ? (uint64_t)counts[i] : 0;
        const bool cleared = !counts || args.flags & PSTI_MOVE_ZERO;
        args.dirty[i] = cleared ? live : psti_max_u64(args.dirty[i], live);
    }
}

/* Gives the ticket's pages back in table order. By the whole block that may write pool state. */
PSTI_DEVICE void free_pages(move_shared &s, const psti_move_args &args)
{
    const psti_pool_view &pool = args.pool;
    const uint32_t *table = psti_ticket_table(args.ticket, args.count_room);
    const uint64_t pages = psti_min_u64(s.held, args.table_pages);
    uint64_t tail_device = psti_load_relaxed_u64(&pool.state->tail[PSTI_TIER_DEVICE]);
    uint64_t tail_host = psti_load_relaxed_u64(&pool.state->tail[PSTI_TIER_HOST]);
    for (uint64_t first = 0; first < pages; first += blockDim.x) {
        const uint64_t page = first + threadIdx.x;
        const uint32_t id = page < pages ? table[page] : PSTI_ID_NONE;
        bool freed = false;
        if (page < pages) {
            const uint64_t mine = psti_owner_word(args.ticket_index, s.epoch, page);
            freed = psti_id_in_range(&pool, id) &&
                    psti_cas_relaxed_u64(psti_owner_of(&pool, id), mine, 0) == mine;
            if (!freed)
                psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
        }
        const uint32_t tier = psti_id_tier(id);
        const uint64_t one = freed ? (uint64_t)1 << (32 * tier) : 0; /* both tiers in one scan */
        uint64_t all;
        const uint64_t before = block_exclusive_scan(s.scratch, one, &all);
        if (freed) {
            const uint64_t tail = tier == PSTI_TIER_DEVICE ? tail_device : tail_host;
            const uint64_t slot = tail + (uint32_t)(before >> (32 * tier));
            pool.ring[tier][slot & pool.ring_mask[tier]] = id;
        }
        tail_device += (uint32_t)all;
        tail_host += all >> 32;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        psti_store_relaxed_u64(&pool.state->tail[PSTI_TIER_DEVICE], tail_device);
        psti_store_relaxed_u64(&pool.state->tail[PSTI_TIER_HOST], tail_host);
    }
}

PSTI_DEVICE void commit_free(move_shared &s, const psti_move_args &args)
{
    const bool locks = args.pool.concurrent;
    if (locks && threadIdx.x == 0)
        psti_lock(args.pool.state);
    __syncthreads();
    if (s.state == PSTI_TICKET_LIVE)
        free_pages(s, args);
    __syncthreads();
    if (threadIdx.x == 0) {
        psti_forget_failure(args.pool.state, args.ticket);
        args.ticket->state = PSTI_TICKET_EMPTY;
        if (locks)
            psti_unlock(args.pool.state);
    }
}

/* Clears the tiles that this block copied, and its share of those that nobody did. */
PSTI_DEVICE void scrub_tiles(move_shared &s, const psti_move_args &args)
{
    __syncthreads();
    if (threadIdx.x == 0) /* as when they were copied */
        s.share = share_of(args, s.held, args.ticket->num_host);
    __syncthreads();
    const tile_share &share = s.share;
    const psti_pool_view &pool = args.pool;
    const uint32_t *table = psti_ticket_table(args.ticket, args.count_room);
    const uint64_t pages = psti_min_u64(s.held, args.table_pages);
    const uint64_t num_tiles = pages << (pool.page_shift - PSTI_TILE_SHIFT);
    for (uint64_t tile = share.first; tile < num_tiles && share.tiers; tile += share.stride) {
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        const uint32_t id = table[page];
        if (!(share.tiers >> psti_id_tier(id) & 1))
            continue;
        if (psti_id_in_range(&pool, id) && psti_load_relaxed_u64(psti_owner_of(&pool, id)) ==
                                               psti_owner_word(args.ticket_index, s.epoch, page))
            clear_tile(psti_page_address(&pool, id) + offset);
    }
}

/* What stands in the way, in s.fault. */
PSTI_DEVICE void begin_restore(move_shared &s, const psti_move_args &args)
{
    pst_fault verdict = PST_FAULT_ORDER;
    if (begin(s, args)) {
        read_record(s, args);
        verdict = restore_verdict(s, args);
    }
    if (threadIdx.x == 0)
        s.fault = verdict;
    __syncthreads();
}

PSTI_DEVICE bool copies_rows(const move_shared &s, const psti_move_args &args)
{
    return s.fault == PST_FAULT_NONE && !(args.flags & PSTI_MOVE_RELEASE);
}

PSTI_DEVICE bool frees_pages(const move_shared &s, const psti_move_args &args)
{
    return (s.fault == PST_FAULT_NONE || s.fault == PST_FAULT_FAILED) &&
           !(args.flags & PSTI_MOVE_KEEP);
}

/* By the whole last block. */
PSTI_DEVICE void commit_restore(move_shared &s, const psti_move_args &args)
{
    const uint32_t fault = s.fault;
    const bool is_quiet = fault == PST_FAULT_EMPTY && args.flags & PSTI_MOVE_QUIET;
    if (copies_rows(s, args) || clears_all(s, args))
        update_dirty(s, args);
    if (fault != PST_FAULT_NONE && !is_quiet && threadIdx.x == 0)
        psti_record_fault(&args.pool, (pst_fault)fault, args.ticket_index, 0);
    if (frees_pages(s, args))
        commit_free(s, args);
}

template <class Copier>
PSTI_DEVICE void run_restore(move_shared &s, Copier &copier, const psti_move_args &args)
{
    begin_restore(s, args);
    if (copies_rows(s, args))
        copy_restore(s, copier, args);
    if (clears_all(s, args) || (copies_rows(s, args) && args.flags & PSTI_MOVE_ZERO))
        clear_rows<Copier>(s, args);
    if (s.refused) { /* nobody is the last: the others clear their shares before the launch ends */
        if (clears_all(s, args) && blockIdx.x == 0)
            update_dirty(s, args);
        return;
    }
    if (frees_pages(s, args) && args.pool.scrubs && s.state == PSTI_TICKET_LIVE)
        scrub_tiles(s, args);
    if (!arrive(s, args))
        return;
    commit_restore(s, args);
    if (threadIdx.x == 0)
        finish(s, args);
}

#endif
