/* Restore and release, over the way to copy. */
#ifndef PSTI_CUDA_RESTORE_CUH
#define PSTI_CUDA_RESTORE_CUH

#include "kernels/cuda/copy.cuh"
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
    static const bool kShifts = Copier::kShifts;
    typedef typename Copier::held held;
    static const uint32_t kRingBytes = Copier::kRingBytes;
    const psti_move_args &args;
    const move_shared &s;
    Copier copier;
    Fused fused;

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
    PSTI_DEVICE_METHOD void shift(uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.shift((unsigned char *)rows, (const unsigned char *)place, bytes);
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
    static const bool kShifts = false;
    static const uint32_t kRingBytes = Copier::kRingBytes;

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
    PSTI_DEVICE_METHOD zero_mover<Copier> mover(uint64_t found) const
    {
        (void)found;
        return {};
    }
};

/* What stands in the way, but for the counts. */
PSTI_DEVICE pst_fault record_verdict(const move_shared &s, const psti_move_args &args)
{
    const psti_ticket_state state = state_of(s);
    const bool releases = args.flags & PSTI_MOVE_RELEASE;
    const pst_fault of_live = s.seen.ticket.form == args.form ? PST_FAULT_NONE : PST_FAULT_FORM;
    const pst_fault of_full = state == PSTI_TICKET_FAILED ? PST_FAULT_FAILED : of_live;
    return state == PSTI_TICKET_EMPTY ? PST_FAULT_EMPTY : releases ? PST_FAULT_NONE : of_full;
}

/* By the first warp: its share of the pages, and the ids of those of the team's first tiles. */
PSTI_DEVICE uint32_t first_id(move_shared &s, const psti_move_args &args)
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
    return psti_ticket_table(args.ticket, args.count_room)[page];
}

/* By the first warp: the id of this lane's page, and where they are not part of the look the ticket's counts,
 * in one trip to memory. */
PSTI_DEVICE uint32_t read_record(move_shared &s, const psti_move_args &args, const int64_t *counts)
{
    const uint32_t i = lane_of();
    const bool reads =
        i < args.num_spaces && args.num_looked == 0 && args.spaces[i].num_segments == 1;
    const uint32_t id = first_id(s, args);
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

PSTI_DEVICE const int64_t *counts_left(const psti_move_args &args, uint32_t jobs)
{
    return jobs & CLEARS_ALL ? NULL : psti_ticket_counts(args.ticket);
}

/* This block's share of what a restore clears. */
template <class Copier>
PSTI_DEVICE void clear_rows(move_shared &s, const psti_move_args &args, uint32_t jobs)
{
    const int64_t *counts = counts_left(args, jobs);
    zero_source<Copier> zero = {};
    PSTI_SYNC_TEAM(); /* nobody reads the share before this one any more */
    if (thread_of() == 0)
        s.share = share_of_all();
    if (!args.is_plain || Copier::kIsSmall) /* which has no registers for a way of its own */
        plan_tiles<GAP>(s.plan, args, counts);
    else if (is_helper())
        plan_plain<GAP>(s.plan, args, counts, true);
    PSTI_SYNC_TEAM();
    move_tiles<GAP>(zero, s, args, counts);
}

/* By one team; by its other warps where it has some. */
PSTI_DEVICE void update_dirty(const psti_move_args &args, uint32_t jobs)
{
    const int64_t *counts = counts_left(args, jobs);
    const uint32_t skipped = num_threads() > PSTI_WARP ? PSTI_WARP : 0;
    if (!args.dirty || thread_of() < skipped)
        return;
    for (uint32_t i = thread_of() - skipped; i < args.num_counts; i += num_threads() - skipped) {
        const uint64_t live = counts ? (uint64_t)counts[i] : 0;
        const bool cleared = !counts || args.flags & PSTI_MOVE_ZERO;
        args.dirty[i] = cleared ? live : psti_max_u64(args.dirty[i], live);
    }
}

/* Ids of places of the page table that follow one another: so many of a thread at once, whose waits
 * for memory so are one. A team of one warp, which is short of registers, has them in shared memory. */
template <uint32_t kPlaces> struct places {
    uint32_t id[kPlaces];
    PSTI_DEVICE_METHOD uint32_t get(const move_shared &, uint32_t i) const
    {
        return id[i];
    }
    PSTI_DEVICE_METHOD void set(move_shared &, uint32_t i, uint32_t to)
    {
        id[i] = to;
    }
};
template <> struct places<PSTI_PARKED> {
    PSTI_DEVICE_METHOD uint32_t get(const move_shared &s, uint32_t i) const
    {
        return s.parked[i][lane_of()];
    }
    PSTI_DEVICE_METHOD void set(move_shared &s, uint32_t i, uint32_t to) const
    {
        s.parked[i][lane_of()] = to;
    }
};

/* Of this thread, of those from `first` on. By the last team, which needs its plan no more. */
template <uint32_t kPlaces>
PSTI_DEVICE places<kPlaces> load_places(move_shared &s, const psti_move_args &args, uint64_t first)
{
    const psti_page_id *table = psti_ticket_table(args.ticket, args.count_room);
    const uint64_t pages = psti_min_u64(held_by(s), args.table_pages);
    places<kPlaces> found;
    uint32_t id[kPlaces];
#pragma unroll
    for (uint32_t i = 0; i < kPlaces; i++) {
        const uint64_t page = first + thread_of() * kPlaces + i;
        id[i] = page < pages ? table[page] : PSTI_ID_NONE;
    }
#pragma unroll
    for (uint32_t i = 0; i < kPlaces; i++)
        found.set(s, i, id[i]);
    return found;
}

/* Takes the pages at these places from the ticket; a bit of the result for each that was its own. So
 * many at once as there are registers for. */
template <uint32_t kPlaces>
PSTI_DEVICE uint32_t disown(const move_shared &s, const psti_move_args &args,
                            const places<kPlaces> &found, uint64_t first)
{
    const uint32_t kAtOnce = kPlaces < 4 ? kPlaces : 4;
    const psti_pool_view &pool = args.pool;
    const uint64_t pages = psti_min_u64(held_by(s), args.table_pages);
    const uint64_t own = first + thread_of() * kPlaces;
    uint64_t owner[kAtOnce];
    uint32_t freed = 0;
#pragma unroll 1
    for (uint32_t n = 0; n < kPlaces && first + n < pages; n += kAtOnce) {
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; i++) {
            const uint32_t id = found.get(s, n + i);
            const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(s), own + n + i);
            owner[i] = PSTI_OWNER_ABSENT;
            if (own + n + i < pages && psti_id_in_range(&pool, id))
                owner[i] = psti_cas_relaxed_u64(psti_owner_of(&pool, id), mine, 0);
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; i++) {
            const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(s), own + n + i);
            if (own + n + i < pages && owner[i] == mine)
                freed |= 1u << (n + i);
            else if (own + n + i < pages)
                psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, found.get(s, n + i));
        }
    }
    return freed;
}

