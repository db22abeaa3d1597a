/* Pattern fill and verify: every thread of the grid takes every n-th 8-byte word of a segment. */
#ifndef PSTI_CUDA_PATTERN_CUH
#define PSTI_CUDA_PATTERN_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/mix.h"
#include "kernels/core/stream.h"

struct pattern_range {
    unsigned char *base;
    uint64_t live, all; /* bytes */
    uint64_t key;
};

/* False where the count is out of bounds; `all` is set even then. */
PSTI_DEVICE bool open_range(const psti_pattern_args &args, uint32_t t, uint32_t segment,
                            pattern_range *range)
{
    const psti_tensor &tensor = args.tensors[t];
    const psti_space &space = args.spaces[tensor.space];
    const int64_t count = psti_user_count(&space, segment);
    range->all = psti_tensor_bytes(&tensor, (uint64_t)space.capacity);
    if (!psti_count_fits(count, space.capacity))
        return false;
    range->base = psti_segment_base(&tensor, segment);
    range->live = psti_tensor_bytes(&tensor, (uint64_t)count);
    range->key = psti_pattern_key(args.seed, args.step ? *args.step : 0, args.key, t, segment);
    return true;
}

PSTI_DEVICE uint64_t grid_thread()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

PSTI_DEVICE uint64_t grid_threads()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

PSTI_DEVICE void fill_range(const pattern_range &range)
{
    const bool aligned = (uint64_t)range.base % 8 == 0;
    for (uint64_t at = grid_thread() * 8; at < range.live; at += grid_threads() * 8) {
        const uint64_t word = psti_pattern_word(range.key, at / 8);
        if (aligned && at + 8 <= range.live) {
            *(uint64_t *)(range.base + at) = word;
            continue;
        }
        for (uint32_t i = 0; i < psti_min_u64(8, range.live - at); i++)
            range.base[at + i] = (unsigned char)(word >> (8 * i));
    }
}

PSTI_DEVICE uint64_t verify_range(const pattern_range &range, int32_t tail)
{
    uint64_t wrong = 0;
    for (uint64_t at = grid_thread() * 8; at < range.live; at += grid_threads() * 8) {
        const uint64_t word = psti_pattern_word(range.key, at / 8);
        for (uint32_t i = 0; i < psti_min_u64(8, range.live - at); i++)
            wrong += range.base[at + i] != (unsigned char)(word >> (8 * i));
    }
    if (tail >= 0)
        for (uint64_t at = range.live + grid_thread(); at < range.all; at += grid_threads())
            wrong += range.base[at] != (unsigned char)tail;
    return wrong;
}

static inline uint64_t fill_work(const psti_pattern_args *args)
{
    (void)args;
    return UINT32_MAX; /* every thread takes words in turn */
}

PSTI_KERNEL(fill_kernel, psti_pattern_args, args)
{
    pattern_range range;
    for (uint32_t t = 0; t < args.num_tensors; t++)
        for (uint32_t e = 0; e < args.spaces[args.tensors[t].space].num_segments; e++)
            if (open_range(args, t, e, &range))
                fill_range(range);
}

static inline uint64_t verify_work(const psti_pattern_args *args)
{
    return fill_work(args);
}

PSTI_KERNEL(verify_kernel, psti_pattern_args, args)
{
    PSTI_SHARED(block_scratch, scratch);
    pattern_range range;
    uint64_t wrong = 0;
    for (uint32_t t = 0; t < args.num_tensors; t++)
        for (uint32_t e = 0; e < args.spaces[args.tensors[t].space].num_segments; e++)
            if (open_range(args, t, e, &range))
                wrong += verify_range(range, args.tail);
            else if (grid_thread() == 0)
                wrong += range.all;
    wrong = block_sum(scratch, wrong);
    if (threadIdx.x == 0 && wrong)
        psti_add_acq_rel_u64(args.mismatches, wrong);
}

#endif
