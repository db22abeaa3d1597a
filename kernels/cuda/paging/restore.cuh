/* Restore and release, over the way to copy. */
#ifndef PSTI_CUDA_RESTORE_CUH
#define PSTI_CUDA_RESTORE_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/paging/restore_commit.cuh"
#include "kernels/cuda/paging/walk.cuh"

template <class Copier> struct restore_mover {
    static const bool kAsync = Copier::kAsync;
    static const bool kHasTogether = true;
    static const bool kHasRows = Copier::kHasRows;
    const unsigned char *from;
    Copier &copier;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t at, uint32_t bytes)
    {
        copier.run(rows, from + at, bytes);
    }
    PSTI_DEVICE_METHOD void rows(const row_span &span, uint32_t at, uint32_t bytes)
    {
        copier.rows(const_cast<unsigned char *>(from) + at, span, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes)
    {
        copier.piece(rows, from + at, bytes);
    }
};

template <class Copier, class Fused> struct restore_source {
    static const bool kHasRuns = true;
    static const bool kHasApartRuns = !Copier::kIsSmall; /* else room is short */
    static const bool kShifts = Copier::kShifts;
    static const bool kLifts = Copier::kLifts;
    static const bool kAsks = Copier::kAsks;
    typedef typename Copier::held held;
    static const uint32_t kRingBytes = Copier::kRingBytes;
    const psti_move_args &args;
    const move_shared &s;
    Copier copier;
    Fused fused;

    PSTI_DEVICE_METHOD tile_runs *runs() const
    {
        return copier.runs();
    }
    PSTI_DEVICE_METHOD bool skips(uint32_t tensor) const
    {
        return fused.has(tensor);
    }

    /* Where the tile comes from; 0: its page is not the ticket's, or not at this place. */
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        const bool is_first = tile == s.share.first + (uint64_t)lane_of() * s.share.stride;
        const uint32_t id = is_first ? s.first_ids[lane_of()]
                                     : psti_ticket_table(args.ticket, args.count_room)[page];
        if (!(tiers >> psti_id_tier(id) & 1))
            return 0;
        if (psti_id_in_range(&pool, id) &&
            psti_load_relaxed_u64(psti_owner_of(&pool, id)) ==
                psti_owner_word(args.ticket_index, epoch_of(s), page))
            return (uint64_t)(psti_page_address(&pool, id) + offset);
        if (thread_of() < PSTI_WARP && offset == 0) /* once per page */
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
        return 0;
    }

    PSTI_DEVICE_METHOD void begin(held &h, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.begin(h, (unsigned char *)rows, (const unsigned char *)place, bytes);
    }
    PSTI_DEVICE_METHOD void end(const held &h, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.end(h, (unsigned char *)rows, (const unsigned char *)place, bytes);
    }
    PSTI_DEVICE_METHOD void ask(uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.ask((unsigned char *)rows, (const unsigned char *)place, bytes);
    }
    PSTI_DEVICE_METHOD void shift(uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.shift((unsigned char *)rows, (const unsigned char *)place, bytes);
    }
    PSTI_DEVICE_METHOD void shift_part(uint64_t place, uint64_t rows, uint32_t bytes, bool alone)
    {
        copier.shift_part((unsigned char *)rows, (const unsigned char *)place, bytes, alone);
    }
    PSTI_DEVICE_METHOD void bring(uint32_t n, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.bring(n, (unsigned char *)rows, (const unsigned char *)place, bytes);
    }
    PSTI_DEVICE_METHOD restore_mover<Copier> mover(uint64_t place)
    {
        return {(const unsigned char *)place, copier};
    }
};

template <class Copier> struct zero_mover {
    static const bool kAsync = false;
    static const bool kHasTogether = !Copier::kIsSmall; /* else registers are too few */
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
        zero_piece(rows, bytes);
    }
};

