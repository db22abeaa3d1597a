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
 * beside it, where operations overlap; see number_of and claim. */
#define PSTI_LOOK_ALL ((1u << PSTI_LOOK_WORDS) - 1)
#define PSTI_LOOK_TICKET (((1u << (sizeof(psti_ticket_record) / 8)) - 1) << PSTI_STATE_WORDS)
/* What operations decide from. Of epoch and refuse, in one word, only the epoch. */
#define PSTI_LOOK_TICKET_DECIDES                                                                   \
    (PSTI_LOOK_AT(ticket.state) | PSTI_LOOK_AT(ticket.num_pages) | PSTI_LOOK_AT(ticket.num_host) | \
     PSTI_LOOK_AT(ticket.form))
#define PSTI_LOOK_DECIDES                                                                  \
    (PSTI_LOOK_BOTH(state.head) | PSTI_LOOK_BOTH(state.tail) | PSTI_LOOK_AT(state.epoch) | \
     PSTI_LOOK_TICKET_DECIDES)
/* What operations change. */
#define PSTI_LOOK_STATE_CHANGES                                                                    \
    (PSTI_LOOK_BOTH(state.head) | PSTI_LOOK_BOTH(state.tail) | PSTI_LOOK_AT(state.failed_wanted) | \
     PSTI_LOOK_BOTH(state.step_high) | PSTI_LOOK_AT(state.step_demand))

/* What may have changed between the two looks at it. */
#define PSTI_LOOK_STATISTICS                                               \
    (PSTI_LOOK_AT(state.failed_wanted) | PSTI_LOOK_BOTH(state.step_high) | \
     PSTI_LOOK_AT(state.step_demand) | PSTI_LOOK_AT(state.num_pages) | PSTI_LOOK_AT(ticket.ready))

/* What a team knows. */
struct move_shared {
    union {
        tile_plan plan;
        uint32_t places[2 * PSTI_WARP]; /* of a migration, which has no plan */
    };
    tile_share share;
    block_scratch scratch;
    union {
        look seen;
        uint64_t words[PSTI_LOOK_WORDS];
    };
    uint32_t first_ids[PSTI_WARP]; /* of a restore: pages of the team's first tiles */
    uint64_t launch;               /* the launch word, as first seen */
    psti_decision decision;        /* of a stash */
    uint64_t pages;                /* wanted, or held */
    uint32_t fault;
    uint32_t hash;       /* of what was decided from */
    uint32_t number;     /* in the arrival sum */
    uint32_t step_valid; /* asked for where the pool fails fast */
    uint32_t lost;       /* a stash fails without trying: the step has failed */
    uint32_t copies;
    uint32_t moves; /* copies, and there is something to copy */
    uint32_t leads;
    uint32_t last;
    uint32_t jobs; /* of a restore */
    uint32_t refused;
};

PSTI_DEVICE uint64_t *launch_word(const psti_move_args &args)
{
    return args.pool.concurrent ? &args.ticket->launch : &args.pool.state->launch;
}

