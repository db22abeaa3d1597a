/* Random groups, and random counts for them. */
#include "tests/oracle/shapes.h"

#include <string.h>

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- spaces ---- */

static pst_rows_kind choose_kind(oracle_random *random, shape_theme theme)
{
    if (theme == SHAPE_1024_SEGMENTS || theme == SHAPE_SEGMENTS)
        return PST_ROWS_SEGMENTS;
    if (theme == SHAPE_BYTE_ROWS || theme == SHAPE_HOST_COUNTS)
        return PST_ROWS_PREFIX;
    if (theme == SHAPE_SUMS || oracle_random_one_in(random, 6))
        return PST_ROWS_SUM;
    return oracle_random_one_in(random, 3) ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX;
}

static pst_count_type choose_type(oracle_random *random, shape_theme theme, pst_rows_kind kind)
{
    if (kind == PST_ROWS_PREFIX && (theme == SHAPE_HOST_COUNTS || oracle_random_one_in(random, 8)))
        return PST_COUNT_HOST;
    return oracle_random_one_in(random, 2) ? PST_COUNT_INT64 : PST_COUNT_INT32;
}

static void make_space(oracle_random *random, shape_theme theme, uint64_t bytes,
                       pst_row_space *space)
{
    space->kind = choose_kind(random, theme);
    space->count_type = choose_type(random, theme, space->kind);
    space->num_segments = (uint32_t)oracle_random_below(random, 2);
    space->capacity = (int64_t)oracle_random_in(random, 1, 300);
    if (space->kind == PST_ROWS_SUM)
        space->num_segments = oracle_random_one_in(random, 8)
                                  ? (uint32_t)oracle_random_in(random, 1, PST_MAX_SEGMENTS)
                                  : (uint32_t)oracle_random_in(random, 1, 70);
    if (space->kind == PST_ROWS_SEGMENTS) {
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

static void choose_ratio(oracle_random *random, shape_theme theme, pst_tensor *tensor)
{
    static const uint32_t ratios[][2] = {{1, 32}, {1, 128}, {3, 7}, {1, 2}, {5, 5}, {127, 128}};
    const uint32_t *ratio = ratios[oracle_random_below(random, 6)];
    tensor->num = ratio[0];
    tensor->den = ratio[1];
    if (theme == SHAPE_FLOORS || oracle_random_one_in(random, 3))
        tensor->rounding = oracle_random_one_in(random, 4) ? PST_ROUND_UP : PST_ROUND_DOWN;
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

static uint64_t rows_of(const oracle_group *group, uint32_t t)
{
    const pst_tensor *tensor = &group->tensors[t];
    return oracle_num_segments(&group->spaces[tensor->space]) *
           oracle_rows(tensor, (uint64_t)oracle_capacity(group, tensor->space));
}

static void make_tensor(oracle_random *random, shape_theme theme, uint64_t bytes,
                        oracle_group *made, uint32_t t)
{
    pst_tensor *tensor = &made->tensors[t];
    memset(tensor, 0, sizeof(*tensor));
    tensor->space =
        (uint32_t)(t < made->num_spaces ? t : oracle_random_below(random, made->num_spaces));
    if (theme == SHAPE_RATIOS || theme == SHAPE_FLOORS || oracle_random_one_in(random, 5))
        choose_ratio(random, theme, tensor);
    if (theme == SHAPE_FUSED) /* as many rows each */
        tensor->num = tensor->den = 0;
    const uint64_t rows = rows_of(made, t);
    const uint64_t most = rows ? bytes / rows : bytes; /* a floor may leave no row */
    tensor->row_bytes = choose_width(random, theme, most ? most : 1);
}

/* ---- places ---- */

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

/* From one row to the next: one byte more, an odd number, a row's length more, much more, or a
 * multiple of 16; never so much that the arena becomes large. */
static uint64_t choose_pitch(oracle_random *random, uint64_t row_bytes, uint64_t rows)
{
    const uint64_t odd = row_bytes + 1 + oracle_random_below(random, 40);
    const uint64_t sixteens = (row_bytes + 15) / 16 * 16 + 16 * oracle_random_below(random, 5);
    const uint64_t pitches[] = {row_bytes + 1, odd | 1, 2 * row_bytes,
                                row_bytes + oracle_random_in(random, 1000, 9000), sixteens};
    const uint64_t pitch = pitches[oracle_random_below(random, 5)];
    const uint64_t most = 60000 / (rows + 1) + 1;
    return pitch - row_bytes <= most || pitch <= 2 * row_bytes
               ? pitch
               : row_bytes + oracle_random_in(random, 1, most);
}

/* A field of the group, or of the launch, for tensor t. */
static void set_row_stride(bool in_group, oracle_group *group, uint32_t t, uint64_t bytes)
{
    group->row_strides[t] = 0;
    if (in_group)
        group->tensors[t].row_stride = bytes;
    else
        group->row_strides[t] = bytes;
}

static void set_segment_stride(bool in_group, oracle_group *group, uint32_t t, uint64_t bytes)
{
    group->segment_strides[t] = 0;
    if (in_group)
        group->tensors[t].segment_stride = bytes;
    else
        group->segment_strides[t] = bytes;
}

/* The bytes from a tensor's first to its end. */
static uint64_t extent(const oracle_group *group, uint32_t t)
{
    const pst_tensor *tensor = &group->tensors[t];
    const uint64_t rows = oracle_rows(tensor, (uint64_t)oracle_capacity(group, tensor->space));
    const uint64_t segments = oracle_num_segments(&group->spaces[tensor->space]);
    return (segments - 1) * oracle_stride(group, t) + rows * oracle_row_stride(group, t);
}

/* The rows of a segment, with the gap behind the last one or without. */
static uint64_t reach(oracle_random *random, const oracle_group *group, uint32_t t, uint64_t rows)
{
    const uint64_t gap = oracle_row_stride(group, t) - group->tensors[t].row_bytes;
    const uint64_t all = rows * oracle_row_stride(group, t);
    return rows > 0 && oracle_random_one_in(random, 2) ? all - gap : all;
}

/* Each tensor behind the one before. */
static uint64_t place_apart(oracle_random *random, shape_theme theme, bool in_group,
                            oracle_group *group)
{
    uint64_t end = 0;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        const pst_tensor *tensor = &group->tensors[t];
        const bool is_apart = theme == SHAPE_PITCH || oracle_random_one_in(random, 4);
        const uint64_t rows = oracle_rows(tensor, (uint64_t)oracle_capacity(group, tensor->space));
        set_row_stride(in_group, group, t,
                       is_apart ? choose_pitch(random, tensor->row_bytes, rows_of(group, t)) : 0);
        set_segment_stride(in_group, group, t, 0);
        if (!in_group && tensor->row_stride && !is_apart && oracle_random_one_in(random, 2))
            group->row_strides[t] = tensor->row_bytes; /* packed after all */
        if (oracle_random_one_in(random, 2) || (!in_group && tensor->segment_stride))
            set_segment_stride(in_group, group, t,
                               reach(random, group, t, rows) + oracle_random_below(random, 48));
        group->at[t] = choose_offset(random, theme, end);
        end = group->at[t] + extent(group, t);
    }
    return end;
}

/* All tensors are views of one buffer: row r of each lies in its row r. */
static uint64_t place_fused(oracle_random *random, shape_theme theme, bool in_group,
                            oracle_group *group)
{
    const uint64_t base = choose_offset(random, theme, 0);
    uint64_t end = base;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        group->at[t] = end;
        end += group->tensors[t].row_bytes;
        if (oracle_random_one_in(random, 3))
            end = choose_offset(random, theme, end);
    }
    const uint64_t pitch = end - base + oracle_random_below(random, 3);
    const uint64_t rows = (uint64_t)oracle_capacity(group, 0);
    const uint64_t gap = oracle_random_below(random, 20);
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        set_row_stride(in_group, group, t, pitch);
        set_segment_stride(in_group, group, t, rows * pitch + gap);
        if (group->at[t] + extent(group, t) > end)
            end = group->at[t] + extent(group, t);
    }
    return end;
}

