/* Demote and promote, over the way to copy. */
#ifndef PSTI_CUDA_MIGRATE_CUH
#define PSTI_CUDA_MIGRATE_CUH

#include "kernels/core/migrate.h"
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/paging/protocol.cuh"

/* As many places of the page table as the block has threads: those that may migrate, and where to. */
struct page_batch {
    uint32_t *from;
    uint32_t *to; /* or PSTI_ID_NONE */
};
template <uint32_t kThreads> struct page_room {
    uint32_t from[kThreads], to[kThreads];
};
template <> struct page_room<PSTI_WARP> { /* in move_shared: shared memory is dear there */
};

template <uint32_t kThreads>
PSTI_DEVICE page_batch batch_in(move_shared &, page_room<kThreads> &room)
{
    return {room.from, room.to};
}

PSTI_DEVICE page_batch batch_in(move_shared &s, page_room<PSTI_WARP> &)
{
    return {s.places, s.places + PSTI_WARP};
}

struct migration {
    const psti_move_args &args;
    move_shared &s;
    page_batch batch;
    uint64_t quota;
    uint64_t head; /* of the ring that is taken from */
};

/* Of this thread's place: its id, and how many places before it may migrate, of `all` in the batch. */
struct candidate {
    uint32_t id;
    bool may;
    uint64_t rank, all;
};

PSTI_DEVICE candidate look_at(const migration &m, uint64_t place, uint64_t ranks)
{
    const psti_move_args &args = m.args;
    candidate found = {PSTI_ID_NONE, false, 0, 0};
    if (place < held_by(m.s)) {
        found.id = psti_ticket_table(args.ticket, args.count_room)[place];
        found.may = psti_may_migrate(&args.pool, found.id, psti_migrate_from(args.flags),
                                     psti_owner_word(args.ticket_index, epoch_of(m.s), place));
    }
    found.rank = ranks + block_exclusive_scan(m.s.scratch, found.may, &found.all);
    return found;
}

PSTI_DEVICE psti_page_id *moving_of(const psti_move_args &args)
{
    return psti_ticket_moving(args.ticket, args.count_room, args.table_pages);
}

/* Where a candidate goes: concurrent pools took the page before; in ordered ones each block
 * works out what the last will take. */
PSTI_DEVICE uint32_t target_of(const migration &m, uint64_t place, uint64_t rank)
{
    const psti_pool_view &pool = m.args.pool;
    if (pool.concurrent)
        return moving_of(m.args)[place];
    if (rank >= m.quota)
        return PSTI_ID_NONE;
    const uint32_t id = psti_migrate_target(&pool, psti_migrate_to(m.args.flags), m.head, rank);
    const bool is_free = psti_id_in_range(&pool, id) &&
                         psti_load_relaxed_u64(psti_owner_of(&pool, id)) == PSTI_OWNER_FREE;
    return is_free ? id : PSTI_ID_NONE;
}

/* Fills the batch that begins at this place; returns how many entries it has. */
PSTI_DEVICE uint32_t fill_batch(const migration &m, uint64_t first, uint64_t ranks)
{
    const uint64_t place = first + thread_of();
    const candidate found = look_at(m, place, ranks);
    if (found.may) {
        const uint32_t at = (uint32_t)(found.rank - ranks);
        m.batch.from[at] = found.id;
        m.batch.to[at] = target_of(m, place, found.rank);
    }
    PSTI_SYNC_TEAM();
    return (uint32_t)found.all;
}

/* This block's tiles of the pages that move: copied, or cleared where they were. Tile n of all is
 * team n % num_teams()'s, whichever pages have no place to go to. */
template <class Copier>
PSTI_DEVICE void visit_tiles(const migration &m, Copier &copier, bool clears)
{
    const psti_pool_view &pool = m.args.pool;
    const uint32_t shift = pool.page_shift - PSTI_TILE_SHIFT;
    uint64_t ranks = 0;
    uint64_t tile = team_of();
    for (uint64_t first = 0; first < held_by(m.s); first += num_threads()) {
        const uint32_t num = fill_batch(m, first, ranks);
        for (; tile >> shift < ranks + num; tile += num_teams()) {
            const uint32_t at = (uint32_t)((tile >> shift) - ranks);
            const uint32_t offset = ((uint32_t)tile & ((1u << shift) - 1)) << PSTI_TILE_SHIFT;
            if (m.batch.to[at] == PSTI_ID_NONE)
                continue;
            unsigned char *from = psti_page_address(&pool, m.batch.from[at]) + offset;
            unsigned char *to = psti_page_address(&pool, m.batch.to[at]) + offset;
            if (clears)
                clear_tile(from);
            else
                copier.tile(to, from);
        }
        ranks += num;
        PSTI_SYNC_TEAM(); /* the batch may be filled again */
    }
}

