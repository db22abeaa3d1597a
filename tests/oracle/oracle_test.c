/* The oracle itself, against numbers worked out by hand. */
#include "tests/harness.h"

#include <stdlib.h>

#include "tests/oracle/oracle.h"

static oracle_group prefix_group(uint32_t num_tensors, int64_t capacity, uint64_t row_bytes)
{
    oracle_group group = {.num_spaces = 1, .num_tensors = num_tensors};
    group.spaces[0] = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = capacity};
    for (uint32_t t = 0; t < num_tensors; t++)
        group.tensors[t].row_bytes = row_bytes;
    return group;
}

static void check_usage(const oracle_group *group, const int64_t *counts, uint64_t page_bytes,
                        uint64_t payload, uint64_t stream, uint64_t pages)
{
    pst_group_usage usage;
    oracle_measure(group, counts, page_bytes, &usage);
    CHECK_EQ(usage.payload_bytes, payload);
    CHECK_EQ(usage.stream_bytes, stream);
    CHECK_EQ(usage.pages, pages);
}

PST_TEST(Oracle, TensorsStartAtTiles)
{
    const oracle_group group = prefix_group(3, 1000, 100);
    const int64_t counts[] = {0, 1, 163, 164, 1000};
    check_usage(&group, &counts[0], 16384, 0, 0, 0);
    check_usage(&group, &counts[1], 16384, 300, 3 * 16384, 3);
    check_usage(&group, &counts[1], 65536, 300, 3 * 16384, 1);
    check_usage(&group, &counts[2], 16384, 3 * 16300, 3 * 16384, 3);
    check_usage(&group, &counts[3], 16384, 3 * 16400, 6 * 16384, 6);
    check_usage(&group, &counts[3], 65536, 3 * 16400, 6 * 16384, 2);
    check_usage(&group, NULL, 262144, 300000, 3 * 7 * 16384, 2);
}

PST_TEST(Oracle, SegmentsStartAtSixteen)
{
    oracle_group group = {.num_spaces = 1, .num_tensors = 1};
    group.spaces[0] =
        (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 9, .num_segments = 1024};
    group.tensors[0].row_bytes = 1;
    int64_t counts[1024];
    for (int i = 0; i < 1024; i++)
        counts[i] = 1;
    check_usage(&group, counts, 16384, 1024, 16384, 1); /* 1024 times 16 bytes */
    counts[1023] = 0;
    check_usage(&group, counts, 16384, 1023, 16384, 1);
    group.tensors[0].row_bytes = 17;
    check_usage(&group, counts, 16384, 1023 * 17, 2 * 16384, 2);
}

PST_TEST(Oracle, RatiosRoundPerSegment)
{
    oracle_group group = {.num_spaces = 1, .num_tensors = 1};
    group.spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 64, .num_segments = 3};
    group.tensors[0] = (pst_tensor){.row_bytes = 10, .num = 1, .den = 32};
    const int64_t counts[] = {1, 32, 33};
    check_usage(&group, counts, 16384, 40, 16384, 1);
    CHECK_EQ(oracle_rows(&group.tensors[0], 0), 0);
    group.tensors[0].rounding = PST_ROUND_DOWN;
    check_usage(&group, counts, 16384, 20, 16384, 1);
    CHECK_EQ(oracle_rows(&group.tensors[0], 31), 0);
    CHECK_EQ(oracle_rows(&group.tensors[0], 63), 1);
    CHECK_EQ(oracle_segment_bytes(&group, 0), 20);
    CHECK_EQ(oracle_stride(&group, 0), 20);
    group.tensors[0].segment_stride = 99;
    CHECK_EQ(oracle_stride(&group, 0), 99);
}

PST_TEST(Oracle, MeasuresBeyond32Bits)
{
    const int64_t rows = ((int64_t)1 << 40) + 1;
    const oracle_group group = prefix_group(1, rows, 4096);
    const uint64_t bytes = (uint64_t)rows * 4096;
    check_usage(&group, NULL, 16384, bytes, bytes - 4096 + 16384, ((uint64_t)1 << 38) + 1);
}

