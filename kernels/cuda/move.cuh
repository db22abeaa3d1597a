/* The stash and restore kernels. One launch each; the grid may be anything from one block up, and no
 * two blocks need to run at the same time.
 *
 * Bytes moved: live bytes read once and written once, plus 4 bytes of table, 8 of owner word and 4
 * of ring per page. Floor: 2 * live bytes / memory bandwidth. */
#ifndef PSTI_CUDA_MOVE_CUH
#define PSTI_CUDA_MOVE_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/tiles.cuh"

#include "kernels/core/pool.h"

/* What a block knows; written by thread 0 between barriers. */
struct move_shared {
    tile_plan plan;
    block_scratch scratch;
    uint64_t held;   /* pages of the ticket */
    uint64_t launch; /* of the pool, in concurrent pools of the ticket */
    uint64_t head[PSTI_TIERS];
    uint64_t tail[PSTI_TIERS];
    uint64_t take_device;
    uint64_t pages; /* wanted, or held */
    uint64_t fault_value;
    uint32_t fault;
    uint32_t state; /* of the ticket */
    uint32_t epoch;
    uint32_t refused;
    uint32_t copies;
    uint32_t leads;
    uint32_t last;
};

PSTI_DEVICE uint64_t *launch_word(const psti_move_args &args)
{
    return args.pool.concurrent ? &args.ticket->launch : &args.pool.state->launch;
}

PSTI_DEVICE void read_ring_ends(move_shared &s, const psti_move_args &args)
{
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        s.head[tier] = psti_load_relaxed_u64(&args.pool.state->head[tier]);
        s.tail[tier] = psti_load_relaxed_u64(&args.pool.state->tail[tier]);
    }
}

/* The one look at the state. False: the pool refuses, nothing may be done. */
PSTI_DEVICE bool begin(move_shared &s, const psti_move_args &args)
{
    const psti_pool_state *state = args.pool.state;
    if (threadIdx.x == 0) {
        s.launch = psti_load_acquire_u64(launch_word(args));
        s.epoch = psti_load_relaxed_u32(&state->epoch);
        s.refused = psti_load_relaxed_u32(&state->refuse);
        s.fault = PST_FAULT_NONE;
        s.fault_value = 0;
        s.pages = 0;
        if (!args.pool.concurrent)
            read_ring_ends(s, args);
        if (s.launch % 2 != 0) { /* another operation is being written */
            psti_refuse(&args.pool, args.ticket_index);
            s.refused = 1;
        } else if (s.refused && blockIdx.x == 0) {
            psti_record_fault(&args.pool, PST_FAULT_ORDER, args.ticket_index, 0);
        }
    }
    __syncthreads();
    return !s.refused;
}

/* Says that this block is done; true in the last one. All blocks of a launch add the same number: the
 * sum tells whether all that arrived belong together. The last one makes the launch word odd, which
 * only one operation can: from here to finish the state is its own. */
PSTI_DEVICE bool arrive(move_shared &s, const psti_move_args &args)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t number = psti_launch_number(s.launch, args.op);
        const uint64_t old =
            psti_add_acq_rel_u64(&args.ticket->arrive_out, ((uint64_t)number << 32) | 1u);
        const uint32_t done = (uint32_t)old + 1;
        const uint32_t sum = (uint32_t)(old >> 32) + number;
        s.last = done == gridDim.x;
        const bool together = s.last && sum == number * gridDim.x;
        const bool claimed =
            together && psti_cas_acq_rel_u64(launch_word(args), s.launch, s.launch + 1) == s.launch;
        if (done > gridDim.x || (s.last && !claimed)) {
            psti_refuse(&args.pool, args.ticket_index);
            s.last = 0;
        }
    }
    __syncthreads();
    return s.last != 0;
}

