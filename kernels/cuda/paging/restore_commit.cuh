/* How a restore gives a ticket's pages back, and what else the last team writes. */
#ifndef PSTI_CUDA_RESTORE_COMMIT_CUH
#define PSTI_CUDA_RESTORE_COMMIT_CUH

#include "kernels/cuda/paging/restore_record.cuh"

PSTI_DEVICE const int64_t *counts_left(const psti_move_args &args, uint32_t jobs)
{
    return jobs & CLEARS_ALL ? NULL : psti_ticket_counts(args.ticket);
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

/* By one warp, in what was seen: what commit_restore is to write, but for the pages. */
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
    if (locks && is_helper_anew())
        note_free(s, jobs);
    if (jobs & RETURNS)
        free_pages(s, args, found);
    if (locks)
        PSTI_SYNC_TEAM();
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

#endif
