/* The byte stream of a group: what the formula in pagestash/group.h says, in one place. */
#ifndef PSTI_CORE_STREAM_H
#define PSTI_CORE_STREAM_H

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

/* Rows of a tensor where its row space has `rows`. Cannot overflow: every call checks
 * capacity * num. */
PSTI_FN uint64_t psti_tensor_rows(const psti_tensor *tensor, uint64_t rows)
{
    if (tensor->num == tensor->den)
        return rows;
    const uint32_t above = tensor->rounds_down ? 0 : tensor->den - 1;
    return (rows * tensor->num + above) / tensor->den;
}

PSTI_FN uint64_t psti_tensor_bytes(const psti_tensor *tensor, uint64_t rows)
{
    const uint64_t row_bytes = tensor->row_bytes;
    return psti_tensor_rows(tensor, rows) * row_bytes;
}

PSTI_FN uint64_t psti_round_vector(uint64_t bytes)
{
    return (bytes + (PSTI_VECTOR_BYTES - 1)) & ~(uint64_t)(PSTI_VECTOR_BYTES - 1);
}

PSTI_FN uint64_t psti_tiles_of(uint64_t bytes)
{
    return (bytes + (PSTI_TILE_BYTES - 1)) >> PSTI_TILE_SHIFT;
}

PSTI_FN uint64_t psti_pages_of_tiles(uint64_t tiles, uint32_t page_shift)
{
    const uint32_t shift = page_shift - PSTI_TILE_SHIFT;
    return (tiles + (((uint64_t)1 << shift) - 1)) >> shift;
}

PSTI_FN unsigned char *psti_segment_base(const psti_tensor *tensor, uint32_t segment)
{
    return tensor->base + segment * tensor->segment_stride;
}

PSTI_FN_OF_LAUNCH bool psti_is_packed(const psti_tensor *tensor)
{
    return tensor->row_stride == tensor->row_bytes;
}

/* Whether the tensor's tiles may be other than one run of memory each, which begins at a multiple
 * of 16. */
PSTI_FN_OF_LAUNCH bool psti_lies_apart(const psti_tensor *tensor, uint32_t num_segments)
{
    return num_segments > 1 || !psti_is_packed(tensor) ||
           (uint64_t)(uintptr_t)tensor->base % PSTI_VECTOR_BYTES != 0;
}

/* Whether each of its tiles is one run of memory, which does not begin at a multiple of 16. */
PSTI_FN_OF_LAUNCH bool psti_lies_odd(const psti_tensor *tensor, uint32_t num_segments)
{
    return num_segments == 1 && psti_is_packed(tensor) &&
           (uint64_t)(uintptr_t)tensor->base % PSTI_VECTOR_BYTES != 0;
}

/* Rows with gaps between them are runs of memory for themselves if they have so many bytes, else words of a span. */
#define PSTI_LEAST_RUN (PSTI_TILE_BYTES / 16)

/* Whether its tiles are several runs of memory, some of which may not begin at a multiple of 16: segments, or long
 * rows with gaps between them. */
PSTI_FN_OF_LAUNCH bool psti_has_odd_runs(const psti_tensor *tensor, uint32_t num_segments)
{
    const bool is_packed = psti_is_packed(tensor);
    uint64_t alignment = (uint64_t)(uintptr_t)tensor->base;
    if (is_packed ? num_segments == 1 : tensor->row_bytes < PSTI_LEAST_RUN)
        return false;
    if (num_segments > 1)
        alignment |= tensor->segment_stride;
    if (!is_packed)
        alignment |= tensor->row_bytes | tensor->row_stride;
    return alignment % PSTI_VECTOR_BYTES != 0;
}

PSTI_FN unsigned char *psti_row_address(const psti_tensor *tensor, uint32_t segment, uint64_t row)
{
    return psti_segment_base(tensor, segment) + row * tensor->row_stride;
}

/* The number of a row in the stream of rows that follow one another, without a division: of unit q
 * where a row has per_row units, per_row + 2^14 above q, per_row below 2^14. Exact, as q times the
 * error of the inverse stays below 2^31. */
PSTI_FN uint32_t psti_row_inverse(uint32_t per_row)
{
    return (0x80000000u + per_row - 1) / per_row;
}

PSTI_FN uint32_t psti_row_of(uint32_t q, uint32_t inverse)
{
    return (uint32_t)((uint64_t)q * inverse >> 31);
}

/* A count as the caller wrote it; of a sum, one of those that are summed. */
PSTI_FN int64_t psti_user_count(const psti_space *space, uint32_t idx)
{
    const uint64_t counts = space->counts;
    if (space->count_kind == PSTI_COUNT_INT32)
        return ((const int32_t *)(uintptr_t)counts)[idx];
    if (space->count_kind == PSTI_COUNT_INT64)
        return ((const int64_t *)(uintptr_t)counts)[idx];
    return (int64_t)counts;
}

/* The first negative count, else their sum, which stops at the first partial sum above the
 * capacity. That one may be 2^63 and more and then is negative here, which does not fit either. */
PSTI_FN int64_t psti_summed_count(const psti_space *space)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < space->num_summed; i++) {
        const int64_t count = psti_user_count(space, i);
        if (count < 0)
            return count;
        if (sum <= (uint64_t)space->capacity)
            sum += (uint64_t)count;
    }
    return (int64_t)sum;
}

/* Where so many segments start, and where the last one ends. */
PSTI_FN_OF_LAUNCH uint32_t psti_table_bytes(uint32_t num_segments)
{
    return (num_segments + 1) * (uint32_t)sizeof(uint64_t);
}

/* Bytes of dynamic shared memory that a team needs for where segments start; none where every
 * tensor has one segment. */
PSTI_FN_OF_LAUNCH uint32_t psti_segment_room(const psti_move_args *args)
{
    return args->max_segments > 1 ? psti_table_bytes(args->max_segments) : 0;
}

/* How many rows the segment has, as the caller wrote it. Sums are long: add them up once. */
PSTI_FN int64_t psti_space_count(const psti_space *space, uint32_t segment)
{
    return space->num_summed ? psti_summed_count(space) : psti_user_count(space, segment);
}

PSTI_FN bool psti_count_fits(int64_t count, int64_t capacity)
{
    return count >= 0 && count <= capacity;
}

/* Rows of [count, capacity) that an earlier restore left behind. */
PSTI_FN uint64_t psti_dirty_rows(uint64_t dirty, int64_t capacity)
{
    return psti_min_u64(dirty, (uint64_t)capacity);
}

#endif