/* Gives the ticket's pages back in table order. By the whole team that may write pool state. */
template <uint32_t kPlaces>
PSTI_DEVICE void free_pages(move_shared &s, const psti_move_args &args, places<kPlaces> found)
{
    const psti_pool_view &pool = args.pool;
    const uint64_t pages = psti_min_u64(held_by(s), args.table_pages);
    uint64_t given = 0; /* of both tiers, as in one scan */
    for (uint64_t first = 0; first < pages; first += num_threads() * kPlaces) {
        if (first > 0)
            found = load_places<kPlaces>(s, args, first);
        const uint32_t freed = disown(s, args, found, first);
        uint64_t mine = 0;
#pragma unroll
        for (uint32_t i = 0; i < kPlaces; i++)
            mine += (uint64_t)(freed >> i & 1) << (32 * psti_id_tier(found.get(s, i)));
        uint64_t all;
        uint64_t before = given + block_exclusive_scan(s.scratch, mine, &all);
#pragma unroll
        for (uint32_t i = 0; i < kPlaces; i++) {
            const uint32_t id = found.get(s, i);
            const uint32_t tier = psti_id_tier(id);
            const uint64_t slot = s.seen.state.tail[tier] + (uint32_t)(before >> (32 * tier));
            if (!(freed >> i & 1))
                continue;
            pool.ring[tier][slot & pool.ring_mask[tier]] = id;
            before += (uint64_t)1 << (32 * tier);
        }
        given += all;
    }
    PSTI_SYNC_TEAM(); /* nobody reads the tails any more */
    if (thread_of() == 0)
        for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
            s.seen.state.tail[tier] += (uint32_t)(given >> (32 * tier));
}

/* By one warp, in what was seen: what commit_free is to write, but for the pages. */
PSTI_DEVICE void note_free(move_shared &s, uint32_t jobs)
{
    if (lane_of() != 0 || !(jobs & FREES))
        return;
    psti_forget_failure(&s.seen.state, &s.seen.ticket);
    s.seen.ticket.state = PSTI_TICKET_EMPTY;
}

/* By the whole team that may write the pool's state, which in concurrent pools is locked until the record
 * is written. */