static bool is_fusible(const oracle_group *group)
{
    bool fusible = group->num_spaces == 1;
    for (uint32_t t = 0; t < group->num_tensors; t++)
        fusible &= group->tensors[t].num == group->tensors[t].den;
    return fusible;
}

static size_t place(oracle_random *random, shape_theme theme, bool in_group, oracle_group *group)
{
    const bool fused = is_fusible(group) &&
                       (theme == SHAPE_FUSED ||
                        (group->num_tensors > 1 && !in_group && oracle_random_one_in(random, 6)));
    const uint64_t end = fused ? place_fused(random, theme, in_group, group)
                               : place_apart(random, theme, in_group, group);
    return (size_t)end + 64;
}

size_t shape_place(oracle_random *random, shape_theme theme, shape_room room, oracle_group *group)
{
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        const uint64_t rows = (uint64_t)group->spaces[i].capacity;
        group->capacities[i] = 0;
        if (room == SHAPE_LESS_ROOM && oracle_random_one_in(random, 2))
            group->capacities[i] = (int64_t)oracle_random_in(random, 1, rows);
        if (room == SHAPE_MORE_ROOM && oracle_random_one_in(random, 2))
            group->capacities[i] = (int64_t)oracle_random_in(random, rows, rows + rows / 2);
    }
    return place(random, theme, false, group);
}

