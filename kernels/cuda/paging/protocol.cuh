/* What stash, restore and migrate have in common: how a launch begins, how its blocks agree that
 * all are done, how it ends. */
#ifndef PSTI_CUDA_PROTOCOL_CUH
#define PSTI_CUDA_PROTOCOL_CUH

#include "kernels/cuda/paging/share.cuh"
#include "kernels/cuda/paging/tiles.cuh"

#include "kernels/core/mix.h"
#include "kernels/core/pool.h"

/* The words that an operation looks at, all at once: the pool's state line and the ticket's
 * record. */
struct look {
    psti_pool_state state;
    psti_ticket_record ticket;
};

#define PSTI_LOOK_WORDS ((uint32_t)(sizeof(look) / 8))
#define PSTI_STATE_WORDS ((uint32_t)(sizeof(psti_pool_state) / 8))
static_assert(PSTI_LOOK_WORDS < PSTI_WARP, "a lane reads each word, and one step_valid");

/* Sets of words, a bit each. */
#define PSTI_LOOK_AT(field) (1u << (offsetof(look, field) / 8))
#define PSTI_LOOK_BOTH(field) (3u << (offsetof(look, field) / 8))
/* All, the launch word among them, as ordered pools ask for them. It may so be newer than what stands
 * beside it, where operations overlap; see arrive. */
#define PSTI_LOOK_ALL ((1u << PSTI_LOOK_WORDS) - 1)
#define PSTI_LOOK_TICKET (((1u << (sizeof(psti_ticket_record) / 8)) - 1) << PSTI_STATE_WORDS)
/* What operations decide from, or write the next of. Of epoch and refuse, in one word, only the
 * epoch. */
#define PSTI_LOOK_TICKET_DECIDES                                                                   \
    (PSTI_LOOK_AT(ticket.state) | PSTI_LOOK_AT(ticket.num_pages) | PSTI_LOOK_AT(ticket.num_host) | \
     PSTI_LOOK_AT(ticket.form))
#define PSTI_LOOK_DECIDES                                                                  \
    (PSTI_LOOK_STATE_CHANGES | PSTI_LOOK_AT(state.num_pages) | PSTI_LOOK_AT(state.epoch) | \
     PSTI_LOOK_TICKET_DECIDES)
/* What operations change. */
#define PSTI_LOOK_STATE_CHANGES                                                                    \
    (PSTI_LOOK_BOTH(state.head) | PSTI_LOOK_BOTH(state.tail) | PSTI_LOOK_AT(state.failed_wanted) | \
     PSTI_LOOK_BOTH(state.step_high) | PSTI_LOOK_AT(state.step_demand))

#define PSTI_PARKED 8u /* places of the page table a lane */

/* What a team knows. */
struct move_shared {
    union {
        tile_plan plan;
        uint32_t places[2 * PSTI_WARP];          /* of a migration, which has no plan */
        uint32_t parked[PSTI_PARKED][PSTI_WARP]; /* of a restore by one warp, see places */
    };
    tile_share share;
    block_scratch scratch;
    union {
        look seen;
        uint64_t words[PSTI_LOOK_WORDS];
    };
    uint32_t first_ids[PSTI_WARP]; /* of a restore: pages of the team's first tiles */
    psti_decision decision;        /* of a stash */
    uint64_t pages;                /* wanted, or held */
    uint32_t fault;
    uint64_t mine;       /* what an arrival adds to the launch word */
    uint64_t others;     /* the word when all other teams have arrived */
    uint64_t closing;    /* what finish adds */
    uint32_t step_valid; /* asked for where the pool fails fast */
    uint32_t work;       /* of a stash */
    uint32_t copies;
    uint32_t moves; /* copies, and there is something to copy */
    uint32_t leads;
    uint32_t last;
    uint32_t same; /* two looks of an ordered pool */
    uint32_t jobs; /* of a restore */
    uint32_t refused;
};

/* In one, so that a register holds where both are. */
struct move_with_runs {
    move_shared move;
    tile_runs runs;
};

/* What else a launch does with one tensor of its group, which it does not copy then; run: with the rows
 * that are live, pages: the ticket has them. A stash runs it also where nothing is stashed; a restore
 * runs clear where it copies nothing because of a fault. */
