/* Random groups, and random counts for them. */
#include "tests/oracle/shapes.h"

#include <string.h>

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- spaces ---- */

static void make_space(oracle_random *random, shape_theme theme, uint64_t bytes,
                       pst_row_space *space)
{
    const bool segments = theme == SHAPE_1024_SEGMENTS || theme == SHAPE_SEGMENTS ||
                          (theme != SHAPE_BYTE_ROWS && oracle_random_one_in(random, 3));
    space->kind = segments ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX;
    space->count_type = oracle_random_one_in(random, 2) ? PST_COUNT_INT64 : PST_COUNT_INT32;
    space->counts = NULL;
    space->num_segments = (uint32_t)oracle_random_below(random, 2);
    space->capacity = (int64_t)oracle_random_in(random, 1, 300);
    if (segments) {
        space->num_segments = (uint32_t)oracle_random_in(random, 1, 24);
        space->capacity = (int64_t)oracle_random_in(random, 1, 40);
    }
    if (theme == SHAPE_1024_SEGMENTS) {
        space->num_segments = oracle_random_one_in(random, 2)
                                  ? PST_MAX_SEGMENTS
                                  : (uint32_t)oracle_random_in(random, 200, PST_MAX_SEGMENTS);
        space->capacity = (int64_t)oracle_random_in(random, 1, 4);
    }
    if (theme == SHAPE_BYTE_ROWS)
        space->capacity = (int64_t)oracle_random_in(random, 1, bytes);
    if (theme == SHAPE_LONG_ROWS) {
        space->capacity = (int64_t)oracle_random_in(random, 1, 4);
        space->num_segments = space->num_segments > 3 ? 3 : space->num_segments;
    }
}

/* ---- tensors ---- */

static void choose_ratio(oracle_random *random, pst_tensor *tensor)
{
    static const uint32_t ratios[][2] = {{1, 32}, {1, 128}, {3, 7}, {1, 2}, {5, 5}, {127, 128}};
    const uint32_t *ratio = ratios[oracle_random_below(random, 6)];
    tensor->num = ratio[0];
    tensor->den = ratio[1];
}

static uint64_t choose_width(oracle_random *random, shape_theme theme, uint64_t most)
{
    static const uint64_t usual[] = {1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 4096, 16384};
    static const uint64_t odd[] = {3, 5, 7, 11, 13, 17, 33, 97, 255, 1021, 4099, 16381};
    if (theme == SHAPE_BYTE_ROWS)
        return 1;
    if (theme == SHAPE_LONG_ROWS)
        return oracle_random_in(random, 10000, 40000);
    const bool is_odd = theme == SHAPE_ODD_WIDTHS || oracle_random_one_in(random, 3);
    const uint64_t *widths = is_odd ? odd : usual;
    uint64_t width = widths[oracle_random_below(random, 12)];
    if (oracle_random_one_in(random, 4))
        width = oracle_random_in(random, 1, 2048);
    return width <= most ? width : oracle_random_in(random, 1, most);
}

static void make_tensor(oracle_random *random, shape_theme theme, uint64_t bytes, shape *made,
                        uint32_t t)
{
    pst_tensor *tensor = &made->tensors[t];
    memset(tensor, 0, sizeof(*tensor));
    tensor->space =
        (uint32_t)(t < made->num_spaces ? t : oracle_random_below(random, made->num_spaces));
    if (theme == SHAPE_RATIOS || oracle_random_one_in(random, 5))
        choose_ratio(random, tensor);
    const pst_row_space *space = &made->spaces[tensor->space];
    const uint64_t rows =
        oracle_num_segments(space) * oracle_rows(tensor, (uint64_t)space->capacity);
    const uint64_t most = bytes / rows;
    tensor->row_bytes = choose_width(random, theme, most ? most : 1);
}

static uint64_t choose_offset(oracle_random *random, shape_theme theme, uint64_t from)
{
    const uint64_t aligned = (from + oracle_random_in(random, 16, 80)) / 16 * 16;
    if (theme == SHAPE_UNALIGNED)
        return aligned + oracle_random_in(random, 1, 15);
    if (oracle_random_one_in(random, 2))
        return aligned;
    return aligned + (oracle_random_one_in(random, 2) ? 4 * oracle_random_below(random, 4)
                                                      : oracle_random_below(random, 16));
}

static void place(oracle_random *random, shape_theme theme, shape *made)
{
    oracle_group group = {.num_spaces = made->num_spaces, .num_tensors = made->num_tensors};
    memcpy(group.spaces, made->spaces, sizeof(group.spaces));
    uint64_t end = 0;
    for (uint32_t t = 0; t < made->num_tensors; t++) {
        pst_tensor *tensor = &made->tensors[t];
        group.tensors[t] = *tensor;
        const uint64_t packed = oracle_segment_bytes(&group, t);
        const uint64_t segments = oracle_num_segments(&made->spaces[tensor->space]);
        const uint64_t at = choose_offset(random, theme, end);
        tensor->base = (void *)(uintptr_t)at;
        tensor->segment_stride = 0;
        if (oracle_random_one_in(random, 2))
            tensor->segment_stride = packed + oracle_random_below(random, 48);
        end = at + (tensor->segment_stride ? tensor->segment_stride : packed) * segments;
    }
    made->arena_bytes = (size_t)end + 64;
}