/* ---- groups ---- */

static uint32_t choose_num_tensors(oracle_random *random, shape_theme theme)
{
    if (theme == SHAPE_ONE_TENSOR)
        return 1;
    if (theme == SHAPE_64_TENSORS)
        return oracle_random_one_in(random, 4) ? 63 : PST_MAX_TENSORS;
    if (theme == SHAPE_8_SPACES)
        return (uint32_t)oracle_random_in(random, PST_MAX_SPACES, 20);
    if (theme == SHAPE_1024_SEGMENTS || theme == SHAPE_LONG_ROWS)
        return (uint32_t)oracle_random_in(random, 1, 3);
    return (uint32_t)oracle_random_in(random, theme == SHAPE_FUSED ? 2 : 1, 8);
}

void shape_make(oracle_random *random, shape_theme theme, uint64_t bytes, shape *made)
{
    oracle_group *group = &made->group;
    memset(made, 0, sizeof(*made));
    group->num_tensors = choose_num_tensors(random, theme);
    if (theme == SHAPE_8_SPACES)
        group->num_spaces = PST_MAX_SPACES;
    else if (theme == SHAPE_FUSED)
        group->num_spaces = 1;
    else
        group->num_spaces =
            (uint32_t)oracle_random_in(random, 1, min_of(group->num_tensors, PST_MAX_SPACES));
    const uint64_t share = bytes / group->num_tensors + 1;
    for (uint32_t i = 0; i < group->num_spaces; i++)
        make_space(random, theme, share, &group->spaces[i]);
    for (uint32_t t = 0; t < group->num_tensors; t++)
        make_tensor(random, theme, share, group, t);
    made->tail_is_zero = oracle_random_one_in(random, 2);
    made->arena_bytes = place(random, theme, true, group);
}

/* Another way to count the same rows. */
static void recount(oracle_random *random, pst_row_space *space)
{
    if (space->kind == PST_ROWS_SUM && oracle_random_one_in(random, 3))
        space->kind = PST_ROWS_PREFIX;
    else if (space->kind == PST_ROWS_PREFIX && oracle_random_one_in(random, 4))
        space->kind = PST_ROWS_SUM;
    if (space->kind == PST_ROWS_SUM)
        space->num_segments = (uint32_t)oracle_random_in(random, 1, 40);
    if (space->kind == PST_ROWS_PREFIX)
        space->num_segments = (uint32_t)oracle_random_below(random, 2);
    space->count_type = choose_type(random, SHAPE_ANY, space->kind);
}