struct not_fused {
    static const bool kIs = false;
    PSTI_DEVICE_METHOD bool has(uint32_t tensor) const
    {
        (void)tensor;
        return false;
    }
    PSTI_DEVICE_METHOD void run(move_shared &s, bool pages) const
    {
        (void)s;
        (void)pages;
    }
    PSTI_DEVICE_METHOD void clear(move_shared &s) const
    {
        (void)s;
    }
};

PSTI_DEVICE uint64_t *launch_word(const psti_move_args &args)
{
    uint64_t *ordered = &args.pool.state->launch; /* both are there: no branch */
    uint64_t *concurrent = &args.ticket->launch;
    return args.pool.concurrent ? concurrent : ordered;
}

/* Who of this launch has arrived before is the one word's other part, and no concern of a team. */
PSTI_DEVICE uint64_t launch_seen(const move_shared &s, const psti_move_args &args)
{
    return psti_launch_of(args.pool.concurrent ? s.seen.ticket.launch : s.seen.state.launch);
}

/* Where a word of a look stands in memory. */
PSTI_DEVICE uint64_t *place_of_word(const psti_move_args &args, uint32_t word)
{
    const uint64_t state = (uint64_t)args.pool.state;
    const uint64_t ticket = (uint64_t)args.ticket - offsetof(look, ticket);
    return (uint64_t *)((word < PSTI_STATE_WORDS ? state : ticket) + word * sizeof(uint64_t));
}

/* By the first warp: one load of each lane, so one trip to memory for all. Acquire: what the team
 * reads behind its next barrier is not older. The words are in no order among themselves. */
PSTI_DEVICE void read_words(move_shared &s, const psti_move_args &args, uint32_t words)
{
    const uint32_t lane = thread_of();
    if (lane < PSTI_LOOK_WORDS && words >> lane & 1)
        s.words[lane] = psti_load_acquire_u64(place_of_word(args, lane));
}

/* By the first warp, behind what the one before wrote into these words of s.seen. */
PSTI_DEVICE void write_words(const move_shared &s, const psti_move_args &args, uint32_t words)
{
    const uint32_t lane = thread_of();
    __syncwarp();
    if (lane < PSTI_LOOK_WORDS && words >> lane & 1)
        psti_store_relaxed_u64(place_of_word(args, lane), s.words[lane]);
    __syncwarp();
}

/* By the first warp: so many of the words, and whether the step is still valid, where a stash asks
 * for that. Of its own size: others write that half of its word while operations run, and accesses
 * of two sizes to one place have no order at all. */
PSTI_DEVICE void read_step_and_words(move_shared &s, const psti_move_args &args, uint32_t words)
{
    const bool asks = args.pool.fails_fast && thread_of() == PSTI_WARP - 1;
    uint32_t valid = 0;
    if (asks) /* before what acquires, so that it waits beside it */
        valid = psti_load_relaxed_u32((const uint32_t *)&args.pool.status->step_valid);
    read_words(s, args, words);
    if (asks)
        s.step_valid = valid;
}

PSTI_DEVICE const uint64_t *count_of_lane(const psti_move_args &args)
{
    return (const uint64_t *)psti_ticket_counts(args.ticket) + lane_of();
}

/* Of a lane's word. */
PSTI_DEVICE uint64_t decided_from(uint64_t word)
{
    return lane_of() == offsetof(look, state.epoch) / 8 ? (uint32_t)word : word;
}

/* By one warp: a hash of what an ordered operation decides from and of what it changes, the same in all
 * teams of a launch that saw the same. Not a sum: of these a team that saw too little makes up for one
 * that saw too much. Concurrent pools need none: the launch word was seen first, and one team decides. */
PSTI_DEVICE uint32_t hash_of(const move_shared &s, const psti_move_args &args)
{
    const uint32_t lane = lane_of();
    const bool decides = PSTI_LOOK_DECIDES >> lane & 1;
    const uint64_t word = decides ? decided_from(s.words[lane]) : 0;
    const uint64_t count = lane < args.num_looked ? s.plan.sums.rows[lane] : 0;
    return psti_warp_sum_u32(psti_mix_u32(word, count, lane));
}

