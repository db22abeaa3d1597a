/* The byte stream of a group: what the formula in pagestash/group.h says, in one place. */
#ifndef PSTI_CORE_STREAM_H
#define PSTI_CORE_STREAM_H

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

/* Rows of a tensor where its row space has `rows`. Cannot overflow: group creation has checked
 * capacity * num. */
PSTI_FN uint64_t psti_tensor_rows(const psti_tensor *tensor, uint64_t rows)
{
    if (tensor->num == tensor->den)
        return rows;
    return (rows * tensor->num + tensor->den - 1) / tensor->den;
}

PSTI_FN uint64_t psti_tensor_bytes(const psti_tensor *tensor, uint64_t rows)
{
    return psti_tensor_rows(tensor, rows) * tensor->row_bytes;
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

/* A count as the caller wrote it. */
PSTI_FN int64_t psti_user_count(const psti_space *space, uint32_t segment)
{
    if (space->is_int64)
        return ((const int64_t *)space->counts)[segment];
    return ((const int32_t *)space->counts)[segment];
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
