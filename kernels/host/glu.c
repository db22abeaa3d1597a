/* The gated activation on the CPU: row by row, in blocks that stay in the cache until they are in
 * pages. */
#include <stddef.h>

#include "kernels/host/glu_rows.h"
#include "kernels/host/protocol.h"
#include "kernels/host/runners.h"
#include "kernels/host/walk.h"

#define BLOCK_BYTES 65536u /* of the input: computed, then copied into pages */
#define CHUNK 512u         /* columns of a row at once: a multiple of every interleave */
#define MAX_SIZE 4u        /* bytes of an element */

static unsigned char *row_of(const psti_matrix *matrix, uint32_t segment, uint64_t row)
{
    return matrix->base + segment * matrix->segment_stride + row * matrix->row_stride;
}

static float probability_of(const psti_glu *glu, uint32_t segment, uint64_t row)
{
    float p = 1;
    if (glu->probability.base)
        memcpy(&p, row_of(&glu->probability, segment, row), sizeof(p));
    return p;
}

static const psti_tensor *input_of(const psti_glu_args *args)
{
    return &args->move.tensors[args->glu.tensor];
}

static const psti_space *space_of(const psti_glu_args *args)
{
    return &args->move.spaces[input_of(args)->space];
}

static uint64_t size_of(const psti_glu *glu)
{
    return glu->dtype == PST_GLU_FP32 ? 4 : 2;
}

/* ---- forward ---- */

static void forward_rows(const psti_glu_args *args, uint32_t segment, uint64_t first, uint64_t num)
{
    const psti_glu *glu = &args->glu;
    const psti_glu_rows *fns = psti_glu_rows_best();
    for (uint64_t row = first; row < first + num; row++) {
        const unsigned char *gate = psti_row_address(input_of(args), segment, row);
        const unsigned char *up = glu->interleave ? NULL : gate + glu->features * size_of(glu);
        fns->forward(&glu->how, glu->dtype, glu->interleave, gate, up, glu->features,
                     probability_of(glu, segment, row), row_of(&glu->output, segment, row));
    }
}

static void forward_into_pages(const fused_rows *self, walk *stream, uint32_t segment, uint64_t num)
{
    const psti_tensor *input = input_of(self->glu);
    const uint64_t block = psti_max_u64(BLOCK_BYTES / input->row_bytes, 1);
    for (uint64_t row = 0, rows; row < num; row += rows) {
        rows = psti_min_u64(block, num - row);
        forward_rows(self->glu, segment, row, rows);
        walk_rows(stream, input, segment, row, rows);
    }
}

static bool counts_fit(const psti_move_args *args)
{
    for (uint32_t i = 0; i < args->num_spaces; i++)
        for (uint32_t s = 0; s < args->spaces[i].num_segments; s++)
            if (!psti_count_fits(psti_space_count(&args->spaces[i], s), args->spaces[i].capacity))
                return false;
    return true;
}

static void forward_alone(const fused_rows *self)
{
    const psti_space *space = space_of(self->glu);
    if (!counts_fit(&self->glu->move))
        return;
    for (uint32_t s = 0; s < space->num_segments; s++)
        forward_rows(self->glu, s, 0, (uint64_t)psti_space_count(space, s));
}

void psti_host_glu_forward(const void *opaque)
{
    const psti_glu_args *args = opaque;
    const fused_rows fused = {
        .tensor = args->glu.tensor, .glu = args, .run = forward_into_pages, .alone = forward_alone};
    if (args->glu.has_ticket)
        psti_host_stash_with(&args->move, &fused);
    else
        forward_alone(&fused);
}

/* ---- backward ---- */

/* Where a row's bytes are read: in memory, or from `place` of a ticket's byte stream on. */
typedef struct row_source {
    const unsigned char *row;
    walk *stream; /* NULL: in memory */
    uint64_t place;
} row_source;

/* The page that was looked up last; gates and ups have one each. */
typedef struct page_window {
    uint64_t page;
    const unsigned char *at; /* NULL: nowhere */
} page_window;

static const unsigned char *look_up(const row_source *from, page_window *window, uint64_t place)
{
    const uint64_t page = place / from->stream->page_bytes;
    const uint64_t offset = place % from->stream->page_bytes;
    if (page != window->page)
        *window = (page_window){page, from->stream->find(from->stream, page, offset == 0)};
    return window->at ? window->at + offset : NULL;
}