/* By the first warp, of what it has seen: whether the pool refuses; then nothing may be done. */
PSTI_DEVICE uint32_t refusal_of(const move_shared &s, const psti_move_args &args)
{
    return psti_refusal_of(s.seen.state.refuse, args.flags);
}

/* By the first warp, where that is not 0: one thread of the launch says so. */
PSTI_DEVICE void tell_refusal(const psti_move_args &args, uint32_t refused)
{
    if (refused & PSTI_REFUSES_ORDER && thread_of() == 0 && team_of() == 0)
        psti_record_fault(&args.pool, PST_FAULT_ORDER, args.ticket_index, 0);
}

/* The one look at the pool, by the first warp. */
template <bool kAsksStep> PSTI_DEVICE void look_at_pool(move_shared &s, const psti_move_args &args)
{
    if (args.pool.concurrent) {
        if (thread_of() == 0) {
            /* of others' tickets nothing; of this one first the launch word */
            s.seen.ticket.launch = psti_load_acquire_u64(&args.ticket->launch);
            s.seen.state.epoch = psti_load_relaxed_u32(&args.pool.state->epoch);
            s.seen.state.refuse = psti_load_relaxed_u32(&args.pool.state->refuse);
            s.step_valid = 1; /* join asks */
        }
        return;
    }
    const bool counts = lane_of() < args.num_looked;
    uint64_t count = 0;
    if (counts) /* before what acquires, so that it waits beside it */
        count = psti_load_relaxed_u64(count_of_lane(args));
    if (kAsksStep)
        read_step_and_words(s, args, PSTI_LOOK_ALL);
    else
        read_words(s, args, PSTI_LOOK_ALL);
    if (counts)
        s.plan.sums.rows[lane_of()] = count;
}

/* The same beside the caller's counts, which another warp reads; it then plans the tiles of a plain
 * group. */
PSTI_DEVICE void look_with_counts(move_shared &s, const psti_move_args &args)
{
    own_count own = {};
    bool fits = true;
    if (is_helper())
        own = load_count(args.spaces, args.num_spaces, lane_of(), args.is_plain);
    if (thread_of() < PSTI_WARP)
        look_at_pool<true>(s, args);
    if (is_helper())
        fits = keep_count(s.plan.sums, lane_of(), own);
    if (is_helper() && args.is_plain)
        plan_plain<NEW>(s.plan, args, NULL, fits);
}

/* Behind the look, and in concurrent pools behind join: a stash fails, since the step has. */
PSTI_DEVICE bool is_lost(const move_shared &s, const psti_move_args &args)
{
    return args.pool.fails_fast && !s.step_valid;
}

/* By one warp, beside what others have to do: all that the arrival and the end add and expect, so that
 * nothing of it is left to do behind the decision. The number tells this launch's arrivals from those of
 * another, and all its teams add the same. lost: see is_lost. */
PSTI_DEVICE void prepare_arrival(move_shared &s, const psti_move_args &args, bool lost)
{
    const uint32_t hash = args.pool.concurrent ? 0 : hash_of(s, args);
    if (lane_of() != 0)
        return;
    const uint64_t launch = launch_seen(s, args);
    const uint32_t number = psti_launch_number(launch, args.op, lost) + hash;
    const uint64_t all = psti_arrival(number, num_teams());
    s.mine = psti_arrival(number, 1);
    s.others = (all | launch) - s.mine;
    s.closing = psti_launch_of(launch + 2) - launch - all;
}

/* Leaves in s.refused whether the pool refuses: then nothing may be done. kTakesCounts: of a stash, whose
 * arrival it prepares as well, since the plan takes longer than the look.
 *
 * A launch may be brought up while the one before it still runs, so every team waits for that one
 * before it reads anything but its arguments, and before it ends. */
