/* kernels/core/sketch.h: buckets of demands, and quantiles of many. */
#include "tests/harness.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kernels/core/sketch.h"
#include "tests/oracle/oracle.h"

/* ---- buckets ---- */

PST_TEST(CoreSketch, BucketsOfValues)
{
    static const struct {
        uint64_t value;
        uint32_t bucket;
        uint64_t upper;
    } known[] = {{0, 0, 0},
                 {1, 1, 1},
                 {15, 15, 15},
                 {16, 16, 16},
                 {17, 17, 17},
                 {31, 31, 31},
                 {32, 32, 33},
                 {33, 32, 33},
                 {34, 33, 35},
                 {63, 47, 63},
                 {64, 48, 67},
                 {UINT64_C(1) << 31, 448, 2281701375}, /* 17 * 2^27 - 1 */
                 {UINT32_MAX, 463, UINT32_MAX},
                 {UINT64_C(1) << 32, PSTI_SKETCH_BUCKETS - 1, UINT64_MAX},
                 {UINT64_C(1) << 40, PSTI_SKETCH_BUCKETS - 1, UINT64_MAX},
                 {UINT64_MAX, PSTI_SKETCH_BUCKETS - 1, UINT64_MAX}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        CHECK_EQ(psti_sketch_bucket(known[i].value), known[i].bucket);
        CHECK(psti_sketch_upper(known[i].bucket) == known[i].upper);
    }
}

/* Buckets in use lie side by side, none is wider than 1/16 of its values, and the oracle cuts the
 * same ones. */
PST_TEST(CoreSketch, BucketsCoverAllValuesOnce)
{
    const uint32_t end = psti_sketch_bucket(UINT32_MAX) + 1;
    uint64_t lower = 0;
    CHECK(end < PSTI_SKETCH_BUCKETS);
    for (uint32_t bucket = 0; bucket < end; bucket++) {
        const uint64_t upper = psti_sketch_upper(bucket);
        CHECK(upper >= lower && (upper - lower) * 16 <= lower);
        CHECK_EQ(psti_sketch_bucket(lower), bucket);
        CHECK_EQ(psti_sketch_bucket(upper), bucket);
        CHECK_EQ(oracle_demand_ceiling(lower), upper);
        CHECK_EQ(oracle_demand_ceiling(upper), upper);
        lower = upper + 1;
    }
    CHECK_EQ(lower, UINT64_C(1) << 32);
}

PST_TEST(CoreSketch, CountersDoNotBeginAgain)
{
    static uint32_t sketch[PSTI_SKETCH_BUCKETS];
    memset(sketch, 0, sizeof(sketch));
    sketch[40] = UINT32_MAX - 1;
    for (int i = 0; i < 3; i++)
        psti_sketch_add(sketch, 48); /* the first value of bucket 40 */
    CHECK_EQ(sketch[40], UINT32_MAX);
    for (uint32_t i = 0; i < PSTI_SKETCH_BUCKETS; i++)
        CHECK_EQ(sketch[i], i == 40 ? UINT32_MAX : 0);
}

/* ---- quantiles ---- */

enum { MOST_VALUES = 2500 };
static const uint64_t per_mille[PSTI_QUANTILES] = {500, 900, 990, 999};

typedef struct sample {
    uint32_t sketch[PSTI_SKETCH_BUCKETS];
    uint64_t values[MOST_VALUES];
    uint64_t num_values;
    pst_pool_status status;
} sample;

static void add(sample *self, uint64_t value)
{
    self->values[self->num_values++] = value;
    self->status.demand_high_water = psti_max_u64(self->status.demand_high_water, value);
    psti_sketch_add(self->sketch, value);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* As one loop over all buckets, and as threads with `each` buckets would. */
static void work_out(sample *self, uint32_t each)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i < PSTI_QUANTILES; i++)
        self->status.demand_quantiles[i] = UINT64_MAX;
    for (uint32_t first = 0; first < PSTI_SKETCH_BUCKETS; first += each) {
        psti_sketch_quantiles(self->sketch, first, first + each, below, self->num_values,
                              &self->status);
        for (uint32_t bucket = first; bucket < first + each; bucket++)
            below += self->sketch[bucket];
    }
}

/* By sorting: ceil(q * n) values are at most the true quantile. */
static void check_against_sort(sample *self)
{
    qsort(self->values, self->num_values, sizeof(uint64_t), compare);
    for (uint32_t i = 0; i < PSTI_QUANTILES; i++) {
        const uint64_t rank = (self->num_values * per_mille[i] + 999) / 1000;
        const uint64_t exact = self->values[rank - 1];
        const uint64_t found = self->status.demand_quantiles[i];
        CHECK_MSG(found >= exact && found <= self->status.demand_high_water,
                  "quantile %" PRIu32 " of %" PRIu64 " values is %" PRIu64 ", by sorting %" PRIu64,
                  i, self->num_values, found, exact);
        CHECK_MSG(exact > UINT32_MAX || (found - exact) * 16 <= exact,
                  "quantile %" PRIu32 " of %" PRIu64 " values is %" PRIu64 ", by sorting %" PRIu64,
                  i, self->num_values, found, exact);
    }
}

PST_TEST(CoreSketch, OneValueIsExact)
{
    static const uint64_t values[] = {0, 31, 32, 1000, UINT32_MAX - 5, UINT64_C(1) << 40};
    for (int v = 0; v < 6; v++) {
        sample self = {.num_values = 0};
        add(&self, values[v]);
        work_out(&self, PSTI_SKETCH_BUCKETS);
        for (uint32_t i = 0; i < PSTI_QUANTILES; i++)
            CHECK(self.status.demand_quantiles[i] == values[v]);
    }
}

/* Where the rank steps: 1000 values have ranks 500, 900, 990, 999; one more value moves all. */
PST_TEST(CoreSketch, RanksRoundUp)
{
    sample self = {.num_values = 0};
    for (uint64_t i = 0; i < 1000; i++)
        add(&self, i < 500 ? 1 : i < 900 ? 2 : i < 990 ? 3 : i < 999 ? 4 : 5);
    work_out(&self, PSTI_SKETCH_BUCKETS);
    for (uint32_t i = 0; i < PSTI_QUANTILES; i++)
        CHECK_EQ(self.status.demand_quantiles[i], i + 1);
    add(&self, 5);
    work_out(&self, PSTI_SKETCH_BUCKETS);
    for (uint32_t i = 0; i < PSTI_QUANTILES; i++)
        CHECK_EQ(self.status.demand_quantiles[i], i + 2);
}

PST_TEST(CoreSketch, IsWithinASixteenthOfTheSortedValues)
{
    enum { CASES = 400 };
    static sample self;
    for (uint64_t seed = 1; seed <= CASES && !psti_test_failed(); seed++) {
        oracle_random random = oracle_random_seeded(seed);
        const uint64_t num_values = oracle_random_in(&random, 1, MOST_VALUES);
        const uint64_t bits = oracle_random_in(&random, 1, 41);
        self = (sample){.num_values = 0};
        while (self.num_values < num_values) {
            const uint64_t most = UINT64_C(1) << oracle_random_in(&random, 0, bits);
            add(&self, oracle_random_below(&random, most));
        }
        work_out(&self, 1u << oracle_random_below(&random, 10));
        check_against_sort(&self);
    }
}
