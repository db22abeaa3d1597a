// Tries the machine itself: barriers, warp operations, atomics, and what must abort.
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "kernels/core/fn.h"
#include "tests/simt/simt_selftest.h"

/* ---- what must work ---- */

struct barrier_args {
    uint32_t rounds;
    uint64_t *wrong;
};

struct row_of_words {
    uint64_t word[SIMT_MAX_THREADS];
};

PSTI_KERNEL(barrier_kernel, barrier_args, args)
{
    PSTI_SHARED(row_of_words, row);
    for (uint32_t round = 0; round < args.rounds; round++) {
        row.word[threadIdx.x] = round * 1000 + threadIdx.x;
        __syncthreads();
        const uint32_t other = (threadIdx.x + 1 + round) % blockDim.x;
        if (row.word[other] != round * 1000 + other)
            psti_add_acq_rel_u64(args.wrong, 1);
        __syncthreads();
    }
}

uint64_t simt_try_barriers(const simt_config *config, uint32_t grid, uint32_t block,
                           uint32_t rounds)
{
    uint64_t wrong = 0;
    simt_launch_kernel<barrier_args, barrier_kernel>(config, grid, block, {rounds, &wrong});
    return wrong;
}

struct row_of_team {
    uint64_t word[SIMT_TEAM_THREADS];
};

PSTI_KERNEL(team_kernel, barrier_args, args)
{
    PSTI_SHARED_OF_TEAM(row_of_team, row);
    PSTI_SHARED(row_of_words, all);
    const uint32_t team = threadIdx.x / SIMT_TEAM_THREADS;
    const uint32_t mine = threadIdx.x % SIMT_TEAM_THREADS;
    const uint32_t size = blockDim.x < SIMT_TEAM_THREADS ? blockDim.x : SIMT_TEAM_THREADS;
    for (uint32_t round = 0; round < args.rounds * (team + 1); round++) {
        row.word[mine] = round * 1000 + threadIdx.x;
        PSTI_SYNC_TEAM();
        const uint32_t other = (mine + 1 + round) % size;
        if (row.word[other] != round * 1000 + team * SIMT_TEAM_THREADS + other)
            psti_add_acq_rel_u64(args.wrong, 1);
        PSTI_SYNC_TEAM();
    }
    all.word[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (all.word[blockDim.x - 1 - threadIdx.x] != blockDim.x - 1 - threadIdx.x)
        psti_add_acq_rel_u64(args.wrong, 1);
}

uint64_t simt_try_teams(const simt_config *config, uint32_t grid, uint32_t block, uint32_t rounds)
{
    uint64_t wrong = 0;
    simt_launch_kernel<barrier_args, team_kernel>(config, grid, block, {rounds, &wrong});
    return wrong;
}

struct warp_args {
    uint64_t *wrong;
};

PSTI_KERNEL(warp_kernel, warp_args, args)
{
    PSTI_SHARED(row_of_words, row);
    const uint32_t lane = threadIdx.x % SIMT_WARP;
    const uint64_t mine = (uint64_t)threadIdx.x << 33 | 5;
    const uint64_t first = (uint64_t)(threadIdx.x - lane) << 33 | 5;
    uint64_t wrong = 0;
    for (uint32_t n = 1; n < SIMT_WARP; n++) {
        const uint64_t below = lane < n ? mine : mine - ((uint64_t)n << 33);
        wrong += psti_shuffle_up_u64(mine, n) != below;
        wrong += psti_shuffle_xor_u64(mine, n) != first + ((uint64_t)(lane ^ n) << 33);
    }
    for (uint32_t n = 0; n < SIMT_WARP; n++) {
        const uint32_t other = (lane + n) % SIMT_WARP;
        wrong += psti_shuffle_u64(mine, n) != first + ((uint64_t)n << 33);
        wrong += psti_shuffle_u64(mine, other) != first + ((uint64_t)other << 33);
    }
    row.word[threadIdx.x] = mine;
    __syncwarp();
    wrong += row.word[threadIdx.x ^ 1] != first + ((uint64_t)(lane ^ 1) << 33);
    if (wrong)
        psti_add_acq_rel_u64(args.wrong, wrong);
}

uint64_t simt_try_warps(const simt_config *config, uint32_t block)
{
    uint64_t wrong = 0;
    simt_launch_kernel<warp_args, warp_kernel>(config, 1, block, {&wrong});
    return wrong;
}

PSTI_KERNEL(shared_kernel, warp_args, args)
{
    PSTI_SHARED(row_of_words, row);
    PSTI_SHARED(uint64_t, single);
    const uint64_t wrong = (row.word[threadIdx.x] != simt_poison_word(threadIdx.x)) +
                           (uint64_t)(single != simt_poison_word(0));
    if (wrong)
        psti_add_acq_rel_u64(args.wrong, wrong);
    __syncthreads();
    row.word[threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 0)
        single = 0;
}

uint64_t simt_try_shared(const simt_config *config, uint32_t grid, uint32_t launches)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < launches; i++)
        simt_launch_kernel<warp_args, shared_kernel>(config, grid, 64, {&wrong});
    return wrong;
}

struct dynamic_args {
    uint32_t words;
    uint64_t *wrong;
};

PSTI_KERNEL(dynamic_kernel, dynamic_args, args)
{
    const uint32_t bytes = args.words * (uint32_t)sizeof(uint64_t);
    uint64_t *words = reinterpret_cast<uint64_t *>(psti_dynamic_shared(bytes));
    uint64_t wrong = 0;
    for (uint32_t i = threadIdx.x; i < args.words; i += blockDim.x)
        wrong += words[i] != simt_poison_word(i);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.words; i += blockDim.x)
        words[i] = i;
    __syncthreads();
    words = reinterpret_cast<uint64_t *>(psti_dynamic_shared(bytes));
    for (uint32_t i = threadIdx.x; i < args.words; i += blockDim.x)
        wrong += words[i] != i;
    if (wrong)
        psti_add_acq_rel_u64(args.wrong, wrong);
}