/* By thread 0 of the last block, after everything else. */
PSTI_DEVICE void finish(move_shared &s, const psti_move_args &args)
{
    if (args.pool.concurrent) /* only its own: another's blocks may still wait */
        psti_cas_acq_rel_u64(&args.ticket->arrive_in, psti_launch_word(s.launch, args.op), 0);
    /* a late arrival of another operation must not be wiped out unseen */
    const uint32_t number = psti_launch_number(s.launch, args.op);
    const uint64_t arrived = (uint64_t)(number * gridDim.x) << 32 | gridDim.x;
    if (psti_cas_acq_rel_u64(&args.ticket->arrive_out, arrived, 0) != arrived)
        psti_refuse(&args.pool, args.ticket_index);
    psti_store_release_u64(launch_word(args), s.launch + 2);
}

/* ---- stash ---- */

/* Number of counts outside [0, capacity]. */
PSTI_DEVICE uint64_t misfits(move_shared &s, const psti_move_args &args, const int64_t *counts)
{
    uint64_t mine = 0;
    for (uint32_t i = 0; i < args.num_spaces; i++) {
        const psti_space &space = args.spaces[i];
        for (uint32_t e = threadIdx.x; e < space.num_segments; e += blockDim.x)
            mine += !psti_count_fits(count_of(space, e, counts), space.capacity);
    }
    return block_sum(s.scratch, mine);
}

PSTI_DEVICE int64_t first_misfit(const psti_move_args &args)
{
    for (uint32_t i = 0; i < args.num_spaces; i++)
        for (uint32_t e = 0; e < args.spaces[i].num_segments; e++) {
            const int64_t count = psti_user_count(&args.spaces[i], e);
            if (!psti_count_fits(count, args.spaces[i].capacity))
                return count;
        }
    return 0;
}

/* By thread 0, with ring ends read: the same answer in every block of an ordered pool. */
PSTI_DEVICE void decide_stash(move_shared &s, const psti_move_args &args, bool counts_fit)
{
    s.copies = 0;
    if (psti_ticket_now(args.ticket, s.epoch) == PSTI_TICKET_LIVE) {
        s.fault = PST_FAULT_LIVE;
    } else if (!counts_fit) {
        s.fault = PST_FAULT_COUNT;
        s.fault_value = (uint64_t)first_misfit(args);
    } else {
        const psti_decision decision =
            psti_decide(s.pages, s.tail[0] - s.head[0], s.tail[1] - s.head[1]);
        s.take_device = decision.take[PSTI_TIER_DEVICE];
        s.copies = decision.fits && s.pages <= args.table_pages;
        s.fault = s.copies ? PST_FAULT_NONE : PST_FAULT_EXHAUSTED;
        s.fault_value = s.copies ? 0 : s.pages;
    }
}

