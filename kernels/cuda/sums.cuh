/* Counts as the caller wrote them, with sums added up once for the whole block. */
#ifndef PSTI_CUDA_SUMS_CUH
#define PSTI_CUDA_SUMS_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/stream.h"

#define PSTI_NO_SUM ((uint64_t)1 << 63) /* fits no capacity */

/* Shared by the block. */
struct count_sums {
    uint64_t rows[PSTI_MAX_SPACES]; /* of spaces that are sums, or PSTI_NO_SUM */
};

PSTI_DEVICE uint64_t add_fitting(uint64_t a, uint64_t b)
{
    const uint64_t sum = a + b;
    return sum < a || sum > PSTI_NO_SUM ? PSTI_NO_SUM : sum;
}

/* A warp for each sum. By the whole block. */
PSTI_DEVICE void add_up(count_sums &sums, const psti_space *spaces, uint32_t num_spaces)
{
    for (uint32_t i = threadIdx.x / PSTI_WARP; i < num_spaces; i += blockDim.x / PSTI_WARP) {
        const psti_space &space = spaces[i];
        uint64_t sum = 0;
        if (space.num_summed == 0)
            continue;
        for (uint32_t e = lane_of(); e < space.num_summed; e += PSTI_WARP) {
            const int64_t count = psti_user_count(&space, e);
            const bool fits = psti_count_fits(count, space.capacity);
            sum = add_fitting(sum, fits ? (uint64_t)count : PSTI_NO_SUM);
        }
        for (uint32_t mask = PSTI_WARP / 2; mask > 0; mask /= 2)
            sum = add_fitting(sum, psti_shuffle_xor_u64(sum, mask));
        if (lane_of() == 0)
            sums.rows[i] = sum;
    }
    __syncthreads();
}

/* Of segment `segment` of space number i. */
PSTI_DEVICE int64_t caller_count(const count_sums &sums, const psti_space *spaces, uint32_t i,
                                 uint32_t segment)
{
    return spaces[i].num_summed ? (int64_t)sums.rows[i] : psti_user_count(&spaces[i], segment);
}

#endif
