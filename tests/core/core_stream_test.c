/* kernels/core/stream.h at the edges of its numbers, and against the oracle; no payload. */
#include "tests/harness.h"

#include "kernels/core/stream.h"
#include "tests/oracle/oracle.h"

#define TWO_31 ((uint64_t)1 << 31)
#define TWO_32 ((uint64_t)1 << 32)

static const uint64_t edges[] = {0,          1,      2,          TWO_31 - 1, TWO_31,     TWO_31 + 1,
                                 TWO_32 - 1, TWO_32, TWO_32 + 1, TWO_32 * 3, TWO_32 << 8};
enum { EDGES = sizeof(edges) / sizeof(edges[0]) };

PST_TEST(CoreStream, RowsOfRatiosRound)
{
    static const uint32_t ratios[][2] = {{1, 1},         {1, 32},    {1, 128},
                                         {3, 7},         {127, 128}, {UINT32_MAX - 1, UINT32_MAX},
                                         {1, UINT32_MAX}};
    for (int r = 0; r < 7; r++)
        for (int e = 0; e < EDGES; e++) {
            const psti_tensor tensor = {.num = ratios[r][0], .den = ratios[r][1], .row_bytes = 3};
            const pst_tensor naive = {.num = ratios[r][0], .den = ratios[r][1]};
            if (edges[e] > UINT64_MAX / tensor.num - 1)
                continue; /* group creation refuses such capacities */
            const uint64_t rows = oracle_rows(&naive, edges[e]);
            CHECK_EQ(psti_tensor_rows(&tensor, edges[e]), rows);
            CHECK_EQ(psti_tensor_bytes(&tensor, edges[e]), rows * 3);
            psti_tensor down = tensor;
            down.rounds_down = 1;
            const uint64_t whole = edges[e] * tensor.num / tensor.den;
            CHECK_EQ(psti_tensor_rows(&down, edges[e]), whole);
            CHECK_EQ(rows - whole, edges[e] * tensor.num % tensor.den != 0);
        }
}

/* Around every multiple of the group size: 31 rows have one scale here and none in Megatron. */
PST_TEST(CoreStream, CeilAndFloorDifferBetweenMultiplesOnly)
{
    psti_tensor tensor = {.num = 1, .den = 32, .row_bytes = 1};
    for (uint64_t rows = 0; rows <= 4096; rows++) {
        tensor.rounds_down = 0;
        CHECK_EQ(psti_tensor_rows(&tensor, rows), rows / 32 + (rows % 32 != 0));
        tensor.rounds_down = 1;
        CHECK_EQ(psti_tensor_rows(&tensor, rows), rows / 32);
    }
    tensor.num = tensor.den; /* exact, whatever the rounding says */
    CHECK_EQ(psti_tensor_rows(&tensor, UINT64_MAX), UINT64_MAX);
}

PST_TEST(CoreStream, RoundingsAtTheEdges)
{
    for (int e = 0; e < EDGES; e++) {
        CHECK_EQ(psti_round_vector(edges[e]), (edges[e] + 15) / 16 * 16);
        CHECK_EQ(psti_tiles_of(edges[e]), (edges[e] + 16383) / 16384);
        for (uint32_t shift = 14; shift <= 22; shift++) {
            const uint64_t tiles_per_page = (uint64_t)1 << (shift - 14);
            CHECK_EQ(psti_pages_of_tiles(edges[e], shift),
                     edges[e] / tiles_per_page + (edges[e] % tiles_per_page != 0));
        }
    }
}

PST_TEST(CoreStream, PagesCountTilesNotBytes)
{
    CHECK_EQ(psti_pages_of_tiles(0, 14), 0);
    CHECK_EQ(psti_pages_of_tiles(1, 22), 1);
    CHECK_EQ(psti_pages_of_tiles(256, 22), 1);
    CHECK_EQ(psti_pages_of_tiles(257, 22), 2);
    CHECK_EQ(psti_pages_of_tiles(TWO_32, 14), TWO_32);
    CHECK_EQ(psti_pages_of_tiles(TWO_32 + 1, 15), TWO_31 + 1);
}