template <uint32_t kPlaces>
PSTI_DEVICE void free_held(move_shared &s, const psti_move_args &args, uint32_t jobs,
                           const places<kPlaces> &found)
{
    const bool locks = jobs & LOCKS;
    if (locks) {
        if (thread_of() == 0)
            psti_lock(args.pool.state);
        PSTI_SYNC_TEAM();
        read_words(s, args, PSTI_LOOK_STATE_CHANGES);
        PSTI_SYNC_TEAM();
    }
    if (locks && is_helper())
        note_free(s, jobs);
    if (jobs & RETURNS)
        free_pages(s, args, found);
    if (locks)
        PSTI_SYNC_TEAM();
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

/* By the first warp: what stands in the way; NONE where something is to be done or planned. */
PSTI_DEVICE pst_fault ask_record(move_shared &s, const psti_move_args &args)
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
    const uint32_t id = read_record(s, args, counts);
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
PSTI_DEVICE void prepare_restore(move_shared &s, const psti_move_args &args)
{
    const pst_fault fault = ask_record(s, args);
    const bool plans =
        fault == PST_FAULT_NONE && !args.is_plain && !(args.flags & PSTI_MOVE_RELEASE);
    if (thread_of() == 0) {
        const uint32_t jobs = jobs_of(s, args, fault); /* needed or not: no branch */
        s.jobs = plans ? (uint32_t)PLANS : jobs;
    }
}

/* What is to be done. Only the first warp and the helper have something to do meanwhile, and the more the
 * others do, the longer it takes. */
PSTI_DEVICE uint32_t begin_restore(move_shared &s, const psti_move_args &args)
{
    psti_wait_for_predecessor();
    if (thread_of() < PSTI_WARP)
        look_at_pool<false>(s, args);
    PSTI_SYNC_TEAM();
    if (is_helper())
        prepare_arrival(s, args, false);
    if (thread_of() < PSTI_WARP)
        prepare_restore(s, args);
    PSTI_SYNC_TEAM();
    return s.jobs;
}

/* Of a group that is not plain. */
PSTI_DEVICE uint32_t plan_restore(move_shared &s, const psti_move_args &args)
{
    plan_tiles<KEPT>(s.plan, args, psti_ticket_counts(args.ticket));
    if (thread_of() == 0)
        s.jobs = jobs_of(s, args, plan_verdict(s, args));
    PSTI_SYNC_TEAM();
    return s.jobs;
}

/* What this team does before it arrives; STOPS: it does not. */
template <class Copier, class Fused>
PSTI_DEVICE uint32_t do_share(move_shared &s, Copier &copier, const psti_move_args &args,
                              uint32_t jobs, Fused fused)
{
    if (jobs & PLANS)
        jobs = plan_restore(s, args);
    if (jobs & COPIES)
        copy_restore(s, copier, args, fused);
    if (jobs & CLEARS)
        clear_rows<Copier>(s, args, jobs);
    if (jobs & SCRUBS)
        scrub_tiles(s, args, fused);
    /* nobody is the last: the others clear their shares before the launch ends */
    if (jobs & STOPS && jobs & DIRTIES && team_of() == 0)
        update_dirty(args, jobs);
    return jobs;
}

/* By the whole last team. */
template <uint32_t kPlaces>
PSTI_DEVICE void commit_restore(move_shared &s, const psti_move_args &args, uint32_t jobs)
{
    if (jobs & PSTI_JOBS_BEHIND) {
        places<kPlaces> found = {};
        if (jobs & (RETURNS | DIRTIES | RECORDS))
            found = load_places<kPlaces>(s, args, 0);
        if (jobs & DIRTIES) {
            update_dirty(args, jobs);
            PSTI_SYNC_TEAM();
        }
        if (jobs & RECORDS && thread_of() == 0)
            psti_record_fault(&args.pool, fault_of(jobs), args.ticket_index, 0);
        if (jobs & FREES)
            free_held(s, args, jobs, found);
    }
    if (!(jobs & FREES) || thread_of() >= PSTI_WARP)
        return;
    write_words(s, args, PSTI_LOOK_STATE_CHANGES | PSTI_LOOK_AT(ticket.state));
    if (thread_of() == 0 && jobs & LOCKS)
        psti_unlock(args.pool.state);
}

template <class Copier, class Fused>
PSTI_DEVICE void run_restore(move_shared &s, Copier &copier, const psti_move_args &args,
                             Fused fused)
{
    const uint32_t kPlaces = Copier::kIsSmall ? PSTI_PARKED : 2;
    uint32_t jobs = begin_restore(s, args);
    const bool before = jobs & PSTI_JOBS_BEFORE;
    if (before) {
        jobs = do_share(s, copier, args, jobs, fused);
        if (!Fused::kIs && jobs & STOPS)
            return;
    }
    if (Fused::kIs && fault_of(jobs) != PST_FAULT_NONE)
        fused.clear(s);
    if (Fused::kIs && jobs & STOPS)
        return;
    const bool wrote = Fused::kIs ? jobs & PSTI_JOBS_BEFORE : before; /* registers, or a branch */
    leave(wrote);
    second_look now = {0, 0, false, false};
    if (is_helper())
        now = look_again(args);
    if (thread_of() == 0)
        arrive(s, args, wrote);
    if (is_helper()) {
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
