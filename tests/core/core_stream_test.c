/* kernels/core/stream.h at the edges of its numbers, and against the oracle; no payload. */
#include "tests/harness.h"

#include "kernels/core/stream.h"
#include "tests/oracle/oracle.h"

#define TWO_31 ((uint64_t)1 << 31)
#define TWO_32 ((uint64_t)1 << 32)

static const uint64_t edges[] = {0,          1,      2,          TWO_31 - 1, TWO_31,     TWO_31 + 1,
                                 TWO_32 - 1, TWO_32, TWO_32 + 1, TWO_32 * 3, TWO_32 << 8};
enum { EDGES = sizeof(edges) / sizeof(edges[0]) };

PST_TEST(CoreStream, RowsOfRatiosRoundUp)
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
        }
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

PST_TEST(CoreStream, CountsKeepTheirSign)
{
    static const int32_t narrow[] = {0, -1, INT32_MIN, INT32_MAX};
    static const int64_t wide[] = {-1, INT64_MIN, INT64_MAX, (int64_t)TWO_32, (int64_t)TWO_31};
    const psti_space narrow_space = {.counts = narrow, .num_segments = 4};
    const psti_space wide_space = {.counts = wide, .num_segments = 5, .is_int64 = 1};
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(psti_user_count(&narrow_space, i), narrow[i]);
    for (uint32_t i = 0; i < 5; i++)
        CHECK_EQ(psti_user_count(&wide_space, i), wide[i]);
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
