/* Sums and scans of one block. blockDim is a multiple of 32, at most PSTI_MAX_THREADS; all threads
 * of the block call these. */
#ifndef PSTI_CUDA_BLOCK_CUH
#define PSTI_CUDA_BLOCK_CUH

#define PSTI_MAX_THREADS 256
/* Resident blocks per SM: 64 KiB of loads in flight, and no spills on sm_80 to sm_100. */
#define PSTI_MIN_BLOCKS 4
#define PSTI_WARP 32u
#define PSTI_MAX_WARPS (PSTI_MAX_THREADS / PSTI_WARP)

#include "kernels/cuda/ptx.cuh"

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
    const uint32_t warp = threadIdx.x / PSTI_WARP;
    const uint32_t num_warps = blockDim.x / PSTI_WARP;
    const uint64_t inclusive = warp_inclusive_scan(value);
    if (lane_of() == PSTI_WARP - 1)
        scratch.warp_total[warp] = inclusive;
    __syncthreads();
    uint64_t before = 0;
    uint64_t all = 0;
    for (uint32_t w = 0; w < num_warps; w++) {
        before += w < warp ? scratch.warp_total[w] : 0;
        all += scratch.warp_total[w];
    }
    __syncthreads(); /* the scratch is free again */
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
