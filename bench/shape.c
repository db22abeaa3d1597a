#include "bench.h"

#include <string.h>

#define NUM_EXPERTS 8u
#define ALIGNMENT 256u

/* Row bytes of what an MoE layer keeps in bf16 (fc1 input, fc1 output, activation), over and over;
 * the last tensor of several is narrow, a routing probability. */
static uint64_t row_bytes(uint32_t tensor, uint32_t num_tensors)
{
    static const uint64_t wide[] = {4096, 4096, 2048};
    return num_tensors > 1 && tensor == num_tensors - 1 ? 4 : wide[tensor % 3];
}

static void set_counts(bench_shape *shape, bench_pattern pattern, int64_t rows)
{
    if (pattern == BENCH_UNIFORM) {
        shape->num_counts = 1;
        shape->counts[0] = rows;
        shape->space.kind = PST_ROWS_PREFIX;
        shape->space.num_segments = 1;
        shape->space.capacity = rows + rows / 4 + 1;
        return;
    }
    const int64_t hot = rows * 3 / 8;
    shape->num_counts = NUM_EXPERTS;
    for (uint32_t e = 0; e < NUM_EXPERTS; e++) {
        const int64_t others = NUM_EXPERTS - 1;
        shape->counts[e] = e == 0 ? hot : (rows - hot + e - 1) / others;
    }
    shape->space.kind = PST_ROWS_SEGMENTS;
    shape->space.num_segments = NUM_EXPERTS;
    shape->space.capacity = hot + 1;
}

void bench_shape_of(const bench_case *what, bench_shape *shape)
{
    uint64_t all_row_bytes = row_bytes(0, what->tensors);
    memset(shape, 0, sizeof(*shape));
    shape->num_tensors = what->tensors;
    for (uint32_t t = 1; t < what->tensors; t++)
        all_row_bytes += row_bytes(t, what->tensors);
    shape->space.count_type = PST_COUNT_INT64;
    set_counts(shape, what->pattern, (int64_t)(what->bytes / all_row_bytes));
    const uint64_t slab_rows = (uint64_t)shape->space.capacity * shape->space.num_segments;
    for (uint32_t t = 0; t < what->tensors; t++) {
        pst_tensor *tensor = &shape->tensors[t];
        shape->offsets[t] = shape->arena_bytes;
        tensor->row_bytes = row_bytes(t, what->tensors);
        const uint64_t bytes = slab_rows * tensor->row_bytes;
        shape->arena_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}
