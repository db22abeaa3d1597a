/* The tensors and row counts of a configuration. */
#include "bench/stash/case.h"

#include <string.h>

enum { NUM_EXPERTS = 8, BASE_ALIGNMENT = 256, SCALE_ROWS = 32, NARROW_BYTES = 4 };

/* Row bytes of what an MoE layer keeps in bf16 (fc1 input, fc1 output, activation), over and over;
 * the last tensor of several is narrow, a routing probability. Odd hidden sizes are that little
 * wider. */
static uint64_t row_bytes(const bench_case *what, uint32_t tensor)
{
    static const uint64_t wide[] = {4096, 4096, 2048};
    if (what->row_bytes)
        return what->row_bytes;
    if (what->tensors > 1 && tensor == what->tensors - 1)
        return NARROW_BYTES;
    if (what->scales)
        return wide[tensor / 2 % 3] / (tensor % 2 ? SCALE_ROWS : 1);
    return wide[tensor % 3] + what->alignment % 16;
}

/* Each expert's share is rounded down, the first gets what is left: so all patterns but empty have
 * the same rows. */
static void share_rows(int64_t *counts, bench_pattern pattern, int64_t rows)
{
    double weights[NUM_EXPERTS], all = 0.0;
    int64_t left = rows;
    for (int e = 0; e < NUM_EXPERTS; e++) {
        weights[e] = pattern == BENCH_ZIPF                   ? 1.0 / (e + 1)
                     : pattern == BENCH_HOT_EXPERT && e == 0 ? NUM_EXPERTS - 1
                                                             : 1.0;
        all += weights[e];
    }
    for (int e = NUM_EXPERTS - 1; e > 0; e--) {
        counts[e] = (int64_t)((double)rows * weights[e] / all);
        left -= counts[e];
    }
    counts[0] = left;
}

static void set_counts(bench_shape *shape, bench_pattern pattern, int64_t rows)
{
    shape->space.count_type = PST_COUNT_INT64;
    if (pattern == BENCH_PREFIX) {
        shape->num_counts = 1;
        shape->counts[0] = rows;
        shape->space.kind = PST_ROWS_PREFIX;
        shape->space.num_segments = 1;
        shape->space.capacity = rows + rows / 4 + 1;
        return;
    }
    shape->num_counts = NUM_EXPERTS;
    shape->space.kind = PST_ROWS_SEGMENTS;
    shape->space.num_segments = NUM_EXPERTS;
    share_rows(shape->counts, pattern, rows);
    shape->space.capacity = shape->counts[0] + shape->counts[0] / 4 + 1;
    if (pattern == BENCH_FULL) {
        shape->space.capacity = rows / NUM_EXPERTS + 1;
        for (int e = 0; e < NUM_EXPERTS; e++)
            shape->counts[e] = shape->space.capacity;
    }
    if (pattern == BENCH_EMPTY)
        memset(shape->counts, 0, NUM_EXPERTS * sizeof(shape->counts[0]));
}

void bench_shape_of(const bench_case *what, bench_shape *shape)
{
    uint64_t all_row_bytes = row_bytes(what, 0), rows = 0;
    memset(shape, 0, sizeof(*shape));
    shape->num_tensors = what->tensors;
    for (uint32_t t = 1; t < what->tensors; t++)
        all_row_bytes += row_bytes(what, t);
    set_counts(shape, what->pattern, (int64_t)(what->bytes / all_row_bytes));
    for (uint32_t i = 0; i < shape->num_counts; i++)
        rows += (uint64_t)shape->counts[i];
    shape->live_bytes = rows * all_row_bytes;
    const uint64_t slab_rows = (uint64_t)shape->space.capacity * shape->space.num_segments;
    for (uint32_t t = 0; t < what->tensors; t++) {
        pst_tensor *tensor = &shape->tensors[t];
        tensor->row_bytes = row_bytes(what, t);
        tensor->row_stride = what->row_stride;
        shape->offsets[t] = shape->arena_bytes + what->alignment % 16;
        const uint64_t stride = what->row_stride ? what->row_stride : tensor->row_bytes;
        const uint64_t bytes = slab_rows * stride + what->alignment % 16;
        shape->arena_bytes += (bytes + BASE_ALIGNMENT - 1) / BASE_ALIGNMENT * BASE_ALIGNMENT;
    }
}
