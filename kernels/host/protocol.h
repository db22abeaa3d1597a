/* What stash, restore and migrate on the CPU have in common: how an operation begins and ends. */
#ifndef PSTI_HOST_PROTOCOL_H
#define PSTI_HOST_PROTOCOL_H

#include <sched.h>
#include <string.h>

#include "kernels/kernels.h"

#define PSTI_PAUSE() sched_yield()
#include "kernels/core/pool.h"

typedef struct snapshot {
    uint64_t launch; /* of the pool, ordered pools only */
    uint64_t head[PSTI_TIERS];
    uint64_t tail[PSTI_TIERS];
    uint32_t epoch;
    bool is_lost; /* a stash fails without trying */
} snapshot;

static inline uint64_t *launch_word(const psti_move_args *args)
{
    return args->pool.concurrent ? &args->ticket->launch : &args->pool.state->launch;
}

static inline snapshot read_state(const psti_move_args *args)
{
    const psti_pool_state *state = args->pool.state;
    snapshot now;
    now.launch = psti_load_acquire_u64(launch_word(args));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        now.head[tier] = psti_load_relaxed_u64(&state->head[tier]);
        now.tail[tier] = psti_load_relaxed_u64(&state->tail[tier]);
    }
    now.epoch = psti_load_relaxed_u32(&state->epoch);
    now.is_lost = psti_is_lost(&args->pool);
    return now;
}

/* Makes the launch word odd, which only one operation can, until publish. False: another
 * operation did so since `now`. Concurrent pools claim the ticket before anything else; ordered
 * ones claim the pool before they write its state. */
static inline bool claim(const psti_move_args *args, const snapshot *now)
{
    if (psti_cas_acq_rel_u64(launch_word(args), now->launch, now->launch + 1) == now->launch)
        return true;
    psti_refuse(&args->pool, args->ticket_index);
    return false;
}

static inline void publish(const psti_move_args *args, const snapshot *now)
{
    psti_store_release_u64(launch_word(args), now->launch + 2);
}

/* Whether the pool refuses, or another operation is being written, which must not overlap. */
static inline bool refused(const psti_move_args *args, const snapshot *now)
{
    const uint32_t refuse = psti_refusal(args->pool.state, args->flags);
    if (now->launch % 2 != 0) {
        psti_refuse(&args->pool, args->ticket_index);
        return true;
    }
    if (refuse & PSTI_REFUSES_ORDER)
        psti_record_fault(&args->pool, PST_FAULT_ORDER, args->ticket_index, 0);
    return refuse != 0;
}

/* In a pool that scrubs, before a page is free. */
static inline void scrub_page(const psti_pool_view *pool, uint32_t id)
{
    memset(psti_page_address(pool, id), 0, (size_t)1 << pool->page_shift);
}

#endif