uint64_t simt_try_dynamic(const simt_config *config, uint32_t grid, uint32_t words)
{
    uint64_t wrong = 0;
    simt_launch_kernel<dynamic_args, dynamic_kernel>(config, grid, 64, {words, &wrong});
    return wrong;
}

struct index_args {
    uint32_t grid, block;
    uint64_t *wrong;
    uint8_t *seen;
};

PSTI_KERNEL(index_kernel, index_args, args)
{
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockDim.x != args.block || gridDim.x != args.grid || at >= args.grid * args.block)
        psti_add_acq_rel_u64(args.wrong, 1);
    else
        args.seen[at]++;
}

uint64_t simt_try_indices(const simt_config *config, uint32_t grid, uint32_t block)
{
    uint64_t wrong = 0;
    uint8_t *seen = new uint8_t[grid * block]();
    simt_launch_kernel<index_args, index_kernel>(config, grid, block, {grid, block, &wrong, seen});
    for (uint32_t i = 0; i < grid * block; i++)
        wrong += seen[i] != 1;
    delete[] seen;
    return wrong;
}

struct sum_args {
    uint32_t n;
    uint32_t *done;
    uint64_t *partial; /* one per block, plain */
    uint64_t *sum;
};

PSTI_KERNEL(sum_kernel, sum_args, args)
{
    PSTI_SHARED(row_of_words, row);
    PSTI_SHARED(uint32_t, last);
    uint64_t mine = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < args.n;
         i += gridDim.x * blockDim.x)
        mine += i;
    row.word[threadIdx.x] = mine;
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            row.word[threadIdx.x] += row.word[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        args.partial[blockIdx.x] = row.word[0];
        last = psti_add_acq_rel_u32(args.done, 1) + 1 == gridDim.x;
    }
    __syncthreads();
    if (last && threadIdx.x == 0)
        for (uint32_t i = 0; i < gridDim.x; i++)
            *args.sum += args.partial[i];
}

uint64_t simt_try_last_block(const simt_config *config, uint32_t grid, uint32_t n)
{
    uint32_t done = 0;
    uint64_t partial[SIMT_MAX_BLOCKS];
    uint64_t sum = 0;
    simt_launch_kernel<sum_args, sum_kernel>(config, grid, 64, {n, &done, partial, &sum});
    return sum;
}

struct leader_args {
    uint64_t value;
    uint32_t *arrived;
    uint64_t *decision; /* plain */
    uint32_t *ready;
    uint64_t *sum;
    uint32_t *leader;
};

PSTI_KERNEL(leader_kernel, leader_args, args)
{
    if (threadIdx.x == 0) {
        if (psti_add_acq_rel_u32(args.arrived, 1) == 0) {
            *args.leader = blockIdx.x;
            *args.decision = args.value;
            psti_store_release_u32(args.ready, 1);
        }
        while (!psti_load_acquire_u32(args.ready))
            PSTI_PAUSE();
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1)
        psti_add_acq_rel_u64(args.sum, *args.decision);
}

uint64_t simt_try_first_arrival(const simt_config *config, uint32_t grid, uint64_t value,
                                uint32_t *leader_out)
{
    uint32_t arrived = 0, ready = 0;
    uint64_t decision = 0, sum = 0;
    simt_launch_kernel<leader_args, leader_kernel>(
        config, grid, 64, {value, &arrived, &decision, &ready, &sum, leader_out});
    return sum;
}

struct order_args {
    uint32_t *next;
    uint32_t *order;
};

PSTI_KERNEL(order_kernel, order_args, args)
{
    __syncthreads();
    const uint32_t at = psti_add_acq_rel_u32(args.next, 1);
    args.order[at] = blockIdx.x * 256 + threadIdx.x;
}

void simt_try_order(const simt_config *config, uint32_t grid, uint32_t block, uint32_t *order)
{
    uint32_t next = 0;
    simt_launch_kernel<order_args, order_kernel>(config, grid, block, {&next, order});
}

struct crowd_args {
    simt_crowd *crowd;
};

PSTI_KERNEL(crowd_kernel, crowd_args, args)
{
    simt_crowd *crowd = args.crowd;
    if (threadIdx.x != 0)
        return;
    const uint32_t now = psti_add_acq_rel_u32(&crowd->active, 1) + 1;
    uint32_t most = psti_load_relaxed_u32(&crowd->most);
    while (most < now) {
        const uint32_t found = psti_cas_acq_rel_u32(&crowd->most, most, now);
        if (found == most)
            break;
        most = found;
    }
    psti_add_acq_rel_u32(&crowd->seen, 1);
    while (psti_load_acquire_u32(&crowd->seen) < crowd->meet)
        PSTI_PAUSE();
    for (uint32_t i = 0; i < 20; i++)
        PSTI_PAUSE();
    psti_add_acq_rel_u32(&crowd->active, UINT32_MAX);
}

void simt_try_crowd(const simt_config *config, uint32_t grid, simt_crowd *crowd)
{
    simt_launch_kernel<crowd_args, crowd_kernel>(config, grid, 32, {crowd});
}

struct add_args {
    uint64_t *word;
};

PSTI_KERNEL(add_kernel, add_args, args)
{
    if (threadIdx.x == 0)
        ++*args.word;
}

void simt_try_plain_add(const simt_config *config, uint32_t grid, uint64_t *word)
{
    simt_launch_kernel<add_args, add_kernel>(config, grid, 32, {word});
}
