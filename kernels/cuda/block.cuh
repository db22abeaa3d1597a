/* Teams, and their sums and scans. A team is up to PSTI_MAX_THREADS threads that work and meet
 * together: a block, or in a launch under a budget of SMs a quarter of one, which then has an SM to
 * itself. Its size is a multiple of 32; all threads of the team call the sums and scans. */
#ifndef PSTI_CUDA_BLOCK_CUH
#define PSTI_CUDA_BLOCK_CUH

#define PSTI_MAX_THREADS 256
/* Teams on an SM, as blocks or in one: 64 KiB of loads in flight, and no spills on sm_80 to sm_100. */
#define PSTI_TEAMS 4
/* The same of kernels that compute, which need twice the registers. */
#define PSTI_FUSED_TEAMS 2
#define PSTI_WARP 32u
#define PSTI_MAX_WARPS (PSTI_MAX_THREADS / PSTI_WARP)

#include "kernels/cuda/ptx.cuh"

/* Where a kernel's bounds say that a block is one team, the compiler folds this to 0. */
PSTI_DEVICE uint32_t team_in_block()
{
    return threadIdx.x / PSTI_MAX_THREADS;
}

PSTI_DEVICE uint32_t teams_per_block()
{
    return (blockDim.x + (PSTI_MAX_THREADS - 1)) / PSTI_MAX_THREADS;
}

/* The order of a team's warps differs from team to team: the first two have most to do, and the number of a
 * warp in its block, modulo 4, is that of its scheduler, which those of all teams would share. By five warps,
 * which is as good as by one, since the compiler multiplies and adds then; otherwise it takes an instruction
 * more, and so a register that restore does not have. */
PSTI_DEVICE uint32_t thread_of()
{
    return (threadIdx.x + team_in_block() * 5 * PSTI_WARP) % PSTI_MAX_THREADS;
}

PSTI_DEVICE uint32_t num_threads()
{
    return blockDim.x < PSTI_MAX_THREADS ? blockDim.x : PSTI_MAX_THREADS;
}

/* Consecutive teams are on different SMs, as consecutive blocks are. */
PSTI_DEVICE uint32_t team_of()
{
    return team_in_block() * gridDim.x + blockIdx.x;
}

/* The warp of a team that does what the first one has no time for: the second, if there is one. */
PSTI_DEVICE bool is_helper()
{
    return thread_of() / PSTI_WARP == (num_threads() > PSTI_WARP ? 1 : 0);
}

/* The same, where registers are short and the answer would take one through the copies before. */
PSTI_DEVICE bool is_helper_anew()
{
    return psti_anew(thread_of()) / PSTI_WARP == (num_threads() > PSTI_WARP ? 1 : 0);
}

PSTI_DEVICE uint32_t num_teams()
{
    return gridDim.x * teams_per_block();
}

struct block_scratch {
    uint64_t warp_total[PSTI_MAX_WARPS];
};

PSTI_DEVICE uint32_t lane_of()
{
    return threadIdx.x % PSTI_WARP;
}

PSTI_DEVICE uint64_t warp_sum(uint64_t value)
{
    for (uint32_t mask = PSTI_WARP / 2; mask > 0; mask /= 2)
        value += psti_shuffle_xor_u64(value, mask);
    return value;
}

PSTI_DEVICE uint64_t warp_inclusive_scan(uint64_t value)
{
    for (uint32_t distance = 1; distance < PSTI_WARP; distance *= 2) {
        const uint64_t below = psti_shuffle_up_u64(value, distance);
        if (lane_of() >= distance)
            value += below;
    }
    return value;
}

/* Sum over the threads before this one; *total over all. */
PSTI_DEVICE uint64_t block_exclusive_scan(block_scratch &scratch, uint64_t value, uint64_t *total)
{
    const uint32_t warp = thread_of() / PSTI_WARP;
    const uint32_t num_warps = num_threads() / PSTI_WARP;
    const uint64_t inclusive = warp_inclusive_scan(value);
    if (lane_of() == PSTI_WARP - 1)
        scratch.warp_total[warp] = inclusive;
    PSTI_SYNC_TEAM();
    uint64_t before = 0;
    uint64_t all = 0;
    for (uint32_t w = 0; w < num_warps; w++) {
        before += w < warp ? scratch.warp_total[w] : 0;
        all += scratch.warp_total[w];
    }
    PSTI_SYNC_TEAM(); /* the scratch is free again */
    *total = all;
    return before + inclusive - value;
}

PSTI_DEVICE uint64_t block_sum(block_scratch &scratch, uint64_t value)
{
    uint64_t total;
    block_exclusive_scan(scratch, value, &total);
    return total;
}

#endif
