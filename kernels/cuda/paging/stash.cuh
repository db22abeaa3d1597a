/* The stash, over the way to copy. */
#ifndef PSTI_CUDA_STASH_CUH
#define PSTI_CUDA_STASH_CUH

#include "kernels/cuda/paging/walk.cuh"

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

/* By thread 0. The same answer in every team of an ordered pool. There only the last team of a stash records
 * faults, and step, reset and pst_nccl_agree run alone: step_valid stays as it is until all teams have read
 * it. Should somebody write it all the same, the numbers of the teams do not add up. */
PSTI_DEVICE void decide_stash(move_shared &s, const psti_move_args &args)
{
    const psti_pool_state &state = s.seen.state;
    const bool is_live = psti_ticket_now(&s.seen.ticket, state.epoch) == PSTI_TICKET_LIVE;
    const bool lost = is_lost(s, args);
    const bool tries = !is_live && s.plan.fits && !lost;
    const uint64_t wanted = psti_pages_of_tiles(num_tiles_of(s.plan), args.pool.page_shift);
    const uint64_t pages = s.plan.fits ? wanted : 0;
    const psti_decision decision =
        psti_decide(pages, state.tail[0] - state.head[0], state.tail[1] - state.head[1],
                    args.host_num, args.host_den);
    const bool copies = tries && decision.fits && pages <= args.table_pages;
    s.decision = decision;
    s.pages = pages;
    s.copies = copies;
    s.moves = copies && pages;
    s.fault = is_live        ? PST_FAULT_LIVE
              : !s.plan.fits ? PST_FAULT_COUNT
              : lost         ? PST_FAULT_LOST
              : copies       ? PST_FAULT_NONE
                             : PST_FAULT_EXHAUSTED;
}

/* What is said beside the fault, by thread 0. */
PSTI_DEVICE uint64_t value_of_fault(const move_shared &s, const psti_move_args &args)
{
    if (s.fault == PST_FAULT_COUNT)
        return (uint64_t)first_misfit(args);
    return s.fault == PST_FAULT_EXHAUSTED ? s.pages : 0;
}

/* Concurrent pools, by the team that has the lock. */
PSTI_DEVICE void take_pages(const move_shared &s, const psti_move_args &args)
{
    const psti_pool_view &pool = args.pool;
    psti_page_id *table = psti_ticket_table(args.ticket, args.count_room);
    for (uint64_t page = thread_of(); page < s.pages; page += num_threads()) {
        const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(s), page);
        uint32_t id = psti_ring_id(&pool, s.seen.state.head, &s.decision, page);
        if (!psti_id_in_range(&pool, id) ||
            psti_cas_relaxed_u64(psti_owner_of(&pool, id), 0, mine) != 0) {
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
            id = PSTI_ID_NONE;
        }
        table[page] = id;
    }
}

/* The counts of the ticket. By a whole team; by its other warps where it has some, while the first
 * one commits. */
PSTI_DEVICE void keep_counts(const move_shared &s, const psti_move_args &args)
{
    int64_t *counts = psti_ticket_counts(args.ticket);
    const uint32_t skipped = num_threads() > PSTI_WARP ? PSTI_WARP : 0;
    if (args.is_plain) {
        const uint32_t is_one = (uint32_t)(lane_of() < args.num_spaces) & (uint32_t)is_helper();
        const uint32_t keeps = is_one & (uint32_t)(s.copies != 0); /* no branches */
        if (keeps)
            counts[lane_of()] = (int64_t)s.plan.sums.rows[lane_of()];
        return;
    }
    if (!s.copies)
        return;
    const uint32_t step = num_threads() - skipped;
    for (uint32_t i = 0; i < args.num_spaces; i++) {
        const uint32_t num = args.spaces[i].num_segments;
        int64_t *kept = counts + args.spaces[i].first_count;
        for (uint32_t e = thread_of() - skipped; e < num;
             e += 2 * step) { /* two in one trip to memory */
            const int64_t first = caller_count(s.plan.sums, args.spaces, i, e);
            int64_t second = 0;
            if (e + step < num)
                second = caller_count(s.plan.sums, args.spaces, i, e + step);
            kept[e] = first;
            if (e + step < num)
                kept[e + step] = second;
        }
    }
}