template <bool kTakesCounts, class Copier>
PSTI_DEVICE void begin(move_shared &s, const psti_move_args &args)
{
    two_counts counts = {};
    psti_wait_for_predecessor();
    if (kTakesCounts && Copier::kIsSmall && has_segments(args))
        counts = first_counts<NEW>(args);
    if (kTakesCounts && thread_of() < 2 * PSTI_WARP)
        look_with_counts(s, args);
    else if (thread_of() < PSTI_WARP)
        look_at_pool<false>(s, args);
    if (kTakesCounts && !args.is_plain) {
        if (thread_of() >= first_reader() && has_segments(args)) {
            if (!Copier::kIsSmall)
                counts = first_counts<NEW>(args);
            hold_counts<NEW, Copier>(s.plan, args, counts);
        }
        if (thread_of() == 0 && !has_segments(args))
            hold_none(s.plan);
        add_up(s.plan.sums, args.spaces, args.num_spaces);
    }
    if (thread_of() < PSTI_WARP) {
        __syncwarp();
        const uint32_t refused = refusal_of(s, args);
        if (refused)
            tell_refusal(args, refused);
        if (thread_of() == 0)
            s.refused = refused;
        if (kTakesCounts)
            prepare_arrival(s, args, is_lost(s, args));
    }
    PSTI_SYNC_TEAM();
}

/* Concurrent pools, where begin saw the launch word of the ticket alone: the rest of it. */
PSTI_DEVICE void look_at_ticket(move_shared &s, const psti_move_args &args)
{
    if (!args.pool.concurrent)
        return;
    read_words(s, args, PSTI_LOOK_TICKET & ~PSTI_LOOK_AT(ticket.launch));
    PSTI_SYNC_TEAM();
}

/* Concurrent pools, for an operation that takes pages. True in the team that arrives first: it
 * leads, has the lock, and has looked at the pool, but for the launch word, which it has seen
 * before. The others wait for it, and it runs; s.copies is what it told them. */
PSTI_DEVICE bool join(move_shared &s, const psti_move_args &args)
{
    psti_ticket_record *ticket = args.ticket;
    if (thread_of() == 0) {
        const uint64_t launch = launch_seen(s, args);
        const uint64_t mine = psti_launch_word(launch, args.op);
        const uint64_t old = psti_cas_acq_rel_u64(&ticket->arrive_in, 0, mine);
        s.leads = old == 0;
        if (!s.leads && old != mine) {
            psti_refuse(&args.pool, args.ticket_index);
            s.copies = 0;
        } else if (s.leads) {
            psti_lock(args.pool.state);
        } else {
            uint64_t ready;
            do {
                PSTI_PAUSE();
                ready = psti_load_acquire_u64(&ticket->ready);
            } while (ready >> 1 != psti_ready_word(launch, args.op, 0) >> 1);
            s.copies = ready % 2;
        }
    }
    PSTI_SYNC_TEAM();
    if (!s.leads)
        return false;
    /* The launch word stays what it was: the others wait for that one. Words whose halves others
     * change while one has the lock are not read as wholes. */
    read_step_and_words(s, args,
                        PSTI_LOOK_STATE_CHANGES | PSTI_LOOK_AT(state.num_pages) |
                            (PSTI_LOOK_TICKET & ~PSTI_LOOK_AT(ticket.launch)));
    PSTI_SYNC_TEAM();
    return true;
}

/* By the team that leads. */
PSTI_DEVICE void let_others_go(const move_shared &s, const psti_move_args &args)
{
    if (thread_of() != 0)
        return;
    const uint64_t launch = launch_seen(s, args);
    psti_unlock(args.pool.state);
    psti_store_release_u64(&args.ticket->ready, psti_ready_word(launch, args.op, s.copies));
}

/* What a lane finds when it looks again, where it does. */
struct second_look {
    uint64_t word, count;
    bool has_word, has_count;
};

/* By one warp of a team of an ordered pool, behind its look: the look once more, in two calls, for
 * loads that nobody waits for in between. The first look acquired the launch word, so this is not
 * older than that; and if the team is the last, nobody writes any of it up to its finish. */
PSTI_DEVICE second_look look_again(const psti_move_args &args)
{
    const uint32_t lane = lane_of();
    second_look now = {0, 0, false, lane < args.num_looked};
    now.has_word = !args.pool.concurrent && PSTI_LOOK_DECIDES >> lane & 1;
    if (now.has_word)
        now.word = psti_load_relaxed_u64(place_of_word(args, lane));
    if (now.has_count)
        now.count = psti_load_relaxed_u64(count_of_lane(args));
    return now;
}

/* Whether what was decided from is what look_again found. It may be other, where the launch word of
 * the look was newer than what was seen with it. */