typedef struct visited {
    uint64_t offsets[64];
    uint64_t positions[64];
    uint32_t count;
} visited;

static void note(void *context, uint32_t tensor, uint64_t offset, uint64_t position)
{
    visited *self = context;
    (void)tensor;
    self->offsets[self->count] = offset;
    self->positions[self->count++] = position;
}

PST_TEST(Oracle, WalksBytesInOrder)
{
    oracle_group group = {.num_spaces = 1, .num_tensors = 2, .at = {3, 100}};
    group.spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 4, .num_segments = 2};
    group.tensors[0] = (pst_tensor){.row_bytes = 5};
    group.tensors[1] = (pst_tensor){.row_bytes = 1, .segment_stride = 8};
    const int64_t counts[] = {1, 2};
    visited seen = {.count = 0};
    CHECK_EQ(oracle_each_byte(&group, counts, note, &seen), 16384 + 16 + 2);
    CHECK_EQ(seen.count, 5 + 10 + 1 + 2);
    CHECK_EQ(seen.offsets[0], 3);
    CHECK_EQ(seen.positions[4], 4);
    CHECK_EQ(seen.offsets[5], 3 + 20); /* the second segment, packed */
    CHECK_EQ(seen.positions[5], 16);
    CHECK_EQ(seen.offsets[15], 100);
    CHECK_EQ(seen.positions[15], 16384);
    CHECK_EQ(seen.offsets[17], 109);
    CHECK_EQ(seen.positions[17], 16384 + 17);
}

/* The same bytes of the stream, from rows further apart. */
PST_TEST(Oracle, StridesMoveRowsInMemoryOnly)
{
    oracle_group group = {.num_spaces = 1, .num_tensors = 2, .at = {3, ORACLE_NOWHERE}};
    group.spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 4, .num_segments = 2};
    group.tensors[0] = (pst_tensor){.row_bytes = 5, .row_stride = 7};
    group.tensors[1] = (pst_tensor){.row_bytes = 1};
    const int64_t counts[] = {2, 1};
    visited seen = {.count = 0};
    CHECK_EQ(oracle_each_byte(&group, counts, note, &seen), 16384 + 16 + 1);
    CHECK_EQ(seen.positions[9], 9);
    CHECK_EQ(seen.offsets[5], 3 + 7);
    CHECK_EQ(seen.offsets[10], 3 + 28); /* packed by the row stride */
    CHECK_EQ(seen.positions[10], 16);
    CHECK(seen.offsets[15] == ORACLE_NOWHERE);
    group.row_strides[0] = 100;
    group.capacities[0] = 3;
    CHECK_EQ(oracle_row_stride(&group, 0), 100);
    CHECK_EQ(oracle_stride(&group, 0), 300);
    CHECK_EQ(oracle_byte_at(&group, 0, 1, 6), 3 + 300 + 100 + 1);
    group.segment_strides[0] = 1000;
    CHECK_EQ(oracle_byte_at(&group, 0, 1, 4), 3 + 1000 + 4);
}

PST_TEST(Oracle, SumsAreOneCount)
{
    oracle_group group = {.num_spaces = 2, .num_tensors = 1};
    group.spaces[0] = (pst_row_space){.kind = PST_ROWS_SUM, .capacity = 10, .num_segments = 3};
    group.spaces[1] = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = 4};
    static const int64_t inputs[][4] = {
        {3, 0, 7, 4}, {5, 6, -2, 1}, {5, 6, 7, 1}, {0, INT64_MAX, INT64_MAX, 0}, {0, 0, 0, 5}};
    static const int64_t misfits[] = {0, -2, 11, INT64_MAX, 5};
    int64_t counts[2], misfit = 0;
    CHECK_EQ(oracle_num_counts(&group), 2);
    CHECK_EQ(oracle_all_inputs(&group), 4);
    CHECK(oracle_read_counts(&group, inputs[0], counts, &misfit));
    CHECK_EQ(counts[0], 10);
    CHECK_EQ(counts[1], 4);
    for (int i = 1; i < 5; i++) {
        CHECK(!oracle_read_counts(&group, inputs[i], counts, &misfit));
        CHECK_EQ(misfit, misfits[i]);
    }
    group.capacities[0] = 9;
    CHECK(!oracle_read_counts(&group, inputs[0], counts, &misfit));
    CHECK_EQ(misfit, 10);
}