void shape_like(oracle_random *random, const shape *source, bool may_be_smaller, shape *made)
{
    *made = *source;
    oracle_group *group = &made->group;
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        pst_row_space *space = &group->spaces[i];
        const uint64_t capacity = (uint64_t)space->capacity;
        if (oracle_random_one_in(random, 2))
            space->capacity = (int64_t)oracle_random_in(random, capacity, capacity + capacity / 2);
        if (may_be_smaller && oracle_random_one_in(random, 3))
            space->capacity = (int64_t)oracle_random_in(random, 1, capacity);
        recount(random, space);
    }
    for (uint32_t t = 0; t < group->num_tensors; t++)
        if (group->tensors[t].den && oracle_random_one_in(random, 4)) { /* the same ratio */
            group->tensors[t].num *= 2;
            group->tensors[t].den *= 2;
        }
    made->tail_is_zero = oracle_random_one_in(random, 2);
    made->without_counts = oracle_random_one_in(random, 2);
    made->arena_bytes =
        place(random, oracle_random_one_in(random, 3) ? SHAPE_UNALIGNED : SHAPE_ANY, true, group);
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

static int64_t bad_count(oracle_random *random, counts_kind kind, const pst_row_space *space,
                         int64_t capacity)
{
    const bool is_int32 = space->count_type == PST_COUNT_INT32;
    if (kind == COUNTS_ONE_OVER)
        return capacity + 1;
    if (kind == COUNTS_NEGATIVE)
        return -1 - (int64_t)oracle_random_below(random, 3);
    if (oracle_random_one_in(random, 2))
        return is_int32 ? INT32_MIN : INT64_MIN;
    return is_int32 ? INT32_MAX : INT64_MAX;
}

/* Numbers that add up to `sum`. */
static void split(oracle_random *random, int64_t sum, uint32_t count, int64_t *values)
{
    memset(values, 0, count * sizeof(*values));
    for (uint32_t i = 0; sum > 0 && i < 2 * count; i++) {
        const int64_t part = (int64_t)oracle_random_in(random, 0, (uint64_t)sum);
        values[oracle_random_below(random, count)] += part;
        sum -= part;
    }
    values[oracle_random_below(random, count)] += sum;
}

void shape_counts(oracle_random *random, const oracle_group *group, counts_kind kind,
                  int64_t *values)
{
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        const pst_row_space *space = &group->spaces[i];
        const int64_t capacity = oracle_capacity(group, i);
        const uint32_t inputs = oracle_num_inputs(space);
        const bool spoil =
            kind >= COUNTS_GOOD && (i + 1 == group->num_spaces || oracle_random_one_in(random, 3));
        const uint32_t one = (uint32_t)oracle_random_below(random, inputs);
        if (space->kind == PST_ROWS_SUM) {
            const bool over = spoil && kind == COUNTS_ONE_OVER;
            split(random,
                  over                 ? capacity + 1
                  : kind == COUNTS_HOT ? capacity
                                       : good_count(random, kind, capacity),
                  inputs, values);
        } else {
            for (uint32_t s = 0; s < inputs; s++)
                values[s] = good_count(random, kind, capacity);
            if (kind == COUNTS_HOT)
                values[one] = capacity;
        }
        if (spoil && (space->kind != PST_ROWS_SUM || kind != COUNTS_ONE_OVER))
            values[one] = bad_count(random, kind, space, capacity);
        if (spoil && kind != COUNTS_ONE_OVER && oracle_random_one_in(random, 2))
            values[oracle_random_below(random, inputs)] = bad_count(random, kind, space, capacity);
        values += inputs;
    }
}
