/* What a restore is to do, as the ticket's record has it. */
#ifndef PSTI_CUDA_RESTORE_RECORD_CUH
#define PSTI_CUDA_RESTORE_RECORD_CUH

#include "kernels/cuda/paging/protocol.cuh"

/* What stands in the way, but for the counts. */
PSTI_DEVICE pst_fault record_verdict(const move_shared &s, const psti_move_args &args)
{
    const psti_ticket_state state = state_of(s);
    const bool releases = args.flags & PSTI_MOVE_RELEASE;
    const pst_fault of_live = s.seen.ticket.form == args.form ? PST_FAULT_NONE : PST_FAULT_FORM;
    const pst_fault of_full = state == PSTI_TICKET_FAILED ? PST_FAULT_FAILED : of_live;
    return state == PSTI_TICKET_EMPTY ? PST_FAULT_EMPTY : releases ? PST_FAULT_NONE : of_full;
}

/* By the first warp: its share of the pages, and the ids of those of the team's first tiles. num_fused: tensors that
 * others read from their pages. */
PSTI_DEVICE uint32_t first_id(move_shared &s, const psti_move_args &args, uint32_t num_fused)
{
    const uint64_t held = held_by(s);
    if (held == 0)
        return PSTI_ID_NONE;
    const tile_share share = share_of(args, held, s.seen.ticket.num_host);
    uint32_t offset;
    const uint64_t page =
        page_of_tile(args.pool, share.first + (uint64_t)lane_of() * share.stride, &offset);
    if (lane_of() == 0)
        s.share = share;
    if (page >= psti_min_u64(held, args.table_pages))
        return PSTI_ID_NONE;
    if (num_fused && args.num_tensors == num_fused)
        return PSTI_ID_NONE; /* no tile is copied, and this takes a trip to memory */
    return psti_ticket_table(args.ticket, args.count_room)[page];
}

/* By the first warp: the id of this lane's page, and where they are not part of the look the ticket's counts,
 * in one trip to memory. */
PSTI_DEVICE uint32_t read_record(move_shared &s, const psti_move_args &args, const int64_t *counts,
                                 uint32_t num_fused)
{
    const uint32_t i = lane_of();
    const bool reads =
        i < args.num_spaces && args.num_looked == 0 && args.spaces[i].num_segments == 1;
    const uint32_t id = first_id(s, args, num_fused);
    if (reads)
        s.plan.sums.rows[i] = (uint64_t)counts[args.spaces[i].first_count];
    return id;
}

/* Of what was planned. */
PSTI_DEVICE pst_fault plan_verdict(const move_shared &s, const psti_move_args &args)
{
    const uint64_t pages = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    const bool is_right = pages == held_by(s) && pages <= args.table_pages;
    const pst_fault of_pages = is_right ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
    return s.plan.fits ? of_pages : PST_FAULT_DESTINATION;
}

/* What a restore does, as bits, and above them what stands in its way. */
enum restore_jobs {
    COPIES = 1, /* some pages */
    CLEARS = 2,
    CLEARS_ALL = 4, /* a restore that copies nothing */
    FREES = 8,
    SCRUBS = 16,
    RETURNS = 32, /* FREES, and there are pages */
    DIRTIES = 64, /* the dirty words change */
    RECORDS = 128,
    STOPS = 256,  /* the pool refuses */
    PLANS = 512,  /* the others are not known yet */
    LOCKS = 1024, /* the pool is concurrent */
    FAULT_SHIFT = 11
};
#define PSTI_JOBS_BEFORE \
    ((uint32_t)COPIES | CLEARS | SCRUBS | STOPS | PLANS | LOCKS) /* the arrival */
#define PSTI_JOBS_BEHIND \
    ((uint32_t)RETURNS | DIRTIES | RECORDS | LOCKS) /* it, and the record alone */

PSTI_DEVICE pst_fault fault_of(uint32_t jobs)
{
    return (pst_fault)(jobs >> FAULT_SHIFT);
}