void shape_make(oracle_random *random, shape_theme theme, uint64_t bytes, shape *made)
{
    memset(made, 0, sizeof(*made));
    made->num_tensors = (uint32_t)oracle_random_in(random, 1, 8);
    if (theme == SHAPE_ONE_TENSOR)
        made->num_tensors = 1;
    if (theme == SHAPE_64_TENSORS)
        made->num_tensors = oracle_random_one_in(random, 4) ? 63 : PST_MAX_TENSORS;
    if (theme == SHAPE_8_SPACES)
        made->num_tensors = (uint32_t)oracle_random_in(random, PST_MAX_SPACES, 20);
    if (theme == SHAPE_1024_SEGMENTS || theme == SHAPE_LONG_ROWS)
        made->num_tensors = (uint32_t)oracle_random_in(random, 1, 3);
    made->num_spaces =
        theme == SHAPE_8_SPACES
            ? PST_MAX_SPACES
            : (uint32_t)oracle_random_in(random, 1, min_of(made->num_tensors, PST_MAX_SPACES));
    const uint64_t share = bytes / made->num_tensors + 1;
    for (uint32_t i = 0; i < made->num_spaces; i++)
        make_space(random, theme, share, &made->spaces[i]);
    for (uint32_t t = 0; t < made->num_tensors; t++)
        make_tensor(random, theme, share, made, t);
    made->tail_is_zero = oracle_random_one_in(random, 2);
    place(random, theme, made);
}

void shape_like(oracle_random *random, const shape *source, bool may_be_smaller, shape *made)
{
    *made = *source;
    for (uint32_t i = 0; i < made->num_spaces; i++) {
        pst_row_space *space = &made->spaces[i];
        const uint64_t capacity = (uint64_t)space->capacity;
        if (oracle_random_one_in(random, 2))
            space->capacity = (int64_t)oracle_random_in(random, capacity, capacity + capacity / 2);
        if (may_be_smaller && oracle_random_one_in(random, 3))
            space->capacity = (int64_t)oracle_random_in(random, 1, capacity);
        space->count_type = oracle_random_one_in(random, 2) ? PST_COUNT_INT64 : PST_COUNT_INT32;
    }
    for (uint32_t t = 0; t < made->num_tensors; t++)
        if (made->tensors[t].den && oracle_random_one_in(random, 4)) { /* the same ratio */
            made->tensors[t].num *= 2;
            made->tensors[t].den *= 2;
        }
    made->tail_is_zero = oracle_random_one_in(random, 2);
    made->without_counts = oracle_random_one_in(random, 2);
    place(random, oracle_random_one_in(random, 3) ? SHAPE_UNALIGNED : SHAPE_ANY, made);
}

/* ---- counts ---- */

static int64_t edge(oracle_random *random, int64_t capacity)
{
    const int64_t edges[] = {0, 1, capacity - 1, capacity};
    return edges[oracle_random_below(random, 4)];
}

static int64_t good_count(oracle_random *random, counts_kind kind, int64_t capacity)
{
    const int64_t any = (int64_t)oracle_random_in(random, 0, (uint64_t)capacity);
    switch (kind) {
    case COUNTS_ZERO:
    case COUNTS_HOT:
        return 0;
    case COUNTS_FULL:
        return capacity;
    case COUNTS_SPARSE:
        return oracle_random_one_in(random, 6) ? any : 0;
    case COUNTS_EDGES:
        return edge(random, capacity);
    default:
        return any;
    }
}

static int64_t bad_count(oracle_random *random, counts_kind kind, const pst_row_space *space)
{
    const bool is_int64 = space->count_type == PST_COUNT_INT64;
    if (kind == COUNTS_ONE_OVER)
        return space->capacity + 1;
    if (kind == COUNTS_NEGATIVE)
        return -1 - (int64_t)oracle_random_below(random, 3);
    if (oracle_random_one_in(random, 2))
        return is_int64 ? INT64_MIN : INT32_MIN;
    return is_int64 ? INT64_MAX : INT32_MAX;
}

void shape_counts(oracle_random *random, const pst_row_space *spaces, uint32_t num_spaces,
                  counts_kind kind, int64_t *values)
{
    for (uint32_t i = 0; i < num_spaces; i++) {
        const uint32_t segments = oracle_num_segments(&spaces[i]);
        for (uint32_t s = 0; s < segments; s++)
            values[s] = good_count(random, kind, spaces[i].capacity);
        const uint32_t one = (uint32_t)oracle_random_below(random, segments);
        if (kind == COUNTS_HOT)
            values[one] = spaces[i].capacity;
        if (kind >= COUNTS_GOOD && (i + 1 == num_spaces || oracle_random_one_in(random, 3)))
            values[one] = bad_count(random, kind, &spaces[i]);
        values += segments;
    }
}