/* What went wrong: the teams that copied have met pages that could not be had, at most all of
 * them, whatever a damaged record says. */
PSTI_DEVICE void record_faults(const move_shared &s, const psti_move_args &args, uint64_t damage)
{
    const uint64_t most = s.moves ? s.pages : 0;
    if (s.fault != PST_FAULT_NONE)
        psti_record_fault(&args.pool, (pst_fault)s.fault, args.ticket_index,
                          value_of_fault(s, args));
    for (uint64_t i = 0; i < psti_min_u64(psti_damage_count(damage), most); i++)
        psti_record_fault(&args.pool, PST_FAULT_DAMAGED, args.ticket_index, psti_damage_id(damage));
}

/* By one warp: what commit_stash is to write, in what was seen. All is read before anything is
 * written, so that its thread waits once. */
PSTI_DEVICE void note_stash(move_shared &s, const psti_move_args &args)
{
    if (lane_of() != 0 || s.fault == PST_FAULT_LIVE)
        return;
    psti_pool_state state = s.seen.state;
    const psti_ticket_record ticket = s.seen.ticket;
    const psti_decision decision = s.decision;
    const uint64_t pages = s.pages;
    const bool copies = s.copies;
    psti_forget_failure(&state, &ticket);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        state.head[tier] += copies ? decision.take[tier] : 0u;
    state.failed_wanted += copies ? 0u : pages;
    psti_raise_marks(&state);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        s.seen.state.head[tier] = state.head[tier];
        s.seen.state.step_high[tier] = state.step_high[tier];
    }
    s.seen.state.failed_wanted = state.failed_wanted;
    s.seen.state.step_demand = state.step_demand;
    s.seen.ticket.state = copies ? PSTI_TICKET_LIVE : PSTI_TICKET_FAILED;
    s.seen.ticket.epoch = state.epoch;
    s.seen.ticket.num_pages = pages;
    s.seen.ticket.num_host = copies ? decision.take[PSTI_TIER_HOST] : 0;
    s.seen.ticket.form = args.form;
}

/* By thread 0 of the team that may write the state: counts, and what went wrong. */
PSTI_DEVICE void account_for(const move_shared &s, const psti_move_args &args)
{
    uint64_t damage = 0; /* the arrivals order it: what all teams have noted */
    if (s.moves) {
        if (!args.pool.concurrent)
            damage = psti_load_relaxed_u64(&args.ticket->ready);
        psti_count_pages(args.pool.status, &s.decision);
    }
    if (s.fault != PST_FAULT_NONE || psti_damage_count(damage))
        record_faults(s, args, damage);
    if (damage)
        psti_store_relaxed_u64(&args.ticket->ready, 0);
}

/* Takes what was decided and writes the record, as note_stash has worked it out. By the first warp of
 * the team that may write the state. quiet: nothing was moved, and nothing went wrong. */
PSTI_DEVICE void commit_stash(const move_shared &s, const psti_move_args &args, bool quiet)
{
    if (!quiet && thread_of() == 0)
        account_for(s, args);
    if (quiet || s.fault != PST_FAULT_LIVE)
        write_words(s, args, PSTI_LOOK_STATE_CHANGES | PSTI_LOOK_TICKET_DECIDES);
}

/* By thread 0. In concurrent pools only the team that led knows the decision. */
PSTI_DEVICE void share_stash(move_shared &s, const psti_move_args &args)
{
    if (args.pool.concurrent)
        s.share = share_of(args, args.ticket->num_pages, args.ticket->num_host);
    else
        s.share = share_of(args, s.pages, s.decision.take[PSTI_TIER_HOST]);
}