/* No branches: every team waits for this. */
PSTI_DEVICE uint32_t jobs_of(const move_shared &s, const psti_move_args &args, pst_fault fault)
{
    const uint32_t flags = args.flags;
    const uint32_t sound = fault == PST_FAULT_NONE;
    const uint32_t failed = fault == PST_FAULT_FAILED;
    const uint32_t stops = fault == PST_FAULT_ORDER;
    const uint32_t empty = fault == PST_FAULT_EMPTY;
    const uint32_t has_pages = held_by(s) != 0;
    const uint32_t is_live = state_of(s) == PSTI_TICKET_LIVE;
    const uint32_t fills = sound & !(flags & PSTI_MOVE_RELEASE);
    const uint32_t all = (sound ^ 1) & !!(flags & PSTI_MOVE_ZERO_FAILED);
    const uint32_t frees = (sound | failed) & !(flags & PSTI_MOVE_KEEP);
    const uint32_t clears = all | (fills & !!(flags & PSTI_MOVE_ZERO));
    const uint32_t quiet = sound | stops | (empty & !!(flags & PSTI_MOVE_QUIET));
    const uint32_t dirties = (fills | all) & (args.dirty != NULL);
    return fills * has_pages * COPIES | clears * CLEARS | all * CLEARS_ALL | frees * FREES |
           (frees & is_live & (args.pool.scrubs != 0)) * SCRUBS |
           (frees & is_live & has_pages) * RETURNS | dirties * DIRTIES | (quiet ^ 1) * RECORDS |
           stops * STOPS | (args.pool.concurrent != 0) * LOCKS | (uint32_t)fault << FAULT_SHIFT;
}

/* By the first warp: what stands in the way; NONE where something is to be done or planned. */
PSTI_DEVICE pst_fault ask_record(move_shared &s, const psti_move_args &args, uint32_t num_fused)
{
    const uint32_t refused = refusal_of(s, args);
    const uint32_t releases = args.flags & PSTI_MOVE_RELEASE;
    if (args.pool.concurrent) {
        read_words(s, args, PSTI_LOOK_TICKET & ~PSTI_LOOK_AT(ticket.launch));
        __syncwarp();
    }
    const pst_fault of_record = record_verdict(s, args);
    const pst_fault verdict = refused ? PST_FAULT_ORDER : of_record;
    if ((uint32_t)verdict | releases) {
        if (refused)
            tell_refusal(args, refused);
        return verdict;
    }
    const int64_t *counts = psti_ticket_counts(args.ticket);
    const uint32_t id = read_record(s, args, counts, num_fused);
    if (!args.is_plain) {
        s.first_ids[lane_of()] = id;
        return PST_FAULT_NONE;
    }
    plan_plain<KEPT>(
        s.plan, args, counts,
        lane_of() >= args.num_spaces ||
            psti_count_fits((int64_t)s.plan.sums.rows[lane_of()], args.spaces[lane_of()].capacity));
    s.first_ids[lane_of()] = id;
    return plan_verdict(s, args);
}

/* By the first warp: what is to be done, but for the plan of a group that is not plain. */
PSTI_DEVICE void prepare_restore(move_shared &s, const psti_move_args &args, uint32_t num_fused)
{
    const pst_fault fault = ask_record(s, args, num_fused);
    const bool plans =
        fault == PST_FAULT_NONE && !args.is_plain && !(args.flags & PSTI_MOVE_RELEASE);
    if (thread_of() == 0) {
        const uint32_t jobs = jobs_of(s, args, fault); /* needed or not: no branch */
        s.jobs = plans ? (uint32_t)PLANS : jobs;
    }
}

/* What is to be done. The more the warps do that nobody waits for, the longer it takes: of a group without segments
 * they do nothing. In a team of one warp counts are asked for first, so that they come beside the record. num_fused:
 * tensors that others read from their pages. */
template <class Copier>
PSTI_DEVICE uint32_t begin_restore(move_shared &s, const psti_move_args &args, uint32_t num_fused)
{
    psti_wait_for_predecessor();
    if (thread_of() < PSTI_WARP)
        look_at_pool<false>(s, args);
    PSTI_SYNC_TEAM();
    two_counts counts = {};
    if (Copier::kIsSmall && has_segments(args))
        counts = first_counts<KEPT>(args);
    if (!Copier::kIsSmall && thread_of() >= first_reader() && has_segments(args))
        hold_counts<KEPT, Copier>(s.plan, args, first_counts<KEPT>(args));
    if (is_helper())
        prepare_arrival(s, args, false);
    if (thread_of() < PSTI_WARP)
        prepare_restore(s, args, num_fused);
    if (Copier::kIsSmall && has_segments(args))
        hold_counts<KEPT, Copier>(s.plan, args, counts);
    PSTI_SYNC_TEAM();
    return s.jobs;
}

/* Of a group that is not plain. table: the team's. */
PSTI_DEVICE uint32_t plan_restore(move_shared &s, const psti_move_args &args, const uint64_t *table)
{
    if (!has_segments(args)) { /* here, since every launch waits for what begin_restore does */
        if (thread_of() == 0)
            hold_none(s.plan);
        PSTI_SYNC_TEAM();
    }
    plan_tiles<KEPT>(s.plan, args, psti_ticket_counts(args.ticket), table);
    if (thread_of() == 0)
        s.jobs = jobs_of(s, args, plan_verdict(s, args));
    PSTI_SYNC_TEAM();
    return s.jobs;
}

#endif