PST_TEST(Oracle, FormsAreThoseOfTheByteStream)
{
    oracle_group a = prefix_group(2, 5, 100), b = a;
    CHECK(oracle_same_form(&a, &b));
    b.spaces[0] = (pst_row_space){.kind = PST_ROWS_SUM, .capacity = 7, .num_segments = 8};
    b.tensors[1].row_stride = 200;
    b.capacities[0] = 1;
    CHECK(oracle_same_form(&a, &b));
    a.tensors[0].num = 1;
    a.tensors[0].den = 32;
    CHECK(!oracle_same_form(&a, &b));
    b.tensors[0].num = 2;
    b.tensors[0].den = 64;
    CHECK(oracle_same_form(&a, &b));
    b.tensors[0].rounding = PST_ROUND_DOWN;
    CHECK(!oracle_same_form(&a, &b));
    b = a;
    b.spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 5, .num_segments = 2};
    CHECK(!oracle_same_form(&a, &b));
    b = a;
    b.tensors[1].row_bytes = 99;
    CHECK(!oracle_same_form(&a, &b));
    b.num_tensors = 1;
    CHECK(!oracle_same_form(&a, &b));
}

/* One tensor in memory of its own. */
typedef struct little {
    oracle_group group;
    unsigned char memory[4 * 16384];
    uint64_t dirty;
} little;

static little *make_little(void)
{
    little *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->group = prefix_group(1, 4, 16384);
    self->group.image = self->memory;
    self->group.dirty = &self->dirty;
    self->group.names_dirty = true;
    return self;
}

PST_TEST(Oracle, IdsComeAndGoInOrder)
{
    oracle_pool *pool = oracle_pool_create(16384, 5, 2, 3);
    little *group = make_little();
    const int64_t rows = 3;
    oracle_stash(pool, 0, &group->group, &rows);
    oracle_stash(pool, 1, &group->group, &rows);
    CHECK_EQ(pool->tickets[1].ids[1], 4);
    CHECK_EQ(pool->tickets[1].ids[2], 0x80000000u); /* spilled */
    CHECK_EQ(pool->status.spilled_pages, 1);
    oracle_release(pool, 1);
    oracle_release(pool, 0);
    const uint32_t expected[] = {3, 4, 0, 1, 2};
    for (int i = 0; i < 5; i++)
        CHECK_EQ(pool->free_ids[0][i], expected[i]);
    CHECK_EQ(pool->free_ids[1][0], 0x80000001u);
    CHECK_EQ(pool->status.flags, 0);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, FailsAsAWhole)
{
    oracle_pool *pool = oracle_pool_create(16384, 2, 0, 2);
    little *group = make_little();
    pst_pool_status published;
    const int64_t three = 3, five = 5;
    oracle_stash(pool, 0, &group->group, &three);
    CHECK_EQ(pool->status.fault, PST_FAULT_EXHAUSTED);
    CHECK_EQ(pool->num_free[0], 2);
    oracle_stash(pool, 1, &group->group, &five);
    CHECK_EQ(pool->status.flags, 1u << PST_FAULT_EXHAUSTED | 1u << PST_FAULT_COUNT);
    oracle_step(pool, &published);
    CHECK_EQ(published.demand_high_water, 3);
    CHECK_EQ(published.step_valid, 0);
    CHECK_EQ(pool->status.step_valid, 1);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, QuantilesOfDemands)
{
    oracle_pool *pool = oracle_pool_create(16384, 1, 0, 1);
    CHECK_EQ(oracle_demand_ceiling(15), 15);
    CHECK_EQ(oracle_demand_ceiling(31), 31);
    CHECK_EQ(oracle_demand_ceiling(32), 33);
    CHECK_EQ(oracle_demand_ceiling(100), 103);
    CHECK_EQ(oracle_demand_ceiling(UINT32_MAX), UINT32_MAX);
    CHECK(oracle_demand_ceiling(UINT64_C(1) << 32) == UINT64_MAX);
    oracle_demand_add(pool, 100);
    CHECK_EQ(oracle_demand_quantile(pool, 500), 100); /* 103 was never wanted */
    oracle_demand_add(pool, 1000);
    CHECK_EQ(oracle_demand_quantile(pool, 500), 103);
    CHECK_EQ(oracle_demand_quantile(pool, 501), 1000);
    oracle_demand_add(pool, 7);
    CHECK_EQ(oracle_demand_quantile(pool, 333), 7);
    CHECK_EQ(oracle_demand_quantile(pool, 500), 103);
    CHECK_EQ(oracle_demand_quantile(pool, 999), 1000);
    oracle_reset(pool, PST_RESET_PAGES);
    CHECK_EQ(pool->num_demands, 3);
    oracle_reset(pool, PST_RESET_STATISTICS);
    CHECK_EQ(pool->num_demands, 0);
    oracle_pool_destroy(pool);
}