/* Concurrent pools: the first team decides for all and takes the pages. */
PSTI_DEVICE void agree(move_shared &s, const psti_move_args &args)
{
    if (join(s, args)) {
        if (thread_of() == 0)
            decide_stash(s, args);
        PSTI_SYNC_TEAM();
        if (thread_of() >= PSTI_WARP || num_threads() == PSTI_WARP)
            keep_counts(s, args);
        if (s.copies)
            take_pages(s, args);
        PSTI_SYNC_TEAM();
        if (thread_of() < PSTI_WARP) {
            note_stash(s, args);
            commit_stash(s, args, false);
        }
        PSTI_SYNC_TEAM();
        let_others_go(s, args);
    }
    if (thread_of() != 0)
        return;
    s.moves = s.copies && num_tiles_of(s.plan) != 0;
    if (s.moves)
        share_stash(s, args);
}

template <class Copier> struct stash_mover {
    static const bool kAsync = Copier::kAsync;
    static const bool kHasTogether = true;
    static const bool kHasRows = Copier::kHasRows;
    unsigned char *to;
    Copier &copier;
    PSTI_DEVICE_METHOD void run(unsigned char *rows, uint32_t at, uint32_t bytes)
    {
        copier.run(to + at, rows, bytes);
    }
    PSTI_DEVICE_METHOD void rows(const row_span &span, uint32_t at, uint32_t bytes)
    {
        copier.rows(to + at, span, bytes);
    }
    PSTI_DEVICE_METHOD void piece(unsigned char *rows, uint32_t at, uint32_t bytes)
    {
        copier.piece(to + at, rows, bytes);
    }
};

/* Ordered pools: whether the page is the ticket's. Who `enters`, which one thread does that has its first
 * byte, makes it so, and writes it into the table; a page that somebody has is not free, whatever the
 * ring says. */
PSTI_DEVICE bool take_page(const move_shared &s, const psti_move_args &args, uint32_t id,
                           uint64_t page, bool enters)
{
    const psti_pool_view &pool = args.pool;
    const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(s), page);
    const bool in_range = psti_id_in_range(&pool, id);
    uint64_t owner = PSTI_OWNER_ABSENT;
    /* both are asked for before either is waited for: a warp has lanes of both kinds */
    if (in_range && enters)
        owner = psti_cas_relaxed_u64(psti_owner_of(&pool, id), PSTI_OWNER_FREE, mine);
    if (in_range && !enters)
        owner = psti_load_relaxed_u64(psti_owner_of(&pool, id));
    const bool taken = owner == PSTI_OWNER_FREE || (!enters && owner == mine);
    if (enters)
        psti_ticket_table(args.ticket, args.count_room)[page] = taken ? id : PSTI_ID_NONE;
    if (enters && !taken)
        psti_note_damage(args.ticket, id);
    return taken;
}

/* The page at this place of a ticket that is stashed. */
PSTI_DEVICE uint32_t stashed_id(const move_shared &s, const psti_move_args &args, uint64_t page)
{
    if (args.pool.concurrent)
        return psti_ticket_table(args.ticket, args.count_room)[page];
    return psti_ring_id(&args.pool, s.seen.state.head, &s.decision, page);
}