PST_TEST(CoreStream, SegmentsLieAStrideApart)
{
    const psti_tensor tensor = {.base = (unsigned char *)(uintptr_t)48, .segment_stride = TWO_32};
    CHECK_EQ((uintptr_t)psti_segment_base(&tensor, 0), 48);
    CHECK_EQ((uintptr_t)psti_segment_base(&tensor, 1023), 48 + 1023 * TWO_32);
}

PST_TEST(CoreStream, RowsLieAStrideApart)
{
    const psti_tensor tensor = {.base = (unsigned char *)(uintptr_t)48,
                                .row_bytes = 7,
                                .row_stride = TWO_32 + 3,
                                .segment_stride = TWO_32 << 12};
    CHECK(!psti_is_packed(&tensor));
    CHECK_EQ((uintptr_t)psti_row_address(&tensor, 0, 0), 48);
    CHECK_EQ((uintptr_t)psti_row_address(&tensor, 5, 9),
             48 + 5 * (TWO_32 << 12) + 9 * (TWO_32 + 3));
    const psti_tensor packed = {.row_bytes = 7, .row_stride = 7};
    CHECK(psti_is_packed(&packed));
}

/* Every length of a row that a tile can hold, at all places where a row ends near by. */
PST_TEST(CoreStream, RowsAreFoundByAProduct)
{
    for (uint32_t per_row = 1; per_row <= PSTI_TILE_BYTES; per_row++) {
        const uint32_t inverse = psti_row_inverse(per_row);
        const uint32_t end = per_row - 1 + PSTI_TILE_BYTES; /* of skip + word */
        const uint32_t step = per_row < 64 ? per_row : per_row * (1 + end / per_row / 64);
        for (uint32_t q = step; q <= end; q += step) {
            CHECK_EQ(psti_row_of(q - 1, inverse), (q - 1) / per_row);
            CHECK_EQ(psti_row_of(q, inverse), q / per_row);
        }
        CHECK_EQ(psti_row_of(0, inverse), 0);
        CHECK_EQ(psti_row_of(end, inverse), end / per_row);
    }
}

static uint64_t address_of(const void *counts)
{
    return (uint64_t)(uintptr_t)counts;
}

PST_TEST(CoreStream, CountsKeepTheirSign)
{
    static const int32_t narrow[] = {0, -1, INT32_MIN, INT32_MAX};
    static const int64_t wide[] = {-1, INT64_MIN, INT64_MAX, (int64_t)TWO_32, (int64_t)TWO_31};
    const psti_space narrow_space = {
        .counts = address_of(narrow), .num_segments = 4, .count_kind = PSTI_COUNT_INT32};
    const psti_space wide_space = {
        .counts = address_of(wide), .num_segments = 5, .count_kind = PSTI_COUNT_INT64};
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(psti_user_count(&narrow_space, i), narrow[i]);
    for (uint32_t i = 0; i < 5; i++)
        CHECK_EQ(psti_user_count(&wide_space, i), wide[i]);
}

PST_TEST(CoreStream, ACountMayBeTheValueItself)
{
    psti_space space = {.num_segments = 1, .count_kind = PSTI_COUNT_VALUE};
    CHECK_EQ(psti_space_count(&space, 0), 0);
    space.counts = TWO_32 + 7;
    CHECK_EQ(psti_space_count(&space, 0), (int64_t)TWO_32 + 7);
}

static int64_t sum_of(const int64_t *counts, uint32_t num, int64_t capacity)
{
    const psti_space space = {.counts = address_of(counts),
                              .capacity = capacity,
                              .num_segments = 1,
                              .count_kind = PSTI_COUNT_INT64,
                              .num_summed = num};
    return psti_space_count(&space, 0);
}

