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
    /* Where a page is; NULL: it is not the ticket's. is_first: asked for its first byte */
    unsigned char *(*find)(struct walk *self, uint64_t page, bool is_first);
    void *context;
    const struct fused_rows *fused; /* NULL: none */
} walk;

/* What an operation does with the rows of one tensor, instead of copying them. */
typedef struct fused_rows {
    uint32_t tensor;
    const psti_glu_args *glu;
    /* Of one segment; its bytes begin at stream->cursor. find says where a page is, NULL: nowhere. */
    void (*run)(const struct fused_rows *self, walk *stream, uint32_t segment, uint64_t num);
    /* All rows without pages: a stash that writes none. */
    void (*alone)(const struct fused_rows *self);
    /* A restore that copies nothing because of a fault. */
    void (*clear)(const struct fused_rows *self);
} fused_rows;

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

/* So many of a segment's rows, from the first on. */
static inline void walk_rows(walk *self, const psti_tensor *tensor, uint32_t segment,
                             uint64_t first, uint64_t num)
{
    const uint64_t bytes = num * tensor->row_bytes;
    for (uint64_t done = 0, run; done < bytes; done += run, self->cursor += run) {
        const uint64_t offset = self->cursor & (self->page_bytes - 1);
        psti_rows rows = {0};
        if (tensor->base)
            rows = rows_at(tensor, psti_row_address(tensor, segment, first), num, done);
        run = psti_min_u64(bytes - done, self->page_bytes - offset);
        self->piece(self, tensor->base ? &rows : NULL, self->cursor / self->page_bytes, offset,
                    run);
    }
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
            if (self->fused && self->fused->tensor == t)
                self->fused->run(self->fused, self, s, num);
            else
                walk_rows(self, tensor, s, 0, num);
            self->cursor = psti_round_vector(self->cursor);
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

/* With fused NULL: a plain stash, a plain restore. */
void psti_host_stash_with(const psti_move_args *args, const fused_rows *fused);
void psti_host_restore_with(const psti_move_args *args, const fused_rows *fused);

#endif