template <class Copier> struct zero_source {
    static const bool kHasRuns = false;
    static const bool kHasApartRuns = !Copier::kIsSmall;
    static const bool kShifts = false;
    static const bool kLifts = false;
    static const bool kAsks = false;
    typedef nothing_held held;
    static const uint32_t kRingBytes = Copier::kRingBytes;
    const Copier &copier;

    PSTI_DEVICE_METHOD tile_runs *runs() const
    {
        return copier.runs();
    }
    PSTI_DEVICE_METHOD bool skips(uint32_t tensor) const
    {
        (void)tensor;
        return false;
    }
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        (void)tile;
        (void)tiers;
        return 1;
    }
    PSTI_DEVICE_METHOD void begin(held &, uint64_t, uint64_t, uint32_t)
    {
    }
    PSTI_DEVICE_METHOD void end(const held &, uint64_t, uint64_t rows, uint32_t bytes)
    {
        zero_run((unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD zero_mover<Copier> mover(uint64_t found) const
    {
        (void)found;
        return {};
    }
};

template <class Copier, class Fused>
PSTI_DEVICE void copy_restore(move_shared &s, Copier &copier, const psti_move_args &args,
                              Fused fused)
{
    const int64_t *counts = psti_ticket_counts(args.ticket);
    restore_source<Copier, Fused> source = {args, s, copier, fused};
    source.copier.open();
    move_tiles<KEPT>(source, s, args, counts);
    source.copier.close();
    fused.run(s, true);
}

/* This block's share of what a restore clears. */
template <class Copier>
PSTI_DEVICE void clear_rows(move_shared &s, const Copier &copier, const psti_move_args &args,
                            uint32_t jobs)
{
    const int64_t *counts = counts_left(args, jobs);
    zero_source<Copier> zero = {copier};
    if (thread_of() == 0) /* of a fault nothing was planned, so nobody has said what is held */
        hold_none(s.plan);
    PSTI_SYNC_TEAM(); /* nobody reads the share before this one any more */
    if (thread_of() == 0)
        s.share = share_of_all();
    if (!args.is_plain || Copier::kIsSmall) /* which has no registers for a way of its own */
        plan_tiles<GAP>(s.plan, args, counts, segment_table<Copier::kRingBytes>(args));
    else if (is_helper())
        plan_plain<GAP>(s.plan, args, counts, true);
    PSTI_SYNC_TEAM();
    move_tiles<GAP>(zero, s, args, counts);
}

/* Clears the tile, if its page is the ticket's and of these tiers. */
PSTI_DEVICE void scrub_tile(const move_shared &s, const psti_move_args &args, uint64_t tile,
                            uint32_t tiers)
{
    const psti_pool_view &pool = args.pool;
    uint32_t offset;
    const uint64_t page = page_of_tile(pool, tile, &offset);
    const uint32_t id = psti_ticket_table(args.ticket, args.count_room)[page];
    if (!(tiers >> psti_id_tier(id) & 1))
        return;
    if (psti_id_in_range(&pool, id) && psti_load_relaxed_u64(psti_owner_of(&pool, id)) ==
                                           psti_owner_word(args.ticket_index, epoch_of(s), page))
        clear_tile(psti_page_address(&pool, id) + offset);
}

/* Clears the tiles that this block copied, and its share of those that nobody did. Of a tensor that
 * others have read in its pages they are the last team's, see scrub_fused. */
template <class Fused>
PSTI_DEVICE void scrub_tiles(move_shared &s, const psti_move_args &args, Fused fused)
{
    PSTI_SYNC_TEAM();
    if (thread_of() == 0) /* as when they were copied */
        s.share = share_of(args, held_by(s), s.seen.ticket.num_host);
    PSTI_SYNC_TEAM();
    const tile_share &share = s.share;
    const psti_pool_view &pool = args.pool;
    const uint64_t pages = psti_min_u64(held_by(s), args.table_pages);
    const uint64_t num_tiles = pages << (pool.page_shift - PSTI_TILE_SHIFT);
    for (uint64_t tile = share.first; tile < num_tiles && share.tiers; tile += share.stride) {
        const bool is_fused = Fused::kIs && tile < num_tiles_of(s.plan) &&
                              fused.has(tensor_of_tile(s.plan, (uint32_t)tile));
        if (!is_fused)
            scrub_tile(s, args, tile, share.tiers);
    }
}

/* By the whole last team: all teams have read what they want. */
template <class Fused>
PSTI_DEVICE void scrub_fused(const move_shared &s, const psti_move_args &args, Fused fused)
{
    for (uint32_t tile = 0; tile < num_tiles_of(s.plan); tile++)
        if (fused.has(tensor_of_tile(s.plan, tile)))
            scrub_tile(s, args, tile, PSTI_BOTH_TIERS);
    PSTI_SYNC_TEAM();
}

/* What this team does before it arrives; STOPS: it does not. */
template <class Copier, class Fused>
PSTI_DEVICE uint32_t do_share(move_shared &s, Copier &copier, const psti_move_args &args,
                              uint32_t jobs, Fused fused)
{
    if (jobs & PLANS)
        jobs = plan_restore(s, args, segment_table<Copier::kRingBytes>(args));
    if (jobs & COPIES) {
        copy_restore(s, copier, args, fused);
        if (!Copier::kIsSmall)
            jobs = s.jobs; /* no register holds them meanwhile; nor below */
    }
    if (jobs & CLEARS) {
        clear_rows(s, copier, args, jobs);
        if (!Copier::kIsSmall)
            jobs = s.jobs;
    }
    if (jobs & SCRUBS)
        scrub_tiles(s, args, fused);
    /* nobody is the last: the others clear their shares before the launch ends */
    if (jobs & STOPS && jobs & DIRTIES && team_of() == 0)
        update_dirty(args, jobs);
    return jobs;
}

template <class Copier, class Fused>
PSTI_DEVICE void run_restore(move_shared &s, Copier &copier, const psti_move_args &args,
                             Fused fused)
{
    const uint32_t kPlaces = Copier::kIsSmall ? PSTI_PARKED : 2;
    uint32_t jobs = begin_restore<Copier>(s, args, Fused::kIs ? 1 : 0);
    bool wrote = false, rests = !is_helper(); /* this way round: a branch then needs no negation */
    if (jobs & PSTI_JOBS_BEFORE) {
        jobs = do_share(s, copier, args, jobs, fused);
        if (!Fused::kIs && jobs & STOPS)
            return;
        if (!Fused::kIs)
            rests = !is_helper_anew();
        wrote = jobs & PSTI_JOBS_BEFORE; /* where jobs are planned and then none, nothing was */
        if (!Fused::kIs && wrote)
            PSTI_SYNC_TEAM(); /* not in leave: where nothing is to do it need not ask then */
    }
    if (Fused::kIs && fault_of(jobs) != PST_FAULT_NONE)
        fused.clear(s);
    if (Fused::kIs && jobs & STOPS)
        return;
    leave(Fused::kIs && wrote);
    second_look now = {0, 0, false, false};
    if (!rests)
        now = look_again(args);
    if (thread_of() == 0)
        arrive(s, args, wrote);
    if (!rests) {
        compare_looks(s, now);
        if (!args.pool.concurrent)
            note_free(s, jobs);
    }
    if (!comes_last(s, args))
        return;
    if (Fused::kIs && jobs & SCRUBS)
        scrub_fused(s, args, fused);
    commit_restore<kPlaces>(s, args, jobs);
    if (thread_of() == 0)
        finish(s, args);
}

#endif
