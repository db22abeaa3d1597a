/* Pattern fill and verify: every thread of the grid takes every n-th 8-byte word of a segment. */
#ifndef PSTI_CUDA_PATTERN_CUH
#define PSTI_CUDA_PATTERN_CUH

#include "kernels/cuda/sums.cuh"

#include "kernels/core/mix.h"
#include "kernels/core/stream.h"

/* Rows of one segment, and their bytes without gaps. */
struct pattern_range {
    unsigned char *base;
    uint64_t row_bytes, row_stride; /* of packed rows all are one */
    uint64_t live, all;             /* bytes */
    uint64_t key;
    bool is_aligned; /* to 8, so that every whole word is */
};

PSTI_DEVICE void read_counts(count_sums &sums, const psti_pattern_args &args)
{
    const uint32_t i = thread_of();
    keep_count(sums, i, load_count(args.spaces, args.num_spaces, i, false));
    add_up(sums, args.spaces, args.num_spaces);
    PSTI_SYNC_TEAM();
}

/* False where the count is out of bounds; `all` is set even then. */
PSTI_DEVICE bool open_range(const psti_pattern_args &args, const count_sums &sums, uint32_t t,
                            uint32_t segment, pattern_range *range)
{
    const psti_tensor &tensor = args.tensors[t];
    const psti_space &space = args.spaces[tensor.space];
    const int64_t count = caller_count(sums, args.spaces, tensor.space, segment);
    range->all = psti_tensor_bytes(&tensor, (uint64_t)space.capacity);
    if (!psti_count_fits(count, space.capacity))
        return false;
    range->base = psti_segment_base(&tensor, segment);
    range->is_aligned = (uint64_t)range->base % 8 == 0;
    range->row_bytes = range->all ? range->all : 1;
    range->row_stride = 0;
    if (!psti_is_packed(&tensor)) {
        range->is_aligned &= (tensor.row_bytes | tensor.row_stride) % 8 == 0;
        range->row_bytes = tensor.row_bytes;
        range->row_stride = tensor.row_stride;
    }
    range->live = psti_tensor_bytes(&tensor, (uint64_t)count);
    range->key = psti_pattern_key(args.seed, args.step ? *args.step : 0, args.key, t, segment);
    return true;
}

/* Where this thread is: every thread of the grid goes on by as many bytes. Rows are counted up,
 * since a division for each word takes too long. */
struct pattern_place {
    uint64_t at;
    uint64_t in_row;
    unsigned char *row;
    uint64_t step, step_rows, step_in_row;
};

PSTI_DEVICE uint64_t grid_thread()
{
    return (uint64_t)team_of() * num_threads() + thread_of();
}

PSTI_DEVICE uint64_t grid_threads()
{
    return (uint64_t)num_teams() * num_threads();
}

/* unit: bytes that a thread takes at once. */
PSTI_DEVICE pattern_place open_place(const pattern_range &range, uint64_t first, uint32_t unit)
{
    pattern_place place;
    place.at = first + grid_thread() * unit;
    place.step = grid_threads() * unit;
    place.row = range.base;
    place.in_row = place.at;
    place.step_rows = 0;
    place.step_in_row = place.step;
    if (range.row_stride == 0)
        return place;
    const uint64_t row = place.at / range.row_bytes;
    place.in_row = place.at - row * range.row_bytes;
    place.row += row * range.row_stride;
    place.step_rows = place.step / range.row_bytes;
    place.step_in_row = place.step - place.step_rows * range.row_bytes;
    return place;
}

PSTI_DEVICE void go_on(const pattern_range &range, pattern_place *place)
{
    place->at += place->step;
    place->row += place->step_rows * range.row_stride;
    place->in_row += place->step_in_row;
    if (place->in_row >= range.row_bytes) {
        place->in_row -= range.row_bytes;
        place->row += range.row_stride;
    }
}

/* Of the bytes from the place on, which may be in later rows. */
PSTI_DEVICE unsigned char *byte_at(const pattern_range &range, const pattern_place &place,
                                   uint32_t i)
{
    unsigned char *row = place.row;
    uint64_t in_row = place.in_row + i;
    for (; in_row >= range.row_bytes; in_row -= range.row_bytes)
        row += range.row_stride;
    return row + in_row;
}

PSTI_DEVICE void fill_range(const pattern_range &range)
{
    for (pattern_place place = open_place(range, 0, 8); place.at < range.live;
         go_on(range, &place)) {
        const uint64_t word = psti_pattern_word(range.key, place.at / 8);
        if (range.is_aligned && place.at + 8 <= range.live) {
            *(uint64_t *)(place.row + place.in_row) = word;
            continue;
        }
        for (uint32_t i = 0; i < psti_min_u64(8, range.live - place.at); i++)
            *byte_at(range, place, i) = (unsigned char)(word >> (8 * i));
    }
}

PSTI_DEVICE uint64_t verify_range(const pattern_range &range, int32_t tail)
{
    uint64_t wrong = 0;
    for (pattern_place place = open_place(range, 0, 8); place.at < range.live;
         go_on(range, &place)) {
        const uint64_t word = psti_pattern_word(range.key, place.at / 8);
        if (range.is_aligned && place.at + 8 <= range.live &&
            *(const uint64_t *)(place.row + place.in_row) == word)
            continue;
        for (uint32_t i = 0; i < psti_min_u64(8, range.live - place.at); i++)
            wrong += *byte_at(range, place, i) != (unsigned char)(word >> (8 * i));
    }
    if (tail >= 0)
        for (pattern_place place = open_place(range, range.live, 1); place.at < range.all;
             go_on(range, &place))
            wrong += *byte_at(range, place, 0) != (unsigned char)tail;
    return wrong;
}

static inline uint64_t fill_work(const psti_pattern_args *args)
{
    (void)args;
    return UINT32_MAX; /* every thread takes words in turn */
}

PSTI_KERNEL(fill_kernel, psti_pattern_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    PSTI_SHARED(count_sums, sums);
    pattern_range range;
    read_counts(sums, args);
    for (uint32_t t = 0; t < args.num_tensors; t++)
        for (uint32_t e = 0; e < args.spaces[args.tensors[t].space].num_segments; e++)
            if (open_range(args, sums, t, e, &range))
                fill_range(range);
}

static inline uint64_t verify_work(const psti_pattern_args *args)
{
    return fill_work(args);
}

PSTI_KERNEL(verify_kernel, psti_pattern_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    PSTI_SHARED(block_scratch, scratch);
    PSTI_SHARED(count_sums, sums);
    pattern_range range;
    uint64_t wrong = 0;
    read_counts(sums, args);
    for (uint32_t t = 0; t < args.num_tensors; t++)
        for (uint32_t e = 0; e < args.spaces[args.tensors[t].space].num_segments; e++)
            if (open_range(args, sums, t, e, &range))
                wrong += verify_range(range, args.tail);
            else if (grid_thread() == 0)
                wrong += range.all;
    wrong = block_sum(scratch, wrong);
    if (thread_of() == 0 && wrong)
        psti_add_acq_rel_u64(args.mismatches, wrong);
}

#endif