/* Bytes of the row in one piece: where they are, or put together in `room`. */
static const unsigned char *input_at(const row_source *from, page_window *window, uint64_t column,
                                     uint64_t bytes, unsigned char *room)
{
    if (!from->stream)
        return from->row + column;
    const uint64_t page_bytes = from->stream->page_bytes;
    const uint64_t place = from->place + column;
    const unsigned char *at = look_up(from, window, place);
    if (at && place % page_bytes + bytes <= page_bytes)
        return at;
    for (uint64_t done = 0, run; done < bytes; done += run) {
        run = psti_min_u64(bytes - done, page_bytes - (place + done) % page_bytes);
        at = look_up(from, window, place + done);
        if (at)
            memcpy(room + done, at, run);
        else
            memset(room + done, 0, run);
    }
    return room;
}

static void backward_row(const psti_glu_args *args, const row_source *from, page_window windows[2],
                         uint32_t segment, uint64_t row)
{
    const psti_glu *glu = &args->glu;
    const uint64_t size = size_of(glu);
    const psti_glu_rows *fns = psti_glu_rows_best();
    const float p = probability_of(glu, segment, row);
    const unsigned char *gradient = row_of(&glu->gradient, segment, row);
    unsigned char *to = row_of(&glu->input_gradient, segment, row);
    unsigned char *output = glu->output.base ? row_of(&glu->output, segment, row) : NULL;
    unsigned char room[2][2 * CHUNK * MAX_SIZE];
    float sum[PSTI_GLU_SUMS] = {0};
    for (uint64_t c = 0, num; c < glu->features; c += num) {
        num = psti_min_u64(glu->features - c, CHUNK);
        const bool halves = glu->interleave == 0;
        const uint64_t first = (halves ? c : 2 * c) * size;
        const uint64_t second = (glu->features + c) * size;
        const uint64_t bytes = (halves ? num : 2 * num) * size;
        const unsigned char *gate = input_at(from, &windows[0], first, bytes, room[0]);
        const unsigned char *up =
            halves ? input_at(from, &windows[1], second, bytes, room[1]) : NULL;
        fns->backward(&glu->how, glu->dtype, glu->interleave, gate, up, gradient + c * size, num, p,
                      to + first, halves ? to + second : NULL, output ? output + c * size : NULL,
                      sum);
    }
    if (glu->probability_gradient.base) {
        const float all = psti_glu_sum(sum);
        memcpy(row_of(&glu->probability_gradient, segment, row), &all, sizeof(all));
    }
}

static void backward_from_pages(const fused_rows *self, walk *stream, uint32_t segment,
                                uint64_t num)
{
    const uint64_t row_bytes = input_of(self->glu)->row_bytes;
    page_window windows[2] = {{UINT64_MAX, NULL}, {UINT64_MAX, NULL}};
    for (uint64_t row = 0; row < num; row++) {
        const row_source from = {NULL, stream, stream->cursor};
        backward_row(self->glu, &from, windows, segment, row);
        stream->cursor += row_bytes;
    }
}

static void backward_alone(const psti_glu_args *args)
{
    const psti_space *space = space_of(args);
    page_window windows[2] = {{0, NULL}, {0, NULL}}; /* not looked at */
    if (!counts_fit(&args->move))
        return;
    for (uint32_t s = 0; s < space->num_segments; s++) {
        const uint64_t num = (uint64_t)psti_space_count(space, s);
        for (uint64_t row = 0; row < num; row++) {
            const row_source from = {psti_row_address(input_of(args), s, row), NULL, 0};
            backward_row(args, &from, windows, s, row);
        }
    }
}

static void clear_matrix(const psti_matrix *matrix, uint32_t segment, uint64_t num, uint64_t bytes)
{
    for (uint64_t row = 0; matrix->base && row < num; row++)
        memset(row_of(matrix, segment, row), 0, bytes);
}

/* As many rows as the caller's counts say, else all. */
static void backward_clear(const fused_rows *self)
{
    const psti_glu *glu = &self->glu->glu;
    const psti_space *space = space_of(self->glu);
    for (uint32_t s = 0; s < space->num_segments; s++) {
        const int64_t count = glu->has_counts ? psti_space_count(space, s) : -1;
        const uint64_t num =
            (uint64_t)(psti_count_fits(count, space->capacity) ? count : space->capacity);
        clear_matrix(&glu->input_gradient, s, num, 2 * glu->features * size_of(glu));
        clear_matrix(&glu->output, s, num, glu->features * size_of(glu));
        clear_matrix(&glu->probability_gradient, s, num, sizeof(float));
    }
}

void psti_host_glu_backward(const void *opaque)
{
    const psti_glu_args *args = opaque;
    const fused_rows fused = {.tensor = args->glu.tensor,
                              .glu = args,
                              .run = backward_from_pages,
                              .clear = backward_clear};
    if (args->glu.has_ticket)
        psti_host_restore_with(&args->move, &fused);
    else
        backward_alone(args);
}
