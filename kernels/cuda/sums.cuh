/* Counts of spaces, in shared memory where a space has one, whether it is a sum or not. */
#ifndef PSTI_CUDA_SUMS_CUH
#define PSTI_CUDA_SUMS_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/stream.h"

#define PSTI_NO_SUM ((uint64_t)1 << 63) /* fits no capacity */

/* Shared by the block. */
struct count_sums {
    uint64_t
        rows[PSTI_MAX_SPACES]; /* of spaces that have one count; PSTI_NO_SUM: it fits nowhere */
};

PSTI_DEVICE uint64_t add_fitting(uint64_t a, uint64_t b)
{
    const uint64_t sum = a + b;
    return sum < a || sum > PSTI_NO_SUM ? PSTI_NO_SUM : sum;
}

PSTI_DEVICE bool has_one_count(const psti_space &space)
{
    return (space.num_segments == 1) & (space.num_summed == 0);
}

struct own_count {
    int64_t count, capacity;
    bool is_there;
};

/* The caller's count of space i, if there is such a space and it has one, as all have in a plain
 * group. Two calls, for a load that nobody waits for in between. */
PSTI_DEVICE own_count load_count(const psti_space *spaces, uint32_t num_spaces, uint32_t i,
                                 bool is_plain)
{
    own_count own = {0, 0, i < num_spaces && (is_plain || has_one_count(spaces[i]))};
    if (own.is_there) {
        own.capacity = spaces[i].capacity;
        own.count = psti_user_count(&spaces[i], 0);
    }
    return own;
}

/* False: it does not fit. */
PSTI_DEVICE bool keep_count(count_sums &sums, uint32_t i, const own_count &own)
{
    if (own.is_there)
        sums.rows[i] = (uint64_t)own.count;
    return psti_count_fits(own.count, own.capacity);
}

/* A warp for each sum. By the whole team, which then meets. */
PSTI_DEVICE void add_up(count_sums &sums, const psti_space *spaces, uint32_t num_spaces)
{
    for (uint32_t i = thread_of() / PSTI_WARP; i < num_spaces; i += num_threads() / PSTI_WARP) {
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
}

/* Of segment `segment` of space number i. */
PSTI_DEVICE int64_t caller_count(const count_sums &sums, const psti_space *spaces, uint32_t i,
                                 uint32_t segment)
{
    return spaces[i].num_segments == 1 ? (int64_t)sums.rows[i]
                                       : psti_user_count(&spaces[i], segment);
}

#endif