/* Concurrent pools, under the lock: takes the pages to move to. */
PSTI_DEVICE void take_targets(migration &m)
{
    const psti_move_args &args = m.args;
    const psti_pool_view &pool = args.pool;
    const uint32_t to = psti_migrate_to(args.flags);
    uint64_t ranks = 0;
    for (uint64_t first = 0; first < held_by(m.s); first += num_threads()) {
        const uint64_t place = first + thread_of();
        const candidate found = look_at(m, place, ranks);
        uint32_t id = PSTI_ID_NONE;
        if (found.may && found.rank < m.quota) {
            const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(m.s), place);
            id = psti_migrate_target(&pool, to, m.head, found.rank);
            if (!psti_id_in_range(&pool, id) ||
                psti_cas_relaxed_u64(psti_owner_of(&pool, id), 0, mine) != 0) {
                psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
                id = PSTI_ID_NONE;
            }
        }
        if (place < held_by(m.s))
            moving_of(args)[place] = id;
        ranks += found.all;
    }
    PSTI_SYNC_TEAM(); /* nobody reads the state any more */
    if (thread_of() >= PSTI_WARP)
        return;
    if (thread_of() == 0) {
        m.s.seen.state.head[to] = m.head + psti_min_u64(ranks, m.quota);
        psti_raise_marks(&m.s.seen.state);
    }
    write_words(m.s, args, PSTI_LOOK_STATE_CHANGES);
}

PSTI_DEVICE void read_quota(migration &m)
{
    const uint32_t to = psti_migrate_to(m.args.flags);
    const psti_pool_state &state = m.s.seen.state;
    m.head = state.head[to];
    m.quota = psti_migrate_quota(m.args.budget, state.tail[to] - state.head[to]);
}

PSTI_DEVICE void agree_targets(migration &m)
{
    if (!join(m.s, m.args))
        return;
    read_quota(m);
    take_targets(m);
    PSTI_SYNC_TEAM();
    if (thread_of() == 0)
        m.s.copies = 1;
    let_others_go(m.s, m.args);
}

/* One place of the table, in the last block: true if its old page is free now. */
PSTI_DEVICE bool settle(const migration &m, uint64_t place, const candidate &found, bool *moved)
{
    const psti_move_args &args = m.args;
    const psti_pool_view &pool = args.pool;
    const uint64_t mine = psti_owner_word(args.ticket_index, epoch_of(m.s), place);
    *moved = false;
    if (!found.may || (!pool.concurrent && found.rank >= m.quota))
        return false;
    uint32_t id;
    if (pool.concurrent) {
        id = moving_of(args)[place];
    } else {
        id = psti_migrate_target(&pool, psti_migrate_to(args.flags), m.head, found.rank);
        if (!psti_id_in_range(&pool, id) ||
            psti_cas_relaxed_u64(psti_owner_of(&pool, id), 0, mine) != 0) {
            psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, id);
            id = PSTI_ID_NONE;
        }
    }
    if (id == PSTI_ID_NONE)
        return false;
    *moved = true;
    psti_ticket_table(args.ticket, args.count_room)[place] = id;
    if (psti_cas_relaxed_u64(psti_owner_of(&pool, found.id), mine, 0) == mine)
        return true;
    psti_record_fault(&pool, PST_FAULT_DAMAGED, args.ticket_index, found.id);
    return false;
}