PSTI_DEVICE void commit_pages(move_shared &s, const psti_move_args &args)
{
    const psti_pool_view &pool = args.pool;
    int64_t *counts = psti_ticket_counts(args.ticket);
    uint32_t *table = psti_ticket_table(args.ticket, args.num_counts);
    for (uint32_t i = 0; i < args.num_spaces; i++)
        for (uint32_t e = threadIdx.x; e < args.spaces[i].num_segments; e += blockDim.x)
            counts[args.spaces[i].first_count + e] = psti_user_count(&args.spaces[i], e);
    for (uint64_t page = threadIdx.x; page < s.pages; page += blockDim.x) {
        const uint64_t mine = psti_owner_word(args.ticket_index, s.epoch, page);
        uint32_t id = psti_ring_id(&pool, s.head, s.take_device, page);
        if (!psti_id_in_range(&pool, id) ||
            psti_cas_acq_rel_u64(psti_owner_of(&pool, id), 0, mine) != 0) {
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
    args.ticket->state = s.copies ? PSTI_TICKET_LIVE : PSTI_TICKET_FAILED;
    if (s.copies) {
        const uint64_t take_host = s.pages - s.take_device;
        psti_store_relaxed_u64(&state->head[PSTI_TIER_DEVICE], s.head[0] + s.take_device);
        psti_store_relaxed_u64(&state->head[PSTI_TIER_HOST], s.head[1] + take_host);
        args.pool.status->spilled_pages += take_host;
    } else {
        state->failed_wanted += s.pages;
    }
    psti_raise_marks(state);
}

/* Concurrent pools: the first block to arrive decides for all and takes the pages under the lock;
 * the others wait for it, and it runs. */
PSTI_DEVICE void agree(move_shared &s, const psti_move_args &args, bool counts_fit)
{
    psti_ticket_record *ticket = args.ticket;
    if (threadIdx.x == 0) {
        const uint64_t mine = psti_launch_word(s.launch, args.op);
        const uint64_t old = psti_cas_acq_rel_u64(&ticket->arrive_in, 0, mine);
        s.leads = old == 0;
        if (!s.leads && old != mine) {
            psti_refuse(&args.pool, args.ticket_index);
            s.copies = 0;
        } else if (s.leads) {
            psti_lock(args.pool.state);
            read_ring_ends(s, args);
            decide_stash(s, args, counts_fit);
        } else {
            uint64_t ready;
            do {
                PSTI_PAUSE();
                ready = psti_load_acquire_u64(&ticket->ready);
            } while (ready >> 1 != psti_ready_word(s.launch, args.op, 0) >> 1);
            s.copies = ready % 2;
        }
    }
    __syncthreads();
    if (!s.leads)
        return;
    commit_stash(s, args);
    __syncthreads();
    if (threadIdx.x == 0) {
        psti_unlock(args.pool.state);
        psti_store_release_u64(&ticket->ready, psti_ready_word(s.launch, args.op, s.copies));
    }
}

struct stash_mover {
    unsigned char *to;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t bytes) const
    {
        copy_run(to, rows, rows, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copy_piece(to + at, rows, rows, bytes);
    }
};

/* Where in the pool a tile lies: page number and byte offset in it. */
PSTI_DEVICE uint64_t page_of_tile(const psti_pool_view &pool, uint64_t tile, uint32_t *offset)
{
    const uint32_t shift = pool.page_shift - PSTI_TILE_SHIFT;
    *offset = (uint32_t)(tile & (((uint64_t)1 << shift) - 1)) << PSTI_TILE_SHIFT;
    return tile >> shift;
}

struct stash_source {
    const psti_move_args &args;
    const move_shared &s;
    PSTI_DEVICE_METHOD bool open(uint64_t tile, stash_mover *mover) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        uint32_t id;
        if (pool.concurrent)
            id = psti_ticket_table(args.ticket, args.num_counts)[page];
        else
            id = psti_ring_id(&pool, s.head, s.take_device, page);
        if (!psti_id_in_range(&pool, id))
            return false;
        /* an ordered pool takes ownership after the copy: a page that has an owner is not ours */
        if (!pool.concurrent && psti_load_relaxed_u64(psti_owner_of(&pool, id)) != 0)
            return false;
        mover->to = psti_page_address(&pool, id) + offset;
        return true;
    }
};

PSTI_KERNEL(stash_kernel, psti_move_args, args)
{
    PSTI_SHARED(move_shared, s);
    if (!begin(s, args))
        return;
    const bool counts_fit = misfits(s, args, NULL) == 0;
    if (counts_fit) {
        plan_tiles<LIVE>(s.plan, args, NULL);
        if (threadIdx.x == 0)
            s.pages = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    }
    if (args.pool.concurrent)
        agree(s, args, counts_fit);
    else if (threadIdx.x == 0)
        decide_stash(s, args, counts_fit);
    __syncthreads();
    if (s.copies) {
        const stash_source source = {args, s};
        move_tiles<LIVE, stash_mover>(source, s.plan, s.scratch, args, NULL);
    }
    if (!arrive(s, args))
        return;
    if (!args.pool.concurrent)
        commit_stash(s, args);
    if (threadIdx.x == 0)
        finish(s, args);
}

/* ---- restore and release ---- */

struct restore_mover {
    const unsigned char *from;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t bytes) const
    {
        copy_run(rows, from, rows, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        copy_piece(rows, from + at, rows, bytes);
    }
};

struct restore_source {
    const psti_move_args &args;
    uint32_t epoch;
    PSTI_DEVICE_METHOD bool open(uint64_t tile, restore_mover *mover) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        const uint32_t id = psti_ticket_table(args.ticket, args.num_counts)[page];
        if (psti_id_in_range(&pool, id) && psti_load_relaxed_u64(psti_owner_of(&pool, id)) ==
                                               psti_owner_word(args.ticket_index, epoch, page)) {
            mover->from = psti_page_address(&pool, id) + offset;
            return true;
        }
        if (threadIdx.x == 0 && offset == 0) /* once per page */
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
        return false;
    }
};

