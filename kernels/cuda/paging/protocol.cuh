/* What stash, restore and migrate have in common: how a launch begins, how its blocks agree that
 * all are done, how it ends. */
#ifndef PSTI_CUDA_PROTOCOL_CUH
#define PSTI_CUDA_PROTOCOL_CUH

#include "kernels/cuda/paging/tiles.cuh"

#include "kernels/core/pool.h"

/* What a block knows; written by thread 0 between barriers. */
struct move_shared {
    tile_plan plan;
    tile_share share;
    block_scratch scratch;
    uint64_t held;   /* pages of the ticket */
    uint64_t form;   /* mixed of form and handle, of what was stashed */
    uint64_t launch; /* of the pool, in concurrent pools of the ticket */
    uint64_t head[PSTI_TIERS];
    uint64_t tail[PSTI_TIERS];
    psti_decision decision; /* of a stash */
    uint64_t pages;         /* wanted, or held */
    uint64_t fault_value;
    uint32_t fault;
    uint32_t state; /* of the ticket */
    uint32_t epoch;
    uint32_t refused;
    uint32_t lost; /* a stash fails without trying: the step has failed */
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

/* What this block adds to the arrival word. In concurrent pools one block decides for all. */
PSTI_DEVICE uint32_t block_number(const move_shared &s, const psti_move_args &args)
{
    return psti_launch_number(s.launch, args.op, s.lost && !args.pool.concurrent);
}

/* The one look at the state. False: the pool refuses, nothing may be done.
 *
 * A launch may be brought up while the one before it still runs, so every block waits for that one
 * before it reads anything but its arguments, and before it ends. */
PSTI_DEVICE bool begin(move_shared &s, const psti_move_args &args)
{
    psti_wait_for_predecessor();
    const psti_pool_state *state = args.pool.state;
    if (threadIdx.x == 0) {
        s.launch = psti_load_acquire_u64(launch_word(args));
        s.epoch = psti_load_relaxed_u32(&state->epoch);
        s.refused = psti_refusal(state, args.flags);
        s.fault = PST_FAULT_NONE;
        s.fault_value = 0;
        s.pages = 0;
        s.lost = 0;
        if (!args.pool.concurrent)
            read_ring_ends(s, args);
        if (s.launch % 2 != 0) { /* another operation is being written */
            psti_refuse(&args.pool, args.ticket_index);
            s.refused = 1;
        } else if (s.refused & PSTI_REFUSES_ORDER && blockIdx.x == 0) {
            psti_record_fault(&args.pool, PST_FAULT_ORDER, args.ticket_index, 0);
        }
    }
    __syncthreads();
    return !s.refused;
}

/* Concurrent pools, for an operation that takes pages. True in the block that arrives first: it
 * leads, has the lock, and knows the ring ends. The others wait for it, and it runs; s.copies is
 * what it told them. */
PSTI_DEVICE bool join(move_shared &s, const psti_move_args &args)
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
    return s.leads != 0;
}

/* By the block that leads. */
PSTI_DEVICE void let_others_go(const move_shared &s, const psti_move_args &args)
{
    if (threadIdx.x != 0)
        return;
    psti_unlock(args.pool.state);
    psti_store_release_u64(&args.ticket->ready, psti_ready_word(s.launch, args.op, s.copies));
}

/* Says that this block is done; true in the last one. All blocks of a launch add the same
 * number: the sum tells whether all that arrived belong together. The last one makes the launch
 * word odd, which only one operation can: from here to finish the state is its own. */
PSTI_DEVICE bool arrive(move_shared &s, const psti_move_args &args)
{
    psti_let_successor_come(); /* now: until it may begin it only takes up room */
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t number = block_number(s, args);
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
    const uint32_t number = block_number(s, args);
    const uint64_t arrived = (uint64_t)(number * gridDim.x) << 32 | gridDim.x;
    if (psti_cas_acq_rel_u64(&args.ticket->arrive_out, arrived, 0) != arrived)
        psti_refuse(&args.pool, args.ticket_index);
    psti_store_release_u64(launch_word(args), s.launch + 2);
}

/* By thread 0 for its block: should a stash overlap, all threads still go the same way. */
PSTI_DEVICE void read_record(move_shared &s, const psti_move_args &args)
{
    if (threadIdx.x == 0) {
        s.state = psti_ticket_now(args.ticket, s.epoch);
        s.held = args.ticket->num_pages;
        s.form = args.ticket->form;
        s.share = share_of(args, s.held, args.ticket->num_host);
    }
    __syncthreads();
}

/* Number of counts outside [0, capacity]. */
template <stream_kind kKind>
PSTI_DEVICE uint64_t misfits(move_shared &s, const psti_move_args &args, const int64_t *counts)
{
    uint64_t mine = 0;
    for (uint32_t i = 0; i < args.num_spaces; i++) {
        const psti_space &space = args.spaces[i];
        for (uint32_t e = threadIdx.x; e < space.num_segments; e += blockDim.x)
            mine += !psti_count_fits(count_of<kKind>(s.plan, args, i, e, counts), space.capacity);
    }
    return block_sum(s.scratch, mine);
}

/* Where in the pool a tile lies: page number and byte offset in it. */
PSTI_DEVICE uint64_t page_of_tile(const psti_pool_view &pool, uint64_t tile, uint32_t *offset)
{
    const uint32_t shift = pool.page_shift - PSTI_TILE_SHIFT;
    *offset = (uint32_t)(tile & (((uint64_t)1 << shift) - 1)) << PSTI_TILE_SHIFT;
    return tile >> shift;
}

#endif