/* By the whole block that may write pool state. */
PSTI_DEVICE void settle_all(migration &m)
{
    const psti_move_args &args = m.args;
    const psti_pool_view &pool = args.pool;
    const uint32_t from = psti_migrate_from(args.flags);
    const uint32_t to = psti_migrate_to(args.flags);
    psti_pool_state *state = &m.s.seen.state;
    uint64_t tail = state->tail[from];
    uint64_t ranks = 0, num_moved = 0;
    for (uint64_t first = 0; first < held_by(m.s); first += num_threads()) {
        const uint64_t place = first + thread_of();
        const candidate found = look_at(m, place, ranks);
        bool moved;
        const bool freed = settle(m, place, found, &moved);
        uint64_t sum; /* of freed, and above them of moved */
        const uint64_t before =
            block_exclusive_scan(m.s.scratch, (uint64_t)moved << 32 | freed, &sum);
        if (freed)
            pool.ring[from][(tail + (uint32_t)before) & pool.ring_mask[from]] = found.id;
        tail += (uint32_t)sum;
        num_moved += sum >> 32;
        ranks += found.all;
    }
    PSTI_SYNC_TEAM(); /* nobody reads the tail any more */
    if (thread_of() >= PSTI_WARP)
        return;
    if (thread_of() == 0) {
        if (!pool.concurrent) {
            state->head[to] = m.head + psti_min_u64(ranks, m.quota);
            psti_raise_marks(state);
        }
        state->tail[from] = tail;
        psti_count_migrated(&args, &m.s.seen.ticket, num_moved, ranks);
        if (ranks == 0 && held_by(m.s) > 0 && args.budget == 0)
            psti_record_fault(&pool, PST_FAULT_MOVED, args.ticket_index, 0);
    }
    write_words(m.s, args, PSTI_LOOK_STATE_CHANGES | PSTI_LOOK_AT(ticket.num_host));
}

PSTI_DEVICE void commit_migration(migration &m)
{
    const bool locks = m.args.pool.concurrent;
    if (locks) {
        if (thread_of() == 0)
            psti_lock(m.args.pool.state);
        PSTI_SYNC_TEAM();
        read_words(m.s, m.args, PSTI_LOOK_STATE_CHANGES);
        PSTI_SYNC_TEAM();
    }
    settle_all(m);
    if (locks && thread_of() == 0)
        psti_unlock(m.args.pool.state);
}

PSTI_DEVICE pst_fault migrate_verdict(const move_shared &s, const psti_move_args &args)
{
    if (state_of(s) == PSTI_TICKET_EMPTY)
        return PST_FAULT_EMPTY;
    if (state_of(s) == PSTI_TICKET_FAILED)
        return PST_FAULT_FAILED;
    return held_by(s) <= args.table_pages ? PST_FAULT_NONE : PST_FAULT_DAMAGED;
}

template <class Copier>
PSTI_DEVICE void run_migrate(move_shared &s, page_batch batch, Copier &copier,
                             const psti_move_args &args)
{
    migration m = {args, s, batch, 0, 0};
    begin<false, Copier>(s, args);
    if (s.refused)
        return;
    if (is_helper())
        prepare_arrival(s, args, false);
    look_at_ticket(s, args);
    const pst_fault verdict = migrate_verdict(s, args);
    if (verdict == PST_FAULT_NONE && args.pool.concurrent)
        agree_targets(m);
    else if (verdict == PST_FAULT_NONE)
        read_quota(m);
    PSTI_SYNC_TEAM();
    if (verdict == PST_FAULT_NONE && (!args.pool.concurrent || s.copies)) {
        copier.open();
        visit_tiles(m, copier, false);
        copier.close();
        if (args.pool.scrubs)
            visit_tiles(m, copier, true);
    }
    const bool wrote = args.pool.concurrent || (verdict == PST_FAULT_NONE && held_by(s) > 0);
    leave(wrote);
    second_look now = {0, 0, false, false};
    if (is_helper())
        now = look_again(args);
    if (thread_of() == 0)
        arrive(s, args, wrote);
    if (is_helper())
        compare_looks(s, now);
    if (!comes_last(s, args))
        return;
    if (verdict == PST_FAULT_NONE && args.pool.concurrent)
        forget_ready(s, args);
    if (verdict == PST_FAULT_NONE && (!args.pool.concurrent || s.copies))
        commit_migration(m);
    else if (verdict != PST_FAULT_NONE && thread_of() == 0)
        psti_record_fault(&args.pool, verdict, args.ticket_index, 0);
    if (thread_of() == 0)
        finish(s, args);
}

#endif