PSTI_DEVICE uint64_t launch_seen(const move_shared &s, const psti_move_args &args)
{
    return args.pool.concurrent ? s.seen.ticket.launch : s.seen.state.launch;
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

PSTI_DEVICE uint32_t refusal(const move_shared &s, const psti_move_args &args)
{
    const bool is_odd = launch_seen(s, args) % 2 != 0; /* another operation is being written */
    return psti_refusal_of(s.seen.state.refuse, args.flags) | (is_odd ? PSTI_REFUSES_ORDER : 0);
}

/* What a lane adds for its word of the look: a hash, since of plain sums a team that saw too little
 * makes up for one that saw too much. */
PSTI_DEVICE uint32_t part_of(uint64_t word, uint32_t lane)
{
    const bool has_epoch = lane == offsetof(look, state.epoch) / 8;
    return (uint32_t)psti_mix((has_epoch ? (uint32_t)word : word) + lane * PSTI_MIX_STEP);
}

/* By the first warp: a hash of all that an ordered operation decides from, the same in all teams of
 * a launch that saw the same. In concurrent pools the launch word was seen first, and one team
 * decides for all. */
PSTI_DEVICE void hash_seen(move_shared &s, const psti_move_args &args)
{
    const uint32_t lane = lane_of();
    const bool decides = PSTI_LOOK_DECIDES >> lane & 1;
    uint32_t hash = 0;
    if (!args.pool.concurrent)
        hash = psti_warp_sum_u32(decides ? part_of(s.words[lane], lane) : 0);
    if (lane == 0)
        s.hash = hash;
}

/* By the first warp, of what it has seen: whether the pool refuses; then nothing may be done, and
 * the one that is to say so has. */
PSTI_DEVICE bool is_refused(const move_shared &s, const psti_move_args &args)
{
    const uint32_t refused = refusal(s, args);
    if (refused && thread_of() == 0 && launch_seen(s, args) % 2 != 0)
        psti_refuse(&args.pool, args.ticket_index);
    else if (refused & PSTI_REFUSES_ORDER && thread_of() == 0 && team_of() == 0)
        psti_record_fault(&args.pool, PST_FAULT_ORDER, args.ticket_index, 0);
    return refused != 0;
}

/* The one look at the pool, by the first warp. */
template <bool kAsksStep> PSTI_DEVICE void look_at_pool(move_shared &s, const psti_move_args &args)
{
    if (!args.pool.concurrent && kAsksStep) {
        read_step_and_words(s, args, PSTI_LOOK_ALL);
    } else if (!args.pool.concurrent) {
        read_words(s, args, PSTI_LOOK_ALL);
    } else if (thread_of() == 0) {
        /* of others' tickets nothing; of this one first the launch word */
        s.seen.ticket.launch = psti_load_acquire_u64(&args.ticket->launch);
        s.seen.state.epoch = psti_load_relaxed_u32(&args.pool.state->epoch);
        s.seen.state.refuse = psti_load_relaxed_u32(&args.pool.state->refuse);
    }
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
    if (thread_of() < PSTI_WARP)
        hash_seen(s, args);
}

/* False: the pool refuses, nothing may be done.
 *
 * A launch may be brought up while the one before it still runs, so every team waits for that one
 * before it reads anything but its arguments, and before it ends. */
PSTI_DEVICE bool begin(move_shared &s, const psti_move_args &args, bool takes_counts)
{
    psti_wait_for_predecessor();
    if (takes_counts && thread_of() < 2 * PSTI_WARP)
        look_with_counts(s, args);
    else if (thread_of() < PSTI_WARP)
        look_at_pool<false>(s, args);
    if (takes_counts && !args.is_plain)
        add_up(s.plan.sums, args.spaces, args.num_spaces);
    if (thread_of() < PSTI_WARP) {
        __syncwarp();
        const bool refused = is_refused(s, args);
        if (thread_of() == 0)
            s.refused = refused;
    }
    PSTI_SYNC_TEAM();
    return !s.refused;
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
        const uint64_t launch = s.seen.ticket.launch;
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
    const uint64_t launch = s.seen.ticket.launch;
    psti_unlock(args.pool.state);
    psti_store_release_u64(&args.ticket->ready, psti_ready_word(launch, args.op, s.copies));
}

/* What this team adds to the arrival word. */
PSTI_DEVICE uint32_t number_of(const move_shared &s, const psti_move_args &args, bool lost)
{
    return psti_launch_number(launch_seen(s, args), args.op, lost) + s.hash;
}

/* By thread 0: whether its team is the last of the launch. wrote: see arrive. */
PSTI_DEVICE bool comes_last(const psti_move_args &args, uint32_t number, bool wrote)
{
    const uint32_t of_launch = num_teams();
    const uint64_t mine = (uint64_t)number << 32 | 1u;
    const uint64_t all = (uint64_t)(number * of_launch) << 32 | of_launch;
    uint64_t *arrivals = &args.ticket->arrive_out;
    const uint64_t old =
        wrote ? psti_add_acq_rel_u64(arrivals, mine) : psti_add_acquire_u64(arrivals, mine);
    if (old + mine == all)
        return true;
    if ((uint32_t)(old + mine) >= of_launch)
        psti_refuse(&args.pool, args.ticket_index);
    return false;
}

/* By the first warp of the last team: makes the launch word odd, which only one operation can, and
 * looks again at what was decided from. True: from here to finish the state is its own, and what
 * was decided from still stands there. The claim tells that nobody else claimed since this launch
 * word was seen, so what is read beside it is what stood there all the time. That may be other than
 * what was decided from: the launch word may have been newer than what was seen with it. Then
 * nothing is believed. */
PSTI_DEVICE bool claim(move_shared &s, const psti_move_args &args, uint64_t launch)
{
    __syncwarp(); /* what lane 0 acquired, all have */
    const uint32_t lane = lane_of();
    const uint32_t words = args.pool.concurrent ? 0 : PSTI_LOOK_ALL;
    const bool looks = words >> lane & 1;
    const uint64_t mask = lane == offsetof(look, state.epoch) / 8 ? UINT32_MAX : UINT64_MAX;
    const uint64_t before = looks ? s.words[lane] : 0;
    uint64_t now = 0;
    bool changed = false;
    if (looks)
        now = psti_load_relaxed_u64(place_of_word(args, lane));
    if (lane == 0)
        changed = psti_cas_acquire_u64(launch_word(args), launch, launch + 1) != launch;
    /* only what nobody else reads: other warps may still be deciding */
    if (looks && PSTI_LOOK_STATISTICS >> lane & 1)
        s.words[lane] = now;
    changed = changed || (PSTI_LOOK_DECIDES >> lane & 1 && ((before ^ now) & mask) != 0);
    if (!psti_any(changed))
        return true;
    if (lane == 0)
        psti_refuse(&args.pool, args.ticket_index);
    return false;
}

/* Says that this team is done. True in the last one, which then has claimed the pool's state, or in
 * concurrent pools the ticket's. All teams of a launch add the same number: the sum tells whether
 * all that arrived belong together. wrote: the team may have written something; without it there is
 * nothing that others would have to see. lost: an ordered stash took the step for lost. The first
 * warp has hashed what it saw. */
PSTI_DEVICE bool arrive(move_shared &s, const psti_move_args &args, bool wrote, bool lost)
{
    psti_let_successor_come(); /* now: until it may begin it only takes up room */
    if (wrote)
        PSTI_SYNC_TEAM();
    bool last = false;
    if (thread_of() < PSTI_WARP) {
        const uint64_t launch = launch_seen(s, args);
        if (thread_of() == 0) {
            s.number = number_of(s, args, lost);
            s.launch = launch;
            last = comes_last(args, s.number, wrote);
        }
        last = psti_any(last) && claim(s, args, launch);
        if (thread_of() == 0)
            s.last = last;
    }
    PSTI_SYNC_TEAM();
    return thread_of() < PSTI_WARP ? last : s.last != 0;
}

/* What the last team has still to write. */
struct ending {
    uint64_t launch, arrived;
};

PSTI_DEVICE ending ending_of(const move_shared &s)
{
    return {s.launch, (uint64_t)(s.number * num_teams()) << 32 | num_teams()};
}

/* By thread 0 of the last team, after everything else. What arrived is taken off the arrival word,
 * not set to 0: a late arrival of another operation stays there, to be found by that one's last
 * team. */
PSTI_DEVICE void finish(const psti_move_args &args, const ending &end)
{
    if (args.pool.concurrent) /* only its own: another's teams may still wait */
        psti_cas_relaxed_u64(&args.ticket->arrive_in, psti_launch_word(end.launch, args.op), 0);
    psti_add_relaxed_u64(&args.ticket->arrive_out, 0 - end.arrived);
    psti_store_release_u64(launch_word(args), end.launch + 2);
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

PSTI_DEVICE psti_ticket_state state_of(const move_shared &s)
{
    return psti_ticket_now(&s.seen.ticket, epoch_of(s));
}

/* Where in the pool a tile lies: page number and byte offset in it. */
PSTI_DEVICE uint64_t page_of_tile(const psti_pool_view &pool, uint64_t tile, uint32_t *offset)
{
    const uint32_t shift = pool.page_shift - PSTI_TILE_SHIFT;
    *offset = (uint32_t)(tile & (((uint64_t)1 << shift) - 1)) << PSTI_TILE_SHIFT;
    return tile >> shift;
}

#endif