PST_TEST(Oracle, BringsBytesBackAndClearsTails)
{
    oracle_pool *pool = oracle_pool_create(16384, 4, 0, 1);
    little *source = make_little(), *destination = make_little();
    const int64_t rows = 2;
    memset(source->memory, 1, sizeof(source->memory));
    memset(destination->memory, 9, sizeof(destination->memory));
    destination->dirty = 3;
    oracle_stash(pool, 0, &source->group, &rows);
    memset(source->memory, 2, sizeof(source->memory));
    oracle_restore(pool, 0, &destination->group, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    CHECK_EQ(destination->memory[2 * 16384 - 1], 1);
    CHECK_EQ(destination->memory[2 * 16384], 0);
    CHECK_EQ(destination->memory[3 * 16384], 9);
    CHECK_EQ(destination->dirty, 2);
    CHECK_EQ(pool->num_free[0], 2);
    oracle_restore(pool, 0, &destination->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    oracle_restore(pool, 0, &destination->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_EQ(pool->status.flags, 1u << PST_FAULT_EMPTY);
    oracle_pool_destroy(pool);
    free(source);
    free(destination);
}

/* Rows of 16384 bytes whose first byte is not `value`. */
static int rows_unlike(const little *self, int from, int to, int value)
{
    int found = 0;
    for (int row = from; row < to; row++)
        found += self->memory[row * 16384] != value;
    return found;
}

PST_TEST(Oracle, ClearsTheDestinationOfWhatFailed)
{
    oracle_pool *pool = oracle_pool_create(16384, 2, 0, 1);
    little *group = make_little();
    const int64_t rows = 3;
    memset(group->memory, 7, sizeof(group->memory));
    oracle_stash(pool, 0, &group->group, &rows); /* fails */
    oracle_restore(pool, 0, &group->group, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    CHECK_EQ(rows_unlike(group, 0, 4, 7), 0);
    group->dirty = 2;
    group->group.capacities[0] = 3;
    oracle_restore_as(pool, 0, &group->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED,
                      PST_FAILED_ZERO);
    CHECK_EQ(rows_unlike(group, 0, 3, 0), 0);
    CHECK_EQ(rows_unlike(group, 3, 4, 7), 0);
    CHECK_EQ(group->dirty, 0);
    CHECK_EQ(pool->tickets[0].state, ORACLE_EMPTY);
    oracle_give(pool, 0);
    CHECK_EQ(pool->status.num_faults, 3);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, ClearsAllTailsWithoutDirtyWords)
{
    oracle_pool *pool = oracle_pool_create(16384, 4, 0, 1);
    little *group = make_little();
    const int64_t rows = 1;
    memset(group->memory, 7, sizeof(group->memory));
    group->group.names_dirty = false;
    oracle_stash(pool, 0, &group->group, &rows);
    oracle_restore(pool, 0, &group->group, PST_RESTORE_KEEP, PST_TAIL_ZERO_ALL);
    CHECK_EQ(rows_unlike(group, 0, 1, 7) + rows_unlike(group, 1, 4, 0), 0);
    CHECK_EQ(group->dirty, 0);
    group->group.names_dirty = true;
    oracle_restore(pool, 0, &group->group, PST_RESTORE_KEEP, PST_TAIL_ZERO_ALL);
    CHECK_EQ(group->dirty, 1);
    oracle_give(pool, 0);
    CHECK_EQ(pool->num_free[0], 4);
    CHECK_EQ(pool->status.num_faults, 0);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, LosesAStepAtItsFirstFailure)
{
    oracle_pool *pool = oracle_pool_create(16384, 4, 0, 3);
    little *group = make_little();
    pst_pool_status published;
    const int64_t three = 3, five = 5;
    pool->fails_fast = true;
    oracle_stash(pool, 0, &group->group, &three);
    oracle_stash(pool, 1, &group->group, &five);
    oracle_stash(pool, 2, &group->group, &three);
    CHECK_EQ(pool->status.flags, 1u << PST_FAULT_COUNT | 1u << PST_FAULT_LOST);
    CHECK_EQ(pool->num_free[0], 1);
    oracle_step(pool, &published);
    CHECK_EQ(published.demand_high_water, 6);
    oracle_release(pool, 0);
    oracle_stash(pool, 2, &group->group, &three);
    CHECK_EQ(pool->tickets[2].state, ORACLE_LIVE);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, RefusesAStaleGraphUntilTheStepEnds)
{
    oracle_pool *pool = oracle_pool_create(16384, 4, 2, 2);
    little *group = make_little();
    pst_pool_status published;
    const int64_t three = 3;
    oracle_stash(pool, 0, &group->group, &three);
    oracle_expect(pool, 5, 5);
    CHECK_EQ(pool->status.num_faults, 0);
    oracle_expect(pool, 6, 5);
    CHECK_EQ(pool->status.fault_wanted, 6);
    CHECK_EQ(pool->status.fault_free[0], 5);
    oracle_stash(pool, 1, &group->group, &three);
    oracle_restore(pool, 0, &group->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    oracle_migrate(pool, 0, false, 0);
    oracle_release(pool, 0);
    CHECK_EQ(pool->status.num_faults, 1);
    CHECK_EQ(pool->num_free[0] + pool->num_free[1], 3);
    oracle_step(pool, &published);
    CHECK_EQ(published.step_valid, 0);
    oracle_restore(pool, 0, &group->group, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_EQ(pool->num_free[0], 4);
    oracle_stash(pool, 0, &group->group, &three);
    oracle_expect(pool, 6, 5);
    oracle_give(pool, 0);
    CHECK_EQ(pool->num_free[0], 4);
    CHECK_EQ(pool->status.num_faults, 2);
    oracle_pool_destroy(pool);
    free(group);
}

PST_TEST(Oracle, RefusesAnotherForm)
{
    oracle_pool *pool = oracle_pool_create(16384, 4, 0, 1);
    little *group = make_little();
    oracle_group other = group->group;
    const int64_t rows = 4;
    other.tensors[0].row_bytes = 16383;
    oracle_stash(pool, 0, &group->group, &rows);
    oracle_restore(pool, 0, &other, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_EQ(pool->status.flags, 1u << PST_FAULT_FORM);
    CHECK_EQ(pool->tickets[0].state, ORACLE_LIVE);
    other = group->group;
    other.capacities[0] = 3;
    oracle_restore(pool, 0, &other, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    CHECK_EQ(pool->status.flags, 1u << PST_FAULT_FORM | 1u << PST_FAULT_DESTINATION);
    oracle_pool_destroy(pool);
    free(group);
}