struct zero_mover {
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t bytes) const
    {
        zero_run(rows, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes) const
    {
        (void)at;
        for (uint32_t i = 0; i < bytes; i++)
            rows[i] = 0;
    }
};

struct zero_source {
    PSTI_DEVICE_METHOD bool open(uint64_t tile, zero_mover *mover) const
    {
        (void)tile;
        (void)mover;
        return true;
    }
};

/* By thread 0 for its block: should a stash overlap, all threads still go the same way. */
PSTI_DEVICE void read_record(move_shared &s, const psti_move_args &args)
{
    if (threadIdx.x == 0) {
        s.state = psti_ticket_now(args.ticket, s.epoch);
        s.held = args.ticket->num_pages;
    }
    __syncthreads();
}

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
    if (misfits(s, args, counts) != 0)
        return PST_FAULT_DESTINATION;
    plan_tiles<LIVE>(s.plan, args, counts);
    const uint64_t pages = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    return pages == s.held && pages <= args.table_pages ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
}

PSTI_DEVICE void copy_restore(move_shared &s, const psti_move_args &args)
{
    const int64_t *counts = psti_ticket_counts(args.ticket);
    const restore_source source = {args, s.epoch};
    move_tiles<LIVE, restore_mover>(source, s.plan, s.scratch, args, counts);
    if (args.flags & PSTI_MOVE_ZERO) {
        const zero_source zero = {};
        plan_tiles<GAP>(s.plan, args, counts);
        move_tiles<GAP, zero_mover>(zero, s.plan, s.scratch, args, counts);
    }
}

PSTI_DEVICE void update_dirty(const psti_move_args &args)
{
    const int64_t *counts = psti_ticket_counts(args.ticket);
    for (uint32_t i = threadIdx.x; i < args.num_counts; i += blockDim.x) {
        const uint64_t live = (uint64_t)counts[i];
        args.dirty[i] = args.flags & PSTI_MOVE_ZERO ? live : psti_max_u64(args.dirty[i], live);
    }
}

/* Gives the ticket's pages back in table order. By the whole block that may write pool state. */
PSTI_DEVICE void free_pages(move_shared &s, const psti_move_args &args)
{
    const psti_pool_view &pool = args.pool;
    const uint32_t *table = psti_ticket_table(args.ticket, args.num_counts);
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
                    psti_cas_acq_rel_u64(psti_owner_of(&pool, id), mine, 0) == mine;
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

PSTI_KERNEL(restore_kernel, psti_move_args, args)
{
    PSTI_SHARED(move_shared, s);
    if (!begin(s, args))
        return;
    read_record(s, args);
    const pst_fault verdict = restore_verdict(s, args);
    const bool copies = verdict == PST_FAULT_NONE && !(args.flags & PSTI_MOVE_RELEASE);
    if (copies)
        copy_restore(s, args);
    if (!arrive(s, args))
        return;
    if (copies)
        update_dirty(args);
    if (verdict != PST_FAULT_NONE && threadIdx.x == 0)
        psti_record_fault(&args.pool, verdict, args.ticket_index, 0);
    if ((verdict == PST_FAULT_NONE || verdict == PST_FAULT_FAILED) &&
        !(args.flags & PSTI_MOVE_KEEP))
        commit_free(s, args);
    if (threadIdx.x == 0)
        finish(s, args);
}

#endif