PST_TEST(CoreStream, SumsUpToTheCapacity)
{
    static const int64_t counts[] = {3, 0, 4, 1};
    CHECK_EQ(sum_of(counts, 1, 100), 3);
    CHECK_EQ(sum_of(counts, 4, 100), 8);
    CHECK_EQ(sum_of(counts, 4, 8), 8);
    static const int32_t narrow[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    const psti_space space = {.counts = address_of(narrow),
                              .capacity = INT64_MAX,
                              .num_segments = 1,
                              .count_kind = PSTI_COUNT_INT32,
                              .num_summed = 3};
    CHECK_EQ(psti_space_count(&space, 0), 3 * (int64_t)INT32_MAX);
}

PST_TEST(CoreStream, SumsStopAtTheFirstAboveTheCapacity)
{
    static const int64_t counts[] = {3, 0, 4, 100, 1000};
    CHECK_EQ(sum_of(counts, 5, 6), 7); /* 3 + 0 + 4, not more */
    CHECK_EQ(sum_of(counts, 5, 7), 107);
    CHECK_EQ(sum_of(counts, 5, 2), 3);
}

PST_TEST(CoreStream, OfASumTheFirstNegativeCountIsNamed)
{
    static const int64_t counts[] = {3, 50, -2, -7, 4};
    CHECK_EQ(sum_of(counts, 5, 100), -2);
    CHECK_EQ(sum_of(counts, 5, 10), -2); /* although 53 is above the capacity before */
    CHECK_EQ(sum_of(counts, 2, 10), 53);
    static const int64_t lowest[] = {INT64_MIN};
    CHECK_EQ(sum_of(lowest, 1, 10), INT64_MIN);
}

PST_TEST(CoreStream, SumsThatOverflowNeverFit)
{
    static const int64_t large[] = {INT64_MAX, INT64_MAX, INT64_MAX, 2};
    for (uint32_t num = 2; num <= 4; num++) {
        CHECK(!psti_count_fits(sum_of(large, num, 1000), 1000));
        CHECK(!psti_count_fits(sum_of(large, num, INT64_MAX), INT64_MAX));
        CHECK(!psti_count_fits(sum_of(large, num, INT64_MAX - 1), INT64_MAX - 1));
    }
    CHECK_EQ(sum_of(large, 1, INT64_MAX), INT64_MAX);
    static const int64_t beyond[] = {10, INT64_MAX};
    CHECK_EQ((uint64_t)sum_of(beyond, 2, 1000), (uint64_t)INT64_MAX + 10);
    CHECK(!psti_count_fits(sum_of(beyond, 2, 1000), 1000));
}

PST_TEST(CoreStream, CountsFitFromZeroToTheCapacity)
{
    for (int e = 1; e < EDGES; e++) {
        const int64_t capacity = (int64_t)edges[e];
        CHECK(psti_count_fits(0, capacity));
        CHECK(psti_count_fits(capacity, capacity));
        CHECK(!psti_count_fits(capacity + 1, capacity));
        CHECK(!psti_count_fits(-1, capacity));
        CHECK(!psti_count_fits(INT64_MIN, capacity));
        CHECK(!psti_count_fits(INT64_MAX, capacity));
        CHECK(!psti_count_fits(-capacity, capacity));
    }
}

PST_TEST(CoreStream, DirtyRowsEndAtTheCapacity)
{
    CHECK_EQ(psti_dirty_rows(UINT64_MAX, 5), 5);
    CHECK_EQ(psti_dirty_rows(0, 5), 0);
    CHECK_EQ(psti_dirty_rows(6, 5), 5);
    CHECK_EQ(psti_dirty_rows(TWO_32 + 1, (int64_t)TWO_32), TWO_32);
    CHECK_EQ(psti_dirty_rows(1, (int64_t)TWO_32), 1);
}
