/* Teams of one warp under relacy, in place of ptx.cuh and block.cuh. */
#ifndef PSTI_TESTS_MODEL_TEAM_H
#define PSTI_TESTS_MODEL_TEAM_H

#include "tests/model/words.h"

#include "tests/simt/simt_fiber.h"

#define PSTI_SIMT
#define PSTI_CUDA_PTX_CUH
#define PSTI_CUDA_BLOCK_CUH
#define PSTI_DEVICE [[maybe_unused]] static inline
#define PSTI_DEVICE_METHOD inline
#define PSTI_SYNC_TEAM() meet()
#define __syncwarp() meet()
#define PSTI_PAUSE() rl::yield(1, RL_INFO)
#define PSTI_MAX_THREADS 32
#define PSTI_WARP 32u

enum { TEAMS = 2, STREAMS = 2, PAGES = 2, TIERS = 2, TICKETS = 2 };

#include "kernels/core/pool.h"
#include "kernels/core/stream.h"

/* A team is a thread of relacy. Its lanes are fibers, which run one after the other from one
 * meeting of all to the next: among themselves they are in order. */
struct lane {
    simt_fiber fiber;
    bool is_busy; /* in the body */
};

struct team {
    simt_fiber home;
    lane lanes[PSTI_WARP];
    uint32_t at; /* the lane that runs */
    void (*body)(team &self);
    uint64_t values[PSTI_WARP];
};

static team teams[STREAMS * TEAMS];

PSTI_DEVICE team &this_team()
{
    return teams[rl::thread_index()];
}

/* Fibers of an execution that was cut short are made anew. */
static void make_lanes(void (*entry)(simt_fiber *))
{
    for (team &one : teams)
        for (lane &l : one.lanes)
            if (l.is_busy || l.fiber.stack == nullptr) {
                if (l.is_busy)
                    simt_fiber_destroy(&l.fiber);
                l.is_busy = false;
                simt_fibers_make(&l.fiber, sizeof(l), 1, entry);
            }
}

static void meet()
{
    team &mine = this_team();
    simt_fiber_switch(&mine.lanes[mine.at].fiber, &mine.home);
}

static void lane_entry(simt_fiber *self)
{
    for (;;) {
        team &mine = this_team();
        mine.body(mine);
        reinterpret_cast<lane *>(self)->is_busy = false;
        simt_fiber_switch(self, &this_team().home);
    }
}

/* All lanes of this team run the body. */
static void run_lanes(void (*body)(team &self))
{
    team &mine = this_team();
    mine.body = body;
    for (lane &l : mine.lanes)
        l.is_busy = true;
    for (bool any = true; any;) {
        any = false;
        for (mine.at = 0; mine.at < PSTI_WARP; mine.at++) {
            lane &l = mine.lanes[mine.at];
            if (l.is_busy)
                simt_fiber_switch(&mine.home, &l.fiber);
            any |= l.is_busy;
        }
    }
}

PSTI_DEVICE uint32_t team_of()
{
    return rl::thread_index() % TEAMS;
}
PSTI_DEVICE uint32_t num_teams()
{
    return TEAMS;
}
PSTI_DEVICE uint32_t thread_of()
{
    return this_team().at;
}
PSTI_DEVICE uint32_t lane_of()
{
    return this_team().at;
}
PSTI_DEVICE uint32_t num_threads()
{
    return PSTI_WARP;
}
PSTI_DEVICE bool is_helper()
{
    return true;
}

PSTI_DEVICE bool is_helper_anew()
{
    return is_helper();
}
PSTI_DEVICE void psti_wait_for_predecessor()
{
}
PSTI_DEVICE void psti_let_successor_come()
{
}

/* A copy of the state has cells, too. */
PSTI_DEVICE uint32_t psti_ring_id(const psti_pool_view *pool, const words::cell64 *head,
                                  const psti_decision *decision, uint64_t page)
{
    const uint64_t heads[PSTI_TIERS] = {head[0], head[1]};
    return psti_ring_id(pool, heads, decision, page);
}

struct block_scratch {
};
PSTI_DEVICE uint64_t block_exclusive_scan(block_scratch &, uint64_t value, uint64_t *total)
{
    team &mine = this_team();
    uint64_t before = 0;
    mine.values[mine.at] = value;
    meet();
    *total = 0;
    for (uint32_t i = 0; i < PSTI_WARP; i++) {
        before += i < mine.at ? mine.values[i] : 0;
        *total += mine.values[i];
    }
    meet();
    return before;
}
PSTI_DEVICE uint64_t block_sum(block_scratch &scratch, uint64_t value)
{
    uint64_t total;
    block_exclusive_scan(scratch, value, &total);
    return total;
}
PSTI_DEVICE uint64_t warp_sum(uint64_t value)
{
    block_scratch scratch;
    return block_sum(scratch, value);
}
PSTI_DEVICE uint32_t psti_warp_sum_u32(uint32_t mine)
{
    return (uint32_t)warp_sum(mine);
}
PSTI_DEVICE bool psti_any(bool mine)
{
    return warp_sum(mine) != 0;
}

#endif
