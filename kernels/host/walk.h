/* The byte stream of a group on the CPU: its pieces one after the other, and its pages. */
#ifndef PSTI_HOST_WALK_H
#define PSTI_HOST_WALK_H

#include "kernels/core/stream.h"
#include "kernels/host/rows.h"

/* Calls piece() for every run of bytes that is contiguous in its page and belongs to one segment.
 * rows: where they lie, for piece() to use up; NULL where the tensor has no base. */
typedef struct walk {
    const psti_move_args *args;
    const int64_t *counts;
    uint64_t page_bytes;
    uint64_t cursor; /* in the byte stream */
    void (*piece)(struct walk *self, psti_rows *rows, uint64_t page, uint64_t offset,
                  uint64_t bytes);
    void *context;
} walk;

/* Byte `offset` of so many rows and what follows it. Packed rows are one row. */
static inline psti_rows rows_at(const psti_tensor *tensor, unsigned char *first, uint64_t num,
                                uint64_t offset)
{
    if (psti_is_packed(tensor))
        return (psti_rows){first, offset, num * tensor->row_bytes, 0};
    const uint64_t row = offset / tensor->row_bytes;
    return (psti_rows){first + row * tensor->row_stride, offset - row * tensor->row_bytes,
                       tensor->row_bytes, tensor->row_stride};
}

static inline void walk_segment(walk *self, const psti_tensor *tensor, uint32_t segment,
                                uint64_t num)
{
    const uint64_t bytes = num * tensor->row_bytes;
    for (uint64_t done = 0, run; done < bytes; done += run, self->cursor += run) {
        const uint64_t offset = self->cursor & (self->page_bytes - 1);
        psti_rows rows = {0};
        if (tensor->base)
            rows = rows_at(tensor, psti_segment_base(tensor, segment), num, done);
        run = psti_min_u64(bytes - done, self->page_bytes - offset);
        self->piece(self, tensor->base ? &rows : NULL, self->cursor / self->page_bytes, offset,
                    run);
    }
    self->cursor = psti_round_vector(self->cursor);
}

static inline void walk_stream(walk *self)
{
    const psti_move_args *args = self->args;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        self->cursor = psti_tiles_of(self->cursor) << PSTI_TILE_SHIFT;
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const uint64_t num =
                psti_tensor_rows(tensor, (uint64_t)self->counts[space->first_count + s]);
            walk_segment(self, tensor, s, num);
        }
    }
}

static inline uint64_t pages_wanted(const psti_move_args *args, const int64_t *counts)
{
    uint64_t tiles = 0;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        uint64_t bytes = 0;
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const uint64_t rows = (uint64_t)counts[space->first_count + s];
            bytes += psti_round_vector(psti_tensor_bytes(tensor, rows));
        }
        tiles += psti_tiles_of(bytes);
    }
    return psti_pages_of_tiles(tiles, args->pool.page_shift);
}

#endif