template <class Copier, class Fused> struct stash_source {
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

    /* Where the tile goes to; 0: nowhere. */
    PSTI_DEVICE_METHOD uint64_t find(uint64_t tile, uint32_t tiers) const
    {
        const psti_pool_view &pool = args.pool;
        uint32_t offset;
        const uint64_t page = page_of_tile(pool, tile, &offset);
        const uint32_t id = stashed_id(s, args, page);
        const bool enters = offset == 0 && thread_of() < PSTI_WARP; /* the first warp has the say */
        if (!(tiers >> psti_id_tier(id) & 1))
            return 0;
        if (pool.concurrent ? !psti_id_in_range(&pool, id) : !take_page(s, args, id, page, enters))
            return 0;
        return (uint64_t)(psti_page_address(&pool, id) + offset);
    }

    PSTI_DEVICE_METHOD void begin(held &h, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.begin(h, (unsigned char *)place, (const unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD void end(const held &h, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.end(h, (unsigned char *)place, (const unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD void ask(uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.ask((unsigned char *)place, (const unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD void shift(uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.shift((unsigned char *)place, (const unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD void shift_part(uint64_t place, uint64_t rows, uint32_t bytes, bool alone)
    {
        copier.shift_part((unsigned char *)place, (const unsigned char *)rows, bytes, alone);
    }
    PSTI_DEVICE_METHOD void bring(uint32_t n, uint64_t place, uint64_t rows, uint32_t bytes)
    {
        copier.bring(n, (unsigned char *)place, (const unsigned char *)rows, bytes);
    }
    PSTI_DEVICE_METHOD stash_mover<Copier> mover(uint64_t place)
    {
        return {(unsigned char *)place, copier};
    }
};

/* What is to be done, as bits. */
enum stash_work { STASH_MOVES = 1, STASH_AGREES = 2, STASH_STOPS = 4, STASH_FAILS = 8 };
#define PSTI_STASH_BEFORE ((uint32_t)STASH_MOVES | STASH_AGREES) /* the arrival */

/* By thread 0. */
PSTI_DEVICE void prepare_stash(move_shared &s, const psti_move_args &args)
{
    const bool stops = s.refused;
    uint32_t work = STASH_AGREES;
    if (!args.pool.concurrent) {
        decide_stash(s, args);
        work = (s.moves ? STASH_MOVES : 0) | (s.fault != PST_FAULT_NONE ? STASH_FAILS : 0);
        if (s.moves)
            share_stash(s, args);
    }
    s.work = stops ? (uint32_t)STASH_STOPS : work;
}

/* Whether there is something to copy, in concurrent pools after the teams have agreed. */
PSTI_DEVICE bool does_move(move_shared &s, const psti_move_args &args)
{
    if (args.pool.concurrent) {
        agree(s, args);
        PSTI_SYNC_TEAM();
    }
    return s.moves;
}

template <class Copier, class Fused>
PSTI_DEVICE void run_stash(move_shared &s, Copier &copier, const psti_move_args &args, Fused fused)
{
    begin<true, Copier>(s, args);
    if (!args.is_plain)
        plan_tiles<NEW>(s.plan, args, NULL, segment_table<Copier::kRingBytes>(args));
    if (thread_of() == 0)
        prepare_stash(s, args);
    PSTI_SYNC_TEAM();
    uint32_t work = s.work;
    const bool wrote = work & (PSTI_STASH_BEFORE | STASH_STOPS);
    bool moves = false;
    if (wrote) {
        if (work & STASH_STOPS) {
            fused.run(s, false);
            return;
        }
        moves = does_move(s, args);
        if (moves) {
            stash_source<Copier, Fused> source = {args, s, copier, fused};
            source.copier.open();
            move_tiles<NEW>(source, s, args, NULL);
            source.copier.close();
            work = s.work; /* no register holds it meanwhile */
        }
    }
    fused.run(s, moves);
    leave(wrote);
    const bool ordered = !args.pool.concurrent;
    second_look now = {0, 0, false, false};
    if (is_helper())
        now = look_again(args);
    if (thread_of() == 0)
        arrive(s, args, wrote);
    if (is_helper()) {
        compare_looks(s, now);
        if (ordered)
            note_stash(s, args);
    }
    if (!comes_last(s, args))
        return;
    if (ordered) {
        if (thread_of() < PSTI_WARP)
            commit_stash(s, args, work == 0);
        if (thread_of() >= PSTI_WARP || num_threads() == PSTI_WARP)
            keep_counts(s, args);
        PSTI_SYNC_TEAM();
    } else {
        forget_ready(s, args);
    }
    if (thread_of() == 0)
        finish(s, args);
}

#endif