PSTI_DEVICE void compare_looks(move_shared &s, const second_look &now)
{
    const uint32_t lane = lane_of();
    bool differs = now.has_word && decided_from(s.words[lane]) != decided_from(now.word);
    if (now.has_count && s.plan.sums.rows[lane] != now.count)
        differs = true;
    differs = psti_any(differs);
    if (lane == 0)
        s.same = !differs;
    __syncwarp(); /* all have read: a vote orders no memory */
}

/* By the whole team, before it arrives. wrote: it may have written something since it met; without it there is nothing
 * that others would have to see. */
PSTI_DEVICE void leave(bool wrote)
{
    psti_let_successor_come(); /* now: until it may begin it only takes up room */
    if (wrote)
        PSTI_SYNC_TEAM();
}

/* By thread 0: says that this team is done, and notes whether that has claimed the operation: the word had
 * the number that all teams saw, and of others nobody has arrived. Up to finish no other operation's last
 * team can find that. */
PSTI_DEVICE void arrive(move_shared &s, const psti_move_args &args, bool wrote)
{
    const uint64_t others = s.others;
    const uint64_t mine = s.mine;
    uint64_t *word = launch_word(args);
    const uint64_t before =
        wrote ? psti_add_acq_rel_u64(word, mine) : psti_add_acquire_u64(word, mine);
    s.last = before == others;
    if (before != others && psti_teams_arrived(before + mine) >= num_teams())
        psti_refuse(&args.pool, args.ticket_index);
}

/* Behind the arrival. True in the last team of the launch: from here to finish
 * the state of the pool, in concurrent pools the ticket's, is its own, and is what was seen. */
PSTI_DEVICE bool comes_last(const move_shared &s, const psti_move_args &args)
{
    PSTI_SYNC_TEAM();
    if (s.last & s.same)
        return true;
    if (s.last && thread_of() == 0)
        psti_refuse(&args.pool, args.ticket_index);
    return false;
}

/* Concurrent pools, by the last team of an operation that had a leader, before it finishes: nobody
 * waits for its ready word any more, and a replay could take it for its own when the numbers of
 * launches have come round. Another operation's word stays, whose teams may still wait. */
PSTI_DEVICE void forget_ready(const move_shared &s, const psti_move_args &args)
{
    const uint64_t mine = psti_ready_word(launch_seen(s, args), args.op, s.copies);
    if (thread_of() == 0)
        psti_cas_relaxed_u64(&args.ticket->ready, mine, 0);
}

/* By thread 0 of the last team, after everything else. What arrived is taken off the launch word, not
 * overwritten: a late arrival of another operation stays there, to be found by that one's last team. */
PSTI_DEVICE void finish(const move_shared &s, const psti_move_args &args)
{
    uint64_t *word = launch_word(args);
    if (args.pool.concurrent) { /* only its own: another's teams may still wait */
        /* from the word, or a register would hold args.ticket through the whole restore */
        unsigned char *ticket = (unsigned char *)word - offsetof(psti_ticket_record, launch);
        psti_cas_relaxed_u64(&((psti_ticket_record *)ticket)->arrive_in,
                             psti_launch_word(launch_seen(s, args), args.op), 0);
    }
    psti_add_release_u64(word, s.closing);
}

PSTI_DEVICE uint32_t epoch_of(const move_shared &s)
{
    return s.seen.state.epoch;
}

/* Pages that the ticket has. */
PSTI_DEVICE uint64_t held_by(const move_shared &s)
{
    return s.seen.ticket.num_pages;
}

/* psti_ticket_now of what was seen, by one load of both halves. */
PSTI_DEVICE psti_ticket_state state_of(const move_shared &s)
{
    const uint64_t word = s.words[offsetof(look, ticket.state) / 8];
    const uint32_t state = word >> 32 == epoch_of(s) ? (uint32_t)word : (uint32_t)PSTI_TICKET_EMPTY;
    return (psti_ticket_state)state;
}

/* Where in the pool a tile lies: page number and byte offset in it. */
PSTI_DEVICE uint64_t page_of_tile(const psti_pool_view &pool, uint64_t tile, uint32_t *offset)
{
    const uint32_t shift = pool.page_shift - PSTI_TILE_SHIFT;
    *offset = (uint32_t)(tile & (((uint64_t)1 << shift) - 1)) << PSTI_TILE_SHIFT;
    return tile >> shift;
}

#endif
